//! Events: points of a stream that can be waited for and timed.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::capture::Mark;
use super::helper;
use crate::exec::wait::{Turn, Waiter};

pub(super) struct Inner {
    recorded: AtomicU64,
    completed: AtomicU64,
    completed_ns: AtomicU64,
    pub(super) captured: Mutex<Option<Mark>>,
    sleepers: Mutex<()>,
    bell: Condvar,
}

/// An event. Cloning gives another handle to the same event.
#[derive(Clone)]
pub struct Event(pub(super) Arc<Inner>);

static HANDLES: Mutex<Vec<Event>> = Mutex::new(Vec::new());

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl Event {
    /// An event that counts as complete until it is first recorded.
    pub fn new() -> Event {
        Event(Arc::new(Inner {
            recorded: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            completed_ns: AtomicU64::new(0),
            captured: Mutex::new(None),
            sleepers: Mutex::new(()),
            bell: Condvar::new(),
        }))
    }

    pub(super) fn next_record(&self) -> u64 {
        self.0.recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn last_record(&self) -> u64 {
        self.0.recorded.load(Ordering::Acquire)
    }

    pub(super) fn complete(&self, ticket: u64) {
        self.0.completed_ns.store(oxccl_sys::clock::now_ns(), Ordering::Relaxed);
        // SYNC: event
        self.0.completed.fetch_max(ticket, Ordering::Release);
        drop(self.0.sleepers.lock());
        self.0.bell.notify_all();
    }

    pub(super) fn is_complete(&self, ticket: u64) -> bool {
        // SYNC: event
        self.0.completed.load(Ordering::Acquire) >= ticket
    }

    pub(super) fn park(&self, ticket: u64, timeout: Duration) {
        let guard = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_complete(ticket) {
            drop(self.0.bell.wait_timeout(guard, timeout));
        }
    }

    /// Whether the last record is complete.
    pub fn query(&self) -> bool {
        self.is_complete(self.last_record())
    }

    /// Waits for the last record, working on the process' streams meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        let ticket = self.last_record();
        let mut waiter = Waiter::new(false);
        while !self.is_complete(ticket) {
            if helper::assist_any() {
                waiter = Waiter::new(false);
            } else if let Turn::Park(timeout) = waiter.turn() {
                self.park(ticket, timeout);
            }
        }
        Ok(())
    }

    /// Milliseconds between the last completions of two events. `InvalidUsage` while one is not complete.
    pub fn elapsed_ms(start: &Event, end: &Event) -> Result<f32> {
        for (name, e) in [("start", start), ("end", end)] {
            if e.last_record() == 0 || !e.query() {
                return Err(Error::usage(format!("the {name} event was not recorded or is not complete yet")));
            }
        }
        let ns = |e: &Event| e.0.completed_ns.load(Ordering::Relaxed) as i64;
        Ok((ns(end) - ns(start)) as f32 / 1e6)
    }

    /// Registers a handle for C. Never null.
    pub fn into_raw(self) -> *mut c_void {
        let raw = Arc::as_ptr(&self.0) as *mut c_void;
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        raw
    }

    /// The event behind a C handle; `InvalidArgument` for anything else.
    pub fn from_raw(handle: *mut c_void) -> Result<Event> {
        let handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        let found = handles.iter().find(|e| Arc::as_ptr(&e.0) as *mut c_void == handle).cloned();
        found.ok_or_else(|| Error::argument(format!("event {handle:p} is no event of this library, or was destroyed")))
    }

    /// Forgets the C handle. Work that waits for the event keeps it.
    pub fn destroy_raw(handle: *mut c_void) -> Result<()> {
        let event = Event::from_raw(handle)?;
        HANDLES.lock().unwrap_or_else(PoisonError::into_inner).retain(|e| !Arc::ptr_eq(&e.0, &event.0));
        Ok(())
    }
}
