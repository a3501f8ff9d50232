//! Direct calls that do their part before those in front of them are over: these have done theirs, and only wait until peers
//! have read what they lend.
//!
//! What a rank reads of its peers in such a call is there as soon as their lines are, and what it writes nobody else touches:
//! neither what those in front lend (that is looked at when the call begins behind them, see [`lent`]) nor what peers write. So
//! a rank that shares its core does its part of many calls before it gives the core away. Calls end in their order.

use super::*;

impl CollectiveTask {
    /// Whether all that is left is to wait for peers that read.
    pub(super) fn gave(&self) -> bool {
        match &self.phase {
            Phase::Direct { road, cursor } => {
                self.trails && lent::has_given(self.plan.as_deref(), &self.call, *road, cursor)
            }
            _ => false,
        }
    }

    /// Goes on, though the turn is that of a call in front, if nothing but its peers' lines is needed.
    pub(super) fn go_early(&mut self, core: &Core) -> Step {
        let begun = matches!(self.phase, Phase::Meet | Phase::Direct { road: Road::Mapped, .. });
        if !self.trails || !begun || self.v.is_some() || !lent::may_take_early(self.plan.as_deref(), &self.call) {
            return Step::Blocked;
        }
        let mut go = || {
            core.check()?;
            let mut engine = core.lock_engine();
            engine.seen.look(core.polls);
            self.advance(core, &mut engine)
        };
        match go() {
            Ok(step) => step,
            Err(error) => self.failed(core, error),
        }
    }
}
