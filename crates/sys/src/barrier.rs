//! A fence between a frequent side and a rare one, of which the rare side bears the cost.
//!
//! Two threads that each store something and then look at what the other stores need a full fence on both sides, or at
//! least one may miss the other. Where the kernel offers `membarrier`, the rare side can make every running thread of
//! every registered process pass a barrier ([`heavy`]); the frequent side then only has to keep the compiler from
//! turning its two accesses around ([`light`]). A fence on the frequent side would also wait until the line it has just
//! stored to has come from the other core.
//!
//! Both sides must know that the other can do its part: [`registered`] says it for this process.

use crate::sync::{Ordering, fence};

/// Whether threads of this process pass the barrier when another process asks for it, and this process can ask.
/// Registers it at the first call.
#[cfg(not(loom))]
#[inline]
pub fn registered() -> bool {
    REGISTERED.get().copied().unwrap_or_else(register)
}

#[cfg(not(loom))]
static REGISTERED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();

#[cfg(not(loom))]
#[cold]
fn register() -> bool {
    // The registration belongs to the address space: a child after a fork inherits it with the memory.
    *REGISTERED.get_or_init(|| call(REGISTER_GLOBAL_EXPEDITED) && call(GLOBAL_EXPEDITED))
}

/// Registers when the library is loaded, while the process has but one thread, most likely: later the kernel waits for all of its
/// processors to come by, ten milliseconds and more. Whether the barrier can be asked for is found out when it is first needed: the
/// program may forbid it until then. One that has no use for it may be interrupted by the barriers of others.
#[cfg(all(not(loom), not(miri)))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // Once more costs nothing, and whether it worked is seen then.
        call(REGISTER_GLOBAL_EXPEDITED);
    }
    at_load
};

/// Models have no kernel to ask.
#[cfg(loom)]
pub fn registered() -> bool {
    false
}

/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` of linux/membarrier.h.
#[cfg(not(loom))]
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
/// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED`.
#[cfg(not(loom))]
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

#[cfg(not(loom))]
fn call(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// The frequent side, for a pair of which both processes are registered: keeps the order of the accesses around it in
/// the program only.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The rare side: a full fence here, and one in every running thread of the registered processes.
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if registered() {
        call(GLOBAL_EXPEDITED);
        fence(Ordering::SeqCst);
    }
}

/// [`light`] within this process, whose rare side calls [`heavy`]; a full fence where the kernel does not help.
#[inline]
pub fn light_here() {
    if registered() { light() } else { fence(Ordering::SeqCst) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn one_side_sees_the_other() {
        if !registered() {
            eprintln!("this kernel has no membarrier: only fences are left, which need no test");
            return;
        }
        let (frequent, rare) = (AtomicU32::new(0), AtomicU32::new(0));
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        let rounds = 20_000;
        let missed = AtomicU32::new(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..rounds {
                    start.wait();
                    frequent.store(1, Ordering::Relaxed);
                    light();
                    let seen = rare.load(Ordering::Relaxed);
                    missed.fetch_add(u32::from(seen == 0), Ordering::Relaxed);
                    end.wait();
                }
            });
            for _ in 0..rounds {
                start.wait();
                rare.store(1, Ordering::Relaxed);
                heavy();
                let both_missed = frequent.load(Ordering::Relaxed) == 0;
                end.wait();
                assert!(!both_missed || missed.load(Ordering::Relaxed) == 0, "each missed the other");
                missed.store(0, Ordering::Relaxed);
                frequent.store(0, Ordering::Relaxed);
                rare.store(0, Ordering::Relaxed);
            }
        });
    }
}
