//! Which cores this process, and others, may use.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// How many cores this process may run on: its affinity mask and the quota of its control group (v1 and v2), rounded
/// down, at least one. Asks the system at every call.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Cores by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(CpuSet);

impl Cores {
    /// Those that the calling thread is bound to; `None` where the system does not say.
    pub fn of_this_thread() -> Option<Cores> {
        sched_getaffinity(None).ok().map(Cores)
    }

    /// Those that the first thread of process `pid` is bound to.
    pub fn of_process(pid: u32) -> Option<Cores> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        sched_getaffinity(Some(pid)).ok().map(Cores)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count() as usize
    }

    fn meets(&self, other: &Cores) -> bool {
        (0..CpuSet::MAX_CPU).any(|i| self.0.is_set(i) && other.0.is_set(i))
    }

    fn add(&mut self, other: &Cores) {
        (0..CpuSet::MAX_CPU).filter(|i| other.0.is_set(*i)).for_each(|i| self.0.set(i));
    }
}

/// Whether a thread bound to `mine` and threads bound to `others` cannot all run at a time, as far as this one has to do
/// with it: those that may be on its cores, or on theirs, outnumber these.
pub fn are_outnumbered(mine: Cores, others: &[Cores]) -> bool {
    let (mut cores, mut threads) = (mine, 1);
    let mut left: Vec<&Cores> = others.iter().collect();
    loop {
        let before = left.len();
        left.retain(|other| {
            let meets = cores.meets(other);
            if meets {
                cores.add(other);
                threads += 1;
            }
            !meets
        });
        if left.len() == before {
            return threads > cores.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(numbers: &[usize]) -> Cores {
        let mut set = CpuSet::new();
        numbers.iter().for_each(|i| set.set(*i));
        Cores(set)
    }

    #[test]
    fn at_least_one_core() {
        assert!(available_cores() >= 1);
        let mine = Cores::of_this_thread().unwrap();
        assert!(mine.count() >= 1 && mine.meets(&mine));
        assert!(Cores::of_process(std::process::id()).is_some());
        assert_eq!(Cores::of_process(u32::MAX), None);
    }

    #[test]
    fn threads_are_counted_on_the_cores_that_they_share() {
        let (a, b, both) = (cores(&[0]), cores(&[1]), cores(&[0, 1]));
        assert!(!are_outnumbered(a, &[]));
        assert!(!are_outnumbered(a, &[b]), "each has its own");
        assert!(are_outnumbered(a, &[a]) && are_outnumbered(a, &[b, a, b]));
        assert!(!are_outnumbered(both, &[both]) && are_outnumbered(both, &[both, both]));
        assert!(!are_outnumbered(a, &[both]) && are_outnumbered(a, &[b, both]), "who is not bound counts on both");
        assert!(!are_outnumbered(a, &[b, b, b]), "others' cores are their matter");
        assert!(are_outnumbered(a, &[b, cores(&[1, 2]), cores(&[0, 1]), cores(&[2])]), "by way of others");
    }
}
