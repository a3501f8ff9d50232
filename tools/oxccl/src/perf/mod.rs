//! `oxccl perf`: measures and checks a collective through the library's C interface.
//!
//! The run: find this process's place, meet the others, initialise the ranks, then let one thread per team scan types,
//! operators, roots and sizes in step with all others. Knows nothing of algorithms or transports.

mod args;
mod collectives;
mod control;
mod data;
mod failure;
mod jsonl;
mod launch;
mod life;
mod measure;
mod memory;
mod ranks;
mod rendezvous;
mod scan;
mod table;

pub use args::{Memory, PerfArgs, parse_memory, parse_size};
pub use collectives::Coll;
pub use launch::pin;

use std::{
    process::ExitCode,
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use self::{
    args::{Root, Subject},
    control::Control,
    failure::Guard,
    ranks::{Exchange, Seat, Team},
    rendezvous::{Meeting, Place},
};
use crate::api::{self, Comm, UniqueId};

/// Runs the subcommand.
pub fn run(args: PerfArgs) -> ExitCode {
    let code = match prepare(&args) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("oxccl perf: {e:#}");
            failure::RUN
        }
    };
    ExitCode::from(code)
}

/// What this process is in the run.
struct Process {
    place: Place,
    control: Option<Arc<Control>>,
    /// Started by `--procs`.
    copied: bool,
}

fn prepare(args: &PerfArgs) -> Result<u8> {
    args.validate()?;
    let process = if let Some(p) = launch::part(args.threads)? {
        p.control.attach(p.proc, rendezvous::DEADLINE)?;
        let meeting = Meeting::Host("--procs".into());
        let place = Place { proc: p.proc, procs: p.procs, local: p.proc, meeting };
        Process { place, control: Some(Arc::new(p.control)), copied: true }
    } else if let Some(procs) = args.procs {
        return launch::run_parent(args, procs);
    } else {
        launched(args)?
    };
    let result = start(args, &process);
    if let (Err(_), Some(control)) = (&result, &process.control) {
        control.fail();
    }
    result
}

/// A process that a launcher (or nobody) started.
fn launched(args: &PerfArgs) -> Result<Process> {
    let var = |name: &str| std::env::var(name).ok();
    let place = Place::detect(var, args.rendezvous.as_deref(), rendezvous::parent_identity)?;
    let control = match &place.meeting {
        Meeting::Alone => Some(Control::anonymous(1, args.threads)?.1),
        Meeting::Host(job) => Some(rendezvous::meet(job, place.proc, place.procs, args.threads)?),
        Meeting::Address(address) => {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var("NCCL_COMM_ID", address) };
            None
        }
    };
    Ok(Process { place, control: control.map(Arc::new), copied: false })
}

/// The id of the run's communicator.
fn agree_on_id(process: &Process) -> Result<UniqueId> {
    match &process.control {
        // Every process derives the same id from the address.
        None => api::unique_id(),
        Some(control) if process.place.proc == 0 => {
            let id = api::unique_id()?;
            control.publish_id(&id.internal);
            Ok(id)
        }
        Some(control) => Ok(UniqueId { internal: control.wait_id()? }),
    }
}

fn start(args: &PerfArgs, process: &Process) -> Result<u8> {
    let place = &process.place;
    let per_process = args.threads * args.devices;
    let total = place.procs * per_process;
    ensure!(
        args.collective() != Coll::Hypercube || total.is_power_of_two(),
        "hypercube needs a power of two of ranks, not {total}"
    );
    if let Root::One(r) = args.root {
        ensure!(!args.collective().rooted() || r < total, "root {r} of {total} ranks");
    }
    let pin = args.pin.unwrap_or(process.copied);
    if pin && args.threads == 1 {
        launch::pin(place.thread(1, 0))?;
    }
    let guard = Arc::new(Guard::default());
    if args.timeout > 0 {
        guard.arm("initialisation".into(), Duration::from_secs(args.timeout));
        watch(&guard, args.timeout, process.control.clone());
    }
    if args.subject != Subject::Collective(args.collective()) {
        let control = process.control.as_ref().context("init and late need all ranks on one host: --procs")?;
        let life = life::Life::new(args, control, &guard, place.proc, place.procs)?;
        let code = if args.subject == Subject::Init { life.init()? } else { life.late()? };
        guard.finish();
        return Ok(code);
    }
    let id = agree_on_id(process)?;
    let crew = Crew { args, process, id, total, pin, guard: guard.clone() };
    let code = crew.run()?;
    guard.finish();
    Ok(code)
}

/// Ends the process when the guard's limit passes: whatever hangs will not return.
fn watch(guard: &Arc<Guard>, seconds: u64, control: Option<Arc<Control>>) {
    let guard = guard.clone();
    std::thread::spawn(move || {
        if let Some(what) = guard.watch() {
            eprintln!("oxccl perf: {what} did not end within {seconds} s (-T)");
            if let Some(c) = control {
                c.fail();
            }
            std::process::exit(failure::RUN.into());
        }
    });
}

/// The threads of this process.
struct Crew<'a> {
    args: &'a PerfArgs,
    process: &'a Process,
    id: UniqueId,
    total: usize,
    pin: bool,
    guard: Arc<Guard>,
}

impl Crew<'_> {
    fn seats(&self, thread: usize, count: usize) -> Result<Vec<Seat>> {
        let offset = thread * self.args.devices;
        let per_process = self.args.threads * self.args.devices;
        let first = self.process.place.proc * per_process + offset;
        let local = self.process.place.local * per_process + offset;
        ranks::seats(first, count, local, self.total, &self.id)
    }

    /// Initialises `count` ranks from `thread`'s first on, in one group.
    fn initialise(&self, thread: usize, count: usize) -> Result<Vec<Seat>> {
        if count > 1 {
            api::group_start()?;
        }
        let seats = self.seats(thread, count)?;
        if count > 1 {
            api::group_end(Comm::NONE).context("initialising the communicators")?;
        }
        Ok(seats)
    }

    fn run(&self) -> Result<u8> {
        let threads = self.args.threads;
        let mut ready: Vec<Option<Vec<Seat>>> = (0..threads).map(|_| None).collect();
        if self.args.parallel_init == 0 {
            let mut all = self.initialise(0, threads * self.args.devices)?;
            for t in (0..threads).rev() {
                ready[t] = Some(all.split_off(t * self.args.devices));
            }
        }
        if threads == 1 {
            return self.team(0, ready.pop().flatten());
        }
        let (report, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for (t, seats) in ready.into_iter().enumerate() {
                let report = report.clone();
                // The receiver outlives the scope.
                scope.spawn(move || report.send(self.team(t, seats)));
            }
            drop(report);
            let mut worst = failure::OK;
            for result in results {
                match result {
                    Ok(code) => worst = worst.max(code),
                    // The other threads may wait inside the library for the failed one: they are not joined.
                    Err(e) => {
                        eprintln!("oxccl perf: {e:#}");
                        if let Some(c) = &self.process.control {
                            c.fail();
                        }
                        std::process::exit(failure::RUN.into());
                    }
                }
            }
            Ok(worst)
        })
    }

    fn team(&self, thread: usize, seats: Option<Vec<Seat>>) -> Result<u8> {
        let place = &self.process.place;
        if self.pin && self.args.threads > 1 {
            launch::pin(place.thread(self.args.threads, thread))?;
        }
        let seats = match seats {
            Some(s) => s,
            None => self.initialise(thread, self.args.devices)?,
        };
        let exchange = match &self.process.control {
            Some(c) => Exchange::Local(c.clone()),
            None => Exchange::Library,
        };
        let participant = place.proc * self.args.threads + thread;
        let bytes = self.args.sizes().into_iter().max().unwrap_or(0);
        let team = Team::new(seats, self.total, participant, exchange, bytes, self.args)?;
        scan::run(self.args, team, &self.guard)
    }
}
