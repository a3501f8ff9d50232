/*
 * Chapter "point to point": rings, everybody with everybody, several messages between two ranks in their order, sends
 * to oneself, nothing sent, large messages, every data type; and at last two ranks that disagree on a count, which
 * must be told to both.
 */
#include "launch.h"
#include "values.h"
#include <poll.h>

/* Element k of message m from one rank to another. */
static int32_t word(int from, int to, int m, size_t k) {
  return (int32_t)(k * 31 + (size_t)from * 1009 + (size_t)to * 10007 + (size_t)m * 100003);
}

static void fill(int32_t* at, size_t count, int from, int to, int m) {
  for (size_t k = 0; k < count; k++) at[k] = word(from, to, m, k);
}

static void expect(const int32_t* at, size_t count, int from, int to, int m) {
  for (size_t k = 0; k < count; k++) {
    if (at[k] == word(from, to, m, k)) continue;
    fprintf(stderr, "message %d of %zu elements from %d to %d: element %zu is %d\n", m, count, from, to, k, at[k]);
    abi_failed();
  }
}

static void ring(world_t* w, size_t count, int step) {
  int32_t *in[WORLD_MAX], *out[WORLD_MAX];
  OK(ncclGroupStart());
  EACH(w, i) {
    int next = (w->rank[i] + step) % w->n, last = (w->rank[i] + w->n - step) % w->n;
    in[i] = (int32_t*)allocate(count * 4 + 4);
    out[i] = (int32_t*)malloc(count * 4 + 4);
    CHECK(out[i] != NULL);
    out[i][count] = -5;
    fill(in[i], count, w->rank[i], next, 0);
    OK(ncclSend(in[i], count, ncclInt32, next, w->comm[i], w->stream[i]));
    OK(ncclRecv(out[i], count, ncclInt32, last, w->comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    expect(out[i], count, (w->rank[i] + w->n - step) % w->n, w->rank[i], 0);
    CHECK(out[i][count] == -5);
    OK(ncclMemFree(in[i]));
    free(out[i]);
  }
}

/* How many elements message m between two ranks has; some have none. */
static size_t length(int from, int to, int m) { return (size_t)((from * 7 + to * 3 + m * 11) % 5) * 100; }

/* MESSAGES messages from each rank to each, itself included, all in one group. */
static void all_with_all(world_t* w) {
  enum { MESSAGES = 3, MOST = 400 };
  int32_t *in[WORLD_MAX], *out[WORLD_MAX];
  EACH(w, i) {
    in[i] = (int32_t*)allocate((size_t)w->n * MESSAGES * MOST * 4);
    out[i] = (int32_t*)allocate((size_t)w->n * MESSAGES * MOST * 4);
  }
  OK(ncclGroupStart());
  EACH(w, i) {
    for (int m = 0; m < MESSAGES; m++) {
      for (int peer = 0; peer < w->n; peer++) {
        int me = w->rank[i];
        int32_t *to = in[i] + (peer * MESSAGES + m) * MOST, *from = out[i] + (peer * MESSAGES + m) * MOST;
        fill(to, length(me, peer, m), me, peer, m);
        OK(ncclSend(to, length(me, peer, m), ncclInt32, peer, w->comm[i], w->stream[i]));
        OK(ncclRecv(from, length(peer, me, m), ncclInt32, peer, w->comm[i], w->stream[i]));
      }
    }
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    for (int m = 0; m < MESSAGES; m++)
      for (int peer = 0; peer < w->n; peer++)
        expect(out[i] + (peer * MESSAGES + m) * MOST, length(peer, w->rank[i], m), peer, w->rank[i], m);
    OK(ncclMemFree(in[i]));
    OK(ncclMemFree(out[i]));
  }
}

/* Without a group: a rank that only sends, ranks that only receive, one after the other. */
static void one_to_others(world_t* w) {
  int32_t buffer[WORLD_MAX][WORLD_MAX][50];
  int alone = w->locals == 1;
  if (!alone) OK(ncclGroupStart());
  EACH(w, i) {
    if (w->rank[i] != 0) {
      OK(ncclRecv(buffer[i][0], 50, ncclInt32, 0, w->comm[i], w->stream[i]));
    } else {
      for (int to = 1; to < w->n; to++) {
        fill(buffer[i][to], 50, 0, to, 0);
        OK(ncclSend(buffer[i][to], 50, ncclInt32, to, w->comm[i], w->stream[i]));
      }
    }
  }
  if (!alone) OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) if (w->rank[i] != 0) expect(buffer[i][0], 50, 0, w->rank[i], 0);
}

static void types(world_t* w) {
  for (int t = 0; t < TYPES; t++) {
    ncclDataType_t type = (ncclDataType_t)t;
    char in[WORLD_MAX][7 * 8], out[WORLD_MAX][7 * 8];
    OK(ncclGroupStart());
    EACH(w, i) {
      int partner = w->rank[i] ^ 1;
      if (partner >= w->n) continue;
      for (size_t k = 0; k < 7; k++) put(type, in[i], k, (double)((k + (size_t)w->rank[i]) % 4));
      OK(ncclRecv(out[i], 7, type, partner, w->comm[i], w->stream[i]));
      OK(ncclSend(in[i], 7, type, partner, w->comm[i], w->stream[i]));
    }
    OK(ncclGroupEnd());
    world_wait(w);
    EACH(w, i) {
      int partner = w->rank[i] ^ 1;
      for (size_t k = 0; partner < w->n && k < 7; k++)
        CHECK(get(type, out[i], k) == (double)((k + (size_t)partner) % 4));
    }
  }
}

/* Rank 0 sends more than rank 1 wants. The communicator is over then, so this works on one of its own. */
static void disagreement(world_t* w) {
  static int32_t buffer[WORLD_MAX][2000];
  ncclComm_t pair[WORLD_MAX];
  ALL(w, i, ncclCommSplit(w->comm[i], w->rank[i] < 2 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &pair[i], NULL));
  ncclResult_t result = ncclSuccess;
  OK(ncclGroupStart());
  EACH(w, i) {
    CHECK((pair[i] != NULL) == (w->rank[i] < 2));
    if (w->rank[i] == 0) OK(ncclSend(buffer[i], 2000, ncclInt32, 1, pair[i], w->stream[i]));
    if (w->rank[i] == 1) OK(ncclRecv(buffer[i], 1000, ncclInt32, 0, pair[i], w->stream[i]));
  }
  result = ncclGroupEnd();
  EACH(w, i) {
    ncclResult_t waited = oxcclStreamSynchronize(w->stream[i]), state = ncclSuccess;
    if (pair[i] == NULL) continue;
    /* What a sender sends may be on its way when it is found out; it hears so a moment later. */
    CHECK(w->rank[i] == 0 || result != ncclSuccess || waited == ncclInvalidUsage);
    while (state == ncclSuccess) {
      OK(ncclCommGetAsyncError(pair[i], &state));
      poll(NULL, 0, 1);
    }
    CHECK(state == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(pair[i]), "1000") != NULL && strstr(ncclGetLastError(pair[i]), "2000") != NULL);
  }
  meet(w);
  EACH(w, i) OK(ncclCommAbort(pair[i]));
}

void chapter(world_t* w) {
  world_open(w);
  ring(w, 1000, 1);
  ring(w, 1, w->n - 1);
  ring(w, 0, 1);
  ring(w, 300000, 1);
  ring(w, 500, w->n); /* to oneself */
  all_with_all(w);
  one_to_others(w);
  types(w);
  disagreement(w);
  /* What the pair did is no concern of the others. */
  meet(w);
  EACH(w, i) {
    OK(oxcclStreamDestroy(w->stream[i]));
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamCreate(&w->stream[i]));
  }
  world_works(w, w->comm, w->n);
  world_close(w);
}
