/* A rank that is killed while a process that it forked lives on, as the workers that load data do: the rank of another host hears of
 * it at once, and until then the connections are what they were. */
#include "abi_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* Seconds after which whatever still runs here is ended. */
#define LIMIT 60
/* Seconds in which a death is heard of. */
#define NOTICE 5

static void be_on_host(const char* name) { CHECK(setenv("NCCL_HOSTID", name, 1) == 0); }

static void put(int fd, const void* data, size_t bytes) { CHECK(write(fd, data, bytes) == (ssize_t)bytes); }

static void take(int fd, void* data, size_t bytes) { CHECK(read(fd, data, bytes) == (ssize_t)bytes); }

static ncclResult_t all_reduce(ncclComm_t comm, oxcclStream_t stream, float* x) {
  ncclResult_t result = ncclAllReduce(x, x, 1000, ncclFloat, ncclSum, comm, stream);
  return result != ncclSuccess ? result : oxcclStreamSynchronize(stream);
}

static ncclComm_t join(int rank, ncclUniqueId id, oxcclStream_t* stream) {
  ncclComm_t comm;
  OK(ncclCommInitRank(&comm, 2, id, rank));
  OK(oxcclStreamCreate(stream));
  return comm;
}

/* The rank with a child. It never returns. */
static void victim(int from, int to) {
  ncclUniqueId id;
  oxcclStream_t stream;
  be_on_host("the host of the victim");
  take(from, &id, sizeof id);
  ncclComm_t comm = join(1, id, &stream);
  float* x = (float*)calloc(1000, sizeof(float));
  OK(all_reduce(comm, stream, x));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(LIMIT);
    for (;;) pause();
  }
  put(to, &child, sizeof child);
  /* The parent's connections are what they were. */
  OK(all_reduce(comm, stream, x));
  put(to, &child, sizeof child);
  for (;;) pause();
}

int main(void) {
  int down[2], up[2];
  ncclUniqueId id;
  oxcclStream_t stream;
  pid_t child = 0;
  alarm(LIMIT);
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  pid_t other = fork();
  CHECK(other >= 0);
  if (other == 0) {
    alarm(LIMIT);
    victim(down[0], up[1]);
  }
  be_on_host("the host of the other");
  OK(ncclGetUniqueId(&id));
  put(down[1], &id, sizeof id);
  ncclComm_t comm = join(0, id, &stream);
  float* x = (float*)calloc(1000, sizeof(float));
  OK(all_reduce(comm, stream, x));
  take(up[0], &child, sizeof child);
  OK(all_reduce(comm, stream, x));
  take(up[0], &child, sizeof child);

  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
  ncclResult_t result = all_reduce(comm, stream, x);
  clock_gettime(CLOCK_MONOTONIC, &after);
  int lives = kill(child, 0) == 0;
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(lives);
  CHECK(result == ncclRemoteError);
  CHECK(strstr(ncclGetLastError(comm), "rank 1") != NULL);
  CHECK(after.tv_sec - before.tv_sec <= NOTICE);
  OK(ncclCommAbort(comm));
  OK(oxcclStreamDestroy(stream));
  free(x);
  return 0;
}
