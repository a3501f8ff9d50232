//! Who may touch which place of a ring of pieces when: what [`piped`](super::piped) does to flags, and nothing of what it moves.
//!
//! Flags carry `sequence << 28 | epoch`, so that nothing is ever reset. That of who gives counts the pieces of a call that are
//! there, that of the other one those that were taken. Compiled by a model checker, too.

use oxccl_sys::sync::{Ordering, SharedU64, pause_between};

/// Bits of a flag that count epochs within a call.
const EPOCH_BITS: u32 = 28;
/// Places of a ring.
pub(super) const PLACES: usize = 16;
/// The same where it is so long that its lines leave the caches on the way.
pub(super) const MOST_PLACES: usize = 3 * PLACES;

/// The flag that says `epoch` of call `seq`.
#[inline]
pub(super) fn flag_of(seq: u64, epoch: u64) -> u64 {
    seq << EPOCH_BITS | epoch
}

/// The epoch of call `seq` that a flag says; the last one if it is that of a later call.
#[inline]
pub(super) fn epoch_of(flag: u64, seq: u64) -> u64 {
    if flag >> EPOCH_BITS == seq { flag & ((1 << EPOCH_BITS) - 1) } else { u64::MAX }
}

/// Raises a flag of this rank to `epoch` of call `seq`.
#[inline]
pub(super) fn raise(flag: &SharedU64, seq: u64, epoch: u64) {
    // SYNC: epoch-flag
    debug_assert!(
        flag.load(Ordering::Relaxed) <= flag_of(seq, epoch),
        "call {seq} comes to {epoch} behind a later one"
    );
    // SYNC: epoch-flag
    flag.store(flag_of(seq, epoch), Ordering::Release);
}

/// Whether a flag is raised to `needed`, or is while this looks, `most` so often; what it was goes to `seen`.
#[inline]
fn look(flag: &SharedU64, seen: &mut u64, needed: u64, most: u32) -> bool {
    let mut looks = 0;
    // SYNC: epoch-flag
    loop {
        *seen = flag.load(Ordering::Acquire);
        if *seen >= needed {
            return true;
        }
        looks += 1;
        if looks >= most {
            return false;
        }
        pause_between(looks);
    }
}

/// The ring of this rank, as who gives sees it. A model checker's has fewer places.
pub(super) struct Ring<const N: usize = MOST_PLACES> {
    /// Places that are used, as the peer knows, too.
    places: usize,
    /// Pieces of all calls up to now.
    head: u64,
    /// Per place the flag of the peer that says that it has taken the piece there.
    taken: [u64; N],
    /// The flag of the peer as it was seen last.
    seen: u64,
}

impl<const N: usize> Ring<N> {
    /// One of so many places.
    pub(super) fn new(places: usize) -> Ring<N> {
        debug_assert!((1..=N).contains(&places));
        Ring { places, head: 0, taken: [0; N], seen: 0 }
    }

    /// Where piece `index` lies, here and in the ring of the peer.
    pub(super) fn place(&self, index: u64) -> usize {
        index as usize % self.places
    }

    /// Begins to give call `seq` of so many pieces: which piece of the ring the first one is, and whether `put` has put it there:
    /// its place was free.
    #[inline]
    pub(super) fn offer(&mut self, peer: &SharedU64, seq: u64, pieces: u64, put: impl FnOnce(usize)) -> (u64, bool) {
        let first = self.head;
        self.head += pieces;
        let there = self.is_free(peer, first, 1);
        if there {
            put(self.place(first));
            self.holds(first, seq, 0);
        }
        (first, there)
    }

    /// Whether piece `index` may be written: the peer has taken what lay in its place, or does while this looks, `most` so often.
    fn is_free(&mut self, peer: &SharedU64, index: u64, most: u32) -> bool {
        let needed = self.taken[self.place(index)];
        self.seen >= needed || look(peer, &mut self.seen, needed, most)
    }

    /// Piece `number` of call `seq` lies in the place of piece `index`.
    fn holds(&mut self, index: u64, seq: u64, number: u64) {
        self.taken[self.place(index)] = flag_of(seq, number + 1);
    }
}

/// How far a call is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipe {
    /// This rank gives.
    pub gives: bool,
    /// The place of the first piece.
    first: u64,
    /// Pieces that are there.
    there: u64,
    /// Pieces that this rank is done with.
    pub done: u64,
    /// Pieces of what stays on this rank that are copied.
    pub own: u64,
    /// What the giver writes goes past its caches.
    pub away: bool,
}

impl Pipe {
    /// The call whose giver's line says `first` and `there`; `gives`: that is this rank.
    pub(super) fn new(gives: bool, first: u64, there: bool) -> Pipe {
        let there = u64::from(there);
        Pipe { gives, first, there, done: if gives { there } else { 0 }, own: 0, away: false }
    }

    /// Has `put` write the next piece, if its place is free or becomes so while this looks, `most` so often. It gets the piece's
    /// number and place.
    #[inline]
    pub(super) fn give<const N: usize>(
        &mut self,
        ring: &mut Ring<N>,
        [mine, peer]: [&SharedU64; 2],
        seq: u64,
        most: u32,
        put: impl FnOnce(u64, usize),
    ) -> bool {
        let index = self.first + self.done;
        if !ring.is_free(peer, index, most) {
            return false;
        }
        put(self.done, ring.place(index));
        ring.holds(index, seq, self.done);
        self.moved(mine, seq);
        true
    }

    /// Whether the next piece of `all` of call `seq` is there, or comes while this looks, `most` so often.
    #[inline]
    pub(super) fn is_there(&mut self, peer: &SharedU64, seq: u64, all: u64, most: u32) -> bool {
        let mut seen = 0;
        if self.there > self.done {
            return true;
        }
        let came = look(peer, &mut seen, flag_of(seq, self.done + 1), most);
        if came {
            self.there = epoch_of(seen, seq).min(all);
        }
        came
    }

    /// Has `take` read the next piece, which is there. It gets the piece's number and place.
    #[inline]
    pub(super) fn take<const N: usize>(
        &mut self,
        ring: &Ring<N>,
        mine: &SharedU64,
        seq: u64,
        take: impl FnOnce(u64, usize),
    ) {
        take(self.done, ring.place(self.first + self.done));
        self.moved(mine, seq);
    }

    /// This rank is done with a piece, and says so.
    fn moved(&mut self, mine: &SharedU64, seq: u64) {
        self.done += 1;
        raise(mine, seq, self.done);
    }
}
