//! The eager protocol: small collectives whose payload travels in the line, or the slot beside it, that announces the
//! call. One line per rank and call, no second flag, no barrier; lines and slots are used again some calls later.
//!
//! It is the fused form of the `one_shot` schedules, which remain its oracle. What a line says of its payload beside that is
//! known to `votes` and `eager_lent`; who lends an input puts nothing into a slot, and waits.

use oxccl_kernels as kernels;
use oxccl_sys::prefetch;
use oxccl_sys::sync::{Ordering, kept_in_order};
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::collective::Engine;
use super::entry::{Seen, ask_for, publish, put};
use super::{direct, eager_lent, votes};
use crate::communicator::core::Core;
use crate::communicator::hub::{
    GIVEN_BYTES, Geometry, INLINE_BYTES, LINES_AHEAD, LONG_WINDOW, MEDIUM_BYTES, MEDIUM_WINDOW, SMALL_BYTES, Slots,
    WINDOW,
};

/// Bytes of the next slot that are asked for ahead of the next call by a rank that may run ahead of its peers: what they
/// still read of the slots before it should stay with them.
const ASKED_AHEAD: usize = 2048;

/// Bytes of the next slot up to which its lines are reclaimed by stores, each of which waits for the one before.
const RECLAIMED: usize = 256;

/// Bytes that the rank which publishes most puts into its slot: what the eager limit is compared with.
pub(super) fn published(call: &Call, ranks: usize) -> u64 {
    call.block_bytes() * call.collective.input_blocks(ranks) as u64
}

/// How many calls before they are needed the payloads of a peer that is ahead are asked for.
const ASKED_BEFORE: u64 = 2;

/// What an eager call comes to on this rank, if its input is [not lent](super::eager_lent). It follows from the shape of the
/// call alone, so a call that was made before need not find it out again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Bytes of the own input that are published; 0 where nobody needs them.
    gives: usize,
    /// Bytes of one block.
    block: usize,
    /// Whether the own block is left out of what is published: nobody else needs it. A scaled input is the exception,
    /// since it is scaled into the slot, where this rank takes its block from, too.
    leaves_own: bool,
    /// Whether what is published has a block for each rank.
    by_rank: bool,
    /// The member that is the root.
    root: usize,
    /// Where the payloads lie.
    place: Place,
    takes: Takes,
    /// The only member whose line this rank waits for, where there is one: the root, or the other one of two.
    sole: Option<usize>,
    /// Whether every peer is known to have made the call when it ends here; if not, that is looked at later.
    pub settled: bool,
    /// Whether the next call may begin before this one has ended, see `trail`; behind others, whatever it gives and takes.
    may_trail: bool,
    may_trail_behind: bool,
    /// How many calls may be under way then.
    window: u64,
    /// Whether its line says if the buffers are mapped, see `votes`.
    pub votes: bool,
    /// Whether its line says if the input is lent in place of going into a slot, see `eager_lent`.
    pub may_lend: bool,
    /// How many calls this rank may be ahead of its peers with it.
    pub ahead: u64,
}

/// Where the payloads lie: in the lines, or being too large for them, in slots.
#[derive(Clone, Copy, Debug)]
enum Place {
    Line,
    Slot(Slots),
}

impl Place {
    /// Of a call of `collective`. `ahead`: ranks run ahead of each other, as far as they can where they share cores. Where all wait
    /// for all, more slots are only more cache.
    fn of(published: u64, collective: Collective, ahead: bool, geometry: &Geometry) -> Place {
        let gives = matches!(collective, Collective::Broadcast | Collective::Scatter);
        let (far, travels) = (ahead && geometry.crowded, ahead && geometry.roots_run_ahead());
        match published as usize {
            n if n <= INLINE_BYTES => Place::Line,
            n if n <= SMALL_BYTES && ahead => Place::Slot(Slots::Small),
            n if n <= GIVEN_BYTES && (travels || far && gives) => Place::Slot(Slots::Given),
            n if n <= MEDIUM_BYTES && far && !gives && collective.rooted() => Place::Slot(Slots::Taken),
            n if n <= MEDIUM_BYTES && far && !gives => Place::Slot(Slots::Medium),
            _ if far && !collective.rooted() => Place::Slot(Slots::Long),
            _ => Place::Slot(Slots::Usual),
        }
    }

    /// How many calls a rank may be ahead whose payloads lie there.
    fn ahead(self, geometry: &Geometry) -> u64 {
        match self {
            Place::Line => LINES_AHEAD,
            Place::Slot(kind) => geometry.ahead(kind),
        }
    }

    /// How many calls may be under way of which the payload of one lies there.
    const fn window(self) -> u64 {
        match self {
            Place::Line | Place::Slot(Slots::Small) => LONG_WINDOW,
            Place::Slot(Slots::Medium | Slots::Taken | Slots::Given) => MEDIUM_WINDOW,
            Place::Slot(Slots::Usual | Slots::Long) => WINDOW,
        }
    }
}

/// Whose payloads make the result.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// This rank gets nothing.
    Nothing,
    /// The own input only.
    Own,
    /// That of the root.
    Root,
    /// Those of all.
    All,
}

impl Form {
    pub(super) fn new(core: &Core, call: &Call) -> Form {
        let root = core.rank as u32 == call.root;
        let bytes = call.input_bytes(core.rank as u32, core.ranks) as usize;
        let (gives, takes, settled) = match call.collective {
            // Of two ranks, a leaf's only peer is the root, which it waits for.
            Collective::Broadcast | Collective::Scatter => match root {
                true => (true, Takes::Own, false),
                false => (true, Takes::Root, core.ranks == 2),
            },
            // The root needs its input only itself, a scaled one excepted: it is scaled into the slot.
            Collective::Reduce if root => (call.scale.is_some(), Takes::All, true),
            Collective::Gather if root => (false, Takes::All, true),
            Collective::Reduce | Collective::Gather => (true, Takes::Nothing, false),
            _ => (true, Takes::All, true),
        };
        let (crowded, rooted) = (core.hub.geometry().crowded, call.collective.rooted());
        let may_trail = crowded && matches!(takes, Takes::All) && gives;
        let block = call.block_bytes() as usize;
        let by_rank = matches!(call.collective, Collective::AllToAll | Collective::ReduceScatter | Collective::Scatter);
        let leaves_own = by_rank && call.scale.is_none();
        let left_out = if leaves_own { block } else { 0 };
        let most = published(call, core.ranks) - left_out as u64;
        let ahead = may_trail || rooted;
        let place = Place::of(most, call.collective, ahead, core.hub.geometry());
        let root = core.member_of.get(call.root as usize).copied().unwrap_or(0);
        let sole = match takes {
            Takes::Root => Some(root),
            Takes::All if core.members.len() == 2 => Some(1 - core.me),
            _ => None,
        };
        Form {
            gives: if gives { bytes.saturating_sub(left_out) } else { 0 },
            block,
            leaves_own,
            by_rank,
            root,
            place,
            takes,
            sole,
            settled,
            may_trail,
            may_trail_behind: crowded,
            window: place.window(),
            votes: votes::decide(core, call),
            may_lend: eager_lent::serves(core, call),
            ahead: place.ahead(core.hub.geometry()),
        }
    }

    /// How many calls may be under way while others begin behind this one; `None` if none do. `lent`: its input is; `behind`: it
    /// begins behind others itself. Of those with a root that is worth the while: who only waits for another rank's payload and
    /// has nothing in front of it had better wait for that.
    #[inline]
    pub(super) fn trails(&self, lent: bool, behind: bool) -> Option<u64> {
        let may = if behind { self.may_trail_behind } else { self.may_trail };
        if lent { Some(eager_lent::WINDOW) } else { may.then_some(self.window) }
    }

    /// Whether this rank waits for every peer when it has published its payload.
    #[inline]
    fn waits_for_all(&self) -> bool {
        matches!(self.takes, Takes::All)
    }

    /// Whether the payloads lie in the lines.
    pub(super) fn in_lines(&self) -> bool {
        matches!(self.place, Place::Line)
    }

    /// Bytes at the start of the payload slot that the payload takes, in whole lines.
    pub(super) fn in_slot(&self) -> usize {
        if matches!(self.place, Place::Slot(Slots::Usual)) { self.gives.next_multiple_of(64) } else { 0 }
    }

    /// Bytes of this rank's payload.
    pub(super) fn gives(&self) -> usize {
        self.gives
    }

    /// The slots that this rank's payload goes to.
    pub(super) fn slots(&self) -> Option<Slots> {
        match self.place {
            Place::Slot(kind) if self.gives > 0 => Some(kind),
            _ => None,
        }
    }

    /// Where `member`'s payload of call `seq` lies.
    #[inline]
    pub(super) fn payload(&self, core: &Core, member: usize, seq: u64) -> *mut u8 {
        match self.place {
            Place::Line => core.hub.entry(member, seq).body,
            Place::Slot(kind) => core.hub.slot(member, kind, seq),
        }
    }

    /// How many blocks lie before this rank's in what `member` published of blocks for each rank: where its block would follow the
    /// one that is left out, it begins a block earlier.
    #[inline]
    fn before(&self, core: &Core, member: usize) -> usize {
        let left_out = self.leaves_own && core.members[member] < core.rank;
        if left_out { core.rank - 1 } else { core.rank }
    }

    /// The root, where this rank takes its payload, and nobody else's.
    pub(super) fn awaited_root(&self) -> Option<usize> {
        self.sole.filter(|_| matches!(self.takes, Takes::Root))
    }

    /// [`start`](Self::start) of a call for which votes may decide, or which may be lent but is not.
    #[inline]
    pub(super) fn start_voting(&self, core: &Core, engine: &mut Engine, call: &Call, signature: [u64; 2], seq: u64) {
        let mapped = self.votes && votes::own(core, engine, call);
        self.start_with(core, engine, call, signature, seq, mapped);
    }

    /// [`finish`](Self::finish) of a call for which votes may decide, or which may be lent.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(super) fn finish_voting(&self, core: &Core, engine: &mut Engine, call: &Call, seq: u64) -> Result<bool> {
        if self.may_lend {
            return eager_lent::finish(core, engine, self, call, seq);
        }
        let done = self.finish(core, call, seq, &mut engine.seen, &mut engine.srcs)?;
        if done && self.votes {
            votes::count(core, engine, call, seq);
        }
        Ok(done)
    }

    /// Announces the call, with the signature that it has as `seq`, and publishes my payload. `may_publish(seq)` holds, no
    /// votes decide, and nothing may be lent.
    #[inline]
    pub(super) fn start(&self, core: &Core, engine: &mut Engine, call: &Call, signature: [u64; 2], seq: u64) {
        debug_assert!(!self.votes && !self.may_lend, "{} says nothing of its buffers", call.describe());
        self.start_with(core, engine, call, signature, seq, false);
    }

    /// `mapped`: what the line says if [`votes`](Self::votes), or of an input that is [not lent](Self::may_lend).
    #[inline(always)]
    fn start_with(&self, core: &Core, engine: &mut Engine, call: &Call, signature: [u64; 2], seq: u64, mapped: bool) {
        if self.gives == 0 {
            publish(core, signature, seq, |_| {});
            return ask_for(core, seq + 1, 0);
        }
        let says = self.votes || self.may_lend;
        let in_line = if self.in_lines() { self.gives } else { 8 * usize::from(says) };
        publish(core, signature, seq, |line| {
            let slot = if self.in_lines() { line } else { self.payload(core, core.me, seq) };
            match call.scale {
                // SAFETY: the slot has room for `published` bytes and no peer reads it any more; the input is the
                // caller's.
                Some(factor) => unsafe {
                    let elements = self.gives / call.dtype.size();
                    kernels::scale(slot, call.send, elements, factor.read(call.dtype));
                },
                // SAFETY: as above.
                None if self.in_lines() => unsafe { self.fill_line(core, slot, call.send) },
                // SAFETY: as above.
                None if !self.leaves_own => unsafe { engine.payloads.publish(slot, call.send, self.gives) },
                // SAFETY: as above; the input is a block longer than what is published of it.
                None => unsafe {
                    let (before, behind) = (core.rank * self.block, self.gives - core.rank * self.block);
                    engine.payloads.publish(slot, call.send, before);
                    engine.payloads.publish(slot.add(before), call.send.add(before + self.block), behind);
                },
            }
            if says {
                kept_in_order();
                // SAFETY: the payload lies in a slot.
                unsafe { direct::say_mapped(line, mapped) };
            }
        });
        if !self.in_lines() && !engine.payloads.is_away() && engine.seen.is_known_free(core.me, seq + 1, self.ahead) {
            // Peers have had their use of it some calls ago: it comes back from them while this call goes on.
            // A long one would drive out what is still read.
            let most =
                if matches!(self.place, Place::Slot(Slots::Long)) || !self.settled { ASKED_AHEAD } else { self.gives };
            let bytes = self.gives.min(most);
            let next = self.payload(core, core.me, seq + 1);
            if self.waits_for_all() && bytes <= RECLAIMED && !core.crowded {
                // SAFETY: it is free, as was seen, and has room for whole lines.
                (0..bytes).step_by(64).for_each(|n| unsafe { prefetch::reclaim(next.add(n).cast()) });
            } else {
                prefetch::all_for_write(next, bytes);
            }
        }
        match self.waits_for_all() {
            true => engine.seen.reclaim(core, seq + 1, in_line),
            false => ask_for(core, seq + 1, in_line),
        }
    }

    /// Writes the payload of an input that is not scaled into the body of a line.
    ///
    /// # Safety
    /// The body has room for [`gives`](Self::gives) bytes, and the input for as many and the block that is left out.
    #[inline]
    unsafe fn fill_line(&self, core: &Core, body: *mut u8, input: *const u8) {
        let before = if self.leaves_own { core.rank * self.block } else { self.gives };
        // SAFETY: the caller's promise.
        unsafe {
            if self.leaves_own {
                put(body.add(before), input.add(before + self.block), self.gives - before);
            }
            put(body, input, before);
        }
    }

    /// Takes the peers' payloads; `false` when one of those needed is not there yet.
    #[inline]
    pub(super) fn finish(
        &self,
        core: &Core,
        call: &Call,
        seq: u64,
        seen: &mut Seen,
        srcs: &mut Vec<*const u8>,
    ) -> Result<bool> {
        match (self.takes, self.sole) {
            (Takes::Nothing, _) => return Ok(true),
            (Takes::Own, _) => {}
            (_, Some(member)) => {
                if !seen.arrived(core, call, member, seq)? {
                    return Ok(false);
                }
                self.ask_ahead(core, member, seq);
            }
            (_, None) => {
                if !self.all_arrived(core, call, seq, seen)? {
                    return Ok(false);
                }
            }
        }
        // My own contribution: the scaled copy in my slot if there is one, else the input itself.
        let scaled = call.scale.is_some();
        let own = if scaled { self.payload(core, core.me, seq).cast_const() } else { call.send };
        let from = |member: usize| if member == core.me { own } else { self.payload(core, member, seq).cast_const() };
        let before = |member: usize| self.before(core, member);
        // SAFETY: the payloads needed have arrived (ordered by the acquire loads above) and stay until this rank has
        // started more than a window of later calls, or one where none begins behind it; the output is the caller's, of the size the collective says, and only this rank writes it.
        unsafe { self.combine_parts(core, call, from, before, srcs) };
        Ok(true)
    }

    /// Whether the payloads of all peers are there.
    // Apart: what it needs for each peer would be made ready in front of the way of those that wait for one.
    #[inline(never)]
    fn all_arrived(&self, core: &Core, call: &Call, seq: u64, seen: &mut Seen) -> Result<bool> {
        for member in (0..core.members.len()).filter(|member| *member != core.me) {
            if !seen.arrived(core, call, member, seq)? {
                return Ok(false);
            }
            self.ask_ahead(core, member, seq);
        }
        Ok(true)
    }

    /// [`ask_ahead`] for what lies in slots of which there are many.
    #[inline]
    pub(super) fn ask_ahead(&self, core: &Core, member: usize, seq: u64) {
        if let Place::Slot(kind @ (Slots::Small | Slots::Medium | Slots::Taken | Slots::Given)) = self.place {
            let from = if self.by_rank { self.before(core, member) * self.block } else { 0 };
            ask_ahead(core, member, kind, seq, from, self.block.min(ASKED_AHEAD));
        }
    }

    /// Makes the output of a rank that gets one of the members' inputs, of which `from` says where they lie, each as a whole.
    ///
    /// # Safety
    /// The inputs that the collective needs are complete and stay until it returns; the output is the caller's.
    #[inline]
    pub(super) unsafe fn combine(
        &self,
        core: &Core,
        call: &Call,
        from: impl Fn(usize) -> *const u8,
        srcs: &mut Vec<*const u8>,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.combine_parts(core, call, from, |_| core.rank, srcs) }
    }

    /// As [`combine`](Self::combine), of inputs that may lack a block: `before` says how many blocks lie before this rank's.
    ///
    /// # Safety
    /// As there.
    #[inline]
    unsafe fn combine_parts(
        &self,
        core: &Core,
        call: &Call,
        from: impl Fn(usize) -> *const u8,
        before: impl Fn(usize) -> usize,
        srcs: &mut Vec<*const u8>,
    ) {
        let block = self.block;
        let n = core.members.len();
        let count = call.count as usize;
        // SAFETY: see the caller; offsets stay inside `published` bytes of a slot and the blocks of the output.
        unsafe {
            match call.collective {
                Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => {
                    let skips = call.collective == Collective::ReduceScatter;
                    let part = |m: usize| from(m).add(if skips { before(m) * block } else { 0 });
                    let reduce = |parts: &[*const u8]| {
                        kernels::reduce(call.dtype, call.op, &[call.recv], parts, count, call.post);
                    };
                    if n == 2 {
                        return reduce(&[part(0), part(1)]);
                    }
                    srcs.clear();
                    srcs.extend((0..n).map(part));
                    reduce(srcs);
                }
                Collective::Broadcast => copy(call.recv, from(self.root), block),
                Collective::Scatter => {
                    copy(call.recv, from(self.root).add(before(self.root) * block), block);
                }
                Collective::AllGather | Collective::Gather if n == 2 => {
                    let peer = 1 - core.me;
                    copy(call.recv.add(core.rank * block), from(core.me), block);
                    copy(call.recv.add(core.members[peer] * block), from(peer), block);
                }
                Collective::AllGather | Collective::Gather => {
                    for member in 0..n {
                        copy(call.recv.add(core.members[member] * block), from(member), block);
                    }
                }
                _ => {
                    for member in 0..n {
                        let at = call.recv.add(core.members[member] * block);
                        copy(at, from(member).add(before(member) * block), block);
                    }
                }
            }
        }
    }
}

/// Where `member` may be ahead of this rank by some calls, and is: asks for `bytes` bytes of what it published of one of those to
/// come in its slot of that kind, `from` bytes behind where that begins, so that the lines of several calls are under way at once.
#[inline]
pub(super) fn ask_ahead(core: &Core, member: usize, kind: Slots, seq: u64, from: usize, bytes: usize) {
    let soon = seq + ASKED_BEFORE;
    // SYNC: entry-line. Only a hint hangs on it.
    if core.hub.entry(member, soon).seq.load(Ordering::Relaxed) >= soon {
        // For the look that the next call takes here.
        prefetch::for_read(core.hub.entry(member, soon + 1).signature.cast());
        let within = from % 64;
        prefetch::all_for_read(core.hub.slot(member, kind, soon).wrapping_add(from - within), within + bytes);
    }
}

/// # Safety
/// Both ranges are valid for `bytes`; they are equal or do not overlap.
#[inline]
unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    if dst.cast_const() != src {
        // SAFETY: the caller's promise.
        unsafe { kernels::copy(&[dst], src, bytes) };
    }
}
