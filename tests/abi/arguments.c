/* Bad arguments: every row calls a function once and expects a code and words in ncclGetLastError. One rank. */
#include "abi_test.h"

static ncclComm_t comm, gone;
static ncclUniqueId id;
static int32_t in[16], out[16], number;
static int garbage[64];
static ncclConfig_t good = NCCL_CONFIG_INITIALIZER, bad;
static ncclComm_t made;
static void* pointer;
static ncclRedOp_t op;
static int failures, rows;

static void expect(int line, const char* call, ncclResult_t got, ncclResult_t code, const char* words) {
  const char* text = ncclGetLastError(NULL);
  rows++;
  if (got != code || (words != NULL && strstr(text, words) == NULL)) {
    fprintf(stderr, "%s:%d: %s\n  returned %d, expected %d\n  text \"%s\"\n  expected to hold \"%s\"\n", __FILE__, line,
            call, (int)got, (int)code, text, words ? words : "");
    failures++;
  }
}

/* A row. The text is checked only where words are given; the buffer is made stale first by another message. */
#define ROW(call, code, words)                                     \
  do {                                                             \
    (void)ncclCommCount(NULL, NULL);                               \
    ncclResult_t got_ = (call);                                    \
    expect(__LINE__, #call, got_, code, words);                    \
  } while (0)
#define ARG(call, words) ROW(call, ncclInvalidArgument, words)
#define USE(call, words) ROW(call, ncclInvalidUsage, words)

#define TYPE(v) ((ncclDataType_t)(v))
#define OPER(v) ((ncclRedOp_t)(v))

static void communicators(void) {
  ncclUniqueId zero;
  int twice[2] = {1, 1}, beyond[2] = {0, 1 << 20}, below[1] = {-1};
  memset(&zero, 0, sizeof zero);
  ARG(ncclGetVersion(NULL), "version argument is NULL");
  ARG(ncclGetUniqueId(NULL), "argument is NULL");
  ARG(ncclCommInitRank(NULL, 1, id, 0), "newcomm argument is NULL");
  made = comm;
  ARG(ncclCommInitRank(&made, 0, id, 0), "Invalid rank requested : 0/0");
  CHECK(made == NULL);
  ARG(ncclCommInitRank(&made, 2, id, 2), "Invalid rank requested : 2/2");
  ARG(ncclCommInitRank(&made, 2, id, -1), "Invalid rank requested : -1/2");
  ARG(ncclCommInitRank(&made, -3, id, 0), "Invalid rank requested : 0/-3");
  ARG(ncclCommInitRank(&made, 1, zero, 0), NULL);
  CHECK(made == NULL);
  ARG(ncclCommInitRankScalable(&made, 1, 0, 0, &id, NULL), "nId = 0, nranks=1");
  ARG(ncclCommInitRankScalable(&made, 1, 0, 2, &id, NULL), "nId = 2, nranks=1");
  ARG(ncclCommInitRankScalable(&made, 1, 0, 1, NULL, NULL), "commIds argument is NULL");
  ARG(ncclCommInitAll(NULL, 1, NULL), "comms argument is NULL");
  ARG(ncclCommInitAll(&made, -1, NULL), "Invalid device count requested : -1");
  ARG(ncclCommInitAll(&made, 2, beyond), "Invalid device 1048576 (totalnDev=");
  ARG(ncclCommInitAll(&made, 1, below), "Invalid device -1 (totalnDev=");
  USE(ncclCommInitAll(&made, 2, twice), "twice in devlist");
  ROW(ncclCommInitAll(&made, 0, NULL), ncclSuccess, NULL);

  ARG(ncclCommCount(NULL, &number), "CommCount : comm argument is NULL");
  ARG(ncclCommCount(comm, NULL), "CommCount : count argument is NULL");
  ARG(ncclCommCount((ncclComm_t)garbage, &number), "corrupted comm object");
  ARG(ncclCommCount(gone, &number), "has already been destroyed");
  ARG(ncclCommCuDevice(NULL, &number), "comm argument is NULL");
  ARG(ncclCommCuDevice(comm, NULL), "device argument is NULL");
  ARG(ncclCommUserRank(NULL, &number), "comm argument is NULL");
  ARG(ncclCommUserRank(comm, NULL), "rank argument is NULL");
  ARG(ncclCommGetAsyncError(NULL, (ncclResult_t*)&number), "comm argument is NULL");
  ARG(ncclCommGetAsyncError(comm, NULL), "asyncError argument is NULL");
  ARG(ncclCommGetAsyncError(gone, (ncclResult_t*)&number), "has already been destroyed");

  ROW(ncclCommFinalize(NULL), ncclSuccess, NULL);
  ROW(ncclCommDestroy(NULL), ncclSuccess, NULL);
  ROW(ncclCommAbort(NULL), ncclSuccess, NULL);
  ARG(ncclCommFinalize(gone), "has already been destroyed");
  ARG(ncclCommDestroy(gone), "has already been destroyed");
  ARG(ncclCommAbort(gone), "has already been destroyed");
  ARG(ncclCommDestroy((ncclComm_t)garbage), "corrupted comm object");
  ARG(ncclCommDestroy((ncclComm_t)(intptr_t)0x10), "corrupted comm object");
}

static void set(int field, int value) {
  bad = good;
  switch (field) {
    case 0: bad.blocking = value; break;
    case 1: bad.cgaClusterSize = value; break;
    case 2: bad.maxCTAs = value; break;
    case 3: bad.splitShare = value; break;
    case 4: bad.collnetEnable = value; break;
    case 5: bad.CTAPolicy = value; break;
    case 6: bad.shrinkShare = value; break;
    case 7: bad.nvlsCTAs = value; break;
    case 8: bad.nChannelsPerNetPeer = value; break;
    case 9: bad.nvlinkCentricSched = value; break;
    case 10: bad.graphUsageMode = value; break;
    case 11: bad.numRmaCtx = value; break;
    default: CHECK(!"field");
  }
}

#ifdef ABI_RCCL
#define MOST_CHANNELS 256
#else
#define MOST_CHANNELS 64
#endif

static void configs(void) {
  static const struct { int field, value; const char* words; } wrong[] = {
    {0, 2, "blocking"}, {0, -1, "blocking"}, {1, -1, "cgaClusterSize"}, {2, 0, "min/max channels"},
    {3, 2, "splitShare"}, {4, 2, "collnetEnable"}, {5, 4, "CTAPolicy"}, {5, -1, "CTAPolicy"},
    {6, 2, "shrinkShare"}, {7, 0, "nvlsCTAs"}, {8, 0, "nChannelsPerNetPeer"}, {8, MOST_CHANNELS + 1, "nChannelsPerNetPeer"},
    {9, 2, "nvlinkCentricSched"}, {10, 3, "graphUsageMode"}, {11, 0, "numRmaCtx"},
  };
  static const struct { size_t size; unsigned version; } shapes[] = {
    {24, 21403}, {40, 21705}, {48, 21805}, {48, 22602}, {72, 22705}, {80, 22803}, {88, 22907}, {96, 23000},
    {96, 23004}, {96, 23005}, {4096, 99999},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    set(wrong[i].field, wrong[i].value);
    ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), wrong[i].words);
    CHECK(made == NULL);
  }
  bad = good, bad.minCTAs = 5, bad.maxCTAs = 4;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "attribute value 5/4");
  bad = good, bad.magic = 0;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "not initialized via NCCL_CONFIG_INITIALIZER");
  bad = good, bad.size = 8;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "not initialized via NCCL_CONFIG_INITIALIZER");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    /* Exactly as many bytes as the old struct had, so that a checker sees any read beyond. */
    char* old = (char*)malloc(shapes[i].size);
    ncclUniqueId own;
    CHECK(old != NULL);
    memset(old, 0, shapes[i].size);
    /* Fields of releases to come, as their initialiser leaves them. */
    for (size_t at = sizeof bad; at + sizeof(int) <= shapes[i].size; at += sizeof(int)) {
      int unset = NCCL_CONFIG_UNDEF_INT;
      memcpy(old + at, &unset, sizeof unset);
    }
    bad = good, bad.size = shapes[i].size, bad.version = shapes[i].version, bad.blocking = 1;
    memcpy(old, &bad, shapes[i].size < sizeof bad ? shapes[i].size : sizeof bad);
    OK(ncclGetUniqueId(&own));
    ROW(ncclCommInitRankConfig(&made, 1, own, 0, (ncclConfig_t*)old), ncclSuccess, NULL);
    OK(ncclCommDestroy(made));
    free(old);
  }
  /* The fields of 2.30 are checked for programs that know them, and for others are what lies behind their struct. */
  static const struct { unsigned version; int peers, order; const char* words; } newer[] = {
    {23005, 0, 1, "maxP2pPeers"}, {23005, -1, 1, "maxP2pPeers"}, {23005, 1, 2, "graphStreamOrdering"}, {23004, 1, 2, NULL},
    {22907, 0, 2, NULL},
  };
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
    struct { ncclConfig_t base; int peers, order; } config = {good, newer[i].peers, newer[i].order};
    ncclUniqueId own;
    config.base.size = sizeof config, config.base.version = newer[i].version;
    OK(ncclGetUniqueId(&own));
    if (newer[i].words != NULL) {
      ARG(ncclCommInitRankConfig(&made, 1, own, 0, &config.base), newer[i].words);
    } else {
      ROW(ncclCommInitRankConfig(&made, 1, own, 0, &config.base), ncclSuccess, NULL);
      OK(ncclCommDestroy(made));
    }
  }
  bad = good, bad.netName = "carrier pigeon";
  USE(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "network carrier pigeon not found, which config netName asks for. The networks are: Socket");
  CHECK(made == NULL);
}

static void memory(void) {
  ROW(ncclMemAlloc(NULL, 16), ncclUnhandledCudaError, "ptr argument is NULL");
  ROW(ncclMemAlloc(&pointer, 0), ncclSuccess, NULL);
  CHECK(pointer == NULL);
  ROW(ncclMemFree(NULL), ncclSuccess, NULL);
  ARG(ncclCommRegister(NULL, in, sizeof in, &pointer), "comm argument is NULL");
  ARG(ncclCommRegister(comm, in, sizeof in, NULL), "handle argument is NULL");
  ROW(ncclCommRegister(comm, in, sizeof in, &pointer), ncclSuccess, NULL);
  CHECK(pointer != NULL);
  ROW(ncclCommDeregister(comm, pointer), ncclSuccess, NULL);
  USE(ncclCommDeregister(comm, pointer), "Deregister: Could not find handle");
  ROW(ncclCommDeregister(comm, NULL), ncclSuccess, NULL);
  ARG(ncclCommDeregister(NULL, pointer), "comm argument is NULL");
}

static void operators(void) {
  static float scalar = 2;
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, NULL), "comm argument is NULL");
  ARG(ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat, ncclScalarHostImmediate, comm), "op argument is NULL");
  ARG(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm), "scalar argument is NULL");
  ROW(ncclRedOpCreatePreMulSum(&op, &scalar, TYPE(12), ncclScalarHostImmediate, comm), ncclInternalError, "invalid type 12");
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, TYPE(-1), ncclScalarDevice, comm), "invalid type -1");
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, (ncclScalarResidence_t)2, comm), "invalid residence 2");
  ARG(ncclRedOpDestroy(ncclSum, comm), "operator is a NCCL builtin.");
  ARG(ncclRedOpDestroy(ncclAvg, NULL), "operator is a NCCL builtin.");
  ARG(ncclRedOpDestroy(OPER(-1), comm), "operator is garbage");
  ARG(ncclRedOpDestroy(OPER(1000), NULL), "invalid communicator passed.");
  ARG(ncclRedOpDestroy(OPER(123456), comm), "unknown to this communicator");
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
  ARG(ncclAllReduce(in, out, 4, ncclInt32, op, comm, NULL), "Data type supplied to user-created ncclRedOp_t does not match");
  ROW(ncclRedOpDestroy(op, comm), ncclSuccess, NULL);
  ARG(ncclRedOpDestroy(op, comm), "unknown to this communicator");
  ARG(ncclAllReduce(in, out, 4, ncclFloat, op, comm, NULL), "unknown to this communicator");
}

/* The checks that every data call has; `CALL(comm, type, in, out)` makes one. */
#define COMMON_ROWS(NAME, CALL)                                         \
  ARG(CALL(NULL, ncclInt32, in, out), NAME " : comm argument is NULL"); \
  ARG(CALL(gone, ncclInt32, in, out), "has already been destroyed");    \
  ARG(CALL(comm, TYPE(12), in, out), NAME " : invalid type 12");        \
  ARG(CALL(comm, TYPE(-1), in, out), NAME " : invalid type -1")
#define SEND_ROW(NAME, CALL) ARG(CALL(comm, ncclInt32, NULL, out), NAME " : sendbuff argument is NULL")
#define RECV_ROW(NAME, CALL) ARG(CALL(comm, ncclInt32, in, NULL), NAME " : recvbuff argument is NULL")
#define ROOT_ROWS(NAME, CALL)                                                                    \
  ARG(CALL(1), NAME " : invalid root 1 (root should be in the 0..1 range)");                     \
  ARG(CALL(-1), NAME " : invalid root -1 (root should be in the 0..1 range)")
#define OP_ROWS(NAME, CALL)                                              \
  ARG(CALL(-2), NAME " : invalid reduction operation -2");               \
  ARG(CALL(5), "reduction operation 5 unknown to this communicator")

static void reductions(void) {
#define R1(c, t, s, r) ncclAllReduce(s, r, 4, t, ncclSum, c, NULL)
#define R2(o) ncclAllReduce(in, out, 4, ncclInt32, OPER(o), comm, NULL)
  COMMON_ROWS("AllReduce", R1);
  SEND_ROW("AllReduce", R1);
  RECV_ROW("AllReduce", R1);
  OP_ROWS("AllReduce", R2);
  ARG(ncclAllReduce(in, out, SIZE_MAX / 2, ncclInt32, ncclSum, comm, NULL), "too large");
  ARG(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, comm, (oxcclStream_t)garbage), NULL);
  ARG(pncclAllReduce(in, out, 4, ncclInt32, ncclSum, NULL, NULL), "AllReduce : comm argument is NULL");
#define R3(c, t, s, r) ncclReduce(s, r, 4, t, ncclSum, 0, c, NULL)
#define R4(o) ncclReduce(in, out, 4, ncclInt32, OPER(o), 0, comm, NULL)
#define R5(root) ncclReduce(in, out, 4, ncclInt32, ncclSum, root, comm, NULL)
  COMMON_ROWS("Reduce", R3);
  SEND_ROW("Reduce", R3);
  RECV_ROW("Reduce", R3);
  OP_ROWS("Reduce", R4);
  ROOT_ROWS("Reduce", R5);
#define R6(c, t, s, r) ncclReduceScatter(s, r, 4, t, ncclSum, c, NULL)
#define R7(o) ncclReduceScatter(in, out, 4, ncclInt32, OPER(o), comm, NULL)
  COMMON_ROWS("ReduceScatter", R6);
  SEND_ROW("ReduceScatter", R6);
  RECV_ROW("ReduceScatter", R6);
  OP_ROWS("ReduceScatter", R7);
}

static void moves(void) {
#define M1(c, t, s, r) ncclBroadcast(s, r, 4, t, 0, c, NULL)
#define M2(root) ncclBroadcast(in, out, 4, ncclInt32, root, comm, NULL)
  COMMON_ROWS("Broadcast", M1);
  SEND_ROW("Broadcast", M1);
  RECV_ROW("Broadcast", M1);
  ROOT_ROWS("Broadcast", M2);
#define M3(c, t, s, r) ncclBcast(r, 4, t, 0, c, NULL)
  COMMON_ROWS("Broadcast", M3);
  ARG(ncclBcast(NULL, 4, ncclInt32, 0, comm, NULL), "argument is NULL");
#define M4(c, t, s, r) ncclAllGather(s, r, 4, t, c, NULL)
  COMMON_ROWS("AllGather", M4);
  SEND_ROW("AllGather", M4);
  RECV_ROW("AllGather", M4);
#define M5(c, t, s, r) ncclAlltoAll(s, r, 4, t, c, NULL)
  COMMON_ROWS("AlltoAll", M5);
  SEND_ROW("AlltoAll", M5);
  RECV_ROW("AlltoAll", M5);
#define M6(c, t, s, r) ncclGather(s, r, 4, t, 0, c, NULL)
#define M7(root) ncclGather(in, out, 4, ncclInt32, root, comm, NULL)
  COMMON_ROWS("Gather", M6);
  SEND_ROW("Gather", M6);
  RECV_ROW("Gather", M6);
  ROOT_ROWS("Gather", M7);
#define M8(c, t, s, r) ncclScatter(s, r, 4, t, 0, c, NULL)
#define M9(root) ncclScatter(in, out, 4, ncclInt32, root, comm, NULL)
  COMMON_ROWS("Scatter", M8);
  SEND_ROW("Scatter", M8);
  RECV_ROW("Scatter", M8);
  ROOT_ROWS("Scatter", M9);
#define P1(c, t, s, r) ncclSend(s, 4, t, 0, c, NULL)
#define P2(peer) ncclSend(in, 4, ncclInt32, peer, comm, NULL)
  COMMON_ROWS("Send", P1);
  SEND_ROW("Send", P1);
  ROOT_ROWS("Send", P2);
#define P3(c, t, s, r) ncclRecv(r, 4, t, 0, c, NULL)
#define P4(peer) ncclRecv(out, 4, ncclInt32, peer, comm, NULL)
  COMMON_ROWS("Recv", P3);
  RECV_ROW("Recv", P3);
  ROOT_ROWS("Recv", P4);
}

#ifdef ABI_RCCL
static void only_rccl(void) {
  static size_t counts[1] = {4}, places[1] = {0};
#define V1(c, t, s, r) ncclAllReduceWithBias(s, r, 4, t, ncclSum, c, NULL, in)
#define V2(o) ncclAllReduceWithBias(in, out, 4, ncclInt32, OPER(o), comm, NULL, in)
  COMMON_ROWS("AllReduce", V1);
  SEND_ROW("AllReduce", V1);
  RECV_ROW("AllReduce", V1);
  OP_ROWS("AllReduce", V2);
  ARG(ncclAllReduceWithBias(in, out, 4, ncclInt32, ncclSum, comm, NULL, NULL), "acc cannot be nullptr");
#define V3(c, t, s, r) ncclAlltoAllv(s, counts, places, r, counts, places, t, c, NULL)
  COMMON_ROWS("AlltoAllv", V3);
  SEND_ROW("AlltoAllv", V3);
  RECV_ROW("AlltoAllv", V3);
  ARG(ncclAlltoAllv(in, NULL, places, out, counts, places, ncclInt32, comm, NULL), "sendcounts argument is NULL");
  ARG(ncclAlltoAllv(in, counts, NULL, out, counts, places, ncclInt32, comm, NULL), "sdispls argument is NULL");
  ARG(ncclAlltoAllv(in, counts, places, out, NULL, places, ncclInt32, comm, NULL), "recvcounts argument is NULL");
  ARG(ncclAlltoAllv(in, counts, places, out, counts, NULL, ncclInt32, comm, NULL), "rdispls argument is NULL");
  ROW(mscclUnloadAlgo(1), ncclSuccess, "MSCCL support has been removed from RCCL; mscclUnloadAlgo has no effect.");
}
#else
static void only_rccl(void) {}
#endif

static void groups(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  USE(ncclGroupEnd(), "ncclGroupEnd: not in a group call.");
  USE(ncclGroupSimulateEnd(NULL), "not in a group call.");
  /* An argument error inside a group is returned at once, and again by the group's end. */
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  ARG(ncclAllReduce(in, out, 4, TYPE(99), ncclSum, comm, NULL), "invalid type 99");
  ROW(ncclGroupEnd(), ncclSuccess, NULL);
  ROW(ncclGroupEnd(), ncclInvalidArgument, NULL);
  /* The next group is clean. */
  OK(ncclGroupStart());
  ROW(ncclGroupEnd(), ncclSuccess, NULL);
  info.magic = 1;
  OK(ncclGroupStart());
  ARG(ncclGroupSimulateEnd(&info), "NCCL_SIM_INFO_INITIALIZER");
  USE(ncclGroupEnd(), "not in a group call.");
}

static void elastic(void) {
  int list[2] = {7, 0}, self[2] = {5, 0};
  uint64_t value = 0, suspend = 0, persist = 0;
  made = comm;
  ARG(ncclCommSplit(NULL, 0, 0, &made, NULL), "CommSplit : comm argument is NULL");
  CHECK(made == NULL);
  ARG(ncclCommSplit(comm, 0, 0, NULL, NULL), "CommSplit : newcomm argument is NULL");
  ARG(ncclCommSplit(gone, 0, 0, &made, NULL), "has already been destroyed");
  bad = good, bad.magic = 0;
  ARG(ncclCommSplit(comm, 0, 0, &made, &bad), "NCCL_CONFIG_INITIALIZER");
  made = comm;
  ROW(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &made, NULL), ncclSuccess, NULL);
  CHECK(made == NULL);
  /* Only -1 is no colour. */
  ROW(ncclCommSplit(comm, -2, 0, &made, NULL), ncclSuccess, NULL);
  CHECK(made != NULL);
  OK(ncclCommDestroy(made));

  ARG(ncclCommShrink(NULL, list, 1, &made, NULL, NCCL_SHRINK_DEFAULT), "CommShrink : comm argument is NULL");
  ARG(ncclCommShrink(NULL, list, 1, &made, NULL, NCCL_SHRINK_ABORT), "CommShrink : comm argument is NULL");
  ARG(ncclCommShrink(comm, list, 1, NULL, NULL, 0), "newcomm argument is NULL");
  ARG(ncclCommShrink(comm, NULL, 1, &made, NULL, 0), "excludeRanksList argument is NULL");
  ARG(ncclCommShrink(comm, list, 0, &made, NULL, 0), "excludeRanksCount 0");
  ARG(ncclCommShrink(comm, list, -1, &made, NULL, 0), "excludeRanksCount -1");
  ARG(ncclCommShrink(comm, self, 2, &made, NULL, 0), "in the list of the ranks to exclude");
  CHECK(self[0] == 0 && self[1] == 5);
  ROW(ncclCommShrink(comm, list, 1, &made, NULL, 0), ncclSuccess, NULL);
  OK(ncclCommDestroy(made));

  ARG(ncclCommGetUniqueId(NULL, &id), "CommGetUniqueId : comm argument is NULL");
  ARG(ncclCommGetUniqueId(comm, NULL), "uniqueId argument is NULL");
  ARG(ncclCommGrow(comm, 2, NULL, -1, NULL, NULL), "CommGrow : newcomm argument is NULL");
  ARG(ncclCommGrow(comm, 0, NULL, -1, &made, NULL), "nRanks 0");
  ARG(ncclCommGrow(comm, 1, NULL, -1, &made, NULL), "not more than the 1");
  ARG(ncclCommGrow(comm, 2, NULL, 0, &made, NULL), "invalid rank 0");
  ARG(ncclCommGrow(NULL, 2, &id, -1, &made, NULL), "invalid rank -1");
  ARG(ncclCommGrow(NULL, 2, &id, 2, &made, NULL), "invalid rank 2");
  ARG(ncclCommGrow(NULL, 2, NULL, 1, &made, NULL), "uniqueId argument is NULL");
  ARG(ncclCommGrow(comm, 2, &id, -1, &made, NULL), "not the id");

  ROW(ncclCommRevoke(NULL, 5), ncclSuccess, NULL);
  ARG(ncclCommRevoke(comm, 1), "invalid flags 1");
  ARG(ncclCommRevoke(gone, 0), "has already been destroyed");

  ARG(ncclCommSuspend(NULL, NCCL_SUSPEND_MEM), "CommSuspend : comm argument is NULL");
  ROW(ncclCommSuspend(comm, 0), ncclSuccess, NULL);
  ARG(ncclCommResume(NULL), "CommResume : comm argument is NULL");
  USE(ncclCommResume(comm), "MemManager: Not in suspended state");
  ARG(ncclCommMemStats(NULL, ncclStatGpuMemTotal, &value), "comm argument is NULL");
  ARG(ncclCommMemStats(comm, ncclStatGpuMemTotal, NULL), "value argument is NULL");
  ARG(ncclCommMemStats(comm, (ncclCommMemStat_t)4, &value), "invalid statistic 4");
  ROW(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclSuccess, NULL);
  USE(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), "MemManager: Already suspended");
  USE(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, comm, NULL), "communicator is suspended");
  ROW(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value), ncclSuccess, NULL);
  CHECK(value == 1);
  ROW(ncclCommResume(comm), ncclSuccess, NULL);
  OK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
  CHECK(value == 0);
  OK(ncclCommMemStats(comm, ncclStatGpuMemSuspend, &suspend));
  OK(ncclCommMemStats(comm, ncclStatGpuMemPersist, &persist));
  OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value));
  CHECK(suspend > 0 && persist > 0 && value == suspend + persist);

  ROW(ncclCommSplit(comm, 0, 0, &made, NULL), ncclSuccess, NULL);
  ROW(ncclCommRevoke(made, NCCL_REVOKE_DEFAULT), ncclSuccess, NULL);
  ARG(ncclCommRevoke(made, NCCL_REVOKE_DEFAULT), "revoked before");
#ifdef ABI_RCCL
  USE(ncclCommFinalize(made), "a revoked communicator cannot be finalized");
#else
  ARG(ncclCommFinalize(made), "finalized or revoked before");
#endif
  USE(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, made, NULL), "AllReduce: communicator was revoked");
  ROW(ncclCommDestroy(made), ncclSuccess, NULL);
}

static void later_work(void) {
  ncclWindow_t window = (ncclWindow_t)garbage;
  USE(ncclCommWindowRegister(comm, in, sizeof in, &window, 0), "ncclCommWindowRegister is not implemented yet");
  CHECK(window == NULL);
  ROW(ncclCommWindowDeregister(comm, NULL), ncclSuccess, NULL);
  USE(ncclWinGetUserPtr(comm, NULL, &pointer), "ncclWinGetUserPtr is not implemented yet");
  USE(ncclPutSignal(in, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm, NULL), "ncclPutSignal is not implemented yet");
  USE(ncclSignal(0, 0, 0, 0, comm, NULL), "ncclSignal is not implemented yet");
  USE(ncclWaitSignal(0, NULL, comm, NULL), "ncclWaitSignal is not implemented yet");
}

static void extensions(void) {
  float ms;
  oxcclEvent_t event = NULL;
  oxcclStream_t wrong = (oxcclStream_t)garbage;
  ARG(oxcclGetDeviceCount(NULL), "count argument is NULL");
  ARG(oxcclSetDevice(-1), "invalid device -1");
  ARG(oxcclSetDevice(1 << 20), "invalid device 1048576");
  ARG(oxcclGetDevice(NULL), "device argument is NULL");
  ARG(oxcclStreamCreate(NULL), "stream argument is NULL");
  ARG(oxcclStreamDestroy(NULL), "stream argument is NULL");
  ARG(oxcclStreamSynchronize(wrong), NULL);
  ARG(oxcclStreamDestroy(wrong), NULL);
  ARG(oxcclStreamWaitEvent(NULL, NULL), "event argument is NULL");
  ARG(oxcclLaunchHostFunc(NULL, NULL, NULL), "function argument is NULL");
  ARG(oxcclMemcpyAsync(NULL, in, 4, NULL), "dst argument is NULL");
  ARG(oxcclMemcpyAsync(out, NULL, 4, NULL), "src argument is NULL");
  ARG(oxcclEventCreate(NULL), "event argument is NULL");
  ARG(oxcclEventRecord(NULL, NULL), "event argument is NULL");
  ARG(oxcclEventSynchronize((oxcclEvent_t)garbage), NULL);
  ARG(oxcclEventQuery(NULL), "event argument is NULL");
  OK(oxcclEventCreate(&event));
  ARG(oxcclEventElapsedTime(NULL, event, event), "ms argument is NULL");
  ARG(oxcclEventElapsedTime(&ms, NULL, event), "start argument is NULL");
  ARG(oxcclEventElapsedTime(&ms, event, NULL), "end argument is NULL");
  OK(oxcclEventDestroy(event));
  ARG(oxcclEventDestroy(NULL), "event argument is NULL");
}

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
    "timeout",
    "unknown result code",
  };
  for (int i = 0; i < 10; i++) CHECK(strcmp(ncclGetErrorString((ncclResult_t)i), strings[i]) == 0);
  CHECK(strcmp(ncclGetErrorString((ncclResult_t)-1), "unknown result code") == 0);
  CHECK(ncclGetLastError(comm) == ncclGetLastError(NULL));
}

int main(void) {
  bound_time();
  CHECK(strcmp(ncclGetLastError(NULL), "") == 0);
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&gone, 1, id, 0));
  OK(ncclCommDestroy(gone));
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclGetUniqueId(&id));
  communicators();
  configs();
  memory();
  operators();
  reductions();
  moves();
  only_rccl();
  groups();
  elastic();
  later_work();
  extensions();
  words();
  /* After all that, the communicator is as good as new. */
  in[0] = 41;
  OK(ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm, NULL));
  OK(oxcclStreamSynchronize(NULL));
  CHECK(out[0] == 41);
  OK(ncclCommDestroy(comm));
  printf("rows %d\n", rows);
  return failures != 0;
}
