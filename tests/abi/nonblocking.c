/* One process, one thread, four ranks: nonblocking calls that are polled, in groups and outside; several ids; split,
 * shrink, grow and revoke of all ranks in a group. */
#include "abi_test.h"

#include <poll.h>

#define RANKS 4

static ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
static oxcclStream_t streams[RANKS];

/* Waits until no communicator is in progress; all must be fine then. */
static void ready(ncclComm_t* comms, int n) {
  for (int i = 0; i < n; i++) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      OK(ncclCommGetAsyncError(comms[i], &state));
      if (state == ncclInProgress) poll(NULL, 0, 1);
    }
    CHECK(state == ncclSuccess);
  }
}

/* The end of a group of nonblocking communicators. */
static void end(ncclComm_t* comms, int n) {
  ncclResult_t result = ncclGroupEnd();
  CHECK(result == ncclInProgress);
  ready(comms, n);
}

/* The sum of 1, 2, ... over the ranks. */
static void works(ncclComm_t* comms, int n) {
  int32_t* data[RANKS];
  OK(ncclGroupStart());
  for (int i = 0; i < n; i++) {
    data[i] = (int32_t*)allocate(1000 * sizeof(int32_t));
    for (int j = 0; j < 1000; j++) data[i][j] = i + 1;
    OK(ncclAllReduce(data[i], data[i], 1000, ncclInt32, ncclSum, comms[i], streams[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < n; i++) {
    OK(oxcclStreamSynchronize(streams[i]));
    for (int j = 0; j < 1000; j++) CHECK(data[i][j] == n * (n + 1) / 2);
    OK(ncclMemFree(data[i]));
  }
}

static void destroy(ncclComm_t* comms, int n) {
  for (int i = 0; i < n; i++) OK(ncclCommDestroy(comms[i]));
}

/* Outside of groups: the first rank's call returns before the others were made. */
static void init_polled(ncclComm_t* comms) {
  ncclUniqueId ids[2];
  int count;
  OK(ncclGetUniqueId(&ids[0]));
  OK(ncclGetUniqueId(&ids[1]));
  for (int i = 0; i < RANKS; i++) {
    OK(oxcclSetDevice(i));
    CHECK(ncclCommInitRankScalable(&comms[i], RANKS, i, 2, ids, &config) == ncclInProgress || i == RANKS - 1);
    CHECK(comms[i] != NULL);
    if (i == 0) CHECK(ncclCommCount(comms[0], &count) == ncclInvalidArgument);
  }
  ready(comms, RANKS);
  OK(ncclCommCount(comms[0], &count));
  CHECK(count == RANKS);
  works(comms, RANKS);
}

static void split_and_shrink(ncclComm_t* comms) {
  ncclComm_t child[RANKS], rest[RANKS];
  int number, exclude[1] = {1};
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++) OK(ncclCommSplit(comms[i], i % 2, -i, &child[i], NULL));
  end(comms, RANKS);
  for (int i = 0; i < RANKS; i++) {
    OK(ncclCommUserRank(child[i], &number));
    CHECK(number == (i < 2 ? 1 : 0));
    OK(ncclCommCuDevice(child[i], &number));
    CHECK(number == i);
  }
  ncclComm_t even[2] = {child[2], child[0]}, odd[2] = {child[3], child[1]};
  works(even, 2);
  works(odd, 2);
  destroy(child, RANKS);
  /* Three of four remain. Blocking children of nonblocking parents. */
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  blocking.blocking = 1;
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++)
    if (i != 1) OK(ncclCommShrink(comms[i], exclude, 1, &rest[i - (i > 1)], &blocking, NCCL_SHRINK_DEFAULT));
  end(comms, RANKS);
  works(rest, 3);
  destroy(rest, 3);
}

static void grow_pair(ncclComm_t* comms) {
  ncclComm_t grown[RANKS];
  ncclUniqueId id;
  OK(ncclCommGetUniqueId(comms[1], &id));
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclCommGrow(comms[i], RANKS, i == 1 ? &id : NULL, -1, &grown[i], NULL));
  for (int i = 2; i < RANKS; i++) OK(ncclCommGrow(NULL, RANKS, &id, i, &grown[i], NULL));
  OK(ncclGroupEnd());
  works(grown, RANKS);
  destroy(grown, RANKS);
}

static void revoke_all(ncclComm_t* comms) {
  ncclComm_t child[RANKS];
  int32_t in = 1, out = 0;
  /* Never comes about: the other ranks do not call. */
  OK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[0], streams[0]));
  for (int i = 0; i < RANKS; i++) {
    ncclResult_t result = ncclCommRevoke(comms[i], NCCL_REVOKE_DEFAULT);
    CHECK(result == ncclSuccess || result == ncclInProgress);
  }
  ready(comms, RANKS);
  CHECK(oxcclStreamSynchronize(streams[0]) != ncclSuccess);
  CHECK(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comms[1], streams[1]) == ncclInvalidUsage);
  CHECK(ncclCommFinalize(comms[2]) == FINALIZE_REVOKED);
  OK(oxcclStreamDestroy(streams[0]));
  OK(oxcclSetDevice(0));
  OK(oxcclStreamCreate(&streams[0]));
  OK(ncclGroupStart());
  for (int i = 0; i < RANKS; i++) OK(ncclCommSplit(comms[i], 0, i, &child[i], NULL));
  end(comms, RANKS);
  works(child, RANKS);
  destroy(child, RANKS);
}

/* A split for which not all come stays in progress and can be aborted. */
static void abort_a_split(void) {
  ncclComm_t comms[2], child = NULL;
  ncclUniqueId id;
  ncclResult_t state;
  int count;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(oxcclSetDevice(i));
    OK(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
  }
  end(comms, 2);
  CHECK(ncclCommSplit(comms[0], 0, 0, &child, NULL) == ncclInProgress);
  OK(ncclCommGetAsyncError(comms[0], &state));
  CHECK(state == ncclInProgress);
  CHECK(ncclCommCount(comms[0], &count) == ncclInvalidArgument);
  CHECK(ncclCommSplit(comms[0], 0, 0, &child, NULL) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(comms[0]) == ncclInvalidArgument);
  OK(ncclCommAbort(comms[0]));
  CHECK(child == NULL);
  OK(ncclCommAbort(comms[1]));
}

/* Finalize in the background, then destroy. */
static void finalize(void) {
  ncclComm_t comms[2];
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(oxcclSetDevice(i));
    OK(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
  }
  end(comms, 2);
  works(comms, 2);
  for (int i = 0; i < 2; i++) {
    ncclResult_t result = ncclCommFinalize(comms[i]);
    CHECK(result == ncclSuccess || result == ncclInProgress);
  }
  ready(comms, 2);
  destroy(comms, 2);
}

int main(void) {
  ncclComm_t comms[RANKS], pair[2], alone, mixed[2];
  ncclUniqueId id;
  bound_time();
  config.blocking = 0;
  for (int i = 0; i < RANKS; i++) {
    OK(oxcclSetDevice(i));
    OK(oxcclStreamCreate(&streams[i]));
  }
  init_polled(comms);
  split_and_shrink(comms);
  revoke_all(comms);
  destroy(comms, RANKS);

  OK(ncclCommInitAll(pair, 2, NULL));
  grow_pair(pair);
  /* One group, one way of waiting. */
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&mixed[0], 2, id, 0));
  OK(ncclCommInitRankConfig(&mixed[1], 2, id, 1, &config));
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "Blocking and nonblocking communicators are not allowed in the same group.") != NULL);
  OK(ncclCommAbort(mixed[0]));
  OK(ncclCommAbort(mixed[1]));
  destroy(pair, 2);

  abort_a_split();
  finalize();

  /* An initialisation that never ends is aborted. */
  OK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRankConfig(&alone, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommDestroy(alone) == ncclInvalidArgument);
  OK(ncclCommAbort(alone));
  for (int i = 0; i < RANKS; i++) OK(oxcclStreamDestroy(streams[i]));
  return 0;
}
