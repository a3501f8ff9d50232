//! AlltoAllv among other calls, back to back on a few buffers, against a model of every element of them: parts of any length at
//! any place, of ranks of which one sends nothing, others with their lines, from slots, from mapped memory or by messages. What a
//! call has read is written at once when it is over, and memory is given back and made anew.

use std::sync::Arc;

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::{Event, Stream};
use oxccl_runtime::{Communicator, Request, VCounts, group};
use oxccl_types::{Collective, Result};

use crate::case::Buffer;
use crate::network::alone;
use crate::scenarios::{Ints, To, request, team};

const BUFFERS: usize = 4;

/// Per rank, buffer and element.
type Model = Vec<Vec<Vec<i32>>>;

/// An AlltoAllv: elements from each rank to each, and where they begin in the buffers of the one and of the other.
#[derive(Debug)]
struct Parts {
    counts: Vec<Vec<usize>>,
    from: Vec<Vec<usize>>,
    to: Vec<Vec<usize>>,
}

impl Parts {
    fn draw(rng: &mut fastrand::Rng, ranks: usize, unit: usize) -> Parts {
        let counts: Vec<Vec<usize>> = (0..ranks)
            .map(|_| {
                let most = match rng.u8(..6) {
                    0 => 0,
                    1 => unit.min(9),
                    2 => unit.min(200),
                    3 => unit.min(900),
                    _ => unit,
                };
                (0..ranks).map(|_| if rng.u8(..4) == 0 { 0 } else { rng.usize(..=most) }).collect()
            })
            .collect();
        // Each part in a block of its own, somewhere.
        let mut places = |count: &dyn Fn(usize, usize) -> usize| -> Vec<Vec<usize>> {
            (0..ranks)
                .map(|me| {
                    let mut blocks: Vec<usize> = (0..ranks).collect();
                    rng.shuffle(&mut blocks);
                    (0..ranks).map(|p| blocks[p] * unit + rng.usize(..=unit - count(me, p))).collect()
                })
                .collect()
        };
        let from = places(&|me, p| counts[me][p]);
        let to = places(&|me, p| counts[p][me]);
        Parts { counts, from, to }
    }

    fn of(&self, rank: usize) -> VCounts {
        VCounts {
            send_counts: self.counts[rank].clone(),
            send_displs: self.from[rank].clone(),
            recv_counts: self.counts.iter().map(|c| c[rank]).collect(),
            recv_displs: self.to[rank].clone(),
        }
    }
}

/// One call of all ranks: from the first buffer to the second.
struct Step {
    collective: Collective,
    root: usize,
    buffers: (usize, usize),
    parts: Option<Parts>,
}

impl Step {
    fn draw(rng: &mut fastrand::Rng, (ranks, root): (usize, usize), unit: usize, buffers: (usize, usize)) -> Step {
        let collective = match rng.u8(..14) {
            0 => Collective::AllToAll,
            1 => Collective::AllGather,
            2 => Collective::AllReduce,
            3 => Collective::ReduceScatter,
            4 => Collective::Broadcast,
            5 | 6 => Collective::Gather,
            _ => Collective::AllToAllV,
        };
        let parts = (collective == Collective::AllToAllV).then(|| Parts::draw(rng, ranks, unit));
        Step { collective, root, buffers, parts }
    }

    fn request(&self, rank: usize, unit: usize, buffers: &[Buffer], stream: &Stream) -> Request {
        let (from, to) = (buffers[self.buffers.0].ptr().cast_const(), buffers[self.buffers.1].ptr());
        let mut request = request(self.collective, from, to, unit, stream);
        if let Some(parts) = &self.parts {
            (request.count, request.v) = (0, Some(Box::new(parts.of(rank))));
        }
        request.to(self.root)
    }

    fn apply(&self, unit: usize, model: &mut Model) {
        let ranks = model.len();
        let inputs: Vec<Vec<i32>> = model.iter().map(|m| m[self.buffers.0].clone()).collect();
        let block = |r: usize, b: usize| &inputs[r][b * unit..(b + 1) * unit];
        let sum = |b: usize| -> Vec<i32> {
            (0..unit).map(|i| (0..ranks).fold(0, |s: i32, r| s.wrapping_add(block(r, b)[i]))).collect()
        };
        for (me, buffers) in model.iter_mut().enumerate() {
            let out = &mut buffers[self.buffers.1];
            let mut put = |b: usize, values: &[i32]| out[b * unit..(b + 1) * unit].copy_from_slice(values);
            match (self.collective, &self.parts) {
                (Collective::AllToAll, _) => (0..ranks).for_each(|r| put(r, block(r, me))),
                (Collective::Gather, _) if me != self.root => {}
                (Collective::AllGather | Collective::Gather, _) => (0..ranks).for_each(|r| put(r, block(r, 0))),
                (Collective::AllReduce, _) => put(0, &sum(0)),
                (Collective::ReduceScatter, _) => put(0, &sum(me)),
                (Collective::Broadcast, _) => put(0, block(self.root, 0)),
                (_, Some(parts)) => {
                    for (r, input) in inputs.iter().enumerate() {
                        let (n, at, to) = (parts.counts[r][me], parts.from[r][me], parts.to[me][r]);
                        out[to..to + n].copy_from_slice(&input[at..at + n]);
                    }
                }
                other => unreachable!("{other:?}"),
            }
        }
    }

    fn describe(&self) -> String {
        let counts = self.parts.as_ref().map(|p| format!(" {:?} from {:?} to {:?}", p.counts, p.from, p.to));
        format!("{} {:?} root {}{}", self.collective, self.buffers, self.root, counts.unwrap_or_default())
    }
}

fn value(round: usize, rank: usize, buffer: usize, i: usize) -> i32 {
    (round * 1_000_003 + rank * 100_003 + buffer * 10_007 + i) as i32
}

/// Buffer `b` anew, in the model and here.
fn renew(model: &mut Model, buffers: &mut [Buffer], rank: usize, b: usize, round: usize) {
    for (r, m) in model.iter_mut().enumerate() {
        m[b].iter_mut().enumerate().for_each(|(i, v)| *v = value(round, r, b, i));
    }
    let bytes: Vec<u8> = model[rank][b].iter().flat_map(|v| v.to_le_bytes()).collect();
    buffers[b].fill(0, bytes.len(), &bytes);
}

fn check(model: &Model, buffers: &[Buffer], rank: usize, what: &dyn Fn() -> String) {
    for (b, buffer) in buffers.iter().enumerate() {
        buffer.check_guards(what);
        let there = buffer.content().chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap()));
        let wrong = there.zip(&model[rank][b]).position(|(is, want)| is != *want);
        assert!(wrong.is_none(), "element {wrong:?} of buffer {b} on rank {rank}: {}", what());
    }
}

/// As the C interface does: an AlltoAllv is made as the last one was, where it may be.
fn submit(comm: &Arc<Communicator>, request: Request) -> Result<()> {
    if let Some(v) = &request.v {
        let lists = [&v.send_counts[..], &v.send_displs, &v.recv_counts, &v.recv_displs];
        let (dtype, send, recv) = (request.dtype, request.send, request.recv);
        if comm.may_repeat(dtype, &lists) && comm.again_v(dtype, &lists, send, recv, &request.stream) {
            return Ok(());
        }
    }
    comm.submit(request)
}

/// So many rounds; how many were made.
pub fn run(comms: [&Arc<Communicator>; 2], ranks: usize, rank: usize, rounds: usize, seed: u64) -> usize {
    let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    for round in 0..rounds {
        let unit = match rng.usize(..12) {
            // More than one step moves.
            0 if ranks <= 3 => 300_000,
            n => [40, 300, 700, 2100, 9000][n % 5],
        };
        let all_device = rng.bool();
        // One for all calls: what was made before begins soonest.
        let root = rng.usize(..ranks);
        let mut buffer = || Buffer::new(unit * ranks * 4, 0, all_device || own.u8(..4) > 0);
        let mut buffers: Vec<Buffer> = (0..BUFFERS).map(|_| buffer()).collect();
        let mut model: Model = vec![vec![vec![0; unit * ranks]; BUFFERS]; ranks];
        (0..BUFFERS).for_each(|b| renew(&mut model, &mut buffers, rank, b, round));
        let (mut comm, mut stream) = (0, 0);
        let mut made: Vec<String> = Vec::new();
        let mut late = fastrand::Rng::with_seed(seed ^ (rank as u64 + 77) ^ round as u64);
        // Now and then the same counts many times: nothing but they then lie between two calls.
        let mut last: Option<Step> = None;
        for i in 0..rng.usize(10..50) {
            if rng.u8(..24) == 0 {
                comm ^= 1;
            }
            if rng.u8(..24) == 0 {
                let event = Event::new();
                streams[stream].record(&event).unwrap();
                stream ^= 1;
                streams[stream].wait(&event).unwrap();
            }
            let mut order: Vec<usize> = (0..BUFFERS).collect();
            rng.shuffle(&mut order);
            // Often what the last call reads, or writes, is written.
            if let Some(last) = last.as_ref().filter(|_| rng.u8(..3) > 0) {
                let at = if rng.bool() { last.buffers.0 } else { last.buffers.1 };
                let there = order.iter().position(|b| *b == at).unwrap();
                order.swap(1, there);
            }
            let grouped = rng.u8(..16) == 0;
            let mut steps = vec![Step::draw(&mut rng, (ranks, root), unit, (order[0], order[1]))];
            if let Some(mut again) = last.take().filter(|_| rng.bool()) {
                again.buffers = (order[0], order[1]);
                steps[0] = again;
            }
            if grouped {
                steps.push(Step::draw(&mut rng, (ranks, root), unit, (order[2], order[3])));
                group::start();
            }
            for step in &steps {
                made.push(step.describe());
                let request = step.request(rank, unit, &buffers, &streams[stream]);
                submit(comms[comm], request).unwrap_or_else(|e| panic!("{e}: {made:?}"));
                step.apply(unit, &mut model);
            }
            if grouped {
                group::end().unwrap_or_else(|e| panic!("{e}: {made:?}"));
            }
            last = steps.pop();
            if late.u8(..24) == 0 {
                (0..late.u32(..40_000)).for_each(|_| std::hint::spin_loop());
            }
            if rng.u8(..10) == 0 {
                // What the last call read, or any other.
                streams[stream].synchronize().unwrap_or_else(|e| panic!("{e}: {made:?}"));
                let b = order[usize::from(rng.u8(..4) == 0)];
                if rng.bool() {
                    buffers[b] = Buffer::new(unit * ranks * 4, 0, all_device || late.u8(..4) > 0);
                }
                renew(&mut model, &mut buffers, rank, b, round + 1000 * (i + 1));
            }
        }
        streams[stream].synchronize().unwrap_or_else(|e| panic!("{e}: {made:?}"));
        check(&model, &buffers, rank, &|| format!("round {round}, blocks of {unit}: {made:#?}"));
    }
    rounds
}

/// More ranks than have all slots, and than there are cores.
fn many() -> usize {
    (processors() + 1).max(18)
}

/// Rank 0 gives parts from its slots, and then as the root of calls in which it waits for nobody comes to the same slot again,
/// while the others, which share cores and wait for the last of them, have still to take from it.
#[test]
fn slots_are_not_filled_again_before_all_have_taken() {
    const VALUES: usize = 4;
    let few = (processors() + 1).clamp(5, 9);
    // Bytes for all peers, and the calls after which the slot is the same: small slots, and those of medium size.
    for (ranks, bytes, slots) in [(few, 1800, 512), (few, 7200, 128), (many(), 1800, 256), (many(), 7200, 64)] {
        let count = bytes / 4 / (ranks - 1);
        team(ranks, 1, |rank, comms| {
            let stream = Stream::new().unwrap();
            let inputs: Vec<Ints> = (0..VALUES).map(|i| Ints::new(count * ranks, i as i32)).collect();
            let (output, small) = (Ints::new(count, -1), Ints::new(1, 3));
            let mut own = fastrand::Rng::with_seed(rank as u64);
            let given = |from: usize, to: usize| if from == 0 && to != 0 { count } else { 0 };
            for i in 0..40_000 / slots {
                let v = VCounts {
                    send_counts: (0..ranks).map(|p| given(rank, p)).collect(),
                    send_displs: (0..ranks).map(|p| p * count).collect(),
                    recv_counts: (0..ranks).map(|p| given(p, rank)).collect(),
                    recv_displs: vec![0; ranks],
                };
                let mut call = request(Collective::AllToAllV, inputs[i % VALUES].ptr(), output.ptr(), 0, &stream);
                call.v = Some(Box::new(v));
                if rank == ranks - 1 {
                    (0..own.u32(..3000)).for_each(|_| std::hint::spin_loop());
                }
                comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
                if rank != 0 {
                    stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                    output.expect((i % VALUES) as i32);
                }
                for _ in 1..slots {
                    comms[0].submit(request(Collective::Broadcast, small.ptr(), small.ptr(), 1, &stream)).unwrap();
                }
            }
            stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        });
    }
}

/// The same where peers cannot map the parts, so that those of 7 KiB lie in slots, too.
#[test]
fn nor_are_slots_of_what_peers_cannot_map() {
    let env = [("OXCCL_SHM", "1"), ("OXCCL_P2P", "shm")];
    alone("uneven::slots_are_not_filled_again_before_all_have_taken", &env);
}

/// Of so many ranks that the table of an AlltoAllv whose parts are lent lies in a small slot: rank 0 comes there with such a call when the
/// others have still to take from it what it broadcast, in calls in which it waits for nobody.
#[test]
fn nor_are_they_by_the_table_of_parts_that_are_lent() {
    // Calls after which the slot is the same.
    const SLOTS: usize = 256;
    let (ranks, count, all) = (many(), 200, 256);
    team(ranks, 1, |rank, comms| {
        let stream = Stream::new().unwrap();
        let inputs: Vec<Ints> = (0..3).map(|i| Ints::new(all, i)).collect();
        let (output, small) = (Ints::new(all, -1), Ints::new(1, 3));
        let (parts, taken) = (Ints::new(count * ranks, 7), Ints::new(count, -1));
        let mut own = fastrand::Rng::with_seed(rank as u64);
        let given = |from: usize, to: usize| if from == 0 && to != 0 { count } else { 0 };
        for i in 0..100 {
            if rank == ranks - 1 {
                (0..own.u32(..100_000)).for_each(|_| std::hint::spin_loop());
            }
            let submit = |request| comms[0].submit(request).unwrap_or_else(|e| panic!("{e}"));
            submit(request(Collective::Broadcast, inputs[i % 3].ptr(), output.ptr(), all, &stream));
            if rank != 0 {
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                output.expect((i % 3) as i32);
            }
            for _ in 1..SLOTS {
                submit(request(Collective::Broadcast, small.ptr(), small.ptr(), 1, &stream));
            }
            let mut call = request(Collective::AllToAllV, parts.ptr(), taken.ptr(), 0, &stream);
            call.v = Some(Box::new(VCounts {
                send_counts: (0..ranks).map(|p| given(rank, p)).collect(),
                send_displs: (0..ranks).map(|p| p * count).collect(),
                recv_counts: (0..ranks).map(|p| given(p, rank)).collect(),
                recv_displs: vec![0; ranks],
            }));
            submit(call);
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        taken.expect(if rank == 0 { -1 } else { 7 });
    });
}

/// Of 26 ranks the table does not fit into a line, and lies in front of the parts; that of 25 just does. Some of the parts are empty, all
/// of one rank are, and all together lie in slots of any kind, or are lent, when a line has room for the table of ten.
#[test]
fn the_table_of_many_ranks_lies_in_the_slot() {
    for (ranks, unit) in [(25, 3), (26, 3), (25, 20), (26, 20), (25, 70), (26, 70)] {
        let count = |from: usize, to: usize| if from == 7 { 0 } else { (from + 2 * to) % (unit + 1) };
        team(ranks, 1, |rank, comms| {
            let stream = Stream::new().unwrap();
            for round in 0..10 {
                let value = |from: usize| (100 * round + from) as i32;
                let (input, output) = (Ints::new(ranks * unit, value(rank)), Ints::new(ranks * unit, -1));
                let places: Vec<usize> = (0..ranks).map(|p| p * unit).collect();
                let v = VCounts {
                    send_counts: (0..ranks).map(|p| count(rank, p)).collect(),
                    send_displs: places.clone(),
                    recv_counts: (0..ranks).map(|p| count(p, rank)).collect(),
                    recv_displs: places,
                };
                let mut call = request(Collective::AllToAllV, input.ptr(), output.ptr(), 0, &stream);
                call.v = Some(Box::new(v));
                comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
                stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
                for p in 0..ranks {
                    let end = p * unit + count(p, rank);
                    output.expect_at(p * unit..end, value(p));
                    output.expect_at(end..(p + 1) * unit, -1);
                }
            }
        });
    }
}

/// The same where nothing is lent that fits into a slot.
#[test]
fn so_does_that_of_parts_which_peers_cannot_map() {
    let env = [("OXCCL_SHM", "1"), ("OXCCL_P2P", "shm")];
    alone("uneven::the_table_of_many_ranks_lies_in_the_slot", &env);
}
