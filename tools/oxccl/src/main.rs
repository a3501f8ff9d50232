//! `oxccl`: the command-line tools of the library, one subcommand each.
//!
//! Called through a link that bears the name of one of the well-known test programs (`all_reduce_perf` ...), it behaves
//! as `oxccl perf` of that collective.

mod api;
mod explain;
mod perf;
mod run;
mod tune;

use std::sync::LazyLock;
use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{Parser, Subcommand};

/// The version, and which sources the library was built from: by these, ranks of different builds are told apart.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (sources {})", env!("CARGO_PKG_VERSION"), oxccl_runtime::BUILD));

/// Tools of the oxccl collective communication library.
#[derive(Parser)]
#[command(name = "oxccl", version = VERSION.as_str(), propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// One value per process: a box would save nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Subcommand)]
enum Command {
    /// Measure and check a collective
    Perf(perf::PerfArgs),
    /// Run a CUDA or HIP program on host devices
    Run(run::RunArgs),
    /// Show which algorithm is chosen for a call, and why
    Explain(explain::ExplainArgs),
    /// Measure this machine for the choice of algorithms
    Tune(tune::TuneArgs),
}

/// The arguments as if `perf COLLECTIVE` had been typed, when the program was called as `COLLECTIVE_perf`.
fn expand_link_name(mut args: Vec<OsString>) -> Vec<OsString> {
    let coll = args
        .first()
        .and_then(|a| Path::new(a).file_name()?.to_str()?.strip_suffix("_perf"))
        .and_then(|name| perf::Coll::parse(name).ok());
    if let Some(coll) = coll {
        args.splice(0..1, ["oxccl", "perf", coll.snake()].map(OsString::from));
    }
    args
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(expand_link_name(std::env::args_os().collect()));
    match cli.command {
        Command::Perf(args) => perf::run(args),
        Command::Run(args) => run::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Tune(args) => tune::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(words: &[&str]) -> Vec<OsString> {
        expand_link_name(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn link_names_become_perf() {
        assert_eq!(expand(&["/x/all_reduce_perf", "-b", "8"]), ["oxccl", "perf", "all_reduce", "-b", "8"]);
        assert_eq!(expand(&["alltoallv_perf"]), ["oxccl", "perf", "alltoallv"]);
        assert_eq!(expand(&["/x/oxccl", "perf"]), ["/x/oxccl", "perf"]);
        assert_eq!(expand(&["unknown_perf"]), ["unknown_perf"]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
