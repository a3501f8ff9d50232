//! Calls that do not match: an error on every rank, soon, that names both calls; no hang and no wrong data.

use std::time::Duration;

use oxccl::{Communicator, DeviceBuffer, Element, ReduceOp, Result};

use crate::harness::{Order, Pool, alone, now_ns};

const RANKS: usize = 3;
/// From the last rank's call to the error on each.
const NOTICE: Duration = Duration::from_secs(1);
const PARTING: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);

/// What differs.
const KINDS: [&str; 10] =
    ["collective", "count", "size", "dtype", "op", "root", "v", "rooted", "sendrecv-count", "sendrecv-dtype"];

fn with<T: Element + PartialEq>(
    device: bool,
    len: usize,
    value: T,
    untouched: bool,
    f: impl FnOnce(&[T], &mut [T]) -> Result<()>,
) -> Result<()> {
    let check = |result: Result<()>, recv: &[T]| {
        let clean = result.is_ok() || !untouched || recv.iter().all(|v| *v == value);
        assert!(clean, "a call that does not match has written to the output");
        result
    };
    if device {
        let send = DeviceBuffer::from_slice(&vec![value; len]).expect("device memory");
        let mut recv = DeviceBuffer::from_slice(&vec![value; len]).expect("device memory");
        check(f(&send, &mut recv), &recv)
    } else {
        let mut recv = vec![value; len];
        check(f(&vec![value; len], &mut recv), &recv)
    }
}

/// The call of this rank: `odd` marks the one that differs.
fn call(comm: &Communicator, kind: &str, len: usize, device: bool, odd: bool) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.ranks());
    // With shared memory no rank touches data before all calls that it needs are known to match.
    let untouched = ["collective", "count", "size", "dtype", "op", "v"].contains(&kind)
        && !std::env::var("OXCCL_SHM").is_ok_and(|v| v == "0");
    with(device, len, me as f32 + 1.0, untouched, |send, recv| match (kind, odd) {
        ("collective", true) => comm.broadcast(recv, 0),
        ("count", true) => comm.all_reduce(&send[1..], &mut recv[1..], ReduceOp::Sum),
        // Another size class, and so another protocol.
        ("size", true) => comm.all_reduce(&send[..2], &mut recv[..2], ReduceOp::Sum),
        ("dtype", true) => with(device, len, 1_i32, untouched, |s, r| comm.all_reduce(s, r, ReduceOp::Sum)),
        ("op", true) => comm.all_reduce(send, recv, ReduceOp::Max),
        ("root", odd) => comm.broadcast(recv, usize::from(odd)),
        // Each waits for another: nobody sends anything.
        ("rooted", _) => comm.broadcast(recv, (me + 1) % ranks),
        ("v", true) => {
            let unit = len / ranks;
            let all = unit * ranks;
            comm.all_to_all_v(&send[..all], &vec![unit; ranks], &mut recv[..all], &vec![unit; ranks])
        }
        ("sendrecv-count", odd) => {
            let n = len - usize::from(odd);
            let (to, from) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
            comm.send_recv(&send[..n], to, &mut recv[..len], from)
        }
        ("sendrecv-dtype", true) => {
            with(device, len, 1_i32, untouched, |s, r| comm.send_recv(s, (me + 1) % ranks, r, (me + ranks - 1) % ranks))
        }
        ("sendrecv-dtype", false) => comm.send_recv(send, (me + 1) % ranks, recv, (me + ranks - 1) % ranks),
        _ => comm.all_reduce(send, recv, ReduceOp::Sum),
    })
}

/// One rank: a good call, the call that does not match, and whatever the error needs to show.
pub fn rank(order: &Order) {
    let (kind, len, device) = (order.words[1].as_str(), order.number(2) as usize, order.words[3] == "device");
    let odd = order.number(4) as usize == order.rank;
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let mut x = [order.rank as i64];
    comm.all_reduce_in_place(&mut x, ReduceOp::Sum).expect("a good call");
    assert_eq!(x[0], (order.ranks * (order.ranks - 1) / 2) as i64);
    order.report("calls", "");
    let mut result = call(&comm, kind, len, device, odd);
    if result.is_ok() {
        // A rank that needed nothing of the others may be told at its next call.
        order.report("first", "ok");
        result = comm.barrier();
    }
    match result {
        Ok(()) => order.report("fine", ""),
        Err(e) => order.report("error", &format!("{:?} {}", e.code, e.text)),
    }
    let begin = now_ns();
    if order.rank == 1 {
        comm.abort_handle().abort().expect("abort");
    }
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// Words of which one call has the first and the other the second.
fn names(kind: &str, len: usize) -> (String, String) {
    match kind {
        "collective" => ("AllReduce(".into(), "Broadcast(".into()),
        "count" => (format!("count {len},"), format!("count {},", len - 1)),
        "size" => (format!("count {len},"), "count 2,".into()),
        "dtype" | "sendrecv-dtype" => ("float".into(), "int32".into()),
        "op" => ("sum".into(), "max".into()),
        "root" => ("root 0".into(), "root 1".into()),
        "rooted" => ("root ".into(), "Broadcast(".into()),
        "v" => ("AllReduce(".into(), "AlltoAllv(".into()),
        _ => (format!("count {len}"), format!("count {}", len - 1)),
    }
}

fn round(pool: &mut Pool, kind: &str, len: usize, memory: &str, odd: usize) -> Vec<String> {
    let all: Vec<usize> = (0..RANKS).collect();
    pool.start(&format!("mismatch {kind} {len} {memory} {odd}"));
    let called = pool.expect("calls", &all, GIVE_UP).iter().map(|e| e.ns).max().unwrap_or(0);
    let mut faults = Vec::new();
    let over = pool.any_of(&["error", "fine", "panic"], &all, GIVE_UP);
    if over.len() < RANKS {
        faults.push("hangs".to_string());
    }
    let (a, b) = names(kind, len);
    // Where a rank was through with its call, the next one may be what did not match.
    let later = pool.said().contains(" first ok");
    let named = |text: &str| match (text.contains(&a), text.contains(&b)) {
        (true, true) => true,
        (false, false) => false,
        _ => later && text.contains("AllReduce(count 1, uint8"),
    };
    for e in &over {
        let took = Duration::from_nanos(e.ns.saturating_sub(called));
        if e.what != "error" {
            faults.push(format!("rank {} got no error", e.rank));
        } else if took > NOTICE {
            faults.push(format!("rank {} got its error after {took:?}", e.rank));
        } else if !e.text.starts_with("InvalidUsage ") || !named(&e.text) {
            faults.push(format!("rank {} got another error than InvalidUsage with {a:?} and {b:?}", e.rank));
        }
    }
    if over.len() == RANKS {
        for e in pool.expect("gone", &all, GIVE_UP) {
            if Duration::from_nanos(e.text.parse().expect("nanoseconds")) > PARTING {
                faults.push(format!("rank {} needed {} ns to leave", e.rank, e.text));
            }
        }
        pool.expect("end", &all, GIVE_UP);
    }
    if !faults.is_empty() {
        let what = format!("{kind}, {len} elements of {memory} memory, rank {odd} differs");
        faults = vec![format!("{what}: {}; the ranks said\n{}", faults.join(", "), pool.said())];
    }
    faults
}

fn mismatches(processes: usize, per: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, env);
    let mut faults = Vec::new();
    let mut odd = 0;
    for kind in KINDS {
        for (len, memory) in [(30, "malloc"), (30, "device"), (300_000, "malloc"), (300_000, "device")] {
            if kind == "size" && len == 30 {
                continue;
            }
            odd = (odd + 1) % RANKS;
            let new = round(&mut pool, kind, len, memory, odd);
            if new.iter().any(|f| f.contains("hangs")) {
                pool = Pool::new(processes, per, env);
            }
            faults.extend(new);
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn mismatched_calls_of_processes_fail_on_every_rank() {
    mismatches(RANKS, 1, &[]);
}

#[test]
fn mismatched_calls_of_threads_fail_on_every_rank() {
    mismatches(1, RANKS, &[]);
}

#[test]
fn mismatched_calls_over_the_network_fail_on_every_rank() {
    mismatches(RANKS, 1, &[("OXCCL_SHM", "0")]);
}

#[test]
fn mismatched_calls_of_ranks_that_take_themselves_to_have_cores_fail_on_every_rank() {
    mismatches(RANKS, 1, &[("OXCCL_CORES", "64")]);
}
