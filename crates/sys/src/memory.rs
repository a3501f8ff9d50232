//! Shared memory: anonymous (memfd), mapped, gone with its last user. Never a file in /dev/shm.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::sync::{SharedU32, SharedU64};

/// A mapping of shared memory and the descriptor behind it. Unmapped and closed on drop.
///
/// Others may write to it at any time: never make a reference into it. Pages cost memory once touched.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is through raw pointers or atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`; the methods that touch the memory do so through volatile or atomic accesses.
unsafe impl Sync for SharedMemory {}

/// Where files may not become as long as `len`: the kernel would end the process by a signal.
fn within_limit(len: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(most) if len > most => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!(
                "{len} bytes of shared memory are more than this process's limit of the size of files (ulimit -f): {most} bytes"
            ),
        )),
        _ => Ok(()),
    }
}

impl SharedMemory {
    /// New zeroed memory of `len` bytes. `name` is only for /proc/PID/maps. Its size is sealed: nobody can make a
    /// mapping of it fault by truncating it. A length of zero is allowed and maps nothing.
    ///
    /// # Errors
    /// `FileTooLarge` where the process's limit of the size of files is less; those of `memfd_create`, `ftruncate`, `mmap`.
    pub fn create(name: &str, len: usize) -> io::Result<SharedMemory> {
        let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        within_limit(len as u64)?;
        let fd = Self::file(&name)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(fd, len)
    }

    /// A file that can never be run as a program: where the system insists on that (`vm.memfd_noexec=2`) no other is made. Kernels
    /// before 6.3 do not know the flag.
    fn file(name: &CStr) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?),
            made => Ok(made?),
        }
    }

    /// Maps memory received from another process, all of it.
    ///
    /// # Errors
    /// `InvalidData` when the descriptor is no memory sealed against shrinking; those of `fstat` and `mmap`.
    pub fn from_fd(fd: OwnedFd) -> io::Result<SharedMemory> {
        let sealed = rustix::fs::fcntl_get_seals(&fd).is_ok_and(|s| s.contains(SealFlags::SHRINK));
        if !sealed {
            let why = "descriptor is no memory sealed against shrinking";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let len = usize::try_from(rustix::fs::fstat(&fd)?.st_size)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "memory larger than the address space"))?;
        Self::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<SharedMemory> {
        if len == 0 {
            return Ok(SharedMemory { start: NonNull::dangling(), len, fd });
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &fd, 0)? };
        let start = NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(SharedMemory { start, len, fd })
    }

    /// Asks for huge pages. A wish: kernels without them for shared memory refuse, which is not an error.
    pub fn prefer_huge_pages(&self) {
        if self.len > 0 {
            // SAFETY: the range is exactly our mapping; the advice does not change its contents.
            let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
        }
    }

    /// The first byte; page aligned (dangling when the length is zero).
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not a single byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor to hand to other processes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When they do not lie inside.
    #[inline]
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} do not lie in shared memory of {} bytes", self.len);
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Gives the memory behind `len` bytes at `offset` back to the system, for all who map it: it reads as zero. Both
    /// are multiples of the page size.
    ///
    /// # Errors
    /// Those of `fallocate`.
    pub fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.fd, how, offset as u64, len as u64)?)
    }

    /// Has the pages of `len` bytes at `offset` in memory, and mapped here, before they are written for the first time: a
    /// page that is found missing by each write costs more than all of them at once. A wish: kernels before 5.14 refuse.
    ///
    /// # Panics
    /// When the range is outside.
    pub fn populate(&self, offset: usize, len: usize) {
        populate(self.at(offset, len), len);
    }

    /// A handle on the 32-bit word at `offset`; it keeps the mapping alive.
    ///
    /// # Panics
    /// When `offset` is unaligned or outside.
    pub fn u32_at(self: &Arc<Self>, offset: usize) -> SharedU32 {
        SharedU32::in_memory(self, offset)
    }

    /// A handle on the 64-bit word at `offset`; it keeps the mapping alive.
    ///
    /// # Panics
    /// When `offset` is unaligned or outside.
    pub fn u64_at(self: &Arc<Self>, offset: usize) -> SharedU64 {
        SharedU64::in_memory(self, offset)
    }

    /// Copies bytes out, each read once. What others write meanwhile may be seen in parts: synchronise first.
    ///
    /// # Panics
    /// When the range is outside.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        for (i, byte) in out.iter_mut().enumerate() {
            // SAFETY: `at` checked the range; volatile because another process may write.
            *byte = unsafe { from.add(i).read_volatile() };
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range is outside.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` checked the range; volatile because another process may read.
            unsafe { to.add(i).write_volatile(*byte) };
        }
    }
}

/// As [`SharedMemory::populate`], of memory at `start` that is mapped writable; what is not mapped stays as it is.
pub fn populate(start: *mut u8, len: usize) {
    let page = rustix::param::page_size();
    let before = start.addr() % page;
    // SAFETY: populating changes no contents, and the kernel refuses addresses that are not mapped.
    let _ = unsafe { rustix::mm::madvise(start.wrapping_sub(before).cast(), len + before, Advice::LinuxPopulateWrite) };
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: our own mapping, unmapped once; word handles hold the `Arc`, pointer holders were told.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_memory_see_each_other() {
        let a = SharedMemory::create("t", 10_000).unwrap();
        a.prefer_huge_pages();
        let b = SharedMemory::from_fd(a.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_ne!(a.as_ptr(), b.as_ptr());
        assert_eq!(b.len(), 10_000);
        a.write(9_990, b"0123456789");
        let mut out = [0; 11];
        b.read(9_989, &mut out);
        assert_eq!(&out, b"\x000123456789");
    }

    #[test]
    fn populated_pages_are_there_and_no_others() {
        let memory = SharedMemory::create("t", 64 << 12).unwrap();
        let pages = || rustix::fs::fstat(memory.fd()).unwrap().st_blocks / 8;
        memory.write(3 << 12, &[7]);
        memory.populate((2 << 12) + 100, 3 << 12);
        // Where the kernel cannot, none were added.
        assert!([1, 4].contains(&pages()), "{} pages", pages());
        let mut out = [0; 2];
        memory.read((3 << 12) - 1, &mut out);
        assert_eq!(out, [0, 7]);
        populate(std::ptr::null_mut(), 1 << 12); // Nothing is mapped there; nothing happens.
    }

    #[test]
    fn sparse_and_empty() {
        let big = SharedMemory::create("t", 1 << 40).unwrap();
        big.write((1 << 40) - 1, &[1]);
        assert!(rustix::fs::fstat(big.fd()).unwrap().st_blocks < 10_000);
        let none = SharedMemory::create("t", 0).unwrap();
        assert!(none.is_empty());
        assert!(SharedMemory::from_fd(none.fd().try_clone_to_owned().unwrap()).unwrap().is_empty());
    }

    /// Where the system insists on it (`vm.memfd_noexec=2`) other memory is refused.
    #[test]
    fn memory_is_never_a_program() {
        const EXEC: u32 = 0x20;
        let ours = SharedMemory::create("t", 4096).unwrap();
        let seals = rustix::fs::fcntl_get_seals(ours.fd()).unwrap().bits();
        let known = rustix::fs::memfd_create(c"t", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL).is_ok();
        assert_eq!(seals & EXEC != 0, known);
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create(c"t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert_eq!(SharedMemory::from_fd(fd).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let ours = SharedMemory::create("t", 4096).unwrap();
        assert!(rustix::fs::ftruncate(ours.fd(), 0).is_err());
    }
}
