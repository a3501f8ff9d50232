//! Copies from one source to any number of destinations.

/// Bytes of the source that are sent to every destination before the next are read: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;
/// Bytes up to which a copy is made where it is called.
pub(crate) const SMALL: usize = 64;

/// At most [`SMALL`] bytes: two moves, or four, that overlap unless the size is a power of two. All loads come before the
/// first store, since the destination may be the source.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes` bytes; they are equal or do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_small(dst: *mut u8, src: *const u8, bytes: usize) {
    type Sixteen = [u64; 2];
    // SAFETY: the caller's promise; every move lies within `bytes`.
    unsafe {
        if bytes >= size_of::<Sixteen>() {
            if bytes <= 2 * size_of::<Sixteen>() {
                return ends::<Sixteen>(dst, src, bytes);
            }
            let second = src.add(16).cast::<Sixteen>().read_unaligned();
            let third = src.add(bytes - 32).cast::<Sixteen>().read_unaligned();
            ends::<Sixteen>(dst, src, bytes);
            dst.add(16).cast::<Sixteen>().write_unaligned(second);
            dst.add(bytes - 32).cast::<Sixteen>().write_unaligned(third);
        } else if bytes >= 8 {
            ends::<u64>(dst, src, bytes);
        } else if bytes >= 4 {
            ends::<u32>(dst, src, bytes);
        } else if bytes >= 2 {
            ends::<u16>(dst, src, bytes);
        } else if bytes == 1 {
            dst.write(src.read());
        }
    }
}

/// The first and the last bytes, a `T` of each.
///
/// # Safety
/// As [`copy_small`]; `bytes` is at least the size of a `T`, whose every bit pattern is one.
#[inline(always)]
unsafe fn ends<T: Copy>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (src.cast::<T>().read_unaligned(), src.add(last).cast::<T>().read_unaligned());
        dst.cast::<T>().write_unaligned(a);
        dst.add(last).cast::<T>().write_unaligned(b);
    }
}

/// See [`crate::copy`].
///
/// # Safety
/// As [`crate::copy`].
pub(crate) unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; `std::ptr::copy` allows a destination that is the source.
    unsafe {
        if let [dst] = *dsts {
            std::ptr::copy(src, dst, bytes);
            return;
        }
        let mut at = 0;
        while at < bytes {
            let n = BLOCK.min(bytes - at);
            for dst in dsts {
                std::ptr::copy(src.add(at), dst.add(at), n);
            }
            at += n;
        }
    }
}
