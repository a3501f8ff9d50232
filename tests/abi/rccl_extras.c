/*
 * What only librccl.so has: all-reduce with a bias, all-to-all with counts of its own for each pair, old spellings, and
 * the calls of the removed MSCCL. With libnccl.so there is nothing to do.
 */
#include "launch.h"
#include "values.h"

#ifdef ABI_RCCL
/* Every type and operator; the bias is another on every rank. */
static void with_bias(world_t* w) {
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin};
  enum { COUNT = 37 };
  for (int t = 0; t < TYPES; t++) {
    for (int o = 0; o < 4; o++) {
      char in[WORLD_MAX][COUNT * 8], out[WORLD_MAX][COUNT * 8], bias[WORLD_MAX][COUNT * 8];
      ncclDataType_t type = (ncclDataType_t)t;
      EACH(w, i) {
        for (size_t k = 0; k < COUNT; k++) {
          put(type, in[i], k, 1 + (double)((k + (size_t)w->rank[i]) % 2));
          put(type, bias[i], k, (double)(w->rank[i] % 2 + 1));
        }
      }
      ALL(w, i, ncclAllReduceWithBias(in[i], out[i], COUNT, type, ops[o], w->comm[i], w->stream[i], bias[i]));
      world_wait(w);
      EACH(w, i) {
        for (size_t k = 0; k < COUNT; k++) {
          double want = get(type, bias[i], k);
          for (int r = 0; r < w->n; r++) {
            double next = 1 + (double)((k + (size_t)r) % 2);
            want = o == 0 ? want + next : o == 1 ? want * next : (o == 2) == (next > want) ? next : want;
          }
          CHECK(get(type, out[i], k) == want);
        }
      }
    }
  }
}

typedef struct {
  size_t sendcounts[WORLD_MAX], sdispls[WORLD_MAX], recvcounts[WORLD_MAX], rdispls[WORLD_MAX];
  int16_t *in, *out;
} parts_t;

/* Rank s sends s + 2 * d elements to rank d, with a gap between them; none for s = d = 0. */
static void cut(parts_t* p, int n, int rank) {
  size_t sends = 0, receives = 0;
  for (int r = 0; r < n; r++) {
    p->sendcounts[r] = (size_t)(rank + 2 * r);
    p->recvcounts[r] = (size_t)(r + 2 * rank);
    p->sdispls[r] = sends;
    p->rdispls[r] = receives;
    sends += p->sendcounts[r] + 1;
    receives += p->recvcounts[r] + 1;
  }
  p->in = (int16_t*)allocate(sends * 2);
  p->out = (int16_t*)allocate(receives * 2);
  for (size_t k = 0; k < receives; k++) p->out[k] = -2;
  for (int r = 0; r < n; r++)
    for (size_t k = 0; k < p->sendcounts[r]; k++) p->in[p->sdispls[r] + k] = (int16_t)(1000 * rank + 100 * r + (int)k);
}

static void with_counts(world_t* w, int old_name) {
  parts_t p[WORLD_MAX];
  OK(ncclGroupStart());
  EACH(w, i) {
    cut(&p[i], w->n, w->rank[i]);
    OK((old_name ? ncclAllToAllv : ncclAlltoAllv)(p[i].in, p[i].sendcounts, p[i].sdispls, p[i].out, p[i].recvcounts,
                                                 p[i].rdispls, ncclFloat16, w->comm[i], w->stream[i]));
    /* The lists may go once the call has returned. */
    memset(p[i].sendcounts, 0, sizeof p[i].sendcounts);
    memset(p[i].sdispls, 0, sizeof p[i].sdispls);
  }
  OK(ncclGroupEnd());
  world_wait(w);
  EACH(w, i) {
    for (int r = 0; r < w->n; r++) {
      for (size_t k = 0; k < p[i].recvcounts[r]; k++)
        CHECK(p[i].out[p[i].rdispls[r] + k] == 1000 * r + 100 * w->rank[i] + (int)k);
      CHECK(p[i].out[p[i].rdispls[r] + p[i].recvcounts[r]] == -2);
    }
    OK(ncclMemFree(p[i].in));
    OK(ncclMemFree(p[i].out));
  }
}

/* Rank s sends this many elements to rank d in calls of a form. */
static size_t portion(int form, int s, int d) {
  switch (form) {
    case 0: return 1;
    case 1: return (size_t)(s + 2 * d);
    case 2: return (size_t)(3 * s + d) % 5 * 30;
    default: return (size_t)(700 + s + d);
  }
}

enum { AGAIN = 4, FORMS = 4, ROUNDS = 24, ROOM = 800 * WORLD_MAX };

static double portion_at(int form, int round, int call, int s, int d, size_t k) {
  return (double)((form + 7 * round + 31 * call + 3 * s + 5 * d + (int)k) % 120);
}

/* The lists of a rank in calls of a form; those of odd rounds leave gaps of an element. */
static void lists(parts_t* p, int form, int round, int n, int rank) {
  size_t sends = 0, receives = 0;
  for (int r = 0; r < n; r++) {
    p->sendcounts[r] = portion(form, rank, r);
    p->recvcounts[r] = portion(form, r, rank);
    p->sdispls[r] = sends;
    p->rdispls[r] = receives;
    sends += p->sendcounts[r] + (size_t)(round / 4 % 2);
    receives += p->recvcounts[r] + (size_t)(round / 4 % 2);
  }
}

/* The same calls again and again, with other buffers, then with other lists or of another type: what was remembered of a call
 * must never show. */
static void again_with_counts(world_t* w) {
  char *in[WORLD_MAX][AGAIN], *out[WORLD_MAX][AGAIN];
  parts_t p[WORLD_MAX];
  EACH(w, i) for (int c = 0; c < AGAIN; c++) in[i][c] = (char*)allocate(ROOM * 4), out[i][c] = (char*)allocate(ROOM * 4);
  for (int round = 0; round < ROUNDS; round++) {
    int form = round / 3 % FORMS;
    ncclDataType_t type = round / 5 % 2 ? ncclInt32 : ncclInt8;
    EACH(w, i) {
      lists(&p[i], form, round, w->n, w->rank[i]);
      for (int c = 0; c < AGAIN; c++) {
        memset(out[i][c], 0x7f, ROOM * 4);
        for (int r = 0; r < w->n; r++)
          for (size_t k = 0; k < p[i].sendcounts[r]; k++)
            put(type, in[i][c], p[i].sdispls[r] + k, portion_at(form, round, c, w->rank[i], r, k));
      }
    }
    for (int c = 0; c < AGAIN; c++)
      EACH(w, i)
        OK(ncclAlltoAllv(in[i][c], p[i].sendcounts, p[i].sdispls, out[i][c], p[i].recvcounts, p[i].rdispls, type,
                         w->comm[i], w->stream[i]));
    world_wait(w);
    EACH(w, i)
      for (int c = 0; c < AGAIN; c++)
        for (int r = 0; r < w->n; r++) {
          size_t end = p[i].rdispls[r] + p[i].recvcounts[r];
          for (size_t k = p[i].rdispls[r]; k < end; k++)
            CHECK(get(type, out[i][c], k) == portion_at(form, round, c, r, w->rank[i], k - p[i].rdispls[r]));
          if (round / 4 % 2) CHECK(get(type, out[i][c], end) == (type == ncclInt8 ? 0x7f : 0x7f7f7f7f));
        }
  }
  EACH(w, i) for (int c = 0; c < AGAIN; c++) {
    OK(ncclMemFree(in[i][c]));
    OK(ncclMemFree(out[i][c]));
  }
}

static void old_names(world_t* w) {
  uint64_t in[WORLD_MAX][WORLD_MAX], out[WORLD_MAX][WORLD_MAX];
  mscclAlgoHandle_t handle = 77;
  EACH(w, i) for (int r = 0; r < w->n; r++) in[i][r] = (uint64_t)(10 * w->rank[i] + r);
  ALL(w, i, ncclAllToAll(in[i], out[i], 1, ncclUint64, w->comm[i], w->stream[i]));
  if (w->mode != LAUNCH_THREADS)
    CHECK(strcmp(ncclGetLastError(NULL), "Please note that ncclAllToAll is deprecated, please use ncclAlltoAll instead") == 0);
  world_wait(w);
  EACH(w, i) for (int r = 0; r < w->n; r++) CHECK(out[i][r] == (uint64_t)(10 * r + w->rank[i]));
  /* Nothing happens, and nothing is written. */
  OK(mscclLoadAlgo("nowhere", &handle, w->rank[0]));
  CHECK(handle == 77);
  OK(mscclRunAlgo(in, NULL, NULL, out, NULL, NULL, 1, ncclUint64, 0, 0, ncclSum, handle, w->comm[0], w->stream[0]));
  OK(mscclUnloadAlgo(handle));
}

void chapter(world_t* w) {
  world_open(w);
  with_bias(w);
  with_counts(w, 0);
  with_counts(w, 1);
  again_with_counts(w);
  old_names(w);
  world_close(w);
}
#else
void chapter(world_t* w) {
  put(ncclInt32, &w->n, 0, get(ncclInt32, &w->n, 0));
}
#endif
