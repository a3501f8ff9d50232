//! Host reduction, scaling and copy loops for every element type and operation, with the instruction set chosen at run
//! time (AVX-512, AVX2, or the target's baseline).
//!
//! Every level gives the same bits for every count and alignment (of a NaN, only that it is one). Memory is raw: it may
//! be shared with other processes and be of any alignment, so it is never viewed through a reference. Knows nothing of
//! ranks, schedules or transports; allocates nothing and takes no lock.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_fp8;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_fp16;
#[cfg(target_arch = "x86_64")]
mod avx512_fp8;
#[cfg(target_arch = "x86_64")]
mod avx512_fp8_bytes;
#[cfg(target_arch = "x86_64")]
mod avx512_fp8_half;
mod baseline;
mod copy;
mod divide;
mod float16;
mod fp8;
#[cfg(target_arch = "x86_64")]
mod fp8_format;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod past;
mod small;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod stream;
mod strings;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vendor;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::sync::atomic::{AtomicPtr, Ordering};

use lanes::Table;
use oxccl_types::{DataType, Scalar};

/// How two elements become one.
///
/// Integer sums and products wrap. Maximum and minimum of floats return the operand that is a number if exactly one is
/// NaN; of a zero and a negative zero they return the later source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RedOp {
    /// Sum.
    Sum = lanes::SUM,
    /// Product.
    Prod = lanes::PROD,
    /// Greatest.
    Max = lanes::MAX,
    /// Least.
    Min = lanes::MIN,
}

/// What is done to the combined element before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Post {
    /// Nothing.
    None,
    /// Multiply a float before its one rounding: in f64 for f64, else in f32 by the factor rounded to f32. Integers are
    /// left as they are.
    MulF64(f64),
    /// Divide an integer, truncating toward zero, signed for the signed types; 0 counts as 1. Floats are left as they
    /// are.
    DivInt(u64),
}

/// An instruction-set level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    fn table(self) -> &'static Table {
        match self {
            Level::Baseline => &baseline::TABLE,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => &avx2::TABLE,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => &avx512::TABLE,
        }
    }

    /// The levels that this machine has, the least first.
    fn available() -> impl Iterator<Item = Level> {
        [
            Some(Level::Baseline),
            #[cfg(target_arch = "x86_64")]
            avx2::available().then_some(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            avx512::available().then_some(Level::Avx512),
        ]
        .into_iter()
        .flatten()
    }
}

/// The table of the best level, null until the first call.
static BEST: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

#[inline]
fn best() -> &'static Table {
    // The tables are constants of the program: there is nothing to acquire.
    let table = BEST.load(Ordering::Relaxed);
    // SAFETY: not null means stored by `detect`, which stores the address of a static table.
    unsafe { table.as_ref() }.unwrap_or_else(|| detect())
}

#[cold]
fn detect() -> &'static Table {
    let table = Level::available().last().unwrap_or(Level::Baseline).table();
    BEST.store(std::ptr::from_ref(table).cast_mut(), Ordering::Relaxed);
    table
}

/// Bytes of a destination that are summed before they are divided: they stay in the first-level cache.
const DIVIDE_BLOCK: usize = 8 << 10;

/// Stores `post(op over j of srcs[j][i])` to `dsts[k][i]` for every `k` and for `i` in `0..count` elements.
///
/// Sources are combined in their order; f16, bf16 and the 8-bit floats accumulate in f32 over all sources and round
/// once, to nearest even (the 8-bit floats saturate). Every destination gets the same bits. Without sources nothing is
/// done.
///
/// # Safety
/// Each source is readable and each destination writable for `count` elements of `dtype`, of any alignment. A
/// destination is equal to a source or does not overlap it; destinations do not overlap each other. No other thread or
/// process writes the sources or touches the destinations meanwhile.
#[inline]
pub unsafe fn reduce(dtype: DataType, op: RedOp, dsts: &[*mut u8], srcs: &[*const u8], count: usize, post: Post) {
    // SAFETY: the caller's promise; the level's features were detected.
    unsafe { reduce_at(best(), dtype, op, dsts, srcs, count, post) }
}

/// As [`reduce`], for a part of a call of `whole` elements, which decides the width of the vectors.
///
/// # Safety
/// As [`reduce`].
pub unsafe fn reduce_part(
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    post: Post,
    whole: usize,
) {
    let table = best();
    #[cfg(target_arch = "x86_64")]
    let table = if std::ptr::eq(table, &avx512::TABLE) { avx512::table_for(dtype, srcs.len(), whole) } else { table };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = whole;
    // SAFETY: the caller's promise; the level's features were detected.
    unsafe { reduce_at(table, dtype, op, dsts, srcs, count, post) }
}

/// As [`reduce`], for results that the caches will not hold until they are read: on processors that gain by it
/// (docs/performance.md) they go past them.
///
/// # Safety
/// As [`reduce`].
pub unsafe fn reduce_past_caches(
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    post: Post,
) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // Elsewhere that is slower, or was not measured.
    if strings::favoured() {
        // SAFETY: the caller's promise; the level's features were detected.
        return unsafe { stream::reduce(best(), dtype, op, dsts, srcs, count, post) };
    }
    // SAFETY: the caller's promise.
    unsafe { reduce(dtype, op, dsts, srcs, count, post) }
}

/// # Safety
/// As [`reduce`]; the machine has the features of `table`'s level.
#[inline]
unsafe fn reduce_at(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    post: Post,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Post::None = post {
            table.reduce[dtype as usize][op as usize](dsts, srcs, count);
        } else {
            reduce_post(table, dtype, op, dsts, srcs, count, post);
        }
    }
}

/// # Safety
/// As [`reduce_at`].
#[inline(never)]
unsafe fn reduce_post(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    post: Post,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match post {
            Post::MulF64(x) if dtype.is_float() => {
                table.average[dtype as usize][op as usize](dsts, srcs, 0..count, x);
            }
            Post::DivInt(d) if d > 1 && !dtype.is_float() && !srcs.is_empty() => {
                reduce_divide(table, dtype, op, dsts, srcs, count, d);
            }
            _ => table.reduce[dtype as usize][op as usize](dsts, srcs, count),
        }
    }
}

/// The integer average: reduces a block to the first destination, divides it there and copies it to the others. At that
/// point every source's block has been read, so that a destination may be a source.
///
/// # Safety
/// As [`reduce_at`]; `dtype` is an integer type and `divisor` at least 2.
#[inline(never)]
unsafe fn reduce_divide(
    table: &Table,
    dtype: DataType,
    op: RedOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    count: usize,
    divisor: u64,
) {
    let [first, others @ ..] = dsts else { return };
    let size = dtype.size();
    let block = DIVIDE_BLOCK / size;
    for from in (0..count).step_by(block) {
        let n = block.min(count - from);
        let at = from * size;
        // SAFETY: the caller's promise; `from + n` is at most `count`.
        unsafe {
            if count <= block {
                table.reduce[dtype as usize][op as usize](&[*first], srcs, count);
            } else {
                table.average[dtype as usize][op as usize](&[*first], srcs, from..from + n, 1.0);
            }
            let result = first.add(at);
            (table.divide)(dtype, result, n, divisor);
            for dst in others {
                std::ptr::copy_nonoverlapping(result, dst.add(at), n * size);
            }
        }
    }
}

/// Stores `src[i] * scalar` to `dst[i]`, of the type of the scalar and in the arithmetic of [`reduce`]'s products.
///
/// # Safety
/// `src` is readable and `dst` writable for `count` elements, of any alignment; they are equal or do not overlap. No
/// other thread or process writes `src` or touches `dst` meanwhile.
#[inline]
pub unsafe fn scale(dst: *mut u8, src: *const u8, count: usize, scalar: Scalar) {
    // SAFETY: the caller's promise; the level's features were detected.
    unsafe { scale_at(best(), dst, src, count, scalar) }
}

/// # Safety
/// As [`scale`]; the machine has the features of `table`'s level.
#[inline]
unsafe fn scale_at(table: &Table, dst: *mut u8, src: *const u8, count: usize, scalar: Scalar) {
    let kernel = table.scale[scalar.dtype as usize];
    // SAFETY: the caller's promise; the scalar's bytes hold one element.
    unsafe { kernel(dst, src, count, scalar.bytes.as_ptr()) }
}

/// Applies `post` in place: the end of an average whose sum came about in several steps.
///
/// # Safety
/// `buf` is readable and writable for `count` elements of `dtype`, of any alignment, and nobody else touches it
/// meanwhile.
#[inline]
pub unsafe fn apply_post(dtype: DataType, buf: *mut u8, count: usize, post: Post) {
    // SAFETY: the caller's promise.
    unsafe {
        match post {
            Post::MulF64(_) if dtype.is_float() => {
                reduce(dtype, RedOp::Sum, &[buf], &[buf.cast_const()], count, post);
            }
            Post::DivInt(d) if d > 1 && !dtype.is_float() => (best().divide)(dtype, buf, count, d),
            _ => {}
        }
    }
}

/// Copies `bytes` bytes of `src` to every destination, reading the source from memory once.
///
/// # Safety
/// `src` is readable and every destination writable for `bytes` bytes; a destination is equal to the source or does not
/// overlap it, and destinations do not overlap each other. No other thread or process writes the source or touches the
/// destinations meanwhile.
#[inline]
pub unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match *dsts {
            [dst] if bytes <= copy::SMALL => copy::copy_small(dst, src, bytes),
            _ => copy::copy(dsts, src, bytes, bytes),
        }
    }
}

/// As [`copy`] to one destination, by a core that copies nothing else between two of them, as far as it knows: the first-level
/// cache still has what is short.
///
/// # Safety
/// As [`copy`] for one destination, which is not the source.
#[inline]
pub unsafe fn copy_alone(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            ..=copy::SMALL => copy::copy_small(dst, src, bytes),
            _ => copy::copy_alone(dst, src, bytes),
        }
    }
}

/// As [`copy_part`] to one destination, of what another core has written through its caches, perhaps so long ago that its own no
/// longer hold it.
///
/// # Safety
/// As [`copy`] for one destination, which is not the source.
#[inline]
pub unsafe fn copy_taken(dst: *mut u8, src: *const u8, bytes: usize, whole: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            ..=copy::SMALL => copy::copy_small(dst, src, bytes),
            _ => copy::copy_taken(dst, src, bytes, whole),
        }
    }
}

/// As [`copy`], for a part of a transfer of `whole` bytes, which says what of it the caches may hold.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_part(dsts: &[*mut u8], src: *const u8, bytes: usize, whole: usize) {
    // SAFETY: the caller's promise.
    unsafe { if whole < copy::LONG { copy(dsts, src, bytes) } else { copy::copy(dsts, src, bytes, whole) } }
}

/// As [`copy_part`], for copies that the caches will not hold until they are read: to several destinations they go past them on
/// processors that gain by it (docs/performance.md), and to one where [`travels_by_strings`] holds.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_past_caches(dsts: &[*mut u8], src: *const u8, bytes: usize, whole: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if strings::travels_favoured() || strings::favoured() && dsts.len() > 1 {
        // SAFETY: the caller's promise.
        if unsafe { stream::copy(dsts, src, bytes) } {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { copy_part(dsts, src, bytes, whole) }
}

/// Whether this processor copies by the instruction for whole strings where that is long enough: a copy to memory that another
/// core holds then costs as much as one to its own, unless [`lines_travel`], while elsewhere the lines have to come first.
#[must_use]
pub fn favours_strings() -> bool {
    strings::favoured()
}

/// Whether lines that another core has travel to this one before it writes them, whichever instruction it uses: going by way of memory
/// that both write costs more than twice as much then as elsewhere.
#[must_use]
pub fn lines_travel() -> bool {
    strings::lines_travel()
}

/// Whether they travel, and whole strings are copied fast all the same (Intel's processors from Sapphire Rapids on).
#[must_use]
#[inline]
pub fn travels_by_strings() -> bool {
    strings::travels_favoured()
}

/// Whether [`copy_across`] writes `bytes` bytes, to where a line begins, by that instruction, and nothing but whole lines.
#[must_use]
pub fn writes_lines(bytes: usize) -> bool {
    bytes.is_multiple_of(64) && copy::across_by_strings(bytes)
}

/// Whether the instruction for whole strings is favoured here, but waits for lines that another core has. Copies to such lines may
/// be faster [past the caches](copy_away) then; elsewhere that loses, or was not measured.
#[must_use]
#[inline]
pub fn waits_for_lines() -> bool {
    strings::waits_for_lines()
}

/// Whether the instruction for whole strings is favoured here only for what lies outside the core's own caches, as on Zen 3.
#[must_use]
pub fn favours_strings_outside() -> bool {
    strings::favoured_outside()
}

/// Copies `bytes` bytes past the caches, to memory that another core reads next.
///
/// # Safety
/// As [`copy`] for one destination, which is not the source.
pub unsafe fn copy_away(dst: *mut u8, src: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    if unsafe { stream::copy(&[dst], src, bytes) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_across(dst, src, bytes, bytes) }
}

/// Copies `bytes` bytes of a transfer of `whole` bytes to memory that another core has read or written since: a slot, or
/// scratch.
///
/// # Safety
/// As [`copy`] for one destination, which is not the source.
#[inline]
pub unsafe fn copy_across(dst: *mut u8, src: *const u8, bytes: usize, whole: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            ..=copy::SMALL => copy::copy_small(dst, src, bytes),
            _ if whole < copy::LONG || strings::favoured() => copy::copy_across(dst, src, bytes),
            _ => copy::copy(&[dst], src, bytes, whole),
        }
    }
}
