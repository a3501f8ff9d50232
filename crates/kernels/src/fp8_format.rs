//! What tells the two OCP 8-bit floats apart, for loops that are written once for both of them at the levels of x86-64.

use crate::baseline::{E4m3, E5m2};

/// What tells the two types apart.
pub(crate) trait Format {
    /// Whether the element is the upper byte of a binary16 of the same value. Else, moved right by one place, it is one
    /// of 1/256 of the value, and a NaN becomes a number.
    const IS_BINARY16: bool;
    /// The largest finite value.
    const MAX: f32;
    /// Its code.
    const MAX_CODE: i8;
    /// The code of what no number exceeds: infinity or else the largest finite value.
    const LAST_NUMBER: i8;
    /// The least normal value.
    const MIN_NORMAL: f32;
    /// Explicit mantissa bits.
    const MANTISSA: u32;
    /// Of an f32's exponent over the element's exponent.
    const BIAS: u32;

    /// Added to the bits of a power of two: raises it so that its unit in the last place is that of the element, and
    /// puts into the low bits what makes mantissa plus exponent, modulo 128, the element's code.
    const MAGIC: u32 = {
        let raise = 23 - Self::MANTISSA;
        let correction = ((raise + Self::BIAS + 1) << Self::MANTISSA).wrapping_neg() & 0x7f;
        // An odd one would turn ties to even into ties to odd.
        assert!(correction.is_multiple_of(2));
        raise << 23 | correction
    };
}

impl Format for E4m3 {
    const IS_BINARY16: bool = false;
    const MAX: f32 = 448.0;
    const MAX_CODE: i8 = 0x7e;
    const LAST_NUMBER: i8 = 0x7e;
    const MIN_NORMAL: f32 = 1.0 / 64.0;
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 120;
}

impl Format for E5m2 {
    const IS_BINARY16: bool = true;
    const MAX: f32 = 57344.0;
    const MAX_CODE: i8 = 0x7b;
    const LAST_NUMBER: i8 = 0x7c;
    const MIN_NORMAL: f32 = 1.0 / 16384.0;
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 112;
}
