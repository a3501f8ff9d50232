//! Small collectives of a group that travel together: whatever their counts and kinds, however ranks group them, on one
//! communicator and on several in turn; and how they end when ranks do not make the same ones.

use std::time::{Duration, Instant};

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Communicator, Operator, Request, group};
use oxccl_types::{Collective, DataType, ReduceOp};

use crate::network::alone;
use crate::scenarios::{Ints, To as _, request, team};

/// More than travel together.
const CALLS: usize = 1000;
/// After so long a wait has not ended.
const LIMIT: Duration = Duration::from_secs(30);

/// 2, 3, and more than there are cores, where these are few enough for a test.
fn teams() -> [usize; 3] {
    [2, 3, (processors() + 1).clamp(5, 9)]
}

/// Makes `calls` all-reduces of `count(i)` elements out of place in one group, on the communicator `comm(i)`.
fn sums<'a>(
    calls: usize,
    comm: impl Fn(usize) -> &'a std::sync::Arc<oxccl_runtime::Communicator>,
    count: impl Fn(usize) -> usize,
    data: (&Ints, &Ints),
    stream: impl Fn(usize) -> &'a Stream,
) -> oxccl_types::Result<()> {
    group::start();
    for i in 0..calls {
        let at = 4 * 8 * i;
        let (from, to) = (data.0.ptr().wrapping_add(at), data.1.ptr().wrapping_add(at));
        // Another rank may have failed.
        let _ = comm(i).submit(request(Collective::AllReduce, from, to, count(i), stream(i)));
    }
    group::end()
}

#[test]
fn a_thousand_calls_of_eight_communicators_in_turn() {
    const COMMS: usize = 8;
    for ranks in teams() {
        team(ranks, COMMS, |rank, comms| {
            let streams: Vec<Stream> = (0..COMMS).map(|_| Stream::new().unwrap()).collect();
            let sum = (1..=ranks as i32).sum();
            for round in 0..6 {
                let source = Ints::new(8 * CALLS, 1 + rank as i32);
                let output = Ints::new(8 * CALLS, -1);
                // Ranks may begin with different ones, and use one stream or several.
                let comm = |i: usize| &comms[(i + if round % 2 == 1 { rank } else { 0 }) % COMMS];
                let stream = |i: usize| &streams[if round >= 4 { i % COMMS } else { 0 }];
                // Of the calls of a communicator the counts must agree.
                let count = if round < 2 { |_: usize| 2 } else { |i: usize| 1 + i / COMMS % 8 };
                sums(CALLS, comm, count, (&source, &output), stream).unwrap();
                streams.iter().for_each(|s| s.synchronize().unwrap());
                for i in 0..CALLS {
                    output.expect_at(8 * i..8 * i + count(i), sum);
                    output.expect_at(8 * i + count(i)..8 * i + 8, -1);
                }
            }
        });
    }
}

/// A group of calls on several communicators begins when it ends, if all that is left of the one before it has only to be looked at; it
/// is not queued, which would be for good, since those behind it are then, too.
#[test]
fn groups_in_turn_begin_when_those_before_are_over() {
    alone("fused::groups_of_one_thread_in_turn", &[("OXCCL_SHM", "1"), ("OXCCL_HELPER_DELAY_US", "1000000")]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential fused::groups_in_turn` runs it in a process of its own"]
fn groups_of_one_thread_in_turn() {
    const COMMS: usize = 3;
    const FEW: usize = 30;
    let comms: Vec<_> = (0..COMMS).map(|_| Communicator::init_all(&[0, 1]).unwrap()).collect();
    let streams = [Stream::new().unwrap(), Stream::new().unwrap()];
    for round in 0..20 {
        let sources = [1, 2].map(|value| Ints::new(8 * FEW, value + round));
        let outputs = [Ints::new(8 * FEW, -1), Ints::new(8 * FEW, -1)];
        let broadcasts = round % 2 == 1;
        let group = |rank: usize| {
            let (source, output, stream) = (&sources[rank], &outputs[rank], &streams[rank]);
            if !broadcasts {
                return sums(FEW, |i| &comms[i % COMMS][rank], |_| 2, (source, output), |_| stream).unwrap();
            }
            group::start();
            for i in 0..FEW {
                let at = 4 * 8 * i;
                let (from, to) = (source.ptr().wrapping_add(at), output.ptr().wrapping_add(at));
                // On one communicator the first rank waits.
                let call = request(Collective::Broadcast, from, to, 2, stream).to(i % COMMS % 2);
                comms[i % COMMS][rank].submit(call).unwrap();
            }
            group::end().unwrap();
        };
        // Nobody steps the first rank's stream but its next group.
        for _ in 0..3 {
            group(0);
            group(1);
            assert!(streams[1].query().unwrap(), "round {round}: the first rank has not begun its group");
        }
        streams[0].synchronize().unwrap();
        for i in 0..FEW {
            let expected = if broadcasts { 1 + (i % COMMS % 2) as i32 + round } else { 3 + 2 * round };
            outputs.iter().for_each(|output| output.expect_at(8 * i..8 * i + 2, expected));
        }
    }
    comms.iter().flatten().for_each(|comm| comm.destroy().unwrap());
}

#[test]
fn results_pass_from_call_to_call_of_each_of_eight_communicators() {
    const COMMS: usize = 8;
    const ROUNDS: usize = 5;
    for ranks in teams() {
        team(ranks, COMMS, |rank, comms| {
            let s = Stream::new().unwrap();
            for round in 0..20 {
                // In place, again and again; of every other one a copy is made as well, from which nothing goes on.
                let values: Vec<Ints> = (0..COMMS).map(|_| Ints::new(2, 1)).collect();
                let copies: Vec<Ints> = (0..COMMS).map(|_| Ints::new(2, -1)).collect();
                group::start();
                for i in 0..COMMS * ROUNDS {
                    // Ranks may begin with different ones.
                    let at = (i + if round % 2 == 1 { rank } else { 0 }) % COMMS;
                    let (value, copy) = (values[at].ptr(), copies[at].ptr());
                    comms[at].submit(request(Collective::AllReduce, value, value, 2, &s)).unwrap();
                    if at.is_multiple_of(2) {
                        comms[at].submit(request(Collective::AllReduce, value, copy, 2, &s)).unwrap();
                    }
                }
                group::end().unwrap();
                s.synchronize().unwrap();
                let product = (ranks as i32).pow(ROUNDS as u32);
                for (at, (value, copy)) in values.iter().zip(&copies).enumerate() {
                    value.expect(product);
                    copy.expect(if at.is_multiple_of(2) { product * ranks as i32 } else { -1 });
                }
            }
        });
    }
}

#[test]
fn results_pass_from_call_to_call_of_a_group() {
    for ranks in teams() {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let n = ranks as i32;
            for _ in 0..20 {
                // In place, again and again: 1, n, n * n.
                let value = Ints::new(2, 1);
                // A chain whose links are read by the next call, with calls between that nobody reads.
                let chain: Vec<Ints> = (0..10).map(|i| Ints::new(3, if i == 0 { 1 } else { -1 })).collect();
                let (source, sink) = (Ints::new(2, rank as i32), Ints::new(2, -1));
                group::start();
                for i in 0..9 {
                    if i < 3 {
                        comms[0].submit(request(Collective::AllReduce, value.ptr(), value.ptr(), 2, &s)).unwrap();
                    }
                    comms[0].submit(request(Collective::AllReduce, source.ptr(), sink.ptr(), 2, &s)).unwrap();
                    let max = Operator::Builtin(ReduceOp::Max);
                    let link = request(Collective::AllReduce, chain[i].ptr(), chain[i + 1].ptr(), 3, &s);
                    let link = if i % 4 == 3 { Request { op: max, ..link } } else { link };
                    comms[0].submit(link).unwrap();
                }
                group::end().unwrap();
                s.synchronize().unwrap();
                value.expect(n.pow(3));
                sink.expect((0..n).sum());
                let mut link = 1;
                for (i, ints) in chain.iter().enumerate().skip(1) {
                    link = if i % 4 == 0 { link } else { link * n };
                    ints.expect(link);
                }
            }
        });
    }
}

#[test]
fn kinds_and_sizes_are_mixed_in_a_group() {
    for ranks in teams() {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let sum: i32 = (1..=ranks as i32).sum();
            for round in 0..10 {
                let count = |i: usize| [2, 2, 7, 2, 128, 2, 2, 3000, 2, 20_000][(i + round) % 10];
                let source = Ints::new(20_000 * ranks, 1 + rank as i32);
                let kinds =
                    [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast];
                let kind = |i: usize| kinds[i / 9 % 4];
                let outputs: Vec<Ints> = (0..60).map(|i| Ints::new(count(i) * ranks, -1)).collect();
                group::start();
                for (i, output) in outputs.iter().enumerate() {
                    comms[0].submit(request(kind(i), source.ptr(), output.ptr(), count(i), &s)).unwrap();
                }
                group::end().unwrap();
                s.synchronize().unwrap();
                for (i, output) in outputs.iter().enumerate() {
                    let n = count(i);
                    match kind(i) {
                        Collective::AllGather => {
                            (0..ranks).for_each(|r| output.expect_at(r * n..r * n + n, 1 + r as i32));
                        }
                        Collective::Broadcast => output.expect_at(0..n, 1),
                        _ => output.expect_at(0..n, sum),
                    }
                    if kind(i) != Collective::AllGather {
                        output.expect_at(n..n * ranks, -1);
                    }
                }
            }
        });
    }
}

/// Makes groups that differ in the call 700 on rank 1, by `change`; all ranks hear of it in words that hold `words`.
fn differing(ranks: usize, change: impl Fn(Request) -> Option<Request> + Sync, words: &[&str]) {
    team(ranks, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, output) = (Ints::new(8 * CALLS, 1), Ints::new(8 * CALLS, -1));
        group::start();
        for i in 0..CALLS {
            let at = 4 * 8 * i;
            let (from, to) = (source.ptr().wrapping_add(at), output.ptr().wrapping_add(at));
            let count = if i % 100 == 99 { 3 } else { 2 };
            let call = request(Collective::AllReduce, from, to, count, &s);
            let call = if i == 700 && rank == 1 { change(call) } else { Some(call) };
            if let Some(call) = call {
                comms[0].submit(call).unwrap();
            }
        }
        group::end().unwrap();
        let begin = Instant::now();
        let error = s.synchronize().unwrap_err();
        assert!(begin.elapsed() < LIMIT, "{error}");
        assert!(error.text.contains("different operations"), "{error}");
        words.iter().for_each(|w| assert!(error.text.contains(w), "{w} is not in: {error}"));
        // What came before is right, and what is behind was not touched.
        let before = 600;
        output.expect_at(0..2, ranks as i32);
        output.expect_at(8 * before..8 * before + 2, ranks as i32);
        output.expect_at(8 * 999..8 * 999 + 3, -1);
    });
}

#[test]
fn calls_that_differ_within_a_group_are_named_on_every_rank() {
    for ranks in teams() {
        let count = |count| move |r: Request| Some(Request { count, ..r });
        differing(ranks, count(4), &["AllReduce(count 2,", "AllReduce(count 4,", "rank 1"]);
        let max = |r: Request| Some(Request { op: Operator::Builtin(ReduceOp::Max), ..r });
        differing(ranks, max, &["sum)", "max)", "rank 1"]);
        let floats = |r: Request| Some(Request { dtype: DataType::Float32, ..r });
        differing(ranks, floats, &["int32", "float", "rank 1"]);
        let gathers = |r: Request| Some(Request { collective: Collective::AllGather, count: 1, ..r });
        differing(ranks, gathers, &["AllReduce(", "AllGather(", "rank 1"]);
        // One call less is found where the counts differ next.
        differing(ranks, |_| None, &["AllReduce(count 2,", "AllReduce(count 3,", "rank 1"]);
    }
}

#[test]
fn an_abort_ends_a_group_that_waits() {
    for ranks in teams() {
        team(ranks, 2, |rank, comms| {
            let s = Stream::new().unwrap();
            let (source, output) = (Ints::new(8 * CALLS, 1), Ints::new(8 * CALLS, -1));
            // The last rank makes some of the calls only.
            let calls = if rank + 1 == ranks { 300 } else { CALLS };
            sums(calls, |i| &comms[i % 2], |_| 2, (&source, &output), |_| &s).unwrap();
            if rank + 1 == ranks {
                s.synchronize().unwrap();
                output.expect_at(0..2, ranks as i32);
                comms.iter().for_each(|c| c.abort().unwrap());
            } else {
                let begin = Instant::now();
                let error = s.synchronize().unwrap_err();
                assert!(begin.elapsed() < LIMIT, "{error}");
                output.expect_at(8 * 999..8 * 999 + 2, -1);
                comms.iter().for_each(|c| c.abort().unwrap());
            }
        });
    }
}

#[test]
fn a_rank_that_left_within_a_group_is_named() {
    team(3, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, output) = (Ints::new(8 * CALLS, 1), Ints::new(8 * CALLS, -1));
        let calls = if rank == 2 { 300 } else { CALLS };
        sums(calls, |_| &comms[0], |_| 2, (&source, &output), |_| &s).unwrap();
        if rank == 2 {
            s.synchronize().unwrap();
        } else {
            let error = s.synchronize().unwrap_err();
            assert!(error.text.contains("rank 2"), "{error}");
        }
        output.expect_at(0..2, 3);
    });
}
