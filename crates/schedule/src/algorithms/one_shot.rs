//! One shot: every rank reads what it needs straight from the inputs of its peers.
//!
//! The executor's rendezvous says that all inputs are ready. A rank may end once everyone who touches its memory
//! has signalled that he is done; rooted collectives wait only along the edges that exist.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let scratch = u32::from(shape.collective == Collective::AllReduce && shape.in_place);
    lanes(shape, rank, scratch, 1, |l, ops| match shape.collective {
        Collective::AllReduce => all_reduce(l, ops),
        Collective::ReduceScatter => reduce_scatter(l, ops),
        Collective::AllGather => all_gather(l, ops),
        Collective::AllToAll => all_to_all(l, ops),
        Collective::Broadcast => broadcast(l, ops),
        Collective::Reduce => reduce(l, ops),
        Collective::Gather => gather(l, ops),
        _ => scatter(l, ops),
    })
}

/// Reads block `block` of all inputs in rank order, so that every rank rounds alike.
fn sum(l: &Lane, block: u32, dst: crate::ir::Chunk) -> Op {
    Op::Move { srcs: (0..l.n).map(|q| at(q, l.input(block))).collect(), dsts: vec![at(l.me, dst)] }
}

/// Everyone touched everyone: nobody leaves before all are done.
fn leave_together(l: &Lane, ops: &mut Vec<Op>) {
    ops.push(Op::Signal);
    l.wait_others(1, ops);
}

fn all_reduce(l: &Lane, ops: &mut Vec<Op>) {
    if l.in_place {
        // The result would overwrite the input that peers still read: it waits in scratch for their signals.
        ops.push(sum(l, 0, l.scratch(0)));
        leave_together(l, ops);
        ops.push(copy(l.scratch(0), l.output(0)));
    } else {
        ops.push(sum(l, 0, l.output(0)));
        leave_together(l, ops);
    }
}

fn reduce_scatter(l: &Lane, ops: &mut Vec<Op>) {
    ops.push(sum(l, l.me, l.output(0)));
    leave_together(l, ops);
}

fn all_gather(l: &Lane, ops: &mut Vec<Op>) {
    // The own part first: the peers then find it in the caches.
    ops.push(copy(l.input(0), l.output(l.me)));
    ops.extend(l.others().map(|q| pull(at(q, l.input(0)), at(l.me, l.output(q)))));
    leave_together(l, ops);
}

fn all_to_all(l: &Lane, ops: &mut Vec<Op>) {
    ops.extend(l.others().map(|q| pull(at(q, l.input(l.me)), at(l.me, l.output(q)))));
    ops.push(Op::Signal);
    // The own part is nobody else's: it is copied while the others finish.
    ops.push(copy(l.input(l.me), l.output(l.me)));
    l.wait_others(1, ops);
}

fn broadcast(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(copy(l.input(0), l.output(0)));
        l.wait_others(1, ops);
    } else {
        ops.push(pull(at(l.root, l.input(0)), at(l.me, l.output(0))));
        ops.push(Op::Signal);
    }
}

fn reduce(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(sum(l, 0, l.output(0)));
        ops.push(Op::Signal);
    } else {
        ops.push(Op::Wait { rank: l.root, epoch: 1 });
    }
}

/// Pushes, so that every rank's core carries its own block.
fn gather(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(copy(l.input(0), l.output(l.me)));
        l.wait_others(1, ops);
    } else {
        ops.push(pull(at(l.me, l.input(0)), at(l.root, l.output(l.me))));
        ops.push(Op::Signal);
    }
}

fn scatter(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(copy(l.input(l.me), l.output(0)));
        l.wait_others(1, ops);
    } else {
        ops.push(pull(at(l.root, l.input(l.me)), at(l.me, l.output(0))));
        ops.push(Op::Signal);
    }
}
