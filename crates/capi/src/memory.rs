//! Chapter "memory": allocation that peers can map, and registration of the caller's own memory.
//!
//! Registration keeps account of ranges only: host devices need none, so it changes no data path.

use crate::abi::*;
use crate::entry::{Failure, Outcome, clear, non_null, write_out};
use crate::handle::check_known;
use oxccl_runtime::device;
use oxccl_types::{Error, ResultCode};

pub unsafe fn mem_alloc(ptr: *mut *mut c_void, size: usize) -> Outcome {
    if ptr.is_null() {
        return Err(Failure::new(
            ResultCode::UnhandledDeviceError,
            "MemAlloc : ptr argument is NULL; it must point to where the address of the new memory is written",
        ));
    }
    // SAFETY: the C caller's promise.
    unsafe { clear(ptr) };
    let memory = device::alloc(size).map_err(of_the_device)?;
    // SAFETY: the C caller's promise.
    unsafe { write_out("MemAlloc", "ptr", ptr, memory.cast()) }
}

/// The memory goes behind the work of all devices, each of which may use it: the runtime's calls do not wait for all of it.
/// Nor does this one: what ends that work may come after it, as an abort.
pub unsafe fn mem_free(ptr: *mut c_void) -> Outcome {
    if ptr.is_null() {
        return Ok(());
    }
    // SAFETY: the runtime knows its own allocations and refuses all others; no call uses freed memory by contract.
    unsafe { device::free_behind(ptr.cast(), |_| true) }.map_err(of_the_device)
}

/// Where the original asks the runtime of the device, whatever goes wrong is that runtime's error.
fn of_the_device(error: Error) -> Failure {
    Failure::new(ResultCode::UnhandledDeviceError, error.into_text())
}

pub unsafe fn comm_register(comm: ncclComm_t, buff: *mut c_void, size: usize, handle: *mut *mut c_void) -> Outcome {
    if oxccl_runtime::config::integer("NCCL_LOCAL_REGISTER") == Some(0) {
        // Switched off, it succeeds whatever it is given, with a handle that deregistration accepts.
        // SAFETY: the C caller's promise.
        unsafe { clear(handle) };
        return Ok(());
    }
    let communicator = check_known("CommRegister", comm)?;
    non_null("CommRegister", "handle", handle)?;
    let number = communicator.regions().add(buff as usize, size);
    // A handle is a number; nobody reads through it.
    // SAFETY: the C caller's promise.
    unsafe { write_out("CommRegister", "handle", handle, std::ptr::without_provenance_mut(number)) }
}

pub unsafe fn comm_deregister(comm: ncclComm_t, handle: *mut c_void) -> Outcome {
    let communicator = check_known("CommDeregister", comm)?;
    if handle.is_null() || communicator.regions().remove(handle.addr()) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "Deregister: Could not find handle {handle:p}; it was not made by ncclCommRegister on this communicator, or was \
         given back before"
    )))
}
