//! Binomial tree below the root: number `v` hangs below `v - 2^low(v)` and stands for `v .. v + 2^low(v)`.
//!
//! Numbers count from the root, group by group of ranks that share memory; each group has a power of two of them, of which the last
//! stand for nobody. So one branch only leads to a group, and all further ones stay in it.
//!
//! Gather and scatter stream block by block through inner ranks, so one slot of scratch is enough.

use super::{Lane, copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;
use std::ops::Range;

/// Place of a rank in the tree, in numbers of the tree.
struct Node {
    /// The own number.
    v: u32,
    /// End of the subtree, which starts at `v`.
    end: u32,
    /// Rank of the parent.
    parent: Option<Rank>,
    /// Ranks and subtrees of the children, smallest first.
    children: Vec<(Rank, Range<u32>)>,
}

/// The group of a rank, or its place in it, as many further as `root` is from 0.
fn turned(x: u32, root: u32, n: u32) -> u32 {
    ((u64::from(x) + u64::from(root)) % u64::from(n)) as u32
}

/// Numbers that a group takes.
fn width(l: &Lane) -> u32 {
    l.local.next_power_of_two()
}

/// The number of this rank.
fn number(l: &Lane) -> u32 {
    let (groups, local) = (l.n / l.local, l.local);
    let group = turned(l.me / local, groups - l.root / local, groups);
    group * width(l) + turned(l.me % local, local - l.root % local, local)
}

/// The rank of a number, if it stands for one.
fn rank_of(l: &Lane, number: u32) -> Option<Rank> {
    let (group, place) = (number / width(l), number % width(l));
    let group = turned(group, l.root / l.local, l.n / l.local);
    (place < l.local).then(|| group * l.local + turned(place, l.root % l.local, l.local))
}

fn node(l: &Lane) -> Node {
    let (v, all) = (number(l), l.n / l.local * width(l));
    let dims = if v == 0 { (all - 1).checked_ilog2().map_or(0, |x| x + 1) } else { v.trailing_zeros() };
    let end = v.saturating_add(1u32.checked_shl(dims).unwrap_or(u32::MAX)).min(all);
    let children = (0..dims)
        .map(|d| v + (1 << d))
        .take_while(|&c| c < all)
        .filter_map(|c| Some((rank_of(l, c)?, c..(c + (c - v)).min(all))))
        .collect();
    Node { v, end, parent: if v > 0 { rank_of(l, v & (v - 1)) } else { None }, children }
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let scratch = u32::from(shape.collective != Collective::Broadcast);
    lanes(shape, rank, scratch, 0, |l, ops| {
        let node = node(l);
        match shape.collective {
            Collective::Broadcast => broadcast(l, &node, ops),
            Collective::Reduce => reduce(l, &node, ops),
            Collective::Gather => gather(l, &node, ops),
            _ => scatter(l, &node, ops),
        }
    })
}

fn broadcast(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    let dst = l.output(0);
    // The largest subtree has the longest way to go: it is served first.
    let mut children = node.children.iter().rev().map(|c| c.0);
    match node.parent {
        None => ops.push(copy(l.input(0), dst)),
        Some(from) => ops.push(match children.next() {
            Some(to) => Op::RecvCopySend { from, to, dst },
            None => Op::Recv { from, dst },
        }),
    }
    ops.extend(children.map(|to| Op::Send { to, src: dst }));
}

fn reduce(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    let acc = if l.is_root() { l.output(0) } else { l.scratch(0) };
    let mut src = l.input(0);
    for (i, &(from, _)) in node.children.iter().enumerate() {
        match node.parent {
            Some(to) if i + 1 == node.children.len() => ops.push(Op::RecvReduceSend { from, to, src, dst: None }),
            _ => ops.push(Op::RecvReduce { from, src, dst: acc }),
        }
        src = acc;
    }
    if let (true, Some(to)) = (node.children.is_empty(), node.parent) {
        ops.push(Op::Send { to, src });
    }
}

/// Blocks go up in the order of the numbers, the own one first.
fn gather(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    match node.parent {
        None => ops.push(copy(l.input(0), l.output(l.me))),
        Some(to) => ops.push(Op::Send { to, src: l.input(0) }),
    }
    for (from, subtree) in &node.children {
        ops.extend(subtree.clone().filter_map(|v| rank_of(l, v)).map(|block| match node.parent {
            None => Op::Recv { from: *from, dst: l.output(block) },
            Some(to) => Op::RecvCopySend { from: *from, to, dst: l.scratch(0) },
        }));
    }
}

/// Blocks go down in the opposite order, the own one last.
fn scatter(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    for (v, block) in (node.v + 1..node.end).rev().filter_map(|v| Some((v, rank_of(l, v)?))) {
        let Some(&(to, _)) = node.children.iter().find(|c| c.1.contains(&v)) else { continue };
        ops.push(match node.parent {
            None => Op::Send { to, src: l.input(block) },
            Some(from) => Op::RecvCopySend { from, to, dst: l.scratch(0) },
        });
    }
    ops.push(match node.parent {
        None => copy(l.input(l.me), l.output(0)),
        Some(from) => Op::Recv { from, dst: l.output(0) },
    });
}
