//! Installing packages of the system (Debian's `apt-get`), as root or by `sudo` that asks for nothing.
//!
//! It knows no other package manager; who has another one is told what to install.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::program::{Program, exists};

/// Longest that one of its commands may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Installs `packages`, separated by spaces.
///
/// # Errors
/// Where there is no `apt-get`, the right to install is missing, or a package cannot be fetched.
pub fn install(packages: &str) -> Result<()> {
    if !exists("apt-get") {
        bail!("no apt-get here: install {packages} by hand");
    }
    let as_root = if is_root()? { "" } else { "sudo --non-interactive " };
    eprintln!("installing {packages}");
    // What lists of packages say may be old, or not there.
    let found = run(&install_line(as_root, packages)).or_else(|_| {
        run(&format!("{as_root}apt-get update -q"))?;
        run(&install_line(as_root, packages))
    });
    found.with_context(|| format!("cannot install {packages}"))
}

fn run(line: &str) -> Result<()> {
    Program::new(line, LIMIT).run()
}

/// `env`, since `sudo` hands no variables on.
fn install_line(as_root: &str, packages: &str) -> String {
    format!("{as_root}env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends {packages}")
}

/// Whether this process may install: the owner of its entry in `/proc` is the user that it runs as.
fn is_root() -> Result<bool> {
    Ok(std::fs::metadata("/proc/self").context("who runs this is not known")?.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_words_of_one_command() {
        let line = install_line("sudo --non-interactive ", "mpich libmpich-dev");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..5], ["sudo", "--non-interactive", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        assert_eq!(words[words.len() - 2..], ["mpich", "libmpich-dev"]);
    }
}
