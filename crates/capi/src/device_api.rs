//! The host functions of `nccl_device.h`. Later work, but for one formula.

use crate::abi::*;
use crate::entry::{Outcome, clear, later};
use oxccl_runtime::log;

/// Functions that return a result code and do nothing else yet.
macro_rules! later_functions {
    ($($body:ident $name:literal ($($arg:ident: $type:ty),*);)*) => {$(
        pub unsafe fn $body($($arg: $type),*) -> Outcome {
            Err(later!($name))
        }
    )*};
}

later_functions! {
    comm_query_properties "ncclCommQueryProperties" (_comm: ncclComm_t, _props: *mut c_void);
    dev_comm_create "ncclDevCommCreate" (_comm: ncclComm_t, _reqs: *const c_void, _out: *mut c_void);
    dev_comm_destroy "ncclDevCommDestroy" (_comm: ncclComm_t, _dev_comm: *const c_void);
    lsa_barrier_create_requirement "ncclLsaBarrierCreateRequirement"
        (_team: ncclTeam_t, _n_barriers: c_int, _out_handle: *mut c_void, _out_req: *mut c_void);
    gin_barrier_create_requirement "ncclGinBarrierCreateRequirement"
        (_comm: ncclComm_t, _team: ncclTeam_t, _n_barriers: c_int, _out_handle: *mut c_void, _out_req: *mut c_void);
    gin_outbox_create_requirement "ncclGinOutboxCreateRequirement" ();
    gin_inbox_a2a_create_requirement "ncclGinInboxA2ACreateRequirement" ();
    ll_a2a_create_requirement "ncclLLA2ACreateRequirement"
        (_n_blocks: c_int, _n_slots: c_int, _out_handle: *mut c_void, _out_req: *mut c_void);
}

/// Functions that return an address in a window: the address is null.
macro_rules! later_pointers {
    ($($body:ident $name:literal ($($arg:ident: $type:ty),*);)*) => {$(
        pub unsafe fn $body(_window: ncclWindow_t, _offset: usize, $($arg: $type,)* out_ptr: *mut *mut c_void) -> Outcome {
            // SAFETY: the C caller's promise.
            unsafe { clear(out_ptr) };
            Err(later!($name))
        }
    )*};
}

later_pointers! {
    get_lsa_multimem_device_pointer "ncclGetLsaMultimemDevicePointer" ();
    get_multimem_device_pointer "ncclGetMultimemDevicePointer" (_multimem: ncclMultimemHandle);
    get_lsa_device_pointer "ncclGetLsaDevicePointer" (_lsa_rank: c_int);
    get_peer_device_pointer "ncclGetPeerDevicePointer" (_peer: c_int);
}

/// Functions that cannot return a result code: they say that they are later work and return `$value`.
macro_rules! later_values {
    ($($body:ident $name:literal ($($arg:ident: $type:ty),*) -> $ret:ty = $value:expr;)*) => {$(
        pub unsafe fn $body($($arg: $type),*) -> $ret {
            later!($name).log();
            $value
        }
    )*};
}

later_values! {
    team_world "ncclTeamWorld" (_comm: ncclComm_t) -> ncclTeam_t = ncclTeam_t::default();
    team_lsa "ncclTeamLsa" (_comm: ncclComm_t) -> ncclTeam_t = ncclTeam_t::default();
    team_rail "ncclTeamRail" (_comm: ncclComm_t) -> ncclTeam_t = ncclTeam_t::default();
    team_rank_to_world "ncclTeamRankToWorld" (_comm: ncclComm_t, _team: ncclTeam_t, _rank: c_int) -> c_int = -1;
    team_rank_to_lsa "ncclTeamRankToLsa" (_comm: ncclComm_t, _team: ncclTeam_t, _rank: c_int) -> c_int = -1;
}

/// Lines of 16 bytes that an all-to-all of `max_elts` elements of `max_elt_size` bytes needs; 8 data bytes per line.
pub unsafe fn ll_a2a_calc_slots(max_elts: c_int, max_elt_size: c_int) -> c_int {
    if max_elts < 0 || max_elt_size < 0 {
        log::warn(&format!("ncclLLA2ACalcSlots : negative argument ({max_elts} elements of {max_elt_size} bytes)"));
        return 0;
    }
    max_elts.saturating_mul(max_elt_size / 8 + c_int::from(max_elt_size % 8 != 0))
}
