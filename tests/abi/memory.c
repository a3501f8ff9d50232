/*
 * Chapter "memory": ncclMemAlloc and ncclMemFree, ncclCommRegister and ncclCommDeregister, and that collectives move
 * any memory of the process: the library's, the heap's, the stack's, static, mapped from a file.
 */
#include "launch.h"
#include <sys/mman.h>

static void allocations(void) {
  static const size_t sizes[] = {1, 3, 4095, 4096, 4097, 1000000, 9000000};
  enum { N = sizeof sizes / sizeof *sizes };
  char* all[N];
  void* nothing = &all;
  for (size_t k = 0; k < N; k++) {
    all[k] = (char*)allocate(sizes[k]);
    CHECK((uintptr_t)all[k] % 256 == 0);
    memset(all[k], (int)k, sizes[k]);
  }
  for (size_t k = 0; k < N; k++) {
    for (size_t b = 0; b < sizes[k]; b += 997) CHECK(all[k][b] == (char)k);
    OK(ncclMemFree(all[k]));
  }
  OK(ncclMemAlloc(&nothing, 0));
  CHECK(nothing == NULL);
  OK(ncclMemFree(NULL));
  /* As often as one likes. */
  for (int k = 0; k < 2000; k++) OK(ncclMemFree(allocate(100000)));
}

static char still[WORLD_MAX][40000];

/* All-reduce in place in memory of one kind. */
static void reduce_in(world_t* w, int32_t* const* data, size_t count) {
  EACH(w, i) for (size_t k = 0; k < count; k++) data[i][k] = (int32_t)k + w->rank[i];
  ALL(w, i, ncclAllReduce(data[i], data[i], count, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
  world_wait(w);
  EACH(w, i) for (size_t k = 0; k < count; k++) CHECK(data[i][k] == (int32_t)k * w->n + w->n * (w->n - 1) / 2);
}

static void kinds_of_memory(world_t* w) {
  enum { COUNT = 10000 };
  char stack[WORLD_MAX][COUNT * 4 + 4];
  int32_t* data[WORLD_MAX];
  FILE* files[WORLD_MAX];
  EACH(w, i) data[i] = (int32_t*)allocate(COUNT * 4);
  reduce_in(w, data, COUNT);
  /* In the middle of an allocation. */
  EACH(w, i) data[i] += 1001;
  reduce_in(w, data, 777);
  EACH(w, i) OK(ncclMemFree(data[i] - 1001));
  EACH(w, i) CHECK((data[i] = (int32_t*)malloc(COUNT * 4)) != NULL);
  reduce_in(w, data, COUNT);
  EACH(w, i) free(data[i]);
  EACH(w, i) data[i] = (int32_t*)(void*)still[w->rank[i]];
  reduce_in(w, data, COUNT);
  EACH(w, i) data[i] = (int32_t*)(void*)(stack[i] + (4 - (uintptr_t)stack[i] % 4) % 4);
  reduce_in(w, data, COUNT);
  EACH(w, i) {
    files[i] = tmpfile();
    CHECK(files[i] != NULL && ftruncate(fileno(files[i]), COUNT * 4) == 0);
    data[i] = (int32_t*)mmap(NULL, COUNT * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(files[i]), 0);
    CHECK((void*)data[i] != MAP_FAILED);
  }
  reduce_in(w, data, COUNT);
  EACH(w, i) CHECK(munmap(data[i], COUNT * 4) == 0 && fclose(files[i]) == 0);
}

static void registrations(world_t* w) {
  enum { BYTES = 40000 };
  int32_t* data[WORLD_MAX];
  void *whole[WORLD_MAX], *part[WORLD_MAX], *other[WORLD_MAX];
  EACH(w, i) {
    data[i] = (int32_t*)allocate(BYTES);
    other[i] = malloc(BYTES);
    OK(ncclCommRegister(w->comm[i], data[i], BYTES, &whole[i]));
    OK(ncclCommRegister(w->comm[i], data[i] + 10, 100, &part[i]));
    CHECK(whole[i] != NULL && part[i] == whole[i]); /* a part has the handle of the whole */
    void* apart = NULL;
    OK(ncclCommRegister(w->comm[i], other[i], BYTES, &apart));
    CHECK(apart != NULL && apart != whole[i]);
    OK(ncclCommDeregister(w->comm[i], apart));
    GIVES(ncclCommDeregister(w->comm[i], apart), ncclInvalidUsage, NULL);
    free(other[i]);
  }
  reduce_in(w, data, BYTES / 4);
  EACH(w, i) {
    /* As often as it was registered. */
    OK(ncclCommDeregister(w->comm[i], part[i]));
    OK(ncclCommDeregister(w->comm[i], whole[i]));
    GIVES(ncclCommDeregister(w->comm[i], whole[i]), ncclInvalidUsage, NULL);
    OK(ncclCommDeregister(w->comm[i], NULL));
  }
  reduce_in(w, data, BYTES / 4);
  EACH(w, i) OK(ncclMemFree(data[i]));
}

/* Memory is given back and taken again between calls: whoever remembers addresses must notice. */
static void memory_comes_and_goes(world_t* w) {
  for (int round = 0; round < 20; round++) {
    size_t count = (size_t)(round % 4) * 3000 + 100;
    int32_t* data[WORLD_MAX];
    EACH(w, i) data[i] = (int32_t*)allocate(count * 4);
    reduce_in(w, data, count);
    EACH(w, i) OK(ncclMemFree(data[i]));
    meet(w);
  }
}

void chapter(world_t* w) {
  allocations();
  world_open(w);
  kinds_of_memory(w);
  registrations(w);
  memory_comes_and_goes(w);
  world_close(w);
}
