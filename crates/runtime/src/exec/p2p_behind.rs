//! What an exchange takes on of later calls where ranks share cores, so that these need neither a task nor a turn of their own:
//! the receives of small messages whose sends are over, and both of all others.
//!
//! What is taken on keeps the order of the calls: the messages of a connection in the order of the sends, and receives of a
//! call after all of the call before. Two more things are looked at before a call is taken on:
//!
//! * what it sends is not what a call before it has still to receive, since it is read from now on;
//! * what it receives is not what a call before it has lent, since it may come before a slower peer has read that.
//!
//! What a rank sends to itself is not taken on, but copied at once.

use std::ops::Range;

use oxccl_types::{Collective, Result};

use super::call::meet;
use super::links::{BEHIND, Links};
use super::p2p::{Exchange, Transfer};
use crate::communicator::core::Core;
use crate::request::Request;

/// Of the last call of an exchange, how many sends and receives there are, the last ones of each, and whether none of them
/// writes what another reads. Nothing of the first call, which was not taken on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    sends: usize,
    recvs: usize,
    apart: bool,
}

/// The memory of a send or receive on this rank.
pub(super) fn range<S>(r: &Request<S>) -> Range<usize> {
    let at = if r.collective == Collective::Send { r.send.addr() } else { r.recv.addr() };
    at..at + r.count * r.dtype.size()
}

/// Whether none of `requests` writes what another reads.
fn are_apart<'a, S: 'a>(requests: impl Iterator<Item = &'a Request<S>> + Clone) -> bool {
    let of = |kind| requests.clone().filter(move |r| r.collective == kind);
    of(Collective::Send).all(|s| !of(Collective::Recv).any(|r| meet(&range(s), &range(r))))
}

impl Exchange {
    /// Takes the receives of a later call on, but for those from this rank itself.
    pub(super) fn receive_behind<'a, S: 'a>(&mut self, core: &Core, requests: impl Iterator<Item = &'a Request<S>>) {
        // What comes next was not compared with this call.
        self.last = Last::default();
        self.trim();
        let before = self.recvs.len();
        self.calls = self.calls.wrapping_add(1);
        let receives = |r: &&Request<S>| r.collective == Collective::Recv && r.root != core.rank;
        requests.filter(receives).for_each(|r| self.add(core, r));
        self.recvs[before..].iter_mut().for_each(|t| t.call = self.calls);
    }

    /// Forgets what is over, now and then; not the last call.
    fn trim(&mut self) {
        if self.over == self.recvs.len() || self.over >= BEHIND {
            let over = self.over.min(self.recvs.len() - self.last.recvs);
            self.recvs.drain(..over);
            self.over -= over;
        }
        if self.sent == self.sends.len() || self.sent >= BEHIND {
            let sent = self.sent.min(self.sends.len() - self.last.sends);
            self.sends.drain(..sent);
            self.sent -= sent;
        }
    }

    /// How many receives are not known to be complete.
    pub(super) fn receives(&self) -> usize {
        self.recvs.len() - self.over
    }

    /// Whether there is room for so many more messages.
    pub(super) fn has_room(&self, sends: usize, recvs: usize) -> bool {
        self.sends.len() - self.sent + sends <= BEHIND && self.receives() + recvs <= BEHIND
    }

    /// Whether all sends of calls that were taken on were accepted.
    pub(super) fn is_last_offered(&self) -> bool {
        self.sends[self.sends.len() - self.last.sends..].iter().all(Transfer::is_offered)
    }

    /// Whether `requests` are the last call that was taken on, made again: of whose messages all holds that was found of that
    /// call, and which do not touch what it does.
    pub(super) fn is_again<'a, S: 'a>(&self, mut requests: impl Iterator<Item = &'a Request<S>>) -> bool {
        let Last { sends, recvs, apart } = self.last;
        let mut sends = self.sends[self.sends.len() - sends..].iter();
        let mut recvs = self.recvs[self.recvs.len() - recvs..].iter();
        let again = requests.all(|r| {
            let of = if r.collective == Collective::Send { &mut sends } else { &mut recvs };
            of.next().is_some_and(|t| t.peer as usize == r.root && t.range() == range(r))
        });
        again && apart && sends.len() + recvs.len() == 0
    }

    /// Takes a later call on, whose messages are all with other ranks: `again` if it is the last one made again. It sends what can be
    /// sent.
    ///
    /// # Errors
    /// Those of the connections, which are met again by the next step.
    pub(super) fn take_on<'a, S: 'a>(
        &mut self,
        core: &Core,
        links: &mut Links,
        requests: impl Iterator<Item = &'a Request<S>> + Clone,
        again: bool,
    ) -> Result<()> {
        self.trim();
        let before = (self.sends.len(), self.recvs.len());
        self.calls = self.calls.wrapping_add(1);
        requests.clone().for_each(|r| self.add(core, r));
        self.recvs[before.1..].iter_mut().for_each(|t| t.call = self.calls);
        self.judge_sends(core, before.0, before.1);
        let (sends, recvs) = (self.sends.len() - before.0, self.recvs.len() - before.1);
        self.last = Last { sends, recvs, apart: again || are_apart(requests) };
        self.offer_from(before.0, core, links)
    }
}
