//! Which messages had better go otherwise where ranks share cores: those that slots would push out of the caches are copied by the
//! kernel, and some of those that peers could read in place go by slots all the same. Decided where the call is known. Which way each
//! goes then is the connection's.

use super::links::{Links, crowd_from, crowd_message_from, is_local};
use super::p2p::{Exchange, Transfer};
use crate::communicator::core::Core;

/// Bytes of a message up to which slots carry it, however much is sent together with it: the copy costs no more than the kernel's call.
const SHORT: u64 = 64 << 10;

/// Bytes of a message from which on who sends it had rather wait until the peer has read it where it lies, and not copy it.
const COPIED_BELOW: u64 = 32 << 10;
/// Ranks that share a core, up to which that holds of shorter ones, too, if it receives in the same call; if it sends or receives
/// several here it holds whatever their number is.
const FEW_PER_CORE: f64 = 2.0;
/// Bytes of a message up to which a rank that shares its core and waits for each of its calls had rather copy it.
const COPIED_UP_TO: u64 = 32 << 10;

/// What a rank that shares its core gives in a call, and the bounds of the model.
#[derive(Clone, Copy)]
struct Given {
    /// Bytes that it sends to ranks that share memory with it.
    together: u64,
    /// In so many messages.
    sends: usize,
    /// Messages that it receives of such ranks.
    recvs: usize,
    /// It receives nothing of any rank.
    only_sends: bool,
    crowd_from: u64,
    message_from: u64,
}

impl Given {
    /// Whether the kernel had better copy a message of so many bytes of it.
    fn outgrows(&self, bytes: u64) -> bool {
        let much = bytes > SHORT && self.together >= self.crowd_from;
        // Of several each way it was found to be slower (docs/performance.md).
        let alone = self.sends == 1 || self.recvs == 0;
        much || alone && bytes >= self.message_from
    }

    /// Whether it had better copy a message of so many bytes of it to a slot, which peers could read in place, if others are on other
    /// hosts and so many ranks share a core: nothing begins there behind calls with several peers of which one here has still to
    /// read, and each reader costs a turn of the core.
    fn copies(&self, bytes: u64, per_core: f64) -> bool {
        let passes_on = self.sends == 1 && self.recvs <= 1 && per_core > FEW_PER_CORE;
        bytes < COPIED_BELOW && (self.only_sends || passes_on)
    }
}

/// Whether it moves bytes between ranks that share memory.
fn is_near(core: &Core, transfer: &Transfer) -> bool {
    transfer.bytes > 0 && is_local(core, transfer.peer)
}

fn bytes_of<'a>(transfers: impl Iterator<Item = &'a Transfer>) -> u64 {
    transfers.map(|t| t.bytes).fold(0, u64::saturating_add)
}

impl Exchange {
    /// Finds out which of the sends are marked as [outgrown](crate::transport::Header::outgrown), and which are
    /// [copied](crate::transport::Header::copied), of a call whose sends and receives are those from `send` and `recv` on.
    pub(super) fn judge_sends(&mut self, core: &Core, send: usize, recv: usize) {
        if !core.crowded {
            return;
        }
        let near = |t: &&Transfer| is_near(core, t);
        let sends = || self.sends[send..].iter().filter(near);
        let given = Given {
            together: bytes_of(sends()),
            sends: sends().count(),
            recvs: self.recvs[recv..].iter().filter(near).count(),
            only_sends: self.recvs[recv..].is_empty(),
            crowd_from: crowd_from(core),
            message_from: crowd_message_from(core),
        };
        let per_core = core.config.constants.model.per_core;
        let may_copy = !core.whole && core.config.p2p == "auto";
        for t in &mut self.sends[send..] {
            t.outgrown = given.outgrows(t.bytes);
            t.copied = may_copy && !t.outgrown && is_near(core, t) && given.copies(t.bytes, per_core);
        }
    }

    /// Where ranks share cores and all memory: [copies](crate::transport::Header::copied) to slots what this rank sends, if none of it is
    /// long, though peers could read it in place, if it waits for its calls: so it does not wait until peers have read. `stream`:
    /// see [`IdleStream::waits`](crate::device::IdleStream::waits). Asked once for a call that begins on an idle one.
    pub(super) fn copy_if_waited_for(&mut self, core: &Core, links: &mut Links, stream: (usize, u64)) {
        let together = bytes_of(self.sends.iter());
        if links.run.next_is_long(stream) || together > SHORT || !core.whole || core.config.p2p != "auto" {
            return;
        }
        let mut lent = |t: &Transfer| core.same_process(t.peer as usize) || links.exports(t.at, t.bytes as usize);
        // It would wait for one that is lent anyway.
        let copied = self.sends.iter().all(|t| t.bytes <= COPIED_UP_TO && !t.outgrown && lent(t));
        self.sends.iter_mut().for_each(|t| t.copied |= copied);
    }

    /// Tells of the buffers of which the messages of this collective are parts, and how many bytes these have together, before it begins.
    pub(super) fn begins(mut self: Box<Self>, core: &Core, links: &mut Links) -> Box<Exchange> {
        self.judge_sends(core, 0, 0);
        if !core.crowded {
            return self;
        }
        let below = core.config.constants.model.kernel_both_ways_below as u64;
        let by_kernel = |t: &Transfer| t.bytes > SHORT && t.bytes < below;
        for transfers in [&self.sends, &self.recvs] {
            let parts = || transfers.iter().filter(|t| is_near(core, t));
            let together = bytes_of(parts());
            let ends = parts().map(|t| t.at).min().zip(parts().map(|t| t.range().end).max());
            let Some((at, end)) = ends.filter(|_| parts().any(by_kernel)) else { continue };
            // Own parts lie between them; what is further apart is no buffer of this call.
            let bytes = end - at.addr();
            if bytes as u64 <= together.saturating_mul(2) {
                links.copies_parts(core, together, at, bytes);
            }
        }
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_outgrows_slots_by_its_length_if_it_goes_alone_or_by_all_that_is_given() {
        const CROWD: u64 = 1 << 20;
        const MESSAGE: u64 = 100 << 10;
        let outgrows = |bytes, together, sends, recvs| {
            Given { together, sends, recvs, only_sends: recvs == 0, crowd_from: CROWD, message_from: MESSAGE }
                .outgrows(bytes)
        };
        // Several each way: all of it counts.
        assert!(outgrows(SHORT + 1, CROWD, 3, 3) && !outgrows(SHORT, CROWD, 3, 3));
        assert!(!outgrows(CROWD / 2, CROWD - 1, 3, 2) && !outgrows(CROWD / 2, CROWD - 1, 2, 1));
        // One, whatever comes, or several while nothing comes.
        for (sends, recvs) in [(1, 0), (1, 1), (1, 5), (3, 0)] {
            assert!(outgrows(MESSAGE, MESSAGE, sends, recvs) && !outgrows(MESSAGE - 1, MESSAGE, sends, recvs));
        }
        // Shorter ones, too, if the model says so.
        let model =
            Given { together: 9000, sends: 1, recvs: 1, only_sends: false, crowd_from: CROWD, message_from: 9000 };
        assert!(model.outgrows(9000) && !model.outgrows(8999));
    }

    #[test]
    fn what_a_rank_only_gives_is_copied_and_what_it_passes_on_where_many_share_a_core() {
        let given = |sends, recvs, only_sends| Given {
            together: 0,
            sends,
            recvs,
            only_sends,
            crowd_from: u64::MAX,
            message_from: u64::MAX,
        };
        let copies = |given: Given, per_core| {
            assert!(!given.copies(COPIED_BELOW, per_core), "too long");
            given.copies(COPIED_BELOW - 1, per_core)
        };
        // To a root, and of one.
        assert!(copies(given(1, 0, true), 1.5) && copies(given(3, 0, true), 4.0));
        // To the next rank, while something comes of one here, or of another host.
        for recvs in [0, 1] {
            assert!(copies(given(1, recvs, false), 3.0) && !copies(given(1, recvs, false), 2.0));
        }
        // All to all.
        assert!(!copies(given(3, 3, false), 4.0) && !copies(given(1, 2, false), 4.0));
    }
}
