//! A peer that comes late: who waits for it sleeps, and work that nobody waits for is done all the same.

use std::time::{Duration, Instant};

use oxccl::{Communicator, ReduceOp};
use oxccl_runtime::{CommConfig, Operator, Request, device};
use oxccl_types::{Collective, DataType};

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, alone, cpu_ns, now_ns, pause};

/// How late the peer is.
const LATE: Duration = Duration::from_millis(200);
/// Processor time of the waiter: 2 ms of looking, then a tenth.
const MOST: Duration = Duration::from_millis(2 + 200 / 10);
const TRIES: usize = 3;

/// Ways to wait: name, kind of [`calls::one`] (or a special one), memory, length, number (which gives the root).
const ROADS: [(&str, usize, Memory, usize, u64); 9] = [
    ("eager", 0, Memory::Malloc, 20, 0),
    ("eager broadcast from the waiter", 2, Memory::Malloc, 20, 0),
    ("eager reduce to the late rank", 3, Memory::Malloc, 20, 1),
    ("direct", 0, Memory::Device, 100_000, 0),
    ("staged", 0, Memory::Malloc, 100_000, 0),
    ("direct broadcast from the waiter", 2, Memory::Device, 100_000, 0),
    ("alltoallv", 9, Memory::Malloc, 50_000, 0),
    ("send and receive", 10, Memory::Malloc, 10, 0),
    ("long send and receive", 10, Memory::Device, 100_000, 0),
];

/// One of two ranks; rank 1 is late.
pub fn rank(order: &Order) {
    if order.words[1] == "nobody" {
        return nobody_waits(order);
    }
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    for (name, kind, memory, len, n) in ROADS {
        let one = || calls::one(&comm, kind, memory, len, n).expect("a call that matches");
        one();
        comm.barrier().expect("barrier");
        let mut least = u64::MAX;
        for _ in 0..TRIES {
            let before = cpu_ns();
            one();
            comm.barrier().expect("barrier");
            let work = cpu_ns() - before;
            if order.rank == 1 {
                pause(LATE);
            }
            let before = cpu_ns();
            one();
            comm.barrier().expect("barrier");
            least = least.min((cpu_ns() - before).saturating_sub(work));
        }
        if order.rank == 0 {
            order.report("cpu", &format!("{least} {name}"));
        }
    }
}

fn late(processes: usize, per: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, env);
    pool.start("late wait");
    let end = Instant::now() + Duration::from_secs(40);
    let mut faults = Vec::new();
    let mut told = 0;
    while told < ROADS.len() {
        let Some(e) = pool.next(end.saturating_duration_since(Instant::now())) else {
            panic!("no end; said so far:\n{}", pool.said())
        };
        assert!(e.what != "panic", "{}", pool.said());
        if e.what != "cpu" {
            continue;
        }
        told += 1;
        let (ns, road) = e.text.split_once(' ').expect("a time and a name");
        let used = Duration::from_nanos(ns.parse().expect("nanoseconds"));
        println!("{road}: {used:?} of {LATE:?}");
        if used > MOST {
            faults.push(format!("{road}: the waiter used {used:?} of {LATE:?}"));
        }
    }
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_process_that_waits_for_a_late_one_sleeps() {
    late(2, 1, &[]);
}

#[test]
fn a_thread_that_waits_for_a_late_one_sleeps() {
    late(1, 2, &[]);
}

#[test]
fn who_waits_for_a_late_rank_over_the_network_sleeps() {
    late(2, 1, &[("OXCCL_SHM", "0")]);
}

/// A call that is enqueued and waited for by nobody here.
fn nobody_waits(order: &Order) {
    let id = oxccl_runtime::UniqueId::from_bytes(order.id.to_bytes()).expect("an id");
    let (ranks, rank) = (order.ranks as i32, order.rank as i32);
    let comm = oxccl_runtime::Communicator::init_rank(ranks, id, rank, 0, CommConfig::default(), "test").expect("init");
    let stream = device::Stream::new().expect("a stream");
    for len in [10_usize, 100_000] {
        let send = vec![1.0_f32; len];
        let mut recv = vec![0.0_f32; len];
        let request = Request {
            collective: Collective::AllReduce,
            send: send.as_ptr().cast(),
            recv: recv.as_mut_ptr().cast(),
            count: len,
            dtype: DataType::Float32,
            op: Operator::Builtin(ReduceOp::Sum),
            root: 0,
            bias: std::ptr::null(),
            v: None,
            stream: stream.clone(),
        };
        if order.rank == 1 {
            pause(LATE);
        }
        let (began, used) = (now_ns(), cpu_ns());
        comm.submit(request).expect("submit");
        if order.rank == 1 {
            stream.synchronize().expect("the call");
            order.report("took", &(now_ns() - began).to_string());
        } else {
            pause(LATE + Duration::from_millis(100));
            order.report("cpu", &(cpu_ns() - used).to_string());
            assert!(stream.query().expect("no failure"), "the helper has not finished what nobody waits for");
        }
        assert!(recv.iter().all(|v| *v == 2.0));
    }
    comm.destroy().expect("destroy");
}

#[test]
fn work_that_nobody_waits_for_is_done() {
    let _alone = alone();
    for (processes, per) in [(2, 1), (1, 2)] {
        let mut pool = Pool::new(processes, per, &[]);
        pool.start("late nobody");
        pool.expect("end", &[0, 1], Duration::from_secs(20));
        for line in pool.said().lines() {
            println!("{line}");
        }
        let took = pool.expect("took", &[1], Duration::ZERO);
        let used = pool.expect("cpu", &[0], Duration::ZERO);
        for (e, most) in took.iter().zip([100_u64; 9]).chain(used.iter().zip([40; 9])) {
            let ms = e.text.parse::<u64>().expect("nanoseconds") / 1_000_000;
            assert!(ms < most, "{} {ms} ms; said\n{}", e.what, pool.said());
        }
    }
}
