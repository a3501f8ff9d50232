//! Groups of small collectives allocate nothing after the first ones, also where a peer is late and calls are left to their stream.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
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

#[test]
fn groups_allocate_nothing_after_the_first_ones() {
    let comms = Communicator::init_all(&[0, 1]).unwrap();
    let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
    let memory = [(); 2].map(|()| [(); 2].map(|()| device::alloc_alone(BYTES).unwrap()));
    let pair = Pair { comms, streams, memory };
    let one = |rank: usize| (0..CALLS).for_each(|i| pair.all_reduce(rank, i));
    let rounds: Vec<usize> = (0..12).map(|_| pair.round(&one)).collect();
    println!("{rounds:?}");
    assert_eq!(rounds[4..], [0; 8]);
    pair.comms.iter().for_each(|comm| comm.destroy().unwrap());
    for at in pair.memory.into_iter().flatten() {
        // SAFETY: the communicators are gone, and with them all work.
        unsafe { device::free(at).unwrap() };
    }
}
