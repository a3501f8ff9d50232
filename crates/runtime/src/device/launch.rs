//! Graphs that can be launched: the order of their nodes on streams, worked out once.
//!
//! Nodes are dealt to *lanes*: the first lane is the launch stream, the others are streams of the executable. A node goes
//! to the lane of something that it waits for; for the rest it waits by events, of which none is made that the order of
//! the lanes or an earlier wait makes superfluous. A chain of nodes costs no event at all. Work runs through the same
//! paths that take it outside of graphs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oxccl_types::{Error, Result};

use super::graph::{self, Graph, Node, NodeId, Operation, State, Tag, Work};
use super::{Event, Stream};
use crate::exec::one_sided::OneSided;
use crate::request::Request;

/// Lanes of nodes that are no calls of communicators; calls that start together need one each.
const LANES: usize = 16;
/// Depth of child graphs.
const DEPTH: usize = 64;

/// Why an executable graph could not be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The graphs differ in more than the arguments of their work. The first node of the new graph that does, if any.
    Topology(Option<NodeId>),
    /// A node does another kind of work.
    Kind(NodeId),
}

/// A node of the graph or of a child, with what it waits for by position.
#[derive(Clone)]
struct Flat {
    /// The node of the outermost graph.
    id: NodeId,
    work: Work,
    after: Vec<usize>,
    /// Which nodes start together; unique to this appearance of the graph: how many nodes there were before it, and how deep it lies.
    group: Option<((usize, usize), u64)>,
}

/// A node in its place.
#[derive(Clone)]
struct Slot {
    flat: Flat,
    lane: usize,
    waits: Vec<usize>,
    mark: Option<usize>,
}

#[derive(Clone, Default)]
struct Plan {
    slots: Vec<Slot>,
    /// Slots that start together, in order.
    units: Vec<Vec<usize>>,
    lanes: usize,
    marks: usize,
    /// What the launch stream waits for at the end.
    joins: Vec<usize>,
    /// Whether something must outlive the executable until launched work is done.
    retains: bool,
}

/// The mark of the start of a launch, for lanes that wait for nothing else.
const START: usize = 0;

/// Replaces child graphs by their nodes. The positions of the last nodes of `state`.
fn flatten(
    state: &State,
    outer: Option<NodeId>,
    roots: &[usize],
    all: &mut Vec<Flat>,
    depth: usize,
) -> Result<Vec<usize>> {
    if depth > DEPTH {
        return Err(Error::argument(format!("graphs are nested deeper than {DEPTH}, or in themselves")));
    }
    // Of one depth each that is not empty adds nodes; a graph and a child that comes first in it do not begin at one depth.
    let appearance = (all.len(), depth);
    // Where each node ends: itself, or the last nodes of a child.
    let mut ends: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    let mut inner = BTreeSet::new();
    for id in topological(state)? {
        let node = &state.nodes[&id];
        let mut after: Vec<usize> = node.after.iter().flat_map(|a| ends[a].iter().copied()).collect();
        inner.extend(after.iter().copied());
        if node.after.is_empty() {
            after = roots.to_vec();
        }
        after.sort_unstable();
        after.dedup();
        let outer = outer.unwrap_or(id);
        if let Work::Child(child) = &node.work {
            let child = child.state();
            if !child.nodes.is_empty() {
                let last = flatten(&child, Some(outer), &after, all, depth + 1)?;
                ends.insert(id, last);
                continue;
            }
        }
        let group = match &node.work {
            Work::Call(call) => Some((appearance, call.group)),
            _ => None,
        };
        ends.insert(id, vec![all.len()]);
        all.push(Flat { id: outer, work: node.work.clone(), after, group });
    }
    Ok(ends.into_values().flatten().filter(|i| !inner.contains(i)).collect())
}

/// Node ids so that each comes after what it waits for, otherwise in the order in which they were added.
fn topological(state: &State) -> Result<Vec<NodeId>> {
    let mut missing: BTreeMap<NodeId, usize> = state.nodes.iter().map(|(id, n)| (*id, n.after.len())).collect();
    let mut dependents: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in &state.nodes {
        node.after.iter().for_each(|a| dependents.entry(*a).or_default().push(*id));
    }
    let mut ready: BTreeSet<NodeId> = missing.iter().filter(|(_, n)| **n == 0).map(|(id, _)| *id).collect();
    let mut order = Vec::with_capacity(state.nodes.len());
    while let Some(id) = ready.pop_first() {
        order.push(id);
        for next in dependents.get(&id).into_iter().flatten() {
            let Some(n) = missing.get_mut(next) else { continue };
            *n -= 1;
            if *n == 0 {
                ready.insert(*next);
            }
        }
    }
    if order.len() < state.nodes.len() {
        return Err(cycle());
    }
    Ok(order)
}

fn cycle() -> Error {
    Error::argument("the nodes of the graph wait for each other in a circle; remove one of the dependencies")
}

/// Units in an order in which each comes after all that its members wait for.
fn order(flats: &[Flat]) -> Result<Vec<Vec<usize>>> {
    let mut units: BTreeMap<((usize, usize), u64), usize> = BTreeMap::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut unit_of = Vec::with_capacity(flats.len());
    for (i, flat) in flats.iter().enumerate() {
        let unit = match flat.group {
            Some(group) => *units.entry(group).or_insert(members.len()),
            None => members.len(),
        };
        if unit == members.len() {
            members.push(Vec::new());
        }
        members[unit].push(i);
        unit_of.push(unit);
    }
    let mut missing = vec![BTreeSet::new(); members.len()];
    let mut dependents = vec![BTreeSet::new(); members.len()];
    for (i, flat) in flats.iter().enumerate() {
        for after in &flat.after {
            // The calls of a group follow one another on a stream, and go off together all the same.
            if unit_of[i] != unit_of[*after] {
                missing[unit_of[i]].insert(unit_of[*after]);
                dependents[unit_of[*after]].insert(unit_of[i]);
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..members.len()).filter(|u| missing[*u].is_empty()).collect();
    let mut done = Vec::with_capacity(members.len());
    while let Some(unit) = ready.pop_first() {
        done.push(std::mem::take(&mut members[unit]));
        for next in &dependents[unit] {
            missing[*next].remove(&unit);
            if missing[*next].is_empty() {
                ready.insert(*next);
            }
        }
    }
    if done.len() < members.len() { Err(cycle()) } else { Ok(done) }
}

/// What is known while nodes are dealt to lanes.
#[derive(Default)]
struct Deal {
    plan: Plan,
    /// Where each flat node came to lie.
    slot_of: BTreeMap<usize, usize>,
    /// The last slot of each lane, and how many it has; the launch stream begins with the mark of the start.
    last: Vec<Option<usize>>,
    count: Vec<usize>,
    /// How far each lane has come when it goes on: `seen[a][b]` slots of lane `b` are done before the next of `a`.
    seen: Vec<Vec<usize>>,
    /// The same for each slot, itself included.
    clocks: Vec<Vec<usize>>,
}

impl Deal {
    fn lane(&mut self) -> usize {
        self.last.push(None);
        self.count.push(usize::from(self.count.is_empty()));
        self.seen.push(Vec::new());
        let lanes = self.last.len();
        self.seen.iter_mut().for_each(|s| s.resize(lanes, 0));
        if lanes == 1 {
            self.seen[0][0] = 1;
        }
        lanes - 1
    }

    /// The lane of something it waits for that has nothing after it, else an unused one, else any.
    fn choose(&mut self, flat: &Flat, taken: &BTreeSet<usize>) -> usize {
        let free = |deal: &Deal, lane: usize| !taken.contains(&lane) && deal.last[lane].is_none();
        let slots: Vec<usize> = flat.after.iter().filter_map(|a| self.slot_of.get(a).copied()).collect();
        let follows = slots.iter().find(|s| {
            let lane = self.plan.slots[**s].lane;
            // Calls of one group on one stream were captured one behind the other, and stay there.
            let together = flat.group.is_some() && self.plan.slots[**s].flat.group == flat.group;
            self.last[lane] == Some(**s) && (together || !taken.contains(&lane))
        });
        if let Some(slot) = follows {
            return self.plan.slots[*slot].lane;
        }
        if let Some(lane) = (0..self.last.len()).find(|l| free(self, *l)) {
            return lane;
        }
        if self.last.len() < LANES || flat.group.is_some() {
            return self.lane();
        }
        self.plan.slots.len() % self.last.len()
    }

    fn mark_of(&mut self, slot: usize) -> usize {
        let next = self.plan.marks;
        let mark = *self.plan.slots[slot].mark.get_or_insert(next);
        self.plan.marks = self.plan.marks.max(mark + 1);
        mark
    }

    fn place(&mut self, index: usize, flat: &Flat, taken: &mut BTreeSet<usize>) -> usize {
        let lane = self.choose(flat, taken);
        taken.insert(lane);
        let mut waits = Vec::new();
        for after in &flat.after {
            let slot = self.slot_of[after];
            let (theirs, position) = (self.plan.slots[slot].lane, self.clocks[slot][self.plan.slots[slot].lane]);
            if theirs == lane || self.seen[lane].get(theirs).is_some_and(|s| *s >= position) {
                continue;
            }
            waits.push(self.mark_of(slot));
            let clock = self.clocks[slot].clone();
            self.learn(lane, &clock);
        }
        if self.seen[lane][0] == 0 {
            waits.push(START);
            self.learn(lane, &[1]);
        }
        self.count[lane] += 1;
        self.seen[lane][lane] = self.count[lane];
        self.clocks.push(self.seen[lane].clone());
        self.plan.slots.push(Slot { flat: flat.clone(), lane, waits, mark: None });
        let slot = self.plan.slots.len() - 1;
        self.slot_of.insert(index, slot);
        self.last[lane] = Some(slot);
        slot
    }

    fn learn(&mut self, lane: usize, clock: &[usize]) {
        for (mine, theirs) in self.seen[lane].iter_mut().zip(clock) {
            *mine = (*mine).max(*theirs);
        }
    }

    fn finish(mut self) -> Plan {
        for lane in 1..self.last.len() {
            let Some(slot) = self.last[lane] else { continue };
            if self.seen[0][lane] < self.count[lane] {
                let mark = self.mark_of(slot);
                self.plan.joins.push(mark);
                let clock = self.clocks[slot].clone();
                self.learn(0, &clock);
            }
        }
        self.plan.lanes = self.last.len();
        self.plan
    }
}

fn plan(state: &State) -> Result<Plan> {
    let mut flats = Vec::new();
    flatten(state, None, &[], &mut flats, 0)?;
    let mut deal = Deal::default();
    deal.plan.marks = START + 1;
    deal.lane();
    for unit in order(&flats)? {
        let mut taken = BTreeSet::new();
        let slots = unit.into_iter().map(|i| deal.place(i, &flats[i], &mut taken)).collect();
        deal.plan.units.push(slots);
    }
    let mut plan = deal.finish();
    let holds = |s: &Slot| matches!(s.flat.work, Work::Alloc(_) | Work::Free(_));
    plan.retains = plan.lanes > 1 || !state.keep.is_empty() || plan.slots.iter().any(holds);
    Ok(plan)
}

/// A child that nobody else changes.
fn own_child(work: Work) -> Work {
    match work {
        Work::Child(child) => Work::Child(child.duplicate()),
        work => work,
    }
}

/// As it is now, whatever becomes of the child graphs.
fn with_own_children(mut state: State) -> State {
    for node in state.nodes.values_mut().filter(|node| matches!(node.work, Work::Child(_))) {
        node.work = own_child(std::mem::replace(&mut node.work, Work::Empty));
    }
    state
}

/// A graph that can be launched, one launch after the other.
pub struct Executable {
    state: Arc<State>,
    plan: Plan,
    disabled: BTreeSet<NodeId>,
    /// The streams of the lanes after the first.
    streams: Vec<Stream>,
    /// The end of the last launch.
    before: Option<Event>,
}

impl Graph {
    /// Makes it launchable. Later changes of the graph do not reach it. `InvalidArgument` when nodes wait in a circle.
    pub fn instantiate(&self) -> Result<Executable> {
        let state = self.state();
        // First: a graph in itself has no end of children.
        let plan = plan(&state)?;
        let state = Arc::new(with_own_children(state));
        Ok(Executable { state, plan, disabled: BTreeSet::new(), streams: Vec::new(), before: None })
    }
}

impl Executable {
    /// Takes the arguments of `graph`, which must have the same shape.
    pub fn update(&mut self, graph: &Graph) -> Result<std::result::Result<(), UpdateError>> {
        let new = graph.state();
        if let Err(e) = same_shape(&self.state, &new) {
            return Ok(Err(e));
        }
        let new = with_own_children(new);
        let mut state = State::clone(&self.state);
        for (mine, theirs) in state.nodes.values_mut().zip(new.nodes.into_values()) {
            mine.work = theirs.work;
            mine.tag = theirs.tag;
        }
        state.keep = new.keep;
        self.adopt(state)?;
        Ok(Ok(()))
    }

    fn adopt(&mut self, state: State) -> Result<()> {
        self.plan = plan(&state)?;
        self.state = Arc::new(state);
        Ok(())
    }

    /// What a node of the graph, of which this was made, does here.
    pub fn work(&self, node: NodeId) -> Result<(Work, Tag)> {
        let found = self.state.nodes.get(&node).map(|n| (n.work.clone(), n.tag));
        found.ok_or_else(|| Error::argument(format!("{node:#x} is no node of the graph of which this was made")))
    }

    /// Changes what a node does here, in later launches. A child graph must have the shape of the one before.
    pub fn set_work(&mut self, node: NodeId, work: Work, tag: Tag) -> Result<()> {
        if let (Work::Child(new), Some(Node { work: Work::Child(old), .. })) = (&work, self.state.nodes.get(&node))
            && same_shape(&old.state(), &new.state()).is_err()
        {
            return Err(Error::argument("the child graph differs in shape from the one before"));
        }
        let mut state = State::clone(&self.state);
        graph::set_work(&mut state, node, own_child(work), tag)?;
        self.adopt(state)
    }

    /// Whether a node does its work in launches.
    pub fn is_enabled(&self, node: NodeId) -> Result<bool> {
        self.work(node)?;
        Ok(!self.disabled.contains(&node))
    }

    /// Lets later launches do, or leave out, a node's work.
    pub fn enable(&mut self, node: NodeId, on: bool) -> Result<()> {
        self.work(node)?;
        if on {
            self.disabled.remove(&node);
        } else {
            self.disabled.insert(node);
        }
        Ok(())
    }

    /// Enqueues the work on `stream`, after the last launch; on a stream that captures it becomes a node. Nothing is enqueued if a
    /// communicator takes no calls any more, or a window was given back; any other error of a call ends it behind what was.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        if super::is_capturing(stream) {
            let mut state = State::clone(&self.state);
            for id in &self.disabled {
                if let Some(node) = state.nodes.get_mut(id) {
                    node.work = Work::Empty;
                }
            }
            return stream.capture_child(Graph::of_state(state));
        }
        self.check()?;
        if let Some(before) = self.before.take() {
            stream.wait(&before)?;
        }
        while self.streams.len() + 1 < self.plan.lanes {
            self.streams.push(Stream::on_device(stream.device()));
        }
        // A single lane needs none.
        let marks = if self.plan.lanes > 1 { self.plan.marks } else { 0 };
        let marks: Vec<Event> = (0..marks).map(|_| Event::new()).collect();
        if self.plan.lanes > 1 {
            stream.record(&marks[START])?;
        }
        let played = self.plan.units.iter().try_for_each(|unit| self.play(unit, stream, &marks));
        match &played {
            Ok(()) => self.plan.joins.iter().try_for_each(|mark| stream.wait(&marks[*mark]))?,
            // The next launch waits for what was enqueued.
            Err(_) => self.streams.iter().try_for_each(|lane| {
                let end = Event::new();
                lane.record(&end).and_then(|()| stream.wait(&end))
            })?,
        }
        let keeps = graph::keeps(&self.state);
        if self.plan.retains || keeps || played.is_err() {
            // Streams, memory and kept values live until the work is done, even when this value does not.
            let kept = (self.streams.clone(), self.state.clone());
            let drops = Box::new(move || drop(kept));
            // What goes with a value that the program gave is the program's function.
            if keeps { stream.launch_host(drops) } else { stream.call_own(drops) }?;
        }
        let end = Event::new();
        stream.record(&end)?;
        self.before = Some(end);
        played
    }

    /// That all calls may still be made.
    fn check(&self) -> Result<()> {
        let enabled = self.plan.slots.iter().filter(|slot| !self.disabled.contains(&slot.flat.id));
        let mut calls = enabled.filter_map(|slot| match &slot.flat.work {
            Work::Call(call) => Some(call),
            _ => None,
        });
        calls.try_for_each(|call| match &call.operation {
            Operation::OneSided(one) => call.comm.check_one_sided(&one.call),
            Operation::Request(request) => call.comm.check_usable(request.collective.name()),
        })
    }

    fn play(&self, unit: &[usize], stream: &Stream, marks: &[Event]) -> Result<()> {
        let on = |slot: &Slot| if slot.lane == 0 { stream } else { &self.streams[slot.lane - 1] };
        let slots = || unit.iter().map(|i| &self.plan.slots[*i]);
        let (mut calls, mut one_sided) = (Vec::new(), Vec::new());
        for slot in slots() {
            for mark in &slot.waits {
                on(slot).wait(&marks[*mark])?;
            }
            if self.disabled.contains(&slot.flat.id) {
                continue;
            }
            match &slot.flat.work {
                Work::Call(call) => match &call.operation {
                    Operation::Request(request) => {
                        calls.push((call.comm.clone(), Request { stream: on(slot).clone(), ..request.clone() }));
                    }
                    Operation::OneSided(one) => {
                        let again = OneSided { call: one.call.clone(), stream: on(slot).clone() };
                        one_sided.push((call.comm.clone(), again));
                    }
                },
                work => play_one(work, on(slot))?,
            }
        }
        if !calls.is_empty() {
            crate::group::launch(calls)?;
        }
        if !one_sided.is_empty() {
            crate::group::launch_one_sided(one_sided)?;
        }
        slots().filter_map(|s| s.mark.map(|m| (s, m))).try_for_each(|(s, m)| on(s).record(&marks[m]))
    }
}

fn play_one(work: &Work, stream: &Stream) -> Result<()> {
    match work {
        // SAFETY: whoever made the node promised the memory for every launch.
        Work::Copy(area) => unsafe { stream.copy_area(*area, [0; 2]) },
        // SAFETY: as above.
        Work::Fill(fill) => unsafe { stream.fill_area(*fill) },
        Work::Host(function) => stream.call_host(function.clone(), [0; 2]),
        Work::Record(event) => stream.record(event),
        Work::Wait(event) => {
            stream.wait_now(event);
            Ok(())
        }
        Work::Alloc(memory) => {
            memory.set_live(true);
            Ok(())
        }
        Work::Free(memory) => {
            memory.set_live(false);
            Ok(())
        }
        // Calls are started together by the caller; a child without nodes does nothing.
        Work::Empty | Work::Child(_) | Work::Call(_) => Ok(()),
    }
}

/// Whether the nodes of `new`, taken in their order, can stand for those of `old`.
fn same_shape(old: &State, new: &State) -> std::result::Result<(), UpdateError> {
    if old.nodes.len() != new.nodes.len() {
        return Err(UpdateError::Topology(new.nodes.keys().nth(old.nodes.len()).copied()));
    }
    let positions =
        |state: &State| -> BTreeMap<NodeId, usize> { state.nodes.keys().enumerate().map(|(i, id)| (*id, i)).collect() };
    let (in_old, in_new) = (positions(old), positions(new));
    let after = |node: &Node, at: &BTreeMap<NodeId, usize>| -> BTreeSet<usize> {
        node.after.iter().filter_map(|a| at.get(a).copied()).collect()
    };
    let mut groups = BTreeMap::new();
    for ((_, mine), (id, theirs)) in old.nodes.iter().zip(&new.nodes) {
        if !mine.work.alike(&theirs.work) {
            return Err(UpdateError::Kind(*id));
        }
        if after(mine, &in_old) != after(theirs, &in_new) {
            return Err(UpdateError::Topology(Some(*id)));
        }
        match (&mine.work, &theirs.work) {
            (Work::Child(mine), Work::Child(theirs)) => {
                same_shape(&mine.state(), &theirs.state()).map_err(|_| UpdateError::Topology(Some(*id)))?;
            }
            (Work::Call(mine), Work::Call(theirs))
                if *groups.entry(mine.group).or_insert(theirs.group) != theirs.group =>
            {
                return Err(UpdateError::Topology(Some(*id)));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(graph: &Graph, after: &[NodeId]) -> NodeId {
        graph.add(Work::Host(Arc::new(|| {})), [0; 2], after).unwrap()
    }

    #[test]
    fn a_chain_needs_one_lane_and_no_events() {
        let graph = Graph::new();
        let mut last = Vec::new();
        for _ in 0..10 {
            last = vec![host(&graph, &last)];
        }
        let plan = plan(&graph.state()).unwrap();
        assert_eq!((plan.lanes, plan.marks, plan.joins.len()), (1, START + 1, 0));
    }

    #[test]
    fn random_graphs_run_each_node_after_what_it_waits_for() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..60 {
            let graph = Graph::new();
            let nodes = random.usize(1..40);
            let done: Arc<Vec<oxccl_sys::sync::AtomicU64>> =
                Arc::new((0..nodes).map(|_| oxccl_sys::sync::AtomicU64::new(0)).collect());
            let wrong = Arc::new(oxccl_sys::sync::AtomicU64::new(0));
            let mut ids: Vec<NodeId> = Vec::new();
            for i in 0..nodes {
                let after: Vec<usize> = (0..i).filter(|_| random.usize(0..4) == 0).collect();
                let ids_after: Vec<NodeId> = after.iter().map(|a| ids[*a]).collect();
                let (done, wrong) = (done.clone(), wrong.clone());
                let work = move || {
                    use oxccl_sys::sync::Ordering::SeqCst;
                    let round = done[i].load(SeqCst);
                    if after.iter().any(|a| done[*a].load(SeqCst) != round + 1) {
                        wrong.fetch_add(1, SeqCst);
                    }
                    done[i].fetch_add(1, SeqCst);
                };
                ids.push(graph.add(Work::Host(Arc::new(work)), [0; 2], &ids_after).unwrap());
            }
            let stream = Stream::new().unwrap();
            let mut exec = graph.instantiate().unwrap();
            for _ in 0..3 {
                exec.launch(&stream).unwrap();
            }
            stream.synchronize().unwrap();
            use oxccl_sys::sync::Ordering::SeqCst;
            assert_eq!(wrong.load(SeqCst), 0);
            assert!(done.iter().all(|d| d.load(SeqCst) == 3));
        }
    }

    /// A function that counts its calls, as a node of `graph`.
    fn counts(graph: &Graph, calls: &Arc<oxccl_sys::sync::AtomicU64>, after: &[NodeId]) -> NodeId {
        let calls = calls.clone();
        let work = move || {
            calls.fetch_add(1, oxccl_sys::sync::Ordering::SeqCst);
        };
        graph.add(Work::Host(Arc::new(work)), [0; 2], after).unwrap()
    }

    #[test]
    fn disabled_nodes_do_nothing_in_launches_that_are_captured() {
        let (graph, calls, stream) = (Graph::new(), Arc::default(), Stream::new().unwrap());
        let first = counts(&graph, &calls, &[]);
        counts(&graph, &calls, &[first]);
        let mut exec = graph.instantiate().unwrap();
        exec.enable(first, false).unwrap();
        stream.begin_capture().unwrap();
        exec.launch(&stream).unwrap();
        let captured = stream.end_capture().unwrap_or_else(|_| panic!("captured"));
        captured.instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(calls.load(oxccl_sys::sync::Ordering::SeqCst), 1);
    }

    /// As `cudaGraphInstantiate` promises: what is launched is the graph of then.
    #[test]
    fn a_child_that_is_changed_later_stays_what_it_was() {
        let (graph, child, calls, stream) = (Graph::new(), Graph::new(), Arc::default(), Stream::new().unwrap());
        counts(&child, &calls, &[]);
        graph.add(Work::Child(child.clone()), [0; 2], &[]).unwrap();
        let other = host(&graph, &[]);
        let mut exec = graph.instantiate().unwrap();
        counts(&child, &calls, &[]);
        // This makes the plan anew.
        exec.set_work(other, Work::Host(Arc::new(|| {})), [0; 2]).unwrap();
        assert!(exec.update(&graph).unwrap().is_err(), "the child has another shape");
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(calls.load(oxccl_sys::sync::Ordering::SeqCst), 1);
    }

    #[test]
    fn a_graph_in_itself_is_refused() {
        let graph = Graph::new();
        graph.add(Work::Child(graph.clone()), [0; 2], &[]).unwrap();
        let error = graph.instantiate().err().expect("it has no end");
        assert!(error.text.contains("in themselves"), "{}", error.text);
        // It holds itself.
        graph.set_work(graph.nodes()[0], Work::Child(Graph::new()), [0; 2]).unwrap();
    }

    #[test]
    fn values_of_a_child_live_until_launched_work_is_done() {
        let (graph, child, stream) = (Graph::new(), Graph::new(), Stream::new().unwrap());
        let value = Arc::new(());
        let (gate, passed) = std::sync::mpsc::channel::<()>();
        let passed = std::sync::Mutex::new(passed);
        let wait = move || {
            let _ = passed.lock().unwrap().recv_timeout(std::time::Duration::from_secs(20));
        };
        child.add(Work::Host(Arc::new(wait)), [0; 2], &[]).unwrap();
        child.keep(value.clone());
        graph.add(Work::Child(child), [0; 2], &[]).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        drop(graph);
        assert_eq!(Arc::strong_count(&value), 2, "the work that uses it is still to come");
        gate.send(()).unwrap();
        stream.synchronize().unwrap();
        // The function that lets it go runs behind it.
        let began = std::time::Instant::now();
        while Arc::strong_count(&value) > 1 {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "it is never let go");
            std::thread::yield_now();
        }
    }

    /// It waits for what was recorded outside of captures, not for a point of one that happens to be under way.
    #[test]
    fn an_external_wait_is_drawn_into_no_capture() {
        let (graph, calls, event) = (Graph::new(), Arc::default(), Event::new());
        let wait = graph.add(Work::Wait(event.clone()), [0; 2], &[]).unwrap();
        counts(&graph, &calls, &[wait]);
        let mut exec = graph.instantiate().unwrap();
        let (captures, stream) = (Stream::new().unwrap(), Stream::new().unwrap());
        captures.begin_capture().unwrap();
        captures.record(&event).unwrap();
        exec.launch(&stream).unwrap();
        assert!(!super::super::is_capturing(&stream));
        stream.wait_external(&event, [0; 2]).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(calls.load(oxccl_sys::sync::Ordering::SeqCst), 1);
        assert!(captures.end_capture().is_ok());
    }

    #[test]
    fn circles_are_refused_and_shapes_compared() {
        let graph = Graph::new();
        let a = host(&graph, &[]);
        let b = host(&graph, &[a]);
        let copy = graph.duplicate();
        graph.link(&[(b, a)], true).unwrap();
        assert!(graph.instantiate().is_err());
        graph.link(&[(b, a)], false).unwrap();
        let mut exec = graph.instantiate().unwrap();
        assert_eq!(exec.update(&copy).unwrap(), Ok(()));
        let c = copy.copy_of(b).unwrap();
        copy.remove(c).unwrap();
        assert!(matches!(exec.update(&copy).unwrap(), Err(UpdateError::Topology(_))));
        let d = copy.add(Work::Empty, [0; 2], &copy.nodes()).unwrap();
        assert_eq!(exec.update(&copy).unwrap(), Err(UpdateError::Kind(d)));
        assert!(graph.add(Work::Empty, [0; 2], &[d]).is_err(), "a node of another graph");
    }
}
