//! The hub: the one shared segment of a communicator on a machine, and its layout.
//!
//! Every clique (the ranks of a communicator that share memory) has one hub. It holds, for each member: the *entry
//! lines* that start every collective, the *payload slots*, the *flag lines* of direct programs,
//! the *status line* (doorbell, progress), the *scratch*, the *ring*, and for each ordered pair of members the areas of the local
//! connections. All of it is zero at the start and numbered by sequence, so nothing is ever reset.
//!
//! It knows addresses and words; it does not know collectives.

use std::sync::Arc;
use std::time::Duration;

use oxccl_sys::sync::{Ordering, SharedU32, SharedU64, fence, yield_now};
use oxccl_sys::{Belfry, Deadline, Doorbell, SharedMemory, barrier};
use oxccl_types::{Error, Result, ResultCode};

use crate::transport::passage::READ_AHEAD;

/// Entry lines per rank: how many collectives a rank may run ahead of a peer that it does not wait for. Where ranks share
/// a core, that many are made between two switches.
pub const DEPTH: u64 = 512;
/// Calls that a rank may announce before it has finished the first of them, of all kinds: where ranks share cores, what a
/// switch costs (about 3 us, with what must come back to the caches) serves so many.
pub const WINDOW: u64 = 8;
/// The same with slots of medium size.
pub const MEDIUM_WINDOW: u64 = 16;
/// The same where their payloads lie in the lines or in small slots.
pub const LONG_WINDOW: u64 = 128;
/// The same of an AlltoAllv whose own payload does, or which peers take where it lies: theirs may lie in slots of medium size all
/// the same. Of few ranks, see [`Geometry::uneven_window`].
pub const UNEVEN_WINDOW: u64 = 64;
/// The same of other calls where they have none: peers take it where it lies. Who lends so reads no slots of others in these calls.
pub const LENT_WINDOW: u64 = 128;
/// How many calls a rank may be ahead of a peer whose lines it writes again: who has started a call has finished all but the
/// last window before it, of which this is the longest.
pub const LINES_AHEAD: u64 = DEPTH - LENT_WINDOW;
const _: () = assert!(LENT_WINDOW >= LONG_WINDOW && LONG_WINDOW >= UNEVEN_WINDOW);
/// How many calls whose payload does not fit into the line a rank may run ahead: fewer, since their payload slots should
/// stay in the caches.
pub const SLOTS: u64 = 8;
/// Slots per rank for small payloads, which therefore may be more; a power of two, as are all below.
const SMALL_SLOTS: u64 = 64;
/// The same where [roots run ahead](Geometry::roots_run_ahead).
const TRAVELLING_SMALL_SLOTS: u64 = 128;
/// The same where ranks outnumber cores.
const CROWDED_SMALL_SLOTS: u64 = 512;
/// Bytes of one of them.
pub const SMALL_BYTES: usize = 2 << 10;
/// Slots per rank for payloads of medium size where ranks outnumber cores.
const MEDIUM_SLOTS: u64 = 128;
/// Slots per rank for the payloads that are longer, of ranks whose memory is not mapped: a power of two, [`SLOTS`] calls
/// behind which a peer may have a [`WINDOW`] under way.
pub const LONG_SLOTS: u64 = 16;
const _: () = assert!(LONG_SLOTS >= SLOTS + WINDOW);
/// Bytes of one of them, of which as many are used as [`Limits::long`](crate::exec::limits::Limits::long) says.
pub const LONG_BYTES: usize = 256 << 10;
/// The same for what a root takes from all: more, by which who gives runs ahead of it, but as many as the caches hold of all.
const TAKEN_SLOTS: u64 = 128;
/// Bytes of one of them.
pub const MEDIUM_BYTES: usize = 16 << 10;
/// The same for what a root gives: one rank's slots, which may be many. A switch of the core then serves as many calls.
const GIVEN_SLOTS: u64 = 512;
/// The same of all calls with a root where lines [travel](Geometry::travels) and ranks have a core each: who gives runs further ahead
/// of who takes, so that neither waits for what the other has just written.
const TRAVELLING_SLOTS: u64 = 64;
/// Bytes of one of them.
pub const GIVEN_BYTES: usize = 8 << 10;
/// Ranks on one machine up to which they have all small and medium slots: each reads what every other gives, so that of more ranks the
/// pages of the slots, which each has to find, and what must stay in the caches would add up. Up to so many roots run ahead, too: of
/// more that was not measured.
const FEW_RANKS: usize = 16;
/// Those of more ranks where they outnumber cores, and their [`UNEVEN_WINDOW`].
const SMALL_SLOTS_OF_MANY: u64 = 256;
const MEDIUM_SLOTS_OF_MANY: u64 = 64;
const UNEVEN_WINDOW_OF_MANY: u64 = 32;
const _: () = assert!(SMALL_SLOTS_OF_MANY >= 2 * LONG_WINDOW && MEDIUM_SLOTS_OF_MANY >= 2 * UNEVEN_WINDOW_OF_MANY);
/// Where the body of an entry line begins: behind sequence and signature.
const BODY_AT: usize = 24;
/// Bytes that fit into an entry line beside them: to the end of the second line of the cache, which comes with the first.
pub const INLINE_BYTES: usize = LINE - BODY_AT;
/// Bytes of the body in the first of the two.
pub const FIRST_BYTES: usize = 64 - BODY_AT;
/// Bytes that the payloads of a rank that gives to one other go round, and the pieces in its ring, where stores wait for lines of
/// another core: when a line is written again it has left both cores' own caches (docs/performance.md).
const ROUND: usize = 3 << 20;
/// Bytes between two of the payloads, see [`READ_AHEAD`].
const ROUND_GAP: usize = READ_AHEAD;
/// Greatest number of channels of a program.
pub const MAX_CHANNELS: usize = 4;
/// Contexts of one-sided calls; each has signals of its own.
pub const CONTEXTS: usize = 8;
/// Signals per context and ordered pair of ranks.
pub const SIGNALS: usize = 8;
/// Two lines apart, so that the adjacent-line prefetcher does not drag a neighbour's line along.
pub(super) const LINE: usize = 128;
const POISON_TEXT: usize = 2048;
/// How long the text of an error may take to be written, beyond which its member is taken to have ended amid it.
const TOLD: Duration = Duration::from_millis(10);
const HEADER: usize = 4096;

/// Sizes that every member of the clique must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Members of the clique.
    pub ranks: usize,
    /// Bytes of one eager payload slot.
    pub eager_bytes: usize,
    /// Bytes of one large payload slot; 0: there are none.
    pub large_bytes: usize,
    /// The ranks outnumber the cores: several calls with payload slots may be under way, so there are more of them.
    pub crowded: bool,
    /// Bytes of one half of a rank's scratch.
    pub scratch_half: usize,
    /// Bytes at the end of each half for what lies beside a line, see `exec::scratch`.
    pub area_bytes: usize,
    /// Bytes of a rank's ring, through which it gives one other what peers cannot map; 0: there is none. Where stores
    /// [wait](Self::waits) it is longer.
    pub ring_bytes: usize,
    /// Lanes of local connections per ordered pair; `exec::links` says what each carries.
    pub lanes: usize,
    /// Bytes of one slot of a local connection.
    pub lane_slot: usize,
    /// Slots of one on a channel's lane.
    pub channel_slots: usize,
    /// All members find that stores wait for lines which another core has, see [`oxccl_kernels::waits_for_lines`]. Where what lies
    /// is found by it, not how much room there is.
    pub waits: bool,
    /// The same of lines that travel before they are written, while whole strings are copied fast, see
    /// [`oxccl_kernels::travels_by_strings`].
    pub travels: bool,
    /// Bytes of one local connection, on the first lane and on any other.
    pub lane_bytes: [usize; 2],
}

const fn page(n: usize) -> usize {
    (n + 4095) & !4095
}

impl Geometry {
    fn lines_bytes(&self) -> usize {
        page(self.signals_offset() + self.ranks * CONTEXTS * SIGNALS * 8)
    }
    /// Where the counters of the signals that a rank got lie in its part: behind its probes.
    fn signals_offset(&self) -> usize {
        (self.probes_offset() + 4 * self.ranks).next_multiple_of(LINE)
    }
    /// Where the results of a rank's probes lie in its part: behind its lines.
    fn probes_offset(&self) -> usize {
        LINE * (DEPTH as usize + MAX_CHANNELS + 2)
    }
    fn payload_bytes(&self) -> usize {
        self.large_offset() + page(self.large_area())
    }
    /// Bytes of all large slots, in slots or as what payloads go round: those of as many calls, and what is left at the end.
    fn large_area(&self) -> usize {
        if self.large_bytes == 0 {
            0
        } else {
            ((self.large_bytes + LINE + ROUND_GAP) * (SLOTS as usize + 1)).max(ROUND)
        }
    }
    /// Where the large slots lie among all slots.
    fn large_offset(&self) -> usize {
        Slots::ALL.iter().map(|kind| self.shelf_bytes(*kind)).sum()
    }
    /// Slots of that kind of a rank, and the bytes from one to the next: but for the usual ones two lines more than they have, so
    /// that the first lines of all do not share a set of the caches.
    fn shelf(&self, kind: Slots) -> (u64, usize) {
        let crowded = |slots| if self.crowded { slots } else { 0 };
        match kind {
            // A power of two: SLOTS calls behind, a peer may have a window of calls under way.
            Slots::Usual if self.crowded => ((SLOTS + WINDOW).next_power_of_two(), self.eager_bytes),
            Slots::Usual => (SLOTS, self.eager_bytes),
            Slots::Small if self.roots_run_ahead() => (TRAVELLING_SMALL_SLOTS, SMALL_BYTES + LINE),
            Slots::Small if !self.crowded => (SMALL_SLOTS, SMALL_BYTES + LINE),
            Slots::Small => (self.by_ranks(CROWDED_SMALL_SLOTS, SMALL_SLOTS_OF_MANY), SMALL_BYTES + LINE),
            Slots::Medium => (crowded(self.by_ranks(MEDIUM_SLOTS, MEDIUM_SLOTS_OF_MANY)), MEDIUM_BYTES + LINE),
            Slots::Taken => (crowded(TAKEN_SLOTS), MEDIUM_BYTES + LINE),
            Slots::Given if self.roots_run_ahead() => (TRAVELLING_SLOTS, GIVEN_BYTES + LINE),
            Slots::Given => (crowded(GIVEN_SLOTS), GIVEN_BYTES + LINE),
            Slots::Long => (crowded(LONG_SLOTS), LONG_BYTES + LINE),
        }
    }
    fn shelf_bytes(&self, kind: Slots) -> usize {
        // There is room for either, since it is made before all is known.
        let (slots, stride) = Geometry { travels: true, ..*self }.shelf(kind);
        page(slots as usize * stride)
    }
    /// Whether payloads of up to [`GIVEN_BYTES`] of all calls with a root have slots of their own, though ranks share no cores, and more
    /// of small ones.
    pub fn roots_run_ahead(&self) -> bool {
        self.travels && !self.crowded && self.ranks <= FEW_RANKS
    }
    /// What few ranks have, or many.
    fn by_ranks(&self, few: u64, many: u64) -> u64 {
        if self.ranks > FEW_RANKS { many } else { few }
    }
    /// How many calls of AlltoAllv may be under way whose own payload lies in the line or in a small slot, or which peers take where it
    /// lies.
    pub fn uneven_window(&self) -> u64 {
        self.by_ranks(UNEVEN_WINDOW, UNEVEN_WINDOW_OF_MANY)
    }
    /// How many calls a rank may be ahead of its peers whose payload lies in a slot of that kind: who has started a call has
    /// finished all but the last window before it. (Where ranks share no cores, it has taken all that it takes from slots before it.)
    pub fn ahead(&self, kind: Slots) -> u64 {
        let window = match kind {
            Slots::Usual | Slots::Long => return SLOTS,
            Slots::Given if !self.crowded => WINDOW,
            Slots::Small if self.crowded => LONG_WINDOW,
            Slots::Small => WINDOW,
            // The longer window: of an AlltoAllv, who has little to give itself, or lends it, may read such slots of others.
            Slots::Medium => self.uneven_window(),
            // Who takes may begin calls behind it.
            Slots::Taken | Slots::Given => MEDIUM_WINDOW,
        };
        // Each call writes a line, too.
        (self.shelf(kind).0 - window).min(LINES_AHEAD)
    }
    fn rank_bytes(&self) -> usize {
        self.ring_offset() + page(self.ring_room())
    }
    /// Bytes of the longest ring that a rank may have.
    fn ring_room(&self) -> usize {
        if self.ring_bytes == 0 { 0 } else { self.ring_bytes.max(ROUND) }
    }
    /// How many times as long the ring may be as `ring_bytes`.
    pub fn ring_times(&self) -> usize {
        if self.waits && self.ring_bytes > 0 { self.ring_room() / self.ring_bytes } else { 1 }
    }
    /// Where the ring lies in a rank's part: behind its scratch.
    fn ring_offset(&self) -> usize {
        self.lines_bytes() + self.payload_bytes() + page(2 * self.scratch_half)
    }
    /// Bytes of the whole segment. Pages that nobody touches cost nothing.
    pub fn total(&self) -> usize {
        HEADER + self.ranks * self.rank_bytes() + self.ranks * self.ranks * self.pair_bytes()
    }
    /// Bytes of one local connection on `lane`.
    pub fn lane_bytes(&self, lane: usize) -> usize {
        self.lane_bytes[usize::from(lane > 0)]
    }
    /// Where that lies among those of a pair.
    fn lane_offset(&self, lane: usize) -> usize {
        if lane == 0 { 0 } else { page(self.lane_bytes[0]) + (lane - 1) * page(self.lane_bytes[1]) }
    }
    /// Bytes of the connections of an ordered pair.
    fn pair_bytes(&self) -> usize {
        self.lane_offset(self.lanes)
    }
}

/// The kinds of payload slots that eager calls use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    Usual,
    Small,
    Medium,
    /// As [`Medium`](Slots::Medium), of which the root takes those of all.
    Taken,
    /// Of calls in which the root gives; where [roots run ahead](Geometry::roots_run_ahead), of all that have one.
    Given,
    /// Of calls among all longer than [`Medium`](Slots::Medium), of a gather, and of what a root gives.
    Long,
}

impl Slots {
    /// All of them, as they lie one after the other.
    pub const ALL: [Slots; 6] = [Slots::Usual, Slots::Small, Slots::Medium, Slots::Taken, Slots::Given, Slots::Long];
}

/// The slots of one kind, as they lie in a rank's part.
#[derive(Clone, Copy, Debug)]
struct Shelf {
    /// Where the first one begins.
    at: usize,
    stride: usize,
    /// Their number, less one.
    mask: u64,
}

/// A rank's state as its peers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Takes part.
    Here,
    /// Destroyed its communicator in good order.
    Left,
    /// Aborted its communicator.
    Aborted,
    /// Ended its operations for good, and makes new communicators of this one.
    Revoked,
}

/// The mapped hub of one communicator.
pub struct Hub {
    geometry: Geometry,
    /// Bytes of a rank's part.
    rank_bytes: usize,
    shelves: [Shelf; Slots::ALL.len()],
    /// Where the large slots begin, and the scratch.
    large_at: usize,
    scratch_at: usize,
    base: *mut u8,
    segment: Arc<SharedMemory>,
    light: bool,
}

// SAFETY: the hub is shared memory reached through atomics and raw pointers only; the protocol of the entry lines and
// flags orders the plain accesses. The mapping lives as long as `segment`.
unsafe impl Send for Hub {}
// SAFETY: as above.
unsafe impl Sync for Hub {}

/// The words of an entry line.
#[derive(Clone)]
pub struct EntryLine {
    /// Sequence of the collective this line belongs to; stored last.
    pub seq: SharedU64,
    /// The signature, two words.
    pub signature: *mut u64,
    /// `INLINE_BYTES` bytes of payload or the descriptor.
    pub body: *mut u8,
}

impl Hub {
    /// A hub on `segment`, which must have `geometry.total()` bytes. `light`: the processes of all members are registered
    /// for light fences (`oxccl_sys::barrier`).
    pub fn new(geometry: Geometry, segment: Arc<SharedMemory>, light: bool) -> Result<Hub> {
        if segment.len() < geometry.total() {
            return Err(Error::internal(format!(
                "hub of {} bytes mapped with {} bytes: the members disagree on its geometry",
                geometry.total(),
                segment.len()
            )));
        }
        let mut next = geometry.lines_bytes();
        let shelves = Slots::ALL.map(|kind| {
            let ((slots, stride), at) = (geometry.shelf(kind), next);
            debug_assert!(slots == 0 || slots.is_power_of_two());
            next += geometry.shelf_bytes(kind);
            Shelf { at, stride, mask: slots.saturating_sub(1) }
        });
        let scratch_at = geometry.lines_bytes() + geometry.payload_bytes();
        Ok(Hub {
            geometry,
            rank_bytes: geometry.rank_bytes(),
            shelves,
            large_at: next,
            scratch_at,
            base: segment.as_ptr(),
            segment,
            light,
        })
    }

    /// The bell of `member`; the handle keeps the memory, for who may outlive the hub.
    pub fn kept_bell(&self, member: usize) -> Doorbell {
        let at = self.bell_at(member);
        Doorbell::placed(self.segment.u32_at(at), self.segment.u32_at(at + 4))
    }

    fn bell_at(&self, member: usize) -> usize {
        self.rank_base(member) + (DEPTH as usize + MAX_CHANNELS) * LINE
    }

    /// The agreed sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.geometry.total());
        // SAFETY: every offset below is inside `total()` bytes, which the constructor checked against the mapping.
        unsafe { self.base.add(offset) }
    }

    fn rank_base(&self, member: usize) -> usize {
        HEADER + member * self.rank_bytes
    }

    fn u64_at(&self, offset: usize) -> SharedU64 {
        // SAFETY: in bounds (see `at`), 8-byte aligned since all offsets here are multiples of 64, and the mapping
        // outlives the handle because every user of a hub holds it in an Arc.
        unsafe { SharedU64::from_ptr(self.at(offset)) }
    }

    fn u32_at(&self, offset: usize) -> SharedU32 {
        // SAFETY: as `u64_at`.
        unsafe { SharedU32::from_ptr(self.at(offset)) }
    }

    /// The entry line of `member` for collective `seq`.
    pub fn entry(&self, member: usize, seq: u64) -> EntryLine {
        let offset = self.rank_base(member) + (seq % DEPTH) as usize * LINE;
        let line = self.at(offset);
        // SAFETY: the line has LINE bytes: sequence, two words of signature, the body.
        unsafe { EntryLine { seq: self.u64_at(offset), signature: line.add(8).cast(), body: line.add(BODY_AT) } }
    }

    /// The payload slot of `member` for collective `seq`: `geometry.eager_bytes` bytes.
    #[inline]
    pub fn payload(&self, member: usize, seq: u64) -> *mut u8 {
        self.slot(member, Slots::Usual, seq)
    }

    /// The large slot of `member` for collective `seq`: `geometry.large_bytes` bytes. Each begins two lines later in a page
    /// than the one before, as small ones do.
    pub fn large_payload(&self, member: usize, seq: u64) -> *mut u8 {
        let slots = self.rank_base(member) + self.large_at;
        self.at(slots + (seq % SLOTS) as usize * (self.geometry.large_bytes + LINE))
    }

    /// Where a payload of `member` of `bytes` bytes, at most `geometry.large_bytes`, lies that goes round the large slots, `from` bytes
    /// behind where those begin or at their beginning; and where the next one may.
    ///
    /// [`SLOTS`] payloads of any length have room, and the rest of it behind the last of them: see [`Geometry::large_area`].
    pub fn round(&self, member: usize, from: usize, bytes: usize) -> (*mut u8, usize) {
        debug_assert!(bytes <= self.geometry.large_bytes);
        let at = if from + bytes > self.geometry.large_area() { 0 } else { from };
        let place = self.at(self.rank_base(member) + self.large_at + at);
        (place, at + bytes.next_multiple_of(LINE) + ROUND_GAP)
    }

    /// Has all of what payloads of `member` go round in memory; where the first one may lie, behind the large slots, of which some
    /// may be in use.
    #[cold]
    pub fn populate_round(&self, member: usize) -> usize {
        oxccl_sys::populate(self.large_payload(member, 0), self.geometry.large_area());
        (self.geometry.large_bytes + LINE) * SLOTS as usize
    }

    /// How far behind the beginning of its part a payload of `member` lies.
    #[inline]
    pub fn offset_of(&self, member: usize, payload: *const u8) -> u64 {
        (payload.addr() - self.at(self.rank_base(member)).addr()) as u64
    }

    /// The payload of `bytes` bytes that lies so far behind the beginning of the part of `member`; `None` where none does.
    #[inline]
    pub fn payload_at(&self, member: usize, offset: u64, bytes: usize) -> Option<*mut u8> {
        let from = usize::try_from(offset).ok()?;
        let inside = from >= self.geometry.lines_bytes() && from.checked_add(bytes)? <= self.scratch_at;
        inside.then(|| self.at(self.rank_base(member) + from))
    }

    /// Has all slots of one kind of `member` in memory before they are used for the first time for `bytes` bytes, of long ones no
    /// more than about as much of each; returns for how many bytes they are.
    #[cold]
    pub fn populate(&self, member: usize, kind: Slots, bytes: usize) -> usize {
        let (slots, stride) = self.geometry.shelf(kind);
        if kind != Slots::Long {
            oxccl_sys::populate(self.slot(member, kind, 0), slots as usize * stride);
            return stride;
        }
        let each = bytes.next_power_of_two().min(LONG_BYTES);
        (0..slots).for_each(|seq| oxccl_sys::populate(self.slot(member, kind, seq), each));
        each
    }

    /// The slot of that kind of `member` for collective `seq`. There are medium and long ones, and those of rooted calls, only
    /// where the geometry is crowded; given ones where roots run ahead, too.
    #[inline]
    pub fn slot(&self, member: usize, kind: Slots, seq: u64) -> *mut u8 {
        debug_assert!(self.geometry.shelf(kind).0 > 0);
        let shelf = &self.shelves[kind as usize];
        self.at(self.rank_base(member) + shelf.at + (seq & shelf.mask) as usize * shelf.stride)
    }

    /// The flag line of `member` for `channel`: `sequence << 28 | epoch`.
    pub fn flag(&self, member: usize, channel: usize) -> SharedU64 {
        self.u64_at(self.rank_base(member) + (DEPTH as usize + channel) * LINE)
    }

    fn presence_word(&self, member: usize) -> SharedU32 {
        self.u32_at(self.rank_base(member) + (DEPTH as usize + MAX_CHANNELS + 1) * LINE)
    }

    /// Not 0 while `member` touches user memory of its peers in operations of `lane` (0 to 2).
    pub fn borrows(&self, member: usize, lane: usize) -> SharedU32 {
        debug_assert!(lane < 3);
        self.u32_at(self.rank_base(member) + (DEPTH as usize + MAX_CHANNELS + 1) * LINE + 64 + 4 * lane)
    }

    /// From now on no member may begin to touch user memory of another: an operation has failed and its owner may
    /// free it.
    pub fn take_back(&self) {
        self.u32_at(16).store(1, Ordering::Relaxed);
    }

    /// Whether a member took its memory back.
    #[inline]
    pub fn is_taken_back(&self) -> bool {
        self.u32_at(16).load(Ordering::Relaxed) != 0
    }

    /// How often `from` has raised the signal `word` (context * [`SIGNALS`] + number) of `member`.
    pub fn signal(&self, member: usize, from: usize, word: usize) -> SharedU64 {
        debug_assert!(word < CONTEXTS * SIGNALS);
        let index = from * CONTEXTS * SIGNALS + word;
        self.u64_at(self.rank_base(member) + self.geometry.signals_offset() + index * 8)
    }

    fn probe_word(&self, reader: usize, owner: usize) -> SharedU32 {
        // One word per ordered pair, in the lines area behind the lines of the reader.
        self.u32_at(self.rank_base(reader) + self.geometry.probes_offset() + owner * 4)
    }

    /// Says whether `reader` (the caller) can read the memory of `owner`'s process.
    pub fn set_probe(&self, reader: usize, owner: usize, can: bool) {
        // SYNC: probe
        self.probe_word(reader, owner).store(1 + u32::from(can), Ordering::Release);
    }

    /// What `reader` said; `None` before it has.
    pub fn probe(&self, reader: usize, owner: usize) -> Option<bool> {
        // SYNC: probe
        match self.probe_word(reader, owner).load(Ordering::Acquire) {
            0 => None,
            said => Some(said == 2),
        }
    }

    /// What `member` last said of itself.
    pub fn presence(&self, member: usize) -> Presence {
        // SYNC: presence
        match self.presence_word(member).load(Ordering::Acquire) {
            0 => Presence::Here,
            1 => Presence::Left,
            2 => Presence::Aborted,
            _ => Presence::Revoked,
        }
    }

    /// Says what `member` (the caller) is from now on.
    pub fn set_presence(&self, member: usize, presence: Presence) {
        // SYNC: presence
        self.presence_word(member).store(presence as u32, Ordering::Release);
    }

    /// Half `half` of the scratch of `member`: `geometry.scratch_half` bytes.
    pub fn scratch(&self, member: usize, half: usize) -> *mut u8 {
        self.at(self.rank_base(member) + self.scratch_at + half * self.geometry.scratch_half)
    }

    /// The ring of `member`: `geometry.ring_bytes` bytes, or up to [`ring_times`](Geometry::ring_times) as many.
    pub fn ring_memory(&self, member: usize) -> *mut u8 {
        self.at(self.rank_base(member) + self.geometry.ring_offset())
    }

    /// The area of the local connection `from` -> `to` on `lane`: `geometry.lane_bytes(lane)` bytes.
    pub fn lane(&self, from: usize, to: usize, lane: usize) -> *mut u8 {
        let g = &self.geometry;
        let lanes = HEADER + g.ranks * g.rank_bytes();
        self.at(lanes + (from * g.ranks + to) * g.pair_bytes() + g.lane_offset(lane))
    }

    /// Bytes of each member's part that hold nothing between operations: its payload slots, its scratch and its ring.
    pub fn releasable(&self) -> usize {
        self.geometry.rank_bytes() - self.geometry.lines_bytes()
    }

    /// Bytes of `member`'s part that hold the state of the protocols: lines and outgoing connections; those of the
    /// first member include the header. The parts of all members and what is releasable make the whole segment.
    pub fn persistent(&self, member: usize) -> usize {
        let g = &self.geometry;
        let header = if member == 0 { HEADER } else { 0 };
        header + g.lines_bytes() + g.ranks * g.pair_bytes()
    }

    /// Gives the memory of `member`'s releasable bytes back to the system; they read as zero and the addresses stay.
    /// No operation may be under way on any member.
    pub fn release(&self, member: usize) -> std::io::Result<()> {
        let offset = self.rank_base(member) + self.geometry.lines_bytes();
        self.segment.punch(offset, self.releasable())
    }

    /// Whether the caller is the one whose error poisons the hub.
    pub(super) fn begin_poison(&self) -> bool {
        self.u64_at(0).compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the communicator for every member with `error`; the first caller wins.
    pub fn poison(&self, error: &Error) {
        if !self.begin_poison() {
            // Whoever sees this member leave must find the first error: its text is being copied, unless its member has ended.
            let bound = Deadline::after(TOLD);
            while self.is_being_poisoned() && !bound.passed() {
                yield_now();
            }
            return;
        }
        let text = error.text.as_bytes();
        let len = text.len().min(POISON_TEXT);
        // SAFETY: the text area of POISON_TEXT bytes lies behind the two words of the header; only the winner of the
        // exchange writes it, readers wait for state 2.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.at(64), len);
        }
        self.u64_at(8).store(len as u64 | (error.code as u64) << 32, Ordering::Relaxed);
        // SYNC: poison
        self.u64_at(0).store(2, Ordering::Release);
        for member in 0..self.geometry.ranks {
            self.bell(member).ring();
        }
    }

    /// Whether a member poisoned the hub. One load of a line that normally nobody writes.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.u64_at(0).load(Ordering::Relaxed) >= 2
    }

    /// Whether a member is writing its error at this moment, or ended while it did.
    pub fn is_being_poisoned(&self) -> bool {
        self.u64_at(0).load(Ordering::Relaxed) == 1
    }

    /// The error of the member that poisoned the hub.
    pub fn poison_error(&self) -> Option<Error> {
        // SYNC: poison
        if self.u64_at(0).load(Ordering::Acquire) < 2 {
            return None;
        }
        let word = self.u64_at(8).load(Ordering::Relaxed);
        let len = (word as u32 as usize).min(POISON_TEXT);
        let mut text = vec![0u8; len];
        // SAFETY: state 2 says that the text was written and is never written again.
        unsafe { std::ptr::copy_nonoverlapping(self.at(64), text.as_mut_ptr(), len) };
        let code = ResultCode::from_c((word >> 32) as i32).unwrap_or(ResultCode::InternalError);
        Some(Error::new(code, String::from_utf8_lossy(&text).into_owned()))
    }
}

impl Belfry for Hub {
    fn bells(&self) -> usize {
        self.geometry.ranks
    }

    /// The bell on which `member` parks.
    #[inline(always)]
    fn bell(&self, member: usize) -> Doorbell {
        let at = self.bell_at(member);
        Doorbell::placed(self.u32_at(at), self.u32_at(at + 4))
    }

    /// Between a store and a look at what another thread stores, of this member or another one, where that thread calls
    /// `barrier::heavy` between its own.
    #[inline]
    fn fence(&self) {
        if self.light { barrier::light() } else { fence(Ordering::SeqCst) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn hub(ranks: usize) -> Hub {
        hub_of(ranks, 65536, false)
    }

    /// One with large slots of so many bytes.
    fn hub_of(ranks: usize, large_bytes: usize, crowded: bool) -> Hub {
        hub_with(geometry_of(ranks, large_bytes, crowded, ranks.is_multiple_of(2)))
    }

    fn hub_with(geometry: Geometry) -> Hub {
        Hub::new(geometry, Arc::new(SharedMemory::create("test", geometry.total()).unwrap()), true).unwrap()
    }

    fn geometry_of(ranks: usize, large_bytes: usize, crowded: bool, travels: bool) -> Geometry {
        Geometry {
            ranks,
            eager_bytes: 8192,
            large_bytes,
            crowded,
            scratch_half: 65536,
            area_bytes: 16384,
            ring_bytes: 65536,
            lanes: 2,
            lane_slot: 1024,
            channel_slots: 8,
            waits: false,
            travels,
            lane_bytes: [20_000, 10_000],
        }
    }

    /// As far ahead as the slots of a kind allow, a rank writes none that a peer may still read: one that has started its last call but
    /// so many, and has those in front of it under way that it may have there.
    #[test]
    fn who_is_ahead_writes_no_slot_that_is_still_read() {
        for (ranks, crowded, travels) in [2, 3, 17]
            .into_iter()
            .flat_map(|n| [(n, true, true), (n, true, false), (n, false, true), (n, false, false)])
        {
            let geometry = geometry_of(ranks, 0, crowded, travels);
            assert_eq!(geometry.total(), geometry_of(ranks, 0, crowded, !travels).total(), "made before that is known");
            let hub = hub_with(geometry);
            for kind in Slots::ALL.into_iter().filter(|kind| geometry.shelf(*kind).0 > 0) {
                // Where ranks share no cores none with slots are under way; some slots are more by so many all the same.
                let under_way = match kind {
                    Slots::Usual if !crowded => 0,
                    Slots::Usual | Slots::Long => 8,
                    Slots::Small | Slots::Given if !crowded => 8,
                    Slots::Small => 128,
                    Slots::Medium if ranks == 17 => 32,
                    Slots::Medium => 64,
                    Slots::Taken | Slots::Given => 16,
                };
                let ahead = geometry.ahead(kind);
                let number = |seq| hub.slot(0, kind, seq).cast::<u64>();
                for seq in 1..2000_u64 {
                    // SAFETY: slots are aligned to lines and longer than a word; nobody else has this memory.
                    unsafe { number(seq).write(seq) };
                    let finished = (seq.saturating_sub(ahead) + 1).saturating_sub(1 + under_way);
                    for read in finished + 1..=seq {
                        // SAFETY: as above.
                        assert_eq!(unsafe { number(read).read() }, read, "{kind:?} {ranks} {crowded} {travels}: {seq}");
                    }
                }
            }
            let few = ranks < 17 && travels && !crowded;
            let slots = |kind| if crowded { 0 } else { geometry.shelf(kind).0 };
            assert_eq!((geometry.roots_run_ahead(), slots(Slots::Given) == 64), (few, few));
            assert_eq!(slots(Slots::Small) == 128, few);
        }
    }

    /// A thread that ended a task rings after its communicator may have gone.
    #[test]
    fn a_kept_bell_outlives_its_hub() {
        let hub = hub(2);
        let (near, kept) = (hub.bell(1), hub.kept_bell(1));
        near.park_unless(std::time::Duration::ZERO, || false);
        assert!(kept.is_awaited(), "both are the same bell");
        drop(hub);
        kept.ring();
        assert!(!kept.is_awaited());
    }

    #[test]
    fn areas_do_not_overlap() {
        // Of ranks that share cores, of such with cores of their own, and of a pair.
        for (ranks, large, crowded) in [(3, 0, true), (17, 0, true), (5, 256 << 10, false), (2, 65536, false)] {
            no_areas_overlap(&hub_of(ranks, large, crowded));
        }
    }

    fn no_areas_overlap(hub: &Hub) {
        let g = *hub.geometry();
        let mut areas: Vec<(usize, usize)> = vec![(hub.base as usize, HEADER)];
        for m in 0..g.ranks {
            for seq in 0..DEPTH {
                areas.push((hub.entry(m, seq).signature as usize - 8, LINE));
            }
            for kind in Slots::ALL {
                let bytes = match kind {
                    Slots::Usual => g.eager_bytes,
                    Slots::Small => SMALL_BYTES,
                    Slots::Medium | Slots::Taken => MEDIUM_BYTES,
                    Slots::Given => GIVEN_BYTES,
                    Slots::Long => LONG_BYTES,
                };
                areas.extend((0..g.shelf(kind).0).map(|seq| (hub.slot(m, kind, seq) as usize, bytes)));
            }
            if g.large_bytes > 0 {
                areas.extend((0..SLOTS).map(|seq| (hub.large_payload(m, seq) as usize, g.large_bytes)));
            }
            for from in 0..g.ranks {
                for word in 0..CONTEXTS * SIGNALS {
                    areas.push((hub.signal(m, from, word).as_ptr() as usize, 8));
                }
                areas.push((hub.probe_word(m, from).as_ptr() as usize, 4));
            }
            for half in 0..2 {
                areas.push((hub.scratch(m, half) as usize, g.scratch_half));
            }
            areas.push((hub.ring_memory(m) as usize, g.ring_room()));
            for to in 0..g.ranks {
                for lane in 0..g.lanes {
                    areas.push((hub.lane(m, to, lane) as usize, g.lane_bytes(lane)));
                }
            }
        }
        areas.sort_unstable();
        for w in areas.windows(2) {
            assert!(w[0].0 + w[0].1 <= w[1].0, "{w:?}");
        }
        let last = areas[areas.len() - 1];
        assert!(last.0 + last.1 <= hub.base as usize + g.total());
    }

    /// Whatever lengths they have, as many payloads as there may be under way have places of their own; the first ones also beside
    /// those in large slots.
    #[test]
    fn payloads_that_go_round_do_not_overlap() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        // Of the longest ones no more have room than may be under way.
        for large in [65536, ROUND / 2] {
            go_round(&mut fastrand::Rng::with_seed(seed), large);
        }
    }

    fn go_round(random: &mut fastrand::Rng, large: usize) {
        let hub = hub_of(2, large, false);
        let begin = hub.large_payload(1, 0) as usize;
        let slot = |seq| (hub.large_payload(1, seq) as usize, large);
        let mut under_way: VecDeque<(usize, usize)> = (0..SLOTS).map(slot).collect();
        let (mut from, mut rounds, mut last) = (hub.populate_round(1), 0, 0);
        for n in 0..10_000 {
            under_way.pop_front();
            let bytes = match n / 1_000 % 3 {
                0 => large,
                1 => 1 + random.usize(..large),
                _ => 1 + random.usize(..2_000),
            };
            let (place, behind) = hub.round(1, from, bytes);
            from = behind;
            let at = place as usize;
            assert!(
                at >= begin && at + bytes <= begin + hub.geometry().large_area() && at.is_multiple_of(64),
                "payload {n}"
            );
            let met = under_way.iter().find(|(other, len)| at < other + len && *other < at + bytes);
            assert!(met.is_none(), "payload {n} of {bytes} bytes at {at:#x} lies in {met:?}");
            assert_eq!(hub.payload_at(1, hub.offset_of(1, place), bytes), Some(place));
            (rounds, last) = (rounds + usize::from(at < last), at);
            under_way.push_back((at, bytes));
        }
        assert!(rounds > 10, "{rounds} rounds");
    }

    /// What a line may say is checked.
    #[test]
    fn no_payload_lies_elsewhere() {
        let hub = hub(2);
        let (first, end) = (hub.offset_of(0, hub.payload(0, 0)), hub.offset_of(0, hub.scratch(0, 0)));
        assert_eq!(hub.payload_at(0, first, 8), Some(hub.payload(0, 0)));
        assert!(hub.payload_at(0, end - 8, 8).is_some());
        for (at, bytes) in [(first - 1, 8), (0, 8), (end - 7, 8), (end, 1), (u64::MAX, 1), (first, usize::MAX)] {
            assert_eq!(hub.payload_at(0, at, bytes), None, "{bytes} bytes at {at:#x}");
        }
    }

    #[test]
    fn every_byte_is_counted_once() {
        for ranks in 1..5 {
            let hub = hub(ranks);
            let parts: usize = (0..ranks).map(|m| hub.persistent(m) + hub.releasable()).sum();
            assert_eq!(parts, hub.geometry().total());
        }
    }

    #[test]
    fn a_release_takes_only_what_is_free() {
        let hub = hub(2);
        let bytes = |at: *mut u8, n: usize| -> Vec<u8> {
            // SAFETY: inside the hub; nobody else has it.
            (0..n).map(|i| unsafe { at.add(i).read() }).collect()
        };
        let everywhere = [hub.payload(1, 0), hub.payload(1, 7), hub.scratch(1, 0), hub.scratch(1, 1)];
        let kept = [hub.payload(0, 0), hub.scratch(0, 1), hub.entry(1, 3).body, hub.lane(1, 0, 0), hub.lane(0, 0, 0)];
        for at in everywhere.iter().chain(&kept) {
            // SAFETY: as above.
            (0..8).for_each(|i| unsafe { at.add(i).write(7) });
        }
        hub.release(1).unwrap();
        assert!(everywhere.iter().all(|at| bytes(*at, 8) == [0; 8]));
        assert!(kept.iter().all(|at| bytes(*at, 8) == [7; 8]));
    }

    #[test]
    fn first_poison_wins_and_is_read_whole() {
        let hub = hub(2);
        assert!(!hub.is_poisoned() && hub.poison_error().is_none());
        hub.poison(&Error::usage("first"));
        hub.poison(&Error::remote("second"));
        assert!(hub.is_poisoned());
        assert_eq!(hub.poison_error(), Some(Error::usage("first")));
    }
}
