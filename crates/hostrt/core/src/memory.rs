//! Memory: allocation, registration, copies, fills, attributes, handles for other processes.
//!
//! All memory is the host's, so directions of copies are only checked, and a pointer of one device serves on all.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_hostrt_interface::{Address, CaptureInfo, CopyArea, FillArea, Found, IpcHandle, Status, kind, status};

use crate::entry::{is_hip, put, stream};
use crate::host::host;
use crate::volumes::{Extent, Pitched};
use crate::{c_char, c_int, c_uint, c_void};

/// HIP's copy from device to device that leaves the compute units alone.
const DEVICE_TO_DEVICE_NO_CU: c_int = 1024;
const INVALID_PITCH: Status = 12;
const INVALID_DIRECTION: Status = 21;
const ALREADY_REGISTERED: Status = 712;
const NOT_REGISTERED: Status = 713;
/// Copies from ordinary memory of at most this many bytes return at once, from a copy.
const STAGED: usize = 64 << 10;

/// Memory of the program that it registered, by address: its bytes, and the device of the thread that did.
fn registered() -> MutexGuard<'static, BTreeMap<usize, (usize, c_int)>> {
    static REGISTERED: Mutex<BTreeMap<usize, (usize, c_int)>> = Mutex::new(BTreeMap::new());
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe fn allocate(ptr: *mut *mut c_void, bytes: usize, what: c_int) -> Status {
    if ptr.is_null() {
        return status::INVALID_VALUE;
    }
    host!(memory_alloc(bytes, what, ptr))
}

pub unsafe fn malloc(ptr: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(ptr, bytes, kind::DEVICE) }
}

pub unsafe fn malloc_flags(ptr: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(ptr, bytes, kind::DEVICE) }
}

pub unsafe fn malloc_managed(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status {
    if bytes == 0 || !matches!(flags, 1 | 2 | 4) {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { allocate(ptr, bytes, kind::MANAGED) }
}

pub unsafe fn malloc_host(ptr: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(ptr, bytes, kind::HOST) }
}

/// What host memory was asked for with, by address.
fn host_flags_of() -> MutexGuard<'static, BTreeMap<usize, c_uint>> {
    static FLAGS: Mutex<BTreeMap<usize, c_uint>> = Mutex::new(BTreeMap::new());
    FLAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub unsafe fn host_alloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    let answer = unsafe { allocate(ptr, bytes, kind::HOST) };
    if answer == status::SUCCESS {
        // SAFETY: it was written just now.
        host_flags_of().insert(unsafe { ptr.read() }.addr(), flags);
    }
    answer
}

/// Rows start at multiples of 512 bytes.
pub unsafe fn malloc_pitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> Status {
    let Some(row) = width.checked_next_multiple_of(512) else { return status::INVALID_VALUE };
    let Some(bytes) = row.checked_mul(height) else { return status::OUT_OF_MEMORY };
    // SAFETY: the caller's promise.
    unsafe {
        match put(pitch, row) {
            status::SUCCESS => allocate(ptr, bytes, kind::DEVICE),
            failure => failure,
        }
    }
}

/// Rows start at multiples of 512 bytes; slices follow each other.
pub unsafe fn malloc_3d(to: *mut Pitched, extent: Extent) -> Status {
    if to.is_null() {
        return status::INVALID_VALUE;
    }
    let Extent { width, height, depth } = extent;
    let Some(rows) = height.checked_mul(depth) else { return status::OUT_OF_MEMORY };
    let (mut ptr, mut pitch) = (std::ptr::null_mut(), 0);
    // SAFETY: our own places.
    match unsafe { malloc_pitch(&mut ptr, &mut pitch, width, rows) } {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(to, Pitched { ptr, pitch, width, height }) },
        failure => failure,
    }
}

/// Waits for the work of the memory's device first, as the originals do; of host and managed memory, which any device may use, also for that of
/// the current one. Not for that of all: a rank of another thread may wait there for what this thread calls next.
pub unsafe fn free(ptr: *mut c_void) -> Status {
    if ptr.is_null() {
        return status::SUCCESS;
    }
    let mut found = Found::default();
    if host!(memory_find(ptr, &mut found)) != status::SUCCESS || found.base != ptr.addr() {
        return status::INVALID_VALUE;
    }
    // What went wrong there is not the fault of this call; the streams' next wait tells.
    let _ = host!(device_drain(found.device));
    let current = host!(device_current());
    if found.kind != kind::DEVICE && current != found.device {
        let _ = host!(device_drain(current));
    }
    // Taken out first: behind the call the address may be that of other memory.
    let account = crate::pools::take_out(ptr);
    let flags = host_flags_of().remove(&ptr.addr());
    let answer = host!(memory_free(ptr));
    if answer != status::SUCCESS {
        account.put_back();
        host_flags_of().extend(flags.map(|flags| (ptr.addr(), flags)));
    }
    answer
}

pub unsafe fn register(ptr: *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    if ptr.is_null() || bytes == 0 {
        return status::INVALID_VALUE;
    }
    let mut all = registered();
    let before = all.range(..ptr.addr().saturating_add(bytes)).next_back();
    if before.is_some_and(|(base, (len, _))| base + len > ptr.addr()) {
        return ALREADY_REGISTERED;
    }
    all.insert(ptr.addr(), (bytes, host!(device_current())));
    status::SUCCESS
}

pub unsafe fn unregister(ptr: *mut c_void) -> Status {
    if registered().remove(&ptr.addr()).is_some() { status::SUCCESS } else { NOT_REGISTERED }
}

/// What is known of an address.
pub(crate) fn look_up(ptr: *const c_void) -> Option<Found> {
    let mut found = Found::default();
    if host!(memory_find(ptr, &mut found)) == status::SUCCESS {
        return Some(found);
    }
    let all = registered();
    let (base, (bytes, device)) = all.range(..=ptr.addr()).next_back()?;
    (ptr.addr() - base < *bytes).then_some(Found { base: *base, bytes: *bytes, kind: kind::HOST, device: *device })
}

pub unsafe fn host_device_pointer(to: *mut *mut c_void, ptr: *mut c_void, flags: c_uint) -> Status {
    if flags != 0 || look_up(ptr).is_none() {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, ptr) }
}

pub unsafe fn host_flags(to: *mut c_uint, ptr: *mut c_void) -> Status {
    if look_up(ptr).is_none() {
        return status::INVALID_VALUE;
    }
    // Mapped, which all memory is, and what it was made with.
    let made = host_flags_of().get(&ptr.addr()).copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { put(to, made | 2) }
}

/// `cudaPointerAttributes` of CUDA 12 and 13; the latter has room after it that stays untouched.
#[repr(C)]
pub struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
}

fn attributes_of(ptr: *const c_void) -> Attributes {
    let null = std::ptr::null_mut();
    let Some(found) = look_up(ptr) else {
        return Attributes { kind: kind::UNREGISTERED, device: -1, device_pointer: null, host_pointer: ptr.cast_mut() };
    };
    let host_pointer = if found.kind == kind::DEVICE { null } else { ptr.cast_mut() };
    Attributes { kind: found.kind, device: found.device, device_pointer: ptr.cast_mut(), host_pointer }
}

pub unsafe fn attributes(to: *mut Attributes, ptr: *const c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, attributes_of(ptr)) }
}

/// `hipPointerAttribute_t`.
#[repr(C)]
pub struct HipAttributes {
    common: Attributes,
    managed: c_int,
    flags: c_uint,
}

/// Unlike CUDA, HIP refuses memory that it does not know.
pub unsafe fn attributes_hip(to: *mut HipAttributes, ptr: *const c_void) -> Status {
    let common = attributes_of(ptr);
    if common.kind == kind::UNREGISTERED {
        return status::INVALID_VALUE;
    }
    let managed = c_int::from(common.kind == kind::MANAGED);
    // SAFETY: the caller's promise.
    unsafe { put(to, HipAttributes { common, managed, flags: 0 }) }
}

pub unsafe fn info(free: *mut usize, total: *mut usize) -> Status {
    let (left, all) = crate::device::memory();
    // SAFETY: the caller's promise.
    unsafe {
        match put(free, left) {
            status::SUCCESS => put(total, all),
            failure => failure,
        }
    }
}

pub(crate) fn capturing(s: *mut c_void) -> bool {
    let mut info = CaptureInfo::default();
    host!(capture_info(stream(s), &mut info, std::ptr::null_mut(), 0)) == status::SUCCESS && info.state != 0
}

pub(crate) fn flat(dst: *mut c_void, src: *const c_void, bytes: usize) -> CopyArea {
    rows(dst, 0, src, 0, bytes, 1)
}

fn rows(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
) -> CopyArea {
    let (dst, src) = (Address(dst), Address(src.cast_mut()));
    CopyArea { dst, dst_pitch, src, src_pitch, width, height, dst_slice: 0, src_slice: 0, depth: 1 }
}

fn is_empty(area: &CopyArea) -> bool {
    area.width == 0 || area.height == 0 || area.depth == 0
}

/// Why an area cannot be copied; success when it can.
pub(crate) fn check(area: &CopyArea, direction: c_int) -> Status {
    if is_empty(area) {
        return status::SUCCESS;
    }
    let is_known = (0..=4).contains(&direction) || (direction == DEVICE_TO_DEVICE_NO_CU && is_hip());
    if !is_known {
        return INVALID_DIRECTION;
    }
    if (area.height > 1 || area.depth > 1) && (area.width > area.dst_pitch || area.width > area.src_pitch) {
        return INVALID_PITCH;
    }
    if area.dst.0.is_null() || area.src.0.is_null() { status::INVALID_VALUE } else { status::SUCCESS }
}

/// What a copy comes to of which nothing is to be moved.
fn settled(area: &CopyArea, direction: c_int) -> Option<Status> {
    match check(area, direction) {
        status::SUCCESS if is_empty(area) || area.dst == area.src => Some(status::SUCCESS),
        status::SUCCESS => None,
        failure => Some(failure),
    }
}

/// Whether a call on the default stream that is not named asynchronous returns before its work is done, as with the originals:
/// where only memory of these devices is touched. What frees that memory waits for their work.
fn is_theirs(touched: &[Address], devices: &[c_int]) -> bool {
    let is_of_them = |a: &Address| look_up(a.0).is_some_and(|f| f.kind == kind::DEVICE && devices.contains(&f.device));
    touched.iter().all(is_of_them)
}

/// Goes on with what was enqueued on `s` as far as that waits for nothing.
fn go_ahead(enqueued: Status, s: *mut c_void) -> Status {
    if enqueued == status::SUCCESS { host!(stream_go_ahead(s)) } else { enqueued }
}

pub(crate) unsafe fn copy_and_wait(area: CopyArea, direction: c_int) -> Status {
    if let Some(answer) = settled(&area, direction) {
        return answer;
    }
    let target = stream(std::ptr::null_mut());
    if is_theirs(&[area.dst, area.src], &[host!(device_current())]) {
        return go_ahead(host!(stream_copy_as(target, &area, direction)), target);
    }
    host!(stream_copy_now(target, &area))
}

/// Copies behind all work of the two devices and of the current one, and before all that comes later.
pub(crate) unsafe fn copy_between(area: CopyArea, to: c_int, from: c_int) -> Status {
    if let Some(answer) = settled(&area, 3) {
        return answer;
    }
    let target = stream(std::ptr::null_mut());
    let enqueued = host!(stream_copy_alone(target, &area, to, from));
    if is_theirs(&[area.dst, area.src], &[host!(device_current()), to, from]) {
        return go_ahead(enqueued, target);
    }
    if enqueued == status::SUCCESS { host!(stream_synchronize(target)) } else { enqueued }
}

/// Copies on a stream. The call waits where the originals do: from host memory to host memory, though HIP does not where both are
/// page-locked; and, but for small sources, which are copied, where the source may be used again at once: of ordinary memory, or
/// if `during_call` asks for it.
pub(crate) unsafe fn copy_async(area: CopyArea, direction: c_int, s: *mut c_void, during_call: bool) -> Status {
    if let Some(answer) = settled(&area, direction) {
        return answer;
    }
    let s = stream(s);
    let (source, target) = (look_up(area.src.0), look_up(area.dst.0));
    let (source_known, target_known) = (source.is_some(), target.is_some());
    let is_host = |found: Option<Found>| found.is_none_or(|f| f.kind == kind::HOST);
    let from_host_to_host = is_host(source) && is_host(target) && !(is_hip() && source_known && target_known);
    let keeps = !source_known || during_call;
    let waits = keeps || !target_known || from_host_to_host;
    if !waits || capturing(s) {
        return host!(stream_copy_as(s, &area, direction));
    }
    let is_small = area.height == 1 && area.depth == 1 && area.width <= STAGED;
    if keeps && is_small && target_known && !from_host_to_host {
        return host!(stream_copy_kept(s, area.dst.0, area.src.0, area.width));
    }
    host!(stream_copy_now(s, &area))
}

pub unsafe fn copy(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_and_wait(flat(dst, src, bytes), direction) }
}

pub unsafe fn copy_on(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_async(flat(dst, src, bytes), direction, s, false) }
}

/// HIP's copy on a stream that waits.
pub unsafe fn copy_with_stream(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    direction: c_int,
    s: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    match unsafe { copy_async(flat(dst, src, bytes), direction, s, false) } {
        status::SUCCESS => host!(stream_synchronize(stream(s))),
        failure => failure,
    }
}

/// HIP's copies with the direction in the name.
pub unsafe fn copy_any(dst: *mut c_void, src: *const c_void, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_and_wait(flat(dst, src, bytes), 4) }
}

pub unsafe fn copy_any_on(dst: *mut c_void, src: *const c_void, bytes: usize, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_async(flat(dst, src, bytes), 4, s, false) }
}

pub unsafe fn copy_peer(dst: *mut c_void, to: c_int, src: *const c_void, from: c_int, bytes: usize) -> Status {
    let devices = 0..host!(device_count());
    if !devices.contains(&to) || !devices.contains(&from) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_between(flat(dst, src, bytes), to, from) }
}

pub unsafe fn copy_peer_on(
    dst: *mut c_void,
    to: c_int,
    src: *const c_void,
    from: c_int,
    bytes: usize,
    s: *mut c_void,
) -> Status {
    let devices = 0..host!(device_count());
    if !devices.contains(&to) || !devices.contains(&from) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_async(flat(dst, src, bytes), 3, s, false) }
}

pub unsafe fn copy_2d(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
    direction: c_int,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_and_wait(rows(dst, dst_pitch, src, src_pitch, width, height), direction) }
}

#[allow(clippy::too_many_arguments)] // as in C
pub unsafe fn copy_2d_on(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
    direction: c_int,
    s: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { copy_async(rows(dst, dst_pitch, src, src_pitch, width, height), direction, s, false) }
}

pub(crate) unsafe fn fill_area(area: FillArea, s: *mut c_void, wait: bool) -> Status {
    if area.width == 0 || area.height == 0 {
        return status::SUCCESS;
    }
    if area.dst.0.is_null() || (area.height > 1 && area.pitch < area.width * area.element) {
        return status::INVALID_VALUE;
    }
    let s = stream(s);
    if !wait {
        return host!(stream_fill(s, &area));
    }
    if is_theirs(&[area.dst], &[host!(device_current())]) {
        return go_ahead(host!(stream_fill(s, &area)), s);
    }
    host!(stream_fill_now(s, &area))
}

fn row(dst: *mut c_void, value: c_uint, element: usize, width: usize) -> FillArea {
    FillArea { dst: Address(dst), pitch: 0, value, element, width, height: 1 }
}

const DEFAULT: *mut c_void = std::ptr::null_mut();

pub unsafe fn fill(dst: *mut c_void, value: c_int, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value as c_uint, 1, bytes), DEFAULT, true) }
}

pub unsafe fn fill_on(dst: *mut c_void, value: c_int, bytes: usize, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value as c_uint, 1, bytes), s, false) }
}

pub unsafe fn fill_d32_on(dst: *mut c_void, value: c_int, count: usize, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value as c_uint, 4, count), s, false) }
}

pub unsafe fn fill_d32(dst: *mut c_void, value: c_int, count: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value as c_uint, 4, count), DEFAULT, true) }
}

pub unsafe fn fill_2d(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        fill_area(
            FillArea { dst: Address(dst), pitch, value: value as c_uint, element: 1, width, height },
            DEFAULT,
            true,
        )
    }
}

pub unsafe fn fill_2d_on(
    dst: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    s: *mut c_void,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        fill_area(FillArea { dst: Address(dst), pitch, value: value as c_uint, element: 1, width, height }, s, false)
    }
}

pub unsafe fn ipc_get(handle: *mut IpcHandle, ptr: *mut c_void) -> Status {
    host!(ipc_export(ptr, handle))
}

/// `cudaIpcMemHandle_t` by value: 64 bytes, passed in memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handle {
    bytes: [c_char; 64],
}

pub unsafe fn ipc_open(ptr: *mut *mut c_void, handle: Handle, _flags: c_uint) -> Status {
    if ptr.is_null() {
        return status::INVALID_VALUE;
    }
    host!(ipc_open((&raw const handle).cast(), ptr))
}

pub unsafe fn ipc_close(ptr: *mut c_void) -> Status {
    host!(ipc_close(ptr))
}

pub unsafe fn address_range(base: *mut *mut c_void, bytes: *mut usize, ptr: *mut c_void) -> Status {
    let Some(found) = look_up(ptr) else { return 500 };
    if !bytes.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { bytes.write(found.bytes) };
    }
    if !base.is_null() {
        // SAFETY: as above.
        unsafe { base.write(std::ptr::with_exposed_provenance_mut(found.base)) };
    }
    status::SUCCESS
}

pub unsafe fn fill_d8(dst: *mut c_void, value: u8, count: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value.into(), 1, count), DEFAULT, true) }
}

pub unsafe fn fill_d8_on(dst: *mut c_void, value: u8, count: usize, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value.into(), 1, count), s, false) }
}

pub unsafe fn fill_d16(dst: *mut c_void, value: u16, count: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value.into(), 2, count), DEFAULT, true) }
}

pub unsafe fn fill_d16_on(dst: *mut c_void, value: u16, count: usize, s: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    unsafe { fill_area(row(dst, value.into(), 2, count), s, false) }
}

/// HIP's, with the size of an element, which changes nothing here.
pub unsafe fn alloc_pitch(
    ptr: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _element: c_uint,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { malloc_pitch(ptr, pitch, width, height) }
}

/// Bytes of the allocation that begins at `ptr`.
pub unsafe fn size_of_allocation(ptr: *mut c_void, bytes: *mut usize) -> Status {
    match look_up(ptr) {
        // SAFETY: the caller's promise.
        Some(found) if found.base == ptr.addr() => unsafe { put(bytes, found.bytes) },
        _ => status::INVALID_VALUE,
    }
}
