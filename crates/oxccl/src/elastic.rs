//! Communicators out of communicators: split, shrink, grow; revocation and suspension.
//!
//! The calls here wait until the new communicator is there. Nonblocking forms are for the C interface.

use std::sync::{Arc, Mutex, PoisonError};

use oxccl_runtime::{Communicator as Inner, Done, MemStat};
use oxccl_types::{Error, Result};

use crate::communicator::wrap;
use crate::stream::no_group;
use crate::{Communicator, UniqueId};

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

/// Runs a call that makes a communicator and takes what it made.
fn made(parent: &Inner, call: impl FnOnce(Done) -> Result<()>) -> Result<Option<Communicator>> {
    let place: Arc<Mutex<Option<Arc<Inner>>>> = Arc::default();
    let put = place.clone();
    call(Box::new(move |child| *put.lock().unwrap_or_else(PoisonError::into_inner) = child))?;
    // The environment may make any communicator nonblocking.
    parent.complete()?;
    let child = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    child.map(wrap).transpose()
}

fn some(made: Option<Communicator>) -> Result<Communicator> {
    made.ok_or_else(|| Error::internal("a call that makes a communicator made none"))
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
        no_group("Communicator::split")?;
        made(&self.inner, |done| self.inner.split(color, key, None, done))
    }

    /// A communicator of all ranks but `exclude`, in the same order; only those that remain call it, with the same
    /// list. They need no help of the others, which may be dead. After an operation has failed, use
    /// [`Communicator::shrink_abort`] (`ncclCommShrink`).
    pub fn shrink(&self, exclude: &[usize]) -> Result<Communicator> {
        no_group("Communicator::shrink")?;
        some(made(&self.inner, |done| self.inner.shrink(exclude, false, None, done))?)
    }

    /// As [`Communicator::shrink`], and operations under way end first, as by [`Communicator::revoke`]
    /// (`ncclCommShrink` with `NCCL_SHRINK_ABORT`).
    pub fn shrink_abort(&self, exclude: &[usize]) -> Result<Communicator> {
        no_group("Communicator::shrink_abort")?;
        some(made(&self.inner, |done| self.inner.shrink(exclude, true, None, done))?)
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
        no_group("Communicator::grow")?;
        let id = id.map(UniqueId::to_runtime).transpose()?;
        some(made(&self.inner, |done| self.inner.grow(ranks, id, None, done))?)
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
