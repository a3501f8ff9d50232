//! The three ways of the guide "Run your NCCL program without a GPU", on an installed prefix: a plain program, MPI, and
//! CMake's FindCUDAToolkit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::program::{Program, exists};

const TIME: Duration = Duration::from_secs(60);

/// Builds and runs the programs of `examples/without_gpu` as the guide says. What is left out goes to `results`.
pub fn check(prefix: &Path, work: &Path, results: &mut Vec<String>) -> Result<()> {
    let work = work.join("without-gpu");
    fs::create_dir_all(&work)?;
    let sources = crate::root().join("examples/without_gpu");
    plain(prefix, &work, &sources)?;
    for tool in ["mpicc", "cmake"] {
        if exists(tool) {
            match tool {
                "mpicc" => mpi(prefix, &work, &sources)?,
                _ => cmake(prefix, &work, &sources)?,
            }
            continue;
        }
        ensure!(std::env::var("CI").as_deref() != Ok("true"), "{tool} is not installed");
        let line = format!("SKIPPED: step without-gpu: {tool} is not installed");
        println!("{line}");
        results.push(line);
    }
    Ok(())
}

/// The flags of the guide.
fn compile(compiler: &str, prefix: &Path, source: PathBuf, program: &Path) -> Result<()> {
    let at = |part: &str| prefix.join(part).display().to_string();
    Program::new(compiler, TIME)
        .arg(format!("-I{}", at("include")))
        .arg(format!("-I{}", at("include/oxccl-host")))
        .arg(source)
        .arg("-o")
        .arg(program)
        .arg(format!("-L{}", at("lib")))
        .arg(format!("-L{}", at("lib/oxccl-host")))
        .arg("-lnccl")
        .arg("-lcudart")
        .run()
}

/// Runs a command that has to say this.
fn says(program: Program, what: &str) -> Result<()> {
    let mut found = false;
    program.run_and_show(|line| found |= line.trim() == what)?;
    ensure!(found, "the program did not say {what:?}");
    Ok(())
}

fn plain(prefix: &Path, work: &Path, sources: &Path) -> Result<()> {
    let program = work.join("train");
    compile("gcc -Wall -Wextra -Werror", prefix, sources.join("train.c"), &program)?;
    let run = Program::at(prefix.join("bin/oxccl"), TIME);
    says(run.arg("run").arg("--devices").arg("4").arg("--").arg(program), "4 devices agree")
}

fn mpi(prefix: &Path, work: &Path, sources: &Path) -> Result<()> {
    let program = work.join("train_mpi");
    compile("mpicc -Wall -Wextra -Werror", prefix, sources.join("train_mpi.c"), &program)?;
    // More ranks than cores, and as root, as machines of CI are.
    let run = Program::new("mpirun --oversubscribe --allow-run-as-root -n 3", TIME).arg(prefix.join("bin/oxccl"));
    says(run.arg("run").arg("--").arg(program), "3 ranks agree")
}

fn cmake(prefix: &Path, work: &Path, sources: &Path) -> Result<()> {
    let build = work.join("cmake");
    // What an earlier run found must not be found again.
    if build.exists() {
        fs::remove_dir_all(&build)?;
    }
    Program::new("cmake", TIME)
        .arg("-S")
        .arg(sources)
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCUDAToolkit_ROOT={}", prefix.join("lib/oxccl-host/cuda").display()))
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .run()?;
    Program::new("cmake --build", TIME).arg(&build).run()?;
    let run = Program::at(prefix.join("bin/oxccl"), TIME);
    says(run.arg("run").arg("--devices").arg("2").arg("--").arg(build.join("train")), "2 devices agree")
}
