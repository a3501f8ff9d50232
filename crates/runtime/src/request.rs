//! Requests: what a caller asks of a communicator, before it is planned.

use oxccl_types::{Collective, DataType, ReduceOp, Scalar};

use crate::device::Stream;

/// The operator of a request.
#[derive(Clone, Copy, Debug)]
pub enum Operator {
    /// One of the built-in operators, or a `PreMulSum` whose factor was read when it was made.
    Builtin(ReduceOp),
    /// A `PreMulSum` whose factor is read from memory when the operation starts.
    PreMulDevice(*const u8),
}

/// Where the factor of a user-made operator comes from.
#[derive(Clone, Copy, Debug)]
pub enum OpScalar {
    /// One element, little endian, in the first bytes.
    Host([u8; 8]),
    /// Address of one element, read when an operation starts.
    Device(*const u8),
}

impl OpScalar {
    pub(crate) fn operator(self, dtype: DataType) -> Operator {
        match self {
            OpScalar::Host(bytes) => Operator::Builtin(ReduceOp::PreMulSum(Scalar { dtype, bytes })),
            OpScalar::Device(p) => Operator::PreMulDevice(p),
        }
    }
}

/// Counts and displacements of `AllToAllV`, in elements, one per rank.
#[derive(Clone, Debug, Default)]
pub struct VCounts {
    /// Elements for each peer.
    pub send_counts: Vec<usize>,
    /// Where they start in the send buffer.
    pub send_displs: Vec<usize>,
    /// Elements from each peer.
    pub recv_counts: Vec<usize>,
    /// Where they go in the receive buffer.
    pub recv_displs: Vec<usize>,
}

/// One call on one communicator. Pointers are the caller's: they stay valid until the stream has done the work.
///
/// `S` is the stream that orders the work: the request's own, or a borrowed one for as long as it is being submitted.
#[derive(Clone, Debug)]
pub struct Request<S = Stream> {
    /// What is asked.
    pub collective: Collective,
    /// Send buffer; may be null where the rank sends nothing.
    pub send: *const u8,
    /// Receive buffer; may be null where the rank receives nothing.
    pub recv: *mut u8,
    /// Elements per block, as in the C interface.
    pub count: usize,
    /// Element type.
    pub dtype: DataType,
    /// Operator of reductions.
    pub op: Operator,
    /// Root; the peer of `Send` and `Recv`.
    pub root: usize,
    /// Local addend of `AllReduceWithBias`, else null.
    pub bias: *const u8,
    /// Counts of `AllToAllV`.
    pub v: Option<Box<VCounts>>,
    /// The stream that orders the work.
    pub stream: S,
}

impl<S> Request<S> {
    /// The stream, and the rest.
    #[inline]
    pub(crate) fn split(self) -> (S, Request<()>) {
        let Request { collective, send, recv, count, dtype, op, root, bias, v, stream } = self;
        (stream, Request { collective, send, recv, count, dtype, op, root, bias, v, stream: () })
    }
}

impl Request<()> {
    /// The request on `stream`.
    #[inline]
    pub(crate) fn on<S>(self, stream: S) -> Request<S> {
        let Request { collective, send, recv, count, dtype, op, root, bias, v, stream: () } = self;
        Request { collective, send, recv, count, dtype, op, root, bias, v, stream }
    }
}

impl Request<&Stream> {
    /// The same with a stream of its own.
    pub(crate) fn into_owned(self) -> Request {
        let (stream, rest) = self.split();
        rest.on(stream.clone())
    }
}

// SAFETY: a request only carries the caller's pointers; who submits it promises that the memory may be used from
// whichever thread runs the stream.
unsafe impl Send for Request {}
