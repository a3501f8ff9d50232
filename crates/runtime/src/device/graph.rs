//! Graphs: pieces of work and what each of them waits for, built by a capture or node by node.
//!
//! A graph is a value with handles: cloning a [`Graph`] gives another handle to the same graph, [`Graph::duplicate`]
//! copies it. Nothing runs here; `launch` turns a graph into something that can be launched.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result};

use super::Event;
use super::memory::GraphMemory;
use super::moves::{Area, Fill};
use crate::communicator::Communicator;
use crate::exec::one_sided::OneSided;
use crate::request::Request;

/// A host function that a graph may call many times.
pub type HostFunction = Arc<dyn Fn() + Send + Sync>;

/// Numbers a node in its process, across all graphs. Never used again.
pub type NodeId = u64;

/// A call of a communicator. Calls of one group start together.
#[derive(Clone)]
pub struct Call {
    pub(super) group: u64,
    pub(super) comm: Arc<Communicator>,
    pub(super) operation: Operation,
}

/// What a call does.
#[derive(Clone)]
pub(super) enum Operation {
    /// A collective, a send or a receive.
    Request(Request),
    /// A put, a signal or a wait for signals.
    OneSided(OneSided),
}

// SAFETY: a shared call is only cloned: its pointers are followed by launches, by leave of whoever captured it.
unsafe impl Sync for Call {}

/// What a node does.
#[derive(Clone)]
pub enum Work {
    /// Nothing: joins what it waits for.
    Empty,
    /// A copy.
    Copy(Area),
    /// A fill.
    Fill(Fill),
    /// A host function.
    Host(HostFunction),
    /// A call of a communicator.
    Call(Box<Call>),
    /// Records an event that is known outside of the graph.
    Record(Event),
    /// Waits for an event that is recorded outside of the graph.
    Wait(Event),
    /// Another graph as a whole.
    Child(Graph),
    /// From here on the memory may be used.
    Alloc(Arc<GraphMemory>),
    /// From here on it may not.
    Free(Arc<GraphMemory>),
}

impl Work {
    /// Whether one can stand for the other in a launchable graph.
    pub(super) fn alike(&self, other: &Work) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Two words that the caller keeps with a node; a host function's own address, for example.
pub type Tag = [usize; 2];

#[derive(Clone)]
pub(super) struct Node {
    pub(super) work: Work,
    pub(super) tag: Tag,
    /// What it waits for, without repetition.
    pub(super) after: Vec<NodeId>,
    /// The node that it is a copy of, else itself.
    origin: NodeId,
}

/// What a graph holds. `keep`: values that live as long as the graph and what was made of it.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) keep: Vec<Arc<dyn Any + Send + Sync>>,
}

struct Inner {
    state: Mutex<State>,
}

/// A graph. Cloning gives another handle.
#[derive(Clone)]
pub struct Graph(Arc<Inner>);

/// Every living graph by address, the owned ones by handle, and where each node lives.
#[derive(Default)]
struct Registry {
    graphs: BTreeMap<usize, Weak<Inner>>,
    owned: BTreeMap<usize, Graph>,
    nodes: BTreeMap<NodeId, Weak<Inner>>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { graphs: BTreeMap::new(), owned: BTreeMap::new(), nodes: BTreeMap::new() });

fn registry() -> MutexGuard<'static, Registry> {
    // Valid between statements.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.graphs.remove(&(std::ptr::from_ref(self) as usize));
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for id in state.nodes.keys() {
            registry.nodes.remove(id);
        }
        // Behind the lock: values that go with the graph may be graphs themselves.
        let state = std::mem::take(state);
        drop(registry);
        drop(state);
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::with(State::default())
    }

    fn with(state: State) -> Graph {
        let graph = Graph(Arc::new(Inner { state: Mutex::new(state) }));
        registry().graphs.insert(graph.address(), Arc::downgrade(&graph.0));
        graph
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Valid between statements.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it holds now.
    pub(super) fn state(&self) -> State {
        self.lock().clone()
    }

    /// A copy of its own, child graphs included. Its nodes know whose copies they are.
    pub fn duplicate(&self) -> Graph {
        Graph::of_state(self.state())
    }

    /// A graph with new nodes for those of `state`.
    pub(super) fn of_state(state: State) -> Graph {
        let graph = Graph::new();
        let ids: BTreeMap<_, _> = state.nodes.keys().map(|old| (*old, next_id())).collect();
        let nodes = state.nodes.into_iter().map(|(old, node)| {
            let after = node.after.iter().filter_map(|a| ids.get(a).copied()).collect();
            let work = match node.work {
                Work::Child(child) => Work::Child(child.duplicate()),
                work => work,
            };
            (ids[&old], Node { work, tag: node.tag, after, origin: old })
        });
        let nodes: BTreeMap<_, _> = nodes.collect();
        registry().nodes.extend(nodes.keys().map(|id| (*id, Arc::downgrade(&graph.0))));
        *graph.lock() = State { nodes, keep: state.keep };
        graph
    }

    /// Adds a node that waits for `after`. `InvalidArgument` when one of these is in another graph.
    pub fn add(&self, work: Work, tag: Tag, after: &[NodeId]) -> Result<NodeId> {
        let mut state = self.lock();
        let after = unique(after);
        known(&state, &after)?;
        let id = next_id();
        registry().nodes.insert(id, Arc::downgrade(&self.0));
        state.nodes.insert(id, Node { work, tag, after, origin: id });
        Ok(id)
    }

    /// `InvalidArgument` when one of these is no node of this graph.
    pub(super) fn check(&self, nodes: &[NodeId]) -> Result<()> {
        known(&self.lock(), nodes)
    }

    /// Nodes in the order in which they were added.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.lock().nodes.keys().copied().collect()
    }

    /// Pairs: the second waits for the first.
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let state = self.lock();
        state.nodes.iter().flat_map(|(to, node)| node.after.iter().map(move |from| (*from, *to))).collect()
    }

    /// Lets `to` wait for `from`, pair by pair, or no longer.
    pub fn link(&self, pairs: &[(NodeId, NodeId)], add: bool) -> Result<()> {
        let mut state = self.lock();
        for (from, to) in pairs {
            known(&state, &[*from, *to])?;
            let there = state.nodes[to].after.contains(from);
            if from == to || there == add {
                let what = if add { "exists already, or leads from a node to itself" } else { "does not exist" };
                return Err(Error::argument(format!("a dependency of the graph {what}; nothing is changed")));
            }
        }
        for (from, to) in pairs {
            let Some(node) = state.nodes.get_mut(to) else { continue };
            node.after.retain(|a| a != from);
            if add {
                node.after.push(*from);
            }
        }
        Ok(())
    }

    /// The node made of `original` when this graph was copied from that node's graph.
    pub fn copy_of(&self, original: NodeId) -> Option<NodeId> {
        self.lock().nodes.iter().find(|(id, n)| n.origin == original && **id != original).map(|(id, _)| *id)
    }

    /// Keeps a value as long as the graph, its copies and what was made of them to be launched.
    pub fn keep(&self, value: Arc<dyn Any + Send + Sync>) {
        self.lock().keep.push(value);
    }

    /// Gives back one value for which `wanted` holds. Whether there was one.
    pub fn give_back(&self, wanted: impl Fn(&(dyn Any + Send + Sync)) -> bool) -> bool {
        let mut state = self.lock();
        let found = state.keep.iter().position(|v| wanted(&**v));
        let value = found.map(|i| state.keep.swap_remove(i));
        drop(state);
        value.is_some()
    }

    /// A handle for C that keeps the graph until [`destroy_raw`](Self::destroy_raw). Never null.
    pub fn into_raw(self) -> *mut c_void {
        let raw = Arc::as_ptr(&self.0).cast_mut().cast();
        registry().owned.insert(self.address(), self);
        raw
    }

    /// A handle for C that is good as long as something else keeps the graph.
    pub fn as_raw(&self) -> *mut c_void {
        Arc::as_ptr(&self.0).cast_mut().cast()
    }

    /// The graph behind a C handle.
    pub fn from_raw(handle: *mut c_void) -> Result<Graph> {
        let found = registry().graphs.get(&handle.addr()).and_then(Weak::upgrade);
        found
            .map(Graph)
            .ok_or_else(|| Error::argument(format!("{handle:p} is no graph of this library, or was destroyed")))
    }

    /// Forgets a C handle of [`into_raw`](Self::into_raw).
    pub fn destroy_raw(handle: *mut c_void) -> Result<()> {
        let removed = registry().owned.remove(&handle.addr());
        removed.map(drop).ok_or_else(|| {
            Error::argument(format!("{handle:p} is no graph of this library, or belongs to a node, or was destroyed"))
        })
    }

    /// The graph that holds a node.
    pub fn of_node(node: NodeId) -> Result<Graph> {
        let found = registry().nodes.get(&node).and_then(Weak::upgrade);
        found.map(Graph).ok_or_else(|| Error::argument(format!("{node:#x} is no node of a graph, or was destroyed")))
    }

    /// What a node does.
    pub fn work(&self, node: NodeId) -> Result<(Work, Tag)> {
        let state = self.lock();
        let found = state.nodes.get(&node).map(|n| (n.work.clone(), n.tag));
        found.ok_or_else(|| Error::argument(format!("{node:#x} is no node of this graph")))
    }

    /// Changes what a node does. `InvalidArgument` when that is of another kind.
    pub fn set_work(&self, node: NodeId, work: Work, tag: Tag) -> Result<()> {
        set_work(&mut self.lock(), node, work, tag)
    }

    /// What a node waits for, or what waits for it.
    pub fn neighbours(&self, node: NodeId, dependents: bool) -> Vec<NodeId> {
        let state = self.lock();
        if !dependents {
            return state.nodes.get(&node).map_or_else(Vec::new, |n| n.after.clone());
        }
        state.nodes.iter().filter(|(_, n)| n.after.contains(&node)).map(|(id, _)| *id).collect()
    }

    /// Takes a node, and what leads to and from it, out of the graph.
    pub fn remove(&self, node: NodeId) -> Result<()> {
        let mut state = self.lock();
        let Some(removed) = state.nodes.remove(&node) else {
            return Err(Error::argument(format!("{node:#x} is no node of this graph")));
        };
        state.nodes.values_mut().for_each(|n| n.after.retain(|a| *a != node));
        registry().nodes.remove(&node);
        drop(state);
        drop(removed);
        Ok(())
    }
}

/// Whether values of the program go with it, or with one of its child graphs.
pub(super) fn keeps(state: &State) -> bool {
    let child = |node: &Node| matches!(&node.work, Work::Child(child) if keeps(&child.lock()));
    !state.keep.is_empty() || state.nodes.values().any(child)
}

pub(super) fn set_work(state: &mut State, node: NodeId, work: Work, tag: Tag) -> Result<()> {
    let found = state.nodes.get_mut(&node).filter(|n| n.work.alike(&work));
    let Some(found) = found else {
        return Err(Error::argument(format!("{node:#x} is no node of this graph, or does another kind of work")));
    };
    // The old work may hold a graph, whose end needs the registry.
    let old = std::mem::replace(&mut found.work, work);
    found.tag = tag;
    drop(old);
    Ok(())
}

fn next_id() -> NodeId {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn unique(ids: &[NodeId]) -> Vec<NodeId> {
    let mut seen = BTreeSet::new();
    ids.iter().copied().filter(|id| seen.insert(*id)).collect()
}

fn known(state: &State, ids: &[NodeId]) -> Result<()> {
    match ids.iter().find(|id| !state.nodes.contains_key(id)) {
        None => Ok(()),
        Some(id) => Err(Error::argument(format!("{id:#x} is no node of this graph, or was destroyed"))),
    }
}
