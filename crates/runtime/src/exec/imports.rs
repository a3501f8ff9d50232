//! Memory of peers that this rank has mapped.
//!
//! Entries are made on first use, by asking the owner's service for the segment unless a communicator of the family has
//! it already, and dropped when the owner says that
//! it has given segments back. Between threads of one process nothing is mapped: the address itself is used.

use std::sync::Arc;

use oxccl_sys::SharedMemory;
use oxccl_types::{Error, Result};

use crate::communicator::core::Core;

struct Import {
    segment: u32,
    memory: Arc<SharedMemory>,
    /// Mapped by this communicator, not by another of its family.
    own: bool,
}

/// The mapped segments of each rank of the communicator.
pub(crate) struct Imports {
    by_rank: Vec<(u64, Vec<Import>)>,
}

impl Imports {
    pub(crate) fn new(ranks: usize) -> Imports {
        Imports { by_rank: (0..ranks).map(|_| (0, Vec::new())).collect() }
    }

    /// The owner `rank` says that it has given back `withdrawn` segments so far: forget what may be among them. It cannot be those
    /// `in_use`, which it names now: no number is used twice.
    pub(crate) fn refresh(&mut self, rank: usize, withdrawn: u64, in_use: [Option<u32>; 2]) {
        let (seen, list) = &mut self.by_rank[rank];
        if *seen != withdrawn {
            list.retain(|import| in_use.contains(&Some(import.segment)));
            *seen = withdrawn;
        }
    }

    /// Where `segment` of `rank` is mapped here, and how many bytes it has; `None` if it is not.
    pub(crate) fn mapped(&self, rank: usize, segment: u32) -> Option<(*mut u8, usize)> {
        let import = self.by_rank[rank].1.iter().find(|i| i.segment == segment)?;
        Some((import.memory.as_ptr(), import.memory.len()))
    }

    /// Bytes mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.by_rank.iter().flat_map(|(_, list)| list).filter(|i| i.own).map(|i| i.memory.len()).sum()
    }

    /// Unmaps all; what is needed again is mapped again.
    pub(crate) fn clear(&mut self) {
        self.by_rank.iter_mut().for_each(|(_, list)| list.clear());
    }

    /// The address here of byte `offset` of segment `segment` of `rank`, of which `len` bytes will be used.
    ///
    /// `RemoteError` when the owner does not hand the segment out; `InternalError` when it is shorter than it said.
    pub(crate) fn address(&mut self, core: &Core, rank: usize, segment: u32, offset: u64, len: u64) -> Result<*mut u8> {
        let list = &mut self.by_rank[rank].1;
        let memory = match list.iter().find(|i| i.segment == segment) {
            Some(import) => &import.memory,
            None => {
                let process = core.peers[rank].process.uuid;
                let (memory, own) = core.family.mapped(process, segment, || fetch(core, rank, segment))?;
                list.push(Import { segment, memory, own });
                // Just pushed.
                &list[list.len() - 1].memory
            }
        };
        match offset.checked_add(len) {
            Some(end) if end <= memory.len() as u64 => {
                // SAFETY: inside the mapping, as just checked.
                Ok(unsafe { memory.as_ptr().add(offset as usize) })
            }
            _ => Err(Error::internal(format!(
                "rank {rank} announced bytes {offset}+{len} of its segment {segment}, which has {} bytes",
                memory.len()
            ))),
        }
    }
}

#[cold]
fn fetch(core: &Core, rank: usize, segment: u32) -> Result<SharedMemory> {
    let peer = &core.peers[rank];
    // A rank that leaves takes its memory back, and each call of a burst would ask for it again and again.
    let over = || core.has_departed(rank) || !core.is_well();
    let fd = crate::service::fetch(
        &peer.process,
        core.hash,
        &core.key,
        u64::from(segment),
        &core.limits_on_the_way().as_limits(),
        over,
    )
    .map_err(|e| {
        Error::new(
            e.code,
            format!(
                "rank {rank} (host {}, process {}) hands out no device memory: {}; its process may have ended, or its \
                     communicator; look at the output of rank {rank} first",
                peer.host, peer.pid, e.text
            ),
        )
    })?;
    SharedMemory::from_fd(fd).map_err(|e| {
        Error::system(format!(
            "cannot map segment {segment} of rank {rank} (host {}, process {}): {e}",
            peer.host, peer.pid
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_when_others_were_given_back() {
        let import = |segment| {
            let memory = SharedMemory::create("oxccl-test-import", 4096).unwrap();
            Import { segment, memory: Arc::new(memory), own: true }
        };
        let mut imports = Imports::new(2);
        imports.by_rank[1].1.extend([3, 5, 8].map(import));
        let there = |imports: &Imports| [3, 5, 8].map(|segment| imports.mapped(1, segment).is_some());
        imports.refresh(1, 0, [None, None]);
        assert_eq!(there(&imports), [true; 3], "nothing was given back");
        imports.refresh(1, 1, [Some(8), Some(3)]);
        assert_eq!(there(&imports), [true, false, true]);
        assert_eq!(imports.bytes(), 2 * 4096);
        imports.refresh(1, 2, [None, None]);
        assert_eq!(there(&imports), [false; 3]);
    }
}
