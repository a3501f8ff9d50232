/*
 * Bad arguments: every row calls a function once and expects a code and a text. Rows of functions whose errors belong
 * to a group run within a group, too. One rank. Calls at the wrong time are in states.c.
 */
#include "rows.h"

static ncclComm_t comm, gone;
static ncclUniqueId id;
static int32_t in[16], out[16], number;
static int garbage[64];
static ncclConfig_t good = NCCL_CONFIG_INITIALIZER, bad;
static ncclComm_t made;
static void* pointer;
static ncclRedOp_t op;

#define TYPE(v) ((ncclDataType_t)(v))
#define OPER(v) ((ncclRedOp_t)(v))

#define IS_NULL(op, name) op " : " name " argument is NULL"
#define GONE(op) op " : comm * has already been destroyed"
#define NOT_A_COMM(op) "Error: corrupted comm object detected. " op " : "

static void making(void) {
  ncclUniqueId zero;
  int twice[2] = {1, 1}, beyond[2] = {0, 1 << 20}, below[1] = {-1};
  memset(&zero, 0, sizeof zero);
  ARG(ncclGetVersion(NULL), IS_NULL("GetVersion", "version"));
  ARG(ncclGetUniqueId(NULL), "GetUniqueId : ");
  ARG_BOTH(ncclCommInitRank(NULL, 1, id, 0), IS_NULL("CommInitRank", "newcomm"));
  ARG_BOTH(ncclCommInitRankConfig(NULL, 1, id, 0, NULL), IS_NULL("CommInitRank", "newcomm"));
  ARG_BOTH(ncclCommInitRankScalable(NULL, 1, 0, 1, &id, NULL), IS_NULL("CommInitRank", "newcomm"));
  made = comm;
  ARG_BOTH(ncclCommInitRank(&made, 0, id, 0), "Invalid rank requested : 0/0");
  CHECK(made == NULL); /* whatever was there */
  ARG_BOTH(ncclCommInitRank(&made, 2, id, 2), "Invalid rank requested : 2/2");
  ARG_BOTH(ncclCommInitRank(&made, 2, id, -1), "Invalid rank requested : -1/2");
  ARG_BOTH(ncclCommInitRank(&made, -3, id, 0), "Invalid rank requested : 0/-3");
  ARG_BOTH(ncclCommInitRankConfig(&made, 1, id, 1, NULL), "Invalid rank requested : 1/1");
  ARG_BOTH(ncclCommInitRankScalable(&made, 2, 5, 1, &id, NULL), "Invalid rank requested : 5/2");
  ARG_BOTH(ncclCommInitRank(&made, 1, zero, 0), NULL);
  CHECK(made == NULL);
  made = comm;
  ARG_BOTH(ncclCommInitRankScalable(&made, 1, 0, 0, &id, NULL), "improper usage of ncclCommInitRank: nId = 0, nranks=1");
  CHECK(made == NULL);
  ARG_BOTH(ncclCommInitRankScalable(&made, 1, 0, -1, &id, NULL), "improper usage of ncclCommInitRank: nId = -1, nranks=1");
  ARG_BOTH(ncclCommInitRankScalable(&made, 1, 0, 2, &id, NULL), "improper usage of ncclCommInitRank: nId = 2, nranks=1");
  ARG_BOTH(ncclCommInitRankScalable(&made, 1, 0, 1, NULL, NULL), IS_NULL("CommInitRankScalable", "commIds"));
  ARG_BOTH(ncclCommInitAll(NULL, 1, NULL), IS_NULL("CommInitAll", "comms"));
  ARG_BOTH(ncclCommInitAll(&made, -1, NULL), "Invalid device count requested : -1");
  ARG_BOTH(ncclCommInitAll(&made, 2, beyond), "Invalid device 1048576 (totalnDev=8)");
  ARG_BOTH(ncclCommInitAll(&made, 1, below), "Invalid device -1 (totalnDev=8)");
  ARG_BOTH(ncclCommInitAll(&made, 9, NULL), "Invalid device 8 (totalnDev=8)");
  USE_BOTH(ncclCommInitAll(&made, 2, twice), "CommInitAll : device 1 is twice in devlist");
  ROW(ncclCommInitAll(&made, 0, NULL), ncclSuccess, NULL);
}

static void asking_and_ending(void) {
  ARG(ncclCommCount(NULL, &number), IS_NULL("CommCount", "comm"));
  ARG(ncclCommCount(comm, NULL), IS_NULL("CommCount", "count"));
  ARG(ncclCommCount((ncclComm_t)garbage, &number), NOT_A_COMM("CommCount"));
  ARG(ncclCommCount(gone, &number), GONE("CommCount"));
  ARG(ncclCommCuDevice(NULL, &number), IS_NULL("CommCuDevice", "comm"));
  ARG(ncclCommCuDevice(comm, NULL), IS_NULL("CommCuDevice", "device"));
  ARG(ncclCommCuDevice(gone, &number), GONE("CommCuDevice"));
  ARG(ncclCommUserRank(NULL, &number), IS_NULL("CommUserRank", "comm"));
  ARG(ncclCommUserRank(comm, NULL), IS_NULL("CommUserRank", "rank"));
  ARG(ncclCommUserRank(gone, &number), GONE("CommUserRank"));
  ARG(ncclCommGetAsyncError(NULL, (ncclResult_t*)&number), IS_NULL("CommGetAsyncError", "comm"));
  ARG(ncclCommGetAsyncError(comm, NULL), IS_NULL("CommGetAsyncError", "asyncError"));
  ARG(ncclCommGetAsyncError(gone, (ncclResult_t*)&number), GONE("CommGetAsyncError"));
  ROW(ncclCommFinalize(NULL), ncclSuccess, NULL);
  ROW(ncclCommDestroy(NULL), ncclSuccess, NULL);
  ROW(ncclCommAbort(NULL), ncclSuccess, NULL);
  ARG_BOTH(ncclCommFinalize(gone), GONE("CommFinalize"));
  ARG_BOTH(ncclCommDestroy(gone), GONE("CommDestroy"));
  ARG(ncclCommAbort(gone), GONE("CommAbort"));
  ARG_BOTH(ncclCommFinalize((ncclComm_t)garbage), NOT_A_COMM("CommFinalize"));
  ARG_BOTH(ncclCommDestroy((ncclComm_t)garbage), NOT_A_COMM("CommDestroy"));
  ARG_BOTH(ncclCommDestroy((ncclComm_t)(intptr_t)0x10), NOT_A_COMM("CommDestroy"));
  ARG(ncclCommAbort((ncclComm_t)garbage), NOT_A_COMM("CommAbort"));
}

/* The integer fields of a config, by number. */
static int* field(ncclConfig_t* c, int which) {
  int* const fields[] = {&c->blocking, &c->cgaClusterSize, &c->maxCTAs, &c->splitShare, &c->collnetEnable,
                         &c->CTAPolicy, &c->shrinkShare, &c->nvlsCTAs, &c->nChannelsPerNetPeer,
                         &c->nvlinkCentricSched, &c->graphUsageMode, &c->numRmaCtx};
  CHECK(which >= 0 && which < (int)(sizeof fields / sizeof *fields));
  return fields[which];
}

#ifdef ABI_RCCL
#define MOST_CHANNELS 256
#define BEYOND_CHANNELS "257"
#else
#define MOST_CHANNELS 64
#define BEYOND_CHANNELS "65"
#endif

/* The fields of 2.30 are checked for programs that know them, and for others are what lies behind their struct. */
static void newer_configs(void) {
  static const struct { unsigned version; int peers, order; const char* text; } newer[] = {
    {23005, 0, 1, "Invalid config maxP2pPeers attribute value 0"},
    {23005, -1, 1, "Invalid config maxP2pPeers attribute value -1"},
    {23005, 1, 2, "Invalid config graphStreamOrdering attribute value 2"},
    {23004, 1, 2, NULL}, {22907, 0, 2, NULL},
  };
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
    struct { ncclConfig_t base; int peers, order; } config = {good, newer[i].peers, newer[i].order};
    ncclUniqueId own;
    config.base.size = sizeof config, config.base.version = newer[i].version;
    OK(ncclGetUniqueId(&own));
    if (newer[i].text != NULL) {
      ARG_BOTH(ncclCommInitRankConfig(&made, 1, own, 0, &config.base), newer[i].text);
    } else {
      ROW(ncclCommInitRankConfig(&made, 1, own, 0, &config.base), ncclSuccess, NULL);
      OK(ncclCommDestroy(made));
    }
  }
}

static void configs(void) {
  static const struct { int field, value; const char* text; } wrong[] = {
    {0, 2, "Invalid config blocking attribute value 2"}, {0, -1, "Invalid config blocking attribute value -1"},
    {1, -1, "Invalid config cgaClusterSize attribute value -1"},
    {2, 0, "Invalid config min/max channels attribute value -2147483648/0"},
    {2, -7, "Invalid config min/max channels attribute value -2147483648/-7"},
    {3, 2, "Invalid config splitShare attribute value 2"}, {3, -1, "Invalid config splitShare attribute value -1"},
    {4, 2, "Invalid config collnetEnable attribute value 2"}, {4, -1, "Invalid config collnetEnable attribute value -1"},
    {5, 4, "Invalid config CTAPolicy attribute value 4"}, {5, -1, "Invalid config CTAPolicy attribute value -1"},
    {6, 2, "Invalid config shrinkShare attribute value 2"}, {6, -1, "Invalid config shrinkShare attribute value -1"},
    {7, 0, "Invalid config nvlsCTAs attribute value 0"}, {7, -1, "Invalid config nvlsCTAs attribute value -1"},
    {8, 0, "Invalid config nChannelsPerNetPeer attribute value 0"},
    {8, MOST_CHANNELS + 1, "Invalid config nChannelsPerNetPeer attribute value " BEYOND_CHANNELS},
    {9, 2, "Invalid config nvlinkCentricSched attribute value 2"},
    {9, -1, "Invalid config nvlinkCentricSched attribute value -1"},
    {10, 3, "Invalid config graphUsageMode attribute value 3"},
    {10, -1, "Invalid config graphUsageMode attribute value -1"},
    {11, 0, "Invalid config numRmaCtx attribute value 0"}, {11, -1, "Invalid config numRmaCtx attribute value -1"},
  };
  static const char raw[] = "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER";
  int list[1] = {3};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    bad = good;
    *field(&bad, wrong[i].field) = wrong[i].value;
    made = comm;
    ARG_BOTH(ncclCommInitRankConfig(&made, 1, id, 0, &bad), wrong[i].text);
    CHECK(made == NULL);
  }
  bad = good, bad.minCTAs = 5, bad.maxCTAs = 4;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "Invalid config min/max channels attribute value 5/4");
  bad = good, bad.minCTAs = 0, bad.maxCTAs = 4;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "Invalid config min/max channels attribute value 0/4");
  /* The lower limit alone is refused, as in the original. */
  bad = good, bad.minCTAs = 5;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), "Invalid config min/max channels attribute value 5/-2147483648");
  bad = good, bad.magic = 0;
  ARG_BOTH(ncclCommInitRankConfig(&made, 1, id, 0, &bad), raw);
  ARG_BOTH(ncclCommInitRankScalable(&made, 1, 0, 1, &id, &bad), raw);
  ARG_BOTH(ncclCommSplit(comm, 0, 0, &made, &bad), raw);
  ARG_BOTH(ncclCommShrink(comm, list, 1, &made, &bad, NCCL_SHRINK_DEFAULT), raw);
  ARG_BOTH(ncclCommGrow(comm, 2, NULL, -1, &made, &bad), raw);
  ARG_BOTH(ncclCommGrow(NULL, 2, &id, 1, &made, &bad), raw);
  bad = good, bad.size = 8; /* too short to hold the magic */
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), raw);
  bad = good, bad.size = 0;
  ARG(ncclCommInitRankConfig(&made, 1, id, 0, &bad), raw);
  bad = good, bad.netName = "carrier pigeon";
  USE_BOTH(ncclCommInitRankConfig(&made, 1, id, 0, &bad),
           "Error: network carrier pigeon not found, which config netName asks for. The networks are: Socket");
  CHECK(made == NULL);
}

static void memory(void) {
  ROW(ncclMemAlloc(NULL, 16), ncclUnhandledCudaError, IS_NULL("MemAlloc", "ptr"));
  ROW(ncclMemAlloc(&pointer, 0), ncclSuccess, NULL);
  CHECK(pointer == NULL);
  ROW(ncclMemAlloc(&pointer, SIZE_MAX / 2), ncclUnhandledCudaError, NULL);
  CHECK(pointer == NULL);
  ROW(ncclMemFree(NULL), ncclSuccess, NULL);
  ROW(ncclMemFree(garbage), ncclUnhandledCudaError, NULL);
  ARG(ncclCommRegister(NULL, in, sizeof in, &pointer), IS_NULL("CommRegister", "comm"));
  ARG(ncclCommRegister(gone, in, sizeof in, &pointer), GONE("CommRegister"));
  ARG(ncclCommRegister(comm, in, sizeof in, NULL), IS_NULL("CommRegister", "handle"));
  ROW(ncclCommRegister(comm, in, sizeof in, &pointer), ncclSuccess, NULL);
  CHECK(pointer != NULL);
  ROW(ncclCommDeregister(comm, pointer), ncclSuccess, NULL);
  USE(ncclCommDeregister(comm, pointer), "Deregister: Could not find handle");
  USE(ncclCommDeregister(comm, garbage), "Deregister: Could not find handle");
  ROW(ncclCommDeregister(comm, NULL), ncclSuccess, NULL);
  ARG(ncclCommDeregister(NULL, pointer), IS_NULL("CommDeregister", "comm"));
  ARG(ncclCommDeregister(gone, pointer), GONE("CommDeregister"));
}

static void operators(void) {
  static float scalar = 2;
#define CREATE "ncclRedOpCreatePreMulSum"
#define DESTROY "ncclRedOpDestroy"
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, NULL), IS_NULL(CREATE, "comm"));
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, gone), GONE(CREATE));
  ARG(ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat, ncclScalarHostImmediate, comm), IS_NULL(CREATE, "op"));
  ARG(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm), IS_NULL(CREATE, "scalar"));
  ROW(ncclRedOpCreatePreMulSum(&op, &scalar, TYPE(12), ncclScalarHostImmediate, comm), ncclInternalError,
      CREATE " : invalid type 12");
  ROW(ncclRedOpCreatePreMulSum(&op, &scalar, TYPE(-1), ncclScalarHostImmediate, comm), ncclInternalError,
      CREATE " : invalid type -1");
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, TYPE(-1), ncclScalarDevice, comm), CREATE " : invalid type -1");
  ARG(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, (ncclScalarResidence_t)2, comm), CREATE " : invalid residence 2");
  ARG(ncclRedOpDestroy(ncclSum, comm), DESTROY " : operator is a NCCL builtin.");
  ARG(ncclRedOpDestroy(ncclAvg, NULL), DESTROY " : operator is a NCCL builtin.");
  ARG(ncclRedOpDestroy(OPER(-1), comm), DESTROY " : operator is garbage.");
  ARG(ncclRedOpDestroy(OPER(1000), NULL), DESTROY " : invalid communicator passed.");
  ARG(ncclRedOpDestroy(OPER(1000), gone), GONE(DESTROY));
  ARG(ncclRedOpDestroy(OPER(123456), comm), DESTROY " : operator unknown to this communicator.");
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm));
  ARG_BOTH(ncclAllReduce(in, out, 4, ncclInt32, op, comm, NULL),
           "Data type supplied to user-created ncclRedOp_t does not match type given to reduction operation");
  ROW(ncclRedOpDestroy(op, comm), ncclSuccess, NULL);
  ARG(ncclRedOpDestroy(op, comm), DESTROY " : operator unknown to this communicator.");
  ARG_BOTH(ncclAllReduce(in, out, 4, ncclFloat, op, comm, NULL), "AllReduce : reduction operation * unknown to this communicator");
}

/* The checks that every data call has; `CALL(comm, type, in, out)` makes one. */
#define COMMON_ROWS(NAME, CALL)                                            \
  ARG_BOTH(CALL(NULL, ncclInt32, in, out), IS_NULL(NAME, "comm"));         \
  ARG_BOTH(CALL(gone, ncclInt32, in, out), GONE(NAME));                    \
  ARG_BOTH(CALL(comm, TYPE(12), in, out), NAME " : invalid type 12");      \
  ARG_BOTH(CALL(comm, TYPE(-1), in, out), NAME " : invalid type -1")
#define SEND_ROW(NAME, CALL) ARG_BOTH(CALL(comm, ncclInt32, NULL, out), IS_NULL(NAME, "sendbuff"))
#define RECV_ROW(NAME, CALL) ARG_BOTH(CALL(comm, ncclInt32, in, NULL), IS_NULL(NAME, "recvbuff"))
#define ROOT_ROWS(NAME, CALL)                                                                    \
  ARG_BOTH(CALL(1), NAME " : invalid root 1 (root should be in the 0..1 range)");                \
  ARG_BOTH(CALL(-1), NAME " : invalid root -1 (root should be in the 0..1 range)")
#define OP_ROWS(NAME, CALL)                                                              \
  ARG_BOTH(CALL(-2), NAME " : invalid reduction operation -2");                          \
  ARG_BOTH(CALL(5), NAME " : reduction operation 5 unknown to this communicator");       \
  ARG_BOTH(CALL(0x7fffffff), NAME " : reduction operation 2147483647 unknown to this communicator")

static void reductions(void) {
#define R1(c, t, s, r) ncclAllReduce(s, r, 4, t, ncclSum, c, NULL)
#define R2(o) ncclAllReduce(in, out, 4, ncclInt32, OPER(o), comm, NULL)
  COMMON_ROWS("AllReduce", R1);
  SEND_ROW("AllReduce", R1);
  RECV_ROW("AllReduce", R1);
  OP_ROWS("AllReduce", R2);
  ARG_BOTH(ncclAllReduce(in, out, SIZE_MAX / 2, ncclInt32, ncclSum, comm, NULL), "AllReduce : count * is too large");
  ARG_BOTH(ncclAllReduce(in, out, 4, ncclInt32, ncclSum, comm, (oxcclStream_t)garbage), NULL);
  ARG_BOTH(pncclAllReduce(in, out, 4, ncclInt32, ncclSum, NULL, NULL), "AllReduce : comm argument is NULL");
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
  ARG_BOTH(ncclBcast(NULL, 4, ncclInt32, 0, comm, NULL), IS_NULL("Broadcast", "*buff"));
#define M10(root) ncclBcast(out, 4, ncclInt32, root, comm, NULL)
  ROOT_ROWS("Broadcast", M10);
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
  ARG_BOTH(ncclAllReduceWithBias(in, out, 4, ncclInt32, ncclSum, comm, NULL, NULL),
           "ncclAllReduceWithBias : acc cannot be nullptr");
  ARG_BOTH(ncclAllReduceWithBias(in, out, 4, ncclInt32, ncclSum, comm, NULL, out),
           "ncclAllReduceWithBias : acc overlaps recvbuff, which is written before acc is added: one of them needs memory of its own");
#define V3(c, t, s, r) ncclAlltoAllv(s, counts, places, r, counts, places, t, c, NULL)
  COMMON_ROWS("AlltoAllv", V3);
  SEND_ROW("AlltoAllv", V3);
  RECV_ROW("AlltoAllv", V3);
  ARG_BOTH(ncclAlltoAllv(in, NULL, places, out, counts, places, ncclInt32, comm, NULL), IS_NULL("AlltoAllv", "sendcounts"));
  ARG_BOTH(ncclAlltoAllv(in, counts, NULL, out, counts, places, ncclInt32, comm, NULL), IS_NULL("AlltoAllv", "sdispls"));
  ARG_BOTH(ncclAlltoAllv(in, counts, places, out, NULL, places, ncclInt32, comm, NULL), IS_NULL("AlltoAllv", "recvcounts"));
  ARG_BOTH(ncclAlltoAllv(in, counts, places, out, counts, NULL, ncclInt32, comm, NULL), IS_NULL("AlltoAllv", "rdispls"));
#define V4(c, t, s, r) ncclAllToAllv(s, counts, places, r, counts, places, t, c, NULL)
  COMMON_ROWS("AlltoAllv", V4);
#define V5(c, t, s, r) ncclAllToAll(s, r, 4, t, c, NULL)
  COMMON_ROWS("AlltoAll", V5);
  SEND_ROW("AlltoAll", V5);
  RECV_ROW("AlltoAll", V5);
  /* The removed functions say so and succeed, whatever they are given. */
  ROW(mscclLoadAlgo(NULL, NULL, -1), ncclSuccess, "MSCCL support has been removed from RCCL; mscclLoadAlgo has no effect.");
  ROW(mscclRunAlgo(NULL, NULL, NULL, NULL, NULL, NULL, 1, TYPE(99), 7, 7, OPER(-1), 1, NULL, NULL), ncclSuccess,
      "MSCCL support has been removed from RCCL; mscclRunAlgo has no effect.");
  ROW(mscclUnloadAlgo(1), ncclSuccess, "MSCCL support has been removed from RCCL; mscclUnloadAlgo has no effect.");
}
#else
static void only_rccl(void) {}
#endif

static void groups(void) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  USE(ncclGroupEnd(), "ncclGroupEnd: not in a group call.");
  USE(ncclGroupSimulateEnd(NULL), "ncclGroupSimulateEnd: not in a group call.");
  /* An argument error inside a group is returned at once, and again by the group's end. */
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  ARG(ncclAllReduce(in, out, 4, TYPE(99), ncclSum, comm, NULL), "AllReduce : invalid type 99");
  ROW(ncclGroupEnd(), ncclSuccess, NULL);
  ROW(ncclGroupEnd(), ncclInvalidArgument, NULL);
  /* The next group is clean. */
  OK(ncclGroupStart());
  ROW(ncclGroupEnd(), ncclSuccess, NULL);
  info.magic = 1;
  OK(ncclGroupStart());
  ARG(ncclGroupSimulateEnd(&info), "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  USE(ncclGroupEnd(), "ncclGroupEnd: not in a group call.");
}

static void elastic(void) {
  int list[2] = {7, 0}, self[2] = {5, 0};
  uint64_t value = 0;
  made = comm;
  ARG_BOTH(ncclCommSplit(NULL, 0, 0, &made, NULL), "CommSplit : comm argument is NULL");
  CHECK(made == NULL);
  ARG_BOTH(ncclCommSplit(comm, 0, 0, NULL, NULL), "CommSplit : newcomm argument is NULL");
  ARG_BOTH(ncclCommSplit(gone, 0, 0, &made, NULL), GONE("CommSplit"));
  made = comm;
  ROW(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &made, NULL), ncclSuccess, NULL);
  CHECK(made == NULL);
  /* Only -1 is no colour. */
  ROW(ncclCommSplit(comm, -2, 0, &made, NULL), ncclSuccess, NULL);
  CHECK(made != NULL);
  OK(ncclCommDestroy(made));

  ARG_BOTH(ncclCommShrink(NULL, list, 1, &made, NULL, NCCL_SHRINK_DEFAULT), "CommShrink : comm argument is NULL");
  ARG_BOTH(ncclCommShrink(NULL, list, 1, &made, NULL, NCCL_SHRINK_ABORT), "CommShrink : comm argument is NULL");
  ARG_BOTH(ncclCommShrink(comm, list, 1, NULL, NULL, 0), IS_NULL("CommShrink", "newcomm"));
  ARG_BOTH(ncclCommShrink(comm, NULL, 1, &made, NULL, 0), IS_NULL("CommShrink", "excludeRanksList"));
  ARG_BOTH(ncclCommShrink(comm, list, 0, &made, NULL, 0), "CommShrink : invalid excludeRanksCount 0");
  ARG_BOTH(ncclCommShrink(comm, list, -1, &made, NULL, 0), "CommShrink : invalid excludeRanksCount -1");
  ARG_BOTH(ncclCommShrink(comm, self, 2, &made, NULL, 0), "*in the list of the ranks to exclude");
  CHECK(self[0] == 0 && self[1] == 5);
  ROW(ncclCommShrink(comm, list, 1, &made, NULL, 0), ncclSuccess, NULL);
  OK(ncclCommDestroy(made));

  ARG(ncclCommGetUniqueId(NULL, &id), "CommGetUniqueId : comm argument is NULL");
  ARG(ncclCommGetUniqueId(comm, NULL), IS_NULL("CommGetUniqueId", "uniqueId"));
  ARG(ncclCommGetUniqueId(gone, &id), GONE("CommGetUniqueId"));
  ARG_BOTH(ncclCommShrink(gone, list, 1, &made, NULL, 0), GONE("CommShrink"));
  ARG_BOTH(ncclCommGrow(gone, 2, NULL, -1, &made, NULL), GONE("CommGrow"));
  ARG_BOTH(ncclCommGrow(comm, 2, NULL, -1, NULL, NULL), "CommGrow : newcomm argument is NULL");
  ARG_BOTH(ncclCommGrow(comm, 0, NULL, -1, &made, NULL), "CommGrow : invalid nRanks 0");
  ARG_BOTH(ncclCommGrow(comm, -4, NULL, -1, &made, NULL), "CommGrow : invalid nRanks -4");
  ARG_BOTH(ncclCommGrow(comm, 1, NULL, -1, &made, NULL), "*not more than the 1");
  ARG_BOTH(ncclCommGrow(comm, 2, NULL, 0, &made, NULL), "CommGrow : invalid rank 0");
  ARG_BOTH(ncclCommGrow(NULL, 2, &id, -1, &made, NULL), "CommGrow : invalid rank -1");
  ARG_BOTH(ncclCommGrow(NULL, 2, &id, 2, &made, NULL), "CommGrow : invalid rank 2");
  ARG_BOTH(ncclCommGrow(NULL, 2, NULL, 1, &made, NULL), IS_NULL("CommGrow", "uniqueId"));
  ARG_BOTH(ncclCommGrow(comm, 2, &id, -1, &made, NULL), "*not the id");

  ROW(ncclCommRevoke(NULL, 5), ncclSuccess, NULL);
  ARG_BOTH(ncclCommRevoke(comm, 1), "CommRevoke : invalid flags 1");
  ARG_BOTH(ncclCommRevoke(gone, 0), GONE("CommRevoke"));

  ARG_BOTH(ncclCommSuspend(NULL, NCCL_SUSPEND_MEM), "CommSuspend : comm argument is NULL");
  ROW(ncclCommSuspend(comm, 0), ncclSuccess, NULL);
  ARG_BOTH(ncclCommResume(NULL), "CommResume : comm argument is NULL");
  USE_BOTH(ncclCommResume(comm), "MemManager: Not in suspended state");
  ARG(ncclCommMemStats(NULL, ncclStatGpuMemTotal, &value), IS_NULL("CommMemStats", "comm"));
  ARG(ncclCommMemStats(comm, ncclStatGpuMemTotal, NULL), IS_NULL("CommMemStats", "value"));
  ARG(ncclCommMemStats(comm, (ncclCommMemStat_t)4, &value), "CommMemStats : invalid statistic 4");
  ARG(ncclCommMemStats(comm, (ncclCommMemStat_t)-1, &value), "CommMemStats : invalid statistic -1");
  ARG_BOTH(ncclCommSuspend(gone, NCCL_SUSPEND_MEM), GONE("CommSuspend"));
  ARG_BOTH(ncclCommResume(gone), GONE("CommResume"));
  ARG(ncclCommMemStats(gone, ncclStatGpuMemTotal, &value), GONE("CommMemStats"));
}

static void windows(void) {
  ncclWindow_t window = (ncclWindow_t)garbage;
  ncclWaitSignalDesc_t wait = {1, 0, 0, 0};
  ARG(ncclCommWindowRegister(NULL, in, sizeof in, &window, 0), "CommWindowRegister : comm argument is NULL");
  ARG(ncclCommWindowRegister(comm, in, sizeof in, NULL, 0), IS_NULL("CommWindowRegister", "win"));
  ARG(ncclCommWindowRegister(comm, NULL, 4096, &window, 0), "*invalid pointer");
  CHECK(window == NULL);
  ARG(ncclCommWindowRegister(comm, in, 0, &window, 0), "*size 0");
  ARG(ncclCommWindowRegister(gone, in, sizeof in, &window, 0), GONE("CommWindowRegister"));
  /* Memory that peers cannot map: no window, and no error. */
  window = (ncclWindow_t)garbage;
  ROW(ncclCommWindowRegister(comm, in, sizeof in, &window, 0), ncclSuccess, NULL);
  CHECK(window == NULL);
  ROW(ncclCommWindowDeregister(comm, NULL), ncclSuccess, NULL);
  ARG(ncclCommWindowDeregister(comm, (ncclWindow_t)garbage), "*is no window of this communicator");
  ARG(ncclCommWindowDeregister(gone, NULL), GONE("CommWindowDeregister"));
  ARG(ncclWinGetUserPtr(comm, NULL, &pointer), IS_NULL("WinGetUserPtr", "win"));
  ARG(ncclWinGetUserPtr(comm, (ncclWindow_t)garbage, NULL), IS_NULL("WinGetUserPtr", "outUserPtr"));
  ARG_BOTH(ncclPutSignal(in, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm, NULL), IS_NULL("PutSignal", "peerWin"));
  ARG_BOTH(ncclPutSignal(in, 1, ncclInt32, 1, NULL, 0, 0, 0, 0, comm, NULL), "PutSignal : invalid root 1");
  ARG_BOTH(ncclSignal(0, 1, 0, 0, comm, NULL), "*invalid sigIdx 1");
  ARG_BOTH(ncclSignal(0, 0, 1, 0, comm, NULL), "*invalid ctx 1");
  ARG_BOTH(ncclSignal(0, 0, 0, 1, comm, NULL), "*invalid flags 1");
  ARG_BOTH(ncclSignal(0, 0, 0, 0, gone, NULL), GONE("Signal"));
  ARG_BOTH(ncclWaitSignal(0, &wait, comm, NULL), "*invalid nDesc 0");
  ARG_BOTH(ncclWaitSignal(1, NULL, comm, NULL), IS_NULL("WaitSignal", "signalDescs"));
  wait.opCnt = 0;
  ARG_BOTH(ncclWaitSignal(1, &wait, comm, NULL), "*invalid opCnt 0");
}

static void extensions(void) {
  float ms;
  oxcclEvent_t event = NULL;
  oxcclStream_t wrong = (oxcclStream_t)garbage;
  ARG(oxcclGetDeviceCount(NULL), IS_NULL("oxcclGetDeviceCount", "count"));
  ARG(oxcclSetDevice(-1), "oxcclSetDevice : invalid device -1");
  ARG(oxcclSetDevice(1 << 20), "oxcclSetDevice : invalid device 1048576");
  ARG(oxcclGetDevice(NULL), IS_NULL("oxcclGetDevice", "device"));
  ARG(oxcclStreamCreate(NULL), IS_NULL("oxcclStreamCreate", "stream"));
  ARG(oxcclStreamDestroy(NULL), IS_NULL("oxcclStreamDestroy", "stream"));
  ARG(oxcclStreamSynchronize(wrong), NULL);
  ARG(oxcclStreamDestroy(wrong), NULL);
  ARG(oxcclStreamQuery(wrong), NULL);
  ARG(oxcclStreamWaitEvent(NULL, NULL), IS_NULL("oxcclStreamWaitEvent", "event"));
  ARG(oxcclLaunchHostFunc(NULL, NULL, NULL), IS_NULL("oxcclLaunchHostFunc", "function"));
  ARG(oxcclMemcpyAsync(NULL, in, 4, NULL), IS_NULL("oxcclMemcpyAsync", "dst"));
  ARG(oxcclMemcpyAsync(out, NULL, 4, NULL), IS_NULL("oxcclMemcpyAsync", "src"));
  ARG(oxcclEventCreate(NULL), IS_NULL("oxcclEventCreate", "event"));
  ARG(oxcclEventRecord(NULL, NULL), IS_NULL("oxcclEventRecord", "event"));
  ARG(oxcclEventSynchronize((oxcclEvent_t)garbage), NULL);
  ARG(oxcclEventQuery(NULL), IS_NULL("oxcclEventQuery", "event"));
  OK(oxcclEventCreate(&event));
  ARG(oxcclEventElapsedTime(NULL, event, event), IS_NULL("oxcclEventElapsedTime", "ms"));
  ARG(oxcclEventElapsedTime(&ms, NULL, event), IS_NULL("oxcclEventElapsedTime", "start"));
  ARG(oxcclEventElapsedTime(&ms, event, NULL), IS_NULL("oxcclEventElapsedTime", "end"));
  OK(oxcclEventDestroy(event));
  ARG(oxcclEventDestroy(NULL), IS_NULL("oxcclEventDestroy", "event"));
}

int main(void) {
  bound_time();
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&gone, 1, id, 0));
  OK(ncclCommDestroy(gone));
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclGetUniqueId(&id));
  making();
  asking_and_ending();
  configs();
  newer_configs();
  memory();
  operators();
  reductions();
  moves();
  only_rccl();
  groups();
  elastic();
  windows();
  extensions();
  /* After all that, the communicator is as good as new. */
  in[0] = 41;
  OK(ncclAllReduce(in, out, 1, ncclInt32, ncclSum, comm, NULL));
  OK(oxcclStreamSynchronize(NULL));
  CHECK(out[0] == 41);
  OK(ncclCommDestroy(comm));
  return rows_end();
}
