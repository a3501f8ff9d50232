//! Payloads of medium size beside the line that announces a direct call: the input of a rank whose memory peers cannot
//! map, copied to where they can. What the eager protocol does with small ones; but each rank decides for itself, the
//! ranks meet, and if every input came so the call ends there.
//!
//! The area is the last quarter of a half of the scratch; direct calls use the halves in turn. Who starts a direct call
//! has ended the one before it, in which it met all others: these had ended the one before that, which used this half.

use oxccl_kernels as kernels;
use oxccl_types::Collective;

use super::call::Call;
use super::collective::Engine;
use super::eager::Form;
use crate::communicator::core::Core;

/// Bytes of an area.
pub(super) fn room(core: &Core) -> usize {
    (core.hub.geometry().scratch_half / 4) & !63
}

fn area(core: &Core, member: usize, half: usize) -> *mut u8 {
    let before = core.hub.geometry().scratch_half - room(core);
    // SAFETY: inside the half.
    unsafe { core.hub.scratch(member, half).add(before & !63) }
}

/// Copies the input beside the line of the direct call that this rank announces next; whether there was room.
pub(super) fn put(core: &Core, engine: &Engine, input: *const u8, bytes: usize) -> bool {
    if bytes > room(core) {
        return false;
    }
    // SAFETY: the caller's input; the area has room, and peers are done with it (see the head of this file).
    unsafe { kernels::copy(&[area(core, core.me, engine.half)], input, bytes) };
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
    // SAFETY: the inputs are complete, since the lines have arrived, and stay until this rank meets the others again;
    // the output is the caller's.
    unsafe { Form::new(core, call).combine(core, call, from, &mut engine.srcs) };
}
