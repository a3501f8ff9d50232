//! Large pages beneath memory that this process has already: what the kernel needs to ask it for them, and nothing of when
//! that is worth it.

use std::sync::OnceLock;

/// Small pages of a large one at most; larger ones are not asked for.
const MOST_SMALL: usize = 4096;

/// Bytes of a large page of ordinary memory; 0 where the system has none, or makes none for those who ask.
pub fn large() -> usize {
    static LARGE: OnceLock<usize> = OnceLock::new();
    *LARGE.get_or_init(|| {
        let read = |file: &str| std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
        let wanted = read("enabled").is_ok_and(|modes| !modes.contains("[never]"));
        let bytes = read("hpage_pmd_size").ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
        let fits = bytes.is_power_of_two() && bytes <= MOST_SMALL * crate::host::page_size();
        if wanted && fits { bytes } else { 0 }
    })
}

/// Asks for a large page beneath the [`large`] bytes at `at`, a multiple of as many; whether there is one now. What the
/// memory holds, and what others see of it, stays; who touches it meanwhile waits.
pub fn enlarge(at: usize) -> bool {
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: neither the contents nor the protection of the memory change; for an address that is not mapped the kernel
    // says so.
    unsafe { libc::madvise(at, large(), libc::MADV_COLLAPSE) == 0 }
}

/// Whether the [`large`] bytes at `at`, a multiple of as many, are all mapped and have memory beneath.
pub fn is_resident(at: usize) -> bool {
    let small = crate::host::page_size();
    let mut pages = [0_u8; MOST_SMALL];
    let pages = &mut pages[..large() / small];
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: one byte for each page of the range; the kernel says so where something is not mapped.
    let known = unsafe { libc::mincore(at, large(), pages.as_mut_ptr()) == 0 };
    known && !pages.is_empty() && pages.iter().all(|page| page & 1 == 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_memory_holds_stays_when_its_pages_become_large() {
        let large = large();
        if large == 0 {
            return;
        }
        let mut memory: Vec<u64> = (0..3 * large as u64 / 8).collect();
        let at = memory.as_ptr().addr().next_multiple_of(large);
        assert!(is_resident(at));
        // Where memory is short there may be none.
        let _ = enlarge(at);
        assert!(is_resident(at));
        assert!(memory.iter().enumerate().all(|(i, value)| *value == i as u64));
        memory.fill(7);
        assert!(memory.iter().all(|value| *value == 7));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let large = large();
        if large == 0 {
            return;
        }
        // The first page is never mapped.
        assert!(!is_resident(0) && !enlarge(0));
    }
}
