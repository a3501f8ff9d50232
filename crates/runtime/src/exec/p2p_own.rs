//! What a rank sends to itself in an exchange: copied piece by piece while its messages with others are under way, or at once where
//! nothing in front of it touches that memory, see [`trail`](super::trail).

use std::ops::Range;

use oxccl_kernels as kernels;
use oxccl_types::{Error, Result};

use super::p2p::{Exchange, QUICK_LOCAL};
use crate::communicator::core::Core;
use crate::request::Request;

/// Bytes that it copies from the rank's own buffers at most.
const COPY: u64 = 256 << 10;

impl Exchange {
    /// Puts the messages of this rank to itself to it, which are matched in order.
    ///
    /// `InvalidUsage` when one has no partner, or one of another length.
    pub(super) fn copy_own<S>(&mut self, core: &Core, sends: &[&Request<S>], recvs: &[&Request<S>]) -> Result<()> {
        if sends.len() != recvs.len() {
            return Err(Error::usage(format!(
                "rank {} sends {} message(s) to itself and receives {} from itself in one group; each needs its partner in \
                 the same group",
                core.rank,
                sends.len(),
                recvs.len()
            )));
        }
        for (s, r) in sends.iter().zip(recvs) {
            if (s.count, s.dtype) != (r.count, r.dtype) {
                return Err(Error::usage(format!(
                    "rank {} sends {} elements of {} to itself but receives {} of {}",
                    core.rank, s.count, s.dtype, r.count, r.dtype
                )));
            }
            let bytes = (s.count * s.dtype.size()) as u64;
            self.copies.push((s.send, r.recv, bytes, bytes));
        }
        Ok(())
    }

    /// Whether whoever makes the call copies what this rank has still to copy within its own memory: it is short, and all ranks share
    /// memory.
    pub(super) fn may_finish_own(&self, core: &Core) -> bool {
        core.whole && self.own_bytes() <= QUICK_LOCAL
    }

    /// Bytes that this rank has still to copy within its own memory.
    pub(super) fn own_bytes(&self) -> u64 {
        self.copies.iter().map(|(_, _, bytes, _)| *bytes).fold(0, u64::saturating_add)
    }

    /// Where this rank has still to copy within its own memory: from, to.
    pub(super) fn own(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + '_ {
        let of = |at: usize, bytes: u64| at..at + bytes as usize;
        self.copies.iter().map(move |(from, to, bytes, _)| (of(from.addr(), *bytes), of(to.addr(), *bytes)))
    }

    /// Copies all that this rank sends to itself.
    pub(super) fn finish_own(&mut self) {
        while self.step_copies() {}
    }

    /// Copies some of what this rank sends to itself; whether any was left.
    pub(super) fn step_copies(&mut self) -> bool {
        let Some((src, dst, bytes, whole)) = self.copies.last_mut() else { return false };
        let (n, whole) = ((*bytes).min(COPY), *whole as usize);
        let (from, to) = (*src, *dst);
        (*src, *dst, *bytes) = (from.wrapping_add(n as usize), to.wrapping_add(n as usize), *bytes - n);
        if from == to.cast_const() || *bytes == 0 {
            self.copies.pop();
        }
        if from != to.cast_const() {
            // SAFETY: a send and a receive of the same rank and length, in the caller's buffers.
            unsafe { kernels::copy_part(&[to], from, n as usize, whole) };
        }
        true
    }
}
