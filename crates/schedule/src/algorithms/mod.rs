//! The algorithms: one file and one row of [`ALGORITHMS`] each. A rank generates only its own program.
//!
//! Rules that every algorithm keeps, because pieces and in-place buffers depend on them:
//! * all chunks through which the same data flows are cut into the same number of parts: iteration `k` may only use
//!   what iteration `k` (or an earlier one) produced, so a step must not need a larger chunk than the step before it;
//! * a chunk of Input is read as Input only while it holds the caller's raw contribution; partial sums live in Output
//!   or Scratch and are read under that name (an executor scales contributions when it reads Input);
//! * Output of a rank that receives nothing, and Input of a rank that gives nothing, do not exist.

use crate::ir::{Buffer, Chunk, Needs, Op, Place, Program, Rank, Schedule, Shape};
use oxccl_types::Collective;

mod binomial;
mod doubling;
mod flat;
pub(crate) mod hierarchical;
mod leader;
mod linear;
mod one_shot;
mod pairwise;
mod pat;
mod recursive;
mod relay;
mod ring;
pub(crate) mod shared_one_shot;
mod staged_one_shot;
mod staged_two_shot;
pub(crate) mod tree;
mod two_shot;

pub(crate) use recursive::AHEAD;

/// An algorithm: what it serves, what it needs and how it makes the program of a rank.
pub struct Algorithm {
    /// Name, as in the environment and in drawings.
    pub name: &'static str,
    /// The collectives it serves.
    pub collectives: &'static [Collective],
    /// What it needs of the ranks' memory.
    pub needs: Needs,
    /// Fewest slots per connection with which it cannot deadlock, where a fused op (`RecvReduceSend`,
    /// `RecvCopySend`) keeps the slot it reads until it has the slot it writes. 0: it sends no messages.
    pub min_slots: u32,
    /// One line for people.
    pub doc: &'static str,
    /// Whether it can serve a shape whose collective is listed (beyond what [`Algorithm::supports`] checks).
    accepts: fn(&Shape) -> bool,
    /// The program of a rank among two or more.
    build: fn(&Shape, Rank) -> Program,
}

impl std::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Algorithm").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl Algorithm {
    /// Whether it can make programs for `shape`: the collective is listed, ranks and channels are not 0, the root is
    /// a rank, and the collective has an in-place rule if `in_place` is asked.
    pub fn supports(&self, shape: &Shape) -> bool {
        let all_to_all = matches!(shape.collective, Collective::AllToAll | Collective::AllToAllV);
        self.collectives.contains(&shape.collective)
            && shape.ranks > 0
            && shape.channels > 0
            && shape.root < shape.ranks
            && !(shape.in_place && all_to_all)
            && (self.accepts)(shape)
    }

    /// Whether no rank forwards or combines what it receives: every program is sends of Input, receives into Output and
    /// copies, so all of it may progress at once. The same for all ranks.
    pub fn exchanges(&self, collective: Collective) -> bool {
        matches!(self.name, "pairwise" | "flat" | "linear") && !collective.reduces()
    }

    /// Whether all ranks must work in place, or none, which nobody knows when an algorithm is chosen: the result of the one is
    /// the input that the other still reads.
    pub fn needs_all_alike(&self, collective: Collective) -> bool {
        self.name == "one_shot" && collective == Collective::AllReduce
    }

    /// Whether partners combine the same two values, each what it has with what has come from the other: for equal bits on both the
    /// executor has to put that of the lower rank first (of two zeros the second is kept by a maximum).
    pub fn combines_on_both_sides(&self) -> bool {
        matches!(self.name, "doubling" | "hierarchical" | "leader")
    }

    /// Whether it serves `collective` of so many ranks where nobody has asked for it.
    pub fn is_usual(&self, collective: Collective, ranks: Rank) -> bool {
        self.name != "linear" || linear::usual(collective).contains(&ranks)
    }

    /// The program of `rank`. A single rank copies its input. `shape` must be supported and `rank` be one of it.
    pub fn program(&self, shape: &Shape, rank: Rank) -> Program {
        debug_assert!(self.supports(shape) && rank < shape.ranks);
        if shape.ranks == 1 { copy_only(shape, rank) } else { (self.build)(shape, rank) }
    }

    /// The programs of all ranks: for verifier, oracle and drawings. `shape` must be supported.
    pub fn schedule(&self, shape: &Shape) -> Schedule {
        let programs = (0..shape.ranks).map(|r| self.program(shape, r)).collect();
        Schedule { shape: *shape, algorithm: self.name, programs }
    }
}

/// The algorithm called `name`.
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|a| a.name == name)
}

/// The algorithms that support `shape`, in the order of the table.
pub fn supporting(shape: &Shape) -> impl Iterator<Item = &'static Algorithm> + '_ {
    ALGORITHMS.iter().filter(|a| a.supports(shape))
}

use Collective::{AllGather, AllReduce, AllToAll, AllToAllV, Broadcast, Gather, Reduce, ReduceScatter, Scatter};

/// All algorithms.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "one_shot",
        collectives: &[AllReduce, Broadcast, Reduce, ReduceScatter, AllGather, Gather, Scatter, AllToAll],
        needs: Needs::MappedUser,
        min_slots: 0,
        doc: "each rank reads what it needs straight from the peers' inputs; least latency",
        accepts: |_| true,
        build: one_shot::program,
    },
    Algorithm {
        name: "two_shot",
        collectives: &[AllReduce, Broadcast, Reduce, AllGather],
        needs: Needs::MappedUser,
        min_slots: 0,
        doc: "each rank serves one part, or its block, for everyone: reads it from all inputs, writes it to all outputs; least traffic",
        accepts: |_| true,
        build: two_shot::program,
    },
    Algorithm {
        name: "shared_one_shot",
        collectives: &[Broadcast, Reduce, Gather, Scatter],
        needs: Needs::MappedUser,
        min_slots: 0,
        doc: "one_shot in which the root carries a sixth of the transfer, or the blocks of 3 of 5 others, or two parts of a reduction: where the kernel copies",
        accepts: |_| true,
        build: shared_one_shot::program,
    },
    Algorithm {
        name: "staged_one_shot",
        collectives: &[AllReduce, Broadcast, Reduce, ReduceScatter, AllGather, Gather, Scatter, AllToAll],
        needs: Needs::MappedScratch,
        min_slots: 0,
        doc: "one_shot for private buffers: givers copy to mapped scratch, takers read it there",
        accepts: |_| true,
        build: staged_one_shot::program,
    },
    Algorithm {
        name: "staged_two_shot",
        collectives: &[AllReduce, Reduce],
        needs: Needs::MappedScratch,
        min_slots: 0,
        doc: "two_shot for private buffers: parts go through mapped scratch, each rank reduces one of them",
        accepts: |_| true,
        build: staged_two_shot::program,
    },
    Algorithm {
        name: "ring",
        collectives: &[AllReduce, Broadcast, Reduce, ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: 2,
        doc: "every rank passes chunks to its successor; least traffic per rank, latency grows with the ranks",
        accepts: |_| true,
        build: ring::program,
    },
    Algorithm {
        name: "tree",
        collectives: &[AllReduce, Broadcast, Reduce],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "double binary tree: even channels use one tree, odd channels its complement; logarithmic latency",
        accepts: |_| true,
        build: tree::program,
    },
    Algorithm {
        name: "doubling",
        collectives: &[AllReduce],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "recursive doubling: partners at growing distance exchange and add everything; fewest steps, most traffic",
        accepts: |_| true,
        build: doubling::program,
    },
    Algorithm {
        name: "recursive",
        collectives: &[AllReduce, ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: recursive::AHEAD as u32,
        doc: "recursive halving and doubling: logarithmic steps with the traffic of a ring (powers of two)",
        accepts: |_| true,
        build: recursive::program,
    },
    Algorithm {
        name: "pat",
        collectives: &[ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "parallel trees, one per block, walked far end first; logarithmic hops for any number of ranks",
        accepts: |_| true,
        build: pat::program,
    },
    Algorithm {
        name: "pairwise",
        collectives: &[ReduceScatter, AllToAll, AllToAllV],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "round k: send to the rank k ahead, receive from the rank k behind",
        accepts: |_| true,
        build: pairwise::program,
    },
    Algorithm {
        name: "linear",
        collectives: &[AllReduce, ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "every rank sends to all others at once, then receives; one step, most messages",
        accepts: |_| true,
        build: linear::program,
    },
    Algorithm {
        name: "hierarchical",
        collectives: &[AllReduce, Broadcast, Reduce, ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: hierarchical::AHEAD as u32,
        doc: "those that share memory first, then the same place of all machines, then those that share memory; least traffic between machines",
        accepts: hierarchical::accepts,
        build: hierarchical::program,
    },
    Algorithm {
        name: "leader",
        collectives: &[AllReduce],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "those that share memory give to one of them, these exchange and give it to the others; fewest messages between machines",
        accepts: hierarchical::accepts,
        build: leader::program,
    },
    Algorithm {
        name: "relay",
        collectives: &[ReduceScatter, AllGather],
        needs: Needs::Messages,
        min_slots: relay::MOST,
        doc: "those that share memory give blocks to one of them, these send each other what is needed and give it to the others",
        accepts: relay::accepts,
        build: relay::program,
    },
    Algorithm {
        name: "flat",
        collectives: &[Broadcast, Reduce, Gather, Scatter],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "the root exchanges a message with every rank",
        accepts: |_| true,
        build: flat::program,
    },
    Algorithm {
        name: "binomial",
        collectives: &[Broadcast, Reduce, Gather, Scatter],
        needs: Needs::Messages,
        min_slots: 1,
        doc: "binomial tree below the root; logarithmic latency",
        accepts: |_| true,
        build: binomial::program,
    },
];

/// The program of the only rank: its input is the result.
fn copy_only(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| ops.push(copy(l.input(0), l.output(0))))
}

/// One channel of one rank: the words in which algorithms are written.
#[derive(Clone, Copy)]
struct Lane {
    /// Number of ranks.
    n: Rank,
    /// This rank.
    me: Rank,
    /// Root of the shape.
    root: Rank,
    /// This channel.
    channel: u32,
    /// Number of channels.
    channels: u32,
    /// Whether input and output overlap.
    in_place: bool,
    /// Ranks of a group that shares memory, a number that divides all; 1: each is one.
    local: Rank,
}

/// Makes a program by running `f` once per channel.
fn lanes(shape: &Shape, rank: Rank, scratch_slots: u32, epochs: u32, f: impl Fn(&Lane, &mut Vec<Op>)) -> Program {
    let channels = (0..shape.channels)
        .map(|channel| {
            let lane = Lane {
                n: shape.ranks,
                me: rank,
                root: shape.root,
                channel,
                channels: shape.channels,
                in_place: shape.in_place,
                local: if shape.ranks.is_multiple_of(shape.local) { shape.local } else { 1 },
            };
            let mut ops = Vec::new();
            f(&lane, &mut ops);
            ops
        })
        .collect();
    Program { rank, channels, scratch_slots, epochs }
}

impl Lane {
    /// This channel's share of block `block` of `buffer`.
    fn chunk(&self, buffer: Buffer, block: u32) -> Chunk {
        Chunk { buffer, block, part: self.channel, parts: self.channels }
    }

    fn input(&self, block: u32) -> Chunk {
        self.chunk(Buffer::Input, block)
    }

    fn output(&self, block: u32) -> Chunk {
        self.chunk(Buffer::Output, block)
    }

    fn scratch(&self, slot: u32) -> Chunk {
        self.chunk(Buffer::Scratch, slot)
    }

    /// This channel's share of part `part` of `parts` of block 0 of `buffer` (or of Scratch slot `slot`).
    fn piece(&self, buffer: Buffer, slot: u32, part: u32, parts: u32) -> Chunk {
        Chunk { buffer, block: slot, part: part * self.channels + self.channel, parts: parts * self.channels }
    }

    /// The rank `k` ahead.
    fn ahead(&self, k: u32) -> Rank {
        ((u64::from(self.me) + u64::from(k)) % u64::from(self.n)) as u32
    }

    /// The rank `k` behind.
    fn behind(&self, k: u32) -> Rank {
        self.ahead(self.n - k % self.n)
    }

    /// The other ranks, starting behind this one so that peers are not visited by all at once.
    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let lane = *self;
        (1..lane.n).map(move |k| lane.ahead(k))
    }

    fn is_root(&self) -> bool {
        self.me == self.root
    }

    /// This rank's number when the root is 0.
    fn relative(&self) -> u32 {
        self.behind(self.root)
    }

    /// Waits for `epoch` of every other rank.
    fn wait_others(&self, epoch: u32, ops: &mut Vec<Op>) {
        ops.extend(self.others().map(|rank| Op::Wait { rank, epoch }));
    }
}

fn copy(src: Chunk, dst: Chunk) -> Op {
    Op::Copy { src, dst }
}

fn at(rank: Rank, chunk: Chunk) -> Place {
    Place { rank, chunk }
}

/// One source, one destination.
fn pull(from: Place, to: Place) -> Op {
    Op::Move { srcs: vec![from], dsts: vec![to] }
}
