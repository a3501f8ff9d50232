//! Where vectors of 64 bytes of floats cost more than their own time.
//!
//! Intel's processors switch the upper halves of their floating-point units on when such vectors come, and run slower while they are
//! on: what follows a single sum of 64 bytes takes 0.3 us longer, and 1.6 us where the last one was long ago (measured, docs/performance.md).
//! Moves of such vectors, and sums of integers, cost nothing. So short calls of 16- to 64-bit floats go by vectors of 32 bytes there, and long
//! ones, which wait for the caches, or for memory where elements are converted; between them lies what is fed faster than it is summed, and
//! 8-bit floats take twice as long by those. Results that leave past the caches are made as ever.

/// Bytes per source up to which a call is short: what wider vectors save is less than a hundredth of a microsecond.
const SHORT: usize = 1 << 10;
/// Sources up to which a long call waits for the caches.
const SOURCES: usize = 4;

/// Whether a call of so many bytes per source is better off with narrower vectors; `long`: bytes from which on it is long.
#[inline]
pub(crate) fn is_dear(bytes: usize, srcs: usize, long: usize) -> bool {
    (bytes <= SHORT || bytes >= long && srcs <= SOURCES) && wakes()
}

/// Whether this processor wakes units for such vectors.
#[cfg(all(not(test), not(miri)))]
#[inline]
fn wakes() -> bool {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    use crate::vendor::{Vendor, vendor};
    const UNKNOWN: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Relaxed) {
        UNKNOWN => {
            let wakes = vendor() == Vendor::Intel;
            KNOWN.store(u8::from(wakes), Relaxed);
            wakes
        }
        known => known == 1,
    }
}

#[cfg(all(not(test), miri))]
fn wakes() -> bool {
    false
}

/// Tests of the wide loops say which processor they want to be on: by default one that wakes nothing.
#[cfg(test)]
fn wakes() -> bool {
    WAKES.get()
}

#[cfg(test)]
thread_local! {
    pub(crate) static WAKES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_cache_feeds_and_sums_of_many_go_by_wide_vectors() {
        const LONG: usize = 16 << 10;
        assert!(!is_dear(SHORT, 2, LONG), "nothing wakes");
        WAKES.set(true);
        let dear = [(SHORT, 2), (SHORT, 9), (LONG, 2), (LONG, SOURCES), (1 << 30, 1)];
        let wide = [(SHORT + 1, 1), (LONG - 1, 2), (LONG, SOURCES + 1)];
        assert!(dear.iter().all(|(bytes, srcs)| is_dear(*bytes, *srcs, LONG)));
        assert!(!wide.iter().any(|(bytes, srcs)| is_dear(*bytes, *srcs, LONG)));
    }
}
