//! The connections of one communicator: opened on first use, one per peer, lane and direction.
//!
//! Peers that share the hub talk through its areas, others over a TCP stream for both directions: the lower rank dials,
//! the other finds the stream in its inbox. All of it is polled; the call of a peer that does not answer fails after a bounded time.

use std::sync::{Arc, Mutex, PoisonError};

use oxccl_types::{Collective, Error, Result};

use super::imports::Imports;
use super::p2p::Exchange;
use super::run::Run;
use crate::communicator::core::{Core, POOL};
use crate::config::Config;
use crate::device::{Exporter, SEGMENT_BITS, withdrawn};
use crate::pages::Pages;
use crate::transport::local::{
    Exported, LocalArea, LocalReceiver, LocalReceiverOptions, LocalSender, Mapper, Policy, Route, Sizes,
};
use crate::transport::passage::READ_AHEAD;
use crate::transport::tcp::{TcpEnd, TcpOptions};
use crate::transport::{Peer, RecvEnd, SendEnd};

/// Slots of a connection.
const SLOTS: usize = 8;
/// The same of a channel where some ranks share memory and others do not, since pieces are longer there than slots.
const MIXED_SLOTS: usize = 16;
/// The same for sends and receives where ranks share cores: half as many as messages are received together, since more would
/// leave the caches.
const CROWDED_SLOTS: usize = BEHIND / 2;
/// Of more ranks the connections would take too much memory by that.
const CROWDED_SLOTS_RANKS: usize = 16;
/// Messages that may be under way on a connection where ranks share cores, if they are small: twice as many as are received
/// together, since who runs takes what was sent to it and sends as much ahead.
const RECORDS: usize = 2 * BEHIND;
/// The same of more ranks.
const RECORDS_OF_MANY: usize = BEHIND;
/// The same where they do not: the receiver's count is read once a round of them.
const RECORDS_APART: usize = 32;
/// Bytes of a message up to which it goes by a small slot where stores wait long for lines that another core has, see
/// [`oxccl_kernels::waits_for_lines`]: who reads it does not ask for the next slot, which the sender is about to write. And where those
/// lines travel, see [`Core::trades_lines`]: more lines than a core asks for at a time cost twice as much (measured, docs/performance.md).
const SMALL_APART: usize = Sizes::SMALL - READ_AHEAD - 64;
/// Sends, and receives, that wait together where ranks share cores, see `trail`; and calls of which one is such an exchange.
pub(super) const BEHIND: usize = 64;

/// How many times longer slots are where two copies by way of one are faster than the kernel's single copy at any length: what
/// is in a slot goes to the other core at once, and each start costs.
const LONG_SLOTS: usize = 4;

/// Bytes of a slot of a local connection. `short`: as they were asked for, since ranks share cores or memory is dear.
pub(crate) fn local_slot_bytes(config: &Config, ranks: usize, short: bool) -> usize {
    let long = !short && config.constants.model.kernel_from().is_none();
    // Of two ranks there is one pair, and its connections may take more memory.
    let times = if ranks == 2 { 2 } else { 1 };
    let most = (times * LONGEST_SLOT).max(config.slot_bytes);
    if long { (times * LONG_SLOTS * config.slot_bytes).min(most) } else { config.slot_bytes }
}

/// Slots are made longer up to this, of two ranks up to twice this.
const LONGEST_SLOT: usize = 128 << 10;

/// Slots of a channel's connection; `mixed`: some ranks share memory, and others do not. Slots that are four times as long need be no more.
pub(crate) const fn channel_slots(config: &Config, slot_bytes: usize, mixed: bool) -> usize {
    if mixed && slot_bytes < LONG_SLOTS * config.slot_bytes { MIXED_SLOTS } else { SLOTS }
}

/// The sizes of a local connection on `lane` among so many ranks; `crowded` and `channel_slots` as in the geometry of the hub.
const fn sizes(slot_bytes: usize, crowded: bool, ranks: usize, channel_slots: usize, lane: usize) -> Sizes {
    let many = crowded && lane == P2P_LANE && ranks <= CROWDED_SLOTS_RANKS;
    let slots = match lane {
        _ if many => CROWDED_SLOTS,
        CHANNEL_LANE.. => channel_slots,
        _ => SLOTS,
    };
    let records = match crowded {
        false => RECORDS_APART,
        true if ranks <= CROWDED_SLOTS_RANKS => RECORDS,
        true => RECORDS_OF_MANY,
    };
    Sizes { slots, slot_bytes, records, small: Sizes::SMALL }
}

/// Bytes of a message up to which it goes by a small slot. `apart`: all who share memory find that stores wait for lines which
/// another core has, or that these travel.
pub(crate) const fn small_bytes(apart: bool) -> usize {
    if apart { SMALL_APART } else { Sizes::SMALL }
}

/// The geometry of the hub knows one lane of its own size, the first.
const _: () = assert!(P2P_LANE == 0);

/// Bytes of one local connection, of sends and receives and of any other lane.
pub(crate) const fn lane_bytes(slot_bytes: usize, crowded: bool, ranks: usize, channel_slots: usize) -> [usize; 2] {
    [
        LocalArea::bytes(sizes(slot_bytes, crowded, ranks, channel_slots, P2P_LANE)),
        // No other has more.
        LocalArea::bytes(sizes(slot_bytes, crowded, ranks, channel_slots, CHANNEL_LANE)),
    ]
}

/// Ends of one kind: by lane, then by peer. A lane has a place per rank from its first use on.
struct Ends<E: ?Sized> {
    lanes: Vec<Vec<Option<Box<E>>>>,
    /// Lane and peer of those that are open.
    open: Vec<(usize, u32)>,
}

/// Makes the end of a peer on a lane; `None` while the peer has not connected yet.
type Open<E> = fn(&Core, u32, usize) -> Result<Option<Box<E>>>;

impl<E: ?Sized> Default for Ends<E> {
    fn default() -> Ends<E> {
        Ends { lanes: Vec::new(), open: Vec::new() }
    }
}

impl<E: ?Sized> Ends<E> {
    /// The end of `peer` on `lane`, which `open` makes if it can.
    #[inline(always)]
    fn get(&mut self, core: &Core, peer: u32, lane: usize, open: Open<E>) -> Result<Option<&mut E>> {
        let missing = self.lanes.get(lane).and_then(|l| l.get(peer as usize)).is_none_or(Option::is_none);
        if missing {
            let Some(end) = open(core, peer, lane)? else { return Ok(None) };
            self.keep(core, peer, lane, end);
        }
        Ok(self.lanes[lane][peer as usize].as_deref_mut())
    }

    #[cold]
    fn keep(&mut self, core: &Core, peer: u32, lane: usize, end: Box<E>) {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, Vec::new);
        }
        self.lanes[lane].resize_with(core.ranks, || None);
        self.lanes[lane][peer as usize] = Some(end);
        self.open.push((lane, peer));
    }
}

/// A sending end, whatever its way.
pub(crate) type Sender = dyn SendEnd + 'static;
/// A receiving end, whatever its way.
pub(crate) type Receiver = dyn RecvEnd + 'static;

/// The open connections of one communicator.
#[derive(Default)]
pub(crate) struct Links {
    send: Ends<dyn SendEnd>,
    recv: Ends<dyn RecvEnd>,
    /// Those over a network, which hold back what the kernel does not take and must be driven.
    streams: Ends<TcpEnd>,
    /// What is small may wait for the next operation, which follows at once.
    hold: bool,
    /// Something may wait.
    held: bool,
    /// What is sent waits for [`Links::let_go`].
    gather: bool,
    /// What is small waits for what the same step sends behind it.
    more: bool,
    /// The newest operation that has begun behind others.
    newest: u64,
    /// The lists of exchanges that are over, for the next ones.
    // Boxes, since tasks hold boxes.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Exchange>>,
    /// Tells which memory peers can map.
    exporter: Exporter,
    /// Buffers of which each message is but a part.
    pages: Option<Pages>,
    /// The calls that began on an idle stream where ranks share cores.
    pub(super) run: Run,
}

/// Lane of sends and receives.
pub(crate) const P2P_LANE: usize = 0;
/// Lane of collectives that only exchange user memory.
pub(crate) const EXCHANGE_LANE: usize = 1;
/// Channel `c` of collectives by messages has the lane `CHANNEL_LANE + c`.
pub(crate) const CHANNEL_LANE: usize = 2;

/// Lists of exchanges that are kept: as many as tasks of collectives are, for the same reason.
const SPARE: usize = POOL;

impl Links {
    /// Lists for an exchange on `lane`, empty.
    pub(super) fn lists(&mut self, lane: usize) -> Box<Exchange> {
        self.spare.pop().unwrap_or_else(|| Box::new(Exchange::empty(lane, 0)))
    }

    /// Keeps them, being empty again.
    pub(super) fn keep(&mut self, lists: Box<Exchange>) {
        if self.spare.len() < SPARE {
            self.spare.push(lists);
        }
    }

    /// The sending end towards `to`, opened if need be; `None` while the peer has not connected yet.
    #[inline(always)]
    pub(crate) fn sender(&mut self, core: &Core, to: u32, lane: usize) -> Result<Option<&mut Sender>> {
        if is_local(core, to) {
            return self.send.get(core, to, lane, open_sender);
        }
        if self.gather && self.must_call(core, to, lane) {
            return Ok(None);
        }
        let (hold, gather, more) = (self.hold, self.gather, self.more);
        Ok(self.streams.get(core, to, lane, open_stream)?.map(|end| {
            end.hold(hold);
            end.gather(gather);
            end.follows(more);
            end as &mut Sender
        }))
    }

    /// The receiving end from `from`; `None` while the peer has not connected yet.
    #[inline(always)]
    pub(crate) fn receiver(&mut self, core: &Core, from: u32, lane: usize) -> Result<Option<&mut Receiver>> {
        if is_local(core, from) {
            return self.recv.get(core, from, lane, open_receiver);
        }
        if self.gather && self.must_call(core, from, lane) {
            return Ok(None);
        }
        Ok(self.streams.get(core, from, lane, open_stream)?.map(|end| end as &mut Receiver))
    }

    /// As [`receiver`](Self::receiver), of a connection that is open or lies in shared memory: none is opened over a network.
    pub(super) fn receiver_at_hand(&mut self, core: &Core, from: u32, lane: usize) -> Result<Option<&mut Receiver>> {
        if is_local(core, from) || self.is_open(from, lane) { self.receiver(core, from, lane) } else { Ok(None) }
    }

    /// Whether there is a connection with `rank` over a network.
    fn is_open(&self, rank: u32, lane: usize) -> bool {
        self.streams.lanes.get(lane).and_then(|ends| ends.get(rank as usize)).is_some_and(Option::is_some)
    }

    /// Whether this rank would have to call `rank` first. An operation that begins behind others leaves that to its turn: until then it is not
    /// looked after, and who is called does not wait for long.
    fn must_call(&self, core: &Core, rank: u32, lane: usize) -> bool {
        (core.rank as u32) < rank && !self.is_open(rank, lane)
    }

    /// Drives what was accepted but not written; `true` when nothing is left, or nothing but what is held. An operation
    /// is over only then: nobody polls its connections afterwards.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<bool> {
        let Ends { lanes, open } = &mut self.streams;
        let mut done = true;
        for (lane, peer) in open {
            done &= lanes[*lane][*peer as usize].as_mut().map_or(Ok(true), |end| end.flush_or_hold(self.hold))?;
        }
        self.held = self.hold || !done;
        Ok(done)
    }

    /// Whether an operation that follows at once may take what is small along.
    pub(super) fn hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Operation `number` begins behind others: what is sent from now on waits until [`Links::let_go`], so that it goes out
    /// together, or after [`gathered`](Self::gathered) no more.
    pub(super) fn gather(&mut self, number: u64) {
        self.newest = number;
        (self.held, self.gather) = (true, true);
    }

    /// What is sent from now on does not wait.
    pub(super) fn gathered(&mut self) {
        self.gather = false;
    }

    /// Whether what is small waits from now on for what the same step sends behind it, to the same peers.
    pub(super) fn more(&mut self, more: bool) {
        self.more = more;
    }

    /// Nothing comes behind what is small on `lane`: it goes out, to all whom a connection that failed does not keep it from.
    pub(super) fn no_more(&mut self, lane: usize) -> Result<()> {
        self.more = false;
        let Ends { lanes, open } = &mut self.streams;
        let mut first = Ok(());
        for (_, peer) in open.iter().filter(|(of, _)| *of == lane) {
            first = first.and(lanes[lane][*peer as usize].as_mut().map_or(Ok(()), |end| end.no_more()));
        }
        first
    }

    /// Whether an operation has begun behind `number`.
    pub(super) fn is_followed(&self, number: u64) -> bool {
        self.newest > number
    }

    /// Whether it does.
    pub(super) fn gathers(&self) -> bool {
        self.gather
    }

    /// Whether an operation has ended that left something to the next one.
    pub(super) fn holds(&self) -> bool {
        self.hold && self.held
    }

    /// Sends what was held for an operation that did not take it along.
    #[inline]
    pub(super) fn let_go(&mut self) -> Result<()> {
        let held = self.hold || self.held;
        self.hold = false;
        if held { self.flush().map(|_| ()) } else { Ok(()) }
    }

    /// Whether all may be closed without a loss for a peer. A connection that failed has nothing to lose.
    pub(crate) fn closable(&mut self) -> bool {
        self.send.lanes.iter_mut().flatten().flatten().all(|end| end.poll_closable().unwrap_or(true))
            && self.streams.lanes.iter_mut().flatten().flatten().all(|end| end.poll_closable().unwrap_or(true))
    }
}

fn peer(core: &Core, rank: u32) -> Peer {
    let info = &core.peers[rank as usize];
    Peer { rank, place: format!("host {}, process {}", info.host, info.pid) }
}

/// Device memory of this process and of the peers, as the local transport asks for it.
pub(crate) struct DeviceMapper {
    core: std::sync::Weak<Core>,
    inner: Mutex<(Exporter, Imports)>,
}

impl DeviceMapper {
    pub(crate) fn new(core: std::sync::Weak<Core>, ranks: usize) -> DeviceMapper {
        DeviceMapper { core, inner: Mutex::new((Exporter::new(), Imports::new(ranks))) }
    }
}

impl DeviceMapper {
    /// Bytes of the peers' memory that are mapped.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1.bytes()
    }

    /// Unmaps all of it; no connection is in use.
    pub(crate) fn clear(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1.clear();
    }
}

impl Mapper for DeviceMapper {
    fn export(&self, ptr: *const u8, len: usize) -> Option<Exported> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let at = inner.0.export(ptr, len)?;
        // The bits behind the number count the segments that this process has given back.
        Some(Exported { segment: u64::from(at.segment) | withdrawn() << SEGMENT_BITS, offset: at.offset })
    }

    fn import(&self, peer: u32, at: Exported, len: usize) -> Result<*const u8> {
        let core = self.core.upgrade().ok_or_else(|| Error::internal("a connection outlived its communicator"))?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let segment = (at.segment & ((1 << SEGMENT_BITS) - 1)) as u32;
        inner.1.refresh(peer as usize, at.segment >> SEGMENT_BITS, [Some(segment), None]);
        inner.1.address(&core, peer as usize, segment, at.offset, len as u64).map(|p| p.cast_const())
    }
}

fn area(core: &Core, from: u32, to: u32, lane: usize) -> Result<LocalArea> {
    let g = core.hub.geometry();
    let base = core.hub.lane(core.member_of[from as usize], core.member_of[to as usize], lane);
    let usual = sizes(g.lane_slot, g.crowded, g.ranks, g.channel_slots, lane);
    let small = if g.crowded { usual.small } else { small_bytes(g.waits || core.trades_lines) };
    // SAFETY: the hub keeps the area mapped as long as the communicator lives, which outlives its links; it was zero
    // at the start, and only the two ends of this pair and lane use it.
    unsafe { LocalArea::new(base, g.lane_bytes(lane), Sizes { small, ..usual }) }
}

pub(super) fn is_local(core: &Core, rank: u32) -> bool {
    core.member_of[rank as usize] != usize::MAX
}

impl Links {
    /// Peers are about to give or get parts of the `bytes` bytes at `at`, `together` bytes in all: tells of them if that is so much that
    /// the kernel will copy them, as far as this rank knows, if it is private memory.
    pub(super) fn copies_parts(&mut self, core: &Core, together: u64, at: *const u8, bytes: usize) {
        let kernel = core.crowded && together >= crowd_from(core) && core.reaches;
        if kernel && self.exporter.export(at, bytes).is_none() {
            self.pages.get_or_insert_with(|| Pages::new(core.config.large_pages)).used(at, bytes);
        }
    }

    /// Whether peers can map these bytes.
    pub(super) fn exports(&mut self, at: *const u8, bytes: usize) -> bool {
        self.exporter.export(at, bytes).is_some()
    }
}

/// Bytes from which on messages stay where they are, unless a route is forced.
pub(super) fn direct_from(core: &Core) -> usize {
    match core.crowded {
        true if core.whole => Policy::DIRECT_FROM_CROWDED,
        // Calls with messages that are lent begin behind others only where all share memory.
        true => Policy::DIRECT_FROM,
        // Lines that travel: what is read in place takes less time than what goes by a slot (docs/performance-cores.md).
        false if oxccl_kernels::waits_for_lines() || oxccl_kernels::travels_by_strings() => Policy::DIRECT_FROM_WAITING,
        false => Policy::DIRECT_FROM,
    }
}

/// Bytes from which on messages of memory that peers cannot map are read by the kernel, unless a route is forced: a power of two,
/// since the model is no more exact than that. Never what is shorter than [`direct_from`], which is copied whatever its memory is.
/// `None`: at no length.
pub(super) fn cma_from(core: &Core) -> Option<usize> {
    let from = core.config.constants.model.kernel_from()?;
    let from = usize::try_from(from).unwrap_or(usize::MAX).checked_next_power_of_two()?;
    Some(from.max(if core.crowded { Policy::CMA_FROM_CROWDED } else { Policy::DIRECT_FROM }))
}

/// Bytes of a message from which on the kernel no longer copies it. None where lines travel and whole strings are copied fast: its one
/// copy is the faster one there at any length (measured, docs/performance.md).
fn cma_below() -> usize {
    if oxccl_kernels::travels_by_strings() { usize::MAX } else { Policy::CMA_BELOW }
}

/// Bytes of the sends of a call from which on the kernel copies them where ranks share cores, see the model's constant: more than any
/// where it does not.
pub(super) fn crowd_from(core: &Core) -> u64 {
    core.config.constants.model.kernel_crowd_from as u64
}

/// The same of a message by itself.
pub(super) fn crowd_message_from(core: &Core) -> u64 {
    core.config.constants.model.kernel_crowd_message_from as u64
}

/// Whether slots change hands with `rank`. The same answer on both sides.
fn trades(core: &Core, rank: u32) -> bool {
    core.trades && rank as usize != core.rank
}

fn open_sender(core: &Core, to: u32, lane: usize) -> Result<Option<Box<dyn SendEnd>>> {
    let same = core.same_process(to as usize);
    let cma = core.cma.get(to as usize).copied().unwrap_or(false);
    let policy = match (core.config.p2p.as_str(), lane) {
        (_, CHANNEL_LANE..) if lends(core) => Policy::lending(same),
        // Where all ranks share memory those that run message programs do not say when they touch memory of peers.
        (_, CHANNEL_LANE..) | ("shm", _) => Policy::only(Route::Slots),
        ("direct", _) => Policy { direct_from: Some(direct_from(core)), ..Policy::new(same, false) },
        ("cma", _) if cma => Policy { direct_from: None, cma_below: usize::MAX, ..Policy::new(false, true) },
        _ => Policy {
            direct_from: Some(direct_from(core)),
            cma_from: cma_from(core).filter(|_| cma),
            cma_below: cma_below(),
            cma_outgrown: cma,
            cma_large_from: cma.then_some(if cma_from(core).is_some() { 0 } else { Policy::LARGE_FROM }),
            ..Policy::new(same, cma)
        },
    };
    let policy = Policy {
        large_pages: core.config.large_pages,
        cma_both_ways_below: core.config.constants.model.kernel_both_ways_below as u64,
        ..policy
    };
    let area = area(core, core.rank as u32, to, lane)?;
    let end = LocalSender::new(area, policy, Some(core.mapper(lane)), peer(core, to));
    Ok(Some(Box::new(match trades(core, to) {
        true => {
            // Measured for one pair, whose slots are the longest.
            let round = core.hub.geometry().waits && core.ranks == 2 && lane == P2P_LANE;
            end.trading(self::area(core, to, core.rank as u32, lane)?, (core.rank as u32) < to, round)
        }
        false => end,
    })))
}

fn open_receiver(core: &Core, from: u32, lane: usize) -> Result<Option<Box<dyn RecvEnd>>> {
    let same_process = core.same_process(from as usize);
    let cma = core.cma.get(from as usize).copied().unwrap_or(false);
    let options = LocalReceiverOptions {
        peer: peer(core, from),
        mapper: Some(core.mapper(lane)),
        pid: (cma && !same_process).then_some(core.peers[from as usize].pid),
        same_process,
        large_pages: core.config.large_pages,
    };
    let end = LocalReceiver::new(area(core, from, core.rank as u32, lane)?, options);
    Ok(Some(Box::new(match trades(core, from) {
        true => end.trading(area(core, core.rank as u32, from, lane)?, (core.rank as u32) < from),
        false => end,
    })))
}

fn open_stream(core: &Core, rank: u32, lane: usize) -> Result<Option<Box<TcpEnd>>> {
    let me = core.rank as u32;
    let stream = if me < rank { core.call_for_stream(rank, lane as u8)? } else { core.take_stream(rank, lane as u8) };
    let Some(stream) = stream else { return Ok(None) };
    core.wake_by(&stream);
    let part = part_bytes(core);
    let slots = frames(common_piece_bytes(core), part);
    let within = core.on_one_machine(rank as usize);
    let options = TcpOptions { peer: peer(core, rank), slots, slot_bytes: part, buffer_bytes: None, within };
    Ok(Some(Box::new(TcpEnd::new(stream, options)?)))
}

/// Slots that a piece is as long as where all pieces travel over streams: each costs a frame, and needs no slot.
const STREAM_SLOTS: usize = 8;
/// As long as pieces grow with the slots.
const STREAM_PIECE: usize = 256 << 10;

/// How many times longer they are where one of two ranks only sends and the other only receives: what is sent next lies behind
/// without a gap, and nobody needs what has come to go on.
const ONE_WAY: usize = 4;
/// They are made longer up to this; longer ones were not measured.
const LONGEST_ONE_WAY: usize = 2 << 20;
// A message program has one piece under way while it makes the next.
const _: () = assert!(SLOTS / ONE_WAY >= 2);

/// Bytes of a piece of a message program of `collective` by an algorithm that needs `min_slots` slots, the same on all ranks.
pub(super) fn piece_bytes(core: &Core, collective: Collective, min_slots: u32) -> usize {
    match core.scattered {
        true => lone_piece_bytes(core.config.slot_bytes, core.ranks, collective),
        false if is_mixed(core) => mixed_piece_bytes(core.config.slot_bytes, min_slots),
        false => core.config.slot_bytes,
    }
}

/// Bytes of a piece of a message program where each of `ranks` ranks is alone on its host, of slots of `slot` bytes.
#[must_use]
pub fn lone_piece_bytes(slot: usize, ranks: usize, collective: Collective) -> usize {
    let one_way = ranks == 2 && matches!(collective, Collective::Broadcast | Collective::Reduce);
    let piece = scattered_piece_bytes(slot, ranks);
    if one_way { piece.max((ONE_WAY * piece).min(LONGEST_ONE_WAY)) } else { piece }
}

/// The longest of most collectives. Twice as long of two ranks, which wait for each other once a piece; more of them were slower
/// by that.
fn common_piece_bytes(core: &Core) -> usize {
    let slot = core.config.slot_bytes;
    match core.scattered {
        true => scattered_piece_bytes(slot, core.ranks),
        false if is_mixed(core) => mixed_piece_bytes(slot, 0),
        false => slot,
    }
}

/// Whether message programs of this rank leave what they send to peers that share memory where it lies, if those can reach it there.
pub(super) fn lends(core: &Core) -> bool {
    borrows(core) && matches!(core.config.p2p.as_str(), "auto" | "direct")
}

/// Whether such peers may, whose setting may be another one.
pub(super) fn borrows(core: &Core) -> bool {
    is_mixed(core)
}

/// Some ranks share memory, and others are reached over a network.
fn is_mixed(core: &Core) -> bool {
    !core.whole && !core.scattered
}

/// [`common_piece_bytes`] where each of `ranks` ranks is alone on its host, of slots of `slot` bytes.
fn scattered_piece_bytes(slot: usize, ranks: usize) -> usize {
    let times = if ranks == 2 { 2 } else { 1 };
    slot.max(times * (STREAM_SLOTS * slot).min(STREAM_PIECE))
}

/// The same where some ranks share memory and others do not, for an algorithm that needs `min_slots` slots: a connection within a
/// host holds so many pieces, each in several slots, and two at least. Its ranks and the network wait for each other once a piece.
#[must_use]
pub fn mixed_piece_bytes(slot: usize, min_slots: u32) -> usize {
    slot.max((MIXED_SLOTS / min_slots.max(2) as usize * slot).min(STREAM_PIECE))
}

/// Bytes that are combined, kept and passed on at once.
pub(super) fn part_bytes(core: &Core) -> usize {
    part_of(core.ranks, common_piece_bytes(core), core.config.slot_bytes, shares(core))
}

/// Whether ranks share cores somewhere: all ranks say the same.
fn shares(core: &Core) -> bool {
    core.config.constants.model.per_core > 1.0
}

/// The same of pieces of so many bytes. Two ranks pass on half a piece while the other comes. More pass on what stays in the nearer
/// caches while more comes. Where ranks share cores it is all of a piece: each part costs a frame, and the cores have other work meanwhile.
fn part_of(ranks: usize, piece: usize, slot: usize, shares: bool) -> usize {
    let part = match ranks {
        2 if piece / 2 > 2 * slot => (piece / 2).next_multiple_of(64),
        3.. if shares => piece,
        _ => 2 * slot,
    };
    part.min(piece)
}

/// Messages that a stream's sender accepts before the kernel has taken them: the parts of [`SLOTS`] pieces, and a short one of each call
/// that may begin behind others.
fn frames(piece: usize, part: usize) -> usize {
    (SLOTS * piece.div_ceil(part)).max(2 * SLOTS)
}

/// A shared reference to a mapper.
pub(crate) type SharedMapper = Arc<dyn Mapper>;

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_schedule::algorithms::ALGORITHMS;
    use oxccl_schedule::ir::Needs;

    use super::*;

    /// Else programs could wait for each other for ever: the verifier takes a connection to hold so many messages.
    #[test]
    fn connections_within_a_host_hold_as_many_whole_pieces_as_algorithms_need_slots() {
        for slot in [4096, 4160, 32 << 10, 48 << 10, 96 << 10, 128 << 10, 200_000 & !63, 256 << 10, 4 << 20] {
            let longest = mixed_piece_bytes(slot, 0);
            for (a, shares) in ALGORITHMS.iter().flat_map(|a| [(a, false), (a, true)]) {
                if a.needs != Needs::Messages {
                    continue;
                }
                let (piece, part) = (mixed_piece_bytes(slot, a.min_slots), part_of(4, longest, slot, shares));
                for lane_slot in [slot, slot.max(LONGEST_SLOT), 4 * slot] {
                    let config = Config { slot_bytes: slot, ..Config::from_env() };
                    let slots = sizes(lane_slot, false, 4, channel_slots(&config, lane_slot, true), CHANNEL_LANE).slots;
                    // Parts of the piece that are offered, each cut at what a slot holds.
                    let cut = |at: usize| part.min(piece - at).div_ceil(lane_slot);
                    let records: usize = (0..piece).step_by(part).map(cut).sum();
                    assert!(records * a.min_slots as usize <= slots, "{} slot {slot} {lane_slot}: {records}", a.name);
                }
                // Over a stream each part is a frame.
                for (ranks, longest, piece) in [
                    (4, longest, piece),
                    (4, scattered_piece_bytes(slot, 4), scattered_piece_bytes(slot, 4)),
                    (2, scattered_piece_bytes(slot, 2), scattered_piece_bytes(slot, 2)),
                ] {
                    let part = part_of(ranks, longest, slot, shares);
                    let needed = piece.div_ceil(part) * a.min_slots as usize;
                    assert!(needed <= frames(longest, part), "{} slot {slot} {ranks}", a.name);
                }
            }
        }
    }
}
