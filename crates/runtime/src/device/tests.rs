//! Tests of how streams run batches.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oxccl_sys::sync::{AtomicBool, AtomicU32, Ordering};
use oxccl_sys::{Doorbell, SharedMemory};

use super::stream::Waited;
use super::{Area, CaptureMode, EndError, Event, Graph, IdleStream, Step, Stream, Task};
use crate::communicator::hub::WINDOW;

/// Ends once all of `parts` tasks have been looked at.
struct Part {
    seen: Arc<AtomicU32>,
    me: u32,
    parts: u32,
    batch: u64,
}

impl Task for Part {
    fn step(&mut self) -> Step {
        let all = (1 << self.parts) - 1;
        let seen = self.seen.fetch_or(1 << self.me, Ordering::AcqRel) | 1 << self.me;
        if seen == all { Step::Done } else { Step::Blocked }
    }
    fn batch(&self) -> u64 {
        self.batch
    }
}

/// A thread that waits for something else may take the first task of a batch before the others are enqueued.
#[test]
fn the_rest_of_a_batch_joins_what_was_taken_already() {
    let stream = Stream::new().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let part = |me| Box::new(Part { seen: seen.clone(), me, parts: 3, batch: 7 });
    stream.push(part(0));
    while stream.0.advance() != Waited::Blocked {}
    stream.push(part(1));
    stream.push(part(2));
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
}

/// Another batch waits for the one before it.
#[test]
fn batches_do_not_mix() {
    let stream = Stream::new().unwrap();
    let (first, second) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    stream.push(Box::new(Part { seen: first.clone(), me: 0, parts: 2, batch: 8 }));
    stream.push(Box::new(Part { seen: second.clone(), me: 0, parts: 1, batch: 9 }));
    // The helper may be at it.
    while stream.0.advance() != Waited::Blocked {}
    assert_eq!(second.load(Ordering::Acquire), 0);
    first.store(2, Ordering::Release);
    stream.synchronize().unwrap();
    assert_eq!(second.load(Ordering::Acquire), 1);
}

/// It may wait for that very thread.
#[test]
fn a_thread_that_waits_for_something_else_calls_no_function_of_the_program() {
    let stream = Stream::new().unwrap();
    let (called, by) = std::sync::mpsc::channel();
    stream.launch_host(Box::new(move || called.send(std::thread::current().id()).unwrap())).unwrap();
    // The helper comes in the end.
    let late = Instant::now() + Duration::from_secs(20);
    let id = loop {
        super::helper::assist_any();
        match by.try_recv() {
            Ok(id) => break id,
            Err(_) if Instant::now() < late => std::thread::yield_now(),
            Err(e) => panic!("nobody called it: {e}"),
        }
    };
    assert_ne!(id, std::thread::current().id());
    stream.synchronize().unwrap();
}

/// Nor does one that asks whether the stream is idle, which it is not before the function has run.
#[test]
fn a_query_calls_no_function_of_the_program() {
    let stream = Stream::new().unwrap();
    let (go, called) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (wait, mark) = (go.clone(), called.clone());
    let me = std::thread::current().id();
    stream
        .launch_host(Box::new(move || {
            while std::thread::current().id() != me && !wait.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            mark.store(true, Ordering::Release);
        }))
        .unwrap();
    for _ in 0..100 {
        assert!(!stream.query().unwrap() && !called.load(Ordering::Acquire));
    }
    go.store(true, Ordering::Release);
    let began = Instant::now();
    while !stream.query().unwrap() {
        assert!(began.elapsed() < LONG, "the helper never comes");
        std::thread::yield_now();
    }
    assert!(called.load(Ordering::Acquire));
}

/// Nobody waits for either stream: who calls the function is not who does the other's work, for which it waits.
#[test]
fn a_function_that_waits_for_another_stream_keeps_nobody_from_that() {
    let (first, second) = (Stream::new().unwrap(), Stream::new().unwrap());
    let (done, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (report, result) = std::sync::mpsc::channel();
    let (seen, mark) = (done.clone(), begun.clone());
    first
        .launch_host(Box::new(move || {
            mark.store(true, Ordering::Release);
            let late = Instant::now() + Duration::from_secs(10);
            while !seen.load(Ordering::Acquire) && Instant::now() < late {
                std::thread::yield_now();
            }
            report.send(seen.load(Ordering::Acquire)).unwrap();
        }))
        .unwrap();
    while !begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    second.call_own(Box::new(move || done.store(true, Ordering::Release))).unwrap();
    assert_eq!(result.recv_timeout(LONG), Ok(true), "the other stream stood still");
    first.synchronize().unwrap();
    second.synchronize().unwrap();
}

/// A task that is over when it is told.
struct Told(Arc<AtomicBool>);

impl Task for Told {
    fn step(&mut self) -> Step {
        if self.0.load(Ordering::Acquire) { Step::Done } else { Step::Blocked }
    }
}

#[test]
fn work_that_was_begun_at_once_does_not_end_what_another_thread_enqueued() {
    let stream = Stream::new().unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let told = Arc::new(AtomicBool::new(false));
    let idle = stream.try_idle().expect("nothing is queued");
    // Another thread enqueues while this one has the stream, and then waits for its work.
    let (from, mark) = (stream.clone(), ran.clone());
    let other = std::thread::spawn(move || {
        let done = mark.clone();
        from.launch_host(Box::new(move || mark.store(true, Ordering::Release))).unwrap();
        let enqueued = from.0.enqueued();
        (from, done, enqueued)
    });
    let (from, done, enqueued) = other.join().unwrap();
    idle.go_on(Box::new(Told(told.clone())));
    assert_eq!(from.0.enqueued(), enqueued, "the end of the work at once is not taken for the other's");
    assert!(!from.query().unwrap());
    told.store(true, Ordering::Release);
    from.synchronize().unwrap();
    assert!(done.load(Ordering::Acquire), "synchronize returned before the work had run");
    assert_eq!(from.0.finished(), enqueued);
}

/// The stream, behind what it runs, which moves and ends at last. Another thread may be looking after it just now.
fn behind(stream: &Stream, id: usize, mixes: bool) -> IdleStream<'_> {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(free) = stream.try_behind(id, mixes) {
            return free;
        }
        assert!(Instant::now() < deadline, "it never has room");
        std::thread::yield_now();
    }
}

/// Trails, and moves some times before it ends.
struct Moves(u32);

impl Task for Moves {
    fn step(&mut self) -> Step {
        self.0 -= 1;
        if self.0 == 0 { Step::Done } else { Step::Progress }
    }
    fn trails(&self) -> usize {
        7
    }
}

/// What peers may write again depends on how many calls are under way, not on whether they move: an AlltoAllv that goes on
/// by messages moves in many steps.
#[test]
fn no_more_calls_than_a_window_are_under_way() {
    let stream = Stream::new().unwrap();
    for call in 0..4 * WINDOW as u32 {
        let free = behind(&stream, 7, false);
        assert!(free.behind() < WINDOW as usize, "call {call} behind {} others", free.behind());
        free.go_on(Box::new(Moves(1000)));
    }
    // Those of others do not come between.
    assert!(stream.try_behind(8, false).is_none());
    stream.synchronize().unwrap();
}

/// A call of the communicator `lane` that shares a core: moves some times before it ends, and notes that.
struct Call {
    lane: usize,
    moves: u32,
    ended: Arc<Mutex<Vec<usize>>>,
}

impl Task for Call {
    fn step(&mut self) -> Step {
        if self.moves > 0 {
            self.moves -= 1;
            return Step::Progress;
        }
        self.ended.lock().unwrap().push(self.lane);
        Step::Done
    }
    fn trails(&self) -> usize {
        self.lane
    }
    fn lane(&self) -> usize {
        self.lane
    }
    fn keeps_behind(&self) -> bool {
        true
    }
    fn shares_memory(&self) -> bool {
        true
    }
}

/// Also where those in front move and do not end, so that others of the stream are looked at.
#[test]
fn calls_of_different_communicators_end_in_the_order_of_the_stream() {
    let (stream, ended) = (Stream::new().unwrap(), Arc::default());
    for call in 0..100_u32 {
        let lane = 1 + call as usize % 3;
        let free = behind(&stream, lane, true);
        let moves = if call.is_multiple_of(2) { 5 } else { 0 };
        free.go_on(Box::new(Call { lane, moves, ended: Arc::clone(&ended) }));
    }
    stream.synchronize().unwrap();
    let ended = ended.lock().unwrap();
    assert_eq!(*ended, (0..100).map(|call| 1 + call % 3).collect::<Vec<_>>());
}

/// Is over when it is told; parks on a bell that nobody rings when that is so.
struct Belled(Arc<AtomicBool>, Doorbell);

impl Task for Belled {
    fn step(&mut self) -> Step {
        if self.0.load(Ordering::Acquire) { Step::Done } else { Step::Blocked }
    }
    fn bell(&self) -> Option<Doorbell> {
        Some(self.1.clone())
    }
}

/// How long a thread may sleep in the tests of who wakes it.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn who_ends_a_task_wakes_who_sleeps_for_it() {
    let stream = Stream::new().unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let bell = Doorbell::new(Arc::new(SharedMemory::create("bell", 4096).unwrap()).u32_at(0));
    stream.push(Box::new(Belled(told.clone(), bell.clone())));
    let began = Instant::now();
    while stream.0.advance() != Waited::Blocked {}
    let sleeper = {
        let (stream, told) = (stream.clone(), told.clone());
        std::thread::spawn(move || {
            // It may come back for no reason.
            while !told.load(Ordering::Acquire) {
                stream.0.park(LONG);
            }
        })
    };
    while !(stream.0.is_waited_for() && bell.is_awaited()) {
        assert!(began.elapsed() < LONG, "nobody sleeps");
        std::thread::yield_now();
    }
    told.store(true, Ordering::Release);
    while !stream.query().unwrap() {
        assert!(began.elapsed() < LONG, "it never ends");
    }
    sleeper.join().unwrap();
    assert!(began.elapsed() < LONG, "the sleeper woke by its timeout");
    // The helper may have slept there as well, and not have come back yet.
    while stream.0.is_waited_for() {
        assert!(began.elapsed() < LONG, "a sleeper that has gone is still counted");
        std::thread::yield_now();
    }
}

/// Of ranks that share cores, and without a bell. Is over with the first look, and tells whose it was.
struct Crowded(std::sync::mpsc::SyncSender<std::thread::ThreadId>);

impl Task for Crowded {
    fn step(&mut self) -> Step {
        self.0.send(std::thread::current().id()).unwrap();
        Step::Done
    }
    fn crowded(&self) -> bool {
        true
    }
}

#[test]
fn a_call_that_parks_to_give_way_looks_at_what_has_no_bell() {
    crate::exec::taken::grant(true);
    let stream = Stream::new().unwrap();
    let (looked, by) = std::sync::mpsc::sync_channel(1);
    stream.try_idle().expect("nothing is queued").go_on(Box::new(Crowded(looked)));
    // The stream is held until the call has given way: the helper cannot come before it.
    let looked = by.try_recv();
    crate::exec::taken::grant(false);
    stream.synchronize().unwrap();
    assert_eq!(looked, Ok(std::thread::current().id()));
}

/// Who looks for it again and again may be all that looks after the work.
#[test]
fn who_asks_for_an_event_moves_what_is_before_it() {
    let me = std::thread::current().id();
    let mine = (0..100).any(|_| {
        let (stream, event) = (Stream::new().unwrap(), Event::new());
        let (looked, by) = std::sync::mpsc::sync_channel(1);
        stream.push(Box::new(Crowded(looked)));
        stream.record(&event).unwrap();
        let began = Instant::now();
        while !event.poll().unwrap() {
            assert!(began.elapsed() < LONG, "it never ends");
        }
        // The helper may have come first.
        by.recv().unwrap() == me
    });
    assert!(mine, "the helper did it each time");
}

/// Is over once a thread is known to wait for the stream, or after [`LONG`].
struct Awaited(Stream, Instant);

impl Task for Awaited {
    fn step(&mut self) -> Step {
        if !self.0.0.is_waited_for() && self.1.elapsed() < LONG {
            return Step::Blocked;
        }
        Step::Done
    }
}

#[test]
fn who_synchronises_is_known_to_wait_until_it_leaves() {
    let stream = Stream::new().unwrap();
    let began = Instant::now();
    stream.push(Box::new(Awaited(stream.clone(), began)));
    stream.synchronize().unwrap();
    assert!(began.elapsed() < LONG, "nobody was known to wait");
    // The helper may have taken it over before, and sleep there still.
    while stream.0.is_waited_for() {
        assert!(began.elapsed() < LONG, "who has gone is still counted");
        std::thread::yield_now();
    }
}

/// The usual way to join streams with one event: each wait is for the record that was the last one when it was enqueued.
#[test]
fn a_later_record_on_another_stream_ends_no_earlier_wait() {
    let streams: Vec<Stream> = (0..3).map(|_| Stream::new().unwrap()).collect();
    let told: Vec<_> = (0..3).map(|_| Arc::new(AtomicBool::new(false))).collect();
    let (main, event, joined) = (Stream::new().unwrap(), Event::new(), Arc::new(AtomicBool::new(false)));
    for (stream, told) in streams.iter().zip(&told) {
        stream.push(Box::new(Told(told.clone())));
        stream.record(&event).unwrap();
        main.wait(&event).unwrap();
    }
    let mark = joined.clone();
    main.call_own(Box::new(move || mark.store(true, Ordering::Release))).unwrap();
    for last in [2, 1] {
        told[last].store(true, Ordering::Release);
        streams[last].synchronize().unwrap();
        assert!(event.query(), "the last record is complete");
        // As far as it gets; the helper may be at it.
        for _ in 0..100 {
            main.0.advance();
        }
        assert!(!main.query().unwrap() && !joined.load(Ordering::Acquire), "stream 0 is still at work");
    }
    // Earlier records, which end later, do not change when the last one was complete.
    let before = Event::new();
    streams[2].record(&before).unwrap();
    streams[2].synchronize().unwrap();
    told[0].store(true, Ordering::Release);
    main.synchronize().unwrap();
    assert!(joined.load(Ordering::Acquire));
    assert!(Event::elapsed_ms(&event, &before).unwrap() >= 0.0);
}

#[test]
fn special_handles_mean_a_stream_of_the_device_that_is_asked_for() {
    let handle = |n: usize| std::ptr::without_provenance_mut(n);
    for device in [2, 5] {
        let [null, legacy, own] = [0, 1, 2].map(|n| Stream::special_of(device, handle(n)));
        assert!(null.device() == device && null.same(&legacy) && own.device() == device && !own.same(&null));
        assert!(own.same(&Stream::special_of(device, handle(2))), "one for each thread and device");
        let other =
            std::thread::spawn(move || Stream::special_of(device, std::ptr::without_provenance_mut(2)).number());
        assert_ne!(other.join().unwrap(), own.number());
    }
}

/// Else who waits for a device would wait for the others, whose work may need what that thread calls next.
#[test]
fn who_waits_for_a_device_waits_for_no_work_behind_several() {
    let gates = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let streams: Vec<Stream> = [4, 3].into_iter().map(Stream::on_device).collect();
    for (stream, gate) in streams.iter().zip(&gates) {
        let open = gate.clone();
        let function = move || {
            while !open.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        stream.launch_host(Box::new(function)).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let said = done.clone();
    super::behind(|device| [3, 4].contains(&device), Box::new(move || said.store(true, Ordering::Release)));
    gates[0].store(true, Ordering::Release);
    super::synchronize(4).unwrap();
    super::drain(4).unwrap();
    assert!(!done.load(Ordering::Acquire), "the other device's work is not done");
    gates[1].store(true, Ordering::Release);
    super::synchronize(3).unwrap();
    let end = oxccl_sys::Deadline::after(Duration::from_secs(20));
    while !done.load(Ordering::Acquire) && !end.passed() {
        std::thread::yield_now();
    }
    assert!(done.load(Ordering::Acquire));
}

#[test]
fn memory_that_is_retired_is_nobodys_until_it_is_released() {
    let at = super::alloc(4096).unwrap();
    let retired = super::memory::retire(at).unwrap();
    assert!(super::allocation(at.addr()).is_none() && super::memory::retire(at).is_err());
    // SAFETY: it is refused.
    assert!(unsafe { super::free(at) }.is_err());
    let others: Vec<_> = (0..64).map(|_| super::alloc(4096).unwrap()).collect();
    assert!(!others.contains(&at));
    // SAFETY: nobody uses it.
    unsafe { retired.release() };
    // SAFETY: nor these.
    others.into_iter().for_each(|other| unsafe { super::free(other) }.unwrap());
}

#[test]
fn work_behind_a_device_waits_for_its_streams_and_keeps_nobody() {
    let [gate, passed, done] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let stream = Stream::on_device(6);
    let (open, through) = (gate.clone(), passed.clone());
    let function = move || {
        while !open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        through.store(true, Ordering::Release);
    };
    stream.launch_host(Box::new(function)).unwrap();
    let (said, through) = (done.clone(), passed);
    super::behind(
        |device| device == 6,
        Box::new(move || said.store(through.load(Ordering::Acquire), Ordering::Release)),
    );
    assert!(!done.load(Ordering::Acquire) && !gate.load(Ordering::Acquire), "the function waits, and nobody for it");
    gate.store(true, Ordering::Release);
    let end = oxccl_sys::Deadline::after(std::time::Duration::from_secs(20));
    while !done.load(Ordering::Acquire) && !end.passed() {
        std::thread::yield_now();
    }
    assert!(done.load(Ordering::Acquire), "it was done before the function, or never");
}

/// Who has waited for a stream finds it idle, whatever others do behind it.
#[test]
fn work_behind_streams_adds_nothing_to_them() {
    let stream = Stream::on_device(6);
    let [told, done] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    stream.push(Box::new(Told(told.clone())));
    let before = stream.0.enqueued();
    let said = done.clone();
    super::behind(|device| device == 6, Box::new(move || said.store(true, Ordering::Release)));
    assert!(stream.0.enqueued() == before && !done.load(Ordering::Acquire));
    told.store(true, Ordering::Release);
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
    let began = Instant::now();
    while !done.load(Ordering::Acquire) {
        assert!(began.elapsed() < LONG, "it is never done");
        std::thread::yield_now();
    }
}

/// Blocks until it is told, and notes who stepped it.
struct Watched(Arc<AtomicBool>, Arc<Mutex<Vec<std::thread::ThreadId>>>);

impl Task for Watched {
    fn step(&mut self) -> Step {
        self.1.lock().unwrap().push(std::thread::current().id());
        if self.0.load(Ordering::Acquire) { Step::Done } else { Step::Blocked }
    }
}

/// What others enqueue meanwhile may wait for what the caller does next, and a capture that they begin is theirs.
#[test]
fn who_waits_for_a_device_waits_for_what_its_streams_hold_at_that_time() {
    let [first, second, third] = [(); 3].map(|()| Stream::on_device(7));
    let [gate, later] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let steps = Arc::default();
    first.push(Box::new(Watched(gate.clone(), Arc::clone(&steps))));
    let (said, answer) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || said.send(super::synchronize(7)).unwrap());
    let began = Instant::now();
    while !steps.lock().unwrap().contains(&waiter.thread().id()) {
        assert!(began.elapsed() < LONG, "it does not wait for what is there");
        std::thread::yield_now();
    }
    second.push(Box::new(Told(later.clone())));
    third.begin_capture().unwrap();
    gate.store(true, Ordering::Release);
    let answer = answer.recv_timeout(Duration::from_secs(20));
    later.store(true, Ordering::Release);
    waiter.join().unwrap();
    assert!(answer.expect("it waits for what came later").is_ok());
    assert!(third.end_capture().is_ok(), "the capture of another thread was broken");
    second.synchronize().unwrap();
}

/// The signals of the program are for the program's threads: its handlers would run amid the library's work.
#[test]
fn the_helper_takes_no_signals() {
    let stream = Stream::new().unwrap();
    stream.call_own(Box::new(|| ())).unwrap();
    stream.synchronize().unwrap();
    let blocked = || {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.find_map(|thread| {
            let thread = thread.unwrap().path();
            let name = std::fs::read_to_string(thread.join("comm")).ok()?;
            let status =
                std::fs::read_to_string(thread.join("status")).ok().filter(|_| name.trim() == "oxccl helper")?;
            let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
    };
    // It names itself when it begins.
    let began = Instant::now();
    let mask = loop {
        match blocked() {
            Some(mask) => break mask,
            None => assert!(began.elapsed() < LONG, "there is no helper"),
        }
        std::thread::yield_now();
    };
    // Interrupt, user 1, user 2, alarm, termination and child.
    for signal in [2, 10, 12, 14, 15, 17] {
        assert!(mask & 1 << (signal - 1) != 0, "signal {signal} is not blocked: {mask:x}");
    }
}

#[test]
fn the_default_stream_is_drawn_into_no_capture() {
    let (stream, default, event) = (Stream::on_device(3), Stream::default_of(3), Event::new());
    stream.begin_capture().unwrap();
    stream.record(&event).unwrap();
    assert!(default.wait(&event).is_err() && default.capture_state().is_none());
    assert_eq!(event.is_capture_broken(), Some(true));
    assert_eq!(stream.end_capture().err(), Some(EndError::Invalidated));
    assert_eq!(event.is_capture_broken(), None);
}

#[test]
fn a_broken_capture_records_nothing_more() {
    let [stream, joined, other] = [(); 3].map(|()| Stream::new().unwrap());
    let (event, later) = (Event::new(), Event::new());
    stream.begin_capture().unwrap();
    stream.record(&event).unwrap();
    joined.wait(&event).unwrap();
    let graph = stream.capture_info().unwrap().graph;
    assert!(stream.query().is_err(), "this breaks it");
    for stream in [&stream, &joined] {
        assert!(stream.call_host(Arc::new(|| ()), [0; 2]).is_err());
        assert!(stream.record(&later).is_err() && stream.wait(&event).is_err());
        assert!(stream.capture_alloc(4096, 0).is_err());
    }
    assert!(other.wait(&event).is_err() && other.capture_state().is_none());
    assert!(!later.is_captured() && graph.lock().nodes.is_empty());
    assert_eq!(stream.end_capture().err(), Some(EndError::Invalidated));
    // Both are free again.
    for stream in [stream, joined] {
        stream.call_own(Box::new(|| ())).unwrap();
        stream.synchronize().unwrap();
    }
}

/// Nobody else could end it.
#[test]
fn a_thread_that_ends_ends_the_capture_of_its_own_stream() {
    let (event, joined) = (Event::new(), Stream::new().unwrap());
    let (point, drawn) = (event.clone(), joined.clone());
    std::thread::spawn(move || {
        let mine = Stream::special_of(2, std::ptr::without_provenance_mut(2));
        mine.begin_capture_to(Graph::new(), &[], CaptureMode::Relaxed).unwrap();
        mine.record(&point).unwrap();
        drawn.wait(&point).unwrap();
    })
    .join()
    .unwrap();
    assert!(event.is_captured() && event.is_capture_broken().is_none() && joined.capture_state().is_none());
}

/// What others enqueue meanwhile may wait for what the caller does next.
#[test]
fn who_copies_and_waits_waits_for_that_copy() {
    let stream = Stream::new().unwrap();
    let [gate, later] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let steps = Arc::default();
    stream.push(Box::new(Watched(gate.clone(), Arc::clone(&steps))));
    let (said, answer) = std::sync::mpsc::channel();
    let mine = stream.clone();
    let waiter = std::thread::spawn(move || {
        let (from, mut to) = ([7u8; 64], [0u8; 64]);
        // SAFETY: both stay as they are until the call returns.
        unsafe { mine.copy_area_now(Area::row(to.as_mut_ptr(), from.as_ptr(), 64)) }.unwrap();
        said.send(to).unwrap();
    });
    let began = Instant::now();
    while !steps.lock().unwrap().contains(&waiter.thread().id()) {
        assert!(began.elapsed() < LONG, "it does not wait for what is there");
        std::thread::yield_now();
    }
    stream.push(Box::new(Told(later.clone())));
    gate.store(true, Ordering::Release);
    let answer = answer.recv_timeout(Duration::from_secs(20));
    later.store(true, Ordering::Release);
    waiter.join().unwrap();
    assert_eq!(answer, Ok([7; 64]));
    stream.synchronize().unwrap();
    // SAFETY: the stream captures, so nothing is copied.
    let refused = unsafe {
        stream.begin_capture().unwrap();
        stream.copy_area_now(Area::row(std::ptr::null_mut(), std::ptr::null(), 64))
    };
    assert!(refused.is_err() && stream.end_capture().is_err());
}
