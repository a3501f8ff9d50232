//! The part of an event that other processes see: counters in shared memory, a bell, and who records.
//!
//! A waiter hears the end of the process that it waits for: each record names its process, and a look at that process
//! tells whether it still lives. The look is a system call, so it is made now and then only.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{Ordering, SharedU64};
use oxccl_sys::{Doorbell, SharedMemory};
use oxccl_types::{Error, Result};

use super::memory::{Shared, open_shared};

const BYTES: usize = 4096;
/// With the layout that follows: libraries that have another one refuse the event.
const MAGIC: u64 = u64::from_le_bytes(*b"oxcclev2");
const RECORDED: usize = 64;
const BELL: usize = 192;
const RECORDERS: usize = 256;
/// Records of which it is remembered who makes them and which one is complete. One that so many came behind counts as complete when the last
/// of them in its slot does.
const SLOTS: u64 = 64;
const SLOT_BYTES: usize = 32;
const _: () = assert!(RECORDERS + SLOTS as usize * SLOT_BYTES <= BYTES);

/// An event's counters, shared between processes.
pub(super) struct Interprocess {
    memory: Arc<SharedMemory>,
    recorded: SharedU64,
    bell: Doorbell,
}

impl Interprocess {
    pub(super) fn new() -> Result<Interprocess> {
        let memory = SharedMemory::create("oxccl-event", BYTES)
            .map_err(|e| Error::system(format!("cannot make an event for several processes: {e}")))?;
        let event = Interprocess::over(Arc::new(memory));
        event.memory.u64_at(0).store(MAGIC, Ordering::Release);
        Ok(event)
    }

    fn over(memory: Arc<SharedMemory>) -> Interprocess {
        let recorded = memory.u64_at(RECORDED);
        let bell = Doorbell::new(memory.u32_at(BELL));
        Interprocess { memory, recorded, bell }
    }

    /// The event that another process [`share`](Self::share)d.
    pub(super) fn open(shared: &Shared) -> Result<Interprocess> {
        let memory = open_shared(shared)?;
        let event = (memory.len() == BYTES).then(|| Interprocess::over(Arc::new(memory)));
        event.filter(|e| e.memory.u64_at(0).load(Ordering::Acquire) == MAGIC).ok_or_else(|| {
            Error::argument(format!("the handle names no event of process {}: it was destroyed there", shared.pid))
        })
    }

    /// What another process of the same user needs to open it.
    pub(super) fn share(&self) -> Result<Shared> {
        let stat = rustix::fs::fstat(self.memory.fd());
        let inode = stat.map_err(|e| Error::system(format!("cannot look at an event: {e}")))?.st_ino;
        let fd = self.memory.fd().as_raw_fd();
        Ok(Shared { pid: std::process::id(), fd, inode, offset: 0, bytes: BYTES as u64 })
    }

    /// Takes the next ticket. This process' name is written before and after it is taken: whoever sees the ticket finds
    /// a process, and another one that wanted the same ticket is overwritten.
    pub(super) fn next_record(&self) -> u64 {
        let me = identity();
        loop {
            let last = self.recorded.load(Ordering::Acquire);
            self.sign(last + 1, me);
            // SYNC: interprocess-recorded
            if self.recorded.compare_exchange(last, last + 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                self.sign(last + 1, me);
                return last + 1;
            }
        }
    }

    pub(super) fn last_record(&self) -> u64 {
        // SYNC: interprocess-recorded
        self.recorded.load(Ordering::Acquire)
    }

    pub(super) fn complete(&self, ticket: u64) {
        // SYNC: interprocess-completed
        self.completed(ticket).fetch_max(ticket, Ordering::AcqRel);
        self.bell.ring();
    }

    pub(super) fn is_complete(&self, ticket: u64) -> bool {
        // SYNC: interprocess-completed
        self.completed(ticket).load(Ordering::Acquire) >= ticket
    }

    /// The greatest complete ticket of those that share the slot of this one.
    fn completed(&self, ticket: u64) -> SharedU64 {
        self.memory.u64_at(RECORDERS + (ticket % SLOTS) as usize * SLOT_BYTES + 24)
    }

    pub(super) fn park(&self, ticket: u64, timeout: Duration) {
        self.bell.park_unless(timeout, || self.is_complete(ticket));
    }

    fn slot(&self, ticket: u64) -> [SharedU64; 3] {
        let at = RECORDERS + (ticket % SLOTS) as usize * SLOT_BYTES;
        [0, 8, 16].map(|o| self.memory.u64_at(at + o))
    }

    /// Who makes the record says so: in a slot in which that of an earlier one is complete when this one is.
    fn sign(&self, ticket: u64, (pid, start): (u32, u64)) {
        let [to, of, since] = self.slot(ticket);
        of.store(u64::from(pid), Ordering::Relaxed);
        since.store(start, Ordering::Relaxed);
        // SYNC: interprocess-recorder
        to.store(ticket, Ordering::Release);
    }

    /// Why `ticket` will never complete: the process that recorded it has ended. A system call.
    pub(super) fn lost(&self, ticket: u64) -> Option<Error> {
        if self.is_complete(ticket) {
            return None;
        }
        let [to, of, since] = self.slot(ticket);
        // SYNC: interprocess-recorder
        let owner = to.load(Ordering::Acquire);
        if owner < ticket {
            return None;
        }
        let (pid, start) = (of.load(Ordering::Relaxed) as u32, since.load(Ordering::Relaxed));
        // Looked at again: it may have completed the event and ended in between.
        // Or the slot may be that of yet another record by now, whose process signs before it takes the ticket.
        if started(pid) == Some(start) || self.is_complete(ticket) || to.load(Ordering::Acquire) != owner {
            return None;
        }
        Some(Error::remote(format!(
            "process {pid} ended before the work was done that its record of a shared event stands for; whoever waits for \
             the event waits for nothing. Look at what that process said last"
        )))
    }
}

/// This process: its number and when it started.
fn identity() -> (u32, u64) {
    static ME: Mutex<(u32, u64)> = Mutex::new((0, 0));
    let pid = std::process::id();
    // Valid between statements. Looked at again in the child of a fork.
    let mut me = ME.lock().unwrap_or_else(PoisonError::into_inner);
    if me.0 != pid {
        *me = (pid, started(pid).unwrap_or(0));
    }
    *me
}

/// When a living process started, in the kernel's ticks; `None` when it has ended.
fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; behind it the state is the first field and the start the 20th.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_ended_process_is_lost() {
        let event = Interprocess::new().unwrap();
        let other = Interprocess::open(&event.share().unwrap()).unwrap();
        let ticket = event.next_record();
        assert!(other.last_record() == ticket && !other.is_complete(ticket) && other.lost(ticket).is_none());
        event.complete(ticket);
        assert!(other.is_complete(ticket));
        // The next record is signed by a process that has ended.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let ticket = event.next_record();
        event.sign(ticket, (pid, 1));
        assert!(other.lost(ticket).unwrap().text.contains("ended"));
        // So many more that its slot is that of a later one.
        for _ in 0..SLOTS {
            let ticket = event.next_record();
            event.sign(ticket, (pid, 1));
        }
        assert!(!other.is_complete(ticket) && other.lost(ticket).unwrap().text.contains("ended"));
        assert!(started(std::process::id()).is_some());
    }

    #[test]
    fn records_are_complete_one_by_one() {
        let event = Interprocess::new().unwrap();
        let other = Interprocess::open(&event.share().unwrap()).unwrap();
        let tickets: Vec<u64> =
            (0..SLOTS).map(|i| if i % 2 == 0 { event.next_record() } else { other.next_record() }).collect();
        for (i, done) in tickets.iter().enumerate().rev() {
            event.complete(*done);
            let complete: Vec<bool> = tickets.iter().map(|t| other.is_complete(*t)).collect();
            assert_eq!(complete, (0..tickets.len()).map(|t| t >= i).collect::<Vec<_>>());
        }
    }
}
