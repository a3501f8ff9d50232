//! Events: points of a stream that can be waited for and timed.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::capture::Mark;
use super::helper;
use super::interprocess::Interprocess;
use super::memory::Shared;
use crate::exec::wait::{Turn, Waiter};

/// Time between looks whether the process that records a shared event still lives.
const LOOK_NS: u64 = 20_000_000;

/// What an event was made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether it can be timed.
    pub timing: bool,
    /// Whether other processes can open it.
    pub interprocess: bool,
}

impl Default for EventOptions {
    fn default() -> EventOptions {
        EventOptions { timing: true, interprocess: false }
    }
}

pub(super) struct Inner {
    timing: bool,
    shared: Option<Interprocess>,
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
        Event::of(true, None)
    }

    /// [`new`](Self::new) with options. `SystemError` when the kernel refuses shared memory.
    pub fn with(options: EventOptions) -> Result<Event> {
        let shared = options.interprocess.then(Interprocess::new).transpose()?;
        Ok(Event::of(options.timing, shared))
    }

    fn of(timing: bool, shared: Option<Interprocess>) -> Event {
        Event(Arc::new(Inner {
            timing,
            shared,
            recorded: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            completed_ns: AtomicU64::new(0),
            captured: Mutex::new(None),
            sleepers: Mutex::new(()),
            bell: Condvar::new(),
        }))
    }

    /// What another process of the same user needs to open it. `InvalidArgument` unless it was made for that.
    pub fn share(&self) -> Result<Shared> {
        match &self.0.shared {
            Some(shared) => shared.share(),
            None => Err(Error::argument("the event was not made for several processes (flag Interprocess)")),
        }
    }

    /// The event that another process [`share`](Self::share)d: its records are waited for here, and the other way round.
    ///
    /// # Errors
    /// `SystemError` when that process is gone, belongs to another user, or has destroyed the event.
    pub fn open(shared: &Shared) -> Result<Event> {
        Ok(Event::of(false, Some(Interprocess::open(shared)?)))
    }

    pub(super) fn next_record(&self) -> u64 {
        match &self.0.shared {
            None => self.0.recorded.fetch_add(1, Ordering::AcqRel) + 1,
            Some(shared) => shared.next_record(),
        }
    }

    pub(super) fn last_record(&self) -> u64 {
        match &self.0.shared {
            None => self.0.recorded.load(Ordering::Acquire),
            Some(shared) => shared.last_record(),
        }
    }

    pub(super) fn complete(&self, ticket: u64) {
        if let Some(shared) = &self.0.shared {
            return shared.complete(ticket);
        }
        self.0.completed_ns.store(oxccl_sys::clock::now_ns(), Ordering::Relaxed);
        // SYNC: event
        self.0.completed.fetch_max(ticket, Ordering::Release);
        drop(self.0.sleepers.lock());
        self.0.bell.notify_all();
    }

    pub(super) fn is_complete(&self, ticket: u64) -> bool {
        match &self.0.shared {
            // SYNC: event
            None => self.0.completed.load(Ordering::Acquire) >= ticket,
            Some(shared) => shared.is_complete(ticket),
        }
    }

    /// Why the record will never be complete. `look_at`: when to look again, in ns of the clock; 0 at first.
    pub(super) fn lost(&self, ticket: u64, look_at: &mut u64) -> Option<Error> {
        let shared = self.0.shared.as_ref()?;
        let now = oxccl_sys::clock::now_ns();
        if now < *look_at {
            return None;
        }
        // The first look comes after a while: what is soon complete costs no system call.
        let first = std::mem::replace(look_at, now + LOOK_NS) == 0;
        if first { None } else { shared.lost(ticket) }
    }

    pub(super) fn park(&self, ticket: u64, timeout: Duration) {
        if let Some(shared) = &self.0.shared {
            return shared.park(ticket, timeout);
        }
        let guard = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_complete(ticket) {
            drop(self.0.bell.wait_timeout(guard, timeout));
        }
    }

    /// Whether the last record is complete.
    pub fn query(&self) -> bool {
        self.is_complete(self.last_record())
    }

    /// Whether the last record is complete; an error when it never will be, because its process has ended.
    pub fn poll(&self) -> Result<bool> {
        let last = self.last_record();
        match (self.is_complete(last), &self.0.shared) {
            (false, Some(shared)) => shared.lost(last).map_or(Ok(false), Err),
            (complete, _) => Ok(complete),
        }
    }

    /// Waits for the last record, working on the process' streams meanwhile. `RemoteError` when the process that made it
    /// has ended.
    pub fn synchronize(&self) -> Result<()> {
        let ticket = self.last_record();
        let mut waiter = Waiter::new(false);
        let mut look_at = 0;
        while !self.is_complete(ticket) {
            if let Some(error) = self.lost(ticket, &mut look_at) {
                return Err(error);
            }
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
            if !e.0.timing {
                return Err(Error::usage(format!("the {name} event was made without timing (flag DisableTiming)")));
            }
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
