//! The order of launches where a device serves several ranks, and two threads at a time.

use std::sync::Arc;

use oxccl_types::{Collective, DataType, ReduceOp, ResultCode};

use super::order;
use crate::communicator::{CommConfig, Communicator};
use crate::device::{self, Event, Stream};
use crate::group::Names;
use crate::request::{Operator, Request, Shape};
use crate::{UniqueId, group};

fn join(ranks: i32, id: &UniqueId, rank: i32, device: usize) -> Arc<Communicator> {
    let config = CommConfig { launch_order: Some(true), ..CommConfig::default() };
    Communicator::init_rank(ranks, id.clone(), rank, device, config, "test").unwrap()
}

/// An all-reduce of bytes.
pub(crate) fn sum(send: &[u8], recv: &mut [u8], stream: Stream) -> Request {
    Request {
        collective: Collective::AllReduce,
        send: send.as_ptr(),
        recv: recv.as_mut_ptr(),
        count: send.len(),
        dtype: DataType::Uint8,
        op: Operator::Builtin(ReduceOp::Sum),
        root: 0,
        bias: std::ptr::null(),
        v: None,
        stream,
    }
}

#[test]
fn two_threads_that_launch_on_one_device_are_told() {
    let device = device::count() - 1;
    let comm = join(1, &UniqueId::create().unwrap(), 0, device);
    let (send, mut recv) = ([1_u8; 8], [0_u8; 8]);
    device::set_current(device).unwrap();
    let request = sum(&send, &mut recv, Stream::new().unwrap());
    let (requests, others) = ([(comm.clone(), request.clone())], [(comm.clone(), request)]);
    let held = order::begin(&requests).unwrap();
    let error = std::thread::scope(|s| s.spawn(move || order::begin(&others).err()).join().unwrap());
    let error = error.expect("another thread is launching");
    assert!(error.code == ResultCode::InvalidUsage && error.text.contains("NCCL_LAUNCH_RACE_FATAL"), "{error:?}");
    held.finish().unwrap();
    comm.destroy().unwrap();
}

/// Who waits for the end of a launch gets it, though the program has let go of the stream.
#[test]
fn a_launch_ends_whose_stream_nobody_holds() {
    let device = device::count() - 3;
    let comm = join(1, &UniqueId::create().unwrap(), 0, device);
    device::set_current(device).unwrap();
    let [gate, first, second] = [0; 3].map(|_| Stream::new().unwrap());
    let (opens, opened) = std::sync::mpsc::channel::<()>();
    gate.launch_host(Box::new(move || opened.recv().unwrap())).unwrap();
    let open = Event::new();
    gate.record(&open).unwrap();
    first.wait(&open).unwrap();
    let (send, mut recv) = ([1_u8; 8], [[0_u8; 8]; 2]);
    let [one, other] = &mut recv;
    comm.submit(sum(&send, one, first)).unwrap();
    comm.submit(sum(&send, other, second.clone())).unwrap();
    opens.send(()).unwrap();
    second.synchronize().unwrap();
    assert_eq!(recv, [[1; 8]; 2]);
    comm.destroy().unwrap();
}

/// The ranks of a communicator need each other, so they cannot take turns on a device.
#[test]
fn ranks_on_one_device_do_not_wait_for_each_other() {
    let ids = [UniqueId::create().unwrap(), UniqueId::create().unwrap()];
    let device = device::count() - 2;
    std::thread::scope(|s| {
        let member = |rank: i32| {
            let ids = &ids;
            move || ids.each_ref().map(|id| join(2, id, rank, device))
        };
        let threads = [s.spawn(member(0)), s.spawn(member(1))];
        let ranks = threads.map(|t| t.join().unwrap());
        // One thread issues the calls of both ranks, each on a stream of its own.
        device::set_current(device).unwrap();
        let send = [[1_u8; 64], [2; 64]];
        for _ in 0..5 {
            let mut recv = [[[0_u8; 64]; 2]; 2];
            let streams: [Stream; 4] = std::array::from_fn(|_| Stream::new().unwrap());
            for (rank, comms) in ranks.iter().enumerate() {
                for (i, comm) in comms.iter().enumerate() {
                    let stream = streams[2 * rank + i].clone();
                    group::launch(vec![(comm.clone(), sum(&send[rank], &mut recv[rank][i], stream))]).unwrap();
                }
            }
            streams.iter().for_each(|s| s.synchronize().unwrap());
            assert_eq!(recv, [[[3; 64]; 2]; 2]);
        }
        for comm in ranks.into_iter().flatten() {
            s.spawn(move || comm.destroy().unwrap());
        }
    });
}

/// Most calls are recorded without a look at what may end them.
#[test]
fn what_ends_a_communicator_while_a_group_is_open_ends_the_group() {
    let device = device::count() - 1;
    let comm = join(1, &UniqueId::create().unwrap(), 0, device);
    let stream = Stream::default_of(device);
    let (send, mut recv) = ([1_u8; 8], [0_u8; 8]);
    let (send, to) = (send.as_ptr(), recv.as_mut_ptr());
    let shape = Shape::new(Collective::AllReduce, DataType::Uint8 as i32, 0, 0, 8);
    let names = Names { communicator: Arc::as_ptr(&comm).addr(), stream: 1, handle: 1 };
    for revoked in [false, true] {
        recv.fill(0);
        group::start();
        assert!(comm.record(&shape, send, to, &stream));
        group::name(names, &shape);
        assert!(group::record_like(names, &shape, send, to));
        if revoked {
            std::thread::scope(|s| s.spawn(|| comm.revoke()).join().unwrap()).unwrap();
            assert!(group::record_like(names, &shape, send, to), "it looks no further than the handle");
        }
        let end = group::end();
        stream.synchronize().unwrap();
        assert_eq!(end.as_ref().err().map(|e| e.text.contains("revoked")), revoked.then_some(true), "{end:?}");
        assert_eq!(recv, [if revoked { 0 } else { 1 }; 8], "nothing was done");
    }
    comm.abort().unwrap();
}

/// A small call within one array of words per rank.
#[derive(Clone, Copy)]
struct Step {
    collective: Collective,
    from: usize,
    to: usize,
    count: usize,
    root: usize,
}

/// Words per rank.
const WORDS: usize = 64;

impl Step {
    fn draw(rng: &mut fastrand::Rng, ranks: usize) -> Step {
        let all = [Collective::AllReduce, Collective::Broadcast, Collective::Reduce, Collective::AllGather];
        let collective = all[rng.usize(..4)];
        let count = [1, 2, 2, 2, 5, 16][rng.usize(..6)];
        let blocks = if collective == Collective::AllGather { ranks } else { 1 };
        let most = WORDS - count * blocks;
        let from = rng.usize(..=most);
        // In place, or far enough away.
        let to = match rng.bool() || collective == Collective::AllGather {
            true if collective == Collective::AllGather => (from + count * blocks).min(most),
            true => from,
            false => (from + WORDS / 2) % most,
        };
        Step { collective, from, to, count, root: rng.usize(..ranks) }
    }

    /// Whether input and output are there, and the same or do not touch.
    fn is_sound(&self, ranks: usize) -> bool {
        let blocks = if self.collective == Collective::AllGather { ranks } else { 1 };
        if self.from + self.count > WORDS || self.to + self.count * blocks > WORDS {
            return false;
        }
        let apart = self.from + self.count <= self.to || self.to + self.count * blocks <= self.from;
        apart || (self.from == self.to && blocks == 1)
    }

    /// What the call does, as the interface says.
    fn apply(&self, memory: &mut [Vec<u32>]) {
        let inputs: Vec<Vec<u32>> = memory.iter().map(|m| m[self.from..self.from + self.count].to_vec()).collect();
        let sum = |i: usize| inputs.iter().fold(0_u32, |sum, input| sum.wrapping_add(input[i]));
        for (rank, words) in memory.iter_mut().enumerate() {
            let output: Vec<u32> = match self.collective {
                Collective::Broadcast => inputs[self.root].clone(),
                Collective::AllGather => inputs.concat(),
                Collective::Reduce if rank != self.root => continue,
                _ => (0..self.count).map(sum).collect(),
            };
            words[self.to..self.to + output.len()].copy_from_slice(&output);
        }
    }

    fn request(&self, words: *mut u32, stream: &Stream) -> Request {
        Request {
            collective: self.collective,
            send: words.wrapping_add(self.from).cast(),
            recv: words.wrapping_add(self.to).cast(),
            count: self.count,
            dtype: DataType::Uint32,
            op: Operator::Builtin(ReduceOp::Sum),
            root: self.root,
            bias: std::ptr::null(),
            v: None,
            stream: stream.clone(),
        }
    }
}

/// Makes the calls, in groups as `rng` has it, and now and then waits for them.
fn make(comm: &Arc<Communicator>, steps: &[Step], words: *mut u32, mut rng: fastrand::Rng) {
    let stream = Stream::new().unwrap();
    let mut rest = steps;
    while !rest.is_empty() {
        let (these, others) = rest.split_at([1, 2, 9, 40][rng.usize(..4)].min(rest.len()));
        rest = others;
        group::start();
        these.iter().for_each(|step| comm.submit(step.request(words, &stream)).unwrap());
        group::end().unwrap();
        if rng.u8(..4) == 0 {
            stream.synchronize().unwrap();
        }
    }
    stream.synchronize().unwrap();
}

/// Calls of a group read what calls before them wrote, and need not be in one group on every rank.
#[test]
fn small_calls_of_groups_keep_their_order_however_they_are_grouped() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for ranks in [2, 3] {
        let mut drawn = std::iter::repeat_with(|| Step::draw(&mut rng, ranks)).filter(|step| step.is_sound(ranks));
        // Streaks of one shape, as programs have them.
        let mut steps = Vec::new();
        while steps.len() < 3000 {
            let step = drawn.next().unwrap();
            let streak = 1 + steps.len() % 23;
            let moved = |i: usize| Step { from: (step.from + i) % 24, to: 32 + (step.to + 2 * i) % 16, ..step };
            steps.extend((0..streak).map(|i| if step.from == step.to { step } else { moved(i) }));
        }
        steps.retain(|step| step.is_sound(ranks));
        drop(drawn);
        let start: Vec<Vec<u32>> = (0..ranks).map(|_| (0..WORDS).map(|_| rng.u32(..)).collect()).collect();
        let mut expected = start.clone();
        steps.iter().for_each(|step| step.apply(&mut expected));
        let id = UniqueId::create().unwrap();
        let result: Vec<Vec<u32>> = std::thread::scope(|s| {
            let member = |(rank, mut words): (usize, Vec<u32>)| {
                let (id, steps, rng) = (id.clone(), &steps, rng.fork());
                s.spawn(move || {
                    let config = CommConfig::default();
                    let comm = Communicator::init_rank(ranks as i32, id, rank as i32, rank, config, "test").unwrap();
                    make(&comm, steps, words.as_mut_ptr(), rng);
                    comm.destroy().unwrap();
                    words
                })
            };
            let threads: Vec<_> = start.into_iter().enumerate().map(member).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(result == expected, "{ranks} ranks, seed {seed}");
    }
}

#[test]
fn a_stream_that_is_destroyed_in_the_group_is_refused_at_its_end() {
    let id = UniqueId::create().unwrap();
    let comm = Communicator::init_rank(1, id, 0, device::current(), CommConfig::default(), "test").unwrap();
    let (send, mut recv) = ([1_u8; 8], [0_u8; 8]);
    let stream = Stream::new().unwrap();
    let handle = stream.clone().into_raw();
    group::start();
    comm.submit(sum(&send, &mut recv, stream)).unwrap();
    Stream::destroy_raw(handle).unwrap();
    let error = group::end().unwrap_err();
    assert!(error.code == ResultCode::InvalidArgument && error.text.contains("destroyed"), "{error:?}");
    assert_eq!(recv, [0; 8], "nothing of the group was started");
    comm.destroy().unwrap();
}
