//! Management calls as jobs: run at once, at the end of the group, or (nonblocking) in the background.
//!
//! A nonblocking communicator is in progress while a job of it runs; the error of such a job stays with it. What the
//! jobs do is not known here.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, AtomicU32, Ordering};
use oxccl_types::{Error, Result};

use super::Communicator;
use crate::log;

/// One management call of one communicator.
pub(crate) struct Job {
    /// Whose state says that the job runs.
    pub comm: Arc<Communicator>,
    /// Ends the job early when set.
    pub halt: Arc<AtomicBool>,
    pub run: Box<dyn FnOnce() -> Result<()> + Send>,
}

/// The jobs of a communicator that run in the background.
#[derive(Default)]
pub(super) struct Jobs {
    running: AtomicU32,
    /// Whether there is an error: what calls on the data path look at.
    failed: AtomicBool,
    error: Mutex<Option<Error>>,
    lock: Mutex<()>,
    ended: Condvar,
}

impl Jobs {
    /// Whether a job runs.
    #[inline(always)]
    pub(super) fn running(&self) -> bool {
        // SYNC: job-end
        self.running.load(Ordering::Acquire) != 0
    }

    /// Whether a job failed.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        // SYNC: job-failed
        self.failed.load(Ordering::Acquire)
    }

    /// The error of the first job that failed.
    pub(super) fn error(&self) -> Option<Error> {
        if self.has_failed() { self.held_error().clone() } else { None }
    }

    fn held_error(&self) -> MutexGuard<'_, Option<Error>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        self.held_error().get_or_insert(error);
        // SYNC: job-failed
        self.failed.store(true, Ordering::Release);
    }

    /// Forgets that jobs failed.
    pub(super) fn forgive(&self) {
        let mut error = self.held_error();
        // SYNC: job-failed
        self.failed.store(false, Ordering::Release);
        *error = None;
    }

    /// Waits until no job runs, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether it ended or the time did is all the same to the callers.
        drop(self.ended.wait_timeout_while(held, limit, |()| self.running()));
    }

    fn end(&self) {
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SYNC: job-end
        self.running.fetch_sub(1, Ordering::Release);
        drop(held);
        self.ended.notify_all();
    }
}

/// Counts a background job, also when it panics.
struct Running(Arc<Communicator>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.jobs.end();
    }
}

impl Job {
    /// Whether the caller waits for it.
    pub(crate) fn is_blocking(&self) -> bool {
        self.comm.is_blocking()
    }

    /// Runs it on this thread.
    ///
    /// # Errors
    /// Its own; `InternalError` when it panics.
    pub(crate) fn run(self) -> Result<()> {
        let Job { comm, run, .. } = self;
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        ended.unwrap_or_else(|_| {
            let error = Error::internal(format!("rank {}: a management call of a communicator panicked", comm.rank));
            comm.stillborn(&error);
            Err(error)
        })
    }

    /// Ends it unrun, because of `error`.
    pub(crate) fn discard(self, error: &Error) {
        self.comm.stillborn(error);
    }

    /// Runs `jobs`, which are of one communicator, one after another on a thread of their own; the communicator is in progress
    /// when this returns, or its jobs have ended. Each runs, whatever became of those before it: peers may count on it.
    ///
    /// # Errors
    /// `SystemError` when there can be no thread; the communicator has it then if it waits for its initialisation.
    pub(crate) fn start(jobs: Vec<Job>) -> Result<()> {
        let Some(comm) = jobs.first().map(|job| job.comm.clone()) else { return Ok(()) };
        comm.jobs.running.fetch_add(1, Ordering::AcqRel);
        let running = Running(comm.clone());
        let body = move || {
            // The device of the communicator, for logs; it exists.
            let _ = crate::device::set_current(running.0.device);
            for job in jobs {
                if let Err(e) = job.run() {
                    if log::last_error() != e.text {
                        log::warn(&e.text);
                    }
                    running.0.jobs.fail(e);
                }
            }
            drop(running);
        };
        oxccl_sys::process::with_signals_blocked(|| std::thread::Builder::new().name("oxccl-job".into()).spawn(body))
            .map(drop)
            .map_err(|e| {
                let error = Error::system(format!(
                    "rank {}: cannot start a thread for a nonblocking call: {e}; there may be too many (ulimit -u)",
                    comm.rank
                ));
                comm.stillborn(&error);
                error
            })
    }
}
