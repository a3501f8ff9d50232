//! How streams keep order with the default stream of their device.
//!
//! Work on the default stream starts after everything enqueued before on the device's *blocking* streams, and the other
//! way round. Streams of [`Stream::new`] are free of it; those of [`Stream::with`] choose. The default stream of a thread
//! is a blocking stream.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
use oxccl_types::Result;

use super::stream::{Inner, Step, Stream, Task};
use super::{EndError, Event, helper};

/// What a stream was made as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether it keeps order with the default stream.
    pub blocking: bool,
    /// What the caller asked for; all streams are served alike.
    pub priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Free,
    Blocking,
    Default,
}

pub(super) struct Order {
    role: Role,
    priority: i32,
    number: u64,
    /// Tasks of the default stream that this stream already waits for.
    after_default: AtomicU64,
    /// Tasks of this stream that the default stream already waits for.
    default_after: AtomicU64,
}

/// Blocking streams that exist: none in programs that never made one, which then pay one load per enqueue.
static BLOCKING: AtomicU64 = AtomicU64::new(0);

impl Order {
    fn new(role: Role, priority: i32) -> Order {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        if role == Role::Blocking {
            BLOCKING.fetch_add(1, Ordering::AcqRel);
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Order { role, priority, number, after_default: AtomicU64::new(0), default_after: AtomicU64::new(0) }
    }

    pub(super) fn free() -> Order {
        Order::new(Role::Free, 0)
    }

    pub(super) fn default_stream() -> Order {
        Order::new(Role::Default, 0)
    }
}

/// The stream with this order was destroyed.
pub(super) fn closed(order: &Order) {
    if order.role == Role::Blocking {
        BLOCKING.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Stream {
    /// A new stream on the calling thread's device.
    pub fn with(options: StreamOptions) -> Stream {
        let role = if options.blocking { Role::Blocking } else { Role::Free };
        Stream::on(super::current(), Order::new(role, options.priority))
    }

    /// What the stream was made as.
    pub fn options(&self) -> StreamOptions {
        StreamOptions { blocking: self.0.order.role != Role::Free, priority: self.0.order.priority }
    }

    /// What comes next here waits for what `target` holds now, to which nothing is added.
    pub(super) fn wait_behind(&self, target: &Arc<Inner>) {
        wait_once(self, target, &AtomicU64::new(0));
    }

    /// A number that no other stream of the process has.
    pub fn number(&self) -> u64 {
        self.0.order.number
    }
}

/// Called before a task is enqueued on `stream`: adds the waits that its role asks for.
#[inline]
pub(super) fn before_push(stream: &Stream) {
    if BLOCKING.load(Ordering::Relaxed) > 0 && stream.0.order.role != Role::Free {
        add_waits(stream);
    }
}

#[cold]
fn add_waits(stream: &Stream) {
    if ANY_LEFT.load(Ordering::Relaxed) {
        // Those that are done no longer count as streams that this is for.
        leave([]);
    }
    if stream.0.order.role == Role::Blocking {
        let default = Stream::default_of(stream.0.device).0;
        wait_once(stream, &default, &stream.0.order.after_default);
        return;
    }
    let device = stream.0.device;
    for s in helper::streams(|s| s.device == device && s.order.role == Role::Blocking) {
        wait_once(stream, &s, &s.order.default_after);
    }
}

/// Makes `stream` wait for what `target` holds now, unless `seen` says that it does already.
fn wait_once(stream: &Stream, target: &Arc<Inner>, seen: &AtomicU64) {
    let ticket = target.enqueued();
    target.count_wait();
    if target.finished() < ticket && seen.load(Ordering::Acquire) < ticket {
        // Marked when it is there: another thread may add a second one, which is harmless, but must not go without.
        stream.push_unordered(Box::new(After(target.clone(), ticket)));
        seen.fetch_max(ticket, Ordering::AcqRel);
    }
}

struct After(Arc<Inner>, u64);

impl Task for After {
    fn step(&mut self) -> Step {
        if self.0.finished() >= self.1 {
            return Step::Done;
        }
        // Whoever waits works on what it waits for; but who steps this may only pass by, see `advance_aside`.
        if helper::pass_by(&self.0) { Step::Progress } else { Step::Blocked }
    }
    fn park(&self, timeout: Duration) {
        self.0.park(timeout);
    }
}

/// The calling thread's default streams, one per device it used.
struct PerThread(RefCell<Vec<Stream>>);

/// Streams without a handle that have work left: kept until it is done.
static LEFT: Mutex<Vec<Stream>> = Mutex::new(Vec::new());
/// There are some, as who changed that says under the lock.
static ANY_LEFT: AtomicBool = AtomicBool::new(false);

impl Drop for PerThread {
    fn drop(&mut self) {
        let streams = self.0.take();
        // Nobody else has a handle by which they could end a capture that began on them.
        streams.iter().filter(|s| s.began_capture()).for_each(Stream::abandon_capture);
        leave(streams);
    }
}

/// No handle is left of these streams: they live until their work is done, and keep order with the default stream so long.
pub(super) fn leave(streams: impl IntoIterator<Item = Stream>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(streams);
    // The last handle of a stream is dropped behind the lock: what its tasks held may end streams, too.
    let over: Vec<Stream> = left.extract_if(.., |s| !s.0.pending()).collect();
    ANY_LEFT.store(!left.is_empty(), Ordering::Relaxed);
    drop(left);
    over.iter().for_each(|s| closed(&s.0.order));
}

/// The default stream of the calling thread on `device`.
pub(super) fn per_thread(device: usize) -> Stream {
    thread_local! {
        static MINE: PerThread = const { PerThread(RefCell::new(Vec::new())) };
    }
    MINE.with(|mine| {
        let mut streams = mine.0.borrow_mut();
        if let Some(s) = streams.iter().find(|s| s.device() == device) {
            return s.clone();
        }
        let new = Stream::on(device, Order::new(Role::Blocking, 0));
        streams.push(new.clone());
        new
    })
}

/// Waits until the work that all streams of `device` hold now has run; the first error of their work since the last wait.
pub fn synchronize(device: usize) -> Result<()> {
    // As in `drain`: all that is waited for is fixed first, and what a stream that captures was given before is part of it.
    let streams = helper::streams(|s| s.device == device);
    let held: Vec<_> = streams.into_iter().map(|s| (s.enqueued(), Stream(s))).collect();
    let mut first = Ok(());
    for (target, stream) in held {
        first = first.and(stream.synchronize_to(target));
    }
    first
}

/// Waits until the work that all streams of `device` hold now has run. Its errors stay for who waits for the streams.
pub fn drain(device: usize) -> Result<()> {
    // What a stream that captures was given before runs all the same. All are marked first: what others enqueue meanwhile may wait for
    // what the caller does next.
    let pending = helper::streams(|s| s.device == device && s.pending()).into_iter().map(Stream);
    pending.map(|stream| stream.end()).collect::<Vec<_>>().iter().try_for_each(Event::synchronize)
}

/// The words for a capture that ended badly; here because they tell of streams.
impl std::fmt::Display for EndError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EndError::NotCapturing => "the stream is not capturing",
            EndError::NotOrigin => "the capture was begun on another stream; end it there",
            EndError::WrongThread => "another thread began the capture; end it there, or begin it in the relaxed mode",
            EndError::Invalidated => "the capture was broken by a call that is not allowed while capturing",
            EndError::Unjoined => {
                "work was captured on streams that do not lead back: record an event on each and let the first stream wait"
            }
        })
    }
}
