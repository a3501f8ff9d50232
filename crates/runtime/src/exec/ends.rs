//! The end of a call over mapped memory that is left to the next one.
//!
//! Of two ranks one that has done its part of a direct call waits until its peer has read what it lends, or written what it let it
//! write. Where calls follow one another it need not: the peer announces the next call behind all that it does in this one, and
//! neither touches memory for the next before the other has announced that. So a rank leaves the end of such a call as a
//! task of its stream, and the next call, if it is of that kind, begins at once and stands in its place: one look at the peer a
//! call, not two. All else that looks at the stream finds a task that is not over yet, and waits for the flag of the peer.
//!
//! Only where both ranks have a core of their own; where they share them calls begin behind each other, see `trail`. Of more ranks
//! some need the line of a root alone, while the others may still be at the call in front; what all of them meet in was not measured.
//! Which calls follow one another is counted as for [`run`](super::run).

use oxccl_schedule::ir::Op;

use super::call::Call;
use super::plan::Plan;
use super::run::Run;
use crate::communicator::core::Core;

/// The last calls of a rank whose ends could be left.
#[derive(Debug, Default)]
pub(super) struct Ends {
    run: Run,
    /// The last of them, and whether its end was left.
    last: u64,
    left: bool,
}

impl Ends {
    /// Counts call `seq`, whose end could be left: whether it is. `stream`: see [`waits`](crate::device::IdleStream::waits); `behind`: it
    /// begins behind such an end. If the last call left one that is no longer there, something else that the stream had to do
    /// waited for it, or the helper found it: what that costs is more than what an end saves. So it is where the call itself was held up.
    #[inline]
    pub(super) fn is_left(&mut self, stream: (usize, u64), seq: u64, behind: bool) -> bool {
        let follows = self.last + 1 == seq && (behind || !self.left);
        (self.last, self.left) = (seq, self.run.is_long(stream, seq, follows));
        self.left
    }
}

/// The op at which the program of `call` over mapped memory has only waits left, if such an end may be left.
pub(super) fn first_wait(core: &Core, call: &Call, plan: &Plan) -> Option<usize> {
    let shared = core.crowded || core.hub.geometry().crowded;
    let Plan::Direct { mapped, .. } = plan else { return None };
    let ([ops], 0) = (&mapped.program.channels[..], mapped.program.scratch_slots) else { return None };
    let is_wait = |op: &Op| matches!(op, Op::Wait { .. });
    let first = ops.iter().position(is_wait)?;
    let plain = core.whole && call.scale.is_none() && call.bias.is_null();
    (core.ranks == 2 && !shared && plain && ops[first..].iter().all(is_wait)).then_some(first)
}

/// Counts an end that is left.
#[cfg(all(test, not(loom)))]
pub(super) fn note_left() {
    tests::LEFT.fetch_add(1, oxccl_sys::sync::Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use oxccl_sys::sync::{AtomicU64, Ordering};

    use super::*;
    use crate::UniqueId;
    use crate::communicator::{CommConfig, Communicator};
    use crate::device::{self, Stream};
    use crate::group::tests::sum;

    /// Ends that were left, in all communicators of the process.
    pub(super) static LEFT: AtomicU64 = AtomicU64::new(0);

    /// Threads, whose memory all can read. Other tests of the process may keep them from their cores, and help with their streams, so
    /// they try for a while.
    #[test]
    fn ranks_with_a_core_each_leave_the_ends_of_calls_that_follow_one_another() {
        const BYTES: usize = 20_000;
        let id = UniqueId::create().unwrap();
        let shared = |rank: usize| {
            let config = CommConfig::default();
            let comm = Communicator::init_rank(2, id.clone(), rank as i32, device::current(), config, "test").unwrap();
            let stream = Stream::new().unwrap();
            let (send, mut recv) = (vec![1 + rank as u8; BYTES], vec![0; BYTES]);
            for _ in 0..200 {
                (0..40).for_each(|_| comm.submit(sum(&send, &mut recv, stream.clone())).unwrap());
                stream.synchronize().unwrap();
            }
            assert!(recv == vec![3; BYTES]);
            let shared = comm.core().unwrap().crowded;
            comm.destroy().unwrap();
            shared
        };
        let shared = std::thread::scope(|s| [0, 1].map(|r| s.spawn(move || shared(r))).map(|t| t.join().unwrap()));
        assert!(shared.contains(&true) || LEFT.load(Ordering::Relaxed) > 0, "no end was left");
    }

    #[test]
    fn ends_are_left_where_calls_of_that_kind_follow_one_another() {
        let mut ends = Ends::default();
        let mut there = false;
        let mut left = |waits: u64, calls: std::ops::Range<u64>, keep: bool| -> u32 {
            let one = |seq| {
                there = ends.is_left((1, waits), seq, there && keep);
                u32::from(there)
            };
            calls.map(one).sum()
        };
        assert_eq!(left(0, 1..17, true), 0);
        assert_eq!(left(0, 17..20, true), 3);
        // One of another kind was between.
        assert_eq!(left(0, 21..37, true), 0);
        assert_eq!(left(0, 37..38, true), 1);
        assert_eq!(left(1, 38..54, true), 0, "waited for");
        assert_eq!(left(1, 54..55, true), 1);
        // Something else ends each of them: one is left, now and then.
        assert_eq!(left(1, 55..55 + 10 * 17, false), 10);
    }
}
