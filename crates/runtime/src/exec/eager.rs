//! The eager protocol: small collectives whose payload travels in the line, or the slot beside it, that announces the
//! call. One line per rank and call, no second flag, no barrier; lines and slots are used again some calls later.
//!
//! It is the fused form of the `one_shot` schedules, which remain its oracle.

use oxccl_kernels as kernels;
use oxccl_types::{Collective, Result};

use super::call::Call;
use super::entry::{Seen, publish};
use crate::communicator::core::Core;
use crate::communicator::hub::INLINE_BYTES;

/// Bytes that the rank which publishes most puts into its slot: what the eager limit is compared with.
pub(super) fn published(call: &Call, ranks: usize) -> u64 {
    call.block_bytes() * call.collective.input_blocks(ranks) as u64
}

/// Where `member`'s payload of call `seq` lies.
fn payload(core: &Core, call: &Call, member: usize, seq: u64) -> *mut u8 {
    if published(call, core.ranks) as usize <= INLINE_BYTES {
        core.hub.entry(member, seq).body
    } else {
        core.hub.payload(member, seq)
    }
}

/// Announces the call and publishes my payload. `may_publish(seq)` holds.
pub(super) fn start(core: &Core, call: &Call, seq: u64) {
    let bytes = call.input_bytes(core.rank as u32, core.ranks) as usize;
    // The root of a reduction needs its input only itself, a scaled one excepted: it is scaled into the slot.
    let gives = bytes > 0
        && match call.collective {
            Collective::Reduce => core.rank as u32 != call.root || call.scale.is_some(),
            Collective::Gather => core.rank as u32 != call.root,
            _ => true,
        };
    if !gives {
        publish(core, call, seq, |_| {});
        return;
    }
    let slot = payload(core, call, core.me, seq);
    let fill = |at: *mut u8| match call.scale {
        // SAFETY: the slot has room for `published` bytes and no peer reads it any more; the input is the caller's.
        Some(factor) => unsafe {
            let elements = bytes / call.dtype.size();
            kernels::scale(at, call.send, elements, factor.read(call.dtype));
        },
        // SAFETY: as above.
        None => unsafe { kernels::copy(&[at], call.send, bytes) },
    };
    publish(core, call, seq, |_| fill(slot));
}

/// Whether the result does not need every peer: its arrival is then checked later.
pub(super) fn waits_for_all(core: &Core, call: &Call) -> bool {
    match call.collective {
        Collective::Broadcast | Collective::Scatter => core.ranks == 2 && core.rank as u32 != call.root,
        Collective::Reduce | Collective::Gather => core.rank as u32 == call.root,
        _ => true,
    }
}

/// The only rank whose payload a call of this rank needs, where there is one.
pub(super) fn only_source(core: &Core, call: &Call) -> Option<usize> {
    let rooted = matches!(call.collective, Collective::Broadcast | Collective::Scatter);
    (rooted && core.rank as u32 != call.root).then_some(call.root as usize)
}

/// Takes the peers' payloads; `false` when one of those needed is not there yet.
pub(super) fn finish(core: &Core, call: &Call, seq: u64, seen: &mut Seen, srcs: &mut Vec<*const u8>) -> Result<bool> {
    let root = core.rank as u32 == call.root;
    let me = core.me;
    match call.collective {
        Collective::Broadcast | Collective::Scatter if !root => {
            let from = core.member_of[call.root as usize];
            if !seen.arrived(core, call, from, seq)? {
                return Ok(false);
            }
        }
        Collective::Broadcast | Collective::Scatter => {}
        Collective::Reduce | Collective::Gather if !root => return Ok(true),
        _ => {
            for member in 0..core.members.len() {
                if member != me && !seen.arrived(core, call, member, seq)? {
                    return Ok(false);
                }
            }
        }
    }
    // My own contribution: the scaled copy in my slot if there is one, else the input itself.
    let own = if call.scale.is_some() { payload(core, call, me, seq).cast_const() } else { call.send };
    let from = |member: usize| if member == me { own } else { payload(core, call, member, seq).cast_const() };
    // SAFETY: the payloads needed have arrived (ordered by the acquire loads above) and stay until this rank starts a
    // later call; the output is the caller's, of the size the collective says, and only this rank writes it.
    unsafe { combine(core, call, from, srcs) };
    Ok(true)
}

/// Makes the output of a rank that has one of the members' inputs, of which `from` says where they lie.
///
/// # Safety
/// The inputs that the collective needs are complete and stay until it returns; the output is the caller's.
pub(super) unsafe fn combine(core: &Core, call: &Call, from: impl Fn(usize) -> *const u8, srcs: &mut Vec<*const u8>) {
    let block = call.block_bytes() as usize;
    let n = core.members.len();
    let count = call.count as usize;
    // SAFETY: see the caller; offsets stay inside `published` bytes of a slot and the blocks of the output.
    unsafe {
        match call.collective {
            Collective::AllReduce | Collective::Reduce => {
                srcs.clear();
                srcs.extend((0..n).map(&from));
                kernels::reduce(call.dtype, call.op, &[call.recv], srcs, count, call.post);
            }
            Collective::ReduceScatter => {
                srcs.clear();
                srcs.extend((0..n).map(|m| from(m).add(core.rank * block)));
                kernels::reduce(call.dtype, call.op, &[call.recv], srcs, count, call.post);
            }
            Collective::Broadcast => copy(call.recv, from(core.member_of[call.root as usize]), block),
            Collective::Scatter => {
                copy(call.recv, from(core.member_of[call.root as usize]).add(core.rank * block), block);
            }
            Collective::AllGather | Collective::Gather => {
                for member in 0..n {
                    copy(call.recv.add(core.members[member] * block), from(member), block);
                }
            }
            _ => {
                for member in 0..n {
                    let at = call.recv.add(core.members[member] * block);
                    copy(at, from(member).add(core.rank * block), block);
                }
            }
        }
    }
}

/// # Safety
/// Both ranges are valid for `bytes`; they are equal or do not overlap.
unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    if dst.cast_const() != src {
        // SAFETY: the caller's promise.
        unsafe { kernels::copy(&[dst], src, bytes) };
    }
}
