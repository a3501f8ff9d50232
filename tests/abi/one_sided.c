/* One rank per process: puts, signals and waits, on several streams, in groups, with several descriptors, contexts and
 * signals. Run again with OXCCL_SHM=0, where no memory is shared. */
#include "abi_test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RANKS 3
#define COUNT 100000

typedef struct {
  ncclComm_t comm;
  oxcclStream_t stream;
  int rank, next, last;
  int32_t *from, *to; /* COUNT and RANKS * COUNT elements, each a window */
  ncclWindow_t from_window, to_window;
} rank_t;

static int32_t element(int rank, int round, size_t i) { return (int32_t)(i * 3 + (size_t)(1000 * rank + 77 * round)); }

static void fill(rank_t* me, int round) {
  for (size_t i = 0; i < COUNT; i++) me->from[i] = element(me->rank, round, i);
}

static void check_from(rank_t* me, int peer, int round, size_t count) {
  for (size_t i = 0; i < count; i++) CHECK(me->to[(size_t)peer * COUNT + i] == element(peer, round, i));
}

static void all_here(rank_t* me) {
  int32_t one = 1;
  OK(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, me->comm, me->stream));
  OK(oxcclStreamSynchronize(me->stream));
  CHECK(one == RANKS);
}

static size_t offset_of(int rank) { return (size_t)rank * COUNT * sizeof(int32_t); }

/* Everybody writes to the next rank and waits for the last one; stream order does the rest. */
static void ring(rank_t* me) {
  static const size_t counts[] = {1, 1000, COUNT, 0};
  for (int round = 0; round < 4; round++) {
    ncclWaitSignalDesc_t wait = {1, me->last, 0, 0};
    fill(me, round);
    OK(ncclPutSignal(me->from, counts[round], ncclInt32, me->next, me->to_window, offset_of(me->rank), 0, 0, 0, me->comm,
                     me->stream));
    OK(ncclWaitSignal(1, &wait, me->comm, me->stream));
    OK(oxcclStreamSynchronize(me->stream));
    check_from(me, me->last, round, counts[round]);
    all_here(me);
  }
}

/* Everybody writes to everybody, itself included, in one group with the wait for all. */
static void everybody(rank_t* me) {
  ncclWaitSignalDesc_t waits[RANKS];
  for (int round = 0; round < 3; round++) {
    fill(me, 10 + round);
    OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) waits[r] = (ncclWaitSignalDesc_t){2, r, 0, 0};
    /* The wait comes first: it must not hold up the puts of its group. */
    OK(ncclWaitSignal(RANKS, waits, me->comm, me->stream));
    for (int r = 0; r < RANKS; r++) {
      OK(ncclPutSignal(me->from, COUNT, ncclInt32, r, me->to_window, offset_of(me->rank), 0, 0, 0, me->comm, me->stream));
      OK(ncclSignal(r, 0, 0, 0, me->comm, me->stream));
    }
    OK(ncclGroupEnd());
    OK(oxcclStreamSynchronize(me->stream));
    for (int r = 0; r < RANKS; r++) check_from(me, r, 10 + round, COUNT);
    all_here(me);
  }
}

/* The wait on one stream, the put that answers it on another. */
static void two_streams(rank_t* me) {
  oxcclStream_t other;
  ncclWaitSignalDesc_t wait = {1, me->last, 0, 0};
  OK(oxcclStreamCreate(&other));
  OK(ncclWaitSignal(1, &wait, me->comm, me->stream));
  OK(ncclSignal(me->next, 0, 0, 0, me->comm, other));
  OK(oxcclStreamSynchronize(other));
  OK(oxcclStreamSynchronize(me->stream));
  OK(oxcclStreamDestroy(other));
}

static void arguments(rank_t* me, int contexts) {
  ncclWaitSignalDesc_t wait = {0, 0, 0, 0};
  ncclWindow_t win = me->to_window;
  int32_t elsewhere[4] = {0};
#define BAD(call) CHECK((call) == ncclInvalidArgument)
  BAD(ncclPutSignal(me->from, 1, ncclInt32, RANKS, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, -1, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, (ncclDataType_t)99, 0, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(NULL, 1, ncclInt32, 0, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(elsewhere, 1, ncclInt32, 0, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, COUNT + 1, ncclInt32, 0, win, 0, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, win, offset_of(RANKS) - 3, 0, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, win, 0, contexts == 1 ? 1 : 8, 0, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, win, 0, 0, contexts, 0, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, win, 0, 0, 0, 1, me->comm, me->stream));
  BAD(ncclPutSignal(me->from, 1, ncclInt32, 0, win, 0, 0, 0, 0, NULL, me->stream));
  BAD(ncclSignal(RANKS, 0, 0, 0, me->comm, me->stream));
  BAD(ncclSignal(0, contexts == 1 ? 1 : 8, 0, 0, me->comm, me->stream));
  BAD(ncclSignal(0, 0, contexts, 0, me->comm, me->stream));
  BAD(ncclSignal(0, 0, 0, 1, me->comm, me->stream));
  BAD(ncclWaitSignal(0, &wait, me->comm, me->stream));
  BAD(ncclWaitSignal(1, NULL, me->comm, me->stream));
  BAD(ncclWaitSignal(1, &wait, me->comm, me->stream));
  wait.opCnt = 1, wait.sigIdx = contexts == 1 ? 1 : 8;
  BAD(ncclWaitSignal(1, &wait, me->comm, me->stream));
  wait.sigIdx = 0, wait.ctx = contexts;
  BAD(ncclWaitSignal(1, &wait, me->comm, me->stream));
  wait.ctx = 0, wait.peer = -1;
  BAD(ncclWaitSignal(1, &wait, me->comm, me->stream));
#undef BAD
  OK(oxcclStreamSynchronize(me->stream));
}

/* With several contexts: each has signals of its own. */
static void contexts_and_signals(rank_t* me, int contexts) {
  ncclWaitSignalDesc_t waits[16];
  int n = 0;
  for (int ctx = 0; ctx < contexts; ctx++)
    for (int sig = 0; sig < 4; sig++) {
      for (int i = 0; i <= ctx + sig; i++) OK(ncclSignal(me->next, sig, ctx, 0, me->comm, me->stream));
      waits[n++] = (ncclWaitSignalDesc_t){ctx + sig + 1, me->last, sig, ctx};
    }
  OK(ncclWaitSignal(n, waits, me->comm, me->stream));
  OK(oxcclStreamSynchronize(me->stream));
  all_here(me);
}

static void with_communicator(ncclUniqueId id, int rank, int contexts) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  rank_t me;
  memset(&me, 0, sizeof me);
  if (contexts > 1) config.numRmaCtx = contexts;
  me.rank = rank, me.next = (rank + 1) % RANKS, me.last = (rank + RANKS - 1) % RANKS;
  OK(ncclCommInitRankConfig(&me.comm, RANKS, id, rank, &config));
  OK(oxcclStreamCreate(&me.stream));
  me.from = (int32_t*)allocate(COUNT * sizeof(int32_t));
  me.to = (int32_t*)allocate(offset_of(RANKS));
  OK(ncclCommWindowRegister(me.comm, me.from, COUNT * sizeof(int32_t), &me.from_window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclCommWindowRegister(me.comm, me.to, offset_of(RANKS), &me.to_window, NCCL_WIN_DEFAULT));
  CHECK(me.from_window != NULL && me.to_window != NULL);
  ring(&me);
  everybody(&me);
  two_streams(&me);
  arguments(&me, contexts);
  if (contexts > 1) contexts_and_signals(&me, contexts);
  all_here(&me);
  OK(ncclCommWindowDeregister(me.comm, me.from_window));
  CHECK(ncclPutSignal(me.from, 1, ncclInt32, 0, me.to_window, 0, 0, 0, 0, me.comm, me.stream) == ncclInvalidArgument);
  OK(ncclCommWindowDeregister(me.comm, me.to_window));
  CHECK(ncclPutSignal(me.from, 1, ncclInt32, 0, me.to_window, 0, 0, 0, 0, me.comm, me.stream) == ncclInvalidArgument);
  OK(ncclCommDestroy(me.comm));
  OK(oxcclStreamDestroy(me.stream));
  OK(ncclMemFree(me.from));
  OK(ncclMemFree(me.to));
}

static void rank_main(int rank, int pipes[RANKS][2]) {
  bound_time();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  OK(oxcclSetDevice(rank));
  for (int contexts = 1; contexts <= 3; contexts += 2) {
    ncclUniqueId id;
    if (rank == 0) {
      OK(ncclGetUniqueId(&id));
      for (int r = 1; r < RANKS; r++) CHECK(write(pipes[r][1], &id, sizeof id) == (ssize_t)sizeof id);
    } else {
      CHECK(read(pipes[rank][0], &id, sizeof id) == (ssize_t)sizeof id);
    }
    with_communicator(id, rank, contexts);
  }
  exit(0);
}

int main(void) {
  int pipes[RANKS][2];
  pid_t children[RANKS];
  int failed = 0;
  for (int r = 0; r < RANKS; r++) CHECK(pipe(pipes[r]) == 0);
  for (int r = 0; r < RANKS; r++) {
    children[r] = fork();
    CHECK(children[r] >= 0);
    if (children[r] == 0) rank_main(r, pipes);
  }
  for (int left = RANKS; left > 0; left--) {
    int status = 0;
    pid_t child = wait(&status);
    CHECK(child > 0);
    for (int r = 0; r < RANKS; r++)
      if (children[r] == child) children[r] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fprintf(stderr, "a rank ended with wait status %#x\n", (unsigned)status);
      failed = 1;
      for (int r = 0; r < RANKS; r++)
        if (children[r] > 0) kill(children[r], SIGKILL);
    }
  }
  return failed;
}
