//! How long a call that is made looks for late peers before it is left to its stream.
//!
//! Where calls follow one another, long: a peer that was interrupted is back soon, and who went on ahead of it would do so with
//! a queue from then on. Where the program works between its calls, briefly: that work would wait, too, and what is left to the
//! stream goes on with the next call. Known by the time from a call that found a peer late, or from the end of a wait for a stream
//! behind it, to the next call, whatever that is: the time in which this process is not in the library.
//!
//! It is known of the process, not of each rank of it that is a thread: those only tell each other's work from waiting less well.

use oxccl_sys::clock;

/// What is shorter is no work of the program's, ns.
const GAP_NS: u64 = 2000;
/// Calls that look briefly from such work on.
const BRIEF_CALLS: u32 = 64;
/// Looks of such a call: as many as have no pause in between. Ranks that share cores look less often, and do not wait in a call anyway.
const BRIEF: u32 = 64;
/// Looks after which a peer that came was late: some microseconds. What comes sooner may be on its way, and the clock costs as much.
pub(crate) const LATE: u32 = 96;

/// When a call that found a peer late was over, ns, or 0: none did since the last call began; and the calls that are still to look briefly.
#[cfg(not(test))]
mod state {
    use oxccl_sys::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

    static LATE_NS: AtomicU64 = AtomicU64::new(0);
    static CALLS: AtomicU32 = AtomicU32::new(0);

    // Nothing else is told by either, and what threads do at the same time may be lost.
    #[inline(always)]
    pub(super) fn late_ns() -> u64 {
        LATE_NS.load(Relaxed)
    }
    #[inline(always)]
    pub(super) fn set_late_ns(ns: u64) {
        LATE_NS.store(ns, Relaxed);
    }
    #[inline(always)]
    pub(super) fn calls() -> u32 {
        CALLS.load(Relaxed)
    }
    #[inline(always)]
    pub(super) fn set_calls(calls: u32) {
        CALLS.store(calls, Relaxed);
    }
}

/// The same for tests, many of which run in a process and are threads each, as their ranks are.
#[cfg(test)]
mod state {
    use std::cell::Cell;

    thread_local! {
        static LATE_NS: Cell<u64> = const { Cell::new(0) };
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn late_ns() -> u64 {
        LATE_NS.get()
    }
    pub(super) fn set_late_ns(ns: u64) {
        LATE_NS.set(ns);
    }
    pub(super) fn calls() -> u32 {
        CALLS.get()
    }
    pub(super) fn set_calls(calls: u32) {
        CALLS.set(calls);
    }
}

/// A call begins, or the next of several that begin together.
#[inline(always)]
pub(crate) fn begin() {
    if is_brief() {
        state::set_calls(state::calls().saturating_sub(1));
    }
    if state::late_ns() != 0 {
        begin_at(clock::now_ns());
    }
}

#[cold]
fn begin_at(now_ns: u64) {
    if now_ns.saturating_sub(state::late_ns()) > GAP_NS {
        state::set_calls(BRIEF_CALLS);
    }
    state::set_late_ns(0);
}

/// A call is over or left to its stream, or a wait for a stream is: what was moved and waited for since a peer was late was no work of
/// the program's.
#[inline(always)]
pub(crate) fn end() {
    if state::late_ns() != 0 {
        late_at(clock::now_ns());
    }
}

/// How often a call looks that would look `most` times at a line.
#[inline(always)]
pub(crate) fn looks(most: u32) -> u32 {
    if is_brief() { most.min(BRIEF) } else { most }
}

/// Whether calls look briefly.
#[inline(always)]
pub(crate) fn is_brief() -> bool {
    state::calls() != 0
}

/// What a call waited for came when it had looked so often.
#[inline(always)]
pub(crate) fn came(looks: u32) {
    if looks >= LATE {
        late_at(clock::now_ns());
    }
}

/// It did not while the call looked so often.
#[inline(always)]
pub(crate) fn in_vain(looks: u32) {
    if looks >= BRIEF {
        late_at(clock::now_ns());
    }
}

/// A peer was late until now.
#[cold]
pub(crate) fn late_at(now_ns: u64) {
    state::set_late_ns(now_ns);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Looks of 512 that a call has which begins that long after one that found a peer late.
    fn looks_after(gap_ns: u64) -> u32 {
        late_at(1_000_000);
        begin_at(1_000_000 + gap_ns);
        looks(512)
    }

    #[test]
    fn who_works_between_its_calls_looks_briefly_for_some_of_them() {
        assert_eq!(looks_after(GAP_NS), 512, "calls follow one another");
        assert_eq!(looks_after(GAP_NS + 1), 64);
        let brief = (0..1000).take_while(|_| {
            begin();
            is_brief()
        });
        assert_eq!(brief.count() as u32, BRIEF_CALLS - 1);
        assert_eq!(looks(512), 512, "for good, if nobody is late any more");
    }

    #[test]
    fn whose_peers_are_in_time_looks_long_however_much_it_works() {
        for _ in 0..3 {
            begin();
            assert_eq!(looks(512), 512);
        }
        came(LATE - 1);
        in_vain(BRIEF - 1);
        end();
        assert_eq!(state::late_ns(), 0, "who does not wait finds nobody late");
    }

    #[test]
    fn what_is_moved_and_waited_for_is_no_work() {
        late_at(1);
        end();
        let ended = state::late_ns();
        assert!(ended > 1);
        begin_at(ended + GAP_NS);
        assert_eq!((looks(512), state::late_ns()), (512, 0));
    }
}
