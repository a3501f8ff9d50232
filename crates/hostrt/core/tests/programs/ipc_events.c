/* Events across processes: work of one waits for work of the other, in stream order, both ways; and the end of the process
 * that somebody waits for is told. C and C++. */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

enum { COUNT = 200000, ROUNDS = 20 };

struct handles { cudaIpcMemHandle_t memory; cudaIpcEventHandle_t ready, done; };

static void get(int from, void* to, size_t bytes) { CHECK(read(from, to, bytes) == (ssize_t)bytes); }
static void put(int to, const void* from, size_t bytes) { CHECK(write(to, from, bytes) == (ssize_t)bytes); }

/* Fills a buffer on its stream and records; the child adds one on its stream and records; and so on. Nobody waits on the
 * host but to hand the turn on once something is recorded. */
static void parent(int to, int from) {
  struct handles h;
  cudaEvent_t ready, done, bad;
  cudaStream_t s;
  unsigned char* memory;
  char token = 0;
  int round, i;
  CHECK(cudaEventCreateWithFlags(&bad, cudaEventInterprocess) == cudaErrorInvalidValue);
  CUDA(cudaEventCreateWithFlags(&bad, cudaEventDisableTiming));
  CHECK(cudaIpcGetEventHandle(&h.ready, bad) == cudaErrorInvalidResourceHandle);
  CUDA(cudaEventDestroy(bad));
  CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming | cudaEventInterprocess));
  CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming | cudaEventInterprocess));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaMalloc((void**)&memory, COUNT));
  CUDA(cudaIpcGetMemHandle(&h.memory, memory));
  CUDA(cudaIpcGetEventHandle(&h.ready, ready));
  CUDA(cudaIpcGetEventHandle(&h.done, done));
  put(to, &h, sizeof h);
  for (round = 1; round <= ROUNDS; round++) {
    CUDA(cudaMemsetAsync(memory, round, COUNT, s));
    CUDA(cudaEventRecord(ready, s));
    put(to, &token, 1);
    get(from, &token, 1); /* The child has recorded `done`; its work may still run. */
    CUDA(cudaStreamWaitEvent(s, done, 0));
    CUDA(cudaMemcpyAsync(memory + COUNT / 2, memory, COUNT / 2, cudaMemcpyDeviceToDevice, s));
    CUDA(cudaStreamSynchronize(s));
    for (i = 0; i < COUNT; i++) CHECK(memory[i] == 100 + round);
  }
  CUDA(cudaEventSynchronize(done));
  CHECK(cudaEventQuery(done) == cudaSuccess);
  put(to, &token, 1);
}

/* The work is what takes time: whoever does not wait for it is found out. */
static void CUDART_CB slow(void* to) {
  struct timespec t;
  t.tv_sec = 0;
  t.tv_nsec = 2000000;
  nanosleep(&t, NULL);
  ++*(int*)to;
}

static void child(int to, int from) {
  struct handles h;
  cudaEvent_t ready, done, wrong;
  cudaStream_t s;
  unsigned char* memory;
  char token = 0;
  int round, calls = 0;
  cudaIpcEventHandle_t nonsense;
  alarm(40);
  CUDA(cudaSetDevice(1));
  get(from, &h, sizeof h);
  memset(&nonsense, 7, sizeof nonsense);
  CHECK(cudaIpcOpenEventHandle(&wrong, nonsense) == cudaErrorInvalidResourceHandle);
  CUDA(cudaIpcOpenEventHandle(&ready, h.ready));
  CUDA(cudaIpcOpenEventHandle(&done, h.done));
  CUDA(cudaIpcOpenMemHandle((void**)&memory, h.memory, cudaIpcMemLazyEnablePeerAccess));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (round = 1; round <= ROUNDS; round++) {
    get(from, &token, 1);
    CUDA(cudaStreamWaitEvent(s, ready, 0));
    CUDA(cudaLaunchHostFunc(s, slow, &calls)); /* The parent would be done without its wait. */
    CUDA(cudaMemsetAsync(memory, 100 + round, COUNT, s));
    CUDA(cudaEventRecord(done, s));
    put(to, &token, 1);
  }
  CUDA(cudaStreamSynchronize(s));
  CHECK(calls == ROUNDS);
  get(from, &token, 1);
  CUDA(cudaEventDestroy(ready));
  CUDA(cudaEventDestroy(done));
}

static void CUDART_CB forever(void* p) {
  (void)p;
  for (;;) pause();
}

/* Records behind work that never ends, says so, and is killed. */
static void doomed(int to) {
  cudaEvent_t e;
  cudaIpcEventHandle_t handle;
  cudaStream_t s;
  alarm(40);
  CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventInterprocess));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CUDA(cudaIpcGetEventHandle(&handle, e));
  CUDA(cudaLaunchHostFunc(s, forever, NULL));
  CUDA(cudaEventRecord(e, s));
  put(to, &handle, sizeof handle);
  for (;;) pause();
}

static void of_a_killed_process(void) {
  int pipes[2], status;
  pid_t process;
  cudaIpcEventHandle_t handle;
  cudaEvent_t e;
  cudaStream_t s;
  alarm(40);
  CHECK(pipe(pipes) == 0);
  process = fork();
  CHECK(process >= 0);
  if (process == 0) doomed(pipes[1]);
  get(pipes[0], &handle, sizeof handle);
  CUDA(cudaIpcOpenEventHandle(&e, handle));
  CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK(cudaEventQuery(e) == cudaErrorNotReady);
  CUDA(cudaStreamWaitEvent(s, e, 0));
  CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
  CHECK(kill(process, SIGKILL) == 0 && waitpid(process, &status, 0) == process);
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
  CHECK(cudaEventSynchronize(e) == cudaErrorLaunchFailure && cudaEventQuery(e) == cudaErrorLaunchFailure);
  CUDA(cudaStreamSynchronize(s));
  CHECK(cudaIpcOpenEventHandle(&e, handle) == cudaErrorMapBufferObjectFailed);
  CUDA(cudaStreamDestroy(s));
  cudaGetLastError();
}

int main(void) {
  int there[2], back[2], status;
  pid_t first, second;
  alarm(40);
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  first = fork(); /* before the first call, as with CUDA */
  CHECK(first >= 0);
  if (first == 0) {
    child(back[1], there[0]);
    return 0;
  }
  second = fork();
  CHECK(second >= 0);
  if (second == 0) {
    of_a_killed_process();
    return 0;
  }
  parent(there[1], back[0]);
  CHECK(waitpid(first, &status, 0) == first && status == 0);
  CHECK(waitpid(second, &status, 0) == second && status == 0);
  puts("all fine");
  return 0;
}
