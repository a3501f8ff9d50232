//! Which cores a thread may use, and whether threads with such sets outnumber their cores.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Cores that this process may run on: its affinity mask and the quota of its control group (v1 and v2), rounded
/// down, at least one. Asks the system at every call.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Bytes of an encoded [`Cores`].
pub const CORES_BYTES: usize = 4 + CpuSet::MAX_CPU / 8;

/// The cores of one thread, as it tells other processes of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// As [`available_cores`]: fewer than are in the mask where a quota says so.
    available: u32,
    /// Bit per core; empty where the system does not tell.
    mask: [u8; CpuSet::MAX_CPU / 8],
}

impl Cores {
    /// Those of the calling thread. Asks the system.
    pub fn of_thread() -> Cores {
        let mut mask = [0; CpuSet::MAX_CPU / 8];
        if let Ok(set) = sched_getaffinity(None) {
            (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).for_each(|c| mask[c / 8] |= 1 << (c % 8));
        }
        Cores { available: available_cores() as u32, mask }
    }

    /// [`CORES_BYTES`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&self.available.to_le_bytes()[..], &self.mask].concat()
    }

    /// The reverse of [`encode`](Self::encode); `None` for any other number of bytes.
    pub fn decode(bytes: &[u8]) -> Option<Cores> {
        let (available, mask) = bytes.split_first_chunk()?;
        Some(Cores { available: u32::from_le_bytes(*available), mask: mask.try_into().ok()? })
    }

    /// The same without the quota, which another container does not share; `None` where the system does not tell the mask.
    pub fn without_quota(&self) -> Option<Cores> {
        let available = self.count() as u32;
        (available > 0).then_some(Cores { available, mask: self.mask })
    }

    fn count(&self) -> usize {
        self.mask.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    fn is_within(&self, other: &Cores) -> bool {
        self.mask.iter().zip(&other.mask).all(|(own, others)| own & !others == 0)
    }
}

/// Whether threads with these sets, one each and all of one machine, cannot all run at once: some of them, or all of them,
/// have fewer cores than they are. A quota is taken to be that of all together; it is seen where it is less than a thread's
/// mask only, so not by threads that are bound to one core each.
pub fn outnumber(sets: &[Cores]) -> bool {
    let mut all = Cores { available: 0, mask: [0; CpuSet::MAX_CPU / 8] };
    for set in sets {
        all.mask.iter_mut().zip(&set.mask).for_each(|(all, one)| *all |= one);
    }
    let quota =
        sets.iter().filter(|set| (set.available as usize) < set.count()).map(|set| set.available as usize).min();
    let unknown = sets.iter().filter(|set| set.count() == 0).map(|set| set.available as usize).max();
    let cores = quota.or(unknown).unwrap_or(all.count());
    let crammed = |set: &Cores| set.count() > 0 && sets.iter().filter(|s| s.is_within(set)).count() > set.count();
    sets.len() > cores || sets.iter().any(crammed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(available: u32, of: &[usize]) -> Cores {
        let mut cores = Cores { available, mask: [0; CpuSet::MAX_CPU / 8] };
        of.iter().for_each(|c| cores.mask[c / 8] |= 1 << (c % 8));
        cores
    }

    #[test]
    fn at_least_one_core() {
        assert!(available_cores() >= 1);
        let own = Cores::of_thread();
        assert!(own.count() >= own.available as usize);
        assert_eq!(Cores::decode(&own.encode()), Some(own.clone()));
        assert_eq!((own.encode().len(), Cores::decode(&own.encode()[1..])), (CORES_BYTES, None));
    }

    #[test]
    fn threads_bound_to_cores_of_their_own_do_not_outnumber_them() {
        let bound = |of: &[usize]| of.iter().map(|c| cores(1, &[*c])).collect::<Vec<_>>();
        assert!(!outnumber(&bound(&[0, 1])) && !outnumber(&bound(&[7, 700, 3])));
        assert!(outnumber(&bound(&[1, 1])) && outnumber(&bound(&[0, 1, 2, 1])));
        let free = |n: usize| vec![cores(2, &[0, 1]); n];
        assert!(!outnumber(&free(2)) && outnumber(&free(3)));
        // Two are crammed onto one core while the third has three.
        let crammed = [cores(1, &[0]), cores(1, &[0]), cores(3, &[1, 2, 3])];
        assert!(outnumber(&crammed) && !outnumber(&crammed[1..]));
    }

    #[test]
    fn a_quota_counts_for_all_and_an_unknown_mask_by_its_number() {
        let limited = |n: usize| vec![cores(2, &[0, 1, 2, 3]); n];
        assert!(!outnumber(&limited(2)) && outnumber(&limited(3)));
        let free: Vec<Cores> = limited(4).iter().filter_map(Cores::without_quota).collect();
        assert!(!outnumber(&free) && outnumber(&[&free[..], &free[..1]].concat()));
        assert_eq!(cores(2, &[]).without_quota(), None);
        let unknown = |n: usize| vec![cores(2, &[]); n];
        assert!(!outnumber(&unknown(2)) && outnumber(&unknown(3)));
    }
}
