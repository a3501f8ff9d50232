//! The shared memory of a local connection: layout and raw access.
//!
//! | offset | bytes | what | written by |
//! |---|---|---|---|
//! | 0 | 128 | word 0: records consumed | receiver, per record |
//! | 128 | 128 | word 0: length of the refusal's text + 1, 0 = none | receiver, once |
//! | 256 | 768 | text of the refusal | receiver, once |
//! | 1024 | 64 x slots, up to 128 | records | sender |
//! | then | slot bytes x slots | slots | sender |
//!
//! A record is one cache line of eight words: tag (lap, kind, length), signature (2), sequence, and then either 32
//! bytes of payload that are a whole message, or total, offset and two words that say where the bytes are.

use std::sync::atomic::{AtomicU64, Ordering};

use oxccl_types::{Error, Result};

use crate::transport::{REFUSAL_BYTES, refusal, ring};

/// Offset of the refusal's length word.
const REFUSAL_AT: usize = 128;
/// Offset of the refusal's text.
const TEXT_AT: usize = 256;
/// Offset of the first record.
const RECORDS_AT: usize = TEXT_AT + REFUSAL_BYTES;
/// Bytes of a record: a cache line.
pub(super) const RECORD: usize = 64;
/// Bytes of payload that fit in a record.
pub const INLINE_BYTES: usize = 32;
/// Where they lie in it.
pub(super) const INLINE_AT: usize = RECORD - INLINE_BYTES;
/// Alignment of the area: two cache lines, because processors fetch them in pairs.
pub const AREA_ALIGN: usize = 128;

/// The memory of one local connection. Zeroed memory is its initial state.
#[derive(Clone, Copy, Debug)]
pub struct LocalArea {
    base: *mut u8,
    slots: usize,
    slot_bytes: usize,
}

// SAFETY: an address without ownership; all shared words behind it are accessed atomically, all else is handed over
// by the ring's cursors.
unsafe impl Send for LocalArea {}

impl LocalArea {
    /// Bytes of memory for a connection of `slots` slots of `slot_bytes` each; a multiple of [`AREA_ALIGN`].
    pub const fn bytes(slots: usize, slot_bytes: usize) -> usize {
        (Self::slots_at(slots) + slots * slot_bytes).next_multiple_of(AREA_ALIGN)
    }

    const fn slots_at(slots: usize) -> usize {
        (RECORDS_AT + slots * RECORD).next_multiple_of(AREA_ALIGN)
    }

    /// The connection that lies at `base`. `slots` is a power of two, `slot_bytes` a multiple of 64 of at least 64;
    /// both are the same at both ends.
    ///
    /// # Errors
    /// `InternalError` when a number or the alignment is not as said or `bytes` is too small.
    ///
    /// # Safety
    /// `[base, base + bytes)` stays mapped while an end lives, was zeroed before the first end was made, and only the
    /// two ends of this connection use it.
    pub unsafe fn new(base: *mut u8, bytes: usize, slots: usize, slot_bytes: usize) -> Result<LocalArea> {
        let shape = slots.is_power_of_two() && slot_bytes > 0 && slot_bytes.is_multiple_of(64) && slots <= 1 << 16;
        if !shape || slot_bytes > 1 << 32 || !(base as usize).is_multiple_of(AREA_ALIGN) {
            return Err(Error::internal(format!(
                "a local connection of {slots} slots of {slot_bytes} bytes at {base:p}: slots must be a power of two \
                 up to 65536, slot bytes a multiple of 64, the address a multiple of {AREA_ALIGN}"
            )));
        }
        if bytes < Self::bytes(slots, slot_bytes) {
            return Err(Error::internal(format!(
                "a local connection of {slots} slots of {slot_bytes} bytes needs {} bytes, but was given {bytes}",
                Self::bytes(slots, slot_bytes)
            )));
        }
        Ok(LocalArea { base, slots, slot_bytes })
    }

    /// Number of slots.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= RECORDS_AT + self.slots * RECORD && at.is_multiple_of(8));
        // SAFETY: in the area, aligned, and these words are only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    /// Address of record `index`.
    #[inline]
    pub(super) fn record(&self, index: usize) -> *mut u64 {
        debug_assert!(index < self.slots);
        // SAFETY: below `slots`, so in the area.
        unsafe { self.base.add(RECORDS_AT + index * RECORD).cast() }
    }

    /// Address of slot `index`.
    #[inline]
    pub(super) fn slot(&self, index: usize) -> *mut u8 {
        debug_assert!(index < self.slots);
        // SAFETY: below `slots`, so in the area.
        unsafe { self.base.add(Self::slots_at(self.slots) + index * self.slot_bytes) }
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
