//! Pairwise exchange: in round `k` every rank sends to the rank `k` ahead and receives from the rank `k` behind.
//! A few sends run ahead, each on a connection of its own.

use super::recursive::exchange;
use super::{copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| {
        ops.push(copy(l.input(l.me), l.output(l.me)));
        let send = |k| Op::Send { to: l.ahead(k), src: l.input(l.ahead(k)) };
        let recv = |k| Op::Recv { from: l.behind(k), dst: l.output(l.behind(k)) };
        exchange(ops, (1..l.n).map(send), (1..l.n).map(recv));
    })
}
