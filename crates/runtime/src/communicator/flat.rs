//! Flat ranges: one window's memory of all ranks that share memory, at equal distances in the addresses of this process.
//!
//! The part of member `i` lies at `base + i * stride`; the stride is a multiple of 4 GiB, so that programs get from one
//! part to another by changing the high half of an address. The threads of a process share one range per window.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use oxccl_sys::Reservation;
use oxccl_types::{Error, Result};

use super::core::Core;
use crate::service;

/// Strides are multiples of this.
const STRIDE: u64 = 4 << 30;

/// Where one rank's part of a window lies, in words that its peers understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub segment: u32,
    pub offset: u64,
    pub bytes: u64,
}

/// The mapped parts of one window.
#[derive(Debug)]
pub(crate) struct Flat {
    range: Reservation,
    stride: usize,
}

type Slot = Arc<Mutex<Weak<Flat>>>;
type Slots = HashMap<(u64, usize, u64), Slot>;

/// The ranges of this process, by communicator, lowest rank that shares the memory, and window, so that ranks that are its threads share one.
static MAPPED: Mutex<Option<Slots>> = Mutex::new(None);

fn locked<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What the locks guard is valid between statements.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flat {
    /// The range of window `id`, in which the part of member `i` is `pieces[i]`.
    pub(super) fn of(core: &Core, id: u64, pieces: &[Piece]) -> Result<Arc<Flat>> {
        let slot = {
            let mut table = locked(&MAPPED);
            let table = table.get_or_insert_default();
            // A slot that somebody holds is being filled.
            table.retain(|_, s| Arc::strong_count(s) > 1 || locked(s).strong_count() > 0);
            table.entry((core.hash, core.members[0], id)).or_default().clone()
        };
        // Held while mapping: the threads of a process map once.
        let mut mapped = locked(&slot);
        if let Some(flat) = mapped.upgrade() {
            return Ok(flat);
        }
        let flat = Arc::new(Flat::map(core, pieces)?);
        *mapped = Arc::downgrade(&flat);
        Ok(flat)
    }

    fn map(core: &Core, pieces: &[Piece]) -> Result<Flat> {
        let longest = pieces.iter().map(|p| p.bytes).max().unwrap_or(0);
        let stride = core.config.win_stride.max(longest).max(1).checked_next_multiple_of(STRIDE);
        let stride = stride.and_then(|s| usize::try_from(s).ok());
        let refuse = |e: &dyn std::fmt::Display| {
            Error::system(format!(
                "rank {} cannot lay out a window of {} rank(s) with up to {longest} bytes each: {e}; the address space may be \
                 limited (ulimit -v) or used up by other windows",
                core.rank,
                pieces.len()
            ))
        };
        let bytes = stride.and_then(|s| s.checked_mul(pieces.len())).ok_or_else(|| refuse(&"too large"))?;
        let range = Reservation::new(bytes).map_err(|e| refuse(&e))?;
        let mut flat = Flat { range, stride: bytes / pieces.len() };
        for (member, piece) in pieces.iter().enumerate() {
            flat.map_piece(core, member, piece)?;
        }
        Ok(flat)
    }

    fn map_piece(&mut self, core: &Core, member: usize, piece: &Piece) -> Result<()> {
        let rank = core.members[member];
        let peer = &core.peers[rank];
        let who = format!("rank {rank} (host {}, process {})", peer.host, peer.pid);
        let limits = core.limits();
        let segment = u64::from(piece.segment);
        let fd = service::fetch(&peer.process, core.hash, &core.key, segment, &limits.as_limits(), || {
            core.has_departed(rank)
        })
        .map_err(|e| {
            Error::new(e.code, format!("{who} hands out no memory for its window: {}; look at its output", e.text))
        })?;
        let len = (piece.bytes as usize).next_multiple_of(4096);
        self.range
            .map(member * self.stride, &fd, piece.offset, len)
            .map_err(|e| Error::system(format!("cannot map {len} bytes of the window of {who}: {e}")))
    }

    /// The first byte of the part of `member`.
    pub(crate) fn part(&self, member: usize) -> *mut u8 {
        self.range.as_ptr().wrapping_add(member * self.stride)
    }

    /// Bytes from one part to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }
}
