//! AlltoAllv of two ranks whose parts go in or beside the line, made again: what the lists come to is worked out once, so that
//! a call takes as long as one with equal blocks. It is a short way of [`eager_v`](super::eager_v), which says what
//! lies where and goes on with whatever is not as expected here.

use std::hint::black_box;

use oxccl_kernels as kernels;
use oxccl_sys::prefetch;
use oxccl_sys::sync::kept_in_order;
use oxccl_types::Result;

use super::at_once::{Pause, end_v};
use super::call::Call;
use super::collective::Engine;
use super::eager_v::{IN_LINE, IN_SLOT, WORD, Way};
use super::entry::{publish, put};
use crate::communicator::core::Core;
use crate::communicator::hub::SLOTS;
use crate::request::{VCounts, VLists};

/// Bytes of the table in the line.
const TABLE: usize = 2 * WORD;

/// Where a part lies in the caller's buffer, in bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: usize,
    bytes: usize,
}

/// What the lists of a call come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    lists: [[usize; 2]; 4],
    in_line: bool,
    /// Where the part of each member ends, as the line says it: the only one that has bytes is the peer's, whose word says how many.
    table: [u32; 2],
    gives: Part,
    takes: Part,
    /// What stays here, and where that goes.
    own: Part,
    own_to: usize,
}

impl Pair {
    /// That of a call which went `way`; none of a call that does not go so.
    pub(super) fn of(core: &Core, call: &Call, v: &VCounts, way: Way) -> Option<Pair> {
        let in_line = match way.place()? {
            IN_LINE => true,
            IN_SLOT => false,
            _ => return None,
        };
        let two = |list: &Vec<usize>| <[usize; 2]>::try_from(list.as_slice()).ok();
        let lists = [two(&v.send_counts)?, two(&v.send_displs)?, two(&v.recv_counts)?, two(&v.recv_displs)?];
        let (me, peer, element) = (core.rank, 1 - core.rank, call.dtype.size());
        if core.members.len() != 2 || core.me != me || lists[0][me] != lists[2][me] {
            return None;
        }
        let part = |counts: usize, rank: usize| Part {
            at: lists[counts + 1][rank] * element,
            bytes: lists[counts][rank] * element,
        };
        let (gives, takes, own) = (part(0, peer), part(2, peer), part(0, me));
        let mut table = [0; 2];
        table[peer..].fill(u32::try_from(gives.bytes).ok()?);
        u32::try_from(takes.bytes).ok()?;
        Some(Pair { lists, in_line, table, gives, takes, own, own_to: part(2, me).at })
    }

    /// Whether these are the lists.
    #[inline]
    pub(super) fn is(&self, lists: &VLists<'_>) -> bool {
        let same = |(own, other): (&[usize; 2], &&[usize])| <&[usize; 2]>::try_from(*other).is_ok_and(|o| o == own);
        self.lists.iter().zip(lists).all(same)
    }

    /// As [`advance_v`](super::at_once::advance_v), of a call that this is of.
    #[inline(always)]
    pub(super) fn advance(
        &self,
        core: &Core,
        engine: &mut Engine,
        call: &mut Call,
        (v, way): (&VCounts, Way),
        seq: &mut u64,
        published: &mut bool,
    ) -> Result<Option<Pause>> {
        core.check()?;
        engine.seen.begin(core.polls);
        let (number, signature) = engine.number(core, call.signature);
        (*seq, call.signature) = (number, signature);
        if !engine.seen.may_publish(core, *seq, way.ahead(core)) {
            return Ok(Some(Pause::Announce));
        }
        *published = true;
        self.announce(core, engine, call.send, signature, number);
        if !engine.seen.arrived(core, call, 1 - core.me, *seq)? {
            return Ok(Some(Pause::Meet));
        }
        if self.take(core, call, *seq) { Ok(None) } else { end_v(core, engine, call, v, *seq) }
    }

    /// Announces the call with this rank's part. `may_publish(seq)` holds.
    #[inline(always)]
    fn announce(&self, core: &Core, engine: &mut Engine, send: *const u8, signature: [u64; 2], seq: u64) {
        // As `eager_v::announce` does.
        engine.half ^= 1;
        let (word, in_line) = if self.in_line { (IN_LINE, self.gives.bytes) } else { (IN_SLOT, 0) };
        publish(core, signature, seq, |body| {
            // SAFETY: the body and the slot, of which no peer reads anything any more, have room for table and part, since the
            // call went this way before; the part lies in the caller's buffer.
            unsafe {
                let part = send.add(self.gives.at);
                match self.in_line {
                    true => put(body.add(WORD + TABLE), part, self.gives.bytes),
                    false => kernels::copy(&[core.hub.payload(core.me, seq)], part, self.gives.bytes),
                }
                kept_in_order();
                let words = body.cast::<u32>();
                words.write(word);
                words.add(1).cast::<[u32; 2]>().write(self.table);
            }
        });
        engine.seen.reclaim(core, seq + 1, WORD + TABLE + in_line);
        if !self.in_line && engine.seen.is_known_free(core.me, seq + 1, SLOTS) {
            prefetch::all_for_write(core.hub.payload(core.me, seq + 1), self.gives.bytes);
        }
    }

    /// Takes the peer's part, whose line has arrived, and the own one; `false` where the former lies elsewhere or has another
    /// length than this rank expects: nothing was taken then.
    #[inline(always)]
    fn take(&self, core: &Core, call: &Call, seq: u64) -> bool {
        let peer = 1 - core.me;
        let body = core.hub.entry(peer, seq).body;
        // Not what the line says, though that is the same and the compiler knows it: the processor would wait for the line to know
        // what to copy.
        let bytes = black_box(self.takes.bytes);
        // SAFETY: the line and the part beside it are complete and stay until this rank has started a later call; the parts lie
        // in the caller's buffers, which do not overlap.
        unsafe {
            let words = body.cast::<u32>();
            let from = match words.read() {
                IN_LINE => body.add(WORD + TABLE),
                IN_SLOT => core.hub.payload(peer, seq),
                _ => return false,
            };
            if words.add(1 + core.me).read() as usize != self.takes.bytes {
                return false;
            }
            kernels::copy(&[call.recv.add(self.takes.at)], from, bytes);
            kernels::copy(&[call.recv.add(self.own_to)], call.send.add(self.own.at), self.own.bytes);
        }
        true
    }
}
