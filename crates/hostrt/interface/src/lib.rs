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
pub const VERSION: c_int = 3;

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
    pub const ILLEGAL_STATE: Status = 401;
    pub const SYMBOL_NOT_FOUND: Status = 500;
    pub const NOT_READY: Status = 600;
    pub const LAUNCH_FAILURE: Status = 719;
    pub const NOT_SUPPORTED: Status = 801;
    pub const CAPTURE_UNSUPPORTED: Status = 900;
    pub const CAPTURE_INVALIDATED: Status = 901;
    pub const CAPTURE_UNMATCHED: Status = 903;
    pub const CAPTURE_UNJOINED: Status = 904;
    pub const CAPTURE_ISOLATION: Status = 905;
    pub const CAPTURE_IMPLICIT: Status = 906;
    pub const CAPTURED_EVENT: Status = 907;
    pub const CAPTURE_WRONG_THREAD: Status = 908;
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

/// An address of the caller.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub *mut c_void);

impl Default for Address {
    fn default() -> Address {
        Address(std::ptr::null_mut())
    }
}

/// A handle on memory or an event for another process. All bytes are significant to the library only.
pub type IpcHandle = [u8; 64];

/// An area that is copied: `depth` slices of `height` rows of `width` bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct CopyArea {
    pub dst: Address,
    pub dst_pitch: usize,
    pub src: Address,
    pub src_pitch: usize,
    pub width: usize,
    pub height: usize,
    pub dst_slice: usize,
    pub src_slice: usize,
    pub depth: usize,
}

/// An area that is filled: `height` rows of `width` elements of `element` bytes (1, 2, 4).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct FillArea {
    pub dst: Address,
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

/// What a node of a graph does: the numbers of `cudaGraphNodeType`. [`CALL`] cannot be made by hand.
///
/// [`CALL`]: work::CALL
#[allow(missing_docs)]
pub mod work {
    use super::c_int;
    pub const CALL: c_int = 0;
    pub const COPY: c_int = 1;
    pub const FILL: c_int = 2;
    pub const HOST: c_int = 3;
    pub const CHILD: c_int = 4;
    pub const EMPTY: c_int = 5;
    pub const WAIT: c_int = 6;
    pub const RECORD: c_int = 7;
    pub const ALLOC: c_int = 10;
    pub const FREE: c_int = 11;
}

/// A node's work. `kind` is one of [`work`]; the fields of other kinds are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Work {
    pub kind: c_int,
    /// Of a copy: what the caller passed; it comes back unchanged. Of an allocation: the device.
    pub direction: c_int,
    pub copy: CopyArea,
    pub fill: FillArea,
    pub function: Option<HostFn>,
    /// Of a host function.
    pub data: Address,
    /// The event of a wait or a record, the graph of a child.
    pub handle: Address,
    /// Of memory; of an allocation an output.
    pub address: Address,
    pub bytes: usize,
}

/// A node's handle.
pub type Node = *mut c_void;

/// How a graph failed to update an executable one: the numbers of `cudaGraphExecUpdateResult`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Mismatch {
    pub result: c_int,
    pub node: Address,
}

/// What is known of a capture. `graph` and `ends` only while it is active.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct CaptureInfo {
    /// 0 none, 1 active, 2 invalidated.
    pub state: c_int,
    pub id: u64,
    pub graph: Address,
    pub ends: usize,
}

/// Where lists of nodes are written: at most `room` of them; `count` says how many there are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct NodeList {
    pub nodes: *mut Node,
    pub room: usize,
    pub count: usize,
}

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
    /// Destroys a stream. What it holds is done all the same, after the call if need be.
    stream_destroy(stream: Stream) -> Status;
    /// Waits for the stream's work.
    stream_synchronize(stream: Stream) -> Status;
    /// Success when idle, [`status::NOT_READY`] otherwise.
    stream_query(stream: Stream) -> Status;
    /// What the stream was made as.
    stream_info(stream: Stream, info: *mut StreamInfo) -> Status;
    /// Lets later work wait for what the event recorded. `external`: while capturing, for what it has recorded at launch.
    stream_wait_event(stream: Stream, event: Event, external: c_int) -> Status;
    /// Copies in stream order.
    stream_copy(stream: Stream, area: *const CopyArea) -> Status;
    /// Copies `bytes` bytes in stream order; the source may be used again as soon as this returns.
    stream_copy_kept(stream: Stream, to: *mut c_void, from: *const c_void, bytes: usize) -> Status;
    /// Fills in stream order.
    stream_fill(stream: Stream, area: *const FillArea) -> Status;
    /// Calls `function(data)` in stream order, in a graph at every launch.
    stream_call(stream: Stream, function: HostFn, data: *mut c_void) -> Status;

    /// Allocates device memory in stream order; while capturing as a node, of memory that belongs to the graph.
    stream_alloc(stream: Stream, bytes: usize, ptr: *mut *mut c_void) -> Status;
    /// Frees memory in stream order; while capturing as a node, and only memory of a graph.
    stream_free(stream: Stream, ptr: *mut c_void) -> Status;
    /// Bytes that graphs hold, and those of them in use.
    graph_memory(held: *mut usize, used: *mut usize) -> Status;

    /// An event. `interprocess`: other processes may open it, and it has no timing.
    event_create(timing: c_int, interprocess: c_int, event: *mut Event) -> Status;
    /// A handle by which another process opens the event.
    event_export(event: Event, handle: *mut IpcHandle) -> Status;
    /// The event behind a handle.
    event_open(handle: *const IpcHandle, event: *mut Event) -> Status;
    /// Forgets the handle.
    event_destroy(event: Event) -> Status;
    /// Marks a point of the stream. `external`: while capturing, at every launch and for others to wait for.
    event_record(event: Event, stream: Stream, external: c_int) -> Status;
    /// Waits for the last mark.
    event_synchronize(event: Event) -> Status;
    /// Success when the last mark was passed, [`status::NOT_READY`] otherwise.
    event_query(event: Event) -> Status;
    /// Milliseconds between two marks that were passed.
    event_elapsed(start: Event, end: Event, ms: *mut f32) -> Status;

    /// Begins to capture. `mode`: 0 global, 1 the calling thread's, 2 relaxed. Into `graph` after `count` of its nodes; a
    /// null graph means a new one.
    capture_begin(stream: Stream, mode: c_int, graph: *mut c_void, after: *const Node, count: usize) -> Status;
    /// Ends the capture and gives its graph.
    capture_end(stream: Stream, graph: *mut *mut c_void) -> Status;
    /// What is known of the capture; writes the ends that fit into `room` places of `ends`.
    capture_info(stream: Stream, info: *mut CaptureInfo, ends: *mut Node, room: usize) -> Status;
    /// Lets the next work wait for these nodes, besides (`add`) or instead of what it would wait for.
    capture_set_ends(stream: Stream, nodes: *const Node, count: usize, add: c_int) -> Status;
    /// Sets which captures of others the calling thread minds: 0 all, 1 its own, 2 none. The mode before.
    capture_thread_mode(mode: *mut c_int) -> Status;

    /// An empty graph.
    graph_create(graph: *mut *mut c_void) -> Status;
    /// A copy of the graph.
    graph_clone(graph: *mut c_void, copy: *mut *mut c_void) -> Status;
    /// Forgets a graph.
    graph_destroy(graph: *mut c_void) -> Status;
    /// Adds a node after `count` others.
    graph_add(graph: *mut c_void, after: *const Node, count: usize, what: *mut Work, node: *mut Node) -> Status;
    /// Its nodes.
    graph_nodes(graph: *mut c_void, list: *mut NodeList) -> Status;
    /// Its dependencies: as many nodes in `from` as in `to`, which waits.
    graph_edges(graph: *mut c_void, from: *mut NodeList, to: *mut NodeList) -> Status;
    /// Adds or removes `count` dependencies.
    graph_link(graph: *mut c_void, from: *const Node, to: *const Node, count: usize, add: c_int) -> Status;
    /// The node of the copy `graph` that was made of `original`.
    graph_copy_of(graph: *mut c_void, original: Node, node: *mut Node) -> Status;
    /// Lets the graph hold `count` references to an object; `take` takes them from the caller.
    graph_hold(graph: *mut c_void, object: *mut c_void, count: c_uint, take: c_int) -> Status;
    /// Gives `count` of the graph's references back.
    graph_let_go(graph: *mut c_void, object: *mut c_void, count: c_uint) -> Status;
    /// What a node does.
    node_get(node: Node, what: *mut Work) -> Status;
    /// Changes what a node does, within its kind.
    node_set(node: Node, what: *mut Work) -> Status;
    /// What the node waits for, or what waits for it.
    node_neighbours(node: Node, dependents: c_int, list: *mut NodeList) -> Status;
    /// The graph that holds the node, and the node's place in it.
    node_graph(node: Node, graph: *mut *mut c_void, place: *mut c_uint) -> Status;
    /// Takes the node out of its graph.
    node_destroy(node: Node) -> Status;
    /// An object with `count` references that calls `destroy(data)` when the last one goes.
    object_create(destroy: HostFn, data: *mut c_void, count: c_uint, object: *mut *mut c_void) -> Status;
    /// Adds references.
    object_retain(object: *mut c_void, count: c_uint) -> Status;
    /// Gives references back.
    object_release(object: *mut c_void, count: c_uint) -> Status;

    /// A launchable copy of the graph.
    graph_instantiate(graph: *mut c_void, exec: *mut *mut c_void) -> Status;
    /// Launches.
    exec_launch(exec: *mut c_void, stream: Stream) -> Status;
    /// Takes the arguments of a graph of the same shape.
    exec_update(exec: *mut c_void, graph: *mut c_void, mismatch: *mut Mismatch) -> Status;
    /// Changes what a node of the graph, of which this was made, does here.
    exec_node_set(exec: *mut c_void, node: Node, what: *mut Work) -> Status;
    /// Lets launches do a node's work (1) or leave it out (0); -1 changes nothing. `was`: what it is now.
    exec_node_enable(exec: *mut c_void, node: Node, on: c_int, now: *mut c_int) -> Status;
    /// Forgets an executable; what was launched still runs.
    exec_destroy(exec: *mut c_void) -> Status;

    /// The text of the calling thread's last failure. Valid until its next failure.
    last_error() -> *const c_char;

    /// `stream_copy`, with what a captured node tells as its direction.
    stream_copy_as(stream: Stream, area: *const CopyArea, direction: c_int) -> Status;
    /// Copies behind all work of the stream's device and of these two, and before all that they are given later.
    stream_copy_alone(stream: Stream, area: *const CopyArea, to: c_int, from: c_int) -> Status;
    /// Works on what the stream holds as far as that goes without a wait, and calls no function of the program.
    stream_go_ahead(stream: Stream) -> Status;
    /// `stream_alloc` of memory of `device`, whichever is the stream's.
    stream_alloc_on(stream: Stream, bytes: usize, device: c_int, ptr: *mut *mut c_void) -> Status;
    /// Copies in stream order and waits for that, but for nothing that others enqueue meanwhile.
    stream_copy_now(stream: Stream, area: *const CopyArea) -> Status;
    /// The same of a fill.
    stream_fill_now(stream: Stream, area: *const FillArea) -> Status;
}
