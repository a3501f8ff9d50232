//! All checks, in order, each timed, until the first failure.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

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
        about: "training on real data equals a single process",
        run: |_| cargo("run --release --locked --quiet -p train_digits", 600),
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
    keep_results(Program::new("cargo test --workspace --locked --no-fail-fast", Duration::from_secs(2400)), results)
}

fn large(results: &mut Vec<String>) -> Result<()> {
    let line = "cargo test --locked -p oxccl-runtime --test differential beyond -- --ignored --nocapture";
    keep_results(Program::new(line, Duration::from_secs(600)), results)
}

fn loom(results: &mut Vec<String>) -> Result<()> {
    let program =
        Program::new("cargo test --release --locked -p oxccl-loom -p oxccl-sys loom_", Duration::from_secs(900))
            .env("RUSTFLAGS", "--cfg loom")
            // Models, not what is shipped.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_TARGET_DIR", root().join("target/loom"));
    keep_results(program, results)
}

/// The examples, then some chapters of the interface, against the release libraries; step test runs all chapters.
fn c_programs(results: &mut Vec<String>) -> Result<()> {
    install::check(&prefix())?;
    let line = "cargo test --locked -p oxccl-capi --test chapters -- --exact collectives p2p errors";
    keep_results(Program::new(line, Duration::from_secs(600)).env("OXCCL_TEST_PREFIX", prefix()), results)
}

/// Runs tests; their result lines go to `results` also when they fail.
fn keep_results(program: Program, results: &mut Vec<String>) -> Result<()> {
    let mut passed = 0;
    let lines = program.run_and_show(|line| {
        // What was left out is told again at the end; the mark may stand behind the name of a test.
        if line.starts_with("test result:") || line.ends_with("... FAILED") || line.contains("SKIPPED: ") {
            passed += count_passed(line);
            results.push(line.to_owned());
        }
    });
    lines?;
    // A filter that matches nothing passes too; that would be a check which cannot fail.
    if passed == 0 {
        bail!("no test ran");
    }
    results.push(format!("{passed} tests passed"));
    Ok(())
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
    fn unknown_steps_are_refused() {
        let e = run(Part::Only("nonsense")).expect_err("no such step");
        assert!(e.to_string().contains("clippy"), "{e}");
    }
}
