/* One rank per process, started by MPI: runs on GPUs and, by `mpirun ... oxccl run`, without one. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call, good) do { if ((call) != (good)) { fprintf(stderr, "%s failed\n", #call); MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)
#define CUDA(call) CHECK(call, cudaSuccess)
#define NCCL(call) CHECK(call, ncclSuccess)

enum { COUNT = 1000 };

int main(int argc, char** argv) {
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  float *buffer, host[COUNT];
  int rank, ranks, devices, i;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CUDA(cudaGetDeviceCount(&devices));
  CUDA(cudaSetDevice(rank % devices));
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void**)&buffer, sizeof host));
  for (i = 0; i < COUNT; i++) host[i] = (float)(rank + 1);
  CUDA(cudaMemcpyAsync(buffer, host, sizeof host, cudaMemcpyHostToDevice, stream));
  NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat, ncclSum, comm, stream));
  CUDA(cudaMemcpyAsync(host, buffer, sizeof host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (i = 0; i < COUNT; i++) CHECK(host[i] == (float)(ranks * (ranks + 1) / 2), 1);
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFree(buffer));
  CUDA(cudaStreamDestroy(stream));
  if (rank == 0) printf("%d ranks agree\n", ranks);
  MPI_Finalize();
  return 0;
}
