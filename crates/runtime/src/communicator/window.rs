//! Windows: memory of every rank of a communicator under one handle, and the state of one-sided calls.
//!
//! Ranks register together: each says where its part lies, maps the parts of the ranks that share memory with it
//! (`flat`), and all learn whether all could. Parts of ranks elsewhere are reached over connections; what arrives there
//! is written by the target's service thread. The tasks that move data are in `exec::one_sided`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oxccl_sys::Belfry;
use oxccl_sys::sync::{AtomicU64, Ordering};
use oxccl_types::{Error, Result, ResultCode};

use super::core::Core;
use super::flat::{Flat, Piece};
use super::hub::{CONTEXTS, SIGNALS};
use super::team::{Team, lsa_size, teams};
use super::{Communicator, FINALIZED, Job};
use crate::service::{Incoming, WatchGuard};
use crate::transport::Peer;
use crate::transport::put::{self, Frame, Landing, Place, Progress, PutReceiver, PutSender};
use crate::{device, group, log};

/// Windows start at multiples of this (`NCCL_WIN_REQUIRED_ALIGNMENT`).
const ALIGNMENT: usize = 4096;
/// The purpose of connections that carry puts.
pub(crate) const PUTS: u8 = 252;
/// Between looks at the abort flag.
const LOOK: Duration = Duration::from_millis(20);

/// Gets the window when it is there, `None` where the memory of a rank cannot be mapped by its peers.
pub type WindowDone = Box<dyn FnOnce(Option<Arc<Window>>) + Send>;

/// Memory of every rank of a communicator; one rank's view of it.
#[derive(Debug)]
pub struct Window {
    pub(crate) id: u64,
    comm: u64,
    rank: usize,
    user: *mut u8,
    bytes: usize,
    flags: u32,
    /// By rank: bytes of its part.
    sizes: Vec<u64>,
    member_of: Vec<usize>,
    pub(crate) flat: Arc<Flat>,
    lsa: Team,
}

// SAFETY: the pointers are only handed on; the memory behind them belongs to the user and to all who map it.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// The address that this rank registered.
    pub fn user_ptr(&self) -> *mut u8 {
        self.user
    }
    /// Bytes of this rank's part.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// The flags that this rank gave.
    pub fn flags(&self) -> u32 {
        self.flags
    }
    /// Bytes of the part of `rank`.
    pub fn size_of(&self, rank: usize) -> u64 {
        self.sizes[rank]
    }
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.sizes.len()
    }
    /// This rank in the communicator.
    pub fn rank(&self) -> usize {
        self.rank
    }
    /// The LSA team of this rank.
    pub fn lsa_team(&self) -> Team {
        self.lsa
    }
    /// Bytes between the parts of neighbours in the LSA team: a multiple of 4 GiB.
    pub fn stride(&self) -> usize {
        self.flat.stride()
    }

    /// The rank, in the communicator, of rank `lsa_rank` of the LSA team; `None` outside of the team.
    pub fn rank_of_lsa(&self, lsa_rank: usize) -> Option<usize> {
        (lsa_rank < self.lsa.ranks).then(|| self.rank - self.lsa.rank + lsa_rank)
    }

    /// Where the part of rank `lsa_rank` of the LSA team lies in this process; `None` outside of the team.
    pub fn lsa_part(&self, lsa_rank: usize) -> Option<*mut u8> {
        self.rank_of_lsa(lsa_rank).map(|rank| self.flat.part(self.member_of[rank]))
    }

    /// As [`Window::lsa_part`], by rank of the communicator.
    pub fn peer_part(&self, rank: usize) -> Option<*mut u8> {
        let first = self.rank - self.lsa.rank;
        rank.checked_sub(first).and_then(|lsa_rank| self.lsa_part(lsa_rank))
    }

    /// Where the part of `rank` lies in this process, if the two share memory.
    pub(crate) fn part(&self, rank: usize) -> Option<*mut u8> {
        let member = self.member_of[rank];
        (member != usize::MAX).then(|| self.flat.part(member))
    }

    /// Whether `core` registered it.
    pub(crate) fn is_of(&self, core: &Core) -> bool {
        (self.comm, self.rank) == (core.hash, core.rank)
    }
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registrations of one rank run in the order of the calls, whichever threads run them.
#[derive(Default)]
struct Order {
    tickets: Mutex<(u64, BTreeSet<u64>)>,
    passed: Condvar,
}

/// A place in the order, which is the number of the registration on all ranks; given up when dropped, and never taken again.
struct Turn(Arc<Core>, u64);

impl Turn {
    fn take(core: &Arc<Core>) -> Turn {
        let mut tickets = locked(&core.windows.order.tickets);
        tickets.0 += 1;
        let mine = tickets.0;
        tickets.1.insert(mine);
        Turn(core.clone(), mine)
    }

    /// Waits until those before it are over; not longer than until an abort.
    fn wait(&self) {
        let order = &self.0.windows.order;
        let mut tickets = locked(&order.tickets);
        while tickets.1.first() != Some(&self.1) && !self.0.is_aborted() {
            tickets = order.passed.wait_timeout(tickets, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let order = &self.0.windows.order;
        locked(&order.tickets).1.remove(&self.1);
        order.passed.notify_all();
    }
}

type Counters = Box<[AtomicU64; CONTEXTS * SIGNALS]>;

/// What one-sided calls need of a rank of a communicator.
#[derive(Default)]
pub(crate) struct Windows {
    order: Order,
    /// The windows that are registered now, by number: where puts from elsewhere go.
    table: Mutex<HashMap<u64, (Arc<Flat>, u64)>>,
    /// By rank: signals that came over a connection.
    arrived: OnceLock<Vec<OnceLock<Counters>>>,
    /// Signals of a rank that calls so far wait for, all in all.
    awaited: Mutex<HashMap<(usize, usize), u64>>,
    /// Connections for puts to ranks elsewhere.
    pub(crate) out: Mutex<HashMap<usize, PutSender>>,
    incoming: Mutex<Vec<WatchGuard>>,
    owners: AtomicU64,
}

impl Windows {
    /// A number that no other task has.
    pub(crate) fn owner(&self) -> u64 {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The count that `count` more signals `word` of `rank` will reach, after those that calls wait for already.
    pub(crate) fn expect(&self, rank: usize, word: usize, count: u64) -> u64 {
        let mut awaited = locked(&self.awaited);
        let total = awaited.entry((rank, word)).or_default();
        *total = total.saturating_add(count);
        *total
    }

    fn counter(&self, ranks: usize, rank: usize, word: usize) -> &AtomicU64 {
        let all = self.arrived.get_or_init(|| (0..ranks).map(|_| OnceLock::new()).collect());
        &all[rank].get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))[word]
    }

    /// Whether every put to ranks elsewhere has been applied there; those that never will be count as well, also to ranks that `gone` says
    /// are.
    pub(super) fn delivered(&self, gone: impl Fn(usize) -> bool) -> bool {
        locked(&self.out).iter_mut().all(|(rank, end)| end.poll_applied().unwrap_or(true) || gone(*rank))
    }

    /// Nothing goes out and nothing comes in any more.
    pub(super) fn close(&self) {
        locked(&self.table).clear();
        let incoming = std::mem::take(&mut *locked(&self.incoming));
        drop(incoming);
        locked(&self.out).clear();
    }
}

/// Who hands frames of a peer to their windows.
struct FromPeer<'a>(&'a Core, usize);

impl Landing for FromPeer<'_> {
    fn place(&self, frame: &Frame) -> Result<Place> {
        let FromPeer(core, from) = *self;
        let found = locked(&core.windows.table).get(&frame.window).cloned();
        let Some((flat, bytes)) = found else {
            return Err(Error::usage(format!(
                "rank {from} put {} bytes into a window that rank {} has deregistered; every rank must be done with a \
                 window before one deregisters it",
                frame.bytes, core.rank
            )));
        };
        if frame.offset.checked_add(frame.bytes).is_none_or(|end| end > bytes) {
            return Err(Error::internal(format!(
                "rank {from} put {} bytes at offset {} into the window of rank {}, which has {bytes} bytes",
                frame.bytes, frame.offset, core.rank
            )));
        }
        Ok(Place { at: flat.part(core.me).wrapping_add(frame.offset as usize), _keep: flat })
    }

    fn raise(&self, signal: u64) {
        let FromPeer(core, from) = *self;
        if let Some(word) = usize::try_from(signal).ok().filter(|w| *w < CONTEXTS * SIGNALS) {
            // SYNC: signal
            core.windows.counter(core.ranks, from, word).fetch_add(1, Ordering::Release);
            core.bell().ring();
        }
    }
}

impl Core {
    /// How often `from` has raised signal `word` of this rank.
    pub(crate) fn signals(&self, from: usize, word: usize) -> u64 {
        match self.member_of[from] {
            // SYNC: signal
            usize::MAX => self.windows.counter(self.ranks, from, word).load(Ordering::Acquire),
            // SYNC: signal
            member => self.hub.signal(self.me, member, word).load(Ordering::Acquire),
        }
    }

    /// Raises signal `word` of `rank`, which shares memory with this one; what was written before is seen by who sees it.
    pub(crate) fn raise(&self, rank: usize, word: usize) {
        let member = self.member_of[rank];
        // SYNC: signal
        self.hub.signal(member, self.me, word).fetch_add(1, Ordering::Release);
        self.hub.ring(member);
    }

    pub(crate) fn peer_of(&self, rank: usize) -> Peer {
        let info = &self.peers[rank];
        Peer { rank: rank as u32, place: format!("host {}, process {}", info.host, info.pid) }
    }

    /// From here on connections for puts are served.
    pub(super) fn accept_puts(self: &Arc<Core>) {
        let weak = Arc::downgrade(self);
        let take = move |incoming: Incoming| {
            let from = incoming.from as usize;
            if let Some(core) = weak.upgrade()
                && let Err(e) = core.take_puts(incoming)
            {
                core.puts_failed(from, &e);
            }
        };
        self.inbox.divert(PUTS, Box::new(take));
    }

    fn take_puts(self: &Arc<Core>, incoming: Incoming) -> Result<()> {
        let from = incoming.from as usize;
        if from >= self.ranks {
            return Ok(());
        }
        let fd = put::watched(&incoming.stream)
            .map_err(|e| Error::system(format!("cannot watch the connection of rank {from}: {e}")))?;
        let receiver = Mutex::new(PutReceiver::new(incoming.stream, self.peer_of(from)));
        let weak = Arc::downgrade(self);
        let ready = move || {
            let Some(core) = weak.upgrade() else { return false };
            match locked(&receiver).advance(&FromPeer(&core, from)) {
                Ok(Progress::More) => true,
                Ok(Progress::Closed) => {
                    core.on_silence(from, "it closed its connection for one-sided calls");
                    false
                }
                Err(e) => {
                    core.puts_failed(from, &e);
                    false
                }
            }
        };
        let guard = self.inbox.service().watch_readable(fd, ready)?;
        locked(&self.windows.incoming).push(guard);
        Ok(())
    }

    /// The connection of `from` for puts to this rank cannot go on.
    fn puts_failed(&self, from: usize, error: &Error) {
        if error.code == ResultCode::RemoteError {
            // Its end is perhaps that of its process, which says more.
            self.suspect(from, error);
        } else {
            self.spread(error);
            self.fail(error);
            self.bell().ring();
        }
    }
}

/// What a rank says of the memory that it registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Piece(Piece),
    /// Not memory of this library.
    Foreign,
}

impl Offer {
    const BYTES: usize = 21;

    fn encode(self) -> Vec<u8> {
        let (kind, p) = match self {
            Offer::Piece(p) => (1, p),
            Offer::Foreign => (0, Piece { segment: 0, offset: 0, bytes: 0 }),
        };
        [&[kind][..], &p.segment.to_le_bytes(), &p.offset.to_le_bytes(), &p.bytes.to_le_bytes()].concat()
    }

    fn decode(said: &[u8]) -> Option<Offer> {
        let said: &[u8; Offer::BYTES] = said.try_into().ok()?;
        let piece = Piece {
            segment: u32::from_le_bytes(said[1..5].try_into().ok()?),
            offset: u64::from_le_bytes(said[5..13].try_into().ok()?),
            bytes: u64::from_le_bytes(said[13..].try_into().ok()?),
        };
        Some(if said[0] == 1 { Offer::Piece(piece) } else { Offer::Foreign })
    }
}

/// Where `bytes` bytes at `address` lie. `InvalidArgument` for a part of our memory that cannot be a window.
fn offer(address: usize, bytes: usize) -> Result<Offer> {
    let Some(allocation) = device::allocation(address) else { return Ok(Offer::Foreign) };
    if !address.is_multiple_of(ALIGNMENT) {
        return Err(Error::argument(format!(
            "Window address must be suitably aligned. {address:#x} is not a multiple of {ALIGNMENT} \
             (NCCL_WIN_REQUIRED_ALIGNMENT)"
        )));
    }
    if address.checked_add(bytes).is_none_or(|end| end > allocation.base + allocation.bytes) {
        return Err(Error::argument(format!(
            "a window of {bytes} bytes at {address:#x} is longer than its allocation ({} bytes at {:#x}); a window lies in \
             one allocation",
            allocation.bytes, allocation.base
        )));
    }
    let at = device::exported(address, bytes).ok_or_else(|| Error::internal("an allocation without a segment"))?;
    Ok(Offer::Piece(Piece { segment: at.segment, offset: at.offset, bytes: bytes as u64 }))
}

impl Communicator {
    /// Registers `bytes` bytes at `at` as this rank's part of a window. All ranks call it, in the same order; they may
    /// give different lengths. `flags` are kept. The window goes to `done`: before this returns, at the end of the group,
    /// or later (nonblocking). It is `None` on all ranks when a rank gave memory that its peers cannot map.
    ///
    /// # Errors
    /// `InvalidArgument` when the communicator is not ready, or on all ranks when one gave part of an allocation that is
    /// not aligned to 4096 bytes or ends outside; `RemoteError` when a rank is gone or does not come.
    pub fn register_window(self: &Arc<Self>, at: *mut u8, bytes: usize, flags: u32, done: WindowDone) -> Result<()> {
        let core = self.usable_for_windows("WindowRegister")?.clone();
        if !core.config.windows {
            done(None);
            return Ok(());
        }
        let (comm, turn, user) = (self.clone(), Turn::take(&core), at.expose_provenance());
        let run = move || {
            turn.wait();
            let window = comm.make_window(&core, turn.1, user, bytes, flags);
            drop(turn);
            window.inspect_err(|e| log::warn(&e.text)).map(done)
        };
        // A failure elsewhere in the group must not keep this rank from the meeting: the others count on the numbers of
        // windows and meetings. Aborts and deaths are heard there.
        group::manage_before_operations(Job { comm: self.clone(), halt: Arc::default(), run: Box::new(run) })
    }

    /// Waits until all puts that this rank's streams have carried out are in their places, also on other hosts, where a barrier may
    /// be heard of before.
    ///
    /// # Errors
    /// The communicator has failed or was aborted; `RemoteError` after `OXCCL_OP_TIMEOUT`.
    pub fn puts_delivered(&self) -> Result<()> {
        self.core()?.puts_delivered()
    }

    /// Whether windows are made at all (`NCCL_WIN_ENABLE` of rank 0).
    pub fn has_windows(&self) -> bool {
        self.core.get().is_some_and(|core| core.config.windows)
    }

    fn usable_for_windows(&self, call: &str) -> Result<&Arc<Core>> {
        self.ensure_ready()?;
        let core = self.core()?;
        if self.state.load(Ordering::Acquire) >= FINALIZED {
            return Err(Error::argument(format!("{call}: the communicator was finalized or destroyed")));
        }
        if core.is_revoked() {
            return Err(Error::usage(format!("{call}: communicator was revoked")));
        }
        Ok(core)
    }

    fn make_window(
        self: &Arc<Self>,
        core: &Arc<Core>,
        id: u64,
        user: usize,
        bytes: usize,
        flags: u32,
    ) -> Result<Option<Arc<Window>>> {
        let offered = offer(user, bytes);
        let said = offered.as_ref().map_or(Vec::new(), |o| o.encode());
        let made = self.agree(&self.window_meeting(id), said, |all| {
            offered?;
            let offers = read_offers(core, all)?;
            if let Some(rank) = offers.iter().position(|o| *o == Offer::Foreign) {
                log::info(
                    log::Subsys::INIT,
                    &format!(
                        "rank {rank} registers a window of memory that its peers cannot map (not of ncclMemAlloc or \
                         cudaMalloc): no window is made"
                    ),
                );
                return Ok(None);
            }
            let piece = |o: &Offer| match o {
                Offer::Piece(p) => *p,
                Offer::Foreign => Piece { segment: 0, offset: 0, bytes: 0 },
            };
            let pieces: Vec<Piece> = core.members.iter().map(|r| piece(&offers[*r])).collect();
            let flat = Flat::of(core, id, &pieces)?;
            locked(&core.windows.table).insert(id, (flat.clone(), bytes as u64));
            let sizes = offers.iter().map(|o| piece(o).bytes).collect();
            Ok(Some((flat, sizes)))
        });
        let made = made.inspect_err(|_| {
            locked(&core.windows.table).remove(&id);
        })?;
        Ok(made.map(|(flat, sizes)| {
            Arc::new(Window {
                id,
                comm: core.hash,
                rank: core.rank,
                user: std::ptr::with_exposed_provenance_mut(user),
                bytes,
                flags,
                sizes,
                member_of: core.member_of.clone(),
                flat,
                lsa: self.lsa_of(core).0,
            })
        }))
    }

    /// Gives a window back, on this rank: later calls with it are refused, those under way end as they would. Every rank
    /// must be done with its calls on the window before one gives it back.
    ///
    /// # Errors
    /// `InvalidArgument` when it is none of this communicator's, or was given back before.
    pub fn deregister_window(&self, window: &Window) -> Result<()> {
        let core = self.core()?;
        let known = window.is_of(core) && locked(&core.windows.table).remove(&window.id).is_some();
        if known || (window.is_of(core) && self.state.load(Ordering::Acquire) >= FINALIZED) {
            return Ok(());
        }
        Err(Error::argument(
            "WindowDeregister : the window belongs to another communicator, or was deregistered before",
        ))
    }

    /// Whether the window can be used with this communicator.
    pub(crate) fn has_window(&self, core: &Core, window: &Window) -> bool {
        window.is_of(core) && locked(&core.windows.table).contains_key(&window.id)
    }

    fn lsa_of(&self, core: &Core) -> (Team, Team) {
        teams(core.rank, core.ranks, lsa_size(&core.node_of, core.config.lsa_team))
    }

    /// The ranks around this one that reach each other's windows by loads and stores, and one rank of each such team.
    ///
    /// # Errors
    /// While the communicator is not ready.
    pub fn lsa_and_rail(&self) -> Result<(Team, Team)> {
        Ok(self.lsa_of(self.core()?))
    }

    /// All ranks.
    pub fn world(&self) -> Team {
        Team { ranks: self.ranks, rank: self.rank, stride: 1 }
    }

    /// Contexts of one-sided calls: what the configuration asked for, at least 1 and at most 8.
    pub fn rma_contexts(&self) -> usize {
        let asked = self.settings.num_rma_ctx.unwrap_or(1);
        usize::try_from(asked).unwrap_or(1).clamp(1, CONTEXTS)
    }

    /// Signals per context.
    pub fn signals_per_context() -> usize {
        SIGNALS
    }
}

fn read_offers(core: &Core, all: &[Vec<u8>]) -> Result<Vec<Offer>> {
    if let Some(rank) = all.iter().position(Vec::is_empty) {
        return Err(Error::argument(format!(
            "rank {rank} of {} gave memory that cannot be a window: its own error says why",
            core.ranks
        )));
    }
    let offers: Option<Vec<Offer>> = all.iter().map(|said| Offer::decode(said)).collect();
    offers.ok_or_else(|| Error::internal("an offer for a window that cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_read_back() {
        for o in [Offer::Foreign, Offer::Piece(Piece { segment: 7, offset: 1 << 40, bytes: 99 })] {
            assert_eq!(Offer::decode(&o.encode()), Some(o));
        }
        assert_eq!(Offer::decode(&[1, 2]), None);
    }

    #[test]
    fn only_aligned_parts_of_one_allocation_are_offered() {
        let at = device::alloc(3 * 4096).unwrap() as usize;
        assert!(matches!(offer(at, 3 * 4096), Ok(Offer::Piece(p)) if p.bytes == 3 * 4096));
        assert!(matches!(offer(at + 4096, 1), Ok(Offer::Piece(_))));
        assert!(offer(at + 8, 8).unwrap_err().text.contains("Window address must be suitably aligned."));
        assert!(offer(at, 3 * 4096 + 1).is_err());
        assert_eq!(offer([0_u8; 8].as_ptr() as usize, 8).unwrap(), Offer::Foreign);
        // SAFETY: nobody uses it.
        unsafe { device::free(at as *mut u8).unwrap() };
    }
}
