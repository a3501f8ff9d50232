//! Memory of the host devices: shareable, so that peers on the machine can map it.
//!
//! Small allocations are cut from arenas, large ones get a memfd of their own. A segment (one memfd) has a number that
//! is never used again in the process; the service hands its descriptor to peers that hold the communicator's key.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_sys::SharedMemory;
use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result};

/// Allocations are multiples of this and start at multiples of it (`NCCL_WIN_REQUIRED_ALIGNMENT`).
const GRANULE: usize = 4096;
/// Allocations of at least this many bytes get a segment of their own.
const OWN_SEGMENT: usize = 4 << 20;
/// Bytes of an arena. Untouched pages cost nothing.
const ARENA: usize = 64 << 20;

/// Where a piece of device memory lies, in words that peers understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// Number of the segment in the owning process.
    pub segment: u32,
    /// Byte offset in it.
    pub offset: u64,
}

struct Segment {
    memory: SharedMemory,
    number: u32,
    /// Free ranges, offset -> length; only arenas have any.
    free: BTreeMap<usize, usize>,
    own: bool,
}

#[derive(Default)]
struct Registry {
    segments: BTreeMap<usize, Segment>,
    /// Live allocations: address -> (segment base, length).
    live: BTreeMap<usize, (usize, usize)>,
    next: u32,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { segments: BTreeMap::new(), live: BTreeMap::new(), next: 1 });
/// Rises whenever an address may have changed its meaning: exporters drop what they remember.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Segments given back so far: travels with descriptors so that importers drop dead mappings.
static WITHDRAWN: AtomicU64 = AtomicU64::new(0);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Segments this process has given back; a change tells peers to forget their mappings.
pub(crate) fn withdrawn() -> u64 {
    // SYNC: withdrawn
    WITHDRAWN.load(Ordering::Acquire)
}

impl Registry {
    fn add_segment(&mut self, bytes: usize, own: bool) -> Result<usize> {
        let memory = SharedMemory::create("oxccl device memory", bytes)?;
        memory.prefer_huge_pages();
        let number = self.next;
        self.next += 1;
        crate::service::publish(u64::from(number), memory.fd())?;
        let base = memory.as_ptr() as usize;
        let mut free = BTreeMap::new();
        if !own {
            free.insert(0, bytes);
        }
        self.segments.insert(base, Segment { memory, number, free, own });
        Ok(base)
    }

    fn carve(&mut self, bytes: usize) -> Option<usize> {
        for (base, segment) in &mut self.segments {
            let found = segment.free.iter().find(|(_, len)| **len >= bytes).map(|(o, l)| (*o, *l));
            if let Some((offset, len)) = found {
                segment.free.remove(&offset);
                if len > bytes {
                    segment.free.insert(offset + bytes, len - bytes);
                }
                self.live.insert(base + offset, (*base, bytes));
                return Some(base + offset);
            }
        }
        None
    }

    fn release(&mut self, address: usize) -> Result<()> {
        let Some((base, bytes)) = self.live.remove(&address) else {
            return Err(Error::argument(format!(
                "{address:#x} was not allocated by this library, or was freed before; nothing is freed"
            )));
        };
        // Every live allocation names a live segment: both are changed under the same lock.
        let Some(segment) = self.segments.get_mut(&base) else {
            return Err(Error::internal(format!("allocation {address:#x} names no segment")));
        };
        if segment.own {
            crate::service::withdraw(u64::from(segment.number));
            self.segments.remove(&base);
            // SYNC: withdrawn
            WITHDRAWN.fetch_add(1, Ordering::AcqRel);
        } else {
            insert_merged(&mut segment.free, address - base, bytes);
        }
        Ok(())
    }

    fn find(&self, address: usize, len: usize) -> Option<(usize, usize, u32)> {
        let (base, segment) = self.segments.range(..=address).next_back()?;
        (address.checked_add(len)? <= base + segment.memory.len()).then(|| (*base, segment.memory.len(), segment.number))
    }
}

fn insert_merged(free: &mut BTreeMap<usize, usize>, mut offset: usize, mut len: usize) {
    if let Some((before, before_len)) = free.range(..offset).next_back().map(|(o, l)| (*o, *l))
        && before + before_len == offset
    {
        free.remove(&before);
        offset = before;
        len += before_len;
    }
    if let Some(next_len) = free.remove(&(offset + len)) {
        len += next_len;
    }
    free.insert(offset, len);
}

/// Allocates `bytes` bytes of shareable memory, aligned to 4096, zeroed when fresh. Zero bytes give null.
///
/// `SystemError` when the kernel refuses the memory.
pub fn alloc(bytes: usize) -> Result<*mut u8> {
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let rounded = bytes
        .checked_next_multiple_of(GRANULE)
        .ok_or_else(|| Error::argument(format!("cannot allocate {bytes} bytes: the size overflows")))?;
    let mut registry = registry();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    if rounded >= OWN_SEGMENT {
        let base = registry.add_segment(rounded, true)?;
        registry.live.insert(base, (base, rounded));
        return Ok(base as *mut u8);
    }
    if let Some(address) = registry.carve(rounded) {
        return Ok(address as *mut u8);
    }
    registry.add_segment(ARENA, false)?;
    registry
        .carve(rounded)
        .map(|a| a as *mut u8)
        .ok_or_else(|| Error::internal("a fresh arena has no room for a small allocation"))
}

/// Frees memory of [`alloc`]. Null is fine. `InvalidArgument` for any other address.
///
/// # Safety
/// Nobody uses the memory any more: no stream has work on it that is not done.
pub unsafe fn free(ptr: *mut u8) -> Result<()> {
    if ptr.is_null() {
        return Ok(());
    }
    let mut registry = registry();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    registry.release(ptr as usize)
}

/// Translates addresses to [`Exported`] without a lock in the usual case: it remembers the last segments it met.
pub(crate) struct Exporter {
    generation: u64,
    known: arrayvec::ArrayVec<(usize, usize, u32), 8>,
    turn: usize,
}

impl Exporter {
    pub(crate) fn new() -> Exporter {
        Exporter { generation: 0, known: arrayvec::ArrayVec::new(), turn: 0 }
    }

    /// Where `[ptr, ptr + len)` lies, `None` when it is not device memory of this process.
    pub(crate) fn export(&mut self, ptr: *const u8, len: usize) -> Option<Exported> {
        let generation = GENERATION.load(Ordering::Acquire);
        if generation != self.generation {
            self.known.clear();
            self.generation = generation;
        }
        let address = ptr as usize;
        for (base, bytes, number) in &self.known {
            if address >= *base && address - base <= *bytes {
                let inside = len <= bytes - (address - base);
                return inside.then(|| Exported { segment: *number, offset: (address - base) as u64 });
            }
        }
        let found = registry().find(address, len)?;
        if self.known.is_full() {
            self.turn = (self.turn + 1) % self.known.len();
            self.known[self.turn] = found;
        } else {
            self.known.push(found);
        }
        Some(Exported { segment: found.2, offset: (address - found.0) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocates_exports_and_frees() {
        let small = alloc(100).unwrap();
        let other = alloc(5000).unwrap();
        let large = alloc(OWN_SEGMENT + 1).unwrap();
        assert_ne!(small, other);
        for p in [small, other, large] {
            assert_eq!(p as usize % GRANULE, 0);
        }
        let mut e = Exporter::new();
        let at = e.export(large, OWN_SEGMENT + 1).unwrap();
        assert_eq!(at.offset, 0);
        // SAFETY: one byte inside the allocation.
        let inside = e.export(unsafe { large.add(17) }, 1).unwrap();
        assert_eq!((inside.segment, inside.offset), (at.segment, 17));
        assert!(e.export(large, 2 * OWN_SEGMENT).is_none());
        let local = [0u8; 4];
        assert!(e.export(local.as_ptr(), 4).is_none());
        let before = withdrawn();
        // SAFETY: nobody uses them.
        unsafe {
            free(large).unwrap();
            free(small).unwrap();
            free(other).unwrap();
            assert!(free(small).is_err());
            free(std::ptr::null_mut()).unwrap();
        }
        assert_eq!(withdrawn(), before + 1);
        assert!(e.export(large, 1).is_none());
    }

    #[test]
    fn free_ranges_merge() {
        let mut free = BTreeMap::from([(0, 10), (30, 10)]);
        insert_merged(&mut free, 10, 20);
        assert_eq!(free, BTreeMap::from([(0, 40)]));
    }
}
