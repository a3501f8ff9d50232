//! What machine, kernel and namespace this process lives in. Hints only: names match between strangers.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// The host's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's boot id (a random UUID per boot, shared by all containers of the machine); empty where /proc hides it.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// The same as a number, which other processes are told; `None` where /proc hides it.
pub fn boot_number() -> Option<u128> {
    u128::from_str_radix(&boot_id().replace('-', ""), 16).ok()
}

/// How many threads of the machine run or could run now, the caller among them; `None` where /proc does not tell.
pub fn runnable_threads() -> Option<usize> {
    let mut text = [0; 64];
    let read = File::open("/proc/loadavg").and_then(|mut f| f.read(&mut text)).ok()?;
    // Three averages, then the runnable and all threads: "0.50 0.40 0.30 2/119 4711".
    let threads = std::str::from_utf8(&text[..read]).ok()?.split(' ').nth(3)?;
    threads.split('/').next()?.parse().ok()
}

/// The identity of a namespace of this process (`net`, `pid`, `ipc` ...): its inode, 0 where /proc hides it.
pub fn namespace_id(kind: &str) -> u64 {
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |m| m.ino())
}

/// The effective user of this process, as its own user namespace counts.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        assert!(!host_name().is_empty());
        assert_eq!(boot_id(), boot_id());
        assert_eq!(boot_number().is_none(), boot_id().is_empty());
        assert_eq!(namespace_id("net"), namespace_id("net"));
        assert_eq!(namespace_id("no such kind"), 0);
        assert!(page_size().is_power_of_two());
        assert_ne!(runnable_threads(), Some(0), "this one runs");
    }
}
