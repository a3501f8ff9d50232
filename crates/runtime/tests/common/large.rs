//! Whether memory of a test lies on large pages.

use oxccl_sys::pages;

/// Bytes of this process that lie on large pages.
fn bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// So many large pages are beneath the memory of this process, unless the kernel gives none to anybody, or longer ones than of 2 MiB,
/// or lets no process copy from another. Where it makes all pages large this shows nothing.
pub fn are_there(count: usize) {
    let large = pages::large();
    let control = vec![1_u8; 2 * large];
    if large == 2 << 20
        && oxccl_sys::cma::may_write()
        && pages::enlarge(control.as_ptr().addr().next_multiple_of(large))
    {
        // One more is the control's.
        assert!(bytes() >= (count + 1) * large, "{} bytes lie on large pages", bytes());
    }
}
