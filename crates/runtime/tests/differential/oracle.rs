//! What a reduction must give, computed element by element with nothing of the library but the names of the types.
//!
//! Two answers: the exact one, for roads that accumulate all contributions once, in rank order, in f32 (f64 for f64,
//! wrapping for integers) and round once; and a reference with an error bound, for roads that round at every step in an
//! order of their own.
//!
//! The bound: with `u` half the spacing of 1, every rounding multiplies a value by `1 + d`, `|d| <= u`. A contribution
//! meets at most `ranks - 1` additions, one scaling, one division and the bias: `steps = ranks + 2` roundings, whatever
//! the order, so the sum is off by at most `((1 + u)^steps - 1) * sum(|contributions|)`. A value that is scaled into
//! the subnormal range is off by half the smallest subnormal `eta` more; sums of subnormals are exact.
//! Products of values near 1 are off by the same factor of their own size.

use half::{bf16, f16};
use oxccl_types::DataType;

/// The operators under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Sum,
    Prod,
    Max,
    Min,
    Avg,
    /// `PreMulSum` with a factor that was read when the operator was made.
    PreHost,
    /// `PreMulSum` with a factor that is read when the operation runs.
    PreDevice,
}

impl Op {
    pub const ALL: [Op; 7] = [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg, Op::PreHost, Op::PreDevice];

    pub fn scales(self) -> bool {
        matches!(self, Op::PreHost | Op::PreDevice)
    }
}

/// (mantissa bits, exponent of the smallest subnormal) of a float type.
fn precision(t: DataType) -> (i32, i32) {
    match t {
        DataType::Float16 => (10, -24),
        DataType::Bfloat16 => (7, -133),
        DataType::Float8e4m3 => (3, -9),
        DataType::Float8e5m2 => (2, -16),
        DataType::Float32 => (23, -149),
        _ => (52, -1074),
    }
}

/// The greatest finite value of the floats of narrow range.
pub fn greatest(t: DataType) -> Option<f64> {
    match t {
        DataType::Float16 => Some(65504.0),
        DataType::Float8e4m3 => Some(448.0),
        DataType::Float8e5m2 => Some(57344.0),
        _ => None,
    }
}

/// The value of a byte of an 8-bit float with `mantissa` mantissa bits and exponent bias `bias`.
fn fp8(b: u8, mantissa: i32, bias: i32) -> f64 {
    let e4m3 = mantissa == 3;
    let (magnitude, sign) = (i32::from(b & 0x7f), if b & 0x80 == 0 { 1.0 } else { -1.0 });
    let (e, m) = (magnitude >> mantissa, f64::from(magnitude & ((1 << mantissa) - 1)));
    if (e4m3 && magnitude == 0x7f) || (!e4m3 && magnitude > 0x7c) {
        return f64::NAN;
    }
    if !e4m3 && magnitude == 0x7c {
        return sign * f64::INFINITY;
    }
    let unit = 2f64.powi(-mantissa);
    sign * if e == 0 { m * unit * 2f64.powi(1 - bias) } else { (1.0 + m * unit) * 2f64.powi(e - bias) }
}

/// The nearest code by search over all codes: ties to the even code, beyond the greatest finite value that value.
fn fp8_encode(x: f32, mantissa: i32, bias: i32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let greatest = if mantissa == 3 { 0x7e } else { 0x7b };
    let x = f64::from(x.abs());
    let (mut low, mut high) = (0u8, greatest);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fp8(middle, mantissa, bias) <= x { low = middle } else { high = middle - 1 }
    }
    if low < greatest {
        let (below, above) = (x - fp8(low, mantissa, bias), fp8(low + 1, mantissa, bias) - x);
        if above < below || (above == below && low % 2 == 1) {
            low += 1;
        }
    }
    sign | low
}

/// Element `bytes` of a float type.
pub fn decode(t: DataType, bytes: &[u8]) -> f64 {
    match t {
        DataType::Float16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DataType::Bfloat16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DataType::Float8e4m3 => fp8(bytes[0], 3, 7),
        DataType::Float8e5m2 => fp8(bytes[0], 2, 15),
        DataType::Float32 => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        DataType::Float64 => f64::from_le_bytes(bytes[..8].try_into().unwrap()),
        _ => unreachable!("{t} is no float"),
    }
}

/// `x`, which f64 holds exactly as the accumulator of the type does, rounded once.
pub fn encode(t: DataType, x: f64) -> Vec<u8> {
    match t {
        DataType::Float16 => f16::from_f32(x as f32).to_le_bytes().to_vec(),
        DataType::Bfloat16 => bf16::from_f32(x as f32).to_le_bytes().to_vec(),
        DataType::Float8e4m3 => vec![fp8_encode(x as f32, 3, 7)],
        DataType::Float8e5m2 => vec![fp8_encode(x as f32, 2, 15)],
        DataType::Float32 => (x as f32).to_le_bytes().to_vec(),
        DataType::Float64 => x.to_le_bytes().to_vec(),
        _ => unreachable!("{t} is no float"),
    }
}

/// One operation in the accumulator of the type: f64 for f64, else f32.
fn combine(t: DataType, op: Op, a: f64, b: f64) -> f64 {
    let exact = match op {
        Op::Prod if t == DataType::Float64 => a * b,
        // Products and sums of two f32 that are rounded to f32 after f64 are those of f32 arithmetic: f64 has more
        // than twice the digits.
        Op::Prod => a * b,
        Op::Max if a.is_nan() || b > a => b,
        Op::Min if a.is_nan() || b < a => b,
        Op::Max | Op::Min => a,
        _ => a + b,
    };
    if t == DataType::Float64 { exact } else { f64::from(exact as f32) }
}

fn integer(t: DataType, bytes: &[u8]) -> i128 {
    let mut wide = [0u8; 8];
    wide[..t.size()].copy_from_slice(&bytes[..t.size()]);
    let x = u64::from_le_bytes(wide);
    match t {
        DataType::Int8 => i128::from(x as i8),
        DataType::Int32 => i128::from(x as i32),
        DataType::Int64 => i128::from(x as i64),
        _ => i128::from(x),
    }
}

/// `x` modulo the size of the type.
fn wrap(t: DataType, x: i128) -> Vec<u8> {
    (x as u64).to_le_bytes()[..t.size()].to_vec()
}

fn rewrap(t: DataType, x: i128) -> i128 {
    integer(t, &wrap(t, x))
}

fn combine_integer(t: DataType, op: Op, a: i128, b: i128) -> i128 {
    match op {
        Op::Prod => rewrap(t, a.wrapping_mul(b)),
        Op::Max => a.max(b),
        Op::Min => a.min(b),
        _ => rewrap(t, a + b),
    }
}

/// One element of a result: its bits where they are known, and the range for roads that round at each step.
#[derive(Clone, Debug)]
pub struct Expected {
    pub exact: Vec<u8>,
    pub value: f64,
    pub bound: f64,
}

/// The reduction of one element: `inputs` in rank order, each with the factor of its rank where the operator scales.
pub fn reduce(t: DataType, op: Op, inputs: &[(&[u8], &[u8])], bias: Option<&[u8]>) -> Expected {
    if inputs.len() == 1 && !op.scales() && bias.is_none() {
        // One rank copies: even what arithmetic would change, such as an infinity that saturates.
        return Expected { exact: inputs[0].0.to_vec(), value: f64::NAN, bound: 0.0 };
    }
    if t.is_float() { reduce_float(t, op, inputs, bias) } else { reduce_integer(t, op, inputs, bias) }
}

fn reduce_integer(t: DataType, op: Op, inputs: &[(&[u8], &[u8])], bias: Option<&[u8]>) -> Expected {
    let scaled = inputs.iter().map(|(x, s)| match op.scales() {
        true => rewrap(t, integer(t, x).wrapping_mul(integer(t, s))),
        false => integer(t, x),
    });
    let mut x = scaled.reduce(|a, b| combine_integer(t, op, a, b)).unwrap();
    if op == Op::Avg {
        x /= inputs.len() as i128;
    }
    if let Some(b) = bias {
        x = combine_integer(t, op, x, integer(t, b));
    }
    Expected { exact: wrap(t, x), value: 0.0, bound: 0.0 }
}

fn reduce_float(t: DataType, op: Op, inputs: &[(&[u8], &[u8])], bias: Option<&[u8]>) -> Expected {
    let n = inputs.len();
    let mut size = 0.0;
    let mut real = f64::NAN;
    let mut acc = f64::NAN;
    for (i, (x, s)) in inputs.iter().enumerate() {
        let mut x = decode(t, x);
        let mut true_x = x;
        if op.scales() {
            let s = decode(t, s);
            true_x = x * s;
            x = decode(t, &encode(t, combine(t, Op::Prod, x, s)));
        }
        size += true_x.abs();
        (acc, real) = match i {
            0 => (x, true_x),
            _ if op == Op::Prod => (combine(t, op, acc, x), real * true_x),
            _ if matches!(op, Op::Max | Op::Min) => (combine(t, op, acc, x), combine(DataType::Float64, op, real, x)),
            _ => (combine(t, op, acc, x), real + true_x),
        };
    }
    if op == Op::Avg {
        let factor = 1.0 / n as f64;
        let factor = if t == DataType::Float64 { factor } else { f64::from(factor as f32) };
        acc = combine(t, Op::Prod, acc, factor);
        real /= n as f64;
        size /= n as f64;
    }
    let mut exact = encode(t, acc);
    if let Some(b) = bias {
        let b = decode(t, b);
        // The copy of a single rank keeps an infinity that a rounding would saturate.
        let alone = n == 1 && !op.scales();
        let before = if alone { decode(t, inputs[0].0) } else { decode(t, &exact) };
        exact = encode(t, combine(t, op, before, b));
        real = if op == Op::Prod { real * b } else { combine(DataType::Float64, op, real, b) };
        size += b.abs();
    }
    let (digits, least) = precision(t);
    let (u, eta) = (2f64.powi(-digits - 1), 2f64.powi(least));
    let steps = n as i32 + 2;
    let spread = (f64::from(steps) * u.ln_1p()).exp_m1() * if op == Op::Prod { real.abs() } else { size };
    // The reference of f64 is itself computed in f64.
    let bound = if t == DataType::Float64 { 2.0 * spread } else { spread * (1.0 + 1e-6) } + f64::from(steps) * eta;
    Expected { exact, value: real, bound: if matches!(op, Op::Max | Op::Min) { 0.0 } else { bound } }
}

/// Whether two elements are the same result: equal bits, two NaN, or zeros of either sign where the sign is open.
pub fn same(t: DataType, op: Op, a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    if !t.is_float() {
        return false;
    }
    let (a, b) = (decode(t, a), decode(t, b));
    (a.is_nan() && b.is_nan()) || (matches!(op, Op::Max | Op::Min) && a == b)
}

#[test]
fn the_oracle_knows_its_types() {
    for (t, values) in [
        (
            DataType::Float8e4m3,
            vec![(0x7eu8, 448.0), (0x01, 1.0 / 512.0), (0x38, 1.0), (0xb8, -1.0), (0x08, 1.0 / 64.0)],
        ),
        (DataType::Float8e5m2, vec![(0x7b, 57344.0), (0x01, 2f64.powi(-16)), (0x3c, 1.0), (0xbe, -1.5)]),
    ] {
        for (code, value) in values {
            assert_eq!(decode(t, &[code]), value);
        }
        for code in 0..=255u8 {
            let x = decode(t, &[code]);
            if x.is_finite() {
                assert_eq!(encode(t, x), [code]);
            }
        }
        assert_eq!(encode(t, 1e9), encode(t, f64::INFINITY));
    }
    // 1.0625 lies between 1 and 1.125: a tie, to the even code.
    assert_eq!(encode(DataType::Float8e4m3, 1.0625), [0x38]);
    assert_eq!(encode(DataType::Float8e4m3, 1.1875), [0x3a]);
    let r = reduce(DataType::Int8, Op::Avg, &[(&[127], &[]), (&[127], &[])], None);
    assert_eq!(r.exact, [255], "the sum -2 is divided, toward zero");
    let r = reduce(DataType::Uint8, Op::PreHost, &[(&[200], &[2]), (&[1], &[3])], Some(&[1]));
    assert_eq!(r.exact, [148]);
}
