//! The C interface of the library, as this program uses it: the only place that names its functions.
//!
//! Everything else in the program calls the checked wrappers below, so that a change of where the functions come from
//! touches this file alone. It holds no state and knows nothing of measuring.

use std::ffi::{CStr, c_char, c_int, c_void};

use anyhow::{Result, anyhow};
use oxccl_types::DataType;

/// The C functions themselves: this program carries the library, in RCCL's flavour because that has AlltoAllv.
mod library {
    oxccl_capi::export!(rccl);
}

/// The functions as the C header declares them.
mod sys {
    use super::*;

    /// `ncclUniqueId`, passed by value.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct UniqueId {
        pub internal: [u8; 128],
    }

    type Comm = *mut c_void;
    type Stream = *mut c_void;

    unsafe extern "C" {
        pub fn ncclGetVersion(version: *mut c_int) -> c_int;
        pub fn ncclGetUniqueId(id: *mut UniqueId) -> c_int;
        pub fn ncclCommInitRank(comm: *mut Comm, nranks: c_int, id: UniqueId, rank: c_int) -> c_int;
        pub fn ncclCommSplit(comm: Comm, color: c_int, key: c_int, new: *mut Comm, config: *mut c_void) -> c_int;
        pub fn ncclCommDestroy(comm: Comm) -> c_int;
        pub fn ncclGetLastError(comm: Comm) -> *const c_char;
        pub fn ncclGetErrorString(code: c_int) -> *const c_char;
        pub fn ncclGroupStart() -> c_int;
        pub fn ncclGroupEnd() -> c_int;
        pub fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> c_int;
        pub fn ncclMemFree(ptr: *mut c_void) -> c_int;
        pub fn ncclCommRegister(comm: Comm, buff: *mut c_void, size: usize, handle: *mut *mut c_void) -> c_int;
        pub fn ncclCommDeregister(comm: Comm, handle: *mut c_void) -> c_int;
        pub fn ncclCommWindowRegister(
            comm: Comm,
            buff: *mut c_void,
            size: usize,
            win: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
        pub fn ncclCommWindowDeregister(comm: Comm, win: *mut c_void) -> c_int;
        pub fn ncclRedOpCreatePreMulSum(
            op: *mut c_int,
            scalar: *mut c_void,
            dtype: c_int,
            residence: c_int,
            comm: Comm,
        ) -> c_int;
        pub fn ncclRedOpDestroy(op: c_int, comm: Comm) -> c_int;
        pub fn ncclAllReduce(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            op: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclReduce(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            op: c_int,
            root: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclReduceScatter(
            send: *const c_void,
            recv: *mut c_void,
            recvcount: usize,
            dtype: c_int,
            op: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclBroadcast(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            root: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclAllGather(
            send: *const c_void,
            recv: *mut c_void,
            sendcount: usize,
            dtype: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclAlltoAll(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclAlltoAllv(
            send: *const c_void,
            sendcounts: *const usize,
            sdispls: *const usize,
            recv: *mut c_void,
            recvcounts: *const usize,
            rdispls: *const usize,
            dtype: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclGather(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            root: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclScatter(
            send: *const c_void,
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            root: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclSend(
            send: *const c_void,
            count: usize,
            dtype: c_int,
            peer: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn ncclRecv(
            recv: *mut c_void,
            count: usize,
            dtype: c_int,
            peer: c_int,
            comm: Comm,
            stream: Stream,
        ) -> c_int;
        pub fn oxcclGetDeviceCount(count: *mut c_int) -> c_int;
        pub fn oxcclSetDevice(device: c_int) -> c_int;
        pub fn oxcclStreamCreate(stream: *mut Stream) -> c_int;
        pub fn oxcclStreamSynchronize(stream: Stream) -> c_int;
        pub fn oxcclStreamDestroy(stream: Stream) -> c_int;
    }
}

pub use sys::UniqueId;

/// A communicator handle. The library allows its use from any thread, one at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comm(*mut c_void);

/// A stream handle; same rule as [`Comm`].
#[derive(Clone, Copy)]
pub struct Stream(*mut c_void);

/// A registration or window handle.
#[derive(Clone, Copy)]
pub struct Registration(*mut c_void);

// SAFETY: opaque handles; the library's calls take them from any thread, and this program never uses one from two
// threads at a time.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Registration {}

impl Comm {
    /// No communicator: for errors that belong to none.
    pub const NONE: Comm = Comm(std::ptr::null_mut());
}

/// One call's buffers and place.
#[derive(Clone, Copy)]
pub struct Site {
    /// Send buffer.
    pub send: *const u8,
    /// Receive buffer.
    pub recv: *mut u8,
    /// Element type.
    pub dtype: DataType,
    /// The rank's communicator.
    pub comm: Comm,
    /// The rank's stream.
    pub stream: Stream,
}

fn text(ptr: *const c_char) -> String {
    if ptr.is_null() {
        return String::new();
    }
    // SAFETY: the library returns a NUL-terminated string that lives at least until its next call on this thread.
    unsafe { CStr::from_ptr(ptr) }.to_string_lossy().trim().to_owned()
}

/// `Ok` for `ncclSuccess`, else the call's name, the code's text and the library's last error.
fn check(code: c_int, call: &str, comm: Comm) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both take any value; a null communicator is allowed.
    let (what, last) = unsafe { (text(sys::ncclGetErrorString(code)), text(sys::ncclGetLastError(comm.0))) };
    if last.is_empty() {
        return Err(anyhow!("{call} failed: {what} ({code})"));
    }
    Err(anyhow!("{call} failed: {what} ({code}): {last}"))
}

fn c(v: usize) -> Result<c_int> {
    c_int::try_from(v).map_err(|_| anyhow!("{v} does not fit the C interface's int"))
}

/// The library's version code.
pub fn version() -> Result<i32> {
    let mut v = 0;
    // SAFETY: `v` is valid for the write.
    check(unsafe { sys::ncclGetVersion(&mut v) }, "ncclGetVersion", Comm::NONE)?;
    Ok(v)
}

/// A new unique id; its root runs in this process unless `NCCL_COMM_ID` names another.
pub fn unique_id() -> Result<UniqueId> {
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: `id` is valid for the write.
    check(unsafe { sys::ncclGetUniqueId(&mut id) }, "ncclGetUniqueId", Comm::NONE)?;
    Ok(id)
}

/// A place for `comm_init_rank` to write to: inside a group it is filled when the group ends.
pub struct CommSlot(Box<*mut c_void>);

impl CommSlot {
    /// The communicator, once the call (or its group) has ended.
    pub fn get(&self) -> Comm {
        // SAFETY: the box is alive; the library has finished writing when the group ended. Read as volatile because the
        // library wrote through a pointer that it kept.
        Comm(unsafe { std::ptr::read_volatile(&*self.0) })
    }
}

/// Starts the initialisation of `rank` of `nranks`.
pub fn comm_init_rank(nranks: usize, id: &UniqueId, rank: usize) -> Result<CommSlot> {
    let mut slot = CommSlot(Box::new(std::ptr::null_mut()));
    let (n, r) = (c(nranks)?, c(rank)?);
    // SAFETY: the slot's box stays where it is until the caller drops it, after the group's end.
    check(unsafe { sys::ncclCommInitRank(&mut *slot.0, n, *id, r) }, "ncclCommInitRank", Comm::NONE)?;
    Ok(slot)
}

/// Makes a communicator of the ranks of `comm` that ask for the same `color`, in the order of `key`.
pub fn comm_split(comm: Comm, color: usize, key: usize) -> Result<CommSlot> {
    let mut slot = CommSlot(Box::new(std::ptr::null_mut()));
    let (color, key) = (c(color)?, c(key)?);
    let config = std::ptr::null_mut();
    // SAFETY: as for `comm_init_rank`; no config means the parent's.
    check(unsafe { sys::ncclCommSplit(comm.0, color, key, &mut *slot.0, config) }, "ncclCommSplit", comm)?;
    Ok(slot)
}

/// Destroys a communicator.
pub fn comm_destroy(comm: Comm) -> Result<()> {
    // SAFETY: `comm` came from `comm_init_rank` and is not used again.
    check(unsafe { sys::ncclCommDestroy(comm.0) }, "ncclCommDestroy", Comm::NONE)
}

/// Opens a group.
pub fn group_start() -> Result<()> {
    // SAFETY: no arguments.
    check(unsafe { sys::ncclGroupStart() }, "ncclGroupStart", Comm::NONE)
}

/// Closes a group; errors of its calls come out here.
pub fn group_end(comm: Comm) -> Result<()> {
    // SAFETY: no arguments.
    check(unsafe { sys::ncclGroupEnd() }, "ncclGroupEnd", comm)
}

/// Memory of the current device.
pub fn mem_alloc(bytes: usize) -> Result<*mut u8> {
    let mut p = std::ptr::null_mut();
    // SAFETY: `p` is valid for the write.
    check(unsafe { sys::ncclMemAlloc(&mut p, bytes) }, "ncclMemAlloc", Comm::NONE)?;
    Ok(p.cast())
}

/// Frees what [`mem_alloc`] gave.
pub fn mem_free(p: *mut u8) -> Result<()> {
    // SAFETY: `p` came from `mem_alloc` and is not used again.
    check(unsafe { sys::ncclMemFree(p.cast()) }, "ncclMemFree", Comm::NONE)
}

/// Registers a buffer of this rank.
pub fn register(comm: Comm, p: *mut u8, bytes: usize) -> Result<Registration> {
    let mut h = std::ptr::null_mut();
    // SAFETY: `p` is valid for `bytes` until `deregister`.
    check(unsafe { sys::ncclCommRegister(comm.0, p.cast(), bytes, &mut h) }, "ncclCommRegister", comm)?;
    Ok(Registration(h))
}

/// Ends [`register`].
pub fn deregister(comm: Comm, h: Registration) -> Result<()> {
    // SAFETY: `h` came from `register` and is not used again.
    check(unsafe { sys::ncclCommDeregister(comm.0, h.0) }, "ncclCommDeregister", comm)
}

/// A place for `window_register` to write to, filled when the group ends.
pub struct WindowSlot(Box<*mut c_void>);

impl WindowSlot {
    /// The window, once the call (or its group) has ended.
    pub fn get(&self) -> Registration {
        // SAFETY: as in `CommSlot::get`.
        Registration(unsafe { std::ptr::read_volatile(&*self.0) })
    }
}

/// Registers a symmetric window; every rank must call it.
pub fn window_register(comm: Comm, p: *mut u8, bytes: usize) -> Result<WindowSlot> {
    const NCCL_WIN_COLL_SYMMETRIC: c_int = 1;
    let mut slot = WindowSlot(Box::new(std::ptr::null_mut()));
    // SAFETY: `p` is valid for `bytes` until `window_deregister`; the slot's box stays where it is.
    let code = unsafe { sys::ncclCommWindowRegister(comm.0, p.cast(), bytes, &mut *slot.0, NCCL_WIN_COLL_SYMMETRIC) };
    check(code, "ncclCommWindowRegister", comm)?;
    Ok(slot)
}

/// Ends [`window_register`].
pub fn window_deregister(comm: Comm, h: Registration) -> Result<()> {
    // SAFETY: `h` came from `window_register` and is not used again.
    check(unsafe { sys::ncclCommWindowDeregister(comm.0, h.0) }, "ncclCommWindowDeregister", comm)
}

/// An operator that multiplies this rank's elements by `scalar` (the bytes of one element) before the sum.
pub fn redop_premulsum(comm: Comm, scalar: [u8; 8], dtype: DataType) -> Result<i32> {
    const NCCL_SCALAR_HOST_IMMEDIATE: c_int = 1;
    let (mut op, mut bytes) = (0, scalar);
    // SAFETY: the scalar is read before the call returns (host immediate); `op` is valid for the write.
    let code = unsafe {
        sys::ncclRedOpCreatePreMulSum(
            &mut op,
            bytes.as_mut_ptr().cast(),
            dtype as c_int,
            NCCL_SCALAR_HOST_IMMEDIATE,
            comm.0,
        )
    };
    check(code, "ncclRedOpCreatePreMulSum", comm)?;
    Ok(op)
}

/// Ends [`redop_premulsum`].
pub fn redop_destroy(comm: Comm, op: i32) -> Result<()> {
    // SAFETY: plain values; the library checks them.
    check(unsafe { sys::ncclRedOpDestroy(op, comm.0) }, "ncclRedOpDestroy", comm)
}

/// Number of devices of this process.
pub fn device_count() -> Result<usize> {
    let mut n = 0;
    // SAFETY: `n` is valid for the write.
    check(unsafe { sys::oxcclGetDeviceCount(&mut n) }, "oxcclGetDeviceCount", Comm::NONE)?;
    Ok(usize::try_from(n).unwrap_or(0))
}

/// Makes `device` the calling thread's device.
pub fn set_device(device: usize) -> Result<()> {
    let d = c(device)?;
    // SAFETY: a plain value; the library checks it.
    check(unsafe { sys::oxcclSetDevice(d) }, "oxcclSetDevice", Comm::NONE)
}

/// A stream of the current device.
pub fn stream_create() -> Result<Stream> {
    let mut s = std::ptr::null_mut();
    // SAFETY: `s` is valid for the write.
    check(unsafe { sys::oxcclStreamCreate(&mut s) }, "oxcclStreamCreate", Comm::NONE)?;
    Ok(Stream(s))
}

/// Waits for the stream's work.
pub fn stream_synchronize(s: Stream, comm: Comm) -> Result<()> {
    // SAFETY: `s` came from `stream_create`.
    check(unsafe { sys::oxcclStreamSynchronize(s.0) }, "oxcclStreamSynchronize", comm)
}

/// Destroys a stream.
pub fn stream_destroy(s: Stream) -> Result<()> {
    // SAFETY: `s` came from `stream_create` and is not used again.
    check(unsafe { sys::oxcclStreamDestroy(s.0) }, "oxcclStreamDestroy", Comm::NONE)
}

/// The calls that move data. Buffers must hold what the collective's rules ask for until the stream has been
/// synchronised.
impl Site {
    fn parts(&self) -> (*const c_void, *mut c_void, c_int, *mut c_void, *mut c_void) {
        (self.send.cast(), self.recv.cast(), self.dtype as c_int, self.comm.0, self.stream.0)
    }

    /// `ncclAllReduce`.
    pub fn all_reduce(&self, count: usize, op: i32) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        // SAFETY: the site's buffers are valid for the collective (its contract).
        check(unsafe { sys::ncclAllReduce(s, r, count, t, op, comm, stream) }, "ncclAllReduce", self.comm)
    }

    /// `ncclReduce`.
    pub fn reduce(&self, count: usize, op: i32, root: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        let root = c(root)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclReduce(s, r, count, t, op, root, comm, stream) }, "ncclReduce", self.comm)
    }

    /// `ncclReduceScatter`.
    pub fn reduce_scatter(&self, count: usize, op: i32) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclReduceScatter(s, r, count, t, op, comm, stream) }, "ncclReduceScatter", self.comm)
    }

    /// `ncclBroadcast`.
    pub fn broadcast(&self, count: usize, root: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        let root = c(root)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclBroadcast(s, r, count, t, root, comm, stream) }, "ncclBroadcast", self.comm)
    }

    /// `ncclAllGather`.
    pub fn all_gather(&self, count: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclAllGather(s, r, count, t, comm, stream) }, "ncclAllGather", self.comm)
    }

    /// `ncclAlltoAll`.
    pub fn alltoall(&self, count: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclAlltoAll(s, r, count, t, comm, stream) }, "ncclAlltoAll", self.comm)
    }

    /// `ncclAlltoAllv`; the four slices have one entry per rank, in elements.
    pub fn alltoallv(&self, scnt: &[usize], sdis: &[usize], rcnt: &[usize], rdis: &[usize]) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        // SAFETY: as in `all_reduce`; the slices have one entry per rank and are read before the call returns.
        let code = unsafe {
            sys::ncclAlltoAllv(s, scnt.as_ptr(), sdis.as_ptr(), r, rcnt.as_ptr(), rdis.as_ptr(), t, comm, stream)
        };
        check(code, "ncclAlltoAllv", self.comm)
    }

    /// `ncclGather`.
    pub fn gather(&self, count: usize, root: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        let root = c(root)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclGather(s, r, count, t, root, comm, stream) }, "ncclGather", self.comm)
    }

    /// `ncclScatter`.
    pub fn scatter(&self, count: usize, root: usize) -> Result<()> {
        let (s, r, t, comm, stream) = self.parts();
        let root = c(root)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclScatter(s, r, count, t, root, comm, stream) }, "ncclScatter", self.comm)
    }

    /// `ncclSend` of `count` elements at `self.send`.
    pub fn send(&self, count: usize, peer: usize) -> Result<()> {
        let (s, _, t, comm, stream) = self.parts();
        let peer = c(peer)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclSend(s, count, t, peer, comm, stream) }, "ncclSend", self.comm)
    }

    /// `ncclRecv` of `count` elements to `self.recv`.
    pub fn recv(&self, count: usize, peer: usize) -> Result<()> {
        let (_, r, t, comm, stream) = self.parts();
        let peer = c(peer)?;
        // SAFETY: as in `all_reduce`.
        check(unsafe { sys::ncclRecv(r, count, t, peer, comm, stream) }, "ncclRecv", self.comm)
    }
}
