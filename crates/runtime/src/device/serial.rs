//! Work of calls that do not wait for it: done at once as far as it goes; and copies between devices, which keep order with
//! all work of both.

use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_sys::sync::{AtomicBool, Ordering, yield_now};
use oxccl_types::Result;

use super::memory::retire;
use super::moves::Area;
use super::stream::{Stream, Waited};
use super::{Event, helper};

/// How often who meets another thread at its stream comes again: that one may hold it for a step, or for a function of the program.
pub(super) const MEETINGS: u32 = 64;

/// Ends of copies between devices that may still run, for streams that are made meanwhile.
static LAST: Mutex<Vec<(Vec<usize>, Event)>> = Mutex::new(Vec::new());
/// There are some, as who changed that says under the lock.
static ANY: AtomicBool = AtomicBool::new(false);

fn last() -> MutexGuard<'static, Vec<(Vec<usize>, Event)>> {
    // Valid between statements.
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of streams that only wait for others: who waits for a device does not wait for those.
const NOBODY: usize = usize::MAX;

/// Does `work` behind all that the streams of these devices hold now: at once where that is nothing, else on whichever thread looks after that.
/// Does not wait.
pub fn behind(devices: impl Fn(usize) -> bool, work: Box<dyn FnOnce() + Send>) {
    let pending = helper::streams(|s| s.device != NOBODY && devices(s.device) && s.pending());
    if pending.is_empty() {
        return work();
    }
    let last = Stream::on_device(NOBODY);
    // Nothing is added to them: who has waited for one finds it idle.
    pending.iter().for_each(|stream| last.wait_behind(stream));
    // It is nobody's but its own.
    let stream = last.clone();
    let call = Box::new(move || {
        work();
        drop(stream);
    });
    // A new stream captures nothing.
    let _ = last.call_own(call);
}

/// Frees memory of [`alloc`](super::alloc) behind what these devices' streams hold now: it is the program's no more at once. Does not wait.
///
/// # Errors
/// `InvalidArgument` for any other address, which may be null.
///
/// # Safety
/// No work that is enqueued later uses it.
pub unsafe fn free_behind(ptr: *mut u8, devices: impl Fn(usize) -> bool) -> Result<()> {
    let memory = retire(ptr)?;
    // SAFETY: the work that may use it is done then, and none comes later by the caller's promise.
    behind(devices, Box::new(move || unsafe { memory.release() }));
    Ok(())
}

impl Stream {
    /// A new event behind what was last enqueued.
    pub(super) fn end(&self) -> Event {
        let end = Event::new();
        self.record_now(&end);
        end
    }

    /// Works on what the stream holds now, until that waits for something or is a function of the program. Errors stay for who
    /// waits for the stream.
    pub fn go_ahead(&self) {
        let target = self.0.enqueued();
        let mut meetings = 0;
        while self.0.finished() < target && meetings < MEETINGS {
            match self.0.advance_aside() {
                Waited::Foreign => {
                    helper::pass_by(&self.0);
                    return;
                }
                Waited::Progress => meetings = 0,
                Waited::Elsewhere => {
                    meetings += 1;
                    yield_now();
                }
                Waited::Blocked | Waited::Idle => return,
            }
        }
    }

    /// Copies an area behind all that the streams of `devices`, and of this stream's, hold now, and before all that they are given
    /// after this. Does not wait.
    ///
    /// # Safety
    /// As for [`copy_area`](Self::copy_area).
    pub unsafe fn copy_alone(&self, area: Area, devices: &[usize]) -> Result<()> {
        self.refuse_while_capturing("given a copy between devices")?;
        let mut devices = devices.to_vec();
        devices.push(self.device());
        // Also where nobody has used them yet: who frees memory of a device waits for what its streams hold.
        devices.iter().for_each(|d| drop(Stream::default_of(*d)));
        let others = |pending: bool| {
            let all = helper::streams(|s| devices.contains(&s.device) && (s.pending() || !pending));
            all.into_iter().map(Stream).filter(|s| !s.same(self))
        };
        for other in others(true) {
            self.wait_now(&other.end());
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_area(area, [0; 2]) }?;
        let end = self.end();
        self.go_ahead();
        if !end.query() {
            // Before the streams are looked for: one that is made meanwhile is among them, or finds this.
            let mut last = last();
            last.retain(|(_, end)| !end.query());
            last.push((devices.clone(), end.clone()));
            ANY.store(true, Ordering::SeqCst);
            drop(last);
            others(false).for_each(|other| other.wait_now(&end));
        }
        Ok(())
    }

    /// Lets a new stream wait for copies between its device and others.
    pub(super) fn wait_for_copies(&self) {
        if !ANY.load(Ordering::SeqCst) {
            return;
        }
        let mut last = last();
        last.retain(|(_, end)| !end.query());
        ANY.store(!last.is_empty(), Ordering::SeqCst);
        let ends: Vec<Event> =
            last.iter().filter(|(devices, _)| devices.contains(&self.device())).map(|(_, end)| end.clone()).collect();
        drop(last);
        ends.iter().for_each(|end| self.wait_now(end));
    }
}
