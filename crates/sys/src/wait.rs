//! How to wait for another thread or process: spin, then yield, then let the caller park.

use crate::sync::{spin_loop, yield_now};

/// How long the cheap phases of a wait last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Looks with a pause instruction between them (tens of nanoseconds each).
    pub spins: u32,
    /// Looks with a `sched_yield` between them (about a microsecond each when the core is free).
    pub yields: u32,
}

impl BackoffPolicy {
    /// The policy for `waiters` that share `cores`: with a core each, spinning is cheapest; with more waiters than
    /// cores every spin keeps the one who is waited for from running, so yield at once.
    pub fn for_load(waiters: usize, cores: usize) -> BackoffPolicy {
        if waiters <= cores {
            BackoffPolicy { spins: 2_000, yields: 200 }
        } else if waiters <= 2 * cores {
            BackoffPolicy { spins: 20, yields: 200 }
        } else {
            BackoffPolicy { spins: 1, yields: 50 }
        }
    }
}

/// What to do after a look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Again,
    /// The cheap phases are over: check abort and deadline and park.
    Park,
}

/// The state of one wait.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    looks: u32,
}

impl Backoff {
    /// A wait under `policy`.
    pub fn new(policy: BackoffPolicy) -> Backoff {
        Backoff { policy, looks: 0 }
    }

    /// Begins again, after progress.
    #[inline]
    pub fn reset(&mut self) {
        self.looks = 0;
    }

    /// After a look that found nothing: pauses a little, or says that it is time to park.
    #[inline]
    pub fn pause(&mut self) -> Step {
        let at = self.looks;
        if at < self.policy.spins {
            spin_loop();
        } else if at - self.policy.spins < self.policy.yields {
            yield_now();
        } else {
            return Step::Park;
        }
        self.looks = at + 1;
        Step::Again
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn phases_end_in_park() {
        let mut b = Backoff::new(BackoffPolicy { spins: 3, yields: 2 });
        for _ in 0..5 {
            assert_eq!(b.pause(), Step::Again);
        }
        assert_eq!(b.pause(), Step::Park);
        assert_eq!(b.pause(), Step::Park);
        b.reset();
        assert_eq!(b.pause(), Step::Again);
    }

    #[test]
    fn crowded_machines_hardly_spin() {
        assert!(BackoffPolicy::for_load(2, 2).spins > 100);
        assert!(BackoffPolicy::for_load(64, 2).spins <= 1);
    }
}
