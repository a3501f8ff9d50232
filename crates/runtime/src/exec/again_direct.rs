//! Direct calls of medium size made again: the next call of a shape is carried out as the last one was, without being
//! checked, translated and planned; and where all buffers lie where they lay, without looking for them.
//!
//! What is kept depends on nothing that may change while the communicator is usable but the places of the buffers, which
//! the lines of all ranks say every time.

use std::sync::Arc;

use oxccl_sys::{LatchGuard, prefetch};
use oxccl_types::{Error, Result};

use super::at_once_direct::{failed, patience, see_through};
use super::awaited;
use super::beside::{self, Given};
use super::by_shape::{ByShape, Shaped};
use super::call::Call;
use super::collective::{CollectiveTask, Engine, Phase};
use super::direct::{self, Cursor, Road, Words};
use super::ends;
use super::known::renewed;
use super::lent::{self, Met};
use super::pieces::Pipe;
use super::piped;
use super::plan::{Aside, DirectPlan, Plan};
use super::resolved::{Deed, Resolved, resolve};
use super::{slotted, trail, votes};
use crate::communicator::core::{Core, Lane};
use crate::device::{IdleStream, Step, caught};
use crate::haste;
use crate::request::Shape;

/// How far a call has come. A word, as [`at_once::Reached`](super::at_once) is: a phase would be moved from place to place.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Came {
    Over,
    /// It is blocked: its line may not be written yet.
    Announce,
    /// It is blocked: the peers' lines have not come.
    Meet,
    /// All but its end is done.
    Moved,
    /// It is blocked, or goes on, in a phase that is told beside it.
    Midway,
}

impl Came {
    /// The phase in which its task goes on, if it does; `midway`: the one that is told beside it.
    #[inline(always)]
    fn phase(self, midway: Phase) -> Phase {
        match self {
            Came::Announce => Phase::Announce,
            Came::Meet => Phase::Meet,
            Came::Over | Came::Moved => Phase::Bias(0),
            Came::Midway => midway,
        }
    }
}

/// A call as it was made last.
struct Made {
    shape: Shape,
    /// Where it is kept.
    place: u8,
    /// Its signature, without the history of the communicator.
    signature: [u64; 2],
    call: Call,
    plan: Arc<Plan>,
    /// Where private inputs go.
    aside: Aside,
    /// See [`is_slotted_if_waited`](beside::is_slotted_if_waited).
    slotted_if_waited: bool,
    /// See [`asks_if_alone`](slotted::asks_if_alone).
    asks_if_alone: bool,
    /// See [`may_be`](awaited::may_be).
    may_be_awaited: bool,
    /// See [`first_wait`](ends::first_wait).
    first_wait: Option<usize>,
    /// Whether there must be a buffer to read and one to write.
    sends: bool,
    receives: bool,
    /// What the lines of the members said when the program was resolved; empty if it never was.
    words: Vec<Words>,
    /// The memory of the input and of the output of each of them; empty where the program is not to be [moved](Made::moves).
    memory: Vec<[Memory; 2]>,
    /// Where the buffers begin here.
    at: Vec<[*mut u8; 2]>,
    any_far: bool,
    cached: bool,
    road: Road,
    first: Cursor,
    resolved: Resolved,
}

/// Where a buffer of a member, of some length, may lie in the next call as far as is known.
#[derive(Clone, Copy)]
enum Memory {
    /// It is not touched.
    None,
    /// At the address that the line says.
    Here,
    /// In a segment that is mapped at `from`, up to the offset `most`.
    Mapped { from: *mut u8, most: u64 },
}

impl Memory {
    /// That of a buffer of `bytes` of `rank`, which lay in `segment` if in any. `None`: in the memory of another process.
    fn of(core: &Core, engine: &Engine, rank: usize, segment: Option<u32>, bytes: u64) -> Option<Memory> {
        match segment {
            _ if core.one_process => Some(Memory::Here),
            Some(segment) => {
                let (from, len) = engine.imports.mapped(rank, segment)?;
                Some(Memory::Mapped { from, most: (len as u64).checked_sub(bytes)? })
            }
            None => core.same_process(rank).then_some(Memory::Here),
        }
    }

    /// Where the buffer begins here of which a line says `said`; `None` if it does not lie in this memory.
    #[inline]
    fn at(&self, said: u64) -> Option<*mut u8> {
        match *self {
            Memory::None => Some(std::ptr::null_mut()),
            Memory::Here => Some(std::ptr::with_exposed_provenance_mut(said as usize)),
            Memory::Mapped { from, most } => (said <= most).then(|| from.wrapping_add(said as usize)),
        }
    }
}

/// The calls of one communicator.
#[derive(Default)]
pub(super) struct Calls {
    shaped: ByShape<Made>,
}

impl Calls {
    /// Takes the last call of `shape` out and gives it these buffers; `None` when there is none, or a buffer is missing.
    fn take(&mut self, shape: &Shape, send: *const u8, recv: *mut u8) -> Option<Box<Made>> {
        let place = self.shaped.find(shape)?;
        let made = self.shaped.get(place)?;
        if made.sends && send.is_null() || made.receives && recv.is_null() {
            return None;
        }
        let mut made = self.shaped.take(place)?;
        (made.call.send, made.call.recv, made.call.signature) = (send, recv, made.signature);
        Some(made)
    }

    fn keep(&mut self, made: Box<Made>) {
        self.shaped.put(made.place, made);
    }

    /// Memory of peers is no longer where it was.
    pub(super) fn forget(&mut self) {
        self.shaped.all().for_each(|made| made.words.clear());
    }
}

impl Shaped for Made {
    #[inline]
    fn shape(&self) -> Option<&Shape> {
        Some(&self.shape)
    }
}

impl Engine {
    /// Keeps `call`, which was checked and is no eager one, for the next one of its `shape`.
    pub(super) fn keep(&mut self, core: &Core, shape: Shape, call: &Call) {
        if call.scale.is_some() || !call.bias.is_null() {
            return;
        }
        // Where there is no plan the call itself says so.
        let Ok(plan) = self.plans.get(core, call) else { return };
        let Plan::Direct { aside, part, .. } = *plan else { return };
        let may_be_awaited = awaited::may_be(core, call, &plan);
        let first_wait = ends::first_wait(core, call, &plan);
        let (sends, receives) = call.needs(core.rank as u32);
        let place = self.known_direct.shaped.place_for(&shape);
        let members = core.members.len();
        let (words, memory, at, resolved, old) = match self.known_direct.shaped.take(place) {
            Some(mut old) => {
                let (words, memory) = (std::mem::take(&mut old.words), std::mem::take(&mut old.memory));
                (words, memory, std::mem::take(&mut old.at), std::mem::take(&mut old.resolved), Some(old))
            }
            None => {
                let (words, memory) = (Vec::with_capacity(members), Vec::with_capacity(members));
                (words, memory, vec![[std::ptr::null_mut(); 2]; members], Resolved::default(), None)
            }
        };
        let mut made = Made {
            shape,
            place,
            signature: call.signature,
            call: call.clone(),
            plan,
            aside,
            slotted_if_waited: beside::is_slotted_if_waited(core, call),
            asks_if_alone: slotted::asks_if_alone(core, &part, call),
            may_be_awaited,
            first_wait,
            sends,
            receives,
            words,
            memory,
            at,
            any_far: false,
            cached: true,
            road: Road::Staged,
            first: Cursor::default(),
            resolved,
        };
        made.words.clear();
        self.known_direct.shaped.put(place, renewed(old, made));
    }
}

impl Made {
    /// Where a private input goes of the next call if that is taken to be [waited for](super::run), maybe by the peer, too.
    #[inline(never)]
    fn aside_if_waited(&self, core: &Core, engine: &mut Engine) -> Aside {
        let asks = self.asks_if_alone && engine.run.is_alone();
        Aside {
            slotted: self.aside.slotted || self.slotted_if_waited || asks,
            lent_if_awaited: self.may_be_awaited && awaited::is_apart(core, engine, &self.call, self.aside),
            ..self.aside
        }
    }

    /// What the line of `member` says of its buffers, where it has `met`; `own` is what mine says.
    #[inline]
    fn said(&self, core: &Core, own: &Words, seq: u64, met: Met, member: usize) -> Words {
        match &*self.plan {
            _ if member == core.me => direct::places(own),
            // Others need not have come.
            Plan::Direct { mapped, .. } if met == Met::Lenders && !mapped.touches(member) => Words::default(),
            _ => direct::places(&direct::words(core, member, seq)),
        }
    }

    /// Whether the buffers lie where they lay.
    fn fits(&self, core: &Core, own: &Words, seq: u64, met: Met) -> bool {
        // Word by word, as for `Shape`.
        let same = |(m, words): (usize, &Words)| {
            let said = self.said(core, own, seq, met, m);
            words.iter().zip(said).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
        };
        self.words.len() == core.members.len() && self.words.iter().enumerate().all(same)
    }

    /// Whether all that differs from the call before is where in memory that was used in that the buffers lie: moves the program to where
    /// they are.
    fn moves(&mut self, core: &Core, own: &Words, seq: u64, met: Met) -> bool {
        if self.memory.len() != core.members.len() || self.words.len() != core.members.len() {
            return false;
        }
        for member in 0..core.members.len() {
            let said = self.said(core, own, seq, met, member);
            let was = std::mem::replace(&mut self.words[member], said);
            // What kind of memory it is, in which segments, and what was given back.
            if (said[0] ^ was[0]) | (said[3] ^ was[3]) != 0 {
                return false;
            }
            if member == core.me {
                self.at[member] = [self.call.send.cast_mut(), self.call.recv];
                continue;
            }
            let [input, output] = &self.memory[member];
            let (Some(input), Some(output)) = (input.at(said[1]), output.at(said[2])) else { return false };
            self.at[member] = [input, output];
        }
        self.resolved.moves_to(&self.at)
    }

    /// Notes in what memory the buffers lie that the program of `plan` touches.
    fn note_memory(&mut self, core: &Core, engine: &Engine, plan: &DirectPlan) {
        self.memory.clear();
        if self.road != Road::Mapped || self.any_far {
            return;
        }
        for (member, words) in self.words.iter().enumerate() {
            let (rank, [input, output]) = (core.members[member], direct::segments(words));
            let [reads, writes] = plan.own(member);
            let of = |touched: bool, segment, bytes| match touched && member != core.me {
                true => Memory::of(core, engine, rank, segment, bytes),
                false => Some(Memory::None),
            };
            let input = of(reads, input, self.call.input_bytes(rank as u32, core.ranks));
            let output = of(writes, output, self.call.output_bytes(rank as u32, core.ranks));
            let (Some(input), Some(output)) = (input, output) else { return self.memory.clear() };
            self.memory.push([input, output]);
        }
    }

    /// Resolves the program for buffers that lie elsewhere; `false` for a road or program that is not resolved.
    fn bind(&mut self, core: &Core, engine: &mut Engine, own: Words, seq: u64, met: Met) -> Result<bool> {
        if self.moves(core, &own, seq, met) {
            return Ok(true);
        }
        self.words.clear();
        self.memory.clear();
        let call = &self.call;
        match direct::road(core, call, &self.plan, seq, call.send) {
            Some(road @ (Road::Beside | Road::Slots)) => {
                self.road = road;
                self.remember(core, &own, seq, met);
                return Ok(true);
            }
            Some(road) if road.borrows() => self.road = road,
            _ => return Ok(false),
        }
        let plan = self.plan.direct(self.road).ok_or_else(|| Error::internal("a direct plan lacks a road"))?;
        direct::locate(core, engine, call, seq, call.send, Some(plan))?;
        if !resolve(core, engine, call, plan, &mut self.resolved) {
            return Ok(false);
        }
        (self.any_far, self.cached) = (engine.any_far, engine.cached);
        self.first = direct::begin(call, plan);
        self.remember(core, &own, seq, met);
        let known = self.plan.clone();
        if let Some(plan) = known.direct(self.road) {
            self.note_memory(core, engine, plan);
        }
        Ok(true)
    }

    /// Remembers where the buffers lie.
    fn remember(&mut self, core: &Core, own: &Words, seq: u64, met: Met) {
        for member in 0..core.members.len() {
            self.words.push(self.said(core, own, seq, met, member));
        }
    }

    /// Whether it may begin behind the [end](ends) of a call: its input, which peers may still write, goes nowhere before both have met.
    /// Mapped ones are put aside only where ranks share cores (`apart`, `slotted::fits`, `beside::is_slotted_if_waited`).
    fn may_follow_end(&self, core: &Core, engine: &mut Engine) -> bool {
        let input = self.call.input_bytes(core.rank as u32, core.ranks);
        self.first_wait.is_some() && engine.is_mapped(core, self.call.send, input)
    }

    /// How far it comes; `at`: the phase in which it is then, if that is [`Came::Midway`]. `ends`: it may end, since none is before it,
    /// or only an [end](ends); `leaves`: its own is left. `aside`: where a private input goes.
    #[inline(always)]
    fn advance(
        &mut self,
        core: &Core,
        engine: &mut Engine,
        (seq, at): (&mut u64, &mut Phase),
        (ends, leaves): (bool, bool),
        aside: Aside,
    ) -> Result<Came> {
        core.check()?;
        engine.seen.begin(patience(core, &self.call));
        if core.crowded {
            engine.note_root(&self.call);
        }
        (*seq, self.call.signature) = engine.number(core, self.call.signature);
        if !engine.seen.may_publish(core, *seq, slotted::lines_ahead(core, engine, &self.call, *seq)) {
            return Ok(Came::Announce);
        }
        let own = direct::announce(core, engine, &self.call, *seq, self.call.send, aside, !ends);
        if !ends {
            debug_assert!(
                beside::giver(core, &self.call) != Some(core.me)
                    || direct::in_slot(&own).is_none() && direct::pipe(&own, true).is_none(),
                "{} is over once it is announced",
                self.call.describe()
            );
            // What lies in a slot of a gather is all that the root takes of this rank.
            let over = slotted::is_over(core, &self.call, &own);
            if over {
                engine.leave_unsettled(*seq, self.call.signature);
            }
            return Ok(if over { Came::Moved } else { Came::Meet });
        }
        match beside::gives(core, engine, &self.call, Some(&self.plan), *seq, &own) {
            None => {}
            Some(Given::Over) => return Ok(Came::Over),
            Some(Given::Sent) => return Ok(Came::Meet),
            Some(Given::Piped(pipe)) => return self.go_on(core, engine, *seq, pipe, at),
        }
        if let Some(giver) = beside::giver_for(core, &self.call) {
            if !engine.seen.arrived(core, &self.call, giver, *seq)? {
                return Ok(Came::Meet);
            }
            let words = direct::words(core, giver, *seq);
            match beside::given(core, engine, &self.call, Some(&self.plan), giver, *seq, &words) {
                Ok(None) => {}
                Ok(Some(Given::Over)) => return Ok(Came::Over),
                Ok(Some(Given::Sent)) => return Ok(Came::Meet),
                Ok(Some(Given::Piped(pipe))) => return self.go_on(core, engine, *seq, pipe, at),
                Err(error) => return Err(error),
            }
        }
        let met = lent::meet(core, engine, &self.call, Some(&self.plan), *seq)?;
        if met == Met::Not {
            return Ok(Came::Meet);
        }
        if !self.fits(core, &own, *seq, met) && !self.bind(core, engine, own, *seq, met)? {
            return Ok(Came::Meet);
        }
        if !lent::in_order(core, engine, &self.plan, self.road, *seq, true) {
            return Ok(Came::Meet);
        }
        if self.road == Road::Beside {
            beside::take(core, engine, &self.call, *seq);
            return Ok(Came::Over);
        }
        if self.road == Road::Slots {
            let mut next = 0;
            let step = slotted::step(core, engine, &self.call, *seq, &mut next)?;
            if matches!(step, Step::Done) {
                return Ok(Came::Over);
            }
            *at = Phase::Slots(next);
            return Ok(Came::Midway);
        }
        (engine.any_far, engine.cached) = (self.any_far, self.cached);
        let leaves = leaves && self.road == Road::Mapped;
        let Some(pc) = self.run(core, engine, *seq, leaves)? else { return Ok(Came::Over) };
        if !leaves {
            self.locate_if_moves(core, engine, pc, *seq)?;
        }
        *at = Phase::Direct { road: self.road, cursor: self.first.at(pc) };
        Ok(Came::Midway)
    }

    /// Whether all is done but the end, in that phase of it.
    fn is_left(&self, phase: &Phase) -> bool {
        matches!(phase, Phase::Direct { road: Road::Mapped, cursor } if self.first_wait == Some(cursor.op()))
    }

    /// Goes on in pieces.
    fn go_on(&self, core: &Core, engine: &mut Engine, seq: u64, mut pipe: Pipe, at: &mut Phase) -> Result<Came> {
        loop {
            match piped::step(core, engine, &self.call, self.call.send, seq, &mut pipe)? {
                Step::Progress => {}
                Step::Blocked => {
                    *at = Phase::Piped(pipe);
                    return Ok(Came::Midway);
                }
                _ => return Ok(Came::Over),
            }
        }
    }

    /// As [`go_on`] for a `call` that is of its kind.
    #[inline(always)]
    fn go_on_mapped(
        &mut self,
        core: &Core,
        engine: &mut Engine,
        (call, phase): (&Call, &mut Phase),
        seq: u64,
        met: Met,
    ) -> Result<bool> {
        (self.call.send, self.call.recv) = (call.send, call.recv);
        let own = direct::words(core, core.me, seq);
        let fits = self.road == Road::Mapped && self.fits(core, &own, seq, met);
        if !fits && !self.bind(core, engine, own, seq, met)? || self.road != Road::Mapped {
            return Ok(false);
        }
        (engine.any_far, engine.cached) = (self.any_far, self.cached);
        let pc = self.run(core, engine, seq, false)?;
        if let Some(pc) = pc {
            self.locate_if_moves(core, engine, pc, seq)?;
        }
        // Made where it stays: see `at_once::Reached` for what else it would wait for.
        let cursor = pc.map_or(self.first.at_end(), |pc| self.first.at(pc));
        *phase = Phase::Direct { road: Road::Mapped, cursor };
        Ok(true)
    }

    /// Finds the places for a task that goes on at op `pc`. Who only waits needs none.
    fn locate_if_moves(&self, core: &Core, engine: &mut Engine, pc: usize, seq: u64) -> Result<()> {
        let plan = self.plan.direct(self.road);
        if plan.is_some_and(|plan| direct::only_waits(plan, &self.first.at(pc))) {
            return Ok(());
        }
        direct::locate(core, engine, &self.call, seq, self.call.send, plan)
    }

    /// Runs the program: the op at which it is blocked, or left.
    fn run(&self, core: &Core, engine: &mut Engine, seq: u64, leaves: bool) -> Result<Option<usize>> {
        let Some(_borrowed) = core.borrow_memory(Lane::Collectives) else { return Ok(Some(0)) };
        // Peers have looked at it in the call before: it comes back while this one moves its data.
        prefetch::for_write(core.hub.flag(core.me, 0).as_ptr().cast());
        for deed in &self.resolved.deeds {
            match *deed {
                Deed::Nothing => {}
                Deed::Signal(epoch) => direct::raise(core, 0, seq, epoch),
                Deed::Wait { pc, .. } if leaves => return Ok(Some(pc)),
                Deed::Wait { member, epoch, pc } => {
                    if !direct::is_raised(core, member, 0, seq, epoch, engine.seen.polls()) {
                        return Ok(Some(pc));
                    }
                }
                Deed::Move { at, middle, end, count, post } => {
                    self.resolved.carry_out(engine, &self.call, [at, middle, end], count, post)?;
                }
            }
        }
        Ok(None)
    }
}

/// Whether there is a last call of `shape` as which one with these buffers is made, when all in front of it is over.
pub(super) fn waits(core: &Core, engine: &mut Engine, shape: &Shape, send: *const u8, recv: *mut u8) -> bool {
    let Some(made) = engine.known_direct.take(shape, send, recv) else { return false };
    // Such ones begin behind others, see `collective::sent`.
    let sent = beside::is_sent(core, engine, &made.call, made.aside);
    engine.known_direct.keep(made);
    !sent
}

/// The task of `call`, which goes over mapped memory and has `met` its peers, goes on as the call that is kept in `place`, if that
/// is of its kind: whether it did, and is in that phase now.
///
/// # Errors
/// Those of its steps.
pub(super) fn go_on(
    core: &Core,
    engine: &mut Engine,
    (call, phase): (&Call, &mut Phase),
    plan: &Arc<Plan>,
    place: u8,
    seq: u64,
    met: Met,
) -> Result<bool> {
    let Some(mut made) = engine.known_direct.shaped.take(place) else { return Ok(false) };
    let goes = match Arc::ptr_eq(&made.plan, plan) && made.call.is_like(call) {
        true => made.go_on_mapped(core, engine, (call, phase), seq, met),
        false => Ok(false),
    };
    engine.known_direct.shaped.put(place, made);
    goes
}

/// Leaves the [end](ends) of the call `made`, of that turn and number, to the next one: in place of the one that was there, if any.
fn leave(
    core: &Arc<Core>,
    mut idle: IdleStream<'_>,
    mut engine: LatchGuard<'_, Engine>,
    made: Box<Made>,
    (turn, seq): (u64, u64),
    phase: Phase,
) {
    #[cfg(all(test, not(loom)))]
    ends::note_left();
    if let Some(end) = idle.end_of(trail::id(core, Lane::Collectives)) {
        end.renew(core, &made.call, &made.plan, (turn, seq), phase);
        engine.known_direct.keep(made);
        drop(engine);
        return idle.renewed();
    }
    let task = CollectiveTask::begun_here(made.call.clone(), turn, seq, phase).by(made.plan.clone());
    engine.known_direct.keep(made);
    drop(engine);
    idle.go_on(task.of(core).ending().boxed());
}

/// Carries out, or begins, a call as the last one of its `shape`, behind the calls that `idle` holds, if any; `false` when
/// there was none, or it cannot be begun now.
pub(super) fn run(
    core: &Arc<Core>,
    mut idle: IdleStream<'_>,
    mut engine: LatchGuard<'_, Engine>,
    shape: &Shape,
    send: *const u8,
    recv: *mut u8,
) -> bool {
    let Some(mut made) = engine.known_direct.take(shape, send, recv) else { return false };
    let behind = idle.behind();
    let lane = trail::id(core, Lane::Collectives);
    let ending = behind > 0 && idle.end_of(lane).is_some();
    let seq = engine.next_number();
    if votes::decide(core, &made.call) && !votes::go_direct(&mut engine, &made.call, seq) {
        engine.known_direct.keep(made);
        return false;
    }
    let follows = match behind {
        0 => true,
        _ if ending => made.may_follow_end(core, &mut engine),
        _ => lent::may_follow(core, &mut engine, &idle, &made.call, &made.plan) && !engine.bars_others(),
    };
    let Some(turn) = follows.then(|| trail::issue(core, Lane::Collectives, &idle)).flatten() else {
        engine.known_direct.keep(made);
        return false;
    };
    // Counted before the line is written: a count waits for all stores in front of it, and those for a line that peers have read.
    let counted = (behind > 0 && !ending).then(|| (core.clone(), made.plan.clone()));
    let mut aside = made.aside;
    if made.slotted_if_waited || made.may_be_awaited || made.asks_if_alone {
        let many = engine.run.is_long(idle.waits(), seq, true);
        if !many && behind == 0 {
            aside = made.aside_if_waited(core, &mut engine);
        }
    }
    let leaves = made.first_wait.is_some() && engine.ends.is_left(idle.waits(), seq, ending);
    let (mut seq, mut at) = (0, Phase::Start);
    let how = (behind == 0 || ending, leaves);
    let came = caught(|| made.advance(core, &mut engine, (&mut seq, &mut at), how, aside)).and_then(|came| came);
    haste::end();
    let place = if trail::goes_on(core) { Some(made.place) } else { None };
    let task = |phase| {
        let task = CollectiveTask::begun_here(made.call.clone(), turn, seq, phase).by(made.plan.clone());
        if let Some(place) = place { task.like(place) } else { task }
    };
    match came {
        Ok(Came::Midway) if leaves && made.is_left(&at) => leave(core, idle, engine, made, (turn, seq), at),
        Ok(Came::Over) => {
            if let Some(end) = idle.end_of(lane) {
                end.end_known(core);
                idle.drop_end();
            }
            engine.awaited.note_end(seq, Some(made.call.block_bytes()));
            engine.known_direct.keep(made);
            core.pass_turn(Lane::Collectives, turn);
            let unsettled = engine.is_unsettled(seq);
            drop(engine);
            if unsettled {
                idle.doubt(core);
            }
        }
        Ok(came) => {
            engine.awaited.note_end(seq, None);
            let Some((counted, plan)) = counted else {
                let task = task(came.phase(at));
                engine.known_direct.keep(made);
                if ending {
                    drop(engine);
                    idle.go_on(task.of(core).boxed());
                } else {
                    see_through(core, idle, engine, task);
                }
                return true;
            };
            let mut task = CollectiveTask::begun_boxed(counted, &made.call, turn, seq, came.phase(at));
            task.goes_on_like(core, &engine, plan, made.place);
            engine.known_direct.keep(made);
            drop(engine);
            idle.go_on(task);
        }
        Err(error) => {
            drop(engine);
            failed(core, idle, task(Phase::Meet), error);
        }
    }
    true
}
