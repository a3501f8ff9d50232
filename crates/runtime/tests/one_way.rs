//! Calls by which one of two ranks gives without waiting for the other, in pieces through a ring: what is told when the other
//! made another call, or one of them dies, with a part of it under way; and what a late one finds. The same of messages.
//!
//! Each rank is a process of its own: this binary started again.

mod common;
#[path = "common/workers.rs"]
mod workers;

use std::time::{Duration, Instant};

use oxccl_runtime::device::Stream;
use oxccl_runtime::{CommConfig, Communicator, Operator, Request};
use oxccl_types::{Collective, DataType, Error, ReduceOp, ResultCode};

/// How a process is told what to do: rank, case, bytes, id.
const VARIABLE: &str = "OXCCL_TEST_ONE_WAY";
/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// From the call to the error.
const NOTICE: Duration = Duration::from_secs(10);
/// The status of a rank that is to die.
const GONE: i32 = 7;
/// What goes by slots: in lines of slots, announced by the line alone, and in slots that the line speaks of.
const SHORT: [usize; 5] = [700, 1_500, 3_000, 10_000, 60_000];
/// Messages, from such as need no slot to such as are longer than one.
const MESSAGES: [usize; 6] = [500, 1_000, 9_999, 60_000, 262_144, 300_000];
/// Calls that a root makes ahead, so that the place of the next call but one after them is that of the first.
const GIVEN: usize = 7;
/// More than the longest ring holds, and less.
const LENGTHS: [usize; 2] = [7_000_001, 150_001];

fn run(case: &str, bytes: usize, dies: Option<usize>) {
    let gone = |rank: usize| if dies == Some(rank) { GONE } else { 0 };
    workers::run_until(2, LIMIT, &format!("{case} of {bytes} bytes"), gone, |command, rank, id| {
        // The kernel does not copy, so that it goes through the ring on any processor.
        command.env(VARIABLE, format!("{rank} {case} {bytes} {id}")).env("OXCCL_P2P", "shm");
    });
}

#[test]
fn who_gives_is_told_of_another_call() {
    for bytes in LENGTHS {
        for case in ["count", "root", "both-give", "eager"] {
            run(case, bytes, None);
        }
    }
}

#[test]
fn who_gives_is_told_of_the_other_that_ends() {
    LENGTHS.iter().for_each(|bytes| run("taker-dies", *bytes, Some(1)));
}

#[test]
fn who_takes_is_told_of_the_other_that_ends() {
    LENGTHS.iter().for_each(|bytes| run("giver-dies", *bytes, Some(0)));
}

/// What the root gave in each of the calls ahead is there when the other comes, though the root has since made a call for which
/// it waits, and asked for the place of the next.
#[test]
fn who_takes_late_gets_what_was_given() {
    for bytes in SHORT {
        run("taker-late", bytes, None);
    }
}

/// Many in one direction, which go round all of the slots, then such as change direction, then many again.
#[test]
fn messages_one_way_and_both_ways_arrive_as_they_were() {
    for bytes in MESSAGES {
        run("messages", bytes, None);
    }
}

struct Side {
    comm: std::sync::Arc<Communicator>,
    stream: Stream,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Side {
    fn call(&mut self, collective: Collective, root: usize, bytes: usize) -> Result<(), Error> {
        let stream = self.stream.clone();
        self.begin(collective, root, (0, 0), bytes, &stream)?;
        self.stream.synchronize()
    }

    /// A call from and to these places of the buffers, on `stream`.
    fn begin(
        &mut self,
        collective: Collective,
        root: usize,
        (from, to): (usize, usize),
        bytes: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.comm.submit(Request {
            collective,
            send: self.input[from..from + bytes].as_ptr(),
            recv: self.output[to..to + bytes].as_mut_ptr(),
            count: bytes,
            dtype: DataType::Uint8,
            op: Operator::Builtin(ReduceOp::Sum),
            root,
            bias: std::ptr::null(),
            v: None,
            stream: stream.clone(),
        })
    }
}

/// The root broadcasts, then waits in an all-reduce; the other makes its calls only when a message says that all that is done.
fn take_late(mut side: Side, rank: usize, bytes: usize) {
    /// Bytes of the all-reduce: few lines of a slot.
    const SUM: usize = 200;
    let (stream, aside) = (side.stream.clone(), Stream::new().unwrap());
    for round in 0..20 {
        let value = |i: usize| ((i + 31 * round) % 251) as u8 + 1;
        side.input = (0..GIVEN * bytes).map(|i| if rank == 0 { value(i) } else { 0 }).collect();
        side.output = vec![0; GIVEN * bytes + SUM];
        if rank == 1 {
            side.begin(Collective::Recv, 0, (0, 0), 1, &aside).unwrap();
            aside.synchronize().unwrap();
        }
        for call in 0..GIVEN {
            side.begin(Collective::Broadcast, 0, (call * bytes, call * bytes), bytes, &stream).unwrap();
        }
        side.begin(Collective::AllReduce, 0, (0, GIVEN * bytes), SUM, &stream).unwrap();
        if rank == 0 {
            side.begin(Collective::Send, 1, (0, 0), 1, &aside).unwrap();
            aside.synchronize().unwrap();
        }
        stream.synchronize().unwrap();
        let right = |(i, b): (usize, &u8)| *b == value(i);
        let wrong = side.output[..GIVEN * bytes].iter().enumerate().find(|pair| !right(*pair));
        assert!(wrong.is_none(), "rank {rank}, round {round}, {bytes} bytes a call: byte {wrong:?}");
        assert!(side.output[GIVEN * bytes..].iter().enumerate().all(right), "the sum, round {round}");
    }
    side.comm.destroy().unwrap();
}

/// Messages of rank 0 or 1 to the other, in bursts that the other receives when all that fits was sent. None is as the one before.
fn pass(mut side: Side, rank: usize, bytes: usize) {
    /// Messages that begin at different places of the buffers.
    const BURST: usize = 20;
    let input: Vec<u8> = (0..bytes + 256 * BURST).map(|i| (i % 251) as u8).collect();
    let stream = side.stream.clone();
    let mut burst = |sender: usize, number: usize, messages: usize| {
        let from = |message: usize| (number * 7 + message * 13) % (256 * BURST);
        let kind = if rank == sender { Collective::Send } else { Collective::Recv };
        (side.input, side.output) = (input.clone(), vec![0; messages * bytes]);
        for message in 0..messages {
            side.begin(kind, 1 - rank, (from(message), message * bytes), bytes, &stream).unwrap();
        }
        stream.synchronize().unwrap();
        for message in (0..messages).filter(|_| rank != sender) {
            let (got, sent) = (&side.output[message * bytes..][..bytes], &input[from(message)..][..bytes]);
            let wrong = got.iter().zip(sent).position(|(a, b)| a != b);
            assert!(wrong.is_none(), "message {message} of burst {number} from {sender}: byte {wrong:?}");
        }
    };
    for number in 0..16 {
        // Enough in a row to go round, and more than the slots hold.
        (0..8).for_each(|n| burst(number % 2, 8 * number + n, BURST));
        (0..10).for_each(|n| burst(n % 2, n, 1 + n / 2));
    }
    side.comm.destroy().unwrap();
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test one_way` runs it in processes of their own"]
fn worker() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let (rank, case, bytes): (usize, _, usize) = (words[0].parse().unwrap(), words[1], words[2].parse().unwrap());
    let id = workers::id(words[3]);
    let comm = Communicator::init_rank(2, id, rank as i32, rank, CommConfig::default(), "test").unwrap();
    let (input, output) = (vec![rank as u8; bytes], vec![0; 2 * bytes]);
    let mut side = Side { comm, stream: Stream::new().unwrap(), input, output };
    if case == "taker-late" {
        return take_late(side, rank, bytes);
    }
    if case == "messages" {
        return pass(side, rank, bytes);
    }
    // Good ones first: they are known, and the ring was used.
    for _ in 0..3 {
        side.call(Collective::Broadcast, 0, bytes).unwrap();
        assert!(side.output[..bytes].iter().all(|b| *b == 0));
        side.call(Collective::Gather, 0, bytes).unwrap();
    }
    side.call(Collective::AllReduce, 0, 1).unwrap();
    let start = Instant::now();
    let odd = rank == 1;
    let mut differs = || match (case, odd) {
        ("count", true) => side.call(Collective::Broadcast, 0, bytes - 1),
        ("root", true) => side.call(Collective::Broadcast, 1, bytes),
        ("both-give", true) => side.call(Collective::Gather, 0, bytes),
        ("eager", true) => side.call(Collective::Gather, 0, 1),
        ("taker-dies", true) => std::process::exit(GONE),
        ("giver-dies", false) => {
            side.call(Collective::Broadcast, 0, bytes).unwrap();
            std::process::exit(GONE)
        }
        _ => side.call(Collective::Broadcast, 0, bytes),
    };
    // Who needs nothing of the other may be told at its next call.
    let first = differs();
    let error = loop {
        let next = if first.is_ok() { differs() } else { first.clone() };
        match next {
            Err(error) => break error,
            Ok(()) => assert!(start.elapsed() < NOTICE, "rank {rank} is told nothing"),
        }
    };
    assert!(start.elapsed() < NOTICE, "rank {rank}: {error} after {:?}", start.elapsed());
    let expected = if case.ends_with("dies") { ResultCode::RemoteError } else { ResultCode::InvalidUsage };
    assert_eq!(error.code, expected, "rank {rank}: {error}");
    if expected == ResultCode::InvalidUsage {
        assert!(error.text.contains("Broadcast(") && error.text.contains("different operations"), "{error}");
    } else {
        assert!(error.text.contains(&format!("rank {}", 1 - rank)), "{error}");
    }
    side.comm.abort().unwrap();
}
