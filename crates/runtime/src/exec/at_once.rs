//! Small collectives carried out by the call itself: when neither the stream nor the communicator has anything else to
//! do, the eager protocol runs on the caller's thread, with no task, queue or helper. A call that has to wait for a peer
//! longer than a few looks becomes a task of its stream.
//!
//! It is the way of most small calls and therefore short; what it does is what the task's eager phases do.

use std::sync::Arc;

use oxccl_sys::LatchGuard;
use oxccl_types::{Error, Result, ResultCode};

use super::call::Call;
use super::collective::{CollectiveTask, Engine, Phase};
use super::eager::Form;
use super::eager_v::{Start, Way};
use super::known::Made;
use super::links::Links;
use super::operation::Operation;
use super::p2p::{Exchange, P2pTask, POLLS_PER_STEP};
use super::p2p_quick::{Message, Over, Quick};
use super::p2p_short::Begun;
use super::{
    again_direct, ahead, at_once_direct, eager_lent, eager_v, lent_v, limits, p2p_quick, p2p_short, trail, votes,
};
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, Stream, caught};
use crate::haste;
use crate::request::{Request, Shape, VCounts};

/// How far an eager call has come. Not a [`Phase`], which is long, and a word: what is read in other pieces than it was written in
/// waits for all stores in front of it, and so for a line that peers have read.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Reached {
    /// It is over on this rank.
    End,
    /// It is blocked: its line may not be written yet.
    Publish,
    /// It is blocked: the peers' lines have not come.
    Wait,
    /// Its bias is still to be added.
    Bias,
}

impl Reached {
    /// The phase in which its task goes on, if it does.
    #[inline(always)]
    fn phase(self) -> Phase {
        match self {
            Reached::Publish => Phase::EagerPublish,
            Reached::Wait => Phase::EagerWait,
            Reached::End | Reached::Bias => Phase::Bias(0),
        }
    }
}

/// Stream, engine and turn of a communicator, all of them free for one call.
pub(super) struct Free<'a> {
    pub idle: IdleStream<'a>,
    pub engine: LatchGuard<'a, Engine>,
    pub turn: u64,
}

/// Carries out, or begins, a call without a bias and counts per peer as the last one of its `shape`; `false` when there
/// was none, or it cannot be begun now, as where something has ended the communicator.
#[inline]
pub(crate) fn again(core: &Arc<Core>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
    if !core.whole || core.ranks == 1 || !shape.may_be_short() {
        return false;
    }
    if core.crowded {
        return again_crowded(core, shape, send, recv, stream);
    }
    let Some(idle) = stream.try_behind_end(trail::id(core, Lane::Collectives)) else { return false };
    // Looked at behind what the stream still had to do: that may have ended it.
    match idle.behind() {
        0 => core.is_well() && begin_again::<false>(core, shape, send, recv, idle),
        _ => behind_end(core, shape, send, recv, stream, idle),
    }
}

/// [`again`] behind the [end](super::ends) of a call.
#[inline(never)]
fn behind_end(
    core: &Arc<Core>,
    shape: &Shape,
    send: *const u8,
    recv: *mut u8,
    stream: &Stream,
    idle: IdleStream<'_>,
) -> bool {
    let begin = |idle| core.is_well() && begin_again::<false>(core, shape, send, recv, idle);
    // What cannot begin behind it ends it first.
    begin(idle) || stream.try_idle().is_some_and(begin)
}

/// [`again`] where ranks share cores.
#[inline(never)]
fn again_crowded(core: &Arc<Core>, shape: &Shape, send: *const u8, recv: *mut u8, stream: &Stream) -> bool {
    let begin = |idle| core.is_well() && begin_again::<true>(core, shape, send, recv, idle);
    if let Some(free) = trail::behind(core, Lane::Collectives, stream) {
        let is_idle = free.behind() == 0;
        let begun = begin(free);
        if begun || is_idle {
            return begun;
        }
    }
    // Another one may begin in another way behind what is left.
    let waits = |e: &mut Engine| e.known.knows(shape) || again_direct::waits(core, e, shape, send, recv);
    core.engine.try_lock().is_some_and(|mut engine| waits(&mut engine)) && stream.try_idle().is_some_and(begin)
}

/// [`again`] behind the calls that `idle` holds, if any. Only where ranks share cores, which is `CROWDED`, do eager ones
/// begin so, may votes decide and inputs be lent: for the others there is code without that, and direct calls that begin behind an [end](super::ends).
#[inline]
fn begin_again<const CROWDED: bool>(
    core: &Arc<Core>,
    shape: &Shape,
    send: *const u8,
    recv: *mut u8,
    idle: IdleStream<'_>,
) -> bool {
    let Some(mut engine) = core.engine.try_lock() else { return false };
    let Some(mut made) = engine.known.take(shape, send, recv) else {
        return again_direct::run(core, idle, engine, shape, send, recv);
    };
    let seq = engine.next_number();
    if CROWDED && made.form.votes && votes::go_direct(&mut engine, &made.call, seq) {
        engine.known.keep(made);
        return again_direct::run(core, idle, engine, shape, send, recv);
    }
    if CROWDED && made.form.may_lend {
        made.lent = eager_lent::offer(core, &mut engine, &made.call, &idle);
    }
    let follows = idle.behind() == 0
        || made.trails(true).is_some_and(|window| idle.has_room_for(window))
            && trail::may_follow(core, &idle, &made.call)
            && !engine.bars_others();
    let Some(turn) = follows.then(|| trail::issue(core, Lane::Collectives, &idle)).flatten() else {
        engine.known.keep(made);
        return false;
    };
    carry_out::<CROWDED>(core, Free { idle, engine, turn }, made);
    true
}

/// Carries out `call`, or begins it; the call comes back when it was not begun. The next one of its shape may be made
/// [`again`].
pub(crate) fn run(core: &Arc<Core>, shape: Option<Shape>, mut call: Call, stream: &Stream) -> Option<Call> {
    if core.ranks == 1 || !limits::is_eager(core, &call) || goes_direct(core, &call) {
        return at_once_direct::run(core, shape, call, stream);
    }
    if core.crowded
        && let Some(free) = trail::behind(core, Lane::Collectives, stream)
    {
        call = begin(core, shape, call, free)?;
    }
    match stream.try_idle() {
        Some(idle) => begin(core, shape, call, idle),
        None => Some(call),
    }
}

/// Whether a short `call` would go over mapped memory if it began now.
#[inline]
fn goes_direct(core: &Core, call: &Call) -> bool {
    votes::decide(core, call) && core.engine.try_lock().is_some_and(|mut engine| voted_direct(core, &mut engine, call))
}

/// The same by who holds the engine, under whose latch the call then begins.
#[inline]
fn voted_direct(core: &Core, engine: &mut Engine, call: &Call) -> bool {
    let seq = engine.next_number();
    votes::decide(core, call) && votes::go_direct(engine, call, seq)
}

/// [`run`] behind the calls that `idle` holds, if any.
fn begin(core: &Arc<Core>, shape: Option<Shape>, call: Call, idle: IdleStream<'_>) -> Option<Call> {
    let Some(mut engine) = core.engine.try_lock() else { return Some(call) };
    if voted_direct(core, &mut engine, &call) {
        return Some(call);
    }
    let lent = if eager_lent::serves(core, &call) { eager_lent::offer(core, &mut engine, &call, &idle) } else { None };
    let follows = || {
        let window = Form::new(core, &call).trails(lent.is_some(), true);
        window.is_some_and(|window| idle.has_room_for(window)) && trail::may_follow(core, &idle, &call)
    };
    if idle.behind() > 0 && (!follows() || engine.bars_others()) {
        return Some(call);
    }
    let Some(turn) = trail::issue(core, Lane::Collectives, &idle) else { return Some(call) };
    let mut made = engine.known.make(core, shape, call);
    made.lent = lent;
    carry_out::<true>(core, Free { idle, engine, turn }, made);
    None
}

#[inline]
fn carry_out<const CROWDED: bool>(core: &Arc<Core>, free: Free<'_>, mut made: Box<Made>) {
    let Free { mut idle, mut engine, turn } = free;
    let mut seq = 0;
    let ends = idle.behind() == 0;
    // Before the line is written: to count waits for all stores in front of it.
    let counted = (!ends).then(|| core.clone());
    let run = || advance::<CROWDED>(core, &mut engine, &mut made, &mut seq, ends, core.polls);
    match caught(run).and_then(|reached| reached) {
        Ok(Reached::End) => end(core, &mut idle, engine, made, turn),
        Ok(reached) => {
            let window = if core.crowded && matches!(reached, Reached::Wait) {
                made.trails(!ends || engine.roots_change(&made.call))
            } else {
                None
            };
            let counted = counted.unwrap_or_else(|| core.clone());
            let mut task = CollectiveTask::begun_boxed(counted, &made.call, turn, seq, reached.phase());
            if let Some(window) = window {
                task.trail(window);
                // Its peers may still read what those in front of it lend, or write it.
                let lent = |bytes: &std::ops::Range<usize>| idle.has_lent(bytes);
                let output = || made.call.written(core.rank as u32, core.ranks);
                task.may_end_early(!ends && (!idle.any_lends() || !output().iter().any(lent)));
            }
            engine.known.keep(made);
            drop(engine);
            idle.go_on(task);
        }
        Err(error) => {
            if let Some(task) = fail_or_doubt(core, &idle, engine, made.call, (turn, seq), error) {
                idle.go_on(task.boxed());
            }
        }
    }
}

/// The call is over on this rank.
#[inline(always)]
fn end(core: &Arc<Core>, idle: &mut IdleStream<'_>, mut engine: LatchGuard<'_, Engine>, made: Box<Made>, turn: u64) {
    let settled = made.form.settled || made.lent.is_some();
    engine.known.keep(made);
    core.pass_turn(Lane::Collectives, turn);
    drop(engine);
    if !settled {
        idle.doubt(core);
    }
}

/// The stream tells of a call that has failed.
#[cold]
fn fail(
    core: &Arc<Core>,
    idle: &IdleStream<'_>,
    engine: LatchGuard<'_, Engine>,
    call: Call,
    (turn, seq, phase): (u64, u64, Phase),
    error: Error,
) {
    drop(engine);
    // Dropped when it has told of its end.
    CollectiveTask::begun(core, call, turn, seq, phase).fail_with(&error);
    idle.failed(error);
}

/// [`fail`] of an eager call. That a peer hands out no memory which it lends may have a better reason, such as a rank that has ended:
/// the task that comes back finds it.
#[cold]
fn fail_or_doubt(
    core: &Arc<Core>,
    idle: &IdleStream<'_>,
    engine: LatchGuard<'_, Engine>,
    call: Call,
    (turn, seq): (u64, u64),
    error: Error,
) -> Option<CollectiveTask> {
    if error.code != ResultCode::RemoteError {
        fail(core, idle, engine, call, (turn, seq, Phase::EagerWait), error);
        return None;
    }
    drop(engine);
    Some(CollectiveTask::begun(core, call, turn, seq, Phase::EagerWait).doubting(error))
}

/// Carries out a call of a group of several communicators on the stream that is held, with `polls` looks at each line that it needs.
/// What is not over comes back, as a task of `batch`, to go on side by side with others of it.
pub(crate) fn side_by_side(
    core: &Arc<Core>,
    idle: &mut IdleStream<'_>,
    mut request: Request<()>,
    batch: u64,
    polls: u32,
) -> Option<Box<CollectiveTask>> {
    let v = request.v.take();
    let (shape, call) = (Shape::of(&request).filter(|_| v.is_none()), Call::new(&request, core.ranks));
    let queued = |call, v| Some(CollectiveTask::new(core.clone(), call, v, batch).boxed());
    if v.is_some() || core.ranks == 1 || !limits::is_eager(core, &call) {
        return queued(call, v);
    }
    let Some(mut engine) = core.engine.try_lock() else { return queued(call, None) };
    if voted_direct(core, &mut engine, &call) {
        drop(engine);
        return queued(call, None);
    }
    let Some(turn) = core.issue_at_once(Lane::Collectives) else { return queued(call, None) };
    let known = shape.as_ref().and_then(|shape| engine.known.take(shape, call.send, call.recv));
    let mut made = known.unwrap_or_else(|| engine.known.make(core, shape, call));
    let mut seq = 0;
    let run = || advance::<true>(core, &mut engine, &mut made, &mut seq, true, polls);
    match caught(run).and_then(|reached| reached) {
        Ok(Reached::End) => {
            end(core, idle, engine, made, turn);
            None
        }
        Ok(reached) => {
            let call = made.call.clone();
            engine.known.keep(made);
            Some(CollectiveTask::begun(core, call, turn, seq, reached.phase()).in_batch(batch).boxed())
        }
        Err(error) => {
            fail_or_doubt(core, idle, engine, made.call, (turn, seq), error).map(|task| task.in_batch(batch).boxed())
        }
    }
}

/// `ends`: it may end now, since none is before it. `polls`: looks at each line.
#[inline]
fn advance<const CROWDED: bool>(
    core: &Core,
    engine: &mut Engine,
    made: &mut Made,
    seq: &mut u64,
    ends: bool,
    polls: u32,
) -> Result<Reached> {
    // Else `again` has just looked.
    if CROWDED {
        core.check()?;
        engine.note_root(&made.call);
    }
    let Made { call, form, lent, .. } = made;
    engine.seen.begin(polls);
    // At hand for the line, which would else wait until it is written to the call.
    let (number, signature) = engine.number(core, call.signature);
    (*seq, call.signature) = (number, signature);
    let ahead = if CROWDED && lent.is_some() { eager_lent::AHEAD } else { form.ahead };
    if !engine.seen.may_publish(core, *seq, ahead) {
        return Ok(Reached::Publish);
    }
    let done = match CROWDED {
        true => {
            match lent {
                Some(words) => eager_lent::start(core, signature, *seq, words),
                None => form.start_voting(core, engine, call, signature, *seq),
            }
            ends && form.finish_voting(core, engine, call, *seq)?
        }
        false => {
            form.start(core, engine, call, signature, *seq);
            ends && form.finish(core, call, *seq, &mut engine.seen, &mut engine.srcs)?
        }
    };
    if !done {
        return Ok(Reached::Wait);
    }
    // What this rank lent was taken: it, or the root that took it, has seen the lines of all.
    if !form.settled && lent.is_none() {
        engine.leave_unsettled(*seq, signature);
    }
    Ok(if call.bias.is_null() { Reached::End } else { Reached::Bias })
}

/// As [`run`] for an AlltoAllv with its counts.
pub(crate) fn run_v(core: &Arc<Core>, call: Call, v: Box<VCounts>, stream: &Stream) -> Option<(Call, Box<VCounts>)> {
    if core.ranks == 1 || !core.eager {
        return Some((call, v));
    }
    let (mut call, mut v) = (call, v);
    if trail::goes_on(core)
        && let Some(busy) = trail::behind(core, Lane::Collectives, stream)
    {
        (call, v) = begin_v(core, call, v, busy)?;
    }
    match stream.try_idle() {
        Some(idle) => begin_v(core, call, v, idle),
        None => Some((call, v)),
    }
}

/// [`run_v`] behind the calls that `idle` holds, if any.
fn begin_v(core: &Arc<Core>, mut call: Call, v: Box<VCounts>, idle: IdleStream<'_>) -> Option<(Call, Box<VCounts>)> {
    let Some(mut engine) = core.engine.try_lock() else { return Some((call, v)) };
    let ends = idle.behind() == 0;
    let element = call.dtype.size();
    let meets =
        || idle.will_write(v.reads(call.send.addr(), element)) || idle.has_lent(&v.writes(call.recv.addr(), element));
    let way = Way::of(core, &call, &v);
    // A rank that shares its core need not wait then until its peers have read.
    let waits = core.crowded && way.is_long() && is_waited_for(&mut engine, &idle);
    let start = match waits && ends {
        true => way.into_slot(),
        false => way.start(core, &mut engine, &call, &v),
    };
    if !ends && (start.is_full() || !idle.has_room_for(start.window(core)) || meets() || engine.bars_others()) {
        return Some((call, v));
    }
    let Some(turn) = trail::issue(core, Lane::Collectives, &idle) else { return Some((call, v)) };
    let (mut seq, mut published) = (0, false);
    let signature = call.signature;
    // As in `carry_out`.
    let counted = (!ends).then(|| core.clone());
    let run = || advance_v(core, &mut engine, &mut call, (&v, start), &mut seq, &mut published, ends);
    match caught(run).and_then(|reached| reached) {
        Ok(None) => {
            core.pass_turn(Lane::Collectives, turn);
            call.signature = signature;
            engine.known_v.keep(core, call, v, start.way);
        }
        Ok(Some(pause)) => {
            leave_v((core, counted), Free { idle, engine, turn }, (call, v, start), (seq, published), pause);
        }
        Err(error) => fail_v(core, Free { idle, engine, turn }, call, seq, error),
    }
    None
}

/// Whether this rank [waits](super::run::Run::is_alone) for each of its calls, of which this is one that begins.
#[inline(never)]
fn is_waited_for(engine: &mut Engine, idle: &IdleStream<'_>) -> bool {
    engine.run.next_is_long(idle.waits());
    engine.run.is_alone()
}

/// Where an AlltoAllv that is not over goes on. Not a phase, and a word, as [`Reached`] is.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Pause {
    Announce,
    Meet,
}

impl From<Pause> for Phase {
    #[inline(always)]
    fn from(pause: Pause) -> Phase {
        match pause {
            Pause::Announce => Phase::Announce,
            Pause::Meet => Phase::Meet,
        }
    }
}

/// The stream goes on with an AlltoAllv. `published`: its parts go with its line, or that says where they lie. `counted`: for its
/// task, where that was done before.
#[inline(always)]
pub(super) fn leave_v(
    (core, counted): (&Arc<Core>, Option<Arc<Core>>),
    free: Free<'_>,
    (call, v, start): (Call, Box<VCounts>, Start),
    (seq, published): (u64, bool),
    pause: Pause,
) {
    let Free { idle, engine, turn } = free;
    let bytes = v.bytes(call.dtype.size()) / 2;
    if idle.behind() == 0 && at_once_direct::is_short_v(core, bytes) {
        let task = CollectiveTask::begun_v((call, v), turn, (seq, pause.into()), published);
        return at_once_direct::see_through_for(core, idle, engine, task, bytes);
    }
    drop(engine);
    let mut task = CollectiveTask::begun_boxed(counted.unwrap_or_else(|| core.clone()), &call, turn, seq, pause.into());
    task.with_counts(v, published);
    if published && trail::goes_on(core) {
        task.trail(start.window(core));
    }
    idle.go_on(task);
}

/// As [`fail`] for an AlltoAllv.
#[cold]
pub(super) fn fail_v(core: &Arc<Core>, free: Free<'_>, call: Call, seq: u64, error: Error) {
    let Free { idle, engine, turn } = free;
    fail(core, &idle, engine, call, (turn, seq, Phase::Meet), error);
}

/// Where it is blocked or goes on; `None` when it is over. `ends` as for [`advance`].
// In both callers, which know more of the operands.
#[inline(always)]
pub(super) fn advance_v(
    core: &Core,
    engine: &mut Engine,
    call: &mut Call,
    (v, start): (&VCounts, Start),
    seq: &mut u64,
    published: &mut bool,
    ends: bool,
) -> Result<Option<Pause>> {
    core.check()?;
    engine.seen.begin(core.polls);
    (*seq, call.signature) = engine.number(core, call.signature);
    if !engine.seen.may_publish(core, *seq, start.ahead(core)) {
        return Ok(Some(Pause::Announce));
    }
    *published = eager_v::announce(core, engine, call, v, start, *seq);
    if !ends {
        return Ok(Some(Pause::Meet));
    }
    end_v(core, engine, call, v, *seq)
}

/// [`advance_v`] of a call that is announced.
#[inline]
pub(super) fn end_v(core: &Core, engine: &mut Engine, call: &Call, v: &VCounts, seq: u64) -> Result<Option<Pause>> {
    let by_line = |member| eager_v::came(core, member, seq) && !lent_v::lends(core, member, seq);
    let mut came = by_line(core.me);
    for member in (0..core.members.len()).filter(|m| *m != core.me) {
        if !engine.seen.arrived(core, call, member, seq)? {
            return Ok(Some(Pause::Meet));
        }
        came &= by_line(member);
    }
    if !came {
        return Ok(Some(Pause::Meet));
    }
    eager_v::take(core, call, v, seq)?;
    Ok(None)
}

/// Carries out, or begins, the sends and receives of one communicator on one stream; `false` when they were not begun.
///
/// # Errors
/// Those of [`Exchange::from_requests`]; nothing was begun then.
pub(crate) fn exchange<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    stream: &Stream,
) -> Result<bool> {
    if !core.whole && stream.is_busy() && ahead::queue(core, requests.clone(), stream)? {
        return Ok(true);
    }
    if begins_behind(core, requests.clone(), stream)? {
        return Ok(true);
    }
    let Some(idle) = stream.try_idle() else { return Ok(false) };
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    haste::begin();
    if p2p_quick::serves(core, &mut links, requests.clone()) {
        return Ok(quick::<_, false>(core, idle, links, requests));
    }
    if p2p_quick::serves_own(core, &mut links, requests.clone()) {
        return Ok(quick::<_, true>(core, idle, links, requests));
    }
    if p2p_short::serves(core, requests.clone()) {
        let Some(turn) = core.issue_at_once(Lane::P2p) else { return Ok(false) };
        let mut begun = Begun::default();
        let run = caught(|| core.check().and_then(|()| p2p_short::run(core, &mut links, requests.clone(), &mut begun)));
        if matches!(run, Ok(Ok(true))) {
            core.pass_turn(Lane::P2p, turn);
            return Ok(true);
        }
        let run = run.and_then(|run| run);
        let rest = Exchange::after(core, &mut links, requests, &begun);
        leave(core, idle, links, turn, rest, run.map(|_| Step::Blocked));
        return Ok(true);
    }
    let mut exchange = Exchange::from_requests(core, Some(&mut links), requests)?;
    if core.crowded {
        exchange.copy_if_waited_for(core, &mut links, idle.waits());
    }
    let turn = if exchange.is_quick(core) { core.issue_at_once(Lane::P2p) } else { None };
    let Some(turn) = turn else {
        exchange.give_back(&mut links);
        return Ok(false);
    };
    // Calls over a network that follow begin behind this one; a round trip is too long for a look.
    let polls = if ahead::waits(core, &exchange) { 0 } else { haste::looks(core.polls) / POLLS_PER_STEP };
    let step = see_through(core, &mut links, &mut exchange, polls);
    leave(core, idle, links, turn, exchange, step);
    Ok(true)
}

/// [`exchange`] of messages that are [small](p2p_quick::is_small), among ranks that all share memory.
///
/// # Errors
/// None but those of [`exchange`].
#[inline(always)]
pub(crate) fn exchange_again<'a>(
    core: &Arc<Core>,
    messages: impl Iterator<Item = &'a Message> + Clone,
    stream: &Stream,
) -> Result<bool> {
    if begins_behind(core, messages.clone().map(|m| &m.request), stream)? {
        return Ok(true);
    }
    let Some(idle) = stream.try_idle() else { return Ok(false) };
    let Some(links) = core.try_lock_links() else { return Ok(false) };
    haste::begin();
    Ok(quick::<_, false>(core, idle, links, messages))
}

/// Begins sends and receives behind the operations that the stream holds, where ranks share cores.
#[inline(always)]
fn begins_behind<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    stream: &Stream,
) -> Result<bool> {
    if !core.crowded {
        return Ok(false);
    }
    match trail::behind(core, Lane::P2p, stream).filter(|idle| idle.behind() > 0) {
        Some(busy) => trail::exchange(core, requests, busy),
        None => Ok(false),
    }
}

/// Carries out, or begins, messages that are copied as a whole; `false` when they were not begun.
#[inline(always)]
fn quick<Q: Quick, const OWN: bool>(
    core: &Arc<Core>,
    idle: IdleStream<'_>,
    mut links: LatchGuard<'_, Links>,
    calls: impl Iterator<Item = Q> + Clone,
) -> bool {
    let Some(turn) = core.issue_at_once(Lane::P2p) else { return false };
    let mut over = Over::default();
    let run =
        caught(|| core.check().and_then(|()| p2p_quick::run::<Q, OWN>(core, &mut links, calls.clone(), &mut over)));
    // Before it is moved: that would read it in other pieces than it was written in, and wait for the stores.
    if matches!(run, Ok(Ok(true))) {
        core.pass_turn(Lane::P2p, turn);
        return true;
    }
    let run = run.and_then(|run| run);
    let mut rest = Exchange::rest_of(core, &mut links, calls, over);
    // What came was not a copy, or has not come yet.
    let step = run.and_then(|_| see_through(core, &mut links, &mut rest, 0));
    leave(core, idle, links, turn, rest, step);
    true
}

/// Moves what can be moved, and looks up to `polls` times more.
fn see_through(core: &Core, links: &mut Links, exchange: &mut Exchange, polls: u32) -> Result<Step> {
    let step = caught(|| -> Result<Step> {
        core.check()?;
        // Receiving may read straight from the sender's memory.
        let Some(_borrowed) = core.borrow_memory(Lane::P2p) else { return Ok(Step::Blocked) };
        let step = exchange.see_through(core, links, polls)?;
        if matches!(step, Step::Blocked) {
            haste::in_vain(polls * POLLS_PER_STEP);
        }
        Ok(step)
    });
    step.and_then(|step| step)
}

/// What is to be done with an exchange that got as far as `step`: its stream goes on with what is left.
#[inline]
fn leave(
    core: &Arc<Core>,
    idle: IdleStream<'_>,
    mut links: LatchGuard<'_, Links>,
    turn: u64,
    mut exchange: Box<Exchange>,
    step: Result<Step>,
) {
    match step {
        Ok(Step::Done) => {
            exchange.give_back(&mut links);
            core.pass_turn(Lane::P2p, turn);
        }
        Ok(_) => {
            drop(links);
            // Others begin behind it then, where all share memory.
            if core.crowded && exchange.may_finish_own(core) {
                exchange.finish_own();
            }
            idle.go_on(Box::new(P2pTask::begun(core.clone(), turn, exchange).trailing()));
        }
        Err(error) => {
            drop(links);
            let mut task = P2pTask::begun(core.clone(), turn, exchange);
            match task.gave(Err(error)) {
                Step::Failed(error) => idle.failed(error),
                _ => idle.go_on(Box::new(task)),
            }
        }
    }
}
