//! Tasks that begin behind those which a stream runs: what it looks for in its queue, and what stands for a task that has
//! failed before its time. Which tasks may begin they say themselves, see `exec::ahead`.

use super::*;
use crate::exec::ahead;

/// In the place of a task that has failed while others were before it, until these are over.
pub(super) struct FailedTask;

impl Task for FailedTask {
    fn step(&mut self) -> Step {
        Step::Done
    }

    fn has_failed(&self) -> bool {
        true
    }
}

impl Inner {
    /// Looks whether tasks in the queue, from which only who runs the stream takes, follow those that run over a network.
    /// They begin behind these, several at a time, so that what they send goes out together; a task that is alone is told
    /// of its like. Whether any began.
    pub(super) fn look_ahead(&self, running: &mut Running, held: u32) -> bool {
        let id = running.tasks.back().map_or(0, |t| t.follows());
        if id == 0 || !ahead::wants_more(&running.tasks) {
            return false;
        }
        let follows = || self.queue.lock().front().is_some_and(|t| t.follows() == id);
        if running.tasks.len() == 1 {
            let next = self.queue.lock().front().filter(|t| t.follows() == id).map(|t| t.lane());
            // What is held waits on the connections of its lane.
            let alike = next == Some(running.tasks[0].lane());
            running.tasks.at(0).may_hold(alike && held < HOLD);
            if next.is_none() {
                return false;
            }
        }
        let mut begun = running.tasks.len() == 1 && self.begin_first(running);
        while running.tasks.len() < ahead::MOST && running.tasks.back().is_some_and(|t| t.trails() != 0) && follows() {
            let Some(mut next) = self.queue.lock().pop_front() else { break };
            let Some(step) = next.begin_behind(&running.tasks) else {
                self.queue.lock().push_front(next);
                break;
            };
            begun = true;
            if let Step::Failed(error) = step {
                self.remember(error);
                running.tasks.push_back(Box::new(FailedTask));
                break;
            }
            running.tasks.push_back(next);
        }
        if begun {
            // The last one of a lane does so for all of it.
            running.tasks.each_last(|task| task.send_off());
        }
        begun
    }

    /// Lets the only task that runs begin as those behind it do, if it has not begun.
    fn begin_first(&self, running: &mut Running) -> bool {
        let Some(mut first) = running.tasks.pop_front() else { return false };
        let begun = first.begin_behind(&running.tasks);
        if let Some(Step::Failed(error)) = begun {
            self.remember(error);
            running.tasks.push_back(Box::new(FailedTask));
            return true;
        }
        running.tasks.push_back(first);
        begun.is_some()
    }
}
