//! What tells the calling thread from all others.

/// A number that no other thread of the process has as long as this one lives; not zero. A thread that begins after another one
/// has ended may have its number: memory that says who a thread is came back before it was given away again, so what the one did
/// lies before what the other does.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri), not(loom)))]
#[inline(always)]
pub(crate) fn number() -> usize {
    let own: usize;
    // SAFETY: the ABI has each thread's control block begin with its own address, to which `fs` points. That never changes, so for
    // the compiler it is no memory.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) own, options(pure, nomem, nostack, preserves_flags)) };
    own
}

/// As above, by the address of something that each thread has.
#[cfg(all(not(all(target_arch = "x86_64", target_os = "linux", not(miri))), not(loom)))]
#[inline]
pub(crate) fn number() -> usize {
    std::thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| std::ptr::from_ref(own).addr())
}

/// As above: loom's threads share what the system knows of one.
#[cfg(loom)]
pub(crate) fn number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
    loom::thread_local! {
        static OWN: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::number;

    #[test]
    fn each_thread_has_its_own() {
        let mine = number();
        let other = std::thread::spawn(number).join().unwrap();
        assert!(mine != 0 && mine == number() && mine != other);
    }
}
