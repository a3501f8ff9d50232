//! Memory that ranks write in turns or over and over, slots, scratch and rings, of two ranks and of such that share cores: calls
//! of all kinds in any order, of lengths around those of slots,
//! from and to memory that the other ranks can map or not, in place or not, one at a time and several before anybody waits. No two calls move
//! the same bytes, so that what an earlier one left would be seen.
//!
//! Each rank is a process of its own: this binary started again. The seed is printed; `OXCCL_TEST_SEED` sets it.

mod common;
#[path = "common/workers.rs"]
mod workers;

use std::sync::Arc;
use std::time::Duration;

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{CommConfig, Communicator, OpScalar, Operator, Request, VCounts, group};
use oxccl_types::{Collective, DataType, ReduceOp};

/// How a process is told what to do: rank, seed, id, ranks.
const VARIABLE: &str = "OXCCL_TEST_TURNS";
/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of mapped memory of a rank.
const ARENA: usize = 16 << 20;
/// Fewer where ranks share cores, since a turn there takes a time slice of whatever else runs.
const ROUNDS: [usize; 2] = [400, 100];
/// Cores of more ranks than two.
const CORES: usize = 2;

#[test]
fn whatever_two_ranks_call_they_get_what_was_given() {
    play(2);
}

#[test]
fn whatever_ranks_that_share_cores_call_they_get_what_was_given() {
    play(2 * CORES + 1);
}

fn play(ranks: usize) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("OXCCL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now | 1);
    // As the machine is; with the kernel's copies forbidden, so that all goes by slots, scratch and rings; and with short ones.
    // With all but scratch forbidden, also where memory is mapped: pieces of one block or two, long or short, behind each other.
    // Last with more by slots than usual.
    let no_mapped = "^one_shot,two_shot,shared_one_shot";
    for settings in [
        ["auto", "512K", "", "8192"],
        ["shm", "512K", "", "8192"],
        ["shm", "64K", "", "8192"],
        ["auto", "64K", no_mapped, "8192"],
        ["shm", "512K", no_mapped, "8192"],
        ["shm", "512K", "", "65536"],
    ] {
        let [p2p, scratch, algorithms, eager] = settings;
        println!(
            "OXCCL_TEST_SEED={seed} OXCCL_P2P={p2p} OXCCL_SCRATCH={scratch} OXCCL_ALGO={algorithms} OXCCL_EAGER_LIMIT={eager}"
        );
        run(ranks, seed, settings);
    }
}

fn run(ranks: usize, seed: u64, [p2p, scratch, algorithms, eager]: [&str; 4]) {
    let what = format!("{ranks} ranks, seed {seed}, {p2p}, {scratch}, {algorithms}, {eager}");
    workers::run(ranks, LIMIT, &what, |command, rank, id| {
        command
            .env(VARIABLE, format!("{rank} {seed} {id} {ranks}"))
            .env("OXCCL_P2P", p2p)
            .env("OXCCL_SCRATCH", scratch)
            .env_remove("OXCCL_EAGER_LIMIT")
            .env_remove("OXCCL_ALGO");
        // Set, it would not be found by the cost model.
        if eager != "8192" {
            command.env("OXCCL_EAGER_LIMIT", eager);
        }
        if !algorithms.is_empty() {
            command.env("OXCCL_ALGO", algorithms);
        }
    });
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test turns` runs it in processes of their own"]
fn worker() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let id = workers::id(words[2]);
    let (rank, seed): (usize, u64) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let ranks: usize = words[3].parse().unwrap();
    if ranks > 2 {
        workers::stay_on(CORES);
    }
    let comm = Communicator::init_rank(ranks as i32, id, rank as i32, rank, CommConfig::default(), "test").unwrap();
    let arena = device::alloc(ARENA).unwrap();
    let own = Random(seed.rotate_left(17) ^ (rank as u64 + 1) << 40 | 1);
    let mut side = Side { comm, stream: Stream::new().unwrap(), rank, ranks, arena, used: 0, own, mapped: false };
    side.plays(Random(seed | 1));
    side.hurries();
    side.takes_turns(Random(seed.rotate_left(29) | 1));
    if ranks > 2 {
        side.votes(Random(seed | 1));
    } else {
        side.repeats();
        // As the machine is: elsewhere the kernel copies nothing.
        if std::env::var("OXCCL_P2P").as_deref() == Ok("auto") && std::env::var("OXCCL_ALGO").is_err() {
            side.sends_long();
        }
    }
    side.comm.destroy().unwrap();
    // SAFETY: nobody uses it any more.
    unsafe { device::free(arena).unwrap() };
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// Element `i` of what rank `of` gives in call `number`.
fn given(number: u64, of: usize, i: usize) -> u32 {
    let x = (number << 36 ^ (of as u64) << 32 ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 29) as u32
}

/// What an output holds before, and where nothing is written.
const UNTOUCHED: u32 = 0xdead_beef;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Collective(Collective),
    /// From the root to the next.
    Message,
    /// From each to the next.
    Swap,
    /// From each to each, of several lengths.
    Parts,
}

/// What the sum of a call multiplies each rank's elements with before.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Scale {
    No,
    /// By what was read when the operator was made, or when the call starts.
    Host,
    Memory,
}

/// The factor of rank `of` in call `number`, where there is one.
fn factor(number: u64, of: usize) -> u32 {
    given(number, of, 1 << 24) | 1
}

/// Elements of the part of rank `from` for rank `to` in call `number` of `count`: none, some or all of a block.
fn part(number: u64, count: usize, from: usize, to: usize) -> usize {
    count * ((number as usize + from + 2 * to) % 4) / 3 % (count + 1)
}

/// Where in the output, in blocks, the input of one block may lie: that of the root, where there is one.
fn blocks_before(collective: Collective, rank: usize) -> Option<usize> {
    match collective {
        Collective::Broadcast | Collective::Reduce | Collective::AllReduce => Some(0),
        Collective::Gather | Collective::AllGather => Some(rank),
        _ => None,
    }
}

/// A call under way on this rank.
struct Call {
    kind: Kind,
    number: u64,
    count: usize,
    root: usize,
    scale: Scale,
    factor: Box<u32>,
    input: *mut u32,
    output: *mut u32,
    /// Elements of the output that may be looked at.
    looked_at: usize,
    /// Where they are, if not in the arena.
    _memory: [Vec<u32>; 2],
}

struct Side {
    comm: Arc<Communicator>,
    stream: Stream,
    rank: usize,
    ranks: usize,
    arena: *mut u8,
    used: usize,
    /// Draws what concerns this rank alone.
    own: Random,
    /// All its memory is such that others can map it.
    mapped: bool,
}

impl Side {
    fn plays(&mut self, mut both: Random) {
        let mut number = 0;
        for round in 0..ROUNDS[usize::from(self.ranks > 2)] {
            self.used = 0;
            let calls = [1, 1, 2, 5, 12, 40][both.below(if self.ranks > 2 { 6 } else { 5 })];
            let grouped = both.below(4) == 0;
            let (kind, same) = (self.kind(&mut both), both.below(3) == 0);
            let (count, root) = (Self::count(&mut both), both.below(self.ranks));
            let all: Vec<Call> = (0..calls)
                .map(|_| {
                    number += 1;
                    match same {
                        true => self.call(kind, number, count, root),
                        false => {
                            let (kind, count) = (self.kind(&mut both), Self::count(&mut both));
                            self.call(kind, number, count, both.below(self.ranks))
                        }
                    }
                })
                .collect();
            if grouped {
                group::start();
            }
            for call in &all {
                // One is late now and then.
                let late = if self.own.below(20) == 0 { 100 } else { 0 };
                (0..late).for_each(|_| std::thread::yield_now());
                self.submit(call);
            }
            if grouped {
                group::end().unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
            self.stream.synchronize().unwrap_or_else(|e| panic!("round {round}: {e}"));
            all.iter().for_each(|call| self.check(call, round));
        }
    }

    /// The last rank gives the others much and gets little, so that it is always the first to go on, while the others take what it
    /// gave, to memory that was never touched, which is slow: what they have not taken must not be written over. A broadcast
    /// of its own in between lets it be ahead by a call more.
    fn hurries(&mut self) {
        const CALLS: usize = 40;
        // Longer than what the allocator ever serves from memory that was in use before.
        const FRESH: usize = 9 << 20;
        let hasty = self.ranks - 1;
        // Of the others, some give so little that it needs no slot, or a smaller one, of which there are more.
        let shapes = [(15_000, 6), (2000, 6), (40_000, 6), (16_384, 6), (3000, 1500), (1000, 500), (3000, 10)];
        for (round, (count, less)) in shapes.into_iter().cycle().take(24).enumerate() {
            let sent = |from, to| if from == to { 0 } else { count / if from == hasty { 1 } else { less } };
            let (mut fresh, mut used) = (vec![0_u32; FRESH], 0);
            let calls: Vec<Call> = (0..CALLS)
                .map(|i| {
                    let number = (1 << 20) + (round * CALLS + i) as u64;
                    let broadcast = round / 4 % 2 == 1 && i % 2 == 1;
                    let kind = if broadcast { Kind::Collective(Collective::Broadcast) } else { Kind::Parts };
                    // Longer than a line or slot has room for, and short to make.
                    let count = if broadcast { [2100, 6000][round / 8 % 2] } else { count };
                    let elements = if broadcast { count } else { self.ranks * count };
                    let mut input: Vec<u32> = (0..elements).map(|i| given(number, self.rank, i)).collect();
                    let input_at = input.as_mut_ptr();
                    let output = fresh[used..used + elements].as_mut_ptr();
                    used += elements;
                    let _memory = [input, Vec::new()];
                    let (scale, factor) = (Scale::No, Box::new(1));
                    let (root, looked_at) = (hasty, elements);
                    Call { kind, number, count, root, scale, factor, input: input_at, output, looked_at, _memory }
                })
                .collect();
            let lists = |me: usize| VCounts {
                send_counts: (0..self.ranks).map(|to| sent(me, to)).collect(),
                recv_counts: (0..self.ranks).map(|from| sent(from, me)).collect(),
                send_displs: (0..self.ranks).map(|r| r * count).collect(),
                recv_displs: (0..self.ranks).map(|r| r * count).collect(),
            };
            for call in &calls {
                match call.kind {
                    Kind::Parts => self.submit_with(call, Collective::AllToAllV, 0, Some(Box::new(lists(self.rank)))),
                    _ => self.submit(call),
                }
            }
            self.stream.synchronize().unwrap_or_else(|e| panic!("round {round}: {e}"));
            let mut rest = &fresh[..];
            for (i, call) in calls.iter().enumerate() {
                let (got, after) = rest.split_at(call.looked_at);
                rest = after;
                let (parts, count) = (call.kind == Kind::Parts, call.count);
                let wrong = got.iter().enumerate().find(|(i, got)| {
                    let (from, k) = (*i / count, *i % count);
                    let want = match parts {
                        true if k < sent(from, self.rank) => given(call.number, from, self.rank * count + k),
                        true => 0,
                        false => given(call.number, hasty, *i),
                    };
                    **got != want
                });
                assert_eq!(wrong, None, "rank {}, round {round} of {count}, call {i}, parts: {parts}", self.rank);
            }
        }
    }

    /// Long blocks of private memory, over and over from and to the same, so that the kernel puts most of it on large pages and copies
    /// that, while the ends go by slots.
    fn sends_long(&mut self) {
        const COUNT: usize = (5 << 20) / 4 + 77;
        let (mut input, mut output) = (vec![0_u32; 2 * COUNT], vec![0_u32; 2 * COUNT]);
        let [broadcast, scatter] = [Collective::Broadcast, Collective::Scatter].map(Kind::Collective);
        let shapes = [
            (broadcast, 0, false),
            (broadcast, 1, true),
            (scatter, 1, false),
            (scatter, 0, true),
            (Kind::Swap, 0, false),
        ];
        for (n, (kind, root, in_place)) in shapes.into_iter().enumerate() {
            for round in 0..6 {
                let number = (1 << 22) + 6 * n as u64 + round as u64;
                output.fill(UNTOUCHED);
                input.iter_mut().enumerate().for_each(|(i, value)| *value = given(number, self.rank, i));
                let (input, all) = (input.as_mut_ptr(), output.as_mut_ptr());
                let (output, looked_at) = match kind {
                    _ if !in_place || self.rank != root => (all, 2 * COUNT),
                    Kind::Collective(Collective::Scatter) => (input.wrapping_add(root * COUNT), COUNT),
                    _ => (input, COUNT),
                };
                let (scale, factor, _memory) = (Scale::No, Box::new(1), [Vec::new(), Vec::new()]);
                let call = Call { kind, number, count: COUNT, root, scale, factor, input, output, looked_at, _memory };
                self.submit(&call);
                self.stream.synchronize().unwrap_or_else(|e| panic!("round {round}: {e}"));
                self.check(&call, round);
            }
        }
    }

    /// Calls of a few KiB, many before anybody waits. For a while the memory of all is mapped, then that of some is not, of one
    /// or now and then: which way the calls go hangs on what earlier ones said of it.
    fn votes(&mut self, mut both: Random) {
        const KINDS: [Collective; 4] =
            [Collective::AllReduce, Collective::ReduceScatter, Collective::AllToAll, Collective::AllGather];
        let mut number = 2 << 20;
        let mut kind = KINDS[0];
        for round in 0..36 {
            self.used = 0;
            // Over several rounds the same: a vote counts some time later.
            if round % 6 == 0 {
                kind = KINDS[both.below(KINDS.len())];
            }
            let other = both.below(self.ranks);
            let calls: Vec<Call> = (0..1 + both.below(60))
                .map(|_| {
                    number += 1;
                    self.mapped = match round / 6 % 3 {
                        0 => true,
                        1 => self.rank != other,
                        _ => self.own.below(50) != 0,
                    };
                    let kind = if both.below(8) == 0 { KINDS[both.below(KINDS.len())] } else { kind };
                    let count = [513, 600, 1000, 1024][both.below(4)];
                    self.call(Kind::Collective(kind), number, count, 0)
                })
                .collect();
            for call in &calls {
                let late = if self.own.below(40) == 0 { 100 } else { 0 };
                (0..late).for_each(|_| std::thread::yield_now());
                self.submit(call);
            }
            self.stream.synchronize().unwrap_or_else(|e| panic!("votes, round {round}: {e}"));
            calls.iter().for_each(|call| self.check(call, round));
        }
        self.mapped = false;
    }

    /// Many small calls before anybody waits: those by which all reduce, plain and scaled, by turns with such that have a root, which
    /// is another rank each time or stays. Who gives is ahead of those who take, who give in the next call.
    fn takes_turns(&mut self, mut both: Random) {
        const ROOTED: [Collective; 4] =
            [Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter];
        const SCALES: [Scale; 4] = [Scale::No, Scale::Host, Scale::No, Scale::Memory];
        const COUNTS: [usize; 8] = [1, 3, 16, 100, 500, 513, 1000, 1024];
        let mut number = 3 << 20;
        for round in 0..if self.ranks > 2 { 12 } else { 50 } {
            self.used = 0;
            self.mapped = both.below(2) == 0;
            let (every, first, moves) = (1 + both.below(4), both.below(self.ranks), both.below(3));
            let (count, same) = (COUNTS[both.below(COUNTS.len())], both.below(2) == 0);
            let calls: Vec<Call> = (0..1 + both.below(80))
                .map(|i| {
                    number += 1;
                    let count = if same { count } else { COUNTS[both.below(COUNTS.len())] };
                    let rooted = i % (every + 1) == 0;
                    let reduces = if both.below(6) == 0 { Collective::AllReduce } else { Collective::ReduceScatter };
                    let collective = if rooted { ROOTED[both.below(ROOTED.len())] } else { reduces };
                    let root = if rooted { (first + i * moves) % self.ranks } else { 0 };
                    let mut call = self.call(Kind::Collective(collective), number, count, root);
                    let scales = !rooted || collective == Collective::Reduce;
                    call.scale = if scales { SCALES[both.below(SCALES.len())] } else { Scale::No };
                    call
                })
                .collect();
            for call in &calls {
                let late = if self.own.below(40) == 0 { 100 } else { 0 };
                (0..late).for_each(|_| std::thread::yield_now());
                self.submit(call);
            }
            self.stream.synchronize().unwrap_or_else(|e| panic!("turns, round {round}: {e}"));
            calls.iter().for_each(|call| self.check(call, round));
        }
        self.mapped = false;
    }

    /// AlltoAllv of two ranks with the same lists again and again, as the C interface makes it. Rank 0 gives little and goes the short
    /// way, while what it is given lies where that does not look: in an area that both write in turns, since its memory is none
    /// that others can map; and now and then in a line, a slot or mapped memory instead.
    fn repeats(&mut self) {
        const CALLS: usize = 60;
        // Elements that each gives the other, and itself.
        const SHAPES: [[usize; 2]; 6] = [[7, 3000], [300, 3000], [30, 5000], [7, 30], [300, 500], [0, 9000]];
        const OWN: usize = 3;
        let (me, peer) = (self.rank, 1 - self.rank);
        let mut again = 0;
        for (round, gives) in SHAPES.iter().cycle().take(4 * SHAPES.len()).enumerate() {
            // The part of or for rank 1 comes behind the other.
            let places = |other: usize| vec![1, if me == 0 { OWN } else { other } + 2];
            let counts = |other: usize| if me == 0 { vec![OWN, other] } else { vec![other, OWN] };
            let v = VCounts {
                send_counts: counts(gives[me]),
                send_displs: places(gives[me]),
                recv_counts: counts(gives[peer]),
                recv_displs: places(gives[peer]),
            };
            for i in 0..CALLS {
                let number = (4 << 20) + (round * CALLS + i) as u64;
                self.used = 0;
                self.mapped = self.own.below(8) == 0;
                let (elements, room) = (OWN + gives[me] + 3, OWN + gives[peer] + 3);
                let mut own = vec![0_u32; elements];
                let input = if self.mapped { self.memory(elements).0 } else { own.as_mut_ptr() };
                // SAFETY: inside of the input, which nobody else uses now.
                (0..elements).for_each(|i| unsafe { input.add(i).write(given(number, me, i)) });
                let mut output = vec![UNTOUCHED; room];
                again += usize::from(self.repeat(&v, input, output.as_mut_ptr()));
                self.stream.synchronize().unwrap_or_else(|e| panic!("repeats, round {round}: {e}"));
                let mut expected = vec![UNTOUCHED; room];
                for from in 0..2 {
                    let count = if from == me { OWN } else { gives[from] };
                    let at = v.recv_displs[from];
                    let first = if from == 0 { OWN } else { gives[1] };
                    let there = [1, first + 2][me];
                    (0..count).for_each(|i| expected[at + i] = given(number, from, there + i));
                }
                let wrong = output.iter().zip(&expected).position(|(got, want)| got != want);
                assert_eq!(
                    wrong, None,
                    "rank {me}, repeats, round {round}, call {i}: {gives:?}, mapped {}",
                    self.mapped
                );
            }
        }
        self.mapped = false;
        println!("rank {me} made {again} calls again");
    }

    /// Whether the call was made as the last one was.
    fn repeat(&self, v: &VCounts, input: *const u32, output: *mut u32) -> bool {
        let lists = [&v.send_counts[..], &v.send_displs, &v.recv_counts, &v.recv_displs];
        let (dtype, send, recv) = (DataType::Uint32, input.cast::<u8>(), output.cast::<u8>());
        if self.comm.may_repeat(dtype, &lists) && self.comm.again_v(dtype, &lists, send, recv, &self.stream) {
            return true;
        }
        let request = Request {
            collective: Collective::AllToAllV,
            send,
            recv,
            count: 0,
            dtype,
            op: Operator::Builtin(ReduceOp::Sum),
            root: 0,
            bias: std::ptr::null(),
            v: Some(Box::new(v.clone())),
            stream: self.stream.clone(),
        };
        self.comm.submit(request).unwrap();
        false
    }

    fn kind(&self, random: &mut Random) -> Kind {
        const COLLECTIVES: [Collective; 8] = [
            Collective::AllReduce,
            Collective::AllGather,
            Collective::AllToAll,
            Collective::ReduceScatter,
            Collective::Broadcast,
            Collective::Reduce,
            Collective::Gather,
            Collective::Scatter,
        ];
        // Of ranks that share cores these go by slots or not, as the root says.
        if self.ranks > 2 && random.below(3) == 0 {
            return Kind::Collective(Collective::Gather);
        }
        match random.below(14) {
            i @ 0..8 => Kind::Collective(COLLECTIVES[i]),
            8..10 => Kind::Message,
            10..12 => Kind::Swap,
            _ => Kind::Parts,
        }
    }

    fn count(random: &mut Random) -> usize {
        const EDGES: [usize; 11] = [1, 8, 16, 512, 2048, 4096, 8192, 16_384, 32_768, 65_536, 70_000];
        match random.below(24) {
            // As long as a ring, or longer.
            0 => 262_000 + random.below(50_000),
            // Some pieces of a half of the scratch for one slot or two, or of all of it, long or short.
            1 => {
                const PIECES: [usize; 6] = [3072, 6144, 14_336, 24_576, 49_152, 114_688];
                (1 + random.below(5)) * PIECES[random.below(PIECES.len())] + random.below(3) - 1
            }
            2..6 => 1 + random.below(40_000),
            _ => (EDGES[random.below(EDGES.len())] + random.below(3)).saturating_sub(1).max(1),
        }
    }

    /// `count` elements of memory that the other can map or not, as this rank draws it.
    fn memory(&mut self, count: usize) -> (*mut u32, Vec<u32>) {
        let bytes = (4 * count).next_multiple_of(64);
        if (self.mapped || self.own.below(3) == 0) && self.used + bytes <= ARENA {
            self.used += bytes;
            return (self.arena.wrapping_add(self.used - bytes).cast(), Vec::new());
        }
        let mut memory = vec![0; count];
        (memory.as_mut_ptr(), memory)
    }

    fn call(&mut self, kind: Kind, number: u64, count: usize, root: usize) -> Call {
        let ((mut input, a), (mut output, b)) = (self.memory(self.ranks * count), self.memory(self.ranks * count));
        (0..self.ranks * count).for_each(|i| {
            // SAFETY: inside of the output, which nobody else uses now.
            unsafe { output.add(i).write(UNTOUCHED) };
        });
        let rooted = !matches!(kind, Kind::Collective(c) if !c.rooted());
        let in_place = (root == self.rank || !rooted) && self.own.below(3) == 0;
        let (mut given_here, mut looked_at) = (self.ranks * count, self.ranks * count);
        if let (true, Kind::Collective(c)) = (in_place, kind)
            && let Some(blocks) = blocks_before(c, self.rank)
        {
            (input, given_here) = (output.wrapping_add(blocks * count), count);
        }
        if in_place && kind == Kind::Collective(Collective::ReduceScatter) {
            (output, looked_at) = (input.wrapping_add(self.rank * count), count);
        }
        for i in 0..given_here {
            // SAFETY: as above, or inside of the input.
            unsafe { input.add(i).write(given(number, self.rank, i)) };
        }
        let (scale, factor) = (Scale::No, Box::new(factor(number, self.rank)));
        Call { kind, number, count, root, scale, factor, input, output, looked_at, _memory: [a, b] }
    }

    fn submit_with(&self, call: &Call, collective: Collective, root: usize, v: Option<Box<VCounts>>) {
        let request = Request {
            collective,
            send: call.input.cast::<u8>().cast_const(),
            recv: call.output.cast(),
            count: call.count,
            dtype: DataType::Uint32,
            op: self.operator(call),
            root,
            bias: std::ptr::null(),
            v,
            stream: self.stream.clone(),
        };
        self.comm.submit(request).unwrap();
    }

    fn operator(&self, call: &Call) -> Operator {
        let mut host = [0; 8];
        host[..4].copy_from_slice(&call.factor.to_le_bytes());
        let scalar = match call.scale {
            Scale::No => return Operator::Builtin(ReduceOp::Sum),
            Scale::Host => OpScalar::Host(host),
            Scale::Memory => OpScalar::Device((&raw const *call.factor).cast()),
        };
        let op = self.comm.create_op(scalar, DataType::Uint32);
        let found = self.comm.find_op(op, DataType::Uint32).unwrap();
        self.comm.destroy_op(op).unwrap();
        found
    }

    fn submit(&self, call: &Call) {
        let submit = |collective, root| {
            let v = (collective == Collective::AllToAllV).then(|| Box::new(self.parts(call)));
            self.submit_with(call, collective, root, v);
        };
        let (next, last) = ((self.rank + 1) % self.ranks, (self.rank + self.ranks - 1) % self.ranks);
        match call.kind {
            Kind::Collective(collective) => submit(collective, call.root),
            Kind::Message if call.root == self.rank => submit(Collective::Send, next),
            Kind::Message if call.root == last => submit(Collective::Recv, last),
            Kind::Message => {}
            Kind::Swap => {
                group::start();
                submit(Collective::Send, next);
                submit(Collective::Recv, last);
                group::end().unwrap();
            }
            Kind::Parts => submit(Collective::AllToAllV, 0),
        }
    }

    /// What goes to whom in `call`: each part at the start of its block.
    fn parts(&self, call: &Call) -> VCounts {
        let starts: Vec<usize> = (0..self.ranks).map(|rank| rank * call.count).collect();
        let of = |from, to| part(call.number, call.count, from, to);
        VCounts {
            send_counts: (0..self.ranks).map(|rank| of(self.rank, rank)).collect(),
            recv_counts: (0..self.ranks).map(|rank| of(rank, self.rank)).collect(),
            send_displs: starts.clone(),
            recv_displs: starts,
        }
    }

    fn expected(&self, call: &Call, i: usize) -> Option<u32> {
        let (me, count) = (self.rank, call.count);
        let of = |rank: usize, i: usize| given(call.number, rank, i);
        let scaled = |rank, i| match call.scale {
            Scale::No => of(rank, i),
            _ => of(rank, i).wrapping_mul(factor(call.number, rank)),
        };
        let sum = |i: usize| (0..self.ranks).map(|rank| scaled(rank, i)).fold(0, u32::wrapping_add);
        let last = (me + self.ranks - 1) % self.ranks;
        let first = i < count;
        if call.kind == Kind::Parts {
            let (from, i) = (i / count, i % count);
            return (i < part(call.number, count, from, me)).then(|| of(from, me * count + i));
        }
        let Kind::Collective(collective) = call.kind else {
            return (first && (call.kind == Kind::Swap || last == call.root)).then(|| of(last, i));
        };
        match collective {
            Collective::AllReduce => first.then(|| sum(i)),
            Collective::AllGather => Some(of(i / count, i % count)),
            Collective::AllToAll => Some(of(i / count, me * count + i % count)),
            Collective::ReduceScatter => first.then(|| sum(me * count + i)),
            Collective::Broadcast => first.then(|| of(call.root, i)),
            Collective::Reduce => (first && me == call.root).then(|| sum(i)),
            Collective::Gather => (me == call.root).then(|| of(i / count, i % count)),
            _ => first.then(|| of(call.root, me * count + i)),
        }
    }

    fn check(&self, call: &Call, round: usize) {
        // SAFETY: the call is over, so the output is this rank's alone.
        let got = |i: usize| unsafe { call.output.add(i).read() };
        let want = |i: usize| self.expected(call, i).unwrap_or(UNTOUCHED);
        let wrong = (0..call.looked_at).find(|i| got(*i) != want(*i)).map(|i| (i, got(i), want(i)));
        let Call { kind, number, count, root, scale, .. } = call;
        let what = format!("{kind:?} of {count}, root {root}, scale {scale:?}");
        assert_eq!(wrong, None, "rank {}, round {round}, call {number}: {what}", self.rank);
    }
}
