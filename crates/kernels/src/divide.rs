//! The truncating division that ends an integer average, in place over one buffer.
//!
//! There is no vector instruction for it: 8- and 32-bit elements go through exact f64 division, 64-bit ones through
//! scalar division.

use oxccl_types::DataType;

/// Divides `count` integers at `buf` by `divisor` (at least 1), truncating toward zero.
///
/// # Safety
/// `buf` is good for `count` elements of `dtype`, of any alignment; `dtype` is an integer type.
pub(crate) unsafe fn divide(dtype: DataType, buf: *mut u8, count: usize, divisor: u64) {
    let d = divisor as f64;
    // A quotient of two integers below 2^32 that f64 rounds up to an integer was that integer: the distance to the
    // next one is at least 1/divisor of it. A divisor beyond 2^53 may be rounded, but then the quotient is 0.
    // SAFETY: the caller's promise for every arm; the quotient is within the element's type.
    unsafe {
        match dtype {
            DataType::Int8 => map(buf, count, |x: i8| (f64::from(x) / d) as i8),
            DataType::Uint8 => map(buf, count, |x: u8| (f64::from(x) / d) as u8),
            DataType::Int32 => {
                map(buf, count, |x: i32| (f64::from(x) / d).to_int_unchecked::<i32>());
            }
            DataType::Uint32 => {
                map(buf, count, |x: u32| (f64::from(x) / d).to_int_unchecked::<i64>() as u32);
            }
            DataType::Int64 => map(buf, count, |x: i64| {
                let quotient = (x.unsigned_abs() / divisor) as i64;
                if x < 0 { quotient.wrapping_neg() } else { quotient }
            }),
            DataType::Uint64 => map(buf, count, |x: u64| x / divisor),
            _ => {}
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
