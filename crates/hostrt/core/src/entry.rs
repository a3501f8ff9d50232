//! The border between C and Rust: nothing unwinds, failures are remembered for `GetLastError`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use oxccl_hostrt_interface::{Status, status};

use crate::{c_int, c_void, error};

/// How the function was called that the thread is in.
#[derive(Clone, Copy, Default)]
pub struct Caller {
    /// The null stream is the thread's default stream.
    pub per_thread: bool,
    /// It is one of HIP's.
    pub is_hip: bool,
}

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller { per_thread: false, is_hip: false }) };
}

/// Whether the function is one of HIP's, where the runtimes differ.
pub(crate) fn is_hip() -> bool {
    CALLER.get().is_hip
}

/// A stream argument as the host device understands it: null means the calling thread's default stream in functions
/// compiled for it.
pub(crate) fn stream(handle: *mut c_void) -> *mut c_void {
    if handle.is_null() && CALLER.get().per_thread { std::ptr::without_provenance_mut(2) } else { handle }
}

/// Runs the body of a function that returns an error number.
pub fn call(caller: Caller, body: impl FnOnce() -> Status) -> Status {
    let before = CALLER.replace(caller);
    // Unwind safety: the bodies hold no state but locks that recover from poison.
    let answer = catch_unwind(AssertUnwindSafe(body)).unwrap_or(status::UNKNOWN);
    CALLER.set(before);
    error::remember(answer);
    answer
}

/// The answer of a function that host devices have no use for.
pub fn unsupported() -> c_int {
    error::remember(status::NOT_SUPPORTED);
    status::NOT_SUPPORTED
}

/// Writes a result through a pointer of the caller.
///
/// # Safety
/// `to` is null or valid for writing.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Status {
    if to.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { to.write_unaligned(value) };
    status::SUCCESS
}
