//! Streams and scopes: calls that are enqueued now and finished together.
//!
//! A scope always waits for its calls before the borrows of its buffers end; nothing here is unsafe to misuse, and
//! nothing here decides how a call is done.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use oxccl_runtime::{Communicator as Inner, Request, device, group as inner_group};
use oxccl_types::{Error, ReduceOp, Result};

use crate::call::{self, Call, Span};
use crate::{Communicator, Element, Lent, Shared};

/// A queue of calls on one device; they run in the order in which they were issued.
///
/// In the C interface: `cudaStream_t`.
#[derive(Clone)]
pub struct Stream(pub(crate) device::Stream);

impl Stream {
    /// A new stream on `device`, a number below [`crate::device_count`].
    pub fn on(device: usize) -> Result<Stream> {
        let before = device::current();
        device::set_current(device)?;
        let stream = device::Stream::new();
        device::set_current(before)?;
        Ok(Stream(stream?))
    }

    /// The device of the stream.
    pub fn device(&self) -> usize {
        self.0.device()
    }

    /// Runs `f`, which issues calls through the [`Scope`], and waits until all of them are done, also when `f` fails
    /// or panics. Buffers that are lent to the scope come back when it ends.
    ///
    /// Calls of the scope run in order, so a later one may read what an earlier one wrote:
    ///
    /// ```
    /// use oxccl::{Communicator, DeviceBuffer, ReduceOp, Stream};
    /// let comm = Communicator::init_all(1)?.remove(0);
    /// let stream = Stream::on(comm.device())?;
    /// let a = DeviceBuffer::from_slice(&[1.0_f32, 2.0])?;
    /// let mut b = DeviceBuffer::zeroed(2)?;
    /// let mut c = DeviceBuffer::zeroed(2)?;
    /// stream.scope(|s| {
    ///     let b = s.lend(&mut b);
    ///     s.all_reduce(&comm, &a, b, ReduceOp::Sum)?;
    ///     s.all_gather(&comm, b, &mut c)
    /// })?;
    /// assert_eq!(c[..], [1.0, 2.0]);
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    ///
    /// What is lent cannot leave the scope or be looked at inside it:
    ///
    /// ```compile_fail,E0502
    /// # use oxccl::{Communicator, ReduceOp, Stream};
    /// # let comm = Communicator::init_all(1)?.remove(0);
    /// # let stream = Stream::on(0)?;
    /// let (a, mut b) = (vec![1_i32], vec![0_i32]);
    /// stream.scope(|s| {
    ///     s.all_reduce(&comm, &a, &mut b, ReduceOp::Sum)?;
    ///     println!("{b:?}"); // still being written
    ///     Ok(())
    /// })?;
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    ///
    /// Errors: the error of `f`; else the first failure of a call. Not allowed inside [`group`].
    pub fn scope<'env, R>(&self, f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>) -> Result<R> {
        Scope::run(Target::Stream(self.0.clone()), f).map(|(r, _)| r)
    }
}

/// Runs `f`, which issues calls of one or more communicators, all of which start together when `f` returns, and waits
/// for them. Each call runs on its communicator's own stream.
///
/// This is how one thread drives several ranks, and how sends and receives are exchanged without an order:
///
/// ```
/// use oxccl::{Communicator, ReduceOp, group};
/// let comms = Communicator::init_all(2)?;
/// let mut x = [[1_i32], [2_i32]];
/// group(|g| {
///     for (comm, x) in comms.iter().zip(&mut x) {
///         g.all_reduce_in_place(comm, x, ReduceOp::Sum)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(x, [[3], [3]]);
/// # Ok::<(), oxccl::Error>(())
/// ```
///
/// The calls run side by side, so none may write what another one uses; this is checked. When `f` fails nothing is
/// started. Groups do not nest. In the C interface: `ncclGroupStart`, `ncclGroupEnd`.
pub fn group<'env, R>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>) -> Result<R> {
    Scope::run(Target::Group, f).map(|(r, _)| r)
}

/// What [`group`] would take for the calls that `f` issues, by the cost model of this machine: the time from the start
/// of the group until its last call is done on the ranks of this thread. Nothing is started and nothing is written; the
/// calls are forgotten, so a rank may ask alone. `None` when the calls move nothing (`ncclGroupSimulateEnd`, in which
/// the original tells the time of the last collective only).
///
/// Calls of one communicator count one after the other, those of different ones side by side; the plan that counts is
/// the one that would be used for these sizes and this kind of memory. A prediction, to compare ways of doing
/// something with: it knows nothing of what else the machine does.
///
/// ```
/// use oxccl::{Communicator, ReduceOp, simulate};
/// let comm = Communicator::init_all(2)?.remove(0);
/// let (mut small, mut large) = (vec![0_f32; 10], vec![0_f32; 1 << 20]);
/// let short = simulate(|g| g.all_reduce_in_place(&comm, &mut small[..], ReduceOp::Sum))?.unwrap();
/// let long = simulate(|g| g.all_reduce_in_place(&comm, &mut large[..], ReduceOp::Sum))?.unwrap();
/// assert!(long > short);
/// # Ok::<(), oxccl::Error>(())
/// ```
///
/// Errors: as [`group`], for what can be found before anything starts.
pub fn simulate<'env>(
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<()>,
) -> Result<Option<Duration>> {
    let (_, us) = Scope::run(Target::Simulation, f)?;
    Ok(us.map(|us| Duration::from_nanos((us * 1e3) as u64)))
}

/// An error unless no group is open on this thread: inside a group a call would return before its data has moved.
pub(crate) fn no_group(what: &str) -> Result<()> {
    if inner_group::depth() == 0 {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{what} inside a group: it would return before the group starts; issue the call through the group's scope"
    )))
}

enum Target {
    Stream(device::Stream),
    Group,
    Simulation,
}

/// Where the calls of [`Stream::scope`], [`group`] and [`simulate`] are issued. Shapes are those of the methods of the same name of
/// [`Communicator`]; buffers stay borrowed until the scope ends.
pub struct Scope<'scope, 'env: 'scope> {
    target: Target,
    /// Depth of open groups of this scope on this thread.
    depth: Cell<u32>,
    /// What the calls of the open group use.
    spans: RefCell<Spans>,
    /// Who issued calls, each once, with the stream to wait for.
    used: RefCell<Vec<Used>>,
    /// What a simulation came to, us.
    time: Cell<Option<f64>>,
    // Invariant, so that a buffer lent to one scope cannot be used in another; raw, so that it stays on its thread,
    // as groups do.
    brand: PhantomData<(&'scope mut &'scope (), &'env mut &'env (), *const ())>,
}

/// A communicator that issued calls.
struct Used {
    comm: Arc<Inner>,
    stream: device::Stream,
    /// A call of it had failed before.
    had_failed: bool,
}

impl Used {
    /// Waits for its calls.
    fn finish(&self) -> Result<()> {
        let waited = self.stream.synchronize();
        // Who else waits for the stream may have been told.
        let failed = || if self.had_failed { None } else { self.comm.failed_call() };
        waited.and_then(|()| failed().map_or(Ok(()), Err))
    }
}

/// Memory that calls use: ranges that do not overlap, by their starts.
#[derive(Default)]
struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    /// Start and end of the last one that overlaps `start..end`.
    fn overlapping(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let (at, to) = self.0.range(..end).next_back()?;
        (*to > start).then_some((*at, *to))
    }

    /// Becomes one with those that it overlaps.
    fn add(&mut self, mut start: usize, mut end: usize) {
        while let Some((at, to)) = self.overlapping(start, end) {
            self.0.remove(&at);
            (start, end) = (start.min(at), end.max(to));
        }
        self.0.insert(start, end);
    }
}

/// What the calls of a group read and write.
#[derive(Default)]
struct Spans {
    read: Ranges,
    written: Ranges,
}

impl Spans {
    /// Whether a call beside the others may not use `span`.
    fn forbid(&self, span: &Span, writes: bool) -> bool {
        let used = |ranges: &Ranges| ranges.overlapping(span.start, span.start + span.bytes).is_some();
        span.bytes > 0 && (used(&self.written) || (writes && used(&self.read)))
    }

    fn add(&mut self, span: &Span, writes: bool) {
        let ranges = if writes { &mut self.written } else { &mut self.read };
        if span.bytes > 0 {
            ranges.add(span.start, span.start + span.bytes);
        }
    }
}

/// Ends a scope on every way out.
struct Finish<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for Finish<'_, '_, '_> {
    fn drop(&mut self) {
        // Only a panic comes here; the first error is already on its way as the panic.
        let _ = self.0.finish(Some(&Error::usage("the closure of the scope panicked")));
    }
}

/// Ends an inner group on every way out.
struct EndGroup<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for EndGroup<'_, '_, '_> {
    fn drop(&mut self) {
        let _ = self.0.end_group(Some(&Error::usage("the closure of the group panicked")));
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Also the time of a simulation, us.
    fn run<R>(target: Target, f: impl for<'s> FnOnce(&'s Scope<'s, 'env>) -> Result<R>) -> Result<(R, Option<f64>)> {
        no_group("a scope or group")?;
        let scope = Scope {
            target,
            depth: Cell::new(0),
            spans: RefCell::default(),
            used: RefCell::default(),
            time: Cell::new(None),
            brand: PhantomData,
        };
        if !matches!(scope.target, Target::Stream(_)) {
            scope.start_group();
        }
        let finish = Finish(&scope);
        let result = f(&scope);
        std::mem::forget(finish);
        let finished = scope.finish(result.as_ref().err());
        let time = scope.time.get();
        result.and_then(|r| finished.map(|()| (r, time)))
    }

    fn finish(&self, failure: Option<&Error>) -> Result<()> {
        let mut result = Ok(());
        while self.depth.get() > 0 {
            result = result.and(self.end_group(failure));
        }
        // Wait for every stream, whatever failed: the borrows end with this function.
        for used in self.used.borrow().iter() {
            result = result.and(used.finish());
        }
        result
    }

    fn start_group(&self) {
        inner_group::start();
        self.depth.set(self.depth.get() + 1);
    }

    fn end_group(&self, failure: Option<&Error>) -> Result<()> {
        if let Some(e) = failure {
            inner_group::fail(e);
        }
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() == 0 {
            self.spans.take();
            if matches!(self.target, Target::Simulation) {
                return inner_group::simulate_end().map(|time| self.time.set(time));
            }
        }
        inner_group::end()
    }

    /// Inside a group calls run side by side: none may write what another reads or writes.
    fn check_group(&self, name: &str, uses: &[(Span, bool)]) -> Result<()> {
        let mut spans = self.spans.borrow_mut();
        for (mine, i_write) in uses {
            if spans.forbid(mine, *i_write) {
                return Err(Error::usage(format!(
                    "{name}: a call of the same group uses the same memory ({:#x}, {} bytes), and one of the two writes \
                     it; the calls of a group run side by side",
                    mine.start, mine.bytes
                )));
            }
        }
        // Behind all checks: a call may write where it reads.
        uses.iter().for_each(|(mine, i_write)| spans.add(mine, *i_write));
        Ok(())
    }

    fn submit(&self, comm: &Communicator, call: Result<Call>) -> Result<()> {
        let call = call?;
        let uses = [(call.reads, false), (call.writes, true)];
        let stream = self.take_part(comm, call.collective.name(), &uses)?;
        comm.inner.submit(request(call, stream))
    }

    /// The stream for a call of `comm` that reads (`false`) and writes (`true`) `uses`; it is waited for at the end.
    pub(crate) fn take_part(&self, comm: &Communicator, name: &str, uses: &[(Span, bool)]) -> Result<device::Stream> {
        if self.depth.get() > 0 {
            self.check_group(name, uses)?;
        }
        let stream = match &self.target {
            Target::Stream(s) => s,
            Target::Group | Target::Simulation => &comm.stream,
        };
        if stream.device() != comm.device() {
            return Err(Error::usage(format!(
                "{name}: the stream is on device {}, the communicator on device {}",
                stream.device(),
                comm.device()
            )));
        }
        let mut used = self.used.borrow_mut();
        if !used.iter().any(|u| Arc::ptr_eq(&u.comm, &comm.inner)) {
            let had_failed = comm.inner.failed_call().is_some();
            used.push(Used { comm: comm.inner.clone(), stream: stream.clone(), had_failed });
        }
        Ok(stream.clone())
    }

    /// Lends `buffer` to the scope for several calls.
    pub fn lend<T>(&'scope self, buffer: impl Into<Lent<'scope, T>>) -> Lent<'scope, T> {
        buffer.into()
    }

    /// Lends `buffer` to the scope for several calls that read it.
    pub fn share<T>(&'scope self, buffer: impl Into<Shared<'scope, T>>) -> Shared<'scope, T> {
        buffer.into()
    }

    /// Runs `f` as one group: its calls start together when it returns. When it fails none is started.
    pub fn group<R>(&'scope self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        self.start_group();
        let end = EndGroup(self);
        let result = f();
        std::mem::forget(end);
        let ended = self.end_group(result.as_ref().err());
        result.and_then(|r| ended.map(|()| r))
    }

    /// As [`Communicator::all_reduce`].
    pub fn all_reduce<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
        op: ReduceOp,
    ) -> Result<()> {
        self.submit(comm, call::all_reduce(comm.place(), send.into(), recv.into(), op))
    }

    /// As [`Communicator::all_reduce_in_place`].
    pub fn all_reduce_in_place<T: Element>(
        &'scope self,
        comm: &Communicator,
        buf: impl Into<Lent<'scope, T>>,
        op: ReduceOp,
    ) -> Result<()> {
        let buf = buf.into();
        self.submit(comm, call::all_reduce(comm.place(), buf.shared(), buf, op))
    }

    /// As [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        &'scope self,
        comm: &Communicator,
        buf: impl Into<Lent<'scope, T>>,
        root: usize,
    ) -> Result<()> {
        self.submit(comm, call::broadcast(comm.place(), buf.into(), root))
    }

    /// As [`Communicator::reduce`].
    pub fn reduce<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
        op: ReduceOp,
        root: usize,
    ) -> Result<()> {
        self.submit(comm, call::reduce(comm.place(), send.into(), recv.into(), op, root))
    }

    /// As [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
        op: ReduceOp,
    ) -> Result<()> {
        self.submit(comm, call::reduce_scatter(comm.place(), send.into(), recv.into(), op))
    }

    /// As [`Communicator::all_gather`].
    pub fn all_gather<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
    ) -> Result<()> {
        self.submit(comm, call::all_gather(comm.place(), send.into(), recv.into()))
    }

    /// As [`Communicator::gather`].
    pub fn gather<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
        root: usize,
    ) -> Result<()> {
        self.submit(comm, call::gather(comm.place(), send.into(), recv.into(), root))
    }

    /// As [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
        root: usize,
    ) -> Result<()> {
        self.submit(comm, call::scatter(comm.place(), send.into(), recv.into(), root))
    }

    /// As [`Communicator::all_to_all`].
    pub fn all_to_all<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        recv: impl Into<Lent<'scope, T>>,
    ) -> Result<()> {
        self.submit(comm, call::all_to_all(comm.place(), send.into(), recv.into()))
    }

    /// As [`Communicator::all_to_all_v`].
    pub fn all_to_all_v<T: Element>(
        &'scope self,
        comm: &Communicator,
        send: impl Into<Shared<'scope, T>>,
        send_counts: &[usize],
        recv: impl Into<Lent<'scope, T>>,
        recv_counts: &[usize],
    ) -> Result<()> {
        self.submit(comm, call::all_to_all_v(comm.place(), send.into(), send_counts, recv.into(), recv_counts))
    }

    /// As [`Communicator::send`].
    pub fn send<T: Element>(
        &'scope self,
        comm: &Communicator,
        data: impl Into<Shared<'scope, T>>,
        to: usize,
    ) -> Result<()> {
        self.submit(comm, call::send(comm.place(), data.into(), to))
    }

    /// As [`Communicator::recv`].
    pub fn recv<T: Element>(
        &'scope self,
        comm: &Communicator,
        data: impl Into<Lent<'scope, T>>,
        from: usize,
    ) -> Result<()> {
        self.submit(comm, call::recv(comm.place(), data.into(), from))
    }
}

/// The runtime's form of `call` on `stream`.
pub(crate) fn request(call: Call, stream: device::Stream) -> Request {
    let Call { collective, send, recv, count, dtype, op, root, v, .. } = call;
    Request { collective, send, recv, count, dtype, op, root, bias: std::ptr::null(), v, stream }
}
