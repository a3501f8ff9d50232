//! Test data: what every rank sends and what must come out.
//!
//! Inputs of reductions are chosen so that every order of reduction gives the same bits: small integers whose partial
//! sums are exact in the type, products of powers of two. Only averages of floating-point types over a number of ranks
//! that is no power of two are judged by a bound (see [`Expected::Within`]). Collectives that only move data carry
//! random bits. All of it repeats every [`PERIOD`] elements, so that filling and checking run at memory speed.

use oxccl_types::DataType;

/// Elements after which the data repeat: a prime, so that displaced blocks show.
pub const PERIOD: usize = 4093;

/// Operators that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Sum,
    Prod,
    Max,
    Min,
    Avg,
    /// Sum of `scalar * element`, the scalar being [`Op::scalar`] of the rank.
    MulSum,
}

impl Op {
    /// All of them, in the order of the C values.
    pub const ALL: [Op; 6] = [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg, Op::MulSum];

    /// The table's spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Prod => "prod",
            Op::Max => "max",
            Op::Min => "min",
            Op::Avg => "avg",
            Op::MulSum => "mulsum",
        }
    }

    /// The scalar that rank `rank` brings to `MulSum`.
    pub const fn scalar(rank: usize) -> i64 {
        1 + (rank % 2) as i64
    }
}

/// Exponent and mantissa bits and the exponent's bias of a floating-point type.
const fn format(t: DataType) -> Option<(u32, u32, i32)> {
    match t {
        DataType::Float16 => Some((5, 10, 15)),
        DataType::Bfloat16 => Some((8, 7, 127)),
        DataType::Float32 => Some((8, 23, 127)),
        DataType::Float64 => Some((11, 52, 1023)),
        DataType::Float8e4m3 => Some((4, 3, 7)),
        DataType::Float8e5m2 => Some((5, 2, 15)),
        _ => None,
    }
}

/// The bits of `v`, which must be representable in `t` (zero or normal). Integers wrap.
pub fn encode(t: DataType, v: f64) -> u64 {
    let Some((_, mantissa, bias)) = format(t) else {
        return v as i64 as u64 & mask(t);
    };
    if v == 0.0 {
        return 0;
    }
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023 + bias;
    let fraction = (bits & ((1 << 52) - 1)) >> (52 - mantissa);
    let sign = (bits >> 63) << (8 * t.size() - 1);
    sign | (exponent as u64) << mantissa | fraction
}

/// The value of `bits` as `t`, as near as a double comes.
pub fn decode(t: DataType, bits: u64) -> f64 {
    let width = 8 * t.size() as u32;
    let Some((exp_bits, mantissa, bias)) = format(t) else {
        let signed = matches!(t, DataType::Int8 | DataType::Int32 | DataType::Int64);
        return if signed { ((bits << (64 - width)) as i64 >> (64 - width)) as f64 } else { bits as f64 };
    };
    let sign = if bits >> (width - 1) & 1 == 1 { -1.0 } else { 1.0 };
    let exponent = (bits >> mantissa) & ((1 << exp_bits) - 1);
    let fraction = (bits & ((1 << mantissa) - 1)) as f64 / (1u64 << mantissa) as f64;
    let top = (1 << exp_bits) - 1;
    if t == DataType::Float8e4m3 {
        // No infinity; only all ones is no number.
        if exponent == top && fraction == 0.875 {
            return f64::NAN;
        }
    } else if exponent == top {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if exponent == 0 {
        return sign * fraction * 2f64.powi(1 - bias);
    }
    sign * (1.0 + fraction) * 2f64.powi(exponent as i32 - bias)
}

fn mask(t: DataType) -> u64 {
    u64::MAX >> (64 - 8 * t.size())
}

/// The largest integer below which every integer is exact, and the largest power of two in range.
const fn exact(t: DataType) -> (usize, usize) {
    match t {
        DataType::Float8e4m3 => (16, 8),
        DataType::Float8e5m2 => (8, 15),
        DataType::Bfloat16 => (256, 127),
        DataType::Float16 => (2048, 15),
        DataType::Float32 => (1 << 24, 127),
        DataType::Float64 => (1 << 53, 1023),
        DataType::Int8 | DataType::Uint8 => (127, 6),
        DataType::Int32 | DataType::Uint32 => (1 << 30, 30),
        DataType::Int64 | DataType::Uint64 => (1 << 53, 52),
    }
}

fn is_signed(t: DataType) -> bool {
    t.is_float() || matches!(t, DataType::Int8 | DataType::Int32 | DataType::Int64)
}

/// What rank `rank` of `n` contributes to element `i` of a reduction: a small integer. Averages of 8-bit floats, which may be divided
/// before they are added, have the same sign on all ranks: else hardly anything could be said of the result.
pub fn contribution(t: DataType, op: Op, n: usize, rank: usize, i: usize) -> i64 {
    let i = i % PERIOD;
    let h = mix((rank as u64) << 32 | i as u64);
    let signs = if op == Op::Avg && t.is_float() && t.size() == 1 { mix(i as u64) } else { h };
    let sign = if is_signed(t) && signs >> 40 & 1 == 1 { -1 } else { 1 };
    let (limit, power) = exact(t);
    match op {
        Op::Prod => {
            // At most `power` ranks bring a factor of 2 to one element.
            let turn = n.div_ceil(power);
            sign * if (rank + i).is_multiple_of(turn) { 2 } else { 1 }
        }
        Op::Max | Op::Min => sign * (h % (limit.min(31) as u64 + 1)) as i64,
        Op::Sum | Op::Avg | Op::MulSum => {
            // Partial sums stay within `limit`. With more ranks than that only some bring anything to one element.
            let room = if op == Op::MulSum { limit / 2 } else { limit };
            let largest = (room / n).min(31) as u64;
            if largest > 0 {
                return sign * (h % (largest + 1)) as i64;
            }
            let turn = n.div_ceil(room);
            sign * i64::from((rank + i).is_multiple_of(turn))
        }
    }
}

/// One value repeated: `PERIOD` elements of `size` bytes.
pub struct Pattern {
    size: usize,
    bytes: Vec<u8>,
}

impl Pattern {
    fn from_fn(size: usize, value: impl Fn(usize) -> u64) -> Pattern {
        let mut bytes = Vec::with_capacity(PERIOD * size);
        for i in 0..PERIOD {
            bytes.extend_from_slice(&value(i).to_le_bytes()[..size]);
        }
        Pattern { size, bytes }
    }

    /// What `rank` sends: contributions of a reduction, random bits without an operator.
    pub fn input(t: DataType, op: Option<Op>, n: usize, rank: usize) -> Pattern {
        Pattern::from_fn(t.size(), |i| match op {
            Some(op) => encode(t, contribution(t, op, n, rank, i) as f64),
            None => mix((rank as u64 + 1) << 40 | i as u64) & mask(t),
        })
    }

    /// The bits of element `i`.
    pub fn bits(&self, i: usize) -> u64 {
        let at = i % PERIOD * self.size;
        read_bits(&self.bytes[at..at + self.size])
    }

    /// The longest run of whole pattern bytes that begins at element `i`, at most `count` elements.
    pub fn run(&self, i: usize, count: usize) -> &[u8] {
        let first = i % PERIOD;
        let last = PERIOD.min(first + count);
        &self.bytes[first * self.size..last * self.size]
    }
}

/// Little-endian bytes of one element as an integer.
pub fn read_bits(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// What must come out of a reduction.
pub enum Expected {
    /// These bits.
    Exact(Pattern),
    /// A value between the two bounds, per element of the period.
    Within(Vec<(f64, f64)>),
}

impl Expected {
    /// The result of reducing all ranks' contributions.
    pub fn reduction(t: DataType, op: Op, n: usize) -> Expected {
        let fold = |i: usize| -> i64 {
            let each = |r: usize| contribution(t, op, n, r, i);
            match op {
                Op::Sum | Op::Avg => (0..n).map(each).sum(),
                Op::MulSum => (0..n).map(|r| Op::scalar(r) * each(r)).sum(),
                Op::Prod => (0..n).map(each).fold(1, i64::wrapping_mul),
                Op::Max => (0..n).map(each).max().unwrap_or(0),
                Op::Min => (0..n).map(each).min().unwrap_or(0),
            }
        };
        if op == Op::Prod && t.is_float() {
            // Beyond an i64 the product is still a power of two that the type holds.
            let product = |i: usize| (0..n).map(|r| contribution(t, op, n, r, i) as f64).product();
            return Expected::Exact(Pattern::from_fn(t.size(), |i| encode(t, product(i))));
        }
        if op != Op::Avg {
            return Expected::Exact(Pattern::from_fn(t.size(), |i| encode(t, fold(i) as f64)));
        }
        if !t.is_float() {
            return Expected::Exact(Pattern::from_fn(t.size(), |i| encode(t, (fold(i) / n as i64) as f64)));
        }
        Expected::average(t, n, fold)
    }

    /// Averages of floating-point elements.
    ///
    /// Over a power of two of ranks the result is exact where the type holds it. Else the sum is exact, as partial sums are (see
    /// [`contribution`]), and what is rounded is 1/n, the product, and of narrow types the element: within u of the mean with unit
    /// roundoff u, twice that of f32 or of f64, and one least subnormal. Types whose sums may overflow may be divided
    /// before they are added, with a rounding in each of n + 2 steps; what has one sign keeps it then.
    fn average(t: DataType, n: usize, fold: impl Fn(usize) -> i64) -> Expected {
        let (_, mantissa, bias) = format(t).unwrap_or((8, 23, 127));
        let least = 2f64.powi(1 - bias - mantissa as i32);
        let exact = n.is_power_of_two() && 1.0 / n as f64 >= 2f64.powi(1 - bias);
        if exact {
            return Expected::Exact(Pattern::from_fn(t.size(), |i| encode(t, fold(i) as f64 / n as f64)));
        }
        let unit = 2f64.powi(-(mantissa as i32 + 1));
        let divides_first = matches!(t, DataType::Float16 | DataType::Float8e4m3 | DataType::Float8e5m2);
        let bounds = |i: usize| {
            let mean = fold(i) as f64 / n as f64;
            if divides_first {
                let magnitude: i64 = (0..n).map(|r| contribution(t, Op::Avg, n, r, i).abs()).sum();
                let slack = (n + 2) as f64 * (unit * magnitude as f64 / n as f64 + least);
                let (lo, hi) = (mean - slack, mean + slack);
                // Of so many ranks 1/n itself may become zero.
                let keeps = 1.0 / n as f64 > least / 2.0;
                return match fold(i) {
                    _ if !keeps => (lo, hi),
                    sum if sum != 0 && sum == magnitude => (lo.max(least), hi),
                    sum if sum != 0 && -sum == magnitude => (lo, hi.min(-least)),
                    _ => (lo, hi),
                };
            }
            let slack = (unit + 2.0 * unit.min(2f64.powi(-24))) * mean.abs() + least;
            (mean - slack, mean + slack)
        };
        Expected::Within((0..PERIOD).map(bounds).collect())
    }
}

/// A well-mixed 64-bit value (the finaliser of splitmix64).
fn mix(v: u64) -> u64 {
    let v = v.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reduces in the type itself, one rank after the other in `order`, rounding to nearest by search.
    fn naive(t: DataType, op: Op, order: &[usize], n: usize, i: usize) -> u64 {
        let get = |r: usize| {
            let v = contribution(t, op, n, r, i);
            if op == Op::MulSum { v * Op::scalar(r) } else { v }
        };
        if !t.is_float() {
            let mut acc = get(order[0]);
            for r in &order[1..] {
                let v = get(*r);
                acc = match op {
                    Op::Prod => acc.wrapping_mul(v),
                    Op::Max => acc.max(v),
                    Op::Min => acc.min(v),
                    _ => acc.wrapping_add(v),
                };
                acc = decode(t, acc as u64 & mask(t)) as i64;
            }
            return (if op == Op::Avg { acc / n as i64 } else { acc }) as u64 & mask(t);
        }
        let round = |v: f64| -> f64 {
            let bits = encode(t, v);
            assert_eq!(decode(t, bits), v, "{t} {op:?}: {v} is not exact");
            v
        };
        let mut acc = round(get(order[0]) as f64);
        for r in &order[1..] {
            let v = round(get(*r) as f64);
            acc = round(match op {
                Op::Prod => acc * v,
                Op::Max => acc.max(v),
                Op::Min => acc.min(v),
                _ => acc + v,
            });
        }
        encode(t, if op == Op::Avg { round(acc / n as f64) } else { acc })
    }

    #[test]
    fn encoding_and_decoding_agree_for_all_small_types() {
        for t in [DataType::Float16, DataType::Bfloat16, DataType::Float8e4m3, DataType::Float8e5m2, DataType::Int8] {
            for bits in 0..=mask(t) {
                let v = decode(t, bits);
                let subnormal = format(t).is_some_and(|(e, m, _)| bits >> m & ((1 << e) - 1) == 0);
                if v.is_finite() && !subnormal {
                    assert_eq!(encode(t, v), bits, "{t} {bits:#x}");
                }
            }
        }
        assert_eq!(decode(DataType::Float8e4m3, 0x7e), 448.0);
        assert_eq!(decode(DataType::Float8e5m2, 0x7b), 57344.0);
        assert_eq!(decode(DataType::Float16, 0x3c00), 1.0);
        assert_eq!(decode(DataType::Bfloat16, 0xc040), -3.0);
        assert_eq!(f32::from_bits(encode(DataType::Float32, -5.5) as u32), -5.5);
        assert_eq!(f64::from_bits(encode(DataType::Float64, 1e300)), 1e300);
    }

    #[test]
    fn expected_equals_a_naive_reduction_in_any_order() {
        for t in DataType::ALL {
            for op in Op::ALL {
                for n in [1, 2, 3, 4, 7, 8, 16, 33] {
                    let Expected::Exact(p) = Expected::reduction(t, op, n) else {
                        assert!(t.is_float() && op == Op::Avg && !n.is_power_of_two());
                        continue;
                    };
                    let forward: Vec<usize> = (0..n).collect();
                    let odd_first: Vec<usize> = (1..n).step_by(2).chain((0..n).step_by(2)).collect();
                    for i in (0..PERIOD).step_by(13) {
                        for order in [&forward, &odd_first] {
                            assert_eq!(naive(t, op, order, n, i), p.bits(i), "{t} {op:?} {n} ranks, element {i}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn averages_lie_in_their_bounds_and_bounds_are_tight() {
        let floats = DataType::ALL.into_iter().filter(|t| t.is_float());
        for (t, n) in floats.flat_map(|t| [3, 6, 7, 33, 513].map(|n| (t, n))) {
            let Expected::Within(bounds) = Expected::reduction(t, Op::Avg, n) else { panic!("exact") };
            let mut numbers = 0;
            for (i, (lo, hi)) in bounds.iter().enumerate() {
                let mean = (0..n).map(|r| contribution(t, Op::Avg, n, r, i)).sum::<i64>() as f64 / n as f64;
                assert!(lo <= &mean && &mean <= hi);
                let tells = mean != 0.0 && t != DataType::Float16;
                assert!(!tells || *lo > 0.0 || *hi < 0.0, "{t} of {n}: zero would pass for {mean}");
                assert!(t.size() == 1 || n > 3 || hi - lo < 1.0 / 3.0, "{t} of {n}: an error of one unit would pass");
                numbers += usize::from(mean != 0.0);
            }
            assert!(numbers > bounds.len() / 4, "{t} of {n}: {numbers} means are not zero");
        }
    }

    #[test]
    fn many_ranks_stay_exact() {
        for t in DataType::ALL {
            let (limit, power) = exact(t);
            for n in [200, 5000] {
                for i in 0..50 {
                    let mass: i64 = (0..n).map(|r| contribution(t, Op::Sum, n, r, i).abs()).sum();
                    assert!(mass as usize <= limit, "{t} {n}: {mass}");
                    let twos = (0..n).filter(|r| contribution(t, Op::Prod, n, *r, i).abs() == 2).count();
                    assert!(twos <= power, "{t} {n}: {twos} factors of two");
                }
            }
        }
    }

    #[test]
    fn data_tell_ranks_and_places_apart() {
        let p: Vec<Pattern> = (0..4).map(|r| Pattern::input(DataType::Float32, None, 4, r)).collect();
        assert_ne!(p[0].bits(0), p[1].bits(0));
        assert_ne!(p[0].bits(0), p[0].bits(1));
        assert_eq!(p[2].bits(5), p[2].bits(5 + PERIOD));
        assert_eq!(p[3].run(PERIOD - 1, 10).len(), 4);
        assert_eq!(read_bits(p[3].run(7, 1)), p[3].bits(7));
    }
}
