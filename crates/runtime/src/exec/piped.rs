//! What one rank of two gives to the other, in pieces through its ring: the root's data of a broadcast or scatter, or what the
//! root of a gather or reduction gets.
//!
//! Who gives announces the call with the first piece and goes on without waiting for the other, as far as there is room: so it
//! is ahead by up to all places of the ring, also from call to call, and each works while the other does. Flags count the
//! pieces of a call, on one side those that are there, on the other those that were taken.
//!
//! Nothing else uses the ring. It is longer than what the peer has to be behind for both to work: so its lines have left this
//! core's caches by the time they are read and written again, which is faster than to have them taken away.

use oxccl_kernels as kernels;
use oxccl_sys::Belfry;
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::pieces::{MOST_PLACES, PLACES, Pipe};
use crate::communicator::core::Core;
use crate::communicator::hub::Geometry;
use crate::device::Step;
use crate::transport::passage::{self, Passage};

/// Bytes that one step moves before it gives others a chance.
const STEP: usize = 1 << 20;

/// What a call moves from this rank to itself.
pub(super) struct Own {
    pub(super) from: *const u8,
    pub(super) to: *mut u8,
}

/// Whether calls of `collective` may go this way, where no other road is faster.
pub(super) fn serves(core: &Core, collective: Collective) -> bool {
    let one_way =
        matches!(collective, Collective::Broadcast | Collective::Scatter | Collective::Gather | Collective::Reduce);
    one_way && core.ranks == 2 && core.hub.geometry().ring_bytes > 0 && core.eager && !core.one_process
}

/// Places of the ring of a rank, each as long as those of the shortest.
pub(crate) fn ring_places(geometry: &Geometry) -> usize {
    (PLACES * geometry.ring_times()).min(MOST_PLACES)
}

fn piece_bytes(core: &Core) -> usize {
    (core.hub.geometry().ring_bytes / PLACES) & !63
}

/// Where what lies in `place` of `giver` is.
fn at(core: &Core, giver: usize, place: usize) -> *mut u8 {
    core.hub.ring_memory(giver).wrapping_add(place * piece_bytes(core))
}

/// The bytes of piece `number` of a block of `whole` bytes, and where they begin.
fn part(core: &Core, whole: usize, number: u64) -> (usize, usize) {
    let piece = piece_bytes(core);
    let start = (number as usize * piece).min(whole);
    (start, piece.min(whole - start))
}

fn pieces(core: &Core, call: &Call) -> u64 {
    call.block_bytes().div_ceil(piece_bytes(core) as u64)
}

/// Writes piece `number` to `place`, which is free.
fn put(core: &Core, passage: &mut Passage, call: &Call, send: *const u8, number: u64, place: usize) {
    let block = call.block_bytes() as usize;
    let before = if call.collective == Collective::Scatter { (1 - core.rank) * block } else { 0 };
    let (start, bytes) = part(core, block, number);
    // SAFETY: the caller's input has the block; the place has room for a piece, and the peer is done with it.
    unsafe { passage.copy(at(core, core.me, place), send.add(before + start), bytes, block) };
}

/// Begins to give call `seq`, which this rank announces next: what its line says beside that, and whether the first piece is
/// there already.
pub(super) fn offer(core: &Core, engine: &mut Engine, call: &Call, seq: u64, send: *const u8) -> (u64, bool) {
    let peer = core.hub.flag(1 - core.me, 0);
    let passage = &mut engine.places;
    engine.ring.offer(&peer, seq, pieces(core, call), |place| put(core, passage, call, send, 0, place))
}

/// What this rank has to copy for itself; none in place.
pub(super) fn own(core: &Core, call: &Call, send: *const u8) -> Option<Own> {
    let block = call.block_bytes() as usize;
    let (from, to) = match call.collective {
        Collective::Reduce => return None,
        _ if core.rank as u32 != call.root => return None,
        Collective::Broadcast => (send, call.recv),
        Collective::Scatter => (send.wrapping_add(core.rank * block), call.recv),
        _ => (send, call.recv.wrapping_add(core.rank * block)),
    };
    (from != to.cast_const()).then_some(Own { from, to })
}

/// Copies piece `number` of what stays here.
fn keep(core: &Core, call: &Call, own: &Own, number: u64) {
    let block = call.block_bytes() as usize;
    let (start, bytes) = part(core, block, number);
    // SAFETY: buffers of the caller, which have the block and do not overlap; nobody else writes the output.
    unsafe { kernels::copy_part(&[own.to.add(start)], own.from.add(start), bytes, block) };
}

/// Takes piece `number` of the peer, which is there, from `place` of its ring.
fn take(core: &Core, srcs: &mut Vec<*const u8>, call: &Call, send: *const u8, number: u64, place: usize, away: bool) {
    let block = call.block_bytes() as usize;
    let (start, bytes) = part(core, block, number);
    let there = at(core, 1 - core.me, place).cast_const();
    let before = if call.collective == Collective::Gather { (1 - core.rank) * block } else { 0 };
    // SAFETY: the piece is complete, since its flag or the line has come, and stays until this rank says that it was taken;
    // the caller's buffers have the block, and nobody else writes the output.
    unsafe {
        let to = call.recv.add(before + start);
        if call.collective != Collective::Reduce {
            return passage::fetch(to, there, bytes, block, away);
        }
        let mine = send.add(start);
        srcs.clear();
        srcs.extend(if core.rank == 0 { [mine, there] } else { [there, mine] });
        kernels::reduce(call.dtype, call.op, &[to], srcs, bytes / call.dtype.size(), call.post);
    }
}

/// Goes on with call `seq` until it is over here, blocked, or has moved [`STEP`] bytes.
///
/// # Errors
/// Those of [`Seen::arrived`](super::entry::Seen::arrived).
pub(super) fn step(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    send: *const u8,
    seq: u64,
    pipe: &mut Pipe,
) -> Result<Step> {
    let all = pieces(core, call);
    let own = own(core, call, send);
    let before = (pipe.done, pipe.own);
    // Who moved something has not waited since then.
    let halted = |pipe: &Pipe| if (pipe.done, pipe.own) == before { Step::Blocked } else { Step::Progress };
    let last = all.min(pipe.done + (STEP / piece_bytes(core)).max(1) as u64);
    let [mine, peer] = [core.me, 1 - core.me].map(|member| core.hub.flag(member, 0));
    while pipe.done < last {
        let looks = engine.seen.polls();
        if pipe.gives {
            // Its part of what stays here, while that is in this core's cache.
            if let Some(own) = own.as_ref().filter(|_| pipe.own < pipe.done) {
                keep(core, call, own, pipe.own);
                pipe.own += 1;
                continue;
            }
            let passage = &mut engine.places;
            let put = |number, place| put(core, passage, call, send, number, place);
            if !pipe.give(&mut engine.ring, [&mine, &peer], seq, looks, put) {
                // Not to wait for one that made another call.
                engine.seen.arrived(core, call, 1 - core.me, seq)?;
                return Ok(halted(pipe));
            }
        } else {
            let keeps = own.as_ref().filter(|_| pipe.own < all);
            if !pipe.is_there(&peer, seq, all, if keeps.is_some() { 1 } else { looks }) {
                let Some(own) = keeps else { return Ok(halted(pipe)) };
                keep(core, call, own, pipe.own);
                pipe.own += 1;
                continue;
            }
            let srcs = &mut engine.srcs;
            let away = pipe.away;
            pipe.take(&engine.ring, &mine, seq, |number, place| take(core, srcs, call, send, number, place, away));
        }
        core.hub.ring_all(core.me);
    }
    if last < all {
        return Ok(Step::Progress);
    }
    while let Some(own) = own.as_ref().filter(|_| pipe.own < all) {
        keep(core, call, own, pipe.own);
        pipe.own += 1;
    }
    // Who gives need not know that the other made the same call.
    if pipe.gives {
        engine.leave_unsettled(seq, call.signature);
    }
    Ok(Step::Done)
}
