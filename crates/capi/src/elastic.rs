//! Chapter "elastic": communicators from communicators, revocation, giving memory back.

use crate::abi::*;
use crate::config;
use crate::entry::{Failure, Outcome, clear, non_null, remember, write_out};
use crate::handle::{self, check_known};
use crate::lifecycle;
use oxccl_runtime::{CommConfig, Communicator, Done, MemStat, UniqueId};

/// The place where C waits for a new communicator, on its way to the thread that makes it.
struct Place(*mut ncclComm_t);

// SAFETY: the caller promises that the place stays valid until the parent is no longer in progress, and reads it then.
unsafe impl Send for Place {}

impl Place {
    fn put(self, child: Option<std::sync::Arc<Communicator>>) {
        if let Some(child) = child {
            // SAFETY: checked not to be null by the callers of `done`; valid by the C caller's promise.
            unsafe { self.0.write_unaligned(handle::create(child)) };
        }
    }
}

/// Writes the new communicator where C wants it.
fn done(newcomm: *mut ncclComm_t) -> Done {
    let place = Place(newcomm);
    Box::new(move |child| place.put(child))
}

/// Null stands for the parent's config.
unsafe fn own_config(config: *const ncclConfig_t) -> Outcome<Option<CommConfig>> {
    if config.is_null() {
        return Ok(None);
    }
    // SAFETY: the C caller's promise.
    unsafe { config::parse(config) }.map(Some)
}

/// As in the original, nothing is nothing to revoke.
pub unsafe fn comm_revoke(comm: ncclComm_t, revoke_flags: c_int) -> Outcome {
    if comm.is_null() {
        return Ok(());
    }
    remember(revoke(comm, revoke_flags))
}

fn revoke(comm: ncclComm_t, flags: c_int) -> Outcome {
    let communicator = check_known("CommRevoke", comm)?;
    if flags != NCCL_REVOKE_DEFAULT {
        return Err(Failure::argument(format!(
            "CommRevoke : invalid flags {flags}. They must be NCCL_REVOKE_DEFAULT ({NCCL_REVOKE_DEFAULT})"
        )));
    }
    communicator.revoke()?;
    lifecycle::progress(&communicator)
}

pub unsafe fn comm_split(
    comm: ncclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    remember(unsafe { split(comm, color, key, newcomm, config) })
}

unsafe fn split(
    comm: ncclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut ncclComm_t,
    config: *const ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    let communicator = check_known("CommSplit", comm)?;
    non_null("CommSplit", "newcomm", newcomm)?;
    // SAFETY: the C caller's promise.
    let config = unsafe { own_config(config) }?;
    communicator.split((color != NCCL_SPLIT_NOCOLOR).then_some(color), key, config, done(newcomm))?;
    lifecycle::progress(&communicator)
}

pub unsafe fn comm_shrink(
    comm: ncclComm_t,
    exclude_ranks_list: *mut c_int,
    exclude_ranks_count: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
    shrink_flags: c_int,
) -> Outcome {
    // SAFETY: the C caller's promise.
    remember(unsafe { shrink(comm, exclude_ranks_list, exclude_ranks_count, newcomm, config, shrink_flags) })
}

unsafe fn shrink(
    comm: ncclComm_t,
    list: *mut c_int,
    count: c_int,
    newcomm: *mut ncclComm_t,
    config: *const ncclConfig_t,
    flags: c_int,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    let communicator = check_known("CommShrink", comm)?;
    non_null("CommShrink", "newcomm", newcomm)?;
    non_null("CommShrink", "excludeRanksList", list)?;
    let Some(count) = usize::try_from(count).ok().filter(|n| *n > 0) else {
        return Err(Failure::argument(format!(
            "CommShrink : invalid excludeRanksCount {count}. At least one rank must be excluded"
        )));
    };
    // SAFETY: not null; the caller promises `count` elements. Read and written one by one: they may be unaligned.
    let mut ranks: Vec<c_int> = (0..count).map(|i| unsafe { list.add(i).read_unaligned() }).collect();
    ranks.sort_unstable();
    for (i, rank) in ranks.iter().enumerate() {
        // SAFETY: as above. The original sorts the caller's list, too.
        unsafe { list.add(i).write_unaligned(*rank) };
    }
    // SAFETY: the C caller's promise.
    let config = unsafe { own_config(config) }?;
    // Ranks that do not exist are excluded already.
    let exclude: Vec<usize> = ranks.iter().filter_map(|r| usize::try_from(*r).ok()).collect();
    communicator.shrink(&exclude, flags & NCCL_SHRINK_ABORT != 0, config, done(newcomm))?;
    lifecycle::progress(&communicator)
}

pub unsafe fn comm_get_unique_id(comm: ncclComm_t, unique_id: *mut ncclUniqueId) -> Outcome {
    const NAME: &str = "CommGetUniqueId";
    let communicator = check_known(NAME, comm)?;
    communicator.ensure_ready()?;
    non_null(NAME, "uniqueId", unique_id)?;
    if oxccl_runtime::config::text("NCCL_COMM_ID").is_some() {
        return Err(Failure::usage("ncclCommGetUniqueId should not be called when NCCL_COMM_ID is set"));
    }
    let id = ncclUniqueId { internal: communicator.grow_id()?.to_bytes() };
    // SAFETY: the C caller's promise.
    unsafe { write_out(NAME, "uniqueId", unique_id, id) }
}

pub unsafe fn comm_grow(
    comm: ncclComm_t,
    n_ranks: c_int,
    unique_id: *const ncclUniqueId,
    rank: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
) -> Outcome {
    // SAFETY: the C caller's promise.
    remember(unsafe { grow(comm, n_ranks, unique_id, rank, newcomm, config) })
}

unsafe fn grow(
    comm: ncclComm_t,
    n_ranks: c_int,
    unique_id: *const ncclUniqueId,
    rank: c_int,
    newcomm: *mut ncclComm_t,
    config: *mut ncclConfig_t,
) -> Outcome {
    const NAME: &str = "CommGrow";
    // SAFETY: the C caller's promise.
    unsafe { clear(newcomm) };
    non_null(NAME, "newcomm", newcomm)?;
    let Some(ranks) = usize::try_from(n_ranks).ok().filter(|n| *n > 0) else {
        return Err(Failure::argument(format!("{NAME} : invalid nRanks {n_ranks}. It must be positive")));
    };
    if comm.is_null() {
        if rank < 0 || rank >= n_ranks {
            return Err(Failure::argument(format!(
                "{NAME} : invalid rank {rank}. A new rank (comm is NULL) must be in 0..{}",
                n_ranks - 1
            )));
        }
        non_null(NAME, "uniqueId", unique_id)?;
        // SAFETY: not null; the caller promises an id.
        let id = unsafe { unique_id.read() };
        // SAFETY: the C caller's promise.
        return unsafe { lifecycle::init(newcomm, n_ranks, rank, &[id], config, "ncclCommGrow") };
    }
    let communicator = check_known(NAME, comm)?;
    if rank != -1 {
        return Err(Failure::argument(format!(
            "{NAME} : invalid rank {rank}. Ranks of the communicator keep theirs and pass -1"
        )));
    }
    let id = match unique_id.is_null() {
        true => None,
        // SAFETY: not null; the caller promises an id.
        false => Some(UniqueId::from_bytes(unsafe { unique_id.read() }.internal)?),
    };
    // SAFETY: the C caller's promise.
    let config = unsafe { own_config(config) }?;
    communicator.grow(ranks, id, config, done(newcomm))?;
    lifecycle::progress(&communicator)
}

/// The original's memory manager can be switched off, and then refuses its three functions.
fn memory_manager(name: &str) -> Outcome {
    if oxccl_runtime::config::integer("NCCL_DISABLE_MEM_MANAGER").is_some_and(|n| n != 0) {
        return Err(Failure::usage(format!("{name} : the memory manager is disabled (NCCL_DISABLE_MEM_MANAGER=1)")));
    }
    Ok(())
}

pub unsafe fn comm_suspend(comm: ncclComm_t, flags: c_int) -> Outcome {
    const NAME: &str = "CommSuspend";
    let suspend = || {
        let communicator = check_known(NAME, comm)?;
        communicator.ensure_ready()?;
        if flags & NCCL_SUSPEND_MEM == 0 {
            return Ok(());
        }
        memory_manager(NAME)?;
        communicator.suspend()?;
        lifecycle::progress(&communicator)
    };
    remember(suspend())
}

pub unsafe fn comm_resume(comm: ncclComm_t) -> Outcome {
    const NAME: &str = "CommResume";
    let resume = || {
        let communicator = check_known(NAME, comm)?;
        communicator.ensure_ready()?;
        memory_manager(NAME)?;
        communicator.resume()?;
        lifecycle::progress(&communicator)
    };
    remember(resume())
}

pub unsafe fn comm_mem_stats(comm: ncclComm_t, stat: ncclCommMemStat_t, value: *mut u64) -> Outcome {
    const NAME: &str = "CommMemStats";
    let communicator = check_known(NAME, comm)?;
    communicator.ensure_ready()?;
    non_null(NAME, "value", value)?;
    memory_manager(NAME)?;
    let stat = match stat {
        0 => MemStat::Suspend,
        1 => MemStat::Suspended,
        2 => MemStat::Persist,
        3 => MemStat::Total,
        _ => return Err(Failure::argument(format!("{NAME} : invalid statistic {stat}. They are in 0..3"))),
    };
    // SAFETY: the C caller's promise.
    unsafe { write_out(NAME, "value", value, communicator.mem_stat(stat)?) }
}
