/* Sizes, offsets and values of everything in the headers. Compiled as C11 and as C++; there is nothing to run. */
#ifdef ABI_RCCL
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
#include <oxccl.h>
#include <stddef.h>

#ifdef __cplusplus
#define ASSERT(what) static_assert(what, #what)
#else
#define ASSERT(what) _Static_assert(what, #what)
#endif
#define AT(type, field, offset) ASSERT(offsetof(type, field) == offset)
/* A field's place and size. */
#define FIELD(type, field, offset, bytes) AT(type, field, offset); ASSERT(sizeof(((type*)0)->field) == bytes)
#ifdef __cplusplus
#define ALIGNED(type, bytes) ASSERT(alignof(type) == bytes)
#else
#define ALIGNED(type, bytes) ASSERT(_Alignof(type) == bytes)
#endif

ASSERT(NCCL_MAJOR == 2 && NCCL_MINOR == 29 && NCCL_PATCH == 7);
ASSERT(NCCL_VERSION_CODE == 22907 && NCCL_VERSION(2, 29, 7) == 22907 && NCCL_VERSION(2, 8, 4) == 2804);
ASSERT(sizeof(NCCL_SUFFIX) == 1);
ASSERT(NCCL_UNIQUE_ID_BYTES == 128 && NCCL_CONFIG_UNDEF_INT == INT_MIN && NCCL_SPLIT_NOCOLOR == -1);
ASSERT(NCCL_API_MAGIC == 0xcafebeefu);
ASSERT(NCCL_WIN_DEFAULT == 0 && NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_WIN_STRICT_ORDERING == 2);
ASSERT(NCCL_WIN_REQUIRED_ALIGNMENT == 4096);
ASSERT(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1 && NCCL_CTA_POLICY_ZERO == 2);
ASSERT(NCCL_SHRINK_DEFAULT == 0 && NCCL_SHRINK_ABORT == 1 && NCCL_REVOKE_DEFAULT == 0 && NCCL_SUSPEND_MEM == 1);

ASSERT(sizeof(ncclResult_t) == 4 && sizeof(ncclRedOp_t) == 4 && sizeof(ncclDataType_t) == 4);
ASSERT(sizeof(ncclScalarResidence_t) == 4 && sizeof(ncclCommMemStat_t) == 4 && sizeof(ncclRedOp_dummy_t) == 4);
ASSERT(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInternalError == 3);
ASSERT(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7);
ASSERT(ncclNumResults == 8);
ASSERT(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4);
ASSERT((int)ncclNumOps == 5 && (int)ncclNumOps_dummy == 5 && (int)ncclMaxRedOp == 0x7fffffff);
ASSERT(ncclInt8 == 0 && ncclChar == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclInt == 2 && ncclUint32 == 3);
ASSERT(ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclHalf == 6 && ncclFloat32 == 7);
ASSERT(ncclFloat == 7 && ncclFloat64 == 8 && ncclDouble == 8 && ncclBfloat16 == 9 && ncclFloat8e4m3 == 10);
ASSERT(ncclFloat8e5m2 == 11 && ncclNumTypes == 12);
ASSERT(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
ASSERT(ncclStatGpuMemSuspend == 0 && ncclStatGpuMemSuspended == 1 && ncclStatGpuMemPersist == 2);
ASSERT(ncclStatGpuMemTotal == 3);

ASSERT(sizeof(ncclComm_t) == 8 && sizeof(ncclWindow_t) == 8 && sizeof(oxcclStream_t) == 8 && sizeof(oxcclEvent_t) == 8);
ASSERT(sizeof(ncclUniqueId) == 128);
FIELD(ncclUniqueId, internal, 0, 128);
ALIGNED(ncclUniqueId, 1);

ASSERT(sizeof(ncclConfig_t) == 88 && sizeof(struct ncclConfig_v22800) == 88);
ALIGNED(ncclConfig_t, 8);
FIELD(ncclConfig_t, size, 0, 8);
FIELD(ncclConfig_t, magic, 8, 4);
FIELD(ncclConfig_t, version, 12, 4);
FIELD(ncclConfig_t, blocking, 16, 4);
FIELD(ncclConfig_t, cgaClusterSize, 20, 4);
FIELD(ncclConfig_t, minCTAs, 24, 4);
FIELD(ncclConfig_t, maxCTAs, 28, 4);
FIELD(ncclConfig_t, netName, 32, 8);
FIELD(ncclConfig_t, splitShare, 40, 4);
FIELD(ncclConfig_t, trafficClass, 44, 4);
FIELD(ncclConfig_t, commName, 48, 8);
FIELD(ncclConfig_t, collnetEnable, 56, 4);
FIELD(ncclConfig_t, CTAPolicy, 60, 4);
FIELD(ncclConfig_t, shrinkShare, 64, 4);
FIELD(ncclConfig_t, nvlsCTAs, 68, 4);
FIELD(ncclConfig_t, nChannelsPerNetPeer, 72, 4);
FIELD(ncclConfig_t, nvlinkCentricSched, 76, 4);
FIELD(ncclConfig_t, graphUsageMode, 80, 4);
FIELD(ncclConfig_t, numRmaCtx, 84, 4);

ASSERT(sizeof(ncclSimInfo_t) == 24 && sizeof(struct ncclSimInfo_v22200) == 24);
ALIGNED(ncclSimInfo_t, 8);
FIELD(ncclSimInfo_t, size, 0, 8);
FIELD(ncclSimInfo_t, magic, 8, 4);
FIELD(ncclSimInfo_t, version, 12, 4);
FIELD(ncclSimInfo_t, estimatedTime, 16, 4);

ASSERT(sizeof(ncclWaitSignalDesc_t) == 16);
ALIGNED(ncclWaitSignalDesc_t, 4);
FIELD(ncclWaitSignalDesc_t, opCnt, 0, 4);
FIELD(ncclWaitSignalDesc_t, peer, 4, 4);
FIELD(ncclWaitSignalDesc_t, sigIdx, 8, 4);
FIELD(ncclWaitSignalDesc_t, ctx, 12, 4);

#ifdef ABI_RCCL
ASSERT(sizeof(mscclAlgoHandle_t) == 4);
ASSERT(RCCL_BFLOAT16 == 1 && RCCL_FLOAT8 == 1 && RCCL_GATHER_SCATTER == 1 && RCCL_ALLTOALLV == 1);
ASSERT(RCCL_ALLREDUCE_WITH_BIAS == 1 && RCCL_SUSPEND_RESUME == 1);
#endif

/* The initialisers initialise. */
ncclConfig_t layout_config = NCCL_CONFIG_INITIALIZER;
ncclSimInfo_t layout_sim_info = NCCL_SIM_INFO_INITIALIZER;
