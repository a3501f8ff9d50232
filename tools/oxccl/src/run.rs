//! `oxccl run -- PROGRAM`: runs a program on host devices.
//!
//! Sets the loader's search path and the number of devices, then becomes the program. It adds nothing to a program that
//! was linked with oxccl alone; it is for programs that load the CUDA or HIP runtime.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

/// Folder of the host runtimes, below that of the libraries.
const FOLDER: &str = "oxccl-host";

/// What to run, and on what.
#[derive(Args)]
pub struct RunArgs {
    /// Number of host devices that the program sees [default: the larger of 8 and the number of cores]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    devices: Option<u32>,
    /// Folder of libnccl.so.2, with the host runtimes in oxccl-host below it [default: lib beside the tool's folder]
    #[arg(long, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// Load the libraries for CUDA programs before any other: where the own search path (RPATH) of a program would find others first
    #[arg(long)]
    preload: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Becomes the program; returns only when that failed.
pub fn run(args: &RunArgs) -> ExitCode {
    match prepare(args) {
        Ok(mut command) => {
            let error = command.exec();
            eprintln!("oxccl run: cannot start {}: {error}", Path::new(&args.program[0]).display());
            ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
        }
        Err(error) => {
            eprintln!("oxccl run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(args: &RunArgs) -> Result<Command> {
    let lib = match &args.lib {
        Some(lib) => lib.clone(),
        None => beside_the_tool()?,
    };
    let lib = std::path::absolute(&lib)?;
    let host = lib.join(FOLDER);
    for file in [host.join("libcudart.so.12"), lib.join("libnccl.so.2")] {
        if !file.exists() {
            bail!(
                "{} is not there; install oxccl with `cargo xtask install --prefix DIR`, or say --lib DIR",
                file.display()
            );
        }
    }
    let mut command = Command::new(&args.program[0]);
    command.args(&args.program[1..]);
    command.env("LD_LIBRARY_PATH", before([host.clone(), lib.clone()], "LD_LIBRARY_PATH")?);
    if args.preload {
        let first = [lib.join("libnccl.so.2"), host.join("libcudart.so.12"), host.join("libcudart.so.13")];
        command.env("LD_PRELOAD", before(first, "LD_PRELOAD")?);
    }
    if let Some(devices) = args.devices {
        command.env("OXCCL_HOST_DEVICES", devices.to_string());
    }
    Ok(command)
}

fn beside_the_tool() -> Result<PathBuf> {
    let tool = std::env::current_exe().context("cannot tell where the tool lies")?;
    let folder = tool.ancestors().nth(2).context("the tool lies in no folder")?;
    Ok(folder.join("lib"))
}

/// `paths` before what the variable holds already.
fn before<const N: usize>(paths: [PathBuf; N], variable: &str) -> Result<OsString> {
    let old = std::env::var_os(variable).unwrap_or_default();
    let old = std::env::split_paths(&old).filter(|p| !p.as_os_str().is_empty());
    std::env::join_paths(paths.into_iter().chain(old)).context("a folder's name has a colon in it")
}
