//! Direct calls that do their part before those in front of them are over: these have done theirs, and only wait until peers
//! have read what they lend. So do small ones, by which a rank would otherwise wait for its peers once more.
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
            Phase::LentV(taken) => {
                let taken = |core: &Arc<Core>| lent_v::has_taken(core, taken) && !taken.messages;
                self.trails && self.core.as_ref().is_some_and(taken)
            }
            // There is nothing but to end.
            Phase::Bias(_) => self.trails && self.call.bias.is_null(),
            _ => false,
        }
    }

    /// Goes on, though the turn is that of a call in front, if nothing but its peers' lines is needed.
    pub(super) fn go_early(&mut self, core: &Core) -> Step {
        let may = match &self.phase {
            Phase::Meet if self.v.is_some() => true,
            Phase::LentV(_) => true,
            Phase::EagerWait => self.ends_early,
            Phase::Meet | Phase::Direct { road: Road::Mapped | Road::Far, .. } => {
                lent::may_take_early(self.plan.as_deref())
            }
            _ => false,
        };
        if !self.trails || !may {
            return Step::Blocked;
        }
        // What failed is not tried again; but what ended the communicator is heard.
        if self.doubt.is_some() {
            return core.check().map_or_else(|cause| self.failed(core, cause), |()| Step::Blocked);
        }
        let mut go = || {
            core.check()?;
            let mut engine = core.lock_engine();
            engine.seen.look(core.polls);
            self.early = true;
            self.advance(core, &mut engine)
        };
        let went = go();
        self.early = false;
        match went {
            Ok(step) => step,
            // Perhaps there is a better reason, now or in its turn; calls in front may end well.
            Err(error) if error.code == ResultCode::RemoteError => match core.check() {
                Ok(()) => {
                    (self.started_ns, self.doubt) = (0, Some(error));
                    Step::Blocked
                }
                Err(cause) => self.failed(core, cause),
            },
            Err(error) => self.failed(core, error),
        }
    }
}

/// AlltoAllv.
impl CollectiveTask {
    /// All lines have arrived. What came with them is taken from there, what is lent next; the rest is exchanged.
    /// `false`: not before the turn has come.
    pub(super) fn meet_v(&mut self, core: &Core, engine: &mut Engine) -> Result<bool> {
        let Some(v) = &self.v else { return Ok(false) };
        let mut others = (0..core.members.len()).filter(|m| *m != core.me);
        let messages = !self.published || !others.all(|m| eager_v::came(core, m, self.seq));
        let lent = lent_v::any_lends(core, self.seq);
        if (messages || !lent) && !self.is_turn(core) {
            return Ok(false);
        }
        eager_v::take(core, &self.call, v, self.seq)?;
        self.phase = match (lent, messages) {
            (true, _) => Phase::LentV(Taken::new(messages)),
            (false, true) => self.message_road_v(core, engine)?,
            (false, false) => Phase::Bias(0),
        };
        Ok(true)
    }

    /// Exchanges what neither came with the lines nor is lent.
    pub(super) fn message_road_v(&mut self, core: &Core, engine: &mut Engine) -> Result<Phase> {
        if self.plan.is_none() {
            self.plan = Some(engine.plans.get(core, &self.call)?);
        }
        self.message_road(core, engine)
    }

    /// Whether it lends its input, as its line says.
    pub(super) fn lends_v(&self, core: &Core) -> bool {
        self.trails && self.published && lent_v::lends(core, core.me, self.seq)
    }
}
