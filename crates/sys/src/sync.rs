//! The only place that names atomics: the standard library's, or loom's under `cfg(loom)`; and handles on atomic
//! words that lie in memory shared with other processes.
//!
//! A handle is a raw pointer, never a reference into the memory: other processes write there.

use std::sync::Arc;

use crate::SharedMemory;

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

/// Stores before it stay before those behind it: the compiler does not move them. For speed alone: which core sees what when is
/// not said by it.
#[inline(always)]
pub fn kept_in_order() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// Between two of the looks at a line that another core will write, of which this was the `looks`-th: the first do without a
/// pause, which takes as long as a line takes to come.
#[inline]
pub fn pause_between(looks: u32) {
    /// Looks without a pause in between.
    const BARE: u32 = 64;
    if looks > BARE {
        spin_loop();
    }
}

macro_rules! shared_word {
    ($name:ident, $atomic:ident, $int:ty) => {
        #[doc = concat!("A handle on an atomic `", stringify!($int), "` in shared memory.")]
        ///
        /// Made by [`SharedMemory`] it keeps the mapping alive; made from a pointer it does not.
        #[derive(Clone)]
        pub struct $name {
            word: *const $atomic,
            // Held only so that the mapping outlives the handle.
            _keep: Option<Arc<SharedMemory>>,
        }

        // SAFETY: the handle only offers atomic operations on the word, which the constructor's contract keeps valid.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        impl $name {
            /// A handle on the word at `ptr`.
            ///
            /// # Safety
            /// `ptr` is aligned to the word's size and valid for reads and writes for as long as the handle or a
            /// clone of it is used, and every other access to the word is atomic. (Under `cfg(loom)` it points to
            /// one of loom's atomics.)
            #[inline]
            pub unsafe fn from_ptr(ptr: *mut u8) -> $name {
                debug_assert!(ptr.cast::<$atomic>().is_aligned());
                $name { word: ptr.cast::<$atomic>().cast_const(), _keep: None }
            }

            pub(crate) fn in_memory(memory: &Arc<SharedMemory>, offset: usize) -> $name {
                let ptr = memory.at(offset, size_of::<$int>());
                assert!(ptr.cast::<$int>().is_aligned(), "offset {offset} is not aligned");
                $name { word: ptr.cast::<$atomic>().cast_const(), _keep: Some(memory.clone()) }
            }

            #[inline(always)]
            fn atomic(&self) -> &$atomic {
                // SAFETY: valid by the contract of the constructors; the reference is to an atomic and ends with
                // the operation.
                unsafe { &*self.word }
            }

            /// The address of the word.
            #[inline]
            pub fn as_ptr(&self) -> *mut $int {
                self.word as *mut $int
            }
            /// Atomic load.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $int {
                self.atomic().load(order)
            }
            /// Atomic store.
            #[inline(always)]
            pub fn store(&self, value: $int, order: Ordering) {
                self.atomic().store(value, order)
            }
            /// Atomic exchange; returns the old value.
            #[inline(always)]
            pub fn swap(&self, value: $int, order: Ordering) -> $int {
                self.atomic().swap(value, order)
            }
            /// Atomic wrapping addition; returns the old value.
            #[inline(always)]
            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.atomic().fetch_add(value, order)
            }
            /// Atomic wrapping subtraction; returns the old value.
            #[inline(always)]
            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                self.atomic().fetch_sub(value, order)
            }
            /// Atomic or; returns the old value.
            #[inline(always)]
            pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                self.atomic().fetch_or(value, order)
            }
            /// Atomic and; returns the old value.
            #[inline(always)]
            pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                self.atomic().fetch_and(value, order)
            }
            /// Atomic maximum; returns the old value.
            #[inline(always)]
            pub fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                self.atomic().fetch_max(value, order)
            }
            /// Atomic compare and exchange.
            ///
            /// # Errors
            /// The value found, where it was not `current`.
            #[inline(always)]
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.atomic().compare_exchange(current, new, success, failure)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "@{:p}"), self.word)
            }
        }
    };
}

shared_word!(SharedU32, AtomicU32, u32);
shared_word!(SharedU64, AtomicU64, u64);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_memory_are_the_same_words() {
        let memory = Arc::new(SharedMemory::create("t", 4096).unwrap());
        let a = memory.u64_at(64);
        let b = memory.u64_at(64);
        a.store(5, Ordering::Release);
        assert_eq!(b.fetch_add(2, Ordering::AcqRel), 5);
        assert_eq!(a.load(Ordering::Acquire), 7);
        assert_eq!(memory.u64_at(72).load(Ordering::Relaxed), 0);
        drop(memory);
        assert_eq!(a.compare_exchange(7, 9, Ordering::AcqRel, Ordering::Relaxed), Ok(7), "the handle keeps the map");
        assert_eq!(b.compare_exchange(7, 9, Ordering::AcqRel, Ordering::Relaxed), Err(9));
    }

    #[test]
    fn unaligned_and_outside_words_are_refused() {
        let memory = Arc::new(SharedMemory::create("t", 4096).unwrap());
        for offset in [4, 4096, 4092, usize::MAX] {
            let m = memory.clone();
            assert!(std::panic::catch_unwind(move || m.u64_at(offset)).is_err(), "{offset}");
        }
    }
}
