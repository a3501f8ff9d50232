//! One shot in which the root carries some of what moves between it and the others: where a transfer keeps the core of one rank busy
//! (the kernel copies it) the root would only wait.
//!
//! Of two ranks the root carries a sixth of the transfer, and its own part; they are done when each has signalled, since each reads or
//! writes memory of the other. Of more ranks it carries the whole blocks of some, which only wait for it, while the others carry their
//! own: these get in each other's way at the pages of the root, and the root is in nobody's way at theirs.
//!
//! Of a reduction each rank carries a part, and the root two, since all others have to write theirs to it as well. It is
//! [`two_shot`](super::two_shot) but for that, and of two ranks the faster one.

use super::{Lane, at, copy, lanes, pull};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Parts of a transfer, of which the root carries the first.
pub(crate) const PARTS: u32 = 6;

/// Parts of a reduction of so many ranks: one for each, and another one for the root.
pub(crate) const fn reduced_parts(ranks: u32) -> u32 {
    ranks + 1
}

/// Ranks, of three or more, whose blocks the root carries: those that follow it. They are as many as it carries in the time in which
/// the others carry theirs, of blocks of 32 and 128 KiB of 4 to 16 ranks with a core each (docs/performance-cores.md).
pub(crate) const fn carried(ranks: u32) -> u32 {
    (3 * (ranks - 1) + 2) / 5
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    lanes(shape, rank, 0, 1, |l, ops| match l.n {
        _ if shape.collective == Collective::Reduce => reduced(l, ops),
        2 => of_two(l, shape.collective, ops),
        _ => of_more(l, shape.collective, ops),
    })
}

/// The root carries the first part, and the other rank the rest.
fn of_two(l: &Lane, collective: Collective, ops: &mut Vec<Op>) {
    if l.is_root() {
        l.others().for_each(|leaf| ops.push(carry(l, collective, leaf, 0, PARTS)));
        ops.push(Op::Signal);
        ops.extend((0..PARTS).map(|part| keep(l, collective, part, PARTS)));
        l.wait_others(1, ops);
    } else {
        ops.extend((1..PARTS).map(|part| carry(l, collective, l.me, part, PARTS)));
        ops.push(Op::Signal);
        ops.push(Op::Wait { rank: l.root, epoch: 1 });
    }
}

/// Each rank combines its part, the root the first two, and puts the result where the root wants it.
fn reduced(l: &Lane, ops: &mut Vec<Op>) {
    let parts = if l.is_root() { 0..2 } else { l.relative() + 1..l.relative() + 2 };
    let piece = |buffer, part| l.piece(buffer, 0, part, reduced_parts(l.n));
    ops.extend(parts.map(|part| {
        let srcs = (0..l.n).map(|rank| at(rank, piece(Buffer::Input, part))).collect();
        Op::Move { srcs, dsts: vec![at(l.root, piece(Buffer::Output, part))] }
    }));
    ops.push(Op::Signal);
    l.wait_others(1, ops);
}

/// The root carries the blocks of the ranks that follow it, and the others theirs.
fn of_more(l: &Lane, collective: Collective, ops: &mut Vec<Op>) {
    let carried = carried(l.n);
    if l.is_root() {
        ops.extend((1..=carried).map(|k| carry(l, collective, l.ahead(k), 0, 1)));
        ops.push(Op::Signal);
        ops.push(keep(l, collective, 0, 1));
        ops.extend((carried + 1..l.n).map(|k| Op::Wait { rank: l.ahead(k), epoch: 1 }));
    } else if l.relative() <= carried {
        ops.push(Op::Wait { rank: l.root, epoch: 1 });
    } else {
        ops.push(carry(l, collective, l.me, 0, 1));
        ops.push(Op::Signal);
    }
}

/// The ends of what goes between the root and `rank`: part `part` of `parts`.
fn ends(l: &Lane, collective: Collective, rank: Rank, part: u32, parts: u32) -> [Chunk; 2] {
    let piece = |buffer, block| l.piece(buffer, block, part, parts);
    match collective {
        Collective::Gather => [piece(Buffer::Input, 0), piece(Buffer::Output, rank)],
        Collective::Scatter => [piece(Buffer::Input, rank), piece(Buffer::Output, 0)],
        _ => [piece(Buffer::Input, 0), piece(Buffer::Output, 0)],
    }
}

/// Moves that part between the root and `leaf`.
fn carry(l: &Lane, collective: Collective, leaf: Rank, part: u32, parts: u32) -> Op {
    let [from, to] = ends(l, collective, leaf, part, parts);
    match collective {
        Collective::Gather => pull(at(leaf, from), at(l.root, to)),
        _ => pull(at(l.root, from), at(leaf, to)),
    }
}

/// Moves that part of what the root has for itself.
fn keep(l: &Lane, collective: Collective, part: u32, parts: u32) -> Op {
    let [from, to] = ends(l, collective, l.me, part, parts);
    copy(from, to)
}
