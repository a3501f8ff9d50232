//! Calls of some KiB by ranks that share cores, which follow one another or are waited for one by one: of what ranks give some is lent
//! and some goes by slots. In processes of their own, since threads can read all memory of each other.

use oxccl_runtime::VCounts;
use oxccl_runtime::device::Stream;
use oxccl_types::Collective;

use crate::crowds::processes;
use crate::scenarios::{Comm, Ints, To, all_reduce, request};

#[test]
fn who_lends_to_a_reduction_waits_for_the_root_and_who_cannot_does_not() {
    processes(5, &[("OXCCL_CORES", "2")], "sums");
}

#[test]
fn a_root_that_waits_for_each_call_gives_by_slots_and_lends_otherwise() {
    processes(5, &[("OXCCL_CORES", "2")], "gives");
}

#[test]
fn a_root_that_waits_for_each_gather_keeps_nobody_waiting() {
    processes(5, &[("OXCCL_CORES", "2")], "asks");
}

#[test]
fn who_waits_for_each_all_to_all_v_is_over_before_others_have_read() {
    processes(5, &[("OXCCL_CORES", "2")], "parts");
}

/// One rank of these.
pub(crate) fn one(rank: usize, ranks: usize, comms: &[Comm], what: &str) {
    let other = Stream::new().unwrap();
    let meeting = Ints::new(1, 1);
    let meet = || {
        all_reduce(&comms[1], &meeting, 1, &other);
        other.synchronize().unwrap_or_else(|e| panic!("{e}"));
    };
    match what {
        "gives" => roots(rank, ranks, &comms[0], meet),
        "asks" => gathers(rank, ranks, &comms[0], meet),
        "parts" => parts(rank, ranks, &comms[0], meet),
        _ => sums(rank, ranks, &comms[0], meet),
    }
}

/// Elements of the calls of a round, and how many there are: some go by slots before inputs are lent; more than may be under way, and more
/// than there are lines. Of the longer ones slots are few.
const ROUNDS: [(usize, usize); 8] =
    [(513, 40), (700, 100), (1024, 200), (513, 700), (2047, 40), (4096, 40), (4097, 40), (8192, 40)];
/// Elements, and calls, up to which who uses slots waits for nobody.
const MANY_SLOTS: (usize, usize) = (4096, 100);

/// Reductions. `meet`: all ranks come together.
fn sums(rank: usize, ranks: usize, comm: &Comm, meet: impl Fn()) {
    for (round, (count, calls)) in ROUNDS.into_iter().enumerate() {
        let root = round % ranks;
        let value = |call: usize, from: usize| (1000 * call + 10 * round + from) as i32;
        // An even number of elements is memory that peers can map.
        let is_mapped = (rank + round / 2).is_multiple_of(2);
        let elements = count.next_multiple_of(2) + usize::from(!is_mapped);
        let mut inputs: Vec<Ints> = (0..calls).map(|call| Ints::new(elements, value(call, rank))).collect();
        let outputs: Vec<Ints> = (0..calls).map(|_| Ints::new(elements, -1)).collect();
        let stream = Stream::new().unwrap();
        // So that nobody is behind by calls of the last round: slots are as many as those of this one.
        meet();
        if rank == root {
            meet();
        }
        for (input, output) in inputs.iter().zip(&outputs) {
            let call = request(Collective::Reduce, input.ptr(), output.ptr(), count, &stream).to(root);
            comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        }
        if rank != root {
            // The root, which has not come, has read nothing.
            let over = stream.query().unwrap_or_else(|e| panic!("{e}"));
            let what = if is_mapped { "lends" } else { "copies" };
            let waits = is_mapped || calls > MANY_SLOTS.1;
            assert!(over != waits || count > MANY_SLOTS.0, "rank {rank} {what} {count} elements: over {over}");
            meet();
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        // What is over is the program's again.
        inputs.iter_mut().for_each(|input| input.set(0..count, -7));
        for (call, output) in outputs.iter().enumerate() {
            let sum = if rank == root { (0..ranks).map(|from| value(call, from)).sum() } else { -1 };
            assert!(output.is_at(0..count, sum), "call {call} of {count} elements on rank {rank}, root {root}");
            assert!(output.is_at(count..elements, -1), "call {call} of {count} elements wrote more");
        }
    }
}

/// Calls that the root waits for one by one while the others have not come, then such as they come to at once, for which it does not wait,
/// then one more: more follow one another than go by slots.
const WAITED: usize = 5;
const FOLLOWING: usize = 20;
const CALLS: usize = WAITED + FOLLOWING + 1;

/// What a root gives to all others, or sends to the next rank, from memory that these can map.
fn roots(rank: usize, ranks: usize, comm: &Comm, meet: impl Fn()) {
    use Collective::{Broadcast, Recv, Scatter, Send};
    let usual = [(Broadcast, 2100), (Broadcast, 8192), (Scatter, 700), (Scatter, 8192 / ranks), (Broadcast, 3000)];
    // With the lines, but for the slots; in long slots; messages.
    let small = [(Broadcast, 700), (Scatter, 150), (Broadcast, 2048), (Scatter, 2048 / ranks)];
    let others = [(Broadcast, 16_000), (Scatter, 8000), (Send, 600), (Send, 1100), (Send, 8192)];
    for (round, (kind, count)) in usual.into_iter().chain(small).chain(others).enumerate() {
        let (root, stream) = (round % ranks, Stream::new().unwrap());
        let (next, leaf) = ((root + 1) % ranks, rank != root);
        let value = |call: usize| (1000 * call + 10 * round) as i32;
        let elements = (count * if kind == Scatter { ranks } else { 1 }).next_multiple_of(2);
        let mut inputs: Vec<Ints> = (0..=CALLS).map(|call| Ints::new(elements, value(call))).collect();
        let outputs: Vec<Ints> = (0..=CALLS).map(|_| Ints::new(count.next_multiple_of(2) + 2, -1)).collect();
        let submit = |call: usize| {
            let made = match kind {
                Send if leaf && rank != next => return,
                Send if leaf => request(Recv, inputs[call].ptr(), outputs[call].ptr(), count, &stream).to(root),
                Send => request(Send, inputs[call].ptr(), outputs[call].ptr(), count, &stream).to(next),
                _ => request(kind, inputs[call].ptr(), outputs[call].ptr(), count, &stream).to(root),
            };
            comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
        };
        let synchronize = || stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        let is_over = || stream.query().unwrap_or_else(|e| panic!("{e}"));
        // The first call of its kind finds out how the next ones go.
        submit(CALLS);
        synchronize();
        if rank == root {
            for call in 0..WAITED {
                submit(call);
                assert!(is_over(), "call {call} of {kind} of {count} waits for ranks that have not come");
            }
            meet();
        } else {
            meet();
            (0..WAITED).for_each(submit);
        }
        for call in WAITED..WAITED + FOLLOWING {
            submit(call);
            if rank != root {
                synchronize();
            }
            meet();
        }
        if rank == root {
            submit(CALLS - 1);
            assert!(!is_over(), "nothing of {kind} of {count} is lent");
            meet();
        } else {
            meet();
            submit(CALLS - 1);
        }
        synchronize();
        if rank == root {
            inputs.iter_mut().for_each(|input| input.set(0..elements, -7));
        }
        for (call, output) in outputs.iter().enumerate().filter(|_| kind != Send || rank == next) {
            assert!(
                output.is_at(0..count, value(call)),
                "call {call} of {kind} of {count} on rank {rank}, root {root}"
            );
            assert!(output.is_at(count..count + 2, -1), "call {call} of {kind} of {count} wrote more");
        }
    }
}

/// Gathers that all ranks wait for one by one, then such to which the root comes last: the others are over by then. In the end calls that
/// follow one another, by which the root lends its output again once those are far behind.
fn gathers(rank: usize, ranks: usize, comm: &Comm, meet: impl Fn()) {
    /// Calls before the root takes itself to wait for each, such as the others are over with, and such as follow one another.
    const ALONE: usize = 24;
    const LATE: usize = 3;
    const FOLLOWING: usize = 700;
    const ALL: usize = ALONE + LATE + FOLLOWING;
    for (round, count) in [600, 4000, 8000].into_iter().enumerate() {
        let (root, stream) = (round, Stream::new().unwrap());
        let value = |call: usize, from: usize| (1000 * call + 10 * round + from) as i32;
        let inputs: Vec<Ints> = (0..ALL).map(|call| Ints::new(count, value(call, rank))).collect();
        let output = Ints::new(count * ranks, -1);
        let submit = |call: usize| {
            let made = request(Collective::Gather, inputs[call].ptr(), output.ptr(), count, &stream).to(root);
            comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
        };
        let synchronize = || stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        let check = |call: usize| {
            let right = |from: usize| output.is_at(from * count..(from + 1) * count, value(call, from));
            assert!(rank != root || (0..ranks).all(right), "call {call} of {count} elements, root {root}");
        };
        for call in 0..ALONE {
            submit(call);
            synchronize();
            check(call);
        }
        meet();
        let late = ALONE..ALONE + LATE;
        for call in late.clone() {
            if rank == root {
                meet();
                submit(call);
                synchronize();
                check(call);
                meet();
            } else {
                submit(call);
                let over = stream.query().unwrap_or_else(|e| panic!("{e}"));
                assert!(over, "rank {rank} waits in call {call} of {count} elements for the root, which has not come");
                meet();
                meet();
            }
        }
        (late.end..ALL).for_each(submit);
        synchronize();
        check(ALL - 1);
    }
}

/// AlltoAllv that all ranks wait for one by one, then such to which one rank comes last, and is over though the others read only
/// later. In the end calls that follow one another.
fn parts(rank: usize, ranks: usize, comm: &Comm, meet: impl Fn()) {
    const ALONE: usize = 24;
    const LATE: usize = 3;
    const FOLLOWING: usize = 200;
    const ALL: usize = ALONE + LATE + FOLLOWING;
    for (round, unit) in [200, 300, 390].into_iter().enumerate() {
        let (last, stream) = (round, Stream::new().unwrap());
        // Together more than a small slot holds, and no more than one for such calls.
        let count = |from: usize, to: usize| unit - 5 * from - to;
        let value = |call: usize, from: usize, to: usize| (10_000 * call + 1000 * round + 10 * from + to) as i32;
        let input = |call: usize| {
            let mut input = Ints::new(unit * ranks, -2);
            (0..ranks).for_each(|to| input.set(to * unit..(to + 1) * unit, value(call, rank, to)));
            input
        };
        let inputs: Vec<Ints> = (0..ALL).map(input).collect();
        let output = Ints::new(unit * ranks, -1);
        let submit = |call: usize| {
            let mut made = request(Collective::AllToAllV, inputs[call].ptr(), output.ptr(), 0, &stream);
            let displs: Vec<usize> = (0..ranks).map(|peer| peer * unit).collect();
            made.v = Some(Box::new(VCounts {
                send_counts: (0..ranks).map(|to| count(rank, to)).collect(),
                send_displs: displs.clone(),
                recv_counts: (0..ranks).map(|from| count(from, rank)).collect(),
                recv_displs: displs,
            }));
            comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
        };
        let synchronize = || stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        let check = |call: usize| {
            for from in 0..ranks {
                let (at, n) = (from * unit, count(from, rank));
                assert!(
                    output.is_at(at..at + n, value(call, from, rank)),
                    "call {call} of {unit}: part of rank {from}"
                );
                assert!(output.is_at(at + n..at + unit, -1), "call {call} of {unit} wrote more from rank {from}");
            }
        };
        for call in 0..ALONE {
            submit(call);
            synchronize();
            check(call);
        }
        for call in ALONE..ALONE + LATE {
            if rank == last {
                meet();
                submit(call);
                let over = stream.query().unwrap_or_else(|e| panic!("{e}"));
                assert!(over, "rank {rank} waits in call {call} of {unit} for the others to read");
            } else {
                submit(call);
                meet();
            }
            meet();
            synchronize();
            check(call);
        }
        (ALONE + LATE..ALL).for_each(submit);
        synchronize();
        check(ALL - 1);
    }
}
