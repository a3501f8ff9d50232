//! How the sends and receives of an exchange go on: each step offers what there is room for, in order per peer, and takes what has come.

use std::ops::Range;

use oxccl_types::{Error, Result};

use super::call::describe;
use super::links::{Links, is_local};
use super::p2p::{Exchange, STEP, Transfer};
use crate::communicator::core::Core;
use crate::transport::Header;

impl Exchange {
    pub(super) fn step_sends(&mut self, core: &Core, links: &mut Links) -> Result<bool> {
        if self.sent == self.sends.len() {
            return Ok(false);
        }
        // Some peer gets several.
        let several = self.sends.len() - self.sent >= core.ranks;
        links.more(several);
        let progress = self.offer_sends(core, links, several);
        if several {
            links.no_more(self.lane)?;
        }
        self.sent += self.sends[self.sent..].iter().take_while(|t| t.complete).count();
        progress
    }

    /// `several`: small ones over a network wait for each other until all was looked at.
    fn offer_sends(&mut self, core: &Core, links: &mut Links, several: bool) -> Result<bool> {
        let mut progress = false;
        let gathers = links.gathers();
        self.passed.empty(core.ranks);
        self.waits.empty(core.ranks);
        for t in &mut self.sends[self.sent..] {
            // In order per peer: an earlier message that is not wholly accepted goes first, and who has not taken a message has not
            // taken the next one.
            let accepted = t.is_offered();
            if t.complete || if accepted { self.waits.has(t.peer) } else { self.passed.has(t.peer) } {
                continue;
            }
            let end = links.sender(core, t.peer, self.lane)?;
            if let Some(end) = end {
                progress |= t.offer(core, end, self.sequence)?;
                // What waits to go out together with more is not done.
                let held = gathers || several && !accepted && !is_local(core, t.peer);
                if t.is_offered() && !held && !self.waits.has(t.peer) {
                    t.complete = end.poll_done(t.ticket)?;
                    progress |= t.complete;
                }
            }
            if !t.is_offered() {
                self.passed.put(t.peer);
            }
            if !t.complete {
                self.waits.put(t.peer);
            }
            if self.passed.all() {
                break;
            }
        }
        Ok(progress)
    }

    /// Sends what can be sent of the sends from that one on; all before them were accepted.
    pub(super) fn offer_from(&mut self, first: usize, core: &Core, links: &mut Links) -> Result<()> {
        self.passed.empty(core.ranks);
        for t in &mut self.sends[first..] {
            if self.passed.has(t.peer) {
                continue;
            }
            if let Some(end) = links.sender(core, t.peer, self.lane)? {
                t.offer(core, end, self.sequence)?;
            }
            if !t.is_offered() {
                self.passed.put(t.peer);
            }
        }
        Ok(())
    }

    pub(super) fn step_recvs(&mut self, core: &Core, links: &mut Links, budget: &mut u64) -> Result<bool> {
        let mut progress = false;
        while let Some(first) = self.recvs.get(self.over) {
            let call = first.call;
            let alone = self.recvs.last().is_some_and(|t| t.call == call);
            let next = if alone { None } else { self.recvs[self.over..].iter().position(|t| t.call != call) };
            let end = next.map_or(self.recvs.len(), |n| self.over + n);
            progress |= self.step_recvs_of(self.over..end, core, links, budget)?;
            self.over += self.recvs[self.over..end].iter().take_while(|t| t.complete).count();
            if self.over < end {
                break;
            }
        }
        Ok(progress)
    }

    /// Those of one call.
    fn step_recvs_of(&mut self, range: Range<usize>, core: &Core, links: &mut Links, budget: &mut u64) -> Result<bool> {
        let mut progress = false;
        self.passed.empty(core.ranks);
        for t in &mut self.recvs[range] {
            if self.passed.all() {
                break;
            }
            if t.complete || self.passed.has(t.peer) {
                continue;
            }
            // Also when nothing more is to be received in this step: a connection that is being opened goes on.
            let Some(end) = links.receiver(core, t.peer, self.lane)? else {
                self.passed.put(t.peer);
                continue;
            };
            while !t.complete && *budget > 0 {
                let Some(header) = end.poll_header()? else { break };
                if header.sequence != self.sequence && self.sequence > 0 && !core.whole {
                    core.found_strange(self.sequence, t.peer, &header);
                    break;
                }
                if header.signature != t.signature || header.total != t.bytes || header.sequence != self.sequence {
                    let error = mismatch(core, t, &header);
                    end.refuse(&error.text);
                    core.spread(&error);
                    core.ring(t.peer as usize);
                    return Err(error);
                }
                let room = (t.bytes - t.done).min(STEP) as usize;
                // SAFETY: `room` bytes of the caller's buffer from `done` on, which nobody else uses.
                let Some(got) = (unsafe { end.poll_recv_into(t.at.wrapping_add(t.done as usize), room)? }) else {
                    break;
                };
                t.done += got.len;
                t.complete = t.done == t.bytes;
                *budget = budget.saturating_sub(got.len.max(1));
                progress = true;
                core.ring(t.peer as usize);
            }
            if !t.complete {
                self.passed.put(t.peer);
            }
        }
        Ok(progress)
    }
}

#[cold]
fn mismatch(core: &Core, t: &Transfer, h: &Header) -> Error {
    Error::usage(format!(
        "rank {} receives {} from rank {}, which sends {} ({} bytes against {}) in communicator {:#x}; count and type of \
         a send and its receive must be equal",
        core.rank,
        describe(t.signature),
        t.peer,
        describe(h.signature),
        t.bytes,
        h.total,
        core.hash
    ))
}
