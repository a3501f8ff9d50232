//! Blocking reads and writes on non-blocking sockets that end at a deadline or an abort. Sockets stay non-blocking.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use oxccl_sys::forked::end_with_process;
use oxccl_sys::sync::{AtomicBool, Ordering};
use oxccl_sys::{Deadline, pacing};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// A peer or a host that fell silent is noticed after about this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// How long a wait sleeps before it looks at the abort flag again.
const ABORT_SLICE: Duration = Duration::from_millis(20);

/// What bounds a wait.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// When it gives up.
    pub deadline: Deadline,
    /// Ends it early when set.
    pub abort: &'a AtomicBool,
}

impl Limits<'_> {
    /// Fails when the wait must end.
    ///
    /// # Errors
    /// `ConnectionAborted` after an abort, `TimedOut` after the deadline.
    pub fn check(&self) -> io::Result<()> {
        if self.abort.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "aborted by the application"));
        }
        if self.deadline.passed() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "timed out"));
        }
        Ok(())
    }

    /// Waits until `fd` is ready.
    ///
    /// # Errors
    /// As [`Limits::check`]; those of `poll`.
    pub fn wait(&self, fd: impl AsFd, events: PollFlags) -> io::Result<()> {
        while !self.wait_briefly(&fd, events)? {}
        Ok(())
    }

    /// As [`Limits::wait`], but not longer than an abort may go unheard; whether `fd` is ready.
    ///
    /// # Errors
    /// As [`Limits::wait`].
    pub(super) fn wait_briefly(&self, fd: impl AsFd, events: PollFlags) -> io::Result<bool> {
        self.check()?;
        let mut polls = [PollFd::new(&fd, events)];
        let time = Timespec::try_from(self.deadline.slice(ABORT_SLICE)).ok();
        match rustix::event::poll(&mut polls, time.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Lets time pass between two attempts; an abort is heard by the next [`Limits::check`].
    pub fn pause(&self, time: Duration) {
        let time = Timespec::try_from(self.deadline.slice(time.min(ABORT_SLICE * 5))).ok();
        let _ = rustix::event::poll(&mut [], time.as_ref());
    }
}

/// Has the kernel ask an idle peer now and then whether it is still there, so that a link that was cut without a word, and a
/// host that vanished, end a wait for bytes; and links that forget what is idle are kept open. Not `TCP_USER_TIMEOUT`: it also
/// ends connections to a peer that is there, but has read nothing for as long since it computes.
///
/// The kernel asks only who owes no acknowledgement: where data is on its way to a host that vanished, it sends that again and again,
/// and gives up after some 15 minutes (`net.ipv4.tcp_retries2`). News of the control ring, whose connections have a time limit
/// for that as well, or the caller's deadline ends such a wait before.
pub(crate) fn notice_silence(socket: impl AsFd) {
    // Wishes: without them a silent host is noticed later.
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, SILENCE / 3);
    let _ = sockopt::set_tcp_keepintvl(&socket, SILENCE / 6);
    let _ = sockopt::set_tcp_keepcnt(&socket, 4);
}

/// Fills `buf`.
///
/// # Errors
/// `UnexpectedEof` at the end of the stream; as [`Limits::check`]; those of `recv`.
pub fn read_full(fd: impl AsFd, buf: &mut [u8], limits: &Limits<'_>) -> io::Result<()> {
    let mut have = 0;
    while have < buf.len() {
        match rustix::net::recv(&fd, &mut buf[have..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((n, _)) => have += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => limits.wait(&fd, PollFlags::IN)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes all of `buf`.
///
/// # Errors
/// As [`Limits::check`]; those of `send`.
pub fn write_full(fd: impl AsFd, buf: &[u8], limits: &Limits<'_>) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::net::send(&fd, &buf[done..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => limits.wait(&fd, PollFlags::OUT)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Connects to the first of `addresses` that answers within `slice` each. The stream is non-blocking, without Nagle's
/// delay.
///
/// # Errors
/// That of the last address tried.
pub fn connect_any(addresses: &[SocketAddr], slice: Duration, limits: &Limits<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address to connect to");
    for address in addresses {
        let part = Limits { deadline: Deadline::after(limits.deadline.slice(slice)), ..*limits };
        match connect_one(address, &part) {
            Ok(stream) => return Ok(stream),
            Err(e) => {
                limits.check()?;
                last = io::Error::new(e.kind(), format!("{address}: {e}"));
            }
        }
    }
    Err(last)
}

fn connect_one(address: &SocketAddr, limits: &Limits<'_>) -> io::Result<TcpStream> {
    let fd = begin_connect(address)?;
    limits.wait(&fd, PollFlags::OUT)?;
    finish_connect(fd, address)
}

/// Begins to connect to `address`; it is over when the socket can be written to.
///
/// # Errors
/// Those of `socket` and `connect`.
pub(super) fn begin_connect(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    end_with_process(&fd);
    // A hint. What carries data to another machine gets it back.
    let _ = pacing::leave_out(&fd);
    notice_silence(&fd);
    match rustix::net::connect(&fd, address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// The stream, once the attempt to connect to `address` is over: non-blocking, without Nagle's delay.
///
/// # Errors
/// Why it failed.
pub(super) fn finish_connect(fd: OwnedFd, address: &SocketAddr) -> io::Result<TcpStream> {
    sockopt::socket_error(&fd)??;
    let stream = TcpStream::from(fd);
    // A port of the ephemeral range may connect to itself when nobody listens there.
    if stream.local_addr()? == *address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    sockopt::set_tcp_nodelay(&stream, true)?;
    Ok(stream)
}
