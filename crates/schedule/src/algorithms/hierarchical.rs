//! Hierarchical: ranks that share memory work together first, then rank `i` of every group with rank `i` of the others, and then
//! those that share memory again. What crosses the network is what a machine has to tell the others, once, and every rank carries its
//! share of it; a ring, or partners at growing distance, would carry up to twice as much, or several times.
//!
//! A reduce-scatter keeps a block of each group in scratch, a reduction of one root a part, and an all-reduce has about four messages for
//! each rank there is.
//!
//! What a root gives, or gets, goes from group to group in a chain that begins, or ends, at the root's: each rank of a group passes
//! on its part, so that no rank but the root carries all of it.
//!
//! Groups are the shape's [`local`](crate::ir::Shape::local) consecutive ranks. Without a root two groups exchange, more form rings. What the
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

/// Parts of an all-reduce, and of calls with a root: one for each rank of a group; where groups form rings, one for each rank.
pub(crate) fn parts(shape: &Shape) -> u32 {
    match shape.collective {
        Collective::AllReduce if shape.ranks / shape.local > 2 => shape.ranks,
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce => shape.local,
        _ => 1,
    }
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let groups = shape.ranks / shape.local;
    let scratch = match shape.collective {
        Collective::ReduceScatter => groups,
        Collective::Reduce => 1,
        _ => 0,
    };
    let parts = parts(shape);
    lanes(shape, rank, scratch, 0, |lane, ops| {
        let at = At { lane, local: shape.local, groups, group: rank / shape.local, index: rank % shape.local };
        match shape.collective {
            Collective::AllReduce => all_reduce(&at, parts, ops),
            Collective::ReduceScatter => reduce_scatter(&at, ops),
            Collective::Broadcast => broadcast(&at, ops),
            Collective::Reduce => reduce(&at, ops),
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

    /// The neighbour `k` ahead.
    fn neighbour(&self, k: u32) -> u32 {
        (self.index + k) % self.local
    }

    /// How many groups the own one is behind the root's.
    fn behind_root(&self) -> u32 {
        (self.group + self.groups - self.lane.root / self.local) % self.groups
    }

    /// What the rank of `index` in each group carries.
    fn part(&self, buffer: Buffer, index: u32) -> Chunk {
        self.lane.piece(buffer, 0, index, self.local)
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
            let index = self.neighbour(k);
            Op::Send { to: self.rank(self.group, index), src: out(index, item) }
        });
        let takes = rounds().map(|(k, item)| into(k, self.neighbour(self.local - k), item));
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

fn broadcast(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    let Circle { from, to, .. } = at.circle();
    let result = |index| at.part(Buffer::Output, index);
    if l.is_root() {
        let given = |index| at.part(Buffer::Input, index);
        let give = |k, index| Op::Send { to: at.rank(at.group, at.neighbour(k)), src: given(index) };
        ops.extend((1..at.local).map(|k| give(k, at.neighbour(k))));
        ops.push(Op::Send { to, src: given(at.index) });
        ops.extend((1..at.local).map(|k| give(k, at.index)));
        ops.extend((0..at.local).map(|index| copy(given(index), result(index))));
        return;
    }
    let mine = result(at.index);
    ops.push(match at.behind_root() {
        0 => Op::RecvCopySend { from: l.root, to, dst: mine },
        last if last == at.groups - 1 => Op::Recv { from, dst: mine },
        _ => Op::RecvCopySend { from, to, dst: mine },
    });
    let neighbours = (1..at.local).map(|k| at.rank(at.group, at.neighbour(k)));
    let sends = neighbours.filter(|to| *to != l.root).map(|to| Op::Send { to, src: mine });
    let takes = (1..at.local).map(|k| at.neighbour(at.local - k));
    let takes = takes.map(|index| Op::Recv { from: at.rank(at.group, index), dst: result(index) });
    exchange_ahead(AHEAD, ops, sends, takes);
}

fn reduce(at: &At<'_>, ops: &mut Vec<Op>) {
    let l = at.lane;
    let Circle { from, to, .. } = at.circle();
    let sum = at.part(if l.is_root() { Buffer::Output } else { Buffer::Scratch }, at.index);
    let begins = at.behind_root() == 1;
    let add = |k, index, _| {
        let src = if k == 1 { at.part(Buffer::Input, at.index) } else { sum };
        let from = at.rank(at.group, index);
        match k {
            last if begins && last == at.local - 1 => Op::RecvReduceSend { from, to, src, dst: None },
            _ => Op::RecvReduce { from, src, dst: sum },
        }
    };
    at.among_neighbours(std::iter::once(0), |index, _| at.part(Buffer::Input, index), add, ops);
    if l.is_root() {
        ops.push(Op::RecvReduce { from, src: sum, dst: sum });
        let neighbours = (1..at.local).map(|k| at.neighbour(at.local - k));
        ops.extend(neighbours.map(|i| Op::Recv { from: at.rank(at.group, i), dst: at.part(Buffer::Output, i) }));
    } else if !begins {
        let to = if at.behind_root() == 0 { l.root } else { to };
        ops.push(Op::RecvReduceSend { from, to, src: sum, dst: None });
    }
}
