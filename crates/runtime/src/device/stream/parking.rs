//! How threads sleep that wait for a stream.
//!
//! Who runs a stream finds out that others sleep by their count, and wakes them when it has finished something. It does not know
//! how long a thread waits before it sleeps.

use std::time::Duration;

use oxccl_sys::barrier;
use oxccl_sys::sync::{AtomicU64, Ordering};

use super::{Inner, Running, Waited, lock};

/// Longest park of a thread that cares for several bells.
const BATCH_PARK: Duration = Duration::from_millis(1);

/// A thread that is counted among others.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn among(by: &'a AtomicU64) -> Counted<'a> {
        by.fetch_add(1, Ordering::SeqCst);
        Counted(by)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The tasks of a batch have bells of their own; parking on one bounds how late the others are noticed.
fn limit_of(running: &Running, timeout: Duration) -> Duration {
    if running.tasks.len() > 1 { timeout.min(BATCH_PARK) } else { timeout }
}

impl Inner {
    /// Blocks for at most `timeout` until the tasks at the head may be able to go on. Others may run the stream meanwhile: a
    /// thread that waits for its core again must not keep them from it.
    pub(in crate::device) fn park(&self, timeout: Duration) {
        let Some(mut running) = self.running.try_lock() else { return self.await_runner(timeout) };
        let bell = match running.tasks.front().map(|t| t.bell()) {
            Some(Some(bell)) => bell,
            Some(None) => {
                let _attended = self.attend();
                self.park_locked(&mut running, timeout);
                return;
            }
            None => {
                // Nobody is kept from what comes.
                drop(running);
                return oxccl_sys::sync::yield_now();
            }
        };
        let timeout = limit_of(&running, timeout);
        let before = self.finished();
        drop(running);
        let _asleep = (Counted::among(&self.sleeping), Counted::among(&self.attended));
        // Who runs the stream after this look sees the counts, and rings when it has finished something. SYNC: stream-asleep: the
        // bell passes the barrier before the look.
        bell.park_unless(timeout, || {
            let Some(mut running) = self.running.try_lock() else { return true };
            // Another thread was here: what is at the head now has another bell, or none.
            if self.finished() != before || running.tasks.front().is_none_or(|t| t.bell().is_none()) {
                return true;
            }
            running.sleeper = true;
            let waited = self.advance_locked(&mut running);
            running.sleeper = false;
            waited != Waited::Blocked
        });
    }

    /// Whether a thread waits for this stream just now, awake or asleep, and works for no other: it moves what can go on, or is woken
    /// to, or else comes back soon, so that the stream needs no other one. Short waits are not known here.
    pub(in crate::device) fn is_waited_for(&self) -> bool {
        self.attended.load(Ordering::Relaxed) > 0
    }

    /// The calling thread does nothing but wait for this stream while it keeps what is returned.
    pub(super) fn attend(&self) -> impl Drop + '_ {
        Counted::among(&self.attended)
    }

    /// Whether threads sleep but for the one that runs the stream.
    pub(super) fn others_sleep(&self, running: &Running) -> bool {
        self.sleeping.load(Ordering::Relaxed) > u64::from(running.sleeper)
    }

    /// As [`park`](Self::park) by who runs the stream, which nobody else does meanwhile. Whether something moved before it slept.
    pub(super) fn park_locked(&self, running: &mut Running, timeout: Duration) -> bool {
        let timeout = limit_of(running, timeout);
        let mut waited = Waited::Blocked;
        match running.tasks.front().map(|t| t.bell().ok_or(t)) {
            Some(Ok(bell)) => {
                bell.park_unless(timeout, || {
                    waited = self.advance_locked(running);
                    waited != Waited::Blocked
                });
            }
            Some(Err(task)) => task.park(timeout),
            None => oxccl_sys::sync::yield_now(),
        }
        waited == Waited::Progress
    }

    /// Another thread runs the stream: waits until it has finished something.
    pub(in crate::device) fn await_runner(&self, timeout: Duration) {
        let before = self.finished();
        let guard = lock(&self.sleepers);
        let _asleep = Counted::among(&self.sleeping);
        // SYNC: stream-asleep
        barrier::heavy();
        if self.finished() == before {
            drop(self.runner_done.wait_timeout(guard, timeout.min(BATCH_PARK)));
        }
    }
}
