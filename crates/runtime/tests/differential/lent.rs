//! Calls of medium size by more ranks than there are cores, back to back, each of which may read or overwrite what those in
//! front of it read, write or lend to the peers: random ones on a few buffers, against a model of the buffers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Operator, Request, VCounts, group};
use oxccl_types::{Collective, ReduceOp, ResultCode};

use crate::job::seed;
use crate::scenarios::{Comm, Ints, To, all_reduce, request, team};

const BUFFERS: usize = 4;

/// One call, alike on all ranks: of block `from.1` of buffer `from.0` where it takes one block, to `to` alike.
#[derive(Clone, Copy, Debug)]
struct Step {
    collective: Collective,
    root: usize,
    from: (usize, usize),
    to: (usize, usize),
}

const COLLECTIVES: [Collective; 14] = [
    Collective::Broadcast,
    Collective::Broadcast,
    Collective::Scatter,
    Collective::Gather,
    Collective::Gather,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::AllReduce,
    Collective::AllReduce,
    Collective::Reduce,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::AllToAllV,
    Collective::AllToAllV,
];

/// Whether rank `from` sends something to rank `to` in the AlltoAllv that has these numbers; rank 1 often sends nothing.
fn sends(from: usize, to: usize, numbers: (usize, usize)) -> bool {
    !(from + 2 * to + numbers.0).is_multiple_of(5) && (from != 1 || numbers.1.is_multiple_of(2))
}

impl Step {
    /// A call of one of these kinds, and roots.
    fn draw(rng: &mut fastrand::Rng, ranks: usize, kinds: &[(Collective, usize)]) -> Step {
        let (a, b) = (rng.usize(..BUFFERS), rng.usize(1..BUFFERS));
        let (collective, root) = kinds[rng.usize(..kinds.len())];
        let block = rng.usize(..ranks);
        let in_place = rng.u8(..4) == 0
            && !matches!(
                collective,
                Collective::AllToAll | Collective::AllToAllV | Collective::Scatter | Collective::ReduceScatter
            );
        // In place where a rank's own block lies: every rank finds its own.
        let to = if in_place { (a, block) } else { ((a + b) % BUFFERS, rng.usize(..ranks)) };
        Step { collective, root, from: (a, block), to }
    }

    /// Blocks that the input and the output of `rank` begin at.
    fn starts(&self, rank: usize) -> (usize, usize) {
        let own = |at: (usize, usize)| if self.from.0 == self.to.0 { rank } else { at.1 };
        match self.collective {
            Collective::Scatter => (0, self.to.1),
            Collective::Gather | Collective::AllGather => (own(self.from), 0),
            Collective::AllToAll | Collective::AllToAllV => (0, 0),
            Collective::ReduceScatter => (0, self.to.1),
            _ => (self.from.1, self.to.1),
        }
    }

    /// Of an AlltoAllv: the block that a rank has for another one, and that where it puts what it gets.
    fn turned(&self, ranks: usize) -> (impl Fn(usize) -> usize + '_, impl Fn(usize) -> usize + '_) {
        (move |to| (to + self.from.1) % ranks, move |from| (2 * ranks - 1 - from + self.to.1) % ranks)
    }

    /// Its counts and displacements on `rank`, for blocks of `count` elements.
    fn counts(&self, rank: usize, ranks: usize, count: usize) -> VCounts {
        let (from, to) = self.turned(ranks);
        let elements = |sends: bool| if sends { count } else { 0 };
        let numbers = (self.from.1, self.to.1);
        VCounts {
            send_counts: (0..ranks).map(|p| elements(sends(rank, p, numbers))).collect(),
            send_displs: (0..ranks).map(|p| from(p) * count).collect(),
            recv_counts: (0..ranks).map(|p| elements(sends(p, rank, numbers))).collect(),
            recv_displs: (0..ranks).map(|p| to(p) * count).collect(),
        }
    }

    /// What it makes of the buffers of all ranks: the value of each block.
    fn apply(&self, model: &mut [Vec<Vec<i32>>]) {
        let before = model.to_vec();
        let ranks = model.len();
        let input = |rank: usize, block: usize| before[rank][self.from.0][self.starts(rank).0 + block];
        for (rank, buffers) in model.iter_mut().enumerate() {
            let output = &mut buffers[self.to.0][self.starts(rank).1..];
            match self.collective {
                Collective::Broadcast => output[0] = input(self.root, 0),
                Collective::Scatter => output[0] = input(self.root, rank),
                Collective::Gather | Collective::Reduce if rank != self.root => {}
                Collective::Gather | Collective::AllGather => (0..ranks).for_each(|r| output[r] = input(r, 0)),
                Collective::AllToAll => (0..ranks).for_each(|r| output[r] = input(r, rank)),
                Collective::AllToAllV => {
                    let (from, to) = self.turned(ranks);
                    let come = (0..ranks).filter(|r| sends(*r, rank, (self.from.1, self.to.1)));
                    come.for_each(|r| output[to(r)] = input(r, from(rank)));
                }
                Collective::ReduceScatter => {
                    output[0] = (0..ranks).map(|r| input(r, rank)).fold(0, i32::wrapping_add);
                }
                _ => output[0] = (0..ranks).map(|r| input(r, 0)).fold(0, i32::wrapping_add),
            }
        }
    }
}

/// A rank of a team that shares cores.
struct Member<'a> {
    rank: usize,
    ranks: usize,
    comm: &'a Comm,
    stream: Stream,
    /// Draws alike on all ranks; and on this one.
    rng: fastrand::Rng,
    own: fastrand::Rng,
    seed: u64,
}

/// Runs `test` as each rank of more than there are cores.
fn crowd(test: impl Fn(Member<'_>) + Sync) {
    let ranks = (processors() + 1).clamp(5, 9);
    let seed = seed();
    team(ranks, 1, |rank, comms| test(Member::new(rank, ranks, &comms[0], seed)));
}

#[test]
fn lent_memory_is_neither_written_nor_read_too_early() {
    mixture(|_| false);
}

/// After some calls of which each is waited for inputs are copied, and nobody waits until peers have read them; calls that begin
/// behind such a one must not, and what is lent is lent again.
#[test]
fn calls_that_are_waited_for_pass_into_calls_that_are_not() {
    mixture(|rng| rng.bool());
}

/// `waits` says now and then whether each of the next calls is waited for.
fn mixture(waits: impl Fn(&mut fastrand::Rng) -> bool + Sync) {
    crowd(|member| member.mixes(false, &waits));
}

/// One of several processes, whose buffers peers cannot map.
pub fn one(rank: usize, ranks: usize, comm: &Comm, seed: u64) {
    Member::new(rank, ranks, comm, seed).mixes(true, &|rng| rng.u8(..4) == 0);
}

impl<'a> Member<'a> {
    fn new(rank: usize, ranks: usize, comm: &'a Comm, seed: u64) -> Member<'a> {
        Member {
            rank,
            ranks,
            comm,
            stream: Stream::new().unwrap(),
            rng: fastrand::Rng::with_seed(seed),
            own: fastrand::Rng::with_seed(seed ^ (rank as u64 + 1)),
            seed,
        }
    }

    /// `waits` as for [`mixture`].
    fn mixes(self, private: bool, waits: &dyn Fn(&mut fastrand::Rng) -> bool) {
        let Member { rank, ranks, comm, stream, mut rng, mut own, seed } = self;
        for round in 0..108 {
            // Beyond what goes with the lines, or after a while; an even number is memory of the library.
            let count = [2100, 600, 5000, 1000, 300, 20_000][round % 6];
            let value = |rank: usize, buffer: usize| (round * 1000 + rank * 10 + buffer) as i32;
            let elements = (count * ranks) | usize::from(private);
            let buffers: Vec<Ints> = (0..BUFFERS).map(|b| Ints::new(elements, value(rank, b))).collect();
            let mut model: Vec<Vec<Vec<i32>>> =
                (0..ranks).map(|r| (0..BUFFERS).map(|b| vec![value(r, b); ranks]).collect()).collect();
            let mut made = Vec::new();
            // Few kinds, since those that were made before begin soonest.
            let kinds: Vec<(Collective, usize)> = (0..1 + round / 3 % 3)
                .map(|_| (COLLECTIVES[rng.usize(..COLLECTIVES.len())], rng.usize(..ranks)))
                .collect();
            let mut waiting = false;
            for _ in 0..rng.usize(8..40) {
                if rng.u8(..4) == 0 {
                    waiting = waits(&mut rng);
                }
                let step = Step::draw(&mut rng, ranks, &kinds);
                // Now and then more of the same than may be under way.
                let times = if rng.u8(..20) == 0 { 150 } else { 1 + 34 * usize::from(waiting) };
                for _ in 0..times {
                    let (input, output) = step.starts(rank);
                    let at = |buffer: usize, block: usize| buffers[buffer].ptr().wrapping_add(block * count * 4);
                    let (send, recv) = (at(step.from.0, input), at(step.to.0, output));
                    let mut call = request(step.collective, send.cast_const(), recv, count, &stream);
                    if step.collective == Collective::AllToAllV {
                        (call.count, call.v) = (0, Some(Box::new(step.counts(rank, ranks, count))));
                    }
                    comm.submit(call.to(step.root)).unwrap_or_else(|e| panic!("{e}"));
                    step.apply(&mut model);
                    made.push(step);
                    let late = if own.u8(..32) == 0 { own.u32(..20_000) } else { 0 };
                    (0..late).for_each(|_| std::hint::spin_loop());
                    if waiting {
                        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                    }
                }
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            for (b, buffer) in buffers.iter().enumerate() {
                let wrong = (0..ranks).find(|i| !buffer.is_at(i * count..(i + 1) * count, model[rank][b][*i]));
                assert!(
                    wrong.is_none(),
                    "block {wrong:?} of buffer {b} on rank {rank} of {ranks} (seed {seed}): {made:?}"
                );
            }
        }
    }
}

/// The first ones go by slots, of which each rank makes all of its output; those behind them by mapped memory, into which peers
/// write their parts.
#[test]
fn calls_that_change_their_way_write_an_output_in_their_order() {
    let ranks = (processors() + 1).clamp(5, 9);
    // Votes count a window later.
    for calls in 124..164 {
        team(ranks, 1, |rank, comms| {
            let stream = Stream::new().unwrap();
            let inputs: Vec<Ints> = (0..4).map(|i| Ints::new(1000, (10 * rank + i) as i32)).collect();
            let output = Ints::new(1000, -1);
            for i in 0..calls {
                let send = inputs[i % 4].ptr().cast_const();
                let call = request(Collective::AllReduce, send, output.ptr(), 1000, &stream);
                comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
                // The peers go on without it.
                let late = if rank == calls % ranks && i % 10 == 5 { 20_000 } else { 0 };
                (0..late).for_each(|_| std::hint::spin_loop());
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            let sum = (0..ranks).map(|r| (10 * r + (calls - 1) % 4) as i32).sum();
            assert!(output.is_at(0..1000, sum), "rank {rank} after {calls} calls");
        });
    }
}

/// Calls that are waited for, of which some multiply what they sum, and of which the last is in place.
#[test]
fn a_factor_counts_in_calls_that_are_waited_for() {
    let ranks = (processors() + 1).clamp(5, 9);
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        // Beyond what goes with the lines.
        let (count, factor) = (2100, Ints::new(2, 3));
        let sum = (0..ranks as i32).sum::<i32>();
        let (input, output) = (Ints::new(count, rank as i32), Ints::new(count, -1));
        for i in 0..400 {
            let (by, op) = match i % 3 {
                1 => (3, Operator::PreMulDevice(factor.ptr().cast_const())),
                _ => (1, Operator::Builtin(ReduceOp::Sum)),
            };
            let call = request(Collective::AllReduce, input.ptr().cast_const(), output.ptr(), count, &stream);
            comms[0].submit(Request { op, ..call }).unwrap_or_else(|e| panic!("{e}"));
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            assert!(output.is_at(0..count, by * sum), "rank {rank} after {i} calls");
        }
        let call = request(Collective::AllReduce, input.ptr().cast_const(), input.ptr(), count, &stream);
        comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        assert!(input.is_at(0..count, sum), "rank {rank}");
    });
}

/// After calls that were waited for comes one whose input was copied and, before that has been taken, one of another kind.
#[test]
fn what_follows_a_copied_input_leaves_it_until_it_was_taken() {
    let ranks = (processors() + 1).clamp(5, 9);
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        let count = 2100;
        let sum = (0..ranks as i32).sum::<i32>();
        let (input, output) = (Ints::new(count, rank as i32), Ints::new(count, -1));
        let (few, got) = (Ints::new(100 * ranks, rank as i32), Ints::new(100 * ranks, -1));
        let call = |kind, from: &Ints, to: &Ints, count: usize| {
            let mut call = request(kind, from.ptr().cast_const(), to.ptr(), count, &stream);
            if kind == Collective::AllToAllV {
                let displs: Vec<usize> = (0..ranks).collect();
                let (send_displs, recv_displs) = (displs.clone(), displs);
                let (send_counts, recv_counts) = (vec![1; ranks], vec![1; ranks]);
                call.count = 0;
                call.v = Some(Box::new(VCounts { send_counts, send_displs, recv_counts, recv_displs }));
            }
            comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
        };
        for round in 0..300 {
            for _ in 0..36 {
                call(Collective::AllReduce, &input, &output, count);
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            }
            let late = if rank == round % ranks { 300_000 } else { 0 };
            (0..late).for_each(|_| std::hint::spin_loop());
            call(Collective::AllReduce, &input, &output, count);
            match round % 3 {
                0 => call(Collective::AllToAllV, &few, &got, 0),
                1 => call(Collective::AllToAll, &few, &got, 100),
                _ => call(Collective::AllGather, &few, &got, 100),
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            assert!(output.is_at(0..count, sum), "rank {rank} in round {round}");
            let block = if round % 3 == 0 { 1 } else { 100 };
            (0..ranks).for_each(|r| got.expect_at(r * block..(r + 1) * block, r as i32));
        }
    });
}

/// Messages between ranks of a ring, of which each call may send or overwrite what those in front of it receive or have still
/// to send, against a model of the buffers: back and forth in some calls, from every other rank only in others.
#[test]
fn messages_are_neither_written_over_nor_sent_too_early() {
    crowd(|Member { rank, ranks, comm, stream, mut rng, mut own, seed }| {
        for round in 0..120 {
            let count = [300, 1500, 5000, 20_000][round % 4];
            let value = |rank: usize, buffer: usize| (round * 1000 + rank * 10 + buffer) as i32;
            let buffers: Vec<Ints> = (0..BUFFERS).map(|b| Ints::new(count, value(rank, b))).collect();
            let mut model: Vec<Vec<i32>> = (0..ranks).map(|r| (0..BUFFERS).map(|b| value(r, b)).collect()).collect();
            let mut made = Vec::new();
            // Few buffers that change seldom: the same calls again and again run ahead furthest.
            let (mut from, mut to, mut both, mut half) = (0, 1, false, false);
            let seldom = [3, 12][rng.usize(..2)];
            let mut waiting = own.u8(..4) == 0;
            for _ in 0..rng.usize(8..100) {
                if rng.u8(..seldom) == 0 {
                    from = rng.usize(..BUFFERS);
                    to = (from + rng.usize(1..BUFFERS)) % BUFFERS;
                    (both, half) = (rng.u8(..3) == 0, rng.u8(..4) == 0);
                }
                let distance = if rng.u8(..seldom) == 0 { rng.usize(1..ranks) } else { 1 };
                // Some are short, and go another way.
                let count = if rng.u8(..8) == 0 { 200 } else { count };
                let back = (0..BUFFERS).find(|b| *b != from && *b != to).filter(|_| both);
                let gives = |r: usize| !half || r.is_multiple_of(2);
                let peer = |r: usize, distance: usize| (r + distance) % ranks;
                let submit = |kind, buffer: usize, peer| {
                    let at = buffers[buffer].ptr();
                    let call = request(kind, at.cast_const(), at, count, &stream).to(peer);
                    comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
                };
                let sent: Vec<i32> = model.iter().map(|m| m[from]).collect();
                group::start();
                for (distance, to) in
                    [Some((distance, to)), back.map(|back| (ranks - distance, back))].into_iter().flatten()
                {
                    if gives(rank) {
                        submit(Collective::Send, from, peer(rank, distance));
                    }
                    if gives(peer(rank, ranks - distance)) {
                        submit(Collective::Recv, to, peer(rank, ranks - distance));
                    }
                    let gets = (0..ranks).filter(|r| gives(peer(*r, ranks - distance)));
                    gets.for_each(|r| model[r][to] = sent[peer(r, ranks - distance)]);
                }
                group::end().unwrap_or_else(|e| panic!("{e}"));
                made.push((from, to, distance, count, back, half));
                let late = if own.u8(..16) == 0 { own.u32(..20_000) } else { 0 };
                (0..late).for_each(|_| std::hint::spin_loop());
                // Each rank by itself: what it sends then goes by slots.
                if own.u8(..24) == 0 {
                    waiting = !waiting;
                }
                if waiting {
                    stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                }
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            for (b, buffer) in buffers.iter().enumerate() {
                assert!(
                    buffer.is_at(0..200, model[rank][b]),
                    "buffer {b} on rank {rank} of {ranks} in round {round} (seed {seed}): {made:?}"
                );
            }
        }
    });
}

/// A call is the one before it made again only if nothing came between them that it must wait for: rank 0 sends to rank 1 what
/// a short message from rank 2, which is late, has written to.
#[test]
fn what_is_sent_again_is_what_was_received_in_between() {
    let ranks = (processors() + 1).clamp(5, 9);
    let (came, made) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait = |flag: &AtomicU64, round: u64| {
        let since = Instant::now();
        while flag.load(Ordering::Acquire) <= round && since.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
    };
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        let (long, short) = (20_000, 100);
        for round in 0..50 {
            let value = (round * 10) as i32;
            let all: [Ints; 2] = std::array::from_fn(|i| Ints::new(long, value + 2 * rank as i32 + i as i32));
            let call = |kind, of: &Ints, count: usize, peer: usize| {
                let call = request(kind, of.ptr().cast_const(), of.ptr(), count, &stream);
                comms[0].submit(call.to(peer)).unwrap_or_else(|e| panic!("{e}"));
            };
            match rank {
                0 => {
                    call(Collective::Recv, &all[1], short, 2);
                    call(Collective::Send, &all[0], long, 1);
                    // Not for long: it may have had to go to the queue, and then goes out behind what rank 2 sends.
                    let since = Instant::now();
                    while came.load(Ordering::Acquire) <= round && since.elapsed() < Duration::from_millis(100) {
                        assert!(!stream.query().unwrap());
                    }
                    // It learns that what it lent was read.
                    assert!(!stream.query().unwrap());
                    call(Collective::Recv, &all[0], short, 2);
                    call(Collective::Send, &all[0], long, 1);
                    made.store(round + 1, Ordering::Release);
                }
                1 => {
                    call(Collective::Recv, &all[0], long, 0);
                    stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                    came.store(round + 1, Ordering::Release);
                    call(Collective::Recv, &all[1], long, 0);
                }
                2 => {
                    wait(&made, round);
                    call(Collective::Send, &all[0], short, 0);
                    call(Collective::Send, &all[1], short, 0);
                }
                _ => {}
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            if rank == 1 {
                assert!(all[0].is_at(0..long, value), "round {round}");
                assert!(all[1].is_at(0..short, value + 5) && all[1].is_at(short..long, value), "round {round}");
            }
        }
    });
}

/// What a rank copies to itself may lie where a peer has still to read, be it of the exchange in front of it or of one before.
#[test]
fn a_message_to_oneself_does_not_write_what_a_peer_has_still_to_read() {
    let ranks = (processors() + 1).clamp(5, 9);
    let made = AtomicU64::new(0);
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        let (long, short) = (20_000, 100);
        let null = std::ptr::null_mut();
        for round in 0..50 {
            let value = (round * 10) as i32;
            let (lent, other) = (Ints::new(long, value + 1), Ints::new(long, value + 2));
            let (few, own) = (Ints::new(short, value + 3), Ints::new(short, value + 4));
            let send = |to: usize, of: &Ints, count: usize| {
                let call = request(Collective::Send, of.ptr().cast_const(), null, count, &stream);
                comms[0].submit(call.to(to)).unwrap_or_else(|e| panic!("{e}"));
            };
            let receive = |from: usize, into: &Ints, count: usize| {
                let call = request(Collective::Recv, null.cast_const(), into.ptr(), count, &stream);
                comms[0].submit(call.to(from)).unwrap_or_else(|e| panic!("{e}"));
            };
            let sum = || {
                if round % 2 == 1 {
                    all_reduce(&comms[0], &few, short, &stream);
                }
            };
            match rank {
                0 => {
                    send(1, &lent, long);
                    // In some rounds the exchange in front of it is another one: not one that what is sent to oneself is put to.
                    sum();
                    receive(2, &other, long);
                    receive(3, &few, short);
                    group::start();
                    send(0, &own, short);
                    receive(0, &lent, short);
                    group::end().unwrap_or_else(|e| panic!("{e}"));
                    made.store(round + 1, Ordering::Release);
                }
                1 => {
                    let since = Instant::now();
                    while made.load(Ordering::Acquire) <= round && since.elapsed() < Duration::from_secs(10) {
                        std::thread::yield_now();
                    }
                    receive(0, &other, long);
                    sum();
                }
                2 => {
                    sum();
                    send(0, &lent, long);
                }
                3 => {
                    sum();
                    send(0, &own, short);
                }
                _ => sum(),
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            assert!(rank != 1 || other.is_at(0..long, value + 1), "round {round}");
            assert!(
                rank != 0 || lent.is_at(0..short, value + 4) && lent.is_at(short..long, value + 1),
                "round {round}"
            );
        }
    });
}

/// The root lends to rank 1, which has much else to take first, a part that lies where rank 2, which neither gives nor takes
/// anything before, puts its block of a gather.
/// Blocks of 2 KiB: the shortest of which votes find the way, and the longest that travel together, if each rank alone does not find
/// that they had better not. Ranks group their calls differently, by slots at first and over mapped memory when votes say so.
#[test]
fn calls_that_vote_do_not_travel_together() {
    const COUNT: usize = 512;
    const CALLS: usize = 4;
    crowd(|Member { rank, ranks, comm, stream, mut own, .. }| {
        for round in 0..120 {
            let value = |rank: usize, call: usize| (1000 * round + 10 * rank + call) as i32;
            let inputs: Vec<Ints> = (0..CALLS).map(|c| Ints::new(COUNT, value(rank, c))).collect();
            let outputs: Vec<Ints> = (0..CALLS).map(|_| Ints::new(COUNT * ranks, -1)).collect();
            let mut begin = 0;
            while begin < CALLS {
                let end = if own.bool() { CALLS } else { own.usize(begin + 1..=CALLS) };
                group::start();
                for (input, output) in inputs[begin..end].iter().zip(&outputs[begin..end]) {
                    let call = request(Collective::AllGather, input.ptr(), output.ptr(), COUNT, &stream);
                    comm.submit(call).unwrap_or_else(|e| panic!("{e}"));
                }
                group::end().unwrap_or_else(|e| panic!("{e}"));
                begin = end;
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            for (call, output) in outputs.iter().enumerate() {
                for from in 0..ranks {
                    output.expect_at(from * COUNT..(from + 1) * COUNT, value(from, call));
                }
            }
        }
    });
}

#[test]
fn a_gather_does_not_write_what_an_all_to_all_v_still_lends() {
    let ranks = (processors() + 1).clamp(5, 9);
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        // A direct call, and one that is begun at once.
        let count = 100_000 / ranks / 2 * 2;
        let much = 20 * count;
        let (block, gift) = (Ints::new(count, -7), Ints::new(much, 3));
        let taken = Ints::new(count + much * (ranks - 3), -1);
        for round in 0..100 {
            let lent = Ints::new(count * ranks, 1000 + round);
            let given = |from: usize, to: usize| match from {
                0 if to == 1 => count,
                3.. if to == 1 => much,
                _ => 0,
            };
            let (from, at) = if rank == 0 { (&lent, 2 * count) } else { (&gift, 0) };
            let mut call = request(Collective::AllToAllV, from.ptr().cast_const(), taken.ptr(), 0, &stream);
            call.v = Some(Box::new(VCounts {
                send_counts: (0..ranks).map(|to| given(rank, to)).collect(),
                send_displs: vec![at; ranks],
                recv_counts: (0..ranks).map(|from| given(from, rank)).collect(),
                recv_displs: (0..ranks).map(|from| if from < 3 { 0 } else { count + (from - 3) * much }).collect(),
            }));
            comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
            let gather = request(Collective::Gather, block.ptr().cast_const(), lent.ptr(), count, &stream);
            comms[0].submit(gather.to(0)).unwrap_or_else(|e| panic!("{e}"));
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
            if rank == 1 {
                assert!(taken.is_at(0..count, 1000 + round), "round {round}");
            }
            assert!(rank != 0 || lent.is_at(0..count * ranks, -7), "round {round}");
        }
    });
}

/// The root lends and waits; a leaf is done as soon as it has taken. One leaf's call differs.
#[test]
fn a_root_that_lends_hears_of_a_call_that_differs() {
    let ranks = (processors() + 1).clamp(5, 9);
    use Collective::{Broadcast, Gather, Scatter};
    // The last two go by slots at first.
    for (kind, count) in
        [(Broadcast, 5000), (Scatter, 5000), (Gather, 5000), (Broadcast, 1500), (Scatter, 1500 / ranks)]
    {
        team(ranks, 1, |rank, comms| {
            let stream = Stream::new().unwrap();
            let (input, output) = (Ints::new(count * ranks, 7), Ints::new(count * ranks, -1));
            let mut failed = None;
            for i in 0..60 {
                let count = if i == 41 && rank == 1 { count - 1 } else { count };
                let call = request(kind, input.ptr().cast_const(), output.ptr(), count, &stream);
                failed = failed.or(comms[0].submit(call.to(0)).err());
            }
            failed = failed.or(stream.synchronize().err());
            if rank > 1 {
                // They may have been done before it came to light.
                return;
            }
            let deadline = Instant::now() + Duration::from_secs(10);
            while failed.is_none() && Instant::now() < deadline {
                failed = stream.query().err().or(comms[0].async_error().err());
                std::thread::yield_now();
            }
            let error = failed.expect("a call that differs");
            assert_eq!(error.code, ResultCode::InvalidUsage, "{error:?}");
            let named = |count: usize| error.text.contains(&format!("count {count}"));
            assert!(named(count) && named(count - 1), "{error:?}");
        });
    }
}
