//! Flat: the root exchanges one message with every other rank.

use super::{Lane, copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| {
        if l.is_root() {
            root(l, shape.collective, ops);
        } else {
            ops.push(match shape.collective {
                Collective::Broadcast | Collective::Scatter => Op::Recv { from: l.root, dst: l.output(0) },
                _ => Op::Send { to: l.root, src: l.input(0) },
            });
        }
    })
}

fn root(l: &Lane, collective: Collective, ops: &mut Vec<Op>) {
    match collective {
        Collective::Broadcast => {
            ops.extend(l.others().map(|to| Op::Send { to, src: l.input(0) }));
            ops.push(copy(l.input(0), l.output(0)));
        }
        Collective::Scatter => {
            ops.extend(l.others().map(|to| Op::Send { to, src: l.input(to) }));
            ops.push(copy(l.input(l.me), l.output(0)));
        }
        Collective::Gather => {
            ops.push(copy(l.input(0), l.output(l.me)));
            ops.extend(l.others().map(|from| Op::Recv { from, dst: l.output(from) }));
        }
        _ => {
            let mut src = l.input(0);
            for from in l.others() {
                ops.push(Op::RecvReduce { from, src, dst: l.output(0) });
                src = l.output(0);
            }
        }
    }
}
