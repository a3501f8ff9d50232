//! The truncating division that ends an integer average, in place over one buffer.
//!
//! There is no vector instruction for it. The divisor is the same for all elements, so that each is multiplied by its
//! reciprocal instead: 8-bit elements in 16 bits, 32-bit ones in f64, 64-bit ones in 128 bits and one element at a time.
//! The loops are plain Rust, which every level compiles with its own instructions.

use oxccl_types::DataType;

/// Divides `count` integers at `buf` by `divisor` (at least 2), truncating toward zero.
///
/// # Safety
/// `buf` is good for `count` elements of `dtype`, of any alignment; `dtype` is an integer type.
#[inline(always)]
pub(crate) unsafe fn divide(dtype: DataType, buf: *mut u8, count: usize, divisor: u64) {
    // SAFETY: the caller's promise for every arm; the quotient is within the element's type.
    unsafe {
        match dtype {
            DataType::Uint8 => {
                let reciprocal = reciprocal_of_byte(divisor);
                bytes(buf, count, |x: u16| upper(x, reciprocal), |x: u8| u16::from(x));
            }
            DataType::Int8 => {
                let reciprocal = reciprocal_of_byte(divisor);
                let divide = |x: u16| {
                    let sign = ((x as i16) >> 15) as u16;
                    (upper((x ^ sign).wrapping_sub(sign), reciprocal) ^ sign).wrapping_sub(sign)
                };
                bytes(buf, count, divide, |x: u8| i16::from(x as i8) as u16);
            }
            DataType::Int32 => {
                let reciprocal = reciprocal_above(divisor);
                map(buf, count, |x: i32| (f64::from(x) * reciprocal).to_int_unchecked::<i32>());
            }
            DataType::Uint32 => {
                let reciprocal = reciprocal_above(divisor);
                map(buf, count, |x: u32| (f64::from(x) * reciprocal).to_int_unchecked::<u32>());
            }
            DataType::Int64 => {
                let reciprocal = Reciprocal64::new(divisor);
                // Without a branch: signs are random.
                map(buf, count, |x: i64| {
                    let sign = x >> 63;
                    let magnitude = (x ^ sign).wrapping_sub(sign) as u64;
                    (reciprocal.divide(magnitude) as i64 ^ sign).wrapping_sub(sign)
                });
            }
            DataType::Uint64 => {
                let reciprocal = Reciprocal64::new(divisor);
                map(buf, count, |x: u64| reciprocal.divide(x));
            }
            _ => {}
        }
    }
}

/// A number above `2^16 / divisor` by at most 1, or 0 where every quotient is 0. That adds at most 255/65536 to the
/// quotient of a byte, which is at least 1/255 away from the next integer.
fn reciprocal_of_byte(divisor: u64) -> u16 {
    if divisor > 255 { 0 } else { (0x1_0000 / divisor + 1) as u16 }
}

/// The upper half of a 32-bit product.
#[inline(always)]
fn upper(a: u16, b: u16) -> u16 {
    ((u32::from(a) * u32::from(b)) >> 16) as u16
}

/// An f64 at or a little above `1 / divisor`. Times an integer below 2^32 it is at or above the quotient, so that an
/// integer quotient is not missed, by less than a part in 2^51, whereas the distance from any other quotient to the next
/// integer is a part in 2^32. A divisor beyond 2^53 may be rounded, but then the quotient is 0.
fn reciprocal_above(divisor: u64) -> f64 {
    (1.0 / divisor as f64).next_up()
}

/// Division by multiplication with a reciprocal of 65 bits, the uppermost of which is implied (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", figure 4.1).
struct Reciprocal64 {
    multiplier: u64,
    shift: u32,
}

impl Reciprocal64 {
    /// For a `divisor` of at least 2.
    fn new(divisor: u64) -> Reciprocal64 {
        // The least `bits` with `2^bits >= divisor`.
        let bits = u64::BITS - (divisor - 1).leading_zeros();
        let excess = (1u128 << bits) - u128::from(divisor);
        Reciprocal64 { multiplier: ((excess << 64) / u128::from(divisor)) as u64 + 1, shift: bits - 1 }
    }

    #[inline(always)]
    fn divide(&self, x: u64) -> u64 {
        let high = upper_64(self.multiplier, x);
        (high + ((x - high) >> 1)) >> self.shift
    }
}

/// The upper half of a 128-bit product, from products of 32-bit halves, for which there are vector instructions.
#[inline(always)]
fn upper_64(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let (a, a_high, b, b_high) = (a & LOW, a >> 32, b & LOW, b >> 32);
    let first = a_high * b + ((a * b) >> 32);
    let second = a * b_high + (first & LOW);
    a_high * b_high + (first >> 32) + (second >> 32)
}

/// Divides bytes in 16-bit lanes, two of them in place in each word, so that they need not be spread and gathered.
/// `extend` gives a byte's value in 16 bits, of whose quotient the lower byte counts.
///
/// # Safety
/// `buf` is good for `count` bytes.
#[inline(always)]
unsafe fn bytes(buf: *mut u8, count: usize, divide: impl Fn(u16) -> u16, extend: impl Fn(u8) -> u16) {
    // SAFETY: the caller's promise; two bytes for each of `count / 2` words, then the last byte of an odd number.
    unsafe {
        map(buf, count / 2, |word: u16| {
            let word = word.to_le();
            let (low, high) = (divide(extend(word as u8)), divide(extend((word >> 8) as u8)));
            (low & 0xff | high << 8).to_le()
        });
        if count % 2 == 1 {
            map(buf.add(count - 1), 1, |x: u8| divide(extend(x)) as u8);
        }
    }
}

/// # Safety
/// `buf` is good for `count` elements `T`, of any alignment.
#[inline(always)]
unsafe fn map<T: Copy>(buf: *mut u8, count: usize, f: impl Fn(T) -> T) {
    let p = buf.cast::<T>();
    for i in 0..count {
        // SAFETY: the caller's promise; `i < count`.
        unsafe { p.add(i).write_unaligned(f(p.add(i).read_unaligned())) }
    }
}
