//! Small sends and receives carried out by the call that makes them: each is copied as a whole, without the bookkeeping of
//! an exchange. What does not come within a few looks is left to the exchange of the same calls.

use oxccl_types::{Collective, Result};

use super::links::{Links, P2P_LANE, direct_from, is_local};
use super::p2p::signature;
use crate::communicator::core::Core;
use crate::request::Request;
use crate::transport::Header;
use crate::transport::local::Policy;

/// How many of the sends, and of the receives, are over: the first ones of each kind.
#[derive(Clone, Copy, Default)]
pub(super) struct Over {
    pub(super) sends: usize,
    pub(super) recvs: usize,
}

/// A send or receive, and the header that its message has.
pub(super) trait Quick: Copy {
    type Stream;
    fn request(&self) -> &Request<Self::Stream>;
    /// As the other rank makes it, perhaps in `room`. Sends and receives are not numbered.
    fn header<'a>(&'a self, core: &Core, room: &'a mut Header) -> &'a Header;
}

impl<S> Quick for &Request<S> {
    type Stream = S;
    #[inline(always)]
    fn request(&self) -> &Request<S> {
        self
    }
    #[inline(always)]
    fn header<'a>(&'a self, core: &Core, room: &'a mut Header) -> &'a Header {
        let receiver = if self.collective == Collective::Send { self.root } else { core.rank };
        let total = (self.count * self.dtype.size()) as u64;
        let signature = signature(self.dtype, self.count as u64, receiver as u32);
        *room = Header { signature, sequence: 0, total, offset: 0, len: 0 };
        room
    }
}

/// A call that is made again and again, with its header.
pub(crate) struct Message {
    pub(crate) request: Request<()>,
    header: Header,
}

impl Message {
    pub(crate) fn new(core: &Core, request: Request<()>) -> Message {
        let mut header = Header::default();
        (&request).header(core, &mut header);
        Message { request, header }
    }
}

impl Quick for &Message {
    type Stream = ();
    #[inline(always)]
    fn request(&self) -> &Request<()> {
        &self.request
    }
    #[inline(always)]
    fn header<'a>(&'a self, _core: &Core, _room: &'a mut Header) -> &'a Header {
        &self.header
    }
}

/// Whether `r` is a message between ranks that share memory, so small that it is copied whatever its memory is.
pub(crate) fn is_small<S>(core: &Core, r: &Request<S>) -> bool {
    is_local(core, r.root as u32) && r.root != core.rank && r.count.saturating_mul(r.dtype.size()) < direct_from(core)
}

/// Whether all of `requests` are messages between ranks that share memory, so small that they are copied: those of memory
/// that peers cannot map may be longer, where the peer's is taken to be such memory as well.
#[inline(always)]
pub(super) fn serves<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    mut requests: impl Iterator<Item = &'a Request<S>>,
) -> bool {
    let mut private = |r: &Request<S>| {
        let bytes = r.count.saturating_mul(r.dtype.size());
        let at = if r.collective == Collective::Send { r.send } else { r.recv.cast_const() };
        let served = is_local(core, r.root as u32) && r.root != core.rank && bytes < Policy::CMA_FROM;
        served && !core.same_process(r.root) && !links.exports(at, bytes)
    };
    requests.all(|r| is_small(core, r) || private(r))
}

/// Carries out what can be carried out at once, the sends first; `true` when that was all. `over` counts as it goes.
#[inline(always)]
pub(super) fn run<Q: Quick>(
    core: &Core,
    links: &mut Links,
    calls: impl Iterator<Item = Q> + Clone,
    over: &mut Over,
) -> Result<bool> {
    if !send(core, links, calls.clone(), over)? {
        return Ok(false);
    }
    for call in calls.filter(|c| c.request().collective == Collective::Recv) {
        let r = call.request();
        let Some(end) = links.receiver(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        // SAFETY: the caller's buffer is writable, and nobody else's, until its stream has done the call.
        if !unsafe { end.recv_whole(call.header(core, &mut Header::default()), r.recv, core.polls)? } {
            return Ok(false);
        }
        core.ring(r.root);
        over.recvs += 1;
    }
    Ok(true)
}

/// Carries out the sends that are not yet over, as far as there is room; `true` when that was all.
#[inline(always)]
pub(super) fn send<Q: Quick>(
    core: &Core,
    links: &mut Links,
    calls: impl Iterator<Item = Q>,
    over: &mut Over,
) -> Result<bool> {
    for call in calls.filter(|c| c.request().collective == Collective::Send).skip(over.sends) {
        let r = call.request();
        let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        // SAFETY: the caller's buffer is readable until its stream has done the call.
        if !unsafe { end.send_whole(call.header(core, &mut Header::default()), r.send)? } {
            return Ok(false);
        }
        core.ring(r.root);
        over.sends += 1;
    }
    Ok(true)
}
