//! Queues that get deep: a program makes many short calls over a network, one behind the other, and waits for none of them.
//!
//! Each of them has a box that must be allocated, and has left the caches by the time its turn comes, if thousands are before it. So
//! the thread that enqueues one more works on what it has queued now and then. It gives way to peers that share its core, but waits
//! for nobody else, and runs nothing of which it is not known that it is short.

use super::*;
use crate::communicator::core::POOL;

/// Tasks that are queued before one that is enqueued works on them: fewer than boxes are kept.
const DEEP: u64 = 128;
const _: () = assert!(DEEP < POOL as u64);
/// Tasks that it leaves.
const LEFT: u64 = 64;
/// From one that does so to the next.
const EVERY: u64 = 32;
/// How long one takes for it, ns, but for the step or the courtesy that it began before that; looked at once in so many steps of those
/// that move something.
const LONGEST_NS: u64 = 1_000_000;
const STEPS_PER_LOOK: u32 = 8;

impl Inner {
    fn depth(&self) -> u64 {
        // Less than nothing: others have finished since what they saw enqueued was counted.
        self.enqueued.load(Ordering::Acquire).saturating_sub(self.finished.load(Ordering::Acquire))
    }

    /// Whether what comes next is a short call over a network, or an event: nothing else is run by who only enqueues.
    fn is_short(&self, running: &Running) -> bool {
        let short = |task: &dyn Task| task.follows() != 0 || task.is_mark();
        match running.tasks.front() {
            Some(task) => short(&**task),
            None => self.queue.lock().front().is_some_and(|task| short(&**task)),
        }
    }

    #[inline(never)]
    fn work_down(&self) {
        self.worked_at.store(self.enqueued.load(Ordering::Relaxed), Ordering::Relaxed);
        let Some(mut running) = self.running.try_lock() else { return };
        let running = &mut *running;
        let (began, mut steps) = (clock::now_ns(), 0u32);
        while self.depth() > LEFT && self.is_short(running) {
            let moved = self.advance_locked(running) == Waited::Progress;
            // Ranks that share the core have what this one waits for: they would not come to it if all of them only enqueued.
            if !moved && !self.give_way_briefly(running) {
                return;
            }
            steps += 1;
            if (!moved || steps.is_multiple_of(STEPS_PER_LOOK)) && clock::now_ns() - began > LONGEST_NS {
                return;
            }
        }
    }

    fn give_way_briefly(&self, running: &mut Running) -> bool {
        let mut courtesy = std::mem::take(&mut running.brief);
        let moved = self.give_way_by(running, |moved| courtesy.give_way_briefly(moved));
        running.brief = courtesy;
        moved
    }
}

impl Stream {
    /// A call over a network was [pushed](Self::push): works on what was queued before it if that is much. Not before the first task of
    /// the stream is over: the first call of a program opens connections, which may take its time.
    #[inline]
    pub(crate) fn work_on_many(&self) {
        let inner = &*self.0;
        let enqueued = inner.enqueued.load(Ordering::Relaxed);
        let since = enqueued.wrapping_sub(inner.worked_at.load(Ordering::Relaxed));
        if inner.depth() >= DEEP && since >= EVERY && inner.finished() > FIRST {
            inner.work_down();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    /// A short call over a network: over when it is told, and notes its number then, and who found it so.
    struct Short {
        number: u64,
        may_end: Arc<AtomicBool>,
        ended: Arc<Mutex<Vec<(u64, ThreadId)>>>,
    }

    impl Task for Short {
        fn step(&mut self) -> Step {
            if !self.may_end.load(Ordering::Acquire) {
                return Step::Blocked;
            }
            lock(&self.ended).push((self.number, thread::current().id()));
            Step::Done
        }
        fn follows(&self) -> usize {
            9
        }
    }

    /// A stream on which something is over.
    fn used() -> Stream {
        let stream = Stream::new().unwrap();
        stream.record(&Event::new()).unwrap();
        stream.synchronize().unwrap();
        stream
    }

    #[derive(Default)]
    struct Calls {
        may_end: Arc<AtomicBool>,
        ended: Arc<Mutex<Vec<(u64, ThreadId)>>>,
    }

    impl Calls {
        /// Enqueues so many, each followed by a record of the event if there is one; the most tasks that were queued then.
        fn enqueue(&self, stream: &Stream, calls: u64, event: Option<&Event>) -> u64 {
            let deepest = (0..calls).map(|number| {
                let (may_end, ended) = (self.may_end.clone(), self.ended.clone());
                stream.push(Box::new(Short { number, may_end, ended }));
                stream.work_on_many();
                event.into_iter().for_each(|event| stream.record(event).unwrap());
                stream.0.depth()
            });
            deepest.max().unwrap_or(0)
        }

        /// How many this thread has ended.
        fn ended_here(&self) -> u64 {
            lock(&self.ended).iter().filter(|(_, by)| *by == thread::current().id()).count() as u64
        }

        fn assert_all_ended(&self, calls: u64) {
            assert!(lock(&self.ended).iter().map(|(number, _)| *number).eq(0..calls), "not each once, in their order");
        }
    }

    #[test]
    fn many_short_calls_keep_the_queue_short() {
        let event = Event::new();
        for event in [None, Some(&event)] {
            let round = |_| {
                let (stream, calls) = (used(), Calls::default());
                calls.may_end.store(true, Ordering::Release);
                let deepest = calls.enqueue(&stream, 1000, event);
                let here = calls.ended_here();
                stream.synchronize().unwrap();
                calls.assert_all_ended(1000);
                (deepest, here)
            };
            // A thread of another test, or the helper, may have the stream for a while.
            let all: Vec<(u64, u64)> = (0..100).map(round).collect();
            let is_short = |(deepest, here): &(u64, u64)| *deepest < DEEP + EVERY && *here > 500;
            assert!(all.iter().any(is_short), "tasks that were queued, and calls that ended here: {all:?}");
        }
    }

    #[test]
    fn who_enqueues_many_calls_that_cannot_end_goes_on() {
        let (stream, calls) = (used(), Calls::default());
        assert_eq!(calls.enqueue(&stream, 1000, None), 1000);
        calls.may_end.store(true, Ordering::Release);
        stream.synchronize().unwrap();
        calls.assert_all_ended(1000);
    }

    /// The first one of a program opens connections.
    #[test]
    fn who_enqueues_calls_does_not_begin_the_first_one() {
        let (stream, calls) = (Stream::new().unwrap(), Calls::default());
        calls.may_end.store(true, Ordering::Release);
        calls.enqueue(&stream, DEEP + EVERY, None);
        // The helper may have begun it, or a thread of another test that waits.
        let by = lock(&calls.ended).first().map(|(_, by)| *by);
        assert_ne!(by, Some(thread::current().id()));
        stream.synchronize().unwrap();
        calls.assert_all_ended(DEEP + EVERY);
    }

    /// It may wait for what the thread does after it has enqueued.
    #[test]
    fn functions_of_the_program_are_not_run_by_who_enqueues_calls() {
        let (stream, calls) = (used(), Calls::default());
        let (ran, told) = (Arc::new(Mutex::new(None::<ThreadId>)), Arc::new(AtomicBool::new(false)));
        let (by, may_end) = (ran.clone(), told.clone());
        let function = move || {
            *lock(&by) = Some(thread::current().id());
            while !may_end.load(Ordering::Acquire) && thread::current().name() == Some("oxccl functions") {
                thread::yield_now();
            }
        };
        stream.launch_host(Box::new(function)).unwrap();
        calls.may_end.store(true, Ordering::Release);
        calls.enqueue(&stream, 1000, None);
        let by = *lock(&ran);
        told.store(true, Ordering::Release);
        assert_ne!(by, Some(thread::current().id()));
        stream.synchronize().unwrap();
        calls.assert_all_ended(1000);
    }
}
