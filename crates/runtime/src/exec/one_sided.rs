//! One-sided calls: puts into windows of peers, signals, and waiting for signals.
//!
//! A put to a rank that shares memory is one copy straight into the peer's part of the window and then the signal's
//! counter. To a rank elsewhere the bytes go over a connection of its own (`transport::put`); the service thread there
//! writes them. The target makes no call in either case. The puts of a task go in order, its waits beside them.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use oxccl_kernels as kernels;
use oxccl_sys::pacing;
use oxccl_types::{Error, Result};

use super::operation::{Course, Operation};
use crate::communicator::Window;
use crate::communicator::core::{Blocked, Core, Lane};
use crate::communicator::hub::SIGNALS;
use crate::communicator::window::PUTS;
use crate::device::{Step, Stream, Task, abandoned};
use crate::transport::put::{Frame, PutSender};

/// Names a signal of a rank, per peer that raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SignalId {
    /// Below the number of contexts of the communicator.
    pub context: usize,
    /// Below [`Communicator::signals_per_context`](crate::Communicator::signals_per_context).
    pub index: usize,
}

impl SignalId {
    fn word(self) -> usize {
        self.context * SIGNALS + self.index
    }
}

/// What a one-sided call does. Pointers are the caller's: they stay valid until the stream has done the work.
#[derive(Clone, Debug)]
pub enum OneSidedCall {
    /// Writes `bytes` bytes from `from` at `offset` of the peer's part of the window, then raises the signal.
    Put {
        /// Where to.
        window: Arc<Window>,
        /// Bytes from the begin of the peer's part.
        offset: usize,
        /// Where from.
        from: *const u8,
        /// How many.
        bytes: usize,
        /// The rank that gets them.
        peer: usize,
        /// Raised at the peer when it can see the bytes.
        signal: Option<SignalId>,
    },
    /// Raises a signal at a peer, after the puts before it.
    Signal {
        /// The rank that gets it.
        peer: usize,
        /// Which.
        signal: SignalId,
    },
    /// Waits until each peer has raised its signal so many times more than earlier waits used up.
    Wait(Vec<(usize, SignalId, u64)>),
}

impl OneSidedCall {
    /// The name for texts.
    pub fn name(&self) -> &'static str {
        match self {
            OneSidedCall::Put { .. } => "PutSignal",
            OneSidedCall::Signal { .. } => "Signal",
            OneSidedCall::Wait(_) => "WaitSignal",
        }
    }

    /// Whether everything that it names exists on `core`, which has so many contexts.
    pub(crate) fn check(&self, core: &Core, contexts: usize, known: impl Fn(&Window) -> bool) -> Result<()> {
        let name = self.name();
        let refuse = |text: String| Err(Error::argument(format!("{name} : {text}")));
        let check_peer = |peer: usize, signal: Option<SignalId>| {
            if peer >= core.ranks {
                return refuse(format!("invalid peer {peer} (peer should be in the 0..{} range)", core.ranks));
            }
            match signal {
                Some(s) if s.context >= contexts => refuse(format!(
                    "context {} does not exist; the communicator has {contexts} (numRmaCtx, NCCL_NUM_RMA_CTX)",
                    s.context
                )),
                Some(s) if s.index >= SIGNALS => {
                    refuse(format!("signal {} does not exist; a context has {SIGNALS}", s.index))
                }
                _ => Ok(()),
            }
        };
        match self {
            OneSidedCall::Signal { peer, signal } => check_peer(*peer, Some(*signal)),
            OneSidedCall::Wait(list) => {
                list.iter().try_for_each(|(peer, s, _)| check_peer(*peer, Some(*s)))?;
                if let Some((peer, ..)) = list.iter().find(|(.., count)| *count == 0) {
                    return refuse(format!("invalid count 0 of signals of rank {peer}: it must be at least 1"));
                }
                match list.iter().try_fold(0_u64, |sum, (.., count)| sum.checked_add(*count)) {
                    Some(_) => Ok(()),
                    None => refuse("the counts of signals add up to more than 2^64 - 1".into()),
                }
            }
            OneSidedCall::Put { window, offset, from, bytes, peer, signal } => {
                check_peer(*peer, *signal)?;
                if !known(window) {
                    return refuse("the window belongs to another communicator, or was deregistered".into());
                }
                let size = window.size_of(*peer);
                if offset.checked_add(*bytes).is_none_or(|end| end as u64 > size) {
                    return refuse(format!(
                        "{bytes} bytes at offset {offset} do not lie in the window, of which rank {peer} has {size} bytes"
                    ));
                }
                if from.is_null() && *bytes > 0 {
                    return refuse(format!("localbuff argument is NULL but {bytes} bytes are put"));
                }
                Ok(())
            }
        }
    }
}

/// A one-sided call and the stream that orders it.
#[derive(Clone, Debug)]
pub struct OneSided {
    /// What.
    pub call: OneSidedCall,
    /// When.
    pub stream: Stream,
}

// SAFETY: as for `Request`: whoever submits it promises that the memory may be used from whichever thread runs the
// stream.
unsafe impl Send for OneSided {}

/// A put or a signal under way.
struct Move {
    peer: usize,
    frame: Frame,
    from: *const u8,
    /// Keeps the parts of the peers mapped.
    window: Option<Arc<Window>>,
    done: usize,
}

/// A counter that has to reach a value.
struct Awaited {
    peer: usize,
    word: usize,
    target: u64,
}

/// The task of the one-sided calls of one communicator that start together.
pub(crate) struct OneSidedTask {
    course: Course,
    /// Names the task at the connections.
    owner: u64,
    batch: u64,
    moves: VecDeque<Move>,
    waits: Vec<Awaited>,
    fresh: bool,
}

// SAFETY: as for `OneSided`.
unsafe impl Send for OneSidedTask {}

/// Bytes that one step copies at most.
const STEP: usize = 1 << 20;
/// Tasks of at most this many bytes are tried at once when they are enqueued.
const QUICK: u64 = 32 << 10;

impl OneSidedTask {
    pub(crate) fn new(core: Arc<Core>, calls: Vec<OneSidedCall>, batch: u64) -> OneSidedTask {
        let ticket = core.issue(Lane::OneSided);
        let owner = core.windows.owner();
        let mut task = OneSidedTask {
            course: Course::new(core, Lane::OneSided, ticket),
            owner,
            batch,
            moves: VecDeque::new(),
            waits: Vec::new(),
            fresh: true,
        };
        calls.into_iter().for_each(|call| task.add(call));
        task
    }

    fn add(&mut self, call: OneSidedCall) {
        match call {
            OneSidedCall::Put { window, offset, from, bytes, peer, signal } => {
                let signal = signal.map(|s| s.word() as u64);
                let frame = Frame { window: window.id, offset: offset as u64, bytes: bytes as u64, signal };
                self.moves.push_back(Move { peer, frame, from, window: Some(window), done: 0 });
            }
            OneSidedCall::Signal { peer, signal } => {
                let frame = Frame { window: 0, offset: 0, bytes: 0, signal: Some(signal.word() as u64) };
                self.moves.push_back(Move { peer, frame, from: std::ptr::null(), window: None, done: 0 });
            }
            OneSidedCall::Wait(list) => {
                for (peer, signal, count) in list {
                    let word = signal.word();
                    let target = self.course.core.windows.expect(peer, word, count);
                    self.waits.push(Awaited { peer, word, target });
                }
            }
        }
    }

    /// Moves what can be moved of the first puts; whether anything did.
    fn step_moves(&mut self) -> Result<bool> {
        let mut budget = STEP;
        let mut moved = false;
        while let Some(first) = self.moves.front_mut() {
            let local = self.course.core.member_of[first.peer] != usize::MAX;
            let (done, some) = match local {
                true => first.copy(&self.course.core, &mut budget)?,
                false => first.send(&self.course.core, self.owner)?,
            };
            moved |= some;
            if !done {
                break;
            }
            self.moves.pop_front();
            if budget == 0 {
                break;
            }
        }
        Ok(moved)
    }

    fn sends(&self) -> bool {
        self.moves.front().is_some_and(|m| self.course.core.member_of[m.peer] == usize::MAX)
    }
}

impl Operation for OneSidedTask {
    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn advance(&mut self) -> Result<Step> {
        self.course.core.check()?;
        let mut polls = if std::mem::take(&mut self.fresh) { self.course.core.polls } else { 0 };
        loop {
            let moved = self.step_moves()?;
            let core = &self.course.core;
            let before = self.waits.len();
            self.waits.retain(|w| core.signals(w.peer, w.word) < w.target);
            if self.moves.is_empty() && self.waits.is_empty() {
                return Ok(Step::Done);
            }
            if moved || self.waits.len() < before {
                return Ok(Step::Progress);
            }
            if polls == 0 {
                return Ok(Step::Blocked);
            }
            polls -= 1;
            oxccl_sys::sync::spin_loop();
        }
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn check_blocked(&self, since: &mut u64, doubt: Option<&Error>) -> Result<()> {
        let core = &self.course.core;
        core.check_operation(since, doubt, &Waiting { moves: &self.moves, waits: &self.waits, core })
    }

    fn lends(&self) -> bool {
        true
    }

    fn abandon(&mut self) {
        if let Some(end) = connections(&self.course.core).get_mut(&self.moves.front().map_or(usize::MAX, |m| m.peer)) {
            end.abandon(self.owner);
        }
    }
}

fn connections(core: &Core) -> MutexGuard<'_, std::collections::HashMap<usize, PutSender>> {
    // A connection is valid between two calls on it.
    core.windows.out.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Move {
    fn describe(&self) -> String {
        match self.frame.bytes {
            0 => format!("Signal to rank {}", self.peer),
            n => format!("PutSignal of {n} bytes to rank {}", self.peer),
        }
    }

    /// Copies into the peer's part; whether it is done, and whether it moved.
    fn copy(&mut self, core: &Core, budget: &mut usize) -> Result<(bool, bool)> {
        core.check_present(self.peer, || self.describe())?;
        let left = self.frame.bytes as usize - self.done;
        if left > 0 {
            // The reason is heard by the checks of the wait that follows.
            let Some(_borrowed) = core.borrow_window() else { return Ok((false, false)) };
            let part = self.window.as_ref().and_then(|w| w.part(self.peer));
            let part = part.ok_or_else(|| Error::internal("a put into memory that is not mapped"))?;
            let n = left.min(*budget);
            let to = part.wrapping_add(self.frame.offset as usize + self.done);
            let from = self.from.wrapping_add(self.done);
            if from != to.cast_const() {
                // SAFETY: inside the peer's part, as the call was checked, which the window keeps mapped; the source is
                // the caller's. They overlap only where a rank puts onto itself, which the caller must not do.
                unsafe { kernels::copy_part(&[to], from, n, self.frame.bytes as usize) };
            }
            self.done += n;
            *budget -= n;
            if n < left {
                return Ok((false, true));
            }
        }
        if let Some(word) = self.frame.signal {
            core.raise(self.peer, word as usize);
        }
        Ok((true, true))
    }

    /// Sends over the connection; whether it is done, and whether it moved.
    fn send(&mut self, core: &Core, owner: u64) -> Result<(bool, bool)> {
        core.check_present(self.peer, || self.describe())?;
        let mut ends = connections(core);
        let end = match ends.entry(self.peer) {
            Entry::Occupied(end) => end.into_mut(),
            Entry::Vacant(place) => match open(core, self.peer)? {
                Some(end) => place.insert(end),
                None => return Ok((false, false)),
            },
        };
        // SAFETY: the source is the caller's and stays valid until the task is done or has failed.
        unsafe { end.poll_send(owner, &self.frame, self.from) }
    }
}

/// A connection to `peer`; `None` while it has not answered yet.
fn open(core: &Core, peer: usize) -> Result<Option<PutSender>> {
    let Some(stream) = core.call_for_stream(peer as u32, PUTS)? else { return Ok(None) };
    // A hint.
    let _ = pacing::settle(&stream, core.on_one_machine(peer));
    let end = PutSender::new(stream, core.peer_of(peer))?;
    core.wake_by(end.stream());
    Ok(Some(end))
}

/// A blocked task, as the reasons for giving up see it.
struct Waiting<'a> {
    moves: &'a VecDeque<Move>,
    waits: &'a [Awaited],
    core: &'a Core,
}

impl Blocked for Waiting<'_> {
    fn describe(&self) -> String {
        let wait = |w: &Awaited| {
            let (context, index) = (w.word / SIGNALS, w.word % SIGNALS);
            let left = w.target.saturating_sub(self.core.signals(w.peer, w.word));
            format!("WaitSignal was waiting for {left} signal(s) {index} in context {context} from rank {}", w.peer)
        };
        let moves = self.moves.front().map(|m| format!("{} was under way", m.describe()));
        moves.into_iter().chain(self.waits.iter().map(wait)).collect::<Vec<_>>().join(", and ")
    }

    fn needs(&self, rank: usize) -> bool {
        self.moves.front().is_some_and(|m| m.peer == rank) || self.waits.iter().any(|w| w.peer == rank)
    }
}

impl Drop for OneSidedTask {
    fn drop(&mut self) {
        if !self.course.over {
            self.fail(&abandoned("a one-sided call"));
        }
    }
}

impl Task for OneSidedTask {
    fn step(&mut self) -> Step {
        self.step_caught()
    }

    fn bell(&self) -> Option<oxccl_sys::Doorbell> {
        // Signals from elsewhere ring as well.
        (!self.sends()).then(|| self.course.core.kept_bell())
    }

    fn park(&self, timeout: Duration) {
        self.course.core.park(timeout);
    }

    fn batch(&self) -> u64 {
        self.batch
    }

    fn is_quick(&self) -> bool {
        self.batch == 0 && self.moves.iter().map(|m| m.frame.bytes).fold(0, u64::saturating_add) <= QUICK
    }

    fn crowded(&self) -> bool {
        self.course.core.crowded
    }
}
