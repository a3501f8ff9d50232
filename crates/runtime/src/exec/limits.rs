//! How long payloads may be that travel with the lines which announce calls, or in slots beside them. The same on every rank, since
//! all have the same configuration and constants.
//!
//! A communicator looks each limit up once. Which way a call goes above them is found by `plan`.

use oxccl_schedule::cost::CostModel;
use oxccl_schedule::select::{Reach, eager_crossover};
use oxccl_sys::sync::{AtomicU32, Ordering};
use oxccl_types::Collective;

use super::call::Call;
use super::{eager, trail, votes};
use crate::communicator::core::Core;
use crate::communicator::hub::{GIVEN_BYTES, LONG_BYTES, SMALL_BYTES};
use crate::config::Config;

/// Whether the announcing line serves the call, unless [votes](super::votes) say that memory is mapped. The same answer on every rank.
#[inline]
pub(crate) fn is_eager(core: &Core, call: &Call) -> bool {
    if !core.eager || call.collective == Collective::AllToAllV {
        return false;
    }
    let published = eager::published(call, core.ranks);
    published <= eager_limit(core, call.collective)
        || call.scale.is_none() && published <= voted_limit(core, call.collective)
}

/// The most bytes that a rank publishes in announcing lines, whatever memory it has.
#[inline]
pub(super) fn eager_limit(core: &Core, collective: Collective) -> u64 {
    looked_up(&core.eager_limits[collective as usize], || Limits::of(core).eager(collective))
}

/// The same where [votes](super::votes) say that not all ranks have mapped memory; 0 where there are none.
#[inline]
fn voted_limit(core: &Core, collective: Collective) -> u64 {
    if !trail::goes_on(core) {
        return 0;
    }
    looked_up(&core.voted_limits[collective as usize], || Limits::of(core).voted(collective))
}

/// What `known` holds, less one, or if that is nothing what `find` finds, kept there. Two threads that look it up at once find the
/// same.
#[inline]
fn looked_up(known: &AtomicU32, find: impl FnOnce() -> u64) -> u64 {
    match known.load(Ordering::Relaxed) {
        0 => {
            let limit = find();
            known.store(limit as u32 + 1, Ordering::Relaxed);
            limit
        }
        found => u64::from(found) - 1,
    }
}

/// Bytes up to which calls that only take from or give to a root go by slots where ranks share cores.
const ROOTED_BYTES: u64 = GIVEN_BYTES as u64;
/// The same for blocks that the root would have to copy, one after the other.
const GATHERED_BYTES: u64 = SMALL_BYTES as u64;
/// The same for blocks that each rank copies from each, which they may do ahead where the memory is mapped.
const TAKEN_BYTES: u64 = 4 << 10;
/// Bytes of a payload slot where ranks outnumber cores: what a rank can do before the core passes to another is what counts.
const CROWDED_SLOT: usize = 32 << 10;

/// Bytes of a payload slot of the usual kind. `crowded`: ranks outnumber cores.
pub(crate) fn slot_bytes(config: &Config, crowded: bool) -> usize {
    let slot = if crowded && config.eager_auto { config.eager_limit.max(CROWDED_SLOT) } else { config.eager_limit };
    slot.max(64).next_multiple_of(64)
}

/// What the limits follow from.
pub struct Limits<'a> {
    model: &'a CostModel,
    ranks: u32,
    /// Bytes of a slot, and those that the user set or that are usual.
    slot: u64,
    usual: u64,
    /// The user set nothing.
    auto: bool,
    /// Ranks share cores, and go on before a call ends.
    shares: bool,
}

impl<'a> Limits<'a> {
    fn of(core: &'a Core) -> Limits<'a> {
        let (slot, shares) = (core.hub.geometry().eager_bytes, trail::goes_on(core));
        Limits { slot: slot as u64, shares, ..Limits::of_machine(&core.config, core.ranks as u32) }
    }

    /// Of a communicator with that configuration whose ranks are all on one machine.
    #[must_use]
    pub fn of_machine(config: &'a Config, ranks: u32) -> Limits<'a> {
        let model = &config.constants.model;
        let shares = f64::from(ranks) > model.cores;
        let (slot, usual) = (slot_bytes(config, shares) as u64, config.eager_limit as u64);
        Limits { model, ranks, slot, usual, auto: config.eager_auto, shares }
    }

    /// Bytes up to which a rank publishes what it gives, whatever memory it has: what the user set, or up to the default the size
    /// from which on mapped memory is faster.
    #[must_use]
    #[cold]
    pub fn eager(&self, collective: Collective) -> u64 {
        let most = match collective {
            // Beyond it, the ranks that touch the one root's memory run ahead as well, and copy once.
            Collective::Broadcast | Collective::Scatter if self.shares => self.slot.min(ROOTED_BYTES),
            Collective::Gather if self.shares => self.slot.min(GATHERED_BYTES),
            Collective::AllGather if self.shares => self.usual.min(TAKEN_BYTES),
            // Where ranks share cores, calls with a root gain most by running ahead: their slots are larger, see the geometry.
            c if c.rooted() => self.slot,
            // Of what is published, each rank reads a block.
            Collective::AllToAll | Collective::ReduceScatter => self.slot.min(2 * self.usual),
            _ => self.usual,
        };
        match self.auto {
            true => eager_crossover(self.model, collective, self.ranks, most, Reach::MappedUser),
            false => self.usual,
        }
    }

    /// The same where votes say that not all ranks have mapped memory, up to the size of a slot: the size from which on the scratch
    /// is faster. 0 where there are no votes.
    #[must_use]
    #[cold]
    pub fn voted(&self, collective: Collective) -> u64 {
        match self.shares && self.auto && votes::are_cast(collective) {
            true => eager_crossover(self.model, collective, self.ranks, LONG_BYTES as u64, Reach::MappedScratch),
            false => 0,
        }
    }
}
