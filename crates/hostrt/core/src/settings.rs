//! What programs set on devices and ask back: flags, limits, peer access.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_hostrt_interface::{Status, status};

use crate::entry::put;
use crate::host::host;
use crate::{c_int, c_uint, c_void};

const UNSUPPORTED_LIMIT: Status = 215;
const ALREADY_ENABLED: Status = 704;
const NOT_ENABLED: Status = 705;
/// Scheduling, mapped memory, local memory, synchronous copies: the flags that either runtime knows.
const FLAGS: c_uint = 0xff;
const MAP_HOST: c_uint = 8;

#[derive(Default)]
struct Settings {
    flags: c_uint,
    limits: BTreeMap<c_int, usize>,
    peers: BTreeSet<c_int>,
}

fn all() -> MutexGuard<'static, BTreeMap<c_int, Settings>> {
    static ALL: Mutex<BTreeMap<c_int, Settings>> = Mutex::new(BTreeMap::new());
    // Valid between statements.
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exists(device: c_int) -> bool {
    crate::host::device().is_some() && (0..host!(device_count())).contains(&device)
}

fn current<T>(f: impl FnOnce(&mut Settings) -> T) -> T {
    f(all().entry(host!(device_current())).or_default())
}

pub unsafe fn set_flags(flags: c_uint) -> Status {
    if flags & !FLAGS != 0 || !matches!(flags & 7, 0 | 1 | 2 | 4) {
        return status::INVALID_VALUE;
    }
    current(|s| s.flags = flags);
    status::SUCCESS
}

pub unsafe fn get_flags(to: *mut c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, current(|s| s.flags) | MAP_HOST) }
}

/// Sets the flags of a device that need not be the current one, when `valid` says that they are meant.
pub unsafe fn init_device(device: c_int, flags: c_uint, valid: c_uint) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    if valid & 1 != 0 {
        all().entry(device).or_default().flags = flags & FLAGS;
    }
    status::SUCCESS
}

pub unsafe fn valid_devices(list: *const c_int, count: c_int) -> Status {
    let Ok(count) = usize::try_from(count) else { return status::INVALID_VALUE };
    if count > 0 && list.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller promises `count` numbers.
    if (0..count).all(|i| exists(unsafe { list.add(i).read() })) { status::SUCCESS } else { status::INVALID_DEVICE }
}

/// The limits that kernels would have, with the values of the original.
fn limit(number: c_int) -> Option<usize> {
    match number {
        0 => Some(1 << 10),
        1 => Some(1 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(128),
        6 => Some(0),
        _ => None,
    }
}

pub unsafe fn set_limit(number: c_int, value: usize) -> Status {
    if limit(number).is_none() {
        return UNSUPPORTED_LIMIT;
    }
    current(|s| s.limits.insert(number, value));
    status::SUCCESS
}

pub unsafe fn get_limit(to: *mut usize, number: c_int) -> Status {
    let Some(original) = limit(number) else { return UNSUPPORTED_LIMIT };
    let value = current(|s| s.limits.get(&number).copied().unwrap_or(original));
    // SAFETY: the caller's promise.
    unsafe { put(to, value) }
}

/// Devices always reach each other; only what was asked for is remembered.
pub unsafe fn enable_peer(peer: c_int, flags: c_uint) -> Status {
    match () {
        () if flags != 0 => status::INVALID_VALUE,
        () if !exists(peer) || peer == host!(device_current()) => status::INVALID_DEVICE,
        () if current(|s| s.peers.insert(peer)) => status::SUCCESS,
        () => ALREADY_ENABLED,
    }
}

pub unsafe fn disable_peer(peer: c_int) -> Status {
    match () {
        () if !exists(peer) => status::INVALID_DEVICE,
        () if current(|s| s.peers.remove(&peer)) => status::SUCCESS,
        () => NOT_ENABLED,
    }
}

/// Waits and forgets what was set; memory and streams stay.
pub unsafe fn reset() -> Status {
    let device = host!(device_current());
    all().remove(&device);
    host!(device_synchronize(device))
}

/// Functions of the driver: a host device has none, and says so as a driver does that is older than the function.
pub unsafe fn entry_point(_name: *const crate::c_char, to: *mut *mut c_void, _flags: u64, found: *mut c_int) -> Status {
    const NOT_FOUND: c_int = 1;
    // SAFETY: the caller's promise.
    match unsafe { put(to, std::ptr::null_mut()) } {
        status::SUCCESS if found.is_null() => status::SYMBOL_NOT_FOUND,
        // SAFETY: not null, hence valid by the caller's promise.
        status::SUCCESS => unsafe { put(found, NOT_FOUND) },
        failure => failure,
    }
}

pub unsafe fn entry_point_by_version(
    name: *const crate::c_char,
    to: *mut *mut c_void,
    _version: c_uint,
    flags: u64,
    found: *mut c_int,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { entry_point(name, to, flags, found) }
}

/// Tables of functions that the original keeps to itself: there are none.
pub unsafe fn export_table(to: *mut *const c_void, _id: *const c_void) -> Status {
    // SAFETY: the caller's promise.
    match unsafe { put(to, std::ptr::null()) } {
        status::SUCCESS => status::SYMBOL_NOT_FOUND,
        failure => failure,
    }
}
