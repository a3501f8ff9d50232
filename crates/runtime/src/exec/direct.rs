//! Direct programs: ranks of one machine that read and write each other's memory: mapped memory themselves, other memory
//! through the kernel.
//!
//! The entry lines of the call are the rendezvous of all ranks and carry where each rank's buffers lie. Flags then
//! carry `sequence << 28 | epoch`, so that nothing is ever reset.

use std::os::fd::AsRawFd;

use oxccl_kernels as kernels;
use oxccl_kernels::Post;
use oxccl_schedule::ir::{Buffer, Chunk, Op, Place, part_range};
use oxccl_sys::Belfry;
use oxccl_sys::sync::{Ordering, pause_between};
use oxccl_types::{Collective, Error, Result};

use super::awaited;
use super::beside::{self, InSlot};
use super::call::Call;
use super::collective::Engine;
use super::entry::{ask_for, publish};
use super::far::{self, Combination, Desk, Owner, Spot};
use super::pieces::{self, Pipe, flag_of, is_at};
use super::piped;
use super::plan::{Aside, DirectPlan, Plan, alignment, longest_part};
use super::scratch::{self, Slots};
use super::slotted;
use crate::communicator::core::Core;
use crate::device::{Step, withdrawn};

/// Bytes that one step moves at most.
const STEP: u64 = 1 << 20;

/// Where the buffers of a member lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub input: Spot,
    pub output: Spot,
}

impl Buffers {
    pub(super) const NONE: Buffers = Buffers { input: Spot::NONE, output: Spot::NONE };
}

/// How the ranks get at each other's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Road {
    /// All user memory that the program touches is mapped.
    Mapped,
    /// The kernel copies what is not.
    Far,
    /// The same for a call with a root that combines nothing, where the root works in place.
    FarInPlace,
    /// All inputs lie beside the lines.
    Beside,
    /// Blocks of a gather in payload slots, see `slotted`.
    Slots,
    /// Through scratch.
    Staged,
}

impl Road {
    /// Whether user memory of peers is touched.
    pub(super) fn borrows(self) -> bool {
        matches!(self, Road::Mapped | Road::Far | Road::FarInPlace)
    }
}

/// Progress of a direct program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    channel: usize,
    piece: u64,
    pieces: u64,
    /// Elements of a piece.
    length: u64,
    pc: usize,
    /// Elements of the current op that are done.
    done: u64,
    /// Where the pieces lie, of a call through scratch.
    slots: Slots,
}

impl Cursor {
    /// The same at op `pc`.
    pub(super) fn at(self, pc: usize) -> Cursor {
        Cursor { pc, ..self }
    }

    /// The op that comes next.
    pub(super) fn op(&self) -> usize {
        self.pc
    }

    /// The same behind the last op, of a program of one channel.
    pub(super) fn at_end(self) -> Cursor {
        Cursor { channel: 1, ..self }
    }
}

/// The input, the output is mapped memory: the line says where in which segment. Otherwise it says the address.
const INPUT: u64 = 1;
const OUTPUT: u64 = 2;
/// This rank and all peers in other processes can have the kernel copy between them.
const REACHES: u64 = 4;

/// My input lies beside my line.
const BESIDE: u64 = 8;
/// My input, which is all that is moved, is in a payload slot; of what a giver gives the second word says where that lies.
const IN_SLOT: u64 = 16;

/// Calls in front of this one are not over on this rank.
const BEHIND: u64 = 32;
/// My input, which is all that is moved, comes in pieces through my ring; the second word says where the first lies.
const PIPED: u64 = 64;
/// The first piece is there.
const PIECE: u64 = 128;
/// What was put there went past the caches. In a bit of the segment of an input, which such a line has none of.
const AWAY: u64 = 1 << 8;
/// My input, which is all that is moved, comes by messages. In a bit of the segment, too.
const SENT: u64 = 1 << 9;

/// Whether a line says that its payload is in a slot of its giver, and which.
#[inline]
pub(super) fn in_slot(words: &Words) -> Option<InSlot> {
    (words[0] & IN_SLOT != 0).then_some(InSlot { at: words[1], away: words[0] & AWAY != 0 })
}

/// Whether a line says that what its rank gives comes by messages.
#[inline]
pub(super) fn is_sent(words: &Words) -> bool {
    words[0] & (INPUT | SENT) == SENT
}

/// How the call goes on whose line says `words`, if it is piped; `gives`: the line is that of this rank.
#[inline]
pub(super) fn pipe(words: &Words, gives: bool) -> Option<Pipe> {
    (words[0] & PIPED != 0).then(|| {
        let mut pipe = Pipe::new(gives, words[1], words[0] & PIECE != 0);
        pipe.away = words[0] & AWAY != 0;
        pipe
    })
}

/// Announces the call with the places of my buffers, `send` and `recv`. An input that peers cannot map is put into my
/// payload slot if that is all that moves and fits, also one that they can if `aside` says so, but not if the peer of two ranks is found
/// to wait for it; else beside the line if
/// there is room, or it is begun to be piped, or will be sent, if `aside` says so. An output may be said not to be mapped though it is, see
/// [`slotted::asks`]. `behind`: calls in front of it are not
/// over. What the line says is returned.
#[allow(clippy::too_many_arguments, reason = "what the line says, no more")]
pub(super) fn announce(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    seq: u64,
    send: *const u8,
    aside: Aside,
    behind: bool,
) -> Words {
    engine.half ^= 1;
    let rank = core.rank as u32;
    let input_bytes = call.input_bytes(rank, core.ranks) as usize;
    let output_bytes = call.output_bytes(rank, core.ranks) as usize;
    let reaches = if core.reaches { REACHES } else { 0 };
    let mut words = [reaches, send as u64, call.recv as u64, 0];
    if core.one_process {
        words = [INPUT | OUTPUT, send as u64, call.recv as u64, 0];
    } else {
        if input_bytes > 0 {
            if aside.slotted && slotted::put_unasked(core, engine, call, seq, send) {
                words[0] |= IN_SLOT;
            } else if aside.slotted
                && rank == call.root
                && let Some(slot) = beside::put_in_slot(core, engine, call, seq, send, input_bytes, aside)
            {
                words[0] |= IN_SLOT | if slot.away { AWAY } else { 0 };
                words[1] = slot.at;
            } else if let Some(at) = engine.exporter.export(send, input_bytes) {
                words[0] |= INPUT | u64::from(at.segment) << 8;
                words[1] = at.offset;
            } else if aside.lent_if_awaited && awaited::is(core, &mut engine.awaited, call, seq) {
                engine.pages.used(send, input_bytes);
            } else if let Some(slot) = beside::put_in_slot(core, engine, call, seq, send, input_bytes, aside) {
                words[0] |= IN_SLOT | if slot.away { AWAY } else { 0 };
                words[1] = slot.at;
            } else if aside.beside && beside::put(core, engine, call, seq, send, input_bytes) {
                words[0] |= BESIDE;
            } else if aside.piped && beside::giver(core, call) == Some(core.me) {
                let (first, there) = piped::offer(core, engine, call, seq, send);
                words[0] |= PIPED | if there { PIECE } else { 0 } | if engine.places.is_away() { AWAY } else { 0 };
                words[1] = first;
            } else if core.reaches {
                engine.pages.used(send, input_bytes);
                // `beside::is_sent` foretells it.
                words[0] |= if will_send(core, call, send, aside) { SENT } else { 0 };
            }
        }
        if output_bytes > 0 {
            if aside.slotted && slotted::asks(core, call) {
                slotted::say(core, engine, call, seq);
            } else if let Some(at) = engine.exporter.export(call.recv, output_bytes) {
                words[0] |= OUTPUT | u64::from(at.segment) << 36;
                words[2] = at.offset;
            } else {
                slotted::say(core, engine, call, seq);
                if core.reaches {
                    engine.pages.used(call.recv, output_bytes);
                }
            }
        }
        words[3] = withdrawn();
    }
    // A scaled input lies elsewhere: the call would be taken for one that is not scaled.
    let copied = words[0] & BESIDE != 0 || call.scale.is_some();
    let apart = aside.apart && !behind && !copied && engine.apart.holds();
    if apart && beside::put(core, engine, call, seq, send, input_bytes) {
        engine.apart.put(seq);
        words[0] |= BESIDE;
    }
    words[0] |= if behind { BEHIND } else { 0 };
    publish(core, call.signature, seq, |body| {
        for (i, word) in words.iter().enumerate() {
            // SAFETY: the body has room for that and is 8-byte aligned.
            unsafe { body.cast::<u64>().add(i).write(*word) };
        }
    });
    // Who gives by a slot, in pieces or by messages does not wait for the line.
    match words[0] & (IN_SLOT | PIPED) == 0 && !is_sent(&words) {
        true => engine.seen.reclaim(core, seq + 1, size_of::<Words>()),
        false => ask_for(core, seq + 1, size_of::<Words>()),
    }
    words
}

/// Whether the input of this rank, which others cannot map, is all that moves and goes by messages.
pub(super) fn will_send(core: &Core, call: &Call, send: *const u8, aside: Aside) -> bool {
    let [usual, in_place] = aside.sent;
    let sends = if is_in_place(call, send) { in_place } else { usual };
    sends && core.reaches && beside::giver(core, call) == Some(core.me)
}

/// What the line of a member says of its buffers.
pub(super) type Words = [u64; 4];

/// That of `member`, which has arrived.
#[inline]
pub(super) fn words(core: &Core, member: usize, seq: u64) -> Words {
    let body = core.hub.entry(member, seq).body.cast::<u64>();
    // SAFETY: the line has arrived (the caller saw its sequence) and stays until this rank starts the next call.
    unsafe { [body.read(), body.add(1).read(), body.add(2).read(), body.add(3).read()] }
}

/// Whether the line of `member` says that peers can map all that others touch of its memory by `plan`.
#[inline]
pub(super) fn is_mapped(plan: &DirectPlan, member: usize, words: &Words) -> bool {
    (!plan.reads_input[member] || words[0] & INPUT != 0) && (!plan.writes_output[member] || words[0] & OUTPUT != 0)
}

/// What a line says of an input of `bytes` bytes that peers can map, and of no output; `None` if they cannot.
#[inline]
pub(super) fn lend(core: &Core, engine: &mut Engine, send: *const u8, bytes: u64) -> Option<Words> {
    if core.one_process {
        return Some([INPUT, send as u64, 0, 0]);
    }
    let at = engine.exporter.export(send, bytes as usize)?;
    Some([INPUT | u64::from(at.segment) << 8, at.offset, 0, withdrawn()])
}

/// Where the `bytes` bytes lie here that the line of `member`, of call `seq`, says that it [lends](lend).
///
/// # Errors
/// Those of [`Imports::address`](super::imports::Imports::address).
#[inline]
pub(super) fn find_lent(core: &Core, engine: &mut Engine, member: usize, seq: u64, bytes: u64) -> Result<*const u8> {
    let (rank, w) = (core.members[member], words(core, member, seq));
    let segment = Some(segment_of_input(&w));
    if !core.one_process {
        engine.imports.refresh(rank, w[3], [segment, None]);
    }
    Ok(spot(core, engine, rank, segment, w[1], bytes)?.at.cast_const())
}

/// The segments of a mapped input and output; `None` for what is not mapped.
pub(super) fn segments(words: &Words) -> [Option<u32>; 2] {
    let input = (words[0] & INPUT != 0).then_some(segment_of_input(words));
    [input, (words[0] & OUTPUT != 0).then_some((words[0] >> 36) as u32)]
}

/// The segment of a mapped input.
fn segment_of_input(words: &Words) -> u32 {
    (words[0] >> 8) as u32 & 0xfff_ffff
}

/// Writes into the body of a line what [`is_input_mapped`] and [`is_output_mapped`] find there: both are, or none.
///
/// # Safety
/// The body has room for a word.
pub(super) unsafe fn say_mapped(body: *mut u8, mapped: bool) {
    // SAFETY: the caller's promise; bodies are aligned.
    unsafe { body.cast::<u64>().write(if mapped { INPUT | OUTPUT } else { 0 }) };
}

/// Whether a line says that peers can map the input.
#[inline]
pub(super) fn is_input_mapped(words: &Words) -> bool {
    words[0] & INPUT != 0
}

/// Whether a line says that peers can map the output.
#[inline]
pub(super) fn is_output_mapped(words: &Words) -> bool {
    words[0] & OUTPUT != 0
}

/// Whether every rank has come to call `seq`, all lines of which have arrived, and not only announced it. Otherwise what it
/// reads of the scratch of others for the call in front would be written over.
pub(super) fn all_are_at(core: &Core, seq: u64) -> bool {
    if all_announced_at(core, seq) {
        return true;
    }
    raise(core, 0, seq, 0);
    (0..core.members.len()).filter(|m| *m != core.me).all(|m| is_raised(core, m, 0, seq, 0, 1))
}

/// Whether no rank announced call `seq`, all lines of which have arrived, before those in front of it were over there.
pub(super) fn all_announced_at(core: &Core, seq: u64) -> bool {
    (0..core.members.len()).all(|m| words(core, m, seq)[0] & BEHIND == 0)
}

/// What a line says of the buffers alone.
#[inline]
pub(super) fn places(words: &Words) -> Words {
    [words[0] & !BEHIND, words[1], words[2], words[3]]
}

/// All lines have arrived, or those of whom others touch memory, which is mapped: which way the call goes. The same answer on
/// every rank. `None`: the plan is no direct one.
pub(super) fn road(core: &Core, call: &Call, plan: &Plan, seq: u64, send: *const u8) -> Option<Road> {
    let Plan::Direct { mapped, far, part, aside, .. } = plan else { return None };
    if aside.apart && (0..core.members.len()).all(|m| words(core, m, seq)[0] & BESIDE != 0) {
        return Some(Road::Beside);
    }
    let mut lenders = (0..core.members.len()).filter(|m| mapped.touches(*m));
    // Only these need have come then.
    let all_mapped = lenders.all(|m| is_mapped(mapped, m, &words(core, m, seq)));
    // The root sees the lines of all.
    if slotted::serves(core, part, call) && (!all_mapped || core.rank as u32 == call.root && slotted::any(core, seq)) {
        return Some(Road::Slots);
    }
    if all_mapped {
        // Where algorithms for mapped memory are forbidden the program touches nobody's, and is the one for scratch.
        return Some(if mapped.program.scratch_slots > 0 { Road::Staged } else { Road::Mapped });
    }
    let (mut all_beside, mut all_reach) = (true, far.is_some());
    for m in 0..core.members.len() {
        let have = words(core, m, seq)[0];
        all_beside &= have & BESIDE != 0 || call.input_bytes(core.members[m] as u32, core.ranks) == 0;
        all_reach &= have & REACHES != 0;
    }
    Some(match all_reach {
        _ if all_beside => Road::Beside,
        true if root_in_place(core, call, seq, send) => match plan.staged_in_place() {
            true => Road::Staged,
            false => Road::FarInPlace,
        },
        true => Road::Far,
        false => Road::Staged,
    })
}

/// How much further the input of the root begins than its output where it works in place, of a call with a root that combines nothing.
fn distance_in_place(call: &Call) -> Option<u64> {
    let combines_nothing = matches!(call.collective, Collective::Broadcast | Collective::Gather | Collective::Scatter);
    call.distance_in_place(call.root).filter(|_| combines_nothing)
}

/// Whether this rank, the root of a call that combines nothing, works in place.
fn is_in_place(call: &Call, send: *const u8) -> bool {
    distance_in_place(call).is_some() && call.is_in_place(call.root, send)
}

/// Whether the root of a call that combines nothing works in place, as its line says.
fn root_in_place(core: &Core, call: &Call, seq: u64, send: *const u8) -> bool {
    let Some(distance) = distance_in_place(call) else { return false };
    let root = call.root as usize;
    if root == core.rank {
        return is_in_place(call, send);
    }
    let w = words(core, core.member_of[root], seq);
    let segments = (segment_of_input(&w), (w[0] >> 36) as u32);
    let same = w[1] == w[2].wrapping_add(distance);
    match (w[0] & INPUT != 0, w[0] & OUTPUT != 0) {
        (true, true) => segments.0 == segments.1 && same,
        (false, false) => same,
        _ => false,
    }
}

/// Bytes of the buffers of all ranks of this machine together, about.
fn buffers_bytes(core: &Core, call: &Call) -> f64 {
    2.0 * call.total_bytes(core.ranks) as f64 * core.members.len() as f64
}

/// The same counted: inputs that only some ranks have weigh less.
fn touched_bytes(core: &Core, call: &Call) -> u64 {
    let of = |rank: usize| {
        call.input_bytes(rank as u32, core.ranks).saturating_add(call.output_bytes(rank as u32, core.ranks))
    };
    core.members.iter().map(|rank| of(*rank)).fold(0, u64::saturating_add)
}

/// Whether the buffers of all ranks of this machine, about, are so long that results go past the caches.
fn is_past_caches(core: &Core, call: &Call) -> bool {
    buffers_bytes(core, call) >= past_caches(core) as f64
}

/// Bytes of all buffers together from which on results go past the caches, on processors that gain by it.
fn past_caches(core: &Core) -> u64 {
    core.config.constants.model.past_caches(core.members.len())
}

/// Finds where the members' buffers lie, as far as the program of this rank touches them. `plan`: that of a road which touches
/// user memory of peers.
pub(super) fn locate(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    seq: u64,
    send: *const u8,
    plan: Option<&DirectPlan>,
) -> Result<()> {
    engine.any_far = false;
    engine.cached = buffers_bytes(core, call) <= core.config.constants.model.cache_bytes;
    for m in 0..core.members.len() {
        if m == core.me {
            engine.spots[m] = Buffers { input: Spot::near(send.cast_mut()), output: Spot::near(call.recv) };
            continue;
        }
        engine.spots[m] = Buffers::NONE;
        // The lines of others need not have come.
        let Some(plan) = plan.filter(|plan| plan.touches(m)) else { continue };
        let w = words(core, m, seq);
        let rank = core.members[m];
        // Also of memory that this rank does not touch: what it maps of it might stay mapped for ever.
        if !core.one_process {
            engine.imports.refresh(rank, w[3], segments(&w));
        }
        let [reads, writes] = plan.own(m);
        if reads {
            let len = call.input_bytes(rank as u32, core.ranks);
            engine.spots[m].input = spot(core, engine, rank, segments(&w)[0], w[1], len)?;
            engine.any_far |= engine.spots[m].input.far.is_some();
        }
        if writes {
            let len = call.output_bytes(rank as u32, core.ranks);
            engine.spots[m].output = spot(core, engine, rank, segments(&w)[1], w[2], len)?;
            engine.any_far |= engine.spots[m].output.far.is_some();
        }
    }
    Ok(())
}

/// Where `len` bytes of `rank` lie: at offset `at` of `segment`, or at address `at` of its process.
pub(super) fn spot(
    core: &Core,
    engine: &mut Engine,
    rank: usize,
    segment: Option<u32>,
    at: u64,
    len: u64,
) -> Result<Spot> {
    let address = std::ptr::with_exposed_provenance_mut(at as usize);
    Ok(match segment {
        _ if core.one_process => Spot::near(address),
        Some(segment) => Spot::near(engine.imports.address(core, rank, segment, at, len)?),
        None if core.same_process(rank) => Spot::near(address),
        None => {
            let (pid, handle) = core.handles[rank].as_ref().ok_or_else(|| {
                Error::internal(format!("rank {rank} said that it can be reached, but its process is not known"))
            })?;
            // The handle is open as long as the communicator lives.
            let owner = Owner { rank: rank as u32, pid: *pid, handle: handle.as_raw_fd() };
            Spot { at: address, far: Some(owner) }
        }
    })
}

/// The first state of a program that uses no scratch.
pub(super) fn begin(call: &Call, plan: &DirectPlan) -> Cursor {
    debug_assert_eq!(plan.program.scratch_slots, 0, "{} uses scratch", plan.algorithm);
    Cursor { pieces: 1, length: longest(call, plan), ..Cursor::default() }
}

/// As [`begin`], of a call through scratch, which each rank has come to. Its pieces are equally long, as near as can be: ranks wait
/// for each other after a short one as well.
pub(super) fn begin_staged(core: &Core, engine: &mut Engine, call: &Call, plan: &DirectPlan) -> Cursor {
    let longest = longest(call, plan);
    let pieces = |slot: usize| longest.div_ceil((slot as u64 / call.dtype.size() as u64).max(1));
    let slots = scratch::slots(core, engine, call, plan, pieces);
    let pieces = pieces(slots.bytes());
    // A slot is a whole number of lines, so that this is none the longer for ending with one.
    let length = longest.div_ceil(pieces).next_multiple_of(alignment(call.dtype.size()));
    Cursor { pieces, length, slots, ..Cursor::default() }
}

/// Elements of the longest part that one op moves, up to a whole number of lines.
fn longest(call: &Call, plan: &DirectPlan) -> u64 {
    let align = alignment(call.dtype.size());
    longest_part(call.count, plan.least_parts, align).max(1)
}

/// A program with the places of a call.
pub(super) struct Bound<'a> {
    pub core: &'a Core,
    pub call: &'a Call,
    pub cursor: Cursor,
}

impl Bound<'_> {
    /// Elements of the current piece of `chunk`, from the start of its block.
    pub(super) fn range(&self, chunk: &Chunk) -> std::ops::Range<u64> {
        let part = part_range(self.call.count, chunk.part, chunk.parts, alignment(self.call.dtype.size()));
        let start = part.start.saturating_add(self.cursor.piece * self.cursor.length).min(part.end);
        start..(start + self.cursor.length).min(part.end)
    }

    /// Bytes of all pieces of `chunk`.
    fn part_bytes(&self, chunk: &Chunk) -> usize {
        let part = part_range(self.call.count, chunk.part, chunk.parts, alignment(self.call.dtype.size()));
        (part.end - part.start) as usize * self.call.dtype.size()
    }

    /// Where element `done` of the current piece of `place` lies.
    fn spot(&self, spots: &[Buffers], place: &Place) -> Spot {
        let element = self.call.dtype.size() as u64;
        let member = self.core.member_of[place.rank as usize];
        let chunk = &place.chunk;
        let base = match chunk.buffer {
            Buffer::Input => spots[member].input,
            Buffer::Output => spots[member].output,
            Buffer::Scratch => {
                let Cursor { channel, piece, done, slots, .. } = &self.cursor;
                let slot = slots.at(self.core, member, *channel, chunk.block as usize, *piece);
                return Spot::near(slot.wrapping_add((done * element) as usize));
            }
        };
        base.add(self.offset(chunk))
    }

    /// Bytes from the start of its buffer to element `done` of the current piece of `chunk`.
    pub(super) fn offset(&self, chunk: &Chunk) -> usize {
        let at = u64::from(chunk.block) * self.call.count + self.range(chunk).start + self.cursor.done;
        (at * self.call.dtype.size() as u64) as usize
    }

    /// The same where all memory is near.
    fn address(&self, spots: &[Buffers], place: &Place) -> *mut u8 {
        self.spot(spots, place).at
    }
}

/// Raises my flag of `channel` to `epoch` of call `seq`.
#[inline]
pub(super) fn raise(core: &Core, channel: usize, seq: u64, epoch: u64) {
    pieces::raise(&core.hub.flag(core.me, channel), seq, epoch);
    core.hub.ring_all(core.me);
}

/// Whether the flag of `member` is raised so far, or is while this looks `most` times.
#[inline]
pub(super) fn is_raised(core: &Core, member: usize, channel: usize, seq: u64, epoch: u64, most: u32) -> bool {
    let flag = core.hub.flag(member, channel);
    let want = flag_of(seq, epoch);
    let mut polls = 0;
    // SYNC: epoch-flag
    while !is_at(flag.load(Ordering::Acquire), want) {
        polls += 1;
        if polls >= most {
            return false;
        }
        pause_between(polls);
    }
    true
}

/// Runs the program until it is done, blocks, or has moved `STEP` bytes.
pub(super) fn step(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    plan: &DirectPlan,
    seq: u64,
    cursor: &mut Cursor,
) -> Result<Step> {
    let mut moved = 0u64;
    let mut progress = false;
    loop {
        if cursor.channel == plan.program.channels.len() {
            return Ok(Step::Done);
        }
        let ops = &plan.program.channels[cursor.channel];
        let Some(op) = ops.get(cursor.pc) else {
            cursor.pc = 0;
            cursor.piece += 1;
            if cursor.piece == cursor.pieces {
                cursor.piece = 0;
                cursor.channel += 1;
            }
            continue;
        };
        let epoch = |e: u32| cursor.piece * u64::from(plan.program.epochs) + u64::from(e);
        match op {
            Op::Signal => {
                let before = ops[..cursor.pc].iter().filter(|o| matches!(o, Op::Signal)).count() as u32;
                raise(core, cursor.channel, seq, epoch(before + 1));
            }
            Op::Wait { rank, epoch: e } => {
                let member = core.member_of[*rank as usize];
                if !is_raised(core, member, cursor.channel, seq, epoch(*e), engine.seen.polls()) {
                    return Ok(if progress { Step::Progress } else { Step::Blocked });
                }
            }
            Op::Copy { src, dst } => {
                let place = |chunk: &Chunk| Place { rank: core.rank as u32, chunk: *chunk };
                moved += run_move(core, engine, call, cursor, &[place(src)], &[place(dst)], STEP - moved)?;
            }
            Op::Move { srcs, dsts } => {
                moved += run_move(core, engine, call, cursor, srcs, dsts, STEP - moved)?;
            }
            other => {
                return Err(Error::internal(format!(
                    "{} has a message op {other:?} in a direct program",
                    plan.algorithm
                )));
            }
        }
        progress = true;
        if cursor.done == 0 {
            cursor.pc += 1;
        }
        if moved >= STEP {
            return Ok(Step::Progress);
        }
    }
}

/// Whether a program has come to where it does nothing more but wait.
pub(super) fn only_waits(plan: &DirectPlan, cursor: &Cursor) -> bool {
    let ([ops], true) = (&plan.program.channels[..], cursor.piece + 1 >= cursor.pieces) else { return false };
    cursor.channel == 1 || cursor.pc > 0 && ops[cursor.pc..].iter().all(|op| matches!(op, Op::Wait { .. }))
}

/// The rank whose flag a blocked program waits for.
pub(super) fn awaited(plan: &DirectPlan, cursor: &Cursor) -> Option<usize> {
    match plan.program.channels.get(cursor.channel)?.get(cursor.pc)? {
        Op::Wait { rank, .. } => Some(*rank as usize),
        _ => None,
    }
}

/// Moves at most about `budget` bytes of the current piece; `cursor.done` is 0 again when the piece is complete.
fn run_move(
    core: &Core,
    engine: &mut Engine,
    call: &Call,
    cursor: &mut Cursor,
    srcs: &[Place],
    dsts: &[Place],
    budget: u64,
) -> Result<u64> {
    let element = call.dtype.size() as u64;
    let bound = Bound { core, call, cursor: *cursor };
    let Some(first) = dsts.first() else { return Ok(0) };
    let range = bound.range(&first.chunk);
    let left = range.end - range.start - cursor.done;
    if left == 0 {
        cursor.done = 0;
        return Ok(0);
    }
    let lanes = (srcs.len() + dsts.len()) as u64;
    let most = (budget / lanes / element).max(4096).next_multiple_of(64);
    let n = left.min(most);
    let post = if srcs.len() == core.ranks { call.post } else { Post::None };
    // Parts that ranks share out where the kernel copies follow each other.
    let whole = if engine.any_far { call.count as usize * element as usize } else { bound.part_bytes(&first.chunk) };
    if engine.any_far {
        let Engine { spots, far_srcs, far_dsts, bounce, cached, srcs: from, dsts: to, .. } = engine;
        far_srcs.clear();
        far_srcs.extend(srcs.iter().map(|p| bound.spot(spots, p)));
        far_dsts.clear();
        far_dsts.extend(dsts.iter().map(|p| bound.spot(spots, p)));
        let how = Combination { dtype: call.dtype, op: call.op, post };
        let desk = &mut Desk { bounce, cached: *cached, whole, from, to };
        // SAFETY: as below; `locate` took the addresses of far buffers from the lines of their ranks.
        unsafe { far::run(how, desk, far_srcs, far_dsts, n as usize)? };
    } else {
        engine.srcs.clear();
        engine.srcs.extend(srcs.iter().map(|p| bound.address(&engine.spots, p).cast_const()));
        engine.dsts.clear();
        engine.dsts.extend(dsts.iter().map(|p| bound.address(&engine.spots, p)));
        if let [src] = engine.srcs[..] {
            // In place: what is there already.
            engine.dsts.retain(|dst| dst.cast_const() != src);
        }
        // SAFETY: the addresses lie in user buffers of the sizes that the signature (equal on all ranks) says, mapped by
        // `locate`, or in scratch slots; the verified schedule orders conflicting accesses by signals and waits.
        unsafe {
            match (engine.srcs.as_slice(), engine.dsts.as_slice()) {
                ([src], [dst]) if first.chunk.buffer == Buffer::Scratch => {
                    engine.places.copy(*dst, *src, (n * element) as usize, whole);
                }
                // The first is never less than the second, and is had without a loop.
                ([src], _) if is_past_caches(core, call) && touched_bytes(core, call) >= past_caches(core) => {
                    kernels::copy_past_caches(&engine.dsts, *src, (n * element) as usize, whole);
                }
                ([src], _) => kernels::copy_part(&engine.dsts, *src, (n * element) as usize, whole),
                (srcs, [own, across]) if dsts[1].chunk.buffer == Buffer::Scratch && !kernels::lines_travel() => {
                    kernels::reduce(call.dtype, call.op, &[*own], srcs, n as usize, post);
                    engine.places.copy(*across, own.cast_const(), (n * element) as usize, whole);
                }
                (srcs, to) if dsts.iter().all(|d| d.chunk.buffer != Buffer::Scratch) && is_past_caches(core, call) => {
                    kernels::reduce_past_caches(call.dtype, call.op, to, srcs, n as usize, post);
                }
                (srcs, dsts) => kernels::reduce(call.dtype, call.op, dsts, srcs, n as usize, post),
            }
        }
    }
    cursor.done = if n == left { 0 } else { cursor.done + n };
    Ok(n * element * lanes)
}
