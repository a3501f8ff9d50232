//! Small sends and receives carried out by the call that makes them: each is copied as a whole, without the bookkeeping of
//! an exchange. What does not come within a few looks is left to the exchange of the same calls.
//!
//! What a rank sends to itself, as all-to-alls made of sends and receives do, is copied while the peers' messages are on
//! their way. Of more messages than a connection holds, what has come is received before more is sent.

use std::ops::Range;

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::links::{Links, P2P_LANE, cma_from, direct_from, is_local};
use super::p2p::signature;
use super::p2p_behind::range;
use crate::communicator::core::Core;
use crate::haste;
use crate::request::Request;
use crate::transport::Header;
use crate::transport::local::Policy;

/// How many of the sends, and of the receives, with other ranks are over: the first ones of each kind.
#[derive(Clone, Copy, Default)]
pub(super) struct Over {
    pub(super) sends: usize,
    pub(super) recvs: usize,
}

/// Messages that are received before more are sent: half of what a connection holds at least.
const TURN: usize = 4;

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
        *room = Header { signature, total, ..Header::default() };
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
    requests.all(|r| is_small(core, r) || is_private(core, links, r))
}

/// Whether `r` is a message of memory that peers cannot map, to a rank whose memory is taken to be such as well.
fn is_private<S>(core: &Core, links: &mut Links, r: &Request<S>) -> bool {
    let bytes = r.count.saturating_mul(r.dtype.size());
    let at = if r.collective == Collective::Send { r.send } else { r.recv.cast_const() };
    // What is longer than a slot never goes as a whole.
    let short = bytes <= core.hub.geometry().lane_slot && cma_from(core).is_none_or(|from| bytes < from);
    let served = short && is_local(core, r.root as u32) && r.root != core.rank;
    served && !core.same_process(r.root) && !links.exports(at, bytes)
}

/// As [`serves`], with small messages of this rank to itself among them, which are matched in order.
#[inline(never)]
pub(super) fn serves_own<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    mut requests: impl Iterator<Item = &'a Request<S>> + Clone,
) -> bool {
    // No route is taken by those.
    let small = |r: &Request<S>| r.count.saturating_mul(r.dtype.size()) < Policy::DIRECT_FROM;
    let served = |r: &Request<S>| match r.root == core.rank {
        true => small(r),
        false => is_small(core, r) || is_private(core, links, r),
    };
    own_match(core, requests.clone()) && requests.all(served)
}

/// Whether each message of this rank to itself has its receive.
pub(super) fn own_match<'a, S: 'a>(core: &Core, requests: impl Iterator<Item = &'a Request<S>> + Clone) -> bool {
    let own = |kind| requests.clone().filter(move |r| r.root == core.rank && r.collective == kind);
    let (mut sends, mut recvs) = (own(Collective::Send), own(Collective::Recv));
    loop {
        match (sends.next(), recvs.next()) {
            (None, None) => return true,
            (Some(s), Some(r)) if (s.count, s.dtype) == (r.count, r.dtype) => {}
            _ => return false,
        }
    }
}

/// The messages of this rank to itself, of which [each has its receive](own_match), with that.
fn own_pairs<Q: Quick>(core: &Core, calls: impl Iterator<Item = Q> + Clone) -> impl Iterator<Item = (Q, Q)> {
    let own = |kind| calls.clone().filter(move |c| c.request().root == core.rank && c.request().collective == kind);
    own(Collective::Send).zip(own(Collective::Recv))
}

/// Where this rank copies those: from, to.
pub(super) fn own<'a, S: 'a>(
    core: &Core,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    own_pairs(core, requests).map(|(s, r)| (range(s), range(r)))
}

/// Carries out what can be carried out at once, the sends first; `true` when that was all. `over` counts as it goes. `OWN`:
/// there are messages with this rank itself, which are over in any case.
#[inline(always)]
pub(super) fn run<Q: Quick, const OWN: bool>(
    core: &Core,
    links: &mut Links,
    calls: impl Iterator<Item = Q> + Clone,
    over: &mut Over,
) -> Result<bool> {
    let sent = send::<Q, OWN>(core, links, calls.clone(), over)?;
    if OWN {
        copy_own(core, calls.clone());
    }
    if !sent {
        return by_turns::<Q, OWN>(core, links, calls, over);
    }
    for call in calls.filter(|c| is_with_other::<Q, OWN>(core, c, Collective::Recv)) {
        if !recv_one(core, links, call)? {
            return Ok(false);
        }
        over.recvs += 1;
    }
    Ok(true)
}

/// As [`run`] for more messages than there is room for: some are received, which lets the peers send more, then what there
/// is room for is sent.
#[inline(never)]
fn by_turns<Q: Quick, const OWN: bool>(
    core: &Core,
    links: &mut Links,
    calls: impl Iterator<Item = Q> + Clone,
    over: &mut Over,
) -> Result<bool> {
    let of = |kind| calls.clone().filter(move |c| is_with_other::<Q, OWN>(core, c, kind));
    let mut sends = of(Collective::Send).skip(over.sends).peekable();
    let mut recvs = of(Collective::Recv).peekable();
    loop {
        let before = (over.sends, over.recvs);
        for _ in 0..TURN {
            let Some(call) = recvs.peek() else { break };
            if !recv_one(core, links, *call)? {
                break;
            }
            recvs.next();
            over.recvs += 1;
        }
        while let Some(call) = sends.peek() {
            if !send_one(core, links, *call)? {
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

#[inline(always)]
fn is_with_other<Q: Quick, const OWN: bool>(core: &Core, call: &Q, kind: Collective) -> bool {
    let r = call.request();
    r.collective == kind && !(OWN && r.root == core.rank)
}

/// Whether the message had come, within some looks.
#[inline(always)]
fn recv_one<Q: Quick>(core: &Core, links: &mut Links, call: Q) -> Result<bool> {
    let r = call.request();
    let polls = haste::looks(core.polls);
    let Some(end) = links.receiver(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
    // At first so often as no peer is late by: that it came later is to be known.
    let (mut room, least) = (Header::default(), polls.min(haste::LATE));
    let header = call.header(core, &mut room);
    // SAFETY: the caller's buffer is writable, and nobody else's, until its stream has done the call.
    let mut came = unsafe { end.recv_whole(header, r.recv, least)? };
    if !came {
        if polls > least {
            // SAFETY: as above.
            came = unsafe { end.recv_whole(header, r.recv, polls - least)? };
        }
        // Late, whether it came then or not.
        haste::in_vain(polls);
    }
    if came {
        core.ring(r.root);
    }
    Ok(came)
}

/// Whether there was room for the message.
#[inline(always)]
fn send_one<Q: Quick>(core: &Core, links: &mut Links, call: Q) -> Result<bool> {
    let r = call.request();
    let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
    // SAFETY: the caller's buffer is readable until its stream has done the call.
    let went = unsafe { end.send_whole(call.header(core, &mut Header::default()), r.send)? };
    if went {
        core.ring(r.root);
    }
    Ok(went)
}

/// Copies what this rank sends to itself: [`serves_own`] holds.
#[inline(never)]
pub(super) fn copy_own<Q: Quick>(core: &Core, calls: impl Iterator<Item = Q> + Clone) {
    for (s, r) in own_pairs(core, calls) {
        let (s, r) = (s.request(), r.request());
        if s.send != r.recv.cast_const() {
            // SAFETY: the buffers are the caller's, of that size, until its stream has done the calls.
            unsafe { kernels::copy(&[r.recv], s.send, s.count * s.dtype.size()) };
        }
    }
}

/// Carries out the sends that are not yet over, as far as there is room; `true` when that was all.
#[inline(always)]
pub(super) fn send<Q: Quick, const OWN: bool>(
    core: &Core,
    links: &mut Links,
    calls: impl Iterator<Item = Q>,
    over: &mut Over,
) -> Result<bool> {
    for call in calls.filter(|c| is_with_other::<Q, OWN>(core, c, Collective::Send)).skip(over.sends) {
        if !send_one(core, links, call)? {
            return Ok(false);
        }
        over.sends += 1;
    }
    Ok(true)
}

/// Bytes of a message.
pub(super) fn bytes<S>(r: &Request<S>) -> usize {
    r.count * r.dtype.size()
}
