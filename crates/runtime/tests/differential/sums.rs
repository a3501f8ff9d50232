//! Reductions of a few KiB by ranks that share cores, of whose inputs some are lent and some go by slots: in processes of their own,
//! since threads can read all memory of each other.

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_types::Collective;

use crate::crowds::processes;
use crate::scenarios::{Comm, Ints, To, all_reduce, request};

/// Elements of the calls of a round, and how many there are: some go by slots before inputs are lent; more than may be under way, and more
/// than there are lines. Of the longer ones slots are few.
const ROUNDS: [(usize, usize); 8] =
    [(513, 40), (700, 100), (1024, 200), (513, 700), (2047, 40), (4096, 40), (4097, 40), (8192, 40)];
/// Elements, and calls, up to which who uses slots waits for nobody.
const MANY_SLOTS: (usize, usize) = (4096, 100);

#[test]
fn who_lends_to_a_reduction_waits_for_the_root_and_who_cannot_does_not() {
    processes((processors() + 1).clamp(4, 7), &[], "sums");
}

/// One rank of these.
pub(crate) fn one(rank: usize, ranks: usize, comms: &[Comm]) {
    for (round, (count, calls)) in ROUNDS.into_iter().enumerate() {
        let root = round % ranks;
        let value = |call: usize, from: usize| (1000 * call + 10 * round + from) as i32;
        // An even number of elements is memory that peers can map.
        let is_mapped = (rank + round / 2).is_multiple_of(2);
        let elements = count.next_multiple_of(2) + usize::from(!is_mapped);
        let mut inputs: Vec<Ints> = (0..calls).map(|call| Ints::new(elements, value(call, rank))).collect();
        let outputs: Vec<Ints> = (0..calls).map(|_| Ints::new(elements, -1)).collect();
        let (stream, other, meeting) = (Stream::new().unwrap(), Stream::new().unwrap(), Ints::new(1, 1));
        let meet = || {
            all_reduce(&comms[1], &meeting, 1, &other);
            other.synchronize().unwrap_or_else(|e| panic!("{e}"));
        };
        if rank == root {
            meet();
        }
        for (input, output) in inputs.iter().zip(&outputs) {
            let call = request(Collective::Reduce, input.ptr(), output.ptr(), count, &stream).to(root);
            comms[0].submit(call).unwrap_or_else(|e| panic!("{e}"));
        }
        if rank != root {
            // The root, which has not come, has read nothing.
            let over = stream.query().unwrap_or_else(|e| panic!("{e}"));
            let what = if is_mapped { "lends" } else { "copies" };
            let waits = is_mapped || calls > MANY_SLOTS.1;
            assert!(over != waits || count > MANY_SLOTS.0, "rank {rank} {what} {count} elements: over {over}");
            meet();
        }
        stream.synchronize().unwrap_or_else(|e| panic!("{e}"));
        // What is over is the program's again.
        inputs.iter_mut().for_each(|input| input.set(0..count, -7));
        for (call, output) in outputs.iter().enumerate() {
            let sum = if rank == root { (0..ranks).map(|from| value(call, from)).sum() } else { -1 };
            assert!(output.is_at(0..count, sum), "call {call} of {count} elements on rank {rank}, root {root}");
            assert!(output.is_at(count..elements, -1), "call {call} of {count} elements wrote more");
        }
    }
}
