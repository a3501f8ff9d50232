//! Hierarchical: ranks that share memory work together first, then rank `i` of every group with rank `i` of the others, and then
//! those that share memory again. What crosses the network is what a machine has to tell the others, once, and every rank carries its
//! share of it; a ring, or partners at growing distance, would carry up to twice as much, or several times.
//!
//! A reduce-scatter keeps a block of each group in scratch, and an all-reduce has about four messages for each rank there is.
//!
//! Groups are the shape's [`local`](crate::ir::Shape::local) consecutive ranks. Two groups exchange, more form rings. What the
//! network has to carry leaves before what only the neighbours wait for.

use super::recursive::exchange_ahead;
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

    /// Those of the own index in the group before and in the one behind.
    fn neighbours(&self) -> (Rank, Rank) {
        (self.rank(self.behind(1), self.index), self.rank(self.behind(self.groups - 1), self.index))
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

    /// Sends and passes on the sums for all other groups: `part(g)` is what I have for the rank of my index in group `g`. What comes for
    /// the own one the caller adds. `sent` says that the first message has gone already.
    fn reduce_round(&self, part: impl Fn(u32) -> Chunk, sent: bool, ops: &mut Vec<Op>) {
        let (from, to) = self.neighbours();
        if !sent {
            ops.push(Op::Send { to, src: part(self.behind(1)) });
        }
        ops.extend((2..self.groups).map(|k| Op::RecvReduceSend { from, to, src: part(self.behind(k)), dst: None }));
    }

    /// Receives what the other groups have, and passes on all but the last.
    fn gather_round(&self, part: impl Fn(u32) -> Chunk, ops: &mut Vec<Op>) {
        let (from, to) = self.neighbours();
        ops.extend((1..self.groups - 1).map(|k| Op::RecvCopySend { from, to, dst: part(self.behind(k)) }));
        ops.push(Op::Recv { from, dst: part(self.behind(self.groups - 1)) });
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
    let (from, to) = at.neighbours();
    if at.groups == 2 {
        ops.push(Op::Send { to, src: mine(0) });
        ops.push(Op::RecvReduce { from, src: mine(0), dst: mine(0) });
    } else {
        at.reduce_round(mine, false, ops);
        ops.push(Op::RecvReduceSend { from, to, src: mine(at.group), dst: Some(mine(at.group)) });
        at.gather_round(mine, ops);
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
    let (from, to) = at.neighbours();
    ops.push(Op::Send { to, src: sum(at.behind(1)) });
    at.among_neighbours(std::iter::once(at.group), give, add, ops);
    at.reduce_round(sum, true, ops);
    ops.push(Op::RecvReduce { from, src: sum(at.group), dst: sum(at.group) });
}

fn all_gather(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    let (_, to) = at.neighbours();
    let take = |_, index, group| Op::Recv { from: at.rank(at.group, index), dst: l.output(at.rank(group, index)) };
    ops.push(Op::Send { to, src: l.input(0) });
    at.among_neighbours(std::iter::once(at.group), |_, _| l.input(0), take, ops);
    ops.push(copy(l.input(0), l.output(l.me)));
    let mine = |group| l.output(at.rank(group, at.index));
    at.gather_round(mine, ops);
    at.among_neighbours((1..at.groups).map(|k| at.behind(k)), |_, group| mine(group), take, ops);
}
