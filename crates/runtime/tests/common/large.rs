//! Whether memory of a test lies on large pages.

use oxccl_sys::pages;

/// Bytes of this process that lie on large pages.
fn bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// So many large pages are beneath the memory of this process, unless the kernel gives none to anybody.
pub fn are_there(count: usize) {
    let large = pages::large();
    let control = vec![1_u8; 2 * large];
    if large > 0 && pages::enlarge(control.as_ptr().addr().next_multiple_of(large)) {
        // One more is the control's.
        assert!(bytes() >= (count + 1) * large, "{} bytes lie on large pages", bytes());
    }
}
