//! Unix sockets in the abstract name space, descriptors over them, and who is at the other end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};

use crate::Deadline;

/// Descriptors in one message; the kernel allows 253.
const CHUNK: usize = 64;

/// The process at the other end of a connection, as it was when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its number in our pid namespace; 0 when it has none there.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
}

/// Listens on the abstract name `name` (no file; gone with the socket).
///
/// # Errors
/// `AddrInUse`; others of `socket`, `bind`, `listen`.
pub fn listen_abstract(name: &[u8]) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    crate::forked::end_with_process(&listener);
    Ok(listener)
}

/// Connects to the abstract name `name`; waits for a full queue of the listener until `deadline`. Reads and writes of
/// the stream carry the same limit, as it was at the connect.
///
/// # Errors
/// `ConnectionRefused` where nobody listens, `TimedOut`, others of `connect`.
pub fn connect_abstract(name: &[u8], deadline: Deadline) -> io::Result<UnixStream> {
    let left = deadline.slice(std::time::Duration::from_secs(3600));
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    crate::forked::end_with_process(&fd);
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(left))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(left))?;
    let address = rustix::net::SocketAddrUnix::new_abstract_name(name)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(UnixStream::from(fd)),
            Err(rustix::io::Errno::INTR) if !deadline.passed() => {}
            // What a send timeout of a blocking connect is called.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Who is at the other end.
///
/// # Errors
/// Those of `getsockopt(SO_PEERCRED)`.
pub fn peer_credentials(stream: &UnixStream) -> io::Result<PeerCredentials> {
    // Not rustix's call: its process number cannot be zero, the kernel's is for a process outside our pid namespace.
    let mut c = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `c` and `len` are ours, `len` is the size of `c`.
    let r = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut c).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerCredentials { pid: u32::try_from(c.pid).unwrap_or(0), uid: c.uid })
}

/// Sends `data` (not empty) together with `fds`. On a non-blocking stream a full buffer is an error.
///
/// # Errors
/// `InvalidInput` for empty data; those of `sendmsg`.
pub fn send_with_fds(stream: &UnixStream, data: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if data.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut chunks = fds.chunks(CHUNK);
    let mut sent = send_chunk(stream, data, chunks.next().unwrap_or(&[]))?;
    while sent < data.len() {
        sent += send_chunk(stream, &data[sent..], &[])?;
    }
    for chunk in chunks {
        send_chunk(stream, &[0], chunk)?;
    }
    Ok(())
}

fn send_chunk(stream: &UnixStream, data: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CHUNK))];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("descriptors do not fit a message"));
        }
        match rustix::net::sendmsg(stream, &[IoSlice::new(data)], &mut control, SendFlags::NOSIGNAL) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Receives exactly `data.len()` bytes (at least one) and `count` descriptors that
/// [`send_with_fds`] sent; they are closed on exec.
///
/// # Errors
/// `UnexpectedEof`, `InvalidData` when there are other descriptors than announced, those of `recvmsg`; nothing leaks.
pub fn recv_with_fds(stream: &UnixStream, data: &mut [u8], count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::with_capacity(count.min(1024));
    let mut got = 0;
    while got < data.len() {
        got += recv_chunk(stream, &mut data[got..], &mut fds)?;
    }
    while fds.len() < count {
        let before = fds.len();
        recv_chunk(stream, &mut [0], &mut fds)?;
        if fds.len() == before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "fewer descriptors than announced"));
        }
    }
    if fds.len() > count {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors than announced"));
    }
    Ok(fds)
}

fn recv_chunk(stream: &UnixStream, data: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CHUNK))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let r = rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(data)], &mut control, flags);
        match r {
            Ok(message) => {
                for m in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(new) = m {
                        fds.extend(new);
                    }
                }
                if message.flags.contains(ReturnFlags::CTRUNC) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "descriptors were lost: the limit of open files (ulimit -n) may be reached",
                    ));
                }
                return match message.bytes {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    n => Ok(n),
                };
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;
    use std::time::Duration;

    fn name(tag: &str) -> Vec<u8> {
        format!("oxccl-test-{}-{tag}", std::process::id()).into_bytes()
    }

    #[test]
    fn many_descriptors_arrive_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let memories: Vec<_> = (0..200).map(|i| SharedMemory::create("t", 100 + i).unwrap()).collect();
        let fds: Vec<_> = memories.iter().map(|m| m.fd()).collect();
        let mut data = [0; 5];
        let got = std::thread::scope(|s| {
            s.spawn(|| send_with_fds(&a, b"hello", &fds).unwrap());
            recv_with_fds(&b, &mut data, 200).unwrap()
        });
        assert_eq!(&data, b"hello");
        for (i, fd) in got.into_iter().enumerate() {
            assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
            assert_eq!(SharedMemory::from_fd(fd).unwrap().len(), 100 + i);
        }
        send_with_fds(&a, b"x", &fds[..2]).unwrap();
        assert_eq!(recv_with_fds(&b, &mut [0], 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(a);
        assert_eq!(recv_with_fds(&b, &mut [0], 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn abstract_sockets_connect_and_know_their_peer() {
        let listener = listen_abstract(&name("a")).unwrap();
        assert_eq!(listen_abstract(&name("a")).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let stream = connect_abstract(&name("a"), Deadline::after(Duration::from_secs(5))).unwrap();
        let (other, _) = listener.accept().unwrap();
        assert_eq!(peer_credentials(&other).unwrap().pid, std::process::id());
        assert_eq!(peer_credentials(&stream).unwrap().uid, crate::host::effective_uid());
        let nobody = connect_abstract(&name("none"), Deadline::after(Duration::from_secs(5)));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_full_queue_and_a_silent_peer_time_out() {
        let listener = listen_abstract(&name("full")).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut held = Vec::new();
        let error = loop {
            match connect_abstract(&name("full"), Deadline::after(Duration::from_millis(50))) {
                Ok(s) => held.push(s),
                Err(e) => break e,
            }
            assert!(held.len() < 10);
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(recv_with_fds(&held[0], &mut [0], 0).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
