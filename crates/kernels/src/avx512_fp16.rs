//! Sums of two where the processor adds binary16 itself (AVX512-FP16: Intel from Sapphire Rapids on).
//!
//! One addition or product of two binary16 rounds as the way through f32 does, which has twice the significant bits and two
//! more. Of two 8-bit floats it is exact as far as they are rounded: their significant bits fit binary16 unless the exponents
//! are further apart than what the 8-bit type keeps, and then the lesser operand changes nothing but on which side of
//! the greater the sum lies. Longer sums are accumulated in f32 and go the other ways.
//!
//! The instructions are written out, since the functions for them are not stable in the oldest compiler that builds this.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use crate::avx512::sums_of_lines;
use crate::avx512_fp8_half::{bytes_of, or_and};
use crate::fp8_format::Format;
use crate::lanes::{self, FAR_NATIVE, Lanes};
use crate::past;

/// Whether this machine has what is here beyond its level.
#[inline]
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512fp16")
}

/// Bytes per source from which on 8-bit floats go this way: below, the way in bytes wakes the units of which `wide` speaks for the last
/// elements at most, which takes longer than a short sum.
const LONG: usize = 16 << 10;

/// Whether the sum of two sources of so many 8-bit floats goes this way.
#[inline]
pub(crate) fn takes(count: usize) -> bool {
    count >= LONG && available()
}

macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $v:ty, $class:ident, $text:literal $(, $option:ident)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The machine is [`available`].
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $name(a: $v, b: $v) -> $v {
            let out;
            // SAFETY: the caller's promise; nothing but the result and flags change.
            unsafe {
                asm!(
                    $text,
                    out = lateout($class) out, a = in($class) a, b = in($class) b,
                    options(pure, nomem, nostack $(, $option)?)
                );
            }
            out
        }
    };
}

instruction!(
    /// The sums of 32 binary16, to nearest whatever the program has set.
    add_32, __m512i, zmm_reg, "vaddph {out}, {a}, {b}, {{rn-sae}}", preserves_flags
);
instruction!(
    /// The sums of 16 binary16.
    add_16, __m256i, ymm_reg, "vaddph {out}, {a}, {b}"
);
instruction!(
    /// The products of 16 binary16.
    mul_16, __m256i, ymm_reg, "vmulph {out}, {a}, {b}"
);

/// Of 32 binary16 `x * factor - less`, rounded once, to nearest.
///
/// # Safety
/// The machine is [`available`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn times_less(x: __m512i, factor: __m512i, less: __m512i) -> __m512i {
    let mut out = x;
    // SAFETY: the caller's promise; nothing but the result changes.
    unsafe {
        asm!(
            "vfmsub213ph {out}, {factor}, {less}, {{rn-sae}}",
            out = inout(zmm_reg) out, factor = in(zmm_reg) factor, less = in(zmm_reg) less,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// The sum or product of two sources of binary16; the first element that is not done, of the last few.
///
/// # Safety
/// As [`lanes::reduce`]; there are two sources, and the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(crate) unsafe fn combine_two<const OP: u8>(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
    let (end, far) = (range.end, range.len() * Binary16::SIZE >= Binary16::FAR);
    // SAFETY: the caller's promise.
    unsafe {
        let from = lanes::blocks_unrolled::<Binary16, OP>(dsts, srcs, range, far);
        if end - from <= LAST {
            return from;
        }
        lanes::remainder::<Binary16, OP>(dsts, srcs, from..end, None);
        end
    }
}

/// Elements that are left for the way of small calls.
const LAST: usize = 8;

/// Their sum past the caches.
///
/// # Safety
/// As [`Lanes::past_caches`]; the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(crate) unsafe fn sum_of_two_past(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { past::sum_of_two::<Binary16>(dsts, srcs, range) }
}

/// The whole blocks of the sum of two sources of 8-bit floats; the first element that is not done.
///
/// # Safety
/// As [`lanes::reduce`]; there are two sources, and the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(crate) unsafe fn sum_of_two_fp8<F: Format>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    far: bool,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { lanes::blocks_unrolled::<Fp8Sums<F>, { lanes::SUM }>(dsts, srcs, range, far) }
}

/// The same past the caches.
///
/// # Safety
/// As [`Lanes::past_caches`]; the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
pub(crate) unsafe fn sum_of_two_fp8_past<F: Format>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { past::sum_of_two::<Fp8Sums<F>>(dsts, srcs, range) }
}

/// 16 binary16 as they lie in memory: vectors for which the processor wakes nothing, and memory is what they wait for.
enum Binary16 {}

impl Lanes for Binary16 {
    type V = __m256i;
    const N: usize = 16;
    const SIZE: usize = 2;
    const IS_FLOAT: bool = true;
    const FAR: usize = FAR_NATIVE;
    const UNROLL_FAR: bool = false;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> __m256i {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { _mm256_maskz_loadu_epi16((1 << n) - 1, p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m256i) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: __m256i, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe { _mm256_mask_storeu_epi16(p.cast(), (1 << n) - 1, v) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise, who calls this through `combine_two` and `sum_of_two_past` only.
        unsafe { add_16(a, b) }
    }
    #[inline(always)]
    unsafe fn prod(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { mul_16(a, b) }
    }
    /// Never used, as what follows: other loops serve them.
    #[inline(always)]
    unsafe fn splat(_: f64) -> __m256i {
        // SAFETY: the caller promises the level's features.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn max(a: __m256i, _: __m256i) -> __m256i {
        a
    }
    #[inline(always)]
    unsafe fn min(a: __m256i, _: __m256i) -> __m256i {
        a
    }
}

/// 64 elements of the format `F`, as they lie in memory.
struct Fp8Sums<F>(PhantomData<F>);

impl<F: Format> Fp8Sums<F> {
    /// The even and the odd elements as binary16; of e4m3 1/256 of them, and NaN a number.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn decode(raw: __m512i) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let even = _mm512_slli_epi16(raw, 8);
            if F::IS_BINARY16 {
                return [even, _mm512_and_si512(raw, _mm512_set1_epi16(0xff00_u16 as i16))];
            }
            // The arithmetic shift doubles the sign into the exponent's first bit, which the mask clears.
            let mask = _mm512_set1_epi16(0xbf80_u16 as i16);
            [_mm512_and_si512(_mm512_srai_epi16(even, 1), mask), _mm512_and_si512(_mm512_srai_epi16(raw, 1), mask)]
        }
    }

    /// The codes of sums that are e5m2 but for rounding.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn encode_e5m2([even, odd]: [__m512i; 2]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let (one, sign) = (_mm512_set1_epi8(1), _mm512_set1_epi8(-128));
            let upper = bytes_of(_mm512_srli_epi16(even, 8), odd);
            let kept = _mm512_and_si512(upper, _mm512_set1_epi8(0x7f));
            let cut = bytes_of(even, _mm512_slli_epi16(odd, 8));
            // Up if what is cut off is more than a half, or a half and the last bit kept is odd: with that bit in the
            // lowest place of what is cut off, both are one comparison.
            let up = _mm512_cmpgt_epu8_mask(or_and(cut, kept, one), sign);
            let rounded = _mm512_mask_add_epi8(kept, up, kept, one);
            let codes = or_and(_mm512_min_epu8(rounded, _mm512_set1_epi8(F::MAX_CODE)), upper, sign);
            // The addition has made it quiet.
            let nan = _mm512_cmpgt_epu8_mask(kept, _mm512_set1_epi8(0x7d));
            _mm512_mask_mov_epi8(codes, nan, _mm512_set1_epi8(0x7f))
        }
    }

    /// The sums of two e4m3, as decoded, rounded to four significant bits. A product by 127 has as its last bit, in binary16,
    /// the eighth part of the sum's first (the 16th, where the sum is so little above a power of two that it becomes that either
    /// way): taken from 128 times the sum, which ends there too, it leaves the sum rounded to that bit, a half to
    /// the even one. The sum of two denormal elements is one of the type and stays.
    ///
    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn rounded_e4m3(sums: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            // 128.
            let factor = _mm512_set1_epi16(0x5800);
            times_less(sums, factor, times_less(sums, factor, sums))
        }
    }

    /// The codes of rounded sums of `a` and `b`.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn encode_e4m3([even, odd]: [__m512i; 2], a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let sign = _mm512_set1_epi8(-128);
            let kept = bytes_of(_mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1));
            let signs = bytes_of(_mm512_srli_epi16(even, 8), odd);
            let codes = or_and(_mm512_min_epu8(kept, _mm512_set1_epi8(F::MAX_CODE)), signs, sign);
            let greatest = _mm512_max_epu8(_mm512_or_si512(a, sign), _mm512_or_si512(b, sign));
            let nan = _mm512_cmpeq_epi8_mask(greatest, _mm512_set1_epi8(-1));
            _mm512_mask_mov_epi8(codes, nan, _mm512_set1_epi8(0x7f))
        }
    }

    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let ([x_even, x_odd], [y_even, y_odd]) = (Self::decode(a), Self::decode(b));
            let (even, odd) = (add_32(x_even, y_even), add_32(x_odd, y_odd));
            if F::IS_BINARY16 {
                Self::encode_e5m2([even, odd])
            } else {
                Self::encode_e4m3([Self::rounded_e4m3(even), Self::rounded_e4m3(odd)], a, b)
            }
        }
    }
}

sums_of_lines!(Fp8Sums);
