/*
 * nccl.h - the C interface of libnccl.so.2, version 2.29.7, as oxccl offers it.
 *
 * Needs no CUDA: where <cuda_runtime.h> is not installed (or OXCCL_NO_CUDA is defined) a stream is an opaque pointer,
 * and the functions of oxccl.h make and wait for streams. Works as C99, C11 and C++.
 */
#ifndef NCCL_H_
#define NCCL_H_

#if !defined(OXCCL_NO_CUDA) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define OXCCL_HAS_CUDA_RUNTIME_H 1
#endif
#endif

#ifdef OXCCL_HAS_CUDA_RUNTIME_H
#include <cuda_runtime.h>
/* NVIDIA's headers of small floats need a header of another package; nothing below needs them. */
#if defined(OXCCL_HOST_CUDA_RUNTIME) || CUDART_VERSION < 12000 || __has_include(<nv/target>)
#define OXCCL_HAS_SMALL_FLOATS 1
#endif
#if defined(OXCCL_HAS_SMALL_FLOATS) && __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if defined(OXCCL_HAS_SMALL_FLOATS) && CUDART_VERSION >= 11000 && __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#if defined(OXCCL_HAS_SMALL_FLOATS) && defined(__cplusplus) && CUDART_VERSION >= 11080 && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#else
/* The same declaration as in CUDA's headers, which may still be included later. */
typedef struct CUstream_st* cudaStream_t;
#endif

/* -- begin of what nccl.h and rccl.h share -- */

/* ---- version ---- */

#define NCCL_MAJOR 2
#define NCCL_MINOR 29
#define NCCL_PATCH 7
#define NCCL_SUFFIX ""

#define NCCL_VERSION_CODE 22907
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants ---- */

#define NCCL_COMM_NULL NULL
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_API_MAGIC 0xcafebeef

/* Colour of ncclCommSplit for ranks that join no new communicator. */
#define NCCL_SPLIT_NOCOLOR -1

/* Flags of ncclCommWindowRegister. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* Values of ncclConfig_t.CTAPolicy; may be or-ed. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Flags of ncclCommShrink, ncclCommRevoke and ncclCommSuspend. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

/* ---- handles ---- */

/* A communicator: one rank's membership in a group of ranks. */
typedef struct ncclComm* ncclComm_t;
/* A window: memory of every rank of a communicator. */
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* What brings the ranks of a communicator together. One rank makes it and gives it to the others by its own means. */
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;

/* ---- enums ---- */

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1, /* the device failed */
  ncclSystemError = 2,        /* a system call failed */
  ncclInternalError = 3,      /* a defect of the library */
  ncclInvalidArgument = 4,    /* an argument is out of range */
  ncclInvalidUsage = 5,       /* the call is not allowed here, or calls of ranks do not match */
  ncclRemoteError = 6,        /* a peer died or the network failed */
  ncclInProgress = 7,         /* no error: ask again */
  ncclNumResults = 8
} ncclResult_t;

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* operators from here on are made by ncclRedOpCreate... */
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0, ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2, ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6, ncclHalf = 6,
  ncclFloat32 = 7, ncclFloat = 7,
  ncclFloat64 = 8, ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Where the scalar of an operator lives. */
typedef enum {
  ncclScalarDevice = 0,       /* in memory of the device; read while the collective runs */
  ncclScalarHostImmediate = 1 /* in memory of the host; read before the call returns */
} ncclScalarResidence_t;

/* Figures of ncclCommMemStats. */
typedef enum {
  ncclStatGpuMemSuspend = 0,   /* bytes that a suspension gives back */
  ncclStatGpuMemSuspended = 1, /* 1 while suspended */
  ncclStatGpuMemPersist = 2,   /* bytes that stay */
  ncclStatGpuMemTotal = 3      /* all bytes */
} ncclCommMemStat_t;

/* ---- structs ---- */

/* Settings of one communicator. Begin with NCCL_CONFIG_INITIALIZER, then set fields by name. */
typedef struct ncclConfig_v22800 {
  size_t size;          /* set by the initialiser, as the next two */
  unsigned int magic;
  unsigned int version;
  int blocking;         /* 0: calls may return ncclInProgress; 1 (default): they return when done */
  int cgaClusterSize;
  int minCTAs;          /* least and most channels */
  int maxCTAs;
  const char* netName;  /* network to use, e.g. "Socket" */
  int splitShare;       /* children of ncclCommSplit share resources */
  int trafficClass;
  const char* commName; /* for logs */
  int collnetEnable;
  int CTAPolicy;        /* NCCL_CTA_POLICY_... */
  int shrinkShare;      /* children of ncclCommShrink share resources */
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;   /* 0 no graphs, 1 one at a time, 2 graphs mixed with eager work */
  int numRmaCtx;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER {                          \
  sizeof(ncclConfig_t),                       /* size */   \
  NCCL_API_MAGIC,                             /* magic */  \
  NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),        \
  NCCL_CONFIG_UNDEF_INT,       /* blocking */              \
  NCCL_CONFIG_UNDEF_INT,       /* cgaClusterSize */        \
  NCCL_CONFIG_UNDEF_INT,       /* minCTAs */               \
  NCCL_CONFIG_UNDEF_INT,       /* maxCTAs */               \
  NCCL_CONFIG_UNDEF_PTR,       /* netName */               \
  NCCL_CONFIG_UNDEF_INT,       /* splitShare */            \
  NCCL_CONFIG_UNDEF_INT,       /* trafficClass */          \
  NCCL_CONFIG_UNDEF_PTR,       /* commName */              \
  NCCL_CONFIG_UNDEF_INT,       /* collnetEnable */         \
  NCCL_CONFIG_UNDEF_INT,       /* CTAPolicy */             \
  NCCL_CONFIG_UNDEF_INT,       /* shrinkShare */           \
  NCCL_CONFIG_UNDEF_INT,       /* nvlsCTAs */              \
  NCCL_CONFIG_UNDEF_INT,       /* nChannelsPerNetPeer */   \
  NCCL_CONFIG_UNDEF_INT,       /* nvlinkCentricSched */    \
  NCCL_CONFIG_UNDEF_INT,       /* graphUsageMode */        \
  NCCL_CONFIG_UNDEF_INT        /* numRmaCtx */             \
}

/* Answer of ncclGroupSimulateEnd. Begin with NCCL_SIM_INFO_INITIALIZER. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds; negative: unknown */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER {                 \
  sizeof(ncclSimInfo_t),                            \
  0x74685283,                                       \
  NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), \
  NCCL_UNDEF_FLOAT                                  \
}

/* One peer that ncclWaitSignal waits for. */
typedef struct {
  int opCnt;  /* signals to wait for */
  int peer;
  int sigIdx; /* must be 0 */
  int ctx;    /* must be 0 */
} ncclWaitSignalDesc_t;

#if defined(__GNUC__)
#define OXCCL_NCCL_DEPRECATED __attribute__((deprecated))
#else
#define OXCCL_NCCL_DEPRECATED
#endif

/* ---- functions ----
 * Each ncclX has a twin pncclX that does the same, so that a tool may replace the first and call the second. */

/* Memory that the peers on this machine can map; *ptr is null for no bytes. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);

ncclResult_t ncclMemFree(void* ptr);
ncclResult_t pncclMemFree(void* ptr);

/* The version code of the interface, NCCL_VERSION_CODE at its build. */
ncclResult_t ncclGetVersion(int* version);
ncclResult_t pncclGetVersion(int* version);

/* Makes an id for one new communicator. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);

/* Joins a new communicator of nranks ranks as rank, on the thread's current device. Every rank must call it; in one
 * thread, calls for several ranks need a group. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
    ncclConfig_t* config);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
    ncclConfig_t* config);

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

/* A communicator of ndev ranks in this process, rank i on device devlist[i] (i if devlist is null). */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* As ncclCommInitRankConfig with several ids, the same list on every rank. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
    ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
    ncclConfig_t* config);

/* Waits for all work of the communicator; every rank should call it. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommFinalize(ncclComm_t comm);

/* Frees the communicator, after finalising it if nobody did. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

/* Stops all work of the communicator and frees it. May be called from any thread while others use it. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

/* Stops all work of the communicator, which may then only be split, shrunk, grown, destroyed or aborted. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* New communicators of the ranks with equal colour, ordered by key. Every rank must call it. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);

/* A new communicator without the listed ranks, which do not call. The list is sorted in place. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
    ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
    ncclConfig_t* config, int shrinkFlags);

/* An id for ranks that are to join an existing communicator by ncclCommGrow. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);

/* A new, larger communicator. Members pass comm and rank -1, newcomers a null comm and their rank. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
    ncclConfig_t* config);
ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
    ncclConfig_t* config);

/* A result code in words. */
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

/* The text of the last warning or error of this process. comm is not used and may be null. */
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

/* Reads NCCL_DEBUG and its like again at the next message. */
OXCCL_NCCL_DEPRECATED void ncclResetDebugInit(void);
OXCCL_NCCL_DEPRECATED void pncclResetDebugInit(void);

/* The state of the communicator: ncclSuccess, ncclInProgress, or the error that stopped it. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

/* Ranks, device and own rank of a communicator. */
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);

/* Announces a buffer that will be used often. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle);

/* Gives memory of an idle communicator back until ncclCommResume. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags);

ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t pncclCommResume(ncclComm_t comm);

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

/* Makes a window of a buffer of every rank. Every rank must call it. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);

/* An operator that multiplies this rank's elements by a scalar and sums over ranks; for one data type. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
    ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
    ncclScalarResidence_t residence, ncclComm_t comm);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* recvbuff of root = reduction of all sendbuff. In place if they are equal. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
    int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);

/* Old form of ncclBroadcast, in place. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
    cudaStream_t stream);

/* recvbuff of every rank = sendbuff of root. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);

/* recvbuff of every rank = reduction of all sendbuff. In place if they are equal. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* recvbuff of rank r = block r of the reduction of all sendbuff (nranks * recvcount elements). */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* recvbuff of every rank (nranks * sendcount elements) = all sendbuff in rank order. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
    ncclComm_t comm, cudaStream_t stream);

/* Block p of recvbuff of rank r = block r of sendbuff of rank p; count elements per block. Not in place. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
    ncclComm_t comm, cudaStream_t stream);

/* recvbuff of root (nranks * count elements) = all sendbuff in rank order. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);

/* recvbuff of rank r = block r of sendbuff of root. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
    ncclComm_t comm, cudaStream_t stream);

/* One message to a peer, who must call ncclRecv with equal count and type. Several at once need a group. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
    cudaStream_t stream);

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
    cudaStream_t stream);

/* Writes into a peer's window and then signals the peer. */
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t pncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
    cudaStream_t stream);

ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);

/* Calls between start and end are carried out together, at the outermost end. */
ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);

ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

/* Ends a group without doing its work; with a null argument the same as ncclGroupEnd. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* -- end of what nccl.h and rccl.h share -- */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NCCL_H_ */
