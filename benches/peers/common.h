// What the benchmarks share: the clock, the collectives, and inputs whose results are known.
#pragma once
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_REPETITIONS 400

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

// Binds the calling process to one of its cores, the ranks to one after the other. Null, or why it cannot be.
static inline const char *bind_to_a_core(int rank) {
  cpu_set_t all[16], one[16];  // Of 16,384 processors.
  memset(all, 0, sizeof all);
  if (sched_getaffinity(0, sizeof all, all)) return "its cores cannot be told";
  int at = rank % CPU_COUNT_S(sizeof all, all), core = 0;
  while (!CPU_ISSET_S(core, sizeof all, all) || at-- > 0) core++;
  CPU_ZERO_S(sizeof one, one);
  CPU_SET_S(core, sizeof one, one);
  return sched_setaffinity(0, sizeof one, one) ? "cannot be bound to a core" : NULL;
}

typedef struct {
  const char *name;
  int in_blocks, out_blocks;  // blocks of `count` elements; 0 stands for the number of ranks
  double bus;                 // busbw / algbw; 0 stands for (n-1)/n, -1 for 2(n-1)/n
} coll_t;

static int is(const coll_t *c, const char *name) { return strcmp(c->name, name) == 0; }

// Element i of block b of rank r's input: a small integer, so every order of adding gives the same bits.
static float input(int r, long b, long i) { return (float)((r * 7 + b * 3 + i) % 64); }

// Element i of block b of what rank `me` of `ranks` gets, where blocks are of one length.
static float expected(const coll_t *c, int me, int ranks, long b, long i) {
  float sum = 0;
  if (is(c, "allreduce") || is(c, "reduce")) for (int r = 0; r < ranks; r++) sum += input(r, 0, i);
  else if (is(c, "reduce_scatter")) for (int r = 0; r < ranks; r++) sum += input(r, me, i);
  else if (is(c, "allgather") || is(c, "gather")) return input((int)b, 0, i);
  else if (is(c, "alltoall")) return input((int)b, me, i);
  else if (is(c, "scatter")) return input(0, me, i);
  else if (is(c, "broadcast")) return input(0, 0, i);
  else return input((me + ranks - 1) % ranks, 0, i);
  return sum;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
