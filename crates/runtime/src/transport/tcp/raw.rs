//! The system calls of the data path, on raw addresses: user memory may be shared, so it is never made a slice.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// A range of memory for the kernel.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(in crate::transport) struct Range(libc::iovec);

impl Range {
    pub(in crate::transport) const EMPTY: Range = Range(libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });

    pub(in crate::transport) fn new(data: *const u8, len: usize) -> Range {
        Range(libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len })
    }
}

/// Write from `ranges` what the kernel takes now; 0 when it takes nothing. Never raises SIGPIPE.
///
/// # Safety
/// All ranges are readable.
pub(in crate::transport) unsafe fn send(stream: &TcpStream, ranges: &[Range]) -> io::Result<usize> {
    // SAFETY: all zero is a valid message header (no address, no control data).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = ranges.as_ptr().cast_mut().cast();
    message.msg_iovlen = ranges.len() as _;
    // SAFETY: the header points to ranges that are readable by contract.
    attempt(|| unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
        .map(Option::unwrap_or_default)
}

/// Read into `ranges` what is there: `None` when nothing is there now, 0 at the end of the stream.
///
/// # Safety
/// All ranges are writable, nobody else uses them, and together they are not empty.
pub(in crate::transport) unsafe fn recv(stream: &TcpStream, ranges: &[Range]) -> io::Result<Option<usize>> {
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = ranges.as_ptr().cast_mut().cast();
    message.msg_iovlen = ranges.len() as _;
    // SAFETY: the header points to ranges that are writable by contract.
    attempt(|| unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) })
}

/// As [`send`] of bytes that lie together: half the work of the kernel's entry.
pub(super) fn send_bytes(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: a slice is readable.
    attempt(|| unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
        .map(Option::unwrap_or_default)
}

/// As [`recv`] into bytes that lie together and are not empty.
pub(super) fn recv_bytes(stream: &TcpStream, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: a slice that is ours is writable.
    attempt(|| unsafe { libc::recv(stream.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) })
}

/// Whether closing loses nothing: the peer's kernel has all that was written, or will have none of it any more.
pub(super) fn is_settled(stream: &TcpStream) -> bool {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
    let mut bytes: libc::c_int = 0;
    // SAFETY: one descriptor, which is polled without waiting; the request stores a c_int.
    let (polled, asked) =
        unsafe { (libc::poll(&raw mut poll, 1, 0), libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes)) };
    let over = polled == 1 && poll.revents & (libc::POLLERR | libc::POLLHUP) != 0;
    over || asked != 0 || bytes == 0
}

/// Let acknowledgements of the kernel travel with data where possible, in place of one per message.
pub(super) fn delay_acknowledgements(stream: &TcpStream) -> io::Result<()> {
    set(stream, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0)
}

/// Take no more from this process while `bytes` wait to be sent: what is under way does not count.
pub(super) fn limit_unsent(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    set(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX))
}

/// Bytes of a packet of the stream; 0 where the system does not say.
pub(super) fn packet_bytes(stream: &TcpStream) -> usize {
    let (mut value, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let at = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes there.
    match unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, at, &raw mut len) } {
        0 => usize::try_from(value).unwrap_or(0),
        _ => 0,
    }
}

/// Have the kernel keep a last packet that is not full until more comes to fill it, or until this is called with `false`. After
/// a fifth of a second it goes all the same.
pub(super) fn cork(stream: &TcpStream, keep: bool) -> io::Result<()> {
    set(stream, libc::IPPROTO_TCP, libc::TCP_CORK, libc::c_int::from(keep))
}

/// Run a call until it is not interrupted; `None` when it would block.
fn attempt(mut call: impl FnMut() -> isize) -> io::Result<Option<usize>> {
    loop {
        match call() {
            n if n >= 0 => return Ok(Some(n as usize)),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                e => return Err(e),
            },
        }
    }
}

/// Ask for socket buffers of `bytes`; the kernel may cap them.
pub(super) fn set_buffers(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    [libc::SO_SNDBUF, libc::SO_RCVBUF].into_iter().try_for_each(|o| set(stream, libc::SOL_SOCKET, o, value))
}

fn set(stream: &TcpStream, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (at, len) = (&raw const value, size_of_val(&value) as libc::socklen_t);
    // SAFETY: `at` points to a c_int, as these options want.
    match unsafe { libc::setsockopt(stream.as_raw_fd(), level, option, at.cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
