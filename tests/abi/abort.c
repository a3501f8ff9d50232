/* One rank waits in a collective that the other never calls; an abort from another thread sets it free. */
#include "abi_test.h"
#include <pthread.h>

#define RANKS 2
static ncclUniqueId id;
static ncclComm_t comms[RANKS];
static pthread_barrier_t ready;

static void* waiting_rank(void* unused) {
  oxcclStream_t stream;
  static int32_t in[1000], out[1000];
  (void)unused;
  OK(oxcclSetDevice(0));
  OK(ncclCommInitRank(&comms[0], RANKS, id, 0));
  OK(oxcclStreamCreate(&stream));
  pthread_barrier_wait(&ready);
  /* The abort may come before, during or after each of these; none may hang, and the collective cannot succeed. */
  ncclResult_t enqueued = ncclAllReduce(in, out, 1000, ncclInt32, ncclSum, comms[0], stream);
  ncclResult_t waited = oxcclStreamSynchronize(stream);
  CHECK(enqueued != ncclSuccess || waited != ncclSuccess);
  oxcclStreamDestroy(stream);
  return NULL;
}

static void* other_rank(void* unused) {
  (void)unused;
  OK(oxcclSetDevice(1));
  OK(ncclCommInitRank(&comms[1], RANKS, id, 1));
  pthread_barrier_wait(&ready);
  return NULL;
}

int main(void) {
  pthread_t waiting, other;
  bound_time();
  CHECK(pthread_barrier_init(&ready, NULL, RANKS + 1) == 0);
  OK(ncclGetUniqueId(&id));
  CHECK(pthread_create(&waiting, NULL, waiting_rank, NULL) == 0);
  CHECK(pthread_create(&other, NULL, other_rank, NULL) == 0);
  pthread_barrier_wait(&ready);
  OK(ncclCommAbort(comms[0]));
  CHECK(pthread_join(waiting, NULL) == 0);
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(ncclCommAbort(comms[0]) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "has already been destroyed") != NULL);
  OK(ncclCommAbort(comms[1]));
  return 0;
}
