//! Communicators that are made out of others and end again: split, shrink, grow, revoke, suspend. Ranks are threads
//! and real processes.

#[path = "../failures/calls.rs"]
#[allow(dead_code, reason = "shared with the failure tests")]
mod calls;
#[path = "../failures/harness.rs"]
#[allow(dead_code, reason = "shared with the failure tests")]
mod harness;
mod jobs;
mod pending;
mod share;
mod stress;
mod threads;

/// Not a test: what a worker process does.
#[test]
fn worker() {
    harness::work(|order| match order.words[0].as_str() {
        "shrink" => jobs::shrink(order),
        "split" => jobs::split(order),
        "grow" => jobs::grow(order),
        "join" => jobs::join(order),
        "divide" => jobs::divide(order),
        "costs" => share::costs(order),
        "lives" => share::lives(order),
        "stress" => stress::rank(order),
        other => panic!("no job {other}"),
    });
}
