//! Sums of two 8-bit floats that never leave their bytes, at the AVX-512 level with byte permutations (VBMI) and GFNI.
//!
//! 64 elements lie in one vector, and a sum is made as one makes it by hand: the mantissa of the lesser magnitude is moved
//! right by the difference of the exponents, the mantissas are added or subtracted with three bits more than the type keeps
//! (the last of them says whether anything but zeros was moved out), and the result is rounded to nearest even. Mantissas
//! with three bits more fit a byte, so moving right, and rounding with normalisation, are tables of at most 256 entries in
//! registers. Half the instructions of the way through f32.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use crate::avx512::sums_of_lines;
use crate::avx512_fp8_half::Half;
use crate::fp8_format::Format;
use crate::lanes;
use crate::past;

/// Whether this machine has what [`sum_of_two`] needs beyond its level.
#[inline]
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("gfni")
}

/// The whole blocks of the sum of two sources; the first element that is not done.
///
/// # Safety
/// As [`lanes::reduce`]; there are two sources, and the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni,avx2,f16c")]
pub(crate) unsafe fn sum_of_two<F: Format>(
    dsts: &[*mut u8],
    srcs: &[*const u8],
    range: Range<usize>,
    far: bool,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { lanes::blocks_unrolled::<Bytes<F>, { lanes::SUM }>(dsts, srcs, range, far) }
}

/// The same past the caches.
///
/// # Safety
/// As [`lanes::Lanes::past_caches`]; the machine is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni,avx2,f16c")]
pub(crate) unsafe fn sum_of_two_past<F: Format>(dsts: &[*mut u8], srcs: &[*const u8], range: Range<usize>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { past::sum_of_two::<Bytes<F>>(dsts, srcs, range) }
}

/// The tables of a type with `MANTISSA` explicit bits. Elements are taken as keys: the magnitude, and below it one bit that is
/// set where the sign is not, so that of +x and -x the first is greater.
struct Tables<F>(PhantomData<F>);

/// What the sum that is zero gets from the table of results: with whatever exponent, it leads to an entry of the last table
/// that no other result has.
const ZERO: i8 = -125;

impl<F: Format> Tables<F> {
    /// What the implicit bit of a mantissa weighs.
    const ONE: u32 = 1 << F::MANTISSA;
    /// The bits of a key's exponent; the last of them.
    const EXPONENT: u8 = 0xff << (F::MANTISSA + 1);
    const STEP: u8 = 1 << (F::MANTISSA + 1);

    /// By difference of the exponents, up to 7, and mantissa: the mantissa with three bits more, moved right by as many
    /// places; the last bit tells what was lost.
    const MOVED: [u8; 128] = {
        let mut table = [0; 128];
        let mut at = 0;
        while at < 8 << (F::MANTISSA + 1) {
            let (places, mantissa) = (at >> (F::MANTISSA + 1), (at as u32 % (2 * Self::ONE)) << 3);
            let lost = mantissa & ((1 << places) - 1) != 0;
            table[at] = (mantissa >> places | lost as u32) as u8;
            at += 1;
        }
        table
    };

    /// By mantissa with three bits more: rounded, the code over that of the exponent below. Of less than one with a smaller
    /// exponent, which may then be one that the type does not have.
    const ROUNDED: [i8; 256] = {
        let mut table = [0; 256];
        table[0] = ZERO;
        // What is less than 4 does not occur: mantissas are moved by one place at most where so much is cancelled.
        let mut x = 4_u32;
        while x < 256 {
            // Units of a 16th of the last place.
            let mut scaled = x * 16;
            let mut octaves = 0;
            while scaled < Self::ONE * 128 {
                scaled *= 2;
                octaves -= 1;
            }
            while scaled >= Self::ONE * 256 {
                // Not beyond 1 octave, in which no bit is lost.
                scaled /= 2;
                octaves += 1;
            }
            let (kept, cut) = (scaled / 128, scaled % 128);
            let up = cut > 64 || (cut == 64 && kept % 2 == 1);
            table[x as usize] = (octaves * Self::ONE as i32 + kept as i32 + up as i32) as i8;
            x += 1;
        }
        table
    };

    /// By the lowest six bits of a code below that of the least normal number: the code of the same value, which has no
    /// implicit bit. No bit is lost, since all values are multiples of the least.
    const DENORMAL: [u8; 64] = {
        let mut table = [0; 64];
        let mut octaves = 0;
        while octaves < 4 {
            let mut mantissa = 0;
            while mantissa < Self::ONE {
                let value = Self::ONE + mantissa;
                if value.is_multiple_of(2 << octaves) {
                    let code = mantissa as i32 - (octaves * Self::ONE) as i32;
                    table[(code & 63) as usize] = (value >> (octaves + 1)) as u8;
                }
                mantissa += 1;
            }
            octaves += 1;
        }
        table
    };
}

/// 64 of 128 entries, or of 64, by the lowest bits of each byte.
///
/// # Safety
/// The machine is [`available`]; `table` has 128 bytes.
#[inline(always)]
unsafe fn of_128(table: *const u8, at: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_permutex2var_epi8(_mm512_loadu_si512(table.cast()), at, _mm512_loadu_si512(table.add(64).cast())) }
}

/// 64 elements of the format `F`, as they lie in memory.
struct Bytes<F>(PhantomData<F>);

impl<F: Format> Bytes<F> {
    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn key(raw: __m512i) -> __m512i {
        // Row by row, the first byte that of the highest bit: bit n is bit n - 1 of the element, the lowest is the highest.
        const ROTATE: i64 = i64::from_le_bytes([0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01, 0x80]);
        // SAFETY: the caller's promise.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<1>(raw, _mm512_set1_epi64(ROTATE)) }
    }

    /// The exponent of a key above the least one, in place; and the rest of it with the implicit bit, if it has one.
    ///
    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn split(key: __m512i) -> (__m512i, __m512i) {
        // SAFETY: the caller's promise.
        unsafe {
            let exponent = _mm512_and_si512(key, _mm512_set1_epi8(Tables::<F>::EXPONENT as i8));
            let exponent = _mm512_subs_epu8(exponent, _mm512_set1_epi8(Tables::<F>::STEP as i8));
            (exponent, _mm512_sub_epi8(key, exponent))
        }
    }

    /// The mantissas' sum or difference, with three bits more.
    ///
    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn combine(great: __m512i, small: __m512i) -> (__m512i, __m512i) {
        // SAFETY: the caller's promise.
        unsafe {
            let (exponent, mantissa) = Self::split(great);
            let (lesser, moved) = Self::split(small);
            let places = _mm512_sub_epi8(exponent, lesser);
            let places = _mm512_min_epu8(places, _mm512_set1_epi8(7 * Tables::<F>::STEP as i8));
            // The sign's bit drops out to the right, into a bit that the table does not look at.
            let at = _mm512_or_si512(places, _mm512_srli_epi16(moved, 1));
            let moved = match F::MANTISSA {
                3 => of_128(Tables::<F>::MOVED.as_ptr(), at),
                _ => _mm512_permutexvar_epi8(at, _mm512_loadu_si512(Tables::<F>::MOVED.as_ptr().cast())),
            };
            let all = ((2 * Tables::<F>::ONE - 1) << 3) as i8;
            let mantissa = _mm512_and_si512(_mm512_slli_epi16(mantissa, 2), _mm512_set1_epi8(all));
            let differ = _mm512_test_epi8_mask(_mm512_xor_si512(great, small), _mm512_set1_epi8(1));
            let sum = _mm512_mask_sub_epi8(_mm512_add_epi8(mantissa, moved), differ, mantissa, moved);
            (exponent, sum)
        }
    }

    /// The magnitude's code.
    ///
    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn round(exponent: __m512i, sum: __m512i) -> __m512i {
        // SAFETY: the caller's promise; the tables have as many entries.
        unsafe {
            // A reference that outlives the function: not to a copy on the stack.
            let table: &'static [i8; 256] = &Tables::<F>::ROUNDED;
            let rounded = table.as_ptr().cast::<u8>();
            let mut code = of_128(rounded, sum);
            if F::MANTISSA == 3 {
                code = _mm512_mask_mov_epi8(code, _mm512_movepi8_mask(sum), of_128(rounded.add(128), sum));
            }
            // The sum of codes stops at 127, beyond the greatest.
            let code = _mm512_adds_epi8(_mm512_srli_epi16(exponent, 1), code);
            let denormal = _mm512_cmplt_epi8_mask(code, _mm512_set1_epi8(Tables::<F>::ONE as i8));
            let table = _mm512_loadu_si512(Tables::<F>::DENORMAL.as_ptr().cast());
            let code = _mm512_mask_permutexvar_epi8(code, denormal, code, table);
            _mm512_min_epu8(code, _mm512_set1_epi8(F::MAX_CODE))
        }
    }

    /// # Safety
    /// The machine is [`available`].
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, y) = (Self::key(a), Self::key(b));
            let (great, small) = (_mm512_max_epu8(x, y), _mm512_min_epu8(x, y));
            // Infinities and NaN.
            let special = _mm512_cmpgt_epu8_mask(great, _mm512_set1_epi8(F::MAX_CODE << 1 | 1));
            if special != 0 {
                return add_specials::<F>(a, b);
            }
            let (exponent, sum) = Self::combine(great, small);
            let code = Self::round(exponent, sum);
            // 0xf4 is `code | (sign's place & !sign)`.
            let sign = _mm512_slli_epi16(great, 7);
            _mm512_ternarylogic_epi32::<0xf4>(code, _mm512_set1_epi8(-128), sign)
        }
    }
}

/// The same where some are infinities or NaN: they are rare in sums, which saturate.
///
/// # Safety
/// The level's features are there.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
unsafe fn add_specials<F: Format>(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { Half::<F, false>::sum_of(a, b) }
}

sums_of_lines!(Bytes);
