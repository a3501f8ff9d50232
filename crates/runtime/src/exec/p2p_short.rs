//! Sends and receives of medium size carried out by the call that makes them, whichever way their bytes go: offered, awaited
//! and received one after the other, without the lists of an exchange. What does not come within a few looks is left to the
//! exchange of the same calls.

use oxccl_sys::sync::pause_between;
use oxccl_types::{Collective, Result};

use super::at_once_direct::patience_for;
use super::links::{Links, P2P_LANE, is_local};
use super::p2p_quick::{Quick, bytes};
use crate::communicator::core::{Core, Lane};
use crate::haste;
use crate::request::Request;
use crate::transport::{Header, Ticket};

/// Most sends of a group.
const SENDS: usize = 4;
/// Most receives.
const RECVS: usize = 4;
/// Most bytes that are sent and received on average.
const MOST: usize = 512 << 10;

/// How far it got.
#[derive(Default)]
pub(super) struct Begun {
    /// The sends that were accepted wholly: the first ones.
    pub(super) sends: usize,
    /// The ticket of each.
    pub(super) tickets: [Ticket; SENDS],
    /// Of the next send, the bytes that were accepted and their ticket.
    pub(super) part: Option<(usize, Ticket)>,
    /// The receives that are complete: the first ones.
    pub(super) recvs: usize,
    /// Bytes of the next one that have come.
    pub(super) received: usize,
}

/// Whether all of `requests` are messages between ranks that share memory and have cores of their own, not too many and
/// not too long.
#[inline]
pub(super) fn serves<'a, S: 'a>(core: &Core, requests: impl Iterator<Item = &'a Request<S>>) -> bool {
    let (mut sends, mut recvs, mut all) = (0, 0, 0_usize);
    for r in requests {
        if !is_local(core, r.root as u32) || r.root == core.rank {
            return false;
        }
        all = all.saturating_add(bytes(r));
        match r.collective {
            Collective::Send => sends += 1,
            _ => recvs += 1,
        }
    }
    !core.crowded && sends <= SENDS && recvs <= RECVS && all <= 2 * MOST
}

/// Carries out what can be carried out at once; `true` when that was all. `begun` says how far it got.
///
/// # Errors
/// Those of the connections.
#[inline]
pub(super) fn run<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    requests: impl Iterator<Item = &'a Request<S>> + Clone,
    begun: &mut Begun,
) -> Result<bool> {
    // Receiving may read straight from the sender's memory.
    let Some(_borrowed) = core.borrow_memory(Lane::P2p) else { return Ok(false) };
    // As long as the peer may take to copy its part.
    let copied = requests.clone().map(|r| bytes(r) as u64).sum::<u64>() / 2;
    let patience = haste::looks(patience_for(core, copied));
    let sends = requests.clone().filter(|r| r.collective == Collective::Send);
    let mut recvs = requests.filter(|r| r.collective == Collective::Recv).peekable();
    let mut polls = 0;
    loop {
        // What is longer than there is room for goes on whenever something has come.
        let sent = offer(core, links, sends.clone(), begun)?;
        let came = match recvs.peek() {
            None if sent => break,
            None => Came::Nothing,
            Some(r) => receive(core, links, r, &mut begun.received)?,
        };
        match came {
            Came::Other => return Ok(false),
            Came::Part => {}
            Came::All => {
                recvs.next();
                begun.received = 0;
                begun.recvs += 1;
            }
            Came::Nothing => {
                polls += 1;
                if polls >= patience {
                    haste::in_vain(polls);
                    return Ok(false);
                }
                pause_between(polls);
                continue;
            }
        }
        haste::came(polls);
        polls = 0;
    }
    for (i, r) in sends.enumerate() {
        let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        let mut polls = 0;
        while !end.poll_done(begun.tickets[i])? {
            polls += 1;
            if polls >= patience {
                haste::in_vain(polls);
                return Ok(false);
            }
            pause_between(polls);
        }
        haste::came(polls);
    }
    haste::end();
    Ok(true)
}

/// Offers what was not yet accepted, in order; whether all was.
#[inline]
fn offer<'a, S: 'a>(
    core: &Core,
    links: &mut Links,
    sends: impl Iterator<Item = &'a Request<S>>,
    begun: &mut Begun,
) -> Result<bool> {
    for r in sends.skip(begun.sends) {
        let Some(end) = links.sender(core, r.root as u32, P2P_LANE)? else { return Ok(false) };
        let mut room = Header::default();
        let header = r.header(core, &mut room);
        let all = bytes(r);
        loop {
            let done = begun.part.map_or(0, |(done, _)| done);
            let header = Header { offset: done as u64, ..*header };
            // SAFETY: the caller's buffer stays readable and unchanged until its stream has done the call, which is done
            // only after `poll_done`, here or in the exchange that takes over.
            let accepted = unsafe { end.poll_send(&header, r.send.wrapping_add(done), all - done)? };
            let Some((n, ticket)) = accepted else { return Ok(false) };
            core.ring(r.root);
            if done + n == all {
                (begun.tickets[begun.sends], begun.part) = (ticket, None);
                begun.sends += 1;
                break;
            }
            begun.part = Some((done + n, ticket));
        }
    }
    Ok(true)
}

/// What came of a message.
enum Came {
    Nothing,
    Part,
    /// Its rest.
    All,
    /// Another message, of which the exchange makes the error, or there is no connection yet.
    Other,
}

/// Receives what has come next of one message, of which `received` bytes came before.
#[inline]
fn receive<S>(core: &Core, links: &mut Links, r: &Request<S>, received: &mut usize) -> Result<Came> {
    let Some(end) = links.receiver(core, r.root as u32, P2P_LANE)? else { return Ok(Came::Other) };
    let mut room = Header::default();
    let expected = r.header(core, &mut room);
    let Some(came) = end.poll_header()? else { return Ok(Came::Nothing) };
    if (came.signature, came.total, came.sequence) != (expected.signature, expected.total, 0) {
        return Ok(Came::Other);
    }
    // SAFETY: the caller's buffer is writable, and nobody else's, until its stream has done the call; what has come of the
    // message lies in front.
    let got = unsafe { end.poll_recv_into(r.recv.wrapping_add(*received), bytes(r) - *received)? };
    let Some(got) = got else { return Ok(Came::Other) };
    core.ring(r.root);
    *received += got.len as usize;
    Ok(if *received == bytes(r) { Came::All } else { Came::Part })
}
