//! How long an initialisation takes, and what it says when a rank does not come.

use std::time::Duration;

use oxccl::{Communicator, ResultCode};

use crate::harness::{Order, Pool, alone};

/// One rank.
pub fn rank(order: &Order) {
    order.report("joining", "");
    match Communicator::init(order.ranks, order.id, order.rank) {
        Ok(comm) => {
            order.report("up", "");
            comm.barrier().expect("barrier");
        }
        Err(e) => order.report("error", &format!("{:?} {}", e.code, e.text)),
    }
}

fn timed(what: &str, processes: usize, per: usize) {
    let _alone = alone();
    let mut pool = Pool::new(processes, per, &[]);
    let all: Vec<usize> = (0..processes * per).collect();
    for time in ["first", "second"] {
        pool.start("init");
        let begin = pool.expect("joining", &all, Duration::from_secs(20)).iter().map(|e| e.ns).max().unwrap_or(0);
        let end = pool.expect("up", &all, Duration::from_secs(20)).iter().map(|e| e.ns).max().unwrap_or(0);
        let took = Duration::from_nanos(end - begin.min(end));
        println!("{what}: the {time} initialisation took {took:?} after the last rank had come");
        assert!(took < Duration::from_secs(5), "{what}: {took:?}");
        pool.expect("end", &all, Duration::from_secs(20));
    }
}

#[test]
fn sixty_four_ranks_in_one_process() {
    timed("64 ranks in one process", 1, 64);
}

#[test]
fn sixteen_processes() {
    timed("16 processes", 16, 1);
}

fn missing(env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(3, 1, &[env, &[("OXCCL_INIT_TIMEOUT", "1")]].concat());
    pool.start_on(&[0, 2], 3, "init");
    let begin = pool.expect("joining", &[0, 2], Duration::from_secs(10)).iter().map(|e| e.ns).min().unwrap_or(0);
    for e in pool.expect("error", &[0, 2], Duration::from_secs(10)) {
        let took = Duration::from_nanos(e.ns.saturating_sub(begin));
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(3), "{took:?}");
        assert!(e.text.starts_with(&format!("{:?} ", ResultCode::RemoteError)), "{e:?}");
        assert!(e.text.contains("1 of 3 ranks") && e.text.contains("rank 1."), "{e:?}");
    }
}

#[test]
fn a_missing_rank_is_named_when_the_time_is_over() {
    missing(&[]);
}
