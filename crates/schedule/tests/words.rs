//! Defects say where, what and why in words that help.

use oxccl_schedule::algorithms::find;
use oxccl_schedule::ir::{Op, Schedule, Shape};
use oxccl_schedule::verify::{Limits, verify};
use oxccl_types::Collective;

fn ring() -> Schedule {
    let shape =
        Shape { collective: Collective::ReduceScatter, ranks: 4, root: 0, channels: 1, in_place: false, local: 1 };
    find("ring").expect("a name of the table").schedule(&shape)
}

fn words(s: &Schedule, slots: u32) -> String {
    verify(s, Limits { slots, pieces: 3 }).expect_err("a defect").to_string()
}

#[test]
fn pairing() {
    let mut s = ring();
    let Op::Send { src, .. } = &mut s.programs[2].channels[0][0] else { panic!("not a send") };
    src.parts = 2;
    assert_eq!(
        words(&s, 2),
        "Pairing: rank 3 channel 0 op 1: RecvReduceSend in1 + from 2 to 0: rank 2's matching op 0 sends in1.0/2, \
         which is not the length of in1"
    );
    let mut s = ring();
    s.programs[1].channels[0].pop();
    assert_eq!(
        words(&s, 2),
        "Pairing: rank 0 channel 0 op 2: RecvReduceSend in1 + from 3 to 1: message 2 of an iteration to 1 is never \
         received there"
    );
}

#[test]
fn deadlock() {
    assert_eq!(
        words(&ring(), 1),
        "Deadlock: rank 0 channel 0 op 1: RecvReduceSend in2 + from 3 to 1: stuck in iteration 0 with 1 slots per \
         connection; ranks wait for each other: 0 -> 1 -> 2 -> 3 -> 0 (a circle)"
    );
}

#[test]
fn result() {
    let mut s = ring();
    let last = s.programs[0].channels[0].last_mut().expect("ops");
    let Op::RecvReduce { from, dst, .. } = *last else { panic!("not a receive") };
    *last = Op::Recv { from, dst };
    assert_eq!(
        words(&s, 2),
        "Result: rank 0: output block 0 cell 0 of 3 holds block 0 cell 0 of ranks [1, 2, 3], promised is block 0 of \
         all ranks"
    );
}
