//! Communicators out of communicators: split, shrink, grow; revocation and suspension.
//!
//! The calls wait until the new communicator is there; those that begin with `start` do not wait on a nonblocking
//! communicator.

use std::sync::{Arc, Mutex, PoisonError};

use oxccl_runtime::{CommConfig, Communicator as Inner, Done, MemStat};
use oxccl_types::{Error, Result, ResultCode};

use crate::communicator::wrap;
use crate::stream::no_group;
use crate::{Communicator, Config, UniqueId};

/// What a suspension of a communicator is about, in bytes; of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// What [`Communicator::suspend`] gives back, or has given back.
    pub suspendable: u64,
    /// What stays.
    pub persistent: u64,
    /// Whether the communicator is suspended.
    pub suspended: bool,
}

type Made = Arc<Mutex<Option<Arc<Inner>>>>;

/// A communicator that is being made. On a blocking parent it is complete from the start.
///
/// While it is in progress its parent is, too, and refuses other calls ([`Communicator::poll`]). Dropping it takes no
/// influence on the parent; a communicator that nobody took leaves in good order.
pub struct Pending<T> {
    parent: Arc<Inner>,
    made: Made,
    take: fn(Option<Communicator>) -> Result<T>,
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending(of rank {} of {})", self.parent.rank(), self.parent.ranks())
    }
}

impl<T> Pending<T> {
    /// Starts a call that makes a communicator.
    fn start(
        parent: &Arc<Inner>,
        take: fn(Option<Communicator>) -> Result<T>,
        call: impl FnOnce(Done) -> Result<()>,
    ) -> Result<Pending<T>> {
        let made: Made = Arc::default();
        let put = made.clone();
        call(Box::new(move |child| *put.lock().unwrap_or_else(PoisonError::into_inner) = child))?;
        Ok(Pending { parent: parent.clone(), made, take })
    }

    fn finish(&self) -> Result<T> {
        let child = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        (self.take)(child.map(wrap).transpose()?)
    }

    /// What was made, or the pending call again while it is in progress. Never blocks.
    ///
    /// Errors: those of the call.
    pub fn poll(self) -> Result<std::result::Result<T, Pending<T>>> {
        match self.parent.async_error() {
            Err(e) if e.code == ResultCode::InProgress => Ok(Err(self)),
            // What ended the parent's operations says nothing about what was made.
            _ => self.parent.complete().and_then(|()| self.finish()).map(Ok),
        }
    }

    /// Waits for it; errors as [`Pending::poll`].
    pub fn wait(self) -> Result<T> {
        self.parent.complete()?;
        self.finish()
    }
}

fn some(made: Option<Communicator>) -> Result<Communicator> {
    made.ok_or_else(|| Error::internal("a call that makes a communicator made none"))
}

fn settings(config: Option<&Config>) -> Result<Option<CommConfig>> {
    config.map(Config::to_runtime).transpose()
}

impl Communicator {
    /// Divides the communicator: ranks that give the same colour become one communicator, ordered by `key`, then by
    /// rank. Every rank calls it; one that gives no colour takes part and gets `None`. This communicator stays as it
    /// is (`ncclCommSplit`).
    ///
    /// ```
    /// use oxccl::{Communicator, ReduceOp};
    /// let comms = Communicator::init_all(4)?;
    /// std::thread::scope(|threads| {
    ///     for comm in comms {
    ///         threads.spawn(move || {
    ///             let half = comm.split(Some(comm.rank() as i32 / 2), 0).unwrap().unwrap();
    ///             let mut x = [comm.rank() as i32];
    ///             half.all_reduce_in_place(&mut x, ReduceOp::Sum).unwrap();
    ///             assert_eq!(x[0], if comm.rank() < 2 { 1 } else { 5 });
    ///         });
    ///     }
    /// });
    /// # Ok::<(), oxccl::Error>(())
    /// ```
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Communicator>> {
        self.start_split(color, key, None)?.wait()
    }

    /// As [`Communicator::split`], with choices for the new communicator instead of those of this one.
    pub fn split_with(&self, color: Option<i32>, key: i32, config: &Config) -> Result<Option<Communicator>> {
        self.start_split(color, key, Some(config))?.wait()
    }

    /// As [`Communicator::split`], not waiting if this communicator is nonblocking. `config`: choices for the new one
    /// instead of those of this one.
    pub fn start_split(
        &self,
        color: Option<i32>,
        key: i32,
        config: Option<&Config>,
    ) -> Result<Pending<Option<Communicator>>> {
        no_group("Communicator::split")?;
        let config = settings(config)?;
        Pending::start(&self.inner, Ok, |done| self.inner.split(color, key, config, done))
    }

    /// A communicator of all ranks but `exclude`, in the same order; only those that remain call it, with the same
    /// list. They need no help of the others, which may be dead. After an operation has failed, use
    /// [`Communicator::shrink_abort`] (`ncclCommShrink`).
    pub fn shrink(&self, exclude: &[usize]) -> Result<Communicator> {
        self.start_shrink(exclude, false, None)?.wait()
    }

    /// As [`Communicator::shrink`], and operations under way end first, as by [`Communicator::revoke`]
    /// (`ncclCommShrink` with `NCCL_SHRINK_ABORT`).
    pub fn shrink_abort(&self, exclude: &[usize]) -> Result<Communicator> {
        self.start_shrink(exclude, true, None)?.wait()
    }

    /// As [`Communicator::shrink`] or, where `abort`, [`Communicator::shrink_abort`], with choices for the new
    /// communicator instead of those of this one.
    pub fn shrink_with(&self, exclude: &[usize], abort: bool, config: &Config) -> Result<Communicator> {
        self.start_shrink(exclude, abort, Some(config))?.wait()
    }

    /// As [`Communicator::shrink_with`], not waiting if this communicator is nonblocking. `config`: `None` for the
    /// choices of this one.
    pub fn start_shrink(
        &self,
        exclude: &[usize],
        abort: bool,
        config: Option<&Config>,
    ) -> Result<Pending<Communicator>> {
        no_group("Communicator::shrink")?;
        let config = settings(config)?;
        Pending::start(&self.inner, some, |done| self.inner.shrink(exclude, abort, config, done))
    }

    /// An id for ranks that shall join this communicator. One rank makes it, hands it to the new ranks, and gives it
    /// to its [`Communicator::grow`] (`ncclCommGetUniqueId`).
    pub fn grow_id(&self) -> Result<UniqueId> {
        no_group("Communicator::grow_id")?;
        Ok(UniqueId::from_bytes(self.inner.grow_id()?.to_bytes()))
    }

    /// A communicator of `ranks` ranks, in which those of this one keep their ranks. Every rank of this one calls it,
    /// the one that made the id with it; the new ranks join by [`Communicator::init`] with the id, the same `ranks`
    /// and a rank not below [`Communicator::ranks`] of this one (`ncclCommGrow`).
    pub fn grow(&self, ranks: usize, id: Option<UniqueId>) -> Result<Communicator> {
        self.start_grow(ranks, id, None)?.wait()
    }

    /// As [`Communicator::grow`], with choices for the new communicator instead of those of this one.
    pub fn grow_with(&self, ranks: usize, id: Option<UniqueId>, config: &Config) -> Result<Communicator> {
        self.start_grow(ranks, id, Some(config))?.wait()
    }

    /// As [`Communicator::grow`], not waiting if this communicator is nonblocking. `config`: choices for the new one
    /// instead of those of this one.
    pub fn start_grow(
        &self,
        ranks: usize,
        id: Option<UniqueId>,
        config: Option<&Config>,
    ) -> Result<Pending<Communicator>> {
        no_group("Communicator::grow")?;
        let id = id.map(UniqueId::to_runtime).transpose()?;
        let config = settings(config)?;
        Pending::start(&self.inner, some, |done| self.inner.grow(ranks, id, config, done))
    }

    /// Ends the operations under way and refuses later ones; the communicator can still be split, shrunk and grown.
    /// Every rank that goes on calls it (`ncclCommRevoke`).
    pub fn revoke(&self) -> Result<()> {
        no_group("Communicator::revoke")?;
        self.inner.revoke()?;
        self.inner.complete()
    }

    /// A handle that revokes this communicator from another thread.
    pub fn revoke_handle(&self) -> RevokeHandle {
        RevokeHandle(self.inner.clone())
    }

    /// Gives memory back until [`Communicator::resume`]; every rank calls it (`ncclCommSuspend`).
    pub fn suspend(&self) -> Result<()> {
        no_group("Communicator::suspend")?;
        self.inner.suspend()?;
        self.inner.complete()
    }

    /// Ends a suspension; every rank calls it (`ncclCommResume`).
    pub fn resume(&self) -> Result<()> {
        no_group("Communicator::resume")?;
        self.inner.resume()?;
        self.inner.complete()
    }

    /// The memory of this rank of the communicator (`ncclCommMemStats`).
    pub fn memory_use(&self) -> Result<MemoryUse> {
        Ok(MemoryUse {
            suspendable: self.inner.mem_stat(MemStat::Suspend)?,
            persistent: self.inner.mem_stat(MemStat::Persist)?,
            suspended: self.inner.mem_stat(MemStat::Suspended)? != 0,
        })
    }
}

/// Revokes a communicator from any thread: calls that wait in it end with an error (`ncclCommRevoke`).
#[derive(Clone)]
pub struct RevokeHandle(Arc<Inner>);

impl RevokeHandle {
    /// Revokes.
    pub fn revoke(&self) -> Result<()> {
        self.0.revoke()?;
        self.0.complete()
    }
}
