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

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::transport::ring::{Cells, Word};

/// Slots of a direction at most: a byte in a word for each place.
const PLACES: usize = 8;

/// What a trade needs of the memory of a direction: an area, or a model checker's. All words are zero at first.
pub(super) trait Area: Cells {
    /// A word that only the sender's rank uses.
    type Own: Word;
    /// Where a slot is.
    type Slot;
    /// Number of slots, a power of two.
    fn slots(&self) -> usize;
    /// Bytes of each.
    fn slot_bytes(&self) -> usize;
    /// Word `index` of the sender's rank.
    fn own_word(&self, index: usize) -> &Self::Own;
    /// What the receiver gave for the slots that it has read, a byte for each.
    fn given(&self) -> &Self::Word;
    /// Slot `index`.
    fn long_slot(&self, index: usize) -> Self::Slot;
}

/// The trade of one rank with one peer, as its sender and its receiver see it. The state lies in the area, since both need it.
#[derive(Clone, Copy)]
pub(super) struct Trade<A> {
    /// From this rank to the peer, and back.
    out: A,
    back: A,
    /// Number of the first slot of `out`.
    first: u64,
}

/// The words of a trade that only this rank uses, which may be zero at first.
struct State<'a, W> {
    /// A byte for each place: the number of its slot, exclusive or what it was at first.
    places: &'a W,
    /// A bit for each place whose slot the peer has had since it was last looked up.
    away: &'a W,
    /// Records sent.
    sent: &'a W,
    /// Records from which on places hold what they held: those before have got a slot that was received.
    filled: &'a W,
    /// Records that the peer had consumed when it was last asked, and what it had given.
    consumed: &'a W,
    given: &'a W,
}

fn byte(word: u64, place: usize) -> u64 {
    word >> (8 * place) & 0xff
}

fn with_byte(word: u64, place: usize, value: u64) -> u64 {
    word & !(0xff << (8 * place)) | value << (8 * place)
}

impl<A: Area> Trade<A> {
    /// `None` where slots cannot be exchanged.
    pub(super) fn new(out: A, back: A, lower: bool) -> Option<Trade<A>> {
        let slots = out.slots();
        let same = (slots, out.slot_bytes()) == (back.slots(), back.slot_bytes());
        (same && slots <= PLACES).then_some(Trade { out, back, first: if lower { 0 } else { slots as u64 } })
    }

    fn state(&self) -> State<'_, A::Own> {
        let [places, away, sent, filled, consumed, given] = std::array::from_fn(|i| self.out.own_word(i));
        State { places, away, sent, filled, consumed, given }
    }

    fn place(&self, record: u64) -> usize {
        (record & (self.out.slots() as u64 - 1)) as usize
    }

    /// The slot of that number.
    #[inline]
    pub(super) fn slot(&self, number: u64) -> A::Slot {
        let slots = self.out.slots() as u64;
        let number = number & (2 * slots - 1);
        let area = if (number >= slots) == (self.first > 0) { &self.out } else { &self.back };
        area.long_slot((number & (slots - 1)) as usize)
    }

    /// The number of the slot in the place of record `record`, whose last user the peer is known to have consumed.
    fn held(&self, state: &State<'_, A::Own>, record: u64) -> u64 {
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
    fn ask(&self, state: &State<'_, A::Own>, record: u64) -> bool {
        let needed = (record + 1).saturating_sub(self.out.slots() as u64);
        if state.consumed.load(Relaxed) < needed {
            // SYNC: ring-credit. What was given for a record is written before it is counted, and not again before it is reused.
            let consumed = self.out.consumed().load(Acquire);
            state.consumed.store(consumed, Relaxed);
            state.given.store(self.out.given().load(Relaxed), Relaxed);
            return consumed >= needed;
        }
        true
    }

    /// Records of the peer that this rank has received.
    #[inline]
    pub(super) fn came(&self) -> u64 {
        // SYNC: ring-credit. This rank counts them; nothing else hangs on it.
        self.back.consumed().load(Relaxed)
    }

    /// The number of the slot for record `record`, which is the next and whose place is free.
    #[inline]
    pub(super) fn take(&self, record: u64) -> u64 {
        self.held(&self.state(), record)
    }

    /// Whether the place of record `record`, which is the next, holds a slot that this rank has received and not sent by since, as
    /// far as is known: records that need no slot count as sent by one.
    #[inline]
    pub(super) fn is_near(&self, record: u64) -> bool {
        self.state().filled.load(Relaxed) > record
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use std::sync::atomic::AtomicU64;

    use super::super::{LocalArea, Sizes};
    use super::*;

    /// What two ranks and the areas between them hold, at a moment between two accesses that the other can see.
    #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
    struct State {
        /// By area: the sender's words, what was given, records consumed.
        words: [[u64; 8]; 2],
        published: [u64; 2],
        /// By sender: the slots of records under way; `None` where the bytes need none, or were read.
        under_way: [VecDeque<Option<u64>>; 2],
        /// By receiver: it has said what it gives, and has yet to count the record.
        gave: [bool; 2],
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        SendSlot,
        SendOther,
        Receive,
    }

    struct Model {
        areas: [LocalArea; 2],
        trades: [Trade<LocalArea>; 2],
        sizes: Sizes,
        /// Messages of each rank.
        most: u64,
    }

    impl Model {
        fn word(&self, area: usize, i: usize) -> &AtomicU64 {
            match i {
                0..6 => self.areas[area].own_word(i),
                6 => self.areas[area].given(),
                _ => self.areas[area].consumed(),
            }
        }

        fn load(&self, state: &mut State) {
            for (area, words) in state.words.iter_mut().enumerate() {
                words.iter_mut().enumerate().for_each(|(i, w)| *w = self.word(area, i).load(Relaxed));
            }
        }

        fn store(&self, state: &State) {
            for (area, words) in state.words.iter().enumerate() {
                words.iter().enumerate().for_each(|(i, w)| self.word(area, i).store(*w, Relaxed));
            }
        }

        /// The state after `act` of `rank`; `None` where that cannot be done now.
        fn after(&self, state: &State, rank: usize, act: Act) -> Option<State> {
            let mut next = state.clone();
            self.store(state);
            let (published, consumed) = (state.published[rank], state.words[rank][7]);
            let room = |n: usize| published < self.most && published < consumed + n as u64;
            match act {
                // A rank does one thing at a time.
                Act::SendSlot | Act::SendOther if state.gave[rank] => return None,
                Act::SendSlot if room(self.sizes.slots) => {
                    let number = self.trades[rank].take(published);
                    self.trades[rank].sent(published);
                    let taken = state.under_way.iter().flatten().any(|other| *other == Some(number));
                    assert!(!taken, "slot {number} is written while its message is under way: {state:?}");
                    next.under_way[rank].push_back(Some(number));
                    next.published[rank] += 1;
                }
                Act::SendOther if room(self.sizes.records) => {
                    next.under_way[rank].push_back(None);
                    next.published[rank] += 1;
                }
                Act::Receive => match (state.under_way[1 - rank].front()?, state.gave[rank]) {
                    (Some(number), false) => {
                        self.trades[rank].received(state.words[1 - rank][7], *number);
                        next.under_way[1 - rank][0] = None;
                        next.gave[rank] = true;
                    }
                    _ => {
                        next.under_way[1 - rank].pop_front();
                        next.gave[rank] = false;
                        self.word(1 - rank, 7).store(state.words[1 - rank][7] + 1, Relaxed);
                    }
                },
                _ => return None,
            }
            self.load(&mut next);
            Some(next)
        }

        /// Every slot is in one place when nothing is under way.
        fn check(&self, state: &State) {
            if state.under_way.iter().any(|u| !u.is_empty()) {
                return;
            }
            let slots = self.sizes.slots;
            let held = |rank: usize, place: usize| {
                let [places, away, ..] = state.words[rank];
                let own = byte(places, place) ^ (self.trades[rank].first + place as u64);
                if away >> place & 1 == 1 { byte(state.words[rank][6], place) } else { own }
            };
            let all: HashSet<u64> = (0..2 * slots).map(|i| held(i / slots, i % slots)).collect();
            assert_eq!(all, (0..2 * slots as u64).collect(), "{state:?}");
        }
    }

    /// All orders in which two ranks can send and receive, with and without slots, as far as `most` messages each.
    fn explore(slots: usize, records: usize, most: u64) -> usize {
        let sizes = Sizes { records, ..Sizes::new(slots, 64) };
        let bytes = LocalArea::bytes(sizes);
        let memory = [0, 1].map(|_| oxccl_sys::SharedMemory::create("oxccl-test", bytes).unwrap());
        // SAFETY: zeroed memory of that size, which outlives the areas; nobody else uses it.
        let areas = [0, 1].map(|i: usize| unsafe { LocalArea::new(memory[i].as_ptr(), bytes, sizes).unwrap() });
        let trades = [0, 1].map(|i| Trade::new(areas[i], areas[1 - i], i == 0).unwrap());
        let model = Model { areas, trades, sizes, most };
        let mut known = HashSet::from([State::default()]);
        let mut open = vec![State::default()];
        while let Some(state) = open.pop() {
            model.check(&state);
            for (rank, act) in (0..2).flat_map(|r| [Act::SendSlot, Act::SendOther, Act::Receive].map(|act| (r, act))) {
                if let Some(next) = model.after(&state, rank, act)
                    && known.insert(next.clone())
                {
                    open.push(next);
                }
            }
        }
        known.len()
    }

    #[test]
    fn no_slot_is_in_two_places_in_any_order_of_messages() {
        for (slots, records, most) in [(1, 1, 6), (1, 2, 5), (2, 2, 4), (2, 4, 3)] {
            let states = explore(slots, records, most);
            println!("{slots} slots, {records} records, {most} messages: {states} states");
            assert!(states > 100);
        }
    }
}
