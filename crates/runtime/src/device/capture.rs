//! Stream capture and graphs: work that is recorded once and launched many times.
//!
//! While a stream captures, what is enqueued on it is recorded instead of run: copies, fills, host functions, events and
//! the calls of communicators. An event that was recorded while capturing draws the stream that waits for it into the
//! capture. Each stream of the capture is a *lane* of the graph; a launch plays the lanes on the launch stream and on
//! streams of its own, through the same paths that take work outside of captures. Nothing is merged or reordered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::moves::{Area, Fill};
use super::{Event, Stream};
use crate::communicator::Communicator;
use crate::exec::one_sided::OneSided;
use crate::request::Request;

/// A host function that a graph may call many times.
pub type HostFunction = Arc<dyn Fn() + Send + Sync>;

/// A piece of captured work.
#[derive(Clone)]
pub(super) enum Work {
    Copy(Area),
    Fill(Fill),
    Host(HostFunction),
    /// Calls that start together, each with its lane.
    Calls(Vec<(Arc<Communicator>, Request, usize)>),
    /// One-sided calls that start together, each with its lane.
    OneSided(Vec<(Arc<Communicator>, OneSided, usize)>),
    /// Marks a point of the lane; the number names it.
    Record(usize),
    /// Waits for a marked point.
    Wait(usize),
}

impl Work {
    fn is_node(&self) -> bool {
        !matches!(self, Work::Record(_) | Work::Wait(_))
    }
}

#[derive(Clone)]
struct Op {
    lane: usize,
    work: Work,
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
}

/// Why an executable graph could not be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The graphs differ in more than the arguments of their work.
    Topology,
}

struct Capture {
    id: u64,
    ops: Vec<Op>,
    streams: Vec<Stream>,
    /// `clocks[a][b]`: how many pieces of work of lane `b` come before what lane `a` does next.
    clocks: Vec<Vec<usize>>,
    /// The clock of each marked point.
    marks: Vec<Vec<usize>>,
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
    point: usize,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every structure here is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capture {
    fn add_lane(&mut self, stream: &Stream) -> usize {
        self.streams.push(stream.clone());
        self.clocks.push(Vec::new());
        let lanes = self.streams.len();
        self.clocks.iter_mut().for_each(|c| c.resize(lanes, 0));
        lanes - 1
    }

    fn add(&mut self, lane: usize, work: Work) {
        match &work {
            Work::Calls(calls) => calls.iter().for_each(|(_, _, lane)| self.clocks[*lane][*lane] += 1),
            Work::OneSided(calls) => calls.iter().for_each(|(_, _, lane)| self.clocks[*lane][*lane] += 1),
            work if work.is_node() => self.clocks[lane][lane] += 1,
            _ => {}
        }
        self.ops.push(Op { lane, work });
    }

    fn mark(&mut self, lane: usize) -> usize {
        self.marks.push(self.clocks[lane].clone());
        let point = self.marks.len() - 1;
        self.add(lane, Work::Record(point));
        point
    }

    fn wait(&mut self, lane: usize, point: usize) {
        for (mine, theirs) in self.clocks[lane].iter_mut().zip(&self.marks[point]) {
            *mine = (*mine).max(*theirs);
        }
        self.add(lane, Work::Wait(point));
    }
}

/// Whether work on `stream` is recorded rather than run.
#[inline]
pub(crate) fn is_capturing(stream: &Stream) -> bool {
    stream.0.capture.is_active()
}

/// Records the calls of a group. All their streams must belong to one capture.
pub(crate) fn capture_requests(requests: Vec<(Arc<Communicator>, Request)>) -> Result<()> {
    capture_calls(requests, |r| &r.stream, Work::Calls)
}

/// As [`capture_requests`], for one-sided calls.
pub(crate) fn capture_one_sided(calls: Vec<(Arc<Communicator>, OneSided)>) -> Result<()> {
    capture_calls(calls, |c| &c.stream, Work::OneSided)
}

fn capture_calls<C>(
    group: Vec<(Arc<Communicator>, C)>,
    stream: impl Fn(&C) -> &Stream,
    work: impl FnOnce(Vec<(Arc<Communicator>, C, usize)>) -> Work,
) -> Result<()> {
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
    if let (Some(capture), Some(lane)) = (capture, calls.first().map(|c| c.2)) {
        lock(&capture).add(lane, work(calls));
    }
    Ok(())
}

impl Stream {
    /// Begins to record what is enqueued on this stream. `InvalidUsage` when it records already, or for the default
    /// stream.
    pub fn begin_capture(&self) -> Result<()> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        if is_capturing(self) {
            return Err(Error::usage("the stream is capturing already"));
        }
        if self.same(&Stream::default_of(self.device())) {
            return Err(Error::usage("the default stream cannot capture; use a stream of your own"));
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let mut capture =
            Capture { id, ops: Vec::new(), streams: Vec::new(), clocks: Vec::new(), marks: Vec::new(), invalid: false };
        capture.add_lane(self);
        self.0.capture.set(Some((Arc::new(Mutex::new(capture)), 0)));
        Ok(())
    }

    /// Ends the capture that was begun on this stream.
    pub fn end_capture(&self) -> std::result::Result<Graph, EndError> {
        let (shared, lane) = self.0.capture.get().ok_or(EndError::NotCapturing)?;
        if lane != 0 {
            return Err(EndError::NotOrigin);
        }
        let mut capture = lock(&shared);
        for s in std::mem::take(&mut capture.streams).iter() {
            s.0.capture.set(None);
        }
        if capture.invalid {
            return Err(EndError::Invalidated);
        }
        let lanes = capture.clocks.len();
        if !(0..lanes).all(|lane| capture.clocks[0][lane] >= capture.clocks[lane][lane]) {
            return Err(EndError::Unjoined);
        }
        Ok(Graph { ops: std::mem::take(&mut capture.ops), lanes, marks: capture.marks.len() })
    }

    /// The number of the capture in progress and whether it was broken.
    pub fn capture_state(&self) -> Option<(u64, bool)> {
        let (shared, _) = self.0.capture.get()?;
        let capture = lock(&shared);
        Some((capture.id, capture.invalid))
    }

    /// Ends the capture of a stream that is going away.
    pub(super) fn abandon_capture(&self) {
        if let Some((shared, lane)) = self.0.capture.get() {
            let mut capture = lock(&shared);
            capture.invalid = true;
            if lane == 0 {
                for s in std::mem::take(&mut capture.streams) {
                    s.0.capture.set(None);
                }
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

    /// Records `work` while capturing, else calls `push`.
    pub(super) fn push_or_capture(&self, work: Work, push: impl FnOnce()) -> Result<()> {
        match self.0.capture.get() {
            None => push(),
            Some((shared, lane)) => lock(&shared).add(lane, work),
        }
        Ok(())
    }

    /// Calls `function` when all work enqueued before is done; in a graph at every launch.
    pub fn call_host(&self, function: HostFunction) -> Result<()> {
        match self.0.capture.get() {
            None => self.launch_host(Box::new(move || function())),
            Some((shared, lane)) => {
                lock(&shared).add(lane, Work::Host(function));
                Ok(())
            }
        }
    }

    /// Whether the event was recorded into the stream's capture.
    pub(super) fn capture_record(&self, event: &Event) -> Result<bool> {
        let member = self.0.capture.get();
        let captures = member.is_some();
        let mark = member.map(|(shared, lane)| {
            let point = lock(&shared).mark(lane);
            Mark { capture: shared, point }
        });
        *lock(&event.0.captured) = mark;
        Ok(captures)
    }

    /// Whether the wait became part of a capture.
    pub(super) fn capture_wait(&self, event: &Event) -> Result<bool> {
        let mark = lock(&event.0.captured);
        let Some(Mark { capture, point }) = mark.as_ref() else {
            // What was recorded before a capture is done before its graph is launched: the launch stream saw to it.
            return Ok(is_capturing(self));
        };
        match self.0.capture.get() {
            Some((mine, lane)) if Arc::ptr_eq(&mine, capture) => lock(&mine).wait(lane, *point),
            Some(_) => return Err(Error::usage("the event belongs to another capture than the stream")),
            None => {
                let mut c = lock(capture);
                if c.streams.is_empty() {
                    return Err(Error::usage("the event was recorded in a capture that has ended; record it again"));
                }
                let lane = c.add_lane(self);
                c.wait(lane, *point);
                drop(c);
                self.0.capture.set(Some((capture.clone(), lane)));
            }
        }
        Ok(true)
    }
}

/// Captured work.
#[derive(Clone)]
pub struct Graph {
    ops: Vec<Op>,
    lanes: usize,
    marks: usize,
}

// SAFETY: a shared graph is only read: its pointers are followed by launches, by leave of whoever captured them.
unsafe impl Sync for Graph {}

impl Graph {
    /// Pieces of work: copies, fills, host functions and groups of calls.
    pub fn nodes(&self) -> usize {
        self.ops.iter().filter(|op| op.work.is_node()).count()
    }

    /// Makes it launchable. Later changes of the graph do not reach it.
    pub fn instantiate(&self) -> Executable {
        Executable { graph: self.clone(), streams: Vec::new(), before: None }
    }

    fn same_shape(&self, other: &Graph) -> bool {
        let kind = |op: &Op| match &op.work {
            Work::Record(p) => (0, *p),
            Work::Wait(p) => (1, *p),
            Work::Calls(calls) => (2, calls.len()),
            Work::Copy(_) => (3, 0),
            Work::Fill(_) => (4, 0),
            Work::Host(_) => (5, 0),
            Work::OneSided(calls) => (6, calls.len()),
        };
        self.lanes == other.lanes
            && self.ops.len() == other.ops.len()
            && self.ops.iter().zip(&other.ops).all(|(a, b)| a.lane == b.lane && kind(a) == kind(b))
    }
}

/// A graph that can be launched, one launch after the other.
pub struct Executable {
    graph: Graph,
    /// The streams of the lanes after the first.
    streams: Vec<Stream>,
    /// The end of the last launch.
    before: Option<Event>,
}

impl Executable {
    /// Takes the arguments of `graph`, which must have the same shape.
    pub fn update(&mut self, graph: &Graph) -> std::result::Result<(), UpdateError> {
        if !self.graph.same_shape(graph) {
            return Err(UpdateError::Topology);
        }
        self.graph = graph.clone();
        Ok(())
    }

    /// Enqueues the work on `stream`, after the last launch. The first error of the calls ends it.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        if is_capturing(stream) {
            return Err(Error::usage("a graph cannot be launched on a stream that captures"));
        }
        if let Some(before) = self.before.take() {
            stream.wait(&before)?;
        }
        while self.streams.len() + 1 < self.graph.lanes {
            self.streams.push(Stream::new()?);
        }
        let marks: Vec<Event> = (0..self.graph.marks).map(|_| Event::new()).collect();
        let on = |lane: usize| if lane == 0 { stream } else { &self.streams[lane - 1] };
        for op in &self.graph.ops {
            play(op, &on, &marks)?;
        }
        // The lanes' streams live until their work is done, even when this value does not.
        let lanes = self.streams.clone();
        stream.launch_host(Box::new(move || drop(lanes)))?;
        let end = Event::new();
        stream.record(&end)?;
        self.before = Some(end);
        Ok(())
    }
}

fn play<'a>(op: &Op, on: &impl Fn(usize) -> &'a Stream, marks: &[Event]) -> Result<()> {
    let stream = on(op.lane);
    match &op.work {
        // SAFETY: whoever captured the copy promised the memory for every launch.
        Work::Copy(area) => unsafe { stream.copy_area(*area) },
        // SAFETY: as above.
        Work::Fill(fill) => unsafe { stream.fill_area(*fill) },
        Work::Host(function) => stream.call_host(function.clone()),
        Work::Record(point) => stream.record(&marks[*point]),
        Work::Wait(point) => stream.wait(&marks[*point]),
        Work::Calls(calls) => {
            let requests = calls.iter().map(|(comm, request, lane)| {
                let mut request = request.clone();
                request.stream = on(*lane).clone();
                (comm.clone(), request)
            });
            crate::group::launch(requests.collect())
        }
        Work::OneSided(calls) => {
            let calls = calls.iter().map(|(comm, call, lane)| {
                (comm.clone(), OneSided { call: call.call.clone(), stream: on(*lane).clone() })
            });
            crate::group::launch_one_sided(calls.collect())
        }
    }
}
