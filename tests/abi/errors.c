/*
 * Chapter "errors": codes in words, the text of the last error, the state of a communicator; ranks that call different
 * things are told so, each of them; an abort sets a waiting rank free.
 */
#include "launch.h"
#include <poll.h>
#include <pthread.h>

static void words(void) {
  static const char* const strings[] = {
    "no error",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "internal error - please report this issue to the NCCL developers",
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
    "timeout", /* of 2.30 */
  };
  for (int code = 0; code <= ncclNumResults; code++) CHECK(strcmp(ncclGetErrorString((ncclResult_t)code), strings[code]) == 0);
  CHECK(strcmp(ncclGetErrorString((ncclResult_t)9), "unknown result code") == 0);
  CHECK(strcmp(ncclGetErrorString((ncclResult_t)-1), "unknown result code") == 0);
}

/* The last error is never null, is the process's, ends within 1024 bytes, and success does not change it. */
static void last_error(world_t* w) {
  int count;
  CHECK(ncclGetLastError(NULL) != NULL && ncclGetLastError(w->comm[0]) == ncclGetLastError(NULL));
  CHECK(strlen(ncclGetLastError(NULL)) < 1024);
  if (w->mode == LAUNCH_THREADS) return;
  GIVES(ncclCommCount(NULL, &count), ncclInvalidArgument, "CommCount : comm argument is NULL");
  OK(ncclCommCount(w->comm[0], &count));
  CHECK(strcmp(ncclGetLastError(NULL), "CommCount : comm argument is NULL") == 0);
}

static void fresh_streams(world_t* w) {
  EACH(w, i) {
    oxcclStreamDestroy(w->stream[i]); /* its work failed, which it may tell once more */
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamCreate(&w->stream[i]));
  }
}

/* Waits until the communicator has an error. */
static ncclResult_t failure_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  for (;;) {
    OK(ncclCommGetAsyncError(comm, &state));
    if (state != ncclSuccess) return state;
    poll(NULL, 0, 1);
  }
}

enum difference { COUNTS, OPERATORS, TYPES_, COLLECTIVES, ROOTS, DIFFERENCES };

static ncclResult_t differing(enum difference what, int odd, int32_t* data, ncclComm_t comm, oxcclStream_t stream) {
  switch ((int)what) {
    case COUNTS: return ncclAllReduce(data, data, odd ? 10 : 20, ncclInt32, ncclSum, comm, stream);
    case OPERATORS: return ncclAllReduce(data, data, 20, ncclInt32, odd ? ncclMax : ncclSum, comm, stream);
    case TYPES_: return ncclAllReduce(data, data, 20, odd ? ncclFloat : ncclInt32, ncclSum, comm, stream);
    case COLLECTIVES:
      return odd ? ncclBroadcast(data, data, 20, ncclInt32, 0, comm, stream)
                 : ncclAllReduce(data, data, 20, ncclInt32, ncclSum, comm, stream);
    default: return ncclBroadcast(data, data, 20, ncclInt32, odd, comm, stream);
  }
}

/* The last rank calls something else: all ranks hear that, nobody hangs. */
static void disagreement(world_t* w, enum difference what) {
  static int32_t data[WORLD_MAX][100];
  ncclComm_t comm[WORLD_MAX];
  ALL(w, i, ncclCommSplit(w->comm[i], 0, 0, &comm[i], NULL));
  OK(ncclGroupStart());
  EACH(w, i) {
    /* Who comes late may hear it at once. */
    ncclResult_t called = differing(what, w->rank[i] == w->n - 1, data[w->rank[i]], comm[i], w->stream[i]);
    CHECK(called == ncclSuccess || called == ncclInvalidUsage);
  }
  ncclResult_t begun = ncclGroupEnd();
  CHECK(begun == ncclSuccess || begun == ncclInvalidUsage);
  EACH(w, i) {
    ncclResult_t waited = oxcclStreamSynchronize(w->stream[i]);
    CHECK(waited == ncclSuccess || waited == ncclInvalidUsage);
    CHECK(failure_of(comm[i]) == ncclInvalidUsage);
    if (w->mode == LAUNCH_PROCESSES) CHECK(strstr(ncclGetLastError(NULL), "ranks called different operations") != NULL);
    GIVES(ncclAllReduce(data[0], data[0], 1, ncclInt32, ncclSum, comm[i], w->stream[i]), ncclInvalidUsage, NULL);
  }
  meet(w);
  EACH(w, i) OK(ncclCommAbort(comm[i]));
  fresh_streams(w);
}

static void* abort_it(void* comm) {
  OK(ncclCommAbort((ncclComm_t)comm));
  return NULL;
}

/* Rank 0 waits in a call that the others never make; another thread aborts its communicator. */
static void abort_a_wait(world_t* w) {
  static int32_t data[WORLD_MAX][1000];
  ncclComm_t comm[WORLD_MAX];
  pthread_t other;
  ALL(w, i, ncclCommSplit(w->comm[i], 0, 0, &comm[i], NULL));
  if (w->rank[0] == 0) {
    ncclResult_t begun = ncclAllReduce(data[0], data[0], 1000, ncclInt32, ncclSum, comm[0], w->stream[0]);
    CHECK(begun == ncclSuccess);
    /* The abort may come before or in the wait; it cannot hang, and the call cannot succeed. */
    CHECK(pthread_create(&other, NULL, abort_it, comm[0]) == 0);
    CHECK(oxcclStreamSynchronize(w->stream[0]) != ncclSuccess);
    CHECK(pthread_join(other, NULL) == 0);
    GIVES(ncclCommAbort(comm[0]), ncclInvalidArgument, w->mode == LAUNCH_THREADS ? NULL : "CommAbort : comm ");
  }
  meet(w);
  EACH(w, i) if (w->rank[i] != 0) OK(ncclCommAbort(comm[i]));
  fresh_streams(w);
}

/* Deprecated, and still there: the log reads its variables again. */
static void log_reset(world_t* w) {
  int count;
  if (w->mode == LAUNCH_THREADS) return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
#pragma GCC diagnostic pop
  GIVES(ncclCommCount(NULL, &count), ncclInvalidArgument, "CommCount : comm argument is NULL");
}

void chapter(world_t* w) {
  words();
  if (w->mode != LAUNCH_THREADS) CHECK(strcmp(ncclGetLastError(NULL), "") == 0);
  world_open(w);
  last_error(w);
  for (int d = 0; d < DIFFERENCES; d++) disagreement(w, (enum difference)d);
  abort_a_wait(w);
  log_reset(w);
  world_works(w, w->comm, w->n);
  world_close(w);
}
