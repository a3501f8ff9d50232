//! AVX2 with F16C: every x86-64 machine since 2013. The compiler vectorises the baseline's array loops for it well where
//! elements are accumulated as they lie in memory; what it makes scalars of is written out.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::avx2_fp8::Fp8;
use crate::baseline::{self, Array, E4m3, E5m2, Element};
use crate::lanes::{FAR_NATIVE, Lanes, level_table};
use crate::{past, small};

/// Whether this machine has every feature that the functions here enable.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// Binary16, through the conversion instructions.
pub(crate) enum F16 {}

/// The greater, the number if one is NaN, the second if equal.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn max_ps(a: __m256, b: __m256) -> __m256 {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` is taken.
    unsafe { _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
}

/// The less, the number if one is NaN, the second if equal.
///
/// # Safety
/// The level's features are there.
#[inline(always)]
pub(crate) unsafe fn min_ps(a: __m256, b: __m256) -> __m256 {
    // SAFETY: the caller's promise. Where `b` is NaN, `a` is taken.
    unsafe { _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
}

impl Lanes for F16 {
    type V = __m256;
    const N: usize = 8;
    const SIZE: usize = 2;
    const IS_FLOAT: bool = true;
    const SMALL: usize = small::BYTES / 2;

    small::way!(reduce_after_steps, F16);

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> __m256 {
        let mut raw = [0u16; 8];
        for (i, r) in raw.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise; `i < n`.
            *r = unsafe { p.cast::<u16>().add(i).read_unaligned() };
        }
        // SAFETY: an array of eight elements.
        unsafe { Self::load(raw.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: __m256, n: usize) {
        let mut raw = [0u16; 8];
        // SAFETY: an array of eight elements.
        unsafe { Self::store(raw.as_mut_ptr().cast(), v) };
        for (i, r) in raw.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise; `i < n`.
            unsafe { p.cast::<u16>().add(i).write_unaligned(r) };
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f64) -> __m256 {
        // SAFETY: the caller promises the level's features.
        unsafe { _mm256_set1_ps(x as f32) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller promises the level's features.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn prod(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller promises the level's features.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller promises the level's features.
        unsafe { max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller promises the level's features.
        unsafe { min_ps(a, b) }
    }
}

/// bfloat16: the even elements of a vector in one vector of f32, the odd ones in another, which takes no shuffles.
pub(crate) enum Bf16 {}

impl Bf16 {
    /// Round to nearest even, in the upper half of each lane. NaN need no care: what is cut off of theirs is zero, since that
    /// is so of every element, of the NaN that instructions make and of the factor's (see `splat`).
    ///
    /// # Safety
    /// The level's features are there.
    #[inline(always)]
    unsafe fn round(x: __m256) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let x = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(x), _mm256_set1_epi32(1));
            _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd)
        }
    }
}

impl Lanes for Bf16 {
    type V = [__m256; 2];
    const N: usize = 16;
    const SIZE: usize = 2;
    const IS_FLOAT: bool = true;
    const UNROLL: usize = 2;
    const SMALL: usize = small::BYTES / 2;

    small::way!(reduce_after_steps, <baseline::Bf16 as Element>::Small);

    #[inline(always)]
    unsafe fn past_caches(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { past::sum_of_two::<Self>(dsts, srcs, range) }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe {
            let raw = _mm256_loadu_si256(p.cast());
            let odd = _mm256_and_si256(raw, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(raw)), _mm256_castsi256_ps(odd)]
        }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Self::V {
        let mut raw = [0u16; 16];
        // SAFETY: the caller's promise; `n` is less than 16.
        unsafe {
            std::ptr::copy_nonoverlapping(p, raw.as_mut_ptr().cast(), 2 * n);
            Self::load(raw.as_ptr().cast())
        }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe {
            let even = _mm256_srli_epi32::<16>(Self::round(v[0]));
            _mm256_storeu_si256(p.cast(), _mm256_blend_epi16::<0xaa>(even, Self::round(v[1])));
        }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Self::V, n: usize) {
        let mut raw = [0u16; 16];
        // SAFETY: the caller's promise; `n` is less than 16.
        unsafe {
            Self::store(raw.as_mut_ptr().cast(), v);
            std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), p, 2 * n);
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f64) -> Self::V {
        // A NaN whose payload fits every narrower type.
        let x = if x.is_nan() { f32::NAN } else { x as f32 };
        // SAFETY: the caller promises the level's features.
        [unsafe { _mm256_set1_ps(x) }; 2]
    }
    #[inline(always)]
    unsafe fn sum(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the caller promises the level's features.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn prod(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the caller promises the level's features.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the caller promises the level's features.
        unsafe { [max_ps(a[0], b[0]), max_ps(a[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the caller promises the level's features.
        unsafe { [min_ps(a[0], b[0]), min_ps(a[1], b[1])] }
    }
}

/// Bytes, of which the compiler would make scalars where it sees an array of them.
macro_rules! bytes {
    ($name:ident, $scalar:ty, $max:ident, $min:ident) => {
        pub(crate) enum $name {}

        impl Lanes for $name {
            type V = __m256i;
            const N: usize = 32;
            const SIZE: usize = 1;
            const IS_FLOAT: bool = false;
            const SMALL: usize = small::BYTES;
            const FAR: usize = FAR_NATIVE;

            small::way!(reduce_after_steps, <$scalar as Element>::Small);
            #[inline(always)]
            unsafe fn load(p: *const u8) -> __m256i {
                // SAFETY: the caller's promise.
                unsafe { _mm256_loadu_si256(p.cast()) }
            }
            #[inline(always)]
            unsafe fn load_part(p: *const u8, n: usize) -> __m256i {
                let mut raw = [0u8; 32];
                // SAFETY: the caller's promise; `n` is less than 32.
                unsafe {
                    std::ptr::copy_nonoverlapping(p, raw.as_mut_ptr(), n);
                    Self::load(raw.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn store(p: *mut u8, v: __m256i) {
                // SAFETY: the caller's promise.
                unsafe { _mm256_storeu_si256(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn store_part(p: *mut u8, v: __m256i, n: usize) {
                let mut raw = [0u8; 32];
                // SAFETY: the caller's promise; `n` is less than 32.
                unsafe {
                    Self::store(raw.as_mut_ptr(), v);
                    std::ptr::copy_nonoverlapping(raw.as_ptr(), p, n);
                }
            }
            /// Never used: integers have no factor.
            #[inline(always)]
            unsafe fn splat(_: f64) -> __m256i {
                // SAFETY: the caller promises the level's features.
                unsafe { _mm256_set1_epi8(1) }
            }
            #[inline(always)]
            unsafe fn sum(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller promises the level's features.
                unsafe { _mm256_add_epi8(a, b) }
            }
            #[inline(always)]
            unsafe fn prod(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller promises the level's features.
                unsafe {
                    let even = _mm256_mullo_epi16(a, b);
                    let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
                    let even = _mm256_and_si256(even, _mm256_set1_epi16(0xff));
                    _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd))
                }
            }
            #[inline(always)]
            unsafe fn max(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller promises the level's features.
                unsafe { $max(a, b) }
            }
            #[inline(always)]
            unsafe fn min(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller promises the level's features.
                unsafe { $min(a, b) }
            }
        }
    };
}
bytes!(I8, i8, _mm256_max_epi8, _mm256_min_epi8);
bytes!(U8, u8, _mm256_max_epu8, _mm256_min_epu8);

level_table!(
    #[target_feature(enable = "avx2,f16c")]
    [
        I8,
        U8,
        Array<i32, 8>,
        Array<u32, 8>,
        Array<i64, 4>,
        Array<u64, 4>,
        F16,
        Array<f32, 8>,
        Array<f64, 4>,
        Bf16,
        Fp8<E4m3>,
        Fp8<E5m2>
    ]
);
