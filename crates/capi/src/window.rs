//! Chapter "windows": memory of every rank under one handle. Later work.

use crate::abi::*;
use crate::entry::{Outcome, clear, later};

pub unsafe fn comm_window_register(
    _comm: ncclComm_t,
    _buff: *mut c_void,
    _size: usize,
    win: *mut ncclWindow_t,
    _win_flags: c_int,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(win) };
    Err(later!("ncclCommWindowRegister"))
}

/// The null window is what callers without windows hold; giving it back succeeds, as in the original.
pub unsafe fn comm_window_deregister(_comm: ncclComm_t, win: ncclWindow_t) -> Outcome {
    if win.is_null() { Ok(()) } else { Err(later!("ncclCommWindowDeregister")) }
}

pub unsafe fn win_get_user_ptr(_comm: ncclComm_t, _win: ncclWindow_t, out_user_ptr: *mut *mut c_void) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(out_user_ptr) };
    Err(later!("ncclWinGetUserPtr"))
}
