//! Ring: rank `r` receives from `r - 1` and sends to `r + 1`.
//!
//! A chunk's sum starts behind the chunk's owner and ends at the owner, so all ranks get the same bits.

use super::{Lane, copy, lanes};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| match shape.collective {
        Collective::AllReduce => all_reduce(l, ops),
        Collective::ReduceScatter => {
            let own = reduce_round(l, |owner| l.input(owner), ops);
            ops.push(Op::RecvReduce { from: l.behind(1), src: own, dst: l.output(0) });
        }
        Collective::AllGather => {
            ops.push(Op::Send { to: l.ahead(1), src: l.input(0) });
            ops.push(copy(l.input(0), l.output(l.me)));
            circle(l).pass_results(|k| l.output(l.behind(k)), ops);
        }
        Collective::Broadcast => broadcast(l, ops),
        _ => reduce(l, ops),
    })
}

fn all_reduce(l: &Lane, ops: &mut Vec<Op>) {
    let part = |buffer, owner| l.piece(buffer, 0, owner, l.n);
    let src = reduce_round(l, |owner| part(Buffer::Input, owner), ops);
    let dst = Some(part(Buffer::Output, l.me));
    ops.push(Op::RecvReduceSend { from: l.behind(1), to: l.ahead(1), src, dst });
    circle(l).pass_results(|k| part(Buffer::Output, l.behind(k)), ops);
}

/// A circle of ranks as one of them sees it; each owns a chunk. Chunks are told by how far their owner is behind.
pub(super) struct Circle {
    /// The rank before this one, and the one after it.
    pub(super) from: Rank,
    pub(super) to: Rank,
    pub(super) ranks: u32,
}

impl Circle {
    /// Passes on all partial sums but the own. The one for the owner before has been sent already.
    pub(super) fn pass_sums(&self, had: impl Fn(u32) -> Chunk, ops: &mut Vec<Op>) {
        let Circle { from, to, ranks } = *self;
        ops.extend((2..ranks).map(|k| Op::RecvReduceSend { from, to, src: had(k), dst: None }));
    }

    /// Receives the chunks of all other owners and passes on all but the last. The own chunk has been sent already.
    pub(super) fn pass_results(&self, result: impl Fn(u32) -> Chunk, ops: &mut Vec<Op>) {
        let Circle { from, to, ranks } = *self;
        ops.extend((1..ranks - 1).map(|k| Op::RecvCopySend { from, to, dst: result(k) }));
        ops.push(Op::Recv { from, dst: result(ranks - 1) });
    }
}

fn circle(l: &Lane) -> Circle {
    Circle { from: l.behind(1), to: l.ahead(1), ranks: l.n }
}

/// Sends and passes on all partial sums but the own; returns the own contribution, which completes the own sum.
fn reduce_round(l: &Lane, input: impl Fn(Rank) -> Chunk, ops: &mut Vec<Op>) -> Chunk {
    ops.push(Op::Send { to: l.ahead(1), src: input(l.behind(1)) });
    circle(l).pass_sums(|k| input(l.behind(k)), ops);
    input(l.me)
}

fn broadcast(l: &Lane, ops: &mut Vec<Op>) {
    let (from, to) = (l.behind(1), l.ahead(1));
    if l.is_root() {
        ops.push(Op::Send { to, src: l.input(0) });
        ops.push(copy(l.input(0), l.output(0)));
    } else if to == l.root {
        ops.push(Op::Recv { from, dst: l.output(0) });
    } else {
        ops.push(Op::RecvCopySend { from, to, dst: l.output(0) });
    }
}

fn reduce(l: &Lane, ops: &mut Vec<Op>) {
    let (from, to) = (l.behind(1), l.ahead(1));
    if l.is_root() {
        ops.push(Op::RecvReduce { from, src: l.input(0), dst: l.output(0) });
    } else if from == l.root {
        ops.push(Op::Send { to, src: l.input(0) });
    } else {
        ops.push(Op::RecvReduceSend { from, to, src: l.input(0), dst: None });
    }
}
