/*
 * Chapter "groups": empty and nested groups, many calls and several communicators and streams in one, groups of two
 * threads at once, mistakes inside of groups and what is left of the group then.
 */
#include "launch.h"
#include <pthread.h>

static void empty_and_nested(world_t* w) {
  int32_t data[WORLD_MAX];
  GIVES(ncclGroupEnd(), ncclInvalidUsage, w->mode == LAUNCH_THREADS ? NULL : "ncclGroupEnd: not in a group call.");
  OK(ncclGroupStart());
  OK(ncclGroupEnd());
  for (int depth = 0; depth < 50; depth++) OK(ncclGroupStart());
  EACH(w, i) {
    data[i] = w->rank[i];
    OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
  }
  for (int depth = 0; depth < 49; depth++) OK(ncclGroupEnd());
  /* Only the outermost end begins the work. */
  EACH(w, i) OK(oxcclStreamSynchronize(w->stream[i]));
  EACH(w, i) CHECK(data[i] == w->rank[i]);
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) CHECK(data[i] == w->n * (w->n - 1) / 2);
  GIVES(ncclGroupEnd(), ncclInvalidUsage, NULL);
}

/* Different collectives and messages, all in one group, in two streams per rank. */
static void many_calls(world_t* w) {
  enum { CALLS = 60, COUNT = 50 };
  int32_t *data[WORLD_MAX], *got[WORLD_MAX];
  oxcclStream_t second[WORLD_MAX];
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamCreate(&second[i]));
    data[i] = (int32_t*)allocate(CALLS * COUNT * 4);
    got[i] = (int32_t*)allocate(CALLS * COUNT * 4);
    for (int k = 0; k < CALLS * COUNT; k++) data[i][k] = k + w->rank[i];
  }
  OK(ncclGroupStart());
  for (int c = 0; c < CALLS; c++) {
    EACH(w, i) {
      int32_t *in = data[i] + c * COUNT, *out = got[i] + c * COUNT;
      oxcclStream_t stream = c % 2 ? second[i] : w->stream[i];
      int next = (w->rank[i] + 1) % w->n, last = (w->rank[i] + w->n - 1) % w->n;
      switch (c % 3) {
        case 0: OK(ncclAllReduce(in, out, COUNT, ncclInt32, ncclSum, w->comm[i], stream)); break;
        case 1: OK(ncclBroadcast(in, out, COUNT, ncclInt32, c % w->n, w->comm[i], stream)); break;
        default:
          OK(ncclSend(in, COUNT, ncclInt32, next, w->comm[i], stream));
          OK(ncclRecv(out, COUNT, ncclInt32, last, w->comm[i], stream));
      }
    }
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    OK(oxcclStreamSynchronize(second[i]));
    for (int k = 0; k < CALLS * COUNT; k++) {
      int c = k / COUNT, last = (w->rank[i] + w->n - 1) % w->n;
      CHECK(got[i][k] == (c % 3 == 0 ? w->n * k + w->n * (w->n - 1) / 2 : k + (c % 3 == 1 ? c % w->n : last)));
    }
    OK(ncclMemFree(data[i]));
    OK(ncclMemFree(got[i]));
    OK(oxcclStreamDestroy(second[i]));
  }
}

/* Two communicators with their ranks in opposite orders, in one group; then both are ended in one group. */
static void several_communicators(world_t* w) {
  ncclComm_t reverse[WORLD_MAX], half[WORLD_MAX];
  int32_t a[WORLD_MAX], b[WORLD_MAX], c[WORLD_MAX];
  OK(ncclGroupStart());
  EACH(w, i) {
    OK(ncclCommSplit(w->comm[i], 0, -w->rank[i], &reverse[i], NULL));
  }
  OK(ncclGroupEnd());
  ALL(w, i, ncclCommSplit(w->comm[i], w->rank[i] % 2, 0, &half[i], NULL));
  OK(ncclGroupStart());
  EACH(w, i) {
    a[i] = b[i] = c[i] = w->rank[i];
    OK(ncclBroadcast(&a[i], &a[i], 1, ncclInt32, 0, reverse[i], w->stream[i]));
    OK(ncclBroadcast(&b[i], &b[i], 1, ncclInt32, 0, w->comm[i], w->stream[i]));
    OK(ncclAllReduce(&c[i], &c[i], 1, ncclInt32, ncclMin, half[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) CHECK(a[i] == w->n - 1 && b[i] == 0 && c[i] == w->rank[i] % 2);
  OK(ncclGroupStart());
  EACH(w, i) {
    OK(ncclCommDestroy(reverse[i]));
    OK(ncclCommDestroy(half[i]));
  }
  OK(ncclGroupEnd());
}

/* A mistake is returned at once and again by the outermost end; nothing of the group is done; the next one is fine. */
static void mistakes(world_t* w) {
  int32_t data[WORLD_MAX];
  for (int depth = 1; depth <= 3; depth++) {
    for (int k = 0; k < depth; k++) OK(ncclGroupStart());
    EACH(w, i) {
      data[i] = 1;
      OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
    }
    GIVES(ncclAllReduce(data, data, 1, (ncclDataType_t)77, ncclSum, w->comm[0], w->stream[0]), ncclInvalidArgument,
          w->mode == LAUNCH_THREADS ? NULL : "AllReduce : invalid type 77");
    GIVES(ncclBroadcast(data, data, 1, ncclInt32, w->n, w->comm[0], w->stream[0]), ncclInvalidArgument, NULL);
    /* Fine by itself, but its group is lost. */
    EACH(w, i) OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
    for (int k = 1; k < depth; k++) OK(ncclGroupEnd());
    GIVES(ncclGroupEnd(), ncclInvalidArgument, NULL);
    world_wait(w);
    EACH(w, i) CHECK(data[i] == 1);
    /* The thread is out of the group. */
    GIVES(ncclGroupEnd(), ncclInvalidUsage, NULL);
  }
  world_works(w, w->comm, w->n);
}

/* Blocking and nonblocking communicators do not mix. */
static void mixed_modes(world_t* w) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comms[2];
  ncclUniqueId ids[2];
  if (w->mode == LAUNCH_THREADS) return;
  config.blocking = 0;
  OK(ncclGetUniqueId(&ids[0]));
  OK(ncclGetUniqueId(&ids[1]));
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&comms[0], 1, ids[0], 0));
  OK(ncclCommInitRankConfig(&comms[1], 1, ids[1], 0, &config));
  GIVES(ncclGroupEnd(), ncclInvalidArgument,
        "Blocking and nonblocking communicators are not allowed in the same group.");
  OK(ncclCommAbort(comms[0]));
  OK(ncclCommAbort(comms[1]));
}

/* A group is its thread's: another thread is in none, and may make calls of its own. */
static void* other_thread(void* world) {
  world_t* w = (world_t*)world;
  ncclComm_t comm;
  ncclUniqueId id;
  int32_t data = 5;
  GIVES(ncclGroupEnd(), ncclInvalidUsage, NULL);
  OK(ncclGetUniqueId(&id));
  OK(oxcclSetDevice(w->rank[0]));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, comm, NULL));
  OK(oxcclStreamSynchronize(NULL));
  CHECK(data == 5);
  OK(ncclCommDestroy(comm));
  return NULL;
}

static void threads_apart(world_t* w) {
  pthread_t thread;
  int32_t data[WORLD_MAX];
  OK(ncclGroupStart());
  EACH(w, i) {
    data[i] = 1;
    OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
  }
  CHECK(pthread_create(&thread, NULL, other_thread, w) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) CHECK(data[i] == w->n);
}

/* Without a place for its answer the simulation is the group's end. */
static void simulated_end(world_t* w) {
  int32_t data[WORLD_MAX];
  GIVES(ncclGroupSimulateEnd(NULL), ncclInvalidUsage, NULL);
  OK(ncclGroupStart());
  EACH(w, i) {
    data[i] = 1;
    OK(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupSimulateEnd(NULL));
  world_wait(w);
  EACH(w, i) CHECK(data[i] == w->n);
}

void chapter(world_t* w) {
  world_open(w);
  empty_and_nested(w);
  many_calls(w);
  several_communicators(w);
  mistakes(w);
  mixed_modes(w);
  threads_apart(w);
  simulated_end(w);
  world_close(w);
}
