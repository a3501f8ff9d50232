//! The command line of `perf`: the flags of the well-known test programs, and a few of our own.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use oxccl_types::DataType;

use super::{collectives::Coll, data::Op};

/// What memory the buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// `ncclMemAlloc`: shareable between processes.
    Device,
    /// The program's own heap.
    Malloc,
}

/// How calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Back to back; the stream is synchronised after the last one.
    BackToBack,
    /// Each call between two barriers, synchronised.
    Sync,
}

impl Mode {
    /// The spelling of command line and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::BackToBack => "b2b",
            Mode::Sync => "sync",
        }
    }
}

/// Measure and check a collective.
#[derive(clap::Args, Clone, Debug)]
pub struct PerfArgs {
    /// Collective: all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, alltoallv, gather, scatter,
    /// sendrecv, hypercube; or what a communicator costs: init (its making), late (waiting for a late rank)
    #[arg(value_parser = Subject::parse)]
    pub subject: Subject,
    /// Smallest size (8, 64K, 128M, 1G)
    #[arg(short = 'b', long = "minbytes", default_value = "32M", value_parser = parse_size)]
    pub min_bytes: usize,
    /// Largest size [default: 32M, at least the smallest]
    #[arg(short = 'e', long = "maxbytes", value_parser = parse_size)]
    pub max_bytes: Option<usize>,
    /// Step between sizes
    #[arg(short = 'i', long = "stepbytes", default_value = "1M", value_parser = parse_size)]
    pub step_bytes: usize,
    /// Factor between sizes, instead of a step
    #[arg(short = 'f', long = "stepfactor")]
    pub step_factor: Option<usize>,
    /// Devices (ranks) per thread
    #[arg(short = 'g', long = "ngpus", default_value_t = 1, value_parser = up_to(MOST_DEVICES))]
    pub devices: usize,
    /// Threads per process
    #[arg(short = 't', long = "nthreads", visible_alias = "threads", default_value_t = 1, value_parser = up_to(MOST_THREADS))]
    pub threads: usize,
    /// Processes to start on this machine
    #[arg(long, value_parser = up_to(MOST_PROCS))]
    pub procs: Option<usize>,
    /// Measured iterations [default: 20; with --jsonl as many as fill a repetition, or single ones (--mode
    /// sync) as fit 150 ms]
    #[arg(short = 'n', long = "iters")]
    pub iters: Option<usize>,
    /// Iterations before measuring [default: 5, or as many as take 200 ms where those are fewer]
    #[arg(short = 'w', long = "warmup_iters")]
    pub warmup: Option<usize>,
    /// Calls aggregated in one group per iteration, each on its own part of the first 256 KiB of the buffers where these have
    /// room; times are per call. With -m 1 and -z 1 each call is synchronised, to compare with
    #[arg(short = 'm', long = "agg_iters", visible_alias = "group", default_value_t = 1)]
    pub aggregate: usize,
    /// Communicators per rank, of which each call uses the next, also within a group
    #[arg(long, default_value_t = 1)]
    pub comms: usize,
    /// Times to run the whole scan, 0: for ever
    #[arg(short = 'N', long = "run_cycles", default_value_t = 1)]
    pub cycles: usize,
    /// Checked iterations after each measurement, 0: no checks
    #[arg(short = 'c', long = "check", default_value_t = 1)]
    pub check: usize,
    /// Operator: sum, prod, min, max, avg, mulsum, all
    #[arg(short = 'o', long = "op", default_value = "sum", value_parser = parse_ops)]
    pub ops: List<Op>,
    /// Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2, all
    #[arg(short = 'd', long = "datatype", default_value = "float", value_parser = parse_types)]
    pub dtypes: List<DataType>,
    /// Root rank, -1 or all: every rank in turn
    #[arg(short = 'r', long = "root", default_value = "0", value_parser = parse_root, allow_hyphen_values = true)]
    pub root: Root,
    /// 1: synchronise after each call
    #[arg(short = 'z', long = "blocking", default_value_t = 0)]
    pub blocking: u8,
    /// 1: each thread initialises its ranks by itself
    #[arg(short = 'p', long = "parallel_init", default_value_t = 0)]
    pub parallel_init: u8,
    /// Time over ranks: 0 rank 0, 1 average, 2 least, 3 greatest
    #[arg(short = 'a', long = "average", default_value_t = DEFAULT_AVERAGE, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub average: u8,
    /// Seconds that one row may take before the program gives up, 0: no limit
    #[arg(short = 'T', long = "timeout", default_value_t = 0)]
    pub timeout: u64,
    /// 1: report the time to enqueue instead of the time to completion
    #[arg(short = 'C', long = "report_cputime", default_value_t = 0)]
    pub cpu_time: u8,
    /// 1: print the time of day in each row
    #[arg(short = 'S', long = "report_timestamps", default_value_t = 0)]
    pub timestamps: u8,
    /// Register the buffers: 1 locally, 2 as symmetric windows
    #[arg(short = 'R', long = "local_register", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub register: u8,
    /// Only one of the two halves of a row: 0 in place, 1 out of place
    #[arg(short = 'O', long = "out_of_place", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub half: Option<u8>,
    /// Graph launches; this tool makes none, so only 0 is accepted
    #[arg(short = 'G', long = "cudagraph", alias = "hipgraph", default_value_t = 0)]
    pub graph: usize,
    /// Compute unit mask of a GPU; without effect on host devices
    #[arg(short = 'u', long = "cumask", hide = true)]
    pub cu_mask: Option<String>,
    /// Memory type of a GPU; without effect on host devices (see --memory)
    #[arg(short = 'y', long = "memory_type", hide = true)]
    pub memory_type: Option<String>,
    /// Back to back calls (b2b) or single calls between barriers (sync)
    #[arg(long, default_value = "b2b", value_parser = parse_mode)]
    pub mode: Mode,
    /// Buffers from ncclMemAlloc (device) or from the heap (malloc)
    #[arg(long, default_value = "device", value_parser = parse_memory)]
    pub memory: Memory,
    /// Bind the threads of a host, each with all of its ranks, to the processors in turn [default: with --procs]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub pin: Option<bool>,
    /// HOST:PORT where rank 0 listens for the others, for launchers that span hosts
    #[arg(long)]
    pub rendezvous: Option<String>,
    /// Append one JSON object per measured point to this file
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Name of the set-up in the JSON lines
    #[arg(long, default_value = "shm")]
    pub setup: String,
}

/// Of `-b` and `-i`.
const DEFAULT_SIZE: usize = 32 << 20;
const DEFAULT_STEP: usize = 1 << 20;

/// Of `-a`, as the well-known test programs have it.
const DEFAULT_AVERAGE: u8 = 1;

/// Of `-w`, where there is time for so many.
pub const DEFAULT_WARMUP: usize = 5;

/// Far more than a machine serves; above that the segment that all share, and the numbers of ranks, would not do.
const MOST_PROCS: u64 = 4096;
const MOST_THREADS: u64 = 1024;
const MOST_DEVICES: u64 = 4096;

fn up_to(most: u64) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..=most)
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A collective.
    Collective(Coll),
    /// Making communicators.
    Init,
    /// Waiting for a rank that is late.
    Late,
}

impl Subject {
    fn parse(name: &str) -> Result<Subject, String> {
        match name {
            "init" => Ok(Subject::Init),
            "late" => Ok(Subject::Late),
            _ => Coll::parse(name).map(Subject::Collective).map_err(|e| format!("{e}; also init, late")),
        }
    }
}

/// A list that is one argument to clap.
pub type List<T> = std::sync::Arc<[T]>;

/// Which ranks are root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// This one.
    One(usize),
    /// Each in turn.
    All,
}

impl PerfArgs {
    /// The collective; the one that `init` and `late` use, where one of them is measured.
    pub fn collective(&self) -> Coll {
        match self.subject {
            Subject::Collective(c) => c,
            Subject::Init | Subject::Late => Coll::AllReduce,
        }
    }

    /// Rejects what clap's types cannot.
    pub fn validate(&self) -> Result<()> {
        self.validate_life()?;
        ensure!(self.comms > 0, "--comms must be at least 1");
        ensure!(
            self.comms == 1 || self.register == 0 && !self.ops.contains(&Op::MulSum),
            "--comms does not go with -R or with the operator mulsum, which belong to one communicator"
        );
        ensure!(
            self.procs.is_none() || self.rendezvous.is_none(),
            "--procs starts all ranks on this host; --rendezvous is for ranks that a launcher starts on several"
        );
        ensure!(
            self.aggregate == 1 || self.subject != Subject::Collective(Coll::Hypercube),
            "-m: the calls of a hypercube follow each other, they are no group"
        );
        ensure!(self.iters != Some(0) && self.aggregate > 0, "-n and -m must be at least 1");
        ensure!(self.step_factor != Some(0) && self.step_factor != Some(1), "-f must be at least 2");
        ensure!(self.step_factor.is_some() || self.step_bytes > 0, "-i must be at least 1");
        ensure!(self.max_bytes.is_none_or(|e| e >= self.min_bytes), "-e is smaller than -b");
        ensure!(
            self.jsonl.is_none() || self.cpu_time == 0 && self.average == DEFAULT_AVERAGE,
            "--jsonl measures from the first rank's start to the last one's end: leave out -C and -a"
        );
        ensure!(
            self.half != Some(0) || self.collective().in_place_allowed(),
            "-O 0 measures calls in place, which {} does not have: leave -O out",
            self.collective().snake()
        );
        ensure!(self.graph == 0, "-G: this tool launches no graphs; leave it at 0");
        ensure!(
            !(self.register == 2 && self.memory == Memory::Malloc),
            "-R 2 needs memory of ncclMemAlloc: leave out --memory malloc"
        );
        Ok(())
    }

    /// `init` and `late` are no scan, and use few of the options: none is passed over.
    fn validate_life(&self) -> Result<()> {
        let (name, init) = match self.subject {
            Subject::Collective(_) => return Ok(()),
            Subject::Init => ("init", true),
            Subject::Late => ("late", false),
        };
        let given = [
            ("-b", self.min_bytes != DEFAULT_SIZE),
            ("-e", self.max_bytes.is_some()),
            ("-i", self.step_bytes != DEFAULT_STEP),
            ("-f", self.step_factor.is_some()),
            ("-w", init && self.warmup.is_some()),
            ("-m", self.aggregate != 1),
            ("--comms", !init && self.comms != 1),
            ("-N", self.cycles != 1),
            ("-c", self.check != 1),
            ("-o", *self.ops != [Op::Sum]),
            ("-d", *self.dtypes != [DataType::Float32]),
            ("-r", self.root != Root::One(0)),
            ("-z", self.blocking != 0),
            ("-p", self.parallel_init != 0),
            ("-a", self.average != DEFAULT_AVERAGE),
            ("-C", self.cpu_time != 0),
            ("-S", self.timestamps != 0),
            ("-R", self.register != 0),
            ("-O", self.half.is_some()),
            ("--mode", self.mode != Mode::BackToBack),
            ("--memory", init && self.memory != Memory::Device),
        ];
        let unused: Vec<_> = given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option).collect();
        ensure!(unused.is_empty(), "{name} does not use {}: leave it out", unused.join(", "));
        Ok(())
    }

    /// The sizes of the scan.
    pub fn sizes(&self) -> Vec<usize> {
        let max = self.max_bytes.unwrap_or(DEFAULT_SIZE.max(self.min_bytes));
        let next = |s: &usize| match self.step_factor {
            // 0 times a factor stays 0: the smallest element follows it.
            Some(f) => s.checked_mul(f).map(|x| x.max(1)),
            None => s.checked_add(self.step_bytes),
        };
        std::iter::successors(Some(self.min_bytes), next).take_while(|s| *s <= max).collect()
    }
}

/// `8`, `64K`, `128M`, `1G`, also `64KB` and `1.5M`.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let t = text.trim().to_ascii_uppercase();
    let t = t.strip_suffix("IB").or(t.strip_suffix('B')).unwrap_or(&t);
    let (digits, shift) = match t.as_bytes().last() {
        Some(b'K') => (&t[..t.len() - 1], 10),
        Some(b'M') => (&t[..t.len() - 1], 20),
        Some(b'G') => (&t[..t.len() - 1], 30),
        Some(b'T') => (&t[..t.len() - 1], 40),
        _ => (t, 0),
    };
    let wrong = || format!("'{text}' is no size; write 8, 64K, 128M or 1G");
    if let Ok(v) = digits.parse::<usize>() {
        return v.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let v: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = v * (1u64 << shift) as f64;
    if !(0.0..1e18).contains(&bytes) || digits.contains(['E', 'N', 'I']) {
        return Err(wrong());
    }
    Ok(bytes as usize)
}

fn parse_ops(text: &str) -> Result<List<Op>, String> {
    if text == "all" {
        return Ok(Op::ALL.into());
    }
    let op = Op::ALL.into_iter().find(|o| o.name() == text);
    op.map(|o| [o].into()).ok_or_else(|| format!("known are {}, all", Op::ALL.map(Op::name).join(", ")))
}

fn parse_types(text: &str) -> Result<List<DataType>, String> {
    if text == "all" {
        return Ok(DataType::ALL.into());
    }
    let name = match text {
        "char" | "i8" => "int8",
        "u8" => "uint8",
        "int" | "i32" => "int32",
        "uint" | "u32" => "uint32",
        "i64" => "int64",
        "u64" => "uint64",
        "f16" | "float16" => "half",
        "f32" | "float32" => "float",
        "f64" | "float64" => "double",
        "bf16" => "bfloat16",
        "f8e4m3" => "fp8_e4m3",
        "f8e5m2" => "fp8_e5m2",
        other => other,
    };
    let found = DataType::ALL.into_iter().find(|t| t.name() == name);
    found.map(|t| [t].into()).ok_or_else(|| format!("known are {}, all", DataType::ALL.map(DataType::name).join(", ")))
}

fn parse_root(text: &str) -> Result<Root, String> {
    match text {
        "all" | "-1" => Ok(Root::All),
        t => t.parse().map(Root::One).map_err(|_| "a rank, -1 or all".to_owned()),
    }
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    match text {
        "b2b" => Ok(Mode::BackToBack),
        "sync" => Ok(Mode::Sync),
        _ => Err("b2b or sync".to_owned()),
    }
}

/// `device` or `malloc`.
pub fn parse_memory(text: &str) -> Result<Memory, String> {
    match text {
        "device" => Ok(Memory::Device),
        "malloc" => Ok(Memory::Malloc),
        _ => Err("device or malloc".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PerfArgs,
    }

    // Not inlined: the parser's frames are large, and a test's stack is small.
    #[inline(never)]
    fn args(line: &str) -> PerfArgs {
        Line::try_parse_from(std::iter::once("perf").chain(line.split_whitespace()))
            .unwrap_or_else(|e| panic!("{e}"))
            .args
    }

    #[test]
    fn sizes_are_parsed() {
        let ok = [("8", 8), ("64K", 65536), ("64k", 65536), ("128M", 128 << 20), ("1G", 1 << 30), ("1.5M", 3 << 19)];
        for (text, bytes) in ok.into_iter().chain([("4KB", 4096), ("4KiB", 4096), ("0", 0), ("16B", 16)]) {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "x", "-1", "1e9", "inf", "nan", "99999999999G", "8 K 8"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn scans() {
        assert_eq!(args("all_reduce -b 8 -e 64 -f 2").sizes(), [8, 16, 32, 64]);
        assert_eq!(args("all_reduce -b 0 -e 4 -f 2").sizes(), [0, 1, 2, 4]);
        assert_eq!(args("all_reduce -b 1K -e 3K -i 1K").sizes(), [1024, 2048, 3072]);
        assert_eq!(args("all_reduce").sizes(), [32 << 20]);
        assert_eq!(args("all_reduce -b 64M").sizes(), [64 << 20]);
    }

    #[test]
    fn flags_of_the_test_programs() {
        let a = args("reduce -r -1 -o all -d all -g 2 -t 3 -n 7 -w 1 -c 0 -z 1 -m 4 --pin");
        assert_eq!((a.root, a.devices, a.threads, a.iters), (Root::All, 2, 3, Some(7)));
        assert_eq!((a.ops.len(), a.dtypes.len(), a.pin), (6, 12, Some(true)));
        assert_eq!(args("reduce -r 3 --pin=false --ngpus 2").root, Root::One(3));
        assert_eq!(*args("broadcast -d bf16").dtypes, [DataType::Bfloat16]);
        assert!(args("all_reduce -G 1").validate().is_err());
        assert!(args("all_reduce -b 8 -e 4").validate().is_err());
        // What would be passed over is said.
        for line in ["-C 1", "-a 3"] {
            assert!(args(&format!("all_reduce {line}")).validate().is_ok(), "{line}");
            assert!(args(&format!("all_reduce {line} --jsonl f")).validate().is_err(), "{line}");
        }
        assert!(args("all_reduce -b 8 -e 8 -f 2").validate().is_ok());
    }
    #[test]
    fn what_init_and_late_do_not_use_is_refused() {
        let refused = |line: &str| args(line).validate().map_err(|e| e.to_string()).err().unwrap_or_default();
        for line in
            ["init --procs 8 -n 3 -T 9 --comms 2 --setup x --jsonl f --pin=false", "late -n 3 -w 2 --memory malloc"]
        {
            assert_eq!(refused(line), "", "{line}");
        }
        let both =
            "-b 8,-e 64M,-i 8,-f 2,-m 2,-N 0,-c 0,-o max,-d int8,-r 1,-z 1,-p 1,-a 0,-C 1,-S 1,-R 1,-O 1,--mode sync";
        for (subject, own) in [("init", "-w 5,--memory malloc"), ("late", "--comms 2")] {
            for option in both.split(',').chain(own.split(',')) {
                let name = option.split(' ').next().unwrap_or_default();
                let said = refused(&format!("{subject} {option}"));
                assert!(said.contains(&format!("{subject} does not use {name}: ")), "{subject} {option}: {said}");
            }
        }
        // What is the default anyway is no reason to refuse.
        assert_eq!(refused("init -b 32M -i 1M -m 1 -o sum -d float -r 0"), "");
    }

    #[test]
    fn a_half_that_is_not_there_is_refused() {
        for collective in ["alltoall", "alltoallv", "sendrecv"] {
            assert!(args(&format!("{collective} -O 0")).validate().is_err(), "{collective}");
            assert!(args(&format!("{collective} -O 1")).validate().is_ok(), "{collective}");
        }
        assert!(args("all_reduce -O 0").validate().is_ok());
    }
}
