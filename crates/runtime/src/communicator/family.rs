//! Families: communicators of one rank that share resources (`splitShare`, `shrinkShare`).
//!
//! A child that shares uses what its parent has, where that is safe whatever the two do at the same time: the mapped
//! memory of peers (addresses and descriptors) and the watches of the peers' processes. It does with less memory of its
//! own beside that: the staging memory is a quarter, and there are connections for no more channels than are used. The
//! memory in which calls meet is never shared, since a call of one communicator may overtake one of another; so no
//! member can harm or hold up another one, and everybody may leave when it likes: what is shared ends with the last
//! user. Connections over the network are each communicator's own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use oxccl_sys::SharedMemory;
use oxccl_sys::sync::{AtomicU32, Ordering};
use oxccl_types::{Error, Result};

use super::core::Core;
use crate::bootstrap::ProcessHandle;
use crate::config::Config;
use crate::service::{Service, WatchGuard};

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mapped memory of peers, by process and number of the segment, which its owner never uses again.
type Mapped = HashMap<([u8; 16], u32), Weak<SharedMemory>>;

/// What the members share.
#[derive(Default)]
pub(crate) struct Family {
    members: AtomicU32,
    mapped: Mutex<Mapped>,
    watches: Mutex<HashMap<[u8; 16], Weak<Watch>>>,
}

impl Family {
    /// One more communicator.
    pub(super) fn join(&self) {
        self.members.fetch_add(1, Ordering::AcqRel);
    }

    /// One communicator fewer.
    pub(super) fn leave(&self) {
        self.members.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether more than one communicator is in it.
    pub(super) fn is_shared(&self) -> bool {
        self.members.load(Ordering::Acquire) > 1
    }

    /// Segment `segment` of `process` if a member has mapped it, else what `map` makes of it; and whether it was made.
    pub(crate) fn mapped(
        &self,
        process: [u8; 16],
        segment: u32,
        map: impl FnOnce() -> Result<SharedMemory>,
    ) -> Result<(Arc<SharedMemory>, bool)> {
        if let Some(known) = lock(&self.mapped).get(&(process, segment)).and_then(Weak::upgrade) {
            return Ok((known, false));
        }
        // Not under the lock: the owner may be slow to answer. Two members may both map it; that only costs addresses.
        let memory = Arc::new(map()?);
        let mut table = lock(&self.mapped);
        table.retain(|_, memory| memory.strong_count() > 0);
        table.insert((process, segment), Arc::downgrade(&memory));
        Ok((memory, true))
    }

    /// Tells `core` when `process` ends, in which `ranks` of it are. Nothing for the own process.
    pub(super) fn watch(
        &self,
        service: &Arc<Service>,
        process: &ProcessHandle,
        core: &Arc<Core>,
        ranks: Vec<usize>,
    ) -> Result<Option<Arc<Watch>>> {
        let Some(pidfd) = &process.pidfd else { return Ok(None) };
        let mut watches = lock(&self.watches);
        let known = watches.get(&process.address.uuid).and_then(Weak::upgrade);
        let watch = match known {
            Some(watch) => watch,
            None => {
                let watch = Arc::new(Watch::default());
                let weak = Arc::downgrade(&watch);
                let fd = pidfd
                    .try_clone()
                    .map_err(|e| Error::system(format!("cannot watch the process of ranks {ranks:?}: {e}")))?;
                let on_death = move || {
                    if let Some(watch) = weak.upgrade() {
                        watch.ended();
                    }
                };
                *lock(&watch.guard) = Some(service.watch(fd, Box::new(on_death))?);
                watches.retain(|_, w| w.strong_count() > 0);
                watches.insert(process.address.uuid, Arc::downgrade(&watch));
                watch
            }
        };
        drop(watches);
        watch.tell(core, ranks);
        Ok(Some(watch))
    }
}

/// Who is to be told of the end of a process.
#[derive(Default)]
struct Listeners {
    ended: bool,
    list: Vec<(Weak<Core>, Vec<usize>)>,
}

/// The watch of one process, for all members that have ranks in it.
#[derive(Default)]
pub(super) struct Watch {
    listeners: Mutex<Listeners>,
    guard: Mutex<Option<WatchGuard>>,
}

impl Watch {
    fn tell(&self, core: &Arc<Core>, ranks: Vec<usize>) {
        let mut listeners = lock(&self.listeners);
        if listeners.ended {
            drop(listeners);
            return core.on_death(&ranks, "its process ended");
        }
        listeners.list.retain(|(core, _)| core.strong_count() > 0);
        listeners.list.push((Arc::downgrade(core), ranks));
    }

    /// `core` left: it is not told any more.
    pub(super) fn forget(&self, core: &Core) {
        lock(&self.listeners).list.retain(|(known, _)| !std::ptr::eq(known.as_ptr(), core));
    }

    fn ended(&self) {
        let mut listeners = lock(&self.listeners);
        listeners.ended = true;
        let told = std::mem::take(&mut listeners.list);
        // What a core does with it must not come back here.
        drop(listeners);
        for (core, ranks) in told {
            if let Some(core) = core.upgrade() {
                core.on_death(&ranks, "its process ended");
            }
        }
    }
}

/// What a rank says of sharing when ranks meet: whether it wants to, and the channels it uses.
pub(super) fn wish(share: bool, config: &Config) -> [u8; 2] {
    [u8::from(share), u8::try_from(config.max_channels).unwrap_or(u8::MAX)]
}

/// The channels of a child that shares: when all ranks want to, and use equally many.
pub(super) fn agreed<'a>(mut wishes: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let first = wishes.next().filter(|w| w.first() == Some(&1))?;
    wishes.all(|w| w == first).then(|| usize::from(*first.get(1).unwrap_or(&1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_takes_all() {
        let of = |wishes: &[[u8; 2]]| agreed(wishes.iter().map(|w| &w[..]));
        assert_eq!(of(&[[1, 2], [1, 2]]), Some(2));
        assert_eq!(of(&[[1, 2], [0, 2]]), None);
        assert_eq!(of(&[[0, 2], [1, 2]]), None);
        assert_eq!(of(&[[1, 2], [1, 1]]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn memory_is_mapped_once_and_forgotten_with_its_last_user() {
        let family = Family::default();
        let map = || Ok(SharedMemory::create("test", 4096).unwrap());
        let (first, made) = family.mapped([1; 16], 7, map).unwrap();
        let (second, again) = family.mapped([1; 16], 7, map).unwrap();
        assert!(made && !again && Arc::ptr_eq(&first, &second));
        assert!(family.mapped([2; 16], 7, map).unwrap().1 && family.mapped([1; 16], 8, map).unwrap().1);
        drop((first, second));
        assert!(family.mapped([1; 16], 7, map).unwrap().1);
        assert!(family.mapped([1; 16], 9, || Err(Error::remote("gone"))).is_err());
    }
}
