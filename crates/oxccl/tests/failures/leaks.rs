//! Communicators that come and go leave nothing: no descriptor, no thread, no mapping.

use std::time::Duration;

use oxccl::{Communicator, UniqueId};

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, alone, poll};

/// Before what is counted: everything that is made once and kept.
const WARM_UP: u64 = 20;
/// Mappings that may come and go with the allocator's arenas and stacks.
const SLACK: usize = 16;

/// What this process has.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    memfds: usize,
    /// But for the helper, which is started by the first call that is not carried out at once: perhaps a late one.
    threads: usize,
    helpers: usize,
    mappings: usize,
    shared: usize,
}

impl Holdings {
    fn now() -> Holdings {
        let count = |folder: &str| std::fs::read_dir(folder).expect("procfs").count();
        let links = std::fs::read_dir("/proc/self/fd").expect("procfs").filter_map(Result::ok);
        let memfds = links.filter_map(|l| std::fs::read_link(l.path()).ok());
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        // A thread that has ended since is none.
        let tasks = std::fs::read_dir("/proc/self/task").expect("procfs").filter_map(Result::ok);
        let names: Vec<String> = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok()).collect();
        let helpers = names.iter().filter(|name| name.trim_end() == "oxccl helper").count();
        Holdings {
            descriptors: count("/proc/self/fd"),
            memfds: memfds.filter(|p| p.to_string_lossy().contains("memfd:")).count(),
            threads: names.len() - helpers,
            helpers,
            mappings: maps.lines().count(),
            shared: maps.lines().filter(|l| l.contains("memfd:")).count(),
        }
    }

    fn within(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors
            && self.memfds <= before.memfds
            && self.threads <= before.threads
            && self.helpers <= 1
            && self.shared <= before.shared
            && self.mappings <= before.mappings + SLACK
    }

    /// Waits until this process holds no more than `before`: threads and kernel objects end a little later.
    fn settles(before: &Holdings) -> Result<Holdings, Holdings> {
        let look = || Some(Holdings::now()).filter(|now| now.within(before));
        poll(Duration::from_secs(10), look).ok_or_else(Holdings::now)
    }
}

/// A communicator's life: a call of every road, then destroy or abort.
fn live(comm: Communicator, base: &Communicator, n: u64) {
    for (kind, memory, len) in
        [(0, Memory::Malloc, 10), (0, Memory::Device, 20_000), (5, Memory::Malloc, 20_000), (10, Memory::Device, 9_000)]
    {
        calls::one(&comm, kind, memory, len, n).expect("a call that matches");
    }
    comm.barrier().expect("barrier");
    // An abort may disturb a peer that is still in the barrier.
    base.barrier().expect("barrier");
    if n.is_multiple_of(5) {
        comm.abort_handle().abort().expect("abort");
    }
}

/// One rank: makes and ends communicators with its peers, whose ids travel over the first one.
pub fn rank(order: &Order) {
    let base = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let mut before = Holdings::now();
    let rounds = order.number(1);
    for n in 0..rounds {
        let mut id = if order.rank == 0 { UniqueId::create().expect("an id").to_bytes() } else { [0; 128] };
        base.broadcast(&mut id, 0).expect("broadcast");
        live(Communicator::init(order.ranks, UniqueId::from_bytes(id), order.rank).expect("init"), &base, n);
        if n == WARM_UP {
            base.barrier().expect("barrier");
            before = Holdings::now();
        }
    }
    base.barrier().expect("barrier");
    // The ranks that are threads of this process are still there, as they were when `before` was counted.
    match Holdings::settles(&before) {
        Ok(now) => order.report("even", &format!("{before:?} then {now:?}")),
        Err(now) => order.report("leak", &format!("{before:?} then {now:?}")),
    }
    // All threads have counted.
    base.barrier().expect("barrier");
}

/// A round: three or four communicators out of one, in every way.
fn beget(base: &Communicator, n: u64) -> u64 {
    let all = base.split(Some(0), n as i32).expect("split").expect("a colour was given");
    let one = all.split(Some(all.rank() as i32), 0).expect("split").expect("a colour was given");
    assert!(one.split(None, 0).expect("split").is_none());
    calls::one(&all, (n % calls::KINDS as u64) as usize, Memory::Device, 20_000, n).expect("a call that matches");
    if n.is_multiple_of(3) {
        all.suspend().expect("suspend");
        all.resume().expect("resume");
    }
    all.barrier().expect("barrier");
    let rest = (all.rank() > 0).then(|| all.shrink(&[0]).expect("shrink"));
    let _ = all.barrier();
    if n.is_multiple_of(2) {
        all.revoke().expect("revoke");
    }
    let last = all.split(Some(1), 0).expect("split").expect("a colour was given");
    if n.is_multiple_of(5) {
        last.abort_handle().abort().expect("abort");
    }
    3 + u64::from(rest.is_some())
}

/// One rank: makes `rounds` communicators or more out of one.
pub fn children(order: &Order) {
    let base = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let (mut before, mut made, mut n) = (Holdings::now(), 0, 0);
    // All go the same number of rounds.
    while n * 3 < order.number(1) {
        made += beget(&base, n);
        if n == WARM_UP {
            base.barrier().expect("barrier");
            before = Holdings::now();
        }
        n += 1;
    }
    base.barrier().expect("barrier");
    match Holdings::settles(&before) {
        Ok(now) => order.report("even", &format!("after {made}: {before:?} then {now:?}")),
        Err(now) => order.report("leak", &format!("after {made}: {before:?} then {now:?}")),
    }
    base.barrier().expect("barrier");
}

fn leaks(processes: usize, per: usize, rounds: u64, env: &[(&str, &str)]) {
    run("leaks", processes, per, rounds, env);
}

fn run(job: &str, processes: usize, per: usize, rounds: u64, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, env);
    let all: Vec<usize> = (0..processes * per).collect();
    pool.start(&format!("{job} {rounds}"));
    pool.expect("end", &all, Duration::from_secs(60));
    assert!(!pool.said().contains(" leak "), "{}", pool.said());
}

#[test]
fn communicators_of_processes_leave_nothing() {
    leaks(2, 1, 320, &[]);
}

#[test]
fn communicators_of_threads_leave_nothing() {
    leaks(1, 2, 320, &[]);
}

#[test]
fn communicators_over_the_network_leave_nothing() {
    leaks(2, 1, 100, &[("OXCCL_SHM", "0")]);
}

#[test]
fn a_thousand_children_leave_nothing() {
    run("children", 2, 1, 1000, &[]);
}

#[test]
fn children_of_threads_leave_nothing() {
    run("children", 1, 2, 300, &[]);
}

#[test]
fn children_over_the_network_leave_nothing() {
    run("children", 2, 1, 300, &[("OXCCL_SHM", "0")]);
}
