//! Random mixtures of calls where ranks share no memory, back to back: what a call reads, an earlier one may have
//! written, and the other way round, while calls begin before those in front of them are over. Two streams, each with memory
//! of its own, or both with the same and events between them; two communicators.

use std::ops::Range;

use oxccl_runtime::device::{Event, Stream};
use oxccl_runtime::{Request, VCounts, group};
use oxccl_types::Collective;

use crate::job::seed;
use crate::network::alone;
use crate::scenarios::{request, team};

/// Elements of one of the two halves of a rank's memory where calls are small: calls go from one to the other, or stay in place.
const HALF: usize = 1 << 15;
/// How many times longer longer calls are: beyond what is copied to wait, and beyond what a kernel takes at once.
const LONGER: &str = "16";
const CALLS: usize = 120;

/// A call, as all ranks know it.
struct Planned {
    collective: Collective,
    stream: usize,
    comm: usize,
    /// Elements per block, and where input and output of each rank begin.
    count: usize,
    send: Vec<usize>,
    recv: Vec<usize>,
    v: Vec<VCounts>,
}

type Memory = Vec<Vec<i32>>;

impl Planned {
    fn random(ranks: usize, streams: usize, scale: usize, rng: &mut fastrand::Rng) -> Planned {
        use Collective::{AllGather, AllReduce, AllToAll, AllToAllV, Broadcast, ReduceScatter, Send};
        let kinds = [AllToAllV, AllToAllV, AllToAllV, AllReduce, AllGather, AllToAll, ReduceScatter, Broadcast, Send];
        let collective = kinds[rng.usize(..kinds.len())];
        let count = scale * [1, 2, 3, 8, 200, 1500][rng.usize(..6)] + scale / 2;
        // Most of the work is in few places.
        let place = |rng: &mut fastrand::Rng| if rng.bool() { rng.usize(..8) } else { rng.usize(..4000 * scale) };
        let up = rng.bool();
        let (low, high) = if up { (0, scale * HALF) } else { (scale * HALF, 0) };
        let in_place = rng.u8(..3) == 0;
        let send: Vec<usize> = (0..ranks).map(|_| low + place(rng)).collect();
        let recv = (0..ranks).map(|rank| match collective {
            AllReduce | Broadcast if in_place => send[rank],
            AllGather if in_place && send[rank] >= low + rank * count => send[rank] - rank * count,
            _ => high + place(rng),
        });
        let recv = recv.collect();
        let (stream, comm) = (rng.usize(..streams), rng.usize(..8) / 7);
        let v = if collective == AllToAllV { uneven(ranks, scale, rng) } else { vec![] };
        Planned { collective, stream, comm, count, send, recv, v }
    }

    /// What the call does to the memory of all ranks.
    fn apply(&self, memory: &mut Memory) {
        let (ranks, n) = (memory.len(), self.count);
        let inputs = memory.clone();
        let input = |rank: usize, part: Range<usize>| &inputs[rank][self.send[rank] + part.start..][..part.len()];
        for (rank, own) in memory.iter_mut().enumerate() {
            let to = self.recv[rank];
            let mut put = |at: usize, from: &[i32]| own[to + at..][..from.len()].copy_from_slice(from);
            let sum = |part: Range<usize>| -> Vec<i32> {
                let of = |i| (0..ranks).map(|r| inputs[r][self.send[r] + i]).fold(0, i32::wrapping_add);
                part.map(of).collect()
            };
            match self.collective {
                Collective::AllReduce => put(0, &sum(0..n)),
                Collective::ReduceScatter => put(0, &sum(rank * n..(rank + 1) * n)),
                Collective::Broadcast => put(0, input(0, 0..n)),
                Collective::AllGather => (0..ranks).for_each(|r| put(r * n, input(r, 0..n))),
                Collective::AllToAll => (0..ranks).for_each(|r| put(r * n, input(r, rank * n..(rank + 1) * n))),
                Collective::AllToAllV => (0..ranks).for_each(|r| {
                    let at = self.v[r].send_displs[rank];
                    put(self.v[rank].recv_displs[r], input(r, at..at + self.v[r].send_counts[rank]));
                }),
                _ => put(0, input((rank + ranks - 1) % ranks, 0..n)),
            }
        }
    }

    fn request(&self, rank: usize, at: *mut i32, s: &Stream) -> Request {
        let (send, recv) = (at.wrapping_add(self.send[rank]), at.wrapping_add(self.recv[rank]));
        let v = self.v.get(rank).map(|v| Box::new(v.clone()));
        let count = if v.is_some() { 0 } else { self.count };
        Request { v, ..request(self.collective, send.cast(), recv.cast(), count, s) }
    }
}

/// Counts with zeros, parts in any order with holes between them, of the inputs some that overlap.
fn uneven(ranks: usize, scale: usize, rng: &mut fastrand::Rng) -> Vec<VCounts> {
    let lengths = [0, 0, 1, 2, 5, 300, if rng.u8(..4) == 0 { 5000 } else { 20 }].map(|n| n * scale);
    let counts: Vec<Vec<usize>> =
        (0..ranks).map(|_| (0..ranks).map(|_| lengths[rng.usize(..lengths.len())]).collect()).collect();
    let of = |rank: usize| {
        let recv_counts: Vec<usize> = (0..ranks).map(|r| counts[r][rank]).collect();
        let (mut order, mut recv_displs, mut end): (Vec<usize>, _, _) = ((0..ranks).collect(), vec![0; ranks], 0);
        rng.shuffle(&mut order);
        for peer in order {
            recv_displs[peer] = end + [0, 0, 1, 40][rng.usize(..4)];
            end = recv_displs[peer] + recv_counts[peer];
        }
        let send_displs = (0..ranks).map(|_| rng.usize(..300)).collect();
        VCounts { send_counts: counts[rank].clone(), send_displs, recv_counts, recv_displs }
    };
    (0..ranks).map(of).collect()
}

#[test]
fn mixtures_of_small_calls_read_and_write_in_their_order() {
    let seed = seed().to_string();
    for ranks in ["2", "3", "4"] {
        alone("mixture::makes_mixtures", &[("MIXTURES", ranks), ("OXCCL_TEST_SEED", &seed)]);
    }
    let parked = [("MIXTURES", "4"), ("MIXTURES_ROUNDS", "4"), ("OXCCL_TEST_SEED", &seed), ("OXCCL_SPIN_US", "0")];
    alone("mixture::makes_mixtures", &parked);
}

#[test]
fn mixtures_of_longer_calls_read_and_write_in_their_order() {
    let seed = seed().to_string();
    for ranks in ["2", "3"] {
        let env =
            [("MIXTURES", ranks), ("MIXTURES_ROUNDS", "4"), ("MIXTURES_SCALE", LONGER), ("OXCCL_TEST_SEED", &seed)];
        alone("mixture::makes_mixtures", &env);
    }
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential mixtures_of` runs it in a process of its own"]
fn makes_mixtures() {
    let ranks: usize = std::env::var("MIXTURES").unwrap().parse().unwrap();
    let rounds: u64 = std::env::var("MIXTURES_ROUNDS").map_or(12, |n| n.parse().unwrap());
    let scale: usize = std::env::var("MIXTURES_SCALE").map_or(1, |n| n.parse().unwrap());
    let seed = seed();
    team(ranks, 2, |rank, comms| {
        let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
        let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
        for round in 0..rounds {
            let mut shared = fastrand::Rng::with_seed(seed.wrapping_add(round << 8));
            // Both streams with the same memory and in one order, or each with its own.
            let joined = shared.bool();
            let areas = if joined { 1 } else { 2 };
            let used = 1 + shared.usize(..2);
            let calls: Vec<Planned> = (0..CALLS).map(|_| Planned::random(ranks, used, scale, &mut shared)).collect();
            let fresh = |area: usize| -> Memory {
                (0..ranks)
                    .map(|r| (0..2 * scale * HALF).map(|i| (i + 100_000_000 * r + area) as i32).collect())
                    .collect()
            };
            let mut expected: Vec<Memory> = (0..areas).map(fresh).collect();
            let mut memory: Vec<Vec<i32>> = expected.iter().map(|m| m[rank].clone()).collect();
            let at: Vec<*mut i32> = memory.iter_mut().map(|m| m.as_mut_ptr()).collect();
            let mut last = 0;
            for call in &calls {
                let (s, area) = (&streams[call.stream], call.stream % areas);
                if joined && call.stream != last {
                    let event = Event::new();
                    streams[last].record(&event).unwrap();
                    s.wait(&event).unwrap();
                }
                last = call.stream;
                let comm = &comms[call.comm];
                if call.collective == Collective::Send {
                    let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                    group::start();
                    let request =
                        |kind, peer| Request { collective: kind, root: peer, ..call.request(rank, at[area], s) };
                    comm.submit(request(Collective::Send, next)).unwrap();
                    comm.submit(request(Collective::Recv, before)).unwrap();
                    group::end().unwrap();
                } else {
                    comm.submit(call.request(rank, at[area], s)).unwrap();
                }
                if own.u8(..16) == 0 {
                    streams[own.usize(..2)].synchronize().unwrap();
                }
            }
            streams.iter().for_each(|s| s.synchronize().unwrap());
            for call in &calls {
                call.apply(&mut expected[call.stream % areas]);
            }
            for (expected, memory) in expected.iter().zip(&memory) {
                let wrong = (0..2 * scale * HALF).find(|i| memory[*i] != expected[rank][*i]);
                assert_eq!(
                    wrong.map(|i| (i, memory[i], expected[rank][i])),
                    None,
                    "rank {rank}, round {round}, seed {seed}"
                );
            }
        }
    });
}
