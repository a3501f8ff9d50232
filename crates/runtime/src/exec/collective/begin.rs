//! Collectives over a network that begin behind others: see [`ahead`].

use std::ops::Range;

use super::*;
use crate::device::Tasks;
use crate::transport::tcp::HELD;

/// What a call over a network reads and writes on this rank: looked at by each call that is to begin behind it.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    /// Bytes of input and output.
    pub(super) bytes: u64,
    /// Bytes that it writes, or sends where that may be more: counts per peer differ.
    pub(super) under_way: usize,
    reads: Range<usize>,
    pub(super) writes: [Range<usize>; 2],
}

impl Extent {
    pub(super) fn of(core: &Core, call: &Call, v: Option<&VCounts>) -> Extent {
        let (rank, element) = (core.rank as u32, call.dtype.size());
        let (send, recv) = (call.send.addr(), call.recv.addr());
        match v {
            Some(v) => {
                let (input, output) = v.lengths(element);
                Extent {
                    bytes: input.saturating_add(output),
                    under_way: input.max(output) as usize,
                    reads: v.reads(send, element),
                    writes: [v.writes(recv, element), 0..0],
                }
            }
            None => {
                let (input, output) = (call.input_bytes(rank, core.ranks), call.output_bytes(rank, core.ranks));
                Extent {
                    bytes: input.saturating_add(output),
                    under_way: if call.collective.rooted() { input.max(output) } else { output } as usize,
                    reads: send..send.saturating_add(input as usize),
                    writes: call.written(rank, core.ranks),
                }
            }
        }
    }
}

/// Bytes that a rank sends first of a sum, which is as much as comes to it, with what it takes before.
fn sent_first(call: &Call, plan: &plan::MessagePlan) -> usize {
    let sums = call.collective.reduces() && !call.collective.rooted();
    if sums { plan.early.ops() * call.block_bytes() as usize } else { 0 }
}

impl CollectiveTask {
    /// The task in a box, with its extent: both those of an earlier call where there is one.
    #[inline(never)]
    pub(super) fn boxed_with_extent(mut self) -> Box<CollectiveTask> {
        let mut pooled = self.core.as_deref().and_then(CollectiveTask::pooled);
        if let Some(core) = &self.core {
            let extent = Extent::of(core, &self.call, self.v.as_deref());
            self.extent = match pooled.as_mut().and_then(|old| old.extent.take()) {
                Some(mut kept) => {
                    *kept = extent;
                    Some(kept)
                }
                None => Some(Box::new(extent)),
            };
        }
        self.put(pooled)
    }

    /// Notes who may begin behind this call, which has the turn, if it has sent what it sends first.
    pub(super) fn let_follow(&mut self, core: &Core) {
        if core.whole || self.followed_by != 0 || self.batch != 0 {
            return;
        }
        // Behind a longer one nothing begins: it only says that its like follows it.
        if self.extent.as_ref().is_none_or(|extent| extent.bytes > SHORT) {
            return;
        }
        let Some(plan) = &self.plan else { return };
        let begun = match (&self.phase, plan.as_ref()) {
            (Phase::Exchange(exchange), _) => exchange.is_offered(),
            (Phase::Messages(state), Plan::Messages(plan)) => messages::has_begun(plan, state),
            _ => false,
        };
        if begun {
            self.followed_by = ahead::id(plan);
        }
    }

    /// Sends, behind `others`, which have let it, what is sent first, with what it takes before. `None`: nothing was done, its turn must
    /// come first.
    pub(super) fn begin_ahead(&mut self, core: &Core, others: &Tasks) -> Option<Step> {
        let call = &self.call;
        let extent = self.extent.as_ref()?;
        // Those of one kind and root wait for each other in another way: short ones, and of more ranks any, which were slower so.
        let rooted = call.collective.rooted();
        let short = call.count * (call.dtype.size() as u64) < HELD as u64;
        let waits = rooted && (short || core.ranks > 2) && others.iter().all(|t| t.has_root_of(call));
        let simple = self.batch == 0 && !waits && call.scale.is_none() && call.bias.is_null();
        if !simple || !matches!(self.phase, Phase::Start) || extent.bytes > ahead::SHORT {
            return None;
        }
        // Before anything is locked and looked up; what it sends first is looked at below.
        if !ahead::has_room(extent.under_way as u64, others) {
            return None;
        }
        let before = ahead::Before::of(trail::id(core, Lane::Collectives), others);
        if !core.is_turn(Lane::Collectives, self.turn.checked_sub(before.calls)?)
            || before.trails == Some(0)
            || others.iter().any(|t| t.writes(&extent.reads))
        {
            return None;
        }
        let mut engine = core.engine.try_lock()?;
        // An error is met again when the turn has come.
        core.check().ok()?;
        let plan = engine.plans.get(core, call).ok()?;
        let Plan::Messages(messages) = plan.as_ref() else { return None };
        // A call that only sends is over when it has: it waits for the next one in another way.
        let id = ahead::id(&plan);
        let may_follow =
            messages.early.may_follow(before.trails == Some(id), || before.later()) && (messages.receives || rooted);
        // Those like it would send nothing either.
        let idle = messages.early.sends == 0 && others.iter().all(|t| t.trails() == id);
        let under_way = extent.under_way.max(sent_first(call, messages));
        if !may_follow || idle || !ahead::has_room(under_way as u64, others) {
            return None;
        }
        if messages.early.takes > 0 && !messages::may_take_early(core, &mut engine, call, messages).ok()? {
            return None;
        }
        self.extent.as_mut()?.under_way = under_way;
        self.plan = Some(plan);
        if self.averages_first() {
            return None;
        }
        (self.seq, self.call.signature) = engine.number(core, self.call.signature);
        match caught(|| self.send_first(core, &mut engine)).and_then(|sent| sent) {
            Ok(()) => {
                drop(engine);
                self.let_follow(core);
                Some(Step::Progress)
            }
            Err(e) if e.code == ResultCode::RemoteError => {
                self.doubt = Some(e);
                Some(Step::Progress)
            }
            Err(e) => {
                drop(engine);
                Some(self.failed(core, e))
            }
        }
    }

    fn send_first(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        self.phase = self.message_road(core, engine)?;
        engine.links.gather(self.seq);
        let sent = match (&mut self.phase, self.plan.as_deref()) {
            (Phase::Exchange(exchange), _) => exchange.begin(core, &mut engine.links),
            (Phase::Messages(state), Some(Plan::Messages(plan))) => {
                let run = Run { core, call: &self.call, plan, send: self.send, seq: self.seq };
                messages::send_early(run, engine, state)
            }
            _ => Ok(()),
        };
        engine.links.gathered();
        sent
    }
}
