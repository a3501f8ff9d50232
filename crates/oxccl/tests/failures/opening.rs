//! A rank that is stopped before a connection to it was opened answers no call: who calls it hears all the same what becomes of the other
//! ranks, an abort of the communicator that is to grow ends at once, and puts to other ranks go on.

use std::path::Path;
use std::time::Duration;

use oxccl::{Communicator, Signal, Stream};

use crate::harness::{Order, Pool, alone, now_ns, pause, poll, wait_until};

/// Each on a host of its own.
const RANKS: usize = 4;
/// The one that is stopped, and the one that is killed.
const STOPPED: usize = 3;
const KILLED: usize = 2;
/// From a death or an abort to its end on each rank: far less than a call of a rank that does not answer takes to fail (OXCCL_INIT_TIMEOUT).
const NOTICE: Duration = Duration::from_secs(3);
/// Longer than a rank waits for one that calls it and does not go on.
const LATE: Duration = Duration::from_secs(6);
const GIVE_UP: Duration = Duration::from_secs(20);

/// Rank 0 does what word 1 says once the process at word 2 is stopped; the others wait for their end.
pub fn rank(order: &Order) {
    let comm = Communicator::init(order.ranks, order.id, order.rank).expect("init");
    let mut windows = Vec::new();
    if order.words[1] == "put" {
        windows.extend((0..2).map(|_| comm.window::<u64>(16).expect("a window")));
    }
    order.report("up", "");
    if order.words[1] == "late" && order.rank != 0 {
        return exchange_late(order, &comm);
    }
    if order.rank != 0 {
        if order.rank == 1 && order.words[1] == "put" {
            comm.wait_signal(0, Signal::default(), 1).expect("the put of rank 0 comes");
            return order.report("arrived", "");
        }
        std::thread::park_timeout(GIVE_UP);
        return;
    }
    if order.words[1] != "late" {
        wait_until(Path::new(&order.words[2]), 'T', GIVE_UP);
    }
    match order.words[1].as_str() {
        "all" => {
            order.report("calls", "");
            let (sent, mut came) = ([1_u32; 16], [0; 16]);
            let error = comm.all_to_all(&sent, &mut came).expect_err("rank 2 died");
            order.report("error", &format!("{:?} {}", error.code, error.text));
        }
        "grow" => {
            order.report("calls", "");
            aborting(order, &comm);
            let error = comm.grow_id().expect_err("it was aborted");
            order.report("error", &error.text);
            poll(GIVE_UP, || comm.async_error().is_err().then_some(()));
        }
        "put" => {
            let values = [7_u64; 8];
            let (one, other) = (Stream::on(comm.device()), Stream::on(comm.device()));
            let (one, other) = (one.expect("a stream"), other.expect("a stream"));
            let error = one.scope(|s| {
                s.put_signal(&comm, &windows[0], STOPPED, 0, s.share(&values[..]), Signal::default())?;
                // The helper thread calls the rank that is stopped.
                pause(Duration::from_millis(200));
                order.report("calls", "");
                other
                    .scope(|s| s.put_signal(&comm, &windows[1], 1, 0, s.share(&values[..]), Signal::default()))
                    .expect("a put to a rank that is well");
                order.report("put", "");
                aborting(order, &comm);
                Ok(())
            });
            order.report("gone", &error.expect_err("it was aborted").text);
        }
        "late" => {
            let (stream, mut came) = (Stream::on(comm.device()).expect("a stream"), [0_u32; 4]);
            stream
                .scope(|s| {
                    s.recv(&comm, s.lend(&mut came[..]), 1)?;
                    s.send(&comm, s.share(&[5_u32; 4][..]), KILLED)
                })
                .expect("one message after the other");
            assert_eq!(came, [3; 4]);
            order.report("done", "");
        }
        other => panic!("no work {other}"),
    }
}

/// Rank 1 sends late, rank 2 waits for what rank 0 sends behind that.
fn exchange_late(order: &Order, comm: &Communicator) {
    match order.rank {
        1 => {
            pause(LATE);
            comm.send(&[3_u32; 4], 0).expect("send");
        }
        KILLED => {
            let mut came = [0_u32; 4];
            comm.recv(&mut came, 0).expect("recv");
            assert_eq!(came, [5; 4]);
        }
        _ => {}
    }
    order.report("done", "");
}

/// Has another thread abort the communicator.
fn aborting(order: &Order, comm: &Communicator) {
    let (handle, order) = (comm.abort_handle(), order.clone());
    std::thread::spawn(move || {
        pause(Duration::from_millis(200));
        let begin = now_ns();
        handle.abort().expect("abort");
        order.report("aborted", &(now_ns() - begin).to_string());
    });
}

/// Workers that have done their part up to the moment when one of them was stopped.
fn stopped(work: &str) -> Pool {
    let mut pool = Pool::new(RANKS, 1, &[("OXCCL_SHM", "0")]);
    let process = pool.workers[STOPPED].process();
    pool.start(&format!("opening {work} {}", process.display()));
    pool.expect("up", &[0, 1, KILLED, STOPPED], GIVE_UP);
    pool.workers[STOPPED].stop();
    pool
}

#[test]
fn who_calls_a_stopped_rank_hears_of_the_death_of_another_one() {
    let _alone = alone();
    let mut pool = stopped("all");
    pool.expect("calls", &[0], GIVE_UP);
    pause(Duration::from_millis(300));
    let killed = now_ns();
    pool.workers[KILLED].kill();
    let error = pool.expect("error", &[0], GIVE_UP).remove(0);
    let took = Duration::from_nanos(error.ns.saturating_sub(killed));
    assert!(took < NOTICE, "after {took:?}\n{}", pool.said());
    assert!(error.text.starts_with("RemoteError ") && error.text.contains("rank 2"), "{error:?}\n{}", pool.said());
}

#[test]
fn an_abort_ends_the_making_of_an_id_that_a_stopped_rank_is_to_get() {
    let _alone = alone();
    let mut pool = stopped("grow");
    let calls = pool.expect("calls", &[0], GIVE_UP)[0].ns;
    for what in ["aborted", "error"] {
        let event = pool.expect(what, &[0], GIVE_UP).remove(0);
        let took = Duration::from_nanos(event.ns.saturating_sub(calls));
        assert!(took < NOTICE, "{what} after {took:?}\n{}", pool.said());
    }
}

#[test]
fn puts_to_other_ranks_go_on_while_a_stopped_one_is_called() {
    let _alone = alone();
    let mut pool = stopped("put");
    let calls = pool.expect("calls", &[0], GIVE_UP)[0].ns;
    for (what, rank) in [("put", 0), ("arrived", 1), ("gone", 0)] {
        let event = pool.expect(what, &[rank], GIVE_UP).remove(0);
        let took = Duration::from_nanos(event.ns.saturating_sub(calls));
        assert!(took < NOTICE, "{what} after {took:?}\n{}", pool.said());
    }
}

/// Rank 0 has never talked to rank 2 when its message for that waits behind one of rank 1, which comes late.
#[test]
fn a_first_message_may_wait_long_behind_another_one() {
    let _alone = alone();
    let mut pool = Pool::new(RANKS, 1, &[("OXCCL_SHM", "0")]);
    pool.start("opening late");
    pool.expect("done", &[0, 1, KILLED, STOPPED], GIVE_UP);
}
