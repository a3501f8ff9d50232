//! Payloads of medium size beside the line that announces a direct call: the input of a rank whose memory peers cannot
//! map, copied to where they can. What the eager protocol does with small ones; but each rank decides for itself.
//!
//! What fits a payload slot and goes from the root to all others is put into the slot: each takes it from there whatever
//! its own memory is, and the root does not wait for them. All else is put into an *area*; the ranks meet, and if every
//! input came so the call ends there.
//!
//! The area is the last quarter of a half of the scratch; direct calls use the halves in turn. A rank puts something there
//! when its peers have ended the call for which it did so last.

use std::ops::Range;

use oxccl_kernels as kernels;
use oxccl_types::Collective;

use super::call::Call;
use super::collective::Engine;
use super::eager::Form;
use crate::communicator::core::Core;
use crate::communicator::hub::SLOTS;

/// Bytes of an area.
pub(super) fn room(core: &Core) -> usize {
    (core.hub.geometry().scratch_half / 4) & !63
}

fn area(core: &Core, member: usize, half: usize) -> *mut u8 {
    let before = core.hub.geometry().scratch_half - room(core);
    // SAFETY: inside the half.
    unsafe { core.hub.scratch(member, half).add(before & !63) }
}

/// The two parts of my input of `bytes` bytes that others read: all but my own block where each rank gets one.
fn read_by_others(core: &Core, call: &Call, bytes: usize) -> [Range<usize>; 2] {
    let block = call.block_bytes() as usize;
    match call.collective {
        Collective::Scatter | Collective::AllToAll | Collective::ReduceScatter => {
            [0..core.rank * block, (core.rank + 1) * block..bytes]
        }
        _ => [0..bytes, bytes..bytes],
    }
}

/// # Safety
/// `to` has room for `bytes` bytes, which nobody reads; `input` is readable for as many.
unsafe fn copy(core: &Core, call: &Call, to: *mut u8, input: *const u8, bytes: usize) {
    for part in read_by_others(core, call, bytes).into_iter().filter(|part| !part.is_empty()) {
        // SAFETY: the part lies inside of both.
        unsafe { kernels::copy_across(to.add(part.start), input.add(part.start), part.len(), bytes) };
    }
}

/// Copies the input beside the line of the direct call `seq`, which this rank announces next; whether there was room.
pub(super) fn put(core: &Core, engine: &mut Engine, call: &Call, seq: u64, input: *const u8, bytes: usize) -> bool {
    let half = engine.half;
    // Who has started the call behind the one for which the area was used has ended that.
    if bytes > room(core) || !engine.seen.may_publish(core, engine.put_at[half] + 2, 2) {
        return false;
    }
    engine.put_at[half] = seq;
    // SAFETY: the caller's input; the area has room, and peers are done with it.
    unsafe { copy(core, call, area(core, core.me, half), input, bytes) };
    true
}

/// Takes the result from beside the lines. All have arrived, and every rank with an input put it there.
pub(super) fn take(core: &Core, engine: &mut Engine, call: &Call) {
    let receives = match call.collective {
        Collective::Reduce | Collective::Gather => core.rank as u32 == call.root,
        _ => true,
    };
    if !receives {
        return;
    }
    let half = engine.half;
    let from = |member: usize| if member == core.me { call.send } else { area(core, member, half).cast_const() };
    // SAFETY: the inputs are complete, since the lines have arrived, and stay until this rank has started a later call; the
    // output is the caller's.
    unsafe { Form::new(core, call).combine(core, call, from, &mut engine.srcs) };
}

/// The member from which all others get what they get, where there is one.
fn giver(core: &Core, call: &Call) -> Option<usize> {
    let rooted = matches!(call.collective, Collective::Broadcast | Collective::Scatter);
    rooted.then(|| core.member_of.get(call.root as usize).copied()).flatten()
}

/// The giver of `call`, if this rank is another one.
#[inline]
pub(super) fn giver_for(core: &Core, call: &Call) -> Option<usize> {
    giver(core, call).filter(|member| *member != core.me)
}

/// Copies the input of the giver, if that is this rank, to the payload slot of call `seq`; whether there was room.
pub(super) fn put_in_slot(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    seq: u64,
    input: *const u8,
    bytes: usize,
) -> bool {
    let gives = core.eager && giver(core, call) == Some(core.me);
    if !gives || bytes > core.hub.geometry().eager_bytes || !engine.seen.may_publish(core, seq, SLOTS) {
        return false;
    }
    // SAFETY: the caller's input; the slot has room, and peers are done with it.
    unsafe { copy(core, call, core.hub.payload(core.me, seq), input, bytes) };
    true
}

/// Ends call `seq`, whose payload is in the slot of `giver`, which may be this rank.
pub(super) fn take_from_slot(core: &Core, engine: &mut Engine, call: &Call, giver: usize, seq: u64) {
    let from = if giver == core.me { call.send } else { core.hub.payload(giver, seq).cast_const() };
    // SAFETY: the payload is complete, since the line has arrived, and stays until this rank has started a later call; the
    // output is the caller's.
    unsafe { Form::new(core, call).combine(core, call, |_| from, &mut engine.srcs) };
    // Of two ranks, the other one is known to have made the call unless this one gives.
    if giver == core.me || core.ranks > 2 {
        engine.leave_unsettled(seq, call.signature);
    }
}
