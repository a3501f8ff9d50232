//! Numbers every cell of memory that a schedule can touch, so that equal memory has equal numbers.
//!
//! A block is cut into `lcm(parts)` times `pieces` cells: piece `k` of every chunk is a whole number of cells, and
//! chunks of different parts can be compared. In-place buffers map to the same cells.

use crate::defect::{Defect, Kind};
use crate::ir::{Buffer, Chunk, Place, Rank, Schedule, Shape};
use oxccl_types::Collective;
use std::collections::BTreeSet;
use std::ops::Range;

/// Most cells of a block; a schedule that mixes parts so badly is refused.
const MOST_CELLS: u64 = 1 << 20;

pub(crate) struct Layout {
    pub(crate) shape: Shape,
    /// Least common multiple of the parts of all chunks.
    lcm: u64,
    pieces: u64,
    /// First cell of each rank's user memory: its Input, then its Output.
    user: Vec<usize>,
    /// First cell of all Scratch.
    scratch: usize,
    /// Slots of a half, and cells of a slot.
    slots: usize,
    width: usize,
    /// Two ranks write the scratch in turns, see [`crate::verify::verify_in_turns`].
    turns: bool,
}

impl Layout {
    /// Numbers the memory of `s`, run in `pieces` iterations.
    pub(crate) fn new(s: &Schedule, pieces: u32) -> Result<Layout, Defect> {
        let (mut all, mut in_scratch) = (BTreeSet::from([1]), BTreeSet::new());
        for program in &s.programs {
            for op in program.channels.iter().flatten() {
                let (reads, writes) = op.accesses(program.rank);
                for Place { chunk, .. } in reads.iter().chain(&writes) {
                    all.insert(u64::from(chunk.parts.max(1)));
                    if chunk.buffer == Buffer::Scratch {
                        in_scratch.insert(u64::from(chunk.parts.max(1)));
                    }
                }
            }
        }
        let pieces = u64::from(pieces);
        let mut lcm = 1;
        for p in all {
            lcm = lcm / gcd(lcm, p) * p;
            if lcm * pieces > MOST_CELLS {
                return Err(Defect::at_rank(Kind::Malformed, 0, format!("parts have no common measure below {lcm}")));
            }
        }
        let per_block = (lcm * pieces) as usize;
        let mut user = Vec::with_capacity(s.programs.len());
        let mut end = 0;
        for rank in 0..s.shape.ranks {
            user.push(end);
            end += (s.shape.input_blocks(rank) + s.shape.output_blocks(rank)) as usize * per_block;
        }
        let width = in_scratch.first().map_or(0, |p| (lcm / p) as usize);
        let slots = s.programs.iter().map(|p| p.scratch_slots as usize).max().unwrap_or(0);
        Ok(Layout { shape: s.shape, lcm, pieces, user, scratch: end, slots, width, turns: false })
    }

    /// The same memory, of which the scratch is written in turns.
    pub(crate) fn in_turns(self) -> Layout {
        Layout { turns: true, ..self }
    }

    /// Cells of a block.
    pub(crate) fn per_block(&self) -> usize {
        (self.lcm * self.pieces) as usize
    }

    /// Number of cells altogether.
    pub(crate) fn len(&self) -> usize {
        let halves = 2 * self.user.len() * self.shape.channels as usize;
        self.scratch + halves * self.slots * self.width
    }

    /// Cells of piece `piece` of a chunk, as channel `channel` sees it.
    pub(crate) fn cells(&self, place: &Place, channel: u32, piece: u32) -> Range<usize> {
        let Place { rank, chunk } = *place;
        let width = (self.lcm / u64::from(chunk.parts)) as usize;
        let start = if chunk.buffer == Buffer::Scratch {
            let (owner, part) = match self.turns {
                true => (rank ^ (piece % 2), 0),
                false => (rank, piece as usize % 2),
            };
            // Where ranks take turns and each gives one block, that goes to the same place.
            let one = self.turns && self.shape.collective != Collective::AllReduce;
            let block = if one { 0 } else { chunk.block as usize };
            let lane = owner as usize * self.shape.channels as usize + channel as usize;
            self.scratch + ((2 * lane + part) * self.slots + block) * self.width
        } else {
            let in_block = (chunk.part as usize * self.pieces as usize + piece as usize) * width;
            self.block(rank, chunk.buffer, chunk.block).start + in_block
        };
        start..start + width
    }

    /// Cells of a whole block of user memory.
    pub(crate) fn block(&self, rank: Rank, buffer: Buffer, block: u32) -> Range<usize> {
        let inputs = self.shape.input_blocks(rank);
        let alias = self.shape.aliased_blocks(rank);
        let index = match (buffer, alias) {
            (Buffer::Output, Some((input, output))) if block == output => input,
            (Buffer::Output, _) => inputs + block,
            _ => block,
        };
        let start = self.user[rank as usize] + index as usize * self.per_block();
        start..start + self.per_block()
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether two chunks are the same share of their blocks, so that they have equal lengths.
pub(crate) fn same_extent(a: &Chunk, b: &Chunk) -> bool {
    (a.part, a.parts) == (b.part, b.parts)
}
