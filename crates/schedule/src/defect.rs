//! What the verifier finds wrong: kind, place and words.

use crate::ir::{Rank, Schedule};
use std::fmt;

/// Kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An op, chunk or program that means nothing: peer or chunk out of range, unequal lengths, a write to Input.
    Malformed,
    /// Sends and receives of a connection do not match.
    Pairing,
    /// Ranks wait for each other for ever.
    Deadlock,
    /// Two accesses to the same memory, one of them a write, that nothing orders.
    Race,
    /// A peer may still touch a user buffer when the program of its rank ends.
    Exposed,
    /// Memory is read that nothing has been written to.
    Undefined,
    /// A raw contribution is read as Output, or a partial sum as Input.
    Raw,
    /// A contribution is counted twice.
    Double,
    /// Contributions that do not belong together are combined.
    Mixed,
    /// The outputs are not what the collective promises.
    Result,
}

/// Something wrong in a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What kind of thing.
    pub kind: Kind,
    /// The rank.
    pub rank: Rank,
    /// The channel, if it is about one.
    pub channel: Option<u32>,
    /// Index of the op in the channel, if it is about one.
    pub op: Option<usize>,
    /// What is wrong.
    pub what: String,
}

impl Defect {
    /// A defect of the op `op` of a schedule; names the op itself.
    pub(crate) fn at_op(kind: Kind, s: &Schedule, rank: Rank, channel: u32, op: usize, what: String) -> Defect {
        let words = s.programs[rank as usize].channels[channel as usize].get(op).map(|o| format!("{o}: "));
        Defect { kind, rank, channel: Some(channel), op: Some(op), what: words.unwrap_or_default() + &what }
    }

    /// A defect of a whole program.
    pub(crate) fn at_rank(kind: Kind, rank: Rank, what: String) -> Defect {
        Defect { kind, rank, channel: None, op: None, what }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: rank {}", self.kind, self.rank)?;
        if let Some(c) = self.channel {
            write!(f, " channel {c}")?;
        }
        if let Some(o) = self.op {
            write!(f, " op {o}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Defect {}
