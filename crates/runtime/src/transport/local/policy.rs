//! Which way the bytes of a message go between peers that share memory.

use oxccl_types::Result;

use super::Sizes;
use crate::transport::Header;

/// Where exported memory lies, as the owner of the segment says it and its peers understand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from its start.
    pub offset: u64,
}

/// What the runtime knows about memory that peers can map. Called on the data path: neither call may block, and both
/// should find what they found before without a lock.
pub trait Mapper: Send + Sync {
    /// Where `[ptr, ptr + len)` lies in a segment that every local peer can map, or `None` for any other memory.
    fn export(&self, ptr: *const u8, len: usize) -> Option<Exported>;

    /// The address here of `len` bytes at `at` in the memory of rank `peer`; mapped on first use, and mapped as long
    /// as the connection lives.
    ///
    /// # Errors
    /// When the segment is unknown, too short or cannot be mapped.
    fn import(&self, peer: u32, at: Exported, len: usize) -> Result<*const u8>;
}

/// A way for the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Copied to slots by the sender, read there by the receiver. Works with any memory; the source is free at once.
    Slots,
    /// Read by the receiver in the sender's memory: mapped through the [`Mapper`], or the same address space.
    Direct,
    /// Copied by the kernel from the sender's memory to the receiver's (`process_vm_readv`).
    Cma,
}

/// How a sender chooses the route of what it is offered. A whole message of up to `INLINE_BYTES` travels in its
/// record, whatever the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Go `Direct` from this many bytes on, if the memory can be reached so. Below, a copy through slots that are
    /// warm in the cache costs less than making the sender wait for the receiver.
    pub direct_from: Option<usize>,
    /// Go `Cma` from this many bytes on. Below, the system call and the pinning of pages cost more than the second
    /// copy. `None` unless the receiver proved that it can read the sender (`local::probe_cma`).
    pub cma_from: Option<usize>,
    /// But not from this many bytes on: beyond the caches two copies that ask for their lines ahead are faster than the
    /// kernel's one, which asks for none. Not on all processors: see `exec::links`.
    pub cma_below: usize,
    /// Go `Cma` all the same where a message is marked as [outgrown](Header::outgrown), but for those of `cma_both_ways_below` bytes
    /// and more. `false` unless as of `cma_from`.
    pub cma_outgrown: bool,
    /// Put messages of this many bytes and more on large pages, and let the kernel copy what lies there, whatever the two
    /// bounds before say. `None`: there is no kernel copy.
    pub cma_large_from: Option<usize>,
    /// But no message of so many bytes and more where the peer sends such as well, as far as that can be seen: where slots change hands.
    pub cma_both_ways_below: u64,
    /// Whether anything may be put on large pages.
    pub large_pages: bool,
    /// Whether both ends live in one process, so that every address is reachable as it is.
    pub same_process: bool,
    /// Take this route for everything that has bytes, whatever it costs; an error where it cannot be taken.
    pub forced: Option<Route>,
}

impl Policy {
    /// Messages from here on go `Direct` by default, in bytes.
    pub const DIRECT_FROM: usize = 4 << 10;
    /// The same where stores wait long for lines that another core has, see [`oxccl_kernels::waits_for_lines`], or where these travel
    /// and whole strings are copied fast.
    pub const DIRECT_FROM_WAITING: usize = 2 << 10;
    /// The same where ranks share cores: a sender whose message is in a slot need not give way to the receiver. What small slots
    /// hold: so many long ones are under way there that they leave the nearest cache.
    pub const DIRECT_FROM_CROWDED: usize = Sizes::SMALL + 1;
    /// Messages from here on go `Cma` by default, in bytes.
    pub const CMA_FROM: usize = 8 << 10;
    /// The same where ranks share cores, see [`Policy::DIRECT_FROM_CROWDED`].
    pub const CMA_FROM_CROWDED: usize = 24 << 10;
    /// Messages from here on do not go `Cma` by default, in bytes.
    pub const CMA_BELOW: usize = 8 << 20;

    /// Where slots are faster than the kernel otherwise, in bytes: of shorter messages too little lies on whole large pages.
    pub const LARGE_FROM: usize = 4 << 20;

    /// The usual policy; `cma`: whether the probe of the connection succeeded.
    pub const fn new(same_process: bool, cma: bool) -> Policy {
        Policy {
            direct_from: Some(Self::DIRECT_FROM),
            cma_from: if cma { Some(Self::CMA_FROM) } else { None },
            cma_below: Self::CMA_BELOW,
            cma_outgrown: false,
            cma_large_from: if cma { Some(0) } else { None },
            cma_both_ways_below: u64::MAX,
            large_pages: false,
            same_process,
            forced: None,
        }
    }

    /// Only `route`.
    pub const fn only(route: Route) -> Policy {
        Policy {
            direct_from: None,
            cma_from: None,
            cma_below: usize::MAX,
            cma_outgrown: false,
            cma_large_from: None,
            cma_both_ways_below: u64::MAX,
            large_pages: false,
            same_process: false,
            forced: Some(route),
        }
    }

    /// `Direct` whatever the length, but for what [is to be copied](Header::copied); else slots.
    pub const fn lending(same_process: bool) -> Policy {
        Policy { direct_from: Some(0), ..Policy::new(same_process, false) }
    }

    /// Whether `route` may be tried for `len` bytes of the message of `header`.
    pub(super) fn allows(&self, route: Route, len: usize, header: &Header) -> bool {
        match (self.forced, route) {
            (Some(forced), _) => forced == route,
            (None, Route::Direct | Route::Cma) if header.copied => false,
            (None, Route::Direct) => self.direct_from.is_some_and(|from| len >= from),
            (None, Route::Cma) => {
                let long = self.cma_from.is_some_and(|from| len >= from) && header.total < self.cma_below as u64;
                long || self.outgrows(header)
            }
            (None, Route::Slots) => true,
        }
    }

    /// Whether the kernel copies the message of `header` because it is marked so.
    pub(super) fn outgrows(&self, header: &Header) -> bool {
        self.cma_outgrown && header.outgrown && header.total < self.cma_both_ways_below
    }

    /// Name of the best route that this policy knows.
    pub(super) fn kind(&self) -> &'static str {
        match self.forced {
            Some(Route::Slots) => "shm",
            Some(Route::Direct) => "direct",
            Some(Route::Cma) => "cma",
            None if self.direct_from.is_some() => "direct",
            None if self.cma_from.is_some() => "cma",
            None => "shm",
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_copied_goes_by_slots_unless_another_way_is_forced() {
        let policy = Policy { cma_outgrown: true, ..Policy::new(false, true) };
        let goes = |policy: Policy, route, copied| {
            policy.allows(route, 1 << 20, &Header { total: 1 << 20, outgrown: true, copied, ..Header::default() })
        };
        for route in [Route::Direct, Route::Cma] {
            assert!(goes(policy, route, false) && !goes(policy, route, true));
            assert!(goes(Policy::only(route), route, true));
        }
        assert!(goes(policy, Route::Slots, true));
    }

    #[test]
    fn the_kernel_copies_what_is_marked_unless_it_is_too_long() {
        let policy =
            Policy { cma_from: None, cma_outgrown: true, cma_both_ways_below: 4 << 20, ..Policy::new(false, true) };
        let goes = |policy: Policy, total: u64, outgrown: bool| {
            policy.allows(Route::Cma, total as usize, &Header { total, outgrown, ..Header::default() })
        };
        assert!(goes(policy, 100, true) && goes(policy, (4 << 20) - 1, true));
        assert!(!goes(policy, 4 << 20, true), "too long for both ways");
        assert!(!goes(policy, 512 << 10, false), "not marked");
        assert!(!goes(Policy { cma_outgrown: false, ..policy }, 512 << 10, true), "the kernel cannot");
        assert!(!goes(Policy::only(Route::Slots), 512 << 10, true), "another way is forced");
    }
}
