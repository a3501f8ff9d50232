//! `oxccl explain`: which algorithm is chosen for a call, what the others would cost, and how the schedule looks.

use std::process::ExitCode;

use oxccl_types::Collective;

use crate::perf::parse_size;

/// The link that all ranks are connected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Link {
    /// Shared memory of one host.
    Shm,
    /// TCP between hosts.
    Tcp,
}

/// Show which algorithm is chosen for a call, and why.
#[derive(clap::Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Collective: all_reduce, broadcast, reduce, reduce_scatter, all_gather, gather, scatter, alltoall, alltoallv
    #[arg(value_parser = parse_collective)]
    pub collective: Collective,
    /// Size, counted as `perf` does
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    pub bytes: usize,
    /// Ranks
    #[arg(long, default_value_t = 8)]
    pub ranks: usize,
    /// Link between the ranks
    #[arg(long, value_enum, default_value = "shm")]
    pub link: Link,
    /// Draw the chosen schedule
    #[arg(long)]
    pub draw: bool,
}

fn parse_collective(name: &str) -> Result<Collective, String> {
    let plain = |s: &str| s.replace('_', "").to_ascii_lowercase();
    Collective::SCHEDULED
        .into_iter()
        .find(|c| plain(c.snake()) == plain(name))
        .ok_or_else(|| format!("known are {}", Collective::SCHEDULED.map(Collective::snake).join(", ")))
}

/// Runs the subcommand.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let _ = args;
    ExitCode::from(2)
}
