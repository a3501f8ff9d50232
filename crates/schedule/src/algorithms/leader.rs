//! Leader: one rank of every group that shares memory sums what its neighbours give it, the leaders exchange their sums by recursive
//! doubling, and each gives the result to its neighbours. Fewest messages between machines: one in each direction where there are two,
//! whatever the size of the groups; but all of a group's data passes through one rank.
//!
//! Groups are the shape's [`local`](crate::ir::Shape::local) consecutive ranks. The leaders have different places in their groups, so
//! that where groups share a machine's cores not all of them share one. Sums lie in scratch until they are the result, so that those of
//! the next call can be made while this one waits for the network.

use super::recursive::{Fold, Role};
use super::{Lane, lanes};
use crate::ir::{Op, Program, Rank, Shape};

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 1, 0, |l, ops| {
        let leader = leader(l.local, rank / l.local);
        if rank != leader {
            ops.push(Op::Send { to: leader, src: l.input(0) });
            ops.push(Op::Recv { from: leader, dst: l.output(0) });
            return;
        }
        let first = rank / l.local * l.local;
        let neighbours = || (first..first + l.local).filter(|r| *r != rank);
        let mut acc = l.input(0);
        for from in neighbours() {
            ops.push(Op::RecvReduce { from, src: acc, dst: l.scratch(0) });
            acc = l.scratch(0);
        }
        among_leaders(l, rank / l.local, ops);
        ops.extend(neighbours().map(|to| Op::Send { to, src: l.output(0) }));
    })
}

/// The rank that leads `group`.
fn leader(local: u32, group: u32) -> Rank {
    group * local + group % local
}

/// Recursive doubling of what lies in scratch; the result is the output.
fn among_leaders(l: &Lane, group: u32, ops: &mut Vec<Op>) {
    let (acc, out) = (l.scratch(0), l.output(0));
    let fold = Fold::new(l.n / l.local);
    let of = |group| leader(l.local, group);
    let (v, guest) = match fold.role(group) {
        Role::Guest { host } => {
            ops.push(Op::Send { to: of(host), src: acc });
            ops.push(Op::Recv { from: of(host), dst: out });
            return;
        }
        Role::Host { v, guest } => (v, guest),
    };
    ops.extend(guest.map(|guest| Op::RecvReduce { from: of(guest), src: acc, dst: acc }));
    let mut distance = 1;
    while distance < fold.size {
        let peer = of(fold.host(v ^ distance));
        let dst = if 2 * distance < fold.size { acc } else { out };
        ops.push(Op::Send { to: peer, src: acc });
        ops.push(Op::RecvReduce { from: peer, src: acc, dst });
        distance *= 2;
    }
    ops.extend(guest.map(|guest| Op::Send { to: of(guest), src: out }));
}
