//! The receiving end over TCP.

use std::net::TcpStream;

use oxccl_types::{Error, Result};

use super::frame::{BACKWARD, Backward, FORWARD, Forward};
use super::raw::{self, Range};
use super::{TcpOptions, closed, garbage, lost, prepare};
use crate::transport::{Arrival, Header, REFUSAL_BYTES, RecvEnd, no_room, refusal};

/// Bytes read ahead beyond what is known to come: the next headers and small messages.
const AHEAD: usize = 4096;
/// Consumed frames after which an acknowledgement goes out although more is arriving.
const ACK_EVERY: u64 = 16;

/// The receiving end over a stream.
pub struct TcpReceiver {
    stream: TcpStream,
    options: TcpOptions,
    /// `ahead[ahead_at..ahead_end]` was read and not yet looked at.
    ahead: Box<[u8; AHEAD]>,
    ahead_at: usize,
    ahead_end: usize,
    /// What is left of the current frame.
    current: Option<Header>,
    /// The current arrival: `at..end` of the buffer is there, complete once `end == goal`.
    bounce: Box<[Line]>,
    at: usize,
    end: usize,
    goal: usize,
    consumed: u64,
    acked: u64,
    outbox: Outbox,
    goodbye: bool,
    refused: Option<Error>,
}

/// Storage of the bounce buffer.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// A backward frame that the kernel has not taken in full.
struct Outbox {
    bytes: [u8; BACKWARD + REFUSAL_BYTES],
    at: usize,
    end: usize,
}

impl Outbox {
    /// Add to what is to be written; only to an empty box, or a refusal behind a partial acknowledgement's 16 bytes.
    fn put(&mut self, frame: Backward, text: &[u8]) {
        self.bytes.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        let room = REFUSAL_BYTES - self.end.min(REFUSAL_BYTES);
        let text = &text[..text.len().min(room)];
        let frame = if let Backward::Refuse(_) = frame { Backward::Refuse(text.len()) } else { frame };
        self.bytes[self.end..][..BACKWARD].copy_from_slice(&frame.encode());
        self.bytes[self.end + BACKWARD..][..text.len()].copy_from_slice(text);
        self.end += BACKWARD + text.len();
    }
}

impl TcpReceiver {
    /// The receiving end over `stream`.
    ///
    /// # Errors
    /// When the stream's options cannot be set or `options` make no sense.
    pub fn new(stream: TcpStream, options: TcpOptions) -> Result<TcpReceiver> {
        prepare(&stream, &options)?;
        Ok(TcpReceiver {
            stream,
            ahead: Box::new([0; AHEAD]),
            ahead_at: 0,
            ahead_end: 0,
            current: None,
            bounce: vec![Line { _bytes: [0; 64] }; options.slot_bytes / 64].into(),
            at: 0,
            end: 0,
            goal: 0,
            consumed: 0,
            acked: 0,
            outbox: Outbox { bytes: [0; BACKWARD + REFUSAL_BYTES], at: 0, end: 0 },
            goodbye: false,
            refused: None,
            options,
        })
    }

    /// Read into `[dst, dst + len)` and, when that is full, ahead. Returns the bytes that reached `dst`, or `None`
    /// when nothing is there now.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    unsafe fn read(&mut self, dst: *mut u8, len: usize) -> Result<Option<usize>> {
        debug_assert!(self.ahead_at == self.ahead_end || len == 0);
        if self.ahead_at == self.ahead_end {
            (self.ahead_at, self.ahead_end) = (0, 0);
        }
        let free = &mut self.ahead[self.ahead_end..];
        let ranges = [Range::new(dst, len), Range::new(free.as_mut_ptr(), free.len())];
        // SAFETY: `dst` by contract, the rest is ours; nobody asks with both empty.
        match unsafe { raw::recv(&self.stream, &ranges) } {
            Ok(None) => Ok(None),
            Ok(Some(0)) if self.goodbye => Err(closed(&self.options.peer, "receiving")),
            Ok(Some(0)) => Err(lost(&self.options.peer, "receiving", None)),
            Ok(Some(n)) => {
                self.ahead_end += n.saturating_sub(len);
                Ok(Some(n.min(len)))
            }
            Err(_) if self.goodbye => Err(closed(&self.options.peer, "receiving")),
            Err(e) => Err(lost(&self.options.peer, "receiving", Some(&e))),
        }
    }

    /// The header of the current frame, or of the next one if its header is there.
    fn header(&mut self) -> Result<Option<Header>> {
        if let Some(e) = &self.refused {
            let e = e.clone();
            self.push()?;
            return Err(e);
        }
        while self.current.is_none() {
            if self.goodbye {
                return Err(closed(&self.options.peer, "receiving"));
            }
            let there = self.ahead_end - self.ahead_at;
            if there >= FORWARD {
                let frame = Forward::decode(&self.ahead[self.ahead_at..][..FORWARD]);
                self.ahead_at += FORWARD;
                match frame {
                    Ok(Forward::Data(header)) => self.current = Some(header),
                    Ok(Forward::Goodbye) => self.goodbye = true,
                    Err(what) => {
                        // Stay at the bad frame: the stream has no meaning behind it.
                        self.ahead_at -= FORWARD;
                        return Err(garbage(&self.options.peer, "receiving", what));
                    }
                }
            } else {
                self.ahead.copy_within(self.ahead_at..self.ahead_end, 0);
                (self.ahead_at, self.ahead_end) = (0, there);
                // SAFETY: no destination.
                if unsafe { self.read(std::ptr::null_mut(), 0)? }.is_none() {
                    self.flush()?;
                    return Ok(None);
                }
            }
        }
        Ok(self.current)
    }

    /// Move up to `len` bytes that are there to `dst`: read ahead first, then from the kernel, until full or dry.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    unsafe fn fetch(&mut self, dst: *mut u8, len: usize) -> Result<usize> {
        let mut done = len.min(self.ahead_end - self.ahead_at);
        // SAFETY: `done` bytes are there, and fit by contract.
        unsafe { std::ptr::copy_nonoverlapping(self.ahead[self.ahead_at..].as_ptr(), dst, done) };
        self.ahead_at += done;
        while done < len {
            // SAFETY: the rest of `dst`.
            match unsafe { self.read(dst.add(done), len - done) } {
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
        let Some(header) = &mut self.current else { return };
        header.offset += bytes;
        header.len -= bytes;
        if header.len == 0 {
            self.current = None;
            self.consumed += 1;
            if self.consumed - self.acked >= ACK_EVERY {
                let _ = self.flush(); // a lost connection shows at the next poll, behind what has arrived
            }
        }
    }

    /// Write what is in the outbox; `true` when it is empty.
    fn push(&mut self) -> Result<bool> {
        while self.outbox.at < self.outbox.end {
            let rest = &self.outbox.bytes[self.outbox.at..self.outbox.end];
            // SAFETY: our own bytes.
            match unsafe { raw::send(&self.stream, &[Range::new(rest.as_ptr(), rest.len())]) } {
                Ok(0) => return Ok(false),
                Ok(n) => self.outbox.at += n,
                // The sender may have said goodbye and gone: it needs no acknowledgement, and what it sent still counts.
                Err(_) => self.outbox.at = self.outbox.end,
            }
        }
        Ok(true)
    }
}

impl RecvEnd for TcpReceiver {
    fn poll_header(&mut self) -> Result<Option<Header>> {
        self.header()
    }

    fn poll_recv(&mut self) -> Result<Option<Arrival>> {
        let Some(mut header) = self.header()? else { return Ok(None) };
        if self.goal == 0 {
            self.goal = header.len.min(self.options.slot_bytes as u64) as usize;
        }
        let buffer: *mut u8 = self.bounce.as_mut_ptr().cast();
        if self.end < self.goal {
            // SAFETY: inside the bounce buffer, of which no arrival was handed out yet.
            self.end += unsafe { self.fetch(buffer.add(self.end), self.goal - self.end)? };
            if self.end < self.goal {
                return Ok(None);
            }
        }
        header.len = (self.goal - self.at) as u64;
        // SAFETY: inside the bounce buffer.
        Ok(Some(Arrival { header, data: unsafe { buffer.add(self.at) } }))
    }

    fn consume(&mut self, bytes: u64) {
        if self.end < self.goal {
            return; // no arrival was handed out
        }
        let bytes = bytes.min((self.end - self.at) as u64);
        self.at += bytes as usize;
        if self.at == self.goal {
            (self.at, self.end, self.goal) = (0, 0, 0);
        }
        self.advance(bytes);
    }

    fn release(&mut self) {
        if self.current.is_some_and(|h| h.len == 0) || self.end > self.at {
            self.consume(u64::MAX);
        }
    }

    unsafe fn poll_recv_into(&mut self, dst: *mut u8, capacity: usize) -> Result<Option<Header>> {
        let Some(mut header) = self.header()? else { return Ok(None) };
        if header.len > 0 && capacity == 0 {
            return Err(no_room(&header));
        }
        let want = header.len.min(capacity as u64) as usize;
        let mut done = want.min(self.end - self.at);
        let buffer: *const u8 = self.bounce.as_ptr().cast();
        // SAFETY: `done` bytes wait in the bounce buffer, and fit by contract.
        unsafe { std::ptr::copy_nonoverlapping(buffer.add(self.at), dst, done) };
        self.at += done;
        if self.at == self.end {
            (self.at, self.end, self.goal) = (0, 0, 0);
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
        if !self.push()? {
            return Ok(false);
        }
        if self.acked < self.consumed {
            self.acked = self.consumed;
            self.outbox.put(Backward::Ack(self.acked), &[]);
            return self.push();
        }
        Ok(true)
    }

    fn refuse(&mut self, text: &str) {
        if self.refused.is_some() {
            return;
        }
        let text = refusal(text);
        self.refused = Some(Error::usage(text));
        self.outbox.put(Backward::Refuse(text.len()), text.as_bytes());
        let _ = self.push(); // what does not fit now goes with later polls
    }
}

impl Drop for TcpReceiver {
    fn drop(&mut self) {
        if self.flush().is_ok_and(|all| all) && self.refused.is_none() {
            self.outbox.put(Backward::Goodbye, &[]);
            let _ = self.push();
        }
    }
}
