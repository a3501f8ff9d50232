//! Whether others, who do not wait but work, want the cores of this process' threads.
//!
//! Then a yield is a bad way to wait: it gives the core away for a slice of milliseconds, and newer schedulers take from who
//! yields the right to come back before it is over. Who parks keeps that right, and has the core again soon after it is woken.
//! Found out by how long yields take; a hint that costs time where it is wrong, never more.

use oxccl_sys::clock;
use oxccl_sys::sync::{AtomicU64, AtomicUsize, Ordering};

/// A yield that takes longer has given the core to who works, ns. (What ranks do for one another takes less, mostly.)
const LONG_YIELD_NS: u64 = 1_000_000;
/// Yields that long are one episode if no more than this is between them, ns.
const EPISODE_NS: u64 = 20_000_000;
/// How much longer than a long yield threads park instead, before one of them tries again: what bounds the time lost by that.
const TRY_AGAIN: u64 = 25;
/// How long an episode is remembered, ns.
const LATELY_NS: u64 = 1_000_000_000;

/// What is known of it.
pub(super) struct Taken {
    /// End of the last long yield, ns.
    last: AtomicU64,
    /// Until when it is taken for granted, ns; zero before it was ever seen.
    until: AtomicU64,
    /// The most ranks that a communicator of this process has on this machine.
    ranks: AtomicUsize,
}

/// Of this process.
pub(super) static TAKEN: Taken = Taken::new();

/// A communicator has so many ranks on this machine.
pub(crate) fn ranks_here(ranks: usize) {
    TAKEN.ranks.fetch_max(ranks, Ordering::Relaxed);
}

/// How many times as long as else one should wait before one takes a thread that does not move for one that will not: where
/// the cores are wanted, it may only not have had its turn.
pub(crate) fn slowness() -> u32 {
    if TAKEN.was(clock::now_ns()) { 6 } else { 1 }
}

impl Taken {
    const fn new() -> Taken {
        Taken { last: AtomicU64::new(0), until: AtomicU64::new(0), ranks: AtomicUsize::new(1) }
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
            let ranks = self.ranks.load(Ordering::Relaxed);
            self.note(before, now, || oxccl_sys::host::runnable_threads().is_some_and(|running| running > ranks));
        }
    }

    /// A yield took from `before` until `now`. Once does not count: the machine may have stood still. Nor does it where no
    /// more than the ranks want to run, who say whether there are `others`: ranks with long buffers work that long, too.
    #[cold]
    fn note(&self, before: u64, now: u64, others: impl FnOnce() -> bool) {
        let until = self.until.load(Ordering::Relaxed);
        let last = self.last.swap(now, Ordering::Relaxed);
        // While it lasts most ranks are parked, and do not count.
        let goes_on = until != 0 && before < until + EPISODE_NS;
        if goes_on || before < last + EPISODE_NS && last != 0 && others() {
            self.until.store(now + TRY_AGAIN * (now - before), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn two_long_yields_begin_an_episode_and_others_keep_it_up() {
        let taken = Taken::new();
        let until = || taken.until.load(Ordering::Relaxed);
        let base = clock::now_ns();
        taken.note(base, base + 4 * MS, || true);
        assert_eq!(until(), 0, "one may be chance");
        taken.note(base + 40 * MS, base + 44 * MS, || true);
        assert_eq!(until(), 0, "so may two that lie far apart");
        taken.note(base + 50 * MS, base + 53 * MS, || false);
        assert_eq!(until(), 0, "the ranks themselves may work that long");
        taken.note(base + 60 * MS, base + 63 * MS, || true);
        assert_eq!(until(), base + 63 * MS + 25 * 3 * MS);
        assert!(taken.was(until() + 900 * MS) && !taken.was(until() + 1100 * MS));
        // The next try finds the core taken still, whoever waits for it.
        let again = until() + 10 * MS;
        taken.note(again, again + 4 * MS, || false);
        assert_eq!(until(), again + 104 * MS);
        // Later a single one counts as little as the first.
        let late = until() + 200 * MS;
        taken.note(late, late + 4 * MS, || true);
        assert_eq!(until(), again + 104 * MS);
        assert!(!Taken::new().was(base), "never seen");
    }
}
