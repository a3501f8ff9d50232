//! Chapter "memory": allocation that peers can map, and registration of the caller's own memory.
//!
//! Registration keeps account of ranges only: host devices need none, so it changes no data path.

use crate::abi::*;
use crate::entry::{Failure, Outcome, clear, non_null, write_out};
use crate::handle::check_known;
use oxccl_runtime::device;
use oxccl_types::{Error, ResultCode};
use std::sync::OnceLock;

pub unsafe fn mem_alloc(ptr: *mut *mut c_void, size: usize) -> Outcome {
    if ptr.is_null() {
        return Err(Failure::new(
            ResultCode::UnhandledDeviceError,
            "MemAlloc : ptr argument is NULL; it must point to where the address of the new memory is written",
        ));
    }
    // SAFETY: the C caller's promise.
    unsafe { clear(ptr) };
    check_size(size).map_err(of_the_device)?;
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

/// Refuses what no device ever has: the kernel would promise it all the same, and end the program that uses it.
pub(crate) fn check_size(bytes: usize) -> Result<(), Error> {
    /// What is smaller is not asked about.
    const LARGE: usize = 4 << 20;
    static MOST: OnceLock<usize> = OnceLock::new();
    if bytes < LARGE || bytes <= *MOST.get_or_init(memory_of_the_machine) {
        return Ok(());
    }
    // The group's limit may have been raised.
    let most = memory_of_the_machine();
    if bytes <= most {
        return Ok(());
    }
    Err(Error::system(format!(
        "cannot allocate {bytes} bytes of device memory: this machine, or the control group of the process, has no more than \
         {most} in all; ask for less, or raise the group's limit (memory.max)",
    )))
}

/// Bytes of memory that this process can have at most, as far as that is known.
fn memory_of_the_machine() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let all =
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).map_or(usize::MAX, |kb| kb << 10);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    group.and_then(|text| text.trim().parse::<usize>().ok()).map_or(all, |most| most.min(all))
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
