/*
 * Chapter "communicators": the version, ids, every way to make a communicator (with configs of all releases, several
 * ids, polled), its queries, and the three ways to end it.
 */
#include "launch.h"
#include <poll.h>

/* Waits until no local communicator is in progress; all must be fine then. */
static void ready(world_t* w, ncclComm_t* comm) {
  EACH(w, i) {
    ncclResult_t state = ncclInProgress;
    for (;;) {
      OK(ncclCommGetAsyncError(comm[i], &state));
      if (state != ncclInProgress) break;
      poll(NULL, 0, 1);
    }
    CHECK(state == ncclSuccess);
  }
}

static void versions(void) {
  int version = 0;
  OK(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE && version == 22907);
  version = 0;
  OK(pncclGetVersion(&version));
  CHECK(version == 22907);
}

/* Two ids are different, and all 128 bytes are written: they go to other processes. */
static void unique_ids(void) {
  ncclUniqueId a, b;
  memset(&a, 0xee, sizeof a);
  memset(&b, 0xee, sizeof b);
  OK(ncclGetUniqueId(&a));
  OK(ncclGetUniqueId(&b));
  CHECK(memcmp(&a, &b, sizeof a) != 0);
  memset(&b, 0xee, sizeof b);
  for (size_t k = 0; k + 8 <= sizeof a; k += 8) CHECK(memcmp(a.internal + k, b.internal, 8) != 0);
}

/* The configs of programs that were built with older and newer headers: as many bytes as they had, set as they were. */
static void configs_of_all_releases(world_t* w) {
  static const struct {
    size_t size;
    unsigned version;
  } shapes[] = {{24, 21403}, {40, 21705}, {48, 21805}, {48, 22602}, {72, 22705}, {80, 22803}, {88, 22907}, {96, 23007}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[WORLD_MAX];
    const int unset = NCCL_CONFIG_UNDEF_INT;
    /* Of the heap and of the very size, so that a checker sees any read beyond. */
    char* config = (char*)malloc(shapes[s].size);
    CHECK(config != NULL);
    initial.size = shapes[s].size;
    initial.version = shapes[s].version;
    initial.blocking = 1;
    /* Fields of later headers are left as their initialiser sets them. */
    for (size_t at = 0; at < shapes[s].size; at += sizeof unset) memcpy(config + at, &unset, sizeof unset);
    memcpy(config, &initial, shapes[s].size < sizeof initial ? shapes[s].size : sizeof initial);
    /* Where trafficClass is now there was padding, with anything in it. */
    if (shapes[s].size == 48 && shapes[s].version < 22600) memset(config + 44, 0x7f, 4);
    world_init(w, comm, (ncclConfig_t*)(void*)config);
    free(config);
    world_works(w, comm, w->n);
    world_destroy(w, comm);
  }
}

/* Every field set to a value that is fine; the strings may go once the call has returned. */
static void full_config(world_t* w) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm[WORLD_MAX];
  char name[] = "a name";
  CHECK(config.size == sizeof config && config.magic == NCCL_API_MAGIC && config.blocking == NCCL_CONFIG_UNDEF_INT);
  config.blocking = 1;
  config.cgaClusterSize = 2;
  config.minCTAs = 1;
  config.maxCTAs = 8;
  config.netName = NULL;
  config.splitShare = 1;
  config.trafficClass = 7;
  config.commName = name;
  config.collnetEnable = 0;
  config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  config.shrinkShare = 0;
  config.nvlsCTAs = 4;
  config.nChannelsPerNetPeer = 2;
  config.nvlinkCentricSched = 1;
  config.graphUsageMode = 1;
  config.numRmaCtx = 1;
  world_init(w, comm, &config);
  memset(name, 'x', sizeof name - 1);
  world_works(w, comm, w->n);
  world_destroy(w, comm);
}

/* The ranks meet by one id, and by as many as there are ranks; the array may go once the call has returned. */
static void scalable(world_t* w) {
  for (int round = 0; round < 2; round++) {
    ncclUniqueId ids[WORLD_MAX];
    ncclComm_t comm[WORLD_MAX];
    int count = round == 0 ? 1 : w->n;
    for (int k = 0; k < count; k++) {
      EACH(w, i) if (w->rank[i] == k) OK(ncclGetUniqueId(&ids[k]));
      share(w, &ids[k], sizeof ids[k], k);
    }
    OK(ncclGroupStart());
    EACH(w, i) {
      OK(oxcclSetDevice(w->rank[i]));
      OK(ncclCommInitRankScalable(&comm[i], w->n, w->rank[i], count, ids, NULL));
    }
    memset(ids, 0, sizeof ids);
    OK(ncclGroupEnd());
    world_works(w, comm, w->n);
    world_destroy(w, comm);
  }
}

/* Nonblocking: made, used, finalized and destroyed without a call that waits. */
static void polled(world_t* w) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm[WORLD_MAX];
  ncclUniqueId id;
  int count;
  config.blocking = 0;
  memset(&id, 0, sizeof id);
  if (w->rank[0] == 0) OK(ncclGetUniqueId(&id));
  share(w, &id, sizeof id, 0);
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    ncclResult_t result = ncclCommInitRankConfig(&comm[i], w->n, id, w->rank[i], &config);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(comm[i] != NULL);
  }
  ready(w, comm);
  EACH(w, i) {
    OK(ncclCommCount(comm[i], &count));
    CHECK(count == w->n);
  }
  world_works(w, comm, w->n);
  EACH(w, i) {
    ncclResult_t result = ncclCommFinalize(comm[i]);
    CHECK(result == ncclInProgress || result == ncclSuccess);
  }
  ready(w, comm);
  EACH(w, i) OK(ncclCommDestroy(comm[i]));
}

/* A nonblocking rank waits for others that never come: it can be queried and aborted, and nothing else. */
static void alone(world_t* w) {
  /* The last text is the process's: other threads are here, too, and their communicators' ends have texts. */
  static const char text[] = "Attempt to use communicator before the previous operation returned ncclSuccess";
  const char* busy = w->mode == LAUNCH_THREADS ? NULL : text;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  ncclResult_t state = ncclSuccess;
  int number;
  config.blocking = 0;
  OK(ncclGetUniqueId(&id));
  GIVES(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress, NULL);
  CHECK(comm != NULL);
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclInProgress);
  GIVES(ncclCommCount(comm, &number), ncclInvalidArgument, busy);
  GIVES(ncclCommDestroy(comm), ncclInvalidArgument, busy);
  GIVES(ncclCommFinalize(comm), ncclInvalidArgument, busy);
  GIVES(ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument, busy);
  OK(ncclCommAbort(comm));
}

/* Finalized, then destroyed; destroyed at once; aborted at once. Handles that are gone are told so. */
static void ends(world_t* w) {
  ncclComm_t comm[WORLD_MAX];
  world_init(w, comm, NULL);
  world_works(w, comm, w->n);
  ALL(w, i, ncclCommFinalize(comm[i]));
  EACH(w, i) GIVES(ncclCommFinalize(comm[i]), ncclInvalidArgument, NULL);
  EACH(w, i) OK(ncclCommDestroy(comm[i]));
  if (w->mode == LAUNCH_PROCESSES) GIVES(ncclCommDestroy(comm[0]), ncclInvalidArgument, "CommDestroy : comm ");
  world_init(w, comm, NULL);
  world_destroy(w, comm);
  world_init(w, comm, NULL);
  EACH(w, i) OK(ncclCommAbort(comm[i]));
  world_init(w, comm, NULL);
  world_works(w, comm, w->n);
  world_destroy(w, comm);
  OK(ncclCommFinalize(NULL));
  OK(ncclCommDestroy(NULL));
  OK(ncclCommAbort(NULL));
}

/* Ranks in another order than devices, some devices unused. Only one thread can do so with ncclCommInitAll. */
static void some_devices(world_t* w) {
  static const int devices[3] = {5, 0, 2};
  ncclComm_t comm[WORLD_MAX];
  world_t three = *w;
  if (w->mode != LAUNCH_SINGLE) return;
  OK(ncclCommInitAll(comm, 3, devices));
  for (int i = 0; i < 3; i++) {
    int device = -1, rank = -1;
    OK(ncclCommCuDevice(comm[i], &device));
    OK(ncclCommUserRank(comm[i], &rank));
    CHECK(device == devices[i] && rank == i);
    OK(oxcclSetDevice(devices[i]));
    OK(oxcclStreamCreate(&three.stream[i]));
  }
  three.n = three.locals = 3;
  world_works(&three, comm, 3);
  EACH(&three, i) OK(oxcclStreamDestroy(three.stream[i]));
  world_destroy(&three, comm);
}

void chapter(world_t* w) {
  versions();
  unique_ids();
  world_open(w);
  world_works(w, w->comm, w->n);
  configs_of_all_releases(w);
  full_config(w);
  scalable(w);
  polled(w);
  alone(w);
  ends(w);
  some_devices(w);
  world_close(w);
}
