//! The loops, written once over the [`Lanes`] trait: how many elements go through one step, and how they are loaded,
//! combined and stored. Each instruction-set level implements the trait per type and instantiates the loops inside
//! functions that enable its target features; everything here is inlined into those.

use std::ops::Range;

use oxccl_types::DataType;

/// A type's arithmetic at one instruction-set level.
///
/// `V` holds `N` elements in the form in which they are accumulated (f32 for the narrow floats).
pub(crate) trait Lanes {
    /// `N` elements, as accumulated.
    type V: Copy;
    /// Elements per `V`.
    const N: usize;
    /// Bytes per element in memory.
    const SIZE: usize;
    /// Steps (1, 2 or 4) whose loads all come before their first store: independent chains for the out-of-order core, as
    /// many as fit the registers.
    const UNROLL: usize = 4;
    /// Whether loads and stores convert in software, by dozens of instructions: copies of the loop for special cases
    /// would be no faster, and most of the library.
    const IS_SOFT: bool = false;

    /// A shorter way for this operation and number of sources, where nothing is multiplied before the rounding; whether
    /// there is one, in which case the work is done.
    ///
    /// # Safety
    /// As [`reduce`].
    #[inline(always)]
    unsafe fn short_way<const OP: u8>(_dsts: &[*mut u8], _srcs: &[*const u8], _range: &Range<usize>) -> bool {
        false
    }

    /// # Safety
    /// The level's features are there; `p` is readable for `N * SIZE` bytes, of any alignment.
    unsafe fn load(p: *const u8) -> Self::V;
    /// # Safety
    /// As `load`, but only the first `n < N` elements are touched; what the other lanes hold is of no consequence.
    unsafe fn load_part(p: *const u8, n: usize) -> Self::V;
    /// # Safety
    /// The level's features are there; `p` is writable for `N * SIZE` bytes, of any alignment.
    unsafe fn store(p: *mut u8, v: Self::V);
    /// # Safety
    /// As `store`, but only the first `n < N` elements are touched.
    unsafe fn store_part(p: *mut u8, v: Self::V, n: usize);
    /// `x` in every lane, in the type of the accumulator. Not called for integers.
    /// # Safety
    /// The level's features are there.
    unsafe fn splat(x: f64) -> Self::V;
    /// # Safety
    /// The level's features are there.
    unsafe fn sum(a: Self::V, b: Self::V) -> Self::V;
    /// # Safety
    /// The level's features are there.
    unsafe fn prod(a: Self::V, b: Self::V) -> Self::V;
    /// # Safety
    /// The level's features are there.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// # Safety
    /// The level's features are there.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
}

pub(crate) const SUM: u8 = 0;
pub(crate) const PROD: u8 = 1;
pub(crate) const MAX: u8 = 2;
pub(crate) const MIN: u8 = 3;

/// Reduces the elements `range` of `srcs` into those of `dsts`; the factor multiplies the accumulator before it is rounded.
pub(crate) type ReduceFn = unsafe fn(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>, factor: Option<f64>);
/// Divides integers in place by a divisor of at least 2.
pub(crate) type DivideFn = unsafe fn(dtype: DataType, buf: *mut u8, count: usize, divisor: u64);
/// Multiplies by the element at `scalar`.
pub(crate) type ScaleFn = unsafe fn(dst: *mut u8, src: *const u8, count: usize, scalar: *const u8);

/// The loops of one type at one level.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// By `RedOp as usize`.
    pub reduce: [ReduceFn; 4],
    pub scale: ScaleFn,
}

/// The loops of a level.
pub(crate) struct Table {
    /// By `DataType as usize`.
    pub types: [Kernels; 12],
    pub divide: DivideFn,
}

/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn combine<L: Lanes, const OP: u8>(a: L::V, b: L::V) -> L::V {
    // SAFETY: the caller's promise.
    unsafe {
        match OP {
            SUM => L::sum(a, b),
            PROD => L::prod(a, b),
            MAX => L::max(a, b),
            _ => L::min(a, b),
        }
    }
}

/// Bytes between what a loop reads and what it asks for: with several streams and some arithmetic between the reads the
/// core's own prefetchers and its window fall behind memory. Where the data is in a cache already it costs nothing.
const AHEAD: usize = 1024;

/// Asks for the `bytes` (a multiple of 64) at `p`.
#[inline(always)]
fn prefetch(p: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of the target; a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (p, bytes);
}

/// `K` steps from byte offset `at` on, and a prefetch of as many bytes at offset `ahead`: every load comes before the first store, which is what makes a destination equal
/// to a source safe.
///
/// # Safety
/// All pointers are good for `K * N` elements at `at`; `srcs` is not empty.
#[inline(always)]
unsafe fn steps<L: Lanes, const OP: u8, const K: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    ahead: usize,
    factor: Option<f64>,
) {
    let step = L::N * L::SIZE;
    // SAFETY: the caller's promise; `k * step` stays inside the block.
    unsafe {
        let first = *srcs.get_unchecked(0);
        prefetch(first.wrapping_add(ahead), K * step);
        let first = first.add(at);
        let mut acc = [L::load(first); K];
        for (k, a) in acc.iter_mut().enumerate().skip(1) {
            *a = L::load(first.add(k * step));
        }
        for src in srcs.get_unchecked(1..) {
            prefetch(src.wrapping_add(ahead), K * step);
            let src = src.add(at);
            for (k, a) in acc.iter_mut().enumerate() {
                *a = combine::<L, OP>(*a, L::load(src.add(k * step)));
            }
        }
        if let Some(x) = factor {
            let x = L::splat(x);
            for a in &mut acc {
                *a = L::prod(*a, x);
            }
        }
        for dst in dsts {
            let dst = dst.add(at);
            for (k, a) in acc.into_iter().enumerate() {
                L::store(dst.add(k * step), a);
            }
        }
    }
}

/// One step or, if `n < N`, a part of one.
///
/// # Safety
/// `p` is readable for `min(n, N)` elements.
#[inline(always)]
unsafe fn load_upto<L: Lanes>(p: *const u8, n: usize) -> L::V {
    // SAFETY: the caller's promise.
    unsafe { if n < L::N { L::load_part(p, n) } else { L::load(p) } }
}

/// What does not fill a block: whole steps, then the elements that remain.
///
/// # Safety
/// All pointers are good for elements `from..count`; `srcs` is not empty.
#[inline(always)]
unsafe fn remainder<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    mut from: usize,
    count: usize,
    factor: Option<f64>,
) {
    while from < count {
        let n = count - from;
        let at = from * L::SIZE;
        // SAFETY: the caller's promise; only `n` elements are touched when fewer than `N` remain.
        unsafe {
            let mut acc = load_upto::<L>(srcs.get_unchecked(0).add(at), n);
            for src in srcs.get_unchecked(1..) {
                acc = combine::<L, OP>(acc, load_upto::<L>(src.add(at), n));
            }
            if let Some(x) = factor {
                acc = L::prod(acc, L::splat(x));
            }
            for dst in dsts {
                if n < L::N {
                    L::store_part(dst.add(at), acc, n);
                } else {
                    L::store(dst.add(at), acc);
                }
            }
        }
        from += L::N;
    }
}

/// # Safety
/// All pointers are good for the elements `range`; `srcs` is not empty.
#[inline(always)]
pub(crate) unsafe fn run<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    let Range { start: mut from, end: count } = range;
    let block = L::UNROLL * L::N;
    // Not beyond the last block: what follows the buffers may be another process's to write.
    let last = count.saturating_sub(block) * L::SIZE;
    // SAFETY: the caller's promise; the block ends at or before `count`.
    unsafe {
        while !L::IS_SOFT && from + block <= count {
            let at = from * L::SIZE;
            let ahead = last.min(at + AHEAD);
            match L::UNROLL {
                1 => steps::<L, OP, 1>(dsts, srcs, at, ahead, factor),
                2 => steps::<L, OP, 2>(dsts, srcs, at, ahead, factor),
                _ => steps::<L, OP, 4>(dsts, srcs, at, ahead, factor),
            }
            from += block;
        }
        remainder::<L, OP>(dsts, srcs, from, count, factor);
    }
}

/// [`run`] without a factor, with the usual numbers of sources and destinations unrolled.
///
/// # Safety
/// As [`run`].
#[inline(always)]
pub(crate) unsafe fn run_unrolled<L: Lanes, const OP: u8>(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        match (dsts, srcs) {
            (&[d], &[a, b]) => run::<L, OP>(&[d], &[a, b], range, None),
            (&[d, e], &[a, b]) => run::<L, OP>(&[d, e], &[a, b], range, None),
            _ => run::<L, OP>(dsts, srcs, range, None),
        }
    }
}

/// The loop of one type and operation.
///
/// # Safety
/// The level's features are there; all pointers are good for the elements `range`; a destination is equal to a source or
/// does not overlap it.
#[inline(always)]
pub(crate) unsafe fn reduce<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    if srcs.is_empty() {
        return;
    }
    // SAFETY: the caller's promise; there is a source.
    unsafe {
        if factor.is_some() || L::IS_SOFT {
            run::<L, OP>(dsts, srcs, range, factor);
        } else if !L::short_way::<OP>(dsts, srcs, &range) {
            run_unrolled::<L, OP>(dsts, srcs, range);
        }
    }
}

/// `dst = src * scalar` for one element `scalar`.
///
/// # Safety
/// As `reduce`; `scalar` is readable for one element.
#[inline(always)]
pub(crate) unsafe fn scale<L: Lanes>(dst: *mut u8, src: *const u8, count: usize, scalar: *const u8) {
    // The widest step is 64 elements of 8 bytes or fewer.
    let mut repeated = [0u8; 512];
    // SAFETY: `N * SIZE` fits the array; the rest is the caller's promise.
    unsafe {
        for i in 0..L::N {
            std::ptr::copy_nonoverlapping(scalar, repeated.as_mut_ptr().add(i * L::SIZE), L::SIZE);
        }
        let factor = L::load(repeated.as_ptr());
        let mut from = 0;
        while from + L::N <= count {
            let at = from * L::SIZE;
            L::store(dst.add(at), L::prod(L::load(src.add(at)), factor));
            from += L::N;
        }
        if from < count {
            let (at, n) = (from * L::SIZE, count - from);
            L::store_part(dst.add(at), L::prod(L::load_part(src.add(at), n), factor), n);
        }
    }
}

/// The table entries of a level: `$feature` is the list of target features, empty for the baseline.
macro_rules! level_table {
    ($(#[$attribute:meta])* [$($lanes:ty),* $(,)?]) => {
        $(#[$attribute])*
        unsafe fn reduce_entry<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
            factor: Option<f64>,
        ) {
            // SAFETY: the caller's promise.
            unsafe { crate::lanes::reduce::<L, OP>(dsts, srcs, range, factor) }
        }

        $(#[$attribute])*
        unsafe fn scale_entry<L: crate::lanes::Lanes>(
            dst: *mut u8,
            src: *const u8,
            count: usize,
            scalar: *const u8,
        ) {
            // SAFETY: the caller's promise.
            unsafe { crate::lanes::scale::<L>(dst, src, count, scalar) }
        }

        $(#[$attribute])*
        unsafe fn divide_entry(dtype: oxccl_types::DataType, buf: *mut u8, count: usize, divisor: u64) {
            // SAFETY: the caller's promise.
            unsafe { crate::divide::divide(dtype, buf, count, divisor) }
        }

        /// The loops of this level.
        pub(crate) static TABLE: crate::lanes::Table = crate::lanes::Table { divide: divide_entry, types: [
            $(crate::lanes::Kernels {
                reduce: [
                    reduce_entry::<$lanes, { crate::lanes::SUM }>,
                    reduce_entry::<$lanes, { crate::lanes::PROD }>,
                    reduce_entry::<$lanes, { crate::lanes::MAX }>,
                    reduce_entry::<$lanes, { crate::lanes::MIN }>,
                ],
                scale: scale_entry::<$lanes>,
            }),*
        ] };
    };
}
pub(crate) use level_table;
