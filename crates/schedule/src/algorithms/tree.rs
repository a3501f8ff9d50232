//! Double binary tree: even channels use the first tree, odd channels its complement, in which leaves and inner
//! ranks change places, so that every rank carries about the same load.
//!
//! All-reduce goes up and down within an iteration: pieces of one channel do not overlap, those of different
//! channels do. Broadcast and reduce go one way and pipeline over the pieces.

use super::{Lane, copy, lanes};
use crate::ir::{Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// Neighbours of a rank in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Node {
    /// Who is nearer to the root; the root has none.
    pub(crate) parent: Option<Rank>,
    /// Who is below.
    pub(crate) children: [Option<Rank>; 2],
}

/// The binary tree over `n` ranks in which odd ranks are leaves and 0 is the root with one child.
pub(crate) fn binary(n: Rank, r: Rank) -> Node {
    if r == 0 {
        let child = (n > 1).then(|| n.next_power_of_two() / 2);
        return Node { parent: None, children: [None, child] };
    }
    let bit = 1 << r.trailing_zeros();
    // The bit above may lie beyond a u32 only for n above 2^31.
    let above = u64::from(r ^ bit) | (2 * u64::from(bit));
    let parent = if above < u64::from(n) { above as u32 } else { r ^ bit };
    let mut low = bit / 2;
    let first = (low > 0).then(|| r - low);
    let mut second = None;
    while low > 0 && second.is_none() {
        second = (low < n - r).then(|| r + low);
        low /= 2;
    }
    Node { parent: Some(parent), children: [first, second] }
}

/// Tree 0 or 1 of the pair: the second is the mirror (even `n`) or the shift by one (odd `n`) of the first.
pub(crate) fn double(n: Rank, r: Rank, tree: u32) -> Node {
    let (at, back): (Rank, Box<dyn Fn(Rank) -> Rank>) = match (tree, n % 2) {
        (0, _) => (r, Box::new(|x| x)),
        (_, 0) => (n - 1 - r, Box::new(|x| n - 1 - x)),
        _ => ((r + n - 1) % n, Box::new(|x| (x + 1) % n)),
    };
    let node = binary(n, at);
    Node { parent: node.parent.map(&back), children: node.children.map(|c| c.map(&back)) }
}

/// The root of tree 0 or 1.
fn root_of(n: Rank, tree: u32) -> Rank {
    match (tree, n % 2) {
        (0, _) => 0,
        (_, 0) => n - 1,
        _ => 1 % n,
    }
}

/// The neighbours of this rank in this channel's tree, renumbered so that the shape's root is the tree's.
fn neighbours(l: &Lane, rooted: bool) -> Node {
    let tree = l.channel % 2;
    if !rooted {
        return double(l.n, l.me, tree);
    }
    let top = u64::from(root_of(l.n, tree));
    let (n, root) = (u64::from(l.n), u64::from(l.root));
    let inner = ((u64::from(l.me) + n - root + top) % n) as u32;
    let outer = |x: Rank| ((u64::from(x) + n - top + root) % n) as u32;
    let node = double(l.n, inner, tree);
    Node { parent: node.parent.map(outer), children: node.children.map(|c| c.map(outer)) }
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    // A rank that has no Output keeps the sum of its first child in scratch.
    let scratch = u32::from(shape.collective == Collective::Reduce);
    lanes(shape, rank, scratch, 0, |l, ops| {
        let node = neighbours(l, shape.collective.rooted());
        match shape.collective {
            Collective::AllReduce => {
                up(l, &node, l.output(0), ops);
                down(l, &node, ops);
            }
            Collective::Reduce => up(l, &node, if l.is_root() { l.output(0) } else { l.scratch(0) }, ops),
            _ => {
                if node.parent.is_none() {
                    ops.push(copy(l.input(0), l.output(0)));
                }
                down(l, &node, ops);
            }
        }
    })
}

/// Adds the children's sums to the own contribution (in `acc`) and sends it up; the root keeps it in `acc`.
fn up(l: &Lane, node: &Node, acc: Chunk, ops: &mut Vec<Op>) {
    let mut children = node.children.iter().flatten().peekable();
    let mut src = l.input(0);
    if let (None, Some(to)) = (children.peek(), node.parent) {
        ops.push(Op::Send { to, src });
    }
    while let Some(&from) = children.next() {
        match node.parent {
            Some(to) if children.peek().is_none() => ops.push(Op::RecvReduceSend { from, to, src, dst: None }),
            _ => ops.push(Op::RecvReduce { from, src, dst: acc }),
        }
        src = acc;
    }
}

/// Hands the result, which the root has in Output, to the children.
fn down(l: &Lane, node: &Node, ops: &mut Vec<Op>) {
    let dst = l.output(0);
    let mut children = node.children.iter().flatten().copied();
    if let Some(from) = node.parent {
        ops.push(match children.next() {
            Some(to) => Op::RecvCopySend { from, to, dst },
            None => Op::Recv { from, dst },
        });
    }
    ops.extend(children.map(|to| Op::Send { to, src: dst }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: Rank, r: Rank) -> (Option<Rank>, Option<Rank>, Option<Rank>) {
        let Node { parent, children: [a, b] } = binary(n, r);
        (parent, a, b)
    }

    #[test]
    fn known_trees() {
        assert_eq!(node(5, 0), (None, None, Some(4)));
        assert_eq!(node(5, 1), (Some(2), None, None));
        assert_eq!(node(5, 2), (Some(4), Some(1), Some(3)));
        assert_eq!(node(5, 4), (Some(0), Some(2), None));
        assert_eq!(node(8, 4), (Some(0), Some(2), Some(6)));
        assert_eq!(node(14, 12), (Some(8), Some(10), Some(13)));
        assert_eq!(node(14, 10), (Some(12), Some(9), Some(11)));
        assert_eq!(node(14, 13), (Some(12), None, None));
    }

    #[test]
    fn parents_and_children_agree_and_leaves_differ_between_the_trees() {
        for n in 1..300 {
            for tree in 0..2 {
                let mut roots = 0;
                for r in 0..n {
                    let node = double(n, r, tree);
                    roots += u32::from(node.parent.is_none());
                    assert_eq!(node.parent.is_none(), r == root_of(n, tree), "n {n} tree {tree} rank {r}");
                    for c in node.children.into_iter().flatten() {
                        assert_eq!(double(n, c, tree).parent, Some(r), "n {n} tree {tree} rank {r} child {c}");
                    }
                    if let Some(p) = node.parent {
                        assert!(double(n, p, tree).children.contains(&Some(r)), "n {n} tree {tree} rank {r}");
                    }
                }
                assert_eq!(roots, 1);
            }
            let inner = |r, t| double(n, r, t).children.iter().flatten().count() == 2;
            assert!((0..n).all(|r| !(inner(r, 0) && inner(r, 1))), "n {n}: a rank is inner in both trees");
        }
    }
}
