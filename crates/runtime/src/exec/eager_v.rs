//! The eager form of AlltoAllv: a rank whose whole input is small puts it beside the line that announces the call, with
//! a table that says where each peer's part ends: the one in front of it ends where it begins, and its own has no bytes.
//!
//! Counts differ from rank to rank, so each decides for itself, and its line says what it decided; what a rank with
//! more to send sends is taken from its memory, see `lent_v`, or goes by messages, see `p2p`. Lines are written and freed as those of the other collectives.

use oxccl_kernels as kernels;
use oxccl_sys::prefetch;
use oxccl_sys::sync::kept_in_order;
use oxccl_types::{Collective, Error, Result, Signature};

use super::call::{Call, describe};
use super::collective::Engine;
use super::entry::{ask_for, publish, put};
use super::lent_v::{self, Lent};
use super::scratch::{self, Scratch};
use crate::communicator::core::Core;
use crate::communicator::hub::{
    INLINE_BYTES, LINES_AHEAD, MEDIUM_BYTES, MEDIUM_WINDOW, SLOTS, SMALL_BYTES, Slots, WINDOW,
};
use crate::request::VCounts;

/// Where a rank's parts lie. The first word of the body of its line.
const BY_MESSAGES: u32 = 0;
pub(super) const IN_LINE: u32 = 1;
pub(super) const IN_SLOT: u32 = 2;
/// In the memory of the rank, see [`lent_v`]: peers can map it, or let the kernel copy.
pub(super) const LENT: u32 = 3;
/// In a small slot, or one of medium size, of which there are more.
const IN_SMALL_SLOT: u32 = 4;
const IN_MEDIUM_SLOT: u32 = 5;
/// In the area of the one or the other half of the scratch, of two ranks that write them in turns.
const IN_AREA: u32 = 6;
const IN_OTHER_AREA: u32 = 7;

/// Bytes of one word of the table.
pub(super) const WORD: usize = 4;

/// Whether the table lies in the line, wherever the parts are: then they are asked for as soon as the line is there.
/// The table of more members lies in front of the parts.
fn is_table_in_line(core: &Core) -> bool {
    WORD * (1 + core.members.len()) <= INLINE_BYTES
}

/// Bytes that go into a line or slot.
fn usual(core: &Core) -> usize {
    core.hub.geometry().eager_bytes.min(core.config.eager_limit)
}

/// Table, then the parts for the other members in their order: bytes of both.
fn published(core: &Core, call: &Call, v: &VCounts) -> Option<usize> {
    let element = call.dtype.size();
    let others = core.members.iter().filter(|rank| **rank != core.rank);
    let table = WORD * core.members.len();
    let mut limit = usual(core);
    if scratch::takes_turns(core) {
        let room = Scratch::of(core).room();
        // What is longer than a slot the kernel copies, where it is the faster one.
        let most = if core.trades_lines && core.reaches { room.min(usual(core)) } else { room };
        limit = limit.max(most + table);
    }
    let mut bytes = table;
    for rank in others {
        bytes = bytes.checked_add(v.send_counts[*rank].checked_mul(element)?)?;
    }
    (bytes <= limit).then_some(bytes)
}

/// The slots that `place` means, if it means any.
fn slots(place: u32) -> Option<Slots> {
    match place {
        IN_SLOT => Some(Slots::Usual),
        IN_SMALL_SLOT => Some(Slots::Small),
        IN_MEDIUM_SLOT => Some(Slots::Medium),
        _ => None,
    }
}

/// Where the parts of `member` in call `seq` are that lie in `place`, if that is beside its line.
fn beside(core: &Core, member: usize, place: u32, seq: u64) -> Option<*mut u8> {
    match place {
        IN_AREA | IN_OTHER_AREA => Some(scratch::area(core, member, (place - IN_AREA) as usize)),
        _ => slots(place).map(|slots| core.hub.slot(member, slots, seq)),
    }
}

/// Where this rank's parts go, and how many bytes they have with their table: if they are small. It follows from type and
/// counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way(Option<(u32, usize)>);

impl Way {
    pub(super) fn of(core: &Core, call: &Call, v: &VCounts) -> Way {
        let crowded = core.hub.geometry().crowded;
        let usual = usual(core);
        Way(published(core, call, v).filter(|_| core.eager).map(|bytes| match bytes {
            _ if bytes + WORD <= INLINE_BYTES => (IN_LINE, bytes),
            _ if crowded && bytes <= SMALL_BYTES => (IN_SMALL_SLOT, bytes),
            _ if crowded && bytes <= MEDIUM_BYTES => (IN_MEDIUM_SLOT, bytes),
            _ if bytes > usual => {
                debug_assert!(bytes <= Scratch::of(core).room() + WORD * core.members.len(), "the area has no room");
                (IN_AREA, bytes)
            }
            _ => (IN_SLOT, bytes),
        }))
    }

    /// Whether they are more than a small slot holds, and some slot has room for them.
    pub(super) fn is_long(self) -> bool {
        self.0.is_some_and(|(_, bytes)| bytes > SMALL_BYTES)
    }

    /// Where they lie.
    pub(super) fn place(self) -> Option<u32> {
        self.0.map(|(place, _)| place)
    }

    /// How many calls a rank may be ahead of its peers when it announces the call.
    pub(super) fn ahead(self, core: &Core) -> u64 {
        match self.0 {
            // As for other calls that put something there: see `beside::put`.
            Some((IN_AREA, _)) => 2,
            // Small slots are used here, and those of medium size are there, where ranks share cores.
            Some((place, _)) => slots(place).map_or(LINES_AHEAD, |slots| core.hub.geometry().ahead(slots)),
            None => LINES_AHEAD,
        }
    }

    /// Of a call that begins: parts that are not small are left where they lie if peers can map that. They are copied once then,
    /// and no slots are written that peers have read. Else those that no slot has room for may be lent from there through the kernel, or
    /// from a copy, see [`lent_v`].
    pub(super) fn start(self, core: &Core, engine: &mut Engine, call: &Call, v: &VCounts) -> Start {
        let large = self.0.is_none_or(|(_, bytes)| bytes > SMALL_BYTES);
        let lent = if large { lent_v::place(core, engine, call, v, self.0.is_none()) } else { Lent::No };
        Start { way: self, lent }
    }

    /// Of a call whose parts go into a slot though peers could take them from where they lie.
    pub(super) fn into_slot(self) -> Start {
        debug_assert!(self.0.is_some(), "no slot has room for them");
        Start { way: self, lent: Lent::No }
    }
}

/// Where this rank's parts are in a call that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) way: Way,
    /// Whether peers take them from where they lie, or from copies.
    lent: Lent,
}

impl Start {
    /// How many calls a rank may be ahead of its peers when it announces the call.
    pub(super) fn ahead(&self, core: &Core) -> u64 {
        if self.lends() { lent_v::ahead(core) } else { self.way.ahead(core) }
    }

    fn lends(&self) -> bool {
        matches!(self.lent, Lent::At(_))
    }

    /// Whether the parts could be lent if the calls in front were over.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.lent, Lent::Full)
    }

    /// How many calls may be under way of which it is one. Peers choose their own ways: where these may put more into slots than
    /// fits those of medium size there are no more than such slots allow, however little this rank gives.
    pub(super) fn window(&self, core: &Core) -> u64 {
        match (self.way.0, self.lent) {
            (_, Lent::At(place)) if usual(core) > MEDIUM_BYTES => WINDOW.min(place.window(core)),
            _ if usual(core) > MEDIUM_BYTES => WINDOW,
            (Some((IN_LINE | IN_SMALL_SLOT, _)), _) => core.hub.geometry().uneven_window(),
            (_, Lent::At(place)) => place.window(core),
            (Some((IN_MEDIUM_SLOT, _)), _) => MEDIUM_WINDOW,
            _ => WINDOW,
        }
    }
}

/// Announces the call, with this rank's parts where they are small, or where they lie if they are lent. Whether one of the
/// two holds. `may_publish(seq)` does.
pub(super) fn announce(core: &Core, engine: &mut Engine, call: &Call, v: &VCounts, start: Start, seq: u64) -> bool {
    let Start { way: Way(way), lent } = start;
    // As every direct call does. Who puts something into an area has seen the peer announce the call in front, and has ended that:
    // what the peer put there last is taken, and what this rank put there before that, too. In the second call it need not
    // have seen the peer: the first one ended without it only if the peer had nothing to put there.
    engine.half ^= 1;
    if let Lent::At(place) = lent {
        // SAFETY: the counts and displacements lie inside the caller's buffer; nothing was put to the stage since `start`.
        unsafe { lent_v::put(core, engine, call, v, place, seq) };
        // SAFETY: `may_publish`.
        publish(core, call.signature, seq, |body| unsafe { lent_v::fill(core, call, v, place, seq, body) });
        ask_for(core, seq + 1, lent_v::line_bytes(core));
        return true;
    }
    let (place, bytes) = match way {
        Some((IN_AREA, bytes)) => ([IN_AREA, IN_OTHER_AREA][engine.half], bytes),
        Some(way) => way,
        None => (BY_MESSAGES, 0),
    };
    let table = if is_table_in_line(core) { WORD * core.members.len() } else { 0 };
    let in_line = WORD + if place == IN_LINE { bytes } else { table };
    let slots = slots(place);
    if let Some(slots) = slots {
        engine.known.populate(core, slots, bytes);
    }
    publish(core, call.signature, seq, |body| {
        // SAFETY: the body has INLINE_BYTES bytes and no peer reads it any more; nor the slot, which has room for what
        // `published` counted.
        unsafe {
            let beside = beside(core, core.me, place, seq);
            match beside {
                Some(slot) if table > 0 => fill(core, call, v, body.add(WORD), slot, to_slot),
                Some(slot) => fill(core, call, v, slot, slot.add(WORD * core.members.len()), to_slot),
                None if place == IN_LINE => fill(core, call, v, body.add(WORD), body.add(WORD + table), put),
                None => {}
            }
            body.cast::<u32>().write(place);
        }
    });
    engine.seen.reclaim(core, seq + 1, in_line);
    if place == IN_SLOT && engine.seen.is_known_free(core.me, seq + 1, SLOTS) {
        prefetch::all_for_write(core.hub.payload(core.me, seq + 1), bytes);
    }
    place != BY_MESSAGES
}

/// Copies one part to where it is published.
type PutPart = unsafe fn(*mut u8, *const u8, usize);

/// To a slot.
///
/// # Safety
/// As [`kernels::copy`].
unsafe fn to_slot(at: *mut u8, part: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { kernels::copy(&[at], part, bytes) }
}

/// # Safety
/// `table` and `at` are writable for the table and the parts; the counts and displacements lie inside the caller's buffer.
#[inline(always)]
unsafe fn fill(core: &Core, call: &Call, v: &VCounts, table: *mut u8, at: *mut u8, put_part: PutPart) {
    let element = call.dtype.size();
    let bytes = |rank: usize| if rank == core.rank { 0 } else { v.send_counts[rank] * element };
    // SAFETY: the caller's promise.
    unsafe {
        // From the last one on, as `publish` asks for.
        let all: usize = core.members.iter().map(|rank| bytes(*rank)).sum();
        let mut begin = all;
        for rank in core.members.iter().rev() {
            begin -= bytes(*rank);
            put_part(at.add(begin), call.send.add(v.send_displs[*rank] * element), bytes(*rank));
        }
        kept_in_order();
        let mut end = all;
        for (member, rank) in core.members.iter().enumerate().rev() {
            table.cast::<u32>().add(member).write_unaligned(end as u32);
            end -= bytes(*rank);
        }
    }
}

/// The part of `member` for this rank, with its bytes; `None` when it comes by messages. The line of `seq` has arrived.
///
/// # Safety
/// As said, and this rank has not started more than a window of later calls.
unsafe fn part(core: &Core, member: usize, seq: u64) -> Option<(*const u8, usize)> {
    let body = core.hub.entry(member, seq).body;
    // SAFETY: the line and what it announces are complete, and stay until this rank has started more than a window of later
    // calls, or one where calls do not trail.
    unsafe {
        let bytes = WORD * core.members.len();
        let (table, parts) = match body.cast::<u32>().read() {
            IN_LINE => (body.add(WORD), body.add(WORD + bytes)),
            place => match beside(core, member, place, seq)? {
                slot if is_table_in_line(core) => (body.add(WORD), slot),
                slot => (slot, slot.add(bytes)),
            },
        };
        let end = |m: usize| table.cast::<u32>().add(m).read_unaligned() as usize;
        let begin = if core.me == 0 { 0 } else { end(core.me - 1) };
        Some((parts.add(begin).cast_const(), end(core.me) - begin))
    }
}

/// Whether the parts of `member` for this rank came with its line, or are lent. The line of `seq` has arrived.
pub(super) fn came(core: &Core, member: usize, seq: u64) -> bool {
    // SAFETY: the line is complete and stays as said above.
    unsafe { core.hub.entry(member, seq).body.cast::<u32>().read() != BY_MESSAGES }
}

/// Takes all that came with the lines of the other members, and the own part. All lines of `seq` have arrived.
///
/// # Errors
/// `InvalidUsage` when a part has another length than this rank expects; nothing was written then.
pub(super) fn take(core: &Core, call: &Call, v: &VCounts, seq: u64) -> Result<()> {
    let element = call.dtype.size();
    let others = || core.members.iter().enumerate().filter(|(member, _)| *member != core.me);
    for (member, rank) in others() {
        // SAFETY: all lines have arrived, and no later calls than may trail have started.
        let here = unsafe { part(core, member, seq) }.map(|(_, bytes)| bytes);
        let lent = || lent_v::lends(core, member, seq).then(|| lent_v::count(core, member, seq) * element);
        let Some(bytes) = here.or_else(lent) else { continue };
        if bytes != v.recv_counts[*rank] * element {
            let error = mismatch(core, call, *rank, v.recv_counts[*rank], bytes / element);
            core.spread(&error);
            return Err(error);
        }
    }
    check_own(core, call, v)?;
    let own = core.rank;
    // SAFETY: counts and displacements lie in the caller's buffers, which do not overlap; the parts have the lengths
    // compared above.
    unsafe {
        let at = |rank: usize| call.recv.add(v.recv_displs[rank] * element);
        for (member, rank) in others() {
            if let Some((data, _)) = part(core, member, seq) {
                // The length compared above: the processor need not wait for the peer's to know what it reads.
                kernels::copy(&[at(*rank)], data, v.recv_counts[*rank] * element);
            }
        }
        kernels::copy(&[at(own)], call.send.add(v.send_displs[own] * element), v.send_counts[own] * element);
    }
    Ok(())
}

/// That the rank sends itself as much as it expects of itself.
///
/// # Errors
/// `InvalidUsage` if not.
pub(super) fn check_own(core: &Core, call: &Call, v: &VCounts) -> Result<()> {
    let (sent, expected) = (v.send_counts[core.rank], v.recv_counts[core.rank]);
    if sent == expected {
        return Ok(());
    }
    let error = mismatch(core, call, core.rank, expected, sent);
    core.spread(&error);
    Err(error)
}

#[cold]
fn mismatch(core: &Core, call: &Call, rank: usize, expected: usize, sent: usize) -> Error {
    let told = |count: usize| {
        let signature = Signature {
            collective: Collective::AllToAllV,
            dtype: call.dtype,
            op: 0,
            root: core.rank as u32,
            count: count as u64,
        };
        describe(signature.pack())
    };
    Error::usage(format!(
        "rank {} receives {} from rank {rank}, which sends {} in communicator {:#x}; what a rank sends to another must \
         be what that one expects",
        core.rank,
        told(expected),
        told(sent),
        core.hash
    ))
}
