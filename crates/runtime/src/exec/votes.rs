//! Where ranks share cores, calls of a few to 256 KiB are best carried out over mapped memory: nothing is copied into slots, and
//! many are under way together. But nobody knows before a call whether all have such memory, and through the scratch they would
//! take longer than by slots.
//!
//! So each line of such a call says whether its rank's buffers are mapped, whichever way the call goes, and all ranks, which
//! look at all lines, find alike what all say: a *vote*. The votes of calls that are certainly over on every rank that begins a
//! call decide how that goes. Buffers that are not mapped after all cost time, and the next vote ends that.

use oxccl_types::Collective;

use super::call::Call;
use super::collective::Engine;
use super::direct;
use super::limits;
use super::trail;
use crate::communicator::core::Core;
use crate::communicator::hub::{LENT_WINDOW, SMALL_BYTES};

/// Votes that are kept: of calls that may be under way, and a power of two.
const KEPT: usize = 2 * LENT_WINDOW as usize;

/// Whether the way of `call` is found by votes. The same answer on every rank.
#[inline(always)]
pub(super) fn decide(core: &Core, call: &Call) -> bool {
    trail::goes_on(core) && is_of_class(core, call)
}

/// Whether all ranks look at the lines of all.
pub(super) fn are_cast(collective: Collective) -> bool {
    use Collective::{AllGather, AllReduce, AllToAll, ReduceScatter};
    matches!(collective, AllReduce | AllGather | ReduceScatter | AllToAll)
}

/// Bytes published from which on votes are cast in calls of `collective` that [cast](are_cast) them.
const fn least(collective: Collective) -> u64 {
    SMALL_BYTES as u64 + if matches!(collective, Collective::AllGather) { 0 } else { 1 }
}

/// Bytes of a rank's input up to which no votes are cast in calls of `collective`. Calls that travel together have none: which
/// do is each rank's affair.
pub(super) fn none_up_to(core: &Core, collective: Collective) -> u64 {
    if trail::goes_on(core) && are_cast(collective) { least(collective) - 1 } else { u64::MAX }
}

/// What goes into slots of medium size and longer ones, of calls in which votes are cast; of blocks that each rank copies from each
/// the longest that go into small ones, too.
#[inline(never)]
fn is_of_class(core: &Core, call: &Call) -> bool {
    let c = call.collective;
    if !are_cast(c) || call.scale.is_some() {
        return false;
    }
    let own = matches!(c, Collective::ReduceScatter | Collective::AllToAll);
    let blocks = c.input_blocks(core.ranks) as u64 - u64::from(own);
    call.block_bytes() * blocks >= least(c) && limits::is_eager(core, call)
}

/// The votes of a communicator.
pub(super) struct Votes {
    /// Call, collective and vote of the last ones, by their number.
    last: [(u64, u8, bool); KEPT],
    /// How many came, and of how many the vote counts.
    came: u64,
    counted: u64,
    /// Per collective what counts.
    mapped: [bool; 16],
}

impl Default for Votes {
    fn default() -> Votes {
        Votes { last: [(0, 0, false); KEPT], came: 0, counted: 0, mapped: [false; 16] }
    }
}

impl Votes {
    /// The vote of call `seq`, of which all lines have come. They are looked at in the order of the calls, one maybe again.
    fn cast(&mut self, seq: u64, collective: Collective, mapped: bool) {
        let before = self.last[(self.came.wrapping_sub(1) % KEPT as u64) as usize].0;
        if self.came > 0 && before >= seq {
            return;
        }
        self.last[(self.came % KEPT as u64) as usize] = (seq, collective as u8, mapped);
        self.came += 1;
    }

    /// Whether call `seq`, which begins, goes over mapped memory: by the votes of the calls that are over on every rank that
    /// begins it, since so many may be under way and no more.
    fn mapped(&mut self, seq: u64, collective: Collective) -> bool {
        while self.counted < self.came {
            let (of, collective, mapped) = self.last[(self.counted % KEPT as u64) as usize];
            if of + LENT_WINDOW > seq {
                break;
            }
            self.mapped[collective as usize & 15] = mapped;
            self.counted += 1;
        }
        self.mapped[collective as usize & 15]
    }
}

/// Whether `call`, for which votes [decide] and which begins as `seq`, goes over mapped memory. The same answer on every rank.
#[inline(never)]
pub(super) fn go_direct(engine: &mut Engine, call: &Call, seq: u64) -> bool {
    engine.votes.mapped(seq, call.collective)
}

/// Whether this rank's buffers of `call` are mapped: what its line says.
#[inline(never)]
pub(super) fn own(core: &Core, engine: &mut Engine, call: &Call) -> bool {
    let (rank, ranks) = (core.rank as u32, core.ranks);
    engine.is_mapped(core, call.send, call.input_bytes(rank, ranks))
        && engine.is_mapped(core, call.recv, call.output_bytes(rank, ranks))
}

/// Counts the vote of call `seq`, for which votes [decide] and of which all lines have come.
#[inline(never)]
pub(super) fn count(core: &Core, engine: &mut Engine, call: &Call, seq: u64) {
    let mapped = |m: usize| {
        let words = direct::words(core, m, seq);
        direct::is_input_mapped(&words) && direct::is_output_mapped(&words)
    };
    let all = (0..core.members.len()).all(mapped);
    engine.votes.cast(seq, call.collective, all);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: Collective = Collective::AllReduce;

    #[test]
    fn a_vote_counts_when_its_call_is_over_everywhere() {
        let mut votes = Votes::default();
        votes.cast(3, SUM, true);
        assert!(!votes.mapped(4, SUM) && !votes.mapped(2 + LENT_WINDOW, SUM));
        assert!(votes.mapped(3 + LENT_WINDOW, SUM));
        assert!(!votes.mapped(3 + LENT_WINDOW, Collective::AllToAll));
        votes.cast(4, SUM, false);
        assert!(votes.mapped(3 + LENT_WINDOW, SUM) && !votes.mapped(4 + LENT_WINDOW, SUM));
    }

    #[test]
    fn what_is_looked_at_again_is_counted_once() {
        let mut votes = Votes::default();
        votes.cast(5, SUM, true);
        votes.cast(5, SUM, false);
        assert!(votes.came == 1 && votes.mapped(500, SUM));
    }

    #[test]
    fn as_many_are_kept_as_may_be_under_way() {
        // Whenever a call begins, all before it may have voted.
        let (mut votes, mut expected) = (Votes::default(), Vec::new());
        for seq in 1..2000_u64 {
            let vote = seq / 7 % 3 != 0;
            let want = seq.checked_sub(LENT_WINDOW + 1).is_some_and(|at| expected[at as usize]);
            assert_eq!(votes.mapped(seq, SUM), want, "{seq}");
            votes.cast(seq, SUM, vote);
            expected.push(vote);
        }
    }
}
