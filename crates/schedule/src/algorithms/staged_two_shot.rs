//! Two shot through mapped scratch, for user buffers that peers cannot see.
//!
//! Every rank copies the parts of the others to its scratch (slot = part), reduces its own part over all ranks, and
//! leaves the result in the slot of its own part, which the first phase does not use. Each rank waits for the first
//! signal of all others in every iteration, which also protects the half that it overwrites two iterations later.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Buffer, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, shape.ranks, 2, |l, ops| {
        let part = |buffer, slot, p| l.piece(buffer, slot, p, l.n);
        ops.extend(l.others().map(|p| copy(part(Buffer::Input, 0, p), part(Buffer::Scratch, p, p))));
        ops.push(Op::Signal);
        l.wait_others(1, ops);
        if shape.collective == Collective::AllReduce {
            ops.push(reduce_own_part(l, true, true));
            ops.push(Op::Signal);
            collect(l, ops);
        } else if l.is_root() {
            ops.push(reduce_own_part(l, true, false));
            collect(l, ops);
        } else {
            ops.push(reduce_own_part(l, false, true));
            ops.push(Op::Signal);
        }
    })
}

/// Sums the own part over all ranks, in rank order.
fn reduce_own_part(l: &Lane, to_output: bool, to_scratch: bool) -> Op {
    let me = l.me;
    let srcs = (0..l.n)
        .map(|q| {
            let (buffer, slot) = if q == me { (Buffer::Input, 0) } else { (Buffer::Scratch, me) };
            at(q, l.piece(buffer, slot, me, l.n))
        })
        .collect();
    let mut dsts = Vec::new();
    if to_output {
        dsts.push(at(me, l.piece(Buffer::Output, 0, me, l.n)));
    }
    if to_scratch {
        dsts.push(at(me, l.piece(Buffer::Scratch, me, me, l.n)));
    }
    Op::Move { srcs, dsts }
}

/// Takes the finished parts of the others.
fn collect(l: &Lane, ops: &mut Vec<Op>) {
    for q in l.others() {
        ops.push(Op::Wait { rank: q, epoch: 2 });
        ops.push(pull(at(q, l.piece(Buffer::Scratch, q, q, l.n)), at(l.me, l.piece(Buffer::Output, 0, q, l.n))));
    }
}
