//! Reduction operators.

use crate::DataType;

/// A scalar of a `PreMulSum` operator: the raw little-endian bytes of one element of `dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Type of the element.
    pub dtype: DataType,
    /// The element in the first `dtype.size()` bytes, little endian; the rest is zero.
    pub bytes: [u8; 8],
}

/// A reduction operator.
///
/// Semantics follow the C interface: integer sums and products wrap; `Avg` of floats multiplies the sum by
/// 1/ranks, `Avg` of integers divides the wrapped sum by the number of ranks, truncating toward zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum over ranks.
    Sum,
    /// Product over ranks.
    Prod,
    /// Greatest element over ranks.
    Max,
    /// Least element over ranks.
    Min,
    /// Sum over ranks divided by their number.
    Avg,
    /// Sum over ranks of `scalar * element`; every rank may bring a scalar of its own.
    PreMulSum(Scalar),
}

impl ReduceOp {
    /// The spelling of nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Avg => "avg",
            ReduceOp::PreMulSum(_) => "mulsum",
        }
    }

    /// The code that signatures carry: the C value, 5 for every `PreMulSum`.
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max => 2,
            ReduceOp::Min => 3,
            ReduceOp::Avg => 4,
            ReduceOp::PreMulSum(_) => 5,
        }
    }
}

impl std::fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
