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
                map(buf, count, |x: u8| upper(u16::from(x), reciprocal) as u8);
            }
            DataType::Int8 => {
                let reciprocal = reciprocal_of_byte(divisor);
                map(buf, count, |x: i8| {
                    let quotient = upper(u16::from(x.unsigned_abs()), reciprocal) as i8;
                    if x < 0 { quotient.wrapping_neg() } else { quotient }
                });
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
                map(buf, count, |x: i64| {
                    let quotient = reciprocal.divide(x.unsigned_abs()) as i64;
                    if x < 0 { quotient.wrapping_neg() } else { quotient }
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
        let high = ((u128::from(self.multiplier) * u128::from(x)) >> 64) as u64;
        (high + ((x - high) >> 1)) >> self.shift
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
