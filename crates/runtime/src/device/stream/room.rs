//! Room for a call on a stream that is not idle: who enqueues works off a little of what is there, or finds that the call may begin
//! behind it.

use super::*;

/// Queued tasks that an enqueue works off before it gives its own to the queue.
const CATCH_UP: u32 = 4;
/// The most tasks of a batch that it works off: all of them are stepped each time.
const BESIDE: usize = 128;
/// How long a call that comes behind a blocked task looks at it, ns; and one step more, which looks for its peers itself.
const LATE_NS: u64 = 4000;

impl Inner {
    /// Works off a little of what is queued, as long as it is quick. Whether the stream is idle now.
    #[inline]
    pub(super) fn catch_up(&self, running: &mut Running) -> bool {
        running.tasks.is_empty() && !self.pending() || self.work_off(running)
    }

    /// A peer that is a little late is waited for: who went on ahead of it would do so with a queue from then on. Not by who has
    /// [other work](haste) meanwhile.
    #[inline(never)]
    fn work_off(&self, running: &mut Running) -> bool {
        haste::begin();
        let patience_ns = if haste::is_brief() { 0 } else { LATE_NS };
        let (mut steps, mut since) = (0, 0);
        while steps < CATCH_UP {
            if running.tasks.is_empty() && (!self.pending() || !self.pull(running)) {
                return !self.pending();
            }
            if running.tasks.len() > BESIDE && running.tasks.front().is_some_and(|t| t.batch() != 0) {
                return false;
            }
            // The first one may have gone on otherwise than those like it.
            if !running.tasks.front().into_iter().map(|t| &**t).chain(running.tasks.unlike()).all(|t| t.is_quick()) {
                return false;
            }
            let crowded = running.tasks.unlike().any(|t| t.crowded());
            if self.advance_locked(running) == Waited::Progress || crowded && self.give_way(running) {
                (steps, since) = (steps + 1, 0);
                continue;
            }
            let now = clock::now_ns();
            since = if since == 0 { now } else { since };
            if crowded || now - since >= patience_ns {
                running.stalled = true;
                if !crowded {
                    haste::late_at(now);
                }
            }
            if running.stalled {
                return false;
            }
            spin_loop();
        }
        running.tasks.is_empty() && !self.pending()
    }

    /// Whether a call of the communicator `id`, of which all share memory if `mixes`, may begin now: the stream is idle, or all
    /// that is left [trails](Task::trails), there or in another such communicator, and there is room for one more.
    #[inline]
    pub(super) fn make_room(&self, running: &mut Running, id: usize, mixes: bool) -> bool {
        // A task trails only behind tasks that do.
        let follows = running.tasks.back().is_some_and(|t| match t.trails() {
            0 => false,
            of => of == id || mixes && t.keeps_behind() && t.shares_memory(),
        });
        if !follows || !self.is_all(running) {
            return self.catch_up(running);
        }
        while !running.tasks.has_room() {
            // A task may move and not end: what peers write again for the calls under way holds for so many only.
            if self.advance_locked(running) != Waited::Progress && !self.give_way(running) {
                return false;
            }
        }
        true
    }

    /// Whether nothing is queued behind what runs.
    pub(super) fn is_all(&self, running: &Running) -> bool {
        self.enqueued.load(Ordering::Acquire) - self.finished.load(Ordering::Acquire) == running.tasks.len() as u64
    }
}
