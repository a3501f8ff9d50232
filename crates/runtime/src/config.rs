//! Every variable the runtime reads, as a documented object, and the values one communicator runs with.
//!
//! The environment is read here and nowhere else, once per communicator ([`Config::from_env`]).

use std::time::Duration;

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
    SHM: "OXCCL_SHM", "0/1", "1", "0, 1",
        "0: ranks never share memory; every byte goes through network connections, also on one machine.";
    P2P: "OXCCL_P2P", "text", "auto", "auto, shm, direct, cma",
        "How Send and Recv move large messages between processes of a machine: shared slots, mapped device memory, process_vm_readv.";
    EAGER_LIMIT: "OXCCL_EAGER_LIMIT", "bytes", "8192", "0..=65536",
        "Collectives of which every rank publishes at most this many bytes carry them in the line that announces the call.";
    SCRATCH: "OXCCL_SCRATCH", "bytes", "524288", "65536..=67108864",
        "Shared scratch per rank and communicator for memory that peers cannot map. Only touched pages cost memory.";
    SLOT_BYTES: "OXCCL_SLOT_BYTES", "bytes", "32768", "4096..=4194304",
        "Bytes of one slot of a connection.";
    ALGO: "OXCCL_ALGO", "list", "", "names of docs/algorithms.md, ^ in front inverts",
        "Algorithms that selection may use, as `ring,tree` or `^ring`. NCCL_ALGO is read when this is unset.";
    MAX_CHANNELS: "OXCCL_MAX_CHANNELS", "integer", "1", "1..=4",
        "Greatest number of channels of a message program.";
    LIGHT_FENCES: "OXCCL_LIGHT_FENCES", "0/1", "1", "0, 1",
        "Ranks that are about to sleep fence the others by the system call membarrier, where the kernel has it, so that no call pays for a fence. 0: every call fences.";
    INIT_TIMEOUT: "OXCCL_INIT_TIMEOUT", "seconds", "120", "1..=86400",
        "How long an init waits for the other ranks.";
    OP_TIMEOUT: "OXCCL_OP_TIMEOUT", "seconds", "0", "0..=604800",
        "An operation that takes longer ends in an error that names the ranks it waits for. 0: no limit.";
    DEATH_GRACE: "OXCCL_DEATH_GRACE_MS", "milliseconds", "100", "0..=60000",
        "After a peer died or left, an operation that needs it ends with the remote error when nothing has moved for this long.";
    SPIN_US: "OXCCL_SPIN_US", "microseconds", "1500", "0..=1000000",
        "How long a waiting rank keeps its core before it parks. Ranks that outnumber the cores yield at once.";
    HELPER_DELAY: "OXCCL_HELPER_DELAY_US", "microseconds", "500", "50..=1000000",
        "Work on a stream that nobody waits for is taken over by the helper thread after at most twice this time.";
}

/// The values one communicator runs with.
#[derive(Clone, Debug)]
pub struct Config {
    /// `OXCCL_SHM`.
    pub shm: bool,
    /// `OXCCL_P2P`.
    pub p2p: String,
    /// `OXCCL_EAGER_LIMIT`, bytes.
    pub eager_limit: usize,
    /// `OXCCL_SCRATCH`, bytes of both halves.
    pub scratch: usize,
    /// `OXCCL_SLOT_BYTES`.
    pub slot_bytes: usize,
    /// `OXCCL_ALGO` or `NCCL_ALGO`; empty: all.
    pub algo: String,
    /// `OXCCL_MAX_CHANNELS`.
    pub max_channels: u32,
    /// `OXCCL_LIGHT_FENCES`.
    pub light_fences: bool,
    /// `OXCCL_INIT_TIMEOUT`.
    pub init_timeout: Duration,
    /// `OXCCL_OP_TIMEOUT`; `None`: no limit.
    pub op_timeout: Option<Duration>,
    /// `OXCCL_DEATH_GRACE_MS`.
    pub death_grace: Duration,
}

/// The value of `name`, `None` when unset or empty.
pub fn text(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    std::env::var(name).ok().filter(|v| !v.is_empty())
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
    let Some(given) = text(v.name) else { return default };
    match parse_size(&given) {
        Some(n) if (min..=max).contains(&n) => n,
        _ => {
            crate::log::warn(&format!(
                "{}={given} is out of range (valid: {}); the default {} is used",
                v.name, v.range, v.default
            ));
            default
        }
    }
}

/// Number of host devices of this process.
pub fn host_devices() -> usize {
    let cores = oxccl_sys::affinity::available_cores() as u64;
    number(&HOST_DEVICES, cores.max(8), 1, 4096) as usize
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
        Config {
            shm: number(&SHM, 1, 0, 1) == 1,
            p2p: text(P2P.name).unwrap_or_else(|| "auto".into()),
            eager_limit: number(&EAGER_LIMIT, 8192, 0, 65536) as usize,
            scratch: number(&SCRATCH, 512 << 10, 64 << 10, 64 << 20) as usize & !8191,
            slot_bytes: number(&SLOT_BYTES, 32 << 10, 4096, 4 << 20) as usize & !63,
            algo: text(ALGO.name).or_else(|| text("NCCL_ALGO")).unwrap_or_default(),
            max_channels: number(&MAX_CHANNELS, 1, 1, 4) as u32,
            light_fences: number(&LIGHT_FENCES, 1, 0, 1) == 1,
            init_timeout: Duration::from_secs(number(&INIT_TIMEOUT, 120, 1, 86_400)),
            op_timeout: (op_timeout > 0).then(|| Duration::from_secs(op_timeout)),
            death_grace: Duration::from_millis(number(&DEATH_GRACE, 100, 0, 60_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
