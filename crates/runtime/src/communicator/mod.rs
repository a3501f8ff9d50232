//! Communicators: their life on one rank.
//!
//! What moves data is in `exec`; what brings the ranks together is in `bootstrap`. Here the two meet.

pub(crate) mod core;
pub(crate) mod hub;
mod init;
mod ops;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use oxccl_sys::Deadline;
use oxccl_sys::sync::{AtomicBool, AtomicU32, Ordering};
use oxccl_types::{DataType, Error, Result, ResultCode};

use crate::group;
use crate::request::{OpScalar, Operator, Request};
use crate::{UniqueId, config};
use core::Core;
pub(crate) use init::{Job as InitJob, bootstrap_config, service};

/// Settings of one communicator; `None` leaves the choice to the library.
#[derive(Clone, Debug, Default)]
pub struct CommConfig {
    /// `false`: calls return before they are complete. Not supported yet.
    pub blocking: Option<bool>,
    /// Name for logs.
    pub name: Option<String>,
    /// Fewest channels.
    pub min_ctas: Option<i32>,
    /// Most channels.
    pub max_ctas: Option<i32>,
    /// Network to use.
    pub net_name: Option<String>,
}

const PENDING: u32 = 0;
const READY: u32 = 1;
const FINALIZED: u32 = 2;
const GONE: u32 = 3;

/// One rank's handle on a communicator. Always in an `Arc`.
pub struct Communicator {
    rank: usize,
    ranks: usize,
    device: usize,
    abort: Arc<AtomicBool>,
    state: AtomicU32,
    core: OnceLock<Arc<Core>>,
    init_error: OnceLock<Error>,
    ops: Mutex<ops::Table>,
}

/// How long abort waits for other threads to let go of its operations.
const ABORT_WAIT: Duration = Duration::from_secs(1);

impl Communicator {
    /// Joins a communicator of `ranks` ranks as `rank`, on `device`. Every rank calls it with the same id.
    ///
    /// Inside a group the initialisation runs at the outermost [`group::end`]; until then the communicator is in
    /// progress. `InvalidArgument` for a rank or device out of range; else the errors of the bootstrap.
    pub fn init_rank(
        ranks: i32,
        id: UniqueId,
        rank: i32,
        device: usize,
        config: CommConfig,
        api: &'static str,
    ) -> Result<Arc<Communicator>> {
        if ranks < 1 || rank < 0 || rank >= ranks {
            return Err(Error::argument(format!(
                "Invalid rank requested : {rank}/{ranks} (valid: 0 <= rank < nranks)"
            )));
        }
        if device >= crate::device::count() {
            return Err(Error::argument(format!(
                "device {device} does not exist (there are {})",
                crate::device::count()
            )));
        }
        if config.blocking == Some(false) {
            return Err(Error::usage(
                "nonblocking communicators (blocking = 0) are not supported yet; use blocking = 1",
            ));
        }
        let comm = Arc::new(Communicator {
            rank: rank as usize,
            ranks: ranks as usize,
            device,
            abort: Arc::default(),
            state: AtomicU32::new(PENDING),
            core: OnceLock::new(),
            init_error: OnceLock::new(),
            ops: Mutex::default(),
        });
        let job = init::Job { comm: comm.clone(), id, api, config: config::Config::from_env() };
        group::init(job)?;
        Ok(comm)
    }

    /// One communicator over `devices` of this process, rank `i` on `devices[i]`.
    ///
    /// `InvalidArgument` for a device that does not exist, `InvalidUsage` for one named twice.
    pub fn init_all(devices: &[usize]) -> Result<Vec<Arc<Communicator>>> {
        for (i, d) in devices.iter().enumerate() {
            if *d >= crate::device::count() {
                return Err(Error::argument(format!("Invalid device {d} (totalnDev={})", crate::device::count())));
            }
            if devices[..i].contains(d) {
                return Err(Error::usage(format!("device {d} is named twice in the list of devices")));
            }
        }
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let id = UniqueId::create()?;
        group::start();
        let mut comms = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            let made = Communicator::init_rank(
                devices.len() as i32,
                id.clone(),
                rank as i32,
                *device,
                CommConfig::default(),
                "ncclCommInitAll",
            );
            match made {
                Ok(c) => comms.push(c),
                Err(e) => group::fail(&e),
            }
        }
        group::end()?;
        Ok(comms)
    }

    /// My rank.
    pub fn rank(&self) -> usize {
        self.rank
    }
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }
    /// My device.
    pub fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn core(&self) -> Result<&Arc<Core>> {
        match self.core.get() {
            Some(core) => Ok(core),
            None => Err(self.init_error.get().cloned().unwrap_or_else(not_ready)),
        }
    }

    /// Whether the communicator may be used: `InvalidArgument` while its initialisation is under way, else its error.
    pub fn ensure_ready(&self) -> Result<()> {
        let core = self.core()?;
        if self.state.load(Ordering::Acquire) == GONE {
            return Err(Error::argument("the communicator was destroyed"));
        }
        match core.ended() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// The sticky error; `InProgress` while the initialisation is under way.
    pub fn async_error(&self) -> Result<()> {
        match self.core.get() {
            Some(core) => core.failure().map_or(Ok(()), Err),
            None => Err(self
                .init_error
                .get()
                .cloned()
                .unwrap_or_else(|| Error::new(ResultCode::InProgress, "the initialisation is under way"))),
        }
    }

    /// Waits for outstanding work. Further operations are refused. `InvalidArgument` the second time.
    pub fn finalize(&self) -> Result<()> {
        let core = self.core()?;
        // The larger state stays: a destroyed communicator does not come back to life.
        if self.state.fetch_max(FINALIZED, Ordering::AcqRel) >= FINALIZED {
            return Err(Error::argument("the communicator was finalized before"));
        }
        core.drain(None);
        core.deliver();
        core.leave();
        core.ended().map_or(Ok(()), Err)
    }

    /// Finishes outstanding work and gives everything back. The communicator must not be used afterwards.
    pub fn destroy(&self) -> Result<()> {
        if self.state.swap(GONE, Ordering::AcqRel) == GONE {
            return Err(Error::argument("the communicator has already been destroyed"));
        }
        if let Some(core) = self.core.get() {
            core.drain(None);
            core.deliver();
            core.leave();
        }
        Ok(())
    }

    /// Ends whatever is under way, on this rank at once and on the others soon, and gives everything back.
    /// Works in any state and from any thread.
    pub fn abort(&self) -> Result<()> {
        self.abort.store(true, Ordering::Release);
        if self.state.swap(GONE, Ordering::AcqRel) == GONE {
            // Another thread may wait in `destroy` for an operation that never ends.
            if let Some(core) = self.core.get().filter(|c| !c.is_idle()) {
                core.raise_abort();
            }
            return Ok(());
        }
        if let Some(core) = self.core.get() {
            core.raise_abort();
            core.drain(Some(Deadline::after(ABORT_WAIT)));
            core.leave();
        }
        Ok(())
    }

    fn ops(&self) -> std::sync::MutexGuard<'_, ops::Table> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a `PreMulSum` operator for elements of `dtype`. The value is in `[5, i32::MAX]` and valid for this
    /// communicator only.
    pub fn create_op(&self, scalar: OpScalar, dtype: DataType) -> i32 {
        self.ops().create(scalar, dtype)
    }

    /// Forgets an operator; operations that were submitted with it keep it. `InvalidArgument` for unknown ones.
    pub fn destroy_op(&self, op: i32) -> Result<()> {
        self.ops().destroy(op)
    }

    /// The operator behind `op`. `InvalidArgument` when it is unknown here or was made for another type.
    pub fn find_op(&self, op: i32, dtype: DataType) -> Result<Operator> {
        self.ops().find(op, dtype)
    }

    /// Takes a call: into the thread's group, or at once onto its stream. Returns when it is enqueued.
    ///
    /// # Errors
    /// `InvalidArgument` for a root or peer out of range, a missing buffer or wrong counts; the communicator's error
    /// when it has failed.
    pub fn submit(self: &Arc<Self>, request: Request) -> Result<()> {
        let checked = self.check_request(&request);
        if let Err(e) = checked {
            crate::log::warn(&e.text);
            group::fail(&e);
            return Err(e);
        }
        group::submit(self, request)
    }

    fn check_request(&self, r: &Request) -> Result<()> {
        if self.state.load(Ordering::Acquire) >= FINALIZED {
            return Err(Error::argument(format!("{}: the communicator was finalized or destroyed", r.collective)));
        }
        self.ensure_ready()?;
        init::check_request(self, r)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Dropped without destroy: the peers must not take it for a death.
        if let Some(core) = self.core.get()
            && self.state.load(Ordering::Acquire) != GONE
        {
            core.leave();
        }
    }
}

fn not_ready() -> Error {
    Error::argument("Attempt to use communicator before the previous operation returned ncclSuccess")
}

#[cfg(all(test, not(loom)))]
mod tests;
