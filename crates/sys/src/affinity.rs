//! How many cores this process may use.

/// Cores that this process may run on: its affinity mask and the quota of its control group (v1 and v2), rounded
/// down, at least one. Asks the system at every call.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(test)]
mod tests {
    #[test]
    fn at_least_one_core() {
        assert!(super::available_cores() >= 1);
    }
}
