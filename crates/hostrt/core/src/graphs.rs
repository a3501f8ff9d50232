//! Graphs: making, linking and looking at them; objects of the caller that live with them.

use oxccl_hostrt_interface::{HostFn, NodeList, Status, Work, status};

use crate::entry::put;
use crate::host::host;
use crate::{c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;
/// `cudaGraphEdgeData`: all zero for an ordinary dependency, and there is no other kind here.
type Edge = [u8; 8];

pub unsafe fn create(graph: *mut Handle, flags: c_uint) -> Status {
    if flags != 0 || graph.is_null() {
        return status::INVALID_VALUE;
    }
    host!(graph_create(graph))
}

pub unsafe fn clone(copy: *mut Handle, graph: Handle) -> Status {
    host!(graph_clone(graph, copy))
}

pub unsafe fn destroy(graph: Handle) -> Status {
    host!(graph_destroy(graph))
}

pub unsafe fn destroy_node(node: Handle) -> Status {
    host!(node_destroy(node))
}

/// Asks for a list as C does: without room only its length is told, else how much was written.
///
/// # Safety
/// `count` is null or valid; when `nodes` is not null it says how much room there is.
unsafe fn list(nodes: *mut Handle, count: *mut usize, ask: impl FnOnce(*mut NodeList) -> Status) -> Status {
    if count.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    let room = if nodes.is_null() { 0 } else { unsafe { count.read() } };
    let mut found = NodeList { nodes, room, count: 0 };
    let answer = ask(&mut found);
    if answer == status::SUCCESS {
        let told = if nodes.is_null() { found.count } else { found.count.min(room) };
        // SAFETY: as above.
        unsafe { count.write(told) };
    }
    answer
}

pub unsafe fn nodes(graph: Handle, nodes: *mut Handle, count: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { list(nodes, count, |l| host!(graph_nodes(graph, l))) }
}

pub unsafe fn roots(graph: Handle, roots: *mut Handle, count: *mut usize) -> Status {
    if count.is_null() {
        return status::INVALID_VALUE;
    }
    let found = match all_nodes(graph) {
        Ok(all) => all.into_iter().filter(|n| neighbours(*n, 0).is_empty()).collect::<Vec<_>>(),
        Err(failure) => return failure,
    };
    // SAFETY: the caller's promise.
    let room = if roots.is_null() { 0 } else { unsafe { count.read() } };
    for i in 0..room {
        // SAFETY: within the room.
        unsafe { roots.add(i).write(found.get(i).copied().unwrap_or(std::ptr::null_mut())) };
    }
    // SAFETY: not null, hence valid by the caller's promise.
    unsafe { count.write(if roots.is_null() { found.len() } else { found.len().min(room) }) };
    status::SUCCESS
}

fn all_nodes(graph: Handle) -> Result<Vec<Handle>, Status> {
    whole(|l| host!(graph_nodes(graph, l)))
}

fn neighbours(node: Handle, dependents: c_int) -> Vec<Handle> {
    whole(|l| host!(node_neighbours(node, dependents, l))).unwrap_or_default()
}

/// The whole of a list.
fn whole(ask: impl Fn(*mut NodeList) -> Status) -> Result<Vec<Handle>, Status> {
    let mut found = NodeList { nodes: std::ptr::null_mut(), room: 0, count: 0 };
    loop {
        let mut all = vec![std::ptr::null_mut(); found.count];
        (found.nodes, found.room) = (all.as_mut_ptr(), all.len());
        match ask(&mut found) {
            // Unless the list grew in between.
            status::SUCCESS if found.count <= all.len() => {
                all.truncate(found.count);
                return Ok(all);
            }
            status::SUCCESS => {}
            failure => return Err(failure),
        }
    }
}

pub unsafe fn edges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) -> Status {
    if count.is_null() || from.is_null() != to.is_null() {
        return status::INVALID_VALUE;
    }
    // SAFETY: not null, hence valid by the caller's promise.
    let room = if from.is_null() { 0 } else { unsafe { count.read() } };
    let (mut f, mut t) = (NodeList { nodes: from, room, count: 0 }, NodeList { nodes: to, room, count: 0 });
    let answer = host!(graph_edges(graph, &mut f, &mut t));
    if answer == status::SUCCESS {
        // SAFETY: as above.
        unsafe { count.write(if from.is_null() { f.count } else { f.count.min(room) }) };
    }
    answer
}

/// # Safety
/// `edges` is null or has room for as many as `count` says.
unsafe fn plain_edges(answer: Status, edges: *mut Edge, count: *const usize) -> Status {
    if answer == status::SUCCESS && !edges.is_null() && !count.is_null() {
        // SAFETY: the caller's promise; `count` was written.
        (0..unsafe { count.read() }).for_each(|i| unsafe { edges.add(i).write([0; 8]) });
    }
    answer
}

pub unsafe fn edges_v2(
    graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    data: *mut Edge,
    count: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { plain_edges(edges(graph, from, to, count), data, count) }
}

pub unsafe fn dependencies(node: Handle, nodes: *mut Handle, count: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { list(nodes, count, |l| host!(node_neighbours(node, 0, l))) }
}

pub unsafe fn dependencies_v2(node: Handle, nodes: *mut Handle, data: *mut Edge, count: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { plain_edges(dependencies(node, nodes, count), data, count) }
}

pub unsafe fn dependents(node: Handle, nodes: *mut Handle, count: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { list(nodes, count, |l| host!(node_neighbours(node, 1, l))) }
}

pub unsafe fn dependents_v2(node: Handle, nodes: *mut Handle, data: *mut Edge, count: *mut usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { plain_edges(dependents(node, nodes, count), data, count) }
}

pub unsafe fn link(graph: Handle, from: *const Handle, to: *const Handle, count: usize) -> Status {
    host!(graph_link(graph, from, to, count, 1))
}

pub unsafe fn link_v2(graph: Handle, from: *const Handle, to: *const Handle, _: *const Edge, count: usize) -> Status {
    host!(graph_link(graph, from, to, count, 1))
}

pub unsafe fn unlink(graph: Handle, from: *const Handle, to: *const Handle, count: usize) -> Status {
    host!(graph_link(graph, from, to, count, 0))
}

pub unsafe fn unlink_v2(graph: Handle, from: *const Handle, to: *const Handle, _: *const Edge, count: usize) -> Status {
    host!(graph_link(graph, from, to, count, 0))
}

pub unsafe fn find_in_clone(node: *mut Handle, original: Handle, clone: Handle) -> Status {
    if node.is_null() {
        return status::INVALID_VALUE;
    }
    host!(graph_copy_of(clone, original, node))
}

pub unsafe fn containing_graph(node: Handle, graph: *mut Handle) -> Status {
    let mut place = 0;
    host!(node_graph(node, graph, &mut place))
}

pub unsafe fn local_id(node: Handle, id: *mut c_uint) -> Status {
    let mut graph = std::ptr::null_mut();
    host!(node_graph(node, &mut graph, id))
}

/// Nodes are numbered across all graphs.
pub unsafe fn tools_id(node: Handle, id: *mut u64) -> Status {
    let (mut graph, mut place) = (std::ptr::null_mut(), 0);
    match host!(node_graph(node, &mut graph, &mut place)) {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(id, node.addr() as u64) },
        failure => failure,
    }
}

/* ---- executable graphs ---- */

pub unsafe fn enable(exec: Handle, node: Handle, on: c_uint) -> Status {
    let mut now = 0;
    host!(exec_node_enable(exec, node, c_int::from(on != 0), &mut now))
}

pub unsafe fn is_enabled(exec: Handle, node: Handle, to: *mut c_uint) -> Status {
    let mut now = 0;
    match host!(exec_node_enable(exec, node, -1, &mut now)) {
        // SAFETY: the caller's promise.
        status::SUCCESS => unsafe { put(to, now as c_uint) },
        failure => failure,
    }
}

/// Flags of instantiation change nothing here and are not kept.
pub unsafe fn exec_flags(_exec: Handle, to: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { put(to, 0) }
}

/* ---- objects of the caller ---- */

pub unsafe fn object(
    out: *mut Handle,
    data: *mut c_void,
    destroy: Option<HostFn>,
    count: c_uint,
    flags: c_uint,
) -> Status {
    // The only flag, which has to be given: the destructor runs without synchronisation.
    match destroy {
        Some(destroy) if flags == 1 => host!(object_create(destroy, data, count, out)),
        _ => status::INVALID_VALUE,
    }
}

pub unsafe fn retain(object: Handle, count: c_uint) -> Status {
    if count == 0 {
        return status::INVALID_VALUE;
    }
    host!(object_retain(object, count))
}

pub unsafe fn release(object: Handle, count: c_uint) -> Status {
    if count == 0 {
        return status::INVALID_VALUE;
    }
    host!(object_release(object, count))
}

/// `flags`: 1 moves the references from the caller to the graph.
pub unsafe fn hold(graph: Handle, object: Handle, count: c_uint, flags: c_uint) -> Status {
    if count == 0 || flags > 1 {
        return status::INVALID_VALUE;
    }
    host!(graph_hold(graph, object, count, flags as c_int))
}

pub unsafe fn let_go(graph: Handle, object: Handle, count: c_uint) -> Status {
    if count == 0 {
        return status::INVALID_VALUE;
    }
    host!(graph_let_go(graph, object, count))
}

/* ---- a drawing ---- */

const KINDS: [&str; 12] =
    ["call", "memcpy", "memset", "host", "graph", "empty", "wait event", "record event", "", "", "allocate", "free"];

/// Writes the graph in the language of Graphviz.
pub unsafe fn draw(graph: Handle, path: *const c_char, _flags: c_uint) -> Status {
    if path.is_null() {
        return status::INVALID_VALUE;
    }
    let all = match all_nodes(graph) {
        Ok(all) => all,
        Err(failure) => return failure,
    };
    let mut text = String::from("digraph {\n");
    for node in &all {
        let mut found = Work::default();
        let _ = host!(node_get(*node, &mut found));
        let kind = usize::try_from(found.kind).ok().and_then(|k| KINDS.get(k)).unwrap_or(&"");
        text += &format!("  n{0} [label=\"{0}: {kind}\"];\n", node.addr());
        for next in neighbours(*node, 1) {
            text += &format!("  n{} -> n{};\n", node.addr(), next.addr());
        }
    }
    text += "}\n";
    // SAFETY: the caller promises a string.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    let path = std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.to_bytes()));
    match std::fs::write(path, text) {
        Ok(()) => status::SUCCESS,
        Err(_) => 304, // The operating system refuses.
    }
}
