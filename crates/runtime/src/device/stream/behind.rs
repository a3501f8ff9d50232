//! Calls that begin behind those which the stream runs, at the hands of the thread that makes them: whether there is room, and
//! what those in front have to do with them. Which calls may begin so they say themselves, see `exec::trail` and `exec::lent`.

use super::*;

impl Running {
    /// Whether one more call may begin behind those under way, all of which [trail](Task::trails).
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let running = self.tasks.len();
        running < WINDOW as usize || running < LENT_WINDOW as usize && self.tasks.iter().all(|t| t.lends())
    }
}

impl IdleStream<'_> {
    /// Whether a call whose payload lies in slots may begin behind the tasks that are left: of these only so many may be
    /// under way.
    #[inline]
    pub(crate) fn has_slot(&self) -> bool {
        self.running.tasks.len() < WINDOW as usize
    }

    /// How many tasks are left: none, unless it is from [`Stream::try_behind`].
    #[inline]
    pub(crate) fn behind(&self) -> usize {
        self.running.tasks.len()
    }

    /// Whether one of them writes some of these bytes.
    pub(crate) fn will_write(&self, bytes: std::ops::Range<usize>) -> bool {
        self.running.tasks.iter().any(|t| t.writes(&bytes))
    }

    /// Whether one of them [bars](Task::bars) a call of its communicator.
    pub(crate) fn bars(&self, next: &Call) -> bool {
        self.running.tasks.iter().any(|t| t.bars(next))
    }

    /// The exchange that the last of them is, if it [takes more](Task::takes_more).
    pub(crate) fn last_exchange(&mut self) -> Option<&mut Exchange> {
        self.running.tasks.back_mut()?.takes_more()
    }

    /// Steps them, and gives the core to the peers that share it, for a short time. Whether anything moved.
    pub(crate) fn make_way(&mut self) -> bool {
        self.inner.advance_locked(&mut self.running) == Waited::Progress || self.inner.give_way(&mut self.running)
    }
}
