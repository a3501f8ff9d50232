//! The table by which the host implementations of the CUDA and HIP runtimes (`crates/hostrt`) reach the host device.
//!
//! Thin: each function translates handles and results. What went wrong is kept per thread as a text; it is not logged,
//! since programs ask the runtimes for errors as a matter of course.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use crate::host_graphs::*;
use crate::memory::check_size;
use oxccl_hostrt_interface as hi;
use oxccl_hostrt_interface::{HostInterface, Status, kind, status};
use oxccl_runtime::device::{
    self, Area, CaptureMode, Event, EventOptions, Fill, GraphMemory, MemoryKind, Stream, StreamOptions,
};
use oxccl_types::Error;

/// A failure: its number and its words.
pub(crate) struct Failed(pub Status, pub String);

pub(crate) type Done = Result<(), Failed>;

/// Gives an error of the runtime its number.
pub(crate) fn failed(status: Status) -> impl Fn(Error) -> Failed {
    move |e| Failed(status, e.into_text())
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of one function of the table: nothing unwinds, the text of a failure is kept.
pub(crate) fn run(body: impl FnOnce() -> Done) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Failed(status::UNKNOWN, "internal error of the host device; please report it".into())));
    match outcome {
        Ok(()) => status::SUCCESS,
        Err(Failed(code, text)) => {
            if code != status::NOT_READY {
                let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
                // A thread that ends, or the process, may have no such place any more.
                let _ = LAST.try_with(|last| *last.borrow_mut() = text);
            }
            code
        }
    }
}

/// Writes a result.
///
/// # Safety
/// `to` is null or valid for writing.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Done {
    if to.is_null() {
        return Err(Failed(status::INVALID_VALUE, "a result pointer is NULL".into()));
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

pub(crate) fn stream(handle: hi::Stream) -> Result<Stream, Failed> {
    Stream::from_raw(handle).map_err(failed(status::INVALID_HANDLE))
}

pub(crate) fn event(handle: hi::Event) -> Result<Event, Failed> {
    Event::from_raw(handle).map_err(failed(status::INVALID_HANDLE))
}

/// A stream for work: not the default stream when it would have to wait for one that captures, nor one of a broken capture.
pub(crate) fn work_stream(handle: hi::Stream) -> Result<Stream, Failed> {
    if handle.addr() <= 1 && device::implicates_capture(device::current()) {
        let text = "work on the default stream would wait for a stream that captures; its capture is broken";
        return Err(Failed(status::CAPTURE_IMPLICIT, text.into()));
    }
    let s = stream(handle)?;
    if s.capture_state().is_some_and(|(_, is_broken)| is_broken) {
        let text = "the capture of the stream was broken by an earlier call; end it and begin anew";
        return Err(Failed(status::CAPTURE_INVALIDATED, text.into()));
    }
    Ok(s)
}

thread_local! {
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

pub(crate) fn capture_mode(number: c_int) -> Result<CaptureMode, Failed> {
    match number {
        0 => Ok(CaptureMode::Global),
        1 => Ok(CaptureMode::ThreadLocal),
        2 => Ok(CaptureMode::Relaxed),
        _ => Err(Failed(status::INVALID_VALUE, format!("{number} is no mode of capture (valid: 0, 1, 2)"))),
    }
}

unsafe extern "C" fn capture_thread_mode(mode: *mut c_int) -> Status {
    run(|| {
        if mode.is_null() {
            return Err(Failed(status::INVALID_VALUE, "the mode pointer is NULL".into()));
        }
        // SAFETY: not null, hence valid by the caller's promise.
        let before = MODE.replace(capture_mode(unsafe { mode.read() })?);
        // SAFETY: as above.
        unsafe { mode.write(before as c_int) };
        Ok(())
    })
}

/// Refuses a call that could disturb a capture, as the originals do; the thread's mode says which captures it minds.
fn not_unsafe(what: &str) -> Done {
    if device::permits_unsafe_call(MODE.get()) {
        return Ok(());
    }
    let text =
        format!("{what} is not allowed while a stream captures (the capture is broken); capture in the relaxed mode");
    Err(Failed(status::CAPTURE_UNSUPPORTED, text))
}

pub(crate) fn device_of(device: c_int) -> Result<usize, Failed> {
    usize::try_from(device).ok().filter(|d| *d < device::count()).ok_or_else(|| {
        let text = format!(
            "device {device} does not exist: there are {}; OXCCL_HOST_DEVICES sets their number",
            device::count()
        );
        Failed(status::INVALID_DEVICE, text)
    })
}

fn not_capturing(s: &Stream) -> Done {
    // The call itself breaks the capture and says so; this only finds the number.
    match s.capture_state() {
        None => Ok(()),
        Some(_) => {
            let text = s.synchronize().err().map_or_else(String::new, Error::into_text);
            Err(Failed(status::CAPTURE_UNSUPPORTED, text))
        }
    }
}

unsafe extern "C" fn device_count() -> c_int {
    device::count() as c_int
}

unsafe extern "C" fn device_current() -> c_int {
    device::current() as c_int
}

unsafe extern "C" fn device_set(device: c_int) -> Status {
    run(|| device::set_current(device_of(device)?).map_err(failed(status::INVALID_DEVICE)))
}

unsafe extern "C" fn device_synchronize(device: c_int) -> Status {
    run(|| device::synchronize(device_of(device)?).map_err(failed(status::LAUNCH_FAILURE)))
}

unsafe extern "C" fn device_drain(device: c_int) -> Status {
    run(|| device::drain(device_of(device)?).map_err(failed(status::LAUNCH_FAILURE)))
}

unsafe extern "C" fn memory_alloc(bytes: usize, what: c_int, ptr: *mut *mut c_void) -> Status {
    run(|| {
        not_unsafe("an allocation")?;
        let what = match what {
            kind::HOST => MemoryKind::Host,
            kind::MANAGED => MemoryKind::Managed,
            _ => MemoryKind::Device,
        };
        check_size(bytes).map_err(failed(status::OUT_OF_MEMORY))?;
        let memory = device::alloc_as(bytes, what).map_err(failed(status::OUT_OF_MEMORY))?;
        // SAFETY: the caller's promise.
        unsafe { put(ptr, memory.cast()) }
    })
}

unsafe extern "C" fn memory_free(ptr: *mut c_void) -> Status {
    run(|| {
        not_unsafe("freeing memory")?;
        free(ptr)
    })
}

/// Frees memory; memory of a graph stays the graph's, for its next launch. Other memory goes behind the work of all devices,
/// each of which may use it; nobody waits for that here.
fn free(ptr: *mut c_void) -> Done {
    if let Ok(memory) = GraphMemory::find(ptr.cast()) {
        memory.set_live(false);
        return Ok(());
    }
    if ptr.is_null() {
        return Ok(());
    }
    // SAFETY: the runtime knows its own allocations and refuses all others; no call uses freed memory by contract.
    unsafe { device::free_behind(ptr.cast(), |_| true) }.map_err(failed(status::INVALID_VALUE))
}

unsafe extern "C" fn stream_alloc(handle: hi::Stream, bytes: usize, ptr: *mut *mut c_void) -> Status {
    run(|| {
        let s = work_stream(handle)?;
        // SAFETY: the caller's promise.
        unsafe { alloc_in_order(&s, bytes, s.device(), ptr) }
    })
}

unsafe extern "C" fn stream_alloc_on(handle: hi::Stream, bytes: usize, device: c_int, ptr: *mut *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { alloc_in_order(&work_stream(handle)?, bytes, device_of(device)?, ptr) })
}

/// # Safety
/// `ptr` is writable.
unsafe fn alloc_in_order(s: &Stream, bytes: usize, device: usize, ptr: *mut *mut c_void) -> Done {
    check_size(bytes).map_err(failed(status::OUT_OF_MEMORY))?;
    let memory = match s.capture_alloc(bytes, device).map_err(failed(status::OUT_OF_MEMORY))? {
        Some(memory) => memory,
        None => device::alloc_on(bytes, MemoryKind::Device, device).map_err(failed(status::OUT_OF_MEMORY))?,
    };
    // SAFETY: the caller's promise.
    unsafe { put(ptr, memory.cast()) }
}

unsafe extern "C" fn stream_free(handle: hi::Stream, ptr: *mut c_void) -> Status {
    run(|| {
        let s = work_stream(handle)?;
        if s.capture_free(ptr.cast()).map_err(failed(status::INVALID_VALUE))? {
            return Ok(());
        }
        if let Ok(memory) = GraphMemory::find(ptr.cast()) {
            // As launches do, at once: a later one uses it again. It stays where it is until the stream comes here.
            memory.set_live(false);
            return s.call_own(Box::new(move || drop(memory))).map_err(failed(status::INVALID_VALUE));
        }
        let known = device::allocation(ptr.addr()).is_some_and(|a| a.base == ptr.addr());
        if !known {
            return Err(Failed(status::INVALID_VALUE, format!("{ptr:p} is not the start of an allocation")));
        }
        let data = UserData(ptr);
        let free = move || {
            let data = &data;
            // SAFETY: as in `free`. The address was looked up when the call was made; freeing it twice is the caller's error, and
            // changes nothing.
            let _ = unsafe { device::free(data.0.cast()) };
        };
        s.call_own(Box::new(free)).map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn graph_memory(held: *mut usize, used: *mut usize) -> Status {
    let (all, live) = GraphMemory::totals();
    // SAFETY: the caller's promise.
    run(|| unsafe { put(held, all).and(put(used, live)) })
}

unsafe extern "C" fn memory_find(ptr: *const c_void, found: *mut hi::Found) -> Status {
    run(|| {
        let text = || format!("{ptr:p} is not memory of the host device");
        let imported = opened().range(..=ptr.addr()).next_back().map(|(base, o)| (*base, o.bytes, o.device));
        let imported = imported.filter(|(base, bytes, _)| ptr.addr() - base < *bytes);
        let at = match (device::allocation(ptr.addr()), imported) {
            (Some(a), _) => {
                let kind = match a.label.kind {
                    MemoryKind::Host => kind::HOST,
                    MemoryKind::Device => kind::DEVICE,
                    MemoryKind::Managed => kind::MANAGED,
                };
                hi::Found { base: a.base, bytes: a.bytes, kind, device: a.label.device as c_int }
            }
            (None, Some((base, bytes, device))) => {
                hi::Found { base, bytes, kind: kind::DEVICE, device: device as c_int }
            }
            (None, None) => return Err(Failed(status::INVALID_VALUE, text())),
        };
        // SAFETY: the caller's promise.
        unsafe { put(found, at) }
    })
}

/// Memory of another process that is mapped here.
struct Opened {
    // Dropped last user first: it unmaps.
    _memory: Box<dyn std::any::Any + Send>,
    shared: device::Shared,
    bytes: usize,
    /// That of the thread that opened it.
    device: usize,
    users: usize,
}

fn opened() -> MutexGuard<'static, BTreeMap<usize, Opened>> {
    static OPENED: Mutex<BTreeMap<usize, Opened>> = Mutex::new(BTreeMap::new());
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

const IPC_MAGIC: u64 = u64::from_le_bytes(*b"oxcclmem");

const IPC_EVENT: u64 = u64::from_le_bytes(*b"oxcclevt");

fn handle_of(magic: u64, s: &device::Shared) -> hi::IpcHandle {
    let words = [magic, u64::from(s.pid), s.fd as u64, s.inode, s.offset, s.bytes, 0, 0];
    let mut bytes = [0; 64];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// # Safety
/// `handle` is null or readable.
unsafe fn behind(magic: u64, handle: *const hi::IpcHandle) -> Result<device::Shared, Failed> {
    if handle.is_null() {
        return Err(Failed(status::INVALID_VALUE, "the handle is NULL".into()));
    }
    // SAFETY: not null, hence 64 readable bytes by the caller's promise.
    let bytes = unsafe { handle.read_unaligned() };
    let mut words = [0; 8];
    for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        // Chunks of exactly eight bytes fit.
        *word = u64::from_le_bytes(from.try_into().unwrap_or_default());
    }
    let [found, pid, fd, inode, offset, bytes, ..] = words;
    if found != magic {
        return Err(Failed(status::INVALID_HANDLE, "this is no such handle of the host device".into()));
    }
    Ok(device::Shared { pid: pid as u32, fd: fd as i32, inode, offset, bytes })
}

unsafe extern "C" fn ipc_export(ptr: *const c_void, handle: *mut hi::IpcHandle) -> Status {
    run(|| {
        let s = device::share(ptr.addr()).map_err(failed(status::INVALID_VALUE))?;
        // SAFETY: the caller's promise.
        unsafe { put(handle, handle_of(IPC_MAGIC, &s)) }
    })
}

unsafe extern "C" fn event_export(e: hi::Event, handle: *mut hi::IpcHandle) -> Status {
    run(|| {
        let s = event(e)?.share().map_err(failed(status::INVALID_HANDLE))?;
        // SAFETY: the caller's promise.
        unsafe { put(handle, handle_of(IPC_EVENT, &s)) }
    })
}

unsafe extern "C" fn event_open(handle: *const hi::IpcHandle, out: *mut hi::Event) -> Status {
    run(|| {
        if out.is_null() {
            return Err(Failed(status::INVALID_VALUE, "the event pointer is NULL".into()));
        }
        // SAFETY: the caller's promise.
        let shared = unsafe { behind(IPC_EVENT, handle) }?;
        let event = Event::open(&shared).map_err(failed(status::MAP_FAILED))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, event.into_raw()) }
    })
}

unsafe extern "C" fn ipc_open(handle: *const hi::IpcHandle, ptr: *mut *mut c_void) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { behind(IPC_MAGIC, handle) }?;
        let device::Shared { offset, bytes, .. } = shared;
        let mut opened = opened();
        if let Some((at, o)) = opened.iter_mut().find(|(_, o)| o.shared == shared) {
            o.users += 1;
            // SAFETY: the caller's promise.
            return unsafe { put(ptr, std::ptr::with_exposed_provenance_mut(*at)) };
        }
        let memory = device::open_shared(&shared).map_err(failed(status::MAP_FAILED))?;
        let at = memory.at(offset as usize, bytes as usize);
        let device = device::current();
        let entry = Opened { _memory: Box::new(memory), shared, bytes: bytes as usize, device, users: 1 };
        opened.insert(at.expose_provenance(), entry);
        // SAFETY: the caller's promise.
        unsafe { put(ptr, at.cast()) }
    })
}

unsafe extern "C" fn ipc_close(ptr: *mut c_void) -> Status {
    run(|| {
        let mut is_drained = false;
        loop {
            let mut opened = opened();
            let Some(o) = opened.get_mut(&ptr.addr()) else {
                return Err(Failed(status::INVALID_VALUE, format!("{ptr:p} was not opened from a memory handle")));
            };
            if o.users > 1 {
                o.users -= 1;
                return Ok(());
            }
            if is_drained {
                let gone = opened.remove(&ptr.addr());
                drop(opened);
                // Behind what other devices still have to do with it.
                device::behind(|_| true, Box::new(move || drop(gone)));
                return Ok(());
            }
            // The last user goes: work of the device that opened it, or of the current one, may use the memory. Behind the lock, which that
            // work may need. What went wrong there is not the fault of the call; the streams' next wait tells.
            let devices = [o.device, device::current()];
            drop(opened);
            devices.into_iter().for_each(|device| drop(device::drain(device)));
            is_drained = true;
        }
    })
}

unsafe extern "C" fn stream_create(blocking: c_int, priority: c_int, out: *mut hi::Stream) -> Status {
    run(|| {
        if out.is_null() {
            return Err(Failed(status::INVALID_VALUE, "the stream pointer is NULL".into()));
        }
        let new = Stream::with(StreamOptions { blocking: blocking != 0, priority });
        // SAFETY: the caller's promise.
        unsafe { put(out, new.into_raw()) }
    })
}

unsafe extern "C" fn stream_destroy(handle: hi::Stream) -> Status {
    run(|| {
        stream(handle)?;
        if handle.addr() <= 2 {
            return Err(Failed(status::INVALID_HANDLE, "a default stream cannot be destroyed".into()));
        }
        Stream::release_raw(handle).map_err(failed(status::INVALID_HANDLE))
    })
}

unsafe extern "C" fn stream_synchronize(handle: hi::Stream) -> Status {
    run(|| {
        let s = work_stream(handle)?;
        not_capturing(&s)?;
        s.synchronize().map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn stream_query(handle: hi::Stream) -> Status {
    run(|| {
        let s = work_stream(handle)?;
        not_capturing(&s)?;
        match s.query().map_err(failed(status::LAUNCH_FAILURE))? {
            true => Ok(()),
            false => Err(Failed(status::NOT_READY, String::new())),
        }
    })
}

unsafe extern "C" fn stream_info(handle: hi::Stream, info: *mut hi::StreamInfo) -> Status {
    run(|| {
        let s = stream(handle)?;
        let o = s.options();
        let found = hi::StreamInfo {
            blocking: c_int::from(o.blocking),
            priority: o.priority,
            device: s.device() as c_int,
            number: s.number(),
        };
        // SAFETY: the caller's promise.
        unsafe { put(info, found) }
    })
}

unsafe extern "C" fn stream_wait_event(handle: hi::Stream, e: hi::Event, external: c_int) -> Status {
    run(|| {
        let tag = [e.expose_provenance(), 0];
        let (s, e) = (work_stream(handle)?, event(e)?);
        let is_legacy = s.same(&Stream::default_of(s.device()));
        let code = match e.is_capture_broken() {
            Some(true) => status::CAPTURE_INVALIDATED,
            Some(false) if is_legacy => status::CAPTURE_IMPLICIT,
            _ => status::CAPTURE_ISOLATION,
        };
        let waits = if external != 0 { s.wait_external(&e, tag) } else { s.wait(&e) };
        waits.map_err(failed(code))
    })
}

pub(crate) fn area_of(a: &hi::CopyArea) -> Area {
    Area {
        dst: a.dst.0.cast(),
        dst_pitch: a.dst_pitch,
        src: a.src.0.cast(),
        src_pitch: a.src_pitch,
        width: a.width,
        height: a.height,
        dst_slice: a.dst_slice,
        src_slice: a.src_slice,
        depth: a.depth,
    }
}

pub(crate) fn fill_of(a: &hi::FillArea) -> Fill {
    Fill {
        dst: a.dst.0.cast(),
        pitch: a.pitch,
        value: a.value,
        element: a.element.clamp(1, 4),
        width: a.width,
        height: a.height,
    }
}

unsafe extern "C" fn stream_copy(handle: hi::Stream, area: *const hi::CopyArea) -> Status {
    const DEFAULT: c_int = 4;
    // SAFETY: the caller's promise.
    unsafe { stream_copy_as(handle, area, DEFAULT) }
}

unsafe extern "C" fn stream_copy_as(handle: hi::Stream, area: *const hi::CopyArea, direction: c_int) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let area = area_of(&a);
        let tag = [direction as usize, 0];
        // SAFETY: the caller promises the area until the stream has done the copy.
        unsafe { work_stream(handle)?.copy_area(area, tag) }.map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn stream_copy_now(handle: hi::Stream, area: *const hi::CopyArea) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let s = work_stream(handle)?;
        not_capturing(&s)?;
        // SAFETY: the caller promises the area during the call.
        unsafe { s.copy_area_now(area_of(&a)) }.map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn stream_fill_now(handle: hi::Stream, area: *const hi::FillArea) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let s = work_stream(handle)?;
        not_capturing(&s)?;
        // SAFETY: the caller promises the area during the call.
        unsafe { s.fill_area_now(fill_of(&a)) }.map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn stream_copy_alone(
    handle: hi::Stream,
    area: *const hi::CopyArea,
    to: c_int,
    from: c_int,
) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let devices = [device_of(to)?, device_of(from)?];
        let s = work_stream(handle)?;
        not_capturing(&s)?;
        // SAFETY: the caller promises the area until the stream has done the copy.
        unsafe { s.copy_alone(area_of(&a), &devices) }.map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn stream_go_ahead(handle: hi::Stream) -> Status {
    run(|| {
        let s = stream(handle)?;
        not_capturing(&s)?;
        s.go_ahead();
        Ok(())
    })
}

unsafe extern "C" fn stream_copy_kept(
    handle: hi::Stream,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    run(|| {
        // SAFETY: the caller promises so many bytes.
        let kept = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: the caller promises the target until the stream has done the copy.
        unsafe { work_stream(handle)?.copy_kept(to.cast(), kept) }.map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn stream_fill(handle: hi::Stream, area: *const hi::FillArea) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let fill = fill_of(&a);
        // SAFETY: the caller promises the area until the stream has filled it.
        unsafe { work_stream(handle)?.fill_area(fill) }.map_err(failed(status::INVALID_VALUE))
    })
}

/// The argument of a host function on its way to the thread that runs it.
struct UserData(*mut c_void);

// SAFETY: the pointer is the caller's; by the contract of host functions it may be used on any thread.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

/// A function of C as the runtime takes it.
pub(crate) fn host_function(function: hi::HostFn, data: *mut c_void) -> device::HostFunction {
    let data = UserData(data);
    Arc::new(move || {
        // The whole struct is taken, not only the pointer in it, which is not `Send`.
        let data = &data;
        // SAFETY: the caller promises that the function may be called with this argument on any thread.
        unsafe { function(data.0) }
    })
}

unsafe extern "C" fn stream_call(handle: hi::Stream, function: hi::HostFn, data: *mut c_void) -> Status {
    run(|| {
        let tag = [function as usize, data.expose_provenance()];
        work_stream(handle)?.call_host(host_function(function, data), tag).map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn event_create(timing: c_int, interprocess: c_int, out: *mut hi::Event) -> Status {
    run(|| {
        if out.is_null() {
            return Err(Failed(status::INVALID_VALUE, "the event pointer is NULL".into()));
        }
        let options = EventOptions { timing: timing != 0, interprocess: interprocess != 0 };
        let event = Event::with(options).map_err(failed(status::OUT_OF_MEMORY))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, event.into_raw()) }
    })
}

unsafe extern "C" fn event_destroy(e: hi::Event) -> Status {
    run(|| Event::destroy_raw(e).map_err(failed(status::INVALID_HANDLE)))
}

unsafe extern "C" fn event_record(e: hi::Event, handle: hi::Stream, external: c_int) -> Status {
    run(|| {
        let tag = [e.expose_provenance(), 0];
        let (s, e) = (work_stream(handle)?, event(e)?);
        let recorded = if external != 0 { s.record_external(&e, tag) } else { s.record(&e) };
        recorded.map_err(failed(status::INVALID_HANDLE))
    })
}

/// The event, unless it names a point of a capture, which has no time.
fn real_event(handle: hi::Event) -> Result<Event, Failed> {
    let e = event(handle)?;
    if e.is_captured() {
        return Err(Failed(status::CAPTURED_EVENT, "the event was last recorded in a capture".into()));
    }
    Ok(e)
}

unsafe extern "C" fn event_synchronize(e: hi::Event) -> Status {
    run(|| real_event(e)?.synchronize().map_err(failed(status::LAUNCH_FAILURE)))
}

unsafe extern "C" fn event_query(e: hi::Event) -> Status {
    run(|| match real_event(e)?.poll().map_err(failed(status::LAUNCH_FAILURE))? {
        true => Ok(()),
        false => Err(Failed(status::NOT_READY, String::new())),
    })
}

unsafe extern "C" fn event_elapsed(start: hi::Event, end: hi::Event, ms: *mut f32) -> Status {
    run(|| {
        let (start, end) = (real_event(start)?, real_event(end)?);
        if !start.query() || !end.query() {
            return Err(Failed(status::NOT_READY, String::new()));
        }
        let elapsed = Event::elapsed_ms(&start, &end).map_err(failed(status::INVALID_HANDLE))?;
        // SAFETY: the caller's promise.
        unsafe { put(ms, elapsed) }
    })
}

unsafe extern "C" fn last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

macro_rules! table {
    ($($name:ident)*) => {
        static TABLE: HostInterface =
            HostInterface { version: hi::VERSION, size: size_of::<HostInterface>(), $($name),* };
    };
}
oxccl_hostrt_interface::host_interface_names!(table);

/// `oxcclHostInterface`: the table, null when `version` is another than ours.
pub unsafe fn get(version: c_int) -> *const c_void {
    if version == hi::VERSION { (&raw const TABLE).cast() } else { std::ptr::null() }
}
