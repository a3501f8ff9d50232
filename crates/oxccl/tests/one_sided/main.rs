//! Windows and one-sided calls: ranks are threads, processes, and processes that share no memory.

#[path = "../failures/harness.rs"]
#[allow(dead_code, reason = "shared with the failure tests")]
mod harness;
mod jobs;
mod model;
mod threads;

/// Not a test: what a worker process does.
#[test]
fn worker() {
    harness::work(|order| match order.words[0].as_str() {
        "model" => jobs::model(order),
        "join" => jobs::join(order),
        "wait" => jobs::wait(order),
        "put" => jobs::put(order),
        "remain" => jobs::remain(order),
        "register" => jobs::register(order),
        "leave" => jobs::leave(order),
        "silent" => jobs::silent(order),
        "closed" => jobs::closed(order),
        "late" => jobs::late(order),
        other => panic!("no job {other}"),
    });
}
