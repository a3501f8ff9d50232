//! The table by which the host implementations of the CUDA and HIP runtimes (`crates/hostrt`) reach the host device.
//!
//! Thin: each function translates handles and results. What went wrong is kept per thread as a text; it is not logged,
//! since programs ask the runtimes for errors as a matter of course.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use oxccl_hostrt_interface as hi;
use oxccl_hostrt_interface::{HostInterface, Status, kind, status};
use oxccl_runtime::device::{self, Area, EndError, Event, Executable, Fill, Graph, MemoryKind, Stream, StreamOptions};
use oxccl_types::Error;

/// A failure: its number and its words.
struct Failed(Status, String);

type Done = Result<(), Failed>;

/// Gives an error of the runtime its number.
fn failed(status: Status) -> impl Fn(Error) -> Failed {
    move |e| Failed(status, e.text)
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of one function of the table: nothing unwinds, the text of a failure is kept.
fn run(body: impl FnOnce() -> Done) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Failed(status::UNKNOWN, "internal error of the host device; please report it".into())));
    match outcome {
        Ok(()) => status::SUCCESS,
        Err(Failed(code, text)) => {
            if code != status::NOT_READY {
                let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
                LAST.with_borrow_mut(|last| *last = text);
            }
            code
        }
    }
}

/// Writes a result.
///
/// # Safety
/// `to` is null or valid for writing.
unsafe fn put<T>(to: *mut T, value: T) -> Done {
    if to.is_null() {
        return Err(Failed(status::INVALID_VALUE, "a result pointer is NULL".into()));
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

fn stream(handle: hi::Stream) -> Result<Stream, Failed> {
    Stream::from_raw(handle).map_err(failed(status::INVALID_HANDLE))
}

fn event(handle: hi::Event) -> Result<Event, Failed> {
    Event::from_raw(handle).map_err(failed(status::INVALID_HANDLE))
}

fn device_of(device: c_int) -> Result<usize, Failed> {
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
            let text = s.synchronize().err().map_or_else(String::new, |e| e.text);
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
        let what = match what {
            kind::HOST => MemoryKind::Host,
            kind::MANAGED => MemoryKind::Managed,
            _ => MemoryKind::Device,
        };
        let memory = device::alloc_as(bytes, what).map_err(failed(status::OUT_OF_MEMORY))?;
        // SAFETY: the caller's promise.
        unsafe { put(ptr, memory.cast()) }
    })
}

unsafe extern "C" fn memory_free(ptr: *mut c_void) -> Status {
    // SAFETY: the runtime knows its own allocations and refuses all others; no call uses freed memory by contract.
    run(|| unsafe { device::free(ptr.cast()) }.map_err(failed(status::INVALID_VALUE)))
}

unsafe extern "C" fn memory_find(ptr: *const c_void, found: *mut hi::Found) -> Status {
    run(|| {
        let text = || format!("{ptr:p} is not memory of the host device");
        let imported = opened().range(..=ptr.addr()).next_back().map(|(base, o)| (*base, o.bytes));
        let imported = imported.filter(|(base, bytes)| ptr.addr() - base < *bytes);
        let at = match (device::allocation(ptr.addr()), imported) {
            (Some(a), _) => {
                let kind = match a.label.kind {
                    MemoryKind::Host => kind::HOST,
                    MemoryKind::Device => kind::DEVICE,
                    MemoryKind::Managed => kind::MANAGED,
                };
                hi::Found { base: a.base, bytes: a.bytes, kind, device: a.label.device as c_int }
            }
            (None, Some((base, bytes))) => {
                hi::Found { base, bytes, kind: kind::DEVICE, device: device::current() as c_int }
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
    users: usize,
}

fn opened() -> MutexGuard<'static, BTreeMap<usize, Opened>> {
    static OPENED: Mutex<BTreeMap<usize, Opened>> = Mutex::new(BTreeMap::new());
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

const IPC_MAGIC: u64 = u64::from_le_bytes(*b"oxcclmem");

unsafe extern "C" fn ipc_export(ptr: *const c_void, handle: *mut hi::IpcHandle) -> Status {
    run(|| {
        let s = device::share(ptr.addr()).map_err(failed(status::INVALID_VALUE))?;
        let words = [IPC_MAGIC, u64::from(s.pid), s.fd as u64, s.inode, s.offset, s.bytes, 0, 0];
        let mut bytes = [0; 64];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        // SAFETY: the caller's promise.
        unsafe { put(handle, bytes) }
    })
}

unsafe extern "C" fn ipc_open(handle: *const hi::IpcHandle, ptr: *mut *mut c_void) -> Status {
    run(|| {
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
        let [magic, pid, fd, inode, offset, bytes, ..] = words;
        if magic != IPC_MAGIC {
            return Err(Failed(status::INVALID_HANDLE, "this is no memory handle of the host device".into()));
        }
        let shared = device::Shared { pid: pid as u32, fd: fd as i32, inode, offset, bytes };
        let mut opened = opened();
        if let Some((at, o)) = opened.iter_mut().find(|(_, o)| o.shared == shared) {
            o.users += 1;
            // SAFETY: the caller's promise.
            return unsafe { put(ptr, std::ptr::with_exposed_provenance_mut(*at)) };
        }
        let memory = device::open_shared(&shared).map_err(failed(status::MAP_FAILED))?;
        let at = memory.at(offset as usize, bytes as usize);
        let entry = Opened { _memory: Box::new(memory), shared, bytes: bytes as usize, users: 1 };
        opened.insert(at.expose_provenance(), entry);
        // SAFETY: the caller's promise.
        unsafe { put(ptr, at.cast()) }
    })
}

unsafe extern "C" fn ipc_close(ptr: *mut c_void) -> Status {
    run(|| {
        let mut opened = opened();
        let Some(o) = opened.get_mut(&ptr.addr()) else {
            return Err(Failed(status::INVALID_VALUE, format!("{ptr:p} was not opened from a memory handle")));
        };
        o.users -= 1;
        if o.users == 0 {
            opened.remove(&ptr.addr());
        }
        Ok(())
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
        Stream::destroy_raw(handle).map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn stream_synchronize(handle: hi::Stream) -> Status {
    run(|| {
        let s = stream(handle)?;
        not_capturing(&s)?;
        s.synchronize().map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn stream_query(handle: hi::Stream) -> Status {
    run(|| {
        let s = stream(handle)?;
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

unsafe extern "C" fn stream_wait_event(handle: hi::Stream, e: hi::Event) -> Status {
    run(|| stream(handle)?.wait(&event(e)?).map_err(failed(status::CAPTURE_ISOLATION)))
}

unsafe extern "C" fn stream_copy(handle: hi::Stream, area: *const hi::CopyArea) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let area = Area {
            dst: a.dst.cast(),
            dst_pitch: a.dst_pitch,
            src: a.src.cast(),
            src_pitch: a.src_pitch,
            width: a.width,
            height: a.height,
        };
        // SAFETY: the caller promises the area until the stream has done the copy.
        unsafe { stream(handle)?.copy_area(area) }.map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn stream_fill(handle: hi::Stream, area: *const hi::FillArea) -> Status {
    run(|| {
        // SAFETY: the caller promises a readable struct.
        let a = unsafe { area.read_unaligned() };
        let fill = Fill {
            dst: a.dst.cast(),
            pitch: a.pitch,
            value: a.value,
            element: a.element.clamp(1, 4),
            width: a.width,
            height: a.height,
        };
        // SAFETY: the caller promises the area until the stream has filled it.
        unsafe { stream(handle)?.fill_area(fill) }.map_err(failed(status::INVALID_VALUE))
    })
}

/// The argument of a host function on its way to the thread that runs it.
struct UserData(*mut c_void);

// SAFETY: the pointer is the caller's; by the contract of host functions it may be used on any thread.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

unsafe extern "C" fn stream_call(handle: hi::Stream, function: hi::HostFn, data: *mut c_void) -> Status {
    run(|| {
        let data = UserData(data);
        let call = move || {
            // The whole struct is taken, not only the pointer in it, which is not `Send`.
            let data = &data;
            // SAFETY: the caller promises that the function may be called with this argument on any thread.
            unsafe { function(data.0) }
        };
        stream(handle)?.call_host(Arc::new(call)).map_err(failed(status::INVALID_VALUE))
    })
}

unsafe extern "C" fn event_create(out: *mut hi::Event) -> Status {
    run(|| {
        if out.is_null() {
            return Err(Failed(status::INVALID_VALUE, "the event pointer is NULL".into()));
        }
        // SAFETY: the caller's promise.
        unsafe { put(out, Event::new().into_raw()) }
    })
}

unsafe extern "C" fn event_destroy(e: hi::Event) -> Status {
    run(|| Event::destroy_raw(e).map_err(failed(status::INVALID_HANDLE)))
}

unsafe extern "C" fn event_record(e: hi::Event, handle: hi::Stream) -> Status {
    run(|| stream(handle)?.record(&event(e)?).map_err(failed(status::INVALID_HANDLE)))
}

unsafe extern "C" fn event_synchronize(e: hi::Event) -> Status {
    run(|| event(e)?.synchronize().map_err(failed(status::LAUNCH_FAILURE)))
}

unsafe extern "C" fn event_query(e: hi::Event) -> Status {
    run(|| match event(e)?.query() {
        true => Ok(()),
        false => Err(Failed(status::NOT_READY, String::new())),
    })
}

unsafe extern "C" fn event_elapsed(start: hi::Event, end: hi::Event, ms: *mut f32) -> Status {
    run(|| {
        let (start, end) = (event(start)?, event(end)?);
        if !start.query() || !end.query() {
            return Err(Failed(status::NOT_READY, String::new()));
        }
        let elapsed = Event::elapsed_ms(&start, &end).map_err(failed(status::INVALID_HANDLE))?;
        // SAFETY: the caller's promise.
        unsafe { put(ms, elapsed) }
    })
}

unsafe extern "C" fn capture_begin(handle: hi::Stream) -> Status {
    run(|| stream(handle)?.begin_capture().map_err(failed(status::CAPTURE_UNSUPPORTED)))
}

unsafe extern "C" fn capture_end(handle: hi::Stream, graph: *mut *mut c_void) -> Status {
    run(|| {
        let ended = stream(handle)?.end_capture().map_err(|e| {
            let code = match e {
                EndError::NotCapturing => status::INVALID_VALUE,
                EndError::NotOrigin => status::CAPTURE_UNMATCHED,
                EndError::Invalidated => status::CAPTURE_INVALIDATED,
                EndError::Unjoined => status::CAPTURE_UNJOINED,
            };
            Failed(code, e.to_string())
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(graph, GRAPHS.add(ended)) }
    })
}

unsafe extern "C" fn capture_state(handle: hi::Stream, state: *mut c_int, id: *mut u64) -> Status {
    run(|| {
        let found = stream(handle)?.capture_state();
        // SAFETY: the caller's promise.
        unsafe {
            put(id, found.map_or(0, |(id, _)| id))?;
            put(state, found.map_or(0, |(_, invalid)| 1 + c_int::from(invalid)))
        }
    })
}

/// Values behind handles of C.
struct Handles<T> {
    what: &'static str,
    values: Mutex<(usize, BTreeMap<usize, Arc<T>>)>,
}

impl<T> Handles<T> {
    const fn new(what: &'static str) -> Handles<T> {
        // Handles are multiples of 16 that no stream or event has: nobody reads through them.
        Handles { what, values: Mutex::new((16, BTreeMap::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, (usize, BTreeMap<usize, Arc<T>>)> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, value: T) -> *mut c_void {
        let mut values = self.lock();
        let number = values.0;
        values.0 += 16;
        values.1.insert(number, Arc::new(value));
        std::ptr::without_provenance_mut(number)
    }

    fn unknown(&self, handle: *mut c_void) -> Failed {
        Failed(status::INVALID_VALUE, format!("{handle:p} is no {} of this library, or was destroyed", self.what))
    }

    fn get(&self, handle: *mut c_void) -> Result<Arc<T>, Failed> {
        self.lock().1.get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle))
    }

    fn remove(&self, handle: *mut c_void) -> Done {
        let removed = self.lock().1.remove(&handle.addr());
        removed.map(drop).ok_or_else(|| self.unknown(handle))
    }
}

static GRAPHS: Handles<Graph> = Handles::new("graph");
static EXECUTABLES: Handles<Mutex<Executable>> = Handles::new("executable graph");

unsafe extern "C" fn graph_nodes(graph: *mut c_void, nodes: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { put(nodes, GRAPHS.get(graph)?.nodes()) })
}

unsafe extern "C" fn graph_clone(graph: *mut c_void, copy: *mut *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { put(copy, GRAPHS.add(Graph::clone(&*GRAPHS.get(graph)?))) })
}

unsafe extern "C" fn graph_destroy(graph: *mut c_void) -> Status {
    run(|| GRAPHS.remove(graph))
}

unsafe extern "C" fn graph_instantiate(graph: *mut c_void, exec: *mut *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { put(exec, EXECUTABLES.add(Mutex::new(GRAPHS.get(graph)?.instantiate()))) })
}

unsafe extern "C" fn exec_launch(exec: *mut c_void, handle: hi::Stream) -> Status {
    run(|| {
        let exec = EXECUTABLES.get(exec)?;
        let stream = stream(handle)?;
        if stream.capture_state().is_some() {
            return Err(Failed(status::NOT_SUPPORTED, "a graph launch inside a capture is not supported".into()));
        }
        exec.lock().unwrap_or_else(PoisonError::into_inner).launch(&stream).map_err(failed(status::LAUNCH_FAILURE))
    })
}

unsafe extern "C" fn exec_update(exec: *mut c_void, graph: *mut c_void) -> Status {
    run(|| {
        let (exec, graph) = (EXECUTABLES.get(exec)?, GRAPHS.get(graph)?);
        let updated = exec.lock().unwrap_or_else(PoisonError::into_inner).update(&graph);
        updated.map_err(|_| Failed(status::GRAPH_UPDATE_FAILURE, "the graphs differ in shape".into()))
    })
}

unsafe extern "C" fn exec_destroy(exec: *mut c_void) -> Status {
    run(|| EXECUTABLES.remove(exec))
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
