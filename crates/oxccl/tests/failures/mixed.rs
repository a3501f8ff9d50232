//! One job of threads and processes: two processes with two ranks each, every call, every element checked.

use std::time::Duration;

use oxccl::Communicator;

use crate::calls::{self, Memory};
use crate::harness::{Order, Pool, alone};

/// One rank.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let mut n = 0;
    for memory in [Memory::Malloc, Memory::Device] {
        for len in [7, 3_000, 100_000] {
            for kind in 0..calls::KINDS {
                n += 1;
                calls::one(&comm, kind, memory, len, n).expect("a call that matches");
            }
        }
    }
    comm.barrier().expect("barrier");
}

fn mixed(env: &[(&str, &str)]) {
    let _alone = alone();
    let mut pool = Pool::new(2, 2, env);
    // Twice: the second communicator meets what the first left behind.
    for _ in 0..2 {
        pool.start("mixed");
        pool.expect("end", &[0, 1, 2, 3], Duration::from_secs(30));
    }
}

#[test]
fn threads_and_processes_in_one_job() {
    mixed(&[]);
}

#[test]
fn threads_and_processes_in_one_job_over_the_network() {
    mixed(&[("OXCCL_SHM", "0")]);
}
