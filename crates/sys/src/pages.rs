//! Large pages beneath memory that this process has already: what the kernel needs to ask it for them, and nothing of when
//! that is worth it.

use std::os::unix::fs::FileExt;
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
/// memory holds, and what others see of it, stays; who touches it meanwhile waits. (Where it is made of several mappings, the kernel
/// may say that all is done though none of them has room for a large page.)
pub fn enlarge(at: usize) -> bool {
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: neither the contents nor the protection of the memory change; for an address that is not mapped the kernel
    // says so.
    unsafe { libc::madvise(at, large(), libc::MADV_COLLAPSE) == 0 }
}

/// Small pages of a large one, as a share of them, that may have no memory beneath: what an allocator leaves between two buffers.
const GAP_SHARE: usize = 32;

/// Whether the [`large`] bytes at `at`, a multiple of as many, have memory beneath that a large page would take the place of: not the
/// page of zeros, which is beneath what was only read, nor pages that a forked process has as well. Up to a thirty-second of it may
/// have none, if no part is of a file, so that the program grows by no more; not the first nor the last small page, since another
/// mapping may begin there. Not so either where the kernel does not say what is there.
pub fn is_own(at: usize) -> bool {
    /// Bits of what the kernel says of a page.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    const WORD: usize = size_of::<u64>();
    // Opened each time: a forked process that inherits it would be told of its parent's pages.
    let Ok(map) = std::fs::File::open("/proc/self/pagemap") else { return false };
    let first = at / crate::host::page_size();
    let count = large() / crate::host::page_size();
    let mut bytes = [0_u8; MOST_SMALL * WORD];
    let bytes = &mut bytes[..count * WORD];
    if map.read_exact_at(bytes, (first * WORD) as u64).is_err() {
        return false;
    }
    let pages = || bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    let ends = [pages().next(), pages().next_back()];
    let ends = ends.into_iter().all(|page| page.is_some_and(|page| page & PRESENT != 0));
    let own = pages().filter(|page| page & PRESENT != 0 && page & (OF_FILE | EXCLUSIVE) != 0).count();
    let gaps = pages().filter(|page| page & (PRESENT | SWAPPED) == 0).count();
    let may_grow = gaps <= count / GAP_SHARE && !pages().any(|page| page & OF_FILE != 0);
    ends && own + gaps == count && (gaps == 0 || may_grow)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;

    use super::*;

    /// While a child of one test lives no page of another is its own.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[test]
    fn what_memory_holds_stays_when_its_pages_become_large() {
        let _alone = alone();
        let large = large();
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        let mut memory: Vec<u64> = (0..3 * large as u64 / 8).collect();
        let at = memory.as_ptr().addr().next_multiple_of(large);
        let says = std::path::Path::new("/proc/self/pagemap").exists();
        assert_eq!(is_own(at), says);
        // Where memory is short there may be none.
        let _ = enlarge(at);
        assert_eq!(is_own(at), says);
        assert!(memory.iter().enumerate().all(|(i, value)| *value == i as u64));
        memory.fill(7);
        assert!(memory.iter().all(|value| *value == 7));
    }

    /// Anonymous memory of one large page, which begins at a multiple of its size; given back in the end.
    struct Mapped(*mut u8);

    impl Mapped {
        fn new() -> Mapped {
            let (write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a fresh mapping.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * large(), write, private, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Mapped(at.cast())
        }

        fn page(&self) -> *mut u8 {
            self.0.wrapping_add(self.0.addr().next_multiple_of(large()) - self.0.addr())
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the own mapping, given back once.
            assert_eq!(unsafe { libc::munmap(self.0.cast(), 2 * large()) }, 0);
        }
    }

    /// Memory for a test of large pages; `None` where there are none, or where the kernel does not say what lies beneath.
    fn mapped() -> Option<Mapped> {
        let seen = large() > 0 && std::path::Path::new("/proc/self/pagemap").exists();
        if !seen {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
        }
        seen.then(Mapped::new)
    }

    #[test]
    fn what_was_only_read_or_is_shared_with_a_child_is_not_its_own() {
        let _alone = alone();
        let Some(memory) = mapped() else { return };
        let small = crate::host::page_size();
        let page = memory.page();
        let touch = |write: bool| {
            for at in (0..large()).step_by(small) {
                // SAFETY: inside.
                unsafe {
                    if write { page.add(at).write_volatile(1) } else { assert_eq!(page.add(at).read_volatile(), 0) }
                }
            }
        };
        touch(false);
        assert!(!is_own(page.addr()), "pages of zeros would become memory");
        touch(true);
        assert!(is_own(page.addr()));
        // SAFETY: the child only waits for a signal.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            loop {
                // SAFETY: no memory is touched.
                unsafe { libc::pause() };
            }
        }
        let shared = !is_own(page.addr());
        // SAFETY: the own child.
        unsafe {
            assert!(libc::kill(child, libc::SIGKILL) == 0 && libc::waitpid(child, std::ptr::null_mut(), 0) == child)
        };
        assert!(shared, "a child has them as well");
        assert!(is_own(page.addr()));
    }

    #[test]
    fn a_page_with_a_short_gap_is_its_own() {
        let _alone = alone();
        let Some(memory) = mapped() else { return };
        // SAFETY: the own mapping, of which no page is to come with its neighbours.
        assert_eq!(unsafe { libc::madvise(memory.0.cast(), 2 * large(), libc::MADV_NOHUGEPAGE) }, 0);
        let (small, page) = (crate::host::page_size(), memory.page());
        let gap = large() / small / GAP_SHARE;
        // SAFETY: inside.
        let touch = |n: usize| unsafe { page.add(n * small).write_volatile(1) };
        (0..large() / small).filter(|n| !(7..8 + gap).contains(n)).for_each(touch);
        assert!(!is_own(page.addr()), "{} pages are not there", gap + 1);
        touch(7);
        assert!(is_own(page.addr()), "{gap} pages are not there");
        for end in [0, large() - small] {
            // SAFETY: inside; nobody needs what it holds.
            assert_eq!(unsafe { libc::madvise(page.add(end).cast(), small, libc::MADV_DONTNEED) }, 0);
            touch(7 + gap);
            assert!(!is_own(page.addr()), "the page at {end} is not there");
            touch(end / small);
            assert!(is_own(page.addr()));
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let large = large();
        if large == 0 {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a test of large pages: the system has none for who asks");
            return;
        }
        // The first page is never mapped.
        assert!(!is_own(0) && !enlarge(0));
    }
}
