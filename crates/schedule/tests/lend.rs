//! Messages that are read where they lie bring what copies would have brought, whenever the receiver comes to them: every algorithm of
//! messages, run on numbers, in random order, in pieces, with all that [`lends`] allows read only when it is taken, or copied once for several.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use oxccl_schedule::algorithms::{ALGORITHMS, Algorithm};
use oxccl_schedule::ir::{Buffer, Chunk, Needs, Op, Program, Rank, Shape, part_range};
use oxccl_schedule::lend::{Lent, lends};
use oxccl_types::Collective;

/// Elements of a block, which no number of parts here divides, and of a piece.
const COUNT: u64 = 43;
const PIECE: u64 = 5;

/// What is on its way.
enum Message {
    Copied(Vec<u64>),
    /// Of whom, in which memory, and where.
    Lent(Rank, (Buffer, u32), Range<usize>),
}

/// How far a channel of a rank has come.
struct Lane {
    rank: Rank,
    channel: usize,
    piece: u64,
    pc: usize,
}

struct Run<'a> {
    shape: Shape,
    programs: &'a [Program],
    lent: Vec<Vec<Vec<Lent>>>,
    /// What was copied for several, by rank, channel, first op and piece.
    copies: HashMap<(Rank, usize, usize, u64), Vec<u64>>,
    memory: HashMap<(Rank, Buffer, u32), Vec<u64>>,
    wires: HashMap<(Rank, Rank, usize), VecDeque<Message>>,
    /// Messages that were read where they lie.
    read: usize,
}

/// Element `i` of a block of what `rank` gives.
fn given(rank: Rank, block: u32, i: u64) -> u64 {
    u64::from(rank) * 1_000_003 + u64::from(block) * 10_007 + i
}

impl Run<'_> {
    fn longest(&self) -> u64 {
        let chunks = self.programs.iter().flat_map(|p| p.channels.iter().flatten().map(move |op| (p.rank, op)));
        let lengths = chunks.flat_map(|(rank, op)| {
            let (read, written) = op.accesses(rank);
            read.into_iter().chain(written).map(|place| part(&place.chunk)).collect::<Vec<_>>()
        });
        lengths.map(|range| range.end - range.start).max().unwrap_or(0)
    }

    /// The memory that a chunk of a piece lies in: of two blocks at the same place the one of Input.
    fn place(&self, me: Rank, chunk: &Chunk, piece: u64) -> ((Buffer, u32), Range<usize>) {
        let of = part(chunk);
        let start = (of.start + piece * PIECE).min(of.end);
        let range = start as usize..(start + PIECE).min(of.end) as usize;
        let block = match (chunk.buffer, self.shape.aliased_blocks(me)) {
            (Buffer::Output, Some((input, output))) if chunk.block == output => (Buffer::Input, input),
            // The two halves of the scratch.
            (Buffer::Scratch, _) => (Buffer::Scratch, 2 * chunk.block + (piece % 2) as u32),
            (buffer, _) => (buffer, chunk.block),
        };
        (block, range)
    }

    fn bytes(&mut self, me: Rank, (buffer, block): (Buffer, u32), range: Range<usize>) -> &mut [u64] {
        let fresh = || match buffer {
            Buffer::Input => (0..COUNT).map(|i| given(me, block, i)).collect(),
            _ => vec![u64::MAX; COUNT as usize],
        };
        &mut self.memory.entry((me, buffer, block)).or_insert_with(fresh)[range]
    }

    fn read(&mut self, lane: &Lane, chunk: &Chunk) -> Vec<u64> {
        let (block, range) = self.place(lane.rank, chunk, lane.piece);
        self.bytes(lane.rank, block, range).to_vec()
    }

    fn write(&mut self, lane: &Lane, chunk: &Chunk, values: &[u64]) {
        let (block, range) = self.place(lane.rank, chunk, lane.piece);
        self.bytes(lane.rank, block, range).copy_from_slice(values);
    }

    /// Sends `values`, which lie in `chunk` if there is one.
    fn send(&mut self, lane: &Lane, to: Rank, chunk: Option<&Chunk>, values: Vec<u64>) {
        let Lent { stays, first } = self.lent[lane.rank as usize][lane.channel][lane.pc];
        // Some have memory that can be mapped, and the others copy once.
        let mapped = lane.rank.is_multiple_of(2) || first.is_none();
        let message = match chunk.filter(|_| stays) {
            Some(_) if !mapped => {
                let of = (lane.rank, lane.channel, first.unwrap_or(lane.pc), lane.piece);
                Message::Copied(self.copies.entry(of).or_insert(values).clone())
            }
            Some(chunk) => {
                let (block, range) = self.place(lane.rank, chunk, lane.piece);
                Message::Lent(lane.rank, block, range)
            }
            None => Message::Copied(values),
        };
        self.wires.entry((lane.rank, to, lane.channel)).or_default().push_back(message);
    }

    /// Runs the next op of `lane`; whether it could.
    fn step(&mut self, lane: &Lane) -> bool {
        let programs = self.programs;
        let op = &programs[lane.rank as usize].channels[lane.channel][lane.pc];
        let came = match op.receives_from() {
            None => Vec::new(),
            Some(from) => match self.wires.get_mut(&(from, lane.rank, lane.channel)).and_then(VecDeque::pop_front) {
                None => return false,
                Some(Message::Copied(values)) => values,
                Some(Message::Lent(owner, block, range)) => {
                    self.read += 1;
                    self.bytes(owner, block, range).to_vec()
                }
            },
        };
        let add = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect::<Vec<_>>();
        match op {
            Op::Send { to, src } => {
                let values = self.read(lane, src);
                self.send(lane, *to, Some(src), values);
            }
            Op::Recv { dst, .. } => self.write(lane, dst, &came),
            Op::RecvReduce { src, dst, .. } => {
                let sum = add(&came, &self.read(lane, src));
                self.write(lane, dst, &sum);
            }
            Op::RecvReduceSend { to, src, dst, .. } => {
                let sum = add(&came, &self.read(lane, src));
                dst.iter().for_each(|dst| self.write(lane, dst, &sum));
                self.send(lane, *to, dst.as_ref(), sum);
            }
            Op::RecvCopySend { to, dst, .. } => {
                self.write(lane, dst, &came);
                self.send(lane, *to, Some(dst), came);
            }
            Op::Copy { src, dst } => {
                let values = self.read(lane, src);
                self.write(lane, dst, &values);
            }
            Op::Reduce { a, b, dst } => {
                let sum = add(&self.read(lane, a), &self.read(lane, b));
                self.write(lane, dst, &sum);
            }
            Op::Move { .. } | Op::Signal | Op::Wait { .. } => panic!("{op} in a program of messages"),
        }
        true
    }

    /// Runs all lanes, in an order of which some come late: one that has begun goes on for a while.
    fn finish(&mut self, rng: &mut fastrand::Rng) {
        let pieces = self.longest().div_ceil(PIECE);
        let lanes = self.programs.iter().flat_map(|p| (0..p.channels.len()).map(|channel| (p.rank, channel)));
        let mut left: Vec<Lane> = lanes.map(|(rank, channel)| Lane { rank, channel, piece: 0, pc: 0 }).collect();
        let mut stuck = 0;
        while !left.is_empty() {
            let at = rng.usize(..left.len());
            let mut moved = false;
            for _ in 0..rng.usize(1..40) {
                let lane = &mut left[at];
                if lane.pc == self.programs[lane.rank as usize].channels[lane.channel].len() {
                    (lane.pc, lane.piece) = (0, lane.piece + 1);
                    moved = true;
                }
                if lane.piece == pieces {
                    left.swap_remove(at);
                    break;
                }
                if lane.pc < self.programs[lane.rank as usize].channels[lane.channel].len() {
                    if !self.step(&left[at]) {
                        break;
                    }
                    left[at].pc += 1;
                    moved = true;
                }
            }
            stuck = if moved { 0 } else { stuck + 1 };
            assert!(stuck < 100_000, "{:?}: nobody goes on", self.shape);
        }
    }

    /// What `rank` has in block `block` of Output.
    fn output(&mut self, rank: Rank, block: u32) -> Vec<u64> {
        let (block, _) = self.place(rank, &Chunk::whole(Buffer::Output, block), 0);
        self.bytes(rank, block, 0..COUNT as usize).to_vec()
    }
}

fn part(chunk: &Chunk) -> Range<u64> {
    part_range(COUNT, chunk.part, chunk.parts, 1)
}

/// Block `block` of what `rank` is to get.
fn wanted(shape: &Shape, rank: Rank, block: u32) -> Vec<u64> {
    let sum = |of: u32| (0..COUNT).map(|i| (0..shape.ranks).map(|r| given(r, of, i)).sum()).collect();
    let copy = |from: Rank, of: u32| (0..COUNT).map(|i| given(from, of, i)).collect();
    match shape.collective {
        Collective::AllReduce | Collective::Reduce => sum(0),
        Collective::ReduceScatter => sum(rank),
        Collective::AllGather | Collective::Gather => copy(block, 0),
        Collective::Broadcast => copy(shape.root, 0),
        Collective::Scatter => copy(shape.root, rank),
        _ => copy(block, rank),
    }
}

/// Runs `shape` by `algorithm`; how many messages were read where they lie.
fn run(algorithm: &Algorithm, shape: &Shape, rng: &mut fastrand::Rng) -> usize {
    let programs = algorithm.schedule(shape).programs;
    let of = |rank: Rank| programs[rank as usize].clone();
    let lent = programs.iter().map(|program| lends(program, shape, |_| true, of)).collect();
    let (copies, memory, wires) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut run = Run { shape: *shape, programs: &programs, lent, copies, memory, wires, read: 0 };
    run.finish(rng);
    for rank in 0..shape.ranks {
        for block in 0..shape.output_blocks(rank) {
            assert_eq!(run.output(rank, block), wanted(shape, rank, block), "{} {shape:?} rank {rank}", algorithm.name);
        }
    }
    run.read
}

#[test]
fn what_is_lent_is_taken_before_it_changes() {
    let seed = std::env::var("OXCCL_TEST_SEED").ok().and_then(|t| t.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("OXCCL_TEST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut read: HashMap<(&str, Collective), usize> = HashMap::new();
    for a in ALGORITHMS.iter().filter(|a| a.needs == Needs::Messages) {
        for (collective, ranks) in a.collectives.iter().flat_map(|c| (2..=9).map(move |ranks| (*c, ranks))) {
            for local in (1..=ranks).filter(|local| ranks % local == 0) {
                for (channels, in_place) in [(1, false), (1, true), (3, false), (2, true)] {
                    let root = if collective.rooted() { rng.u32(..ranks) } else { 0 };
                    let shape = Shape { collective, ranks, root, channels, in_place, local };
                    if a.supports(&shape) {
                        for _ in 0..4 {
                            *read.entry((a.name, collective)).or_default() += run(a, &shape, &mut rng);
                        }
                    }
                }
            }
        }
    }
    // Almost all lend something; at least those that work within hosts do.
    for a in ALGORITHMS.iter().filter(|a| a.name == "hierarchical") {
        assert!(a.collectives.iter().all(|c| read[&(a.name, *c)] > 1000), "{read:?}");
    }
    let some = read.values().filter(|read| **read > 0).count();
    assert!(some > 20 && some + 2 > read.len(), "{read:?}");
}
