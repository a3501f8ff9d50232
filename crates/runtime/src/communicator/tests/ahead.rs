//! Calls that are queued over a network, where those behind a call that waits begin early.

use std::cell::OnceCell;
use std::time::{SystemTime, UNIX_EPOCH};

use oxccl_types::ResultCode;

use super::*;
use crate::exec::links::CHANNEL_LANE;
use crate::group;

/// Bytes of a buffer, and how many each rank has.
const BYTES: usize = 128 << 10;
const BUFFERS: usize = 5;

/// SplitMix64: the same numbers on all ranks.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Made {
    /// `Send` stands for a send to the next rank and a receive from the one before, in a group; `AllToAllV` for a group of messages of each
    /// rank to each, itself included.
    collective: Collective,
    from: usize,
    to: usize,
    count: usize,
    root: usize,
}

impl Made {
    fn any(numbers: &mut Numbers, ranks: usize) -> Made {
        use Collective::*;
        let collectives = [AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, Reduce, Send, AllToAllV];
        let collective = collectives[numbers.below(8)];
        let from = numbers.below(BUFFERS);
        // In place only where the whole buffer is meant.
        let others = if collective == AllReduce { BUFFERS } else { BUFFERS - 1 };
        let to = (from + BUFFERS - numbers.below(others)) % BUFFERS;
        let to = if to == from && collective != AllReduce { (from + 1) % BUFFERS } else { to };
        // The last one is long enough to be read where it lies.
        let count = [1, 8, 100, 1000, 4000, 9000, 16_000, 20_000][numbers.below(8)];
        Made { collective, from, to, count, root: numbers.below(ranks) }
    }

    /// What it does to the buffers of all ranks.
    fn model(&self, all: &mut [Vec<Vec<u8>>]) {
        let (ranks, n) = (all.len(), self.count);
        let inputs: Vec<Vec<u8>> = all.iter().map(|b| b[self.from].clone()).collect();
        let sum = |at: usize| inputs.iter().fold(0, |s: u8, i| s.wrapping_add(i[at]));
        for (rank, buffers) in all.iter_mut().enumerate() {
            let out = &mut buffers[self.to];
            match self.collective {
                Collective::AllReduce => (0..n).for_each(|i| out[i] = sum(i)),
                Collective::Reduce if rank == self.root => (0..n).for_each(|i| out[i] = sum(i)),
                Collective::Reduce => {}
                Collective::ReduceScatter => (0..n).for_each(|i| out[i] = sum(rank * n + i)),
                Collective::Broadcast => out[..n].copy_from_slice(&inputs[self.root][..n]),
                Collective::Send => out[..n].copy_from_slice(&inputs[(rank + ranks - 1) % ranks][..n]),
                Collective::AllGather => {
                    (0..ranks).for_each(|r| out[r * n..][..n].copy_from_slice(&inputs[r][..n]));
                }
                _ => (0..ranks).for_each(|r| out[r * n..][..n].copy_from_slice(&inputs[r][rank * n..][..n])),
            }
        }
    }

    fn submit(&self, comm: &Arc<Communicator>, buffers: &mut [Vec<u8>], on: &Stream) {
        let send: *const u8 = buffers[self.from].as_ptr();
        let recv = buffers[self.to].as_mut_ptr();
        let made = |collective, root| Request { send, recv, ..request(collective, &[], &mut [], self.count, root, on) };
        if !matches!(self.collective, Collective::Send | Collective::AllToAllV) {
            return comm.submit(made(self.collective, self.root)).unwrap();
        }
        group::start();
        if self.collective == Collective::AllToAllV {
            for peer in 0..comm.ranks() {
                let block = peer * self.count;
                let of = |collective| Request {
                    send: send.wrapping_add(block),
                    recv: recv.wrapping_add(block),
                    ..made(collective, peer)
                };
                comm.submit(of(Collective::Send)).unwrap();
                comm.submit(of(Collective::Recv)).unwrap();
            }
            return group::end().unwrap();
        }
        comm.submit(made(Collective::Send, (comm.rank + 1) % comm.ranks())).unwrap();
        comm.submit(made(Collective::Recv, (comm.rank + comm.ranks() - 1) % comm.ranks())).unwrap();
        group::end().unwrap();
    }
}

fn seed() -> u64 {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    seed
}

/// Makes `calls` in a row on `ranks` ranks, none of which share all memory, and looks at what all buffers hold then.
fn in_a_row(ranks: usize, change: impl Fn(usize, &mut config::Config) + Sync, calls: &[Made], name: &str) {
    let buffer = |rank: usize, b: usize| (0..BYTES).map(|i| (i * 7 + rank * 31 + b * 101) as u8).collect();
    let begin: Vec<Vec<Vec<u8>>> = (0..ranks).map(|rank| (0..BUFFERS).map(|b| buffer(rank, b)).collect()).collect();
    let mut end = begin.clone();
    calls.iter().for_each(|call| call.model(&mut end));
    world_by_rank(ranks, change, |comm| {
        assert!(!comm.core().unwrap().whole);
        let stream = Stream::new().unwrap();
        let mut buffers = begin[comm.rank].clone();
        calls.iter().for_each(|call| call.submit(&comm, &mut buffers, &stream));
        stream.synchronize().unwrap();
        for (b, (is, should)) in buffers.iter().zip(&end[comm.rank]).enumerate() {
            let at = is.iter().zip(should).position(|(a, b)| a != b);
            assert_eq!(at, None, "{ranks} ranks, {name}: rank {}, buffer {b} of {calls:?}", comm.rank);
        }
        comm.destroy().unwrap();
    });
}

#[test]
fn queued_calls_give_what_they_would_one_by_one() {
    let seed = seed();
    // All share no memory, or the first two do: then sends and receives have partners near and far.
    for (ranks, near) in [(2, 0), (3, 0), (4, 0), (3, 2), (4, 2)] {
        let mut numbers = Numbers(seed ^ ranks as u64);
        let calls: Vec<Made> = (0..200).map(|_| Made::any(&mut numbers, ranks)).collect();
        in_a_row(ranks, |rank, c| c.shm = rank < near, &calls, &format!("{near} near, seed {seed}"));
    }
}

/// Of calls alike those behind are summed while the first waits; others come between.
#[test]
fn leaders_sum_what_belongs_to_each_call() {
    let seed = seed();
    // Two groups, three, of which one is a guest, four, and two as large as leaders have slots for.
    for (ranks, local) in [(4, 2), (6, 3), (6, 2), (8, 2), (16, 8)] {
        let mut numbers = Numbers(seed ^ (ranks * local) as u64);
        let mut calls = Vec::new();
        while calls.len() < 1600 / ranks {
            let mut any = Made::any(&mut numbers, ranks);
            any.count = any.count.min(BYTES / ranks);
            let summed = [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter][numbers.below(3)];
            let collective = if numbers.below(4) > 0 { summed } else { any.collective };
            for _ in 0..1 + numbers.below(12) {
                let Made { from, to, .. } = Made::any(&mut numbers, ranks);
                // In place only where the whole buffer is meant.
                let to = if from == to && collective != Collective::AllReduce { (to + 1) % BUFFERS } else { to };
                calls.push(Made { collective, from, to, ..any });
            }
        }
        let change = |rank: usize, c: &mut config::Config| {
            (c.host_id, c.algo) = (Some((rank / local).to_string()), "leader,relay,flat,pairwise".into());
        };
        in_a_row(ranks, change, &calls, &format!("groups of {local}, seed {seed}"));
    }
}

/// Rings of which each rank has a neighbour near and one far, in bursts: every message is what its sender had then, also where
/// more is sent than connections hold.
#[test]
fn rings_that_are_partly_near_pass_on_what_came() {
    for bytes in [1, 8, 300, 3000, 20_000] {
        world_by_rank(
            4,
            |rank, c| c.shm = rank < 2,
            |comm| {
                let (stream, ranks) = (Stream::new().unwrap(), comm.ranks());
                let ring = |send: &[u8], recv: &mut [u8]| {
                    group::start();
                    let next = (comm.rank + 1) % ranks;
                    comm.submit(request(Collective::Send, send, &mut [], bytes, next, &stream)).unwrap();
                    let before = (comm.rank + ranks - 1) % ranks;
                    comm.submit(request(Collective::Recv, &[], recv, bytes, before, &stream)).unwrap();
                    group::end().unwrap();
                };
                let few = bytes.min(8);
                // Ranks near write to what the ring before still sends.
                let swap = |send: &[u8], recv: &mut [u8]| {
                    if comm.rank < 2 {
                        group::start();
                        comm.submit(request(Collective::Send, send, &mut [], few, 1 - comm.rank, &stream)).unwrap();
                        comm.submit(request(Collective::Recv, &[], recv, few, 1 - comm.rank, &stream)).unwrap();
                        group::end().unwrap();
                    }
                };
                let token = [0xEE; 8];
                for round in 0..4 {
                    let mut own: Vec<Vec<u8>> =
                        (0..60).map(|i| vec![(64 * round + i + comm.rank) as u8; bytes]).collect();
                    let mut come = vec![vec![0; bytes]; 60];
                    let mut passed = vec![vec![0; bytes]; 60];
                    for i in 0..60 {
                        ring(&own[i], &mut come[i]);
                        if i % 3 == round % 3 {
                            swap(&token, &mut own[i]);
                        }
                        // Reads what the call before it receives.
                        if i % 4 == round % 4 {
                            ring(&come[i], &mut passed[i]);
                        }
                    }
                    stream.synchronize().unwrap();
                    for i in 0..60 {
                        let from = |distance: usize| (64 * round + i + (comm.rank + ranks - distance) % ranks) as u8;
                        assert!(come[i].iter().all(|b| *b == from(1)), "{bytes} bytes, round {round}, {i}");
                        let swapped = if i % 3 == round % 3 && comm.rank < 2 { few } else { 0 };
                        assert!(
                            own[i][..swapped].iter().all(|b| *b == 0xEE),
                            "{bytes} bytes, round {round}, {i} swapped"
                        );
                        let next = if i % 4 == round % 4 { from(2) } else { 0 };
                        assert!(passed[i].iter().all(|b| *b == next), "{bytes} bytes, round {round}, {i} passed on");
                    }
                }
                comm.destroy().unwrap();
            },
        );
    }
}

/// Each kernel takes less than what both ranks have queued.
#[test]
fn calls_that_fill_the_sockets_of_both_sides_end() {
    for bytes in [8 << 10, 16 << 10, 32 << 10] {
        world(
            2,
            |c| c.shm = false,
            |comm| {
                let stream = Stream::new().unwrap();
                let (send, mut recv) = (vec![comm.rank as u8 + 1; bytes], vec![0; bytes]);
                for _ in 0..300 {
                    comm.submit(request(Collective::AllReduce, &send, &mut recv, bytes, 0, &stream)).unwrap();
                }
                stream.synchronize().unwrap();
                assert!(recv.iter().all(|b| *b == 3));
                comm.destroy().unwrap();
            },
        );
    }
}

#[test]
fn calls_that_began_early_end_with_the_communicator() {
    let begun = Barrier::new(2);
    world(
        2,
        |c| c.shm = false,
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 64], [0; 64]);
            let mut all_reduce =
                |n| comm.submit(request(Collective::AllReduce, &send, &mut recv, n, 0, &stream)).unwrap();
            all_reduce(64);
            stream.synchronize().unwrap();
            if comm.rank == 0 {
                (0..30).for_each(|_| all_reduce(64));
                assert!(!stream.query().unwrap());
                begun.wait();
                let error = stream.synchronize().unwrap_err();
                assert_eq!(error.code, ResultCode::RemoteError, "{error:?}");
            } else {
                begun.wait();
                comm.abort().unwrap();
                return;
            }
            comm.abort().unwrap();
        },
    );
}

/// A message to the next rank, one from the rank before, and one to itself; fails where the communicator has.
fn ring(comm: &Arc<Communicator>, send: &[u8], recv: &mut [[u8; 64]; 2], stream: &Stream) -> Result<()> {
    let [came, own] = recv;
    let (next, before) = ((comm.rank + 1) % comm.ranks(), (comm.rank + comm.ranks() - 1) % comm.ranks());
    let sent = |to| request(Collective::Send, send, &mut [], 64, to, stream);
    group::start();
    let made = [
        comm.submit(sent(next)),
        comm.submit(request(Collective::Recv, &[], came, 64, before, stream)),
        comm.submit(sent(comm.rank)),
        comm.submit(request(Collective::Recv, &[], own, 64, comm.rank, stream)),
    ];
    let ended = group::end();
    made.into_iter().collect::<Result<()>>().and(ended)
}

/// Calls in a row of which rank `odd` makes one otherwise: every rank hears of it. With groups of messages between them, in which a rank
/// may be further than others are with the collectives.
fn one_differs(ranks: usize, odd: usize, change: impl Fn(usize, &mut config::Config) + Sync) {
    [1, 4, 30].into_iter().for_each(|every| one_differs_among(every, ranks, odd, &change));
}

/// The same where one of so `every` many calls is followed by a group.
fn one_differs_among(every: usize, ranks: usize, odd: usize, change: impl Fn(usize, &mut config::Config) + Sync) {
    // An abort may overtake the error.
    let over = Barrier::new(ranks);
    world_by_rank(ranks, change, |comm| {
        let stream = Stream::new().unwrap();
        let (send, mut recv, mut messages) = ([1; 64], [0; 64], [[0; 64]; 2]);
        for i in 0..30 {
            let n = if i == 20 && comm.rank == odd { 63 } else { 64 };
            // Enqueued before or after the communicator has failed.
            let _ = comm.submit(request(Collective::AllReduce, &send, &mut recv, n, 0, &stream));
            if i % every == every - 1 {
                let _ = ring(&comm, &send, &mut messages, &stream);
            }
        }
        let error = stream.synchronize();
        over.wait();
        let error = error.unwrap_err();
        assert_eq!(error.code, ResultCode::InvalidUsage, "rank {odd} differs: {error:?}");
        comm.abort().unwrap();
    });
}

#[test]
fn a_call_that_differs_is_found_among_those_that_began_early() {
    one_differs(2, 1, |_, c| c.shm = false);
}

/// Two hosts of two ranks, which have leaders.
fn hosts_of_two(rank: usize, c: &mut config::Config) {
    (c.host_id, c.algo) = (Some((rank / 2).to_string()), "leader".into());
}

#[test]
fn calls_that_leaders_take_early_end_with_a_rank_that_makes_no_more() {
    for (gone, with_messages) in (0..4).flat_map(|gone| [(gone, false), (gone, true)]) {
        let begun = Barrier::new(4);
        world_by_rank(4, hosts_of_two, |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv, mut messages) = ([1; 64], [0; 64], [[0; 64]; 2]);
            let mut all_reduce = || comm.submit(request(Collective::AllReduce, &send, &mut recv, 64, 0, &stream));
            all_reduce().unwrap();
            stream.synchronize().unwrap();
            if comm.rank == gone {
                begun.wait();
                return comm.abort().unwrap();
            }
            for call in 0..30 {
                all_reduce().unwrap();
                if with_messages && call % 3 == 1 {
                    ring(&comm, &send, &mut messages, &stream).unwrap();
                }
            }
            assert!(!stream.query().unwrap(), "rank {gone} makes none");
            begun.wait();
            let error = stream.synchronize().unwrap_err();
            assert_eq!(error.code, ResultCode::RemoteError, "rank {gone} is gone: {error:?}");
            comm.abort().unwrap();
        });
    }
}

#[test]
fn a_call_that_differs_is_found_among_those_that_leaders_take_early() {
    (0..4).for_each(|odd| one_differs(4, odd, hosts_of_two));
}

/// What the other leader has got of calls that it does not make: a sum of each.
#[test]
fn a_leader_sends_the_sums_of_the_calls_behind_while_it_waits() {
    const CALLS: u64 = 8;
    /// A frame's header, and the bytes of a call.
    const FRAME: u64 = 64 + 64;
    let (seen, over) = (AtomicBool::new(false), Barrier::new(4));
    world_by_rank(4, hosts_of_two, |comm| {
        let stream = Stream::new().unwrap();
        let (send, mut recv) = ([1; 64], [0; 64]);
        let mut good = true;
        if comm.rank < 2 {
            for _ in 0..CALLS {
                comm.submit(request(Collective::AllReduce, &send, &mut recv, 64, 0, &stream)).unwrap();
            }
            good = soon(|| !stream.query().unwrap() && seen.load(Ordering::Acquire));
        } else if comm.rank == 3 {
            let (core, from) = (comm.core().unwrap(), OnceCell::new());
            let taken = || core.take_stream(0, CHANNEL_LANE as u8).is_some_and(|stream| from.set(stream).is_ok());
            good = soon(|| from.get().is_some() || taken());
            let came = || from.get().is_some_and(|from| rustix::io::ioctl_fionread(from).unwrap() == CALLS * FRAME);
            good &= soon(came);
            seen.store(true, Ordering::Release);
        }
        // Also when something is wrong: the others wait here.
        over.wait();
        comm.abort().unwrap();
        assert!(good, "rank {}", comm.rank);
    });
}

/// Sends and receives with neighbours near and far, of which one differs.
#[test]
fn a_message_that_differs_is_found_in_a_ring_that_is_partly_near() {
    for odd in 0..4 {
        // An abort may overtake the error.
        let over = Barrier::new(4);
        world_by_rank(
            4,
            |rank, c| c.shm = rank < 2,
            |comm| {
                let (stream, ranks) = (Stream::new().unwrap(), comm.ranks());
                let (send, mut recv) = ([1; 64], [0; 64]);
                let mut failed = None;
                // More than a rank may be ahead of those around the ring.
                for i in 0..400 {
                    let n = if i == 20 && comm.rank == odd { 63 } else { 64 };
                    group::start();
                    let next = (comm.rank + 1) % ranks;
                    let sent = comm.submit(request(Collective::Send, &send, &mut [], n, next, &stream));
                    let before = (comm.rank + ranks - 1) % ranks;
                    let came = comm.submit(request(Collective::Recv, &[], &mut recv, 64, before, &stream));
                    failed = failed.or(sent.and(came).and(group::end()).err());
                }
                let error = stream.synchronize().err().or(failed);
                over.wait();
                let error = error.expect("no rank can have received all");
                assert_eq!(error.code, ResultCode::InvalidUsage, "rank {odd} differs: {error:?}");
                comm.abort().unwrap();
            },
        );
    }
}

/// A call that only sends lets the next one begin; when it is over at last, what comes behind that one is not its turn yet.
#[test]
fn what_follows_calls_that_began_early_waits_for_them() {
    const LONG: usize = 48 << 10;
    const ROUNDS: usize = 60;
    world(
        4,
        |c| c.shm = false,
        |comm| {
            let stream = Stream::new().unwrap();
            let (long, mut sum) = (vec![1; LONG], vec![0; LONG]);
            let inputs: Vec<[u8; 64]> = (0..ROUNDS).map(|i| [(i + comm.rank) as u8; 64]).collect();
            let mut outputs = vec![[0; 64]; ROUNDS];
            let mut copies = vec![[0; 64]; ROUNDS];
            for i in 0..ROUNDS {
                for _ in 0..2 {
                    comm.submit(request(Collective::Reduce, &long, &mut sum, LONG, 0, &stream)).unwrap();
                }
                comm.submit(request(Collective::AllReduce, &inputs[i], &mut outputs[i], 64, 0, &stream)).unwrap();
                // SAFETY: both stay until the stream is waited for.
                unsafe { stream.copy(copies[i].as_mut_ptr(), outputs[i].as_ptr(), 64).unwrap() };
            }
            stream.synchronize().unwrap();
            for (i, copy) in copies.iter().enumerate() {
                assert_eq!(*copy, [(4 * i + 6) as u8; 64], "round {i} of rank {}", comm.rank);
            }
            comm.destroy().unwrap();
        },
    );
}

/// Calls that give what the next one may take along, to a rank that is late, then one that ends without it, and messages that wait for the
/// late rank: this one waits for what the kernel has not taken of the first calls.
#[test]
fn what_calls_have_left_goes_out_while_messages_wait() {
    // Some of them are more than a kernel takes, and less than what it and this process keep.
    for calls in 1..20 {
        leaves_calls_to_a_late_rank(calls);
    }
}

fn leaves_calls_to_a_late_rank(calls: usize) {
    const LONG: usize = 24 << 10;
    let late = AtomicBool::new(true);
    let change = |c: &mut config::Config| (c.shm, c.algo) = (false, "flat,doubling".into());
    world(3, change, |comm| {
        let stream = Stream::new().unwrap();
        let (long, mut sum) = (vec![1; LONG], vec![0; LONG]);
        let (send, mut came, mut all) = ([comm.rank as u8; 64], [9; 64], [9; 64]);
        comm.submit(request(Collective::AllReduce, &[1; 64], &mut all, 64, 0, &stream)).unwrap();
        stream.synchronize().unwrap();
        while comm.rank == 1 && late.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for root in std::iter::repeat_n(1, calls).chain([2]) {
            comm.submit(request(Collective::Reduce, &long, &mut sum, LONG, root, &stream)).unwrap();
        }
        if comm.rank < 2 {
            group::start();
            let peer = 1 - comm.rank;
            comm.submit(request(Collective::Send, &send, &mut [], 64, peer, &stream)).unwrap();
            comm.submit(request(Collective::Recv, &[], &mut came, 64, peer, &stream)).unwrap();
            group::end().unwrap();
        }
        comm.submit(request(Collective::AllReduce, &[1; 64], &mut all, 64, 0, &stream)).unwrap();
        if comm.rank == 0 {
            // All that it can do without the late one.
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(20) {
                assert!(!stream.query().unwrap());
            }
            late.store(false, Ordering::Release);
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{calls} calls: {e}"));
        assert_eq!(all, [3; 64]);
        assert!(comm.rank == 0 || sum.iter().all(|b| *b == 3));
        assert!(comm.rank == 2 || came == [1 - comm.rank as u8; 64]);
        comm.destroy().unwrap();
    });
}

/// Its first call fails as it begins, with the next one in the queue.
#[test]
fn messages_to_a_rank_that_left_fail_before_their_time() {
    let left = Barrier::new(2);
    let left = &left;
    world(
        2,
        |c| c.shm = false,
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 64], [0; 64]);
            if comm.rank == 1 {
                comm.abort().unwrap();
                left.wait();
                return;
            }
            // The stream does not come to the messages before the peer has left.
            let gone = Arc::new(Barrier::new(2));
            let seen = gone.clone();
            stream
                .launch_host(Box::new(move || {
                    seen.wait();
                }))
                .unwrap();
            for _ in 0..3 {
                group::start();
                let sent = comm.submit(request(Collective::Send, &send, &mut [], 64, 1, &stream));
                let received = comm.submit(request(Collective::Recv, &[], &mut recv, 64, 1, &stream));
                let ended = group::end();
                assert!(sent.and(received).and(ended).is_ok_and(|()| true) || comm.async_error().is_err());
            }
            left.wait();
            std::thread::scope(|scope| {
                scope.spawn(|| gone.wait());
                let error = stream.synchronize().unwrap_err();
                assert_eq!(error.code, ResultCode::RemoteError, "{error:?}");
            });
            comm.abort().unwrap();
        },
    );
}
