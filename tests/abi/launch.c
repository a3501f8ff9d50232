/* How the ranks of a chapter's program are started; see launch.h. */
#include "launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#ifdef OXCCL_TEST_MPI
#include <mpi.h>
#endif

/* What threads or processes of one machine share beside the library. */
typedef struct {
  pthread_barrier_t all;
  char data[4096];
  int dying[WORLD_MAX];
} board_t;

static board_t* board;

void meet(world_t* w) {
  if (w->mode == LAUNCH_SINGLE) return;
#ifdef OXCCL_TEST_MPI
  if (w->mode == LAUNCH_MPI) {
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
    return;
  }
#endif
  int result = pthread_barrier_wait(&board->all);
  CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

void share(world_t* w, void* data, size_t bytes, int root) {
  CHECK(bytes <= sizeof board->data);
  if (w->mode == LAUNCH_SINGLE) return;
#ifdef OXCCL_TEST_MPI
  if (w->mode == LAUNCH_MPI) {
    CHECK(MPI_Bcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD) == MPI_SUCCESS);
    return;
  }
#endif
  if (w->rank[0] == root) memcpy(board->data, data, bytes);
  meet(w);
  memcpy(data, board->data, bytes);
  meet(w);
}

void die(world_t* w) {
  CHECK(w->mode == LAUNCH_PROCESSES);
  board->dying[w->rank[0]] = 1;
  kill(getpid(), SIGKILL);
  CHECK(!"a killed process goes on");
}

void world_init(world_t* w, ncclComm_t* comm, ncclConfig_t* config) {
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  if (w->rank[0] == 0) OK(ncclGetUniqueId(&id));
  share(w, &id, sizeof id, 0);
  OK(ncclGroupStart());
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    OK(ncclCommInitRankConfig(&comm[i], w->n, id, w->rank[i], config));
  }
  OK(ncclGroupEnd());
}

void world_open(world_t* w) {
  if (w->mode == LAUNCH_SINGLE) {
    OK(ncclCommInitAll(w->comm, w->n, NULL));
  } else {
    world_init(w, w->comm, NULL);
  }
  EACH(w, i) {
    int rank = -1, count = -1, device = -1;
    OK(ncclCommUserRank(w->comm[i], &rank));
    OK(ncclCommCount(w->comm[i], &count));
    OK(ncclCommCuDevice(w->comm[i], &device));
    CHECK(rank == w->rank[i] && count == w->n && device == w->rank[i]);
    OK(oxcclSetDevice(device));
    OK(oxcclStreamCreate(&w->stream[i]));
  }
}

void world_wait(world_t* w) { EACH(w, i) OK(oxcclStreamSynchronize(w->stream[i])); }

void world_destroy(world_t* w, ncclComm_t* comm) {
  OK(ncclGroupStart());
  EACH(w, i) OK(ncclCommDestroy(comm[i]));
  OK(ncclGroupEnd());
  EACH(w, i) comm[i] = NULL;
}

void world_close(world_t* w) {
  EACH(w, i) {
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(w->comm[i], &state));
    CHECK(state == ncclSuccess);
    OK(oxcclStreamDestroy(w->stream[i]));
  }
  ALL(w, i, ncclCommFinalize(w->comm[i]));
  world_destroy(w, w->comm);
}

void world_works(world_t* w, ncclComm_t* comm, int ranks) {
  enum { COUNT = 300 };
  int64_t* data[WORLD_MAX];
  int64_t want = 0;
  for (int r = 0; r < ranks; r++) want += (int64_t)r * r + 1;
  OK(ncclGroupStart());
  EACH(w, i) {
    int rank = -1, count = -1;
    data[i] = NULL;
    if (comm[i] == NULL) continue;
    OK(ncclCommUserRank(comm[i], &rank));
    OK(ncclCommCount(comm[i], &count));
    CHECK(count == ranks && rank >= 0 && rank < ranks);
    data[i] = (int64_t*)allocate(COUNT * sizeof(int64_t));
    for (int k = 0; k < COUNT; k++) data[i][k] = (int64_t)rank * rank + 1 + k;
    OK(ncclAllReduce(data[i], data[i], COUNT, ncclInt64, ncclSum, comm[i], w->stream[i]));
  }
  OK(ncclGroupEnd());
  EACH(w, i) {
    if (comm[i] == NULL) continue;
    OK(oxcclStreamSynchronize(w->stream[i]));
    for (int k = 0; k < COUNT; k++) CHECK(data[i][k] == want + (int64_t)k * ranks);
    OK(ncclMemFree(data[i]));
  }
}

static world_t ranks(enum launch_mode mode, int n, int first, int locals) {
  world_t w;
  memset(&w, 0, sizeof w);
  w.mode = mode;
  w.n = n;
  w.locals = locals;
  for (int i = 0; i < locals; i++) w.rank[i] = first + i;
  return w;
}

static void* thread_main(void* world) {
  chapter((world_t*)world);
  return NULL;
}

static void run_threads(int n) {
  pthread_t threads[WORLD_MAX];
  world_t worlds[WORLD_MAX];
  for (int r = 0; r < n; r++) {
    worlds[r] = ranks(LAUNCH_THREADS, n, r, 1);
    CHECK(pthread_create(&threads[r], NULL, thread_main, &worlds[r]) == 0);
  }
  for (int r = 0; r < n; r++) CHECK(pthread_join(threads[r], NULL) == 0);
}

static void process_main(int n, int rank) {
  world_t w = ranks(LAUNCH_PROCESSES, n, rank, 1);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  bound_time();
  chapter(&w);
  fflush(stdout);
  exit(0);
}

/* The parent never calls the library. The first bad end of a rank ends all. */
static void run_processes(int n) {
  pid_t children[WORLD_MAX];
  int failed = 0;
  for (int r = 0; r < n; r++) {
    children[r] = fork();
    CHECK(children[r] >= 0);
    if (children[r] == 0) process_main(n, r);
  }
  for (int left = n; left > 0; left--) {
    int status = 0, rank = -1;
    pid_t child = wait(&status);
    if (child < 0 && errno == EINTR) {
      left++;
      continue;
    }
    CHECK(child > 0);
    for (int r = 0; r < n; r++)
      if (children[r] == child) rank = r;
    CHECK(rank >= 0);
    children[rank] = 0;
    int expected = board->dying[rank] ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    if (expected || failed) continue;
    fprintf(stderr, "rank %d ended with wait status %#x\n", rank, (unsigned)status);
    failed = 1;
    for (int r = 0; r < n; r++)
      if (children[r] > 0) kill(children[r], SIGKILL);
  }
  CHECK(!failed);
}

static void make_board(int n) {
  pthread_barrierattr_t shared;
  board = (board_t*)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(board != (board_t*)MAP_FAILED);
  CHECK(pthread_barrierattr_init(&shared) == 0);
  CHECK(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
  CHECK(pthread_barrier_init(&board->all, &shared, (unsigned)n) == 0);
}

#ifdef OXCCL_TEST_MPI
static void run_mpi(void) {
  int n = 0, rank = -1;
  CHECK(MPI_Init(NULL, NULL) == MPI_SUCCESS);
  CHECK(MPI_Comm_size(MPI_COMM_WORLD, &n) == MPI_SUCCESS && n <= WORLD_MAX);
  CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
  world_t w = ranks(LAUNCH_MPI, n, rank, 1);
  bound_time();
  chapter(&w);
  CHECK(MPI_Finalize() == MPI_SUCCESS);
}
#else
static void run_mpi(void) { CHECK(!"this program was built without MPI"); }
#endif

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "single";
  int n = argc > 2 ? atoi(argv[2]) : 4;
  CHECK(n > 0 && n <= WORLD_MAX);
  if (strcmp(mode, "mpi") == 0) {
    run_mpi();
    return 0;
  }
  make_board(n);
  if (strcmp(mode, "processes") == 0) {
    run_processes(n);
    return 0;
  }
  bound_time();
  if (strcmp(mode, "threads") == 0) {
    run_threads(n);
  } else {
    world_t w = ranks(LAUNCH_SINGLE, n, 0, n);
    CHECK(strcmp(mode, "single") == 0);
    chapter(&w);
  }
  return 0;
}
