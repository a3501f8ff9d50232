//! How a run ends: exit statuses, and the guard against runs that never end.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Exit status: all well.
pub const OK: u8 = 0;
/// Exit status: an element was wrong.
pub const WRONG: u8 = 1;
/// Exit status: the library reported an error, a process died, or the arguments make no sense.
pub const RUN: u8 = 2;

/// Ends the process when a row takes longer than allowed.
#[derive(Default)]
pub struct Guard {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    limit: Option<(Instant, String)>,
    over: bool,
}

impl Guard {
    /// Starts (or restarts) the clock for `what`. A time that no clock reaches is no limit.
    pub fn arm(&self, what: String, allowed: Duration) {
        self.set(|s| s.limit = Instant::now().checked_add(allowed).map(|end| (end, what)));
    }

    /// Stops the guard's thread.
    pub fn finish(&self) {
        self.set(|s| s.over = true);
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until a limit passes, and returns what was running; `None` after [`Guard::finish`].
    pub fn watch(&self) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.over {
                return None;
            }
            let left = match &state.limit {
                Some((at, what)) => match at.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => left,
                    _ => return Some(what.clone()),
                },
                None => Duration::from_secs(3600),
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_names_what_hangs() {
        let g = Guard::default();
        g.arm("all_reduce of 8 bytes".into(), Duration::from_millis(20));
        assert_eq!(g.watch().as_deref(), Some("all_reduce of 8 bytes"));
    }

    #[test]
    fn a_finished_guard_is_silent() {
        // The last is beyond all clocks.
        for seconds in [100, u64::MAX / 2, u64::MAX] {
            let g = Guard::default();
            g.arm("x".into(), Duration::from_secs(seconds));
            std::thread::scope(|s| {
                let w = s.spawn(|| g.watch());
                g.finish();
                assert_eq!(w.join().unwrap(), None);
            });
        }
    }
}
