/*
 * Chapter "operators": ncclRedOpCreatePreMulSum with scalars of the host and of the device, in every data type, for all
 * three reductions, with a scalar of its own on every rank; how long an operator lives and where it may be used.
 */
#include "launch.h"
#include "values.h"

enum { COUNT = 40 };

/* Every rank multiplies by 1 or 2, and contributes 0 or 1: all types have all sums. */
static double scalar_of(int rank) { return 1 + rank % 2; }
static double input(int rank, size_t k) { return (double)((k + (size_t)rank / 2) % 2); }
static double wanted(const world_t* w, size_t k) {
  double sum = 0;
  for (int r = 0; r < w->n; r++) sum += scalar_of(r) * input(r, k);
  return sum;
}

typedef struct {
  ncclDataType_t type;
  void* scalar[WORLD_MAX];
  void* in[WORLD_MAX];
  void* out[WORLD_MAX];
  ncclRedOp_t op[WORLD_MAX];
} buffers_t;

static void create(world_t* w, buffers_t* b, ncclScalarResidence_t residence) {
  EACH(w, i) {
    put(b->type, b->scalar[i], 0, scalar_of(w->rank[i]));
    for (size_t k = 0; k < (size_t)w->n * COUNT; k++) put(b->type, b->in[i], k, input(w->rank[i], k));
    memset(b->out[i], 0, (size_t)w->n * COUNT * 8);
    OK(ncclRedOpCreatePreMulSum(&b->op[i], b->scalar[i], b->type, residence, w->comm[i]));
    CHECK((int)b->op[i] >= (int)ncclNumOps);
    /* Of the host, it was read already; of the device, it is read when the collective runs. */
    if (residence == ncclScalarHostImmediate) put(b->type, b->scalar[i], 0, 7);
  }
}

static void expect(world_t* w, buffers_t* b, int only_rank, size_t first) {
  world_wait(w);
  EACH(w, i) {
    if (only_rank >= 0 && w->rank[i] != only_rank) continue;
    for (size_t k = 0; k < COUNT; k++) {
      double found = get(b->type, b->out[i], k), want = wanted(w, k + first * (size_t)w->rank[i] * COUNT);
      if (found == want) continue;
      fprintf(stderr, "type %d, rank %d, element %zu: %g, not %g\n", (int)b->type, w->rank[i], k, found, want);
      abi_failed();
    }
  }
}

static void reductions(world_t* w, ncclDataType_t type, ncclScalarResidence_t residence) {
  buffers_t b;
  b.type = type;
  EACH(w, i) {
    b.scalar[i] = allocate(8);
    b.in[i] = allocate((size_t)w->n * COUNT * 8);
    b.out[i] = allocate((size_t)w->n * COUNT * 8);
  }
  create(w, &b, residence);
  ALL(w, i, ncclAllReduce(b.in[i], b.out[i], COUNT, type, b.op[i], w->comm[i], w->stream[i]));
  expect(w, &b, -1, 0);
  ALL(w, i, ncclReduceScatter(b.in[i], b.out[i], COUNT, type, b.op[i], w->comm[i], w->stream[i]));
  expect(w, &b, -1, 1);
  ALL(w, i, ncclReduce(b.in[i], b.out[i], COUNT, type, b.op[i], 1, w->comm[i], w->stream[i]));
  /* An operator may go as soon as the call that uses it has returned. */
  EACH(w, i) OK(ncclRedOpDestroy(b.op[i], w->comm[i]));
  expect(w, &b, 1, 0);
  EACH(w, i) {
    OK(ncclMemFree(b.scalar[i]));
    OK(ncclMemFree(b.in[i]));
    OK(ncclMemFree(b.out[i]));
  }
}

/* The scalar of the device is read each time, in the order of the stream. */
static void scalar_changes(world_t* w) {
  float *scalar[WORLD_MAX], *data[WORLD_MAX], *values[WORLD_MAX];
  ncclRedOp_t op[WORLD_MAX];
  EACH(w, i) {
    scalar[i] = (float*)allocate(4);
    data[i] = (float*)allocate(8);
    values[i] = (float*)allocate(8);
    values[i][0] = 3, values[i][1] = 0.5f;
    data[i][0] = data[i][1] = (float)(w->rank[i] + 1);
    OK(ncclRedOpCreatePreMulSum(&op[i], scalar[i], ncclFloat, ncclScalarDevice, w->comm[i]));
  }
  for (int k = 0; k < 2; k++) {
    EACH(w, i) OK(oxcclMemcpyAsync(scalar[i], &values[i][k], 4, w->stream[i]));
    ALL(w, i, ncclAllReduce(&data[i][k], &data[i][k], 1, ncclFloat, op[i], w->comm[i], w->stream[i]));
  }
  world_wait(w);
  EACH(w, i) {
    float sum = (float)(w->n * (w->n + 1) / 2);
    CHECK(data[i][0] == 3 * sum && data[i][1] == sum / 2);
    OK(ncclRedOpDestroy(op[i], w->comm[i]));
    OK(ncclMemFree(scalar[i]));
    OK(ncclMemFree(data[i]));
    OK(ncclMemFree(values[i]));
  }
}

/* For one type and one communicator, until it is destroyed; a number may come back afterwards. */
static void life_time(world_t* w) {
  enum { MANY = 300 };
  ncclComm_t other[WORLD_MAX];
  float scalar = 2, data[4] = {0, 0, 0, 0};
  ALL(w, i, ncclCommSplit(w->comm[i], 0, 0, &other[i], NULL));
  EACH(w, i) {
    ncclRedOp_t ops[MANY];
    for (int k = 0; k < MANY; k++) {
      OK(ncclRedOpCreatePreMulSum(&ops[k], &scalar, ncclFloat, ncclScalarHostImmediate, w->comm[i]));
      for (int j = 0; j < k; j++) CHECK(ops[j] != ops[k]);
    }
    /* The other communicator has operators, too, which have other values. */
    ncclRedOp_t others[2];
    for (int k = 0; k < 2; k++) OK(ncclRedOpCreatePreMulSum(&others[k], &scalar, ncclFloat, ncclScalarHostImmediate, other[i]));
    GIVES(ncclRedOpDestroy(others[0], w->comm[i]), ncclInvalidArgument, NULL);
    GIVES(ncclAllReduce(data, data, 4, ncclInt32, ops[0], w->comm[i], w->stream[i]), ncclInvalidArgument, NULL);
    GIVES(ncclAllReduce(data, data, 4, ncclFloat, ops[0], other[i], w->stream[i]), ncclInvalidArgument, NULL);
    GIVES(ncclRedOpDestroy(ops[0], other[i]), ncclInvalidArgument, NULL);
    for (int k = 0; k < 2; k++) OK(ncclRedOpDestroy(others[k], other[i]));
    for (int k = 0; k < MANY; k++) OK(ncclRedOpDestroy(ops[k], w->comm[i]));
    GIVES(ncclRedOpDestroy(ops[0], w->comm[i]), ncclInvalidArgument, NULL);
    GIVES(ncclAllReduce(data, data, 4, ncclFloat, ops[1], w->comm[i], w->stream[i]), ncclInvalidArgument, NULL);
  }
  world_destroy(w, other);
}

void chapter(world_t* w) {
  world_open(w);
  for (int t = 0; t < TYPES; t++) {
    reductions(w, (ncclDataType_t)t, ncclScalarHostImmediate);
    reductions(w, (ncclDataType_t)t, ncclScalarDevice);
  }
  scalar_changes(w);
  life_time(w);
  world_works(w, w->comm, w->n);
  world_close(w);
}
