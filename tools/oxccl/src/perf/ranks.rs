//! The ranks of one thread: communicators, streams, buffers, and what is done with all of them at once.

use std::{cell::Cell, sync::Arc};

use anyhow::{Context, Result};
use oxccl_types::DataType;

use super::{
    args::PerfArgs,
    collectives::{Call, Coll, Uneven},
    control::{Control, WORDS},
    data::{Expected, Op, Pattern, encode},
    life,
    memory::{Buffer, Report},
};
use crate::api::{self, Comm, CommSlot, Registration, Site, Stream, UniqueId};

/// A rank before its buffers.
pub struct Seat {
    rank: usize,
    device: usize,
    slot: CommSlot,
    stream: Stream,
}

// SAFETY: the slot's box is written by the library only until the group that filled it ended, before the seat moves to
// the thread that uses it.
unsafe impl Send for Seat {}

/// Starts the initialisation of ranks `first..first + count`; complete when the surrounding group ends.
pub fn seats(first: usize, count: usize, local: usize, total: usize, id: &UniqueId) -> Result<Vec<Seat>> {
    let devices = api::device_count()?.max(1);
    let seat = |i: usize| -> Result<Seat> {
        let (rank, device) = (first + i, (local + i) % devices);
        api::set_device(device).with_context(|| format!("rank {rank}"))?;
        let stream = api::stream_create().with_context(|| format!("rank {rank}"))?;
        let slot = api::comm_init_rank(total, id, rank).with_context(|| format!("rank {rank}"))?;
        Ok(Seat { rank, device, slot, stream })
    };
    (0..count).map(seat).collect()
}

/// One rank.
struct Rank {
    rank: usize,
    device: usize,
    /// The first; registrations and operators belong to it.
    comm: Comm,
    /// All, in the order of their turns.
    comms: Vec<Comm>,
    stream: Stream,
    send: Buffer,
    recv: Buffer,
    registered: Vec<Registration>,
}

/// How participants exchange times and barriers.
pub enum Exchange {
    /// Through shared memory.
    Local(Arc<Control>),
    /// Through the measured library: the run spans hosts.
    Library,
}

/// The ranks of a thread.
pub struct Team {
    ranks: Vec<Rank>,
    total: usize,
    participant: usize,
    round: Cell<u64>,
    /// Whose turn it is among the communicators.
    turn: Cell<usize>,
    exchange: Exchange,
    register: u8,
    /// Bytes of the buffers over which the calls of a group are spread.
    room: usize,
}

/// One row's work: the call, its operator, and what it must give.
pub struct Row<'a> {
    /// The call.
    pub call: Call,
    /// The data of this type and operator.
    pub data: &'a Data,
    uneven: Vec<Uneven>,
}

/// Inputs and expectations of one element type and operator, for all ranks.
pub struct Data {
    /// The operator, where there is one.
    pub op: Option<Op>,
    inputs: Vec<Expected>,
    reduced: Option<Expected>,
    /// The operator's C value of each rank of the team.
    codes: Vec<i32>,
}

/// Bytes of buffers in which the calls of a group find parts of their own, as the tensors of a program would be. Little enough
/// to stay in the caches as one part does.
const GROUP_ROOM: usize = 256 << 10;

impl Team {
    /// Gives the seats buffers of `bytes` bytes.
    pub fn new(
        seats: Vec<Seat>,
        total: usize,
        participant: usize,
        exchange: Exchange,
        bytes: usize,
        args: &PerfArgs,
    ) -> Result<Team> {
        let room = if args.aggregate > 1 { GROUP_ROOM } else { 0 };
        let mut ranks = Vec::with_capacity(seats.len());
        for s in seats {
            api::set_device(s.device)?;
            let buffer = || Buffer::new(bytes.max(room), args.memory).with_context(|| format!("rank {}", s.rank));
            ranks.push(Rank {
                rank: s.rank,
                device: s.device,
                comm: s.slot.get(),
                comms: Vec::new(),
                stream: s.stream,
                send: buffer()?,
                recv: buffer()?,
                registered: Vec::new(),
            });
        }
        let firsts: Vec<_> = ranks.iter().map(|r: &Rank| r.comm).collect();
        let numbers: Vec<_> = ranks.iter().map(|r| r.rank).collect();
        let comms = life::split(&firsts, &numbers, args.comms)?;
        ranks.iter_mut().zip(comms).for_each(|(r, comms)| r.comms = comms);
        let (round, turn) = (Cell::new(0), Cell::new(0));
        let mut team = Team { ranks, total, participant, round, turn, exchange, register: args.register, room };
        team.register()?;
        Ok(team)
    }

    fn register(&mut self) -> Result<()> {
        let many = self.ranks.len() > 1;
        match self.register {
            1 => {
                for r in &mut self.ranks {
                    for b in [&r.send, &r.recv] {
                        r.registered.push(api::register(r.comm, b.ptr(), b.len())?);
                    }
                }
            }
            2 => {
                for half in 0..2 {
                    if many {
                        api::group_start()?;
                    }
                    let mut slots = Vec::new();
                    for r in &self.ranks {
                        let b = if half == 0 { &r.send } else { &r.recv };
                        slots.push(api::window_register(r.comm, b.ptr(), b.len())?);
                    }
                    if many {
                        api::group_end(self.ranks[0].comm)?;
                    }
                    for (r, slot) in self.ranks.iter_mut().zip(slots) {
                        r.registered.push(slot.get());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives everything back.
    pub fn close(mut self, ops: &[&Data]) -> Result<()> {
        for d in ops {
            d.destroy(&self)?;
        }
        for r in &mut self.ranks {
            for h in r.registered.drain(..) {
                match self.register {
                    1 => api::deregister(r.comm, h)?,
                    _ => api::window_deregister(r.comm, h)?,
                }
            }
        }
        for r in &self.ranks {
            api::stream_synchronize(r.stream, r.comm)?;
        }
        let many = self.ranks.len() > 1;
        if many {
            api::group_start()?;
        }
        for r in &self.ranks {
            for comm in r.comms.iter().rev() {
                api::comm_destroy(*comm).with_context(|| format!("rank {}", r.rank))?;
            }
        }
        if many {
            api::group_end(Comm::NONE)?;
        }
        for r in self.ranks {
            api::stream_destroy(r.stream)?;
            r.send.free()?;
            r.recv.free()?;
        }
        Ok(())
    }

    /// Ranks of the run.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether this team prints.
    pub fn reports(&self) -> bool {
        self.participant == 0
    }

    /// Whether all ranks share a clock.
    pub fn one_clock(&self) -> bool {
        matches!(self.exchange, Exchange::Local(_))
    }

    /// This team's ranks and their devices.
    pub fn seats(&self) -> impl Iterator<Item = (usize, usize)> {
        self.ranks.iter().map(|r| (r.rank, r.device))
    }

    /// Everybody's words, in the order of the teams.
    pub fn share(&self, words: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>> {
        let round = self.round.get();
        self.round.set(round + 1);
        match &self.exchange {
            Exchange::Local(control) => control.share(self.participant, round, words),
            Exchange::Library => self.share_by_library(words),
        }
    }

    /// Waits for all teams.
    pub fn barrier(&self) -> Result<()> {
        match &self.exchange {
            Exchange::Local(control) => control.barrier(),
            Exchange::Library => self.share_by_library([0; WORDS]).map(drop),
        }
    }

    fn share_by_library(&self, words: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>> {
        let (mut send, mut recv) = (vec![words; self.ranks.len()], vec![[0; WORDS]; self.total * self.ranks.len()]);
        let many = self.ranks.len() > 1;
        if many {
            api::group_start()?;
        }
        for (i, r) in self.ranks.iter().enumerate() {
            let site = Site {
                send: send[i].as_mut_ptr().cast(),
                recv: recv[i * self.total].as_mut_ptr().cast(),
                dtype: DataType::Uint64,
                comm: r.comm,
                stream: r.stream,
            };
            site.all_gather(WORDS)?;
        }
        if many {
            api::group_end(self.ranks[0].comm)?;
        }
        self.synchronize()?;
        Ok(recv.into_iter().take(self.total).step_by(self.ranks.len()).collect())
    }

    /// Waits for all of this team's streams.
    pub fn synchronize(&self) -> Result<()> {
        for r in &self.ranks {
            api::stream_synchronize(r.stream, r.comm).with_context(|| format!("rank {}", r.rank))?;
        }
        Ok(())
    }

    /// Inputs and expectations; with `MulSum` it also makes the operators (see [`Team::close`]).
    pub fn data(&self, dtype: DataType, op: Option<Op>) -> Result<Data> {
        let n = self.total;
        let code = |r: &Rank| match op {
            Some(Op::MulSum) => {
                let scalar = encode(dtype, Op::scalar(r.rank) as f64).to_le_bytes();
                api::redop_premulsum(r.comm, scalar, dtype).with_context(|| format!("rank {}", r.rank))
            }
            op => Ok(op.map_or(0, |o| o as i32)),
        };
        Ok(Data {
            op,
            inputs: (0..n).map(|r| Expected::Exact(Pattern::input(dtype, op, n, r))).collect(),
            reduced: op.map(|op| Expected::reduction(dtype, op, n)),
            codes: self.ranks.iter().map(code).collect::<Result<_>>()?,
        })
    }

    /// A row's work.
    pub fn row<'a>(&self, call: Call, data: &'a Data) -> Row<'a> {
        let uneven = |r: &Rank| match call.coll {
            Coll::AllToAllV => call.uneven(r.rank),
            _ => Uneven { counts: Vec::new(), displs: Vec::new() },
        };
        Row { call, data, uneven: self.ranks.iter().map(uneven).collect() }
    }

    /// `part`: bytes from the begin of the buffers to this call's part.
    fn site(r: &Rank, call: &Call, in_place: bool, turn: usize, part: usize) -> Site {
        let (send, recv) = if in_place {
            let (s, d) = call.in_place_offsets(r.rank);
            (r.recv.ptr().wrapping_add(s), r.recv.ptr().wrapping_add(d))
        } else {
            (r.send.ptr(), r.recv.ptr())
        };
        let (send, recv) = (send.wrapping_add(part), recv.wrapping_add(part));
        Site { send, recv, dtype: call.dtype, comm: r.comms[turn], stream: r.stream }
    }

    /// Which of a rank's communicators the next call uses. What this costs is measured with each call: no division.
    fn next_turn(&self) -> usize {
        let turn = self.turn.get();
        self.turn.set(if turn + 1 < self.ranks[0].comms.len() { turn + 1 } else { 0 });
        turn
    }

    /// Enqueues `times` calls on every rank of the team, aggregated in one group, each on its own part of the buffers as far as
    /// these reach.
    pub fn issue(&self, row: &Row<'_>, in_place: bool, times: usize) -> Result<()> {
        if row.call.coll == Coll::Hypercube {
            return (0..times).try_for_each(|_| self.issue_hypercube(row, in_place));
        }
        let group = self.ranks.len() > 1 || times > 1 || row.call.coll.point_to_point();
        if group {
            api::group_start()?;
        }
        let (length, end) = if times > 1 { parts(self.room, Team::part_bytes(row, in_place)) } else { (0, 0) };
        let mut part = 0;
        for _ in 0..times {
            let turn = self.next_turn();
            for (i, r) in self.ranks.iter().enumerate() {
                if self.ranks.len() > 1 {
                    api::set_device(r.device)?;
                }
                let site = Team::site(r, &row.call, in_place, turn, part);
                row.call
                    .enqueue(&site, r.rank, row.data.codes[i], &row.uneven[i])
                    .with_context(|| format!("rank {}", r.rank))?;
            }
            part = if part + length < end { part + length } else { 0 };
        }
        if group {
            api::group_end(self.ranks[0].comm).with_context(|| format!("rank {}", self.ranks[0].rank))?;
        }
        Ok(())
    }

    fn issue_hypercube(&self, row: &Row<'_>, in_place: bool) -> Result<()> {
        for step in 0..row.call.hypercube_steps() {
            api::group_start()?;
            let turn = self.next_turn();
            for r in &self.ranks {
                let site = Team::site(r, &row.call, in_place, turn, 0);
                row.call.enqueue_hypercube_step(&site, r.rank, step).with_context(|| format!("rank {}", r.rank))?;
            }
            api::group_end(self.ranks[0].comm).with_context(|| format!("rank {}", self.ranks[0].rank))?;
        }
        Ok(())
    }

    /// Bytes of a buffer that one call touches, at most.
    fn part_bytes(row: &Row<'_>, in_place: bool) -> usize {
        region(&row.call, in_place).max(row.call.send_count() * row.call.dtype.size())
    }

    /// Where the parts of the buffers begin on which [`issue`](Self::issue) makes `times` calls, each once.
    pub fn parts(&self, row: &Row<'_>, in_place: bool, times: usize) -> Vec<usize> {
        if times == 1 || row.call.coll == Coll::Hypercube {
            return vec![0];
        }
        let (length, end) = parts(self.room, Team::part_bytes(row, in_place));
        (0..end).step_by(length).take(times).collect()
    }

    /// Writes fresh inputs, and rubbish where results will be, in the parts of the buffers that begin there, in ascending order.
    pub fn fill(&self, row: &Row<'_>, in_place: bool, parts: &[usize]) {
        let (call, size, region) = (&row.call, row.call.dtype.size(), region(&row.call, in_place));
        for r in &self.ranks {
            let Expected::Exact(input) = &row.data.inputs[r.rank] else { continue };
            for part in parts {
                r.recv.set(*part, region, 0xff);
                if in_place {
                    r.recv.fill(part + call.in_place_offsets(r.rank).0, input, 0, call.send_count());
                } else {
                    r.send.fill(*part, input, 0, call.send_count());
                }
                if call.coll == Coll::Hypercube {
                    // The steps pass on what lies in the receive buffer, the rank's own block first.
                    r.recv.fill(part + r.rank * call.block * size, input, 0, call.block);
                }
            }
            r.recv.arm_guard(parts.last().copied().unwrap_or(0) + region);
        }
    }

    /// Checks every element of these parts of every rank of the team: (wrong elements, overwritten guard bytes, description).
    pub fn verify(&self, row: &Row<'_>, in_place: bool, parts: &[usize]) -> (usize, usize, Vec<String>) {
        let (mut wrong, mut outside, mut lines) = (0, 0, Vec::new());
        for r in &self.ranks {
            let side = if in_place { "in place" } else { "out of place" };
            let grouped = if parts.len() > 1 { format!(", {} calls in a group", parts.len()) } else { String::new() };
            let mut report = Report::new(format!("rank {} ({side}{grouped})", r.rank));
            wrong += parts.iter().map(|part| self.verify_rank(r, row, in_place, *part, &mut report)).sum::<usize>();
            outside += r.recv.guard_errors(parts.last().copied().unwrap_or(0) + region(&row.call, in_place));
            lines.extend_from_slice(report.lines());
        }
        (wrong, outside, lines)
    }

    fn verify_rank(&self, r: &Rank, row: &Row<'_>, in_place: bool, part: usize, report: &mut Report) -> usize {
        let (call, data) = (&row.call, row.data);
        let (block, size, n) = (call.block, call.dtype.size(), self.total);
        let base = part + if in_place { call.in_place_offsets(r.rank).1 } else { 0 };
        let mut check = |at: usize, expected: &Expected, first: usize, count: usize| {
            report.base = at;
            r.recv.verify(base + at * size, call.dtype, expected, first, count, report)
        };
        let inputs = &data.inputs;
        match (call.coll, &data.reduced) {
            (Coll::AllReduce, Some(e)) => check(0, e, 0, block),
            (Coll::Reduce, Some(e)) if r.rank == call.root => check(0, e, 0, block),
            (Coll::ReduceScatter, Some(e)) => check(0, e, r.rank * block, block),
            (Coll::Broadcast, _) => check(0, &inputs[call.root], 0, block),
            (Coll::Scatter, _) => check(0, &inputs[call.root], r.rank * block, block),
            (Coll::SendRecv, _) => check(0, &inputs[(r.rank + n - 1) % n], 0, block),
            (Coll::Gather, _) if r.rank != call.root => 0,
            (Coll::AllGather | Coll::Gather | Coll::Hypercube, _) => {
                (0..n).map(|q| check(q * block, &inputs[q], 0, block)).sum()
            }
            (Coll::AllToAll, _) => (0..n).map(|q| check(q * block, &inputs[q], r.rank * block, block)).sum(),
            (Coll::AllToAllV, _) => {
                let mine = call.uneven(r.rank);
                let from = |q: usize| (call.uneven(q).displs[r.rank], mine.displs[q], mine.counts[q]);
                (0..n).map(|q| (q, from(q))).map(|(q, (first, at, count))| check(at, &inputs[q], first, count)).sum()
            }
            // Reduce elsewhere than at the root.
            (Coll::AllReduce | Coll::Reduce | Coll::ReduceScatter, _) => 0,
        }
    }
}

impl Data {
    fn destroy(&self, team: &Team) -> Result<()> {
        if self.op == Some(Op::MulSum) {
            for (r, op) in team.ranks.iter().zip(&self.codes) {
                api::redop_destroy(r.comm, *op)?;
            }
        }
        Ok(())
    }
}

/// Bytes of the receive buffer that the call may change.
fn region(call: &Call, in_place: bool) -> usize {
    let elements = if in_place { call.recv_count().max(call.send_count()) } else { call.recv_count() };
    elements * call.dtype.size()
}

/// Of calls that move `bytes` bytes and have `room` together: bytes from the part of one to that of the next, and up to where the
/// parts go before they begin anew.
fn parts(room: usize, bytes: usize) -> (usize, usize) {
    const LINE: usize = 64;
    let length = bytes.next_multiple_of(LINE).max(LINE);
    (length, (room / length).max(1) * length)
}

#[cfg(test)]
mod tests {
    use super::parts;

    /// Each on lines of its own, and as many as there is room for; one at least.
    #[test]
    fn parts_are_whole_lines_within_the_room() {
        assert_eq!(parts(256 << 10, 8), (64, 256 << 10));
        assert_eq!(parts(256 << 10, 64), (64, 256 << 10));
        assert_eq!(parts(256 << 10, 100_000), (100_032, 2 * 100_032));
        assert_eq!(parts(256 << 10, 1 << 20), (1 << 20, 1 << 20));
        assert_eq!(parts(0, 8), (64, 64));
        assert_eq!(parts(256 << 10, 0), (64, 256 << 10));
    }
}
