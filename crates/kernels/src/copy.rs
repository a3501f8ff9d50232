//! Copies from one source to any number of destinations.

/// Bytes of the source that are sent to every destination before the next are read: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;

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
