//! The loops, written once over the [`Lanes`] trait: how many elements go through one step, and how they are loaded,
//! combined and stored. Each instruction-set level implements the trait per type and instantiates the loops inside
//! functions that enable its target features; everything here is inlined into those.

use std::ops::Range;

use oxccl_types::DataType;

/// A type's arithmetic at one instruction-set level.
///
/// `V` holds `N` elements in the form in which they are accumulated (f32 for the narrow floats).
pub(crate) trait Lanes: Sized {
    /// `N` elements, as accumulated.
    type V: Copy;
    /// Elements per `V`.
    const N: usize;
    /// Bytes per element in memory.
    const SIZE: usize;
    /// Whether the elements are floats.
    const IS_FLOAT: bool;
    /// Steps (1, 2 or 4) whose loads all come before their first store: independent chains for the out-of-order core, as
    /// many as fit the registers.
    const UNROLL: usize = 4;
    /// Whether loads and stores convert in software, by dozens of instructions: copies of the loop for special cases
    /// would be no faster, and most of the library.
    const IS_SOFT: bool = false;

    /// Whether a step is loaded and combined before the one in front of it is stored, where `UNROLL` is 1: for steps of so many
    /// instructions in a row, each waiting for the one before, that the out-of-order core sees less than two of them.
    const OVERLAP: bool = false;

    /// Elements up to which a call is small: it goes straight to [`small`](Lanes::small).
    const SMALL: usize = 0;
    /// Bytes per source from which on a loop asks for what it will read; with less, that is likely to lie in a cache.
    const FAR: usize = FAR_CONVERTED;
    /// Whether the usual numbers of sources and destinations are unrolled in such a loop, too.
    const UNROLL_FAR: bool = true;

    /// The loops that take a call of so many elements of each of `srcs` sources in narrower vectors, if it is better off with those,
    /// and its type.
    #[inline(always)]
    fn narrower(count: usize, srcs: usize) -> Option<(&'static Table, DataType)> {
        let _ = (count, srcs);
        None
    }

    /// Whether this operation on so many sources has a [`short_way`](Lanes::short_way) that is better than narrower vectors.
    #[inline(always)]
    fn is_direct<const OP: u8>(srcs: usize) -> bool {
        let _ = srcs;
        false
    }

    /// Reduces a small call, or what remains of a longer one; a factor multiplies the accumulator before it is rounded.
    /// `PAIR` promises one destination, two sources and no factor.
    ///
    /// # Safety
    /// As [`reduce`]; there is a source.
    #[inline(always)]
    unsafe fn small<const OP: u8, const PAIR: bool>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: Range<usize>,
        factor: Option<f64>,
    ) {
        // SAFETY: the caller's promise.
        unsafe { remainder::<Self, OP>(dsts, srcs, range, factor) }
    }

    /// A shorter way for the whole blocks of this operation and number of sources, where nothing is multiplied before the
    /// rounding; if there is one, the first element that is not done.
    ///
    /// # Safety
    /// As [`reduce`].
    #[inline(always)]
    unsafe fn short_way<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        far: bool,
    ) -> Option<usize> {
        let _ = (dsts, srcs, range, far);
        None
    }

    /// As `short_way`, where a factor multiplies the accumulator before it is rounded.
    ///
    /// # Safety
    /// As [`reduce`].
    #[inline(always)]
    unsafe fn short_average<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        far: bool,
        factor: f64,
    ) -> Option<usize> {
        let _ = (dsts, srcs, range, far, factor);
        None
    }

    /// The sum of two sources past the caches (see [`Past`]), as far as it comes with whole blocks: the first element that is not
    /// done, the first of all where there is no such way.
    ///
    /// # Safety
    /// As [`reduce`]; there are two sources, no destination is one of them, and each begins a line at the first element.
    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        let _ = (dsts, srcs);
        range.start
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
    /// `a` times a splat factor.
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn times(a: Self::V, factor: Self::V) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { Self::prod(a, factor) }
    }
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

/// Functions of `Lanes` as they are in `L`, for a type that wraps its arithmetic.
#[cfg(target_arch = "x86_64")]
macro_rules! forward {
    ($($name:ident($($arg:ident: $t:ty),*) $(-> $out:ty)?;)*) => {
        $(
            #[inline(always)]
            unsafe fn $name($($arg: $t),*) $(-> $out)? {
                // SAFETY: the caller's promise.
                unsafe { L::$name($($arg),*) }
            }
        )*
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use forward;

/// `FAR` of types that are accumulated as they lie in memory. Where the first-level cache serves the loads, asking costs a
/// third of the speed, in the second level up to a sixth; what comes from another core is no faster for it. It is for large
/// buffers, of which callers hand over pieces of this size and more.
pub(crate) const FAR_NATIVE: usize = 32 << 10;
/// `FAR` of types that are converted, which fills the core's window before it has seen many loads: asking brings something
/// from the second-level cache on, and costs next to nothing.
pub(crate) const FAR_CONVERTED: usize = 8 << 10;

pub(crate) const SUM: u8 = 0;
pub(crate) const PROD: u8 = 1;
pub(crate) const MAX: u8 = 2;
pub(crate) const MIN: u8 = 3;

/// Reduces `count` elements of `srcs` into `dsts`.
pub(crate) type ReduceFn = unsafe fn(dsts: &[*mut u8], srcs: &[*const u8], count: usize);
/// Reduces the elements `range`, which may be part of a call. Of floats the factor multiplies the accumulator before it is
/// rounded; integers are left undivided.
pub(crate) type AverageFn = unsafe fn(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>, factor: f64);
/// See [`Lanes::past_caches`].
pub(crate) type PastFn = unsafe fn(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize;
/// Divides integers in place by a divisor of at least 2.
pub(crate) type DivideFn = unsafe fn(dtype: DataType, buf: *mut u8, count: usize, divisor: u64);
/// Multiplies by the element at `scalar`.
pub(crate) type ScaleFn = unsafe fn(dst: *mut u8, src: *const u8, count: usize, scalar: *const u8);

/// The loops of a level, by `DataType as usize` and `RedOp as usize`.
pub(crate) struct Table {
    pub reduce: [[ReduceFn; 4]; 12],
    pub average: [[AverageFn; 4]; 12],
    #[cfg_attr(
        any(not(target_arch = "x86_64"), miri),
        allow(dead_code, reason = "only `stream` goes past the caches")
    )]
    pub past_caches: [PastFn; 12],
    pub scale: [ScaleFn; 12],
    pub divide: DivideFn,
}

/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn combine<L: Lanes, const OP: u8>(a: L::V, b: L::V) -> L::V {
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
/// core's own prefetchers and its window fall behind memory.
const AHEAD: usize = 1024;
/// The same where a source has so many bytes that it comes from memory, or from a cache that is shared.
const AHEAD_LONG: usize = 2048;
const LONG: usize = 256 << 10;

/// Asks for the lines at `p`, `p + 64` and so on before `p + bytes`.
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

/// `K` steps from byte offset `at` on, and a prefetch of as many bytes at offset `ahead`: every load comes before the first
/// store, which is what makes a destination equal to a source safe.
///
/// # Safety
/// All pointers are good for `K * N` elements at `at`; `srcs` is not empty.
#[inline(always)]
pub(crate) unsafe fn steps<L: Lanes, const OP: u8, const K: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    ahead: Option<usize>,
    factor: Option<f64>,
) {
    let step = L::N * L::SIZE;
    // SAFETY: the caller's promise; `k * step` stays inside the block.
    unsafe {
        let first = *srcs.get_unchecked(0);
        if let Some(ahead) = ahead {
            prefetch(first.wrapping_add(ahead), K * step);
        }
        let first = first.add(at);
        let mut acc = [L::load(first); K];
        for (k, a) in acc.iter_mut().enumerate().skip(1) {
            *a = L::load(first.add(k * step));
        }
        for src in srcs.get_unchecked(1..) {
            if let Some(ahead) = ahead {
                prefetch(src.wrapping_add(ahead), K * step);
            }
            let src = src.add(at);
            for (k, a) in acc.iter_mut().enumerate() {
                *a = combine::<L, OP>(*a, L::load(src.add(k * step)));
            }
        }
        if let Some(x) = factor {
            let x = L::splat(x);
            for a in &mut acc {
                *a = L::times(*a, x);
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

/// For a byte offset in a loop over `range` that goes by blocks of so many elements, the one that it asks for. Not beyond the last
/// block: what follows the buffers may be another process's to write.
#[inline(always)]
fn ahead_of<L: Lanes>(range: &Range<usize>, block: usize, far: bool) -> impl Fn(usize) -> Option<usize> + use<L> {
    let last = range.end.saturating_sub(block) * L::SIZE;
    let distance = if range.len() * L::SIZE < LONG { AHEAD } else { AHEAD_LONG };
    move |at| far.then(|| last.min(at + distance))
}

/// One step at byte offset `at`, combined; see [`steps`].
///
/// # Safety
/// As [`steps`].
#[inline(always)]
unsafe fn combined<L: Lanes, const OP: u8>(
    srcs: &[*const u8],
    at: usize,
    ahead: Option<usize>,
    factor: Option<f64>,
) -> L::V {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(ahead) = ahead {
            for src in srcs {
                prefetch(src.wrapping_add(ahead), L::N * L::SIZE);
            }
        }
        let mut acc = L::load(srcs.get_unchecked(0).add(at));
        for src in srcs.get_unchecked(1..) {
            acc = combine::<L, OP>(acc, L::load(src.add(at)));
        }
        match factor {
            Some(x) => L::times(acc, L::splat(x)),
            None => acc,
        }
    }
}

/// As [`blocks`], where steps overlap. Loads still come before the stores of the same step, and no two steps share a byte.
///
/// # Safety
/// As [`blocks`].
#[inline(always)]
unsafe fn overlapping<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    far: bool,
    factor: Option<f64>,
) -> usize {
    let Range { start, end } = range;
    let steps = end.saturating_sub(start) / L::N;
    if steps == 0 {
        return start;
    }
    let ahead_of = ahead_of::<L>(&(start..end), L::N, far);
    let step = L::N * L::SIZE;
    let mut at = start * L::SIZE;
    // SAFETY: the caller's promise; each of the steps ends at or before `end`.
    unsafe {
        let mut acc = combined::<L, OP>(srcs, at, ahead_of(at), factor);
        for _ in 1..steps {
            let next = at + step;
            let following = combined::<L, OP>(srcs, next, ahead_of(next), factor);
            for dst in dsts {
                L::store(dst.add(at), acc);
            }
            (acc, at) = (following, next);
        }
        for dst in dsts {
            L::store(dst.add(at), acc);
        }
    }
    start + steps * L::N
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

/// Whole steps, then the elements that remain.
///
/// # Safety
/// As [`reduce`]; there is a source.
#[inline(always)]
pub(crate) unsafe fn remainder<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    let Range { start: mut from, end } = range;
    while from < end {
        let n = end - from;
        let at = from * L::SIZE;
        // SAFETY: the caller's promise; only `n` elements are touched when fewer than `N` remain.
        unsafe {
            let mut acc = load_upto::<L>(srcs.get_unchecked(0).add(at), n);
            for src in srcs.get_unchecked(1..) {
                acc = combine::<L, OP>(acc, load_upto::<L>(src.add(at), n));
            }
            if let Some(x) = factor {
                acc = L::times(acc, L::splat(x));
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

/// The whole blocks of a range; the first element that is not done. `far` says whether to ask for what it will read.
///
/// # Safety
/// As [`reduce`]; there is a source.
#[inline(always)]
pub(crate) unsafe fn blocks<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    far: bool,
    factor: Option<f64>,
) -> usize {
    if L::OVERLAP {
        // SAFETY: the caller's promise.
        return unsafe { overlapping::<L, OP>(dsts, srcs, range, far, factor) };
    }
    let Range { start: mut from, end } = range;
    let block = L::UNROLL * L::N;
    let ahead_of = ahead_of::<L>(&(from..end), block, far);
    while from + block <= end {
        let at = from * L::SIZE;
        let ahead = ahead_of(at);
        // SAFETY: the caller's promise; the block ends at or before `end`.
        unsafe {
            match L::UNROLL {
                1 => steps::<L, OP, 1>(dsts, srcs, at, ahead, factor),
                2 => steps::<L, OP, 2>(dsts, srcs, at, ahead, factor),
                _ => steps::<L, OP, 4>(dsts, srcs, at, ahead, factor),
            }
        }
        from += block;
    }
    from
}

/// [`blocks`] without a factor, with the usual numbers of sources and destinations unrolled.
///
/// # Safety
/// As [`reduce`]; there is a source.
#[inline(always)]
pub(crate) unsafe fn blocks_unrolled<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    far: bool,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match (dsts, srcs) {
            (&[d], &[a, b]) if !far => blocks::<L, OP>(&[d], &[a, b], range, false, None),
            (&[d, e], &[a, b]) if !far => blocks::<L, OP>(&[d, e], &[a, b], range, false, None),
            (&[d], &[a, b]) if L::UNROLL_FAR => blocks::<L, OP>(&[d], &[a, b], range, true, None),
            (&[d, e], &[a, b]) if L::UNROLL_FAR => blocks::<L, OP>(&[d, e], &[a, b], range, true, None),
            _ => blocks::<L, OP>(dsts, srcs, range, far, None),
        }
    }
}

/// The loop of one type and operation, as far as it comes with whole blocks: the first element that is not done. Without
/// sources nothing is to do.
///
/// # Safety
/// The level's features are there; all pointers are good for the elements `range`; a destination is equal to a source or
/// does not overlap it.
#[inline(always)]
pub(crate) unsafe fn reduce<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
) -> usize {
    if srcs.is_empty() {
        return range.end;
    }
    if L::IS_SOFT {
        return range.start;
    }
    let far = is_far::<L>(&range);
    // SAFETY: the caller's promise; there is a source.
    unsafe {
        match L::short_way::<OP>(dsts, srcs, &range, far) {
            Some(from) => from,
            None => blocks_unrolled::<L, OP>(dsts, srcs, range, far),
        }
    }
}

/// As [`reduce`], a factor multiplying the accumulator before it is rounded. Of integers the range is a block of a call that
/// is divided block by block, which takes so long that asking for what will be read does no harm.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
pub(crate) unsafe fn average<L: Lanes, const OP: u8>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) -> usize {
    if srcs.is_empty() {
        return range.end;
    }
    if L::IS_SOFT {
        return range.start;
    }
    let far = !L::IS_FLOAT || is_far::<L>(&range);
    // SAFETY: the caller's promise; there is a source.
    unsafe {
        if let Some(x) = factor
            && let Some(from) = L::short_average::<OP>(dsts, srcs, &range, far, x)
        {
            return from;
        }
        blocks::<L, OP>(dsts, srcs, range, far, factor)
    }
}

/// See [`Lanes::FAR`].
#[inline(always)]
fn is_far<L: Lanes>(range: &Range<usize>) -> bool {
    range.len() >= L::FAR / L::SIZE
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

/// The table entries of a level: `$attribute` enables its target features. Small calls, tails and loops are functions of
/// their own, so that a small call does not save the registers that a loop needs, and tails are there once.
macro_rules! level_table {
    ($(#[$attribute:meta])* [$($lanes:ty),* $(,)?]) => {
        $(#[$attribute])*
        unsafe fn reduce_entry<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            count: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                if count > L::SMALL {
                    match L::narrower(count, srcs.len()).filter(|_| !L::is_direct::<OP>(srcs.len())) {
                        Some((table, dtype)) => table.reduce[dtype as usize][OP as usize](dsts, srcs, count),
                        None => reduce_long::<L, OP>(dsts, srcs, 0..count),
                    }
                } else if dsts.len() == 1 && srcs.len() == 2 {
                    L::small::<OP, true>(&[dsts[0]], &[srcs[0], srcs[1]], 0..count, None);
                } else if !srcs.is_empty() {
                    reduce_small::<L, OP>(dsts, srcs, 0..count);
                }
            }
        }

        $(#[$attribute])*
        #[inline(never)]
        unsafe fn reduce_small<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
        ) {
            // SAFETY: the caller's promise; there is a source.
            unsafe { L::small::<OP, false>(dsts, srcs, range, None) }
        }

        $(#[$attribute])*
        #[inline(never)]
        unsafe fn reduce_pair<L: crate::lanes::Lanes, const OP: u8>(
            dst: *mut u8,
            a: *const u8,
            b: *const u8,
            range: std::ops::Range<usize>,
        ) {
            // SAFETY: the caller's promise.
            unsafe { L::small::<OP, true>(&[dst], &[a, b], range, None) }
        }

        $(#[$attribute])*
        #[inline(never)]
        unsafe fn reduce_long<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
        ) {
            let end = range.end;
            // SAFETY: the caller's promise; something remains only if there is a source.
            unsafe {
                let from = crate::lanes::reduce::<L, OP>(dsts, srcs, range);
                if from < end && !L::IS_SOFT && dsts.len() == 1 && srcs.len() == 2 {
                    reduce_pair::<L, OP>(dsts[0], srcs[0], srcs[1], from..end);
                } else if from < end {
                    reduce_small::<L, OP>(dsts, srcs, from..end);
                }
            }
        }

        $(#[$attribute])*
        unsafe fn average_entry<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
            factor: f64,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                if range.end.wrapping_sub(range.start) > L::SMALL {
                    match L::narrower(range.len(), srcs.len()) {
                        Some((table, dtype)) => table.average[dtype as usize][OP as usize](dsts, srcs, range, factor),
                        None => average_long::<L, OP>(dsts, srcs, range, factor),
                    }
                } else if !srcs.is_empty() {
                    average_small::<L, OP>(dsts, srcs, range, factor);
                }
            }
        }

        $(#[$attribute])*
        #[inline(never)]
        unsafe fn average_small<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
            factor: f64,
        ) {
            // SAFETY: the caller's promise; there is a source.
            unsafe {
                if L::IS_FLOAT {
                    L::small::<OP, false>(dsts, srcs, range, Some(factor));
                } else {
                    reduce_small::<L, OP>(dsts, srcs, range);
                }
            }
        }

        $(#[$attribute])*
        #[inline(never)]
        unsafe fn average_long<L: crate::lanes::Lanes, const OP: u8>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
            factor: f64,
        ) {
            let end = range.end;
            // SAFETY: the caller's promise; something remains only if there is a source.
            unsafe {
                let from = crate::lanes::average::<L, OP>(dsts, srcs, range, L::IS_FLOAT.then_some(factor));
                if from < end {
                    average_small::<L, OP>(dsts, srcs, from..end, factor);
                }
            }
        }

        $(#[$attribute])*
        unsafe fn past_entry<L: crate::lanes::Lanes>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: std::ops::Range<usize>,
        ) -> usize {
            // SAFETY: the caller's promise.
            unsafe { L::past_caches(dsts, srcs, range) }
        }

        $(#[$attribute])*
        unsafe fn scale_entry<L: crate::lanes::Lanes>(
            dst: *mut u8,
            src: *const u8,
            count: usize,
            scalar: *const u8,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                match L::narrower(count, 1) {
                    Some((table, dtype)) => table.scale[dtype as usize](dst, src, count, scalar),
                    None => crate::lanes::scale::<L>(dst, src, count, scalar),
                }
            }
        }

        $(#[$attribute])*
        unsafe fn divide_entry(dtype: oxccl_types::DataType, buf: *mut u8, count: usize, divisor: u64) {
            // SAFETY: the caller's promise.
            unsafe { crate::divide::divide(dtype, buf, count, divisor) }
        }

        /// The loops of this level.
        pub(crate) static TABLE: crate::lanes::Table = crate::lanes::Table {
            reduce: [$([
                reduce_entry::<$lanes, { crate::lanes::SUM }>,
                reduce_entry::<$lanes, { crate::lanes::PROD }>,
                reduce_entry::<$lanes, { crate::lanes::MAX }>,
                reduce_entry::<$lanes, { crate::lanes::MIN }>,
            ]),*],
            average: [$([
                average_entry::<$lanes, { crate::lanes::SUM }>,
                average_entry::<$lanes, { crate::lanes::PROD }>,
                average_entry::<$lanes, { crate::lanes::MAX }>,
                average_entry::<$lanes, { crate::lanes::MIN }>,
            ]),*],
            past_caches: [$(past_entry::<$lanes>),*],
            scale: [$(scale_entry::<$lanes>),*],
            divide: divide_entry,
        };
    };
}
pub(crate) use level_table;
