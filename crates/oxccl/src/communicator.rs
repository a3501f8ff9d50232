//! Communicators and their blocking calls.
//!
//! Checks sizes and waits; how data moves is the runtime's affair.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use oxccl_runtime::{Communicator as Inner, device, group as inner_group};
use oxccl_types::{Error, ReduceOp, Result, ResultCode};

use crate::call::{self, Call, Place};
use crate::stream::{Stream, no_group, request};
use crate::{Config, Element, UniqueId};

/// One rank's membership in a set of ranks that call together.
///
/// Every rank of the communicator makes the same calls in the same order. The blocking calls here return when this
/// rank's output is complete and its buffers are free for reuse; that says nothing about other ranks. Calls that do
/// not match (another collective, count, type, operator or root) end in an error on the ranks concerned, which names
/// both calls; a rank that died ends in [`crate::ResultCode::RemoteError`]. Counts are in elements.
///
/// A communicator may move to another thread but is used by one at a time. Dropping it leaves in good order; dropping
/// it in a panic, or before a nonblocking call of it is complete, aborts it, so that the peers do not wait. In the C interface: `ncclComm_t`.
pub struct Communicator {
    pub(crate) inner: Arc<Inner>,
    /// The stream of the blocking calls and of groups.
    pub(crate) stream: device::Stream,
    one_thread_at_a_time: PhantomData<Cell<()>>,
}

impl Communicator {
    /// Joins the communicator `id` as `rank` of `ranks`, and waits for the others. The ranks may be threads,
    /// processes or machines, in any mix (`ncclCommInitRank`).
    ///
    /// Errors: `rank` is not below `ranks`; ranks disagree on their number; two ranks have the same number; peers do
    /// not come within the time limit. Not allowed inside a group.
    pub fn init(ranks: usize, id: UniqueId, rank: usize) -> Result<Communicator> {
        Communicator::init_with(ranks, id, rank, &Config::default())
    }

    /// As [`Communicator::init`], with choices (`ncclCommInitRankConfig`). With [`Config::nonblocking`] it returns at
    /// once: ask [`Communicator::poll`] until the ranks have met.
    pub fn init_with(ranks: usize, id: UniqueId, rank: usize, config: &Config) -> Result<Communicator> {
        no_group("Communicator::init")?;
        let device = config.device.unwrap_or_else(|| default_device(rank));
        join(ranks, &[id], rank, device, config)
    }

    /// As [`Communicator::init`] with several ids, the same list on every rank and not longer than there are ranks
    /// (`ncclCommInitRankScalable`). Where each id was made its root brings a part of the ranks together, so that no
    /// process has to serve all of them. The ids are used up.
    pub fn init_scalable(ranks: usize, ids: &[UniqueId], rank: usize) -> Result<Communicator> {
        Communicator::init_scalable_with(ranks, ids, rank, &Config::default())
    }

    /// As [`Communicator::init_scalable`], with choices as for [`Communicator::init_with`].
    pub fn init_scalable_with(ranks: usize, ids: &[UniqueId], rank: usize, config: &Config) -> Result<Communicator> {
        no_group("Communicator::init_scalable")?;
        if ids.is_empty() || ids.len() > ranks {
            return Err(Error::argument(format!(
                "Communicator::init_scalable: {} ids for {ranks} ranks; there must be at least one, and no more than ranks",
                ids.len()
            )));
        }
        let device = config.device.unwrap_or_else(|| default_device(rank));
        join(ranks, ids, rank, device, config)
    }

    /// Joins as several ranks at once from one thread: element `i` of the result is rank `members[i].0` on device
    /// `members[i].1` (`ncclCommInitRank` within a group). Errors as [`Communicator::init`].
    pub fn init_many(ranks: usize, id: UniqueId, members: &[(usize, usize)]) -> Result<Vec<Communicator>> {
        no_group("Communicator::init_many")?;
        inner_group::start();
        let mut joined = Vec::with_capacity(members.len());
        let mut failure = Ok(());
        for (rank, device) in members {
            match join(ranks, &[id], *rank, *device, &Config::default()) {
                Ok(comm) => joined.push(comm),
                Err(e) => {
                    inner_group::fail(&e);
                    failure = Err(e);
                    break;
                }
            }
        }
        // On a failure those that were queued are dropped after the end of the group, not within it.
        let ended = inner_group::end();
        let ended = match ended {
            Err(e) if e.code == ResultCode::InProgress => joined.iter().try_for_each(|c| c.inner.complete()),
            other => other,
        };
        failure.and(ended).map(|()| joined)
    }

    /// A communicator whose `ranks` ranks all live in this process; element `i` is rank `i` (`ncclCommInitAll`).
    ///
    /// Give each to a thread of its own, or drive all of them from one thread with [`crate::group`].
    /// Errors: `ranks` is 0 or above [`crate::device_count`].
    pub fn init_all(ranks: usize) -> Result<Vec<Communicator>> {
        no_group("Communicator::init_all")?;
        if ranks == 0 || ranks > device::count() {
            return Err(Error::argument(format!(
                "Communicator::init_all: {ranks} ranks on the {} devices of this machine; set OXCCL_HOST_DEVICES to have \
                 more",
                device::count()
            )));
        }
        let devices: Vec<usize> = (0..ranks).collect();
        let all = Inner::init_all(&devices)?;
        // The environment may make any communicator nonblocking.
        all.iter().try_for_each(|c| c.complete())?;
        all.into_iter().map(wrap).collect()
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    /// The host device of this rank.
    pub fn device(&self) -> usize {
        self.inner.device()
    }

    pub(crate) fn place(&self) -> Place {
        Place { rank: self.rank(), ranks: self.ranks() }
    }

    /// A handle that aborts this communicator from another thread.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(self.inner.clone())
    }

    /// The error that has made this communicator unusable, if there is one (`ncclCommGetAsyncError`). The code is
    /// [`ResultCode::InProgress`] while a nonblocking call is under way; [`Communicator::poll`] tells these apart.
    pub fn async_error(&self) -> Result<()> {
        self.inner.async_error()
    }

    /// Whether the communicator is ready: `false` while a nonblocking call of it is under way, during which it is
    /// refused to others. Never blocks (`ncclCommGetAsyncError`).
    ///
    /// ```
    /// use oxccl::{Communicator, Config, UniqueId};
    /// let config = Config { nonblocking: true, ..Config::default() };
    /// let comm = Communicator::init_with(1, UniqueId::create()?, 0, &config)?;
    /// while !comm.poll()? {
    ///     std::thread::yield_now(); // or something useful
    /// }
    /// comm.barrier()?;
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    ///
    /// Errors: that of the nonblocking call, or what has made the communicator unusable.
    pub fn poll(&self) -> Result<bool> {
        match self.inner.async_error() {
            Ok(()) => Ok(true),
            Err(e) if e.code == ResultCode::InProgress => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Waits until no nonblocking call is under way; errors as [`Communicator::poll`].
    pub fn wait(&self) -> Result<()> {
        self.inner.complete()
    }

    fn run(&self, call: Result<Call>) -> Result<()> {
        let call = call?;
        no_group(call.collective.name())?;
        let submitted = self.inner.submit(request(call, self.stream.clone()));
        // Wait also after a failure: the caller's borrows end here.
        let finished = self.stream.synchronize();
        // What ended the communicator after this call was complete is the next call's error.
        submitted.and(finished)
    }

    /// Every rank's `recv` becomes the reduction of all ranks' `send`; both have the same length on every rank
    /// (`ncclAllReduce`).
    ///
    /// ```
    /// use oxccl::{Communicator, ReduceOp};
    /// let comms = Communicator::init_all(4)?;
    /// std::thread::scope(|threads| {
    ///     for comm in comms {
    ///         threads.spawn(move || {
    ///             let send = [comm.rank() as f32, 1.0];
    ///             let mut recv = [0.0; 2];
    ///             comm.all_reduce(&send, &mut recv, ReduceOp::Sum).unwrap();
    ///             assert_eq!(recv, [6.0, 4.0]);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    pub fn all_reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<()> {
        self.run(call::all_reduce(self.place(), send.into(), recv.into(), op))
    }

    /// As [`Communicator::all_reduce`] with input and output in `buf`.
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: ReduceOp) -> Result<()> {
        let buf = call::Lent::from(buf);
        self.run(call::all_reduce(self.place(), buf.shared(), buf, op))
    }

    /// The root's `buf` is copied into every rank's `buf`; all have the same length (`ncclBroadcast`, in place).
    ///
    /// ```
    /// # use oxccl::{Communicator, group};
    /// let comms = Communicator::init_all(2)?;
    /// let (mut a, mut b) = ([7_u8; 3], [0_u8; 3]);
    /// group(|g| {
    ///     g.broadcast(&comms[0], &mut a, 0)?;
    ///     g.broadcast(&comms[1], &mut b, 0)
    /// })?;
    /// assert_eq!(b, [7; 3]);
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    pub fn broadcast<T: Element>(&self, buf: &mut [T], root: usize) -> Result<()> {
        self.run(call::broadcast(self.place(), buf.into(), root))
    }

    /// The root's `recv` becomes the reduction of all ranks' `send`; both have the same length. On other ranks `recv`
    /// is not used and may be empty (`ncclReduce`).
    pub fn reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp, root: usize) -> Result<()> {
        self.run(call::reduce(self.place(), send.into(), recv.into(), op, root))
    }

    /// Rank `i`'s `recv` becomes block `i` of the reduction of all ranks' `send`; `send` has `ranks` blocks of the
    /// length of `recv` (`ncclReduceScatter`).
    pub fn reduce_scatter<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<()> {
        self.run(call::reduce_scatter(self.place(), send.into(), recv.into(), op))
    }

    /// Block `i` of every rank's `recv` becomes rank `i`'s `send`; `recv` has `ranks` blocks of the length of `send`
    /// (`ncclAllGather`).
    pub fn all_gather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.run(call::all_gather(self.place(), send.into(), recv.into()))
    }

    /// Block `i` of the root's `recv` becomes rank `i`'s `send`. On other ranks `recv` is not used and may be empty
    /// (`ncclGather`).
    pub fn gather<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        self.run(call::gather(self.place(), send.into(), recv.into(), root))
    }

    /// Rank `i`'s `recv` becomes block `i` of the root's `send`. On other ranks `send` is not used and may be empty
    /// (`ncclScatter`).
    pub fn scatter<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        self.run(call::scatter(self.place(), send.into(), recv.into(), root))
    }

    /// Block `j` of rank `i`'s `recv` becomes block `i` of rank `j`'s `send`; both buffers have `ranks` blocks of
    /// equal length (`ncclAlltoAll`).
    pub fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.run(call::all_to_all(self.place(), send.into(), recv.into()))
    }

    /// As [`Communicator::all_to_all`] with blocks of different lengths, one after another: `send_counts[j]` elements
    /// go to rank `j`, `recv_counts[j]` come from it. The counts of the two sides must agree.
    pub fn all_to_all_v<T: Element>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<()> {
        self.run(call::all_to_all_v(self.place(), send.into(), send_counts, recv.into(), recv_counts))
    }

    /// Sends `data` to rank `to`, which calls [`Communicator::recv`] with the same length (`ncclSend`). Returns when
    /// `data` may be reused; the receiver must come, so two ranks that both send first wait for each other: use
    /// [`Communicator::send_recv`].
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        self.run(call::send(self.place(), data.into(), to))
    }

    /// Receives `data` from rank `from` (`ncclRecv`).
    pub fn recv<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        self.run(call::recv(self.place(), data.into(), from))
    }

    /// Sends to one rank and receives from another (or the same) at once (`ncclSend` and `ncclRecv` in a group).
    ///
    /// ```
    /// # use oxccl::Communicator;
    /// let comms = Communicator::init_all(3)?;
    /// std::thread::scope(|threads| {
    ///     for comm in comms {
    ///         threads.spawn(move || {
    ///             let (me, n) = (comm.rank(), comm.ranks());
    ///             let mut left = [0_u64];
    ///             comm.send_recv(&[me as u64], (me + 1) % n, &mut left, (me + n - 1) % n).unwrap();
    ///             assert_eq!(left[0] as usize, (me + n - 1) % n);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    pub fn send_recv<T: Element>(&self, send: &[T], to: usize, recv: &mut [T], from: usize) -> Result<()> {
        crate::group(|g| {
            g.send(self, send, to)?;
            g.recv(self, recv, from)
        })
    }

    /// Returns when every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        self.all_reduce_in_place(&mut [0_u8], ReduceOp::Max)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // A failure has been logged where it was found; there is nobody to tell here.
        // Nobody will use what is still being made, so its peers need not wait either.
        let unfinished = matches!(self.poll(), Ok(false));
        let _ = if unfinished || std::thread::panicking() { self.inner.abort() } else { self.inner.destroy() };
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Communicator(rank {} of {}, device {})", self.rank(), self.ranks(), self.device())
    }
}

/// Aborts a communicator from any thread: calls that wait in it end with an error (`ncclCommAbort`).
#[derive(Clone)]
pub struct AbortHandle(Arc<Inner>);

impl AbortHandle {
    /// Aborts. The communicator is of no use afterwards.
    pub fn abort(&self) -> Result<()> {
        self.0.abort()
    }
}

fn default_device(rank: usize) -> usize {
    rank % device::count().max(1)
}

fn join(ranks: usize, ids: &[UniqueId], rank: usize, device: usize, config: &Config) -> Result<Communicator> {
    let number = |n: usize, what: &str| {
        i32::try_from(n).map_err(|_| Error::argument(format!("Communicator::init: {what} {n} is beyond {}", i32::MAX)))
    };
    if rank >= ranks {
        return Err(Error::argument(format!(
            "Communicator::init: rank {rank} is not below the number of ranks {ranks}"
        )));
    }
    let (ranks, rank) = (number(ranks, "the number of ranks")?, number(rank, "the rank")?);
    let (nonblocking, config) = (config.nonblocking, config.to_runtime()?);
    let ids = ids.iter().map(|id| id.to_runtime()).collect::<Result<Vec<_>>>()?;
    let inner = Inner::init_scalable(ranks, &ids, rank, device, config, "Communicator::init")?;
    if inner_group::depth() == 0 && !nonblocking {
        // The environment may make any communicator nonblocking.
        inner.complete()?;
    }
    wrap(inner)
}

pub(crate) fn wrap(inner: Arc<Inner>) -> Result<Communicator> {
    let stream = Stream::on(inner.device())?.0;
    Ok(Communicator { inner, stream, one_thread_at_a_time: PhantomData })
}
