//! Bells under every interleaving and every reordering that the memory model allows. Time stands still and nothing wakes a
//! sleeper but a wake: a lost one is a deadlock, which loom tells.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::affinity;
use crate::bell::{Belfry, Doorbell};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SharedU32, fence};

/// What each rank has in the hub.
struct Rank {
    bell: [AtomicU32; 2],
    /// Calls that it has published.
    flag: AtomicU64,
    /// The payload of its calls.
    payload: UnsafeCell<u64>,
    status: AtomicU32,
}

struct Ranks(Vec<Rank>);

// SAFETY: that the payload is handed over correctly is what the test checks.
unsafe impl Sync for Ranks {}
// SAFETY: as above.
unsafe impl Send for Ranks {}

impl Belfry for Ranks {
    fn bells(&self) -> usize {
        self.0.len()
    }
    fn bell(&self, member: usize) -> Doorbell {
        let word = |at: usize| (&raw const self.0[member].bell[at]).cast_mut().cast();
        // SAFETY: one of loom's atomics, in memory that every thread of the model keeps.
        let [word, place] = [0, 1].map(|at| unsafe { SharedU32::from_ptr(word(at)) });
        Doorbell::placed(word, place)
    }
    /// Loom has no kernel that makes others pass a barrier: the pair of fences stands for it.
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Ranks {
    fn new(ranks: usize) -> Arc<Ranks> {
        let rank = |_| Rank {
            bell: [AtomicU32::new(0), AtomicU32::new(0)],
            flag: AtomicU64::new(0),
            payload: UnsafeCell::new(0),
            status: AtomicU32::new(0),
        };
        Arc::new(Ranks((0..ranks).map(rank).collect()))
    }

    /// `rank` has its payload for call 1 ready.
    fn publish(&self, rank: usize) {
        // SAFETY: not yet published; loom reports who else would touch it.
        self.0[rank].payload.with_mut(|p| unsafe { *p = 100 + rank as u64 });
        self.0[rank].flag.store(1, Ordering::Release);
    }

    /// Sleeps until `there`, as a rank waits whose time of polling is over.
    fn wait(&self, me: usize, there: impl Fn() -> bool) {
        while !there() {
            self.bell(me).park_unless(Duration::MAX, &there);
        }
    }

    /// Waits until `rank` has published its call, and reads the payload.
    fn take(&self, me: usize, rank: usize) {
        self.wait(me, || self.0[rank].flag.load(Ordering::Acquire) == 1);
        // SAFETY: published for good.
        assert_eq!(self.0[rank].payload.with(|p| unsafe { *p }), 100 + rank as u64);
    }
}

/// Plays `acts`, each on a thread and a core of its own, with `ranks` bells: every interleaving, or those with at most so many
/// `preemptions`.
fn play(preemptions: Option<usize>, ranks: usize, acts: &'static [(u32, fn(&Ranks))]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let all = Ranks::new(ranks);
        let run = |(core, act): (u32, fn(&Ranks)), all: &Ranks| {
            affinity::model_core(core);
            act(all);
        };
        let (first, others) = acts.split_first().unwrap();
        let spawn = |act: &'static (u32, fn(&Ranks))| {
            let all = all.clone();
            thread::spawn(move || run(*act, &all))
        };
        let others: Vec<_> = others.iter().map(spawn).collect();
        run(*first, &all);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn loom_a_bell_wakes_whoever_parks() {
    play(
        None,
        2,
        &[
            (0, |all| all.take(0, 1)),
            (0, |all| {
                all.publish(1);
                all.ring(0);
            }),
        ],
    );
}

#[test]
fn loom_bells_that_cross_wake_both() {
    play(
        None,
        2,
        &[
            (0, |all| {
                all.publish(0);
                all.ring(1);
                all.take(0, 1);
            }),
            (1, |all| {
                all.publish(1);
                all.ring_all(1);
                all.take(1, 0);
            }),
        ],
    );
}

#[test]
fn loom_a_late_rank_wakes_all_wherever_they_parked() {
    play(
        Some(5),
        3,
        &[
            (0, |all| {
                all.publish(2);
                all.ring_all(2);
            }),
            (0, |all| all.take(0, 2)),
            (1, |all| all.take(1, 2)),
        ],
    );
}

#[test]
fn loom_two_threads_on_one_bell_are_woken_for_what_each_awaits() {
    play(
        Some(4),
        3,
        &[
            (0, |all| {
                all.publish(1);
                all.ring_all(1);
                all.publish(2);
                all.ring_all(2);
            }),
            (0, |all| all.take(0, 1)),
            (1, |all| all.take(0, 2)),
        ],
    );
}

#[test]
fn loom_two_ringers_at_once_lose_nothing() {
    play(
        Some(4),
        3,
        &[
            (0, |all| {
                all.take(0, 1);
                all.take(0, 2);
            }),
            (1, |all| {
                all.publish(1);
                all.ring(0);
            }),
            (1, |all| {
                all.publish(2);
                all.ring(0);
            }),
        ],
    );
}

#[test]
fn loom_an_abort_ends_a_wait_beside_the_news() {
    play(
        Some(4),
        2,
        &[
            (0, |all| {
                let ended = || all.0[0].status.load(Ordering::Acquire) != 0;
                all.wait(0, || ended() && all.0[1].flag.load(Ordering::Acquire) == 1);
            }),
            (0, |all| {
                all.publish(1);
                all.ring(0);
            }),
            (1, |all| {
                all.0[0].status.fetch_or(1, Ordering::AcqRel);
                all.bell(0).ring();
            }),
        ],
    );
}
