//! What happens when something goes wrong, and that it always ends: dead ranks, calls that do not match, aborts, ranks
//! that leave early or come late. Ranks are real processes, threads, and both in one job.

mod calls;
mod early;
mod harness;
mod hosts;
mod init;
mod kept;
mod kill;
mod late;
mod leaks;
mod leave;
mod lent;
mod mismatch;
mod mixed;
mod opening;
mod stopped;

/// Not a test: what a worker process does.
#[test]
fn worker() {
    harness::work(|order| match order.words[0].as_str() {
        "kill" => kill::rank(order),
        "mismatch" => mismatch::rank(order),
        "leave" => leave::rank(order),
        "mixed" => mixed::rank(order),
        "lent" => lent::rank(order),
        "early" => early::rank(order),
        "kept" => kept::rank(order),
        "hosts" => hosts::rank(order),
        "init" => init::rank(order),
        "leaks" => leaks::rank(order),
        "children" => leaks::children(order),
        "late" => late::rank(order),
        "opening" => opening::rank(order),
        "stopped" => stopped::rank(order),
        other => panic!("no job {other}"),
    });
}
