//! What a blocked collective waits for: the texts of its timeouts, and whether the end of a peer ends it.

use super::{CollectiveTask, Phase};
use crate::communicator::core::{Blocked, Core, Lane};
use crate::exec::plan::Plan;
use crate::exec::{direct, eager, eager_lent, lent, lent_v, messages, slotted};

/// A blocked task, as the reasons for giving up see it.
pub(super) struct Waiting<'a> {
    pub(super) task: &'a CollectiveTask,
    pub(super) core: &'a Core,
}

impl Waiting<'_> {
    /// Whether its small input is lent to those that take it, for which it waits.
    fn lends(&self) -> bool {
        eager_lent::lends(self.core, &self.task.call, self.task.seq)
    }

    fn missing(&self, seq: u64) -> Vec<usize> {
        self.core.lock_engine().seen.missing(self.core, seq)
    }
}

impl Blocked for Waiting<'_> {
    fn describe(&self) -> String {
        // What those called that share no memory is seen by the messages that they send.
        let messages = !self.core.whole && matches!(self.task.phase, Phase::Messages(_) | Phase::Exchange(_));
        let mut missing = if messages { Vec::new() } else { self.missing(self.task.seq) };
        // Others may come later.
        if let Phase::Exchange(exchange) = &self.task.phase {
            missing.retain(|rank| exchange.awaits(*rank));
        }
        let others = (0..self.core.ranks).filter(|rank| *rank != self.core.rank);
        let needed: Vec<usize> = others.filter(|rank| self.needs(*rank)).collect();
        let who = match (missing.is_empty(), needed) {
            (false, _) => format!("rank(s) {missing:?}, which have not called it"),
            (true, needed) if needed.is_empty() => "peers that have started it".to_string(),
            (true, needed) => format!("rank(s) {needed:?} to do their part of the same call"),
        };
        format!("{} (collective number {}) was waiting for {who}", self.task.call.describe(), self.task.seq)
    }

    fn needs(&self, rank: usize) -> bool {
        let task = self.task;
        if !self.core.is_turn(Lane::Collectives, task.turn) {
            return false;
        }
        match &task.phase {
            Phase::EagerPublish | Phase::Announce => {
                let mut engine = self.core.lock_engine();
                let parts = task.parts(self.core, &mut engine);
                let ahead = task.ahead(self.core, &engine, parts.as_ref());
                drop(engine);
                self.missing((task.seq + 1).saturating_sub(ahead)).contains(&rank)
            }
            Phase::EagerWait if self.lends() => eager_lent::awaits(self.core, &task.call, task.seq, rank),
            Phase::EagerWait => match eager::Form::new(self.core, &task.call).awaited_root() {
                Some(member) => rank == self.core.members[member],
                None => self.missing(task.seq).contains(&rank),
            },
            Phase::Fused(_) => task.seq > 0 && self.missing(task.seq).contains(&rank),
            Phase::Meet => lent::needs(self.core, task.plan.as_deref(), &self.missing(task.seq), rank),
            Phase::Direct { road, cursor } => match task.plan.as_deref().and_then(|plan| plan.direct(*road)) {
                Some(plan) => direct::awaited(plan, cursor) == Some(rank),
                None => true,
            },
            // Of two ranks, the other.
            Phase::Piped(_) => true,
            Phase::Slots(next) if self.core.rank as u32 == task.call.root => {
                self.core.members.get(*next) == Some(&rank)
            }
            Phase::Slots(_) => {
                self.missing((task.seq + 1).saturating_sub(slotted::ahead(self.core, &task.call))).contains(&rank)
            }
            Phase::LentV(_) => lent_v::awaits(self.core, task.seq, rank),
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
        self.core.lock_engine().seen.own(seq)
    }

    fn indirect(&self) -> bool {
        match self.task.phase {
            Phase::Meet => lent::hangs_by_others(self.task.plan.as_deref()),
            Phase::Direct { .. } | Phase::Slots(_) | Phase::LentV(_) | Phase::Messages(_) | Phase::Exchange(_) => true,
            _ => false,
        }
    }
}
