//! Groups of sends and receives as programs make them: all-to-alls with oneself among the peers, many messages per peer, in
//! any order of peers, small ones and long ones; and what is refused before anything moves.

use oxccl_runtime::config::tuning::processors;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Request, VCounts, group};
use oxccl_types::{Collective, ResultCode};

use crate::scenarios::{Ints, To, request, team};

/// Elements of a message: none, in a record, in a slot, read in place.
const COUNTS: [usize; 7] = [0, 1, 2, 9, 200, 1000, 3000];
const ROUNDS: usize = 60;

/// A message from one rank to another, the `number`th of them in the group.
struct Message {
    from: usize,
    to: usize,
    number: usize,
    count: usize,
}

impl Message {
    fn value(&self, round: usize) -> i32 {
        (round * 1_000_000 + self.from * 10_000 + self.to * 1000 + self.number) as i32
    }
}

/// The messages of a round, alike on all ranks.
fn messages(ranks: usize, rng: &mut fastrand::Rng) -> Vec<Message> {
    // Most rounds have small ones only, which are copied by the call itself.
    let counts = if rng.u8(..4) == 0 { &COUNTS[..] } else { &COUNTS[..6] };
    // Some rounds have more than are under way at a time.
    let most = [1, 1, 1, 3, 3, 3, 30, 30, 30, 300][rng.usize(..10)];
    let mut all = Vec::new();
    for from in 0..ranks {
        for to in 0..ranks {
            let several = rng.usize(..=most);
            all.extend((0..several).map(|number| Message {
                from,
                to,
                number,
                count: counts[rng.usize(..counts.len())],
            }));
        }
    }
    all
}

/// Merges the lists into one, in which each keeps its order.
fn merged(mut lists: Vec<Vec<usize>>, rng: &mut fastrand::Rng) -> Vec<usize> {
    let mut all = Vec::new();
    lists.iter_mut().for_each(|list| list.reverse());
    while lists.iter().any(|list| !list.is_empty()) {
        let at = rng.usize(..lists.len());
        all.extend(lists[at].pop());
    }
    all
}

#[test]
fn groups_of_messages_in_any_order() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for ranks in [1, 2, 3, (processors() + 1).clamp(4, 9)] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let mut shared = fastrand::Rng::with_seed(seed);
            let mut own = fastrand::Rng::with_seed(seed ^ (rank as u64 + 1));
            let mut pending = Vec::new();
            for round in 0..ROUNDS {
                let all = messages(ranks, &mut shared);
                let sent = |to: usize| (0..all.len()).filter(|i| (all[*i].from, all[*i].to) == (rank, to)).collect();
                let come =
                    |from: usize| (0..all.len()).filter(|i| (all[*i].from, all[*i].to) == (from, rank)).collect();
                // Sends and receives with each peer in their order, else mixed.
                let order = merged((0..ranks).map(sent).chain((0..ranks).map(come)).collect(), &mut own);
                let mut buffers: Vec<(usize, bool, Ints)> = Vec::new();
                let mut seen = vec![0; all.len()];
                group::start();
                for i in order {
                    let m = &all[i];
                    seen[i] += 1;
                    // Of a message to oneself that comes twice in the order the first is taken as sent.
                    let sends = m.from == rank && (m.to != rank || seen[i] == 1);
                    let (value, kind, peer) = match sends {
                        true => (m.value(round), Collective::Send, m.to),
                        false => (-1, Collective::Recv, m.from),
                    };
                    let ints = Ints::new(m.count, value);
                    comms[0].submit(request(kind, ints.ptr(), ints.ptr(), m.count, &s).to(peer)).unwrap();
                    buffers.push((i, sends, ints));
                }
                group::end().unwrap();
                pending.push((round, all, buffers));
                // Some rounds are enqueued behind others.
                if own.bool() || round + 1 == ROUNDS {
                    s.synchronize().unwrap();
                    for (round, all, buffers) in pending.drain(..) {
                        for (i, _, ints) in &buffers {
                            ints.expect(all[*i].value(round));
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn messages_to_oneself_that_do_not_match_are_refused_and_nothing_is_sent() {
    team(2, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (source, sink) = (Ints::new(4, 1 + rank as i32), Ints::new(4, -1));
        let submit = |kind, count, peer: usize| {
            comms[0].submit(request(kind, source.ptr(), sink.ptr(), count, &s).to(peer)).unwrap();
        };
        for (sends, receives) in [(2, Some(3)), (2, None)] {
            group::start();
            submit(Collective::Send, 4, 1 - rank);
            submit(Collective::Recv, 4, 1 - rank);
            submit(Collective::Send, sends, rank);
            if let Some(count) = receives {
                submit(Collective::Recv, count, rank);
            }
            let error = group::end().unwrap_err();
            assert_eq!(error.code, ResultCode::InvalidUsage, "{error}");
            assert!(error.text.contains("itself"), "{error}");
        }
        s.synchronize().unwrap();
        sink.expect(-1);
        // The next ones meet each other.
        group::start();
        submit(Collective::Send, 3, 1 - rank);
        submit(Collective::Recv, 3, 1 - rank);
        group::end().unwrap();
        s.synchronize().unwrap();
        sink.expect_at(0..3, 2 - rank as i32);
        sink.expect_at(3..4, -1);
    });
}

#[test]
fn an_all_to_all_by_counts_whose_own_counts_differ_writes_no_more_than_is_expected() {
    for ranks in [1, 2, 3] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            // In a line, in memory that peers take from, or by messages.
            let most = [4, 3000, 100_000][ranks - 1];
            let (source, sink) = (Ints::new(ranks * most, 1), Ints::new(ranks * most, -1));
            let displs: Vec<usize> = (0..ranks).map(|r| r * most).collect();
            let mut v = VCounts {
                send_counts: vec![most; ranks],
                send_displs: displs.clone(),
                recv_counts: vec![most; ranks],
                recv_displs: displs,
            };
            v.recv_counts[rank] = most / 2;
            let call = request(Collective::AllToAllV, source.ptr(), sink.ptr(), 0, &s);
            let submitted = comms[0].submit(Request { v: Some(Box::new(v)), ..call });
            let error = submitted.err().or(s.synchronize().err()).expect("the counts differ");
            assert_eq!(error.code, ResultCode::InvalidUsage, "{error}");
            assert!(error.text.contains("AlltoAllv"), "{error}");
            sink.expect_at(rank * most + most / 2..(rank + 1) * most, -1);
        });
    }
}

/// Elements of messages about as long as what fits a record, as what is asked for ahead, as a small slot, and as slots.
const EDGES: [usize; 17] = [7, 8, 9, 63, 64, 65, 511, 512, 513, 1023, 1024, 8191, 8192, 8193, 32_767, 32_768, 32_769];

#[test]
fn messages_about_as_long_as_their_places_arrive() {
    for ranks in [2, 3] {
        team(ranks, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            for round in 0..6 {
                let value = |from: usize, i: usize| (1000 * round + 100 * from + i) as i32;
                let all: Vec<(Ints, Ints)> =
                    EDGES.iter().enumerate().map(|(i, n)| (Ints::new(*n, value(rank, i)), Ints::new(*n, -1))).collect();
                for (n, (source, sink)) in EDGES.iter().zip(&all) {
                    group::start();
                    comms[0].submit(request(Collective::Send, source.ptr(), sink.ptr(), *n, &s).to(to)).unwrap();
                    comms[0].submit(request(Collective::Recv, source.ptr(), sink.ptr(), *n, &s).to(from)).unwrap();
                    group::end().unwrap();
                }
                s.synchronize().unwrap();
                all.iter().enumerate().for_each(|(i, (_, sink))| sink.expect(value(from, i)));
            }
        });
    }
}

/// Where a message lies is found by what is expected: what comes is told apart all the same.
#[test]
fn messages_of_another_length_or_type_are_refused_and_not_received() {
    use oxccl_types::DataType::{Float32, Int32};
    let same = EDGES.iter().map(|n| (*n, *n, Float32));
    let other = EDGES.iter().zip(&EDGES[1..]).flat_map(|(a, b)| [(*a, *b, Int32), (*b, *a, Int32)]);
    for (sent, expected, dtype) in
        same.chain(other).chain([(3, 64, Int32), (64, 3, Int32), (0, 64, Int32), (64, 0, Int32)])
    {
        team(2, 1, |rank, comms| {
            let s = Stream::new().unwrap();
            let (source, sink) = (Ints::new(sent, 1), Ints::new(expected, -1));
            let call = match rank {
                0 => request(Collective::Send, source.ptr(), std::ptr::null_mut(), sent, &s),
                _ => Request { dtype, ..request(Collective::Recv, std::ptr::null(), sink.ptr(), expected, &s) },
            };
            // What was sent is looked at when it is received, if the sender does not wait for that.
            let submitted = comms[0].submit(call.to(1 - rank)).err();
            let error = submitted.or(s.synchronize().err());
            if rank == 1 {
                let error = error.unwrap_or_else(|| panic!("{sent} for {expected} of {dtype:?}"));
                assert_eq!(error.code, ResultCode::InvalidUsage, "{error}");
                sink.expect(-1);
            }
        });
    }
}
