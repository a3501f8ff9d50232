//! Binomial tree below the root: relative rank `v` hangs below `v - 2^low(v)` and stands for `v .. v + 2^low(v)`.
//!
//! Gather and scatter stream block by block through inner ranks, so one slot of scratch is enough.

use super::{Lane, copy, lanes};
use crate::ir::{Op, Program, Rank, Shape};
use oxccl_types::Collective;
use std::ops::Range;

/// Place of a rank in the tree, in relative numbers.
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

fn node(l: &Lane) -> Node {
    let v = l.relative();
    let dims = if v == 0 { (l.n - 1).checked_ilog2().map_or(0, |x| x + 1) } else { v.trailing_zeros() };
    let end = v.saturating_add(1u32.checked_shl(dims).unwrap_or(u32::MAX)).min(l.n);
    let children = (0..dims)
        .map(|d| v + (1 << d))
        .take_while(|&c| c < l.n)
        .map(|c| (l.absolute(c), c..(c + (c - v)).min(l.n)))
        .collect();
    Node { v, end, parent: (v > 0).then(|| l.absolute(v & (v - 1))), children }
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

/// Blocks go up in ascending relative order, the own one first.
fn gather(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    match node.parent {
        None => ops.push(copy(l.input(0), l.output(l.me))),
        Some(to) => ops.push(Op::Send { to, src: l.input(0) }),
    }
    for (from, subtree) in &node.children {
        ops.extend(subtree.clone().map(|block| match node.parent {
            None => Op::Recv { from: *from, dst: l.output(l.absolute(block)) },
            Some(to) => Op::RecvCopySend { from: *from, to, dst: l.scratch(0) },
        }));
    }
}

/// Blocks go down in descending relative order, the own one last.
fn scatter(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    for block in (node.v + 1..node.end).rev() {
        let Some(&(to, _)) = node.children.iter().find(|c| c.1.contains(&block)) else { continue };
        ops.push(match node.parent {
            None => Op::Send { to, src: l.input(l.absolute(block)) },
            Some(from) => Op::RecvCopySend { from, to, dst: l.scratch(0) },
        });
    }
    ops.push(match node.parent {
        None => copy(l.input(l.me), l.output(0)),
        Some(from) => Op::Recv { from, dst: l.output(0) },
    });
}
