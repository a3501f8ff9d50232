//! Where ranks share cores, a call over mapped memory makes the cores go round twice: until all have met, and until all have
//! read what they were lent. Where calls begin behind each other that serves many of them. Where each is waited for, or needs
//! what the one before it brought, they are *apart*, and each pays for both.
//!
//! So inputs that peers could map are put beside the line then, too, where a copy costs less than a round (see
//! `oxccl_schedule::cost::saves_a_round`): all of it is over when all have met. The lines of the last calls say whether they were
//! apart. A rank that finds that its next call could have begun behind such a one begins the next ones as before.

/// Calls in a row that were apart on all ranks before the next ones are taken to be so. Many, since calls that follow one another
/// after all, while a peer is late, wait in the queue behind one that was taken to be apart, and go one by one.
const CALLS: u32 = 32;

/// What a rank knows of the calls of a communicator.
#[derive(Debug, Default)]
pub(super) struct Apart {
    /// Calls in a row that were apart.
    run: u32,
    /// The last call that counts, and the last one for which a mapped input was put beside the line.
    counted: u64,
    put: u64,
}

impl Apart {
    /// Counts call `seq`, all lines of which have come, maybe not for the first time: whether no rank announced it before those in
    /// front of it were over there.
    #[inline]
    pub(super) fn count(&mut self, seq: u64, apart: impl FnOnce() -> bool) {
        if self.counted != seq {
            self.counted = seq;
            self.run = if apart() { self.run.saturating_add(1) } else { 0 };
        }
    }

    /// Whether the next call is taken to be apart.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.run >= CALLS
    }

    /// The mapped input of call `seq` was put beside the line.
    pub(super) fn put(&mut self, seq: u64) {
        self.put = seq;
    }

    /// Whether the next call, which could begin behind call `last`, the last one, may not: its line would say that what lies beside
    /// that of `last` was taken. It shows that calls are not apart.
    #[inline]
    pub(super) fn bars(&mut self, last: u64) -> bool {
        let bars = self.put == last && last > 0;
        if bars {
            self.run = 0;
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_apart_after_some_that_were() {
        let mut apart = Apart::default();
        for seq in 1..=u64::from(CALLS) {
            assert!(!apart.holds(), "{seq}");
            apart.count(seq, || true);
            apart.count(seq, || false);
        }
        assert!(apart.holds());
        apart.count(u64::from(CALLS) + 1, || false);
        assert!(!apart.holds());
    }

    #[test]
    fn only_the_last_call_bars_and_then_they_are_not_apart() {
        let mut apart = Apart::default();
        assert!(!apart.bars(0));
        let last = u64::from(CALLS) + 8;
        (1..=last).for_each(|seq| apart.count(seq, || true));
        apart.put(last);
        assert!(!apart.bars(last + 1) && apart.holds());
        assert!(apart.bars(last) && !apart.holds());
    }
}
