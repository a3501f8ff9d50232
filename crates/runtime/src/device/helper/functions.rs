//! The threads, one for each device, that call functions of the program on streams that nobody waits for, or asks for without a wait. They may take as long as they like, and may
//! wait for what other streams do: the helper goes on with those meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use oxccl_sys::sync::yield_now;

use super::super::serial::MEETINGS;
use super::super::stream::{Inner, Waited};

/// Of one device: a function may wait for one of another device, which another thread of the program may serve, but not for one that comes later
/// on its own.
#[derive(Default)]
struct Functions {
    /// Streams whose next task is a function.
    waiting: Mutex<VecDeque<Arc<Inner>>>,
    bell: Condvar,
    started: OnceLock<bool>,
}

fn of(device: usize) -> &'static Functions {
    static ALL: OnceLock<Vec<Functions>> = OnceLock::new();
    &ALL.get_or_init(|| (0..super::super::count()).map(|_| Functions::default()).collect())[device]
}

impl Functions {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arc<Inner>>> {
        // Valid between statements.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the thread of `device` is there; the first call starts it.
pub(super) fn are_called(device: usize) -> bool {
    let functions = of(device);
    *functions.started.get_or_init(|| {
        let builder = std::thread::Builder::new().name("oxccl functions".into());
        let spawned = oxccl_sys::process::with_signals_blocked(|| builder.spawn(move || run(functions)));
        spawned.inspect_err(|e| crate::log::warn(&format!("cannot start the thread for host functions: {e}"))).is_ok()
    })
}

/// Has the function at the head of `stream` called. Whether that is new.
pub(super) fn hand_over(stream: &Arc<Inner>) -> bool {
    let functions = of(stream.device);
    let mut waiting = functions.waiting();
    if waiting.iter().any(|s| Arc::ptr_eq(s, stream)) {
        return false;
    }
    waiting.push_back(stream.clone());
    functions.bell.notify_one();
    true
}

fn run(functions: &Functions) {
    loop {
        let next = functions.bell.wait_while(functions.waiting(), |waiting| waiting.is_empty());
        let next = next.unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(stream) = next else { continue };
        // And what comes behind it, as far as that goes. Who asks for the stream again and again may have it just now.
        let mut meetings = 0;
        while meetings < MEETINGS {
            match stream.advance() {
                Waited::Progress => meetings = 0,
                Waited::Elsewhere => {
                    meetings += 1;
                    yield_now();
                }
                Waited::Blocked | Waited::Idle | Waited::Foreign => break,
            }
        }
        if stream.pending() {
            super::wake();
        }
    }
}
