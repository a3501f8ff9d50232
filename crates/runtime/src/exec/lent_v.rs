//! AlltoAllv straight from the memory of peers: a rank whose send buffer they can map, or let the kernel copy, says in its line where
//! each peer's part lies, and waits until all have taken theirs. Where ranks share cores, parts of some length that peers cannot map are copied to
//! where they can (`stage`): each rank then has one line to write and one to read of every other, and no message.
//!
//! Each rank decides for itself, as in [`eager_v`](super::eager_v): of the parts that a rank gets some may come with the lines,
//! some are lent, and the rest comes by messages when these were taken. Where the parts lie stands in a table behind the head of the
//! line, or in a small slot where the line has no room for an entry of each member.

use std::ops::Range;

use oxccl_kernels as kernels;
use oxccl_sys::sync::kept_in_order;
use oxccl_types::{Error, Result};

use super::call::Call;
use super::collective::Engine;
use super::direct::{is_raised, raise, spot};
use super::eager_v::LENT;
use super::far::{self, Spot};
use super::{pieces, stage, trail};
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::{INLINE_BYTES, LINES_AHEAD, SMALL_BYTES, Slots};
use crate::device::{Step, withdrawn};
use crate::request::VCounts;

/// Words of 8 bytes in the line, in front of the table if that lies there: what the line is and the segment; the place in it, or the
/// address where there is one process or the kernel copies; how many segments the owner has given back.
const HEAD: usize = 3;
/// Members of which the table has room in a line: for each where its part begins and how long it is, in elements.
const MOST_IN_LINE: usize = INLINE_BYTES / 8 - HEAD;
/// The same in a small slot. Parts of more members are not lent.
const MOST_MEMBERS: usize = SMALL_BYTES / 8;
/// Bytes of a part in the mean from which on the kernel copies it sooner than two ranks do, one after the other, where they share cores
/// (measured with 3 to 8 ranks on 2 cores, docs/performance-changes.md).
const FAR_FROM_CROWDED: u64 = 16 << 10;
/// What the line says in place of a segment where the kernel copies.
const FAR: u32 = u32::MAX;
/// Bytes that one step moves at most.
const STEP: usize = 1 << 20;

/// Where the parts that are sent lie, or their copies, as the line says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// `None`: `at` is an address of this process, from which peers let the kernel copy.
    segment: Option<u32>,
    at: u64,
    /// Where the parts are copied to, one after the other, and bytes of all; `None`: they are left where they lie.
    copied: Option<(*mut u8, usize)>,
}

impl Place {
    /// How many calls of its kind may be under way.
    pub(super) fn window(&self, core: &Core) -> u64 {
        // Of ranks with cores of their own, who have fewer small slots, none begin behind it.
        let most = core.hub.geometry().uneven_window();
        self.copied.map_or(most, |(_, bytes)| stage::window(bytes).min(most))
    }
}

/// Whether the table lies in the line.
fn is_table_in_line(core: &Core) -> bool {
    core.members.len() <= MOST_IN_LINE
}

/// Bytes of the line's body that a rank which lends its parts writes, at most.
pub(super) fn line_bytes(core: &Core) -> usize {
    if is_table_in_line(core) { INLINE_BYTES } else { 8 * HEAD }
}

/// How many calls a rank that lends its parts may be ahead of its peers.
pub(super) fn ahead(core: &Core) -> u64 {
    if is_table_in_line(core) { LINES_AHEAD } else { core.hub.geometry().ahead(Slots::Small) }
}

/// The table of `member` in call `seq`.
fn table(core: &Core, member: usize, seq: u64) -> *mut u64 {
    if is_table_in_line(core) {
        core.hub.entry(member, seq).body.cast::<u64>().wrapping_add(HEAD)
    } else {
        core.hub.slot(member, Slots::Small, seq).cast()
    }
}

/// What is known of a call's parts before it is announced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lent {
    /// Peers can take them from there.
    At(Place),
    /// They could if calls in front of it were over, whose parts are in the way.
    Full,
    /// They cannot.
    No,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// How many peers' parts were looked at, from the one behind this rank on.
    peers: usize,
    /// Bytes of the next one's part that are taken.
    bytes: usize,
    /// Some parts come, or go, by messages, which is next.
    pub messages: bool,
}

impl Taken {
    /// Nothing yet; `messages` as there.
    pub(super) fn new(messages: bool) -> Taken {
        Taken { peers: 0, bytes: 0, messages }
    }
}

/// Where the parts that this rank sends lie, if the peers can take them from there. `unslotted`: no slot has room for them, so
/// that they may also be lent through the kernel, or from copies.
pub(super) fn place(core: &Core, engine: &mut Engine, call: &Call, v: &VCounts, unslotted: bool) -> Lent {
    let fits = |n: &usize| u32::try_from(*n).is_ok();
    let mapped = matches!(core.config.p2p.as_str(), "auto" | "direct");
    if !(core.whole && core.eager && (mapped || core.reaches && !core.one_process))
        || core.members.len() > MOST_MEMBERS
        || !v.send_counts.iter().chain(&v.send_displs).all(fits)
    {
        return Lent::No;
    }
    if core.one_process {
        return Lent::At(Place { segment: Some(0), at: call.send.addr() as u64, copied: None });
    }
    let bytes = v.reads(call.send.addr(), call.dtype.size());
    let exported = || engine.exporter.export(std::ptr::with_exposed_provenance(bytes.start), bytes.len());
    if let Some(at) = mapped.then(exported).flatten() {
        // That of element 0, which need not be in the segment: the owner adds what the readers do.
        let before = (bytes.start - call.send.addr()) as u64;
        return Lent::At(Place { segment: Some(at.segment), at: at.offset.wrapping_sub(before), copied: None });
    }
    if !unslotted {
        return Lent::No;
    }
    if is_far(core, call, v) {
        return Lent::At(Place { segment: None, at: call.send.expose_provenance() as u64, copied: None });
    }
    let bytes = copied_bytes(core, call, v);
    if !trail::goes_on(core) || bytes > stage::MOST {
        return Lent::No;
    }
    let now = engine.next_number();
    let taken = |seq| {
        pieces::is_over(pieces::flag_of(seq, 1), now)
            || (0..core.members.len()).all(|m| m == core.me || is_raised(core, m, 0, seq, 1, 1))
    };
    let to = match engine.stage.place(bytes, taken) {
        Some(to) => to,
        None if engine.stage.is_refused() => return Lent::No,
        None => return Lent::Full,
    };
    let Some(at) = engine.exporter.export(to, bytes) else { return Lent::No };
    Lent::At(Place { segment: Some(at.segment), at: at.offset, copied: Some((to, bytes)) })
}

/// Whether peers are to let the kernel copy this rank's parts, which they cannot map: always with `OXCCL_P2P=cma`; else if the parts are long
/// enough in the mean, on processors where lines travel and strings are fast all the same, as it was measured. What stays here counts: all ranks
/// have as much in all as a rule, and where some copy and others lend all wait for the slower way.
fn is_far(core: &Core, call: &Call, v: &VCounts) -> bool {
    let is_long = |least: u64| {
        let least = least.max(if core.crowded { FAR_FROM_CROWDED } else { 0 });
        let elements = v.send_counts.iter().fold(0_u64, |all, n| all.saturating_add(*n as u64));
        elements.saturating_mul(call.dtype.size() as u64) >= least.saturating_mul(core.members.len() as u64)
    };
    let least = || core.config.constants.model.kernel_from().filter(|_| kernels::travels_by_strings());
    core.reaches && (core.config.p2p == "cma" || least().is_some_and(is_long))
}

/// Elements from the beginning of one copied part to that of the next one: each begins with a cache line.
fn copied_stride(core: &Core, call: &Call, v: &VCounts, rank: usize) -> usize {
    let bytes = if rank == core.rank { 0 } else { v.send_counts[rank] * call.dtype.size() };
    bytes.next_multiple_of(stage::LINE) / call.dtype.size()
}

/// Bytes of all parts where they are copied to.
fn copied_bytes(core: &Core, call: &Call, v: &VCounts) -> usize {
    let all = core.members.iter().fold(0_usize, |all, rank| all.saturating_add(copied_stride(core, call, v, *rank)));
    all.saturating_mul(call.dtype.size())
}

/// Copies the parts of call `seq` to where its line will say that they lie, if they do not lie there. What the kernel will copy is put on
/// large pages.
///
/// # Safety
/// The counts and displacements lie inside the caller's buffer; the place is that which was found last.
pub(super) unsafe fn put(core: &Core, engine: &mut Engine, call: &Call, v: &VCounts, place: Place, seq: u64) {
    let element = call.dtype.size();
    if !is_table_in_line(core) {
        engine.known.populate(core, Slots::Small, SMALL_BYTES);
    }
    if place.segment.is_none() {
        for bytes in [v.reads(call.send.addr(), element), v.writes(call.recv.addr(), element)] {
            let at = std::ptr::with_exposed_provenance(bytes.start);
            // What peers can map is left as it is.
            if engine.pages.minds(bytes.len()) && engine.exporter.export(at, bytes.len()).is_none() {
                engine.pages.used(at, bytes.len());
            }
        }
    }
    let Some((mut to, all)) = place.copied else { return };
    for rank in core.members.iter().filter(|rank| **rank != core.rank) {
        let bytes = v.send_counts[*rank] * element;
        // SAFETY: the caller's promise; the stage has room for all parts, and no call that is not over uses that.
        unsafe {
            kernels::copy(&[to], call.send.add(v.send_displs[*rank] * element), bytes);
            to = to.add(copied_stride(core, call, v, *rank) * element);
        }
    }
    engine.stage.lend(seq, all);
}

/// Writes what the line of call `seq` says of them; its first word says [`LENT`].
///
/// # Safety
/// `body` is that of this rank's line, which no peer reads any more, nor its small slot.
pub(super) unsafe fn fill(core: &Core, call: &Call, v: &VCounts, place: Place, seq: u64, body: *mut u8) {
    let (words, table) = (body.cast::<u64>(), table(core, core.me, seq));
    let mut copies_end = place.copied.map(|(_, bytes)| bytes / call.dtype.size());
    // SAFETY: the body has room for `MOST_IN_LINE` entries, and the slot for `MOST_MEMBERS`; both are 8-byte aligned.
    unsafe {
        for (member, rank) in core.members.iter().enumerate().rev() {
            let at = match &mut copies_end {
                Some(end) => {
                    *end -= copied_stride(core, call, v, *rank);
                    *end
                }
                None => v.send_displs[*rank],
            };
            // `place` looked that they fit.
            let entry = at as u64 | (v.send_counts[*rank] as u64) << 32;
            table.add(member).write(entry);
        }
        kept_in_order();
        words.write(u64::from(LENT) | u64::from(place.segment.unwrap_or(FAR)) << 32);
        words.add(1).write(place.at);
        words.add(2).write(withdrawn());
    }
}

/// Whether the line of `member` says so. The line of `seq` has arrived.
#[inline]
pub(super) fn lends(core: &Core, member: usize, seq: u64) -> bool {
    // SAFETY: the line is complete and stays until this rank has started more than a window of later calls.
    unsafe { core.hub.entry(member, seq).body.cast::<u32>().read() == LENT }
}

/// Whether one of the members does, all of whose lines have arrived.
pub(super) fn any_lends(core: &Core, seq: u64) -> bool {
    (0..core.members.len()).any(|m| lends(core, m, seq))
}

/// Elements of the part of `member`, which [lends](lends), for this rank.
pub(super) fn count(core: &Core, member: usize, seq: u64) -> usize {
    part(core, member, seq).1
}

/// Where the part of `member` for this rank begins and how long it is, in elements.
fn part(core: &Core, member: usize, seq: u64) -> (usize, usize) {
    // SAFETY: as in `lends`, and so does the slot; the table has an entry per member.
    let entry = unsafe { table(core, member, seq).add(core.me).read() };
    (entry as u32 as usize, (entry >> 32) as usize)
}

/// Where the first of the `bytes` bytes of that part lies.
fn find(core: &Core, engine: &mut Engine, member: usize, seq: u64, displ: usize, bytes: usize) -> Result<Spot> {
    let body = core.hub.entry(member, seq).body.cast::<u64>();
    // SAFETY: as in `lends`.
    let (head, at, gone) = unsafe { (body.read(), body.add(1).read(), body.add(2).read()) };
    let at = at.wrapping_add(displ as u64);
    let rank = core.members[member];
    let segment = Some((head >> 32) as u32).filter(|segment| *segment != FAR);
    if !core.one_process {
        engine.imports.refresh(rank, gone, [segment, None]);
    }
    spot(core, engine, rank, segment, at, bytes as u64)
}

/// Takes the parts that peers lend, says so, and waits until the peers have taken those of this rank. All lines have
/// arrived, and the lengths were compared.
pub(super) fn step(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    v: &VCounts,
    seq: u64,
    taken: &mut Taken,
) -> Result<Step> {
    let members = core.members.len();
    let mut moved = 0;
    if taken.peers + 1 < members {
        let Some(_borrowed) = core.borrow_memory(Lane::Collectives) else { return Ok(Step::Blocked) };
        while taken.peers + 1 < members {
            if moved >= STEP {
                return Ok(Step::Progress);
            }
            let member = (core.me + taken.peers + 1) % members;
            if lends(core, member, seq) {
                let (piece, over) =
                    take_some(core, engine, call, v, seq, member, taken.bytes..taken.bytes + STEP - moved)?;
                moved += piece;
                taken.bytes += piece;
                if !over {
                    continue;
                }
            }
            (taken.peers, taken.bytes) = (taken.peers + 1, 0);
        }
        // All know from the lines that this comes.
        raise(core, 0, seq, 1);
    }
    let polls = engine.seen.polls();
    let mut others = (0..members).filter(|m| *m != core.me);
    let over = !lends(core, core.me, seq) || others.all(|m| is_raised(core, m, 0, seq, 1, polls));
    Ok(match over {
        true => Step::Done,
        false if moved > 0 => Step::Progress,
        false => Step::Blocked,
    })
}

/// Takes what lies in `range` of the part of `member`, in bytes of it: how many there were, and whether they are the last.
fn take_some(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    v: &VCounts,
    seq: u64,
    member: usize,
    range: Range<usize>,
) -> Result<(usize, bool)> {
    let element = call.dtype.size();
    let (displ, count) = part(core, member, seq);
    let rank = core.members[member];
    if count != v.recv_counts[rank] {
        return Err(Error::internal("the length of a part has changed"));
    }
    let bytes = count * element;
    let (begin, end) = (range.start.min(bytes), range.end.min(bytes));
    if begin < end {
        let from = find(core, engine, member, seq, displ * element, bytes)?;
        // SAFETY: the part lies in the caller's buffer, which has `recv_counts` elements there and overlaps nothing that is
        // read; what the owner lends stays until this rank's flag is raised.
        unsafe {
            let to = call.recv.add(v.recv_displs[rank] * element + begin);
            far::fetch(from.add(begin), to, end - begin, bytes)?;
        }
    }
    Ok((end - begin, end == bytes))
}

/// Whether this rank has done its part but for messages.
pub(super) fn has_taken(core: &Core, taken: &Taken) -> bool {
    taken.peers + 1 >= core.members.len()
}

/// Whether it waits for `rank` to take its part.
pub(super) fn awaits(core: &Core, seq: u64, rank: usize) -> bool {
    !is_raised(core, core.member_of[rank], 0, seq, 1, 1)
}
