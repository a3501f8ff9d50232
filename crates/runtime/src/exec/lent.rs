//! Direct calls of which some ranks only lend their memory and the others take from it, or put into it: those with a root,
//! one shot.
//!
//! Who takes needs the lines of the lenders and nobody else's: what it touches is there, and it keeps nobody waiting. That
//! the others make the same call is looked at beside it, as for small calls. Who lends waits until all have taken. Where
//! ranks share cores the next calls begin behind it (see `trail`): they say where their inputs lie, and each peer takes from
//! several calls before it gives its core away. Who only takes begins behind others, too, and others behind it once it is known that it takes
//! from mapped memory.
//!
//! Of sums by two shots the peers write parts of the output, too, each the same part in every call. Such a call begins behind
//! others if its output is nothing that these still use, or the output of the same call made before: parts are then written
//! in the order of the calls, since each rank keeps it. That holds for calls over mapped memory only, so the first one
//! behind one that took another road waits until all ranks have come to it, see [`in_order`].

use std::ops::Range;
use std::sync::Arc;

use oxccl_schedule::ir::Op;
use oxccl_types::{Collective, Result};

use super::call::{self, Call};
use super::collective::Engine;
use super::direct::{self, Cursor, Road, Words};
use super::entry::has_come;
use super::plan::{DirectPlan, FarPlans, Plan};
use super::{slotted, trail, votes};
use crate::communicator::core::{Core, Lane};
use crate::device::IdleStream;

/// What one rank does in the direct calls of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// Over mapped memory it waits for nobody once the lines of the lenders are there.
    takes: bool,
    /// Its input is read by others, and on no road anybody writes its output: its peers may read the input before the calls
    /// in front are over.
    lends: bool,
    /// The same, whatever memory the input is: the kernel copies what peers cannot map.
    lends_far: bool,
    /// It is the only one whose memory others touch, and they write its output: each of them a block.
    opens: bool,
    /// The one lender's takers may end before all have met.
    early: bool,
    /// All others write the output of that one.
    for_one: bool,
    /// Nobody touches its memory where all is mapped, and it waits for nothing but lines: it takes, or writes to one that opens its output.
    alone: bool,
    /// Each rank combines its part of all inputs and writes it where it is wanted, as soon as all lines are there; all wait
    /// for all.
    shares: bool,
}

impl Part {
    /// That of member `me`. `waits`: each call over memory that peers cannot map waits for the one in front,
    /// or the kernel may not copy it.
    pub(super) fn of(me: usize, mapped: &DirectPlan, far: Option<&FarPlans>, waits: bool) -> Part {
        let mut ops = mapped.program.channels.iter().flatten();
        let meets = mapped.program.scratch_slots > 0 || ops.any(|op| matches!(op, Op::Wait { .. }));
        let lenders = (0..mapped.reads_input.len()).filter(|m| mapped.touches(*m)).count();
        let writes = |plan: &DirectPlan| plan.writes_output[me];
        let shares = is_shared_out(mapped);
        let lends = mapped.reads_input[me] && !writes(mapped) && !far.is_some_and(|far| far.plans().any(writes));
        Part {
            takes: lenders == 1 && !meets && !mapped.touches(me),
            alone: !meets && !mapped.touches(me),
            lends,
            lends_far: lends && far.is_some() && !waits && !shares,
            opens: lenders == 1 && writes(mapped),
            early: lenders == 1,
            for_one: lenders == 1 && mapped.writes_output.contains(&true),
            shares,
        }
    }

    /// Whether all that moves between ranks is what the others write to the output of one.
    #[inline]
    pub(super) fn is_for_one(&self) -> bool {
        self.for_one
    }
}

/// Whether a program combines parts of all inputs into outputs of others, waits for nothing before, and then for all.
fn is_shared_out(mapped: &DirectPlan) -> bool {
    let [ops] = &mapped.program.channels[..] else { return false };
    let parts = ops.iter().take_while(|op| matches!(op, Op::Move { .. })).count();
    let (moves, [Op::Signal, waits @ ..]) = ops.split_at(parts) else { return false };
    let ranks = mapped.reads_input.len();
    let of_all = |op: &Op| matches!(op, Op::Move { srcs, .. } if srcs.len() == ranks);
    let for_all = waits.len() + 1 == ranks && waits.iter().all(|op| matches!(op, Op::Wait { .. }));
    let written = mapped.writes_output.iter().any(|w| *w);
    for_all && parts > 0 && moves.iter().all(of_all) && mapped.program.scratch_slots == 0 && written
}

/// Which lines of a call have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Not all that this rank needs.
    Not,
    /// Those of the lenders, whose memory is mapped, or need not be: no other is needed.
    Lenders,
    All,
}

/// Looks for the lines of call `seq`, which is served by `plan`, if by a direct one.
///
/// # Errors
/// Those of [`Seen::arrived`](super::entry::Seen::arrived).
pub(super) fn meet(core: &Core, engine: &mut Engine, call: &Call, plan: Option<&Plan>, seq: u64) -> Result<Met> {
    if let Some(Plan::Direct { mapped, part, .. }) = plan
        && part.takes
    {
        let mut all_mapped = true;
        for member in (0..core.members.len()).filter(|m| mapped.touches(*m)) {
            if !engine.seen.arrived(core, call, member, seq)? {
                return Ok(Met::Not);
            }
            all_mapped &= direct::is_mapped(mapped, member, &direct::words(core, member, seq));
        }
        if all_mapped || slotted::serves(core, part, call) {
            // Of two ranks, the lender is the only other one.
            if core.ranks > 2 {
                engine.leave_unsettled(seq, call.signature);
            }
            return Ok(Met::Lenders);
        }
    }
    for member in (0..core.members.len()).filter(|m| *m != core.me) {
        if !engine.seen.arrived(core, call, member, seq)? {
            return Ok(Met::Not);
        }
    }
    if votes::decide(core, call) {
        votes::count(core, engine, call, seq);
    }
    if let Some(Plan::Direct { aside, .. }) = plan
        && aside.apart
    {
        engine.apart.count(seq, || direct::all_announced_at(core, seq));
    }
    Ok(Met::All)
}

/// Whether a call served by `plan` that has not [met](meet) can only go on when `rank` does something; `missing`: the ranks
/// whose lines have not come.
pub(super) fn needs(core: &Core, plan: Option<&Plan>, missing: &[usize], rank: usize) -> bool {
    match plan {
        Some(Plan::Direct { mapped, part, .. }) if part.early => {
            let lends = |rank: usize| mapped.touches(core.member_of[rank]);
            let all = !part.takes || !missing.iter().any(|rank| lends(*rank));
            missing.contains(&rank) && (all || lends(rank))
        }
        // Nobody can have done its part before all have met, but where a root sends, which a last look finds.
        _ => true,
    }
}

/// Whether a call served by `plan` that has not met may wait for ever because of a rank that it does not [need](needs), where
/// one is gone: not the lender, from whom others may have taken and gone while it waits for a late one.
pub(super) fn hangs_by_others(plan: Option<&Plan>) -> bool {
    matches!(plan, Some(Plan::Direct { part, .. }) if part.early && part.takes)
}

/// Whether calls may begin behind the direct call that says `own` of its buffers: its peers only read what it lends, or
/// write their blocks; or they leave it [alone](Part::alone), if it began `behind` others itself. Of the last kind it has to be known
/// that all is mapped: what lies in slots or beside lines must be taken before the next call starts. Who began behind others has put
/// nothing beside its line, so that not all have.
pub(super) fn trails(
    core: &Core,
    engine: &Engine,
    plan: &Plan,
    call: &Call,
    (own, behind): (&Words, bool),
    seq: u64,
) -> bool {
    let Plan::Direct { mapped, part, .. } = plan else { return false };
    let may = part.lends_far
        || part.alone && behind && all_say_mapped(core, mapped, seq)
        || part.lends && direct::is_input_mapped(own)
        || (part.shares || opens(part, call) && !engine.slotted.may_be_unasked(seq))
            && direct::is_mapped(mapped, core.me, own);
    may && trail::goes_on(core) && call.scale.is_none()
}

/// Whether the lines of call `seq` have come of all others whose memory is touched where all is mapped, and say that theirs is. That they are
/// of the same call is not looked at: if they are not, nothing that they say is believed when this one goes on.
fn all_say_mapped(core: &Core, mapped: &DirectPlan, seq: u64) -> bool {
    let mut others = (0..core.members.len()).filter(|m| *m != core.me && mapped.touches(*m));
    others.all(|m| has_come(core, m, seq, 1) && direct::is_mapped(mapped, m, &direct::words(core, m, seq)))
}

/// Whether peers write blocks of the output of `call` on this rank, and touch nothing else: each its own. So they do not
/// write what those in front of them have still to write if these are of the same kind, see [`bars`].
fn opens(part: &Part, call: &Call) -> bool {
    part.opens && call.collective == Collective::Gather
}

/// Whether `call`, which will be served by `plan`, may begin behind the calls that the stream holds: it lends its input, which
/// none of them writes; or its output, which none of them needs; or nobody touches its memory.
pub(super) fn may_follow(
    core: &Arc<Core>,
    engine: &mut Engine,
    stream: &IdleStream<'_>,
    call: &Call,
    plan: &Plan,
) -> bool {
    let Plan::Direct { part, .. } = plan else { return false };
    let (rank, ranks) = (core.rank as u32, core.ranks);
    let unasked = engine.slotted.may_be_unasked(engine.next_number());
    let mut is_mapped = |at, bytes| engine.is_mapped(core, at, bytes);
    let (input, output) = (call.input_bytes(rank, ranks), call.output_bytes(rank, ranks));
    let written = call.recv.addr()..call.recv.addr() + output as usize;
    let bars = || stream.bars(call, &written, trail::id(core, Lane::Collectives));
    // It may take before those in front are over, so it must not write what they lend.
    let writes_lent = || call.written(rank, ranks).iter().any(|bytes| stream.has_lent(bytes));
    trail::goes_on(core)
        && trail::may_follow(core, stream, call)
        && match part.lends {
            _ if part.shares => is_mapped(call.send, input) && is_mapped(call.recv.cast_const(), output) && !bars(),
            true => (part.lends_far || is_mapped(call.send, input)) && !writes_lent(),
            false if part.alone => !writes_lent(),
            false => opens(part, call) && !unasked && is_mapped(call.recv.cast_const(), output) && !bars(),
        }
}

/// Whether `call`, served by `plan`, may do its part before those in front of it are over, if these have given all that they
/// have: it reads what peers lend and writes what only this rank touches, or its part of what they let it write.
pub(super) fn may_take_early(plan: Option<&Plan>) -> bool {
    matches!(plan, Some(Plan::Direct { part, .. }) if part.shares || part.lends || part.alone)
}

/// Whether a call served by `plan` may go by `road` before its turn, if it [may do its part](may_take_early): the others of that road wait for
/// those in front.
pub(super) fn is_early(plan: &Plan, road: Road) -> bool {
    let Plan::Direct { part, .. } = plan else { return false };
    road == Road::Mapped || road == Road::Far && part.lends_far
}

/// Whether peers write parts of the output of calls served by `plan`.
pub(super) fn shares(plan: Option<&Plan>) -> bool {
    matches!(plan, Some(Plan::Direct { part, .. }) if part.shares)
}

/// Notes that a call served by `plan` was done from payload slots: a sum by two shots that is behind it asks [`in_order`].
pub(super) fn stray(engine: &mut Engine, plan: Option<&Plan>) {
    engine.strayed |= shares(plan);
}

/// Whether call `seq`, all lines of which have arrived, may go by `road` as for the outputs that peers write: each part of
/// them is written in the order of the calls where these are [shared](Part::shares) over mapped memory. Behind one that was
/// not all must have come to this one. The same answer on every rank, sooner or later. `turn`: those in front are over here.
pub(super) fn in_order(core: &Core, engine: &mut Engine, plan: &Plan, road: Road, seq: u64, turn: bool) -> bool {
    if !shares(Some(plan)) {
        return true;
    }
    if road != Road::Mapped {
        engine.strayed = true;
    } else if engine.strayed {
        engine.strayed = !(direct::all_announced_at(core, seq) || turn && direct::all_are_at(core, seq));
        return !engine.strayed;
    }
    true
}

/// Whether nothing is left to be done of a program of `call` at `cursor` but to wait until peers have read the input.
pub(super) fn has_given(plan: Option<&Plan>, call: &Call, road: Road, cursor: &Cursor) -> bool {
    let Some(plan @ Plan::Direct { part, .. }) = plan else { return false };
    let waits = || plan.direct(road).is_some_and(|program| direct::only_waits(program, cursor));
    (part.lends || part.shares || part.alone) && is_early(plan, road) && call.bias.is_null() && waits()
}

/// Whether nobody may write `output` before `call` is over on `rank`. `next`: the call of which it is the output, if peers write that as they do
/// in `call`: not where the payload of `call` lies in slots, of which this rank makes all of its output.
pub(super) fn bars(call: &Call, next: Option<&Call>, output: &Range<usize>, rank: u32, ranks: usize) -> bool {
    let of = |c: &Call| (c.collective, c.root, c.recv, c.count, c.dtype);
    // Read when all else is over.
    if !call.bias.is_null() {
        return true;
    }
    // Each peer writes one block or part, and in the order of the calls. This rank's own block is written by nobody else; what
    // lies in the place of a part is read by no other than who writes it.
    if next.is_some_and(|next| of(call) == of(next)) {
        return false;
    }
    let input = call.send.addr()..call.send.addr() + call.input_bytes(rank, ranks) as usize;
    let meets = |r: &Range<usize>| call::meet(r, output);
    meets(&input) || call.written(rank, ranks).iter().any(meets)
}

#[cfg(test)]
mod tests {
    use oxccl_types::{DataType, ReduceOp};

    use super::*;
    use crate::request::{Operator, Request};

    #[test]
    fn a_call_bars_what_is_written_where_it_reads_or_writes_but_for_the_same_one() {
        let call = |recv: usize| {
            let request = Request {
                collective: Collective::AllReduce,
                send: std::ptr::without_provenance(1 << 20),
                recv: std::ptr::without_provenance_mut(recv),
                count: 1000,
                dtype: DataType::Float32,
                op: Operator::Builtin(ReduceOp::Sum),
                root: 0,
                bias: std::ptr::null(),
                v: None,
                stream: (),
            };
            Call::new(&request, 4)
        };
        let bars_at = |next: usize| bars(&call(4096), None, &(next..next + 4000), 1, 4);
        assert!(bars_at(4096) && bars_at(8092) && !bars_at(8096));
        // Its input.
        assert!(bars_at((1 << 20) + 3996) && !bars_at((1 << 20) + 4000));
        let bars_call = |next: usize| bars(&call(4096), Some(&call(next)), &(next..next + 4000), 1, 4);
        assert!(!bars_call(4096) && bars_call(8092) && !bars_call(8096));
    }
}
