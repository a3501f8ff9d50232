//! What copies between ranks of one machine cost beyond what they cost a pair of ranks, because others copy at the same time.
//!
//! Measured with 2, 4, 8 and 16 ranks on 16 cores of one processor (Emerald Rapids, docs/performance-cores.md), and taken to hold of
//! others: of the kernel's copies ranks wait for what is in the kernel; of scratch it was not measured elsewhere. It knows no
//! absolute times: those are the constants of the model, which differ.

use crate::cost::{CostModel, block_bytes};
use crate::ir::Shape;
use oxccl_types::Collective;

/// KiB of a buffer from which on most of it lies on large pages, if it is used again and again.
const LARGE_BUFFER_KIB: f64 = 2048.0;

/// How many times as long the kernel's copies between processes take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contention {
    /// What a copy costs whatever its size.
    pub(crate) ops: f64,
    /// What a byte costs.
    pub(crate) bytes: f64,
}

impl Contention {
    /// None.
    const ALONE: Contention = Contention { ops: 1.0, bytes: 1.0 };
}

/// Who copies what lies in the memory of a root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Readers {
    /// So many of the others, all of it or each its block.
    Ranks(u32),
    /// Each of the others a part of the root's block, which it serves for all.
    ByParts,
}

/// That of a collective of `bytes`, as nccl-tests counts them. `readers`: of one with a root.
pub(crate) fn of_kernel(m: &CostModel, shape: &Shape, bytes: u64, readers: Readers) -> Contention {
    let n = f64::from(shape.ranks);
    let block_kib = block_bytes(shape.collective, bytes, shape.ranks) as f64 / 1024.0;
    if n > m.cores {
        if shape.collective == Collective::AllToAll && m.outgrows(shape.collective, bytes, n) {
            // Each reads other pages than the others. Found where memory is the limit.
            return Contention::ALONE;
        }
        // Ranks that read the same pages count their users up and down, one after the other. Of those that share cores.
        let both = 1.0 + 0.25 * (n - 2.0);
        return Contention { ops: both, bytes: both };
    }
    // Who reads from each rank in turn meets others in what the kernel does for any copy, hardly while it copies.
    let spread = 1.0 + 0.1 * (n - 2.0);
    let blocks = match shape.collective {
        Collective::Gather | Collective::Scatter => n,
        Collective::Broadcast => 1.0,
        // What is read from all and written to all keeps memory busier than either.
        Collective::AllReduce => return Contention { ops: spread, bytes: 1.0 + 0.03 * (n - 2.0) },
        _ => return Contention { ops: spread, bytes: 1.0 },
    };
    // A large page is one, where small ones are 512.
    if blocks * block_kib >= LARGE_BUFFER_KIB {
        return Contention { ops: spread, bytes: spread };
    }
    match readers {
        Readers::Ranks(0 | 1) => Contention::ALONE,
        // One rank after the other gets at the pages of the root, and takes twice the time since another had them before.
        Readers::Ranks(readers) => Contention { ops: f64::from(readers), bytes: 2.0 * f64::from(readers) },
        Readers::ByParts => Contention { ops: n - 1.0, bytes: n - 1.0 },
    }
}

/// How many times as long copies into and out of memory that all map take. Of the collectives for which that was found to grow with
/// the ranks; of the others it did not.
pub(crate) fn of_scratch(m: &CostModel, collective: Collective, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    match collective {
        Collective::AllGather | Collective::AllToAll | Collective::Reduce if n <= m.cores => {
            1.0 + 0.05 * (n - 2.0).max(0.0)
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(collective: Collective, ranks: u32) -> Shape {
        Shape { collective, ranks, root: 0, channels: 1, in_place: false, local: 1 }
    }

    /// That of blocks of so many KiB.
    fn of_blocks(m: &CostModel, shape: &Shape, kib: u64) -> Contention {
        let n = shape.ranks as usize;
        let blocks = shape.collective.input_blocks(n).max(shape.collective.output_blocks(n)) as u64;
        of_kernel(m, shape, (blocks * kib) << 10, Readers::Ranks(shape.ranks - 1))
    }

    #[test]
    fn two_ranks_do_not_meet_others() {
        let m = CostModel { cores: 16.0, ..CostModel::default() };
        for collective in [Collective::AllToAll, Collective::Broadcast, Collective::Scatter, Collective::AllReduce] {
            for kib in [1, 1 << 20] {
                assert_eq!(of_blocks(&m, &shape(collective, 2), kib), Contention::ALONE, "{collective}");
            }
            assert_eq!(of_scratch(&m, collective, 2), 1.0);
        }
    }

    #[test]
    fn scratch_costs_more_with_more_ranks_where_that_was_found() {
        let m = CostModel { cores: 16.0, ..CostModel::default() };
        assert!(of_scratch(&m, Collective::AllGather, 16) > of_scratch(&m, Collective::AllGather, 4));
        for (collective, ranks) in
            [(Collective::Broadcast, 16), (Collective::AllReduce, 16), (Collective::AllGather, 17)]
        {
            assert_eq!(of_scratch(&m, collective, ranks), 1.0, "{collective}");
        }
    }

    #[test]
    fn small_pages_of_a_root_are_copied_one_rank_after_the_other() {
        let m = CostModel { cores: 16.0, ..CostModel::default() };
        let bytes = |collective, kib| of_blocks(&m, &shape(collective, 8), kib).bytes;
        assert_eq!(bytes(Collective::Scatter, 64), 14.0);
        assert_eq!(bytes(Collective::Broadcast, 64), 14.0);
        assert!(bytes(Collective::Scatter, 256) < 2.0, "they are large from 2 MiB of the root's buffer on");
        assert_eq!(bytes(Collective::AllGather, 64), 1.0);
    }
}
