/*
 * Chapter "elastic": split by colour and key, shrink, grow, revoke, suspend and resume, as all ranks call them.
 * Nonblocking parents and calls that are aborted half way are in nonblocking.c, death in shrink_abort.c.
 */
#include "launch.h"

/* Which ranks of the world a communicator has, in its order. */
static void members(world_t* w, ncclComm_t* comm, int ranks, const int* wanted) {
  int32_t *mine[WORLD_MAX], *all[WORLD_MAX];
  OK(ncclGroupStart());
  EACH(w, i) {
    if (comm[i] == NULL) continue;
    mine[i] = (int32_t*)allocate(4);
    all[i] = (int32_t*)allocate((size_t)ranks * 4);
    *mine[i] = w->rank[i];
    OK(ncclAllGather(mine[i], all[i], 1, ncclInt32, comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  EACH(w, i) {
    if (comm[i] == NULL) continue;
    OK(oxcclStreamSynchronize(w->stream[i]));
    for (int r = 0; r < ranks; r++) CHECK(all[i][r] == wanted[r]);
    OK(ncclMemFree(mine[i]));
    OK(ncclMemFree(all[i]));
  }
}

static void destroy(world_t* w, ncclComm_t* comm) {
  OK(ncclGroupStart());
  EACH(w, i) if (comm[i] != NULL) OK(ncclCommDestroy(comm[i]));
  OK(ncclGroupEnd());
}

static void split(world_t* w) {
  ncclComm_t comm[WORLD_MAX], part[WORLD_MAX];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int order[WORLD_MAX];
  /* Everybody in one, in reverse order. */
  ALL(w, i, ncclCommSplit(w->comm[i], 3, -w->rank[i], &comm[i], NULL));
  for (int r = 0; r < w->n; r++) order[r] = w->n - 1 - r;
  world_works(w, comm, w->n);
  members(w, comm, w->n, order);
  /* Out of the child; ranks of equal keys keep their order. Rank 0 of the world takes no part in the result. */
  config.splitShare = 1;
  EACH(w, i) part[i] = w->comm[i];
  ALL(w, i, ncclCommSplit(comm[i], w->rank[i] == 0 ? NCCL_SPLIT_NOCOLOR : -2, 5, &part[i], &config));
  EACH(w, i) CHECK((part[i] == NULL) == (w->rank[i] == 0));
  world_works(w, part, w->n - 1);
  members(w, part, w->n - 1, order);
  destroy(w, part);
  destroy(w, comm);
  /* Each alone. */
  ALL(w, i, ncclCommSplit(w->comm[i], w->rank[i], 0, &comm[i], NULL));
  world_works(w, comm, 1);
  destroy(w, comm);
}

static void shrink(world_t* w) {
  ncclComm_t comm[WORLD_MAX];
  int rest[WORLD_MAX], list[2] = {99, 1}, count = 0;
  for (int r = 0; r < w->n; r++)
    if (r != 1) rest[count++] = r;
  EACH(w, i) comm[i] = NULL;
  OK(ncclGroupStart());
  /* A rank that does not exist is excluded already; the list comes back sorted. */
  EACH(w, i) if (w->rank[i] != 1) OK(ncclCommShrink(w->comm[i], list, 2, &comm[i], NULL, NCCL_SHRINK_DEFAULT));
  OK(ncclGroupEnd());
  EACH(w, i) if (w->rank[i] != 1) CHECK(list[0] == 1 && list[1] == 99);
  world_works(w, comm, w->n - 1);
  members(w, comm, w->n - 1, rest);
  destroy(w, comm);
  /* Who is to be left out must not call. */
  int self[1] = {1};
  EACH(w, i) if (w->rank[i] == 1) GIVES(ncclCommShrink(w->comm[i], self, 1, &comm[i], NULL, 0), ncclInvalidArgument, NULL);
}

/* The first two ranks have a communicator; the others join it. */
static void grow(world_t* w) {
  ncclComm_t pair[WORLD_MAX], comm[WORLD_MAX];
  ncclUniqueId id;
  int order[WORLD_MAX];
  memset(&id, 0, sizeof id);
  ALL(w, i, ncclCommSplit(w->comm[i], w->rank[i] < 2 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &pair[i], NULL));
  EACH(w, i) if (w->rank[i] == 1) OK(ncclCommGetUniqueId(pair[i], &id));
  share(w, &id, sizeof id, 1);
  OK(ncclGroupStart());
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    if (pair[i] != NULL) OK(ncclCommGrow(pair[i], w->n, w->rank[i] == 1 ? &id : NULL, -1, &comm[i], NULL));
    else OK(ncclCommGrow(NULL, w->n, &id, w->rank[i], &comm[i], NULL));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < w->n; r++) order[r] = r;
  world_works(w, comm, w->n);
  members(w, comm, w->n, order);
  /* The old one is as it was. */
  world_works(w, pair, 2);
  destroy(w, pair);
  destroy(w, comm);
}

/* Rank 0 waits for a call that the others never make; all revoke, and split what remains of use. */
static void revoke_all(world_t* w) {
  static int32_t in[WORLD_MAX], out[WORLD_MAX];
  ncclComm_t comm[WORLD_MAX], child[WORLD_MAX];
  ALL(w, i, ncclCommSplit(w->comm[i], 0, w->rank[i], &comm[i], NULL));
  EACH(w, i) if (w->rank[i] == 0) OK(ncclAllReduce(&in[i], &out[i], 1, ncclInt32, ncclSum, comm[i], w->stream[i]));
  EACH(w, i) OK(ncclCommRevoke(comm[i], NCCL_REVOKE_DEFAULT));
  EACH(w, i) {
    CHECK((oxcclStreamSynchronize(w->stream[i]) == ncclSuccess) == (w->rank[i] != 0));
    GIVES(ncclAllReduce(&in[i], &out[i], 1, ncclInt32, ncclSum, comm[i], w->stream[i]), ncclInvalidUsage,
          w->mode == LAUNCH_THREADS ? NULL : "AllReduce: communicator was revoked");
    GIVES(ncclCommRevoke(comm[i], NCCL_REVOKE_DEFAULT), ncclInvalidArgument, NULL);
    GIVES(ncclCommFinalize(comm[i]), FINALIZE_REVOKED, NULL);
    OK(oxcclStreamDestroy(w->stream[i]));
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamCreate(&w->stream[i]));
  }
  ALL(w, i, ncclCommSplit(comm[i], 0, w->rank[i], &child[i], NULL));
  world_works(w, child, w->n);
  destroy(w, child);
  destroy(w, comm);
}

static uint64_t stat_of(ncclComm_t comm, ncclCommMemStat_t stat) {
  uint64_t value = ~(uint64_t)0;
  OK(ncclCommMemStats(comm, stat, &value));
  return value;
}

static void suspend_all(world_t* w) {
  for (int round = 0; round < 2; round++) {
    ALL(w, i, ncclCommSuspend(w->comm[i], 0)); /* nothing to suspend is nothing done */
    EACH(w, i) CHECK(stat_of(w->comm[i], ncclStatGpuMemSuspended) == 0);
    ALL(w, i, ncclCommSuspend(w->comm[i], NCCL_SUSPEND_MEM));
    EACH(w, i) {
      uint64_t suspend = stat_of(w->comm[i], ncclStatGpuMemSuspend), persist = stat_of(w->comm[i], ncclStatGpuMemPersist);
      CHECK(stat_of(w->comm[i], ncclStatGpuMemSuspended) == 1);
      CHECK(stat_of(w->comm[i], ncclStatGpuMemTotal) == suspend + persist);
      GIVES(ncclCommSuspend(w->comm[i], NCCL_SUSPEND_MEM), ncclInvalidUsage,
            w->mode == LAUNCH_THREADS ? NULL : "MemManager: Already suspended");
    }
    meet(w);
    ALL(w, i, ncclCommResume(w->comm[i]));
    EACH(w, i) {
      CHECK(stat_of(w->comm[i], ncclStatGpuMemSuspended) == 0);
      CHECK(stat_of(w->comm[i], ncclStatGpuMemSuspend) > 0);
      GIVES(ncclCommResume(w->comm[i]), ncclInvalidUsage,
            w->mode == LAUNCH_THREADS ? NULL : "MemManager: Not in suspended state");
    }
    meet(w);
    world_works(w, w->comm, w->n);
  }
}

/* A rank whose input others read in a reduction does not map theirs: they may be done with it, and gone, before that. */
static void reduce_maps_nothing_else(world_t* w) {
  enum { COUNT = 2 << 20 };
  ncclComm_t comm[WORLD_MAX];
  float *in[WORLD_MAX], *out[WORLD_MAX];
  uint64_t before[WORLD_MAX];
  CHECK(setenv("OXCCL_ALGO", "one_shot", 1) == 0);
  world_init(w, comm, NULL);
  CHECK(unsetenv("OXCCL_ALGO") == 0);
  world_works(w, comm, w->n);
  OK(ncclGroupStart());
  EACH(w, i) {
    OK(ncclMemAlloc((void**)&in[i], COUNT * sizeof(float)));
    OK(ncclMemAlloc((void**)&out[i], COUNT * sizeof(float)));
    for (size_t k = 0; k < COUNT; k++) in[i][k] = (float)(w->rank[i] + 1);
    before[i] = stat_of(comm[i], ncclStatGpuMemTotal);
    OK(ncclReduce(in[i], out[i], COUNT, ncclFloat, ncclSum, 0, comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    uint64_t after = stat_of(comm[i], ncclStatGpuMemTotal);
    if (w->rank[i] != 0) CHECK(after < before[i] + COUNT * sizeof(float));
    if (w->rank[i] == 0) CHECK(out[i][0] == (float)(w->n * (w->n + 1) / 2) && out[i][COUNT - 1] == out[i][0]);
    OK(ncclMemFree(in[i]));
    OK(ncclMemFree(out[i]));
  }
  world_destroy(w, comm);
}

void chapter(world_t* w) {
  world_open(w);
  world_works(w, w->comm, w->n);
  split(w);
  shrink(w);
  grow(w);
  revoke_all(w);
  suspend_all(w);
  reduce_maps_nothing_else(w);
  world_close(w);
}
