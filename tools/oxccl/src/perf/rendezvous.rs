//! Who this process is among the processes of a run, and how they find each other.
//!
//! Knows the variables of Open MPI, MPICH (PMI), Slurm and torchrun. On one host the processes meet in a file named
//! after the job's identity; over several hosts rank 0 listens at an address that the user or torchrun gives.

use std::{
    fs::File,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::inotify;

use super::control::{Control, process_start, segment_bytes};

/// How long processes wait for each other at the start.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// This process's place in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of this process.
    pub proc: usize,
    /// Number of processes.
    pub procs: usize,
    /// Number of this process among those of its host.
    pub local: usize,
    /// How it meets the others.
    pub meeting: Meeting,
}

/// How processes meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// There is only this one.
    Alone,
    /// All are on this host: through a file named after the job.
    Host(String),
    /// Over hosts: rank 0 listens at this address.
    Address(String),
}

/// What the launchers' variables are called.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local: &'static str,
    /// Equal to the size when all processes are on one host.
    local_size: &'static [&'static str],
    /// Variables that together tell this job from others.
    identity: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        identity: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PRTE_MCA_ess_base_jobid"],
    },
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local: "LOCAL_RANK",
        local_size: &["LOCAL_WORLD_SIZE"],
        identity: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
    },
    Launcher {
        name: "MPICH",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        local_size: &["MPI_LOCALNRANKS"],
        identity: &["PMI_JOBID", "PMI_KVSNAME"],
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local: "SLURM_LOCALID",
        local_size: &[],
        identity: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

impl Place {
    /// Number of thread `thread` of the `threads` of this process among all of its host, whatever ranks each has.
    pub fn thread(&self, threads: usize, thread: usize) -> usize {
        self.local * threads + thread
    }

    /// Reads the launcher's variables through `var`; `parent` tells this launcher from others on the host.
    pub fn detect(
        var: impl Fn(&str) -> Option<String>,
        address: Option<&str>,
        parent: impl Fn() -> String,
    ) -> Result<Place> {
        let Some(l) = LAUNCHERS.iter().find(|l| var(l.rank).is_some() && var(l.size).is_some()) else {
            ensure!(
                address.is_none(),
                "--rendezvous: no launcher started this process; set RANK, WORLD_SIZE and LOCAL_RANK for each of the ranks"
            );
            return Ok(Place { proc: 0, procs: 1, local: 0, meeting: Meeting::Alone });
        };
        let number = |name: &str| -> Result<usize> {
            let text = var(name).with_context(|| format!("{}: {name} is not set", l.name))?;
            text.trim().parse().with_context(|| format!("{}: {name}={text} is no number", l.name))
        };
        let (proc, procs) = (number(l.rank)?, number(l.size)?);
        ensure!(proc < procs, "{}: rank {proc} of {procs} processes", l.name);
        let local = if var(l.local).is_some() { number(l.local)? } else { proc };
        let place = |meeting| Place { proc, procs, local, meeting };
        if procs == 1 {
            return Ok(place(Meeting::Alone));
        }
        if let Some(a) = address {
            return Ok(place(Meeting::Address(a.to_owned())));
        }
        let one_host = l.local_size.iter().any(|v| number(v).is_ok_and(|n| n == procs))
            || (l.name == "Slurm"
                && ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"].iter().find_map(|v| var(v)).as_deref() == Some("1"));
        if one_host {
            let mut id = format!("{} {procs}", l.name);
            let known: Vec<String> = l.identity.iter().filter_map(|v| var(v)).collect();
            // Without a name of the job its launcher's process stands for it.
            let known = if known.is_empty() { parent() } else { known.join(" ") };
            id.extend([" ", &known]);
            return Ok(place(Meeting::Host(id)));
        }
        if let Some(a) = var("NCCL_COMM_ID") {
            return Ok(place(Meeting::Address(a)));
        }
        if let (Some(host), Some(port)) = (var("MASTER_ADDR"), var("MASTER_PORT").and_then(|p| p.parse::<u16>().ok())) {
            return Ok(place(Meeting::Address(format!("{host}:{}", port.saturating_add(1)))));
        }
        bail!(
            "{}: {procs} processes on several hosts have no way to find each other; give --rendezvous HOST:PORT (or \
             NCCL_COMM_ID=HOST:PORT) with an address of rank 0's host and a free port",
            l.name
        );
    }
}

/// The launcher's process: its id and when it started.
pub fn parent_identity() -> String {
    let pid = std::os::unix::process::parent_id();
    format!("{pid} {}", process_start(pid))
}

/// Opens the control segment of the job `identity` in this user's private folder and waits for all processes.
pub fn meet(identity: &str, proc: usize, procs: usize, threads: usize) -> Result<Control> {
    meet_in(&private_dir()?, identity, proc, procs, threads, DEADLINE)
}

fn meet_in(
    dir: &Path,
    identity: &str,
    proc: usize,
    procs: usize,
    threads: usize,
    deadline: Duration,
) -> Result<Control> {
    let path = dir.join(format!("oxccl-perf-{:016x}", fnv1a(identity.as_bytes())));
    let control = if proc == 0 { create(&path, procs, threads)? } else { open(dir, &path, procs, threads, deadline)? };
    let attached = control.attach(proc, deadline);
    if proc == 0 {
        // Everybody has it mapped by now, or never will.
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    attached.map(|()| control)
}

/// Puts a complete segment under the name in one step; one that an earlier, crashed run left is replaced.
fn create(path: &Path, procs: usize, threads: usize) -> Result<Control> {
    let temporary = path.with_extension(std::process::id().to_string());
    let fill = || -> Result<Control> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.set_len(segment_bytes(procs, threads) as u64)?;
        let control = Control::map(&file, procs, threads)?;
        control.initialise();
        std::fs::rename(&temporary, path)?;
        Ok(control)
    };
    let result = fill().with_context(|| format!("creating {}", path.display()));
    if result.is_err() {
        // Best effort: the error that counts is already on its way.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

/// Waits for rank 0's segment to appear.
fn open(dir: &Path, path: &Path, procs: usize, threads: usize, deadline: Duration) -> Result<Control> {
    let limit = Instant::now() + deadline;
    let watch =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).context("inotify_init")?;
    // Watched before the first look, so that no appearance is missed.
    inotify::add_watch(&watch, dir, inotify::WatchFlags::MOVED_TO).with_context(|| dir.display().to_string())?;
    loop {
        if let Some(control) = try_open(path, procs, threads)? {
            return Ok(control);
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!(
                "rank 0 did not appear within {} s at {}; do all ranks run on this host, as the same user, with the \
                 same launcher?",
                deadline.as_secs(),
                path.display()
            );
        }
        let timeout = rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("waiting for rank 0"),
        }
        let mut events = [0u8; 4096];
        // Only that something happened counts; an empty queue (EAGAIN) is fine.
        let _ = rustix::io::read(&watch, &mut events);
    }
}

fn try_open(path: &Path, procs: usize, threads: usize) -> Result<Option<Control>> {
    let file = match File::options().read(true).write(true).open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    // A stale file of another shape must not be mapped beyond its end.
    if file.metadata()?.len() < segment_bytes(1, 1) as u64 {
        return Ok(None);
    }
    let same_size = file.metadata()?.len() == segment_bytes(procs, threads) as u64;
    let control =
        if same_size { Control::map(&file, procs, threads)? } else { return mismatch(&file, procs, threads) };
    Ok(control.usable()?.then_some(control))
}

/// A segment of another size: a stale one is waited out, a live one means that the ranks disagree.
fn mismatch(file: &File, procs: usize, threads: usize) -> Result<Option<Control>> {
    // Only the header is looked at, which every segment has.
    let control = Control::map(file, 1, 1)?;
    match control.usable() {
        Ok(false) => Ok(None),
        _ => bail!("rank 0 runs with other counts than this rank ({procs} processes of {threads} threads): check -t"),
    }
}

/// A folder that only this user can use.
fn private_dir() -> Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let private =
        |p: &Path| std::fs::symlink_metadata(p).is_ok_and(|m| m.is_dir() && m.uid() == uid && m.mode() & 0o077 == 0);
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| private(p)) {
        return Ok(dir);
    }
    let dir = std::env::temp_dir().join(format!("oxccl-{uid}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("creating {}", dir.display()));
        }
        _ => {}
    }
    ensure!(
        private(&dir),
        "{} is not a folder that only this user (uid {uid}) can use: remove it, or set XDG_RUNTIME_DIR",
        dir.display()
    );
    Ok(dir)
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn detect(vars: &[(&str, &str)], address: Option<&str>) -> Result<Place> {
        let map: HashMap<_, _> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Place::detect(|k| map.get(k).cloned(), address, || "77 1".into())
    }

    /// Also where each has as many ranks as there are processors.
    #[test]
    fn threads_of_a_host_follow_each_other() {
        let at = |local| Place { proc: local + 6, procs: 9, local, meeting: Meeting::Alone };
        let all: Vec<usize> = (0..3).flat_map(|local| (0..2).map(move |thread| at(local).thread(2, thread))).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn launchers_are_recognised() {
        assert_eq!(detect(&[], None).unwrap().meeting, Meeting::Alone);
        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "job@1"),
        ];
        let p = detect(&ompi, None).unwrap();
        assert_eq!((p.proc, p.procs, p.local), (2, 4, 2));
        assert_eq!(p.meeting, Meeting::Host("Open MPI 4 job@1".into()));
        let mpich = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(detect(&mpich, None).unwrap().meeting, Meeting::Host("MPICH 2 77 1".into()));
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_NNODES", "1"), ("SLURM_JOB_ID", "9")];
        assert_eq!(detect(&slurm, None).unwrap().meeting, Meeting::Host("Slurm 2 9".into()));
    }

    #[test]
    fn several_hosts_need_an_address() {
        let two = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "1")];
        assert!(detect(&two, None).unwrap_err().to_string().contains("--rendezvous"));
        assert_eq!(detect(&two, Some("h:1")).unwrap().meeting, Meeting::Address("h:1".into()));
        let torch = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")];
        assert_eq!(detect(&torch, None).unwrap().meeting, Meeting::Address("h:29501".into()));
        assert!(detect(&[("RANK", "2"), ("WORLD_SIZE", "2")], None).is_err());
        assert!(detect(&[("RANK", "x"), ("WORLD_SIZE", "2")], None).is_err());
    }

    #[test]
    fn processes_meet_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        // A stale file of a dead owner is replaced.
        let path = dir.path().join(format!("oxccl-perf-{:016x}", fnv1a(b"job")));
        std::fs::write(&path, vec![0; segment_bytes(3, 1)]).unwrap();
        std::thread::scope(|s| {
            let late = Duration::from_secs(20);
            let others: Vec<_> = (1..3)
                .map(|p| {
                    s.spawn({
                        let d = dir.path();
                        move || meet_in(d, "job", p, 3, 1, late)
                    })
                })
                .collect();
            let first = meet_in(dir.path(), "job", 0, 3, 1, late).unwrap();
            first.publish_id(&[5; 128]);
            for o in others {
                assert_eq!(o.join().unwrap().unwrap().wait_id().unwrap(), [5; 128]);
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_rank_0_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let e = meet_in(dir.path(), "job", 1, 2, 1, Duration::from_millis(50)).err().unwrap();
        assert!(e.to_string().contains("rank 0 did not appear"), "{e}");
    }
}
