//! Ranks that are processes: sharing memory, sharing none, and some of both; deaths and departures.

use std::time::Duration;

use oxccl::{Communicator, Config, ResultCode, Signal};

use crate::harness::{Event, Order, Pool, Random, alone, now_ns, pause};
use crate::model as random_model;

/// When a test gives up.
const GIVE_UP: Duration = Duration::from_secs(30);
/// From the cause to the error.
const NOTICE: u64 = 3_000_000_000;

/// Random puts and signals.
pub fn model(order: &Order) {
    let contexts = order.number(3) as usize;
    let config = Config { rma_contexts: Some(contexts), ..Config::default() };
    let comm = Communicator::init_with(order.ranks, order.id, order.rank, &config).expect("init");
    random_model::run(&comm, order.number(1), order.number(2), contexts);
}

/// The same as a rank of a job of several pools: id, first rank, number of ranks.
pub fn join(order: &Order) {
    let id = order.words[1].parse().expect("an id");
    let comm = Communicator::init(order.number(3) as usize, id, order.number(2) as usize + order.rank).expect("init");
    random_model::run(&comm, order.number(4), 10, 1);
}

/// Two ranks do this job, sharing memory and sharing none.
fn two_end(job: &str) {
    let _alone = alone();
    for shm in ["1", "0"] {
        let mut pool = Pool::new(2, 1, &[("OXCCL_SHM", shm)]);
        pool.start(job);
        pool.expect("end", &[0, 1], GIVE_UP);
    }
}

fn agrees(name: &str, processes: usize, per: usize, env: &[(&str, &str)]) {
    let _alone = alone();
    let mut random = Random::seeded(name);
    let mut pool = Pool::new(processes, per, env);
    let all: Vec<usize> = (0..pool.ranks()).collect();
    for contexts in [1, 3] {
        pool.start(&format!("model {} 10 {contexts}", random.next()));
        pool.expect("end", &all, GIVE_UP);
    }
}

#[test]
fn processes_agree_with_the_model() {
    agrees("processes_agree_with_the_model", 3, 1, &[]);
}

#[test]
fn threads_in_processes_agree_with_the_model() {
    agrees("threads_in_processes_agree_with_the_model", 2, 2, &[]);
}

#[test]
fn ranks_without_shared_memory_agree_with_the_model() {
    agrees("ranks_without_shared_memory_agree_with_the_model", 2, 2, &[("OXCCL_SHM", "0")]);
}

#[test]
fn nonblocking_communicators_agree_with_the_model() {
    agrees("nonblocking_communicators_agree_with_the_model", 2, 1, &[("NCCL_COMM_BLOCKING", "0")]);
}

#[test]
fn small_teams_agree_with_the_model() {
    agrees("small_teams_agree_with_the_model", 2, 2, &[("NCCL_LSA_TEAM_SIZE", "2"), ("NCCL_WIN_STRIDE", "8G")]);
}

#[test]
fn some_share_memory_and_some_do_not() {
    let _alone = alone();
    let mut random = Random::seeded("some_share_memory_and_some_do_not");
    let mut near = Pool::new(2, 1, &[]);
    let mut far = Pool::new(2, 1, &[("OXCCL_SHM", "0")]);
    let (id, seed) = (oxccl::UniqueId::create().expect("an id"), random.next());
    near.start(&format!("join {id} 0 4 {seed}"));
    far.start(&format!("join {id} 2 4 {seed}"));
    near.expect("end", &[0, 1], GIVE_UP);
    far.expect("end", &[0, 1], GIVE_UP);
}

/// Rank 0 waits for the last rank, which never signals.
pub fn wait(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let _window = comm.window::<u8>(100).expect("a window");
    order.report("up", "");
    let from = if order.rank + 1 == order.ranks { 0 } else { order.ranks - 1 };
    let error = comm.wait_signal(from, Signal::default(), 2).expect_err("nobody signals");
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

fn soon(errors: &[Event], cause: u64, words: &[&str], pool: &Pool) {
    for e in errors {
        assert!(e.ns.saturating_sub(cause) < NOTICE, "rank {} noticed late; {}", e.rank, pool.said());
        assert!(e.text.starts_with("RemoteError"), "{}", pool.said());
        assert!(words.iter().all(|w| e.text.contains(w)), "{words:?} not in {:?}", e.text);
    }
}

fn kill_the_awaited(env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(3, 1, env);
    pool.start("wait");
    pool.expect("up", &[0, 1, 2], GIVE_UP);
    pause(Duration::from_millis(20));
    let cause = now_ns();
    pool.workers[2].kill();
    let errors = pool.expect("error", &[0, 1], GIVE_UP);
    soon(&errors, cause, &["rank 2", "WaitSignal"], &pool);
}

#[test]
fn a_death_ends_a_wait() {
    kill_the_awaited(&[]);
}

#[test]
fn a_death_ends_a_wait_over_the_network() {
    kill_the_awaited(&[("OXCCL_SHM", "0")]);
}

/// Puts until it fails.
pub fn put(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let window = comm.window::<u32>(1 << 20).expect("a window");
    let values = vec![1; 1 << 20];
    order.report("up", "");
    let error = loop {
        if let Err(e) = comm.put_signal(&window, order.ranks - 1, 0, &values, Signal::default()) {
            break e;
        }
    };
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

fn kill_the_target(env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(3, 1, env);
    pool.start("put");
    pool.expect("up", &[0, 1, 2], GIVE_UP);
    pause(Duration::from_millis(30));
    let cause = now_ns();
    pool.workers[2].kill();
    let errors = pool.expect("error", &[0, 1], GIVE_UP);
    soon(&errors, cause, &["rank 2"], &pool);
}

#[test]
fn a_death_ends_puts() {
    kill_the_target(&[]);
}

#[test]
fn a_death_ends_puts_over_the_network() {
    kill_the_target(&[("OXCCL_SHM", "0")]);
}

/// The last rank puts, and looks at no answer before it dies; the others go on without it.
pub fn remain(order: &Order) {
    let (comm, last) = (Communicator::init(order.ranks, order.id, order.rank).expect("init"), order.ranks - 1);
    let window = comm.window::<u8>(100).expect("a window");
    if order.rank == last {
        (0..last).for_each(|to| comm.put_signal(&window, to, 0, &[1], Signal::default()).expect("put"));
    } else {
        comm.wait_signal(last, Signal::default(), 1).expect("it came");
    }
    order.report("up", "");
    let end = now_ns() + GIVE_UP.as_nanos() as u64;
    while comm.async_error().is_ok() {
        assert!(now_ns() < end, "nothing is heard of the death");
        std::thread::yield_now();
    }
    // What its connections end with may come behind the news of its end.
    pause(Duration::from_millis(100));
    let child = comm.shrink(&[last]).expect("its end is no obstacle");
    child.barrier().expect("barrier");
    order.report("works", "");
}

#[test]
fn a_plain_shrink_excludes_who_died_after_puts() {
    let _alone = alone();
    let mut pool = Pool::new(4, 1, &[("OXCCL_SHM", "0")]);
    pool.start("remain");
    pool.expect("up", &[0, 1, 2, 3], GIVE_UP);
    pool.workers[3].kill();
    pool.expect("works", &[0, 1, 2], GIVE_UP);
}

/// Registers until it fails.
pub fn register(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    order.report("up", "");
    let error = loop {
        if let Err(e) = comm.window::<u8>(5000) {
            break e;
        }
    };
    order.report("error", &format!("{:?} {}", error.code, error.text));
}

#[test]
fn a_death_ends_a_registration() {
    let _alone = alone();
    for (victim, shm) in [(0, "1"), (2, "1"), (1, "0")] {
        let mut pool = Pool::new(3, 1, &[("OXCCL_SHM", shm)]);
        pool.start("register");
        pool.expect("up", &[0, 1, 2], GIVE_UP);
        pause(Duration::from_millis(40));
        let cause = now_ns();
        pool.workers[victim].kill();
        let survivors: Vec<usize> = (0..3).filter(|r| *r != victim).collect();
        let errors = pool.expect("error", &survivors, GIVE_UP);
        soon(&errors, cause, &[], &pool);
    }
}

/// Rank 0 puts and leaves at once; rank 1 comes late and finds everything.
pub fn leave(order: &Order) {
    let comm = Communicator::init(2, order.id, order.rank).expect("init");
    let window = comm.window::<u64>(400_000).expect("a window");
    if order.rank == 0 {
        let values: Vec<u64> = (0..400_000).collect();
        for i in 0..20 {
            comm.put_signal(&window, 1, i, &values[..380_000], Signal::number(5)).expect("put");
        }
        drop((window, comm));
        return;
    }
    pause(Duration::from_millis(50));
    comm.wait_signal(0, Signal::number(5), 20).expect("all was delivered");
    let found = window.to_vec();
    assert!(found[19..380_019].iter().enumerate().all(|(i, v)| *v == i as u64), "the last put is on top");
    // Nothing more comes, and that is told.
    let error = comm.wait_signal(0, Signal::number(5), 1).expect_err("it left");
    assert_eq!(error.code, ResultCode::RemoteError);
    assert!(error.text.contains("rank 0"), "{}", error.text);
}

#[test]
fn what_was_put_before_leaving_arrives() {
    two_end("leave");
}

/// Rank 1 makes no call at all while rank 0 writes its window.
pub fn silent(order: &Order) {
    let comm = Communicator::init(2, order.id, order.rank).expect("init");
    let window = comm.window::<u32>(300_000).expect("a window");
    if order.rank == 0 {
        let values: Vec<u32> = (0..300_000).collect();
        comm.put_signal(&window, 1, 0, &values, Signal::default()).expect("put");
        comm.barrier().expect("barrier");
        return;
    }
    let end = now_ns() + GIVE_UP.as_nanos() as u64;
    let mut last = [0];
    while last != [299_999] {
        assert!(now_ns() < end, "nothing came");
        window.read(299_999, &mut last).expect("in range");
        pause(Duration::from_millis(1));
    }
    comm.wait_signal(0, Signal::default(), 1).expect("wait");
    comm.barrier().expect("barrier");
}

#[test]
fn targets_need_no_call() {
    two_end("silent");
}

/// Rank 0 puts without a signal, and both close the window.
pub fn closed(order: &Order) {
    let comm = Communicator::init(2, order.id, order.rank).expect("init");
    for round in 1..=20 {
        let window = comm.window::<u32>(1 << 20).expect("a window");
        if order.rank == 0 {
            comm.put(&window, 1, 0, &vec![round; 1 << 20]).expect("put");
        }
        let held = window.close(&comm).expect("close");
        let put = if order.rank == 1 { round } else { 0 };
        assert!(held.iter().all(|v| *v == put), "round {round}");
    }
}

#[test]
fn what_was_put_is_there_when_a_window_is_closed() {
    two_end("closed");
}

/// Rank 0 waits for a peer that is alive and never signals.
pub fn late(order: &Order) {
    let comm = Communicator::init(2, order.id, order.rank).expect("init");
    let before = crate::harness::cpu_ns();
    if order.rank == 0 {
        let error = comm.wait_signal(1, Signal::default(), 1).expect_err("OXCCL_OP_TIMEOUT");
        let used = (crate::harness::cpu_ns() - before) / 1_000_000;
        order.report("error", &format!("{:?} {}", error.code, error.text));
        order.report("used", &used.to_string());
    } else {
        let error = comm.wait_signal(0, Signal::default(), 1).expect_err("rank 0 gave up");
        order.report("error", &format!("{:?} {}", error.code, error.text));
    }
}

#[test]
fn a_wait_is_bounded_and_parks() {
    let _alone = alone();
    for shm in ["1", "0"] {
        let mut pool = Pool::new(2, 1, &[("OXCCL_SHM", shm), ("OXCCL_OP_TIMEOUT", "1")]);
        pool.start("late");
        let begin = now_ns();
        let errors = pool.expect("error", &[0, 1], GIVE_UP);
        soon(&errors, begin + 1_000_000_000, &["OXCCL_OP_TIMEOUT", "WaitSignal"], &pool);
        let used: u64 = pool.expect("used", &[0], GIVE_UP)[0].text.trim().parse().expect("a number");
        assert!(used < 500, "{used} ms of a second's wait went into polling");
    }
}
