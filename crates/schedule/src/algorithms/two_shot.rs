//! Two shot: the message is cut into one part per rank; each rank serves its part for everyone.
//!
//! All-gather is the second shot alone: a rank's part is its block.
//!
//! A rank is done when all others have signalled: all of them read its input or write its output.

use super::{at, lanes};
use crate::ir::{Buffer, Op, Place, Program, Rank, Shape};
use oxccl_types::Collective;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 1, |l, ops| {
        let everyone = |buffer| -> Vec<Place> { (0..l.n).map(|q| at(q, l.piece(buffer, 0, l.me, l.n))).collect() };
        let only_root = |buffer| vec![at(l.root, l.piece(buffer, 0, l.me, l.n))];
        let (srcs, dsts) = match shape.collective {
            Collective::AllReduce => (everyone(Buffer::Input), everyone(Buffer::Output)),
            Collective::Reduce => (everyone(Buffer::Input), only_root(Buffer::Output)),
            Collective::AllGather => (vec![at(l.me, l.input(0))], (0..l.n).map(|q| at(q, l.output(l.me))).collect()),
            _ => (only_root(Buffer::Input), everyone(Buffer::Output)),
        };
        ops.push(Op::Move { srcs, dsts });
        ops.push(Op::Signal);
        l.wait_others(1, ops);
    })
}
