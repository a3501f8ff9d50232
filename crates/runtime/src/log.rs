//! The log, in the line format that users of NCCL and RCCL grep, and the text of the last warning.
//!
//! `NCCL_DEBUG`, `NCCL_DEBUG_SUBSYS`, `NCCL_DEBUG_FILE` and those of the time in front of a line are read at the first message and again
//! after [`reset`].
//! Whoever first decides what an error is calls [`warn`]; nobody else on the way up does.

mod stamp;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oxccl_sys::sync::{AtomicBool, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::config;
use stamp::Stamps;

/// Levels of both libraries, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None = 0,
    /// A device failed; only RCCL has it, NCCL warns.
    Error = 1,
    /// The banner.
    Version = 2,
    /// Something is wrong.
    Warn = 3,
    /// What happened.
    Info = 4,
    /// Aborts.
    Abort = 5,
    /// Everything.
    Trace = 6,
}

impl Level {
    /// The number by which plug-ins know the level: RCCL has one level more. NCCL knows no errors and calls them warnings.
    pub fn number(self, flavour: Flavour) -> i32 {
        match (flavour, self) {
            (Flavour::Rccl, level) => level as i32,
            (Flavour::Nccl, Level::None) => 0,
            (Flavour::Nccl, Level::Error) => Level::Warn as i32 - 1,
            (Flavour::Nccl, level) => level as i32 - 1,
        }
    }
}

/// Subsystem bits of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subsys(pub u64);

impl Subsys {
    /// Initialisation.
    pub const INIT: Subsys = Subsys(0x1);
    /// Collective calls.
    pub const COLL: Subsys = Subsys(0x2);
    /// Point-to-point connections.
    pub const P2P: Subsys = Subsys(0x4);
    /// Network connections.
    pub const NET: Subsys = Subsys(0x10);
    /// Choice of algorithms.
    pub const TUNING: Subsys = Subsys(0x40);
    /// Variables.
    pub const ENV: Subsys = Subsys(0x80);
    /// Bootstrap.
    pub const BOOTSTRAP: Subsys = Subsys(0x1000);
    /// All subsystems.
    pub const ALL: Subsys = Subsys(u64::MAX);
}

/// Whose defaults the library follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `libnccl.so.2`: silent unless `NCCL_DEBUG` is set.
    Nccl,
    /// `librccl.so.1`: errors are logged by default.
    Rccl,
}

/// Beside the state, which asks for variables, which ask for the flavour.
static IS_RCCL: AtomicBool = AtomicBool::new(false);

struct State {
    ready: bool,
    level: u8,
    mask: u64,
    file: Option<Arc<File>>,
    stamps: Stamps,
    /// Whoever is warned wants to know what happens from then on.
    warning_raises: bool,
    banner_shown: bool,
    last: String,
}

static STATE: Mutex<State> = Mutex::new(State {
    ready: false,
    level: 0,
    mask: 0,
    file: None,
    stamps: Stamps::NONE,
    warning_raises: false,
    banner_shown: false,
    last: String::new(),
});

fn state() -> MutexGuard<'static, State> {
    // A panic between two field writes leaves text that is merely old.
    let mut s = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if !s.ready {
        s.ready = true;
        s.level = parse_level(config::text("NCCL_DEBUG").as_deref(), flavour()) as u8;
        s.mask = parse_subsys(config::text("NCCL_DEBUG_SUBSYS").as_deref());
        s.file = None;
        if s.level > Level::Version as u8 {
            s.file = config::text("NCCL_DEBUG_FILE").and_then(|p| File::create(expand(&p)).ok().map(Arc::new));
        }
        let levels = config::text_or_empty("NCCL_DEBUG_TIMESTAMP_LEVELS");
        let format = config::text_or_empty("NCCL_DEBUG_TIMESTAMP_FORMAT");
        s.stamps = Stamps::parse(levels.as_deref(), format.as_deref(), flavour());
        s.warning_raises = config::integer("NCCL_WARN_ENABLE_DEBUG_INFO").is_some_and(|n| n != 0);
    }
    s
}

/// What nobody has chosen, or chosen by a name that the library does not know: silence, but RCCL tells of errors.
fn parse_level(text: Option<&str>, flavour: Flavour) -> Level {
    let rccl = flavour == Flavour::Rccl;
    match text.map(str::to_ascii_uppercase).as_deref() {
        Some("VERSION") => Level::Version,
        Some("WARN") => Level::Warn,
        Some("INFO") => Level::Info,
        Some("ABORT") => Level::Abort,
        Some("TRACE") => Level::Trace,
        Some("NONE") => Level::None,
        _ if rccl => Level::Error,
        _ => Level::None,
    }
}

fn parse_subsys(text: Option<&str>) -> u64 {
    const NAMES: [&str; 16] = [
        "INIT",
        "COLL",
        "P2P",
        "SHM",
        "NET",
        "GRAPH",
        "TUNING",
        "ENV",
        "ALLOC",
        "CALL",
        "PROXY",
        "NVLS",
        "BOOTSTRAP",
        "REG",
        "PROFILE",
        "RAS",
    ];
    let Some(text) = text else { return Subsys::INIT.0 | Subsys::BOOTSTRAP.0 | Subsys::ENV.0 };
    listed(text, |item| NAMES.iter().position(|name| *name == item).map_or(0, |i| 1 << i))
}

/// The bits of a list of names, in any case; `^` in front: all but those. `ALL` is all of them, unknown names say nothing.
fn listed(text: &str, bit: impl Fn(&str) -> u64) -> u64 {
    let (invert, list) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
    let named = |item: &str| match item.to_ascii_uppercase().as_str() {
        "ALL" => u64::MAX,
        name => bit(name),
    };
    let bits = list.split(',').fold(0, |bits, item| bits | named(item));
    if invert { !bits } else { bits }
}

/// `%h` is the host, `%p` the process, `%%` a percent sign.
fn expand(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('h')) => out.push_str(&short_host()),
            ('%', Some('p')) => out.push_str(&std::process::id().to_string()),
            ('%', Some('%')) => out.push('%'),
            ('%', Some(other)) => {
                out.push('%');
                out.push(other);
            }
            (c, _) => out.push(c),
        }
    }
    out
}

fn short_host() -> String {
    oxccl_sys::host::host_name().split('.').next().unwrap_or("").replace(['%', '/'], "-")
}

/// Writes a line where the state says. Without its lock: what the program does with its output, which it may hold or leave unread, must not stop
/// threads that have nothing to write.
fn emit(mut s: MutexGuard<'_, State>, level: Level, text: &str) {
    if level == Level::Warn && s.warning_raises {
        s.level = s.level.max(Level::Info as u8);
    }
    let file = s.file.clone();
    let stamp = s.stamps.text(level, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
    drop(s);
    let prefix = format!("{}:{}:{} ", short_host(), std::process::id(), rustix::thread::gettid().as_raw_nonzero());
    let device = crate::device::current();
    let line = match level {
        Level::Version => format!("{stamp}{text}\n"),
        Level::Error => format!("{stamp}{prefix}[{device}] [FATAL ERROR]: {text}\n"),
        Level::Warn => format!("\n{stamp}{prefix}[{device}] oxccl NCCL WARN {text}\n"),
        _ => format!("{stamp}{prefix}[{device}] NCCL INFO {text}\n"),
    };
    // A log that cannot be written has nowhere to complain.
    match file {
        Some(file) => drop((&*file).write_all(line.as_bytes())),
        None => print(line.as_bytes()),
    }
}

/// Writes to the standard output. Not by way of Rust's buffer: a thread of the program may hold its lock and wait for us.
fn print(mut bytes: &[u8]) {
    let out = std::io::stdout();
    while !bytes.is_empty() {
        match rustix::io::write(out.as_fd(), bytes) {
            Ok(0) => return,
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if can_be_written(&out) => {}
            Err(_) => return,
        }
    }
}

/// Waits for who reads what the program writes, but not for long.
fn can_be_written(out: &std::io::Stdout) -> bool {
    let mut polls = [PollFd::new(out, PollFlags::OUT)];
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    rustix::event::poll(&mut polls, Some(&second)).is_ok_and(|ready| ready > 0)
}

/// Logs at WARN and keeps the text for [`last_error`], printed or not.
pub fn warn(text: &str) {
    let mut s = state();
    s.last.clear();
    s.last.push_str(text);
    if s.level >= Level::Warn as u8 && s.mask != 0 {
        emit(s, Level::Warn, text);
    }
}

/// Logs at WARN what is no error: what the next call of [`last_error`] gives stays.
pub fn notice(text: &str) {
    let s = state();
    if s.level >= Level::Warn as u8 && s.mask != 0 {
        emit(s, Level::Warn, text);
    }
}

/// Logs that a device failed, and keeps the text like [`warn`]: at RCCL's level ERROR, a warning of NCCL.
pub fn error(text: &str) {
    let mut s = state();
    if flavour() == Flavour::Nccl {
        drop(s);
        return warn(text);
    }
    s.last.clear();
    s.last.push_str(text);
    if s.level >= Level::Error as u8 && s.mask != 0 {
        emit(s, Level::Error, text);
    }
}

/// Logs at INFO for the subsystem.
pub fn info(subsys: Subsys, text: &str) {
    let s = state();
    if s.level >= Level::Info as u8 && s.mask & subsys.0 != 0 {
        emit(s, Level::Info, text);
    }
}

/// Whether [`info`] would print: lets callers skip formatting.
pub fn info_enabled(subsys: Subsys) -> bool {
    let s = state();
    s.level >= Level::Info as u8 && s.mask & subsys.0 != 0
}

/// The banner of `release` (`2.29.7`), in the words of either library.
fn banner_text(release: &str, flavour: Flavour) -> String {
    match flavour {
        Flavour::Nccl => format!("NCCL version {release}+oxccl"),
        Flavour::Rccl => format!(
            "RCCL version : {release}-oxccl:{}\nHIP version  : host devices\nROCm version : none\nHostname     : {}\n\
             Librccl path : {}",
            env!("CARGO_PKG_VERSION"),
            oxccl_sys::host::host_name(),
            library_path()
        ),
    }
}

/// The file that this code was loaded from.
fn library_path() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = maps.lines().find_map(|l| Some(&l[l.find('/')?..]).filter(|path| path.contains("librccl")));
    own.map_or_else(|| std::env::current_exe().map_or_else(|_| "?".into(), |p| p.display().to_string()), str::to_string)
}

/// Shows the version banner once per process, where the level asks for it.
pub fn banner(release: &str, rank: usize) {
    let mut s = state();
    let wanted = s.level > Level::Warn as u8 || (s.level >= Level::Version as u8 && rank == 0);
    if s.banner_shown || !wanted {
        return;
    }
    s.banner_shown = true;
    let level = if s.level <= Level::Warn as u8 { Level::Version } else { Level::Info };
    let text = banner_text(release, flavour());
    emit(s, level, &text);
}

/// The text of the last warning of the process; empty when there was none.
pub fn last_error() -> String {
    state().last.clone()
}

/// The next message reads the environment again.
pub fn reset() {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).ready = false;
}

/// Chooses whose defaults apply; called by the shared library in its first calls. Where they change the next message reads the environment
/// again, which empties the file.
pub fn set_flavour(flavour: Flavour) {
    let rccl = flavour == Flavour::Rccl;
    if IS_RCCL.swap(rccl, Ordering::Relaxed) != rccl {
        reset();
    }
}

/// Whose defaults apply.
pub fn flavour() -> Flavour {
    if IS_RCCL.load(Ordering::Relaxed) { Flavour::Rccl } else { Flavour::Nccl }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_masks() {
        for (text, nccl, rccl) in [
            (None, 0, 1),
            (Some("nonsense"), 0, 1),
            (Some("NONE"), 0, 0),
            (Some("error"), 0, 1),
            (Some("version"), 1, 2),
            (Some("WARN"), 2, 3),
            (Some("info"), 3, 4),
            (Some("Abort"), 4, 5),
            (Some("TRACE"), 5, 6),
        ] {
            for (flavour, number) in [(Flavour::Nccl, nccl), (Flavour::Rccl, rccl)] {
                assert_eq!(parse_level(text, flavour).number(flavour), number, "{text:?} {flavour:?}");
            }
        }
        assert_eq!(parse_subsys(None), 0x1081);
        assert_eq!(parse_subsys(Some("INIT,net")), 0x11);
        assert_eq!(parse_subsys(Some("^COLL")), !0x2);
        assert_eq!(parse_subsys(Some("")), 0);
        assert_eq!(expand("a%%b%q"), "a%b%q");
    }

    #[test]
    fn each_library_has_its_own_banner() {
        assert_eq!(banner_text("2.29.7", Flavour::Nccl), "NCCL version 2.29.7+oxccl");
        let text = banner_text("2.29.7", Flavour::Rccl);
        let labels: Vec<&str> = text.lines().map(|l| l.split(" : ").next().unwrap().trim_end()).collect();
        assert_eq!(labels, ["RCCL version", "HIP version", "ROCm version", "Hostname", "Librccl path"]);
        assert!(text.starts_with("RCCL version : 2.29.7-"));
    }

    #[test]
    fn warn_keeps_its_text() {
        warn("something with 7 in it");
        assert_eq!(last_error(), "something with 7 in it");
    }
}
