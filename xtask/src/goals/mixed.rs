//! Sequences of calls of many lengths, buffers and roots (`benches/peers/mixed.c`), ours beside those of the peers.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::bench::{Bench, MEDIAN, least};
use crate::peers::{Peer, output};
use crate::root;

/// Of each least and most bytes.
pub const RANGES: [[&str; 2]; 3] = [["64", "2048"], ["64", "131072"], ["4096", "524288"]];

/// The programs, built.
pub struct Mixed {
    peers: Vec<(&'static Peer, PathBuf)>,
    ours: PathBuf,
}

impl Mixed {
    pub fn new(bench: &Bench) -> Result<Mixed> {
        let source = root().join("benches/peers/mixed.c");
        let cargo = ["build", "--release", "-p", "oxccl-nccl"];
        output(Command::new("cargo").args(cargo).current_dir(root()))?;
        let (built, library) = (root().join("target/release"), bench.folder().join("libnccl.so.2"));
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

    /// Median us of a sequence of the fastest peer: one whose ranks yield, where they outnumber the cores.
    pub fn best_peer(&self, bench: &Bench, ranks: u32, range: [&str; 2]) -> Result<Option<f64>> {
        let mut best: Option<f64> = None;
        for (peer, program) in self.peers.iter().filter(|(peer, _)| bench.is_fair(peer, ranks)) {
            let us = least(&output(peer.launch(program, ranks).args(words(ranks, range, "malloc").iter()))?, MEDIAN)?;
            best = best.into_iter().chain(us).reduce(f64::min);
        }
        Ok(best)
    }

    /// That of ours, with `memory` of the library (`device`) or not (`malloc`).
    pub fn ours(&self, bench: &Bench, ranks: u32, range: [&str; 2], memory: &str) -> Result<Option<f64>> {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&self.ours).args(words(ranks, range, memory)).env("LD_LIBRARY_PATH", bench.folder());
        least(&output(&mut command)?, MEDIAN)
    }
}

fn words(ranks: u32, [from, to]: [&str; 2], memory: &str) -> [String; 4] {
    [ranks.to_string(), from.into(), to.into(), memory.into()]
}
