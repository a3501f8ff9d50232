//! The thread that calls functions of the program on streams that nobody waits for, or asks for without a wait. They may take as long as they like, and may
//! wait for what other streams do: the helper goes on with those meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use oxccl_sys::sync::yield_now;

use super::super::serial::MEETINGS;
use super::super::stream::{Inner, Waited};

/// Streams whose next task is a function.
static WAITING: Mutex<VecDeque<Arc<Inner>>> = Mutex::new(VecDeque::new());
static BELL: Condvar = Condvar::new();

fn waiting() -> MutexGuard<'static, VecDeque<Arc<Inner>>> {
    // Valid between statements.
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the thread is there; the first call starts it.
pub(super) fn are_called() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let spawned = std::thread::Builder::new().name("oxccl functions".into()).spawn(run);
        spawned.inspect_err(|e| crate::log::warn(&format!("cannot start the thread for host functions: {e}"))).is_ok()
    })
}

/// Has the function at the head of `stream` called. Whether that is new.
pub(super) fn hand_over(stream: &Arc<Inner>) -> bool {
    let mut waiting = waiting();
    if waiting.iter().any(|s| Arc::ptr_eq(s, stream)) {
        return false;
    }
    waiting.push_back(stream.clone());
    BELL.notify_one();
    true
}

fn run() {
    loop {
        let next = BELL.wait_while(waiting(), |waiting| waiting.is_empty());
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
