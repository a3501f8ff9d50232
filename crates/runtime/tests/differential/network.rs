//! What bursts and long messages do where ranks share no memory. Each test runs in a process of its own, since that is a
//! setting of the environment; ranks are threads of it.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use oxccl_runtime::device::Stream;
use oxccl_runtime::{Request, VCounts, group};
use oxccl_types::{Collective, ResultCode};

use crate::crowds::processes;
use crate::job::PAIR;
use crate::scenarios::{Comm, Ints, To, all_reduce, request, team};

/// Runs the test `name`, be it an ignored one, in a process with `env`. A hang ends by the limit for operations.
pub(crate) fn alone(name: &str, env: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env("OXCCL_SHM", "0")
        .env("OXCCL_OP_TIMEOUT", "20")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{said}");
}

#[test]
fn a_message_that_the_kernel_takes_in_part_goes_on_while_its_sender_waits() {
    alone("network::exchanges_long_messages", &[("OXCCL_SLOT_BYTES", "4194304")]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential a_message` runs it in a process of its own"]
fn exchanges_long_messages() {
    // Beyond what both kernels hold, in one piece each way.
    const COUNT: usize = 3 << 20;
    team(2, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (data, out) = (Ints::new(COUNT, 7 + rank as i32), Ints::new(2 * COUNT, -1));
        for _ in 0..3 {
            comms[0].submit(request(Collective::AllGather, data.ptr(), out.ptr(), COUNT, &s)).unwrap();
            s.synchronize().unwrap();
            out.expect_at(0..COUNT, 7);
            out.expect_at(COUNT..2 * COUNT, 8);
        }
        let sum = Ints::new(COUNT, 1 + rank as i32);
        all_reduce(&comms[0], &sum, COUNT, &s);
        s.synchronize().unwrap();
        sum.expect(3);
    });
}

#[test]
fn groups_of_messages_go_out_together_in_any_order() {
    alone("exchanges::groups_of_messages_in_any_order", &[]);
}

#[test]
fn long_calls_that_go_one_way_arrive_in_order() {
    for slot in ["4096", "32768", "1048576"] {
        alone("network::goes_one_way", &[("OXCCL_SLOT_BYTES", slot)]);
    }
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential long_calls` runs it in a process of its own"]
fn goes_one_way() {
    // Several of the longest pieces, and a rest that ends amid a line.
    const COUNT: usize = (9 << 19) + 3;
    team(2, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let values = |factor: i32| (0..COUNT as i32).map(|i| i.wrapping_mul(factor)).collect::<Vec<i32>>();
        let call = |collective, send: *const i32, recv: *mut i32| {
            comms[0].submit(request(collective, send.cast(), recv.cast(), COUNT, &s)).unwrap();
            s.synchronize().unwrap();
        };
        // What goes one way alone, then behind what has gone both ways.
        for _ in 0..2 {
            let (mut input, mut output) = (values(if rank == 0 { 3 } else { 5 }), vec![-1; COUNT]);
            call(Collective::Broadcast, input.as_ptr(), output.as_mut_ptr());
            assert!(output == values(3));
            call(Collective::Reduce, input.as_ptr(), output.as_mut_ptr());
            assert!(output == values(if rank == 0 { 8 } else { 3 }));
            // The output of a rank that is not the root means nothing, wherever it is.
            let inside = input[COUNT / 2..].as_mut_ptr();
            call(Collective::Reduce, input.as_ptr(), if rank == 0 { output.as_mut_ptr() } else { inside });
            assert!(rank != 0 || output == values(8));
            call(Collective::Broadcast, output.as_ptr(), output.as_mut_ptr());
            assert!(output == values(8));
            call(Collective::Reduce, input.as_ptr(), input.as_mut_ptr());
            assert!(input == values(if rank == 0 { 8 } else { 5 }));
            call(Collective::AllReduce, input.as_ptr(), output.as_mut_ptr());
            assert!(output == values(13));
        }
    });
}

#[test]
fn bursts_of_small_calls_arrive_in_order() {
    alone("network::sends_a_burst", &[]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential bursts_of` runs it in a process of its own"]
fn sends_a_burst() {
    const CALLS: usize = 500;
    team(3, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let length = |i: usize| [1, 2, 700, 0, 1024][i % 5];
        let data: Vec<Ints> = (0..CALLS).map(|i| Ints::new(length(i), if rank == 0 { i as i32 } else { -1 })).collect();
        let sums: Vec<Ints> = (0..CALLS).map(|_| Ints::new(3, -1)).collect();
        for i in 0..CALLS {
            let collective = Collective::Broadcast;
            comms[0].submit(request(collective, data[i].ptr(), data[i].ptr(), length(i), &s)).unwrap();
            // Now and then one that goes the other way, or both.
            if i % 7 == 0 {
                let one = Ints::new(1, i as i32);
                comms[0].submit(request(Collective::Reduce, one.ptr(), sums[i].ptr(), 1, &s)).unwrap();
                all_reduce(&comms[0], &one, 1, &s);
                s.synchronize().unwrap();
                one.expect(3 * i as i32);
            }
        }
        s.synchronize().unwrap();
        for i in 0..CALLS {
            data[i].expect(i as i32);
            if rank == 0 && i % 7 == 0 {
                sums[i].expect_at(0..1, 3 * i as i32);
            }
        }
    });
}

#[test]
fn ends_of_messages_that_travel_with_the_next_arrive_in_order() {
    alone("network::sends_ends_with_what_follows", &[]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential ends_of` runs it in a process of its own"]
fn sends_ends_with_what_follows() {
    const CALLS: usize = 120;
    for ranks in [2, 3] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            // Below and above what waits in this process, and what waits in the kernel.
            let length = |i: usize| [16_368, 1, 20_000, 3, 100_001][i % 5];
            let root = |i: usize| if i % 11 < 6 { 0 } else { i % ranks };
            let put = |collective, i: usize, from: &Ints, to: &Ints| {
                let r = Request { root: root(i), ..request(collective, from.ptr(), to.ptr(), length(i), &s) };
                comms[0].submit(r).unwrap();
            };
            let blocks = |i: usize, mine: bool| Ints::new(ranks * length(i), if mine { i as i32 } else { -1 });
            let data: Vec<_> = (0..CALLS).map(|i| (blocks(i, rank == root(i)), Ints::new(length(i), -1))).collect();
            let all: Vec<_> = (0..CALLS).map(|i| blocks(i, false)).collect();
            for (i, (from, to)) in data.iter().enumerate() {
                match i % 4 {
                    0 | 1 => put(Collective::Broadcast, i, from, to),
                    _ => put(Collective::Scatter, i, from, to),
                }
                put(Collective::Gather, i, to, &all[i]);
                // Now and then one that goes both ways is behind it, and then nothing.
                if i % 13 == 12 {
                    let one = Ints::new(1, 1);
                    all_reduce(&comms[0], &one, 1, &s);
                    s.synchronize().unwrap();
                    one.expect(ranks as i32);
                }
            }
            s.synchronize().unwrap();
            for (i, (_, to)) in data.iter().enumerate() {
                to.expect(i as i32);
                if rank == root(i) {
                    all[i].expect(i as i32);
                }
            }
        });
    }
}

#[test]
fn groups_of_messages_with_own_ones_arrive_where_ranks_share_cores() {
    processes(4, &[("NCCL_HOSTID", PAIR), ("OXCCL_CORES", "1")], "itself");
}

/// A rank's part: groups of messages to a rank of another host and to itself, short enough to begin before those in front are over, but together
/// more than kernels hold: who is in a group must read what the next ones send.
pub(crate) fn with_itself(rank: usize, ranks: usize, comm: &Comm) {
    const CALLS: usize = 256;
    const COUNT: usize = 30_000;
    let s = Stream::new().unwrap();
    let other = (rank + ranks / 2) % ranks;
    let value = |call: usize, rank: usize| (100 * call + rank) as i32;
    let inputs: Vec<Ints> = (0..CALLS).map(|call| Ints::new(COUNT, value(call, rank))).collect();
    let outputs: Vec<Ints> = (0..CALLS).map(|_| Ints::new(2 * COUNT, -1)).collect();
    for (input, output) in inputs.iter().zip(&outputs) {
        group::start();
        for (block, peer) in [rank, other].into_iter().enumerate() {
            let out = output.ptr().wrapping_add(4 * block * COUNT);
            comm.submit(request(Collective::Send, input.ptr(), out, COUNT, &s).to(peer)).unwrap();
            comm.submit(request(Collective::Recv, input.ptr(), out, COUNT, &s).to(peer)).unwrap();
        }
        group::end().unwrap();
    }
    s.synchronize().unwrap();
    for (call, output) in outputs.iter().enumerate() {
        output.expect_at(0..COUNT, value(call, rank));
        output.expect_at(COUNT..2 * COUNT, value(call, other));
    }
}

#[test]
fn what_is_small_does_not_wait_for_a_call_that_waits_itself() {
    alone("network::sends_before_a_gate", &[]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential what_is_small` runs it in a process of its own"]
fn sends_before_a_gate() {
    let (came, gate) = sync_channel::<()>(2);
    let gate = std::sync::Arc::new(Mutex::new(gate));
    // In this process, and its end in the kernel.
    let lengths = [1, 30_001];
    team(2, 1, |rank, comms| {
        lengths.into_iter().for_each(|length| {
            let (a, b) = (Stream::new().unwrap(), Stream::new().unwrap());
            let data: Vec<Ints> = (0..4).map(|i| Ints::new(length, if rank == 0 { i } else { -1 })).collect();
            let send = |i: usize, s: &Stream| {
                comms[0].submit(request(Collective::Broadcast, data[i].ptr(), data[i].ptr(), length, s)).unwrap();
            };
            // Each gate opens when the call before it has come to the other rank: on the same stream, then on another one.
            for (at, s) in [(0, &a), (2, &b)] {
                send(at, &a);
                if rank == 0 {
                    let gate = gate.clone();
                    let open = move || gate.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
                    s.launch_host(Box::new(open)).unwrap();
                } else {
                    a.synchronize().unwrap();
                    data[at].expect(at as i32);
                    came.send(()).unwrap();
                }
                send(at + 1, s);
                a.synchronize().unwrap();
                s.synchronize().unwrap();
            }
            (0..4).for_each(|i| data[i].expect(i as i32));
        })
    });
}

/// Counts of what each rank sends to each, `count(from, to)`, as `rank` gives them: parts that follow one another.
fn by_counts(rank: usize, ranks: usize, count: impl Fn(usize, usize) -> usize) -> VCounts {
    let displs = |counts: &[usize]| (0..counts.len()).map(|p| counts[..p].iter().sum()).collect();
    let send_counts: Vec<usize> = (0..ranks).map(|peer| count(rank, peer)).collect();
    let recv_counts: Vec<usize> = (0..ranks).map(|peer| count(peer, rank)).collect();
    VCounts { send_displs: displs(&send_counts), recv_displs: displs(&recv_counts), send_counts, recv_counts }
}

fn all_to_all_v(v: &VCounts, input: *const u8, output: *mut u8, s: &Stream) -> Request {
    Request { v: Some(Box::new(v.clone())), ..request(Collective::AllToAllV, input, output, 0, s) }
}

#[test]
fn all_to_alls_by_counts_follow_each_other() {
    for ranks in ["2", "3", "4"] {
        alone("network::exchanges_by_counts", &[("EXCHANGES_BY_COUNTS", ranks)]);
    }
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential all_to_alls_by` runs it in a process of its own"]
fn exchanges_by_counts() {
    const CALLS: usize = 60;
    let ranks: usize = std::env::var("EXCHANGES_BY_COUNTS").unwrap().parse().unwrap();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        // Some send nothing, some receive nothing, some calls are longer than what begins early, on some ranks only.
        for lengths in [[0, 1, 5, 300, 1], [1, 1, 1, 1, 1], [0, 0, 2000, 0, 7], [9000, 0, 3, 1, 20_000]] {
            let value = |call: usize, rank: usize| (100 * call + rank) as i32;
            // Between two of them one that passes on what the one before it received, block by block.
            let counts = |call: usize| {
                let even = !call.is_multiple_of(3);
                by_counts(rank, ranks, move |a, b| if even { 2 } else { lengths[(call + 2 * a + 3 * b) % 5] })
            };
            let calls: Vec<VCounts> = (0..CALLS).map(counts).collect();
            let total = |counts: &[usize]| counts.iter().sum::<usize>().max(1);
            let inputs: Vec<Ints> =
                calls.iter().enumerate().map(|(i, v)| Ints::new(total(&v.send_counts), value(i, rank))).collect();
            let outputs: Vec<Ints> = calls.iter().map(|v| Ints::new(total(&v.recv_counts), -1)).collect();
            for (i, v) in calls.iter().enumerate() {
                let input = if i % 3 == 2 { outputs[i - 1].ptr() } else { inputs[i].ptr() };
                comms[0].submit(all_to_all_v(v, input, outputs[i].ptr(), &s)).unwrap();
            }
            s.synchronize().unwrap();
            for (i, v) in calls.iter().enumerate() {
                for (peer, (count, displ)) in v.recv_counts.iter().zip(&v.recv_displs).enumerate() {
                    let from = if i % 3 == 2 { value(i - 1, rank) } else { value(i, peer) };
                    outputs[i].expect_at(*displ..displ + count, from);
                }
            }
        }
    });
}

#[test]
fn counts_that_differ_behind_other_calls_end_on_every_rank() {
    for (wrong, ranks) in [("peer", "2"), ("peer", "3"), ("own", "2")] {
        alone("network::differs_in_a_count", &[("EXCHANGES_BY_COUNTS", ranks), ("WRONG_COUNT", wrong)]);
    }
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential counts_that` runs it in a process of its own"]
fn differs_in_a_count() {
    // A rank may have sent some calls more than it has received: around the ranks that must not come to all of them.
    const CALLS: usize = 200;
    let ranks: usize = std::env::var("EXCHANGES_BY_COUNTS").unwrap().parse().unwrap();
    let own = std::env::var("WRONG_COUNT").unwrap() == "own";
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let mut failed = None;
        let source = Ints::new(4 * ranks, rank as i32);
        let outputs: Vec<Ints> = (0..CALLS).map(|_| Ints::new(4 * ranks, -1)).collect();
        for (i, output) in outputs.iter().enumerate() {
            let mut v = by_counts(rank, ranks, |_, _| 4);
            if i == 25 && rank == 1 {
                v.send_counts[if own { 1 } else { 0 }] = 3;
            }
            // A call may learn of the failure already.
            failed = failed.or(comms[0].submit(all_to_all_v(&v, source.ptr(), output.ptr(), &s)).err());
        }
        let error = failed.or(s.synchronize().err()).expect("no rank can have received all parts");
        assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
        assert!(error.text.contains("AlltoAllv"), "{}", error.text);
        // Where it is found what came before is right: others may be told of the end while they wait.
        if rank == 0 && !own {
            outputs[..25].iter().for_each(|o| (0..ranks).for_each(|p| o.expect_at(4 * p..4 * p + 4, p as i32)));
        }
    });
}
