//! The sending half of an end.

use std::net::TcpStream;

use oxccl_types::{Error, Result};

use super::frame::{Frame, HEADER};
use super::raw::{self, Range};
use super::{TcpEnd, TcpOptions, closed, lost};
use crate::transport::lines::Lines;
use crate::transport::{Header, REFUSAL_BYTES, SendEnd, Ticket};

/// Frames that one system call writes at most.
const BATCH: usize = 8;
/// Every so many accepted frames the sender looks for a refusal though nothing forces it to wait.
const LOOK_EVERY: u64 = 16;
/// Bytes up to which a frame is put together for the kernel: a copy of so few is cheaper than a second range.
const SMALL: usize = 4096;
/// Bytes of small frames that may wait together: four of the longest.
const TOGETHER: usize = 136 << 10;
/// Bytes up to which a frame is copied to wait for the next ones: a write of its own would take longer than the copy.
pub(crate) const HELD: usize = 32 << 10;
/// Bytes that one call writes at most where both ends of a connection send, so that what comes in is read while it is in the
/// caches.
const TURN: usize = 512 << 10;
/// The same where only this end has since its last long frame, as on the connections of a ring of three and more ranks. Every
/// call ends with a packet that is not full.
const ONE_WAY_TURN: usize = 4 << 20;

/// Bytes of a packet from which on one that is not full waits for what follows: those of a loopback interface, each of which
/// costs a walk through the kernel. Over Ethernet they leave by the dozen, and what waits comes late.
const LONG_PACKET: usize = 16 << 10;
/// Operations that end, and send nothing here, while small frames wait: those of a few ends in turn still go out together.
const PASSED_OVER: u32 = 8;

/// What goes out.
pub(super) struct Outgoing {
    /// Accepted frames, behind those of `small`, that the kernel has not taken in full; by number modulo length.
    queue: Box<[Waiting]>,
    /// One slot per frame of the queue, for [`SendEnd::keep`].
    kept: Lines,
    pub(super) accepted: u64,
    /// Frames that the kernel has; `small.frames` come next, then those of the queue.
    written: u64,
    /// Frames that the peer has consumed, as far as it has said so.
    pub(super) received: u64,
    small: Small,
    /// Small frames, and the ends of others, wait for each other, until [`SendEnd::flush`] or until there is no room.
    pub(super) hold: bool,
    /// They wait for the next one, which comes at once.
    more: bool,
    /// Frames of any length wait for [`SendEnd::flush`].
    gather: bool,
    /// The kernel keeps the end of what was written until the next frames fill the packet, or until [`SendEnd::flush`].
    corked: bool,
    /// Whether it may.
    long_packets: bool,
    /// Frames that were accepted when an operation ended last, and how many have ended since without another one.
    ended: u64,
    passed_over: u32,
    /// Bytes that one call writes at most, and the peer's data frames that were consumed when that was chosen.
    turn: usize,
    consumed: u64,
    /// What is to be said of the peer's data; goes between two frames.
    said: Said,
    /// Bytes that waited to be read when a turn of writing ended last.
    unread: u64,
    failed: Option<Error>,
}

/// Small frames with their bytes, one behind the other.
struct Small {
    bytes: Lines,
    /// `at..end` is not written.
    at: usize,
    end: usize,
    /// Frames that end in there.
    frames: u64,
}

/// A frame on its way into the kernel.
#[derive(Clone, Copy)]
struct Waiting {
    header: [u8; HEADER],
    data: *const u8,
    len: usize,
    /// Bytes of header and data that are written.
    done: usize,
}

// SAFETY: the queue's pointers are borrowed from the caller under the contract of `poll_send`, not tied to a thread.
unsafe impl Send for Outgoing {}

/// Frames other than data that the kernel has not taken in full.
struct Said {
    bytes: [u8; 3 * HEADER + REFUSAL_BYTES],
    at: usize,
    end: usize,
}

impl Said {
    /// Adds a frame and its text if there is room: for an acknowledgement, a refusal and a goodbye there is.
    fn put(&mut self, frame: Frame, text: &[u8]) {
        self.bytes.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        if self.bytes.len() - self.end >= HEADER + text.len() {
            self.bytes[self.end..][..HEADER].copy_from_slice(&frame.encode());
            self.bytes[self.end + HEADER..][..text.len()].copy_from_slice(text);
            self.end += HEADER + text.len();
        }
    }

    fn is_empty(&self) -> bool {
        self.at == self.end
    }
}

impl Outgoing {
    pub(super) fn new(stream: &TcpStream, options: &TcpOptions) -> Outgoing {
        let none = Waiting { header: [0; HEADER], data: std::ptr::null(), len: 0, done: 0 };
        Outgoing {
            queue: vec![none; options.slots].into(),
            // Zeroed pages cost nothing before the first frame that is kept.
            kept: Lines::new(options.slots * options.slot_bytes),
            accepted: 0,
            written: 0,
            received: 0,
            small: Small { bytes: Lines::new(TOGETHER), at: 0, end: 0, frames: 0 },
            hold: false,
            more: false,
            gather: false,
            corked: false,
            long_packets: raw::packet_bytes(stream) >= LONG_PACKET,
            ended: 0,
            passed_over: 0,
            turn: TURN,
            consumed: 0,
            said: Said { bytes: [0; 3 * HEADER + REFUSAL_BYTES], at: 0, end: 0 },
            unread: 0,
            failed: None,
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remember `e` for all later calls.
    #[cold]
    pub(super) fn fail(&mut self, e: Error) -> Error {
        self.failed.get_or_insert(e).clone()
    }

    fn slot(&self, frame: u64) -> usize {
        (frame % self.queue.len() as u64) as usize
    }

    /// Number of the first frame of the queue.
    fn first(&self) -> u64 {
        self.written + self.small.frames
    }

    /// Frames whose source is free and that need no driving: small ones that are to wait were copied.
    fn done(&self) -> u64 {
        if self.hold { self.first() } else { self.written }
    }

    fn full(&self) -> bool {
        self.accepted - self.first() == self.queue.len() as u64
    }

    /// Whether the acknowledgement of `count` frames makes sense; then it is booked.
    pub(super) fn acknowledged(&mut self, count: u64) -> bool {
        // Small frames count as written when the last of those that went together is; the peer may have the first ones.
        let sensible = (self.received..=self.first()).contains(&count);
        if sensible {
            self.received = count;
        }
        sensible
    }

    /// Whether a frame was begun: nothing but its rest can go out.
    fn amid(&self) -> bool {
        match self.small.frames {
            0 => self.written < self.accepted && self.queue[self.slot(self.written)].done > 0,
            _ => self.small.at > 0,
        }
    }

    /// Takes a small frame with its bytes if none is before it in the queue and there is room.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable.
    unsafe fn take_small(&mut self, header: &[u8; HEADER], data: *const u8, len: usize) -> bool {
        let most = if self.hold || self.more { HELD } else { SMALL };
        let small = &mut self.small;
        let fits = len <= most && HEADER + len <= TOGETHER - small.end;
        if !fits || self.accepted > self.written + small.frames {
            return false;
        }
        let room = &mut small.bytes[small.end..][..HEADER + len];
        room[..HEADER].copy_from_slice(header);
        // SAFETY: readable by contract; the room is ours.
        unsafe { std::ptr::copy_nonoverlapping(data, room[HEADER..].as_mut_ptr(), len) };
        small.end += HEADER + len;
        small.frames += 1;
        true
    }

    /// Book `n` written bytes of the small frames.
    fn wrote_small(&mut self, n: usize) {
        let small = &mut self.small;
        small.at += n;
        if small.at == small.end {
            self.written += small.frames;
            (small.at, small.end, small.frames) = (0, 0, 0);
        }
    }

    /// Book `n` written bytes.
    fn wrote(&mut self, mut n: usize) {
        while n > 0 {
            let at = self.slot(self.written);
            let f = &mut self.queue[at];
            let step = n.min(HEADER + f.len - f.done);
            f.done += step;
            n -= step;
            if f.done == HEADER + f.len {
                self.written += 1;
            }
        }
    }
}

impl TcpEnd {
    /// Says `frame` of the peer's data as soon as it can be.
    pub(super) fn say(&mut self, frame: Frame, text: &[u8]) {
        self.out.said.put(frame, text);
    }

    /// Whether nothing is left to be said.
    pub(super) fn has_said_all(&self) -> bool {
        self.out.said.is_empty()
    }

    /// Write what the kernel takes now.
    pub(super) fn push(&mut self) -> Result<()> {
        loop {
            if !self.out.said.is_empty() && !self.out.amid() {
                self.uncork();
                let said = &mut self.out.said;
                match raw::send_bytes(&self.stream, &said.bytes[said.at..said.end]) {
                    Ok(0) => return Ok(()),
                    Ok(n) => said.at += n,
                    // The peer may have said goodbye and gone: it needs no answer, and what it sent still counts.
                    Err(_) => said.at = said.end,
                }
            } else if self.out.small.frames > 0 {
                let small = &self.out.small;
                match raw::send_bytes(&self.stream, &small.bytes[small.at..small.end]) {
                    Ok(0) => return Ok(()),
                    Ok(n) => self.out.wrote_small(n),
                    Err(e) => return Err(self.write_failed(&e)),
                }
            } else {
                if self.out.written == self.out.accepted {
                    if !self.out.hold {
                        self.uncork();
                    }
                    return Ok(());
                }
                self.cork();
                let most = if self.out.said.is_empty() { BATCH as u64 } else { 1 };
                if !self.push_frames(most)? {
                    // Who waits for room waits for the kernel to send what it has: it must keep nothing then.
                    if self.out.written < self.out.accepted {
                        self.uncork();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// What is not small is not held back here, but the packet that its end does not fill may wait for the next frames. The
    /// kernel keeps it only while nothing is left to be written.
    fn cork(&mut self) {
        if self.out.hold && self.out.long_packets && !self.out.corked {
            // Only a hint: else the packet goes as it is.
            self.out.corked = raw::cork(&self.stream, true).is_ok();
        }
    }

    /// Lets go what the kernel keeps.
    fn uncork(&mut self) {
        if self.out.corked {
            // A connection that is broken tells of it when it is used next.
            let _ = raw::cork(&self.stream, false);
            self.out.corked = false;
        }
    }

    /// Writes what is left; whether nothing is.
    fn drive(&mut self) -> Result<bool> {
        self.out.check()?;
        if self.out.written < self.out.accepted {
            self.push()?;
            if self.out.written < self.out.accepted {
                self.look()?;
            }
        }
        Ok(self.out.written == self.out.accepted)
    }

    /// Write from up to `most` frames and a turn's bytes; whether the kernel may take more in this turn. The turn passes to
    /// reading where something has come since the last one; else writing goes on until the kernel takes no more, because
    /// that is when it promises to tell of room.
    fn push_frames(&mut self, most: u64) -> Result<bool> {
        let out = &self.out;
        let mut ranges = [Range::EMPTY; 2 * BATCH];
        let frames = (out.accepted - out.written).min(most);
        let (mut offered, mut left) = (0, out.turn);
        for i in 0..frames {
            let f = &out.queue[out.slot(out.written + i)];
            let head = f.done.min(HEADER);
            let body = f.done - head;
            let len = (f.len - body).min(left);
            left -= len;
            ranges[2 * i as usize] = Range::new(f.header[head..].as_ptr(), HEADER - head);
            ranges[2 * i as usize + 1] = Range::new(f.data.wrapping_add(body), len);
            offered += HEADER - head + len;
            if left == 0 {
                break;
            }
        }
        // SAFETY: headers are ours, data is ours or borrowed from the caller until done.
        match unsafe { raw::send(&self.stream, &ranges[..2 * frames as usize]) } {
            Ok(n) => {
                self.out.wrote(n);
                Ok(n == offered && (left > 0 || !self.has_news()))
            }
            Err(e) => Err(self.write_failed(&e)),
        }
    }

    /// Turns are short if the peer has sent data, too, since the last frame that was not small.
    fn choose_turn(&mut self) {
        let consumed = self.inc.consumed();
        let before = std::mem::replace(&mut self.out.consumed, consumed);
        self.out.turn = if consumed == before { ONE_WAY_TURN } else { TURN };
    }

    /// Whether other bytes wait to be read than at the last call.
    fn has_news(&mut self) -> bool {
        // Where the system does not say, nothing waits.
        let waiting = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0);
        waiting != 0 && std::mem::replace(&mut self.out.unread, waiting) != waiting
    }

    /// The peer may have said why before it closed: read that first.
    #[cold]
    fn write_failed(&mut self, e: &std::io::Error) -> Error {
        if let Err(said) = self.look() {
            return said;
        }
        let e = lost(&self.options.peer, "sending", Some(e));
        self.out.fail(e)
    }

    /// Read what the peer said, up to data that nobody has asked for yet.
    fn look(&mut self) -> Result<()> {
        self.out.check()?;
        loop {
            match self.next_frame("sending") {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return Err(self.out.fail(e)),
            }
        }
        if self.inc.goodbye && self.out.received < self.out.accepted {
            let e = closed(&self.options.peer, "sending");
            return Err(self.out.fail(e));
        }
        Ok(())
    }

    /// As [`SendEnd::flush`], except that small frames, and the ends of others, may be left to wait for those of the next
    /// operation.
    pub(crate) fn flush_or_hold(&mut self, hold: bool) -> Result<bool> {
        match hold {
            true => {
                let done = self.out.first() == self.out.accepted || self.drive()?;
                if done { self.ends().map(|()| true) } else { Ok(false) }
            }
            false => SendEnd::flush(self),
        }
    }

    /// An operation has ended, and the next one follows. What waits here waits for no more of them than it must: the next one
    /// may be long, and have nothing for this end.
    fn ends(&mut self) -> Result<()> {
        let out = &mut self.out;
        if std::mem::replace(&mut out.ended, out.accepted) != out.accepted {
            out.passed_over = 0;
            return Ok(());
        }
        self.uncork();
        if self.out.small.frames > 0 {
            self.out.passed_over += 1;
            if self.out.passed_over >= PASSED_OVER {
                self.drive()?;
            }
        }
        Ok(())
    }

    /// Whether small frames are to wait for each other from now on.
    pub(crate) fn hold(&mut self, hold: bool) {
        self.out.hold = hold;
    }

    /// Whether what is accepted from now on waits for a [flush](SendEnd::flush), if there is room.
    pub(crate) fn gather(&mut self, gather: bool) {
        self.out.gather = gather;
    }

    /// Nothing comes at once behind what waits for it.
    pub(crate) fn no_more(&mut self) -> Result<()> {
        self.out.more = false;
        if self.out.small.frames == 0 || self.out.hold || self.out.gather { Ok(()) } else { self.push() }
    }

    /// Says goodbye, if what was sent before is out.
    pub(super) fn part(&mut self) {
        // What was not written may be borrowed from a caller that is gone, and a goodbye inside a frame is data.
        let unwritten = self.out.written < self.out.accepted;
        if unwritten || self.out.failed.is_some() || self.look().is_err() || self.inc.refused.is_some() {
            return;
        }
        self.acknowledge();
        self.say(Frame::Goodbye, &[]);
        // What does not fit now makes the peer find an end without goodbye, which errs to the side of an error.
        let _ = self.push();
    }
}

impl SendEnd for TcpEnd {
    unsafe fn poll_send(&mut self, header: &Header, data: *const u8, len: usize) -> Result<Option<(usize, Ticket)>> {
        self.out.check()?;
        if self.out.full() {
            self.push()?;
        }
        if self.out.full() || self.out.accepted.is_multiple_of(LOOK_EVERY) {
            self.look()?;
        }
        if self.out.full() {
            return Ok(None);
        }
        if len == 0 && header.total != 0 {
            return Err(Error::internal(format!(
                "nothing of a message of {} bytes is left at offset {}",
                header.total, header.offset
            )));
        }
        let header = Frame::Data(Header { len: len as u64, ..*header }).encode();
        // SAFETY: readable by contract.
        let small = unsafe { self.out.take_small(&header, data, len) };
        if !small {
            self.choose_turn();
            let at = self.out.slot(self.out.accepted);
            self.out.queue[at] = Waiting { header, data, len, done: 0 };
        }
        self.out.accepted += 1;
        if !self.out.gather && !(small && (self.out.hold || self.out.more)) {
            self.push()?;
        }
        Ok(Some((len, Ticket::new(self.out.accepted))))
    }

    fn keep(&mut self) {
        let out = &mut self.out;
        if out.first() == out.accepted {
            return;
        }
        let (at, room) = (out.slot(out.accepted - 1), self.options.slot_bytes);
        let f = &mut out.queue[at];
        debug_assert!(f.len <= room, "a piece longer than a slot cannot be kept");
        let sent = f.done.saturating_sub(HEADER);
        let slot = out.kept[at * room..][..room].as_mut_ptr();
        if f.len <= room && f.data != slot.cast_const() {
            // SAFETY: `[data, data + len)` is readable by the contract of `poll_send`; the slot has `room >= len` bytes
            // and belongs to this frame until it is written.
            unsafe { std::ptr::copy_nonoverlapping(f.data.add(sent), slot.add(sent), f.len - sent) };
            f.data = slot;
        }
    }

    fn follows(&mut self, more: bool) {
        self.out.more = more;
    }

    fn poll_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.out.check()?;
        if self.out.done() < ticket.count() {
            self.push()?;
            if self.out.done() < ticket.count() {
                self.look()?;
            }
        }
        Ok(self.out.done() >= ticket.count())
    }

    fn poll_received(&mut self, ticket: Ticket) -> Result<bool> {
        self.out.check()?;
        if self.out.received < ticket.count() {
            self.push()?;
            self.uncork();
            self.look()?;
        }
        Ok(self.out.received >= ticket.count())
    }

    fn flush(&mut self) -> Result<bool> {
        let done = self.drive()?;
        // Before the rest is written no packet needs to go that is not full.
        if done {
            self.uncork();
        }
        Ok(done)
    }

    fn poll_closable(&mut self) -> Result<bool> {
        if !SendEnd::flush(self)? {
            return Ok(false);
        }
        // What the peer's kernel has is read even if this end closes.
        Ok(self.out.received == self.out.accepted || raw::is_settled(&self.stream))
    }

    fn slots(&self) -> usize {
        self.out.queue.len()
    }

    fn slot_bytes(&self) -> usize {
        self.options.slot_bytes
    }

    fn kind(&self) -> &'static str {
        "tcp"
    }
}
