//! `oxccl tune`: measures the constants of the cost model on this machine and writes them to the file that the library
//! reads when a communicator is made.
//!
//! It takes a few seconds and two processors that are otherwise idle. What each constant means is in the table of
//! `oxccl_schedule::constants`; steps of the interpreter (`*_op`) are not measured and keep their defaults.

mod local;
mod pair;
mod remote;

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use oxccl_runtime::config::tuning;
use oxccl_schedule::constants::{CONSTANTS, Constant, find};

/// Measure this machine for the choice of algorithms.
#[derive(clap::Args, Clone, Debug)]
pub struct TuneArgs {
    /// File to write, a regular one if it exists [default: $OXCCL_TUNE_FILE, else ~/.config/oxccl/tune.txt]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Only print what was measured
    #[arg(long)]
    dry_run: bool,
}

/// What was measured: a constant, or a figure only for people.
enum Figure {
    Constant(&'static Constant, f64),
    Shown(String, f64, &'static str),
}

/// Runs the subcommand.
pub fn run(args: &TuneArgs) -> ExitCode {
    match tune(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("oxccl tune: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn tune(args: &TuneArgs) -> Result<()> {
    let file = if args.dry_run { None } else { Some(place(&named(args)?)?) };
    let figures = measure()?;
    let defaults = tuning::default_model();
    let mut out = format!("{}\n{:<22} {:>10} {:>10}\n", tuning::machine(), "", "measured", "default");
    for figure in &figures {
        match figure {
            Figure::Constant(c, value) => {
                let (default, doc) = ((c.get)(&defaults), c.doc);
                let _ = writeln!(out, "{:<22} {value:>10.4} {default:>10.4} {:<7} {doc}", c.name, c.unit);
            }
            Figure::Shown(name, value, unit) => {
                let _ = writeln!(out, "{name:<22} {value:>10.4} {:>10} {unit}", "");
            }
        }
    }
    let values = figures.iter().filter_map(|f| match f {
        Figure::Constant(c, value) => Some((*c, *value)),
        Figure::Shown(..) => None,
    });
    let values: Vec<_> = values.collect();
    if let Some(path) = file {
        write(&path, &values)?;
        let _ = writeln!(out, "written to {}; {} of {} constants", path.display(), values.len(), CONSTANTS.len());
    }
    std::io::stdout().write_all(out.as_bytes()).context("writing")
}

/// The file that the user, the environment or the default names.
fn named(args: &TuneArgs) -> Result<PathBuf> {
    let default = || tuning::path().map(|(path, _)| path);
    args.output.clone().or_else(default).context(
        "no place for the file: OXCCL_TUNE_FILE is off, or neither XDG_CONFIG_HOME nor HOME is set; use --output FILE",
    )
}

/// Where `path` leads to. The file there is replaced as a whole, so nothing else may lie there; looked at before seconds are
/// spent on measuring.
fn place(path: &Path) -> Result<PathBuf> {
    let name = path.display();
    let found = match path.metadata() {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            ensure!(
                !path.is_symlink(),
                "{name} is a link to a file that is not there: name that file (--output), or remove the link"
            );
            return Ok(path.to_owned());
        }
        Err(e) => bail!("cannot look at {name}: {e}; name another file (--output)"),
    };
    ensure!(
        found.is_file(),
        "{name} is no regular file, and would be replaced by one: name another (--output), or only print (--dry-run)"
    );
    let output = rustix::fs::fstat(std::io::stdout());
    let is_output = output.is_ok_and(|o| (o.st_dev, o.st_ino) == (found.dev(), found.ino()));
    ensure!(!is_output, "{name} is where the output goes: name another file (--output), or only print (--dry-run)");
    path.canonicalize().with_context(|| format!("cannot find where {name} leads to"))
}

fn measure() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut put = |name: &str, value: f64| -> Result<()> {
        let constant = find(name).with_context(|| format!("no constant {name}"))?;
        // Four significant digits say all that was measured.
        let (least, most) = constant.range;
        figures.push(Figure::Constant(constant, rounded(value).clamp(least, most)));
        Ok(())
    };
    // Processes are forked before the library starts threads.
    let pair = remote::measure()?;
    let kernel = remote::kernel()?;
    let memory = local::memory();
    put("signal", pair.signal_us)?;
    put("wait", local::look_us())?;
    put("switch", pair.switch_us)?;
    put("cores", tuning::processors() as f64)?;
    put("cache", memory.cache_bytes)?;
    put("copy", pair.copy_us_per_kib)?;
    put("push", pair.push_us_per_kib / pair.copy_us_per_kib)?;
    put("reduce", pair.reduce_us_per_kib)?;
    put("dram_factor", memory.dram_us_per_kib / pair.copy_us_per_kib)?;
    put("eager", pair.eager_us_per_kib)?;
    put("shm_latency", pair.message_us)?;
    put("shm_copy", pair.copy_us_per_kib)?;
    put("shm_reduce", pair.reduce_us_per_kib)?;
    put("tcp_latency", pair.tcp_latency_us)?;
    put("tcp_copy", pair.tcp_us_per_kib)?;
    put("tcp_reduce", pair.tcp_us_per_kib + (pair.reduce_us_per_kib - pair.copy_us_per_kib).max(0.0))?;
    put("start", local::start_us()?)?;
    if let Some((op, copy)) = kernel {
        put("kernel_op", op)?;
        put("kernel_copy", copy)?;
    }
    figures.push(Figure::Shown("wake of a parked rank".into(), pair.wake_us, "us"));
    figures.push(Figure::Shown("copy in the own cache".into(), memory.cached_us_per_kib, "us/KiB"));
    figures.push(Figure::Shown("copy beyond the caches".into(), memory.dram_us_per_kib, "us/KiB"));
    for (dtype, us) in local::reductions() {
        figures.push(Figure::Shown(format!("sum of {dtype}"), us, "us/KiB"));
    }
    Ok(figures)
}

fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Puts the section of this machine into `path`; other machines' stay.
fn write(path: &Path, values: &[(&'static Constant, f64)]) -> Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => bail!("cannot read {}: {e}", path.display()),
    };
    let text = tuning::with_section(&old, tuning::machine(), values);
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    // At once: a communicator that is made meanwhile reads the old file or the new one.
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let written = std::fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()));
    let replaced = written
        .and_then(|()| std::fs::rename(&new, path).with_context(|| format!("cannot replace {}", path.display())));
    if replaced.is_err() {
        // Absent if it could not even be made.
        let _ = std::fs::remove_file(&new);
    }
    replaced
}

/// The least of what `f` gives in several rounds: others on the machine only make a round longer.
fn least(mut f: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| f()).fold(f64::INFINITY, f64::min)
}

/// Rounds of [`least`].
const ROUNDS: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded() {
        assert_eq!([rounded(0.123456), rounded(1e7 / 3.0), rounded(2.0)], [0.1235, 3333000.0, 2.0]);
    }

    #[test]
    fn the_file_keeps_what_other_machines_wrote() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/tune.txt");
        let signal = find("signal").expect("a constant");
        std::fs::create_dir_all(folder.path().join("a")).expect("a folder");
        std::fs::write(&path, tuning::with_section("", "another", &[(signal, 1.0)])).expect("written");
        write(&path, &[(signal, 0.5)]).expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        let value = |machine: &str| tuning::parse(&text, machine).expect("valid").expect("a section")[0].1;
        assert_eq!((value("another"), value(tuning::machine())), (1.0, 0.5));
        assert_eq!(std::fs::read_dir(folder.path().join("a")).expect("listed").count(), 1, "nothing is left over");
    }
    #[test]
    fn nothing_is_left_over_where_the_file_cannot_be_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        // What ends in a slash names no file: the temporary one is written, and cannot be renamed.
        assert!(write(&folder.path().join("tune.txt/"), &[]).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0);
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").expect("written");
        for (link, target) in [("link", "file"), ("dangling", "nothing")] {
            std::os::unix::fs::symlink(at(target), at(link)).expect("a link");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).expect("a fifo");
        let real = at("file").canonicalize().expect("found");
        assert_eq!((place(&at("file")).ok(), place(&at("link")).ok()), (Some(real.clone()), Some(real)));
        assert_eq!(place(&at("a/new")).ok(), Some(at("a/new")));
        for other in [at("fifo"), at("dangling"), folder.path().to_owned(), "/dev/null".into(), at("file/x")] {
            let refused = place(&other).expect_err("refused").to_string();
            assert!(refused.contains(&other.display().to_string()) && refused.contains("--output"), "{refused}");
        }
    }
}
