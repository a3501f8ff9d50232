//! Running what is measured: `oxccl`, the peers' benchmark and the floor.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::hosts::Hosts;
use super::points::Pair;
use crate::peers::{Peer, build_ours, build_peers, bytes, field, folder, our_name, ours, output};
use crate::program::bounded;
use crate::root;

/// The programs, built.
pub struct Bench {
    folder: PathBuf,
    peers: Vec<(&'static Peer, PathBuf)>,
    floor: PathBuf,
    cores: u32,
    /// How often what was compared may be of two kinds of machine.
    unsteady: Cell<u32>,
}

/// A measurement of `oxccl perf`.
pub struct Ours {
    collective: String,
    ranks: u32,
    size: String,
    options: String,
    tcp: bool,
}

impl Ours {
    /// By `ranks` processes, as the peers and the floor do it: out of place, but a broadcast, which has one buffer.
    pub fn new(collective: &str, ranks: u32, size: &str) -> Ours {
        let half = if collective == "broadcast" { 0 } else { 1 };
        let options = format!("--procs {ranks} -O {half}");
        Ours { collective: collective.into(), ranks, size: size.into(), options, tcp: false }
    }

    pub fn with(mut self, options: &str) -> Ours {
        self.options += &format!(" {options}");
        self
    }

    /// By ranks that are started by themselves, bound to no core, as the peer's are on hosts that share the cores.
    pub fn each_alone(mut self) -> Ours {
        self.options = self.options.replace(&format!("--procs {}", self.ranks), "--pin=false");
        self
    }

    /// By as many threads of one process.
    pub fn by_threads(mut self) -> Ours {
        self.options = self.options.replace("--procs", "--pin -t");
        self
    }

    /// Ranks that share no memory.
    pub fn over_tcp(mut self) -> Ours {
        self.tcp = true;
        self
    }
}

/// What a command printed.
pub struct Told(String);

impl Told {
    /// The number behind `label`.
    pub fn number(&self, label: &str) -> Result<f64> {
        let rest = self.0.find(label).map(|at| &self.0[at + label.len()..]);
        let word = rest.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).with_context(|| format!("no number behind {label:?} in\n{}", self.0))
    }
}

impl Bench {
    pub fn new() -> Result<Bench> {
        build_ours()?;
        let folder = folder()?;
        let floor = folder.join("floor");
        let source = root().join("benches/peers/floor.c");
        output(Command::new("cc").args(["-O3", "-march=native", "-o"]).arg(&floor).arg(source))?;
        let peers = build_peers(&folder)?;
        if peers.is_empty() {
            bail!("no peer is installed");
        }
        let cores = u32::try_from(std::thread::available_parallelism()?.get())?;
        Ok(Bench { folder, peers, floor, cores, unsteady: Cell::new(0) })
    }

    /// Where programs go.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn peers(&self) -> impl Iterator<Item = &'static Peer> {
        self.peers.iter().map(|(peer, _)| *peer)
    }

    /// Whether a peer is compared with: where ranks outnumber the cores, if they yield.
    pub fn is_fair(&self, peer: &Peer, ranks: u32) -> bool {
        peer.yields || ranks <= self.cores
    }

    pub fn describe(&self) -> String {
        let names: Vec<&str> = self.peers.iter().map(|p| p.0.name).collect();
        let unsteady = self.unsteady.get();
        format!("{} processors; peers: {}; unsteady: {unsteady} measurements", self.cores, names.join(", "))
    }

    /// What `measure` brings while the machine is of one kind: again, a few times, if a line takes twice as long there and back
    /// after it as before, or the processors, which may share their cores with another machine's, have another pace.
    pub fn steady<T>(&self, measure: impl Fn() -> Result<T>) -> Result<T> {
        const TIMES: u32 = 4;
        let alike = |before: f64, after: f64, times: f64| before.max(after) <= times * before.min(after);
        let mut tries = 1;
        loop {
            let before = (self.round_trip()?, self.pace()?);
            let measured = measure()?;
            let after = (self.round_trip()?, self.pace()?);
            if alike(before.0, after.0, 2.0) && alike(before.1, after.1, 1.4) {
                return Ok(measured);
            }
            if tries == TIMES {
                self.unsteady.set(self.unsteady.get() + 1);
                eprintln!("the machine has changed in each of {TIMES} tries");
                return Ok(measured);
            }
            tries += 1;
        }
    }

    /// What `measure` brings, steady. Where one of the points is close to its goal, or misses it, all are measured three times, and
    /// the median of each counts. One that a lucky measurement put far above its goal stays there.
    pub fn pairs<const N: usize>(&self, measure: impl Fn() -> Result<[Option<Pair>; N]>) -> Result<[Option<Pair>; N]> {
        const TIMES: usize = 3;
        let mut found = vec![self.steady(&measure)?];
        if found[0].iter().flatten().any(Pair::is_close) {
            for _ in 1..TIMES {
                found.push(self.steady(&measure)?);
            }
        }
        Ok(std::array::from_fn(|point| Pair::median(found.iter().filter_map(|pairs| pairs[point]).collect())))
    }

    /// Least microseconds of a line to another core and back; 0 where there is one core only.
    pub fn round_trip(&self) -> Result<f64> {
        self.machine("ping", "time_us_min")
    }

    /// Microseconds that the slower one of the first two processors takes for the same instructions, both at once; 0 where there is one core only.
    pub fn pace(&self) -> Result<f64> {
        self.machine("pace", MEDIAN)
    }

    /// What the floor says of the first two processors.
    fn machine(&self, of: &str, field: &str) -> Result<f64> {
        if self.cores < 2 {
            return Ok(0.0);
        }
        let lines = output(bounded(MINUTE, &self.floor).args(["2", of, "8"]))?;
        Ok(least(&lines, field)?.unwrap_or(0.0))
    }

    /// Median us of the floor. `None`: it has no such collective, or its ranks, which spin, would outnumber the cores.
    pub fn floor(&self, collective: &str, ranks: u32, size: &str) -> Result<Option<f64>> {
        if ranks > self.cores || collective == "alltoallv" {
            return Ok(None);
        }
        let words = [&ranks.to_string(), collective, &bytes(size)?.to_string()];
        least(&output(bounded(MINUTE, &self.floor).args(words))?, MEDIAN)
    }

    /// Median us of the fastest peer: one whose ranks yield, where they outnumber the cores.
    pub fn best_peer(&self, collective: &str, ranks: u32, size: &str, tcp: bool) -> Result<Option<f64>> {
        let mut best: Option<f64> = None;
        for (peer, program) in self.peers.iter().filter(|(peer, _)| self.is_fair(peer, ranks)) {
            let Some(lines) = peer.measure(program, ranks, collective, &[bytes(size)?], tcp)? else { continue };
            let us = least(&lines, MEDIAN)?;
            best = best.into_iter().chain(us).reduce(f64::min);
        }
        Ok(best)
    }

    /// Median us of ours. `None`: a size of which a rank has no element.
    pub fn ours(&self, what: &Ours) -> Result<Option<f64>> {
        let lines = self.lines();
        let mut command = bounded(2 * MINUTE, ours());
        command.args(["perf", our_name(&what.collective), "-b", &what.size, "-e", &what.size]);
        command.args(what.options.split(' ')).arg("--jsonl").arg(&lines);
        if what.tcp {
            command.env("OXCCL_SHM", "0");
        }
        output(&mut command)?;
        least(&std::fs::read_to_string(&lines)?, MEDIAN)
    }

    /// As [`best_peer`](Self::best_peer), of the peer that spans hosts, half of the ranks on each.
    pub fn peer_between(&self, hosts: &Hosts, collective: &str, ranks: u32, size: &str) -> Result<Option<f64>> {
        let Some((peer, program)) = self.peers.iter().find(|(peer, _)| peer.over_tcp.is_some()) else {
            return Ok(None);
        };
        let lines = hosts.by_mpi(peer.launcher, ranks, program, &["apart", collective, &bytes(size)?.to_string()])?;
        least(&lines, MEDIAN)
    }

    /// As [`ours`](Self::ours), half of the ranks on each host.
    pub fn ours_between(&self, hosts: &Hosts, what: &Ours) -> Result<Option<f64>> {
        let lines = self.lines();
        let path = lines.display().to_string();
        let mut words = vec!["perf", our_name(&what.collective), "-b", &what.size, "-e", &what.size, "--jsonl", &path];
        words.extend(what.options.split(' '));
        hosts.by_ranks(what.ranks, &ours(), &words)?;
        least(&std::fs::read_to_string(&lines)?, MEDIAN)
    }

    /// The file that figures come in, empty.
    fn lines(&self) -> PathBuf {
        let lines = self.folder.join("goals.jsonl");
        // Absent at the first measurement.
        let _ = std::fs::remove_file(&lines);
        lines
    }

    /// Two hosts, as long as they are kept.
    pub fn hosts(&self) -> Result<Hosts> {
        Hosts::new(&self.folder)
    }

    /// What `oxccl` prints.
    pub fn told(&self, arguments: &str) -> Result<Told> {
        output(bounded(2 * MINUTE, ours()).args(arguments.split(' '))).map(Told)
    }
}

/// Longest that a short measurement may take.
pub const MINUTE: Duration = Duration::from_secs(60);

pub const MEDIAN: &str = "time_us_median";

/// The least `key` in JSON lines, all of which must be right.
pub fn least(lines: &str, key: &str) -> Result<Option<f64>> {
    let mut least: Option<f64> = None;
    for line in lines.lines() {
        if field(line, "ok") != Some(1.0) {
            bail!("a wrong result: {line}");
        }
        let us = field(line, key).with_context(|| format!("no {key} in {line}"))?;
        least = least.into_iter().chain([us]).reduce(f64::min);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_and_a_wrong_one_does_not() {
        let line = |us: f64, ok: u32| format!("{{\"time_us_median\":{us:.1},\"ok\":{ok}}}\n");
        assert_eq!(least(&(line(2.0, 1) + &line(1.5, 1)), MEDIAN).unwrap(), Some(1.5));
        assert_eq!(least("", MEDIAN).unwrap(), None);
        assert!(least(&(line(2.0, 1) + &line(1.5, 0)), MEDIAN).is_err());
    }

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let told = Told("first   12.5 us\nlast return\n  median 41.2 us".into());
        assert_eq!(told.number("first").unwrap(), 12.5);
        assert_eq!(told.number("last return\n  median ").unwrap(), 41.2);
        assert!(told.number("none").is_err());
    }
}
