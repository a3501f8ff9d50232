//! Which cores a thread may use, and whether threads with such sets outnumber their cores.

use std::collections::BTreeMap;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::quota;

/// Cores that this process may run on: its affinity mask and the quota of its control group (v1 and v2), rounded
/// down, at least one. Asks the system at every call.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The core on which the calling thread is; it may be on another one at once.
#[cfg(not(loom))]
pub fn current_core() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

#[cfg(loom)]
loom::thread_local! {
    /// The core that a model has put its thread on.
    static CORE: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

/// Models run on one thread of the system.
#[cfg(loom)]
pub fn current_core() -> u32 {
    CORE.with(|core| core.get())
}

/// From now on the calling thread of a model is on `core`.
#[cfg(all(test, loom))]
pub(crate) fn model_core(core: u32) {
    CORE.with(|now| now.set(core));
}

/// Bytes of an encoded [`Cores`].
pub const CORES_BYTES: usize = MASK_AT + CpuSet::MAX_CPU / 8;
const QUOTA_AT: usize = 4;
const GROUP_AT: usize = QUOTA_AT + 4;
const MASK_AT: usize = GROUP_AT + 8;

/// The cores of one thread, as it tells other processes of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// As [`available_cores`]: fewer than are in the mask where a quota says so.
    available: u32,
    /// Cores that its control group may use together; 0: no limit.
    quota: u32,
    /// Which group that is; 0 where there is a limit and it is not known whose.
    group: u64,
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
        let mut own = Cores { available: available_cores() as u32, quota: 0, group: 0, mask };
        match quota::own() {
            Some(limit) => (own.quota, own.group) = (limit.cores, limit.group),
            None if (own.available as usize) < own.count() => own.quota = own.available,
            None => {}
        }
        own
    }

    /// The first `count` cores of a machine, no more than a mask holds.
    pub fn first(count: usize) -> Cores {
        let count = count.min(CpuSet::MAX_CPU);
        let mut mask = [0; CpuSet::MAX_CPU / 8];
        (0..count).for_each(|c| mask[c / 8] |= 1 << (c % 8));
        Cores { available: count as u32, quota: 0, group: 0, mask }
    }

    /// [`CORES_BYTES`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Cores { available, quota, group, mask } = self;
        [&available.to_le_bytes()[..], &quota.to_le_bytes(), &group.to_le_bytes(), mask].concat()
    }

    /// The reverse of [`encode`](Self::encode); `None` for any other number of bytes.
    pub fn decode(bytes: &[u8]) -> Option<Cores> {
        let (available, bytes) = bytes.split_first_chunk()?;
        let (quota, bytes) = bytes.split_first_chunk()?;
        let (group, mask) = bytes.split_first_chunk()?;
        let (available, quota) = (u32::from_le_bytes(*available), u32::from_le_bytes(*quota));
        Some(Cores { available, quota, group: u64::from_le_bytes(*group), mask: mask.try_into().ok()? })
    }

    /// The same without a quota of which it is not known whose it is: another container may not share it. `None` where the
    /// system does not tell the mask.
    pub fn without_quota(&self) -> Option<Cores> {
        let available = self.count() as u32;
        let quota = if self.group == 0 { 0 } else { self.quota };
        (available > 0).then_some(Cores { available, quota, group: self.group, mask: self.mask })
    }

    fn count(&self) -> usize {
        self.mask.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    fn is_within(&self, other: &Cores) -> bool {
        self.mask.iter().zip(&other.mask).all(|(own, others)| own & !others == 0)
    }
}

/// How many cores threads with these sets, all of one machine, have together. A quota is that of the threads of its group
/// together; one of an unknown group is taken to be that of all.
fn together(sets: &[Cores]) -> usize {
    let mut all = [0_u8; CpuSet::MAX_CPU / 8];
    for set in sets {
        all.iter_mut().zip(&set.mask).for_each(|(all, one)| *all |= one);
    }
    let count = all.iter().map(|byte| byte.count_ones() as usize).sum();
    let quota = sets.iter().filter(|set| set.quota > 0 && set.group == 0).map(|set| set.quota as usize).min();
    let unknown = sets.iter().filter(|set| set.count() == 0).map(|set| set.available as usize).max();
    quota.or(unknown).unwrap_or(count)
}

/// How many of `sets` are of the group of `set`, which has a quota, and how many cores that lets them have.
fn limit(sets: &[Cores], set: &Cores) -> Option<(usize, usize)> {
    let members = sets.iter().filter(|s| s.quota > 0 && s.group == set.group).count();
    (set.quota > 0 && set.group != 0).then_some((members, set.quota as usize))
}

/// How many of the threads with these sets, one each and all of one machine, can run at once at most: those that are crammed
/// onto fewer cores beside others are not looked for.
pub fn at_once(sets: &[Cores]) -> usize {
    let mut groups = BTreeMap::new();
    let mut free = 0;
    for set in sets {
        match limit(sets, set) {
            Some((members, cores)) => drop(groups.insert(set.group, members.min(cores))),
            None => free += 1,
        }
    }
    together(sets).min(free + groups.values().sum::<usize>())
}

/// Whether threads with these sets, one each and all of one machine, cannot all run at once: some of them, or all of them,
/// have fewer cores than they are.
pub fn outnumber(sets: &[Cores]) -> bool {
    let crammed = |set: &Cores| set.count() > 0 && sets.iter().filter(|s| s.is_within(set)).count() > set.count();
    let limited = |set: &Cores| limit(sets, set).is_some_and(|(members, cores)| members > cores);
    sets.len() > together(sets) || sets.iter().any(|set| crammed(set) || limited(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(available: u32, of: &[usize]) -> Cores {
        let mut cores = Cores { available, quota: 0, group: 0, mask: [0; CpuSet::MAX_CPU / 8] };
        of.iter().for_each(|c| cores.mask[c / 8] |= 1 << (c % 8));
        if (available as usize) < of.len() {
            cores.quota = available;
        }
        cores
    }

    #[test]
    fn cores_that_a_user_tells_of_are_enough_for_as_many() {
        let told = |count| vec![Cores::first(4); count];
        assert!(!outnumber(&told(4)) && outnumber(&told(5)));
        assert_eq!((at_once(&told(4)), at_once(&told(9))), (4, 4));
        assert_eq!(Cores::decode(&Cores::first(4).encode()), Some(Cores::first(4)));
        assert_eq!(Cores::first(usize::MAX).count(), CpuSet::MAX_CPU);
        // Beside a rank that was told nothing.
        assert!(!outnumber(&[Cores::first(4), cores(2, &[0, 1])]));
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

    #[test]
    fn a_quota_is_that_of_its_group() {
        // Two containers of two cores each, on four cores that all may use, or with a core for each thread.
        let of = |group: u64, core: Option<usize>| {
            let all = [0, 1, 2, 3];
            let of = core.as_ref().map_or(&all[..], std::slice::from_ref);
            Cores { quota: 2, group, ..cores(of.len().min(2) as u32, of) }
        };
        let free = |groups: [u64; 4]| outnumber(&groups.map(|group| of(group, None)));
        assert!(!free([1, 1, 2, 2]) && free([1, 1, 1, 2]) && free([1; 4]) && !free([1, 2, 3, 4]));
        // So many of them run at once.
        let run = |groups: [u64; 4]| at_once(&groups.map(|group| of(group, None)));
        assert_eq!([run([1, 1, 2, 2]), run([1, 1, 1, 2]), run([1; 4]), run([0; 4])], [4, 3, 2, 2]);
        let four = [0, 1, 2, 3].map(|_| cores(2, &[0, 1]));
        assert_eq!((at_once(&four), at_once(&four[..1]), at_once(&[])), (2, 1, 0));
        // Of groups that are not known all together have the least.
        assert!(free([0; 4]) && free([0, 0, 1, 2]));
        let bound = |groups: [u64; 4]| outnumber(&[0, 1, 2, 3].map(|core| of(groups[core], Some(core))));
        assert!(!bound([1, 1, 2, 2]) && bound([1, 1, 1, 2]));
        // It stays with them where containers are looked at together, and that of an unknown group does not.
        let together = |groups: [u64; 4]| outnumber(&groups.map(|group| of(group, None).without_quota().unwrap()));
        assert!(!together([1, 1, 2, 2]) && together([1, 1, 1, 2]) && !together([0; 4]));
        let one = of(7, Some(3));
        assert_eq!(Cores::decode(&one.encode()), Some(one));
    }
}
