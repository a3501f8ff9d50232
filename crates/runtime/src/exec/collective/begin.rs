//! Collectives over a network that begin behind others: see [`ahead`].

use super::*;

impl CollectiveTask {
    /// Notes who may begin behind this call, which has the turn, if it has sent what it sends first.
    pub(super) fn let_follow(&mut self, core: &Core) {
        if core.whole || self.followed_by != 0 || self.batch != 0 || self.v.is_some() {
            return;
        }
        let Some(plan) = &self.plan else { return };
        let begun = match (&self.phase, plan.as_ref()) {
            (Phase::Exchange(exchange), _) => exchange.is_offered(),
            (Phase::Messages(state), Plan::Messages(plan)) => messages::has_begun(plan, state),
            _ => false,
        };
        if begun {
            self.followed_by = ahead::id(core, plan);
        }
    }

    /// Sends, behind `others`, which have let it, what is sent first. `None`: nothing was done, its turn must come first.
    pub(super) fn begin_ahead(&mut self, core: &Core, others: &VecDeque<Box<dyn Task>>) -> Option<Step> {
        let call = &self.call;
        let (input, output) =
            (call.input_bytes(core.rank as u32, core.ranks), call.output_bytes(core.rank as u32, core.ranks));
        // Calls with a root wait for each other in another way.
        let simple = self.batch == 0 && self.v.is_none() && !call.collective.rooted();
        let simple = simple && call.scale.is_none() && call.bias.is_null();
        if core.whole || !simple || !matches!(self.phase, Phase::Start) || input + output > ahead::SHORT {
            return None;
        }
        if !ahead::has_room(output, others) {
            return None;
        }
        let behind = others.back().map_or(ahead::any(core), |t| t.trails());
        let reads = call.send.addr()..call.send.addr() + input as usize;
        if !core.is_turn(Lane::Collectives, self.turn.checked_sub(others.len() as u64)?)
            || others.iter().any(|t| t.writes(&reads))
        {
            return None;
        }
        let mut engine = core.engine.try_lock()?;
        // An error is met again when the turn has come.
        core.check().ok()?;
        let plan = engine.plans.get(core, call).ok()?;
        let may_follow = behind == ahead::any(core) || behind == ahead::id(core, &plan);
        // A call that only sends is over when it has: it waits for the next one in another way.
        if !may_follow || !matches!(plan.as_ref(), Plan::Messages(plan) if plan.early.sends > 0 && plan.receives) {
            return None;
        }
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
