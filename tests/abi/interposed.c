/*
 * A program under a profiler: interpose.c, preloaded, replaces ncclAllReduce and calls pncclAllReduce. Prints how many
 * calls the profiler must have seen; those of the twin are not among them.
 */
#include "launch.h"

void chapter(world_t* w) {
  enum { CALLS = 25 };
  int64_t data[WORLD_MAX];
  int64_t want = 1;
  world_open(w);
  EACH(w, i) data[i] = 1;
  for (int k = 0; k < CALLS; k++) {
    ALL(w, i, ncclAllReduce(&data[i], &data[i], 1, ncclInt64, ncclSum, w->comm[i], w->stream[i]));
    ALL(w, i, pncclAllReduce(&data[i], &data[i], 1, ncclInt64, ncclMax, w->comm[i], w->stream[i]));
    want = want * w->n % 1000003;
    world_wait(w);
    EACH(w, i) {
      CHECK(data[i] % 1000003 == want);
      data[i] = want;
    }
  }
  world_close(w);
  if (w->rank[0] == 0) printf("allreduces %d\n", CALLS * (w->mode == LAUNCH_PROCESSES ? 1 : w->n));
}
