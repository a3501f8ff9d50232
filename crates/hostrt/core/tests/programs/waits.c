/* Which calls return before their work is done, which wait, and for whose work. C and C++. */
#include <nccl.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include "check.h"

#ifdef HIP_TWIN /* HIP has another name for it. */
typedef hipPointerAttribute_t attributes_t;
#else
typedef struct cudaPointerAttributes attributes_t;
#endif

enum { N = 4096, LARGE = 1 << 20 };

static int gate, passed;

static void set(int* to, int value) { __atomic_store_n(to, value, __ATOMIC_SEQ_CST); }
static int get(int* from) { return __atomic_load_n(from, __ATOMIC_SEQ_CST); }

static void CUDART_CB pass_gate(void* unused) {
  (void)unused;
  while (!get(&gate)) sched_yield();
  set(&passed, 1);
}

static void close_gate(void) { set(&gate, 0); set(&passed, 0); }
static void open_gate(void) { set(&gate, 1); }

/* The work is what takes time: whoever does not wait for it is found out. */
static void CUDART_CB slow(void* unused) {
  struct timespec t;
  (void)unused;
  t.tv_sec = 0;
  t.tv_nsec = 30000000;
  nanosleep(&t, NULL);
  set(&passed, 1);
}

static int all_are(const char* p, int value, size_t bytes) {
  size_t i;
  for (i = 0; i < bytes; i++) if (p[i] != value) return 0;
  return 1;
}

/* The function waits for what the caller does after its question. */
static void a_query_calls_no_function(void) {
  cudaStream_t s;
  cudaEvent_t e;
  int round;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  for (round = 0; round < 20; round++) {
    close_gate();
    CUDA(cudaLaunchHostFunc(s, pass_gate, NULL));
    CUDA(cudaEventRecord(e, s));
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady && cudaEventQuery(e) == cudaErrorNotReady);
    open_gate();
    while (cudaStreamQuery(s) == cudaErrorNotReady) sched_yield();
    CHECK(get(&passed) && cudaEventQuery(e) == cudaSuccess);
    CUDA(cudaStreamQuery(s));
  }
  CUDA(cudaEventDestroy(e));
  CUDA(cudaStreamDestroy(s));
}

static void CUDART_CB await_five(void* memory) {
  set(&gate, 1);
  while (__atomic_load_n((char*)memory, __ATOMIC_SEQ_CST) != 5) sched_yield();
  set(&passed, 1);
}

/* Nobody waits for either stream: the function waits for what the other one does. */
static void a_function_keeps_no_other_stream_from_going_on(void) {
  cudaStream_t s[2];
  char* host;
  CUDA(cudaStreamCreateWithFlags(&s[0], cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&s[1], cudaStreamNonBlocking));
  CUDA(cudaMallocHost((void**)&host, N));
  memset(host, 0, N);
  close_gate();
  CUDA(cudaLaunchHostFunc(s[0], await_five, host));
  while (!get(&gate)) sched_yield();
  CUDA(cudaMemsetAsync(host, 5, N, s[1]));
  while (!get(&passed)) sched_yield();
  CUDA(cudaStreamSynchronize(s[0]));
  CUDA(cudaStreamSynchronize(s[1]));
  CUDA(cudaFreeHost(host));
  CUDA(cudaStreamDestroy(s[0]));
  CUDA(cudaStreamDestroy(s[1]));
}

/* The default stream waits for the blocking one, which waits for what the caller does after these calls. */
static void device_memory_is_set_and_copied_behind_the_caller(void) {
  cudaStream_t s;
  char *a, *b, *host;
  struct cudaPitchedPtr p;
  struct cudaExtent e;
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc((void**)&a, N));
  CUDA(cudaMalloc((void**)&b, N));
  CUDA(cudaMallocHost((void**)&host, N));
  close_gate();
  CUDA(cudaLaunchHostFunc(s, pass_gate, NULL));
  CUDA(cudaMemset(a, 1, N));
  CUDA(cudaMemset2D(a, 64, 2, 64, 8));
  memset(&p, 0, sizeof p);
  p.ptr = a;
  p.pitch = p.xsize = 64;
  p.ysize = 4;
  e.width = 64; e.height = 4; e.depth = 2;
  CUDA(cudaMemset3D(p, 3, e));
  CUDA(cudaMemcpy(b, a, N, cudaMemcpyDeviceToDevice));
  CUDA(cudaMemcpy2D(b + 1024, 64, a, 64, 64, 8, cudaMemcpyDefault));
  CHECK(!get(&passed) && cudaStreamQuery(0) == cudaErrorNotReady);
  open_gate();
  CUDA(cudaMemcpy(host, b, N, cudaMemcpyDeviceToHost));
  CHECK(get(&passed) && all_are(host, 3, 512) && all_are(host + 512, 1, 512) && all_are(host + 1024, 3, 512));
  /* What is freed is waited for. */
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemset(a, 4, N));
  CUDA(cudaFree(a));
  CHECK(get(&passed));
  /* Other memory than the device's own is set when the call returns. */
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemset(host, 5, N));
  CHECK(get(&passed) && all_are(host, 5, N));
  CUDA(cudaFree(b));
  CUDA(cudaFreeHost(host));
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaSetDevice(0));
}

/* Behind what any stream of both devices holds, and before what they are given after it. */
static void copies_between_devices_keep_order_with_all_work_of_both(void) {
  cudaStream_t s[2], late;
  char *d[2], *host;
  struct cudaMemcpy3DPeerParms p;
  int i, round;
  CUDA(cudaMallocHost((void**)&host, N));
  for (i = 0; i < 2; i++) {
    CUDA(cudaSetDevice(i + 1));
    CUDA(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
    CUDA(cudaMalloc((void**)&d[i], N));
    CUDA(cudaMemset(d[i], 1, N));
    CUDA(cudaDeviceSynchronize());
  }
  CUDA(cudaSetDevice(0));
  for (round = 0; round < 2; round++) {
    close_gate();
    CUDA(cudaLaunchHostFunc(s[0], pass_gate, NULL));
    CUDA(cudaMemsetAsync(d[0], 7 + round, N, s[0]));
    if (round == 0) {
      CUDA(cudaMemcpyPeer(d[1], 2, d[0], 1, N));
    } else {
      memset(&p, 0, sizeof p);
      p.srcDevice = 1;
      p.srcPtr.ptr = d[0];
      p.dstDevice = 2;
      p.dstPtr.ptr = d[1];
      p.srcPtr.pitch = p.srcPtr.xsize = p.dstPtr.pitch = p.dstPtr.xsize = 64;
      p.srcPtr.ysize = p.dstPtr.ysize = N / 64;
      p.extent.width = 64;
      p.extent.height = N / 64;
      p.extent.depth = 1;
      CUDA(cudaMemcpy3DPeer(&p));
    }
    CUDA(cudaMemsetAsync(d[0], 9, N, s[0]));
    CUDA(cudaSetDevice(2));
    CUDA(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking));
    CUDA(cudaMemcpyAsync(host, d[1], N, cudaMemcpyDeviceToHost, late));
    CHECK(!get(&passed) && cudaStreamQuery(s[1]) == cudaErrorNotReady && cudaStreamQuery(late) == cudaErrorNotReady);
    open_gate();
    CUDA(cudaStreamSynchronize(late));
    CHECK(all_are(host, 7 + round, N));
    CUDA(cudaStreamSynchronize(s[0]));
    CUDA(cudaMemcpy(host, d[0], N, cudaMemcpyDeviceToHost));
    CHECK(all_are(host, 9, N));
    CUDA(cudaStreamDestroy(late));
    CUDA(cudaSetDevice(0));
  }
  CHECK(cudaMemcpyPeer(d[1], 99, d[0], 1, N) == cudaErrorInvalidDevice);
  for (i = 0; i < 2; i++) {
    CUDA(cudaFree(d[i]));
    CUDA(cudaStreamDestroy(s[i]));
  }
  CUDA(cudaFreeHost(host));
  cudaGetLastError();
}

/* Memory of a stream of another device is that device's; what is no device's is freed behind the work of all. */
static void what_is_freed_waits_for_its_device(void) {
  cudaStream_t s;
  char *d, *host, *managed;
  attributes_t a;
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaSetDevice(0));
  CUDA(cudaMallocHost((void**)&host, N));
  CUDA(cudaMallocManaged((void**)&managed, N, cudaMemAttachGlobal));
  CUDA(cudaMallocAsync((void**)&d, N, s));
  CUDA(cudaPointerGetAttributes(&a, d));
  CHECK(a.type == cudaMemoryTypeDevice && a.device == 1);
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemsetAsync(d, 1, N, s));
  CUDA(cudaFree(d));
  CHECK(get(&passed));
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemsetAsync(host, 1, N, s));
  CUDA(cudaSetDevice(1)); /* The work of the current device is waited for besides that of the memory's own. */
  CUDA(cudaFreeHost(host));
  CHECK(get(&passed));
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemsetAsync(managed, 1, N, s));
  CUDA(cudaFree(managed));
  CUDA(cudaSetDevice(0));
  CHECK(get(&passed));
  CUDA(cudaStreamDestroy(s));
}

/* What another device still has to do with memory that is freed, it finds there: nobody waits for that. */
static void what_is_freed_stays_for_other_devices(void) {
  enum { OWN = 8 << 20 }; /* So much is given back to the system. */
  cudaStream_t s;
  char *d[2];
  void* gone;
  int i;
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaSetDevice(0));
  CUDA(cudaMalloc((void**)&d[0], OWN));
  CHECK(ncclMemAlloc((void**)&d[1], OWN) == ncclSuccess);
  for (i = 0; i < 2; i++) {
    close_gate();
    CUDA(cudaLaunchHostFunc(s, pass_gate, NULL));
    CUDA(cudaMemsetAsync(d[i], 1, OWN, s));
    if (i) CHECK(ncclMemFree(d[i]) == ncclSuccess); else CUDA(cudaFree(d[i]));
    CHECK(!get(&passed) && cudaFree(d[i]) == cudaErrorInvalidValue);
    CUDA(cudaMalloc(&gone, OWN));
    CHECK(gone != d[i]);
    open_gate();
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaFree(gone));
  }
  CUDA(cudaStreamDestroy(s));
  cudaGetLastError();
}

static void copies_from_host_to_host(void) {
  cudaStream_t s;
  char *from, *to;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaMallocHost((void**)&from, N));
  CUDA(cudaMallocHost((void**)&to, N));
  memset(from, 6, N);
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  CUDA(cudaMemcpyAsync(to, from, N, cudaMemcpyHostToHost, s));
#ifndef HIP_TWIN /* HIP does not wait. */
  CHECK(get(&passed) && all_are(to, 6, N));
#endif
  CUDA(cudaStreamSynchronize(s));
  CHECK(all_are(to, 6, N));
  CUDA(cudaFreeHost(from));
  CUDA(cudaFreeHost(to));
  CUDA(cudaStreamDestroy(s));
}

#ifndef HIP_TWIN /* HIP has no batches before 7.1. */
#if CUDART_VERSION >= 13000
#define FAILED
#define SOURCES (const void* const*)srcs
#else
#define FAILED NULL,
#define SOURCES srcs
#endif

/* The source of the first copy is read in the order of the stream, that of the others while the call is made. */
static void sources_that_are_read_during_the_call(void) {
  cudaStream_t s;
  char *from, *to;
  void *dsts[3];
  void *srcs[3];
  size_t sizes[3], where[2];
  struct cudaMemcpyAttributes how[2];
  int i;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaMallocHost((void**)&from, LARGE));
  CUDA(cudaMalloc((void**)&to, LARGE));
  memset(how, 0, sizeof how);
  how[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  how[1].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  for (i = 0; i < 3; i++) {
    dsts[i] = to + N * i;
    srcs[i] = from + N * i;
    sizes[i] = N;
  }
  where[0] = 0;
  where[1] = 1;
  memset(from, 1, LARGE);
  close_gate();
  CUDA(cudaLaunchHostFunc(s, pass_gate, NULL));
  CUDA(cudaMemcpyBatchAsync(dsts, SOURCES, sizes, 3, how, where, 2, FAILED s));
  CHECK(!get(&passed));
  memset(from, 2, LARGE);
  open_gate();
  CUDA(cudaStreamSynchronize(s));
  CHECK(all_are(to, 2, N) && all_are(to + N, 1, 2 * N));
  /* What is long is waited for. */
  close_gate();
  CUDA(cudaLaunchHostFunc(s, slow, NULL));
  dsts[0] = to;
  srcs[0] = from;
  sizes[0] = LARGE;
  CUDA(cudaMemcpyBatchAsync(dsts, SOURCES, sizes, 1, how + 1, where, 1, FAILED s));
  CHECK(get(&passed) && all_are(to, 2, LARGE));
#if CUDART_VERSION >= 13000
  close_gate();
  CUDA(cudaLaunchHostFunc(s, pass_gate, NULL));
  CUDA(cudaMemcpyWithAttributesAsync(to, from, N, how + 1, s));
  memset(from, 3, N);
  open_gate();
  CUDA(cudaStreamSynchronize(s));
  CHECK(all_are(to, 2, N));
#endif
  CUDA(cudaFreeHost(from));
  CUDA(cudaFree(to));
  CUDA(cudaStreamDestroy(s));
}
#endif

static int met[2];

/* Waits for that of the other device. */
static void CUDART_CB meets_the_other(void* mine) {
  set((int*)mine, 1);
  while (!get(&met[(int*)mine == met])) sched_yield();
}

static void functions_of_two_devices_meet(void) {
  cudaStream_t s[2];
  int d;
  for (d = 0; d < 2; d++) {
    CUDA(cudaSetDevice(d));
    CUDA(cudaStreamCreateWithFlags(&s[d], cudaStreamNonBlocking));
    CUDA(cudaLaunchHostFunc(s[d], meets_the_other, &met[d]));
  }
  for (d = 0; d < 2; d++) {
    while (cudaStreamQuery(s[d]) == cudaErrorNotReady) sched_yield();
    CUDA(cudaStreamDestroy(s[d]));
  }
  CUDA(cudaSetDevice(0));
}

int main(void) {
  a_query_calls_no_function();
  functions_of_two_devices_meet();
  a_function_keeps_no_other_stream_from_going_on();
  device_memory_is_set_and_copied_behind_the_caller();
  copies_between_devices_keep_order_with_all_work_of_both();
  what_is_freed_waits_for_its_device();
  what_is_freed_stays_for_other_devices();
  copies_from_host_to_host();
#ifndef HIP_TWIN
  sources_that_are_read_during_the_call();
#endif
  puts("all fine");
  return 0;
}
