//! `counts`: the instructions that small collectives take, counted by callgrind and held to a table of limits.
//!
//! Counted, not timed, so the result does not depend on what else the machine does. The program is
//! `benches/counts/counts.c`; it goes through the C interface of the release build, and one thread drives both ranks, so
//! that nobody waits. It counts the instructions of this process only: neither the kernel's, nor what caches, locks and
//! other cores cost; those are for `oxccl perf`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::program::{Program, exists};
use crate::{root, target};

mod callgrind;
mod table;

use callgrind::Profile;
use table::Verdict;

/// The table of limits.
const TABLE: &str = "benches/counts/counts.toml";
/// Rounds per phase: enough to average out what happens every few calls.
const ROUNDS: u32 = 200;
/// Lines of a list of costliest functions.
const TOP: usize = 25;

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode<'a> {
    /// Compare with the table.
    Check,
    /// Count and write the table.
    Write,
    /// The costliest functions and source lines of the phases whose names begin with this.
    Top(&'a str),
}

/// Counts, and checks, writes or explains. What was left out goes to `results`.
pub fn run(mode: Mode<'_>, results: &mut Vec<String>) -> Result<()> {
    if let Some(reason) = missing() {
        let line = format!("SKIPPED: step counts: {reason}");
        ensure!(std::env::var_os("CI").is_none() || !cfg!(target_arch = "x86_64"), "{line}");
        println!("{line}");
        results.push(line);
        return Ok(());
    }
    if let Mode::Top(phase) = mode {
        return top(phase);
    }
    let program = build(false)?;
    let counts = count(&program)?;
    let path = root().join(TABLE);
    if mode == Mode::Write {
        fs::write(&path, table::render(&counts)).with_context(|| format!("cannot write {TABLE}"))?;
        print_counts(&counts, &counts);
        println!("counts: {TABLE} written");
        return Ok(());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {TABLE}"))?;
    let limits = table::parse(&text).with_context(|| format!("{TABLE} is faulty"))?;
    print_counts(&counts, &limits);
    verdict(table::judge(&counts, &limits), results)
}

/// Why nothing can be counted here.
fn missing() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the table is for x86-64");
    }
    if !exists("valgrind") {
        return Some("valgrind is not installed");
    }
    // A rank that shares its core with the other looks for it less often.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return Some("two cores are needed");
    }
    (!exists("cc")).then_some("no C compiler")
}

fn verdict(verdict: Verdict, results: &mut Vec<String>) -> Result<()> {
    for line in &verdict.better {
        println!("better: {line}");
    }
    if !verdict.better.is_empty() {
        let line = format!("counts: {} phases became cheaper: `cargo xtask counts --write`", verdict.better.len());
        println!("{line}");
        results.push(line);
    }
    if verdict.worse.is_empty() {
        return Ok(());
    }
    bail!(
        "counts: {}\n`cargo xtask counts --top PHASE` says where; if it is meant, `cargo xtask counts --write`",
        verdict.worse.join("\n        ")
    )
}

fn print_counts(counts: &BTreeMap<String, f64>, limits: &BTreeMap<String, f64>) {
    println!("{:<32} {:>10} {:>10}", "instructions per call", "now", "table");
    for (name, now) in counts {
        let limit = limits.get(name).map_or("-".into(), |l| format!("{l:.0}"));
        println!("{name:<32} {now:>10.0} {limit:>10}");
    }
}

fn folder(lines: bool) -> PathBuf {
    root().join(if lines { "target/counts/lines" } else { "target/counts" })
}

/// Builds the library and the program. With `lines`, in a folder of its own, with the numbers of source lines.
fn build(lines: bool) -> Result<PathBuf> {
    let folder = folder(lines);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut cargo = Program::new("cargo build --release --locked -p oxccl-nccl", Duration::from_secs(1800));
    let mut built = target();
    if lines {
        built = folder.join("build");
        cargo = cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only").env("CARGO_TARGET_DIR", &built);
    }
    cargo.run()?;
    // Under the name that programs load.
    let library = folder.join("libnccl.so.2");
    // Not written through a link to somewhere else; absent at first.
    let _ = fs::remove_file(&library);
    fs::copy(built.join("release/libnccl.so"), &library).context("cannot copy libnccl.so")?;
    let program = folder.join("counts");
    Program::new("cc -std=gnu11 -O1 -Wall -Wextra -Werror", Duration::from_secs(60))
        .arg(format!("-I{}", root().join("crates/capi/include").display()))
        .arg(root().join("benches/counts/counts.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .arg("-o")
        .arg(&program)
        .run()?;
    Ok(program)
}

/// Runs `program` under callgrind; the profile of its main thread.
fn profile(program: &Path, options: &str) -> Result<Profile> {
    let folder = tempfile::tempdir_in(program.parent().unwrap_or(Path::new(".")))?;
    let (out, log) = (folder.path().join("out"), folder.path().join("log"));
    let run = Program::new("valgrind --quiet --tool=callgrind --separate-threads=yes", Duration::from_secs(300))
        .arg(format!("--callgrind-out-file={}", out.display()))
        // System calls that it does not know are told; the library does without them.
        .arg(format!("--log-file={}", log.display()))
        .args(options)
        .arg(program)
        .arg(ROUNDS.to_string())
        // The helper thread, which takes over work that nobody waits for, stays away.
        .env("OXCCL_HELPER_DELAY_US", "1000000")
        .run();
    run.with_context(|| format!("valgrind says: {}", fs::read_to_string(&log).unwrap_or_default()))?;
    // The first thread is the one that calls.
    let main = folder.path().join("out-01");
    let text = fs::read_to_string(&main).with_context(|| format!("callgrind left no {}", main.display()))?;
    callgrind::parse(&text)
}

/// Instructions per call of every phase.
fn count(program: &Path) -> Result<BTreeMap<String, f64>> {
    let profile = profile(program, "")?;
    let mut counts = BTreeMap::new();
    for (name, call) in &profile.called {
        if let Some(phase) = name.strip_prefix("count_") {
            ensure!(call.times == u64::from(ROUNDS), "{name} was called {} times", call.times);
            counts.insert(phase.to_owned(), call.cost as f64 / call.times as f64);
        }
    }
    ensure!(!counts.is_empty(), "callgrind saw no phase");
    Ok(counts)
}

/// Prints where the instructions of the phases that begin with `prefix` go.
fn top(prefix: &str) -> Result<()> {
    let program = build(true)?;
    let counts = count(&program)?;
    let phases: Vec<&String> = counts.keys().filter(|name| name.starts_with(prefix)).collect();
    ensure!(
        !phases.is_empty(),
        "no phase begins with {prefix}; phases are {}",
        counts.keys().cloned().collect::<Vec<_>>().join(", ")
    );
    for phase in phases {
        let profile = profile(&program, &format!("--toggle-collect=count_{phase}"))?;
        println!("\n== {phase}: {:.0} instructions per call", counts[phase]);
        print_top("function", &profile.functions);
        print_top("source line", &profile.lines);
    }
    Ok(())
}

fn print_top(what: &str, costs: &BTreeMap<String, u64>) {
    let mut costs: Vec<(&String, &u64)> = costs.iter().collect();
    costs.sort_by_key(|(name, cost)| (std::cmp::Reverse(**cost), *name));
    let total: u64 = costs.iter().map(|(_, cost)| **cost).sum();
    println!("{:>10} {:>6}  {what}", "per call", "share");
    for (name, cost) in costs.iter().take(TOP) {
        let per_call = **cost as f64 / f64::from(ROUNDS);
        println!("{per_call:>10.1} {:>5.1}%  {name}", **cost as f64 * 100.0 / total.max(1) as f64);
    }
}

/// Reads `[--write | --top PHASE]`.
pub fn mode<'a>(words: &[&'a str]) -> Result<Mode<'a>> {
    match words {
        [] => Ok(Mode::Check),
        ["--write"] => Ok(Mode::Write),
        ["--top"] => Ok(Mode::Top("")),
        ["--top", phase] => Ok(Mode::Top(phase)),
        _ => bail!("unknown options {} (known: --write, --top [PHASE])", words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        assert_eq!(mode(&[]).expect("nothing is fine"), Mode::Check);
        assert_eq!(mode(&["--top", "allreduce"]).expect("a phase"), Mode::Top("allreduce"));
        assert!(mode(&["--nonsense"]).is_err());
    }

    #[test]
    fn a_dearer_phase_fails_and_a_cheaper_one_is_told() {
        let verdict_of = |now: f64| {
            let map = |v: f64| BTreeMap::from([("allreduce_late".to_owned(), v)]);
            let mut results = Vec::new();
            (verdict(table::judge(&map(now), &map(1000.0)), &mut results), results)
        };
        let (worse, _) = verdict_of(1200.0);
        assert!(worse.expect_err("20 % more").to_string().contains("allreduce_late"));
        let (better, told) = verdict_of(800.0);
        assert!(better.is_ok() && told.len() == 1, "{told:?}");
        let (same, told) = verdict_of(1050.0);
        assert!(same.is_ok() && told.is_empty(), "{told:?}");
    }
}
