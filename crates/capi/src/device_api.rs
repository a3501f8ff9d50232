//! The host functions of `nccl_device.h`: teams, addresses in windows, properties, and requirements of device
//! communicators. What makes device communicators is in `device_comm`.

use crate::abi::*;
use crate::device_abi::*;
use crate::entry::{Failure, Outcome, clear, later, non_null, write_out};
use crate::handle::check_known;
use crate::window::{Registered, lookup};
use oxccl_runtime::{Communicator, Team, log};

pub use crate::device_comm::{dev_comm_create, dev_comm_destroy};

/// The two functions of the original that no public header declares.
pub unsafe fn gin_outbox_create_requirement() -> Outcome {
    Err(later!("ncclGinOutboxCreateRequirement"))
}

pub unsafe fn gin_inbox_a2a_create_requirement() -> Outcome {
    Err(later!("ncclGinInboxA2ACreateRequirement"))
}

/// Magic and version of a struct that a program made.
pub(crate) fn check_version(name: &str, what: &str, magic: c_uint, version: c_uint) -> Outcome {
    if magic != NCCL_API_MAGIC {
        return Err(Failure::usage(format!("{name} : {what} was not made by its initializer (magic {magic:#x})")));
    }
    let unchecked = || oxccl_runtime::config::integer("NCCL_ENABLE_VERSION_CHECK") == Some(0);
    if version > NCCL_VERSION_CODE as c_uint && !unchecked() {
        return Err(Failure::usage(format!(
            "{name} : {what} is of version {version}, newer than this library ({NCCL_VERSION_CODE}); \
             NCCL_ENABLE_VERSION_CHECK=0 takes it all the same"
        )));
    }
    Ok(())
}

/// Whether a struct of this version has the layout of 2.29.2.
pub(crate) fn is_early(version: c_uint) -> bool {
    (22902..22904).contains(&version)
}

pub unsafe fn comm_query_properties(comm: ncclComm_t, props: *mut c_void) -> Outcome {
    const NAME: &str = "CommQueryProperties";
    let communicator = check_known(NAME, comm)?;
    non_null(NAME, "props", props)?;
    // It may be of a program that is still making the communicator.
    communicator.complete()?;
    communicator.ensure_ready()?;
    let props: *mut ncclCommProperties_t = props.cast();
    // SAFETY: not null; the caller promises a struct with at least size, magic and version, which may be unaligned.
    let (magic, version) =
        unsafe { ((&raw const (*props).magic).read_unaligned(), (&raw const (*props).version).read_unaligned()) };
    check_version(NAME, "ncclCommProperties_t", magic, version)?;
    let (lsa, _) = communicator.lsa_and_rail()?;
    let early = is_early(version);
    let full = ncclCommProperties_t {
        size: if early { PROPERTIES_22902 } else { size_of::<ncclCommProperties_t>() },
        magic,
        version,
        rank: communicator.rank() as c_int,
        nRanks: communicator.ranks() as c_int,
        cudaDev: communicator.device() as c_int,
        nvmlDev: communicator.device() as c_int,
        deviceApiSupport: true,
        multimemSupport: false,
        ginType: 0,
        nLsaTeams: (communicator.ranks() / lsa.ranks) as c_int,
        hostRmaSupport: true,
        railedGinType: 0,
    };
    if early {
        // SAFETY: the early struct has 40 bytes, of which the first 34 are the same; then a type in one byte.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), props.cast::<u8>(), GIN_TYPE_22902);
            props.cast::<u8>().add(GIN_TYPE_22902).write(0);
        }
    } else {
        // SAFETY: the caller promises the struct of its version.
        unsafe { props.write_unaligned(full) };
    }
    Ok(())
}

fn c_team(team: Team) -> ncclTeam_t {
    ncclTeam_t { nRanks: team.ranks as c_int, rank: team.rank as c_int, stride: team.stride as c_int }
}

/// A team of the communicator; all zero where there is none, because these functions return no code.
fn team(name: &str, comm: ncclComm_t, which: impl Fn(&Communicator) -> Outcome<Team>) -> ncclTeam_t {
    let found = check_known(name, comm).and_then(|communicator| which(&communicator));
    found.map(c_team).unwrap_or_else(|failure| {
        failure.log();
        ncclTeam_t::default()
    })
}

pub unsafe fn team_world(comm: ncclComm_t) -> ncclTeam_t {
    team("TeamWorld", comm, |c| Ok(c.world()))
}

pub unsafe fn team_lsa(comm: ncclComm_t) -> ncclTeam_t {
    team("TeamLsa", comm, |c| Ok(c.lsa_and_rail()?.0))
}

pub unsafe fn team_rail(comm: ncclComm_t) -> ncclTeam_t {
    team("TeamRail", comm, |c| Ok(c.lsa_and_rail()?.1))
}

/// `rank` of `team` in the numbering of which this rank is `mine`.
fn translate(mine: c_int, team: ncclTeam_t, rank: c_int) -> c_int {
    mine.wrapping_add(rank.wrapping_sub(team.rank).wrapping_mul(team.stride))
}

pub unsafe fn team_rank_to_world(comm: ncclComm_t, team: ncclTeam_t, rank: c_int) -> c_int {
    match check_known("TeamRankToWorld", comm) {
        Ok(c) => translate(c.rank() as c_int, team, rank),
        Err(failure) => {
            failure.log();
            -1
        }
    }
}

pub unsafe fn team_rank_to_lsa(comm: ncclComm_t, team: ncclTeam_t, rank: c_int) -> c_int {
    // SAFETY: the C caller's promise.
    let lsa = unsafe { team_lsa(comm) };
    if lsa.nRanks == 0 { -1 } else { translate(lsa.rank, team, rank) }
}

/// The common part of the functions that return an address in the part of a rank that `of` names, or null: where the part is not mapped
/// here, and of multicast (`None`), which has the length of the own part.
unsafe fn pointer(
    name: &str,
    window: ncclWindow_t,
    offset: usize,
    out_ptr: *mut *mut c_void,
    of: impl FnOnce(&Registered) -> Outcome<Option<usize>>,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { clear(out_ptr) };
    non_null(name, "outPtr", out_ptr)?;
    let found = lookup(name, window)?;
    let of = of(&found)?;
    // The parts of the ranks may have different lengths.
    let rank = of.unwrap_or(found.window.rank());
    let bytes = found.window.size_of(rank);
    if offset as u64 >= bytes {
        return Err(Failure::argument(format!(
            "{name} : offset {offset} is not in the window, which has {bytes} bytes on rank {rank}"
        )));
    }
    let part = of.and_then(|rank| found.window.peer_part(rank));
    let address = part.map_or(std::ptr::null_mut(), |p| p.wrapping_add(offset));
    // SAFETY: the C caller's promise.
    unsafe { write_out(name, "outPtr", out_ptr, address.cast()) }
}

pub unsafe fn get_lsa_device_pointer(
    window: ncclWindow_t,
    offset: usize,
    lsa_rank: c_int,
    out_ptr: *mut *mut c_void,
) -> Outcome {
    const NAME: &str = "GetLsaDevicePointer";
    let of = |w: &Registered| {
        let rank = usize::try_from(lsa_rank).ok().and_then(|r| w.window.rank_of_lsa(r));
        rank.map(Some).ok_or_else(|| {
            Failure::argument(format!(
                "{NAME} : invalid LSA rank {lsa_rank}: the team has {} ranks",
                w.window.lsa_team().ranks
            ))
        })
    };
    // SAFETY: the C caller's promise.
    unsafe { pointer(NAME, window, offset, out_ptr, of) }
}

pub unsafe fn get_peer_device_pointer(
    window: ncclWindow_t,
    offset: usize,
    peer: c_int,
    out_ptr: *mut *mut c_void,
) -> Outcome {
    const NAME: &str = "GetPeerDevicePointer";
    let of = |w: &Registered| {
        let ranks = w.window.ranks();
        let rank = usize::try_from(peer).ok().filter(|r| *r < ranks);
        rank.map(Some).ok_or_else(|| Failure::argument(format!("{NAME} : invalid peer {peer} of {ranks} ranks")))
    };
    // SAFETY: the C caller's promise.
    unsafe { pointer(NAME, window, offset, out_ptr, of) }
}

/// There is no multicast between host devices: the address is null.
pub unsafe fn get_lsa_multimem_device_pointer(
    window: ncclWindow_t,
    offset: usize,
    out_ptr: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { pointer("GetLsaMultimemDevicePointer", window, offset, out_ptr, |_| Ok(None)) }
}

/// As above.
pub unsafe fn get_multimem_device_pointer(
    window: ncclWindow_t,
    offset: usize,
    multimem: ncclMultimemHandle,
    out_ptr: *mut *mut c_void,
) -> Outcome {
    const NAME: &str = "GetMultimemDevicePointer";
    // SAFETY: the C caller's promise.
    unsafe { clear(out_ptr) };
    non_null(NAME, "multimem.mcBasePtr", multimem.mcBasePtr)?;
    // SAFETY: the C caller's promise.
    unsafe { pointer(NAME, window, offset, out_ptr, |_| Ok(None)) }
}

/// What LSA barriers need: bytes of memory on every rank of the team.
pub(crate) fn lsa_barrier_bytes(barriers: c_int, team: c_int) -> usize {
    let (barriers, team) = (barriers.max(0) as usize, team.max(0) as usize);
    (3 * barriers + barriers * team) * 4
}

fn requirement(bytes: usize, align: usize, handle: *mut u32, signals: c_int) -> ncclDevResourceRequirements_t {
    ncclDevResourceRequirements_t {
        next: std::ptr::null_mut(),
        bufferSize: bytes,
        bufferAlign: align,
        outBufferHandle: handle,
        ginSignalCount: signals,
        ginCounterCount: 0,
        outGinSignalStart: std::ptr::null_mut(),
        outGinCounterStart: std::ptr::null_mut(),
    }
}

/// Writes a requirement; its handle is filled when a device communicator is made of it.
unsafe fn require(name: &str, out_req: *mut c_void, requirement: ncclDevResourceRequirements_t) -> Outcome {
    // SAFETY: the C caller's promise.
    unsafe { write_out(name, "outReq", out_req.cast(), requirement) }
}

pub unsafe fn lsa_barrier_create_requirement(
    team: ncclTeam_t,
    n_barriers: c_int,
    out_handle: *mut c_void,
    out_req: *mut c_void,
) -> Outcome {
    const NAME: &str = "LsaBarrierCreateRequirement";
    let handle: *mut ncclLsaBarrierHandle_t = out_handle.cast();
    non_null(NAME, "outHandle", handle)?;
    // SAFETY: not null; valid by the C caller's promise.
    unsafe { (&raw mut (*handle).nBarriers).write_unaligned(n_barriers) };
    let bytes = lsa_barrier_bytes(n_barriers, team.nRanks);
    // SAFETY: as above.
    unsafe { require(NAME, out_req, requirement(bytes, 4, &raw mut (*handle).bufHandle, 0)) }
}

pub unsafe fn gin_barrier_create_requirement(
    _comm: ncclComm_t,
    team: ncclTeam_t,
    n_barriers: c_int,
    out_handle: *mut c_void,
    out_req: *mut c_void,
) -> Outcome {
    const NAME: &str = "GinBarrierCreateRequirement";
    let handle: *mut ncclGinBarrierHandle_t = out_handle.cast();
    non_null(NAME, "outHandle", handle)?;
    let mut all = requirement(0, 0, std::ptr::null_mut(), n_barriers.saturating_mul(team.nRanks));
    // SAFETY: not null; valid by the C caller's promise.
    all.outGinSignalStart = unsafe { &raw mut (*handle).signal0 };
    // SAFETY: the C caller's promise.
    unsafe { require(NAME, out_req, all) }
}

pub unsafe fn ll_a2a_create_requirement(
    n_blocks: c_int,
    n_slots: c_int,
    out_handle: *mut c_void,
    out_req: *mut c_void,
) -> Outcome {
    const NAME: &str = "LLA2ACreateRequirement";
    let handle: *mut ncclLLA2AHandle_t = out_handle.cast();
    non_null(NAME, "outHandle", handle)?;
    // SAFETY: not null; valid by the C caller's promise.
    unsafe { (&raw mut (*handle).nSlots).write_unaligned(n_slots.max(0) as u32) };
    let (blocks, slots) = (n_blocks.max(0) as usize, n_slots.max(0) as usize);
    let bytes = blocks.saturating_mul(1 + 2 * slots).saturating_mul(16);
    // SAFETY: as above.
    unsafe { require(NAME, out_req, requirement(bytes, 16, &raw mut (*handle).bufHandle, 0)) }
}

/// Lines of 16 bytes that an all-to-all of `max_elts` elements of `max_elt_size` bytes needs; 8 data bytes per line.
pub unsafe fn ll_a2a_calc_slots(max_elts: c_int, max_elt_size: c_int) -> c_int {
    if max_elts < 0 || max_elt_size < 0 {
        log::warn(&format!("ncclLLA2ACalcSlots : negative argument ({max_elts} elements of {max_elt_size} bytes)"));
        return 0;
    }
    max_elts.saturating_mul(max_elt_size / 8 + c_int::from(max_elt_size % 8 != 0))
}
