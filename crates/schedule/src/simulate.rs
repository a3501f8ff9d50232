//! Runs a schedule in virtual time.
//!
//! Programs are made when their rank is first visited, so that many ranks can be simulated: the work and the memory
//! are linear in the number of ops. Every rank and channel keeps its own clock; messages, credits and signals carry
//! the time from which they can be used. Since each has one producer and one consumer, the times do not depend on the
//! order in which ranks are visited, and no queue of events is needed.
//!
//! It does not know contention in the network, nor that a rank's channels wait for each other's core except on
//! average (all costs of work are multiplied by their number).

use crate::algorithms::Algorithm;
use crate::cost::{CostModel, Link, Rates, Way};
use crate::ir::{Buffer, Chunk, Op, Program, Rank, Shape};
use crate::steps::move_copies;
use std::collections::{HashMap, VecDeque};

/// What a simulation found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// From the common start to the end of the last rank, us.
    pub time_us: f64,
    /// End of the first rank, us (of the iterations that were simulated).
    pub first_us: f64,
    /// Ops simulated.
    pub ops: u64,
    /// Messages of all ranks in the whole operation.
    pub messages: u64,
    /// Iterations of the whole operation. Beyond 16, the time is extrapolated from the last 8 simulated ones.
    pub pieces: u64,
}

/// Iterations simulated at most; beyond, time grows by what the second half of them took.
const MOST_PIECES: u64 = 16;

/// Simulates `a`, which must support `shape`. A ring has ops in proportion to its ranks on each of them, trees and
/// doubling only their logarithm: those can be simulated with 100,000 ranks. `bytes` as nccl-tests counts them; `link` is the way of messages.
pub fn simulate(a: &Algorithm, shape: &Shape, bytes: u64, m: &CostModel, link: Link, slot_bytes: u64) -> Simulated {
    let rates = Rates::new(m, a, shape, bytes, link, slot_bytes);
    let full = rates.pieces;
    let mut total = run(a, shape, &rates, m.slots, full.min(MOST_PIECES) as u32);
    if full > MOST_PIECES {
        let half = run(a, shape, &rates, m.slots, (MOST_PIECES / 2) as u32);
        let per_piece = (total.time_us - half.time_us) / (MOST_PIECES / 2) as f64;
        total.time_us += (full - MOST_PIECES) as f64 * per_piece;
        total.messages = total.messages / MOST_PIECES * full;
    }
    total
}

/// Beyond this number of ranks, an operation of one piece is simulated with as many slots as it likes, so that
/// connections can be forgotten once they are empty.
const CREDITED_RANKS: Rank = 4096;

fn run(a: &Algorithm, shape: &Shape, rates: &Rates, slots: u32, pieces: u32) -> Simulated {
    let mut sum = Simulated { time_us: 0.0, first_us: f64::INFINITY, ops: 0, messages: 0, pieces: rates.pieces };
    for channel in 0..shape.channels {
        let lane = Lane::new(a, shape, rates, slots, pieces, channel as usize);
        lane.run(&mut sum);
    }
    sum
}

/// Times of a connection.
#[derive(Default)]
struct Wire {
    /// When each message that is not yet received can be.
    arrivals: VecDeque<f64>,
    /// When each slot came free, for slots not yet used again.
    releases: VecDeque<f64>,
    sent: u64,
}

/// State of a rank in the channel.
#[derive(Default)]
struct State {
    program: Option<Program>,
    started: bool,
    clock: f64,
    piece: u32,
    op: usize,
    /// When each signal was raised, of all iterations.
    signals: Vec<f64>,
    /// Signals of one iteration.
    per_piece: usize,
    sleepers: Vec<Rank>,
}

struct Lane<'a> {
    algorithm: &'a Algorithm,
    shape: &'a Shape,
    rates: &'a Rates,
    slots: u32,
    pieces: u32,
    channel: usize,
    states: Vec<State>,
    wires: HashMap<(Rank, Rank), Wire>,
    /// Whether credits are followed.
    credits: bool,
}

impl<'a> Lane<'a> {
    fn new(
        algorithm: &'a Algorithm,
        shape: &'a Shape,
        rates: &'a Rates,
        slots: u32,
        pieces: u32,
        channel: usize,
    ) -> Lane<'a> {
        let mut states = Vec::new();
        states.resize_with(shape.ranks as usize, State::default);
        let wires = HashMap::new();
        let credits = pieces > 1 || shape.ranks <= CREDITED_RANKS;
        Lane { algorithm, shape, rates, slots, pieces, channel, states, wires, credits }
    }

    fn run(mut self, sum: &mut Simulated) {
        let mut ready: Vec<Rank> = (0..self.shape.ranks).rev().collect();
        while let Some(rank) = ready.pop() {
            let state = &mut self.states[rank as usize];
            let program = state.program.take().unwrap_or_else(|| self.algorithm.program(self.shape, rank));
            if !std::mem::replace(&mut state.started, true) {
                let signals = program.channels[self.channel].iter().filter(|o| matches!(o, Op::Signal));
                state.per_piece = signals.count();
                state.clock = self.rates.start;
            }
            let before = sum.ops;
            let ended = self.advance(rank, &program.channels[self.channel], sum);
            let state = &mut self.states[rank as usize];
            if sum.ops > before {
                ready.append(&mut state.sleepers);
            }
            if ended {
                sum.time_us = sum.time_us.max(state.clock);
                sum.first_us = sum.first_us.min(state.clock);
            } else {
                state.program = Some(program);
            }
        }
    }

    /// Runs the rank until it has to wait for another one; whether it has ended.
    fn advance(&mut self, rank: Rank, ops: &[Op], sum: &mut Simulated) -> bool {
        loop {
            let state = &mut self.states[rank as usize];
            if state.op == ops.len() {
                state.op = 0;
                state.piece += 1;
            }
            if state.piece >= self.pieces || ops.is_empty() {
                return true;
            }
            let op = &ops[state.op];
            if let Err(on) = self.attempt(rank, op) {
                self.states[on as usize].sleepers.push(rank);
                return false;
            }
            self.states[rank as usize].op += 1;
            sum.ops += 1;
            sum.messages += u64::from(op.sends_to().is_some());
        }
    }

    /// Runs an op if all it needs is known, else names the rank it needs something of.
    fn attempt(&mut self, me: Rank, op: &Op) -> Result<(), Rank> {
        let mut start = self.states[me as usize].clock;
        if let Op::Wait { rank, epoch } = *op {
            let peer = &self.states[rank as usize];
            let index = self.states[me as usize].piece as usize * peer.per_piece + epoch as usize - 1;
            let raised = *peer.signals.get(index).ok_or(rank)?;
            self.states[me as usize].clock = start.max(raised + self.rates.signal) + self.rates.wait;
            return Ok(());
        }
        if let Some(from) = op.receives_from() {
            let arrival = self.wires.get(&(from, me)).and_then(|w| w.arrivals.front()).ok_or(from)?;
            start = start.max(*arrival);
        }
        if let Some(to) = op.sends_to()
            && self.credits
        {
            let wire = self.wires.entry((me, to)).or_default();
            if wire.sent >= u64::from(self.slots) {
                start = start.max(wire.releases.pop_front().ok_or(to)?);
            }
        }
        let end = start + self.work(me, op);
        self.states[me as usize].clock = end;
        if let Some(from) = op.receives_from() {
            self.receive(from, me, end);
        }
        if let Some(to) = op.sends_to() {
            let wire = self.wires.entry((me, to)).or_default();
            wire.sent += 1;
            wire.arrivals.push_back(end + self.rates.way(me, to).latency);
        }
        if matches!(op, Op::Signal) {
            self.states[me as usize].signals.push(end);
        }
        Ok(())
    }

    fn receive(&mut self, from: Rank, me: Rank, end: f64) {
        if let Some(wire) = self.wires.get_mut(&(from, me)) {
            wire.arrivals.pop_front();
            if self.credits {
                wire.releases.push_back(end);
            } else if wire.arrivals.is_empty() {
                self.wires.remove(&(from, me));
            }
        }
    }

    /// How long the op keeps its core busy.
    fn work(&self, me: Rank, op: &Op) -> f64 {
        let kib = |c: &Chunk| self.rates.piece_kib(c.parts);
        let Way { op: each, copy, reduce, .. } =
            *self.rates.way(me, op.receives_from().or(op.sends_to()).unwrap_or(me));
        let on = self.rates.way(me, op.sends_to().unwrap_or(me));
        match op {
            Op::Send { src, .. } => each + kib(src) * copy,
            Op::Recv { dst, .. } => each + kib(dst) * copy,
            Op::RecvReduce { src, .. } => each + kib(src) * reduce,
            Op::RecvReduceSend { src, .. } => each + kib(src) * (reduce + on.passing),
            Op::RecvCopySend { dst, .. } => each + kib(dst) * (copy + on.copy),
            Op::Copy { .. } if self.in_place(op) => 0.0,
            Op::Copy { src, .. } => each + kib(src) * copy,
            Op::Reduce { a, .. } => each + kib(a) * reduce,
            Op::Move { srcs, dsts } => {
                let copies = move_copies(srcs.len() as f64, dsts.len() as f64) + self.rates.pushed;
                each + kib(&srcs[0].chunk) * copy * copies
            }
            Op::Signal | Op::Wait { .. } => self.rates.wait,
        }
    }

    /// Whether a copy between user buffers is one onto itself.
    fn in_place(&self, op: &Op) -> bool {
        matches!(op, Op::Copy { src, dst } if self.shape.in_place
            && src.buffer == Buffer::Input && dst.buffer == Buffer::Output)
    }
}
