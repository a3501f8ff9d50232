//! Small sends and receives carried out by the call that makes them: each is copied as a whole, without the bookkeeping of
//! an exchange. What does not come within a few looks is left to the exchange of the same calls.
//!
//! What a rank sends to itself, as all-to-alls made of sends and receives do, is copied while the peers' messages are on
//! their way. Of more messages than a connection holds, what has come is received before more is sent.

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::links::{Links, P2P_LANE, direct_from, is_local};
use super::p2p::signature;
use crate::communicator::core::Core;
use crate::request::Request;
use crate::transport::Header;
use crate::transport::local::Policy;

/// How many of the sends, and of the receives, with other ranks are over: the first ones of each kind.
#[derive(Clone, Copy, Default)]
pub(super) struct Over {
    pub(super) sends: usize,
    pub(super) recvs: usize,
    /// Those with this rank itself are.
    pub(super) own: bool,
}

/// Messages that are received before more are sent: half of what a connection holds.
const TURN: usize = 4;

/// Whether all of `requests` are messages between ranks that share memory, so small that they are copied: those of memory
/// that peers cannot map may be longer, where the peer's is taken to be such memory as well.
#[inline(always)]
pub(super) fn serves<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    mut requests: impl Iterator<Item = &'a Request<S>>,
) -> bool {
    requests.all(|r| r.root != core.rank && is_small(core, links, r))
}

/// As [`serves`], with messages of this rank to itself among them, which are matched in order.
#[inline(never)]
pub(super) fn serves_own<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
) -> bool {
    let (mut sends, mut recvs) = own(core, requests.clone());
    let matched = loop {
        match (sends.next(), recvs.next()) {
            (None, None) => break true,
            (Some(s), Some(r)) if (s.count, s.dtype) == (r.count, r.dtype) => {}
            _ => break false,
        }
    };
    matched && requests.clone().all(|r| is_small(core, links, r))
}

#[inline(always)]
fn is_small<S>(core: &Core, links: &mut Links, r: &Request<S>) -> bool {
    let below = direct_from(core);
    let bytes = r.count.saturating_mul(r.dtype.size());
    let at = if r.collective == Collective::Send { r.send } else { r.recv.cast_const() };
    is_local(core, r.root as u32)
        && (bytes < below || bytes < Policy::CMA_FROM && !core.same_process(r.root) && !links.exports(at, bytes))
}

/// What this rank sends to itself, and receives from itself.
fn own<'a, S: 'a, I: Iterator<Item = &'a Request<S>> + Clone>(
    core: &Core,
    requests: I,
) -> (impl Iterator<Item = &'a Request<S>> + use<'a, '_, S, I>, impl Iterator<Item = &'a Request<S>> + use<'a, '_, S, I>)
{
    let of = |kind| move |r: &&Request<S>| r.root == core.rank && r.collective == kind;
    (requests.clone().filter(of(Collective::Send)), requests.filter(of(Collective::Recv)))
}

/// Carries out what can be carried out at once, the sends first; `true` when that was all. `over` counts as it goes; it says
/// whether there is anything with this rank itself.
#[inline(always)]
pub(super) fn run<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    over: &mut Over,
) -> Result<bool> {
    let sent = send(core, links, requests.clone(), over)?;
    if !over.own {
        copy_own(core, requests.clone());
        over.own = true;
    }
    if !sent {
        return by_turns(core, links, requests, over);
    }
    for r in requests.filter(|r| r.collective == Collective::Recv && r.root != core.rank) {
        if !recv_one(core, links, r)? {
            return Ok(false);
        }
        over.recvs += 1;
    }
    Ok(true)
}

/// As [`run`] for more messages than there is room for: some are received, which lets the peers send more, then what there
/// is room for is sent.
#[inline(never)]
fn by_turns<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    over: &mut Over,
) -> Result<bool> {
    let of = |kind| requests.clone().filter(move |r| r.collective == kind && r.root != core.rank);
    let mut sends = of(Collective::Send).skip(over.sends).peekable();
    let mut recvs = of(Collective::Recv).peekable();
    loop {
        let before = (over.sends, over.recvs);
        for _ in 0..TURN {
            let Some(r) = recvs.peek() else { break };
            if !recv_one(core, links, r)? {
                break;
            }
            recvs.next();
            over.recvs += 1;
        }
        while let Some(r) = sends.peek() {
            if !send_one(core, links, r)? {
                break;
            }
            sends.next();
            over.sends += 1;
        }
        if sends.peek().is_none() && recvs.peek().is_none() {
            return Ok(true);
        }
        if (over.sends, over.recvs) == before {
            return Ok(false);
        }
    }
}

/// Whether the message had come, within some looks.
#[inline(always)]
fn recv_one<S>(core: &Core, links: &mut Links, r: &Request<S>) -> Result<bool> {
    let Some(end) = links.receiver(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
    // SAFETY: the caller's buffer is writable, and nobody else's, until its stream has done the call.
    let came = unsafe { end.recv_whole(&header(r, core.rank), r.recv, core.polls)? };
    if came {
        core.ring(r.root);
    }
    Ok(came)
}

/// Whether there was room for the message.
#[inline(always)]
fn send_one<S>(core: &Core, links: &mut Links, r: &Request<S>) -> Result<bool> {
    let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
    // SAFETY: the caller's buffer is readable until its stream has done the call.
    let went = unsafe { end.send_whole(&header(r, r.root), r.send)? };
    if went {
        core.ring(r.root);
    }
    Ok(went)
}

/// Copies what this rank sends to itself: [`serves_own`] holds.
#[inline(never)]
fn copy_own<'a, S: 'a>(core: &Core, requests: impl Iterator<Item = &'a Request<S>> + Clone) {
    let (sends, recvs) = own(core, requests);
    for (s, r) in sends.zip(recvs).filter(|(s, r)| s.send != r.recv.cast_const()) {
        // SAFETY: the buffers are the caller's, of that size, until its stream has done the calls.
        unsafe { kernels::copy(&[r.recv], s.send, s.count * s.dtype.size()) };
    }
}

/// Carries out the sends that are not yet over, as far as there is room; `true` when that was all.
#[inline(always)]
pub(super) fn send<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>>,
    over: &mut Over,
) -> Result<bool> {
    let sends = requests.filter(|r| r.collective == Collective::Send && r.root != core.rank);
    for r in sends.skip(over.sends) {
        if !send_one(core, links, r)? {
            return Ok(false);
        }
        over.sends += 1;
    }
    Ok(true)
}

/// As the other rank makes it. Sends and receives are not numbered.
fn header<S>(r: &Request<S>, receiver: usize) -> Header {
    let total = (r.count * r.dtype.size()) as u64;
    Header { signature: signature(r.dtype, r.count as u64, receiver as u32), sequence: 0, total, offset: 0, len: 0 }
}
