/* An all-reduce on every device of one process: runs on GPUs and, by `oxccl run`, without one. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call, good) do { if ((call) != (good)) { fprintf(stderr, "%s failed\n", #call); exit(1); } } while (0)
#define CUDA(call) CHECK(call, cudaSuccess)
#define NCCL(call) CHECK(call, ncclSuccess)

enum { MOST = 16, COUNT = 1 << 16 };

int main(void) {
  ncclComm_t comms[MOST];
  cudaStream_t streams[MOST];
  float *buffers[MOST], *host = malloc(COUNT * sizeof(float));
  int devices, i, j;
  if (!host) return 1;
  CUDA(cudaGetDeviceCount(&devices));
  if (devices > MOST) devices = MOST;
  NCCL(ncclCommInitAll(comms, devices, NULL));
  for (i = 0; i < devices; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamCreate(&streams[i]));
    CUDA(cudaMalloc((void**)&buffers[i], COUNT * sizeof(float)));
    for (j = 0; j < COUNT; j++) host[j] = (float)(i + 1);
    CUDA(cudaMemcpy(buffers[i], host, COUNT * sizeof(float), cudaMemcpyHostToDevice));
  }
  NCCL(ncclGroupStart());
  for (i = 0; i < devices; i++) NCCL(ncclAllReduce(buffers[i], buffers[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]));
  NCCL(ncclGroupEnd());
  for (i = 0; i < devices; i++) {
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamSynchronize(streams[i]));
    CUDA(cudaMemcpy(host, buffers[i], COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    for (j = 0; j < COUNT; j++) CHECK(host[j] == (float)(devices * (devices + 1) / 2), 1);
    NCCL(ncclCommDestroy(comms[i]));
    CUDA(cudaFree(buffers[i]));
    CUDA(cudaStreamDestroy(streams[i]));
  }
  free(host);
  printf("%d devices agree\n", devices);
  return 0;
}
