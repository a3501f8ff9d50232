//! AlltoAllv of two ranks with the same lists again and again, which one rank or both make in a short way: against a peer that does,
//! or whose lists alter, which goes the ordinary way. Parts are empty, in lines, in slots, or lie where only the other way looks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Communicator, Request, VCounts};
use oxccl_types::{Collective, DataType, Result, ResultCode};

use crate::case::Buffer;
use crate::scenarios::{request, team};

const CALLS: usize = 40;
/// Elements in front of a part, which moves so far when displacements alter.
const GAP: usize = 5;

/// Elements that rank 0 and rank 1 keep, and send each other: `[[0 to 0, 0 to 1], [1 to 0, 1 to 1]]`.
const COUNTS: [[[usize; 2]; 2]; 13] = [
    [[0, 0], [0, 0]],
    [[0, 1], [0, 0]],
    [[3, 0], [5, 2]],
    [[1, 7], [4, 9]],
    [[0, 20], [2, 100]],
    [[5, 23], [24, 6]],
    [[40, 45], [300, 46]],
    [[7, 200], [150, 11]],
    [[0, 511], [512, 0]],
    // What rank 1 sends lies elsewhere, now here and now there, and then what both send.
    [[6, 30], [3000, 1]],
    [[6, 30], [9000, 1]],
    [[0, 22], [50_000, 7]],
    [[2, 70_000], [50_000, 3]],
];

/// As the C interface does; whether the call was made as the last one was.
fn submit(comm: &Arc<Communicator>, request: Request) -> Result<bool> {
    let v = request.v.as_ref().expect("lists");
    let lists = [&v.send_counts[..], &v.send_displs, &v.recv_counts, &v.recv_displs];
    let (dtype, send, recv) = (request.dtype, request.send, request.recv);
    if comm.may_repeat(dtype, &lists) && comm.again_v(dtype, &lists, send, recv, &request.stream) {
        return Ok(true);
    }
    comm.submit(request).map(|()| false)
}

/// The lists of `rank`. Parts lie in the order of the peers, or in the other one, `GAP` elements apart.
fn lists(counts: [[usize; 2]; 2], rank: usize, swapped: bool) -> VCounts {
    let (given, taken) = (counts[rank], [counts[0][rank], counts[1][rank]]);
    let places = |n: [usize; 2]| if swapped { vec![2 * GAP + n[1], GAP] } else { vec![GAP, 2 * GAP + n[0]] };
    VCounts {
        send_counts: given.to_vec(),
        send_displs: places(given),
        recv_counts: taken.to_vec(),
        recv_displs: places(taken),
    }
}

/// A buffer for two parts of the `counts` and what lies before, between and behind them: in memory that peers can map, or not.
fn buffer(counts: &[usize], mapped: bool) -> Buffer {
    Buffer::new((counts.iter().sum::<usize>() + 3 * GAP) * 4, 0, mapped)
}

/// Both ranks go on at the same time, so that neither waits so long for the other that it leaves its call to the stream.
fn meet(came: &AtomicUsize) {
    let all = came.fetch_add(1, Ordering::AcqRel) / 2 * 2 + 2;
    while came.load(Ordering::Acquire) < all {
        std::thread::yield_now();
    }
}

fn value(call: usize, from: usize, to: usize, i: usize) -> i32 {
    (call * 1_000_000 + from * 200_000 + to * 100_000 + i) as i32
}

fn call(v: &VCounts, dtype: DataType, buffers: (&Buffer, &Buffer), stream: &Stream) -> Request {
    let mut call = request(Collective::AllToAllV, buffers.0.ptr(), buffers.1.ptr(), 0, stream);
    (call.dtype, call.v) = (dtype, Some(Box::new(v.clone())));
    call
}

/// One call with new values, waited for and compared with them.
fn round(
    comm: &Arc<Communicator>,
    rank: usize,
    v: &VCounts,
    (n, came): (usize, &AtomicUsize),
    stream: &Stream,
) -> bool {
    let (mut input, mut output) = (buffer(&v.send_counts, n / 4 % 2 == 1), buffer(&v.recv_counts, n % 2 == 0));
    let bytes = |from: usize, to: usize, n_of: usize| -> Vec<u8> {
        (0..n_of).flat_map(|i| value(n, from, to, i).to_le_bytes()).collect()
    };
    let len = output.content().len();
    output.fill(0, len, &[0xee; 64]);
    let mut expected = output.content().to_vec();
    for peer in 0..2 {
        let part = bytes(rank, peer, v.send_counts[peer]);
        input.fill(v.send_displs[peer] * 4, part.len(), &part);
        let part = bytes(peer, rank, v.recv_counts[peer]);
        expected[v.recv_displs[peer] * 4..][..part.len()].copy_from_slice(&part);
    }
    let request = call(v, DataType::Int32, (&input, &output), stream);
    meet(came);
    let again = submit(comm, request).unwrap();
    stream.synchronize().unwrap();
    output.check_guards(&|| format!("call {n} of rank {rank}: {v:?}"));
    let wrong = output.content().iter().zip(&expected).position(|(is, want)| is != want);
    assert!(wrong.is_none(), "byte {wrong:?} of call {n} of rank {rank}: {v:?}");
    again
}

/// Whether rank 0, or rank 1, alters its displacements from call to call.
#[test]
fn lists_of_two_ranks_that_stay_and_that_alter() {
    for alters in [[false, false], [true, false], [false, true]] {
        let again = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let came = AtomicUsize::new(0);
        team(2, 1, |rank, comms| {
            let stream = Stream::new().unwrap();
            // Twice: what was made with other lists is not made again.
            for counts in COUNTS.iter().chain(&COUNTS) {
                for n in 0..CALLS {
                    let v = lists(*counts, rank, alters[rank] && n % 2 == 1);
                    let made = round(&comms[0], rank, &v, (n, &came), &stream);
                    again[rank].fetch_add(made.into(), Ordering::Relaxed);
                    // The other way of the communicator, and of the areas that both write in turns.
                    if n % 16 == 15 {
                        let v = lists([[1, 3000], [4000, 2]], rank, false);
                        round(&comms[0], rank, &v, (n, &came), &stream);
                    }
                }
            }
        });
        for rank in 0..2 {
            let again = again[rank].load(Ordering::Relaxed);
            assert!(alters[rank] || processors() < 2 || again > 0, "rank {rank} never made a call again");
        }
    }
}

/// A part of another length than is expected, by one element more or less, after calls that matched: it is told where it is
/// received as ever, and the peer hears of it.
#[test]
fn a_part_of_another_length_among_calls_made_again() {
    for (count, other) in [(9, 10), (9, 8), (9, 0), (0, 9), (300, 301), (300, 9), (9, 300), (9, 20_000)] {
        let came = AtomicUsize::new(0);
        team(2, 1, |rank, comms| {
            let (comm, stream) = (&comms[0], Stream::new().unwrap());
            let counts = [[3, count], [count, 4]];
            (0..CALLS).for_each(|n| {
                round(comm, rank, &lists(counts, rank, false), (n, &came), &stream);
            });
            let mut v = lists(counts, rank, false);
            if rank == 1 {
                (v.send_counts[0], v.send_displs[1]) = (other, 2 * GAP + other);
            }
            let (input, output) = (buffer(&v.send_counts, true), buffer(&v.recv_counts, true));
            let untouched = output.content().to_vec();
            let made = submit(comm, call(&v, DataType::Int32, (&input, &output), &stream));
            let ended = made.and_then(|_| stream.synchronize());
            if rank == 0 {
                let error = ended.expect_err("it is told");
                assert_eq!(error.code, ResultCode::InvalidUsage, "{error}");
                let words = [&format!("receives {}", named(count)), &format!("which sends {}", named(other))];
                for word in ["rank 0", "from rank 1"].into_iter().chain(words.map(String::as_str)) {
                    assert!(error.text.contains(word), "no {word:?} in: {error}");
                }
                assert_eq!(output.content(), untouched, "nothing is written");
            } else {
                // It may be over with its part of this call: then it hears of it by the next one.
                let next = || submit(comm, call(&v, DataType::Int32, (&input, &output), &stream));
                let error = ended.err().or_else(|| next().and_then(|_| stream.synchronize()).err());
                let error = error.expect("rank 1 hears of it");
                assert!(error.text.contains("rank 0"), "{error}");
            }
        });
    }
}

/// How a text has so many elements.
fn named(count: usize) -> String {
    format!("AlltoAllv(count {count}, int32)")
}
