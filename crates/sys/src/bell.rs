//! Bells: how a thread sleeps until another one, maybe of another process, has changed what it waits for.

use std::time::Duration;

use crate::affinity;
use crate::barrier;
use crate::futex::{Parked, wait, wake};
use crate::sync::{Ordering, SharedU32, fence};

/// Bit of the word that says that somebody parked, or is about to; the rest counts the rings that woke somebody.
const PARKED: u32 = 1;

/// A bell that wakes threads which wait for *any* change that its owner may care for. One 32-bit word in shared
/// memory, initially zero; where there is a second one, it says on which core a waiter parked last.
///
/// The waiter: [`park_unless`](Doorbell::park_unless) what it waits for is there.
/// The ringer: change what the waiter looks at (any ordering), then [`ring`](Doorbell::ring): a fence and a load when
/// nobody is parked. A waiter that dies leaves at most one needless wake-up.
#[derive(Clone, Debug)]
pub struct Doorbell {
    word: SharedU32,
    /// Where the waiter says on which core it parks.
    place: Option<SharedU32>,
}

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

    /// Sleeps until a ring after this call began, at most `timeout`, but not if `there` says that what the caller waits for
    /// is there: it looks after the caller has announced that it will sleep. May return early.
    #[inline]
    pub fn park_unless(&self, timeout: Duration, there: impl FnOnce() -> bool) -> Parked {
        let seen = self.announce();
        if there() { Parked::Woken } else { wait(&self.word, seen, timeout) }
    }

    /// Says that the caller will park, and what the word is until a ring.
    fn announce(&self) -> u32 {
        if let Some(place) = &self.place {
            place.store(affinity::current_core(), Ordering::Relaxed);
        }
        let seen = self.word.fetch_or(PARKED, Ordering::SeqCst) | PARKED;
        // SYNC: doorbell. Orders the bit before the look at what the ringer changes.
        barrier::heavy();
        seen
    }
}

/// The bells of threads that wait for one another.
pub trait Belfry {
    /// How many bells there are.
    fn bells(&self) -> usize;
    /// The bell of `member`.
    fn bell(&self, member: usize) -> Doorbell;
    /// Between a ringer's change and its look at a bell: [`barrier::light`] where all processes are registered for it.
    fn fence(&self);

    /// Wakes `member` if it is parked. Call after stores that it may wait for.
    #[inline(always)]
    fn ring(&self, member: usize) {
        // SYNC: doorbell. The waiter's heavy barrier, or fence, lies between its bit and its look.
        self.fence();
        // Looked at first, so that the bell is gone where it branches: behind a branch its end would be a call.
        let awaited = self.bell(member).is_awaited();
        if awaited {
            self.wake(member);
        }
    }

    /// Wakes every member but `me` that is parked. Call after stores that they may wait for.
    #[inline]
    fn ring_all(&self, me: usize) {
        if self.bells() == 2 {
            // Twenty instructions fewer than the loop.
            return self.ring(1 - me);
        }
        // SYNC: doorbell
        self.fence();
        let mut awaited = false;
        for member in 0..self.bells() {
            awaited |= (member != me) & self.bell(member).is_awaited();
        }
        if awaited {
            self.wake_all(me);
        }
    }

    /// The rare end of [`Belfry::ring`].
    #[cold]
    #[inline(never)]
    fn wake(&self, member: usize) {
        self.bell(member).ring();
    }

    /// The rare end of [`Belfry::ring_all`]. Wakes those first that parked on other cores: who wakes on this one may take it,
    /// and would keep the others waiting.
    #[cold]
    #[inline(never)]
    fn wake_all(&self, me: usize) {
        let here = affinity::current_core();
        let others = || (0..self.bells()).filter(|member| *member != me);
        others().filter(|member| !self.bell(*member).is_on(here)).for_each(|member| self.ring(member));
        // All: another thread of a member may have said another place meanwhile, and not parked.
        others().for_each(|member| self.ring(member));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;
    use std::sync::Arc;

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
                    let there = || value.load(Ordering::Acquire) == mine;
                    let parked = bells[me as usize].park_unless(Duration::from_secs(30), there);
                    assert_eq!(parked, Parked::Woken);
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
