//! The oracle: runs a schedule on symbols and says whether the outputs are what the collective promises.
//!
//! Every cell of Input holds one contribution, named by rank, block and cell. Ops move and combine sets of them.

use crate::defect::{Defect, Kind};
use crate::engine::{self, Step};
use crate::ir::{Buffer, Chunk, Op, Place, Rank, Schedule, Shape};
use crate::memory::Layout;
use std::collections::{BTreeMap, VecDeque};

/// What a cell of an output must hold: the contributions of `from` (all ranks, if `None`) to block `block` of Input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Block of the givers' Input.
    pub block: u32,
    /// The only giver; `None`: the reduction over all ranks.
    pub from: Option<Rank>,
}

/// The postcondition of every collective: what block `block` of the Output of `rank` holds in the end.
pub fn promise(shape: &Shape, rank: Rank, block: u32) -> Promise {
    use oxccl_types::Collective as C;
    match shape.collective {
        C::AllReduce | C::Reduce => Promise { block: 0, from: None },
        C::ReduceScatter => Promise { block: rank, from: None },
        C::AllGather | C::Gather => Promise { block: 0, from: Some(block) },
        C::Broadcast => Promise { block: 0, from: Some(shape.root) },
        C::Scatter => Promise { block: rank, from: Some(shape.root) },
        C::AllToAll | C::AllToAllV | C::Send | C::Recv => Promise { block: rank, from: Some(block) },
    }
}

/// Runs `s` in `pieces` iterations, with as many slots as its messages need, and checks the outputs.
///
/// # Errors
/// The first defect. The schedule must be well formed (see [`crate::verify::verify`], which runs the oracle too).
pub fn run(s: &Schedule, pieces: u32) -> Result<(), Defect> {
    let layout = Layout::new(s, pieces)?;
    let mut oracle = Oracle::new(s, &layout);
    for channel in 0..s.shape.channels {
        if let Err(stuck) = engine::run(s, channel, u32::MAX, pieces, |step| oracle.step(channel, step))? {
            let (step, _) = stuck.steps[0];
            let what = "never runs".to_owned();
            return Err(Defect::at_op(Kind::Deadlock, s, step.rank, channel, step.op, what));
        }
    }
    oracle.finish()
}

/// A set of contributions to one cell of one block of Input. 0 is the empty set: undefined memory.
type Value = u32;

/// Marks a cell that holds what the caller put there.
const RAW: u32 = 1 << 31;

pub(crate) struct Oracle<'a> {
    schedule: &'a Schedule,
    layout: &'a Layout,
    /// Memory: a value per cell, perhaps with `RAW`.
    cells: Vec<Value>,
    /// Of each value the block and cell.
    origins: Vec<(u32, u32)>,
    /// Of each value the set of ranks, `words` words.
    ranks: Vec<u64>,
    words: usize,
    /// Messages under way, by sender and receiver; channels run one after the other.
    messages: BTreeMap<(Rank, Rank), VecDeque<Vec<Value>>>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(schedule: &'a Schedule, layout: &'a Layout) -> Oracle<'a> {
        let words = (schedule.shape.ranks as usize).div_ceil(64);
        let mut oracle = Oracle {
            schedule,
            layout,
            cells: vec![0; layout.len()],
            origins: vec![(0, 0)],
            ranks: vec![0; words],
            words,
            messages: BTreeMap::new(),
        };
        for rank in 0..schedule.shape.ranks {
            for block in 0..schedule.shape.input_blocks(rank) {
                let range = layout.block(rank, Buffer::Input, block);
                for (i, cell) in range.enumerate() {
                    oracle.cells[cell] = oracle.origins.len() as u32 | RAW;
                    oracle.origins.push((block, i as u32));
                    let at = oracle.ranks.len();
                    oracle.ranks.resize(at + words, 0);
                    oracle.ranks[at + rank as usize / 64] = 1 << (rank % 64);
                }
            }
        }
        oracle
    }

    /// Runs one op.
    pub(crate) fn step(&mut self, channel: u32, step: Step) -> Result<(), Defect> {
        let me = step.rank;
        let run = Run { channel, step };
        match &self.schedule.programs[me as usize].channels[channel as usize][step.op] {
            Op::Send { to, src } => {
                let message = self.load(run, me, src)?;
                self.send(me, *to, message);
            }
            Op::Recv { from, dst } => {
                let message = self.receive(run, *from)?;
                self.store(run, me, dst, &message);
            }
            Op::RecvReduce { from, src, dst } => {
                let sum = self.receive_reduce(run, *from, src)?;
                self.store(run, me, dst, &sum);
            }
            Op::RecvReduceSend { from, to, src, dst } => {
                let sum = self.receive_reduce(run, *from, src)?;
                if let Some(dst) = dst {
                    self.store(run, me, dst, &sum);
                }
                self.send(me, *to, sum);
            }
            Op::RecvCopySend { from, to, dst } => {
                let message = self.receive(run, *from)?;
                self.store(run, me, dst, &message);
                self.send(me, *to, message);
            }
            Op::Copy { src, dst } => {
                let data = self.load(run, me, src)?;
                self.store(run, me, dst, &data);
            }
            Op::Reduce { a, b, dst } => {
                let (a, b) = (self.load(run, me, a)?, self.load(run, me, b)?);
                let sum = self.combine(run, a, &b)?;
                self.store(run, me, dst, &sum);
            }
            Op::Move { srcs, dsts } => self.transfer(run, srcs, dsts)?,
            Op::Signal | Op::Wait { .. } => {}
        }
        Ok(())
    }

    /// `Op::Move`: all sources are read before any destination is written.
    fn transfer(&mut self, run: Run, srcs: &[Place], dsts: &[Place]) -> Result<(), Defect> {
        let mut sum = Vec::new();
        for (i, src) in srcs.iter().enumerate() {
            let data = self.load(run, src.rank, &src.chunk)?;
            sum = if i == 0 { data } else { self.combine(run, sum, &data)? };
        }
        for dst in dsts {
            self.store(run, dst.rank, &dst.chunk, &sum);
        }
        Ok(())
    }

    /// Checks the outputs of all ranks.
    pub(crate) fn finish(&self) -> Result<(), Defect> {
        let shape = &self.schedule.shape;
        for rank in 0..shape.ranks {
            for block in 0..shape.output_blocks(rank) {
                let Promise { block: from_block, from } = promise(shape, rank, block);
                for (i, cell) in self.layout.block(rank, Buffer::Output, block).enumerate() {
                    let value = self.cells[cell] & !RAW;
                    let want = (from_block, i as u32);
                    if value == 0 || self.origins[value as usize] != want || !self.is_set_of(value, from) {
                        let who = from.map_or("all ranks".to_owned(), |q| format!("rank {q}"));
                        let what = format!(
                            "output block {block} cell {i} of {} holds {}, promised is block {from_block} of {who}",
                            self.layout.per_block(),
                            self.words_for(value)
                        );
                        return Err(Defect::at_rank(Kind::Result, rank, what));
                    }
                }
            }
        }
        Ok(())
    }

    fn set(&self, value: Value) -> &[u64] {
        &self.ranks[value as usize * self.words..][..self.words]
    }

    /// Whether `value` is exactly the contribution of `from`, or of all ranks.
    fn is_set_of(&self, value: Value, from: Option<Rank>) -> bool {
        let count: u32 = self.set(value).iter().map(|w| w.count_ones()).sum();
        match from {
            None => count == self.schedule.shape.ranks,
            Some(q) => count == 1 && self.set(value)[q as usize / 64] >> (q % 64) & 1 == 1,
        }
    }

    fn words_for(&self, value: Value) -> String {
        if value == 0 {
            return "nothing".into();
        }
        let (block, cell) = self.origins[value as usize];
        let all = 0..self.schedule.shape.ranks;
        let ranks: Vec<_> = all.filter(|q| self.set(value)[*q as usize / 64] >> (q % 64) & 1 == 1).collect();
        format!("block {block} cell {cell} of ranks {ranks:?}")
    }

    fn defect(&self, kind: Kind, run: Run, what: String) -> Defect {
        Defect::at_op(kind, self.schedule, run.step.rank, run.channel, run.step.op, what)
    }

    fn load(&self, run: Run, rank: Rank, chunk: &Chunk) -> Result<Vec<Value>, Defect> {
        let range = self.layout.cells(&Place { rank, chunk: *chunk }, run.channel, run.step.piece);
        let data = &self.cells[range];
        if data.contains(&0) {
            let what = format!("reads {chunk} of rank {rank} in iteration {}, which holds nothing", run.step.piece);
            return Err(self.defect(Kind::Undefined, run, what));
        }
        let wants_raw = chunk.buffer == Buffer::Input;
        if self.schedule.shape.collective.reduces() && data.iter().any(|v| (v & RAW != 0) != wants_raw) {
            let holds = if wants_raw { "a sum" } else { "a raw contribution" };
            let what = format!("reads {chunk} of rank {rank}, which holds {holds}");
            return Err(self.defect(Kind::Raw, run, what));
        }
        Ok(data.iter().map(|v| v & !RAW).collect())
    }

    fn store(&mut self, run: Run, rank: Rank, chunk: &Chunk, data: &[Value]) {
        let range = self.layout.cells(&Place { rank, chunk: *chunk }, run.channel, run.step.piece);
        // Lengths are equal in a well-formed schedule; a broken one ends as a wrong result, not as a panic.
        for (cell, value) in self.cells[range].iter_mut().zip(data) {
            *cell = *value;
        }
    }

    fn send(&mut self, from: Rank, to: Rank, message: Vec<Value>) {
        self.messages.entry((from, to)).or_default().push_back(message);
    }

    fn receive(&mut self, run: Run, from: Rank) -> Result<Vec<Value>, Defect> {
        let message = self.messages.get_mut(&(from, run.step.rank)).and_then(VecDeque::pop_front);
        message.ok_or_else(|| self.defect(Kind::Pairing, run, format!("no message from {from} is under way")))
    }

    fn receive_reduce(&mut self, run: Run, from: Rank, src: &Chunk) -> Result<Vec<Value>, Defect> {
        let own = self.load(run, run.step.rank, src)?;
        let message = self.receive(run, from)?;
        self.combine(run, message, &own)
    }

    fn combine(&mut self, run: Run, mut a: Vec<Value>, b: &[Value]) -> Result<Vec<Value>, Defect> {
        for (x, &y) in a.iter_mut().zip(b) {
            if self.origins[*x as usize] != self.origins[y as usize] {
                let what = format!("adds {} to {}", self.words_for(*x), self.words_for(y));
                return Err(self.defect(Kind::Mixed, run, what));
            }
            if self.set(*x).iter().zip(self.set(y)).any(|(p, q)| p & q != 0) {
                let what = format!("counts twice: {} and {}", self.words_for(*x), self.words_for(y));
                return Err(self.defect(Kind::Double, run, what));
            }
            let sum = self.origins.len() as Value;
            self.origins.push(self.origins[y as usize]);
            for w in 0..self.words {
                let word = self.set(*x)[w] | self.set(y)[w];
                self.ranks.push(word);
            }
            *x = sum;
        }
        Ok(a)
    }
}

/// Where the oracle is.
#[derive(Clone, Copy)]
struct Run {
    channel: u32,
    step: Step,
}
