/* One rank per thread. */
#include "suite.h"
#include <pthread.h>

#define RANKS 4
static ncclUniqueId id;

static void* rank_main(void* argument) {
  int rank = (int)(intptr_t)argument, device = -1;
  ncclComm_t comm = NULL;
  ncclResult_t state = ncclInternalError;
  OK(oxcclSetDevice(rank));
  OK(ncclCommInitRank(&comm, RANKS, id, rank));
  OK(ncclCommCuDevice(comm, &device));
  CHECK(device == rank);
  run_suite(comm);
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  OK(ncclCommFinalize(comm));
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
