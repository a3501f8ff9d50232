//! The helper thread: takes over stream work that nobody waits for.
//!
//! It is started by the first enqueue and sleeps for good when nothing was enqueued for a while; the next enqueue wakes
//! it. In between it looks at the streams, see [`pace`] and [`sight`], and works only on those that nobody waits for nor
//! touched between two looks, so that call-then-synchronise programs never meet it. Threads that wait for one stream also
//! use [`assist`] to move the others. Functions of the program are called by threads of their own, see [`functions`].

mod functions;
mod pace;
mod sight;

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, RwLock, Weak};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, AtomicU32, Ordering};
use oxccl_sys::{barrier, clock};

use self::pace::{Found, Pace, Rest};
use self::sight::{Pending, Sight, Sights};
use super::stream::{Inner, Waited};
use crate::exec::wait::{Turn, Waiter};

static STREAMS: RwLock<Vec<Weak<Inner>>> = RwLock::new(Vec::new());
static ASLEEP: AtomicBool = AtomicBool::new(false);
/// Whether the sleeping helper was called.
static BED: Mutex<bool> = Mutex::new(false);
static ALARM: Condvar = Condvar::new();
/// How long checks that are left on streams stay there at least before it looks at them, ns: each look takes a stream from the
/// thread that uses it, which sees to them with its next call or wait as a rule.
const SETTLE_NS: u64 = 8_000_000;
/// Looks, each a period after the other, at work that does not move on streams that others have, before they are left alone for as
/// long as what is tended: a step may be long, and who yields in it is met again and again.
const TRIES: u32 = 5;
/// How many times as long work does not move before it is taken over where ranks share cores: a thread does not have its turn there for
/// milliseconds, and the helper would be one more that wants the core.
const SHARED: u32 = 4;
/// The communicators of the process whose ranks share cores.
static CROWDS: AtomicU32 = AtomicU32::new(0);

/// Says that the ranks of a communicator share cores, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Crowd(());

impl Crowd {
    pub(crate) fn new() -> Crowd {
        CROWDS.fetch_add(1, Ordering::Relaxed);
        Crowd(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        CROWDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long work does not move before it is taken over, where that is `delay` elsewhere.
fn period(delay: Duration) -> Duration {
    delay * if CROWDS.load(Ordering::Relaxed) > 0 { SHARED } else { 1 }
}

pub(super) fn register(stream: &Arc<Inner>) {
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.retain(|s| s.strong_count() > 0);
    streams.push(Arc::downgrade(stream));
}

pub(super) fn unregister(stream: &Arc<Inner>) {
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.retain(|s| s.strong_count() > 0 && !std::ptr::eq(s.as_ptr(), Arc::as_ptr(stream)));
}

/// The streams of the process for which `wanted` holds, busy or not.
pub(super) fn streams(wanted: impl Fn(&Inner) -> bool) -> Vec<Arc<Inner>> {
    let mut all = every();
    // Behind the lock: a handle may turn out to be the last one, and what goes with it may make or end streams.
    all.retain(|s| wanted(s));
    all
}

fn every() -> Vec<Arc<Inner>> {
    STREAMS.read().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
}

fn snapshot() -> Vec<Arc<Inner>> {
    streams(|s| s.pending())
}

/// Everything that was ever enqueued on `streams`: it changes when something was.
fn enqueued(streams: &[Arc<Inner>]) -> u64 {
    streams.iter().fold(0, |sum, s| sum.wrapping_add(s.enqueued()))
}

/// Work was enqueued, and its stream has counted it: make sure that the helper is awake. No line is written that
/// threads share.
pub(super) fn notify() {
    static START: Once = Once::new();
    START.call_once(|| {
        // Signals of the program are for the threads of the program.
        let builder = std::thread::Builder::new().name("oxccl helper".into());
        // Without the thread, work still runs when somebody synchronises; the log says why it is missing.
        if let Err(e) = oxccl_sys::process::with_signals_blocked(|| builder.spawn(run)) {
            crate::log::warn(&format!("cannot start the helper thread ({e}); streams move only when synchronised"));
        }
    });
    // SYNC: helper-asleep. The stream's count comes before this look, the helper's look at the counts behind its word.
    barrier::light_here();
    if ASLEEP.load(Ordering::Relaxed) {
        wake();
    }
}

/// Lets the helper look now.
fn wake() {
    *bed() = true;
    ALARM.notify_one();
}

fn bed() -> MutexGuard<'static, bool> {
    BED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run() {
    let delay = crate::config::helper_delay();
    let mut pace = Pace::new(period(delay));
    let mut looker = Looker::default();
    loop {
        let began = Duration::from_nanos(clock::now_ns());
        let found = looker.look();
        pace.set_period(period(delay));
        match pace.next(found, began, Duration::from_nanos(clock::now_ns())) {
            Rest::For(time) => drop(ALARM.wait_timeout(bed(), time * crate::exec::taken::slowness())),
            Rest::UntilCalled => {
                await_call(looker.enqueued);
                pace.called();
            }
        }
    }
}

/// What the helper saw, and what it has to look after.
#[derive(Default)]
struct Looker {
    sights: Sights,
    /// What was ever enqueued on the streams.
    enqueued: u64,
    /// The last look left work in doubt, so that it is not long ago.
    doubted: bool,
    /// How often in a row others had the streams whose work did not move.
    missed: u32,
    checks: Checks,
}

impl Looker {
    /// Looks at all streams, and works on what was left on one of them at the last look, too, and has not moved.
    fn look(&mut self) -> Found {
        let all = every();
        let enqueued = enqueued(&all);
        let sights: Vec<Sight> = all.iter().map(sight).collect();
        drop(all);
        let is_idle = enqueued == self.enqueued && sights.iter().all(|s| s.pending == Pending::No);
        self.enqueued = enqueued;
        let told = self.sights.update(sights, self.doubted);
        let took = told.orphaned && take_over(&mut self.checks);
        let checks = self.checks.see_to();
        self.missed = if told.orphaned && !took { (self.missed + 1).min(TRIES) } else { 0 };
        self.doubted = !took && (told.new || (1..TRIES).contains(&self.missed));
        match () {
            () if took => Found::Orphans,
            () if self.doubted => Found::New,
            () if told.late => Found::Late,
            () if is_idle && !checks => Found::Idle,
            () => Found::Tended,
        }
    }
}

fn sight(stream: &Arc<Inner>) -> Sight {
    let pending = match () {
        () if !stream.pending() => Pending::No,
        () if stream.is_waited_for() => Pending::Attended,
        () => Pending::Left,
    };
    Sight { stream: Arc::as_ptr(stream) as usize, finished: stream.finished(), pending }
}

/// Sleeps until the next enqueue, unless something is left or more has come than there was when it was last looked at.
fn await_call(enqueued_before: u64) {
    *bed() = false;
    ASLEEP.store(true, Ordering::Relaxed);
    // SYNC: helper-asleep
    barrier::heavy();
    let all = every();
    let busy = enqueued(&all) != enqueued_before || all.iter().any(|s| s.pending() || s.is_doubtful());
    // Before the lock is taken, see `streams`.
    drop(all);
    if !busy {
        drop(ALARM.wait_while(bed(), |called| !*called));
    }
    ASLEEP.store(false, Ordering::Relaxed);
}

/// Checks that are left on streams.
#[derive(Default)]
struct Checks {
    /// When they were first seen, or all looked at; 0: there were none.
    since: u64,
}

impl Checks {
    /// Looks at them if that was long ago; at those of a stream that another thread has now, at the next look. Whether there are any.
    fn see_to(&mut self) -> bool {
        let doubtful = streams(|s| s.is_doubtful());
        let now = clock::now_ns();
        if doubtful.is_empty() {
            self.since = 0;
        } else if self.since == 0 {
            self.since = now;
        } else if now - self.since >= SETTLE_NS {
            // Each of them, whether or not another one is taken.
            let taken = doubtful.iter().filter(|s| !s.settle()).count();
            self.since = if taken == 0 { now } else { self.since };
        }
        !doubtful.is_empty()
    }
}

/// Works on all streams that nobody runs or waits for until none has work, or others took them. Whether there was one.
fn take_over(checks: &mut Checks) -> bool {
    let mut waiter = Waiter::new(true);
    let mut took = false;
    loop {
        let pending = streams(|s| s.pending() && !s.is_waited_for());
        let mut progress = false;
        let mut mine = None;
        for s in &pending {
            match s.advance_aside() {
                Waited::Progress => progress = true,
                Waited::Blocked => mine = Some(s),
                Waited::Foreign if functions::are_called(s.device) => took |= functions::hand_over(s),
                Waited::Foreign => took |= s.advance() == Waited::Progress,
                Waited::Idle | Waited::Elsewhere => {}
            }
        }
        took |= progress || mine.is_some();
        if progress {
            waiter = Waiter::new(true);
            continue;
        }
        let Some(blocked) = mine else { return took };
        // What blocks here may take for ever; what is unsettled elsewhere must not wait for it.
        checks.see_to();
        if let Turn::Park(timeout) = waiter.turn() {
            blocked.park(timeout.min(Duration::from_millis(1)));
        }
    }
}

/// Steps the streams of the process that have work and no runner, except `mine`, but calls no function of the program; `leave`
/// before each of them. Whether anything moved.
pub(super) fn assist(mine: &Inner, mut leave: impl FnMut()) -> bool {
    let mut progress = false;
    for s in snapshot() {
        if !std::ptr::eq(Arc::as_ptr(&s), mine) {
            leave();
            progress |= pass_by(&s);
        }
    }
    progress
}

/// Steps any stream of the process that has work and no runner, but calls no function of the program. Whether anything moved.
pub(crate) fn assist_any() -> bool {
    let mut progress = false;
    for s in snapshot() {
        progress |= pass_by(&s);
    }
    progress
}

/// As [`assist_any`], for who asks for something again and again and does not wait: now and then, and not the streams that somebody waits
/// for, who would find them held.
pub(super) fn glance() {
    thread_local! {
        static LAST: Cell<u64> = const { Cell::new(0) };
    }
    let now = oxccl_sys::clock::now_ns();
    let last = LAST.get();
    if now.saturating_sub(last) < GLANCES_NS && last != 0 {
        return;
    }
    LAST.set(now);
    for s in snapshot().iter().filter(|s| !s.is_waited_for()) {
        pass_by(s);
    }
}

/// Between two of a thread.
const GLANCES_NS: u64 = 5_000;

/// Steps a stream if nobody runs it, by a thread that waits for something else or does not wait: a function of the program that it
/// has come to is left to who waits for the stream, or to the thread for those. Whether anything moved.
pub(super) fn pass_by(stream: &Arc<Inner>) -> bool {
    let waited = stream.advance_aside();
    if waited == Waited::Foreign && !stream.is_waited_for() && functions::are_called(stream.device) {
        functions::hand_over(stream);
    }
    waited == Waited::Progress
}
