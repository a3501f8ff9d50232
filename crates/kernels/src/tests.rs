//! Every level that the machine has against an oracle written with other crates' number types.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use oxccl_types::{DataType, Scalar};

use crate::{Level, Post, RedOp, apply_post, copy, copy_across, copy_part, reduce_at, scale_at};

const OPS: [RedOp; 4] = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min];

fn rng() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    fastrand::Rng::with_seed(seed)
}

/// The element `bytes` as f32; only for the floats of at most 32 bits.
fn decode(dtype: DataType, bytes: &[u8]) -> f32 {
    match dtype {
        DataType::Float16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        DataType::Bfloat16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        DataType::Float32 => f32::from_le_bytes(bytes.try_into().unwrap()),
        DataType::Float8e4m3 => F8E4M3::from_bits(bytes[0]).to_f32(),
        DataType::Float8e5m2 => F8E5M2::from_bits(bytes[0]).to_f32(),
        _ => unreachable!("{dtype} is not a float of at most 32 bits"),
    }
}

fn encode(dtype: DataType, x: f32) -> Vec<u8> {
    match dtype {
        DataType::Float16 => f16::from_f32(x).to_le_bytes().to_vec(),
        DataType::Bfloat16 => bf16::from_f32(x).to_le_bytes().to_vec(),
        DataType::Float32 => x.to_le_bytes().to_vec(),
        DataType::Float8e4m3 => vec![F8E4M3::from_f32(x).to_bits()],
        DataType::Float8e5m2 => vec![F8E5M2::from_f32(x).to_bits()],
        _ => unreachable!("{dtype} is not a float of at most 32 bits"),
    }
}

macro_rules! float_op {
    ($op:expr, $a:expr, $b:expr) => {
        match $op {
            RedOp::Sum => $a + $b,
            RedOp::Prod => $a * $b,
            // Of a zero and a negative zero the later one.
            RedOp::Max | RedOp::Min if $a == $b => $b,
            RedOp::Max => $a.max($b),
            RedOp::Min => $a.min($b),
        }
    };
}

macro_rules! oracle_integer {
    ($t:ty, $op:expr, $elements:expr, $post:expr) => {{
        let combined = $elements
            .iter()
            .map(|e| <$t>::from_le_bytes((*e).try_into().unwrap()))
            .reduce(|a, b| match $op {
                RedOp::Sum => a.wrapping_add(b),
                RedOp::Prod => a.wrapping_mul(b),
                RedOp::Max => a.max(b),
                RedOp::Min => a.min(b),
            })
            .unwrap();
        let divided = match $post {
            Post::DivInt(d) => (i128::from(combined) / i128::from(d)) as $t,
            _ => combined,
        };
        divided.to_le_bytes().to_vec()
    }};
}

/// What one element of the destination must be.
fn oracle(dtype: DataType, op: RedOp, elements: &[&[u8]], post: Post) -> Vec<u8> {
    match dtype {
        DataType::Int8 => oracle_integer!(i8, op, elements, post),
        DataType::Uint8 => oracle_integer!(u8, op, elements, post),
        DataType::Int32 => oracle_integer!(i32, op, elements, post),
        DataType::Uint32 => oracle_integer!(u32, op, elements, post),
        DataType::Int64 => oracle_integer!(i64, op, elements, post),
        DataType::Uint64 => oracle_integer!(u64, op, elements, post),
        DataType::Float64 => {
            let values = elements.iter().map(|e| f64::from_le_bytes((*e).try_into().unwrap()));
            let x = values.reduce(|a, b| float_op!(op, a, b)).unwrap();
            (if let Post::MulF64(f) = post { x * f } else { x }).to_le_bytes().to_vec()
        }
        _ => {
            let x = elements.iter().map(|e| decode(dtype, e)).reduce(|a, b| float_op!(op, a, b)).unwrap();
            encode(dtype, if let Post::MulF64(f) = post { x * f as f32 } else { x })
        }
    }
}

fn is_nan(dtype: DataType, bytes: &[u8]) -> bool {
    match dtype {
        DataType::Float64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        t if t.is_float() => decode(dtype, bytes).is_nan(),
        _ => false,
    }
}

#[track_caller]
fn assert_same(dtype: DataType, got: &[u8], want: &[u8], what: impl Fn() -> String) {
    if got == want {
        return;
    }
    for (i, (g, w)) in got.chunks(dtype.size()).zip(want.chunks(dtype.size())).enumerate() {
        let same = g == w || (is_nan(dtype, g) && is_nan(dtype, w));
        assert!(same, "{dtype} {}: element {i} is {g:02x?}, should be {w:02x?}", what());
    }
}

/// `count` elements: of floats half are any bits, the others of like size so that sums do not all overflow.
fn random(rng: &mut fastrand::Rng, dtype: DataType, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let any = rng.u64(..).to_le_bytes();
        match dtype {
            DataType::Float64 if rng.bool() => bytes.extend((rng.f64() * 8.0 - 4.0).to_le_bytes()),
            t if t.is_float() && t != DataType::Float64 && rng.bool() => {
                bytes.extend(encode(t, (rng.f32() * 8.0 - 4.0) * if rng.u8(..8) == 0 { 1e-5 } else { 1.0 }));
            }
            _ => bytes.extend(&any[..dtype.size()]),
        }
    }
    bytes
}

/// A buffer that starts at an odd address and whose end is watched.
struct Guarded {
    bytes: Vec<u8>,
    offset: usize,
    len: usize,
}

impl Guarded {
    fn new(content: &[u8], offset: usize) -> Guarded {
        let mut bytes = vec![0xa5; offset];
        bytes.extend(content);
        bytes.extend([0xa5; 80]);
        Guarded { bytes, offset, len: content.len() }
    }

    fn ptr(&mut self) -> *mut u8 {
        self.bytes[self.offset..].as_mut_ptr()
    }

    fn content(&self) -> &[u8] {
        &self.bytes[self.offset..][..self.len]
    }

    #[track_caller]
    fn check_guards(&self, used: usize) {
        let (before, after) = (&self.bytes[..self.offset], &self.bytes[self.offset + used..]);
        assert!(before.iter().chain(after).all(|b| *b == 0xa5), "written outside the destination");
    }
}

fn posts(dtype: DataType, rng: &mut fastrand::Rng) -> [Post; 3] {
    if dtype.is_float() {
        [Post::None, Post::MulF64(1.0 / 3.0), Post::MulF64(rng.f64() * 2.0)]
    } else {
        [Post::None, Post::DivInt(rng.u64(1..10)), Post::DivInt(rng.u64(1..) >> rng.u32(..63) | 1)]
    }
}

/// One shape of everything: `counts` of one type at one level.
fn check_counts(level: Level, dtype: DataType, counts: &[usize], rng: &mut fastrand::Rng) {
    let size = dtype.size();
    let longest = counts.iter().copied().max().unwrap();
    let mut srcs: Vec<Guarded> = (0..9).map(|j| Guarded::new(&random(rng, dtype, longest), 1 + (j * 7) % 64)).collect();
    let pointers: Vec<*const u8> = srcs.iter_mut().map(|s| s.ptr().cast_const()).collect();
    for (op, n) in OPS.into_iter().flat_map(|op| (1..=9).map(move |n| (op, n))) {
        for (p, post) in posts(dtype, rng).into_iter().enumerate() {
            let want: Vec<u8> = (0..longest)
                .flat_map(|i| {
                    let elements: Vec<&[u8]> = srcs[..n].iter().map(|s| &s.content()[i * size..][..size]).collect();
                    oracle(dtype, op, &elements, post)
                })
                .collect();
            for (c, &count) in counts.iter().enumerate() {
                let used = count * size;
                let n_dsts = if p == 0 { 1..=3 } else { 1 + c % 3..=1 + c % 3 };
                for n_dst in n_dsts {
                    let mut dsts: Vec<Guarded> = (0..n_dst)
                        .map(|k| Guarded::new(&vec![0xa5; used], (c + k * 5) % 64 + usize::from(p == 0)))
                        .collect();
                    let out: Vec<*mut u8> = dsts.iter_mut().map(Guarded::ptr).collect();
                    // SAFETY: the buffers are separate and hold `count` elements.
                    unsafe { reduce_at(level.table(), dtype, op, &out, &pointers[..n], count, post) };
                    for dst in &dsts {
                        let what = || format!("{level:?} {op:?} {post:?} {n} sources, count {count}");
                        assert_same(dtype, dst.content(), &want[..used], what);
                        dst.check_guards(used);
                    }
                }
            }
        }
    }
}

#[test]
fn every_type_operation_and_count_matches_the_oracle() {
    let mut rng = rng();
    let counts: Vec<usize> = (0..=130).chain([255, 257, 511, 1023, 1027]).collect();
    for level in Level::available() {
        for dtype in DataType::ALL {
            check_counts(level, dtype, &counts, &mut rng);
        }
    }
}

/// Sums of two of so many 8-bit floats may go a way of their own, to and from any places.
#[test]
fn long_sums_of_eight_bit_floats_match_the_oracle() {
    let mut rng = rng();
    let count = (16 << 10) + 37;
    for dtype in [DataType::Float8e4m3, DataType::Float8e5m2] {
        let [a, b] = [1, 10].map(|at| Guarded::new(&random(&mut rng, dtype, count), at));
        let want: Vec<u8> = (0..count)
            .flat_map(|i| oracle(dtype, RedOp::Sum, &[&a.content()[i..=i], &b.content()[i..=i]], Post::None))
            .collect();
        for (level, n_dsts) in Level::available().flat_map(|level| (1..=3).map(move |n| (level, n))) {
            let (mut a, mut b) = (Guarded::new(a.content(), 7), Guarded::new(b.content(), 64));
            let srcs = [a.ptr().cast_const(), b.ptr().cast_const()];
            let mut dsts: Vec<Guarded> = (0..n_dsts).map(|k| Guarded::new(&vec![0xa5; count], 3 + 5 * k)).collect();
            let out: Vec<*mut u8> = dsts.iter_mut().map(Guarded::ptr).collect();
            // SAFETY: the buffers are separate and hold `count` elements.
            unsafe { reduce_at(level.table(), dtype, RedOp::Sum, &out, &srcs, count, Post::None) };
            for dst in &dsts {
                assert_same(dtype, dst.content(), &want, || format!("{level:?} {dtype:?} to {n_dsts}"));
                dst.check_guards(count);
            }
        }
    }
}

/// Where wide vectors wake units, short and long calls of floats go by narrower ones, but not of integers.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_by_narrower_vectors_match_the_oracle() {
    use crate::lanes::Lanes;
    let mut rng = rng();
    crate::wide::WAKES.set(true);
    let narrower = [
        crate::avx512::F32::narrower(17, 2),
        crate::avx512::F64::narrower(9, 2),
        crate::avx512::F16::narrower(33, 2),
        crate::avx512::Bf16::narrower(17, 2),
    ];
    let types = [DataType::Float32, DataType::Float64, DataType::Float16, DataType::Bfloat16];
    assert_eq!(narrower.map(|n| n.map(|(_, dtype)| dtype)), types.map(Some));
    assert!(crate::avx512::I32::narrower(17, 2).is_none());
    for level in Level::available().filter(|level| *level == Level::Avx512) {
        for dtype in types {
            let long = if dtype.size() == 2 { 512 << 10 } else { 16 << 10 };
            check_counts(level, dtype, &[9, 17, 33, 130, long / dtype.size() + 7], &mut rng);
            check_scaling(level, dtype, [17, 130], &mut rng);
        }
    }
    for dtype in types {
        let long = if dtype.size() == 2 { 512 << 10 } else { 16 << 10 } / dtype.size();
        let narrow = |srcs, whole| std::ptr::eq(crate::avx512::table_for(dtype, srcs, whole), Level::Avx2.table());
        assert!(narrow(2, long) && !narrow(2, long - 1) && !narrow(5, long), "{dtype:?}");
    }
    assert!(std::ptr::eq(crate::avx512::table_for(DataType::Int32, 2, 1 << 20), Level::Avx512.table()));
    crate::wide::WAKES.set(false);
}

#[test]
fn parts_of_a_call_have_the_bits_of_the_whole() {
    let mut rng = rng();
    let (count, part) = (5000, 1024);
    for dtype in DataType::ALL {
        let size = dtype.size();
        let [a, b] = [(); 2].map(|()| random(&mut rng, dtype, count));
        let [mut whole, mut parts] = [vec![0; a.len()], vec![0; a.len()]];
        let post = Post::MulF64(0.5);
        // SAFETY: all hold as many elements.
        unsafe { crate::reduce(dtype, RedOp::Sum, &[whole.as_mut_ptr()], &[a.as_ptr(), b.as_ptr()], count, post) };
        for at in (0..count).step_by(part).rev() {
            let (first, n) = (at * size, part.min(count - at));
            let to = [parts[first..].as_mut_ptr()];
            // SAFETY: the part lies within.
            unsafe {
                crate::reduce_part(dtype, RedOp::Sum, &to, &[a[first..].as_ptr(), b[first..].as_ptr()], n, post, count)
            };
        }
        assert_same(dtype, &parts, &whole, || format!("{dtype:?}"));
    }
}

/// Stores to `dst` the combination of `a` and `b` and compares with the oracle.
fn check_pair(level: Level, dtype: DataType, op: RedOp, a: &[u8], b: &[u8]) {
    let size = dtype.size();
    let want: Vec<u8> =
        a.chunks(size).zip(b.chunks(size)).flat_map(|(a, b)| oracle(dtype, op, &[a, b], Post::None)).collect();
    // Long calls may go another way than short ones.
    for part in [a.len(), 8 << 10] {
        let mut got = vec![0; a.len()];
        for ((a, b), got) in a.chunks(part).zip(b.chunks(part)).zip(got.chunks_mut(part)) {
            let (to, from) = ([got.as_mut_ptr()], [a.as_ptr(), b.as_ptr()]);
            // SAFETY: all three hold as many elements.
            unsafe { reduce_at(level.table(), dtype, op, &to, &from, a.len() / size, Post::None) };
        }
        assert_same(dtype, &got, &want, || format!("{level:?} {op:?} in parts of {part} bytes"));
    }
}

#[test]
fn all_pairs_of_eight_bit_floats() {
    let a: Vec<u8> = (0..=65535u16).map(|i| (i >> 8) as u8).collect();
    let b: Vec<u8> = (0..=65535u16).map(|i| i as u8).collect();
    for level in Level::available() {
        for dtype in [DataType::Float8e4m3, DataType::Float8e5m2] {
            for op in OPS {
                check_pair(level, dtype, op, &a, &b);
            }
        }
    }
}

/// As above for numbers alone: where infinities or NaN are among them, all of their neighbours take another way.
#[test]
fn all_pairs_of_finite_eight_bit_floats() {
    for (dtype, finite) in [(DataType::Float8e4m3, 0x7f), (DataType::Float8e5m2, 0x7c)] {
        let numbers: Vec<u8> = (0..=255_u8).filter(|x| x & 0x7f < finite).collect();
        let (a, b): (Vec<u8>, Vec<u8>) = numbers.iter().flat_map(|a| numbers.iter().map(|b| (*a, *b))).unzip();
        for level in Level::available() {
            for op in OPS {
                check_pair(level, dtype, op, &a, &b);
            }
        }
    }
}

/// Random pairs of binary16 and bfloat16, whose exponents are at most a few apart, so that roundings meet ties.
#[test]
fn pairs_of_sixteen_bit_floats_round_once() {
    let mut rng = rng();
    for dtype in [DataType::Float16, DataType::Bfloat16] {
        let a: Vec<u16> = (0..1 << 16).map(|_| rng.u16(..)).collect();
        let mantissa = if dtype == DataType::Float16 { 10 } else { 7 };
        let near = |a: &u16| (a.wrapping_add(rng.u16(..16) << mantissa) & 0x7fff) | (rng.u16(..) & 0x8000);
        let b: Vec<u8> = a.iter().map(near).flat_map(u16::to_le_bytes).collect();
        let a: Vec<u8> = a.into_iter().flat_map(u16::to_le_bytes).collect();
        for (level, op) in Level::available().flat_map(|level| OPS.map(|op| (level, op))) {
            check_pair(level, dtype, op, &a, &b);
            check_pair(level, dtype, op, &b, &a);
        }
    }
}

/// A third number far below the other two decides ties, which a sum rounded twice would get wrong.
#[test]
fn sums_of_three_eight_bit_floats_round_once() {
    let mut rng = rng();
    let a: Vec<u8> = (0..=65535u16).map(|i| (i >> 8) as u8).collect();
    let b: Vec<u8> = (0..=65535u16).map(|i| i as u8).collect();
    for dtype in [DataType::Float8e4m3, DataType::Float8e5m2] {
        for third in [0x01, 0x81, 0x02, 0x08, 0x88, rng.u8(..), rng.u8(..), rng.u8(..)] {
            let c = vec![third; a.len()];
            let sum = |i: usize| oracle(dtype, RedOp::Sum, &[&a[i..=i], &b[i..=i], &c[i..=i]], Post::None);
            let want: Vec<u8> = (0..a.len()).flat_map(sum).collect();
            for level in Level::available() {
                let mut got = vec![0; a.len()];
                let srcs = [a.as_ptr(), b.as_ptr(), c.as_ptr()];
                // SAFETY: all four hold as many elements.
                unsafe {
                    reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &srcs, a.len(), Post::None);
                }
                assert_same(dtype, &got, &want, || format!("{level:?} with {third:#x}"));
            }
        }
    }
}

/// Averages over powers of two have ways of their own: sums of all pairs, and of three whose last is far below the others.
#[test]
fn power_of_two_averages_of_eight_bit_floats_round_once() {
    let mut rng = rng();
    let a: Vec<u8> = (0..=65535u16).map(|i| (i >> 8) as u8).collect();
    let b: Vec<u8> = (0..=65535u16).map(|i| i as u8).collect();
    for dtype in [DataType::Float8e4m3, DataType::Float8e5m2] {
        for (power, third) in (0..=9).flat_map(|p| [None, Some(0x01), Some(0x81), Some(rng.u8(..))].map(|t| (p, t))) {
            let post = Post::MulF64(f64::from(1 << power).recip());
            let c = vec![third.unwrap_or(0); a.len()];
            let n = 2 + usize::from(third.is_some());
            let element = |i: usize| [&a[i..=i], &b[i..=i], &c[i..=i]];
            let want: Vec<u8> = (0..a.len()).flat_map(|i| oracle(dtype, RedOp::Sum, &element(i)[..n], post)).collect();
            for level in Level::available() {
                let mut got = vec![0; a.len()];
                let srcs = [a.as_ptr(), b.as_ptr(), c.as_ptr()];
                // SAFETY: all four hold as many elements.
                unsafe { reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &srcs[..n], a.len(), post) };
                assert_same(dtype, &got, &want, || format!("{level:?} {post:?} with {third:x?}"));
            }
        }
    }
}

/// A NaN stays one whatever bits of it are cut off.
#[test]
fn a_factor_that_is_nan_gives_nan() {
    for (level, dtype) in Level::available().flat_map(|l| DataType::ALL.map(|t| (l, t))).filter(|(_, t)| t.is_float()) {
        for bits in [0x7ff8_0000_0000_0000u64, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff] {
            let src = vec![0x31; 100 * dtype.size()];
            let mut got = vec![0; src.len()];
            let post = Post::MulF64(f64::from_bits(bits));
            // SAFETY: both hold 100 elements.
            unsafe {
                reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &[src.as_ptr()], 100, post);
            }
            assert!(got.chunks(dtype.size()).all(|e| is_nan(dtype, e)), "{level:?} {dtype} {bits:#x}");
        }
    }
}

#[test]
fn all_half_values_keep_their_bits_and_combine_exactly() {
    let mut rng = rng();
    let all: Vec<u8> = (0..=65535u16).flat_map(u16::to_le_bytes).collect();
    for level in Level::available() {
        for dtype in [DataType::Float16, DataType::Bfloat16] {
            let mut got = vec![0; all.len()];
            // SAFETY: both hold 65536 elements.
            unsafe {
                reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &[all.as_ptr()], 65536, Post::None)
            };
            assert_same(dtype, &got, &all, || format!("{level:?} round trip"));
            for op in OPS {
                check_pair(level, dtype, op, &all, &random(&mut rng, dtype, 65536));
            }
        }
    }
}

/// Products with a factor put the accumulator anywhere, ties and their neighbours included.
#[test]
fn narrow_floats_round_any_accumulator_to_nearest_even() {
    let mut rng = rng();
    for dtype in [DataType::Float8e4m3, DataType::Float8e5m2, DataType::Float16, DataType::Bfloat16] {
        let count = if dtype.size() == 1 { 256 } else { 65536 };
        let all: Vec<u8> = (0..count as u32).flat_map(|i| i.to_le_bytes()[..dtype.size()].to_vec()).collect();
        for _ in 0..if dtype.size() == 1 { 500 } else { 4 } {
            let factor = f32::from_bits((rng.u32(..) & 0x807f_ffff) | rng.u32(100..150) << 23);
            // Few mantissa bits make ties, one more bit far below breaks them.
            let factor = f32::from_bits(factor.to_bits() & !0 << rng.u32(0..24) | rng.u32(0..2));
            let post = Post::MulF64(f64::from(factor));
            let want: Vec<u8> = all.chunks(dtype.size()).flat_map(|e| oracle(dtype, RedOp::Sum, &[e], post)).collect();
            for level in Level::available() {
                let mut got = vec![0; all.len()];
                // SAFETY: both hold `count` elements.
                unsafe {
                    reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &[all.as_ptr()], count, post)
                };
                assert_same(dtype, &got, &want, || format!("{level:?} times {factor:e}"));
            }
        }
    }
}

/// Calls so long that what they will read is asked for, and integer averages of several blocks.
#[test]
fn long_calls_match_the_oracle() {
    let mut rng = rng();
    for (level, dtype) in Level::available().flat_map(|l| DataType::ALL.map(|t| (l, t))) {
        let count = (32 << 10) / dtype.size() + rng.usize(..300);
        let mut srcs: Vec<Guarded> = (0..3).map(|j| Guarded::new(&random(&mut rng, dtype, count), 5 * j + 1)).collect();
        let pointers: Vec<*const u8> = srcs.iter_mut().map(|s| s.ptr().cast_const()).collect();
        for (n, post) in [(2, Post::None), (3, Post::None), (2, posts(dtype, &mut rng)[1])] {
            let elements = srcs[..n].iter().map(Guarded::content).collect::<Vec<_>>();
            let size = dtype.size();
            let element = |i: usize| elements.iter().map(|e| &e[i * size..][..size]).collect::<Vec<_>>();
            let want: Vec<u8> = (0..count).flat_map(|i| oracle(dtype, RedOp::Sum, &element(i), post)).collect();
            for n_dst in 1..=2 {
                let mut dsts: Vec<Guarded> = (0..n_dst).map(|k| Guarded::new(&vec![0; count * size], k + 3)).collect();
                let out: Vec<*mut u8> = dsts.iter_mut().map(Guarded::ptr).collect();
                // SAFETY: the buffers are separate and hold `count` elements.
                unsafe { reduce_at(level.table(), dtype, RedOp::Sum, &out, &pointers[..n], count, post) };
                for dst in &dsts {
                    assert_same(dtype, dst.content(), &want, || format!("{level:?} {n} sources, {count} {post:?}"));
                    dst.check_guards(count * size);
                }
            }
        }
    }
}

/// Also where the pieces of a small call are fewer than its elements.
#[test]
fn the_destination_of_a_pair_may_be_either_source() {
    let mut rng = rng();
    for (level, dtype) in Level::available().flat_map(|l| DataType::ALL.map(|t| (l, t))) {
        for (count, place) in (0..=70).flat_map(|count| [(count, 0), (count, 1)]) {
            let mut srcs = [1, 2].map(|offset| Guarded::new(&random(&mut rng, dtype, count), offset));
            let size = dtype.size();
            let element = |j: usize, i: usize| &srcs[j].content()[i * size..][..size];
            let sum = |i| oracle(dtype, RedOp::Sum, &[element(0, i), element(1, i)], Post::None);
            let want: Vec<u8> = (0..count).flat_map(sum).collect();
            let pointers = srcs.each_mut().map(Guarded::ptr);
            let inputs = pointers.map(|p| p.cast_const());
            // SAFETY: both hold `count` elements; the destination is one of them.
            unsafe { reduce_at(level.table(), dtype, RedOp::Sum, &[pointers[place]], &inputs, count, Post::None) };
            assert_same(dtype, srcs[place].content(), &want, || format!("{level:?} in place {place} of {count}"));
            srcs[place].check_guards(count * size);
        }
    }
}

#[test]
fn a_destination_may_be_a_source() {
    let mut rng = rng();
    for (level, dtype) in Level::available().flat_map(|l| DataType::ALL.map(|t| (l, t))) {
        let average = posts(dtype, &mut rng)[1];
        for (count, place, post) in [3usize, 64, 1000]
            .into_iter()
            .flat_map(|c| [Post::None, average].into_iter().flat_map(move |p| (0..3).map(move |j| (c, j, p))))
        {
            let mut srcs: Vec<Guarded> = (0..3).map(|j| Guarded::new(&random(&mut rng, dtype, count), j + 1)).collect();
            let size = dtype.size();
            let want: Vec<u8> = (0..count)
                .flat_map(|i| {
                    let elements: Vec<&[u8]> = srcs.iter().map(|s| &s.content()[i * size..][..size]).collect();
                    oracle(dtype, RedOp::Sum, &elements, post)
                })
                .collect();
            let mut other = Guarded::new(&vec![0; count * size], 3);
            let pointers: Vec<*mut u8> = srcs.iter_mut().map(Guarded::ptr).collect();
            let dsts = [other.ptr(), pointers[place]];
            let inputs: Vec<*const u8> = pointers.iter().map(|p| p.cast_const()).collect();
            // SAFETY: the buffers hold `count` elements; one destination is a source, the other is separate.
            unsafe { reduce_at(level.table(), dtype, RedOp::Sum, &dsts, &inputs, count, post) };
            for dst in [&srcs[place], &other] {
                assert_same(dtype, dst.content(), &want, || format!("{level:?} in place {place} of {count} {post:?}"));
                dst.check_guards(count * size);
            }
        }
    }
}

#[test]
fn scaling_is_the_product_with_the_scalar() {
    let mut rng = rng();
    for (level, dtype) in Level::available().flat_map(|l| DataType::ALL.map(|t| (l, t))) {
        check_scaling(level, dtype, (0..70).chain([129, 1001]), &mut rng);
    }
}

/// So many elements times one of them, elsewhere and in place.
fn check_scaling(level: Level, dtype: DataType, counts: impl IntoIterator<Item = usize>, rng: &mut fastrand::Rng) {
    for count in counts {
        let scalar = random(rng, dtype, 1);
        let mut bytes = [0; 8];
        bytes[..scalar.len()].copy_from_slice(&scalar);
        let src = random(rng, dtype, count);
        let want: Vec<u8> =
            src.chunks(dtype.size()).flat_map(|e| oracle(dtype, RedOp::Prod, &[e, &scalar], Post::None)).collect();
        let mut separate = Guarded::new(&vec![0; src.len()], 1);
        let mut in_place = Guarded::new(&src, 3);
        // SAFETY: all hold `count` elements.
        unsafe {
            scale_at(level.table(), separate.ptr(), src.as_ptr(), count, Scalar { dtype, bytes });
            scale_at(level.table(), in_place.ptr(), in_place.ptr(), count, Scalar { dtype, bytes });
        }
        for dst in [separate, in_place] {
            assert_same(dtype, dst.content(), &want, || format!("{level:?} scaled by {scalar:02x?}"));
            dst.check_guards(src.len());
        }
    }
}

#[test]
fn post_in_place_matches_the_oracle() {
    let mut rng = rng();
    for dtype in DataType::ALL {
        let posts = posts(dtype, &mut rng);
        for (count, post) in [0usize, 1, 17, 1000].into_iter().flat_map(|c| posts.map(|p| (c, p))) {
            let src = random(&mut rng, dtype, count);
            let mut want: Vec<u8> =
                src.chunks(dtype.size()).flat_map(|e| oracle(dtype, RedOp::Sum, &[e], post)).collect();
            if post == Post::None {
                // Not even an infinity is saturated.
                want.clone_from(&src);
            }
            let mut buf = Guarded::new(&src, 1);
            // SAFETY: the buffer holds `count` elements.
            unsafe { apply_post(dtype, buf.ptr(), count, post) };
            assert_same(dtype, buf.content(), &want, || format!("{post:?}"));
            buf.check_guards(src.len());
        }
    }
}

#[test]
fn division_truncates_at_the_ends_of_the_range() {
    let mut ends = Vec::new();
    for x in [0i64, 1, -1, i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(i32::MAX), 0x7f80, -0x7f7f] {
        ends.extend(x.to_le_bytes());
    }
    for dtype in DataType::ALL.into_iter().filter(|t| !t.is_float()) {
        for divisor in [1, 2, 3, 127, 128, 255, 1 << 31, (1 << 31) + 1, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            check_division(dtype, &ends, divisor);
        }
    }
}

/// In place, and as the end of an average, at every level.
fn check_division(dtype: DataType, elements: &[u8], divisor: u64) {
    let (size, post) = (dtype.size(), Post::DivInt(divisor));
    let count = elements.len() / size;
    let want: Vec<u8> = elements.chunks(size).flat_map(|e| oracle(dtype, RedOp::Sum, &[e], post)).collect();
    let mut got = elements.to_vec();
    // SAFETY: the buffer holds as many elements.
    unsafe { apply_post(dtype, got.as_mut_ptr(), count, post) };
    assert_same(dtype, &got, &want, || format!("{post:?}"));
    for level in Level::available() {
        let mut got = vec![0; elements.len()];
        // SAFETY: both buffers hold as many elements.
        unsafe {
            reduce_at(level.table(), dtype, RedOp::Sum, &[got.as_mut_ptr()], &[elements.as_ptr()], count, post);
        }
        assert_same(dtype, &got, &want, || format!("{level:?} {post:?}"));
    }
}

#[test]
fn every_byte_is_divided_by_every_divisor() {
    let all: Vec<u8> = (0..=255).collect();
    for dtype in [DataType::Int8, DataType::Uint8] {
        for divisor in 2..=260 {
            check_division(dtype, &all, divisor);
        }
    }
}

/// The integers where a quotient changes, and their neighbours: what an inexact reciprocal would get wrong.
#[test]
fn division_is_exact_around_multiples_of_the_divisor() {
    let mut rng = rng();
    for dtype in [DataType::Int32, DataType::Uint32, DataType::Int64, DataType::Uint64] {
        for _ in 0..500 {
            let divisor = (rng.u64(..) >> rng.u32(..64)).max(2);
            let mut elements = Vec::new();
            for _ in 0..40 {
                let multiple = (rng.u64(..) >> rng.u32(..64)) / divisor * divisor;
                for x in [multiple, multiple.wrapping_sub(1), multiple + 1, multiple.wrapping_neg()] {
                    elements.extend(&x.to_le_bytes()[..dtype.size()]);
                }
                let greatest = if dtype.size() == 4 { u64::from(u32::MAX) } else { u64::MAX };
                let multiple = greatest / divisor * divisor;
                elements.extend(&multiple.wrapping_sub(rng.u64(..2)).to_le_bytes()[..dtype.size()]);
            }
            check_division(dtype, &elements, divisor);
        }
    }
}

#[test]
fn copies_reach_every_destination() {
    let mut rng = rng();
    let sizes = (0..300).chain([
        8191,
        8192,
        8193,
        9300,
        16383,
        16384,
        16385,
        (20 << 10) - 1,
        20 << 10,
        100_001,
        384 << 10,
        (384 << 10) + 1,
    ]);
    // As they are, and as parts of long transfers.
    for (bytes, whole) in sizes.flat_map(|bytes| [(bytes, bytes), (bytes, 4 << 20), (bytes, usize::MAX)]) {
        let src = random(&mut rng, DataType::Uint8, bytes);
        for n in 0..=3 {
            let mut dsts: Vec<Guarded> = (0..n).map(|k| Guarded::new(&vec![0; bytes], k * 3 + 1)).collect();
            let out: Vec<*mut u8> = dsts.iter_mut().map(Guarded::ptr).collect();
            // SAFETY: all hold `bytes` bytes.
            unsafe { copy_part(&out, src.as_ptr(), bytes, whole) };
            for dst in &dsts {
                assert!(dst.content() == src, "{bytes} bytes to {n} destinations");
                dst.check_guards(bytes);
            }
            // Places that begin a line together, which the stores past the caches need, or lie a byte behind that.
            let stride = bytes.next_multiple_of(64) + 64;
            let mut all = vec![0xa5_u8; n * stride + 128];
            let first = all.as_ptr().align_offset(64) + bytes % 2;
            let starts: Vec<usize> = (0..n).map(|k| first + k * stride).collect();
            let at = all.as_mut_ptr();
            let out: Vec<*mut u8> = starts.iter().map(|start| at.wrapping_add(*start)).collect();
            // SAFETY: all lie in the memory above and hold `bytes` bytes.
            unsafe { crate::copy_past_caches(&out, src.as_ptr(), bytes, whole) };
            for start in starts {
                let (copied, behind) = all[start..start + stride].split_at_mut(bytes);
                assert!(*copied == src, "{bytes} bytes past the caches to {n} destinations");
                copied.fill(0xa5);
                assert!(behind.iter().all(|b| *b == 0xa5), "{bytes} bytes: what is behind them");
            }
            assert!(all.iter().all(|b| *b == 0xa5), "{bytes} bytes: what is in front of them");
        }
        let mut slot = Guarded::new(&vec![0; bytes], 3);
        // SAFETY: as above.
        unsafe { copy_across(slot.ptr(), src.as_ptr(), bytes, whole) };
        assert!(slot.content() == src, "{bytes} bytes across");
        slot.check_guards(bytes);
        let mut alone = Guarded::new(&vec![0; bytes], 7);
        // SAFETY: as above.
        unsafe { crate::copy_alone(alone.ptr(), src.as_ptr(), bytes) };
        assert!(alone.content() == src, "{bytes} bytes alone");
        alone.check_guards(bytes);
        let mut taken = Guarded::new(&vec![0; bytes], 11);
        // SAFETY: as above.
        unsafe { crate::copy_taken(taken.ptr(), src.as_ptr(), bytes, whole) };
        assert!(taken.content() == src, "{bytes} bytes taken");
        taken.check_guards(bytes);
        // What it does where the instruction waits for lines, on any processor that can.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx") {
            let mut moved = Guarded::new(&vec![0; bytes], 9);
            // SAFETY: as above; the machine has AVX.
            unsafe { crate::copy::across(moved.ptr(), src.as_ptr(), bytes) };
            assert!(moved.content() == src, "{bytes} bytes by moves");
            moved.check_guards(bytes);
        }
        // The same of the longest transfers.
        let mut past = Guarded::new(&vec![0; bytes], 13);
        // SAFETY: as above.
        unsafe { crate::copy::copy_past(past.ptr(), src.as_ptr(), bytes) };
        assert!(past.content() == src, "{bytes} bytes past the caches");
        past.check_guards(bytes);
        let mut in_place = Guarded::new(&src, 5);
        // SAFETY: the source is the destination.
        unsafe {
            crate::copy::copy_past(in_place.ptr(), in_place.ptr(), bytes);
            copy_part(&[in_place.ptr()], in_place.ptr(), bytes, whole);
            copy(&[in_place.ptr()], in_place.ptr(), bytes);
        }
        assert!(in_place.content() == src, "{bytes} bytes to where they are");
        in_place.check_guards(bytes);
    }
}

/// As long as goes past the caches on some processors, also to where it is.
#[test]
fn the_longest_copies_get_all_bytes() {
    const BYTES: usize = (12 << 20) + 77;
    let mut rng = rng();
    let src = random(&mut rng, DataType::Uint8, BYTES);
    for n in 1..=2 {
        let mut dsts: Vec<Guarded> = (0..n).map(|k| Guarded::new(&vec![0; BYTES], k * 3 + 1)).collect();
        let out: Vec<*mut u8> = dsts.iter_mut().map(Guarded::ptr).collect();
        // SAFETY: all hold so many bytes.
        unsafe { copy(&out, src.as_ptr(), BYTES) };
        for dst in &mut dsts {
            assert!(dst.content() == src, "{n} destinations");
            // SAFETY: the source is the destination.
            unsafe { copy(&[dst.ptr()], dst.ptr(), BYTES) };
            assert!(dst.content() == src, "{n} destinations, in place");
            dst.check_guards(BYTES);
        }
    }
}

/// Places a few bytes apart but for whole pages, where the instruction for whole strings is not used, and past the caches.
#[test]
fn places_that_meet_and_places_past_the_caches_get_all_bytes() {
    const BYTES: usize = 10_000;
    let mut rng = rng();
    let src = random(&mut rng, DataType::Uint8, BYTES);
    for apart in [0, 1, 8, 15, 16, 63] {
        for bytes in [65, 1000, 4096, 9937] {
            let mut memory = vec![0xa5_u8; BYTES + 2 * 4096];
            let at = (src.as_ptr().addr() + apart).wrapping_sub(memory.as_ptr().addr()) % 4096;
            for away in [false, true] {
                memory.fill(0xa5);
                let dst = memory[at..].as_mut_ptr();
                assert_eq!(dst.addr().wrapping_sub(src.as_ptr().addr()) % 4096, apart);
                // SAFETY: both have as many bytes, and do not overlap.
                unsafe {
                    if away {
                        crate::copy_away(dst, src.as_ptr(), bytes)
                    } else {
                        copy_across(dst, src.as_ptr(), bytes, bytes)
                    }
                };
                assert!(memory[at..at + bytes] == src[..bytes], "{apart} apart, {bytes} bytes, away: {away}");
                assert!(memory[..at].iter().chain(&memory[at + bytes..]).all(|b| *b == 0xa5), "{apart} {bytes} {away}");
            }
        }
    }
}
