//! Looks for accesses to the same memory that nothing orders, with vector clocks.
//!
//! The clock of a rank in a channel counts its ops; messages and signals carry clocks. Channels never order each
//! other, so accesses of different channels to the same memory are a race unless both read. Waiting for a free slot
//! orders too, but no schedule may rely on it: executors differ in when they give a slot back.

use crate::defect::{Defect, Kind};
use crate::engine::Step;
use crate::ir::{Buffer, Op, Place, Rank, Schedule};
use crate::memory::Layout;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// An access to a cell.
#[derive(Clone, Copy)]
struct Access {
    rank: Rank,
    channel: u32,
    op: u32,
    /// The rank's own count when it happened.
    clock: u32,
}

/// Accesses to a cell since the last write, that write included.
#[derive(Clone, Default)]
struct Cell {
    writer: Option<Access>,
    /// The last read of each rank and channel.
    readers: Vec<Access>,
}

type Clock = Rc<[u32]>;

pub(crate) struct Races<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    /// Whether ranks touch each other's memory at all; if not, no clocks are needed.
    direct: bool,
    cells: Vec<Cell>,
    /// Clock of each rank in the current channel.
    clocks: Vec<Vec<u32>>,
    messages: BTreeMap<(Rank, Rank), VecDeque<Clock>>,
    /// Clocks of signals, by rank, iteration and epoch.
    signals: BTreeMap<(Rank, u32, u32), Clock>,
    raised: Vec<(u32, u32)>,
    /// Last access of a peer to the user memory of a rank, by owner and peer.
    visits: BTreeMap<(Rank, Rank), Access>,
}

impl<'a> Races<'a> {
    pub(crate) fn new(schedule: &'a Schedule, layout: &'a Layout) -> Races<'a> {
        Races {
            schedule,
            layout,
            direct: schedule.programs.iter().any(crate::ir::Program::is_direct),
            cells: vec![Cell::default(); layout.len()],
            clocks: Vec::new(),
            messages: BTreeMap::new(),
            signals: BTreeMap::new(),
            raised: Vec::new(),
            visits: BTreeMap::new(),
        }
    }

    /// Starts the clocks of a channel.
    pub(crate) fn start_channel(&mut self) {
        let n = self.schedule.programs.len();
        self.clocks = vec![vec![0; if self.direct { n } else { 0 }]; n];
        self.raised = vec![(0, 0); n];
        self.messages.clear();
        self.signals.clear();
        self.visits.clear();
    }

    /// Takes note of one op.
    pub(crate) fn step(&mut self, channel: u32, step: Step) -> Result<(), Defect> {
        let me = step.rank;
        let schedule = self.schedule;
        let op = &schedule.programs[me as usize].channels[channel as usize][step.op];
        if self.direct {
            self.learn(step, op);
        }
        let clock = self.clocks[me as usize].get(me as usize).copied().unwrap_or(0);
        let access = Access { rank: me, channel, op: step.op as u32, clock };
        let (reads, mut writes) = op.accesses(me);
        if let Op::Copy { .. } = op {
            // A copy onto itself (in place) does nothing.
            writes.retain(|w| {
                self.layout.cells(w, channel, step.piece) != self.layout.cells(&reads[0], channel, step.piece)
            });
        }
        self.check_overlap(step, channel, &reads, &writes)?;
        for place in &reads {
            self.touch(access, step, place, false)?;
        }
        for place in &writes {
            self.touch(access, step, place, true)?;
        }
        if self.direct {
            self.tell(step, op);
        }
        Ok(())
    }

    /// Joins the clock of a message or signal, and ticks.
    fn learn(&mut self, step: Step, op: &Op) {
        let me = step.rank;
        let heard = match (op.receives_from(), op) {
            (Some(from), _) => self.messages.get_mut(&(from, me)).and_then(VecDeque::pop_front),
            (None, Op::Wait { rank, epoch }) => self.signals.get(&(*rank, step.piece, *epoch)).cloned(),
            _ => None,
        };
        let mine = &mut self.clocks[me as usize];
        if let Some(clock) = heard {
            for (a, b) in mine.iter_mut().zip(clock.iter()) {
                *a = (*a).max(*b);
            }
        }
        mine[me as usize] += 1;
    }

    /// Publishes the clock with a message or signal.
    fn tell(&mut self, step: Step, op: &Op) {
        let me = step.rank;
        let now = || Clock::from(&self.clocks[me as usize][..]);
        if let Some(to) = op.sends_to() {
            let clock = now();
            self.messages.entry((me, to)).or_default().push_back(clock);
        } else if matches!(op, Op::Signal) {
            let clock = now();
            let raised = &mut self.raised[me as usize];
            *raised = if raised.0 == step.piece { (raised.0, raised.1 + 1) } else { (step.piece, 1) };
            self.signals.insert((me, raised.0, raised.1), clock);
        }
    }

    /// Whether `before` has happened before whatever `access.rank` does now.
    fn ordered(&self, before: &Access, access: &Access) -> bool {
        before.channel == access.channel
            && (before.rank == access.rank
                || before.clock <= self.clocks[access.rank as usize].get(before.rank as usize).copied().unwrap_or(0))
    }

    fn touch(&mut self, access: Access, step: Step, place: &Place, write: bool) -> Result<(), Defect> {
        if place.rank != access.rank && place.chunk.buffer != Buffer::Scratch {
            self.visits.insert((place.rank, access.rank), access);
        }
        for cell in self.layout.cells(place, access.channel, step.piece) {
            let known = &self.cells[cell];
            let readers = if write { &known.readers[..] } else { &[] };
            if let Some(other) = known.writer.iter().chain(readers).find(|a| !self.ordered(a, &access)) {
                return Err(self.race(access, step, place, write, other));
            }
            let known = &mut self.cells[cell];
            if write {
                known.writer = Some(access);
                known.readers.clear();
            } else if let Some(r) =
                known.readers.iter_mut().find(|r| (r.rank, r.channel) == (access.rank, access.channel))
            {
                *r = access;
            } else {
                known.readers.push(access);
            }
        }
        Ok(())
    }

    fn race(&self, access: Access, step: Step, place: &Place, write: bool, other: &Access) -> Defect {
        let theirs = &self.schedule.programs[other.rank as usize].channels[other.channel as usize][other.op as usize];
        let what = format!(
            "{} {place} in iteration {}, and nothing orders that after rank {} channel {} op {} ({theirs})",
            if write { "writes" } else { "reads" },
            step.piece,
            other.rank,
            other.channel,
            other.op
        );
        Defect::at_op(Kind::Race, self.schedule, access.rank, access.channel, step.op, what)
    }

    /// Within an op, memory is the same or apart; two destinations are always apart.
    fn check_overlap(&self, step: Step, channel: u32, reads: &[Place], writes: &[Place]) -> Result<(), Defect> {
        let cells = |p: &Place| self.layout.cells(p, channel, step.piece);
        for (i, w) in writes.iter().enumerate() {
            let mine = cells(w);
            let partial = |p: &&Place| {
                let other = cells(p);
                other != mine && other.start < mine.end && mine.start < other.end
            };
            let again = writes[..i].iter().find(|p| cells(p) == mine);
            if let Some(p) = reads.iter().chain(&writes[..i]).find(partial).or(again) {
                let what = format!("{w} and {p} overlap");
                return Err(Defect::at_op(Kind::Malformed, self.schedule, step.rank, channel, step.op, what));
            }
        }
        Ok(())
    }

    /// At the end of a channel nobody may still touch the user memory of a rank whose program ends.
    pub(crate) fn end_channel(&self, channel: u32) -> Result<(), Defect> {
        for (&(owner, peer), visit) in &self.visits {
            if visit.clock > self.clocks[owner as usize][peer as usize] {
                let what = format!("touches the user memory of rank {owner}, which may have ended before");
                return Err(Defect::at_op(Kind::Exposed, self.schedule, peer, channel, visit.op as usize, what));
            }
        }
        Ok(())
    }
}
