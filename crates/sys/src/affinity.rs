//! How many cores this process may use.

/// Cores that this process may run on: its affinity mask and the quota of its control group (v1 and v2), rounded
/// down, at least one. Asks the system at every call.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The processors on which the calling thread may run, as bits, without the zeros at the end; empty where the system does
/// not say.
pub fn allowed() -> Vec<u8> {
    // SAFETY: a set of bits, for which all zeros is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: the system writes at most the size of the set that it is given.
    if unsafe { libc::sched_getaffinity(0, bytes, &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: `cpu` is below the number of bits of the set.
    let is_set = |cpu: usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    let mut bits: Vec<u8> =
        (0..bytes).map(|byte| (0..8).map(|bit| u8::from(is_set(byte * 8 + bit)) << bit).sum()).collect();
    bits.truncate(bits.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
    bits
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_allowed_are_as_many_as_the_affinity_says() {
        let allowed: u32 = super::allowed().iter().map(|b| b.count_ones()).sum();
        // A quota of the control group may leave fewer.
        assert!(allowed as usize >= super::available_cores(), "{allowed}");
    }

    #[test]
    fn at_least_one_core() {
        assert!(super::available_cores() >= 1);
    }
}
