/*
 * NCCL_SHRINK_ABORT after a crash: ranks kill themselves (SIGKILL) in the middle of the work of all; the survivors get
 * an error in bounded time, shrink without the dead, and go on, twice. Processes only.
 */
#include "launch.h"
#include <time.h>

enum { COUNT = 100000 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Calls until one fails: the death of a rank may come in any of them. */
static void work_until_it_fails(world_t* w, ncclComm_t comm, float* data, int victim) {
  double begin = seconds();
  for (int round = 0;; round++) {
    ncclResult_t state = ncclSuccess;
    CHECK(seconds() - begin < 30);
    if (round == 20 && w->rank[0] == victim) die(w);
    ncclResult_t result = ncclAllReduce(data, data, COUNT, ncclFloat, ncclMax, comm, w->stream[0]);
    if (result == ncclSuccess) result = oxcclStreamSynchronize(w->stream[0]);
    if (result == ncclSuccess) continue;
    CHECK(result == ncclRemoteError && round >= 20);
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "rank") != NULL);
    return;
  }
}

/* The communicator without rank `victim` of `comm`; what the error said is over. */
static ncclComm_t go_on(world_t* w, ncclComm_t comm, int ranks, int victim) {
  int dead[1], left = 0;
  ncclComm_t rest = NULL;
  world_t survivors = *w;
  dead[0] = victim;
  GIVES(ncclCommCount(comm, &left), ncclRemoteError, NULL); /* as every call but those that end or renew it */
  double begin = seconds();
  OK(ncclCommShrink(comm, dead, 1, &rest, NULL, NCCL_SHRINK_ABORT));
  CHECK(seconds() - begin < 10);
  CHECK(rest != NULL);
  OK(ncclCommCount(rest, &left));
  CHECK(left == ranks - 1);
  oxcclStreamDestroy(w->stream[0]); /* its work failed, which it may tell once more */
  OK(oxcclStreamCreate(&w->stream[0]));
  survivors.stream[0] = w->stream[0];
  world_works(&survivors, &rest, left);
  OK(ncclCommDestroy(comm));
  return rest;
}

void chapter(world_t* w) {
  /* Of the world: any rank in the middle, then rank 0, where the ranks once met. */
  static const int victims[2] = {2, 0};
  ncclComm_t comm;
  CHECK(w->mode == LAUNCH_PROCESSES && w->n >= 4);
  world_open(w);
  comm = w->comm[0];
  float* data = (float*)allocate(COUNT * sizeof(float));
  for (int k = 0; k < COUNT; k++) data[k] = (float)(k % 100 + w->rank[0]);
  for (int v = 0; v < 2; v++) {
    /* Before the first death ranks of the world and of the communicator are the same; rank 0 is so after it, too. */
    work_until_it_fails(w, comm, data, victims[v]);
    comm = go_on(w, comm, w->n - v, victims[v]);
  }
  OK(ncclCommFinalize(comm));
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(data));
  OK(oxcclStreamDestroy(w->stream[0]));
}
