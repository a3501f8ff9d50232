//! The messages of a thread's groups that came twice: the next group that makes them again is recorded by taking over its
//! buffers, with nothing to be counted, checked or listed anew.
//!
//! They keep no communicator alive between groups. A call that differs ends the matter: what came so far is recorded like
//! any other group's calls, and nothing stands until the calls have come twice again.

use std::sync::{Arc, Weak};

use oxccl_types::{Error, Result};

use super::recorded::{Names, Run};
use super::{is_p2p, together};
use crate::communicator::Communicator;
use crate::device::Stream;
use crate::exec::at_once;
use crate::exec::p2p_quick::{self, Message};
use crate::log;
use crate::request::{Request, Shape};

/// Calls that are remembered at most.
const MOST: usize = 32;

/// Groups that are remembered: those whose first calls differ.
const GROUPS: usize = 8;

/// Messages of several groups, by their first call.
pub(super) struct Table {
    places: [Place; GROUPS],
    /// The place of the messages that the open group makes again; only with [`Standing::is_open`].
    open: usize,
}

#[derive(Default)]
struct Place {
    standing: Option<Box<Standing>>,
    /// What tells the messages that came last from others.
    last: u64,
}

impl Default for Table {
    fn default() -> Table {
        Table::EMPTY
    }
}

impl Table {
    pub(super) const EMPTY: Table = Table { places: [const { Place { standing: None, last: 0 } }; GROUPS], open: 0 };

    #[inline]
    fn place_of(names: Names, first: &Shape) -> usize {
        let names = (names.communicator ^ names.stream.rotate_left(32)) as u64;
        ((first.mix() ^ names.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 24) as usize % GROUPS
    }

    /// Records a call of the open group, if it is the next one of messages that stand.
    #[inline(always)]
    pub(super) fn take(&mut self, names: Names, shape: &Shape, buffer: *mut u8) -> bool {
        if self.open().is_none() {
            self.open = Table::place_of(names, shape);
        }
        let standing = &mut self.places[self.open].standing;
        standing.as_mut().is_some_and(|s| s.take(names, shape, buffer))
    }

    /// The messages that the open group makes again.
    #[inline]
    pub(super) fn open(&self) -> Option<&Standing> {
        self.places[self.open].standing.as_deref().filter(|s| s.is_open())
    }

    /// Those, taken out; they come back by [`close`](Self::close) if they stay.
    #[inline]
    pub(super) fn take_open(&mut self) -> Option<Box<Standing>> {
        self.open()?;
        self.places[self.open].standing.take()
    }

    /// The open group made all of `standing` again, and is over.
    #[inline]
    pub(super) fn close(&mut self, standing: Box<Standing>) {
        let place = standing.place;
        self.places[place].standing = Some(standing);
    }

    /// The calls of `run` were all of a group.
    pub(super) fn remember(&mut self, run: &Run) {
        let Some((place, mark)) = mark(run) else { return };
        let known = &mut self.places[place];
        if std::mem::replace(&mut known.last, mark) == mark {
            known.standing = Standing::new(run, place);
        }
    }
}

/// The place of the calls of `run`, and what tells them from others; `None` where they cannot stand.
fn mark(run: &Run) -> Option<(usize, u64)> {
    let (names, requests) = (run.names(), &run.calls.requests);
    if names == Names::NONE || !(1..=MOST).contains(&requests.len()) || !requests.iter().all(is_p2p) {
        return None;
    }
    let place = Table::place_of(names, &Shape::of(&requests[0])?);
    let mix = |sum: u64, word: u64| (sum.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = mix(mix(1, names.communicator as u64), names.stream as u64);
    let sum = requests.iter().try_fold(sum, |sum, r| Some(mix(sum, Shape::of(r)?.mix())))?;
    Some((place, sum))
}

/// Messages of one communicator on one stream.
pub(super) struct Standing {
    place: usize,
    names: Names,
    /// Its address is the communicator's name, which is nobody else's as long as this is here.
    comm: Weak<Communicator>,
    stream: Stream,
    calls: Vec<(Shape, Message)>,
    /// All are small messages between ranks that share memory.
    small: bool,
    /// How many of the calls the open group has made.
    came: usize,
}

impl Standing {
    /// The calls of `run`, if they are messages that a later group can make again.
    fn new(run: &Run, place: usize) -> Option<Box<Standing>> {
        let (core, requests) = (run.comm.core().ok()?, &run.calls.requests);
        let message = |r: &Request<()>| Some((Shape::of(r)?, Message::new(core, r.clone())));
        let calls = requests.iter().map(message).collect::<Option<_>>()?;
        let small = core.whole && requests.iter().all(|r| p2p_quick::is_small(core, r));
        let (names, comm, stream) = (run.names(), Arc::downgrade(&run.comm), run.stream.clone());
        Some(Box::new(Standing { place, names, comm, stream, calls, small, came: 0 }))
    }

    /// Records a call of the open group, if it is the next one.
    #[inline(always)]
    fn take(&mut self, names: Names, shape: &Shape, buffer: *mut u8) -> bool {
        let Some((next, message)) = self.calls.get_mut(self.came) else { return false };
        if self.names != names || next != shape || buffer.is_null() {
            return false;
        }
        // Each is of one kind, and only one of the two counts.
        (message.request.send, message.request.recv) = (buffer, buffer);
        self.came += 1;
        true
    }

    /// Whether the open group has made calls of it.
    fn is_open(&self) -> bool {
        self.came > 0
    }

    /// Whether the open group has made all calls of it.
    pub(super) fn is_whole(&self) -> bool {
        self.came == self.calls.len()
    }

    /// How the caller names communicator and stream.
    #[inline]
    pub(super) fn names(&self) -> Names {
        self.names
    }

    /// The communicator of the calls, unless it has ended and nobody holds it.
    pub(super) fn communicator(&self) -> Option<Arc<Communicator>> {
        self.comm.upgrade()
    }

    /// Carries out or begins all calls, which are on `comm`; `false`: nothing was done.
    ///
    /// # Errors
    /// As for any group of messages.
    #[inline]
    pub(super) fn launch(&mut self, comm: &Communicator) -> Result<bool> {
        check(comm)?;
        let (core, messages) = (comm.core()?, self.calls.iter().map(|(_, message)| message));
        let done = together::may_go(core, &self.stream)?
            && match self.small {
                true => at_once::exchange_again(core, messages, &self.stream).inspect_err(|e| log::warn(&e.text))?,
                false => together::messages(core, messages.map(|m| &m.request), &self.stream)?,
            };
        if done {
            self.came = 0;
        }
        Ok(done)
    }

    /// Gives the calls that came to `record`, one by one.
    ///
    /// # Errors
    /// When the communicator is gone or takes no calls any more.
    pub(super) fn leave(mut self, mut record: impl FnMut(&Arc<Communicator>, Request<&Stream>)) -> Result<()> {
        let comm = self.communicator().ok_or_else(|| {
            Error::argument("the communicator was destroyed within the group; destroy it after ncclGroupEnd")
        })?;
        check(&comm)?;
        self.calls.drain(..self.came).for_each(|(_, m)| record(&comm, m.request.on(&self.stream)));
        Ok(())
    }
}

/// That the calls, which were recorded without a look at their communicator, can be made on it.
#[inline]
fn check(comm: &Communicator) -> Result<()> {
    if comm.is_usable() { Ok(()) } else { comm.check_usable("ncclGroupEnd").inspect_err(|e| log::warn(&e.text)) }
}
