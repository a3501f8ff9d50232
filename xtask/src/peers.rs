//! Side by side with the MPI libraries of the distribution: the same collectives, sizes and way of timing, in turn.
//!
//! Open MPI and MPICH come from the system's packages: one that is missing is installed; one that cannot be is left out and
//! named. It judges nothing: it prints medians, minima and ratios.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::program::{Program, bounded, exists};
use crate::{packages, root, target};

/// All that the peers' benchmark has, as in JSON lines.
pub const COLLECTIVES: [&str; 10] = [
    "allreduce",
    "allgather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "alltoallv",
    "gather",
    "scatter",
    "sendrecv",
];

/// What to measure.
pub struct Plan {
    /// Ranks, as processes.
    pub ranks: u32,
    /// Collectives, as in JSON lines.
    pub collectives: Vec<String>,
    /// Sizes as on the command line of `oxccl perf`.
    pub sizes: Vec<String>,
    /// How often everything is measured, in turn.
    pub rounds: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            ranks: 2,
            collectives: COLLECTIVES.map(str::to_owned).into(),
            sizes: ["8", "4K", "64K", "1M", "16M"].map(str::to_owned).into(),
            rounds: 3,
        }
    }
}

/// An MPI library.
pub struct Peer {
    pub name: &'static str,
    /// What it is installed from.
    packages: &'static str,
    pub compiler: &'static str,
    pub launcher: &'static str,
    /// Arguments before the program; `{n}` is the number of ranks.
    arguments: &'static str,
    /// The same over TCP on the loopback device; `None`: not measured.
    pub over_tcp: Option<&'static str>,
    /// Ranks that wait give up their core.
    pub yields: bool,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "Open MPI",
        packages: "openmpi-bin libopenmpi-dev",
        compiler: "mpicc.openmpi",
        launcher: "mpirun.openmpi",
        // The program binds its ranks itself, to the cores that ours have.
        arguments: "--allow-run-as-root --oversubscribe --bind-to none -np {n}",
        over_tcp: Some(
            "--allow-run-as-root --oversubscribe --bind-to none -np {n} --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo",
        ),
        yields: true,
    },
    Peer {
        name: "MPICH",
        packages: "mpich libmpich-dev",
        compiler: "mpicc.mpich",
        launcher: "mpiexec.mpich",
        arguments: "-bind-to none -n {n}",
        over_tcp: None,
        yields: false,
    },
];

/// Longest that a build may take.
pub const BUILD: Duration = Duration::from_secs(1800);

/// Median and least time per call, us.
type Times = Vec<(f64, f64)>;

/// Measures and prints.
pub fn run(plan: &Plan) -> Result<()> {
    build_ours()?;
    let folder = folder()?;
    let peers = build_peers(&folder)?;
    if peers.is_empty() {
        bail!("no peer is installed");
    }
    println!(
        "{} ranks, f32, out of place; us per call: median of rounds (least); ratio = best peer / oxccl, medians",
        plan.ranks
    );
    for collective in &plan.collectives {
        let mut table: BTreeMap<(u64, &str), Times> = BTreeMap::new();
        for _ in 0..plan.rounds {
            for (peer, program) in &peers {
                collect(&mut table, peer.name, &measure_peer(peer, program, plan, collective)?)?;
            }
            collect(&mut table, "oxccl", &measure_ours(plan, collective, &folder)?)?;
        }
        print_table(plan, collective, &table, &peers.iter().map(|(p, _)| p.name).collect::<Vec<_>>());
    }
    Ok(())
}

/// The optimised `oxccl`.
pub fn build_ours() -> Result<()> {
    let build = Program::new("cargo build --release -p oxccl-cli", BUILD);
    build.run().context("oxccl does not build")
}

/// Where it is then.
pub fn ours() -> PathBuf {
    target().join("release/oxccl")
}

/// Where programs and figures go.
pub fn folder() -> Result<PathBuf> {
    let folder = root().join("target/peers");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The benchmark for each peer that is installed, now or before; the others are named.
pub fn build_peers(folder: &Path) -> Result<Vec<(&'static Peer, PathBuf)>> {
    let mut peers = Vec::new();
    for peer in PEERS {
        let installed = if peer.is_installed() { Ok(()) } else { packages::install(peer.packages) };
        match installed {
            Ok(()) if !peer.is_installed() => println!("{} is left out: no {} in PATH", peer.name, peer.compiler),
            Ok(()) => peers.push((peer, build_peer(peer, folder)?)),
            Err(e) => println!("{} is left out: {e:#}", peer.name),
        }
    }
    Ok(peers)
}

/// The benchmark for `peer`.
fn build_peer(peer: &Peer, folder: &Path) -> Result<PathBuf> {
    let program = folder.join(format!("mpi_bench-{}", peer.compiler));
    let source = root().join("benches/peers/mpi_bench.c");
    let status = Command::new(peer.compiler).args(["-O2", "-o"]).arg(&program).arg(source).status()?;
    if !status.success() {
        bail!("{} cannot compile the benchmark", peer.compiler);
    }
    Ok(program)
}

/// Runs a bounded command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("{command:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn measure_peer(peer: &Peer, program: &Path, plan: &Plan, collective: &str) -> Result<String> {
    let sizes = plan.sizes.iter().map(|s| bytes(s)).collect::<Result<Vec<_>>>()?;
    let lines = peer.measure(program, plan.ranks, collective, &sizes, false)?;
    Ok(lines.unwrap_or_default())
}

impl Peer {
    fn is_installed(&self) -> bool {
        exists(self.compiler) && exists(self.launcher)
    }

    /// One JSON line per size. `None`: not measured over TCP.
    pub fn measure(
        &self,
        program: &Path,
        ranks: u32,
        collective: &str,
        sizes: &[u64],
        tcp: bool,
    ) -> Result<Option<String>> {
        let Some(arguments) = (if tcp { self.over_tcp } else { Some(self.arguments) }) else { return Ok(None) };
        let mut command = self.launch_by(arguments, program, ranks);
        output(command.arg(collective).args(sizes.iter().map(u64::to_string))).map(Some)
    }

    /// Starts `program` by that many ranks of this machine.
    pub fn launch(&self, program: &Path, ranks: u32) -> Command {
        self.launch_by(self.arguments, program, ranks)
    }

    fn launch_by(&self, arguments: &str, program: &Path, ranks: u32) -> Command {
        let arguments = arguments.replace("{n}", &ranks.to_string());
        let mut command = bounded(Duration::from_secs(300), self.launcher);
        command.args(arguments.split(' ')).arg(program);
        command
    }
}

/// As `oxccl perf` has it, of the name that JSON lines have.
pub fn our_name(collective: &str) -> &str {
    match collective {
        "allreduce" => "all_reduce",
        "allgather" => "all_gather",
        other => other,
    }
}

fn measure_ours(plan: &Plan, collective: &str, folder: &Path) -> Result<String> {
    let lines = folder.join("oxccl.jsonl");
    // Absent at the first measurement.
    let _ = std::fs::remove_file(&lines);
    let name = our_name(collective);
    for size in &plan.sizes {
        let mut command = bounded(Duration::from_secs(120), ours());
        command.args(["perf", name, "-b", size, "-e", size]);
        command.args(["--procs", &plan.ranks.to_string(), "--jsonl"]).arg(&lines);
        output(&mut command)?;
    }
    Ok(std::fs::read_to_string(&lines)?)
}

pub fn bytes(size: &str) -> Result<u64> {
    oxccl_runtime::config::parse_size(size).with_context(|| format!("{size} is no size"))
}

/// The number behind `"key":` in a flat JSON object.
pub fn field(line: &str, key: &str) -> Option<f64> {
    let rest = &line[line.find(&format!("\"{key}\":"))? + key.len() + 3..];
    rest[..rest.find([',', '}'])?].trim().parse().ok()
}

fn collect<'a>(table: &mut BTreeMap<(u64, &'a str), Times>, name: &'a str, lines: &str) -> Result<()> {
    for line in lines.lines().filter(|l| field(l, "in_place").unwrap_or(0.0) == 0.0) {
        let get = |key| field(line, key).with_context(|| format!("no {key} in {line}"));
        if get("ok")? != 1.0 {
            bail!("{name} gave a wrong result: {line}");
        }
        table.entry((get("bytes")? as u64, name)).or_default().push((get("time_us_median")?, get("time_us_min")?));
    }
    Ok(())
}

/// The median of the medians and the least of the minima.
fn summary(times: &Times) -> (f64, f64) {
    let mut medians: Vec<f64> = times.iter().map(|t| t.0).collect();
    medians.sort_by(f64::total_cmp);
    (medians[medians.len() / 2], times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min))
}

fn print_table(plan: &Plan, collective: &str, table: &BTreeMap<(u64, &str), Times>, peers: &[&str]) {
    println!("\n| {collective}, bytes | oxccl | {} | ratio |", peers.join(" | "));
    println!("|---|---|{}---|", "---|".repeat(peers.len()));
    for size in plan.sizes.iter().filter_map(|s| bytes(s).ok()) {
        let cell = |name: &str| table.get(&(size, name)).map(summary);
        let show = |s: Option<(f64, f64)>| s.map_or("-".into(), |(m, l)| format!("{m:.2} ({l:.2})"));
        let best = peers.iter().filter_map(|p| cell(p)).map(|s| s.0).reduce(f64::min);
        let ours = cell("oxccl");
        let ratio = best.zip(ours).map_or("-".into(), |(best, ours)| format!("{:.2}", best / ours.0));
        let others: Vec<String> = peers.iter().map(|p| show(cell(p))).collect();
        println!("| {size} | {} | {} | {ratio} |", show(ours), others.join(" | "));
    }
}

/// The collective of this name, by which it goes in JSON lines or in `oxccl perf`.
fn collective(name: &str) -> Result<String> {
    let found = COLLECTIVES.into_iter().find(|known| *known == name || our_name(known) == name);
    found
        .map(str::to_owned)
        .with_context(|| format!("no collective is called {name} (known: {})", COLLECTIVES.join(" ")))
}

/// Reads `--ranks N --collectives a,b --sizes 8,64K --rounds N`.
pub fn plan(words: &[&str]) -> Result<Plan> {
    let mut plan = Plan::default();
    for pair in words.chunks(2) {
        let [name, value] = pair else { bail!("{} needs a value", pair[0]) };
        match *name {
            "--ranks" => plan.ranks = value.parse().with_context(|| format!("{value} is no number of ranks"))?,
            "--rounds" => plan.rounds = value.parse().with_context(|| format!("{value} is no number of rounds"))?,
            "--collectives" => plan.collectives = value.split(',').map(collective).collect::<Result<_>>()?,
            "--sizes" => plan.sizes = value.split(',').map(str::to_owned).collect(),
            other => bail!("unknown option {other} (known: --ranks --collectives --sizes --rounds)"),
        }
    }
    if plan.ranks < 2 || plan.rounds < 1 {
        bail!("at least 2 ranks and 1 round");
    }
    plan.sizes.iter().try_for_each(|s| bytes(s).map(drop))?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_plans_are_read() {
        let line = r#"{"bytes":8,"time_us_median":0.5,"ok":1}"#;
        assert_eq!(field(line, "time_us_median"), Some(0.5));
        assert_eq!(field(line, "ok"), Some(1.0));
        assert_eq!(field(line, "in_place"), None);
        let p = plan(&["--ranks", "4", "--sizes", "8,1M"]).expect("a good plan");
        assert_eq!((p.ranks, p.sizes.len()), (4, 2));
        let p = plan(&["--collectives", "all_reduce,allgather,sendrecv"]).expect("both ways to write them");
        assert_eq!(p.collectives, ["allreduce", "allgather", "sendrecv"]);
        let e = plan(&["--collectives", "all_reduce,nonsense"]).err().expect("no such collective").to_string();
        assert!(e.contains("nonsense") && e.contains("sendrecv"), "{e}");
        assert!(plan(&["--ranks"]).is_err() && plan(&["--sizes", "x"]).is_err() && plan(&["--ranks", "1"]).is_err());
    }

    #[test]
    fn the_median_round_and_the_least_time_count() {
        assert_eq!(summary(&vec![(3.0, 1.0), (2.0, 0.5), (9.0, 2.0)]), (3.0, 0.5));
    }
}
