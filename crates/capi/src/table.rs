//! The function table: one row per C function.
//!
//! A row is `library status chapter::implementation: fn name(arguments) -> result;` where `library` is `both`, `nccl`
//! or `rccl` and `status` is `Works` or `Later`. [`export!`](crate::export) turns the rows of one library into exported
//! symbols, `ncclX` and its profiling twin `pncclX`, both calling the implementation, so that a tool may replace the
//! first and call the second. [`FUNCTIONS`] is the same table as data.
//!
//! To add a function: one row here, its body in the file of its chapter, its declaration in the headers.

/// What can be expected of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does what the header says.
    Works,
    /// It exists and returns `ncclInvalidUsage`.
    Later,
}

/// A kind of device that the ranks of a communicator can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A CPU with its memory.
    Host,
    /// A GPU behind the CUDA driver.
    Cuda,
    /// A GPU behind the HIP runtime.
    Hip,
}

impl Device {
    /// Every kind.
    pub const ALL: [Device; 3] = [Device::Host, Device::Cuda, Device::Hip];

    /// The kinds that communicators of this version can have.
    const THERE: &'static [Device] = &[Device::Host];

    /// The name in documents.
    pub const fn title(self) -> &'static str {
        match self {
            Device::Host => "host devices",
            Device::Cuda => "CUDA GPUs",
            Device::Hip => "HIP GPUs",
        }
    }
}

/// One exported C function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The name, without the `p` of its twin.
    pub name: &'static str,
    /// The file of this crate that implements it.
    pub chapter: &'static str,
    /// Whether it works where communicators can be made.
    pub status: Status,
    /// Whether `libnccl.so` exports it.
    pub nccl: bool,
    /// Whether `librccl.so` exports it.
    pub rccl: bool,
    /// Whether there is a twin with a `p` before the name.
    pub twin: bool,
}

impl Function {
    /// What can be expected of it on a kind of device.
    pub fn on(&self, device: Device) -> Status {
        if Device::THERE.contains(&device) { self.status } else { Status::Later }
    }
}

/// Calls the macro `$then` with every row that has a profiling twin.
#[doc(hidden)]
#[macro_export]
macro_rules! functions {
    ($($then:ident)::+ ! ($($first:tt)*)) => { $($then)::+! { $($first)*
        both Works memory::mem_alloc: fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t;
        both Works memory::mem_free: fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t;
        both Works memory::comm_register: fn ncclCommRegister(comm: ncclComm_t, buff: *mut c_void, size: usize, handle: *mut *mut c_void) -> ncclResult_t;
        both Works memory::comm_deregister: fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t;

        both Works lifecycle::get_version: fn ncclGetVersion(version: *mut c_int) -> ncclResult_t;
        both Works lifecycle::get_unique_id: fn ncclGetUniqueId(unique_id: *mut ncclUniqueId) -> ncclResult_t;
        both Works lifecycle::comm_init_rank_config: fn ncclCommInitRankConfig(comm: *mut ncclComm_t, nranks: c_int, comm_id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t) -> ncclResult_t;
        both Works lifecycle::comm_init_rank: fn ncclCommInitRank(comm: *mut ncclComm_t, nranks: c_int, comm_id: ncclUniqueId, rank: c_int) -> ncclResult_t;
        both Works lifecycle::comm_init_all: fn ncclCommInitAll(comms: *mut ncclComm_t, ndev: c_int, devlist: *const c_int) -> ncclResult_t;
        both Works lifecycle::comm_init_rank_scalable: fn ncclCommInitRankScalable(newcomm: *mut ncclComm_t, nranks: c_int, myrank: c_int, n_id: c_int, comm_ids: *mut ncclUniqueId, config: *mut ncclConfig_t) -> ncclResult_t;
        both Works lifecycle::comm_finalize: fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t;
        both Works lifecycle::comm_destroy: fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t;
        both Works lifecycle::comm_abort: fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t;
        both Works lifecycle::comm_count: fn ncclCommCount(comm: ncclComm_t, count: *mut c_int) -> ncclResult_t;
        both Works lifecycle::comm_cu_device: fn ncclCommCuDevice(comm: ncclComm_t, device: *mut c_int) -> ncclResult_t;
        both Works lifecycle::comm_user_rank: fn ncclCommUserRank(comm: ncclComm_t, rank: *mut c_int) -> ncclResult_t;

        both Works errors::get_error_string: fn ncclGetErrorString(result: ncclResult_t) -> *const c_char;
        both Works errors::get_last_error: fn ncclGetLastError(comm: ncclComm_t) -> *const c_char;
        both Works errors::reset_debug_init: fn ncclResetDebugInit() -> ();
        both Works errors::comm_get_async_error: fn ncclCommGetAsyncError(comm: ncclComm_t, async_error: *mut ncclResult_t) -> ncclResult_t;

        both Works elastic::comm_revoke: fn ncclCommRevoke(comm: ncclComm_t, revoke_flags: c_int) -> ncclResult_t;
        both Works elastic::comm_split: fn ncclCommSplit(comm: ncclComm_t, color: c_int, key: c_int, newcomm: *mut ncclComm_t, config: *mut ncclConfig_t) -> ncclResult_t;
        both Works elastic::comm_shrink: fn ncclCommShrink(comm: ncclComm_t, exclude_ranks_list: *mut c_int, exclude_ranks_count: c_int, newcomm: *mut ncclComm_t, config: *mut ncclConfig_t, shrink_flags: c_int) -> ncclResult_t;
        both Works elastic::comm_get_unique_id: fn ncclCommGetUniqueId(comm: ncclComm_t, unique_id: *mut ncclUniqueId) -> ncclResult_t;
        both Works elastic::comm_grow: fn ncclCommGrow(comm: ncclComm_t, n_ranks: c_int, unique_id: *const ncclUniqueId, rank: c_int, newcomm: *mut ncclComm_t, config: *mut ncclConfig_t) -> ncclResult_t;
        both Works elastic::comm_suspend: fn ncclCommSuspend(comm: ncclComm_t, flags: c_int) -> ncclResult_t;
        both Works elastic::comm_resume: fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t;
        both Works elastic::comm_mem_stats: fn ncclCommMemStats(comm: ncclComm_t, stat: ncclCommMemStat_t, value: *mut u64) -> ncclResult_t;

        both Works window::comm_window_register: fn ncclCommWindowRegister(comm: ncclComm_t, buff: *mut c_void, size: usize, win: *mut ncclWindow_t, win_flags: c_int) -> ncclResult_t;
        both Works window::comm_window_deregister: fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t;
        both Works window::win_get_user_ptr: fn ncclWinGetUserPtr(comm: ncclComm_t, win: ncclWindow_t, out_user_ptr: *mut *mut c_void) -> ncclResult_t;

        both Works ops::red_op_create_pre_mul_sum: fn ncclRedOpCreatePreMulSum(op: *mut ncclRedOp_t, scalar: *mut c_void, datatype: ncclDataType_t, residence: ncclScalarResidence_t, comm: ncclComm_t) -> ncclResult_t;
        both Works ops::red_op_destroy: fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t;

        both Works collectives::reduce: fn ncclReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, root: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::bcast: fn ncclBcast(buff: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::broadcast: fn ncclBroadcast(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::all_reduce: fn ncclAllReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::reduce_scatter: fn ncclReduceScatter(sendbuff: *const c_void, recvbuff: *mut c_void, recvcount: usize, datatype: ncclDataType_t, op: ncclRedOp_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::all_gather: fn ncclAllGather(sendbuff: *const c_void, recvbuff: *mut c_void, sendcount: usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::all_to_all: fn ncclAlltoAll(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::gather: fn ncclGather(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works collectives::scatter: fn ncclScatter(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, root: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;

        both Works p2p::send: fn ncclSend(sendbuff: *const c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works p2p::recv: fn ncclRecv(recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, peer: c_int, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;

        both Works rma::put_signal: fn ncclPutSignal(localbuff: *const c_void, count: usize, datatype: ncclDataType_t, peer: c_int, peer_win: ncclWindow_t, peer_win_offset: usize, sig_idx: c_int, ctx: c_int, flags: c_uint, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works rma::signal: fn ncclSignal(peer: c_int, sig_idx: c_int, ctx: c_int, flags: c_uint, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        both Works rma::wait_signal: fn ncclWaitSignal(n_desc: c_int, signal_descs: *mut ncclWaitSignalDesc_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;

        both Works group::group_start: fn ncclGroupStart() -> ncclResult_t;
        both Works group::group_end: fn ncclGroupEnd() -> ncclResult_t;
        both Works group::group_simulate_end: fn ncclGroupSimulateEnd(sim_info: *mut ncclSimInfo_t) -> ncclResult_t;

        rccl Works rccl::all_reduce_with_bias: fn ncclAllReduceWithBias(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, comm: ncclComm_t, stream: Stream_t, acc: *const c_void) -> ncclResult_t;
        rccl Works rccl::all_to_all_v: fn ncclAlltoAllv(sendbuff: *const c_void, sendcounts: *const usize, sdispls: *const usize, recvbuff: *mut c_void, recvcounts: *const usize, rdispls: *const usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        rccl Works rccl::old_all_to_all: fn ncclAllToAll(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        rccl Works rccl::old_all_to_all_v: fn ncclAllToAllv(sendbuff: *const c_void, sendcounts: *const usize, sdispls: *const usize, recvbuff: *mut c_void, recvcounts: *const usize, rdispls: *const usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        rccl Works rccl::msccl_load_algo: fn mscclLoadAlgo(path: *const c_char, handle: *mut mscclAlgoHandle_t, rank: c_int) -> ncclResult_t;
        rccl Works rccl::msccl_run_algo: fn mscclRunAlgo(send_buff: *const c_void, send_counts: *const usize, s_displs: *const usize, recv_buff: *mut c_void, recv_counts: *const usize, r_displs: *const usize, count: usize, data_type: ncclDataType_t, root: c_int, peer: c_int, op: ncclRedOp_t, handle: mscclAlgoHandle_t, comm: ncclComm_t, stream: Stream_t) -> ncclResult_t;
        rccl Works rccl::msccl_unload_algo: fn mscclUnloadAlgo(handle: mscclAlgoHandle_t) -> ncclResult_t;

        nccl Works device_api::comm_query_properties: fn ncclCommQueryProperties(comm: ncclComm_t, props: *mut c_void) -> ncclResult_t;
        nccl Works device_api::dev_comm_create: fn ncclDevCommCreate(comm: ncclComm_t, reqs: *const c_void, out_dev_comm: *mut c_void) -> ncclResult_t;
        nccl Works device_api::dev_comm_destroy: fn ncclDevCommDestroy(comm: ncclComm_t, dev_comm: *const c_void) -> ncclResult_t;
        nccl Works device_api::get_lsa_multimem_device_pointer: fn ncclGetLsaMultimemDevicePointer(window: ncclWindow_t, offset: usize, out_ptr: *mut *mut c_void) -> ncclResult_t;
        nccl Works device_api::get_multimem_device_pointer: fn ncclGetMultimemDevicePointer(window: ncclWindow_t, offset: usize, multimem: ncclMultimemHandle, out_ptr: *mut *mut c_void) -> ncclResult_t;
        nccl Works device_api::get_lsa_device_pointer: fn ncclGetLsaDevicePointer(window: ncclWindow_t, offset: usize, lsa_rank: c_int, out_ptr: *mut *mut c_void) -> ncclResult_t;
        nccl Works device_api::get_peer_device_pointer: fn ncclGetPeerDevicePointer(window: ncclWindow_t, offset: usize, peer: c_int, out_ptr: *mut *mut c_void) -> ncclResult_t;
        nccl Works device_api::team_world: fn ncclTeamWorld(comm: ncclComm_t) -> ncclTeam_t;
        nccl Works device_api::team_lsa: fn ncclTeamLsa(comm: ncclComm_t) -> ncclTeam_t;
        nccl Works device_api::team_rail: fn ncclTeamRail(comm: ncclComm_t) -> ncclTeam_t;
        nccl Works device_api::team_rank_to_world: fn ncclTeamRankToWorld(comm: ncclComm_t, team: ncclTeam_t, rank: c_int) -> c_int;
        nccl Works device_api::team_rank_to_lsa: fn ncclTeamRankToLsa(comm: ncclComm_t, team: ncclTeam_t, rank: c_int) -> c_int;
        nccl Works device_api::lsa_barrier_create_requirement: fn ncclLsaBarrierCreateRequirement(team: ncclTeam_t, n_barriers: c_int, out_handle: *mut c_void, out_req: *mut c_void) -> ncclResult_t;
        nccl Works device_api::gin_barrier_create_requirement: fn ncclGinBarrierCreateRequirement(comm: ncclComm_t, team: ncclTeam_t, n_barriers: c_int, out_handle: *mut c_void, out_req: *mut c_void) -> ncclResult_t;
        nccl Later device_api::gin_outbox_create_requirement: fn ncclGinOutboxCreateRequirement() -> ncclResult_t;
        nccl Later device_api::gin_inbox_a2a_create_requirement: fn ncclGinInboxA2ACreateRequirement() -> ncclResult_t;
        nccl Works device_api::ll_a2a_calc_slots: fn ncclLLA2ACalcSlots(max_elts: c_int, max_elt_size: c_int) -> c_int;
        nccl Works device_api::ll_a2a_create_requirement: fn ncclLLA2ACreateRequirement(n_blocks: c_int, n_slots: c_int, out_handle: *mut c_void, out_req: *mut c_void) -> ncclResult_t;
    } };
}

/// Calls the macro `$then` with every row without a twin: one internal symbol of NCCL, and oxccl's own functions.
#[doc(hidden)]
#[macro_export]
macro_rules! extensions {
    ($($then:ident)::+ ! ($($first:tt)*)) => { $($then)::+! { $($first)*
        nccl Works errors::reset_debug_init: fn ncclResetDebugInitInternal() -> ();

        both Works ext::get_device_count: fn oxcclGetDeviceCount(count: *mut c_int) -> ncclResult_t;
        both Works ext::set_device: fn oxcclSetDevice(device: c_int) -> ncclResult_t;
        both Works ext::get_device: fn oxcclGetDevice(device: *mut c_int) -> ncclResult_t;
        both Works ext::stream_create: fn oxcclStreamCreate(stream: *mut Stream_t) -> ncclResult_t;
        both Works ext::stream_synchronize: fn oxcclStreamSynchronize(stream: Stream_t) -> ncclResult_t;
        both Works ext::stream_query: fn oxcclStreamQuery(stream: Stream_t) -> ncclResult_t;
        both Works ext::stream_destroy: fn oxcclStreamDestroy(stream: Stream_t) -> ncclResult_t;
        both Works ext::stream_wait_event: fn oxcclStreamWaitEvent(stream: Stream_t, event: oxcclEvent_t) -> ncclResult_t;
        both Works ext::launch_host_func: fn oxcclLaunchHostFunc(stream: Stream_t, function: HostFn, user_data: *mut c_void) -> ncclResult_t;
        both Works ext::memcpy_async: fn oxcclMemcpyAsync(dst: *mut c_void, src: *const c_void, bytes: usize, stream: Stream_t) -> ncclResult_t;
        both Works ext::event_create: fn oxcclEventCreate(event: *mut oxcclEvent_t) -> ncclResult_t;
        both Works ext::event_record: fn oxcclEventRecord(event: oxcclEvent_t, stream: Stream_t) -> ncclResult_t;
        both Works ext::event_synchronize: fn oxcclEventSynchronize(event: oxcclEvent_t) -> ncclResult_t;
        both Works ext::event_query: fn oxcclEventQuery(event: oxcclEvent_t) -> ncclResult_t;
        both Works ext::event_elapsed_time: fn oxcclEventElapsedTime(ms: *mut f32, start: oxcclEvent_t, end: oxcclEvent_t) -> ncclResult_t;
        both Works ext::event_destroy: fn oxcclEventDestroy(event: oxcclEvent_t) -> ncclResult_t;
        both Works host_interface::get: fn oxcclHostInterface(version: c_int) -> *const c_void;
    } };
}

/// Exports the C functions of one library (`nccl` or `rccl`) from the crate that calls it.
#[macro_export]
macro_rules! export {
    ($library:ident) => {
        $crate::functions! { $crate::export_rows!(twin $library;) }
        $crate::extensions! { $crate::export_rows!(plain $library;) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_rows {
    ($twin:ident $library:ident; $(
        $rows:ident $status:ident $chapter:ident::$body:ident: fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;
    )*) => { $(
        $crate::export_row! { $library $rows $twin $chapter::$body $name ($($arg: $type),*) $ret }
    )* };
}

/// One row, if it belongs to the library.
#[doc(hidden)]
#[macro_export]
macro_rules! export_row {
    (nccl rccl $($rest:tt)*) => {};
    (rccl nccl $($rest:tt)*) => {};
    (nccl $rows:ident $($rest:tt)*) => { $crate::export_function! { Nccl $($rest)* } };
    (rccl $rows:ident $($rest:tt)*) => { $crate::export_function! { Rccl $($rest)* } };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_function {
    ($flavour:ident twin $chapter:ident::$body:ident $name:ident ($($arg:ident: $type:ty),*) $ret:ty) => {
        $crate::export_symbol! { $flavour ["p"] $chapter::$body $name ($($arg: $type),*) $ret }
        $crate::export_symbol! { $flavour [""] $chapter::$body $name ($($arg: $type),*) $ret }
    };
    ($flavour:ident plain $chapter:ident::$body:ident $name:ident ($($arg:ident: $type:ty),*) $ret:ty) => {
        $crate::export_symbol! { $flavour [""] $chapter::$body $name ($($arg: $type),*) $ret }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_symbol {
    ($flavour:ident [$p:literal] $chapter:ident::$body:ident $name:ident ($($arg:ident: $type:ty),*) $ret:ty) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::abi::*;

            #[unsafe(export_name = concat!($p, stringify!($name)))]
            unsafe extern "C" fn entry($($arg: $type),*) -> $ret {
                $crate::entry::call::<_, $ret>($crate::Flavour::$flavour, stringify!($name), || {
                    // SAFETY: the C caller promises what the header asks for; the body relies on nothing else.
                    #[allow(unused_unsafe)]
                    unsafe { $crate::$chapter::$body($($arg),*) }
                })
            }
        };
    };
}

macro_rules! list_rows {
    ($(
        $rows:ident $status:ident $chapter:ident::$body:ident: fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;
    )*) => {
        &[$(row(stringify!($name), stringify!($chapter), Status::$status, stringify!($rows))),*]
    };
}

const TWINNED: &[Function] = functions! { list_rows!() };
const PLAIN: &[Function] = extensions! { list_rows!() };

/// Every C function that either library exports.
pub static FUNCTIONS: &[Function] = &join();

const fn row(name: &'static str, chapter: &'static str, status: Status, rows: &str) -> Function {
    let first = rows.as_bytes()[0];
    Function { name, chapter, status, nccl: first != b'r', rccl: first != b'n', twin: true }
}

const fn join() -> [Function; TWINNED.len() + PLAIN.len()] {
    let mut all = [TWINNED[0]; TWINNED.len() + PLAIN.len()];
    let mut i = 0;
    while i < all.len() {
        if i < TWINNED.len() {
            all[i] = TWINNED[i];
        } else {
            all[i] = PLAIN[i - TWINNED.len()];
            all[i].twin = false;
        }
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_well_formed() {
        let names: HashSet<_> = FUNCTIONS.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FUNCTIONS.len());
        for f in FUNCTIONS {
            let own = f.name.starts_with("oxccl") || f.name == "ncclResetDebugInitInternal";
            assert_eq!(f.twin, !own, "{}", f.name);
            assert!(f.nccl || f.rccl, "{}", f.name);
            assert!(!f.name.starts_with("msccl") || (f.rccl && !f.nccl), "{}", f.name);
        }
    }
}
