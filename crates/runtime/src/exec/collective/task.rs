//! A collective as a task of its stream.

use std::ops::Range;

use super::*;
use crate::device::{Likeness, Tasks, Touches};
use crate::exec::ahead::RankSet;

impl CollectiveTask {
    /// Whether its input, a small one, is lent, as its line says.
    fn lends_small(&self, core: &Core) -> bool {
        self.trails && matches!(self.phase, Phase::EagerWait) && eager_lent::lends(core, &self.call, self.seq)
    }

    /// What an AlltoAllv of these counts reads and writes, from the first to the last part of each.
    fn spans(&self, v: &VCounts) -> (Range<usize>, Range<usize>) {
        let Call { send, recv, dtype, .. } = self.call;
        (v.reads(send.addr(), dtype.size()), v.writes(recv.addr(), dtype.size()))
    }

    /// What `step` comes to, by which a panic fails the task; `None` when it has no communicator any more.
    #[inline(always)]
    fn stepped(&mut self, step: impl FnOnce(&mut Self, &Core) -> Step) -> Option<Step> {
        // Taken out for the time of the step, so that the task can be changed beside it.
        let core = self.core.take()?;
        let step = caught(|| step(self, &core)).unwrap_or_else(|error| {
            if !self.over {
                self.fail(&core, &error);
            }
            Step::Failed(error)
        });
        self.core = Some(core);
        Some(step)
    }
}

impl Task for CollectiveTask {
    fn step(&mut self) -> Step {
        self.stepped(|task, core| task.step_with(core)).unwrap_or(Step::Done)
    }

    fn bell(&self) -> Option<oxccl_sys::Doorbell> {
        self.core.as_ref().and_then(|c| c.park_bell())
    }

    fn park(&self, timeout: Duration) {
        if let Some(core) = &self.core {
            core.park(timeout);
        }
    }

    fn batch(&self) -> u64 {
        self.batch
    }

    fn is_quick(&self) -> bool {
        let meets =
            self.v.is_some() && matches!(self.phase, Phase::Start | Phase::Announce | Phase::Meet | Phase::LentV(_));
        let short = |c: &Arc<Core>| limits::is_eager(c, &self.call) || at_once_direct::is_quick(c, &self.call);
        let exchanges = |c: &Arc<Core>| matches!(&self.phase, Phase::Exchange(exchange) if exchange.is_quick(c));
        let quick = |c: &Arc<Core>| c.ranks > 1 && (short(c) || exchanges(c) || (meets && c.eager));
        // Of a batch there may be many, all of which are stepped at once.
        let small = |c: &Arc<Core>| c.ranks > 1 && self.v.is_none() && limits::is_eager(c, &self.call);
        self.core.as_ref().is_some_and(|c| if self.batch == 0 { quick(c) } else { small(c) })
    }

    fn follows(&self) -> usize {
        let short = self.batch == 0 && self.extent.as_ref().is_some_and(|extent| extent.bytes <= SHORT);
        self.core.as_ref().filter(|_| short).map_or(0, |c| Arc::as_ptr(c) as usize)
    }

    fn may_hold(&mut self, next: bool) {
        self.hold = next;
    }

    fn crowded(&self) -> bool {
        self.core.as_ref().is_some_and(|c| c.crowded)
    }

    fn trails(&self) -> usize {
        self.core.as_ref().filter(|_| self.trails).map_or(self.followed_by, |c| trail::id(c, Lane::Collectives))
    }

    fn lane(&self) -> usize {
        self.core.as_ref().map_or(0, |c| trail::id(c, Lane::Collectives))
    }

    fn keeps_behind(&self) -> bool {
        self.batch == 0
    }

    fn shares_memory(&self) -> bool {
        self.core.as_ref().is_some_and(|c| c.whole)
    }

    fn end_of(&mut self, lane: usize) -> Option<&mut CollectiveTask> {
        (self.ends && !self.over && self.doubt.is_none() && self.lane() == lane).then_some(self)
    }

    fn begin_behind(&mut self, others: &Tasks) -> Option<Step> {
        let core = self.core.take()?;
        let step = self.begin_ahead(&core, others);
        self.core = Some(core);
        step
    }

    fn send_off(&mut self) {
        // A failed connection fails the operations that need it.
        let _ = self.core.as_ref().map(|core| core.lock_engine().links.let_go());
    }

    fn sends_later(&self) -> RankSet {
        match self.plan.as_deref() {
            Some(Plan::Messages(plan)) => plan.early.later,
            _ => RankSet::ANY,
        }
    }

    fn has_root_of(&self, call: &Call) -> bool {
        let of = |c: &Call| (c.collective, c.root);
        of(&self.call) == of(call)
    }

    fn written(&self) -> usize {
        self.extent.as_ref().map_or(0, |extent| extent.under_way)
    }

    fn writes(&self, bytes: &Range<usize>) -> bool {
        let meets = |writes: &Range<usize>| crate::exec::call::meet(writes, bytes);
        if let Some(extent) = &self.extent {
            return extent.writes.iter().any(meets);
        }
        match &self.v {
            Some(v) => meets(&v.writes(self.call.recv.addr(), self.call.dtype.size())),
            None => self.core.as_ref().is_some_and(|c| self.call.written(c.rank as u32, c.ranks).iter().any(meets)),
        }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn lent(&self, bytes: &Range<usize>) -> bool {
        let Some(core) = &self.core else { return false };
        let from = self.call.send.addr();
        let input = match &self.v {
            Some(v) if self.lends_v(core) => v.reads(from, self.call.dtype.size()),
            None if self.trails
                && (matches!(self.plan.as_deref(), Some(Plan::Direct { .. })) || self.lends_small(core)) =>
            {
                from..from + self.call.input_bytes(core.rank as u32, core.ranks) as usize
            }
            _ => return false,
        };
        // Peers write parts of the output.
        let shares = self.v.is_none() && lent::shares(self.plan.as_deref());
        crate::exec::call::meet(&input, bytes) || shares && self.writes(bytes)
    }

    fn may_lend(&self) -> bool {
        !matches!(self.phase, Phase::EagerWait) || self.core.as_ref().is_some_and(|core| self.lends_small(core))
    }

    fn likeness(&self) -> Option<Likeness> {
        let known = self.trails && self.extent.is_none() && self.batch == 0 && self.call.bias.is_null();
        let whole = self.core.as_ref().is_some_and(|c| c.whole);
        if !known || matches!(self.phase, Phase::Exchange(_)) && (self.v.is_some() || !whole) {
            return None;
        }
        let Call { collective, send, recv, dtype, count, root, .. } = self.call;
        // How many may be under way differs where one of them is scaled, too.
        let kind = root as usize | (collective as usize) << 32 | (dtype as usize) << 40 | (self.window as usize) << 48;
        let core = self.core.as_ref()?;
        if let Some(v) = &self.v {
            // Which bytes these are is asked for, and not how many parts they have.
            let (reads, writes) = self.spans(v);
            let kind = kind << 1 | usize::from(self.lends_v(core)) | 1 << 63;
            return Some(Likeness([Arc::as_ptr(core).addr(), kind, reads.start, reads.end, writes.start, writes.end]));
        }
        let core = Arc::as_ptr(core).addr();
        let plan = self.plan.as_ref().map_or(0, |plan| Arc::as_ptr(plan).addr());
        Some(Likeness([core, plan, send.addr(), recv.addr(), count as usize, kind]))
    }

    fn touches(&self) -> Option<Touches> {
        let core = self.core.as_ref().filter(|_| self.trails && self.extent.is_none() && self.call.bias.is_null())?;
        let Call { send, recv, .. } = self.call;
        if let Some(v) = &self.v {
            let (reads, writes) = self.spans(v);
            return Some(Touches { reads, writes, window: self.window });
        }
        let (rank, ranks) = (core.rank as u32, core.ranks);
        let of = |from: usize, bytes: u64| from..from.saturating_add(bytes as usize);
        let reads = of(send.addr(), self.call.input_bytes(rank, ranks));
        Some(Touches { reads, writes: of(recv.addr(), self.call.output_bytes(rank, ranks)), window: self.window })
    }

    fn has_given(&self) -> bool {
        self.gave()
    }

    fn step_early(&mut self) -> Step {
        self.stepped(|task, core| task.go_early(core)).unwrap_or(Step::Blocked)
    }

    fn hear_abort(&mut self) -> Step {
        let hear = |task: &mut Self, core: &Core| match core.check() {
            Err(error) if core.is_aborted() => task.failed(core, error),
            _ => Step::Blocked,
        };
        self.stepped(hear).unwrap_or(Step::Blocked)
    }

    fn bars(&self, next: Option<&Call>, output: &Range<usize>) -> bool {
        if let Some(v) = &self.v {
            let (reads, writes) = self.spans(v);
            return !self.call.bias.is_null()
                || [reads, writes].iter().any(|span| crate::exec::call::meet(span, output));
        }
        // Without a plan the payload lies in slots.
        let next = next.filter(|_| self.plan.is_some());
        let bars = |c: &Arc<Core>| lent::bars(&self.call, next, output, c.rank as u32, c.ranks);
        self.core.as_ref().is_none_or(bars)
    }

    fn unsettled(&self) -> Option<Arc<dyn Settle>> {
        self.core.clone().map(|c| c as Arc<dyn Settle>)
    }

    fn recycle(mut self: Box<Self>) {
        self.plan = None;
        if let Some(v) = self.v.take() {
            v.recycle();
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Start);
        let Some(core) = self.core.take() else { return };
        if let Phase::Fused(fused) = phase {
            fused.recycle(&core);
        }
        if let Some(mut pool) = core.pool.try_lock()
            && pool.len() < pool.capacity()
        {
            pool.push(self);
        }
    }
}
