//! Queues that get deep: a program makes many short calls over a network, one behind the other, and waits for none of them.
//!
//! Each of them has a box that must be allocated, and has left the caches by the time its turn comes, if thousands are before it. So
//! the thread that enqueues one more works on what it has queued now and then. Nothing waits here for long, and nothing is run of
//! which it is not known that it is short.

use super::*;

/// Calls that are queued before one that is enqueued works on them; fewer than boxes are kept.
const DEEP: u64 = 128;
/// Calls that it leaves.
const LEFT: u64 = 64;
/// From one that does so to the next.
const EVERY: u64 = 32;
/// Times that it goes on at once, at most, after peers that share its core were given way to in vain.
const SKIP: u32 = 4;
/// How long one takes for it, ns, before it gives up; looked at once in so many steps of those that move something.
const LONGEST_NS: u64 = 1_000_000;
const STEPS_PER_LOOK: u32 = 8;

impl Inner {
    fn depth(&self) -> u64 {
        // Less than nothing: others have finished since what they saw enqueued was counted.
        self.enqueued.load(Ordering::Acquire).saturating_sub(self.finished.load(Ordering::Acquire))
    }

    /// Whether what comes next is a short call over a network: nothing else is run by who only enqueues.
    fn is_short(&self, running: &Running) -> bool {
        match running.tasks.front() {
            Some(task) => task.follows() != 0,
            None => self.queue.lock().front().is_some_and(|task| task.follows() != 0),
        }
    }

    #[inline(never)]
    fn work_down(&self) {
        let Some(mut running) = self.running.try_lock() else { return };
        let (began, mut steps) = (clock::now_ns(), 0u32);
        while self.depth() > LEFT && self.is_short(&running) {
            let moved = self.advance_locked(&mut running) == Waited::Progress;
            if !moved {
                // Ranks that share the core have what this one waits for: they would not come to it if all of them only enqueued.
                running.courtesy.skip_at_most(SKIP);
                if !self.give_way(&mut running) {
                    return;
                }
            }
            steps += 1;
            if (!moved || steps.is_multiple_of(STEPS_PER_LOOK)) && clock::now_ns() - began > LONGEST_NS {
                return;
            }
        }
    }
}

impl Stream {
    /// A call over a network was [pushed](Self::push): works on the ones before it if there are many.
    #[inline]
    pub(crate) fn work_on_many(&self) {
        let depth = self.0.depth();
        if depth >= DEEP && depth.is_multiple_of(EVERY) {
            self.0.work_down();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    /// A short call over a network: over when it is told, and notes its number then.
    struct Short {
        number: u64,
        may_end: Arc<AtomicBool>,
        ended: Arc<Mutex<Vec<u64>>>,
    }

    impl Task for Short {
        fn step(&mut self) -> Step {
            if !self.may_end.load(Ordering::Acquire) {
                return Step::Blocked;
            }
            lock(&self.ended).push(self.number);
            Step::Done
        }
        fn follows(&self) -> usize {
            9
        }
    }

    #[derive(Default)]
    struct Calls {
        may_end: Arc<AtomicBool>,
        ended: Arc<Mutex<Vec<u64>>>,
    }

    impl Calls {
        /// Enqueues so many, the most of which were queued then.
        fn enqueue(&self, stream: &Stream, calls: u64) -> u64 {
            let deepest = (0..calls).map(|number| {
                let (may_end, ended) = (self.may_end.clone(), self.ended.clone());
                stream.push(Box::new(Short { number, may_end, ended }));
                stream.work_on_many();
                stream.0.depth()
            });
            deepest.max().unwrap_or(0)
        }

        fn assert_all_ended(&self, calls: u64) {
            assert!(lock(&self.ended).iter().copied().eq(0..calls), "not each once, in their order");
        }
    }

    #[test]
    fn many_short_calls_keep_the_queue_short() {
        let deepest = |_| {
            let (stream, calls) = (Stream::new().unwrap(), Calls::default());
            calls.may_end.store(true, Ordering::Release);
            let deepest = calls.enqueue(&stream, 1000);
            stream.synchronize().unwrap();
            calls.assert_all_ended(1000);
            deepest
        };
        // A thread of another test, or the helper, may have the stream for a while.
        let all: Vec<u64> = (0..100).map(deepest).collect();
        assert!(all.iter().any(|deepest| *deepest < DEEP), "{all:?} calls were queued");
    }

    #[test]
    fn who_enqueues_many_calls_that_cannot_end_goes_on() {
        let (stream, calls) = (Stream::new().unwrap(), Calls::default());
        assert_eq!(calls.enqueue(&stream, 1000), 1000);
        calls.may_end.store(true, Ordering::Release);
        stream.synchronize().unwrap();
        calls.assert_all_ended(1000);
    }

    /// It may wait for what the thread does after it has enqueued.
    #[test]
    fn functions_of_the_program_are_not_run_by_who_enqueues_calls() {
        let (stream, calls) = (Stream::new().unwrap(), Calls::default());
        let (ran, told) = (Arc::new(Mutex::new(None::<ThreadId>)), Arc::new(AtomicBool::new(false)));
        let (by, may_end) = (ran.clone(), told.clone());
        let function = move || {
            *lock(&by) = Some(thread::current().id());
            while !may_end.load(Ordering::Acquire) && thread::current().name() == Some("oxccl helper") {
                thread::yield_now();
            }
        };
        stream.launch_host(Box::new(function)).unwrap();
        calls.may_end.store(true, Ordering::Release);
        calls.enqueue(&stream, 1000);
        assert_ne!(*lock(&ran), Some(thread::current().id()));
        told.store(true, Ordering::Release);
        stream.synchronize().unwrap();
        calls.assert_all_ended(1000);
    }
}
