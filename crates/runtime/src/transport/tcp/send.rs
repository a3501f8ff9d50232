//! The sending end over TCP.

use std::net::TcpStream;

use oxccl_types::{Error, Result};

use super::frame::{BACKWARD, Backward, FORWARD, Forward};
use super::raw::{self, Range};
use super::{TcpOptions, closed, garbage, lost, prepare};
use crate::transport::{Header, REFUSAL_BYTES, SendEnd, Ticket};

/// Frames that one system call writes at most.
const BATCH: usize = 8;
/// Every so many accepted frames the sender looks for a refusal though nothing forces it to wait.
const LOOK_EVERY: u64 = 16;

/// The sending end over a stream.
pub struct TcpSender {
    stream: TcpStream,
    options: TcpOptions,
    /// Accepted frames that the kernel has not taken in full: `accepted - written` of them, by ticket modulo length.
    queue: Box<[Outgoing]>,
    /// One slot per frame of the queue: what the kernel did not take at once of a frame that fits a slot.
    kept: Box<[u8]>,
    accepted: u64,
    written: u64,
    /// Frames that the receiver has consumed.
    received: u64,
    /// Backward bytes that are no complete frame yet.
    inbox: Box<[u8; BACKWARD + REFUSAL_BYTES]>,
    inbox_len: usize,
    goodbye: bool,
    failed: Option<Error>,
}

/// A frame on its way into the kernel.
#[derive(Clone, Copy)]
struct Outgoing {
    header: [u8; FORWARD],
    data: *const u8,
    len: usize,
    /// Bytes of header and data that are written.
    done: usize,
}

// SAFETY: the queue's pointers are borrowed from the caller under the contract of `poll_send`, not tied to a thread.
unsafe impl Send for TcpSender {}

impl TcpSender {
    /// The sending end over `stream`.
    ///
    /// # Errors
    /// When the stream's options cannot be set or `options` make no sense.
    pub fn new(stream: TcpStream, options: TcpOptions) -> Result<TcpSender> {
        prepare(&stream, &options)?;
        let none = Outgoing { header: [0; FORWARD], data: std::ptr::null(), len: 0, done: 0 };
        Ok(TcpSender {
            stream,
            queue: vec![none; options.slots].into(),
            // Zeroed pages cost nothing before the first frame that the kernel does not take whole.
            kept: vec![0; options.slots * options.slot_bytes].into(),
            options,
            accepted: 0,
            written: 0,
            received: 0,
            inbox: Box::new([0; BACKWARD + REFUSAL_BYTES]),
            inbox_len: 0,
            goodbye: false,
            failed: None,
        })
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remember `e` for all later calls.
    #[cold]
    fn fail(&mut self, e: Error) -> Error {
        self.failed.get_or_insert(e).clone()
    }

    fn full(&self) -> bool {
        self.accepted - self.written == self.queue.len() as u64
    }

    /// Write what the kernel takes now.
    fn push(&mut self) -> Result<()> {
        while self.written < self.accepted {
            let mut ranges = [Range::EMPTY; 2 * BATCH];
            let frames = (self.accepted - self.written).min(BATCH as u64);
            let mut offered = 0;
            for i in 0..frames {
                let f = &self.queue[((self.written + i) % self.queue.len() as u64) as usize];
                let head = f.done.min(FORWARD);
                let body = f.done - head;
                ranges[2 * i as usize] = Range::new(f.header[head..].as_ptr(), FORWARD - head);
                ranges[2 * i as usize + 1] = Range::new(f.data.wrapping_add(body), f.len - body);
                offered += FORWARD + f.len - f.done;
            }
            // SAFETY: headers are ours, data is borrowed from the caller until done.
            let n = match unsafe { raw::send(&self.stream, &ranges[..2 * frames as usize]) } {
                Ok(n) => n,
                Err(e) => return Err(self.write_failed(&e)),
            };
            self.wrote(n);
            if n < offered {
                break;
            }
        }
        Ok(())
    }

    /// Copies what the kernel left of the newest frame, if it fits a slot, so that its source is free.
    fn keep(&mut self) {
        let at = ((self.accepted - 1) % self.queue.len() as u64) as usize;
        let (f, room) = (&mut self.queue[at], self.options.slot_bytes);
        if self.written == self.accepted || f.len > room {
            return;
        }
        let sent = f.done.saturating_sub(FORWARD);
        let slot = self.kept[at * room..][..room].as_mut_ptr();
        // SAFETY: `[data, data + len)` is readable by the contract of `poll_send`; the slot has `room >= len` bytes and
        // belongs to this frame until it is written.
        unsafe { std::ptr::copy_nonoverlapping(f.data.add(sent), slot.add(sent), f.len - sent) };
        f.data = slot;
    }

    /// Book `n` written bytes.
    fn wrote(&mut self, mut n: usize) {
        while n > 0 {
            let at = (self.written % self.queue.len() as u64) as usize;
            let f = &mut self.queue[at];
            let step = n.min(FORWARD + f.len - f.done);
            f.done += step;
            n -= step;
            if f.done == FORWARD + f.len {
                self.written += 1;
            }
        }
    }

    /// The peer may have said why before it closed: read that first.
    #[cold]
    fn write_failed(&mut self, e: &std::io::Error) -> Error {
        if let Err(said) = self.look() {
            return said;
        }
        let e = lost(&self.options.peer, "sending", Some(e));
        self.fail(e)
    }

    /// Read what the receiver said.
    fn look(&mut self) -> Result<()> {
        self.check()?;
        while !self.goodbye {
            let room = &mut self.inbox[self.inbox_len..];
            let range = Range::new(room.as_mut_ptr(), room.len());
            // SAFETY: the free part of our buffer, never empty: a full buffer holds at least one complete frame.
            match unsafe { raw::recv(&self.stream, &[range]) } {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => {
                    let e = lost(&self.options.peer, "sending", None);
                    return Err(self.fail(e));
                }
                Ok(Some(n)) => self.inbox_len += n,
                Err(e) => {
                    let e = lost(&self.options.peer, "sending", Some(&e));
                    return Err(self.fail(e));
                }
            }
            self.parse()?;
        }
        if self.received < self.accepted {
            let e = closed(&self.options.peer, "sending");
            return Err(self.fail(e));
        }
        Ok(())
    }

    /// Take the complete frames out of the inbox.
    fn parse(&mut self) -> Result<()> {
        let mut at = 0;
        while self.inbox_len - at >= BACKWARD {
            let frame = Backward::decode(&self.inbox[at..at + BACKWARD]);
            match frame {
                Ok(Backward::Ack(count)) if count >= self.received && count <= self.written => self.received = count,
                Ok(Backward::Goodbye) => self.goodbye = true,
                Ok(Backward::Refuse(len)) if self.inbox_len - at < BACKWARD + len => break,
                Ok(Backward::Refuse(len)) => {
                    let text = String::from_utf8_lossy(&self.inbox[at + BACKWARD..][..len]).into_owned();
                    return Err(self.fail(Error::usage(text)));
                }
                Ok(Backward::Ack(_)) => return Err(self.bad_frame("acknowledgement of what was not sent")),
                Err(what) => return Err(self.bad_frame(what)),
            }
            at += BACKWARD;
        }
        self.inbox.copy_within(at..self.inbox_len, 0);
        self.inbox_len -= at;
        Ok(())
    }

    #[cold]
    fn bad_frame(&mut self, what: &str) -> Error {
        let e = garbage(&self.options.peer, "sending", what);
        self.fail(e)
    }
}

impl SendEnd for TcpSender {
    unsafe fn poll_send(&mut self, header: &Header, data: *const u8, len: usize) -> Result<Option<(usize, Ticket)>> {
        self.check()?;
        if self.full() {
            self.push()?;
        }
        if self.full() || self.accepted.is_multiple_of(LOOK_EVERY) {
            self.look()?;
        }
        if self.full() {
            return Ok(None);
        }
        if len == 0 && header.total != 0 {
            return Err(Error::internal(format!(
                "nothing of a message of {} bytes is left at offset {}",
                header.total, header.offset
            )));
        }
        let header = Forward::Data(Header { len: len as u64, ..*header }).encode();
        self.queue[(self.accepted % self.queue.len() as u64) as usize] = Outgoing { header, data, len, done: 0 };
        self.accepted += 1;
        self.push()?;
        self.keep();
        Ok(Some((len, Ticket::new(self.accepted))))
    }

    fn poll_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.check()?;
        if self.written < ticket.count() {
            self.push()?;
            if self.written < ticket.count() {
                self.look()?;
            }
        }
        Ok(self.written >= ticket.count())
    }

    fn poll_received(&mut self, ticket: Ticket) -> Result<bool> {
        self.check()?;
        if self.received < ticket.count() {
            self.push()?;
            self.look()?;
        }
        Ok(self.received >= ticket.count())
    }

    fn flush(&mut self) -> Result<bool> {
        if self.written < self.accepted {
            self.poll_done(Ticket::new(self.accepted))?;
        }
        Ok(self.written == self.accepted)
    }

    fn poll_closable(&mut self) -> Result<bool> {
        // Closing a socket with unread acknowledgements resets it, and what the peer has not read yet is lost.
        self.poll_received(Ticket::new(self.accepted))
    }

    fn slots(&self) -> usize {
        self.queue.len()
    }

    fn slot_bytes(&self) -> usize {
        self.options.slot_bytes
    }

    fn kind(&self) -> &'static str {
        "tcp"
    }
}

impl Drop for TcpSender {
    fn drop(&mut self) {
        if self.failed.is_some() || self.look().is_err() || self.written < self.accepted {
            return; // a goodbye inside a frame would be taken for data
        }
        let frame = Forward::Goodbye.encode();
        // SAFETY: our own bytes. If they do not fit now, the peer finds an end without goodbye, which errs to the
        // side of an error.
        let _ = unsafe { raw::send(&self.stream, &[Range::new(frame.as_ptr(), FORWARD)]) };
    }
}
