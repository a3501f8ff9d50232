//! Kernels: what compilers emit for them is accepted and remembered by name, a launch is refused.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_hostrt_interface::{Status, status};

use crate::entry::put;
use crate::{c_char, c_int, c_uint, c_void};

const INVALID_FUNCTION: Status = 98;
const SHARED_BYTES: usize = 48 << 10;
const BLOCK: c_int = 1024;
const PROCESSOR: c_int = 2048;

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

/// Names of the program's kernels by the address of their host functions.
fn names() -> MutexGuard<'static, BTreeMap<usize, CString>> {
    static NAMES: Mutex<BTreeMap<usize, CString>> = Mutex::new(BTreeMap::new());
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle for the program's kernels.
pub unsafe fn register() -> *mut c_void {
    static HANDLE: [usize; 4] = [0; 4];
    (&raw const HANDLE).cast_mut().cast()
}

/// Remembers a kernel's name; the compiler passes more arguments, which are not looked at.
pub unsafe fn register_function(_: *mut c_void, host: *const c_void, _: *mut c_char, name: *const c_char) {
    if !name.is_null() {
        // SAFETY: the compiler emits a string.
        names().insert(host.addr(), unsafe { CStr::from_ptr(name) }.to_owned());
    }
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

pub unsafe fn name_of(to: *mut *const c_char, function: *const c_void) -> Status {
    match names().get(&function.addr()) {
        // Names are never forgotten, so the text stays where it is.
        // SAFETY: the caller's promise.
        Some(name) => unsafe { put(to, name.as_ptr()) },
        None => INVALID_FUNCTION,
    }
}

/// `cudaFuncAttributes` of CUDA 12 and 13: three sizes, then numbers.
#[repr(C)]
pub struct CudaAttributes {
    sizes: [usize; 3],
    numbers: [c_int; 7],
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

/// What a small kernel would have; launches are refused whatever is asked here.
pub unsafe fn attributes(to: *mut CudaAttributes, function: *const c_void) -> Status {
    if function.is_null() {
        return INVALID_FUNCTION;
    }
    // Threads, registers, versions of the code, caching, dynamic shared memory, its share (-1: any).
    let numbers = [BLOCK, 32, 90, 90, 0, SHARED_BYTES as c_int, -1];
    // SAFETY: the caller's promise.
    unsafe { put(to, CudaAttributes { sizes: [0; 3], numbers, cluster: [0; 6], reserved: [0; 16] }) }
}

/// `hipFuncAttributes`.
#[repr(C)]
pub struct HipAttributes {
    binary: c_int,
    caching: c_int,
    constant: usize,
    local: usize,
    dynamic_shared: c_int,
    threads: c_int,
    registers: c_int,
    carveout: c_int,
    ptx: c_int,
    shared: usize,
}

const _: () = assert!(size_of::<HipAttributes>() == 56 && size_of::<CudaAttributes>() >= 24 + 28);

pub unsafe fn attributes_hip(to: *mut HipAttributes, function: *const c_void) -> Status {
    if function.is_null() {
        return INVALID_FUNCTION;
    }
    let found = HipAttributes {
        binary: 90,
        caching: 0,
        constant: 0,
        local: 0,
        dynamic_shared: SHARED_BYTES as c_int,
        threads: BLOCK,
        registers: 32,
        carveout: 0,
        ptx: 90,
        shared: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { put(to, found) }
}

/// Hints for kernels: accepted.
pub unsafe fn hint(function: *const c_void) -> Status {
    if function.is_null() { INVALID_FUNCTION } else { status::SUCCESS }
}

/// Blocks that a multiprocessor would hold.
pub unsafe fn occupancy(to: *mut c_int, function: *const c_void, block: c_int, shared: usize) -> Status {
    match () {
        () if function.is_null() => INVALID_FUNCTION,
        () if block <= 0 => status::INVALID_VALUE,
        () if block > BLOCK || shared > SHARED_BYTES => {
            // SAFETY: the caller's promise.
            unsafe { put(to, 0) }
        }
        // SAFETY: the caller's promise.
        () => unsafe { put(to, (PROCESSOR / block).min(32)) },
    }
}

pub unsafe fn occupancy_with_flags(
    to: *mut c_int,
    function: *const c_void,
    block: c_int,
    shared: usize,
    _flags: c_uint,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { occupancy(to, function, block, shared) }
}

/// Shared memory that is left for each of `blocks` blocks.
pub unsafe fn occupancy_shared(to: *mut usize, function: *const c_void, blocks: c_int, _block: c_int) -> Status {
    match usize::try_from(blocks) {
        _ if function.is_null() => INVALID_FUNCTION,
        // SAFETY: the caller's promise.
        Ok(blocks) if blocks > 0 => unsafe { put(to, SHARED_BYTES / blocks) },
        _ => status::INVALID_VALUE,
    }
}

/// HIP's: how large a block and a grid fill a device.
pub unsafe fn occupancy_block(
    grid: *mut c_int,
    block: *mut c_int,
    function: *const c_void,
    _shared: usize,
    _limit: c_int,
) -> Status {
    if function.is_null() {
        return INVALID_FUNCTION;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match put(grid, PROCESSOR / BLOCK) {
            status::SUCCESS => put(block, BLOCK),
            failure => failure,
        }
    }
}
