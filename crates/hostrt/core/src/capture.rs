//! Stream capture and graphs. Graphs come from captures only; nodes cannot be added or changed one by one.

use std::cell::Cell;

use oxccl_hostrt_interface::{Status, status};

use crate::entry::{put, stream};
use crate::host::host;
use crate::{c_int, c_uint, c_ulonglong, c_void};

pub unsafe fn begin(s: *mut c_void, mode: c_int) -> Status {
    if !(0..=2).contains(&mode) {
        return status::INVALID_VALUE;
    }
    host!(capture_begin(stream(s)))
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
    let mut id = 0;
    host!(capture_state(stream(s), state, &mut id))
}

pub unsafe fn info(s: *mut c_void, state: *mut c_int, id: *mut c_ulonglong) -> Status {
    let (mut found, mut number) = (0, 0);
    match host!(capture_state(stream(s), &mut found, &mut number)) {
        status::SUCCESS => {}
        failure => return failure,
    }
    if !id.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { id.write(number) };
    }
    // SAFETY: the caller's promise.
    unsafe { put(state, found) }
}

/// The graph under construction and its ends cannot be had: they are reported as null and none.
pub unsafe fn info_v2(
    s: *mut c_void,
    state: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    count: *mut usize,
) -> Status {
    if !count.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { count.write(0) };
    }
    if !graph.is_null() {
        // SAFETY: as above.
        unsafe { graph.write(std::ptr::null_mut()) };
    }
    if !dependencies.is_null() {
        // SAFETY: as above.
        unsafe { dependencies.write(std::ptr::null()) };
    }
    // SAFETY: the caller's promise.
    unsafe { info(s, state, id) }
}

pub unsafe fn info_v3(
    s: *mut c_void,
    state: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut *mut c_void,
    dependencies: *mut *const c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> Status {
    if !edges.is_null() {
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { edges.write(std::ptr::null()) };
    }
    // SAFETY: the caller's promise.
    unsafe { info_v2(s, state, id, graph, dependencies, count) }
}

/// The mode says which calls of a thread break captures of others; here none does, so it is only kept.
pub unsafe fn exchange_mode(mode: *mut c_int) -> Status {
    thread_local! {
        static MODE: Cell<c_int> = const { Cell::new(0) };
    }
    if mode.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    let new = unsafe { mode.read() };
    if !(0..=2).contains(&new) {
        return status::INVALID_VALUE;
    }
    // SAFETY: as above.
    unsafe { mode.write(MODE.replace(new)) };
    status::SUCCESS
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
    host!(exec_launch(exec, stream(s)))
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
    let answer = host!(exec_update(exec, graph));
    if !info.is_null() {
        // 2: the shape has changed; 1: another error.
        let result = match answer {
            status::SUCCESS => 0,
            status::GRAPH_UPDATE_FAILURE => 2,
            _ => 1,
        };
        // SAFETY: not null, hence valid by the caller's promise.
        unsafe { info.write(UpdateInfo { result, node: std::ptr::null_mut(), from: std::ptr::null_mut() }) };
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
        unsafe { node.write(std::ptr::null_mut()) };
    }
    if !result.is_null() {
        // SAFETY: as above.
        unsafe { result.write(info.result) };
    }
    answer
}

/// Nodes can be counted, not looked at: their handles are numbers.
pub unsafe fn nodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> Status {
    let mut found = 0;
    match host!(graph_nodes(graph, &mut found)) {
        status::SUCCESS if !count.is_null() => {}
        status::SUCCESS => return status::INVALID_VALUE,
        failure => return failure,
    }
    if !nodes.is_null() {
        // SAFETY: the caller promises room for as many as `count` says.
        let room = unsafe { count.read() };
        for i in 0..room {
            let handle = if i < found { std::ptr::without_provenance_mut(i + 1) } else { std::ptr::null_mut() };
            // SAFETY: below the promised room.
            unsafe { nodes.add(i).write(handle) };
        }
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { count.write(found) };
    status::SUCCESS
}

pub unsafe fn clone(copy: *mut *mut c_void, graph: *mut c_void) -> Status {
    host!(graph_clone(graph, copy))
}

pub unsafe fn destroy(graph: *mut c_void) -> Status {
    host!(graph_destroy(graph))
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

pub unsafe fn instantiate_with_params(
    exec: *mut *mut c_void,
    graph: *mut c_void,
    params: *mut InstantiateParams,
) -> Status {
    if params.is_null() {
        return status::INVALID_VALUE;
    }
    let answer = host!(graph_instantiate(graph, exec));
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { (&raw mut (*params).result).write(c_int::from(answer != status::SUCCESS)) };
    answer
}
