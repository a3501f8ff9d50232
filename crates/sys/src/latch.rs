//! A lock for what is held briefly and seldom contended, as a rule by one thread only.
//!
//! One atomic exchange takes it, a plain store gives it back. The standard library's mutex needs a second exchange at the end, to
//! learn whether somebody sleeps on it. Nobody sleeps on a latch: who finds it taken spins, then yields. It is not poisoned by a
//! panic, since the guard is dropped on the way.
//!
//! A thread that has taken it many times, and nobody else in between, gets the *bias*: from then on it takes the latch by a plain
//! store too, since an exchange waits until all stores before it are done. Another thread that wants it takes the bias away
//! first, by a [`barrier`] that the thread with the bias does not feel. It gets the bias back if it has the latch to itself for
//! longer than before. One thread at most ever has the bias of a latch, so what says that it is inside is written by no other.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, AtomicUsize, Ordering, spin_loop, yield_now};
use crate::{barrier, thread};

/// Looks at a taken latch before its core is given away.
const SPINS: u32 = 64;
/// How many times in a row a thread takes a latch before it gets the bias.
const STREAK: u32 = if cfg!(loom) { 1 } else { 64 };
/// How many times as many after it was taken away.
const LONGER: u32 = if cfg!(loom) { 1 } else { 4 };
/// The most that it comes to: what a barrier costs is little beside as many exchanges.
const LONGEST: u32 = 4096;

/// A value that one thread at a time may use, for short times.
pub struct Latch<T> {
    /// Whether a thread has it by exchange.
    taken: AtomicBool,
    /// The thread that takes it by store, which has the bias; 0: none. Written by who has `taken`.
    biased: AtomicUsize,
    /// Whether that thread has it so.
    inside: AtomicBool,
    /// Used by who has `taken`.
    takings: UnsafeCell<Takings>,
    value: UnsafeCell<T>,
}

// SAFETY: the latch hands out access to one thread at a time, so sharing it moves the value between threads at most.
unsafe impl<T: Send> Sync for Latch<T> {}

/// How a latch was taken by exchange.
struct Takings {
    /// By whom last.
    last: usize,
    /// How often in a row.
    streak: u32,
    /// After how many the thread gets the bias.
    needed: u32,
    /// The thread that has, or had, the bias; 0 before the first.
    favourite: usize,
}

/// Access to the value; given back when dropped.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    by: By,
    // A guard gives its latch back on the thread that took it, as with the standard library's.
    _stays: std::marker::PhantomData<*const ()>,
}

/// How a latch was taken. A word: what is moved beside a byte is moved in pieces that overlap, and moved again waits for the stores of
/// those, and for all in front of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
enum By {
    Bias,
    Exchange,
}

impl<T: Default> Default for Latch<T> {
    fn default() -> Latch<T> {
        Latch::new(T::default())
    }
}

impl<T> Latch<T> {
    /// A free latch around `value`.
    pub fn new(value: T) -> Latch<T> {
        Latch {
            taken: AtomicBool::new(false),
            biased: AtomicUsize::new(0),
            inside: AtomicBool::new(false),
            takings: UnsafeCell::new(Takings { last: 0, streak: 0, needed: STREAK, favourite: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// Access, if nobody has it now. It may fail as well while another thread tries.
    #[inline]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        let me = thread::number();
        if self.biased.load(Ordering::Relaxed) == me { self.enter(me) } else { self.exchange() }
    }

    fn guard(&self, by: By) -> LatchGuard<'_, T> {
        LatchGuard { latch: self, by, _stays: std::marker::PhantomData }
    }

    /// [`try_lock`](Self::try_lock) by the thread that has the bias, or had it a moment ago.
    #[inline]
    fn enter(&self, me: usize) -> Option<LatchGuard<'_, T>> {
        if self.inside.load(Ordering::Relaxed) {
            return None;
        }
        self.inside.store(true, Ordering::Relaxed);
        // SYNC: latch-bias. Who takes the bias away passes the barrier between that and its look at `inside`: one of the two
        // sees the other.
        barrier::light();
        // What others did while they had it this thread has seen: it has had the latch by exchange when it got the bias.
        if self.biased.load(Ordering::Relaxed) == me {
            return Some(self.guard(By::Bias));
        }
        // SYNC: latch. Who sees this may not have seen what this thread did when it was inside.
        self.inside.store(false, Ordering::Release);
        self.exchange()
    }

    /// [`try_lock`](Self::try_lock) by a thread without the bias.
    // Out of the way: a latch that matters is biased.
    #[inline(never)]
    fn exchange(&self) -> Option<LatchGuard<'_, T>> {
        // A look at first: who waits in turns should not hold the line, nor take the bias from a thread that is inside.
        if self.taken.load(Ordering::Relaxed) || self.inside.load(Ordering::Relaxed) {
            return None;
        }
        // SYNC: latch. Sees everything that the last holder did.
        if self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        if self.biased.load(Ordering::Relaxed) != 0 {
            self.take_bias();
        }
        // SYNC: latch. The thread that had the bias is out, and all that it did is seen: nobody gives it back meanwhile.
        if self.inside.load(Ordering::Acquire) {
            // SYNC: latch
            self.taken.store(false, Ordering::Release);
            return None;
        }
        Some(self.guard(By::Exchange))
    }

    /// From now on the thread with the bias takes the latch by exchange as others do. By who has `taken`.
    #[cold]
    fn take_bias(&self) {
        self.biased.store(0, Ordering::Relaxed);
        // SYNC: latch-bias
        barrier::heavy();
        // SAFETY: the caller has `taken`.
        let takings = unsafe { &mut *self.takings.get() };
        takings.needed = (takings.needed * LONGER).min(LONGEST);
        takings.streak = 0;
    }

    /// Gives back what was taken by exchange.
    #[inline(never)]
    fn give_back(&self) {
        // SAFETY: the caller has `taken`.
        let takings = unsafe { &mut *self.takings.get() };
        let me = thread::number();
        if takings.last != me {
            (takings.last, takings.streak) = (me, 0);
        }
        takings.streak = takings.streak.saturating_add(1);
        if takings.streak >= takings.needed {
            self.give_bias(takings, me);
        }
        // SYNC: latch
        self.taken.store(false, Ordering::Release);
    }

    /// `me`, which has `taken`, gets the bias unless another thread had it once.
    #[cold]
    fn give_bias(&self, takings: &mut Takings, me: usize) {
        let its = takings.favourite == 0 || takings.favourite == me;
        if its && (cfg!(loom) || barrier::registered()) {
            takings.favourite = me;
            self.biased.store(me, Ordering::Relaxed);
        }
    }

    /// Access, as soon as nobody else has it. The holder must not wait for anything meanwhile: that is what bounds
    /// this wait.
    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_late(),
        }
    }

    #[cold]
    fn lock_late(&self) -> LatchGuard<'_, T> {
        let mut looks = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            looks += 1;
            if looks < SPINS { spin_loop() } else { yield_now() }
        }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.by == By::Bias {
            // SYNC: latch
            self.latch.inside.store(false, Ordering::Release);
        } else {
            self.latch.give_back();
        }
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only access while it lives.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> std::fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latch").field("taken", &self.taken).field("inside", &self.inside).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let latch = Latch::new((0_u64, 0_u64));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        let mut both = latch.lock();
                        both.0 += 1;
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(*latch.lock(), (80_000, 80_000));
    }

    #[test]
    fn a_panic_gives_it_back() {
        let latch = Latch::new(1);
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = latch.lock();
            assert!(latch.try_lock().is_none());
            panic!("on purpose");
        }));
        assert!(held.is_err() && latch.try_lock().is_some());
    }

    #[test]
    fn who_has_it_often_gets_the_bias_and_loses_it_to_who_wants_it() {
        let latch = Latch::new(0_u64);
        let often = |times: u32| (0..times).for_each(|_| *latch.lock() += 1);
        often(STREAK);
        assert_eq!(latch.biased.load(Ordering::Relaxed) == thread::number(), barrier::registered());
        let held = latch.lock();
        assert_eq!(held.by == By::Bias, barrier::registered());
        assert!(latch.try_lock().is_none(), "taken twice by one thread");
        std::thread::scope(|s| s.spawn(|| assert!(latch.try_lock().is_none())).join().unwrap());
        drop(held);
        assert_eq!(latch.lock().by == By::Bias, barrier::registered(), "who does not get it takes nothing away");
        // Now it loses the bias, and gets it back later than before. Nobody else ever gets it.
        std::thread::scope(|s| s.spawn(|| often(STREAK * LONGER * LONGER)).join().unwrap());
        assert_eq!(latch.lock().by, By::Exchange);
        often(STREAK * LONGER - 1);
        assert_eq!(latch.lock().by == By::Bias, barrier::registered());
        let all = u64::from(STREAK * (1 + LONGER + LONGER * LONGER) - 1);
        assert_eq!(*latch.lock(), all);
    }

    #[test]
    fn nothing_is_lost_while_the_bias_changes() {
        let latch = Latch::new((0_u64, 0_u64));
        let both = |times: u64| {
            for _ in 0..times {
                let mut both = latch.lock();
                both.0 += 1;
                assert_eq!(both.0, both.1 + 1);
                both.1 += 1;
            }
        };
        const ROUNDS: u64 = 400;
        let many = u64::from(STREAK) + 20;
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..ROUNDS {
                    both(1);
                    // The other one may get the bias meanwhile.
                    yield_now();
                }
            });
            both(ROUNDS * many);
        });
        assert_eq!(latch.lock().0, ROUNDS * (many + 1));
    }
}
