//! One shot in which the root carries some of what moves between it and the others: where a transfer keeps the core of one rank busy
//! (the kernel copies it) the root would only wait.
//!
//! Of two ranks the root carries a sixth of the transfer, and its own part; they are done when each has signalled, since each reads or
//! writes memory of the other. Of more ranks it carries the whole blocks of some, which only wait for it, while the others carry their
//! own: these get in each other's way at the pages of the root, and the root is in nobody's way at theirs.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Parts of a transfer, of which the root carries the first.
pub(crate) const PARTS: u32 = 6;

/// Ranks, of three or more, whose blocks the root carries: those that follow it. They are as many as it carries in the time in which
/// the others carry theirs, of blocks of 32 and 128 KiB of 4 to 16 ranks with a core each (docs/performance-cores.md).
pub(crate) const fn carried(ranks: u32) -> u32 {
    (3 * (ranks - 1) + 2) / 5
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    if shape.ranks > 2 {
        return lanes(shape, rank, 0, 1, |l, ops| divided(l, shape.collective, ops));
    }
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

/// Of three or more ranks.
fn divided(l: &Lane, collective: Collective, ops: &mut Vec<Op>) {
    let carried = carried(l.n);
    if l.is_root() {
        ops.extend((1..=carried).map(|k| whole(l, collective, l.ahead(k))));
        ops.push(Op::Signal);
        ops.push(match collective {
            Collective::Gather => copy(l.input(0), l.output(l.me)),
            Collective::Scatter => copy(l.input(l.me), l.output(0)),
            _ => copy(l.input(0), l.output(0)),
        });
        ops.extend((carried + 1..l.n).map(|k| Op::Wait { rank: l.ahead(k), epoch: 1 }));
    } else if l.relative() <= carried {
        ops.push(Op::Wait { rank: l.root, epoch: 1 });
    } else {
        ops.push(whole(l, collective, l.me));
        ops.push(Op::Signal);
    }
}

/// Moves all of what goes between the root and `leaf`.
fn whole(l: &Lane, collective: Collective, leaf: Rank) -> Op {
    match collective {
        Collective::Gather => pull(at(leaf, l.input(0)), at(l.root, l.output(leaf))),
        Collective::Scatter => pull(at(l.root, l.input(leaf)), at(leaf, l.output(0))),
        _ => pull(at(l.root, l.input(0)), at(leaf, l.output(0))),
    }
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
