//! `--procs`: starts copies of this program on this machine, and ends them all when one fails.
//!
//! The copies share the control segment through an inherited descriptor and die with the parent. Also here: binding to
//! processors, which must precede the library's threads.

use std::{
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{
    event::{PollFd, PollFlags},
    io::FdFlags,
    process::{PidfdFlags, Signal},
    thread::CpuSet,
};

use super::{args::PerfArgs, control::Control, failure};

const FD: &str = "OXCCL_PERF_FD";
const PROC: &str = "OXCCL_PERF_PROC";
const PROCS: &str = "OXCCL_PERF_PROCS";

/// How long the others may still report after one process failed.
const GRACE: Duration = Duration::from_secs(2);

/// The part of a process that [`run_parent`] started.
pub struct Part {
    /// Number of this process.
    pub proc: usize,
    /// Number of processes.
    pub procs: usize,
    /// The shared segment.
    pub control: Control,
}

/// The part of this process, when it is a copy.
pub fn part(threads: usize) -> Result<Option<Part>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<usize>().ok());
    let (Some(fd), Some(proc), Some(procs)) = (number(FD), number(PROC), number(PROCS)) else { return Ok(None) };
    let fd = RawFd::try_from(fd).context("the inherited descriptor's number")?;
    // SAFETY: the parent passed this descriptor to this process alone; nobody else here knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).context("the inherited control segment")?;
    let control = Control::map(&fd, procs, threads)?;
    Ok(Some(Part { proc, procs, control }))
}

/// Runs `procs` copies of this program; the worst of their exit statuses.
pub fn run_parent(args: &PerfArgs, procs: usize) -> Result<u8> {
    let (fd, control) = Control::anonymous(procs, args.threads)?;
    let mut children = Vec::with_capacity(procs);
    for proc in 0..procs {
        match spawn(&fd, proc, procs) {
            Ok(child) => children.push(Some(child)),
            Err(e) => {
                control.fail();
                end(&mut children);
                return Err(e);
            }
        }
    }
    let result = supervise(&mut children, &control);
    end(&mut children);
    result
}

fn spawn(fd: &OwnedFd, proc: usize, procs: usize) -> Result<Child> {
    let raw = fd.as_raw_fd();
    let parent = rustix::process::getpid();
    let mut command = Command::new(std::env::current_exe().context("finding this program's file")?);
    let mut words = std::env::args_os();
    // The first word too: the program may have been called through a link of another name.
    command.arg0(words.next().unwrap_or_else(|| "oxccl".into())).args(words).stdin(Stdio::null());
    command.env(FD, raw.to_string()).env(PROC, proc.to_string()).env(PROCS, procs.to_string());
    // SAFETY: only async-signal-safe system calls between fork and exec; the descriptor is open in the parent.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the signal was armed.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            rustix::io::fcntl_setfd(std::os::fd::BorrowedFd::borrow_raw(raw), FdFlags::empty())?;
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("starting process {proc} of {procs}"))
}

/// Reaps the children. After the first failure the others get [`GRACE`] to report, then they are left to [`end`].
fn supervise(children: &mut [Option<Child>], control: &Control) -> Result<u8> {
    let mut worst = 0;
    let mut limit: Option<Instant> = None;
    while children.iter().any(Option::is_some) {
        if limit.is_some_and(|l| l <= Instant::now()) {
            eprintln!("oxccl: ending {} processes that did not stop", children.iter().flatten().count());
            break;
        }
        wait_any(children, limit)?;
        for (proc, slot) in children.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            let Some(status) = child.try_wait().context("waiting for a process")? else { continue };
            let code = exit_code(proc, status);
            *slot = None;
            worst = worst.max(code);
            // Wrong data end no run: every rank reports its own.
            if code > failure::WRONG && limit.is_none() {
                control.fail();
                limit = Some(Instant::now() + GRACE);
            }
        }
    }
    Ok(worst)
}

/// The exit status of process `proc` as a number; a signal is reported and counts as a failed run.
fn exit_code(proc: usize, status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        eprintln!("oxccl: process {proc} was ended by signal {signal}");
        return failure::RUN;
    }
    status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(failure::RUN)
}

/// Sleeps until a child ends or `limit` has passed.
fn wait_any(children: &[Option<Child>], limit: Option<Instant>) -> Result<()> {
    let open = |c: &Child| rustix::process::pidfd_open(rustix::process::Pid::from_child(c), PidfdFlags::empty());
    let fds = children.iter().flatten().map(open).collect::<Result<Vec<_>, _>>().context("pidfd_open")?;
    let mut polled: Vec<_> = fds.iter().map(|f| PollFd::new(f, PollFlags::IN)).collect();
    let left = limit.map(|l| l.saturating_duration_since(Instant::now()));
    let timeout = left.map(|d| rustix::time::Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => bail!("waiting for the processes: {e}"),
    }
}

/// Kills and reaps what is left.
fn end(children: &mut [Option<Child>]) {
    for child in children.iter_mut().flatten() {
        // Both fail only for a child that is gone already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Binds the calling thread (and the threads it will start) to the `index`-th allowed processor, round robin.
pub fn pin(index: usize) -> Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None).context("reading the allowed processors")?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).collect();
    let Some(core) = cores.get(index % cores.len().max(1)) else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(*core);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("binding to processor {core}"))
}
