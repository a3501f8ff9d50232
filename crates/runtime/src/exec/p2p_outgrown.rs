//! Which messages the kernel had better copy where ranks share cores, since slots would push them out of the caches: decided where the
//! call is known, with the constants of the model. Which way each goes is the connection's.

use super::links::{Links, crowd_from, crowd_message_from, is_local};
use super::p2p::{Exchange, Transfer};
use crate::communicator::core::Core;

/// Bytes of a message up to which slots carry it, whatever is sent together with it: the copy costs no more than the kernel's call.
const SHORT: u64 = 64 << 10;

/// Whether the kernel may copy it for what is sent together with it.
fn is_long(transfer: &Transfer) -> bool {
    transfer.bytes > SHORT
}

impl Exchange {
    /// Finds out which of the sends are marked as [outgrown](crate::transport::Header::outgrown), of a call whose sends and receives are those from
    /// `send` and `recv` on.
    pub(super) fn judge_sends(&mut self, core: &Core, send: usize, recv: usize) {
        let (sends, recvs) = (&mut self.sends[send..], &self.recvs[recv..]);
        let alone = crowd_message_from(core);
        let least = alone.unwrap_or(SHORT).min(SHORT);
        if !core.crowded || sends.iter().all(|t| t.bytes < least) {
            return;
        }
        let near = |t: &&Transfer| is_local(core, t.peer);
        let together = sends.iter().filter(near).map(|t| t.bytes).fold(0, u64::saturating_add);
        let much = crowd_from(core).is_some_and(|from| together >= from);
        // Of several each way it was found to be slower (docs/performance.md).
        let alone = alone.filter(|_| sends.len() == 1 || recvs.is_empty());
        for t in sends {
            t.outgrown = much && is_long(t) || alone.is_some_and(|from| t.bytes >= from);
        }
    }

    /// Tells of the buffers of which the messages of this collective are parts, and how many bytes these have together, before it begins.
    pub(super) fn begins(mut self: Box<Self>, core: &Core, links: &mut Links) -> Box<Exchange> {
        self.judge_sends(core, 0, 0);
        if crowd_from(core).is_none() {
            return self;
        }
        let below = core.config.constants.model.kernel_both_ways_below as u64;
        let by_kernel = |t: &Transfer| is_long(t) && t.bytes < below;
        for transfers in [&self.sends, &self.recvs] {
            let parts = || transfers.iter().filter(|t| t.bytes > 0 && is_local(core, t.peer));
            let together = parts().map(|t| t.bytes).fold(0, u64::saturating_add);
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
