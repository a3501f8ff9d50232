//! The sending end of a local connection.

use std::ops::Range;
use std::sync::Arc;

use oxccl_kernels as kernels;
use oxccl_sys::prefetch;
use oxccl_types::{Error, Result};

use super::area::{INLINE_AT, INLINE_BYTES, LocalArea};
use super::one_way::{self, OneWay};
use super::policy::{Mapper, Policy, Route};
use super::trade::Trade;
use super::{Kind, LEN_BITS, meta};
use crate::pages::Pages;
use crate::transport::passage::Passage;
use crate::transport::ring::Producer;
use crate::transport::{Header, Peer, SendEnd, Ticket};

/// The kind of a record, and the two words that say where its bytes are.
type Place = (Kind, u64, u64);

/// The sending end over a [`LocalArea`].
pub struct LocalSender {
    ring: Producer<LocalArea>,
    policy: Policy,
    mapper: Option<Arc<dyn Mapper>>,
    trade: Option<Trade<LocalArea>>,
    /// Where slots change hands and messages may go round.
    one_way: Option<OneWay>,
    peer: Peer,
    /// Per record: the last ticket up to it whose bytes stayed in the sender's memory; 0 = none yet.
    borrowed: Box<[u64]>,
    last_borrowed: u64,
    pages: Pages,
    /// It is known of the message whose first bytes are not accepted yet.
    judged: bool,
    /// The bytes of the message that is being sent that are read by the kernel from large pages.
    large: Range<u64>,
    /// Records of the peer that this rank had received when its last message began that is long for both ways.
    came: u64,
    /// Messages that took a small slot, up to [`OFTEN`].
    small: u8,
    /// How messages go to slots, and those that go round in them.
    passage: Passage,
    round: Passage,
}

/// A connection that carries that many small messages will carry more: it gets all its small slots then.
const OFTEN: u8 = 3;

/// Records of a message of the peer that is long for both ways, at least.
const RECORDS: u64 = 16;

/// Bytes of messages that lie at the beginning of their slots while copies go past the caches.
const FEW: usize = 8 << 10;

impl LocalSender {
    /// The sending end in `area` towards `peer`. `mapper` is needed for the direct route between processes.
    pub fn new(area: LocalArea, policy: Policy, mapper: Option<Arc<dyn Mapper>>, peer: Peer) -> LocalSender {
        let borrowed = vec![0; area.records()].into();
        let ring = Producer::new(area, area.records());
        let pages = Pages::new(policy.large_pages);
        LocalSender {
            ring,
            policy,
            mapper,
            trade: None,
            one_way: None,
            peer,
            borrowed,
            last_borrowed: 0,
            pages,
            judged: false,
            large: 0..0,
            came: 0,
            small: 0,
            passage: Passage::by_slots(),
            round: Passage::by_places_in_turn(),
        }
    }

    /// Slots change hands with those of `back`, the connection from the peer, whose receiver must [do the same]
    /// (super::LocalReceiver::trading). `lower`: this is the end with the lower rank.
    /// `round`: messages that go one way only go round inside of their slots.
    #[must_use]
    pub fn trading(mut self, back: LocalArea, lower: bool, round: bool) -> LocalSender {
        self.trade = Trade::new(*self.area(), back, lower);
        self.one_way = (self.trade.is_some() && round).then(OneWay::default);
        self
    }

    fn area(&self) -> &LocalArea {
        self.ring.cells()
    }

    /// The kind of record and its two words for the first bytes of `len > 0` at `data` of the message of `header`, and how
    /// many they are at most.
    fn place(&mut self, header: &Header, data: *const u8, len: usize) -> Result<(Place, usize)> {
        if self.policy.allows(Route::Direct, len, header) {
            if self.policy.same_process {
                return Ok(((Kind::Address, data as u64, 0), len));
            }
            if let Some(at) = self.mapper.as_ref().and_then(|m| m.export(data, len)) {
                return Ok(((Kind::Exported, at.segment, at.offset), len));
            }
        }
        let kernel = self.policy.allows(Route::Cma, len, header);
        let (large, most) = self.large_part(header, data, len);
        if kernel || large {
            return Ok(((Kind::Cma, data as u64, 0), if kernel { len } else { most }));
        }
        if self.policy.allows(Route::Slots, len, header) {
            return Ok(((Kind::Slot, 0, 0), most));
        }
        Err(Error::usage(format!(
            "{len} bytes at {data:p} for {} cannot go by the forced route {:?}: the memory was not allocated by this \
             library; allocate it with ncclMemAlloc or do not force the route",
            self.peer, self.policy.forced
        )))
    }

    /// Whether the next bytes of the message of `header`, of which `len` at `data` are left, are read by the kernel from large
    /// pages, and up to how many that holds of. The ends of a buffer lie on small ones as a rule, where the kernel takes
    /// several times as long.
    fn large_part(&mut self, header: &Header, data: *const u8, len: usize) -> (bool, usize) {
        self.judge(header, data, len);
        let next = match header.offset {
            at if at < self.large.start => self.large.start - at,
            at if at < self.large.end => return (true, len.min((self.large.end - at) as usize)),
            _ => return (false, len),
        };
        (false, len.min(next as usize))
    }

    /// Finds out which bytes of the message of `header` lie on large pages, once: while there is no room for its first bytes
    /// they are offered again.
    fn judge(&mut self, header: &Header, data: *const u8, len: usize) {
        if header.offset == 0 && !self.judged {
            self.judged = true;
            let slots = self.is_long(header) && self.goes_both_ways();
            let wanted = self.policy.cma_large_from.is_some_and(|from| len >= from) && !slots;
            let wanted = (wanted || self.policy.outgrows(header)) && !header.copied;
            let large = if wanted { self.pages.used(data, len) } else { None };
            self.large = large.map_or(0..0, |large| large.start as u64..large.end as u64);
        }
    }

    /// Whether a message is too long for the kernel where the peer sends such, too.
    fn is_long(&self, header: &Header) -> bool {
        header.total >= self.policy.cma_both_ways_below
    }

    /// Whether a long message of the peer came by slots since the last one of this rank began. Short replies are none.
    fn goes_both_ways(&mut self) -> bool {
        let came = self.trade.as_ref().map_or(0, Trade::came);
        came - std::mem::replace(&mut self.came, came) >= RECORDS
    }

    /// Whether the receiver is done with the slot for `len` bytes of the next record, which is reserved.
    #[inline]
    fn is_slot_free(&mut self, len: usize) -> bool {
        let slots = self.area().slots() as u64;
        self.area().is_small(len) || self.ring.poll_consumed((self.ring.published() + 1).saturating_sub(slots))
    }

    /// Fill record `index` and hand it over: the bytes that it took; `None` while there is no slot for them.
    ///
    /// # Safety
    /// As `poll_send`, and `index` was reserved.
    unsafe fn put(&mut self, index: usize, header: &Header, data: *const u8, len: usize) -> Result<Option<usize>> {
        let whole = header.offset == 0 && header.total == len as u64;
        if len == 0 || (whole && len <= INLINE_BYTES && self.inlines()) {
            // SAFETY: by contract, and it fits.
            unsafe { self.put_inline(index, header, data, len) };
            return Ok(Some(len));
        }
        let (place, len) = self.place(header, data, len)?;
        // SAFETY: by contract; no more than there is.
        unsafe { self.put_at(index, header, data, len, place) }
    }

    /// As [`put`](Self::put) of bytes that do not travel in their record: `place` says how they do.
    ///
    /// # Safety
    /// As `put`.
    #[inline]
    unsafe fn put_at(
        &mut self,
        index: usize,
        header: &Header,
        data: *const u8,
        len: usize,
        (kind, mut a, mut b): Place,
    ) -> Result<Option<usize>> {
        let record = self.area().record(index);
        let write = |word: usize, value: u64| {
            // SAFETY: a reserved record of eight words is the sender's alone until it is published.
            unsafe { record.add(word).write(value) }
        };
        let mut accepted = len.min((1 << LEN_BITS) - 64);
        if kind == Kind::Slot {
            accepted = len.min(self.area().slot_bytes());
            if !self.is_slot_free(accepted) {
                return Ok(None);
            }
            // SAFETY: readable by contract; the slot of the reserved record is free.
            (a, b) = unsafe { self.fill_slot(index, data, accepted, header.total as usize) };
        } else {
            self.last_borrowed = self.ring.published() + 1;
        }
        write(4, header.total);
        write(5, header.offset);
        write(6, a);
        write(7, b);
        // SAFETY: the record is reserved, and the rest of it is filled.
        unsafe { self.hand_over(index, header, meta(kind, accepted)) };
        Ok(Some(accepted))
    }

    /// Copies `len` bytes of a message of `whole` to the slot of the next record, `index`; the words by which that says where.
    ///
    /// # Safety
    /// `data` is readable, and the slot free.
    #[inline]
    unsafe fn fill_slot(&mut self, index: usize, data: *const u8, len: usize, whole: usize) -> (u64, u64) {
        if self.small < OFTEN {
            self.count_small(len);
        }
        let Some(trade) = self.trade.filter(|_| !self.area().is_small(len)) else {
            // SAFETY: by contract.
            unsafe { self.passage.copy(self.area().slot(index, len), data, len, whole) };
            return (0, 0);
        };
        let at = self.lies(&trade, len);
        let number = trade.take(self.ring.published());
        trade.sent(self.ring.published());
        let passage = if at.is_some() { &mut self.round } else { &mut self.passage };
        // SAFETY: by contract; inside of the slot.
        let away = unsafe { passage.copy(trade.slot(number).add(at.unwrap_or(0)), data, len, whole) };
        (number, one_way::word(at, away))
    }

    /// Where in the slot of the next record a message of `len` bytes lies, if it goes round.
    #[inline]
    fn lies(&mut self, trade: &Trade<LocalArea>, len: usize) -> Option<usize> {
        let (area, record) = (*self.area(), self.ring.published());
        let way = self.one_way.as_mut()?;
        let place = record as usize & (area.slots() - 1);
        let at = way.next(place, trade.is_near(record), area.slot_bytes(), len)?;
        if way.begins() {
            area.populate_slots();
        }
        // Past the caches few lines are faster than many.
        Some(if self.round.is_away() && len <= FEW { 0 } else { at })
    }

    #[cold]
    fn count_small(&mut self, len: usize) {
        self.small += u8::from(self.area().is_small(len));
        if self.small == OFTEN {
            self.area().populate_small();
        }
    }

    /// Fills record `index` with a whole message of at most [`INLINE_BYTES`], and hands it over.
    ///
    /// # Safety
    /// As `poll_send`, and `index` was reserved.
    #[inline(always)]
    unsafe fn put_inline(&mut self, index: usize, header: &Header, data: *const u8, len: usize) {
        let to = self.area().record(index).cast::<u8>();
        // SAFETY: readable by contract; it fits between `INLINE_AT` and the end of the record, which is the sender's alone.
        unsafe {
            std::ptr::copy_nonoverlapping(data, to.add(INLINE_AT), len);
            self.hand_over(index, header, meta(Kind::Inline, len));
        }
    }

    /// Hands record `index` over, whose bytes, or where they lie, are written.
    ///
    /// # Safety
    /// `index` was reserved.
    #[inline(always)]
    unsafe fn hand_over(&mut self, index: usize, header: &Header, meta: u64) {
        self.judged = false;
        let record = self.area().record(index);
        // SAFETY: a reserved record of eight words is the sender's alone until it is published.
        unsafe {
            record.add(1).write(header.signature[0]);
            record.add(2).write(header.signature[1]);
            record.add(3).write(header.sequence);
        }
        self.borrowed[index] = self.last_borrowed;
        self.ring.publish(meta);
    }

    /// [`send_whole`](SendEnd::send_whole) of a message that travels in its record.
    ///
    /// # Safety
    /// As `send_whole`.
    #[inline]
    unsafe fn send_inline(&mut self, header: &Header, data: *const u8, len: usize) -> Result<bool> {
        self.area().check_refusal()?;
        let Some(index) = self.ring.reserve() else { return Ok(false) };
        // SAFETY: by contract; the record is reserved.
        unsafe { self.put_inline(index, header, data, len) };
        if let Some(next) = self.ring.free() {
            self.reclaim(next);
        }
        Ok(true)
    }

    /// Reclaims record `index`, which is free, from the receiver, which has looked at it.
    #[inline(always)]
    fn reclaim(&self, index: usize) {
        // SAFETY: a free record of eight words is the sender's alone until it is published: that the receiver is done with it was
        // seen. All but the first word, which holds the tag, are written anew before.
        unsafe { prefetch::reclaim(self.area().record(index).add(1)) };
    }

    /// Asks for the next record and the first `bytes` of its slot, where the receiver is known to have had its use of them:
    /// they come back from there until the next message. Not where the slot is written line by line, which does not read it.
    #[inline]
    fn ask_for_next(&self, bytes: usize) {
        if let Some(index) = self.ring.free() {
            self.reclaim(index);
            // A slot that changes hands is not yet known, and near by then.
            let stays = self.trade.is_none() || self.area().is_small(bytes);
            if stays && !kernels::writes_lines(bytes) {
                prefetch::all_for_write(self.area().slot(index, bytes), bytes);
            }
        }
    }

    /// Whether small messages may travel in their record: forcing a route without copies means all bytes.
    fn inlines(&self) -> bool {
        !matches!(self.policy.forced, Some(Route::Direct | Route::Cma))
    }
}

impl SendEnd for LocalSender {
    #[inline]
    unsafe fn poll_send(&mut self, header: &Header, data: *const u8, len: usize) -> Result<Option<(usize, Ticket)>> {
        self.area().check_refusal()?;
        debug_assert!(header.offset + len as u64 <= header.total);
        let Some(index) = self.ring.reserve() else { return Ok(None) };
        // An empty message has offset 0 of 0; an empty rest of a longer one would arrive as a second message.
        if len == 0 && header.total != 0 {
            return Err(Error::internal(format!(
                "nothing of a message of {} bytes is left at offset {}",
                header.total, header.offset
            )));
        }
        // SAFETY: by contract; the record is reserved.
        let accepted = unsafe { self.put(index, header, data, len)? };
        Ok(accepted.map(|n| (n, Ticket::new(self.ring.published()))))
    }

    #[inline]
    unsafe fn send_whole(&mut self, header: &Header, data: *const u8) -> Result<bool> {
        let len = header.total as usize;
        if len <= INLINE_BYTES && self.inlines() {
            // SAFETY: by contract.
            return unsafe { self.send_inline(header, data, len) };
        }
        let copied = match self.policy.forced {
            Some(route) => route == Route::Slots,
            None => !self.policy.allows(Route::Cma, len, header) && !self.pages.minds(len),
        };
        if !copied || len > self.area().slot_bytes() {
            return Ok(false);
        }
        self.area().check_refusal()?;
        let Some(index) = self.ring.reserve() else { return Ok(false) };
        // SAFETY: by contract; the record is reserved.
        if unsafe { self.put_at(index, header, data, len, (Kind::Slot, 0, 0))? }.is_none() {
            return Ok(false);
        }
        self.ask_for_next(len);
        Ok(true)
    }

    fn poll_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.area().check_refusal()?;
        let count = ticket.count().min(self.ring.published());
        if count + self.borrowed.len() as u64 <= self.ring.published() {
            return Ok(true); // its record was reused since
        }
        let last = self.borrowed[(count.wrapping_sub(1) as usize) & (self.borrowed.len() - 1)];
        Ok(self.ring.poll_consumed(last.min(count)))
    }

    fn poll_received(&mut self, ticket: Ticket) -> Result<bool> {
        self.area().check_refusal()?;
        Ok(self.ring.poll_consumed(ticket.count()))
    }

    fn slots(&self) -> usize {
        self.area().slots()
    }

    fn slot_bytes(&self) -> usize {
        self.area().slot_bytes()
    }

    fn kind(&self) -> &'static str {
        self.policy.kind()
    }
}
