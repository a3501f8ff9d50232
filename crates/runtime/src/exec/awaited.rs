//! What one of two ranks gives where the other one waits for it already: the kernel copies it.
//!
//! By a slot one rank copies after the other, each while the other copies what belongs to the next call. Where there is no next call
//! yet that is time lost; the kernel copies once, of most calls both ranks a part. So it is for a rank that waits for each of its calls
//! ([`run`](super::run)) and does something else in between. Its peer has to have made the call: who gives by a slot waits for nobody.
//!
//! Whether it is done the rank that gives decides for itself: its line says where the payload lies.

use oxccl_sys::clock;

use super::beside;
use super::call::Call;
use super::collective::Engine;
use super::entry::has_come;
use super::plan::{Aside, Plan};
use crate::communicator::core::Core;

/// Ticks from the end of a call to the next one from which on they do not follow each other, 0.5 to 1 us: who only waits for the stream in
/// between is mostly faster, though all that was written has to leave the store buffer.
const APART: u64 = if cfg!(target_arch = "x86_64") { 2048 } else { 1000 };
/// An end of which nobody knows when it was.
const UNKNOWN: u64 = u64::MAX - APART;
/// Calls that are not looked at behind one for which this rank had to wait, since its peer had made it and did something else; or
/// behind some in a row to which the peer came late.
const SHY: u32 = 64;
const LATE: u32 = 16;
/// Ticks that a call of `bytes` takes at most in which nobody waited: 10 to 20 us, of which the first ones, whose memory the kernel has not
/// looked at for a while, take up to half.
const fn most_ticks(bytes: u64) -> u64 {
    20 * APART + bytes
}
/// Bytes from which on the kernel is the faster one.
const LEAST: u64 = 8 << 10;
/// Looks at the line of the peer, and bytes for each of which there is one more: those with pauses, of some 50 ns. A rank that
/// finds nobody has lost about what the copy takes, at most.
const LOOKS: u32 = 64;
const BYTES_A_LOOK: usize = 512;
const MOST_LOOKS: u32 = LOOKS + 32;

/// What a rank knows of the calls by which it gives.
#[derive(Debug, Default)]
pub(in crate::exec) struct Awaited {
    /// The last one of which it was looked at whether it is awaited, and when that was over, or [`UNKNOWN`].
    last: u64,
    ended: u64,
    /// When it began.
    begun: u64,
    /// The kernel was to copy it.
    lent: bool,
    /// Calls in a row to which the peer came late.
    late: u32,
    /// Calls that are not looked at.
    shy: u32,
}

impl Awaited {
    /// Whether call `seq`, which begins at `now`, follows the last such one.
    fn follows(&mut self, seq: u64, now: u64) -> bool {
        (self.last, self.begun, self.lent) = (seq, now, false);
        now < std::mem::replace(&mut self.ended, UNKNOWN) + APART
    }

    /// Whether the next call is not looked at.
    fn is_shy(&mut self) -> bool {
        self.shy = self.shy.saturating_sub(1);
        self.shy > 0
    }

    /// Whether the peer `has` made the call at hand.
    fn note_peer(&mut self, has: bool) {
        self.lent = has;
        self.late = if has { 0 } else { self.late + 1 };
        if self.late == LATE {
            (self.shy, self.late) = (SHY, 0);
        }
    }

    /// Call `seq`, of blocks of `bytes`, is over; `None`: not at once.
    #[inline]
    pub(in crate::exec) fn note_end(&mut self, seq: u64, bytes: Option<u64>) {
        if self.last != seq {
            return;
        }
        self.ended = if bytes.is_some() { clock::ticks() } else { UNKNOWN };
        if self.lent && bytes.is_none_or(|bytes| self.ended > self.begun + most_ticks(bytes)) {
            self.shy = SHY;
        }
    }
}

/// Whether what this rank gives in calls like `call` could be awaited: of two ranks, where the kernel could copy it, and does so faster
/// or is asked to. Elsewhere it was not measured.
pub(super) fn may_be(core: &Core, call: &Call, plan: &Plan) -> bool {
    let far = matches!(plan, Plan::Direct { far: Some(_), .. });
    let faster = core.trades_lines || core.config.p2p == "cma" && !core.crowded;
    core.ranks == 2 && core.reaches && !core.one_process && faster && far && call.block_bytes() >= LEAST
}

/// Whether `call`, which begins now, as the next one, goes by a slot else, if `aside` says so, and does not follow the last one.
pub(super) fn is_apart(core: &Core, engine: &mut Engine, call: &Call, aside: Aside) -> bool {
    let (seq, bytes) = (engine.next_number(), call.input_bytes(core.rank as u32, core.ranks));
    beside::is_for_slot(core, call, aside)
        && !engine.is_mapped(core, call.send, bytes)
        && !engine.awaited.is_shy()
        && !engine.awaited.follows(seq, clock::ticks())
}

/// Whether the peer has made call `seq`, by which this rank gives and which it announces next.
pub(super) fn is(core: &Core, awaited: &mut Awaited, call: &Call, seq: u64) -> bool {
    let looks = LOOKS + (call.block_bytes() as usize / BYTES_A_LOOK) as u32;
    let has = has_come(core, 1 - core.me, seq, looks.min(MOST_LOOKS));
    awaited.note_peer(has);
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_follow_where_nothing_lies_between() {
        let mut awaited = Awaited::default();
        assert!(!awaited.follows(1, 1_000_000));
        assert!(awaited.follows(2, 1 << 60), "when the one before ended is not known");
        for (now, follows) in [(0, true), (APART - 1, true), (APART, false), (1 << 40, false)] {
            awaited.ended = 1_000_000;
            assert_eq!(awaited.follows(2, 1_000_000 + now), follows, "{now} ticks");
        }
    }

    #[test]
    fn only_ends_of_calls_that_were_looked_at_count() {
        let mut awaited = Awaited::default();
        awaited.note_end(1, Some(LEAST));
        assert_eq!(awaited.ended, 0);
        awaited.follows(2, clock::ticks());
        awaited.note_end(2, Some(LEAST));
        let ended = awaited.ended;
        assert!(ended > 0 && clock::ticks() >= ended);
        awaited.note_end(3, Some(LEAST));
        assert_eq!(awaited.ended, ended);
    }

    #[test]
    fn some_calls_behind_one_that_was_late_are_not_looked_at() {
        let shy = |awaited: &mut Awaited| (0..2 * SHY).filter(|_| awaited.is_shy()).count() as u32;
        // What a call is like: whether the peer had come, and how long it takes, if it is over at once.
        let make = |awaited: &mut Awaited, has: bool, takes: Option<u64>| {
            awaited.follows(1, clock::ticks().saturating_sub(takes.unwrap_or(0)));
            awaited.note_peer(has);
            awaited.note_end(1, takes.map(|_| LEAST));
        };
        let mut awaited = Awaited::default();
        assert!(!awaited.is_shy());
        // By a slot it may take as long as it likes.
        make(&mut awaited, false, Some(1 << 30));
        make(&mut awaited, false, None);
        assert_eq!(shy(&mut awaited), 0);
        for takes in [None, Some(1 << 30)] {
            make(&mut awaited, true, takes);
            assert_eq!(shy(&mut awaited), SHY - 1, "{takes:?}");
        }
    }

    #[test]
    fn a_peer_that_is_always_late_is_not_looked_for() {
        let mut awaited = Awaited::default();
        for n in 1..LATE {
            awaited.note_peer(false);
            assert!(!awaited.is_shy(), "{n}");
        }
        awaited.note_peer(true);
        (1..LATE).for_each(|_| awaited.note_peer(false));
        assert!(!awaited.is_shy());
        awaited.note_peer(false);
        assert!(awaited.is_shy());
    }
}
