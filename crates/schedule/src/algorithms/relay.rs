//! Relay: one rank of every group that shares memory takes the blocks that its neighbours give, the leaders send each other what the
//! other groups need, and each gives its neighbours theirs. One message for each block between two machines, and all of them from one
//! rank to another, so that they go out together.
//!
//! A leader sums the blocks of a reduce-scatter before it sends them on. What comes from neighbours lies in scratch until then: that of
//! the next call can be taken while this one waits for the network. Groups and leaders are those of [`leader`](super::leader).

use super::hierarchical;
use super::leader::At;
use super::{copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Blocks that a leader sends to another one before it receives: so many slots are needed.
pub(super) const MOST: u32 = 8;

/// Whether there are several groups of several ranks, not too many in each.
pub(super) fn accepts(shape: &Shape) -> bool {
    hierarchical::accepts(shape) && shape.local <= MOST
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let gathers = shape.collective == Collective::AllGather;
    let scratch = if gathers { shape.local } else { shape.ranks };
    lanes(shape, rank, scratch, 0, |l, ops| {
        let at = At::new(l, shape);
        match (gathers, at.leads()) {
            (true, true) => gather(&at, ops),
            (true, false) => follow_gather(&at, ops),
            (false, true) => sum(&at, ops),
            (false, false) => follow_sum(&at, ops),
        }
    })
}

/// An all-gather's leader.
fn gather(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    let given = |rank: Rank| if rank == l.me { l.input(0) } else { l.scratch(rank % at.local) };
    ops.extend(at.neighbours().map(|from| Op::Recv { from, dst: given(from) }));
    for to in at.others().map(|group| at.leader(group)) {
        ops.extend(at.members(at.group).map(|rank| Op::Send { to, src: given(rank) }));
    }
    ops.extend(at.members(at.group).map(|rank| copy(given(rank), l.output(rank))));
    let give = |group: u32, ops: &mut Vec<Op>| {
        for rank in at.members(group) {
            let others = at.neighbours().filter(|to| *to != rank);
            ops.extend(others.map(|to| Op::Send { to, src: l.output(rank) }));
        }
    };
    give(at.group, ops);
    for group in at.others() {
        let from = at.leader(group);
        ops.extend(at.members(group).map(|rank| Op::Recv { from, dst: l.output(rank) }));
        give(group, ops);
    }
}

fn follow_gather(at: &At<'_>, ops: &mut Vec<Op>) {
    let (l, leader) = (at.lane, at.leader(at.group));
    ops.push(Op::Send { to: leader, src: l.input(0) });
    ops.push(copy(l.input(0), l.output(l.me)));
    let ranks = std::iter::once(at.group).chain(at.others()).flat_map(|group| at.members(group));
    ops.extend(ranks.filter(|rank| *rank != l.me).map(|rank| Op::Recv { from: leader, dst: l.output(rank) }));
}

/// The blocks of a reduce-scatter in the order in which they go to a leader: those of other groups first.
fn blocks(at: &At<'_>) -> impl Iterator<Item = Rank> + Clone {
    at.others().chain(std::iter::once(at.group)).flat_map(|group| at.members(group))
}

/// A reduce-scatter's leader.
fn sum(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    for (i, from) in at.neighbours().enumerate() {
        let had = |block: Rank| if i == 0 { l.input(block) } else { l.scratch(block) };
        ops.extend(blocks(at).map(|block| Op::RecvReduce { from, src: had(block), dst: l.scratch(block) }));
    }
    for group in at.others() {
        let to = at.leader(group);
        ops.extend(at.members(group).map(|block| Op::Send { to, src: l.scratch(block) }));
    }
    let last = at.others().last();
    for group in at.others() {
        let from = at.leader(group);
        ops.extend(at.members(at.group).map(|block| {
            let dst = if block == l.me && Some(group) == last { l.output(0) } else { l.scratch(block) };
            Op::RecvReduce { from, src: l.scratch(block), dst }
        }));
    }
    ops.extend(at.neighbours().map(|to| Op::Send { to, src: l.scratch(to) }));
}

fn follow_sum(at: &At<'_>, ops: &mut Vec<Op>) {
    let (l, leader) = (at.lane, at.leader(at.group));
    ops.extend(blocks(at).map(|block| Op::Send { to: leader, src: l.input(block) }));
    ops.push(Op::Recv { from: leader, dst: l.output(0) });
}
