//! The shared memory of a local connection: layout and raw access.
//!
//! | offset | bytes | what | written by |
//! |---|---|---|---|
//! | 0 | 128 | word 0: records consumed; word 1: which slots were given | receiver, per record |
//! | 128 | 128 | word 0: length of the refusal's text + 1, 0 = none | receiver, once |
//! | 256 | 768 | text of the refusal | receiver, once |
//! | 1024 | 128 | what the sender's rank knows of slots that change hands (`trade`) | sender's rank |
//! | 1152 | 64 x records, up to 128 | records | sender |
//! | then | small slot bytes x records, if there are more records than slots | small slots | sender |
//! | then | slot bytes and an eighth or so x slots | slots | sender |
//!
//! A record is one cache line of eight words: tag (lap, kind, length), signature (2), sequence, and then either 32
//! bytes of payload that are a whole message, or total, offset and two words that say where the bytes are.

use std::sync::atomic::{AtomicU64, Ordering};

use oxccl_types::{Error, Result};

use super::trade::{self, Area};
use crate::transport::{REFUSAL_BYTES, refusal, ring};

/// Offset of the refusal's length word.
const REFUSAL_AT: usize = 128;
/// Offset of the refusal's text.
const TEXT_AT: usize = 256;
/// Offset of the word that says which slots the receiver gave, in the line of its count.
const GIVEN_AT: usize = 8;
/// Offset of the sender's own words.
const OWN_AT: usize = TEXT_AT + REFUSAL_BYTES;
/// Offset of the first record.
const RECORDS_AT: usize = OWN_AT + AREA_ALIGN;
/// Bytes of a record: a cache line.
pub(super) const RECORD: usize = 64;
/// Bytes of payload that fit in a record.
pub const INLINE_BYTES: usize = 32;
/// Where they lie in it.
pub(super) const INLINE_AT: usize = RECORD - INLINE_BYTES;
/// Alignment of the area: two cache lines, because processors fetch them in pairs.
pub const AREA_ALIGN: usize = 128;

/// The numbers of a connection, the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Slots, a power of two.
    pub slots: usize,
    /// Bytes of a slot, a multiple of 64.
    pub slot_bytes: usize,
    /// Records, a power of two, at least as many as slots: how many messages may be under way that need no slot. Where
    /// there are more than slots, each has a small slot of its own.
    pub records: usize,
    /// Bytes of a message up to which it goes by a small slot, at most [`Sizes::SMALL`].
    pub small: usize,
}

impl Sizes {
    /// Bytes of a small slot, of which no more are used than a slot has.
    pub const SMALL: usize = 2 << 10;

    /// As many records as slots.
    pub const fn new(slots: usize, slot_bytes: usize) -> Sizes {
        Sizes { slots, slot_bytes, records: slots, small: Self::SMALL }
    }

    /// Bytes of a message up to which it goes by the small slot of its record; 0 where there are none.
    const fn small_bytes(self) -> usize {
        if self.records == self.slots {
            0
        } else if self.slot_bytes < self.small {
            self.slot_bytes
        } else {
            self.small
        }
    }

    /// Bytes from one small slot to the next: the first lines of all do not share a set of the caches.
    const fn small_stride(self) -> usize {
        if self.records == self.slots {
            0
        } else if self.slot_bytes < Self::SMALL {
            self.slot_bytes + AREA_ALIGN
        } else {
            Self::SMALL + AREA_ALIGN
        }
    }

    const fn small_at(self) -> usize {
        (RECORDS_AT + self.records * RECORD).next_multiple_of(AREA_ALIGN)
    }

    /// Bytes from one slot to the next: the beginnings of all lie in different sets of the caches, so that messages which are
    /// shorter than a slot keep all of the cache.
    const fn slot_stride(self) -> usize {
        self.slot_bytes + (self.slot_bytes / self.slots).next_multiple_of(AREA_ALIGN) + AREA_ALIGN
    }

    const fn slots_at(self) -> usize {
        (self.small_at() + self.records * self.small_stride()).next_multiple_of(AREA_ALIGN)
    }

    fn are_possible(self) -> bool {
        let powers = self.slots.is_power_of_two() && self.records.is_power_of_two() && self.records >= self.slots;
        let slots = self.slot_bytes > 0 && self.slot_bytes.is_multiple_of(64) && self.slot_bytes <= 1 << 32;
        powers && slots && self.small <= Self::SMALL && self.records <= 1 << 16
    }
}

/// The memory of one local connection. Zeroed memory is its initial state.
#[derive(Clone, Copy, Debug)]
pub struct LocalArea {
    base: *mut u8,
    sizes: Sizes,
}

// SAFETY: an address without ownership; all shared words behind it are accessed atomically, all else is handed over
// by the ring's cursors.
unsafe impl Send for LocalArea {}

impl LocalArea {
    /// Bytes of memory for a connection of these sizes; a multiple of [`AREA_ALIGN`].
    pub const fn bytes(sizes: Sizes) -> usize {
        (sizes.slots_at() + sizes.slots * sizes.slot_stride()).next_multiple_of(AREA_ALIGN)
    }

    /// The connection that lies at `base`; its sizes are the same at both ends.
    ///
    /// # Errors
    /// `InternalError` when a number or the alignment is not as said or `bytes` is too small.
    ///
    /// # Safety
    /// `[base, base + bytes)` stays mapped while an end lives, was zeroed before the first end was made, and only the
    /// two ends of this connection use it.
    pub unsafe fn new(base: *mut u8, bytes: usize, sizes: Sizes) -> Result<LocalArea> {
        if !sizes.are_possible() || !(base as usize).is_multiple_of(AREA_ALIGN) {
            return Err(Error::internal(format!(
                "a local connection of {sizes:?} at {base:p}: slots and records must be powers of two, records at least as \
                 many as slots and up to 65536, slot bytes a multiple of 64, the address one of {AREA_ALIGN}"
            )));
        }
        if bytes < Self::bytes(sizes) {
            return Err(Error::internal(format!(
                "a local connection of {sizes:?} needs {} bytes, but was given {bytes}",
                Self::bytes(sizes)
            )));
        }
        Ok(LocalArea { base, sizes })
    }

    /// Number of slots.
    pub const fn slots(&self) -> usize {
        self.sizes.slots
    }

    /// Number of records.
    pub const fn records(&self) -> usize {
        self.sizes.records
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(&self) -> usize {
        self.sizes.slot_bytes
    }

    /// Whether `len` bytes fit into the small slot of their record: the record is then all that they need.
    #[inline]
    pub(super) const fn is_small(&self, len: usize) -> bool {
        len <= self.sizes.small_bytes()
    }

    /// Has the small slots in memory before they are used for the first time.
    #[cold]
    pub(super) fn populate_small(&self) {
        let bytes = self.sizes.records * self.sizes.small_stride();
        if bytes > 0 {
            // Inside the area.
            oxccl_sys::populate(self.base.wrapping_add(self.sizes.small_at()), bytes);
        }
    }

    /// Has all of the slots in memory before more of them is used than was.
    #[cold]
    pub(super) fn populate_slots(&self) {
        // Inside the area.
        let slots = self.base.wrapping_add(self.sizes.slots_at());
        oxccl_sys::populate(slots, self.sizes.slots * self.sizes.slot_stride());
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= RECORDS_AT + self.sizes.records * RECORD && at.is_multiple_of(8));
        // SAFETY: in the area, aligned, and these words are only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    /// Address of record `index`.
    #[inline]
    pub(super) fn record(&self, index: usize) -> *mut u64 {
        debug_assert!(index < self.sizes.records);
        // SAFETY: below `records`, so in the area.
        unsafe { self.base.add(RECORDS_AT + index * RECORD).cast() }
    }

    /// Address of the slot for `len` bytes of record `index`: its own small one, or else one of the slots, which go round
    /// more often than the records.
    #[inline]
    pub(super) fn slot(&self, index: usize, len: usize) -> *mut u8 {
        debug_assert!(index < self.sizes.records && len <= self.sizes.slot_bytes);
        if !self.is_small(len) {
            return self.long_slot(index & (self.sizes.slots - 1));
        }
        // SAFETY: below `records`, so in the area.
        unsafe { self.base.add(self.sizes.small_at() + index * self.sizes.small_stride()) }
    }

    /// Write the refusal, once; later ones are dropped.
    pub(super) fn refuse(&self, text: &str) {
        if self.word(REFUSAL_AT).load(Ordering::Relaxed) != 0 {
            return;
        }
        let text = refusal(text).as_bytes();
        for (i, part) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.word(TEXT_AT + 8 * i).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        // SYNC: refusal. The text is complete before its length is seen.
        self.word(REFUSAL_AT).store(text.len() as u64 + 1, Ordering::Release);
    }

    /// Fails with the refusal's text if there is one. The word's line is written at most once, so looking is cheap.
    #[inline]
    pub(super) fn check_refusal(&self) -> Result<()> {
        // SYNC: refusal. Read before the text.
        match self.word(REFUSAL_AT).load(Ordering::Acquire) {
            0 => Ok(()),
            n => Err(self.refused(n as usize - 1)),
        }
    }

    #[cold]
    fn refused(&self, len: usize) -> Error {
        let mut text = Vec::with_capacity(REFUSAL_BYTES);
        for i in 0..len.min(REFUSAL_BYTES).div_ceil(8) {
            text.extend(self.word(TEXT_AT + 8 * i).load(Ordering::Relaxed).to_le_bytes());
        }
        text.truncate(len);
        Error::usage(String::from_utf8_lossy(&text))
    }
}

impl ring::Cells for LocalArea {
    type Word = AtomicU64;
    #[inline]
    fn tag(&self, index: usize) -> &AtomicU64 {
        self.word(RECORDS_AT + index * RECORD)
    }
    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        self.word(0)
    }
}

impl trade::Area for LocalArea {
    type Own = AtomicU64;
    type Slot = *mut u8;
    #[inline]
    fn slots(&self) -> usize {
        self.sizes.slots
    }
    #[inline]
    fn slot_bytes(&self) -> usize {
        self.sizes.slot_bytes
    }
    #[inline]
    fn own_word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < AREA_ALIGN / 8);
        self.word(OWN_AT + 8 * index)
    }
    #[inline]
    fn given(&self) -> &AtomicU64 {
        self.word(GIVEN_AT)
    }
    #[inline]
    fn long_slot(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.sizes.slots);
        // SAFETY: below `slots`, so in the area.
        unsafe { self.base.add(self.sizes.slots_at() + index * self.sizes.slot_stride()) }
    }
}
