/*
 * hip/hip_runtime.h - the host part of the HIP runtime's interface, as oxccl's host implementation offers it.
 *
 * Enough for programs that use RCCL: devices, memory, streams, events, capture and graphs. Works as C and C++.
 */
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_H
#define HIP_INCLUDE_HIP_HIP_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define HIP_VERSION_MAJOR 7
#define HIP_VERSION_MINOR 0
#define HIP_VERSION_PATCH 0
#define HIP_VERSION 70000000

#ifndef __host__
#define __host__
#define __device__
#define __global__
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef enum hipError_t {
  hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorMemoryAllocation = 2,
  hipErrorNotInitialized = 3, hipErrorInitializationError = 3, hipErrorInvalidResourceHandle = 400,
  hipErrorMapBufferObjectFailed = 205, hipErrorUnsupportedLimit = 215,
  hipErrorDeinitialized = 4, hipErrorInvalidConfiguration = 9, hipErrorInvalidPitchValue = 12,
  hipErrorInvalidSymbol = 13, hipErrorInvalidDevicePointer = 17, hipErrorInvalidMemcpyDirection = 21,
  hipErrorInsufficientDriver = 35, hipErrorInvalidDeviceFunction = 98, hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101, hipErrorInvalidImage = 200, hipErrorInvalidContext = 201, hipErrorMapFailed = 205,
  hipErrorUnmapFailed = 206, hipErrorAlreadyMapped = 208, hipErrorNoBinaryForGpu = 209, hipErrorNotMapped = 211,
  hipErrorPeerAccessUnsupported = 217, hipErrorSharedObjectSymbolNotFound = 302,
  hipErrorSharedObjectInitFailed = 303, hipErrorOperatingSystem = 304, hipErrorInvalidHandle = 400,
  hipErrorIllegalState = 401, hipErrorNotFound = 500, hipErrorNotReady = 600, hipErrorIllegalAddress = 700,
  hipErrorLaunchOutOfResources = 701, hipErrorLaunchTimeOut = 702, hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorPeerAccessNotEnabled = 705, hipErrorSetOnActiveProcess = 708, hipErrorContextIsDestroyed = 709,
  hipErrorAssert = 710, hipErrorHostMemoryAlreadyRegistered = 712, hipErrorHostMemoryNotRegistered = 713,
  hipErrorLaunchFailure = 719, hipErrorCooperativeLaunchTooLarge = 720, hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900, hipErrorStreamCaptureInvalidated = 901, hipErrorStreamCaptureMerge = 902,
  hipErrorStreamCaptureUnmatched = 903, hipErrorStreamCaptureUnjoined = 904, hipErrorStreamCaptureIsolation = 905,
  hipErrorStreamCaptureImplicit = 906, hipErrorCapturedEvent = 907, hipErrorStreamCaptureWrongThread = 908,
  hipErrorGraphExecUpdateFailure = 910, hipErrorInvalidChannelDescriptor = 911, hipErrorInvalidTexture = 912,
  hipErrorUnknown = 999, hipErrorRuntimeMemory = 1052, hipErrorRuntimeOther = 1053
} hipError_t;

/* ---- handles ---- */

#ifndef RCCL_BFLOAT16
typedef struct ihipStream_t* hipStream_t;
#endif
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct hipGraphNode* hipGraphNode_t;
typedef struct ihipMemPoolHandle_t* hipMemPool_t;
typedef int hipDevice_t;
typedef void* hipDeviceptr_t;
typedef void (*hipHostFn_t)(void* userData);
typedef void (*hipStreamCallback_t)(hipStream_t stream, hipError_t status, void* userData);

#define hipStreamLegacy ((hipStream_t)1)
#define hipStreamPerThread ((hipStream_t)2)

/* ---- constants ---- */

#define hipStreamDefault 0x00
#define hipStreamNonBlocking 0x01
#define hipEventDefault 0x00
#define hipEventBlockingSync 0x01
#define hipEventDisableTiming 0x02
#define hipEventInterprocess 0x04
#define hipHostRegisterDefault 0x00
#define hipHostRegisterPortable 0x01
#define hipHostRegisterMapped 0x02
#define hipHostRegisterIoMemory 0x04
#define hipHostRegisterReadOnly 0x08
#define hipMemAttachGlobal 0x01
#define hipMemAttachHost 0x02
#define hipMemAttachSingle 0x04
#define hipIpcMemLazyEnablePeerAccess 0x01
#define hipDeviceScheduleAuto 0x00
#define hipDeviceScheduleSpin 0x01
#define hipDeviceScheduleYield 0x02
#define hipDeviceScheduleBlockingSync 0x04
#define hipDeviceMapHost 0x08
#define hipHostMallocDefault 0x00
#define hipHostMallocPortable 0x01
#define hipHostMallocMapped 0x02
#define hipHostMallocWriteCombined 0x04
#define hipHostMallocCoherent 0x40000000
#define hipHostMallocNonCoherent 0x80000000
#define hipDeviceMallocDefault 0x0
#define hipDeviceMallocFinegrained 0x1
#define hipDeviceMallocUncached 0x3
#define hipEventReleaseToDevice 0x40000000
#define hipEventReleaseToSystem 0x80000000
#define hipEventDisableSystemFence 0x20000000
#define HIP_IPC_HANDLE_SIZE 64

typedef enum hipMemcpyKind {
  hipMemcpyHostToHost = 0, hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2, hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4, hipMemcpyDeviceToDeviceNoCU = 1024
} hipMemcpyKind;
typedef enum hipMemoryType {
  hipMemoryTypeUnregistered = 0, hipMemoryTypeHost = 1, hipMemoryTypeDevice = 2, hipMemoryTypeManaged = 3
} hipMemoryType;
typedef enum hipStreamCaptureMode {
  hipStreamCaptureModeGlobal = 0, hipStreamCaptureModeThreadLocal = 1, hipStreamCaptureModeRelaxed = 2
} hipStreamCaptureMode;
typedef enum hipStreamCaptureStatus {
  hipStreamCaptureStatusNone = 0, hipStreamCaptureStatusActive = 1, hipStreamCaptureStatusInvalidated = 2
} hipStreamCaptureStatus;
typedef enum hipDeviceP2PAttr {
  hipDevP2PAttrPerformanceRank = 0, hipDevP2PAttrAccessSupported = 1, hipDevP2PAttrNativeAtomicSupported = 2,
  hipDevP2PAttrHipArrayAccessSupported = 3
} hipDeviceP2PAttr;
enum hipLimit_t {
  hipLimitStackSize = 0, hipLimitPrintfFifoSize = 1, hipLimitMallocHeapSize = 2
};
typedef enum hipGraphExecUpdateResult {
  hipGraphExecUpdateSuccess = 0, hipGraphExecUpdateError = 1, hipGraphExecUpdateErrorTopologyChanged = 2,
  hipGraphExecUpdateErrorNodeTypeChanged = 3, hipGraphExecUpdateErrorFunctionChanged = 4,
  hipGraphExecUpdateErrorParametersChanged = 5, hipGraphExecUpdateErrorNotSupported = 6
} hipGraphExecUpdateResult;
/* Those that programs ask for; all others answer zero. */
typedef enum hipDeviceAttribute_t {
  hipDeviceAttributeAsyncEngineCount = 2, hipDeviceAttributeCanMapHostMemory = 3,
  hipDeviceAttributeConcurrentKernels = 8, hipDeviceAttributeConcurrentManagedAccess = 9,
  hipDeviceAttributeHostNativeAtomicSupported = 15, hipDeviceAttributeIntegrated = 16,
  hipDeviceAttributeComputeCapabilityMajor = 23, hipDeviceAttributeManagedMemory = 24,
  hipDeviceAttributeMaxBlockDimX = 26, hipDeviceAttributeMaxBlockDimY = 27, hipDeviceAttributeMaxBlockDimZ = 28,
  hipDeviceAttributeMaxGridDimX = 29, hipDeviceAttributeMaxGridDimY = 30, hipDeviceAttributeMaxGridDimZ = 31,
  hipDeviceAttributeMaxThreadsPerBlock = 56,
  hipDeviceAttributeMaxThreadsPerMultiProcessor = 57, hipDeviceAttributeMaxPitch = 58,
  hipDeviceAttributeComputeCapabilityMinor = 61, hipDeviceAttributeMultiGpuBoardGroupID = 62,
  hipDeviceAttributeMultiprocessorCount = 63, hipDeviceAttributePageableMemoryAccess = 65,
  hipDeviceAttributePciBusId = 67, hipDeviceAttributePciDeviceId = 68, hipDeviceAttributePciDomainId = 69, hipDeviceAttributePciDomainID = 69,
  hipDeviceAttributeMaxRegistersPerBlock = 71, hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
  hipDeviceAttributeStreamPrioritiesSupported = 78, hipDeviceAttributeTextureAlignment = 81,
  hipDeviceAttributeTotalConstantMemory = 83, hipDeviceAttributeUnifiedAddressing = 85,
  hipDeviceAttributeWarpSize = 87, hipDeviceAttributeMemoryPoolsSupported = 88,
  hipDeviceAttributeHostRegisterSupported = 90
} hipDeviceAttribute_t;

/* ---- structs ---- */

typedef struct hipUUID_t { char bytes[16]; } hipUUID;
typedef struct hipIpcEventHandle_st { char reserved[HIP_IPC_HANDLE_SIZE]; } hipIpcEventHandle_t;
typedef struct hipIpcMemHandle_st { char reserved[HIP_IPC_HANDLE_SIZE]; } hipIpcMemHandle_t;

typedef struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
  unsigned allocationFlags;
} hipPointerAttribute_t;

/* None of these is there: there are no kernels. */
typedef struct hipDeviceArch_t {
  unsigned hasGlobalInt32Atomics : 1, hasGlobalFloatAtomicExch : 1, hasSharedInt32Atomics : 1;
  unsigned hasSharedFloatAtomicExch : 1, hasFloatAtomicAdd : 1, hasGlobalInt64Atomics : 1, hasSharedInt64Atomics : 1;
  unsigned hasDoubles : 1, hasWarpVote : 1, hasWarpBallot : 1, hasWarpShuffle : 1, hasFunnelShift : 1;
  unsigned hasThreadFenceSystem : 1, hasSyncThreadsExt : 1, hasSurfaceFuncs : 1, has3dGrid : 1;
  unsigned hasDynamicParallelism : 1;
} hipDeviceArch_t;

typedef struct hipDeviceProp_tR0600 {
  char name[256];
  hipUUID uuid;
  char luid[8];
  unsigned int luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory;
  int computeMode, maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2];
  int maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3];
  int maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3];
  int maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3];
  int maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
  int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
  int hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess;
  int concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
  int cooperativeLaunch, cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseHipArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned int gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned int memoryPoolSupportedHandleTypes;
  int deferredMappingHipArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
  int reserved[63];
  int hipReserved[32];
  char gcnArchName[256];
  size_t maxSharedMemoryPerMultiProcessor;
  int clockInstructionRate;
  hipDeviceArch_t arch;
  unsigned int *hdpMemFlushCntl, *hdpRegFlushCntl;
  int cooperativeMultiDeviceUnmatchedFunc, cooperativeMultiDeviceUnmatchedGridDim;
  int cooperativeMultiDeviceUnmatchedBlockDim, cooperativeMultiDeviceUnmatchedSharedMem;
  int isLargeBar, asicRevision;
} hipDeviceProp_tR0600;

typedef struct dim3 {
  unsigned int x, y, z;
#ifdef __cplusplus
  dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
#endif
} dim3;

/* ---- shapes of memory ---- */

typedef struct hipArray* hipArray_t;
typedef const struct hipArray* hipArray_const_t;
typedef struct hipExtent { size_t width, height, depth; } hipExtent;
typedef struct hipPos { size_t x, y, z; } hipPos;
typedef struct hipPitchedPtr { void* ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;

typedef struct hipMemcpy3DParms {
  hipArray_t srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  hipArray_t dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  hipExtent extent;
  hipMemcpyKind kind;
} hipMemcpy3DParms;

typedef struct hipMemcpy3DPeerParms {
  hipArray_t srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  int srcDevice;
  hipArray_t dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  int dstDevice;
  hipExtent extent;
} hipMemcpy3DPeerParms;

static inline hipExtent make_hipExtent(size_t width, size_t height, size_t depth) {
  hipExtent e;
  e.width = width;
  e.height = height;
  e.depth = depth;
  return e;
}

static inline hipPos make_hipPos(size_t x, size_t y, size_t z) {
  hipPos p;
  p.x = x;
  p.y = y;
  p.z = z;
  return p;
}

static inline hipPitchedPtr make_hipPitchedPtr(void* ptr, size_t pitch, size_t xsize, size_t ysize) {
  hipPitchedPtr p;
  p.ptr = ptr;
  p.pitch = pitch;
  p.xsize = xsize;
  p.ysize = ysize;
  return p;
}

/* ---- memory pools and places ---- */

typedef enum hipMemLocationType { hipMemLocationTypeInvalid = 0, hipMemLocationTypeDevice = 1 } hipMemLocationType;
typedef struct hipMemLocation { hipMemLocationType type; int id; } hipMemLocation;
typedef enum hipMemAccessFlags {
  hipMemAccessFlagsProtNone = 0, hipMemAccessFlagsProtRead = 1, hipMemAccessFlagsProtReadWrite = 3
} hipMemAccessFlags;
typedef struct hipMemAccessDesc { hipMemLocation location; hipMemAccessFlags flags; } hipMemAccessDesc;
typedef enum hipMemAllocationType { hipMemAllocationTypeInvalid = 0, hipMemAllocationTypePinned = 1 } hipMemAllocationType;
typedef enum hipMemAllocationHandleType {
  hipMemHandleTypeNone = 0, hipMemHandleTypePosixFileDescriptor = 1, hipMemHandleTypeWin32 = 2,
  hipMemHandleTypeWin32Kmt = 4, hipMemHandleTypeFabric = 8
} hipMemAllocationHandleType;
typedef enum hipMemPoolAttr {
  hipMemPoolReuseFollowEventDependencies = 1, hipMemPoolReuseAllowOpportunistic = 2,
  hipMemPoolReuseAllowInternalDependencies = 3, hipMemPoolAttrReleaseThreshold = 4,
  hipMemPoolAttrReservedMemCurrent = 5, hipMemPoolAttrReservedMemHigh = 6, hipMemPoolAttrUsedMemCurrent = 7,
  hipMemPoolAttrUsedMemHigh = 8
} hipMemPoolAttr;
typedef struct hipMemPoolProps {
  hipMemAllocationType allocType;
  hipMemAllocationHandleType handleTypes;
  hipMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned char reserved[56];
} hipMemPoolProps;
typedef enum hipMemRangeAttribute {
  hipMemRangeAttributeReadMostly = 1, hipMemRangeAttributePreferredLocation = 2,
  hipMemRangeAttributeAccessedBy = 3, hipMemRangeAttributeLastPrefetchLocation = 4,
  hipMemRangeAttributePreferredLocationType = 5, hipMemRangeAttributePreferredLocationId = 6,
  hipMemRangeAttributeLastPrefetchLocationType = 7, hipMemRangeAttributeLastPrefetchLocationId = 8
} hipMemRangeAttribute;
typedef enum hipMemoryAdvise {
  hipMemAdviseSetReadMostly = 1, hipMemAdviseUnsetReadMostly = 2, hipMemAdviseSetPreferredLocation = 3,
  hipMemAdviseUnsetPreferredLocation = 4, hipMemAdviseSetAccessedBy = 5, hipMemAdviseUnsetAccessedBy = 6
} hipMemoryAdvise;

/* ---- graphs ---- */

typedef struct hipUserObject* hipUserObject_t;
typedef struct hipMemsetParams {
  void* dst;
  unsigned int elementSize;
  size_t height, pitch;
  unsigned int value;
  size_t width;
} hipMemsetParams;
typedef enum hipGraphNodeType {
  hipGraphNodeTypeKernel = 0, hipGraphNodeTypeMemcpy = 1, hipGraphNodeTypeMemset = 2, hipGraphNodeTypeHost = 3,
  hipGraphNodeTypeGraph = 4, hipGraphNodeTypeEmpty = 5, hipGraphNodeTypeWaitEvent = 6,
  hipGraphNodeTypeEventRecord = 7, hipGraphNodeTypeExtSemaphoreSignal = 8,
  hipGraphNodeTypeExtSemaphoreWait = 9, hipGraphNodeTypeMemAlloc = 10, hipGraphNodeTypeMemFree = 11,
  hipGraphNodeTypeConditional = 13, hipGraphNodeTypeCount
} hipGraphNodeType;
typedef struct hipHostNodeParams { hipHostFn_t fn; void* userData; } hipHostNodeParams;
typedef struct hipMemAllocNodeParams {
  hipMemPoolProps poolProps;
  const hipMemAccessDesc* accessDescs;
  size_t accessDescCount, bytesize;
  void* dptr;
} hipMemAllocNodeParams;
typedef enum hipGraphInstantiateResult {
  hipGraphInstantiateSuccess = 0, hipGraphInstantiateError = 1, hipGraphInstantiateInvalidStructure = 2,
  hipGraphInstantiateNodeOperationNotSupported = 3, hipGraphInstantiateMultipleDevicesNotSupported = 4
} hipGraphInstantiateResult;
typedef struct hipGraphInstantiateParams {
  hipGraphNode_t errNode_out;
  unsigned long long flags;
  hipGraphInstantiateResult result_out;
  hipStream_t uploadStream;
} hipGraphInstantiateParams;
typedef enum hipGraphInstantiateFlags {
  hipGraphInstantiateFlagAutoFreeOnLaunch = 1, hipGraphInstantiateFlagUpload = 2,
  hipGraphInstantiateFlagDeviceLaunch = 4, hipGraphInstantiateFlagUseNodePriority = 8
} hipGraphInstantiateFlags;
typedef enum hipGraphMemAttributeType {
  hipGraphMemAttrUsedMemCurrent = 0, hipGraphMemAttrUsedMemHigh = 1, hipGraphMemAttrReservedMemCurrent = 2,
  hipGraphMemAttrReservedMemHigh = 3
} hipGraphMemAttributeType;
typedef enum hipStreamUpdateCaptureDependenciesFlags {
  hipStreamAddCaptureDependencies = 0, hipStreamSetCaptureDependencies = 1
} hipStreamUpdateCaptureDependenciesFlags;
typedef enum hipUserObjectFlags { hipUserObjectNoDestructorSync = 1 } hipUserObjectFlags;
typedef enum hipUserObjectRetainFlags { hipGraphUserObjectMove = 1 } hipUserObjectRetainFlags;
typedef enum hipGraphDebugDotFlags { hipGraphDebugDotFlagsVerbose = 1 } hipGraphDebugDotFlags;

/* ---- kernels, of which only attributes can be had ---- */

typedef struct hipKernelNodeParams {
  dim3 blockDim;
  void** extra;
  void* func;
  dim3 gridDim;
  void** kernelParams;
  unsigned int sharedMemBytes;
} hipKernelNodeParams;
typedef struct hipGraphEdgeData { unsigned char from_port, to_port, type, reserved[5]; } hipGraphEdgeData;
typedef enum hipDriverEntryPointQueryResult {
  hipDriverEntryPointSuccess = 0, hipDriverEntryPointSymbolNotFound = 1, hipDriverEntryPointVersionNotSufficent = 2
} hipDriverEntryPointQueryResult;
typedef struct hipFuncAttributes {
  int binaryVersion, cacheModeCA;
  size_t constSizeBytes, localSizeBytes;
  int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
  size_t sharedSizeBytes;
} hipFuncAttributes;
typedef enum hipFuncCache_t {
  hipFuncCachePreferNone, hipFuncCachePreferShared, hipFuncCachePreferL1, hipFuncCachePreferEqual
} hipFuncCache_t;
typedef enum hipFuncAttribute {
  hipFuncAttributeMaxDynamicSharedMemorySize = 8, hipFuncAttributePreferredSharedMemoryCarveout = 9
} hipFuncAttribute;
typedef enum hipSharedMemConfig {
  hipSharedMemBankSizeDefault = 0, hipSharedMemBankSizeFourByte = 1, hipSharedMemBankSizeEightByte = 2
} hipSharedMemConfig;
typedef enum hipLaunchAttributeID {
  hipLaunchAttributeIgnore = 0, hipLaunchAttributeAccessPolicyWindow = 1, hipLaunchAttributeCooperative = 2,
  hipLaunchAttributeSynchronizationPolicy = 3, hipLaunchAttributePriority = 8,
  hipLaunchAttributeMemSyncDomainMap = 9, hipLaunchAttributeMemSyncDomain = 10
} hipLaunchAttributeID;
typedef enum hipSynchronizationPolicy {
  hipSyncPolicyAuto = 1, hipSyncPolicySpin = 2, hipSyncPolicyYield = 3, hipSyncPolicyBlockingSync = 4
} hipSynchronizationPolicy;
typedef union hipLaunchAttributeValue {
  char pad[64];
  int cooperative, priority;
  hipSynchronizationPolicy syncPolicy;
} hipLaunchAttributeValue;

/* ---- functions ---- */

#ifdef __cplusplus
#define OXCCL_DEFAULT_ARG(value) = value
#else
#define OXCCL_DEFAULT_ARG(value)
#endif

#define hipDeviceProp_t hipDeviceProp_tR0600
#define hipGetDeviceProperties hipGetDevicePropertiesR0600
#define hipChooseDevice hipChooseDeviceR0600

hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceReset(void);
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device);
hipError_t hipDeviceGetByPCIBusId(int* device, const char* text);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags);
hipError_t hipDeviceDisablePeerAccess(int peer);
hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr attribute, int device, int peer);
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest);
hipError_t hipSetDeviceFlags(unsigned int flags);
hipError_t hipGetDeviceFlags(unsigned int* flags);
hipError_t hipDeviceSetLimit(enum hipLimit_t limit, size_t value);
hipError_t hipDeviceGetLimit(size_t* value, enum hipLimit_t limit);
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device);
hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool);
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t minBytes);
hipError_t hipProfilerStart(void);
hipError_t hipProfilerStop(void);
hipError_t hipMemAdvise(const void* ptr, size_t bytes, int advice, int device);
hipError_t hipMalloc(void** ptr, size_t bytes);
hipError_t hipMallocHost(void** ptr, size_t bytes);
hipError_t hipHostAlloc(void** ptr, size_t bytes, unsigned int flags);
hipError_t hipMallocManaged(void** ptr, size_t bytes, unsigned int flags);
hipError_t hipMallocPitch(void** ptr, size_t* pitch, size_t width, size_t height);
hipError_t hipMallocAsync(void** ptr, size_t bytes, hipStream_t stream);
hipError_t hipMallocFromPoolAsync(void** ptr, size_t bytes, hipMemPool_t pool, hipStream_t stream);
hipError_t hipFree(void* ptr);
hipError_t hipFreeHost(void* ptr);
hipError_t hipFreeAsync(void* ptr, hipStream_t stream);
hipError_t hipHostRegister(void* ptr, size_t bytes, unsigned int flags);
hipError_t hipHostUnregister(void* ptr);
hipError_t hipHostGetDevicePointer(void** to, void* ptr, unsigned int flags);
hipError_t hipHostGetFlags(unsigned int* flags, void* ptr);
hipError_t hipMemGetInfo(size_t* free, size_t* total);
hipError_t hipMemcpy(void* dst, const void* src, size_t bytes, hipMemcpyKind direction);
hipError_t hipMemcpyAsync(void* dst, const void* src, size_t bytes, hipMemcpyKind direction,
    hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipMemcpyPeer(void* dst, int to, const void* src, int from, size_t bytes);
hipError_t hipMemcpyPeerAsync(void* dst, int to, const void* src, int from, size_t bytes,
    hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
    hipMemcpyKind direction);
hipError_t hipMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
    size_t height, hipMemcpyKind direction, hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipMemset(void* dst, int value, size_t bytes);
hipError_t hipMemsetAsync(void* dst, int value, size_t bytes, hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipMemset2D(void* dst, size_t pitch, int value, size_t width, size_t height);
hipError_t hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height,
    hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* ptr);
hipError_t hipIpcOpenMemHandle(void** ptr, hipIpcMemHandle_t handle, unsigned int flags);
hipError_t hipIpcCloseMemHandle(void* ptr);
hipError_t hipStreamCreate(hipStream_t* stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags);
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags OXCCL_DEFAULT_ARG(0));
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags);
hipError_t hipStreamGetPriority(hipStream_t stream, int* priority);
hipError_t hipStreamGetDevice(hipStream_t stream, int* device);
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned int flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data);
hipError_t hipEventCreate(hipEvent_t* event);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t end);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* state);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGraphClone(hipGraph_t* copy, hipGraph_t graph);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* exec, hipGraph_t graph,
    unsigned long long flags OXCCL_DEFAULT_ARG(0));
hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipInit(unsigned int flags);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device);
hipError_t hipChooseDeviceR0600(int* device, const hipDeviceProp_tR0600* properties);
hipError_t hipDeviceGetName(char* text, int bytes, int device);
hipError_t hipDeviceTotalMem(size_t* bytes, int device);
hipError_t hipDeviceGetUuid(hipUUID* to, int device);
hipError_t hipDriverGetVersion(int* version);
hipError_t hipRuntimeGetVersion(int* version);
hipError_t hipHostMalloc(void** ptr, size_t bytes, unsigned int flags OXCCL_DEFAULT_ARG(0));
hipError_t hipMemAllocHost(void** ptr, size_t bytes);
hipError_t hipHostFree(void* ptr);
hipError_t hipExtMallocWithFlags(void** ptr, size_t bytes, unsigned int flags OXCCL_DEFAULT_ARG(0));
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* to, const void* ptr);
hipError_t hipMemGetAddressRange(void** base, size_t* bytes, void* ptr);
hipError_t hipMemcpyWithStream(void* dst, const void* src, size_t bytes, hipMemcpyKind direction, hipStream_t stream);
hipError_t hipMemPrefetchAsync(const void* ptr, size_t bytes, int device, hipStream_t stream);
hipError_t hipMemsetD32(void* dst, int value, size_t count);
hipError_t hipMemsetD32Async(void* dst, int value, size_t count, hipStream_t stream);
hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* state, unsigned long long* id);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* state, unsigned long long* id,
    hipGraph_t* graph, const hipGraphNode_t** dependencies, size_t* count);
hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t* node, char* log, size_t bytes);
hipError_t hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t* node,
    hipGraphExecUpdateResult* result);
hipError_t hipMemcpyHtoD(void* dst, const void* src, size_t bytes);
hipError_t hipMemcpyDtoH(void* dst, const void* src, size_t bytes);
hipError_t hipMemcpyDtoD(void* dst, const void* src, size_t bytes);
hipError_t hipMemcpyHtoDAsync(void* dst, const void* src, size_t bytes, hipStream_t stream);
hipError_t hipMemcpyDtoHAsync(void* dst, const void* src, size_t bytes, hipStream_t stream);
hipError_t hipMemcpyDtoDAsync(void* dst, const void* src, size_t bytes, hipStream_t stream);
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** args, size_t sharedBytes,
    hipStream_t stream);
hipError_t hipGetLastError(void);
hipError_t hipExtGetLastError(void);
hipError_t hipPeekAtLastError(void);
const char* hipGetErrorName(hipError_t error);
const char* hipGetErrorString(hipError_t error);

hipError_t hipDeviceSetCacheConfig(hipFuncCache_t config);
hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* config);
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args, size_t sharedBytes,
    hipStream_t stream);
hipError_t hipMemcpy3DPeer(const hipMemcpy3DPeerParms* volume);
hipError_t hipMemcpy3DPeerAsync(const hipMemcpy3DPeerParms* volume, hipStream_t stream);
hipError_t hipStreamGetId(hipStream_t stream, unsigned long long* id);
hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int block);
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties);
hipError_t hipMemPoolDestroy(hipMemPool_t pool);
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value);
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* list, size_t count);
hipError_t hipMemPoolGetAccess(hipMemAccessFlags* flags, hipMemPool_t pool, hipMemLocation* location);
hipError_t hipDeviceGetGraphMemAttribute(int device, hipGraphMemAttributeType attribute, void* value);
hipError_t hipDeviceSetGraphMemAttribute(int device, hipGraphMemAttributeType attribute, void* value);
hipError_t hipDeviceGraphMemTrim(int device);
hipError_t hipMemRangeGetAttribute(void* data, size_t bytes, hipMemRangeAttribute attribute, const void* ptr,
    size_t count);
hipError_t hipMemRangeGetAttributes(void** data, size_t* bytes, hipMemRangeAttribute* attributes, size_t count,
    const void* ptr, size_t length);
hipError_t hipMalloc3D(hipPitchedPtr* to, hipExtent extent);
hipError_t hipMemcpy3D(const hipMemcpy3DParms* volume);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* volume, hipStream_t stream);
hipError_t hipMemset3D(hipPitchedPtr to, int value, hipExtent extent);
hipError_t hipMemset3DAsync(hipPitchedPtr to, int value, hipExtent extent, hipStream_t stream);
hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t* handle, hipEvent_t event);
hipError_t hipIpcOpenEventHandle(hipEvent_t* event, hipIpcEventHandle_t handle);
hipError_t hipStreamAttachMemAsync(hipStream_t, void*, size_t, unsigned int);
hipError_t hipStreamGetAttribute(hipStream_t stream, hipLaunchAttributeID attribute, hipLaunchAttributeValue* value);
hipError_t hipStreamSetAttribute(hipStream_t stream, hipLaunchAttributeID attribute,
    const hipLaunchAttributeValue* value);
hipError_t hipStreamCopyAttributes(hipStream_t to, hipStream_t from);
hipError_t hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph, const hipGraphNode_t* after,
    const hipGraphEdgeData* edges, size_t count, hipStreamCaptureMode mode);
hipError_t hipGraphCreate(hipGraph_t* graph, unsigned int flags);
hipError_t hipGraphDestroyNode(hipGraphNode_t node);
hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphNodeFindInClone(hipGraphNode_t* node, hipGraphNode_t original, hipGraph_t clone);
hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* kind);
hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char* path, unsigned int flags);
hipError_t hipGraphNodeSetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned int on);
hipError_t hipGraphNodeGetEnabled(hipGraphExec_t exec, hipGraphNode_t node, unsigned int* on);
hipError_t hipGraphExecGetFlags(hipGraphExec_t exec, unsigned long long* flags);
hipError_t hipUserObjectCreate(hipUserObject_t* object, void* data, hipHostFn_t destroy, unsigned int count,
    unsigned int flags);
hipError_t hipUserObjectRetain(hipUserObject_t object, unsigned int count);
hipError_t hipUserObjectRelease(hipUserObject_t object, unsigned int count);
hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int count, unsigned int flags);
hipError_t hipGraphReleaseUserObject(hipGraph_t graph, hipUserObject_t object, unsigned int count);
hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    const hipKernelNodeParams* parameters);
hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int);
hipError_t hipFuncSetSharedMemConfig(const void*, hipSharedMemConfig);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block, size_t shared);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block,
    size_t shared, unsigned int flags);
hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig* config);
hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig);
hipError_t hipGetDriverEntryPoint(const char* name, void** to, unsigned long long flags,
    hipDriverEntryPointQueryResult* found);
hipError_t hipGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    const hipMemcpy3DParms* volume);
hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms* volume);
hipError_t hipGraphMemcpyNodeSetParams(hipGraphNode_t node, const hipMemcpy3DParms* volume);
hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, const hipMemcpy3DParms* volume);
hipError_t hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    const hipHostNodeParams* call);
hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams* call);
hipError_t hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams* call);
hipError_t hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, const hipHostNodeParams* call);
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    void* dst, const void* src, size_t bytes, hipMemcpyKind direction);
hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void* dst, const void* src, size_t bytes,
    hipMemcpyKind direction);
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void* dst, const void* src,
    size_t bytes, hipMemcpyKind direction);
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
    size_t count, hipGraph_t child);
hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t* child);
hipError_t hipGraphExecChildGraphNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, hipGraph_t child);
hipError_t hipGraphAddMemAllocNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    hipMemAllocNodeParams* parameters);
hipError_t hipGraphMemAllocNodeGetParams(hipGraphNode_t node, hipMemAllocNodeParams* parameters);
hipError_t hipGraphAddMemFreeNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    void* ptr);
hipError_t hipGraphMemFreeNodeGetParams(hipGraphNode_t node, void* ptr);
hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
    size_t count, hipEvent_t event);
hipError_t hipGraphEventRecordNodeGetEvent(hipGraphNode_t node, hipEvent_t* event);
hipError_t hipGraphEventRecordNodeSetEvent(hipGraphNode_t node, hipEvent_t event);
hipError_t hipGraphExecEventRecordNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node, hipEvent_t event);
hipError_t hipGraphAddEventWaitNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
    size_t count, hipEvent_t event);
hipError_t hipGraphEventWaitNodeGetEvent(hipGraphNode_t node, hipEvent_t* event);
hipError_t hipGraphEventWaitNodeSetEvent(hipGraphNode_t node, hipEvent_t event);
hipError_t hipGraphExecEventWaitNodeSetEvent(hipGraphExec_t exec, hipGraphNode_t node, hipEvent_t event);
hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to, size_t* count);
hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t* nodes, size_t* count);
hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
    size_t count);
hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
    size_t count);
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t* nodes, size_t count,
    unsigned int flags);
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after, size_t count,
    const hipMemsetParams* fill);
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* fill);
hipError_t hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams* fill);
hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, const hipMemsetParams* fill);
hipError_t hipFuncGetAttributes(hipFuncAttributes* to, const void* function);
hipError_t hipGraphInstantiateWithParams(hipGraphExec_t* exec, hipGraph_t graph, hipGraphInstantiateParams* params);
hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int flags);
hipError_t hipFuncSetCacheConfig(const void* function, hipFuncCache_t config);
hipError_t hipSetValidDevices(int* devices, int count);
hipError_t hipMemsetD8(void* dst, unsigned char value, size_t count);
hipError_t hipMemsetD8Async(void* dst, unsigned char value, size_t count, hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipMemsetD16(void* dst, unsigned short value, size_t count);
hipError_t hipMemsetD16Async(void* dst, unsigned short value, size_t count, hipStream_t stream OXCCL_DEFAULT_ARG(0));
hipError_t hipDeviceGet(hipDevice_t* device, int ordinal);
hipError_t hipMemAllocPitch(void** ptr, size_t* pitch, size_t width, size_t height, unsigned int elementSize);
hipError_t hipMemPtrGetInfo(void* ptr, size_t* bytes);
hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, size_t shared, int limit);
int hipGetStreamDeviceId(hipStream_t stream);
hipError_t hipDrvGetErrorName(hipError_t error, const char** name);
hipError_t hipDrvGetErrorString(hipError_t error, const char** words);

#ifdef __cplusplus
} /* extern "C" */

template <class T>
static inline hipError_t hipMalloc(T** ptr, size_t bytes) {
  return hipMalloc((void**)(void*)ptr, bytes);
}

template <class T>
static inline hipError_t hipHostMalloc(T** ptr, size_t bytes, unsigned int flags = 0) {
  return hipHostMalloc((void**)(void*)ptr, bytes, flags);
}

template <class T>
static inline hipError_t hipHostAlloc(T** ptr, size_t bytes, unsigned int flags) {
  return hipHostAlloc((void**)(void*)ptr, bytes, flags);
}

template <class T>
static inline hipError_t hipMallocManaged(T** ptr, size_t bytes, unsigned int flags = hipMemAttachGlobal) {
  return hipMallocManaged((void**)(void*)ptr, bytes, flags);
}

template <class T>
static inline hipError_t hipMallocAsync(T** ptr, size_t bytes, hipStream_t stream) {
  return hipMallocAsync((void**)(void*)ptr, bytes, stream);
}
#endif

#endif /* HIP_INCLUDE_HIP_HIP_RUNTIME_H */
