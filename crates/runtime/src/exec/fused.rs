//! Small collectives of one kind in a group that are fused: those behind the first, its *riders*, travel with the line that
//! announces it, and one wait serves all of them.
//!
//! The first call has its line, its payload and its number as if it had been made alone; the line says how many riders lie
//! in the payload slot of that number. A rank takes as many as every rank sent: ranks need not group their calls alike, and
//! one that makes them one by one does not know of riders. What was sent and not taken is sent again, with the next number.
//! So one number may serve several calls, of which all ranks agree how many.
//!
//! Calls of different counts may ride together; the counts then lie in the slot too, and are compared before a payload is
//! used. Only collectives in which every rank reads the line of every other one are fused, since all must know what all sent.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use oxccl_kernels as kernels;
use oxccl_sys::prefetch;
use oxccl_types::{Collective, Result};

use super::call::{Call, meet};
use super::collective::{CollectiveTask, Engine, Phase};
use super::eager::Form;
use super::written::Written;
use super::{entry, limits, votes};
use crate::communicator::core::{Core, Lane};
use crate::communicator::hub::SLOTS;
use crate::device::{IdleStream, Step, Stream, caught};
use crate::request::{Brief, Kind};

/// Calls that travel together, at most.
const MOST: usize = 256;
/// Bytes of their payloads: those of two ranks and the result fit the first-level cache.
const BYTES: usize = 6 << 10;
/// Bytes of a call up to which it is fused: what a line costs is little beside what larger ones cost, and a slot should hold
/// several.
const CALL_BYTES: u64 = 2048;
/// The same where ranks share cores, since each line there waits for a turn of every process while calls made one by one begin before
/// those in front of them have ended, many in a turn; and of calls of which each rank reads but a part (measured,
/// docs/performance-changes.md).
const SHORT_CALL_BYTES: u64 = 512;
/// Bytes per all-reduce up to which one sum is made of all of them, and copied from there.
const TINY: usize = 128;
/// Bytes of the list of counts, which lies at the end of a slot.
const LIST: usize = MOST * size_of::<u32>();

/// Where the line of a call without a root says how many riders it has: the root's place.
const RIDERS_SHIFT: u32 = 32;
/// Beside their number: not all counts are that of the first call.
const MIXED: u64 = 1 << 63;

/// The signature of a line without what it says of riders.
#[inline]
pub(super) fn plain(signature: [u64; 2]) -> [u64; 2] {
    let rooted = Collective::from_u8(signature[0] as u8).is_none_or(Collective::rooted);
    if rooted { signature } else { [signature[0] & ((1 << RIDERS_SHIFT) - 1), signature[1]] }
}

/// What the line of a call says of riders: how many, and whether there is a list of their counts.
fn riders(core: &Core, member: usize, seq: u64) -> (usize, bool) {
    // SAFETY: the line has arrived, and stays until this rank has started more than a window of later calls.
    let word = unsafe { core.hub.entry(member, seq).signature.read() };
    ((word & !MIXED) as usize >> RIDERS_SHIFT, word & MIXED != 0)
}

/// What is alike in the calls that are fused.
pub(crate) struct Fusion {
    /// The call that is under way, at first one of a single element.
    call: Call,
    /// The greatest count.
    most: u32,
}

/// Bytes per element of the count.
#[derive(Clone, Copy)]
struct Unit {
    input: usize,
    output: usize,
}

impl Unit {
    fn of(core: &Core, call: &Call) -> Unit {
        let blocks = |blocks: usize| blocks * call.dtype.size();
        let collective = call.collective;
        Unit {
            input: blocks(collective.input_blocks(core.ranks)),
            output: blocks(collective.output_blocks(core.ranks)),
        }
    }

    /// The addresses that a call reads.
    #[inline]
    fn read(self, brief: &Brief) -> Range<usize> {
        brief.send.addr()..brief.send.addr() + brief.count as usize * self.input
    }

    /// The addresses that it writes.
    #[inline]
    fn written(self, brief: &Brief) -> Range<usize> {
        brief.recv.addr()..brief.recv.addr() + brief.count as usize * self.output
    }
}

impl Fusion {
    /// `None` where calls of the kind are not fused.
    fn new(core: &Core, kind: Kind) -> Option<Fusion> {
        let nowhere = NonNull::dangling().as_ptr();
        let request = kind.with_count(1).request(core.ranks, nowhere, nowhere)?;
        if core.ranks == 1 || !core.eager || core.hub.geometry().eager_bytes < 2 * LIST {
            return None;
        }
        let call = Call::new(&request, core.ranks);
        let parts = call.collective.input_blocks(core.ranks) > 1;
        let most = if core.crowded || parts { SHORT_CALL_BYTES } else { CALL_BYTES };
        let most = most.min(limits::eager_limit(core, call.collective)).min(votes::none_up_to(core, call.collective));
        let most = most / Unit::of(core, &call).input as u64;
        Some(Fusion { call, most: most as u32 })
    }

    /// The task of `calls`, which have not begun.
    fn task(self, core: &Arc<Core>, calls: &[Brief], batch: u64) -> CollectiveTask {
        let fused = Fused::of(core, calls, Course::default());
        CollectiveTask::new(core.clone(), self.call, None, batch).in_phase(Phase::Fused(fused))
    }
}

/// What the first of `calls` is fused by, if it is.
fn fusion(core: &Core, kinds: &[Kind], calls: &[Brief]) -> Option<Fusion> {
    let first = calls.first()?;
    Fusion::new(core, kinds[first.kind as usize]).filter(|fusion| first.count <= fusion.most)
}

/// The calls in front, which `fusion` fuses, or one that is not fused; and those behind. There is one at least.
fn split<'a>(fusion: Option<&Fusion>, calls: &'a [Brief]) -> (&'a [Brief], &'a [Brief]) {
    let most = fusion.map_or(0, |fusion| fusion.most);
    let alike = calls.iter().take_while(|c| c.kind == calls[0].kind && c.count <= most).count();
    calls.split_at(alike.max(1))
}

/// [`split`] with the [`fusion`] of the first; `None` where there are no calls.
fn next<'a>(core: &Core, kinds: &[Kind], calls: &'a [Brief]) -> Option<(Option<Fusion>, &'a [Brief], &'a [Brief])> {
    if calls.is_empty() {
        return None;
    }
    let fusion = fusion(core, kinds, calls);
    let (head, rest) = split(fusion.as_ref(), calls);
    Some((fusion, head, rest))
}

/// Whether the second of `calls` reads what the first writes.
fn is_needed(core: &Core, fusion: &Fusion, calls: &[Brief]) -> bool {
    let [first, second, ..] = calls else { return false };
    let unit = Unit::of(core, &fusion.call);
    meet(&unit.read(second), &unit.written(first))
}

/// Carries out, or begins, the `calls` of one communicator on `stream`; `each` is given those that are not fused, in their
/// place in the order.
pub(crate) fn run(core: &Arc<Core>, stream: &Stream, kinds: &[Kind], calls: &[Brief], each: impl Fn(&Brief)) {
    let mut rest = calls;
    while let Some(first) = rest.first() {
        let fusion = fusion(core, kinds, rest);
        // A call that the one behind it waits for is best made alone. Those behind are not looked through for it: a chain of
        // such calls would be, from each of its links.
        if fusion.as_ref().is_some_and(|fusion| is_needed(core, fusion, rest)) {
            rest = &rest[1..];
            each(first);
            continue;
        }
        let (head, behind) = split(fusion.as_ref(), rest);
        let Some(fusion) = fusion.filter(|_| head.len() > 1) else {
            rest = behind;
            head.iter().for_each(&each);
            continue;
        };
        rest = behind;
        match stream.try_idle() {
            Some(mut idle) => {
                if let Some(task) = start(core, &mut idle, fusion, head, 0) {
                    idle.go_on(task.boxed());
                }
            }
            None => stream.push(fusion.task(core, head, 0).boxed()),
        }
    }
}

/// The tasks of `calls`, none of which has begun.
pub(crate) fn tasks(core: &Arc<Core>, kinds: &[Kind], calls: &[Brief], batch: u64, mut to: impl FnMut(CollectiveTask)) {
    let mut rest = calls;
    while let Some((fusion, head, behind)) = next(core, kinds, rest) {
        rest = behind;
        match fusion {
            Some(fusion) => to(fusion.task(core, head, batch)),
            None => head.iter().filter_map(|c| alone(core, kinds, c, batch)).for_each(&mut to),
        }
    }
}

/// Carries out the `calls` on the stream that is held; `left` is given the tasks of those that are not over, which go on
/// side by side with other tasks of `batch`.
pub(crate) fn begin(
    core: &Arc<Core>,
    idle: &mut IdleStream<'_>,
    kinds: &[Kind],
    calls: &[Brief],
    batch: u64,
    mut left: impl FnMut(CollectiveTask),
) {
    let mut rest = calls;
    while let Some((fusion, head, behind)) = next(core, kinds, rest) {
        rest = behind;
        match fusion {
            Some(fusion) => start(core, idle, fusion, head, batch).into_iter().for_each(&mut left),
            None => head.iter().filter_map(|c| alone(core, kinds, c, batch)).for_each(&mut left),
        }
    }
}

/// The task of a call that is not fused.
fn alone(core: &Arc<Core>, kinds: &[Kind], brief: &Brief, batch: u64) -> Option<CollectiveTask> {
    let request = kinds[brief.kind as usize].with_count(brief.count).request(core.ranks, brief.send, brief.recv)?;
    Some(CollectiveTask::new(core.clone(), Call::new(&request, core.ranks), None, batch))
}

/// Carries out `calls`, all of which may be fused, on the stream that is held. What is not over comes back as a task.
fn start(
    core: &Arc<Core>,
    idle: &mut IdleStream<'_>,
    mut fusion: Fusion,
    calls: &[Brief],
    batch: u64,
) -> Option<CollectiveTask> {
    let Some(mut engine) = core.engine.try_lock() else { return Some(fusion.task(core, calls, batch)) };
    let Some(turn) = core.issue_at_once(Lane::Collectives) else { return Some(fusion.task(core, calls, batch)) };
    let mut course = Course::default();
    engine.seen.begin(core.polls);
    let step = caught(|| {
        loop {
            match course.advance(core, &mut engine, &mut fusion.call, calls) {
                Ok(Step::Progress) => {}
                other => break other,
            }
        }
    });
    drop(engine);
    match step.and_then(|step| step) {
        Ok(Step::Done) => {
            core.pass_turn(Lane::Collectives, turn);
            None
        }
        Ok(_) => {
            let seq = course.seq;
            let fused = Fused::of(core, calls, course);
            let task = CollectiveTask::begun(core, fusion.call, turn, seq, Phase::Fused(fused));
            Some(task.in_batch(batch))
        }
        Err(error) => {
            // Dropped when it has told of its end.
            CollectiveTask::begun(core, fusion.call, turn, course.seq, Phase::EagerWait).fail_with(&error);
            idle.failed(error);
            None
        }
    }
}

/// Fused calls that are carried out by a task.
#[derive(Debug)]
pub(crate) struct Fused {
    calls: Vec<Brief>,
    course: Course,
}

// SAFETY: the pointers are the callers', who promised that whichever thread runs the stream may use the memory.
unsafe impl Send for Fused {}

impl Fused {
    /// `calls`, which have come as far as `course`, in the list of an earlier task where there is one.
    fn of(core: &Core, calls: &[Brief], course: Course) -> Box<Fused> {
        let kept = core.lists.try_lock().and_then(|mut lists| lists.pop());
        let mut fused = kept.unwrap_or_else(|| Box::new(Fused { calls: Vec::new(), course: Course::default() }));
        fused.calls.extend_from_slice(calls);
        fused.course = course;
        fused
    }

    /// Keeps the list for the next task.
    pub(super) fn recycle(mut self: Box<Self>, core: &Core) {
        self.calls.clear();
        if let Some(mut lists) = core.lists.try_lock()
            && lists.len() < lists.capacity()
        {
            lists.push(self);
        }
    }

    /// Goes on; `call` becomes the first of those that are under way.
    pub(super) fn advance(&mut self, core: &Core, engine: &mut Engine, call: &mut Call) -> Result<Step> {
        self.course.advance(core, engine, call, &self.calls)
    }

    /// The number of those that are under way; 0 before the first.
    pub(super) fn number(&self) -> u64 {
        self.course.seq
    }
}

/// How far fused calls have come.
#[derive(Debug)]
struct Course {
    /// Calls that are over.
    over: usize,
    /// The number of those that are under way, or were last.
    seq: u64,
    /// They have that number, but are not over.
    numbered: bool,
    /// How many were sent under it, 0 before they were; the signature of the first.
    sent: usize,
    signature: [u64; 2],
    /// Their counts are in the slot.
    mixed: bool,
    /// How many are sent next, at most: few where ranks do not group their calls alike.
    limit: usize,
}

impl Default for Course {
    fn default() -> Course {
        Course { over: 0, seq: 0, numbered: false, sent: 0, signature: [0; 2], mixed: false, limit: MOST }
    }
}

impl Course {
    /// Sends, or takes what was sent; `Progress` when there is more to do.
    fn advance(&mut self, core: &Core, engine: &mut Engine, call: &mut Call, calls: &[Brief]) -> Result<Step> {
        let Some((first, others)) = calls.get(self.over..).and_then(<[Brief]>::split_first) else {
            return Ok(Step::Done);
        };
        if !self.numbered {
            core.check()?;
            (call.send, call.recv, call.count) = (first.send, first.recv, u64::from(first.count));
            let kind = plain(call.signature)[0] & entry::WITHOUT_HISTORY;
            (self.seq, self.signature) = engine.number(core, [kind, call.count]);
            call.signature = self.signature;
            self.numbered = true;
        }
        let form = Form::new(core, call);
        if self.sent == 0 {
            if !engine.seen.may_publish(core, self.seq, form.ahead.min(SLOTS)) {
                return Ok(Step::Blocked);
            }
            self.send(core, engine, call, &form, others);
        }
        let taken = self.take(core, engine, call, &form, others)?;
        if taken == 0 {
            return Ok(Step::Blocked);
        }
        // The list in the slot has room for so many.
        self.limit = MOST.min(2 * if taken < self.sent { taken } else { self.limit });
        self.over += taken;
        (self.sent, self.numbered) = (0, false);
        Ok(if self.over == calls.len() { Step::Done } else { Step::Progress })
    }

    /// Announces `call`, with as many of `others` as may ride with it.
    fn send(&mut self, core: &Core, engine: &mut Engine, call: &mut Call, form: &Form, others: &[Brief]) {
        let slot = core.hub.payload(core.me, self.seq);
        let count = self.pack(core, call, slot, form.in_slot(), others);
        self.sent = 1 + count;
        call.signature[0] |= (count as u64) << RIDERS_SHIFT | if self.mixed { MIXED } else { 0 };
        form.start(core, engine, call, call.signature, self.seq);
        call.signature = self.signature;
    }

    /// Puts the inputs of the first of `others` into the slot, from byte `at` on: of as many as there is room for, and as do
    /// not read what those before them write.
    fn pack(&mut self, core: &Core, call: &Call, slot: *mut u8, mut at: usize, others: &[Brief]) -> usize {
        let unit = Unit::of(core, call);
        let first = call.count as u32;
        // The bytes between the first and the last that are written.
        let own = call.recv.addr()..call.recv.addr() + first as usize * unit.output;
        let (mut from, mut to) = (own.start, own.end);
        let mut written = Written::default();
        let (mut count, mut differing) = (0, 0);
        let list = list(core, slot);
        let room = BYTES.min(core.hub.geometry().eager_bytes - LIST);
        for brief in others.iter().take(self.limit - 1) {
            let bytes = brief.count as usize * unit.input;
            let writes = |call: usize| if call == 0 { own.clone() } else { unit.written(&others[call - 1]) };
            let read = unit.read(brief);
            let between = meet(&read, &(from..to));
            // Mostly, what is read of the group was written first or last: that needs no marks.
            let known =
                || meet(&read, &own) || others[..count].last().is_some_and(|last| meet(&read, &unit.written(last)));
            if at + bytes > room || between && (known() || written.meets(read.clone(), 1 + count, writes)) {
                break;
            }
            let output = unit.written(brief);
            (from, to) = (from.min(output.start), to.max(output.end));
            debug_assert!(count < MOST, "the list has room for {MOST} counts");
            // SAFETY: the slot has room for `BYTES` and the list of `MOST` counts behind them, and no peer reads it any more;
            // the input is the caller's.
            unsafe {
                list.add(count).write(brief.count);
                kernels::copy(&[slot.add(at)], brief.send, bytes);
            }
            differing |= brief.count ^ first;
            at += bytes;
            count += 1;
        }
        self.mixed = differing != 0;
        count
    }

    /// Takes the payloads of the calls that were sent by all: how many calls are over by it, 0 when a peer has not come.
    fn take(
        &mut self,
        core: &Core,
        engine: &mut Engine,
        call: &mut Call,
        form: &Form,
        others: &[Brief],
    ) -> Result<usize> {
        let (mut count, mut mixed) = (self.sent - 1, self.mixed);
        for member in (0..core.members.len()).filter(|m| *m != core.me) {
            if !engine.seen.arrived(core, call, member, self.seq)? {
                return Ok(0);
            }
            let theirs = riders(core, member, self.seq);
            count = count.min(theirs.0);
            mixed |= theirs.1;
        }
        let other = if mixed { self.first_other(core, call, &others[..count]) } else { None };
        // What comes before a call that differs is carried out.
        let riders = &others[..other.map_or(count, |(at, ..)| at)];
        if !form.finish(core, call, self.seq, &mut engine.seen, &mut engine.srcs)? {
            return Ok(0);
        }
        if !riders.is_empty() {
            self.combine(core, &mut engine.srcs, call, form.in_slot(), riders);
        }
        let Some((at, member, count)) = other else { return Ok(1 + riders.len()) };
        let of = |count: u64| [self.signature[0], count];
        Err(entry::mismatch_words(core, of(u64::from(others[at].count)), member, of(count), self.seq))
    }

    /// The first of the calls that differs from that of a peer: its place, the peer, the peer's count. All have come.
    fn first_other(&self, core: &Core, call: &Call, riders: &[Brief]) -> Option<(usize, usize, u64)> {
        let differs = |member: usize| {
            let (_, mixed) = self::riders(core, member, self.seq);
            let list = list(core, core.hub.payload(member, self.seq)).cast_const();
            let theirs = |i: usize| match mixed {
                // SAFETY: the peer has sent so many riders, whose counts it wrote before the line; they stay until this
                // rank has started a later call.
                true => u64::from(unsafe { list.add(i).read() }),
                false => call.count,
            };
            let at = (0..riders.len()).find(|i| theirs(*i) != u64::from(riders[*i].count))?;
            Some((at, member, theirs(at)))
        };
        (0..core.members.len()).filter(|m| *m != core.me).filter_map(differs).min()
    }

    /// Makes the outputs of the riders, whose payloads lie in the slots from byte `at` on.
    fn combine(&self, core: &Core, srcs: &mut Vec<*const u8>, call: &mut Call, at: usize, riders: &[Brief]) {
        let unit = Unit::of(core, call);
        // SAFETY: `at` and what lies behind it are inside the slots.
        let from = |member: usize| unsafe { core.hub.payload(member, self.seq).add(at).cast_const() };
        let elements: usize = riders.iter().map(|brief| brief.count as usize).sum();
        for member in (0..core.members.len()).filter(|m| *m != core.me) {
            // They come from another core; asked for together, they come together.
            (0..elements * unit.input).step_by(64).for_each(|n| prefetch::for_read(from(member).wrapping_add(n)));
        }
        if call.collective == Collective::AllReduce && elements * unit.input <= TINY * riders.len() {
            srcs.clear();
            srcs.extend((0..core.members.len()).map(from));
            // SAFETY: see `each`; the sums are at most `BYTES`, since the inputs are.
            return unsafe { sum_up(call, srcs, elements, riders) };
        }
        let mut offset = 0;
        let first = (call.send, call.recv, call.count);
        for brief in riders {
            (call.send, call.recv, call.count) = (brief.send, brief.recv, u64::from(brief.count));
            // SAFETY: the payloads of so many calls have come from all, and stay until this rank has started a later call;
            // the outputs are the caller's, and only this rank writes them.
            unsafe { Form::new(core, call).combine(core, call, |member| from(member).add(offset), srcs) };
            offset += brief.count as usize * unit.input;
        }
        (call.send, call.recv, call.count) = first;
    }
}

/// The list of counts in a slot.
fn list(core: &Core, slot: *mut u8) -> *mut u32 {
    // SAFETY: slots have `eager_bytes`, of which the list takes the last; they are multiples of a line.
    unsafe { slot.add(core.hub.geometry().eager_bytes - LIST).cast() }
}

/// Room for the sums of fused all-reduces.
#[repr(align(64))]
struct Sums(MaybeUninit<[u8; BYTES]>);

/// All-reduces of `elements` elements that lie one behind the other at `srcs`, in one go.
///
/// # Safety
/// The sources have so many elements, at most `BYTES` bytes, as all `riders` together; their outputs are the caller's.
unsafe fn sum_up(call: &Call, srcs: &[*const u8], elements: usize, riders: &[Brief]) {
    let mut sums = Sums(MaybeUninit::uninit());
    let sums: *mut u8 = sums.0.as_mut_ptr().cast();
    let size = call.dtype.size();
    let mut offset = 0;
    // SAFETY: the caller's promise.
    unsafe {
        kernels::reduce(call.dtype, call.op, &[sums], srcs, elements, call.post);
        for brief in riders {
            let bytes = brief.count as usize * size;
            kernels::copy(&[brief.recv], sums.add(offset), bytes);
            offset += bytes;
        }
    }
}
