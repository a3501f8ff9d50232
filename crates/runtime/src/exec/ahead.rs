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
//! comes next from each: then those before it have had theirs. One that sends nothing, or nothing before it has received, begins,
//! too, where not all before it are like it: those behind it may begin then.
//!
//! Collectives and groups of Send and Recv begin behind each other: they have connections of their own, and all receive in the
//! order of the stream. What a rank sends to itself in a group it copies when it receives.

use std::collections::VecDeque;
use std::sync::Arc;

use oxccl_schedule::ir::{Buffer, Op, Program};
use oxccl_types::Result;

use super::p2p::{Exchange, P2pTask};
use super::plan::Plan;
use crate::communicator::core::Core;
use crate::device::{Stream, Task, Tasks};
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

/// What goes before a call on the connections of its [lane](super::trail::id).
pub(super) struct Before<'a> {
    /// How many calls.
    pub calls: u64,
    /// What the last of them [says](Task::trails).
    pub trails: Option<usize>,
    lane: usize,
    others: &'a Tasks,
}

impl<'a> Before<'a> {
    /// Of the calls that are under way: those of other lanes have other connections.
    pub(super) fn of(lane: usize, others: &'a Tasks) -> Before<'a> {
        Before { calls: others.of(lane), trails: others.last_of(lane).map(|t| t.trails()), lane, others }
    }

    /// To whom they have still to send.
    pub(super) fn later(&self) -> RankSet {
        let of = self.others.iter().filter(|t| t.lane() == self.lane);
        RankSet(of.fold(0, |set, task| set | task.sends_later().0))
    }
}

/// Ranks, each by one of 64 bits; of more than 64 some share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankSet(u64);

impl RankSet {
    /// All that there may be.
    pub(crate) const ANY: RankSet = RankSet(u64::MAX);

    /// Whether no rank is in both. Where they share bits it may be said not to be so.
    fn is_apart(self, other: RankSet) -> bool {
        self.0 & other.0 == 0
    }

    #[cfg(test)]
    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<T: IntoIterator<Item = u32>>(ranks: T) -> RankSet {
        RankSet(ranks.into_iter().fold(0, |set, rank| set | 1 << (rank % 64)))
    }
}

/// What a rank sends before it needs anything of its peers but what these send first, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Early {
    /// How many ops at the beginning of the program take what comes into scratch, combined with the input or as it is.
    pub takes: usize,
    /// How many ops behind them do no more than to send the input, or that.
    pub sends: usize,
    /// To whom they send, where others may come later on the connections.
    first: RankSet,
    /// To whom is sent after them.
    pub later: RankSet,
    /// Whether none is in both.
    apart: bool,
}

impl Early {
    /// Of what sends by several connections to each rank, each at its own pace.
    const NONE: Early = Early { takes: 0, sends: 0, first: RankSet::ANY, later: RankSet::ANY, apart: false };

    /// That of a program; `exchange`: its messages progress at once.
    pub(super) fn of(program: &Program, exchange: bool) -> Early {
        let to = |op: &Op| match op {
            Op::Send { to, .. } | Op::RecvReduceSend { to, .. } | Op::RecvCopySend { to, .. } => Some(*to),
            _ => None,
        };
        if exchange {
            let sends = program.channels.iter().flatten().filter_map(to).count();
            // On connections on which nothing is sent later.
            return Early { takes: 0, sends, first: RankSet::default(), later: RankSet::default(), apart: true };
        }
        let [ops] = program.channels.as_slice() else { return Early::NONE };
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
        let apart = !late.iter().filter_map(to).any(|rank| early.iter().filter_map(to).any(|first| first == rank));
        let ranks = |ops: &[Op]| ops.iter().filter_map(to).collect();
        Early { takes, sends, first: ranks(early), later: ranks(late), apart }
    }

    /// Whether it may begin behind calls that have still to send to `later` ranks, the last of them by the same program if it is `alike`.
    pub(super) fn may_follow(&self, alike: bool, later: impl FnOnce() -> RankSet) -> bool {
        // What the last of them might follow this one may, too.
        (self.sends > 0 || self.apart) && (alike && self.apart || self.first.is_apart(later()))
    }

    /// The ops of the program.
    pub(super) fn ops(&self) -> usize {
        self.takes + self.sends
    }
}

/// By what a call was served that has sent what it sends first, so that collectives may begin behind it; 0: none may.
pub(super) fn id(plan: &Arc<Plan>) -> usize {
    match plan.as_ref() {
        Plan::Messages(messages) if messages.early.apart => Arc::as_ptr(plan).addr(),
        _ => 0,
    }
}

/// Whether `exchange` lets others begin behind it, or may begin early itself: also one with peers on this machine alone, amid calls
/// over a network.
pub(super) fn serves(core: &Core, exchange: &Exchange) -> bool {
    !core.whole && exchange.bytes().saturating_add(exchange.own_bytes()) <= SHORT
}

/// Whether it waits for the network itself: then there is time for those behind it.
pub(super) fn waits(core: &Core, exchange: &Exchange) -> bool {
    serves(core, exchange) && exchange.reaches_out(core)
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
    if !waits(core, &exchange) {
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

    /// Leaders of two hosts of 64 send to rank 0 and then to rank 64, which share a bit.
    #[test]
    fn calls_by_one_program_follow_each_other_on_any_number_of_ranks() {
        let shape =
            Shape { collective: Collective::AllReduce, ranks: 128, root: 0, channels: 1, in_place: false, local: 64 };
        let leader = |rank| Early::of(&find("leader").unwrap().program(&shape, rank), false);
        let led = (64..128).map(leader).find(|early| early.takes > 0).unwrap();
        assert!(led.may_follow(true, || led.later) && !led.may_follow(false, || led.later));
        assert!(led.may_follow(false, || [1, 63].into_iter().collect()));
    }

    /// What it takes and sends first, and whether that is all, or all to these ranks.
    fn shape(early: Early) -> (usize, usize, bool, bool) {
        (early.takes, early.sends, early.later.is_empty(), early.apart)
    }

    #[test]
    fn two_ranks_and_those_of_one_step_send_all_at_first() {
        assert_eq!(shape(early("doubling", Collective::AllReduce, 2, 0)), (0, 1, true, true));
        assert_eq!(shape(early("pairwise", Collective::AllToAll, 2, 1)), (0, 1, true, true));
        assert_eq!(shape(early("pairwise", Collective::ReduceScatter, 2, 1)), (0, 1, true, true));
        for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather] {
            assert_eq!(shape(early("linear", collective, 8, 3)), (0, 7, true, true));
        }
    }

    #[test]
    fn leaders_sum_what_their_neighbours_give_and_send_it() {
        for rank in [1, 2, 3, 4, 6, 7] {
            assert_eq!(shape(early("leader", Collective::AllReduce, 8, rank)), (0, 1, true, true), "{rank}");
        }
        for rank in [0, 5] {
            assert_eq!(shape(early("leader", Collective::AllReduce, 8, rank)), (3, 1, false, true), "{rank}");
        }
        // Of more groups, they receive from other leaders between two sends.
        assert_eq!(shape(early("leader", Collective::AllReduce, 16, 0)), (3, 1, false, true));
        // Blocks are passed on as they come, or summed.
        for (collective, takes) in [(Collective::AllGather, 3), (Collective::ReduceScatter, 24)] {
            let relay = |rank| shape(early("relay", collective, 8, rank));
            assert_eq!(relay(5), (takes, 4, false, true), "{collective}");
            let sends = if takes == 3 { 1 } else { 8 };
            assert_eq!(relay(1), (0, sends, true, true), "{collective}");
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
            (early.takes, early.sends, early.later.is_empty())
        };
        assert_eq!(of(scratch, Op::Send { to: 2, src: scratch }), (1, 1, true));
        // Calls before it may still write, or the program read, the output.
        assert_eq!(of(output, Op::Send { to: 2, src: output }), (0, 0, false));
        assert_eq!(of(scratch, Op::Send { to: 2, src: output }), (0, 0, false));
        assert_eq!(of(scratch, Op::Recv { from: 2, dst: output }), (0, 0, true));
    }

    #[test]
    fn later_sends_go_to_other_ranks_or_nothing_begins_early() {
        assert_eq!(shape(early("doubling", Collective::AllReduce, 4, 1)), (0, 1, false, true));
        assert_eq!(shape(early("pairwise", Collective::AllToAll, 4, 1)), (0, 3, true, true));
        // A ring passes on to the rank that it sends its own part to.
        let ring = early("ring", Collective::AllReduce, 4, 1);
        assert!(!ring.apart && !ring.may_follow(true, || ring.later));
        // It may itself begin behind what sends nothing to that rank any more.
        assert!(ring.may_follow(false, || [3].into_iter().collect()));
        // Of several connections to a rank nothing is known.
        let two = Early::of(&Program { rank: 0, channels: vec![vec![], vec![]], scratch_slots: 0, epochs: 0 }, false);
        assert!(!two.may_follow(true, RankSet::default));
        // The host of a guest receives before it sends.
        assert_eq!(early("doubling", Collective::AllReduce, 3, 0).sends, 0);
    }
}
