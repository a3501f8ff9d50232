//! The 8-bit floats at the AVX-512 level.
//!
//! A step is 64 elements. They are decoded through the binary16 conversion instruction, since both types are, up to a
//! power of two, a binary16 with the mantissa cut off; that leaves the even elements in two vectors of f32 and the odd
//! ones in two others. Encoding lets one f32 addition round: to each element is added the power of two whose unit in
//! the last place is the element's unit in the 8-bit type, so that the low bits of the sum hold the rounded mantissa.
//! Of the results NaN is rare and handled out of line. `avx512_fp8_half` has shorter ways for most calls.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use crate::avx512::{mask64, max_ps, min_ps};
use crate::avx512_fp8_bytes as bytes;
use crate::avx512_fp8_half::{self as half, Codes, Half};
use crate::avx512_fp16 as fp16;
use crate::fp8_format::Format;
use crate::lanes::{self, Lanes};
use crate::small;

/// Even elements 0..32, even 32..64, odd 0..32, odd 32..64.
type V = [__m512; 4];

/// 64 elements of the format `F`.
pub(crate) struct Fp8<F>(PhantomData<F>);

/// Odd lanes of 16 bits.
const ODD: __mmask32 = 0xaaaa_aaaa;

/// Per 16-bit lane the upper halves of `a` (even lanes) and `b` (odd lanes).
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn upper_halves(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi16(ODD, _mm512_srli_epi32(a, 16), b) }
}

/// Per 16-bit lane the lower halves of `a` (even lanes) and `b` (odd lanes).
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn lower_halves(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi16(ODD, a, _mm512_slli_epi32(b, 16)) }
}

/// The elements in order, from the lower bytes of the lanes of `even` and of `odd` as [`upper_halves`] leaves them.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn in_order(even: __m512i, odd: __m512i) -> __m512i {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 32 {
            order[i] = (2 * i % 32 + i / 16) as u16;
            i += 1;
        }
        order
    };
    // SAFETY: the caller's promise; `ORDER` is 64 bytes.
    unsafe {
        let pairs = _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, _mm512_slli_epi16(odd, 8));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER.as_ptr().cast()), pairs)
    }
}

impl<F: Format> Fp8<F> {
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn decode(raw: __m512i) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            // All ones in the bytes of NaN, where the conversion does not know them.
            let nan = if F::IS_BINARY16 {
                _mm512_setzero_si512()
            } else {
                let magnitude = _mm512_or_si512(raw, _mm512_set1_epi8(-128));
                _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(-1)))
            };
            let upper = _mm512_set1_epi16(0xff00_u16 as i16);
            let [even_low, even_high] = Self::to_f32(_mm512_slli_epi16(raw, 8), _mm512_slli_epi16(nan, 8));
            let odd = if F::IS_BINARY16 { _mm512_and_si512(raw, upper) } else { raw };
            let [odd_low, odd_high] = Self::to_f32(odd, _mm512_and_si512(nan, upper));
            [even_low, even_high, odd_low, odd_high]
        }
    }

    /// The 32 elements in the upper bytes of the 16-bit lanes. (Not a closure, here and below: closures are not inlined
    /// before the instructions in them would have to be, and each would become a call.)
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn to_f32(mut lane: __m512i, nan: __m512i) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            if !F::IS_BINARY16 {
                // The arithmetic shift doubles the sign into the exponent's first bit, which the mask clears.
                lane = _mm512_and_si512(_mm512_srai_epi16(lane, 1), _mm512_set1_epi16(0xbf80_u16 as i16));
            }
            let lane = _mm512_or_si512(lane, nan);
            let low = _mm512_cvtph_ps(_mm512_castsi512_si256(lane));
            let high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(lane));
            if F::IS_BINARY16 {
                return [low, high];
            }
            let scale = _mm512_set1_ps(256.0);
            [_mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale)]
        }
    }

    /// The rounded mantissa in the lowest bits of an f32 whose exponent and sign tell the element's.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn round(x: __m512) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            // The lesser magnitude, the sign of the first operand; below, the greater.
            let clamped = _mm512_range_ps::<0b0010>(x, _mm512_set1_ps(F::MAX));
            let power = _mm512_and_ps(clamped, _mm512_castsi512_ps(_mm512_set1_epi32(0xff80_0000_u32 as i32)));
            let power = _mm512_range_ps::<0b0011>(power, _mm512_set1_ps(F::MIN_NORMAL));
            let magic = _mm512_add_epi32(_mm512_castps_si512(power), _mm512_set1_epi32(F::MAGIC as i32));
            _mm512_castps_si512(_mm512_add_ps(clamped, _mm512_castsi512_ps(magic)))
        }
    }

    /// The codes of 32 elements in the lower bytes of the 16-bit lanes.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn codes(a: __m512, b: __m512) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (Self::round(a), Self::round(b));
            let upper = upper_halves(a, b);
            let exponent = if F::MANTISSA == 3 { _mm512_srli_epi16(upper, 4) } else { _mm512_srli_epi16(upper, 5) };
            let code = _mm512_add_epi16(lower_halves(a, b), exponent);
            // 0xd8 takes the first where the third has zeros, else the second.
            _mm512_ternarylogic_epi32::<0xd8>(code, _mm512_srli_epi16(upper, 8), _mm512_set1_epi16(0x80))
        }
    }

    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn encode(v: V) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let codes = in_order(Self::codes(v[0], v[1]), Self::codes(v[2], v[3]));
            let even_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v[0], v[1]);
            let odd_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v[2], v[3]);
            if even_nan | odd_nan == 0 { codes } else { encode_nan(v[0], v[1], v[2], v[3], codes) }
        }
    }
}

/// `codes` with the code of NaN where the elements are NaN. (Vector by vector: an array would lie in memory, and be put
/// there every time.)
///
/// # Safety
/// The level's features are there.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn encode_nan(a: __m512, b: __m512, c: __m512, d: __m512, codes: __m512i) -> __m512i {
    let is_nan = |x| _mm512_movm_epi32(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x));
    // SAFETY: the caller's promise.
    let nan = unsafe { in_order(upper_halves(is_nan(a), is_nan(b)), upper_halves(is_nan(c), is_nan(d))) };
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(nan), codes, _mm512_set1_epi8(0x7f))
}

impl<F: Format> Lanes for Fp8<F> {
    type V = V;
    const N: usize = 64;
    const SIZE: usize = 1;
    const IS_FLOAT: bool = true;
    const UNROLL: usize = 1;
    const SMALL: usize = small::BYTES;

    #[inline(always)]
    unsafe fn short_way<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        far: bool,
    ) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            let range = range.clone();
            Some(match (OP, srcs.len()) {
                (lanes::MAX, _) => lanes::blocks_unrolled::<Codes<F, true>, OP>(dsts, srcs, range, far),
                (lanes::MIN, _) => lanes::blocks_unrolled::<Codes<F, false>, OP>(dsts, srcs, range, far),
                (lanes::SUM, 2) if fp16::takes(range.len()) => fp16::sum_of_two_fp8::<F>(dsts, srcs, range, far),
                (lanes::SUM, 2) if bytes::available() => bytes::sum_of_two::<F>(dsts, srcs, range, far),
                (lanes::SUM | lanes::PROD, 2) => lanes::blocks_unrolled::<Half<F, false>, OP>(dsts, srcs, range, far),
                (lanes::SUM, _) => lanes::blocks::<Half<F, true>, OP>(dsts, srcs, range, far, None),
                _ => return None,
            })
        }
    }

    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            match () {
                () if fp16::takes(range.len()) => fp16::sum_of_two_fp8_past::<F>(dsts, srcs, range),
                () if bytes::available() => bytes::sum_of_two_past::<F>(dsts, srcs, range),
                // Without byte permutations the core is busy longer than memory.
                () => range.start,
            }
        }
    }

    #[inline(always)]
    unsafe fn short_average<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        far: bool,
        factor: f64,
    ) -> Option<usize> {
        if OP != lanes::SUM || !half::takes_factor(factor) {
            return None;
        }
        let (range, factor) = (range.clone(), Some(factor));
        // SAFETY: the caller's promise.
        Some(unsafe {
            match (dsts, srcs) {
                (&[d], &[a, b]) => lanes::blocks::<Half<F, false>, OP>(&[d], &[a, b], range, far, factor),
                (_, [_, _]) => lanes::blocks::<Half<F, false>, OP>(dsts, srcs, range, far, factor),
                _ => lanes::blocks::<Half<F, true>, OP>(dsts, srcs, range, far, factor),
            }
        })
    }

    #[inline(always)]
    unsafe fn small<const OP: u8, const PAIR: bool>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: Range<usize>,
        factor: Option<f64>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match (OP, srcs.len()) {
                _ if factor.is_some() => lanes::remainder::<Self, OP>(dsts, srcs, range, factor),
                (lanes::MAX, _) => lanes::remainder::<Codes<F, true>, OP>(dsts, srcs, range, None),
                (lanes::MIN, _) => lanes::remainder::<Codes<F, false>, OP>(dsts, srcs, range, None),
                (lanes::SUM | lanes::PROD, 2) => lanes::remainder::<Half<F, false>, OP>(dsts, srcs, range, None),
                (lanes::SUM, _) => lanes::remainder::<Half<F, true>, OP>(dsts, srcs, range, None),
                _ => lanes::remainder::<Self, OP>(dsts, srcs, range, None),
            }
        }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { Self::decode(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> V {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { Self::decode(_mm512_maskz_loadu_epi8(mask64(n), p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: V) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), Self::encode(v)) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: V, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe { _mm512_mask_storeu_epi8(p.cast(), mask64(n), Self::encode(v)) }
    }
    crate::avx512::f32_operations!(0 1 2 3);
}
