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
use oxccl_sys::sync::{Ordering, pause_between};
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct;
use crate::communicator::core::Core;
use crate::device::Step;

/// Places of the ring.
const PLACES: usize = 16;
/// Bytes that one step moves before it gives others a chance.
const STEP: usize = 1 << 20;

/// The ring of this rank, as who gives sees it.
#[derive(Default)]
pub(super) struct Ring {
    /// Pieces of all calls up to now.
    head: u64,
    /// Per place the flag of the peer that says that it has taken the piece there.
    taken: [u64; PLACES],
    /// The flag of the peer as it was seen last.
    seen: u64,
}

/// How far a call is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipe {
    /// This rank gives.
    gives: bool,
    /// The place of the first piece.
    first: u64,
    /// Pieces that are there.
    there: u64,
    /// Pieces that this rank is done with.
    done: u64,
    /// Pieces of what stays on this rank that are copied.
    own: u64,
}

/// What a call moves from this rank to itself.
struct Own {
    from: *const u8,
    to: *mut u8,
}

/// Whether calls of `collective` may go this way, where no other road is faster.
pub(super) fn serves(core: &Core, collective: Collective) -> bool {
    let one_way =
        matches!(collective, Collective::Broadcast | Collective::Scatter | Collective::Gather | Collective::Reduce);
    one_way && core.ranks == 2 && core.hub.geometry().ring_bytes > 0 && core.eager && !core.one_process
}

fn piece_bytes(core: &Core) -> usize {
    (core.hub.geometry().ring_bytes / PLACES) & !63
}

fn place(index: u64) -> usize {
    index as usize % PLACES
}

/// Where piece `index` of `giver` lies.
fn at(core: &Core, giver: usize, index: u64) -> *mut u8 {
    core.hub.ring_memory(giver).wrapping_add(place(index) * piece_bytes(core))
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

/// Whether piece `index` may be written: the peer has taken what lay in its place, or does while this looks, `most` so often.
fn is_free(core: &Core, ring: &mut Ring, index: u64, most: u32) -> bool {
    let peer = 1 - core.me;
    let needed = ring.taken[place(index)];
    ring.seen >= needed || look(core, peer, &mut ring.seen, needed, most)
}

/// Whether the flag of `member` is raised to `needed`, or is while this looks; what it was goes to `seen`.
fn look(core: &Core, member: usize, seen: &mut u64, needed: u64, most: u32) -> bool {
    let flag = core.hub.flag(member, 0);
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

/// Writes piece `number` of call `seq`, which is piece `index` of the ring, whose place is free.
fn put(core: &Core, ring: &mut Ring, call: &Call, seq: u64, send: *const u8, number: u64, index: u64) {
    let block = call.block_bytes() as usize;
    let before = if call.collective == Collective::Scatter { (1 - core.rank) * block } else { 0 };
    let (start, bytes) = part(core, block, number);
    // SAFETY: the caller's input has the block; the place has room for a piece, and the peer is done with it.
    unsafe { kernels::copy_across(at(core, core.me, index), send.add(before + start), bytes, block) };
    ring.taken[place(index)] = direct::flag_of(seq, number + 1);
}

/// Begins to give call `seq`, which this rank announces next: what its line says beside that, and whether the first piece is
/// there already.
pub(super) fn offer(core: &Core, engine: &mut Engine, call: &Call, seq: u64, send: *const u8) -> (u64, bool) {
    let ring = &mut engine.ring;
    let first = ring.head;
    ring.head += pieces(core, call);
    let there = is_free(core, ring, first, 1);
    if there {
        put(core, ring, call, seq, send, 0, first);
    }
    (first, there)
}

/// The call whose giver's line says `first` and `there`; `gives`: that is this rank.
pub(super) fn begin(gives: bool, first: u64, there: bool) -> Pipe {
    let there = u64::from(there);
    Pipe { gives, first, there, done: if gives { there } else { 0 }, own: 0 }
}

/// What this rank has to copy for itself; none in place.
fn own(core: &Core, call: &Call, send: *const u8) -> Option<Own> {
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

/// Takes piece `number` of `giver`, which is piece `index` of its ring and there.
fn take(core: &Core, engine: &mut Engine, call: &Call, send: *const u8, number: u64, index: u64) {
    let block = call.block_bytes() as usize;
    let (start, bytes) = part(core, block, number);
    let there = at(core, 1 - core.me, index).cast_const();
    let before = if call.collective == Collective::Gather { (1 - core.rank) * block } else { 0 };
    // SAFETY: the piece is complete, since its flag or the line has come, and stays until this rank says that it was taken;
    // the caller's buffers have the block, and nobody else writes the output.
    unsafe {
        let to = call.recv.add(before + start);
        if call.collective != Collective::Reduce {
            return kernels::copy_part(&[to], there, bytes, block);
        }
        let mine = send.add(start);
        engine.srcs.clear();
        engine.srcs.extend(if core.rank == 0 { [mine, there] } else { [there, mine] });
        kernels::reduce(call.dtype, call.op, &[to], &engine.srcs, bytes / call.dtype.size(), call.post);
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
    while pipe.done < last {
        let index = pipe.first + pipe.done;
        let looks = engine.seen.polls();
        if pipe.gives {
            // Its part of what stays here, while that is in this core's cache.
            if let Some(own) = own.as_ref().filter(|_| pipe.own < pipe.done) {
                keep(core, call, own, pipe.own);
                pipe.own += 1;
                continue;
            }
            if !is_free(core, &mut engine.ring, index, looks) {
                // Not to wait for one that made another call.
                engine.seen.arrived(core, call, 1 - core.me, seq)?;
                return Ok(halted(pipe));
            }
            put(core, &mut engine.ring, call, seq, send, pipe.done, index);
        } else {
            let mut there = pipe.there;
            let waits = |own: &Option<Own>| if own.is_some() && pipe.own < all { 1 } else { looks };
            if there <= pipe.done {
                let needed = direct::flag_of(seq, pipe.done + 1);
                if look(core, 1 - core.me, &mut there, needed, waits(&own)) {
                    pipe.there = direct::epoch_of(there, seq).min(all);
                } else if let Some(own) = own.as_ref().filter(|_| pipe.own < all) {
                    keep(core, call, own, pipe.own);
                    pipe.own += 1;
                    continue;
                } else {
                    return Ok(halted(pipe));
                }
            }
            take(core, engine, call, send, pipe.done, index);
        }
        pipe.done += 1;
        direct::raise(core, 0, seq, pipe.done);
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
