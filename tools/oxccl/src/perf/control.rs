//! The segment that all processes of a run on one host share: barrier, exchange of times, the unique id.
//!
//! It exists so that timing does not rest on the measured library. Every wait hears the failure flag, notices dead
//! peers and obeys a deadline. Knows nothing of how the processes found the segment (see `rendezvous`).

use std::{
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags},
    process::Pid,
    thread::futex,
};

/// Words that a participant shares in one exchange.
pub const WORDS: usize = 4;
const ID_WORDS: usize = 16;
const MAGIC: u64 = 0x6f78_6363_6c70_0001;

/// The fixed part; behind it the processes' ids and two sets of slots.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    owner_start: AtomicU64,
    owner: AtomicU32,
    procs: AtomicU32,
    threads: AtomicU32,
    attached: AtomicU32,
    arrived: AtomicU32,
    generation: AtomicU32,
    failed: AtomicU32,
    id_ready: AtomicU32,
    id: [AtomicU64; ID_WORDS],
}

/// A mapping of the segment.
pub struct Control {
    base: NonNull<u8>,
    bytes: usize,
    procs: usize,
    threads: usize,
    spins: u32,
}

// SAFETY: everything behind the pointer is accessed through atomics.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Bytes of a segment for `procs` processes of `threads` threads.
pub fn segment_bytes(procs: usize, threads: usize) -> usize {
    size_of::<Header>() + (procs * 4).next_multiple_of(8) + 2 * procs * threads * WORDS * 8
}

impl Control {
    /// Maps a segment of `segment_bytes(procs, threads)` bytes.
    pub fn map(fd: impl AsFd, procs: usize, threads: usize) -> Result<Control> {
        let bytes = segment_bytes(procs, threads);
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }
        .context("mapping the control segment")?;
        let base = NonNull::new(base.cast()).context("the control segment was mapped at address 0")?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        // Whoever spins on a processor that a peer needs only delays the peer.
        let spins = if procs * threads > cores { 0 } else { 20_000 };
        Ok(Control { base, bytes, procs, threads, spins })
    }

    /// A segment in anonymous memory for this process and those that inherit `fd`.
    pub fn anonymous(procs: usize, threads: usize) -> Result<(std::os::fd::OwnedFd, Control)> {
        let fd = rustix::fs::memfd_create("oxccl-perf", rustix::fs::MemfdFlags::CLOEXEC).context("memfd_create")?;
        rustix::fs::ftruncate(&fd, segment_bytes(procs, threads) as u64).context("sizing the control segment")?;
        let control = Control::map(&fd, procs, threads)?;
        control.initialise();
        Ok((fd, control))
    }

    /// Writes the header; done by the creator before anyone else sees the segment.
    pub fn initialise(&self) {
        let h = self.header();
        h.owner.store(std::process::id(), Ordering::Relaxed);
        h.owner_start.store(process_start(std::process::id()), Ordering::Relaxed);
        h.procs.store(self.procs as u32, Ordering::Relaxed);
        h.threads.store(self.threads as u32, Ordering::Relaxed);
        // SYNC: control-magic
        h.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether the segment is complete and its creator lives.
    pub fn usable(&self) -> Result<bool> {
        let h = self.header();
        // SYNC: control-magic
        if h.magic.load(Ordering::Acquire) != MAGIC {
            return Ok(false);
        }
        let (procs, threads) = (h.procs.load(Ordering::Relaxed), h.threads.load(Ordering::Relaxed));
        let owner = h.owner.load(Ordering::Relaxed);
        if !alive(owner) || process_start(owner) != h.owner_start.load(Ordering::Relaxed) {
            return Ok(false);
        }
        ensure!(
            (procs as usize, threads as usize) == (self.procs, self.threads),
            "rank 0 runs {procs} processes of {threads} threads, this one expects {} of {}: all ranks need the same -t",
            self.procs,
            self.threads
        );
        Ok(true)
    }

    /// Enters process `proc` and waits until all have come.
    pub fn attach(&self, proc: usize, deadline: Duration) -> Result<()> {
        let h = self.header();
        self.pid(proc).store(std::process::id(), Ordering::Relaxed);
        // SYNC: control-attach
        h.attached.fetch_add(1, Ordering::AcqRel);
        self.wake(&h.attached);
        let limit = Instant::now() + deadline;
        loop {
            // SYNC: control-attach
            let here = h.attached.load(Ordering::Acquire);
            if here as usize >= self.procs {
                return Ok(());
            }
            self.check_failed()?;
            if Instant::now() > limit {
                self.fail();
                bail!("only {here} of {} processes came within {} s", self.procs, deadline.as_secs());
            }
            self.sleep(&h.attached, here);
        }
    }

    /// Hands the unique id to the other processes.
    pub fn publish_id(&self, id: &[u8; 128]) {
        let h = self.header();
        for (word, bytes) in h.id.iter().zip(id.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        // SYNC: control-id
        h.id_ready.store(1, Ordering::Release);
        self.wake(&h.id_ready);
    }

    /// Waits for the unique id.
    pub fn wait_id(&self) -> Result<[u8; 128]> {
        let h = self.header();
        // SYNC: control-id
        while h.id_ready.load(Ordering::Acquire) == 0 {
            self.check_failed()?;
            self.check_peers()?;
            self.sleep(&h.id_ready, 0);
        }
        let mut id = [0; 128];
        for (bytes, word) in id.as_chunks_mut::<8>().0.iter_mut().zip(&h.id) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        Ok(id)
    }

    /// Waits for every thread of every process.
    pub fn barrier(&self) -> Result<()> {
        let h = self.header();
        // SYNC: control-barrier
        let generation = h.generation.load(Ordering::Acquire);
        // SYNC: control-barrier
        if h.arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.procs * self.threads {
            h.arrived.store(0, Ordering::Relaxed);
            // SYNC: control-barrier
            h.generation.fetch_add(1, Ordering::AcqRel);
            self.wake(&h.generation);
            return Ok(());
        }
        let mut spins = self.spins;
        // SYNC: control-barrier
        while h.generation.load(Ordering::Acquire) == generation {
            if spins > 0 {
                spins -= 1;
                std::hint::spin_loop();
                continue;
            }
            self.check_failed()?;
            if self.sleep(&h.generation, generation) {
                self.check_peers()?;
            }
        }
        Ok(())
    }

    /// Writes this participant's words for exchange number `round`, waits for everybody's, and returns them in order.
    ///
    /// Two sets of slots take turns: who writes round `k + 2` has passed the barrier of `k + 1`, which everybody
    /// reached after reading round `k`.
    pub fn share(&self, participant: usize, round: u64, words: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>> {
        let set = (round % 2) as usize;
        for (i, w) in words.into_iter().enumerate() {
            self.slot(set, participant, i).store(w, Ordering::Relaxed);
        }
        self.barrier()?;
        let read = |p: usize| std::array::from_fn(|i| self.slot(set, p, i).load(Ordering::Relaxed));
        Ok((0..self.procs * self.threads).map(read).collect())
    }

    /// Tells the others that this participant gives up.
    pub fn fail(&self) {
        let h = self.header();
        // SYNC: control-failed
        h.failed.store(1, Ordering::Release);
        for word in [&h.generation, &h.attached, &h.id_ready] {
            self.wake(word);
        }
    }

    fn check_failed(&self) -> Result<()> {
        // SYNC: control-failed
        ensure!(self.header().failed.load(Ordering::Acquire) == 0, "another rank failed");
        Ok(())
    }

    fn check_peers(&self) -> Result<()> {
        for proc in 0..self.procs {
            let pid = self.pid(proc).load(Ordering::Relaxed);
            if pid != 0 && !alive(pid) {
                self.fail();
                bail!("process {proc} (pid {pid}) died");
            }
        }
        Ok(())
    }

    /// Sleeps at most 100 ms while `word` is `value`; true when the time ran out.
    fn sleep(&self, word: &AtomicU32, value: u32) -> bool {
        let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        futex::wait(word, futex::Flags::empty(), value, Some(&limit)) == Err(Errno::TIMEDOUT)
    }

    fn wake(&self, word: &AtomicU32) {
        // Nobody may be waiting, and a failed wake only costs the sleeper its 100 ms.
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a `Header`, which is made of atomics only, and lives as long as `self`.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    fn pid(&self, proc: usize) -> &AtomicU32 {
        assert!(proc < self.procs);
        // SAFETY: inside the mapping (`segment_bytes`), aligned, atomic.
        unsafe { self.base.add(size_of::<Header>() + proc * 4).cast::<AtomicU32>().as_ref() }
    }

    fn slot(&self, set: usize, participant: usize, word: usize) -> &AtomicU64 {
        let all = self.procs * self.threads;
        assert!(set < 2 && participant < all && word < WORDS);
        let slots = size_of::<Header>() + (self.procs * 4).next_multiple_of(8);
        // SAFETY: inside the mapping (`segment_bytes`), aligned, atomic.
        unsafe { self.base.add(slots + ((set * all + participant) * WORDS + word) * 8).cast::<AtomicU64>().as_ref() }
    }
}

/// Whether a process of that id exists (one of another user counts as alive).
fn alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) != Err(Errno::SRCH)
}

/// When a process started, in the kernel's ticks, 0 when unknown: tells a process from a later one of the same id.
pub fn process_start(pid: u32) -> u64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The command's name may hold spaces and parentheses: fields count from the last one.
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0 };
    fields.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_exchange_words_in_order() {
        let (_fd, control) = Control::anonymous(1, 4).unwrap();
        std::thread::scope(|s| {
            for p in 0..4u64 {
                let control = &control;
                s.spawn(move || {
                    for round in 0..200 {
                        let all = control.share(p as usize, round, [p, round, 0, 7]).unwrap();
                        let want: Vec<_> = (0..4).map(|q| [q, round, 0, 7]).collect();
                        assert_eq!(all, want);
                    }
                });
            }
        });
    }

    #[test]
    fn a_failure_ends_the_others_waits() {
        let (_fd, control) = Control::anonymous(1, 2).unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| control.barrier());
            control.fail();
            assert!(waiter.join().unwrap().is_err());
        });
        assert!(control.wait_id().is_err());
    }

    #[test]
    fn the_id_passes() {
        let (_fd, control) = Control::anonymous(1, 1).unwrap();
        let id = std::array::from_fn(|i| i as u8);
        control.publish_id(&id);
        assert_eq!(control.wait_id().unwrap(), id);
        assert!(control.usable().unwrap());
        control.attach(0, Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn missing_processes_are_reported() {
        let (_fd, control) = Control::anonymous(2, 1).unwrap();
        let e = control.attach(0, Duration::from_millis(150)).unwrap_err();
        assert!(e.to_string().contains("only 1 of 2"), "{e}");
    }

    #[test]
    fn start_time_of_this_process_is_known() {
        assert_ne!(process_start(std::process::id()), 0);
        assert_eq!(process_start(u32::MAX), 0);
    }
}
