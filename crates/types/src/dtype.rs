//! The twelve element types of the C interface.

/// An element type. The discriminants are those of `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataType {
    /// Signed 8-bit integer.
    Int8 = 0,
    /// Unsigned 8-bit integer.
    Uint8 = 1,
    /// Signed 32-bit integer.
    Int32 = 2,
    /// Unsigned 32-bit integer.
    Uint32 = 3,
    /// Signed 64-bit integer.
    Int64 = 4,
    /// Unsigned 64-bit integer.
    Uint64 = 5,
    /// IEEE 754 binary16.
    Float16 = 6,
    /// IEEE 754 binary32.
    Float32 = 7,
    /// IEEE 754 binary64.
    Float64 = 8,
    /// bfloat16: the upper half of a binary32.
    Bfloat16 = 9,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinity.
    Float8e4m3 = 10,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits.
    Float8e5m2 = 11,
}

impl DataType {
    /// All types, in the order of their C values.
    pub const ALL: [DataType; 12] = [
        DataType::Int8,
        DataType::Uint8,
        DataType::Int32,
        DataType::Uint32,
        DataType::Int64,
        DataType::Uint64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Bfloat16,
        DataType::Float8e4m3,
        DataType::Float8e5m2,
    ];

    /// The type with the C value `v`, or `None` outside `0..12`.
    #[inline]
    pub fn from_c(v: i32) -> Option<DataType> {
        usize::try_from(v).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DataType::Int8 | DataType::Uint8 | DataType::Float8e4m3 | DataType::Float8e5m2 => 1,
            DataType::Float16 | DataType::Bfloat16 => 2,
            DataType::Int32 | DataType::Uint32 | DataType::Float32 => 4,
            DataType::Int64 | DataType::Uint64 | DataType::Float64 => 8,
        }
    }

    /// Whether the type is one of the six floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            DataType::Float16
                | DataType::Float32
                | DataType::Float64
                | DataType::Bfloat16
                | DataType::Float8e4m3
                | DataType::Float8e5m2
        )
    }

    /// The spelling of nccl-tests (`float`, `half`, `fp8_e4m3` ...).
    pub const fn name(self) -> &'static str {
        match self {
            DataType::Int8 => "int8",
            DataType::Uint8 => "uint8",
            DataType::Int32 => "int32",
            DataType::Uint32 => "uint32",
            DataType::Int64 => "int64",
            DataType::Uint64 => "uint64",
            DataType::Float16 => "half",
            DataType::Float32 => "float",
            DataType::Float64 => "double",
            DataType::Bfloat16 => "bfloat16",
            DataType::Float8e4m3 => "fp8_e4m3",
            DataType::Float8e5m2 => "fp8_e5m2",
        }
    }
}

impl std::fmt::Display for DataType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_values_round_trip() {
        for (i, t) in DataType::ALL.iter().enumerate() {
            assert_eq!(*t as usize, i);
            assert_eq!(DataType::from_c(i as i32), Some(*t));
        }
        assert_eq!(DataType::from_c(-1), None);
        assert_eq!(DataType::from_c(12), None);
    }
}
