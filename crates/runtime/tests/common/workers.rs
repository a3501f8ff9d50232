//! Ranks that are processes of their own: this binary started again, to run its ignored test `worker` alone.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oxccl_runtime::UniqueId;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::common::{Children, wait};

/// Starts so many ranks, to each of which `tell` gives its number and the id that they share as text, and waits until all have
/// succeeded. `what`: the case, for messages. What takes longer than `limit` hangs.
#[allow(dead_code, reason = "not every test uses it")]
pub fn run(ranks: usize, limit: Duration, what: &str, tell: impl Fn(&mut Command, usize, &str)) {
    run_until(ranks, limit, what, |_| 0, tell);
}

/// As [`run`], until each has ended with the status that `ends` says.
pub fn run_until(
    ranks: usize,
    limit: Duration,
    what: &str,
    ends: impl Fn(usize) -> i32,
    tell: impl Fn(&mut Command, usize, &str),
) {
    assert!(has_worker(), "{what}: no test is named `worker`, so the ranks would succeed without doing anything");
    let hex: String = UniqueId::create().unwrap().to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let spawn = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("NCCL_SOCKET_IFNAME", "lo").env("OXCCL_OP_TIMEOUT", "30");
        tell(&mut command, rank, &hex);
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let mut children = Children((0..ranks).map(spawn).collect());
    let start = Instant::now();
    for (rank, child) in children.0.iter_mut().enumerate() {
        let status = wait(child, start, limit).unwrap_or_else(|| panic!("{what}: rank {rank} hangs"));
        assert_eq!(status.code(), Some(ends(rank)), "{what}: rank {rank} failed: {status}");
    }
}

/// Whether this binary has the test that the ranks run.
fn has_worker() -> bool {
    let list =
        Command::new(std::env::current_exe().unwrap()).args(["--exact", "worker", "--ignored", "--list"]).output();
    String::from_utf8_lossy(&list.unwrap().stdout).lines().any(|line| line == "worker: test")
}

/// The id that a worker was told.
pub fn id(hex: &str) -> UniqueId {
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    UniqueId::from_bytes(std::array::from_fn(byte)).unwrap()
}

/// This thread and what it starts from now on have the first `cores` of its cores, or all if it has fewer.
#[allow(dead_code, reason = "not every test uses it")]
pub fn stay_on(cores: usize) {
    let all = sched_getaffinity(None).unwrap();
    let mut first = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).take(cores).for_each(|cpu| first.set(cpu));
    sched_setaffinity(None, &first).unwrap();
}
