//! Of an all-reduce over connections all ranks get the same bits: as if each combination of two values gave a new one that says what was
//! combined, and in what order. (The verifier's oracle knows sets only.) Over mapped memory each part is combined by one rank, or by all
//! alike.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use oxccl_schedule::algorithms::{ALGORITHMS, Algorithm};
use oxccl_schedule::ir::{Buffer, Chunk, Needs, Op, Rank, Shape};
use oxccl_types::Collective;

/// A value; equal ones are made alike.
type Value = u64;

fn combine(a: Value, b: Value) -> Value {
    let mut hasher = DefaultHasher::new();
    (a, b).hash(&mut hasher);
    hasher.finish()
}

struct Run<'a> {
    algorithm: &'a Algorithm,
    in_place: bool,
    /// By rank and chunk; of Input only what was written over in place.
    memory: HashMap<(Rank, Chunk), Value>,
    wires: HashMap<(Rank, Rank), VecDeque<Value>>,
}

impl Run<'_> {
    /// The same chunk of Output in place of one of Input that lies there.
    fn at(&self, me: Rank, chunk: Chunk) -> (Rank, Chunk) {
        let buffer = if self.in_place && chunk.buffer == Buffer::Input { Buffer::Output } else { chunk.buffer };
        (me, Chunk { buffer, ..chunk })
    }

    fn read(&self, me: Rank, chunk: Chunk) -> Value {
        // The raw contribution.
        self.memory.get(&self.at(me, chunk)).copied().unwrap_or_else(|| combine(me.into(), chunk.part.into()))
    }

    fn write(&mut self, me: Rank, chunk: Chunk, value: Value) {
        let at = self.at(me, chunk);
        self.memory.insert(at, value);
    }

    fn send(&mut self, me: Rank, to: Rank, value: Value) {
        self.wires.entry((me, to)).or_default().push_back(value);
    }

    /// As the executor: what comes is the first operand, but of partners that both combine it is that of the lower rank.
    fn sum(&self, me: Rank, from: Rank, came: Value, src: Chunk) -> Value {
        let had = self.read(me, src);
        let swapped = self.algorithm.combines_on_both_sides() && from > me;
        if swapped { combine(had, came) } else { combine(came, had) }
    }

    /// Runs an op, unless what it receives has not come.
    fn step(&mut self, me: Rank, op: &Op) -> bool {
        let came = match op.receives_from() {
            None => 0,
            Some(from) => match self.wires.get_mut(&(from, me)).and_then(VecDeque::pop_front) {
                Some(came) => came,
                None => return false,
            },
        };
        match *op {
            Op::Send { to, src } => self.send(me, to, self.read(me, src)),
            Op::Recv { dst, .. } => self.write(me, dst, came),
            Op::RecvReduce { from, src, dst } => self.write(me, dst, self.sum(me, from, came, src)),
            Op::RecvReduceSend { from, to, src, dst } => {
                let sum = self.sum(me, from, came, src);
                dst.into_iter().for_each(|dst| self.write(me, dst, sum));
                self.send(me, to, sum);
            }
            Op::RecvCopySend { to, dst, .. } => {
                self.write(me, dst, came);
                self.send(me, to, came);
            }
            Op::Copy { src, dst } => self.write(me, dst, self.read(me, src)),
            Op::Reduce { a, b, dst } => self.write(me, dst, combine(self.read(me, a), self.read(me, b))),
            Op::Move { .. } | Op::Signal | Op::Wait { .. } => panic!("{op} in a program of messages"),
        }
        true
    }
}

/// What every rank has in Output, by channel and part.
fn results(algorithm: &Algorithm, shape: &Shape) -> Vec<Vec<Value>> {
    let (memory, wires) = (HashMap::new(), HashMap::new());
    let mut run = Run { algorithm, in_place: shape.in_place, memory, wires };
    let schedule = algorithm.schedule(shape);
    let lanes = |rank: usize| schedule.programs[rank].channels.iter().flatten();
    // Channels one after the other: each has parts of its own.
    let mut left: Vec<VecDeque<&Op>> = (0..shape.ranks as usize).map(|rank| lanes(rank).collect()).collect();
    while left.iter().any(|ops| !ops.is_empty()) {
        let mut moved = false;
        for (me, ops) in left.iter_mut().enumerate() {
            while ops.front().is_some_and(|op| run.step(me as Rank, op)) {
                ops.pop_front();
                moved = true;
            }
        }
        assert!(moved, "{} {shape:?}: nobody goes on", algorithm.name);
    }
    let of = |me: Rank| {
        let mut parts: Vec<_> =
            run.memory.iter().filter(|((r, c), _)| *r == me && c.buffer == Buffer::Output).collect();
        parts.sort();
        parts.into_iter().map(|(_, value)| *value).collect()
    };
    (0..shape.ranks).map(of).collect()
}

#[test]
fn all_ranks_get_the_same_bits() {
    let mut seen = HashMap::new();
    for a in ALGORITHMS.iter().filter(|a| a.needs == Needs::Messages) {
        for ranks in 2..=16 {
            for local in (1..=ranks).filter(|local| ranks % local == 0) {
                for (channels, in_place) in [(1, false), (1, true), (2, false)] {
                    let shape = Shape { collective: Collective::AllReduce, ranks, root: 0, channels, in_place, local };
                    if a.supports(&shape) {
                        let found = results(a, &shape);
                        assert!(!found[0].is_empty() && found.windows(2).all(|w| w[0] == w[1]), "{} {shape:?}", a.name);
                        *seen.entry(a.name).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    assert!(seen.len() == 7 && seen.values().all(|shapes| *shapes > 50), "{seen:?}");
}
