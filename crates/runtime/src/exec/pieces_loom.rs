//! The ring of pieces under every interleaving and every reordering the memory model allows: two ranks that give and take calls over
//! memory in which loom sees who touches which place.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use oxccl_sys::sync::SharedU64;

use super::pieces::{Pipe, Ring};

const PLACES: usize = 2;
/// Looks of a rank before it does something else.
const LOOKS: u32 = 1;

/// What a rank has in the hub.
struct Hub {
    flag: AtomicU64,
    places: [UnsafeCell<u64>; PLACES],
    /// What its line says of each call: 0 until it is there.
    lines: Vec<AtomicU64>,
}

struct Ranks {
    hubs: [Hub; 2],
    /// Somebody gave up.
    aborted: AtomicU64,
}

// SAFETY: that the cells are handed over correctly is what the test checks.
unsafe impl Sync for Ranks {}
// SAFETY: as above.
unsafe impl Send for Ranks {}

/// One call: who gives, and how many pieces.
type Call = (usize, u64);

/// Piece `number` of call `seq`.
fn piece(seq: u64, number: u64) -> u64 {
    100 * seq + number
}

/// The end of a rank that heard of an abort.
struct Aborted;

/// One rank: flags, ring and line are used as `piped` and `direct` do.
struct Rank {
    ranks: Arc<Ranks>,
    me: usize,
    ring: Ring<PLACES>,
    /// Pieces before it gives up, if it does.
    left: Option<u64>,
}

impl Rank {
    fn flag(&self, rank: usize) -> SharedU64 {
        // SAFETY: one of loom's atomics, in memory that every thread of the model keeps.
        unsafe { SharedU64::from_ptr((&raw const self.ranks.hubs[rank].flag).cast_mut().cast()) }
    }

    /// Before each piece: it gives up here, or hears that the other one did, whenever there is nothing to do.
    fn goes_on(&mut self, moved: bool) -> Result<(), Aborted> {
        if let Some(left) = self.left.as_mut().filter(|_| moved) {
            *left -= 1;
        }
        if self.left == Some(0) {
            self.ranks.aborted.store(1, Ordering::Release);
            return Err(Aborted);
        }
        if !moved {
            if self.ranks.aborted.load(Ordering::Acquire) == 1 {
                return Err(Aborted);
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn gives(&mut self, seq: u64, pieces: u64) -> Result<(), Aborted> {
        let ranks = self.ranks.clone();
        let mine = &ranks.hubs[self.me];
        let (flag, peer) = (self.flag(self.me), self.flag(1 - self.me));
        let put = |number: u64, place: usize| {
            // SAFETY: free; loom reports who else would touch it.
            mine.places[place].with_mut(|p| unsafe { *p = piece(seq, number) });
        };
        let (first, there) = self.ring.offer(&peer, seq, pieces, |place| put(0, place));
        mine.lines[seq as usize].store(1 | u64::from(there) << 1 | first << 2, Ordering::Release);
        let mut pipe = Pipe::new(true, first, there);
        if there {
            self.goes_on(true)?;
        }
        while pipe.done < pieces {
            let moved = pipe.give(&mut self.ring, [&flag, &peer], seq, LOOKS, put);
            self.goes_on(moved)?;
        }
        Ok(())
    }

    fn takes(&mut self, seq: u64, pieces: u64) -> Result<(), Aborted> {
        let ranks = self.ranks.clone();
        let theirs = &ranks.hubs[1 - self.me];
        let (flag, peer) = (self.flag(self.me), self.flag(1 - self.me));
        let line = loop {
            match theirs.lines[seq as usize].load(Ordering::Acquire) {
                0 => self.goes_on(false)?,
                line => break line,
            }
        };
        let mut pipe = Pipe::new(false, line >> 2, line >> 1 & 1 == 1);
        while pipe.done < pieces {
            let there = pipe.is_there(&peer, seq, pieces, LOOKS);
            if there {
                pipe.take(&self.ring, &flag, seq, |number, place| {
                    // SAFETY: there; loom reports who else would touch it.
                    let got = theirs.places[place].with(|p| unsafe { *p });
                    assert_eq!(got, piece(seq, number), "piece {number} of call {seq}");
                });
            }
            self.goes_on(there)?;
        }
        Ok(())
    }

    /// Whether all calls were made.
    fn plays(mut self, calls: &[Call]) -> bool {
        let mut all = (1..).zip(calls);
        all.all(|(seq, (giver, pieces))| {
            let made = if *giver == self.me { self.gives(seq, *pieces) } else { self.takes(seq, *pieces) };
            made.is_ok()
        })
    }
}

/// Two ranks that make these calls, of which one or the other gives up after so many pieces. No order is tried with more than
/// `preemptions` switches away from a rank that could go on, if that is given: all would take hours.
fn play(preemptions: Option<usize>, calls: &'static [Call], left: [Option<u64>; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let hub = || Hub {
            flag: AtomicU64::new(0),
            places: std::array::from_fn(|_| UnsafeCell::new(0)),
            lines: (0..=calls.len()).map(|_| AtomicU64::new(0)).collect(),
        };
        let ranks = Arc::new(Ranks { hubs: [hub(), hub()], aborted: AtomicU64::new(0) });
        let [lower, higher] =
            [0, 1].map(|me| Rank { ranks: ranks.clone(), me, ring: Ring::new(PLACES), left: left[me] });
        let other = thread::spawn(move || higher.plays(calls));
        let made = [lower.plays(calls), other.join().unwrap()];
        assert!(left != [None, None] || made == [true, true]);
        assert!((0..2).all(|rank| left[rank].is_none() || !made[rank]), "it gave up");
    });
}

#[test]
fn loom_pieces_of_one_call_change_hands() {
    play(Some(3), &[(0, 3)], [None, None]);
    play(Some(2), &[(0, 5)], [None, None]);
}

#[test]
fn loom_who_gives_is_ahead_from_call_to_call() {
    play(Some(2), &[(0, 1), (0, 1), (0, 1)], [None, None]);
    play(Some(2), &[(0, 3), (0, 1), (0, 2)], [None, None]);
}

#[test]
fn loom_ranks_give_pieces_by_turns() {
    play(Some(3), &[(0, 2), (1, 3), (0, 2)], [None, None]);
    play(Some(3), &[(0, 1), (1, 1), (1, 1), (0, 1), (0, 1)], [None, None]);
}

#[test]
fn loom_who_gives_up_leaves_no_rank_behind() {
    for pieces in 1..3 {
        // Who takes gives up: the other may not go on beyond the places that are free, nor wait for ever.
        play(Some(3), &[(0, 6)], [None, Some(pieces)]);
        play(Some(3), &[(0, 2), (0, 4)], [None, Some(pieces)]);
        // Who gives does.
        play(Some(3), &[(0, 3), (1, 3)], [Some(pieces), None]);
    }
}
