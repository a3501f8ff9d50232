//! Calls that follow one another without a wait, by more ranks than the machine has cores (up to 16): each may begin before
//! those in front of it have ended, and none may see it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Operator, Request, UniqueId, VCounts, group};
use oxccl_types::{Collective, ResultCode};

use crate::scenarios::{Comm, Ints, To, join, request, team};

/// More than there are cores, where these are few enough for a test.
fn ranks() -> usize {
    (processors() + 1).clamp(5, 17)
}

/// Elements of a call: in the line, in small slots, in slots, and beyond what is eager.
const COUNTS: [usize; 5] = [1, 2, 300, 2000, 30_000];

#[test]
fn results_pass_from_call_to_call() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for round in 0..40 {
            let count = COUNTS[round % COUNTS.len()];
            let source = Ints::new(count, 1 + rank as i32);
            let outputs: Vec<Ints> = (0..24).map(|_| Ints::new(count, -1)).collect();
            let gathered = Ints::new(count * ranks, -1);
            for (i, output) in outputs.iter().enumerate() {
                // Every third reads what the one before it makes; the others could be made in any order.
                let input = if i % 3 == 2 { outputs[i - 1].ptr() } else { source.ptr() };
                comms[0].submit(request(Collective::AllReduce, input, output.ptr(), count, &s)).unwrap();
                if i % 7 == 6 {
                    comms[0].submit(request(Collective::Broadcast, output.ptr(), output.ptr(), count, &s)).unwrap();
                }
                if i % 11 == 10 {
                    let gather = Collective::AllGather;
                    comms[0].submit(request(gather, output.ptr(), gathered.ptr(), count, &s)).unwrap();
                }
            }
            s.synchronize().unwrap();
            let sum: i32 = (1..=ranks as i32).sum();
            for (i, output) in outputs.iter().enumerate() {
                output.expect(if i % 3 == 2 { sum * ranks as i32 } else { sum });
            }
            // Calls 10 and 21 were gathered, the later of which is a sum.
            gathered.expect(sum);
        }
    });
}

/// More calls in a row than there are slots of a kind, each with payloads of its own, of the lengths at which slots change.
#[test]
fn payloads_stay_until_all_have_them() {
    let ranks = ranks();
    // As long as no votes count, longer ones go by slots, too.
    let rounds = [
        (0, 2048, 600),
        (0, 2052, 150),
        (0, 8192, 150),
        (0, 8196, 150),
        (0, 16 << 10, 150),
        (0, (16 << 10) + 4, 80),
        (1, (16 << 10) + 4, 150),
        (2, 32 << 10, 100),
        (3, 64 << 10, 150),
        (3, (64 << 10) + 4, 20),
    ];
    team(ranks, 4, |rank, comms| {
        let s = Stream::new().unwrap();
        let sum = (0..ranks as i32).sum::<i32>();
        for (comm, bytes, calls) in rounds {
            // Blocks of calls of which each rank reads a part are shorter: all of them count.
            let count = bytes / 4;
            let block = count / ranks;
            let value = |call: usize| 100 * call as i32;
            let sources: Vec<Ints> = (0..calls).map(|i| Ints::new(count, value(i) + rank as i32)).collect();
            let outputs: Vec<Ints> = (0..calls).map(|_| Ints::new(count, -1)).collect();
            for i in 0..calls {
                let kind = [Collective::AllReduce, Collective::AllToAll, Collective::ReduceScatter][i % 3];
                let length = if i % 3 == 0 { count } else { block };
                comms[comm].submit(request(kind, sources[i].ptr(), outputs[i].ptr(), length, &s)).unwrap();
            }
            s.synchronize().unwrap();
            for (i, output) in outputs.iter().enumerate() {
                let (length, all) = (if i % 3 == 0 { count } else { block }, value(i) * ranks as i32 + sum);
                match i % 3 {
                    1 => (0..ranks).for_each(|r| output.expect_at(r * block..(r + 1) * block, value(i) + r as i32)),
                    _ => output.expect_at(0..length, all),
                }
            }
        }
    });
}

#[test]
fn a_factor_in_memory_is_what_the_call_before_made_of_it() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, one) = (Ints::new(4, 1 + rank as i32), Ints::new(4, 1));
        let sum: i32 = (1..=ranks as i32).sum();
        for _ in 0..40 {
            let pairs: Vec<(Ints, Ints)> = (0..8).map(|_| (Ints::new(4, -1), Ints::new(4, -1))).collect();
            for (factor, output) in &pairs {
                comms[0].submit(request(Collective::AllReduce, source.ptr(), factor.ptr(), 4, &s)).unwrap();
                let scaled = request(Collective::AllReduce, one.ptr(), output.ptr(), 4, &s);
                let op = Operator::PreMulDevice(factor.ptr().cast_const());
                comms[0].submit(Request { op, ..scaled }).unwrap();
            }
            s.synchronize().unwrap();
            pairs.iter().for_each(|(factor, output)| {
                factor.expect(sum);
                output.expect(sum * ranks as i32);
            });
        }
    });
}

#[test]
fn messages_pass_from_exchange_to_exchange() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for round in 0..40 {
            let count = COUNTS[round % COUNTS.len()];
            let hops: Vec<Ints> =
                (0..=2 * ranks).map(|i| Ints::new(count, if i == 0 { rank as i32 } else { -1 })).collect();
            let (constant, sink) = (Ints::new(count, 7), Ints::new(count, -1));
            for pair in hops.windows(2) {
                for (from, to) in [(&pair[0], &pair[1]), (&constant, &sink)] {
                    group::start();
                    comms[0]
                        .submit(request(Collective::Send, from.ptr(), std::ptr::null_mut(), count, &s).to(next))
                        .unwrap();
                    comms[0]
                        .submit(request(Collective::Recv, std::ptr::null(), to.ptr(), count, &s).to(before))
                        .unwrap();
                    group::end().unwrap();
                }
            }
            s.synchronize().unwrap();
            for (i, hop) in hops.iter().enumerate() {
                hop.expect(((rank + 10 * ranks - i) % ranks) as i32);
            }
            sink.expect(7);
        }
    });
}

/// A great many small exchanges in a row, of which each overwrites what the one before it received from another peer.
#[test]
fn receives_of_later_calls_come_after_those_of_earlier_ones() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for count in [1, 300, 1500, 5000] {
            let (sink, last) = (Ints::new(count, -1), Ints::new(count, -1));
            let source = Ints::new(count, rank as i32);
            for call in 0..150 {
                // The nearest neighbour sends last, so that its message may well be there before the others.
                let distance = 1 + (call + ranks - 2) % (ranks - 1);
                let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
                group::start();
                let send = request(Collective::Send, source.ptr(), std::ptr::null_mut(), count, &s).to(to);
                let recv = request(Collective::Recv, std::ptr::null(), sink.ptr(), count, &s).to(from);
                comms[0].submit(send).unwrap();
                comms[0].submit(recv).unwrap();
                group::end().unwrap();
                if call == 149 {
                    // What is sent on was just received.
                    group::start();
                    let send = request(Collective::Send, sink.ptr(), std::ptr::null_mut(), count, &s);
                    let recv = request(Collective::Recv, std::ptr::null(), last.ptr(), count, &s);
                    comms[0].submit(send.to((rank + 1) % ranks)).unwrap();
                    comms[0].submit(recv.to((rank + ranks - 1) % ranks)).unwrap();
                    group::end().unwrap();
                }
            }
            s.synchronize().unwrap();
            let from = (rank + 2 * ranks - 1 - (149 + ranks - 2) % (ranks - 1)) % ranks;
            sink.expect(from as i32);
            last.expect(((from + ranks - 1) % ranks) as i32);
        }
    });
}

/// Groups in which every rank sends to and receives from all others, more of them than there are records.
#[test]
fn exchanges_of_all_with_all_follow_each_other() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for count in [1, 300, 3000] {
            let outputs: Vec<Vec<Ints>> = (0..24).map(|_| (0..ranks).map(|_| Ints::new(count, -1)).collect()).collect();
            let sources: Vec<Ints> = (0..24).map(|call| Ints::new(count, (100 * call + rank) as i32)).collect();
            for (source, output) in sources.iter().zip(&outputs) {
                group::start();
                for peer in (0..ranks).filter(|peer| *peer != rank) {
                    let send = request(Collective::Send, source.ptr(), std::ptr::null_mut(), count, &s).to(peer);
                    let recv = request(Collective::Recv, std::ptr::null(), output[peer].ptr(), count, &s).to(peer);
                    comms[0].submit(send).unwrap();
                    comms[0].submit(recv).unwrap();
                }
                group::end().unwrap();
            }
            s.synchronize().unwrap();
            for (call, output) in outputs.iter().enumerate() {
                output.iter().enumerate().for_each(|(peer, ints)| {
                    ints.expect(if peer == rank { -1 } else { (100 * call + peer) as i32 });
                });
            }
        }
    });
}

/// A root that needs no answer runs ahead of its peers, by lines, small, medium and large slots; what they get is what it
/// sent in that call.
#[test]
fn a_root_runs_ahead_of_its_leaves() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for (count, calls) in [(1, 600), (300, 600), (1500, 600), (5000, 200)] {
            let outputs: Vec<Ints> = (0..calls).map(|_| Ints::new(count, -1)).collect();
            let sources: Vec<Ints> = (0..calls).map(|call| Ints::new(count * ranks, call)).collect();
            for (call, (source, output)) in sources.iter().zip(&outputs).enumerate() {
                let kind = if call % 3 == 0 { Collective::Scatter } else { Collective::Broadcast };
                comms[0].submit(request(kind, source.ptr(), output.ptr(), count, &s)).unwrap();
                if rank == ranks - 1 && call % 50 == 7 {
                    s.synchronize().unwrap();
                }
            }
            s.synchronize().unwrap();
            outputs.iter().enumerate().for_each(|(call, output)| output.expect(call as i32));
        }
    });
}

/// Leaves that need no answer run ahead of a root that takes, by lines, small slots, its own kind and large ones; it gets what
/// they gave in that call.
#[test]
fn leaves_run_ahead_of_a_root_that_takes() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let sum = (0..ranks as i32).sum::<i32>();
        for (count, calls) in [(1, 600), (300, 600), (1500, 400), (4000, 300), (5000, 100)] {
            let value = |call: usize| 100 * call as i32;
            let sources: Vec<Ints> = (0..calls).map(|call| Ints::new(count, value(call) + rank as i32)).collect();
            let outputs: Vec<Ints> = (0..calls).map(|_| Ints::new(count, -1)).collect();
            for (call, (source, output)) in sources.iter().zip(&outputs).enumerate() {
                comms[0].submit(request(Collective::Reduce, source.ptr(), output.ptr(), count, &s)).unwrap();
                // The root comes late to all others, which go on without it.
                let late = if rank == 0 && call % 25 == 7 { 100_000 } else { 0 };
                (0..late).for_each(|_| std::hint::spin_loop());
            }
            s.synchronize().unwrap();
            if rank == 0 {
                let all = |call: usize| value(call) * ranks as i32 + sum;
                outputs.iter().enumerate().for_each(|(call, output)| output.expect(all(call)));
            }
        }
    });
}

/// The leaves have announced sums that the root has; then it gives so often, waiting for nobody, that its lines come to be
/// written again: not before the leaves have seen those of the sums.
#[test]
fn a_root_that_gives_leaves_its_lines_until_all_have_seen_them() {
    const SUMS: usize = 100;
    const GIVEN: usize = 700;
    let ranks = ranks();
    // Small slots and those of a root; how many leaves have begun the sums, and how often the root has given all.
    for count in [300, 1000, 1800] {
        let (begun, given) = (AtomicUsize::new(0), AtomicUsize::new(0));
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let await_all = |counter: &AtomicUsize, all: usize| {
                let deadline = Instant::now() + Duration::from_secs(60);
                while counter.load(Ordering::SeqCst) < all {
                    assert!(Instant::now() < deadline, "rank {rank} of {ranks} waits for the others");
                    std::thread::yield_now();
                }
            };
            for round in 1..=20 {
                let (one, sums) = (Ints::new(1, 1), Ints::new(SUMS, -1));
                let (source, output) = (Ints::new(count, round as i32), Ints::new(count, -1));
                // Nobody who waits for its stream goes on with those of others meanwhile.
                if rank == 0 {
                    await_all(&begun, round * (ranks - 1));
                }
                for i in 0..SUMS {
                    let to = sums.ptr().wrapping_add(4 * i);
                    comms[0].submit(request(Collective::AllReduce, one.ptr(), to, 1, &s)).unwrap();
                }
                if rank > 0 {
                    begun.fetch_add(1, Ordering::SeqCst);
                    await_all(&given, round);
                }
                for _ in 0..GIVEN {
                    comms[0].submit(request(Collective::Broadcast, source.ptr(), output.ptr(), count, &s)).unwrap();
                }
                if rank == 0 {
                    given.fetch_add(1, Ordering::SeqCst);
                }
                s.synchronize().unwrap_or_else(|e| panic!("round {round}, {count} elements: {e}"));
                sums.expect(ranks as i32);
                output.expect(round as i32);
            }
        });
    }
}

/// Exchanges of different lengths, small ones and some that are not, among all-reduces that read what they received.
#[test]
fn exchanges_by_counts_pass_from_call_to_call() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for most in [1, 9, 200, 20_000] {
            // What two ranks send to each other has one length.
            let count = |a: usize, b: usize| 1 + (a + b) % most;
            let counts: Vec<usize> = (0..ranks).map(|p| count(rank, p)).collect();
            let displs: Vec<usize> = (0..ranks).map(|p| counts[..p].iter().sum()).collect();
            let total: usize = counts.iter().sum();
            let source = Ints::new(total, rank as i32);
            let outputs: Vec<Ints> = (0..20).map(|_| Ints::new(total, -1)).collect();
            let sums: Vec<Ints> = (0..20).map(|_| Ints::new(1, -1)).collect();
            for (i, (output, sum)) in outputs.iter().zip(&sums).enumerate() {
                // Every fourth sends what the one before it received.
                let input = if i % 4 == 3 { outputs[i - 1].ptr() } else { source.ptr() };
                let v = VCounts {
                    send_counts: counts.clone(),
                    send_displs: displs.clone(),
                    recv_counts: counts.clone(),
                    recv_displs: displs.clone(),
                };
                let call = request(Collective::AllToAllV, input, output.ptr(), 0, &s);
                comms[0].submit(Request { v: Some(Box::new(v)), ..call }).unwrap();
                comms[0].submit(request(Collective::AllReduce, output.ptr(), sum.ptr(), 1, &s)).unwrap();
            }
            s.synchronize().unwrap();
            for (i, (output, sum)) in outputs.iter().zip(&sums).enumerate() {
                for (peer, (displ, count)) in displs.iter().zip(&counts).enumerate() {
                    output.expect_at(*displ..displ + count, if i % 4 == 3 { rank } else { peer } as i32);
                }
                sum.expect(if i % 4 == 3 { (0..ranks as i32).sum() } else { 0 });
            }
        }
    });
}

/// Sums of three communicators, of which one rank is not in the second and one not in the third, in turn on one stream: each adds
/// what the last sum of any of them left, or overwrites what an earlier one had. Between them messages of the first one.
#[test]
fn results_pass_from_communicator_to_communicator() {
    const CALLS: usize = 60;
    // Without one rank they are still more than the cores, where these are few enough for a test.
    let ranks = (processors() + 2).clamp(5, 17);
    let without = |rank: usize| (0..ranks).filter(|r| *r != rank).collect::<Vec<_>>();
    let members = [without(ranks), without(1), without(3)];
    let ids: Vec<UniqueId> = (0..3).map(|_| UniqueId::create().unwrap()).collect();
    team(ranks, 0, |rank, _| {
        let place = |of: usize| members[of].iter().position(|r| *r == rank);
        let comms: Vec<Option<Comm>> =
            (0..3).map(|of| place(of).map(|at| join(&ids[of], members[of].len(), at))).collect();
        let s = Stream::new().unwrap();
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for count in COUNTS {
            let buffers: Vec<Ints> = (0..3).map(|b| Ints::new(count, (10 * b + rank) as i32)).collect();
            let mut model: Vec<[i32; 3]> = (0..ranks).map(|r| [0, 1, 2].map(|b| (10 * b + r) as i32)).collect();
            for call in 0..CALLS {
                let (of, from, to) = (call * call % 7 % 3, call % 3, (call + 1 + call / 5 % 2) % 3);
                if call % 4 == 3 {
                    let all = comms[0].as_ref().unwrap();
                    group::start();
                    let send = request(Collective::Send, buffers[from].ptr(), std::ptr::null_mut(), count, &s);
                    let recv = request(Collective::Recv, std::ptr::null(), buffers[to].ptr(), count, &s);
                    all.submit(send.to(next)).unwrap();
                    all.submit(recv.to(before)).unwrap();
                    group::end().unwrap();
                    let sent: Vec<i32> = model.iter().map(|m| m[from]).collect();
                    (0..ranks).for_each(|r| model[r][to] = sent[(r + ranks - 1) % ranks]);
                    continue;
                }
                if let Some(comm) = &comms[of] {
                    let sum = request(Collective::AllReduce, buffers[from].ptr(), buffers[to].ptr(), count, &s);
                    comm.submit(sum).unwrap();
                }
                let sum = members[of].iter().fold(0_i32, |sum, r| sum.wrapping_add(model[*r][from]));
                members[of].iter().for_each(|r| model[*r][to] = sum);
            }
            s.synchronize().unwrap();
            buffers.iter().zip(model[rank]).for_each(|(buffer, value)| buffer.expect(value));
        }
        comms.iter().flatten().for_each(|c| c.destroy().unwrap());
    });
}

/// A call of the other communicator begins behind one whose peers do not come before it is over. Not always: a stream that another
/// thread looks after just then takes it into its queue.
#[test]
fn a_call_does_not_wait_for_one_of_another_communicator_in_front_of_it() {
    const ROUNDS: usize = 20;
    let ranks = ranks();
    for kind in [Collective::AllReduce, Collective::AllGather] {
        let began = AtomicUsize::new(0);
        team(ranks, 2, |rank, comms| {
            let (s, aside) = (Stream::new().unwrap(), Stream::new().unwrap());
            for round in 0..ROUNDS {
                // Longer ones do not begin behind others when they are made for the first time.
                let count = COUNTS[round % 4];
                let source = Ints::new(count, rank as i32);
                let outputs: Vec<Ints> = (0..2).map(|_| Ints::new(count * ranks, -1)).collect();
                let call = |of: usize, on: &Stream| {
                    comms[of].submit(request(kind, source.ptr(), outputs[of].ptr(), count, on)).unwrap();
                };
                if rank == 0 {
                    (0..2).for_each(|of| call(of, &s));
                } else {
                    call(1, &s);
                    let deadline = Instant::now() + Duration::from_millis(100);
                    while !s.query().unwrap() && Instant::now() < deadline {
                        std::thread::yield_now();
                    }
                    let over = s.query().unwrap();
                    began.fetch_add(usize::from(over), Ordering::Relaxed);
                    // If it is not, rank 0 has it in its queue: the two in opposite orders could wait for each other for ever.
                    call(0, if over { &s } else { &aside });
                }
                [&s, &aside].iter().for_each(|s| s.synchronize().unwrap());
                outputs.iter().for_each(|output| match kind {
                    Collective::AllReduce => output.expect_at(0..count, (0..ranks as i32).sum()),
                    _ => (0..ranks).for_each(|r| output.expect_at(r * count..(r + 1) * count, r as i32)),
                });
            }
        });
        // Where there are more cores than ranks each waits for those in front.
        assert!(began.into_inner() > 0 || processors() >= ranks, "{kind:?}: in no round");
    }
}

/// What is sent to oneself is written at once where nothing in front of it has to do with that memory; not over the input of a sum that was announced,
/// since that reads its own part again when it ends.
#[test]
fn what_is_sent_to_oneself_waits_for_sums_in_front_of_it() {
    let ranks = ranks();
    team(ranks, 2, |rank, comms| {
        let s = Stream::new().unwrap();
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for round in 0..100 {
            let (count, value) = (COUNTS[round % 3], 10 * round as i32);
            let (input, sum) = (Ints::new(count, value + rank as i32), Ints::new(count, -1));
            let (own, sink) = (Ints::new(count, -7), Ints::new(count, -1));
            let message = |comm: &Comm, (from, to): (usize, usize), a: &Ints, b: &Ints| {
                group::start();
                let send = request(Collective::Send, a.ptr(), std::ptr::null_mut(), count, &s).to(to);
                comm.submit(send).unwrap();
                comm.submit(request(Collective::Recv, std::ptr::null(), b.ptr(), count, &s).to(from)).unwrap();
                group::end().unwrap();
            };
            let call = request(Collective::AllReduce, input.ptr(), sum.ptr(), count, &s);
            comms[round / 3 % 2].submit(call).unwrap();
            message(&comms[0], (before, next), &own, &sink);
            message(&comms[0], (rank, rank), &own, &input);
            s.synchronize().unwrap();
            sum.expect(value * ranks as i32 + (0..ranks as i32).sum::<i32>());
            [&input, &sink].iter().for_each(|ints| ints.expect(-7));
        }
    });
}

/// Calls of a communicator that is aborted end, and give back what they lend, though one of another communicator in front of them
/// goes on. At least in one of some rounds: see the test above.
#[test]
fn an_abort_is_heard_behind_a_call_of_another_communicator() {
    const ROUNDS: usize = 4;
    let ranks = ranks();
    let soon = AtomicUsize::new(0);
    for _ in 0..ROUNDS {
        let aborted = AtomicUsize::new(0);
        team(ranks, 2, |rank, comms| {
            let s = Stream::new().unwrap();
            let (source, outputs) = (Ints::new(4, 1), [0, 1].map(|_| Ints::new(4, -1)));
            let call = |of: usize| {
                comms[of].submit(request(Collective::AllReduce, source.ptr(), outputs[of].ptr(), 4, &s)).unwrap();
            };
            if rank == 0 {
                (0..2).for_each(call);
                let since = Instant::now();
                comms[1].abort().unwrap();
                // It waits a second for what is still under way.
                soon.fetch_add(usize::from(since.elapsed() < Duration::from_millis(900)), Ordering::Relaxed);
                aborted.store(1, Ordering::SeqCst);
            } else {
                while aborted.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                call(0);
            }
            assert_eq!(s.synchronize().is_err(), rank == 0);
            outputs[0].expect(ranks as i32);
        });
    }
    assert!(soon.into_inner() > 0 || processors() >= ranks, "each abort waited");
}

/// Sums of two communicators into the same output on rank 0, which makes one after the other, while its peers make them the other
/// way round, on streams of their own: they write parts of that output, if they do, in the order of rank 0.
#[test]
fn what_peers_write_keeps_the_order_of_whom_they_write_to() {
    let ranks = ranks();
    team(ranks, 2, |rank, comms| {
        let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
        for round in 0..300 {
            let count = COUNTS[2 + round % 3];
            let value = |of: usize| (2 * round + of) as i32;
            let sources = [0, 1].map(|of| Ints::new(count, value(of)));
            let outputs = [0, 1].map(|_| Ints::new(count, -1));
            for of in if rank == 0 { [0, 1] } else { [1, 0] } {
                let (output, stream) = if rank == 0 { (0, 0) } else { (of, of) };
                let sum =
                    request(Collective::AllReduce, sources[of].ptr(), outputs[output].ptr(), count, &streams[stream]);
                comms[of].submit(sum).unwrap();
            }
            streams.iter().for_each(|s| s.synchronize().unwrap());
            outputs[0].expect(value(usize::from(rank == 0)) * ranks as i32);
            if rank > 0 {
                outputs[1].expect(value(1) * ranks as i32);
            }
        }
    });
}

#[test]
fn a_mismatched_message_behind_others_ends_on_both_sides() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, sink) = (Ints::new(4, 1), Ints::new(4, -1));
        let mut failed = None;
        // Each rank may send some calls more than it has received: around the circle that must not come to all calls.
        for call in 0..100 * (ranks + 1) {
            let count = if call == 60 && rank == 1 { 3 } else { 4 };
            group::start();
            let send = request(Collective::Send, source.ptr(), std::ptr::null_mut(), count, &s).to((rank + 1) % ranks);
            let recv = request(Collective::Recv, std::ptr::null(), sink.ptr(), 4, &s).to((rank + ranks - 1) % ranks);
            // A call may learn of the failure already, and the stream then have nothing left that fails.
            let calls = [comms[0].submit(send), comms[0].submit(recv), group::end()];
            failed = calls.into_iter().filter_map(Result::err).fold(failed, |first, error| first.or(Some(error)));
        }
        let error = failed.or(s.synchronize().err()).expect("no rank can have received all messages");
        assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
    });
}

#[test]
fn a_mismatch_behind_other_calls_ends_on_every_rank() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let source = Ints::new(4, 1);
        let outputs: Vec<Ints> = (0..12).map(|_| Ints::new(4, -1)).collect();
        let mut failed = None;
        for (i, output) in outputs.iter().enumerate() {
            let count = if i == 5 && rank == 1 { 3 } else { 4 };
            // A call may learn of the failure already, and the stream then have nothing left that fails.
            let call = comms[0].submit(request(Collective::AllReduce, source.ptr(), output.ptr(), count, &s));
            failed = failed.or(call.err());
        }
        let error = failed.or(s.synchronize().err()).expect("rank 1 makes another call");
        assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
        outputs[..5].iter().for_each(|o| o.expect(ranks as i32));
    });
}
