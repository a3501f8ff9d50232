//! Hierarchical: ranks that share memory work together first, then rank `i` of every group with rank `i` of the others, and then
//! those that share memory again. What crosses the network is what a machine has to tell the others, once, and every rank carries its
//! share of it; a ring, or partners at growing distance, would carry up to twice as much, or several times.
//!
//! A reduce-scatter keeps a block of each group in scratch, and an all-reduce has about four messages for each rank there is.
//!
//! Groups are the shape's [`local`](crate::ir::Shape::local) consecutive ranks. Two groups exchange, more form rings. What the
//! network has to carry leaves before what only the neighbours wait for.

use super::recursive::exchange_ahead;
use super::ring::Circle;
use super::{Lane, copy, lanes};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Messages to neighbours that may be under way: as many slots are needed, and the fewer, the longer pieces are where a connection has
/// room for so many.
pub(super) const AHEAD: usize = 2;

/// Whether there are several groups of several ranks.
pub(super) fn accepts(shape: &Shape) -> bool {
    shape.local > 1 && shape.local < shape.ranks && shape.ranks.is_multiple_of(shape.local)
}

/// Parts of an all-reduce: one for each rank of a group; where groups form rings, one for each rank.
pub(crate) fn parts(shape: &Shape) -> u32 {
    if shape.ranks / shape.local == 2 { shape.local } else { shape.ranks }
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let groups = shape.ranks / shape.local;
    let scratch = if shape.collective == Collective::ReduceScatter { groups } else { 0 };
    let parts = parts(shape);
    lanes(shape, rank, scratch, 0, |lane, ops| {
        let at = At { lane, local: shape.local, groups, group: rank / shape.local, index: rank % shape.local };
        match shape.collective {
            Collective::AllReduce => all_reduce(&at, parts, ops),
            Collective::ReduceScatter => reduce_scatter(&at, ops),
            _ => all_gather(&at, ops),
        }
    })
}

/// Where a rank stands.
struct At<'a> {
    lane: &'a Lane,
    /// Ranks of a group.
    local: u32,
    groups: u32,
    /// The own group, and the place in it.
    group: u32,
    index: u32,
}

impl At<'_> {
    fn rank(&self, group: u32, index: u32) -> Rank {
        group * self.local + index
    }

    /// The group `k` behind, up to all of them.
    fn behind(&self, k: u32) -> u32 {
        (self.group + self.groups - k) % self.groups
    }

    /// Those of the own index in all groups.
    fn circle(&self) -> Circle {
        let of = |group| self.rank(group, self.index);
        Circle { from: of(self.behind(1)), to: of(self.behind(self.groups - 1)), ranks: self.groups }
    }

    /// Gives each of the own group what `out` says of its index, and takes from it what `into` says: one message for each of `items`.
    fn among_neighbours(
        &self,
        items: impl Iterator<Item = u32> + Clone,
        out: impl Fn(u32, u32) -> Chunk,
        into: impl Fn(u32, u32, u32) -> Op,
        ops: &mut Vec<Op>,
    ) {
        let rounds = || (1..self.local).flat_map(|k| items.clone().map(move |item| (k, item)));
        let sends = rounds().map(|(k, item)| {
            let index = (self.index + k) % self.local;
            Op::Send { to: self.rank(self.group, index), src: out(index, item) }
        });
        let takes = rounds().map(|(k, item)| into(k, (self.index + self.local - k) % self.local, item));
        exchange_ahead(AHEAD, ops, sends, takes);
    }
}

fn all_reduce(at: &At<'_>, parts: u32, ops: &mut Vec<Op>) {
    let each = parts / at.local;
    let unit = |buffer, index: u32, item: u32| at.lane.piece(buffer, 0, index * each + item, parts);
    let sum = |index, item| unit(Buffer::Output, index, item);
    let add = |k, index, item| {
        let buffer = if k == 1 { Buffer::Input } else { Buffer::Output };
        let from = at.rank(at.group, index);
        Op::RecvReduce { from, src: unit(buffer, at.index, item), dst: sum(at.index, item) }
    };
    at.among_neighbours(0..each, |index, item| unit(Buffer::Input, index, item), add, ops);
    let mine = |group| sum(at.index, group);
    let circle = at.circle();
    let Circle { from, to, .. } = circle;
    if at.groups == 2 {
        ops.push(Op::Send { to, src: mine(0) });
        ops.push(Op::RecvReduce { from, src: mine(0), dst: mine(0) });
    } else {
        ops.push(Op::Send { to, src: mine(at.behind(1)) });
        circle.pass_sums(|k| mine(at.behind(k)), ops);
        ops.push(Op::RecvReduceSend { from, to, src: mine(at.group), dst: Some(mine(at.group)) });
        circle.pass_results(|k| mine(at.behind(k)), ops);
    }
    let take = |_, index, item| Op::Recv { from: at.rank(at.group, index), dst: sum(index, item) };
    at.among_neighbours(0..each, |_, item| mine(item), take, ops);
}

fn reduce_scatter(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    // The sum for my index in a group.
    let sum = |group| if group == at.group { l.output(0) } else { l.scratch(group) };
    let add = |k, index, group| {
        let src = if k == 1 { l.input(at.rank(group, at.index)) } else { sum(group) };
        Op::RecvReduce { from: at.rank(at.group, index), src, dst: sum(group) }
    };
    let give = |index, group| l.input(at.rank(group, index));
    at.among_neighbours((1..at.groups).map(|k| at.behind(k)), give, add, ops);
    let circle = at.circle();
    ops.push(Op::Send { to: circle.to, src: sum(at.behind(1)) });
    at.among_neighbours(std::iter::once(at.group), give, add, ops);
    circle.pass_sums(|k| sum(at.behind(k)), ops);
    ops.push(Op::RecvReduce { from: circle.from, src: sum(at.group), dst: sum(at.group) });
}

fn all_gather(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    let circle = at.circle();
    let take = |_, index, group| Op::Recv { from: at.rank(at.group, index), dst: l.output(at.rank(group, index)) };
    ops.push(Op::Send { to: circle.to, src: l.input(0) });
    at.among_neighbours(std::iter::once(at.group), |_, _| l.input(0), take, ops);
    ops.push(copy(l.input(0), l.output(l.me)));
    let mine = |group| l.output(at.rank(group, at.index));
    circle.pass_results(|k| mine(at.behind(k)), ops);
    at.among_neighbours((1..at.groups).map(|k| at.behind(k)), |_, group| mine(group), take, ops);
}
