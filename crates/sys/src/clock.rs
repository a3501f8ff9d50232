//! Monotonic time and deadlines. No wall-clock time.

use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`: comparable between all processes of one machine since its boot.
#[inline]
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A counter of this processor that goes on evenly, two to four times in a nanosecond on x86-64 and once elsewhere: for short spans where
/// a look at the clock would take too long. Those of other processors may count from elsewhere.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of the kind has it, and the kernel lets programs read it unless one asked to be killed for it (prctl).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    now_ns()
}

/// A point in time at which a wait gives up. `NEVER` never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// The deadline that never passes.
    pub const NEVER: Deadline = Deadline(u64::MAX);

    /// The point `timeout` from now.
    pub fn after(timeout: Duration) -> Deadline {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline(now_ns().saturating_add(ns))
    }

    /// The deadline at `ns` on the clock of [`now_ns`].
    pub const fn at_ns(ns: u64) -> Deadline {
        Deadline(ns)
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.0 != u64::MAX && now_ns() >= self.0
    }

    /// Time left, zero once passed. `Duration::MAX` for [`Deadline::NEVER`].
    pub fn left(self) -> Duration {
        match self.0 {
            u64::MAX => Duration::MAX,
            at => Duration::from_nanos(at.saturating_sub(now_ns())),
        }
    }

    /// The earlier of time left and `most`: the length of one slice of a wait that must also look at other things.
    pub fn slice(self, most: Duration) -> Duration {
        self.left().min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_deadlines_pass() {
        let a = now_ns();
        let d = Deadline::after(Duration::from_millis(5));
        assert!(!d.passed() && d.left() <= Duration::from_millis(5));
        while !d.passed() {
            std::thread::yield_now();
        }
        assert!(now_ns() - a >= 5_000_000);
        assert_eq!(d.left(), Duration::ZERO);
        assert!(!Deadline::NEVER.passed());
        assert_eq!(Deadline::NEVER.slice(Duration::from_secs(1)), Duration::from_secs(1));
        assert!(Deadline::after(Duration::MAX) > d);
    }
}
