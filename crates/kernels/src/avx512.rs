//! AVX-512 (F, BW, DQ, VL: every machine since Skylake-SP and Zen 4). What does not fill a vector goes through masked
//! loads and stores, so that a message of a few bytes is one step.

use std::arch::x86_64::*;
use std::ops::Range;

use oxccl_types::DataType;

use crate::avx512_fp8::Fp8;
use crate::baseline::{self, E4m3, E5m2, Element};
use crate::lanes::{FAR_NATIVE, Lanes, PROD, SUM, Table, level_table};
use crate::{avx2, avx512_fp16 as fp16, past, small, wide};

/// Whether this machine has every feature that the functions here enable.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("f16c")
}

/// The lowest `bytes < 64` bytes.
#[inline(always)]
pub(crate) fn mask64(bytes: usize) -> __mmask64 {
    (1 << bytes) - 1
}

/// [`Lanes::narrower`] of a type of floats, of which calls of `long` bytes per source and more are long.
#[inline(always)]
fn narrower<L: Lanes>(count: usize, srcs: usize, long: usize, dtype: DataType) -> Option<(&'static Table, DataType)> {
    wide::is_dear(count * L::SIZE, srcs, long).then_some((&avx2::TABLE, dtype))
}

/// The loops that take a part of a call of `whole` elements of each of `srcs` sources.
pub(crate) fn table_for(dtype: DataType, srcs: usize, whole: usize) -> &'static Table {
    let narrower = match dtype {
        DataType::Float32 => F32::narrower(whole, srcs),
        DataType::Float64 => F64::narrower(whole, srcs),
        DataType::Float16 => F16::narrower(whole, srcs),
        DataType::Bfloat16 => Bf16::narrower(whole, srcs),
        _ => None,
    };
    narrower.map_or(&TABLE, |(table, _)| table)
}

/// Bytes per source from which on a sum waits for the caches, of types that are accumulated as they lie in memory.
const LONG_NATIVE: usize = 16 << 10;
/// The same of 16-bit floats, which are converted: the arithmetic takes longer than the caches, and wide vectors a third less of it.
const LONG_CONVERTED: usize = 512 << 10;

macro_rules! operation {
    ($name:ident, $v:ty, $a:ident, $b:ident, $e:expr) => {
        #[inline(always)]
        unsafe fn $name($a: $v, $b: $v) -> $v {
            // SAFETY: the caller promises the level's features.
            #[allow(unused_unsafe)]
            unsafe {
                $e
            }
        }
    };
}

/// A type that is accumulated as it lies in memory, 64 bytes in a step.
macro_rules! native {
    ($name:ident, $scalar:ty, $size:literal, splat: |$x:ident| $splat:expr,
     |$a:ident, $b:ident| sum: $sum:expr, prod: $prod:expr, max: $max:expr, min: $min:expr) => {
        pub(crate) enum $name {}

        impl Lanes for $name {
            type V = __m512i;
            const N: usize = 64 / $size;
            const SIZE: usize = $size;
            const IS_FLOAT: bool = <$scalar as Element>::IS_FLOAT;
            const SMALL: usize = small::BYTES / $size;
            const FAR: usize = FAR_NATIVE;
            // Memory is what such a loop waits for.
            const UNROLL_FAR: bool = false;

            small::way!(reduce_or_mask, <$scalar as Element>::Small);

            #[inline(always)]
            fn narrower(count: usize, srcs: usize) -> Option<(&'static Table, DataType)> {
                const DTYPE: DataType = if $size == 4 { DataType::Float32 } else { DataType::Float64 };
                if Self::IS_FLOAT { narrower::<Self>(count, srcs, LONG_NATIVE, DTYPE) } else { None }
            }

            #[inline(always)]
            unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
                // SAFETY: the caller's promise.
                unsafe { past::sum_of_two::<Self>(dsts, srcs, range) }
            }

            #[inline(always)]
            unsafe fn load(p: *const u8) -> __m512i {
                // SAFETY: the caller's promise.
                unsafe { _mm512_loadu_si512(p.cast()) }
            }
            #[inline(always)]
            unsafe fn load_part(p: *const u8, n: usize) -> __m512i {
                // SAFETY: the caller's promise; lanes outside the mask are not read.
                unsafe { _mm512_maskz_loadu_epi8(mask64(n * $size), p.cast()) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut u8, v: __m512i) {
                // SAFETY: the caller's promise.
                unsafe { _mm512_storeu_si512(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn store_part(p: *mut u8, v: __m512i, n: usize) {
                // SAFETY: the caller's promise; lanes outside the mask are not written.
                unsafe { _mm512_mask_storeu_epi8(p.cast(), mask64(n * $size), v) }
            }
            #[inline(always)]
            unsafe fn splat($x: f64) -> __m512i {
                // SAFETY: the caller promises the level's features.
                #[allow(unused_unsafe)]
                unsafe {
                    $splat
                }
            }
            operation!(sum, __m512i, $a, $b, $sum);
            operation!(prod, __m512i, $a, $b, $prod);
            operation!(max, __m512i, $a, $b, $max);
            operation!(min, __m512i, $a, $b, $min);
        }
    };
}

/// [`Lanes`] of 64 elements of a byte as they lie in memory, of which sums of two are made by the type's `add`.
macro_rules! sums_of_lines {
    ($name:ident) => {
        impl<F: crate::fp8_format::Format> crate::lanes::Lanes for $name<F> {
            type V = __m512i;
            const N: usize = 64;
            const SIZE: usize = 1;
            const IS_FLOAT: bool = true;
            const UNROLL: usize = 1;

            #[inline(always)]
            unsafe fn load(p: *const u8) -> __m512i {
                // SAFETY: the caller's promise.
                unsafe { _mm512_loadu_si512(p.cast()) }
            }
            #[inline(always)]
            unsafe fn load_part(p: *const u8, n: usize) -> __m512i {
                // SAFETY: the caller's promise; lanes outside the mask are not read.
                unsafe { _mm512_maskz_loadu_epi8(crate::avx512::mask64(n), p.cast()) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut u8, v: __m512i) {
                // SAFETY: the caller's promise.
                unsafe { _mm512_storeu_si512(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn store_part(p: *mut u8, v: __m512i, n: usize) {
                // SAFETY: the caller's promise; lanes outside the mask are not written.
                unsafe { _mm512_mask_storeu_epi8(p.cast(), crate::avx512::mask64(n), v) }
            }
            #[inline(always)]
            unsafe fn sum(a: __m512i, b: __m512i) -> __m512i {
                // SAFETY: the caller's promise, who calls this through the functions of the type's module only.
                unsafe { Self::add(a, b) }
            }
            /// Never used, as what follows: other loops serve them.
            #[inline(always)]
            unsafe fn splat(_: f64) -> __m512i {
                // SAFETY: the caller promises the level's features.
                unsafe { _mm512_setzero_si512() }
            }
            #[inline(always)]
            unsafe fn prod(a: __m512i, _: __m512i) -> __m512i {
                a
            }
            #[inline(always)]
            unsafe fn max(a: __m512i, _: __m512i) -> __m512i {
                a
            }
            #[inline(always)]
            unsafe fn min(a: __m512i, _: __m512i) -> __m512i {
                a
            }
        }
    };
}
pub(crate) use sums_of_lines;

/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn mul_epi8(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let even = _mm512_mullo_epi16(a, b);
        let odd = _mm512_mullo_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
        _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, _mm512_slli_epi16(odd, 8))
    }
}

/// The greater, the number if one is NaN, the second if equal.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn max_ps(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` stays.
    unsafe { _mm512_mask_max_ps(a, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

/// The less, the number if one is NaN, the second if equal.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn min_ps(a: __m512, b: __m512) -> __m512 {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` stays.
    unsafe { _mm512_mask_min_ps(a, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

macro_rules! in_ps {
    ($f:ident, $a:ident, $b:ident) => {
        _mm512_castps_si512($f(_mm512_castsi512_ps($a), _mm512_castsi512_ps($b)))
    };
}

macro_rules! in_pd {
    ($f:ident, $a:ident, $b:ident) => {
        _mm512_castpd_si512($f(_mm512_castsi512_pd($a), _mm512_castsi512_pd($b)))
    };
}

/// As [`max_ps`].
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn max_pd(a: __m512d, b: __m512d) -> __m512d {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` stays.
    unsafe { _mm512_mask_max_pd(a, _mm512_cmp_pd_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

/// As [`min_ps`].
///
/// # Safety
/// The level's features are there.
#[inline(always)]
unsafe fn min_pd(a: __m512d, b: __m512d) -> __m512d {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` stays.
    unsafe { _mm512_mask_min_pd(a, _mm512_cmp_pd_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

native!(I8, i8, 1, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi8(a, b), prod: mul_epi8(a, b),
    max: _mm512_max_epi8(a, b), min: _mm512_min_epi8(a, b));
native!(U8, u8, 1, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi8(a, b), prod: mul_epi8(a, b),
    max: _mm512_max_epu8(a, b), min: _mm512_min_epu8(a, b));
native!(I32, i32, 4, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi32(a, b),
    prod: _mm512_mullo_epi32(a, b), max: _mm512_max_epi32(a, b), min: _mm512_min_epi32(a, b));
native!(U32, u32, 4, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi32(a, b),
    prod: _mm512_mullo_epi32(a, b), max: _mm512_max_epu32(a, b), min: _mm512_min_epu32(a, b));
native!(I64, i64, 8, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi64(a, b),
    prod: _mm512_mullo_epi64(a, b), max: _mm512_max_epi64(a, b), min: _mm512_min_epi64(a, b));
native!(U64, u64, 8, splat: |_x| _mm512_setzero_si512(), |a, b| sum: _mm512_add_epi64(a, b),
    prod: _mm512_mullo_epi64(a, b), max: _mm512_max_epu64(a, b), min: _mm512_min_epu64(a, b));
native!(F32, f32, 4, splat: |x| _mm512_castps_si512(_mm512_set1_ps(x as f32)),
    |a, b| sum: in_ps!(_mm512_add_ps, a, b), prod: in_ps!(_mm512_mul_ps, a, b),
    max: in_ps!(max_ps, a, b), min: in_ps!(min_ps, a, b));
native!(F64, f64, 8, splat: |x| _mm512_castpd_si512(_mm512_set1_pd(x)),
    |a, b| sum: in_pd!(_mm512_add_pd, a, b), prod: in_pd!(_mm512_mul_pd, a, b),
    max: in_pd!(max_pd, a, b), min: in_pd!(min_pd, a, b));

/// The operations of a type that is accumulated in f32, on one, two or four vectors of them.
macro_rules! f32_operations {
    ($($i:literal)*) => {
        #[inline(always)]
        unsafe fn splat(x: f64) -> Self::V {
            // A NaN whose payload fits every narrower type.
            let x = if x.is_nan() { f32::NAN } else { x as f32 };
            // SAFETY: the caller promises the level's features.
            [$({ let _ = $i; unsafe { _mm512_set1_ps(x) } }),*]
        }
        crate::avx512::f32_operations!(@ sum, _mm512_add_ps, $($i)*);
        crate::avx512::f32_operations!(@ prod, _mm512_mul_ps, $($i)*);
        crate::avx512::f32_operations!(@ max, max_ps, $($i)*);
        crate::avx512::f32_operations!(@ min, min_ps, $($i)*);
    };
    (@ $name:ident, $f:ident, $($i:literal)*) => {
        #[inline(always)]
        unsafe fn $name(a: Self::V, b: Self::V) -> Self::V {
            // SAFETY: the caller promises the level's features.
            unsafe { [$($f(a[$i], b[$i])),*] }
        }
    };
}

pub(crate) use f32_operations;

/// Binary16, through the conversion instructions; sums and products of two without them where the processor can.
pub(crate) enum F16 {}

impl Lanes for F16 {
    type V = [__m512; 1];
    const N: usize = 16;
    const SIZE: usize = 2;
    const IS_FLOAT: bool = true;
    const SMALL: usize = small::BYTES / 2;

    small::way!(reduce_or_mask, avx2::F16);

    #[inline(always)]
    fn narrower(count: usize, srcs: usize) -> Option<(&'static Table, DataType)> {
        narrower::<Self>(count, srcs, LONG_CONVERTED, DataType::Float16)
    }

    #[inline(always)]
    fn is_direct<const OP: u8>(srcs: usize) -> bool {
        (OP == SUM || OP == PROD) && srcs == 2 && fp16::available()
    }

    #[inline(always)]
    unsafe fn short_way<const OP: u8>(
        dsts: &[*mut u8],
        srcs: &[*const u8],
        range: &Range<usize>,
        _: bool,
    ) -> Option<usize> {
        // SAFETY: the caller's promise.
        Self::is_direct::<OP>(srcs.len()).then(|| unsafe { fp16::combine_two::<OP>(dsts, srcs, range.clone()) })
    }

    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            if fp16::available() {
                fp16::sum_of_two_past(dsts, srcs, range)
            } else {
                past::sum_of_two::<Self>(dsts, srcs, range)
            }
        }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { [_mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))] }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Self::V {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { [_mm512_cvtph_ps(_mm256_maskz_loadu_epi16((1 << n) - 1, p.cast()))] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0])) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Self::V, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe {
            let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]);
            _mm256_mask_storeu_epi16(p.cast(), (1 << n) - 1, half);
        }
    }
    f32_operations!(0);
}

/// bfloat16: the even elements of a vector in one vector of f32, the odd ones in another, which takes no shuffles.
pub(crate) enum Bf16 {}

/// The odd 16-bit elements.
const ODD: __mmask32 = 0xaaaa_aaaa;

impl Bf16 {
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn decode(raw: __m512i) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let odd = _mm512_and_si512(raw, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_castsi512_ps(_mm512_slli_epi32(raw, 16)), _mm512_castsi512_ps(odd)]
        }
    }

    /// Round to nearest even. NaN need no care: what is cut off of theirs is zero, since that is so of every element, of
    /// the NaN that instructions make and of the factor's (see `splat`).
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn encode(v: [__m512; 2]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) = (_mm512_castps_si512(v[0]), _mm512_castps_si512(v[1]));
            let high = _mm512_mask_blend_epi16(ODD, _mm512_srli_epi32(even, 16), odd);
            let low = _mm512_mask_blend_epi16(ODD, even, _mm512_slli_epi32(odd, 16));
            // Up if what is cut off is more than a half, or a half and the last bit kept is odd: with that bit in the
            // lowest place of what is cut off, both are one comparison. 0xf8 is `low | (high & 1)`.
            let cut = _mm512_ternarylogic_epi32::<0xf8>(low, high, _mm512_set1_epi16(1));
            let up = _mm512_cmpgt_epu16_mask(cut, _mm512_set1_epi16(0x8000_u16 as i16));
            _mm512_mask_add_epi16(high, up, high, _mm512_set1_epi16(1))
        }
    }
}

impl Lanes for Bf16 {
    type V = [__m512; 2];
    const N: usize = 32;
    const SIZE: usize = 2;
    const IS_FLOAT: bool = true;
    // Two pieces: rounding by selects, as they do, is more work than with masks.
    const SMALL: usize = 16;

    small::way!(reduce_or_mask, <baseline::Bf16 as Element>::Small);

    #[inline(always)]
    fn narrower(count: usize, srcs: usize) -> Option<(&'static Table, DataType)> {
        narrower::<Self>(count, srcs, LONG_CONVERTED, DataType::Bfloat16)
    }

    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { past::sum_of_two::<Self>(dsts, srcs, range) }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { Self::decode(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Self::V {
        // SAFETY: the caller's promise; lanes outside the mask are not read.
        unsafe { Self::decode(_mm512_maskz_loadu_epi8(mask64(2 * n), p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(p.cast(), Self::encode(v)) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Self::V, n: usize) {
        // SAFETY: the caller's promise; lanes outside the mask are not written.
        unsafe { _mm512_mask_storeu_epi8(p.cast(), mask64(2 * n), Self::encode(v)) }
    }
    f32_operations!(0 1);
}

level_table!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    [I8, U8, I32, U32, I64, U64, F16, F32, F64, Bf16, Fp8<E4m3>, Fp8<E5m2>]
);
