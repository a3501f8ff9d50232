//! Stream capture: work that is recorded in a graph instead of run.
//!
//! While a stream captures, what is enqueued on it becomes nodes: copies, fills, host functions, memory and the calls of
//! communicators. An event that was recorded while capturing draws the stream that waits for it into the capture. Each
//! stream of the capture knows its *ends*: the nodes that its next one waits for. Nothing is merged or reordered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::graph::{Call, Graph, HostFunction, NodeId, Operation, Tag, Work, unique};
use super::memory::GraphMemory;
use super::{Event, Stream};
use crate::communicator::Communicator;
use crate::exec::one_sided::OneSided;
use crate::request::Request;

/// Which threads' calls a capture minds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// Those of all threads.
    Global,
    /// Those of the thread that began it, which must also end it.
    ThreadLocal,
    /// None: any thread may end it.
    #[default]
    Relaxed,
}

/// Why a capture could not be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndError {
    /// No capture was begun.
    NotCapturing,
    /// It was begun on another stream.
    NotOrigin,
    /// A call that is not allowed while capturing broke it.
    Invalidated,
    /// A stream that was drawn in does not lead back.
    Unjoined,
    /// Another thread began it, and not in the relaxed mode.
    WrongThread,
}

/// What is known of a capture in progress.
#[derive(Clone)]
pub struct CaptureInfo {
    /// Its number.
    pub id: u64,
    /// Whether it was broken.
    pub invalid: bool,
    /// The graph under construction.
    pub graph: Graph,
    /// What the next node of the stream waits for.
    pub ends: Vec<NodeId>,
}

struct Capture {
    id: u64,
    graph: Graph,
    mode: CaptureMode,
    thread: ThreadId,
    /// Streams and their ends, the first stream first.
    streams: Vec<(Stream, Vec<NodeId>)>,
    invalid: bool,
}

type Shared = Arc<Mutex<Capture>>;

/// A stream's part in a capture.
#[derive(Default)]
pub(super) struct Membership {
    active: AtomicBool,
    of: Mutex<Option<(Shared, usize)>>,
}

impl Membership {
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    fn get(&self) -> Option<(Shared, usize)> {
        if !self.is_active() {
            return None;
        }
        lock(&self.of).clone()
    }

    fn set(&self, to: Option<(Shared, usize)>) {
        let active = to.is_some();
        *lock(&self.of) = to;
        self.active.store(active, Ordering::Release);
    }
}

/// The point of a capture that an event names.
pub(super) struct Mark {
    capture: Shared,
    ends: Vec<NodeId>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every structure here is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures in progress; how many, for the many calls that ask while there is none.
static ACTIVE: Mutex<Vec<Weak<Mutex<Capture>>>> = Mutex::new(Vec::new());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether a call that could disturb captures may be made by a thread that minds those of `mode`. If not, the captures
/// that it would disturb are broken.
pub fn permits_unsafe_call(mode: CaptureMode) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 || mode == CaptureMode::Relaxed {
        return true;
    }
    let me = std::thread::current().id();
    let all: Vec<Shared> = lock(&ACTIVE).iter().filter_map(Weak::upgrade).collect();
    let mut permitted = true;
    for capture in all {
        let mut c = lock(&capture);
        let mine = c.thread == me && c.mode != CaptureMode::Relaxed;
        if mine || (mode == CaptureMode::Global && c.mode == CaptureMode::Global) {
            c.invalid = true;
            permitted = false;
        }
    }
    permitted
}

/// Whether any stream captures, at the cost of one load.
#[inline]
pub fn is_any_capturing() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Whether work on the default stream of `device` would have to wait for a stream that captures. Breaks its capture.
#[inline]
pub fn implicates_capture(device: usize) -> bool {
    is_any_capturing() && find_implicated(device)
}

#[cold]
fn find_implicated(device: usize) -> bool {
    let all: Vec<Shared> = lock(&ACTIVE).iter().filter_map(Weak::upgrade).collect();
    let mut found = false;
    for capture in all {
        let mut c = lock(&capture);
        if c.streams.iter().any(|(s, _)| s.device() == device && s.options().blocking) {
            c.invalid = true;
            found = true;
        }
    }
    found
}

fn announce(capture: &Shared) {
    let mut all = lock(&ACTIVE);
    all.retain(|c| c.strong_count() > 0);
    all.push(Arc::downgrade(capture));
    COUNT.fetch_add(1, Ordering::AcqRel);
}

fn over(capture: &Shared) {
    let mut all = lock(&ACTIVE);
    all.retain(|c| c.strong_count() > 0 && !std::ptr::eq(c.as_ptr(), Arc::as_ptr(capture)));
    COUNT.fetch_sub(1, Ordering::AcqRel);
}

impl Capture {
    /// An error once it is broken: what comes now would be in no graph, and must not be taken for done.
    fn check(&self) -> Result<()> {
        if self.invalid {
            return Err(Error::usage(
                "the capture of the stream was broken by an earlier call, so nothing is recorded; end it and begin anew",
            ));
        }
        Ok(())
    }

    fn add(&mut self, lane: usize, work: Work, tag: Tag) -> Result<()> {
        self.check()?;
        let ends = &mut self.streams[lane].1;
        let node = self.graph.add(work, tag, ends)?;
        *ends = vec![node];
        Ok(())
    }

    /// The graph of a capture that ends: events that name a point of it would keep it for as long as they live.
    fn take_graph(&mut self) -> Graph {
        std::mem::take(&mut self.graph)
    }

    /// Whether everything that the streams did leads to the ends of the first.
    fn is_joined(&self) -> bool {
        let state = self.graph.lock();
        let mut reached = std::collections::BTreeSet::new();
        let mut next: Vec<NodeId> = self.streams[0].1.clone();
        while let Some(id) = next.pop() {
            if reached.insert(id)
                && let Some(node) = state.nodes.get(&id)
            {
                next.extend(&node.after);
            }
        }
        self.streams.iter().flat_map(|(_, ends)| ends).all(|id| reached.contains(id))
    }
}

/// Whether work on `stream` is recorded rather than run.
#[inline]
pub(crate) fn is_capturing(stream: &Stream) -> bool {
    stream.0.capture.is_active()
}

/// Records the calls of a group. All their streams must belong to one capture.
pub(crate) fn capture_requests(requests: Vec<(Arc<Communicator>, Request)>) -> Result<()> {
    capture_calls(requests, |r| &r.stream, Operation::Request)
}

/// As [`capture_requests`], for one-sided calls.
pub(crate) fn capture_one_sided(calls: Vec<(Arc<Communicator>, OneSided)>) -> Result<()> {
    capture_calls(calls, |c| &c.stream, Operation::OneSided)
}

fn capture_calls<C>(
    group: Vec<(Arc<Communicator>, C)>,
    stream: impl Fn(&C) -> &Stream,
    operation: impl Fn(C) -> Operation,
) -> Result<()> {
    static GROUPS: AtomicU64 = AtomicU64::new(1);
    let mut capture: Option<Shared> = None;
    let mut calls = Vec::with_capacity(group.len());
    for (comm, call) in group {
        let found = stream(&call).0.capture.get();
        let Some((shared, lane)) = found.filter(|(s, _)| capture.as_ref().is_none_or(|c| Arc::ptr_eq(c, s))) else {
            let error = Error::usage(
                "a group mixes calls on streams that capture with calls on others; let every stream of the group wait for \
                 an event that was recorded on the capturing stream",
            );
            crate::log::warn(&error.text);
            return Err(error);
        };
        capture = Some(shared);
        calls.push((comm, call, lane));
    }
    let Some(capture) = capture else { return Ok(()) };
    let group = GROUPS.fetch_add(1, Ordering::Relaxed);
    let mut capture = lock(&capture);
    // All of the group or nothing.
    capture.check()?;
    for (comm, call, lane) in calls {
        let operation = operation(call);
        capture.add(lane, Work::Call(Box::new(Call { group, comm, operation })), [0; 2])?;
    }
    Ok(())
}

impl Stream {
    /// Begins to record what is enqueued on this stream. `InvalidUsage` when it records already, or for the default
    /// stream.
    pub fn begin_capture(&self) -> Result<()> {
        self.begin_capture_to(Graph::new(), &[], CaptureMode::Relaxed)
    }

    /// Begins to record into `graph`, after these nodes of it.
    pub fn begin_capture_to(&self, graph: Graph, after: &[NodeId], mode: CaptureMode) -> Result<()> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        if is_capturing(self) {
            return Err(Error::usage("the stream is capturing already"));
        }
        if self.same(&Stream::default_of(self.device())) {
            return Err(Error::usage("the default stream cannot capture; use a stream of your own"));
        }
        graph.check(after)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let streams = vec![(self.clone(), unique(after))];
        let capture = Capture { id, graph, mode, thread: std::thread::current().id(), streams, invalid: false };
        let capture = Arc::new(Mutex::new(capture));
        announce(&capture);
        self.0.capture.set(Some((capture, 0)));
        Ok(())
    }

    /// Ends the capture that was begun on this stream.
    pub fn end_capture(&self) -> std::result::Result<Graph, EndError> {
        let (shared, lane) = self.0.capture.get().ok_or(EndError::NotCapturing)?;
        if lane != 0 {
            return Err(EndError::NotOrigin);
        }
        let mut capture = lock(&shared);
        if capture.mode != CaptureMode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(EndError::WrongThread);
        }
        let joined = capture.is_joined();
        for (s, _) in std::mem::take(&mut capture.streams) {
            s.0.capture.set(None);
        }
        over(&shared);
        let invalid = capture.invalid;
        let graph = capture.take_graph();
        // A graph that nobody gets goes behind the lock, and with it what it keeps.
        drop(capture);
        match () {
            () if invalid => Err(EndError::Invalidated),
            () if !joined => Err(EndError::Unjoined),
            () => Ok(graph),
        }
    }

    /// The capture in progress.
    pub fn capture_info(&self) -> Option<CaptureInfo> {
        let (shared, lane) = self.0.capture.get()?;
        let c = lock(&shared);
        let ends = c.streams.get(lane).map_or_else(Vec::new, |s| s.1.clone());
        Some(CaptureInfo { id: c.id, invalid: c.invalid, graph: c.graph.clone(), ends })
    }

    /// The number of the capture in progress and whether it was broken.
    pub fn capture_state(&self) -> Option<(u64, bool)> {
        let (shared, _) = self.0.capture.get()?;
        let capture = lock(&shared);
        Some((capture.id, capture.invalid))
    }

    /// Lets the next node of the stream wait for these, instead of or, with `add`, besides its ends.
    pub fn set_capture_ends(&self, nodes: &[NodeId], add: bool) -> Result<()> {
        let Some((shared, lane)) = self.0.capture.get() else {
            return Err(Error::usage("the stream is not capturing"));
        };
        let mut c = lock(&shared);
        c.graph.check(nodes)?;
        let ends = &mut c.streams[lane].1;
        if !add {
            ends.clear();
        }
        ends.extend_from_slice(nodes);
        *ends = unique(ends);
        Ok(())
    }

    /// Whether it captures, and not by having waited for one that does.
    pub(super) fn began_capture(&self) -> bool {
        self.0.capture.get().is_some_and(|(_, lane)| lane == 0)
    }

    /// Ends the capture of a stream that is going away.
    pub(super) fn abandon_capture(&self) {
        if let Some((shared, lane)) = self.0.capture.get() {
            let mut capture = lock(&shared);
            capture.invalid = true;
            if lane == 0 {
                for (s, _) in std::mem::take(&mut capture.streams) {
                    s.0.capture.set(None);
                }
                over(&shared);
                let graph = capture.take_graph();
                // As in `end_capture`.
                drop(capture);
                drop(graph);
            } else {
                self.0.capture.set(None);
            }
        }
    }

    /// An error while capturing, which it breaks: the answer would be needed before the work has run.
    pub(super) fn refuse_while_capturing(&self, what: &str) -> Result<()> {
        let Some((shared, _)) = self.0.capture.get() else { return Ok(()) };
        lock(&shared).invalid = true;
        Err(Error::usage(format!(
            "a stream that captures cannot be {what}; the capture is broken and must be begun anew"
        )))
    }

    /// Records `work` while capturing, as a node with this tag, else calls `push`.
    pub(super) fn push_or_capture(&self, work: Work, tag: Tag, push: impl FnOnce()) -> Result<()> {
        match self.0.capture.get() {
            None => push(),
            Some((shared, lane)) => lock(&shared).add(lane, work, tag)?,
        }
        Ok(())
    }

    /// Calls `function` when all work enqueued before is done; in a graph at every launch, as a node with this tag.
    pub fn call_host(&self, function: HostFunction, tag: Tag) -> Result<()> {
        match self.0.capture.get() {
            None => self.launch_host(Box::new(move || function())),
            Some((shared, lane)) => lock(&shared).add(lane, Work::Host(function), tag),
        }
    }

    /// A launch of a graph while capturing.
    pub(super) fn capture_child(&self, child: Graph) -> Result<()> {
        self.push_or_capture(Work::Child(child), [0; 2], || {})
    }

    /// Memory of `device` that belongs to the graph; `None` when the stream does not capture.
    pub fn capture_alloc(&self, bytes: usize, device: usize) -> Result<Option<*mut u8>> {
        let Some((shared, lane)) = self.0.capture.get() else { return Ok(None) };
        lock(&shared).check()?;
        let memory = GraphMemory::new(bytes, device)?;
        lock(&shared).add(lane, Work::Alloc(memory.clone()), [0; 2])?;
        Ok(Some(memory.address()))
    }

    /// The end of memory of a graph, as a node; `false` when the stream does not capture.
    pub fn capture_free(&self, ptr: *mut u8) -> Result<bool> {
        let Some((shared, lane)) = self.0.capture.get() else { return Ok(false) };
        let memory = GraphMemory::find(ptr)?;
        lock(&shared).add(lane, Work::Free(memory), [0; 2])?;
        Ok(true)
    }

    /// [`record`](Self::record); while capturing a node with this tag, which records the event at every launch, for others to wait
    /// for.
    pub fn record_external(&self, event: &Event, tag: Tag) -> Result<()> {
        match self.0.capture.get() {
            None => self.record(event),
            Some((shared, lane)) => lock(&shared).add(lane, Work::Record(event.clone()), tag),
        }
    }

    /// [`wait`](Self::wait); while capturing a node with this tag, which waits, at every launch, for the event's last record then.
    pub fn wait_external(&self, event: &Event, tag: Tag) -> Result<()> {
        match self.0.capture.get() {
            None => {
                self.wait_now(event);
                Ok(())
            }
            Some((shared, lane)) => lock(&shared).add(lane, Work::Wait(event.clone()), tag),
        }
    }

    /// Whether the event was recorded into the stream's capture.
    pub(super) fn capture_record(&self, event: &Event) -> Result<bool> {
        let member = self.0.capture.get();
        let captures = member.is_some();
        let mark = member.map(|(shared, lane)| {
            let capture = lock(&shared);
            capture.check()?;
            let ends = capture.streams[lane].1.clone();
            drop(capture);
            Ok(Mark { capture: shared, ends })
        });
        let mark = mark.transpose()?;
        *lock(&event.0.captured) = mark;
        Ok(captures)
    }

    /// Whether the wait became part of a capture.
    pub(super) fn capture_wait(&self, event: &Event) -> Result<bool> {
        let mark = lock(&event.0.captured);
        let Some(Mark { capture, ends }) = mark.as_ref() else {
            // An event that was never recorded stands for nothing; any other for work that is in no graph.
            let Some((shared, _)) = self.0.capture.get() else { return Ok(false) };
            if event.last_record().is_none() {
                return Ok(true);
            }
            let mut c = lock(&shared);
            c.check()?;
            c.invalid = true;
            return Err(Error::usage(
                "a stream that captures cannot wait for an event that was recorded outside of the capture; the capture is \
                 broken. Wait before it begins, or wait for the event as an external one",
            ));
        };
        match self.0.capture.get() {
            Some((mine, lane)) if Arc::ptr_eq(&mine, capture) => {
                let mut c = lock(&mine);
                c.check()?;
                join(&mut c, lane, ends);
            }
            Some(_) => return Err(Error::usage("the event belongs to another capture than the stream")),
            None => {
                let mut c = lock(capture);
                if c.streams.is_empty() {
                    return Err(Error::usage("the event was recorded in a capture that has ended; record it again"));
                }
                c.check()?;
                if self.same(&Stream::default_of(self.device())) {
                    c.invalid = true;
                    return Err(Error::usage(
                        "the default stream cannot become part of a capture, so it cannot wait for an event of one; the \
                         capture is broken. Let a stream of your own wait",
                    ));
                }
                c.streams.push((self.clone(), Vec::new()));
                let lane = c.streams.len() - 1;
                join(&mut c, lane, ends);
                drop(c);
                self.0.capture.set(Some((capture.clone(), lane)));
            }
        }
        Ok(true)
    }
}

fn join(capture: &mut Capture, lane: usize, more: &[NodeId]) {
    let ends = &mut capture.streams[lane].1;
    ends.extend_from_slice(more);
    *ends = unique(ends);
}

impl Event {
    /// Whether its last record is a point of a capture, which cannot be waited for or asked about.
    pub fn is_captured(&self) -> bool {
        lock(&self.0.captured).is_some()
    }

    /// Of a point of a capture in progress, whether that was broken.
    pub fn is_capture_broken(&self) -> Option<bool> {
        let mark = lock(&self.0.captured);
        let capture = lock(&mark.as_ref()?.capture);
        (!capture.streams.is_empty()).then_some(capture.invalid)
    }
}
