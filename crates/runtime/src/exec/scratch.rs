//! Where in the scratch the pieces of a program lie and how long they are, and where what lies beside a line does: decided here,
//! and here alone, since the one is only right with the other.
//!
//! Each rank has a scratch of two halves. Pieces lie in them by turns, and the end of either is an *area* for what goes beside a line
//! (`beside`): a quarter of it, or what the geometry says.
//!
//! Where two ranks write in turns each has the scratch of the other in every second piece, so that it writes where it has read
//! last. One half would do then. Both serve one piece where each rank gives one block: it is longer, and the ranks wait for each
//! other less often. A sum by two shots waits twice in a piece, and is faster by short ones. The areas, of which each rank has
//! the other's in every second call, are together at the end of the second half: no piece of any kind gets there.

use oxccl_types::Collective;

use super::call::Call;
use super::collective::Engine;
use super::plan::DirectPlan;
use crate::communicator::core::Core;

/// Bytes of a cache line, of which everything is a whole number.
const LINE: usize = 64;

/// How the scratch of the ranks of a communicator is shared out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    /// Bytes of a half.
    half: usize,
    /// Bytes of an area.
    area: usize,
    /// Two ranks write it in turns.
    turns: bool,
}

impl Scratch {
    #[inline]
    pub(super) fn of(core: &Core) -> Scratch {
        let geometry = core.hub.geometry();
        Scratch { half: geometry.scratch_half, area: geometry.area_bytes, turns: takes_turns(core) }
    }

    /// Bytes of an area.
    pub(super) fn room(self) -> usize {
        self.area & !(LINE - 1)
    }

    /// The same of what calls of `collective` put beside their lines: all of a long area is for those with which it was measured.
    pub(super) fn room_of(self, collective: Collective) -> usize {
        match collective {
            Collective::Broadcast | Collective::Reduce => self.room(),
            // As long as where the area is a quarter of the half.
            _ => self.room().min(self.before() / 3),
        }
    }

    /// Bytes of a half in front of its area.
    pub(super) fn before(self) -> usize {
        (self.half - self.room()) & !(LINE - 1)
    }

    /// Whose area `member` uses in a call of this half, and where in the scratch that begins.
    fn area(self, member: usize, half: usize) -> (usize, usize) {
        match self.turns {
            true => (member ^ half, self.half + self.before()),
            false => (member, half * self.half + self.before()),
        }
    }
}

/// Whether two ranks write the scratch in turns, see [`Core::trades`]. The same answer on both.
#[inline]
pub(super) fn takes_turns(core: &Core) -> bool {
    core.ranks == 2 && core.members.len() == 2 && core.trades
}

/// Where what `member` puts beside its line lies in a call of this half.
pub(super) fn area(core: &Core, member: usize, half: usize) -> *mut u8 {
    let (owner, offset) = Scratch::of(core).area(member, half);
    // SAFETY: inside the scratch.
    unsafe { core.hub.scratch(owner, 0).add(offset) }
}

/// Whose scratch it is that a rank writes, and how much of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Its own, in one half after the other.
    #[default]
    Halves,
    /// Its own or the peer's: the first half of it. `first`: whose it is at the first piece.
    Turns { first: u64 },
    /// The same; a single block of each rank, in as much of both halves as no area has.
    LongTurns { first: u64 },
}

/// Where the pieces of one call lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    way: Way,
    /// Bytes of a half.
    half: usize,
    /// Slots of a channel.
    count: usize,
    /// Bytes of a slot: a multiple of a cache line.
    bytes: usize,
}

impl Slots {
    /// Those of a call that goes `way` by a program of `channels` channels with `count` slots each.
    fn new(scratch: Scratch, way: Way, count: usize, channels: usize) -> Slots {
        let (room, count) = match way {
            // Each rank gives one block, whatever its slot: they lie in one place.
            Way::LongTurns { .. } => (scratch.half + scratch.before(), 1),
            _ => (scratch.before(), count),
        };
        Slots { way, half: scratch.half, count, bytes: (room / (count * channels).max(1)) & !(LINE - 1) }
    }

    /// Bytes of a slot, which no piece is longer than.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose scratch slot `slot` of `member` is in for piece `piece`, and where that begins there.
    #[inline]
    fn place(&self, member: usize, channel: usize, slot: usize, piece: u64) -> (usize, usize) {
        let second = |first: u64| (first.wrapping_add(piece) % 2) as usize;
        let (owner, half, slot) = match self.way {
            Way::Halves => (member, second(0), slot),
            Way::Turns { first } => (member ^ second(first), 0, slot),
            Way::LongTurns { first } => (member ^ second(first), 0, 0),
        };
        (owner, half * self.half + (channel * self.count + slot) * self.bytes)
    }

    /// Where slot `slot` of `member` lies for piece `piece`.
    #[inline]
    pub(super) fn at(&self, core: &Core, member: usize, channel: usize, slot: usize, piece: u64) -> *mut u8 {
        let (owner, offset) = self.place(member, channel, slot, piece);
        // SAFETY: inside the scratch: as many slots as the program has were made of it.
        unsafe { core.hub.scratch(owner, 0).add(offset) }
    }
}

/// Those of `call` by `plan`, which each rank has come to; and `pieces`, given the bytes of a slot, says how many there will be.
///
/// Where two ranks both give and take a piece before they go on, each writes the next where it has read the last: the peer wrote
/// that before it signalled, reads it no more, and writes its own next one elsewhere. By two shots that holds of both: who has
/// collected the results of a piece has waited for the peer's last signal.
pub(super) fn slots(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: &DirectPlan,
    pieces: impl FnOnce(usize) -> u64,
) -> Slots {
    let first = engine.scratch_turn;
    let way = match call.collective {
        _ if !takes_turns(core) => Way::Halves,
        Collective::AllReduce => Way::Turns { first },
        Collective::AllGather | Collective::AllToAll | Collective::ReduceScatter => Way::LongTurns { first },
        _ => Way::Halves,
    };
    let slots = Slots::new(Scratch::of(core), way, plan.program.scratch_slots as usize, plan.program.channels.len());
    if way != Way::Halves {
        engine.scratch_turn = first.wrapping_add(pieces(slots.bytes));
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::{LINE, Scratch, Slots, Way};
    use oxccl_types::Collective;
    use std::ops::Range;

    /// Halves, and the areas in them.
    const HALVES: [(usize, usize); 6] = [
        (32 << 10, 8 << 10),
        (36 << 10, 9 << 10),
        (64 << 10, 16 << 10),
        (256 << 10, 64 << 10),
        (448 << 10, 256 << 10),
        (32 << 20, 8 << 20),
    ];

    /// The bytes of everything that the pieces of a call may write, with whose they are.
    fn all(slots: &Slots, count: usize, channels: usize, pieces: Range<u64>) -> Vec<(usize, Range<usize>)> {
        let mut all = Vec::new();
        for piece in pieces {
            for (member, channel, slot) in
                (0..2).flat_map(|m| (0..channels).flat_map(move |c| (0..count).map(move |s| (m, c, s))))
            {
                let (owner, from) = slots.place(member, channel, slot, piece);
                all.push((owner, from..from + slots.bytes));
            }
        }
        all
    }

    fn meet(a: &(usize, Range<usize>), b: &(usize, Range<usize>)) -> bool {
        a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end
    }

    fn ways() -> [(bool, Way); 6] {
        let turns = |first| [Way::Turns { first }, Way::LongTurns { first }];
        let ([a, b], [c, d]) = (turns(6), turns(u64::MAX));
        [(false, Way::Halves), (true, Way::Halves), (true, a), (true, b), (true, c), (true, d)]
    }

    /// Whatever way a call goes, its pieces lie inside the scratch and nothing beside a line lies where they do: such is put
    /// there before the call in front of it is over on the other rank.
    #[test]
    fn no_piece_lies_where_an_area_does() {
        for ((half, area), (turns, way)) in HALVES.iter().flat_map(|h| ways().map(|w| (*h, w))) {
            let scratch = Scratch { half, area, turns };
            let areas: Vec<_> = (0..2)
                .flat_map(|m| [scratch.area(m, 0), scratch.area(m, 1)])
                .map(|(owner, from)| (owner, from..from + scratch.room()))
                .collect();
            assert!(areas.iter().all(|(owner, bytes)| *owner < 2 && bytes.end <= 2 * half), "{half} {way:?}");
            for (count, channels) in [(1, 1), (2, 1), (1, 3), (2, 4)] {
                let slots = Slots::new(scratch, way, count, channels);
                assert!(slots.bytes > 0 && slots.bytes.is_multiple_of(LINE));
                for piece in all(&slots, count, channels, 0..4) {
                    assert!(piece.0 < 2 && piece.1.end <= 2 * half, "{half} {way:?} {piece:?}");
                    let met = areas.iter().find(|area| meet(area, &piece));
                    assert!(met.is_none(), "{half} {way:?}: {piece:?} lies in {met:?}");
                }
            }
        }
    }

    /// Within a piece every slot of either rank has its own bytes, but where one serves for all; and the same bytes are in use
    /// again when two pieces have passed, or in turns at once, by the other rank.
    #[test]
    fn slots_lie_apart() {
        for ((half, area), (turns, way)) in HALVES.iter().flat_map(|h| ways().map(|w| (*h, w))) {
            let (count, channels) = (2, 3);
            let slots = Slots::new(Scratch { half, area, turns }, way, count, channels);
            let count = if matches!(way, Way::LongTurns { .. }) { 1 } else { count };
            let pieces = if way == Way::Halves { 0..2 } else { 0..1 };
            let all = all(&slots, count, channels, pieces);
            for (i, a) in all.iter().enumerate() {
                assert!(all[..i].iter().all(|b| !meet(a, b)), "{half} {way:?}: {a:?} is used twice");
            }
            for member in 0..2 {
                let at = |piece| slots.place(member, 1, 0, piece);
                assert_eq!(at(0), at(2), "{half} {way:?}");
                if way != Way::Halves {
                    assert_eq!(at(1), slots.place(1 - member, 1, 0, 0), "{half} {way:?}: not where it has read last");
                }
            }
        }
    }

    #[test]
    fn only_broadcasts_and_reductions_use_all_of_a_long_area() {
        for (half, area) in HALVES {
            let scratch = Scratch { half, area, turns: false };
            assert_eq!([Collective::Broadcast, Collective::Reduce].map(|c| scratch.room_of(c)), [area; 2]);
            let usual = if (half, area) == (448 << 10, 256 << 10) { 64 << 10 } else { area };
            assert_eq!(scratch.room_of(Collective::AllGather), usual, "{half}");
        }
    }

    /// A block of each rank gets nearly all, which is what the way is for.
    #[test]
    fn pieces_of_a_single_block_are_long() {
        let scratch = Scratch { half: 256 << 10, area: 64 << 10, turns: true };
        let bytes = |way| Slots::new(scratch, way, 2, 1).bytes;
        assert_eq!(bytes(Way::Halves), 96 << 10);
        assert_eq!(bytes(Way::Turns { first: 0 }), 96 << 10);
        assert_eq!(bytes(Way::LongTurns { first: 0 }), 448 << 10);
    }
}
