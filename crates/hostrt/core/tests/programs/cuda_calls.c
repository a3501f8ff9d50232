/* The host calls of the CUDA runtime, in one process with four devices. Built with oxccl's headers and with NVIDIA's. */
#include <nccl.h>
#include <cuda_runtime.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); exit(1); } } while (0)
#define CUDA(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); exit(1); } } while (0)
#define NCCL(call) do { ncclResult_t r_ = (call); if (r_ != ncclSuccess) { \
  fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); exit(1); } } while (0)

enum { DEVICES = 4, COUNT = 3000 };

static void devices(void) {
  int count = 0, version = 0, value = -1, device = -1;
  struct cudaDeviceProp p;
  char bus[32];
  CUDA(cudaGetDeviceCount(&count));
  CHECK(count == DEVICES);
  CUDA(cudaRuntimeGetVersion(&version));
  CHECK(version / 1000 == CUDART_VERSION / 1000);
  memset(&p, 0x55, sizeof p);
  CUDA(cudaGetDeviceProperties(&p, 2));
  CHECK(strstr(p.name, "oxccl") && p.totalGlobalMem > (64u << 20) && p.major == 9 && p.minor == 0);
  CHECK(p.pciBusID == 3 && p.pciDeviceID == 0 && p.pciDomainID == 0 && p.multiProcessorCount >= 1 && p.warpSize == 32);
  CHECK(p.unifiedAddressing == 1 && p.managedMemory == 1 && p.hostRegisterSupported == 1 && p.ECCEnabled == 0);
  CHECK(p.memoryPoolsSupported == 1 && p.concurrentKernels == 1 && p.canMapHostMemory == 1 && p.integrated == 0);
  CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrPciBusId, 2));
  CHECK(value == 3);
  CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 2));
  CHECK(!strcmp(bus, "0000:03:00.0"));
  CUDA(cudaDeviceGetByPCIBusId(&device, bus));
  CHECK(device == 2);
  CUDA(cudaDeviceCanAccessPeer(&value, 0, 1));
  CHECK(value == 1);
  CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(!strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue"));
  CHECK(!strcmp(cudaGetErrorString(cudaSuccess), "no error"));
}

static void memory(void) {
  char *d, *h, on_stack[64] = "text";
  void* m;
  size_t pitch, left, all;
  int i;
  struct cudaPointerAttributes a;
  cudaStream_t s;
  CUDA(cudaSetDevice(1));
  CUDA(cudaMalloc((void**)&d, 4096));
  CUDA(cudaMallocHost((void**)&h, 4096));
  CUDA(cudaPointerGetAttributes(&a, d + 100));
  CHECK(a.type == cudaMemoryTypeDevice && a.device == 1 && a.devicePointer == d + 100);
  CUDA(cudaPointerGetAttributes(&a, h));
  CHECK(a.type == cudaMemoryTypeHost && a.hostPointer == h);
  CUDA(cudaPointerGetAttributes(&a, on_stack));
  CHECK(a.type == cudaMemoryTypeUnregistered);
  CUDA(cudaMemset(d, 7, 4096));
  CUDA(cudaMemcpy(h, d, 4096, cudaMemcpyDeviceToHost));
  for (i = 0; i < 4096; i++) CHECK(h[i] == 7);
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaMemcpyAsync(d, on_stack, sizeof on_stack, cudaMemcpyHostToDevice, s));
  memset(on_stack, 0, sizeof on_stack);
  CUDA(cudaStreamSynchronize(s));
  CHECK(!strcmp(d, "text"));
  CUDA(cudaMallocPitch(&m, &pitch, 100, 8));
  CHECK(pitch >= 100);
  CUDA(cudaMemset2D(m, pitch, 1, 100, 8));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy2DAsync(h, 100, m, pitch, 100, 8, cudaMemcpyDeviceToHost, s));
  CUDA(cudaStreamSynchronize(s));
  for (i = 0; i < 800; i++) CHECK(h[i] == 1);
  CHECK(cudaMemcpy(d, h, 1, (enum cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaFree(d + 64) == cudaErrorInvalidValue);
  CHECK(cudaMalloc((void**)NULL, 8) == cudaErrorInvalidValue);
  CUDA(cudaMemGetInfo(&left, &all));
  CHECK(left > 0 && left <= all);
  CUDA(cudaHostRegister(on_stack, sizeof on_stack, cudaHostRegisterDefault));
  CUDA(cudaPointerGetAttributes(&a, on_stack + 8));
  CHECK(a.type == cudaMemoryTypeHost && a.device == 1);
  CHECK(cudaHostRegister(on_stack, 8, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  CUDA(cudaHostUnregister(on_stack));
  CHECK(cudaHostUnregister(on_stack) == cudaErrorHostMemoryNotRegistered);
  CUDA(cudaFreeAsync(m, s));
  CUDA(cudaMallocAsync(&m, 100, s));
  CUDA(cudaFreeAsync(m, s));
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaFree(d));
  CUDA(cudaFreeHost(h));
  CUDA(cudaFree(NULL));
  cudaGetLastError();
}

static void CUDART_CB add_one(void* to) { ++*(int*)to; }

static void CUDART_CB called_back(cudaStream_t stream, cudaError_t status, void* to) {
  *(int*)to = (stream != NULL && status == cudaSuccess) ? 42 : -1;
}

/* The default stream waits for blocking streams, and they for it. */
static void streams(void) {
  enum { BYTES = 8 << 20 };
  cudaStream_t blocking, high;
  cudaEvent_t start, end;
  char *a, *b, *c;
  int least, greatest, priority, calls = 0, called = 0, round;
  unsigned int flags;
  float ms = -1;
  CUDA(cudaSetDevice(0));
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && greatest < 0);
  CUDA(cudaStreamCreate(&blocking));
  CUDA(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
  CUDA(cudaStreamGetPriority(high, &priority));
  CUDA(cudaStreamGetFlags(high, &flags));
  CHECK(priority == greatest && flags == cudaStreamNonBlocking);
  CUDA(cudaMalloc((void**)&a, BYTES));
  CUDA(cudaMalloc((void**)&b, BYTES));
  CUDA(cudaMalloc((void**)&c, BYTES));
  CUDA(cudaEventCreate(&start));
  CUDA(cudaEventCreate(&end));
  for (round = 1; round < 6; round++) {
    CUDA(cudaEventRecord(start, blocking));
    CUDA(cudaMemsetAsync(a, round, BYTES, blocking));
    CUDA(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, 0));
    CUDA(cudaMemcpyAsync(c, b, BYTES, cudaMemcpyDeviceToDevice, blocking));
    CUDA(cudaEventRecord(end, blocking));
    CUDA(cudaStreamWaitEvent(high, end, 0));
    CUDA(cudaLaunchHostFunc(high, add_one, &calls));
    CUDA(cudaStreamAddCallback(high, called_back, &called, 0));
    CUDA(cudaStreamSynchronize(high));
    CHECK(c[0] == round && c[BYTES / 2] == round && c[BYTES - 1] == round && calls == round && called == 42);
  }
  CUDA(cudaEventSynchronize(end));
  CUDA(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms > 0 && cudaEventQuery(end) == cudaSuccess);
  CUDA(cudaMemsetAsync(a, 9, BYTES, cudaStreamPerThread));
  CUDA(cudaDeviceSynchronize());
  CHECK(a[BYTES - 1] == 9 && cudaStreamQuery(blocking) == cudaSuccess && cudaStreamQuery(0) == cudaSuccess);
  CUDA(cudaStreamDestroy(blocking));
  CUDA(cudaStreamDestroy(high));
  CHECK(cudaStreamSynchronize(high) == cudaErrorInvalidResourceHandle);
  CUDA(cudaEventDestroy(start));
  CUDA(cudaEventDestroy(end));
  CUDA(cudaFree(a));
  CUDA(cudaFree(b));
  CUDA(cudaFree(c));
  cudaGetLastError();
}

/* A group of all-reduces on four devices, captured once and launched many times; then updated to other buffers. */
static volatile int gate, passed;

static void CUDART_CB pass_gate(void* unused) {
  (void)unused;
  while (!gate) sched_yield();
  passed = 1;
}

/* Streams are joined by one event; a stream is destroyed with work left in it, which is done all the same. */
static void left_busy(void) {
  cudaStream_t busy, other, main_;
  cudaEvent_t event;
  int calls = 0;
  CUDA(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&main_, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&event));
  CUDA(cudaLaunchHostFunc(busy, pass_gate, NULL));
  CUDA(cudaEventRecord(event, busy));
  CUDA(cudaStreamWaitEvent(main_, event, 0));
  CUDA(cudaEventRecord(event, other));
  CUDA(cudaStreamWaitEvent(main_, event, 0));
  CUDA(cudaLaunchHostFunc(main_, add_one, &calls));
  CUDA(cudaEventSynchronize(event));
  CHECK(cudaStreamQuery(main_) == cudaErrorNotReady);
  CUDA(cudaEventRecord(event, busy));
  CUDA(cudaStreamDestroy(busy));
  CHECK(!passed && cudaEventQuery(event) == cudaErrorNotReady && calls == 0);
  gate = 1;
  CUDA(cudaEventSynchronize(event));
  CHECK(passed);
  CUDA(cudaStreamSynchronize(main_));
  CHECK(calls == 1);
  CUDA(cudaStreamDestroy(other));
  CUDA(cudaStreamDestroy(main_));
  CUDA(cudaEventDestroy(event));
}

static void graphs(ncclComm_t* comms, float** in, float** out, cudaStream_t* s) {
  cudaGraph_t graph, other;
  cudaGraphExec_t exec;
  cudaEvent_t fork, join[DEVICES];
  cudaGraphExecUpdateResultInfo info;
  enum cudaStreamCaptureStatus state;
  size_t nodes = 0;
  int i, round, calls = 0, second;
  CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  for (i = 0; i < DEVICES; i++) CUDA(cudaEventCreateWithFlags(&join[i], cudaEventDisableTiming));
  for (second = 0; second < 2; second++) {
    CUDA(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeGlobal));
    CUDA(cudaStreamIsCapturing(s[0], &state));
    CHECK(state == cudaStreamCaptureStatusActive);
    CUDA(cudaEventRecord(fork, s[0]));
    for (i = 1; i < DEVICES; i++) CUDA(cudaStreamWaitEvent(s[i], fork, 0));
    NCCL(ncclGroupStart());
    for (i = 0; i < DEVICES; i++) NCCL(ncclAllReduce(second ? out[i] : in[i], second ? in[i] : out[i], COUNT, ncclFloat, ncclSum, comms[i], s[i]));
    NCCL(ncclGroupEnd());
    for (i = 1; i < DEVICES; i++) {
      CUDA(cudaEventRecord(join[i], s[i]));
      CUDA(cudaStreamWaitEvent(s[0], join[i], 0));
    }
    CUDA(cudaLaunchHostFunc(s[0], add_one, &calls));
    CUDA(cudaStreamEndCapture(s[0], second ? &other : &graph));
  }
  CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
  CHECK(nodes == DEVICES + 1 && calls == 0);
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (round = 1; round <= 20; round++) {
    for (i = 0; i < DEVICES; i++) in[i][COUNT - 1] = (float)(round * (i + 1));
    CUDA(cudaGraphLaunch(exec, s[0]));
    CUDA(cudaStreamSynchronize(s[0]));
    for (i = 0; i < DEVICES; i++) CHECK(out[i][COUNT - 1] == 10.0f * (float)round);
    CHECK(calls == round);
  }
  CUDA(cudaGraphExecUpdate(exec, other, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  CUDA(cudaGraphLaunch(exec, s[0]));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaStreamSynchronize(s[0]));
  for (i = 0; i < DEVICES; i++) CHECK(in[i][COUNT - 1] == 4 * 200.0f);
  /* Waiting breaks a capture; streams that do not lead back are refused. */
  CUDA(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeRelaxed));
  CHECK(cudaStreamSynchronize(s[0]) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s[0], &graph) == cudaErrorStreamCaptureInvalidated && graph == NULL);
  CUDA(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeRelaxed));
  CUDA(cudaEventRecord(fork, s[0]));
  CUDA(cudaStreamWaitEvent(s[1], fork, 0));
  CUDA(cudaMemsetAsync(out[1], 0, 4, s[1]));
  CHECK(cudaStreamEndCapture(s[1], &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamEndCapture(s[0], &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaStreamEndCapture(s[0], &graph) == cudaErrorInvalidValue);
  CUDA(cudaGraphDestroy(other));
  cudaGetLastError();
}

static void collectives(void) {
  ncclComm_t comms[DEVICES];
  cudaStream_t s[DEVICES];
  float *in[DEVICES], *out[DEVICES];
  int i, j;
  NCCL(ncclCommInitAll(comms, DEVICES, NULL));
  for (i = 0; i < DEVICES; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamCreate(&s[i]));
    CUDA(cudaMalloc((void**)&in[i], COUNT * sizeof(float)));
    CUDA(cudaMalloc((void**)&out[i], COUNT * sizeof(float)));
    for (j = 0; j < COUNT; j++) in[i][j] = (float)(i + j);
  }
  NCCL(ncclGroupStart());
  for (i = 0; i < DEVICES; i++) NCCL(ncclAllReduce(in[i], out[i], COUNT, ncclFloat, ncclSum, comms[i], s[i]));
  NCCL(ncclGroupEnd());
  for (i = 0; i < DEVICES; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamSynchronize(s[i]));
    for (j = 0; j < COUNT; j++) CHECK(out[i][j] == (float)(6 + 4 * j));
  }
  graphs(comms, in, out, s);
  for (i = 0; i < DEVICES; i++) {
    NCCL(ncclCommDestroy(comms[i]));
    CUDA(cudaStreamDestroy(s[i]));
    CUDA(cudaFree(in[i]));
    CUDA(cudaFree(out[i]));
  }
}

static void kernels(void) {
  dim3 one;
  cudaArray_t array = NULL;
  one.x = one.y = one.z = 1;
  CHECK(cudaLaunchKernel((const void*)kernels, one, one, NULL, 0, 0) == cudaErrorNotSupported);
  CHECK(cudaLaunchKernel((const void*)kernels, one, one, NULL, 0, 0) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
  CHECK(cudaMallocArray(&array, NULL, 4, 4, 0) == cudaErrorNotSupported);
}

int main(void) {
  devices();
  memory();
  streams();
  left_busy();
  collectives();
  kernels();
  puts("all fine");
  return 0;
}
