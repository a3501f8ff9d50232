//! Small sends and receives carried out by the call that makes them: each is copied as a whole, without the bookkeeping of
//! an exchange. What does not come within a few looks is left to the exchange of the same calls.

use oxccl_types::{Collective, Result};

use super::links::{Links, P2P_LANE, cma_from, direct_from, is_local};
use super::p2p::signature;
use crate::communicator::core::Core;
use crate::request::Request;
use crate::transport::Header;

/// How many of the sends, and of the receives, are over: the first ones of each kind.
#[derive(Clone, Copy, Default)]
pub(super) struct Over {
    pub(super) sends: usize,
    pub(super) recvs: usize,
}

/// Whether all of `requests` are messages between ranks that share memory, so small that they are copied: those of memory
/// that peers cannot map may be longer, where the peer's is taken to be such memory as well.
#[inline(always)]
pub(super) fn serves<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    mut requests: impl Iterator<Item = &'a Request<S>>,
) -> bool {
    let below = direct_from(core);
    let mut small = |r: &Request<S>| {
        let bytes = r.count.saturating_mul(r.dtype.size());
        let at = if r.collective == Collective::Send { r.send } else { r.recv.cast_const() };
        bytes < below || bytes < cma_from(core) && !core.same_process(r.root) && !links.exports(at, bytes)
    };
    requests.all(|r| is_local(core, r.root as u32) && r.root != core.rank && small(r))
}

/// Carries out what can be carried out at once, the sends first; `true` when that was all. `over` counts as it goes.
#[inline(always)]
pub(super) fn run<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    over: &mut Over,
) -> Result<bool> {
    if !send(core, links, requests.clone(), over)? {
        return Ok(false);
    }
    for r in requests.filter(|r| r.collective == Collective::Recv) {
        let Some(end) = links.receiver(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        // SAFETY: the caller's buffer is writable, and nobody else's, until its stream has done the call.
        if !unsafe { end.recv_whole(&header(r, core.rank), r.recv, core.polls)? } {
            return Ok(false);
        }
        core.ring(r.root);
        over.recvs += 1;
    }
    Ok(true)
}

/// Carries out the sends that are not yet over, as far as there is room; `true` when that was all.
#[inline(always)]
pub(super) fn send<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>>,
    over: &mut Over,
) -> Result<bool> {
    for r in requests.filter(|r| r.collective == Collective::Send).skip(over.sends) {
        let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        // SAFETY: the caller's buffer is readable until its stream has done the call.
        if !unsafe { end.send_whole(&header(r, r.root), r.send)? } {
            return Ok(false);
        }
        core.ring(r.root);
        over.sends += 1;
    }
    Ok(true)
}

/// Bytes of a message.
pub(super) fn bytes<S>(r: &Request<S>) -> usize {
    r.count * r.dtype.size()
}

/// As the other rank makes it. Sends and receives are not numbered.
pub(super) fn header<S>(r: &Request<S>, receiver: usize) -> Header {
    let total = bytes(r) as u64;
    Header { signature: signature(r.dtype, r.count as u64, receiver as u32), sequence: 0, total, offset: 0, len: 0 }
}
