//! Where in its slot a message lies, if slots change hands but the peer sends nothing: further behind than the last one.
//!
//! A line that the peer has read last is slow to write on some processors ([`oxccl_kernels::waits_for_lines`]), unless it has left
//! the caches of both cores' own in between (docs/performance.md). Slots are long: messages that go round all of them take so
//! many lines that it has. A sender that gets back what it gave is not in need of that: a slot that it has read is near by.

use super::area::AREA_ALIGN;
use crate::transport::passage::READ_AHEAD;

/// Messages in a row by a slot of its own before a sender makes use of all of the slots, which takes more memory.
const OFTEN: u32 = 64;
/// Bytes between two messages, see [`READ_AHEAD`].
const GAP: usize = READ_AHEAD;
/// Places of a sender at most.
const PLACES: usize = 8;

/// What a sender knows of its places.
#[derive(Debug, Default)]
pub(super) struct OneWay {
    /// How far behind the beginning of the slot in each the next message lies.
    at: [usize; PLACES],
    /// Messages in a row by slots that this rank has not received, up to [`OFTEN`].
    in_a_row: u32,
    /// All of the slots are in memory.
    populated: bool,
}

impl OneWay {
    /// Whether messages go round for the first time now: there is more memory to be had than was used.
    pub(super) fn begins(&mut self) -> bool {
        self.in_a_row == OFTEN && !std::mem::replace(&mut self.populated, true)
    }

    /// How far behind the beginning of the slot in `place`, which has `room` bytes, the next message of `bytes` bytes lies; a multiple
    /// of 64. `near`: this rank has received that slot. `None`: at its beginning, as all do unless they go round.
    pub(super) fn next(&mut self, place: usize, near: bool, room: usize, bytes: usize) -> Option<usize> {
        self.in_a_row = if near { 0 } else { OFTEN.min(self.in_a_row + 1) };
        if self.in_a_row < OFTEN {
            return None;
        }
        let at = &mut self.at[place];
        let from = if *at + bytes > room { 0 } else { *at };
        *at = from + bytes.next_multiple_of(AREA_ALIGN) + GAP;
        Some(from)
    }
}

/// What a record says of where in its slot a message lies; 0 of most, which do not go round. `away`: it went there past the caches.
pub(super) fn word(at: Option<usize>, away: bool) -> u64 {
    at.map_or(0, |at| at as u64 | u64::from(!away))
}

/// What a record says by that word: how far behind the beginning of its slot a message lies, and whether it goes round by way of the
/// caches.
pub(super) fn read(word: u64) -> (usize, bool) {
    ((word & !1) as usize, word & 1 == 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{GAP, OFTEN, OneWay, PLACES, read, word};

    /// After some messages the next ones go round, inside of each slot and through all of it.
    #[test]
    fn messages_go_round_where_none_come_back() {
        const ROOM: usize = 64 << 10;
        let mut way = OneWay::default();
        for n in 1..OFTEN as usize + PLACES {
            assert_eq!(way.next(n % PLACES, false, ROOM, 4000).is_some(), n >= OFTEN as usize, "message {n}");
            assert_eq!(n >= OFTEN as usize && way.begins(), n == OFTEN as usize, "message {n}");
        }
        let (mut from, mut most) = (usize::MAX, 0);
        for n in 0..100 {
            let at = way.next(3, false, ROOM, 4000).unwrap();
            assert!(at + 4000 <= ROOM && at % 64 == 0 && at != from, "message {n}: {at} after {from}");
            assert!(n == 0 || at == 0 || at >= from + 4000 + GAP, "message {n}: {at} after {from}");
            (from, most) = (at, most.max(at));
        }
        assert!(most + 2 * (4000 + GAP + 128) > ROOM, "all of the slot is used");
        assert_eq!(way.next(3, false, ROOM, ROOM), Some(0), "one that is as long as the slot");
    }

    /// A slot that came from the peer ends it.
    #[test]
    fn messages_begin_at_their_slots_where_some_come_back() {
        let mut way = OneWay::default();
        let mut next = |near| way.next(0, near, 4096, 100);
        assert_eq!((0..200).filter_map(|_| next(false)).count(), 200 - OFTEN as usize + 1);
        assert_eq!(next(true), None);
        for n in 1..500 {
            assert_eq!(next(n % OFTEN as usize == 0), None, "message {n}");
        }
    }

    #[test]
    fn a_record_says_where_a_message_lies() {
        for (at, away) in [0, 64, 1 << 20].into_iter().flat_map(|at| [(at, false), (at, true)]) {
            assert_eq!(word(None, away), 0);
            assert_eq!(read(word(Some(at), away)), (at, !away));
        }
        assert_eq!(read(0), (0, false));
    }
}
