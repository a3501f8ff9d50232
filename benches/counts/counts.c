/*
 * Small collectives whose instructions `cargo xtask counts` counts under callgrind.
 *
 * One thread drives both ranks of a communicator, so nobody ever waits and every run executes the same instructions:
 * the first rank calls (its `first` phase: it announces the call and queues the rest), then the other rank calls and
 * synchronises (`late`: all it needs is there), then the first synchronises (`finish`). In `first` the rank looks for its
 * peer a fixed number of times, in vain, before it gives up: as briefly as where a program works between its calls, since under
 * callgrind all that lies between them takes as long. That is counted too. Each phase is a function of its
 * own, `count_CALL_PHASE`; callgrind tells what each cost with all that it calls. `warm_CALL_PHASE` are the same for the
 * rounds before, in which memory is mapped and plans are made.
 *
 *   counts ROUNDS
 */
#include <nccl.h>
#include <oxccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2
#define WARM 64
#define GROUPED 8

static ncclComm_t comm[RANKS], alone;
static oxcclStream_t stream[RANKS];
static long* in[RANKS];
static long* out[RANKS];

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}
#define CHECK(call) check(call, #call)
#define SYNC(rank) CHECK(oxcclStreamSynchronize(stream[rank]))

/* What a rank calls; the comment in the assembly keeps compilers from merging functions with the same body. */
#define PHASE(name, body)                                                    \
  static __attribute__((noinline)) void count_##name(void) {                 \
    __asm__ volatile("# count " #name);                                      \
    body;                                                                    \
  }                                                                          \
  static __attribute__((noinline)) void warm_##name(void) {                  \
    __asm__ volatile("# warm " #name);                                       \
    body;                                                                    \
  }

/* Rank `a` calls before rank `b`. */
#define PAIR(name, a, b, call_a, call_b) \
  PHASE(name##_first, call_a)            \
  PHASE(name##_late, call_b; SYNC(b))    \
  PHASE(name##_finish, SYNC(a))

#define REDUCE(r) CHECK(ncclAllReduce(in[r], out[r], 1, ncclInt64, ncclSum, comm[r], stream[r]))
#define GATHER(r) CHECK(ncclAllGather(in[r], out[r], 1, ncclInt64, comm[r], stream[r]))
#define BROADCAST(r) CHECK(ncclBroadcast(in[r], out[r], 1, ncclInt64, 0, comm[r], stream[r]))
#define SEND(r) CHECK(ncclSend(in[r], 1, ncclInt64, 1 - (r), comm[r], stream[r]))
#define RECV(r) CHECK(ncclRecv(out[r], 1, ncclInt64, 1 - (r), comm[r], stream[r]))
#define ALONE CHECK(ncclAllReduce(in[0], out[0], 1, ncclInt64, ncclSum, alone, stream[0]))
#define GROUP(calls)         \
  do {                       \
    CHECK(ncclGroupStart()); \
    calls;                   \
    CHECK(ncclGroupEnd());   \
  } while (0)

#define MANY(call) for (int i = 0; i < GROUPED; i++) call

PAIR(allreduce, 0, 1, REDUCE(0), REDUCE(1))
PAIR(allgather, 0, 1, GATHER(0), GATHER(1))
PAIR(allreduce_grouped, 0, 1, GROUP(MANY(REDUCE(0))), GROUP(MANY(REDUCE(1))))
PAIR(broadcast, 0, 1, BROADCAST(0), BROADCAST(1))
PAIR(broadcast_late_root, 1, 0, BROADCAST(1), BROADCAST(0))
PAIR(sendrecv, 0, 1, GROUP(SEND(0); RECV(0)), GROUP(SEND(1); RECV(1)))
PAIR(send, 0, 1, SEND(0), RECV(1))
PHASE(both_ranks_grouped, GROUP(REDUCE(0); REDUCE(1)); SYNC(0); SYNC(1))
PHASE(one_rank_allreduce, ALONE; SYNC(0))
PHASE(one_rank_grouped, GROUP(MANY(ALONE)); SYNC(0))
PHASE(idle_synchronize, SYNC(0))

static void verify(const char* what, int rank, long expected) {
  if (out[rank][0] == expected) return;
  fprintf(stderr, "%s: rank %d has %ld instead of %ld\n", what, rank, out[rank][0], expected);
  exit(1);
}

/* Runs phases; the results differ from round to round. */
#define ROUNDS(prefix, name, rounds, phases, expected0, expected1)           \
  for (int i = 0; i < (rounds); i++) {                                       \
    in[0][0] = i + 1;                                                        \
    in[1][0] = 10 * i + 2;                                                   \
    phases;                                                                  \
    verify(name, 0, expected0);                                              \
    verify(name, 1, expected1);                                              \
  }
#define MEASURE(name, expected0, expected1)                                                                          \
  do {                                                                                                               \
    ROUNDS(warm, #name, WARM, warm_##name##_first(); warm_##name##_late(); warm_##name##_finish(), expected0, expected1) \
    ROUNDS(count, #name, rounds, count_##name##_first(); count_##name##_late(); count_##name##_finish(), expected0,  \
           expected1)                                                                                                \
  } while (0)
#define MEASURE_ONE(name, expected0, expected1)                                         \
  do {                                                                                  \
    ROUNDS(warm, #name, WARM, warm_##name(), expected0, expected1)                      \
    ROUNDS(count, #name, rounds, count_##name(), expected0, expected1)                  \
  } while (0)

int main(int argc, char** argv) {
  int rounds = argc == 2 ? atoi(argv[1]) : 0;
  if (rounds < 1) return fprintf(stderr, "usage: counts ROUNDS\n"), 2;
  CHECK(ncclCommInitAll(comm, RANKS, NULL));
  for (int r = 0; r < RANKS; r++) {
    CHECK(oxcclSetDevice(r));
    CHECK(oxcclStreamCreate(&stream[r]));
    CHECK(ncclMemAlloc((void**)&in[r], 4096));
    CHECK(ncclMemAlloc((void**)&out[r], 4096));
    memset(out[r], 0, 4096);
  }
  CHECK(oxcclSetDevice(0));
  CHECK(ncclCommInitAll(&alone, 1, NULL));

  MEASURE(allreduce, in[0][0] + in[1][0], in[0][0] + in[1][0]);
  MEASURE(allreduce_grouped, in[0][0] + in[1][0], in[0][0] + in[1][0]);
  MEASURE(allgather, in[0][0], in[0][0]);
  MEASURE(broadcast, in[0][0], in[0][0]);
  MEASURE(broadcast_late_root, in[0][0], in[0][0]);
  MEASURE(sendrecv, in[1][0], in[0][0]);
  MEASURE(send, out[0][0], in[0][0]);
  MEASURE_ONE(both_ranks_grouped, in[0][0] + in[1][0], in[0][0] + in[1][0]);
  MEASURE_ONE(one_rank_allreduce, in[0][0], out[1][0]);
  MEASURE_ONE(one_rank_grouped, in[0][0], out[1][0]);
  MEASURE_ONE(idle_synchronize, out[0][0], out[1][0]);

  CHECK(ncclCommDestroy(alone));
  for (int r = 0; r < RANKS; r++) {
    CHECK(oxcclStreamDestroy(stream[r]));
    CHECK(ncclMemFree(in[r]));
    CHECK(ncclMemFree(out[r]));
  }
  for (int r = 0; r < RANKS; r++) CHECK(ncclCommDestroy(comm[r]));
  return 0;
}
