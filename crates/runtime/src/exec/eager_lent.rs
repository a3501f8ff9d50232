//! Reductions, broadcasts and scatters of more bytes than a small slot has, where ranks share cores: a rank whose input peers can map, and which makes many such
//! calls without waiting for them, lends its input and copies nothing; who takes it does so from where it lies. Other inputs travel in
//! slots, as in [`eager`](super::eager).
//!
//! Each rank that gives decides for itself, and its line says what it did: each input is taken from where it is. Who lends waits until
//! it has been taken, and begins its next calls behind that (see [`trail`]). Who used a slot is over at once: it is the better way for
//! one that waits for its stream after each call, since that would have to wait for its peers.

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::{self, Words};
use super::eager::{Form, published};
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
    // Of a gather all but one rank would wait, with a task each, until the root has copied what a slot would hold.
    let is_one = matches!(call.collective, Collective::Reduce | Collective::Broadcast | Collective::Scatter);
    is_one && call.scale.is_none() && published(call, core.ranks) > SMALL_BYTES as u64 && trail::goes_on(core)
}

/// Whether this rank gives in `call`, which [may be lent](serves); the others take.
#[inline]
fn gives(core: &Core, call: &Call) -> bool {
    (core.rank as u32 == call.root) != (call.collective == Collective::Reduce)
}

/// What the line of `call` says, which begins next, on `stream`, and [may be lent](serves), if this rank lends its input.
#[inline(always)]
pub(super) fn offer(core: &Core, engine: &mut Engine, call: &Call, stream: &IdleStream<'_>) -> Option<Words> {
    if !gives(core, call) {
        // It waits for what others give. Where that changes from call to call, those that it gives are few between two that it takes.
        engine.small_run.restart();
        return None;
    }
    let words = direct::lend(core, engine, call.send, published(call, core.ranks));
    let seq = engine.next_number();
    let many = engine.small_run.is_long(stream.waits(), seq, words.is_some());
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
    seq > 0 && serves(core, call) && gives(core, call) && is_lent(core, core.me, seq)
}

/// Whether this rank, which [lends](lends) its input of call `seq`, waits for `rank` with it.
pub(super) fn awaits(core: &Core, call: &Call, seq: u64, rank: usize) -> bool {
    let takes = rank == call.root as usize || core.rank as u32 == call.root;
    takes && rank != core.rank && !direct::is_raised(core, core.member_of[rank], 0, seq, 1, 1)
}

/// Goes on with call `seq`, whose lines say who lends: whether it is over here.
///
/// # Errors
/// Those of [`Seen::arrived`](super::entry::Seen::arrived), and where memory that is lent cannot be mapped.
#[inline(never)]
pub(super) fn finish(core: &Core, engine: &mut Engine, form: &Form, call: &Call, seq: u64) -> Result<bool> {
    let root = core.member_of[call.root as usize];
    match (gives(core, call), root == core.me) {
        (false, true) => return take(core, engine, form, call, seq),
        (false, false) => return receive(core, engine, form, call, seq),
        (true, false) => return Ok(!is_lent(core, core.me, seq) || has_taken(core, engine, call, root, seq)?),
        (true, true) => {}
    }
    if !is_lent(core, core.me, seq) {
        return form.finish(core, call, seq, &mut engine.seen, &mut engine.srcs);
    }
    for member in (0..core.members.len()).filter(|m| *m != root) {
        if !has_taken(core, engine, call, member, seq)? {
            return Ok(false);
        }
    }
    // SAFETY: its own input, and the output that only this rank writes; both are the caller's.
    unsafe { form.combine(core, call, |_| call.send, &mut engine.srcs) };
    Ok(true)
}

/// Whether `member` has taken what this rank lends.
#[inline(always)]
fn has_taken(core: &Core, engine: &mut Engine, call: &Call, member: usize, seq: u64) -> Result<bool> {
    // Its line first: by that it is known to make the same call.
    let polls = engine.seen.polls();
    Ok(engine.seen.arrived(core, call, member, seq)? && direct::is_raised(core, member, 0, seq, 1, polls))
}

/// This rank takes what the root gives, and says so where that is lent; `false` if it is not there yet.
#[inline(never)]
fn receive(core: &Core, engine: &mut Engine, form: &Form, call: &Call, seq: u64) -> Result<bool> {
    let root = core.member_of[call.root as usize];
    if !engine.seen.arrived(core, call, root, seq)? {
        return Ok(false);
    }
    if !is_lent(core, root, seq) {
        return form.finish(core, call, seq, &mut engine.seen, &mut engine.srcs);
    }
    let Some(_borrowed) = core.borrow_memory(Lane::Collectives) else { return Ok(false) };
    let at = direct::find_lent(core, engine, root, seq, published(call, core.ranks))?;
    // SAFETY: the input is complete, since the line has arrived, and stays until the flag of this rank is raised; the output is the
    // caller's and only this rank writes it.
    unsafe { form.combine(core, call, |_| at, &mut engine.srcs) };
    direct::raise(core, 0, seq, 1);
    Ok(true)
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
