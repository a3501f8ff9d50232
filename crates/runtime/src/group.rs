//! Groups: calls that are recorded per thread and start together at the outermost end.
//!
//! Collectives of a group keep their order; the sends and receives of a communicator in a group become one exchange
//! whose parts progress together. An argument error inside a group discards all of it.

mod order;
mod recorded;
mod simulate;
mod standing;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod together;

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Collective, Error, Result, ResultCode};

use crate::communicator::core::Core;
use crate::communicator::{Communicator, Job};
use crate::device::{self, Event, Stream, Task};
use crate::exec::at_once;
use crate::exec::call::Call;
use crate::exec::collective::CollectiveTask;
use crate::exec::one_sided::{OneSided, OneSidedCall, OneSidedTask};
use crate::exec::p2p::{Exchange, P2pTask};
use crate::log;
use crate::request::{Request, Shape};
pub use recorded::Names;
use recorded::Recorded;
use standing::Standing;

/// Operations in their order.
type Requests = Vec<(Arc<Communicator>, Request)>;
/// Recorded one-sided operations, in their order.
type OneSidedCalls = Vec<(Arc<Communicator>, OneSided)>;

/// Numbers of batches so far.
static BATCHES: AtomicU64 = AtomicU64::new(1);

#[derive(Default)]
struct Group {
    error: Option<Error>,
    requests: Recorded,
    /// The messages of groups before, which this one may make again: then they are not in `requests`.
    standing: standing::Table,
    one_sided: OneSidedCalls,
    jobs: Vec<Managed>,
}

/// A management call of a group.
struct Managed {
    job: Job,
    /// It may be in one group with operations: it comes before them.
    beside_operations: bool,
}

impl Group {
    /// Whether it holds nothing but collectives, sends and receives.
    fn is_plain(&self) -> bool {
        self.error.is_none() && self.one_sided.is_empty() && self.jobs.is_empty()
    }

    /// Whether its management calls and its operations may be in one group.
    fn check_mixture(&self) -> Result<()> {
        if self.requests.len() + self.one_sided.len() == 0 {
            return Ok(());
        }
        let text = if self.jobs.iter().any(|m| !m.beside_operations) {
            "initialisations (and other management calls) and operations must not be mixed in one group; nothing was started"
        } else if self.jobs.iter().any(|m| !m.job.is_blocking()) {
            "windows of a nonblocking communicator and operations must not be mixed in one group; nothing was started"
        } else {
            return Ok(());
        };
        log::warn(text);
        Err(Error::usage(text))
    }

    /// The messages that stand, if the group is made of all of them and nothing else.
    #[inline]
    fn take_whole(&mut self) -> Option<Box<Standing>> {
        let whole = self.standing.open()?.is_whole() && self.requests.is_empty() && self.is_plain();
        if whole { self.standing.take_open() } else { None }
    }

    /// Records what came of the messages that stand like any other calls, since something else follows.
    #[inline]
    fn settle(&mut self) {
        if let Some(standing) = self.standing.take_open() {
            self.record_all(*standing);
        }
    }

    fn record_all(&mut self, standing: Standing) {
        let names = standing.names();
        match standing.leave(|comm, request| self.requests.push(comm, request)) {
            Ok(()) => self.requests.name_request(names),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }
}

thread_local! {
    static GROUP: RefCell<Group> =
        const { RefCell::new(Group { error: None, requests: Recorded::NOTHING, standing: standing::Table::EMPTY, one_sided: Vec::new(), jobs: Vec::new() }) };
    /// How many are open. Beside the group, since calls outside of groups need no more than this.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Opens a group on this thread; groups nest.
pub fn start() {
    DEPTH.set(DEPTH.get() + 1);
}

/// How many groups are open on this thread.
#[inline]
pub fn depth() -> u32 {
    DEPTH.get()
}

/// Remembers an error: the outermost [`end`] discards the group and returns it. Nothing happens outside of groups.
pub fn fail(error: &Error) {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| {
            g.error.get_or_insert_with(|| error.clone());
        });
    }
}

/// Closes a group. The outermost end runs the initialisations and enqueues the calls.
///
/// # Errors
/// `InvalidUsage` without an open group; the first error that was remembered inside; the errors of the calls.
pub fn end() -> Result<()> {
    let Some((mut requests, one_sided)) = close("ncclGroupEnd")? else { return Ok(()) };
    requests.check()?;
    if !one_sided.is_empty() || !together::launch(&mut requests)? {
        launch_or_capture(requests.into_list())?;
        return launch_or_capture_one_sided(one_sided);
    }
    if let [run] = requests.runs()
        && !run.calls.requests.is_empty()
    {
        GROUP.with_borrow_mut(|g| g.standing.remember(run));
    }
    // Not while the group is borrowed: what held its communicators last may go with them.
    requests.clear();
    // The lists serve the next group too.
    GROUP.with_borrow_mut(|g| g.requests = requests);
    Ok(())
}

/// The messages of an open group that one before it made as well, and nothing else: it ends by [`Again::end`].
pub struct Again(Box<Standing>);

/// The messages of the outermost group, if they are all those of one before and all that it holds.
#[inline]
pub fn again_whole() -> Option<Again> {
    if depth() == 1 { GROUP.with_borrow_mut(Group::take_whole).map(Again) } else { None }
}

impl Again {
    /// How the caller has named communicator and stream.
    #[inline]
    pub fn names(&self) -> Names {
        self.0.names()
    }

    /// Ends the group, whose communicator the caller holds: its messages are carried out or begun. `false`: nothing was done,
    /// and the group is still open.
    ///
    /// # Errors
    /// As [`end`].
    pub fn end(mut self, comm: &Communicator) -> Result<bool> {
        // What runs meanwhile may open groups of its own.
        DEPTH.set(0);
        let done = self.0.launch(comm)?;
        if !done {
            self.leave();
            DEPTH.set(1);
            return Ok(false);
        }
        GROUP.with_borrow_mut(|g| g.standing.close(self.0));
        Ok(true)
    }

    /// The group goes on; it holds the messages as it would have without those before it.
    pub fn leave(self) {
        GROUP.with_borrow_mut(|g| g.record_all(*self.0));
    }
}

/// Closes a group without starting its operations: what they would take, in microseconds by the cost model, from the
/// start of the group to the end of its last operation on this thread's ranks. Operations of one communicator follow
/// one another, and so do those on one stream; all else runs side by side. `None` at the end of an inner group and for
/// a group that moves nothing. The operations are gone as if they had never been made: the next ones of their
/// communicators meet those of the peers. Management calls of the group are carried out, as by [`end`].
///
/// # Errors
/// As [`end`], for what can be found before anything starts.
pub fn simulate_end() -> Result<Option<f64>> {
    match close("ncclGroupSimulateEnd")? {
        // What is one-sided costs its rank no more than a copy; the model has no words for it.
        Some((requests, _)) => requests.check().and_then(|()| simulate::time(&requests.into_list())),
        None => Ok(None),
    }
}

/// Whether the calls of the open group are of nonblocking communicators.
pub fn is_nonblocking() -> bool {
    GROUP.with_borrow(|g| {
        let standing = g.standing.open().and_then(Standing::communicator);
        let calls = g.requests.communicators().chain(&standing).chain(g.one_sided.iter().map(|(comm, _)| comm));
        let jobs = g.jobs.iter().filter(|m| !m.beside_operations).map(|m| m.job.is_blocking());
        calls.map(|comm| comm.is_blocking()).chain(jobs).any(|blocking| !blocking)
    })
}

/// Closes a group of this thread and carries out its management calls; the operations of the outermost one.
fn close(name: &str) -> Result<Option<(Recorded, OneSidedCalls)>> {
    let Some(rest) = depth().checked_sub(1) else {
        let error = Error::usage(format!("{name}: not in a group call."));
        log::warn(&error.text);
        return Err(error);
    };
    DEPTH.set(rest);
    if rest > 0 {
        return Ok(None);
    }
    let plain = GROUP.with_borrow_mut(|g| {
        g.settle();
        g.is_plain().then(|| std::mem::take(&mut g.requests))
    });
    if let Some(requests) = plain {
        return Ok(Some((requests, Vec::new())));
    }
    let group = GROUP.take();
    let refused = group.error.clone().map_or_else(|| group.check_mixture(), Err);
    let jobs = group.jobs.into_iter().map(|managed| managed.job).collect();
    match refused {
        Ok(()) => run_jobs(jobs)?,
        Err(error) => return Err(discard(jobs, error)),
    }
    Ok(Some((group.requests, group.one_sided)))
}

/// Ends management calls that will not run, because of `error`: what waits for their communicators hears of it.
fn discard(jobs: Vec<Job>, error: Error) -> Error {
    jobs.into_iter().for_each(|job| job.discard(&error));
    error
}

/// Queues a management call, or runs it outside of groups: here, or in the background if it is nonblocking.
pub(crate) fn manage(job: Job) -> Result<()> {
    manage_as(job, false)
}

/// As [`manage`] for a call that may be in one group with operations: it is over before they are enqueued.
pub(crate) fn manage_before_operations(job: Job) -> Result<()> {
    manage_as(job, true)
}

fn manage_as(job: Job, beside_operations: bool) -> Result<()> {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| g.jobs.push(Managed { job, beside_operations }));
        return Ok(());
    }
    if job.is_blocking() { job.run() } else { Job::start(vec![job]) }
}

/// Runs the management calls of a group, those of different communicators side by side. Nonblocking ones are only started:
/// `InProgress`.
fn run_jobs(jobs: Vec<Job>) -> Result<()> {
    let blocking = jobs.iter().filter(|j| j.is_blocking()).count();
    if blocking > 0 && blocking < jobs.len() {
        let error = Error::argument("Blocking and nonblocking communicators are not allowed in the same group.");
        log::warn(&error.text);
        return Err(discard(jobs, error));
    }
    let queues = by_communicator(jobs);
    if blocking > 0 || queues.is_empty() {
        return run_blocking(queues);
    }
    let mut queues = queues.into_iter();
    while let Some(queue) = queues.next() {
        if let Err(error) = Job::start(queue) {
            return Err(discard(queues.flatten().collect(), error));
        }
    }
    Err(Error::new(ResultCode::InProgress, "the nonblocking calls of the group are under way"))
}

/// Management calls by communicator, each list in the order of the calls. Ranks that make several on one communicator meet
/// for one after the other: if each ran as soon as it could, they would meet for different ones.
fn by_communicator(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut queues: Vec<Vec<Job>> = Vec::new();
    for job in jobs {
        match queues.iter_mut().find(|queue| queue.iter().any(|j| Arc::ptr_eq(&j.comm, &job.comm))) {
            Some(queue) => queue.push(job),
            None => queues.push(vec![job]),
        }
    }
    queues
}

#[cold]
fn no_thread(e: &std::io::Error) -> Error {
    Error::system(format!(
        "cannot start a thread for each communicator of the group: {e}; there may be too many (ulimit -u, or the limit of processes of the \
         control group)"
    ))
}

fn run_blocking(mut queues: Vec<Vec<Job>>) -> Result<()> {
    let device = device::current();
    // Of one communicator each call is made, whatever became of those before it: its other ranks may come to it.
    let alone = queues.len() <= 1;
    let halts: Vec<_> = queues.iter().flatten().filter(|_| !alone).map(|j| j.halt.clone()).collect();
    let first = Mutex::new(None);
    let failed = |error: Error| {
        // The others wait for this one, or for ranks that do.
        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        halts.iter().for_each(|h| h.store(true, Ordering::Release));
    };
    let run = |queue: Vec<Job>| queue.into_iter().for_each(|job| job.run().unwrap_or_else(&failed));
    if alone {
        queues.pop().into_iter().for_each(run);
    } else {
        // Beside the threads, of which there may be too few.
        let queues: Vec<_> = queues.into_iter().map(|queue| Mutex::new(Some(queue))).collect();
        let take = |queue: &Mutex<Option<Vec<Job>>>| queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::thread::scope(|scope| {
            for queue in &queues {
                let (run, take) = (&run, &take);
                let body = move || {
                    // The same device as the caller's, for logs; it exists.
                    let _ = device::set_current(device);
                    take(queue).into_iter().for_each(run);
                };
                let builder = std::thread::Builder::new().name("oxccl-job".into());
                if let Err(e) = oxccl_sys::process::with_signals_blocked(|| builder.spawn_scoped(scope, body)) {
                    let error = no_thread(&e);
                    take(queue).into_iter().flatten().for_each(|job| job.discard(&error));
                    failed(error);
                }
            }
        });
    }
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Records a checked request, or enqueues it outside of groups.
pub(crate) fn submit(comm: &Arc<Communicator>, request: Request<&Stream>) -> Result<()> {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| {
            g.settle();
            g.requests.push(comm, request);
        });
        return Ok(());
    }
    if device::is_capturing(request.stream) {
        return device::capture_requests(vec![(comm.clone(), request.into_owned())]);
    }
    let core = comm.core()?;
    if core.config.launch_order {
        return launch(vec![(comm.clone(), request.into_owned())]);
    }
    if is_p2p(&request) {
        let at_once = at_once::exchange(core, std::iter::once(&request), request.stream);
        if at_once.inspect_err(|e| log::warn(&e.text))? {
            return Ok(());
        }
        return launch(vec![(comm.clone(), request.into_owned())]);
    }
    launch_collective(core, request);
    Ok(())
}

/// Records a call on a usable communicator in the open group, if nothing about it needs a second look.
#[inline]
pub(crate) fn record(comm: &Arc<Communicator>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
    GROUP.with_borrow_mut(|g| {
        g.settle();
        if let Some(brief) = shape.among_all() {
            return g.requests.push_brief(comm, shape, brief, send, recv, stream);
        }
        let request = shape.request(comm.ranks(), send, recv);
        request.map(|request| g.requests.push(comm, request.on(stream))).is_some()
    })
}

/// Records a send or receive in the open group, if there is one and it is the next one of messages that stand.
// One copy, into which all that it calls is compiled.
#[inline(never)]
pub fn record_again(names: Names, shape: &Shape, buffer: *mut u8) -> bool {
    depth() > 0 && GROUP.with_borrow_mut(|g| g.requests.is_empty() && g.standing.take(names, shape, buffer))
}

/// Records a call in the open group as an earlier one that had the same `names`, which a caller gave by [`name`] to its
/// communicator and stream; `false` where there is none, or the call needs a second look.
#[inline]
pub fn record_like(names: Names, shape: &Shape, send: *const u8, recv: *mut u8) -> bool {
    GROUP.with_borrow_mut(|g| match shape.among_all() {
        Some(brief) => g.requests.push_like(names, shape, brief, send, recv),
        None => g.requests.push_request_like(names, shape, send, recv),
    })
}

/// Names communicator and stream of the call that was recorded last, of `shape`, for [`record_like`]: see
/// [`Names`].
#[inline]
pub fn name(names: Names, shape: &Shape) {
    GROUP.with_borrow_mut(|g| match shape.among_all() {
        Some(_) => g.requests.name(names),
        None => g.requests.name_request(names),
    });
}

/// Makes a call on a usable communicator again, if it can be done at once and no group is open.
#[inline]
pub(crate) fn again(core: &Arc<Core>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
    !device::is_capturing(stream) && !core.config.launch_order && at_once::again(core, shape, send, recv, stream)
}

/// Records a checked one-sided call, or enqueues it outside of groups.
pub(crate) fn submit_one_sided(comm: &Arc<Communicator>, call: OneSided) -> Result<()> {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| g.one_sided.push((comm.clone(), call)));
        return Ok(());
    }
    launch_or_capture_one_sided(vec![(comm.clone(), call)])
}

fn launch_or_capture_one_sided(calls: Vec<(Arc<Communicator>, OneSided)>) -> Result<()> {
    if calls.iter().any(|(_, c)| device::is_capturing(&c.stream)) {
        return device::capture_one_sided(calls);
    }
    launch_one_sided(calls)
}

/// Enqueues one-sided calls: those of a communicator as one task, in which the puts keep their order and the waits go
/// on beside them.
pub(crate) fn launch_one_sided(calls: Vec<(Arc<Communicator>, OneSided)>) -> Result<()> {
    let mut tasks: Vec<(Arc<Communicator>, Vec<OneSidedCall>, Vec<Stream>)> = Vec::new();
    for (comm, OneSided { call, stream }) in calls {
        match tasks.iter_mut().find(|(c, ..)| Arc::ptr_eq(c, &comm)) {
            Some((_, calls, streams)) => {
                calls.push(call);
                if !streams.iter().any(|s| s.same(&stream)) {
                    streams.push(stream);
                }
            }
            None => tasks.push((comm, vec![call], vec![stream])),
        }
    }
    let batch = if tasks.len() > 1 { BATCHES.fetch_add(1, Ordering::Relaxed) } else { 0 };
    for (comm, calls, streams) in tasks {
        let core = comm.core()?.clone();
        on_streams(&streams, |main| {
            let task = OneSidedTask::new(core, calls, if streams.len() > 1 { 0 } else { batch });
            if task.is_quick() {
                main.run_or_push(task, |t| Box::new(t));
            } else {
                main.push(Box::new(task));
            }
        })?;
    }
    Ok(())
}

/// Enqueues on the first of `streams`, after what the others hold; they go on after it.
fn on_streams(streams: &[Stream], enqueue: impl FnOnce(&Stream)) -> Result<()> {
    let Some((main, others)) = streams.split_first() else { return Ok(()) };
    for s in others {
        let before = Event::new();
        s.record(&before)?;
        main.wait(&before)?;
    }
    enqueue(main);
    if !others.is_empty() {
        let after = Event::new();
        main.record(&after)?;
        for s in others {
            s.wait(&after)?;
        }
    }
    Ok(())
}

fn is_p2p<S>(r: &Request<S>) -> bool {
    matches!(r.collective, Collective::Send | Collective::Recv)
}

/// Whether the call moves nothing and is dropped: every count is zero. An AllToAllV may have counts elsewhere.
fn is_void<S>(r: &Request<S>) -> bool {
    r.count == 0 && r.v.is_none()
}

fn launch_collective(core: &Arc<Core>, request: Request<&Stream>) {
    if is_void(&request) {
        return;
    }
    let (shape, call) = (Shape::of(&request), Call::new(&request, core.ranks));
    let left = match request.v {
        None => at_once::run(core, shape, call, request.stream).map(|call| (call, None)),
        Some(v) => at_once::run_v(core, call, v, request.stream).map(|(call, v)| (call, Some(v))),
    };
    if let Some((call, v)) = left {
        request.stream.push(CollectiveTask::new(core.clone(), call, v, 0).boxed());
        if !core.whole {
            request.stream.work_on_many();
        }
    }
}

fn launch_or_capture(requests: Vec<(Arc<Communicator>, Request)>) -> Result<()> {
    if requests.iter().any(|(_, r)| device::is_capturing(&r.stream)) {
        return device::capture_requests(requests);
    }
    launch(requests)
}

/// Enqueues the calls of a group, or of a graph that holds them.
pub(crate) fn launch(requests: Vec<(Arc<Communicator>, Request)>) -> Result<()> {
    // Calls of one communicator run in their order anyway; those of several may need each other, whatever the streams.
    let one = requests.windows(2).all(|w| Arc::ptr_eq(&w[0].0, &w[1].0));
    let batch = if one { 0 } else { BATCHES.fetch_add(1, Ordering::Relaxed) };
    let order = order::begin(&requests)?;
    let mut collectives = Vec::new();
    let mut messages: Vec<(Arc<Communicator>, Vec<Request>)> = Vec::new();
    for (comm, request) in requests {
        if !is_p2p(&request) {
            collectives.push((comm.core()?.clone(), request));
            continue;
        }
        match messages.iter_mut().find(|(c, _)| Arc::ptr_eq(c, &comm)) {
            Some((_, list)) => list.push(request),
            None => messages.push((comm, vec![request])),
        }
    }
    // All is checked before any is enqueued: an error discards the whole group.
    let mut exchanges = Vec::new();
    for (comm, list) in messages {
        let core = comm.core()?.clone();
        let exchange = Exchange::from_requests(&core, None, list.iter()).inspect_err(|e| log::warn(&e.text))?;
        exchanges.push((core, list, exchange));
    }
    let mut pushes = Pushes::default();
    for (core, request) in collectives {
        let (stream, rest) = request.split();
        if batch == 0 {
            launch_collective(&core, rest.on(&stream));
        } else if !is_void(&rest) {
            let call = Call::new(&rest, core.ranks);
            pushes.add(&stream, CollectiveTask::new(core, call, rest.v, batch).boxed());
        }
    }
    launch_exchanges(exchanges, batch, pushes)?;
    order.finish()
}

/// Tasks by stream. Those of one batch on one stream are pushed as one, so that nothing comes between them.
#[derive(Default)]
struct Pushes(Vec<(Stream, Vec<Box<dyn Task>>)>);

impl Pushes {
    fn add(&mut self, stream: &Stream, task: Box<dyn Task>) {
        match self.0.iter_mut().find(|(s, _)| s.same(stream)) {
            Some((_, tasks)) => tasks.push(task),
            None => self.0.push((stream.clone(), vec![task])),
        }
    }

    fn push(&mut self) {
        for (stream, tasks) in self.0.drain(..) {
            stream.push_all(tasks);
        }
    }
}

/// An exchange, and the streams that its requests name: it runs on the first, after what the others hold, and these
/// go on after it.
struct Launched {
    main: Stream,
    others: Vec<Stream>,
    task: P2pTask,
}

impl Launched {
    fn new(core: &Arc<Core>, list: &[Request], exchange: Box<Exchange>, batch: u64) -> Launched {
        let main = list[0].stream.clone();
        let mut others: Vec<Stream> = Vec::new();
        for r in list {
            if !r.stream.same(&main) && !others.iter().any(|s| s.same(&r.stream)) {
                others.push(r.stream.clone());
            }
        }
        Launched { main, others, task: P2pTask::new(core.clone(), exchange, batch) }
    }
}

/// None of the exchanges waits for another, though they may share streams: peers may have them in another order. So
/// what comes before is marked before any of them is enqueued, and all are enqueued before anything waits for them.
fn launch_exchanges(
    exchanges: Vec<(Arc<Core>, Vec<Request>, Box<Exchange>)>,
    batch: u64,
    mut pushes: Pushes,
) -> Result<()> {
    let launched = exchanges.into_iter().map(|(core, list, exchange)| Launched::new(&core, &list, exchange, batch));
    let launched: Vec<Launched> = launched.collect();
    if launched.iter().any(|l| !l.others.is_empty()) {
        pushes.push();
    }
    let mut before = Vec::new();
    for l in &launched {
        for s in &l.others {
            let event = Event::new();
            s.record(&event)?;
            before.push((&l.main, event));
        }
    }
    for (main, event) in before {
        main.wait(&event)?;
    }
    let mut ends = Vec::new();
    for Launched { main, others, task } in launched {
        pushes.add(&main, Box::new(task));
        if !others.is_empty() {
            ends.push((main, others, Event::new()));
        }
    }
    pushes.push();
    for (main, _, event) in &ends {
        main.record(event)?;
    }
    for (_, others, event) in &ends {
        for s in others {
            s.wait(event)?;
        }
    }
    Ok(())
}
