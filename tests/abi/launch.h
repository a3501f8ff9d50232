/*
 * The ranks of a chapter's program, in whichever of four ways it is started:
 *
 *   PROGRAM single [N]      one thread drives all N ranks (ncclCommInitAll, every call in a group)
 *   PROGRAM threads [N]     a thread per rank
 *   PROGRAM processes [N]   a process per rank, forked before the library is used
 *   PROGRAM mpi             started by mpirun; MPI hands out the ids and nothing else (built with OXCCL_TEST_MPI)
 *
 * A program defines `chapter`; launch.c has `main`. The same body serves all ways: it works on the ranks that its
 * thread drives (`locals`), which are all or one, and makes their calls between group start and group end.
 */
#ifndef ABI_LAUNCH_H_
#define ABI_LAUNCH_H_
#include "abi_test.h"

#define WORLD_MAX 8

enum launch_mode { LAUNCH_SINGLE, LAUNCH_THREADS, LAUNCH_PROCESSES, LAUNCH_MPI };

typedef struct {
  enum launch_mode mode;
  int n;                           /* ranks in all */
  int locals;                      /* ranks of this thread: n or 1 */
  int rank[WORLD_MAX];             /* of each local one, also its device */
  ncclComm_t comm[WORLD_MAX];      /* made by world_open */
  oxcclStream_t stream[WORLD_MAX]; /* made by world_open */
} world_t;

/* The program: called once by every thread that drives ranks. */
void chapter(world_t* w);

/* Every local rank. */
#define EACH(w, i) for (int i = 0; i < (w)->locals; i++)

/* One call of every local rank, in a group; the ranks of a thread need it, and one rank does not mind. */
#define ALL(w, i, call)     \
  do {                      \
    OK(ncclGroupStart());   \
    EACH(w, i) OK(call);    \
    OK(ncclGroupEnd());     \
  } while (0)

/* Copies `bytes` (at most 4096) from the thread that drives rank `root` to all others, without the library. */
void share(world_t* w, void* data, size_t bytes, int root);

/* Waits for all ranks, without the library. */
void meet(world_t* w);

/* Ends this process as a crash would. Only with processes; neither `share` nor `meet` may be called afterwards. */
void die(world_t* w);

/* The communicator of all ranks, and a stream for each. */
void world_open(world_t* w);

/* Waits for the streams of all local ranks. */
void world_wait(world_t* w);

/* Ends what world_open made. */
void world_close(world_t* w);

/* A communicator of all ranks of the world with a config (NULL for none), in `comm`. */
void world_init(world_t* w, ncclComm_t* comm, ncclConfig_t* config);

/* Ends communicators of the local ranks. */
void world_destroy(world_t* w, ncclComm_t* comm);

/* Asserts that a communicator of these ranks works: `comm[i]` is null where local rank i is not in it. */
void world_works(world_t* w, ncclComm_t* comm, int ranks);

#endif
