//! Planted mistakes: the verifier has to refuse each of them, for the right reason.

use oxccl_schedule::Kind;
use oxccl_schedule::algorithms::{ALGORITHMS, Algorithm, find};
use oxccl_schedule::ir::{Buffer, Chunk, Needs, Op, Program, Schedule, Shape};
use oxccl_schedule::verify::{Limits, keeps_to, verify, verify_in_turns};
use oxccl_types::Collective;

const LIMITS: Limits = Limits { slots: 4, pieces: 4 };

fn make(name: &str, collective: Collective, ranks: u32) -> Schedule {
    let shape = Shape { collective, ranks, root: 0, channels: 1, in_place: false, local: 1 };
    let a = find(name).expect("a name of the table");
    assert!(a.supports(&shape));
    let s = a.schedule(&shape);
    verify(&s, LIMITS).expect("right before the mistake");
    s
}

#[track_caller]
fn refused(s: &Schedule, kinds: &[Kind]) {
    match verify(s, LIMITS) {
        Ok(_) => panic!("{}: the mistake was not seen", s.algorithm),
        Err(d) => assert!(kinds.contains(&d.kind), "{}: {d}, expected {kinds:?}", s.algorithm),
    }
}

fn ops(s: &mut Schedule, rank: usize) -> &mut Vec<Op> {
    &mut s.programs[rank].channels[0]
}

/// Every shape of five ranks that the algorithms with `direct` or message needs serve, or of six in two or three groups.
fn every(direct: bool) -> impl Iterator<Item = (&'static Algorithm, Schedule)> {
    ALGORITHMS.iter().filter(move |a| (a.needs != Needs::Messages) == direct).flat_map(|a| {
        let shapes = a.collectives.iter().flat_map(|&collective| {
            [(5, 1), (6, 2), (6, 3)].into_iter().flat_map(move |(ranks, local)| {
                [false, true].map(|in_place| Shape { collective, ranks, root: 1, channels: 1, in_place, local })
            })
        });
        // The others do not look at groups.
        let shapes =
            shapes.filter(|s| s.local == 1 || matches!(a.name, "hierarchical" | "leader" | "relay" | "binomial"));
        shapes.filter(|s| a.supports(s)).map(move |s| (a, a.schedule(&s)))
    })
}

/// Right schedules under the name of what needs less: mapped buffers where scratch or connections alone are there, and the like.
#[test]
fn memory_and_connections_that_the_algorithm_does_not_ask_for() {
    let all = [Needs::Messages, Needs::MappedUser, Needs::MappedScratch];
    for (a, s) in every(true).chain(every(false)) {
        keeps_to(&s, a.needs).unwrap_or_else(|d| panic!("{}: {d}", a.name));
        // Who has mapped the buffers of all has mapped their scratch.
        let enough = |needs| needs == a.needs || (a.needs, needs) == (Needs::MappedScratch, Needs::MappedUser);
        for needs in all.into_iter().filter(|needs| !enough(*needs)) {
            assert_eq!(keeps_to(&s, needs).map_err(|d| d.kind), Err(Kind::Malformed), "{} with {needs:?}", a.name);
        }
    }
}

#[test]
fn a_wrong_peer() {
    for name in ["ring", "tree", "doubling", "recursive"] {
        let mut s = make(name, Collective::AllReduce, 6);
        for op in ops(&mut s, 2) {
            if let Op::Send { to, .. } | Op::RecvReduceSend { to, .. } = op {
                *to = if *to == 5 { 4 } else { 5 };
                break;
            }
        }
        refused(&s, &[Kind::Pairing]);
    }
    let mut s = make("ring", Collective::AllReduce, 3);
    ops(&mut s, 1)[0] = Op::Send { to: 3, src: Chunk { buffer: Buffer::Input, block: 0, part: 0, parts: 3 } };
    refused(&s, &[Kind::Malformed]);
}

#[test]
fn every_message_op_is_needed() {
    for (_, s) in every(false) {
        for rank in 0..s.programs.len() {
            for i in 0..s.programs[rank].channels[0].len() {
                let mut s = s.clone();
                let gone = ops(&mut s, rank).remove(i);
                match gone {
                    Op::Copy { .. } if s.shape.in_place => {}
                    Op::Copy { .. } | Op::Reduce { .. } => refused(&s, &[Kind::Result, Kind::Undefined]),
                    _ => refused(&s, &[Kind::Pairing]),
                }
            }
        }
    }
}

#[test]
fn a_missing_reduce() {
    for (_, s) in every(false).filter(|(_, s)| s.shape.collective.reduces()) {
        for rank in 0..s.programs.len() {
            for i in 0..s.programs[rank].channels[0].len() {
                let mut s = s.clone();
                let op = &mut ops(&mut s, rank)[i];
                *op = match *op {
                    Op::RecvReduce { from, dst, .. } => Op::Recv { from, dst },
                    Op::RecvReduceSend { from, to, dst: Some(dst), .. } => Op::RecvCopySend { from, to, dst },
                    _ => continue,
                };
                // The sum lacks a contribution, or others are counted twice because two partners now hold the same.
                refused(&s, &[Kind::Result, Kind::Double, Kind::Raw]);
            }
        }
    }
}

#[test]
fn every_source_and_destination_of_a_move_is_needed() {
    for (_, s) in every(true) {
        for rank in 0..s.programs.len() {
            for i in 0..s.programs[rank].channels[0].len() {
                let Op::Move { srcs, dsts } = s.programs[rank].channels[0][i].clone() else { continue };
                for gone in 0..srcs.len() {
                    let mut srcs = srcs.clone();
                    srcs.remove(gone);
                    let mut s = s.clone();
                    ops(&mut s, rank)[i] = Op::Move { srcs, dsts: dsts.clone() };
                    refused(&s, &[Kind::Result, Kind::Malformed]);
                }
                for gone in 0..dsts.len() {
                    // In place, the root of a broadcast writes to where it reads, and who gathers from all has his own block.
                    let stays = match s.shape.collective {
                        Collective::Broadcast => Some(s.shape.root),
                        Collective::AllGather => Some(rank as u32),
                        _ => None,
                    };
                    if s.shape.in_place && stays == Some(dsts[gone].rank) {
                        continue;
                    }
                    let mut dsts = dsts.clone();
                    dsts.remove(gone);
                    let mut s = s.clone();
                    ops(&mut s, rank)[i] = Op::Move { srcs: srcs.clone(), dsts };
                    refused(&s, &[Kind::Result, Kind::Malformed, Kind::Undefined, Kind::Raw]);
                }
            }
        }
    }
}

#[test]
fn every_wait_is_needed() {
    for (_, s) in every(true) {
        for rank in 0..s.programs.len() {
            for i in 0..s.programs[rank].channels[0].len() {
                let mut s = s.clone();
                if matches!(ops(&mut s, rank)[i], Op::Wait { .. }) {
                    ops(&mut s, rank).remove(i);
                    refused(&s, &[Kind::Race, Kind::Exposed, Kind::Undefined]);
                }
            }
        }
    }
}

#[test]
fn every_signal_is_needed() {
    for (_, s) in every(true) {
        for rank in 0..s.programs.len() {
            for i in 0..s.programs[rank].channels[0].len() {
                let mut s = s.clone();
                if matches!(ops(&mut s, rank)[i], Op::Signal) {
                    ops(&mut s, rank).remove(i);
                    refused(&s, &[Kind::Deadlock]);
                }
            }
        }
    }
}

#[test]
fn a_circle_of_receives() {
    let mut s = make("doubling", Collective::AllReduce, 4);
    for rank in 0..4 {
        ops(&mut s, rank).swap(0, 1);
    }
    let d = verify(&s, LIMITS).expect_err("stuck");
    assert_eq!(d.kind, Kind::Deadlock);
    assert!(d.what.contains("0 -> 1 -> 0 (a circle)"), "{d}");
}

#[test]
fn more_sends_than_slots() {
    let mut s = make("recursive", Collective::AllGather, 16);
    for rank in 0..16 {
        // First all sends, then all receives: 8 blocks go to one partner.
        ops(&mut s, rank).sort_by_key(|o| matches!(o, Op::Recv { .. }));
    }
    refused(&s, &[Kind::Deadlock]);
}

#[test]
fn a_double_contribution() {
    let mut s = make("doubling", Collective::AllReduce, 4);
    for rank in 0..4u32 {
        for op in &mut ops(&mut s, rank as usize)[2..] {
            match op {
                Op::Send { to: peer, .. } | Op::RecvReduce { from: peer, .. } => *peer = rank ^ 1,
                _ => {}
            }
        }
    }
    refused(&s, &[Kind::Double]);
    for name in ["one_shot", "two_shot", "staged_one_shot", "staged_two_shot"] {
        let mut s = make(name, Collective::AllReduce, 4);
        for op in ops(&mut s, 3) {
            if let Op::Move { srcs, .. } = op {
                srcs.push(srcs[0]);
                break;
            }
        }
        refused(&s, &[Kind::Double]);
    }
}

#[test]
fn a_wrong_chunk() {
    let mut s = make("pairwise", Collective::AllToAll, 5);
    let Op::Send { src, .. } = &mut ops(&mut s, 1)[3] else { panic!("not a send") };
    src.block = 1;
    refused(&s, &[Kind::Result]);

    let mut s = make("ring", Collective::ReduceScatter, 5);
    let Op::RecvReduceSend { src, .. } = &mut ops(&mut s, 1)[2] else { panic!("not fused") };
    src.block = (src.block + 1) % 5;
    refused(&s, &[Kind::Mixed]);

    let mut s = make("ring", Collective::AllReduce, 5);
    let Op::RecvReduceSend { src, .. } = &mut ops(&mut s, 1)[2] else { panic!("not fused") };
    src.part = (src.part + 1) % 5;
    refused(&s, &[Kind::Pairing]);

    let mut s = make("two_shot", Collective::AllReduce, 4);
    for op in ops(&mut s, 2) {
        if let Op::Move { srcs, dsts } = op {
            for p in srcs.iter_mut().chain(dsts) {
                p.chunk.part = 3;
            }
        }
    }
    refused(&s, &[Kind::Race]);

    let mut s = make("staged_one_shot", Collective::AllGather, 4);
    for op in ops(&mut s, 2) {
        if let Op::Copy { dst, .. } = op {
            dst.block = 1;
        }
    }
    refused(&s, &[Kind::Malformed]);
}

#[test]
fn channels_that_share_a_chunk() {
    let shape = Shape { collective: Collective::AllReduce, ranks: 3, root: 0, channels: 2, in_place: false, local: 1 };
    for name in ["ring", "two_shot", "doubling"] {
        let mut s = find(name).expect("a name of the table").schedule(&shape);
        for p in &mut s.programs {
            p.channels[1] = p.channels[0].clone();
        }
        refused(&s, &[Kind::Race]);
    }
}

#[test]
fn a_buffer_overwritten_while_peers_read_it() {
    let mut s = make("one_shot", Collective::AllReduce, 4);
    s.shape.in_place = true;
    refused(&s, &[Kind::Race]);
}

#[test]
fn a_sum_read_as_a_contribution() {
    let shape = Shape { collective: Collective::AllReduce, ranks: 4, root: 0, channels: 1, in_place: true, local: 1 };
    let mut s = find("doubling").expect("a name of the table").schedule(&shape);
    for rank in 0..4 {
        for op in ops(&mut s, rank) {
            if let Op::Send { src, .. } | Op::RecvReduce { src, .. } = op {
                src.buffer = Buffer::Input;
            }
        }
    }
    refused(&s, &[Kind::Raw]);
}

/// Pieces of a whole are not pieces of its halves: right with one piece, wrong with several.
#[test]
fn chunks_of_mixed_size() {
    let half = |part| Chunk { buffer: Buffer::Output, block: 0, part, parts: 2 };
    let whole = |buffer| Chunk::whole(buffer, 0);
    let (input, output) = (whole(Buffer::Input), whole(Buffer::Output));
    let lists = [
        vec![Op::Send { to: 1, src: input }, Op::Recv { from: 1, dst: half(0) }, Op::Recv { from: 1, dst: half(1) }],
        vec![
            Op::RecvReduce { from: 0, src: input, dst: output },
            Op::Send { to: 0, src: half(0) },
            Op::Send { to: 0, src: half(1) },
        ],
    ];
    let programs =
        (0..2).zip(lists).map(|(rank, l)| Program { rank, channels: vec![l], scratch_slots: 0, epochs: 0 }).collect();
    let shape = Shape { collective: Collective::AllReduce, ranks: 2, root: 0, channels: 1, in_place: false, local: 1 };
    let s = Schedule { shape, algorithm: "by hand", programs };
    verify(&s, Limits { slots: 2, pieces: 1 }).expect("right with one piece");
    refused(&s, &[Kind::Undefined]);
}

#[test]
fn a_chain_needs_no_slots_and_a_ring_does() {
    let shape = |collective| Shape { collective, ranks: 5, root: 2, channels: 2, in_place: false, local: 1 };
    let report = |name: &str, c| verify(&find(name).expect("a name").schedule(&shape(c)), LIMITS).expect("right");
    assert!(report("ring", Collective::Broadcast).rendezvous_ok);
    assert!(report("tree", Collective::AllReduce).rendezvous_ok);
    assert!(!report("ring", Collective::AllReduce).rendezvous_ok);
    assert_eq!(report("ring", Collective::AllReduce).messages, 2 * 5 * 8);
}

/// Of two ranks that write their scratch in turns each has to wait for the other in every iteration.
#[test]
fn who_takes_turns_waits() {
    for collective in [Collective::AllGather, Collective::AllToAll, Collective::ReduceScatter] {
        let shape = Shape { collective, ranks: 2, root: 0, channels: 1, in_place: false, local: 1 };
        let mut s = find("staged_one_shot").expect("a name of the table").schedule(&shape);
        verify_in_turns(&s, LIMITS).expect("right before the mistake");
        let list = ops(&mut s, 1);
        let wait = list.iter().position(|op| matches!(op, Op::Wait { .. })).expect("it waits");
        list.remove(wait);
        let defect = verify_in_turns(&s, LIMITS).expect_err("nothing says that the block is there");
        assert!([Kind::Race, Kind::Undefined].contains(&defect.kind), "{defect}");
    }
}

/// By two shots it has to wait for the results of the other, too, before it writes where it has read.
#[test]
fn who_takes_turns_by_two_shots_waits_twice() {
    let shape = Shape { collective: Collective::AllReduce, ranks: 2, root: 0, channels: 1, in_place: false, local: 1 };
    let right = find("staged_two_shot").expect("a name of the table").schedule(&shape);
    verify_in_turns(&right, LIMITS).expect("right before the mistake");
    for which in 0..2 {
        let mut s = right.clone();
        let list = ops(&mut s, 1);
        let waits: Vec<usize> = (0..list.len()).filter(|i| matches!(list[*i], Op::Wait { .. })).collect();
        assert_eq!(waits.len(), 2, "for the parts and for the results");
        list.remove(waits[which]);
        let defect = verify_in_turns(&s, LIMITS).expect_err("nothing says that it is there");
        assert!([Kind::Race, Kind::Undefined].contains(&defect.kind), "{defect}");
    }
}
