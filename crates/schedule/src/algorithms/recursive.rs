//! Recursive halving (reduce-scatter), recursive doubling (all-gather) and both in turn (all-reduce).
//!
//! The largest power of two of the ranks ("hosts") take part; each of the others ("guests") gives everything to its
//! host first and gets its share last. Blocks go one by one, because a piece of a large chunk would not contain the
//! piece of the smaller chunk that the next step needs; sends and receives alternate, with a few sends ahead, so that few slots are enough.

use super::{Lane, copy, lanes};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use oxccl_types::Collective;
use std::ops::Range;

/// How `n` ranks fold onto a power of two: ranks `2i` (host) and `2i + 1` (guest) pair up for `i < extra`.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// Number of hosts, a power of two.
    pub(super) size: u32,
    /// Number of guests.
    extra: u32,
}

/// The part a rank plays.
pub(super) enum Role {
    /// Takes part with number `v`, for itself and for `guest`.
    Host { v: u32, guest: Option<Rank> },
    /// Is served by `host`.
    Guest { host: Rank },
}

impl Fold {
    pub(super) fn new(n: Rank) -> Fold {
        let size = 1 << n.ilog2();
        Fold { size, extra: n - size }
    }

    pub(super) fn role(&self, r: Rank) -> Role {
        if r >= 2 * self.extra {
            Role::Host { v: r - self.extra, guest: None }
        } else if r.is_multiple_of(2) {
            Role::Host { v: r / 2, guest: Some(r + 1) }
        } else {
            Role::Guest { host: r - 1 }
        }
    }

    /// The rank of host `v`.
    pub(super) fn host(&self, v: u32) -> Rank {
        v + v.min(self.extra)
    }

    /// The ranks that hosts `v` stand for (`v` may be one past the last host at the end).
    fn ranks(&self, v: Range<u32>) -> Range<Rank> {
        self.host(v.start)..v.end + v.end.min(self.extra)
    }
}

/// The hosts of the group of `size` that contains `v`.
fn group(v: u32, size: u32) -> Range<u32> {
    let start = v & !(size - 1);
    start..start + size
}

/// Sends `out` and receives `into` in turn, `AHEAD` sends ahead so that not every message costs a way and back.
pub(super) fn exchange(ops: &mut Vec<Op>, out: impl Iterator<Item = Op>, into: impl Iterator<Item = Op>) {
    exchange_ahead(AHEAD, ops, out, into);
}

/// The same, `ahead` sends ahead.
pub(super) fn exchange_ahead(
    ahead: usize,
    ops: &mut Vec<Op>,
    out: impl Iterator<Item = Op>,
    into: impl Iterator<Item = Op>,
) {
    let (mut out, mut into) = (out.fuse(), into.fuse());
    ops.extend(out.by_ref().take(ahead - 1));
    loop {
        let (a, b) = (out.next(), into.next());
        if a.is_none() && b.is_none() {
            return;
        }
        ops.extend(a.into_iter().chain(b));
    }
}

/// Messages that an exchange may have under way; as many slots are needed where they go to one partner.
pub(crate) const AHEAD: usize = 4;

/// The program of `rank`.
pub(super) fn program(shape: &Shape, rank: Rank) -> Program {
    // Every rank reserves a slot for each block, its own included.
    let scratch = if shape.collective == Collective::ReduceScatter { shape.ranks } else { 0 };
    lanes(shape, rank, scratch, 0, |l, ops| {
        let fold = Fold::new(l.n);
        match shape.collective {
            Collective::AllReduce => all_reduce(l, &fold, ops),
            Collective::ReduceScatter => reduce_scatter(l, &fold, ops),
            _ => all_gather(l, &fold, ops),
        }
    })
}

/// Halving: `src(b)` is what I have of unit `b` before a step, `first` says whether that is still raw input.
/// Units of hosts `v` are `units(v)`.
fn halve(
    fold: &Fold,
    v: u32,
    mut raw: bool,
    units: impl Fn(Range<u32>) -> Range<u32>,
    chunk: impl Fn(bool, u32) -> Chunk,
    ops: &mut Vec<Op>,
) {
    let mut distance = fold.size / 2;
    while distance > 0 {
        let peer = fold.host(v ^ distance);
        exchange(
            ops,
            units(group(v ^ distance, distance)).map(|u| Op::Send { to: peer, src: chunk(raw, u) }),
            units(group(v, distance)).map(|u| Op::RecvReduce { from: peer, src: chunk(raw, u), dst: chunk(false, u) }),
        );
        raw = false;
        distance /= 2;
    }
}

/// Doubling: exchanges finished units with partners at growing distance.
fn double(
    fold: &Fold,
    v: u32,
    units: impl Fn(Range<u32>) -> Range<u32>,
    chunk: impl Fn(u32) -> Chunk,
    ops: &mut Vec<Op>,
) {
    let mut distance = 1;
    while distance < fold.size {
        let peer = fold.host(v ^ distance);
        exchange(
            ops,
            units(group(v, distance)).map(|u| Op::Send { to: peer, src: chunk(u) }),
            units(group(v ^ distance, distance)).map(|u| Op::Recv { from: peer, dst: chunk(u) }),
        );
        distance *= 2;
    }
}

fn all_reduce(l: &Lane, fold: &Fold, ops: &mut Vec<Op>) {
    let chunk = |raw, u| l.piece(if raw { Buffer::Input } else { Buffer::Output }, 0, u, fold.size);
    let units = 0..fold.size;
    match fold.role(l.me) {
        Role::Guest { host } => {
            ops.extend(units.clone().map(|u| Op::Send { to: host, src: chunk(true, u) }));
            ops.extend(units.map(|u| Op::Recv { from: host, dst: chunk(false, u) }));
        }
        Role::Host { v, guest } => {
            if let Some(from) = guest {
                let add = |u| Op::RecvReduce { from, src: chunk(true, u), dst: chunk(false, u) };
                ops.extend(units.clone().map(add));
            }
            halve(fold, v, guest.is_none(), |r| r, chunk, ops);
            double(fold, v, |r| r, |u| chunk(false, u), ops);
            if let Some(to) = guest {
                ops.extend(units.map(|u| Op::Send { to, src: chunk(false, u) }));
            }
        }
    }
}

fn reduce_scatter(l: &Lane, fold: &Fold, ops: &mut Vec<Op>) {
    let chunk = |raw, block| match (raw, block == l.me) {
        (true, _) => l.input(block),
        (false, true) => l.output(0),
        (false, false) => l.scratch(block),
    };
    match fold.role(l.me) {
        Role::Guest { host } => {
            ops.extend((0..l.n).map(|b| Op::Send { to: host, src: l.input(b) }));
            ops.push(Op::Recv { from: host, dst: l.output(0) });
        }
        Role::Host { v, guest } => {
            if let Some(from) = guest {
                ops.extend((0..l.n).map(|b| Op::RecvReduce { from, src: chunk(true, b), dst: chunk(false, b) }));
            }
            halve(fold, v, guest.is_none(), |r| fold.ranks(r), chunk, ops);
            ops.extend(guest.map(|to| Op::Send { to, src: chunk(false, to) }));
        }
    }
}

fn all_gather(l: &Lane, fold: &Fold, ops: &mut Vec<Op>) {
    match fold.role(l.me) {
        Role::Guest { host } => {
            ops.push(Op::Send { to: host, src: l.input(0) });
            ops.push(copy(l.input(0), l.output(l.me)));
            ops.extend((0..l.n).filter(|&b| b != l.me).map(|b| Op::Recv { from: host, dst: l.output(b) }));
        }
        Role::Host { v, guest } => {
            let begin = ops.len();
            ops.push(copy(l.input(0), l.output(l.me)));
            ops.extend(guest.map(|from| Op::Recv { from, dst: l.output(from) }));
            double(fold, v, |r| fold.ranks(r), |b| l.output(b), ops);
            // The peer waits for the own block, nobody for its copy.
            if let [Op::Copy { .. }, Op::Send { src, .. }] = &mut ops[begin..begin + 2] {
                *src = l.input(0);
                ops.swap(begin, begin + 1);
            }
            if let Some(to) = guest {
                ops.extend((0..l.n).filter(|&b| b != to).map(|b| Op::Send { to, src: l.output(b) }));
            }
        }
    }
}
