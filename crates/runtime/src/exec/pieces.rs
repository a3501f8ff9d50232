//! Who may touch which place of a ring of pieces when: what [`piped`](super::piped) does to flags, and nothing of what it moves.
//!
//! Flags carry `sequence << 28 | epoch`, so that nothing is ever reset; sequences go round, and flags with them. That of who gives
//! counts the pieces of a call that are there, that of the other one those that were taken. Compiled by a model checker, too.

use oxccl_sys::sync::{Ordering, SharedU64, pause_between};

/// Bits of a flag that count epochs within a call.
const EPOCH_BITS: u32 = 28;
/// Flags less than this past what a rank waits for are taken for later ones, others for earlier: no rank begins so many calls
/// before others have come to the one that it waits for, and what was raised long ago must not pass when sequences go round. It
/// would if nothing was raised for 2^36 calls less so many, and then something was waited for before it is 2^36.
const PAST: u64 = 1 << (EPOCH_BITS + 20);
/// Places of a ring.
pub(super) const PLACES: usize = 16;
/// The same where it is so long that its lines leave the caches on the way.
pub(super) const MOST_PLACES: usize = 3 * PLACES;

/// The flag that says `epoch` of call `seq`.
#[inline]
pub(super) fn flag_of(seq: u64, epoch: u64) -> u64 {
    seq << EPOCH_BITS | epoch
}

/// Whether a flag says `needed`, of a call that is not [over](is_over), or is past it.
#[inline]
pub(super) fn is_at(flag: u64, needed: u64) -> bool {
    flag.wrapping_sub(needed) < PAST
}

/// Whether a call is so far behind call `now`, which this rank begins, that all ranks are past what its flag `needed` says. Flags
/// are not asked then: they may have gone round since.
#[inline]
pub(super) fn is_over(needed: u64, now: u64) -> bool {
    flag_of(now, 0).wrapping_sub(needed) >= PAST / 2 && !is_at(needed, flag_of(now, 0))
}

/// The epoch of call `seq` that a flag says which [is at](is_at) that call; the last one if it is that of a later call.
#[inline]
pub(super) fn epoch_of(flag: u64, seq: u64) -> u64 {
    let epoch = flag.wrapping_sub(flag_of(seq, 0));
    if epoch < 1 << EPOCH_BITS { epoch } else { u64::MAX }
}

/// Raises a flag of this rank to `epoch` of call `seq`.
#[inline]
pub(super) fn raise(flag: &SharedU64, seq: u64, epoch: u64) {
    // SYNC: epoch-flag
    debug_assert!(
        is_at(flag_of(seq, epoch), flag.load(Ordering::Relaxed)) || is_over(flag.load(Ordering::Relaxed), seq),
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
        if is_at(*seen, needed) {
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
    /// Per place the flag of the peer that says that it has taken the piece there; 0 before there was one.
    taken: [u64; N],
    /// The flag of the peer as it was seen last, but for 0.
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
        let there = self.is_free(peer, first, seq, 1);
        if there {
            put(self.place(first));
            self.holds(first, seq, 0);
        }
        (first, there)
    }

    /// Whether piece `index` may be written, by call `seq`: the peer has taken what lay in its place, or does while this looks, `most`
    /// so often.
    fn is_free(&mut self, peer: &SharedU64, index: u64, seq: u64, most: u32) -> bool {
        let needed = self.taken[self.place(index)];
        let known = needed == 0 || self.seen != 0 && is_at(self.seen, needed) || is_over(needed, seq);
        known || look(peer, &mut self.seen, needed, most)
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
        if !ring.is_free(peer, index, seq, most) {
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

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_sys::sync::AtomicU64;

    use super::*;

    /// As many calls as flags have sequences for.
    const ALL: u64 = 1 << (64 - EPOCH_BITS);

    /// The numbers of calls near which something could change.
    const NUMBERS: [u64; 7] = [0, 1, 1 << 19, 1 << 20, ALL / 2, ALL - 1, ALL];

    /// A rank that waits for a call, of `DEPTH` others about it, hears what is raised for it and later ones, and nothing else.
    #[test]
    fn flags_say_the_same_when_sequences_go_round() {
        for near in NUMBERS {
            for (waits, raised) in (near..near + 40).flat_map(|w| (near..near + 40).map(move |r| (w, r))) {
                for (epoch, other) in [(0, 0), (0, 1), (1, 0), (1, 1), (7, 1 << 27)] {
                    let later = (raised, other) >= (waits, epoch);
                    assert_eq!(is_at(flag_of(raised, other), flag_of(waits, epoch)), later, "{raised} for {waits}");
                    assert!(!is_over(flag_of(raised, other), waits), "{raised} at {waits}");
                }
                let read = epoch_of(flag_of(raised, 5), waits);
                assert_eq!(read, if raised == waits { 5 } else { u64::MAX }, "{raised} at {waits}");
            }
        }
    }

    /// What was raised, or waited for, very many calls ago is neither a later call nor still under way.
    #[test]
    fn flags_of_long_ago_let_nobody_pass() {
        for (then, since) in
            NUMBERS.into_iter().flat_map(|n| [1 << 20, 1 << 35, ALL - (1 << 21)].map(|since| (n, since)))
        {
            let (old, now) = (flag_of(then, 3), then + since);
            assert!(!is_at(old, flag_of(now, 0)), "{then}, and {since} later");
            assert!(is_over(old, now), "{then}, and {since} later");
        }
    }

    /// Two ranks give pieces by turns, in one thread; between some calls very many others pass that raise no flag.
    #[test]
    fn rings_go_on_when_sequences_go_round() {
        for start in NUMBERS {
            // Both have raised theirs not long ago.
            let words = [0, 1].map(|_| AtomicU64::new(flag_of(start.max(1) - 1, 1)));
            // SAFETY: atomics of this test, which outlive all that is made of them.
            let flags = [0, 1].map(|me: usize| unsafe { SharedU64::from_ptr(words[me].as_ptr().cast()) });
            let mut rings = [Ring::<2>::new(2), Ring::new(2)];
            let mut seq = start.max(1);
            for call in 0..60_usize {
                let (giver, pieces) = (call / 3 % 2, call as u64 % 4 + 1);
                let taker = 1 - giver;
                let (first, there) = rings[giver].offer(&flags[taker], seq, pieces, |_| ());
                assert!(there, "call {seq} finds its place free");
                let mut gives = Pipe::new(true, first, there);
                let mut takes = Pipe::new(false, first, there);
                while takes.done < pieces {
                    while gives.done < pieces
                        && gives.give(&mut rings[giver], [&flags[giver], &flags[taker]], seq, 1, |_, _| ())
                    {
                    }
                    assert!(gives.done - takes.done <= 2, "call {seq}: a place was written that was not taken");
                    assert!(gives.done > takes.done, "call {seq}: the giver waits for nothing");
                    while takes.is_there(&flags[giver], seq, pieces, 1) && takes.done < pieces {
                        assert!(takes.done < gives.done, "call {seq}: a piece was taken that is not there");
                        takes.take(&rings[taker], &flags[taker], seq, |_, _| ());
                    }
                }
                seq += [1, 1, 90, 1 << 20, 1 << 33][call % 5];
            }
        }
    }
}
