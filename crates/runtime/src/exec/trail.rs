//! Small calls that begin before those in front of them have ended, where ranks share cores.
//!
//! A call by which ranks wait for each other costs a switch of the core on each of them. As many calls as follow one
//! another without needing each other's results are therefore announced first, and finished together: what one switch
//! costs then serves up to a [`WINDOW`](crate::communicator::hub::WINDOW) of them. The same for exchanges of messages, of
//! which the sends go first.
//!
//! Each remains a task of its own, with its number, its line and its turn; the stream keeps their order.

use std::sync::Arc;

use oxccl_types::Result;

use super::call::{Call, Factor};
use super::operation::Operation;
use super::p2p::{Exchange, P2pTask};
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, caught};
use crate::request::Request;

/// What calls of one communicator and lane that trail have in common; not 0.
pub(super) fn id(core: &Arc<Core>, lane: Lane) -> usize {
    // Different, since the value that it points to is larger.
    Arc::as_ptr(core).addr() + lane as usize
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
/// # Errors
/// Those of [`Exchange::from_requests`]; nothing was begun then.
#[inline(never)]
pub(super) fn exchange<'a, S: 'a>(
    core: &Arc<Core>,
    requests: impl Iterator<Item = &'a Request<S>>,
    stream: IdleStream<'_>,
) -> Result<bool> {
    let Some(mut links) = core.try_lock_links() else { return Ok(false) };
    let mut exchange = Exchange::from_requests(core, Some(&mut links), requests)?;
    let begins = exchange.is_quick() && !exchange.reads(|bytes| stream.will_write(bytes));
    let Some(turn) = begins.then(|| core.issue_behind(Lane::P2p, stream.behind() as u64)).flatten() else {
        exchange.give_back(&mut links);
        return Ok(false);
    };
    let begun = caught(|| core.check().and_then(|()| exchange.begin(core, &mut links))).and_then(|result| result);
    drop(links);
    let mut task = P2pTask::begun(core.clone(), turn, exchange).trailing();
    match begun {
        Ok(()) => stream.go_on(Box::new(task)),
        Err(error) => match task.gave(Err(error)) {
            Step::Failed(error) => stream.failed(error),
            _ => stream.go_on(Box::new(task)),
        },
    }
    Ok(true)
}
