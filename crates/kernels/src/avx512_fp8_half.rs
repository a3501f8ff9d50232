//! Short ways for the 8-bit floats at the AVX-512 level, where nothing but a power of two is multiplied before the rounding.
//!
//! Sums (and products of two) round by way of binary16, whose conversion is one instruction and leaves 16-bit lanes in
//! which the second rounding costs half as much as on f32. Two roundings equal one where binary16 has twice the
//! significant bits of the type and two more (11 against 4 or 3) and the operands of one sum or product have the type's;
//! for longer sums the first rounding is to odd. Maximum and minimum compare the codes and convert nothing.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::avx512::mask64;
use crate::fp8_format::Format;
use crate::lanes::Lanes;

/// Per 16-bit lane the lower byte of `even` and the upper byte of `odd`.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn bytes_of(even: __m512i, odd: __m512i) -> __m512i {
    // SAFETY: the caller's promise. 0xe4 takes the first where the third has ones, else the second.
    unsafe { _mm512_ternarylogic_epi32::<0xe4>(even, odd, _mm512_set1_epi16(0xff)) }
}

/// `a | (b & c)`.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn or_and(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(a, b, c) }
}

/// Whether sums may be multiplied by this factor before they are rounded by way of binary16: powers of two from 1/128 to 1,
/// the averages of the usual numbers of ranks. Such a product is exact and, since it is a multiple of the factor times the
/// least element (2^-17 and 2^-16 as decoded), what it has below binary16's normal numbers is still a multiple of the least
/// binary16 (2^-24), so that nothing more is cut off.
pub(crate) fn takes_factor(factor: f64) -> bool {
    let mantissa = factor.to_bits() & ((1 << (f64::MANTISSA_DIGITS - 1)) - 1);
    (1.0 / 128.0..=1.0).contains(&factor) && mantissa == 0
}

/// 64 elements while they are summed.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// Even elements 0..32, even 32..64, odd 0..32, odd 32..64; of e4m3 1/256 of them, NaN a number.
    values: [__m512; 4],
    /// Of e4m3: the greatest code of each element so far with the sign bit set, so that all ones means NaN.
    codes: __m512i,
}

/// Sums of 64 elements, and products of two if `!STICKY`; `STICKY` is for sums of any number of sources.
pub(crate) struct Half<F, const STICKY: bool>(PhantomData<F>);

impl<F: Format, const STICKY: bool> Half<F, STICKY> {
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn decode(raw: __m512i) -> Sums {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) = (_mm512_slli_epi16(raw, 8), raw);
            let (even, odd) = if F::IS_BINARY16 {
                (even, _mm512_and_si512(odd, _mm512_set1_epi16(0xff00_u16 as i16)))
            } else {
                // The arithmetic shift doubles the sign into the exponent's first bit, which the mask clears.
                let mask = _mm512_set1_epi16(0xbf80_u16 as i16);
                (_mm512_and_si512(_mm512_srai_epi16(even, 1), mask), _mm512_and_si512(_mm512_srai_epi16(odd, 1), mask))
            };
            let values = [
                _mm512_cvtph_ps(_mm512_castsi512_si256(even)),
                _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(even)),
                _mm512_cvtph_ps(_mm512_castsi512_si256(odd)),
                _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(odd)),
            ];
            Sums { values, codes: _mm512_or_si512(raw, _mm512_set1_epi8(-128)) }
        }
    }

    /// 32 elements as binary16, rounded to nearest or, if `STICKY`, to odd: cut off, the last bit set where what is cut
    /// off was not zero. Below the normal numbers nothing is cut off, since all elements are multiples of the least.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn to_binary16(low: __m512, high: __m512) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = if STICKY {
                let (low, high) = (Self::stick(low), Self::stick(high));
                (_mm512_cvtps_ph::<_MM_FROUND_TO_ZERO>(low), _mm512_cvtps_ph::<_MM_FROUND_TO_ZERO>(high))
            } else {
                (_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high))
            };
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }

    /// Sets the last of the bits that binary16 keeps if any of those it does not keep is set.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn stick(x: __m512) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm512_castps_si512(x);
            let carried = _mm512_add_epi32(x, _mm512_set1_epi32(0x1fff));
            _mm512_castsi512_ps(or_and(x, carried, _mm512_set1_epi32(0x2000)))
        }
    }

    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn encode(v: Sums) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let even = Self::to_binary16(v.values[0], v.values[1]);
            let odd = Self::to_binary16(v.values[2], v.values[3]);
            // Per byte the magnitude that is kept, the bits that are cut off, and in the first bit the sign.
            let (kept, cut, sign) = if F::IS_BINARY16 {
                let upper = bytes_of(_mm512_srli_epi16(even, 8), odd);
                let kept = _mm512_and_si512(upper, _mm512_set1_epi8(0x7f));
                (kept, bytes_of(even, _mm512_slli_epi16(odd, 8)), upper)
            } else {
                (
                    bytes_of(_mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1)),
                    bytes_of(_mm512_slli_epi16(even, 1), _mm512_slli_epi16(odd, 9)),
                    bytes_of(_mm512_srli_epi16(even, 8), odd),
                )
            };
            // Up if what is cut off is more than a half, or a half and the last bit kept is odd: with that bit in the
            // lowest place of what is cut off, both are one comparison.
            let one = _mm512_set1_epi8(1);
            let up = _mm512_cmpgt_epu8_mask(or_and(cut, kept, one), _mm512_set1_epi8(-128));
            let rounded = _mm512_mask_add_epi8(kept, up, kept, one);
            let saturated = _mm512_min_epu8(rounded, _mm512_set1_epi8(F::MAX_CODE));
            let codes = or_and(saturated, sign, _mm512_set1_epi8(-128));
            let nan = if F::IS_BINARY16 {
                // The conversion has made it quiet.
                _mm512_cmpgt_epu8_mask(kept, _mm512_set1_epi8(0x7d))
            } else {
                _mm512_cmpeq_epi8_mask(v.codes, _mm512_set1_epi8(-1))
            };
            _mm512_mask_mov_epi8(codes, nan, _mm512_set1_epi8(0x7f))
        }
    }
}

impl<F: Format> Half<F, false> {
    /// The sums of 64 pairs of elements.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    pub(crate) unsafe fn sum_of(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { Self::encode(Self::sum(Self::decode(a), Self::decode(b))) }
    }
}

macro_rules! sums {
    ($name:ident, |$a:ident, $b:ident| $e:expr) => {
        #[inline(always)]
        unsafe fn $name(a: Sums, b: Sums) -> Sums {
            // SAFETY: the caller promises the level's features.
            unsafe {
                let mut values = a.values;
                for (value, $b) in values.iter_mut().zip(b.values) {
                    let $a = *value;
                    *value = $e;
                }
                Sums { values, codes: _mm512_max_epu8(a.codes, b.codes) }
            }
        }
    };
}

impl<F: Format, const STICKY: bool> Lanes for Half<F, STICKY> {
    type V = Sums;
    const N: usize = 64;
    const SIZE: usize = 1;
    const IS_FLOAT: bool = true;
    const UNROLL: usize = 1;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Sums {
        // SAFETY: the caller's promise.
        unsafe { Self::decode(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Sums {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { Self::decode(_mm512_maskz_loadu_epi8(mask64(n), p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Sums) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), Self::encode(v)) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Sums, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe { _mm512_mask_storeu_epi8(p.cast(), mask64(n), Self::encode(v)) }
    }
    #[inline(always)]
    unsafe fn splat(x: f64) -> Sums {
        // SAFETY: the caller promises the level's features.
        unsafe { Sums { values: [_mm512_set1_ps(x as f32); 4], codes: _mm512_setzero_si512() } }
    }
    /// The factor is not 1/256 of itself, as the elements are.
    #[inline(always)]
    unsafe fn times(a: Sums, factor: Sums) -> Sums {
        let mut values = a.values;
        for (value, x) in values.iter_mut().zip(factor.values) {
            // SAFETY: the caller promises the level's features.
            *value = unsafe { _mm512_mul_ps(*value, x) };
        }
        Sums { values, codes: a.codes }
    }
    sums!(sum, |a, b| _mm512_add_ps(a, b));
    sums!(prod, |a, b| {
        let product = _mm512_mul_ps(a, b);
        // 1/256 of the product, not of 1/256 of it. Both factors have few bits: nothing is rounded here.
        if F::IS_BINARY16 { product } else { _mm512_mul_ps(product, _mm512_set1_ps(256.0)) }
    });
    sums!(max, |a, b| _mm512_max_ps(a, b));
    sums!(min, |a, b| _mm512_min_ps(a, b));
}

/// Maxima (`MAX`) or minima of 64 elements by their codes.
pub(crate) struct Codes<F, const MAX: bool>(PhantomData<F>);

/// 64 elements while the greatest or least are sought.
#[derive(Clone, Copy)]
pub(crate) struct Ordered {
    codes: __m512i,
    /// Signed bytes in the order of the values; zeros are equal, NaN comes last.
    keys: __m512i,
}

impl<F: Format, const MAX: bool> Codes<F, MAX> {
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn order(codes: __m512i) -> Ordered {
        // SAFETY: the caller's promise.
        unsafe {
            let negative = _mm512_movepi8_mask(codes);
            let keys = _mm512_mask_sub_epi8(codes, negative, _mm512_set1_epi8(-128), codes);
            // NaN of the other sign are last already.
            let (nan, last) = if MAX {
                (_mm512_cmpgt_epi8_mask(keys, _mm512_set1_epi8(F::LAST_NUMBER)), -128)
            } else {
                (_mm512_cmplt_epi8_mask(keys, _mm512_set1_epi8(-F::LAST_NUMBER)), 127)
            };
            Ordered { codes, keys: _mm512_mask_mov_epi8(keys, nan, _mm512_set1_epi8(last)) }
        }
    }

    /// The first where `first` has ones, else the second.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn choose(first: __mmask64, a: Ordered, b: Ordered) -> Ordered {
        // SAFETY: the caller's promise.
        unsafe {
            let codes = _mm512_mask_mov_epi8(b.codes, first, a.codes);
            Ordered { codes, keys: _mm512_mask_mov_epi8(b.keys, first, a.keys) }
        }
    }

    /// The codes with infinities saturated.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn saturate(codes: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let magnitude = _mm512_and_si512(codes, _mm512_set1_epi8(0x7f));
            let infinite = _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(F::LAST_NUMBER));
            // Of a type without infinities the last number is the greatest finite one.
            let step = _mm512_set1_epi8(F::LAST_NUMBER - F::MAX_CODE);
            _mm512_mask_sub_epi8(codes, infinite, codes, step)
        }
    }
}

impl<F: Format, const MAX: bool> Lanes for Codes<F, MAX> {
    type V = Ordered;
    const N: usize = 64;
    const SIZE: usize = 1;
    const IS_FLOAT: bool = true;
    const UNROLL: usize = 2;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Ordered {
        // SAFETY: the caller's promise.
        unsafe { Self::order(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Ordered {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { Self::order(_mm512_maskz_loadu_epi8(mask64(n), p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Ordered) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), Self::saturate(v.codes)) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Ordered, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe { _mm512_mask_storeu_epi8(p.cast(), mask64(n), Self::saturate(v.codes)) }
    }
    /// Never used, as sum and product: other loops serve them.
    #[inline(always)]
    unsafe fn splat(_: f64) -> Ordered {
        // SAFETY: the caller promises the level's features.
        unsafe { Self::order(_mm512_setzero_si512()) }
    }
    #[inline(always)]
    unsafe fn sum(a: Ordered, _: Ordered) -> Ordered {
        a
    }
    #[inline(always)]
    unsafe fn prod(a: Ordered, _: Ordered) -> Ordered {
        a
    }
    #[inline(always)]
    unsafe fn max(a: Ordered, b: Ordered) -> Ordered {
        // SAFETY: the caller promises the level's features.
        unsafe { Self::choose(_mm512_cmpgt_epi8_mask(a.keys, b.keys), a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: Ordered, b: Ordered) -> Ordered {
        // SAFETY: the caller promises the level's features.
        unsafe { Self::choose(_mm512_cmplt_epi8_mask(a.keys, b.keys), a, b) }
    }
}
