/*
 * Groups of sends and receives that come again: the same calls many times with other buffers, other calls in between and
 * behind a common beginning, mistakes in the middle, communicators and streams that end and are made anew. What was
 * remembered of a group must never show.
 */
#include "launch.h"

enum { FORMS = 9, MOST = 20000, BUFFERS = 3 };

/* Element k of what `from` sends in a round, as message m. */
static int32_t word(int from, int round, int m, size_t k) {
  return (int32_t)(k * 31 + (size_t)from * 1009 + (size_t)round * 10007 + (size_t)m * 1000003);
}

static unsigned next_random(unsigned* state) { return (*state = *state * 1103515245u + 12345u) >> 16; }

/* Of the ranks that a thread drives. */
static __thread int32_t *in[WORLD_MAX][BUFFERS], *out[WORLD_MAX][BUFFERS];

/* How many messages of a form go to the next rank, and how many elements each has. */
static int messages(int form) { return form == 4 ? 2 : 1; }
static size_t length(int form) { return form == 3 ? MOST : form == 5 ? 600 : form == 6 ? 25 : 2; }

static void fill(int32_t* at, int from, int round, int m, size_t count) {
  for (size_t k = 0; k < count; k++) at[k] = word(from, round, m, k);
}

static void expect(const int32_t* at, int form, int from, int round, int m, size_t count) {
  for (size_t k = 0; k < count; k++) {
    if (at[k] == word(from, round, m, k)) continue;
    fprintf(stderr, "round %d, form %d: element %zu of message %d from %d is %d\n", round, form, k, m, from, at[k]);
    abi_failed();
  }
}

/* The calls of one rank; all ranks make the same form. */
static void calls(world_t* w, int i, int form, ncclComm_t comm, int32_t* give, int32_t* take, int32_t* sum) {
  int next = (w->rank[i] + 1) % w->n, last = (w->rank[i] + w->n - 1) % w->n;
  size_t count = length(form);
  oxcclStream_t s = w->stream[i];
  if (form == 2) { /* the other way round */
    OK(ncclRecv(take, count, ncclInt32, last, comm, s));
    OK(ncclSend(give, count, ncclInt32, next, comm, s));
    return;
  }
  if (form == 7) OK(ncclGroupStart()); /* an inner group */
  for (int m = 0; m < messages(form); m++) {
    OK(ncclSend(give + (size_t)m * count, count, ncclInt32, next, comm, s));
  }
  if (form == 7) OK(ncclGroupEnd());
  for (int m = 0; m < messages(form); m++) {
    OK(ncclRecv(take + (size_t)m * count, count, ncclInt32, last, comm, s));
  }
  /* The first two calls are those of form 0. */
  if (form == 1) OK(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, s));
  if (form == 8) OK(ncclSend(sum, 1, ncclInt32, next, comm, s));
  if (form == 8) OK(ncclRecv(sum + 1, 1, ncclInt32, last, comm, s));
}

static void round_of(world_t* w, int form, int round, ncclComm_t* comm) {
  int32_t sum[WORLD_MAX][2];
  int b = round % BUFFERS;
  EACH(w, i) {
    sum[i][0] = w->rank[i] + round;
    for (int m = 0; m < messages(form); m++) {
      fill(in[i][b] + (size_t)m * length(form), w->rank[i], round, m, length(form));
    }
  }
  OK(ncclGroupStart());
  EACH(w, i) calls(w, i, form, comm[i], in[i][b], out[i][b], sum[i]);
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    int last = (w->rank[i] + w->n - 1) % w->n;
    for (int m = 0; m < messages(form); m++) {
      expect(out[i][b] + (size_t)m * length(form), form, last, round, m, length(form));
    }
    if (form == 1) CHECK(sum[i][0] == w->n * (w->n - 1) / 2 + w->n * round);
    if (form == 8) CHECK(sum[i][1] == last + round);
  }
}

/* Each form several times, then others; without a wait in between, too. */
static void forms(world_t* w, unsigned seed) {
  unsigned state = seed;
  for (int round = 0; round < 150;) {
    int form = (int)(next_random(&state) % FORMS), times = 1 + (int)(next_random(&state) % 5);
    while (times-- > 0) round_of(w, form, round++, w->comm);
  }
}

/* Many groups on the stream before anybody waits. */
static void back_to_back(world_t* w) {
  enum { GROUPS = 200 };
  EACH(w, i) {
    for (int g = 0; g < GROUPS; g++) fill(in[i][0] + g, w->rank[i], g, 0, 1);
  }
  for (int g = 0; g < GROUPS; g++) {
    OK(ncclGroupStart());
    EACH(w, i) {
      OK(ncclSend(in[i][0] + g, 1, ncclInt32, (w->rank[i] + 1) % w->n, w->comm[i], w->stream[i]));
      OK(ncclRecv(out[i][0] + g, 1, ncclInt32, (w->rank[i] + w->n - 1) % w->n, w->comm[i], w->stream[i]));
    }
    OK(ncclGroupEnd());
  }
  world_wait(w);
  EACH(w, i) {
    for (int g = 0; g < GROUPS; g++) expect(out[i][0] + g, 0, (w->rank[i] + w->n - 1) % w->n, g, 0, 1);
  }
}

/* A mistake behind calls that stand: nothing of the group is done, and the next one is whole. */
static void mistakes(world_t* w) {
  for (int round = 0; round < 12; round++) {
    round_of(w, 0, round, w->comm);
    round_of(w, 0, round, w->comm);
    round_of(w, 0, round, w->comm);
    EACH(w, i) out[i][0][0] = -7;
    OK(ncclGroupStart());
    EACH(w, i) {
      OK(ncclSend(in[i][0], 2, ncclInt32, (w->rank[i] + 1) % w->n, w->comm[i], w->stream[i]));
      if (round % 2 == 0) {
        OK(ncclRecv(out[i][0], 2, ncclInt32, (w->rank[i] + w->n - 1) % w->n, w->comm[i], w->stream[i]));
      }
    }
    switch (round % 4) {
      case 0: GIVES(ncclRecv(out[0][0], 2, ncclInt32, w->n, w->comm[0], w->stream[0]), ncclInvalidArgument, NULL); break;
      case 1: GIVES(ncclRecv(NULL, 2, ncclInt32, 0, w->comm[0], w->stream[0]), ncclInvalidArgument, NULL); break;
      case 2: GIVES(ncclSend(in[0][0], 2, (ncclDataType_t)99, 0, w->comm[0], w->stream[0]), ncclInvalidArgument, NULL); break;
      default: GIVES(ncclRecv(out[0][0], 2, ncclInt32, 0, NULL, w->stream[0]), ncclInvalidArgument, NULL);
    }
    GIVES(ncclGroupEnd(), ncclInvalidArgument, NULL);
    world_wait(w);
    EACH(w, i) CHECK(out[i][0][0] == -7);
  }
}

/* Communicators one after the other, more than handles wait before they serve again, each with calls that stand. */
static void communicators(world_t* w) {
  int times = w->mode == LAUNCH_PROCESSES ? 300 : 20;
  for (int t = 0; t < times; t++) {
    ncclComm_t comm[WORLD_MAX];
    ALL(w, i, ncclCommSplit(w->comm[i], 0, w->rank[i], &comm[i], NULL));
    for (int round = 0; round < 4; round++) round_of(w, 0, t + round, comm);
    world_destroy(w, comm);
  }
}

/* Streams one after the other. */
static void streams(world_t* w) {
  for (int t = 0; t < 20; t++) {
    for (int round = 0; round < 4; round++) round_of(w, 0, t + round, w->comm);
    EACH(w, i) {
      OK(oxcclStreamDestroy(w->stream[i]));
      OK(oxcclSetDevice(w->rank[i]));
      OK(oxcclStreamCreate(&w->stream[i]));
    }
  }
}

/* The stream, or the communicator, ends within the group: an error, or a group that finds its communicator aborted. */
static void ended_within(world_t* w) {
  ncclResult_t results[2][2];
  for (int stands = 0; stands < 2; stands++) {
    for (int what = 0; what < 2; what++) {
      ncclComm_t comm[WORLD_MAX];
      oxcclStream_t other[WORLD_MAX];
      ALL(w, i, ncclCommSplit(w->comm[i], 0, w->rank[i], &comm[i], NULL));
      for (int round = 0; round < 4 * stands; round++) round_of(w, 0, round, comm);
      meet(w);
      OK(ncclGroupStart());
      EACH(w, i) calls(w, i, 0, comm[i], in[i][0], out[i][0], NULL);
      EACH(w, i) {
        if (what == 0) {
          OK(oxcclStreamDestroy(w->stream[i]));
        } else {
          OK(ncclCommAbort(comm[i]));
        }
      }
      results[stands][what] = ncclGroupEnd();
      EACH(w, i) {
        OK(oxcclSetDevice(w->rank[i]));
        OK(oxcclStreamCreate(&other[i]));
        if (what == 1) (void)oxcclStreamDestroy(w->stream[i]);
        w->stream[i] = other[i];
        if (what == 0) OK(ncclCommAbort(comm[i]));
      }
      meet(w);
    }
  }
  CHECK(results[0][0] == ncclInvalidArgument && results[1][0] == ncclInvalidArgument);
  /* Calls that stand do not hold their communicator, and so find it gone. */
  CHECK(results[1][1] == results[0][1] || results[1][1] == ncclInvalidArgument);
}

/* That a communicator was revoked is seen by the next group, though the group before stood. */
static void revoked(world_t* w) {
  ncclComm_t comm[WORLD_MAX];
  ALL(w, i, ncclCommSplit(w->comm[i], 0, w->rank[i], &comm[i], NULL));
  for (int round = 0; round < 4; round++) round_of(w, 0, round, comm);
  meet(w);
  EACH(w, i) OK(ncclCommRevoke(comm[i], NCCL_REVOKE_DEFAULT));
  meet(w);
  OK(ncclGroupStart());
  EACH(w, i) {
    (void)ncclSend(in[i][0], 2, ncclInt32, (w->rank[i] + 1) % w->n, comm[i], w->stream[i]);
    (void)ncclRecv(out[i][0], 2, ncclInt32, (w->rank[i] + w->n - 1) % w->n, comm[i], w->stream[i]);
  }
  CHECK(ncclGroupEnd() != ncclSuccess);
  meet(w);
  EACH(w, i) OK(ncclCommAbort(comm[i]));
}

void chapter(world_t* w) {
  const char* given = getenv("OXCCL_TEST_SEED");
  unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20261122u;
  world_open(w);
  EACH(w, i) {
    if (w->rank[i] == 0) fprintf(stderr, "seed %u (OXCCL_TEST_SEED)\n", seed);
    OK(oxcclSetDevice(w->rank[i]));
    for (int b = 0; b < BUFFERS; b++) {
      in[i][b] = (int32_t*)allocate(2 * MOST * sizeof(int32_t));
      out[i][b] = (int32_t*)allocate(2 * MOST * sizeof(int32_t));
    }
  }
  forms(w, seed);
  back_to_back(w);
  mistakes(w);
  communicators(w);
  streams(w);
  ended_within(w);
  revoked(w);
  world_works(w, w->comm, w->n);
  EACH(w, i) {
    for (int b = 0; b < BUFFERS; b++) {
      OK(ncclMemFree(in[i][b]));
      OK(ncclMemFree(out[i][b]));
    }
  }
  world_close(w);
}
