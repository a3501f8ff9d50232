//! Chapter "errors": codes as words, the last error's text, the state of a communicator, the log's reset.

use crate::abi::*;
use crate::entry::{Failure, Outcome, non_null, write_out};
use crate::handle::check_known;
use oxccl_runtime::log;
use oxccl_types::ResultCode;
use std::cell::UnsafeCell;
use std::sync::{Mutex, PoisonError};

pub unsafe fn get_error_string(result: ncclResult_t) -> *const c_char {
    let words = match result {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        // Of 2.30: no call here returns it, but programs built with that header may ask for its words.
        8 => c"timeout",
        _ => c"unknown result code",
    };
    words.as_ptr()
}

/// Bytes of the buffer that `ncclGetLastError` returns, with the final zero.
const LAST_ERROR_BYTES: usize = 1024;

/// The buffer lives as long as the process, as callers expect, and is rewritten by each call.
struct LastError(UnsafeCell<[u8; LAST_ERROR_BYTES]>);

// SAFETY: written under `LAST_ERROR_LOCK` only; read by C callers, who know that the text may change under them. The
// last byte is never written, so that a reader always finds an end.
unsafe impl Sync for LastError {}

static LAST_ERROR: LastError = LastError(UnsafeCell::new([0; LAST_ERROR_BYTES]));
static LAST_ERROR_LOCK: Mutex<()> = Mutex::new(());

pub unsafe fn get_last_error(_comm: ncclComm_t) -> *const c_char {
    let text = log::last_error();
    // Not in the middle of a character.
    let mut end = text.len().min(LAST_ERROR_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let _held = LAST_ERROR_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let buffer: *mut u8 = LAST_ERROR.0.get().cast();
    // SAFETY: `end` is less than the length of the buffer; the lock makes this the only writer.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, end);
        buffer.add(end).write(0);
    }
    buffer.cast()
}

pub unsafe fn reset_debug_init() {
    log::reset();
}

pub unsafe fn comm_get_async_error(comm: ncclComm_t, async_error: *mut ncclResult_t) -> Outcome {
    let communicator = check_known("CommGetAsyncError", comm)?;
    non_null("CommGetAsyncError", "asyncError", async_error)?;
    let state = communicator.async_error().map_or_else(
        |error| {
            // Another process may have found it out, so that this one has no text of it yet. Programs ask again and again.
            let is_news = error.code != ResultCode::InProgress && communicator.is_news(&error.text);
            let failure = Failure::from(error);
            if is_news {
                failure.log();
            }
            failure.code() as ncclResult_t
        },
        |()| NCCL_SUCCESS,
    );
    // SAFETY: the C caller's promise.
    unsafe { write_out("CommGetAsyncError", "asyncError", async_error, state) }
}
