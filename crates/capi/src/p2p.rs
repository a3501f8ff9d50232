//! Chapter "point to point".

use crate::abi::*;
use crate::collectives::{Call, record_again};
use crate::entry::Outcome;
use oxccl_types::Collective;
use std::ptr::{null, null_mut};

#[inline(always)]
pub unsafe fn send(
    sendbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    if record_again(Collective::Send, sendbuff.cast_mut(), count, datatype, peer, comm, stream) {
        return Ok(());
    }
    Call::new("Send", Collective::Send, sendbuff, null_mut(), count, datatype, comm, stream)
        .root(peer)
        .submit_out_of_line()
}

#[inline(always)]
pub unsafe fn recv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    if record_again(Collective::Recv, recvbuff, count, datatype, peer, comm, stream) {
        return Ok(());
    }
    Call::new("Recv", Collective::Recv, null(), recvbuff, count, datatype, comm, stream).root(peer).submit_out_of_line()
}
