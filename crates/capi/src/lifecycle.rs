//! Chapter "communicators": version, unique ids, creation, queries, end.

use crate::abi::*;
use crate::config;
use crate::entry::{Failure, Outcome, clear, non_null, remember, write_out};
use crate::handle::{self, InUse, check_known};
use oxccl_runtime::{CommConfig, Communicator, UniqueId, device};
use oxccl_types::ResultCode;

pub unsafe fn get_version(version: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { write_out("GetVersion", "version", version, NCCL_VERSION_CODE) }
}

pub unsafe fn get_unique_id(unique_id: *mut ncclUniqueId) -> Outcome {
    non_null("GetUniqueId", "out", unique_id)?;
    let id = ncclUniqueId { internal: UniqueId::create()?.to_bytes() };
    // SAFETY: the C caller's promise.
    unsafe { write_out("GetUniqueId", "out", unique_id, id) }
}

pub unsafe fn comm_init_rank(comm: *mut ncclComm_t, nranks: c_int, comm_id: ncclUniqueId, rank: c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { init(comm, nranks, rank, &[comm_id], std::ptr::null(), "ncclCommInitRank") }
}

pub unsafe fn comm_init_rank_config(
    comm: *mut ncclComm_t,
    nranks: c_int,
    comm_id: ncclUniqueId,
    rank: c_int,
    config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { init(comm, nranks, rank, &[comm_id], config, "ncclCommInitRankConfig") }
}

pub unsafe fn comm_init_rank_scalable(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    myrank: c_int,
    n_id: c_int,
    comm_ids: *mut ncclUniqueId,
    config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    if n_id <= 0 || n_id > nranks {
        return remember(Err(Failure::argument(format!(
            "improper usage of ncclCommInitRank: nId = {n_id}, nranks={nranks}. nId must be in 1..{nranks}"
        ))));
    }
    remember(non_null("CommInitRankScalable", "commIds", comm_ids))?;
    // SAFETY: the caller promises `n_id` ids; they are bytes, so any address will do.
    let ids = unsafe { std::slice::from_raw_parts(comm_ids, n_id as usize) };
    // SAFETY: the C caller's promise.
    unsafe { init(newcomm, nranks, myrank, ids, config, "ncclCommInitRankScalable") }
}

/// Checks and creates; on failure `*newcomm` is null.
pub(crate) unsafe fn init(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    rank: c_int,
    ids: &[ncclUniqueId],
    config: *const ncclConfig_t,
    api: &'static str,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    // SAFETY: the C caller's promise.
    let made = unsafe { checked_init(newcomm, nranks, rank, ids, config, api) };
    let communicator = remember(made)?;
    // Read before the handle is published: nobody else can end the communicator yet.
    let state = communicator.async_error();
    let comm = handle::create(communicator);
    // SAFETY: checked not to be null by `checked_init`; valid by the C caller's promise.
    unsafe { newcomm.write_unaligned(comm) };
    match state {
        // A non-blocking communicator outside a group says so; inside a group the group's end does.
        Err(error) if error.code == ResultCode::InProgress && oxccl_runtime::group::depth() == 0 => Err(error.into()),
        _ => Ok(()),
    }
}

unsafe fn checked_init(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    rank: c_int,
    ids: &[ncclUniqueId],
    config: *const ncclConfig_t,
    api: &'static str,
) -> Outcome<std::sync::Arc<Communicator>> {
    non_null("CommInitRank", "newcomm", newcomm)?;
    if nranks < 1 || rank < 0 || rank >= nranks {
        return Err(Failure::argument(format!(
            "Invalid rank requested : {rank}/{nranks}. {api} needs nranks >= 1 and rank in 0..nranks-1"
        )));
    }
    // SAFETY: the C caller's promise: null or a struct of at least the size it states.
    let config = if config.is_null() { CommConfig::default() } else { unsafe { config::parse(config)? } };
    let ids = ids.iter().map(|id| UniqueId::from_bytes(id.internal)).collect::<Result<Vec<_>, _>>()?;
    Ok(Communicator::init_scalable(nranks, &ids, rank, device::current(), config, api)?)
}

pub unsafe fn comm_init_all(comms: *mut ncclComm_t, ndev: c_int, devlist: *const c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    let devices = remember(unsafe { device_list(comms, ndev, devlist) })?;
    for i in 0..devices.len() {
        // SAFETY: the caller promises `ndev` elements.
        unsafe { comms.add(i).write_unaligned(std::ptr::null_mut()) };
    }
    if devices.is_empty() {
        return Ok(());
    }
    let made = remember(Communicator::init_all(&devices).map_err(Failure::from))?;
    let mut state = Ok(());
    for (i, communicator) in made.into_iter().enumerate().take(devices.len()) {
        // SAFETY: the caller promises `ndev` elements.
        unsafe { comms.add(i).write_unaligned(handle::create(communicator.clone())) };
        state = state.and(progress(&communicator));
    }
    state
}

/// The devices of the ranks, checked: in range and all different.
unsafe fn device_list(comms: *mut ncclComm_t, ndev: c_int, devlist: *const c_int) -> Outcome<Vec<usize>> {
    non_null("CommInitAll", "comms", comms)?;
    let total = device::count();
    let Ok(wanted) = usize::try_from(ndev) else {
        return Err(Failure::argument(format!("Invalid device count requested : {ndev}. It must not be negative")));
    };
    if devlist.is_null() && wanted > total {
        return Err(Failure::argument(format!("Invalid device {total} (totalnDev={total})")));
    }
    let mut devices = Vec::with_capacity(wanted.min(total));
    for i in 0..wanted {
        // SAFETY: the caller promises `ndev` elements when the list is not null.
        let device = if devlist.is_null() { i as c_int } else { unsafe { devlist.add(i).read_unaligned() } };
        match usize::try_from(device) {
            Ok(d) if d < total && !devices.contains(&d) => devices.push(d),
            Ok(d) if d < total => {
                return Err(Failure::usage(format!(
                    "CommInitAll : device {d} is twice in devlist (the second time at index {i}); every rank needs a \
                     device of its own"
                )));
            }
            _ => return Err(Failure::argument(format!("Invalid device {device} (totalnDev={total})"))),
        }
    }
    Ok(devices)
}

pub unsafe fn comm_finalize(comm: ncclComm_t) -> Outcome {
    if comm.is_null() {
        return Ok(());
    }
    remember(check_known("CommFinalize", comm).and_then(|c| {
        c.finalize()?;
        progress(&c)
    }))
}

pub unsafe fn comm_destroy(comm: ncclComm_t) -> Outcome {
    if comm.is_null() {
        return Ok(());
    }
    // A communicator that is not ready, or has failed, stays as it is, so that it can be aborted.
    let outcome = check_known("CommDestroy", comm).and_then(|c| Ok(c.ensure_ready()?)).and_then(|()| {
        // The handle was not ended before: an error says that an abort by another thread was faster inside.
        handle::retire("CommDestroy", comm, |c| c.destroy().or(Ok(())))
    });
    remember(outcome)
}

pub unsafe fn comm_abort(comm: ncclComm_t) -> Outcome {
    if comm.is_null() {
        return Ok(());
    }
    handle::abort("CommAbort", comm, |c| Ok(c.abort()?))
}

/// What a nonblocking communicator answers after a management call outside of groups: its state.
pub(crate) fn progress(communicator: &Communicator) -> Outcome {
    if communicator.is_blocking() || oxccl_runtime::group::depth() > 0 {
        return Ok(());
    }
    Ok(communicator.async_error()?)
}

/// The common part of the three queries.
unsafe fn query(op: &str, name: &str, comm: ncclComm_t, out: *mut c_int, get: impl Fn(&InUse) -> usize) -> Outcome {
    let communicator = check_known(op, comm)?;
    non_null(op, name, out)?;
    communicator.ensure_ready()?;
    // SAFETY: the C caller's promise. Ranks and devices were made from a C int, so they fit one.
    unsafe { write_out(op, name, out, get(&communicator) as c_int) }
}

pub unsafe fn comm_count(comm: ncclComm_t, count: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { query("CommCount", "count", comm, count, |c| c.ranks()) }
}

pub unsafe fn comm_cu_device(comm: ncclComm_t, device: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { query("CommCuDevice", "device", comm, device, |c| c.device()) }
}

pub unsafe fn comm_user_rank(comm: ncclComm_t, rank: *mut c_int) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { query("CommUserRank", "rank", comm, rank, |c| c.rank()) }
}
