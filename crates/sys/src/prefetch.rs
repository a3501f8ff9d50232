//! Hints to the cache: what a core will soon read or write, so that the line is there by then.
//!
//! A hint changes no value and faults on no address; machines without such an instruction do nothing. Where hints are not enough,
//! [`reclaim`] stores.

/// The line at `at` will be written: asks for it to be this core's own.
#[inline(always)]
pub fn for_write(at: *const u8) {
    // SAFETY: a prefetch accesses no memory as far as the program can tell, whatever the address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// The lines of the `bytes` bytes from `at` on, which is where a line begins, will be written.
#[inline]
pub fn all_for_write(at: *const u8, bytes: usize) {
    (0..bytes).step_by(64).for_each(|n| for_write(at.wrapping_add(n)));
}

/// The lines of the `bytes` bytes from `at` on, which is where a line begins, will be read.
#[inline]
pub fn all_for_read(at: *const u8, bytes: usize) {
    (0..bytes).step_by(64).for_each(|n| for_read(at.wrapping_add(n)));
}

/// The line at `at` will be read.
#[inline(always)]
pub fn for_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `for_write`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Makes the line of `word` this core's own by a store, of zero. A hint does not where the core still has the line and another
/// one has looked at it since: on Zen 4 such a hint is dropped (docs/performance.md).
///
/// The stores behind it wait for the line, so it is for who has to wait for something else anyway.
///
/// # Safety
/// `word` is aligned and writable, and nobody else reads or writes it meanwhile: whoever did has done so before, by what this
/// thread has seen.
#[inline(always)]
pub unsafe fn reclaim(word: *mut u64) {
    // SAFETY: the caller's promise. Volatile: it stays, though nobody reads what it writes.
    unsafe { word.write_volatile(0) };
}
