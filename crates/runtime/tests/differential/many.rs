//! Calls of which each has buffers, a length and a root of its own, as those of the tensors of a program, where ranks share cores, or
//! are on several hosts: small ones that travel with their lines amid those that lend, against a model of all the memory. What one call writes others
//! read, write and lend, in whatever order.

use std::fmt;

use oxccl_runtime::device::Stream;
use oxccl_runtime::{Request, VCounts, group};
use oxccl_types::Collective;

use oxccl_runtime::config::tuning::processors;

use crate::crowds::processes;
use crate::job::{PAIR, THREE, seed};
use crate::scenarios::{Comm, Ints, To, request, team};

/// Buffers of a rank; every fifth lies in memory that peers cannot map.
const BUFFERS: usize = 20;
/// Elements of a block at most.
const MOST: usize = 5000;
/// Some of those that calls have: with the line, in slots, lent.
const COUNTS: [usize; 12] = [1, 16, 60, 128, 300, 512, 520, 700, 1024, 2048, 3000, MOST];

#[derive(Clone, Copy)]
struct Made {
    /// `Send`: to the next rank, with what comes from the one before. `Recv`: a group of messages of each rank to each, itself included,
    /// each of a length of its own.
    kind: Collective,
    count: usize,
    root: usize,
    /// One buffer: in place.
    from: usize,
    to: usize,
    /// Of the second communicator.
    second: bool,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Made { kind, count, root, from, to, second } = self;
        let kind = match kind {
            Collective::Recv => "messages".to_string(),
            kind => kind.to_string(),
        };
        write!(f, "{kind}({count}) root {root} {from}>{to}{}", if *second { " second" } else { "" })
    }
}

/// Calls that are like each other in some way.
struct Draw {
    kinds: Vec<Collective>,
    counts: Vec<usize>,
    root: Option<usize>,
    /// Of so many calls one has buffers that others have just had.
    meets: usize,
    /// Of so many one is the last one made again.
    again: usize,
    /// Of so many one is of the second communicator.
    seconds: usize,
    next: usize,
}

impl Draw {
    fn new(rng: &mut fastrand::Rng, ranks: usize) -> Draw {
        use Collective::{
            AllGather, AllReduce, AllToAll, AllToAllV, Broadcast, Gather, Recv, Reduce, ReduceScatter, Scatter, Send,
        };
        let collectives =
            [AllReduce, AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllV, Broadcast, Reduce, Gather, Scatter];
        let all = [&collectives[..], &[Send, Send, Recv, Recv]].concat();
        let some = |rng: &mut fastrand::Rng, most: usize| 1 + rng.usize(..most);
        Draw {
            kinds: (0..some(rng, 5)).map(|_| all[rng.usize(..all.len())]).collect(),
            counts: (0..some(rng, 4)).map(|_| COUNTS[rng.usize(..COUNTS.len())]).collect(),
            root: rng.bool().then(|| rng.usize(..ranks)),
            meets: [2, 8, 1000][rng.usize(..3)],
            again: [2, 5, 1000][rng.usize(..3)],
            seconds: [3, 1000, 1000][rng.usize(..3)],
            next: 0,
        }
    }

    fn draw(&mut self, rng: &mut fastrand::Rng, ranks: usize) -> Made {
        let kind = self.kinds[rng.usize(..self.kinds.len())];
        let mut own = || {
            self.next += 1;
            (self.next - 1) % BUFFERS
        };
        let (from, to) = match rng.usize(..self.meets) {
            0 => (rng.usize(..BUFFERS), rng.usize(..BUFFERS)),
            _ => (own(), own()),
        };
        let to = if rng.u8(..8) == 0 { from } else { to };
        let is_never =
            matches!(kind, Collective::AllToAll | Collective::AllToAllV | Collective::Recv | Collective::Send);
        let to = if from == to && is_never { (to + 1) % BUFFERS } else { to };
        let root = self.root.unwrap_or_else(|| rng.usize(..ranks));
        let (count, second) = (self.counts[rng.usize(..self.counts.len())], rng.usize(..self.seconds) == 0);
        Made { kind, count, root, from, to, second }
    }
}

/// What lies in each buffer of each rank.
type Model = Vec<Vec<Vec<i32>>>;

impl Made {
    /// How far into its buffers `rank` begins to read and to write, in elements.
    fn begins(&self, rank: usize) -> (usize, usize) {
        let own = if self.from == self.to { rank * self.count } else { 0 };
        match self.kind {
            Collective::AllGather | Collective::Gather => (own, 0),
            Collective::ReduceScatter | Collective::Scatter => (0, own),
            _ => (0, 0),
        }
    }

    /// Elements that `from` sends to `to` where each rank sends to each: of those of a block some eighths, of some none.
    fn part(&self, from: usize, to: usize) -> usize {
        self.count * ((7 * from + 3 * to + 5 * self.root + self.count) % 9) / 8
    }

    /// In which block of the input the part for `peer` lies.
    fn place(&self, peer: usize, ranks: usize) -> usize {
        let turned = self.kind == Collective::AllToAllV && self.root % 2 == 1;
        if turned { ranks - 1 - peer } else { peer }
    }

    fn apply(&self, model: &mut Model) {
        let (ranks, n) = (model.len(), self.count);
        let input = |rank: usize, own: &Vec<Vec<i32>>| own[self.from][self.begins(rank).0..n * ranks].to_vec();
        let before: Vec<Vec<i32>> = model.iter().enumerate().map(|(rank, own)| input(rank, own)).collect();
        let block = |rank: usize, i: usize| before[rank][i * n..(i + 1) * n].iter().copied();
        let sum = |i: usize| {
            let of = |e: usize| (0..ranks).fold(0, |sum: i32, r| sum.wrapping_add(before[r][i * n + e]));
            (0..n).map(of).collect::<Vec<i32>>()
        };
        let sum_of_first = sum(0);
        for (rank, own) in model.iter_mut().enumerate() {
            let first = self.begins(rank).1;
            let mut put = |i: usize, what: &mut dyn Iterator<Item = i32>| {
                own[self.to][first + i * n..first + (i + 1) * n].iter_mut().zip(what).for_each(|(to, from)| *to = from);
            };
            match self.kind {
                Collective::AllReduce => put(0, &mut sum_of_first.iter().copied()),
                Collective::Reduce if rank == self.root => put(0, &mut sum_of_first.iter().copied()),
                Collective::ReduceScatter => put(0, &mut sum(rank).into_iter()),
                Collective::AllGather => (0..ranks).for_each(|r| put(r, &mut block(r, 0))),
                Collective::Gather if rank == self.root => (0..ranks).for_each(|r| put(r, &mut block(r, 0))),
                Collective::AllToAll => (0..ranks).for_each(|r| put(r, &mut block(r, rank))),
                Collective::AllToAllV | Collective::Recv => {
                    (0..ranks).for_each(|r| {
                        put(r, &mut block(r, self.place(rank, ranks)).take(self.part(r, rank)));
                    });
                }
                Collective::Broadcast => put(0, &mut block(self.root, 0)),
                Collective::Scatter => put(0, &mut block(self.root, rank)),
                Collective::Send => put(0, &mut block((rank + ranks - 1) % ranks, 0)),
                _ => {}
            }
        }
    }

    fn make(&self, (rank, ranks): (usize, usize), comms: &[Comm], buffers: &[Ints], stream: &Stream) {
        let (reads, writes) = self.begins(rank);
        let from = buffers[self.from].ptr().wrapping_add(4 * reads).cast_const();
        let to = buffers[self.to].ptr().wrapping_add(4 * writes);
        let comm = &comms[usize::from(self.second)];
        let submit = |kind, peer: usize, block: usize, count: usize| {
            let first = 4 * block * self.count;
            let made = request(kind, from.wrapping_add(first), to.wrapping_add(first), count, stream).to(peer);
            comm.submit(made).unwrap_or_else(|e| panic!("{self:?}: {e}"));
        };
        match self.kind {
            Collective::Send | Collective::Recv => group::start(),
            Collective::AllToAllV => {
                let parts = |part: &dyn Fn(usize) -> usize| (0..ranks).map(part).collect();
                let v = VCounts {
                    send_counts: parts(&|peer| self.part(rank, peer)),
                    recv_counts: parts(&|peer| self.part(peer, rank)),
                    send_displs: parts(&|peer| self.place(peer, ranks) * self.count),
                    recv_displs: parts(&|peer| peer * self.count),
                };
                let made = request(self.kind, from, to, 0, stream);
                let made = Request { v: Some(Box::new(v)), ..made };
                return comm.submit(made).unwrap_or_else(|e| panic!("{self:?}: {e}"));
            }
            _ => return submit(self.kind, self.root, 0, self.count),
        }
        if self.kind == Collective::Send {
            submit(Collective::Send, (rank + 1) % ranks, 0, self.count);
            submit(Collective::Recv, (rank + ranks - 1) % ranks, 0, self.count);
        } else {
            for peer in 0..ranks {
                submit(Collective::Send, peer, peer, self.part(rank, peer));
                submit(Collective::Recv, peer, peer, self.part(peer, rank));
            }
        }
        group::end().unwrap_or_else(|e| panic!("{self:?}: {e}"));
    }
}

const ROUNDS: usize = 40;

/// What lies where a round begins: no two elements of it alike, of whatever rank.
fn first(round: usize, rank: usize, buffer: usize, element: usize) -> i32 {
    let at = (((round * 16 + rank) * BUFFERS + buffer) * 16 * MOST + element) as u64;
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as i32
}

/// A rank's part.
pub(crate) fn one(rank: usize, ranks: usize, comms: &[Comm], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    let stream = Stream::new().unwrap();
    let elements = |buffer: usize| MOST * ranks + usize::from(buffer % 5 == 4);
    let mut buffers: Vec<Ints> = (0..BUFFERS).map(|b| Ints::new(elements(b), 0)).collect();
    let mut varied = 0;
    for round in 0..ROUNDS {
        // Sums of sums would come to nothing in time, and ranks to the same.
        let fresh = |r: usize, b: usize| (0..elements(b)).map(move |e| first(round, r, b, e));
        buffers.iter_mut().enumerate().for_each(|(b, buffer)| buffer.set_each(fresh(rank, b)));
        let mut model: Model = (0..ranks).map(|r| (0..BUFFERS).map(|b| fresh(r, b).collect()).collect()).collect();
        let mut draw = Draw::new(&mut rng, ranks);
        let mut made: Vec<Made> = vec![];
        for _ in 0..rng.usize(5..150) {
            let again = made.last().copied().filter(|_| rng.usize(..draw.again) == 0);
            made.push(again.unwrap_or_else(|| draw.draw(&mut rng, ranks)));
        }
        for made in &made {
            made.make((rank, ranks), comms, &buffers, &stream);
            made.apply(&mut model);
            let late = if own.u8(..64) == 0 { own.u32(..100_000) } else { 0 };
            (0..late).for_each(|_| std::hint::spin_loop());
            if own.u8(..64) == 0 {
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            }
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        let blocks = model[rank].iter().map(|buffer| buffer[0]).collect::<std::collections::HashSet<i32>>();
        varied += usize::from(blocks.len() > BUFFERS / 4);
        for (b, buffer) in buffers.iter().enumerate() {
            let wrong = buffer.elements().zip(&model[rank][b]).position(|(is, should)| is != *should);
            assert!(
                wrong.is_none(),
                "element {wrong:?} of buffer {b} on rank {rank} of {ranks} in round {round} (seed {seed}): {made:?}"
            );
        }
    }
    assert!(varied > ROUNDS / 2, "most buffers end alike: little would be seen");
}

#[test]
fn calls_of_many_buffers_and_lengths_keep_their_order() {
    for ranks in ["3", "5"] {
        processes(ranks.parse().unwrap(), &[("OXCCL_CORES", "2")], "many");
    }
    processes(4, &[("OXCCL_CORES", "2"), ("OXCCL_P2P", "shm")], "many");
    processes(4, &[("OXCCL_CORES", "1"), ("NCCL_HOSTID", PAIR)], "many");
}

/// Collectives and groups of messages begin behind each other there, each on connections of its own.
#[test]
fn calls_of_many_buffers_and_lengths_over_networks_keep_their_order() {
    for ranks in [2, 3, 5] {
        processes(ranks, &[("OXCCL_SHM", "0")], "many");
    }
    processes(4, &[("NCCL_HOSTID", PAIR)], "many");
    processes(6, &[("NCCL_HOSTID", THREE)], "many");
}

#[test]
fn calls_of_many_buffers_and_lengths_of_threads_keep_their_order() {
    let (ranks, seed) = ((processors() + 1).clamp(5, 9), seed());
    team(ranks, 2, |rank, comms| one(rank, ranks, comms, seed));
}
