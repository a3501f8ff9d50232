//! The tables: one row per function, `kind fn name(arguments) -> result = module::body;`.
//!
//! Kinds: `plain`; `ptsz`, `ptds` and `spt` have a twin `name_KIND` whose null stream is the calling thread's default
//! stream; `raw` functions return what the body returns and set no last error. A row without arguments may stand for a
//! function that has some: they are not looked at. `// table NAME` lines tell the build scripts, which make a stub for
//! every other name of the original, where a table begins.

// table cuda
#[doc(hidden)]
#[macro_export]
macro_rules! cuda_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn cudaGetDeviceCount(count: *mut c_int) -> c_int = device::count;
    plain fn cudaGetDevice(device: *mut c_int) -> c_int = device::get;
    plain fn cudaSetDevice(device: c_int) -> c_int = device::set;
    plain fn cudaDeviceSynchronize() -> c_int = device::synchronize;
    plain fn cudaDeviceReset() -> c_int = device::reset;
    plain fn cudaDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int = device::pci_bus_id;
    plain fn cudaDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int = device::by_pci_bus_id;
    plain fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int = device::can_access_peer;
    plain fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int = device::enable_peer;
    plain fn cudaDeviceDisablePeerAccess(peer: c_int) -> c_int = device::disable_peer;
    plain fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> c_int = device::p2p_attribute;
    plain fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int = streams::priority_range;
    plain fn cudaSetDeviceFlags() -> c_int = device::nothing;
    plain fn cudaGetDeviceFlags(flags: *mut c_uint) -> c_int = device::zero_flags;
    plain fn cudaDeviceSetLimit() -> c_int = device::nothing;
    plain fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) -> c_int = device::get_limit;
    plain fn cudaDeviceSetCacheConfig() -> c_int = device::nothing;
    plain fn cudaDeviceGetCacheConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn cudaDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = device::pool;
    plain fn cudaDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = device::pool;
    plain fn cudaDeviceSetMemPool() -> c_int = device::nothing;
    plain fn cudaMemPoolSetAttribute() -> c_int = device::nothing;
    plain fn cudaMemPoolTrimTo() -> c_int = device::nothing;
    plain fn cudaProfilerStart() -> c_int = device::nothing;
    plain fn cudaProfilerStop() -> c_int = device::nothing;
    plain fn cudaMemAdvise() -> c_int = device::nothing;
    plain fn cudaMalloc(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc;
    plain fn cudaMallocHost(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc_host;
    plain fn cudaHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::host_alloc;
    plain fn cudaMallocManaged(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::malloc_managed;
    plain fn cudaMallocPitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> c_int = memory::malloc_pitch;
    ptsz fn cudaMallocAsync(ptr: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> c_int = memory::malloc_async;
    ptsz fn cudaMallocFromPoolAsync(ptr: *mut *mut c_void, bytes: usize, pool: *mut c_void, stream: *mut c_void) -> c_int = memory::malloc_from_pool;
    plain fn cudaFree(ptr: *mut c_void) -> c_int = memory::free;
    plain fn cudaFreeHost(ptr: *mut c_void) -> c_int = memory::free;
    ptsz fn cudaFreeAsync(ptr: *mut c_void, stream: *mut c_void) -> c_int = memory::free_async;
    plain fn cudaHostRegister(ptr: *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::register;
    plain fn cudaHostUnregister(ptr: *mut c_void) -> c_int = memory::unregister;
    plain fn cudaHostGetDevicePointer(to: *mut *mut c_void, ptr: *mut c_void, flags: c_uint) -> c_int = memory::host_device_pointer;
    plain fn cudaHostGetFlags(flags: *mut c_uint, ptr: *mut c_void) -> c_int = memory::host_flags;
    plain fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int = memory::info;
    ptds fn cudaMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = memory::copy;
    ptsz fn cudaMemcpyAsync(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int, stream: *mut c_void) -> c_int = memory::copy_on;
    plain fn cudaMemcpyPeer(dst: *mut c_void, to: c_int, src: *const c_void, from: c_int, bytes: usize) -> c_int = memory::copy_peer;
    plain fn cudaMemcpyPeerAsync(dst: *mut c_void, to: c_int, src: *const c_void, from: c_int, bytes: usize, stream: *mut c_void) -> c_int = memory::copy_peer_on;
    ptds fn cudaMemcpy2D(dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, direction: c_int) -> c_int = memory::copy_2d;
    ptsz fn cudaMemcpy2DAsync(dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, direction: c_int, stream: *mut c_void) -> c_int = memory::copy_2d_on;
    ptds fn cudaMemset(dst: *mut c_void, value: c_int, bytes: usize) -> c_int = memory::fill;
    ptsz fn cudaMemsetAsync(dst: *mut c_void, value: c_int, bytes: usize, stream: *mut c_void) -> c_int = memory::fill_on;
    ptds fn cudaMemset2D(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> c_int = memory::fill_2d;
    ptsz fn cudaMemset2DAsync(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: *mut c_void) -> c_int = memory::fill_2d_on;
    plain fn cudaIpcGetMemHandle(handle: *mut [u8; 64], ptr: *mut c_void) -> c_int = memory::ipc_get;
    plain fn cudaIpcOpenMemHandle(ptr: *mut *mut c_void, handle: memory::Handle, flags: c_uint) -> c_int = memory::ipc_open;
    plain fn cudaIpcCloseMemHandle(ptr: *mut c_void) -> c_int = memory::ipc_close;
    plain fn cudaStreamCreate(stream: *mut *mut c_void) -> c_int = streams::create;
    plain fn cudaStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) -> c_int = streams::create_with_flags;
    plain fn cudaStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) -> c_int = streams::create_with_priority;
    plain fn cudaStreamDestroy(stream: *mut c_void) -> c_int = streams::destroy;
    ptsz fn cudaStreamSynchronize(stream: *mut c_void) -> c_int = streams::synchronize;
    ptsz fn cudaStreamQuery(stream: *mut c_void) -> c_int = streams::query;
    ptsz fn cudaStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) -> c_int = streams::wait_event;
    ptsz fn cudaStreamGetFlags(stream: *mut c_void, flags: *mut c_uint) -> c_int = streams::get_flags;
    ptsz fn cudaStreamGetPriority(stream: *mut c_void, priority: *mut c_int) -> c_int = streams::get_priority;
    ptsz fn cudaStreamGetDevice(stream: *mut c_void, device: *mut c_int) -> c_int = streams::get_device;
    ptsz fn cudaStreamAddCallback(stream: *mut c_void, callback: streams::Callback, data: *mut c_void, flags: c_uint) -> c_int = streams::add_callback;
    ptsz fn cudaLaunchHostFunc(stream: *mut c_void, function: streams::HostFn, data: *mut c_void) -> c_int = streams::launch_host_func;
    plain fn cudaEventCreate(event: *mut *mut c_void) -> c_int = events::create;
    plain fn cudaEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint) -> c_int = events::create_with_flags;
    ptsz fn cudaEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int = events::record;
    plain fn cudaEventQuery(event: *mut c_void) -> c_int = events::query;
    plain fn cudaEventSynchronize(event: *mut c_void) -> c_int = events::synchronize;
    plain fn cudaEventDestroy(event: *mut c_void) -> c_int = events::destroy;
    plain fn cudaEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int = events::elapsed_time;
    ptsz fn cudaStreamBeginCapture(stream: *mut c_void, mode: c_int) -> c_int = capture::begin;
    ptsz fn cudaStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int = capture::end;
    ptsz fn cudaStreamIsCapturing(stream: *mut c_void, state: *mut c_int) -> c_int = capture::is_capturing;
    plain fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int = capture::exchange_mode;
    ptsz fn cudaGraphLaunch(exec: *mut c_void, stream: *mut c_void) -> c_int = capture::launch;
    plain fn cudaGraphDestroy(graph: *mut c_void) -> c_int = capture::destroy;
    plain fn cudaGraphExecDestroy(exec: *mut c_void) -> c_int = capture::exec_destroy;
    plain fn cudaGraphClone(copy: *mut *mut c_void, graph: *mut c_void) -> c_int = capture::clone;
    plain fn cudaGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = capture::nodes;
    plain fn cudaGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) -> c_int = capture::instantiate;
    ptsz fn cudaGraphUpload(exec: *mut c_void, stream: *mut c_void) -> c_int = capture::upload;
    plain fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int = device::attribute;
    plain fn cudaInitDevice() -> c_int = device::nothing;
    plain fn cudaSetValidDevices() -> c_int = device::nothing;
    plain fn cudaDeviceFlushGPUDirectRDMAWrites() -> c_int = device::nothing;
    plain fn cudaChooseDevice(device: *mut c_int, properties: *const c_void) -> c_int = device::choose;
    plain fn cudaPointerGetAttributes(to: *mut memory::Attributes, ptr: *const c_void) -> c_int = memory::attributes;
    ptsz fn cudaMemPrefetchAsync() -> c_int = device::nothing;
    ptsz fn cudaStreamGetId(stream: *mut c_void, id: *mut c_ulonglong) -> c_int = streams::get_id;
    ptsz fn cudaEventRecordWithFlags(event: *mut c_void, stream: *mut c_void, flags: c_uint) -> c_int = events::record_with_flags;
    plain fn cudaGraphInstantiate(exec: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) -> c_int = capture::instantiate;
    ptsz fn cudaGraphInstantiateWithParams(exec: *mut *mut c_void, graph: *mut c_void, params: *mut capture::InstantiateParams) -> c_int = capture::instantiate_with_params;
    plain fn cudaGraphExecUpdate(exec: *mut c_void, graph: *mut c_void, info: *mut capture::UpdateInfo) -> c_int = capture::update;
    ptsz fn __cudaLaunchKernel() -> c_int = kernel::launch;
    ptsz fn cudaLaunchKernel() -> c_int = kernel::launch;
    ptsz fn cudaLaunchKernelExC() -> c_int = kernel::launch;
    ptsz fn cudaLaunchCooperativeKernel() -> c_int = kernel::launch;
    plain fn __cudaPopCallConfiguration() -> c_int = kernel::pop_configuration;
    raw fn cudaGetLastError() -> c_int = error::get_last;
    raw fn cudaPeekAtLastError() -> c_int = error::peek_at_last;
    raw fn cudaGetErrorName(error: c_int) -> *const c_char = error::cuda_name;
    raw fn cudaGetErrorString(error: c_int) -> *const c_char = error::cuda_words;
    raw fn __cudaPushCallConfiguration() -> c_int = kernel::push_configuration;
    raw fn __cudaRegisterFatBinary() -> *mut c_void = kernel::register;
    raw fn __cudaRegisterFatBinaryEnd() -> () = kernel::ignore;
    raw fn __cudaUnregisterFatBinary() -> () = kernel::ignore;
    raw fn __cudaRegisterFunction() -> () = kernel::ignore;
    raw fn __cudaRegisterVar() -> () = kernel::ignore;
    raw fn __cudaRegisterManagedVar() -> () = kernel::ignore;
    raw fn __cudaRegisterHostVar() -> () = kernel::ignore;
    raw fn __cudaInitModule() -> c_int = kernel::push_configuration;
} }; }

// table cuda12
#[doc(hidden)]
#[macro_export]
macro_rules! cuda12_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn cudaDriverGetVersion(version: *mut c_int) -> c_int = device::version12;
    plain fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int = device::version12;
    plain fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int = device::properties11;
    plain fn cudaGetDeviceProperties_v2(to: *mut c_void, device: c_int) -> c_int = device::properties12;
    plain fn cudaThreadSynchronize() -> c_int = device::synchronize;
    plain fn cudaThreadExit() -> c_int = device::reset;
    plain fn cudaEventElapsedTime_v2(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int = events::elapsed_time;
    ptsz fn cudaMemPrefetchAsync_v2() -> c_int = device::nothing;
    plain fn cudaMemAdvise_v2() -> c_int = device::nothing;
    ptsz fn cudaStreamGetCaptureInfo(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong) -> c_int = capture::info;
    ptsz fn cudaStreamGetCaptureInfo_v2(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const c_void, count: *mut usize) -> c_int = capture::info_v2;
    ptsz fn cudaStreamGetCaptureInfo_v3(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const c_void, edges: *mut *const c_void, count: *mut usize) -> c_int = capture::info_v3;
    plain fn cudaLaunchCooperativeKernelMultiDevice() -> c_int = kernel::launch;
} }; }

// table cuda13
#[doc(hidden)]
#[macro_export]
macro_rules! cuda13_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn cudaDriverGetVersion(version: *mut c_int) -> c_int = device::version13;
    plain fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int = device::version13;
    plain fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int = device::properties13;
    ptsz fn cudaStreamGetCaptureInfo(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const c_void, edges: *mut *const c_void, count: *mut usize) -> c_int = capture::info_v3;
    ptsz fn cudaLaunchHostFunc_v2(stream: *mut c_void, function: streams::HostFn, data: *mut c_void, sync: c_uint) -> c_int = streams::launch_host_func_v2;
} }; }

// table hip
#[doc(hidden)]
#[macro_export]
macro_rules! hip_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn hipGetDeviceCount(count: *mut c_int) -> c_int = device::count;
    plain fn hipGetDevice(device: *mut c_int) -> c_int = device::get;
    plain fn hipSetDevice(device: c_int) -> c_int = device::set;
    plain fn hipDeviceSynchronize() -> c_int = device::synchronize;
    plain fn hipDeviceReset() -> c_int = device::reset;
    plain fn hipDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int = device::pci_bus_id;
    plain fn hipDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int = device::by_pci_bus_id;
    plain fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int = device::can_access_peer;
    plain fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int = device::enable_peer;
    plain fn hipDeviceDisablePeerAccess(peer: c_int) -> c_int = device::disable_peer;
    plain fn hipDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> c_int = device::p2p_attribute;
    plain fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int = streams::priority_range;
    plain fn hipSetDeviceFlags() -> c_int = device::nothing;
    plain fn hipGetDeviceFlags(flags: *mut c_uint) -> c_int = device::zero_flags;
    plain fn hipDeviceSetLimit() -> c_int = device::nothing;
    plain fn hipDeviceGetLimit(value: *mut usize, limit: c_int) -> c_int = device::get_limit;
    plain fn hipDeviceSetCacheConfig() -> c_int = device::nothing;
    plain fn hipDeviceGetCacheConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn hipDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = device::pool;
    plain fn hipDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = device::pool;
    plain fn hipDeviceSetMemPool() -> c_int = device::nothing;
    plain fn hipMemPoolSetAttribute() -> c_int = device::nothing;
    plain fn hipMemPoolTrimTo() -> c_int = device::nothing;
    plain fn hipProfilerStart() -> c_int = device::nothing;
    plain fn hipProfilerStop() -> c_int = device::nothing;
    plain fn hipMemAdvise() -> c_int = device::nothing;
    plain fn hipMalloc(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc;
    plain fn hipMallocHost(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc_host;
    plain fn hipHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::host_alloc;
    plain fn hipMallocManaged(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::malloc_managed;
    plain fn hipMallocPitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> c_int = memory::malloc_pitch;
    plain fn hipMallocAsync(ptr: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> c_int = memory::malloc_async;
    plain fn hipMallocFromPoolAsync(ptr: *mut *mut c_void, bytes: usize, pool: *mut c_void, stream: *mut c_void) -> c_int = memory::malloc_from_pool;
    plain fn hipFree(ptr: *mut c_void) -> c_int = memory::free;
    plain fn hipFreeHost(ptr: *mut c_void) -> c_int = memory::free;
    plain fn hipFreeAsync(ptr: *mut c_void, stream: *mut c_void) -> c_int = memory::free_async;
    plain fn hipHostRegister(ptr: *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::register;
    plain fn hipHostUnregister(ptr: *mut c_void) -> c_int = memory::unregister;
    plain fn hipHostGetDevicePointer(to: *mut *mut c_void, ptr: *mut c_void, flags: c_uint) -> c_int = memory::host_device_pointer;
    plain fn hipHostGetFlags(flags: *mut c_uint, ptr: *mut c_void) -> c_int = memory::host_flags;
    plain fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> c_int = memory::info;
    spt fn hipMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = memory::copy;
    spt fn hipMemcpyAsync(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int, stream: *mut c_void) -> c_int = memory::copy_on;
    plain fn hipMemcpyPeer(dst: *mut c_void, to: c_int, src: *const c_void, from: c_int, bytes: usize) -> c_int = memory::copy_peer;
    plain fn hipMemcpyPeerAsync(dst: *mut c_void, to: c_int, src: *const c_void, from: c_int, bytes: usize, stream: *mut c_void) -> c_int = memory::copy_peer_on;
    spt fn hipMemcpy2D(dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, direction: c_int) -> c_int = memory::copy_2d;
    spt fn hipMemcpy2DAsync(dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize, width: usize, height: usize, direction: c_int, stream: *mut c_void) -> c_int = memory::copy_2d_on;
    spt fn hipMemset(dst: *mut c_void, value: c_int, bytes: usize) -> c_int = memory::fill;
    spt fn hipMemsetAsync(dst: *mut c_void, value: c_int, bytes: usize, stream: *mut c_void) -> c_int = memory::fill_on;
    spt fn hipMemset2D(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> c_int = memory::fill_2d;
    spt fn hipMemset2DAsync(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: *mut c_void) -> c_int = memory::fill_2d_on;
    plain fn hipIpcGetMemHandle(handle: *mut [u8; 64], ptr: *mut c_void) -> c_int = memory::ipc_get;
    plain fn hipIpcOpenMemHandle(ptr: *mut *mut c_void, handle: memory::Handle, flags: c_uint) -> c_int = memory::ipc_open;
    plain fn hipIpcCloseMemHandle(ptr: *mut c_void) -> c_int = memory::ipc_close;
    plain fn hipStreamCreate(stream: *mut *mut c_void) -> c_int = streams::create;
    plain fn hipStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) -> c_int = streams::create_with_flags;
    plain fn hipStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) -> c_int = streams::create_with_priority;
    plain fn hipStreamDestroy(stream: *mut c_void) -> c_int = streams::destroy;
    spt fn hipStreamSynchronize(stream: *mut c_void) -> c_int = streams::synchronize;
    spt fn hipStreamQuery(stream: *mut c_void) -> c_int = streams::query;
    spt fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) -> c_int = streams::wait_event;
    spt fn hipStreamGetFlags(stream: *mut c_void, flags: *mut c_uint) -> c_int = streams::get_flags;
    spt fn hipStreamGetPriority(stream: *mut c_void, priority: *mut c_int) -> c_int = streams::get_priority;
    plain fn hipStreamGetDevice(stream: *mut c_void, device: *mut c_int) -> c_int = streams::get_device;
    spt fn hipStreamAddCallback(stream: *mut c_void, callback: streams::Callback, data: *mut c_void, flags: c_uint) -> c_int = streams::add_callback;
    spt fn hipLaunchHostFunc(stream: *mut c_void, function: streams::HostFn, data: *mut c_void) -> c_int = streams::launch_host_func;
    plain fn hipEventCreate(event: *mut *mut c_void) -> c_int = events::create;
    plain fn hipEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint) -> c_int = events::create_with_flags;
    spt fn hipEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int = events::record;
    plain fn hipEventQuery(event: *mut c_void) -> c_int = events::query;
    plain fn hipEventSynchronize(event: *mut c_void) -> c_int = events::synchronize;
    plain fn hipEventDestroy(event: *mut c_void) -> c_int = events::destroy;
    plain fn hipEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int = events::elapsed_time;
    spt fn hipStreamBeginCapture(stream: *mut c_void, mode: c_int) -> c_int = capture::begin;
    spt fn hipStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int = capture::end;
    spt fn hipStreamIsCapturing(stream: *mut c_void, state: *mut c_int) -> c_int = capture::is_capturing;
    plain fn hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int = capture::exchange_mode;
    spt fn hipGraphLaunch(exec: *mut c_void, stream: *mut c_void) -> c_int = capture::launch;
    plain fn hipGraphDestroy(graph: *mut c_void) -> c_int = capture::destroy;
    plain fn hipGraphExecDestroy(exec: *mut c_void) -> c_int = capture::exec_destroy;
    plain fn hipGraphClone(copy: *mut *mut c_void, graph: *mut c_void) -> c_int = capture::clone;
    plain fn hipGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = capture::nodes;
    plain fn hipGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) -> c_int = capture::instantiate;
    plain fn hipGraphUpload(exec: *mut c_void, stream: *mut c_void) -> c_int = capture::upload;
    plain fn hipInit() -> c_int = device::nothing;
    plain fn hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int = device::attribute_hip;
    plain fn hipGetDevicePropertiesR0600(to: *mut c_void, device: c_int) -> c_int = device::properties_hip;
    plain fn hipChooseDeviceR0600(device: *mut c_int, properties: *const c_void) -> c_int = device::choose;
    plain fn hipDeviceGetName(text: *mut c_char, bytes: c_int, device: c_int) -> c_int = device::name;
    plain fn hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> c_int = device::total_memory;
    plain fn hipDeviceGetUuid(to: *mut [u8; 16], device: c_int) -> c_int = device::get_uuid;
    plain fn hipDriverGetVersion(version: *mut c_int) -> c_int = device::version_hip;
    plain fn hipRuntimeGetVersion(version: *mut c_int) -> c_int = device::version_hip;
    plain fn hipHostMalloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::host_alloc;
    plain fn hipMemAllocHost(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc_host;
    plain fn hipHostFree(ptr: *mut c_void) -> c_int = memory::free;
    plain fn hipExtMallocWithFlags(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::malloc_flags;
    plain fn hipPointerGetAttributes(to: *mut memory::HipAttributes, ptr: *const c_void) -> c_int = memory::attributes_hip;
    plain fn hipMemGetAddressRange(base: *mut *mut c_void, bytes: *mut usize, ptr: *mut c_void) -> c_int = memory::address_range;
    plain fn hipMemcpyWithStream(dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int, stream: *mut c_void) -> c_int = memory::copy_with_stream;
    plain fn hipMemPrefetchAsync() -> c_int = device::nothing;
    plain fn hipMemsetD32(dst: *mut c_void, value: c_int, count: usize) -> c_int = memory::fill_d32;
    plain fn hipMemsetD32Async(dst: *mut c_void, value: c_int, count: usize, stream: *mut c_void) -> c_int = memory::fill_d32_on;
    spt fn hipStreamGetCaptureInfo(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong) -> c_int = capture::info;
    spt fn hipStreamGetCaptureInfo_v2(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const c_void, count: *mut usize) -> c_int = capture::info_v2;
    plain fn hipGraphInstantiate(exec: *mut *mut c_void, graph: *mut c_void, node: *mut *mut c_void, log: *mut c_char, bytes: usize) -> c_int = capture::instantiate_with_log;
    plain fn hipGraphExecUpdate(exec: *mut c_void, graph: *mut c_void, node: *mut *mut c_void, result: *mut c_int) -> c_int = capture::update_hip;
    plain fn __hipPopCallConfiguration() -> c_int = kernel::pop_configuration;
    plain fn hipMemcpyHtoD(dst: *mut c_void, src: *const c_void, bytes: usize) -> c_int = memory::copy_any;
    plain fn hipMemcpyDtoH(dst: *mut c_void, src: *const c_void, bytes: usize) -> c_int = memory::copy_any;
    plain fn hipMemcpyDtoD(dst: *mut c_void, src: *const c_void, bytes: usize) -> c_int = memory::copy_any;
    plain fn hipMemcpyHtoDAsync(dst: *mut c_void, src: *const c_void, bytes: usize, stream: *mut c_void) -> c_int = memory::copy_any_on;
    plain fn hipMemcpyDtoHAsync(dst: *mut c_void, src: *const c_void, bytes: usize, stream: *mut c_void) -> c_int = memory::copy_any_on;
    plain fn hipMemcpyDtoDAsync(dst: *mut c_void, src: *const c_void, bytes: usize, stream: *mut c_void) -> c_int = memory::copy_any_on;
    plain fn hipLaunchKernel() -> c_int = kernel::launch;
    plain fn hipLaunchKernel_spt() -> c_int = kernel::launch;
    plain fn hipExtLaunchKernel() -> c_int = kernel::launch;
    plain fn hipLaunchCooperativeKernel() -> c_int = kernel::launch;
    plain fn hipLaunchCooperativeKernelMultiDevice() -> c_int = kernel::launch;
    plain fn hipModuleLaunchKernel() -> c_int = kernel::launch;
    plain fn hipExtModuleLaunchKernel() -> c_int = kernel::launch;
    plain fn hipLaunchByPtr() -> c_int = kernel::launch;
    raw fn hipGetLastError() -> c_int = error::get_last;
    raw fn hipExtGetLastError() -> c_int = error::get_last;
    raw fn hipPeekAtLastError() -> c_int = error::peek_at_last;
    raw fn hipGetErrorName(error: c_int) -> *const c_char = error::hip_name;
    raw fn hipGetErrorString(error: c_int) -> *const c_char = error::hip_words;
    raw fn __hipPushCallConfiguration() -> c_int = kernel::push_configuration;
    raw fn __hipRegisterFatBinary() -> *mut c_void = kernel::register;
    raw fn __hipUnregisterFatBinary() -> () = kernel::ignore;
    raw fn __hipRegisterFunction() -> () = kernel::ignore;
    raw fn __hipRegisterVar() -> () = kernel::ignore;
    raw fn __hipRegisterManagedVar() -> () = kernel::ignore;
} }; }

/// Turns the rows of a table into exported symbols.
#[doc(hidden)]
#[macro_export]
macro_rules! export {
    ($which:tt $($kind:ident fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $module:ident::$body:ident;)*) => {
        $($crate::export_row! { $kind $name ($($arg: $type),*) $ret, $module::$body })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_row {
    (plain $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { [stringify!($name)] false $args $ret, $module::$body }
    };
    (ptsz $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { [concat!(stringify!($name), "_ptsz")] true $args $ret, $module::$body }
    };
    (ptds $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { [concat!(stringify!($name), "_ptds")] true $args $ret, $module::$body }
    };
    (spt $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { [concat!(stringify!($name), "_spt")] true $args $ret, $module::$body }
    };
    (raw $name:ident ($($arg:ident: $type:ty),*) $ret:ty, $module:ident::$body:ident) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::*;
            #[unsafe(export_name = stringify!($name))]
            unsafe extern "C" fn entry($($arg: $type),*) -> $ret {
                // SAFETY: the C caller promises what the runtime's documentation asks for.
                unsafe { $crate::$module::$body($($arg),*) }
            }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_symbol {
    ([$symbol:expr] $per_thread:literal ($($arg:ident: $type:ty),*) $ret:ty, $module:ident::$body:ident) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::*;
            #[unsafe(export_name = $symbol)]
            unsafe extern "C" fn entry($($arg: $type),*) -> $ret {
                // SAFETY: the C caller promises what the runtime's documentation asks for.
                $crate::entry::call($per_thread, || unsafe { $crate::$module::$body($($arg),*) })
            }
        };
    };
}

/// Exports functions that answer "not supported".
#[doc(hidden)]
#[macro_export]
macro_rules! stubs {
    ($($name:ident)*) => {
        $(const _: () = {
            #[unsafe(export_name = stringify!($name))]
            extern "C" fn entry() -> $crate::c_int {
                $crate::entry::unsupported()
            }
        };)*
    };
}
