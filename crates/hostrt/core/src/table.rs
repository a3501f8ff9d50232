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
    plain fn cudaDeviceReset() -> c_int = settings::reset;
    plain fn cudaDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int = device::pci_bus_id;
    plain fn cudaDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int = device::by_pci_bus_id;
    plain fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int = device::can_access_peer;
    plain fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int = settings::enable_peer;
    plain fn cudaDeviceDisablePeerAccess(peer: c_int) -> c_int = settings::disable_peer;
    plain fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> c_int = device::p2p_attribute;
    plain fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int = streams::priority_range;
    plain fn cudaSetDeviceFlags(flags: c_uint) -> c_int = settings::set_flags;
    plain fn cudaGetDeviceFlags(flags: *mut c_uint) -> c_int = settings::get_flags;
    plain fn cudaDeviceSetLimit(limit: c_int, value: usize) -> c_int = settings::set_limit;
    plain fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) -> c_int = settings::get_limit;
    plain fn cudaDeviceSetCacheConfig() -> c_int = device::nothing;
    plain fn cudaDeviceGetCacheConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn cudaDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = pools::default_pool;
    plain fn cudaDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = pools::current_pool;
    plain fn cudaDeviceSetMemPool(device: c_int, pool: *mut c_void) -> c_int = pools::set_current_pool;
    plain fn cudaMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *const c_void) -> c_int = pools::set_attribute;
    plain fn cudaMemPoolTrimTo(pool: *mut c_void, keep: usize) -> c_int = pools::trim;
    plain fn cudaProfilerStart() -> c_int = device::nothing;
    plain fn cudaProfilerStop() -> c_int = device::nothing;
    plain fn cudaMemAdvise() -> c_int = device::nothing;
    plain fn cudaMalloc(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc;
    plain fn cudaMallocHost(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc_host;
    plain fn cudaHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::host_alloc;
    plain fn cudaMallocManaged(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::malloc_managed;
    plain fn cudaMallocPitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> c_int = memory::malloc_pitch;
    ptsz fn cudaMallocAsync(ptr: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> c_int = pools::malloc_async;
    ptsz fn cudaMallocFromPoolAsync(ptr: *mut *mut c_void, bytes: usize, pool: *mut c_void, stream: *mut c_void) -> c_int = pools::malloc_from_pool;
    plain fn cudaFree(ptr: *mut c_void) -> c_int = memory::free;
    plain fn cudaFreeHost(ptr: *mut c_void) -> c_int = memory::free;
    ptsz fn cudaFreeAsync(ptr: *mut c_void, stream: *mut c_void) -> c_int = pools::free_async;
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
    plain fn cudaGraphDestroy(graph: *mut c_void) -> c_int = graphs::destroy;
    plain fn cudaGraphExecDestroy(exec: *mut c_void) -> c_int = capture::exec_destroy;
    plain fn cudaGraphClone(copy: *mut *mut c_void, graph: *mut c_void) -> c_int = graphs::clone;
    plain fn cudaGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::nodes;
    plain fn cudaGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) -> c_int = capture::instantiate;
    ptsz fn cudaGraphUpload(exec: *mut c_void, stream: *mut c_void) -> c_int = capture::upload;
    plain fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int = device::attribute;
    plain fn cudaInitDevice(device: c_int, flags: c_uint, valid: c_uint) -> c_int = settings::init_device;
    plain fn cudaSetValidDevices(list: *const c_int, count: c_int) -> c_int = settings::valid_devices;
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
    raw fn __cudaRegisterFunction(binary: *mut c_void, host: *const c_void, device: *mut c_char, name: *const c_char) -> () = kernel::register_function;
    raw fn __cudaRegisterVar() -> () = kernel::ignore;
    raw fn __cudaRegisterManagedVar() -> () = kernel::ignore;
    raw fn __cudaRegisterHostVar() -> () = kernel::ignore;
    raw fn __cudaInitModule() -> c_int = kernel::push_configuration;
    plain fn cudaMemPoolCreate(pool: *mut *mut c_void, properties: *const pools::Properties) -> c_int = pools::create;
    plain fn cudaMemPoolDestroy(pool: *mut c_void) -> c_int = pools::destroy;
    plain fn cudaMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int = pools::get_attribute;
    plain fn cudaMemPoolSetAccess(pool: *mut c_void, list: *const pools::Access, count: usize) -> c_int = pools::set_access;
    plain fn cudaMemPoolGetAccess(flags: *mut c_int, pool: *mut c_void, location: *const [c_int; 2]) -> c_int = pools::get_access;
    plain fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut u64) -> c_int = pools::graph_attribute;
    plain fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *const u64) -> c_int = pools::set_graph_attribute;
    plain fn cudaDeviceGraphMemTrim(device: c_int) -> c_int = pools::graph_trim;
    plain fn cudaMemRangeGetAttribute(data: *mut c_int, bytes: usize, attribute: c_int, ptr: *const c_void, count: usize) -> c_int = pools::range_attribute;
    plain fn cudaMemRangeGetAttributes(data: *const *mut c_int, bytes: *const usize, attributes: *const c_int, count: usize, ptr: *const c_void, length: usize) -> c_int = pools::range_attributes;
    plain fn cudaMalloc3D(to: *mut volumes::Pitched, extent: volumes::Extent) -> c_int = memory::malloc_3d;
    ptds fn cudaMemcpy3D(volume: *const volumes::Volume) -> c_int = volumes::copy_3d;
    ptsz fn cudaMemcpy3DAsync(volume: *const volumes::Volume, stream: *mut c_void) -> c_int = volumes::copy_3d_on;
    ptds fn cudaMemset3D(to: volumes::Pitched, value: c_int, extent: volumes::Extent) -> c_int = volumes::fill_3d;
    ptsz fn cudaMemset3DAsync(to: volumes::Pitched, value: c_int, extent: volumes::Extent, stream: *mut c_void) -> c_int = volumes::fill_3d_on;
    plain fn cudaIpcGetEventHandle(handle: *mut [u8; 64], event: *mut c_void) -> c_int = events::ipc_get;
    plain fn cudaIpcOpenEventHandle(event: *mut *mut c_void, handle: memory::Handle) -> c_int = events::ipc_open;
    ptsz fn cudaStreamAttachMemAsync() -> c_int = device::nothing;
    ptsz fn cudaStreamGetAttribute(stream: *mut c_void, attribute: c_int, value: *mut [c_int; 16]) -> c_int = streams::get_attribute;
    ptsz fn cudaStreamSetAttribute(stream: *mut c_void, attribute: c_int, value: *const [c_int; 16]) -> c_int = streams::set_attribute;
    ptsz fn cudaStreamCopyAttributes(to: *mut c_void, from: *mut c_void) -> c_int = streams::copy_attributes;
    ptsz fn cudaStreamBeginCaptureToGraph(stream: *mut c_void, graph: *mut c_void, after: *const *mut c_void, edges: *const [u8; 8], count: usize, mode: c_int) -> c_int = capture::begin_to;
    plain fn cudaGraphCreate(graph: *mut *mut c_void, flags: c_uint) -> c_int = graphs::create;
    plain fn cudaGraphDestroyNode(node: *mut c_void) -> c_int = graphs::destroy_node;
    plain fn cudaGraphGetRootNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::roots;
    plain fn cudaGraphNodeFindInClone(node: *mut *mut c_void, original: *mut c_void, clone: *mut c_void) -> c_int = graphs::find_in_clone;
    plain fn cudaGraphNodeGetType(node: *mut c_void, kind: *mut c_int) -> c_int = nodes::kind;
    plain fn cudaGraphDebugDotPrint(graph: *mut c_void, path: *const c_char, flags: c_uint) -> c_int = graphs::draw;
    plain fn cudaGraphNodeSetEnabled(exec: *mut c_void, node: *mut c_void, on: c_uint) -> c_int = graphs::enable;
    plain fn cudaGraphNodeGetEnabled(exec: *mut c_void, node: *mut c_void, on: *mut c_uint) -> c_int = graphs::is_enabled;
    plain fn cudaGraphExecGetFlags(exec: *mut c_void, flags: *mut u64) -> c_int = graphs::exec_flags;
    plain fn cudaUserObjectCreate(object: *mut *mut c_void, data: *mut c_void, destroy: streams::HostFn, count: c_uint, flags: c_uint) -> c_int = graphs::object;
    plain fn cudaUserObjectRetain(object: *mut c_void, count: c_uint) -> c_int = graphs::retain;
    plain fn cudaUserObjectRelease(object: *mut c_void, count: c_uint) -> c_int = graphs::release;
    plain fn cudaGraphRetainUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint, flags: c_uint) -> c_int = graphs::hold;
    plain fn cudaGraphReleaseUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint) -> c_int = graphs::let_go;
    plain fn cudaGraphAddKernelNode() -> c_int = kernel::launch;
    plain fn cudaFuncSetCacheConfig(function: *const c_void) -> c_int = kernel::hint;
    plain fn cudaFuncSetAttribute(function: *const c_void) -> c_int = kernel::hint;
    plain fn cudaFuncSetSharedMemConfig(function: *const c_void) -> c_int = kernel::hint;
    plain fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize) -> c_int = kernel::occupancy;
    plain fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize, flags: c_uint) -> c_int = kernel::occupancy_with_flags;
    plain fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn cudaDeviceSetSharedMemConfig() -> c_int = device::nothing;
    ptsz fn cudaGetDriverEntryPoint(name: *const c_char, to: *mut *mut c_void, flags: u64, found: *mut c_int) -> c_int = settings::entry_point;
    plain fn cudaGraphAddMemcpyNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, volume: *const volumes::Volume) -> c_int = nodes::add_copy;
    plain fn cudaGraphMemcpyNodeGetParams(node: *mut c_void, volume: *mut volumes::Volume) -> c_int = nodes::get_copy;
    plain fn cudaGraphMemcpyNodeSetParams(node: *mut c_void, volume: *const volumes::Volume) -> c_int = nodes::set_copy;
    plain fn cudaGraphExecMemcpyNodeSetParams(exec: *mut c_void, node: *mut c_void, volume: *const volumes::Volume) -> c_int = nodes::exec_set_copy;
    plain fn cudaGraphAddHostNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, call: *const nodes::HostCall) -> c_int = nodes::add_host;
    plain fn cudaGraphHostNodeGetParams(node: *mut c_void, call: *mut nodes::HostCall) -> c_int = nodes::get_host;
    plain fn cudaGraphHostNodeSetParams(node: *mut c_void, call: *const nodes::HostCall) -> c_int = nodes::set_host;
    plain fn cudaGraphExecHostNodeSetParams(exec: *mut c_void, node: *mut c_void, call: *const nodes::HostCall) -> c_int = nodes::exec_set_host;
    plain fn cudaGraphAddEmptyNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize) -> c_int = nodes::add_empty;
    plain fn cudaGraphAddMemcpyNode1D(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::add_copy_row;
    plain fn cudaGraphMemcpyNodeSetParams1D(node: *mut c_void, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::set_copy_row;
    plain fn cudaGraphExecMemcpyNodeSetParams1D(exec: *mut c_void, node: *mut c_void, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::exec_set_copy_row;
    plain fn cudaGraphAddChildGraphNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, child: *mut c_void) -> c_int = nodes::add_child;
    plain fn cudaGraphChildGraphNodeGetGraph(node: *mut c_void, child: *mut *mut c_void) -> c_int = nodes::get_child;
    plain fn cudaGraphExecChildGraphNodeSetParams(exec: *mut c_void, node: *mut c_void, child: *mut c_void) -> c_int = nodes::exec_set_child;
    plain fn cudaGraphAddMemAllocNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, parameters: *mut nodes::Allocation) -> c_int = nodes::add_alloc;
    plain fn cudaGraphMemAllocNodeGetParams(node: *mut c_void, parameters: *mut nodes::Allocation) -> c_int = nodes::get_alloc;
    plain fn cudaGraphAddMemFreeNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, ptr: *mut c_void) -> c_int = nodes::add_free;
    plain fn cudaGraphMemFreeNodeGetParams(node: *mut c_void, ptr: *mut *mut c_void) -> c_int = nodes::get_free;
    plain fn cudaGraphAddEventRecordNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, event: *mut c_void) -> c_int = nodes::add_record;
    plain fn cudaGraphEventRecordNodeGetEvent(node: *mut c_void, event: *mut *mut c_void) -> c_int = nodes::get_record;
    plain fn cudaGraphEventRecordNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int = nodes::set_record;
    plain fn cudaGraphExecEventRecordNodeSetEvent(exec: *mut c_void, node: *mut c_void, event: *mut c_void) -> c_int = nodes::exec_set_record;
    plain fn cudaGraphAddEventWaitNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, event: *mut c_void) -> c_int = nodes::add_wait;
    plain fn cudaGraphEventWaitNodeGetEvent(node: *mut c_void, event: *mut *mut c_void) -> c_int = nodes::get_wait;
    plain fn cudaGraphEventWaitNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int = nodes::set_wait;
    plain fn cudaGraphExecEventWaitNodeSetEvent(exec: *mut c_void, node: *mut c_void, event: *mut c_void) -> c_int = nodes::exec_set_wait;
    ptds fn cudaMemcpy3DPeer(volume: *const volumes::PeerVolume) -> c_int = volumes::copy_3d_peer;
    ptsz fn cudaMemcpy3DPeerAsync(volume: *const volumes::PeerVolume, stream: *mut c_void) -> c_int = volumes::copy_3d_peer_on;
    plain fn cudaFuncGetAttributes(to: *mut kernel::CudaAttributes, function: *const c_void) -> c_int = kernel::attributes;
    plain fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) -> c_int = kernel::name_of;
    plain fn cudaOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, function: *const c_void, blocks: c_int, block: c_int) -> c_int = kernel::occupancy_shared;
    ptsz fn cudaGetDriverEntryPointByVersion(name: *const c_char, to: *mut *mut c_void, version: c_uint, flags: u64, found: *mut c_int) -> c_int = settings::entry_point_by_version;
    plain fn cudaGetExportTable(to: *mut *const c_void, id: *const c_void) -> c_int = settings::export_table;
    plain fn cudaCtxResetPersistingL2Cache() -> c_int = device::nothing;
    plain fn cudaGraphNodeSetParams(node: *mut c_void, parameters: *mut nodes::Any) -> c_int = nodes::set_any;
    plain fn cudaGraphExecNodeSetParams(exec: *mut c_void, node: *mut c_void, parameters: *mut nodes::Any) -> c_int = nodes::exec_set_any;
    plain fn cudaGraphAddMemsetNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, fill: *const nodes::CudaFill) -> c_int = nodes::add_fill;
    plain fn cudaGraphMemsetNodeGetParams(node: *mut c_void, fill: *mut nodes::CudaFill) -> c_int = nodes::get_fill;
    plain fn cudaGraphMemsetNodeSetParams(node: *mut c_void, fill: *const nodes::CudaFill) -> c_int = nodes::set_fill;
    plain fn cudaGraphExecMemsetNodeSetParams(exec: *mut c_void, node: *mut c_void, fill: *const nodes::CudaFill) -> c_int = nodes::exec_set_fill;
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
    plain fn cudaThreadExit() -> c_int = settings::reset;
    plain fn cudaEventElapsedTime_v2(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int = events::elapsed_time;
    ptsz fn cudaMemPrefetchAsync_v2() -> c_int = device::nothing;
    plain fn cudaMemAdvise_v2() -> c_int = device::nothing;
    ptsz fn cudaStreamGetCaptureInfo(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong) -> c_int = capture::info;
    ptsz fn cudaStreamGetCaptureInfo_v2(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const *mut c_void, count: *mut usize) -> c_int = capture::info_v2;
    ptsz fn cudaStreamGetCaptureInfo_v3(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const *mut c_void, edges: *mut *const [u8; 8], count: *mut usize) -> c_int = capture::info_v3;
    plain fn cudaLaunchCooperativeKernelMultiDevice() -> c_int = kernel::launch;
    plain fn cudaGraphGetEdges(graph: *mut c_void, from: *mut *mut c_void, to: *mut *mut c_void, count: *mut usize) -> c_int = graphs::edges;
    plain fn cudaGraphNodeGetDependencies(node: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::dependencies;
    plain fn cudaGraphNodeGetDependentNodes(node: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::dependents;
    plain fn cudaGraphAddDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, count: usize) -> c_int = graphs::link;
    plain fn cudaGraphRemoveDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, count: usize) -> c_int = graphs::unlink;
    plain fn cudaGraphGetEdges_v2(graph: *mut c_void, from: *mut *mut c_void, to: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::edges_v2;
    plain fn cudaGraphNodeGetDependencies_v2(node: *mut c_void, nodes: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::dependencies_v2;
    plain fn cudaGraphNodeGetDependentNodes_v2(node: *mut c_void, nodes: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::dependents_v2;
    plain fn cudaGraphAddDependencies_v2(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, edges: *const [u8; 8], count: usize) -> c_int = graphs::link_v2;
    plain fn cudaGraphRemoveDependencies_v2(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, edges: *const [u8; 8], count: usize) -> c_int = graphs::unlink_v2;
    plain fn cudaGraphAddNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, parameters: *mut nodes::Any) -> c_int = nodes::add_any;
    plain fn cudaGraphAddNode_v2(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, edges: *const [u8; 8], count: usize, parameters: *mut nodes::Any) -> c_int = nodes::add_any_v2;
    ptsz fn cudaStreamUpdateCaptureDependencies(stream: *mut c_void, nodes: *mut *mut c_void, count: usize, flags: c_uint) -> c_int = capture::set_dependencies;
    ptsz fn cudaStreamUpdateCaptureDependencies_v2(stream: *mut c_void, nodes: *mut *mut c_void, edges: *const [u8; 8], count: usize, flags: c_uint) -> c_int = capture::set_dependencies_v2;
    ptsz fn cudaMemcpyBatchAsync(dsts: *const *mut c_void, srcs: *const *const c_void, sizes: *const usize, count: usize, attributes: *const c_void, indices: *const usize, attribute_count: usize, failed: *mut usize, stream: *mut c_void) -> c_int = volumes::copy_batch12;
    ptsz fn cudaMemcpy3DBatchAsync(count: usize, ops: *const volumes::BatchVolume, failed: *mut usize, flags: u64, stream: *mut c_void) -> c_int = volumes::copy_3d_batch12;
    plain fn cudaThreadSetLimit(limit: c_int, value: usize) -> c_int = settings::set_limit;
    plain fn cudaThreadGetLimit(value: *mut usize, limit: c_int) -> c_int = settings::get_limit;
    plain fn cudaThreadGetCacheConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn cudaThreadSetCacheConfig() -> c_int = device::nothing;
} }; }

// table cuda13
#[doc(hidden)]
#[macro_export]
macro_rules! cuda13_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn cudaDriverGetVersion(version: *mut c_int) -> c_int = device::version13;
    plain fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int = device::version13;
    plain fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int = device::properties13;
    ptsz fn cudaStreamGetCaptureInfo(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const *mut c_void, edges: *mut *const [u8; 8], count: *mut usize) -> c_int = capture::info_v3;
    ptsz fn cudaLaunchHostFunc_v2(stream: *mut c_void, function: streams::HostFn, data: *mut c_void, sync: c_uint) -> c_int = streams::launch_host_func_v2;
    plain fn cudaGraphGetEdges(graph: *mut c_void, from: *mut *mut c_void, to: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::edges_v2;
    plain fn cudaGraphNodeGetDependencies(node: *mut c_void, nodes: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::dependencies_v2;
    plain fn cudaGraphNodeGetDependentNodes(node: *mut c_void, nodes: *mut *mut c_void, edges: *mut [u8; 8], count: *mut usize) -> c_int = graphs::dependents_v2;
    plain fn cudaGraphAddDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, edges: *const [u8; 8], count: usize) -> c_int = graphs::link_v2;
    plain fn cudaGraphRemoveDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, edges: *const [u8; 8], count: usize) -> c_int = graphs::unlink_v2;
    plain fn cudaGraphAddNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, edges: *const [u8; 8], count: usize, parameters: *mut nodes::Any) -> c_int = nodes::add_any_v2;
    ptsz fn cudaStreamUpdateCaptureDependencies(stream: *mut c_void, nodes: *mut *mut c_void, edges: *const [u8; 8], count: usize, flags: c_uint) -> c_int = capture::set_dependencies_v2;
    ptsz fn cudaMemcpyBatchAsync(dsts: *const *mut c_void, srcs: *const *const c_void, sizes: *const usize, count: usize, attributes: *const c_void, indices: *const usize, attribute_count: usize, stream: *mut c_void) -> c_int = volumes::copy_batch13;
    ptsz fn cudaMemcpy3DBatchAsync(count: usize, ops: *const volumes::BatchVolume, flags: u64, stream: *mut c_void) -> c_int = volumes::copy_3d_batch13;
    ptsz fn cudaMemcpyWithAttributesAsync(dst: *mut c_void, src: *const c_void, bytes: usize, attributes: *const c_void, stream: *mut c_void) -> c_int = volumes::copy_with_attributes;
    ptsz fn cudaMemPrefetchBatchAsync() -> c_int = device::nothing;
    ptsz fn cudaMemDiscardBatchAsync() -> c_int = device::nothing;
    ptsz fn cudaMemDiscardAndPrefetchBatchAsync() -> c_int = device::nothing;
    plain fn cudaMemGetDefaultMemPool(pool: *mut *mut c_void, location: *const [c_int; 2], kind: c_int) -> c_int = pools::default_pool_at;
    plain fn cudaMemGetMemPool(pool: *mut *mut c_void, location: *const [c_int; 2], kind: c_int) -> c_int = pools::current_pool_at;
    plain fn cudaMemSetMemPool(location: *const [c_int; 2], kind: c_int, pool: *mut c_void) -> c_int = pools::set_current_pool_at;
    plain fn cudaGraphNodeGetContainingGraph(node: *mut c_void, graph: *mut *mut c_void) -> c_int = graphs::containing_graph;
    plain fn cudaGraphNodeGetLocalId(node: *mut c_void, id: *mut c_uint) -> c_int = graphs::local_id;
    plain fn cudaGraphNodeGetToolsId(node: *mut c_void, id: *mut u64) -> c_int = graphs::tools_id;
} }; }

// table hip
#[doc(hidden)]
#[macro_export]
macro_rules! hip_functions { ($($then:ident)::+ ! ($which:tt)) => { $($then)::+! { $which
    plain fn hipGetDeviceCount(count: *mut c_int) -> c_int = device::count;
    plain fn hipGetDevice(device: *mut c_int) -> c_int = device::get;
    plain fn hipSetDevice(device: c_int) -> c_int = device::set;
    plain fn hipDeviceSynchronize() -> c_int = device::synchronize;
    plain fn hipDeviceReset() -> c_int = settings::reset;
    plain fn hipDeviceGetPCIBusId(text: *mut c_char, bytes: c_int, device: c_int) -> c_int = device::pci_bus_id;
    plain fn hipDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int = device::by_pci_bus_id;
    plain fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int = device::can_access_peer;
    plain fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int = settings::enable_peer;
    plain fn hipDeviceDisablePeerAccess(peer: c_int) -> c_int = settings::disable_peer;
    plain fn hipDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) -> c_int = device::p2p_attribute_hip;
    plain fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int = streams::priority_range;
    plain fn hipSetDeviceFlags(flags: c_uint) -> c_int = settings::set_flags;
    plain fn hipGetDeviceFlags(flags: *mut c_uint) -> c_int = settings::get_flags;
    plain fn hipDeviceSetLimit(limit: c_int, value: usize) -> c_int = settings::set_limit;
    plain fn hipDeviceGetLimit(value: *mut usize, limit: c_int) -> c_int = settings::get_limit;
    plain fn hipDeviceSetCacheConfig() -> c_int = device::nothing;
    plain fn hipDeviceGetCacheConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn hipDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = pools::default_pool;
    plain fn hipDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) -> c_int = pools::current_pool;
    plain fn hipDeviceSetMemPool(device: c_int, pool: *mut c_void) -> c_int = pools::set_current_pool;
    plain fn hipMemPoolSetAttribute(pool: *mut c_void, attribute: c_int, value: *const c_void) -> c_int = pools::set_attribute;
    plain fn hipMemPoolTrimTo(pool: *mut c_void, keep: usize) -> c_int = pools::trim;
    plain fn hipProfilerStart() -> c_int = device::nothing;
    plain fn hipProfilerStop() -> c_int = device::nothing;
    plain fn hipMemAdvise() -> c_int = device::nothing;
    plain fn hipMalloc(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc;
    plain fn hipMallocHost(ptr: *mut *mut c_void, bytes: usize) -> c_int = memory::malloc_host;
    plain fn hipHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::host_alloc;
    plain fn hipMallocManaged(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int = memory::malloc_managed;
    plain fn hipMallocPitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> c_int = memory::malloc_pitch;
    plain fn hipMallocAsync(ptr: *mut *mut c_void, bytes: usize, stream: *mut c_void) -> c_int = pools::malloc_async;
    plain fn hipMallocFromPoolAsync(ptr: *mut *mut c_void, bytes: usize, pool: *mut c_void, stream: *mut c_void) -> c_int = pools::malloc_from_pool;
    plain fn hipFree(ptr: *mut c_void) -> c_int = memory::free;
    plain fn hipFreeHost(ptr: *mut c_void) -> c_int = memory::free;
    plain fn hipFreeAsync(ptr: *mut c_void, stream: *mut c_void) -> c_int = pools::free_async;
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
    plain fn hipGraphDestroy(graph: *mut c_void) -> c_int = graphs::destroy;
    plain fn hipGraphExecDestroy(exec: *mut c_void) -> c_int = capture::exec_destroy;
    plain fn hipGraphClone(copy: *mut *mut c_void, graph: *mut c_void) -> c_int = graphs::clone;
    plain fn hipGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::nodes;
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
    spt fn hipStreamGetCaptureInfo_v2(stream: *mut c_void, state: *mut c_int, id: *mut c_ulonglong, graph: *mut *mut c_void, dependencies: *mut *const *mut c_void, count: *mut usize) -> c_int = capture::info_v2;
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
    raw fn __hipRegisterFunction(binary: *mut c_void, host: *const c_void, device: *mut c_char, name: *const c_char) -> () = kernel::register_function;
    raw fn __hipRegisterVar() -> () = kernel::ignore;
    plain fn hipMemsetD8(dst: *mut c_void, value: u8, count: usize) -> c_int = memory::fill_d8;
    plain fn hipMemsetD8Async(dst: *mut c_void, value: u8, count: usize, stream: *mut c_void) -> c_int = memory::fill_d8_on;
    plain fn hipMemsetD16(dst: *mut c_void, value: u16, count: usize) -> c_int = memory::fill_d16;
    plain fn hipMemsetD16Async(dst: *mut c_void, value: u16, count: usize, stream: *mut c_void) -> c_int = memory::fill_d16_on;
    plain fn hipMemcpy3DPeer(volume: *const volumes::PeerVolume) -> c_int = volumes::copy_3d_peer;
    plain fn hipMemcpy3DPeerAsync(volume: *const volumes::PeerVolume, stream: *mut c_void) -> c_int = volumes::copy_3d_peer_on;
    plain fn hipMemcpyBatchAsync(dsts: *const *mut c_void, srcs: *const *const c_void, sizes: *const usize, count: usize, attributes: *const c_void, indices: *const usize, attribute_count: usize, failed: *mut usize, stream: *mut c_void) -> c_int = volumes::copy_batch12;
    plain fn hipMemPrefetchAsync_v2() -> c_int = device::nothing;
    plain fn hipMemAdvise_v2() -> c_int = device::nothing;
    plain fn hipStreamGetId(stream: *mut c_void, id: *mut c_ulonglong) -> c_int = streams::get_id;
    plain fn hipOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, function: *const c_void, blocks: c_int, block: c_int) -> c_int = kernel::occupancy_shared;
    plain fn hipSetValidDevices(list: *const c_int, count: c_int) -> c_int = settings::valid_devices;
    plain fn hipDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int = device::by_number;
    plain fn hipMemAllocPitch(ptr: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize, element: c_uint) -> c_int = memory::alloc_pitch;
    plain fn hipMemPtrGetInfo(ptr: *mut c_void, bytes: *mut usize) -> c_int = memory::size_of_allocation;
    raw fn hipGetStreamDeviceId(stream: *mut c_void) -> c_int = streams::device_of;
    plain fn hipLaunchKernelExC() -> c_int = kernel::launch;
    plain fn hipDrvLaunchKernelEx() -> c_int = kernel::launch;
    plain fn hipModuleLaunchCooperativeKernel() -> c_int = kernel::launch;
    plain fn hipGetDevicePropertiesR0000(to: *mut c_void, device: c_int) -> c_int = hip_old::properties;
    plain fn hipGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int = hip_old::properties;
    plain fn hipChooseDevice(device: *mut c_int, properties: *const c_void) -> c_int = device::choose;
    plain fn hipChooseDeviceR0000(device: *mut c_int, properties: *const c_void) -> c_int = device::choose;
    raw fn hipDrvGetErrorName(error: c_int, name: *mut *const c_char) -> c_int = error::hip_name_at;
    raw fn hipDrvGetErrorString(error: c_int, words: *mut *const c_char) -> c_int = error::hip_words_at;
    raw fn __hipRegisterManagedVar() -> () = kernel::ignore;
    plain fn hipMemPoolCreate(pool: *mut *mut c_void, properties: *const pools::Properties) -> c_int = pools::create;
    plain fn hipMemPoolDestroy(pool: *mut c_void) -> c_int = pools::destroy;
    plain fn hipMemPoolGetAttribute(pool: *mut c_void, attribute: c_int, value: *mut c_void) -> c_int = pools::get_attribute;
    plain fn hipMemPoolSetAccess(pool: *mut c_void, list: *const pools::Access, count: usize) -> c_int = pools::set_access;
    plain fn hipMemPoolGetAccess(flags: *mut c_int, pool: *mut c_void, location: *const [c_int; 2]) -> c_int = pools::get_access;
    plain fn hipDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: *mut u64) -> c_int = pools::graph_attribute;
    plain fn hipDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: *const u64) -> c_int = pools::set_graph_attribute;
    plain fn hipDeviceGraphMemTrim(device: c_int) -> c_int = pools::graph_trim;
    plain fn hipMemRangeGetAttribute(data: *mut c_int, bytes: usize, attribute: c_int, ptr: *const c_void, count: usize) -> c_int = pools::range_attribute;
    plain fn hipMemRangeGetAttributes(data: *const *mut c_int, bytes: *const usize, attributes: *const c_int, count: usize, ptr: *const c_void, length: usize) -> c_int = pools::range_attributes;
    plain fn hipMalloc3D(to: *mut volumes::Pitched, extent: volumes::Extent) -> c_int = memory::malloc_3d;
    spt fn hipMemcpy3D(volume: *const volumes::Volume) -> c_int = volumes::copy_3d;
    spt fn hipMemcpy3DAsync(volume: *const volumes::Volume, stream: *mut c_void) -> c_int = volumes::copy_3d_on;
    spt fn hipMemset3D(to: volumes::Pitched, value: c_int, extent: volumes::Extent) -> c_int = volumes::fill_3d;
    spt fn hipMemset3DAsync(to: volumes::Pitched, value: c_int, extent: volumes::Extent, stream: *mut c_void) -> c_int = volumes::fill_3d_on;
    plain fn hipIpcGetEventHandle(handle: *mut [u8; 64], event: *mut c_void) -> c_int = events::ipc_get;
    plain fn hipIpcOpenEventHandle(event: *mut *mut c_void, handle: memory::Handle) -> c_int = events::ipc_open;
    plain fn hipStreamAttachMemAsync() -> c_int = device::nothing;
    spt fn hipStreamGetAttribute(stream: *mut c_void, attribute: c_int, value: *mut [c_int; 16]) -> c_int = streams::get_attribute;
    spt fn hipStreamSetAttribute(stream: *mut c_void, attribute: c_int, value: *const [c_int; 16]) -> c_int = streams::set_attribute;
    plain fn hipStreamCopyAttributes(to: *mut c_void, from: *mut c_void) -> c_int = streams::copy_attributes;
    plain fn hipStreamBeginCaptureToGraph(stream: *mut c_void, graph: *mut c_void, after: *const *mut c_void, edges: *const [u8; 8], count: usize, mode: c_int) -> c_int = capture::begin_to;
    plain fn hipGraphCreate(graph: *mut *mut c_void, flags: c_uint) -> c_int = graphs::create;
    plain fn hipGraphDestroyNode(node: *mut c_void) -> c_int = graphs::destroy_node;
    plain fn hipGraphGetRootNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::roots;
    plain fn hipGraphNodeFindInClone(node: *mut *mut c_void, original: *mut c_void, clone: *mut c_void) -> c_int = graphs::find_in_clone;
    plain fn hipGraphNodeGetType(node: *mut c_void, kind: *mut c_int) -> c_int = nodes::kind;
    plain fn hipGraphDebugDotPrint(graph: *mut c_void, path: *const c_char, flags: c_uint) -> c_int = graphs::draw;
    plain fn hipGraphNodeSetEnabled(exec: *mut c_void, node: *mut c_void, on: c_uint) -> c_int = graphs::enable;
    plain fn hipGraphNodeGetEnabled(exec: *mut c_void, node: *mut c_void, on: *mut c_uint) -> c_int = graphs::is_enabled;
    plain fn hipGraphExecGetFlags(exec: *mut c_void, flags: *mut u64) -> c_int = graphs::exec_flags;
    plain fn hipUserObjectCreate(object: *mut *mut c_void, data: *mut c_void, destroy: streams::HostFn, count: c_uint, flags: c_uint) -> c_int = graphs::object;
    plain fn hipUserObjectRetain(object: *mut c_void, count: c_uint) -> c_int = graphs::retain;
    plain fn hipUserObjectRelease(object: *mut c_void, count: c_uint) -> c_int = graphs::release;
    plain fn hipGraphRetainUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint, flags: c_uint) -> c_int = graphs::hold;
    plain fn hipGraphReleaseUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint) -> c_int = graphs::let_go;
    plain fn hipGraphAddKernelNode() -> c_int = kernel::launch;
    plain fn hipFuncSetCacheConfig(function: *const c_void) -> c_int = kernel::hint;
    plain fn hipFuncSetAttribute(function: *const c_void) -> c_int = kernel::hint;
    plain fn hipFuncSetSharedMemConfig(function: *const c_void) -> c_int = kernel::hint;
    plain fn hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize) -> c_int = kernel::occupancy;
    plain fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize, flags: c_uint) -> c_int = kernel::occupancy_with_flags;
    plain fn hipDeviceGetSharedMemConfig(config: *mut c_uint) -> c_int = device::zero_flags;
    plain fn hipDeviceSetSharedMemConfig() -> c_int = device::nothing;
    plain fn hipGetDriverEntryPoint(name: *const c_char, to: *mut *mut c_void, flags: u64, found: *mut c_int) -> c_int = settings::entry_point;
    plain fn hipGraphAddMemcpyNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, volume: *const volumes::Volume) -> c_int = nodes::add_copy;
    plain fn hipGraphMemcpyNodeGetParams(node: *mut c_void, volume: *mut volumes::Volume) -> c_int = nodes::get_copy;
    plain fn hipGraphMemcpyNodeSetParams(node: *mut c_void, volume: *const volumes::Volume) -> c_int = nodes::set_copy;
    plain fn hipGraphExecMemcpyNodeSetParams(exec: *mut c_void, node: *mut c_void, volume: *const volumes::Volume) -> c_int = nodes::exec_set_copy;
    plain fn hipGraphAddHostNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, call: *const nodes::HostCall) -> c_int = nodes::add_host;
    plain fn hipGraphHostNodeGetParams(node: *mut c_void, call: *mut nodes::HostCall) -> c_int = nodes::get_host;
    plain fn hipGraphHostNodeSetParams(node: *mut c_void, call: *const nodes::HostCall) -> c_int = nodes::set_host;
    plain fn hipGraphExecHostNodeSetParams(exec: *mut c_void, node: *mut c_void, call: *const nodes::HostCall) -> c_int = nodes::exec_set_host;
    plain fn hipGraphAddEmptyNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize) -> c_int = nodes::add_empty;
    plain fn hipGraphAddMemcpyNode1D(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::add_copy_row;
    plain fn hipGraphMemcpyNodeSetParams1D(node: *mut c_void, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::set_copy_row;
    plain fn hipGraphExecMemcpyNodeSetParams1D(exec: *mut c_void, node: *mut c_void, dst: *mut c_void, src: *const c_void, bytes: usize, direction: c_int) -> c_int = nodes::exec_set_copy_row;
    plain fn hipGraphAddChildGraphNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, child: *mut c_void) -> c_int = nodes::add_child;
    plain fn hipGraphChildGraphNodeGetGraph(node: *mut c_void, child: *mut *mut c_void) -> c_int = nodes::get_child;
    plain fn hipGraphExecChildGraphNodeSetParams(exec: *mut c_void, node: *mut c_void, child: *mut c_void) -> c_int = nodes::exec_set_child;
    plain fn hipGraphAddMemAllocNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, parameters: *mut nodes::Allocation) -> c_int = nodes::add_alloc;
    plain fn hipGraphMemAllocNodeGetParams(node: *mut c_void, parameters: *mut nodes::Allocation) -> c_int = nodes::get_alloc;
    plain fn hipGraphAddMemFreeNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, ptr: *mut c_void) -> c_int = nodes::add_free;
    plain fn hipGraphMemFreeNodeGetParams(node: *mut c_void, ptr: *mut *mut c_void) -> c_int = nodes::get_free;
    plain fn hipGraphAddEventRecordNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, event: *mut c_void) -> c_int = nodes::add_record;
    plain fn hipGraphEventRecordNodeGetEvent(node: *mut c_void, event: *mut *mut c_void) -> c_int = nodes::get_record;
    plain fn hipGraphEventRecordNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int = nodes::set_record;
    plain fn hipGraphExecEventRecordNodeSetEvent(exec: *mut c_void, node: *mut c_void, event: *mut c_void) -> c_int = nodes::exec_set_record;
    plain fn hipGraphAddEventWaitNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, event: *mut c_void) -> c_int = nodes::add_wait;
    plain fn hipGraphEventWaitNodeGetEvent(node: *mut c_void, event: *mut *mut c_void) -> c_int = nodes::get_wait;
    plain fn hipGraphEventWaitNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int = nodes::set_wait;
    plain fn hipGraphExecEventWaitNodeSetEvent(exec: *mut c_void, node: *mut c_void, event: *mut c_void) -> c_int = nodes::exec_set_wait;
    plain fn hipGraphGetEdges(graph: *mut c_void, from: *mut *mut c_void, to: *mut *mut c_void, count: *mut usize) -> c_int = graphs::edges;
    plain fn hipGraphNodeGetDependencies(node: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::dependencies;
    plain fn hipGraphNodeGetDependentNodes(node: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) -> c_int = graphs::dependents;
    plain fn hipGraphAddDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, count: usize) -> c_int = graphs::link;
    plain fn hipGraphRemoveDependencies(graph: *mut c_void, from: *const *mut c_void, to: *const *mut c_void, count: usize) -> c_int = graphs::unlink;
    plain fn hipStreamUpdateCaptureDependencies(stream: *mut c_void, nodes: *mut *mut c_void, count: usize, flags: c_uint) -> c_int = capture::set_dependencies;
    plain fn hipGraphAddMemsetNode(node: *mut *mut c_void, graph: *mut c_void, after: *const *mut c_void, count: usize, fill: *const nodes::HipFill) -> c_int = nodes::add_fill_hip;
    plain fn hipGraphMemsetNodeGetParams(node: *mut c_void, fill: *mut nodes::HipFill) -> c_int = nodes::get_fill_hip;
    plain fn hipGraphMemsetNodeSetParams(node: *mut c_void, fill: *const nodes::HipFill) -> c_int = nodes::set_fill_hip;
    plain fn hipGraphExecMemsetNodeSetParams(exec: *mut c_void, node: *mut c_void, fill: *const nodes::HipFill) -> c_int = nodes::exec_set_fill_hip;
    plain fn hipFuncGetAttributes(to: *mut kernel::HipAttributes, function: *const c_void) -> c_int = kernel::attributes_hip;
    plain fn hipOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, function: *const c_void, shared: usize, limit: c_int) -> c_int = kernel::occupancy_block;
    plain fn hipGraphInstantiateWithParams(exec: *mut *mut c_void, graph: *mut c_void, parameters: *mut capture::HipInstantiateParams) -> c_int = capture::instantiate_with_params_hip;
    spt fn hipEventRecordWithFlags(event: *mut c_void, stream: *mut c_void, flags: c_uint) -> c_int = events::record_with_flags;
} }; }

/// Turns the rows of a table into exported symbols.
#[doc(hidden)]
#[macro_export]
macro_rules! export {
    ($which:tt $($kind:ident fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $module:ident::$body:ident;)*) => {
        $($crate::export_row! { $which $kind $name ($($arg: $type),*) $ret, $module::$body })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_row {
    ($which:tt plain $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { $which [stringify!($name)] false $args $ret, $module::$body }
    };
    ($which:tt ptsz $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { $which [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { $which [concat!(stringify!($name), "_ptsz")] true $args $ret, $module::$body }
    };
    ($which:tt ptds $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { $which [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { $which [concat!(stringify!($name), "_ptds")] true $args $ret, $module::$body }
    };
    ($which:tt spt $name:ident $args:tt $ret:ty, $module:ident::$body:ident) => {
        $crate::export_symbol! { $which [stringify!($name)] false $args $ret, $module::$body }
        $crate::export_symbol! { $which [concat!(stringify!($name), "_spt")] true $args $ret, $module::$body }
    };
    ($which:tt raw $name:ident ($($arg:ident: $type:ty),*) $ret:ty, $module:ident::$body:ident) => {
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
    ($which:tt [$symbol:expr] $per_thread:literal ($($arg:ident: $type:ty),*) $ret:ty, $module:ident::$body:ident) => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::*;
            #[unsafe(export_name = $symbol)]
            unsafe extern "C" fn entry($($arg: $type),*) -> $ret {
                let caller = $crate::entry::Caller { per_thread: $per_thread, is_hip: $crate::is_hip!($which) };
                // SAFETY: the C caller promises what the runtime's documentation asks for.
                $crate::entry::call(caller, || unsafe { $crate::$module::$body($($arg),*) })
            }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! is_hip {
    (hip) => {
        true
    };
    ($which:tt) => {
        false
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
