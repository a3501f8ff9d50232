//! Device communicators: what code beside the library needs to synchronise and to reach the memory of its LSA team.
//!
//! There are LSA barriers, resources in memory and windows; no multicast and no network resources, which are refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::*;
use crate::device_abi::*;
use crate::device_api::{check_version, is_early, lsa_barrier_bytes};
use crate::entry::{Failure, Outcome, non_null, remember};
use crate::handle::{self, InUse, check_known};
use crate::{lifecycle, window};
use oxccl_runtime::{Window, device, group};

/// Handles count in units of this many bytes of the resource window.
const UNIT: usize = 128;

/// What a device communicator holds, by the address of its table of windows.
struct Held {
    /// The communicator, whose end is theirs as well.
    comm: usize,
    /// A chain in one piece: its address stays.
    tables: Box<[ncclDevCommWindowTable]>,
    resources: Option<Memory>,
}

// SAFETY: the tables hold addresses for the program; this library follows none of them.
unsafe impl Send for Held {}

static HELD: Mutex<Option<HashMap<usize, Held>>> = Mutex::new(None);

fn with_held<R>(body: impl FnOnce(&mut HashMap<usize, Held>) -> R) -> R {
    body(HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Gives back what device communicators of `comm`, which has ended, still hold.
pub(crate) fn forget(comm: ncclComm_t) {
    // Behind the lock: memory is given back.
    let gone: Vec<Held> =
        with_held(|all| all.extract_if(|_, held| held.comm == comm as usize).map(|(_, h)| h).collect());
    drop(gone);
}

/// Memory of the resource window.
struct Memory(*mut u8);

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from `alloc_alone`, freed once; the program has ended its work on the device communicator, and peers
        // keep their own mapping.
        let _ = unsafe { device::free(self.0) };
    }
}

/// Where C waits for the parts of a device communicator.
struct Out {
    comm: ncclComm_t,
    dev_comm: *mut ncclDevComm_t,
    early: bool,
    handles: Vec<(*mut u32, u32)>,
    barrier: ncclLsaBarrierHandle_t,
}

// SAFETY: the caller promises that all places stay valid until the communicator is no longer in progress.
unsafe impl Send for Out {}

pub unsafe fn dev_comm_create(comm: ncclComm_t, reqs: *const c_void, out_dev_comm: *mut c_void) -> Outcome {
    // SAFETY: the C caller's promise.
    remember(unsafe { create(comm, reqs, out_dev_comm) })
}

/// Reads the requirements in the layout of their release.
unsafe fn read(name: &str, reqs: *const c_void) -> Outcome<(ncclDevCommRequirements_t, bool)> {
    let reqs: *const ncclDevCommRequirements_t = reqs.cast();
    // SAFETY: not null; the caller promises a struct with at least size, magic and version, which may be unaligned.
    let (magic, version) =
        unsafe { ((&raw const (*reqs).magic).read_unaligned(), (&raw const (*reqs).version).read_unaligned()) };
    check_version(name, "ncclDevCommRequirements_t", magic, version)?;
    let early = is_early(version);
    let bytes = if early { REQUIREMENTS_22902 } else { size_of::<ncclDevCommRequirements_t>() };
    let mut all = std::mem::MaybeUninit::<ncclDevCommRequirements_t>::zeroed();
    // SAFETY: the caller promises the struct of its version. A C `bool` holds 0 or 1, and all zero is a valid value.
    let mut all = unsafe {
        std::ptr::copy_nonoverlapping(reqs.cast::<u8>(), all.as_mut_ptr().cast::<u8>(), bytes);
        all.assume_init()
    };
    if early {
        // Barriers were LSA barriers then.
        all.lsaBarrierCount = all.lsaBarrierCount.max(all.barrierCount);
        all.barrierCount = 0;
    }
    Ok((all, early))
}

fn refuse_what_is_not_there(name: &str, reqs: &ncclDevCommRequirements_t) -> Outcome {
    let counts = [reqs.barrierCount, reqs.railGinBarrierCount, reqs.ginSignalCount, reqs.ginCounterCount];
    if reqs.ginForceEnable || reqs.ginConnectionType != 0 || counts.iter().any(|n| *n > 0) {
        return Err(Failure::argument(format!(
            "{name} : the requirements ask for device-initiated networking (GIN), which host devices do not have; \
             lsaBarrierCount gives barriers of the ranks that share memory"
        )));
    }
    let mut multimem = reqs.lsaMultimem;
    let mut team = reqs.teamRequirementsList;
    while !team.is_null() {
        // SAFETY: the caller promises a list of valid nodes that ends with null.
        let node = unsafe { team.read_unaligned() };
        multimem |= node.multimem;
        team = node.next;
    }
    if multimem {
        return Err(Failure::argument(format!(
            "{name} : Multicast support requested for team but none available on system."
        )));
    }
    Ok(())
}

/// Places the resources one behind the other: their handles, and the bytes of all.
fn lay_out(reqs: &ncclDevCommRequirements_t, lsa: c_int, out: &mut Out) -> Outcome<usize> {
    let mut end = 0_usize;
    let mut place = |bytes: usize, align: usize| {
        let begin = end.checked_next_multiple_of(align.max(UNIT))?;
        end = begin.checked_add(bytes)?;
        u32::try_from(begin / UNIT).ok()
    };
    let too_much = || Failure::argument("DevCommCreate : the resources exceed what a handle can name".to_string());
    if reqs.lsaBarrierCount > 0 {
        let bytes = lsa_barrier_bytes(reqs.lsaBarrierCount, lsa);
        let handle = place(bytes, 4).ok_or_else(too_much)?;
        out.barrier = ncclLsaBarrierHandle_t { bufHandle: handle, nBarriers: reqs.lsaBarrierCount };
    }
    let mut node = reqs.resourceRequirementsList;
    while !node.is_null() {
        // SAFETY: the caller promises a list of valid nodes that ends with null.
        let wanted = unsafe { node.read_unaligned() };
        if wanted.ginSignalCount > 0 || wanted.ginCounterCount > 0 {
            return Err(Failure::argument(
                "DevCommCreate : a resource asks for GIN signals or counters, which host devices do not have"
                    .to_string(),
            ));
        }
        let handle = place(wanted.bufferSize, wanted.bufferAlign).ok_or_else(too_much)?;
        if !wanted.outBufferHandle.is_null() {
            out.handles.push((wanted.outBufferHandle, handle));
        }
        node = wanted.next;
    }
    Ok(end)
}

unsafe fn create(comm: ncclComm_t, reqs: *const c_void, out_dev_comm: *mut c_void) -> Outcome {
    const NAME: &str = "DevCommCreate";
    let communicator = check_known(NAME, comm)?;
    non_null(NAME, "reqs", reqs)?;
    // SAFETY: the C caller's promise.
    let (reqs, early) = unsafe { read(NAME, reqs) }?;
    communicator.ensure_ready()?;
    non_null(NAME, "outDevComm", out_dev_comm)?;
    if !communicator.has_windows() {
        return Err(Failure::usage("Communicator does not support symmetric memory! (NCCL_WIN_ENABLE=0)"));
    }
    refuse_what_is_not_there(NAME, &reqs)?;
    let lsa = communicator.lsa_and_rail()?.0.ranks as c_int;
    let barrier = ncclLsaBarrierHandle_t::default();
    let mut out = Out { comm, dev_comm: out_dev_comm.cast(), early, handles: Vec::new(), barrier };
    let bytes = lay_out(&reqs, lsa, &mut out)?;
    if bytes == 0 {
        out.fill(&communicator, None);
        return Ok(());
    }
    let memory = Memory(device::alloc_alone(bytes)?);
    let at = memory.0;
    let filled = Arc::new(AtomicBool::new(false));
    let told = filled.clone();
    let done = move |window: Option<Arc<Window>>| {
        // Destroyed meanwhile: nobody is left to use it.
        let Ok(communicator) = handle::check(NAME, out.comm) else { return };
        if let Some(window) = window {
            out.fill(&communicator, Some((window, memory)));
            told.store(true, Ordering::Release);
        }
    };
    communicator.register_window(at, bytes, 0, Box::new(done))?;
    lifecycle::progress(&communicator)?;
    if group::depth() == 0 && communicator.is_blocking() && !filled.load(Ordering::Acquire) {
        return Err(Failure::usage(
            "DevCommCreate : another rank made a call that does not match; all ranks must create the device communicator",
        ));
    }
    Ok(())
}

/// For divisions by `x` without dividing.
fn reciprocal(x: usize) -> u32 {
    let x = x as u32;
    (u32::MAX / x).wrapping_add(u32::from(x.is_power_of_two()))
}

/// A copy of the communicator's list of windows, in the chain that programs search. Never empty.
fn tables(communicator: &InUse) -> Box<[ncclDevCommWindowTable]> {
    let none = WindowEntry { base: 0, size: 0, window: std::ptr::null_mut() };
    let entries: Vec<WindowEntry> = communicator
        .windows()
        .iter()
        .map(|w| WindowEntry { base: w.window.user_ptr().addr(), size: w.window.bytes(), window: w.handle() })
        .collect();
    let table = |i: usize| {
        let mut table = ncclDevCommWindowTable { entries: [none; 32], next: std::ptr::null_mut() };
        table.entries.iter_mut().zip(entries.iter().skip(32 * i)).for_each(|(to, from)| *to = *from);
        table
    };
    let mut all: Box<[_]> = (0..entries.len().div_ceil(32).max(1)).map(table).collect();
    let first = all.as_mut_ptr();
    for i in 1..all.len() {
        all[i - 1].next = first.wrapping_add(i);
    }
    all
}

impl Out {
    fn fill(self, communicator: &InUse, resources: Option<(Arc<Window>, Memory)>) {
        let Ok((lsa, _)) = communicator.lsa_and_rail() else { return };
        let (registered, memory) = match resources {
            Some((window, memory)) => (Some(window::adopt(communicator, window)), Some(memory)),
            None => (None, None),
        };
        let mut held = Held { comm: self.comm as usize, tables: tables(communicator), resources: memory };
        let nothing = ncclWindow_vidmem {
            winHost: std::ptr::null_mut(),
            lsaFlatBase: std::ptr::null_mut(),
            lsaRank: 0,
            worldRank: 0,
            stride4G: 0,
            mcOffset4K: 0,
            ginOffset4K: 0,
            ginWins: [std::ptr::null_mut(); 4],
        };
        let made = ncclDevComm_t {
            rank: communicator.rank() as c_int,
            nRanks: communicator.ranks() as c_int,
            nRanks_rcp32: reciprocal(communicator.ranks()),
            lsaRank: lsa.rank as c_int,
            lsaSize: lsa.ranks as c_int,
            lsaSize_rcp32: reciprocal(lsa.ranks),
            windowTable: held.tables.as_mut_ptr(),
            resourceWindow: registered.as_ref().map_or(std::ptr::null_mut(), |r| r.handle()),
            resourceWindow_inlined: registered.as_ref().map_or(nothing, |r| r.shown()),
            lsaMultimem: ncclMultimemHandle { mcBasePtr: std::ptr::null_mut() },
            lsaBarrier: self.barrier,
            railGinBarrier: ncclGinBarrierHandle_t::default(),
            network: [0; 11],
        };
        with_held(|all| all.insert(made.windowTable.addr(), held));
        let bytes = if self.early { DEV_COMM_22902 } else { size_of::<ncclDevComm_t>() };
        // SAFETY: checked not to be null; the caller promises the struct of its version, and valid handles.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const made).cast::<u8>(), self.dev_comm.cast::<u8>(), bytes);
            for (at, handle) in self.handles {
                at.write_unaligned(handle);
            }
        }
    }
}

pub unsafe fn dev_comm_destroy(comm: ncclComm_t, dev_comm: *const c_void) -> Outcome {
    const NAME: &str = "DevCommDestroy";
    let communicator = check_known(NAME, comm)?;
    non_null(NAME, "devComm", dev_comm)?;
    let dev_comm: *const ncclDevComm_t = dev_comm.cast();
    // SAFETY: not null; the caller promises a struct that ncclDevCommCreate filled.
    let (table, resources) = unsafe {
        (
            (&raw const (*dev_comm).windowTable).read_unaligned(),
            (&raw const (*dev_comm).resourceWindow).read_unaligned(),
        )
    };
    let held = with_held(|all| match all.entry(table.addr()) {
        Entry::Occupied(held) if held.get().comm == comm as usize => Some(held.remove()),
        _ => None,
    });
    let Some(held) = held else {
        return Err(Failure::argument(format!(
            "{NAME} : devComm was not filled by ncclDevCommCreate of this communicator, or was destroyed before"
        )));
    };
    let discarded = if resources.is_null() { Ok(()) } else { window::discard(NAME, &communicator, resources) };
    drop(held.resources);
    discarded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_beyond_what_a_handle_can_name_are_refused() {
        let none = ncclLsaBarrierHandle_t { bufHandle: 0, nBarriers: 0 };
        let mut out = Out {
            comm: std::ptr::null_mut(),
            dev_comm: std::ptr::null_mut(),
            early: false,
            handles: Vec::new(),
            barrier: none,
        };
        // SAFETY: a struct of numbers and pointers, which may be null.
        let resource = |bytes, next| ncclDevResourceRequirements_t {
            next,
            bufferSize: bytes,
            ..unsafe { std::mem::zeroed::<ncclDevResourceRequirements_t>() }
        };
        let mut second = resource(64, std::ptr::null_mut());
        let mut first = resource(usize::MAX, &raw mut second);
        // SAFETY: as above.
        let mut wanted: ncclDevCommRequirements_t = unsafe { std::mem::zeroed() };
        wanted.resourceRequirementsList = &raw mut first;
        assert!(lay_out(&wanted, 1, &mut out).is_err());
        wanted.resourceRequirementsList = &raw mut second;
        assert_eq!(lay_out(&wanted, 1, &mut out).ok(), Some(64));
    }

    #[test]
    fn reciprocals_divide() {
        assert_eq!(reciprocal(1), 0);
        for y in [2_usize, 3, 4, 7, 8, 100] {
            let rcp = u64::from(reciprocal(y));
            for x in [0_u64, 1, 5, 63, 64, 1000, 123_457] {
                let mut q = (x * rcp) >> 32;
                if x - y as u64 * q >= y as u64 {
                    q += 1;
                }
                assert_eq!(q, x / y as u64, "{x} / {y}");
            }
        }
    }
}
