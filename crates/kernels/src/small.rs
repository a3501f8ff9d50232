//! Calls of a few bytes, where the way to the arithmetic takes longer than the arithmetic, and what whole blocks leave over.
//!
//! These go in pieces of 16, 8, 4, 2 and 1 bytes, each a plain load and store of its size: no masks to make, and nothing
//! beyond the buffers is touched, which a masked vector does to the cache line behind, and that line may be one that a
//! peer is writing. Vectors are of 16 bytes, which no processor has to wake wider units or lower its clock for.

use std::ops::Range;

use crate::lanes::{Lanes, combine, remainder, steps};

/// The method `small` of lanes whose small calls go by this function, in these lanes of 16 bytes.
macro_rules! way {
    ($function:ident, $small:ty) => {
        #[inline(always)]
        unsafe fn small<const OP: u8, const PAIR: bool>(
            dsts: &[*mut u8],
            srcs: &[*const u8],
            range: Range<usize>,
            factor: Option<f64>,
        ) {
            // SAFETY: the caller's promise.
            unsafe { small::$function::<Self, $small, OP, PAIR>(dsts, srcs, range, factor) }
        }
    };
}
pub(crate) use way;

/// Bytes per source of the calls that go this way.
pub(crate) const BYTES: usize = 64;
/// Bytes of the vectors of `L`.
const VECTOR: usize = 16;

/// The first `BYTES` bytes at `p`, zeros in the other lanes.
///
/// # Safety
/// The level's features are there; `p` is readable for `BYTES` bytes.
#[inline(always)]
unsafe fn load<L: Lanes, const BYTES: usize>(p: *const u8) -> L::V {
    // SAFETY: the caller's promise; a vector is `VECTOR` bytes.
    unsafe {
        let bits = match BYTES {
            1 => u64::from(p.read()),
            2 => u64::from(p.cast::<u16>().read_unaligned()),
            4 => u64::from(p.cast::<u32>().read_unaligned()),
            8 => p.cast::<u64>().read_unaligned(),
            _ => return L::load(p),
        };
        let raw = Raw::from([bits, 0]);
        L::load((&raw const raw).cast())
    }
}

/// Stores the first `BYTES` bytes.
///
/// # Safety
/// The level's features are there; `p` is writable for `BYTES` bytes.
#[inline(always)]
unsafe fn store<L: Lanes, const BYTES: usize>(p: *mut u8, v: L::V) {
    // SAFETY: the caller's promise; a vector is `VECTOR` bytes.
    unsafe {
        if BYTES == VECTOR {
            return L::store(p, v);
        }
        let mut raw = Raw::from([0, 0]);
        L::store((&raw mut raw).cast(), v);
        let bits = raw.low();
        match BYTES {
            1 => p.write(bits as u8),
            2 => p.cast::<u16>().write_unaligned(bits as u16),
            4 => p.cast::<u32>().write_unaligned(bits as u32),
            _ => p.cast::<u64>().write_unaligned(bits),
        }
    }
}

/// 16 bytes on their way between memory and a vector: where there is one, of a vector's type.
#[repr(transparent)]
struct Raw(#[cfg(target_arch = "x86_64")] std::arch::x86_64::__m128i, #[cfg(not(target_arch = "x86_64"))] [u64; 2]);

impl From<[u64; 2]> for Raw {
    #[inline(always)]
    fn from(bits: [u64; 2]) -> Raw {
        // SAFETY: 16 bytes each, any of which are a value of the other; no instruction.
        unsafe {
            let mut raw: Raw = std::mem::transmute(bits);
            // The compiler would take the bytes out of the number one by one, since it knows that they come from one.
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("/* {0} */", inout(xmm_reg) raw.0, options(pure, nomem, nostack, preserves_flags));
            raw
        }
    }
}

impl Raw {
    #[inline(always)]
    fn low(self) -> u64 {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<Raw, [u64; 2]>(self)[0] }
    }
}

/// The pointer again, of which the compiler no longer knows where it came from: it would prepare and unroll loops that go
/// round once or twice, and save registers for them.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through the pointer")]
fn opaque<T>(p: *const T) -> *const T {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let p = {
        let mut p = p;
        // SAFETY: no instruction.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags)) };
        p
    };
    p
}

/// `BYTES` bytes from byte offset `at` on; of one destination and two sources if `PAIR`.
///
/// # Safety
/// As [`reduce`], for these bytes.
#[inline(always)]
unsafe fn piece<L: Lanes, const OP: u8, const PAIR: bool, const BYTES: usize>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    at: usize,
    factor: Option<f64>,
) {
    // SAFETY: the caller's promise; the pointers go through the slices.
    unsafe {
        let mut acc = load::<L, BYTES>(srcs.get_unchecked(0).add(at));
        if PAIR {
            acc = combine::<L, OP>(acc, load::<L, BYTES>(srcs.get_unchecked(1).add(at)));
            return store::<L, BYTES>(dsts.get_unchecked(0).add(at), acc);
        }
        let (srcs, dsts) = (srcs.as_ptr_range(), dsts.as_ptr_range());
        let mut src = srcs.start.add(1);
        while src != srcs.end {
            acc = combine::<L, OP>(acc, load::<L, BYTES>((*src).add(at)));
            src = opaque(src.add(1));
        }
        if let Some(x) = factor {
            acc = L::times(acc, L::splat(x));
        }
        let mut dst = dsts.start;
        while dst != dsts.end {
            store::<L, BYTES>((*dst).add(at), acc);
            dst = opaque(dst.add(1));
        }
    }
}

/// Reduces a few elements, of one destination and two sources without a factor if `PAIR`; `L` is the type's arithmetic in
/// vectors of 16 bytes in memory.
///
/// # Safety
/// As [`crate::lanes::reduce`]; there is a source.
#[inline(always)]
pub(crate) unsafe fn reduce<L: Lanes, const OP: u8, const PAIR: bool>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    const { assert!(L::N * L::SIZE == VECTOR) };
    let (mut at, end) = (range.start * L::SIZE, range.end * L::SIZE);
    // SAFETY: the caller's promise; the pieces end at or before `end`.
    unsafe {
        while end - at >= VECTOR {
            piece::<L, OP, PAIR, VECTOR>(dsts, srcs, at, factor);
            at += VECTOR;
        }
        let left = end - at;
        if left & 8 != 0 {
            piece::<L, OP, PAIR, 8>(dsts, srcs, at, factor);
            at += 8;
        }
        if L::SIZE <= 4 && left & 4 != 0 {
            piece::<L, OP, PAIR, 4>(dsts, srcs, at, factor);
            at += 4;
        }
        if L::SIZE <= 2 && left & 2 != 0 {
            piece::<L, OP, PAIR, 2>(dsts, srcs, at, factor);
            at += 2;
        }
        if L::SIZE == 1 && left & 1 != 0 {
            piece::<L, OP, PAIR, 1>(dsts, srcs, at, factor);
        }
    }
}

/// [`reduce`] with `S` after whole steps of `L`, the same type in longer vectors; a pair is short enough without them.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
pub(crate) unsafe fn reduce_after_steps<L: Lanes, S: Lanes, const OP: u8, const PAIR: bool>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    let Range { start: mut from, end } = range;
    // SAFETY: the caller's promise; the steps end at or before `end`.
    unsafe {
        while !PAIR && end - from >= L::N {
            steps::<L, OP, 1>(dsts, srcs, from * L::SIZE, None, factor);
            from += L::N;
        }
        reduce::<S, OP, PAIR>(dsts, srcs, from..end, factor);
    }
}

/// [`reduce`] with `S` for small pairs and for what one of its vectors holds, else with the masked vectors of `L`: pieces are
/// more work than one of these where there are several of them for several sources.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
pub(crate) unsafe fn reduce_or_mask<L: Lanes, S: Lanes, const OP: u8, const PAIR: bool>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    factor: Option<f64>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if range.end - range.start <= if PAIR { L::SMALL } else { S::N } {
            reduce::<S, OP, PAIR>(dsts, srcs, range, factor);
        } else {
            remainder::<L, OP>(dsts, srcs, range, factor);
        }
    }
}
