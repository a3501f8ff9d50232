//! What a collective does in the phases in which it waits for peers. Each goes as far as it can: `None` where the next phase
//! can go on.

use super::*;

impl CollectiveTask {
    /// `step`, by which a phase that is done gives way to `next`.
    pub(super) fn then(&mut self, step: Step, next: Phase) -> Option<Step> {
        if !matches!(step, Step::Done) {
            return Some(step);
        }
        self.phase = next;
        None
    }

    /// Takes what the peers' lines bring; whether all have come.
    #[inline(always)]
    pub(super) fn eager_wait(&mut self, core: &Core, engine: &mut Engine) -> Result<bool> {
        let form = eager::Form::new(core, &self.call);
        if !form.finish_voting(core, engine, &self.call, self.seq)? {
            return Ok(false);
        }
        // What this rank lent was taken: it, or the root that took it, has seen the lines of all.
        if !form.settled && !eager_lent::lends(core, &self.call, self.seq) {
            engine.leave_unsettled(self.seq, self.call.signature);
        }
        Ok(true)
    }

    /// Calls of a group that travel together.
    pub(super) fn fused(&mut self, core: &Core, engine: &mut Engine) -> Result<Step> {
        let Phase::Fused(fused) = &mut self.phase else { return Ok(Step::Blocked) };
        let step = fused.advance(core, engine, &mut self.call);
        self.seq = fused.number();
        Ok(match step? {
            Step::Done => self.finished(core, engine),
            step => step,
        })
    }

    /// Waits for the lines of the peers whose word is needed, and takes the road that they say.
    pub(super) fn meet_peers(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        if let Some(Plan::Direct { .. }) = self.plan.as_deref()
            && let Some(giver) = beside::giver(core, &self.call)
        {
            if giver != core.me && !engine.seen.arrived(core, &self.call, giver, self.seq)? {
                return Ok(Some(Step::Blocked));
            }
            let (words, plan) = (direct::words(core, giver, self.seq), self.plan.as_deref());
            // Rings and connections are used in the order of the calls.
            if self.early && !direct::is_input_mapped(&words) {
                return Ok(Some(Step::Blocked));
            }
            let given = match giver == core.me {
                true => direct::is_sent(&words).then_some(Given::Sent),
                false => beside::given(core, engine, &self.call, plan, giver, self.seq, &words)?,
            };
            if let Some(given) = given {
                if matches!(given, Given::Sent) {
                    return self.begin_sent(core, engine);
                }
                self.phase = given.into();
                return Ok(None);
            }
        }
        let met = lent::meet(core, engine, &self.call, self.plan.as_deref(), self.seq)?;
        let blocked = met == Met::Not || !self.meet(core, engine, met)?;
        Ok(blocked.then_some(Step::Blocked))
    }

    /// Goes on by a direct program.
    pub(super) fn direct(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        let Phase::Direct { road, cursor } = &mut self.phase else { return Ok(None) };
        let plan = self.plan.as_deref().and_then(|plan| plan.direct(*road));
        let plan = plan.ok_or_else(|| Error::internal("a direct phase without a direct plan"))?;
        // Staged programs touch the peers' scratch only, which stays.
        let borrowed = if road.borrows() { core.borrow_memory(Lane::Collectives) } else { None };
        if road.borrows() && borrowed.is_none() {
            return Ok(Some(Step::Blocked));
        }
        let step = direct::step(core, engine, &self.call, plan, self.seq, cursor)?;
        if matches!(step, Step::Done) && !self.is_turn(core) {
            return Ok(Some(Step::Blocked));
        }
        Ok(self.then(step, Phase::Bias(0)))
    }

    /// Takes the parts of an AlltoAllv that peers lend.
    pub(super) fn take_lent_v(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        let Phase::LentV(taken) = &mut self.phase else { return Ok(None) };
        let v = self.v.as_deref().ok_or_else(|| Error::internal("counts are missing"))?;
        let step = lent_v::step(core, engine, &self.call, v, self.seq, taken)?;
        let messages = taken.messages;
        if !matches!(step, Step::Done) {
            return Ok(Some(step));
        }
        if !self.is_turn(core) {
            return Ok(Some(Step::Blocked));
        }
        self.phase = if messages { self.message_road_v(core, engine)? } else { Phase::Bias(0) };
        Ok(None)
    }

    /// Goes on by a message program.
    pub(super) fn messages(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        let Phase::Messages(state) = &mut self.phase else { return Ok(None) };
        let Some(Plan::Messages(plan)) = self.plan.as_deref() else {
            return Err(Error::internal("a message phase without a message plan"));
        };
        // What peers that share memory have sent may lie in theirs.
        let borrowed = links::borrows(core).then(|| core.borrow_memory(Lane::Collectives));
        if matches!(borrowed, Some(None)) {
            return Ok(Some(Step::Blocked));
        }
        let run = Run { core, call: &self.call, plan, send: self.send, seq: self.seq };
        let step = messages::step(run, engine, state)?;
        if !matches!(step, Step::Done) {
            self.let_follow(core);
            return Ok(Some(step));
        }
        engine.copies.end(self.seq);
        if let Phase::Messages(state) = std::mem::replace(&mut self.phase, Phase::Post(0))
            && engine.spare_messages.len() < engine.spare_messages.capacity()
        {
            engine.spare_messages.push(state);
        }
        Ok(None)
    }

    /// Goes on with messages to and from every peer.
    pub(super) fn exchange(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        let Phase::Exchange(exchange) = &mut self.phase else { return Ok(None) };
        // Receiving may read straight from the sender's memory.
        let Some(_borrowed) = core.borrow_memory(Lane::Collectives) else { return Ok(Some(Step::Blocked)) };
        let step = exchange.step(core, &mut engine.links)?;
        if !matches!(step, Step::Done) {
            let offered = exchange.is_offered();
            self.let_follow(core);
            self.let_sends_follow(core, offered);
            return Ok(Some(step));
        }
        if let Phase::Exchange(exchange) = std::mem::replace(&mut self.phase, Phase::Post(0)) {
            exchange.give_back(&mut engine.links);
        }
        Ok(None)
    }
}
