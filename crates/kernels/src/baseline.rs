//! The level that every machine has: plain Rust over small arrays, which the compiler vectorises for the target's
//! baseline (SSE2 on x86-64, NEON on AArch64). It is also the reference for the rounding of the other levels.

use std::marker::PhantomData;
use std::ops::Range;

use crate::float16::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::fp8::{e4m3_to_f32, e5m2_to_f32, f32_to_e4m3, f32_to_e5m2};
use crate::lanes::{FAR_CONVERTED, FAR_NATIVE, Lanes, level_table};
use crate::small;

/// One element: how it lies in memory and in what it is accumulated.
pub(crate) trait Element {
    type Raw: Copy + Default;
    type Acc: Copy;
    /// The arithmetic on 16 bytes in memory.
    type Small: Lanes;
    const IS_FLOAT: bool;
    /// Whether `decode` and `encode` take dozens of instructions.
    const IS_SOFT: bool = false;
    fn decode(raw: Self::Raw) -> Self::Acc;
    fn encode(acc: Self::Acc) -> Self::Raw;
    fn splat(x: f64) -> Self::Acc;
    fn sum(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn prod(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn max(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn min(a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Raw = $t;
            type Acc = $t;
            type Small = Array<$t, { 16 / size_of::<$t>() }>;
            const IS_FLOAT: bool = false;
            #[inline(always)]
            fn decode(raw: $t) -> $t {
                raw
            }
            #[inline(always)]
            fn encode(acc: $t) -> $t {
                acc
            }
            #[inline(always)]
            fn splat(_: f64) -> $t {
                1
            }
            #[inline(always)]
            fn sum(a: $t, b: $t) -> $t {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn prod(a: $t, b: $t) -> $t {
                a.wrapping_mul(b)
            }
            #[inline(always)]
            fn max(a: $t, b: $t) -> $t {
                Ord::max(a, b)
            }
            #[inline(always)]
            fn min(a: $t, b: $t) -> $t {
                Ord::min(a, b)
            }
        }
    )*};
}
integer!(i8, u8, i32, u32, i64, u64);

/// A floating type `$name` that lies in memory as `$raw` and is accumulated as `$acc`; whether that is much work.
///
/// Maximum and minimum return the operand that is a number if one is NaN, and the second of two equal ones, as the
/// x86 instructions do.
macro_rules! floating {
    ($($name:ty: $raw:ty, $acc:ty, $soft:literal, $decode:expr, $encode:expr;)*) => {$(
        impl Element for $name {
            type Raw = $raw;
            type Acc = $acc;
            type Small = Array<$name, { 16 / size_of::<$raw>() }>;
            const IS_FLOAT: bool = true;
            const IS_SOFT: bool = $soft;
            #[inline(always)]
            fn decode(raw: $raw) -> $acc {
                $decode(raw)
            }
            #[inline(always)]
            fn encode(acc: $acc) -> $raw {
                $encode(acc)
            }
            #[inline(always)]
            fn splat(x: f64) -> $acc {
                x as $acc
            }
            #[inline(always)]
            fn sum(a: $acc, b: $acc) -> $acc {
                a + b
            }
            #[inline(always)]
            fn prod(a: $acc, b: $acc) -> $acc {
                a * b
            }
            #[inline(always)]
            fn max(a: $acc, b: $acc) -> $acc {
                if b.is_nan() || a > b { a } else { b }
            }
            #[inline(always)]
            fn min(a: $acc, b: $acc) -> $acc {
                if b.is_nan() || a < b { a } else { b }
            }
        }
    )*};
}

pub(crate) enum F16 {}
pub(crate) enum Bf16 {}
pub(crate) enum E4m3 {}
pub(crate) enum E5m2 {}

floating! {
    f32: f32, f32, false, std::convert::identity, std::convert::identity;
    f64: f64, f64, false, std::convert::identity, std::convert::identity;
    F16: u16, f32, true, f16_to_f32, f32_to_f16;
    Bf16: u16, f32, false, bf16_to_f32, f32_to_bf16;
    E4m3: u8, f32, true, e4m3_to_f32, f32_to_e4m3;
    E5m2: u8, f32, true, e5m2_to_f32, f32_to_e5m2;
}

/// `N` elements in an array.
pub(crate) struct Array<E, const N: usize>(PhantomData<E>);

impl<E: Element, const N: usize> Array<E, N> {
    // Loops, because `array::map` and its like stay calls in which the target's features are off.
    #[inline(always)]
    fn decode(raw: [E::Raw; N]) -> [E::Acc; N] {
        let mut acc = [E::splat(0.0); N];
        for (a, r) in acc.iter_mut().zip(raw) {
            *a = E::decode(r);
        }
        acc
    }

    #[inline(always)]
    fn encode(acc: [E::Acc; N]) -> [E::Raw; N] {
        let mut raw = [E::Raw::default(); N];
        for (r, a) in raw.iter_mut().zip(acc) {
            *r = E::encode(a);
        }
        raw
    }

    #[inline(always)]
    fn zip(mut a: [E::Acc; N], b: [E::Acc; N], op: impl Fn(E::Acc, E::Acc) -> E::Acc) -> [E::Acc; N] {
        for (a, b) in a.iter_mut().zip(b) {
            *a = op(*a, b);
        }
        a
    }
}

impl<E: Element, const N: usize> Lanes for Array<E, N> {
    type V = [E::Acc; N];
    const N: usize = N;
    const SIZE: usize = size_of::<E::Raw>();
    const IS_FLOAT: bool = E::IS_FLOAT;
    const IS_SOFT: bool = E::IS_SOFT;
    const SMALL: usize = if E::IS_SOFT { 0 } else { small::BYTES / Self::SIZE };
    const FAR: usize = if Self::SIZE == size_of::<E::Acc>() { FAR_NATIVE } else { FAR_CONVERTED };

    small::way!(reduce_after_steps, E::Small);

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::V {
        // SAFETY: the caller's promise; any bytes are a value of every `Raw`.
        Self::decode(unsafe { p.cast::<[E::Raw; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_part(p: *const u8, n: usize) -> Self::V {
        let mut raw = [E::Raw::default(); N];
        for (i, r) in raw.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise; `i < n`.
            *r = unsafe { p.cast::<E::Raw>().add(i).read_unaligned() };
        }
        Self::decode(raw)
    }

    #[inline(always)]
    unsafe fn store(p: *mut u8, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[E::Raw; N]>().write_unaligned(Self::encode(v)) }
    }

    #[inline(always)]
    unsafe fn store_part(p: *mut u8, v: Self::V, n: usize) {
        for (i, raw) in Self::encode(v).into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise; `i < n`.
            unsafe { p.cast::<E::Raw>().add(i).write_unaligned(raw) }
        }
    }

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self::V {
        [E::splat(x); N]
    }

    #[inline(always)]
    unsafe fn sum(a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, E::sum)
    }

    #[inline(always)]
    unsafe fn prod(a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, E::prod)
    }

    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, E::max)
    }

    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        Self::zip(a, b, E::min)
    }
}

level_table!([
    Array<i8, 16>,
    Array<u8, 16>,
    Array<i32, 4>,
    Array<u32, 4>,
    Array<i64, 2>,
    Array<u64, 2>,
    Array<F16, 8>,
    Array<f32, 4>,
    Array<f64, 2>,
    Array<Bf16, 8>,
    Array<E4m3, 8>,
    Array<E5m2, 8>,
]);
