//! Whether the calls of this rank follow one another, or it waits for its stream after each, where ranks share cores; of two ranks with
//! a core each it is where [`awaited`](super::awaited) begins. What is lent
//! to peers makes it wait for them: of calls that follow one another one wait ends many, and what is not copied is gained. A rank that
//! waits for each call has more of a slot, with which the call is over here at once.
//!
//! It concerns this rank alone, and is counted where a program waits or asks: see [`IdleStream::waits`](crate::device::IdleStream::waits).

/// So many calls in a row, behind the last one that was waited for, before what they give is lent: the wait that ends them takes some
/// switches of the core, and each call gains less than one.
const FROM: u32 = 16;
/// So many times in a row the stream was waited for after a call or two, before the calls are taken to be alone.
const ALONE: u32 = 16;

/// The last calls of a rank by which it gives what could be lent or go by a slot.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The stream, and how often that was waited for.
    stream: (usize, u64),
    calls: u32,
    /// The last one. It may be asked about again before it begins.
    last: u64,
    /// How often in a row the stream was waited for after a call or two.
    alone: u32,
}

impl Run {
    /// Something came between the calls that they may have to wait for: they begin anew.
    #[inline]
    pub(super) fn restart(&mut self) {
        self.calls = 0;
    }

    /// Counts the next call, of which this asks once: whether there were many before it.
    #[inline]
    pub(super) fn next_is_long(&mut self, stream: (usize, u64)) -> bool {
        self.is_long(stream, self.last.wrapping_add(1), true)
    }

    /// Counts call `seq`: whether there were many before it. `lends`: peers can map what it gives.
    #[inline]
    pub(super) fn is_long(&mut self, stream: (usize, u64), seq: u64, lends: bool) -> bool {
        if self.stream != stream || !lends {
            let alone = match self.stream == stream {
                true => self.alone,
                false if self.stream.0 == stream.0 && self.calls <= 1 => self.alone.saturating_add(1),
                false => 0,
            };
            *self = Run { stream, calls: 0, last: seq, alone };
        }
        if self.last != seq {
            (self.calls, self.last) = (self.calls.saturating_add(1), seq);
        }
        self.calls >= FROM
    }

    /// Whether the last call that was counted is the first behind a wait, and the stream was waited for after at most two calls many times in
    /// a row.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.alone >= ALONE && self.calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `calls` calls from `first` on, each of which is asked about twice: how many are lent.
    fn lent(run: &mut Run, stream: (usize, u64), first: u64, calls: u32, lends: bool) -> u32 {
        let one = |seq: u64, run: &mut Run| {
            let is = run.is_long(stream, seq, lends);
            assert_eq!(run.is_long(stream, seq, lends), is);
            u32::from(is)
        };
        (first..first + u64::from(calls)).map(|seq| one(seq, run)).sum()
    }

    #[test]
    fn calls_that_are_waited_for_lend_nothing() {
        let mut run = Run::default();
        assert_eq!(lent(&mut run, (1, 0), 1, FROM, true), 0);
        assert_eq!(lent(&mut run, (1, 0), 100, 5, true), 5);
        for waits in 1..100 {
            assert_eq!(lent(&mut run, (1, waits), 1000 * waits, FROM, true), 0, "{waits}");
        }
        assert_eq!(lent(&mut run, (1, 99), 200_000, 3, true), 3);
        assert_eq!(lent(&mut run, (2, 99), 300_000, FROM, true), 0, "another stream");
    }

    #[test]
    fn calls_are_alone_once_many_were_waited_for() {
        let mut run = Run::default();
        let mut seq = 0;
        let mut waited = |waits: u64, calls: u32| {
            lent(&mut run, (1, waits), seq, calls, true);
            seq += u64::from(calls);
            run.is_alone()
        };
        assert!((0..u64::from(ALONE)).all(|waits| !waited(waits, 1)));
        assert!((100..110).all(|waits| waited(waits, 1)));
        // Two at a time: the second one is not the first.
        assert!(!waited(110, 2) && waited(111, 1));
        assert!(!waited(112, 3) && !waited(113, 1), "three that follow one another");
    }

    #[test]
    fn what_cannot_be_lent_begins_anew() {
        let mut run = Run::default();
        lent(&mut run, (1, 0), 1, 100, true);
        assert_eq!(lent(&mut run, (1, 0), 200, 1, false), 0);
        assert_eq!(lent(&mut run, (1, 0), 300, FROM, true), 1);
    }
}
