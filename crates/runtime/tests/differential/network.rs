//! What bursts and long messages do where ranks share no memory. Each test runs in a process of its own, since that is a
//! setting of the environment; ranks are threads of it.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use oxccl_runtime::device::Stream;
use oxccl_types::Collective;

use crate::scenarios::{Ints, all_reduce, request, team};

/// Runs the ignored test `name` of this module in a process with `env`. A hang ends by the limit for operations.
fn alone(name: &str, env: &[(&str, &str)]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("network::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env("OXCCL_SHM", "0")
        .env("OXCCL_OP_TIMEOUT", "20")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{said}");
}

#[test]
fn a_message_that_the_kernel_takes_in_part_goes_on_while_its_sender_waits() {
    alone("exchanges_long_messages", &[("OXCCL_SLOT_BYTES", "4194304")]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential a_message` runs it in a process of its own"]
fn exchanges_long_messages() {
    // Beyond what both kernels hold, in one piece each way.
    const COUNT: usize = 3 << 20;
    team(2, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let (data, out) = (Ints::new(COUNT, 7 + rank as i32), Ints::new(2 * COUNT, -1));
        for _ in 0..3 {
            comms[0].submit(request(Collective::AllGather, data.ptr(), out.ptr(), COUNT, &s)).unwrap();
            s.synchronize().unwrap();
            out.expect_at(0..COUNT, 7);
            out.expect_at(COUNT..2 * COUNT, 8);
        }
        let sum = Ints::new(COUNT, 1 + rank as i32);
        all_reduce(&comms[0], &sum, COUNT, &s);
        s.synchronize().unwrap();
        sum.expect(3);
    });
}

#[test]
fn bursts_of_small_calls_arrive_in_order() {
    alone("sends_a_burst", &[]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential bursts_of` runs it in a process of its own"]
fn sends_a_burst() {
    const CALLS: usize = 500;
    team(3, 1, |rank, comms| {
        let s = Stream::new().unwrap();
        let length = |i: usize| [1, 2, 700, 0, 1024][i % 5];
        let data: Vec<Ints> = (0..CALLS).map(|i| Ints::new(length(i), if rank == 0 { i as i32 } else { -1 })).collect();
        let sums: Vec<Ints> = (0..CALLS).map(|_| Ints::new(3, -1)).collect();
        for i in 0..CALLS {
            let collective = Collective::Broadcast;
            comms[0].submit(request(collective, data[i].ptr(), data[i].ptr(), length(i), &s)).unwrap();
            // Now and then one that goes the other way, or both.
            if i % 7 == 0 {
                let one = Ints::new(1, i as i32);
                comms[0].submit(request(Collective::Reduce, one.ptr(), sums[i].ptr(), 1, &s)).unwrap();
                all_reduce(&comms[0], &one, 1, &s);
                s.synchronize().unwrap();
                one.expect(3 * i as i32);
            }
        }
        s.synchronize().unwrap();
        for i in 0..CALLS {
            data[i].expect(i as i32);
            if rank == 0 && i % 7 == 0 {
                sums[i].expect_at(0..1, 3 * i as i32);
            }
        }
    });
}

#[test]
fn what_is_small_does_not_wait_for_a_call_that_waits_itself() {
    alone("sends_before_a_gate", &[]);
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential what_is_small` runs it in a process of its own"]
fn sends_before_a_gate() {
    let (came, gate) = sync_channel::<()>(2);
    let gate = std::sync::Arc::new(Mutex::new(gate));
    team(2, 1, |rank, comms| {
        let (a, b) = (Stream::new().unwrap(), Stream::new().unwrap());
        let data: Vec<Ints> = (0..4).map(|i| Ints::new(1, if rank == 0 { i } else { -1 })).collect();
        let send = |i: usize, s: &Stream| {
            comms[0].submit(request(Collective::Broadcast, data[i].ptr(), data[i].ptr(), 1, s)).unwrap();
        };
        // Each gate opens when the call before it has come to the other rank: on the same stream, then on another one.
        for (at, s) in [(0, &a), (2, &b)] {
            send(at, &a);
            if rank == 0 {
                let gate = gate.clone();
                let open = move || gate.lock().unwrap().recv_timeout(Duration::from_secs(20)).unwrap();
                s.launch_host(Box::new(open)).unwrap();
            } else {
                a.synchronize().unwrap();
                data[at].expect(at as i32);
                came.send(()).unwrap();
            }
            send(at + 1, s);
            a.synchronize().unwrap();
            s.synchronize().unwrap();
        }
        (0..4).for_each(|i| data[i].expect(i as i32));
    });
}
