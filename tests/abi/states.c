/*
 * Calls at the wrong time: every function on a communicator that is not ready, was finalized, revoked or suspended, and
 * what the environment forbids. As in arguments.c every row calls once and expects a code and a text. One process.
 */
#include "rows.h"

static int32_t in[16], out[16], number;
static ncclResult_t state;
static ncclComm_t made;
static ncclUniqueId id;
static void* pointer;
static ncclRedOp_t op;
static uint64_t value;
static float scalar = 1;
static int list[1] = {7};

/* Every call that moves data. */
#define DATA_ROWS(comm, ROW_, TEXT)                                                                  \
  do {                                                                                               \
    ROW_(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, comm, NULL), TEXT("AllReduce"));              \
    ROW_(ncclReduce(in, out, 4, ncclInt32, ncclSum, 0, comm, NULL), TEXT("Reduce"));                 \
    ROW_(ncclReduceScatter(in, out, 4, ncclInt32, ncclSum, comm, NULL), TEXT("ReduceScatter"));      \
    ROW_(ncclBroadcast(in, out, 4, ncclInt32, 0, comm, NULL), TEXT("Broadcast"));                    \
    ROW_(ncclBcast(out, 4, ncclInt32, 0, comm, NULL), TEXT("Broadcast"));                            \
    ROW_(ncclAllGather(in, out, 4, ncclInt32, comm, NULL), TEXT("AllGather"));                       \
    ROW_(ncclAlltoAll(in, out, 4, ncclInt32, comm, NULL), TEXT("AlltoAll"));                         \
    ROW_(ncclGather(in, out, 4, ncclInt32, 0, comm, NULL), TEXT("Gather"));                          \
    ROW_(ncclScatter(in, out, 4, ncclInt32, 0, comm, NULL), TEXT("Scatter"));                        \
    ROW_(ncclSend(in, 4, ncclInt32, 0, comm, NULL), TEXT("Send"));                                   \
    ROW_(ncclRecv(out, 4, ncclInt32, 0, comm, NULL), TEXT("Recv"));                                  \
    RCCL_ROWS(comm, ROW_, TEXT);                                                                     \
  } while (0)
#ifdef ABI_RCCL
static size_t counts[2] = {4, 4}, places[2] = {0, 4};
#define RCCL_ROWS(comm, ROW_, TEXT)                                                                           \
  ROW_(ncclAllReduceWithBias(in, out, 4, ncclInt32, ncclSum, comm, NULL, in), TEXT("AllReduce"));             \
  ROW_(ncclAlltoAllv(in, counts, places, out, counts, places, ncclInt32, comm, NULL), TEXT("AlltoAllv"));     \
  ROW_(ncclAllToAllv(in, counts, places, out, counts, places, ncclInt32, comm, NULL), TEXT("AlltoAllv"));     \
  ROW_(ncclAllToAll(in, out, 4, ncclInt32, comm, NULL), TEXT("AlltoAll"))
#else
#define RCCL_ROWS(comm, ROW_, TEXT)
#endif

/* Every other call that needs a communicator that is ready. */
#define MANAGEMENT_ROWS(comm, ROW_, TEXT)                                                                     \
  do {                                                                                                        \
    ROW_(ncclCommCount(comm, &number), TEXT("CommCount"));                                                    \
    ROW_(ncclCommCuDevice(comm, &number), TEXT("CommCuDevice"));                                              \
    ROW_(ncclCommUserRank(comm, &number), TEXT("CommUserRank"));                                              \
    ROW_(ncclCommFinalize(comm), TEXT("CommFinalize"));                                                       \
    ROW_(ncclCommDestroy(comm), TEXT("CommDestroy"));                                                         \
    ROW_(ncclCommSplit(comm, 0, 0, &made, NULL), TEXT("CommSplit"));                                          \
    ROW_(ncclCommShrink(comm, list, 1, &made, NULL, NCCL_SHRINK_DEFAULT), TEXT("CommShrink"));                \
    ROW_(ncclCommGetUniqueId(comm, &id), TEXT("CommGetUniqueId"));                                            \
    ROW_(ncclCommGrow(comm, 5, NULL, -1, &made, NULL), TEXT("CommGrow"));                                     \
    ROW_(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), TEXT("CommSuspend"));                                       \
    ROW_(ncclCommResume(comm), TEXT("CommResume"));                                                           \
    ROW_(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value), TEXT("CommMemStats"));                          \
    ROW_(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm), TEXT("RedOp"));    \
  } while (0)

#define BUSY(name) "Attempt to use communicator before the previous operation returned ncclSuccess"
#define REVOKED(name) name ": communicator was revoked"
#define SUSPENDED(name) name ": communicator is suspended"

/* A rank whose peer has not come yet. */
static void in_progress(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  config.blocking = 0;
  OK(ncclGetUniqueId(&id));
  ROW(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress, NULL);
  ROW(ncclCommGetAsyncError(comm, &state), ncclSuccess, NULL);
  CHECK(state == ncclInProgress);
  DATA_ROWS(comm, ARG_BOTH, BUSY);
  MANAGEMENT_ROWS(comm, ARG, BUSY);
  ROW(ncclCommGetAsyncError(comm, &state), ncclSuccess, NULL);
  CHECK(state == ncclInProgress);
  ROW(ncclCommAbort(comm), ncclSuccess, NULL);
}

static ncclComm_t fresh(void) {
  ncclComm_t comm = NULL;
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  return comm;
}

static void revoked(void) {
  ncclComm_t comm = fresh();
  ROW(ncclCommRevoke(NULL, 5), ncclSuccess, NULL); /* as in the original, nothing is nothing to revoke */
  ROW(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess, NULL);
  DATA_ROWS(comm, USE_BOTH, REVOKED);
  ARG_BOTH(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), "*revoked before");
#ifdef ABI_RCCL
  USE_BOTH(ncclCommFinalize(comm), "a revoked communicator cannot be finalized");
#else
  ARG_BOTH(ncclCommFinalize(comm), "*finalized or revoked before");
#endif
  ROW(ncclCommSplit(comm, 0, 0, &made, NULL), ncclSuccess, NULL);
  OK(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, made, NULL));
  OK(ncclCommDestroy(made));
  ROW(ncclCommShrink(comm, list, 1, &made, NULL, NCCL_SHRINK_DEFAULT), ncclSuccess, NULL);
  OK(ncclCommDestroy(made));
  ROW(ncclCommGetAsyncError(comm, &state), ncclSuccess, NULL);
  CHECK(state == ncclSuccess);
  ROW(ncclCommDestroy(comm), ncclSuccess, NULL);
  comm = fresh();
  OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  ROW(ncclCommAbort(comm), ncclSuccess, NULL);
}

static void finalized(void) {
  ncclComm_t comm = fresh();
  ROW(ncclCommFinalize(comm), ncclSuccess, NULL);
#define FINALIZED(name) name ": the communicator was finalized"
  DATA_ROWS(comm, ARG_BOTH, FINALIZED);
  ARG_BOTH(ncclCommFinalize(comm), "*finalized or revoked before");
  ARG_BOTH(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), NULL);
  ROW(ncclCommCount(comm, &number), ncclSuccess, NULL);
  ROW(ncclCommDestroy(comm), ncclSuccess, NULL);
}

static void suspended(void) {
  ncclComm_t comm = fresh();
  uint64_t suspend = 0, persist = 0;
  ROW(ncclCommSuspend(comm, 0), ncclSuccess, NULL); /* nothing to suspend */
  USE_BOTH(ncclCommResume(comm), "MemManager: Not in suspended state");
  ROW(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclSuccess, NULL);
  DATA_ROWS(comm, USE_BOTH, SUSPENDED);
  USE_BOTH(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), "MemManager: Already suspended");
  ROW(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value), ncclSuccess, NULL);
  CHECK(value == 1);
  ROW(ncclCommResume(comm), ncclSuccess, NULL);
  OK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
  CHECK(value == 0);
  OK(ncclCommMemStats(comm, ncclStatGpuMemSuspend, &suspend));
  OK(ncclCommMemStats(comm, ncclStatGpuMemPersist, &persist));
  OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value));
  CHECK(suspend > 0 && persist > 0 && value == suspend + persist);
  OK(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
}

static void environment(void) {
  static const char* const addresses[] = {"nothing", "1.2.3.4", "1.2.3.4:", "1.2.3.4:port", "[::1:5", "a b:1"};
  ncclComm_t comm = fresh();
  setenv("NCCL_DISABLE_MEM_MANAGER", "1", 1);
  USE_BOTH(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), "CommSuspend : the memory manager is disabled");
  USE_BOTH(ncclCommResume(comm), "CommResume : the memory manager is disabled");
  USE(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value), "CommMemStats : the memory manager is disabled");
  unsetenv("NCCL_DISABLE_MEM_MANAGER");

  for (size_t k = 0; k < sizeof addresses / sizeof *addresses; k++) {
    setenv("NCCL_COMM_ID", addresses[k], 1);
    ARG(ncclGetUniqueId(&id), "NCCL_COMM_ID is ");
  }
  setenv("NCCL_COMM_ID", "127.0.0.1:29999", 1);
  ROW(ncclGetUniqueId(&id), ncclSuccess, NULL);
  USE(ncclCommGetUniqueId(comm, &id), "ncclCommGetUniqueId should not be called when NCCL_COMM_ID is set");
  unsetenv("NCCL_COMM_ID");

  /* Switched off, registration succeeds with a null handle, whatever it is given. */
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  pointer = in;
  ROW(ncclCommRegister(NULL, in, sizeof in, &pointer), ncclSuccess, NULL);
  CHECK(pointer == NULL);
  ROW(ncclCommDeregister(comm, pointer), ncclSuccess, NULL);
  unsetenv("NCCL_LOCAL_REGISTER");
  OK(ncclCommDestroy(comm));
}

int main(void) {
  bound_time();
  in_progress();
  revoked();
  finalized();
  suspended();
  environment();
  return rows_end();
}
