//! When the helper thread looks again.
//!
//! Each of its wakes takes some 10 to 60 us from a rank, and where programs wait for what they enqueue it has nothing to do. So
//! it looks less and less often while that is so, and at once more often where work was left to it. What it looks at is not
//! known here.

use std::time::Duration;

/// What the helper found at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing was enqueued since the last look, and nothing is left.
    Idle,
    /// Threads of the program move what is there.
    Tended,
    /// They wait and nothing ends: a rank is late, or a call long.
    Late,
    /// Work that nobody waits for, of which it is not known yet whether it moves.
    New,
    /// Work that did not move, and that the helper took over.
    Orphans,
}

/// What the helper does before its next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    For(Duration),
    /// Until something is enqueued.
    UntilCalled,
}

/// The longest rest of a helper that has nothing to do, if its period is not longer.
const LONGEST: Duration = Duration::from_millis(8);
/// The same while a rank is late: cores that are woken now and then wake the sooner when it comes (Zen 3, virtual: by a tenth to a
/// seventh), for 1 % of one.
const LATE: Duration = Duration::from_millis(2);
/// How long nothing was enqueued before the helper waits to be called.
const IDLE: Duration = Duration::from_millis(16);
/// How long the helper looks at every period after it took work over; what follows sooner belongs to the same time.
const WARY: Duration = Duration::from_millis(20);
/// The same at most, if one time follows another within as long: it doubles with each.
const WARIEST: Duration = Duration::from_secs(1);

/// How often the helper looks; times are those of one clock that never goes back.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long work does not move before it is taken over.
    period: Duration,
    rest: Duration,
    idle_since: Option<Duration>,
    /// When it last took work over.
    last: Option<Duration>,
    /// For how long it looks at every period from then on.
    wary: Duration,
}

impl Pace {
    pub(super) fn new(period: Duration) -> Pace {
        Pace { period, rest: period, idle_since: None, last: None, wary: Duration::ZERO }
    }

    /// Work is taken over when it has not moved for `period` from now on.
    pub(super) fn set_period(&mut self, period: Duration) {
        self.period = period;
        self.rest = self.rest.max(period);
    }

    /// The helper, which waited to be called, was.
    pub(super) fn called(&mut self) {
        self.rest = self.period;
        self.idle_since = None;
    }

    /// What comes after a look that `began` then, lasted until `now` and found `found`.
    pub(super) fn next(&mut self, found: Found, began: Duration, now: Duration) -> Rest {
        if found != Found::Idle {
            self.idle_since = None;
        }
        match found {
            // A second look tells.
            Found::New => return Rest::For(self.period),
            Found::Orphans => {
                self.wary = match self.last.map(|last| began.saturating_sub(last)) {
                    // Two looks, each a period after the other, which may be longer where the cores are wanted.
                    Some(ago) if ago < WARY.max(self.period * 16) => self.wary,
                    Some(ago) if ago < WARIEST => (self.wary * 2).min(WARIEST),
                    _ => WARY,
                };
                self.last = Some(now);
                self.rest = self.period;
            }
            Found::Tended => self.grow(now),
            Found::Late => {
                self.grow(now);
                return Rest::For(self.rest.min(LATE.max(self.period)));
            }
            Found::Idle => {
                let since = *self.idle_since.get_or_insert(now);
                if now.saturating_sub(since) >= IDLE {
                    return Rest::UntilCalled;
                }
                self.grow(now);
            }
        }
        Rest::For(self.rest)
    }

    fn grow(&mut self, now: Duration) {
        if self.last.is_none_or(|last| now.saturating_sub(last) >= self.wary) {
            self.rest = (self.rest * 2).min(LONGEST.max(self.period));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_micros(500);

    /// A look that takes no time.
    fn at(pace: &mut Pace, found: Found, now: Duration) -> Rest {
        pace.next(found, now, now)
    }

    /// Looks, each after the rest that the one before it asked for, until `until`; how many of them there were.
    fn looks(pace: &mut Pace, now: &mut Duration, until: Duration, mut find: impl FnMut(Duration) -> Found) -> usize {
        let mut looks = 0;
        while *now < until {
            looks += 1;
            match at(pace, find(*now), *now) {
                Rest::For(rest) => *now += rest,
                Rest::UntilCalled => break,
            }
        }
        looks
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_is_not_needed_looks_seldom() {
        let (mut pace, mut now) = (Pace::new(PERIOD), Duration::ZERO);
        let first = looks(&mut pace, &mut now, ms(100), |_| Found::Tended);
        assert!(first <= 20, "{first} looks");
        // A call is under way at every look: each is followed by one that tells that somebody moves it.
        let mut new = false;
        let began = now;
        let pairs = looks(&mut pace, &mut now, began + ms(170), |_| {
            new = !new;
            if new { Found::New } else { Found::Tended }
        });
        assert!((38..=42).contains(&pairs), "{pairs} looks");
    }

    #[test]
    fn work_left_to_the_helper_is_found_within_the_longest_rest_and_later_within_two_periods() {
        let (mut pace, mut now) = (Pace::new(PERIOD), Duration::ZERO);
        looks(&mut pace, &mut now, ms(500), |_| Found::Tended);
        // From now on a call is left every 50 ms, for which nobody waits.
        let mut worst = Vec::new();
        for call in 0..12 {
            let enqueued = ms(500) + ms(50) * call;
            looks(&mut pace, &mut now, enqueued, |_| Found::Tended);
            assert_eq!(at(&mut pace, Found::New, now), Rest::For(PERIOD));
            now += PERIOD;
            worst.push(now - enqueued);
            assert_eq!(at(&mut pace, Found::Orphans, now), Rest::For(PERIOD));
            now += PERIOD;
        }
        assert!(worst.iter().all(|w| *w <= Duration::from_micros(8500)), "{worst:?}");
        assert!(worst[6..].iter().all(|w| *w <= 2 * PERIOD), "{worst:?}");
        // It forgets that again.
        let began = now;
        let wary = looks(&mut pace, &mut now, began + ms(1000), |_| Found::Tended);
        let after = looks(&mut pace, &mut now, began + ms(2000), |_| Found::Tended);
        assert!(wary > 500 && after < 140, "{wary}, {after}");
    }

    #[test]
    fn work_taken_over_piece_by_piece_counts_once() {
        let (mut pace, mut now) = (Pace::new(PERIOD), Duration::ZERO);
        looks(&mut pace, &mut now, ms(100), |_| Found::Tended);
        looks(&mut pace, &mut now, ms(110), |_| Found::Orphans);
        let began = now;
        let after = looks(&mut pace, &mut now, began + ms(520), |_| Found::Tended);
        assert!(after < 40 + 70, "{after} looks");
    }

    #[test]
    fn long_work_is_one_time_as_well() {
        // Half a second each, one after the other: no pause in between.
        let mut pace = Pace::new(PERIOD);
        for work in 0..5 {
            let _ = pace.next(Found::Orphans, ms(500) * work, ms(500) * (work + 1));
        }
        assert_eq!(pace.wary, WARY);
        // A long one after a short pause doubles it.
        let _ = pace.next(Found::Orphans, ms(2600), ms(4600));
        assert_eq!(pace.wary, 2 * WARY);
    }

    #[test]
    fn an_idle_helper_waits_to_be_called_and_is_awake_then() {
        let (mut pace, mut now) = (Pace::new(PERIOD), Duration::ZERO);
        looks(&mut pace, &mut now, ms(100), |_| Found::Tended);
        let began = now;
        looks(&mut pace, &mut now, ms(1000), |_| Found::Idle);
        assert!(now - began >= IDLE && now - began <= IDLE + LONGEST, "{:?}", now - began);
        assert_eq!(at(&mut pace, Found::Idle, now), Rest::UntilCalled);
        pace.called();
        assert_eq!(at(&mut pace, Found::New, now), Rest::For(PERIOD));
        assert_eq!(at(&mut pace, Found::Tended, now + PERIOD), Rest::For(2 * PERIOD));
    }

    #[test]
    fn cores_are_not_left_asleep_for_long_while_a_rank_is_late() {
        let (mut pace, mut now) = (Pace::new(PERIOD), Duration::ZERO);
        looks(&mut pace, &mut now, ms(100), |_| Found::Tended);
        let began = now;
        let late = looks(&mut pace, &mut now, began + ms(100), |_| Found::Late);
        assert_eq!(late, 50);
        assert_eq!(at(&mut pace, Found::Tended, now), Rest::For(LONGEST));
    }

    #[test]
    fn a_period_that_changes_holds_from_the_next_look_on() {
        let mut pace = Pace::new(PERIOD);
        pace.set_period(ms(2));
        assert_eq!(at(&mut pace, Found::New, ms(1)), Rest::For(ms(2)));
        assert_eq!(at(&mut pace, Found::Tended, ms(3)), Rest::For(ms(4)));
        pace.set_period(PERIOD);
        assert_eq!(at(&mut pace, Found::Tended, ms(7)), Rest::For(ms(8)));
        assert_eq!(at(&mut pace, Found::Orphans, ms(15)), Rest::For(PERIOD));
    }

    #[test]
    fn a_period_that_is_asked_for_is_kept_where_it_is_long() {
        let mut pace = Pace::new(ms(300));
        assert_eq!(at(&mut pace, Found::Tended, ms(300)), Rest::For(ms(300)));
        assert_eq!(at(&mut pace, Found::New, ms(600)), Rest::For(ms(300)));
    }
}
