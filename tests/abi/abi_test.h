/* What the programs of this folder share: headers of either library, checks that say where, a bound on time. */
#ifndef ABI_TEST_H_
#define ABI_TEST_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef ABI_RCCL
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
#include <oxccl.h>

/* What the two libraries say to the end of a revoked communicator. */
#ifdef ABI_RCCL
#define FINALIZE_REVOKED ncclInvalidUsage
#else
#define FINALIZE_REVOKED ncclInvalidArgument
#endif

/* Ends the process at once: another thread may be in the middle of a call. */
static inline void abi_failed(void) {
  fflush(stderr);
  _exit(1);
}

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);         \
      abi_failed();                                                                   \
    }                                                                                 \
  } while (0)

/* A call that gives this code; its text, if words are given, begins with them. */
#define GIVES(call, code, words)                                                                      \
  do {                                                                                                \
    ncclResult_t result_ = (call);                                                                    \
    const char *words_ = (words), *text_ = ncclGetLastError(NULL);                                    \
    if (result_ != (code) || (words_ != NULL && strncmp(text_, words_, strlen(words_)) != 0)) {       \
      fprintf(stderr, "%s:%d: %s = %d, expected %d\n  text \"%s\"\n  expected \"%s...\"\n", __FILE__, \
              __LINE__, #call, (int)result_, (int)(code), text_, words_ ? words_ : "");               \
      abi_failed();                                                                                   \
    }                                                                                                 \
  } while (0)

#define OK(call)                                                                      \
  do {                                                                                \
    ncclResult_t result_ = (call);                                                    \
    if (result_ != ncclSuccess) {                                                     \
      fprintf(stderr, "%s:%d: %s = %d (%s): %s\n", __FILE__, __LINE__, #call,         \
              (int)result_, ncclGetErrorString(result_), ncclGetLastError(NULL));     \
      abi_failed();                                                                   \
    }                                                                                 \
  } while (0)

/* Ends the process if the test does not end in time. */
static inline void bound_time(void) { alarm(60); }

static inline void* allocate(size_t bytes) {
  void* memory = NULL;
  OK(ncclMemAlloc(&memory, bytes));
  CHECK(memory != NULL);
  memset(memory, 0xa5, bytes);
  return memory;
}

#endif
