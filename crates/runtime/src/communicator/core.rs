//! The heart of a live communicator on one rank: who the peers are, the hub, whose turn it is, and what ended it.

mod endings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oxccl_schedule::select::AllowList;
use oxccl_sys::Belfry;
use oxccl_sys::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, SharedU32};
use oxccl_sys::{Deadline, Doorbell, Latch, LatchGuard, barrier, clock};
use oxccl_types::{Collective, Error, Result};
use rustix::event::{Timespec, epoll};

use super::child::Children;
use super::family::{Family, Watch};
use super::hub::{Hub, LENT_WINDOW, Presence};
use super::team::lsa_size;
use super::window::Windows;
use crate::bootstrap::{ControlRing, News, PeerInfo};
use crate::config::{self, Config};
use crate::device::{Crowd, Settle, assist_any};
use crate::exec::collective::{CollectiveTask, Engine};
use crate::exec::fused::Fused;
use crate::exec::links::{DeviceMapper, Links, P2P_LANE, SharedMapper};
use crate::exec::taken::{Ranks, RanksHere};
use crate::exec::wait::{Turn, Waiter};
use crate::log;
use crate::service::io::Limits;
use crate::service::{CommKey, Dial, Inbox, Route};
use crate::transport::Header;
pub(crate) use endings::Blocked;
use endings::{Departure, Troubles};

/// Operations of one lane run in the order in which they were issued; the lanes are independent of each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    Collectives = 0,
    P2p = 1,
    /// These keep no order among each other: whoever puts and whoever waits may need each other.
    OneSided = 2,
}

#[derive(Default)]
struct Turns {
    issued: AtomicU64,
    current: AtomicU64,
    /// Operations that ended before their turn: all behind them fail as well, and none takes the turn on.
    skipped: AtomicU64,
}

const ABORTED: u32 = 1;
const FAILED: u32 = 2;
const DEPARTED: u32 = 4;
const NEWS: u32 = 8;
/// Operations ended for good; a parent of new communicators still.
const REVOKED: u32 = 16;
/// What ends every operation at once.
const ENDED: u32 = ABORTED | FAILED | REVOKED;

pub(crate) struct Core {
    pub rank: usize,
    pub ranks: usize,
    pub hash: u64,
    pub key: CommKey,
    pub config: Config,
    /// Algorithms that the user allows.
    pub allowed: AllowList,
    pub peers: Vec<PeerInfo>,
    /// Ranks of the clique, ascending; `me` is my position in it.
    pub members: Vec<usize>,
    pub me: usize,
    /// By rank: position in `members`, `usize::MAX` for ranks elsewhere.
    pub member_of: Vec<usize>,
    /// By rank: the lowest rank that shares memory with it.
    pub node_of: Vec<usize>,
    /// The clique is the whole communicator.
    pub whole: bool,
    /// Consecutive ranks that share memory, a number that divides every run of them; 1 where the clique is the whole communicator.
    /// So it is 1, too, where ranks are dealt out to hosts one by one, and small where hosts have different numbers of them.
    pub local: u32,
    /// No two ranks share memory.
    pub scattered: bool,
    /// The announcing lines may carry payload.
    pub eager: bool,
    /// By collective: the most bytes that they may carry, and one more; 0: not yet looked up.
    pub eager_limits: [AtomicU32; Collective::COUNT],
    /// The same for ranks that share cores and whose memory is not mapped.
    pub voted_limits: [AtomicU32; Collective::COUNT],
    /// The same of what goes by long slots.
    pub long_limits: [AtomicU32; Collective::COUNT],
    /// All ranks of the clique live in this process.
    pub one_process: bool,
    pub hub: Arc<Hub>,
    /// By rank: whether this process and the rank's can read each other by process_vm_readv.
    pub cma: Vec<bool>,
    /// By rank: the process of a rank of this machine, if it is another one: its number here, and a handle that tells of
    /// its end.
    pub handles: Vec<Option<(u32, Arc<OwnedFd>)>>,
    /// Collectives may have the kernel copy between this process and those of all other members.
    pub reaches: bool,
    /// The ranks of this machine outnumber its cores.
    pub crowded: bool,
    /// Two ranks write in turns where the other has written and they have read: that lies in their own caches, and their cores
    /// copy whole strings fast. Not where a core is another rank's as well.
    pub trades: bool,
    /// They do, lines that the other core has travel all the same (Intel's processors from Sapphire Rapids on), and the model says that the
    /// kernel's copies are faster than two by way of slots from some length on. The same answer on every rank.
    pub trades_lines: bool,
    /// Polls of a flag before a task says that it is blocked.
    pub polls: u32,
    pub engine: Latch<Engine>,
    // Boxes, since the queue of a stream takes boxes: the pool keeps them, and none is allocated per call.
    #[allow(clippy::vec_box)]
    pub pool: Latch<Vec<Box<CollectiveTask>>>,
    /// Lists of calls that travelled together and were left to a task, for the next ones.
    #[allow(clippy::vec_box)]
    pub lists: Latch<Vec<Box<Fused>>>,
    /// Ends waits of operations outside of their steps.
    pub abort: Arc<AtomicBool>,
    pub(super) links: Latch<Links>,
    pub(super) mappers: OnceLock<[Arc<DeviceMapper>; 2]>,
    /// An epoll set of the connections to other machines, on which a rank parks; none where all share memory.
    sockets: Option<OwnedFd>,
    pub(super) inbox: Inbox,
    pub(super) strays: Mutex<Vec<(u32, u8, TcpStream)>>,
    /// The calls of peers for streams, by peer and purpose, that were not answered yet.
    pub(super) calls: Mutex<Vec<((u32, u8), Dial)>>,
    pub(super) control: Mutex<Option<ControlRing>>,
    pub(super) watches: Mutex<Vec<Arc<Watch>>>,
    /// Communicators that share resources with this one.
    pub family: Arc<Family>,
    left: AtomicBool,
    /// Communicators that are being made out of this one.
    pub(super) children: Children,
    /// Windows and the state of one-sided calls.
    pub(crate) windows: Windows,
    turns: [Turns; 3],
    status: AtomicU32,
    trouble_ns: AtomicU64,
    departures: Mutex<BTreeMap<usize, Departure>>,
    news: Mutex<Troubles>,
    /// The last call of which neighbours were told.
    told: AtomicU64,
    /// For how long it had been blocked then, ns.
    told_after: AtomicU64,
    /// When a wait was last said to be long, ns; 0: never.
    noticed_ns: AtomicU64,
    /// When the control ring was last asked to be mended, ns; 0: never.
    mended_ns: AtomicU64,
    /// A collective of this rank, by its number, that met a message of one of another number, of whom, and its header.
    strange: Mutex<Option<(u64, usize, Header)>>,
    /// What neighbours in the control ring, and those who asked around it, are blocked in: rank, number, signature.
    heard: Mutex<Vec<(usize, u64, [u64; 2])>>,
    failure: OnceLock<Error>,
    _ranks_here: RanksHere,
    /// Where they share cores: tells the helper thread.
    _crowd: Option<Crowd>,
}

/// What `Core::new` is given by the initialisation.
pub(super) struct Parts {
    pub rank: usize,
    pub ranks: usize,
    pub hash: u64,
    pub key: CommKey,
    pub config: Config,
    pub peers: Vec<PeerInfo>,
    pub members: Vec<usize>,
    pub node_of: Vec<usize>,
    pub one_process: bool,
    pub hub: Arc<Hub>,
    pub cma: Vec<bool>,
    pub handles: Vec<Option<(u32, Arc<OwnedFd>)>>,
    pub inbox: Inbox,
    pub family: Arc<Family>,
}

/// How long a failing operation waits for peers in other processes to let go of its memory: far longer than a step.
const TAKE_BACK: Duration = Duration::from_secs(2);

/// How long a leaving rank waits for peers to read what it sent.
const DELIVER: Duration = Duration::from_secs(5);

/// How long a leaving rank waits for peers to arrive at a call whose result it has.
const SETTLE_GRACE: Duration = Duration::from_millis(200);

/// Longest park of a rank that waits for the network.
const NAP: Duration = Duration::from_millis(1);

/// User memory of peers is being touched; ends when dropped.
pub(crate) struct Borrowed<'a> {
    word: SharedU32,
    _core: &'a Core,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // SYNC: borrow
        self.word.store(0, Ordering::Release);
    }
}

/// Parts of peers' windows are being written; ends when dropped.
pub(crate) struct BorrowedWindow(SharedU32);

impl Drop for BorrowedWindow {
    fn drop(&mut self) {
        // SYNC: borrow
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Tasks kept for reuse: as many as may be under way behind each other, or are queued, and some.
pub(crate) const POOL: usize = LENT_WINDOW as usize + 16;
/// Lists of calls that are kept: of as many groups as may be under way behind each other.
const LISTS: usize = 16;

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is valid between statements, also after a panic elsewhere.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bound for blocking set-up calls: the initialisation timeout, and the abort flag.
pub(crate) struct Bound<'a> {
    deadline: Deadline,
    abort: &'a AtomicBool,
}

impl Bound<'_> {
    pub(crate) fn as_limits(&self) -> Limits<'_> {
        Limits { deadline: self.deadline, abort: self.abort }
    }
}

/// The user's list. Of one with a name that no algorithm has nothing is taken; NCCL's and RCCL's lists may well have such names.
fn allow_list(text: &str) -> AllowList {
    AllowList::parse(text).unwrap_or_else(|e| {
        match config::text(config::ALGO.name) {
            Some(_) => log::warn(&format!("{}={text}: {e}; all algorithms are allowed", config::ALGO.name)),
            None => log::info(log::Subsys::TUNING, &format!("NCCL_ALGO={text}: {e}; all algorithms are allowed")),
        }
        AllowList::all()
    })
}

/// The ranks of this machine. Those of other containers are not known.
fn ranks_here(parts: &Parts) -> Ranks {
    let count = super::init::on_this_machine(&parts.peers, parts.rank);
    let mine = &parts.peers[parts.rank].process;
    let pid = |rank: &usize| match (parts.peers[*rank].process == *mine, &parts.handles[*rank]) {
        (true, _) => Some(std::process::id()),
        (false, handle) => handle.as_ref().map(|(pid, _)| *pid).filter(|pid| *pid > 0),
    };
    let all: Option<BTreeSet<u32>> =
        if count == parts.members.len() { parts.members.iter().map(pid).collect() } else { None };
    let cores = super::init::run_at_once(&parts.peers, &parts.members).map_or(1.0, |cores| cores as f64);
    Ranks { count, cores, pids: all.into_iter().flatten().collect() }
}

impl Core {
    pub(super) fn new(mut parts: Parts) -> Arc<Core> {
        let mut member_of = vec![usize::MAX; parts.ranks];
        for (i, rank) in parts.members.iter().enumerate() {
            member_of[*rank] = i;
        }
        let allowed = allow_list(&parts.config.algo);
        let mine = &parts.peers[parts.rank].process;
        let reached = |rank: &usize| parts.peers[*rank].process == *mine || parts.cma[*rank];
        let reaches = matches!(parts.config.p2p.as_str(), "auto" | "cma")
            && parts.members.iter().all(reached)
            && (parts.one_process || oxccl_sys::cma::may_write());
        let crowded = super::init::crowded(&parts.peers, parts.rank, &parts.members);
        let whole = parts.members.len() == parts.ranks;
        parts.config.constants.model.per_core = if whole { 1.0 } else { super::init::per_core(&parts.peers) };
        let ranks_here = crate::exec::taken::ranks_here(ranks_here(&parts));
        let ring_places = crate::exec::piped::ring_places(parts.hub.geometry());
        let trades = !crowded && super::init::write_lines(&parts.peers, &parts.members);
        let travel = super::init::lines_travel(&parts.peers, &parts.members);
        let trades_lines = trades && travel && parts.config.constants.model.kernel_from().is_some();
        let core = Arc::new(Core {
            me: member_of[parts.rank],
            member_of,
            whole,
            local: if whole { 1 } else { lsa_size(&parts.node_of, 0) as u32 },
            scattered: parts.node_of.iter().enumerate().all(|(rank, node)| rank == *node),
            // Without the set a wait notices the network a little later.
            sockets: (parts.members.len() < parts.ranks)
                .then(|| epoll::create(epoll::CreateFlags::CLOEXEC).ok())
                .flatten(),
            crowded,
            trades,
            trades_lines,
            polls: crate::exec::entry::polls(crowded),
            engine: Latch::new(Engine::new(parts.ranks, parts.members.len(), ring_places, parts.config.large_pages)),
            pool: Latch::new(Vec::with_capacity(POOL)),
            lists: Latch::new(Vec::with_capacity(LISTS)),
            links: Latch::default(),
            mappers: OnceLock::new(),
            strays: Mutex::default(),
            calls: Mutex::default(),
            control: Mutex::default(),
            watches: Mutex::default(),
            left: AtomicBool::new(false),
            children: Children::default(),
            windows: Windows::default(),
            node_of: parts.node_of,
            turns: Default::default(),
            status: AtomicU32::new(0),
            trouble_ns: AtomicU64::new(0),
            departures: Mutex::default(),
            news: Mutex::default(),
            told: AtomicU64::new(0),
            told_after: AtomicU64::new(0),
            noticed_ns: AtomicU64::new(0),
            mended_ns: AtomicU64::new(0),
            strange: Mutex::default(),
            heard: Mutex::default(),
            failure: OnceLock::new(),
            eager_limits: Default::default(),
            voted_limits: Default::default(),
            long_limits: Default::default(),
            eager: parts.members.len() == parts.ranks && allowed.allows("one_shot"),
            allowed,
            rank: parts.rank,
            ranks: parts.ranks,
            hash: parts.hash,
            key: parts.key,
            config: parts.config,
            peers: parts.peers,
            members: parts.members,
            one_process: parts.one_process,
            hub: parts.hub,
            reaches,
            cma: parts.cma,
            handles: parts.handles,
            _ranks_here: ranks_here,
            _crowd: crowded.then(Crowd::new),
            abort: Arc::default(),
            inbox: parts.inbox,
            family: parts.family,
        });
        core.family.join();
        let mapper = || Arc::new(DeviceMapper::new(Arc::downgrade(&core), core.ranks));
        // Set once, here.
        let _ = core.mappers.set([mapper(), mapper()]);
        core
    }

    // ---- turns

    /// A ticket for an operation of `lane`.
    pub(crate) fn issue(&self, lane: Lane) -> u64 {
        self.turns[lane as usize].issued.fetch_add(1, Ordering::AcqRel)
    }

    /// A ticket for an operation of `lane` whose turn it is at once; `None` while others are under way.
    #[inline]
    pub(crate) fn issue_at_once(&self, lane: Lane) -> Option<u64> {
        self.issue_several_at_once(lane, 1)
    }

    /// As [`issue_at_once`](Self::issue_at_once) where `behind` operations of the caller are under way, and no others: the
    /// turn comes when they are over.
    #[inline]
    pub(crate) fn issue_behind(&self, lane: Lane, behind: u64) -> Option<u64> {
        let turns = &self.turns[lane as usize];
        // SYNC: turn
        let next = turns.current.load(Ordering::Acquire) + behind;
        turns.issued.compare_exchange(next, next + 1, Ordering::AcqRel, Ordering::Relaxed).ok()
    }

    /// Whether `behind` operations of `lane` are under way, and no more.
    #[inline]
    pub(crate) fn are_all(&self, lane: Lane, behind: u64) -> bool {
        let turns = &self.turns[lane as usize];
        // SYNC: turn
        turns.current.load(Ordering::Acquire) + behind == turns.issued.load(Ordering::Acquire)
    }

    /// As [`issue_at_once`](Self::issue_at_once) for `count` operations: the first of their tickets.
    #[inline]
    pub(crate) fn issue_several_at_once(&self, lane: Lane, count: u64) -> Option<u64> {
        let turns = &self.turns[lane as usize];
        // SYNC: turn
        let next = turns.current.load(Ordering::Acquire);
        turns.issued.compare_exchange(next, next + count, Ordering::AcqRel, Ordering::Relaxed).ok()
    }

    #[inline]
    pub(crate) fn is_turn(&self, lane: Lane, ticket: u64) -> bool {
        // SYNC: turn
        self.turns[lane as usize].current.load(Ordering::Acquire) == ticket
    }

    /// The operation of `ticket` is over; the turn passes on if it had it. To be called once per ticket.
    #[inline(always)]
    pub(crate) fn pass_turn(&self, lane: Lane, ticket: u64) {
        let turns = &self.turns[lane as usize];
        // An operation that fails before its turn leaves the order alone: those behind it fail as well.
        if self.is_turn(lane, ticket) {
            self.hand_on_turn(lane, ticket);
        } else {
            turns.skipped.fetch_add(1, Ordering::AcqRel);
        }
        // Who has just issued the next one still polls, and its parks are short: the bell is not looked at for its sake.
        if turns.issued.load(Ordering::Relaxed) > ticket + 1 {
            self.hub.ring(self.me);
        }
    }

    /// The operation of `ticket`, which has the turn, is over; that of the next ticket, of the same thread, needs not be woken.
    #[inline]
    pub(crate) fn hand_on_turn(&self, lane: Lane, ticket: u64) {
        // SYNC: turn
        self.turns[lane as usize].current.store(ticket + 1, Ordering::Release);
    }

    /// `count` operations from `ticket` on, which have the turn, are over.
    pub(crate) fn pass_turns(&self, lane: Lane, ticket: u64, count: u64) {
        if count > 0 {
            // SYNC: turn
            self.turns[lane as usize].current.store(ticket + count - 1, Ordering::Release);
            self.pass_turn(lane, ticket + count - 1);
        }
    }

    /// The operation of `ticket` ends with `error`, and with it the communicator: whoever found the error first tells
    /// the others. `lent`: peers may have the addresses of its buffers.
    #[cold]
    pub(crate) fn fail_operation(&self, lane: Lane, ticket: u64, error: &Error, lent: bool) {
        if self.check().is_ok() {
            self.spread(error);
        }
        self.fail(error);
        if lent {
            self.take_back(lane);
        }
        self.pass_turn(lane, ticket);
    }

    /// Whether every operation that was issued is over.
    pub(super) fn is_idle(&self) -> bool {
        // What is over only grows, so a look at its parts one after the other finds too little at most.
        let over = |t: &Turns| t.current.load(Ordering::Acquire) + t.skipped.load(Ordering::Acquire);
        self.turns.iter().all(|t| over(t) >= t.issued.load(Ordering::Acquire))
    }

    /// Works on the streams of the process until this communicator has nothing under way, at most until `deadline`.
    pub(super) fn drain(&self, deadline: Option<Deadline>) -> bool {
        let mut waiter = Waiter::new(self.crowded);
        while !self.is_idle() {
            if deadline.is_some_and(Deadline::passed) {
                return false;
            }
            if assist_any() {
                waiter = Waiter::new(self.crowded);
            } else if let Turn::Park(timeout) = waiter.turn() {
                self.bell().park_unless(timeout, || self.is_idle());
            }
        }
        true
    }

    // ---- borrowed memory

    /// To be held while this rank touches user memory of its peers; `None` once an operation has failed somewhere,
    /// because the memory may be gone. The reason is heard by the checks of the wait that follows.
    pub(crate) fn borrow_memory(&self, lane: Lane) -> Option<Borrowed<'_>> {
        let word = self.hub.borrows(self.me, lane as usize);
        word.store(1, Ordering::Relaxed);
        let borrowed = Borrowed { word, _core: self };
        // SYNC: borrow. Either this load sees that the memory was taken back, or who took it sees the word above.
        self.hub.fence();
        let ended = self.status.load(Ordering::Relaxed) & ENDED != 0;
        (!ended && !self.hub.is_taken_back()).then_some(borrowed)
    }

    /// As [`Core::borrow_memory`] for the parts of the peers' windows; several threads of this rank may hold it.
    pub(crate) fn borrow_window(&self) -> Option<BorrowedWindow> {
        let word = self.hub.borrows(self.me, Lane::OneSided as usize);
        word.fetch_add(1, Ordering::Relaxed);
        let borrowed = BorrowedWindow(word);
        // SYNC: borrow. As above.
        self.hub.fence();
        let ended = self.status.load(Ordering::Relaxed) & ENDED != 0;
        (!ended && !self.hub.is_taken_back()).then_some(borrowed)
    }

    /// Waits until no peer touches memory of this rank any more, and none will. A peer holds it for one step at most.
    fn take_back(&self, lane: Lane) {
        self.hub.take_back();
        // SYNC: borrow
        barrier::heavy();
        let others = Deadline::after(TAKE_BACK);
        for member in (0..self.members.len()).filter(|m| *m != self.me) {
            // A stopped process must not hold this one; a thread of this process comes back, or takes all down with it.
            let deadline = if self.same_process(self.members[member]) { Deadline::NEVER } else { others };
            let dead = || lock(&self.departures).contains_key(&self.members[member]);
            // Puts into a window may come at any time.
            let lanes = [lane as usize, Lane::OneSided as usize];
            let lent = || lanes.iter().any(|l| self.hub.borrows(member, *l).load(Ordering::Acquire) != 0);
            while lent() && !deadline.passed() && !dead() {
                oxccl_sys::sync::yield_now();
            }
        }
    }

    // ---- shared parts

    pub(crate) fn lock_engine(&self) -> LatchGuard<'_, Engine> {
        self.engine.lock()
    }

    pub(crate) fn try_lock_links(&self) -> Option<LatchGuard<'_, Links>> {
        self.links.try_lock()
    }

    pub(crate) fn lock_links(&self) -> LatchGuard<'_, Links> {
        self.links.lock()
    }

    /// What maps memory of peers for the connections of `lane`: one for sends and receives, and one for collectives, since each
    /// unmaps what was given back when it maps, and the two may move on different threads.
    pub(crate) fn mapper(&self, lane: usize) -> SharedMapper {
        // Set in `new`.
        match self.mappers.get() {
            Some(mappers) => mappers[usize::from(lane != P2P_LANE)].clone(),
            None => Arc::new(DeviceMapper::new(std::sync::Weak::new(), self.ranks)),
        }
    }

    /// The same with their own functions.
    pub(super) fn device_mappers(&self) -> impl Iterator<Item = &Arc<DeviceMapper>> {
        self.mappers.get().into_iter().flatten()
    }

    pub(crate) fn limits(&self) -> Bound<'_> {
        Bound { deadline: Deadline::after(self.config.init_timeout), abort: &self.abort }
    }

    /// The same for what an operation sets up on its way: not longer than it may stand still.
    pub(crate) fn limits_on_the_way(&self) -> Bound<'_> {
        Bound { deadline: self.deadline_on_the_way(), abort: &self.abort }
    }

    fn deadline_on_the_way(&self) -> Deadline {
        let most = self.config.init_timeout;
        Deadline::after(self.config.op_timeout.map_or(most, |t| t.min(most)))
    }

    pub(crate) fn same_process(&self, rank: usize) -> bool {
        self.peers[rank].process == self.peers[self.rank].process
    }

    /// Whether `rank` is known to run on this machine, be it in a container of its own.
    pub(crate) fn on_one_machine(&self, rank: usize) -> bool {
        super::init::on_one_machine(&self.peers[self.rank], &self.peers[rank])
    }

    /// The stream that rank `from` opened for `purpose`, if it has arrived.
    pub(crate) fn take_stream(&self, from: u32, purpose: u8) -> Option<TcpStream> {
        self.take_first(purpose, |rank| rank == from).map(|(_, stream)| stream)
    }

    /// The first stream for `purpose` that has arrived from a rank that is `wanted`, and that rank.
    pub(super) fn take_first(&self, purpose: u8, wanted: impl Fn(u32) -> bool) -> Option<(u32, TcpStream)> {
        let mut strays = lock(&self.strays);
        while let Some(incoming) = self.inbox.poll() {
            strays.push((incoming.from, incoming.purpose, incoming.stream));
        }
        let at = strays.iter().position(|(from, p, _)| *p == purpose && wanted(*from))?;
        // In their order: one rank may have sent for one meeting after another.
        let (from, _, stream) = strays.remove(at);
        Some((from, stream))
    }

    /// The stream for `purpose` to rank `to`, which is called until it answers; `None` until then.
    ///
    /// # Errors
    /// `RemoteError` when it cannot be reached, or does not answer before an operation may stand still no longer.
    pub(crate) fn call_for_stream(&self, to: u32, purpose: u8) -> Result<Option<TcpStream>> {
        let mut calls = lock(&self.calls);
        let at = calls.iter().position(|(called, _)| *called == (to, purpose)).unwrap_or_else(|| {
            let deadline = self.deadline_on_the_way();
            let route = Route { comm_hash: self.hash, from: self.rank as u32, to, purpose };
            calls.push(((to, purpose), Dial::new(&self.peers[to as usize].tcp, &self.key, route, deadline)));
            calls.len() - 1
        });
        let call = &mut calls[at].1;
        let answer = call.poll();
        if !matches!(answer, Ok(None)) {
            calls.swap_remove(at);
        } else if let Some(socket) = call.socket() {
            self.wake_by(socket);
        }
        answer
    }

    /// Waits, within `limits`, until another stream has arrived for [`Core::take_stream`].
    pub(super) fn wait_stream(&self, limits: Limits<'_>) {
        if let Ok(incoming) = self.inbox.wait(&limits) {
            lock(&self.strays).push((incoming.from, incoming.purpose, incoming.stream));
        }
    }

    // ---- waking

    pub(crate) fn bell(&self) -> Doorbell {
        self.hub.bell(self.me)
    }

    /// The same, for who may outlive the communicator.
    pub(crate) fn kept_bell(&self) -> Doorbell {
        self.hub.kept_bell(self.me)
    }

    /// What a task of this communicator parks on; `None` where bytes come by the network, see [`Core::park`].
    pub(crate) fn park_bell(&self) -> Option<Doorbell> {
        self.whole.then(|| self.kept_bell())
    }

    /// Blocks until a connection of this rank has news, at most for a short time: neighbours that share memory, and
    /// whoever aborts, are not heard here.
    pub(crate) fn park(&self, timeout: Duration) {
        let timeout = timeout.min(NAP);
        let Some(set) = &self.sockets else { return oxccl_sys::sync::yield_now() };
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 16];
        // Edges: what arrived since the last look is reported at once, and only once. An error only costs the nap.
        let _ = epoll::wait(set, &mut events[..], Timespec::try_from(timeout).ok().as_ref());
    }

    /// Lets `stream`, which this rank will poll, end its parks.
    pub(crate) fn wake_by(&self, stream: impl AsFd) {
        if let Some(set) = &self.sockets {
            let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            // Closing the stream takes it out again.
            let _ = epoll::add(set, stream, epoll::EventData::new_u64(0), edges);
        }
    }

    /// Wakes `rank` if it shares the hub; elsewhere the bytes themselves wake it.
    pub(crate) fn ring(&self, rank: usize) {
        let member = self.member_of[rank];
        if member != usize::MAX {
            self.hub.ring(member);
        }
    }

    /// Tells every rank of the communicator that it has failed.
    pub(crate) fn spread(&self, error: &Error) {
        // First: a thread of this rank that finds the hub poisoned may leave the ring at once.
        if let Some(ring) = lock(&self.control).as_ref() {
            ring.announce(&News::Error { rank: self.rank, code: error.code, text: error.text.clone() });
        }
        self.hub.poison(error);
    }

    /// The communicator has failed on this rank. The first error stays and is logged.
    pub(crate) fn fail(&self, error: &Error) {
        if self.is_revoked() {
            // Not a failure: what was under way ends as the revocation asked.
            return;
        }
        let first = self.failure.set(error.clone()).is_ok();
        self.status.fetch_or(FAILED, Ordering::AcqRel);
        // Behind that: whoever reads the log may take long.
        if first {
            log::warn(&error.text);
        }
    }

    fn trouble(&self, bit: u32) {
        self.trouble_ns.store(clock::now_ns(), Ordering::Release);
        self.status.fetch_or(bit, Ordering::AcqRel);
        self.bell().ring();
    }

    /// Ends what is under way on this rank and tells the others.
    pub(super) fn raise_abort(&self) {
        self.end_operations(ABORTED, Presence::Aborted, "aborted its communicator; abort or destroy it here too");
        self.children.halt();
    }

    /// Ends what is under way on this rank for good and tells the others. The communicator can still be the parent of
    /// new ones, and be destroyed.
    pub(super) fn revoke(&self) {
        self.end_operations(
            REVOKED,
            Presence::Revoked,
            "revoked its communicator; revoke, abort or destroy it here too",
        );
    }

    /// Whether [`Core::revoke`] was called.
    pub(super) fn is_revoked(&self) -> bool {
        self.status.load(Ordering::Acquire) & REVOKED != 0
    }

    fn end_operations(&self, status: u32, presence: Presence, did: &str) {
        self.status.fetch_or(status, Ordering::AcqRel);
        self.abort.store(true, Ordering::Release);
        self.hub.set_presence(self.me, presence);
        if let Some(ring) = lock(&self.control).as_ref() {
            ring.announce(&News::Ended { rank: self.rank, text: format!("rank {} {did}", self.rank) });
        }
        for member in 0..self.members.len() {
            self.hub.bell(member).ring();
        }
    }

    /// Waits, for a bounded time, until the peers of finished calls are known to have made the same call. A late peer is
    /// no error: its own call will find a mismatch.
    pub(super) fn settle(&self) -> Result<()> {
        let deadline = Deadline::after(SETTLE_GRACE);
        let mut waiter = Waiter::new(true);
        loop {
            if let Some(result) = Settle::poll(self) {
                return result;
            }
            if assist_any() {
                continue;
            }
            if let Turn::Park(timeout) = waiter.turn() {
                if deadline.passed() {
                    return Ok(());
                }
                let mut found = None;
                self.bell().park_unless(timeout, || {
                    found = Settle::poll(self);
                    found.is_some()
                });
                if let Some(result) = found {
                    return result;
                }
            }
        }
    }

    /// Waits, for a bounded time, until the peers have read what was sent over the network: closing a connection may
    /// destroy what is on its way.
    pub(super) fn deliver(&self) {
        let deadline = Deadline::after(DELIVER);
        let mut waiter = Waiter::new(true);
        while self.check().is_ok() && !deadline.passed() {
            let collectives = self.engine.lock().closable();
            if collectives && self.links.lock().closable() && self.windows.delivered(|_| false) {
                return;
            }
            self.wait_for_sockets(&mut waiter);
        }
    }

    /// A turn of a wait for what comes over the network.
    fn wait_for_sockets(&self, waiter: &mut Waiter) {
        if let Turn::Park(timeout) = waiter.turn() {
            self.park(timeout);
        }
        assist_any();
    }

    /// Waits until all puts of this rank that its stream has carried out are in their places, also on other hosts; those to ranks that have
    /// gone are not waited for.
    pub(super) fn puts_delivered(&self) -> Result<()> {
        let deadline = self.config.op_timeout.map_or(Deadline::NEVER, Deadline::after);
        let mut waiter = Waiter::new(true);
        while !self.windows.delivered(|rank| self.has_departed(rank)) {
            self.check()?;
            if deadline.passed() {
                let limit = self.config.op_timeout.unwrap_or_default().as_secs();
                let rank = self.rank;
                let text = format!("puts of rank {rank} have not arrived within {limit} s (OXCCL_OP_TIMEOUT)");
                return Err(Error::remote(text));
            }
            self.wait_for_sockets(&mut waiter);
        }
        Ok(())
    }

    /// Says goodbye: from here on nobody needs this rank.
    pub(super) fn leave(&self) {
        if self.status.load(Ordering::Acquire) & ABORTED == 0 {
            self.hub.set_presence(self.me, Presence::Left);
        }
        if let Some(ring) = lock(&self.control).take() {
            ring.leave();
        }
        for watch in std::mem::take(&mut *lock(&self.watches)) {
            watch.forget(self);
        }
        lock(&self.calls).clear();
        self.windows.close();
        if !self.left.swap(true, Ordering::AcqRel) {
            self.family.leave();
        }
    }
}
