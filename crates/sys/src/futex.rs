//! Parking threads on words of shared memory, across processes.

use std::time::Duration;

use crate::affinity;
use crate::barrier;
use crate::sync::{Ordering, SharedU32, fence};

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

/// Model of the above for loom: sleeping is yielding until the word changed.
#[cfg(loom)]
pub fn wait(word: &SharedU32, expected: u32, _timeout: Duration) -> Parked {
    while word.load(Ordering::SeqCst) == expected {
        crate::sync::yield_now();
    }
    Parked::Woken
}

/// Model of the above for loom.
#[cfg(loom)]
pub fn wake(_word: &SharedU32, _count: u32) -> u32 {
    0
}

/// Bit of the word that says that somebody parked, or is about to; the rest counts the rings that woke somebody.
const PARKED: u32 = 1;

/// A bell that wakes threads which wait for *any* change that its owner may care for. One 32-bit word in shared
/// memory, initially zero; where there is a second one, it says on which core a waiter parked last.
///
/// The waiter: [`prepare`](Doorbell::prepare), look at what it waits for *again*, [`park`](Doorbell::park).
/// The ringer: change what the waiter looks at (any ordering), then [`ring`](Doorbell::ring): a fence and a load when
/// nobody is parked. A waiter that dies leaves at most one needless wake-up.
#[derive(Clone, Debug)]
pub struct Doorbell {
    word: SharedU32,
    /// Where the waiter says on which core it parks.
    place: Option<SharedU32>,
}

/// What [`Doorbell::prepare`] saw.
#[derive(Clone, Copy, Debug)]
#[must_use = "look at the condition again, then park with it"]
pub struct Ticket(u32);

impl Doorbell {
    /// The bell whose word is `word`.
    #[inline(always)]
    pub fn new(word: SharedU32) -> Doorbell {
        Doorbell { word, place: None }
    }

    /// The bell whose waiter leaves in `place` on which core it parks.
    #[inline(always)]
    pub fn placed(word: SharedU32, place: SharedU32) -> Doorbell {
        Doorbell { word, place: Some(place) }
    }

    /// Whether somebody is parked, or about to. A ringer looks behind a fence, before which it has changed what the waiter
    /// looks at: a light one (see [`barrier`]) where its process and the waiter's are registered.
    #[inline(always)]
    pub fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PARKED != 0
    }

    /// Whether who parked here last did so on `core`: a hint, since several may wait here.
    pub fn is_on(&self, core: u32) -> bool {
        self.place.as_ref().is_some_and(|place| place.load(Ordering::Relaxed) == core)
    }

    /// Wakes everybody parked.
    #[inline]
    pub fn ring(&self) {
        // SYNC: doorbell. Orders the ringer's change before its look at the parked bit; the waiter sets the bit,
        // fences, and then looks at the change: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.is_awaited() {
            self.wake_parked();
        }
    }

    #[cold]
    fn wake_parked(&self) {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & PARKED != 0 {
            // Adding one clears the bit and carries into the count, so that a waiter about to sleep does not.
            match self.word.compare_exchange(seen, seen.wrapping_add(PARKED), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    wake(&self.word, u32::MAX);
                    return;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Announces that the caller will park. It must look at its condition once more before it does.
    #[inline]
    pub fn prepare(&self) -> Ticket {
        if let Some(place) = &self.place {
            place.store(affinity::current_core(), Ordering::Relaxed);
        }
        let seen = self.word.fetch_or(PARKED, Ordering::SeqCst) | PARKED;
        // SYNC: doorbell.
        barrier::heavy();
        Ticket(seen)
    }

    /// Sleeps until a ring after `ticket` was taken, at most `timeout`. May return early.
    pub fn park(&self, ticket: Ticket, timeout: Duration) -> Parked {
        wait(&self.word, ticket.0, timeout)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;
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

    #[test]
    fn no_ring_is_lost() {
        // Two threads hand a counter back and forth; a lost ring would run into the park's 30 s.
        let memory = Arc::new(SharedMemory::create("t", 4096).unwrap());
        let turn = |me: u64, memory: Arc<SharedMemory>| {
            let value = memory.u64_at(0);
            let bells = [Doorbell::new(memory.u32_at(64)), Doorbell::new(memory.u32_at(128))];
            for round in 0..20_000_u64 {
                let mine = round * 2 + me;
                while value.load(Ordering::Acquire) != mine {
                    let ticket = bells[me as usize].prepare();
                    if value.load(Ordering::Acquire) == mine {
                        break;
                    }
                    assert_eq!(bells[me as usize].park(ticket, Duration::from_secs(30)), Parked::Woken);
                }
                value.store(mine + 1, Ordering::Release);
                bells[1 - me as usize].ring();
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| turn(0, memory.clone()));
            s.spawn(|| turn(1, memory.clone()));
        });
    }
}
