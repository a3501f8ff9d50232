/* What a group would take: nothing runs, nothing is left behind, and the time is plausible. Two ranks on one thread. */
#include "abi_test.h"

#define COUNT (1 << 20)
static ncclComm_t comms[2];
static oxcclStream_t streams[2];
static float *in[2], *out[2];

static void all_reduce(int rank, size_t count) {
  OK(ncclAllReduce(in[rank], out[rank], count, ncclFloat, ncclSum, comms[rank], streams[rank]));
}

static float simulated(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  OK(ncclGroupSimulateEnd(&info));
  return info.estimatedTime;
}

static float time_of(size_t count, int calls) {
  OK(ncclGroupStart());
  for (int i = 0; i < calls; i++) {
    for (int rank = 0; rank < 2; rank++) all_reduce(rank, count);
  }
  return simulated();
}

static void fill(void) {
  for (int rank = 0; rank < 2; rank++) {
    for (int i = 0; i < COUNT; i++) in[rank][i] = (float)(rank + 1), out[rank][i] = -1;
  }
}

static void synchronize(void) {
  for (int rank = 0; rank < 2; rank++) OK(oxcclStreamSynchronize(streams[rank]));
}

static void expect(float value) {
  synchronize();
  for (int rank = 0; rank < 2; rank++) {
    for (int i = 0; i < COUNT; i += 997) CHECK(out[rank][i] == value);
  }
}

static void times(void) {
  float small = time_of(16, 1), large = time_of(COUNT, 1), twice = time_of(COUNT, 2);
  CHECK(small > 0 && small < 1000);
  CHECK(large > 10 * small && large < 1e6f);
  CHECK(twice > 1.9f * large && twice < 2.1f * large);
  expect(-1);
  /* Sends and receives count, too. */
  OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) {
    OK(ncclSend(in[rank], COUNT, ncclFloat, 1 - rank, comms[rank], streams[rank]));
    OK(ncclRecv(out[rank], COUNT, ncclFloat, 1 - rank, comms[rank], streams[rank]));
  }
  CHECK(simulated() > 10);
  expect(-1);
}

/* A rank may simulate alone: its sequence of calls stays that of its peer. */
static void no_trace(void) {
  OK(ncclGroupStart());
  for (int i = 0; i < 20; i++) all_reduce(0, COUNT);
  CHECK(simulated() > 0);
  for (int i = 0; i < 12; i++) {
    OK(ncclGroupStart());
    for (int rank = 0; rank < 2; rank++) all_reduce(rank, i % 2 ? COUNT : 64);
    OK(ncclGroupEnd());
  }
  expect(3);
}

static void nothing_and_nested(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  OK(ncclGroupStart());
  CHECK(simulated() == -1);
  OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) all_reduce(rank, 0);
  CHECK(simulated() == -1);
  /* Only the outermost end decides. */
  fill();
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) all_reduce(rank, COUNT);
  CHECK(simulated() == -1);
  OK(ncclGroupEnd());
  expect(3);
  /* Without an argument it is the usual end. */
  fill();
  OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) all_reduce(rank, COUNT);
  OK(ncclGroupSimulateEnd(NULL));
  expect(3);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
}

static void struct_forms(void) {
  struct {
    ncclSimInfo_t info;
    int beyond;
  } longer = {NCCL_SIM_INFO_INITIALIZER, 77};
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  longer.info.size = sizeof longer;
  OK(ncclGroupStart());
  all_reduce(0, COUNT);
  OK(ncclGroupSimulateEnd(&longer.info));
  CHECK(longer.info.estimatedTime > 0 && longer.beyond == 77);
  /* A struct without room for the time is not written behind its end. */
  info.size = 16;
  OK(ncclGroupStart());
  all_reduce(0, COUNT);
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime == -1);
  info.size = 8;
  OK(ncclGroupStart());
  all_reduce(0, COUNT);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "NCCL_SIM_INFO_INITIALIZER") != NULL);
  /* The first error of the group is its result. */
  OK(ncclGroupStart());
  CHECK(ncclAllReduce(in[0], out[0], 1, ncclFloat, (ncclRedOp_t)77, comms[0], streams[0]) == ncclInvalidArgument);
  info.size = sizeof info, info.magic = 0;
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "reduction operation 77") != NULL);
}

/* In a group of nonblocking communicators the argument is ignored: the group ends as usual. */
static void nonblocking(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm;
  ncclResult_t state = ncclInProgress;
  config.blocking = 0;
  OK(ncclGetUniqueId(&id));
  ncclResult_t made = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  CHECK(made == ncclSuccess || made == ncclInProgress);
  while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
  OK(state);
  fill();
  OK(ncclGroupStart());
  OK(ncclAllReduce(in[0], out[0], COUNT, ncclFloat, ncclSum, comm, streams[0]));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime == -1);
  synchronize();
  CHECK(out[0][COUNT - 1] == 1);
  OK(ncclCommDestroy(comm));
}

int main(void) {
  bound_time();
  OK(ncclCommInitAll(comms, 2, NULL));
  for (int rank = 0; rank < 2; rank++) {
    OK(oxcclSetDevice(rank));
    OK(oxcclStreamCreate(&streams[rank]));
    in[rank] = (float*)allocate(COUNT * sizeof(float));
    out[rank] = (float*)allocate(COUNT * sizeof(float));
  }
  fill();
  times();
  no_trace();
  nothing_and_nested();
  struct_forms();
  nonblocking();
  for (int rank = 0; rank < 2; rank++) {
    OK(oxcclStreamDestroy(streams[rank]));
    OK(ncclMemFree(in[rank]));
    OK(ncclMemFree(out[rank]));
    OK(ncclCommDestroy(comms[rank]));
  }
  return 0;
}
