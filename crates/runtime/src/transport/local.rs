//! Connections between peers that share memory: a ring of one-line records over memory that both have mapped.
//!
//! A message of up to 32 bytes travels in its record: one cache line from core to core. Longer ones are staged in the
//! slot of their record, or stay where they are and the record says where ([`Route`]). The [`Policy`] of the sender
//! chooses per message. The caller brings the memory ([`LocalArea`]), knows which memory is exportable ([`Mapper`]),
//! whether one process may read the other ([`probe_cma`]), and whether the peer is alive: a dead peer is silent here.

mod area;
mod cma;
mod one_way;
mod policy;
mod recv;
mod send;
mod trade;

pub use area::{AREA_ALIGN, INLINE_BYTES, LocalArea, Sizes};
pub use cma::probe_cma;
pub use policy::{Exported, Mapper, Policy, Route};
pub use recv::{LocalReceiver, LocalReceiverOptions};
pub use send::LocalSender;

/// Where the bytes of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// In the record.
    Inline = 1,
    /// In the slot of the record.
    Slot = 2,
    /// At an address of this process.
    Address = 3,
    /// In a segment of the sender.
    Exported = 4,
    /// At an address of the sender's process.
    Cma = 5,
}

/// Bits of the length in a record's meta; the kind is above them.
const LEN_BITS: u32 = 40;

/// The meta of a record: kind and length.
#[inline]
fn meta(kind: Kind, len: usize) -> u64 {
    (kind as u64) << LEN_BITS | len as u64
}

/// The reverse of [`meta`].
#[inline]
fn split_meta(meta: u64) -> (Option<Kind>, u64) {
    let kind = match meta >> LEN_BITS {
        1 => Some(Kind::Inline),
        2 => Some(Kind::Slot),
        3 => Some(Kind::Address),
        4 => Some(Kind::Exported),
        5 => Some(Kind::Cma),
        _ => None,
    };
    (kind, meta & ((1 << LEN_BITS) - 1))
}
