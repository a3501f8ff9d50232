//! The element types that travel: which Rust types they are and how the wire names them.
//!
//! Knows nothing of buffers or communicators.

use oxccl_types::{DataType, ReduceOp, Scalar};

mod sealed {
    pub trait Sealed {}
}

/// A type that collectives move and reduce.
///
/// Sealed: the twelve types of `ncclDataType_t` are the only ones. Every bit pattern of the type's size is a valid
/// value, so bytes that arrive from a peer are always an element.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type's name on the wire and in the C interface.
    const DATA_TYPE: DataType;
    /// The value whose bits are all zero.
    const ZERO: Self;

    /// The element's little-endian bytes, padded with zeros to eight.
    fn to_scalar_bytes(self) -> [u8; 8];
}

macro_rules! element {
    ($($type:ty, $name:ident, $zero:expr, $bytes:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DATA_TYPE: DataType = DataType::$name;
            const ZERO: Self = $zero;
            fn to_scalar_bytes(self) -> [u8; 8] {
                let element = $bytes(self);
                let mut all = [0; 8];
                all[..element.len()].copy_from_slice(&element);
                all
            }
        }
        const _: () = assert!(size_of::<$type>() == DataType::$name.size());
    )*};
}

element! {
    i8, Int8, 0, i8::to_le_bytes;
    u8, Uint8, 0, u8::to_le_bytes;
    i32, Int32, 0, i32::to_le_bytes;
    u32, Uint32, 0, u32::to_le_bytes;
    i64, Int64, 0, i64::to_le_bytes;
    u64, Uint64, 0, u64::to_le_bytes;
    half::f16, Float16, half::f16::ZERO, half::f16::to_le_bytes;
    f32, Float32, 0.0, f32::to_le_bytes;
    f64, Float64, 0.0, f64::to_le_bytes;
    half::bf16, Bfloat16, half::bf16::ZERO, half::bf16::to_le_bytes;
    F8E4M3, Float8e4m3, F8E4M3(0), |v: F8E4M3| [v.0];
    F8E5M2, Float8e5m2, F8E5M2(0), |v: F8E5M2| [v.0];
}

macro_rules! float8 {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(
            /// The eight bits of the number.
            pub u8,
        );

        impl $name {
            /// The nearest number of this type, ties to even; values beyond the range become the largest finite one.
            pub fn from_f32(value: f32) -> $name {
                $name(float8::$name::from_f32(value).to_bits())
            }

            /// The number, exactly.
            pub fn to_f32(self) -> f32 {
                float8::$name::from_bits(self.0).to_f32()
            }
        }
    )*};
}

float8! {
    /// An 8-bit float with 4 exponent and 3 mantissa bits (OCP E4M3): up to 448, no infinity.
    F8E4M3;
    /// An 8-bit float with 5 exponent and 2 mantissa bits (OCP E5M2): up to 57344.
    F8E5M2;
}

/// The operator "sum over ranks of `factor * element`" for elements of type `T`.
///
/// Every rank may bring a factor of its own. In the C interface: `ncclRedOpCreatePreMulSum` with a host immediate.
///
/// ```
/// use oxccl::{Communicator, pre_mul_sum};
/// let comm = Communicator::init_all(1)?.remove(0);
/// let mut x = [1.0_f32, 2.0];
/// comm.all_reduce_in_place(&mut x, pre_mul_sum(0.5_f32))?;
/// assert_eq!(x, [0.5, 1.0]);
/// # Ok::<(), oxccl::Error>(())
/// ```
pub fn pre_mul_sum<T: Element>(factor: T) -> ReduceOp {
    ReduceOp::PreMulSum(Scalar { dtype: T::DATA_TYPE, bytes: factor.to_scalar_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float8_decodes_and_saturates() {
        assert_eq!(F8E4M3::from_f32(1.0).to_f32(), 1.0);
        assert_eq!(F8E4M3::from_f32(1e9).to_f32(), 448.0);
        assert_eq!(F8E5M2::from_f32(-1.5).to_f32(), -1.5);
        assert_eq!(F8E5M2::from_f32(1e9).to_f32(), 57344.0);
    }

    #[test]
    fn scalars_are_little_endian_and_padded() {
        assert_eq!(0x0102_i32.to_scalar_bytes(), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(half::bf16::ONE.to_scalar_bytes(), [0x80, 0x3f, 0, 0, 0, 0, 0, 0]);
        assert_eq!(1.0_f64.to_scalar_bytes(), 1.0_f64.to_bits().to_le_bytes());
    }
}
