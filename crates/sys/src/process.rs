//! Handles on processes that tell of their end whatever happens to their number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};

/// A handle on this process, to be handed to others: valid in every pid namespace.
///
/// Where the kernel, a filter of system calls or a tool that runs the program knows no `pidfd_open`, the handle is the
/// reading end of a pipe of which only this process has the writing end (see [`crate::forked`]): it tells of the end as well,
/// but not the number of the process.
///
/// # Errors
/// Those of `pidfd_open` and `pipe`.
pub fn pidfd_of_self() -> io::Result<OwnedFd> {
    use rustix::io::Errno;
    match rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Err(Errno::NOSYS | Errno::PERM) => pipe_of_self(),
        other => Ok(other?),
    }
}

/// The reading end of a pipe that hangs up when this process ends.
fn pipe_of_self() -> io::Result<OwnedFd> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    crate::forked::end_with_process(&writer);
    // Only the end of the process may close it.
    std::mem::forget(writer);
    Ok(reader)
}

/// A handle on process `pid` of this pid namespace.
///
/// # Errors
/// `ESRCH` when there is none; those of `pidfd_open`.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Waits until one of the processes ended, at most `timeout`; the index of the first that did.
///
/// # Errors
/// Those of `poll`.
pub fn wait_any(pidfds: &[impl AsFd], timeout: Duration) -> io::Result<Option<usize>> {
    let mut polls: Vec<_> = pidfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let time = Timespec::try_from(timeout).ok();
    match rustix::event::poll(&mut polls, time.as_ref()) {
        // Pipes that stand for a process hang up.
        Ok(_) => Ok(polls.iter().position(|p| p.revents().intersects(PollFlags::IN | PollFlags::HUP))),
        Err(rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether the process has not ended yet (a zombie has).
pub fn alive(pidfd: &impl AsFd) -> bool {
    !matches!(wait_any(&[pidfd.as_fd()], Duration::ZERO), Ok(Some(_)))
}

/// The number that the process has in our pid namespace; `None` when it ended or has none here.
pub fn pid_of(pidfd: &impl AsFd) -> Option<u32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let number = text.lines().find_map(|l| l.strip_prefix("Pid:"))?.trim().parse::<i64>().ok()?;
    u32::try_from(number).ok().filter(|n| *n > 0)
}

/// Allows this process as many open files as the system lets it have (the hard limit), and the programs that it starts.
///
/// # Errors
/// Those of `setrlimit`.
pub fn raise_open_files() -> io::Result<()> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Runs `f` with all signals of this thread blocked: threads started by it never run the application's handlers.
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    /// Restores the mask, also when `f` panics.
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled by pthread_sigmask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        }
    }
    // SAFETY: a zeroed sigset_t is a valid (empty) set; both calls get pointers to our own sets.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    let _restore = Restore(old);
    f()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_pidfd_tells_of_death() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let handles = [pidfd_of_self().unwrap(), pidfd_open(child.id()).unwrap()];
        assert!(alive(&handles[0]) && alive(&handles[1]));
        assert_eq!(wait_any(&handles, Duration::from_millis(1)).unwrap(), None);
        assert_eq!(pid_of(&handles[1]), Some(child.id()));
        child.kill().unwrap();
        assert_eq!(wait_any(&handles, Duration::from_secs(20)).unwrap(), Some(1));
        assert!(!alive(&handles[1]));
        child.wait().unwrap();
        assert_eq!(pid_of(&handles[1]), None);
        assert!(pidfd_open(child.id()).is_err());
        assert!(pidfd_open(u32::MAX).is_err());
    }

    #[test]
    fn a_pipe_stands_for_a_process_where_there_are_no_pidfds() {
        let me = pipe_of_self().unwrap();
        assert!(alive(&me));
        assert_eq!(pid_of(&me), None);
        // What a peer sees of a process that ended: its end of the pipe is closed.
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        assert!(alive(&reader));
        drop(writer);
        assert!(!alive(&reader));
    }
}
