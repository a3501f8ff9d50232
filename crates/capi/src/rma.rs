//! Chapter "one-sided": put, signal and wait. Later work.

use crate::abi::*;
use crate::entry::{Outcome, later, remember};

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn put_signal(
    _localbuff: *const c_void,
    _count: usize,
    _datatype: ncclDataType_t,
    _peer: c_int,
    _peer_win: ncclWindow_t,
    _peer_win_offset: usize,
    _sig_idx: c_int,
    _ctx: c_int,
    _flags: c_uint,
    _comm: ncclComm_t,
    _stream: Stream_t,
) -> Outcome {
    remember(Err(later!("ncclPutSignal")))
}

pub unsafe fn signal(
    _peer: c_int,
    _sig_idx: c_int,
    _ctx: c_int,
    _flags: c_uint,
    _comm: ncclComm_t,
    _stream: Stream_t,
) -> Outcome {
    remember(Err(later!("ncclSignal")))
}

pub unsafe fn wait_signal(
    _n_desc: c_int,
    _signal_descs: *mut ncclWaitSignalDesc_t,
    _comm: ncclComm_t,
    _stream: Stream_t,
) -> Outcome {
    remember(Err(later!("ncclWaitSignal")))
}
