//! Moves between user memory of processes that have not mapped each other's: the kernel copies what lies in another
//! process, in pieces that stay in the core's cache until they are combined or passed on.
//!
//! It knows addresses and processes; which memory may be touched when is the program's, `direct`'s and `lent_v`'s.

use std::os::fd::{BorrowedFd, RawFd};

use oxccl_kernels as kernels;
use oxccl_kernels::{Post, RedOp};
use oxccl_types::{DataType, Error, Result};

/// The process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub rank: u32,
    /// Its number here.
    pub pid: u32,
    /// A handle that tells of its end; open as long as the spots in use.
    pub handle: RawFd,
}

/// Memory of a rank: an address here, or in the process of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub at: *mut u8,
    /// In whose process `at` is an address; `None`: it is one here.
    pub far: Option<Owner>,
}

/// How the sources become one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combination {
    pub dtype: DataType,
    pub op: RedOp,
    pub post: Post,
}

impl Spot {
    pub(super) const NONE: Spot = Spot { at: std::ptr::null_mut(), far: None };

    /// An address here.
    pub(super) const fn near(at: *mut u8) -> Spot {
        Spot { at, far: None }
    }

    /// The spot `bytes` further.
    pub(super) fn add(self, bytes: usize) -> Spot {
        // `wrapping_add`: the address may be one of another process, or of an empty buffer.
        Spot { at: self.at.wrapping_add(bytes), ..self }
    }
}

/// Bytes of all pieces that lie in the bounce memory at a time: with the piece's other operands they fit a second-level
/// cache.
const BOUNCE: usize = 256 << 10;
/// Least bytes of a piece: below, the system calls cost more than what the cache saves.
const LEAST_PIECE: usize = 16 << 10;

/// Memory of this process where pieces lie between the kernel's copies and the reduction. Made on first use.
#[derive(Default)]
pub(super) struct Bounce(Vec<Line>);

/// Its unit.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

impl Bounce {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<Line>()
    }

    /// Gives the memory back.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// `slots` pieces and the bytes of each, a multiple of a cache line.
    fn pieces(&mut self, slots: usize) -> (*mut u8, usize) {
        let piece = (BOUNCE / slots.max(1)).max(LEAST_PIECE) & !63;
        let lines = piece * slots / size_of::<Line>();
        if self.0.len() < lines {
            self.0.resize(lines, Line { _bytes: [0; 64] });
        }
        (self.0.as_mut_ptr().cast(), piece)
    }
}

/// What moves need besides their operands: the bounce memory, and lists of addresses with room for all operands.
pub(super) struct Desk<'a> {
    pub bounce: &'a mut Bounce,
    /// The buffers of all ranks fit the caches.
    pub cached: bool,
    /// Bytes of the transfer of which this is a part.
    pub whole: usize,
    pub from: &'a mut Vec<*const u8>,
    pub to: &'a mut Vec<*mut u8>,
}

/// Combines `count` elements of `srcs` into all `dsts`; a single source is copied.
///
/// # Safety
/// All spots are valid for `count` elements, for writing at `dsts`, and nobody else accesses them meanwhile but to read
/// `srcs`. A source is a destination, or overlaps none.
///
/// # Errors
/// A rank that can no longer be reached is named.
pub(super) unsafe fn run(
    how: Combination,
    desk: &mut Desk<'_>,
    srcs: &[Spot],
    dsts: &[Spot],
    count: usize,
) -> Result<()> {
    let element = how.dtype.size();
    if let [src] = *srcs {
        // SAFETY: the caller's promise.
        return unsafe { copy(desk, src, dsts, count * element) };
    }
    let slots = srcs.iter().filter(|s| s.far.is_some()).count() + 1;
    let piece = desk.bounce.pieces(slots).1 / element;
    let mut done = 0;
    while done < count {
        let n = (count - done).min(piece);
        // SAFETY: the caller's promise; the piece fits the bounce memory.
        unsafe { combine(how, desk, srcs, dsts, done * element, n)? };
        done += n;
    }
    Ok(())
}

/// Copies `bytes` bytes of a transfer of `whole` bytes from `src` to `to`, which lies here.
///
/// # Safety
/// Both are valid for as many, `to` for writing; they do not overlap, and nobody writes to either meanwhile.
///
/// # Errors
/// As those of [`run`].
pub(super) unsafe fn fetch(src: Spot, to: *mut u8, bytes: usize, whole: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        if src.far.is_some() {
            return read(src, to, bytes);
        }
        kernels::copy_part(&[to], src.at, bytes, whole);
    }
    Ok(())
}

/// # Safety
/// As [`run`], for bytes.
unsafe fn copy(desk: &mut Desk<'_>, src: Spot, dsts: &[Spot], bytes: usize) -> Result<()> {
    let near = |d: &&Spot| d.far.is_none() && **d != src;
    // SAFETY: the caller's promise; pieces lie inside the bounce memory.
    unsafe {
        if src.far.is_none() {
            for d in dsts.iter().filter(near) {
                kernels::copy_part(&[d.at], src.at, bytes, desk.whole);
            }
            return write_all(src.at, dsts, bytes);
        }
        if let Some(first) = dsts.iter().find(near) {
            read(src, first.at, bytes)?;
            for d in dsts.iter().filter(near).filter(|d| *d != first) {
                kernels::copy_part(&[d.at], first.at, bytes, desk.whole);
            }
            return write_all_but(src, first.at, dsts, bytes);
        }
        let (memory, piece) = desk.bounce.pieces(1);
        let mut done = 0;
        while done < bytes && dsts.iter().any(|d| *d != src) {
            let n = (bytes - done).min(piece);
            read(src.add(done), memory, n)?;
            for d in dsts.iter().filter(|d| **d != src) {
                write(memory, d.add(done), n)?;
            }
            done += n;
        }
        Ok(())
    }
}

/// `n` elements from byte `at` on, which fit a piece of the bounce memory.
///
/// # Safety
/// As [`run`].
unsafe fn combine(
    how: Combination,
    desk: &mut Desk<'_>,
    srcs: &[Spot],
    dsts: &[Spot],
    at: usize,
    n: usize,
) -> Result<()> {
    let bytes = n * how.dtype.size();
    let (memory, piece) = desk.bounce.pieces(srcs.iter().filter(|s| s.far.is_some()).count() + 1);
    let mut taken = 0;
    let mut slot = || {
        taken += 1;
        memory.wrapping_add((taken - 1) * piece)
    };
    desk.from.clear();
    desk.to.clear();
    let single = srcs.iter().filter(|s| s.far.is_some()).count() == 1;
    // A destination that is no source may hold the far one first. Beyond the caches that is no gain, since the reduction
    // would wait for what the kernel wrote.
    let free = |d: &&Spot| single && desk.cached && d.far.is_none() && !srcs.contains(d);
    let straight = dsts.iter().find(free);
    for s in srcs.iter().map(|s| s.add(at)) {
        let here = match s.far {
            None => s.at,
            Some(_) => {
                let here = straight.map_or_else(&mut slot, |d| d.add(at).at);
                // SAFETY: a piece of the bounce memory for each far source.
                unsafe { read(s, here, bytes)? };
                here
            }
        };
        desk.from.push(here.cast_const());
    }
    desk.to.extend(dsts.iter().filter(|d| d.far.is_none()).map(|d| d.add(at).at));
    if desk.to.is_empty() {
        desk.to.push(slot());
    }
    let result = desk.to[0].cast_const();
    // SAFETY: the caller's promise; there is a piece of the bounce memory for the result.
    unsafe {
        kernels::reduce(how.dtype, how.op, desk.to, desk.from, n, how.post);
        for d in dsts.iter().filter(|d| d.far.is_some()) {
            write(result, d.add(at), bytes)?;
        }
    }
    Ok(())
}

/// # Safety
/// As [`copy`]; `from` holds the bytes.
unsafe fn write_all(from: *const u8, dsts: &[Spot], bytes: usize) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { write_all_but(Spot::NONE, from, dsts, bytes) }
}

/// # Safety
/// As [`write_all`].
unsafe fn write_all_but(but: Spot, from: *const u8, dsts: &[Spot], bytes: usize) -> Result<()> {
    for d in dsts.iter().filter(|d| d.far.is_some() && **d != but) {
        // SAFETY: the caller's promise.
        unsafe { write(from, *d, bytes)? };
    }
    Ok(())
}

/// # Safety
/// `to` is writable for `bytes` bytes.
unsafe fn read(from: Spot, to: *mut u8, bytes: usize) -> Result<()> {
    let Some(owner) = from.far else { return Err(Error::internal("near memory is read by the kernel")) };
    // SAFETY: the caller's promise; the kernel checks the peer's side.
    unsafe { oxccl_sys::cma::read(owner.pid, to, from.at as u64, bytes) }
        .map_err(|e| explain(owner, &format!("reading {bytes} bytes from"), &e))
}

/// # Safety
/// `from` is readable for `bytes` bytes.
unsafe fn write(from: *const u8, to: Spot, bytes: usize) -> Result<()> {
    let Some(owner) = to.far else { return Err(Error::internal("near memory is written by the kernel")) };
    // The number of a process that has ended may be given to another, which must not be written to.
    // SAFETY: open, see `Owner`.
    if !oxccl_sys::process::alive(&unsafe { BorrowedFd::borrow_raw(owner.handle) }) {
        let gone = std::io::Error::new(std::io::ErrorKind::NotFound, "it has ended");
        return Err(explain(owner, &format!("writing {bytes} bytes to"), &gone));
    }
    // SAFETY: the caller's promise; the kernel checks the peer's side.
    unsafe { oxccl_sys::cma::write(owner.pid, from, to.at as u64, bytes) }
        .map_err(|e| explain(owner, &format!("writing {bytes} bytes to"), &e))
}

#[cold]
fn explain(owner: Owner, doing: &str, e: &std::io::Error) -> Error {
    let what = format!("{doing} rank {} (process {} of this machine): {e}", owner.rank, owner.pid);
    match e.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported => {
            Error::system(format!("{what}; the system forbids it now though it was allowed when the ranks met"))
        }
        _ => Error::remote(format!(
            "{what}; the peer has ended (look at its output), or its buffer was freed before the operation was done, is \
             read-only, or is memory that the kernel does not copy (of a device, or secret): OXCCL_P2P=shm does without"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use super::*;

    /// This process, as the kernel sees it, stands for that of a peer.
    fn peer() -> Option<Owner> {
        static HANDLE: std::sync::LazyLock<OwnedFd> =
            std::sync::LazyLock::new(|| oxccl_sys::process::pidfd_of_self().unwrap());
        Some(Owner { rank: 1, pid: std::process::id(), handle: HANDLE.as_raw_fd() })
    }

    fn spot(memory: &mut [u32], far: bool) -> Spot {
        Spot { at: memory.as_mut_ptr().cast(), far: if far { peer() } else { None } }
    }

    fn moved(srcs: &[Spot], dsts: &[Spot], count: usize, cached: bool) -> Result<()> {
        let (mut bounce, mut from, mut to) = (Bounce::default(), Vec::new(), Vec::new());
        let whole = if cached { 0 } else { usize::MAX };
        let desk = &mut Desk { bounce: &mut bounce, cached, whole, from: &mut from, to: &mut to };
        let how = Combination { dtype: DataType::Uint32, op: RedOp::Sum, post: Post::None };
        // SAFETY: the tests' spots have `count` elements each, of which nobody else knows.
        unsafe { run(how, desk, srcs, dsts, count) }
    }

    /// More than two pieces of the bounce memory, and no multiple of a line.
    const COUNT: usize = 200_001;

    fn data(factor: u32) -> Vec<u32> {
        (0..COUNT as u32).map(|i| i.wrapping_mul(factor)).collect()
    }

    #[test]
    fn every_mixture_of_near_and_far_gives_the_sum_and_the_copy() {
        for mixture in 0..64u32 {
            let far = |bit: u32| mixture >> bit & 1 == 1;
            let (mut a, mut b, mut c, mut d) = (data(3), data(5), vec![0; COUNT], vec![0; COUNT]);
            let srcs = [spot(&mut a, far(0)), spot(&mut b, far(1))];
            let dsts = [spot(&mut c, far(2)), spot(&mut d, far(3))];
            let (srcs, dsts) = (if far(4) { &srcs[..1] } else { &srcs }, if far(5) { &dsts[..1] } else { &dsts[..] });
            moved(srcs, dsts, COUNT, mixture % 3 == 0).unwrap();
            let expected = data(if srcs.len() == 1 { 3 } else { 8 });
            assert!(c == expected, "mixture {mixture:b}");
            assert!(d == if dsts.len() == 1 { vec![0; COUNT] } else { expected }, "mixture {mixture:b}");
            assert!(a == data(3) && b == data(5), "sources stay, mixture {mixture:b}");
        }
    }

    #[test]
    fn sources_may_be_destinations() {
        for mixture in 0..8u32 {
            let far = |bit: u32| mixture >> bit & 1 == 1;
            let (mut a, mut b) = (data(3), data(5));
            let both = [spot(&mut a, far(0)), spot(&mut b, far(1))];
            moved(&both, &both, COUNT, far(2)).unwrap();
            assert!(a == data(8) && b == data(8), "mixture {mixture:b}");
            moved(&both[..1], &both, COUNT, far(2)).unwrap();
            assert!(a == data(8) && b == data(8), "mixture {mixture:b}");
        }
    }

    #[test]
    fn a_peer_that_cannot_be_reached_is_named() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let handle = oxccl_sys::process::pidfd_open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut a, mut b) = (data(1), data(1));
        let gone =
            Spot { far: Some(Owner { rank: 7, pid: child.id(), handle: handle.as_raw_fd() }), ..spot(&mut a, true) };
        for (srcs, dsts) in [([gone], [spot(&mut b, false)]), ([spot(&mut b, false)], [gone])] {
            let error = moved(&srcs, &dsts, COUNT, true).unwrap_err();
            assert_eq!(error.code, oxccl_types::ResultCode::RemoteError);
            assert!(error.text.contains("rank 7") && error.text.contains("has ended"), "{}", error.text);
        }
    }
}
