//! What a root gives by messages because peers cannot map its input: they know from its line, and nobody waits for anybody else.
//!
//! Where ranks share cores the next calls of the root begin behind such a one: their messages lie where the peers find them, which
//! take several before they give their cores away. Calls end in their order.

use super::*;
use crate::communicator::hub::LINES_AHEAD;
use crate::device::Stream;
use crate::haste;

/// Calls that may be under way when one more begins behind them.
const MOST: usize = LENT_WINDOW as usize / 2;

/// Whether this rank is the root of `call` and gives to all others.
fn is_giving_root(core: &Core, call: &Call) -> bool {
    matches!(call.collective, Collective::Broadcast | Collective::Scatter) && core.rank as u32 == call.root
}

/// Begins `call` behind those that the stream holds, if any, where this rank gives by messages; it comes back if it was not begun.
pub(in crate::exec) fn begin(core: &Arc<Core>, call: Call, stream: &Stream) -> Option<Call> {
    if !core.whole || !trail::goes_on(core) || !is_giving_root(core, &call) {
        return Some(call);
    }
    // Looked at first: for no other call is room made here.
    let plan = core.engine.try_lock().and_then(|mut engine| {
        let plan = engine.plans.get(core, &call).ok()?;
        beside::is_sent(core, &mut engine, &call, plan.aside()).then_some(plan)
    });
    let Some(plan) = plan else { return Some(call) };
    let Some(mut idle) = trail::behind(core, Lane::Collectives, stream) else { return Some(call) };
    // Who has to wait waits for room for many: a switch for each call would keep the ranks at one call per switch.
    let mut most = MOST;
    while idle.behind() >= most {
        most = MOST / 2;
        if !idle.make_way() {
            return Some(call);
        }
    }
    let Some(mut engine) = core.engine.try_lock() else { return Some(call) };
    let (next, behind) = (engine.next_number(), idle.behind() > 0);
    // Its output it writes in its turn, when those in front are over.
    let may = engine.seen.may_publish(core, next, LINES_AHEAD)
        && trail::may_follow(core, &idle, &call)
        && !(behind && engine.bars_others());
    let Some(turn) = may.then(|| trail::issue(core, Lane::Collectives, &idle)).flatten() else { return Some(call) };
    let short = at_once_direct::is_short(core, &call);
    let mut task = CollectiveTask::with_turn(turn, call, None);
    if short && !behind {
        haste::begin();
        at_once_direct::see_through(core, idle, engine, task);
        return None;
    }
    task.plan = Some(plan);
    let begun = caught(|| core.check().and_then(|()| task.offer(core, &mut engine, behind))).and_then(|begun| begun);
    drop(engine);
    match begun {
        Ok(()) => idle.go_on(task.of(core).boxed()),
        Err(error) => at_once_direct::failed(core, idle, task, error),
    }
    None
}

impl CollectiveTask {
    /// Goes on by messages of the root, for which nobody waits for other ranks.
    fn exchange_sent(&mut self, core: &Core, engine: &mut Engine) -> Result<()> {
        let sent = self.plan.as_deref().and_then(Plan::sent);
        let sent = sent.ok_or_else(|| Error::internal("a plan lacks messages"))?;
        let links = &mut engine.links;
        let exchange = p2p::Exchange::from_program(core, links, &self.call, sent, self.send, None, self.seq)?;
        self.phase = Phase::Exchange(exchange.begins(core, links));
        engine.leave_unsettled(self.seq, self.call.signature);
        Ok(())
    }

    /// Takes, or gives, what the root's line says that it sends.
    pub(super) fn begin_sent(&mut self, core: &Core, engine: &mut Engine) -> Result<Option<Step>> {
        if !self.is_turn(core) {
            return Ok(Some(Step::Blocked));
        }
        self.exchange_sent(core, engine).map(|()| None)
    }

    /// Announces a call that has its plan, be it `behind` others, and sends what there is room for of what this rank gives.
    fn offer(&mut self, core: &Core, engine: &mut Engine, behind: bool) -> Result<()> {
        (self.seq, self.call.signature) = engine.number(core, self.call.signature);
        let aside = self.plan.as_deref().map_or_else(Aside::default, Plan::aside);
        let words = direct::announce(core, engine, &self.call, self.seq, self.send, aside, behind);
        self.phase = Phase::Meet;
        if !direct::is_sent(&words) {
            return Err(Error::internal(format!("{} does not go by messages after all", self.call.describe())));
        }
        self.exchange_sent(core, engine)?;
        let Phase::Exchange(exchange) = &mut self.phase else { return Ok(()) };
        exchange.begin(core, &mut engine.links)?;
        let offered = exchange.is_offered();
        self.let_sends_follow(core, offered);
        Ok(())
    }

    /// The next call may begin behind this one, if all messages were `offered` to its peers: it waits until these have taken them.
    pub(super) fn let_sends_follow(&mut self, core: &Core, offered: bool) {
        let direct = matches!(self.plan.as_deref(), Some(Plan::Direct { .. }));
        if offered && direct && self.batch == 0 && trail::goes_on(core) && is_giving_root(core, &self.call) {
            self.trail(LENT_WINDOW);
        }
    }
}
