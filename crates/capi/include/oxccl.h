/*
 * oxccl.h - what oxccl offers beyond nccl.h and rccl.h: devices, streams and events for programs without CUDA or HIP.
 *
 * Include nccl.h or rccl/rccl.h first, or neither: then nccl.h is included from here. Both libraries have all functions.
 * Memory comes from ncclMemAlloc; any other memory of the process may be used as well.
 */
#ifndef OXCCL_H_
#define OXCCL_H_

#ifndef NCCL_H_
#include "nccl.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The stream type of the interface that was included first. */
#ifdef RCCL_BFLOAT16
typedef hipStream_t oxcclStream_t;
#else
typedef cudaStream_t oxcclStream_t;
#endif
typedef struct oxcclEvent* oxcclEvent_t;
typedef void (*oxcclHostFn_t)(void* userData);

/* Devices of this machine; OXCCL_HOST_DEVICES sets their number. */
ncclResult_t oxcclGetDeviceCount(int* count);

/* The device of the calling thread; 0 at first. */
ncclResult_t oxcclSetDevice(int device);

ncclResult_t oxcclGetDevice(int* device);

/* A queue of work on the current device. Work in one stream runs in order. The null stream is the device's own. */
ncclResult_t oxcclStreamCreate(oxcclStream_t* stream);

/* Waits until all work in the stream is done. */
ncclResult_t oxcclStreamSynchronize(oxcclStream_t stream);

/* ncclSuccess when all work in the stream is done, else ncclInProgress. */
ncclResult_t oxcclStreamQuery(oxcclStream_t stream);

/* Finishes the stream's work, then frees it. */
ncclResult_t oxcclStreamDestroy(oxcclStream_t stream);

/* Work enqueued later waits for what the event recorded. */
ncclResult_t oxcclStreamWaitEvent(oxcclStream_t stream, oxcclEvent_t event);

/* Calls function(userData) in the order of the stream, on any thread. It must not call this library. */
ncclResult_t oxcclLaunchHostFunc(oxcclStream_t stream, oxcclHostFn_t function, void* userData);

/* Copies in the order of the stream. */
ncclResult_t oxcclMemcpyAsync(void* dst, const void* src, size_t bytes, oxcclStream_t stream);

/* A mark in a stream, with a time. */
ncclResult_t oxcclEventCreate(oxcclEvent_t* event);

ncclResult_t oxcclEventRecord(oxcclEvent_t event, oxcclStream_t stream);

/* Waits until the work before the mark is done. */
ncclResult_t oxcclEventSynchronize(oxcclEvent_t event);

/* ncclSuccess when the work before the mark is done, else ncclInProgress. */
ncclResult_t oxcclEventQuery(oxcclEvent_t event);

/* Milliseconds between two marks that were passed. */
ncclResult_t oxcclEventElapsedTime(float* ms, oxcclEvent_t start, oxcclEvent_t end);

ncclResult_t oxcclEventDestroy(oxcclEvent_t event);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* OXCCL_H_ */
