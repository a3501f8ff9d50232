/* Captures that calls break, and calls that captures refuse. C and C++. */
#include <nccl.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include "check.h"

enum { N = 64 };

static void CUDART_CB nothing(void* unused) { (void)unused; }

static void ends_broken(cudaStream_t s) {
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && graph == NULL);
  cudaGetLastError();
}

/* Not even where the capture's streams do not keep order with it. */
static void the_default_stream_is_not_drawn_in(void) {
  enum cudaStreamCaptureStatus state;
  cudaStream_t s;
  cudaEvent_t e;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaEventRecord(e, s));
  CHECK(cudaStreamWaitEvent(0, e, 0) == cudaErrorStreamCaptureImplicit);
  CUDA(cudaStreamIsCapturing(s, &state));
  CHECK(state == cudaStreamCaptureStatusInvalidated);
  CUDA(cudaStreamIsCapturing(0, &state));
  CHECK(state == cudaStreamCaptureStatusNone);
  CUDA(cudaStreamSynchronize(0));
  ends_broken(s);
  CUDA(cudaEventDestroy(e));
  CUDA(cudaStreamDestroy(s));
}

/* A call that is refused breaks the capture. */
#define REFUSED(call) do { \
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); \
    CHECK((call) == cudaErrorStreamCaptureImplicit); \
    ends_broken(s); \
  } while (0)

static void the_runtime_refuses_work_on_the_default_stream(void) {
  cudaStream_t s;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  char *memory, *more;
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMallocAsync((void**)&memory, N, 0));
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  REFUSED(cudaGraphLaunch(exec, 0));
  REFUSED(cudaMallocAsync((void**)&more, N, 0));
  REFUSED(cudaFreeAsync(memory, 0));
  REFUSED(cudaStreamSynchronize(0));
  REFUSED(cudaStreamQuery(0));
  REFUSED(cudaLaunchHostFunc(0, nothing, NULL));
  CUDA(cudaFreeAsync(memory, 0));
  CUDA(cudaGraphLaunch(exec, 0));
  CUDA(cudaStreamSynchronize(0));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(s));
}

#ifndef HIP_TWIN /* RCCL says what went wrong where we say that all is fine. */
static ncclResult_t exchange(ncclComm_t comm, int* b) {
  CHECK(ncclGroupStart() == ncclSuccess);
  (void)ncclSend(b, 1, ncclInt32, 0, comm, NULL);
  (void)ncclRecv(b + 1, 1, ncclInt32, 0, comm, NULL);
  return ncclGroupEnd();
}

/* Also calls that were made alike before. */
static void communicators_refuse_work_on_the_default_stream(void) {
  ncclComm_t comm;
  cudaStream_t s;
  int *b, round, first = 0;
  CHECK(ncclCommInitAll(&comm, 1, &first) == ncclSuccess);
  CUDA(cudaStreamCreate(&s));
  CUDA(cudaMalloc((void**)&b, N * sizeof(int)));
  for (round = 0; round < 4; round++) {
    b[0] = b[2] = round;
    CHECK(ncclAllReduce(b + 2, b + 3, 1, ncclInt32, ncclSum, comm, NULL) == ncclSuccess);
    CHECK(exchange(comm, b) == ncclSuccess);
    CUDA(cudaStreamSynchronize(0));
    CHECK(b[1] == round && b[3] == round);
    b[0] = b[2] = -1;
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(ncclAllReduce(b + 2, b + 3, 1, ncclInt32, ncclSum, comm, NULL) == ncclUnhandledCudaError);
    ends_broken(s);
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(exchange(comm, b) == ncclUnhandledCudaError);
    ends_broken(s);
    CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CHECK(ncclSignal(0, 0, 0, 0, comm, NULL) == ncclUnhandledCudaError);
    ends_broken(s);
    CUDA(cudaStreamSynchronize(0));
    CHECK(b[1] == round && b[3] == round);
  }
  CUDA(cudaFree(b));
  CUDA(cudaStreamDestroy(s));
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static ncclResult_t reduce(char* memory, cudaStream_t s) {
  ncclComm_t comm;
  ncclResult_t answer;
  int first = 0;
  CHECK(ncclCommInitAll(&comm, 1, &first) == ncclSuccess);
  answer = ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, s);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  return answer;
}
#endif

/* What nobody records must not be taken for done. */
static void a_broken_capture_takes_nothing_more(void) {
  cudaStream_t s, other;
  cudaEvent_t e, f;
  char *memory, *more;
  enum cudaStreamCaptureStatus state;
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CUDA(cudaEventCreate(&e));
  CUDA(cudaEventCreate(&f));
  CUDA(cudaMalloc((void**)&memory, N));
  CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  CUDA(cudaEventRecord(e, s));
  CHECK(cudaStreamQuery(s) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaMemsetAsync(memory, 1, N, s) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaLaunchHostFunc(s, nothing, NULL) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaMallocAsync((void**)&more, N, s) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaEventRecord(f, s) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamWaitEvent(s, e, 0) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamWaitEvent(other, e, 0) == cudaErrorStreamCaptureInvalidated);
#ifndef HIP_TWIN
  CHECK(reduce(memory, s) != ncclSuccess);
#endif
  CUDA(cudaEventQuery(f));
  CUDA(cudaStreamIsCapturing(other, &state));
  CHECK(state == cudaStreamCaptureStatusNone);
  ends_broken(s);
  CUDA(cudaMemsetAsync(memory, 2, N, s));
  CUDA(cudaStreamSynchronize(s));
  CHECK(memory[N - 1] == 2);
  CUDA(cudaFree(memory));
  CUDA(cudaEventDestroy(e));
  CUDA(cudaEventDestroy(f));
  CUDA(cudaStreamDestroy(s));
  CUDA(cudaStreamDestroy(other));
}

static void* begins(void* unused) {
  (void)unused;
  CUDA(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeGlobal));
  CUDA(cudaLaunchHostFunc(cudaStreamPerThread, nothing, NULL));
  return NULL;
}

/* Nobody else could end the capture of its own stream. */
static void a_thread_takes_its_capture_along(void) {
  pthread_t thread;
  void* memory;
  CHECK(pthread_create(&thread, NULL, begins, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CUDA(cudaMalloc(&memory, N));
  CUDA(cudaFree(memory));
}

int main(void) {
  the_default_stream_is_not_drawn_in();
  the_runtime_refuses_work_on_the_default_stream();
#ifndef HIP_TWIN
  communicators_refuse_work_on_the_default_stream();
#endif
  a_broken_capture_takes_nothing_more();
  a_thread_takes_its_capture_along();
  puts("all fine");
  return 0;
}
