/* Every collective on one communicator, over several sizes, out of place and in place; for threads and processes. */
#ifndef ABI_SUITE_H_
#define ABI_SUITE_H_
#include "abi_test.h"

/* Element i of the buffer of rank r; small, so that sums stay exact. */
static inline int32_t element(int r, size_t i) { return (int32_t)((i * 7 + (size_t)r * 13) % 101); }

typedef struct {
  ncclComm_t comm;
  oxcclStream_t stream;
  int rank, n;
  size_t count;    /* elements per block */
  int32_t *in, *out; /* n blocks each */
} suite_t;

static inline void suite_fill(suite_t* s) {
  for (size_t i = 0; i < s->count * (size_t)s->n; i++) s->in[i] = element(s->rank, i), s->out[i] = -1;
}

#define SUITE_EXPECT(index, wanted)                                                                        \
  do {                                                                                                     \
    OK(oxcclStreamSynchronize(s->stream));                                                                 \
    for (size_t i = 0; i < (index); i++) {                                                                 \
      int64_t want_ = (wanted);                                                                            \
      if (s->out[i] != want_) {                                                                            \
        fprintf(stderr, "%s:%d: rank %d of %d, count %zu, element %zu: %d, expected %lld\n", __FILE__,     \
                __LINE__, s->rank, s->n, s->count, i, s->out[i], (long long)want_);                        \
        exit(1);                                                                                           \
      }                                                                                                    \
    }                                                                                                      \
  } while (0)

static inline int64_t suite_sum(const suite_t* s, size_t i) {
  int64_t sum = 0;
  for (int r = 0; r < s->n; r++) sum += element(r, i);
  return sum;
}

static inline void suite_reductions(suite_t* s) {
  size_t c = s->count, me = (size_t)s->rank;
  suite_fill(s);
  OK(ncclAllReduce(s->in, s->out, c, ncclInt32, ncclSum, s->comm, s->stream));
  SUITE_EXPECT(c, suite_sum(s, i));
  suite_fill(s);
  memcpy(s->out, s->in, c * 4);
  OK(ncclAllReduce(s->out, s->out, c, ncclInt32, ncclSum, s->comm, s->stream));
  SUITE_EXPECT(c, suite_sum(s, i));
  suite_fill(s);
  OK(ncclAllReduce(s->in, s->out, c, ncclInt32, ncclAvg, s->comm, s->stream));
  SUITE_EXPECT(c, suite_sum(s, i) / s->n);
  for (int root = 0; root < s->n; root++) {
    suite_fill(s);
    OK(ncclReduce(s->in, s->rank == root ? s->out : NULL, c, ncclInt32, ncclSum, root, s->comm, s->stream));
    SUITE_EXPECT(c, s->rank == root ? suite_sum(s, i) : -1);
  }
  suite_fill(s);
  OK(ncclReduceScatter(s->in, s->out, c, ncclInt32, ncclSum, s->comm, s->stream));
  SUITE_EXPECT(c, suite_sum(s, me * c + i));
}

static inline void suite_moves(suite_t* s) {
  size_t c = s->count, n = (size_t)s->n, me = (size_t)s->rank;
  suite_fill(s);
  OK(ncclAllGather(s->in, s->out, c, ncclInt32, s->comm, s->stream));
  SUITE_EXPECT(c * n, element((int)(i / c), i % c));
  suite_fill(s);
  memcpy(s->out + me * c, s->in, c * 4);
  OK(ncclAllGather(s->out + me * c, s->out, c, ncclInt32, s->comm, s->stream));
  SUITE_EXPECT(c * n, element((int)(i / c), i % c));
  suite_fill(s);
  OK(ncclAlltoAll(s->in, s->out, c, ncclInt32, s->comm, s->stream));
  SUITE_EXPECT(c * n, element((int)(i / c), me * c + i % c));
}

static inline void suite_rooted_moves(suite_t* s, int root) {
  size_t c = s->count, n = (size_t)s->n, me = (size_t)s->rank;
  int at_root = s->rank == root;
  suite_fill(s);
  OK(ncclBroadcast(at_root ? s->in : NULL, s->out, c, ncclInt32, root, s->comm, s->stream));
  SUITE_EXPECT(c, element(root, i));
  suite_fill(s);
  if (at_root) memcpy(s->out, s->in, c * 4);
  OK(ncclBcast(s->out, c, ncclInt32, root, s->comm, s->stream));
  SUITE_EXPECT(c, element(root, i));
  suite_fill(s);
  OK(ncclGather(s->in, at_root ? s->out : NULL, c, ncclInt32, root, s->comm, s->stream));
  SUITE_EXPECT(c * n, at_root ? element((int)(i / c), i % c) : -1);
  suite_fill(s);
  OK(ncclScatter(at_root ? s->in : NULL, s->out, c, ncclInt32, root, s->comm, s->stream));
  SUITE_EXPECT(c, element(root, me * c + i));
}

static inline void suite_ring(suite_t* s) {
  int next = (s->rank + 1) % s->n, last = (s->rank + s->n - 1) % s->n;
  suite_fill(s);
  OK(ncclGroupStart());
  OK(ncclSend(s->in, s->count, ncclInt32, next, s->comm, s->stream));
  OK(ncclRecv(s->out, s->count, ncclInt32, last, s->comm, s->stream));
  OK(ncclGroupEnd());
  SUITE_EXPECT(s->count, element(last, i));
}

static inline void run_suite(ncclComm_t comm) {
  static const size_t counts[] = {1, 5, 1000, 100000};
  suite_t s;
  memset(&s, 0, sizeof s);
  s.comm = comm;
  OK(ncclCommCount(comm, &s.n));
  OK(ncclCommUserRank(comm, &s.rank));
  OK(oxcclStreamCreate(&s.stream));
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    s.count = counts[k];
    s.in = (int32_t*)allocate(s.count * (size_t)s.n * 4);
    /* Memory of the library on one side, any other memory on the other. */
    s.out = (int32_t*)malloc(s.count * (size_t)s.n * 4);
    CHECK(s.out != NULL);
    suite_reductions(&s);
    suite_moves(&s);
    for (int root = 0; root < s.n; root++) suite_rooted_moves(&s, root);
    suite_ring(&s);
    OK(ncclMemFree(s.in));
    free(s.out);
  }
  /* Nothing to do is done at once. */
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, s.stream));
  OK(oxcclStreamSynchronize(s.stream));
  OK(oxcclStreamDestroy(s.stream));
}

#endif
