//! Leader: one rank of every group that shares memory sums what its neighbours give it, the leaders exchange their sums by recursive
//! doubling, and each gives the result to its neighbours. Fewest messages between machines: one in each direction where there are two,
//! whatever the size of the groups; but all of a group's data passes through one rank.
//!
//! Groups are the shape's [`local`](crate::ir::Shape::local) consecutive ranks. The leaders have different places in their groups, so
//! that where groups share a machine's cores not all of them share one. Sums lie in scratch until they are the result, so that those of
//! the next call can be made while this one waits for the network.

use std::ops::Range;

use super::recursive::{Fold, Role};
use super::{Lane, lanes};
use crate::ir::{Op, Program, Rank, Shape};

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 1, 0, |l, ops| {
        let at = At::new(l, shape);
        if !at.leads() {
            ops.push(Op::Send { to: at.leader(at.group), src: l.input(0) });
            ops.push(Op::Recv { from: at.leader(at.group), dst: l.output(0) });
            return;
        }
        let mut acc = l.input(0);
        for from in at.neighbours() {
            ops.push(Op::RecvReduce { from, src: acc, dst: l.scratch(0) });
            acc = l.scratch(0);
        }
        among_leaders(&at, ops);
        ops.extend(at.neighbours().map(|to| Op::Send { to, src: l.output(0) }));
    })
}

/// Recursive doubling of what lies in scratch; the result is the output.
fn among_leaders(at: &At<'_>, ops: &mut Vec<Op>) {
    let (acc, out) = (at.lane.scratch(0), at.lane.output(0));
    let fold = Fold::new(at.groups);
    let (v, guest) = match fold.role(at.group) {
        Role::Guest { host } => {
            ops.push(Op::Send { to: at.leader(host), src: acc });
            ops.push(Op::Recv { from: at.leader(host), dst: out });
            return;
        }
        Role::Host { v, guest } => (v, guest.map(|group| at.leader(group))),
    };
    ops.extend(guest.map(|from| Op::RecvReduce { from, src: acc, dst: acc }));
    let mut distance = 1;
    while distance < fold.size {
        let peer = at.leader(fold.host(v ^ distance));
        let dst = if 2 * distance < fold.size { acc } else { out };
        ops.push(Op::Send { to: peer, src: acc });
        ops.push(Op::RecvReduce { from: peer, src: acc, dst });
        distance *= 2;
    }
    ops.extend(guest.map(|to| Op::Send { to, src: out }));
}

/// Where a rank stands among groups that have leaders.
pub(super) struct At<'a> {
    pub(super) lane: &'a Lane,
    /// Ranks of a group.
    pub(super) local: u32,
    groups: u32,
    /// The own group.
    pub(super) group: u32,
}

impl At<'_> {
    pub(super) fn new<'a>(lane: &'a Lane, shape: &Shape) -> At<'a> {
        At { lane, local: shape.local, groups: shape.ranks / shape.local, group: lane.me / shape.local }
    }

    /// The rank that leads `group`.
    pub(super) fn leader(&self, group: u32) -> Rank {
        group * self.local + group % self.local
    }

    /// Whether this rank leads its group.
    pub(super) fn leads(&self) -> bool {
        self.lane.me == self.leader(self.group)
    }

    /// The ranks of `group`.
    pub(super) fn members(&self, group: u32) -> Range<Rank> {
        group * self.local..(group + 1) * self.local
    }

    /// The others of the own group.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = Rank> + Clone {
        let me = self.lane.me;
        self.members(self.group).filter(move |rank| *rank != me)
    }

    /// All groups but the own one.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + Clone {
        let own = self.group;
        (0..self.groups).filter(move |group| *group != own)
    }
}
