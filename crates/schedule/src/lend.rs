//! Which messages need no copy: what is sent lies still until the receiver has taken it, so that this may read it where it lies, in
//! mapped memory, at any time before the call ends.
//!
//! And which messages to peers that share memory bring the same bytes: a copy that all of them can map does for all.
//!
//! Told from the programs alone, whichever algorithm made them. It says nothing of whether a peer can map the memory.

use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};

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

/// That of each op of `program` by channel. `peer` gives the program of a rank with which this one shares memory, and nothing of any
/// other.
pub fn lends(program: &Program, shape: &Shape, peer: impl Fn(Rank) -> Option<Program>) -> Vec<Vec<Lent>> {
    if program.channels.iter().map(Vec::len).sum::<usize>() > MOST_OPS {
        return program.channels.iter().map(|ops| vec![Lent::default(); ops.len()]).collect();
    }
    let lend = Lend { program, shape };
    let of_channel = |(channel, ops): (usize, &Vec<Op>)| {
        let first = lend.firsts(ops, &peer);
        let of = |(at, first)| Lent { stays: lend.stays(channel, at, &peer), first };
        first.into_iter().enumerate().map(of).collect()
    };
    program.channels.iter().enumerate().map(of_channel).collect()
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

struct Lend<'a> {
    program: &'a Program,
    shape: &'a Shape,
}

impl Lend<'_> {
    /// `None`: scratch, which is used again.
    fn block(&self, chunk: Chunk) -> Option<Block> {
        match (chunk.buffer, self.shape.aliased_blocks(self.program.rank)) {
            (Buffer::Scratch, _) => None,
            (Buffer::Output, Some((input, output))) if chunk.block == output => Some((Buffer::Input, input)),
            (buffer, _) => Some((buffer, chunk.block)),
        }
    }

    /// [`Lent::first`] of each op.
    fn firsts(&self, ops: &[Op], peer: &impl Fn(Rank) -> Option<Program>) -> Vec<Option<usize>> {
        let near = |op: &Op| op.sends_to().is_some_and(|to| peer(to).is_some());
        let sent: Vec<_> = ops.iter().map(|op| source(op).filter(|_| near(op))).collect();
        let mut first: Vec<Option<usize>> = vec![None; ops.len()];
        for (at, chunk) in sent.iter().enumerate() {
            let Some((chunk, block)) = chunk.and_then(|chunk| Some((chunk, self.block(chunk)?))) else { continue };
            let before = (0..at).rev().take_while(|k| !self.writes(&ops[k + 1], block, chunk));
            let before = before.filter(|k| sent[*k] == Some(chunk)).last();
            first[at] = Some(before.unwrap_or(at));
        }
        let of = |which: usize| first.iter().filter(|f| **f == Some(which)).count();
        first.iter().map(|f| f.filter(|which| of(*which) > 1)).collect()
    }

    fn stays(&self, channel: usize, at: usize, peer: &impl Fn(Rank) -> Option<Program>) -> bool {
        let op = &self.program.channels[channel][at];
        let Some((to, chunk)) = op.sends_to().zip(source(op)) else { return false };
        let Some(block) = self.block(chunk) else { return false };
        let mut its_program = None;
        for (c, ops) in self.program.channels.iter().enumerate() {
            for (later, writer) in ops.iter().enumerate() {
                if !self.writes(writer, block, chunk) {
                    continue;
                }
                let same_part = |w: Chunk| (w.part, w.parts) == (chunk.part, chunk.parts);
                let (_, written) = writer.accesses(self.program.rank);
                // Channels run side by side, and pieces of parts of different lengths do not lie at the same distances.
                if c != channel || !written.iter().all(|w| same_part(w.chunk)) {
                    return false;
                }
                if later <= at {
                    continue;
                }
                if writer.receives_from() != Some(to) {
                    return false;
                }
                let Some(program) = its_program.get_or_insert_with(|| peer(to)) else { return false };
                if !self.is_answer(channel, (at, later), program) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether `op` writes into `block` what may overlap `chunk` there.
    fn writes(&self, op: &Op, block: Block, chunk: Chunk) -> bool {
        let (read, written) = op.accesses(self.program.rank);
        // A copy of memory to itself is none.
        let idle = matches!(op, Op::Copy { .. }) && self.block(read[0].chunk) == self.block(written[0].chunk);
        let apart = |w: Chunk| w.parts == chunk.parts && w.part != chunk.part;
        !idle && written.iter().any(|w| self.block(w.chunk) == Some(block) && !apart(w.chunk))
    }

    /// Whether `program`, that of the receiver, takes what the op `sent` sends before it sends what the op `received` receives.
    fn is_answer(&self, channel: usize, (sent, received): (usize, usize), program: &Program) -> bool {
        let (me, them) = (self.program.rank, program.rank);
        let ops = &self.program.channels[channel];
        let before =
            |end: usize, is: fn(&Op) -> Option<Rank>| ops[..end].iter().filter(|o| is(o) == Some(them)).count();
        let (sent, received) = (before(sent, Op::sends_to), before(received, Op::receives_from));
        let Some(theirs) = program.channels.get(channel) else { return false };
        let place = |nth: usize, is: fn(&Op) -> Option<Rank>| {
            theirs.iter().enumerate().filter(|(_, o)| is(o) == Some(me)).nth(nth).map(|(place, _)| place)
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
        let lent = lends(&own, shape, |rank| neighbour(rank).then(|| program(rank)));
        let sends = own.channels[0].iter().zip(&lent[0]);
        sends.filter(|(op, _)| op.sends_to().is_some_and(neighbour)).map(|(_, lent)| lent.stays).collect()
    }

    #[test]
    fn hierarchical_lends_all_that_stays_within_a_host() {
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter] {
            for in_place in [false, true] {
                let lent = to_neighbours("hierarchical", &shape(collective, 8, 4, in_place));
                assert!(lent.len() >= 6, "{collective} {lent:?}");
                assert!(lent.iter().all(|lent| *lent), "{collective}, in place {in_place}: {lent:?}");
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
            lends(&own, &shape, |_| Some(other()))[0][0].stays
        };
        assert!(lent(&[&[send(out(0, 2))]]));
        assert!(lent(&[&[send(out(0, 2)), recv(1, out(0, 2))]]), "the answer");
        assert!(lent(&[&[send(out(0, 2)), recv(2, out(1, 2))]]), "another part");
        assert!(!lent(&[&[send(out(0, 2)), recv(2, out(0, 2))]]), "somebody else's");
        assert!(!lent(&[&[send(out(0, 2)), recv(1, out(0, 1))]]), "parts of another length");
        assert!(!lent(&[&[send(out(0, 2))], &[recv(1, out(0, 2))]]), "another channel");
        assert!(!lent(&[&[send(chunk(Buffer::Scratch, 0, 1))]]), "scratch");
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
            let peer = |rank| (rank != 3).then(|| program(rank, &[]));
            lends(&program(0, ops), &shape, peer)[0].iter().map(|lent| lent.first).collect()
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
        let lent = lends(&own, &shape, |_| None);
        let first = own.channels[0].iter().position(|op| op.sends_to().is_some()).expect("it sends");
        assert!(!lent[0][first].stays);
    }
}
