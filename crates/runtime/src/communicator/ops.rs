//! The user-made operators of a communicator.

use oxccl_types::{DataType, Error, Result};

use crate::request::{OpScalar, Operator};

/// First value of a user-made operator: the number of built-in ones.
const FIRST: i32 = 5;

/// Operators by value.
#[derive(Default)]
pub(super) struct Table {
    ops: Vec<Option<(OpScalar, DataType)>>,
}

// SAFETY: the addresses of device-resident factors are the caller's, who promised that they may be read when an
// operation runs, on whichever thread that is.
unsafe impl Send for Table {}

impl Table {
    pub(super) fn create(&mut self, scalar: OpScalar, dtype: DataType) -> i32 {
        let entry = Some((scalar, dtype));
        match self.ops.iter().position(Option::is_none) {
            Some(i) => {
                self.ops[i] = entry;
                FIRST + i as i32
            }
            None => {
                self.ops.push(entry);
                FIRST + self.ops.len() as i32 - 1
            }
        }
    }

    fn slot(&mut self, op: i32) -> Option<&mut Option<(OpScalar, DataType)>> {
        let i = usize::try_from(op.checked_sub(FIRST)?).ok()?;
        self.ops.get_mut(i).filter(|o| o.is_some())
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
}
