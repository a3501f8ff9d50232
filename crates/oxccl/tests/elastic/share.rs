//! Children that share resources with their parent: what they cost, and that neither harms the other.

use std::time::Duration;

use oxccl::{Communicator, Config, ReduceOp, ResultCode};

use crate::calls::{self, KINDS, Memory};
use crate::harness::{Order, Pool, alone, pause};

/// When a test gives up.
const GIVE_UP: Duration = Duration::from_secs(30);

fn works(comm: &Communicator) {
    for kind in 0..KINDS {
        calls::one(comm, kind, Memory::Malloc, 30_000, kind as u64).expect("a call that matches");
        calls::one(comm, kind, Memory::Device, 40_000, kind as u64).expect("a call that matches");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

fn init(order: &Order, share: bool) -> Communicator {
    let config = Config { split_share: share, shrink_share: share, ..Config::default() };
    Communicator::init_with(order.ranks, order.id, order.rank, &config).expect("init")
}

/// Descriptors and bytes of a child of all ranks, which has worked with device memory that its parent knows.
fn cost(parent: &Communicator) -> (usize, u64, Communicator) {
    works(parent);
    parent.barrier().expect("barrier");
    let before = descriptors();
    let child = parent.split(Some(0), 0).expect("split").expect("a colour was given");
    works(&child);
    // Others may still fetch from this process.
    child.barrier().expect("barrier");
    parent.barrier().expect("barrier");
    let memory = child.memory_use().expect("ready");
    (descriptors().saturating_sub(before), memory.suspendable + memory.persistent, child)
}

/// Compares a child that shares with one that does not.
pub fn costs(order: &Order) {
    let (fds, bytes, _) = cost(&init(order, order.words[1] == "share"));
    order.report("cost", &format!("{fds} {bytes}"));
}

#[test]
fn a_child_that_shares_costs_less() {
    let _alone = alone();
    // Device memory in segments of its own, so that each costs a mapping.
    let mut pool = Pool::new(4, 1, &[]);
    let mut of = |how: &str| -> Vec<(usize, u64)> {
        pool.start(&format!("costs {how}"));
        let costs = pool.expect("cost", &[0, 1, 2, 3], GIVE_UP);
        let number =
            |text: &str, i: usize| text.split(' ').nth(i).and_then(|n| n.parse::<u64>().ok()).expect("a number");
        costs.iter().map(|e| (number(&e.text, 0) as usize, number(&e.text, 1))).collect()
    };
    // Once before: what is made once per process.
    of("alone");
    let (alone, shared) = (of("alone"), of("share"));
    println!("descriptors and bytes of a child: alone {alone:?}, sharing {shared:?}");
    for (a, s) in alone.iter().zip(&shared) {
        assert!(s.0 + 3 <= a.0, "descriptors: {shared:?} against {alone:?}");
        assert!(s.1 * 2 < a.1, "bytes: {shared:?} against {alone:?}");
    }
}

/// Parent and child end one after the other, in both orders.
pub fn lives(order: &Order) {
    let comm = init(order, true);
    let child = comm.split(Some(0), 0).expect("split").expect("a colour was given");
    works(&child);
    works(&comm);
    for (who, what) in [(&comm, "parent"), (&child, "child")] {
        let error = who.suspend().expect_err("what is shared is in use");
        assert_eq!(error.code, ResultCode::InvalidUsage, "{what}: {error:?}");
        assert!(error.text.contains("splitShare"), "{error:?}");
    }
    // The end of the child is none of the parent's.
    child.abort_handle().abort().expect("abort");
    drop(child);
    works(&comm);
    comm.suspend().expect("alone again");
    comm.resume().expect("resume");
    works(&comm);
    // A grandchild shares with both; it outlives them.
    let child = comm.shrink(&[order.ranks - 1]);
    if order.rank == order.ranks - 1 {
        child.expect_err("excluded");
        order.report("ready", "");
        drop(comm);
        return;
    }
    let child = child.expect("shrink");
    let config = Config { split_share: true, ..Config::default() };
    let middle = child.split_with(Some(0), 0, &config).expect("split").expect("a colour was given");
    drop(comm);
    works(&middle);
    let last = middle.split(Some(0), 0).expect("split").expect("a colour was given");
    drop((child, middle));
    works(&last);
    order.report("ready", "");
    let mut x = vec![1.0_f32; 10_000];
    let error = loop {
        x.fill(1.0);
        if let Err(e) = last.all_reduce_in_place(&mut x, ReduceOp::Sum) {
            break e;
        }
    };
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

#[test]
fn parent_and_child_end_in_any_order_and_hear_of_deaths() {
    let _alone = alone();
    for shm in ["1", "0"] {
        let mut pool = Pool::new(4, 1, &[("OXCCL_SHM", shm)]);
        pool.start("lives");
        pool.expect("ready", &[0, 1, 2, 3], GIVE_UP);
        pause(Duration::from_millis(10));
        pool.workers[1].kill();
        let errors = pool.expect("error", &[0, 2], GIVE_UP);
        assert!(errors.iter().all(|e| e.text.starts_with("RemoteError")), "{}", pool.said());
    }
}

/// A rank that does not want to share is not made to: all then do without, also those that would.
#[test]
fn sharing_takes_all_ranks() {
    let _alone = alone();
    let id = oxccl::UniqueId::create().expect("an id");
    std::thread::scope(|s| {
        for rank in 0..3 {
            s.spawn(move || {
                let config = Config { split_share: rank != 1, ..Config::default() };
                let comm = Communicator::init_with(3, id, rank, &config).expect("init");
                let child = comm.split(Some(0), 0).expect("split").expect("a colour was given");
                works(&child);
                assert_eq!(
                    child.memory_use().expect("ready").suspendable,
                    comm.memory_use().expect("ready").suspendable
                );
                child.suspend().expect("it shares nothing");
                child.resume().expect("resume");
            });
        }
    });
}
