//! Every variable the runtime reads, as a documented object, and the values one communicator runs with.
//!
//! The environment, and the configuration files behind it (`file`), are read here and nowhere else, when a communicator is made
//! ([`Config::from_env`]); what a process has once when that is first needed.

mod file;
pub mod tuning;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use tuning::Constants;

use crate::log;

/// A documented environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name in the environment.
    pub name: &'static str,
    /// What it takes: `bytes`, `0/1`, `integer`, `list`, `text`.
    pub kind: &'static str,
    /// Value when unset, as text.
    pub default: &'static str,
    /// Valid values.
    pub range: &'static str,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! variables {
    ($($id:ident: $name:literal, $kind:literal, $default:literal, $range:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $id: Variable =
            Variable { name: $name, kind: $kind, default: $default, range: $range, doc: $doc };)*
        /// All variables, in the order of the documentation.
        pub const VARIABLES: &[Variable] = &[$($id),*];
    };
}

variables! {
    HOST_DEVICES: "OXCCL_HOST_DEVICES", "integer", "max(8, cores)", "1..=4096",
        "Number of host devices that the process sees.";
    CORES: "OXCCL_CORES", "integer", "what the system says", "1..=1024",
        "Cores that the ranks of this machine are taken to have, whatever the system says of processors, affinities and quotas, and a file of constants. Fewer where others use them as well; more to try the ways of a larger machine. It should be the same on all ranks: that of rank 0 decides which ways they go, the greatest of a machine's ranks, or what the system says to one that was told nothing, how they wait.";
    SHM: "OXCCL_SHM", "0/1", "1", "0, 1",
        "0: ranks never share memory; every byte goes through network connections, also on one machine.";
    HOST_ID: "NCCL_HOSTID", "text", "", "any text",
        "Ranks of a machine with different texts are taken to be on different hosts, which share no memory, to try on one machine what runs on several; those with none are one host more. That they share cores is known all the same. Ranks of different machines, or network namespaces, share none whatever they say.";
    P2P: "OXCCL_P2P", "text", "auto", "auto, shm, direct, cma",
        "How Send, Recv and AlltoAllv move what is long between processes of a machine: shared slots, mapped device memory, process_vm_readv. What one of two ranks gives the kernel copies if the other one waits for it, with cma on any processor. Where only some ranks share memory other collectives, too, go by slots and, with auto and direct, mapped memory.";
    EAGER_LIMIT: "OXCCL_EAGER_LIMIT", "bytes", "8192", "0..=65536",
        "Collectives of which every rank publishes at most this many bytes carry them in the line that announces the call. When unset the cost model decides, up to the default; in memory that peers cannot map up to 256 KiB where ranks share cores, or of what a root broadcasts to more than two others with a core each where the kernel's copies are faster than slots. A root that shares its core and waits for each of its calls gives up to 32 KiB so, whatever memory it has.";
    SCRATCH: "OXCCL_SCRATCH", "bytes", "524288", "65536..=67108864",
        "Shared scratch per rank and communicator for memory that peers cannot map; ranks that share cores have twice as much where the kernel's copies are not the faster way, and three and more of them 1.75 times as much, but at most 384 KiB more, on Intel's processors from Sapphire Rapids on; a rank with one peer has twice as much, or up to 6 MiB on processors whose stores wait for lines of another core, for what it gives alone. Only touched pages cost memory.";
    SLOT_BYTES: "OXCCL_SLOT_BYTES", "bytes", "32768", "4096..=4194304",
        "Bytes of one slot of a connection. Between up to 16 ranks of one machine that have cores of their own slots are four times as long, but no longer than 128 KiB or this, on processors where two copies by way of one cost less than the kernel's single one (AMD's from Zen 3 on); of two ranks twice that.";
    ALGO: "OXCCL_ALGO", "list", "", "names of docs/algorithms.md, ^ in front inverts; none for a collective: all",
        "Algorithms that selection may use, as `ring,tree` or `^ring`. NCCL_ALGO is read when this is unset.";
    MAX_CHANNELS: "OXCCL_MAX_CHANNELS", "integer", "1", "1..=4",
        "Greatest number of channels of a message program.";
    LIGHT_FENCES: "OXCCL_LIGHT_FENCES", "0/1", "1", "0, 1",
        "Ranks that are about to sleep fence the others by the system call membarrier, where the kernel has it, so that no call pays for a fence. 0: every call fences.";
    LARGE_PAGES: "OXCCL_LARGE_PAGES", "0/1", "1", "0, 1",
        "Memory that this library did not allocate, from 2 MiB on, is put on large pages (madvise, MADV_COLLAPSE) after it was used a few times: the kernel then copies it up to twice as fast between processes. Never where /sys/kernel/mm/transparent_hugepage/enabled says never. 0: its pages stay as they are.";
    INIT_TIMEOUT: "OXCCL_INIT_TIMEOUT", "seconds", "120", "1..=86400",
        "How long an init waits for the other ranks, and a call for the answer of a peer to which it opens a connection (OXCCL_OP_TIMEOUT, if that is less).";
    COMM_SECRET: "OXCCL_COMM_SECRET", "text", "", "any text, the same on all ranks",
        "With NCCL_COMM_ID: who does not have the same text cannot join. Without it that address is the only secret, and whoever can reach it may join: such a job must trust its network. Ids of ncclGetUniqueId carry a random secret anyway.";
    OP_TIMEOUT: "OXCCL_OP_TIMEOUT", "seconds", "0", "0..=604800",
        "An operation that takes longer ends in an error that names the ranks it waits for. 0: no limit, but that of OXCCL_INIT_TIMEOUT for the opening of connections.";
    DEATH_GRACE: "OXCCL_DEATH_GRACE_MS", "milliseconds", "100", "0..=60000",
        "After a peer died or left, an operation that needs it ends with the remote error when nothing has moved for this long. A connection that broke for no reason that is heard of is told after ten times as long; a wait without a limit is logged after a hundred times as long, a second at least.";
    LSA_TEAM_SIZE: "NCCL_LSA_TEAM_SIZE", "integer", "0", "0..=4096",
        "Ranks that reach each other's windows by loads and stores are taken in teams whose size divides this; 0: as many as share memory.";
    WIN_ENABLE: "NCCL_WIN_ENABLE", "0/1", "1", "0, 1",
        "0: ncclCommWindowRegister succeeds and makes no window.";
    WIN_STRIDE: "NCCL_WIN_STRIDE", "bytes", "-1", "0..=1099511627776",
        "Least distance of the ranks' parts of a window in the addresses of a process; rounded up to 4 GiB. -1, 0, 1: as the window needs.";
    NUM_RMA_CTX: "NCCL_NUM_RMA_CTX", "integer", "", "1..=8",
        "Contexts of one-sided calls; overrides the program's numRmaCtx.";
    SPIN_US: "OXCCL_SPIN_US", "microseconds", "1500", "0..=1000000",
        "How long a waiting rank polls before it parks; 0: it never yields its core, but parks. Ranks that outnumber the cores yield at once, and park instead while others work on them.";
    TUNE_FILE: "OXCCL_TUNE_FILE", "text", "~/.config/oxccl/tune.txt", "a path, off",
        "File with the constants of the cost model, as `oxccl tune` writes it; off: none. XDG_CONFIG_HOME moves the default.";
    HELPER_DELAY: "OXCCL_HELPER_DELAY_US", "microseconds", "500", "50..=1000000",
        "Work on a stream that nobody waits for is taken over by the helper thread after at most twice this time, eight times this time where ranks share cores, and up to 8 ms later where a program waited for its calls before; all this six times as late while others work on the cores, and not while another thread works on the stream.";
    LAUNCH_ORDER: "NCCL_LAUNCH_ORDER_IMPLICIT", "0/1", "0", "0, 1",
        "1: what one device is given runs in the order in which the host gives it, also on several communicators and streams; the ranks must then launch in the same order. The calls of a group count as one launch. In librccl RCCL_ENABLE_CONTEXT_TRACKING is an older name.";
    LAUNCH_RACE: "NCCL_LAUNCH_RACE_FATAL", "0/1", "1", "0, 1",
        "1: with NCCL_LAUNCH_ORDER_IMPLICIT it is an error when two threads launch on one device at the same time.";
}

/// The values one communicator runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// `OXCCL_SHM`.
    pub shm: bool,
    /// `NCCL_HOSTID`.
    pub host_id: Option<String>,
    /// `OXCCL_P2P`.
    pub p2p: String,
    /// `OXCCL_EAGER_LIMIT`, bytes.
    pub eager_limit: usize,
    /// It is the default: the cost model may lower it.
    pub eager_auto: bool,
    /// `OXCCL_SCRATCH`, bytes of both halves.
    pub scratch: usize,
    /// `OXCCL_SLOT_BYTES`.
    pub slot_bytes: usize,
    /// `OXCCL_ALGO` or `NCCL_ALGO`; empty: all.
    pub algo: String,
    /// `OXCCL_MAX_CHANNELS`.
    pub max_channels: u32,
    /// It is the default: the program may raise it.
    pub channels_auto: bool,
    /// Of the cost model; the defaults until [`tuning::load`] read the file.
    pub constants: Constants,
    /// `OXCCL_LIGHT_FENCES`.
    pub light_fences: bool,
    /// `OXCCL_LARGE_PAGES`.
    pub large_pages: bool,
    /// `OXCCL_INIT_TIMEOUT`.
    pub init_timeout: Duration,
    /// `OXCCL_OP_TIMEOUT`; `None`: no limit.
    pub op_timeout: Option<Duration>,
    /// `OXCCL_DEATH_GRACE_MS`.
    pub death_grace: Duration,
    /// `NCCL_LAUNCH_ORDER_IMPLICIT`.
    pub launch_order: bool,
    /// `NCCL_LAUNCH_RACE_FATAL`.
    pub launch_race_fatal: bool,
    /// `NCCL_LSA_TEAM_SIZE`; 0: no limit.
    pub lsa_team: usize,
    /// `NCCL_WIN_ENABLE`.
    pub windows: bool,
    /// `NCCL_WIN_STRIDE`, bytes.
    pub win_stride: u64,
}

/// The value of `name` in the environment, else in the configuration files; `None` when unset or empty. What is no UTF-8 is replaced by the
/// character for that.
pub fn text(name: &str) -> Option<String> {
    text_or_empty(name).filter(|value| !value.is_empty())
}

/// As [`text`], of variables that may be set to nothing.
pub fn text_or_empty(name: &str) -> Option<String> {
    bytes_or_empty(name).map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// As [`text`], as it is.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    bytes_or_empty(name).filter(|value| !value.is_empty())
}

fn bytes_or_empty(name: &str) -> Option<Vec<u8>> {
    let conf_file = || environment("NCCL_CONF_FILE").filter(|path| !path.is_empty()).map(OsString::from_vec);
    environment(name).or_else(|| file::value(name, conf_file))
}

fn environment(name: &str) -> Option<Vec<u8>> {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    std::env::var_os(name).map(OsString::into_vec)
}

/// A size like `8`, `64K`, `1M`, `2G` in bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1 << 10,
        "M" | "MB" => 1 << 20,
        "G" | "GB" => 1u64 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn number(v: &Variable, default: u64, min: u64, max: u64) -> u64 {
    given(v, min, max).unwrap_or(default)
}

/// What `v` is set to; `None` when unset, or refused with a warning.
fn given(v: &Variable, min: u64, max: u64) -> Option<u64> {
    let given = text(v.name)?;
    // Those that NCCL has are read as NCCL reads them, too.
    let foreign = || v.name.starts_with("NCCL_").then(|| parse_integer(&given)).flatten();
    match parse_size(&given).or_else(|| u64::try_from(foreign()?).ok()) {
        Some(n) if (min..=max).contains(&n) => Some(n),
        _ => {
            refuse(v, &given, "out of range");
            None
        }
    }
}

fn refuse(v: &Variable, given: &str, why: &str) {
    let (name, range, default) = (v.name, v.range, v.default);
    crate::log::warn(&format!("{name}={given} is {why} (valid: {range}); the default {default} is used"));
}

/// The way of messages between processes of a machine.
fn way() -> String {
    let Some(given) = text(P2P.name) else { return P2P.default.into() };
    match P2P.range.split(", ").find(|way| given.trim().eq_ignore_ascii_case(way)) {
        Some(way) => way.into(),
        None => {
            refuse(&P2P, &given, "unknown");
            P2P.default.into()
        }
    }
}

/// RCCL's older name of the launch order.
fn old_launch_order() -> Option<i64> {
    integer("RCCL_ENABLE_CONTEXT_TRACKING").filter(|_| log::flavour() == log::Flavour::Rccl)
}

/// The integer that `name` is set to, as `strtoll` with base 0 reads it: decimal, `0x` hexadecimal, `0` octal; what
/// follows the digits is ignored. `None` when unset, empty, or beyond 64 bits; 0 without a digit.
pub fn integer(name: &str) -> Option<i64> {
    parse_integer(&text(name)?)
}

/// As [`integer`], of a text.
pub fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hex.filter(|h| h.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(hex) => (16, hex),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return Some(0);
    }
    let value = i128::from_str_radix(&digits[..end], radix).ok()?;
    i64::try_from(if negative { -value } else { value }).ok()
}

/// Number of host devices of this process.
pub fn host_devices() -> usize {
    let cores = oxccl_sys::affinity::available_cores() as u64;
    number(&HOST_DEVICES, cores.max(8), 1, 4096) as usize
}

/// Cores that the ranks of this machine are taken to have; `None`: what the system says.
pub fn cores() -> Option<usize> {
    match number(&CORES, 0, 1, 1024) {
        0 => None,
        cores => Some(cores as usize),
    }
}

/// Period after which the helper thread takes over work that nobody waits for.
pub fn helper_delay() -> Duration {
    Duration::from_micros(number(&HELPER_DELAY, 500, 50, 1_000_000))
}

/// How long a thread that waits keeps polling before it parks.
pub fn spin() -> Duration {
    Duration::from_micros(number(&SPIN_US, 1500, 0, 1_000_000))
}

impl Config {
    /// Reads the environment; values out of range are warned of and replaced by the default.
    pub fn from_env() -> Config {
        let op_timeout = number(&OP_TIMEOUT, 0, 0, 604_800);
        let (eager, channels) = (given(&EAGER_LIMIT, 0, 65536), given(&MAX_CHANNELS, 1, 4));
        Config {
            shm: number(&SHM, 1, 0, 1) == 1,
            host_id: text(HOST_ID.name),
            p2p: way(),
            eager_limit: eager.unwrap_or(8192) as usize,
            eager_auto: eager.is_none(),
            scratch: number(&SCRATCH, 512 << 10, 64 << 10, 64 << 20) as usize & !8191,
            slot_bytes: number(&SLOT_BYTES, 32 << 10, 4096, 4 << 20) as usize & !63,
            algo: text(ALGO.name).or_else(|| text("NCCL_ALGO")).unwrap_or_default(),
            max_channels: channels.unwrap_or(1) as u32,
            channels_auto: channels.is_none(),
            light_fences: number(&LIGHT_FENCES, 1, 0, 1) == 1,
            large_pages: number(&LARGE_PAGES, 1, 0, 1) == 1,
            constants: Constants::default(),
            init_timeout: Duration::from_secs(number(&INIT_TIMEOUT, 120, 1, 86_400)),
            op_timeout: (op_timeout > 0).then(|| Duration::from_secs(op_timeout)),
            death_grace: Duration::from_millis(number(&DEATH_GRACE, 100, 0, 60_000)),
            launch_order: integer(LAUNCH_ORDER.name).or_else(old_launch_order).unwrap_or(0) != 0,
            launch_race_fatal: integer(LAUNCH_RACE.name).unwrap_or(1) != 0,
            lsa_team: number(&LSA_TEAM_SIZE, 0, 0, 4096) as usize,
            windows: number(&WIN_ENABLE, 1, 0, 1) == 1,
            win_stride: match text(WIN_STRIDE.name).as_deref() {
                Some("-1") => 0,
                _ => number(&WIN_STRIDE, 0, 0, 1 << 40),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_c_reads_them() {
        let cases = [
            ("7", 7),
            ("-2", -2),
            ("0x10", 16),
            ("010", 8),
            ("0", 0),
            ("3 apples", 3),
            ("x", 0),
            ("0x", 0),
            (" +4", 4),
        ];
        for (text, value) in cases {
            assert_eq!(parse_integer(text), Some(value), "{text:?}");
        }
        assert_eq!(parse_integer("99999999999999999999"), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8"), Some(8));
        assert_eq!(parse_size("64K"), Some(65536));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("2G"), Some(2 << 30));
        assert_eq!(parse_size("x"), None);
        assert_eq!(parse_size("1T"), None);
    }
}
