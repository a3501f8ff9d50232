//! Chapter "one-sided": put, signal and wait.
//!
//! Context and signal must be 0, as in 2.29.7, unless the communicator was made with several contexts (`numRmaCtx`).

use crate::abi::*;
use crate::collectives::{invalid_type, special};
use crate::entry::{Failure, Outcome, non_null, remember};
use crate::handle::{self, InUse};
use crate::window;
use oxccl_runtime::device::Stream;
use oxccl_runtime::{Communicator, OneSided, OneSidedCall, SignalId};
use oxccl_types::DataType;

/// The local buffer of a put lies in a window that was registered with this flag.
const NCCL_WIN_COLL_SYMMETRIC: u32 = 1;

fn ready(name: &str, comm: ncclComm_t) -> Outcome<InUse> {
    let communicator = handle::check(name, comm)?;
    communicator.ensure_ready()?;
    Ok(communicator)
}

fn check_peer(name: &str, peer: c_int, ranks: usize) -> Outcome<usize> {
    usize::try_from(peer).ok().filter(|p| *p < ranks).ok_or_else(|| {
        Failure::argument(format!(
            "{name} : invalid root {peer} (root should be in the 0..{ranks} range): the peer must be a rank of the \
             communicator, 0 to {}",
            ranks - 1
        ))
    })
}

fn check_signal(name: &str, communicator: &InUse, sig_idx: c_int, ctx: c_int) -> Outcome<SignalId> {
    let contexts = communicator.rma_contexts();
    // A program that asks for one context gets what the original offers.
    let signals = if contexts > 1 { Communicator::signals_per_context() } else { 1 };
    let number = |what: &str, value: c_int, end: usize| {
        usize::try_from(value).ok().filter(|v| *v < end).ok_or_else(|| {
            Failure::argument(format!(
                "{name} : invalid {what} {value}: it must be in 0..{}; more need a communicator with several contexts \
                 (numRmaCtx, NCCL_NUM_RMA_CTX)",
                end - 1
            ))
        })
    };
    Ok(SignalId { context: number("ctx", ctx, contexts)?, index: number("sigIdx", sig_idx, signals)? })
}

fn check_flags(name: &str, flags: c_uint) -> Outcome {
    if flags == 0 { Ok(()) } else { Err(Failure::argument(format!("{name} : invalid flags {flags}: they must be 0"))) }
}

fn submit(communicator: &InUse, call: OneSidedCall, stream: Stream_t) -> Outcome {
    let stream = Stream::with_raw_or(stream, || special(communicator, stream), Clone::clone)?;
    Ok(communicator.submit_one_sided(OneSided { call, stream })?)
}

#[allow(clippy::too_many_arguments)] // as many as the C function has
pub unsafe fn put_signal(
    localbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    peer_win: ncclWindow_t,
    peer_win_offset: usize,
    sig_idx: c_int,
    ctx: c_int,
    flags: c_uint,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    const NAME: &str = "PutSignal";
    remember((|| {
        let communicator = ready(NAME, comm)?;
        let peer = check_peer(NAME, peer, communicator.ranks())?;
        let dtype = DataType::from_c(datatype).ok_or_else(|| invalid_type(NAME, datatype))?;
        let signal = check_signal(NAME, &communicator, sig_idx, ctx)?;
        check_flags(NAME, flags)?;
        non_null(NAME, "peerWin", peer_win)?;
        non_null(NAME, "localbuff", localbuff)?;
        let bytes = count.checked_mul(dtype.size()).filter(|b| *b <= isize::MAX as usize).ok_or_else(|| {
            Failure::argument(format!("{NAME} : count {count} of {dtype} is more than memory can hold"))
        })?;
        let registered = window::own(NAME, &communicator, peer_win)?;
        let symmetric = communicator
            .windows()
            .iter()
            .any(|w| w.window.flags() & NCCL_WIN_COLL_SYMMETRIC != 0 && w.holds(localbuff.addr(), bytes));
        if !symmetric {
            return Err(Failure::argument(format!(
                "{NAME} : {bytes} bytes at localbuff {localbuff:p} do not lie in a window of this communicator that was \
                 registered with NCCL_WIN_COLL_SYMMETRIC"
            )));
        }
        let window = registered.window.clone();
        let from = localbuff.cast();
        let offset = peer_win_offset;
        submit(&communicator, OneSidedCall::Put { window, offset, from, bytes, peer, signal: Some(signal) }, stream)
    })())
}

pub unsafe fn signal(
    peer: c_int,
    sig_idx: c_int,
    ctx: c_int,
    flags: c_uint,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    const NAME: &str = "Signal";
    remember((|| {
        let communicator = ready(NAME, comm)?;
        let peer = check_peer(NAME, peer, communicator.ranks())?;
        let signal = check_signal(NAME, &communicator, sig_idx, ctx)?;
        check_flags(NAME, flags)?;
        submit(&communicator, OneSidedCall::Signal { peer, signal }, stream)
    })())
}

pub unsafe fn wait_signal(
    n_desc: c_int,
    signal_descs: *mut ncclWaitSignalDesc_t,
    comm: ncclComm_t,
    stream: Stream_t,
) -> Outcome {
    const NAME: &str = "WaitSignal";
    remember((|| {
        let communicator = ready(NAME, comm)?;
        non_null(NAME, "signalDescs", signal_descs)?;
        let Some(n) = usize::try_from(n_desc).ok().filter(|n| *n > 0) else {
            return Err(Failure::argument(format!("{NAME} : invalid nDesc {n_desc}: it must be at least 1")));
        };
        let one = |i: usize| {
            // SAFETY: not null; the caller promises `nDesc` descriptors, which may be unaligned.
            let d = unsafe { signal_descs.add(i).read_unaligned() };
            let peer = check_peer(NAME, d.peer, communicator.ranks())?;
            let signal = check_signal(NAME, &communicator, d.sigIdx, d.ctx)?;
            let count = u64::try_from(d.opCnt).ok().filter(|c| *c > 0).ok_or_else(|| {
                Failure::argument(format!(
                    "{NAME} : invalid opCnt {} in descriptor {i}: it must be at least 1",
                    d.opCnt
                ))
            })?;
            Ok((peer, signal, count))
        };
        let list = (0..n).map(one).collect::<Outcome<Vec<_>>>()?;
        submit(&communicator, OneSidedCall::Wait(list), stream)
    })())
}
