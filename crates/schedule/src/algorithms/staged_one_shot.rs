//! One shot through mapped scratch, for user buffers that peers cannot see.
//!
//! Givers copy to their scratch and signal; takers wait and read it there. A giver overwrites a half of its scratch two
//! iterations later; by then it has waited, in the iteration between, for a signal that each of its readers raised
//! after reading. Where a reader gives nothing itself it signals on entry for that reason only.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Op, Place, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let per_peer = matches!(shape.collective, Collective::ReduceScatter | Collective::AllToAll | Collective::Scatter);
    let slots = if per_peer { shape.ranks } else { 1 };
    lanes(shape, rank, slots, 1, |l, ops| match shape.collective {
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

/// Own input block `block` and scratch slot `slot` of all others, in rank order, so that every rank rounds alike.
fn contributions(l: &Lane, block: u32, slot: u32) -> Vec<Place> {
    (0..l.n).map(|q| at(q, if q == l.me { l.input(block) } else { l.scratch(slot) })).collect()
}

fn all_reduce(l: &Lane, ops: &mut Vec<Op>) {
    ops.push(copy(l.input(0), l.scratch(0)));
    ops.push(Op::Signal);
    l.wait_others(1, ops);
    ops.push(Op::Move { srcs: contributions(l, 0, 0), dsts: vec![at(l.me, l.output(0))] });
}

/// Copies the block of each peer to its slot and says so.
fn stage_blocks(l: &Lane, ops: &mut Vec<Op>) {
    ops.extend(l.others().map(|q| copy(l.input(q), l.scratch(q))));
    ops.push(Op::Signal);
}

fn reduce_scatter(l: &Lane, ops: &mut Vec<Op>) {
    stage_blocks(l, ops);
    l.wait_others(1, ops);
    ops.push(Op::Move { srcs: contributions(l, l.me, l.me), dsts: vec![at(l.me, l.output(0))] });
}

fn all_to_all(l: &Lane, ops: &mut Vec<Op>) {
    stage_blocks(l, ops);
    ops.push(copy(l.input(l.me), l.output(l.me)));
    for q in l.others() {
        ops.push(Op::Wait { rank: q, epoch: 1 });
        ops.push(pull(at(q, l.scratch(l.me)), at(l.me, l.output(q))));
    }
}

fn all_gather(l: &Lane, ops: &mut Vec<Op>) {
    ops.push(copy(l.input(0), l.scratch(0)));
    ops.push(Op::Signal);
    ops.push(copy(l.input(0), l.output(l.me)));
    for q in l.others() {
        ops.push(Op::Wait { rank: q, epoch: 1 });
        ops.push(pull(at(q, l.scratch(0)), at(l.me, l.output(q))));
    }
}

fn broadcast(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(copy(l.input(0), l.scratch(0)));
        ops.push(Op::Signal);
        ops.push(copy(l.input(0), l.output(0)));
        l.wait_others(1, ops);
    } else {
        take(l, 0, ops);
    }
}

fn scatter(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        stage_blocks(l, ops);
        ops.push(copy(l.input(l.me), l.output(0)));
        l.wait_others(1, ops);
    } else {
        take(l, l.me, ops);
    }
}

/// Takes slot `slot` of the root.
fn take(l: &Lane, slot: u32, ops: &mut Vec<Op>) {
    ops.push(Op::Signal); // I have read the piece before this one.
    ops.push(Op::Wait { rank: l.root, epoch: 1 });
    ops.push(pull(at(l.root, l.scratch(slot)), at(l.me, l.output(0))));
}

/// Gives the input to the root.
fn give(l: &Lane, ops: &mut Vec<Op>) {
    ops.push(copy(l.input(0), l.scratch(0)));
    ops.push(Op::Signal);
    ops.push(Op::Wait { rank: l.root, epoch: 1 });
}

fn reduce(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(Op::Signal); // I have read the pieces before these.
        l.wait_others(1, ops);
        ops.push(Op::Move { srcs: contributions(l, 0, 0), dsts: vec![at(l.me, l.output(0))] });
    } else {
        give(l, ops);
    }
}

fn gather(l: &Lane, ops: &mut Vec<Op>) {
    if l.is_root() {
        ops.push(Op::Signal); // I have read the pieces before these.
        ops.push(copy(l.input(0), l.output(l.me)));
        for q in l.others() {
            ops.push(Op::Wait { rank: q, epoch: 1 });
            ops.push(pull(at(q, l.scratch(0)), at(l.me, l.output(q))));
        }
    } else {
        give(l, ops);
    }
}
