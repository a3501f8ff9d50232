//! The user-made operators of a communicator.

use oxccl_sys::sync::{AtomicU32, Ordering};
use oxccl_types::{DataType, Error, Result};

use crate::request::{OpScalar, Operator};

/// First value of a user-made operator: the number of built-in ones.
const FIRST: i32 = 5;

/// Operators of one communicator before those of two may have one value.
const STEP: u32 = 1 << 12;
/// Values lie below this, and [`FIRST`] more.
const END: u32 = 1 << 30;

/// Operators by value.
pub(super) struct Table {
    ops: Vec<Option<(OpScalar, DataType)>>,
    /// Makes the values of one communicator others than those of the next, so that none is taken for another's.
    salt: u32,
}

impl Default for Table {
    fn default() -> Table {
        static TABLES: AtomicU32 = AtomicU32::new(0);
        // Not the first one as well: C programs must not count on any value.
        let number = TABLES.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Table { ops: Vec::new(), salt: number.wrapping_mul(STEP) % END }
    }
}

// SAFETY: the addresses of device-resident factors are the caller's, who promised that they may be read when an
// operation runs, on whichever thread that is.
unsafe impl Send for Table {}

impl Table {
    pub(super) fn create(&mut self, scalar: OpScalar, dtype: DataType) -> i32 {
        let entry = Some((scalar, dtype));
        let i = match self.ops.iter().position(Option::is_none) {
            Some(i) => {
                self.ops[i] = entry;
                i
            }
            None => {
                self.ops.push(entry);
                self.ops.len() - 1
            }
        };
        // More than `END` of them have no room in memory.
        FIRST + (i as u32 ^ self.salt) as i32
    }

    fn slot(&mut self, op: i32) -> Option<&mut Option<(OpScalar, DataType)>> {
        let i = u32::try_from(op.checked_sub(FIRST)?).ok()? ^ self.salt;
        self.ops.get_mut(i as usize).filter(|o| o.is_some())
    }

    pub(super) fn destroy(&mut self, op: i32) -> Result<()> {
        match self.slot(op) {
            Some(slot) => {
                *slot = None;
                Ok(())
            }
            None => Err(Error::argument(format!("ncclRedOpDestroy : operator {op} unknown to this communicator."))),
        }
    }

    pub(super) fn find(&mut self, op: i32, dtype: DataType) -> Result<Operator> {
        match self.slot(op).and_then(|s| *s) {
            None => Err(Error::argument(format!("reduction operation {op} unknown to this communicator"))),
            Some((_, made_for)) if made_for != dtype => Err(Error::argument(format!(
                "Data type supplied to user-created ncclRedOp_t does not match type given to reduction operation \
                 (made for {made_for}, used with {dtype})"
            ))),
            Some((scalar, dtype)) => Ok(scalar.operator(dtype)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_until_destroyed() {
        let mut t = Table::default();
        let a = t.create(OpScalar::Host([0; 8]), DataType::Float32);
        let b = t.create(OpScalar::Host([1; 8]), DataType::Int8);
        assert!(a >= FIRST && b > a);
        assert!(t.find(a, DataType::Float32).is_ok());
        assert!(t.find(a, DataType::Int8).is_err());
        t.destroy(a).unwrap();
        assert!(t.destroy(a).is_err() && t.find(a, DataType::Float32).is_err() && t.find(4, DataType::Int8).is_err());
        assert_eq!(t.create(OpScalar::Host([2; 8]), DataType::Int8), a);
    }

    #[test]
    fn an_operator_of_another_communicator_is_unknown() {
        let (mut one, mut other) = (Table::default(), Table::default());
        let of =
            |t: &mut Table| (0..100).map(|_| t.create(OpScalar::Host([0; 8]), DataType::Float32)).collect::<Vec<_>>();
        let (ones, others) = (of(&mut one), of(&mut other));
        for op in ones {
            assert!(one.find(op, DataType::Float32).is_ok() && op >= FIRST);
            assert!(other.find(op, DataType::Float32).is_err() && other.destroy(op).is_err());
        }
        for op in others {
            assert!(one.find(op, DataType::Float32).is_err() && other.destroy(op).is_ok());
        }
        let mut last = Table { ops: Vec::new(), salt: END - STEP };
        for op in of(&mut last) {
            assert!(op < FIRST + END as i32 && last.find(op, DataType::Float32).is_ok());
        }
    }
}
