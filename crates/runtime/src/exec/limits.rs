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
use crate::communicator::hub::{GIVEN_BYTES, LONG_BYTES, LONG_SLOTS, SMALL_BYTES};
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

/// The most bytes of a payload of `collective` that long slots carry, see [`Limits::long`].
#[inline]
pub(super) fn long_limit(core: &Core, collective: Collective) -> u64 {
    looked_up(&core.long_limits[collective as usize], || Limits::of(core).long(collective))
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
/// Bytes that long slots carry however many ranks have such.
const LEAST_LONG: u64 = 64 << 10;
/// Bytes of a block from which on the kernel copies it sooner than two ranks do, one after the other, by a slot.
const BLOCK_BY_KERNEL: u64 = 32 << 10;
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

    /// The same where votes say that not all ranks have mapped memory, up to what a long slot carries: the size from which on the scratch
    /// is faster. 0 where there are no votes.
    #[must_use]
    #[cold]
    pub fn voted(&self, collective: Collective) -> u64 {
        match self.shares && self.auto && votes::are_cast(collective) {
            true => eager_crossover(self.model, collective, self.ranks, self.long(collective), Reach::MappedScratch),
            false => 0,
        }
    }

    /// The most bytes of a payload that goes by a long slot where peers cannot map it; 0 where none does. The more calls are under way
    /// the fewer switches of the cores a call costs where ranks share them; but all slots that are written have to stay in half a last
    /// cache. Where the kernel's copies are the faster ones it is what was measured.
    ///
    /// Where ranks have cores of their own, what a root broadcasts has such slots.
    #[must_use]
    #[cold]
    pub fn long(&self, collective: Collective) -> u64 {
        if !self.shares && collective == Collective::Broadcast {
            return self.given();
        }
        if !(self.shares && self.auto) {
            return 0;
        }
        if self.model.kernel_from().is_some() {
            return self.long_by_kernel(collective);
        }
        let payloads = match collective {
            Collective::Broadcast | Collective::Scatter => 1,
            // Somebody writes as much again as lies in the slots of all. Of four ranks that was not found to matter.
            Collective::AllToAll | Collective::Gather if self.ranks > 4 => 2 * self.ranks,
            _ => self.ranks,
        };
        let each = self.model.last_cache_bytes / 2.0 / LONG_SLOTS as f64 / f64::from(payloads);
        (each as u64).clamp(LEAST_LONG, LONG_BYTES as u64)
    }

    /// The same for ranks that share cores, where the kernel's copies of long messages are the faster ones: each of them costs a call of the
    /// kernel, so that where each rank gets or gives a block these count. It is what was measured.
    fn long_by_kernel(&self, collective: Collective) -> u64 {
        match collective {
            Collective::Broadcast => 2 * LEAST_LONG,
            Collective::Scatter => (u64::from(self.ranks) * BLOCK_BY_KERNEL).min(LONG_BYTES as u64),
            Collective::Gather => BLOCK_BY_KERNEL,
            c if votes::are_cast(c) => LEAST_LONG,
            _ => 0,
        }
    }

    /// The most bytes that a root puts into a slot for several ranks with cores of their own: it writes what the next call gives while
    /// they read. Through scratch each call waits for the one before, and the kernel lets the readers at the pages of a root one after the
    /// other; of three ranks the root carries half of it. Where the kernel's copies are the slower ones it was not measured.
    fn given(&self) -> u64 {
        let measured = self.auto && self.ranks > 3 && self.model.kernel_from().is_some();
        if measured { LONG_BYTES as u64 } else { 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of a processor whose slots are faster than the kernel's copies.
    fn config(cores: f64, last_cache_bytes: f64, eager_auto: bool) -> Config {
        let mut config = Config { eager_auto, ..Config::from_env() };
        config.constants.model = CostModel { cores, last_cache_bytes, ..CostModel::of_strings() };
        config
    }

    #[test]
    fn long_slots_of_all_ranks_stay_in_half_a_last_cache() {
        use Collective::{AllGather, AllToAll, Broadcast, Gather, ReduceScatter, Scatter};
        const KIB: u64 = 1 << 10;
        let long = |config: &Config, collective, ranks| Limits::of_machine(config, ranks).long(collective);
        let crowd = config(2.0, f64::from(32 << 20), true);
        for ranks in [3, 4, 16, 64] {
            assert_eq!(long(&crowd, Broadcast, ranks), 256 * KIB, "the root's only, {ranks}");
            assert_eq!(long(&crowd, Scatter, ranks), 256 * KIB, "{ranks}");
        }
        for (ranks, usual, written_again) in [(4, 256, 256), (5, 204, 102), (8, 128, 64), (64, 64, 64)] {
            for collective in [ReduceScatter, AllGather] {
                assert_eq!(long(&crowd, collective, ranks) / KIB, usual, "{collective} {ranks}");
            }
            for collective in [AllToAll, Gather] {
                assert_eq!(long(&crowd, collective, ranks) / KIB, written_again, "{collective} {ranks}");
            }
        }
        let small = config(2.0, f64::from(8 << 20), true);
        assert_eq!([3, 4].map(|ranks| long(&small, ReduceScatter, ranks) / KIB), [85, 64]);
        assert_eq!(long(&small, Broadcast, 4), 256 * KIB);
        let mut by_kernel = config(2.0, f64::from(32 << 20), true);
        by_kernel.constants.model = CostModel { cores: 2.0, ..CostModel::default() };
        assert_eq!([3, 7, 8, 9].map(|ranks| long(&by_kernel, Scatter, ranks) / KIB), [96, 224, 256, 256]);
        assert_eq!([Broadcast, Gather, AllToAll].map(|c| long(&by_kernel, c, 3) / KIB), [128, 32, 64]);
        // Ranks with cores of their own have none; and who says how long payloads are gets that.
        assert_eq!(long(&config(4.0, f64::from(32 << 20), true), Broadcast, 4), 0);
        assert_eq!(long(&config(2.0, f64::from(32 << 20), false), Broadcast, 4), 0);
        // But what a root gives to more than two of those, where the kernel's copies are faster.
        by_kernel.constants.model.cores = 8.0;
        assert_eq!([3, 4, 8].map(|ranks| long(&by_kernel, Broadcast, ranks) / KIB), [0, 256, 256]);
        assert_eq!([Scatter, Gather, AllToAll].map(|c| long(&by_kernel, c, 4)), [0; 3]);
        by_kernel.eager_auto = false;
        assert_eq!(long(&by_kernel, Broadcast, 4), 0);
    }
}
