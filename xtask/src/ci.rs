//! All checks, in order, each timed, until the first failure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::program::{Program, exists};
use crate::{counts, docs, install, root, tidy};

/// Which steps to run.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// Every step.
    All,
    /// One step.
    Only(&'a str),
    /// This step and all after it.
    From(&'a str),
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Vec<String>) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", about: "sources are formatted", run: |_| cargo("fmt --all --check", 120) },
    Step { name: "tidy", about: "rules of the house", run: |_| tidy::run() },
    Step {
        name: "clippy",
        about: "no lint is left",
        run: |_| cargo("clippy --workspace --all-targets --locked -- -D warnings", 1500),
    },
    Step { name: "docs", about: "generated documents match the code", run: |_| docs::run(docs::Mode::Check) },
    Step { name: "rustdoc", about: "the interface's documentation builds", run: rustdoc },
    Step { name: "test", about: "all tests", run: test },
    Step { name: "large", about: "calls of more than 2^31 bytes on every road", run: large },
    Step {
        name: "loom",
        about: "every interleaving of the shared-memory ring, of slots that change hands, and of bells",
        run: loom,
    },
    Step {
        name: "install",
        about: "the layout of an installed prefix",
        run: |_| install::run(&install::Plan::all(&prefix())),
    },
    Step { name: "c", about: "C programs against the prefix", run: c_programs },
    Step { name: "without-gpu", about: "the guide's three ways: plain, MPI, CMake", run: without_gpu },
    Step { name: "perf", about: "four ranks, every result checked, with the installed tool", run: perf },
    Step {
        name: "counts",
        about: "instructions of small collectives are within the table",
        run: |results| counts::run(counts::Mode::Check, results),
    },
    Step {
        name: "train",
        about: "the Rust interface's examples run, and training on real data equals a single process",
        run: |_| rust_programs(),
    },
    Step { name: "deny", about: "licences, advisories and sources of dependencies", run: deny },
];

/// Runs `part` and prints a table of times and the result lines of the tests.
pub fn run(part: Part<'_>) -> Result<()> {
    let at = |name: &str| STEPS.iter().position(|s| s.name == name);
    let steps = match part {
        Part::All => STEPS,
        Part::Only(name) => at(name).map_or(&[][..], |i| &STEPS[i..=i]),
        Part::From(name) => at(name).map_or(&[][..], |i| &STEPS[i..]),
    };
    if steps.is_empty() {
        bail!("no such step; steps are {}", STEPS.iter().map(|s| s.name).collect::<Vec<_>>().join(", "));
    }
    let mut results = Vec::new();
    let mut times = Vec::new();
    let mut failure = None;
    for step in steps {
        println!("\n==== {}: {}", step.name, step.about);
        let begin = Instant::now();
        let outcome = (step.run)(&mut results);
        times.push((step.name, begin.elapsed(), outcome.is_ok()));
        if let Err(e) = outcome {
            failure = Some(e.context(format!("step {} failed", step.name)));
            break;
        }
    }
    recap(&times, &results);
    failure.map_or(Ok(()), Err)
}

fn recap(times: &[(&str, Duration, bool)], results: &[String]) {
    println!("\n==== summary");
    for (name, time, good) in times {
        println!("{name:>11} {:7.1} s  {}", time.as_secs_f64(), if *good { "ok" } else { "FAILED" });
    }
    for line in results {
        println!("{line}");
    }
}

fn cargo(line: &str, seconds: u64) -> Result<()> {
    Program::new(&format!("cargo {line}"), Duration::from_secs(seconds)).run()
}

fn rustdoc(_: &mut Vec<String>) -> Result<()> {
    Program::new("cargo doc --workspace --no-deps --locked --quiet", Duration::from_secs(900))
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()
}

fn test(results: &mut Vec<String>) -> Result<()> {
    // Not stopped at the first failing binary: one run tells all.
    let program = Program::new("cargo test --workspace --locked --no-fail-fast", Duration::from_secs(2400));
    keep_results(program, &[], results)
}

fn large(results: &mut Vec<String>) -> Result<()> {
    let line = "cargo test --locked -p oxccl-runtime --test differential beyond -- --ignored --nocapture";
    keep_results(Program::new(line, Duration::from_secs(600)), &[("differential", 1)], results)
}

fn loom(results: &mut Vec<String>) -> Result<()> {
    let program =
        Program::new("cargo test --release --locked -p oxccl-loom -p oxccl-sys loom_", Duration::from_secs(900))
            .env("RUSTFLAGS", "--cfg loom")
            // Models, not what is shipped.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_TARGET_DIR", root().join("target/loom"));
    keep_results(program, &[("oxccl_loom", 1), ("oxccl_sys", 1)], results)
}

/// The examples, then some chapters of the interface, against the release libraries; step test runs all chapters.
fn c_programs(results: &mut Vec<String>) -> Result<()> {
    install::check(&prefix())?;
    let line = "cargo test --locked -p oxccl-capi --test chapters -- --exact collectives p2p errors";
    let program = Program::new(line, Duration::from_secs(600)).env("OXCCL_TEST_PREFIX", prefix());
    keep_results(program, &[("chapters", 3)], results)
}

/// Runs tests; their result lines go to `results` also when they fail. Of each binary in `least` so many have to pass.
fn keep_results(program: Program, least: &[(&str, usize)], results: &mut Vec<String>) -> Result<()> {
    let mut passed = Passed::default();
    // The lines that name binaries are there, and as they are read, whatever the user's settings of cargo.
    let settings = [("CARGO_TERM_QUIET", "false"), ("CARGO_TERM_VERBOSE", "false"), ("CARGO_TERM_COLOR", "never")];
    let program = settings.into_iter().fold(program, |program, (name, value)| program.env(name, value));
    let lines = program.run_and_show(|line| {
        passed.see(line);
        // What was left out is told again at the end; the mark may stand behind the name of a test.
        if line.starts_with("test result:") || line.ends_with("... FAILED") || line.contains("SKIPPED: ") {
            results.push(line.to_owned());
        }
    });
    lines?;
    results.push(format!("{} tests passed", passed.check(least)?));
    Ok(())
}

/// How many tests of each binary passed.
#[derive(Default)]
struct Passed {
    by_binary: BTreeMap<String, usize>,
    /// Whose lines come now.
    binary: String,
}

impl Passed {
    /// Looks at a line of `cargo test`.
    fn see(&mut self, line: &str) {
        if let Some(binary) = binary_of(line) {
            self.binary = binary.to_owned();
        } else if line.trim_start().starts_with("Doc-tests ") {
            "documentation".clone_into(&mut self.binary);
        } else if line.starts_with("test result:") {
            *self.by_binary.entry(self.binary.clone()).or_default() += count_passed(line);
        }
    }

    /// How many passed in all. A filter that matches nothing passes too; that would be a check which cannot fail.
    fn check(&self, least: &[(&str, usize)]) -> Result<usize> {
        for (binary, least) in least {
            let passed = self.by_binary.get(*binary).copied().unwrap_or(0);
            ensure!(passed >= *least, "{passed} tests of {binary} ran, of {least} or more");
        }
        let passed = self.by_binary.values().sum();
        ensure!(passed > 0, "no test ran");
        Ok(passed)
    }
}

/// The name in `Running tests/NAME.rs (target/debug/deps/NAME-0123456789abcdef)`.
fn binary_of(line: &str) -> Option<&str> {
    let path = line.contains("Running").then(|| line.trim_end().strip_suffix(')'))??.rsplit_once('(')?.1;
    let name = path.rsplit_once("/deps/")?.1;
    name.rsplit_once('-').map(|(name, _)| name)
}

/// The number in `test result: ok. 12 passed; ...`, else 0.
fn count_passed(line: &str) -> usize {
    let number = line.split_once(". ").and_then(|(_, rest)| rest.split_once(" passed"));
    number.and_then(|(n, _)| n.parse().ok()).unwrap_or(0)
}

fn prefix() -> PathBuf {
    root().join("target/prefix")
}

fn without_gpu(results: &mut Vec<String>) -> Result<()> {
    crate::without_gpu::check(&prefix(), &root().join("target"), results)
}

fn perf(_: &mut Vec<String>) -> Result<()> {
    for collective in ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"] {
        let tool = prefix().join(format!("bin/{collective}_perf"));
        Program::at(tool, Duration::from_secs(120)).args("--procs 4 -b 8 -e 4M -f 8 -n 5 -w 2").run()?;
    }
    Ok(())
}

/// The programs that the README and the guide begin with, as they are built for tests, and the one that trains.
fn rust_programs() -> Result<()> {
    cargo("build --locked -p oxccl --examples", 600)?;
    for name in ["hello", "processes", "threads"] {
        cargo(&format!("run --locked --quiet -p oxccl --example {name}"), 60)?;
    }
    cargo("run --release --locked --quiet -p train_digits", 600)
}

fn deny(results: &mut Vec<String>) -> Result<()> {
    if !exists("cargo-deny") {
        let line = "SKIPPED: step deny: cargo-deny is not installed (cargo install cargo-deny --locked)";
        println!("{line}");
        results.push(line.to_owned());
        return Ok(());
    }
    cargo("deny --locked check", 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(count_passed("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured"), 12);
        assert_eq!(count_passed("test result: FAILED. 8 passed; 1 failed"), 8);
        assert_eq!(count_passed("test a::b ... FAILED"), 0);
    }

    #[test]
    fn every_binary_that_is_named_has_to_run_tests() {
        let mut passed = Passed::default();
        for line in [
            "     Running unittests src/lib.rs (target/loom/release/deps/oxccl_loom-0123456789abcdef)",
            "test result: ok. 10 passed; 0 failed",
            "     Running unittests src/lib.rs (/a b/release/deps/oxccl_sys-0123456789abcdef)",
            "test result: ok. 0 passed; 0 failed",
            "   Doc-tests oxccl_sys",
            "test result: ok. 2 passed; 0 failed",
        ] {
            passed.see(line);
        }
        assert_eq!(passed.check(&[]).expect("some ran"), 12);
        assert_eq!(passed.check(&[("oxccl_loom", 10)]).expect("all ran"), 12);
        for (binary, least) in [("oxccl_loom", 11), ("oxccl_sys", 1), ("chapters", 1)] {
            let e = passed.check(&[("oxccl_loom", 1), (binary, least)]).expect_err("too few").to_string();
            assert!(e.contains(binary), "{e}");
        }
        Passed::default().check(&[]).expect_err("none at all");
    }

    #[test]
    fn unknown_steps_are_refused() {
        let e = run(Part::Only("nonsense")).expect_err("no such step");
        assert!(e.to_string().contains("clippy"), "{e}");
    }
}
