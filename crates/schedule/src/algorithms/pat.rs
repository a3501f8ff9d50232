//! PAT: each block travels down its own binomial tree; all trees are walked at once, far end first.
//!
//! The block at distance `s` (its owner is `s` ahead of me) arrives from `2^low(s)` ahead, where it is at distance
//! `s - 2^low(s)`. Distances are walked depth first, so a reduce-scatter keeps one partial sum per level only.

use super::{Lane, copy, lanes};
use crate::ir::{Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;

/// The distances `1..n` depth first, far end first: 4 6 7 5 2 3 1 for 8.
fn order(n: Rank) -> Vec<u32> {
    fn below(s: u32, dims: u32, n: u32, out: &mut Vec<u32>) {
        for d in (0..dims).rev() {
            // Beyond n there is nothing to the right either, but the smaller dimensions may still fit.
            if let Some(t) = s.checked_add(1 << d).filter(|&t| t < n) {
                out.push(t);
                below(t, d, n, out);
            }
        }
    }
    let mut out = Vec::with_capacity(n as usize);
    below(0, (n - 1).checked_ilog2().map_or(0, |x| x + 1), n, &mut out);
    out
}

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    let order = order(shape.ranks);
    let gather = shape.collective == Collective::AllGather;
    let dims = (shape.ranks - 1).checked_ilog2().map_or(0, |x| x + 1);
    let scratch = if gather { 0 } else { dims.saturating_sub(1) };
    lanes(shape, rank, scratch, 0, |l, ops| {
        if gather {
            all_gather(l, &order, ops);
        } else {
            reduce_scatter(l, &order, ops);
        }
    })
}

fn all_gather(l: &Lane, order: &[u32], ops: &mut Vec<Op>) {
    ops.push(copy(l.input(0), l.output(l.me)));
    for &s in order {
        let hop = 1 << s.trailing_zeros();
        let src = if s == hop { l.input(0) } else { l.output(l.ahead(s - hop)) };
        ops.push(Op::Send { to: l.behind(hop), src });
        ops.push(Op::Recv { from: l.ahead(hop), dst: l.output(l.ahead(s)) });
    }
}

/// The all-gather backwards: what was received is sent, with the sums of everything that was forwarded.
fn reduce_scatter(l: &Lane, order: &[u32], ops: &mut Vec<Op>) {
    // Odd distances are leaves: they never receive. Only one distance of a level is under way at a time.
    let sum = |s: u32| -> Chunk { if s == 0 { l.output(0) } else { l.scratch(s.trailing_zeros() - 1) } };
    let mut started = vec![false; l.n as usize];
    let held = |s: u32, started: bool| if started { sum(s) } else { l.input(l.ahead(s)) };
    for &s in order.iter().rev() {
        let hop = 1 << s.trailing_zeros();
        let onto = s - hop;
        ops.push(Op::Send { to: l.ahead(hop), src: held(s, started[s as usize]) });
        ops.push(Op::RecvReduce { from: l.behind(hop), src: held(onto, started[onto as usize]), dst: sum(onto) });
        started[onto as usize] = true;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_orders() {
        assert_eq!(super::order(8), [4, 6, 7, 5, 2, 3, 1]);
        assert_eq!(super::order(2), [1]);
        assert_eq!(super::order(16), [8, 12, 14, 15, 13, 10, 11, 9, 4, 6, 7, 5, 2, 3, 1]);
        assert_eq!(super::order(6), [4, 5, 2, 3, 1]);
    }
}
