//! Nodes of graphs: adding them, their parameters, in graphs and in executable ones.

use oxccl_hostrt_interface::{Address, CopyArea, FillArea, HostFn, Status, Work, status, work};

use crate::entry::put;
use crate::host::host;
use crate::pools::{ON_DEVICE, PINNED, Properties, device_at};
use crate::volumes::Volume;
use crate::{c_int, c_uint, c_void};

/// A handle of a graph, a node or an executable graph.
type Handle = *mut c_void;

unsafe fn add(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, mut what: Work) -> Status {
    host!(graph_add(graph, after, count, &mut what, node))
}

/// A node's work, which must be of this kind.
fn get(node: Handle, kind: c_int) -> Result<Work, Status> {
    let mut found = Work::default();
    match host!(node_get(node, &mut found)) {
        status::SUCCESS if found.kind == kind => Ok(found),
        status::SUCCESS => Err(status::INVALID_VALUE),
        failure => Err(failure),
    }
}

/// Changes a node in its graph, or in an executable one that was made of it.
fn set(exec: Option<Handle>, node: Handle, what: Result<Work, Status>) -> Status {
    match (what, exec) {
        (Err(failure), _) => failure,
        (Ok(mut what), None) => host!(node_set(node, &mut what)),
        (Ok(mut what), Some(exec)) => host!(exec_node_set(exec, node, &mut what)),
    }
}

pub unsafe fn kind(node: Handle, to: *mut c_int) -> Status {
    let mut found = Work::default();
    match host!(node_get(node, &mut found)) {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(to, found.kind) },
        failure => failure,
    }
}

/* ---- nothing ---- */

pub unsafe fn add_empty(node: *mut Handle, graph: Handle, after: *const Handle, count: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { add(node, graph, after, count, Work { kind: work::EMPTY, ..Work::default() }) }
}

/* ---- copies ---- */

fn copy(area: CopyArea, direction: c_int) -> Work {
    Work { kind: work::COPY, direction, copy: area, ..Work::default() }
}

/// # Safety
/// `p` is null or valid.
unsafe fn volume(p: *const Volume) -> Result<Work, Status> {
    // SAFETY: the caller's promise.
    let volume = unsafe { p.as_ref() }.ok_or(status::INVALID_VALUE)?;
    Ok(copy(volume.area()?, volume.direction()))
}

fn row(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> Result<Work, Status> {
    let (dst, src) = (Address(dst), Address(src.cast_mut()));
    let area = CopyArea { dst, src, width: bytes, height: 1, depth: 1, ..CopyArea::default() };
    match crate::memory::check(&area, direction) {
        status::SUCCESS => Ok(copy(area, direction)),
        failure => Err(failure),
    }
}

pub unsafe fn add_copy(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    p: *const Volume,
) -> Status {
    // SAFETY: the caller's promise.
    match unsafe { volume(p) } {
        // SAFETY: as above.
        Ok(what) => unsafe { add(node, graph, after, count, what) },
        Err(failure) => failure,
    }
}

#[allow(clippy::too_many_arguments)] // as in C
pub unsafe fn add_copy_row(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    direction: c_int,
) -> Status {
    match row(dst, src, bytes, direction) {
        // SAFETY: the caller's promise.
        Ok(what) => unsafe { add(node, graph, after, count, what) },
        Err(failure) => failure,
    }
}

pub unsafe fn get_copy(node: Handle, to: *mut Volume) -> Status {
    match get(node, work::COPY) {
        // SAFETY: the caller's promise.
        Ok(found) => unsafe { put(to, Volume::of(&found.copy, found.direction)) },
        Err(failure) => failure,
    }
}

pub unsafe fn set_copy(node: Handle, p: *const Volume) -> Status {
    // SAFETY: the caller's promise.
    set(None, node, unsafe { volume(p) })
}

pub unsafe fn set_copy_row(
    node: Handle,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    direction: c_int,
) -> Status {
    set(None, node, row(dst, src, bytes, direction))
}

pub unsafe fn exec_set_copy(exec: Handle, node: Handle, p: *const Volume) -> Status {
    // SAFETY: the caller's promise.
    set(Some(exec), node, unsafe { volume(p) })
}

pub unsafe fn exec_set_copy_row(
    exec: Handle,
    node: Handle,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    direction: c_int,
) -> Status {
    set(Some(exec), node, row(dst, src, bytes, direction))
}

/* ---- fills ---- */

/// `cudaMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CudaFill {
    dst: *mut c_void,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HipFill {
    dst: *mut c_void,
    element: c_uint,
    height: usize,
    pitch: usize,
    value: c_uint,
    width: usize,
}

const _: () = assert!(size_of::<CudaFill>() == 40 && size_of::<HipFill>() == 48);

/// The parameters of either runtime.
trait FillParameters: Copy {
    fn area(&self) -> FillArea;
    fn of(area: &FillArea) -> Self;
}

impl FillParameters for CudaFill {
    fn area(&self) -> FillArea {
        let CudaFill { dst, pitch, value, element, width, height } = *self;
        FillArea { dst: Address(dst), pitch, value, element: element as usize, width, height }
    }
    fn of(a: &FillArea) -> CudaFill {
        let element = a.element as c_uint;
        CudaFill { dst: a.dst.0, pitch: a.pitch, value: a.value, element, width: a.width, height: a.height }
    }
}

impl FillParameters for HipFill {
    fn area(&self) -> FillArea {
        let HipFill { dst, element, height, pitch, value, width } = *self;
        FillArea { dst: Address(dst), pitch, value, element: element as usize, width, height }
    }
    fn of(a: &FillArea) -> HipFill {
        let element = a.element as c_uint;
        HipFill { dst: a.dst.0, element, height: a.height, pitch: a.pitch, value: a.value, width: a.width }
    }
}

/// # Safety
/// `p` is null or valid.
unsafe fn fill<P: FillParameters>(p: *const P) -> Result<Work, Status> {
    // SAFETY: the caller's promise.
    let area = unsafe { p.as_ref() }.ok_or(status::INVALID_VALUE)?.area();
    let fits = area.height <= 1 || area.pitch >= area.width.saturating_mul(area.element);
    if area.dst.0.is_null() || !matches!(area.element, 1 | 2 | 4) || !fits {
        return Err(status::INVALID_VALUE);
    }
    Ok(Work { kind: work::FILL, fill: area, ..Work::default() })
}

macro_rules! fill_nodes {
    ($type:ident, $add:ident, $get:ident, $set:ident, $exec:ident) => {
        pub unsafe fn $add(
            node: *mut Handle,
            graph: Handle,
            after: *const Handle,
            count: usize,
            p: *const $type,
        ) -> Status {
            // SAFETY: the caller's promise.
            match unsafe { fill(p) } {
                // SAFETY: as above.
                Ok(what) => unsafe { add(node, graph, after, count, what) },
                Err(failure) => failure,
            }
        }
        pub unsafe fn $get(node: Handle, to: *mut $type) -> Status {
            match get(node, work::FILL) {
                // SAFETY: the caller's promise.
                Ok(found) => unsafe { put(to, $type::of(&found.fill)) },
                Err(failure) => failure,
            }
        }
        pub unsafe fn $set(node: Handle, p: *const $type) -> Status {
            // SAFETY: the caller's promise.
            set(None, node, unsafe { fill(p) })
        }
        pub unsafe fn $exec(exec: Handle, node: Handle, p: *const $type) -> Status {
            // SAFETY: the caller's promise.
            set(Some(exec), node, unsafe { fill(p) })
        }
    };
}
fill_nodes!(CudaFill, add_fill, get_fill, set_fill, exec_set_fill);
fill_nodes!(HipFill, add_fill_hip, get_fill_hip, set_fill_hip, exec_set_fill_hip);

/* ---- host functions ---- */

/// `cudaHostNodeParams` and `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostCall {
    function: Option<HostFn>,
    data: *mut c_void,
}

/// # Safety
/// `p` is null or valid.
unsafe fn host_call(p: *const HostCall) -> Result<Work, Status> {
    // SAFETY: the caller's promise.
    let p = unsafe { p.as_ref() }.ok_or(status::INVALID_VALUE)?;
    let function = Some(p.function.ok_or(status::INVALID_VALUE)?);
    Ok(Work { kind: work::HOST, function, data: Address(p.data), ..Work::default() })
}

pub unsafe fn add_host(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    p: *const HostCall,
) -> Status {
    // SAFETY: the caller's promise.
    match unsafe { host_call(p) } {
        // SAFETY: as above.
        Ok(what) => unsafe { add(node, graph, after, count, what) },
        Err(failure) => failure,
    }
}

pub unsafe fn get_host(node: Handle, to: *mut HostCall) -> Status {
    match get(node, work::HOST) {
        // SAFETY: the caller's promise.
        Ok(found) => unsafe { put(to, HostCall { function: found.function, data: found.data.0 }) },
        Err(failure) => failure,
    }
}

pub unsafe fn set_host(node: Handle, p: *const HostCall) -> Status {
    // SAFETY: the caller's promise.
    set(None, node, unsafe { host_call(p) })
}

pub unsafe fn exec_set_host(exec: Handle, node: Handle, p: *const HostCall) -> Status {
    // SAFETY: the caller's promise.
    set(Some(exec), node, unsafe { host_call(p) })
}

/* ---- events and child graphs: nodes with a handle ---- */

fn with_handle(kind: c_int, handle: Handle) -> Result<Work, Status> {
    if handle.is_null() {
        return Err(status::INVALID_VALUE);
    }
    Ok(Work { kind, handle: Address(handle), ..Work::default() })
}

macro_rules! handle_nodes {
    ($kind:expr, $add:ident, $get:ident, $set:ident, $exec:ident) => {
        pub unsafe fn $add(
            node: *mut Handle,
            graph: Handle,
            after: *const Handle,
            count: usize,
            handle: Handle,
        ) -> Status {
            match with_handle($kind, handle) {
                // SAFETY: the caller's promise.
                Ok(what) => unsafe { add(node, graph, after, count, what) },
                Err(failure) => failure,
            }
        }
        pub unsafe fn $get(node: Handle, to: *mut Handle) -> Status {
            match get(node, $kind) {
                // SAFETY: the caller's promise.
                Ok(found) => unsafe { put(to, found.handle.0) },
                Err(failure) => failure,
            }
        }
        pub unsafe fn $set(node: Handle, handle: Handle) -> Status {
            set(None, node, with_handle($kind, handle))
        }
        pub unsafe fn $exec(exec: Handle, node: Handle, handle: Handle) -> Status {
            set(Some(exec), node, with_handle($kind, handle))
        }
    };
}
handle_nodes!(work::RECORD, add_record, get_record, set_record, exec_set_record);
handle_nodes!(work::WAIT, add_wait, get_wait, set_wait, exec_set_wait);
handle_nodes!(work::CHILD, add_child, get_child, set_child, exec_set_child);

/* ---- memory ---- */

/// `cudaMemAllocNodeParams` and `hipMemAllocNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Allocation {
    pool: Properties,
    access: *const c_void,
    access_count: usize,
    bytes: usize,
    ptr: *mut c_void,
}

const _: () = assert!(size_of::<Allocation>() == 120);

impl Allocation {
    fn work(&self) -> Result<Work, Status> {
        if self.bytes == 0 || self.pool.kind != PINNED {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: our own place.
        let device = unsafe { device_at(&self.pool.location) }?;
        Ok(Work { kind: work::ALLOC, bytes: self.bytes, direction: device, ..Work::default() })
    }
}

pub unsafe fn add_alloc(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    p: *mut Allocation,
) -> Status {
    // SAFETY: the caller's promise.
    let Some(p) = (unsafe { p.as_mut() }) else { return status::INVALID_VALUE };
    let mut what = match p.work() {
        Ok(what) => what,
        Err(failure) => return failure,
    };
    let answer = host!(graph_add(graph, after, count, &mut what, node));
    if answer == status::SUCCESS {
        p.ptr = what.address.0;
        crate::pools::note_graphs();
    }
    answer
}

pub unsafe fn get_alloc(node: Handle, to: *mut Allocation) -> Status {
    let found = match get(node, work::ALLOC) {
        Ok(found) => found,
        Err(failure) => return failure,
    };
    let null = std::ptr::null_mut();
    let pool = Properties {
        kind: PINNED,
        handles: 0,
        location: [ON_DEVICE, found.direction],
        security: null,
        most: 0,
        reserved: [0; 7],
    };
    let p = Allocation { pool, access: null, access_count: 0, bytes: found.bytes, ptr: found.address.0 };
    // SAFETY: the caller's promise.
    unsafe { put(to, p) }
}

pub unsafe fn add_free(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    ptr: *mut c_void,
) -> Status {
    let what = Work { kind: work::FREE, address: Address(ptr), ..Work::default() };
    // SAFETY: the caller's promise.
    unsafe { add(node, graph, after, count, what) }
}

pub unsafe fn get_free(node: Handle, to: *mut *mut c_void) -> Status {
    match get(node, work::FREE) {
        // SAFETY: the caller's promise.
        Ok(found) => unsafe { put(to, found.address.0) },
        Err(failure) => failure,
    }
}

/* ---- any kind ---- */

/// `cudaGraphNodeParams`: a kind and the parameters of that kind.
#[repr(C)]
pub struct Any {
    kind: c_int,
    reserved: [c_int; 3],
    of: [u64; 29],
    end: u64,
}

const _: () = assert!(size_of::<Any>() == 256);

impl Any {
    fn at<T>(&mut self, words: usize) -> *mut T {
        self.of[words..].as_mut_ptr().cast()
    }

    /// # Safety
    /// The parameters are those of the kind.
    unsafe fn work(&mut self) -> Result<Work, Status> {
        // SAFETY: the caller's promise; the union's room is enough for each kind.
        unsafe {
            match self.kind {
                work::EMPTY => Ok(Work { kind: work::EMPTY, ..Work::default() }),
                // Flags and padding go before.
                work::COPY => volume(self.at(2)),
                work::FILL => fill(self.at::<CudaFill>(0)),
                work::HOST => host_call(self.at(0)),
                work::RECORD | work::WAIT | work::CHILD => with_handle(self.kind, self.at::<Handle>(0).read()),
                work::ALLOC => self.at::<Allocation>(0).read().work(),
                work::FREE => {
                    let address = Address(self.at::<*mut c_void>(0).read());
                    Ok(Work { kind: work::FREE, address, ..Work::default() })
                }
                _ => Err(crate::kernel::launch()),
            }
        }
    }
}

pub unsafe fn add_any(node: *mut Handle, graph: Handle, after: *const Handle, count: usize, p: *mut Any) -> Status {
    // SAFETY: the caller's promise.
    let Some(p) = (unsafe { p.as_mut() }) else { return status::INVALID_VALUE };
    // SAFETY: as above.
    let mut what = match unsafe { p.work() } {
        Ok(what) => what,
        Err(failure) => return failure,
    };
    let answer = host!(graph_add(graph, after, count, &mut what, node));
    if answer == status::SUCCESS && p.kind == work::ALLOC {
        // SAFETY: the parameters of an allocation.
        unsafe { (*p.at::<Allocation>(0)).ptr = what.address.0 };
    }
    answer
}

/// With data for each edge, which say more only about kernels.
pub unsafe fn add_any_v2(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    _edges: *const [u8; 8],
    count: usize,
    p: *mut Any,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { add_any(node, graph, after, count, p) }
}

pub unsafe fn set_any(node: Handle, p: *mut Any) -> Status {
    // SAFETY: the caller's promise.
    set(None, node, unsafe { p.as_mut() }.ok_or(status::INVALID_VALUE).and_then(|p| unsafe { p.work() }))
}

pub unsafe fn exec_set_any(exec: Handle, node: Handle, p: *mut Any) -> Status {
    // SAFETY: the caller's promise.
    set(Some(exec), node, unsafe { p.as_mut() }.ok_or(status::INVALID_VALUE).and_then(|p| unsafe { p.work() }))
}
