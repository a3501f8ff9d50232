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
