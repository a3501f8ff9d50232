//! Memory of a communicator: how much it is, giving it back for a while, and getting it again.
//!
//! Counted are the bytes that this rank has mapped for the communicator: its part of the hub, mapped memory of peers,
//! and memory for scaled and for copied inputs. Memory of peers that another communicator of the family mapped first counts there.
//! Communicators that share cannot be suspended: what they share is in use. Bytes of the heap (queues, tables, connections) are not counted.

use std::sync::Arc;

use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::Communicator;
use super::core::Core;
use super::jobs::Job;
use crate::group;

/// What [`Communicator::mem_stat`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemStat {
    /// Bytes that a suspension gives back, or has given back.
    Suspend,
    /// 1 while suspended, else 0.
    Suspended,
    /// Bytes that stay.
    Persist,
    /// All bytes.
    Total,
}

/// Whether the communicator is suspended, and what that gave back.
#[derive(Default)]
pub(super) struct State {
    suspended: AtomicBool,
    released: AtomicU64,
}

impl State {
    #[inline(always)]
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }
}

fn releasable(core: &Core) -> u64 {
    let mapped: usize = core.device_mappers().map(|m| m.bytes()).sum();
    (core.hub.releasable() + core.lock_engine().releasable() + mapped) as u64
}

fn release(core: &Core) -> Result<()> {
    core.lock_engine().release();
    core.device_mappers().for_each(|mapper| mapper.clear());
    core.hub.release(core.me).map_err(|e| Error::system(format!("cannot give shared memory back: {e}")))
}

impl Communicator {
    /// Gives back what this rank can do without; every rank calls it. Until [`Communicator::resume`] operations are
    /// refused. Addresses stay valid.
    ///
    /// # Errors
    /// `InvalidUsage` when it is suspended already, or shares resources with another communicator; those of [`Communicator::split`].
    pub fn suspend(self: &Arc<Self>) -> Result<()> {
        self.ensure_ready()?;
        self.check_alone("suspended")?;
        if self.memory.is_suspended() {
            return Err(Error::usage("MemManager: Already suspended"));
        }
        let (comm, core, meeting) = (self.clone(), self.core()?.clone(), self.next_barrier()?);
        let run = move || {
            comm.memory.suspended.store(true, Ordering::Release);
            core.drain(None);
            // Afterwards no rank has an operation under way, and none will begin.
            let done = comm.meet(&meeting).and_then(|()| {
                comm.memory.released.store(releasable(&core), Ordering::Release);
                release(&core)
            });
            if done.is_err() {
                comm.memory.suspended.store(false, Ordering::Release);
            }
            done
        };
        group::manage(Job { comm: self.clone(), halt: self.abort.clone(), run: Box::new(run) })
    }

    /// Ends a suspension; every rank calls it. The memory comes back as it is used.
    ///
    /// # Errors
    /// `InvalidUsage` when it is not suspended; those of [`Communicator::split`].
    pub fn resume(self: &Arc<Self>) -> Result<()> {
        self.ensure_ready()?;
        self.check_alone("resumed")?;
        if !self.memory.is_suspended() {
            return Err(Error::usage("MemManager: Not in suspended state"));
        }
        let (comm, meeting) = (self.clone(), self.next_barrier()?);
        let run = move || {
            comm.meet(&meeting)?;
            comm.memory.suspended.store(false, Ordering::Release);
            Ok(())
        };
        group::manage(Job { comm: self.clone(), halt: self.abort.clone(), run: Box::new(run) })
    }

    fn check_alone(&self, what: &str) -> Result<()> {
        if !self.core()?.family.is_shared() {
            return Ok(());
        }
        Err(Error::usage(format!(
            "MemManager: a communicator that shares resources with its parent or a child (splitShare, shrinkShare) cannot \
             be {what}; destroy the other first"
        )))
    }

    /// One number about the memory of this rank of the communicator.
    ///
    /// # Errors
    /// Those of [`Communicator::ensure_ready`].
    pub fn mem_stat(&self, stat: MemStat) -> Result<u64> {
        self.ensure_ready()?;
        let core = self.core()?;
        let suspend = || match self.memory.is_suspended() {
            true => self.memory.released.load(Ordering::Acquire),
            false => releasable(core),
        };
        let persist = || core.hub.persistent(core.me) as u64;
        Ok(match stat {
            MemStat::Suspend => suspend(),
            MemStat::Suspended => u64::from(self.memory.is_suspended()),
            MemStat::Persist => persist(),
            MemStat::Total => suspend() + persist(),
        })
    }
}
