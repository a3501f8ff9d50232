//! The intermediate representation: what every rank does, in chunks and peers.
//!
//! A [`Program`] belongs to one rank; a [`Schedule`] is the programs of all ranks. A program is a list of [`Op`]s per
//! channel that the executor *repeats over pieces*: a chunk longer than a slot is cut into pieces, and iteration `k`
//! runs the whole list on piece `k` of every chunk. So the length of a program does not depend on the message.
//!
//! Two kinds of ops live side by side. *Message ops* (`Send`, `Recv`...) go through connections; each moves one piece
//! and takes one slot of its connection; credits belong to the connection. *Direct ops* (`Move`, `Signal`, `Wait`)
//! touch the mapped memory of peers; a program that uses them starts with a rendezvous of all ranks (the executor's
//! entry barrier), after which every rank may read and write what the schedule says.
//!
//! It knows no bytes, no types and no transports.

use oxccl_types::Collective;
use std::fmt;

/// Number of a rank in its communicator.
pub type Rank = u32;

/// What a schedule is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: Rank,
    /// Root; 0 where the collective has none.
    pub root: Rank,
    /// Number of independent lanes.
    pub channels: u32,
    /// Whether input and output overlap as the collective's in-place rule says.
    pub in_place: bool,
    /// Consecutive ranks, beginning with 0, `local`, `2 * local`..., of which each such group shares memory; 1 where that is not known,
    /// or all do. Only what goes over connections looks at it, and only where it divides the ranks.
    pub local: Rank,
}

/// Which memory a chunk lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The caller's send buffer: raw contributions.
    Input,
    /// The caller's receive buffer.
    Output,
    /// Memory of the communicator that every local rank has mapped. It has two halves; iteration `k` uses half
    /// `k % 2`. `block` numbers the slots of a half.
    Scratch,
}

/// Part `part` of `parts` of a block. A block of Input or Output is `count` elements (alltoallv: the count for that
/// peer); block `b` follows block `b - 1`. For Scratch, `block` is a slot and `part / parts` only gives the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chunk {
    /// Which memory.
    pub buffer: Buffer,
    /// Block, or slot of Scratch.
    pub block: u32,
    /// Index of the part, below `parts`.
    pub part: u32,
    /// Number of equal parts the block is cut into.
    pub parts: u32,
}

/// A chunk in the memory of `rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Whose memory.
    pub rank: Rank,
    /// Which chunk of it.
    pub chunk: Chunk,
}

/// One step of a rank. `op` stands for the collective's reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants' texts say what the fields are")]
pub enum Op {
    /// Send a piece of `src` to `to`. The source may be overwritten once the op is done.
    Send { to: Rank, src: Chunk },
    /// Receive a piece from `from` into `dst`.
    Recv { from: Rank, dst: Chunk },
    /// `dst = op(received, src)`.
    RecvReduce { from: Rank, src: Chunk, dst: Chunk },
    /// `x = op(received, src)`; send `x`; store it in `dst` if there is one.
    RecvReduceSend { from: Rank, to: Rank, src: Chunk, dst: Option<Chunk> },
    /// Receive into `dst` and send the same on.
    RecvCopySend { from: Rank, to: Rank, dst: Chunk },
    /// Local copy; nothing to do when both are the same memory (in place).
    Copy { src: Chunk, dst: Chunk },
    /// Local `dst = op(a, b)`; `dst` may be `a` or `b`.
    Reduce { a: Chunk, b: Chunk, dst: Chunk },
    /// Read `srcs` in the mapped memory of their ranks, combine them with `op` (rounding once), store to all `dsts`.
    /// A source may be the same memory as a destination; partial overlap is a defect.
    Move { srcs: Vec<Place>, dsts: Vec<Place> },
    /// Raise my epoch of this channel by one; everything I did before is visible to whoever waits for it.
    Signal,
    /// Wait until `rank` has signalled `epoch` times (counted from 1) in this iteration of this channel.
    Wait { rank: Rank, epoch: u32 },
}

/// What one rank does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// The rank.
    pub rank: Rank,
    /// Ops of each channel. Channels run independently of each other.
    pub channels: Vec<Vec<Op>>,
    /// Slots of Scratch that one channel uses in a half. The same on every rank.
    pub scratch_slots: u32,
    /// Signals of one iteration of the rank that signals most. The same on every rank.
    pub epochs: u32,
}

/// The programs of all ranks: for the verifier, the oracle, the simulator and drawings only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What it is for.
    pub shape: Shape,
    /// Name of the algorithm that made it.
    pub algorithm: &'static str,
    /// One program per rank, by rank.
    pub programs: Vec<Program>,
}

/// What an algorithm needs of the ranks' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// Connections only: works between any ranks.
    Messages,
    /// Every rank has mapped the Input and Output of every other (all on one machine, memory of the device).
    MappedUser,
    /// Every rank has mapped the Scratch of every other (all on one machine, any memory).
    MappedScratch,
}

impl Shape {
    /// Blocks of Input that `rank` has: none where only the root gives.
    pub fn input_blocks(&self, rank: Rank) -> u32 {
        match self.collective {
            Collective::Broadcast | Collective::Scatter if rank != self.root => 0,
            c => c.input_blocks(self.ranks as usize) as u32,
        }
    }

    /// Blocks of Output that `rank` has: none where only the root receives.
    pub fn output_blocks(&self, rank: Rank) -> u32 {
        match self.collective {
            Collective::Reduce | Collective::Gather if rank != self.root => 0,
            c => c.output_blocks(self.ranks as usize) as u32,
        }
    }

    /// The block of Input and the block of Output that are the same memory on `rank`, if any are.
    pub fn aliased_blocks(&self, rank: Rank) -> Option<(u32, u32)> {
        if !self.in_place {
            return None;
        }
        match self.collective {
            Collective::AllReduce => Some((0, 0)),
            Collective::Broadcast | Collective::Reduce => (rank == self.root).then_some((0, 0)),
            Collective::ReduceScatter => Some((rank, 0)),
            Collective::AllGather => Some((0, rank)),
            Collective::Gather => (rank == self.root).then_some((0, rank)),
            Collective::Scatter => (rank == self.root).then_some((rank, 0)),
            _ => None,
        }
    }
}

impl Chunk {
    /// A whole block of `buffer`.
    pub const fn whole(buffer: Buffer, block: u32) -> Chunk {
        Chunk { buffer, block, part: 0, parts: 1 }
    }
}

impl Op {
    /// The rank whose message this op receives, if it receives one.
    pub fn receives_from(&self) -> Option<Rank> {
        match *self {
            Op::Recv { from, .. }
            | Op::RecvReduce { from, .. }
            | Op::RecvReduceSend { from, .. }
            | Op::RecvCopySend { from, .. } => Some(from),
            _ => None,
        }
    }

    /// The rank to which this op sends a message, if it sends one.
    pub fn sends_to(&self) -> Option<Rank> {
        match *self {
            Op::Send { to, .. } | Op::RecvReduceSend { to, .. } | Op::RecvCopySend { to, .. } => Some(to),
            _ => None,
        }
    }

    /// What this op, run by `me`, reads and what it writes.
    pub fn accesses(&self, me: Rank) -> (Vec<Place>, Vec<Place>) {
        let at = |chunk: &Chunk| Place { rank: me, chunk: *chunk };
        match self {
            Op::Send { src, .. } => (vec![at(src)], vec![]),
            Op::Recv { dst, .. } | Op::RecvCopySend { dst, .. } => (vec![], vec![at(dst)]),
            Op::RecvReduce { src, dst, .. } | Op::Copy { src, dst } => (vec![at(src)], vec![at(dst)]),
            Op::RecvReduceSend { src, dst, .. } => (vec![at(src)], dst.iter().map(at).collect()),
            Op::Reduce { a, b, dst } => (vec![at(a), at(b)], vec![at(dst)]),
            Op::Move { srcs, dsts } => (srcs.clone(), dsts.clone()),
            Op::Signal | Op::Wait { .. } => (vec![], vec![]),
        }
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.buffer {
            Buffer::Input => "in",
            Buffer::Output => "out",
            Buffer::Scratch => "scratch",
        };
        write!(f, "{name}{}", self.block)?;
        if self.parts > 1 { write!(f, ".{}/{}", self.part, self.parts) } else { Ok(()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rank, self.chunk)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |places: &[Place]| places.iter().map(Place::to_string).collect::<Vec<_>>().join("+");
        match self {
            Op::Send { to, src } => write!(f, "Send {src} to {to}"),
            Op::Recv { from, dst } => write!(f, "Recv {dst} from {from}"),
            Op::RecvReduce { from, src, dst } => write!(f, "RecvReduce {dst} = {src} + from {from}"),
            Op::RecvReduceSend { from, to, src, dst: None } => write!(f, "RecvReduceSend {src} + from {from} to {to}"),
            Op::RecvReduceSend { from, to, src, dst: Some(dst) } => {
                write!(f, "RecvReduceSend {dst} = {src} + from {from} to {to}")
            }
            Op::RecvCopySend { from, to, dst } => write!(f, "RecvCopySend {dst} from {from} to {to}"),
            Op::Copy { src, dst } => write!(f, "Copy {dst} = {src}"),
            Op::Reduce { a, b, dst } => write!(f, "Reduce {dst} = {a} + {b}"),
            Op::Move { srcs, dsts } => write!(f, "Move {} = {}", list(dsts), list(srcs)),
            Op::Signal => write!(f, "Signal"),
            Op::Wait { rank, epoch } => write!(f, "Wait {rank} epoch {epoch}"),
        }
    }
}

impl Program {
    /// Whether the program touches peers' memory and therefore starts with a rendezvous.
    pub fn is_direct(&self) -> bool {
        self.channels.iter().flatten().any(|o| matches!(o, Op::Move { .. } | Op::Signal | Op::Wait { .. }))
    }
}

/// Elements `[start, end)` of part `part` of `parts` of a block of `len` elements. Boundaries are multiples of
/// `align` elements except the last, so parts differ by at most `align`; late parts of a short block are empty.
pub fn part_range(len: u64, part: u32, parts: u32, align: u64) -> std::ops::Range<u64> {
    if parts == 1 {
        return 0..len;
    }
    let cells = len.div_ceil(align);
    let at = |p: u32| {
        // Wide divisions take tens of nanoseconds, and nobody has so many cells.
        let cell = match cells.checked_mul(u64::from(p)) {
            Some(product) => product / u64::from(parts),
            None => (u128::from(cells) * u128::from(p) / u128::from(parts)) as u64,
        };
        cell.saturating_mul(align).min(len)
    };
    at(part)..at(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_block_without_gap_or_overlap() {
        for len in [0u64, 1, 15, 16, 17, 1000, u64::from(u32::MAX) * 7, u64::MAX / 2] {
            for parts in 1..9 {
                for align in [1, 16] {
                    let mut end = 0;
                    for p in 0..parts {
                        let r = part_range(len, p, parts, align);
                        assert_eq!(r.start, end);
                        assert!(r.end >= r.start);
                        end = r.end;
                    }
                    assert_eq!(end, len);
                }
            }
        }
    }

    /// The verifier compares chunks of different parts as fractions of their block.
    #[test]
    fn equal_fractions_have_equal_boundaries() {
        for len in [0u64, 5, 16, 100, 4097] {
            for (parts, finer) in [(1, 6), (2, 6), (3, 6), (4, 12), (17, 68)] {
                for p in 0..parts {
                    let fine = |x| part_range(len, x * (finer / parts), finer, 16).start;
                    assert_eq!(part_range(len, p, parts, 16).start, fine(p), "{len} {p}/{parts} {finer}");
                }
            }
        }
    }
}
