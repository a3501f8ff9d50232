//! Message programs: the interpreter of send, receive and their fused forms over connections.
//!
//! Channels progress independently. Each op of an iteration moves one piece, and a connection holds as many whole pieces as the
//! algorithm needs slots, be it in several slots each ([`links`](super::links)), so credits are what the verifier assumed; a
//! piece that arrives in parts is combined and passed on part by part ([`links::part_bytes`] says when it does). A source is free once its
//! piece was accepted, since the connections copy what they cannot send at once, except where the call does not write to it
//! any more: that is lent until the end of the call. Peers that share memory read such a source where it lies, if they can map it, and
//! also one that only their own answer is written to.

use oxccl_kernels as kernels;
use oxccl_kernels::Post;
use oxccl_schedule::ir::{Buffer, Chunk, Op, part_range};
use oxccl_schedule::lend::Lent;
use oxccl_types::{Error, Result};

use super::call::{Call, describe};
use super::collective::Engine;
use super::copies::What;
use super::links::{self, CHANNEL_LANE, Receiver, part_bytes};
use super::plan::{MessagePlan, alignment, longest_part};
use crate::communicator::core::Core;
use crate::device::Step;
use crate::transport::lines::Lines;
use crate::transport::{Header, Ticket};

/// Bytes of a piece from which on its receiver reads it where it lies: who lends it waits at the end of the call until it was taken.
const LENT_FROM: u64 = 16 << 10;
/// Bytes of a block from which on pieces of calls with a root are, of which many ranks wait for nobody otherwise.
const LENT_FROM_ROOTED: u64 = 256 << 10;

/// Progress of one channel.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    piece: u64,
    pc: usize,
    /// Bytes that the receiving half of the op has taken, and whether that is all.
    taken: u64,
    received: bool,
    /// Bytes of the sending half that were accepted, and whether any was offered with success.
    sent: u64,
    offered: bool,
    /// Up to where the connection has to come until the source is free, and which one.
    ticket: Option<(u32, Ticket)>,
}

/// Progress of a message program. Kept for the next one: its lists only grow.
#[derive(Debug, Default)]
pub(super) struct MessageState {
    lanes: Vec<Lane>,
    pieces: u64,
    /// Elements of a piece.
    length: u64,
    scratch: Lines,
    /// Bytes that are passed on at once.
    part: u64,
    /// Whether the input, and what has come into the output, stay as they are until the end of the call.
    stays: (bool, bool),
    /// Which of the lists of [`MessagePlan::lends`] holds.
    lends: Option<usize>,
    /// The newest ticket of each connection that was sent on: rank, channel, ticket.
    sent: Vec<(u32, usize, Ticket)>,
    /// All channels are over; these ranks have not taken all that lies with this one.
    untaken: Vec<u32>,
}

impl MessageState {
    /// An op of a channel is over.
    fn pass(&mut self, channel: usize) {
        let lane = &mut self.lanes[channel];
        if let Some((to, ticket)) = lane.ticket {
            match self.sent.iter_mut().find(|(rank, c, _)| (*rank, *c) == (to, channel)) {
                Some((.., newest)) => *newest = ticket,
                None => self.sent.push((to, channel, ticket)),
            }
        }
        *lane = Lane { piece: lane.piece, pc: lane.pc + 1, ..Lane::default() };
    }
}

/// The first state of a program.
pub(super) fn begin(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: &MessagePlan,
    send: *const u8,
) -> Box<MessageState> {
    let mut state = engine.spare_messages.pop().unwrap_or_default();
    let element = call.dtype.size();
    let align = alignment(element);
    let longest = longest_part(call.count, plan.least_parts, align).max(1);
    state.length = ((plan.piece_bytes / element) as u64).min(longest.next_multiple_of(align));
    state.pieces = longest.div_ceil(state.length);
    let channels = plan.program.channels.len();
    state.lanes.clear();
    state.lanes.resize(channels, Lane::default());
    state.sent.clear();
    state.untaken.clear();
    let slot = (state.length as usize * element).next_multiple_of(64);
    // One temporary slot per channel for results that are only passed on, and the program's own scratch.
    let scratch = channels * (1 + 2 * plan.program.scratch_slots as usize) * slot;
    if state.scratch.len() < scratch {
        // Memory that is new and zero takes no pages before it is used.
        state.scratch = Lines::new(scratch);
    }
    state.part = part_bytes(core) as u64;
    let (ranks, rank) = (core.ranks, core.rank as u32);
    let (input, output) = (call.input_bytes(rank, ranks) as usize, call.output_bytes(rank, ranks) as usize);
    let (from, to) = (send.addr(), call.recv.addr());
    let apart = from + input <= to || to + output <= from;
    // Where nothing is combined, what comes into the output is final, and an input in place is part of that.
    let moves = !call.collective.reduces();
    state.stays = (apart || moves, moves);
    state.lends = if apart { Some(0) } else { call.is_in_place(rank, send).then_some(1) };
    state
}

/// One call that a program carries out.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub core: &'a Core,
    pub call: &'a Call,
    pub plan: &'a MessagePlan,
    /// The input.
    pub send: *const u8,
    pub seq: u64,
}

struct Bound<'a> {
    core: &'a Core,
    call: &'a Call,
    plan: &'a MessagePlan,
    send: *const u8,
    seq: u64,
    channel: usize,
    piece: u64,
    length: u64,
    scratch: *mut u8,
    part: u64,
    stays: (bool, bool),
    /// What may be done with what the current op sends.
    lends: Lent,
    /// The op behind the current one.
    next: Option<&'a Op>,
}

impl Bound<'_> {
    fn range(&self, c: &Chunk) -> std::ops::Range<u64> {
        let part = part_range(self.call.count, c.part, c.parts, alignment(self.call.dtype.size()));
        let start = part.start.saturating_add(self.piece * self.length).min(part.end);
        start..(start + self.length).min(part.end)
    }

    fn bytes(&self, c: &Chunk) -> u64 {
        let r = self.range(c);
        (r.end - r.start) * self.call.dtype.size() as u64
    }

    fn slot(&self, index: usize) -> *mut u8 {
        let slot = (self.length as usize * self.call.dtype.size()).next_multiple_of(64);
        let per_channel = 1 + 2 * self.plan.program.scratch_slots as usize;
        self.scratch.wrapping_add((self.channel * per_channel + index) * slot)
    }

    fn at(&self, c: &Chunk) -> *mut u8 {
        let base = match c.buffer {
            Buffer::Input => self.send.cast_mut(),
            Buffer::Output => self.call.recv,
            Buffer::Scratch => {
                let half = (self.piece % 2) as usize * self.plan.program.scratch_slots as usize;
                return self.slot(1 + half + c.block as usize);
            }
        };
        let element = u64::from(c.block) * self.call.count + self.range(c).start;
        base.wrapping_add(element as usize * self.call.dtype.size())
    }

    /// Whether what is sent of `buffer` may be lent to the connection until the end of the call.
    fn lent(&self, buffer: Buffer) -> bool {
        let by_buffer = match buffer {
            Buffer::Input => self.stays.0,
            Buffer::Output => self.stays.1,
            Buffer::Scratch => false,
        };
        by_buffer || self.lends.stays
    }

    /// Whether a peer that shares memory may read the message of `total` bytes where it lies.
    fn may_lie(&self, total: u64) -> bool {
        let waits = !self.call.collective.rooted() || self.call.block_bytes() >= LENT_FROM_ROOTED;
        self.lends.stays && waits && total >= LENT_FROM
    }

    /// Where `to` reads the `bytes` bytes at `at`, all of which are there: in a copy that others read, too, where it cannot map them.
    fn shared(&self, engine: &mut Engine, to: u32, at: *const u8, bytes: u64) -> *const u8 {
        let Some(first) = self.lends.first.filter(|_| self.may_lie(bytes)) else { return at };
        if self.core.same_process(to as usize)
            || !links::is_local(self.core, to)
            || engine.links.exports(at, bytes as usize)
        {
            return at;
        }
        let what = What { seq: self.seq, channel: self.channel, first, piece: self.piece };
        // SAFETY: a chunk of the caller's buffers, which stays as it is; that op and piece send it is what makes them `first`.
        unsafe { engine.copies.of(&mut engine.stage, what, at, bytes as usize) }.unwrap_or(at)
    }

    fn header(&self, total: u64, offset: u64) -> Header {
        let copied = !self.may_lie(total);
        Header { signature: self.call.signature, sequence: self.seq, total, offset, copied, ..Header::default() }
    }
}

/// Tries the next op of a channel: whether it is over, `None` at the end of the program.
fn try_next(run: Run<'_>, engine: &mut Engine, state: &mut MessageState, channel: usize) -> Result<Option<bool>> {
    let Run { core, call, plan, send, seq } = run;
    let lane = &mut state.lanes[channel];
    let ops = &plan.program.channels[channel];
    let Some(op) = ops.get(lane.pc) else { return Ok(None) };
    let bound = Bound {
        core,
        call,
        plan,
        send,
        seq,
        channel,
        piece: lane.piece,
        length: state.length,
        scratch: state.scratch.as_mut_ptr(),
        part: state.part,
        stays: state.stays,
        lends: state.lends.and_then(|which| Some(*plan.lends[which].get(channel)?.get(lane.pc)?)).unwrap_or_default(),
        next: ops.get(lane.pc + 1),
    };
    let over = bound.run(engine, op, lane)?;
    if over {
        state.pass(channel);
    }
    Ok(Some(over))
}

/// Whether what a program [sends first](super::ahead::Early) has all been accepted, with what it takes before. Never of one that moves
/// in pieces.
pub(super) fn has_begun(plan: &MessagePlan, state: &MessageState) -> bool {
    state.pieces == 1 && state.lanes.len() == 1 && (state.lanes[0].piece == 1 || state.lanes[0].pc >= plan.early.ops())
}

/// Whether what the next call, `call`, takes before it [sends](super::ahead::Early) has begun to come from each rank. It is then also what
/// comes next from there: calls before this one have had theirs. Nothing that may lie with its sender is taken so, which only a call that
/// has the turn may read; and what is long leaves the caches until it is sent on.
pub(super) fn may_take_early(core: &Core, engine: &mut Engine, call: &Call, plan: &MessagePlan) -> Result<bool> {
    if call.block_bytes() >= LENT_FROM {
        return Ok(false);
    }
    let Some(ops) = plan.program.channels.first() else { return Ok(false) };
    let (seq, mut last) = (engine.next_number(), None);
    for from in ops[..plan.early.takes].iter().filter_map(Op::receives_from) {
        if last.replace(from) == Some(from) {
            continue;
        }
        let header = match engine.links.receiver_at_hand(core, from, CHANNEL_LANE)? {
            Some(end) => end.poll_header()?,
            None => None,
        };
        // Another call is found in turn, when what is under way is over.
        if header.is_none_or(|h| h.sequence != seq || h.signature != call.signature) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tries what a program [sends first](super::ahead::Early), with what it takes before, and nothing else.
pub(super) fn send_early(run: Run<'_>, engine: &mut Engine, state: &mut MessageState) -> Result<()> {
    while !has_begun(run.plan, state) && state.pieces == 1 {
        if try_next(run, engine, state, 0)? != Some(true) {
            break;
        }
    }
    Ok(())
}

/// Whether all that was sent has been written, and what was lent to peers that share memory taken. What calls behind this one
/// have sent is theirs to drive, or of who runs the stream: their peers may read it only when this one is over everywhere.
fn is_out(run: Run<'_>, engine: &mut Engine, state: &mut MessageState) -> Result<bool> {
    if !is_taken(run, engine, state)? {
        return Ok(false);
    }
    if engine.links.flush()? {
        return Ok(true);
    }
    if !engine.links.is_followed(run.seq) {
        return Ok(false);
    }
    for (to, channel, ticket) in &state.sent {
        let end = engine.links.sender(run.core, *to, CHANNEL_LANE + channel)?;
        if !end.map_or(Ok(true), |end| end.poll_done(*ticket))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether peers that share memory have taken all that they were to read where it lies.
fn is_taken(run: Run<'_>, engine: &mut Engine, state: &mut MessageState) -> Result<bool> {
    state.untaken.clear();
    if links::lends(run.core) {
        for (to, channel, ticket) in state.sent.iter().filter(|(to, ..)| links::is_local(run.core, *to)) {
            let end = engine.links.sender(run.core, *to, CHANNEL_LANE + channel)?;
            if !end.map_or(Ok(true), |end| end.poll_done(*ticket))? {
                state.untaken.push(*to);
            }
        }
    }
    Ok(state.untaken.is_empty())
}

/// Runs all channels as far as they go without waiting.
pub(super) fn step(run: Run<'_>, engine: &mut Engine, state: &mut MessageState) -> Result<Step> {
    let mut progress = false;
    let mut done = 0;
    for channel in 0..state.lanes.len() {
        let mut budget = 32;
        loop {
            if state.lanes[channel].piece == state.pieces {
                done += 1;
                break;
            }
            if budget == 0 {
                break;
            }
            let moved = |lane: &Lane| (lane.taken, lane.sent, lane.received);
            let before = moved(&state.lanes[channel]);
            match try_next(run, engine, state, channel)? {
                Some(true) => {
                    progress = true;
                    budget -= 1;
                }
                Some(false) => {
                    // A part of it: the peer is alive, and more is on its way.
                    progress |= moved(&state.lanes[channel]) != before;
                    break;
                }
                None => state.lanes[channel] = Lane { piece: state.lanes[channel].piece + 1, ..Lane::default() },
            }
        }
    }
    if done == state.lanes.len() && is_out(run, engine, state)? {
        return Ok(Step::Done);
    }
    if progress {
        return Ok(Step::Progress);
    }
    // The peer may need what was accepted before it sends what this rank waits for.
    engine.links.flush()?;
    Ok(Step::Blocked)
}

/// Whether a channel of a blocked program waits for `rank`, or, where all are over, the program for it to take what lies here.
pub(super) fn awaits(plan: &MessagePlan, state: &MessageState, rank: usize) -> bool {
    if state.untaken.iter().any(|to| *to as usize == rank) {
        return true;
    }
    state.lanes.iter().zip(&plan.program.channels).filter(|(l, _)| l.piece < state.pieces).any(|(lane, ops)| match ops
        .get(lane.pc)
    {
        Some(Op::Send { to, .. }) => *to as usize == rank,
        Some(Op::Recv { from, .. } | Op::RecvReduce { from, .. }) => *from as usize == rank,
        Some(Op::RecvReduceSend { from, to, .. } | Op::RecvCopySend { from, to, .. }) => {
            (if lane.received { *to } else { *from }) as usize == rank
        }
        _ => false,
    })
}

impl Bound<'_> {
    /// Tries one op; `false` when it must be tried again.
    fn run(&self, engine: &mut Engine, op: &Op, lane: &mut Lane) -> Result<bool> {
        match op {
            Op::Send { to, src } => {
                let bytes = self.bytes(src);
                self.send(engine, lane, *to, self.at(src), bytes..bytes, self.lent(src.buffer))
            }
            Op::Recv { from, dst } => self.recv(engine, lane, *from, dst),
            Op::RecvReduce { from, src, dst } => self.recv_reduce(engine, lane, *from, src, self.at(dst)),
            Op::RecvReduceSend { from, to, src, dst } => {
                let at = dst.as_ref().map_or_else(|| self.slot(0), |d| self.at(d));
                if !lane.received {
                    lane.received = self.recv_reduce(engine, lane, *from, src, at)?;
                }
                let lent = dst.as_ref().is_some_and(|dst| self.lent(dst.buffer));
                self.pass_on(engine, lane, *to, at, self.bytes(src), lent)
            }
            Op::RecvCopySend { from, to, dst } => {
                if !lane.received {
                    lane.received = self.recv(engine, lane, *from, dst)?;
                }
                self.pass_on(engine, lane, *to, self.at(dst), self.bytes(dst), self.lent(dst.buffer))
            }
            Op::Copy { src, dst } => {
                let (src_at, dst_at) = (self.at(src), self.at(dst));
                if src_at != dst_at {
                    // SAFETY: chunks of the caller's buffers or of our scratch, of equal length.
                    unsafe { kernels::copy(&[dst_at], src_at, self.bytes(dst) as usize) };
                }
                Ok(true)
            }
            Op::Reduce { a, b, dst } => {
                self.reduce(self.at(a), self.at(b), self.at(dst), self.bytes(dst));
                Ok(true)
            }
            other => {
                Err(Error::internal(format!("{} has a direct op {other:?} in a message program", self.plan.algorithm)))
            }
        }
    }

    /// The sending half of a fused op: passes on what has come.
    fn pass_on(
        &self,
        engine: &mut Engine,
        lane: &mut Lane,
        to: u32,
        at: *const u8,
        bytes: u64,
        lent: bool,
    ) -> Result<bool> {
        // In whole parts: the connection has room for so many of each piece.
        let there = if lane.received { bytes } else { lane.taken - lane.taken % self.part };
        if !lane.received && there == lane.sent {
            return Ok(false);
        }
        Ok(self.send(engine, lane, to, at, there..bytes, lent)? && lane.received)
    }

    fn reduce(&self, a: *const u8, b: *const u8, dst: *mut u8, bytes: u64) {
        let count = bytes as usize / self.call.dtype.size();
        // SAFETY: three ranges of `count` elements: arrivals, chunks of the caller's buffers, or our scratch; `dst` may
        // be one of the sources.
        unsafe { kernels::reduce(self.call.dtype, self.call.op, &[dst], &[a, b], count, Post::None) };
    }

    /// Sends the first `there.start` of `there.end` bytes at `at`; whether all of those were accepted.
    fn send(
        &self,
        engine: &mut Engine,
        lane: &mut Lane,
        to: u32,
        at: *const u8,
        there: std::ops::Range<u64>,
        lent: bool,
    ) -> Result<bool> {
        if there.end == 0 && self.piece > 0 {
            return Ok(true);
        }
        // What has begun to go another way goes on so.
        let at = if there.start == there.end && lane.sent == 0 { self.shared(engine, to, at, there.end) } else { at };
        let Some(end) = engine.links.sender(self.core, to, CHANNEL_LANE + self.channel)? else { return Ok(false) };
        end.follows(matches!(self.next, Some(Op::Send { to: next, .. }) if *next == to));
        while !lane.offered || lane.sent < there.start {
            let header = self.header(there.end, lane.sent);
            let rest = there.start - lane.sent;
            let offered = if lent { rest } else { rest.min(self.part) };
            // SAFETY: the bytes are the caller's, our scratch or a copy, and stay as they are until they were taken or the call is over
            // (`lent`), or are copied at once where they are not sent.
            let accepted = unsafe { end.poll_send(&header, at.wrapping_add(lane.sent as usize), offered as usize)? };
            let Some((n, ticket)) = accepted else { return Ok(false) };
            lane.ticket = Some((to, ticket));
            if !lent {
                end.keep();
            }
            lane.offered = true;
            lane.sent += n as u64;
            self.core.ring(to as usize);
        }
        Ok(true)
    }

    /// The receiving end from `from` if there is more of the piece, checked against this call.
    fn next<'e>(&self, engine: &'e mut Engine, from: u32, taken: u64, bytes: u64) -> Result<Option<&'e mut Receiver>> {
        let Some(end) = engine.links.receiver(self.core, from, CHANNEL_LANE + self.channel)? else { return Ok(None) };
        let Some(h) = end.poll_header()? else { return Ok(None) };
        if h.sequence != self.seq && !self.core.whole {
            self.core.found_strange(self.seq, from, &h);
            return Ok(None);
        }
        if h.signature != self.call.signature || h.sequence != self.seq {
            let error = mismatch(self.core, self.call, from, &h);
            end.refuse(&error.text);
            return Err(error);
        }
        if h.total != bytes || h.offset != taken {
            return Err(Error::internal(format!(
                "{}: piece {} from rank {from} has {} bytes and goes on at {} where {taken} of {bytes} have come; \
                 OXCCL_SLOT_BYTES must be the same on all ranks",
                self.plan.algorithm, self.piece, h.total, h.offset
            )));
        }
        Ok(Some(end))
    }

    fn recv(&self, engine: &mut Engine, lane: &mut Lane, from: u32, dst: &Chunk) -> Result<bool> {
        let bytes = self.bytes(dst);
        if bytes == 0 && self.piece > 0 {
            return Ok(true);
        }
        let at = self.at(dst);
        loop {
            let Some(end) = self.next(engine, from, lane.taken, bytes)? else { return Ok(false) };
            // SAFETY: the rest of the chunk, which is writable and nobody else's.
            let got =
                unsafe { end.poll_recv_into(at.wrapping_add(lane.taken as usize), (bytes - lane.taken) as usize)? };
            let Some(got) = got else { return Ok(false) };
            lane.taken += got.len;
            self.core.ring(from as usize);
            if lane.taken == bytes {
                return Ok(true);
            }
        }
    }

    fn recv_reduce(&self, engine: &mut Engine, lane: &mut Lane, from: u32, src: &Chunk, dst: *mut u8) -> Result<bool> {
        let bytes = self.bytes(src);
        if bytes == 0 && self.piece > 0 {
            return Ok(true);
        }
        loop {
            let Some(end) = self.next(engine, from, lane.taken, bytes)? else { return Ok(false) };
            let Some(arrival) = end.poll_recv()? else { return Ok(false) };
            let done = lane.taken as usize;
            // Arrivals are cut at multiples of 64 bytes, so at whole elements.
            let (came, had) = (arrival.data, self.at(src).cast_const().wrapping_add(done));
            let (a, b) = if self.plan.by_rank && from as usize > self.core.rank { (had, came) } else { (came, had) };
            self.reduce(a, b, dst.wrapping_add(done), arrival.header.len);
            lane.taken += arrival.header.len;
            end.release();
            self.core.ring(from as usize);
            if lane.taken == bytes {
                return Ok(true);
            }
        }
    }
}

#[cold]
fn mismatch(core: &Core, call: &Call, from: u32, h: &Header) -> Error {
    let error = Error::usage(format!(
        "ranks called different operations: rank {} called {}, rank {from} called {} (its collective number {} of \
         communicator {:#x}); all ranks must make the same calls with the same count, type, operator and root in the \
         same order",
        core.rank,
        call.describe(),
        describe(h.signature),
        h.sequence,
        core.hash
    ));
    core.spread(&error);
    error
}
