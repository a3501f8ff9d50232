//! Calls that begin behind those which the stream runs, at the hands of the thread that makes them: whether there is room, and
//! what those in front have to do with them. Which calls may begin so they say themselves, see `exec::trail` and `exec::lent`.

use super::*;

/// Of so many looks at what is behind a blocked task one is for operations of other communicators that were aborted.
const LOOKS_PER_ABORT: u32 = 16;
/// And one for those of the same, of which groups of messages may have failed as they began over a network.
const LOOKS_PER_FAILURE: u32 = 128;

impl Inner {
    /// The first task is blocked: steps those behind it as far as those in front of them [have given](Task::has_given) all that
    /// they have. Whether anything moved.
    pub(super) fn step_behind(&self, running: &mut Running) -> bool {
        let before = running.given;
        while running.tasks.get(running.given).is_some_and(|t| t.has_given()) {
            running.given += 1;
        }
        let mut progress = running.given > before;
        while running.given > 0 && running.given < running.tasks.len() {
            match running.tasks.at(running.given).step_early() {
                Step::Failed(error) => {
                    self.remember(error);
                    running.tasks.replace(running.given, Box::new(FailedTask));
                    return true;
                }
                Step::Progress => progress = true,
                _ => {}
            }
            if !running.tasks[running.given].has_given() {
                break;
            }
            (running.given, progress) = (running.given + 1, true);
        }
        running.looks = running.looks.wrapping_add(1);
        let over_network = running.tasks.front().is_some_and(|t| t.lane() != 0 && !t.shares_memory());
        if running.tasks.is_mixed() && over_network {
            // What one that is over has left on connections of its kind nobody else drives before those behind it have their turns.
            running.tasks.each_last(|task| task.send_off());
        }
        if running.tasks.is_mixed() && running.looks.is_multiple_of(LOOKS_PER_ABORT) {
            self.hear_aborts(running, false);
        }
        if over_network && running.looks.is_multiple_of(LOOKS_PER_FAILURE) {
            self.hear_aborts(running, true);
        }
        progress
    }

    /// Operations of other lanes than the first task's fail if their communicators were aborted here: who aborts one waits until
    /// nothing of it is lent any more, and the first task may hang. `all`: also those of its lane, whose connections are others.
    #[cold]
    fn hear_aborts(&self, running: &mut Running, all: bool) {
        let first = running.tasks.front().map_or(0, |t| t.lane());
        for i in 1..running.tasks.len() {
            if !all && running.tasks[i].lane() == first {
                continue;
            }
            if let Step::Failed(error) = running.tasks.at(i).hear_abort() {
                self.remember(error);
                running.tasks.replace(i, Box::new(FailedTask));
            }
        }
    }
}

impl Stream {
    /// As [`try_idle`](Self::try_idle), or when all that is left is the [end](Task::end_of) of a call of that lane, for which no thread
    /// sleeps: such a one is woken when it is over.
    #[inline]
    pub(crate) fn try_behind_end(&self, lane: usize) -> Option<IdleStream<'_>> {
        order::before_push(self);
        let inner = &*self.0;
        let mut running = inner.running.try_lock()?;
        let one = running.tasks.len() == 1 && inner.is_all(&running) && !inner.others_sleep(&running);
        let ends = one && running.tasks.at(0).end_of(lane).is_some();
        (ends || inner.catch_up(&mut running)).then_some(IdleStream { inner, running })
    }
}

impl IdleStream<'_> {
    /// The call that [ends](Task::end_of) there, of that lane.
    #[inline]
    pub(crate) fn end_of(&mut self, lane: usize) -> Option<&mut CollectiveTask> {
        self.running.tasks.front_mut()?.end_of(lane)
    }

    /// What ended there is over, and its task stands for the next call.
    #[inline]
    pub(crate) fn renewed(&mut self) {
        let queue = self.inner.queue.lock();
        // What another thread has enqueued meanwhile ends behind this one, and was counted before: so this one keeps the count of the
        // one that is over, and who waits for that waits for this one.
        if queue.is_empty() {
            self.inner.count_enqueued(&queue, 1);
            self.inner.count_finished(&self.running, 1);
        }
    }

    /// The call that ends there is known to be over: its task goes.
    pub(crate) fn drop_end(&mut self) {
        self.inner.finish(&mut self.running, 0);
    }

    /// Whether a call with that [window](Task::window) may begin behind the tasks that are left.
    #[inline]
    pub(crate) fn has_room_for(&self, window: u64) -> bool {
        (self.running.tasks.len() as u64) < window
    }

    /// How many tasks are left: none, unless it is from [`Stream::try_behind`] or [`Stream::try_behind_end`].
    #[inline]
    pub(crate) fn behind(&self) -> usize {
        self.running.tasks.len()
    }

    /// How many of them are operations of that [lane](Task::lane).
    #[inline]
    pub(crate) fn behind_in(&self, lane: usize) -> u64 {
        self.running.tasks.of(lane)
    }

    /// Which stream it is, and how often its end was waited for or asked for, or something was enqueued that is no call of a
    /// communicator.
    #[inline]
    pub(crate) fn waits(&self) -> (usize, u64) {
        (std::ptr::from_ref(self.inner).addr(), self.inner.waits.load(Ordering::Relaxed))
    }

    /// Whether one of them writes some of these bytes.
    pub(crate) fn will_write(&self, bytes: std::ops::Range<usize>) -> bool {
        let mut writers = self.running.tasks.concerned(|touches| touches.may_write(&bytes));
        writers.any(|t| t.writes(&bytes))
    }

    /// Whether one of them may lend anything.
    #[inline]
    pub(crate) fn any_lends(&self) -> bool {
        self.running.tasks.any_lends()
    }

    /// Whether one of them lends some of these bytes to its peers.
    pub(crate) fn has_lent(&self, bytes: &std::ops::Range<usize>) -> bool {
        let mut lenders = self.running.tasks.concerned(|touches| touches.may_touch(bytes));
        !bytes.is_empty() && lenders.any(|t| t.lent(bytes))
    }

    /// Whether one of them [bars](Task::bars) `next`, a call of that [lane](Task::lane) with that output.
    pub(crate) fn bars(&self, next: &Call, output: &std::ops::Range<usize>, lane: usize) -> bool {
        let mut others = self.running.tasks.concerned(|touches| touches.may_touch(output));
        // In which order peers write in calls of different communicators is not known.
        others.any(|t| t.bars((t.lane() == lane).then_some(next), output))
    }

    /// Whether bytes may be copied from the one to the other now, before they are over: nobody has still to write the first, or to read
    /// or write the second.
    pub(crate) fn may_copy(&self, from: &std::ops::Range<usize>, to: &std::ops::Range<usize>) -> bool {
        let mut others = self.running.tasks.concerned(|touches| touches.may_touch(to));
        !self.will_write(from.clone()) && !others.any(|t| t.bars(None, to))
    }

    /// Whether the last of them is no operation of that [lane](Task::lane).
    pub(crate) fn is_last_of_others(&self, lane: usize) -> bool {
        self.running.tasks.back().is_some_and(|t| t.lane() != lane)
    }

    /// The exchange that the last of them is, if it is of that [lane](Task::lane) and [takes more](Task::takes_more), of calls that
    /// are `lent` or not.
    pub(crate) fn last_exchange(&mut self, lane: usize, lent: bool) -> Option<&mut Exchange> {
        self.running.tasks.back_mut().filter(|t| t.lane() == lane)?.takes_more(lent)
    }

    /// The last of them took more on, which it has still to give; `lends`: some of it may be lent.
    pub(crate) fn took_on(&mut self, lends: bool) {
        self.running.given = self.running.given.min(self.running.tasks.len() - 1);
        self.running.tasks.last_grew(lends);
    }

    /// Steps them, and gives the core to the peers that share it, for a short time. Whether anything moved.
    pub(crate) fn make_way(&mut self) -> bool {
        self.inner.advance_locked(&mut self.running) == Waited::Progress || self.inner.give_way(&mut self.running)
    }
}
