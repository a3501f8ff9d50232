//! Memory of the host devices: shareable, so that peers on the machine can map it.
//!
//! Small allocations are cut from arenas, large ones get a memfd of their own. A segment (one memfd) has a number that
//! is never used again in the process; the service hands its descriptor to peers that hold the communicator's key.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use oxccl_sys::SharedMemory;
use oxccl_sys::sync::{AtomicBool, AtomicU64, Ordering};
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
    /// Live allocations by address.
    live: BTreeMap<usize, Live>,
    next: u32,
}

/// A live allocation.
#[derive(Clone, Copy)]
struct Live {
    segment: usize,
    bytes: usize,
    label: Label,
}

/// What an allocation was made as. All kinds are the same memory here; programs ask for the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Page-locked memory of the host.
    Host,
    /// Memory of a device.
    Device,
    /// Memory that migrates between host and devices.
    Managed,
}

/// The kind of an allocation and the device that was current when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// What it was made as.
    pub kind: MemoryKind,
    /// The device.
    pub device: usize,
}

/// The allocation around an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its first byte.
    pub base: usize,
    /// Its length, rounded up to whole pages.
    pub bytes: usize,
    /// What it was made as.
    pub label: Label,
}

/// Where an allocation lies, for a process that shares nothing else with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The process that owns it.
    pub pid: u32,
    /// Its descriptor of the memory there.
    pub fd: i32,
    /// The inode behind the descriptor, so that a number used again is recognised.
    pub inode: u64,
    /// First byte of the allocation in the memory.
    pub offset: u64,
    /// Bytes of the allocation.
    pub bytes: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { segments: BTreeMap::new(), live: BTreeMap::new(), next: 1 });
/// Rises whenever an address may have changed its meaning, with the segments: exporters drop what they remember.
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
        GENERATION.fetch_add(1, Ordering::AcqRel);
        let memory = SharedMemory::create("oxccl-device-memory", bytes)
            .map_err(|e| Error::system(format!("cannot allocate {bytes} bytes of device memory: {e}")))?;
        memory.prefer_huge_pages();
        let number = self.next;
        self.next += 1;
        let fd =
            memory.fd().try_clone_to_owned().map_err(|e| Error::system(format!("cannot share device memory: {e}")))?;
        crate::communicator::service()?.publish(u64::from(number), fd);
        let base = memory.as_ptr() as usize;
        let mut free = BTreeMap::new();
        if !own {
            free.insert(0, bytes);
        }
        self.segments.insert(base, Segment { memory, number, free, own });
        Ok(base)
    }

    fn carve(&mut self, bytes: usize, label: Label) -> Option<usize> {
        for (base, segment) in &mut self.segments {
            let found = segment.free.iter().find(|(_, len)| **len >= bytes).map(|(o, l)| (*o, *l));
            if let Some((offset, len)) = found {
                segment.free.remove(&offset);
                if len > bytes {
                    segment.free.insert(offset + bytes, len - bytes);
                }
                self.live.insert(base + offset, Live { segment: *base, bytes, label });
                return Some(base + offset);
            }
        }
        None
    }

    /// Takes an allocation from the program.
    fn retire(&mut self, address: usize) -> Result<Live> {
        self.live.remove(&address).ok_or_else(|| {
            Error::argument(format!(
                "{address:#x} was not allocated by this library, or was freed before; nothing is freed"
            ))
        })
    }

    /// Gives the memory of one that was retired to others. What comes back is to be dropped when the registry is free for others: to
    /// unmap much takes long.
    #[must_use = "it is dropped behind the lock"]
    fn release(&mut self, address: usize, Live { segment: base, bytes, .. }: Live) -> Result<Option<Segment>> {
        // Every live allocation names a live segment: both are changed under the same lock.
        let Some(segment) = self.segments.get_mut(&base) else {
            return Err(Error::internal(format!("allocation {address:#x} names no segment")));
        };
        if segment.own {
            if let Ok(service) = crate::communicator::service() {
                service.withdraw(u64::from(segment.number));
            }
            GENERATION.fetch_add(1, Ordering::AcqRel);
            let segment = self.segments.remove(&base);
            // SYNC: withdrawn
            WITHDRAWN.fetch_add(1, Ordering::AcqRel);
            return Ok(segment);
        }
        insert_merged(&mut segment.free, address - base, bytes);
        Ok(None)
    }

    fn find(&self, address: usize, len: usize) -> Option<(usize, usize, u32)> {
        let (base, segment) = self.segments.range(..=address).next_back()?;
        (address.checked_add(len)? <= base + segment.memory.len())
            .then(|| (*base, segment.memory.len(), segment.number))
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
    alloc_as(bytes, MemoryKind::Device)
}

/// [`alloc`] in memory that no other allocation shares: whoever has it mapped when it is freed keeps bytes that nobody
/// else gets. Zeroed.
///
/// `InvalidArgument` for 0 bytes; as [`alloc`].
pub fn alloc_alone(bytes: usize) -> Result<*mut u8> {
    let rounded = bytes.checked_next_multiple_of(GRANULE).filter(|b| *b > 0);
    let rounded = rounded.ok_or_else(|| Error::argument(format!("cannot allocate {bytes} bytes alone")))?;
    let label = Label { kind: MemoryKind::Device, device: super::current() };
    let mut registry = registry();
    let base = registry.add_segment(rounded, true)?;
    registry.live.insert(base, Live { segment: base, bytes: rounded, label });
    Ok(base as *mut u8)
}

/// [`alloc`] that remembers what the memory was made as.
pub fn alloc_as(bytes: usize, kind: MemoryKind) -> Result<*mut u8> {
    alloc_on(bytes, kind, super::current())
}

/// [`alloc_as`] of memory of `device`, whichever is the thread's.
pub fn alloc_on(bytes: usize, kind: MemoryKind, device: usize) -> Result<*mut u8> {
    let label = Label { kind, device };
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let rounded = bytes
        .checked_next_multiple_of(GRANULE)
        .ok_or_else(|| Error::argument(format!("cannot allocate {bytes} bytes: the size overflows")))?;
    let mut registry = registry();
    if rounded >= OWN_SEGMENT {
        let base = registry.add_segment(rounded, true)?;
        registry.live.insert(base, Live { segment: base, bytes: rounded, label });
        return Ok(base as *mut u8);
    }
    if let Some(address) = registry.carve(rounded, label) {
        return Ok(address as *mut u8);
    }
    registry.add_segment(ARENA, false)?;
    registry
        .carve(rounded, label)
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
    let live = registry.retire(ptr as usize)?;
    let given_back = registry.release(ptr as usize, live);
    drop(registry);
    given_back.map(drop)
}

/// Memory that the program has freed, but work may still use: it is lost unless it is [released](Retired::release).
#[must_use]
pub(super) struct Retired {
    address: usize,
    live: Live,
}

/// Takes memory of [`alloc`] from the program: it is no allocation any more, and nobody else's yet. `InvalidArgument` as of [`free`].
pub(super) fn retire(ptr: *mut u8) -> Result<Retired> {
    Ok(Retired { address: ptr as usize, live: registry().retire(ptr as usize)? })
}

impl Retired {
    /// Gives it to others.
    ///
    /// # Safety
    /// As for [`free`].
    pub(super) unsafe fn release(self) {
        // The registry is free again at the end of this line.
        let given_back = registry().release(self.address, self.live);
        if let Err(e) = given_back {
            crate::log::warn(&e.text);
        }
    }
}

/// The live allocation that holds `address`.
pub fn allocation(address: usize) -> Option<Allocation> {
    let registry = registry();
    let (base, live) = registry.live.range(..=address).next_back()?;
    (address - base < live.bytes).then_some(Allocation { base: *base, bytes: live.bytes, label: live.label })
}

/// Where `[address, address + len)` lies, in words that peers understand; `None` when it is no device memory.
pub(crate) fn exported(address: usize, len: usize) -> Option<Exported> {
    let (base, _, segment) = registry().find(address, len)?;
    Some(Exported { segment, offset: (address - base) as u64 })
}

/// Memory that a graph allocates and may free. Its address is the same in every launch.
///
/// It lives as long as a graph knows it; after that only when a launch allocated it and nothing freed it, and is then
/// memory like any other.
pub struct GraphMemory {
    at: usize,
    bytes: usize,
    live: AtomicBool,
}

static OF_GRAPHS: Mutex<BTreeMap<usize, Weak<GraphMemory>>> = Mutex::new(BTreeMap::new());

impl GraphMemory {
    /// New memory of a graph on `device`.
    pub fn new(bytes: usize, device: usize) -> Result<Arc<GraphMemory>> {
        let at = alloc_on(bytes, MemoryKind::Device, device)? as usize;
        let memory = Arc::new(GraphMemory { at, bytes, live: AtomicBool::new(false) });
        of_graphs().insert(at, Arc::downgrade(&memory));
        Ok(memory)
    }

    /// The memory that begins at `ptr`. `InvalidArgument` when no graph knows it.
    pub fn find(ptr: *mut u8) -> Result<Arc<GraphMemory>> {
        of_graphs().get(&(ptr as usize)).and_then(Weak::upgrade).ok_or_else(|| {
            Error::argument(format!("{ptr:p} is not memory that a graph allocates, so a graph cannot free it"))
        })
    }

    /// The first byte.
    pub fn address(&self) -> *mut u8 {
        self.at as *mut u8
    }

    /// Bytes, as they were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A launch allocated it, or it was freed.
    pub fn set_live(&self, live: bool) {
        self.live.store(live, Ordering::Release);
    }

    /// Bytes that graphs hold, and those of them that launches allocated and nothing freed.
    pub fn totals() -> (usize, usize) {
        let all: Vec<_> = of_graphs().values().filter_map(Weak::upgrade).collect();
        let live = all.iter().filter(|m| m.live.load(Ordering::Acquire)).map(|m| m.bytes).sum();
        (all.iter().map(|m| m.bytes).sum(), live)
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        of_graphs().remove(&self.at);
        if !*self.live.get_mut() {
            // SAFETY: no graph knows the memory any more, and launched work keeps what it uses.
            // The address is an allocation of ours that nobody else frees, so this cannot fail.
            let _ = unsafe { free(self.at as *mut u8) };
        }
    }
}

fn of_graphs() -> MutexGuard<'static, BTreeMap<usize, Weak<GraphMemory>>> {
    OF_GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What another process of the same user needs to map the allocation at `address`. `InvalidArgument` when there is none.
pub fn share(address: usize) -> Result<Shared> {
    let found = allocation(address)
        .ok_or_else(|| Error::argument(format!("{address:#x} is not memory of this library; it cannot be shared")))?;
    let registry = registry();
    let (base, segment) = registry
        .segments
        .range(..=found.base)
        .next_back()
        .ok_or_else(|| Error::internal(format!("allocation {address:#x} names no segment")))?;
    let stat =
        rustix::fs::fstat(segment.memory.fd()).map_err(|e| Error::system(format!("cannot look at memory: {e}")))?;
    Ok(Shared {
        pid: std::process::id(),
        fd: segment.memory.fd().as_raw_fd(),
        inode: stat.st_ino,
        offset: (found.base - base) as u64,
        bytes: found.bytes as u64,
    })
}

/// Maps memory that another process [`share`]d. It is unmapped when the value is dropped.
///
/// # Errors
/// `SystemError` when that process is gone, belongs to another user, or has freed the memory.
pub fn open_shared(shared: &Shared) -> Result<SharedMemory> {
    use std::os::unix::fs::MetadataExt;
    let Shared { pid, fd, .. } = shared;
    let refuse = |why: String| {
        Error::system(format!(
            "cannot map memory of process {pid}: {why}. It must run on this machine, as the same user, and must not have \
             freed the memory"
        ))
    };
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).map_err(|e| refuse(e.to_string()))?;
    let inode = file.metadata().map_err(|e| refuse(e.to_string()))?.ino();
    let memory = SharedMemory::from_fd(file.into()).map_err(|e| refuse(e.to_string()))?;
    let end = shared.offset.checked_add(shared.bytes);
    if inode != shared.inode || end.is_none_or(|e| e > memory.len() as u64) {
        return Err(refuse("it is not there any more".into()));
    }
    Ok(memory)
}

/// Translates addresses to [`Exported`] without a lock in the usual case: it remembers the last segments it met.
pub(crate) struct Exporter {
    generation: u64,
    known: arrayvec::ArrayVec<(usize, usize, u32), 16>,
    turn: usize,
    /// Ranges that are none, of other memory: first byte and length, each in its [place](place).
    other: [(usize, usize); OTHERS],
}

/// Bits in which lines and messages say the number of a segment. Memory of later ones, of a process that has allocated and given
/// back that many, counts as what peers cannot map.
pub(crate) const SEGMENT_BITS: u32 = 28;

/// Ranges of other memory that an exporter remembers: those of a program that goes round the buckets of its gradients.
const OTHERS: usize = 64;

/// Where an exporter remembers the `len` bytes at `address`. Whatever multiples addresses are of, and those of one place differ by their
/// lengths.
fn place(address: usize, len: usize) -> usize {
    /// 2^64 over the golden ratio: a product with it has the differences of both in its highest bits.
    const MIX: usize = 0x9e37_79b9_7f4a_7c15;
    (address.wrapping_mul(MIX) ^ len.wrapping_mul(MIX.rotate_left(32))) >> (usize::BITS - OTHERS.ilog2())
}

impl Default for Exporter {
    fn default() -> Exporter {
        Exporter::new()
    }
}

impl Exporter {
    pub(crate) fn new() -> Exporter {
        Exporter { generation: 0, known: arrayvec::ArrayVec::new(), turn: 0, other: [(0, 0); OTHERS] }
    }

    /// Where `[ptr, ptr + len)` lies, `None` when it is not device memory of this process.
    pub(crate) fn export(&mut self, ptr: *const u8, len: usize) -> Option<Exported> {
        let generation = GENERATION.load(Ordering::Acquire);
        if generation != self.generation {
            self.known.clear();
            self.other = [(0, 0); OTHERS];
            self.generation = generation;
        }
        let address = ptr as usize;
        for (base, bytes, number) in &self.known {
            // Where one segment ends another one may begin.
            let at = address.wrapping_sub(*base);
            if at < *bytes || at == *bytes && len == 0 {
                let inside = len <= bytes - at;
                return inside.then_some(Exported { segment: *number, offset: at as u64 });
            }
        }
        // A part of a range that is no device memory may be some, and the other way round.
        let place = place(address, len);
        if self.other[place] == (address, len) {
            return None;
        }
        let Some(found) = registry().find(address, len).filter(|found| found.2 < 1 << SEGMENT_BITS) else {
            self.other[place] = (address, len);
            return None;
        };
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
        assert!(e.export(large, 1).is_none() && e.export(large, 1).is_none());
        // Usually at the same address, which is remembered as that of other memory.
        let again = alloc(OWN_SEGMENT + 1).unwrap();
        assert!(e.export(again, 1).is_some());
        // SAFETY: nobody uses it.
        unsafe { free(again).unwrap() };
    }

    /// The kernel puts a segment right in front of the last one as a rule: its end is the beginning of that.
    #[test]
    fn the_neighbour_of_a_known_segment_is_found() {
        let all: Vec<*mut u8> = (0..8).map(|_| alloc(OWN_SEGMENT).unwrap()).collect();
        let end = |p: &*mut u8| *p as usize + OWN_SEGMENT;
        let touch = all.iter().find_map(|low| Some((*low, *all.iter().find(|p| **p as usize == end(low))?)));
        let (low, high) = touch.expect("of eight segments two lie side by side");
        let mut e = Exporter::new();
        let first = e.export(low, OWN_SEGMENT).unwrap();
        let second = e.export(high, OWN_SEGMENT).unwrap();
        assert_eq!((first.offset, second.offset), (0, 0));
        assert_ne!(first.segment, second.segment);
        for p in all {
            // SAFETY: nobody uses it.
            unsafe { free(p).unwrap() };
        }
    }

    #[test]
    fn free_ranges_merge() {
        let mut free = BTreeMap::from([(0, 10), (30, 10)]);
        insert_merged(&mut free, 10, 20);
        assert_eq!(free, BTreeMap::from([(0, 40)]));
    }
}
