//! Groups of small collectives allocate nothing after the first ones, also where a peer is late and calls are left to their stream;
//! nor do calls over a network, be they waited for now and then or not at all.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::Arc;

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{Communicator, Operator, Request, group};
use oxccl_types::{Collective, DataType, ReduceOp};

/// Counts what a thread allocates.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// More than travel together.
const CALLS: usize = 600;
const BYTES: usize = 16 * CALLS;

/// Two ranks that one thread drives, so that the second one of a round finds what the first one left.
struct Pair {
    comms: Vec<Arc<Communicator>>,
    streams: [Stream; 2],
    memory: [[*mut u8; 2]; 2],
}

impl Pair {
    fn all_reduce(&self, rank: usize, i: usize) {
        let [send, recv] = self.memory[rank];
        let request = Request {
            collective: Collective::AllReduce,
            send: send.wrapping_add(16 * i),
            recv: recv.wrapping_add(16 * i),
            count: 2,
            dtype: DataType::Int32,
            op: Operator::Builtin(ReduceOp::Sum),
            root: 0,
            bias: std::ptr::null(),
            v: None,
            stream: self.streams[rank].clone(),
        };
        self.comms[rank].submit(request).unwrap();
    }

    /// Allocations of a round of single calls, those of the first rank without a peer to end them.
    fn round_of_singles(&self, calls: usize) -> usize {
        let before = COUNT.get();
        for rank in [1, 0] {
            (0..calls).for_each(|i| self.all_reduce(rank, i));
        }
        let count = COUNT.get() - before;
        self.streams.iter().rev().for_each(|s| s.synchronize().unwrap());
        count
    }

    /// Allocations of so many calls of both ranks in turn, a few at a time, none of which is waited for.
    fn calls_without_a_wait(&self, calls: usize) -> usize {
        const TURN: usize = 8;
        let before = COUNT.get();
        for at in (0..calls).step_by(TURN) {
            for rank in [1, 0] {
                (at..at + TURN).for_each(|i| self.all_reduce(rank, i % CALLS));
            }
        }
        COUNT.get() - before
    }

    /// Allocations of a round of groups, each rank's made by `calls`.
    fn round(&self, calls: &dyn Fn(usize)) -> usize {
        let before = COUNT.get();
        for rank in [1, 0] {
            // The second one is enqueued behind the first.
            for _ in 0..2 {
                group::start();
                calls(rank);
                group::end().unwrap();
            }
        }
        let count = COUNT.get() - before;
        // A thread that waits for several streams makes a list of them.
        self.streams.iter().rev().for_each(|s| s.synchronize().unwrap());
        count
    }
}

/// Two ranks of this process, for `f`.
fn with_pair(f: impl FnOnce(&Pair)) {
    let comms = Communicator::init_all(&[0, 1]).unwrap();
    let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
    let memory = [(); 2].map(|()| [(); 2].map(|()| device::alloc_alone(BYTES).unwrap()));
    let pair = Pair { comms, streams, memory };
    f(&pair);
    pair.comms.iter().for_each(|comm| comm.destroy().unwrap());
    for at in pair.memory.into_iter().flatten() {
        // SAFETY: the communicators are gone, and with them all work.
        unsafe { device::free(at).unwrap() };
    }
}

#[test]
fn groups_allocate_nothing_after_the_first_ones() {
    with_pair(|pair| {
        let one = |rank: usize| (0..CALLS).for_each(|i| pair.all_reduce(rank, i));
        let rounds: Vec<usize> = (0..12).map(|_| pair.round(&one)).collect();
        println!("{rounds:?}");
        assert_eq!(rounds[4..], [0; 8]);
    });
}

#[test]
fn calls_over_a_network_allocate_nothing_after_the_first_ones() {
    // That ranks share no memory is a setting of the environment.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "calls_over_a_network", "--ignored", "--nocapture"])
        .env("OXCCL_SHM", "0")
        .env("OXCCL_OP_TIMEOUT", "20")
        // Who has a stream while this thread does not run keeps it from what it counts.
        .env("OXCCL_HELPER_DELAY_US", "1000000")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{said}");
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test allocations calls_over` runs it in a process of its own"]
fn calls_over_a_network() {
    with_pair(|pair| {
        let rounds: Vec<usize> = (0..40).map(|_| pair.round_of_singles(8)).collect();
        println!("{rounds:?}");
        // Whoever ends a call may still hold its box when the next one begins.
        let few = rounds[8..].iter().filter(|n| **n > 0).count();
        assert!(few <= 4, "{rounds:?}");
        // If all were queued each would take a box, and one for its extent.
        let rounds: Vec<usize> = (0..8).map(|_| pair.calls_without_a_wait(4000)).collect();
        pair.streams.iter().rev().for_each(|s| s.synchronize().unwrap());
        println!("{rounds:?}");
        // A thread that did not run for long comes back to a longer queue.
        let many = rounds[2..].iter().filter(|n| **n >= 400).count();
        assert!(many <= 2, "{rounds:?}");
    });
}
