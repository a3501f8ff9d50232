//! Stream capture, and graphs from there to their launch.

use std::cell::RefCell;

use oxccl_hostrt_interface::{CaptureInfo, Mismatch, Status, status};

use crate::entry::{put, stream};
use crate::host::host;
use crate::{c_int, c_uint, c_ulonglong, c_void};

pub unsafe fn begin(s: *mut c_void, mode: c_int) -> Status {
    host!(capture_begin(stream(s), mode, std::ptr::null_mut(), std::ptr::null(), 0))
}

/// Into a graph that is there, behind some of its nodes.
pub unsafe fn begin_to(
    s: *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    _edges: *const [u8; 8],
    count: usize,
    mode: c_int,
) -> Status {
    if graph.is_null() {
        return status::INVALID_VALUE;
    }
    host!(capture_begin(stream(s), mode, graph, after, count))
}

pub unsafe fn end(s: *mut c_void, graph: *mut *mut c_void) -> Status {
    if graph.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { graph.write(std::ptr::null_mut()) };
    host!(capture_end(stream(s), graph))
}

pub unsafe fn is_capturing(s: *mut c_void, state: *mut c_int) -> Status {
    let mut found = CaptureInfo::default();
    match host!(capture_info(stream(s), &mut found, std::ptr::null_mut(), 0)) {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(state, found.state) },
        failure => failure,
    }
}

pub unsafe fn info(s: *mut c_void, state: *mut c_int, id: *mut c_ulonglong) -> Status {
    let null: *mut c_void = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { info_v2(s, state, id, null.cast(), null.cast(), null.cast()) }
}

thread_local! {
    /// What the last question of this thread answered: nodes and as many edges. Good until its next question.
    static ENDS: RefCell<(Vec<*mut c_void>, Vec<[u8; 8]>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// The graph under construction and what the next node waits for.
pub unsafe fn info_v2(
    s: *mut c_void,
    state: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    count: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { info_v3(s, state, id, graph, dependencies, std::ptr::null_mut(), count) }
}

pub unsafe fn info_v3(
    s: *mut c_void,
    state: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    edges: *mut *const [u8; 8],
    count: *mut usize,
) -> Status {
    let mut found = CaptureInfo::default();
    let mut all: Vec<*mut c_void> = Vec::new();
    loop {
        match host!(capture_info(stream(s), &mut found, all.as_mut_ptr(), all.len())) {
            status::SUCCESS if found.ends <= all.len() => break,
            status::SUCCESS => all.resize(found.ends, std::ptr::null_mut()),
            failure => return failure,
        }
    }
    all.truncate(found.ends);
    let (nodes, data) = ENDS.with_borrow_mut(|ends| {
        *ends = (all, vec![[0; 8]; found.ends]);
        (ends.0.as_ptr(), ends.1.as_ptr())
    });
    // SAFETY: null or valid by the caller's promise.
    unsafe {
        maybe(id, found.id);
        maybe(graph, found.graph.0);
        maybe(dependencies, nodes);
        maybe(edges, data);
        maybe(count, found.ends);
        put(state, found.state)
    }
}

/// Writes a result that the caller may not want.
///
/// # Safety
/// `to` is null or valid for writing.
unsafe fn maybe<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { to.write(value) };
    }
}

/// `flags`: 0 adds, 1 replaces.
pub unsafe fn set_dependencies(s: *mut c_void, nodes: *mut *mut c_void, count: usize, flags: c_uint) -> Status {
    if flags > 1 {
        return status::INVALID_VALUE;
    }
    host!(capture_set_ends(stream(s), nodes, count, c_int::from(flags == 0)))
}

pub unsafe fn set_dependencies_v2(
    s: *mut c_void,
    nodes: *mut *mut c_void,
    _edges: *const [u8; 8],
    count: usize,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { set_dependencies(s, nodes, count, flags) }
}

/// Which captures of others the calls of this thread mind.
pub unsafe fn exchange_mode(mode: *mut c_int) -> Status {
    host!(capture_thread_mode(mode))
}

pub unsafe fn instantiate(exec: *mut *mut c_void, graph: *mut c_void, _flags: c_ulonglong) -> Status {
    host!(graph_instantiate(graph, exec))
}

/// HIP's signature, with room for words about a bad node.
pub unsafe fn instantiate_with_log(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    _node: *mut *mut c_void,
    _log: *mut crate::c_char,
    _bytes: usize,
) -> Status {
    host!(graph_instantiate(graph, exec))
}

pub unsafe fn launch(exec: *mut c_void, s: *mut c_void) -> Status {
    let answer = host!(exec_launch(exec, stream(s)));
    if crate::pools::graphs_have_memory() {
        crate::pools::note_graphs();
    }
    answer
}

pub unsafe fn upload(_exec: *mut c_void, _s: *mut c_void) -> Status {
    status::SUCCESS
}

/// What `cudaGraphExecUpdate` tells of a failure.
#[repr(C)]
pub struct UpdateInfo {
    result: c_int,
    node: *mut c_void,
    from: *mut c_void,
}

pub unsafe fn update(exec: *mut c_void, graph: *mut c_void, info: *mut UpdateInfo) -> Status {
    let mut mismatch = Mismatch::default();
    let answer = host!(exec_update(exec, graph, &mut mismatch));
    if !info.is_null() {
        let result = match answer {
            status::SUCCESS => 0,
            status::GRAPH_UPDATE_FAILURE => mismatch.result,
            _ => 1,
        };
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { info.write(UpdateInfo { result, node: mismatch.node.0, from: std::ptr::null_mut() }) };
    }
    answer
}

/// HIP's signature.
pub unsafe fn update_hip(exec: *mut c_void, graph: *mut c_void, node: *mut *mut c_void, result: *mut c_int) -> Status {
    let mut info = UpdateInfo { result: 0, node: std::ptr::null_mut(), from: std::ptr::null_mut() };
    // SAFETY: our own struct.
    let answer = unsafe { update(exec, graph, &mut info) };
    if !node.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { node.write(info.node) };
    }
    if !result.is_null() {
        // SAFETY: as above.
        unsafe { result.write(info.result) };
    }
    answer
}

pub unsafe fn exec_destroy(exec: *mut c_void) -> Status {
    host!(exec_destroy(exec))
}

/// Flags of `cudaGraphInstantiateWithParams` and where its result goes.
#[repr(C)]
pub struct InstantiateParams {
    flags: c_ulonglong,
    upload: *mut c_void,
    error_node: *mut c_void,
    result: c_int,
    _pad: c_uint,
}

/// HIP's, in another order.
#[repr(C)]
pub struct HipInstantiateParams {
    error_node: *mut c_void,
    flags: c_ulonglong,
    result: c_int,
    upload: *mut c_void,
}

const _: () = {
    assert!(size_of::<InstantiateParams>() == 32 && std::mem::offset_of!(InstantiateParams, result) == 24);
    assert!(size_of::<HipInstantiateParams>() == 32 && std::mem::offset_of!(HipInstantiateParams, result) == 16);
};

fn instantiate_and_tell(exec: *mut *mut c_void, graph: *mut c_void, result: &mut c_int) -> Status {
    let answer = host!(graph_instantiate(graph, exec));
    *result = c_int::from(answer != status::SUCCESS);
    answer
}

pub unsafe fn instantiate_with_params(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    params: *mut InstantiateParams,
) -> Status {
    // SAFETY: null or valid by the caller's promise.
    let Some(params) = (unsafe { params.as_mut() }) else { return status::INVALID_VALUE };
    instantiate_and_tell(exec, graph, &mut params.result)
}

pub unsafe fn instantiate_with_params_hip(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    params: *mut HipInstantiateParams,
) -> Status {
    // SAFETY: null or valid by the caller's promise.
    let Some(params) = (unsafe { params.as_mut() }) else { return status::INVALID_VALUE };
    instantiate_and_tell(exec, graph, &mut params.result)
}
