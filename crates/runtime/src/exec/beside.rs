//! Payloads of medium size beside the line that announces a direct call: the input of a rank whose memory peers cannot
//! map, or of a call that is `apart`, or that a root waits for (`run`), copied to where they can read it. What the eager
//! protocol does with small ones; but each rank decides for itself.
//!
//! What fits a payload slot and is all that moves between ranks (what a root gives to all others, or of two ranks one to the
//! root) is put into the slot: it is taken from there whatever memory the others have, and who gives does not wait for them (`awaited` is
//! the exception). Its line says where that lies: where stores wait for lines of another core payloads of one of two ranks go round many more of them.
//! All else is put into an *area*; the ranks meet, and if every input came so the call ends there.
//!
//! The area is at the end of a half of the scratch (see `scratch`); direct calls use the halves in turn. A rank puts something
//! there when its peers have ended the call for which it did so last.

use std::ops::Range;

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Error, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::{self, Words};
use super::eager::Form;
use super::lent;
use super::limits;
use super::pieces::Pipe;
use super::piped;
use super::plan::{Aside, Plan};
use super::scratch::{Scratch, area, takes_turns};
use super::trail;
use crate::communicator::core::Core;
use crate::communicator::hub::{SLOTS, Slots};
use crate::transport::passage::{self, Passage};

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

/// Whether some of it went past the caches.
///
/// # Safety
/// `to` has room for `bytes` bytes, which nobody reads; `input` is readable for as many.
unsafe fn copy(core: &Core, passage: &mut Passage, call: &Call, to: *mut u8, input: *const u8, bytes: usize) -> bool {
    let mut away = false;
    for part in read_by_others(core, call, bytes).into_iter().filter(|part| !part.is_empty()) {
        // SAFETY: the part lies inside of both.
        away |= unsafe { passage.copy(to.add(part.start), input.add(part.start), part.len(), bytes) };
    }
    away
}

/// Copies the input beside the line of the direct call `seq`, which this rank announces next; whether there was room.
pub(super) fn put(core: &Core, engine: &mut Engine, call: &Call, seq: u64, input: *const u8, bytes: usize) -> bool {
    let half = engine.half;
    // Who has started the call behind the one for which the area was used has ended that. Where ranks take turns, the peer has
    // announced the last call, for which it used this area: what it put there is complete, and was taken before this call.
    // The first two calls have none before them that is asked for.
    let until = if takes_turns(core) { seq.max(3) } else { engine.put_at[half] + 2 };
    if bytes > Scratch::of(core).room_of(call.collective) || !engine.seen.may_publish(core, until, 2) {
        return false;
    }
    engine.put_at[half] = seq;
    // SAFETY: the caller's input; the area has room, and peers are done with it.
    unsafe {
        match shift(core, call, core.rank) {
            // To the end of as many bytes as the input has: its first block.
            block if block > 0 => engine.places.copy(area(core, core.me, half).add(block), input, block, bytes),
            _ => copy(core, &mut engine.places, call, area(core, core.me, half), input, bytes),
        };
    }
    true
}

/// Takes the result of call `seq` from beside the lines. All have arrived, and every rank with an input put it there.
pub(super) fn take(core: &Core, engine: &mut Engine, call: &Call, seq: u64) {
    // What `put` relies on. Of a call that others begin behind it is known that what is touched is mapped, so that it never takes this road.
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

/// Bytes of the giver's input that move. A block of a scatter of two ranks lies at the start of its slot.
fn moved(core: &Core, call: &Call) -> usize {
    let blocks = if call.collective == Collective::Scatter && core.ranks > 2 { core.ranks } else { 1 };
    blocks * call.block_bytes() as usize
}

/// Whether what this rank gives in `call` goes into a slot though peers can map it, if the rank [waits](super::run) for each call: where ranks
/// share cores, of a root. What is longer others take sooner than it is copied.
pub(super) fn is_slotted_if_waited(core: &Core, call: &Call) -> bool {
    /// Bytes of a broadcast for each rank: to wait for one costs a turn of its core.
    const FOR_EACH: usize = 16 << 10;
    /// Bytes of a block of a scatter, of which each rank copies its own.
    const BLOCK: usize = 64 << 10;
    let most = match call.collective {
        Collective::Broadcast => FOR_EACH * core.ranks,
        Collective::Scatter => BLOCK,
        _ => return false,
    };
    let moved = moved(core, call);
    let long = || call.block_bytes() as usize <= most && moved as u64 <= limits::long_limit(core, call.collective);
    core.rank as u32 == call.root && trail::goes_on(core) && (moved <= core.hub.geometry().eager_bytes || long())
}

/// Bytes up to which what this rank gives goes into a slot, as this rank alone decides; a slot has as many.
///
/// Measured with two processes on cores of their own: a broadcast out of place and longer blocks of a gather are faster
/// where the other rank's core, or the kernel, copies at the same time. Only the root knows whether it works in place. But where
/// cores wait for each other's lines slots are faster than rings up to half of one: copies to them go past the caches earlier
/// (`transport::passage`).
fn most_by_slot(core: &Core, call: &Call, aside: Aside) -> usize {
    let geometry = core.hub.geometry();
    let usual = geometry.eager_bytes;
    // Where the kernel is the faster one half as much: a giver that does not wait is worth the rest.
    let large = if aside.by_kernel { geometry.large_bytes / 2 } else { geometry.large_bytes };
    match call.collective {
        Collective::Reduce => usual.max(large),
        Collective::Broadcast | Collective::Scatter if geometry.crowded => {
            usual.max(limits::long_limit(core, call.collective) as usize)
        }
        Collective::Scatter if core.ranks > 2 => usual,
        Collective::Broadcast if core.ranks > 2 => usual.max(large),
        Collective::Broadcast | Collective::Scatter | Collective::Gather if geometry.waits => usual.max(large / 2),
        Collective::Broadcast if core.rank as u32 == call.root && call.send != call.recv.cast_const() => usual,
        Collective::Broadcast => usual.max(large / 2),
        Collective::Scatter => usual.max(large / 8),
        _ => usual.max(large / 4),
    }
}

/// Whether what this rank gives in `call` goes into a slot if peers cannot map it, and no line of the eager protocol serves it.
pub(super) fn is_for_slot(core: &Core, call: &Call, aside: Aside) -> bool {
    core.eager && giver(core, call) == Some(core.me) && moved(core, call) <= most_by_slot(core, call, aside)
}

/// Whether what this rank, the root, gives in `call` goes by messages in any case: peers cannot map it, and it fits nowhere else.
pub(super) fn is_sent(core: &Core, engine: &mut Engine, call: &Call, aside: Aside) -> bool {
    let bytes = call.input_bytes(core.rank as u32, core.ranks);
    let is_beside = aside.beside && bytes as usize <= Scratch::of(core).room_of(call.collective);
    !(core.one_process || is_beside || aside.piped || aside.apart)
        && direct::will_send(core, call, call.send, aside)
        && moved(core, call) > most_by_slot(core, call, aside)
        && !engine.is_mapped(core, call.send, bytes)
}

/// Payloads that a rank gives by slots in which they stay in the caches, before it gives more by such as go round: of who gives that
/// many, more will come, and those take more memory.
const OFTEN: u8 = 64;

/// The slot of this rank for the `bytes` bytes that it gives in call `seq`, and how they go there. Where cores wait for each other's
/// lines payloads for one other rank go [round](crate::communicator::hub::Hub::round), once they are many.
fn slot<'e>(core: &Core, engine: &'e mut Engine, seq: u64, bytes: usize) -> (*mut u8, &'e mut Passage) {
    let geometry = core.hub.geometry();
    let long = bytes > geometry.eager_bytes;
    if long && geometry.crowded {
        engine.known.populate(core, Slots::Long, bytes);
        return (core.hub.slot(core.me, Slots::Long, seq), &mut engine.slots);
    }
    if core.ranks > 2 || !geometry.waits || bytes > geometry.large_bytes || !many_are_given(core, engine) {
        let slot = if long { core.hub.large_payload(core.me, seq) } else { core.hub.payload(core.me, seq) };
        return (slot, &mut engine.slots);
    }
    // Past the caches few lines are faster than many.
    if engine.rounds.is_away() && !long {
        return (core.hub.payload(core.me, seq), &mut engine.rounds);
    }
    let (place, behind) = core.hub.round(core.me, engine.round, bytes);
    engine.round = behind;
    (place, &mut engine.rounds)
}

/// Counts a payload of this rank; whether there were many before.
fn many_are_given(core: &Core, engine: &mut Engine) -> bool {
    if engine.given == OFTEN {
        return true;
    }
    engine.given += 1;
    if engine.given == OFTEN {
        engine.round = core.hub.populate_round(core.me);
    }
    false
}

/// What the line of a giver says of a payload that lies in a slot.
#[derive(Clone, Copy)]
pub(super) struct InSlot {
    /// How far behind the beginning of its part of the hub.
    pub(super) at: u64,
    /// It went past the caches.
    pub(super) away: bool,
}

/// Copies the input of the giver, if that is this rank, to a payload slot of call `seq`: `None` if there was no room.
pub(super) fn put_in_slot(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    seq: u64,
    input: *const u8,
    bytes: usize,
    aside: Aside,
) -> Option<InSlot> {
    if !is_for_slot(core, call, aside) || !engine.seen.may_publish(core, seq, SLOTS) {
        return None;
    }
    let moved = moved(core, call);
    let (to, passage) = slot(core, engine, seq, moved);
    // SAFETY: the caller's input; the slot has room, and peers are done with it: they are with all calls but the last ones, of
    // which there are no more than slots.
    let away = unsafe {
        match moved < bytes {
            true => passage.copy(to, input.add((1 - core.rank) * moved), moved, moved),
            false => copy(core, passage, call, to, input, bytes),
        }
    };
    Some(InSlot { at: core.hub.offset_of(core.me, to), away })
}

/// Takes what call `seq` moves from the `slot` of `giver`.
///
/// # Errors
/// `InternalError` where its line speaks of a slot that is none.
fn take_from_slot(core: &Core, engine: &mut Engine, call: &Call, giver: usize, seq: u64, slot: InSlot) -> Result<()> {
    let Some(there) = core.hub.payload_at(giver, slot.at, moved(core, call)) else {
        return Err(no_slot(core, call, giver, slot));
    };
    // As in `take`: the giver writes the slot again when this rank has started a later call.
    debug_assert_eq!(engine.next_number(), seq + 1, "{} is taken too late", call.describe());
    // SAFETY: the payload is complete, since the line has arrived, and stays until this rank has started a later call; the
    // buffers are the caller's.
    unsafe {
        if call.collective == Collective::Reduce {
            let from = |member: usize| if member == core.me { call.send } else { there.cast_const() };
            Form::new(core, call).combine(core, call, from, &mut engine.srcs);
        } else {
            let (to, from) = carried(core, call, giver);
            let block = call.block_bytes() as usize;
            passage::fetch(call.recv.add(to), there.add(from), block, block, slot.away);
            keep(core, call);
        }
    }
    Ok(())
}

#[cold]
fn no_slot(core: &Core, call: &Call, giver: usize, slot: InSlot) -> Error {
    Error::internal(format!(
        "{}: rank {} says that its payload lies at {:#x} of its part of the shared memory, where no payload does: its library is \
         another one, or something wrote over that memory",
        call.describe(),
        core.members[giver],
        slot.at
    ))
}

/// Where in its output this rank puts its block of what `giver` gives, and where in the slot that begins.
fn carried(core: &Core, call: &Call, giver: usize) -> (usize, usize) {
    let block = call.block_bytes() as usize;
    match call.collective {
        Collective::Scatter if core.ranks > 2 => (0, core.rank * block),
        Collective::Gather => (core.members[giver] * block, 0),
        _ => (0, 0),
    }
}

/// Copies the root's own block; nothing in place.
///
/// # Safety
/// The buffers of the caller have it.
unsafe fn keep(core: &Core, call: &Call) {
    if let Some(own) = piped::own(core, call, call.send) {
        // SAFETY: the caller's promise.
        unsafe { kernels::copy(&[own.to], own.from, call.block_bytes() as usize) };
    }
}

/// How a call goes on that needs no other line than its giver's.
pub(super) enum Given {
    /// Its payload was taken from the giver's slot: it is over here.
    Over,
    Piped(Pipe),
    /// By messages, for which nothing is done yet.
    Sent,
}

/// How call `seq`, served by `plan`, goes on if that rests on what the line of this rank says alone. `None`: all have to meet.
#[inline]
pub(super) fn gives(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: Option<&Plan>,
    seq: u64,
    words: &Words,
) -> Option<Given> {
    let given = if direct::in_slot(words).is_some() {
        // SAFETY: the caller's buffers.
        unsafe { keep(core, call) };
        engine.leave_unsettled(seq, call.signature);
        Given::Over
    } else if direct::is_sent(words) {
        return Some(Given::Sent);
    } else {
        Given::Piped(direct::pipe(words, true)?)
    };
    lent::stray(engine, plan);
    Some(given)
}

/// The same if that rests on what the line of `giver` says, which is another rank.
///
/// # Errors
/// Those of [`take_from_slot`].
#[inline]
pub(super) fn given(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: Option<&Plan>,
    giver: usize,
    seq: u64,
    words: &Words,
) -> Result<Option<Given>> {
    let given = if let Some(slot) = direct::in_slot(words) {
        take_from_slot(core, engine, call, giver, seq, slot)?;
        // Of two ranks, the other one is known to have made the call.
        if core.ranks > 2 {
            engine.leave_unsettled(seq, call.signature);
        }
        Given::Over
    } else if direct::is_sent(words) {
        return Ok(Some(Given::Sent));
    } else {
        let Some(pipe) = direct::pipe(words, false) else { return Ok(None) };
        Given::Piped(pipe)
    };
    lent::stray(engine, plan);
    Ok(Some(given))
}
