//! Chores of this repository, called as `cargo xtask NAME`.
//!
//! Each chore is a module; this file only reads the command line.

mod ci;
mod counts;
mod docs;
mod goals;
mod install;
mod packages;
mod peers;
mod program;
mod tidy;
mod without_gpu;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask ci [--only STEP] [--from STEP]   all checks, in order, until the first failure
       cargo xtask tidy                             rules of the house that no other tool checks
       cargo xtask docs [--check]                   write what is generated from the code, or say what is stale
       cargo xtask install --prefix DIR [--libraries] [--profile P]
                                                    build and lay out libraries, headers and tools under DIR
       cargo xtask counts [--write | --top [PHASE]] instructions of small collectives, against benches/counts/counts.toml
       cargo xtask bench-peers [--ranks N] [--collectives A,B] [--sizes 8,64K] [--rounds N]
                                                    side by side with Open MPI and MPICH, which it installs
       cargo xtask goals [PART...]                  the goals of speed, measured on this machine: a table (minutes)
";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["ci"] => ci::run(ci::Part::All),
        ["ci", "--only", step] => ci::run(ci::Part::Only(step)),
        ["ci", "--from", step] => ci::run(ci::Part::From(step)),
        ["tidy"] => tidy::run(),
        ["docs"] => docs::run(docs::Mode::Write),
        ["docs", "--check"] => docs::run(docs::Mode::Check),
        ["counts", ref options @ ..] => counts::run(counts::mode(options)?, &mut Vec::new()),
        ["bench-peers", ref options @ ..] => peers::run(&peers::plan(options)?),
        ["goals", ref parts @ ..] => goals::run(parts),
        ["install", ref options @ ..] => install::run(&install::Plan::parse(options)?),
        ["help" | "--help" | "-h"] | [] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown arguments: {}\n{USAGE}", words.join(" ")),
    }
}

/// The top folder of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The folder of cargo's outputs.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}
