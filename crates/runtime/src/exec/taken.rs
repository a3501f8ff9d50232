//! Whether others, who do not wait but work, want the cores of this process' threads.
//!
//! Then a yield is a bad way to wait: it gives the core away for a slice of milliseconds, and newer schedulers take from who
//! yields the right to come back before it is over. Who parks keeps that right, and has the core again soon after it is woken.
//!
//! Found out by how long yields take, and what the ranks of the machine have worked meanwhile: they may be many, and keep each
//! other waiting as long. In a virtual machine the host may have kept them from it: then nobody else is there for whom to park. A
//! hint that costs time where it is wrong, never more.

use std::sync::{Mutex, PoisonError, TryLockError};

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_sys::{clock, host};

use crate::config::tuning;

/// A yield that takes longer has given the core to who works, ns. (What ranks do for one another takes less, mostly.)
const LONG_YIELD_NS: u64 = 1_000_000;
/// Yields that long are one episode if no more than this is between them, ns.
const EPISODE_NS: u64 = 20_000_000;
/// How long an episode is looked at before it counts, ns, at least: the kernel counts what threads work by ticks, of 4 ms mostly.
const LOOK_NS: u64 = 12_000_000;
/// The part of their cores that ranks have who wait by yielding, or work, beside no others: nearly all of it; less than this
/// means others.
const WORK: f64 = 0.75;
/// How much longer than that threads park instead, before one of them tries again: what bounds the time lost by that.
const TRY_AGAIN: u64 = 40;
/// The same where it was not so lately: it may be over at once.
const TRY_SOON: u64 = 8;
/// The longest that they do, ns.
const LONGEST_NS: u64 = 1_000_000_000;
/// How long an episode is remembered, ns.
const LATELY_NS: u64 = 1_000_000_000;

/// What is known of it.
pub(super) struct Taken {
    /// Until when it is taken for granted, ns; zero before it was ever seen.
    until: AtomicU64,
    /// Asked for at a long yield only.
    episode: Mutex<Episode>,
}

/// Long yields without a long time in between.
struct Episode {
    /// End of the last one, ns; zero before the first.
    last: u64,
    /// When it began to be looked at, ns, what the ranks had worked by then, ns, and the steps that the host had kept back.
    since: u64,
    worked: u64,
    stolen: u64,
    /// The ranks of this machine, of each communicator and by its number here.
    ranks: Vec<(u64, Ranks)>,
    /// The number of the next communicator.
    next: u64,
}

/// Ranks of one machine.
pub(crate) struct Ranks {
    /// How many, and how many of them can run at once.
    pub(crate) count: usize,
    pub(crate) cores: f64,
    /// The processes that they are; none if some are not known here.
    pub(crate) pids: Vec<u32>,
}

/// What can be known of the machine.
trait Machine {
    /// Processor time of the ranks that have not ended, ns; `None` if some are not known.
    fn worked(&self, ranks: &Ranks) -> Option<u64>;
    /// Time that the host has kept all the processors of this machine from running, in whole steps of so many ns.
    fn stolen(&self) -> u64;
    fn step_ns(&self) -> u64;
    /// How many processors that are.
    fn processors(&self) -> f64;
    /// Whether more want to run now than there are cores for the ranks.
    fn others(&self, ranks: &Ranks) -> bool;
}

/// This one.
struct This;

impl Machine for This {
    fn worked(&self, ranks: &Ranks) -> Option<u64> {
        ranks.worked()
    }
    fn stolen(&self) -> u64 {
        host::stolen_steps().unwrap_or(0)
    }
    fn step_ns(&self) -> u64 {
        host::stolen_step_ns()
    }
    fn processors(&self) -> f64 {
        tuning::processors() as f64
    }
    fn others(&self, ranks: &Ranks) -> bool {
        host::runnable_threads().is_some_and(|n| n as f64 > ranks.cores)
    }
}

/// Of this process.
pub(super) static TAKEN: Taken = Taken::new();

/// The ranks of a communicator on this machine, known here for as long as this lives.
#[derive(Debug)]
pub(crate) struct RanksHere(u64);

/// A communicator has these ranks on this machine.
pub(crate) fn ranks_here(ranks: Ranks) -> RanksHere {
    RanksHere(TAKEN.change(|episode| {
        episode.next += 1;
        episode.ranks.push((episode.next, ranks));
        episode.next
    }))
}

impl Drop for RanksHere {
    fn drop(&mut self) {
        TAKEN.change(|episode| episode.ranks.retain(|(number, _)| *number != self.0));
    }
}

/// How many times as long as else one should wait before one takes a thread that does not move for one that will not: where
/// the cores are wanted, it may only not have had its turn.
pub(crate) fn slowness() -> u32 {
    if TAKEN.was(clock::now_ns()) { 6 } else { 1 }
}

/// From now on others' work is taken for granted, or not at all.
#[cfg(test)]
pub(crate) fn grant(is: bool) {
    TAKEN.until.store(if is { u64::MAX / 2 } else { 0 }, Ordering::Relaxed);
}

impl Taken {
    const fn new() -> Taken {
        let episode = Episode { last: 0, since: 0, worked: 0, stolen: 0, ranks: Vec::new(), next: 0 };
        Taken { until: AtomicU64::new(0), episode: Mutex::new(episode) }
    }

    /// Changes which ranks are known: what others have worked must be looked at anew.
    fn change<T>(&self, change: impl FnOnce(&mut Episode) -> T) -> T {
        let mut episode = self.episode.lock().unwrap_or_else(PoisonError::into_inner);
        episode.last = 0;
        change(&mut episode)
    }

    /// Whether a thread should rather park than yield.
    pub(super) fn is(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && clock::now_ns() < until
    }

    /// Whether it was so a short time ago: not on this core now, but maybe on those of the peers.
    pub(super) fn was(&self, now: u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && now < until + LATELY_NS
    }

    /// Yields.
    pub(super) fn yield_now(&self) {
        let before = clock::now_ns();
        oxccl_sys::sync::yield_now();
        let now = clock::now_ns();
        if now - before > LONG_YIELD_NS {
            self.note(before, now, &This);
        }
    }

    /// A yield took from `before` until `now`. It counts when the last one is not long ago, when the ranks have worked on less
    /// than their part of their cores since these began (they keep each other waiting that long if they work) though the host let
    /// them, and when others take the cores now: the machine may have stood still.
    #[cold]
    fn note(&self, before: u64, now: u64, machine: &impl Machine) {
        let mut episode = match self.episode.try_lock() {
            Ok(episode) => episode,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread of the process sees to it.
            Err(TryLockError::WouldBlock) => return,
        };
        let goes_on = episode.last != 0 && before < episode.last + EPISODE_NS;
        episode.last = now;
        // Of the communicator that has most of them, and of those the newest.
        let known = episode.ranks.iter().map(|(_, ranks)| ranks).max_by_key(|ranks| ranks.count);
        let Some(ranks) = known else { return };
        let looked = now.saturating_sub(episode.since);
        if goes_on && looked < ranks.look_ns(machine.step_ns()) {
            return;
        }
        let Some(worked) = machine.worked(ranks) else { return };
        let stolen = machine.stolen();
        // Whose processors lost it is not told. A step that has begun is less than what may be missing, see `look_ns`.
        let kept = (stolen.saturating_sub(episode.stolen) * machine.step_ns()) as f64;
        let most = looked as f64 * ranks.cores * WORK - kept * (ranks.cores / machine.processors()).min(1.0);
        // The sum is less than before when one of them has ended.
        let little = worked.checked_sub(episode.worked).is_some_and(|ns| (ns as f64) < most);
        if goes_on && little && machine.others(ranks) {
            let times = if self.was(now) { TRY_AGAIN } else { TRY_SOON };
            self.until.store(now + (times * looked).min(LONGEST_NS), Ordering::Relaxed);
            // Who tries again looks anew.
            episode.last = 0;
        }
        (episode.since, episode.worked, episode.stolen) = (now, worked, stolen);
    }
}

impl Ranks {
    /// How long one must look, ns: so long that the host, if it has kept them from what they lack, has done so for a whole step.
    fn look_ns(&self, step_ns: u64) -> u64 {
        LOOK_NS.max((step_ns as f64 / ((1.0 - WORK) * self.cores)) as u64)
    }

    /// Processor time that those of them which have not ended have used so far, ns; `None` if some are not known.
    fn worked(&self) -> Option<u64> {
        let times = self.pids.iter().filter_map(|pid| host::processor_time_ns(*pid));
        (!self.pids.is_empty()).then(|| times.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MS: u64 = 1_000_000;

    /// Times since the start, ms; two cores.
    struct Bench {
        taken: Taken,
        base: u64,
        worked: Cell<u64>,
        stolen: Cell<u64>,
        processors: Cell<f64>,
        others: Cell<bool>,
    }

    impl Machine for Bench {
        fn worked(&self, _: &Ranks) -> Option<u64> {
            Some(self.worked.get())
        }
        fn stolen(&self) -> u64 {
            self.stolen.get()
        }
        fn step_ns(&self) -> u64 {
            4 * MS
        }
        fn processors(&self) -> f64 {
            self.processors.get()
        }
        fn others(&self, _: &Ranks) -> bool {
            self.others.get()
        }
    }

    impl Bench {
        fn new() -> Bench {
            let taken = Taken::new();
            let ranks = |count| Ranks { count, cores: 8.0 / count as f64, pids: vec![] };
            // The fewer do not count.
            taken.change(|episode| episode.ranks = vec![(1, ranks(2)), (2, ranks(4)), (3, ranks(3))]);
            let (worked, stolen) = (Cell::new(7 * MS), Cell::new(3));
            let (processors, others) = (Cell::new(2.0), Cell::new(true));
            Bench { taken, base: clock::now_ns(), worked, stolen, processors, others }
        }

        /// A yield of 4 ms that ends at `at`, until when the ranks have worked `ms` more.
        fn long(&self, at: u64, ms: u64) {
            self.worked.set(self.worked.get() + ms * MS);
            let now = self.base + at * MS;
            self.taken.note(now - 4 * MS, now, self);
        }

        /// Until when it is taken for granted.
        fn until(&self) -> Option<u64> {
            self.taken.until.load(Ordering::Relaxed).checked_sub(self.base).map(|ns| ns / MS)
        }
    }

    #[test]
    fn long_yields_while_the_ranks_do_little_are_others() {
        let bench = Bench::new();
        bench.long(10, 0);
        bench.long(16, 1);
        assert_eq!(bench.until(), None, "some may be chance");
        bench.long(23, 2);
        assert_eq!(bench.until(), Some(23 + 8 * 13));
        assert!(bench.taken.was(bench.base + 1120 * MS) && !bench.taken.was(bench.base + 1130 * MS));
        // Who tries again looks as long, and takes it for granted longer.
        bench.long(560, 300);
        bench.long(570, 1);
        assert_eq!(bench.until(), Some(23 + 8 * 13));
        bench.long(579, 1);
        assert_eq!(bench.until(), Some(579 + 40 * 19));
    }

    #[test]
    fn ranks_that_work_keep_each_other_waiting() {
        let bench = Bench::new();
        for at in 0..100 {
            // Of two cores' 20 ms three quarters and a little more.
            bench.long(10 + 10 * at, 16);
        }
        assert_eq!(bench.until(), None);
        // Those by whom the machine stood still, and those that lie far apart.
        let bench = Bench::new();
        bench.others.set(false);
        (0..100).for_each(|at| bench.long(10 + 10 * at, 1));
        bench.others.set(true);
        (100..200).for_each(|at| bench.long(10 + 30 * at, 1));
        assert_eq!(bench.until(), None);
        assert!(!bench.taken.was(bench.base), "never seen");
    }

    /// Of the 40 ms that two cores have in 20 the host takes 12, of which 8 or 16 are told in time; the ranks have the rest. Then
    /// others are there.
    #[test]
    fn what_the_host_keeps_back_is_not_others() {
        let bench = Bench::new();
        let look = |number: u64, steps, worked| {
            bench.stolen.set(bench.stolen.get() + steps);
            bench.long(10 + 20 * number, worked);
            bench.until().is_some()
        };
        assert!((0..100).all(|number| !look(number, 2 + number % 2 * 2, 28)));
        assert!(!look(100, 4, 14) && !look(101, 2, 22) && look(102, 2, 21));
    }

    /// Two of eight processors have a quarter of what all lose.
    #[test]
    fn what_the_host_keeps_from_other_processors_does_not_count() {
        let bench = Bench::new();
        bench.processors.set(8.0);
        for (number, worked) in [(0, 40), (1, 26), (2, 25)] {
            assert_eq!(bench.until(), None, "{number}");
            bench.stolen.set(bench.stolen.get() + 4);
            bench.long(10 + 20 * number, worked);
        }
        assert!(bench.until().is_some());
    }

    /// However many cores they have: what they lack, if it is no less than what counts, is a step of the host's at least.
    #[test]
    fn one_looks_until_the_host_would_be_seen() {
        let look = |cores| Ranks { count: 4, cores, pids: vec![] }.look_ns(10 * MS) / MS;
        assert_eq!([1.0, 2.0, 4.0, 64.0].map(look), [40, 20, 12, 12]);
    }

    #[test]
    fn ranks_of_which_nothing_is_known_yield() {
        let own = |pids: Vec<u32>| Ranks { count: 2, cores: 2.0, pids }.worked();
        assert_eq!(own(vec![]), None);
        assert!(own(vec![std::process::id(), u32::MAX]).is_some_and(|ns| ns > 0), "one has ended");
    }
}
