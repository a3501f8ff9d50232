//! Streams of the host devices: queues that keep CUDA's order.
//!
//! *Whoever waits, works*: the thread that synchronises a stream steps its tasks itself. Tasks are resumable; one that
//! must wait for a peer returns [`Step::Blocked`] and the thread may step other streams meanwhile. A helper thread takes
//! over work that nobody waits for (see `helper`).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering, spin_loop};
use oxccl_sys::{Doorbell, Latch, LatchGuard, barrier, clock};
use oxccl_types::{Error, Result};

use super::capture::Membership;
use super::event::Record;
use super::graph::{Tag, Work};
use super::moves::{Area, Fill, MoveTask};
use super::order::{self, Order};
use super::{Event, helper};
use crate::communicator::hub::WINDOW;
use crate::exec::wait::{Courtesy, Turn, Waiter};
use crate::exec::{ahead::RankSet, call::Call, collective::CollectiveTask, p2p::Exchange};
use crate::haste;
use look_ahead::FailedTask;
use marks::{RecordTask, WaitTask};
pub(crate) use tasks::{Likeness, Tasks, Touches};

mod behind;
mod deep;
mod handles;
mod look_ahead;
mod marks;
mod parking;
mod room;
mod tasks;

/// What one step of a task came to.
#[derive(Debug)]
pub(crate) enum Step {
    /// The task is finished.
    Done,
    /// Finished here, but not yet known to have been met by every peer: the stream looks after that.
    DoneUnsettled,
    /// Finished; what it has to send waits for the task that [`Task::may_hold`] told of, which is to be stepped at once.
    DoneHeld,
    /// Something was moved; step again.
    Progress,
    /// Nothing to do until a peer, an event or another task moves.
    Blocked,
    /// The task is finished and failed.
    Failed(Error),
}

/// A unit of work on a stream.
pub(crate) trait Task: Send {
    /// Does a bounded piece of work.
    fn step(&mut self) -> Step;
    /// The bell that rings when something this task waits for may have changed. It keeps the memory that it is in: who parks
    /// on it, or rings it after the task's end, may do so when the communicator has gone.
    fn bell(&self) -> Option<Doorbell> {
        None
    }
    /// For tasks without a bell: blocks for at most `timeout` until something may have changed.
    fn park(&self, _timeout: Duration) {}
    /// Neighbours on a stream with the same non-zero batch run concurrently.
    fn batch(&self) -> u64 {
        0
    }
    /// Whether one step is all that the task usually takes, and a short one.
    fn is_quick(&self) -> bool {
        false
    }
    /// Which communicator the task belongs to if it is short and sends over a network; 0 for all others.
    fn follows(&self) -> usize {
        0
    }
    /// Before a step: whether a task with the same [`Task::follows`] comes next and is stepped in any case.
    fn may_hold(&mut self, _next: bool) {}
    /// Whether waiting ranks outnumber cores, so that spinning would only keep others from working.
    fn crowded(&self) -> bool {
        false
    }
    /// Not 0 if the next call of its communicator may begin behind it, since it has sent all that it sends, or over a network all that it
    /// sends first: what calls of its [lane](Task::lane) have in common, or the program that it goes by.
    fn trails(&self) -> usize {
        0
    }
    /// Which operations take turns with the task, see `exec::trail::id`; 0 for what is no operation of a communicator.
    fn lane(&self) -> usize {
        0
    }
    /// Whether it is stepped at the head of the stream only, or [early](Task::step_early): what it writes comes after what tasks in
    /// front of it write, also where these have turns of their own.
    fn keeps_behind(&self) -> bool {
        false
    }
    /// Whether it is an operation of a communicator all of whose ranks share memory.
    fn shares_memory(&self) -> bool {
        false
    }
    /// Whether the task will write some of these bytes, where it [trails](Task::trails).
    fn writes(&self, _bytes: &std::ops::Range<usize>) -> bool {
        false
    }
    /// How many tasks may be under way of which it is one, where it [trails](Task::trails).
    fn window(&self) -> u64 {
        WINDOW
    }
    /// Whether it lends some of these bytes to its peers, which may read them until it is over.
    fn lent(&self, _bytes: &std::ops::Range<usize>) -> bool {
        false
    }
    /// Whether it may [lend](Task::lent) anything.
    fn may_lend(&self) -> bool {
        true
    }
    /// Whether nothing is left to be done but to end, or to wait until peers have taken what it [lends](Task::lent): the one behind it
    /// may [go on](Task::step_early) meanwhile.
    fn has_given(&self) -> bool {
        false
    }
    /// [`step`](Task::step) of a task whose turn it is not, where all in front of it [have given](Task::has_given). It does
    /// not end.
    fn step_early(&mut self) -> Step {
        Step::Blocked
    }
    /// As [`step_early`](Task::step_early) where something in front of it has still to give: it only fails, if its communicator was
    /// aborted here, or, as a group of messages, if a connection failed as it began.
    fn hear_abort(&mut self) -> Step {
        Step::Blocked
    }
    /// Whether nobody may write `output` before this is over, be it the output of a call or what a rank copies to; `next`: a call of the
    /// same lane that peers write it for.
    fn bars(&self, _next: Option<&Call>, _output: &std::ops::Range<usize>) -> bool {
        true
    }
    /// The exchange to which receives of later calls may be left, where there is one, or, if they are `lent`, whole calls, of whose
    /// messages some may be read where they lie: they end with the task.
    fn takes_more(&mut self, _lent: bool) -> Option<&mut Exchange> {
        None
    }
    /// The call of the [lane](Task::lane) `lane` that it is, if all that is left of it is its [end](crate::exec::ends).
    fn end_of(&mut self, _lane: usize) -> Option<&mut CollectiveTask> {
        None
    }
    /// Does, behind `others`, all of the same stream and the last of them one that [trails](Task::trails), what can be done
    /// before they have ended; it may wait for [`Task::send_off`] to go out. `None`: nothing, its turn must come first, or
    /// it has begun.
    fn begin_behind(&mut self, _others: &Tasks) -> Option<Step> {
        None
    }
    /// Sends what [`Task::begin_behind`] left waiting, also for tasks of its lane before it.
    fn send_off(&mut self) {}
    /// To which ranks of its communicator it has still to send after that.
    fn sends_later(&self) -> RankSet {
        RankSet::default()
    }
    /// Whether it is a collective of the kind and root of `call`.
    fn has_root_of(&self, _call: &Call) -> bool {
        false
    }
    /// Equal for tasks that [trail](Task::trails) and say the same of all that is asked above about buffers, calls and
    /// communicator, for as long as they run; `None` where nothing is known of it.
    fn likeness(&self) -> Option<Likeness> {
        None
    }
    /// Within what it reads and writes as long as it runs, where it [trails](Task::trails) and, in other bytes, neither
    /// [lends](Task::lent) nor [bars](Task::bars) anything; `None` where that is not known.
    fn touches(&self) -> Option<Touches> {
        None
    }
    /// How many bytes the task will write, or has sent if that may be more, where it [trails](Task::trails).
    fn written(&self) -> usize {
        0
    }
    /// Whether it stands for a task that has failed before its time: nothing is left to be done.
    fn has_failed(&self) -> bool {
        false
    }
    /// Whether a step calls a function of the program, which may wait for any other thread of it.
    fn is_foreign(&self) -> bool {
        false
    }
    /// Whether a step only looks at an event, or marks it as reached.
    fn is_mark(&self) -> bool {
        false
    }
    /// What remains to be checked after [`Step::DoneUnsettled`].
    fn unsettled(&self) -> Option<Arc<dyn Settle>> {
        None
    }
    /// Gives the box back to whoever keeps it for the next call.
    fn recycle(self: Box<Self>) {}
}

/// Runs a step; a panic in it becomes an error, so that it neither unwinds into C nor wedges the stream.
pub(crate) fn caught<T>(step: impl FnOnce() -> T) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Error::internal(format!("work on a stream panicked: {text}"))
    })
}

/// The error of work that can no longer be done because its stream is gone.
#[cold]
pub(crate) fn abandoned(what: &str) -> Error {
    Error::usage(format!(
        "the stream was dropped before {what} on it was done; synchronise a stream before dropping it"
    ))
}

/// Tasks in a row that may leave what they have to send to the next one.
const HOLD: u32 = 64;
/// Where the counts of a stream begin.
const FIRST: u64 = 1 << 16;

/// A check that nobody waits for: the helper looks after it, and whoever ends the communicator.
pub(crate) trait Settle: Send + Sync {
    /// `Some` when the check is over. Never blocks.
    fn poll(&self) -> Option<Result<()>>;
}

/// What a look at a stream came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Progress,
    Blocked,
    Idle,
    Elsewhere,
    /// What comes next is a function of the program, which is not the caller's to call.
    Foreign,
}

/// Turns of waiting after which a thread says that it waits; short waits need not be known.
const ATTEND_AFTER: u32 = 16;
/// Turns of waiting after which a thread looks at other streams of the process.
const ASSIST_AFTER: u32 = 48;

#[derive(Default)]
struct Running {
    tasks: Tasks,
    /// Weak: a stream keeps no communicator alive that was destroyed.
    unsettled: Vec<Weak<dyn Settle>>,
    courtesy: Courtesy,
    /// Of who only enqueues, see `deep`.
    brief: Courtesy,
    /// A call that came behind the tasks has waited for them in vain; the next ones do not, before there is progress.
    stalled: bool,
    /// How many of the tasks, the first ones, [have given](Task::has_given) what they have, as far as is known.
    given: usize,
    /// How often what is behind the first task was looked at.
    looks: u32,
    /// Who runs the stream is one of its sleepers, who looks once more.
    sleeper: bool,
}

pub(super) struct Inner {
    pub(super) device: usize,
    pub(super) order: Order,
    pub(super) capture: Membership,
    /// Its C handle was destroyed.
    closed: AtomicBool,
    queue: Latch<VecDeque<Box<dyn Task>>>,
    running: Latch<Running>,
    /// Something is unsettled.
    doubtful: AtomicBool,
    enqueued: AtomicU64,
    finished: AtomicU64,
    error: Mutex<Option<Error>>,
    /// There is an error.
    failed: AtomicBool,
    /// How often its end was waited for or asked for, or something was enqueued that is no call of a communicator.
    waits: AtomicU64,
    /// What was enqueued when who enqueues last tried to work on what it had queued.
    worked_at: AtomicU64,
    sleepers: Mutex<()>,
    /// Threads that sleep until something was finished here.
    sleeping: AtomicU64,
    /// Threads that do nothing but [wait](Inner::is_waited_for) for this stream: the helper does not look after it.
    attended: AtomicU64,
    runner_done: Condvar,
}

/// A stream of a host device. Cloning gives another handle to the same stream.
#[derive(Clone)]
pub struct Stream(pub(super) Arc<Inner>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:p}, device {})", Arc::as_ptr(&self.0), self.0.device)
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // A task that panicked left its stream consistent: every structure below is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.finished.load(Ordering::Acquire) < self.enqueued.load(Ordering::Acquire)
    }

    /// See [`waits`](IdleStream::waits). Of two threads that count at once one may go uncounted: the number must change, no more.
    #[inline]
    pub(super) fn count_wait(&self) {
        self.waits.store(self.waits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts tasks, by who holds the queue, before [`helper::notify`] looks whether the helper sleeps.
    fn count_enqueued(&self, _queue: &LatchGuard<'_, VecDeque<Box<dyn Task>>>, tasks: usize) {
        // SYNC: stream-enqueued, helper-asleep. No exchange: nobody else counts meanwhile.
        self.enqueued.store(self.enqueued.load(Ordering::Relaxed) + tasks as u64, Ordering::Release);
    }

    /// Counts tasks that are finished, or takes back as many, by who runs the stream.
    fn count_finished(&self, _running: &Running, tasks: i64) {
        // SYNC: stream-finished. No exchange, as above.
        self.finished.store(self.finished.load(Ordering::Relaxed).wrapping_add_signed(tasks), Ordering::Release);
    }

    /// Tasks enqueued so far.
    pub(super) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::SeqCst)
    }

    pub(super) fn finished(&self) -> u64 {
        // SYNC: stream-finished
        self.finished.load(Ordering::Acquire)
    }

    /// Steps the tasks at the head once, unless another thread is at it.
    pub(super) fn advance(&self) -> Waited {
        self.running.try_lock().map_or(Waited::Elsewhere, |mut running| self.advance_locked(&mut running))
    }

    /// As [`advance`](Self::advance), by a thread that waits for something else: it calls no function of the program, which may
    /// wait for just this thread. Such a one is left to who waits for the stream, or to the [thread](helper) for those.
    pub(super) fn advance_aside(&self) -> Waited {
        let Some(mut running) = self.running.try_lock() else { return Waited::Elsewhere };
        let is_foreign = match running.tasks.front() {
            Some(task) => task.is_foreign(),
            None => self.queue.lock().front().is_some_and(|task| task.is_foreign()),
        };
        if is_foreign { Waited::Foreign } else { self.advance_locked(&mut running) }
    }

    fn advance_locked(&self, running: &mut Running) -> Waited {
        match running.tasks.front().map(|t| t.batch()) {
            None if !self.pull(running) => return Waited::Idle,
            // The rest of a batch may have been enqueued after its first task was taken.
            Some(batch) if batch != 0 => self.pull_batch(running, batch),
            _ => {}
        }
        let mut progress = false;
        let mut i = 0;
        let mut held = 0;
        while i < running.tasks.len() {
            if i == 0 {
                progress |= self.look_ahead(running, held);
            } else if running.tasks[i].has_failed() {
                i += 1;
                continue;
            } else if running.tasks[i].keeps_behind() {
                progress |= self.step_behind(running);
                break;
            }
            match running.tasks.at(i).step() {
                Step::DoneHeld => {
                    progress = true;
                    held += 1;
                    self.finish(running, i);
                    // The call that was to take along what it holds has begun already, or is what comes next.
                    if running.tasks.is_empty() {
                        self.pull(running);
                    }
                }
                Step::Progress => {
                    progress = true;
                    i += 1;
                }
                // Those behind it wait for their turn, or for what it has to give.
                Step::Blocked if running.tasks[i].trails() != 0 => {
                    progress |= self.step_behind(running);
                    break;
                }
                Step::Blocked => i += 1,
                Step::Done => {
                    progress = true;
                    self.finish(running, i);
                }
                Step::DoneUnsettled => {
                    progress = true;
                    if let Some(check) = running.tasks[i].unsettled() {
                        self.doubt(running, &check, Arc::downgrade);
                    }
                    self.finish(running, i);
                }
                Step::Failed(error) => {
                    progress = true;
                    self.remember(error);
                    if i > 0 && running.tasks[i].batch() == 0 {
                        // Who waits for what is before it must not take that for finished.
                        running.tasks.replace(i, Box::new(FailedTask));
                        i += 1;
                    } else {
                        self.finish(running, i);
                    }
                }
            }
        }
        running.stalled &= !progress;
        if progress { Waited::Progress } else { Waited::Blocked }
    }

    /// Gives the core to the peers of a blocked task that share it, for a short time. Whether the task moved then.
    fn give_way(&self, running: &mut Running) -> bool {
        let mut courtesy = std::mem::take(&mut running.courtesy);
        let moved = self.give_way_by(running, |moved| courtesy.give_way(moved));
        running.courtesy = courtesy;
        moved
    }

    /// The same as `give` says, which is handed what looks whether the task moved, or parks first.
    fn give_way_by(
        &self,
        running: &mut Running,
        give: impl FnOnce(&mut dyn FnMut(Option<Duration>) -> bool) -> bool,
    ) -> bool {
        let crowded = running.tasks.front().is_some_and(|t| t.crowded());
        crowded
            && give(&mut |park| match park {
                // Nobody has looked at a task without a bell.
                Some(timeout) => self.park_locked(running, timeout) || self.advance_locked(running) == Waited::Progress,
                None => self.advance_locked(running) == Waited::Progress,
            })
    }

    fn finish(&self, running: &mut Running, i: usize) {
        let mut bell = None;
        if let Some(task) = running.tasks.remove(i) {
            if self.others_sleep(running) {
                bell = task.bell();
            }
            task.recycle();
        }
        running.given = running.given.saturating_sub(1);
        self.count_finished(running, 1);
        // SYNC: stream-asleep. A sleeper passes a heavy barrier between its count and its look at what is finished.
        barrier::light_here();
        // A notification is a system call; a sleeper that is missed wakes by its timeout.
        if self.others_sleep(running) {
            self.runner_done.notify_all();
        }
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Takes the next task, and its batch, from the queue.
    fn pull(&self, running: &mut Running) -> bool {
        let mut queue = self.queue.lock();
        let Some(first) = queue.pop_front() else { return false };
        let batch = first.batch();
        drop(queue);
        running.tasks.push_back(first);
        if batch != 0 {
            self.pull_batch(running, batch);
        }
        true
    }

    /// Takes what follows of a batch from the queue.
    fn pull_batch(&self, running: &mut Running, batch: u64) {
        let mut queue = self.queue.lock();
        while queue.front().is_some_and(|t| t.batch() == batch) {
            queue.pop_front().into_iter().for_each(|task| running.tasks.push_back(task));
        }
    }

    fn batched(&self) -> bool {
        self.running.try_lock().is_some_and(|r| r.tasks.front().is_some_and(|t| t.batch() != 0))
    }

    fn crowded(&self) -> bool {
        self.running.try_lock().is_some_and(|r| r.tasks.front().is_some_and(|t| t.crowded()))
    }

    /// Keeps the first error until somebody asks.
    fn remember(&self, error: Error) {
        let mut first = lock(&self.error);
        first.get_or_insert(error);
        // SYNC: stream-failed
        self.failed.store(true, Ordering::Release);
    }

    /// The first error of the work since the last call.
    #[inline]
    fn take_error(&self) -> Result<()> {
        // SYNC: stream-failed
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut first = lock(&self.error);
        self.failed.store(false, Ordering::Relaxed);
        first.take().map_or(Ok(()), Err)
    }

    /// `check` is to be looked after.
    fn doubt<S: Settle + ?Sized>(&self, running: &mut Running, check: &Arc<S>, keep: fn(&Arc<S>) -> Weak<dyn Settle>) {
        let known = |u: &Weak<dyn Settle>| std::ptr::addr_eq(u.as_ptr(), Arc::as_ptr(check));
        // Usually it is: then nothing is counted.
        if !running.unsettled.iter().any(known) {
            running.unsettled.push(keep(check));
            self.doubtful.store(true, Ordering::Relaxed);
            helper::notify();
        }
    }

    /// Whether checks are left that somebody must look after.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Looks at the checks that are left; `false` if it could not, since another thread has the stream. Errors are kept for who
    /// waits for it.
    pub(super) fn settle(&self) -> bool {
        let Some(mut running) = self.running.try_lock() else { return false };
        running.unsettled.retain(|check| match check.upgrade().map(|c| c.poll()) {
            Some(None) => true,
            Some(Some(Err(error))) => {
                self.remember(error);
                false
            }
            Some(Some(Ok(()))) | None => false,
        });
        self.doubtful.store(!running.unsettled.is_empty(), Ordering::Relaxed);
        true
    }
}

impl Stream {
    pub(super) fn on(device: usize, order: Order) -> Stream {
        let inner = Arc::new(Inner {
            device,
            order,
            capture: Membership::default(),
            closed: AtomicBool::new(false),
            queue: Latch::default(),
            running: Latch::default(),
            doubtful: AtomicBool::new(false),
            // So high that `go_on` can take back from it.
            enqueued: AtomicU64::new(FIRST),
            finished: AtomicU64::new(FIRST),
            error: Mutex::default(),
            failed: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            worked_at: AtomicU64::new(0),
            sleepers: Mutex::default(),
            sleeping: AtomicU64::new(0),
            attended: AtomicU64::new(0),
            runner_done: Condvar::new(),
        });
        helper::register(&inner);
        let new = Stream(inner);
        new.wait_for_copies();
        new
    }

    /// A new stream on the calling thread's device.
    pub fn new() -> Result<Stream> {
        Ok(Stream::on(super::current(), Order::free()))
    }

    /// A new stream on `device`, which must exist.
    pub(super) fn on_device(device: usize) -> Stream {
        Stream::on(device, Order::free())
    }

    /// The default stream of the calling thread's device (the NULL stream of C).
    pub fn default_stream() -> Stream {
        Stream::default_of(super::current())
    }

    /// The default stream of `device`, which must exist.
    pub fn default_of(device: usize) -> Stream {
        static DEFAULTS: OnceLock<Vec<Stream>> = OnceLock::new();
        DEFAULTS.get_or_init(|| (0..super::count()).map(|d| Stream::on(d, Order::default_stream())).collect())[device]
            .clone()
    }

    /// Whether both handles name one stream.
    pub fn same(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The device of the stream.
    pub fn device(&self) -> usize {
        self.0.device
    }

    /// The stream, held by the calling thread, if it has nothing to do: a call that is over soon is then done at once,
    /// with neither queue nor box nor helper. A little of what is queued is worked off for that.
    #[inline]
    pub(crate) fn try_idle(&self) -> Option<IdleStream<'_>> {
        order::before_push(self);
        let mut running = self.0.running.try_lock()?;
        self.0.catch_up(&mut running).then_some(IdleStream { inner: &self.0, running })
    }

    /// Whether anything is left to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.pending()
    }

    /// As [`try_idle`](Self::try_idle), or when tasks are left that all [trail](Task::trails) in the communicator `id`, or, if that
    /// `mixes`, in any that does: fewer than the [window](Task::window) of each.
    #[inline]
    pub(crate) fn try_behind(&self, id: usize, mixes: bool) -> Option<IdleStream<'_>> {
        order::before_push(self);
        let mut running = self.0.running.try_lock()?;
        self.0.make_room(&mut running, id, mixes).then_some(IdleStream { inner: &self.0, running })
    }

    /// Tries a task that is over soon at once, if the stream is idle; else, or when it is not over, `boxed` puts it where
    /// the stream goes on with it.
    pub(crate) fn run_or_push<T: Task>(&self, mut task: T, boxed: impl FnOnce(T) -> Box<dyn Task>) {
        let Some(idle) = self.try_idle() else { return self.push(boxed(task)) };
        match task.step() {
            Step::Done | Step::DoneUnsettled | Step::DoneHeld => {}
            Step::Failed(error) => idle.failed(error),
            Step::Progress | Step::Blocked => idle.go_on(boxed(task)),
        }
    }

    pub(crate) fn push(&self, task: Box<dyn Task>) {
        order::before_push(self);
        self.push_unordered(task);
    }

    /// [`push`](Self::push) of several tasks, with nothing in between.
    pub(crate) fn push_all(&self, tasks: Vec<Box<dyn Task>>) {
        order::before_push(self);
        let mut queue = self.0.queue.lock();
        self.0.count_enqueued(&queue, tasks.len());
        queue.extend(tasks);
        drop(queue);
        helper::notify();
    }

    /// [`push`](Self::push) without regard to the default stream. How many tasks the stream was given up to this one.
    pub(super) fn push_unordered(&self, task: Box<dyn Task>) -> u64 {
        // Calls that could not begin at once follow one another all the same.
        if task.lane() == 0 {
            self.0.count_wait();
        }
        let mut queue = self.0.queue.lock();
        queue.push_back(task);
        self.0.count_enqueued(&queue, 1);
        let enqueued = self.0.enqueued();
        drop(queue);
        helper::notify();
        enqueued
    }

    /// Runs the stream's work on the calling thread until everything enqueued before the call is done.
    ///
    /// Returns the first error of its tasks since the last `synchronize`.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_while_capturing("waited for")?;
        order::before_push(self);
        // SYNC: stream-enqueued
        self.synchronize_to(self.0.enqueued.load(Ordering::Acquire))
    }

    /// [`synchronize`](Self::synchronize) with so many tasks, of those that were ever enqueued, whatever the stream captures.
    pub(super) fn synchronize_to(&self, target: u64) -> Result<()> {
        let inner = &*self.0;
        inner.count_wait();
        let mut waiter: Option<Waiter> = None;
        let mut attended = None;
        while inner.finished() < target {
            match inner.advance() {
                Waited::Progress => waiter = None,
                Waited::Idle => {}
                Waited::Blocked | Waited::Elsewhere | Waited::Foreign => {
                    let w = waiter.get_or_insert_with(|| Waiter::new(inner.crowded()));
                    // A group over several communicators: what it waits for may be on this thread's other streams.
                    let assist_after = if inner.batched() { 0 } else { ASSIST_AFTER };
                    // Steps of other streams may take long: this one is not looked after meanwhile.
                    if w.turns() >= assist_after && helper::assist(inner, || attended = None) {
                        continue;
                    }
                    if w.turns() >= ATTEND_AFTER && attended.is_none() {
                        attended = Some(inner.attend());
                    }
                    if let Turn::Park(timeout) = w.turn()
                        && !helper::assist(inner, || attended = None)
                    {
                        inner.park(timeout);
                    }
                }
            }
        }
        haste::end();
        inner.take_error()
    }

    /// Whether the stream is idle. Moves its work a little, but calls no function of the program: it may wait for what the caller
    /// does when this has returned.
    pub fn query(&self) -> Result<bool> {
        self.refuse_while_capturing("asked for its state")?;
        order::before_push(self);
        self.0.count_wait();
        if self.0.pending() {
            helper::pass_by(&self.0);
        }
        if self.0.pending() {
            return Ok(false);
        }
        self.0.take_error().map(|()| true)
    }

    /// Runs `f` when all work enqueued before is done. `f` must not wait for this stream.
    pub fn launch_host(&self, f: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.refuse_while_capturing("given a function that runs once")?;
        self.push(Box::new(HostCall { call: Some(f), is_foreign: true }));
        Ok(())
    }

    /// The same of a function of this library, which waits for nothing: any thread may call it that looks after the stream.
    pub fn call_own(&self, f: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.refuse_while_capturing("given a function that runs once")?;
        self.push(Box::new(HostCall { call: Some(f), is_foreign: false }));
        Ok(())
    }

    /// Copies `bytes` bytes in stream order.
    ///
    /// # Safety
    /// Both ranges stay valid until the copy ran; nothing else writes `dst` or `src` meanwhile; they do not overlap.
    pub unsafe fn copy(&self, dst: *mut u8, src: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_area(Area::row(dst, src, bytes), [0; 2]) }
    }

    /// Copies an area in stream order; in a graph at every launch, as a node with this tag.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for every row.
    pub unsafe fn copy_area(&self, area: Area, tag: Tag) -> Result<()> {
        self.push_or_capture(Work::Copy(area), tag, || self.push(Box::new(MoveTask::new(area))))
    }

    /// Copies `bytes`, which the stream keeps until then, in stream order.
    ///
    /// # Safety
    /// The target stays valid until the copy ran, and nothing else writes it meanwhile.
    pub unsafe fn copy_kept(&self, dst: *mut u8, bytes: Vec<u8>) -> Result<()> {
        self.refuse_while_capturing("given bytes that are copied once")?;
        self.push(Box::new(MoveTask::of(dst, bytes)));
        Ok(())
    }

    /// Fills an area with a value in stream order.
    ///
    /// # Safety
    /// The area stays valid until this ran; nothing else touches it meanwhile.
    pub unsafe fn fill_area(&self, fill: Fill) -> Result<()> {
        self.push_or_capture(Work::Fill(fill), [0; 2], || self.push(Box::new(fill.task())))
    }

    /// Records `event`: it is complete once all work enqueued before is done, also where no handle of the stream is left by then.
    pub fn record(&self, event: &Event) -> Result<()> {
        if self.capture_record(event)? {
            return Ok(());
        }
        self.record_now(event);
        Ok(())
    }

    /// [`record`](Self::record) behind what was last enqueued, whatever captures the stream is part of.
    pub(super) fn record_now(&self, event: &Event) {
        let record = event.next_record();
        self.push(Box::new(RecordTask { event: event.clone(), record, _stream: self.clone() }));
    }

    /// Work enqueued after this starts when the last record of `event` before this call is complete.
    pub fn wait(&self, event: &Event) -> Result<()> {
        if self.capture_wait(event)? {
            return Ok(());
        }
        self.wait_now(event);
        Ok(())
    }

    /// [`wait`](Self::wait) for what was last enqueued that records the event, whatever captures it is part of.
    pub(super) fn wait_now(&self, event: &Event) {
        if let Some(record) = event.last_record() {
            self.push(Box::new(WaitTask { event: event.clone(), record, look_at: 0 }));
        }
    }
}

/// A stream that has nothing to do but, from [`Stream::try_behind`], tasks that trail, or, from [`Stream::try_behind_end`], the end of a
/// call; held by the calling thread.
pub(crate) struct IdleStream<'a> {
    inner: &'a Inner,
    running: LatchGuard<'a, Running>,
}

impl IdleStream<'_> {
    /// What the thread has begun is not over: the stream goes on with it.
    pub(crate) fn go_on(self, task: Box<dyn Task>) {
        self.go_on_with(std::iter::once(task));
    }

    /// As [`go_on`](Self::go_on) with several tasks, which may be stepped side by side.
    pub(crate) fn go_on_with(mut self, tasks: impl Iterator<Item = Box<dyn Task>>) {
        let before = self.running.tasks.len();
        tasks.for_each(|task| self.running.tasks.push_back(task));
        let begun = self.running.tasks.len() - before;
        let queue = self.inner.queue.lock();
        if queue.is_empty() {
            self.inner.count_enqueued(&queue, begun);
        } else {
            // Another thread has enqueued meanwhile: its work ends after this, but was counted before. The end of this
            // must not be taken for one of its own.
            self.inner.count_finished(&self.running, -(begun as i64));
        }
        drop(queue);
        let has_room = |r: &mut Running| r.tasks.back().is_none_or(|t| t.trails() != 0) && r.tasks.has_room();
        while !has_room(&mut self.running) && self.inner.give_way(&mut self.running) {}
        let over = self.running.tasks.is_empty();
        drop(self.running);
        if !over {
            helper::notify();
        }
    }

    /// What the thread did has failed.
    pub(crate) fn failed(&self, error: Error) {
        self.inner.remember(error);
    }

    /// What the thread did is over, but `check` is to be looked after.
    pub(crate) fn doubt<S: Settle + 'static>(&mut self, check: &Arc<S>) {
        self.inner.doubt(&mut self.running, check, |check| Arc::<S>::downgrade(check));
    }
}

struct HostCall {
    call: Option<Box<dyn FnOnce() + Send>>,
    is_foreign: bool,
}

impl Task for HostCall {
    fn step(&mut self) -> Step {
        let Some(f) = self.call.take() else { return Step::Done };
        caught(|| {
            f();
            Step::Done
        })
        .unwrap_or_else(Step::Failed)
    }
    fn is_foreign(&self) -> bool {
        self.is_foreign
    }
}

/// Bytes one step moves at most, so that a thread that serves several streams starves none.
pub(crate) const STEP_BYTES: usize = 1 << 20;
