//! The table of C functions by which the host implementations of the CUDA and HIP runtimes reach the host device.
//!
//! `libnccl.so.2` and `librccl.so.1` export [`SYMBOL`], which returns the table; so all libraries of a process share one
//! host device. Only layouts here: no behaviour, no dependency. A table is only ever extended at its end, and `size`
//! says how far it goes; anything else needs a new [`VERSION`].
//!
//! Functions return a [`Status`]: the numbers that `cudaError_t` and `hipError_t` have in common.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The exported function: `const oxcclHostInterface* oxcclHostInterface(int version)`, null for an unknown version.
pub const SYMBOL: &std::ffi::CStr = c"oxcclHostInterface";
/// The version of the layout below.
pub const VERSION: c_int = 1;

/// What a call came to: 0 or one of [`status`].
pub type Status = c_int;

/// The numbers of [`Status`].
#[allow(missing_docs)]
pub mod status {
    use super::Status;
    pub const SUCCESS: Status = 0;
    pub const INVALID_VALUE: Status = 1;
    pub const OUT_OF_MEMORY: Status = 2;
    pub const INVALID_DEVICE: Status = 101;
    pub const MAP_FAILED: Status = 205;
    pub const INVALID_HANDLE: Status = 400;
    pub const NOT_READY: Status = 600;
    pub const LAUNCH_FAILURE: Status = 719;
    pub const NOT_SUPPORTED: Status = 801;
    pub const CAPTURE_UNSUPPORTED: Status = 900;
    pub const CAPTURE_INVALIDATED: Status = 901;
    pub const CAPTURE_UNMATCHED: Status = 903;
    pub const CAPTURE_UNJOINED: Status = 904;
    pub const CAPTURE_ISOLATION: Status = 905;
    pub const CAPTURE_IMPLICIT: Status = 906;
    pub const GRAPH_UPDATE_FAILURE: Status = 910;
    pub const UNKNOWN: Status = 999;
}

/// The kinds of memory: the numbers of `cudaMemoryType`.
#[allow(missing_docs)]
pub mod kind {
    use super::c_int;
    pub const UNREGISTERED: c_int = 0;
    pub const HOST: c_int = 1;
    pub const DEVICE: c_int = 2;
    pub const MANAGED: c_int = 3;
}

/// The allocation around an address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Its first byte.
    pub base: usize,
    /// Bytes.
    pub bytes: usize,
    /// One of [`kind`].
    pub kind: c_int,
    /// The device it was made on.
    pub device: c_int,
}

/// A handle on memory for another process. All bytes are significant to the library only.
pub type IpcHandle = [u8; 64];

/// An area that is copied: `height` rows of `width` bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CopyArea {
    pub dst: *mut c_void,
    pub dst_pitch: usize,
    pub src: *const c_void,
    pub src_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// An area that is filled: `height` rows of `width` elements of `element` bytes (1, 2, 4).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FillArea {
    pub dst: *mut c_void,
    pub pitch: usize,
    pub value: c_uint,
    pub element: usize,
    pub width: usize,
    pub height: usize,
}

/// A stream handle; null and 1 are the device's default stream, 2 is the calling thread's.
pub type Stream = *mut c_void;
/// An event handle.
pub type Event = *mut c_void;
/// A function for a stream.
pub type HostFn = unsafe extern "C" fn(*mut c_void);

/// What a stream was made as.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct StreamInfo {
    pub blocking: c_int,
    pub priority: c_int,
    pub device: c_int,
    pub number: u64,
}

macro_rules! interface {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        /// The table. Pointers must be valid for what they are used for; outputs are written on success only.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct HostInterface {
            /// [`VERSION`].
            pub version: c_int,
            /// Bytes of the table.
            pub size: usize,
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $type),*) -> $ret,)*
        }
        /// Calls the macro `$then` with every function of the table.
        #[macro_export]
        macro_rules! host_interface_names { ($then:ident) => { $then! { $($name)* } } }
    };
}

interface! {
    /// Number of devices.
    device_count() -> c_int;
    /// The calling thread's device.
    device_current() -> c_int;
    /// Makes a device the calling thread's.
    device_set(device: c_int) -> Status;
    /// Waits for all streams of a device.
    device_synchronize(device: c_int) -> Status;
    /// The same, but errors of the streams' work stay for who waits for the streams.
    device_drain(device: c_int) -> Status;

    /// Allocates memory of a [`kind`]; `0` bytes give null.
    memory_alloc(bytes: usize, kind: c_int, ptr: *mut *mut c_void) -> Status;
    /// Frees memory; null is fine.
    memory_free(ptr: *mut c_void) -> Status;
    /// The allocation around an address; [`status::INVALID_VALUE`] for memory of others.
    memory_find(ptr: *const c_void, found: *mut Found) -> Status;
    /// A handle by which another process maps the allocation at `ptr`.
    ipc_export(ptr: *const c_void, handle: *mut IpcHandle) -> Status;
    /// Maps the allocation behind a handle; the same handle again gives the same address.
    ipc_open(handle: *const IpcHandle, ptr: *mut *mut c_void) -> Status;
    /// Gives an address of `ipc_open` back.
    ipc_close(ptr: *mut c_void) -> Status;

    /// A stream of the current device.
    stream_create(blocking: c_int, priority: c_int, stream: *mut Stream) -> Status;
    /// Finishes the stream's work and destroys it.
    stream_destroy(stream: Stream) -> Status;
    /// Waits for the stream's work.
    stream_synchronize(stream: Stream) -> Status;
    /// Success when idle, [`status::NOT_READY`] otherwise.
    stream_query(stream: Stream) -> Status;
    /// What the stream was made as.
    stream_info(stream: Stream, info: *mut StreamInfo) -> Status;
    /// Lets later work wait for what the event recorded.
    stream_wait_event(stream: Stream, event: Event) -> Status;
    /// Copies in stream order.
    stream_copy(stream: Stream, area: *const CopyArea) -> Status;
    /// Fills in stream order.
    stream_fill(stream: Stream, area: *const FillArea) -> Status;
    /// Calls `function(data)` in stream order, in a graph at every launch.
    stream_call(stream: Stream, function: HostFn, data: *mut c_void) -> Status;

    /// An event.
    event_create(event: *mut Event) -> Status;
    /// Forgets the handle.
    event_destroy(event: Event) -> Status;
    /// Marks a point of the stream.
    event_record(event: Event, stream: Stream) -> Status;
    /// Waits for the last mark.
    event_synchronize(event: Event) -> Status;
    /// Success when the last mark was passed, [`status::NOT_READY`] otherwise.
    event_query(event: Event) -> Status;
    /// Milliseconds between two marks that were passed.
    event_elapsed(start: Event, end: Event, ms: *mut f32) -> Status;

    /// Begins to capture.
    capture_begin(stream: Stream) -> Status;
    /// Ends the capture and gives its graph.
    capture_end(stream: Stream, graph: *mut *mut c_void) -> Status;
    /// `state`: 0 none, 1 active, 2 invalidated; `id` of the capture.
    capture_state(stream: Stream, state: *mut c_int, id: *mut u64) -> Status;
    /// Pieces of work in a graph.
    graph_nodes(graph: *mut c_void, nodes: *mut usize) -> Status;
    /// A copy of the graph.
    graph_clone(graph: *mut c_void, copy: *mut *mut c_void) -> Status;
    /// Forgets a graph.
    graph_destroy(graph: *mut c_void) -> Status;
    /// A launchable copy of the graph.
    graph_instantiate(graph: *mut c_void, exec: *mut *mut c_void) -> Status;
    /// Launches.
    exec_launch(exec: *mut c_void, stream: Stream) -> Status;
    /// Takes the arguments of a graph of the same shape.
    exec_update(exec: *mut c_void, graph: *mut c_void) -> Status;
    /// Forgets an executable; what was launched still runs.
    exec_destroy(exec: *mut c_void) -> Status;

    /// The text of the calling thread's last failure. Valid until its next failure.
    last_error() -> *const c_char;
}
