//! From slices to a checked call: sizes, roots, operators and overlap, for every front end alike.
//!
//! Pure arithmetic on addresses and lengths; it never reads or writes through them.

use std::marker::PhantomData;

use oxccl_runtime::{Operator, VCounts};
use oxccl_types::{Collective, DataType, Error, ReduceOp, Result};

use crate::Element;

/// Memory that a call reads: address and length of a slice that is borrowed for `'scope`.
///
/// Made from `&[T]`, `&[T; N]`, `&Vec<T>`, `&DeviceBuffer<T>` or a [`Lent`]. Copies are allowed, several calls may
/// read the same memory.
pub struct Shared<'scope, T> {
    pub(crate) ptr: *const T,
    pub(crate) len: usize,
    brand: PhantomData<&'scope mut &'scope [T]>,
}

/// Memory that a call writes: address and length of a slice that is mutably borrowed for `'scope`.
///
/// Made from `&mut [T]`, `&mut [T; N]`, `&mut Vec<T>` or `&mut DeviceBuffer<T>`. It may be copied, so that a later
/// call of the same scope reads what an earlier one wrote: the calls of one stream run in order. It fits no other
/// scope, whose calls would not be ordered with those of this one:
///
/// ```compile_fail,E0521
/// # use oxccl::{Communicator, DeviceBuffer, ReduceOp, Stream};
/// # let comm = Communicator::init_all(1)?.remove(0);
/// let (first, second) = (Stream::on(0)?, Stream::on(0)?);
/// let mut x = DeviceBuffer::<f32>::zeroed(8)?;
/// first.scope(|a| {
///     let x = a.lend(&mut x);
///     second.scope(|b| b.all_reduce_in_place(&comm, x, ReduceOp::Sum))
/// })?;
/// # Ok::<(), oxccl::Error>(())
/// ```
pub struct Lent<'scope, T> {
    pub(crate) ptr: *mut T,
    pub(crate) len: usize,
    brand: PhantomData<&'scope mut &'scope mut [T]>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}
impl<T> Clone for Lent<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Lent<'_, T> {}

impl<T> Shared<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements `range`. Panics where a slice would.
    pub fn slice(self, range: std::ops::Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is outside 0..{}", self.len);
        let ptr = self.ptr.wrapping_add(range.start);
        Shared { ptr, len: range.end - range.start, brand: PhantomData }
    }

    pub(crate) fn span(&self) -> Span {
        Span { start: self.ptr as usize, bytes: self.len * size_of::<T>() }
    }
}

impl<'scope, T> Lent<'scope, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements `range`. Panics where a slice would.
    pub fn slice(self, range: std::ops::Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is outside 0..{}", self.len);
        let ptr = self.ptr.wrapping_add(range.start);
        Lent { ptr, len: range.end - range.start, brand: PhantomData }
    }

    /// The same memory, to be read by a later call.
    pub fn shared(self) -> Shared<'scope, T> {
        Shared { ptr: self.ptr, len: self.len, brand: PhantomData }
    }

    pub(crate) fn span(&self) -> Span {
        self.shared().span()
    }
}

impl<'scope, T> From<&'scope [T]> for Shared<'scope, T> {
    fn from(s: &'scope [T]) -> Self {
        Shared { ptr: s.as_ptr(), len: s.len(), brand: PhantomData }
    }
}
impl<'scope, T> From<&'scope mut [T]> for Lent<'scope, T> {
    fn from(s: &'scope mut [T]) -> Self {
        Lent { ptr: s.as_mut_ptr(), len: s.len(), brand: PhantomData }
    }
}
impl<'scope, T> From<Lent<'scope, T>> for Shared<'scope, T> {
    fn from(s: Lent<'scope, T>) -> Self {
        s.shared()
    }
}

macro_rules! from_slices {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<'scope, $($generics)*> From<&'scope $type> for Shared<'scope, T> {
            fn from(s: &'scope $type) -> Self {
                Shared::from(&s[..])
            }
        }
        impl<'scope, $($generics)*> From<&'scope mut $type> for Lent<'scope, T> {
            fn from(s: &'scope mut $type) -> Self {
                Lent::from(&mut s[..])
            }
        }
    )*};
}
from_slices! {
    [T] Vec<T>;
    [T, const N: usize] [T; N];
    [T: Element] crate::DeviceBuffer<T>;
}

/// A range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub start: usize,
    pub bytes: usize,
}

impl Span {
    pub fn overlaps(&self, other: &Span) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.start < other.start + other.bytes
            && other.start < self.start + self.bytes
    }
}

/// Who calls: the place of a rank among the ranks.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub rank: usize,
    pub ranks: usize,
}

/// A call whose sizes fit.
pub(crate) struct Call {
    pub collective: Collective,
    pub send: *const u8,
    pub recv: *mut u8,
    pub count: usize,
    pub dtype: DataType,
    pub op: Operator,
    pub root: usize,
    pub v: Option<Box<VCounts>>,
    /// What is read and what is written, for the overlap checks.
    pub reads: Span,
    pub writes: Span,
}

impl Call {
    fn new<T: Element>(collective: Collective, send: Shared<'_, T>, recv: Lent<'_, T>, count: usize) -> Call {
        Call {
            collective,
            send: send.ptr.cast(),
            recv: recv.ptr.cast(),
            count,
            dtype: T::DATA_TYPE,
            op: Operator::Builtin(ReduceOp::Sum),
            root: 0,
            v: None,
            reads: send.span(),
            writes: recv.span(),
        }
    }

    /// Input and output must be apart, or the output must lie where the in-place form of the call wants it:
    /// `offset` bytes after the start of the input (before it where negative).
    fn in_place_at(self, offset: isize) -> Result<Call> {
        if !self.reads.overlaps(&self.writes) || self.writes.start == self.reads.start.wrapping_add_signed(offset) {
            return Ok(self);
        }
        Err(Error::argument(format!(
            "{}: the output overlaps the input (input at {:#x}, {} bytes; output at {:#x}, {} bytes); they must be apart{}",
            self.collective,
            self.reads.start,
            self.reads.bytes,
            self.writes.start,
            self.writes.bytes,
            if offset == isize::MAX { "" } else { ", or placed as the in-place form of the call asks" }
        )))
    }

    fn apart(self) -> Result<Call> {
        self.in_place_at(isize::MAX)
    }

    fn with_op(mut self, op: ReduceOp) -> Result<Call> {
        if let ReduceOp::PreMulSum(s) = op
            && s.dtype != self.dtype
        {
            return Err(Error::argument(format!(
                "{}: the factor of the operator is of type {}, the elements are of type {}; make the operator with \
                 pre_mul_sum of the elements' type",
                self.collective, s.dtype, self.dtype
            )));
        }
        self.op = Operator::Builtin(op);
        Ok(self)
    }

    fn with_root(mut self, at: Place, root: usize) -> Result<Call> {
        check_rank(self.collective, "root", at, root)?;
        self.root = root;
        Ok(self)
    }
}

fn check_rank(collective: Collective, what: &str, at: Place, rank: usize) -> Result<()> {
    if rank < at.ranks {
        return Ok(());
    }
    Err(Error::argument(format!(
        "{collective}: {what} {rank} is not a rank; there are {} (0 to {})",
        at.ranks,
        at.ranks - 1
    )))
}

/// `have` must be `want`; `rule` says in words what `want` is.
fn check_len(collective: Collective, which: &str, have: usize, want: usize, rule: &str) -> Result<()> {
    if have == want {
        return Ok(());
    }
    Err(Error::argument(format!("{collective}: {which} has {have} elements and must have {want} ({rule})")))
}

fn times(collective: Collective, count: usize, ranks: usize) -> Result<usize> {
    count.checked_mul(ranks).ok_or_else(|| {
        Error::argument(format!("{collective}: {count} elements times {ranks} ranks is beyond the address space"))
    })
}

fn nothing<'scope, T>() -> Lent<'scope, T> {
    Lent { ptr: std::ptr::null_mut(), len: 0, brand: PhantomData }
}

pub(crate) fn all_reduce<T: Element>(_: Place, send: Shared<'_, T>, recv: Lent<'_, T>, op: ReduceOp) -> Result<Call> {
    let c = Collective::AllReduce;
    check_len(c, "recv", recv.len, send.len, "as many as send")?;
    Call::new(c, send, recv, send.len).with_op(op)?.in_place_at(0)
}

pub(crate) fn broadcast<T: Element>(at: Place, buf: Lent<'_, T>, root: usize) -> Result<Call> {
    Call::new(Collective::Broadcast, buf.shared(), buf, buf.len).with_root(at, root)
}

pub(crate) fn reduce<T: Element>(
    at: Place,
    send: Shared<'_, T>,
    recv: Lent<'_, T>,
    op: ReduceOp,
    root: usize,
) -> Result<Call> {
    let c = Collective::Reduce;
    check_rank(c, "root", at, root)?;
    let recv = if at.rank == root { recv } else { nothing() };
    if at.rank == root {
        check_len(c, "recv of the root", recv.len, send.len, "as many as send")?;
    }
    Call::new(c, send, recv, send.len).with_op(op)?.with_root(at, root)?.in_place_at(0)
}

pub(crate) fn reduce_scatter<T: Element>(
    at: Place,
    send: Shared<'_, T>,
    recv: Lent<'_, T>,
    op: ReduceOp,
) -> Result<Call> {
    let c = Collective::ReduceScatter;
    check_len(c, "send", send.len, times(c, recv.len, at.ranks)?, "recv's length times the number of ranks")?;
    let offset = at.rank * recv.len * size_of::<T>();
    Call::new(c, send, recv, recv.len).with_op(op)?.in_place_at(offset as isize)
}

pub(crate) fn all_gather<T: Element>(at: Place, send: Shared<'_, T>, recv: Lent<'_, T>) -> Result<Call> {
    let c = Collective::AllGather;
    check_len(c, "recv", recv.len, times(c, send.len, at.ranks)?, "send's length times the number of ranks")?;
    let offset = at.rank * send.len * size_of::<T>();
    Call::new(c, send, recv, send.len).in_place_at(-(offset as isize))
}

pub(crate) fn gather<T: Element>(at: Place, send: Shared<'_, T>, recv: Lent<'_, T>, root: usize) -> Result<Call> {
    let c = Collective::Gather;
    check_rank(c, "root", at, root)?;
    let recv = if at.rank == root { recv } else { nothing() };
    if at.rank == root {
        let want = times(c, send.len, at.ranks)?;
        check_len(c, "recv of the root", recv.len, want, "send's length times the number of ranks")?;
    }
    let offset = at.rank * send.len * size_of::<T>();
    Call::new(c, send, recv, send.len).with_root(at, root)?.in_place_at(-(offset as isize))
}

pub(crate) fn scatter<T: Element>(at: Place, send: Shared<'_, T>, recv: Lent<'_, T>, root: usize) -> Result<Call> {
    let c = Collective::Scatter;
    check_rank(c, "root", at, root)?;
    let send = if at.rank == root { send } else { nothing().shared() };
    if at.rank == root {
        let want = times(c, recv.len, at.ranks)?;
        check_len(c, "send of the root", send.len, want, "recv's length times the number of ranks")?;
    }
    let offset = at.rank * recv.len * size_of::<T>();
    Call::new(c, send, recv, recv.len).with_root(at, root)?.in_place_at(offset as isize)
}

pub(crate) fn all_to_all<T: Element>(at: Place, send: Shared<'_, T>, recv: Lent<'_, T>) -> Result<Call> {
    let c = Collective::AllToAll;
    check_len(c, "recv", recv.len, send.len, "as many as send")?;
    if !send.len.is_multiple_of(at.ranks) {
        return Err(Error::argument(format!(
            "{c}: send has {} elements, which is no multiple of the {} ranks; every rank gets a block of equal length",
            send.len, at.ranks
        )));
    }
    Call::new(c, send, recv, send.len / at.ranks).apart()
}

/// Where blocks of `counts` lie when they follow one another, and how long they are together.
fn displacements(which: &str, at: Place, counts: &[usize], len: usize) -> Result<Vec<usize>> {
    let c = Collective::AllToAllV;
    check_len(c, &format!("{which}_counts"), counts.len(), at.ranks, "one per rank")?;
    let mut end = 0usize;
    let mut starts = Vec::with_capacity(counts.len());
    for count in counts {
        starts.push(end);
        end = end
            .checked_add(*count)
            .ok_or_else(|| Error::argument(format!("{c}: the sum of {which}_counts is beyond the address space")))?;
    }
    check_len(c, which, len, end, &format!("the sum of {which}_counts"))?;
    Ok(starts)
}

pub(crate) fn all_to_all_v<T: Element>(
    at: Place,
    send: Shared<'_, T>,
    send_counts: &[usize],
    recv: Lent<'_, T>,
    recv_counts: &[usize],
) -> Result<Call> {
    let v = VCounts {
        send_displs: displacements("send", at, send_counts, send.len)?,
        recv_displs: displacements("recv", at, recv_counts, recv.len)?,
        send_counts: send_counts.to_vec(),
        recv_counts: recv_counts.to_vec(),
    };
    let mut call = Call::new(Collective::AllToAllV, send, recv, 0);
    call.v = Some(Box::new(v));
    call.apart()
}

pub(crate) fn send<T: Element>(at: Place, data: Shared<'_, T>, to: usize) -> Result<Call> {
    let mut call = Call::new(Collective::Send, data, nothing(), data.len);
    check_rank(call.collective, "receiver", at, to)?;
    call.root = to;
    Ok(call)
}

pub(crate) fn recv<T: Element>(at: Place, data: Lent<'_, T>, from: usize) -> Result<Call> {
    let mut call = Call::new(Collective::Recv, nothing().shared(), data, data.len);
    check_rank(call.collective, "sender", at, from)?;
    call.root = from;
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Place = Place { rank: 1, ranks: 4 };

    fn text(r: Result<Call>) -> String {
        r.map(|_| ()).expect_err("the call must be refused").into_text()
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused_with_the_rule() {
        let (a, mut b) = ([0_i32; 8], [0_i32; 9]);
        let t = text(all_reduce(AT, (&a).into(), (&mut b).into(), ReduceOp::Sum));
        assert_eq!(t, "AllReduce: recv has 9 elements and must have 8 (as many as send)");
        let t = text(all_gather(AT, (&a).into(), (&mut b).into()));
        assert_eq!(t, "AllGather: recv has 9 elements and must have 32 (send's length times the number of ranks)");
        let t = text(all_to_all(AT, Shared::from(&a[..6]), Lent::from(&mut b[..6])));
        assert!(t.contains("no multiple of the 4 ranks"), "{t}");
        let t = text(all_to_all_v(AT, (&a).into(), &[2, 2, 2, 1], (&mut b).into(), &[9, 0, 0, 0]));
        assert_eq!(t, "AlltoAllv: send has 8 elements and must have 7 (the sum of send_counts)");
        let t = text(all_to_all_v(AT, (&a).into(), &[8], (&mut b).into(), &[9, 0, 0, 0]));
        assert_eq!(t, "AlltoAllv: send_counts has 1 elements and must have 4 (one per rank)");
    }

    #[test]
    fn ranks_out_of_range_are_refused() {
        let mut b = [0_u8; 4];
        assert!(text(broadcast(AT, (&mut b).into(), 4)).contains("root 4 is not a rank; there are 4 (0 to 3)"));
        assert!(text(send(AT, (&b).into(), 9)).contains("receiver 9"));
    }

    #[test]
    fn only_the_root_needs_the_long_buffer() {
        let (a, mut b) = ([0_u8; 4], [0_u8; 0]);
        assert!(gather(AT, (&a).into(), (&mut b).into(), 0).is_ok());
        assert!(gather(AT, (&a).into(), (&mut b).into(), 1).is_err());
        assert!(reduce(AT, (&a).into(), (&mut b).into(), ReduceOp::Sum, 0).is_ok());
    }

    #[test]
    fn overlap_is_allowed_only_in_place() {
        let mut b = [0_u32; 16];
        let all = Lent::from(&mut b);
        let sum = ReduceOp::Sum;
        assert!(all_reduce(AT, all.shared(), all, sum).is_ok());
        assert!(all_reduce(AT, all.slice(0..8).shared(), all.slice(4..12), sum).is_err());
        assert!(all_gather(AT, all.slice(4..8).shared(), all).is_ok());
        assert!(all_gather(AT, all.slice(0..4).shared(), all).is_err());
        assert!(reduce_scatter(AT, all.shared(), all.slice(4..8), sum).is_ok());
        assert!(reduce_scatter(AT, all.shared(), all.slice(8..12), sum).is_err());
        assert!(all_to_all(AT, all.shared(), all).is_err());
    }

    #[test]
    fn factor_of_another_type_is_refused() {
        let mut b = [0_u32; 4];
        let b = Lent::from(&mut b);
        assert!(text(all_reduce(AT, b.shared(), b, crate::pre_mul_sum(1.0_f32))).contains("pre_mul_sum"));
    }
}
