//! Parking threads on words of shared memory, across processes.

#[cfg(not(loom))]
use std::time::Duration;

#[cfg(not(loom))]
use crate::sync::SharedU32;

/// How a park ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// Woken, interrupted, or the word had changed before: look again.
    Woken,
    /// The time is over.
    TimedOut,
}

/// Sleeps while the word equals `expected`, at most `timeout`. May return early: look at the word again.
#[cfg(not(loom))]
pub fn wait(word: &SharedU32, expected: u32, timeout: Duration) -> Parked {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the word is valid and aligned (contract of the handle), `time` outlives the call. FUTEX_WAIT without
    // the private flag: the word is found by its page, so processes may map it at different addresses.
    let r = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time) };
    match r {
        -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) => Parked::TimedOut,
        _ => Parked::Woken,
    }
}

/// Wakes at most `count` threads that sleep on the word; returns how many.
#[cfg(not(loom))]
pub fn wake(word: &SharedU32, count: u32) -> u32 {
    let count = count.min(i32::MAX as u32);
    // SAFETY: FUTEX_WAKE only uses the address to find sleepers.
    let r = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    u32::try_from(r).unwrap_or(0)
}

#[cfg(loom)]
pub use model::{wait, wake};

/// The above for loom: who sleeps is woken by a wake and by nothing else, so that a lost one is a deadlock, which loom tells.
#[cfg(loom)]
mod model {
    use std::collections::HashMap;
    use std::time::Duration;

    use loom::sync::{Arc, Condvar, Mutex};

    use super::Parked;
    use crate::sync::{Ordering, SharedU32};

    loom::lazy_static! {
        /// Who sleeps on which word, as the kernel has it: looked at and changed under one lock.
        static ref SLEEPERS: Mutex<HashMap<usize, Arc<Condvar>>> = Mutex::new(HashMap::new());
    }

    /// Sleeps while the word equals `expected`. No time ever passes: the model must do without the bound of a wait.
    pub fn wait(word: &SharedU32, expected: u32, _timeout: Duration) -> Parked {
        // Not poisoned: a model in which a thread panicked has failed, and goes no further. So below.
        let mut sleepers = SLEEPERS.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            let bed = sleepers.entry(word.as_ptr() as usize).or_insert_with(|| Arc::new(Condvar::new())).clone();
            drop(bed.wait(sleepers));
        }
        Parked::Woken
    }

    /// Wakes everybody who sleeps on the word; nobody here asks how many that were.
    pub fn wake(word: &SharedU32, _count: u32) -> u32 {
        if let Some(bed) = SLEEPERS.lock().unwrap().get(&(word.as_ptr() as usize)) {
            bed.notify_all();
        }
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;
    use crate::sync::Ordering;
    use std::sync::Arc;

    #[test]
    fn waits_time_out_and_wakes_arrive() {
        let memory = Arc::new(SharedMemory::create("t", 4096).unwrap());
        let word = memory.u32_at(8);
        assert_eq!(wait(&word, 0, Duration::from_millis(2)), Parked::TimedOut);
        assert_eq!(wait(&word, 1, Duration::from_secs(60)), Parked::Woken, "the value differs");
        // The other mapping of the same memory has another address: the futex must be found by its page.
        let other = Arc::new(SharedMemory::from_fd(memory.fd().try_clone_to_owned().unwrap()).unwrap());
        let theirs = other.u32_at(8);
        let sleeper = std::thread::spawn(move || {
            while theirs.load(Ordering::Acquire) == 0 {
                wait(&theirs, 0, Duration::from_secs(20));
            }
        });
        word.store(1, Ordering::Release);
        while !sleeper.is_finished() {
            wake(&word, u32::MAX);
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
    }
}
