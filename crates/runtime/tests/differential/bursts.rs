//! Calls back to back: many of one communicator before anybody waits, of sizes that go in lines, in slots, beside the
//! lines and in place, with buffers of either kind of memory on each rank, by ranks that run ahead of each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{Communicator, Request};
use oxccl_types::{Collective, ResultCode};

use crate::case::Buffer;
use crate::scenarios::{To, request};

const COLLECTIVES: [Collective; 8] = [
    Collective::Broadcast,
    Collective::Scatter,
    Collective::Broadcast,
    Collective::AllReduce,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::ReduceScatter,
    Collective::Gather,
];
/// Elements of a block: in the line, in small slots, in slots, beside the line, in place.
const COUNTS: [usize; 8] = [1, 100, 900, 1100, 1600, 2048, 5000, 40_000];

/// A call of this rank and what it must give: per block of the output one value.
struct Call {
    request: Request,
    input: Buffer,
    output: Buffer,
    expected: Vec<i32>,
}

fn filled(blocks: usize, count: usize, device: bool, value: impl Fn(usize) -> i32) -> Buffer {
    let mut buffer = Buffer::new(blocks * count * 4, 0, device);
    (0..blocks).for_each(|b| buffer.fill(b * count * 4, count * 4, &value(b).to_le_bytes()));
    buffer
}

/// Call `number`, alike on all ranks as far as `rng` draws; `own` draws what each rank decides for itself.
fn call(
    number: i32,
    (ranks, rank): (usize, usize),
    stream: &Stream,
    rng: &mut fastrand::Rng,
    own: &mut fastrand::Rng,
) -> Call {
    let collective = COLLECTIVES[rng.usize(..COLLECTIVES.len())];
    let count = COUNTS[rng.usize(..COUNTS.len())];
    let root = rng.usize(..ranks);
    // Block `b` of the input of rank `r`.
    let gave = |r: usize, b: usize| number.wrapping_mul(1000) + 10 * r as i32 + b as i32;
    let sum = |b: usize| (0..ranks).map(|r| gave(r, b)).fold(0, i32::wrapping_add);
    let (sends, receives) = match collective {
        Collective::Broadcast | Collective::Scatter => (rank == root, true),
        Collective::Gather => (true, rank == root),
        _ => (true, true),
    };
    let expected = match collective {
        _ if !receives => vec![],
        Collective::Broadcast => vec![gave(root, 0)],
        Collective::Scatter => vec![gave(root, rank)],
        Collective::AllReduce => vec![sum(0)],
        Collective::ReduceScatter => vec![sum(rank)],
        Collective::AllToAll => (0..ranks).map(|r| gave(r, rank)).collect(),
        _ => (0..ranks).map(|r| gave(r, 0)).collect(),
    };
    let in_place = collective == Collective::AllGather && own.u8(..3) == 0;
    let inputs = if sends && !in_place { collective.input_blocks(ranks) } else { 0 };
    let mut memory = || own.u8(..3) == 0;
    let input = filled(inputs, count, memory(), |b| gave(rank, b));
    let mut output = filled(expected.len(), count, memory(), |_| -1);
    let mut send = input.ptr();
    if in_place {
        let at = rank * count * 4;
        output.fill(at, count * 4, &gave(rank, 0).to_le_bytes());
        send = output.ptr().wrapping_add(at);
    }
    let call = request(collective, send.cast_const(), output.ptr(), count, stream);
    Call { request: call.to(root), input, output, expected }
}

impl Call {
    fn check(&self, number: usize) {
        let what = || format!("{} of {} elements, call {number}", self.request.collective, self.request.count);
        self.input.check_guards(&what);
        self.output.check_guards(&what);
        let content = self.output.content();
        for (b, value) in self.expected.iter().enumerate() {
            let block = &content[b * self.request.count * 4..][..self.request.count * 4];
            let wrong = block.chunks(4).position(|x| x != value.to_le_bytes());
            assert!(wrong.is_none(), "element {wrong:?} of block {b} is not {value}: {}", what());
        }
    }
}

/// Makes `bursts` bursts of calls; how many calls that were.
pub fn run(comm: &Arc<Communicator>, ranks: usize, rank: usize, bursts: usize, seed: u64) -> usize {
    device::set_current(rank % device::count()).unwrap();
    let stream = Stream::new().unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
    let mut made = 0;
    for _ in 0..bursts {
        let n = rng.usize(1..30);
        let calls: Vec<Call> =
            (0..n).map(|i| call((made + i) as i32, (ranks, rank), &stream, &mut rng, &mut own)).collect();
        for call in &calls {
            // Now and then a rank is late.
            let late = if own.u8(..8) == 0 { own.u32(..2000) } else { 0 };
            (0..late).for_each(|_| std::hint::spin_loop());
            comm.submit(call.request.clone()).unwrap_or_else(|e| panic!("{e}"));
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        calls.iter().enumerate().for_each(|(i, call)| call.check(made + i));
        made += n;
    }
    made
}

/// Makes broadcasts of private memory back to back, the last of which rank 1 calls with another count: both are told.
pub fn differ(comm: &Arc<Communicator>, rank: usize, calls: usize) {
    let stream = Stream::new().unwrap();
    let count = 2048;
    let input = filled(1, count, false, |_| 7);
    let output = filled(1, count, false, |_| -1);
    let mut first = Ok(());
    for i in 0..calls {
        let differs = i + 1 == calls && rank == 1;
        let count = if differs { count - 1 } else { count };
        // The root may be told in a call, or when it waits.
        let call = request(Collective::Broadcast, input.ptr().cast_const(), output.ptr(), count, &stream);
        first = first.and(comm.submit(call));
    }
    first = first.and(stream.synchronize());
    // A root that is over with its calls looks for those of the others beside them.
    let deadline = Instant::now() + Duration::from_secs(10);
    while first.is_ok() && Instant::now() < deadline {
        first = stream.query().and_then(|_| comm.async_error());
        std::thread::yield_now();
    }
    let error = first.expect_err("a call that differs");
    assert_eq!(error.code, ResultCode::InvalidUsage, "{error:?}");
    assert!(error.text.contains("2047") && error.text.contains("2048"), "{error:?}");
}
