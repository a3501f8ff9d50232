//! Descriptors that end with this process: those that it forks, which inherit all it has open, let them go.
//!
//! A peer on another host hears of our end by its connection to us, which lives for as long as any process has it open; so does a
//! queue of callers that nobody will serve. What is marked here is replaced by an unconnected socket in a child at once, by a
//! handler of `fork`, which `vfork`, `posix_spawn` and a bare `clone` do not run: what they start is another program or touches
//! nothing. The numbers stay taken, so that a child that closes them closes nobody else's. A fork between the call that makes a
//! descriptor and its mark misses it: marks come first.
//!
//! The mark is on the open file, not in a table that all who close would have to keep: the number of a signal that is never sent, as
//! nobody asked for one. A duplicate is marked too, for its number.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// `fcntl` on the signal that tells of input or output, which the bindings lack.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// The last signal but one of all: programs that want one at all count from the first of their own.
const MARK: c_int = 63;

/// One above the greatest number of a marked descriptor.
static END: AtomicI32 = AtomicI32::new(0);

/// Has processes that this one forks let `fd` go. Where the system knows no marks, or no handlers, they keep it.
pub fn end_with_process(fd: &impl AsFd) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // Where there is no memory for a handler, there is none.
        // SAFETY: it calls nothing but what signal handlers may call.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
    });
    let fd = fd.as_fd().as_raw_fd();
    END.fetch_max(fd + 1, Ordering::Relaxed);
    // SAFETY: an open descriptor; no memory is touched.
    unsafe { libc::fcntl(fd, F_SETSIG, MARK) };
}

/// In the child of a fork, before `fork` returns there.
unsafe extern "C" fn let_go() {
    // What this process forks in turn finds nothing any more.
    let end = END.swap(0, Ordering::Relaxed);
    // SAFETY: calls of the system that signal handlers may make too, on numbers that are ours to replace: their open files bear
    // the mark. This process has one thread; the error number is its own and comes back as it was.
    unsafe {
        let error = *libc::__errno_location();
        let (mut other, mut extra) = (-1, false);
        for fd in (0..end).filter(|fd| is_marked(*fd)) {
            if other < 0 {
                // First the old one: all numbers may be in use.
                libc::close(fd);
                other = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
                extra = other != fd;
            }
            if other >= 0 && other != fd {
                libc::dup3(other, fd, libc::O_CLOEXEC);
            }
        }
        if other >= 0 && extra {
            libc::close(other);
        }
        *libc::__errno_location() = error;
    }
}

/// Whether `fd` is an open file that bears the mark. Who wants the signal for itself has named who is to get it, who lives.
fn is_marked(fd: c_int) -> bool {
    // SAFETY: no memory is touched; a number that is not open is an error.
    unsafe { libc::fcntl(fd, F_GETSIG) == MARK && libc::fcntl(fd, libc::F_GETOWN) == 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// A child of this process, which waits until it is dropped.
    struct Child(libc::pid_t);

    impl Child {
        /// `check` runs in the child; what it says is the first byte that the child sends.
        fn new(to: &UnixStream, check: impl Fn() -> bool) -> Child {
            // SAFETY: the child calls the system and nothing else; not for ever, should nobody end it.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                let byte = u8::from(check());
                // SAFETY: as above.
                unsafe {
                    libc::alarm(60);
                    libc::write(to.as_raw_fd(), (&raw const byte).cast(), 1);
                    loop {
                        libc::pause();
                    }
                }
            }
            Child(pid)
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            // SAFETY: the own child, which was not waited for.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }

    #[test]
    fn a_child_lets_go_of_what_is_marked_and_of_nothing_else() {
        let [(marked, mut hears), (kept, mut waits), (own, asked), (mut reports, to)] =
            [(); 4].map(|()| UnixStream::pair().unwrap());
        end_with_process(&marked);
        // A program that wants such a signal for itself.
        // SAFETY: open descriptors.
        unsafe {
            assert_eq!(libc::fcntl(own.as_raw_fd(), F_SETSIG, MARK), 0);
            assert_eq!(libc::fcntl(own.as_raw_fd(), libc::F_SETOWN, libc::getpid()), 0);
        }
        let number = marked.as_raw_fd();
        let (kept_number, own_number) = (kept.as_raw_fd(), own.as_raw_fd());
        // Their numbers are taken, and those of others are what they were.
        let child = Child::new(&to, || {
            // SAFETY: no memory is touched.
            let open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
            open(number) && !is_marked(number) && open(kept_number) && open(own_number)
        });
        let mut byte = [0];
        reports.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        reports.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [1]);
        drop((marked, kept, own));
        hears.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(hears.read(&mut byte).unwrap(), 0, "nobody has the other end");
        for held in [&mut waits, &mut { asked }] {
            held.set_nonblocking(true).unwrap();
            assert_eq!(held.read(&mut byte).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the child has it");
        }
        drop(child);
        waits.set_nonblocking(false).unwrap();
        waits.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(waits.read(&mut byte).unwrap(), 0);
    }
}
