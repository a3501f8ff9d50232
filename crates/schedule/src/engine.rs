//! Runs a channel of a schedule in some order that the rules allow: who may go on, and who is stuck.
//!
//! It knows no data. Each rank runs its list of ops `pieces` times, one op after the other. A send needs a free slot
//! of its connection (`slots` of them), a receive a message, a wait an epoch; a fused op needs message and slot at
//! once and keeps the slot it reads until it has the slot it writes. With 0 slots a send ends when it is received.
//!
//! One order is as good as all: every connection has one producer and one consumer, and an op that may run stays
//! able to run until its own rank runs it (nobody else takes its message, its slot or its epoch). So any two orders
//! can be made the same by swapping neighbours of different ranks: either all orders finish or none does, and all get
//! stuck at the same place.

use crate::ir::{Op, Rank, Schedule};

/// One op being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Who runs it.
    pub(crate) rank: Rank,
    /// In which iteration.
    pub(crate) piece: u32,
    /// Which op of the channel.
    pub(crate) op: usize,
}

/// Where ranks stopped for ever, and on whom each waits.
#[derive(Clone, Debug)]
pub(crate) struct Stuck {
    /// The step that cannot run and the rank that would have to do something.
    pub(crate) steps: Vec<(Step, Rank)>,
}

/// State of a rank in a channel.
#[derive(Clone, Default)]
struct State {
    piece: u32,
    op: usize,
    /// Signals raised in the run and, in all finished iterations, signals that the schedule reserves.
    signals: u32,
    /// With 0 slots: the message of the current op has been offered.
    offered: bool,
    /// Ranks that wait for something this rank must do.
    sleepers: Vec<Rank>,
}

/// Messages of a connection.
#[derive(Clone, Copy, Default)]
struct Link {
    sent: u32,
    received: u32,
}

/// What came of trying an op.
enum Outcome {
    Done,
    /// Only this rank can help.
    Blocked(Rank),
}

struct Engine<'a> {
    lists: Vec<&'a [Op]>,
    links: Vec<Link>,
    states: Vec<State>,
    slots: u32,
}

/// Runs channel `channel` of `s` for `pieces` iterations and calls `on_step` for every op in the order of running.
/// Peers must be in range.
pub(crate) fn run<E>(
    s: &Schedule,
    channel: u32,
    slots: u32,
    pieces: u32,
    mut on_step: impl FnMut(Step) -> Result<(), E>,
) -> Result<Result<(), Stuck>, E> {
    let n = s.programs.len();
    let mut e = Engine {
        lists: s.programs.iter().map(|p| &p.channels[channel as usize][..]).collect(),
        links: vec![Link::default(); n * n],
        states: vec![State::default(); n],
        slots,
    };
    let mut ready: Vec<Rank> = (0..n as Rank).collect();
    let mut blocked_on = vec![None; n];
    while let Some(rank) = ready.pop() {
        let mut moved = false;
        blocked_on[rank as usize] = loop {
            let Some(step) = e.next(rank, pieces) else { break None };
            let offered = e.states[rank as usize].offered;
            match e.attempt(step) {
                Outcome::Done => {
                    on_step(step)?;
                    moved = true;
                }
                Outcome::Blocked(on) => {
                    moved |= offered != e.states[rank as usize].offered;
                    e.states[on as usize].sleepers.push(rank);
                    break Some((step, on));
                }
            }
        };
        if moved {
            ready.append(&mut e.states[rank as usize].sleepers);
        }
    }
    let steps: Vec<_> = blocked_on.into_iter().flatten().collect();
    Ok(if steps.is_empty() { Ok(()) } else { Err(Stuck { steps }) })
}

impl Engine<'_> {
    /// The op that `rank` has to run, unless it has ended.
    fn next(&mut self, rank: Rank, pieces: u32) -> Option<Step> {
        let state = &mut self.states[rank as usize];
        let len = self.lists[rank as usize].len();
        if state.op == len {
            state.op = 0;
            state.signals = 0;
            state.piece = if len == 0 { pieces } else { state.piece + 1 };
        }
        (state.piece < pieces).then_some(Step { rank, piece: state.piece, op: state.op })
    }

    fn link(&mut self, from: Rank, to: Rank) -> &mut Link {
        let n = self.lists.len();
        &mut self.links[from as usize * n + to as usize]
    }

    /// Runs the op if it can be run.
    fn attempt(&mut self, step: Step) -> Outcome {
        let me = step.rank;
        let op = &self.lists[me as usize][step.op];
        let (from, to) = (op.receives_from(), op.sends_to());
        if let Op::Wait { rank, epoch } = *op
            && !self.has_signalled(rank, step.piece, epoch)
        {
            return Outcome::Blocked(rank);
        }
        if let Some(from) = from {
            let link = self.link(from, me);
            if link.sent == link.received {
                return Outcome::Blocked(from);
            }
        }
        if let Some(to) = to
            && !self.send(me, to)
        {
            return Outcome::Blocked(to);
        }
        if let Some(from) = from {
            self.link(from, me).received += 1;
        }
        let state = &mut self.states[me as usize];
        state.signals += u32::from(matches!(self.lists[me as usize][step.op], Op::Signal));
        state.offered = false;
        state.op += 1;
        Outcome::Done
    }

    /// Whether the message could be sent (0 slots: has been received).
    fn send(&mut self, me: Rank, to: Rank) -> bool {
        let slots = self.slots;
        if slots > 0 {
            let link = self.link(me, to);
            let free = link.sent - link.received < slots;
            link.sent += u32::from(free);
            return free;
        }
        if !std::mem::replace(&mut self.states[me as usize].offered, true) {
            self.link(me, to).sent += 1;
        }
        let link = self.link(me, to);
        link.sent == link.received
    }

    fn has_signalled(&self, rank: Rank, piece: u32, epoch: u32) -> bool {
        let s = &self.states[rank as usize];
        s.piece > piece || (s.piece == piece && s.signals >= epoch)
    }
}
