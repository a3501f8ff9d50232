//! Groups: calls that are recorded per thread and start together at the outermost end.
//!
//! Collectives of a group keep their order; the sends and receives of a communicator in a group become one exchange
//! whose parts progress together. An argument error inside a group discards all of it.

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
use crate::exec::p2p::{Exchange, P2pTask};
use crate::log;
use crate::request::Request;

#[derive(Default)]
struct Group {
    error: Option<Error>,
    requests: Vec<(Arc<Communicator>, Request)>,
    jobs: Vec<Job>,
}

thread_local! {
    static GROUP: RefCell<Group> =
        const { RefCell::new(Group { error: None, requests: Vec::new(), jobs: Vec::new() }) };
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
    let Some(rest) = depth().checked_sub(1) else {
        let error = Error::usage("ncclGroupEnd: not in a group call.");
        log::warn(&error.text);
        return Err(error);
    };
    DEPTH.set(rest);
    if rest > 0 {
        return Ok(());
    }
    let mut group = GROUP.take();
    if let Some(error) = group.error {
        return Err(error);
    }
    if !group.jobs.is_empty() && !group.requests.is_empty() {
        let error = Error::usage(
            "initialisations (and other management calls) and operations must not be mixed in one group; nothing was started",
        );
        log::warn(&error.text);
        return Err(error);
    }
    run_jobs(group.jobs)?;
    if exchange_at_once(&group.requests)? {
        // The list serves the next group too.
        group.requests.clear();
        GROUP.with_borrow_mut(|g| g.requests = group.requests);
        return Ok(());
    }
    launch_or_capture(group.requests)
}

/// Carries out a group of sends and receives of one communicator on one stream, if it can be done at once.
fn exchange_at_once(requests: &[(Arc<Communicator>, Request)]) -> Result<bool> {
    let Some((comm, first)) = requests.first() else { return Ok(false) };
    let alike =
        |(c, r): &(Arc<Communicator>, Request)| is_p2p(r) && Arc::ptr_eq(c, comm) && r.stream.same(&first.stream);
    if !requests.iter().all(alike) || device::is_capturing(&first.stream) {
        return Ok(false);
    }
    at_once::exchange(comm.core()?, requests.iter().map(|(_, r)| r), &first.stream).inspect_err(|e| log::warn(&e.text))
}

/// Queues a management call, or runs it outside of groups: here, or in the background if it is nonblocking.
pub(crate) fn manage(job: Job) -> Result<()> {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| g.jobs.push(job));
        return Ok(());
    }
    if job.is_blocking() { job.run() } else { job.start() }
}

/// Runs the management calls of a group side by side. Nonblocking ones are only started: `InProgress`.
fn run_jobs(mut jobs: Vec<Job>) -> Result<()> {
    let blocking = jobs.iter().filter(|j| j.is_blocking()).count();
    if blocking > 0 && blocking < jobs.len() {
        let error = Error::argument("Blocking and nonblocking communicators are not allowed in the same group.");
        log::warn(&error.text);
        return Err(error);
    }
    if blocking == 0 && !jobs.is_empty() {
        jobs.into_iter().try_for_each(Job::start)?;
        return Err(Error::new(ResultCode::InProgress, "the nonblocking calls of the group are under way"));
    }
    if jobs.len() <= 1 {
        return jobs.pop().map_or(Ok(()), Job::run);
    }
    let device = device::current();
    let halts: Vec<_> = jobs.iter().map(|j| j.halt.clone()).collect();
    let first = Mutex::new(None);
    let failed = |error: Error| {
        // The others wait for this one, or for ranks that do.
        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        halts.iter().for_each(|h| h.store(true, Ordering::Release));
    };
    let run = |job: Job| {
        // The same device as the caller's, for logs; it exists.
        let _ = device::set_current(device);
        job.run().unwrap_or_else(&failed);
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || run(job))).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|_| failed(Error::internal("a management call panicked")));
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Records a checked request, or enqueues it outside of groups.
pub(crate) fn submit(comm: &Arc<Communicator>, request: Request<&Stream>) -> Result<()> {
    if depth() > 0 {
        GROUP.with_borrow_mut(|g| g.requests.push((comm.clone(), request.into_owned())));
        return Ok(());
    }
    if device::is_capturing(request.stream) {
        return device::capture_requests(vec![(comm.clone(), request.into_owned())]);
    }
    if is_p2p(&request) {
        if at_once::exchange(comm.core()?, std::iter::once(&request), request.stream)
            .inspect_err(|e| log::warn(&e.text))?
        {
            return Ok(());
        }
        return launch(vec![(comm.clone(), request.into_owned())]);
    }
    launch_collective(comm.core()?, request, 0);
    Ok(())
}

fn is_p2p<S>(r: &Request<S>) -> bool {
    matches!(r.collective, Collective::Send | Collective::Recv)
}

/// Whether the call moves nothing and is dropped: every count is zero. An AllToAllV may have counts elsewhere.
fn is_void<S>(r: &Request<S>) -> bool {
    r.count == 0 && r.v.is_none()
}

fn launch_collective(core: &Arc<Core>, request: Request<&Stream>, batch: u64) {
    if is_void(&request) {
        return;
    }
    let call = Call::new(&request, core.ranks);
    let left = match (batch, request.v) {
        (0, None) => at_once::run(core, call, request.stream).map(|call| (call, None)),
        (0, Some(v)) => at_once::run_v(core, call, v, request.stream).map(|(call, v)| (call, Some(v))),
        (_, v) => Some((call, v)),
    };
    if let Some((call, v)) = left {
        request.stream.push(CollectiveTask::new(core.clone(), call, v, batch).boxed());
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
    static BATCHES: AtomicU64 = AtomicU64::new(1);
    // Calls of one communicator run in their order anyway; those of several may need each other, whatever the streams.
    let one = requests.windows(2).all(|w| Arc::ptr_eq(&w[0].0, &w[1].0));
    let batch = if one { 0 } else { BATCHES.fetch_add(1, Ordering::Relaxed) };
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
        let exchange =
            Exchange::from_requests(&core, &mut core.lock_links(), list.iter()).inspect_err(|e| log::warn(&e.text))?;
        exchanges.push((core, list, exchange));
    }
    for (core, request) in collectives {
        let (stream, rest) = request.split();
        launch_collective(&core, rest.on(&stream), batch);
    }
    for (core, list, exchange) in exchanges {
        launch_exchange(&core, &list, exchange, batch)?;
    }
    Ok(())
}

/// The exchange runs on the stream of its first request, after what the other streams hold; they go on after it.
fn launch_exchange(core: &Arc<Core>, list: &[Request], exchange: Box<Exchange>, batch: u64) -> Result<()> {
    let main = &list[0].stream;
    let mut others: Vec<&Stream> = Vec::new();
    for r in list {
        if !r.stream.same(main) && !others.iter().any(|s| s.same(&r.stream)) {
            others.push(&r.stream);
        }
    }
    for s in &others {
        let before = Event::new();
        s.record(&before)?;
        main.wait(&before)?;
    }
    let task = P2pTask::new(core.clone(), exchange, if others.is_empty() { batch } else { 0 });
    if task.is_quick() {
        main.run_or_push(task, |t| Box::new(t));
    } else {
        main.push(Box::new(task));
    }
    if !others.is_empty() {
        let after = Event::new();
        main.record(&after)?;
        for s in &others {
            s.wait(&after)?;
        }
    }
    Ok(())
}
