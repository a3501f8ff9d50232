//! Chapter "groups".

use crate::abi::*;
use crate::entry::{Failure, Outcome, later};
use oxccl_runtime::group;

pub unsafe fn group_start() -> Outcome {
    group::start();
    Ok(())
}

pub unsafe fn group_end() -> Outcome {
    in_group("ncclGroupEnd")?;
    Ok(group::end()?)
}

/// Without an argument the same as [`group_end`]; the simulation itself is later work. The group ends in any case, and
/// its work is discarded, so that the caller's thread is not left inside.
pub unsafe fn group_simulate_end(sim_info: *mut ncclSimInfo_t) -> Outcome {
    in_group("ncclGroupSimulateEnd")?;
    if sim_info.is_null() {
        return Ok(group::end()?);
    }
    // SAFETY: not null; the caller promises a struct with at least size and magic.
    let magic = unsafe { (&raw const (*sim_info).magic).read_unaligned() };
    let failure = if magic == NCCL_SIM_INFO_MAGIC {
        later!("ncclGroupSimulateEnd")
    } else {
        Failure::argument(format!(
            "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER (its magic is {magic:#x})"
        ))
    };
    let _ = crate::entry::remember::<()>(Err(failure.clone()));
    // The group's own result is the failure that was just given to it.
    let _ = group::end();
    Err(failure)
}

fn in_group(name: &str) -> Outcome {
    if group::depth() == 0 {
        return Err(Failure::usage(format!(
            "{name}: not in a group call. Each {name} needs an ncclGroupStart before it on the same thread"
        )));
    }
    Ok(())
}
