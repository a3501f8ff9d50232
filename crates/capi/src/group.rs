//! Chapter "groups".

use crate::abi::*;
use crate::entry::{Failure, Outcome, remember};
use crate::handle;
use oxccl_runtime::group::{self, Again};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

pub unsafe fn group_start() -> Outcome {
    group::start();
    Ok(())
}

pub unsafe fn group_end() -> Outcome {
    in_group("ncclGroupEnd")?;
    if let Some(again) = group::again_whole()
        && end_again(again)?
    {
        return Ok(());
    }
    Ok(group::end()?)
}

/// Ends a group that makes the messages of one before again; `false` where it must be ended like any other.
#[inline]
fn end_again(again: Again) -> Outcome<bool> {
    let names = again.names();
    let communicator = handle::enter(std::ptr::with_exposed_provenance_mut(names.handle));
    match communicator.filter(|c| Arc::as_ptr(c).addr() == names.communicator) {
        Some(communicator) => Ok(again.end(&communicator)?),
        None => {
            again.leave();
            Ok(false)
        }
    }
}

/// Without an argument the same as [`group_end`], and so for an inner group and in a group of nonblocking
/// communicators, as in the original. Otherwise nothing is started, and the time that the whole group would take is
/// written: the original writes that of the last collective. The field keeps its value if the group moves nothing.
pub unsafe fn group_simulate_end(sim_info: *mut ncclSimInfo_t) -> Outcome {
    in_group("ncclGroupSimulateEnd")?;
    if sim_info.is_null() || group::depth() > 1 || group::is_nonblocking() {
        return Ok(group::end()?);
    }
    // SAFETY: not null; the caller promises a struct of as many bytes as its first field says.
    let room = remember(unsafe { room_for_time(sim_info) });
    // The group ends in any case, and its first error is its result.
    if let (Ok(true), Some(time)) = (room, group::simulate_end()?) {
        // SAFETY: not null, and the struct has room for the field, as just checked.
        unsafe { (&raw mut (*sim_info).estimatedTime).write_unaligned(time as f32) };
    }
    Ok(())
}

/// Whether the struct has the field for the time. Structs of newer releases may be longer.
unsafe fn room_for_time(sim_info: *const ncclSimInfo_t) -> Outcome<bool> {
    // SAFETY: the struct begins with its size.
    let size = unsafe { (&raw const (*sim_info).size).read_unaligned() };
    let has = |offset: usize, bytes: usize| size >= offset + bytes;
    let magic = match has(offset_of!(ncclSimInfo_t, magic), size_of::<c_uint>()) {
        // SAFETY: within the size.
        true => unsafe { (&raw const (*sim_info).magic).read_unaligned() },
        false => 0,
    };
    if magic != NCCL_SIM_INFO_MAGIC {
        return Err(Failure::argument(format!(
            "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER (its size is {size}, its magic {magic:#x})"
        )));
    }
    Ok(has(offset_of!(ncclSimInfo_t, estimatedTime), size_of::<f32>()))
}

fn in_group(name: &str) -> Outcome {
    if group::depth() == 0 {
        return Err(Failure::usage(format!(
            "{name}: not in a group call. Each {name} needs an ncclGroupStart before it on the same thread"
        )));
    }
    Ok(())
}
