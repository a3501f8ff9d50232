//! How a thread waits: it spins, then yields, then parks; and how a call that must not wait gives way.
//!
//! A cache line from another core takes a tenth of a microsecond, a yield about one, a wake-up about ten. Ranks that
//! outnumber the cores yield from the start, since spinning would only keep the awaited rank from its core. Where others want
//! the cores, see [`taken`](crate::exec::taken), nobody yields.

use std::sync::OnceLock;
use std::time::Duration;

use crate::exec::taken::TAKEN;

/// What the caller has to do before it polls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Poll at once.
    Again,
    /// Park for at most this long, then poll.
    Park(Duration),
}

/// Turns that only pause.
const SPINS: u32 = 400;
/// Turns between looks at the clock.
const CLOCK_EVERY: u32 = 16;
/// Longest park: bounds the cost of a wake-up that was missed.
const LONGEST_PARK: Duration = Duration::from_millis(10);

/// How long a thread keeps polling before it parks, ns; read once per process.
fn patience_ns() -> u64 {
    static PATIENCE: OnceLock<u64> = OnceLock::new();
    *PATIENCE.get_or_init(|| crate::config::spin().as_nanos() as u64)
}

/// Whether nobody yields: the environment says so, or others want the cores.
fn parks_at_once() -> bool {
    patience_ns() == 0 || TAKEN.is()
}

/// The state of one wait.
pub(crate) struct Waiter {
    turns: u32,
    crowded: bool,
    started: u64,
    /// The time of polling is over: every turn parks.
    parking: bool,
    park: Duration,
}

impl Waiter {
    /// A fresh wait; `crowded` when the waiting ranks outnumber the cores.
    pub(crate) fn new(crowded: bool) -> Waiter {
        Waiter { turns: 0, crowded, started: 0, parking: false, park: Duration::from_millis(1) }
    }

    /// Turns so far.
    pub(crate) fn turns(&self) -> u32 {
        self.turns
    }

    /// Spends one turn.
    pub(crate) fn turn(&mut self) -> Turn {
        self.turns = self.turns.saturating_add(1);
        if self.parking {
            return self.next_park();
        }
        // Also while it spins: a look may take microseconds.
        if self.turns.is_multiple_of(CLOCK_EVERY) {
            let now = oxccl_sys::clock::now_ns();
            if self.started == 0 {
                self.started = now;
            } else if now - self.started > patience_ns() {
                self.parking = true;
                return self.next_park();
            }
        }
        if !self.crowded && self.turns < SPINS {
            oxccl_sys::sync::spin_loop();
        } else if parks_at_once() {
            self.parking = true;
            return self.next_park();
        } else {
            TAKEN.yield_now();
        }
        Turn::Again
    }

    fn next_park(&mut self) -> Turn {
        let park = self.park;
        self.park = (park * 2).min(LONGEST_PARK);
        Turn::Park(park)
    }
}

/// How long a call gives its core to others before it leaves what it waits for to its stream.
const GIVE_WAY_NS: u64 = 300_000;
/// What one turn of the others counts at most, ns: in a longer one they work, and what is left to the stream goes one by one.
const TURN_NS: u64 = 8000;
/// The longest that it may be so: two slices of what else runs on the core.
const LONGEST_NS: u64 = 8_000_000;
/// How long such a call parks at once where it does not yield.
const SHORT_PARK: Duration = Duration::from_millis(1);
/// Calls that do not give way after one that did in vain: at most two to the power of this.
const LONGEST_SKIP: u32 = 10;
/// Both where it is done for few calls.
const BRIEF_NS: u64 = 1_000_000;
const BRIEF_SKIP: u32 = 2;

/// How calls that must not wait give way to peers that share their core: without it, a rank that is ahead would fill its
/// queue for as long as the scheduler lets it run, while those it waits for stand behind it.
///
/// It is bounded, and done less and less often where it does not help: the peer may be late, or need this very thread.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    skip: u32,
    /// How often it was in vain since it last helped.
    failures: u32,
}

impl Courtesy {
    /// Yields, or lets `moved` park for as long as it is told, until it says that something moved, for a short time. Whether
    /// it did.
    pub(crate) fn give_way(&mut self, moved: impl FnMut(Option<Duration>) -> bool) -> bool {
        self.give(LONGEST_NS, LONGEST_SKIP, moved)
    }

    /// The same of calls of which few come here: for a millisecond at most, but for a turn or a park that began before that was over,
    /// and after one that did in vain again after four calls at the latest.
    pub(crate) fn give_way_briefly(&mut self, moved: impl FnMut(Option<Duration>) -> bool) -> bool {
        self.give(BRIEF_NS, BRIEF_SKIP, moved)
    }

    fn give(&mut self, longest_ns: u64, longest_skip: u32, mut moved: impl FnMut(Option<Duration>) -> bool) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let started = oxccl_sys::clock::now_ns();
        let (mut before, mut idle) = (started, 0);
        loop {
            let park = (idle > GIVE_WAY_NS || parks_at_once()).then_some(SHORT_PARK);
            if park.is_none() {
                TAKEN.yield_now();
            }
            if moved(park) {
                self.failures = 0;
                return true;
            }
            let now = oxccl_sys::clock::now_ns();
            // Who parks takes nothing from the others, and is woken by each of them.
            idle += if park.is_some() { 0 } else { (now - before).min(TURN_NS) };
            before = now;
            if now - started > longest_ns || idle > GIVE_WAY_NS && !TAKEN.was(now) {
                self.failures = (self.failures + 1).min(longest_skip);
                self.skip = 1 << self.failures;
                return false;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Which of so many calls gave way, all of them in vain.
    fn given(calls: usize, mut give: impl FnMut(&mut dyn FnMut(Option<Duration>) -> bool) -> bool) -> Vec<usize> {
        let gave = |_: &usize| {
            let mut looked = false;
            let moved = give(&mut |_| {
                looked = true;
                false
            });
            assert!(!moved);
            looked
        };
        (0..calls).filter(gave).collect()
    }

    #[test]
    fn who_gives_way_in_vain_does_so_ever_less_often() {
        let mut courtesy = Courtesy::default();
        assert_eq!(given(32, |moved| courtesy.give_way(moved)), [0, 3, 8, 17]);
    }

    #[test]
    fn few_calls_give_way_again_soon_and_at_once_when_it_helped() {
        let mut courtesy = Courtesy::default();
        assert_eq!(given(20, |moved| courtesy.give_way_briefly(moved)), [0, 3, 8, 13, 18]);
        let mut helps = Courtesy::default();
        assert!((0..20).all(|_| helps.give_way_briefly(|_| true)));
    }
}
