//! The two system calls of the data path, on raw addresses: user memory may be shared, so it is never made a slice.

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
    for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        let (at, len) = (&raw const value, size_of_val(&value) as libc::socklen_t);
        // SAFETY: `at` points to a c_int, as these options want.
        if unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, at.cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
