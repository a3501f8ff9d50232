//! Results that leave the core from its registers past the caches, by non-temporal stores.
//!
//! It wraps the arithmetic of a type whose steps are whole lines or halves of them, which follow each other, so that what is
//! stored is soon complete. Whether the caller's places allow it is found out in `stream`, which also orders the stores.

use std::arch::x86_64::{_mm256_load_si256, _mm256_stream_si256, _mm512_load_si512, _mm512_stream_si512};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::lanes::{Lanes, SUM, blocks_unrolled, forward};

/// See [`Lanes::past_caches`].
///
/// # Safety
/// As there, at the level of `L`.
#[inline(always)]
pub(crate) unsafe fn sum_of_two<L: Lanes>(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
    // SAFETY: the caller's promise: destinations begin a line at the first element, and a step is half a line or a whole one.
    unsafe { blocks_unrolled::<Past<L>, SUM>(dsts, srcs, range, true) }
}

/// The arithmetic of `L`, whose whole steps are stored past the caches, at places that begin a step.
struct Past<L>(PhantomData<L>);

/// A step between the vector that a type is stored from and the one that leaves. It never lies in memory.
#[repr(align(64))]
struct Line(MaybeUninit<[u8; 64]>);

impl<L: Lanes> Lanes for Past<L> {
    type V = L::V;
    const N: usize = L::N;
    const SIZE: usize = L::SIZE;
    const IS_FLOAT: bool = L::IS_FLOAT;
    const UNROLL: usize = L::UNROLL;
    const OVERLAP: bool = L::OVERLAP;
    const UNROLL_FAR: bool = L::UNROLL_FAR;

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: L::V) {
        const { assert!(L::N * L::SIZE == 64 || L::N * L::SIZE == 32) };
        let mut line = Line(MaybeUninit::uninit());
        let at: *mut u8 = line.0.as_mut_ptr().cast();
        // SAFETY: the caller's promise, and that of `sum_of_two` for the place; a step fits the line.
        unsafe {
            L::store(at, v);
            if L::N * L::SIZE == 64 {
                _mm512_stream_si512(p.cast(), _mm512_load_si512(at.cast()));
            } else {
                _mm256_stream_si256(p.cast(), _mm256_load_si256(at.cast()));
            }
        }
    }
    forward! {
        load(p: *const u8) -> L::V;
        load_part(p: *const u8, n: usize) -> L::V;
        store_part(p: *mut u8, v: L::V, n: usize);
        sum(a: L::V, b: L::V) -> L::V;
        splat(x: f64) -> L::V;
        prod(a: L::V, b: L::V) -> L::V;
        max(a: L::V, b: L::V) -> L::V;
        min(a: L::V, b: L::V) -> L::V;
    }
}
