// Times collectives of an MPI library the way `oxccl perf --jsonl` times ours, so that both can be set side by side.
//
//   mpirun -np 2 mpi_bench [apart] COLLECTIVE BYTES...
//
// Repetitions of k back-to-back calls (about 3 ms each, 12 ms where ranks outnumber cores); time per call = (last end -
// first start) / k over all ranks, by the machine's monotonic clock; the median and the least of the repetitions. Rank r is bound to
// core r, counted round, as those of ours are, whatever the launcher does. `apart` is for hosts of their own: no rank is bound, and the time
// is that of the rank that takes longest by its own clock.
// Out of place, f32, sum, root 0; results are checked before and after. One JSON object per size on rank 0.
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common.h"


static int me, ranks, apart;
static float *in, *out;


static const coll_t COLLS[] = {
    {"allreduce", 1, 1, -1},     {"allgather", 1, 0, 0}, {"reduce_scatter", 0, 1, 0}, {"broadcast", 1, 1, 1}, {"reduce", 1, 1, 1},
    {"alltoall", 0, 0, 0},       {"gather", 1, 0, 0},    {"scatter", 0, 1, 0},        {"sendrecv", 1, 1, 1},  {"alltoallv", 0, 0, 0},
};


#define MOST_RANKS 256
static int counts[MOST_RANKS], displs[MOST_RANKS];

// The counts that `oxccl perf` has: this rank and rank d exchange (me + d) mod n shares, and the rest where that is 0.
static void share_out(long n) {
  long total = n * ranks, share = total * 2 / ranks / ranks, rest = total - share * (ranks - 1) * ranks / 2, at = 0;
  for (int d = 0; d < ranks; d++) {
    int k = (me + d) % ranks;
    counts[d] = (int)(k ? k * share : rest);
    displs[d] = (int)at;
    at += counts[d];
  }
}

// Their places in COLLS: names are not compared where calls are timed.
enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALLTOALL, GATHER, SCATTER, SENDRECV, ALLTOALLV };
_Static_assert(sizeof COLLS / sizeof *COLLS == ALLTOALLV + 1, "each has its place");

static void call(const coll_t *c, int n) {
  MPI_Comm w = MPI_COMM_WORLD;
  int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  switch (c - COLLS) {
    case ALLREDUCE: MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, w); break;
    case ALLGATHER: MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, w); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, w); break;
    case BROADCAST: MPI_Bcast(me == 0 ? in : out, n, MPI_FLOAT, 0, w); break;
    case REDUCE: MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, w); break;
    case ALLTOALL: MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, w); break;
    case GATHER: MPI_Gather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, w); break;
    case SCATTER: MPI_Scatter(in, n, MPI_FLOAT, out, n, MPI_FLOAT, 0, w); break;
    case SENDRECV: MPI_Sendrecv(in, n, MPI_FLOAT, right, 0, out, n, MPI_FLOAT, left, 0, w, MPI_STATUS_IGNORE); break;
    case ALLTOALLV: MPI_Alltoallv(in, counts, displs, MPI_FLOAT, out, counts, displs, MPI_FLOAT, w); break;
  }
}

static int wrong(const coll_t *c, long n) {
  int root_only = is(c, "reduce") || is(c, "gather");
  if (root_only && me != 0) return 0;
  if (is(c, "broadcast") && me == 0) return 0;
  long blocks = c->out_blocks ? 1 : ranks;
  if (is(c, "alltoallv")) {
    // What rank d sends to this one begins where its own displacement for it is: all elements of its input count from 0.
    for (int d = 0; d < ranks; d++) {
      long at = 0, total = n * ranks, share = total * 2 / ranks / ranks, rest = total - share * (ranks - 1) * ranks / 2;
      for (int e = 0; e < me; e++) at += (d + e) % ranks ? (d + e) % ranks * share : rest;
      for (long i = 0; i < counts[d]; i++) if (out[displs[d] + i] != input(d, (at + i) / n, (at + i) % n)) return 1;
    }
    return 0;
  }
  for (long b = 0; b < blocks; b++)
    for (long i = 0; i < n; i++) {
      if (out[b * n + i] != expected(c, me, ranks, b, i)) return 1;
    }
  return 0;
}

static double repetition(const coll_t *c, int n, long k) {
  MPI_Barrier(MPI_COMM_WORLD);
  double t[2] = {now_us(), 0}, ends[2];
  for (long i = 0; i < k; i++) call(c, n);
  t[1] = now_us();
  if (apart) t[1] -= t[0], t[0] = 0;
  double first = -t[0];
  MPI_Allreduce(&first, &ends[0], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(&t[1], &ends[1], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return (ends[1] + ends[0]) / k;
}

static int measure(const coll_t *c, long bytes) {
  long blocks = (c->in_blocks && c->out_blocks) ? 1 : ranks;
  long n = bytes / 4 / blocks;
  if (n < 1) return 0;
  for (long b = 0; b < (c->in_blocks ? 1 : ranks); b++) for (long i = 0; i < n; i++) in[b * n + i] = input(me, b, i);
  memset(out, 0x7f, n * 4 * (c->out_blocks ? 1 : ranks));
  share_out(n);
  call(c, (int)n);
  int bad = wrong(c, n), all = 0;
  double target = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 12000 : 3000, times[MOST_REPETITIONS];
  long k = 1;
  double t = repetition(c, (int)n, k);
  while (t * k < target && k < 100000) { k = t * k < target / 8 ? k * 4 : (long)(target / t) + 1; t = repetition(c, (int)n, k); if (t * k >= target / 2) break; }
  MPI_Bcast(&k, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  int repetitions = (int)(300000 / (t * k)) + 5;
  if (repetitions > MOST_REPETITIONS) repetitions = MOST_REPETITIONS;
  MPI_Bcast(&repetitions, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (int r = 0; r < repetitions; r++) times[r] = repetition(c, (int)n, k);
  bad |= wrong(c, n);
  MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (me == 0) {
    qsort(times, repetitions, sizeof *times, ascending);
    double bus = c->bus > 0 ? 1 : (c->bus < 0 ? 2.0 : 1.0) * (ranks - 1) / ranks, alg = n * 4.0 * blocks / times[repetitions / 2] / 1e3;
    printf("{\"coll\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"time_us_median\":%.4f,\"time_us_min\":%.4f,\"algbw\":%.5f,"
           "\"busbw\":%.5f,\"ok\":%d,\"iters\":%ld,\"reps\":%d}\n",
           c->name, ranks, bytes, times[repetitions / 2], times[0], alg, alg * bus, !all, k, repetitions);
    fflush(stdout);
  }
  return all;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  apart = argc > 1 && strcmp(argv[1], "apart") == 0;
  argc -= apart, argv += apart;
  if (!apart) {
    const char *unbound = bind_to_a_core(me);
    if (unbound) { fprintf(stderr, "mpi_bench: %s\n", unbound); MPI_Abort(MPI_COMM_WORLD, 2); }
  }
  const coll_t *c = NULL;
  for (unsigned i = 0; argc > 1 && i < sizeof COLLS / sizeof *COLLS; i++) if (is(&COLLS[i], argv[1])) c = &COLLS[i];
  if (!c || argc < 3 || ranks > MOST_RANKS) {
    if (me == 0) fprintf(stderr, "usage: mpi_bench [apart] COLLECTIVE BYTES...   (at most %d ranks)\n", MOST_RANKS);
    MPI_Finalize();
    return 2;
  }
  long most = 0;
  for (int i = 2; i < argc; i++) if (atol(argv[i]) > most) most = atol(argv[i]);
  in = aligned_alloc(4096, (most + 8191) / 4096 * 4096);
  out = aligned_alloc(4096, (most + 8191) / 4096 * 4096);
  if (!in || !out) { fprintf(stderr, "mpi_bench: no memory for %ld bytes\n", most); MPI_Abort(MPI_COMM_WORLD, 2); }
  int bad = 0;
  for (int i = 2; i < argc; i++) bad |= measure(c, atol(argv[i]));
  MPI_Finalize();
  return bad;
}
