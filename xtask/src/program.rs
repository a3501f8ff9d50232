//! Starting other programs: with a time limit, with a clear error, and with their output both shown and kept.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// `program`, which is ended with its children after a limit, or when the thread that starts it has ended.
///
/// `timeout` puts both into a process group of their own, which a terminal's interrupt does not reach: by itself it would
/// go on when this process is interrupted. The kernel tells it of that, where `setpriv` can ask for it, and it ends what it
/// has started.
pub fn bounded(limit: Duration, program: impl AsRef<OsStr>) -> Command {
    static TOLD_OF_DEATH: OnceLock<bool> = OnceLock::new();
    // Older ones, and those of other systems, cannot.
    let can = || {
        let probe = Command::new("setpriv").args(["--pdeathsig", "TERM", "true"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    };
    let mut command = if *TOLD_OF_DEATH.get_or_init(can) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout"]);
        command
    } else {
        Command::new("timeout")
    };
    command.arg("--kill-after=10").arg(limit.as_secs().to_string()).arg(program);
    command
}

/// Ends what [`bounded`] has started: told to, `timeout` hands it on, which it could not if it were killed.
pub fn end(child: &mut Child) {
    // It may be over by itself.
    let _ = Command::new("sh").args(["-c", "kill $0", &child.id().to_string()]).stderr(Stdio::null()).status();
    let _ = child.wait();
}

/// A command that runs in the top folder and is ended as [`bounded`] says.
pub struct Program {
    command: Command,
    text: String,
}

impl Program {
    /// `line`, a program and its arguments, is split at spaces: paths, which may have some, are for [`at`](Self::at) and
    /// [`arg`](Self::arg).
    pub fn new(line: &str, limit: Duration) -> Program {
        let mut words = line.split_whitespace();
        let program = Program::at(words.next().unwrap_or_default(), limit);
        words.fold(program, |program, word| program.arg(word))
    }

    /// The program of this name or path.
    pub fn at(path: impl AsRef<OsStr>, limit: Duration) -> Program {
        let text = path.as_ref().display().to_string();
        let mut command = bounded(limit, path);
        command.current_dir(crate::root());
        // Where xtask runs under cargo, the inner cargo must not think it is the same invocation.
        for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            command.env_remove(name);
        }
        Program { command, text }
    }

    /// Adds an argument that may hold spaces.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Program {
        self.text += &format!(" {}", arg.as_ref().display());
        self.command.arg(arg);
        self
    }

    /// Adds arguments, split at spaces.
    pub fn args(self, line: &str) -> Program {
        line.split_whitespace().fold(self, |program, word| program.arg(word))
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
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

fn check(status: ExitStatus, text: &str) -> Result<()> {
    const KILL: i32 = 9;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(124), _) => bail!("took too long and was ended: {text}"),
        // `timeout` says the one of a program that was killed, and dies of the other when it kills what does not end.
        (Some(137), _) | (_, Some(KILL)) => {
            bail!("was killed: it took too long and did not end when told to, or the kernel had no memory left: {text}")
        }
        _ => bail!("{status}: {text}"),
    }
}

/// Whether `name` is found in PATH.
pub fn exists(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|d| d.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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

    #[test]
    fn a_kill_is_told_with_both_of_its_causes() {
        for status in [137 << 8, 9] {
            let e = check(ExitStatus::from_raw(status), "a b").expect_err("killed").to_string();
            assert!(e.contains("too long") && e.contains("memory") && e.ends_with("a b"), "{e}");
        }
    }

    #[test]
    fn programs_end_with_who_started_them() {
        let long = Duration::from_secs(30);
        let begin = Instant::now();
        // The thread ends once the program has begun, when the kernel has been asked.
        let start = move || {
            let mut command = bounded(long, "sh");
            let mut child = command.args(["-c", "echo begun; exec sleep 30"]).stdout(Stdio::piped()).spawn()?;
            let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
            out.read_line(&mut String::new())?;
            std::io::Result::Ok((command, child))
        };
        let (command, mut child) = std::thread::spawn(start).join().expect("no panic").expect("started");
        if command.get_program() != "setpriv" {
            let _ = writeln!(std::io::stderr(), "SKIPPED: programs that end with xtask: setpriv cannot ask for that");
            end(&mut child);
        }
        let status = child.wait().expect("ended");
        assert!(!status.success() && begin.elapsed() < long, "{status} after {:?}", begin.elapsed());
    }
}
