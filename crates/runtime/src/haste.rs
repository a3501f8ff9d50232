//! How long a call that is made looks for late peers before it is left to its stream.
//!
//! Where calls follow one another, long: a peer that was interrupted is back soon, and who went on ahead of it would do so with
//! a queue from then on. Where the program works between its calls, briefly: that work would wait, too, and what is left to the
//! stream goes on with the next call. Known by the time from a look that found a peer late to the next call. Whoever waits for a
//! stream does nothing else, and is not meant here.

use oxccl_sys::clock;

/// What is shorter is no work of the program's, ns.
const GAP_NS: u64 = 2000;
/// Calls that look briefly from such work on.
const CALLS: u32 = 64;
/// Looks of such a call: as many as have no pause in between. Who looks less often does not wait for its peers anyway.
const BRIEF: u32 = 64;
/// Looks after which a peer that came was late: some microseconds. What comes sooner may be on its way, and the clock costs as much.
pub(crate) const LATE: u32 = 96;

/// Of the calls of one communicator, or of one stream.
#[derive(Default)]
pub(crate) struct Haste {
    /// When a peer was found late; 0: not since the last call began.
    late_ns: u64,
    /// Calls that are still to look briefly.
    calls: u32,
}

impl Haste {
    /// A call begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        if self.late_ns != 0 {
            self.begin_at(clock::now_ns());
        }
    }

    #[cold]
    fn begin_at(&mut self, now_ns: u64) {
        if now_ns - self.late_ns > GAP_NS {
            self.calls = CALLS;
        }
        self.late_ns = 0;
    }

    /// How often a call looks that would look `most` times at a line.
    #[inline(always)]
    pub(crate) fn looks(&self, most: u32) -> u32 {
        if self.is_brief() { most.min(BRIEF) } else { most }
    }

    /// Whether calls look briefly.
    #[inline(always)]
    pub(crate) fn is_brief(&self) -> bool {
        self.calls != 0
    }

    /// What a call waited for came when it had looked so often.
    #[inline(always)]
    pub(crate) fn came(&mut self, looks: u32) {
        if looks >= LATE {
            self.late_at(clock::now_ns());
        }
    }

    /// It did not while the call looked so often.
    #[inline(always)]
    pub(crate) fn in_vain(&mut self, looks: u32) {
        if looks >= BRIEF {
            self.late_at(clock::now_ns());
        }
    }

    /// A peer was late until now.
    #[cold]
    pub(crate) fn late_at(&mut self, now_ns: u64) {
        self.late_ns = now_ns;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Looks of 512 that a call has which begins that long after one that found a peer late.
    fn looks_after(haste: &mut Haste, gap_ns: u64) -> u32 {
        haste.late_at(1_000_000);
        haste.begin_at(1_000_000 + gap_ns);
        haste.looks(512)
    }

    #[test]
    fn who_works_between_its_calls_looks_briefly_for_some_of_them() {
        let mut haste = Haste::default();
        assert_eq!(looks_after(&mut haste, GAP_NS), 512, "calls follow one another");
        assert_eq!(looks_after(&mut haste, GAP_NS + 1), 64);
        let brief = (0..1000).take_while(|_| {
            haste.begin();
            haste.is_brief()
        });
        assert_eq!(brief.count() as u32, CALLS - 1);
        assert_eq!(haste.looks(512), 512, "for good, if nobody is late any more");
    }

    #[test]
    fn whose_peers_are_in_time_looks_long_however_much_it_works() {
        let mut haste = Haste::default();
        for _ in 0..3 {
            haste.begin();
            assert_eq!(haste.looks(512), 512);
        }
        haste.came(LATE - 1);
        haste.in_vain(BRIEF - 1);
        assert_eq!(haste.late_ns, 0, "who does not wait finds nobody late");
    }
}
