//! The 8-bit floats at the AVX2 level, 32 elements in a step.
//!
//! Both types are, up to a power of two, a binary16 with the mantissa cut off, and are decoded through its conversion
//! instruction; the even elements lie in two vectors of f32, the odd ones in two others. Sums and products of two elements
//! are rounded by way of binary16 (`Half`; see `avx512_fp8_half` for why two roundings equal one there), everything else by
//! an addition in f32 (`Values`; see `avx512_fp8`). The compiler makes scalars of the plain loops of these types.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use crate::avx2::{max_ps, min_ps};
use crate::fp8_format::Format;
use crate::lanes::{self, Lanes, forward};
use crate::{past, small};

/// Even elements 0..16, even 16..32, odd 0..16, odd 16..32.
type Values = [__m256; 4];

/// Elements of the format `F`.
pub(crate) struct Fp8<F>(PhantomData<F>);

/// The sum or the product of two elements.
struct Half<F>(PhantomData<F>);

/// The arithmetic of `L` on 16 elements, in the lower half of its vectors.
struct Narrow<L>(PhantomData<L>);

/// 32 elements between memory and the form in which they are accumulated.
trait Codec {
    type V: Copy;
    /// # Safety
    /// The level's features are there.
    unsafe fn decode(raw: __m256i) -> Self::V;
    /// # Safety
    /// The level's features are there.
    unsafe fn encode(v: Self::V) -> __m256i;
}

/// The 32 binary16 in the lanes of `even` and `odd`.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn to_f32(even: __m256i, odd: __m256i) -> Values {
    // SAFETY: the caller's promise.
    unsafe {
        [
            _mm256_cvtph_ps(_mm256_castsi256_si128(even)),
            _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(even)),
            _mm256_cvtph_ps(_mm256_castsi256_si128(odd)),
            _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(odd)),
        ]
    }
}

/// The even and the odd elements as binary16; of e4m3 1/256 of them, NaN a number.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn to_binary16<F: Format>(raw: __m256i) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let even = _mm256_slli_epi16::<8>(raw);
        if F::IS_BINARY16 {
            return [even, _mm256_and_si256(raw, _mm256_set1_epi16(0xff00_u16 as i16))];
        }
        // The arithmetic shift doubles the sign into the exponent's first bit, which the mask clears.
        let mask = _mm256_set1_epi16(0xbf80_u16 as i16);
        [_mm256_and_si256(_mm256_srai_epi16::<1>(even), mask), _mm256_and_si256(_mm256_srai_epi16::<1>(raw), mask)]
    }
}

impl<F: Format> Fp8<F> {
    /// The code of each element in the lowest byte of its lane.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn code(x: __m256) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            // Of NaN, the second.
            let magnitude = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fff_ffff)));
            let clamped = _mm256_min_ps(magnitude, _mm256_set1_ps(F::MAX));
            let power = _mm256_and_ps(clamped, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f80_0000)));
            let power = _mm256_max_ps(power, _mm256_set1_ps(F::MIN_NORMAL));
            let magic = _mm256_add_epi32(_mm256_castps_si256(power), _mm256_set1_epi32(F::MAGIC as i32));
            let sum = _mm256_castps_si256(_mm256_add_ps(clamped, _mm256_castsi256_ps(magic)));
            let exponent = if F::MANTISSA == 3 { _mm256_srli_epi32::<20>(sum) } else { _mm256_srli_epi32::<21>(sum) };
            let code = _mm256_and_si256(_mm256_add_epi32(sum, exponent), _mm256_set1_epi32(0x7f));
            let sign = _mm256_srli_epi32::<24>(_mm256_castps_si256(x));
            _mm256_or_si256(code, _mm256_and_si256(sign, _mm256_set1_epi32(0x80)))
        }
    }

    /// The lowest bytes of the lanes, all others zero, in the order of the elements.
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn in_order(v: [__m256i; 4]) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_or_si256(v[0], _mm256_slli_epi32::<8>(v[2]));
            let high = _mm256_or_si256(v[1], _mm256_slli_epi32::<8>(v[3]));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high))
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
#[target_feature(enable = "avx2,f16c")]
unsafe fn with_nan<F: Format>(a: __m256, b: __m256, c: __m256, d: __m256, codes: __m256i) -> __m256i {
    let low = |x| _mm256_srli_epi32::<24>(_mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x)));
    // SAFETY: the caller's promise.
    let nan = unsafe { Fp8::<F>::in_order([low(a), low(b), low(c), low(d)]) };
    _mm256_blendv_epi8(codes, _mm256_set1_epi8(0x7f), nan)
}

impl<F: Format> Codec for Fp8<F> {
    type V = Values;

    #[inline(always)]
    unsafe fn decode(raw: __m256i) -> Values {
        // SAFETY: the caller's promise.
        unsafe {
            let [even, odd] = to_binary16::<F>(raw);
            if F::IS_BINARY16 {
                return to_f32(even, odd);
            }
            // All ones in the bytes of NaN, which the conversion does not know.
            let magnitude = _mm256_or_si256(raw, _mm256_set1_epi8(-128));
            let nan = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(-1));
            let odd_nan = _mm256_and_si256(nan, _mm256_set1_epi16(0xff00_u16 as i16));
            let v = to_f32(_mm256_or_si256(even, _mm256_slli_epi16::<8>(nan)), _mm256_or_si256(odd, odd_nan));
            let scale = _mm256_set1_ps(256.0);
            [
                _mm256_mul_ps(v[0], scale),
                _mm256_mul_ps(v[1], scale),
                _mm256_mul_ps(v[2], scale),
                _mm256_mul_ps(v[3], scale),
            ]
        }
    }

    #[inline(always)]
    unsafe fn encode(v: Values) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let codes = Self::in_order([Self::code(v[0]), Self::code(v[1]), Self::code(v[2]), Self::code(v[3])]);
            let even_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(v[0], v[1]);
            let odd_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(v[2], v[3]);
            match _mm256_movemask_ps(_mm256_or_ps(even_nan, odd_nan)) {
                0 => codes,
                _ => with_nan::<F>(v[0], v[1], v[2], v[3], codes),
            }
        }
    }
}

/// 32 elements while two are summed or multiplied.
#[derive(Clone, Copy)]
struct Pair {
    /// Of e4m3 1/256 of the elements, NaN a number.
    values: Values,
    /// Of e4m3: the greatest code of each element so far with the sign bit set, so that all ones means NaN.
    codes: __m256i,
}

/// Per 16-bit lane the lower byte of `even` and the upper byte of `odd`.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn bytes_of(even: __m256i, odd: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_blendv_epi8(odd, even, _mm256_set1_epi16(0xff)) }
}

/// Rounded to binary16.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn rounded(low: __m256, high: __m256) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(low);
        _mm256_set_m128i(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(high), low)
    }
}

impl<F: Format> Codec for Half<F> {
    type V = Pair;

    #[inline(always)]
    unsafe fn decode(raw: __m256i) -> Pair {
        // SAFETY: the caller's promise.
        unsafe {
            let [even, odd] = to_binary16::<F>(raw);
            Pair { values: to_f32(even, odd), codes: _mm256_or_si256(raw, _mm256_set1_epi8(-128)) }
        }
    }

    #[inline(always)]
    unsafe fn encode(v: Pair) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) = (rounded(v.values[0], v.values[1]), rounded(v.values[2], v.values[3]));
            // Per byte the magnitude that is kept, the bits that are cut off, and in the first bit the sign.
            let sign = bytes_of(_mm256_srli_epi16::<8>(even), odd);
            let (kept, cut) = if F::IS_BINARY16 {
                let kept = _mm256_and_si256(sign, _mm256_set1_epi8(0x7f));
                (kept, bytes_of(even, _mm256_slli_epi16::<8>(odd)))
            } else {
                (
                    bytes_of(_mm256_srli_epi16::<7>(even), _mm256_slli_epi16::<1>(odd)),
                    bytes_of(_mm256_slli_epi16::<1>(even), _mm256_slli_epi16::<9>(odd)),
                )
            };
            // Up if what is cut off is more than a half, or a half and the last bit kept is odd: with that bit in the
            // lowest place of what is cut off, both are one comparison, which is one of signed bytes.
            let cut = _mm256_or_si256(cut, _mm256_and_si256(kept, _mm256_set1_epi8(1)));
            let up = _mm256_cmpgt_epi8(_mm256_xor_si256(cut, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
            let magnitude = _mm256_min_epu8(_mm256_sub_epi8(kept, up), _mm256_set1_epi8(F::MAX_CODE));
            let codes = _mm256_or_si256(magnitude, _mm256_and_si256(sign, _mm256_set1_epi8(-128)));
            let nan = if F::IS_BINARY16 {
                // The conversion has made it quiet.
                _mm256_cmpgt_epi8(kept, _mm256_set1_epi8(0x7d))
            } else {
                _mm256_cmpeq_epi8(v.codes, _mm256_set1_epi8(-1))
            };
            _mm256_blendv_epi8(codes, _mm256_set1_epi8(0x7f), nan)
        }
    }
}

/// How the 32 elements of a codec come from memory and go there.
macro_rules! memory {
    () => {
        const N: usize = 32;
        const SIZE: usize = 1;
        const IS_FLOAT: bool = true;
        const UNROLL: usize = 1;
        const OVERLAP: bool = true;

        #[inline(always)]
        unsafe fn load(p: *const u8) -> Self::V {
            // SAFETY: the caller's promise.
            unsafe { Self::decode(_mm256_loadu_si256(p.cast())) }
        }
        #[inline(always)]
        unsafe fn load_part(p: *const u8, n: usize) -> Self::V {
            let mut raw = [0; 32];
            // SAFETY: the caller's promise; `n` is less than 32.
            unsafe {
                std::ptr::copy_nonoverlapping(p, raw.as_mut_ptr(), n);
                Self::load(raw.as_ptr())
            }
        }
        #[inline(always)]
        unsafe fn store(p: *mut u8, v: Self::V) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_si256(p.cast(), Self::encode(v)) }
        }
        #[inline(always)]
        unsafe fn store_part(p: *mut u8, v: Self::V, n: usize) {
            let mut raw = [0; 32];
            // SAFETY: the caller's promise; `n` is less than 32.
            unsafe {
                Self::store(raw.as_mut_ptr(), v);
                std::ptr::copy_nonoverlapping(raw.as_ptr(), p, n);
            }
        }
    };
}

/// An operation on all values.
macro_rules! operation {
    ($name:ident, $f:expr) => {
        #[inline(always)]
        unsafe fn $name(a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: the caller promises the level's features.
            unsafe { [$f(a[0], b[0]), $f(a[1], b[1]), $f(a[2], b[2]), $f(a[3], b[3])] }
        }
    };
}

impl<F: Format> Lanes for Fp8<F> {
    type V = Values;
    const SMALL: usize = small::BYTES;
    memory!();

    #[inline(always)]
    unsafe fn short_way<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        far: bool,
    ) -> Option<usize> {
        if srcs.len() != 2 || !matches!(OP, lanes::SUM | lanes::PROD) {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { lanes::blocks_unrolled::<Half<F>, OP>(dsts, srcs, range.clone(), far) })
    }

    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { past::sum_of_two::<Half<F>>(dsts, srcs, range) }
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
            if PAIR && matches!(OP, lanes::SUM | lanes::PROD) {
                small::reduce::<Narrow<Half<F>>, OP, PAIR>(dsts, srcs, range, None);
            } else {
                small::reduce_after_steps::<Self, Narrow<Self>, OP, PAIR>(dsts, srcs, range, factor);
            }
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f64) -> Values {
        // A NaN whose payload fits every narrower type.
        let x = if x.is_nan() { f32::NAN } else { x as f32 };
        // SAFETY: the caller promises the level's features.
        [unsafe { _mm256_set1_ps(x) }; 4]
    }
    operation!(sum, _mm256_add_ps);
    operation!(prod, _mm256_mul_ps);
    operation!(max, max_ps);
    operation!(min, min_ps);
}

/// As above, where NaN of e4m3 is told from the codes.
macro_rules! pair_operation {
    ($name:ident, |$a:ident, $b:ident| $e:expr) => {
        #[inline(always)]
        unsafe fn $name(a: Pair, b: Pair) -> Pair {
            // SAFETY: the caller promises the level's features.
            unsafe {
                let mut values = a.values;
                for (value, $b) in values.iter_mut().zip(b.values) {
                    let $a = *value;
                    *value = $e;
                }
                Pair { values, codes: _mm256_max_epu8(a.codes, b.codes) }
            }
        }
    };
}

impl<F: Format> Lanes for Half<F> {
    type V = Pair;
    memory!();

    /// Never used, as maximum and minimum: other loops serve them.
    #[inline(always)]
    unsafe fn splat(x: f64) -> Pair {
        // SAFETY: the caller promises the level's features.
        unsafe { Pair { values: [_mm256_set1_ps(x as f32); 4], codes: _mm256_setzero_si256() } }
    }
    pair_operation!(sum, |a, b| _mm256_add_ps(a, b));
    pair_operation!(prod, |a, b| {
        let product = _mm256_mul_ps(a, b);
        // 1/256 of the product, not of 1/256 of it. Both factors have few bits: nothing is rounded here.
        if F::IS_BINARY16 { product } else { _mm256_mul_ps(product, _mm256_set1_ps(256.0)) }
    });
    pair_operation!(max, |a, b| _mm256_max_ps(a, b));
    pair_operation!(min, |a, b| _mm256_min_ps(a, b));
}

impl<V: Copy, L: Lanes<V = V> + Codec<V = V>> Lanes for Narrow<L> {
    type V = V;
    const N: usize = 16;
    const SIZE: usize = 1;
    const IS_FLOAT: bool = true;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { L::decode(_mm256_zextsi128_si256(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: V) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(L::encode(v))) }
    }
    forward! {
        load_part(p: *const u8, n: usize) -> V;
        store_part(p: *mut u8, v: V, n: usize);
        splat(x: f64) -> V;
        sum(a: V, b: V) -> V;
        prod(a: V, b: V) -> V;
        max(a: V, b: V) -> V;
        min(a: V, b: V) -> V;
    }
}
