//! Chapter "collectives": from C arguments to a checked request.
//!
//! The order of the checks and the beginning of their texts are those of the original. In the good case nothing here
//! allocates, locks or formats.

use crate::abi::*;
use crate::entry::{Failure, Outcome, remember};
use crate::handle::{self, InUse};
use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::group::Names;
use oxccl_runtime::{Communicator, Operator, Request, Shape, VCounts, group};
use oxccl_types::{Collective, DataType, Error, ReduceOp, ResultCode};
use std::ptr::null;
use std::sync::Arc;

/// One call as C made it. `count` is per block.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) collective: Collective,
    pub(crate) send: *const c_void,
    pub(crate) recv: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) op: Option<ncclRedOp_t>,
    /// The root, or the peer of `Send` and `Recv`.
    pub(crate) root: Option<c_int>,
    pub(crate) bias: *const c_void,
    pub(crate) comm: ncclComm_t,
    pub(crate) stream: Stream_t,
}

impl Call {
    /// A call without operator, root and bias.
    #[allow(clippy::too_many_arguments)] // as many as the C function has
    pub(crate) fn new(
        name: &'static str,
        collective: Collective,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        datatype: ncclDataType_t,
        comm: ncclComm_t,
        stream: Stream_t,
    ) -> Call {
        Call { name, collective, send, recv, count, datatype, op: None, root: None, bias: null(), comm, stream }
    }

    pub(crate) fn op(mut self, op: ncclRedOp_t) -> Call {
        self.op = Some(op);
        self
    }

    pub(crate) fn root(mut self, root: c_int) -> Call {
        self.root = Some(root);
        self
    }

    pub(crate) fn bias(mut self, bias: *const c_void) -> Call {
        self.bias = bias;
        self
    }

    /// Checks and enqueues. A failure is remembered in the thread's group.
    #[inline]
    pub(crate) fn submit(self) -> Outcome {
        if self.again() { Ok(()) } else { self.submit_anew() }
    }

    /// [`submit`](Call::submit), not compiled into the caller, which has a shorter way for most of its calls.
    #[inline(never)]
    pub(crate) fn submit_out_of_line(self) -> Outcome {
        self.submit()
    }

    #[inline(never)]
    fn submit_anew(self) -> Outcome {
        remember(self.checked_submit(|_, _| Ok(None)))
    }

    /// Makes the call where that takes no second look: as the last one of its shape was made, or by recording it in the
    /// open group.
    #[inline]
    fn again(&self) -> bool {
        let (send, recv) = match self.collective {
            Collective::Send => (self.send, self.send.cast_mut()),
            Collective::Recv => (self.recv.cast_const(), self.recv),
            _ => (self.send, self.recv),
        };
        if !self.bias.is_null() {
            return false;
        }
        let (op, root) = (self.op.unwrap_or(0), self.root.unwrap_or(0));
        let shape = Shape::new(self.collective, self.datatype, op, root, self.count);
        again(&shape, send.cast(), recv.cast(), self.comm, self.stream)
    }

    /// As [`Call::submit`] for an AlltoAllv: with four `lists` per peer, of which `counts` makes its own once the number of ranks
    /// is known, unless the call is made as the last one was.
    #[inline(always)]
    pub(crate) fn submit_v(
        self,
        lists: [*const usize; 4],
        counts: impl FnOnce(&Call, &InUse) -> Outcome<Option<Box<VCounts>>>,
    ) -> Outcome {
        let again = handle::enter(self.comm).is_some_and(|communicator| self.again_v(&communicator, lists));
        if again { Ok(()) } else { self.submit_v_anew(counts) }
    }

    #[inline(never)]
    fn submit_v_anew(self, counts: impl FnOnce(&Call, &InUse) -> Outcome<Option<Box<VCounts>>>) -> Outcome {
        remember(self.checked_submit(counts))
    }

    /// Makes an AlltoAllv as the communicator's last one was made, if it had this type and the same `lists`.
    fn again_v(&self, communicator: &InUse, lists: [*const usize; 4]) -> bool {
        let missing = self.send.is_null() || self.recv.is_null() || lists.iter().any(|list| list.is_null());
        let Some(dtype) = DataType::from_c(self.datatype).filter(|_| !missing) else { return false };
        let ranks = communicator.ranks();
        // SAFETY: not null; the caller promises one number per rank, which stays as it is during the call.
        let lists = lists.map(|list| unsafe { std::slice::from_raw_parts(list, ranks) });
        communicator.may_repeat(dtype, &lists)
            && with_stream(communicator, self.stream, |stream| {
                communicator.again_v(dtype, &lists, self.send.cast(), self.recv.cast(), stream)
            })
    }

    #[inline]
    fn checked_submit(self, counts: impl FnOnce(&Call, &InUse) -> Outcome<Option<Box<VCounts>>>) -> Outcome {
        let communicator = handle::check(self.name, self.comm)?;
        self.submit_in(communicator, counts)
    }

    #[inline]
    fn submit_in(
        self,
        communicator: InUse,
        counts: impl FnOnce(&Call, &InUse) -> Outcome<Option<Box<VCounts>>>,
    ) -> Outcome {
        if !communicator.is_usable() {
            communicator.ensure_ready()?;
        }
        let root = self.check_root(communicator.ranks())?;
        let dtype = DataType::from_c(self.datatype).ok_or_else(|| invalid_type(self.name, self.datatype))?;
        let op = self.operator(&communicator, dtype)?;
        let v = counts(&self, &communicator)?;
        self.check_buffers(&communicator, root, dtype)?;
        self.on_stream(&communicator, |stream| {
            communicator.submit_on(Request {
                collective: self.collective,
                send: self.send.cast(),
                recv: self.recv.cast(),
                count: self.count,
                dtype,
                op,
                root,
                bias: self.bias.cast(),
                v,
                stream,
            })
        })
    }

    #[inline]
    fn on_stream(&self, communicator: &InUse, f: impl FnOnce(&Stream) -> oxccl_types::Result<()>) -> Outcome {
        Ok(Stream::with_raw_or(self.stream, || special(communicator, self.stream), f)??)
    }

    fn check_root(&self, ranks: usize) -> Outcome<usize> {
        let Some(root) = self.root else { return Ok(0) };
        match usize::try_from(root) {
            Ok(r) if r < ranks => Ok(r),
            _ => Err(invalid_root(self.name, self.collective, root, ranks)),
        }
    }

    fn operator(&self, communicator: &InUse, dtype: DataType) -> Outcome<Operator> {
        let Some(op) = self.op else { return Ok(Operator::Builtin(ReduceOp::Sum)) };
        Ok(Operator::Builtin(match op {
            0 => ReduceOp::Sum,
            1 => ReduceOp::Prod,
            2 => ReduceOp::Max,
            3 => ReduceOp::Min,
            4 => ReduceOp::Avg,
            ..0 => return Err(invalid_op(self.name, op)),
            _ => return communicator.find_op(op, dtype).map_err(|error| named(self.name, error)),
        }))
    }

    /// Null buffers (the original would fault later) and sizes beyond the address space.
    fn check_buffers(&self, communicator: &InUse, root: usize, dtype: DataType) -> Outcome {
        if self.count == 0 {
            return Ok(());
        }
        let at_root = communicator.rank() == root;
        let (sends, receives) = match self.collective {
            Collective::Broadcast | Collective::Scatter => (at_root, true),
            Collective::Reduce | Collective::Gather => (true, at_root),
            Collective::Send => (true, false),
            Collective::Recv => (false, true),
            _ => (true, true),
        };
        if sends && self.send.is_null() {
            return Err(null_buffer(self.name, "sendbuff", self.count));
        }
        if receives && self.recv.is_null() {
            return Err(null_buffer(self.name, "recvbuff", self.count));
        }
        self.check_bias(dtype)?;
        let ranks = communicator.ranks();
        let blocks = self.collective.input_blocks(ranks).max(self.collective.output_blocks(ranks));
        match self.count.checked_mul(dtype.size()).and_then(|bytes| bytes.checked_mul(blocks)) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
            _ => Err(too_large(self.name, self.count, dtype, blocks)),
        }
    }

    /// The bias is read when the output has been written.
    fn check_bias(&self, dtype: DataType) -> Outcome {
        let bytes = self.count.saturating_mul(dtype.size());
        let (bias, output) = (self.bias.addr(), self.recv.addr());
        if self.bias.is_null() || bias.abs_diff(output) >= bytes {
            return Ok(());
        }
        Err(Failure::argument(
            "ncclAllReduceWithBias : acc overlaps recvbuff, which is written before acc is added: one of them needs memory of its own",
        ))
    }
}

/// The part of [`Call::again`] that is the same for all functions.
fn again(shape: &Shape, send: *const u8, recv: *mut u8, comm: ncclComm_t, stream: Stream_t) -> bool {
    if group::depth() > 0 {
        return record(shape, send, recv, comm, stream);
    }
    with_handles(comm, stream, |communicator, stream| communicator.again_now(shape, send, recv, stream))
}

/// Records a send or receive in the open group, if it is the next one of messages that a group before made as well.
#[inline(always)]
pub(crate) fn record_again(
    collective: Collective,
    buffer: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> bool {
    let Some(names) = names(comm, stream) else { return false };
    group::record_again(names, &Shape::new(collective, datatype, 0, peer, count), buffer.cast())
}

/// The names of a communicator that can be used now and of a stream.
#[inline(always)]
fn names(comm: ncclComm_t, stream: Stream_t) -> Option<Names> {
    // What comes on the default stream is looked at while streams capture.
    if stream.addr() <= 1 && device::is_any_capturing() {
        return None;
    }
    handle::name(comm).map(|communicator| Names { communicator, stream: stream.addr(), handle: comm.addr() })
}

/// [`again`] in an open group: the call is recorded there.
fn record(shape: &Shape, send: *const u8, recv: *mut u8, comm: ncclComm_t, stream: Stream_t) -> bool {
    let Some(names) = names(comm, stream) else { return false };
    group::record_like(names, shape, send, recv) || record_anew(names, shape, send, recv, comm, stream)
}

#[inline(never)]
fn record_anew(
    names: Names,
    shape: &Shape,
    send: *const u8,
    recv: *mut u8,
    comm: ncclComm_t,
    stream: Stream_t,
) -> bool {
    let recorded = with_handles(comm, stream, |communicator, stream| {
        // Another thread may have ended the communicator, and the handle have gone to the next one.
        names.communicator == Arc::as_ptr(communicator).addr() && communicator.record(shape, send, recv, stream)
    });
    // The streams 1 and 2 are other ones on another device.
    if recorded && !matches!(names.stream, 1 | 2) {
        group::name(names, shape);
    }
    recorded
}

/// What `f` says of the communicator and the stream; `false` where one of them is not usable.
#[inline(always)]
fn with_handles(comm: ncclComm_t, stream: Stream_t, f: impl FnOnce(&Arc<Communicator>, &Stream) -> bool) -> bool {
    let Some(communicator) = handle::enter(comm) else { return false };
    with_stream(&communicator, stream, |stream| f(&communicator, stream))
}

/// The same of the stream alone.
#[inline(always)]
fn with_stream(communicator: &InUse, stream: Stream_t, f: impl FnOnce(&Stream) -> bool) -> bool {
    Stream::with_raw_or(stream, || special(communicator, stream), f).unwrap_or(false)
}

/// The stream that null, 1 or 2 stands for: not the default stream when it would have to wait for one that captures.
#[inline]
pub(crate) fn special(communicator: &InUse, stream: Stream_t) -> oxccl_types::Result<Stream> {
    if stream.addr() <= 1 && device::implicates_capture(communicator.device()) {
        return Err(implicit());
    }
    Ok(Stream::special_of(communicator.device(), stream))
}

#[cold]
fn implicit() -> Error {
    Error::new(
        ResultCode::UnhandledDeviceError,
        "a call on the default stream would wait for a stream that captures; its capture is broken. Make the call on a stream \
         of your own, or capture on one that was made as non-blocking",
    )
}

#[cold]
fn invalid_root(name: &str, collective: Collective, root: c_int, ranks: usize) -> Failure {
    let what = if matches!(collective, Collective::Send | Collective::Recv) { "peer" } else { "root" };
    Failure::argument(format!(
        "{name} : invalid root {root} (root should be in the 0..{ranks} range): the {what} must be a rank of the \
         communicator, 0 to {}",
        ranks - 1
    ))
}

#[cold]
pub(crate) fn invalid_type(name: &str, datatype: ncclDataType_t) -> Failure {
    Failure::argument(format!("{name} : invalid type {datatype}. Types are in 0..{}", DataType::ALL.len() - 1))
}

#[cold]
fn invalid_op(name: &str, op: ncclRedOp_t) -> Failure {
    Failure::argument(format!(
        "{name} : invalid reduction operation {op}. Built-in operations are in 0..4; others are made by \
         ncclRedOpCreatePreMulSum"
    ))
}

/// The operation's name before a text that does not know it; a type that does not match has a text of its own.
#[cold]
fn named(name: &str, error: Error) -> Failure {
    if error.text.starts_with("reduction operation") {
        return Failure::new(error.code, format!("{name} : {}", error.text));
    }
    error.into()
}

#[cold]
pub(crate) fn null_buffer(name: &str, buffer: &str, count: usize) -> Failure {
    Failure::argument(format!("{name} : {buffer} argument is NULL, but count is {count}"))
}

#[cold]
fn too_large(name: &str, count: usize, dtype: DataType, blocks: usize) -> Failure {
    Failure::argument(format!(
        "{name} : count {count} is too large: {blocks} x {count} elements of {dtype} exceed the address space"
    ))
}

#[allow(clippy::too_many_arguments)] // as many as the C function has
#[inline]
pub unsafe fn reduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Reduce", Collective::Reduce, sendbuff, recvbuff, count, datatype, comm, stream)
        .op(op)
        .root(root)
        .submit()
}

#[inline]
pub unsafe fn bcast(
    buff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Broadcast", Collective::Broadcast, buff, buff, count, datatype, comm, stream).root(root).submit()
}

#[inline]
pub unsafe fn broadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Broadcast", Collective::Broadcast, sendbuff, recvbuff, count, datatype, comm, stream).root(root).submit()
}

#[inline]
pub unsafe fn all_reduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("AllReduce", Collective::AllReduce, sendbuff, recvbuff, count, datatype, comm, stream).op(op).submit()
}

#[inline]
pub unsafe fn reduce_scatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("ReduceScatter", Collective::ReduceScatter, sendbuff, recvbuff, recvcount, datatype, comm, stream)
        .op(op)
        .submit()
}

#[inline]
pub unsafe fn all_gather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("AllGather", Collective::AllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream).submit()
}

#[inline]
pub unsafe fn all_to_all(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("AlltoAll", Collective::AllToAll, sendbuff, recvbuff, count, datatype, comm, stream).submit()
}

#[inline]
pub unsafe fn gather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Gather", Collective::Gather, sendbuff, recvbuff, count, datatype, comm, stream).root(root).submit()
}

#[inline]
pub unsafe fn scatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Scatter", Collective::Scatter, sendbuff, recvbuff, count, datatype, comm, stream).root(root).submit()
}
