//! The task of one collective call of one rank.

use std::sync::Arc;

use oxccl_kernels as kernels;
use oxccl_kernels::Post;
use oxccl_types::{Error, Result, ResultCode};

use super::call::Call;
use super::direct::{self, Cursor, Spot};
use super::entry::{self, Seen};
use super::imports::Imports;
use super::links::Links;
use super::messages::{self, MessageState};
use super::plan::{Plan, Plans};
use super::{eager, p2p};
use crate::communicator::core::{Blocked, Core, Lane};
use crate::communicator::hub::DEPTH;
use crate::device::{Exporter, Settle, Step, Task};
use crate::request::VCounts;

/// What the collectives of a communicator share: used by the task whose turn it is.
pub(crate) struct Engine {
    seq: u64,
    seen: Seen,
    /// The last calls: sequence and signature.
    recent: [(u64, [u64; 2]); RECENT],
    /// The last call whose peers' arrival was not awaited: sequence and signature.
    unsettled: Option<(u64, [u64; 2])>,
    pub(super) exporter: Exporter,
    pub(super) imports: Imports,
    pub(super) spots: Vec<Spot>,
    pub(super) srcs: Vec<*const u8>,
    pub(super) dsts: Vec<*mut u8>,
    pub(super) links: Links,
    plans: Plans,
    temp: Temp,
}

// SAFETY: the raw pointers are scratch space of one step; the engine is used by one thread at a time, under its lock.
unsafe impl Send for Engine {}

impl Engine {
    pub(crate) fn new(ranks: usize, members: usize) -> Engine {
        Engine {
            seq: 0,
            seen: Seen::new(members),
            recent: [(0, [0; 2]); RECENT],
            unsettled: None,
            exporter: Exporter::new(),
            imports: Imports::new(ranks),
            spots: vec![Spot::NONE; members],
            srcs: Vec::with_capacity(ranks + 1),
            dsts: Vec::with_capacity(ranks + 1),
            links: Links::default(),
            plans: Plans::default(),
            temp: Temp::default(),
        }
    }

    /// Looks whether the peers of calls that finished early have made the same call: the ranks that have not yet.
    pub(crate) fn settle(&mut self, core: &Core) -> Result<Vec<usize>> {
        let Some((seq, signature)) = self.unsettled else { return Ok(Vec::new()) };
        if self.seen.all_started(core, signature, seq)? {
            self.unsettled = None;
            return Ok(Vec::new());
        }
        Ok(self.seen.missing(core, seq))
    }
}

/// Device memory for inputs that are scaled before anybody reads them.
#[derive(Default)]
struct Temp {
    memory: usize,
    bytes: usize,
}

impl Temp {
    fn ensure(&mut self, bytes: usize) -> Result<*mut u8> {
        if self.bytes < bytes {
            self.drop_memory();
            self.memory = crate::device::alloc(bytes)? as usize;
            self.bytes = bytes;
        }
        Ok(self.memory as *mut u8)
    }

    fn drop_memory(&mut self) {
        // SAFETY: only the collective whose turn it is uses the memory, and none runs now. An error would mean that
        // the registry does not know its own allocation; there is nothing left to free then.
        let _ = unsafe { crate::device::free(self.memory as *mut u8) };
        self.memory = 0;
        self.bytes = 0;
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        self.drop_memory();
    }
}

#[derive(Debug)]
enum Phase {
    Start,
    /// Scaling the own input into `Temp`; elements done.
    Scale(u64),
    /// One rank: local copy; bytes done.
    Local(u64),
    EagerPublish,
    EagerWait,
    /// Says which call this is, with the places of the buffers where the plan is direct.
    Announce,
    /// Waits until all have said it: then the calls are known to match.
    Meet,
    Direct {
        mapped: bool,
        cursor: Cursor,
    },
    Messages(Box<MessageState>),
    Exchange(Box<p2p::Exchange>),
    /// Local passes over the output; elements done.
    Post(u64),
    Bias(u64),
}

/// The task.
pub(crate) struct CollectiveTask {
    core: Option<Arc<Core>>,
    turn: u64,
    batch: u64,
    call: Call,
    v: Option<Box<VCounts>>,
    /// What is read as the input: the caller's, or its scaled copy.
    send: *const u8,
    seq: u64,
    plan: Option<Arc<Plan>>,
    phase: Phase,
    started_ns: u64,
    /// A connection failed: the error, until it is known whether it was the cause.
    doubt: Option<Error>,
}

// SAFETY: the pointers are the caller's, who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for CollectiveTask {}

/// Calls whose signature is remembered, to be compared with what peers are blocked in.
const RECENT: usize = 8;
/// Bytes that a local pass does in one step.
const PASS: u64 = 1 << 20;

impl CollectiveTask {
    pub(crate) fn new(core: Arc<Core>, call: Call, v: Option<Box<VCounts>>, batch: u64) -> Box<CollectiveTask> {
        let turn = core.issue(Lane::Collectives);
        let fresh = CollectiveTask {
            turn,
            batch,
            send: call.send,
            call,
            v,
            seq: 0,
            plan: None,
            phase: Phase::Start,
            started_ns: 0,
            doubt: None,
            core: None,
        };
        let mut task = match core.pool.try_lock().ok().and_then(|mut p| p.pop()) {
            Some(mut old) => {
                *old = fresh;
                old
            }
            None => Box::new(fresh),
        };
        task.core = Some(core);
        task
    }

    fn advance(&mut self, core: &Core, engine: &mut Engine) -> Result<Step> {
        loop {
            match &mut self.phase {
                Phase::Start => self.start(core, engine)?,
                Phase::Scale(_) => return self.scale(core, engine),
                Phase::Local(_) => return Ok(self.local(core)),
                Phase::EagerPublish | Phase::Announce => {
                    if !engine.seen.may_publish(core, self.seq) {
                        return Ok(Step::Blocked);
                    }
                    if matches!(self.phase, Phase::EagerPublish) {
                        eager::start(core, &self.call, self.seq);
                        self.phase = Phase::EagerWait;
                    } else {
                        match self.plan.as_deref() {
                            Some(Plan::Messages(_)) => entry::publish(core, &self.call, self.seq, |_| {}),
                            _ => direct::announce(core, engine, &self.call, self.seq, self.send),
                        }
                        self.phase = Phase::Meet;
                    }
                }
                Phase::EagerWait => {
                    if !eager::finish(core, &self.call, self.seq, &mut engine.seen, &mut engine.srcs)? {
                        return Ok(Step::Blocked);
                    }
                    if !eager::waits_for_all(core, &self.call) {
                        engine.unsettled = Some((self.seq, self.call.signature));
                    }
                    if self.call.bias.is_null() {
                        return Ok(self.finished(core, engine));
                    }
                    self.phase = Phase::Bias(0);
                }
                Phase::Meet => {
                    for member in 0..core.members.len() {
                        if member != core.me && !engine.seen.arrived(core, &self.call, member, self.seq)? {
                            return Ok(Step::Blocked);
                        }
                    }
                    self.meet(core, engine)?;
                }
                Phase::Direct { mapped, cursor } => {
                    let plan = match self.plan.as_deref() {
                        Some(Plan::Direct { mapped: plan, .. }) if *mapped => plan,
                        Some(Plan::Direct { staged, .. }) => staged,
                        _ => return Err(Error::internal("a direct phase without a direct plan")),
                    };
                    match direct::step(core, engine, &self.call, plan, self.seq, cursor)? {
                        Step::Done => self.phase = Phase::Bias(0),
                        other => return Ok(other),
                    }
                }
                Phase::Messages(state) => {
                    let Some(Plan::Messages(plan)) = self.plan.as_deref() else {
                        return Err(Error::internal("a message phase without a message plan"));
                    };
                    match messages::step(core, engine, &self.call, plan, self.send, self.seq, state)? {
                        Step::Done => self.phase = Phase::Post(0),
                        other => return Ok(other),
                    }
                }
                Phase::Exchange(exchange) => match exchange.step(core, &mut engine.links)? {
                    Step::Done => self.phase = Phase::Post(0),
                    other => return Ok(other),
                },
                Phase::Post(_) => {
                    if let Some(step) = self.post(core) {
                        return Ok(step);
                    }
                }
                Phase::Bias(_) => {
                    if let Some(step) = self.bias(core) {
                        return Ok(step);
                    }
                    return Ok(self.finished(core, engine));
                }
            }
        }
    }

    fn start(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        core.check()?;
        engine.seq += 1;
        self.seq = engine.seq;
        engine.recent[self.seq as usize % RECENT] = (self.seq, self.call.signature);
        if core.ranks == 1 {
            self.phase = Phase::Local(0);
            return Ok(());
        }
        let plan = engine.plans.get(core, &self.call)?;
        let eager = matches!(*plan, Plan::Eager);
        self.plan = Some(plan);
        if eager {
            self.phase = Phase::EagerPublish;
        } else if self.call.scale.is_some() {
            engine.temp.ensure(self.call.input_bytes(core.rank as u32, core.ranks) as usize)?;
            self.phase = Phase::Scale(0);
        } else {
            self.take_road(core, engine)?;
        }
        Ok(())
    }

    fn take_road(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        self.phase = if core.whole { Phase::Announce } else { self.message_road(core, engine)? };
        Ok(())
    }

    fn message_road(&self, core: &Core, engine: &mut Engine) -> Result<Phase> {
        Ok(match self.plan.as_deref() {
            Some(Plan::Messages(plan)) if plan.exchange => {
                let exchange =
                    p2p::Exchange::from_program(core, &self.call, plan, self.send, self.v.as_deref(), self.seq)?;
                Phase::Exchange(Box::new(exchange))
            }
            Some(Plan::Messages(plan)) => Phase::Messages(Box::new(messages::begin(core, engine, &self.call, plan)?)),
            _ => return Err(Error::internal("a direct plan for ranks that share no memory")),
        })
    }

    fn scale(&mut self, core: &Core, engine: &mut Engine) -> Result<Step> {
        let Phase::Scale(done) = &mut self.phase else { return Ok(Step::Blocked) };
        let element = self.call.dtype.size() as u64;
        let total = self.call.input_bytes(core.rank as u32, core.ranks) / element;
        let n = (total - *done).min(PASS / element);
        let memory = engine.temp.memory as *mut u8;
        let Some(factor) = self.call.scale else { return Err(Error::internal("nothing to scale by")) };
        // SAFETY: both buffers have `total` elements; the temporary one is this communicator's alone.
        unsafe {
            let at = (*done * element) as usize;
            kernels::scale(memory.add(at), self.call.send.add(at), n as usize, factor.read(self.call.dtype));
        }
        *done += n;
        if *done == total {
            self.send = memory;
            self.take_road(core, engine)?;
        }
        Ok(Step::Progress)
    }

    /// A communicator of one rank: the output is the input, scaled where the operator scales.
    fn local(&mut self, core: &Core) -> Step {
        let Phase::Local(done) = &mut self.phase else { return Step::Blocked };
        let element = self.call.dtype.size() as u64;
        let mut total = self.call.count;
        let (mut src, mut dst) = (self.call.send, self.call.recv);
        if let Some(v) = &self.v {
            total = v.send_counts[0] as u64;
            // SAFETY: the displacements are the caller's, in elements of buffers that have them.
            unsafe {
                src = src.add(v.send_displs[0] * element as usize);
                dst = dst.add(v.recv_displs[0] * element as usize);
            }
        }
        let n = (total - *done).min(PASS / element);
        // SAFETY: both buffers have `total` elements; they are the same or do not overlap.
        unsafe {
            let at = (*done * element) as usize;
            let (src, dst) = (src.add(at), dst.add(at));
            match self.call.scale {
                Some(f) => kernels::scale(dst, src, n as usize, f.read(self.call.dtype)),
                None if src == dst.cast_const() => {}
                None => kernels::copy(&[dst], src, (n * element) as usize),
            }
        }
        *done += n;
        if *done == total {
            if self.call.bias.is_null() {
                return self.end(core);
            }
            self.phase = Phase::Bias(0);
        }
        Step::Progress
    }

    fn meet(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        let Some(Plan::Direct { mapped, staged }) = self.plan.as_deref() else {
            self.phase = self.message_road(core, engine)?;
            return Ok(());
        };
        let use_mapped = direct::all_mapped(core, mapped, self.seq);
        let plan = if use_mapped { mapped } else { staged };
        direct::locate(core, engine, &self.call, self.seq, self.send, use_mapped.then_some(mapped))?;
        self.phase = Phase::Direct { mapped: use_mapped, cursor: direct::begin(core, &self.call, plan) };
        Ok(())
    }

    /// Applies the post operation to the output of message programs. `None` when done.
    fn post(&mut self, core: &Core) -> Option<Step> {
        let Phase::Post(done) = &mut self.phase else { return None };
        let element = self.call.dtype.size() as u64;
        let total = self.call.output_bytes(core.rank as u32, core.ranks) / element;
        if self.call.post == Post::None || *done == total {
            self.phase = Phase::Bias(0);
            return None;
        }
        let n = (total - *done).min(PASS / element);
        // SAFETY: the output is complete and the caller's; `n` elements from `done` lie inside it.
        unsafe {
            kernels::apply_post(
                self.call.dtype,
                self.call.recv.add((*done * element) as usize),
                n as usize,
                self.call.post,
            )
        };
        *done += n;
        Some(Step::Progress)
    }

    /// Combines the bias into the output. `None` when done.
    fn bias(&mut self, core: &Core) -> Option<Step> {
        let Phase::Bias(done) = &mut self.phase else { return None };
        let element = self.call.dtype.size() as u64;
        let total = self.call.output_bytes(core.rank as u32, core.ranks) / element;
        if self.call.bias.is_null() || *done == total {
            return None;
        }
        let n = (total - *done).min(PASS / element);
        let at = (*done * element) as usize;
        // SAFETY: output and bias have `total` elements each; only this rank touches them now.
        unsafe {
            let (out, bias) = (self.call.recv.add(at), self.call.bias.add(at));
            kernels::reduce(self.call.dtype, self.call.op, &[out], &[out.cast_const(), bias], n as usize, Post::None);
        }
        *done += n;
        Some(Step::Progress)
    }

    fn finished(&mut self, core: &Core, engine: &Engine) -> Step {
        match self.end(core) {
            Step::Done if engine.unsettled.is_some_and(|(seq, _)| seq == self.seq) => Step::DoneUnsettled,
            step => step,
        }
    }

    fn end(&self, core: &Core) -> Step {
        core.pass_turn(Lane::Collectives, self.turn);
        Step::Done
    }

    /// One look: a step, with the reason to give up when it is blocked for good.
    fn look(&mut self, core: &Core) -> Result<Step> {
        if !core.is_turn(Lane::Collectives, self.turn) {
            return Ok(Step::Blocked);
        }
        let mut engine = core.lock_engine();
        self.advance(core, &mut engine)
    }

    fn blocked(&mut self, core: &Core) -> Result<Step> {
        let mut since = self.started_ns;
        let result = match &self.doubt {
            Some(doubt) => core.check_doubt(&mut since, doubt),
            None => core.check_blocked(&mut since, &Waiting { task: self, core }),
        };
        self.started_ns = since;
        let Err(error) = result else { return Ok(Step::Blocked) };
        let news = core.check().is_ok();
        // What ended the communicator may have come after what this call was waiting for: a last look.
        if self.doubt.is_none() && self.seq > 0 && !core.is_aborted() {
            match self.look(core) {
                Ok(Step::Blocked) | Err(_) => {}
                moved => return moved,
            }
        }
        if news {
            core.spread(&error);
        }
        Err(error)
    }
}

/// A blocked task, as the reasons for giving up see it.
struct Waiting<'a> {
    task: &'a CollectiveTask,
    core: &'a Core,
}

impl Waiting<'_> {
    fn missing(&self, seq: u64) -> Vec<usize> {
        self.core.lock_engine().seen.missing(self.core, seq)
    }
}

impl Blocked for Waiting<'_> {
    fn describe(&self) -> String {
        let missing = self.missing(self.task.seq);
        let who = if missing.is_empty() || matches!(self.task.phase, Phase::Messages(_) | Phase::Exchange(_)) {
            "peers that have started it".to_string()
        } else {
            format!("rank(s) {missing:?}, which have not called it")
        };
        format!("{} (collective number {}) was waiting for {who}", self.task.call.describe(), self.task.seq)
    }

    fn needs(&self, rank: usize) -> bool {
        let task = self.task;
        if !self.core.is_turn(Lane::Collectives, task.turn) {
            return false;
        }
        match &task.phase {
            Phase::EagerPublish | Phase::Announce => self.missing((task.seq + 1).saturating_sub(DEPTH)).contains(&rank),
            Phase::EagerWait => match eager::only_source(self.core, &task.call) {
                Some(source) => rank == source,
                None => self.missing(task.seq).contains(&rank),
            },
            // Nobody can have done its part before all have met.
            Phase::Meet => true,
            Phase::Direct { mapped, cursor } => match task.plan.as_deref() {
                Some(Plan::Direct { mapped: plan, .. }) if *mapped => direct::awaited(plan, cursor) == Some(rank),
                Some(Plan::Direct { staged, .. }) => direct::awaited(staged, cursor) == Some(rank),
                _ => true,
            },
            Phase::Messages(state) => match task.plan.as_deref() {
                Some(Plan::Messages(plan)) => messages::awaits(plan, state, rank),
                _ => true,
            },
            Phase::Exchange(exchange) => exchange.awaits(rank),
            _ => false,
        }
    }

    fn call(&self) -> Option<(u64, [u64; 2])> {
        (self.task.seq > 0).then_some((self.task.seq, self.task.call.signature))
    }

    fn earlier(&self, seq: u64) -> Option<[u64; 2]> {
        let (number, signature) = self.core.lock_engine().recent[seq as usize % RECENT];
        (number == seq).then_some(signature)
    }

    fn indirect(&self) -> bool {
        matches!(self.task.phase, Phase::Direct { .. } | Phase::Messages(_) | Phase::Exchange(_))
    }
}

impl Task for CollectiveTask {
    fn step(&mut self) -> Step {
        let Some(core) = self.core.clone() else { return Step::Done };
        let looked = if self.doubt.is_some() { Ok(Step::Blocked) } else { self.look(&core) };
        let result = match looked {
            Ok(Step::Blocked) => self.blocked(&core),
            // A broken connection: perhaps there is a better reason, now or soon.
            Err(e) if e.code == ResultCode::RemoteError => core.check().and_then(|()| {
                self.started_ns = 0;
                self.doubt = Some(e);
                self.blocked(&core)
            }),
            other => other,
        };
        match result {
            Ok(Step::Blocked) => Step::Blocked,
            Ok(step) => {
                self.started_ns = 0;
                step
            }
            Err(error) => {
                core.fail(&error);
                core.pass_turn(Lane::Collectives, self.turn);
                Step::Failed(error)
            }
        }
    }

    fn bell(&self) -> Option<oxccl_sys::Doorbell> {
        self.core.as_ref().map(|c| c.bell())
    }

    fn batch(&self) -> u64 {
        self.batch
    }

    fn crowded(&self) -> bool {
        self.core.as_ref().is_some_and(|c| c.crowded)
    }

    fn unsettled(&self) -> Option<Arc<dyn Settle>> {
        self.core.clone().map(|c| c as Arc<dyn Settle>)
    }

    fn recycle(mut self: Box<Self>) {
        self.plan = None;
        self.v = None;
        self.phase = Phase::Start;
        if let Some(core) = self.core.take()
            && let Ok(mut pool) = core.pool.try_lock()
            && pool.len() < pool.capacity()
        {
            pool.push(self);
        }
    }
}

/// Polls per look of a rank, by whether it shares its core.
pub(crate) const fn polls(crowded: bool) -> u32 {
    entry::polls(crowded)
}
