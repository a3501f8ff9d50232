//! Pairwise exchange: in round `k` every rank sends to the rank `k` ahead and receives from the rank `k` behind.
//! A few sends run ahead, each on a connection of its own. What a reduce-scatter receives is added as it comes.

use super::recursive::exchange;
use super::{Lane, copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| {
        if shape.collective == Collective::ReduceScatter {
            return reduce_scatter(l, ops);
        }
        ops.push(copy(l.input(l.me), l.output(l.me)));
        let send = |k| Op::Send { to: l.ahead(k), src: l.input(l.ahead(k)) };
        let recv = |k| Op::Recv { from: l.behind(k), dst: l.output(l.behind(k)) };
        exchange(ops, (1..l.n).map(send), (1..l.n).map(recv));
    })
}

fn reduce_scatter(l: &Lane, ops: &mut Vec<Op>) {
    let send = |k| Op::Send { to: l.ahead(k), src: l.input(l.ahead(k)) };
    let add = |k| Op::RecvReduce {
        from: l.behind(k),
        src: if k == 1 { l.input(l.me) } else { l.output(0) },
        dst: l.output(0),
    };
    exchange(ops, (1..l.n).map(send), (1..l.n).map(add));
}
