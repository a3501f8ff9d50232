//! Requests: what a caller asks of a communicator, before it is planned.

use std::cell::Cell;
use std::ops::Range;

use oxccl_types::{Collective, DataType, ReduceOp, Scalar};

use crate::communicator::hub::UNEVEN_WINDOW;
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

/// The four lists of [`VCounts`], in the same order, as a caller holds them.
pub type VLists<'a> = [&'a [usize]; 4];

thread_local! {
    // Boxes, since tasks hold boxes.
    #[allow(clippy::vec_box)]
    static SPARE: Cell<Vec<Box<VCounts>>> = const { Cell::new(Vec::new()) };
}

/// Lists that a thread keeps: of as many calls as may be under way behind each other.
const SPARES: usize = UNEVEN_WINDOW as usize;

impl VCounts {
    /// The addresses from the first to the last that are read of a send buffer `at`, whose elements have so many bytes.
    pub(crate) fn reads(&self, at: usize, element: usize) -> Range<usize> {
        span(&self.send_counts, &self.send_displs, at, element)
    }

    /// The same that are written of a receive buffer.
    pub(crate) fn writes(&self, at: usize, element: usize) -> Range<usize> {
        span(&self.recv_counts, &self.recv_displs, at, element)
    }

    /// Four lists of one number per rank, in the memory of those that this thread gave back last. Displacements of parts of
    /// nothing become 0.
    pub fn copied(
        send_counts: &[usize],
        send_displs: &[usize],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Box<Self> {
        let take = |spare: &Cell<Vec<Box<VCounts>>>| {
            let mut all = spare.take();
            let last = all.pop();
            spare.set(all);
            last
        };
        let mut counts = SPARE.try_with(take).ok().flatten().unwrap_or_default();
        let fill = |list: &mut Vec<usize>, from: &[usize]| {
            list.clear();
            list.extend_from_slice(from);
        };
        // Where a part of nothing lies means nothing, and may be any number.
        let place = |list: &mut Vec<usize>, displs: &[usize], counts: &[usize]| {
            list.clear();
            list.extend(displs.iter().zip(counts).map(|(displ, count)| if *count == 0 { 0 } else { *displ }));
        };
        fill(&mut counts.send_counts, send_counts);
        place(&mut counts.send_displs, send_displs, send_counts);
        fill(&mut counts.recv_counts, recv_counts);
        place(&mut counts.recv_displs, recv_displs, recv_counts);
        counts
    }

    /// Whether these are the same lists. Parts of nothing that lie elsewhere than at 0 are taken for others.
    pub(crate) fn is(&self, lists: &VLists<'_>) -> bool {
        let own = [&self.send_counts, &self.send_displs, &self.recv_counts, &self.recv_displs];
        own.iter()
            .zip(lists)
            .all(|(own, other)| own.len() == other.len() && own.iter().zip(*other).all(|(a, b)| a == b))
    }

    /// Bytes that are sent and received, of elements of `element` bytes.
    pub(crate) fn bytes(&self, element: usize) -> u64 {
        let (sent, received) = self.lengths(element);
        sent.saturating_add(received)
    }

    /// Bytes that are sent, and those that are received.
    pub(crate) fn lengths(&self, element: usize) -> (u64, u64) {
        let bytes = |all: u64, n: &usize| all.saturating_add(n.saturating_mul(element) as u64);
        (self.send_counts.iter().fold(0, bytes), self.recv_counts.iter().fold(0, bytes))
    }

    /// Keeps the memory of lists that nobody needs any more for the next call of this thread.
    pub(crate) fn recycle(self: Box<Self>) {
        // A thread that is ending has no place for it.
        let _ = SPARE.try_with(|spare| {
            let mut all = spare.take();
            if all.len() < SPARES {
                all.push(self);
            }
            spare.set(all);
        });
    }
}

/// From the first byte to the last of the parts of a buffer `at`.
fn span(counts: &[usize], displs: &[usize], at: usize, element: usize) -> Range<usize> {
    let parts = || counts.iter().zip(displs).filter(|(count, _)| **count > 0);
    let first = parts().map(|(_, displ)| *displ).min().unwrap_or(0);
    let last = parts().map(|(count, displ)| displ.saturating_add(*count)).max().unwrap_or(0);
    at.saturating_add(first.saturating_mul(element))..at.saturating_add(last.saturating_mul(element))
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

/// All that distinguishes one call from another but its buffers, as C gives it: values out of range have a shape too, of
/// which no call was ever made.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Shape {
    words: [u64; 3],
}

impl PartialEq for Shape {
    /// Word by word: a shape is compared just after it was written so, and a longer load would wait for the stores.
    #[inline]
    fn eq(&self, other: &Shape) -> bool {
        let differ = |i: usize| self.words[i] ^ other.words[i];
        differ(0) | differ(1) | differ(2) == 0
    }
}

/// What calls have in common that differ in nothing but count and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind([u64; 2]);

/// What is left of a call beside its [`Kind`], of which several calls of a group are kept side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub send: *const u8,
    pub recv: *mut u8,
    /// Elements per block, not 0.
    pub count: u32,
    /// Which of the kinds it is.
    pub kind: u32,
}

/// Elements of calls that may be small.
const SMALL: u64 = 1 << 16;
/// Elements of calls that may be carried out by the call itself.
const SHORT: u64 = 1 << 19;

impl Kind {
    /// The shape of a call of this kind.
    #[inline]
    pub(crate) fn with_count(self, count: u32) -> Shape {
        Shape { words: [self.0[0], self.0[1], u64::from(count)] }
    }
}

impl Shape {
    /// Whether a call of this shape may be a small collective.
    #[inline]
    pub(crate) fn may_be_small(&self) -> bool {
        self.words[1] >> 32 < Collective::AllToAllV as u64 && self.words[2] <= SMALL
    }

    /// Whether a call of this shape may be a collective that is carried out by the call itself.
    #[inline]
    pub(crate) fn may_be_short(&self) -> bool {
        self.words[1] >> 32 < Collective::AllToAllV as u64 && self.words[2] <= SHORT
    }

    /// Kind and count, where a call of this shape may be small and every rank reads what every other gives.
    #[inline]
    pub(crate) fn among_all(&self) -> Option<(Kind, u32)> {
        const AMONG_ALL: u64 = 1 << Collective::AllReduce as u64
            | 1 << Collective::ReduceScatter as u64
            | 1 << Collective::AllGather as u64
            | 1 << Collective::AllToAll as u64;
        let [a, b, count] = self.words;
        let fits = count.wrapping_sub(1) < SMALL && b >> 32 < u64::from(u64::BITS) && AMONG_ALL >> (b >> 32) & 1 == 1;
        fits.then_some((Kind([a, b]), count as u32))
    }

    /// The shape of a call without a bias and without counts per peer. `dtype` and `op` are the values of the C interface;
    /// `op` is 0 where there is none, and so is `root`.
    #[inline]
    pub fn new(collective: Collective, dtype: i32, op: i32, root: i32, count: usize) -> Shape {
        let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        Shape { words: [pair(dtype as u32, op as u32), pair(collective as u32, root as u32), count as u64] }
    }

    /// The shape of `r`; none for calls with more to them than a shape and two buffers.
    #[inline]
    pub(crate) fn of<S>(r: &Request<S>) -> Option<Shape> {
        let plain = r.v.is_none() && r.bias.is_null();
        match r.op {
            Operator::Builtin(op) if plain && !matches!(op, ReduceOp::PreMulSum(_)) => {
                let root = i32::try_from(r.root).ok()?;
                Some(Shape::new(r.collective, r.dtype as i32, i32::from(op.code()), root, r.count))
            }
            _ => None,
        }
    }

    /// A call of this shape, where every value is in the range that it has with `ranks` ranks and the buffers are there;
    /// `None` for one that must be looked at more closely. Not for user-made operators.
    #[inline]
    pub(crate) fn request(&self, ranks: usize, send: *const u8, recv: *mut u8) -> Option<Request<()>> {
        /// More may not fit into the address space.
        const MOST: u64 = 1 << 40;
        let [a, b, count] = self.words;
        let dtype = DataType::from_c((a >> 32) as i32)?;
        let op = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg].get(a as u32 as usize)?;
        let collective = Collective::from_u8((b >> 32) as u8)?;
        let root = b as u32 as usize;
        if root >= ranks || count > MOST || send.is_null() || recv.is_null() || collective == Collective::AllToAllV {
            return None;
        }
        let (count, op, bias) = (count as usize, Operator::Builtin(*op), std::ptr::null());
        Some(Request { collective, send, recv, count, dtype, op, root, bias, v: None, stream: () })
    }

    /// Its bits, mixed.
    #[inline]
    pub(crate) fn mix(&self) -> u64 {
        let [a, b, c] = self.words;
        (a ^ b.rotate_left(17) ^ c).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }
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
