//! Calls that follow one another without a wait, by more ranks than the machine has cores (up to 16): each may begin before
//! those in front of it have ended, and none may see it.

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Operator, Request, group};
use oxccl_types::{Collective, ResultCode};

use crate::scenarios::{Ints, To, request, team};

/// More than there are cores, where these are few enough for a test.
fn ranks() -> usize {
    (processors() + 1).clamp(5, 17)
}

/// Elements of a call: in the line, in small slots, in slots, and beyond what is eager.
const COUNTS: [usize; 5] = [1, 2, 300, 2000, 30_000];

#[test]
fn results_pass_from_call_to_call() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        for round in 0..40 {
            let count = COUNTS[round % COUNTS.len()];
            let source = Ints::new(count, 1 + rank as i32);
            let outputs: Vec<Ints> = (0..24).map(|_| Ints::new(count, -1)).collect();
            let gathered = Ints::new(count * ranks, -1);
            for (i, output) in outputs.iter().enumerate() {
                // Every third reads what the one before it makes; the others could be made in any order.
                let input = if i % 3 == 2 { outputs[i - 1].ptr() } else { source.ptr() };
                comms[0].submit(request(Collective::AllReduce, input, output.ptr(), count, &s)).unwrap();
                if i % 7 == 6 {
                    comms[0].submit(request(Collective::Broadcast, output.ptr(), output.ptr(), count, &s)).unwrap();
                }
                if i % 11 == 10 {
                    let gather = Collective::AllGather;
                    comms[0].submit(request(gather, output.ptr(), gathered.ptr(), count, &s)).unwrap();
                }
            }
            s.synchronize().unwrap();
            let sum: i32 = (1..=ranks as i32).sum();
            for (i, output) in outputs.iter().enumerate() {
                output.expect(if i % 3 == 2 { sum * ranks as i32 } else { sum });
            }
            // Calls 10 and 21 were gathered, the later of which is a sum.
            gathered.expect(sum);
        }
    });
}

#[test]
fn a_factor_in_memory_is_what_the_call_before_made_of_it() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, one) = (Ints::new(4, 1 + rank as i32), Ints::new(4, 1));
        let sum: i32 = (1..=ranks as i32).sum();
        for _ in 0..40 {
            let pairs: Vec<(Ints, Ints)> = (0..8).map(|_| (Ints::new(4, -1), Ints::new(4, -1))).collect();
            for (factor, output) in &pairs {
                comms[0].submit(request(Collective::AllReduce, source.ptr(), factor.ptr(), 4, &s)).unwrap();
                let scaled = request(Collective::AllReduce, one.ptr(), output.ptr(), 4, &s);
                let op = Operator::PreMulDevice(factor.ptr().cast_const());
                comms[0].submit(Request { op, ..scaled }).unwrap();
            }
            s.synchronize().unwrap();
            pairs.iter().for_each(|(factor, output)| {
                factor.expect(sum);
                output.expect(sum * ranks as i32);
            });
        }
    });
}

#[test]
fn messages_pass_from_exchange_to_exchange() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for round in 0..40 {
            let count = COUNTS[round % COUNTS.len()];
            let hops: Vec<Ints> =
                (0..=2 * ranks).map(|i| Ints::new(count, if i == 0 { rank as i32 } else { -1 })).collect();
            let (constant, sink) = (Ints::new(count, 7), Ints::new(count, -1));
            for pair in hops.windows(2) {
                for (from, to) in [(&pair[0], &pair[1]), (&constant, &sink)] {
                    group::start();
                    comms[0]
                        .submit(request(Collective::Send, from.ptr(), std::ptr::null_mut(), count, &s).to(next))
                        .unwrap();
                    comms[0]
                        .submit(request(Collective::Recv, std::ptr::null(), to.ptr(), count, &s).to(before))
                        .unwrap();
                    group::end().unwrap();
                }
            }
            s.synchronize().unwrap();
            for (i, hop) in hops.iter().enumerate() {
                hop.expect(((rank + 10 * ranks - i) % ranks) as i32);
            }
            sink.expect(7);
        }
    });
}

#[test]
fn a_mismatch_behind_other_calls_ends_on_every_rank() {
    let ranks = ranks();
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let source = Ints::new(4, 1);
        let outputs: Vec<Ints> = (0..12).map(|_| Ints::new(4, -1)).collect();
        for (i, output) in outputs.iter().enumerate() {
            let count = if i == 5 && rank == 1 { 3 } else { 4 };
            // A call may learn of the failure already.
            let _ = comms[0].submit(request(Collective::AllReduce, source.ptr(), output.ptr(), count, &s));
        }
        let error = s.synchronize().unwrap_err();
        assert_eq!(error.code, ResultCode::InvalidUsage, "{}", error.text);
        outputs[..5].iter().for_each(|o| o.expect(ranks as i32));
    });
}
