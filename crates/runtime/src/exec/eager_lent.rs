//! Reductions of more than a small slot holds, where ranks share cores: a rank whose input peers can map, and which makes many such
//! calls without waiting for them, lends its input and copies nothing; the root takes it from where it lies. Other inputs travel in
//! slots, as in [`eager`](super::eager).
//!
//! Each rank decides for itself, and its line says what it did: the root takes each input from where it is. Who lends waits until the
//! root has taken, and begins its next calls behind that (see [`trail`]). Who used a slot is over at once: it is the better way for
//! one that waits for its stream after each call, since that would have to wait for the root.

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::{self, Words};
use super::eager::Form;
use super::entry::{ask_for, publish};
use super::trail;
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::{LENT_WINDOW, LINES_AHEAD, SMALL_BYTES};
use crate::device::IdleStream;

/// How many calls may be under way that lend, and how many this rank may be ahead with one.
pub(super) const WINDOW: u64 = LENT_WINDOW;
pub(super) const AHEAD: u64 = LINES_AHEAD;

/// Whether the lines of `call`, an eager one, say whether inputs are lent. The same answer on every rank.
#[inline]
pub(super) fn serves(core: &Core, call: &Call) -> bool {
    call.collective == Collective::Reduce
        && call.scale.is_none()
        && call.block_bytes() > SMALL_BYTES as u64
        && trail::goes_on(core)
}

/// What the line of `call` says, which begins next, on `stream`, and [may be lent](serves), if this rank lends its input.
#[inline]
pub(super) fn offer(core: &Core, engine: &mut Engine, call: &Call, stream: &IdleStream<'_>) -> Option<Words> {
    if core.rank as u32 == call.root {
        return None;
    }
    let words = direct::lend(core, engine, call.send, call.block_bytes());
    let seq = engine.next_number();
    let many = engine.run.is_long(stream.waits(), seq, words.is_some());
    words.filter(|_| many)
}

/// Announces `call`, as `seq` and with the signature that it has as that, whose input is lent as `words` say. `may_publish(seq)` holds.
pub(super) fn start(core: &Core, signature: [u64; 2], seq: u64, words: &Words) {
    publish(core, signature, seq, |body| {
        // SAFETY: the body has room for that and is 8-byte aligned.
        unsafe { body.cast::<Words>().write(*words) };
    });
    ask_for(core, seq + 1, size_of::<Words>());
}

/// Whether this rank lends its input of `call`, which it has announced as `seq`.
#[inline]
pub(super) fn lends(core: &Core, call: &Call, seq: u64) -> bool {
    seq > 0 && serves(core, call) && core.rank as u32 != call.root && is_lent(core, core.me, seq)
}

/// Goes on with call `seq`, whose lines say who lends: whether it is over here.
///
/// # Errors
/// Those of [`Seen::arrived`](super::entry::Seen::arrived), and where memory that is lent cannot be mapped.
#[inline(never)]
pub(super) fn finish(core: &Core, engine: &mut Engine, form: &Form, call: &Call, seq: u64) -> Result<bool> {
    if core.rank as u32 == call.root {
        return take(core, engine, form, call, seq);
    }
    if !lends(core, call, seq) {
        return Ok(true);
    }
    // Its line first: by that it is known to make the same call.
    let root = core.member_of[call.root as usize];
    let polls = engine.seen.polls();
    Ok(engine.seen.arrived(core, call, root, seq)? && direct::is_raised(core, root, 0, seq, 1, polls))
}

/// The root combines the inputs, and says so where some are lent; `false` if one is not there yet.
fn take(core: &Core, engine: &mut Engine, form: &Form, call: &Call, seq: u64) -> Result<bool> {
    engine.srcs.clear();
    let mut any_lent = false;
    for member in 0..core.members.len() {
        if member == core.me {
            engine.srcs.push(call.send);
            continue;
        }
        if !engine.seen.arrived(core, call, member, seq)? {
            return Ok(false);
        }
        let from = if is_lent(core, member, seq) {
            any_lent = true;
            direct::find_lent(core, engine, member, seq, call.block_bytes())?
        } else {
            form.ask_ahead(core, member, seq);
            form.payload(core, member, seq).cast_const()
        };
        engine.srcs.push(from);
    }
    let borrowed = if any_lent { core.borrow_memory(Lane::Collectives) } else { None };
    if any_lent && borrowed.is_none() {
        return Ok(false);
    }
    // SAFETY: all inputs are complete, since the lines have arrived. Those in slots stay until this rank has started more than a
    // window of later calls, those that are lent until its flag is raised; the output is the caller's and only this rank writes it.
    unsafe { kernels::reduce(call.dtype, call.op, &[call.recv], &engine.srcs, call.count as usize, call.post) };
    if any_lent {
        direct::raise(core, 0, seq, 1);
    }
    Ok(true)
}

/// Whether the line of `member`, which has come, says that its input of call `seq` is lent.
#[inline]
fn is_lent(core: &Core, member: usize, seq: u64) -> bool {
    direct::is_input_mapped(&direct::words(core, member, seq))
}
