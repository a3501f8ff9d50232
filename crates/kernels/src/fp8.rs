//! Scalar codecs of the two OCP 8-bit floats: exact decoding to f32, and encoding with round-to-nearest-even that
//! saturates overflow and infinity to the largest finite value and keeps NaN.
//!
//! Written in selects and integer arithmetic, so that loops over them vectorise on any machine; they are also what the
//! SIMD levels must agree with bit for bit. Assumes the default floating-point environment.

/// f32 with the same value as the e4m3 byte `b` (no infinities; 0x7f and 0xff are NaN).
#[inline(always)]
pub fn e4m3_to_f32(b: u8) -> f32 {
    let sign = u32::from(b & 0x80) << 24;
    let magnitude = u32::from(b & 0x7f);
    let normal = (magnitude << 20) + (120 << 23);
    let subnormal = (magnitude as f32 * (1.0 / 512.0)).to_bits();
    let finite = if magnitude < 8 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude == 0x7f { 0x7fc0_0000 } else { finite })
}

/// Nearest e4m3 byte, ties to even, saturating to +-448.
#[inline(always)]
pub fn f32_to_e4m3(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = (bits >> 24) & 0x80;
    let magnitude = bits & 0x7fff_ffff;
    let clamped = magnitude.min(448.0f32.to_bits());
    let normal = ((clamped + 0x7_ffff + ((clamped >> 20) & 1)) >> 20).wrapping_sub(120 << 3);
    // Adding 2^14 leaves the subnormal, in units of 2^-9, rounded in the low mantissa bits.
    let subnormal = (f32::from_bits(clamped) + 16384.0).to_bits().wrapping_sub(16384.0f32.to_bits());
    let finite = if clamped < 121 << 23 { subnormal } else { normal };
    (sign | if magnitude > 0x7f80_0000 { 0x7f } else { finite }) as u8
}

/// f32 with the same value as the e5m2 byte `b` (infinities and NaN included).
#[inline(always)]
pub fn e5m2_to_f32(b: u8) -> f32 {
    let sign = u32::from(b & 0x80) << 24;
    let magnitude = u32::from(b & 0x7f);
    let normal = (magnitude << 21) + (112 << 23);
    let subnormal = (magnitude as f32 * (1.0 / 65536.0)).to_bits();
    let special = 0x7f80_0000 | (magnitude << 21);
    let finite = if magnitude < 4 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude >= 0x7c { special } else { finite })
}

/// Nearest e5m2 byte, ties to even, saturating to +-57344.
#[inline(always)]
pub fn f32_to_e5m2(x: f32) -> u8 {
    let bits = x.to_bits();
    let sign = (bits >> 24) & 0x80;
    let magnitude = bits & 0x7fff_ffff;
    let clamped = magnitude.min(57344.0f32.to_bits());
    let normal = ((clamped + 0xf_ffff + ((clamped >> 21) & 1)) >> 21).wrapping_sub(112 << 2);
    // Adding 2^7 leaves the subnormal, in units of 2^-16, rounded in the low mantissa bits.
    let subnormal = (f32::from_bits(clamped) + 128.0).to_bits().wrapping_sub(128.0f32.to_bits());
    let finite = if clamped < 113 << 23 { subnormal } else { normal };
    (sign | if magnitude > 0x7f80_0000 { 0x7f } else { finite }) as u8
}
