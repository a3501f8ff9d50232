//! Events: points of a stream that can be waited for and timed.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::capture::Mark;
use super::helper;
use super::interprocess::{Interprocess, Recorder};
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

/// One record of an event. Who waits for it waits for this one, whatever is recorded, on whichever stream, later.
#[derive(Clone)]
pub(super) enum Record {
    /// When it was completed, in ns of the clock; 0 before.
    Own(Arc<AtomicU64>),
    /// The ticket of what several processes see, and who made it as far as that was known.
    Shared(u64, Recorder),
}

pub(super) struct Inner {
    timing: bool,
    shared: Option<Interprocess>,
    /// The last record of one that is not shared.
    last: Mutex<Option<Arc<AtomicU64>>>,
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
            last: Mutex::new(None),
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

    pub(super) fn next_record(&self) -> Record {
        match &self.0.shared {
            None => {
                let record: Arc<AtomicU64> = Arc::default();
                *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
                Record::Own(record)
            }
            Some(shared) => {
                let (ticket, recorder) = shared.next_record();
                Record::Shared(ticket, recorder)
            }
        }
    }

    /// The last record, `None` before the first one.
    pub(super) fn last_record(&self) -> Option<Record> {
        match &self.0.shared {
            None => self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone().map(Record::Own),
            Some(shared) => {
                let last = Some(shared.last_record()).filter(|last| *last > 0);
                last.map(|last| Record::Shared(last, shared.recorder_of(last)))
            }
        }
    }

    pub(super) fn complete(&self, record: &Record) {
        match (&self.0.shared, record) {
            (Some(shared), Record::Shared(ticket, _)) => shared.complete(*ticket),
            (None, Record::Own(done)) => {
                // SYNC: event
                done.store(oxccl_sys::clock::now_ns().max(1), Ordering::Release);
                drop(self.0.sleepers.lock());
                self.0.bell.notify_all();
            }
            _ => debug_assert!(false, "a record of another event"),
        }
    }

    pub(super) fn is_complete(&self, record: &Record) -> bool {
        match (&self.0.shared, record) {
            (Some(shared), Record::Shared(ticket, _)) => shared.is_complete(*ticket),
            // SYNC: event
            (_, Record::Own(done)) => done.load(Ordering::Acquire) != 0,
            (None, Record::Shared(..)) => true,
        }
    }

    /// Why the record will never be complete. `look_at`: when to look again, in ns of the clock; 0 at first.
    pub(super) fn lost(&self, record: &Record, look_at: &mut u64) -> Option<Error> {
        let (Some(shared), Record::Shared(ticket, recorder)) = (&self.0.shared, record) else { return None };
        let now = oxccl_sys::clock::now_ns();
        if now < *look_at {
            return None;
        }
        // The first look comes after a while: what is soon complete costs no system call.
        let first = std::mem::replace(look_at, now + LOOK_NS) == 0;
        if first { None } else { shared.lost(*ticket, *recorder) }
    }

    pub(super) fn park(&self, record: &Record, timeout: Duration) {
        if let (Some(shared), Record::Shared(ticket, _)) = (&self.0.shared, record) {
            return shared.park(*ticket, timeout);
        }
        let guard = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_complete(record) {
            drop(self.0.bell.wait_timeout(guard, timeout));
        }
    }

    /// Whether the last record is complete.
    pub fn query(&self) -> bool {
        self.last_record().is_none_or(|last| self.is_complete(&last))
    }

    /// Whether the last record is complete; an error when it never will be, because its process has ended. Moves the process' streams
    /// a little if it is not, but calls no function of the program.
    pub fn poll(&self) -> Result<bool> {
        let Some(last) = self.last_record() else { return Ok(true) };
        if !self.is_complete(&last) {
            helper::glance();
        }
        match (self.is_complete(&last), &self.0.shared, last) {
            (false, Some(shared), Record::Shared(ticket, recorder)) => {
                shared.lost(ticket, recorder).map_or(Ok(false), Err)
            }
            (complete, ..) => Ok(complete),
        }
    }

    /// Waits for the last record, working on the process' streams meanwhile. `RemoteError` when the process that made it
    /// has ended.
    pub fn synchronize(&self) -> Result<()> {
        let Some(record) = self.last_record() else { return Ok(()) };
        let mut waiter = Waiter::new(false);
        let mut look_at = 0;
        while !self.is_complete(&record) {
            if let Some(error) = self.lost(&record, &mut look_at) {
                return Err(error);
            }
            if helper::assist_any() {
                waiter = Waiter::new(false);
            } else if let Turn::Park(timeout) = waiter.turn() {
                self.park(&record, timeout);
            }
        }
        Ok(())
    }

    /// Milliseconds between the last completions of two events. `InvalidUsage` while one is not complete.
    pub fn elapsed_ms(start: &Event, end: &Event) -> Result<f32> {
        let ns = |name: &str, e: &Event| {
            if !e.0.timing {
                return Err(Error::usage(format!("the {name} event was made without timing (flag DisableTiming)")));
            }
            let done = match e.last_record() {
                // SYNC: event
                Some(Record::Own(done)) => done.load(Ordering::Acquire),
                _ => 0,
            };
            if done == 0 {
                return Err(Error::usage(format!("the {name} event was not recorded or is not complete yet")));
            }
            Ok(done as i64)
        };
        let (start, end) = (ns("start", start)?, ns("end", end)?);
        Ok((end - start) as f32 / 1e6)
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
