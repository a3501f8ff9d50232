/* What only librccl.so has. */
#include "abi_test.h"
#include <pthread.h>

#define RANKS 3
#define COUNT 500
static ncclUniqueId id;

static void with_bias(ncclComm_t comm, oxcclStream_t stream, int rank) {
  int32_t *in = (int32_t*)allocate(COUNT * 4), *out = (int32_t*)allocate(COUNT * 4), *bias = (int32_t*)allocate(COUNT * 4);
  int want = 0;
  for (int r = 0; r < RANKS; r++) want += r + 1;
  for (int i = 0; i < COUNT; i++) in[i] = rank + 1, bias[i] = 100 * (rank + 1) + i;
  OK(ncclAllReduceWithBias(in, out, COUNT, ncclInt32, ncclSum, comm, stream, bias));
  OK(oxcclStreamSynchronize(stream));
  for (int i = 0; i < COUNT; i++) CHECK(out[i] == want + 100 * (rank + 1) + i);
  OK(ncclAllReduceWithBias(in, out, COUNT, ncclInt32, ncclMax, comm, stream, bias));
  OK(oxcclStreamSynchronize(stream));
  for (int i = 0; i < COUNT; i++) CHECK(out[i] == 100 * (rank + 1) + i);
  OK(ncclMemFree(in));
  OK(ncclMemFree(out));
  OK(ncclMemFree(bias));
}

/* Rank s sends s + 2 * d elements to rank d, one element apart from each other; 0 for s = d = 0. */
static void with_counts(ncclComm_t comm, oxcclStream_t stream, int rank, int old_name) {
  size_t sendcounts[RANKS], sdispls[RANKS], recvcounts[RANKS], rdispls[RANKS], sends = 0, receives = 0;
  for (int r = 0; r < RANKS; r++) {
    sendcounts[r] = (size_t)(rank + 2 * r);
    recvcounts[r] = (size_t)(r + 2 * rank);
    sdispls[r] = sends;
    rdispls[r] = receives;
    sends += sendcounts[r] + 1;
    receives += recvcounts[r] + 1;
  }
  int16_t* in = (int16_t*)allocate(sends * 2);
  int16_t* out = (int16_t*)allocate(receives * 2);
  for (size_t i = 0; i < sends; i++) in[i] = -1;
  for (size_t i = 0; i < receives; i++) out[i] = -2;
  for (int r = 0; r < RANKS; r++)
    for (size_t i = 0; i < sendcounts[r]; i++) in[sdispls[r] + i] = (int16_t)(1000 * rank + 100 * r + (int)i);
  if (old_name) {
    OK(ncclAllToAllv(in, sendcounts, sdispls, out, recvcounts, rdispls, ncclFloat16, comm, stream));
  } else {
    OK(ncclAlltoAllv(in, sendcounts, sdispls, out, recvcounts, rdispls, ncclFloat16, comm, stream));
  }
  OK(oxcclStreamSynchronize(stream));
  for (int r = 0; r < RANKS; r++) {
    for (size_t i = 0; i < recvcounts[r]; i++) CHECK(out[rdispls[r] + i] == 1000 * r + 100 * rank + (int)i);
    CHECK(out[rdispls[r] + recvcounts[r]] == -2);
  }
  OK(ncclMemFree(in));
  OK(ncclMemFree(out));
}

static void old_names(ncclComm_t comm, oxcclStream_t stream, int rank) {
  uint64_t *in = (uint64_t*)allocate(RANKS * 8), *out = (uint64_t*)allocate(RANKS * 8);
  mscclAlgoHandle_t handle = 77;
  for (int r = 0; r < RANKS; r++) in[r] = (uint64_t)(10 * rank + r);
  OK(ncclAllToAll(in, out, 1, ncclUint64, comm, stream));
  OK(oxcclStreamSynchronize(stream));
  for (int r = 0; r < RANKS; r++) CHECK(out[r] == (uint64_t)(10 * r + rank));
  OK(mscclLoadAlgo("nowhere", &handle, rank));
  CHECK(handle == 77);
  OK(mscclRunAlgo(in, NULL, NULL, out, NULL, NULL, 1, ncclUint64, 0, 0, ncclSum, handle, comm, stream));
  OK(mscclUnloadAlgo(handle));
  OK(ncclMemFree(in));
  OK(ncclMemFree(out));
}

static void* rank_main(void* argument) {
  int rank = (int)(intptr_t)argument;
  ncclComm_t comm = NULL;
  oxcclStream_t stream = NULL;
  OK(oxcclSetDevice(rank));
  OK(ncclCommInitRank(&comm, RANKS, id, rank));
  OK(oxcclStreamCreate(&stream));
  with_bias(comm, stream, rank);
  with_counts(comm, stream, rank, 0);
  with_counts(comm, stream, rank, 1);
  old_names(comm, stream, rank);
  OK(oxcclStreamDestroy(stream));
  OK(ncclCommDestroy(comm));
  return NULL;
}

int main(void) {
  pthread_t threads[RANKS];
  bound_time();
  OK(ncclGetUniqueId(&id));
  for (intptr_t r = 0; r < RANKS; r++) CHECK(pthread_create(&threads[r], NULL, rank_main, (void*)r) == 0);
  for (int r = 0; r < RANKS; r++) CHECK(pthread_join(threads[r], NULL) == 0);
  return 0;
}
