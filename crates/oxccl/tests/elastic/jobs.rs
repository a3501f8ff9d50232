//! Ranks that are processes: deaths in the middle of a collective, newcomers, ranks that share no memory.

use std::time::{Duration, Instant};

use oxccl::{Communicator, ReduceOp};

use crate::calls::{self, KINDS, Memory};
use crate::harness::{Order, Pool, alone, pause};

/// When a test gives up.
const GIVE_UP: Duration = Duration::from_secs(30);

fn works(comm: &Communicator) {
    for kind in 0..KINDS {
        calls::one(comm, kind, Memory::Malloc, 3_000, kind as u64).expect("a call that matches");
        calls::one(comm, kind, Memory::Device, 40_000, kind as u64).expect("a call that matches");
    }
}

/// Calls until a peer dies, then goes on without it.
pub fn shrink(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    order.report("up", "");
    let mut x = vec![1.0_f32; 500_000];
    let error = loop {
        x.fill(1.0);
        if let Err(e) = comm.all_reduce_in_place(&mut x, ReduceOp::Sum) {
            break e;
        }
    };
    order.report("error", &error.text);
    let begin = Instant::now();
    let child = comm.shrink_abort(&[order.number(1) as usize]).expect("shrink");
    order.report("shrunk", &format!("{:.2} ms", begin.elapsed().as_secs_f64() * 1e3));
    drop(comm);
    assert_eq!(child.ranks(), order.ranks - 1);
    works(&child);
    order.report("works", "");
}

fn kill_and_shrink(victim: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(4, 1, env);
    pool.start(&format!("shrink {victim}"));
    pool.expect("up", &[0, 1, 2, 3], GIVE_UP);
    pause(Duration::from_millis(20));
    pool.workers[victim].kill();
    let survivors: Vec<usize> = (0..4).filter(|r| *r != victim).collect();
    let shrunk = pool.expect("shrunk", &survivors, GIVE_UP);
    println!("rank {victim} killed; shrinking took {:?}", shrunk.iter().map(|e| &e.text).collect::<Vec<_>>());
    pool.expect("works", &survivors, GIVE_UP);
}

#[test]
fn survivors_go_on_without_a_killed_rank() {
    kill_and_shrink(2, &[]);
}

#[test]
fn survivors_go_on_without_rank_zero() {
    kill_and_shrink(0, &[]);
}

#[test]
fn survivors_go_on_over_the_network() {
    kill_and_shrink(1, &[("OXCCL_SHM", "0")]);
}

/// Splits until a peer dies.
pub fn split(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    order.report("up", "");
    let error = loop {
        if let Err(e) = comm.split(Some(0), 0) {
            break e;
        }
    };
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

#[test]
fn a_death_ends_a_split() {
    let _alone = alone();
    for shm in ["1", "0"] {
        for victim in [0, 2, 3] {
            let mut pool = Pool::new(4, 1, &[("OXCCL_SHM", shm)]);
            pool.start("split");
            pool.expect("up", &[0, 1, 2, 3], GIVE_UP);
            pause(Duration::from_millis(7 + 5 * victim as u64));
            let begin = Instant::now();
            pool.workers[victim].kill();
            let survivors: Vec<usize> = (0..4).filter(|r| *r != victim).collect();
            let errors = pool.expect("error", &survivors, GIVE_UP);
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}; {}", begin.elapsed(), pool.said());
            assert!(errors.iter().all(|e| e.text.starts_with("RemoteError")), "{}", pool.said());
        }
    }
}

/// A rank of the communicator that grows.
pub fn grow(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let id = (comm.rank() == 0).then(|| comm.grow_id().expect("an id"));
    if let Some(id) = id {
        order.report("id", &id.to_string());
    }
    let grown = comm.grow(order.number(1) as usize, id).expect("grow");
    assert_eq!(grown.rank(), comm.rank());
    works(&grown);
    works(&comm);
    order.report("works", "");
}

/// A rank that joins one.
pub fn join(order: &Order) {
    let id = order.words[1].parse().expect("an id");
    let rank = order.number(2) as usize + order.rank;
    let grown = Communicator::init(order.number(2) as usize + order.ranks, id, rank).expect("join");
    works(&grown);
    order.report("works", "");
}

fn newcomers(env: &[(&str, &str)]) {
    let _alone = alone();
    let mut old = Pool::new(2, 1, env);
    let mut new = Pool::new(2, 1, env);
    old.start("grow 4");
    let id = old.expect("id", &[0], GIVE_UP).remove(0).text;
    new.start(&format!("join {id} 2"));
    old.expect("works", &[0, 1], GIVE_UP);
    new.expect("works", &[0, 1], GIVE_UP);
}

#[test]
fn new_processes_join() {
    newcomers(&[]);
}

#[test]
fn new_processes_join_over_the_network() {
    newcomers(&[("OXCCL_SHM", "0")]);
}

/// Splits, revokes and splits again.
pub fn divide(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let parity = comm.split(Some(order.rank as i32 % 2), 0).expect("split").expect("a colour was given");
    works(&parity);
    comm.suspend().expect("suspend");
    comm.resume().expect("resume");
    works(&comm);
    // A peer that revokes first may end it here.
    let _ = comm.barrier();
    comm.revoke().expect("revoke");
    let all = comm.split(Some(0), -(order.rank as i32)).expect("split").expect("a colour was given");
    assert_eq!(all.rank(), order.ranks - 1 - order.rank);
    works(&all);
    order.report("works", "");
}

#[test]
fn processes_divide_with_and_without_shared_memory() {
    let _alone = alone();
    for (processes, per, shm) in [(4, 1, "1"), (2, 2, "1"), (4, 1, "0")] {
        let mut pool = Pool::new(processes, per, &[("OXCCL_SHM", shm)]);
        pool.start("divide");
        pool.expect("works", &[0, 1, 2, 3], GIVE_UP);
    }
}
