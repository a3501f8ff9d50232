/*
 * Ranks as processes: the program forks once per rank and hands the id over a pipe. Memory is from malloc.
 *
 *   cc processes.c $(pkg-config --cflags --libs nccl) -o processes
 */
#define _POSIX_C_SOURCE 200809L
#include <nccl.h>
#include <oxccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 4
#define COUNT 100000

static void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s (%s)\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}
#define CHECK(call) check(call, #call)

static int one_rank(int rank, int id_pipe) {
  ncclUniqueId id;
  if (read(id_pipe, &id, sizeof id) != (ssize_t)sizeof id) return perror("id"), 1;

  ncclComm_t comm;
  CHECK(oxcclSetDevice(rank));
  CHECK(ncclCommInitRank(&comm, RANKS, id, rank));
  int* send = malloc(COUNT * sizeof(int));
  int* recv = malloc(COUNT * RANKS * sizeof(int));
  if (!send || !recv) return perror("malloc"), 1;
  for (int i = 0; i < COUNT; i++) send[i] = rank * COUNT + i;

  CHECK(ncclAllGather(send, recv, COUNT, ncclInt, comm, NULL)); /* the null stream */
  CHECK(oxcclStreamSynchronize(NULL));
  for (int i = 0; i < COUNT * RANKS; i++)
    if (recv[i] != i) return fprintf(stderr, "rank %d: element %d is %d\n", rank, i, recv[i]), 1;

  free(send);
  free(recv);
  CHECK(ncclCommDestroy(comm));
  return 0;
}

int main(void) {
  int pipes[RANKS][2];
  pid_t children[RANKS];
  for (int rank = 0; rank < RANKS; rank++) {
    if (pipe(pipes[rank])) return perror("pipe"), 1;
    children[rank] = fork();
    if (children[rank] < 0) return perror("fork"), 1;
    if (children[rank] == 0) {
      /* So that the read ends if the parent does. */
      for (int made = 0; made <= rank; made++) close(pipes[made][1]);
      _exit(one_rank(rank, pipes[rank][0]));
    }
  }

  /* After the forks: this process is the meeting point and has threads of the library from here on. */
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < RANKS; rank++)
    if (write(pipes[rank][1], &id, sizeof id) != (ssize_t)sizeof id) return perror("write"), 1;

  int failed = 0;
  for (int rank = 0; rank < RANKS; rank++) {
    int status;
    failed |= waitpid(children[rank], &status, 0) < 0 || status != 0;
  }
  if (!failed) printf("%d processes gathered %d elements each\n", RANKS, COUNT * RANKS);
  return failed;
}
