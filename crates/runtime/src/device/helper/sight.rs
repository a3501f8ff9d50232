//! What the helper thread makes of two looks at the streams: which of the work that nobody waits for moves, and which does not.
//! It works on nothing itself.

/// Whether there is work on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    No,
    /// A thread waits for it.
    Attended,
    /// Nobody waits for it.
    Left,
}

/// A stream at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// Which one.
    pub(super) stream: usize,
    /// How many tasks it had finished.
    pub(super) finished: u64,
    pub(super) pending: Pending,
}

/// What a look tells together with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// A stream has stood still from look to look with work that nobody waits for.
    pub(super) orphaned: bool,
    /// There is such work of which it is not known yet whether somebody moves it. What moved within a period is known; in a longer
    /// time, calls that were waited for may have come and gone before one that is not.
    pub(super) new: bool,
    /// Threads wait, and have done so from look to look: for a late rank, or for a long call.
    pub(super) late: bool,
}

/// The streams at the last look.
#[derive(Debug, Default)]
pub(super) struct Sights(Vec<Sight>);

impl Sights {
    /// `all` takes the place of the look before; `short`: which was followed by no more than a period of rest.
    pub(super) fn update(&mut self, all: Vec<Sight>, short: bool) -> Told {
        let moved = |now: &Sight| self.0.iter().any(|s| s.stream == now.stream && s.finished != now.finished);
        let with = |pending| all.iter().filter(move |s| s.pending == pending);
        let told = Told {
            orphaned: with(Pending::Left).any(|s| self.0.contains(s)),
            new: with(Pending::Left).any(|s| !(self.0.contains(s) || short && moved(s))),
            late: with(Pending::Attended).any(|s| self.0.contains(s)),
        };
        self.0 = all;
        told
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn at(stream: usize, finished: u64, left: bool) -> Sight {
        Sight { stream, finished, pending: if left { Pending::Left } else { Pending::No } }
    }

    const fn attended(stream: usize, finished: u64) -> Sight {
        Sight { stream, finished, pending: Pending::Attended }
    }

    /// What looks come to, one after the other: orphaned, new.
    fn found<const N: usize>(looks: [(&[Sight], bool); N]) -> [(bool, bool); N] {
        let mut sights = Sights::default();
        looks.map(|(all, short)| {
            let told = sights.update(all.to_vec(), short);
            (told.orphaned, told.new)
        })
    }

    #[test]
    fn what_stands_still_is_taken_at_the_second_look() {
        let stands: &[Sight] = &[at(1, 5, true)];
        assert_eq!(found([(stands, false), (stands, true)]), [(false, true), (true, false)]);
        // Also where the second one comes late.
        assert_eq!(found([(stands, false), (stands, false)])[1], (true, false));
    }

    #[test]
    fn what_moves_within_a_period_is_tended() {
        let looks = found([(&[at(1, 5, true)], false), (&[at(1, 6, true)], true)]);
        assert_eq!(looks, [(false, true), (false, false)]);
    }

    #[test]
    fn what_comes_after_calls_that_were_waited_for_is_new() {
        // In a long time one call was finished, and another one enqueued that may be left.
        let looks = found([(&[at(1, 5, false)], false), (&[at(1, 6, true)], false)]);
        assert_eq!(looks[1], (false, true));
        // Enqueued within a period: it has had no time to stand still.
        let looks = found([(&[at(1, 5, true), at(2, 7, false)], false), (&[at(1, 6, true), at(2, 7, true)], true)]);
        assert_eq!(looks[1], (false, true));
    }

    #[test]
    fn what_is_waited_for_is_neither() {
        let looks = found([(&[at(1, 5, true)], false), (&[attended(1, 5)], true), (&[attended(1, 5)], true)]);
        assert_eq!(looks[1..], [(false, false); 2]);
    }

    #[test]
    fn threads_that_wait_from_look_to_look_wait_for_a_late_rank() {
        let mut sights = Sights::default();
        let looks = [attended(1, 5), attended(1, 5), attended(1, 6), at(1, 6, false), at(1, 6, false)];
        let late = looks.map(|sight| sights.update(vec![sight], false).late);
        assert_eq!(late, [false, true, false, false, false]);
    }

    #[test]
    fn one_that_stands_still_is_found_among_others_that_move() {
        let first: &[Sight] = &[at(1, 5, true), at(2, 9, true)];
        let second: &[Sight] = &[at(1, 6, true), at(2, 9, true)];
        assert_eq!(found([(first, false), (second, true)])[1], (true, false));
    }
}
