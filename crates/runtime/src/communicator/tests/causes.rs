//! Which of several ends of a peer is told: a peer that aborts because of an error told the error before, and that is the cause.

use std::sync::Mutex;

use oxccl_sys::clock;
use oxccl_types::Error;

use super::super::core::{Blocked, Core};
use super::super::window::PUTS;
use super::*;
use crate::bootstrap::News;
use crate::service::{self, Route};

const GRACE: Duration = Duration::from_secs(2);

/// An operation of rank 0 for which nobody does anything; what happens between its looks at errors and at who is gone.
struct Amid<F: Fn()>(F);

impl<F: Fn()> Blocked for Amid<F> {
    fn describe(&self) -> String {
        "a call".to_string()
    }
    fn needs(&self, _rank: usize) -> bool {
        true
    }
    fn indirect(&self) -> bool {
        (self.0)();
        false
    }
}

/// Runs `f` with the cores of two ranks that share memory.
fn pair(f: impl Fn(&Core, &Core) + Sync) {
    pair_with(|c| c.death_grace = GRACE, f);
}

/// Runs `f` with the cores of two ranks.
fn pair_with(change: impl Fn(&mut config::Config) + Sync, f: impl Fn(&Core, &Core) + Sync) {
    let (give, take) = channel::<Arc<Core>>();
    // What `f` holds while it runs, and lets go if it panics.
    let (running, over) = channel::<()>();
    let (first, second) = (Mutex::new(Some((take, running))), Mutex::new(Some((give, over))));
    world(2, change, |comm| {
        let mine = comm.core().unwrap().clone();
        if comm.rank == 0 {
            let (take, _running) = first.lock().unwrap().take().unwrap();
            f(&mine, &take.recv().unwrap());
        } else {
            let (give, over) = second.lock().unwrap().take().unwrap();
            give.send(mine).unwrap();
            let _ended = over.recv();
        }
        comm.abort().unwrap();
    });
}

/// What a look of an operation finds that has waited for longer than the grace, while `amid` happens.
fn look(core: &Core, amid: impl Fn()) -> Result<()> {
    let mut since = clock::now_ns() - (GRACE + GRACE / 2).as_nanos() as u64;
    core.check_operation(&mut since, None, &Amid(amid))
}

#[test]
fn an_error_that_a_peer_told_before_it_aborted_is_the_cause() {
    pair(|core, peer| {
        let found = look(core, || {
            peer.spread(&Error::remote("rank 7 died"));
            peer.raise_abort();
        });
        assert_eq!(found.unwrap_err().text, "rank 7 died");
    });
}

#[test]
fn an_error_that_is_being_told_is_waited_for() {
    pair(|core, peer| {
        let found = look(core, || {
            assert!(core.hub.begin_poison());
            peer.raise_abort();
        });
        found.expect("the error has yet to be told");
        // Who was telling it has ended meanwhile: not for ever.
        let mut since = 1;
        let found = core.check_operation(&mut since, None, &Amid(|| ())).unwrap_err().into_text();
        assert!(found.contains("rank 1") && found.contains("aborted its communicator"), "{found}");
    });
}

#[test]
fn an_abort_without_an_error_is_told_as_such() {
    pair(|core, peer| {
        let found = look(core, || peer.raise_abort()).unwrap_err().into_text();
        assert!(found.contains("rank 1") && found.contains("aborted its communicator"), "{found}");
        let found = core.check_present(1, || "call".to_string()).unwrap_err().into_text();
        assert!(found.contains("rank 1") && found.contains("before a call of rank 0"), "{found}");
    });
}

/// A rank that dies, or whose host does, closes its connections; the news of its end may come later, or never.
#[test]
fn who_closes_its_connection_for_puts_without_a_word_is_not_waited_for() {
    let short = Duration::from_millis(50);
    pair_with(
        |c| (c.shm, c.death_grace) = (false, short),
        |core, peer| {
            let route = Route { comm_hash: core.hash, from: 0, to: 1, purpose: PUTS };
            let limits = core.limits();
            drop(service::dial(&core.peers[1].tcp, &core.key, route, &limits.as_limits()).unwrap());
            let deadline = Instant::now() + Duration::from_secs(20);
            let found = loop {
                // It has waited for longer than the grace.
                let mut since = clock::now_ns() - 2 * short.as_nanos() as u64;
                match peer.check_operation(&mut since, None, &Amid(|| ())) {
                    Err(found) => break found.into_text(),
                    Ok(()) => assert!(Instant::now() < deadline, "it is waited for"),
                }
                std::thread::yield_now();
            };
            assert!(found.contains("rank 0") && found.contains("it closed its connection"), "{found}");
            // It may have left in good order, of which the news is on its way.
            assert!(peer.failure().is_none());
        },
    );
}

/// A rank that is excluded is no obstacle with what its own end did, but with what it said of the communicator.
#[test]
fn the_end_of_an_excluded_rank_does_not_keep_others_from_going_on() {
    world(
        2,
        |_| (),
        |comm| {
            let core = comm.core().unwrap();
            if comm.rank == 0 {
                core.suspect(1, &Error::remote("its connection for puts broke"));
                core.on_news(News::Ended { rank: 1, text: "aborted".into() });
                assert!(core.failure_among(&[0]).is_none());
                assert!(core.failure_among(&[0, 1]).expect("it takes part").text.contains("for puts"));
                core.on_news(News::Error { rank: 1, code: ResultCode::InvalidUsage, text: "mismatch".into() });
                assert_eq!(core.failure_among(&[0]).expect("the communicator failed").text, "mismatch");
            }
            comm.abort().unwrap();
        },
    );
}
