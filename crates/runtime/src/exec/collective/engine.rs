//! The engine of a communicator: what its collectives share, used by the one whose turn it is. It carries out nothing itself.

use oxccl_types::Result;

use crate::communicator::core::Core;
use crate::device::Exporter;
use crate::exec::again_direct::Calls;
use crate::exec::apart::Apart;
use crate::exec::awaited::Awaited;
use crate::exec::call::Call;
use crate::exec::copies::Copies;
use crate::exec::direct::Buffers;
use crate::exec::ends::Ends;
use crate::exec::entry::{History, Seen};
use crate::exec::far::{Bounce, Spot};
use crate::exec::imports::Imports;
use crate::exec::known::Known;
use crate::exec::links::Links;
use crate::exec::messages::MessageState;
use crate::exec::pieces::Ring;
use crate::exec::plan::Plans;
use crate::exec::run::Run;
use crate::exec::slotted;
use crate::exec::stage::Stage;
use crate::exec::votes::Votes;
use crate::exec::{again_v, ahead};
use crate::pages::Pages;
use crate::transport::passage::Passage;

/// What the collectives of a communicator share: used by the task whose turn it is.
pub(crate) struct Engine {
    seq: u64,
    pub(in crate::exec) seen: Seen,
    history: History,
    /// The last call whose peers' arrival was not awaited: sequence and signature.
    unsettled: Option<(u64, [u64; 2])>,
    pub(in crate::exec) exporter: Exporter,
    pub(in crate::exec) imports: Imports,
    pub(in crate::exec) spots: Vec<Buffers>,
    /// Some of them are in processes that this one has not mapped.
    pub(in crate::exec) any_far: bool,
    /// The buffers of all ranks fit the caches.
    pub(in crate::exec) cached: bool,
    pub(in crate::exec) bounce: Bounce,
    pub(in crate::exec) pages: Pages,
    /// Half of the scratch that the payload of the current direct call lies in.
    pub(in crate::exec) half: usize,
    /// The last sum by two shots did not go over mapped memory: see [`in_order`](crate::exec::lent::in_order).
    pub(in crate::exec) strayed: bool,
    /// The last call for which this rank put something into the area of each half.
    pub(in crate::exec) put_at: [u64; 2],
    /// Pieces that went through scratch which two ranks write in turns.
    pub(in crate::exec) scratch_turn: u64,
    /// What this rank gave in pieces through its ring.
    pub(in crate::exec) ring: Ring,
    /// Payloads that this rank gave by slots, up to as many as decide how the next ones go.
    pub(in crate::exec) given: u8,
    /// Where the next of the payloads may lie that go [round](crate::communicator::hub::Hub::round) its large slots.
    pub(in crate::exec) round: usize,
    /// How what it gives goes to slots, to those of eager calls, to the ring and scratch, and where payloads go round.
    pub(in crate::exec) slots: Passage,
    pub(in crate::exec) payloads: Passage,
    pub(in crate::exec) places: Passage,
    pub(in crate::exec) rounds: Passage,
    pub(in crate::exec) far_srcs: Vec<Spot>,
    pub(in crate::exec) far_dsts: Vec<Spot>,
    pub(in crate::exec) srcs: Vec<*const u8>,
    pub(in crate::exec) dsts: Vec<*mut u8>,
    pub(in crate::exec) links: Links,
    /// The states of message programs that are over, for the next ones.
    // Boxes, since tasks hold boxes.
    #[allow(clippy::vec_box)]
    pub(in crate::exec) spare_messages: Vec<Box<MessageState>>,
    pub(in crate::exec) plans: Plans,
    pub(super) temp: Temp,
    pub(in crate::exec) stage: Stage,
    pub(in crate::exec) copies: Copies,
    pub(in crate::exec) known: Known,
    pub(in crate::exec) known_direct: Calls,
    pub(in crate::exec) known_v: again_v::Last,
    pub(in crate::exec) slotted: slotted::Known,
    pub(in crate::exec) votes: Votes,
    pub(in crate::exec) run: Run,
    /// Of small calls by which this rank gives, none of those between them by which it takes.
    pub(in crate::exec) small_run: Run,
    pub(in crate::exec) apart: Apart,
    pub(in crate::exec) awaited: Awaited,
    /// The root of the last call with one, and how many more before it had that.
    root: u32,
    of_root: u32,
    pub(in crate::exec) ends: Ends,
}

// SAFETY: the raw pointers are scratch space of one step; the engine is used by one thread at a time, under its lock.
unsafe impl Send for Engine {}

impl Engine {
    pub(crate) fn new(ranks: usize, members: usize, ring_places: usize, large_pages: bool) -> Engine {
        Engine {
            seq: 0,
            seen: Seen::new(members),
            history: History::default(),
            unsettled: None,
            exporter: Exporter::new(),
            imports: Imports::new(ranks),
            spots: vec![Buffers::NONE; members],
            any_far: false,
            cached: true,
            bounce: Bounce::default(),
            pages: Pages::new(large_pages),
            half: 0,
            strayed: false,
            put_at: [0; 2],
            scratch_turn: 0,
            ring: Ring::new(ring_places),
            given: 0,
            round: 0,
            slots: Passage::by_slots(),
            payloads: Passage::by_many_slots(),
            places: Passage::by_long_places(),
            rounds: Passage::by_places_in_turn(),
            far_srcs: Vec::with_capacity(ranks + 1),
            far_dsts: Vec::with_capacity(ranks + 1),
            srcs: Vec::with_capacity(ranks + 1),
            dsts: Vec::with_capacity(ranks + 1),
            links: Links::default(),
            spare_messages: Vec::with_capacity(ahead::MOST),
            plans: Plans::default(),
            temp: Temp::default(),
            stage: Stage::default(),
            copies: Copies::default(),
            known: Known::default(),
            known_direct: Calls::default(),
            known_v: again_v::Last::default(),
            slotted: slotted::Known::default(),
            votes: Votes::default(),
            run: Run::default(),
            small_run: Run::default(),
            apart: Apart::default(),
            awaited: Awaited::default(),
            root: 0,
            of_root: 0,
            ends: Ends::default(),
        }
    }

    /// Whether peers can map the `bytes` bytes at `at`; threads of one process need not.
    #[inline]
    pub(in crate::exec) fn is_mapped(&mut self, core: &Core, at: *const u8, bytes: u64) -> bool {
        core.one_process || bytes == 0 || self.exporter.export(at, bytes as usize).is_some()
    }

    /// Notes the root of `call`, which begins, if it has one.
    #[inline]
    pub(in crate::exec) fn note_root(&mut self, call: &Call) {
        if call.collective.rooted() {
            let again = self.root == call.root;
            (self.root, self.of_root) = (call.root, if again { self.of_root.saturating_add(1) } else { 0 });
        }
    }

    /// Whether `call`, which has nothing in front of it and waits for its peers, is one of several with different roots. Of one root it is
    /// best to wait for what it gives, which will be much, or what it takes; where roots change others wait for what this rank has to
    /// give in the calls behind.
    pub(in crate::exec) fn roots_change(&self, call: &Call) -> bool {
        call.collective.rooted() && self.of_root < OF_ONE_ROOT
    }

    /// The number of the call that starts next.
    #[inline]
    pub(in crate::exec) fn next_number(&self) -> u64 {
        self.seq + 1
    }

    /// Whether no call may begin behind the last one, which could otherwise: see `apart`.
    #[inline]
    pub(in crate::exec) fn bars_others(&mut self) -> bool {
        self.apart.bars(self.seq)
    }

    /// The number of the call with `signature`, which starts now, and the signature with the history taken in.
    #[inline]
    pub(in crate::exec) fn number(&mut self, core: &Core, signature: [u64; 2]) -> (u64, [u64; 2]) {
        self.seq += 1;
        // Lines that nobody looked at are made up for by the history; messages are all looked at, and there the call
        // that differs should be named, not the one after it.
        let signature = if core.whole { self.history.add(signature) } else { signature };
        self.seen.called(self.seq, signature);
        (self.seq, signature)
    }

    /// The signature of the call `seq` of this rank, if it was made and is remembered.
    pub(crate) fn called(&self, seq: u64) -> Option<[u64; 2]> {
        self.seen.own(seq)
    }

    /// The call `seq` ends before its peers are known to have made it. One that began behind it may have ended so before, whose
    /// signature makes up for this one.
    #[inline]
    pub(in crate::exec) fn leave_unsettled(&mut self, seq: u64, signature: [u64; 2]) {
        if self.unsettled.is_none_or(|(last, _)| last <= seq) {
            self.unsettled = Some((seq, signature));
        }
    }

    /// Whether it ended so.
    #[inline]
    pub(in crate::exec) fn is_unsettled(&self, seq: u64) -> bool {
        self.unsettled.is_some_and(|(last, _)| last == seq)
    }

    /// Bytes that [`Engine::release`] gives back: mapped memory of peers, and that for scaled and for copied inputs.
    pub(crate) fn releasable(&self) -> usize {
        self.imports.bytes() + self.temp.bytes + self.stage.bytes() + self.bounce.bytes()
    }

    /// Gives that back; what is needed again is made again.
    pub(crate) fn release(&mut self) {
        self.imports.clear();
        self.known_direct.forget();
        // The slots are given back as well: who makes a call for the first time has them in memory again.
        self.known = Known::default();
        self.given = 0;
        self.temp.drop_memory();
        self.stage.clear();
        self.bounce.clear();
    }

    /// Whether the connections may be closed without a loss for a peer.
    pub(crate) fn closable(&mut self) -> bool {
        self.links.closable()
    }

    /// Looks whether the peers of calls that finished early have made the same call: the ranks that have not yet.
    pub(crate) fn settle(&mut self, core: &Core) -> Result<Vec<usize>> {
        let Some((seq, signature)) = self.unsettled else { return Ok(Vec::new()) };
        // Once a later call runs, its signature carries the history, and peers may write the old lines again.
        if self.seq != seq || self.seen.all_started(core, signature, seq)? {
            self.unsettled = None;
            return Ok(Vec::new());
        }
        Ok(self.seen.missing(core, seq))
    }
}

/// Calls in a row with one root before the next ones are taken to have that, too.
const OF_ONE_ROOT: u32 = 16;

/// Device memory for inputs that are scaled before anybody reads them.
#[derive(Default)]
pub(super) struct Temp {
    pub(super) memory: usize,
    bytes: usize,
}

impl Temp {
    pub(super) fn ensure(&mut self, bytes: usize) -> Result<*mut u8> {
        if self.bytes < bytes {
            self.drop_memory();
            self.memory = crate::device::alloc(bytes)? as usize;
            self.bytes = bytes;
        }
        Ok(self.memory as *mut u8)
    }

    fn drop_memory(&mut self) {
        // SAFETY: only the collective whose turn it is uses the memory, and none runs now. An error would mean that
        // the registry does not know its own allocation; there is nothing left to free then.
        let _ = unsafe { crate::device::free(self.memory as *mut u8) };
        self.memory = 0;
        self.bytes = 0;
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        self.drop_memory();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A call that began behind another may have ended before it.
    #[test]
    fn the_last_call_of_those_that_ended_before_all_had_made_them_is_checked() {
        let mut engine = Engine::new(2, 2, 1, false);
        engine.leave_unsettled(7, [1, 2]);
        engine.leave_unsettled(6, [3, 4]);
        assert!(engine.is_unsettled(7) && !engine.is_unsettled(6));
        engine.leave_unsettled(8, [5, 6]);
        assert!(engine.is_unsettled(8));
    }
}
