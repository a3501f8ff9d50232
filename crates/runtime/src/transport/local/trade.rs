//! Slots that change hands between the two directions of a pair.
//!
//! What a rank has read from a slot lies in its own caches, and so does the memory of the slot: the next message that it sends
//! is best written there, not where the peer read the one before. So a receiver keeps the slot that it has read for its own
//! next message, and gives one that its sender does not use in exchange.
//!
//! A slot has a number: those of the area from the lower rank to the higher come first. Each sender has a *place* per slot, of
//! which record `n` uses number `n` modulo the slots, and which holds one slot at a time. When a receiver is done with a
//! record's slot it says in its line of the area which slot is in that place from now on, before it counts the record as
//! consumed: the same one, or that of a free place of its own sender, which gets the other. What places hold is thus the
//! business of the rank that sends from them, or of its peer while a record is under way, and every slot is in one place.
//!
//! The words of this module lie in the areas, but only those that are given are read by the peer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::area::LocalArea;

/// Slots of a direction at most: a byte in a word for each place.
const PLACES: usize = 8;

/// The trade of one rank with one peer, as its sender and its receiver see it. The state lies in the area, since both need it.
#[derive(Clone, Copy)]
pub(super) struct Trade {
    /// From this rank to the peer, and back.
    out: LocalArea,
    back: LocalArea,
    /// Number of the first slot of `out`.
    first: u64,
}

/// The words of a trade that only this rank uses, which may be zero at first.
struct State<'a> {
    /// A byte for each place: the number of its slot, exclusive or what it was at first.
    places: &'a AtomicU64,
    /// A bit for each place whose slot the peer has had since it was last looked up.
    away: &'a AtomicU64,
    /// Records sent.
    sent: &'a AtomicU64,
    /// Records from which on places hold what they held: those before have got a slot that was received.
    filled: &'a AtomicU64,
    /// Records that the peer had consumed when it was last asked, and what it had given.
    consumed: &'a AtomicU64,
    given: &'a AtomicU64,
}

fn byte(word: u64, place: usize) -> u64 {
    word >> (8 * place) & 0xff
}

fn with_byte(word: u64, place: usize, value: u64) -> u64 {
    word & !(0xff << (8 * place)) | value << (8 * place)
}

impl Trade {
    /// `None` where slots cannot be exchanged.
    pub(super) fn new(out: LocalArea, back: LocalArea, lower: bool) -> Option<Trade> {
        let slots = out.slots();
        let same = (slots, out.slot_bytes()) == (back.slots(), back.slot_bytes());
        (same && slots <= PLACES).then_some(Trade { out, back, first: if lower { 0 } else { slots as u64 } })
    }

    fn state(&self) -> State<'_> {
        let [places, away, sent, filled, consumed, given] = std::array::from_fn(|i| self.out.own_word(i));
        State { places, away, sent, filled, consumed, given }
    }

    fn place(&self, record: u64) -> usize {
        (record & (self.out.slots() as u64 - 1)) as usize
    }

    /// The slot of that number.
    #[inline]
    pub(super) fn slot(&self, number: u64) -> *mut u8 {
        let slots = self.out.slots() as u64;
        let number = number & (2 * slots - 1);
        let area = if (number >= slots) == (self.first > 0) { &self.out } else { &self.back };
        area.long_slot((number & (slots - 1)) as usize)
    }

    /// The number of the slot in the place of record `record`, whose last user the peer is known to have consumed.
    fn held(&self, state: &State<'_>, record: u64) -> u64 {
        let place = self.place(record);
        let first = self.first + place as u64;
        if state.away.load(Relaxed) >> place & 1 == 1 {
            self.ask(state, record);
            let number = byte(state.given.load(Relaxed), place);
            state.places.store(with_byte(state.places.load(Relaxed), place, number ^ first), Relaxed);
            state.away.store(state.away.load(Relaxed) & !(1 << place), Relaxed);
            return number;
        }
        byte(state.places.load(Relaxed), place) ^ first
    }

    /// Whether the peer is done with the place of record `record`, and what it gave is known.
    fn ask(&self, state: &State<'_>, record: u64) -> bool {
        let needed = (record + 1).saturating_sub(self.out.slots() as u64);
        if state.consumed.load(Relaxed) < needed {
            let (consumed, given) = self.out.consumed_and_given();
            state.consumed.store(consumed, Relaxed);
            state.given.store(given, Relaxed);
            return consumed >= needed;
        }
        true
    }

    /// The number of the slot for record `record`, which is the next and whose place is free.
    #[inline]
    pub(super) fn take(&self, record: u64) -> u64 {
        self.held(&self.state(), record)
    }

    /// Record `record` was sent by the slot of its place.
    #[inline]
    pub(super) fn sent(&self, record: u64) {
        let state = self.state();
        state.away.store(state.away.load(Relaxed) | 1 << self.place(record), Relaxed);
        state.sent.store(record + 1, Relaxed);
    }

    /// This rank has read slot `number` of the peer's record `record`: keeps it if it has another one to give. Before the record
    /// is counted as consumed.
    #[inline]
    pub(super) fn received(&self, record: u64, number: u64) {
        let state = self.state();
        let next = state.sent.load(Relaxed).max(state.filled.load(Relaxed));
        let free = next < state.sent.load(Relaxed) + self.out.slots() as u64 && self.ask(&state, next);
        let mut gives = number & (2 * self.out.slots() as u64 - 1);
        if free {
            let place = self.place(next);
            let got = gives;
            gives = self.held(&state, next);
            let first = self.first + place as u64;
            state.places.store(with_byte(state.places.load(Relaxed), place, got ^ first), Relaxed);
            state.filled.store(next + 1, Relaxed);
        }
        let given = self.back.given();
        given.store(with_byte(given.load(Relaxed), self.place(record), gives), Relaxed);
    }
}
