//! Recursive doubling: in step `j` partners at distance `2^j` exchange everything they have summed and add it.
//!
//! Ranks beyond the largest power of two give their input to a neighbour first and get the result from it last.
//! Partners add the same two values, that of the lower rank first, so all ranks get the same bits.

use super::lanes;
use super::recursive::{Fold, Role};
use crate::ir::{Op, Program, Rank, Shape};

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 0, |l, ops| {
        let fold = Fold::new(l.n);
        let mut acc = l.input(0);
        let out = l.output(0);
        let (v, guest) = match fold.role(l.me) {
            Role::Guest { host } => {
                ops.push(Op::Send { to: host, src: acc });
                ops.push(Op::Recv { from: host, dst: out });
                return;
            }
            Role::Host { v, guest } => (v, guest),
        };
        if let Some(from) = guest {
            ops.push(Op::RecvReduce { from, src: acc, dst: out });
            acc = out;
        }
        let mut distance = 1;
        while distance < fold.size {
            let peer = fold.host(v ^ distance);
            ops.push(Op::Send { to: peer, src: acc });
            ops.push(Op::RecvReduce { from: peer, src: acc, dst: out });
            acc = out;
            distance *= 2;
        }
        ops.extend(guest.map(|to| Op::Send { to, src: out }));
    })
}
