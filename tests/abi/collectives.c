/*
 * Chapter "collectives": every collective in every data type, with every operator, out of place and in place, for
 * every root, in several sizes; results are compared with a count in double precision that does not use the library.
 * All numbers are small, so that every type has them and all intermediate results exactly.
 */
#include "launch.h"
#include "values.h"

enum collective { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BCAST, ALL_TO_ALL, GATHER, SCATTER, KINDS };

typedef struct {
  world_t* w;
  enum collective kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  int in_place;
  size_t count;
  char* in[WORLD_MAX];
  char* out[WORLD_MAX];
} call_t;

enum { GUARD = 16 }; /* bytes behind each buffer that nobody may touch */

static int reduces(enum collective kind) { return kind <= REDUCE_SCATTER; }
static int has_root(enum collective kind) {
  return kind == REDUCE || kind == BROADCAST || kind == BCAST || kind == GATHER || kind == SCATTER;
}

/* Element k of the input of rank r. */
static double input(const call_t* c, int r, size_t k) {
  static const int factors[2][3] = {{1, 2, 1}, {1, 2, -1}};
  size_t which = ((size_t)r * 2 + k * 5 + k / 3) % 3;
  int is_signed = type_is_signed(c->type);
  if (reduces(c->kind) && c->op == ncclProd) return factors[is_signed][which];
  return (double)which - (is_signed ? 1 : 0);
}

/* The reduction of element k of all ranks. */
static double folded(const call_t* c, size_t k) {
  double all = input(c, 0, k);
  for (int r = 1; r < c->w->n; r++) {
    double next = input(c, r, k);
    switch ((int)c->op) {
      case ncclProd: all *= next; break;
      case ncclMax: all = next > all ? next : all; break;
      case ncclMin: all = next < all ? next : all; break;
      default: all += next;
    }
  }
  if (c->op != ncclAvg) return all;
  /* Integers are divided as C does. */
  return type_is_float(c->type) ? all / c->w->n : (double)((int64_t)all / c->w->n);
}

static size_t output_count(const call_t* c, int rank) {
  size_t n = (size_t)c->w->n;
  switch ((int)c->kind) {
    case REDUCE: return rank == c->root ? c->count : 0;
    case ALL_GATHER: case ALL_TO_ALL: return n * c->count;
    case GATHER: return rank == c->root ? n * c->count : 0;
    default: return c->count;
  }
}

/* Element k of the output of a rank. */
static double output(const call_t* c, int rank, size_t k) {
  size_t mine = (size_t)rank * c->count, block = k / c->count, within = k % c->count;
  switch ((int)c->kind) {
    case ALL_REDUCE: case REDUCE: return folded(c, k);
    case REDUCE_SCATTER: return folded(c, mine + k);
    case ALL_GATHER: case GATHER: return input(c, (int)block, within);
    case BROADCAST: case BCAST: return input(c, c->root, k);
    case ALL_TO_ALL: return input(c, (int)block, mine + within);
    default: return input(c, c->root, mine + k);
  }
}

/* Where local rank i's input begins, and its output; within the same memory when in place. */
static char* sendbuff(const call_t* c, int i) {
  size_t block = c->count * type_size(c->type);
  int rank = c->w->rank[i];
  if (!c->in_place) return c->in[i];
  if (c->kind == ALL_GATHER || (c->kind == GATHER && rank == c->root)) return c->out[i] + (size_t)rank * block;
  return c->kind == ALL_REDUCE || c->kind == REDUCE || c->kind == BROADCAST ? c->out[i] : c->in[i];
}

static char* recvbuff(const call_t* c, int i) {
  size_t block = c->count * type_size(c->type);
  int rank = c->w->rank[i];
  if (!c->in_place) return c->out[i];
  if (c->kind == REDUCE_SCATTER || (c->kind == SCATTER && rank == c->root)) return c->in[i] + (size_t)rank * block;
  return c->out[i];
}

static ncclResult_t start(const call_t* c, int i) {
  char *in = sendbuff(c, i), *out = recvbuff(c, i);
  int at_root = c->w->rank[i] == c->root;
  ncclComm_t comm = c->w->comm[i];
  oxcclStream_t s = c->w->stream[i];
  switch ((int)c->kind) {
    case ALL_REDUCE: return ncclAllReduce(in, out, c->count, c->type, c->op, comm, s);
    /* Where nothing arrives or leaves, the buffer may be null. */
    case REDUCE: return ncclReduce(in, at_root ? out : NULL, c->count, c->type, c->op, c->root, comm, s);
    case REDUCE_SCATTER: return ncclReduceScatter(in, out, c->count, c->type, c->op, comm, s);
    case ALL_GATHER: return ncclAllGather(in, out, c->count, c->type, comm, s);
    case BROADCAST: return ncclBroadcast(at_root ? in : NULL, out, c->count, c->type, c->root, comm, s);
    case BCAST: return ncclBcast(out, c->count, c->type, c->root, comm, s);
    case ALL_TO_ALL: return ncclAlltoAll(in, out, c->count, c->type, comm, s);
    case GATHER: return ncclGather(in, at_root ? out : NULL, c->count, c->type, c->root, comm, s);
    default: return ncclScatter(at_root ? in : NULL, out, c->count, c->type, c->root, comm, s);
  }
}

static size_t input_count(const call_t* c) {
  int blocks = c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER ? c->w->n : 1;
  return c->count * (size_t)blocks;
}

static void fill(const call_t* c, int i) {
  size_t all = c->count * (size_t)c->w->n * type_size(c->type) + GUARD;
  int rank = c->w->rank[i];
  memset(c->in[i], 0xa5, all);
  memset(c->out[i], 0xa5, all);
  if (c->kind == BCAST && rank != c->root) return;
  char* at = c->kind == BCAST ? c->out[i] : sendbuff(c, i);
  for (size_t k = 0; k < input_count(c); k++) put(c->type, at, k, input(c, rank, k));
}

static void wrong(const call_t* c, int i, const char* what, size_t k, double found, double expected) {
  fprintf(stderr, "collective %d, type %d, op %d, root %d, count %zu, %s, rank %d of %d: %s %zu is %g, not %g\n",
          (int)c->kind, (int)c->type, (int)c->op, c->root, c->count, c->in_place ? "in place" : "out of place",
          c->w->rank[i], c->w->n, what, k, found, expected);
  abi_failed();
}

static void verify(const call_t* c, int i) {
  size_t all = c->count * (size_t)c->w->n * type_size(c->type), outputs = output_count(c, c->w->rank[i]);
  char* out = recvbuff(c, i);
  for (size_t k = 0; k < outputs; k++) {
    double found = get(c->type, out, k), expected = output(c, c->w->rank[i], k);
    if (found != expected) wrong(c, i, "output", k, found, expected);
  }
  for (size_t k = all; k < all + GUARD; k++) CHECK(c->in[i][k] == (char)0xa5 && c->out[i][k] == (char)0xa5);
  if (c->in_place || c->kind == BCAST) return;
  for (size_t k = outputs * type_size(c->type); k < all; k++) CHECK(out[k] == (char)0xa5);
  for (size_t k = 0; k < input_count(c); k++) {
    double found = get(c->type, c->in[i], k), expected = input(c, c->w->rank[i], k);
    if (found != expected) wrong(c, i, "input", k, found, expected);
  }
}

/* One call with its buffers: of the library for the input, of malloc for the output, or the other way round. */
static void call(call_t c) {
  size_t bytes = c.count * (size_t)c.w->n * type_size(c.type) + GUARD;
  EACH(c.w, i) {
    char* foreign = (char*)malloc(bytes);
    CHECK(foreign != NULL);
    c.in[i] = c.count % 2 ? (char*)allocate(bytes) : foreign;
    c.out[i] = c.count % 2 ? foreign : (char*)allocate(bytes);
    fill(&c, i);
  }
  ALL(c.w, i, start(&c, i));
  world_wait(c.w);
  EACH(c.w, i) {
    verify(&c, i);
    free(c.count % 2 ? c.out[i] : c.in[i]);
    OK(ncclMemFree(c.count % 2 ? c.in[i] : c.out[i]));
  }
}

/* All places and roots of one collective. */
static void places(world_t* w, enum collective kind, ncclDataType_t type, ncclRedOp_t op, size_t count, int all_roots) {
  call_t c;
  memset(&c, 0, sizeof c);
  c.w = w;
  c.kind = kind;
  c.type = type;
  c.op = op;
  c.count = count;
  for (c.root = 0; c.root < (has_root(kind) && all_roots ? w->n : 1); c.root++) {
    for (c.in_place = 0; c.in_place <= (kind != ALL_TO_ALL && kind != BCAST); c.in_place++) call(c);
  }
}

void chapter(world_t* w) {
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  static const size_t counts[] = {1, 2, 1000, 65537};
  int power_of_two = (w->n & (w->n - 1)) == 0;
  world_open(w);
  for (int t = 0; t < TYPES; t++) {
    ncclDataType_t type = (ncclDataType_t)t;
    for (int k = 0; k < KINDS; k++) {
      enum collective kind = (enum collective)k;
      for (int o = 0; o < (reduces(kind) ? 5 : 1); o++) {
        /* A quarter is exact in all types, a third in none. */
        if (ops[o] == ncclAvg && type_is_float(type) && !power_of_two) continue;
        places(w, kind, type, ops[o], 33, t == ncclInt32);
      }
    }
  }
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
    for (int k = 0; k < KINDS; k++) places(w, (enum collective)k, ncclFloat32, ncclSum, counts[c], c < 2);
  /* Nothing to do is done at once, without buffers. */
  ALL(w, i, ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, w->comm[i], w->stream[i]));
  ALL(w, i, ncclAllGather(NULL, NULL, 0, ncclFloat, w->comm[i], w->stream[i]));
  ALL(w, i, ncclBroadcast(NULL, NULL, 0, ncclFloat, 0, w->comm[i], w->stream[i]));
  world_wait(w);
  world_close(w);
}
