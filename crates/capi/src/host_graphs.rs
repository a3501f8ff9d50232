//! The part of the table of `host_interface` that serves captures and graphs: handles in, handles out.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::*;
use crate::host_interface::{
    Done, Failed, area_of, capture_mode, device_of, event, failed, fill_of, host_function, put, run, stream,
    work_stream,
};
use crate::memory::check_size;
use oxccl_hostrt_interface as hi;
use oxccl_hostrt_interface::{Address, Status, status, work};
use oxccl_runtime::device::{self, EndError, Event, Executable, Graph, GraphMemory, NodeId, Tag, UpdateError, Work};

fn invalid(text: &str) -> Failed {
    Failed(status::INVALID_VALUE, text.into())
}

fn graph(handle: *mut c_void) -> Result<Graph, Failed> {
    Graph::from_raw(handle).map_err(failed(status::INVALID_VALUE))
}

/// Node handles are the nodes' numbers, so that nobody reads through them.
fn node(handle: hi::Node) -> NodeId {
    handle.addr() as NodeId
}

fn node_handle(id: NodeId) -> hi::Node {
    std::ptr::without_provenance_mut(id as usize)
}

fn graph_of(handle: hi::Node) -> Result<Graph, Failed> {
    Graph::of_node(node(handle)).map_err(failed(status::INVALID_VALUE))
}

/// # Safety
/// `count` node handles can be read at `nodes`, or `count` is zero.
unsafe fn nodes_at(nodes: *const hi::Node, count: usize) -> Result<Vec<NodeId>, Failed> {
    if count > 0 && nodes.is_null() {
        return Err(invalid("a list of nodes is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok((0..count).map(|i| node(unsafe { nodes.add(i).read() })).collect())
}

/// Writes as many nodes as there is room for, null behind the last, and says how many there are.
///
/// # Safety
/// `list` is null or valid, and its nodes have the room that it says.
unsafe fn write_list(list: *mut hi::NodeList, ids: &[NodeId]) -> Done {
    if list.is_null() {
        return Err(invalid("a list is NULL"));
    }
    // SAFETY: not null, hence valid by the caller's promise.
    let list = unsafe { &mut *list };
    if !list.nodes.is_null() {
        for i in 0..list.room {
            let handle = ids.get(i).map_or(std::ptr::null_mut(), |id| node_handle(*id));
            // SAFETY: within the room.
            unsafe { list.nodes.add(i).write(handle) };
        }
    }
    list.count = ids.len();
    Ok(())
}

fn numbers(found: &Work, tag: Tag) -> hi::Work {
    let mut w = hi::Work { direction: tag[0] as c_int, ..hi::Work::default() };
    match found {
        Work::Call(_) => w.kind = work::CALL,
        Work::Empty => w.kind = work::EMPTY,
        Work::Copy(a) => {
            w.kind = work::COPY;
            w.copy = hi::CopyArea {
                dst: Address(a.dst.cast()),
                dst_pitch: a.dst_pitch,
                src: Address(a.src.cast_mut().cast()),
                src_pitch: a.src_pitch,
                width: a.width,
                height: a.height,
                dst_slice: a.dst_slice,
                src_slice: a.src_slice,
                depth: a.depth,
            };
        }
        Work::Fill(f) => {
            w.kind = work::FILL;
            w.fill = hi::FillArea {
                dst: Address(f.dst.cast()),
                pitch: f.pitch,
                value: f.value,
                element: f.element,
                width: f.width,
                height: f.height,
            };
        }
        Work::Host(_) => {
            w = hi::Work { kind: work::HOST, ..hi::Work::default() };
            if tag[0] != 0 {
                // SAFETY: the tag of a host node is a function of this type, or zero when Rust made the node.
                w.function = Some(unsafe { std::mem::transmute::<usize, hi::HostFn>(tag[0]) });
            }
            w.data = Address(std::ptr::with_exposed_provenance_mut(tag[1]));
        }
        Work::Record(_) | Work::Wait(_) => {
            w.kind = if matches!(found, Work::Record(_)) { work::RECORD } else { work::WAIT };
            w.handle = Address(std::ptr::with_exposed_provenance_mut(tag[0]));
            w.direction = 0;
        }
        Work::Child(child) => {
            w.kind = work::CHILD;
            w.handle = Address(child.as_raw());
        }
        Work::Alloc(memory) | Work::Free(memory) => {
            w.kind = if matches!(found, Work::Alloc(_)) { work::ALLOC } else { work::FREE };
            w.address = Address(memory.address().cast());
            w.bytes = memory.bytes();
            w.direction = device::allocation(memory.address().addr()).map_or(0, |a| a.label.device as c_int);
        }
    }
    w
}

/// The work that the caller describes. An allocation is made here, and its address told.
fn work_of(w: &mut hi::Work) -> Result<(Work, Tag), Failed> {
    let of_event =
        |handle: Address| -> Result<(Event, Tag), Failed> { Ok((event(handle.0)?, [handle.0.expose_provenance(), 0])) };
    Ok(match w.kind {
        work::EMPTY => (Work::Empty, [0; 2]),
        work::COPY => (Work::Copy(area_of(&w.copy)), [w.direction as usize, 0]),
        work::FILL => (Work::Fill(fill_of(&w.fill)), [0; 2]),
        work::HOST => {
            let function = w.function.ok_or_else(|| invalid("the host function is NULL"))?;
            let tag = [function as usize, w.data.0.expose_provenance()];
            (Work::Host(host_function(function, w.data.0)), tag)
        }
        work::RECORD => {
            let (event, tag) = of_event(w.handle)?;
            (Work::Record(event), tag)
        }
        work::WAIT => {
            let (event, tag) = of_event(w.handle)?;
            (Work::Wait(event), tag)
        }
        work::CHILD => (Work::Child(graph(w.handle.0)?.duplicate()), [0; 2]),
        work::ALLOC => {
            check_size(w.bytes).map_err(failed(status::OUT_OF_MEMORY))?;
            let memory = GraphMemory::new(w.bytes, device_of(w.direction)?).map_err(failed(status::OUT_OF_MEMORY))?;
            w.address = Address(memory.address().cast());
            (Work::Alloc(memory), [0; 2])
        }
        work::FREE => {
            let memory = GraphMemory::find(w.address.0.cast()).map_err(failed(status::INVALID_VALUE))?;
            (Work::Free(memory), [0; 2])
        }
        _ => return Err(Failed(status::NOT_SUPPORTED, "nodes of this kind are not supported on host devices".into())),
    })
}

/// # Safety
/// `w` is null or valid.
unsafe fn described<'a>(w: *mut hi::Work) -> Result<&'a mut hi::Work, Failed> {
    // SAFETY: the caller's promise.
    unsafe { w.as_mut() }.ok_or_else(|| invalid("the node's parameters are NULL"))
}

pub(crate) unsafe extern "C" fn capture_begin(
    handle: hi::Stream,
    mode: c_int,
    into: *mut c_void,
    after: *const hi::Node,
    count: usize,
) -> Status {
    run(|| {
        let mode = capture_mode(mode)?;
        let into = if into.is_null() { Graph::new() } else { graph(into)? };
        // SAFETY: the caller's promise.
        let after = unsafe { nodes_at(after, count) }?;
        stream(handle)?.begin_capture_to(into, &after, mode).map_err(failed(status::CAPTURE_UNSUPPORTED))
    })
}

pub(crate) unsafe extern "C" fn capture_end(handle: hi::Stream, graph: *mut *mut c_void) -> Status {
    run(|| {
        let ended = stream(handle)?.end_capture().map_err(|e| {
            let code = match e {
                EndError::NotCapturing => status::INVALID_VALUE,
                EndError::NotOrigin => status::CAPTURE_UNMATCHED,
                EndError::Invalidated => status::CAPTURE_INVALIDATED,
                EndError::Unjoined => status::CAPTURE_UNJOINED,
                EndError::WrongThread => status::CAPTURE_WRONG_THREAD,
            };
            Failed(code, e.to_string())
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(graph, ended.into_raw()) }
    })
}

pub(crate) unsafe extern "C" fn capture_info(
    handle: hi::Stream,
    info: *mut hi::CaptureInfo,
    ends: *mut hi::Node,
    room: usize,
) -> Status {
    run(|| {
        let Some(found) = stream(handle)?.capture_info() else {
            // SAFETY: the caller's promise.
            return unsafe { put(info, hi::CaptureInfo::default()) };
        };
        let mut list = hi::NodeList { nodes: ends, room, count: 0 };
        // SAFETY: the caller's promise about `ends` and `room`.
        unsafe { write_list(&mut list, &found.ends) }?;
        let answer = hi::CaptureInfo {
            state: 1 + c_int::from(found.invalid),
            id: found.id,
            graph: Address(found.graph.as_raw()),
            ends: found.ends.len(),
        };
        // SAFETY: the caller's promise.
        unsafe { put(info, answer) }
    })
}

pub(crate) unsafe extern "C" fn capture_set_ends(
    handle: hi::Stream,
    nodes: *const hi::Node,
    count: usize,
    add: c_int,
) -> Status {
    run(|| {
        let s = stream(handle)?;
        if s.capture_state().is_none() {
            return Err(Failed(status::ILLEGAL_STATE, "the stream is not capturing".into()));
        }
        // SAFETY: the caller's promise.
        let nodes = unsafe { nodes_at(nodes, count) }?;
        s.set_capture_ends(&nodes, add != 0).map_err(failed(status::INVALID_VALUE))
    })
}

pub(crate) unsafe extern "C" fn graph_create(out: *mut *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { put(out, if out.is_null() { out.cast() } else { Graph::new().into_raw() }) })
}

pub(crate) unsafe extern "C" fn graph_clone(of: *mut c_void, copy: *mut *mut c_void) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { put(copy, graph(of)?.duplicate().into_raw()) })
}

pub(crate) unsafe extern "C" fn graph_destroy(graph: *mut c_void) -> Status {
    run(|| Graph::destroy_raw(graph).map_err(failed(status::INVALID_VALUE)))
}

pub(crate) unsafe extern "C" fn graph_add(
    to: *mut c_void,
    after: *const hi::Node,
    count: usize,
    what: *mut hi::Work,
    out: *mut hi::Node,
) -> Status {
    run(|| {
        let to = graph(to)?;
        // SAFETY: the caller's promise.
        let (after, what) = unsafe { (nodes_at(after, count)?, described(what)?) };
        if out.is_null() {
            return Err(invalid("the node pointer is NULL"));
        }
        let (what, tag) = work_of(what)?;
        let id = to.add(what, tag, &after).map_err(failed(status::INVALID_VALUE))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, node_handle(id)) }
    })
}

pub(crate) unsafe extern "C" fn graph_nodes(of: *mut c_void, list: *mut hi::NodeList) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { write_list(list, &graph(of)?.nodes()) })
}

pub(crate) unsafe extern "C" fn graph_edges(of: *mut c_void, from: *mut hi::NodeList, to: *mut hi::NodeList) -> Status {
    run(|| {
        let (sources, targets): (Vec<_>, Vec<_>) = graph(of)?.edges().into_iter().unzip();
        // SAFETY: the caller's promise.
        unsafe { write_list(from, &sources).and(write_list(to, &targets)) }
    })
}

pub(crate) unsafe extern "C" fn graph_link(
    of: *mut c_void,
    from: *const hi::Node,
    to: *const hi::Node,
    count: usize,
    add: c_int,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (nodes_at(from, count)?, nodes_at(to, count)?) };
        let pairs: Vec<_> = from.into_iter().zip(to).collect();
        graph(of)?.link(&pairs, add != 0).map_err(failed(status::INVALID_VALUE))
    })
}

pub(crate) unsafe extern "C" fn graph_copy_of(of: *mut c_void, original: hi::Node, out: *mut hi::Node) -> Status {
    run(|| {
        let found = graph(of)?.copy_of(node(original));
        let found = found.ok_or_else(|| invalid("the graph is no copy of the node's graph"))?;
        // SAFETY: the caller's promise.
        unsafe { put(out, node_handle(found)) }
    })
}

pub(crate) unsafe extern "C" fn node_get(handle: hi::Node, what: *mut hi::Work) -> Status {
    run(|| {
        let (found, tag) = graph_of(handle)?.work(node(handle)).map_err(failed(status::INVALID_VALUE))?;
        // SAFETY: the caller's promise.
        unsafe { put(what, numbers(&found, tag)) }
    })
}

pub(crate) unsafe extern "C" fn node_set(handle: hi::Node, what: *mut hi::Work) -> Status {
    run(|| {
        let owner = graph_of(handle)?;
        // SAFETY: the caller's promise.
        let (what, tag) = work_of(unsafe { described(what) }?)?;
        owner.set_work(node(handle), what, tag).map_err(failed(status::INVALID_VALUE))
    })
}

pub(crate) unsafe extern "C" fn node_neighbours(
    handle: hi::Node,
    dependents: c_int,
    list: *mut hi::NodeList,
) -> Status {
    // SAFETY: the caller's promise.
    run(|| unsafe { write_list(list, &graph_of(handle)?.neighbours(node(handle), dependents != 0)) })
}

pub(crate) unsafe extern "C" fn node_graph(handle: hi::Node, owner: *mut *mut c_void, place: *mut c_uint) -> Status {
    run(|| {
        let found = graph_of(handle)?;
        let at = found.nodes().iter().position(|id| *id == node(handle)).unwrap_or(0);
        // SAFETY: the caller's promise.
        unsafe { put(owner, found.as_raw()).and(put(place, at as c_uint)) }
    })
}

pub(crate) unsafe extern "C" fn node_destroy(handle: hi::Node) -> Status {
    run(|| graph_of(handle)?.remove(node(handle)).map_err(failed(status::INVALID_VALUE)))
}

/// Something of the caller's that goes when nobody refers to it.
struct Object {
    /// Its handle.
    number: usize,
    destroy: hi::HostFn,
    data: usize,
    references: AtomicI64,
}

impl Object {
    /// Takes references, of one that has some: those that are found while the last one goes come too late.
    fn retain(&self, count: i64) -> Done {
        let more = |n: i64| (n > 0).then(|| n.saturating_add(count));
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        before.map(drop).map_err(|_| invalid("the last reference to the user object was given back"))
    }

    /// Gives references back; the last one, whoever holds it, forgets the handle and destroys. Fewer than none change nothing: the
    /// caller is told.
    fn release(&self, count: i64) -> Done {
        let fewer = |n: i64| (n >= count).then(|| n - count);
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        let before = before.map_err(|_| invalid("more references are given back than there are"))?;
        if before == count && count > 0 {
            // It is there until now: nobody else takes the last one.
            let _ = OBJECTS.remove(std::ptr::without_provenance_mut(self.number));
            // SAFETY: the caller promised that the function may be called once with this argument, on any thread.
            unsafe { (self.destroy)(std::ptr::with_exposed_provenance_mut(self.data)) };
        }
        Ok(())
    }
}

/// A reference that a graph holds.
struct Held(Arc<Object>);

impl Drop for Held {
    fn drop(&mut self) {
        // It was counted when it was made.
        let _ = self.0.release(1);
    }
}

static OBJECTS: Handles<Object> = Handles::new("user object");

pub(crate) unsafe extern "C" fn object_create(
    destroy: hi::HostFn,
    data: *mut c_void,
    count: c_uint,
    out: *mut *mut c_void,
) -> Status {
    run(|| {
        if count == 0 || out.is_null() {
            return Err(invalid("a user object needs a reference and a place for its handle"));
        }
        let references = AtomicI64::new(i64::from(count));
        let object = |number| Object { number, destroy, data: data.expose_provenance(), references };
        // SAFETY: the caller's promise.
        unsafe { put(out, OBJECTS.add_numbered(object)) }
    })
}

pub(crate) unsafe extern "C" fn object_retain(object: *mut c_void, count: c_uint) -> Status {
    run(|| OBJECTS.get(object)?.retain(i64::from(count)))
}

pub(crate) unsafe extern "C" fn object_release(handle: *mut c_void, count: c_uint) -> Status {
    run(|| OBJECTS.get(handle)?.release(i64::from(count)))
}

pub(crate) unsafe extern "C" fn graph_hold(of: *mut c_void, object: *mut c_void, count: c_uint, take: c_int) -> Status {
    run(|| {
        let (of, object) = (graph(of)?, OBJECTS.get(object)?);
        if take == 0 {
            object.retain(i64::from(count))?;
        } else if object.references.load(Ordering::Acquire) < i64::from(count) {
            return Err(invalid("more references are moved to the graph than there are"));
        }
        (0..count).for_each(|_| of.keep(Arc::new(Held(object.clone()))));
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn graph_let_go(of: *mut c_void, object: *mut c_void, count: c_uint) -> Status {
    run(|| {
        let (of, object) = (graph(of)?, OBJECTS.get(object)?);
        let holds = |v: &(dyn Any + Send + Sync)| v.downcast_ref::<Held>().is_some_and(|h| Arc::ptr_eq(&h.0, &object));
        let given = (0..count).all(|_| of.give_back(holds));
        given.then_some(()).ok_or_else(|| invalid("the graph holds fewer references to the object"))
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
        self.add_numbered(|_| value)
    }

    /// Adds a value that knows its handle.
    fn add_numbered(&self, value: impl FnOnce(usize) -> T) -> *mut c_void {
        let mut values = self.lock();
        let number = values.0;
        values.0 += 16;
        values.1.insert(number, Arc::new(value(number)));
        std::ptr::without_provenance_mut(number)
    }

    fn unknown(&self, handle: *mut c_void) -> Failed {
        Failed(status::INVALID_VALUE, format!("{handle:p} is no {} of this library, or was destroyed", self.what))
    }

    fn get(&self, handle: *mut c_void) -> Result<Arc<T>, Failed> {
        self.lock().1.get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle))
    }

    fn remove(&self, handle: *mut c_void) -> Done {
        // The value goes behind the lock: its end may call the caller's functions.
        let removed = self.lock().1.remove(&handle.addr());
        removed.map(drop).ok_or_else(|| self.unknown(handle))
    }
}

static EXECUTABLES: Handles<Mutex<Executable>> = Handles::new("executable graph");

fn with_exec<T>(exec: *mut c_void, f: impl FnOnce(&mut Executable) -> Result<T, Failed>) -> Result<T, Failed> {
    let exec = EXECUTABLES.get(exec)?;
    let mut exec = exec.lock().unwrap_or_else(PoisonError::into_inner);
    f(&mut exec)
}

pub(crate) unsafe extern "C" fn graph_instantiate(of: *mut c_void, exec: *mut *mut c_void) -> Status {
    run(|| {
        let made = graph(of)?.instantiate().map_err(failed(status::INVALID_VALUE))?;
        if exec.is_null() {
            return Err(invalid("the pointer for the executable graph is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { put(exec, EXECUTABLES.add(Mutex::new(made))) }
    })
}

pub(crate) unsafe extern "C" fn exec_launch(exec: *mut c_void, handle: hi::Stream) -> Status {
    run(|| {
        let stream = work_stream(handle)?;
        with_exec(exec, |e| e.launch(&stream).map_err(failed(status::LAUNCH_FAILURE)))
    })
}

pub(crate) unsafe extern "C" fn exec_update(exec: *mut c_void, by: *mut c_void, mismatch: *mut hi::Mismatch) -> Status {
    run(|| {
        let by = graph(by)?;
        let updated = with_exec(exec, |e| e.update(&by).map_err(failed(status::INVALID_VALUE)))?;
        let Err(why) = updated else { return Ok(()) };
        let (result, node) = match why {
            UpdateError::Topology(node) => (2, node),
            UpdateError::Kind(node) => (3, Some(node)),
        };
        let node = Address(node.map_or(std::ptr::null_mut(), node_handle));
        if !mismatch.is_null() {
            // SAFETY: not null, hence valid by the caller's promise.
            unsafe { mismatch.write(hi::Mismatch { result, node }) };
        }
        Err(Failed(status::GRAPH_UPDATE_FAILURE, "the graphs differ in shape or in the kinds of their nodes".into()))
    })
}

pub(crate) unsafe extern "C" fn exec_node_set(exec: *mut c_void, handle: hi::Node, what: *mut hi::Work) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (what, tag) = work_of(unsafe { described(what) }?)?;
        with_exec(exec, |e| e.set_work(node(handle), what, tag).map_err(failed(status::INVALID_VALUE)))
    })
}

pub(crate) unsafe extern "C" fn exec_node_enable(
    exec: *mut c_void,
    handle: hi::Node,
    on: c_int,
    now: *mut c_int,
) -> Status {
    run(|| {
        let enabled = with_exec(exec, |e| {
            if on >= 0 {
                e.enable(node(handle), on != 0).map_err(failed(status::INVALID_VALUE))?;
            }
            e.is_enabled(node(handle)).map_err(failed(status::INVALID_VALUE))
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(now, c_int::from(enabled)) }
    })
}

pub(crate) unsafe extern "C" fn exec_destroy(exec: *mut c_void) -> Status {
    run(|| EXECUTABLES.remove(exec))
}
