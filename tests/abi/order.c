/* Calls on several communicators, in other orders on other ranks; and the order of launches where it is asked for.
 * Arguments: "threads" or "processes" (what ranks are), and what to do. */
#include "abi_test.h"
#include <pthread.h>
#include <sys/wait.h>

#define RANKS 2
#define COMMS 8
#define ROUNDS 6
static ncclUniqueId ids[COMMS];
static const char* what;

typedef struct {
  int rank;
  ncclComm_t comms[COMMS];
  oxcclStream_t streams[COMMS];
  float *in[COMMS], *out[COMMS];
} rank_t;

/* Rank 0 takes them upwards, rank 1 downwards. */
static int turn(const rank_t* r, int i) { return r->rank == 0 ? i : COMMS - 1 - i; }

static size_t count_of(int round) { return round % 2 ? 300000 : 16; }

static void fill(rank_t* r, size_t count) {
  for (int c = 0; c < COMMS; c++) {
    for (size_t i = 0; i < count; i++) r->in[c][i] = (float)(r->rank + c), r->out[c][i] = -1;
  }
}

static void expect(const rank_t* r, size_t count, int sum) {
  for (int c = 0; c < COMMS; c++) {
    float wanted = sum ? (float)(2 * c + 1) : (float)(1 - r->rank + c);
    for (size_t i = 0; i < count; i += count / 16) CHECK(r->out[c][i] == wanted);
  }
}

static void call(rank_t* r, int c, size_t count, int stream) {
  OK(ncclAllReduce(r->in[c], r->out[c], count, ncclFloat, ncclSum, r->comms[c], r->streams[stream]));
}

static void exchange(rank_t* r, int c, size_t count, int send, int receive) {
  OK(ncclSend(r->in[c], count, ncclFloat, 1 - r->rank, r->comms[c], r->streams[send]));
  OK(ncclRecv(r->out[c], count, ncclFloat, 1 - r->rank, r->comms[c], r->streams[receive]));
}

/* Streams of their own: the communicators go on independently of each other, in whichever order they are waited for. */
static void streams(rank_t* r) {
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = count_of(round);
    fill(r, count);
    for (int i = 0; i < COMMS; i++) call(r, turn(r, i), count, turn(r, i));
    for (int i = 0; i < COMMS; i++) OK(oxcclStreamSynchronize(r->streams[round % 3 ? turn(r, i) : i]));
    expect(r, count, 1);
  }
}

/* One group on one stream. */
static void groups(rank_t* r) {
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = count_of(round);
    fill(r, count);
    OK(ncclGroupStart());
    for (int i = 0; i < COMMS; i++) call(r, turn(r, i), count, 0);
    OK(ncclGroupEnd());
    OK(oxcclStreamSynchronize(r->streams[0]));
    expect(r, count, 1);
  }
}

/* One group in which the exchanges of different communicators share their streams crosswise. */
static void exchanges(rank_t* r) {
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = count_of(round);
    fill(r, count);
    OK(ncclGroupStart());
    for (int i = 0; i < COMMS; i++) {
      int c = turn(r, i);
      exchange(r, c, count, (c + i) % COMMS, (c + i + 1 + round) % COMMS);
    }
    OK(ncclGroupEnd());
    for (int i = 0; i < COMMS; i++) OK(oxcclStreamSynchronize(r->streams[turn(r, i)]));
    expect(r, count, 0);
  }
}

/* The work is what takes time: whoever does not wait for it is found out. */
static void slow(void* done) {
  usleep(30000);
  *(volatile int*)done = 1;
}

/* Each call reads what the one before wrote, on another communicator and another stream. */
static void chain(rank_t* r) {
  size_t count = 50000;
  for (int round = 0; round < 3; round++) {
    volatile int done = 0;
    fill(r, count);
    OK(oxcclLaunchHostFunc(r->streams[0], slow, (void*)&done));
    call(r, 0, count, 0);
    for (int c = 1; c < COMMS; c++) {
      OK(ncclAllReduce(r->out[c - 1], r->out[c], count, ncclFloat, ncclSum, r->comms[c], r->streams[c]));
    }
    OK(oxcclStreamSynchronize(r->streams[COMMS - 1]));
    CHECK(done);
    for (int c = 0; c < COMMS; c++) CHECK(r->out[c][0] == (float)(1 << c) && r->out[c][count - 1] == (float)(1 << c));
    /* A group is one launch; what follows it comes after all of it. */
    fill(r, count);
    done = 0;
    OK(oxcclLaunchHostFunc(r->streams[0], slow, (void*)&done));
    OK(ncclGroupStart());
    for (int i = 0; i < COMMS - 1; i++) call(r, i, count, i);
    OK(ncclGroupEnd());
    exchange(r, COMMS - 1, 0, COMMS - 1, COMMS - 1);
    OK(oxcclStreamSynchronize(r->streams[COMMS - 1]));
    CHECK(done && r->out[0][count - 1] == 1);
    for (int c = 0; c < COMMS; c++) OK(oxcclStreamSynchronize(r->streams[c]));
  }
}

/* Without the order a stream does not wait for another. */
static void no_chain(rank_t* r) {
  volatile int done = 0;
  fill(r, 16);
  if (r->rank == 0) OK(oxcclLaunchHostFunc(r->streams[0], slow, (void*)&done));
  call(r, 0, 16, 0);
  call(r, 1, 16, 1);
  OK(oxcclStreamSynchronize(r->streams[1]));
  CHECK(r->out[1][0] == 3);
  OK(oxcclStreamSynchronize(r->streams[0]));
  CHECK(r->out[0][0] == 1 && (r->rank != 0 || done));
}

static void* run(void* number) {
  rank_t r;
  r.rank = (int)(intptr_t)number;
  OK(oxcclSetDevice(r.rank));
  for (int c = 0; c < COMMS; c++) {
    OK(ncclCommInitRank(&r.comms[c], RANKS, ids[c], r.rank));
    OK(oxcclStreamCreate(&r.streams[c]));
    r.in[c] = (float*)allocate(300000 * sizeof(float));
    r.out[c] = (float*)allocate(300000 * sizeof(float));
  }
  if (strcmp(what, "chain") == 0) {
    chain(&r);
  } else {
    streams(&r);
    groups(&r);
    exchanges(&r);
    no_chain(&r);
  }
  for (int c = 0; c < COMMS; c++) {
    OK(oxcclStreamDestroy(r.streams[c]));
    OK(ncclCommDestroy(r.comms[c]));
    OK(ncclMemFree(r.in[c]));
    OK(ncclMemFree(r.out[c]));
  }
  return NULL;
}

int main(int argc, char** argv) {
  CHECK(argc == 3);
  what = argv[2];
  bound_time();
  if (strcmp(argv[1], "threads") == 0) {
    pthread_t other;
    for (int c = 0; c < COMMS; c++) OK(ncclGetUniqueId(&ids[c]));
    CHECK(pthread_create(&other, NULL, run, (void*)(intptr_t)1) == 0);
    run(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    return 0;
  }
  /* The process that makes the ids must not fork afterwards: they come through a pipe. */
  int ends[2], status = 0;
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bound_time();
    CHECK(read(ends[0], ids, sizeof ids) == (ssize_t)sizeof ids);
    run((void*)(intptr_t)1);
    return 0;
  }
  for (int c = 0; c < COMMS; c++) OK(ncclGetUniqueId(&ids[c]));
  CHECK(write(ends[1], ids, sizeof ids) == (ssize_t)sizeof ids);
  run(NULL);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}
