//! Gathers of ranks that share cores: where the root's memory is mapped each of the others writes its block to where the root
//! wants it, see [`lent`](super::lent); where it is not, each puts its block into a payload slot, from where the root takes it.
//! Then nobody waits for the root. One that waits for each of its calls therefore says of mapped memory, too, that it is not, of blocks
//! that are not long. Between threads of one process there are no such slots.
//!
//! Which it is says the root's line. A rank that has seen it say so puts the blocks of the next calls into slots unasked, as
//! they lie beside its own line; the root takes what is there wherever its memory lies. Who asks raises its flag when it has
//! put its block where it belongs.
//!
//! A slot is written again when the root has begun so many calls more that it must have taken what was in it. So as long as
//! others may use slots unasked it begins no such gather behind another call, and none behind that.

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::Words;
use super::lent::Part;
use super::{direct, eager, limits, trail};
use crate::communicator::core::Core;
use crate::communicator::hub::{DEPTH, LINES_AHEAD, MEDIUM_BYTES, SMALL_BYTES, Slots};
use crate::device::Step;

/// Calls behind one of which the root's line said that its memory is not mapped, in which others need not ask again: who learns
/// that may be nearly so many ahead of that call.
const UNASKED: u64 = DEPTH;

/// What a rank knows of the last gathers.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The last root that said that its memory is not mapped, be it true or not, and in which call.
    unmapped: Option<(u32, u64)>,
    /// The last call in which this rank said so.
    said: Option<u64>,
}

impl Known {
    /// Whether others may put their blocks into slots in call `seq`, of which this rank is the root, unasked.
    #[inline]
    pub(super) fn may_be_unasked(&self, seq: u64) -> bool {
        self.said.is_some_and(|said| seq <= said + UNASKED)
    }
}

/// The slots for blocks of so many bytes.
fn kind(bytes: usize) -> Slots {
    match bytes {
        n if n <= SMALL_BYTES => Slots::Small,
        n if n <= MEDIUM_BYTES => Slots::Medium,
        _ => Slots::Long,
    }
}

/// How many calls a rank may be ahead of its peers when it puts its block of `call` into a slot.
pub(super) fn ahead(core: &Core, call: &Call) -> u64 {
    core.hub.geometry().ahead(kind(call.block_bytes() as usize))
}

/// Whether a block of `call` fits a slot, so that where it cannot be written to the root's memory it goes this way.
#[inline]
pub(super) fn fits(core: &Core, call: &Call) -> bool {
    let bytes = call.block_bytes();
    call.collective == Collective::Gather
        && trail::goes_on(core)
        && core.eager
        && (bytes <= MEDIUM_BYTES as u64 || bytes <= limits::long_limit(core, Collective::Gather))
}

/// Bytes of a block up to which the root of a gather that waits for each call says that its memory is not mapped: nobody then has to
/// come back to its core for it. What is longer is written to where it belongs in less time than it is copied twice.
const ALONE_BYTES: u64 = 32 << 10;

/// Whether the root of `call`, if that is this rank, asks for blocks in slots where it [waits](super::run::Run::is_alone) for each call;
/// `part`: of its plan.
pub(super) fn asks_if_alone(core: &Core, part: &Part, call: &Call) -> bool {
    asks(core, call) && call.block_bytes() <= ALONE_BYTES && serves(core, part, call)
}

/// Whether this rank is the root of a gather, whose line may ask for blocks in slots.
#[inline]
pub(super) fn asks(core: &Core, call: &Call) -> bool {
    call.collective == Collective::Gather && call.root == core.rank as u32
}

/// Whether `call` goes this way if the root's memory is not mapped; `part`: of its plan. The same answer on every rank.
#[inline]
pub(super) fn serves(core: &Core, part: &Part, call: &Call) -> bool {
    part.is_for_one() && fits(core, call)
}

/// Whether the line of some rank says that its block of call `seq`, of which this rank is the root, is in its slot.
pub(super) fn any(core: &Core, seq: u64) -> bool {
    (0..core.members.len()).any(|m| m != core.me && direct::in_slot(&direct::words(core, m, seq)).is_some())
}

/// Whether this rank puts its block of call `seq` into the slot before the root has said where it wants it.
#[inline]
fn is_unasked(core: &Core, engine: &Engine, call: &Call, seq: u64) -> bool {
    let recent = |(root, at): (u32, u64)| root == call.root && seq < at + UNASKED;
    core.rank as u32 != call.root && engine.slotted.unmapped.is_some_and(recent) && fits(core, call)
}

/// How many calls this rank may be ahead of its peers when it announces the direct call `seq`.
#[inline]
pub(super) fn lines_ahead(core: &Core, engine: &Engine, call: &Call, seq: u64) -> u64 {
    if is_unasked(core, engine, call, seq) { ahead(core, call) } else { LINES_AHEAD }
}

/// Call `seq` is about to be announced, and [may](lines_ahead) be: puts the own block, `input`, into the slot if the root takes
/// it from there.
#[inline]
pub(super) fn put_unasked(core: &Core, engine: &mut Engine, call: &Call, seq: u64, input: *const u8) -> bool {
    let unasked = is_unasked(core, engine, call, seq);
    if unasked {
        put(core, engine, call, seq, input);
    }
    unasked
}

/// Whether `call` is over on this rank once it is announced, as `own` says: its block lies in the slot, and it is not the root.
pub(super) fn is_over(core: &Core, call: &Call, own: &Words) -> bool {
    call.collective == Collective::Gather && core.rank as u32 != call.root && direct::in_slot(own).is_some()
}

/// Notes that this rank, the root of call `seq`, says in its line that its memory is not mapped.
pub(super) fn say(core: &Core, engine: &mut Engine, call: &Call, seq: u64) {
    if call.root == core.rank as u32 && fits(core, call) {
        engine.slotted.said = Some(seq);
    }
}

/// Puts the own block of call `seq` into the slot, which is free.
fn put(core: &Core, engine: &mut Engine, call: &Call, seq: u64, input: *const u8) {
    let bytes = call.block_bytes() as usize;
    let slots = kind(bytes);
    engine.known.populate(core, slots, bytes);
    // SAFETY: the caller's input; the slot has room, and peers are done with it.
    unsafe { kernels::copy(&[core.hub.slot(core.me, slots, seq)], input, bytes) };
}

/// Goes on with call `seq`, of which the lines have come that this rank needs; `next`: the member whose block the root takes next.
pub(super) fn step(core: &Core, engine: &mut Engine, call: &Call, seq: u64, next: &mut usize) -> Result<Step> {
    if core.rank as u32 != call.root {
        if !engine.seen.may_publish(core, seq, ahead(core, call)) {
            return Ok(Step::Blocked);
        }
        put(core, engine, call, seq, call.send);
        direct::raise(core, 0, seq, 1);
        engine.slotted.unmapped = Some((call.root, seq));
        return Ok(Step::Done);
    }
    let bytes = call.block_bytes() as usize;
    let slots = kind(bytes);
    let mapped = direct::is_output_mapped(&direct::words(core, core.me, seq));
    let first = *next;
    while *next < core.members.len() {
        let member = *next;
        let unasked = member != core.me && direct::in_slot(&direct::words(core, member, seq)).is_some();
        if member != core.me && !unasked && !direct::is_raised(core, member, 0, seq, 1, engine.seen.polls()) {
            return Ok(if member > first { Step::Progress } else { Step::Blocked });
        }
        if unasked && slots == Slots::Small {
            eager::ask_ahead(core, member, Slots::Small, seq, 0, bytes);
        }
        let from = match member == core.me {
            true => Some(call.send),
            false if unasked || !mapped => Some(core.hub.slot(member, slots, seq).cast_const()),
            // It has written to the output.
            false => None,
        };
        let to = call.recv.wrapping_add(core.members[member] * bytes);
        if let Some(from) = from.filter(|from| *from != to.cast_const()) {
            // SAFETY: a block of the output, which is the caller's and nobody else writes. What lies in a slot is complete,
            // as the line or the flag says, and stays: it is written again when this rank has begun more than a window of
            // later calls.
            unsafe { kernels::copy(&[to], from, bytes) };
        }
        *next += 1;
    }
    Ok(Step::Done)
}
