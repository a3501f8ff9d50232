//! Two processes with shared memory between them, one of them forked for a measurement. What they do is the caller's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mm::{MapFlags, ProtFlags};

/// A measurement that takes longer has lost its partner.
const LIMIT: Duration = Duration::from_secs(20);
/// Looks between two looks at the clock.
const LOOKS: u32 = 4096;
/// Bytes of a flag with the space around it that no other flag shares.
const LINE: usize = 128;
/// Bytes of the flags in front of the data.
const FLAGS: usize = 4096;

/// Memory of both processes: flags, each in a line of its own, and data behind them.
pub struct Shared {
    base: *mut u8,
    bytes: usize,
}

impl Shared {
    fn new(data: usize) -> Result<Shared> {
        let bytes = FLAGS + data;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
            )
        };
        Ok(Shared { base: base.context("no shared memory")?.cast(), bytes })
    }

    /// Flag `i`.
    pub fn flag(&self, i: usize) -> &AtomicU32 {
        assert!((i + 1) * LINE <= FLAGS, "flag {i}");
        // SAFETY: inside the mapping, aligned, zeroed by the kernel, and only ever accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.base.add(i * LINE).cast()) }
    }

    /// The data behind the flags.
    pub fn data(&self) -> *mut u8 {
        self.base.wrapping_add(FLAGS)
    }

    /// Polls until flag `i` is `value`; `idle` is called between looks, see [`look_again`].
    ///
    /// # Errors
    /// The partner did not raise it in time.
    pub fn await_flag(&self, i: usize, value: u32, idle: impl Fn()) -> Result<()> {
        let mut looks = 0u32;
        let mut start = None;
        while self.flag(i).load(Ordering::Acquire) != value {
            idle();
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                ensure!(start.get_or_insert_with(Instant::now).elapsed() < LIMIT, "the other process does not answer");
            }
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nobody borrows from a value that is dropped. An error would leave
        // the mapping until the end of the process.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}

/// Between two looks at what the partner does: the processor's pause, or, where this process may use only one, which the partner needs to do it,
/// its place in the queue.
pub fn look_again() {
    if alone() { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Whether this process, and so its partner, may use one processor only.
fn alone() -> bool {
    static ALONE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ALONE.get_or_init(|| oxccl_sys::affinity::available_cores() == 1)
}

/// Runs `other` in a forked process and `this` here, with `data` bytes between them; what `this` gave.
///
/// The process must have one thread only.
///
/// # Errors
/// No process or no memory; those of `this`; the other process failed.
pub fn run<T>(
    data: usize,
    other: impl FnOnce(&Shared) -> Result<()>,
    this: impl FnOnce(&Shared) -> Result<T>,
) -> Result<T> {
    let shared = Shared::new(data)?;
    // Before either is bound to one processor.
    alone();
    let parent = std::process::id();
    // SAFETY: one thread; the child runs `other`, which allocates and polls at most, and ends without unwinding.
    match unsafe { libc::fork() } {
        -1 => bail!("no process: {}", std::io::Error::last_os_error()),
        0 => {
            // It would wait for a parent that was killed.
            // SAFETY: a system call on numbers alone.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if std::os::unix::process::parent_id() != parent {
                // SAFETY: as below.
                unsafe { libc::_exit(1) }
            }
            let run = std::panic::AssertUnwindSafe(|| other(&shared).is_ok());
            let good = std::panic::catch_unwind(run).unwrap_or(false);
            // SAFETY: ends the child at once, without the parent's buffers and destructors.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        child => {
            let result = this(&shared);
            let mut status = 0;
            // Where this side failed the other must not wait for it.
            // SAFETY: our own child, not yet reaped; the status is our own word.
            let reaped = unsafe {
                if result.is_err() {
                    libc::kill(child, libc::SIGKILL);
                }
                libc::waitpid(child, &raw mut status, 0)
            };
            let value = result?;
            ensure!(reaped == child && status == 0, "the other process of a measurement failed (status {status})");
            Ok(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_flags_pass_between_the_processes() {
        let got = run(
            64,
            |s| {
                // SAFETY: inside the data; the parent reads after the flag.
                unsafe { s.data().write(7) };
                s.flag(0).store(1, Ordering::Release);
                Ok(())
            },
            |s| {
                s.await_flag(0, 1, std::thread::yield_now)?;
                // SAFETY: inside the data; written before the flag was raised.
                Ok(unsafe { s.data().read() })
            },
        );
        assert_eq!(got.expect("both ran"), 7);
    }

    #[test]
    fn a_failing_side_fails_the_measurement() {
        assert!(run(0, |_| bail!("no"), |_| Ok(())).is_err());
        assert!(run(0, |s| s.await_flag(0, 1, std::thread::yield_now), |_| -> Result<()> { bail!("no") }).is_err());
    }
}
