//! Chapter "elastic": communicators from communicators, revocation, giving memory back. Later work.

use crate::abi::*;
use crate::entry::{Outcome, clear, later, remember};

/// As in the original, nothing is nothing to revoke.
pub unsafe fn comm_revoke(comm: ncclComm_t, _revoke_flags: c_int) -> Outcome {
    if comm.is_null() { Ok(()) } else { Err(later!("ncclCommRevoke")) }
}

pub unsafe fn comm_split(
    _comm: ncclComm_t,
    _color: c_int,
    _key: c_int,
    newcomm: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    remember(Err(later!("ncclCommSplit")))
}

pub unsafe fn comm_shrink(
    _comm: ncclComm_t,
    _exclude_ranks_list: *mut c_int,
    _exclude_ranks_count: c_int,
    newcomm: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
    _shrink_flags: c_int,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    remember(Err(later!("ncclCommShrink")))
}

pub unsafe fn comm_get_unique_id(_comm: ncclComm_t, _unique_id: *mut ncclUniqueId) -> Outcome {
    Err(later!("ncclCommGetUniqueId"))
}

pub unsafe fn comm_grow(
    _comm: ncclComm_t,
    _n_ranks: c_int,
    _unique_id: *const ncclUniqueId,
    _rank: c_int,
    newcomm: *mut ncclComm_t,
    _config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    remember(Err(later!("ncclCommGrow")))
}

pub unsafe fn comm_suspend(_comm: ncclComm_t, _flags: c_int) -> Outcome {
    Err(later!("ncclCommSuspend"))
}

pub unsafe fn comm_resume(_comm: ncclComm_t) -> Outcome {
    Err(later!("ncclCommResume"))
}

pub unsafe fn comm_mem_stats(_comm: ncclComm_t, _stat: ncclCommMemStat_t, _value: *mut u64) -> Outcome {
    Err(later!("ncclCommMemStats"))
}
