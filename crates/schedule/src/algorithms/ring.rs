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
            gather_round(l, |owner| l.output(owner), ops);
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
    gather_round(l, |owner| part(Buffer::Output, owner), ops);
}

/// Sends and passes on all partial sums but the own; returns the own contribution, which completes the own sum.
fn reduce_round(l: &Lane, input: impl Fn(Rank) -> Chunk, ops: &mut Vec<Op>) -> Chunk {
    let (from, to) = (l.behind(1), l.ahead(1));
    ops.push(Op::Send { to, src: input(l.behind(1)) });
    ops.extend((2..l.n).map(|j| Op::RecvReduceSend { from, to, src: input(l.behind(j)), dst: None }));
    input(l.me)
}

/// Receives the chunks of all other owners and passes on all but the last. The own chunk has been sent already.
fn gather_round(l: &Lane, output: impl Fn(Rank) -> Chunk, ops: &mut Vec<Op>) {
    let (from, to) = (l.behind(1), l.ahead(1));
    ops.extend((1..l.n - 1).map(|j| Op::RecvCopySend { from, to, dst: output(l.behind(j)) }));
    ops.push(Op::Recv { from, dst: output(l.ahead(1)) });
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
