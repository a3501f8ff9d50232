//! Payloads of medium size beside the line that announces a direct call: the input of a rank whose memory peers cannot
//! map, or of a call that is `apart`, copied to where they can read it. What the eager protocol does with small ones; but each rank decides for itself.
//!
//! What fits a payload slot and is all that moves between ranks (what a root gives to all others, or of two ranks one to the
//! root) is put into the slot: it is taken from there whatever memory the others have, and who gives does not wait for them.
//! All else is put into an *area*; the ranks meet, and if every input came so the call ends there.
//!
//! The area is a quarter of a half of the scratch (see `scratch`); direct calls use the halves in turn. A rank puts something
//! there when its peers have ended the call for which it did so last.

use std::ops::Range;

use oxccl_types::Collective;

use super::call::Call;
use super::collective::Engine;
use super::direct::{self, Words};
use super::eager::Form;
use super::lent;
use super::pieces::Pipe;
use super::plan::Plan;
use super::scratch::{Scratch, area, takes_turns};
use super::trail;
use crate::communicator::core::Core;
use crate::communicator::hub::SLOTS;
use crate::transport::passage::Passage;

/// How far into its area `rank` begins: so that of two ranks each writes the lines that it has read.
fn shift(core: &Core, call: &Call, rank: usize) -> usize {
    match call.collective {
        Collective::AllToAll | Collective::ReduceScatter if takes_turns(core) => rank * call.block_bytes() as usize,
        _ => 0,
    }
}

/// The two parts of my input of `bytes` bytes that others read: all but my own block where each rank gets one, nothing of
/// what the root of a reduction or gather gives.
fn read_by_others(core: &Core, call: &Call, bytes: usize) -> [Range<usize>; 2] {
    let block = call.block_bytes() as usize;
    match call.collective {
        Collective::Scatter | Collective::AllToAll | Collective::ReduceScatter => {
            [0..core.rank * block, (core.rank + 1) * block..bytes]
        }
        Collective::Reduce | Collective::Gather if core.rank as u32 == call.root => [0..0, 0..0],
        _ => [0..bytes, bytes..bytes],
    }
}

/// Whether this rank gets anything.
fn receives(core: &Core, call: &Call) -> bool {
    !matches!(call.collective, Collective::Reduce | Collective::Gather) || core.rank as u32 == call.root
}

/// # Safety
/// `to` has room for `bytes` bytes, which nobody reads; `input` is readable for as many.
unsafe fn copy(core: &Core, passage: &mut Passage, call: &Call, to: *mut u8, input: *const u8, bytes: usize) {
    for part in read_by_others(core, call, bytes).into_iter().filter(|part| !part.is_empty()) {
        // SAFETY: the part lies inside of both.
        unsafe { passage.copy(to.add(part.start), input.add(part.start), part.len(), bytes) };
    }
}

/// Copies the input beside the line of the direct call `seq`, which this rank announces next; whether there was room.
pub(super) fn put(core: &Core, engine: &mut Engine, call: &Call, seq: u64, input: *const u8, bytes: usize) -> bool {
    let half = engine.half;
    // Who has started the call behind the one for which the area was used has ended that. Where ranks take turns, the peer has
    // announced the last call, for which it used this area: what it put there is complete, and was taken before this call.
    // The first two calls have none before them that is asked for.
    let until = if takes_turns(core) { seq.max(3) } else { engine.put_at[half] + 2 };
    if bytes > Scratch::of(core).room() || !engine.seen.may_publish(core, until, 2) {
        return false;
    }
    engine.put_at[half] = seq;
    // SAFETY: the caller's input; the area has room, and peers are done with it.
    unsafe {
        match shift(core, call, core.rank) {
            // To the end of as many bytes as the input has: its first block.
            block if block > 0 => engine.places.copy(area(core, core.me, half).add(block), input, block, bytes),
            _ => copy(core, &mut engine.places, call, area(core, core.me, half), input, bytes),
        }
    }
    true
}

/// Takes the result of call `seq` from beside the lines. All have arrived, and every rank with an input put it there.
pub(super) fn take(core: &Core, engine: &mut Engine, call: &Call, seq: u64) {
    // What `put` relies on. Calls that others begin behind are served by mapped memory: nobody takes them from here.
    debug_assert_eq!(engine.next_number(), seq + 1, "{} is taken after a later call was started", call.describe());
    if !receives(core, call) {
        return;
    }
    let half = engine.half;
    let there = |member: usize| area(core, member, half).wrapping_add(shift(core, call, core.members[member]));
    let from = |member: usize| if member == core.me { call.send } else { there(member).cast_const() };
    // SAFETY: the inputs are complete, since the lines have arrived, and stay until this rank has started a later call; the
    // output is the caller's.
    unsafe { Form::new(core, call).combine(core, call, from, &mut engine.srcs) };
}

/// The member whose input is all that moves between ranks, where there is one: the root that gives to all others, or of two
/// ranks the one that gives to the root.
///
/// Not to the root of a gather where calls may begin behind it: that announces more of them than there are slots before it
/// has taken the first, and its line would say that the slot is free again.
#[inline]
pub(super) fn giver(core: &Core, call: &Call) -> Option<usize> {
    let root = || core.member_of.get(call.root as usize).copied();
    match call.collective {
        Collective::Broadcast | Collective::Scatter => root(),
        Collective::Gather if trail::goes_on(core) => None,
        Collective::Reduce | Collective::Gather if core.ranks == 2 => root().map(|member| 1 - member),
        _ => None,
    }
}

/// The giver of `call`, if this rank is another one.
#[inline]
pub(super) fn giver_for(core: &Core, call: &Call) -> Option<usize> {
    giver(core, call).filter(|member| *member != core.me)
}

/// Bytes of the giver's input that move, if they may go into a slot. A block of a scatter of two ranks lies at its start.
///
/// Measured with two processes on cores of their own: a broadcast out of place and longer blocks of a gather are faster
/// where the other rank's core, or the kernel, copies at the same time. Only the root knows whether it works in place.
fn slot_payload(core: &Core, call: &Call) -> Option<usize> {
    let (geometry, block) = (core.hub.geometry(), call.block_bytes() as usize);
    let most = match call.collective {
        Collective::Broadcast if core.rank as u32 == call.root && call.send != call.recv.cast_const() => {
            geometry.eager_bytes
        }
        Collective::Broadcast => geometry.eager_bytes.max(geometry.large_bytes / 2),
        Collective::Scatter if core.ranks > 2 => geometry.eager_bytes / core.ranks,
        Collective::Scatter => geometry.eager_bytes.max(geometry.large_bytes / 8),
        Collective::Gather => geometry.eager_bytes.max(geometry.large_bytes / 4),
        _ => geometry.eager_bytes.max(geometry.large_bytes),
    };
    let blocks = if call.collective == Collective::Scatter && core.ranks > 2 { core.ranks } else { 1 };
    (block <= most).then_some(blocks * block)
}

/// The slot of `giver` for the `bytes` bytes that move in call `seq`.
fn slot(core: &Core, giver: usize, seq: u64, bytes: usize) -> *mut u8 {
    match bytes <= core.hub.geometry().eager_bytes {
        true => core.hub.payload(giver, seq),
        false => core.hub.large_payload(giver, seq),
    }
}

/// Copies the input of the giver, if that is this rank, to a payload slot of call `seq`; whether there was room.
pub(super) fn put_in_slot(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    seq: u64,
    input: *const u8,
    bytes: usize,
) -> bool {
    if !core.eager || giver(core, call) != Some(core.me) {
        return false;
    }
    let Some(moved) = slot_payload(core, call) else { return false };
    if !engine.seen.may_publish(core, seq, SLOTS) {
        return false;
    }
    let to = slot(core, core.me, seq, moved);
    // SAFETY: the caller's input; the slot has room, and peers are done with it.
    unsafe {
        match moved < bytes {
            true => engine.slots.copy(to, input.add((1 - core.rank) * moved), moved, moved),
            false => copy(core, &mut engine.slots, call, to, input, bytes),
        }
    }
    true
}

/// Ends call `seq`, whose payload is in a slot of `giver`, which may be this rank.
fn take_from_slot(core: &Core, engine: &mut Engine, call: &Call, giver: usize, seq: u64) {
    let moved = slot_payload(core, call).unwrap_or(0);
    let from = |member: usize| match member == core.me {
        true => call.send,
        false => slot(core, giver, seq, moved).cast_const(),
    };
    let one_block = call.collective == Collective::Scatter && core.ranks == 2;
    let before = |member: usize| if member != core.me && one_block { 0 } else { core.rank };
    if receives(core, call) {
        // As in `take`: the giver writes the slot again when this rank has started a later call.
        debug_assert!(giver == core.me || engine.next_number() == seq + 1, "{} is taken too late", call.describe());
        // SAFETY: the payload is complete, since the line has arrived, and stays until this rank has started a later call;
        // the output is the caller's.
        unsafe { Form::new(core, call).combine_parts(core, call, from, before, &mut engine.srcs) };
    }
    // Of two ranks, the other one is known to have made the call unless this one gives.
    if giver == core.me || core.ranks > 2 {
        engine.leave_unsettled(seq, call.signature);
    }
}

/// How a call goes on that needs no other line than its giver's.
pub(super) enum Given {
    /// Its payload was taken from the giver's slot: it is over here.
    Over,
    Piped(Pipe),
}

/// How call `seq`, served by `plan`, goes on if that rests on what the line of `giver` says alone, which may be this rank.
/// `None`: all have to meet.
#[inline]
pub(super) fn given(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: Option<&Plan>,
    giver: usize,
    seq: u64,
    words: &Words,
) -> Option<Given> {
    let given = if direct::in_slot(words) {
        take_from_slot(core, engine, call, giver, seq);
        Given::Over
    } else {
        Given::Piped(direct::pipe(words, giver == core.me)?)
    };
    lent::stray(engine, plan);
    Some(given)
}
