//! The border between C and Rust: nothing unwinds, failures are remembered for `GetLastError`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use oxccl_hostrt_interface::{Status, status};

use crate::{c_int, c_void, error};

thread_local! {
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// A stream argument as the host device understands it: null means the calling thread's default stream in functions
/// compiled for it.
pub(crate) fn stream(handle: *mut c_void) -> *mut c_void {
    if handle.is_null() && PER_THREAD.get() { std::ptr::without_provenance_mut(2) } else { handle }
}

/// Runs the body of a function that returns an error number.
pub fn call(per_thread: bool, body: impl FnOnce() -> Status) -> Status {
    let before = PER_THREAD.replace(per_thread);
    // Unwind safety: the bodies hold no state but locks that recover from poison.
    let answer = catch_unwind(AssertUnwindSafe(body)).unwrap_or(status::UNKNOWN);
    PER_THREAD.set(before);
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
