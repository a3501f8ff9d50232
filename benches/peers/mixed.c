// Times a sequence of collectives of many lengths, buffers and roots, as programs make them: the same one of an MPI library and of ours.
//
//   mpicc -O2 -DWITH_MPI mixed.c -lm -o mixed-mpi;  mpirun -np 4 mixed-mpi 4 64 131072 malloc all
//   cc -O2 mixed.c -I../../crates/capi/include -L../../target/release -lnccl -lm -o mixed;  mixed 4 64 131072 device all
//
//   mixed RANKS LEAST_BYTES MOST_BYTES device|malloc all|experts|steps|waits [NAMESPACE NAMESPACE]
//
// 48 calls, each with buffers of its own, `all` of the nine collectives that both have, or all-to-alls as layers of `experts` make them: a group
// of Send and Recv, a message of each rank to each, itself included, each of a length of its own, some of none (MPI_Alltoallv for MPI).
// In `steps` and `waits` each rank works before each of the calls `all`, as programs do that compute: 10 us and 1 us for each 2000
// bytes of the call, half as long to half as long again, drawn for each rank by itself. In `steps` the calls go on meanwhile
// (MPI_Iallreduce and the like for MPI), in `waits` each is waited for.
// Lengths are drawn evenly by their logarithm, roots evenly, both from a fixed seed. Repetitions of k sequences (about 12 ms), each of
// ours with one wait at its end, as a program has that waits for a step; time per sequence of rank 0, the median and the least of the
// repetitions. f32, sum, out of place but broadcasts; results are checked before, and after with other inputs. One JSON object on
// rank 0. Each rank is bound to a core; ours starts its ranks itself, half of them in each of two network namespaces if there are such.
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_MPI
#include <mpi.h>
#else
#include "nccl.h"
#include "oxccl.h"
#endif

#include "common.h"

#define CALLS 48
#define REPETITIONS 41
#define SEED 20026

enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALLTOALL, GATHER, SCATTER, SENDRECV, KINDS, EXPERTS = KINDS };

typedef struct {
  int kind, root, number;
  long n;  // elements of a block
  float *in, *out;
} call_t;

static int me, ranks, shift, works, waits;
static call_t calls[CALLS];

// Elements that `from` sends to `to` in a call of experts: none, or up to those of a block.
static int part(const call_t *c, int from, int to) {
  unsigned h = c->number * 2654435761u ^ from * 40503u ^ to * 69811u;
  h = (h ^ h >> 13) * 0x5bd1e995u;
  h ^= h >> 15;
  return h % 7 == 0 ? 0 : 1 + (int)((c->n - 1) * (h % 1000) / 1000);
}

static double drawn(void) {
  static unsigned long long state = SEED;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (state >> 11) / 9007199254740992.0;
}

static void fail(const char *what) {
  fprintf(stderr, "mixed: rank %d: %s\n", me, what);
  exit(1);
}

static void bind(void) {
  const char *unbound = bind_to_a_core(me);
  if (unbound) fail(unbound);
}

// Turns of a loop that take a microsecond of a core.
static double turns_per_us;
static volatile float worked;

// Each turn needs the one before, so that it takes as long in whatever program it is.
static void work(long turns) {
  float x = worked;
  for (long t = 0; t < turns; t++) x = x * 0.999f + 0.001f;
  worked = x;
}

static void measure_work(void) {
  double least = 1e9;
  for (int i = 0; i < 50; i++) {
    double from = now_us();
    work(20000);
    double took = now_us() - from;
    if (took < least) least = took;
  }
  turns_per_us = 20000 / least;
}

// What a rank does before a call of so many bytes.
static void work_before(long bytes) {
  static unsigned state;
  state = (state + me + 1) * 1664525u + 1013904223u;
  work((long)((10 + bytes / 2000.0) * (0.5 + (state >> 8) / 16777216.0) * turns_per_us));
}

#ifdef WITH_MPI
static MPI_Request requests[2 * CALLS];
static int under_way;

// As `begin`, of calls that go on while the rank works.
static void begin_aside(const call_t *c) {
  MPI_Comm w = MPI_COMM_WORLD;
  int n = (int)c->n, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  MPI_Request *r = &requests[under_way++];
  switch (c->kind) {
    case ALLREDUCE: MPI_Iallreduce(c->in, c->out, n, MPI_FLOAT, MPI_SUM, w, r); break;
    case ALLGATHER: MPI_Iallgather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, w, r); break;
    case REDUCE_SCATTER: MPI_Ireduce_scatter_block(c->in, c->out, n, MPI_FLOAT, MPI_SUM, w, r); break;
    case BROADCAST: MPI_Ibcast(c->out, n, MPI_FLOAT, c->root, w, r); break;
    case REDUCE: MPI_Ireduce(c->in, c->out, n, MPI_FLOAT, MPI_SUM, c->root, w, r); break;
    case ALLTOALL: MPI_Ialltoall(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, w, r); break;
    case GATHER: MPI_Igather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, c->root, w, r); break;
    case SCATTER: MPI_Iscatter(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, c->root, w, r); break;
    default:
      MPI_Irecv(c->out, n, MPI_FLOAT, left, 0, w, r);
      MPI_Isend(c->in, n, MPI_FLOAT, right, 0, w, &requests[under_way++]);
  }
}

static void begin(const call_t *c) {
  if (works && !waits) return begin_aside(c);
  MPI_Comm w = MPI_COMM_WORLD;
  int n = (int)c->n, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  switch (c->kind) {
    case ALLREDUCE: MPI_Allreduce(c->in, c->out, n, MPI_FLOAT, MPI_SUM, w); break;
    case ALLGATHER: MPI_Allgather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, w); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(c->in, c->out, n, MPI_FLOAT, MPI_SUM, w); break;
    case BROADCAST: MPI_Bcast(c->out, n, MPI_FLOAT, c->root, w); break;
    case REDUCE: MPI_Reduce(c->in, c->out, n, MPI_FLOAT, MPI_SUM, c->root, w); break;
    case ALLTOALL: MPI_Alltoall(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, w); break;
    case GATHER: MPI_Gather(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, c->root, w); break;
    case EXPERTS: {
      int sends[256], recvs[256], places[256];
      for (int p = 0; p < ranks; p++) sends[p] = part(c, me, p), recvs[p] = part(c, p, me), places[p] = p * n;
      MPI_Alltoallv(c->in, sends, places, MPI_FLOAT, c->out, recvs, places, MPI_FLOAT, w);
      break;
    }
    case SCATTER: MPI_Scatter(c->in, n, MPI_FLOAT, c->out, n, MPI_FLOAT, c->root, w); break;
    default: MPI_Sendrecv(c->in, n, MPI_FLOAT, right, 0, c->out, n, MPI_FLOAT, left, 0, w, MPI_STATUS_IGNORE);
  }
}

static void finish(void) {
  static MPI_Status statuses[2 * CALLS];
  if (under_way > 0) MPI_Waitall(under_way, requests, statuses);
  under_way = 0;
}

static float *memory(size_t bytes, int device) {
  (void)device;
  return aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

// What rank 0 says.
static long agreed(long value) {
  MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  return value;
}

static int any(int bad) {
  MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return bad;
}
#else
static ncclComm_t comm;
static cudaStream_t stream;

static void begin(const call_t *c) {
  ncclResult_t r = ncclSuccess;
  switch (c->kind) {
    case ALLREDUCE: r = ncclAllReduce(c->in, c->out, c->n, ncclFloat, ncclSum, comm, stream); break;
    case ALLGATHER: r = ncclAllGather(c->in, c->out, c->n, ncclFloat, comm, stream); break;
    case REDUCE_SCATTER: r = ncclReduceScatter(c->in, c->out, c->n, ncclFloat, ncclSum, comm, stream); break;
    case BROADCAST: r = ncclBroadcast(c->out, c->out, c->n, ncclFloat, c->root, comm, stream); break;
    case REDUCE: r = ncclReduce(c->in, c->out, c->n, ncclFloat, ncclSum, c->root, comm, stream); break;
    case ALLTOALL: r = ncclAlltoAll(c->in, c->out, c->n, ncclFloat, comm, stream); break;
    case GATHER: r = ncclGather(c->in, c->out, c->n, ncclFloat, c->root, comm, stream); break;
    case EXPERTS:
      ncclGroupStart();
      for (int p = 0; p < ranks; p++) {
        int sends = part(c, me, p), recvs = part(c, p, me);
        if (sends > 0) ncclSend(c->in + p * c->n, sends, ncclFloat, p, comm, stream);
        if (recvs > 0) ncclRecv(c->out + p * c->n, recvs, ncclFloat, p, comm, stream);
      }
      r = ncclGroupEnd();
      break;
    case SCATTER: r = ncclScatter(c->in, c->out, c->n, ncclFloat, c->root, comm, stream); break;
    default:
      ncclGroupStart();
      ncclSend(c->in, c->n, ncclFloat, (me + 1) % ranks, comm, stream);
      ncclRecv(c->out, c->n, ncclFloat, (me + ranks - 1) % ranks, comm, stream);
      r = ncclGroupEnd();
  }
  if (r != ncclSuccess) fail(ncclGetLastError(comm));
}

static void finish(void) {
  if (oxcclStreamSynchronize(stream) != ncclSuccess) fail(ncclGetLastError(comm));
}

static float *memory(size_t bytes, int device) {
  void *at = NULL;
  if (device) return ncclMemAlloc(&at, bytes) == ncclSuccess ? at : NULL;
  return aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

static long agreed(long value) {
  if (ncclBroadcast(&value, &value, sizeof value, ncclChar, 0, comm, stream) != ncclSuccess) fail(ncclGetLastError(comm));
  finish();
  return value;
}

static int any(int bad) {
  if (ncclAllReduce(&bad, &bad, 1, ncclInt, ncclMax, comm, stream) != ncclSuccess) fail(ncclGetLastError(comm));
  finish();
  return bad;
}

static void meet(void) { any(0); }

// The ranks but the first are started here, and end with it; what goes wrong in another ends all by the library's own errors.
static pid_t children[256];

// To that network namespace, which is to be a host of its own.
static void enter(const char *namespace) {
  char path[256];
  snprintf(path, sizeof path, "/var/run/netns/%s", namespace);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) || setenv("NCCL_HOSTID", namespace, 1)) fail("cannot enter its network namespace");
  close(file);
}

static void start(char **hosts) {
  if (hosts) enter(hosts[0]);
  ncclUniqueId *id = mmap(NULL, sizeof *id, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (id == MAP_FAILED || ncclGetUniqueId(id) != ncclSuccess) fail("no id");
  pid_t first = getpid();
  for (int r = 1; r < ranks && me == 0; r++) {
    pid_t child = fork();
    if (child < 0) fail("no process");
    if (child == 0) {
      me = r;
      if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != first) fail("the first rank is gone");
    } else {
      children[r] = child;
    }
  }
  if (hosts && me >= ranks / 2) enter(hosts[1]);
  bind();
  if (ncclCommInitRank(&comm, ranks, *id, me) != ncclSuccess) fail(ncclGetLastError(NULL));
  if (oxcclStreamCreate(&stream) != ncclSuccess) fail("no stream");
}

static int end(int bad) {
  ncclCommDestroy(comm);
  for (int r = 1; r < ranks && me == 0; r++) {
    int status = 1;
    waitpid(children[r], &status, 0);
    bad |= status != 0;
  }
  return bad;
}
#endif

// Element e of block b of the input of rank r.
static float given(int r, long b, long e) { return input(r, b, e) + shift; }

static int all_to_all(int kind) { return kind == ALLTOALL || kind == EXPERTS; }
static int in_blocks(int kind) { return kind == REDUCE_SCATTER || all_to_all(kind) || kind == SCATTER ? ranks : 1; }
static int out_blocks(int kind) { return kind == ALLGATHER || all_to_all(kind) || kind == GATHER ? ranks : 1; }
static int blocks(int kind) { return in_blocks(kind) > out_blocks(kind) ? in_blocks(kind) : out_blocks(kind); }

// Draws the calls, and lays out their buffers, between which some bytes are free.
static void draw(double least, double most, int device, int experts) {
  size_t total = 0;
  for (int i = 0; i < CALLS; i++) {
    call_t *c = &calls[i];
    c->kind = experts ? EXPERTS : (int)(drawn() * KINDS);
    c->number = i;
    c->root = (int)(drawn() * ranks);
    double bytes = exp(log(least) + drawn() * (log(most) - log(least)));
    c->n = (long)(bytes / 4 / blocks(c->kind));
    if (c->n < 1) c->n = 1;
    total += (in_blocks(c->kind) + out_blocks(c->kind)) * c->n * 4 + 1024;
  }
  char *at = (char *)memory(total, device);
  if (!at) fail("no memory");
  for (int i = 0; i < CALLS; i++) {
    call_t *c = &calls[i];
    c->in = (float *)at;
    at += (in_blocks(c->kind) * c->n * 4 + 511) / 256 * 256;
    c->out = (float *)at;
    at += (out_blocks(c->kind) * c->n * 4 + 511) / 256 * 256;
  }
}

// Other inputs than before, and outputs in which nothing is right.
static void fill(void) {
  shift++;
  for (int i = 0; i < CALLS; i++) {
    call_t *c = &calls[i];
    for (long b = 0; b < in_blocks(c->kind); b++) for (long e = 0; e < c->n; e++) c->in[b * c->n + e] = given(me, b, e);
    for (long e = 0; e < out_blocks(c->kind) * c->n; e++) c->out[e] = c->kind == BROADCAST && me == c->root ? given(me, 0, e) : -1;
  }
}

static float want(const call_t *c, long b, long e) {
  float sum = 0;
  switch (c->kind) {
    case ALLREDUCE: case REDUCE: for (int r = 0; r < ranks; r++) sum += given(r, 0, e); return sum;
    case REDUCE_SCATTER: for (int r = 0; r < ranks; r++) sum += given(r, me, e); return sum;
    case ALLGATHER: case GATHER: return given((int)b, 0, e);
    case ALLTOALL: case EXPERTS: return given((int)b, me, e);
    case BROADCAST: return given(c->root, 0, e);
    case SCATTER: return given(c->root, me, e);
    default: return given((me + ranks - 1) % ranks, 0, e);
  }
}

static int wrong(void) {
  for (int i = 0; i < CALLS; i++) {
    const call_t *c = &calls[i];
    if ((c->kind == REDUCE || c->kind == GATHER) && me != c->root) continue;
    for (long b = 0; b < out_blocks(c->kind); b++) {
      long came = c->kind == EXPERTS ? part(c, (int)b, me) : c->n;
      for (long e = 0; e < c->n; e++)
        if (c->out[b * c->n + e] != (e < came ? want(c, b, e) : -1)) return 1;
    }
  }
  return 0;
}

// Time per sequence, us.
static double repetition(long k) {
  meet();
  double from = now_us();
  for (long i = 0; i < k; i++) {
    for (int c = 0; c < CALLS; c++) {
      if (works) work_before(calls[c].n * 4 * blocks(calls[c].kind));
      begin(&calls[c]);
      if (waits) finish();
    }
    finish();
  }
  return (now_us() - from) / k;
}

int main(int argc, char **argv) {
  (void)expected;  // Of calls whose root is rank 0.
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  bind();
#endif
  ranks = argc == 6 || argc == 8 ? atoi(argv[1]) : 0;
  if (ranks < 2 || ranks > 256 || atof(argv[2]) < 4 || atof(argv[3]) < atof(argv[2])) {
    if (me == 0) fprintf(stderr, "usage: mixed RANKS LEAST_BYTES MOST_BYTES device|malloc all|experts|steps|waits [NAMESPACE NAMESPACE]\n");
    return 2;
  }
#ifndef WITH_MPI
  start(argc == 8 ? argv + 6 : NULL);
#endif
  int known = 0;
  for (int k = 0; k < 4; k++) known |= strcmp(argv[5], (const char *[]){"all", "experts", "steps", "waits"}[k]) == 0;
  if (!known) fail("no such calls");
  waits = strcmp(argv[5], "waits") == 0;
  works = waits || strcmp(argv[5], "steps") == 0;
  if (works) measure_work();
  draw(atof(argv[2]), atof(argv[3]), strcmp(argv[4], "device") == 0, strcmp(argv[5], "experts") == 0);
  fill();
  repetition(2);
  int bad = wrong();
  long k = agreed((long)(12000 / repetition(5)) + 1);
  double times[REPETITIONS];
  for (int r = 0; r < REPETITIONS; r++) times[r] = repetition(k);
  meet();
  fill();
  repetition(2);
  bad = any(bad | wrong());
  qsort(times, REPETITIONS, sizeof *times, ascending);
  if (me == 0) {
    printf("{\"coll\":\"mixed\",\"ranks\":%d,\"calls\":%d,\"time_us_median\":%.3f,\"time_us_min\":%.3f,\"ok\":%d,\"iters\":%ld}\n", ranks,
           CALLS, times[REPETITIONS / 2], times[0], !bad, k);
    fflush(stdout);
  }
#ifdef WITH_MPI
  MPI_Finalize();
  return bad;
#else
  return end(bad);
#endif
}
