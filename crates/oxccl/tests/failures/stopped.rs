//! A rank that is stopped lives: who waits for it says so again and again, and an abort ends that, also while a connection to it
//! is opened.

use std::path::Path;
use std::time::Duration;

use oxccl::Communicator;

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, alone, pause, wait_until};

const RANKS: usize = 2;
/// When rank 0 aborts.
const MOMENT: Duration = Duration::from_millis(300);
const NOTICE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);

/// Ways to wait, as kinds of [`calls::one`] with memory and length, and the word by which the call is told.
const ROADS: [(&str, usize, Memory, usize, &str); 4] = [
    ("eager", 0, Memory::Malloc, 20, "AllReduce("),
    ("direct", 0, Memory::Device, 300_000, "AllReduce("),
    ("alltoallv", 9, Memory::Malloc, 50_000, "AlltoAllv("),
    ("sendrecv", 10, Memory::Malloc, 300_000, "Recv from"),
];

/// Rank 1 is stopped when both have said that they are up. When its process, at word 4, is, rank 0 makes a call, which it aborts after
/// as many milliseconds as word 2 says, if not 0. Its connections are there, unless word 3 says that it is the first one.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    comm.barrier().expect("a good call");
    let (_, kind, memory, len, _) = ROADS.iter().find(|r| r.0 == order.words[1]).expect("a road");
    if order.words[3] != "first" {
        calls::one(&comm, *kind, *memory, *len, 2).expect("a good call");
    }
    order.report("up", "");
    if order.rank == 1 {
        // It is stopped meanwhile, and then killed.
        std::thread::park_timeout(GIVE_UP);
        return;
    }
    wait_until(Path::new(&order.words[4]), 'T', GIVE_UP);
    order.report("stopped", "");
    if order.number(2) == 0 {
        let error = calls::one(&comm, *kind, *memory, *len, 3).expect_err("the other rank is stopped");
        return order.report("error", &error.text);
    }
    let (handle, order2) = (comm.abort_handle(), order.clone());
    let other = std::thread::spawn(move || {
        pause(Duration::from_millis(order2.number(2)));
        order2.report("aborts", "");
        handle.abort().expect("abort");
        order2.report("aborted", "");
    });
    let result = calls::one(&comm, *kind, *memory, *len, 3);
    order.report("error", &result.expect_err("the other rank is stopped").text);
    other.join().expect("the aborting thread");
    drop(comm);
    order.report("gone", "");
}

/// What rank 0 logs, when it waits for `time` before it aborts.
fn waits(road: &str, time: Duration, which: &str, env: &[(&str, &str)]) -> String {
    let log = std::env::temp_dir().join(format!("oxccl-stopped-{}-{road}.log", std::process::id()));
    let path = log.to_str().expect("a path of letters").to_string();
    let mut pool = Pool::new(0, 1, env);
    let first = pool.spawn_with(&[("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG_FILE", &path)]);
    let second = pool.spawn();
    pool.workers.extend([first, second]);
    assert_eq!(pool.ranks(), RANKS);
    let process = pool.workers[1].process();
    pool.start(&format!("stopped {road} {} {which} {}", time.as_millis(), process.display()));
    pool.expect("up", &[0, 1], GIVE_UP);
    pool.workers[1].stop();
    let aborts = pool.expect("aborts", &[0], GIVE_UP + time)[0].ns;
    for what in ["error", "aborted", "gone"] {
        let event = &pool.expect(what, &[0], GIVE_UP)[0];
        let took = Duration::from_nanos(event.ns.saturating_sub(aborts));
        assert!(took < NOTICE, "{road}: {what} after {took:?}\n{}", pool.said());
        assert!(event.ns >= aborts, "{road}: {what} before the abort\n{}", pool.said());
        assert!(what != "error" || event.text.contains("abort"), "{road}: {event:?}");
    }
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    text
}

#[test]
fn who_waits_for_a_stopped_rank_without_a_limit_says_so_again_and_again() {
    let _alone = alone();
    for shm in ["1", "0"] {
        for (road, .., name) in ROADS {
            // A hundred times the grace.
            let env = [("OXCCL_SHM", shm), ("OXCCL_DEATH_GRACE_MS", "10")];
            let text = waits(road, Duration::from_secs(3), "later", &env);
            let lines: Vec<&str> = text.lines().filter(|line| line.contains(" has waited for ")).collect();
            assert_eq!(
                lines.len(),
                2,
                "{road}, OXCCL_SHM={shm}: after one second and after two, not yet after four; the log:\n{text}"
            );
            for line in lines {
                assert!(line.contains("rank 1 (host "), "{road}: who is waited for, and where? {line}");
                assert!(
                    line.contains("rank 0 of communicator") && line.contains(name),
                    "{road}: in which call? {line}"
                );
            }
        }
    }
}

#[test]
fn an_abort_is_heard_while_a_connection_to_a_stopped_rank_is_opened() {
    let _alone = alone();
    // The barrier took other connections.
    waits("sendrecv", MOMENT, "first", &[("OXCCL_SHM", "0")]);
    waits("alltoallv", MOMENT, "first", &[("OXCCL_SHM", "0")]);
}

/// From the limit to the error: what the service hears that explains a connection is awaited for a second.
#[test]
fn a_connection_to_a_stopped_rank_is_given_up_at_the_limit_of_operations() {
    let _alone = alone();
    let mut pool = Pool::new(RANKS, 1, &[("OXCCL_SHM", "0"), ("OXCCL_OP_TIMEOUT", "1")]);
    pool.start(&format!("stopped sendrecv 0 first {}", pool.workers[1].process().display()));
    pool.expect("up", &[0, 1], GIVE_UP);
    pool.workers[1].stop();
    let stopped = pool.expect("stopped", &[0], GIVE_UP)[0].ns;
    let error = &pool.expect("error", &[0], GIVE_UP)[0];
    let took = Duration::from_nanos(error.ns.saturating_sub(stopped));
    assert!(took < 2 * NOTICE + NOTICE, "{took:?}\n{}", pool.said());
    for word in ["rank 0 ", "rank 1 ", "timed out", "stopped"] {
        assert!(error.text.contains(word), "{word}: {error:?}");
    }
}
