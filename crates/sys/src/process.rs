//! Handles on processes that tell of their end whatever happens to their number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// A handle on this process, to be handed to others: valid in every pid namespace.
///
/// # Errors
/// Those of `pidfd_open`.
pub fn pidfd_of_self() -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?)
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
        Ok(_) => Ok(polls.iter().position(|p| p.revents().contains(PollFlags::IN))),
        Err(rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether the process has not ended yet (a zombie has).
pub fn alive(pidfd: &impl AsFd) -> bool {
    !matches!(wait_any(&[pidfd.as_fd()], Duration::ZERO), Ok(Some(_)))
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
        child.kill().unwrap();
        assert_eq!(wait_any(&handles, Duration::from_secs(20)).unwrap(), Some(1));
        assert!(!alive(&handles[1]));
        child.wait().unwrap();
        assert!(pidfd_open(child.id()).is_err());
        assert!(pidfd_open(u32::MAX).is_err());
    }
}
