//! Scalar codecs of binary16 and bfloat16: exact decoding to f32 and encoding with round-to-nearest-even.
//!
//! Written in selects and integer arithmetic, so that loops over them vectorise on any machine; they are also what the
//! SIMD levels must agree with bit for bit. Assumes the default floating-point environment.

/// f32 with the same value as the binary16 `h` (subnormals, infinities and NaN included).
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff);
    let normal = (magnitude << 13) + (112 << 23);
    let subnormal = (magnitude as f32 * (1.0 / 16_777_216.0)).to_bits();
    let special = 0x7f80_0000 | (magnitude << 13);
    let finite = if magnitude < 0x400 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// Nearest binary16 (ties to even); overflow gives infinity, NaN a quiet NaN.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let normal = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13).wrapping_sub(112 << 10);
    // Adding 0.5 leaves the subnormal, in units of 2^-24, rounded in the low mantissa bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let finite = if magnitude >= 65520.0f32.to_bits() { 0x7c00 } else { finite };
    (sign | if magnitude > 0x7f80_0000 { 0x7e00 } else { finite }) as u16
}

/// f32 with the same value as the bfloat16 `h`.
#[inline(always)]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// Nearest bfloat16 (ties to even); a NaN keeps its sign and upper payload and becomes quiet.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}
