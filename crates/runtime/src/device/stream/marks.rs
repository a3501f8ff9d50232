//! Events in the queue of a stream: records of them, and waits for one.

use super::*;

pub(super) struct RecordTask {
    pub(super) event: Event,
    pub(super) record: Record,
    /// The stream that it is queued on: kept until it ran, since others may wait for the event whatever becomes of the handles.
    pub(super) _stream: Stream,
}

impl Task for RecordTask {
    fn step(&mut self) -> Step {
        self.event.complete(&self.record);
        Step::Done
    }
    fn is_mark(&self) -> bool {
        true
    }
}

pub(super) struct WaitTask {
    pub(super) event: Event,
    pub(super) record: Record,
    /// When to look next whether the event was lost.
    pub(super) look_at: u64,
}

impl Task for WaitTask {
    fn step(&mut self) -> Step {
        if self.event.is_complete(&self.record) {
            return Step::Done;
        }
        self.event.lost(&self.record, &mut self.look_at).map_or(Step::Blocked, Step::Failed)
    }
    fn park(&self, timeout: Duration) {
        self.event.park(&self.record, timeout);
    }
    fn is_mark(&self) -> bool {
        true
    }
}
