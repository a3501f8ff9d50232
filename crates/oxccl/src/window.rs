//! Windows and one-sided calls: writing into a peer's memory without a call of the peer, and signals.
//!
//! Semantics are those of `ncclCommWindowRegister`, `ncclPutSignal`, `ncclSignal` and `ncclWaitSignal`. The memory of a
//! window is never seen as a slice, because peers may write it at any time: it is copied in and out.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use oxccl_runtime::{Communicator as Inner, OneSided, OneSidedCall, SignalId, Window as InnerWindow};
use oxccl_types::{Error, Result};

use crate::call::Span;
use crate::stream::no_group;
use crate::{Communicator, DeviceBuffer, Element, Scope, Shared};

/// Which signal of a rank: each pair of ranks has its own counters. The default is signal 0 of context 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Below [`crate::Config::rma_contexts`], which is 1 unless the communicator was made with more.
    pub context: usize,
    /// Below [`Signal::PER_CONTEXT`].
    pub index: usize,
}

impl Signal {
    /// Signals of a context.
    pub const PER_CONTEXT: usize = 8;

    /// Signal `index` of context 0.
    pub fn number(index: usize) -> Signal {
        Signal { context: 0, index }
    }

    fn id(self) -> SignalId {
        SignalId { context: self.context, index: self.index }
    }
}

/// What [`Communicator::wait_signals`] waits for (`ncclWaitSignalDesc_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The rank that raises the signal.
    pub from: usize,
    /// Which.
    pub signal: Signal,
    /// How often, counted from where earlier waits ended; at least 1.
    pub count: u64,
}

/// Memory of every rank of a communicator, into which the others put (`ncclWindow_t`).
///
/// Lengths and offsets are in elements; the parts of the ranks may have different lengths. When a rank may read what a
/// peer put is for signals to say: what is read while a put to it is under way is a mixture.
///
/// ```
/// use oxccl::{Communicator, Signal};
/// let comms = Communicator::init_all(2)?;
/// std::thread::scope(|threads| {
///     for comm in comms {
///         threads.spawn(move || {
///             let window = comm.window::<f32>(4).unwrap();
///             let peer = 1 - comm.rank();
///             comm.put_signal(&window, peer, 1, &[comm.rank() as f32; 2], Signal::default()).unwrap();
///             comm.wait_signal(peer, Signal::default(), 1).unwrap();
///             assert_eq!(window.to_vec(), [0.0, peer as f32, peer as f32, 0.0]);
///         });
///     }
/// });
/// # Ok::<(), oxccl::Error>(())
/// ```
///
/// The window owns its memory; [`Window::close`] returns what that holds. Dropping it ends it on this rank only; puts that
/// come later fail (from other machines) or write into memory that nobody reads any more.
pub struct Window<T: Element> {
    comm: Arc<Inner>,
    inner: Arc<InnerWindow>,
    /// Behind the two above: freed after the window is gone.
    memory: DeviceBuffer<T>,
    /// One thread at a time: elements are copied in and out by plain accesses.
    _stays: PhantomData<Cell<()>>,
}

impl<T: Element> Window<T> {
    /// Elements of this rank's part.
    pub fn len(&self) -> usize {
        self.inner.bytes() / size_of::<T>()
    }

    /// Whether this rank's part has no elements; never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of the part of `rank`, which must exist.
    pub fn len_of(&self, rank: usize) -> usize {
        self.inner.size_of(rank) as usize / size_of::<T>()
    }

    /// Copies elements from `offset` on out of this rank's part.
    ///
    /// Errors: they do not lie in it.
    pub fn read(&self, offset: usize, out: &mut [T]) -> Result<()> {
        self.check(offset, out.len())?;
        self.memory.copy_out(offset, out);
        Ok(())
    }

    /// Copies elements into this rank's part, from `offset` on.
    ///
    /// Errors: they do not lie in it.
    pub fn write(&self, offset: usize, values: &[T]) -> Result<()> {
        self.check(offset, values.len())?;
        self.memory.copy_in(offset, values);
        Ok(())
    }

    /// A copy of this rank's part.
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = vec![T::ZERO; self.len()];
        self.memory.copy_out(0, &mut all);
        all
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(Error::argument(format!("{len} elements at offset {offset} do not lie in a window of {}", self.len())))
    }

    /// Ends the window on all ranks, once all have made this call, and returns what this rank's memory holds
    /// (`ncclCommWindowDeregister`), in a buffer of its own: a peer may still write into the window's memory, which goes with it.
    ///
    /// Errors: `comm` is not the communicator of this window, in which case the others still wait for this rank; no memory for the
    /// buffer; puts of this rank that have not arrived within `OXCCL_OP_TIMEOUT`; those of [`Communicator::barrier`]. The window has
    /// ended all the same.
    pub fn close(self, comm: &Communicator) -> Result<DeviceBuffer<T>> {
        if !Arc::ptr_eq(&self.comm, &comm.inner) {
            return Err(Error::argument("Window::close: the window belongs to another communicator"));
        }
        // Those of this rank are in their places before a peer hears of the barrier, which goes by other connections.
        let delivered = comm.inner.puts_delivered();
        // Also where they have not arrived: the others wait for it.
        comm.barrier()?;
        delivered?;
        let mut buffer = DeviceBuffer::zeroed(self.len())?;
        self.read(0, &mut buffer)?;
        Ok(buffer)
    }
}

impl<T: Element> Drop for Window<T> {
    fn drop(&mut self) {
        // Refused only where the communicator is gone, and the window with it.
        let _ = self.comm.deregister_window(&self.inner);
    }
}

impl<T: Element> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({} elements on rank {})", self.len(), self.inner.rank())
    }
}

impl Communicator {
    /// Makes a window with `len` elements of all-zero bits on this rank; every rank calls it, each with its own length,
    /// which is not 0 (`ncclMemAlloc` and `ncclCommWindowRegister`).
    ///
    /// Errors: as [`Communicator::register`].
    pub fn window<T: Element>(&self, len: usize) -> Result<Window<T>> {
        self.register_alone(DeviceBuffer::alone(len)?)
    }

    /// Makes a window of `buffer` and what the other ranks give; every rank calls it (`ncclCommWindowRegister`). Short
    /// buffers are moved into memory that they share with nothing else.
    ///
    /// Errors: the buffer is empty; a rank is gone or does not come; `NCCL_WIN_ENABLE` is 0. Not allowed inside a group.
    pub fn register<T: Element>(&self, buffer: DeviceBuffer<T>) -> Result<Window<T>> {
        let buffer = if buffer.is_alone() {
            buffer
        } else {
            let mut alone = DeviceBuffer::alone(buffer.len())?;
            alone.copy_from_slice(&buffer);
            alone
        };
        self.register_alone(buffer)
    }

    fn register_alone<T: Element>(&self, buffer: DeviceBuffer<T>) -> Result<Window<T>> {
        no_group("Communicator::register")?;
        let place: Arc<Mutex<Option<Arc<InnerWindow>>>> = Arc::default();
        let put = place.clone();
        let done = Box::new(move |w| *put.lock().unwrap_or_else(PoisonError::into_inner) = w);
        self.inner.register_window(buffer.address().cast(), size_of_val(&*buffer), SYMMETRIC, done)?;
        // The environment may make any communicator nonblocking.
        self.inner.complete()?;
        let inner = place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inner = inner.ok_or_else(|| Error::usage("windows are switched off (NCCL_WIN_ENABLE=0)"))?;
        Ok(Window { comm: self.inner.clone(), inner, memory: buffer, _stays: PhantomData })
    }

    fn one_sided(&self, what: &str, call: OneSidedCall) -> Result<()> {
        no_group(what)?;
        let submitted = self.inner.submit_one_sided(OneSided { call, stream: self.stream.clone() });
        // Wait also after a failure: the caller's borrows end here.
        let finished = self.stream.synchronize();
        submitted.and(finished)
    }

    fn put_with<T: Element>(
        &self,
        window: &Window<T>,
        peer: usize,
        offset: usize,
        values: &[T],
        signal: Option<Signal>,
    ) -> Result<()> {
        self.one_sided("Communicator::put", put(window, peer, offset, values.as_ptr(), values.len(), signal)?)
    }

    /// Writes `values` into the part of `peer`, from `offset` on, and then raises a signal there. The peer makes no call.
    /// Returns when `values` may change; the peer knows that it has them when it sees the signal. Puts and signals to one
    /// peer are seen in the order of the calls (`ncclPutSignal`).
    ///
    /// Errors: the elements do not lie in the peer's part; no such peer or signal; the peer is gone
    /// ([`crate::ResultCode::RemoteError`]).
    pub fn put_signal<T: Element>(
        &self,
        window: &Window<T>,
        peer: usize,
        offset: usize,
        values: &[T],
        signal: Signal,
    ) -> Result<()> {
        self.put_with(window, peer, offset, values, Some(signal))
    }

    /// As [`Communicator::put_signal`] without a signal: a later one tells the peer of this put as well.
    pub fn put<T: Element>(&self, window: &Window<T>, peer: usize, offset: usize, values: &[T]) -> Result<()> {
        self.put_with(window, peer, offset, values, None)
    }

    /// Raises a signal at `peer`, after the puts before it (`ncclSignal`).
    pub fn signal(&self, peer: usize, signal: Signal) -> Result<()> {
        self.one_sided("Communicator::signal", OneSidedCall::Signal { peer, signal: signal.id() })
    }

    /// Waits until `from` has raised the signal `count` times more than earlier waits used up (`ncclWaitSignal`).
    ///
    /// Errors: no such rank or signal; the rank is gone; `OXCCL_OP_TIMEOUT` is over.
    pub fn wait_signal(&self, from: usize, signal: Signal, count: u64) -> Result<()> {
        self.wait_signals(&[Expected { from, signal, count }])
    }

    /// As [`Communicator::wait_signal`], for all of several signals.
    pub fn wait_signals(&self, expected: &[Expected]) -> Result<()> {
        self.one_sided("Communicator::wait_signals", wait(expected))
    }
}

fn put<T: Element>(
    window: &Window<T>,
    peer: usize,
    offset: usize,
    from: *const T,
    len: usize,
    signal: Option<Signal>,
) -> Result<OneSidedCall> {
    let offset = offset.checked_mul(size_of::<T>());
    let offset = offset.ok_or_else(|| Error::argument("an offset in a window is beyond the address space"))?;
    Ok(OneSidedCall::Put {
        window: window.inner.clone(),
        offset,
        from: from.cast(),
        bytes: len * size_of::<T>(),
        peer,
        signal: signal.map(Signal::id),
    })
}

fn wait(expected: &[Expected]) -> OneSidedCall {
    OneSidedCall::Wait(expected.iter().map(|e| (e.from, e.signal.id(), e.count)).collect())
}

/// One-sided calls of a scope. In a [`crate::group`] the puts of a communicator go in order, and its waits do not hold them
/// up.
impl<'scope, 'env> Scope<'scope, 'env> {
    fn one_sided(&self, comm: &Communicator, call: OneSidedCall, reads: Span) -> Result<()> {
        let stream = self.take_part(comm, call.name(), &[(reads, false)])?;
        comm.inner.submit_one_sided(OneSided { call, stream })
    }

    /// As [`Communicator::put_signal`].
    pub fn put_signal<T: Element>(
        &'scope self,
        comm: &Communicator,
        window: &Window<T>,
        peer: usize,
        offset: usize,
        values: impl Into<Shared<'scope, T>>,
        signal: Signal,
    ) -> Result<()> {
        let values = values.into();
        let reads = Span { start: values.ptr.addr(), bytes: values.len * size_of::<T>() };
        self.one_sided(comm, put(window, peer, offset, values.ptr, values.len, Some(signal))?, reads)
    }

    /// As [`Communicator::signal`].
    pub fn signal(&'scope self, comm: &Communicator, peer: usize, signal: Signal) -> Result<()> {
        self.one_sided(comm, OneSidedCall::Signal { peer, signal: signal.id() }, NOTHING)
    }

    /// As [`Communicator::wait_signals`].
    pub fn wait_signals(&'scope self, comm: &Communicator, expected: &[Expected]) -> Result<()> {
        self.one_sided(comm, wait(expected), NOTHING)
    }
}

const NOTHING: Span = Span { start: 0, bytes: 0 };

/// `NCCL_WIN_COLL_SYMMETRIC`.
const SYMMETRIC: u32 = 1;
