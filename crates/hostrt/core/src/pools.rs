//! Memory pools: accounts of stream-ordered memory. Memory itself comes from the host device and goes back at once, so a
//! pool holds nothing in reserve; its attributes are kept and told, and count what is in use.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oxccl_hostrt_interface::{Found, Status, StreamInfo, status};

use crate::entry::{put, stream};
use crate::host::host;
use crate::memory::capturing;
use crate::{c_int, c_void};

/// `cudaMemPoolProps`; HIP's has the same layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    pub(crate) kind: c_int,
    pub(crate) handles: c_int,
    pub(crate) location: [c_int; 2],
    pub(crate) security: *mut c_void,
    pub(crate) most: usize,
    pub(crate) reserved: [u64; 7],
}

const _: () = assert!(size_of::<Properties>() == 88);

/// `cudaMemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    location: [c_int; 2],
    flags: c_int,
}

pub(crate) const PINNED: c_int = 1;
pub(crate) const ON_DEVICE: c_int = 1;
const READ_WRITE: c_int = 3;

struct Pool {
    device: c_int,
    is_default: bool,
    most: usize,
    /// Reuse along events, opportunistic, by added dependencies.
    reuse: [c_int; 3],
    threshold: u64,
    used: u64,
    used_high: u64,
    access: BTreeMap<c_int, c_int>,
}

impl Pool {
    fn new(device: c_int, is_default: bool, most: usize) -> Pool {
        let access = BTreeMap::new();
        Pool { device, is_default, most, reuse: [1; 3], threshold: 0, used: 0, used_high: 0, access }
    }
}

struct State {
    pools: BTreeMap<usize, Pool>,
    /// Pools by device: those that were there from the start, and those in use.
    defaults: BTreeMap<c_int, usize>,
    current: BTreeMap<c_int, usize>,
    /// Live allocations: their pool and bytes.
    live: BTreeMap<usize, (usize, u64)>,
    made: usize,
    /// The most that graphs used and held.
    graphs: [u64; 2],
}

fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State {
        pools: BTreeMap::new(),
        defaults: BTreeMap::new(),
        current: BTreeMap::new(),
        live: BTreeMap::new(),
        made: 0,
        graphs: [0; 2],
    });
    // Valid between statements.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn add(&mut self, pool: Pool) -> usize {
        // Numbers that nobody reads through.
        self.made += 1;
        let handle = self.made * 16;
        self.pools.insert(handle, pool);
        handle
    }

    fn default_of(&mut self, device: c_int) -> usize {
        if let Some(handle) = self.defaults.get(&device) {
            return *handle;
        }
        let handle = self.add(Pool::new(device, true, 0));
        self.defaults.insert(device, handle);
        handle
    }

    fn current_of(&mut self, device: c_int) -> usize {
        match self.current.get(&device).copied() {
            Some(handle) if self.pools.contains_key(&handle) => handle,
            _ => self.default_of(device),
        }
    }

    fn pool(&mut self, handle: *mut c_void) -> Result<&mut Pool, Status> {
        self.pools.get_mut(&handle.addr()).ok_or(status::INVALID_VALUE)
    }
}

fn exists(device: c_int) -> bool {
    crate::host::device().is_some() && (0..host!(device_count())).contains(&device)
}

fn handle_of(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

/// The outcome of a body that ends early with an error number.
fn done(outcome: Result<(), Status>) -> Status {
    outcome.err().unwrap_or(status::SUCCESS)
}

pub unsafe fn default_pool(to: *mut *mut c_void, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, handle_of(state().default_of(device))) }
}

pub unsafe fn current_pool(to: *mut *mut c_void, device: c_int) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { put(to, handle_of(state().current_of(device))) }
}

pub unsafe fn set_current_pool(device: c_int, pool: *mut c_void) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let mut state = state();
    match state.pool(pool) {
        Ok(p) if p.device == device => {}
        _ => return status::INVALID_VALUE,
    }
    state.current.insert(device, pool.addr());
    status::SUCCESS
}

/// A location `{type, id}`; only devices have pools here.
pub(crate) unsafe fn device_at(location: *const [c_int; 2]) -> Result<c_int, Status> {
    if location.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: not null, hence valid by the caller's promise.
    match unsafe { location.read() } {
        [ON_DEVICE, device] if exists(device) => Ok(device),
        [ON_DEVICE, _] => Err(status::INVALID_DEVICE),
        _ => Err(status::NOT_SUPPORTED),
    }
}

pub unsafe fn default_pool_at(to: *mut *mut c_void, location: *const [c_int; 2], _kind: c_int) -> Status {
    // SAFETY: the caller's promise.
    done(unsafe { device_at(location) }.and_then(|d| result(unsafe { default_pool(to, d) })))
}

pub unsafe fn current_pool_at(to: *mut *mut c_void, location: *const [c_int; 2], _kind: c_int) -> Status {
    // SAFETY: the caller's promise.
    done(unsafe { device_at(location) }.and_then(|d| result(unsafe { current_pool(to, d) })))
}

pub unsafe fn set_current_pool_at(location: *const [c_int; 2], _kind: c_int, pool: *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    done(unsafe { device_at(location) }.and_then(|d| result(unsafe { set_current_pool(d, pool) })))
}

fn result(answer: Status) -> Result<(), Status> {
    if answer == status::SUCCESS { Ok(()) } else { Err(answer) }
}

pub unsafe fn create(to: *mut *mut c_void, properties: *const Properties) -> Status {
    if to.is_null() || properties.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    let p = unsafe { properties.read() };
    if p.kind != PINNED {
        return status::INVALID_VALUE;
    }
    // Pools that are handed to other processes by descriptors.
    if p.handles != 0 {
        return status::NOT_SUPPORTED;
    }
    // SAFETY: our own place.
    match unsafe { device_at(&p.location) } {
        // SAFETY: not null, hence valid by the caller's promise.
        Ok(device) => unsafe { put(to, handle_of(state().add(Pool::new(device, false, p.most)))) },
        Err(failure) => failure,
    }
}

/// Memory that is in use stays until it is freed.
pub unsafe fn destroy(pool: *mut c_void) -> Status {
    let mut state = state();
    match state.pool(pool) {
        Ok(p) if !p.is_default => {}
        _ => return status::INVALID_VALUE,
    }
    state.pools.remove(&pool.addr());
    state.current.retain(|_, p| *p != pool.addr());
    status::SUCCESS
}

pub unsafe fn trim(pool: *mut c_void, _keep: usize) -> Status {
    done(state().pool(pool).map(drop))
}

/// The attributes with a number of 32 bits, by their numbers; the others have one of 64.
const REUSE: std::ops::RangeInclusive<c_int> = 1..=3;

pub unsafe fn get_attribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> Status {
    let mut state = state();
    let p = match state.pool(pool) {
        Ok(p) => p,
        Err(failure) => return failure,
    };
    if REUSE.contains(&attribute) {
        // SAFETY: the caller's promise.
        return unsafe { put(value.cast(), p.reuse[attribute as usize - 1]) };
    }
    let found = match attribute {
        4 => p.threshold,
        5 | 7 => p.used,
        6 | 8 => p.used_high,
        _ => return status::INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    unsafe { put(value.cast(), found) }
}

pub unsafe fn set_attribute(pool: *mut c_void, attribute: c_int, value: *const c_void) -> Status {
    if value.is_null() {
        return status::INVALID_VALUE;
    }
    let mut state = state();
    let p = match state.pool(pool) {
        Ok(p) => p,
        Err(failure) => return failure,
    };
    if REUSE.contains(&attribute) {
        // SAFETY: not null, hence a number of 32 bits by the caller's promise.
        p.reuse[attribute as usize - 1] = unsafe { value.cast::<c_int>().read() };
        return status::SUCCESS;
    }
    if !matches!(attribute, 4 | 6 | 8) {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence a number of 64 bits by the caller's promise.
    match (attribute, unsafe { value.cast::<u64>().read() }) {
        (4, threshold) => p.threshold = threshold,
        // High marks can only be set back.
        (_, 0) => p.used_high = p.used,
        _ => return status::INVALID_VALUE,
    }
    status::SUCCESS
}

/// Kept and told; all memory can be reached from everywhere here.
pub unsafe fn set_access(pool: *mut c_void, list: *const Access, count: usize) -> Status {
    if list.is_null() && count > 0 {
        return status::INVALID_VALUE;
    }
    // SAFETY: the caller promises `count` entries.
    let wanted: Vec<Access> = (0..count).map(|i| unsafe { list.add(i).read() }).collect();
    for a in &wanted {
        // SAFETY: our own place.
        match unsafe { device_at(&a.location) } {
            Ok(_) if matches!(a.flags, 0 | 1 | READ_WRITE) => {}
            Ok(_) => return status::INVALID_VALUE,
            Err(failure) => return failure,
        }
    }
    let mut state = state();
    let p = match state.pool(pool) {
        Ok(p) => p,
        Err(failure) => return failure,
    };
    // The pool's own device always reaches it.
    if wanted.iter().any(|a| a.location[1] == p.device && a.flags != READ_WRITE) {
        return status::INVALID_DEVICE;
    }
    p.access.extend(wanted.iter().map(|a| (a.location[1], a.flags)));
    status::SUCCESS
}

pub unsafe fn get_access(flags: *mut c_int, pool: *mut c_void, location: *const [c_int; 2]) -> Status {
    // SAFETY: the caller's promise.
    let device = match unsafe { device_at(location) } {
        Ok(device) => device,
        Err(failure) => return failure,
    };
    let mut state = state();
    let found = match state.pool(pool) {
        Ok(p) if p.device == device => READ_WRITE,
        Ok(p) => p.access.get(&device).copied().unwrap_or(0),
        Err(failure) => return failure,
    };
    // SAFETY: the caller's promise.
    unsafe { put(flags, found) }
}

pub unsafe fn malloc_async(ptr: *mut *mut c_void, bytes: usize, s: *mut c_void) -> Status {
    let mut info = StreamInfo::default();
    match host!(stream_info(stream(s), &mut info)) {
        status::SUCCESS => {}
        failure => return failure,
    }
    let pool = handle_of(state().current_of(info.device));
    // SAFETY: the caller's promise.
    unsafe { malloc_from_pool(ptr, bytes, pool, s) }
}

pub unsafe fn malloc_from_pool(ptr: *mut *mut c_void, bytes: usize, pool: *mut c_void, s: *mut c_void) -> Status {
    if ptr.is_null() {
        return status::INVALID_VALUE;
    }
    let device = match state().pool(pool) {
        Ok(p) if p.most > 0 && p.used.saturating_add(bytes as u64) > p.most as u64 => return status::OUT_OF_MEMORY,
        Ok(p) => p.device,
        Err(failure) => return failure,
    };
    // Memory of a graph is the graph's, not the pool's.
    let graph = capturing(s);
    let answer = host!(stream_alloc_on(stream(s), bytes, device, ptr));
    if answer != status::SUCCESS {
        return answer;
    }
    if graph {
        note_graphs();
    } else if bytes > 0 {
        // SAFETY: written just now.
        let at = unsafe { ptr.read() }.addr();
        let mut state = state();
        state.live.insert(at, (pool.addr(), bytes as u64));
        if let Ok(p) = state.pool(pool) {
            p.used += bytes as u64;
            p.used_high = p.used_high.max(p.used);
        }
    }
    status::SUCCESS
}

/// What the accounts said of memory that goes: its address, pool and bytes.
#[must_use]
pub(crate) struct Account(Option<(usize, usize, u64)>);

/// The memory at `ptr` goes.
pub(crate) fn take_out(ptr: *mut c_void) -> Account {
    let mut state = state();
    let Some((pool, bytes)) = state.live.remove(&ptr.addr()) else { return Account(None) };
    if let Some(p) = state.pools.get_mut(&pool) {
        p.used -= bytes;
    }
    Account(Some((ptr.addr(), pool, bytes)))
}

impl Account {
    /// It does not go: the call was refused.
    pub(crate) fn put_back(self) {
        let Some((at, pool, bytes)) = self.0 else { return };
        let mut state = state();
        state.live.insert(at, (pool, bytes));
        if let Some(p) = state.pools.get_mut(&pool) {
            p.used += bytes;
        }
    }
}

pub unsafe fn free_async(ptr: *mut c_void, s: *mut c_void) -> Status {
    if ptr.is_null() {
        return status::SUCCESS;
    }
    let mut found = Found::default();
    if host!(memory_find(ptr, &mut found)) != status::SUCCESS || found.base != ptr.addr() {
        return status::INVALID_VALUE;
    }
    // As in `free`. Memory of a graph has no account.
    let account = if capturing(s) { Account(None) } else { take_out(ptr) };
    let answer = host!(stream_free(stream(s), ptr));
    if answer != status::SUCCESS {
        account.put_back();
    }
    answer
}

/// Bytes that graphs use and hold, and the most of both.
fn graphs_now() -> ([u64; 2], [u64; 2]) {
    let (mut held, mut used) = (0, 0);
    let _ = host!(graph_memory(&mut held, &mut used));
    let now = [used as u64, held as u64];
    let mut state = state();
    for (most, now) in state.graphs.iter_mut().zip(now) {
        *most = (*most).max(now);
    }
    (now, state.graphs)
}

/// Looks how much memory graphs have, so that the high marks are true.
pub(crate) fn note_graphs() {
    graphs_now();
}

/// Whether graphs ever had memory.
pub(crate) fn graphs_have_memory() -> bool {
    state().graphs[1] > 0
}

/// `attribute`: 0 used, 1 used at most, 2 held, 3 held at most.
pub unsafe fn graph_attribute(device: c_int, attribute: c_int, value: *mut u64) -> Status {
    if !exists(device) {
        return status::INVALID_DEVICE;
    }
    let (now, most) = graphs_now();
    let found = match attribute {
        0 | 2 => now[attribute as usize / 2],
        1 | 3 => most[attribute as usize / 2],
        _ => return status::INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    unsafe { put(value, found) }
}

pub unsafe fn set_graph_attribute(device: c_int, attribute: c_int, value: *const u64) -> Status {
    // SAFETY: not null, hence valid by the caller's promise.
    if !exists(device) || !matches!(attribute, 1 | 3) || value.is_null() || unsafe { value.read() } != 0 {
        return status::INVALID_VALUE;
    }
    let (now, _) = graphs_now();
    state().graphs[attribute as usize / 2] = now[attribute as usize / 2];
    status::SUCCESS
}

pub unsafe fn graph_trim(device: c_int) -> Status {
    if exists(device) { status::SUCCESS } else { status::INVALID_DEVICE }
}

/// What is known of managed memory: nothing was advised or fetched. `attribute`: 1 mostly read, 2 preferred location,
/// 3 accessed by, 4 last prefetch, and locations by type and number.
pub unsafe fn range_attribute(
    data: *mut c_int,
    bytes: usize,
    attribute: c_int,
    ptr: *const c_void,
    _count: usize,
) -> Status {
    const NOWHERE: c_int = -2;
    if data.is_null() || bytes == 0 || !bytes.is_multiple_of(4) || crate::memory::look_up(ptr).is_none() {
        return status::INVALID_VALUE;
    }
    let found = match attribute {
        1 | 5 | 7 => 0,
        2..=4 | 6 | 8 => NOWHERE,
        _ => return status::INVALID_VALUE,
    };
    for i in 0..bytes / 4 {
        // SAFETY: within the bytes that the caller promises.
        unsafe { data.add(i).write_unaligned(found) };
    }
    status::SUCCESS
}

pub unsafe fn range_attributes(
    data: *const *mut c_int,
    bytes: *const usize,
    attributes: *const c_int,
    count: usize,
    ptr: *const c_void,
    length: usize,
) -> Status {
    if data.is_null() || bytes.is_null() || attributes.is_null() {
        return status::INVALID_VALUE;
    }
    for i in 0..count {
        // SAFETY: the caller promises `count` entries in each list.
        let answer =
            unsafe { range_attribute(data.add(i).read(), bytes.add(i).read(), attributes.add(i).read(), ptr, length) };
        if answer != status::SUCCESS {
            return answer;
        }
    }
    status::SUCCESS
}
