//! One shot in which the root carries a sixth of what moves between it and each other rank, and its own part: where a
//! transfer keeps the core of one rank busy (the kernel copies it) the root would only wait. Worth it for two ranks.
//!
//! The root and another are done when each has signalled: each reads or writes memory of the other.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Parts of a transfer, of which the root carries the first.
pub(crate) const PARTS: u32 = 6;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 1, |l, ops| {
        if l.is_root() {
            l.others().for_each(|leaf| ops.push(carry(l, shape.collective, leaf, 0)));
            ops.push(Op::Signal);
            let own = if shape.collective == Collective::Broadcast { 0 } else { l.me };
            for part in 0..PARTS {
                ops.push(match shape.collective {
                    Collective::Gather => copy(piece(l, Buffer::Input, 0, part), piece(l, Buffer::Output, own, part)),
                    _ => copy(piece(l, Buffer::Input, own, part), piece(l, Buffer::Output, 0, part)),
                });
            }
            l.wait_others(1, ops);
        } else {
            ops.extend((1..PARTS).map(|part| carry(l, shape.collective, l.me, part)));
            ops.push(Op::Signal);
            ops.push(Op::Wait { rank: l.root, epoch: 1 });
        }
    })
}

fn piece(l: &Lane, buffer: Buffer, block: u32, part: u32) -> Chunk {
    l.piece(buffer, block, part, PARTS)
}

/// Moves part `part` of what goes between the root and `leaf`.
fn carry(l: &Lane, collective: Collective, leaf: Rank, part: u32) -> Op {
    match collective {
        Collective::Gather => {
            pull(at(leaf, piece(l, Buffer::Input, 0, part)), at(l.root, piece(l, Buffer::Output, leaf, part)))
        }
        Collective::Scatter => {
            pull(at(l.root, piece(l, Buffer::Input, leaf, part)), at(leaf, piece(l, Buffer::Output, 0, part)))
        }
        _ => pull(at(l.root, piece(l, Buffer::Input, 0, part)), at(leaf, piece(l, Buffer::Output, 0, part))),
    }
}
