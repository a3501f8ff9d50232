//! Device memory as a Rust value: the one room of this crate with `unsafe`.
//!
//! Allocates, exposes and frees. It issues no calls.

use std::ops::{Deref, DerefMut};

use oxccl_runtime::device;
use oxccl_types::{Error, Result};

use crate::Element;

/// Elements in the shareable memory of a host device.
///
/// Collectives on the ranks of one machine move such memory without an extra pass: peers map it. It derefs to a
/// slice; while a scope or a call uses it, it is borrowed, so nobody looks at it while peers read or write.
/// In the C interface: `ncclMemAlloc`.
///
/// ```
/// use oxccl::{Communicator, DeviceBuffer, ReduceOp};
/// let comm = Communicator::init_all(1)?.remove(0);
/// let mut x = DeviceBuffer::from_slice(&[1.0_f32, 2.0, 3.0])?;
/// comm.all_reduce_in_place(&mut x, ReduceOp::Sum)?;
/// assert_eq!(x[..], [1.0, 2.0, 3.0]);
/// # Ok::<(), oxccl::Error>(())
/// ```
pub struct DeviceBuffer<T: Element> {
    /// Null exactly when `len` is 0.
    ptr: *mut T,
    len: usize,
    /// No other allocation shares its pages.
    alone: bool,
}

// SAFETY: the buffer owns its memory and hands it out by the rules of references only; `T: Element` is plain data
// that any thread may read and write.
unsafe impl<T: Element> Send for DeviceBuffer<T> {}
// SAFETY: as above; through `&DeviceBuffer` the elements can only be read.
unsafe impl<T: Element> Sync for DeviceBuffer<T> {}

impl<T: Element> DeviceBuffer<T> {
    /// `len` elements of all-zero bits on the thread's current device.
    ///
    /// Errors: out of memory, or the limit of shared memory is reached.
    pub fn zeroed(len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::argument(format!("a buffer of {len} elements is beyond the address space")))?;
        DeviceBuffer::of(device::alloc(bytes)?.cast::<T>(), len, false)
    }

    /// As [`DeviceBuffer::zeroed`] in pages that no other allocation gets while somebody has them mapped: what a peer
    /// writes there late, when the buffer is gone, meets nobody. `len` is not 0.
    pub(crate) fn alone(len: usize) -> Result<DeviceBuffer<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|b| *b > 0).ok_or_else(|| {
            Error::argument(format!("a window of {len} elements is empty or beyond the address space"))
        })?;
        DeviceBuffer::of(device::alloc_alone(bytes)?.cast::<T>(), len, true)
    }

    fn of(ptr: *mut T, len: usize, alone: bool) -> Result<DeviceBuffer<T>> {
        // Made before the checks so that every way out frees the memory.
        let buffer = DeviceBuffer { ptr, len, alone };
        if len > 0 && (ptr.is_null() || !ptr.is_aligned()) {
            return Err(Error::internal(format!("device memory at {ptr:p} is null or not aligned for its elements")));
        }
        if len > 0 {
            // SAFETY: the allocation has room for `len` elements, is writable, and nobody else knows it yet.
            unsafe { ptr.write_bytes(0, len) };
        }
        Ok(buffer)
    }

    /// Whether peers that keep it mapped after it was freed share nothing with later allocations.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Its first byte.
    pub(crate) fn address(&self) -> *mut T {
        self.ptr
    }

    /// Copies elements out while peers may write them; the caller checked the range.
    pub(crate) fn copy_out(&self, offset: usize, out: &mut [T]) {
        assert!(offset.checked_add(out.len()).is_some_and(|end| end <= self.len));
        for (i, value) in out.iter_mut().enumerate() {
            // SAFETY: in range, as just checked; volatile because another process may write at this moment, and every
            // bit pattern is an element.
            *value = unsafe { self.ptr.add(offset + i).read_volatile() };
        }
    }

    /// Copies elements in while peers may read or write them; the caller checked the range.
    pub(crate) fn copy_in(&self, offset: usize, values: &[T]) {
        assert!(offset.checked_add(values.len()).is_some_and(|end| end <= self.len));
        for (i, value) in values.iter().enumerate() {
            // SAFETY: as above; nobody has a reference to the elements, because a window never makes one.
            unsafe { self.ptr.add(offset + i).write_volatile(*value) };
        }
    }

    /// A copy of `values` on the thread's current device. Errors as [`DeviceBuffer::zeroed`].
    pub fn from_slice(values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = DeviceBuffer::zeroed(values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }
}

impl<T: Element> Deref for DeviceBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `ptr` is aligned and spans `len` initialised elements (`zeroed`) until drop; every bit pattern is an
        // element. Peers write here only within a call that this process entered with the buffer mutably borrowed,
        // and each front end waits for its calls before that borrow ends.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

impl<T: Element> DerefMut for DeviceBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as in `deref`; `&mut self` makes the borrow unique, and peers read here only within a call that
        // this process entered with the buffer borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl<T: Element> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: `ptr` is null or came from `alloc`, is freed once, and no borrow of it is left.
        let freed = unsafe { device::free(self.ptr.cast()) };
        debug_assert!(freed.is_ok(), "device memory of a buffer is unknown to the device: {freed:?}");
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_writable_and_may_be_empty() {
        let mut b = DeviceBuffer::<u64>::zeroed(1000).expect("8 kB");
        assert!(b.iter().all(|v| *v == 0));
        b[999] = 7;
        assert_eq!(b.iter().sum::<u64>(), 7);
        assert!(DeviceBuffer::<f32>::zeroed(0).expect("nothing").is_empty());
        assert!(DeviceBuffer::<f32>::zeroed(usize::MAX).is_err());
    }
}
