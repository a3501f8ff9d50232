//! Starting other programs: with a time limit, with a clear error, and with their output both shown and kept.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A command that runs in the top folder and is killed, with its children, after a limit.
pub struct Program {
    command: Command,
    text: String,
}

impl Program {
    /// `line` is split at spaces. After `limit` the program and its children are ended.
    pub fn new(line: &str, limit: Duration) -> Program {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=10").arg(limit.as_secs().to_string()).current_dir(crate::root());
        command.args(line.split_whitespace());
        // Where xtask runs under cargo, the inner cargo must not think it is the same invocation.
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            command.env_remove(name);
        }
        Program { command, text: line.to_owned() }
    }

    /// Adds an argument that may hold spaces.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Program {
        self.text += &format!(" {}", arg.as_ref().display());
        self.command.arg(arg);
        self
    }

    /// Adds arguments, split at spaces.
    pub fn args(self, line: &str) -> Program {
        line.split_whitespace().fold(self, |program, word| program.arg(word))
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Program {
        self.text = format!("{name}={:?} {}", value.as_ref(), self.text);
        self.command.env(name, value);
        self
    }

    /// Runs it with its output on this program's.
    pub fn run(mut self) -> Result<()> {
        let status = self.command.status().with_context(|| format!("cannot start: {}", self.text))?;
        check(status, &self.text)
    }

    /// Runs it; its output, standard error included, is shown line by line and handed to `see`.
    pub fn run_and_show(mut self, mut see: impl FnMut(&str)) -> Result<()> {
        let (reader, writer) = std::io::pipe().context("no pipe for the output")?;
        self.command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = self.command.spawn().with_context(|| format!("cannot start: {}", self.text))?;
        // The command holds this side's copies of the writing end; reading ends only when all are closed.
        drop(self.command);
        for line in BufReader::new(reader).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            writeln!(std::io::stdout(), "{line}")?;
            see(&line);
        }
        check(child.wait()?, &self.text)
    }
}

fn check(status: std::process::ExitStatus, text: &str) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(124 | 137) => bail!("took too long and was ended: {text}"),
        _ => bail!("{status}: {text}"),
    }
}

/// Whether `name` is found in PATH.
pub fn exists(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|d| d.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_and_failures_name_the_command() {
        let second = Duration::from_secs(5);
        let mut seen = Vec::new();
        Program::new("echo a b", second).run_and_show(|line| seen.push(line.to_owned())).expect("echo works");
        assert_eq!(seen, ["a b"]);
        let e = Program::new("false with words", second).run().expect_err("false fails");
        assert!(e.to_string().contains("false with words"), "{e}");
    }

    #[test]
    fn limits_hold() {
        let e = Program::new("sleep 60", Duration::from_secs(1)).run().expect_err("killed");
        assert!(e.to_string().contains("too long"), "{e}");
    }
}
