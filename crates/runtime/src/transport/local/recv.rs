//! The receiving end of a local connection.

use std::sync::Arc;

use oxccl_sys::prefetch;
use oxccl_sys::sync::pause_between;
use oxccl_types::{Error, Result};

use super::area::{INLINE_AT, INLINE_BYTES, LocalArea};
use super::one_way;
use super::policy::{Exported, Mapper};
use super::trade::Trade;
use super::{Kind, cma, split_meta};
use crate::pages::Pages;
use crate::transport::passage;
use crate::transport::ring::Consumer;
use crate::transport::{Arrival, Header, Peer, RecvEnd, no_room};

/// What a receiver needs to know about its sender.
pub struct LocalReceiverOptions {
    /// The sender.
    pub peer: Peer,
    /// Maps what the sender exports; needed for the direct route between processes.
    pub mapper: Option<Arc<dyn Mapper>>,
    /// Process id of the sender as seen from here; needed for the cma route.
    pub pid: Option<u32>,
    /// Whether the sender lives in this process.
    pub same_process: bool,
    /// Put what long messages are received into on large pages, where the kernel copies them.
    pub large_pages: bool,
}

/// The receiving end over a [`LocalArea`].
pub struct LocalReceiver {
    ring: Consumer<LocalArea>,
    options: LocalReceiverOptions,
    trade: Option<Trade<LocalArea>>,
    current: Option<Current>,
    /// Where the kernel puts the bytes of a cma record for `poll_recv`; one slot, empty without cma.
    bounce: Box<[Line]>,
    /// How many bytes of the current record's rest are in `bounce`, and where they begin.
    bounced: Option<(usize, usize)>,
    pages: Pages,
}

/// Bytes of a message in a slot up to which it is asked for while its record is awaited. Of longer ones the sender would lose
/// more lines that it has yet to write.
const ASKED: usize = 256;

/// Storage of the bounce buffer.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// The record at the head of the ring.
#[derive(Clone, Copy)]
struct Current {
    /// What is left of it.
    header: Header,
    /// Where the rest lies: here, or for a cma record in the sender.
    data: *const u8,
    cma: bool,
    /// Nothing of it was taken yet.
    fresh: bool,
    /// The number of its slot, if that changes hands.
    slot: Option<u64>,
    /// It goes round by way of the caches, see `one_way`.
    round: bool,
}

// SAFETY: the pointers belong to the receiver or lie in memory that is mapped as long as it lives.
unsafe impl Send for LocalReceiver {}

impl LocalReceiver {
    /// The receiving end in `area`.
    pub fn new(area: LocalArea, options: LocalReceiverOptions) -> LocalReceiver {
        let lines = if options.pid.is_some() { area.slot_bytes() / 64 } else { 0 };
        LocalReceiver {
            ring: Consumer::new(area, area.records()),
            pages: Pages::new(options.large_pages),
            options,
            trade: None,
            current: None,
            bounce: vec![Line { _bytes: [0; 64] }; lines].into(),
            bounced: None,
        }
    }

    /// As [`LocalSender::trading`](super::LocalSender::trading); `out`: the connection to the peer.
    #[must_use]
    pub fn trading(mut self, out: LocalArea, lower: bool) -> LocalReceiver {
        self.trade = Trade::new(out, *self.area(), lower);
        self
    }

    fn area(&self) -> &LocalArea {
        self.ring.cells()
    }

    /// How slots of messages of `len` bytes change hands.
    #[inline]
    fn traded(&self, len: usize) -> Option<Trade<LocalArea>> {
        self.trade.filter(|_| !self.area().is_small(len))
    }

    /// The record at the head, decoded once.
    #[inline]
    fn current(&mut self) -> Result<Option<Current>> {
        self.area().check_refusal()?;
        if self.current.is_none()
            && let Some((index, meta)) = self.ring.peek()
        {
            self.current = Some(self.decode(index, meta)?);
        }
        Ok(self.current)
    }

    /// The record at the head of the ring, of a message of `len` bytes, looked for `polls` times. With each look what lies in a
    /// slot is asked for as well, so that it comes with the record and not after it.
    #[inline]
    fn peek_for(&self, polls: u32, len: usize) -> Option<(usize, u64)> {
        let mut looks = 0..polls.max(1);
        if len <= INLINE_BYTES || len > ASKED.min(self.area().slot_bytes()) {
            return looks.find_map(|poll| {
                pause_between(poll);
                self.ring.peek()
            });
        }
        let next = self.ring.next();
        let (record, slot) = (self.area().record(next).cast(), self.area().slot(next, len));
        looks.find_map(|poll| {
            pause_between(poll);
            prefetch::for_read(record);
            prefetch::all_for_read(slot, len);
            self.ring.peek()
        })
    }

    /// Where the bytes of record `index` lie, if they came with it; `slot`: the number of one that changes hands, and how far behind
    /// its beginning.
    #[inline]
    fn copied(&self, index: usize, kind: Option<Kind>, len: u64, slot: Option<(u64, usize)>) -> Option<*const u8> {
        match kind {
            Some(Kind::Inline) if len <= INLINE_BYTES as u64 => {
                // SAFETY: inside the record.
                Some(unsafe { self.area().record(index).cast::<u8>().add(INLINE_AT) })
            }
            Some(Kind::Slot) if len <= self.area().slot_bytes() as u64 => match (self.trade, slot) {
                (Some(trade), Some((number, at))) => self.traded_at(trade, number, at, len as usize),
                _ => Some(self.area().slot(index, len as usize)),
            },
            _ => None,
        }
    }

    /// Where `len` bytes lie that begin `at` bytes behind the beginning of slot `number`, if those are inside of it.
    #[inline]
    fn traded_at(&self, trade: Trade<LocalArea>, number: u64, at: usize, len: usize) -> Option<*const u8> {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.area().slot_bytes());
        // SAFETY: inside of the slot.
        inside.then(|| unsafe { trade.slot(number).add(at).cast_const() })
    }

    fn decode(&self, index: usize, meta: u64) -> Result<Current> {
        let record = self.area().record(index);
        // SAFETY: the tag was seen, so the record is complete and stays until released.
        let read = |word: usize| unsafe { record.add(word).read() };
        let (kind, len) = split_meta(meta);
        let mut header =
            Header { signature: [read(1), read(2)], sequence: read(3), total: len, len, ..Header::default() };
        let slot = if kind == Some(Kind::Slot) { self.traded(len as usize).map(|_| read(6)) } else { None };
        let (at, round) = if slot.is_some() { one_way::read(read(7)) } else { (0, false) };
        let copied = self.copied(index, kind, len, slot.map(|number| (number, at)));
        if let (Some(Kind::Inline), Some(data)) = (kind, copied) {
            return Ok(Current { header, data, cma: false, fresh: true, slot, round });
        }
        header.total = read(4);
        header.offset = read(5);
        let (a, b) = (read(6), read(7));
        let fits = header.offset.checked_add(len).is_some_and(|end| end <= header.total);
        let data = match kind {
            _ if !fits => return Err(self.corrupt(meta)),
            Some(Kind::Slot) => copied.ok_or_else(|| self.corrupt(meta))?,
            Some(Kind::Address) if self.options.same_process => a as *const u8,
            Some(Kind::Cma) if self.options.pid.is_some() => a as *const u8,
            Some(Kind::Exported) => match &self.options.mapper {
                Some(m) => m.import(self.options.peer.rank, Exported { segment: a, offset: b }, len as usize)?,
                None => return Err(self.corrupt(meta)),
            },
            _ => return Err(self.corrupt(meta)),
        };
        Ok(Current { header, data, cma: kind == Some(Kind::Cma), fresh: true, slot, round })
    }

    #[cold]
    fn corrupt(&self, meta: u64) -> Error {
        Error::internal(format!(
            "a record from {} makes no sense here (tag {meta:#x}): its ends were set up differently, or something wrote \
             over the shared memory of the connection",
            self.options.peer
        ))
    }

    /// The kernel will put a message of `len` bytes at `dst`, of which the caller may take a part at a time: it goes on behind
    /// the last as a rule, and where it does not nothing is lost. Memory of this library is as it should be.
    #[cold]
    fn prepare(&mut self, dst: *mut u8, len: usize) {
        if self.options.mapper.as_ref().is_some_and(|m| m.export(dst, len).is_none()) {
            self.pages.used(dst, len);
        }
    }

    /// Bytes `[data, data + len)` of the sender to `dst`.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes.
    unsafe fn read_sender(&self, data: *const u8, dst: *mut u8, len: usize) -> Result<()> {
        let Some(pid) = self.options.pid else { return Err(self.corrupt(0)) };
        // SAFETY: by contract; the sender's side is checked by the kernel.
        unsafe { oxccl_sys::cma::read(pid, dst, data as u64, len) }
            .map_err(|e| cma::explain(&self.options.peer, len, &e))
    }
}

impl RecvEnd for LocalReceiver {
    fn poll_header(&mut self) -> Result<Option<Header>> {
        Ok(self.current()?.map(|c| c.header))
    }

    #[inline]
    fn poll_recv(&mut self) -> Result<Option<Arrival>> {
        let Some(Current { mut header, mut data, cma, .. }) = self.current()? else { return Ok(None) };
        if cma {
            let (at, len) = match self.bounced {
                Some(there) => there,
                None => {
                    let len = header.len.min(self.area().slot_bytes() as u64) as usize;
                    let dst = self.bounce.as_mut_ptr().cast();
                    // SAFETY: the bounce buffer has `slot_bytes` bytes and nobody reads it now.
                    unsafe { self.read_sender(data, dst, len)? };
                    *self.bounced.insert((0, len))
                }
            };
            header.len = len as u64;
            // SAFETY: inside the bounce buffer.
            data = unsafe { self.bounce.as_ptr().cast::<u8>().add(at) };
        }
        Ok(Some(Arrival { header, data }))
    }

    #[inline]
    fn consume(&mut self, bytes: u64) {
        let Some(current) = &mut self.current else { return };
        let bytes = bytes.min(current.header.len);
        current.header.offset += bytes;
        current.header.len -= bytes;
        current.fresh = false;
        current.data = current.data.wrapping_add(bytes as usize);
        self.bounced = match self.bounced {
            Some((at, len)) if (bytes as usize) < len => Some((at + bytes as usize, len - bytes as usize)),
            _ => None,
        };
        if current.header.len == 0 {
            if let (Some(trade), Some(slot)) = (self.trade, current.slot) {
                trade.received(self.ring.consumed(), slot);
            }
            self.current = None;
            self.ring.release();
        }
    }

    fn release(&mut self) {
        let bytes = match (self.bounced, &self.current) {
            (Some((_, len)), _) => len as u64,
            (None, Some(current)) => current.header.len,
            (None, None) => return,
        };
        self.consume(bytes);
    }

    unsafe fn poll_recv_into(&mut self, dst: *mut u8, capacity: usize) -> Result<Option<Header>> {
        let Some(Current { mut header, data, cma, fresh, round, .. }) = self.current()? else { return Ok(None) };
        if header.len > 0 && capacity == 0 {
            return Err(no_room(&header));
        }
        header.len = header.len.min(capacity as u64);
        let len = header.len as usize;
        if cma {
            if fresh && self.pages.minds(header.total as usize) {
                // What came before it lies before it, as a rule; where it does not nothing is lost.
                self.prepare(dst.wrapping_sub(header.offset as usize), header.total as usize);
            }
            // SAFETY: `dst` has `capacity >= len` bytes by contract.
            unsafe { self.read_sender(data, dst, len)? };
        } else {
            // SAFETY: as above; the record's bytes are readable until consumed.
            unsafe { passage::fetch(dst, data, len, header.total as usize, !round) };
        }
        self.consume(header.len);
        Ok(Some(header))
    }

    #[inline]
    unsafe fn recv_whole(&mut self, expected: &Header, dst: *mut u8, polls: u32) -> Result<bool> {
        self.area().check_refusal()?;
        if self.current.is_some() {
            return Ok(false);
        }
        let Some((index, meta)) = self.peek_for(polls, expected.total as usize) else { return Ok(false) };
        let record = self.area().record(index);
        // SAFETY: the tag was seen, so the record is complete and stays until released.
        let read = |word: usize| unsafe { record.add(word).read() };
        // Where the bytes lie follows from what is expected, so the processor need not wait for the record to ask for them. It
        // would where the compiler takes the length in the record, which is the same.
        let len = std::hint::black_box(expected.total as usize);
        let (there, data, round) = match len <= INLINE_BYTES {
            // SAFETY: inside the record.
            true => (Kind::Inline, unsafe { record.cast::<u8>().add(INLINE_AT).cast_const() }, false),
            false if len > self.area().slot_bytes() => return Ok(false),
            false => match self.traded(len) {
                Some(trade) => {
                    let (at, round) = one_way::read(read(7));
                    let Some(data) = self.traded_at(trade, read(6), at, len) else { return Ok(false) };
                    (Kind::Slot, data, round)
                }
                None => (Kind::Slot, self.area().slot(index, len).cast_const(), false),
            },
        };
        let whole = there == Kind::Inline || read(4) == expected.total;
        if !whole || split_meta(meta) != (Some(there), expected.total) {
            return Ok(false);
        }
        if [read(1), read(2)] != expected.signature || read(3) != expected.sequence {
            return Ok(false);
        }
        // SAFETY: `dst` has as many bytes by contract; those of the record or slot are readable until released.
        unsafe { passage::fetch(dst, data, len, len, !round) };
        if let (Kind::Slot, Some(trade)) = (there, self.traded(len)) {
            trade.received(self.ring.consumed(), read(6));
        }
        self.ring.release();
        Ok(true)
    }

    fn refuse(&mut self, text: &str) {
        self.area().refuse(text);
        self.current = None;
        self.bounced = None;
    }
}
