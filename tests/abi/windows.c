/* One process, one thread, four ranks: windows of all kinds of memory, in groups and nonblocking; addresses in the flat
 * range; teams, properties and device communicators, whose declarations are those of nccl_device.h. */
#include "abi_test.h"

#include <poll.h>

#define RANKS 4

/* What a window handle points to. */
typedef struct {
  void* winHost;
  char* lsaFlatBase;
  int lsaRank, worldRank;
  uint32_t stride4G, mcOffset4K, ginOffset4K;
  void* ginWins[4];
} window_t;

static ncclComm_t comms[RANKS];

static void each_address(ncclWindow_t* windows, char** memory, size_t bytes) {
  for (int me = 0; me < RANKS; me++) {
    const window_t* w = (const window_t*)windows[me];
    CHECK(sizeof(window_t) == 72);
    CHECK(w->winHost != NULL && w->lsaRank == me && w->worldRank == me && w->stride4G >= 1);
    for (int peer = 0; peer < RANKS; peer++) {
      /* The arithmetic of ncclGetLsaPointer: only the high half changes. */
      char* at = w->lsaFlatBase + ((uint64_t)peer * w->stride4G << 32);
      at[bytes - 1] = (char)(16 * me + peer);
      CHECK(memory[peer][bytes - 1] == (char)(16 * me + peer));
      memory[peer][7] = (char)(me + peer);
      CHECK(at[7] == (char)(me + peer));
    }
  }
}

static void register_all(ncclWindow_t* windows, char** memory, size_t bytes, int flags) {
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommWindowRegister(comms[r], memory[r], bytes, &windows[r], flags));
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) CHECK(windows[r] != NULL);
}

static void addresses(void) {
  static const size_t sizes[] = {8, 4096, 100001, 5 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    ncclWindow_t windows[RANKS];
    char* memory[RANKS];
    void* user;
    for (int r = 0; r < RANKS; r++) memory[r] = (char*)allocate(sizes[i]);
    register_all(windows, memory, sizes[i], i % 2 ? NCCL_WIN_COLL_SYMMETRIC : NCCL_WIN_DEFAULT);
    each_address(windows, memory, sizes[i]);
    for (int r = 0; r < RANKS; r++) {
      OK(ncclWinGetUserPtr(comms[r], windows[r], &user));
      CHECK(user == memory[r]);
      CHECK(ncclWinGetUserPtr(comms[(r + 1) % RANKS], windows[r], &user) == ncclInvalidArgument && user == NULL);
      OK(ncclCommWindowDeregister(comms[r], windows[r]));
      CHECK(ncclCommWindowDeregister(comms[r], windows[r]) == ncclInvalidArgument);
      OK(ncclMemFree(memory[r]));
    }
  }
}

/* Two windows per communicator in one group; one inside the allocation of the other. */
static void several_in_a_group(void) {
  ncclWindow_t a[RANKS], b[RANKS];
  char* memory[RANKS];
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    memory[r] = (char*)allocate(3 * 4096);
    OK(ncclCommWindowRegister(comms[r], memory[r], 3 * 4096, &a[r], NCCL_WIN_STRICT_ORDERING));
    OK(ncclCommWindowRegister(comms[r], memory[r] + 4096, 4096, &b[r], NCCL_WIN_COLL_SYMMETRIC));
  }
  OK(ncclGroupEnd());
  each_address(a, memory, 3 * 4096);
  for (int r = 0; r < RANKS; r++) memory[r] += 4096;
  each_address(b, memory, 4096);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommWindowDeregister(comms[r], a[r]));
    OK(ncclCommWindowDeregister(comms[r], b[r]));
    OK(ncclMemFree(memory[r] - 4096));
  }
}

/* Windows and operations in one group: the windows come first. */
static void beside_operations(void) {
  ncclWindow_t windows[RANKS];
  char* memory[RANKS];
  int32_t* sum[RANKS];
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    memory[r] = (char*)allocate(4096);
    sum[r] = (int32_t*)allocate(sizeof(int32_t));
    *sum[r] = r + 1;
    OK(ncclCommWindowRegister(comms[r], memory[r], 4096, &windows[r], 0));
    OK(ncclAllReduce(sum[r], sum[r], 1, ncclInt32, ncclSum, comms[r], NULL));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    OK(oxcclSetDevice(r));
    OK(oxcclStreamSynchronize(NULL));
    CHECK(windows[r] != NULL && *sum[r] == RANKS * (RANKS + 1) / 2);
    OK(ncclCommWindowDeregister(comms[r], windows[r]));
    OK(ncclMemFree(memory[r]));
    OK(ncclMemFree(sum[r]));
  }
}

/* What cannot be a window: every rank is told, whichever is to blame. */
static void refused(void) {
  ncclWindow_t windows[RANKS];
  char *memory[RANKS], *foreign = (char*)malloc(8192);
  ncclResult_t result;
  for (int r = 0; r < RANKS; r++) memory[r] = (char*)allocate(8192);
  for (int r = 0; r < RANKS; r++) windows[r] = (ncclWindow_t)foreign;
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++)
    OK(ncclCommWindowRegister(comms[r], memory[r] + (r == 1 ? 8 : 0), 4096, &windows[r], 0));
  result = ncclGroupEnd();
  CHECK(result == ncclInvalidArgument);
  for (int r = 0; r < RANKS; r++) CHECK(windows[r] == NULL);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommWindowRegister(comms[r], memory[r], r == 2 ? 8193 : 8192, &windows[r], 0));
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  /* Memory of malloc is nobody's mistake: there is no window, on any rank. */
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++)
    OK(ncclCommWindowRegister(comms[r], r == 3 ? foreign : memory[r], 4096, &windows[r], 0));
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) CHECK(windows[r] == NULL);
  for (int r = 0; r < RANKS; r++) OK(ncclMemFree(memory[r]));
  free(foreign);
}

static void nonblocking(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t slow[RANKS];
  ncclWindow_t windows[RANKS];
  ncclUniqueId id;
  char* memory[RANKS];
  config.blocking = 0;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    OK(oxcclSetDevice(r));
    CHECK(ncclCommInitRankConfig(&slow[r], RANKS, id, r, &config) <= ncclInProgress);
  }
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (int step = 0; step < 2; step++) {
    for (int r = 0; r < RANKS; r++) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(slow[r], &state));
        if (state == ncclInProgress) poll(NULL, 0, 1);
      }
      CHECK(state == ncclSuccess);
    }
    if (step == 1) break;
    for (int r = 0; r < RANKS; r++) {
      ncclResult_t result;
      memory[r] = (char*)allocate(10000);
      result = ncclCommWindowRegister(slow[r], memory[r], 10000, &windows[r], NCCL_WIN_COLL_SYMMETRIC);
      CHECK(result == ncclInProgress || result == ncclSuccess);
    }
  }
  each_address(windows, memory, 10000);
  /* Windows that are not given back end with their communicator. */
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(slow[r]));
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) OK(ncclMemFree(memory[r]));
}

#ifndef ABI_RCCL

typedef struct { int nRanks, rank, stride; } team_t;
typedef struct { void* mcBasePtr; } multimem_t;
typedef struct {
  size_t size;
  unsigned magic, version;
  int rank, nRanks, cudaDev, nvmlDev;
  char deviceApiSupport, multimemSupport;
  int ginType, nLsaTeams;
  char hostRmaSupport;
  int railedGinType;
} properties_t;
typedef struct resource {
  struct resource* next;
  size_t bufferSize, bufferAlign;
  uint32_t* outBufferHandle;
  int ginSignalCount, ginCounterCount;
  uint32_t *outGinSignalStart, *outGinCounterStart;
} resource_t;
typedef struct {
  size_t size;
  unsigned magic, version;
  resource_t* resources;
  void* teams;
  char lsaMultimem;
  int barrierCount, lsaBarrierCount, railGinBarrierCount, blocks, slots;
  char ginForceEnable;
  int ginContextCount, ginSignalCount, ginCounterCount, ginConnectionType;
  char ginExclusiveContexts;
  int ginQueueDepth;
} requirements_t;
typedef struct {
  int rank, nRanks;
  uint32_t nRanks_rcp32;
  int lsaRank, lsaSize;
  uint32_t lsaSize_rcp32;
  void* windowTable;
  ncclWindow_t resourceWindow;
  window_t inlined;
  void* lsaMultimem;
  uint32_t barrierHandle;
  int barriers;
  uint32_t railGinBarrier[2];
  char network[88];
} dev_comm_t;

ncclResult_t ncclCommQueryProperties(ncclComm_t, properties_t*);
ncclResult_t ncclDevCommCreate(ncclComm_t, const requirements_t*, dev_comm_t*);
ncclResult_t ncclDevCommDestroy(ncclComm_t, const dev_comm_t*);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, size_t, multimem_t, void**);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
team_t ncclTeamWorld(ncclComm_t);
team_t ncclTeamLsa(ncclComm_t);
team_t ncclTeamRail(ncclComm_t);
int ncclTeamRankToWorld(ncclComm_t, team_t, int);
int ncclTeamRankToLsa(ncclComm_t, team_t, int);
ncclResult_t ncclLsaBarrierCreateRequirement(team_t, int, uint32_t*, resource_t*);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, team_t, int, uint32_t*, resource_t*);
ncclResult_t ncclLLA2ACreateRequirement(int, int, uint32_t*, resource_t*);

static int is_team(team_t t, int ranks, int rank, int stride) {
  return t.nRanks == ranks && t.rank == rank && t.stride == stride;
}

static void teams(int lsa) {
  for (int r = 0; r < RANKS; r++) {
    team_t world = ncclTeamWorld(comms[r]), near = ncclTeamLsa(comms[r]), rail = ncclTeamRail(comms[r]);
    properties_t p = {sizeof p, NCCL_API_MAGIC, NCCL_VERSION_CODE, -1, -1, -1, -1, 9, 9, 9, -1, 9, 9};
    CHECK(is_team(world, RANKS, r, 1) && is_team(near, lsa, r % lsa, 1) && is_team(rail, RANKS / lsa, r / lsa, lsa));
    for (int i = 0; i < RANKS; i++) CHECK(ncclTeamRankToWorld(comms[r], world, i) == i);
    for (int i = 0; i < lsa; i++) CHECK(ncclTeamRankToWorld(comms[r], near, i) == r / lsa * lsa + i);
    for (int i = 0; i < RANKS / lsa; i++) CHECK(ncclTeamRankToWorld(comms[r], rail, i) == i * lsa + r % lsa);
    CHECK(ncclTeamRankToLsa(comms[r], near, 0) == 0 && ncclTeamRankToLsa(comms[r], world, r) == r % lsa);
    CHECK(sizeof p == 56);
    OK(ncclCommQueryProperties(comms[r], &p));
    CHECK(p.rank == r && p.nRanks == RANKS && p.nLsaTeams == RANKS / lsa && p.deviceApiSupport == 1);
    CHECK(p.multimemSupport == 0 && p.ginType == 0 && p.railedGinType == 0 && p.hostRmaSupport == 1);
    p.magic = 1;
    CHECK(ncclCommQueryProperties(comms[r], &p) == ncclInvalidUsage);
    p.magic = NCCL_API_MAGIC, p.version = 29999;
    CHECK(ncclCommQueryProperties(comms[r], &p) == ncclInvalidUsage);
    /* The layout of 2.29.2: 40 bytes. */
    memset(&p, 0x55, sizeof p);
    p.magic = NCCL_API_MAGIC, p.version = 22902;
    OK(ncclCommQueryProperties(comms[r], &p));
    CHECK(p.rank == r && ((char*)&p)[34] == 0 && ((char*)&p)[40] == 0x55);
  }
  CHECK(ncclTeamWorld(NULL).nRanks == 0 && ncclTeamRankToLsa(NULL, ncclTeamWorld(NULL), 0) == -1);
  CHECK(ncclCommQueryProperties(comms[0], NULL) == ncclInvalidArgument);
}

/* Parts of different lengths: each offset is one of the part that is asked for. */
static void uneven_pointers(int lsa, char* const* memory) {
  ncclWindow_t windows[RANKS];
  void* at;
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommWindowRegister(comms[r], memory[r], 1000 * (r + 1), &windows[r], 0));
  OK(ncclGroupEnd());
  for (int me = 0; me < RANKS; me++) {
    for (int peer = 0; peer < RANKS; peer++) {
      OK(ncclGetPeerDevicePointer(windows[me], 1000 * (peer + 1) - 1, peer, &at));
      CHECK((at != NULL) == (peer / lsa == me / lsa));
      CHECK(ncclGetPeerDevicePointer(windows[me], 1000 * (peer + 1), peer, &at) == ncclInvalidArgument && at == NULL);
    }
    int first = me / lsa * lsa;
    OK(ncclGetLsaDevicePointer(windows[me], 1000 * (first + lsa) - 1, lsa - 1, &at));
    CHECK(ncclGetLsaDevicePointer(windows[me], 1000 * (first + 1), 0, &at) == ncclInvalidArgument);
  }
  for (int r = 0; r < RANKS; r++) OK(ncclCommWindowDeregister(comms[r], windows[r]));
}

static void pointers(int lsa) {
  ncclWindow_t windows[RANKS];
  char* memory[RANKS];
  void* at = memory;
  multimem_t none = {NULL}, some = {&at};
  for (int r = 0; r < RANKS; r++) memory[r] = (char*)allocate(10000);
  register_all(windows, memory, 9000, 0);
  for (int me = 0; me < RANKS; me++) {
    const window_t* w = (const window_t*)windows[me];
    for (int peer = 0; peer < RANKS; peer++) {
      OK(ncclGetPeerDevicePointer(windows[me], 100, peer, &at));
      if (peer / lsa != me / lsa) {
        CHECK(at == NULL);
        continue;
      }
      CHECK((char*)at == w->lsaFlatBase + ((uint64_t)(peer % lsa) * w->stride4G << 32) + 100);
      memory[peer][100] = (char)(3 * peer + me);
      CHECK(*(char*)at == (char)(3 * peer + me));
    }
    OK(ncclGetLsaDevicePointer(windows[me], 8999, lsa - 1, &at));
    CHECK((char*)at == w->lsaFlatBase + ((uint64_t)(lsa - 1) * w->stride4G << 32) + 8999);
    CHECK(ncclGetLsaDevicePointer(windows[me], 9000, 0, &at) == ncclInvalidArgument && at == NULL);
    CHECK(ncclGetLsaDevicePointer(windows[me], 0, lsa, &at) == ncclInvalidArgument);
    CHECK(ncclGetLsaDevicePointer(windows[me], 0, -1, &at) == ncclInvalidArgument);
    CHECK(ncclGetPeerDevicePointer(windows[me], 0, RANKS, &at) == ncclInvalidArgument);
    CHECK(ncclGetLsaDevicePointer(windows[me], 0, 0, NULL) == ncclInvalidArgument);
    at = memory;
    OK(ncclGetLsaMultimemDevicePointer(windows[me], 0, &at));
    CHECK(at == NULL);
    at = memory;
    OK(ncclGetMultimemDevicePointer(windows[me], 0, some, &at));
    CHECK(at == NULL);
    CHECK(ncclGetMultimemDevicePointer(windows[me], 0, none, &at) == ncclInvalidArgument);
  }
  uneven_pointers(lsa, memory);
  CHECK(ncclGetPeerDevicePointer(NULL, 0, 0, &at) == ncclInvalidArgument);
  CHECK(ncclGetPeerDevicePointer((ncclWindow_t)memory, 0, 0, &at) == ncclInvalidArgument);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclCommWindowDeregister(comms[r], windows[r]));
    CHECK(ncclGetPeerDevicePointer(windows[r], 0, 0, &at) == ncclInvalidArgument);
    OK(ncclMemFree(memory[r]));
  }
}

static void requirements(void) {
  team_t team = {4, 1, 1};
  resource_t r;
  uint32_t handle[2] = {77, 77};
  memset(&r, 0x55, sizeof r);
  OK(ncclLsaBarrierCreateRequirement(team, 5, handle, &r));
  CHECK(r.bufferSize == (3 * 5 + 5 * 4) * 4 && r.bufferAlign == 4 && r.outBufferHandle == handle && handle[1] == 5);
  CHECK(r.next == NULL && r.ginSignalCount == 0 && r.outGinSignalStart == NULL);
  OK(ncclLLA2ACreateRequirement(3, 10, handle, &r));
  CHECK(r.bufferSize == 3 * (1 + 2 * 10) * 16 && r.bufferAlign == 16 && handle[1] == 10);
  OK(ncclGinBarrierCreateRequirement(comms[0], team, 3, handle, &r));
  CHECK(r.bufferSize == 0 && r.ginSignalCount == 12 && r.outGinSignalStart == handle);
}

static void device_communicators(int lsa) {
  requirements_t want = {sizeof want, NCCL_API_MAGIC, NCCL_VERSION_CODE, NULL, NULL, 0, 0, 2, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0};
  resource_t list[RANKS][2];
  uint32_t handles[RANKS][2];
  dev_comm_t made[RANKS];
  CHECK(sizeof want == 88 && sizeof(dev_comm_t) == 224);
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) {
    requirements_t mine = want;
    memset(list[r], 0, sizeof list[r]);
    list[r][0] = (resource_t){&list[r][1], 100, 16, &handles[r][0], 0, 0, NULL, NULL};
    list[r][1] = (resource_t){NULL, 8000, 4096, &handles[r][1], 0, 0, NULL, NULL};
    mine.resources = list[r];
    OK(ncclDevCommCreate(comms[r], &mine, &made[r]));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    const dev_comm_t* d = &made[r];
    CHECK(d->rank == r && d->nRanks == RANKS && d->lsaRank == r % lsa && d->lsaSize == lsa);
    CHECK(d->nRanks_rcp32 == 0x40000000 && d->lsaSize_rcp32 == (lsa == 4 ? 0x40000000u : 0x80000000u));
    CHECK(d->resourceWindow != NULL && memcmp(d->resourceWindow, &d->inlined, sizeof d->inlined) == 0);
    CHECK(d->barriers == 2 && d->barrierHandle == 0 && handles[r][0] == 1 && handles[r][1] == 4096 / 128);
    CHECK(d->lsaMultimem == NULL && d->windowTable != NULL);
    for (int peer = 0; peer < lsa; peer++) {
      /* Resources are zero at first; each rank leaves a mark with each other. */
      char* at = d->inlined.lsaFlatBase + ((uint64_t)peer * d->inlined.stride4G << 32) + handles[r][1] * 128;
      CHECK(at[r] == 0);
      at[r] = (char)(r + 1);
    }
  }
  for (int r = 0; r < RANKS; r++) {
    char* own = made[r].inlined.lsaFlatBase + ((uint64_t)(r % lsa) * made[r].inlined.stride4G << 32) + 4096;
    for (int peer = 0; peer < RANKS; peer++) CHECK(own[peer] == (peer / lsa == r / lsa ? peer + 1 : 0));
  }
  /* Refused with another communicator's handle, and kept. */
  CHECK(ncclDevCommDestroy(comms[1], &made[0]) == ncclInvalidArgument);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclDevCommDestroy(comms[r], &made[r]));
    CHECK(ncclDevCommDestroy(comms[r], &made[r]) == ncclInvalidArgument);
  }
  /* Nothing wanted is nothing made. */
  want.lsaBarrierCount = 0;
  OK(ncclDevCommCreate(comms[0], &want, &made[0]));
  CHECK(made[0].resourceWindow == NULL);
  OK(ncclDevCommDestroy(comms[0], &made[0]));
  want.ginSignalCount = 1;
  CHECK(ncclDevCommCreate(comms[0], &want, &made[0]) == ncclInvalidArgument);
  want.ginSignalCount = 0, want.lsaMultimem = 1;
  CHECK(ncclDevCommCreate(comms[0], &want, &made[0]) == ncclInvalidArgument);
  want.lsaMultimem = 0, want.magic = 0;
  CHECK(ncclDevCommCreate(comms[0], &want, &made[0]) == ncclInvalidUsage);
  want.magic = NCCL_API_MAGIC, want.version = 30000;
  CHECK(ncclDevCommCreate(comms[0], &want, &made[0]) == ncclInvalidUsage);
  CHECK(ncclDevCommCreate(comms[0], NULL, &made[0]) == ncclInvalidArgument);
}

static void device_api(int lsa) {
  teams(lsa);
  pointers(lsa);
  requirements();
  device_communicators(lsa);
}

#else
static void device_api(int lsa) { (void)lsa; }
#endif

int main(void) {
  int devices[RANKS] = {0, 1, 2, 3};
  bound_time();
  OK(ncclCommInitAll(comms, RANKS, devices));
  addresses();
  several_in_a_group();
  beside_operations();
  refused();
  nonblocking();
  device_api(RANKS);
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  /* Teams of two. */
  setenv("NCCL_LSA_TEAM_SIZE", "2", 1);
  OK(ncclCommInitAll(comms, RANKS, devices));
  device_api(2);
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  unsetenv("NCCL_LSA_TEAM_SIZE");
  /* Windows can be switched off. */
  setenv("NCCL_WIN_ENABLE", "0", 1);
  OK(ncclCommInitAll(comms, 1, devices));
  ncclWindow_t window = (ncclWindow_t)devices;
  OK(ncclCommWindowRegister(comms[0], allocate(8), 8, &window, 0));
  CHECK(window == NULL);
  OK(ncclCommDestroy(comms[0]));
  return 0;
}
