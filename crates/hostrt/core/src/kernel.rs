//! Kernels: what compilers emit for them is accepted, a launch is refused.

use std::sync::atomic::{AtomicBool, Ordering};

use oxccl_hostrt_interface::{Status, status};

use crate::{c_int, c_void};

/// Refuses a launch and says why once per process.
pub unsafe fn launch() -> Status {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "oxccl: a kernel was launched on a host device, which cannot run kernels: the launch, and every later one, \
             answers \"operation not supported\" (801). Run this part of the program on the host, or on a GPU"
        );
    }
    status::NOT_SUPPORTED
}

/// A handle for the program's kernels, which are kept nowhere.
pub unsafe fn register() -> *mut c_void {
    static HANDLE: [usize; 4] = [0; 4];
    (&raw const HANDLE).cast_mut().cast()
}

/// Accepts and forgets.
pub unsafe fn ignore() {}

/// Accepts a launch configuration; the launch itself is refused.
pub unsafe fn push_configuration() -> c_int {
    0
}

/// Gives a configuration back, so that the compiler's launch code goes on to the launch.
pub unsafe fn pop_configuration() -> Status {
    status::SUCCESS
}
