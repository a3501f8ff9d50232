//! What machine, kernel and namespace this process lives in. Hints only: names match between strangers.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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

/// What a step of [`stolen_steps`] is, ns.
pub fn stolen_step_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Whole steps of time that the host of this virtual machine has kept its processors from running, all of them together, since the
/// machine was started; 0 where there is no such host, `None` where /proc does not tell. What a processor has lost since its last
/// tick may be missing.
pub fn stolen_steps() -> Option<u64> {
    let mut text = [0; 256];
    let read = File::open("/proc/stat").and_then(|mut f| f.read(&mut text)).ok()?;
    // "cpu", then user, nice, system, idle, iowait, irq, softirq, steal.
    stolen_in(std::str::from_utf8(&text[..read]).ok()?)
}

fn stolen_in(stat: &str) -> Option<u64> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    words.nth(7)?.parse().ok()
}

/// Processor time, ns, that all threads of process `pid` have used so far; `None` where there is no such process. What a thread that
/// runs has used since the last tick of its processor may be missing.
pub fn processor_time_ns(pid: u32) -> Option<u64> {
    /// The clock of a whole process, in the lower bits of the number of a clock; its complement is in the others.
    const OF_PROCESS: libc::clockid_t = 2;
    let id = libc::pid_t::try_from(pid).ok().filter(|id| *id > 0)?;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; a number that names no clock gets an error.
    let error = unsafe { libc::clock_gettime((!id << 3) | OF_PROCESS, &mut time) };
    (error == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The identity of a namespace of this process (`net`, `pid`, `ipc` ...): its inode, 0 where /proc hides it.
pub fn namespace_id(kind: &str) -> u64 {
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |m| m.ino())
}

/// The effective user of this process, as its own user namespace counts.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The home of this process's user, as the password database says, whatever `HOME` is; `None` where it knows none.
pub fn home() -> Option<PathBuf> {
    /// An entry that is longer is no person's.
    const LONGEST: usize = 1 << 20;
    let mut text: Vec<libc::c_char> = vec![0; 1 << 10];
    loop {
        // SAFETY: all zeroes is an entry: null pointers and numbers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let uid = rustix::process::getuid().as_raw();
        // SAFETY: the entry, the buffer of that length and the pointer are ours, and live until the call's end.
        let error = unsafe { libc::getpwuid_r(uid, &mut entry, text.as_mut_ptr(), text.len(), &mut found) };
        if error == libc::ERANGE && text.len() < LONGEST {
            text.resize(4 * text.len(), 0);
            continue;
        }
        if error != 0 || found.is_null() || entry.pw_dir.is_null() {
            return None;
        }
        // SAFETY: the entry was found: its directory is a string in `text`, which lives.
        let home = unsafe { CStr::from_ptr(entry.pw_dir) }.to_bytes();
        return (!home.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(home)));
    }
}

/// `seconds` since 1970 began as local time, written as `format` says in the language of `strftime`; `None` where that is longer than any time,
/// or nothing.
pub fn local_time(seconds: i64, format: &str) -> Option<String> {
    let format = CString::new(format).ok()?;
    let mut text = [0u8; 1024];
    // SAFETY: all zeroes is such a value: numbers and a null pointer.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both are ours; a null result leaves `time` as it was, and is told apart.
    let known = unsafe { !libc::localtime_r(&seconds, &mut time).is_null() };
    // SAFETY: the buffer has that length, the format ends with a zero, the time is a whole one.
    let written = unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &time) };
    (known && written > 0).then(|| String::from_utf8_lossy(&text[..written]).into_owned())
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
        assert!(runnable_threads().is_some_and(|n| n > 0), "this one runs");
    }

    #[test]
    fn the_user_has_a_home() {
        let uid = rustix::process::getuid().as_raw().to_string();
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        // name:password:uid:gid:comment:home:shell
        let mine = users.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f.get(2) == Some(&uid.as_str()));
        if let Some(entry) = mine {
            assert_eq!(home(), Some(PathBuf::from(entry[5])).filter(|home| !home.as_os_str().is_empty()));
        }
    }

    #[test]
    fn times_are_written() {
        assert_eq!(local_time(1_800_000_000, "a%%%s").as_deref(), Some("a%1800000000"));
        assert_eq!(local_time(0, ""), None);
        assert_eq!(local_time(0, &"%F".repeat(200)), None, "longer than any time");
        assert_eq!(local_time(0, "a\0b"), None);
    }

    #[test]
    fn stolen_time_is_read() {
        let line = "cpu  5830159 1 1645969 5203485 17340 2 21521 139862 3 4\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen_in(line), Some(139_862));
        for text in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 3 4 5 6 7 x"] {
            assert_eq!(stolen_in(text), None, "{text}");
        }
        let before = stolen_steps().unwrap();
        assert!(stolen_steps().is_some_and(|steps| steps >= before));
        assert!((1_000_000..=100_000_000).contains(&stolen_step_ns()));
    }

    #[test]
    fn what_a_process_has_worked() {
        let before = processor_time_ns(std::process::id()).unwrap();
        let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let start = own();
        while (own() - start).tv_nsec < 5_000_000 {}
        let worked = processor_time_ns(std::process::id()).unwrap() - before;
        assert!(worked >= 5_000_000, "{worked}");
        let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let slept = processor_time_ns(sleeper.id()).unwrap();
        assert!(slept < 1_000_000_000, "{slept}");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(processor_time_ns(sleeper.id()), None, "it has ended");
        assert_eq!(processor_time_ns(0), None);
        assert_eq!(processor_time_ns(u32::MAX), None);
    }
}
