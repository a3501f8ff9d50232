//! Small calls that begin before those in front of them have ended, where ranks share cores.
//!
//! A call by which ranks wait for each other costs a switch of the core on each of them. As many calls as follow one
//! another without needing each other's results are therefore announced first, and finished together: what one switch
//! costs then serves up to a [`WINDOW`](crate::communicator::hub::WINDOW) of them. The same for exchanges of messages, of
//! which the sends go first.
//!
//! Each collective remains a task of its own, with its number, its line and its turn; the stream keeps their order. Messages are put to the
//! exchange in front where the last task is one.

use std::sync::Arc;

use oxccl_types::{Collective, Result};

use super::call::{Call, Factor};
use super::links::{BEHIND, is_local};
use super::operation::Operation;
use super::p2p::{Exchange, P2pTask, QUICK_LOCAL};
use super::p2p_behind::range;
use super::p2p_quick::{self, Over};
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, Stream, caught};
use crate::request::Request;

/// What calls of one communicator and lane that trail have in common; not 0.
pub(super) fn id(core: &Core, lane: Lane) -> usize {
    // Different, since the value is larger.
    std::ptr::from_ref(core).addr() + lane as usize
}

/// The stream, if a call of `core` may begin on it now, be it behind others, also of communicators whose ranks are others: these
/// keep orders of their own, and share no slots.
#[inline]
pub(super) fn behind<'a>(core: &Arc<Core>, lane: Lane, stream: &'a Stream) -> Option<IdleStream<'a>> {
    stream.try_behind(id(core, lane), core.whole)
}

/// The turn of an operation behind those that the stream holds; `None` if others of its lane are under way elsewhere.
#[inline]
pub(super) fn issue(core: &Arc<Core>, lane: Lane, stream: &IdleStream<'_>) -> Option<u64> {
    core.issue_behind(lane, stream.behind_in(id(core, lane)))
}

/// Whether a call that has announced all that it gives may be followed by others before it ends.
pub(super) fn goes_on(core: &Core) -> bool {
    core.crowded && core.hub.geometry().crowded
}

/// Whether `call`, whose form allows it, may begin behind the calls that the stream holds: it does not read what they will
/// write, be it its input or a factor in memory.
#[inline]
pub(super) fn may_follow(core: &Core, stream: &IdleStream<'_>, call: &Call) -> bool {
    let from = call.send.addr();
    let bytes = call.input_bytes(core.rank as u32, core.ranks) as usize;
    let factor = matches!(call.scale, Some(Factor::Memory(_)));
    call.bias.is_null() && !factor && !stream.will_write(from..from + bytes)
}

/// Begins sends and receives behind the operations that the stream holds; `false` when they cannot begin yet.
///
/// What is small is sent, and its receives are left to the exchange that the last task of the stream is, as all of what is longer: so many
/// calls need neither a task nor a turn of their own.
///
/// # Errors
/// Those of [`Exchange::from_requests`]; nothing was begun then.
#[inline(never)]
pub(super) fn exchange<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    mut stream: IdleStream<'_>,
) -> Result<bool> {
    match Kind::of(core, requests.clone(), &mut stream) {
        None => Ok(false),
        Some(Kind::Copied) => copied::<S, false>(core, requests, stream),
        Some(Kind::Again) => lend(core, requests, stream, true),
        Some(Kind::WithOwn) => copied::<S, true>(core, requests, stream),
        Some(Kind::Lent) => lend(core, requests, stream, false),
        Some(Kind::Other) => begin(core, requests, stream),
    }
}

/// How the messages of a call go that begins behind others.
enum Kind {
    /// Copied as a whole.
    Copied,
    /// As those of the last call that was lent.
    Again,
    /// Copied, with some of this rank to itself.
    WithOwn,
    /// Taken on by the exchange in front: those that are not small are read where they lie.
    Lent,
    Other,
}

impl Kind {
    /// `None`: another thread has the connections.
    #[inline]
    fn of<'a, S: 'a>(
        core: &Arc<Core>,
        requests: impl Iterator<Item = &'a Request<S>> + Clone,
        stream: &mut IdleStream<'_>,
    ) -> Option<Kind> {
        if requests.clone().all(|r| p2p_quick::is_small(core, r)) {
            return Some(Kind::Copied);
        }
        if stream.last_exchange(id(core, Lane::P2p), true).is_some_and(|last| last.is_again(requests.clone())) {
            return Some(Kind::Again);
        }
        // Given back at once: what makes way for these calls needs them, too.
        let mut links = core.try_lock_links()?;
        if p2p_quick::serves(core, &mut links, requests.clone()) {
            return Some(Kind::Copied);
        }
        Some(match p2p_quick::serves_own(core, &mut links, requests.clone()) {
            true => Kind::WithOwn,
            false if may_lend(core, requests) => Kind::Lent,
            false => Kind::Other,
        })
    }
}

/// [`exchange`] of small messages; `OWN`: some of them with this rank itself.
fn copied<'a, S: 'a, const OWN: bool>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    mut stream: IdleStream<'_>,
) -> Result<bool> {
    let is_own = |r: &&Request<S>| OWN && r.root == core.rank;
    let receives = requests.clone().filter(|r| r.collective == Collective::Recv && !is_own(r)).count();
    let (mut over, lane) = (Over::default(), id(core, Lane::P2p));
    loop {
        let Some(last) = stream.last_exchange(lane, false) else {
            if stream.is_last_of_others(lane) {
                return begin(core, requests, stream);
            }
            // It has not sent all: peers read some of it where it lies.
            return if stream.last_exchange(lane, true).is_some() {
                lend(core, requests, stream, false)
            } else {
                Ok(false)
            };
        };
        if last.receives() + receives <= BEHIND {
            if !core.are_all(Lane::P2p, stream.behind_in(lane)) || meets(core, requests.clone(), &stream, OWN) {
                return Ok(false);
            }
            let Some(mut links) = core.try_lock_links() else { return Ok(false) };
            let mut send = || p2p_quick::send::<_, OWN>(core, &mut links, requests.clone(), &mut over);
            let sent = caught(|| core.check().and_then(|()| send())).and_then(|sent| sent);
            let begun = over.sends > 0 || !matches!(sent, Ok(false));
            if OWN && begun {
                p2p_quick::copy_own(core, requests.clone());
            }
            match sent {
                Ok(true) => {
                    // It is there still: the stream is held.
                    if let Some(last) = stream.last_exchange(lane, false) {
                        last.receive_behind(core, requests);
                    }
                    stream.took_on(false);
                    return Ok(true);
                }
                Ok(false) if !begun => {}
                halted => {
                    let rest = Exchange::rest_of(core, &mut links, requests, over);
                    drop(links);
                    let turn = core.issue(Lane::P2p);
                    leave(core, stream, turn, rest, halted.map(|_| ()));
                    return Ok(true);
                }
            }
        }
        // No room for a receive, or for the first message.
        if !stream.make_way() {
            return Ok(false);
        }
    }
}

/// Whether `requests`, with some of this rank to itself among them if `own`, touch what the calls that the stream holds have still to write,
/// if they read it, or to read, if they write it: they send from now on, and may receive before those are over.
fn meets<'a, S: 'a>(
    core: &Core,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    stream: &IdleStream<'_>,
    own: bool,
) -> bool {
    let lends = stream.any_lends();
    let meets = |r: &Request<S>| match r.collective {
        _ if own && r.root == core.rank => false,
        Collective::Send => stream.will_write(range(r)),
        _ => lends && stream.has_lent(&range(r)),
    };
    // What is sent to oneself is written now.
    let may_copy = |(from, to)| stream.may_copy(&from, &to);
    requests.clone().any(meets) || own && !p2p_quick::own(core, requests).all(may_copy)
}

/// Whether `requests` are messages between ranks that share memory, of which those that are not small are read where they lie, but not so
/// long that they are left to who waits for the stream.
fn may_lend<'a, S: 'a>(core: &Core, mut requests: impl Iterator<Item = &'a Request<S>> + Clone) -> bool {
    let mut all = 0_u64;
    let matched = core.whole && p2p_quick::own_match(core, requests.clone());
    let near = |r: &Request<S>| {
        all = all.saturating_add(p2p_quick::bytes(r) as u64);
        is_local(core, r.root as u32)
    };
    matched && requests.all(near) && all <= QUICK_LOCAL
}

/// After a look at what peers have read of it: an exchange that has received all is not stepped before its turn.
#[inline(never)]
fn polled<'a>(core: &Core, exchange: &'a mut Exchange) -> &'a Exchange {
    if let Some(mut links) = core.try_lock_links() {
        // An error is met again by who steps it.
        let _ = caught(|| exchange.begin(core, &mut links));
    }
    exchange
}

/// [`exchange`] of messages that [may be lent](may_lend), or of the last call of the exchange in front made `again`: left to
/// that exchange, if there is one that takes it on.
fn lend<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    mut stream: IdleStream<'_>,
    again: bool,
) -> Result<bool> {
    let others = requests.clone().filter(|r| r.root != core.rank);
    let count = |kind| others.clone().filter(|r| r.collective == kind).count();
    let (sends, recvs) = (count(Collective::Send), count(Collective::Recv));
    if sends.max(recvs) > BEHIND {
        return begin(core, requests, stream);
    }
    // Who has to wait waits for room for many: a switch for each call would keep all ranks at one call per switch.
    let (mut room, lane) = (0, id(core, Lane::P2p));
    loop {
        let has_room = |last: &Exchange| last.has_room(sends.max(room), recvs.max(room));
        match stream.last_exchange(lane, true).map(|last| has_room(last) || has_room(polled(core, last))) {
            Some(true) => break,
            Some(false) => room = BEHIND / 2,
            None if stream.behind() > 0 && !again => return begin(core, requests, stream),
            None => return Ok(false),
        }
        if !stream.make_way() {
            return Ok(false);
        }
    }
    // What was found of the call made before holds of this one.
    if !core.are_all(Lane::P2p, stream.behind_in(lane)) || !again && meets(core, requests.clone(), &stream, true) {
        return Ok(false);
    }
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    let Some(last) = stream.last_exchange(lane, true).filter(|_| core.check().is_ok()) else { return Ok(false) };
    // An error is met again by who steps the exchange.
    let _ = caught(|| last.take_on(core, &mut links, others, again));
    drop(links);
    p2p_quick::copy_own(core, requests);
    stream.took_on(true);
    Ok(true)
}

/// As [`exchange`] for any messages: a task of its own.
fn begin<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>>,
    stream: IdleStream<'_>,
) -> Result<bool> {
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    let mut exchange = Exchange::from_requests(core, Some(&mut links), requests)?;
    // It may receive before those in front are over, and copies what is its own now. Over a network nobody would tell the exchange in front
    // that this one follows.
    let begins = exchange.is_quick(core)
        && (exchange.may_finish_own(core) || exchange.own().next().is_none())
        && !exchange.gives(|bytes| stream.will_write(bytes))
        && !exchange.writes(|bytes| stream.has_lent(bytes))
        && exchange.own().all(|(from, to)| stream.may_copy(&from, &to));
    let Some(turn) = begins.then(|| issue(core, Lane::P2p, &stream)).flatten() else {
        exchange.give_back(&mut links);
        return Ok(false);
    };
    let begun = caught(|| core.check().and_then(|()| exchange.begin(core, &mut links))).and_then(|result| result);
    drop(links);
    exchange.finish_own();
    leave(core, stream, turn, exchange, begun);
    Ok(true)
}

/// The stream goes on with an exchange that has begun.
fn leave(core: &Arc<Core>, stream: IdleStream<'_>, turn: u64, exchange: Box<Exchange>, begun: Result<()>) {
    let mut task = P2pTask::begun(core.clone(), turn, exchange).trailing();
    match begun {
        Ok(()) => stream.go_on(Box::new(task)),
        Err(error) => match task.gave(Err(error)) {
            Step::Failed(error) => stream.failed(error),
            _ => stream.go_on(Box::new(task)),
        },
    }
}
