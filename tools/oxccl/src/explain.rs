//! `oxccl explain`: which algorithm is chosen for a call, what the others would cost, and how the schedule looks.
//!
//! The words and drawings are made by the `schedule` crate; here the command line becomes its query. The constants are
//! those that a communicator of rank 0 on this machine would use, and are shown with where they came from.

use std::{io::Write, process::ExitCode};

use anyhow::{Context, Result, ensure};
use oxccl_runtime::config::Config;
use oxccl_runtime::config::tuning::{self, Constants};
use oxccl_runtime::{Limits, lone_piece_bytes, mixed_piece_bytes, usual_channels};
use oxccl_schedule::{
    algorithms,
    cost::{CostModel, Link as CostLink},
    explain::{draw, explain},
    ir::Needs,
    select::{AllowList, Candidate, Query, Reach, candidates, published_bytes, serves},
};
use oxccl_types::Collective;

use crate::perf::{Memory, parse_memory, parse_size};

/// Ranks up to which a drawing fits a page.
const DRAWN_RANKS: u32 = 64;

/// The link that all ranks are connected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
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
    collective: Collective,
    /// Size, counted as `perf` does: the larger of a rank's whole send and receive
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    bytes: usize,
    /// Ranks
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ranks: u32,
    /// Root rank, of collectives that have one [default: 0]
    #[arg(long)]
    root: Option<u32>,
    /// The in-place call
    #[arg(long)]
    in_place: bool,
    /// Link between the ranks: shm or tcp
    #[arg(long, default_value = "shm", value_parser = parse_link)]
    link: Link,
    /// Ranks over tcp: how many share a core of the machine where they are most, 1 to all
    #[arg(long, default_value_t = 1.0)]
    per_core: f64,
    /// Ranks over tcp: how many consecutive ones share memory, a number that divides the ranks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    local: u32,
    /// Buffers over shm: from ncclMemAlloc (device: peers map them) or from the heap (malloc) [default: device]
    #[arg(long, value_parser = parse_memory)]
    memory: Option<Memory>,
    /// Only these algorithms (ring,tree), or all but these (^ring) [default: OXCCL_ALGO, else NCCL_ALGO]
    #[arg(long, value_parser = AllowList::parse)]
    algorithms: Option<AllowList>,
    /// Draw the chosen schedule
    #[arg(long)]
    draw: bool,
}

fn parse_collective(name: &str) -> Result<Collective, String> {
    let plain = |s: &str| s.replace('_', "").to_ascii_lowercase();
    Collective::SCHEDULED
        .into_iter()
        .find(|c| plain(c.snake()) == plain(name))
        .ok_or_else(|| format!("known are {}", Collective::SCHEDULED.map(Collective::snake).join(", ")))
}

fn parse_link(text: &str) -> Result<Link, String> {
    match text {
        "shm" => Ok(Link::Shm),
        "tcp" => Ok(Link::Tcp),
        _ => Err("shm or tcp".to_owned()),
    }
}

/// Runs the subcommand.
pub fn run(args: &ExplainArgs) -> ExitCode {
    let printed =
        text(args, &tuning::load()).and_then(|t| std::io::stdout().write_all(t.as_bytes()).context("writing"));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("oxccl explain: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn query(args: &ExplainArgs, constants: &Constants) -> Query {
    let reach = match (args.link, args.memory) {
        (Link::Tcp, _) => Reach::Messages(CostLink::Tcp),
        (Link::Shm, None | Some(Memory::Device)) => Reach::MappedUser,
        (Link::Shm, Some(Memory::Malloc)) => Reach::ReadableUser,
    };
    let mut q = Query::new(args.collective, args.bytes as u64, args.ranks, reach);
    q.root = args.root.unwrap_or(0);
    q.in_place = args.in_place;
    // What the library uses, so that the choice shown is the one it makes.
    q.max_channels = 1;
    let config = Config::from_env();
    let slot = config.slot_bytes;
    q.local = args.local;
    q.slot_bytes = match args.link {
        Link::Tcp if args.local == 1 => lone_piece_bytes(slot, args.ranks as usize, args.collective),
        Link::Tcp => mixed_piece_bytes(slot, 0),
        Link::Shm => slot,
    } as u64;
    let link = if args.link == Link::Shm { CostLink::Shm } else { CostLink::Tcp };
    let direct = args.link == Link::Shm && args.collective != Collective::AllToAllV;
    let decides = |allow: &AllowList| serves(&Query { allow: allow.clone(), ..q.clone() }, link, direct);
    let of_environment = || AllowList::parse(&config.algo).ok().filter(decides);
    q.allow = args.algorithms.clone().or_else(of_environment).unwrap_or_else(AllowList::all);
    q.model = CostModel { per_core: args.per_core, ..constants.model };
    limit_flag_lines(&mut q, constants);
    // Flag lines are for lists with their name, whatever the collective.
    let flags = AllowList::parse(&config.algo).map_or(true, |allow| allow.allows("one_shot"));
    if args.algorithms.is_none() && !flags {
        q.eager_limit = 0;
    }
    // Only programs of messages have several.
    let by_messages = |c: Candidate| algorithms::find(c.algorithm).is_some_and(|a| a.needs == Needs::Messages);
    if candidates(&q).into_iter().all(by_messages) {
        q.max_channels = usual_channels(&config, args.ranks as usize);
    }
    q
}

/// As a communicator on one machine does, in this environment: longer payloads where ranks share cores and have memory of their
/// own, whose copies to slots cost what those to other shared memory do.
fn limit_flag_lines(q: &mut Query, constants: &Constants) {
    let config = Config { constants: constants.clone(), ..Config::from_env() };
    let limits = Limits::of_machine(&config, q.ranks);
    q.eager_limit = limits.eager(q.collective);
    let published = published_bytes(q.collective, q.bytes, q.ranks);
    let by_slots = match q.collective {
        Collective::Broadcast | Collective::Scatter | Collective::Gather => limits.long(q.collective),
        _ => limits.voted(q.collective),
    };
    if q.reach == Reach::ReadableUser && published > q.eager_limit && published <= by_slots {
        q.eager_limit = by_slots;
        q.model.eager_us_per_kib = q.model.eager_us_per_kib.min(q.model.shm.copy_us_per_kib);
    }
}

/// The table, the constants, and the drawing when it was asked for.
fn text(args: &ExplainArgs, constants: &Constants) -> Result<String> {
    let root = args.root.unwrap_or(0);
    ensure!(root < args.ranks, "root {root} of {} ranks", args.ranks);
    ensure!(args.root.is_none() || args.collective.rooted(), "--root: {} has none", args.collective.snake());
    ensure!(
        (1.0..=f64::from(args.ranks)).contains(&args.per_core),
        "--per-core {}: a core has a rank at least, and at most all {} ranks",
        args.per_core,
        args.ranks
    );
    ensure!(
        args.memory.is_none() || args.link == Link::Shm,
        "--memory is for --link shm: over tcp all memory is the same"
    );
    ensure!(
        args.per_core == 1.0 || args.link == Link::Tcp,
        "--per-core is for --link tcp: over shm it follows from --ranks"
    );
    ensure!(args.local == 1 || args.link == Link::Tcp, "--local is for --link tcp: over shm all ranks share memory");
    ensure!(
        args.ranks.is_multiple_of(args.local) && (args.local < args.ranks || args.ranks == 1),
        "--local {}: a number below {} that divides it",
        args.local,
        args.ranks
    );
    let q = query(args, constants);
    let mut out = explain(&q);
    out += "\n";
    out += &tuning::table(constants);
    if args.draw {
        ensure!(args.ranks <= DRAWN_RANKS, "--draw shows at most {DRAWN_RANKS} ranks");
        let chosen = candidates(&q).into_iter().next().context("there is nothing to draw: no algorithm serves this")?;
        let algorithm = algorithms::find(chosen.algorithm).context("the chosen algorithm has no entry in the table")?;
        out += "\n";
        out += &draw(&algorithm.schedule(&q.shape(chosen.channels)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExplainArgs,
    }

    fn shown(line: &str) -> Result<String> {
        let words = std::iter::once("explain").chain(line.split_whitespace());
        text(&Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args, &Constants::default())
    }

    #[test]
    fn constants_are_shown_and_used() {
        let args = Line::try_parse_from(["explain", "all_reduce", "--bytes", "64M", "--link", "tcp"]).unwrap().args;
        let mut constants = Constants { measured: vec!["tcp_copy"], ..Constants::default() };
        let before = text(&args, &constants).unwrap();
        constants.model.tcp.copy_us_per_kib = 30.0;
        let after = text(&args, &constants).unwrap();
        let line = after.lines().find(|l| l.trim_start().starts_with("tcp_copy")).unwrap();
        assert!(line.contains("30 us/KiB  file"), "{line}");
        assert_ne!(before.lines().nth(2), after.lines().nth(2), "another time");
    }

    #[test]
    fn the_choice_and_its_drawing_agree() {
        let out = shown("all_reduce --bytes 1M --ranks 4 --link tcp --draw").unwrap();
        let chosen = out.lines().find(|l| l.starts_with('*')).and_then(|l| l.split_whitespace().nth(1)).unwrap();
        assert!(out.contains(&format!("\n{chosen} 4 ranks (all_reduce")), "{out}");
        assert!(out.starts_with("all_reduce of 1M over 4 ranks"), "{out}");
    }

    /// Memory that peers do not map goes by slots where ranks share cores, up to the length from which on scratch is faster.
    #[test]
    fn private_memory_of_ranks_that_share_cores_goes_by_slots() {
        let mut constants = Constants { model: CostModel::of_strings(), ..Constants::default() };
        let chosen = |line: &str, constants: &Constants| {
            let words = std::iter::once("explain").chain(line.split_whitespace());
            let out = text(&Line::try_parse_from(words).unwrap().args, constants).unwrap();
            out.lines().find(|l| l.starts_with('*')).unwrap().to_owned()
        };
        let private = "all_reduce --bytes 32K --ranks 4 --memory malloc";
        constants.model.cores = 2.0;
        assert!(chosen(private, &constants).contains("eager"));
        assert!(!chosen("all_reduce --bytes 32K --ranks 4", &constants).contains("eager"));
        for (call, longest, longer) in
            [("broadcast", "256K", "257K"), ("scatter", "256K", "260K"), ("gather", "1M", "1028K")]
        {
            let of = |bytes: &str| chosen(&format!("{call} --bytes {bytes} --ranks 4 --memory malloc"), &constants);
            assert!(of(longest).contains("eager") && !of(longer).contains("eager"), "{call}");
            assert!(!chosen(&format!("{call} --bytes 64K --ranks 4"), &constants).contains("eager"), "mapped: {call}");
        }
        constants.model.cores = 4.0;
        assert!(!chosen(private, &constants).contains("eager"));
    }

    #[test]
    fn links_and_memory_change_what_is_possible() {
        assert!(shown("allreduce").unwrap().contains("MappedUser"));
        assert!(shown("allreduce --memory malloc").unwrap().contains("ReadableUser"));
        assert!(shown("allreduce --link tcp").unwrap().contains("Tcp"));
    }

    #[test]
    fn ranks_that_share_cores_over_a_network_go_other_ways() {
        let chosen = |line: &str| {
            let out = shown(&format!("{line} --link tcp --ranks 8")).unwrap();
            out.lines().find(|l| l.starts_with('*')).unwrap().to_owned()
        };
        assert!(chosen("broadcast --bytes 8K").contains("binomial"));
        assert!(chosen("broadcast --bytes 8K --per-core 4").contains("flat"));
    }

    #[test]
    fn ranks_that_share_memory_work_together_before_they_use_a_network() {
        let chosen = |line: &str| {
            let out = shown(&format!("{line} --bytes 1M --link tcp --ranks 8")).unwrap();
            out.lines().find(|l| l.starts_with('*')).unwrap().to_owned()
        };
        for collective in ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"] {
            assert!(!chosen(collective).contains("hierarchical"));
            assert!(chosen(&format!("{collective} --local 4")).contains("hierarchical"));
        }
    }

    #[test]
    fn senseless_requests_are_refused() {
        assert!(shown("broadcast --root 8 --ranks 8").is_err());
        assert!(shown("all_reduce --ranks 100 --draw").is_err());
        assert!(shown("all_reduce --local 4").is_err() && shown("all_reduce --link tcp --local 3").is_err());
        assert!(shown("all_reduce --link tcp --local 8").is_err());
        assert!(shown("all_reduce --per-core 4").is_err() && shown("all_reduce --link tcp --per-core 0.5").is_err());
        for per_core in ["inf", "nan", "1e300", "8.1"] {
            assert!(shown(&format!("all_reduce --link tcp --ranks 8 --per-core {per_core}")).is_err(), "{per_core}");
        }
        assert!(shown("all_reduce --link tcp --ranks 8 --per-core 8").is_ok());
        assert!(shown("all_reduce --root 0").is_err() && shown("reduce --root 0").is_ok());
        assert!(shown("all_reduce --link tcp --memory malloc").is_err());
        assert!(Line::try_parse_from(["explain", "all_reduce", "--ranks", "0"]).is_err());
        assert!(Line::try_parse_from(["explain", "all_reduce", "--algorithms", "nothing"]).is_err());
    }
}
