//! Groups of sends and receives: all progress at once, in order per peer and direction.
//!
//! Also carries out message programs that only exchange user memory (all-to-all, gather, scatter by messages).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use oxccl_schedule::ir::{Chunk, Op, part_range};
use oxccl_types::{Collective, DataType, Error, Result, Signature};

use super::call::{self, Call};
use super::links::{BEHIND, EXCHANGE_LANE, Links, P2P_LANE, Sender, is_local};
use super::operation::{Course, Operation};
use super::p2p_behind::Last;
use super::p2p_passed::Passed;
use super::p2p_quick::{Over, Quick};
use super::p2p_short::Begun;
use super::plan::{MessagePlan, alignment};
use super::{ahead, eager_v, trail};
use crate::communicator::core::{Blocked, Core, Lane};
use crate::communicator::hub::WINDOW;
use crate::device::{Step, Task, Tasks, Touches, abandoned, caught};
use crate::haste;
use crate::request::{Request, VCounts};
use crate::transport::{Header, Ticket};

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) peer: u32,
    pub(super) at: *mut u8,
    pub(super) bytes: u64,
    pub(super) done: u64,
    pub(super) offered: bool,
    pub(super) complete: bool,
    pub(super) ticket: Ticket,
    pub(super) signature: [u64; 2],
    /// Which call it is of, of those that were put together.
    pub(super) call: u32,
    /// Of a message that is sent: see [`Header::outgrown`].
    pub(super) outgrown: bool,
    /// The same: see [`Header::copied`].
    pub(super) copied: bool,
}

/// A set of transfers of one rank.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) sends: Vec<Transfer>,
    /// How many of them, the first ones, are known to be complete.
    pub(super) sent: usize,
    /// By call: those of a call begin when the ones before it are complete, since they may write the same memory.
    pub(super) recvs: Vec<Transfer>,
    /// How many of the receives, the first ones, are known to be complete.
    pub(super) over: usize,
    /// The last call that was put to it.
    pub(super) calls: u32,
    pub(super) last: Last,
    /// Of a step: peers with a message that was not accepted, or not received, and those that have not taken one that was.
    pub(super) passed: Passed,
    pub(super) waits: Passed,
    /// From, to, bytes that are left, and of all.
    pub(super) copies: Vec<(*const u8, *mut u8, u64, u64)>,
    pub(super) lane: usize,
    pub(super) sequence: u64,
    /// Its place among the operations of its kind.
    number: u64,
}

// SAFETY: the pointers are the callers', who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for Exchange {}

/// Exchanges of at most this many bytes are tried at once when they are enqueued.
const QUICK: u64 = 256 << 10;
/// The same where all ranks share memory: those of twice 512 KiB still gain by it.
pub(super) const QUICK_LOCAL: u64 = 1 << 20;
/// Bytes that one step copies at most.
pub(super) const STEP: u64 = 1 << 20;
/// Where bytes come over streams: they are still in the caches.
const STREAM_STEP: u64 = 256 << 10;
/// A step of an exchange takes as long as this many looks at a line.
pub(super) const POLLS_PER_STEP: u32 = 4;

impl Exchange {
    /// An exchange of nothing.
    pub(super) fn empty(lane: usize, sequence: u64) -> Exchange {
        Exchange {
            sends: vec![],
            sent: 0,
            recvs: vec![],
            over: 0,
            calls: 0,
            last: Last::default(),
            passed: Passed::default(),
            waits: Passed::default(),
            copies: vec![],
            lane,
            sequence,
            number: u64::MAX,
        }
    }

    /// The sends and receives of a group, in lists that are there from an earlier one where possible. Self transfers are
    /// matched in order.
    ///
    /// `InvalidUsage` when a send to oneself has no receive, or one of another length.
    pub(crate) fn from_requests<'a, S: 'a>(
        core: &Core,
        mut links: Option<&mut Links>,
        requests: impl Iterator<Item = &'a Request<S>>,
    ) -> Result<Box<Exchange>> {
        let mut exchange = match links.as_mut() {
            Some(links) => links.lists(P2P_LANE),
            None => Box::new(Exchange::empty(P2P_LANE, 0)),
        };
        let mut own: (Vec<&Request<S>>, Vec<&Request<S>>) = (vec![], vec![]);
        for r in requests {
            let sends = r.collective == Collective::Send;
            if r.root == core.rank {
                if sends {
                    own.0.push(r)
                } else {
                    own.1.push(r)
                }
                continue;
            }
            exchange.add(core, r);
        }
        exchange.judge_sends(core, 0, 0);
        match exchange.copy_own(core, &own.0, &own.1) {
            Ok(()) => Ok(exchange),
            Err(error) => {
                if let Some(links) = links {
                    exchange.give_back(links);
                }
                Err(error)
            }
        }
    }

    /// The sends and receives of a group, of which those in `over`, and all with this rank itself, are over.
    pub(super) fn rest_of<Q: Quick>(
        core: &Core,
        links: &mut Links,
        calls: impl Iterator<Item = Q>,
        over: Over,
    ) -> Box<Exchange> {
        let mut exchange = links.lists(P2P_LANE);
        calls.filter(|c| c.request().root != core.rank).for_each(|call| exchange.add(core, call.request()));
        exchange.judge_sends(core, 0, 0);
        exchange.sends.drain(..over.sends);
        exchange.recvs.drain(..over.recvs);
        exchange
    }

    /// The same of which so much as `begun` says was done.
    pub(super) fn after<'a, S: 'a>(
        core: &Core,
        links: &mut Links,
        requests: impl Iterator<Item = &'a Request<S>>,
        begun: &Begun,
    ) -> Box<Exchange> {
        let mut exchange = links.lists(P2P_LANE);
        requests.for_each(|r| exchange.add(core, r));
        exchange.judge_sends(core, 0, 0);
        let whole = begun.tickets[..begun.sends].iter().map(|ticket| (None, *ticket));
        let part = begun.part.map(|(bytes, ticket)| (Some(bytes as u64), ticket));
        for (t, (done, ticket)) in exchange.sends.iter_mut().zip(whole.chain(part)) {
            (t.offered, t.done, t.ticket) = (true, done.unwrap_or(t.bytes), ticket);
        }
        exchange.recvs.drain(..begun.recvs);
        if let Some(next) = exchange.recvs.first_mut() {
            next.done = begun.received as u64;
        }
        exchange
    }

    /// Adds a send or receive with another rank.
    pub(super) fn add<S>(&mut self, core: &Core, r: &Request<S>) {
        let sends = r.collective == Collective::Send;
        let transfer = Transfer::new(
            r.root as u32,
            if sends { r.send.cast_mut() } else { r.recv },
            (r.count * r.dtype.size()) as u64,
            signature(r.dtype, r.count as u64, if sends { r.root } else { core.rank } as u32),
        );
        if sends { self.sends.push(transfer) } else { self.recvs.push(transfer) }
    }

    /// With its place among the operations of its kind.
    fn numbered(mut self: Box<Self>, number: u64) -> Box<Exchange> {
        self.number = number;
        self
    }

    /// Keeps the lists for the next exchange.
    pub(super) fn give_back(mut self: Box<Self>, links: &mut Links) {
        self.sends.clear();
        self.recvs.clear();
        self.copies.clear();
        // Of no operation until the next one says so.
        (self.sent, self.over, self.calls, self.number) = (0, 0, 0, u64::MAX);
        self.last = Last::default();
        links.keep(self);
    }

    /// The transfers of a message program that only exchanges user memory.
    ///
    /// `InvalidUsage` when the rank sends itself another length than it receives of itself.
    pub(super) fn from_program(
        core: &Core,
        links: &mut Links,
        call: &Call,
        plan: &MessagePlan,
        send: *const u8,
        v: Option<&VCounts>,
        seq: u64,
    ) -> Result<Box<Exchange>> {
        v.map_or(Ok(()), |v| eager_v::check_own(core, call, v))?;
        let element = call.dtype.size();
        let mut exchange = links.lists(EXCHANGE_LANE);
        (exchange.sequence, exchange.number) = (seq, seq);
        let input = |c: &Chunk| place(call, c, v.map(|v| (&v.send_counts, &v.send_displs)));
        let output = |c: &Chunk| place(call, c, v.map(|v| (&v.recv_counts, &v.recv_displs)));
        for op in plan.program.channels.iter().flatten() {
            match op {
                Op::Send { to, src } => {
                    let (at, n) = input(src);
                    let s = program_signature(call, n, *to);
                    exchange.sends.push(Transfer::new(
                        *to,
                        send.wrapping_add(at * element).cast_mut(),
                        (n * element) as u64,
                        s,
                    ));
                }
                Op::Recv { from, dst } => {
                    let (at, n) = output(dst);
                    let s = program_signature(call, n, core.rank as u32);
                    exchange.recvs.push(Transfer::new(
                        *from,
                        call.recv.wrapping_add(at * element),
                        (n * element) as u64,
                        s,
                    ));
                }
                Op::Copy { src, dst } => {
                    let ((from, n), (to, _)) = (input(src), output(dst));
                    let (from, to) = (send.wrapping_add(from * element), call.recv.wrapping_add(to * element));
                    let bytes = (n * element) as u64;
                    exchange.copies.push((from, to, bytes, bytes));
                }
                other => return Err(Error::internal(format!("{} exchanges by {other:?}", plan.algorithm))),
            }
        }
        Ok(exchange)
    }

    /// Leaves out what went another way: the own parts, those of the ranks that `came` names and, if so `sent`, all that
    /// this rank sends.
    pub(super) fn leave_out(&mut self, sent: bool, came: impl Fn(usize) -> bool) {
        self.copies.clear();
        self.recvs.retain(|t| !came(t.peer as usize));
        if sent {
            self.sends.clear();
        }
    }

    /// Moves what can be moved, and looks up to `polls` times more: what is small is seen through at once, as long as the
    /// peers are not late.
    pub(super) fn see_through(&mut self, core: &Core, links: &mut Links, mut polls: u32) -> Result<Step> {
        loop {
            match self.step(core, links)? {
                Step::Progress | Step::Blocked if polls > 0 => polls -= 1,
                step => return Ok(step),
            }
            oxccl_sys::sync::spin_loop();
        }
    }

    /// Sends what can be sent, and receives nothing.
    pub(super) fn begin(&mut self, core: &Core, links: &mut Links) -> Result<()> {
        self.step_sends(core, links).map(|_| ())
    }

    /// Whether all of it is with ranks that share no memory with this one.
    pub(super) fn is_remote(&self, core: &Core) -> bool {
        self.copies.is_empty() && self.sends.iter().chain(&self.recvs).all(|t| !is_local(core, t.peer))
    }

    /// Whether some of it is with ranks that share no memory with this one.
    pub(super) fn reaches_out(&self, core: &Core) -> bool {
        self.sends.iter().chain(&self.recvs).any(|t| !is_local(core, t.peer))
    }

    /// Whether all that it sends was accepted, so that what is sent next comes behind it.
    pub(super) fn is_offered(&self) -> bool {
        self.sends[self.sent..].iter().all(Transfer::is_offered)
    }

    /// Whether all of it is with ranks that share memory with this one, and all that it sends was accepted: what is left is to receive,
    /// and to wait until the peers have read what they read where it lies.
    fn is_given(&self, core: &Core) -> bool {
        let near = |t: &Transfer| is_local(core, t.peer);
        core.whole && self.copies.is_empty() && self.is_offered() && self.sends.iter().chain(&self.recvs).all(near)
    }

    /// Whether it will write bytes of which `is` holds.
    pub(super) fn writes(&self, is: impl Fn(&Range<usize>) -> bool) -> bool {
        self.recvs[self.over..].iter().any(|t| is(&t.range())) || self.own().any(|(_, to)| is(&to))
    }

    /// As [`step`](Self::step) of one that [has sent](Self::is_given) and whose turn it is not. Whether anything moved.
    fn step_early(&mut self, core: &Core, links: &mut Links) -> Result<bool> {
        let progress = self.step_sends(core, links)?;
        Ok(self.step_recvs(core, links, &mut { STEP })? || progress)
    }

    /// Whether only receives are left.
    fn is_sent(&self) -> bool {
        self.copies.is_empty() && self.sends[self.sent..].iter().all(|t| t.complete)
    }

    /// Whether it reads bytes of which `is` holds, or copies anything.
    pub(super) fn reads(&self, is: impl Fn(Range<usize>) -> bool) -> bool {
        !self.copies.is_empty() || self.gives(is)
    }

    /// Whether it sends bytes of which `is` holds.
    pub(super) fn gives(&self, is: impl Fn(Range<usize>) -> bool) -> bool {
        self.sends[self.sent..].iter().any(|t| is(t.range()))
    }

    /// Whether it is short enough to be tried when it is enqueued.
    pub(super) fn is_quick(&self, core: &Core) -> bool {
        self.bytes() <= if core.whole { QUICK_LOCAL } else { QUICK }
    }

    /// Moves what can be moved.
    pub(crate) fn step(&mut self, core: &Core, links: &mut Links) -> Result<Step> {
        // What peers wait for goes first; copies are made piece by piece while that is under way.
        let mut progress = self.step_sends(core, links)?;
        let mut budget = if core.scattered { STREAM_STEP } else { STEP };
        progress |= self.step_recvs(core, links, &mut budget)?;
        progress |= self.step_copies();
        let mut left = self.sends[self.sent..].iter().chain(&self.recvs[self.over..]);
        let done = self.copies.is_empty() && left.all(|t| t.complete);
        // What those behind it have sent is theirs to drive, or of who runs the stream: peers may read it only when this one is over.
        if done && (links.flush()? || links.is_followed(self.number)) {
            return Ok(Step::Done);
        }
        Ok(if progress { Step::Progress } else { Step::Blocked })
    }

    /// Bytes of all transfers.
    pub(super) fn bytes(&self) -> u64 {
        self.sends.iter().chain(&self.recvs).map(|t| t.bytes).fold(0, u64::saturating_add)
    }

    /// Whether a receiver may know the address of memory that is sent.
    pub(super) fn lends(&self) -> bool {
        self.sends[self.sent..].iter().any(|t| t.offered && !t.complete)
    }

    /// Whether a transfer with `rank` is not complete.
    pub(super) fn awaits(&self, rank: usize) -> bool {
        self.sends.iter().chain(&self.recvs).any(|t| !t.complete && t.peer as usize == rank)
    }

    fn waiting_for(&self) -> String {
        let open = |transfers: &[Transfer]| named(transfers.iter().filter(|t| !t.complete).map(|t| t.peer));
        let mut parts = vec![];
        if let Some(from) = open(&self.recvs) {
            parts.push(format!("Recv from {from}"));
        }
        if let Some(to) = open(&self.sends) {
            parts.push(format!("Send to {to}"));
        }
        format!("{} was waiting for the peer(s) to make the matching call", parts.join(" and "))
    }
}

impl Transfer {
    fn new(peer: u32, at: *mut u8, bytes: u64, signature: [u64; 2]) -> Transfer {
        Transfer {
            peer,
            at,
            bytes,
            done: 0,
            offered: false,
            complete: false,
            ticket: Ticket::default(),
            signature,
            call: 0,
            outgrown: false,
            copied: false,
        }
    }

    /// Whether all of it was accepted, so that what is sent next comes behind it.
    pub(super) fn is_offered(&self) -> bool {
        self.offered && self.done == self.bytes
    }

    /// Its memory.
    pub(super) fn range(&self) -> Range<usize> {
        self.at.addr()..self.at.addr() + self.bytes as usize
    }

    /// Hands over what there is room for. Whether anything was.
    pub(super) fn offer(&mut self, core: &Core, end: &mut Sender, sequence: u64) -> Result<bool> {
        let mut progress = false;
        while !self.is_offered() {
            let &mut Transfer { signature, bytes: total, done: offset, outgrown, copied, .. } = self;
            let header = Header { signature, sequence, total, offset, outgrown, copied, ..Header::default() };
            let at = self.at.wrapping_add(self.done as usize);
            // SAFETY: the caller's buffer stays valid and unchanged until the operation is done, and the operation is done
            // only after `poll_done`.
            let accepted = unsafe { end.poll_send(&header, at, (self.bytes - self.done) as usize)? };
            let Some((n, ticket)) = accepted else { break };
            self.offered = true;
            self.done += n as u64;
            self.ticket = ticket;
            progress = true;
            core.ring(self.peer as usize);
        }
        Ok(progress)
    }
}

/// The ranks of messages, each once, for people; `None` where there are none.
fn named(peers: impl Iterator<Item = u32>) -> Option<String> {
    /// Who reads more has read enough.
    const MOST: usize = 16;
    let mut ranks: Vec<u32> = peers.collect();
    let messages = ranks.len();
    ranks.sort_unstable();
    ranks.dedup();
    let (all, some) = (ranks.len(), &ranks[..ranks.len().min(MOST)]);
    let more = if all > MOST { format!(" and {} more", all - MOST) } else { String::new() };
    let messages = if messages > all { format!(" ({messages} messages)") } else { String::new() };
    (all > 0).then(|| format!("rank(s) {some:?}{more}{messages}"))
}

/// Within what their memory lies.
fn within(transfers: &[Transfer]) -> Range<usize> {
    let from = transfers.iter().map(|t| t.at.addr()).min().unwrap_or(0);
    from..transfers.iter().map(|t| t.range().end).max().unwrap_or(from)
}

pub(super) fn signature(dtype: DataType, count: u64, receiver: u32) -> [u64; 2] {
    Signature { collective: Collective::Send, dtype, op: 0, root: receiver, count }.pack()
}

/// The call's own signature, except for alltoallv, whose counts differ per pair.
fn program_signature(call: &Call, count: usize, receiver: u32) -> [u64; 2] {
    if call.collective == Collective::AllToAllV {
        Signature { collective: Collective::AllToAllV, dtype: call.dtype, op: 0, root: receiver, count: count as u64 }
            .pack()
    } else {
        call.signature
    }
}

/// First element and length of a chunk of user memory.
fn place(call: &Call, c: &Chunk, v: Option<(&Vec<usize>, &Vec<usize>)>) -> (usize, usize) {
    let (count, start) = match v {
        Some((counts, displs)) => (counts[c.block as usize] as u64, displs[c.block as usize] as u64),
        None => (call.count, u64::from(c.block) * call.count),
    };
    let r = part_range(count, c.part, c.parts, alignment(call.dtype.size()));
    ((start + r.start) as usize, (r.end - r.start) as usize)
}

/// The task of the sends and receives of a group.
pub(crate) struct P2pTask {
    course: Course,
    batch: u64,
    /// None: all is over, and its lists are kept for the next one.
    exchange: Option<Box<Exchange>>,
    started: bool,
    /// The next exchange may begin behind it, and leave its receives to it.
    trails: bool,
    /// It [has sent](Exchange::is_given): it goes on before its turn, and those behind it do when it has received all.
    early: bool,
}

impl P2pTask {
    pub(crate) fn new(core: Arc<Core>, exchange: Box<Exchange>, batch: u64) -> P2pTask {
        let turn = core.issue(Lane::P2p);
        P2pTask::with_turn(core, turn, exchange, batch, false)
    }

    /// The task of an exchange that was begun without one.
    pub(super) fn begun(core: Arc<Core>, turn: u64, exchange: Box<Exchange>) -> P2pTask {
        P2pTask::with_turn(core, turn, exchange, 0, true)
    }

    fn with_turn(core: Arc<Core>, turn: u64, exchange: Box<Exchange>, batch: u64, started: bool) -> P2pTask {
        let exchange = Some(exchange.numbered(turn));
        P2pTask { course: Course::new(core, Lane::P2p, turn), batch, exchange, started, trails: false, early: false }
    }

    /// So that the next exchange may begin behind it, if it only receives any more, or waits until peers have read, and ranks
    /// share cores.
    pub(super) fn trailing(mut self) -> P2pTask {
        let core = &self.course.core;
        let is = |is: &dyn Fn(&Exchange) -> bool| core.crowded && self.exchange.as_deref().is_some_and(is);
        self.early = is(&|exchange| exchange.is_given(core));
        self.trails = self.early || is(&Exchange::is_sent);
        self.let_follow();
        self
    }

    /// As [`trailing`](Self::trailing) where messages go over a network, or calls behind them may, and all were accepted.
    fn let_follow(&mut self) {
        let core = &self.course.core;
        let goes_out = |exchange: &Exchange| exchange.copies.is_empty() && exchange.reaches_out(core);
        let serves = |exchange: &Exchange| goes_out(exchange) || ahead::serves(core, exchange);
        let is_given = |exchange: &Exchange| exchange.is_offered() && serves(exchange);
        self.trails |= !core.whole && self.batch == 0 && self.exchange.as_deref().is_some_and(is_given);
    }

    /// Sends, behind `others`, which have let it. `None`: nothing was done, its turn must come first.
    fn begin_ahead(&mut self, others: &Tasks) -> Option<Step> {
        let Course { core, turn, .. } = &self.course;
        let exchange = self.exchange.as_mut()?;
        let written = |bytes: Range<usize>| others.iter().any(|t| t.writes(&bytes));
        let before = ahead::Before::of(trail::id(core, Lane::P2p), others);
        // What it sends to itself it copies in its turn.
        if self.started
            || self.batch != 0
            || before.trails == Some(0)
            || !ahead::serves(core, exchange)
            || !ahead::has_room(exchange.bytes() / 2, others)
            || !core.is_turn(Lane::P2p, turn.checked_sub(before.calls)?)
            || exchange.gives(written)
        {
            return None;
        }
        let mut links = core.try_lock_links()?;
        // An error is met again when the turn has come.
        core.check().ok()?;
        self.started = true;
        links.gather(exchange.number);
        let begun = caught(|| exchange.begin(core, &mut links)).and_then(|begun| begun);
        links.gathered();
        drop(links);
        self.let_follow();
        Some(match begun {
            Ok(()) => Step::Progress,
            Err(error) => self.gave(Err(error)),
        })
    }
}

impl Operation for P2pTask {
    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn advance(&mut self) -> Result<Step> {
        let core = &self.course.core;
        if !core.is_turn(Lane::P2p, self.course.turn) {
            return Ok(Step::Blocked);
        }
        if !self.started {
            core.check()?;
            self.started = true;
        }
        let mut links = core.lock_links();
        // Receiving may read straight from the sender's memory.
        let Some(borrowed) = core.borrow_memory(Lane::P2p) else { return Ok(Step::Blocked) };
        let polls =
            if self.course.since_ns == 0 && self.is_quick() { haste::looks(core.polls) / POLLS_PER_STEP } else { 0 };
        let Some(exchange) = &mut self.exchange else { return Ok(Step::Done) };
        let step = exchange.see_through(core, &mut links, polls)?;
        drop(borrowed);
        if matches!(step, Step::Done) {
            self.exchange.take().into_iter().for_each(|done| done.give_back(&mut links));
        } else if !self.trails {
            drop(links);
            self.let_follow();
        }
        Ok(step)
    }

    fn has_begun(&self) -> bool {
        self.started
    }

    fn check_blocked(&self, since: &mut u64, doubt: Option<&Error>) -> Result<()> {
        let core = &self.course.core;
        if doubt.is_none() && !core.is_turn(Lane::P2p, self.course.turn) {
            // Who waits for its turn ends with the operation before it, which looks after its own time.
            *since = 0;
            return core.check();
        }
        self.exchange.as_deref().map_or(Ok(()), |exchange| core.check_operation(since, doubt, &Waiting(exchange)))
    }

    fn lends(&self) -> bool {
        self.exchange.as_deref().is_some_and(Exchange::lends)
    }
}

/// A blocked exchange whose turn it is, as the reasons for giving up see it.
struct Waiting<'a>(&'a Exchange);

impl Blocked for Waiting<'_> {
    fn describe(&self) -> String {
        self.0.waiting_for()
    }

    fn needs(&self, rank: usize) -> bool {
        self.0.awaits(rank)
    }
}

impl Drop for P2pTask {
    fn drop(&mut self) {
        if !self.course.over {
            self.fail(&abandoned("a group of sends and receives"));
        }
    }
}

impl Task for P2pTask {
    fn step(&mut self) -> Step {
        self.step_caught()
    }

    fn bell(&self) -> Option<oxccl_sys::Doorbell> {
        self.course.core.park_bell()
    }

    fn park(&self, timeout: Duration) {
        self.course.core.park(timeout);
    }

    fn batch(&self) -> u64 {
        self.batch
    }

    fn is_quick(&self) -> bool {
        let quick = |exchange: &Exchange| exchange.is_quick(&self.course.core);
        self.batch == 0 && (self.trails || self.exchange.as_deref().is_some_and(quick))
    }

    fn trails(&self) -> usize {
        // What was taken on may wait for room.
        let trails = self.trails && self.exchange.as_deref().is_some_and(Exchange::is_last_offered);
        if trails { trail::id(&self.course.core, Lane::P2p) } else { 0 }
    }

    fn lane(&self) -> usize {
        trail::id(&self.course.core, Lane::P2p)
    }

    fn keeps_behind(&self) -> bool {
        self.batch == 0
    }

    fn shares_memory(&self) -> bool {
        self.course.core.whole
    }

    fn writes(&self, bytes: &Range<usize>) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| exchange.writes(|range| call::meet(range, bytes)))
    }

    fn window(&self) -> u64 {
        if self.early { BEHIND as u64 } else { WINDOW }
    }

    fn lent(&self, bytes: &Range<usize>) -> bool {
        let meets = |t: &Transfer| !t.complete && call::meet(&t.range(), bytes);
        self.exchange.as_deref().is_some_and(|exchange| exchange.sends[exchange.sent..].iter().any(meets))
    }

    fn may_lend(&self) -> bool {
        self.exchange.as_deref().is_some_and(|exchange| !exchange.is_sent())
    }

    fn touches(&self) -> Option<Touches> {
        let exchange = self.exchange.as_deref().filter(|_| self.early)?;
        let (reads, writes) = (within(&exchange.sends[exchange.sent..]), within(&exchange.recvs[exchange.over..]));
        Some(Touches { reads, writes, window: self.window() })
    }

    fn has_given(&self) -> bool {
        let gave = |exchange: &Exchange| exchange.receives() == 0 && exchange.is_offered();
        self.early && self.exchange.as_deref().is_none_or(gave)
    }

    fn step_early(&mut self) -> Step {
        if !self.early {
            return Step::Blocked;
        }
        let core = self.course.core.clone();
        // What failed is not tried again, as in its turn.
        if self.course.doubt.is_some() {
            return self.gave(Ok(Step::Blocked));
        }
        let went = caught(|| {
            core.check()?;
            let mut links = core.lock_links();
            // Receiving may read straight from the sender's memory.
            let Some(_borrowed) = core.borrow_memory(Lane::P2p) else { return Ok(false) };
            self.exchange.as_mut().map_or(Ok(false), |exchange| exchange.step_early(&core, &mut links))
        });
        match went.and_then(|went| went) {
            Ok(true) => Step::Progress,
            Ok(false) => Step::Blocked,
            Err(error) => self.gave(Err(error)),
        }
    }

    fn bars(&self, _next: Option<&Call>, output: &Range<usize>) -> bool {
        let meets = |bytes: Range<usize>| call::meet(&bytes, output);
        let bars = |exchange: &Exchange| exchange.reads(meets) || exchange.writes(|bytes| call::meet(bytes, output));
        self.exchange.as_deref().is_some_and(bars)
    }

    fn hear_abort(&mut self) -> Step {
        // As it began a connection failed.
        if self.course.doubt.is_some() {
            return self.gave(Ok(Step::Blocked));
        }
        match self.course.core.check() {
            Err(error) if self.course.core.is_aborted() => self.gave(Err(error)),
            _ => Step::Blocked,
        }
    }

    fn takes_more(&mut self, lent: bool) -> Option<&mut Exchange> {
        let core = &self.course.core;
        let exchange = self.exchange.as_deref_mut()?;
        let takes = match lent {
            true => core.crowded && core.whole && exchange.is_last_offered(),
            // What is received behind messages of other hosts might lie where their connections have still to write.
            false => exchange.is_sent() && !exchange.is_remote(core),
        };
        (self.trails && takes && self.course.doubt.is_none()).then_some(exchange)
    }

    fn follows(&self) -> usize {
        let core = &self.course.core;
        let serves = |exchange: &Exchange| ahead::serves(core, exchange);
        if self.batch == 0 && self.exchange.as_deref().is_some_and(serves) { Arc::as_ptr(core).addr() } else { 0 }
    }

    fn begin_behind(&mut self, others: &Tasks) -> Option<Step> {
        self.begin_ahead(others)
    }

    fn send_off(&mut self) {
        // A failed connection fails the exchanges that need it.
        let _ = self.course.core.lock_links().let_go();
    }

    fn written(&self) -> usize {
        self.exchange.iter().flat_map(|exchange| &exchange.recvs).map(|t| t.bytes as usize).sum()
    }

    fn crowded(&self) -> bool {
        self.course.core.crowded
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn peers_are_named_once_and_not_all_of_very_many() {
        assert_eq!(named([].into_iter()), None);
        assert_eq!(named([7].into_iter()).unwrap(), "rank(s) [7]");
        assert_eq!(named([3, 1, 3, 3].into_iter()).unwrap(), "rank(s) [1, 3] (4 messages)");
        let many = named((0..1000).rev()).unwrap();
        assert!(many.ends_with("14, 15] and 984 more"), "{many}");
    }
}
