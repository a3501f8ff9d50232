//! The receiving half of an end.

use std::mem::MaybeUninit;

use oxccl_types::{Error, Result};

use super::frame::{Frame, HEADER};
use super::raw::{self, Range};
use super::{TcpEnd, TcpOptions, closed, garbage, lost};
use crate::transport::{Arrival, Header, RecvEnd, no_room, refusal};

/// Bytes read ahead beyond what is known to come: the next headers and small messages.
const AHEAD: usize = 4096;
/// Bytes read where a header is awaited, if the frame before this one fitted: a copy of so few is cheaper than another read.
const WHOLE: usize = 8 << 10;

/// What comes in.
pub(super) struct Incoming {
    /// `ahead[ahead_at..ahead_end]` was read and not yet looked at.
    ahead: Box<[u8; WHOLE]>,
    ahead_at: usize,
    ahead_end: usize,
    /// The next frame is likely to fit into there.
    wide: bool,
    /// What is left of the current data frame.
    current: Option<Header>,
    /// The current arrival: `at..end` of the buffer is there, complete once `end == goal`.
    bounce: Box<[MaybeUninit<Line>]>,
    at: usize,
    end: usize,
    goal: usize,
    consumed: u64,
    acked: u64,
    pub(super) goodbye: bool,
    /// One of the two ends has refused what the other sent.
    pub(super) refused: Option<Error>,
}

/// Storage of the bounce buffer.
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

impl Incoming {
    pub(super) fn new(options: &TcpOptions) -> Incoming {
        Incoming {
            ahead: Box::new([0; WHOLE]),
            wide: false,
            ahead_at: 0,
            ahead_end: 0,
            current: None,
            // Only written and read through pointers; its pages come with the first use.
            bounce: Box::new_uninit_slice(options.slot_bytes / 64),
            at: 0,
            end: 0,
            goal: 0,
            consumed: 0,
            acked: 0,
            goodbye: false,
            refused: None,
        }
    }

    /// The peer's data frames that are consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl TcpEnd {
    /// Book `n` bytes that a read brought; 0 is the end of the stream.
    fn came(&self, n: std::io::Result<Option<usize>>, doing: &str) -> Result<Option<usize>> {
        match n {
            Ok(Some(0)) | Err(_) if self.inc.goodbye => Err(closed(&self.options.peer, doing)),
            Ok(Some(0)) => Err(lost(&self.options.peer, doing, None)),
            Ok(n) => Ok(n),
            Err(e) => Err(lost(&self.options.peer, doing, Some(&e))),
        }
    }

    /// Read into `[dst, dst + len)` and, when that is full, ahead, where nothing waits. Returns the bytes that reached
    /// `dst`, or `None` when nothing is there now.
    ///
    /// # Safety
    /// `dst` is writable for `len > 0` bytes.
    unsafe fn read(&mut self, dst: *mut u8, len: usize) -> Result<Option<usize>> {
        let inc = &mut self.inc;
        debug_assert!(inc.ahead_at == inc.ahead_end);
        let ranges = [Range::new(dst, len), Range::new(inc.ahead.as_mut_ptr(), AHEAD)];
        // SAFETY: `dst` by contract, the rest is ours.
        let n = unsafe { raw::recv(&self.stream, &ranges) };
        let n = self.came(n, "receiving")?;
        let beyond = n.unwrap_or(0).saturating_sub(len);
        (self.inc.ahead_at, self.inc.ahead_end) = (0, beyond);
        Ok(n.map(|n| n - beyond))
    }

    /// Read ahead until `bytes` are there; `false` when they are not there now.
    fn read_ahead(&mut self, bytes: usize, doing: &str) -> Result<bool> {
        while self.inc.ahead_end - self.inc.ahead_at < bytes {
            let inc = &mut self.inc;
            if inc.ahead_at > 0 {
                inc.ahead.copy_within(inc.ahead_at..inc.ahead_end, 0);
                (inc.ahead_at, inc.ahead_end) = (0, inc.ahead_end - inc.ahead_at);
            }
            let room = if inc.wide { WHOLE } else { AHEAD };
            let n = raw::recv_bytes(&self.stream, &mut inc.ahead[inc.ahead_end..room.max(bytes)]);
            match self.came(n, doing)? {
                Some(n) => self.inc.ahead_end += n,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes the next frame: data becomes the current frame, and anything else is acted on. `false` when there is none
    /// now, or none can be taken: before the current frame is consumed, or after a goodbye.
    pub(super) fn next_frame(&mut self, doing: &str) -> Result<bool> {
        if self.inc.current.is_some() || self.inc.goodbye || !self.read_ahead(HEADER, doing)? {
            return Ok(false);
        }
        let mut header = [0; HEADER];
        header.copy_from_slice(&self.inc.ahead[self.inc.ahead_at..][..HEADER]);
        // At a bad frame it stays: the stream has no meaning behind it.
        match Frame::decode(&header).map_err(|what| garbage(&self.options.peer, doing, what))? {
            Frame::Data(header) => {
                self.inc.current = Some(header);
                self.inc.wide = header.len <= (WHOLE - HEADER) as u64;
            }
            Frame::Goodbye => self.inc.goodbye = true,
            Frame::Ack(count) => {
                if !self.out.acknowledged(count) {
                    return Err(garbage(&self.options.peer, doing, "acknowledgement of what was not sent"));
                }
            }
            Frame::Refuse(len) => {
                if !self.read_ahead(HEADER + len, doing)? {
                    return Ok(false);
                }
                let text = &self.inc.ahead[self.inc.ahead_at + HEADER..][..len];
                let e = self.out.fail(Error::usage(String::from_utf8_lossy(text)));
                self.inc.refused.get_or_insert(e.clone());
                self.inc.ahead_at += HEADER + len;
                return Err(e);
            }
        }
        self.inc.ahead_at += HEADER;
        Ok(true)
    }

    /// The header of the current frame, or of the next one if its header is there.
    fn header(&mut self) -> Result<Option<Header>> {
        if let Some(e) = &self.inc.refused {
            let e = e.clone();
            // The refusal itself may still have to go out.
            let _ = self.push();
            return Err(e);
        }
        while self.inc.current.is_none() {
            if self.inc.goodbye {
                return Err(closed(&self.options.peer, "receiving"));
            }
            if !self.next_frame("receiving")? {
                return Ok(None);
            }
        }
        Ok(self.inc.current)
    }

    /// Move up to `len` bytes that are there to `dst`: read ahead first, then from the kernel, until full or dry.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    unsafe fn fetch(&mut self, dst: *mut u8, len: usize) -> Result<usize> {
        let mut done = len.min(self.inc.ahead_end - self.inc.ahead_at);
        // SAFETY: `done` bytes are there, and fit by contract.
        unsafe { std::ptr::copy_nonoverlapping(self.inc.ahead[self.inc.ahead_at..].as_ptr(), dst, done) };
        self.inc.ahead_at += done;
        while done < len {
            // SAFETY: the rest of `dst`.
            match unsafe { self.read(dst.add(done), len - done) } {
                // That was all there is: the next call finds what is new.
                Ok(Some(n)) if n < len - done => {
                    done += n;
                    break;
                }
                Ok(Some(n)) => done += n,
                Ok(None) => break,
                Err(_) if done > 0 => break, // the next call meets the error again
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// `bytes` of the current frame are consumed.
    fn advance(&mut self, bytes: u64) {
        let Some(header) = &mut self.inc.current else { return };
        header.offset += bytes;
        header.len -= bytes;
        if header.len == 0 {
            self.inc.current = None;
            self.inc.consumed += 1;
        }
    }

    /// Says how much was consumed, if that is news.
    pub(super) fn acknowledge(&mut self) {
        if self.inc.acked < self.inc.consumed {
            self.inc.acked = self.inc.consumed;
            self.say(Frame::Ack(self.inc.acked), &[]);
        }
    }
}

impl RecvEnd for TcpEnd {
    fn poll_header(&mut self) -> Result<Option<Header>> {
        self.header()
    }

    fn poll_recv(&mut self) -> Result<Option<Arrival>> {
        let Some(mut header) = self.header()? else { return Ok(None) };
        if self.inc.goal == 0 {
            self.inc.goal = header.len.min(self.options.slot_bytes as u64) as usize;
        }
        let buffer: *mut u8 = self.inc.bounce.as_mut_ptr().cast();
        if self.inc.end < self.inc.goal {
            // SAFETY: inside the bounce buffer, of which no arrival was handed out yet.
            self.inc.end += unsafe { self.fetch(buffer.add(self.inc.end), self.inc.goal - self.inc.end)? };
            if self.inc.end < self.inc.goal {
                return Ok(None);
            }
        }
        header.len = (self.inc.goal - self.inc.at) as u64;
        // SAFETY: inside the bounce buffer.
        Ok(Some(Arrival { header, data: unsafe { buffer.add(self.inc.at) } }))
    }

    fn consume(&mut self, bytes: u64) {
        if self.inc.end < self.inc.goal {
            return; // no arrival was handed out
        }
        let bytes = bytes.min((self.inc.end - self.inc.at) as u64);
        self.inc.at += bytes as usize;
        if self.inc.at == self.inc.goal {
            (self.inc.at, self.inc.end, self.inc.goal) = (0, 0, 0);
        }
        self.advance(bytes);
    }

    fn release(&mut self) {
        if self.inc.current.is_some_and(|h| h.len == 0) || self.inc.end > self.inc.at {
            self.consume(u64::MAX);
        }
    }

    unsafe fn poll_recv_into(&mut self, dst: *mut u8, capacity: usize) -> Result<Option<Header>> {
        let Some(mut header) = self.header()? else { return Ok(None) };
        if header.len > 0 && capacity == 0 {
            return Err(no_room(&header));
        }
        let want = header.len.min(capacity as u64) as usize;
        let mut done = want.min(self.inc.end - self.inc.at);
        let buffer: *const u8 = self.inc.bounce.as_ptr().cast();
        // SAFETY: `done` bytes wait in the bounce buffer, and fit by contract.
        unsafe { std::ptr::copy_nonoverlapping(buffer.add(self.inc.at), dst, done) };
        self.inc.at += done;
        if self.inc.at == self.inc.end {
            (self.inc.at, self.inc.end, self.inc.goal) = (0, 0, 0);
            if done < want {
                // SAFETY: the rest of `dst`.
                match unsafe { self.fetch(dst.add(done), want - done) } {
                    Ok(n) => done += n,
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => {} // met again by the next call
                }
            }
        }
        if done == 0 && want > 0 {
            return Ok(None);
        }
        self.advance(done as u64);
        header.len = done as u64;
        Ok(Some(header))
    }

    fn flush(&mut self) -> Result<bool> {
        self.push()?;
        if self.has_said_all() {
            self.acknowledge();
            self.push()?;
        }
        Ok(self.has_said_all())
    }

    fn refuse(&mut self, text: &str) {
        if self.inc.refused.is_some() {
            return;
        }
        let text = refusal(text);
        self.inc.refused = Some(Error::usage(text));
        self.say(Frame::Refuse(text.len()), text.as_bytes());
        let _ = self.push(); // what does not fit now goes with later polls
    }
}
