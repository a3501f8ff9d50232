//! Small calls that begin before those in front of them have ended, where ranks share cores.
//!
//! A call by which ranks wait for each other costs a switch of the core on each of them. As many calls as follow one
//! another without needing each other's results are therefore announced first, and finished together: what one switch
//! costs then serves up to a [`WINDOW`](crate::communicator::hub::WINDOW) of them. The same for exchanges of messages, of
//! which the sends go first.
//!
//! Each remains a task of its own, with its number, its line and its turn; the stream keeps their order.

use std::sync::Arc;

use oxccl_types::{Collective, Result};

use super::call::{Call, Factor};
use super::links::BEHIND;
use super::operation::Operation;
use super::p2p::{Exchange, P2pTask};
use super::p2p_quick::{self, Over};
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, caught};
use crate::request::Request;

/// What calls of one communicator and lane that trail have in common; not 0.
pub(super) fn id(core: &Arc<Core>, lane: Lane) -> usize {
    // Different, since the value that it points to is larger.
    Arc::as_ptr(core).addr() + lane as usize
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

/// Begins sends and receives behind the exchanges that the stream holds; `false` when they cannot begin yet.
///
/// What is small is sent, and its receives are left to the exchange that the last task of the stream is: so many calls need
/// neither a task nor a turn of their own.
///
/// # Errors
/// Those of [`Exchange::from_requests`]; nothing was begun then.
#[inline(never)]
pub(super) fn exchange<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    mut stream: IdleStream<'_>,
) -> Result<bool> {
    // Given back at once: what makes way for these calls needs them, too.
    let serves = core.try_lock_links().map(|mut links| p2p_quick::serves(core, &mut links, requests.clone()));
    match serves {
        None => return Ok(false),
        Some(false) => return begin(core, requests, stream),
        Some(true) => {}
    }
    let receives = requests.clone().filter(|r| r.collective == Collective::Recv).count();
    let mut over = Over::default();
    loop {
        let Some(last) = stream.last_exchange() else { return Ok(false) };
        if last.receives() + receives <= BEHIND {
            let reads = |r: &Request<S>| r.send.addr()..r.send.addr() + r.count * r.dtype.size();
            let mut sends = requests.clone().filter(|r| r.collective == Collective::Send);
            if !core.are_all(Lane::P2p, stream.behind() as u64) || sends.any(|r| stream.will_write(reads(r))) {
                return Ok(false);
            }
            let Some(mut links) = core.try_lock_links() else { return Ok(false) };
            let sent =
                caught(|| core.check().and_then(|()| p2p_quick::send(core, &mut links, requests.clone(), &mut over)));
            match sent.and_then(|sent| sent) {
                Ok(true) => {
                    // It is there still: the stream is held.
                    if let Some(last) = stream.last_exchange() {
                        last.receive_behind(core, requests);
                    }
                    return Ok(true);
                }
                Ok(false) if over.sends == 0 => {}
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

/// As [`exchange`] for any messages: a task of its own.
fn begin<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>>,
    stream: IdleStream<'_>,
) -> Result<bool> {
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    let mut exchange = Exchange::from_requests(core, Some(&mut links), requests)?;
    let begins = exchange.is_quick(core) && !exchange.reads(|bytes| stream.will_write(bytes));
    let Some(turn) = begins.then(|| core.issue_behind(Lane::P2p, stream.behind() as u64)).flatten() else {
        exchange.give_back(&mut links);
        return Ok(false);
    };
    let begun = caught(|| core.check().and_then(|()| exchange.begin(core, &mut links))).and_then(|result| result);
    drop(links);
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
