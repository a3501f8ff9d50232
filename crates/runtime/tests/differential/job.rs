//! Jobs: processes that run cases on a communicator, each with an environment of its own, since communicators read
//! theirs when they are made. A process owns one or several ranks, each a thread.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oxccl_runtime::device::{self, Stream};
use oxccl_runtime::{CommConfig, Communicator, UniqueId, group};
use oxccl_types::{Collective, DataType};

use crate::bursts;
use crate::case::{Case, Memory, Prepared, Rounding, What};
use crate::common::{Children, wait};
use crate::oracle::Op;
use crate::uneven;

/// How a job is told to a process.
const VARIABLE: &str = "OXCCL_TEST_DIFFERENTIAL_JOB";
/// In the value of a variable of a road, or of a crowd's: the number of the process.
pub const PROCESS: &str = "{process}";
/// The same: the number of the pair of processes, and of the three.
pub const PAIR: &str = "{pair}";
pub const THREE: &str = "{three}";
/// A value of a variable, as it is told to that process.
pub fn told(value: &str, process: usize) -> String {
    let numbers = [(PROCESS, process), (PAIR, process / 2), (THREE, process / 3)];
    numbers.iter().fold(value.to_string(), |text, (of, n)| text.replace(of, &n.to_string()))
}

/// A job that takes longer is ended and failed.
const LIMIT: Duration = Duration::from_secs(240);

/// A way through the library that the environment forces.
pub struct Road {
    pub name: &'static str,
    pub env: &'static [(&'static str, &'static str)],
    pub rounding: Rounding,
}

/// Ranks and memory of a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Ranks of each process.
    pub processes: Vec<usize>,
    pub memory: Memory,
    pub calls: Calls,
}

/// What a job calls.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    /// Every n-th combination of collective, type and operator; 1: all.
    Every(usize),
    /// The first so many of some calls beyond 2^31 bytes.
    Large(usize),
    /// So many bursts of calls back to back.
    Bursts(usize),
    /// So many rounds of AlltoAllv among other calls.
    Uneven(usize),
    /// So many calls whose root runs ahead; of the last one the ranks differ.
    Differing(usize),
}

impl Job {
    pub fn threads(ranks: usize, every: usize) -> Job {
        Job { processes: vec![ranks], memory: Memory::Mixed, calls: Calls::Every(every) }
    }

    pub fn processes(processes: &[usize], memory: Memory, every: usize) -> Job {
        Job { processes: processes.to_vec(), memory, calls: Calls::Every(every) }
    }

    pub fn bursts(processes: &[usize], bursts: usize) -> Job {
        Job { processes: processes.to_vec(), memory: Memory::Mixed, calls: Calls::Bursts(bursts) }
    }

    pub fn uneven(processes: &[usize], rounds: usize) -> Job {
        Job { processes: processes.to_vec(), memory: Memory::Mixed, calls: Calls::Uneven(rounds) }
    }

    pub fn differing(calls: usize) -> Job {
        Job { processes: vec![1, 1], memory: Memory::Malloc, calls: Calls::Differing(calls) }
    }

    pub fn large(ranks: usize, calls: usize) -> Job {
        Job { processes: vec![ranks], memory: Memory::Device, calls: Calls::Large(calls) }
    }
}

/// The seed of this run: `OXCCL_TEST_SEED`, else a random one. It is printed.
pub fn seed() -> u64 {
    let given = std::env::var("OXCCL_TEST_SEED").ok().and_then(|t| t.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("OXCCL_TEST_SEED={seed}");
    seed
}

/// Runs `job` on `road` and fails with the output of the process that failed.
pub fn run(road: &Road, job: &Job, seed: u64) {
    let ranks: usize = job.processes.iter().sum();
    let start = Instant::now();
    let mut children = Children(vec![]);
    let mut outputs = vec![];
    let mut id = "-".to_string();
    let mut first = 0;
    for (process, mine) in job.processes.iter().enumerate() {
        let text = format!(
            "{seed} {ranks} {first} {mine} {:?} {:?} {:?} {} {id}",
            job.memory,
            road.rounding,
            job.calls,
            job.processes.len()
        );
        let mut child = spawn(road, &text, process);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        children.0.push(child);
        if id == "-" && job.processes.len() > 1 {
            let mut line = String::new();
            // The harness of the test prints lines of its own before.
            while !line.starts_with("ID ") {
                line.clear();
                assert!(out.read_line(&mut line).unwrap() > 0, "{}: the first process said no id", road.name);
            }
            id = line[3..].trim().to_string();
        }
        // Read at once, so that nobody blocks on a full pipe.
        outputs.push(std::thread::spawn(move || {
            let mut text = String::new();
            let _ = out.read_to_string(&mut text);
            text
        }));
        first += mine;
    }
    let mut failed = vec![];
    for (i, c) in children.0.iter_mut().enumerate() {
        match wait(c, start, LIMIT).map(|status| status.success()) {
            Some(true) => {}
            Some(false) => failed.push(format!("process {i} failed")),
            None => failed.push(format!("process {i} did not end in {LIMIT:?}")),
        }
    }
    drop(children);
    let texts: Vec<String> = outputs.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(failed.is_empty(), "{} {job:?} seed {seed}: {failed:?}\n{}", road.name, texts.join("\n----\n"));
    let cases = texts[0].lines().find_map(|l| l.strip_prefix("CASES ")).unwrap_or("no");
    assert_ne!(cases, "no", "{}: no case ran", road.name);
    println!("{:24} {job:?}: {cases} cases, {:.1} s", road.name, start.elapsed().as_secs_f64());
}

fn spawn(road: &Road, text: &str, process: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        let known = name.to_string_lossy();
        if ["NCCL_", "RCCL_", "OXCCL_"].iter().any(|p| known.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    command.args(["--exact", "job::worker", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(VARIABLE, text).env("OXCCL_OP_TIMEOUT", "60").env("NCCL_SOCKET_IFNAME", "lo");
    command.envs(road.env.iter().map(|(name, value)| (name, told(value, process))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
#[ignore = "no test by itself: `cargo test -p oxccl-runtime --test differential` runs it in processes of their own"]
fn worker() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let memory = match words[4] {
        "Device" => Memory::Device,
        "Malloc" => Memory::Malloc,
        _ => Memory::Mixed,
    };
    let rounding = if words[5] == "Once" { Rounding::Once } else { Rounding::PerStep };
    let (ranks, first, mine) = (number(1) as usize, number(2) as usize, number(3) as usize);
    let id = if words[8] == "-" {
        let id = UniqueId::create().unwrap();
        let hex: String = id.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
        println!("\nID {hex}");
        id
    } else {
        let byte = |i: usize| u8::from_str_radix(&words[8][2 * i..2 * i + 2], 16).unwrap();
        UniqueId::from_bytes(std::array::from_fn(byte)).unwrap()
    };
    let (kind, n) = words[6].trim_end_matches(')').split_once('(').unwrap();
    let n = n.parse().unwrap();
    let calls = match kind {
        "Every" => Calls::Every(n),
        "Bursts" => Calls::Bursts(n),
        "Uneven" => Calls::Uneven(n),
        "Differing" => Calls::Differing(n),
        _ => Calls::Large(n),
    };
    let script = Arc::new(Script { seed: number(0), ranks, memory, rounding, calls });
    let results = Arc::new(Mutex::new(HashMap::new()));
    let threads: Vec<_> = (first..first + mine)
        .map(|rank| {
            let (script, id, results) = (script.clone(), id.clone(), results.clone());
            std::thread::spawn(move || script.run(rank, id, &results))
        })
        .collect();
    let mut cases = 0;
    let mut good = true;
    for t in threads {
        match t.join() {
            Ok(n) => cases = n,
            Err(_) => good = false,
        }
    }
    assert!(good, "a rank failed");
    println!("\nCASES {cases}");
}

/// What all ranks of a job do.
struct Script {
    seed: u64,
    ranks: usize,
    memory: Memory,
    rounding: Rounding,
    calls: Calls,
}

type Results = Mutex<HashMap<usize, Vec<u8>>>;

/// All combinations of what is called, type and operator.
fn combinations() -> Vec<(What, DataType, Op)> {
    let mut all = vec![];
    for what in What::ALL {
        for dtype in DataType::ALL {
            let ops = if what.reduces() { &Op::ALL[..] } else { &Op::ALL[..1] };
            all.extend(ops.iter().map(|op| (what, dtype, *op)));
        }
    }
    all
}

/// Aborts the communicator when its rank panics, so that the other ranks end too.
struct AbortOnPanic(Arc<Communicator>);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.abort();
        }
    }
}

impl Script {
    fn run(&self, rank: usize, id: UniqueId, results: &Results) -> usize {
        let device = rank % device::count();
        device::set_current(device).unwrap();
        let comm = Communicator::init_rank(self.ranks as i32, id, rank as i32, device, CommConfig::default(), "test");
        let comm = comm.unwrap();
        let abort = AbortOnPanic(comm.clone());
        let streams = [Stream::new().unwrap(), Stream::default_stream()];
        let every = match self.calls {
            Calls::Every(every) => every,
            Calls::Large(calls) => return self.run_large(&comm, &streams, calls),
            Calls::Bursts(bursts) => {
                let done = bursts::run(&comm, self.ranks, rank, bursts, self.seed);
                comm.destroy().unwrap();
                drop(abort);
                return done;
            }
            Calls::Uneven(rounds) => {
                let (sender, made) = std::sync::mpsc::sync_channel(1);
                let tell = Box::new(move |other| drop(sender.send(other)));
                comm.split(Some(0), rank as i32, None, tell).unwrap();
                let other: Arc<Communicator> = made.recv().unwrap().unwrap();
                let done = uneven::run([&comm, &other], self.ranks, rank, rounds, self.seed);
                other.destroy().unwrap();
                comm.destroy().unwrap();
                drop(abort);
                return done;
            }
            Calls::Differing(calls) => {
                bursts::differ(&comm, rank, calls);
                comm.abort().unwrap();
                drop(abort);
                return calls;
            }
        };
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut list = combinations();
        rng.shuffle(&mut list);
        list.truncate(list.len() / every);
        let mut done = 0;
        while done < list.len() {
            let n = rng.usize(1..7).min(list.len() - done);
            let batch: Vec<Prepared> = list[done..done + n]
                .iter()
                .map(|what| Case::draw(rng.u64(..), self.ranks, *what, self.memory, self.rounding))
                .map(|case| Prepared::new(case, &comm, &streams))
                .collect();
            self.run_batch(&comm, &batch, &streams, &mut rng);
            for (i, p) in batch.iter().enumerate() {
                p.check();
                agree(results, done + i, p);
            }
            let again: Vec<Case> = batch.iter().map(|p| p.case.clone()).filter(Case::is_medium).collect();
            let some = batch.first().map(|p| p.case.clone());
            drop(batch);
            again.iter().for_each(|case| self.make_again(&comm, case, &streams, &mut rng));
            if let Some(case) = some.filter(Case::is_among_all) {
                self.make_grouped(&comm, &case, &streams, &mut rng);
            }
            done += n;
        }
        comm.finalize().unwrap();
        comm.destroy().unwrap();
        drop(abort);
        done
    }

    /// Makes the call of `case` some more times: twice in the same buffers, then in others, and so on. At times it is seen that the
    /// second call moves everything, too.
    fn make_again(&self, comm: &Arc<Communicator>, case: &Case, streams: &[Stream; 2], rng: &mut fastrand::Rng) {
        for _ in 0..2 {
            let mut p = Prepared::new(case.anew(rng.u64(..)), comm, streams);
            let synchronize =
                |p: &Prepared| streams[0].synchronize().unwrap_or_else(|e| panic!("{e}: {}", p.describe()));
            p.submit(comm);
            if case.may_spoil() && rng.bool() {
                synchronize(&p);
                p.spoil();
            }
            if case.may_repeat() {
                p.submit(comm);
            }
            synchronize(&p);
            p.check();
        }
    }

    /// Makes small calls of the kind of `case` in groups, which are not the same ones on all ranks.
    fn make_grouped(&self, comm: &Arc<Communicator>, case: &Case, streams: &[Stream; 2], rng: &mut fastrand::Rng) {
        let calls: Vec<Prepared> =
            (0..rng.usize(2..40)).map(|_| Prepared::new(case.small(rng), comm, streams)).collect();
        // Alike on all ranks half of the time.
        let mut own = fastrand::Rng::with_seed(rng.u64(..) + if rng.bool() { comm.rank() as u64 } else { 0 });
        let mut rest = &calls[..];
        while !rest.is_empty() {
            let (these, others) = rest.split_at(own.usize(1..50).min(rest.len()));
            rest = others;
            group::start();
            these.iter().for_each(|p| p.submit(comm));
            group::end().unwrap_or_else(|e| panic!("{e}: {}", these[0].describe()));
        }
        streams[0].synchronize().unwrap_or_else(|e| panic!("{e}: {}", calls[0].describe()));
        calls.iter().for_each(Prepared::check);
    }

    fn run_large(&self, comm: &Arc<Communicator>, streams: &[Stream; 2], calls: usize) -> usize {
        for collective in [Collective::AllGather, Collective::Broadcast, Collective::AllReduce].into_iter().take(calls)
        {
            let p = Prepared::new(Case::beyond_31_bits(collective, self.ranks), comm, streams);
            p.submit(comm);
            streams[0].synchronize().unwrap_or_else(|e| panic!("{e}: {}", p.describe()));
            p.check();
        }
        comm.destroy().unwrap();
        calls
    }

    /// Enqueues all calls without waiting in between, sometimes as a group, and waits for the streams.
    fn run_batch(&self, comm: &Arc<Communicator>, batch: &[Prepared], streams: &[Stream; 2], rng: &mut fastrand::Rng) {
        let grouped = rng.u8(..6) == 0;
        let order = rng.usize(..2);
        let depth = if grouped { rng.usize(1..3) } else { 0 };
        (0..depth).for_each(|_| group::start());
        for p in batch {
            p.submit(comm);
        }
        let describe = || batch.iter().map(Prepared::describe).collect::<Vec<_>>().join("\n");
        for _ in 0..depth {
            group::end().unwrap_or_else(|e| panic!("{e}: {}", describe()));
        }
        for i in [order, 1 - order] {
            streams[i].synchronize().unwrap_or_else(|e| panic!("{e}: {}", describe()));
        }
    }
}

/// All-reduces give the same bits on all ranks, whatever road they took.
fn agree(results: &Results, index: usize, p: &Prepared) {
    let Some(mine) = p.shared_result() else { return };
    let mut results = results.lock().unwrap();
    let theirs = results.entry(index).or_insert_with(|| mine.to_vec());
    assert!(theirs == mine, "ranks have different results: {}", p.describe());
}
