//! The cursors of a single-producer single-consumer ring of records: who may touch which record when.
//!
//! A record carries a *tag*: 16 bits of lap and 48 bits of the record's own. The producer fills a record and then
//! stores its tag with the lap it is in; the consumer sees a record when the tag has the lap it expects. So news
//! travels in the record's own cache line, and no producer counter is shared. The consumer counts what it has
//! consumed in one shared word, which the producer reads only when the copy it keeps says that the ring is full.
//! Zeroed memory is an empty ring: laps count from 1.
//!
//! It knows nothing of what records contain, and works on any [`Cells`]: shared memory, or a model checker's.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic 64-bit word.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

#[cfg(loom)]
impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        loom::sync::atomic::AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        loom::sync::atomic::AtomicU64::store(self, value, order);
    }
}

/// The shared words of a ring. All zero at first.
pub(super) trait Cells {
    type Word: Word;
    /// The tag of record `index`, below the number of slots.
    fn tag(&self, index: usize) -> &Self::Word;
    /// Records consumed since the beginning.
    fn consumed(&self) -> &Self::Word;
}

/// Bits of a tag that belong to the record.
pub(super) const META_BITS: u32 = 48;

/// The position-to-record arithmetic that both cursors share. The number of slots is a power of two.
#[derive(Clone, Copy)]
struct Geometry {
    shift: u32,
}

impl Geometry {
    fn new(slots: usize) -> Geometry {
        debug_assert!(slots.is_power_of_two());
        Geometry { shift: slots.trailing_zeros() }
    }
    fn slots(self) -> u64 {
        1 << self.shift
    }
    fn index(self, position: u64) -> usize {
        (position & (self.slots() - 1)) as usize
    }
    /// The lap of a position in the upper 16 bits. A record's old tag is exactly one lap behind, so wrapping is fine.
    fn lap(self, position: u64) -> u64 {
        ((position >> self.shift) + 1) << META_BITS
    }
}

/// The producer's cursor.
pub(super) struct Producer<C> {
    cells: C,
    geometry: Geometry,
    /// Records published.
    published: u64,
    /// Records known to be consumed: the last value read of the shared counter.
    consumed: u64,
}

impl<C: Cells> Producer<C> {
    /// A producer at the beginning of a zeroed ring of `slots` (a power of two) records.
    pub(super) fn new(cells: C, slots: usize) -> Producer<C> {
        Producer { cells, geometry: Geometry::new(slots), published: 0, consumed: 0 }
    }

    pub(super) fn cells(&self) -> &C {
        &self.cells
    }

    /// Records published so far.
    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// The index of the next record, which the producer may now fill, or `None` while all are in use.
    #[inline]
    pub(super) fn reserve(&mut self) -> Option<usize> {
        let needed = (self.published + 1).saturating_sub(self.geometry.slots());
        self.poll_consumed(needed).then(|| self.geometry.index(self.published))
    }

    /// The index of the next record, if it is known to be free without a look at the consumer's counter.
    #[inline]
    pub(super) fn free(&self) -> Option<usize> {
        let used = self.published - self.consumed;
        (used < self.geometry.slots()).then(|| self.geometry.index(self.published))
    }

    /// Hand the reserved record over. `meta` has at most [`META_BITS`] bits.
    #[inline]
    pub(super) fn publish(&mut self, meta: u64) {
        debug_assert!(meta >> META_BITS == 0);
        let tag = self.geometry.lap(self.published) | meta;
        // SYNC: ring-publish. Everything written to the record (and to its slot) is visible to who sees the tag.
        self.cells.tag(self.geometry.index(self.published)).store(tag, Ordering::Release);
        self.published += 1;
    }

    /// Whether the consumer has consumed at least `count` records.
    #[inline]
    pub(super) fn poll_consumed(&mut self, count: u64) -> bool {
        if self.consumed < count {
            // SYNC: ring-credit. The consumer has finished reading what the counter covers.
            self.consumed = self.cells.consumed().load(Ordering::Acquire);
        }
        self.consumed >= count
    }
}

/// The consumer's cursor.
pub(super) struct Consumer<C> {
    cells: C,
    geometry: Geometry,
    /// Records consumed.
    consumed: u64,
}

impl<C: Cells> Consumer<C> {
    /// A consumer at the beginning of a zeroed ring of `slots` (a power of two) records.
    pub(super) fn new(cells: C, slots: usize) -> Consumer<C> {
        Consumer { cells, geometry: Geometry::new(slots), consumed: 0 }
    }

    pub(super) fn cells(&self) -> &C {
        &self.cells
    }

    /// Index and meta of the next record, or `None` when there is none yet.
    #[inline]
    pub(super) fn peek(&self) -> Option<(usize, u64)> {
        let index = self.geometry.index(self.consumed);
        // SYNC: ring-publish. The record and its slot are read only after their tag.
        let tag = self.cells.tag(index).load(Ordering::Acquire);
        let found = (tag ^ self.geometry.lap(self.consumed)) >> META_BITS == 0;
        found.then_some((index, tag & ((1 << META_BITS) - 1)))
    }

    /// Records consumed so far.
    #[inline]
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The index of the record that `peek` looks at.
    #[inline]
    pub(super) fn next(&self) -> usize {
        self.geometry.index(self.consumed)
    }

    /// Give the record that `peek` found back to the producer.
    #[inline]
    pub(super) fn release(&mut self) {
        self.consumed += 1;
        // SYNC: ring-credit. All reads of the record and its slot come before. The line stays with the consumer until
        // the producer runs out of credit, so a store per record costs no traffic.
        self.cells.consumed().store(self.consumed, Ordering::Release);
    }
}
