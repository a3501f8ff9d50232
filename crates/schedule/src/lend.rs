//! Which messages need no copy: what is sent lies still until the receiver has taken it, so that this may read it where it lies, in
//! mapped memory, at any time before the call ends.
//!
//! And which messages to peers that share memory bring the same bytes: a copy that all of them can map does for all.
//!
//! Told from the programs alone, whichever algorithm made them. It says nothing of whether a peer can map the memory.

use std::collections::HashMap;

use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use crate::memory::same_extent;

/// Programs with more ops than that lend nothing: all of them would be compared with each other.
const MOST_OPS: usize = 2048;

/// A block of user memory: that of Input where one of Output is the same memory.
type Block = (Buffer, u32);

/// What may be done with what an op sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// The source stays as it is until the receiver has taken it, or the call ends: nothing writes there any more, or only what comes
    /// from that same receiver, which sends it after it has taken the message.
    pub stays: bool,
    /// The first op of the channel that sends the same bytes of the piece to a rank with which this one shares memory, of an op that
    /// does so, if there are two or more.
    pub first: Option<usize>,
}

/// That of each op of `program` by channel. `near`: whether a rank shares memory with this one; `program_of`: the program of such a one.
pub fn lends(
    program: &Program,
    shape: &Shape,
    near: impl Fn(Rank) -> bool,
    program_of: impl Fn(Rank) -> Program,
) -> Vec<Vec<Lent>> {
    if program.channels.iter().map(Vec::len).sum::<usize>() > MOST_OPS {
        return program.channels.iter().map(|ops| vec![Lent::default(); ops.len()]).collect();
    }
    let lend = Lend::new(program, shape);
    let mut peers = HashMap::new();
    let mut of_channel = |(channel, ops): (usize, &Vec<Op>)| {
        let first = lend.firsts(channel, &near);
        let stays = (0..ops.len()).map(|at| {
            lend.stays(channel, at, |to, received| {
                near(to) && lend.is_answer(channel, (at, received), peers.entry(to).or_insert_with(|| program_of(to)))
            })
        });
        let stays: Vec<bool> = stays.collect();
        stays.into_iter().zip(first).map(|(stays, first)| Lent { stays, first }).collect()
    };
    program.channels.iter().enumerate().map(&mut of_channel).collect()
}

/// The chunk whose bytes an op sends, if it lies in memory that outlasts the op.
fn source(op: &Op) -> Option<Chunk> {
    match *op {
        Op::Send { src, .. } => Some(src),
        Op::RecvReduceSend { dst, .. } => dst,
        Op::RecvCopySend { dst, .. } => Some(dst),
        _ => None,
    }
}

/// A chunk in a block of user memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spot {
    block: Block,
    chunk: Chunk,
}

impl Spot {
    /// Whether the two may have bytes in common: of parts of different lengths only those of another block do not.
    fn meets(&self, other: &Spot) -> bool {
        self.block == other.block && !(self.chunk.parts == other.chunk.parts && self.chunk.part != other.chunk.part)
    }
}

/// What an op reads to send it, and what it writes.
#[derive(Clone, Copy, Default)]
struct Access {
    to: Option<Rank>,
    from: Option<Rank>,
    sent: Option<Spot>,
    written: Option<Spot>,
}

struct Lend<'a> {
    program: &'a Program,
    shape: &'a Shape,
    /// By channel.
    accesses: Vec<Vec<Access>>,
}

impl<'a> Lend<'a> {
    fn new(program: &'a Program, shape: &'a Shape) -> Lend<'a> {
        let mut lend = Lend { program, shape, accesses: Vec::new() };
        lend.accesses = program.channels.iter().map(|ops| ops.iter().map(|op| lend.access(op)).collect()).collect();
        lend
    }

    fn access(&self, op: &Op) -> Access {
        let (read, written) = op.accesses(self.program.rank);
        // An op of messages writes one chunk at most. A copy of memory to itself writes none.
        let written = written.first().and_then(|place| self.spot(place.chunk));
        let same = |a: Spot, b: Spot| a.block == b.block && same_extent(&a.chunk, &b.chunk);
        let idle = matches!(op, Op::Copy { .. })
            && self.spot(read[0].chunk).zip(written).is_some_and(|(from, to)| same(from, to));
        Access {
            to: op.sends_to(),
            from: op.receives_from(),
            sent: source(op).and_then(|chunk| self.spot(chunk)),
            written: written.filter(|_| !idle),
        }
    }

    /// `None`: scratch, which is used again.
    fn spot(&self, chunk: Chunk) -> Option<Spot> {
        let block = match (chunk.buffer, self.shape.aliased_blocks(self.program.rank)) {
            (Buffer::Scratch, _) => return None,
            (Buffer::Output, Some((input, output))) if chunk.block == output => (Buffer::Input, input),
            (buffer, _) => (buffer, chunk.block),
        };
        Some(Spot { block, chunk })
    }

    /// [`Lent::first`] of each op.
    fn firsts(&self, channel: usize, near: &impl Fn(Rank) -> bool) -> Vec<Option<usize>> {
        let ops = &self.accesses[channel];
        let sent: Vec<_> = ops.iter().map(|op| op.sent.filter(|_| op.to.is_some_and(near))).collect();
        let first = |at: usize| {
            let spot = sent[at]?;
            let before = (0..at).rev().take_while(|k| !ops[k + 1].written.is_some_and(|w| w.meets(&spot)));
            Some(before.filter(|k| sent[*k] == Some(spot)).last().unwrap_or(at))
        };
        let first: Vec<Option<usize>> = (0..ops.len()).map(first).collect();
        let mut count = vec![0; ops.len()];
        first.iter().flatten().for_each(|which| count[*which] += 1);
        first.into_iter().map(|first| first.filter(|which| count[*which] > 1)).collect()
    }

    /// [`Lent::stays`] of op `at`. `answers`: what an op receives from a rank that rank sends when it has taken what op `at` sends.
    fn stays(&self, channel: usize, at: usize, mut answers: impl FnMut(Rank, usize) -> bool) -> bool {
        let Access { to: Some(to), sent: Some(sent), .. } = self.accesses[channel][at] else { return false };
        for (c, ops) in self.accesses.iter().enumerate() {
            for (later, op) in ops.iter().enumerate() {
                let Some(written) = op.written.filter(|written| written.meets(&sent)) else { continue };
                // Channels run side by side, and pieces of parts of different lengths do not lie at the same distances.
                if c != channel || !same_extent(&written.chunk, &sent.chunk) {
                    return false;
                }
                if later <= at {
                    continue;
                }
                if op.from != Some(to) || !answers(to, later) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether `program`, that of the receiver, takes what the op `sent` sends before it sends what the op `received` receives.
    fn is_answer(&self, channel: usize, (sent, received): (usize, usize), program: &Program) -> bool {
        let (me, them) = (self.program.rank, program.rank);
        let ops = &self.accesses[channel];
        let sent = ops[..sent].iter().filter(|op| op.to == Some(them)).count();
        let received = ops[..received].iter().filter(|op| op.from == Some(them)).count();
        let Some(theirs) = program.channels.get(channel) else { return false };
        let place = |nth: usize, is: fn(&Op) -> Option<Rank>| {
            theirs.iter().enumerate().filter(|(_, op)| is(op) == Some(me)).nth(nth).map(|(place, _)| place)
        };
        match (place(sent, Op::receives_from), place(received, Op::sends_to)) {
            (Some(taken), Some(answer)) => taken < answer,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::find;
    use oxccl_types::Collective;

    fn shape(collective: Collective, ranks: Rank, local: Rank, in_place: bool) -> Shape {
        Shape { collective, ranks, root: 0, channels: 1, in_place, local }
    }

    /// Of each message of rank 1 to one of its neighbours whether it is lent.
    fn to_neighbours(name: &str, shape: &Shape) -> Vec<bool> {
        let program = |rank| find(name).expect("known").program(shape, rank);
        let own = program(1);
        let neighbour = |rank: Rank| rank / shape.local == 1 / shape.local;
        let lent = lends(&own, shape, neighbour, program);
        let sends = own.channels[0].iter().zip(&lent[0]);
        sends.filter(|(op, _)| op.sends_to().is_some_and(neighbour)).map(|(_, lent)| lent.stays).collect()
    }

    #[test]
    fn hierarchical_lends_all_that_stays_within_a_host() {
        // And those that are combined into what carries them.
        for (collective, expected, combined) in [
            (Collective::AllReduce, 6, 0),
            (Collective::AllGather, 6, 0),
            (Collective::ReduceScatter, 6, 0),
            (Collective::Reduce, 3, 1),
            (Collective::Broadcast, 2, 0),
        ] {
            for in_place in [false, true] {
                let lent = to_neighbours("hierarchical", &shape(collective, 8, 4, in_place));
                let all = [vec![true; expected], vec![false; combined]].concat();
                assert_eq!(lent, all, "{collective}, in place {in_place}");
            }
        }
    }

    #[test]
    fn partners_that_write_where_they_send_from_copy() {
        let lent = to_neighbours("doubling", &shape(Collective::AllReduce, 4, 4, true));
        assert!(lent.len() == 2 && lent.iter().all(|lent| !lent), "{lent:?}");
        // Out of place the input is lent; the sum of the first round is not.
        let lent = to_neighbours("doubling", &shape(Collective::AllReduce, 4, 4, false));
        assert_eq!(lent, [true, false]);
    }

    #[test]
    fn every_write_counts_that_may_come_too_early() {
        let shape = shape(Collective::AllReduce, 3, 1, false);
        let chunk = |buffer, part, parts| Chunk { buffer, block: 0, part, parts };
        let out = |part, parts| chunk(Buffer::Output, part, parts);
        let send = |src| Op::Send { to: 1, src };
        let recv = |from, dst| Op::Recv { from, dst };
        let program = |rank, channels| Program { rank, channels, scratch_slots: 1, epochs: 0 };
        // Rank 1 takes what it gets before it sends anything.
        let other = || program(1, vec![vec![recv(0, out(0, 2)), Op::Send { to: 0, src: out(0, 2) }]]);
        let lent = |channels: &[&[Op]]| {
            let own = program(0, channels.iter().map(|ops| ops.to_vec()).collect());
            lends(&own, &shape, |_| true, |_| other())[0][0].stays
        };
        assert!(lent(&[&[send(out(0, 2))]]));
        assert!(lent(&[&[send(out(0, 2)), recv(1, out(0, 2))]]), "the answer");
        assert!(lent(&[&[send(out(0, 2)), recv(2, out(1, 2))]]), "another part");
        assert!(!lent(&[&[send(out(0, 2)), recv(2, out(0, 2))]]), "somebody else's");
        assert!(!lent(&[&[send(out(0, 2)), recv(1, out(0, 1))]]), "parts of another length");
        assert!(!lent(&[&[send(out(0, 2))], &[recv(1, out(0, 2))]]), "another channel");
        assert!(!lent(&[&[send(chunk(Buffer::Scratch, 0, 1))]]), "scratch");
        let copy = |src, dst| Op::Copy { src, dst };
        assert!(!lent(&[&[send(out(0, 2)), copy(out(1, 2), out(0, 2))]]), "a copy within the block");
        assert!(lent(&[&[send(out(0, 2)), copy(out(0, 2), out(0, 2))]]), "a copy to where it lies");
    }

    #[test]
    fn messages_of_the_same_bytes_are_told() {
        let shape = shape(Collective::AllReduce, 4, 1, false);
        let out = |part| Chunk { buffer: Buffer::Output, block: 0, part, parts: 2 };
        let send = |to, part| Op::Send { to, src: out(part) };
        let take = |from, part| Op::Recv { from, dst: out(part) };
        let firsts = |ops: &[Op]| -> Vec<Option<usize>> {
            let program =
                |rank, ops: &[Op]| Program { rank, channels: vec![ops.to_vec()], scratch_slots: 0, epochs: 0 };
            // Rank 3 is on another host.
            let lent = lends(&program(0, ops), &shape, |rank| rank != 3, |rank| program(rank, &[]));
            lent[0].iter().map(|lent| lent.first).collect()
        };
        assert_eq!(firsts(&[send(1, 0), send(1, 1), send(2, 0), send(3, 0)]), [Some(0), None, Some(0), None]);
        assert_eq!(firsts(&[send(1, 0), take(1, 1), send(2, 0)]), [Some(0), None, Some(0)]);
        // What comes in between is sent the second time.
        assert_eq!(firsts(&[send(1, 0), take(1, 0), send(2, 0)]), [None; 3]);
        let pass = |to| Op::RecvCopySend { from: 3, to, dst: out(0) };
        assert_eq!(firsts(&[pass(1), send(2, 0), pass(2)]), [Some(0), Some(0), None]);
    }

    #[test]
    fn who_is_not_known_to_answer_late_gets_a_copy() {
        let shape = shape(Collective::AllReduce, 8, 4, true);
        let own = find("hierarchical").expect("known").program(&shape, 1);
        let lent = lends(&own, &shape, |_| false, |_| unreachable!());
        let first = own.channels[0].iter().position(|op| op.sends_to().is_some()).expect("it sends");
        assert!(!lent[0][first].stays);
    }
}
