//! The tests themselves.

use std::any::Any;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use oxccl_types::ResultCode;

use super::plan::mix;
use super::{Borrow, Factory, Feed, Mode, Pair, Plan, Sink, until};
use crate::transport::{REFUSAL_BYTES, RecvEnd};

const SLOTS: usize = 4;
const SLOT: usize = 1024;
/// Tells a process that it is the sending child of a test.
const CHILD: &str = "OXCCL_CONFORMANCE_CHILD";

/// The seed of a random test, printed.
fn seed() -> u64 {
    let given = std::env::var("OXCCL_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64));
    println!("OXCCL_TEST_SEED={seed}");
    seed
}

/// Send and receive all of `plan` in one thread.
fn run(factory: &impl Factory, pair: &mut Pair, plan: &Plan, mode: Mode) {
    let mut feed = Feed::new(factory, plan, 3).with_whole();
    let mut sink = Sink::new(plan);
    until("the plan to arrive", || {
        for _ in 0..64 {
            let sent = feed.poll(&mut *pair.send);
            feed.scribble(&mut *pair.send);
            let received = sink.poll(&mut *pair.recv, mode).unwrap();
            if !sent && !received {
                break;
            }
        }
        sink.is_full()
    });
    finish(pair, &feed);
}

/// Wait until the sender knows that everything was received.
fn finish(pair: &mut Pair, feed: &Feed) {
    until("the sender to know", || {
        pair.recv.flush().unwrap();
        pair.send.poll_received(feed.last).unwrap()
    });
    assert!(pair.send.poll_done(feed.last).unwrap(), "received but not done");
}

/// Messages of every interesting length, in every way of receiving.
pub fn delivers_every_size(factory: &impl Factory) {
    let lengths = [0, 1, 7, 31, 32, 33, 63, 64, 65, 0, SLOT - 1, SLOT, SLOT + 1, 3 * SLOT, 10 * SLOT + 7, 5 << 20, 0];
    for mode in [Mode::Whole, Mode::Parts, Mode::Into] {
        let mut pair = factory.pair(SLOTS, SLOT);
        let mut short = lengths.to_vec();
        short.retain(|&n| mode != Mode::Parts || n < 1 << 20);
        run(factory, &mut pair, &Plan::of(&short), mode);
    }
    let mut pair = factory.pair(1, 64);
    run(factory, &mut pair, &Plan::of(&[0, 8, 64, 65, 1000, 0, 0]), Mode::Whole);
}

/// Several messages under way at once arrive in the order they were sent.
pub fn keeps_order(factory: &impl Factory) {
    let mut pair = factory.pair(SLOTS, SLOT);
    let plan = Plan { count: 500, lengths: vec![8, 0, 40, SLOT], seed: 0, longest: SLOT };
    let mut feed = Feed::new(factory, &plan, SLOTS + 1);
    let mut sink = Sink::new(&plan);
    until("the messages", || {
        while feed.poll(&mut *pair.send) {}
        while sink.poll(&mut *pair.recv, Mode::Whole).unwrap() {}
        sink.is_full()
    });
    finish(&mut pair, &feed);
}

/// Once all is flushed the sender may be left alone, however much was accepted that it could not hand over at first.
pub fn flushed_means_out(factory: &impl Factory) {
    const MOST: u64 = 1 << 12;
    for lengths in [vec![SLOT], vec![8, 0, 40, SLOT], vec![8]] {
        let mut pair = factory.pair(SLOTS, SLOT);
        let plan = Plan { count: MOST, lengths, seed: 0, longest: SLOT };
        let mut feed = Feed::new(factory, &plan, if factory.counts_slots() { SLOTS + 1 } else { MOST as usize });
        let mut sink = Sink::new(&plan);
        // Until there is no credit.
        while feed.poll(&mut *pair.send) {}
        let goal = feed.accepted;
        assert!(goal >= SLOTS as u64);
        until("the flush", || {
            let out = pair.send.flush().unwrap();
            if !out {
                sink.poll(&mut *pair.recv, Mode::Whole).unwrap();
            }
            out
        });
        until("what was flushed", || {
            while sink.messages() < goal && sink.poll(&mut *pair.recv, Mode::Whole).unwrap() {}
            sink.messages() == goal
        });
        finish(&mut pair, &feed);
    }
}

/// A sender without credit gets `None` and goes on once the receiver has taken something.
pub fn runs_out_of_credit_and_recovers(factory: &impl Factory) {
    let mut pair = factory.pair(SLOTS, SLOT);
    assert_eq!((pair.send.slots(), pair.send.slot_bytes()), (SLOTS, SLOT));
    let plan = Plan { count: 1 << 16, lengths: vec![SLOT], seed: 0, longest: SLOT };
    let mut feed = Feed::new(factory, &plan, if factory.counts_slots() { SLOTS + 1 } else { 1 << 12 });
    let mut sink = Sink::new(&plan);
    for round in 0..3 {
        while feed.poll(&mut *pair.send) {}
        let under_way = feed.accepted - sink.messages();
        assert!(!feed.is_spent() && feed.accepted < 1 << 12, "the sender never ran out of credit");
        if factory.counts_slots() {
            assert_eq!(under_way, SLOTS as u64, "round {round}");
            assert!(!feed.poll(&mut *pair.send));
            assert!(sink.poll(&mut *pair.recv, Mode::Whole).unwrap());
            assert!(feed.poll(&mut *pair.send), "no credit came back");
        }
        let goal = feed.accepted;
        until("what was accepted", || {
            pair.send.poll_done(feed.last).unwrap();
            while sink.messages() < goal && sink.poll(&mut *pair.recv, Mode::Whole).unwrap() {}
            sink.messages() == goal
        });
    }
    finish(&mut pair, &feed);
}

/// `poll_done` is true neither too early nor never.
pub fn says_done_when_it_is(factory: &impl Factory) {
    let mut pair = factory.pair(SLOTS, SLOT);
    let plan = Plan::of(&[600, 700]);
    let mut feed = Feed::new(factory, &plan, 2);
    assert!(pair.send.poll_done(crate::transport::Ticket::default()).unwrap());
    assert!(feed.poll(&mut *pair.send));
    let first = feed.last;
    assert!(feed.poll(&mut *pair.send));
    let second = feed.last;
    match factory.borrow() {
        Borrow::Never => assert!(pair.send.poll_done(second).unwrap(), "staged bytes are free at once"),
        Borrow::UntilWritten => until("the kernel", || pair.send.poll_done(second).unwrap()),
        Borrow::UntilReleased => {
            assert!(!pair.send.poll_done(first).unwrap(), "nobody has read it yet");
            let arrival = pair.recv.poll_recv().unwrap().expect("the first message");
            assert_eq!(arrival.header.len, 600);
            assert!(!pair.send.poll_done(first).unwrap(), "it is being read");
            pair.recv.consume(599);
            assert!(!pair.send.poll_done(first).unwrap(), "its last byte is being read");
            pair.recv.release();
            assert!(pair.send.poll_done(first).unwrap() && !pair.send.poll_done(second).unwrap());
            assert!(pair.recv.poll_recv().unwrap().is_some());
            pair.recv.release();
            assert!(pair.send.poll_done(second).unwrap());
        }
    }
}

/// `poll_received` is true once the receiver has consumed, and not before.
pub fn says_received_when_it_is(factory: &impl Factory) {
    let mut pair = factory.pair(SLOTS, SLOT);
    let plan = Plan::of(&[8, 0, 700]);
    let mut feed = Feed::new(factory, &plan, 3);
    let mut sink = Sink::new(&plan);
    assert!(pair.send.poll_received(crate::transport::Ticket::default()).unwrap());
    for number in 0..3 {
        assert!(feed.poll(&mut *pair.send));
        for _ in 0..10 {
            pair.recv.poll_header().unwrap();
            pair.recv.flush().unwrap();
            assert!(!pair.send.poll_received(feed.last).unwrap(), "message {number} was only looked at");
        }
        until("the message", || {
            pair.send.flush().unwrap();
            sink.poll(&mut *pair.recv, Mode::Whole).unwrap()
        });
        finish(&mut pair, &feed);
    }
}

/// A refusal reaches the sender with its text, whatever is under way.
pub fn refuses_with_a_text(factory: &impl Factory) {
    let long = "schöne Grüße ".repeat(100);
    for text in ["rank 1 called Broadcast, rank 0 called AllReduce", "", &long] {
        let mut pair = factory.pair(SLOTS, SLOT);
        let plan = Plan { count: 1 << 16, lengths: vec![3 * SLOT, 8], seed: 0, longest: 3 * SLOT };
        let mut feed = Feed::new(factory, &plan, 64);
        feed.poll(&mut *pair.send);
        until("an arrival", || {
            pair.send.flush().unwrap();
            pair.recv.poll_recv().unwrap().is_some()
        });
        pair.recv.refuse(text);
        pair.recv.refuse("too late");
        let mine = pair.recv.poll_recv().expect_err("the receiver must not go on");
        let mut said = None;
        until("the refusal", || {
            let _ = pair.recv.poll_header();
            said = pair.send.poll_received(feed.last).err();
            said.is_some()
        });
        let said = said.expect("an error");
        assert_eq!(said.code, ResultCode::InvalidUsage);
        assert_eq!(mine, said);
        assert!(text.starts_with(&said.text) && said.text.len() + 4 > text.len().min(REFUSAL_BYTES), "{said}");
        let header = crate::transport::Header { total: 8, ..Default::default() };
        // SAFETY: nothing is accepted any more.
        assert_eq!(unsafe { pair.send.poll_send(&header, [0; 8].as_ptr(), 8) }, Err(said.clone()));
        assert_eq!(pair.send.poll_done(feed.last), Err(said));
    }
}

/// Random lengths, received in random ways.
pub fn delivers_random_messages(factory: &impl Factory) {
    let seed = seed();
    for round in 0..4 {
        let slots = 1 << (mix(seed ^ round) % 5);
        let slot_bytes = 64 * (1 + mix(seed ^ !round) % 64) as usize;
        let mut pair = factory.pair(slots, slot_bytes);
        println!("{slots} slots of {slot_bytes}");
        run(factory, &mut pair, &Plan::random(seed ^ round, 500, 20_000), Mode::Any);
    }
}

/// Receiving into no room is an error that loses nothing.
pub fn needs_room(factory: &impl Factory) {
    let mut pair = factory.pair(SLOTS, SLOT);
    let plan = Plan::of(&[100]);
    let mut feed = Feed::new(factory, &plan, 1);
    let mut sink = Sink::new(&plan);
    feed.poll(&mut *pair.send);
    until("the header", || {
        pair.send.flush().unwrap();
        pair.recv.poll_header().unwrap().is_some()
    });
    // SAFETY: no byte is written.
    let e = unsafe { pair.recv.poll_recv_into(std::ptr::null_mut(), 0) }.expect_err("no room");
    assert_eq!(e.code, ResultCode::InvalidUsage);
    until("the message", || {
        pair.send.flush().unwrap();
        sink.poll(&mut *pair.recv, Mode::Into).unwrap() && sink.is_full()
    });
    finish(&mut pair, &feed);
}

/// 64 MiB between two threads.
pub fn streams_between_threads(factory: &impl Factory) {
    let Pair { mut send, mut recv, keep } = factory.pair(8, 64 << 10);
    let plan = Plan { count: 256, lengths: vec![256 << 10], seed: 0, longest: 256 << 10 };
    let mut feed = Feed::new(factory, &plan, 3).with_whole();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the receiver", || {
                while feed.poll(&mut *send) {}
                feed.is_spent() && send.poll_received(feed.last).unwrap()
            });
        });
        let mut sink = Sink::new(&plan);
        until("the sender", || {
            while sink.poll(&mut *recv, Mode::Into).unwrap() {}
            sink.is_full() && recv.flush().unwrap()
        });
    });
    drop(send);
    drop(recv);
    drop(keep);
}

/// A child that is gone when this is dropped.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Start the sending process of `plan` (random lengths) and connect to it.
fn start<F: Factory>(factory: &F, child: &str, plan: &Plan) -> (Reaped, Box<dyn RecvEnd>) {
    let listener = factory.listen(SLOTS, 16 << 10);
    let orders = format!("{};{};{};{}", listener.text(), plan.seed, plan.count, plan.longest);
    let name = child.split_once("::").expect("a path with a crate").1;
    let process = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, orders)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the test binary starts again");
    let process = Reaped(process);
    let recv = listener.accept(process.0.id());
    (process, recv)
}

/// The sending process. Ends with its parent.
pub fn child<F: Factory>() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let words: Vec<&str> = orders.split(';').collect();
    let number = |i: usize| words[i].parse::<u64>().expect("a number");
    let factory = F::default();
    let (mut send, keep): (_, Box<dyn Any>) = factory.join(words[0], SLOTS, 16 << 10);
    let plan = Plan::random(number(1), number(2), number(3) as usize);
    let mut feed = Feed::new(&factory, &plan, 3).with_whole();
    until("the receiving process", || {
        while feed.poll(&mut *send) {}
        feed.is_spent() && send.poll_received(feed.last).unwrap()
    });
    drop(send);
    drop(keep);
}

/// Random messages from another process, which then ends well.
pub fn streams_between_processes<F: Factory>(name: &str) {
    let factory = F::default();
    let plan = Plan::random(seed(), 300, 200_000);
    let (mut process, mut recv) = start(&factory, name, &plan);
    let mut sink = Sink::new(&plan);
    until("the sending process", || {
        while sink.poll(&mut *recv, Mode::Any).unwrap() {}
        sink.is_full() && recv.flush().unwrap()
    });
    let mut status = None;
    until("the end of the sending process", || {
        status = process.0.try_wait().expect("our child");
        status.is_some()
    });
    assert!(status.is_some_and(|s| s.success()), "{status:?}");
}

/// The sender is killed amid a message: what was sent arrives, then comes an error that names it, or silence.
pub fn survives_a_killed_sender<F: Factory>(name: &str) {
    let factory = F::default();
    let plan = Plan::random(seed(), u64::MAX, 200_000);
    let (mut process, mut recv) = start(&factory, name, &plan);
    let mut sink = Sink::new(&plan);
    until("a few messages", || {
        while sink.messages() < 50 && sink.poll(&mut *recv, Mode::Any).unwrap() {}
        sink.messages() >= 50
    });
    // A message that has not been touched waits when the sender dies: what is still in its memory is lost with it.
    until("a message that waits", || {
        loop {
            match recv.poll_header().unwrap() {
                None => return false,
                Some(header) if header.offset == 0 && header.len > 64 => return true,
                Some(_) => drop(sink.poll(&mut *recv, Mode::Any).unwrap()),
            }
        }
    });
    process.0.kill().expect("our child");
    process.0.wait().expect("our child");
    let mut failure = None;
    let mut silent = 0;
    until("the news", || {
        match sink.poll(&mut *recv, Mode::Any) {
            Ok(true) => silent = 0,
            Ok(false) => silent += 1,
            Err(e) => failure = Some(e),
        }
        failure.is_some() || (!factory.notices_death() && silent > 1000)
    });
    if factory.notices_death() {
        let e = failure.expect("an error");
        assert_eq!(e.code, ResultCode::RemoteError, "{e}");
        assert!(e.text.contains("rank 1 ("), "{e}");
        println!("{e}");
        assert!(recv.poll_recv().is_err(), "the error stays");
    } else {
        assert_eq!(failure, None);
    }
}
