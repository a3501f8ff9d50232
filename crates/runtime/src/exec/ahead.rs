//! Calls over a network that begin before those in front of them have ended, unless they are long.
//!
//! A call by which ranks wait for each other costs a round trip, a system call for each message, and a packet for its end, which a
//! message fills as rarely as any, with an acknowledgement of the kernel. Of calls that follow one
//! another on a stream, those behind a call that waits send at once what they send first, all of it together; each then
//! receives when its turn has come. Nothing changes for the peers: each connection carries the messages of one call after
//! those of the other.
//!
//! Of an exchange whose peers are partly on this machine the messages to those are handed over at once, the others together.
//!
//! What a rank sends first may be what others send it first, or the sum of that and of its input: it is taken, into scratch, once it has
//! begun to come from all of them, if its blocks are short.
//!
//! A call begins early only if it is not long, if its input is not what a call before it will write, and if whatever those
//! before it have still to send goes to other ranks than what it sends first. What it takes first it takes only where that is what
//! comes next from each: then those before it have had theirs.

use std::collections::VecDeque;
use std::sync::Arc;

use oxccl_schedule::ir::{Buffer, Op, Program};
use oxccl_types::Result;

use super::p2p::{Exchange, P2pTask};
use super::plan::{MessagePlan, Plan};
use crate::communicator::core::Core;
use crate::device::{Stream, Task};
use crate::request::Request;

/// Calls that may be under way on a stream.
pub(crate) const MOST: usize = 16;
/// Bytes of a call's input and output up to which it begins early: longer ones are bound by their bytes.
pub(super) const SHORT: u64 = 1 << 20;
/// Bytes that calls under way write together at most, and so about what is on its way to a rank: as many as the nearer caches hold.
/// What its kernel has no room for waits on this side. Messages that are only sent write nothing: of these sixteen are under way.
const UNDER_WAY: usize = 2 << 20;

/// Whether more calls may begin behind these: several at a time, so that they go out together and come together.
pub(crate) fn wants_more(tasks: &VecDeque<Box<dyn Task>>) -> bool {
    tasks.len() == 1 || tasks.len() <= MOST / 2 && has_room(UNDER_WAY as u64 / 2, tasks)
}

/// Whether a call that writes `bytes` may begin behind `others`.
pub(super) fn has_room(bytes: u64, others: &VecDeque<Box<dyn Task>>) -> bool {
    bytes as usize + others.iter().map(|t| t.written()).sum::<usize>() <= UNDER_WAY
}

/// What a rank sends before it needs anything of its peers but what these send first, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Early {
    /// How many ops at the beginning of the program take what comes into scratch, combined with the input or as it is.
    pub takes: usize,
    /// How many ops behind them do no more than to send the input, or that.
    pub sends: usize,
    /// Whether nothing is sent after them.
    pub all: bool,
    /// Whether nothing is sent after them to the same ranks.
    apart: bool,
}

impl Early {
    /// That of a program; `exchange`: its messages progress at once.
    pub(super) fn of(program: &Program, exchange: bool) -> Early {
        let to = |op: &Op| match op {
            Op::Send { to, .. } | Op::RecvReduceSend { to, .. } | Op::RecvCopySend { to, .. } => Some(*to),
            _ => None,
        };
        if exchange {
            let sends = program.channels.iter().flatten().filter_map(to).count();
            return Early { takes: 0, sends, all: true, apart: true };
        }
        let [ops] = program.channels.as_slice() else { return Early::default() };
        let taken = |op: &&Op| match op {
            Op::RecvReduce { src, dst, .. } => src.buffer != Buffer::Output && dst.buffer == Buffer::Scratch,
            Op::Recv { dst, .. } => dst.buffer == Buffer::Scratch,
            _ => false,
        };
        let given = |op: &&Op| matches!(op, Op::Send { src, .. } if src.buffer != Buffer::Output);
        let takes = ops.iter().take_while(taken).count();
        let sends = ops[takes..].iter().take_while(given).count();
        // What is taken is sent, or it may as well wait.
        let takes = if sends > 0 { takes } else { 0 };
        let (early, late) = ops.split_at(takes + sends);
        let all = !late.iter().any(|op| to(op).is_some());
        let apart = !late.iter().filter_map(to).any(|rank| early.iter().filter_map(to).any(|first| first == rank));
        Early { takes, sends, all, apart }
    }

    /// The ops of the program.
    pub(super) fn ops(&self) -> usize {
        self.takes + self.sends
    }
}

/// Who may begin behind a call that was served by `plan` and has sent what it sends first: calls of the same number, or
/// of any if it is that of [`any`]; 0: none.
pub(super) fn id(core: &Core, plan: &Arc<Plan>) -> usize {
    match plan.as_ref() {
        Plan::Messages(MessagePlan { early: Early { all: true, .. }, .. }) => any(core),
        Plan::Messages(MessagePlan { early: Early { apart: true, .. }, .. }) => Arc::as_ptr(plan).addr(),
        _ => 0,
    }
}

/// Behind a call that sends nothing any more any call of the communicator may begin.
pub(super) fn any(core: &Core) -> usize {
    // Inside the value, so no other call's, plan's or communicator's; not what `trail` uses.
    std::ptr::from_ref(&core.ranks).addr()
}

/// Whether `exchange` lets others begin behind it, or may begin early itself.
pub(super) fn serves(core: &Core, exchange: &Exchange) -> bool {
    !core.whole && exchange.bytes() <= SHORT && exchange.reaches_out(core)
}

/// Queues sends and receives on a stream that has work, so that they may begin behind it; `false` when they were not: that
/// would bring them nothing.
///
/// # Errors
/// Those of [`Exchange::from_requests`].
pub(super) fn queue<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>>,
    stream: &Stream,
) -> Result<bool> {
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    let exchange = Exchange::from_requests(core, Some(&mut links), requests)?;
    if !serves(core, &exchange) {
        exchange.give_back(&mut links);
        return Ok(false);
    }
    drop(links);
    stream.push(Box::new(P2pTask::new(core.clone(), exchange, 0)));
    stream.work_on_many();
    Ok(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_schedule::algorithms::find;
    use oxccl_schedule::ir::Shape;
    use oxccl_types::Collective;

    use super::*;

    fn early(name: &str, collective: Collective, ranks: u32, rank: u32) -> Early {
        let local = if matches!(name, "leader" | "relay") { 4 } else { 1 };
        let shape = Shape { collective, ranks, root: 0, channels: 1, in_place: false, local };
        let algorithm = find(name).unwrap();
        Early::of(&algorithm.program(&shape, rank), algorithm.exchanges(collective))
    }

    #[test]
    fn two_ranks_and_those_of_one_step_send_all_at_first() {
        let all = Early { takes: 0, sends: 1, all: true, apart: true };
        assert_eq!(early("doubling", Collective::AllReduce, 2, 0), all);
        assert_eq!(early("pairwise", Collective::AllToAll, 2, 1), all);
        assert_eq!(early("pairwise", Collective::ReduceScatter, 2, 1), all);
        for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather] {
            assert_eq!(early("linear", collective, 8, 3), Early { sends: 7, ..all });
        }
    }

    #[test]
    fn leaders_sum_what_their_neighbours_give_and_send_it() {
        let follower = Early { takes: 0, sends: 1, all: true, apart: true };
        for rank in [1, 2, 3, 4, 6, 7] {
            assert_eq!(early("leader", Collective::AllReduce, 8, rank), follower, "{rank}");
        }
        for rank in [0, 5] {
            let leader = Early { takes: 3, sends: 1, all: false, apart: true };
            assert_eq!(early("leader", Collective::AllReduce, 8, rank), leader, "{rank}");
        }
        // Of more groups, they receive from other leaders between two sends.
        let of_more = Early { takes: 3, sends: 1, all: false, apart: true };
        assert_eq!(early("leader", Collective::AllReduce, 16, 0), of_more);
        // Blocks are passed on as they come, or summed.
        for (collective, takes) in [(Collective::AllGather, 3), (Collective::ReduceScatter, 24)] {
            let relay = |rank| early("relay", collective, 8, rank);
            assert_eq!(relay(5), Early { takes, sends: 4, ..of_more }, "{collective}");
            let sends = if takes == 3 { 1 } else { 8 };
            assert_eq!(relay(1), Early { takes: 0, sends, all: true, apart: true }, "{collective}");
        }
        // Who has a guest takes that, too.
        assert_eq!(early("leader", Collective::AllReduce, 12, 0).takes, 4);
    }

    #[test]
    fn nothing_is_taken_early_into_the_output_or_for_nobody() {
        let chunk = |buffer| oxccl_schedule::ir::Chunk { buffer, block: 0, part: 0, parts: 1 };
        let (input, output, scratch) = (chunk(Buffer::Input), chunk(Buffer::Output), chunk(Buffer::Scratch));
        let of = |dst, late: Op| {
            let ops = vec![Op::RecvReduce { from: 1, src: input, dst }, late];
            let early = Early::of(&Program { rank: 0, channels: vec![ops], scratch_slots: 1, epochs: 0 }, false);
            (early.takes, early.sends, early.all)
        };
        assert_eq!(of(scratch, Op::Send { to: 2, src: scratch }), (1, 1, true));
        // Calls before it may still write, or the program read, the output.
        assert_eq!(of(output, Op::Send { to: 2, src: output }), (0, 0, false));
        assert_eq!(of(scratch, Op::Send { to: 2, src: output }), (0, 0, false));
        assert_eq!(of(scratch, Op::Recv { from: 2, dst: output }), (0, 0, true));
    }

    #[test]
    fn later_sends_go_to_other_ranks_or_nothing_begins_early() {
        assert_eq!(
            early("doubling", Collective::AllReduce, 4, 1),
            Early { takes: 0, sends: 1, all: false, apart: true }
        );
        assert_eq!(early("pairwise", Collective::AllToAll, 4, 1), Early { takes: 0, sends: 3, all: true, apart: true });
        // A ring passes on to the rank that it sends its own part to.
        assert!(!early("ring", Collective::AllReduce, 4, 1).apart);
        // The host of a guest receives before it sends.
        assert_eq!(early("doubling", Collective::AllReduce, 3, 0).sends, 0);
    }
}
