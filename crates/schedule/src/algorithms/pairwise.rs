//! Pairwise exchange: in round `k` every rank sends to the rank `k` ahead and receives from the rank `k` behind.

use super::{copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| {
        ops.push(copy(l.input(l.me), l.output(l.me)));
        for k in 1..l.n {
            let (to, from) = (l.ahead(k), l.behind(k));
            ops.push(Op::Send { to, src: l.input(to) });
            ops.push(Op::Recv { from, dst: l.output(from) });
        }
    })
}
