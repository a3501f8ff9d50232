/*
 * The smallest C program: one process, four ranks, one all-reduce.
 *
 *   cc all_reduce.c $(pkg-config --cflags --libs nccl) -o all_reduce
 */
#include <nccl.h>
#include <oxccl.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4
#define COUNT 1000

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}
#define CHECK(call) check(call, #call)

int main(void) {
  ncclComm_t comms[RANKS];
  cudaStream_t streams[RANKS];
  float* data[RANKS];

  CHECK(ncclCommInitAll(comms, RANKS, NULL));
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK(oxcclSetDevice(rank));
    CHECK(oxcclStreamCreate(&streams[rank]));
    CHECK(ncclMemAlloc((void**)&data[rank], COUNT * sizeof(float)));
    for (int i = 0; i < COUNT; i++) data[rank][i] = (float)rank;
  }

  CHECK(ncclGroupStart());
  for (int rank = 0; rank < RANKS; rank++)
    CHECK(ncclAllReduce(data[rank], data[rank], COUNT, ncclFloat, ncclSum, comms[rank], streams[rank]));
  CHECK(ncclGroupEnd());

  for (int rank = 0; rank < RANKS; rank++) {
    CHECK(oxcclStreamSynchronize(streams[rank]));
    for (int i = 0; i < COUNT; i++)
      if (data[rank][i] != 6.0f) return fprintf(stderr, "rank %d: %f\n", rank, data[rank][i]), 1;
    printf("rank %d of %d: %g\n", rank, RANKS, data[rank][0]); /* 0 + 1 + 2 + 3 */
    CHECK(ncclMemFree(data[rank]));
    CHECK(oxcclStreamDestroy(streams[rank]));
    CHECK(ncclCommDestroy(comms[rank]));
  }
  return 0;
}
