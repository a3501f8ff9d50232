//! Linear: every rank sends all that it gives at first, a message to each of the others, and then receives: one step, for what is
//! small. An all-reduce gives everybody everything, and adds in the order of the ranks, so that all get the same bits.

use std::ops::RangeInclusive;

use super::{Lane, copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Ranks that it usually serves. Each needs connections to each other one, which of more ranks are more than one step is worth; and of
/// two ranks one message each way is what other algorithms do, too. An all-reduce takes others fewer messages: of more ranks those
/// that follow each other gain by one step, but one that is waited for loses as much (measured, docs/performance-changes.md).
pub(super) fn usual(collective: Collective) -> RangeInclusive<Rank> {
    if collective == Collective::AllReduce { 3..=4 } else { 3..=16 }
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let scratch = u32::from(shape.collective == Collective::AllReduce);
    lanes(shape, rank, scratch, 0, |l, ops| match shape.collective {
        Collective::AllReduce => all_reduce(l, ops),
        Collective::ReduceScatter => reduce_scatter(l, ops),
        _ => all_gather(l, ops),
    })
}

fn all_gather(l: &Lane, ops: &mut Vec<Op>) {
    ops.extend(l.others().map(|to| Op::Send { to, src: l.input(0) }));
    ops.push(copy(l.input(0), l.output(l.me)));
    ops.extend((1..l.n).map(|k| Op::Recv { from: l.behind(k), dst: l.output(l.behind(k)) }));
}

fn reduce_scatter(l: &Lane, ops: &mut Vec<Op>) {
    ops.extend(l.others().map(|to| Op::Send { to, src: l.input(to) }));
    let mut src = l.input(l.me);
    for k in 1..l.n {
        ops.push(Op::RecvReduce { from: l.behind(k), src, dst: l.output(0) });
        src = l.output(0);
    }
}

fn all_reduce(l: &Lane, ops: &mut Vec<Op>) {
    ops.extend(l.others().map(|to| Op::Send { to, src: l.input(0) }));
    // The sum of the ranks so far. Not in the output before the last: in place that is the own input, which is still to be added.
    let mut sum = None;
    for from in 0..l.n {
        let dst = if from + 1 == l.n { l.output(0) } else { l.scratch(0) };
        let (op, now) = match (from == l.me, sum) {
            (true, None) => (None, l.input(0)),
            // What a rank gives comes first, as where it is received: of two zeros the second is kept by a maximum.
            (true, Some(b)) => (Some(Op::Reduce { a: l.input(0), b, dst }), dst),
            (false, None) => (Some(Op::Recv { from, dst }), dst),
            (false, Some(src)) => (Some(Op::RecvReduce { from, src, dst }), dst),
        };
        ops.extend(op);
        sum = Some(now);
    }
}
