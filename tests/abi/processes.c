/* One rank per process; the id travels through pipes. The parent never calls the library. */
#include "suite.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define RANKS 4

static void rank_main(int rank, int pipes[RANKS][2]) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  bound_time();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank == 0) {
    OK(ncclGetUniqueId(&id));
    for (int r = 1; r < RANKS; r++) CHECK(write(pipes[r][1], &id, sizeof id) == (ssize_t)sizeof id);
  } else {
    CHECK(read(pipes[rank][0], &id, sizeof id) == (ssize_t)sizeof id);
  }
  OK(oxcclSetDevice(rank));
  OK(ncclCommInitRank(&comm, RANKS, id, rank));
  run_suite(comm);
  OK(ncclCommFinalize(comm));
  OK(ncclCommDestroy(comm));
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
