//! Ranks that go while others wait: by abort from another thread, by destroy, and by ending without either.

use std::time::Duration;

use oxccl::{Communicator, ReduceOp, Result};

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, alone, now_ns, pause, sticky_error, this_thread, wait_until};

const RANKS: usize = 3;
const NOTICE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);
/// How long the others have been waiting when a rank goes, and how late a late rank is.
const MOMENT: Duration = Duration::from_millis(60);
const LATE: Duration = Duration::from_millis(350);

/// Ways to wait, as kinds of [`calls::one`] with memory and length.
const ROADS: [(&str, usize, Memory, usize); 5] = [
    ("eager", 0, Memory::Malloc, 20),
    ("direct", 0, Memory::Device, 300_000),
    ("staged", 0, Memory::Malloc, 300_000),
    ("alltoallv", 9, Memory::Malloc, 50_000),
    ("sendrecv", 10, Memory::Device, 300_000),
];

/// One rank of whatever test it is.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    comm.barrier().expect("a good call");
    order.report("calls", "");
    match order.words[1].as_str() {
        "abort" => abort(order, comm),
        "destroy" => destroy(order, comm),
        "differ" => differ(order, comm),
        "beyond" => beyond(order, comm),
        "meet" => meet(order, comm),
        _ => part_done(order, comm),
    }
}

fn road(comm: &Communicator, name: &str) -> Result<()> {
    let (_, kind, memory, len) = ROADS.iter().find(|r| r.0 == name).expect("a road");
    calls::one(comm, *kind, *memory, *len, 3)
}

fn say(order: &Order, result: Result<()>) {
    match result {
        Ok(()) => order.report("fine", ""),
        Err(e) => order.report("error", &format!("{:?} {}", e.code, e.text)),
    }
}

/// Rank 0 aborts from another thread while it and rank 1 wait for rank 2, which never calls.
fn abort(order: &Order, comm: Communicator) {
    match order.rank {
        0 => {
            let (handle, order2) = (comm.abort_handle(), order.clone());
            let caller = this_thread();
            let other = std::thread::spawn(move || {
                pause(MOMENT);
                // On a busy machine it may not have come to its call by then.
                wait_until(&caller, 'S', GIVE_UP);
                order2.report("leaves", "");
                handle.abort().expect("abort");
                order2.report("aborted", "");
            });
            say(order, road(&comm, &order.words[2]));
            other.join().expect("the aborting thread");
        }
        1 => say(order, road(&comm, &order.words[2])),
        // Waits for nothing: what it learns, it learns from the sticky error.
        _ => say(order, Err(sticky_error(&comm, GIVE_UP))),
    }
    let begin = now_ns();
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// Rank 2 destroys its communicator while the others wait for it.
fn destroy(order: &Order, comm: Communicator) {
    if order.rank == 2 {
        pause(MOMENT);
        order.report("leaves", "");
    } else {
        say(order, road(&comm, &order.words[2]));
    }
    let begin = now_ns();
    drop(comm);
    order.report("gone", &(now_ns() - begin).to_string());
}

/// Rank 2 makes another call, of which it has its part done at once, and destroys its communicator.
fn differ(order: &Order, comm: Communicator) {
    let result = match order.rank {
        2 => comm.broadcast(&mut [1.0_f32; 20], 2),
        _ => road(&comm, &order.words[2]),
    };
    say(order, result);
    drop(comm);
    order.report("gone", "0");
}

/// Rank 3 waits for rank 1; those between them, both ways around, destroy their communicators.
fn beyond(order: &Order, comm: Communicator) {
    match order.rank {
        3 => say(order, comm.wait_signal(1, oxccl::Signal::default(), 1)),
        // Until it is killed, or for what only rank 3 could send.
        1 => say(order, comm.wait_signal(3, oxccl::Signal::default(), 1)),
        _ => {
            drop(comm);
            order.report("gone", "");
        }
    }
}

/// One of ranks 1 and 3 waits for the other one to come to a shrink; those between them, both ways around, destroy their communicators.
fn meet(order: &Order, comm: Communicator) {
    if order.rank.is_multiple_of(2) {
        drop(comm);
        return order.report("gone", "");
    }
    if order.words[2] == order.rank.to_string() {
        return say(order, comm.shrink(&[0, 2]).map(drop));
    }
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

fn took(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Ranks 0 and 2 leave, then rank 1 dies after `delay`.
fn dies_beyond(delay: Duration) {
    let _alone = alone();
    let mut pool = Pool::new(4, 1, &[("OXCCL_SHM", "0")]);
    pool.start("leave beyond");
    pool.expect("gone", &[0, 2], GIVE_UP);
    pool.workers[0].kill();
    pool.workers[2].kill();
    pause(delay);
    let died = now_ns();
    pool.workers[1].kill();
    let e = &pool.expect("error", &[3], GIVE_UP)[0];
    // What waits is mended after a second, if it was not before.
    assert!(took(died, e.ns) < NOTICE + Duration::from_secs(3), "after {:?}\n{}", took(died, e.ns), pool.said());
    let said = e.text.starts_with("RemoteError ") && e.text.contains("rank 1 (");
    let how = e.text.contains("died while") || e.text.contains("was gone while");
    assert!(said && how, "{e:?}");
}

#[test]
fn a_death_beyond_ranks_that_left_is_heard() {
    // When the ring is whole again.
    dies_beyond(Duration::from_secs(2));
}

#[test]
fn a_death_beyond_ranks_that_left_is_noticed() {
    dies_beyond(Duration::ZERO);
}

/// Who waits for a meeting has the ring mended, too.
#[test]
fn a_meeting_with_a_rank_that_died_beyond_ranks_that_left_ends() {
    let _alone = alone();
    for (waits, dies) in [(3, 1), (1, 3)] {
        let mut pool = Pool::new(4, 1, &[("OXCCL_SHM", "0")]);
        pool.start(&format!("leave meet {waits}"));
        pool.expect("gone", &[0, 2], GIVE_UP);
        pool.workers[0].kill();
        pool.workers[2].kill();
        pool.workers[dies].kill();
        let e = &pool.expect("error", &[waits], GIVE_UP)[0];
        assert!(e.text.starts_with("RemoteError ") && e.text.contains(&format!("rank {dies} ")), "{e:?}");
    }
}

/// Rank 2 does its part of a call and ends, by exit or by destroy; the others finish, however late they are.
fn part_done(order: &Order, comm: Communicator) {
    let (how, call) = (order.words[1].as_str(), order.words[2].as_str());
    let late = |rank: usize| {
        if order.rank == rank {
            pause(LATE);
        }
    };
    let mut x = [order.rank as f32 + 1.0; 500];
    let result = match call {
        "reduce" => {
            late(1);
            let mut sum = vec![0.0; if order.rank == 0 { 500 } else { 0 }];
            let r = comm.reduce(&x, &mut sum, ReduceOp::Sum, 0);
            assert!(r.is_err() || sum.iter().all(|v| *v == 6.0));
            r
        }
        "broadcast" => {
            late(1);
            let r = comm.broadcast(&mut x, 2);
            assert!(r.is_err() || x == [3.0; 500]);
            r
        }
        "send" => match order.rank {
            0 => {
                late(0);
                let r = comm.recv(&mut x, 2);
                assert!(r.is_err() || x == [3.0; 500]);
                r
            }
            1 => Ok(()),
            _ => comm.send(&x, 0),
        },
        road_name => road(&comm, road_name),
    };
    if order.rank == 2 && how == "exit" {
        order.report("gone", "0");
        std::process::exit(0);
    }
    say(order, result);
    if order.rank == 2 || order.rank == 0 {
        drop(comm);
        order.report("gone", "0");
        return;
    }
    order.report("gone", "0");
}

fn check_gone(pool: &mut Pool) {
    for e in pool.expect("gone", &[0, 1, 2], GIVE_UP) {
        let time = Duration::from_nanos(e.text.parse().expect("nanoseconds"));
        assert!(time < NOTICE, "rank {} needed {time:?} to leave\n{}", e.rank, pool.said());
    }
    pool.expect("end", &[0, 1, 2], GIVE_UP);
}

fn aborts(processes: usize, per: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, env);
    for (road, ..) in ROADS {
        pool.start(&format!("leave abort {road}"));
        let aborted = pool.expect("leaves", &[0], GIVE_UP)[0].ns;
        // The kernel takes what rank 1 sends to rank 2 over TCP.
        let all: &[usize] = if road == "sendrecv" && !env.is_empty() { &[0, 2] } else { &[0, 1, 2] };
        let errors = pool.expect("error", all, GIVE_UP);
        for e in &errors {
            let time = took(aborted, e.ns);
            assert!(time < NOTICE, "{road}: rank {} heard of it after {time:?}\n{}", e.rank, pool.said());
            assert!(e.text.contains("abort"), "{road}: {e:?}\n{}", pool.said());
            assert!(e.text.contains("rank 0") || e.text.contains("(0)"), "{road}: {e:?}\n{}", pool.said());
        }
        let end = pool.expect("aborted", &[0], GIVE_UP)[0].ns;
        assert!(took(aborted, end) < NOTICE, "{road}: abort took {:?}", took(aborted, end));
        check_gone(&mut pool);
    }
}

#[test]
fn an_abort_from_another_thread_frees_all_waiting_processes() {
    aborts(RANKS, 1, &[]);
}

#[test]
fn an_abort_from_another_thread_frees_all_waiting_threads() {
    aborts(1, RANKS, &[]);
}

#[test]
fn an_abort_from_another_thread_is_heard_over_the_network() {
    aborts(RANKS, 1, &[("OXCCL_SHM", "0")]);
}

fn destroys(processes: usize, per: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, env);
    for (road, ..) in ROADS {
        pool.start(&format!("leave destroy {road}"));
        let left = pool.expect("leaves", &[2], GIVE_UP)[0].ns;
        // The kernel takes what rank 1 sends to rank 2 over TCP.
        let all: &[usize] = if road == "sendrecv" && !env.is_empty() { &[0] } else { &[0, 1] };
        for e in pool.expect("error", all, GIVE_UP) {
            let time = took(left, e.ns);
            assert!(time < NOTICE, "{road}: rank {} heard of it after {time:?}\n{}", e.rank, pool.said());
            assert!(e.text.starts_with("RemoteError "), "{road}: {e:?}\n{}", pool.said());
            assert!(e.text.contains("rank 2"), "{road}: {e:?}\n{}", pool.said());
            // Who, what it did, and in which call it was missed.
            let cause = e.text.contains("destroyed its communicator while on rank");
            assert!(cause, "{road}: {e:?}\n{}", pool.said());
        }
        check_gone(&mut pool);
    }
}

#[test]
fn who_waits_for_a_rank_that_left_is_told() {
    destroys(RANKS, 1, &[]);
}

#[test]
fn threads_that_wait_for_a_thread_that_left_are_told() {
    destroys(1, RANKS, &[]);
}

#[test]
fn who_waits_for_a_rank_that_left_is_told_over_the_network() {
    destroys(RANKS, 1, &[("OXCCL_SHM", "0")]);
}

#[test]
fn who_waits_for_a_rank_that_called_something_else_and_left_is_told_over_the_network() {
    let _alone = alone();
    let mut pool = Pool::new(RANKS, 1, &[("OXCCL_SHM", "0")]);
    for (road, ..) in ROADS.iter().filter(|road| road.0 != "sendrecv") {
        pool.start(&format!("leave differ {road}"));
        for e in pool.expect("error", &[0, 1], GIVE_UP) {
            let both =
                e.text.starts_with("InvalidUsage ") && e.text.contains("Broadcast(") && e.text.contains("rank 2");
            let left = e.text.contains("rank 2 (") && e.text.contains("destroyed its communicator while on rank");
            assert!(both || left, "{road}: {e:?}\n{}", pool.said());
        }
        pool.expect("end", &[0, 1, 2], GIVE_UP);
    }
}

fn part_is_done(how: &str, calls: &[&str], env: &[(&str, &str)]) {
    let _alone = alone();
    for call in calls {
        let mut pool = Pool::new(RANKS, 1, env);
        pool.start(&format!("leave {how} {call}"));
        pool.expect("gone", &[0, 1, 2], GIVE_UP);
        pool.expect("end", &[0, 1], GIVE_UP);
        assert!(!pool.said().contains(" error "), "{how} after {call} disturbed the others\n{}", pool.said());
    }
}

const ALL: [&str; 8] = ["reduce", "broadcast", "send", "eager", "direct", "staged", "alltoallv", "sendrecv"];

#[test]
fn a_rank_that_ends_after_its_part_does_not_disturb_the_call() {
    part_is_done("exit", &ALL, &[]);
}

#[test]
fn a_rank_that_destroys_after_its_part_does_not_disturb_the_call() {
    part_is_done("part", &ALL, &[]);
}

#[test]
fn a_rank_that_destroys_after_its_part_does_not_disturb_the_call_over_the_network() {
    part_is_done("part", &ALL, &[("OXCCL_SHM", "0")]);
}
