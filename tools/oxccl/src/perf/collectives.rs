//! The collectives that `perf` measures: names, counts, bandwidth factors, and the library call of one rank.
//!
//! Count conventions follow nccl-tests: a size is the larger of a rank's whole send and receive; blocks are rounded down
//! to 16 bytes. Unlike there, a block that would vanish by this keeps its elements, so that 8 bytes on 2 ranks move data.

use anyhow::{Result, bail};
use oxccl_types::DataType;

use crate::api::Site;

/// A measured collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coll {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    AllToAllV,
    Gather,
    Scatter,
    SendRecv,
    Hypercube,
}

use Coll::*;

impl Coll {
    /// All of them.
    pub const ALL: [Coll; 11] = [
        AllReduce,
        AllGather,
        ReduceScatter,
        Broadcast,
        Reduce,
        AllToAll,
        AllToAllV,
        Gather,
        Scatter,
        SendRecv,
        Hypercube,
    ];

    /// The spelling of command lines.
    pub const fn snake(self) -> &'static str {
        match self {
            AllReduce => "all_reduce",
            AllGather => "all_gather",
            ReduceScatter => "reduce_scatter",
            Broadcast => "broadcast",
            Reduce => "reduce",
            AllToAll => "alltoall",
            AllToAllV => "alltoallv",
            Gather => "gather",
            Scatter => "scatter",
            SendRecv => "sendrecv",
            Hypercube => "hypercube",
        }
    }

    /// The spelling of the JSON lines.
    pub const fn json_name(self) -> &'static str {
        match self {
            AllReduce => "allreduce",
            AllGather => "allgather",
            other => other.snake(),
        }
    }

    /// The collective called `name`; underscores are optional.
    pub fn parse(name: &str) -> Result<Coll, String> {
        let plain = |s: &str| s.replace('_', "").to_ascii_lowercase();
        Coll::ALL
            .into_iter()
            .find(|c| plain(c.snake()) == plain(name))
            .ok_or_else(|| format!("unknown collective; known are {}", Coll::ALL.map(Coll::snake).join(", ")))
    }

    /// Whether an operator is applied.
    pub const fn reduces(self) -> bool {
        matches!(self, AllReduce | ReduceScatter | Reduce)
    }

    /// Whether one rank is the root.
    pub const fn rooted(self) -> bool {
        matches!(self, Broadcast | Reduce | Gather | Scatter)
    }

    /// Whether the buffers are cut into one block per rank.
    pub const fn blocked(self) -> bool {
        !matches!(self, AllReduce | Broadcast | Reduce | SendRecv)
    }

    /// Whether it is made of sends and receives, which need a group.
    pub const fn point_to_point(self) -> bool {
        matches!(self, SendRecv | Hypercube)
    }

    /// Whether the interface allows the call in place.
    pub const fn in_place_allowed(self) -> bool {
        !matches!(self, AllToAll | AllToAllV | SendRecv)
    }

    /// Blocks in a rank's send buffer (of the root, where only it sends).
    pub const fn send_blocks(self, n: usize) -> usize {
        match self {
            ReduceScatter | AllToAll | AllToAllV | Scatter => n,
            _ => 1,
        }
    }

    /// Blocks in a rank's receive buffer (of the root, where only it receives).
    pub const fn recv_blocks(self, n: usize) -> usize {
        match self {
            AllGather | AllToAll | AllToAllV | Gather | Hypercube => n,
            _ => 1,
        }
    }

    /// Elements of a block for `bytes`, before anything is sent. `round` rounds to 16 bytes as nccl-tests does.
    pub fn block_count(self, bytes: usize, dtype: DataType, n: usize, round: bool) -> usize {
        let count = bytes / dtype.size();
        if !self.blocked() {
            return count;
        }
        let block = count / n;
        let unit = 16 / dtype.size();
        if round && block >= unit { block / unit * unit } else { block }
    }

    /// The bytes of algorithm bandwidth: the larger of a rank's send and receive (hypercube: without its own block).
    pub fn size_bytes(self, block: usize, dtype: DataType, n: usize) -> usize {
        block * dtype.size() * if self.blocked() { n } else { 1 }
    }

    /// Algorithm and bus bandwidth in GB/s for a call of `us` microseconds.
    pub fn bandwidth(self, block: usize, dtype: DataType, n: usize, us: f64) -> (f64, f64) {
        if us <= 0.0 {
            return (0.0, 0.0);
        }
        let mut bytes = self.size_bytes(block, dtype, n) as f64;
        let ranks = n as f64;
        if self == Hypercube {
            bytes *= (ranks - 1.0) / ranks;
        }
        let alg = bytes / us * 1e-3;
        let factor = match self {
            AllReduce => 2.0 * (ranks - 1.0) / ranks,
            AllGather | ReduceScatter | AllToAll | AllToAllV | Gather | Scatter => (ranks - 1.0) / ranks,
            Broadcast | Reduce | SendRecv | Hypercube => 1.0,
        };
        (alg, alg * factor)
    }
}

/// What all ranks call: one row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which collective.
    pub coll: Coll,
    /// Element type.
    pub dtype: DataType,
    /// Root, 0 where there is none.
    pub root: usize,
    /// Elements of a block.
    pub block: usize,
    /// Ranks.
    pub ranks: usize,
}

/// Counts and displacements of one rank of an uneven all-to-all, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// Elements to (and from) each peer.
    pub counts: Vec<usize>,
    /// Where each peer's elements begin.
    pub displs: Vec<usize>,
}

impl Call {
    /// Elements of a rank's send buffer.
    pub fn send_count(&self) -> usize {
        self.block * self.coll.send_blocks(self.ranks)
    }

    /// Elements of a rank's receive buffer.
    pub fn recv_count(&self) -> usize {
        self.block * self.coll.recv_blocks(self.ranks)
    }

    /// The table's size column.
    pub fn size_bytes(&self) -> usize {
        self.coll.size_bytes(self.block, self.dtype, self.ranks)
    }

    /// Uneven counts of rccl-tests: rank `r` and peer `d` exchange `(r + d) mod n` shares, and the rest goes where that
    /// is 0. The same for sending and receiving, as the rule is symmetric.
    pub fn uneven(&self, rank: usize) -> Uneven {
        let n = self.ranks;
        let total = self.block * n;
        let share = total * 2 / n / n;
        let rest = total - share * (n - 1) * n / 2;
        let counts: Vec<usize> =
            (0..n).map(|d| (d + rank) % n).map(|k| if k == 0 { rest } else { k * share }).collect();
        let displs = counts
            .iter()
            .scan(0, |at, c| {
                let here = *at;
                *at += c;
                Some(here)
            })
            .collect();
        Uneven { counts, displs }
    }

    /// Byte offsets (send, receive) of the in-place call inside the one buffer of `rank`.
    pub fn in_place_offsets(&self, rank: usize) -> (usize, usize) {
        let own = rank * self.block * self.dtype.size();
        match self.coll {
            AllGather | Gather | Hypercube => (own, 0),
            ReduceScatter | Scatter => (0, own),
            _ => (0, 0),
        }
    }

    /// Enqueues one call of `rank`. `op` is the operator's C value; `uneven` is `self.uneven(rank)`.
    ///
    /// Point-to-point collectives open groups of their own where they have several steps.
    pub fn enqueue(&self, site: &Site, rank: usize, op: i32, uneven: &Uneven) -> Result<()> {
        let (block, root, n) = (self.block, self.root, self.ranks);
        match self.coll {
            AllReduce => site.all_reduce(block, op),
            AllGather => site.all_gather(block),
            ReduceScatter => site.reduce_scatter(block, op),
            Broadcast => site.broadcast(block, root),
            Reduce => site.reduce(block, op, root),
            AllToAll => site.alltoall(block),
            AllToAllV => site.alltoallv(&uneven.counts, &uneven.displs, &uneven.counts, &uneven.displs),
            Gather => site.gather(block, root),
            Scatter => site.scatter(block, root),
            SendRecv => {
                site.send(block, (rank + 1) % n)?;
                site.recv(block, (rank + n - 1) % n)
            }
            Hypercube => bail!("hypercube is run step by step"),
        }
    }

    /// Step `step` of a hypercube all-gather on the receive buffer: the blocks so far go to the partner across
    /// dimension `step`, and its blocks come back.
    pub fn enqueue_hypercube_step(&self, site: &Site, rank: usize, step: u32) -> Result<()> {
        let (mine, peers, peer, blocks) = hypercube_step(rank, step);
        let bytes = self.block * self.dtype.size();
        let at = |first: usize| site.recv.wrapping_add(first * bytes);
        let site = Site { send: at(mine), recv: at(peers), ..*site };
        site.send(blocks * self.block, peer)?;
        site.recv(blocks * self.block, peer)
    }

    /// Number of steps of a hypercube.
    pub fn hypercube_steps(&self) -> u32 {
        self.ranks.trailing_zeros()
    }
}

/// (first own block, first block of the partner, partner, blocks) of a hypercube's step.
fn hypercube_step(rank: usize, step: u32) -> (usize, usize, usize, usize) {
    let blocks = 1usize << step;
    let mine = rank & !(blocks - 1);
    (mine, mine ^ blocks, rank ^ blocks, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_nccl_tests() {
        let f = DataType::Float32;
        assert_eq!(AllReduce.block_count(1024, f, 4, true), 256);
        assert_eq!(AllReduce.block_count(10, f, 3, true), 2);
        assert_eq!(AllGather.block_count(1024, f, 4, true), 64);
        // 1000 bytes on 3 ranks: 83 elements a block, rounded down to a multiple of 4.
        assert_eq!(ReduceScatter.block_count(1000, f, 3, true), 80);
        assert_eq!(ReduceScatter.block_count(1000, f, 3, false), 83);
        assert_eq!(AllGather.size_bytes(80, f, 3), 960);
        // A block smaller than 16 bytes is kept.
        assert_eq!(AllGather.block_count(8, f, 2, true), 1);
        assert_eq!(AllToAll.block_count(48, DataType::Int8, 3, true), 16);
    }

    #[test]
    fn bus_bandwidth_factors() {
        let f = DataType::Float32;
        let bus = |c: Coll| {
            let (alg, bus) = c.bandwidth(c.block_count(4_000_000, f, 4, false), f, 4, 1000.0);
            (alg * 1000.0).round() / 1000.0 + (bus * 1000.0).round()
        };
        // 4 MB in 1 ms: algbw 4 GB/s.
        assert_eq!(bus(AllReduce), 4.0 + 6000.0);
        for c in [AllGather, ReduceScatter, AllToAll, AllToAllV, Gather, Scatter] {
            assert_eq!(bus(c), 4.0 + 3000.0, "{c:?}");
        }
        for c in [Broadcast, Reduce, SendRecv] {
            assert_eq!(bus(c), 4.0 + 4000.0, "{c:?}");
        }
        assert_eq!(bus(Hypercube), 3.0 + 3000.0);
        assert_eq!(AllReduce.bandwidth(1, f, 2, 0.0), (0.0, 0.0));
    }

    #[test]
    fn uneven_counts_match_between_peers_and_add_up() {
        for n in 1..9 {
            let call = Call { coll: AllToAllV, dtype: DataType::Int8, root: 0, block: 96, ranks: n };
            let all: Vec<Uneven> = (0..n).map(|r| call.uneven(r)).collect();
            for r in 0..n {
                assert_eq!(all[r].counts.iter().sum::<usize>(), 96 * n);
                assert_eq!(all[r].displs[n - 1] + all[r].counts[n - 1], 96 * n);
                for d in 0..n {
                    assert_eq!(all[r].counts[d], all[d].counts[r]);
                }
            }
        }
    }

    #[test]
    fn hypercube_gathers_every_block() {
        let n = 8;
        let mut has: Vec<Vec<bool>> = (0..n).map(|r| (0..n).map(|b| b == r).collect()).collect();
        for step in 0..3 {
            let before = has.clone();
            for (r, row) in has.iter_mut().enumerate() {
                let (mine, theirs, peer, blocks) = hypercube_step(r, step);
                let (p_mine, p_theirs, p_peer, p_blocks) = hypercube_step(peer, step);
                assert_eq!((p_mine, p_theirs, p_peer, p_blocks), (theirs, mine, r, blocks));
                for b in theirs..theirs + blocks {
                    assert!(before[peer][b], "step {step}: rank {peer} sends block {b} before it has it");
                    row[b] = true;
                }
            }
        }
        assert!(has.iter().flatten().all(|x| *x));
    }

    #[test]
    fn names() {
        assert_eq!(Coll::parse("allreduce"), Ok(AllReduce));
        assert_eq!(Coll::parse("all_to_all"), Ok(AllToAll));
        assert!(Coll::parse("nothing").is_err());
        assert_eq!(AllGather.json_name(), "allgather");
        assert_eq!(ReduceScatter.json_name(), "reduce_scatter");
    }
}
