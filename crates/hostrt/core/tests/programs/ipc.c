/* Two processes: one maps the other's memory by a handle, over which data goes without another copy. */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); exit(1); } } while (0)
#define CUDA(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_)); exit(1); } } while (0)
#define NCCL(call) do { ncclResult_t r_ = (call); if (r_ != ncclSuccess) { \
  fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetLastError(NULL)); exit(1); } } while (0)

enum { BYTES = 100000 };

/* The second rank calls when the first one has gone on past calls that do not wait for the collective. */
static void all_reduce(int rank, ncclUniqueId id, int turn) {
  ncclComm_t comm;
  float *buffer, *other, result;
  char byte = 0;
  cudaStream_t stream;
  float mine = (float)(rank + 1);
  NCCL(ncclCommInitRank(&comm, 2, id, rank));
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void**)&buffer, sizeof mine));
  CUDA(cudaMemcpyAsync(buffer, &mine, sizeof mine, cudaMemcpyHostToDevice, stream));
  CUDA(cudaMalloc((void**)&other, 2 * sizeof mine));
  if (rank == 1) CHECK(read(turn, &byte, 1) == 1);
  NCCL(ncclAllReduce(buffer, buffer, 1, ncclFloat, ncclSum, comm, stream));
  if (rank == 0) {
    CUDA(cudaMemset(other, 0, 2 * sizeof mine));
    CUDA(cudaMemcpy(other + 1, other, sizeof mine, cudaMemcpyDeviceToDevice));
    CHECK(write(turn, &byte, 1) == 1);
  }
  CUDA(cudaMemcpyAsync(&result, buffer, sizeof result, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  CHECK(result == 3.0f);
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFree(buffer));
  CUDA(cudaFree(other));
}

static volatile int passed;

/* The work is what takes time: whoever does not wait for it is found out. */
static void CUDART_CB slow(void* unused) {
  struct timespec t = {0, 30000000};
  (void)unused;
  nanosleep(&t, NULL);
  passed = 1;
}

int main(void) {
  int there[2], back[2], child_status;
  char byte = 0;
  pid_t child;
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  child = fork(); /* before the first call, as with CUDA */
  CHECK(child >= 0);
  alarm(30);
  if (child == 0) {
    cudaIpcMemHandle_t handle;
    ncclUniqueId id;
    char *at, *again;
    struct cudaPointerAttributes a;
    cudaStream_t stream;
    CUDA(cudaSetDevice(1));
    CHECK(read(there[0], &handle, sizeof handle) == sizeof handle);
    CUDA(cudaIpcOpenMemHandle((void**)&at, handle, cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaIpcOpenMemHandle((void**)&again, handle, cudaIpcMemLazyEnablePeerAccess));
    CHECK(again == at && at[17] == 3);
    CUDA(cudaSetDevice(2));
    CUDA(cudaPointerGetAttributes(&a, at + 17));
    CHECK(a.type == cudaMemoryTypeDevice && a.device == 1);
    /* Queued work of any device is waited for before the memory goes. */
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaLaunchHostFunc(stream, slow, NULL));
    CUDA(cudaMemsetAsync(at, 4, BYTES, stream));
    CUDA(cudaIpcCloseMemHandle(at));
    CUDA(cudaIpcCloseMemHandle(at));
    CHECK(passed);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaSetDevice(1));
    CHECK(cudaIpcCloseMemHandle(at) == cudaErrorInvalidValue);
    memset(&handle, 0, sizeof handle);
    CHECK(cudaIpcOpenMemHandle((void**)&at, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorInvalidResourceHandle);
    CHECK(write(back[1], &byte, 1) == 1);
    CHECK(read(there[0], &id, sizeof id) == sizeof id);
    all_reduce(1, id, there[0]);
    return 0;
  } else {
    cudaIpcMemHandle_t handle;
    ncclUniqueId id;
    char* memory;
    CUDA(cudaMalloc((void**)&memory, BYTES));
    CUDA(cudaMemset(memory, 3, BYTES));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaIpcGetMemHandle(&handle, memory));
    CHECK(write(there[1], &handle, sizeof handle) == sizeof handle);
    CHECK(read(back[0], &byte, 1) == 1);
    CHECK(memory[0] == 4 && memory[BYTES - 1] == 4);
    NCCL(ncclGetUniqueId(&id));
    CHECK(write(there[1], &id, sizeof id) == sizeof id);
    all_reduce(0, id, there[1]);
    CHECK(waitpid(child, &child_status, 0) == child && child_status == 0);
    puts("all fine");
    return 0;
  }
}
