//! Reserved ranges of addresses in which memory of several owners is laid out at known distances.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Addresses of this process that nothing else gets; shared memory is mapped into parts of them. All is unmapped on
/// drop.
///
/// Others may write to what is mapped at any time: never make a reference into it. Parts without a mapping fault.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the process, not to a thread; all access is through raw pointers or atomics.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes of addresses, which must not be 0. They cost no memory.
    ///
    /// # Errors
    /// Those of `mmap`: the address space is used up or limited.
    pub fn new(len: usize) -> io::Result<Reservation> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)? };
        let start = NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Reservation { start, len })
    }

    /// Maps `len` bytes of the shared memory `fd`, from `from` on, at `offset` of the range. Whole pages.
    ///
    /// # Errors
    /// `InvalidData` when the memory is not sealed against shrinking, or shorter; `InvalidInput` when the part does not
    /// lie in the range; those of `fstat` and `mmap`.
    pub fn map(&mut self, offset: usize, fd: &OwnedFd, from: u64, len: usize) -> io::Result<()> {
        let data = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
        if !rustix::fs::fcntl_get_seals(fd).is_ok_and(|s| s.contains(SealFlags::SHRINK)) {
            return Err(data("descriptor is no memory sealed against shrinking"));
        }
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        if from.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(data("the memory is shorter than the part to be mapped"));
        }
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let at = self.start.as_ptr().wrapping_add(offset).cast();
        // SAFETY: the part lies in our own reservation, which only `&mut self` changes.
        unsafe { rustix::mm::mmap(at, len, prot, MapFlags::SHARED | MapFlags::FIXED, fd.as_fd(), from)? };
        Ok(())
    }

    /// The first address; page aligned.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes of addresses.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not a single byte; never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: our own range, with all that was mapped into it; pointer holders were told.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;

    #[test]
    fn parts_of_memory_lie_where_they_were_put() {
        let stride = 4_usize << 30;
        let mut range = Reservation::new(3 * stride).unwrap();
        let memory = SharedMemory::create("t", 3 * 4096).unwrap();
        memory.write(4096, b"second page");
        let fd = memory.fd().try_clone_to_owned().unwrap();
        range.map(2 * stride, &fd, 4096, 8192).unwrap();
        let at = range.as_ptr().wrapping_add(2 * stride);
        // SAFETY: mapped just now.
        unsafe {
            assert_eq!(at.read(), b's');
            at.add(4096).write(7);
        }
        let mut out = [0];
        memory.read(2 * 4096, &mut out);
        assert_eq!(out, [7]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let mut range = Reservation::new(1 << 20).unwrap();
        let memory = SharedMemory::create("t", 8192).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        assert_eq!(range.map(0, &fd, 4096, 8192).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(range.map((1 << 20) - 4096, &fd, 0, 8192).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let open = rustix::fs::memfd_create(c"t", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert_eq!(range.map(0, &open, 0, 4096).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
