//! The task of one collective call of one rank.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use oxccl_kernels as kernels;
use oxccl_kernels::Post;
use oxccl_types::{Collective, DataType, Error, Result, ResultCode};

use super::beside::{self, Given};
use super::call::Call;
use super::direct::{self, Cursor, Road};
use super::entry;
use super::fused::Fused;
use super::lent::{self, Met};
use super::lent_v::{self, Taken};
use super::messages::{self, MessageState, Run};
use super::pieces::Pipe;
use super::piped;
use super::plan::{self, Aside, Plan};
use super::{again_direct, ahead, at_once_direct, eager, eager_lent, eager_v, p2p, slotted, trail, votes};
use super::{limits, links};
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::{LENT_WINDOW, WINDOW};
use crate::device::{Settle, Step, Task, abandoned, caught};
use crate::haste;
use crate::request::VCounts;

mod begin;
mod early;
mod engine;
mod phases;
pub(super) mod sent;
mod task;
mod waiting;

use begin::Extent;
pub(crate) use engine::Engine;
use waiting::Waiting;

#[derive(Debug)]
pub(super) enum Phase {
    Start,
    /// Scaling the own input into `Temp`, by the operator's factor or for a narrow average; elements done.
    Scale(u64),
    /// One rank: local copy; bytes done.
    Local(u64),
    EagerPublish,
    EagerWait,
    /// Calls of a group that travel together; `call` is the first of those under way.
    Fused(Box<Fused>),
    /// Says which call this is, with the places of the buffers where the plan is direct.
    Announce,
    /// Waits until all have said it: then the calls are known to match.
    Meet,
    Direct {
        road: Road,
        cursor: Cursor,
    },
    /// In pieces through the giver's ring.
    Piped(Pipe),
    /// A gather by payload slots: the member whose block the root takes next.
    Slots(usize),
    /// Parts of an AlltoAllv are taken from where they lie, and by the peers.
    LentV(Taken),
    Messages(Box<MessageState>),
    Exchange(Box<p2p::Exchange>),
    /// Local passes over the output; elements done.
    Post(u64),
    Bias(u64),
}

impl From<Given> for Phase {
    fn from(given: Given) -> Phase {
        match given {
            Given::Over => Phase::Bias(0),
            Given::Piped(pipe) => Phase::Piped(pipe),
            // What the giver's line says is looked at there.
            Given::Sent => Phase::Meet,
        }
    }
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
    /// Where the last direct call of its shape is kept, if it was begun as that.
    place: Option<u8>,
    phase: Phase,
    started_ns: u64,
    /// The input went with the line that announced the call.
    published: bool,
    /// What is small may wait for the next operation.
    hold: bool,
    /// The next call may begin behind it.
    trails: bool,
    /// How many calls may be under way then.
    window: u64,
    /// A small one, which begins behind others, none of which lends its output: it may be made before its turn, as soon as the payloads
    /// are there.
    ends_early: bool,
    /// The same for calls over a network: which ones, see [`ahead`].
    followed_by: usize,
    /// Where ranks share no memory, once the task is in its box. Apart, since tasks of ranks that do are moved a lot; kept with
    /// the box for the next call.
    extent: Option<Box<Extent>>,
    /// It goes on before its turn.
    early: bool,
    /// All that is left is its end, see [`ends`](super::ends).
    ends: bool,
    /// Its end is known to the communicator.
    over: bool,
    /// A connection, or a copy by the kernel, failed: the error, until it is known whether it was the cause.
    doubt: Option<Error>,
}

impl Drop for CollectiveTask {
    fn drop(&mut self) {
        if let Some(core) = self.core.take()
            && !self.over
        {
            self.fail(&core, &abandoned(&self.call.describe()));
        }
    }
}

// SAFETY: the pointers are the caller's, who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for CollectiveTask {}

/// Bytes of both buffers up to which an operation over a network may be sent together with its neighbours: the end of a message
/// fills a packet with the beginning of the next one. Beyond, packets are many.
const SHORT: u64 = ahead::SHORT;
/// Bytes that a local pass does in one step.
const PASS: u64 = 1 << 20;

impl CollectiveTask {
    pub(crate) fn new(core: Arc<Core>, call: Call, v: Option<Box<VCounts>>, batch: u64) -> CollectiveTask {
        let turn = core.issue(Lane::Collectives);
        let mut task = CollectiveTask::with_turn(turn, call, v);
        task.core = Some(core);
        task.batch = batch;
        task
    }

    /// The task of a call that has the turn `turn` and is not yet [`of`](Self::of) a communicator.
    pub(super) fn with_turn(turn: u64, call: Call, v: Option<Box<VCounts>>) -> CollectiveTask {
        CollectiveTask::made(turn, call, v, (0, Phase::Start), false)
    }

    /// The fields that differ, written once: what is changed in a task that was just made waits for those writes, and the next
    /// move of it for the change.
    #[inline(always)]
    fn made(
        turn: u64,
        call: Call,
        v: Option<Box<VCounts>>,
        (seq, phase): (u64, Phase),
        published: bool,
    ) -> CollectiveTask {
        CollectiveTask {
            turn,
            batch: 0,
            send: call.send,
            call,
            v,
            seq,
            plan: None,
            place: None,
            phase,
            started_ns: 0,
            published,
            hold: false,
            trails: false,
            window: WINDOW,
            ends_early: false,
            followed_by: 0,
            extent: None,
            early: false,
            ends: false,
            over: false,
            doubt: None,
            core: None,
        }
    }

    /// The task of a call that was begun without one: it has the number `seq` and is in `phase`.
    pub(super) fn begun(core: &Arc<Core>, call: Call, turn: u64, seq: u64, phase: Phase) -> CollectiveTask {
        CollectiveTask::begun_here(call, turn, seq, phase).of(core)
    }

    /// As [`begun`](Self::begun), not yet [`of`](Self::of) a communicator.
    pub(super) fn begun_here(call: Call, turn: u64, seq: u64, phase: Phase) -> CollectiveTask {
        CollectiveTask::made(turn, call, None, (seq, phase), false)
    }

    /// As [`begun_here`](Self::begun_here), with the counts of an AlltoAllv, of which the input went with the line or will not.
    #[inline(always)]
    pub(super) fn begun_v(
        (call, v): (Call, Box<VCounts>),
        turn: u64,
        at: (u64, Phase),
        published: bool,
    ) -> CollectiveTask {
        CollectiveTask::made(turn, call, Some(v), at, published)
    }

    /// The task, which was begun without a communicator of its own, as one of `core`.
    pub(super) fn of(mut self, core: &Arc<Core>) -> CollectiveTask {
        self.core = Some(core.clone());
        self
    }

    /// So that the next calls may begin behind it, if it is a direct one that has been announced and only lends its input.
    pub(super) fn trailing_if_lent(mut self, core: &Core, engine: &Engine) -> CollectiveTask {
        if self.is_lent(core, engine, false) {
            self.trail(LENT_WINDOW);
        }
        self
    }

    /// Whether it is a direct call that has been announced and [lets](lent::trails) others begin behind it.
    fn is_lent(&self, core: &Core, engine: &Engine, behind: bool) -> bool {
        match (&self.phase, self.plan.as_deref()) {
            (Phase::Meet | Phase::Direct { .. }, Some(plan)) => {
                let own = direct::words(core, core.me, self.seq);
                lent::trails(core, engine, plan, &self.call, (&own, behind), self.seq)
            }
            // There is nothing but to end.
            (Phase::Bias(_), _) => behind && self.call.bias.is_null(),
            _ => false,
        }
    }

    /// The task, in a box, of a call that was begun without one, with `core` counted for it, whose ranks share memory.
    ///
    /// Made where it will be, field by field: a task that is moved right after it was written waits for the writes.
    pub(super) fn begun_boxed(core: Arc<Core>, call: &Call, turn: u64, seq: u64, phase: Phase) -> Box<CollectiveTask> {
        debug_assert!(core.whole, "{} would be without its extent", call.describe());
        let Some(mut task) = CollectiveTask::pooled(&core) else {
            let mut task = Box::new(CollectiveTask::begun_here(call.clone(), turn, seq, phase));
            task.core = Some(core);
            return task;
        };
        let CollectiveTask {
            core: of,
            turn: its_turn,
            batch,
            call: its_call,
            v,
            send,
            seq: its_seq,
            plan,
            place,
            phase: its_phase,
            started_ns,
            published,
            hold,
            trails,
            window,
            ends_early,
            followed_by,
            extent,
            early,
            ends,
            over,
            doubt,
        } = &mut *task;
        its_call.clone_from(call);
        (*its_turn, *its_seq, *its_phase, *send) = (turn, seq, phase, call.send);
        (*of, *v, *plan, *place, *extent, *doubt) = (Some(core), None, None, None, None, None);
        (*batch, *started_ns, *window, *followed_by) = (0, 0, WINDOW, 0);
        (*published, *hold, *trails, *early, *ends, *over) = (false, false, false, false, false, false);
        *ends_early = false;
        task
    }

    /// So that the next calls may begin behind it, up to `window` with it: it has published its input and waits for its turn, or
    /// for its peers.
    pub(super) fn trail(&mut self, window: u64) {
        (self.trails, self.window) = (true, window);
    }

    /// See there.
    pub(super) fn may_end_early(&mut self, may: bool) {
        self.ends_early = may;
    }

    /// It is an AlltoAllv with these counts; `published`: its input went with the line.
    pub(super) fn with_counts(&mut self, v: Box<VCounts>, published: bool) {
        (self.v, self.published) = (Some(v), published);
    }

    /// Goes on as the direct call that is kept in `place`, served by `plan`; [trails](Self::trail) if it [lets](lent::trails) others.
    pub(super) fn goes_on_like(&mut self, core: &Core, engine: &Engine, plan: Arc<Plan>, place: u8) {
        (self.plan, self.place) = (Some(plan), Some(place));
        if self.is_lent(core, engine, true) {
            self.trail(LENT_WINDOW);
        }
    }

    /// All that is left of it is its end.
    pub(super) fn ending(mut self) -> CollectiveTask {
        self.ends = true;
        self
    }

    /// Stands, as the end of a call that is over, for that of the next one: `call`, served by `plan`, of that turn and number. The turn
    /// passes to it.
    #[inline]
    pub(super) fn renew(&mut self, core: &Core, call: &Call, plan: &Arc<Plan>, (turn, seq): (u64, u64), phase: Phase) {
        core.hand_on_turn(Lane::Collectives, self.turn);
        match &self.plan {
            Some(known) if Arc::ptr_eq(known, plan) => {}
            _ => self.plan = Some(plan.clone()),
        }
        self.call.clone_from(call);
        (self.turn, self.seq, self.send, self.phase, self.started_ns) = (turn, seq, call.send, phase, 0);
    }

    /// As the end of a call, is known to be over.
    pub(super) fn end_known(&mut self, core: &Core) {
        self.over = true;
        core.hand_on_turn(Lane::Collectives, self.turn);
    }

    /// As one that starts in `phase`, or goes on there.
    pub(super) fn in_phase(mut self, phase: Phase) -> CollectiveTask {
        self.phase = phase;
        self
    }

    /// Side by side with the other tasks of `batch`.
    pub(super) fn in_batch(mut self, batch: u64) -> CollectiveTask {
        self.batch = batch;
        self
    }

    /// With the error of a connection, until it is known whether that was the cause.
    pub(super) fn doubting(mut self, error: Error) -> CollectiveTask {
        self.doubt = Some(error);
        self
    }

    /// That goes on as the call that is kept in `place`.
    pub(super) fn like(mut self, place: u8) -> CollectiveTask {
        self.place = Some(place);
        self
    }

    /// That is served by `plan`.
    pub(super) fn by(mut self, plan: Arc<Plan>) -> CollectiveTask {
        self.plan = Some(plan);
        self
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// Whether it exchanges messages now.
    pub(super) fn exchanges(&self) -> bool {
        matches!(self.phase, Phase::Exchange(_))
    }

    /// Keeps the lists of its counts for the next call; it is over.
    #[inline]
    pub(super) fn keep_counts(mut self) {
        if let Some(v) = self.v.take() {
            v.recycle();
        }
    }

    /// Ends it with `error`.
    pub(super) fn fail_with(mut self, error: &Error) {
        if let Some(core) = self.core.take() {
            self.fail(&core, error);
        }
    }

    /// The task in a box, one of an earlier call where there is one.
    pub(crate) fn boxed(self) -> Box<CollectiveTask> {
        if self.core.as_ref().is_some_and(|core| !core.whole) {
            return self.boxed_with_extent();
        }
        let pooled = self.core.as_deref().and_then(CollectiveTask::pooled);
        self.put(pooled)
    }

    /// The box of an earlier call of the communicator.
    #[inline(always)]
    fn pooled(core: &Core) -> Option<Box<CollectiveTask>> {
        core.pool.try_lock().and_then(|mut pool| pool.pop())
    }

    /// The task in that box, if there is one.
    #[inline(always)]
    fn put(self, pooled: Option<Box<CollectiveTask>>) -> Box<CollectiveTask> {
        match pooled {
            Some(mut old) => {
                *old = self;
                old
            }
            None => Box::new(self),
        }
    }

    /// Whether its payload travels in its line or a slot beside that, once it is announced.
    fn is_eager(&self) -> bool {
        matches!(self.phase, Phase::EagerPublish)
    }

    /// Where the parts are of an AlltoAllv that is about to be announced.
    fn parts(&self, core: &Core, engine: &mut Engine) -> Option<eager_v::Start> {
        self.v.as_deref().map(|v| eager_v::Way::of(core, &self.call, v).start(core, engine, &self.call, v))
    }

    /// How many calls this rank may be ahead of its peers when it announces the call, with these [parts](Self::parts).
    fn ahead(&self, core: &Core, engine: &Engine, parts: Option<&eager_v::Start>) -> u64 {
        match parts {
            Some(parts) => parts.ahead(core),
            None if self.is_eager() => eager::Form::new(core, &self.call).ahead,
            None => slotted::lines_ahead(core, engine, &self.call, self.seq),
        }
    }

    /// Tells the peers of the call, if there is room for its line; whether there was.
    #[inline]
    fn announce(&mut self, core: &Core, engine: &mut Engine) -> bool {
        let start = self.parts(core, engine);
        if !engine.seen.may_publish(core, self.seq, self.ahead(core, engine, start.as_ref())) {
            return false;
        }
        if self.is_eager() {
            let form = eager::Form::new(core, &self.call);
            form.start_voting(core, engine, &self.call, self.call.signature, self.seq);
            self.phase = Phase::EagerWait;
            return true;
        }
        self.phase = Phase::Meet;
        match (self.plan.as_deref(), self.v.as_deref().zip(start)) {
            (_, Some((v, start))) => {
                self.published = eager_v::announce(core, engine, &self.call, v, start, self.seq);
            }
            (Some(Plan::Messages(_)), None) => {
                entry::publish(core, self.call.signature, self.seq, |_| {});
                entry::ask_for(core, self.seq + 1, 0);
            }
            (plan, None) => {
                let aside = plan.map_or_else(Aside::default, Plan::aside);
                let words = direct::announce(core, engine, &self.call, self.seq, self.send, aside, false);
                if let Some(given) = beside::gives(core, engine, &self.call, plan, self.seq, &words) {
                    self.phase = given.into();
                }
            }
        }
        true
    }

    /// Goes on as far as it can; the caller sees to errors.
    pub(super) fn advance(&mut self, core: &Core, engine: &mut Engine) -> Result<Step> {
        loop {
            let step = match &mut self.phase {
                Phase::Start => {
                    self.start(core, engine)?;
                    continue;
                }
                Phase::Scale(_) => return self.scale(core, engine),
                Phase::Local(_) => return Ok(self.local(core)),
                Phase::EagerPublish | Phase::Announce => {
                    if !self.announce(core, engine) {
                        return Ok(Step::Blocked);
                    }
                    continue;
                }
                Phase::EagerWait => {
                    if !self.eager_wait(core, engine)? {
                        return Ok(Step::Blocked);
                    }
                    if self.call.bias.is_null() && !self.early {
                        return Ok(self.finished(core, engine));
                    }
                    self.phase = Phase::Bias(0);
                    continue;
                }
                Phase::Fused(_) => return self.fused(core, engine),
                Phase::Meet => self.meet_peers(core, engine)?,
                Phase::Direct { .. } => self.direct(core, engine)?,
                Phase::Piped(pipe) => {
                    let step = piped::step(core, engine, &self.call, self.send, self.seq, pipe)?;
                    self.then(step, Phase::Bias(0))
                }
                Phase::Slots(next) => {
                    let step = slotted::step(core, engine, &self.call, self.seq, next)?;
                    self.then(step, Phase::Bias(0))
                }
                Phase::LentV(_) => self.take_lent_v(core, engine)?,
                Phase::Messages(_) => self.messages(core, engine)?,
                Phase::Exchange(_) => self.exchange(core, engine)?,
                Phase::Post(_) => self.post(core),
                Phase::Bias(_) => match self.bias(core) {
                    Some(step) => Some(step),
                    None if self.early => return Ok(Step::Blocked),
                    None => return Ok(self.finished(core, engine)),
                },
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    fn start(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        core.check()?;
        (self.seq, self.call.signature) = engine.number(core, self.call.signature);
        if core.ranks == 1 {
            self.v.as_deref().map_or(Ok(()), |v| eager_v::check_own(core, &self.call, v))?;
            self.phase = Phase::Local(0);
            return Ok(());
        }
        let votes = votes::decide(core, &self.call);
        if limits::is_eager(core, &self.call) && !(votes && votes::go_direct(engine, &self.call, self.seq)) {
            self.phase = Phase::EagerPublish;
            return Ok(());
        }
        self.plan = Some(engine.plans.get(core, &self.call)?);
        if self.call.scale.is_some() || self.averages_first() {
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

    /// Whether what is sent may wait for the operation behind this one: not where a peer may need it before it sends what
    /// this rank receives.
    fn may_wait(&self) -> bool {
        self.hold && !matches!(self.plan.as_deref(), Some(Plan::Messages(plan)) if plan.receives)
    }

    fn message_road(&self, core: &Core, engine: &mut Engine) -> Result<Phase> {
        engine.links.hold(self.may_wait());
        Ok(match self.plan.as_deref() {
            Some(Plan::Messages(plan)) if plan.exchange => {
                let (links, v) = (&mut engine.links, self.v.as_deref());
                let mut exchange = p2p::Exchange::from_program(core, links, &self.call, plan, self.send, v, self.seq)?;
                if core.whole && self.v.is_some() {
                    let came = |rank: usize| eager_v::came(core, core.member_of[rank], self.seq);
                    exchange.leave_out(self.published, came);
                }
                Phase::Exchange(exchange.begins(core, links))
            }
            Some(Plan::Messages(plan)) => Phase::Messages(messages::begin(core, engine, &self.call, plan, self.send)),
            _ => return Err(Error::internal("a direct plan for ranks that share no memory")),
        })
    }

    /// Whether the sum of an average would be rounded to a type of so narrow a range that it may overflow: the
    /// contributions are then divided before they are added.
    fn averages_first(&self) -> bool {
        let narrow = matches!(self.call.dtype, DataType::Float16 | DataType::Float8e4m3 | DataType::Float8e5m2);
        narrow && self.call.post != Post::None && matches!(self.plan.as_deref(), Some(Plan::Messages(_)))
    }

    fn scale(&mut self, core: &Core, engine: &mut Engine) -> Result<Step> {
        let Phase::Scale(done) = &mut self.phase else { return Ok(Step::Blocked) };
        let element = self.call.dtype.size() as u64;
        let total = self.call.input_bytes(core.rank as u32, core.ranks) / element;
        let n = (total - *done).min(PASS / element);
        let memory = engine.temp.memory as *mut u8;
        let dtype = self.call.dtype;
        // SAFETY: both buffers have `total` elements; the temporary one is this communicator's alone.
        unsafe {
            let at = (*done * element) as usize;
            let (src, dst) = (self.call.send.add(at), memory.add(at));
            match self.call.scale {
                Some(factor) => kernels::scale(dst, src, n as usize, factor.read(dtype)),
                None => kernels::reduce(dtype, self.call.op, &[dst], &[src], n as usize, self.call.post),
            }
        }
        *done += n;
        if *done == total {
            self.send = memory;
            if self.call.scale.is_none() {
                self.call.post = Post::None;
            }
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
                None => kernels::copy_part(&[dst], src, (n * element) as usize, (total * element) as usize),
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

    /// Takes the road that the lines say; `false` when it is not free yet.
    fn meet(&mut self, core: &Core, engine: &mut Engine, met: Met) -> Result<bool> {
        if self.v.is_some() {
            return self.meet_v(core, engine);
        }
        let plan = self.plan.as_deref();
        let road = plan.and_then(|plan| Some((plan, direct::road(core, &self.call, plan, self.seq, self.send)?)));
        let Some((plan, road)) = road else {
            self.phase = self.message_road(core, engine)?;
            return Ok(true);
        };
        let turn = self.is_turn(core);
        if !(turn || lent::is_early(plan, road)) || !lent::in_order(core, engine, plan, road, self.seq, turn) {
            return Ok(false);
        }
        if let (Road::Mapped, Some(place), Some(plan)) = (road, self.place, &self.plan)
            && again_direct::go_on(core, engine, (&self.call, &mut self.phase), plan, place, self.seq, met)?
        {
            return Ok(true);
        }
        if road == Road::Beside {
            beside::take(core, engine, &self.call, self.seq);
            self.phase = Phase::Bias(0);
            return Ok(true);
        }
        if road == Road::Slots {
            self.phase = Phase::Slots(0);
            return Ok(true);
        }
        if road == Road::Staged && !direct::all_are_at(core, self.seq) {
            return Ok(false);
        }
        let plan = plan.direct(road).ok_or_else(|| Error::internal("a direct plan lacks a road"))?;
        direct::locate(core, engine, &self.call, self.seq, self.send, road.borrows().then_some(plan))?;
        let cursor = match road {
            Road::Staged => direct::begin_staged(core, engine, &self.call, plan),
            _ if plan.program.scratch_slots > 0 => {
                return Err(Error::internal(format!("{} uses scratch, but takes the road {road:?}", plan.algorithm)));
            }
            _ => direct::begin(&self.call, plan),
        };
        self.phase = Phase::Direct { road, cursor };
        Ok(true)
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

    /// Whether those of the communicator in front of it are over, and all of the stream.
    #[inline]
    fn is_turn(&self, core: &Core) -> bool {
        !self.early && core.is_turn(Lane::Collectives, self.turn)
    }

    fn step_with(&mut self, core: &Core) -> Step {
        if !self.is_turn(core) {
            // Who waits for its turn ends with the operation before it, which looks after its own time.
            return match core.check().and_then(|()| self.let_go(core)) {
                Ok(()) => Step::Blocked,
                Err(error) => self.failed(core, error),
            };
        }
        let result = match if self.doubt.is_some() { Ok(Step::Blocked) } else { self.look(core) } {
            Ok(Step::Blocked) => self.blocked(core),
            Ok(step) => return self.moved(step),
            // A broken connection: perhaps there is a better reason, now or soon.
            Err(e) if e.code == ResultCode::RemoteError => core.check().and_then(|()| {
                self.started_ns = 0;
                self.doubt = Some(e);
                self.blocked(core)
            }),
            Err(error) => return self.failed(core, error),
        };
        match result {
            Ok(Step::Blocked) => Step::Blocked,
            Ok(step) => self.moved(step),
            Err(error) => self.failed(core, error),
        }
    }

    /// What `step` says, which was no wait.
    #[inline(always)]
    fn moved(&mut self, step: Step) -> Step {
        self.started_ns = 0;
        step
    }

    fn failed(&mut self, core: &Core, error: Error) -> Step {
        self.fail(core, &error);
        Step::Failed(error)
    }

    fn fail(&mut self, core: &Core, error: &Error) {
        let lent = match &self.phase {
            Phase::EagerWait => eager_lent::lends(core, &self.call, self.seq),
            Phase::Meet | Phase::LentV(_) => true,
            Phase::Direct { road, .. } => road.borrows(),
            // Peers whose line does not say that they use slots write to the output that this rank's says can be mapped.
            Phase::Slots(_) => direct::is_output_mapped(&direct::words(core, core.me, self.seq)),
            Phase::Exchange(exchange) => exchange.lends(),
            Phase::Messages(_) => links::borrows(core),
            _ => false,
        };
        self.over = true;
        core.fail_operation(Lane::Collectives, self.turn, error, lent);
    }

    fn finished(&mut self, core: &Core, engine: &Engine) -> Step {
        match self.end(core) {
            Step::Done if engine.is_unsettled(self.seq) => Step::DoneUnsettled,
            step => step,
        }
    }

    fn end(&mut self, core: &Core) -> Step {
        self.over = true;
        core.pass_turn(Lane::Collectives, self.turn);
        Step::Done
    }

    /// One look: a step, with the reason to give up when it is blocked for good.
    fn look(&mut self, core: &Core) -> Result<Step> {
        if !self.is_turn(core) {
            return Ok(Step::Blocked);
        }
        let mut engine = core.lock_engine();
        engine.seen.look(if self.batch == 0 { core.polls } else { 1 });
        engine.links.hold(self.may_wait());
        let before = discriminant(&self.phase);
        let step = self.advance(core, &mut engine)?;
        haste::end();
        if discriminant(&self.phase) != before {
            // What it waits for now it has not waited for yet: the peers that came last have just come.
            self.started_ns = 0;
        }
        match step {
            Step::Done if engine.links.holds() => Ok(Step::DoneHeld),
            step => engine.links.let_go().map(|()| step),
        }
    }

    /// Sends what the operation before left to this one, whose turn it is not.
    fn let_go(&self, core: &Core) -> Result<()> {
        if core.whole { Ok(()) } else { core.lock_engine().links.let_go() }
    }

    fn blocked(&mut self, core: &Core) -> Result<Step> {
        let mut since = self.started_ns;
        let result = core.check_operation(&mut since, self.doubt.as_ref(), &Waiting { task: self, core });
        self.started_ns = since;
        let Err(error) = result else { return Ok(Step::Blocked) };
        let news = core.check().is_ok();
        // What ended the communicator may have come after what this call was waiting for: a last look.
        if self.doubt.is_none() && self.seq > 0 && !core.is_aborted() {
            let before = discriminant(&self.phase);
            match self.look(core) {
                // It waits for something else now, for which it may give up another time.
                Ok(Step::Blocked) if discriminant(&self.phase) != before => return Ok(Step::Blocked),
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
