//! Copies from one source to any number of destinations.
//!
//! Processors differ in what is fastest at which length: some copy whole strings by an instruction faster than by moves (see
//! `strings`), others are faster by moves that ask ahead.

use crate::strings;

/// Bytes of the source that are sent to every destination before the next are read: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;
/// Bytes of a transfer from which on hardly any of it is in the caches: the lines of source and destination are asked for
/// ahead. Below, the instruction for whole strings is as fast or faster, but within the core's own caches.
pub(crate) const LONG: usize = 3 << 20;
/// Bytes of a transfer from which on it is not even in the last cache, where that tells whether stores past the caches are faster
/// than moves that ask ahead.
const BEYOND: usize = 12 << 20;
/// Bytes of a transfer from which on stores past the caches are faster where lines travel and the instruction is favoured (measured where
/// two cores have a share of a last cache of 480 MiB, docs/performance.md).
const BEYOND_TRAVELLING: usize = 32 << 20;
/// How far ahead.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;
/// Bytes of copies that the second-level cache serves: plain moves are faster there than the instruction for whole strings.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const NEAR: std::ops::RangeInclusive<usize> = (20 << 10)..=(384 << 10);
/// The same of the first-level cache, where the instruction is favoured: up to here moves are faster all the same.
const NEAREST: std::ops::RangeInclusive<usize> = (1 << 10)..=(8 << 10);
/// The same where the instruction is favoured, but not within the core's own caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const NEAR_AND_NEAREST: std::ops::RangeInclusive<usize> = *NEAREST.start()..=*NEAR.end();
/// The same of a copy that is the only one, on Zen 3 and 4: no other drives source and destination out of that cache, of which they
/// take all at most.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ALONE: usize = 16 << 10;
/// Bytes from which on a copy to lines that another core has asks for them ahead. Below, the core's own stores do.
const ACROSS: usize = 8 << 10;
/// Bytes from which on the instruction, where it is favoured, gives them to this core without moving them.
const ACROSS_STRINGS: usize = 1 << 10;
/// The same where lines travel all the same: what is shorter was not measured by itself.
const ACROSS_TRAVELLING: usize = 4 << 10;
/// The same of pairs of lines. An odd line, or a part of one, costs as much more as the instruction saves so far down.
const ACROSS_PAIRS: usize = 256;
/// How far ahead.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ACROSS_AHEAD: usize = 1024;
/// Bytes up to which a copy is made where it is called.
pub(crate) const SMALL: usize = 64;

/// At most [`SMALL`] bytes: two moves, or four, that overlap unless the size is a power of two. All loads come before the
/// first store, since the destination may be the source.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes` bytes; they are equal or do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_small(dst: *mut u8, src: *const u8, bytes: usize) {
    type Sixteen = [u64; 2];
    // SAFETY: the caller's promise; every move lies within `bytes`.
    unsafe {
        if bytes >= size_of::<Sixteen>() {
            if bytes <= 2 * size_of::<Sixteen>() {
                return ends::<Sixteen>(dst, src, bytes);
            }
            let second = src.add(16).cast::<Sixteen>().read_unaligned();
            let third = src.add(bytes - 32).cast::<Sixteen>().read_unaligned();
            ends::<Sixteen>(dst, src, bytes);
            dst.add(16).cast::<Sixteen>().write_unaligned(second);
            dst.add(bytes - 32).cast::<Sixteen>().write_unaligned(third);
        } else if bytes >= 8 {
            ends::<u64>(dst, src, bytes);
        } else if bytes >= 4 {
            ends::<u32>(dst, src, bytes);
        } else if bytes >= 2 {
            ends::<u16>(dst, src, bytes);
        } else if bytes == 1 {
            dst.write(src.read());
        }
    }
}

/// The first and the last bytes, a `T` of each.
///
/// # Safety
/// As [`copy_small`]; `bytes` is at least the size of a `T`, whose every bit pattern is one.
#[inline(always)]
unsafe fn ends<T: Copy>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (src.cast::<T>().read_unaligned(), src.add(last).cast::<T>().read_unaligned());
        dst.cast::<T>().write_unaligned(a);
        dst.add(last).cast::<T>().write_unaligned(b);
    }
}

/// Bytes of copies within the core's own caches that moves make faster here than the instruction for whole strings, or than
/// what the language has.
#[inline]
fn moves() -> std::ops::RangeInclusive<usize> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match strings::favoured() {
        true if strings::favoured_outside() => return NEAR_AND_NEAREST,
        false => return NEAR,
        // None: what the language has is as fast up to there.
        true if strings::lines_travel() => return *NEAREST.end() + 1..=*NEAREST.end(),
        true => {}
    }
    NEAREST
}

/// See [`crate::copy_part`].
///
/// # Safety
/// As [`crate::copy_part`].
pub(crate) unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: usize, whole: usize) {
    // All of it decides, not a block: only what is short stays in the first-level cache from call to call.
    let one = match whole {
        LONG..BEYOND if strings::favoured_outside() => copy_far,
        BEYOND.. if strings::favoured_outside() && dsts.len() == 1 => copy_past,
        BEYOND.. if strings::favoured_outside() => copy_strings,
        BEYOND_TRAVELLING.. if strings::travels_favoured() && dsts.len() == 1 => copy_past,
        _ if bytes > *moves().end() && strings::favoured() => copy_strings,
        ..LONG => copy_near,
        _ => copy_far,
    };
    // SAFETY: the caller's promise.
    unsafe {
        if let [dst] = *dsts {
            one(dst, src, bytes);
            return;
        }
        let mut at = 0;
        while at < bytes {
            let n = BLOCK.min(bytes - at);
            for dst in dsts {
                one(dst.add(at), src.add(at), n);
            }
            at += n;
        }
    }
}

/// # Safety
/// `src` is readable and `dst` writable for `bytes` bytes; they are equal or do not overlap.
#[inline]
unsafe fn copy_near(dst: *mut u8, src: *const u8, bytes: usize) {
    let moves = moves();
    if bytes > *moves.end() && strings::favoured() {
        // SAFETY: the caller's promise.
        return unsafe { copy_strings(dst, src, bytes) };
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if moves.contains(&bytes) && dst.cast_const() != src && std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the caller's promise, without the case that it excepts; the machine has the feature.
            return unsafe { across(dst, src, bytes) };
        }
    }
    // SAFETY: the caller's promise; `std::ptr::copy` allows a destination that is the source.
    unsafe { std::ptr::copy(src, dst, bytes) }
}

/// See [`crate::copy_alone`].
///
/// # Safety
/// As [`crate::copy_alone`].
pub(crate) unsafe fn copy_alone(dst: *mut u8, src: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes > *NEAREST.end()
        && bytes <= ALONE
        && strings::waits_for_lines()
        && std::arch::is_x86_feature_detected!("avx")
    {
        // SAFETY: the caller's promise; the machine has the feature.
        return unsafe { across(dst, src, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy(&[dst], src, bytes, bytes) }
}

/// See [`crate::copy_taken`].
///
/// # Safety
/// As [`crate::copy_taken`].
pub(crate) unsafe fn copy_taken(dst: *mut u8, src: *const u8, bytes: usize, whole: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if whole < LONG && strings::waits_for_lines() && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; the machine has the feature.
        return unsafe { across(dst, src, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy(&[dst], src, bytes, whole) }
}

/// As [`copy_near`], by the instruction for whole strings.
///
/// # Safety
/// As [`copy_near`].
unsafe fn copy_strings(dst: *mut u8, src: *const u8, bytes: usize) {
    if dst.cast_const() == src {
        return;
    }
    // SAFETY: the caller's promise, without the case that it excepts.
    unsafe { if bytes <= SMALL { copy_small(dst, src, bytes) } else { strings::copy(dst, src, bytes) } }
}

/// As [`copy_near`] for a part of a long transfer: what follows is asked for as well.
///
/// # Safety
/// As [`copy_near`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_far(dst: *mut u8, src: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _MM_HINT_ET0, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128};
    if dst.cast_const() == src {
        return;
    }
    const LINE: usize = 64;
    let lines = bytes / LINE;
    for line in 0..lines {
        // SAFETY: the line lies in both ranges; a prefetch accesses no memory as far as the program can tell, whatever the
        // address.
        unsafe {
            let (from, to) = (src.add(line * LINE), dst.add(line * LINE));
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD).cast());
            _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(AHEAD).cast());
            let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
            let (a, b) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
            let (c, d) = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
            _mm_storeu_si128(to, a);
            _mm_storeu_si128(to.add(1), b);
            _mm_storeu_si128(to.add(2), c);
            _mm_storeu_si128(to.add(3), d);
        }
    }
    let done = lines * LINE;
    // SAFETY: the rest of both ranges, which do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), bytes - done) }
}

/// As [`copy_far`], by stores past the caches: nobody finds there what is so long.
///
/// # Safety
/// As [`copy_near`].
pub(crate) unsafe fn copy_past(dst: *mut u8, src: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    if unsafe { crate::stream::copy(&[dst], src, bytes) } {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_strings(dst, src, bytes) }
}

/// # Safety
/// As [`copy_near`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn copy_far(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_near(dst, src, bytes) }
}

/// Whether [`copy_across`] copies `bytes` bytes by the instruction for whole strings.
#[inline]
pub(crate) fn across_by_strings(bytes: usize) -> bool {
    match bytes {
        ACROSS_TRAVELLING.. => strings::favoured(),
        ACROSS_STRINGS.. => !strings::lines_travel(),
        ACROSS_PAIRS.. => bytes.is_multiple_of(2 * 64) && strings::favoured_if_short(),
        _ => false,
    }
}

/// See [`crate::copy_across`].
///
/// # Safety
/// As [`crate::copy_across`].
pub(crate) unsafe fn copy_across(dst: *mut u8, src: *const u8, bytes: usize) {
    if across_by_strings(bytes) {
        // SAFETY: the caller's promise; that is more than a line.
        return unsafe { strings::copy(dst, src, bytes) };
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= ACROSS && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; the machine has the feature.
        return unsafe { across(dst, src, bytes) };
    }
    let _ = ACROSS;
    // SAFETY: the caller's promise.
    unsafe { copy_near(dst, src, bytes) }
}

/// Plain stores, each line of the destination asked for ahead where that is faster: the instruction for whole strings waits longer
/// for lines of another core, or is slower among those that this one has.
///
/// # Safety
/// As [`crate::copy_across`], on a machine with AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
pub(crate) unsafe fn across(dst: *mut u8, src: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256};
    const LINE: usize = 64;
    let lines = bytes / LINE;
    let asked = if strings::moves_ask() { lines.saturating_sub(ACROSS_AHEAD / LINE) } else { 0 };
    for line in 0..lines {
        // SAFETY: the line lies in both ranges, and so does the one that is asked for.
        unsafe {
            let (from, to) = (src.add(line * LINE), dst.add(line * LINE));
            if line < asked {
                _mm_prefetch::<_MM_HINT_ET0>(to.add(ACROSS_AHEAD).cast());
            }
            let (a, b) = (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(LINE / 2).cast()));
            _mm256_storeu_si256(to.cast(), a);
            _mm256_storeu_si256(to.add(LINE / 2).cast(), b);
        }
    }
    let done = lines * LINE;
    // SAFETY: the rest of both ranges, which do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), bytes - done) }
}
