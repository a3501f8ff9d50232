//! What only RCCL has: all-reduce with a bias, all-to-all with counts, old spellings, and calls of the removed MSCCL.

use crate::abi::*;
use crate::collectives::{Call, null_buffer};
use crate::entry::{Failure, Outcome, non_null, remember};
use oxccl_runtime::{VCounts, log};
use oxccl_types::Collective;

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn all_reduce_with_bias(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: Stream_t,
    acc: *const c_void,
) -> Outcome {
    if acc.is_null() {
        return remember(Err(Failure::argument("ncclAllReduceWithBias : acc cannot be nullptr")));
    }
    Call::new("AllReduce", Collective::AllReduce, sendbuff, recvbuff, count, datatype, comm, stream)
        .op(op)
        .bias(acc)
        .submit()
}

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn all_to_all_v(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    const NAME: &str = "AlltoAllv";
    let call = Call::new(NAME, Collective::AllToAllV, sendbuff, recvbuff, 0, datatype, comm, stream);
    call.submit_v([sendcounts, sdispls, recvcounts, rdispls], |call, communicator| {
        let ranks = communicator.ranks();
        let list = |name: &str, from: *const usize| -> Outcome<&[usize]> {
            non_null(NAME, name, from)?;
            // SAFETY: not null; the caller promises one number per rank, which stays as it is during the call.
            Ok(unsafe { std::slice::from_raw_parts(from, ranks) })
        };
        let counts = VCounts::copied(
            list("sendcounts", sendcounts)?,
            list("sdispls", sdispls)?,
            list("recvcounts", recvcounts)?,
            list("rdispls", rdispls)?,
        );
        let most = |counts: &[usize]| counts.iter().copied().max().unwrap_or(0);
        if call.send.is_null() && most(&counts.send_counts) > 0 {
            return Err(null_buffer(NAME, "sendbuff", most(&counts.send_counts)));
        }
        if call.recv.is_null() && most(&counts.recv_counts) > 0 {
            return Err(null_buffer(NAME, "recvbuff", most(&counts.recv_counts)));
        }
        Ok(Some(counts))
    })
}

pub unsafe fn old_all_to_all(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    log::warn("Please note that ncclAllToAll is deprecated, please use ncclAlltoAll instead");
    // SAFETY: the C caller's promise.
    unsafe { crate::collectives::all_to_all(sendbuff, recvbuff, count, datatype, comm, stream) }
}

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn old_all_to_all_v(
    sendbuff: *const c_void,
    sendcounts: *const usize,
    sdispls: *const usize,
    recvbuff: *mut c_void,
    recvcounts: *const usize,
    rdispls: *const usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    log::warn("Please note that ncclAllToAllv is deprecated, please use ncclAlltoAllv instead");
    // SAFETY: the C caller's promise.
    unsafe { all_to_all_v(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream) }
}

fn msccl_is_gone(name: &str) -> Outcome {
    log::warn(&format!("MSCCL support has been removed from RCCL; {name} has no effect."));
    Ok(())
}

pub unsafe fn msccl_load_algo(_path: *const c_char, _handle: *mut mscclAlgoHandle_t, _rank: c_int) -> Outcome {
    msccl_is_gone("mscclLoadAlgo")
}

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn msccl_run_algo(
    _send_buff: *const c_void,
    _send_counts: *const usize,
    _s_displs: *const usize,
    _recv_buff: *mut c_void,
    _recv_counts: *const usize,
    _r_displs: *const usize,
    _count: usize,
    _data_type: ncclDataType_t,
    _root: c_int,
    _peer: c_int,
    _op: ncclRedOp_t,
    _handle: mscclAlgoHandle_t,
    _comm: ncclComm_t,
    _stream: Stream_t,
) -> Outcome {
    msccl_is_gone("mscclRunAlgo")
}

pub unsafe fn msccl_unload_algo(_handle: mscclAlgoHandle_t) -> Outcome {
    msccl_is_gone("mscclUnloadAlgo")
}
