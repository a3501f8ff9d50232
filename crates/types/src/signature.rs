//! What a call is, in the few bytes that travel with its data, so that mismatched calls are found.

use crate::{Collective, DataType};

/// The signature of one call. Two calls that meet must have equal signatures (Send meets Recv).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Which collective.
    pub collective: Collective,
    /// Element type.
    pub dtype: DataType,
    /// `ReduceOp::code()`, 0 where nothing is reduced.
    pub op: u8,
    /// Root, or the *receiving* rank of a point-to-point transfer; 0 where there is none.
    pub root: u32,
    /// Elements, as the caller gave them (per block). Travels modulo 2^64.
    pub count: u64,
}

impl Signature {
    /// The signature in 16 bytes: `[collective | dtype << 8 | op << 16 | root << 32, count]`.
    pub fn pack(self) -> [u64; 2] {
        let head =
            self.collective as u64 | (self.dtype as u64) << 8 | (self.op as u64) << 16 | (self.root as u64) << 32;
        [head, self.count]
    }

    /// The reverse of [`Signature::pack`]; `None` when the words are no signature.
    pub fn unpack(w: [u64; 2]) -> Option<Signature> {
        Some(Signature {
            collective: Collective::from_u8(w[0] as u8)?,
            dtype: DataType::from_c(((w[0] >> 8) & 0xff) as i32)?,
            op: (w[0] >> 16) as u8,
            root: (w[0] >> 32) as u32,
            count: w[1],
        })
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(count {}, {}", self.collective, self.count, self.dtype)?;
        if self.collective.reduces() {
            let op = ["sum", "prod", "max", "min", "avg", "mulsum"].get(self.op as usize).unwrap_or(&"?");
            write!(f, ", {op}")?;
        }
        if self.collective.rooted() {
            write!(f, ", root {}", self.root)?;
        }
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks() {
        let s = Signature {
            collective: Collective::Reduce,
            dtype: DataType::Bfloat16,
            op: 3,
            root: 70_000,
            count: 1 << 40,
        };
        assert_eq!(Signature::unpack(s.pack()), Some(s));
        assert_eq!(Signature::unpack([0xff, 0]), None);
        assert_eq!(s.to_string(), "Reduce(count 1099511627776, bfloat16, min, root 70000)");
    }
}
