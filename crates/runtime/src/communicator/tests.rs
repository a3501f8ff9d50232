//! Several ranks in one process, each a thread: orders, endings and failures that are rare in programs.
//! Every operation has a time limit, so that a wait that never ends fails the test.

mod ahead;
mod causes;
mod management;

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use oxccl_types::{Collective, DataType, ReduceOp, Result};

use super::core::Lane;
use super::hub::{LINES_AHEAD, Slots};
use super::*;
use crate::config;
use crate::device::Stream;
use crate::request::{Operator, Shape, VCounts};

fn config(change: impl Fn(&mut config::Config)) -> config::Config {
    let mut c = config::Config::from_env();
    c.op_timeout = Some(Duration::from_secs(20));
    c.init_timeout = Duration::from_secs(60);
    change(&mut c);
    c
}

/// Runs `f` as each of `ranks` ranks.
fn world(ranks: usize, change: impl Fn(&mut config::Config) + Sync, f: impl Fn(Arc<Communicator>) + Sync) {
    world_by_rank(ranks, |_, c| change(c), f);
}

/// The same where `change` knows the rank.
fn world_by_rank(
    ranks: usize,
    change: impl Fn(usize, &mut config::Config) + Sync,
    f: impl Fn(Arc<Communicator>) + Sync,
) {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (f, id, change) = (&f, id.clone(), &change);
            scope.spawn(move || {
                let device = rank % crate::device::count();
                let comm = Communicator::new(rank, ranks, device, CommConfig::default(), Arc::default());
                init::join(&comm, &[id], config(|c| change(rank, c)), "test").unwrap();
                f(comm);
            });
        }
    });
}

/// Bytes, so that counts are lengths.
fn request(collective: Collective, send: &[u8], recv: &mut [u8], count: usize, root: usize, on: &Stream) -> Request {
    Request {
        collective,
        send: send.as_ptr(),
        recv: recv.as_mut_ptr(),
        count,
        dtype: DataType::Uint8,
        op: Operator::Builtin(ReduceOp::Sum),
        root,
        bias: std::ptr::null(),
        v: None,
        stream: on.clone(),
    }
}

fn exchange_request(ranks: usize, send: &[u8], recv: &mut [u8], on: &Stream) -> Request {
    let v = VCounts {
        send_counts: vec![1; ranks],
        send_displs: (0..ranks).collect(),
        recv_counts: vec![1; ranks],
        recv_displs: (0..ranks).collect(),
    };
    Request { v: Some(Box::new(v)), ..request(Collective::AllToAllV, send, recv, 0, 0, on) }
}

fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Whether `done` comes true in time.
fn soon(done: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() && Instant::now() < end {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    done()
}

/// Whether each of two ranks, which may use these cores, takes itself for one of many on them.
fn crowded(sets: [rustix::thread::CpuSet; 2]) -> [bool; 2] {
    let id = UniqueId::create().unwrap();
    let rank = |rank: usize| {
        let id = id.clone();
        move || {
            rustix::thread::sched_setaffinity(None, &sets[rank]).unwrap();
            let device = rank % crate::device::count();
            let comm = Communicator::new(rank, 2, device, CommConfig::default(), Arc::default());
            init::join(&comm, &[id], config(|_| ()), "test").unwrap();
            comm.core().unwrap().crowded
        }
    };
    let threads = [std::thread::spawn(rank(0)), std::thread::spawn(rank(1))];
    threads.map(|t| t.join().unwrap())
}

#[test]
fn ranks_that_are_bound_to_a_core_each_do_not_share_it() {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).map(|core| {
        let mut set = CpuSet::new();
        set.set(core);
        set
    });
    let first = cores.next().unwrap();
    assert_eq!(crowded([first, first]), [true; 2]);
    if let Some(second) = cores.next() {
        assert_eq!(crowded([first, second]), [false; 2]);
    }
}

#[test]
fn sources_are_free_and_everything_is_written_when_sends_over_the_network_end() {
    const N: usize = 32 << 10;
    let sent = AtomicU32::new(0);
    let received = AtomicU32::new(0);
    let full = Barrier::new(2);
    world(
        2,
        |c| c.shm = false,
        |comm| {
            let stream = Stream::new().unwrap();
            let broadcast = |data: &mut [u8]| {
                let at = data.as_mut_ptr();
                Request { send: at, recv: at, ..request(Collective::Broadcast, &[], &mut [], N, 0, &stream) }
            };
            let mut data = vec![0; N];
            if comm.rank == 0 {
                // Until the sockets are full and a broadcast does not end any more.
                let mut ends = true;
                while ends {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    data.fill(number as u8);
                    comm.submit(broadcast(&mut data)).unwrap();
                    let patience = Instant::now() + Duration::from_millis(300);
                    ends = loop {
                        match stream.query().unwrap() {
                            false if Instant::now() < patience => std::thread::yield_now(),
                            idle => break idle,
                        }
                    };
                }
                full.wait();
                stream.synchronize().unwrap();
                data.fill(0xdd);
            } else {
                full.wait();
                for number in 0..sent.load(Ordering::Relaxed) {
                    comm.submit(broadcast(&mut data)).unwrap();
                    stream.synchronize().unwrap();
                    assert!(data.iter().all(|b| *b == number as u8), "broadcast {number}");
                }
            }
            // The root does not poll its connections any more while the other still receives.
            received.fetch_add(comm.rank as u32, Ordering::Relaxed);
            assert!(soon(|| received.load(Ordering::Relaxed) == 1));
            comm.destroy().unwrap();
        },
    );
}

/// Of two zeros a maximum or minimum keeps one by their places, not by their signs.
#[test]
fn zeros_of_either_sign_come_out_alike_on_every_rank() {
    const RANKS: usize = 6;
    // Ranks of a host; 1: each by itself.
    for (algorithm, local) in [
        ("linear", 1),
        ("ring", 1),
        ("recursive", 1),
        ("doubling", 1),
        ("tree", 1),
        ("hierarchical", 2),
        ("hierarchical", 3),
        ("leader", 2),
        ("leader", 3),
    ] {
        let found = Mutex::new(Vec::new());
        let change = |rank: usize, c: &mut config::Config| {
            (c.host_id, c.algo) = (Some((rank / local).to_string()), algorithm.into());
        };
        world_by_rank(RANKS, change, |comm| {
            assert_eq!(comm.core().unwrap().local as usize, local);
            let stream = Stream::new().unwrap();
            let mut mine = Vec::new();
            for op in [ReduceOp::Max, ReduceOp::Min] {
                for signs in 0..1 << RANKS {
                    let input = if signs >> comm.rank & 1 == 0 { 0.0_f32 } else { -0.0 }.to_ne_bytes();
                    let mut output = [0xff; 4];
                    let r = request(Collective::AllReduce, &input, &mut output, 1, 0, &stream);
                    comm.submit(Request { dtype: DataType::Float32, op: Operator::Builtin(op), ..r }).unwrap();
                    stream.synchronize().unwrap();
                    mine.push(u32::from_ne_bytes(output));
                }
            }
            found.lock().unwrap().push(mine);
            comm.destroy().unwrap();
        });
        let found = found.into_inner().unwrap();
        assert!(found.len() == RANKS && found.windows(2).all(|w| w[0] == w[1]), "{algorithm} {local}: {found:x?}");
    }
}

#[test]
fn data_on_its_way_survives_the_end_of_its_sender() {
    // Fits the sockets' buffers: the root is done, and gone, before the other begins to read.
    const N: usize = 300 << 10;
    world(
        2,
        |c| c.shm = false,
        |comm| {
            let stream = Stream::new().unwrap();
            let mut data = vec![if comm.rank == 0 { 7 } else { 0 }; N];
            let at = data.as_mut_ptr();
            for round in 0..3 {
                if comm.rank == 1 && round == 2 {
                    pass(Duration::from_millis(50));
                }
                let r = Request { send: at, recv: at, ..request(Collective::Broadcast, &[], &mut [], N, 0, &stream) };
                comm.submit(r).unwrap();
                stream.synchronize().unwrap();
            }
            assert!(data.iter().all(|b| *b == 7));
            comm.destroy().unwrap();
        },
    );
}

#[test]
fn ranks_run_ahead_past_calls_by_messages() {
    world(
        3,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([comm.rank as u8; 8], [0; 8]);
            comm.submit(request(Collective::AllReduce, &send, &mut recv, 4, 0, &stream)).unwrap();
            for _ in 0..3 {
                comm.submit(exchange_request(3, &send, &mut recv, &stream)).unwrap();
                for _ in 0..20 {
                    comm.submit(request(Collective::Broadcast, &send, &mut recv, 4, 0, &stream)).unwrap();
                }
            }
            stream.synchronize().unwrap();
            assert_eq!(recv[..3], [0, 0, 0]);
            comm.destroy().unwrap();
        },
    );
}

/// Who waits for nobody is as many calls ahead as there is room for what it gives, and no more; and none of that is lost.
#[test]
fn who_gives_runs_as_far_ahead_as_there_is_room() {
    for bytes in [8, 1000, 3000, 8000] {
        for collective in [Collective::Broadcast, Collective::Reduce] {
            as_far_ahead_as_there_is_room(collective, bytes);
        }
    }
}

/// Both ranks in one thread, so that each goes on when it is told to.
fn as_far_ahead_as_there_is_room(collective: Collective, bytes: usize) {
    let (sender, receiver) = channel();
    // On a core each, also where the machine has fewer; and all by slots, which some processors would use for what is shorter only.
    let change = |c: &mut config::Config| {
        (c.constants.cores_told, c.constants.model.cores) = (Some(2), 2.0);
        (c.eager_auto, c.eager_limit) = (false, 8192);
    };
    world(2, change, |comm| sender.send((comm, Stream::new().unwrap())).unwrap());
    let mut ranks: Vec<(Arc<Communicator>, Stream)> = (0..2).map(|_| receiver.recv().unwrap()).collect();
    ranks.sort_by_key(|(comm, _)| comm.rank);
    let geometry = *ranks[0].0.core().unwrap().hub.geometry();
    assert!(!geometry.crowded);
    let slots = if geometry.roots_run_ahead() { Slots::Given } else { Slots::Usual };
    let ahead = match bytes {
        8 => LINES_AHEAD,
        1000 => geometry.ahead(Slots::Small),
        _ => geometry.ahead(slots),
    } as usize;
    let what = format!("{collective:?} of {bytes} B, {ahead} ahead");
    let root = usize::from(collective == Collective::Reduce);
    let call = |rank: usize, send: &[u8], recv: &mut [u8]| {
        let (comm, stream) = &ranks[rank];
        comm.submit(request(collective, send, recv, bytes, root, stream)).unwrap();
    };
    let given: Vec<Vec<u8>> =
        (0..3 * ahead + 100).map(|n| (0..bytes).map(|i| (i + n * 7 + (n >> 8)) as u8).collect()).collect();
    let (own, mut got, mut unused) = (vec![0; bytes], vec![0; bytes], vec![0; bytes]);
    let mut take = |n: usize| {
        call(1, &own, &mut got);
        ranks[1].1.synchronize().unwrap();
        assert!(got == given[n], "{what}: call {n} got something else");
    };
    let giver = &ranks[0].1;
    for (n, send) in given.iter().enumerate() {
        call(0, send, &mut unused);
        if n < ahead {
            // At once, unless the helper has the stream just then.
            assert!(soon(|| giver.query().unwrap()), "{what}: call {n} waits for room");
            continue;
        }
        assert!(!giver.query().unwrap(), "{what}: call {n} did not wait for room");
        if n == ahead {
            // By its first call the peer says nothing of any before.
            take(0);
            assert!(!giver.query().unwrap(), "{what}: call {n} did not wait for room");
        }
        take(n - ahead + 1);
        assert!(soon(|| giver.query().unwrap()), "{what}: call {n} waits for more than room");
    }
    (given.len() - ahead + 1..given.len()).for_each(take);
    for (comm, stream) in &ranks {
        stream.synchronize().unwrap();
        comm.abort().unwrap();
    }
}

#[test]
fn an_exchange_against_another_collective_fails_on_both_sides() {
    world(
        2,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 8], [0; 8]);
            if comm.rank == 0 {
                comm.submit(exchange_request(2, &send, &mut recv, &stream)).unwrap();
            } else {
                comm.submit(request(Collective::AllReduce, &send, &mut recv, 4, 0, &stream)).unwrap();
            }
            let error = stream.synchronize().unwrap_err();
            assert!(error.text.contains("different operations"), "{}", error.text);
            assert_eq!(recv[1..], [0; 7]); // a rank's own block may be there
            comm.abort().unwrap();
        },
    );
}

#[test]
fn a_mismatch_is_found_though_the_peer_is_a_call_ahead() {
    let ahead = Barrier::new(2);
    world(
        2,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 64], [0; 64]);
            for _ in 0..8 {
                comm.submit(request(Collective::Broadcast, &send, &mut recv, 8, 0, &stream)).unwrap();
            }
            if comm.rank == 1 {
                comm.submit(request(Collective::Reduce, &send, &mut recv, 4, 0, &stream)).unwrap();
                comm.submit(request(Collective::Reduce, &send, &mut recv, 64, 0, &stream)).unwrap();
                assert!(soon(|| comm.core().unwrap().is_idle() || stream.query().is_err()));
                ahead.wait();
            } else {
                ahead.wait();
                comm.submit(request(Collective::Reduce, &send, &mut recv, 64, 0, &stream)).unwrap();
                let error = stream.synchronize().unwrap_err();
                assert!(error.text.contains("different operations"), "{}", error.text);
            }
            comm.abort().unwrap();
        },
    );
}

/// What the stream still holds ends the communicator when the next call looks at it: that call is not made then.
#[test]
fn a_call_is_not_made_again_behind_one_that_has_failed() {
    let (queued, told) = (Barrier::new(2), Barrier::new(2));
    world(
        2,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 8], [0; 8]);
            let again = |recv: &mut [u8; 8]| {
                let call = request(Collective::Broadcast, &send, recv, 8, 0, &stream);
                comm.again(&Shape::of(&call).unwrap(), call.send, call.recv, &stream)
            };
            comm.submit(request(Collective::Broadcast, &send, &mut recv, 8, 0, &stream)).unwrap();
            stream.synchronize().unwrap();
            assert!(again(&mut recv), "it may be made again as long as nothing has failed");
            if comm.rank == 0 {
                comm.submit(request(Collective::AllReduce, &send, &mut recv, 8, 0, &stream)).unwrap();
                queued.wait();
                told.wait();
            } else {
                queued.wait();
                let submitted = comm.submit(request(Collective::AllReduce, &send, &mut recv, 4, 0, &stream));
                submitted.and_then(|()| stream.synchronize()).unwrap_err();
                told.wait();
            }
            assert!(!again(&mut recv));
            let refused = comm.submit(request(Collective::Broadcast, &send, &mut recv, 8, 0, &stream)).unwrap_err();
            assert!(refused.text.contains("different operations"), "{}", refused.text);
            comm.abort().unwrap();
        },
    );
}

#[test]
fn a_mismatch_that_nobody_had_to_look_at_is_found_by_the_next_call() {
    world(
        3,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 8], [0; 8]);
            // Rank 2 gives to a reduction while the others broadcast: no rank needs its line.
            let c = if comm.rank == 2 { Collective::Reduce } else { Collective::Broadcast };
            // A submission itself fails where a peer was faster.
            let first = comm.submit(request(c, &send, &mut recv, 8, 0, &stream));
            let mut sum = [0; 8];
            let mut next = || comm.submit(request(Collective::AllReduce, &send, &mut sum, 8, 0, &stream));
            let error = first.and_then(|()| next()).and_then(|()| stream.synchronize()).unwrap_err();
            assert!(error.text.contains("different operations"), "{}", error.text);
            comm.abort().unwrap();
        },
    );
}

#[test]
fn a_rank_that_left_early_is_not_missed() {
    world(
        3,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([comm.rank as u8; 8], [0; 8]);
            if comm.rank == 2 {
                pass(Duration::from_millis(400)); // longer than the grace for those who died
            }
            comm.submit(request(Collective::Reduce, &send, &mut recv, 8, 0, &stream)).unwrap();
            let result = stream.synchronize();
            assert_eq!(result, Ok(()), "rank {}", comm.rank);
            if comm.rank == 0 {
                assert_eq!(recv, [3; 8]);
            }
            comm.destroy().unwrap();
        },
    );
}

#[test]
fn a_rank_that_left_without_the_call_is_named() {
    world(
        3,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 8], [0; 8]);
            if comm.rank < 2 {
                comm.submit(request(Collective::AllReduce, &send, &mut recv, 8, 0, &stream)).unwrap();
                let error = stream.synchronize().unwrap_err();
                assert!(error.text.contains("rank 2"), "{}", error.text);
            }
            comm.destroy().unwrap();
        },
    );
}

#[test]
fn operations_that_fail_out_of_order_leave_nothing_under_way() {
    world(
        2,
        |_| {},
        |comm| {
            if comm.rank == 0 {
                let core = comm.core().unwrap();
                for lane in [Lane::Collectives, Lane::P2p] {
                    let tickets = [core.issue(lane), core.issue(lane), core.issue(lane)];
                    for ticket in [tickets[1], tickets[0], tickets[2]] {
                        assert!(!core.is_idle());
                        core.fail_operation(lane, ticket, &Error::usage("test"), false);
                    }
                    assert!(core.is_idle());
                }
            }
            comm.destroy().unwrap();
        },
    );
}

#[test]
fn a_failing_operation_waits_for_who_touches_its_memory() {
    let cores = Mutex::new(Vec::new());
    world(2, |_| {}, |comm| cores.lock().unwrap().push(comm.core().unwrap().clone()));
    let cores = cores.into_inner().unwrap();
    let (told, tells) = channel();
    let borrowed = cores[1].borrow_memory(Lane::Collectives).unwrap();
    std::thread::scope(|scope| {
        let failing = &cores[0];
        scope.spawn(move || {
            let ticket = failing.issue(Lane::Collectives);
            failing.fail_operation(Lane::Collectives, ticket, &Error::usage("test"), true);
            told.send(()).unwrap();
        });
        assert!(soon(|| cores[1].check().is_err()), "the failure is told to the others");
        assert!(tells.recv_timeout(Duration::from_millis(50)).is_err(), "the buffers are given back too early");
        drop(borrowed);
        tells.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(cores[1].borrow_memory(Lane::Collectives).is_none() && cores[1].borrow_memory(Lane::P2p).is_none());
    });
}

#[test]
fn a_stream_keeps_no_destroyed_communicator() {
    let late = Barrier::new(3);
    world(
        3,
        |_| {},
        |comm| {
            let stream = Stream::new().unwrap();
            let (send, mut recv) = ([1; 8], [0; 8]);
            if comm.rank != 0 {
                late.wait();
            }
            comm.submit(request(Collective::Broadcast, &send, &mut recv, 8, 0, &stream)).unwrap();
            let core = Arc::downgrade(comm.core().unwrap());
            if comm.rank == 0 {
                late.wait();
            } else {
                stream.synchronize().unwrap();
            }
            comm.destroy().unwrap();
            drop(comm);
            assert!(soon(|| core.strong_count() == 0));
        },
    );
}

#[test]
fn work_that_panics_fails_its_stream_and_no_more() -> Result<()> {
    let stream = Stream::new()?;
    stream.launch_host(Box::new(|| panic!("on purpose")))?;
    let error = stream.synchronize().unwrap_err();
    assert!(error.text.contains("on purpose"), "{}", error.text);
    let (told, tells) = channel();
    stream.launch_host(Box::new(move || told.send(()).unwrap()))?;
    stream.synchronize()?;
    assert!(tells.try_recv().is_ok());
    Ok(())
}

/// Which rank found which settings makes no difference: rank 0's hold on all.
#[test]
fn ranks_with_different_settings_agree() {
    let turn = AtomicU32::new(0);
    let change = |c: &mut config::Config| {
        c.constants = config::tuning::Constants::default();
        if turn.fetch_add(1, Ordering::Relaxed) == 0 {
            return;
        }
        (c.eager_limit, c.scratch, c.slot_bytes) = (64, 128 << 10, 4096);
        c.algo = "ring,staged_one_shot".into();
        // Passes cost nothing but signals: few steps look best.
        c.constants.model.signal_us = 1000.0;
    };
    for shm in [true, false] {
        turn.store(0, Ordering::Relaxed);
        world(
            2,
            |c| {
                change(c);
                c.shm = shm;
            },
            |comm| {
                let core = comm.core().unwrap();
                let stream = Stream::new().unwrap();
                for bytes in [8, 300, 5000, 100_000] {
                    let (send, mut recv) = (vec![comm.rank as u8 + 1; bytes], vec![0; bytes]);
                    comm.submit(request(Collective::AllReduce, &send, &mut recv, bytes, 0, &stream)).unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(recv, vec![3; bytes], "{bytes} bytes");
                }
                let model = oxccl_schedule::constants::encode(&core.config.constants.model);
                let others = core.peers[0].payload.windows(model.len()).any(|w| w == model);
                assert!(others, "rank {} uses the constants of rank 0", comm.rank);
            },
        );
    }
}
