//! A lock for what is held briefly and seldom contended: one atomic exchange to take it, a plain store to give it back.
//!
//! The standard library's mutex needs a second exchange at the end, to learn whether somebody sleeps on it. Nobody
//! sleeps on a latch: who finds it taken spins, then yields. It is not poisoned by a panic, since the guard is dropped
//! on the way.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, Ordering, spin_loop, yield_now};

/// Looks at a taken latch before its core is given away.
const SPINS: u32 = 64;

/// A value that one thread at a time may use, for short times.
#[derive(Default)]
pub struct Latch<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the latch hands out access to one thread at a time (`taken`), so sharing it moves the value between threads
// at most.
unsafe impl<T: Send> Sync for Latch<T> {}

/// Access to the value; given back when dropped.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    // A guard gives its latch back on the thread that took it, as with the standard library's.
    _stays: std::marker::PhantomData<*const ()>,
}

impl<T> Latch<T> {
    /// A free latch around `value`.
    pub fn new(value: T) -> Latch<T> {
        Latch { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Access, if nobody has it now.
    #[inline]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        // SYNC: latch. Sees everything that the last holder did.
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(LatchGuard { latch: self, _stays: std::marker::PhantomData })
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
        // SYNC: latch
        self.latch.taken.store(false, Ordering::Release);
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
        f.debug_struct("Latch").field("taken", &self.taken).finish_non_exhaustive()
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
}
