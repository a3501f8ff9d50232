//! Communicators: their life on one rank.
//!
//! What moves data is in `exec`; what brings the ranks together is in `bootstrap`. Here the two meet.

mod agreed;
mod child;
pub(crate) mod core;
mod family;
mod flat;
pub(crate) mod hub;
mod init;
mod jobs;
mod memory;
mod ops;
mod settings;
mod team;
pub(crate) mod window;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use oxccl_sys::Deadline;
use oxccl_sys::sync::{AtomicBool, AtomicU32, Ordering};
use oxccl_types::{Collective, DataType, Error, Result, ResultCode};

use crate::UniqueId;
use crate::device::Stream;
use crate::exec::again_v;
use crate::exec::one_sided::{OneSided, OneSidedCall};
use crate::request::{OpScalar, Operator, Request, Shape, VLists};
use crate::{group, log};
pub use agreed::BUILD;
pub use child::Done;
use core::Core;
pub use init::usual_channels;
pub(crate) use init::{bootstrap_config, service};
pub(crate) use jobs::Job;
pub use memory::MemStat;
pub use settings::{CommConfig, most_channels};
pub use team::Team;
pub use window::{Window, WindowDone};

const PENDING: u32 = 0;
const READY: u32 = 1;
const FINALIZED: u32 = 2;
const GONE: u32 = 3;

/// One rank's handle on a communicator. Always in an `Arc`.
pub struct Communicator {
    rank: usize,
    ranks: usize,
    device: usize,
    settings: CommConfig,
    /// Ends the initialisation and other management calls under way.
    abort: Arc<AtomicBool>,
    state: AtomicU32,
    core: OnceLock<Arc<Core>>,
    init_error: OnceLock<Error>,
    ops: Mutex<ops::Table>,
    jobs: jobs::Jobs,
    grow_id: Mutex<child::GrowId>,
    memory: memory::State,
}

/// How long abort waits for other threads to let go of its operations.
const ABORT_WAIT: Duration = Duration::from_secs(1);

impl Communicator {
    /// Joins a communicator of `ranks` ranks as `rank`, on `device`. Every rank calls it with the same id.
    ///
    /// Inside a group the initialisation runs at the outermost [`group::end`]; until then the communicator is in
    /// progress. A nonblocking one is in progress until its ranks have met, which [`Communicator::async_error`] tells. `InvalidArgument` for a rank or device out of range; else the errors of the bootstrap.
    pub fn init_rank(
        ranks: i32,
        id: UniqueId,
        rank: i32,
        device: usize,
        config: CommConfig,
        api: &'static str,
    ) -> Result<Arc<Communicator>> {
        Communicator::init_scalable(ranks, &[id], rank, device, config, api)
    }

    /// As [`Communicator::init_rank`] with several ids, of which every rank has the same list, not longer than there
    /// are ranks. The ids are used up.
    pub fn init_scalable(
        ranks: i32,
        ids: &[UniqueId],
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
        init::check_network(config.net_name.as_deref())?;
        if device >= crate::device::count() {
            return Err(Error::argument(format!(
                "device {device} does not exist (there are {})",
                crate::device::count()
            )));
        }
        let comm =
            Communicator::new(rank as usize, ranks as usize, device, config.resolved(ranks as usize), Arc::default());
        let (joining, ids) = (comm.clone(), ids.to_vec());
        let run = Box::new(move || init::initialise(&joining, &ids, api));
        group::manage(Job { comm: comm.clone(), halt: comm.abort.clone(), run })?;
        Ok(comm)
    }

    fn new(
        rank: usize,
        ranks: usize,
        device: usize,
        settings: CommConfig,
        abort: Arc<AtomicBool>,
    ) -> Arc<Communicator> {
        Arc::new(Communicator {
            rank,
            ranks,
            device,
            settings,
            abort,
            state: AtomicU32::new(PENDING),
            core: OnceLock::new(),
            init_error: OnceLock::new(),
            ops: Mutex::default(),
            jobs: jobs::Jobs::default(),
            grow_id: Mutex::default(),
            memory: memory::State::default(),
        })
    }

    /// One communicator over `devices` of this process, rank `i` on `devices[i]`.
    ///
    /// They are in progress within a group, and where the environment makes communicators nonblocking.
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
        match group::end() {
            // The environment makes them nonblocking.
            Err(e) if e.code != ResultCode::InProgress => Err(e),
            _ => Ok(comms),
        }
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

    #[inline]
    pub(crate) fn core(&self) -> Result<&Arc<Core>> {
        match self.core.get() {
            Some(core) => Ok(core),
            None => Err(self.init_error.get().cloned().unwrap_or_else(not_ready)),
        }
    }

    /// Whether the communicator may be used and takes operations, seen at a glance; if not, the other calls say why.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.takes_calls() && self.core.get().is_some_and(|core| core.is_well())
    }

    /// The same of one whose [`core`](Self::core) was looked at in this group before, and is again when that ends.
    #[inline]
    pub(crate) fn takes_calls(&self) -> bool {
        self.state.load(Ordering::Acquire) < FINALIZED
            && !self.jobs.running()
            && !self.jobs.has_failed()
            && !self.memory.is_suspended()
    }

    /// Whether the communicator may be used: `InvalidArgument` while its initialisation is under way, else its error.
    pub fn ensure_ready(&self) -> Result<()> {
        if self.jobs.running() {
            return Err(not_ready());
        }
        let core = self.core()?;
        if self.state.load(Ordering::Acquire) == GONE {
            return Err(Error::argument("the communicator was destroyed"));
        }
        match core.ended().or_else(|| self.jobs.error()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Whether management calls return when they are complete.
    pub fn is_blocking(&self) -> bool {
        self.settings.blocking != Some(false)
    }

    /// Waits until no nonblocking call is under way; the error of the first that failed.
    pub fn complete(&self) -> Result<()> {
        self.jobs.wait(Duration::MAX);
        self.jobs.error().map_or(Ok(()), Err)
    }

    /// The sticky error; `InProgress` while the initialisation or another management call is under way.
    pub fn async_error(&self) -> Result<()> {
        if self.jobs.running() {
            return Err(Error::new(ResultCode::InProgress, "a nonblocking call is under way"));
        }
        match self.core.get() {
            Some(core) => core.failure().or_else(|| self.jobs.error()).map_or(Ok(()), Err),
            None => Err(self
                .init_error
                .get()
                .cloned()
                .unwrap_or_else(|| Error::new(ResultCode::InProgress, "the initialisation is under way"))),
        }
    }

    /// The error of the first call of this rank that failed after it was enqueued, which nobody takes away by asking for it: errors of a
    /// stream go to who waits for it first.
    pub fn failed_call(&self) -> Option<Error> {
        self.core.get().and_then(|core| core.failed_call())
    }

    /// Its initialisation will not take place, or not come to an end, because of `error`; nothing of one that is ready.
    fn stillborn(&self, error: &Error) {
        if self.core.get().is_none() {
            // The first error stays.
            let _ = self.init_error.set(error.clone());
        }
    }

    /// Waits for outstanding work. Further operations are refused. `InvalidArgument` the second time and for a revoked
    /// communicator (`InvalidUsage` there in `librccl.so.1`).
    pub fn finalize(self: &Arc<Self>) -> Result<()> {
        if self.jobs.running() {
            return Err(not_ready());
        }
        let core = self.core()?.clone();
        // NCCL takes a revoked communicator for a finalized one, RCCL documents another code.
        if core.is_revoked() && log::flavour() == log::Flavour::Rccl {
            return Err(Error::usage("a revoked communicator cannot be finalized; destroy or abort it"));
        }
        // The larger state stays: a destroyed communicator does not come back to life.
        if core.is_revoked() || self.state.fetch_max(FINALIZED, Ordering::AcqRel) >= FINALIZED {
            return Err(Error::argument("the communicator was finalized or revoked before"));
        }
        let run = move || {
            core.drain(None);
            // An error stays with the communicator.
            let _ = core.settle();
            core.deliver();
            core.leave();
            core.ended().map_or(Ok(()), Err)
        };
        group::manage(Job { comm: self.clone(), halt: self.abort.clone(), run: Box::new(run) })
    }

    /// Finishes outstanding work and gives everything back. The communicator must not be used afterwards.
    pub fn destroy(&self) -> Result<()> {
        if self.state.swap(GONE, Ordering::AcqRel) == GONE {
            return Err(Error::argument("the communicator has already been destroyed"));
        }
        self.jobs.wait(Duration::MAX);
        self.drop_grow_id();
        if let Some(core) = self.core.get() {
            // What was revoked ends by itself, unless its stream is held up by something else.
            core.drain(core.is_revoked().then(|| Deadline::after(ABORT_WAIT)));
            // An error is logged where it is found.
            let _ = core.settle();
            core.deliver();
            core.leave();
        }
        Ok(())
    }

    /// Ends whatever is under way, on this rank at once and on the others soon, and gives everything back.
    /// Works in any state and from any thread.
    pub fn abort(&self) -> Result<()> {
        self.abort.store(true, Ordering::Release);
        let ended = self.state.swap(GONE, Ordering::AcqRel) == GONE;
        self.end(ended);
        // Last: it may take a moment.
        self.drop_grow_id();
        Ok(())
    }

    /// The work of [`abort`](Self::abort); `ended`: the communicator was destroyed or aborted before, or another thread is at it.
    fn end(&self, ended: bool) {
        if ended {
            // Another thread may wait in `destroy` for an operation that never ends.
            if let Some(core) = self.core.get().filter(|c| !c.is_idle() || self.jobs.running()) {
                core.raise_abort();
                // Who returns may free memory.
                self.jobs.wait(ABORT_WAIT);
                core.drain(Some(Deadline::after(ABORT_WAIT)));
            }
            return;
        }
        if let Some(core) = self.core.get() {
            core.raise_abort();
            self.jobs.wait(ABORT_WAIT);
            core.drain(Some(Deadline::after(ABORT_WAIT)));
            core.leave();
        }
        self.jobs.wait(ABORT_WAIT);
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

    /// Makes a call of `shape` with these buffers, where that takes no second look: as the last small one of its shape was
    /// made, or by recording it in the open group. Returns when it is enqueued; `false`: nothing was done, and the call
    /// must be submitted. `Send` and `Recv` give their memory as both buffers and the peer as the root.
    // Not inlined: the whole way of the call is to be compiled here, in one piece.
    #[inline(never)]
    pub fn again(self: &Arc<Self>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
        match group::depth() {
            0 => self.again_now(shape, send, recv, stream),
            _ => self.record(shape, send, recv, stream),
        }
    }

    /// [`again`](Self::again) where a group is open.
    // As for `again`.
    #[inline(never)]
    pub fn record(self: &Arc<Self>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
        self.is_usable() && group::record(self, shape, send, recv, stream)
    }

    /// [`again`](Self::again) where no group is open.
    #[inline]
    pub fn again_now(&self, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
        match self.core.get() {
            Some(core) if self.takes_calls() => group::again(core, shape, send, recv, stream),
            _ => false,
        }
    }

    /// Whether an AlltoAllv of this type with these lists may be [one that was made before](Self::again_v).
    #[inline]
    pub fn may_repeat(&self, dtype: DataType, lists: &VLists<'_>) -> bool {
        self.core.get().is_some_and(|core| again_v::may_be_kept(core, dtype, lists[0]))
            && group::depth() == 0
            && self.is_usable()
    }

    /// Makes an AlltoAllv as the last one was made that had this type and these lists, for which
    /// [`may_repeat`](Self::may_repeat) holds. Neither buffer is null. `false`: nothing was done, and the call must be submitted.
    // As for `again`.
    #[inline(never)]
    pub fn again_v(
        &self,
        dtype: DataType,
        lists: &VLists<'_>,
        send: *const u8,
        recv: *mut u8,
        stream: &Stream,
    ) -> bool {
        self.core.get().is_some_and(|core| again_v::run(core, dtype, lists, (send, recv), stream))
    }

    /// Takes a call: into the thread's group, or at once onto its stream. Returns when it is enqueued.
    ///
    /// # Errors
    /// `InvalidArgument` for a root or peer out of range, a missing buffer or wrong counts; the communicator's error
    /// when it has failed.
    pub fn submit(self: &Arc<Self>, request: Request) -> Result<()> {
        if let Some(shape) = Shape::of(&request)
            && self.again(&shape, request.send, request.recv, &request.stream)
        {
            return Ok(());
        }
        let (stream, rest) = request.split();
        self.submit_on(rest.on(&stream))
    }

    /// [`submit`](Self::submit) with a borrowed stream: a small call that is over at once then never counts it.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_on(self: &Arc<Self>, request: Request<&Stream>) -> Result<()> {
        let checked = self.check_request(&request);
        if let Err(e) = checked {
            crate::log::warn(&e.text);
            group::fail(&e);
            return Err(e);
        }
        group::submit(self, request)
    }

    /// Takes a one-sided call: into the thread's group, or at once onto its stream. Returns when it is enqueued.
    ///
    /// # Errors
    /// `InvalidArgument` for a peer, context, signal or window that does not exist, or bytes outside of the peer's
    /// part; the communicator's error when it has failed.
    pub fn submit_one_sided(self: &Arc<Self>, request: OneSided) -> Result<()> {
        let checked = self.check_one_sided(&request.call);
        if let Err(e) = checked {
            crate::log::warn(&e.text);
            group::fail(&e);
            return Err(e);
        }
        group::submit_one_sided(self, request)
    }

    #[inline]
    fn check_request<S>(&self, r: &Request<S>) -> Result<()> {
        let plain = r.v.is_none() && r.collective != Collective::AllToAllV && r.root < self.ranks && r.count <= PLAIN;
        let sends = !r.send.is_null() || r.collective == Collective::Recv;
        let receives = !r.recv.is_null() || r.collective == Collective::Send;
        if plain && sends && receives && self.is_usable() {
            return Ok(());
        }
        self.check_request_closely(r)
    }

    fn check_request_closely<S>(&self, r: &Request<S>) -> Result<()> {
        self.check_usable(r.collective.name())?;
        init::check_request(self, r)
    }

    /// Why `call` may not be made, if the communicator is not [usable](Self::is_usable).
    pub(crate) fn check_usable(&self, call: &str) -> Result<()> {
        if self.state.load(Ordering::Acquire) >= FINALIZED {
            return Err(Error::argument(format!("{call}: the communicator was finalized or destroyed")));
        }
        self.ensure_ready()?;
        if self.core()?.is_revoked() {
            return Err(Error::usage(format!("{call}: communicator was revoked")));
        }
        if self.memory.is_suspended() {
            return Err(Error::usage(format!("{call}: communicator is suspended; call ncclCommResume first")));
        }
        Ok(())
    }

    /// Why the call may not be made, if so.
    pub(crate) fn check_one_sided(&self, call: &OneSidedCall) -> Result<()> {
        self.check_usable(call.name())?;
        let core = self.core()?;
        call.check(core, self.rma_contexts(), |w| self.has_window(core, w))
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

/// Elements of a call that is not looked at closely: as many of the longest type fit memory for each of any number of ranks.
const PLAIN: usize = 1 << 32;

fn not_ready() -> Error {
    Error::argument("Attempt to use communicator before the previous operation returned ncclSuccess")
}

#[cfg(all(test, not(loom)))]
mod tests;
