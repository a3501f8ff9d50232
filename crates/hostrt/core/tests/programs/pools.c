/* Copies of three dimensions and in batches, memory pools, memory of graphs. C and C++. */
#include <nccl.h>
#include <cuda_runtime_api.h>
#include "check.h"

static void volumes(void) {
  /* Four slices of three rows of five bytes, out of a larger volume. */
  enum { W = 16, H = 8, D = 6 };
  unsigned char host[W * H * D], back[5 * 3 * 4];
  struct cudaPitchedPtr p;
  struct cudaMemcpy3DParms c;
  struct cudaExtent all, part;
  cudaStream_t s;
  int x, y, z, round;
  all.width = W; all.height = H; all.depth = D;
  part.width = 5; part.height = 3; part.depth = 4;
  for (x = 0; x < W * H * D; x++) host[x] = (unsigned char)(x * 7);
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc3D(&p, all));
  CHECK(p.pitch >= W && p.xsize == W && p.ysize == H);
  memset(&c, 0, sizeof c);
  c.srcPtr.ptr = host; c.srcPtr.pitch = W; c.srcPtr.xsize = W; c.srcPtr.ysize = H;
  c.dstPtr = p;
  c.extent = all;
  c.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&c));
  for (round = 0; round < 2; round++) {
    memset(back, 0, sizeof back);
    memset(&c, 0, sizeof c);
    c.srcPtr = p;
    c.srcPos.x = 2; c.srcPos.y = 1; c.srcPos.z = 1;
    c.dstPtr.ptr = back; c.dstPtr.pitch = 5; c.dstPtr.xsize = 5; c.dstPtr.ysize = 3;
    c.extent = part;
    c.kind = cudaMemcpyDeviceToHost;
    if (round) CUDA(cudaMemcpy3DAsync(&c, s)); else CUDA(cudaMemcpy3D(&c));
    CUDA(cudaStreamSynchronize(s));
    for (z = 0; z < 4; z++) for (y = 0; y < 3; y++) for (x = 0; x < 5; x++)
      CHECK(back[(z * 3 + y) * 5 + x] == host[((z + 1) * H + y + 1) * W + x + 2]);
  }
  CUDA(cudaMemset3D(p, 9, part));
  CUDA(cudaDeviceSynchronize());
  CHECK(((unsigned char*)p.ptr)[0] == 9 && ((unsigned char*)p.ptr)[5] == host[5]);
  CHECK(((unsigned char*)p.ptr)[3 * p.pitch] == host[3 * W]);
  CHECK(((unsigned char*)p.ptr)[3 * p.pitch * H + 2 * p.pitch + 4] == 9);
  c.srcPtr.pitch = 2;
  CHECK(cudaMemcpy3D(&c) == cudaErrorInvalidPitchValue);
  c.srcArray = (cudaArray_t)&c;
  CHECK(cudaMemcpy3D(&c) == cudaErrorNotSupported);
  CUDA(cudaFree(p.ptr));
  CUDA(cudaStreamDestroy(s));
}

#ifndef HIP_TWIN /* HIP has no batches before 7.1. */
static void batches(void) {
  enum { N = 5 };
  char *from, *to;
  void *dsts[N];
  void *srcs[N];
  size_t sizes[N], where = 0;
  struct cudaMemcpyAttributes how;
  cudaStream_t s;
  int i;
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc((void**)&from, N * 100));
  CUDA(cudaMalloc((void**)&to, N * 100));
  CUDA(cudaMemset(to, 0, N * 100));
  CUDA(cudaDeviceSynchronize());
  for (i = 0; i < N; i++) {
    memset(from + 100 * i, i + 1, 100);
    dsts[i] = to + 100 * (N - 1 - i);
    srcs[i] = from + 100 * i;
    sizes[i] = (size_t)(10 * i + 10);
  }
  memset(&how, 0, sizeof how);
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
#define BATCH(stream) cudaMemcpyBatchAsync(dsts, (const void* const*)srcs, sizes, N, &how, &where, 1, stream)
#else
#define BATCH(stream) cudaMemcpyBatchAsync(dsts, srcs, sizes, N, &how, &where, 1, NULL, stream)
#endif
  CUDA(BATCH(s));
  CUDA(cudaStreamSynchronize(s));
  for (i = 0; i < N; i++) {
    char* d = (char*)dsts[i];
    CHECK(d[0] == i + 1 && d[10 * i + 9] == i + 1 && (i == N - 1 || d[10 * i + 10] == 0));
  }
  /* The default stream of the thread serves, the device's does not. */
  CUDA(cudaMemset(to, 0, N * 100));
  CUDA(cudaDeviceSynchronize());
  CUDA(BATCH(cudaStreamPerThread));
  CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(((char*)dsts[N - 1])[0] == N);
  CHECK(BATCH(cudaStreamLegacy) == cudaErrorInvalidValue);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  CUDA(BATCH(0));
  CUDA(cudaStreamSynchronize(0));
#else
  CHECK(BATCH(0) == cudaErrorInvalidValue);
#endif
  cudaGetLastError();
  CUDA(cudaFree(from));
  CUDA(cudaFree(to));
  CUDA(cudaStreamDestroy(s));
}
#endif

/* The kernel would promise it all the same. */
static void more_than_there_is(void) {
  size_t left, all;
  void* memory;
  cudaStream_t s;
  CUDA(cudaMemGetInfo(&left, &all));
  CUDA(cudaStreamCreate(&s));
  CHECK(cudaMalloc(&memory, all + (1 << 20)) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocHost(&memory, all + (1 << 20)) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocAsync(&memory, all + (1 << 20), s) == cudaErrorMemoryAllocation);
#ifndef HIP_TWIN /* RCCL says what went wrong where we say that all is fine. */
  CHECK(ncclMemAlloc(&memory, all + (1 << 20)) == ncclUnhandledCudaError && memory == NULL);
#endif
  CUDA(cudaStreamDestroy(s));
  cudaGetLastError();
}

static void pools(void) {
  cudaMemPool_t pool, usual, now;
  struct cudaMemPoolProps props;
  struct cudaMemAccessDesc access;
  struct cudaMemLocation place;
  enum cudaMemAccessFlags flags;
  unsigned long long value;
  int number;
  void *a, *b;
  cudaStream_t s, t;
  cudaGraph_t graph;
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaDeviceGetDefaultMemPool(&usual, 1));
  CUDA(cudaDeviceGetMemPool(&now, 1));
  CHECK(usual == now);
  memset(&props, 0, sizeof props);
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = 1;
  props.maxSize = 5000;
  CUDA(cudaMemPoolCreate(&pool, &props));
  value = 1 << 20;
  CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
  value = 0;
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
  CHECK(value == 1 << 20);
  number = 0;
  CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &number));
  number = 7;
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &number));
  CHECK(number == 0);
  CUDA(cudaMallocFromPoolAsync(&a, 3000, pool, s));
  CHECK(cudaMallocFromPoolAsync(&b, 3000, pool, s) == cudaErrorMemoryAllocation);
  CUDA(cudaMemsetAsync(a, 5, 3000, s));
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
  CHECK(value == 3000);
  CUDA(cudaFreeAsync(a, s));
  CUDA(cudaStreamSynchronize(s));
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
  CHECK(value == 0);
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &value));
  CHECK(value == 3000);
  CUDA(cudaDeviceSetMemPool(1, pool));
  CUDA(cudaMallocAsync(&a, 100, s));
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
  CHECK(value == 100);
  CUDA(cudaStreamSynchronize(s));
  /* What is not freed stays in the account. */
  CUDA(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  CUDA(cudaStreamBeginCapture(t, cudaStreamCaptureModeGlobal));
  CHECK(cudaFree(a) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(t, &graph) == cudaErrorStreamCaptureInvalidated);
  CUDA(cudaStreamDestroy(t));
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
  CHECK(value == 100);
  CUDA(cudaFree(a));
  CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
  CHECK(value == 0);
  place.type = cudaMemLocationTypeDevice;
  place.id = 2;
  CUDA(cudaMemPoolGetAccess(&flags, pool, &place));
  CHECK(flags == cudaMemAccessFlagsProtNone);
  access.location = place;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  CUDA(cudaMemPoolGetAccess(&flags, pool, &place));
  CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  CUDA(cudaMemPoolTrimTo(pool, 0));
  CHECK(cudaMemPoolDestroy(usual) == cudaErrorInvalidValue);
  CUDA(cudaMemPoolDestroy(pool));
  CHECK(cudaMemPoolTrimTo(pool, 0) == cudaErrorInvalidValue);
  CUDA(cudaDeviceGetMemPool(&now, 1));
  CHECK(now == usual);
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaSetDevice(0));
}

/* Memory that a capture allocates: used and freed in the graph, and, in a second graph, freed outside. */
static void memory_of_graphs(void) {
  cudaStream_t s;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  char *inside = NULL, *out;
  unsigned long long used;
  int round;
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc((void**)&out, 4096));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaMallocAsync((void**)&inside, 4096, s));
  CHECK(inside != NULL);
  CUDA(cudaMemsetAsync(inside, 3, 4096, s));
  CUDA(cudaMemcpyAsync(out, inside, 4096, cudaMemcpyDeviceToDevice, s));
  CUDA(cudaFreeAsync(inside, s));
  CHECK(cudaFreeAsync(out, s) == cudaErrorInvalidValue);
  CUDA(cudaStreamEndCapture(s, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  for (round = 0; round < 3; round++) {
    memset(out, 0, 4096);
    CUDA(cudaGraphLaunch(exec, s));
    CUDA(cudaStreamSynchronize(s));
    CHECK(out[0] == 3 && out[4095] == 3);
  }
  CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &used));
  CHECK(used == 4096);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaStreamSynchronize(s));
  CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &used));
  CHECK(used == 0);

  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaMallocAsync((void**)&inside, 4096, s));
  CUDA(cudaMemsetAsync(inside, 6, 4096, s));
  CUDA(cudaStreamEndCapture(s, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, s));
  CUDA(cudaFreeAsync(inside, s));
  CUDA(cudaGraphLaunch(exec, s));
  CUDA(cudaStreamSynchronize(s));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CHECK(inside[4095] == 6); /* Not freed since the last launch, so it outlives its graph. */
  CUDA(cudaFree(inside));
  CHECK(cudaFree(inside) == cudaErrorInvalidValue);
  CUDA(cudaFree(out));
  CUDA(cudaStreamDestroy(s));
}

int main(void) {
  volumes();
#ifndef HIP_TWIN
  batches();
#endif
  more_than_there_is();
  pools();
  memory_of_graphs();
  puts("all fine");
  return 0;
}
