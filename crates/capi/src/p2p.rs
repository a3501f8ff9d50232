//! Chapter "point to point".

use crate::abi::*;
use crate::collectives::Call;
use crate::entry::Outcome;
use oxccl_types::Collective;
use std::ptr::{null, null_mut};

#[inline]
pub unsafe fn send(
    sendbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Send", Collective::Send, sendbuff, null_mut(), count, datatype, comm, stream).root(peer).submit()
}

#[inline]
pub unsafe fn recv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    Call::new("Recv", Collective::Recv, null(), recvbuff, count, datatype, comm, stream).root(peer).submit()
}
