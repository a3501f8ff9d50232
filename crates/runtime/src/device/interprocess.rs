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

    /// Takes the next ticket, and says who makes the record: a claim before it is taken, so that whoever sees the ticket finds a
    /// process, and the word of who has it afterwards, which no claim of another one replaces.
    pub(super) fn next_record(&self) -> (u64, Recorder) {
        let (pid, start) = identity();
        loop {
            let last = self.last_record();
            let recorder = self.recorder(last + 1);
            let before = recorder.load(Ordering::Acquire);
            let claim = Recorder::new(last + 1, pid, start, false);
            // SYNC: interprocess-recorder
            if self.last_record() != last
                || recorder.compare_exchange(before, claim.0, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                continue;
            }
            // SYNC: interprocess-recorded
            if self.recorded.compare_exchange(last, last + 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                let word = Recorder::new(last + 1, pid, start, true);
                // SYNC: interprocess-recorder
                recorder.store(word.0, Ordering::Release);
                return (last + 1, word);
            }
        }
    }

    pub(super) fn last_record(&self) -> u64 {
        // SYNC: interprocess-recorded
        self.recorded.load(Ordering::Acquire)
    }

    /// Who makes the record, as far as that is known now.
    pub(super) fn recorder_of(&self, ticket: u64) -> Recorder {
        // SYNC: interprocess-recorder
        Recorder(self.recorder(ticket).load(Ordering::Acquire))
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

    /// Where it stands who makes the record, or a later one that shares its slot.
    fn recorder(&self, ticket: u64) -> SharedU64 {
        self.memory.u64_at(RECORDERS + (ticket % SLOTS) as usize * SLOT_BYTES)
    }

    /// Why `ticket` will never complete: the process that recorded it, `recorder` when it was looked up, has ended. A system call.
    pub(super) fn lost(&self, ticket: u64, recorder: Recorder) -> Option<Error> {
        if self.is_complete(ticket) {
            return None;
        }
        let now = self.recorder_of(ticket);
        let recorder = if now.is_of(ticket) { now } else { recorder };
        // A claim that is gone may have been that of a process that did not get the ticket.
        if !recorder.is_of(ticket) || !recorder.has_ticket() && recorder != now {
            return None;
        }
        let alive = started(recorder.pid()).is_some_and(|start| recorder.is_since(start));
        // Looked at again: it may have completed the event and ended in between, or was only the last to claim.
        if alive || self.is_complete(ticket) || self.recorder_of(ticket) != now {
            return None;
        }
        Some(Error::remote(format!(
            "process {} ended before the work was done that its record of a shared event stands for; whoever waits for \
             the event waits for nothing. Look at what that process said last",
            recorder.pid()
        )))
    }
}

/// Who makes a record, in one word: the low bits of its ticket, of the process and of when that started, and whether it has the
/// ticket or only claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorder(u64);

impl Recorder {
    /// As many as there can be processes.
    const PID_BITS: u32 = 22;
    const START_BITS: u32 = 20;
    const TICKET_BITS: u32 = 63 - Self::PID_BITS - Self::START_BITS;

    fn low(word: u64, bits: u32) -> u64 {
        word & ((1 << bits) - 1)
    }

    fn new(ticket: u64, pid: u32, start: u64, has_ticket: bool) -> Recorder {
        let ticket = Recorder::low(ticket, Self::TICKET_BITS) << 1 | u64::from(has_ticket);
        Recorder(
            (ticket << Self::PID_BITS | u64::from(pid)) << Self::START_BITS | Recorder::low(start, Self::START_BITS),
        )
    }

    fn has_ticket(self) -> bool {
        self.0 >> (Self::PID_BITS + Self::START_BITS) & 1 == 1
    }

    fn is_of(self, ticket: u64) -> bool {
        self.0 >> (Self::PID_BITS + Self::START_BITS + 1) == Recorder::low(ticket, Self::TICKET_BITS)
    }

    fn pid(self) -> u32 {
        Recorder::low(self.0 >> Self::START_BITS, Self::PID_BITS) as u32
    }

    fn is_since(self, start: u64) -> bool {
        Recorder::low(self.0, Self::START_BITS) == Recorder::low(start, Self::START_BITS)
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
        let (ticket, me) = event.next_record();
        assert!(other.recorder_of(ticket) == me && me.has_ticket() && me.pid() == std::process::id());
        assert!(other.last_record() == ticket && !other.is_complete(ticket) && other.lost(ticket, me).is_none());
        event.complete(ticket);
        assert!(other.is_complete(ticket));
        // The next record is that of a process that has ended.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let record_of_child = || {
            let (ticket, _) = event.next_record();
            let word = Recorder::new(ticket, pid, 1, true);
            event.recorder(ticket).store(word.0, Ordering::Release);
            (ticket, word)
        };
        let (lost, word) = record_of_child();
        assert!(other.lost(lost, word).unwrap().text.contains("ended"));
        // Its slot is that of a later record, whose process lives.
        for _ in 1..SLOTS {
            event.next_record();
        }
        let (later, me) = event.next_record();
        assert!(!other.recorder_of(lost).is_of(lost) && other.lost(lost, word).unwrap().text.contains("ended"));
        // And the other way round.
        for _ in 1..SLOTS {
            event.next_record();
        }
        let (last, _) = record_of_child();
        assert!(last == later + SLOTS && other.lost(later, me).is_none());
        assert!(started(std::process::id()).is_some());
    }

    #[test]
    fn records_are_complete_one_by_one() {
        let event = Interprocess::new().unwrap();
        let other = Interprocess::open(&event.share().unwrap()).unwrap();
        let tickets: Vec<u64> =
            (0..SLOTS).map(|i| if i % 2 == 0 { event.next_record().0 } else { other.next_record().0 }).collect();
        for (i, done) in tickets.iter().enumerate().rev() {
            event.complete(*done);
            let complete: Vec<bool> = tickets.iter().map(|t| other.is_complete(*t)).collect();
            assert_eq!(complete, (0..tickets.len()).map(|t| t >= i).collect::<Vec<_>>());
        }
    }
}
