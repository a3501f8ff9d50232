// The practical floor: collectives by the most direct loops over buffers that all ranks share, with no library around them. Timed
// as `mpi_bench` and `oxccl perf` are, so that all can be set side by side. What it leaves out: checks of the arguments and of what
// the peers call, waits that end, any memory that is not shared, any number of calls under way.
//
//   floor RANKS COLLECTIVE BYTES...    one JSON object per size
//   floor 2 ping 8                     a line to the other rank and back
//   floor 2 pace 8                     sums of words in registers, by all ranks at the same time
//
// Inputs of up to 48 bytes travel in the line that says that they are there, such of up to 4 KiB in a slot beside it. Else all say
// that they have come, take what they need from the others' buffers, or put it there, and say that they are done; who is read or
// written waits for that. Stores are plain ones, of any length.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define MOST_RANKS 64
#define LINES 8
#define INLINE 48
#define SLOT 4096

typedef struct { _Alignas(64) atomic_long value; } flag_t;
typedef struct { _Alignas(64) atomic_long seq; char body[INLINE]; } line_t;

static struct shared {
  flag_t come[MOST_RANKS], done[MOST_RANKS], barrier[MOST_RANKS];
  line_t lines[MOST_RANKS][LINES];
  _Alignas(64) char slots[MOST_RANKS][LINES][SLOT];
  double begins[MOST_RANKS], ends[MOST_RANKS];
  long calls, repetitions;
  int wrong[MOST_RANKS];
} *shared;

static int me, ranks;
static float *in[MOST_RANKS], *out[MOST_RANKS];
static long seq, passed;

static void await(atomic_long *value, long at_least) {
  while (atomic_load_explicit(value, memory_order_acquire) < at_least) __builtin_ia32_pause();
}
static void tell(flag_t *flag, long value) { atomic_store_explicit(&flag->value, value, memory_order_release); }
static void await_all(flag_t *flags, long value) { for (int r = 0; r < ranks; r++) if (r != me) await(&flags[r].value, value); }
static void barrier(void) { tell(&shared->barrier[me], ++passed); await_all(shared->barrier, passed); }

static const coll_t COLLS[] = {
    {"allreduce", 1, 1, -1}, {"allgather", 1, 0, 0}, {"reduce_scatter", 0, 1, 0}, {"broadcast", 1, 1, 1}, {"reduce", 1, 1, 1},
    {"alltoall", 0, 0, 0},   {"gather", 1, 0, 0},    {"scatter", 0, 1, 0},        {"sendrecv", 1, 1, 1},  {"ping", 1, 1, 1},
    {"pace", 1, 1, 1},
};
// Their places in it: names are not compared where calls are timed.
enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALLTOALL, GATHER, SCATTER, SENDRECV, PING, PACE };
_Static_assert(sizeof COLLS / sizeof *COLLS == PACE + 1, "each has its place");
static int kind;

// The same of two ranks, to both at once.
static void sum_twice(float *restrict a_to, float *restrict b_to, long from, long to) {
  const float *restrict a = in[0], *restrict b = in[1];
  for (long i = from; i < to; i++) a_to[i] = b_to[i] = a[i] + b[i];
}

// Elements `from` to `to` of the sum of blocks that begin at `at` of the sources.
static void sum(float *restrict to_here, float *const *sources, long at, long from, long to) {
  const float *restrict a = sources[0] + at, *restrict b = sources[1] + at;
  for (long i = from; i < to; i++) to_here[i] = a[i] + b[i];
  for (int r = 2; r < ranks; r++) {
    const float *restrict more = sources[r] + at;
    for (long i = from; i < to; i++) to_here[i] += more[i];
  }
}

static void in_lines(const coll_t *c, long n) {
  long bytes = n * 4 * (c->in_blocks ? 1 : ranks);
  int rooted = kind == BROADCAST || kind == SCATTER, gives = !rooted || me == 0;
  // Who has begun the call before the last that used this line has ended that.
  if (rooted || kind == REDUCE || kind == GATHER || kind == SENDRECV)
    for (int r = 0; r < ranks; r++) await(&shared->come[r].value, seq - LINES + 1);
  tell(&shared->come[me], seq);
  line_t *own = &shared->lines[me][seq % LINES];
  if (gives) memcpy(bytes <= INLINE ? own->body : shared->slots[me][seq % LINES], in[me], bytes);
  atomic_store_explicit(&own->seq, seq, memory_order_release);
  if ((kind == REDUCE || kind == GATHER) && me != 0) return;
  float *from[MOST_RANKS];
  for (int r = 0; r < ranks; r++) {
    line_t *line = &shared->lines[r][seq % LINES];
    int needed = rooted ? r == 0 : kind == SENDRECV ? r == (me + ranks - 1) % ranks : 1;
    if (r != me && needed) await(&line->seq, seq);
    from[r] = (float *)(bytes <= INLINE ? line->body : shared->slots[r][seq % LINES]);
  }
  if (kind == ALLREDUCE || kind == REDUCE) sum(out[me], from, 0, 0, n);
  else if (kind == REDUCE_SCATTER) sum(out[me], from, me * n, 0, n);
  else if (kind == BROADCAST) { if (me != 0) memcpy(out[me], from[0], n * 4); }
  else if (kind == SCATTER) memcpy(out[me], from[0] + me * n, n * 4);
  else if (kind == SENDRECV) memcpy(out[me], from[(me + ranks - 1) % ranks], n * 4);
  else for (int r = 0; r < ranks; r++) memcpy(out[me] + r * n, from[r] + (kind == ALLTOALL ? me * n : 0), n * 4);
}

// As many instructions at a time as a core can carry out that it shares with nobody.
static void keep_pace(void) {
  long a = 1, b = 2, d = 3, e = 4, f = 5, g = 6;
  for (int i = 0; i < 1000; i++)
    __asm__ volatile("add $1, %0; add $1, %1; add $1, %2; add $1, %3; add $1, %4; add $1, %5"
                     : "+r"(a), "+r"(b), "+r"(d), "+r"(e), "+r"(f), "+r"(g));
}

static void call(const coll_t *c, long n) {
  seq++;
  if (kind == PACE) { keep_pace(); return; }
  if (kind == PING) {
    // One says it, the other answers.
    if (me == 0) { tell(&shared->come[0], seq); await(&shared->come[1].value, seq); }
    else { await(&shared->come[0].value, seq); tell(&shared->come[1], seq); }
    return;
  }
  if (n * 4 * (c->in_blocks ? 1 : ranks) <= SLOT) { in_lines(c, n); return; }
  tell(&shared->come[me], seq);
  int leaf = me != 0, next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
  if (kind == BROADCAST || kind == SCATTER || kind == GATHER) {
    await(&shared->come[0].value, seq);
    if (kind == GATHER) memcpy(out[0] + me * n, in[me], n * 4);
    else if (kind == SCATTER) memcpy(out[me], in[0] + me * n, n * 4);
    else if (leaf) memcpy(out[me], in[0], n * 4);
    tell(&shared->done[me], seq);
    if (!leaf) await_all(shared->done, seq);
    return;
  }
  if (kind == SENDRECV) {
    await(&shared->come[before].value, seq);
    memcpy(out[me], in[before], n * 4);
    tell(&shared->done[me], seq);
    await(&shared->done[next].value, seq);
    return;
  }
  await_all(shared->come, seq);
  long from = n * me / ranks / 16 * 16, to = me + 1 == ranks ? n : n * (me + 1) / ranks / 16 * 16;
  if (kind == ALLREDUCE && ranks == 2) sum_twice(out[0], out[1], from, to);
  else if (kind == ALLREDUCE) {
    sum(out[me], in, 0, from, to);
    for (int r = 0; r < ranks; r++) if (r != me) memcpy(out[r] + from, out[me] + from, (to - from) * 4);
  } else if (kind == REDUCE) sum(out[0], in, 0, from, to);
  else if (kind == REDUCE_SCATTER) sum(out[me], in, me * n, 0, n);
  else for (int r = 0; r < ranks; r++) memcpy(out[me] + r * n, in[r] + (kind == ALLTOALL ? me * n : 0), n * 4);
  tell(&shared->done[me], seq);
  await_all(shared->done, seq);
}

static int wrong(const coll_t *c, long n) {
  if (kind >= PING || (me != 0 && (is(c, "reduce") || is(c, "gather"))) || (me == 0 && is(c, "broadcast"))) return 0;
  for (long b = 0; b < (c->out_blocks ? 1 : ranks); b++)
    for (long i = 0; i < n; i++) {
      if (out[me][b * n + i] != expected(c, me, ranks, b, i)) return 1;
    }
  return 0;
}

static double repetition(const coll_t *c, long n, long k) {
  barrier();
  shared->begins[me] = now_us();
  for (long i = 0; i < k; i++) call(c, n);
  shared->ends[me] = now_us();
  barrier();
  double first = shared->begins[0], last = shared->ends[0];
  for (int r = 1; r < ranks; r++) {
    if (shared->begins[r] < first) first = shared->begins[r];
    if (shared->ends[r] > last) last = shared->ends[r];
  }
  return (last - first) / k;
}

static int measure(const coll_t *c, long bytes) {
  long blocks = (c->in_blocks && c->out_blocks) ? 1 : ranks, n = bytes / 4 / blocks;
  if (n < 1) return 0;
  for (long b = 0; b < (c->in_blocks ? 1 : ranks); b++) for (long i = 0; i < n; i++) in[me][b * n + i] = input(me, b, i);
  memset(out[me], 0x7f, n * 4 * (c->out_blocks ? 1 : ranks));
  barrier();
  call(c, n);
  barrier();
  shared->wrong[me] = wrong(c, n);
  double t = repetition(c, n, 1), times[MOST_REPETITIONS];
  long k = 1;
  for (int i = 0; i < 6; i++) {
    if (me == 0) { shared->calls = t * k < 3000 / 8 ? k * 8 : (long)(3000 / t) + 1; if (shared->calls > 100000) shared->calls = 100000; }
    barrier();
    k = shared->calls;
    t = repetition(c, n, k);
  }
  if (me == 0) {
    // Both only tell of what kind the machine is now.
    long most = (long)((kind >= PING ? 20000 : 300000) / (t * k)) + 5;
    shared->repetitions = most > MOST_REPETITIONS ? MOST_REPETITIONS : most;
  }
  barrier();
  int repetitions = (int)shared->repetitions;
  for (int r = 0; r < repetitions; r++) times[r] = repetition(c, n, k);
  shared->wrong[me] |= wrong(c, n);
  barrier();
  int bad = 0;
  for (int r = 0; r < ranks; r++) bad |= shared->wrong[r];
  if (me == 0) {
    qsort(times, repetitions, sizeof *times, ascending);
    printf("{\"coll\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"time_us_median\":%.4f,\"time_us_min\":%.4f,\"ok\":%d}\n", c->name, ranks,
           bytes, times[repetitions / 2], times[0], !bad);
    fflush(stdout);
  }
  barrier();
  return bad;
}

static void *map(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) { perror("floor: mmap"); exit(2); }
  // Where the system gives large pages for shared memory: before it is touched.
  madvise(at, bytes, MADV_HUGEPAGE);
  memset(at, 0, bytes);
  return at;
}

static int run(const coll_t *c, int sizes, char **size) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) { perror("floor: sched_getaffinity"); return 2; }
  // The processor of this rank: the first that is allowed is that of rank 0.
  for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; cpu++) if (CPU_ISSET(cpu, &allowed) && at++ == me) CPU_SET(cpu, &own);
  if (sched_setaffinity(0, sizeof own, &own)) { perror("floor: sched_setaffinity"); return 2; }
  int bad = 0;
  for (int i = 0; i < sizes; i++) bad |= measure(c, atol(size[i]));
  return bad;
}

int main(int argc, char **argv) {
  ranks = argc > 3 ? atoi(argv[1]) : 0;
  const coll_t *c = NULL;
  for (kind = 0; argc > 3 && kind <= PACE; kind++) if (is(&COLLS[kind], argv[2])) { c = &COLLS[kind]; break; }
  // Ranks spin: more of them than processors would measure the scheduler.
  cpu_set_t allowed;
  int processors = sched_getaffinity(0, sizeof allowed, &allowed) ? 0 : CPU_COUNT(&allowed);
  if (!c || ranks < 2 || ranks > MOST_RANKS || ranks > processors) {
    fprintf(stderr, "usage: floor RANKS COLLECTIVE BYTES...   (2 ranks to as many as there are processors)\n");
    return 2;
  }
  size_t most = 4096;
  for (int i = 3; i < argc; i++) if ((size_t)atol(argv[i]) > most) most = atol(argv[i]);
  shared = map(sizeof *shared);
  for (int r = 0; r < ranks; r++) { in[r] = map(most); out[r] = map(most); }
  pid_t children[MOST_RANKS], parent = getpid();
  for (me = 1; me < ranks; me++) {
    children[me] = fork();
    if (children[me] < 0) { perror("floor: fork"); return 2; }
    if (children[me] == 0) {
      // A rank that lost the first one would spin for ever.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) return 2;
      return run(c, argc - 3, argv + 3);
    }
  }
  me = 0;
  int bad = run(c, argc - 3, argv + 3), status;
  for (int r = 1; r < ranks; r++) { waitpid(children[r], &status, 0); bad |= status != 0; }
  return bad;
}
