//! Communicators out of a communicator: split, shrink, grow.
//!
//! The ranks concerned meet at a new root, as for an initialisation. The lowest of them makes it; its id travels over
//! connections that only holders of the parent's key can open, from rank to rank as in a binary tree. Nothing of this
//! touches the parent's operations, so it works beside them and after they have failed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oxccl_sys::sync::{AtomicBool, Ordering};
use oxccl_sys::{Deadline, clock};
use oxccl_types::{Error, Result};

use super::core::Core;
use super::init::{self, bootstrap_config};
use super::jobs::Job;
use super::{CommConfig, Communicator, FINALIZED, GONE};
use crate::bootstrap::{self, BootstrapConfig, Part, connect_part};
use crate::config::Config;
use crate::service::io::{Limits, read_full, write_full};
use crate::service::{self, Route};
use crate::{UniqueId, group};

/// Gets the new communicator when it is ready, before the parent's state says so; `None` for a rank without colour.
pub type Done = Box<dyn FnOnce(Option<Arc<Communicator>>) + Send>;

/// Purposes of connections between ranks of the parent: the id of a meeting, and that of a grow.
const MEETING: u8 = 254;
const GROWTH: u8 = 253;
/// Kind 1, hash of the participants 8, number of the meeting 8.
const TAG: usize = 17;
/// Tells a meeting from all others of the communicator. It is taken when the call is accepted, and holds whatever becomes of the call:
/// the peers count it too.
pub(super) type Tag = [u8; TAG];
/// Where the number is.
const NUMBER: usize = 9;
/// How long a revoked communicator waits for its operations to end.
const END_OPERATIONS: Duration = Duration::from_secs(5);
/// For the end of a root of this process.
const DISMISS: Duration = Duration::from_secs(1);
/// Between looks at whether everybody is still there.
const LOOK: Duration = Duration::from_millis(20);

/// What ranks meet for; tells meetings of the same ranks apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Split = 1,
    Shrink = 2,
    Barrier = 3,
    Window = 4,
}

/// Of the id with which new ranks join: [`Communicator::grow_id`] makes it, [`Communicator::grow`] uses it.
#[derive(Default)]
pub(super) enum GrowId {
    #[default]
    None,
    /// A thread makes it.
    Making,
    Made(bootstrap::UniqueId),
}

impl GrowId {
    fn take(&mut self) -> Option<bootstrap::UniqueId> {
        match std::mem::take(self) {
            GrowId::Made(id) => Some(id),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// An id that a growth is to use; if the growth does not begin, the next one may.
struct Held {
    parent: Arc<Communicator>,
    id: bootstrap::UniqueId,
    used: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = locked(&self.parent.grow_id);
        if !self.used && matches!(*held, GrowId::None) {
            *held = GrowId::Made(self.id.clone());
        }
    }
}

/// The communicators that are being made out of one.
#[derive(Default)]
pub(super) struct Children {
    making: Mutex<Vec<(Vec<usize>, Arc<AtomicBool>)>>,
    /// Meetings so far, by kind and participants.
    meetings: Mutex<HashMap<(Kind, u64), u64>>,
    /// Ids of other meetings, of another thread or still to come, and who sent them.
    early: Mutex<Vec<(u32, Message)>>,
}

/// The tag of a meeting, then its id.
type Message = [u8; TAG + 128];

/// More ids are not kept: the oldest one is nobody's any more.
const MOST_EARLY: usize = 64;

/// The number of a meeting, of a message that begins with its tag.
fn number(message: &[u8]) -> u64 {
    message[NUMBER..TAG].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Children {
    /// Ends all that are being made.
    pub(super) fn halt(&self) {
        locked(&self.making).iter().for_each(|(_, halt)| halt.store(true, Ordering::Release));
    }

    /// Ends those that need one of `dead`.
    pub(super) fn halt_with(&self, dead: &[usize]) {
        for (participants, halt) in locked(&self.making).iter() {
            if dead.iter().any(|d| participants.contains(d)) {
                halt.store(true, Ordering::Release);
            }
        }
    }

    /// Keeps the message of another meeting than that of `tag`, unless it is of one that failed here before.
    fn keep(&self, from: u32, message: Message, tag: &Tag) {
        if number(&message) < number(tag) && message[..NUMBER] == tag[..NUMBER] {
            return;
        }
        let mut early = locked(&self.early);
        if early.len() >= MOST_EARLY {
            early.remove(0);
        }
        early.push((from, message));
    }

    /// The message of the meeting of `tag`, if it was kept.
    fn kept(&self, from: u32, tag: &Tag) -> Option<Message> {
        let mut early = locked(&self.early);
        early.retain(|(_, m)| number(m) >= number(tag) || m[..NUMBER] != tag[..NUMBER]);
        let at = early.iter().position(|(f, m)| *f == from && m[..TAG] == *tag)?;
        Some(early.remove(at).1)
    }

    /// The next meeting of the participants.
    fn tag(&self, kind: Kind, participants: &[usize]) -> Tag {
        let mut meetings = locked(&self.meetings);
        let number = meetings.entry((kind, hash(participants))).or_default();
        *number += 1;
        tag_of(kind, participants, *number)
    }
}

fn hash(participants: &[usize]) -> u64 {
    let fnv = |h: u64, rank: &usize| (h ^ *rank as u64).wrapping_mul(0x100_0000_01b3);
    participants.iter().fold(0xcbf2_9ce4_8422_2325, fnv)
}

fn tag_of(kind: Kind, participants: &[usize], number: u64) -> Tag {
    let mut tag = [0; TAG];
    tag[0] = kind as u8;
    tag[1..NUMBER].copy_from_slice(&hash(participants).to_le_bytes());
    tag[NUMBER..].copy_from_slice(&number.to_le_bytes());
    tag
}

/// An entry in [`Children`].
struct Making<'a>(&'a Children, &'a Arc<AtomicBool>);

impl<'a> Making<'a> {
    fn new(children: &'a Children, participants: &[usize], halt: &'a Arc<AtomicBool>) -> Making<'a> {
        locked(&children.making).push((participants.to_vec(), halt.clone()));
        Making(children, halt)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        locked(&self.0.making).retain(|(_, h)| !Arc::ptr_eq(h, self.1));
    }
}

/// One rank's part in a meeting of ranks of a communicator.
struct Meeting<'a> {
    core: &'a Core,
    /// Ascending, this rank among them.
    participants: &'a [usize],
    config: BootstrapConfig,
    limits: Limits<'a>,
}

impl<'a> Meeting<'a> {
    fn new(core: &'a Core, participants: &'a [usize], config: &Config, halt: &'a AtomicBool) -> Meeting<'a> {
        let config = BootstrapConfig { comm_id: None, ..bootstrap_config(config) };
        let limits = Limits { deadline: Deadline::after(config.timeout), abort: halt };
        Meeting { core, participants, config, limits }
    }

    fn index(&self) -> usize {
        // The callers checked that this rank takes part.
        self.participants.iter().position(|r| *r == self.core.rank).unwrap_or(0)
    }

    /// The id that the participants meet with.
    fn call_together(&self, tag: &Tag) -> Result<bootstrap::UniqueId> {
        // Who is gone says more than that it cannot be reached.
        self.pass_id(tag).map_err(|e| self.core.missing(self.participants).err().unwrap_or(e))
    }

    fn pass_id(&self, tag: &Tag) -> Result<bootstrap::UniqueId> {
        let index = self.index();
        let id = match index {
            0 => bootstrap::UniqueId::create(&self.config)?,
            _ => self.wait_for_id(self.participants[(index - 1) / 2], tag)?,
        };
        let message = [&tag[..], &id.to_bytes()].concat();
        for below in [2 * index + 1, 2 * index + 2] {
            let Some(rank) = self.participants.get(below) else { break };
            if let Err(e) = self.send(*rank, MEETING, &message) {
                // The others are at the root, or will be.
                bootstrap::decline(&id, index, self.participants.len(), &self.config, &e.text);
                return Err(e);
            }
        }
        Ok(id)
    }

    fn send(&self, to: usize, purpose: u8, message: &[u8]) -> Result<()> {
        let core = self.core;
        let route = Route { comm_hash: core.hash, from: core.rank as u32, to: to as u32, purpose };
        let over = || core.missing(self.participants);
        let stream = service::dial_unless(&core.peers[to].tcp, &core.key, route, &self.limits, over)?;
        write_full(&stream, message, &self.limits).map_err(|e| Error::remote(format!("rank {to} is gone: {e}")))
    }

    fn wait_for_id(&self, from: usize, tag: &Tag) -> Result<bootstrap::UniqueId> {
        let (since, children, from) = (clock::now_ns(), &self.core.children, from as u32);
        loop {
            if let Some(message) = children.kept(from, tag) {
                return read_id(&message[TAG..]);
            }
            match self.at_hand::<{ TAG + 128 }>(MEETING, |rank| rank == from)? {
                Some(message) if message[..TAG] == *tag => return read_id(&message[TAG..]),
                Some(message) => children.keep(from, message, tag),
                None => self.wait_for_more(since)?,
            }
        }
    }

    /// The id of the newest growth of which one has arrived: those before it came to nothing.
    fn wait_for_growth(&self) -> Result<bootstrap::UniqueId> {
        let since = clock::now_ns();
        let mut newest = None;
        loop {
            match self.at_hand::<128>(GROWTH, |rank| self.participants.contains(&(rank as usize)))? {
                Some(message) => newest = Some(message),
                None => match newest {
                    Some(message) => return read_id(&message),
                    None => self.wait_for_more(since)?,
                },
            }
        }
    }

    /// The first message for `purpose` that has arrived from a rank that is `wanted`.
    fn at_hand<const N: usize>(&self, purpose: u8, wanted: impl Fn(u32) -> bool) -> Result<Option<[u8; N]>> {
        let Some((from, stream)) = self.core.take_first(purpose, wanted) else { return Ok(None) };
        let mut message = [0; N];
        read_full(&stream, &mut message, &self.limits)
            .map_err(|e| Error::remote(format!("rank {from} sent no whole message: {e}")))?;
        Ok(Some(message))
    }

    /// Waits a short time for another message; `since`: when the wait began.
    fn wait_for_more(&self, since: u64) -> Result<()> {
        self.core.missing(self.participants)?;
        self.core.mend_since(since);
        self.limits.check().map_err(|e| self.nobody_came(&e))?;
        self.core.wait_stream(Limits { deadline: Deadline::after(self.limits.deadline.slice(LOOK)), ..self.limits });
        Ok(())
    }

    fn nobody_came(&self, e: &std::io::Error) -> Error {
        Error::remote(format!(
            "rank {} of {} waited for the other ranks {:?} to make a new communicator: {e}. Every rank that remains must \
             make the same call (OXCCL_INIT_TIMEOUT)",
            self.core.rank, self.core.ranks, self.participants
        ))
    }
}

/// Why a meeting ended with `e`: who is gone says more than that it was `halt`ed. What the root says names the cause, and who is
/// gone by now may have left because of it.
fn cause(core: &Core, participants: &[usize], halt: &AtomicBool, e: Error) -> Error {
    let missing = || core.missing(participants).err();
    if halt.load(Ordering::Acquire) { missing().unwrap_or(e) } else { e }
}

/// Whether `participants` can all come to a meeting, of which the wait begins now: who aborted or left before it never does, and
/// nothing else tells that. They may be heard of only once the ring is mended.
fn awaited(core: &Arc<Core>, participants: &[usize]) -> Option<bootstrap::Awaited> {
    let (core, participants, since) = (core.clone(), participants.to_vec(), clock::now_ns());
    Some(Box::new(move || {
        core.mend_since(since);
        core.missing(&participants)
    }))
}

fn read_id(bytes: &[u8]) -> Result<bootstrap::UniqueId> {
    let bytes = bytes.try_into().map_err(|_| Error::internal("an id of a wrong length"))?;
    bootstrap::UniqueId::from_bytes(bytes)
}

/// Ends the root of `id`, with which nobody will meet.
fn dismiss(id: &bootstrap::UniqueId) {
    let config = BootstrapConfig { timeout: DISMISS, ..bootstrap_config(&Config::from_env()) };
    bootstrap::dismiss(id, &config);
}

/// How the ranks of a child meet.
enum How {
    Split(Tag, Option<Part>),
    Shrink(Tag),
    /// To so many ranks, with the id if this rank has it.
    Grow(usize, Option<Held>),
}

/// A child that is to be made.
struct Child {
    parent: Arc<Communicator>,
    core: Arc<Core>,
    participants: Vec<usize>,
    how: How,
    settings: CommConfig,
    halt: Arc<AtomicBool>,
    api: &'static str,
}

impl Child {
    fn make(mut self) -> Result<Option<Arc<Communicator>>> {
        let start = clock::now_ns();
        if let How::Grow(_, Some(held)) = &mut self.how {
            held.used = true;
        }
        let _making = Making::new(&self.core.children, &self.participants, &self.halt);
        // Somebody who died before that was not seen by `halt_with`.
        let result = self.core.may_meet(&self.participants).and_then(|()| self.meet(start));
        result.map_err(|e| cause(&self.core, &self.participants, &self.halt, e))
    }

    /// Whether this rank would share: the parent's settings say so, and it was not revoked.
    fn shares(&self) -> bool {
        let settings = &self.parent.settings;
        let wanted = match self.how {
            How::Split(..) => settings.split_share,
            How::Shrink(_) => settings.shrink_share,
            How::Grow(..) => None,
        };
        wanted == Some(true) && !self.core.is_aborted()
    }

    fn meet(&self, start: u64) -> Result<Option<Arc<Communicator>>> {
        let config = init::effective(&self.settings);
        let meeting = Meeting::new(&self.core, &self.participants, &config, &self.halt);
        let whole = Some(Part { color: 0, key: 0 });
        let (id, rank, ranks, part) = match &self.how {
            How::Split(tag, part) => (meeting.call_together(tag)?, meeting.index(), self.participants.len(), *part),
            How::Shrink(tag) => (meeting.call_together(tag)?, meeting.index(), self.participants.len(), whole),
            How::Grow(ranks, Some(held)) => (held.id.clone(), self.core.rank, *ranks, whole),
            How::Grow(ranks, None) => (meeting.wait_for_growth()?, self.core.rank, *ranks, whole),
        };
        let share = self.shares();
        let params = init::params(id.clone(), rank, ranks, &config, meeting.config.clone(), share, self.halt.clone());
        let params = bootstrap::Params { awaited: awaited(&self.core, &self.participants), ..params };
        let met = connect_part(params, part).inspect_err(|e| {
            // Who did not even get to the root says so there, that it does not wait.
            bootstrap::decline(&id, rank, ranks, &meeting.config, &e.text);
        });
        let Some(boot) = met? else { return Ok(None) };
        let (rank, ranks) = (boot.rank, boot.ranks);
        let core = init::build(&self.halt, config, boot, share.then(|| self.core.family.clone()))?;
        let parent = &self.parent;
        let child = Communicator::new(rank, ranks, parent.device, self.settings.clone(), self.halt.clone());
        init::publish(&child, core, self.api, start)?;
        Ok(Some(child))
    }
}

impl Communicator {
    /// Divides the communicator: ranks that give the same colour become one, ordered by key and then by rank. All
    /// ranks call it, in the same order; who gives no colour takes part and gets none. `config`: `None` for this
    /// one's. The result goes to `done`: before this returns, at the end of the group, or later (nonblocking).
    ///
    /// # Errors
    /// `InvalidArgument` when the communicator is not ready or was finalized; its own error; `RemoteError` when a rank
    /// is gone or does not come.
    pub fn split(self: &Arc<Self>, color: Option<i32>, key: i32, config: Option<CommConfig>, done: Done) -> Result<()> {
        let all: Vec<usize> = (0..self.ranks).collect();
        self.check_parent(&all)?;
        let settings = self.child_settings(config)?;
        let part = color.map(|color| Part { color, key });
        let tag = self.core()?.children.tag(Kind::Split, &all);
        self.make_child(all, How::Split(tag, part), settings, "ncclCommSplit", done)
    }

    /// A communicator of all ranks but `exclude`, in the same order. Only those that remain call it, all with the same
    /// list. `abort`: operations under way are ended first, as by [`Communicator::revoke`], so that no help of dead
    /// ranks is needed; and an earlier nonblocking call that failed is forgotten.
    ///
    /// # Errors
    /// As [`Communicator::split`]; `InvalidArgument` when this rank is in the list.
    pub fn shrink(
        self: &Arc<Self>,
        exclude: &[usize],
        abort: bool,
        config: Option<CommConfig>,
        done: Done,
    ) -> Result<()> {
        if exclude.contains(&self.rank) {
            return Err(Error::argument(format!(
                "rank {} is in the list of the ranks to exclude; only ranks that remain call ncclCommShrink",
                self.rank
            )));
        }
        let remain: Vec<usize> = (0..self.ranks).filter(|r| !exclude.contains(r)).collect();
        if abort {
            let core = self.usable_core()?;
            core.revoke();
            core.drain(Some(Deadline::after(END_OPERATIONS)));
            // Of a revoked communicator only children are made, and one that could not be made is no obstacle to another.
            self.jobs.forgive();
        }
        self.check_parent(&remain)?;
        let settings = self.child_settings(config)?;
        let tag = self.core()?.children.tag(Kind::Shrink, &remain);
        self.make_child(remain, How::Shrink(tag), settings, "ncclCommShrink", done)
    }

    /// An id with which new ranks join when this communicator grows; to be called by one rank, once per growth.
    ///
    /// # Errors
    /// As [`Communicator::split`]; `InvalidUsage` when an id was made before and not used.
    pub fn grow_id(self: &Arc<Self>) -> Result<UniqueId> {
        let all: Vec<usize> = (0..self.ranks).collect();
        self.check_parent(&all)?;
        let core = self.core()?;
        // Not held while the others are called: an abort must not wait for that.
        let mut held = locked(&self.grow_id);
        if !matches!(*held, GrowId::None) {
            return Err(Error::usage(
                "ncclCommGetUniqueId: the id that was made before was not used by ncclCommGrow yet; only one at a time",
            ));
        }
        *held = GrowId::Making;
        drop(held);
        let made = self.make_grow_id(core, &all);
        *locked(&self.grow_id) = made.as_ref().map_or(GrowId::None, |id| GrowId::Made(id.clone()));
        if self.state.load(Ordering::Acquire) == GONE {
            // Whoever aborted may have found nothing to end yet.
            self.drop_grow_id();
        }
        made.map(UniqueId)
    }

    fn make_grow_id(&self, core: &Core, all: &[usize]) -> Result<bootstrap::UniqueId> {
        let halt = Arc::new(AtomicBool::new(false));
        let _making = Making::new(&core.children, all, &halt);
        core.may_meet(all)?;
        let meeting = Meeting::new(core, all, &Config::from_env(), &halt);
        let id = bootstrap::UniqueId::create(&meeting.config)?;
        let mut others = all.iter().filter(|rank| **rank != self.rank);
        others.try_for_each(|rank| meeting.send(*rank, GROWTH, &id.to_bytes())).inspect_err(|_| dismiss(&id))?;
        Ok(id)
    }

    /// A communicator of `ranks` ranks: those of this one keep their ranks, the others join with the id
    /// ([`Communicator::init_rank`]). `id`: on the rank that made it.
    ///
    /// # Errors
    /// As [`Communicator::split`]; `InvalidArgument` when `ranks` is not more than now, or `id` is another one.
    pub fn grow(
        self: &Arc<Self>,
        ranks: usize,
        id: Option<UniqueId>,
        config: Option<CommConfig>,
        done: Done,
    ) -> Result<()> {
        if ranks <= self.ranks {
            return Err(Error::argument(format!(
                "ncclCommGrow: {ranks} ranks are not more than the {} that the communicator has",
                self.ranks
            )));
        }
        let all: Vec<usize> = (0..self.ranks).collect();
        self.check_parent(&all)?;
        let settings = self.child_settings(config)?;
        let held = self.take_grow_id(id.as_ref())?;
        self.make_child(all, How::Grow(ranks, held), settings, "ncclCommGrow", done)
    }

    /// The id that was made here; `given`: what the caller takes for it.
    fn take_grow_id(self: &Arc<Self>, given: Option<&UniqueId>) -> Result<Option<Held>> {
        let mut held = locked(&self.grow_id);
        match (given, &*held) {
            (Some(given), GrowId::Made(made)) if given.0 == *made => {}
            (None, _) => {}
            (Some(_), _) => {
                return Err(Error::argument(
                    "ncclCommGrow: this is not the id that ncclCommGetUniqueId made on this rank; ranks of the communicator \
                     that did not make the id pass NULL",
                ));
            }
        }
        Ok(held.take().map(|id| Held { parent: self.clone(), id, used: false }))
    }

    /// Ends the operations under way, here and on the ranks that wait for this one; later ones are refused. The
    /// communicator can still be split, shrunk, grown, destroyed and aborted. Every rank that goes on calls it.
    ///
    /// # Errors
    /// `InvalidArgument` when it was revoked, finalized or destroyed before.
    pub fn revoke(self: &Arc<Self>) -> Result<()> {
        let core = self.usable_core()?.clone();
        if core.is_revoked() {
            return Err(Error::argument("the communicator was revoked before"));
        }
        core.revoke();
        let drain = move || {
            core.drain(Some(Deadline::after(END_OPERATIONS)));
            Ok(())
        };
        group::manage(Job { comm: self.clone(), halt: self.abort.clone(), run: Box::new(drain) })
    }

    /// Ends the root of an id that nobody used.
    pub(super) fn drop_grow_id(&self) {
        let made = locked(&self.grow_id).take();
        if let Some(id) = made {
            dismiss(&id);
        }
    }

    /// The next meeting without a result of all ranks.
    pub(super) fn next_barrier(&self) -> Result<Tag> {
        let all: Vec<usize> = (0..self.ranks).collect();
        Ok(self.core()?.children.tag(Kind::Barrier, &all))
    }

    /// All ranks are here: a meeting without a result.
    pub(super) fn meet(self: &Arc<Self>, tag: &Tag) -> Result<()> {
        self.agree(tag, Vec::new(), |_| Ok(()))
    }

    /// The meeting of all ranks for the window of this number.
    pub(super) fn window_meeting(&self, number: u64) -> Tag {
        let all: Vec<usize> = (0..self.ranks).collect();
        tag_of(Kind::Window, &all, number)
    }

    /// All ranks tell each other `said`, each does `work` with what all said, and all learn whether all could: the
    /// result is that of `work` on every rank, or an error on every rank.
    pub(super) fn agree<R>(
        self: &Arc<Self>,
        tag: &Tag,
        said: Vec<u8>,
        work: impl FnOnce(&[Vec<u8>]) -> Result<R>,
    ) -> Result<R> {
        let core = self.core()?;
        let all: Vec<usize> = (0..self.ranks).collect();
        let halt = Arc::new(AtomicBool::new(false));
        let _making = Making::new(&core.children, &all, &halt);
        core.may_meet(&all)?;
        let config = Config::from_env();
        let meeting = Meeting::new(core, &all, &config, &halt);
        let met = meeting.call_together(tag).and_then(|id| {
            let params = init::params(id, self.rank, self.ranks, &config, meeting.config.clone(), false, halt.clone());
            bootstrap::agree(bootstrap::Params { payload: said, awaited: awaited(core, &all), ..params }, work)
        });
        met.map_err(|e| cause(core, &all, &halt, e))
    }

    /// The core of a communicator that is ready and neither finalized nor destroyed, failed or not.
    fn usable_core(&self) -> Result<&Arc<Core>> {
        if self.jobs.running() {
            return Err(super::not_ready());
        }
        let core = self.core()?;
        if self.state.load(Ordering::Acquire) >= FINALIZED {
            return Err(Error::argument("the communicator was finalized or destroyed"));
        }
        Ok(core)
    }

    fn check_parent(&self, participants: &[usize]) -> Result<()> {
        let core = self.usable_core()?;
        match core.failure_among(participants).or_else(|| self.jobs.error()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// What a child is made with, looked at before its meeting is counted: who is refused may call again.
    fn child_settings(&self, config: Option<CommConfig>) -> Result<CommConfig> {
        let settings = config.unwrap_or_else(|| self.settings.clone()).resolved(self.ranks);
        init::check_network(settings.net_name.as_deref()).map(|()| settings)
    }

    fn make_child(
        self: &Arc<Self>,
        participants: Vec<usize>,
        how: How,
        settings: CommConfig,
        api: &'static str,
        done: Done,
    ) -> Result<()> {
        let halt = Arc::new(AtomicBool::new(false));
        let child = Child {
            parent: self.clone(),
            core: self.core()?.clone(),
            participants,
            how,
            settings,
            halt: halt.clone(),
            api,
        };
        let run = move || child.make().inspect_err(|e| crate::log::warn(&e.text)).map(done);
        group::manage(Job { comm: self.clone(), halt, run: Box::new(run) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_of_meetings_to_come_and_of_other_threads_are_kept() {
        let children = Children::default();
        let (all, two) = ([0, 1, 2], [0, 1]);
        let [first, next] = [(); 2].map(|()| children.tag(Kind::Shrink, &all));
        let other = children.tag(Kind::Window, &two);
        let message = |tag: &Tag, what: u8| {
            let mut message = [what; TAG + 128];
            message[..TAG].copy_from_slice(tag);
            message
        };
        // Who waits for the first one finds those of others.
        children.keep(0, message(&next, 2), &first);
        children.keep(0, message(&other, 3), &first);
        assert!(
            children.kept(0, &first).is_none() && children.kept(1, &next).is_none(),
            "of another meeting, or another rank"
        );
        // The first one has failed, and its id comes late.
        children.keep(0, message(&first, 1), &next);
        assert!(children.kept(0, &first).is_none());
        assert_eq!(children.kept(0, &next).map(|m| m[TAG]), Some(2));
        assert_eq!(children.kept(0, &other).map(|m| m[TAG]), Some(3));
        assert!(children.kept(0, &next).is_none() && locked(&children.early).is_empty(), "once each");
        for _ in 0..2 * MOST_EARLY {
            children.keep(0, message(&other, 4), &first);
        }
        assert_eq!(locked(&children.early).len(), MOST_EARLY);
    }
}
