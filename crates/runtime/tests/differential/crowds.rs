//! Random mixtures of all that a stream carries where ranks share cores: rooted calls with factors, whose givers run ahead,
//! messages of all lengths, copies, fills and functions of the program, of two communicators, against a model of the buffers.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{CommConfig, Communicator, Operator, Request, UniqueId, VCounts, group};
use oxccl_types::{Collective, ReduceOp, ResultCode};

use crate::common::{Children, wait};
use crate::ends;
use crate::given::Constants;
use crate::job::{seed, told};
use crate::large;
use crate::lent;
use crate::many;
use crate::network::{self, alone};
use crate::runs;
use crate::scenarios::{Comm, Ints, To, request, team};

/// Buffers of long blocks, and of short ones behind them.
const LONG: usize = 4;
const BUFFERS: usize = LONG + 3;
/// Elements of a short block.
const SHORT: usize = 64;

/// A block of a buffer.
type Place = (usize, usize);

/// A message from each rank to the one so many ranks on, or from one rank only.
#[derive(Clone, Copy, Debug)]
struct Message {
    distance: usize,
    only: Option<usize>,
    from: Place,
    to: Place,
}

/// What all ranks do alike.
#[derive(Clone, Debug)]
enum Step {
    Call(Collective, usize, Option<usize>, Place, Place),
    Messages(Vec<Message>),
    Copy(Place, Place),
    Function(Place, i32),
}

/// The value of each block, by rank and buffer.
type Model = Vec<Vec<Vec<i32>>>;

impl Step {
    fn draw(rng: &mut fastrand::Rng, ranks: usize) -> Step {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, Scatter};
        let class = rng.u8(..4) == 0;
        let buffer =
            |rng: &mut fastrand::Rng, short: bool| if short { rng.usize(LONG..BUFFERS) } else { rng.usize(..LONG) };
        let other = |rng: &mut fastrand::Rng, short: bool, than: &[usize]| loop {
            let b = buffer(rng, short);
            if !than.contains(&b) {
                return b;
            }
        };
        let from = buffer(rng, class);
        let to = other(rng, class, &[from]);
        let (from, to) = ((from, rng.usize(..ranks)), (to, rng.usize(..ranks)));
        match rng.u8(..16) {
            0..7 => {
                let sums = [Reduce, Reduce, AllReduce];
                let moves = [Broadcast, Broadcast, Gather, Scatter, AllGather, AllToAll];
                let kind = if rng.u8(..3) == 0 { sums[rng.usize(..3)] } else { moves[rng.usize(..6)] };
                let factor = (matches!(kind, Reduce | AllReduce) && rng.bool()).then(|| rng.usize(..2));
                Step::Call(kind, rng.usize(..ranks), factor, from, to)
            }
            7..13 => {
                let mixed = rng.u8(..4) == 0;
                let mut messages = Vec::new();
                let (mut read, mut written) = (vec![from.0], vec![to.0]);
                for i in 0..1 + rng.usize(..4) / 2 * 2 {
                    let short = class ^ (mixed && i % 2 == 1);
                    let from = other(rng, short, &written);
                    // No buffer is written twice in one group, or read.
                    let free = if short { LONG..BUFFERS } else { 0..LONG };
                    let Some(to) =
                        free.clone().find(|b| *b != from && !read.contains(b) && (i == 0 || !written.contains(b)))
                    else {
                        break;
                    };
                    if !read.contains(&from) {
                        read.push(from);
                    }
                    written.push(to);
                    let only = (rng.u8(..3) == 0).then(|| rng.usize(..ranks));
                    let distance = if rng.u8(..8) == 0 { 0 } else { rng.usize(1..ranks) };
                    messages.push(Message {
                        distance,
                        only,
                        from: (from, rng.usize(..ranks)),
                        to: (to, rng.usize(..ranks)),
                    });
                }
                Step::Messages(messages)
            }
            13..15 => Step::Copy(from, to),
            _ => Step::Function(to, rng.i32(..1000)),
        }
    }

    /// The same, but mostly calls in which one of two roots gives long blocks.
    fn draw_sent(rng: &mut fastrand::Rng, ranks: usize) -> Step {
        loop {
            let step = Step::draw(rng, ranks);
            let gives = |kind: &Collective| matches!(kind, Collective::Broadcast | Collective::Scatter);
            if matches!(&step, Step::Call(kind, 0..2, _, from, _) if gives(kind) && from.0 < LONG) || rng.u8(..20) == 0
            {
                return step;
            }
        }
    }

    fn apply(&self, model: &mut Model, factors: &[i32]) {
        let ranks = model.len();
        let before = model.clone();
        let value = |rank: usize, at: Place| before[rank][at.0][at.1];
        match self {
            Step::Call(kind, root, factor, from, to) => {
                let factor = factor.map_or(1, |f| factors[f]);
                let sum = (0..ranks).map(|r| value(r, *from).wrapping_mul(factor)).fold(0, i32::wrapping_add);
                for (rank, own) in model.iter_mut().enumerate() {
                    match kind {
                        Collective::Broadcast => own[to.0][to.1] = value(*root, *from),
                        Collective::Scatter => own[to.0][to.1] = value(*root, (from.0, rank)),
                        Collective::AllToAll => (0..ranks).for_each(|r| own[to.0][r] = value(r, (from.0, rank))),
                        Collective::Reduce | Collective::Gather if rank != *root => {}
                        Collective::Gather | Collective::AllGather => {
                            (0..ranks).for_each(|r| own[to.0][r] = value(r, *from));
                        }
                        _ => own[to.0][to.1] = sum,
                    }
                }
            }
            Step::Messages(messages) => {
                for m in messages {
                    for r in (0..ranks).filter(|r| m.only.is_none_or(|o| o == *r)) {
                        model[(r + m.distance) % ranks][m.to.0][m.to.1] = value(r, m.from);
                    }
                }
            }
            Step::Copy(from, to) => (0..ranks).for_each(|r| model[r][to.0][to.1] = value(r, *from)),
            Step::Function(at, v) => model.iter_mut().enumerate().for_each(|(r, m)| m[at.0][at.1] = v + r as i32),
        }
    }
}

/// A rank's part.
struct Rank<'a> {
    rank: usize,
    ranks: usize,
    comm: &'a Comm,
    stream: &'a Stream,
    buffers: &'a [Ints],
    count: usize,
    operators: &'a [Operator],
}

impl Rank<'_> {
    fn count(&self, buffer: usize) -> usize {
        if buffer < LONG { self.count } else { SHORT }
    }

    fn at(&self, place: Place) -> *mut u8 {
        self.buffers[place.0].ptr().wrapping_add(place.1 * self.count(place.0) * 4)
    }

    fn submit(&self, call: Request) {
        self.comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
    }

    fn run(&self, step: &Step) {
        let (rank, ranks, stream) = (self.rank, self.ranks, self.stream);
        match step {
            Step::Call(kind, root, factor, from, to) => {
                let whole = |all: bool, at: Place| self.at(if all { (at.0, 0) } else { at });
                let send = whole(matches!(kind, Collective::Scatter | Collective::AllToAll), *from);
                let all = matches!(kind, Collective::Gather | Collective::AllGather | Collective::AllToAll);
                let recv = whole(all, *to);
                let call = request(*kind, send.cast_const(), recv, self.count(from.0), stream).to(*root);
                let op = factor.map_or(Operator::Builtin(ReduceOp::Sum), |f| self.operators[f]);
                self.submit(Request { op, ..call });
            }
            Step::Messages(messages) => {
                group::start();
                for m in messages {
                    let (to, from) = ((rank + m.distance) % ranks, (rank + ranks - m.distance) % ranks);
                    if m.only.is_none_or(|o| o == rank) {
                        let at = self.at(m.from);
                        self.submit(
                            request(Collective::Send, at.cast_const(), at, self.count(m.from.0), stream).to(to),
                        );
                    }
                    if m.only.is_none_or(|o| o == from) {
                        let at = self.at(m.to);
                        self.submit(
                            request(Collective::Recv, at.cast_const(), at, self.count(m.to.0), stream).to(from),
                        );
                    }
                }
                group::end().unwrap_or_else(|e| panic!("{e}"));
            }
            // SAFETY: both blocks are as long, and outlive the work of the stream.
            Step::Copy(from, to) => unsafe {
                stream.copy(self.at(*to), self.at(*from).cast_const(), self.count(from.0) * 4).unwrap();
            },
            Step::Function(at, v) => {
                let (to, count, value) = (self.at(*at).addr(), self.count(at.0), v + rank as i32);
                let fill = move || {
                    let to = to as *mut i32;
                    // SAFETY: the block outlives the work of the stream, which does nothing else meanwhile.
                    (0..count).for_each(|i| unsafe { to.add(i).write_unaligned(value) });
                };
                stream.launch_host(Box::new(fill)).unwrap();
            }
        }
    }
}

/// `sends`: of such calls most of which go by messages of a root, if long blocks of private memory do.
fn mixture(rank: usize, ranks: usize, comms: &[Comm], rounds: usize, sends: bool, seed: u64) {
    let draw = if sends { Step::draw_sent } else { Step::draw };
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    let stream = Stream::new().unwrap();
    let factors = [Ints::new(2, 3), Ints::new(2, -2)];
    let operators = [0, 1].map(|f: usize| Operator::PreMulDevice(factors[f].ptr().cast_const()));
    for round in 0..rounds {
        // Odd ones lie in memory that is not mapped.
        let count = match sends {
            true => [7001, 15_001, 45_001, 90_001][round % 4],
            false => [1024, 700, 4096, 7001, 601, 2048, 5000, 512, 1025, 15_001, 20_001, 45_001][round % 12],
        };
        let value = |rank: usize, b: usize, block: usize| (round * 10_000 + rank * 1000 + b * 100 + block) as i32;
        let blocks = |b: usize| if b < LONG { count } else { SHORT };
        // In every second round some are of the other kind.
        let others = if rng.bool() { rng.usize(..1 << LONG) } else { 0 };
        let elements = |b: usize| blocks(b) * ranks + (others >> b & 1);
        let buffers: Vec<Ints> = (0..BUFFERS).map(|b| Ints::new(elements(b), value(rank, b, 0))).collect();
        let mut model: Model =
            (0..ranks).map(|r| (0..BUFFERS).map(|b| vec![value(r, b, 0); ranks]).collect()).collect();
        let mut made = Vec::new();
        // Of 12 calls so many are of the second communicator, where they do not take turns.
        let second = [1, 4, 6][rng.usize(..3)];
        let few: Vec<Step> = (0..1 + rng.usize(..6)).map(|_| draw(&mut rng, ranks)).collect();
        for _ in 0..rng.usize(5..50) {
            let step = if rng.u8(..3) == 0 { draw(&mut rng, ranks) } else { few[rng.usize(..few.len())].clone() };
            let times = [1, 1, 1, 1, 2, 7, 40, 150][rng.usize(..8)];
            let (first, turns) = (usize::from(rng.usize(..12) < second), rng.usize(..3) == 0);
            for time in 0..times {
                let comm = if turns { (first + time) % 2 } else { first };
                let comm = &comms[comm];
                let on = Rank { rank, ranks, comm, stream: &stream, buffers: &buffers, count, operators: &operators };
                on.run(&step);
                step.apply(&mut model, &[3, -2]);
                let late = if own.u8(..64) == 0 { own.u32(..100_000) } else { 0 };
                (0..late).for_each(|_| std::hint::spin_loop());
            }
            made.push((times, first, turns, step));
            if own.u8(..24) == 0 {
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            }
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        for (b, buffer) in buffers.iter().enumerate() {
            let n = blocks(b);
            let wrong = (0..ranks).find(|i| !buffer.is_at(i * n..(i + 1) * n, model[rank][b][*i]));
            assert!(
                wrong.is_none(),
                "block {wrong:?} of buffer {b} on rank {rank} of {ranks}, count {count}, round {round} (seed {seed}): {made:?}"
            );
        }
    }
}

#[test]
fn all_that_a_stream_carries_keeps_its_order() {
    for ranks in [3, 5, 9] {
        let (ranks, seed) = (ranks.max((processors() + 1).min(9)), seed());
        team(ranks, 2, |rank, comms| mixture(rank, ranks, comms, 45, false, seed));
    }
}

#[test]
fn all_that_a_stream_carries_keeps_its_order_by_slots() {
    alone("crowds::all_that_a_stream_carries_keeps_its_order", &[("OXCCL_SHM", "1"), ("OXCCL_P2P", "shm")]);
}

/// The same of processes, which map each other's memory or have the kernel read it; one of them may end amid what it lends.
pub(crate) fn processes(ranks: usize, env: &[(&str, &str)], dies: &str) {
    let seed = seed();
    let id = || UniqueId::create().unwrap().to_bytes().iter().map(|b| format!("{b:02x}")).collect::<String>();
    let ids = [id(), id()].join(" ");
    let spawn = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crowds::one_of_a_crowd", "--include-ignored", "--nocapture", "--test-threads=1"]);
        command.env("NCCL_SOCKET_IFNAME", "lo").env("OXCCL_OP_TIMEOUT", "30");
        command.envs(env.iter().map(|(name, value)| (*name, told(value, rank))));
        command.env(VARIABLE, format!("{rank} {ranks} {seed} {dies} {ids}"));
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let mut children = Children((0..ranks).map(spawn).collect());
    let start = Instant::now();
    for (rank, child) in children.0.iter_mut().enumerate() {
        let status = wait(child, start, Duration::from_secs(100)).unwrap_or_else(|| panic!("rank {rank} hangs"));
        assert_eq!(
            status.code(),
            Some(if ["dies", "goes"].contains(&dies) && rank == 1 { 7 } else { 0 }),
            "rank {rank}: {status}"
        );
    }
}

/// How a process is told what to do.
const VARIABLE: &str = "OXCCL_TEST_CROWD";

#[test]
fn all_that_a_stream_carries_keeps_its_order_among_processes() {
    let ranks = (processors() + 1).clamp(4, 7);
    processes(ranks, &[], "no");
    processes(ranks, &[("OXCCL_P2P", "cma")], "no");
    processes(ranks, &[("OXCCL_P2P", "direct")], "no");
}

/// The kernel copies what is sent in messages of more than 64 KiB, those of more than a slot that go alone, and what all-to-alls of more
/// than a few KiB move; slots the rest. Of an odd number of ranks, whose buffers are private memory if their blocks are odd.
#[test]
fn all_that_a_stream_carries_keeps_its_order_where_the_kernel_copies_what_outgrows_the_caches() {
    let constants = Constants::of("outgrows", "cache = 10000\nkernel_crowd = 10000\nkernel_crowd_message = 10000\n");
    processes(5, &[("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2")], "no");
}

/// The kernel copies what peers cannot map and no slot carries, of an AlltoAllv where the processor is of that kind or the user says so; calls
/// begin behind such as peers have still to read.
#[test]
fn all_that_a_stream_carries_keeps_its_order_where_the_kernel_copies_everything() {
    let constants = Constants::of("far", "shm_copy = 10\nkernel_op = 0.1\nkernel_copy = 0.01\n");
    let (file, cores) = (("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2"));
    processes(5, &[file, cores, ("OXCCL_EAGER_LIMIT", "0")], "no");
    processes(5, &[file, cores], "lends");
    processes(4, &[file, cores, ("OXCCL_EAGER_LIMIT", "0"), ("OXCCL_P2P", "cma")], "lends");
}

#[test]
fn the_end_of_a_process_that_lends_is_told() {
    (0..3).for_each(|_| processes((processors() + 1).clamp(4, 7), &[], "dies"));
}

/// AlltoAllv of which rank 0 gives its parts from slots, since peers cannot map them, and the others lend theirs. Then rank 0, as the
/// root of calls in which it waits for nobody, comes to the same slot again, while ranks that share cores have still to take from it.
#[test]
fn parts_in_slots_stay_until_ranks_that_lend_have_taken_them() {
    processes((processors() + 1).clamp(5, 7), &[], "uneven");
    processes(17, &[("OXCCL_CORES", "2")], "uneven");
}

/// Calls by long slots, of which each has data of its own, many more than there are slots. One rank comes late and takes one call after the
/// other, while those that give go as far ahead as they may.
#[test]
fn what_lies_in_long_slots_stays_until_all_have_taken_it() {
    let constants = Constants::of("long", "kernel_copy = 1\nkernel_large = 1\n");
    processes(5, &[("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2")], "long");
}

/// The same of what a root broadcasts to ranks with cores of their own, where the kernel's copies are the faster ones.
#[test]
fn what_lies_in_slots_of_ranks_with_cores_of_their_own_stays_until_all_have_taken_it() {
    let constants = Constants::of("own", "shm_copy = 0.11\nkernel_op = 0.7\nkernel_copy = 0.05\n");
    processes(5, &[("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "64")], "long");
}

/// Calls by the kernel, of ranks with cores of their own: the root of a gather or scatter carries the blocks of some, which do nothing
/// but wait for it.
#[test]
fn the_root_carries_the_blocks_of_some_of_many() {
    let constants = Constants::of("halves", "shm_copy = 30\nshm_reduce = 30\n");
    let way = [("OXCCL_ALGO", "shared_one_shot"), ("OXCCL_EAGER_LIMIT", "0")];
    processes(5, &[way[0], way[1], ("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "64")], "long");
}

/// The same where what a root scatters goes to ranks that share cores by messages, by slots or by the kernel, and nothing by payload
/// slots.
#[test]
fn what_a_root_scatters_by_messages_arrives_from_any_root() {
    processes_that_send("scattered", 5, "long");
}

/// The next calls of a root that gives by messages begin behind such as its peers have still to take.
#[test]
fn all_that_a_stream_carries_keeps_its_order_where_roots_send() {
    processes_that_send("mixed", 5, "sends");
    processes_that_send("mixed", 3, "sends");
}

/// What a root keeps of one call it gives in the next.
#[test]
fn a_root_that_sends_has_kept_what_it_sends_next() {
    processes_that_send("kept", 5, "kept");
    processes_that_send("kept", 3, "kept");
}

/// A root that gives by messages learns of it, too, when another rank makes another call, though it waits for nobody's word.
#[test]
fn a_call_that_differs_from_what_a_root_sends_ends_on_every_rank() {
    processes_that_send("differs", 3, "differs");
}

/// A root that gives by slots is done before any other rank makes the call, and so is one of these before the others do.
#[test]
fn who_gives_and_takes_by_messages_waits_for_nobody_else() {
    let constants = Constants::of("alone", SLOTS);
    let way = [("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2"), ("OXCCL_EAGER_LIMIT", "0")];
    processes(5, &[way[0], way[1], way[2], ("OXCCL_SCRATCH", "64K")], "alone");
}

/// Slots are the fastest way, whatever the machine.
const SLOTS: &str = "shm_copy = 0.028\nkernel_copy = 1\nkernel_large = 1\nkernel_crowd = 1500000\ncrowd_rooted = 1\n";

/// [`processes`] of which a root gives by messages what its peers cannot map: by slots, or by the kernel, and little in another way.
fn processes_that_send(name: &str, ranks: usize, dies: &str) {
    let far = format!("{SLOTS}kernel_crowd_message = 10000\n");
    // So is a broadcast to two others.
    let kernel = "shm_copy = 0.028\nkernel_op = 1\nkernel_copy = 0.06\nkernel_large = 0.016\nkernel_crowd = 1500000\ncrowd_rooted = 1\n";
    for (way, constants) in [("slots", SLOTS), ("far", &far), ("kernel", kernel)] {
        let constants = Constants::of(&format!("{name}-{way}"), constants);
        let way = [("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2"), ("OXCCL_EAGER_LIMIT", "0")];
        processes(ranks, &[way[0], way[1], way[2], ("OXCCL_SCRATCH", "64K")], dies);
    }
}

/// AlltoAllv by the kernel whose messages are shorter than a large page: the buffers of which they are parts are put on such.
#[test]
fn buffers_of_many_messages_come_to_lie_on_large_pages() {
    let constants = Constants::of("wide", "kernel_crowd = 1000000\n");
    processes(5, &[("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2")], "wide");
}

/// Two ranks, and payloads about as long as each kind of slot holds: none touches what lies behind its own. By the costs of a processor
/// whose lines travel, and where areas are shorter than slots.
#[test]
fn payloads_as_long_as_slots_leave_alone_what_lies_behind() {
    let constants = Constants::of("edges", "shm_copy = 0.11\nkernel_op = 0.7\nkernel_copy = 0.05\n");
    let file = ("OXCCL_TUNE_FILE", constants.path());
    processes(2, &[file], "edges");
    processes(2, &[file, ("OXCCL_EAGER_LIMIT", "65536"), ("OXCCL_SCRATCH", "65536")], "edges");
}

/// Reductions and broadcasts about as long as the areas of ranks that share cores: what fits may lie beside the lines, the rest
/// is cut into pieces, one behind the other in the same scratch. By the costs of a processor whose lines travel.
#[test]
fn payloads_as_long_as_areas_arrive_beside_the_line_and_by_pieces() {
    let constants =
        Constants::of("areas", "shm_copy = 0.11\nkernel_op = 0.7\nkernel_copy = 0.05\ncrowd_rooted = 0.4\n");
    processes(5, &[("OXCCL_TUNE_FILE", constants.path()), ("OXCCL_CORES", "2")], "areas");
}

/// One rank of these.
fn areas(rank: usize, ranks: usize, comm: &Comm) {
    use Collective::{Broadcast, Reduce};
    const CALLS: usize = 12;
    const COUNTS: [usize; 6] = [16_383, 16_384, 16_385, 65_535, 65_536, 65_537];
    let stream = Stream::new().unwrap();
    let value = |call: usize, from: usize| (10 * call + from) as i32;
    for round in 0..COUNTS.len() {
        let count = |call: usize| COUNTS[(call * call + round) % COUNTS.len()];
        // An odd number of elements is private memory.
        let total = |call: usize| (count(call) | 1) + 2;
        let inputs: Vec<Ints> = (0..CALLS).map(|call| Ints::new(total(call), value(call, rank))).collect();
        let outputs: Vec<Ints> = (0..CALLS).map(|call| Ints::new(total(call), -1)).collect();
        let root = |call: usize| (call + call / 2) % ranks;
        let kind = |call: usize| if call % 3 == 2 { Broadcast } else { Reduce };
        for call in 0..CALLS {
            let made =
                request(kind(call), inputs[call].ptr(), outputs[call].ptr(), count(call), &stream).to(root(call));
            comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        for (call, output) in outputs.iter().enumerate() {
            let expected = match kind(call) {
                Broadcast => value(call, root(call)),
                _ if rank == root(call) => (0..ranks).map(|from| value(call, from)).sum(),
                _ => -1,
            };
            let (count, total) = (count(call), total(call));
            let behind = output.is_at(count..total, -1);
            assert!(output.is_at(0..count, expected) && behind, "call {call} of {count}, rank {rank}, round {round}");
        }
    }
}

/// One rank of these.
fn edges(rank: usize, comm: &Comm) {
    use Collective::{AllToAllV, Broadcast, Gather, Recv, Reduce, Scatter, Send};
    const BYTES: [usize; 5] = [960, 2 << 10, 8 << 10, 16 << 10, 64 << 10];
    const CALLS: usize = 6;
    let (stream, peer) = (Stream::new().unwrap(), 1 - rank);
    let value = |call: usize, from: usize| (10 * call + from) as i32;
    for count in BYTES.iter().flat_map(|bytes| bytes / 4 - 3..bytes / 4 + 3) {
        for kind in [AllToAllV, Send, Broadcast, Scatter, Gather, Reduce] {
            // An odd number of elements is private memory.
            let new = |value: i32| Ints::new(2 * count + 1, value);
            let inputs: Vec<Ints> = (0..CALLS).map(|call| new(value(call, rank))).collect();
            let outputs: Vec<Ints> = (0..CALLS).map(|_| new(-1)).collect();
            let one = |kind, call: usize| request(kind, inputs[call].ptr(), outputs[call].ptr(), count, &stream);
            let submit = |made| comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
            for call in 0..CALLS {
                match kind {
                    Send => {
                        group::start();
                        [Send, Recv].iter().for_each(|kind| submit(one(*kind, call).to(peer)));
                        group::end().unwrap_or_else(|e| panic!("{e}"));
                    }
                    AllToAllV => {
                        let mut made = one(kind, call);
                        let counts = || if rank == 0 { vec![0, count] } else { vec![count, 0] };
                        let ((send_counts, send_displs), (recv_counts, recv_displs)) =
                            ((counts(), vec![0; 2]), (counts(), vec![0; 2]));
                        made.v = Some(Box::new(VCounts { send_counts, send_displs, recv_counts, recv_displs }));
                        submit(made);
                    }
                    _ => submit(one(kind, call).to(call % 2)),
                }
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            for (call, output) in outputs.iter().enumerate() {
                let root = call % 2;
                let (blocks, values) = match kind {
                    AllToAllV | Send => (1, [value(call, peer); 2]),
                    Broadcast | Scatter => (1, [value(call, root); 2]),
                    Reduce if rank == root => (1, [value(call, 0) + value(call, 1); 2]),
                    Gather if rank == root => (2, [value(call, 0), value(call, 1)]),
                    _ => (0, [0; 2]),
                };
                let is = (0..blocks).all(|b| output.is_at(b * count..(b + 1) * count, values[b]));
                let behind = output.is_at(blocks * count..2 * count + 1, -1);
                assert!(is && behind, "call {call} of {kind} of {count}, rank {rank}");
            }
        }
    }
}

/// One rank of these.
fn long(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    use Collective::{AllToAll, Broadcast, Gather, Scatter};
    const CALLS: usize = 40;
    let (stream, mut rng) = (Stream::new().unwrap(), fastrand::Rng::with_seed(seed));
    let value = |call: usize, from: usize, to: usize| (1000 * call + 10 * from + to) as i32;
    let kinds = [(Gather, 20_001), (Broadcast, 60_001), (AllToAll, 3_001), (Scatter, 10_001), (Gather, 9_001)];
    for (kind, count) in kinds.into_iter().cycle().take(2 * kinds.len()) {
        let (root, other) = (rng.usize(..ranks), rng.usize(1..ranks));
        let late = if kind == Gather { root } else { (root + other) % ranks };
        // An odd number of elements is private memory.
        let new = |blocks: usize| Ints::new((count * blocks) | 1, -1);
        let block = |b: usize| b * count..(b + 1) * count;
        let mut inputs: Vec<Ints> = (0..CALLS).map(|_| new(kind.input_blocks(ranks))).collect();
        for (call, input) in inputs.iter_mut().enumerate() {
            (0..kind.input_blocks(ranks)).for_each(|to| input.set(block(to), value(call, rank, to)));
        }
        let outputs: Vec<Ints> = (0..CALLS).map(|_| new(kind.output_blocks(ranks))).collect();
        for call in 0..CALLS {
            if rank == late {
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                let spins = if call < 2 { 3_000_000 } else { 1000 };
                (0..spins).for_each(|_| std::hint::spin_loop());
            }
            let made = request(kind, inputs[call].ptr(), outputs[call].ptr(), count, &stream);
            comm.submit(made.to(root)).unwrap_or_else(|e| panic!("{e}"));
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        for (call, output) in outputs.iter().enumerate().filter(|_| kind != Gather || rank == root) {
            let from = |b: usize| if matches!(kind, Broadcast | Scatter) { root } else { b };
            let own = if matches!(kind, Scatter | AllToAll) { rank } else { 0 };
            let wrong = (0..kind.output_blocks(ranks)).find(|b| !output.is_at(block(*b), value(call, from(*b), own)));
            assert_eq!(
                wrong, None,
                "that block of call {call} of {kind}, root {root}, late {late}, rank {rank} (seed {seed})"
            );
        }
    }
}

/// One rank of these: each makes the call when the one before it is done with it, which the other communicator tells.
fn in_turn(rank: usize, ranks: usize, comms: &[Comm]) {
    const COUNT: usize = 10_001;
    let stream = Stream::new().unwrap();
    let (word, mut input) = (Ints::new(1, 1), Ints::new(ranks * COUNT, -1));
    (0..ranks).for_each(|r| input.set(r * COUNT..(r + 1) * COUNT, 100 + r as i32));
    let done = || stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
    // The first calls open connections, for which ranks need each other.
    for call in 0..8 {
        let output = Ints::new(COUNT, -1);
        for turn in 0..ranks {
            if turn == rank {
                let scatter = request(Collective::Scatter, input.ptr(), output.ptr(), COUNT, &stream);
                comms[0].submit(scatter).unwrap_or_else(|e| panic!("{e}"));
            }
            if turn == rank && call > 0 {
                done();
            }
            if call > 0 {
                let told = request(Collective::Broadcast, word.ptr(), word.ptr(), 1, &stream).to(turn);
                comms[1].submit(told).unwrap_or_else(|e| panic!("{e}"));
                done();
            }
        }
        done();
        output.expect(100 + rank as i32);
    }
}

/// One rank of these.
fn differs(rank: usize, comm: &Comm) {
    const COUNT: usize = 90_001;
    let stream = Stream::new().unwrap();
    let (input, outputs) = (Ints::new(3 * COUNT, 7), (0..8).map(|_| Ints::new(COUNT, -1)).collect::<Vec<_>>());
    let mut failed = None;
    for (call, output) in outputs.iter().enumerate() {
        let kind = if (rank, call) == (2, 3) { Collective::AllReduce } else { Collective::Scatter };
        // As before, a call may learn of the failure already.
        failed = failed.or(comm.submit(request(kind, input.ptr(), output.ptr(), COUNT, &stream)).err());
    }
    // What was sent may have come all the same; then the next call, for which ranks meet, tells.
    failed = failed.or(stream.synchronize().err());
    let sum = request(Collective::AllReduce, input.ptr(), outputs[7].ptr(), COUNT, &stream);
    failed = failed.or_else(|| comm.submit(sum).err()).or_else(|| stream.synchronize().err());
    let error = failed.expect("rank 2 makes another call");
    assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
    // Either of the others may find it first.
    let other = (0..2).any(|r| error.text.contains(&format!("rank {r} called Scatter")));
    let both = ["rank 2 called AllReduce", "collective number 4"];
    assert!(other && both.iter().all(|part| error.text.contains(part)), "{}", error.text);
    outputs[..3].iter().filter(|_| rank == 2).for_each(|o| o.expect(7));
}

/// One rank of these.
fn kept(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    const CALLS: usize = 6;
    let (stream, mut rng) = (Stream::new().unwrap(), fastrand::Rng::with_seed(seed));
    let value = |of: usize, buffer: usize, block: usize| (1000 * of + 100 * buffer + block) as i32;
    for round in 0..36 {
        // An odd number of elements is private memory.
        let count = [90_001, 15_001, 45_001][round % 3];
        let kind = if rng.bool() { Collective::Broadcast } else { Collective::Scatter };
        let (root, other) = (rng.usize(..ranks), rng.usize(1..ranks));
        let (next, late) = ((root + 1) % ranks, (root + other) % ranks);
        let mut buffers: Vec<Ints> = (0..=CALLS).map(|_| Ints::new((count * ranks) | 1, -1)).collect();
        let block = |b: usize| b * count..(b + 1) * count;
        for (b, buffer) in buffers.iter_mut().enumerate() {
            (0..ranks).for_each(|i| buffer.set(block(i), value(rank, b, i)));
        }
        let at = |buffer: usize, block: usize| buffers[buffer].ptr().wrapping_add(4 * block * count);
        (0..if rank == late { 1_000_000 } else { 0 }).for_each(|_| std::hint::spin_loop());
        for call in 0..CALLS {
            let from = if kind == Collective::Broadcast { next } else { 0 };
            let made = request(kind, at(call, from).cast_const(), at(call + 1, next), count, &stream);
            comm.submit(made.to(root)).unwrap_or_else(|e| panic!("{e}"));
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        for call in 0..CALLS {
            let given = match kind {
                Collective::Broadcast => value(root, 0, next),
                _ if rank == next && call > 0 => value(root, call - 1, root),
                _ => value(root, call, rank),
            };
            assert!(
                buffers[call + 1].is_at(block(next), given),
                "call {call} of {kind} of {count}, root {root}, late {late}, rank {rank}, round {round} (seed {seed})"
            );
        }
    }
}

/// One rank of these.
fn wide(rank: usize, ranks: usize, comm: &Comm) {
    let stream = Stream::new().unwrap();
    // An odd number of elements is private memory.
    let count = 250_001;
    let value = |call: usize, from: usize, to: usize| (1000 * call + 10 * from + to) as i32;
    let (mut input, output) = (Ints::new(count * ranks, 0), Ints::new(count * ranks, -1));
    let places: Vec<usize> = (0..ranks).map(|p| p * count).collect();
    for call in 0..8 {
        (0..ranks).for_each(|to| input.set(to * count..(to + 1) * count, value(call, rank, to)));
        let lists = || (vec![count; ranks], places.clone());
        let ((send_counts, send_displs), (recv_counts, recv_displs)) = (lists(), lists());
        let mut made = request(Collective::AllToAllV, input.ptr(), output.ptr(), 0, &stream);
        made.v = Some(Box::new(VCounts { send_counts, send_displs, recv_counts, recv_displs }));
        comm.submit(made).unwrap_or_else(|e| panic!("{e}"));
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        let wrong = (0..ranks).find(|p| !output.is_at(p * count..(p + 1) * count, value(call, *p, rank)));
        assert_eq!(wrong, None, "the part of that rank, on rank {rank} in call {call}");
    }
    // Of each buffer the part that others read or write has at least one.
    large::are_there(2);
}

/// One rank of these.
fn parts(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    const VALUES: usize = 4;
    // Of medium size.
    let slots = if ranks > 16 { 64 } else { 128 };
    let (stream, mut own) = (Stream::new().unwrap(), fastrand::Rng::with_seed(seed ^ rank as u64));
    let count = 7200 / 4 / (ranks - 1);
    let value = |call: usize, rank: usize| (10 * (call % VALUES) + rank) as i32;
    // An odd number of elements is private memory.
    let elements = count * ranks + usize::from(rank == 0);
    let inputs: Vec<Ints> = (0..VALUES).map(|call| Ints::new(elements, value(call, rank))).collect();
    let (output, small) = (Ints::new(count * ranks, -1), Ints::new(1, 3));
    let places: Vec<usize> = (0..ranks).map(|p| p * count).collect();
    for i in 0..300 {
        let lists = || (vec![count; ranks], places.clone());
        let ((send_counts, send_displs), (recv_counts, recv_displs)) = (lists(), lists());
        let mut call = request(Collective::AllToAllV, inputs[i % VALUES].ptr(), output.ptr(), 0, &stream);
        call.v = Some(Box::new(VCounts { send_counts, send_displs, recv_counts, recv_displs }));
        if rank == ranks - 1 {
            (0..own.u32(..3000)).for_each(|_| std::hint::spin_loop());
        }
        comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
        if rank != 0 {
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            for from in 0..ranks {
                let is = output.is_at(from * count..(from + 1) * count, value(i, from));
                assert!(is, "call {i}, from rank {from} (seed {seed})");
            }
        }
        for _ in 1..slots {
            comm.submit(request(Collective::Broadcast, small.ptr(), small.ptr(), 1, &stream)).unwrap();
        }
    }
    stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential crowds` runs it in processes of their own"]
fn one_of_a_crowd() {
    let text = std::env::var(VARIABLE).unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    let (rank, ranks): (usize, usize) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let byte = |hex: &str, i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    let comms: Vec<Comm> = words[4..]
        .iter()
        .map(|hex| {
            let id = UniqueId::from_bytes(std::array::from_fn(|i| byte(hex, i))).unwrap();
            Communicator::init_rank(ranks as i32, id, rank as i32, 0, CommConfig::default(), "test").unwrap()
        })
        .collect();
    let seed = || words[2].parse().unwrap();
    match words[3] {
        "no" | "sends" => mixture(rank, ranks, &comms, 30, words[3] == "sends", seed()),
        "lends" => lent::one(rank, ranks, &comms[0], seed()),
        "many" => many::one(rank, ranks, &comms, seed()),
        "itself" => network::with_itself(rank, ranks, &comms[0]),
        "long" => long(rank, ranks, &comms[0], seed()),
        "alone" => in_turn(rank, ranks, &comms),
        "differs" => return differs(rank, &comms[0]),
        "kept" => kept(rank, ranks, &comms[0], seed()),
        "ends" => ends::one(rank, ranks, &comms[0], seed()),
        "goes" => return ends::goes(rank, &comms[0]),
        "sums" | "gives" | "asks" | "parts" => runs::one(rank, ranks, &comms, words[3]),
        "areas" => areas(rank, ranks, &comms[0]),
        "edges" => edges(rank, &comms[0]),
        "wide" => wide(rank, ranks, &comms[0]),
        "uneven" => parts(rank, ranks, &comms[0], seed()),
        "dies" => return dies(rank, ranks, &comms[0]),
        other => panic!("no job {other}"),
    }
    comms.iter().for_each(|c| c.destroy().unwrap());
}

/// Messages in a ring, from which rank 1 goes.
fn dies(rank: usize, ranks: usize, comm: &Comm) {
    let s = Stream::new().unwrap();
    let (source, sink) = (Ints::new(5000, 1), Ints::new(5000, -1));
    for call in 0..1000 * (ranks + 1) {
        if call == 100 && rank == 1 {
            std::process::exit(7);
        }
        group::start();
        let send = request(Collective::Send, source.ptr(), std::ptr::null_mut(), 5000, &s);
        let recv = request(Collective::Recv, std::ptr::null(), sink.ptr(), 5000, &s);
        let calls =
            [comm.submit(send.to((rank + 1) % ranks)), comm.submit(recv.to((rank + ranks - 1) % ranks)), group::end()];
        if calls.iter().any(Result::is_err) {
            return;
        }
    }
    assert!(s.synchronize().is_err());
}

/// Long messages in a ring, of which one is of another length: every rank hears of it, and nobody reads what is gone.
#[test]
fn a_mismatch_among_messages_that_are_lent_ends_on_both_sides() {
    let ranks = (processors() + 1).clamp(5, 9);
    for at in [0, 1, 20, 60] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let (source, sink) = (Ints::new(5000, 1), Ints::new(5000, -1));
            let mut failed = None;
            for call in 0..at + 100 * (ranks + 1) {
                let count = if call == at && rank == 1 { 4990 } else { 5000 };
                group::start();
                let send =
                    request(Collective::Send, source.ptr(), std::ptr::null_mut(), count, &s).to((rank + 1) % ranks);
                let recv =
                    request(Collective::Recv, std::ptr::null(), sink.ptr(), 5000, &s).to((rank + ranks - 1) % ranks);
                let calls = [comms[0].submit(send), comms[0].submit(recv), group::end()];
                failed = calls.into_iter().filter_map(Result::err).fold(failed, |first, error| first.or(Some(error)));
            }
            let error = failed.or(s.synchronize().err()).expect("no rank can have received all messages");
            assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
            assert!(error.text.contains("4990") && error.text.contains("5000"), "{}", error.text);
        });
    }
}

/// A rank aborts while it lends: the others end, too, and soon.
#[test]
fn an_abort_among_messages_that_are_lent_ends_all() {
    let ranks = (processors() + 1).clamp(5, 9);
    for at in [3, 40, 200] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let since = Instant::now();
            {
                let (source, sink) = (Ints::new(5000, 1), Ints::new(5000, -1));
                let mut failed = None;
                for call in 0..at + 100 * (ranks + 1) {
                    if call == at && rank == 1 {
                        comms[0].abort().unwrap();
                        break;
                    }
                    group::start();
                    let send = request(Collective::Send, source.ptr(), std::ptr::null_mut(), 5000, &s);
                    let recv = request(Collective::Recv, std::ptr::null(), sink.ptr(), 5000, &s);
                    let calls = [
                        comms[0].submit(send.to((rank + 1) % ranks)),
                        comms[0].submit(recv.to((rank + ranks - 1) % ranks)),
                        group::end(),
                    ];
                    failed = calls.into_iter().filter_map(Result::err).next().or(failed);
                    if failed.is_some() {
                        break;
                    }
                }
                let ended = s.synchronize();
                assert!(rank == 1 || failed.is_some() || ended.is_err());
                // Both are gone here, though peers were to read one of them.
            }
            assert!(since.elapsed() < Duration::from_secs(20));
        });
    }
}
