/*
 * Rows of the tables of errors: a call, the code it must give, and how the text of ncclGetLastError must begin. Each
 * row runs; rows_end prints how many there were and how many each function had.
 */
#ifndef ABI_ROWS_H_
#define ABI_ROWS_H_
#include "abi_test.h"

typedef struct {
  char name[40];
  int rows;
} function_rows_t;

static function_rows_t functions_seen[128];
static int rows, failures;

/* The function of a call's text; twins count for their original. */
static inline void count_function(const char* call) {
  size_t skip = call[0] == 'p', length = strcspn(call + skip, "( ");
  int f = 0;
  CHECK(length < sizeof functions_seen[0].name);
  while (functions_seen[f].rows > 0 &&
         (strncmp(functions_seen[f].name, call + skip, length) != 0 || functions_seen[f].name[length] != 0))
    f++;
  CHECK(f < (int)(sizeof functions_seen / sizeof *functions_seen) - 1);
  memcpy(functions_seen[f].name, call + skip, length);
  functions_seen[f].rows++;
}

/* Whether a text begins as expected; a star stands for anything. */
static inline int begins(const char* text, const char* expected) {
  for (; *expected != 0; text++, expected++) {
    if (*expected == '*') {
      for (;; text++) {
        if (begins(text, expected + 1)) return 1;
        if (*text == 0) return 0;
      }
    }
    if (*text != *expected) return 0;
  }
  return 1;
}

static inline void expect(const char* file, int line, const char* call, ncclResult_t got, ncclResult_t code,
                          const char* text) {
  const char* found = ncclGetLastError(NULL);
  rows++;
  count_function(call);
  if (got == code && (text == NULL || begins(found, text))) return;
  fprintf(stderr, "%s:%d: %s\n  returned %d, expected %d\n  text \"%s\"\n  expected to begin \"%s\"\n", file, line, call,
          (int)got, (int)code, found, text ? text : "");
  failures++;
}

/* A row outside of groups. The text is checked where one is given; another message makes the old one stale first. */
#define ROW(call, code, text)                                            \
  do {                                                                   \
    (void)ncclCommCuDevice(NULL, NULL);                                  \
    ncclResult_t got_ = (call);                                          \
    expect(__FILE__, __LINE__, #call, got_, code, text);                 \
  } while (0)

/*
 * A row outside of groups, and the same within one: there the call returns the error at once, and the end of the group
 * returns it again.
 */
#define BOTH(call, code, text)                                           \
  do {                                                                   \
    ROW(call, code, text);                                               \
    OK(ncclGroupStart());                                                \
    ROW(call, code, text);                                               \
    ncclResult_t end_ = ncclGroupEnd();                                  \
    expect(__FILE__, __LINE__, #call " in a group, its end", end_, code, NULL); \
  } while (0)

#define ARG(call, text) ROW(call, ncclInvalidArgument, text)
#define USE(call, text) ROW(call, ncclInvalidUsage, text)
#define ARG_BOTH(call, text) BOTH(call, ncclInvalidArgument, text)
#define USE_BOTH(call, text) BOTH(call, ncclInvalidUsage, text)

static inline int rows_end(void) {
  printf("rows %d\n", rows);
  for (int f = 0; functions_seen[f].rows > 0; f++) printf("function %s %d\n", functions_seen[f].name, functions_seen[f].rows);
  return failures != 0;
}

#endif
