//! Sequences of calls of many lengths, buffers and roots (`benches/peers/mixed.c`), ours beside those of the peers.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::bench::{Bench, MEDIAN, MINUTE, least};
use super::hosts::Hosts;
use crate::peers::{BUILD, Peer, output};
use crate::program::{Program, bounded};
use crate::{root, target};

/// Of each least and most bytes.
const RANGES: [[&str; 2]; 3] = [["64", "2048"], ["64", "131072"], ["4096", "524288"]];

/// Calls amid work.
pub const STEPS: &str = "steps";

/// A sequence: which calls, `all` collectives, by themselves or in `steps` amid work of the ranks, or all-to-alls of `experts`, of how
/// many ranks, and of which lengths.
#[derive(Clone, Copy)]
pub struct Calls {
    kind: &'static str,
    ranks: u32,
    range: [&'static str; 2],
}

impl Calls {
    /// All sequences of a kind.
    pub fn of(kind: &'static str) -> impl Iterator<Item = Calls> {
        [2, 4, 8].into_iter().flat_map(move |ranks| RANGES.map(move |range| Calls { kind, ranks, range }))
    }

    fn words(self, memory: &str) -> [String; 5] {
        let [from, to] = self.range;
        [self.ranks.to_string(), from.into(), to.into(), memory.into(), self.kind.into()]
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} B of {} ranks", self.range[0], self.range[1], self.ranks)
    }
}

/// The programs, built.
pub struct Mixed {
    peers: Vec<(&'static Peer, PathBuf)>,
    ours: PathBuf,
}

impl Mixed {
    pub fn new(bench: &Bench) -> Result<Mixed> {
        let source = root().join("benches/peers/mixed.c");
        Program::new("cargo build --release -p oxccl-nccl", BUILD).run()?;
        let (built, library) = (target().join("release"), bench.folder().join("libnccl.so.2"));
        // Absent at the first time.
        let _ = std::fs::remove_file(&library);
        std::os::unix::fs::symlink(built.join("libnccl.so"), library)?;
        let ours = bench.folder().join("mixed");
        let mut command = Command::new("cc");
        command.args(["-O2", "-o"]).arg(&ours).arg(&source).arg("-I").arg(root().join("crates/capi/include"));
        output(command.arg("-L").arg(built).args(["-lnccl", "-lm"]))?;
        let build = |peer: &'static Peer| -> Result<(&'static Peer, PathBuf)> {
            let program = bench.folder().join(format!("mixed-{}", peer.compiler));
            let mut command = Command::new(peer.compiler);
            output(command.args(["-O2", "-DWITH_MPI", "-o"]).arg(&program).arg(&source).arg("-lm"))?;
            Ok((peer, program))
        };
        let peers = bench.peers().map(build).collect::<Result<Vec<_>>>()?;
        Ok(Mixed { peers, ours })
    }

    /// Median us of a sequence of the fastest peer: one whose ranks yield, where they outnumber the cores. In steps its calls go on
    /// meanwhile or are waited for, whichever is the faster.
    pub fn best_peer(&self, bench: &Bench, calls: Calls) -> Result<Option<f64>> {
        let waited = (calls.kind == STEPS).then_some(Calls { kind: "waits", ..calls });
        let mut best: Option<f64> = None;
        for (peer, program) in self.peers.iter().filter(|(peer, _)| bench.is_fair(peer, calls.ranks)) {
            for calls in [Some(calls), waited].into_iter().flatten() {
                let us = least(&output(peer.launch(program, calls.ranks).args(calls.words("malloc")))?, MEDIAN)?;
                best = best.into_iter().chain(us).reduce(f64::min);
            }
        }
        Ok(best)
    }

    /// That of ours, with `memory` of the library (`device`) or not (`malloc`).
    pub fn ours(&self, bench: &Bench, calls: Calls, memory: &str) -> Result<Option<f64>> {
        least(&output(&mut self.our_command(bench, calls, memory))?, MEDIAN)
    }

    fn our_command(&self, bench: &Bench, calls: Calls, memory: &str) -> Command {
        let mut command = bounded(MINUTE, &self.ours);
        command.args(calls.words(memory)).env("LD_LIBRARY_PATH", bench.folder());
        command
    }

    /// As [`best_peer`](Self::best_peer), of the peer that spans hosts, half of the ranks on each.
    pub fn peer_between(&self, hosts: &Hosts, calls: Calls) -> Result<Option<f64>> {
        let Some((peer, program)) = self.peers.iter().find(|(peer, _)| peer.over_tcp.is_some()) else {
            return Ok(None);
        };
        let words = calls.words("malloc");
        least(&hosts.by_mpi(peer.launcher, calls.ranks, program, &words.each_ref().map(String::as_str))?, MEDIAN)
    }

    /// As [`ours`](Self::ours), half of the ranks on each host, with memory of the library.
    pub fn ours_between(&self, bench: &Bench, hosts: &Hosts, calls: Calls) -> Result<Option<f64>> {
        least(&output(self.our_command(bench, calls, "device").args(hosts.names()))?, MEDIAN)
    }
}
