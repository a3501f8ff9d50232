/*
 * Chapter "extensions" (oxccl.h): devices, streams, events, copies and host functions, in order with collectives.
 */
#include "launch.h"
#include <pthread.h>

enum { COUNT = 1000, BYTES = COUNT * 4 };

typedef struct {
  int order[4], calls;
} notes_t;
typedef struct {
  notes_t* notes;
  int which;
} note_t;

static void write_note(void* note) {
  note_t* n = (note_t*)note;
  n->notes->order[n->notes->calls++] = n->which;
}

static void devices(void) {
  int count = 0, device = -1, before = -1;
  OK(oxcclGetDeviceCount(&count));
  CHECK(count == 8); /* OXCCL_HOST_DEVICES */
  OK(oxcclGetDevice(&before));
  for (int d = 0; d < count; d++) {
    OK(oxcclSetDevice(d));
    OK(oxcclGetDevice(&device));
    CHECK(device == d);
  }
  GIVES(oxcclSetDevice(count), ncclInvalidArgument, NULL);
  OK(oxcclGetDevice(&device));
  CHECK(device == count - 1);
  OK(oxcclSetDevice(before));
}

/* host function, collective, event in one stream; wait, copy, host function in another. */
static void ordered(world_t* w) {
  int32_t *in[WORLD_MAX], *middle[WORLD_MAX], *out[WORLD_MAX];
  oxcclStream_t second[WORLD_MAX];
  oxcclEvent_t begin[WORLD_MAX], end[WORLD_MAX];
  notes_t notes[WORLD_MAX];
  note_t note[WORLD_MAX][2];
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamCreate(&second[i]));
    OK(oxcclEventCreate(&begin[i]));
    OK(oxcclEventCreate(&end[i]));
    in[i] = (int32_t*)allocate(BYTES);
    middle[i] = (int32_t*)allocate(BYTES);
    out[i] = (int32_t*)allocate(BYTES);
    for (int k = 0; k < COUNT; k++) in[i][k] = k * (w->rank[i] + 1);
    memset(&notes[i], 0, sizeof notes[i]);
    for (int k = 0; k < 2; k++) note[i][k].notes = &notes[i], note[i][k].which = k + 1;
    OK(oxcclEventRecord(begin[i], w->stream[i]));
    OK(oxcclLaunchHostFunc(w->stream[i], write_note, &note[i][0]));
  }
  ALL(w, i, ncclAllReduce(in[i], middle[i], COUNT, ncclInt32, ncclSum, w->comm[i], w->stream[i]));
  EACH(w, i) {
    OK(oxcclEventRecord(end[i], w->stream[i]));
    OK(oxcclStreamWaitEvent(second[i], end[i]));
    OK(oxcclMemcpyAsync(out[i], middle[i], BYTES, second[i]));
    OK(oxcclLaunchHostFunc(second[i], write_note, &note[i][1]));
  }
  EACH(w, i) {
    float ms = -1;
    OK(oxcclStreamSynchronize(second[i]));
    for (int k = 0; k < COUNT; k++) CHECK(out[i][k] == k * w->n * (w->n + 1) / 2);
    CHECK(notes[i].calls == 2 && notes[i].order[0] == 1 && notes[i].order[1] == 2);
    OK(oxcclEventSynchronize(end[i]));
    OK(oxcclEventQuery(end[i]));
    OK(oxcclEventElapsedTime(&ms, begin[i], end[i]));
    CHECK(ms >= 0 && ms < 60000);
    OK(oxcclStreamSynchronize(w->stream[i]));
    OK(oxcclStreamQuery(w->stream[i]));
    OK(oxcclMemcpyAsync(NULL, NULL, 0, w->stream[i]));
    OK(oxcclEventDestroy(begin[i]));
    OK(oxcclEventDestroy(end[i]));
    OK(oxcclStreamDestroy(second[i]));
    OK(ncclMemFree(in[i]));
    OK(ncclMemFree(middle[i]));
    OK(ncclMemFree(out[i]));
  }
}

/* Many collectives before the first wait; each sees what the one before it wrote. */
static void chained(world_t* w) {
  int64_t data[WORLD_MAX], want = 1;
  EACH(w, i) data[i] = 1;
  for (int k = 0; k < 10; k++) {
    ALL(w, i, ncclAllReduce(&data[i], &data[i], 1, ncclInt64, ncclSum, w->comm[i], w->stream[i]));
    want *= w->n;
  }
  world_wait(w);
  EACH(w, i) CHECK(data[i] == want);
}

/* The null stream is the one of the communicator's device. */
static void null_stream(world_t* w) {
  int32_t data[WORLD_MAX];
  EACH(w, i) data[i] = 1;
  ALL(w, i, ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, w->comm[i], NULL));
  EACH(w, i) {
    OK(oxcclSetDevice(w->rank[i]));
    OK(oxcclStreamSynchronize(NULL));
    CHECK(data[i] == w->n);
  }
}

/* A stream is destroyed with work left in it: the work is done first. */
static void destroyed_busy(world_t* w) {
  int32_t data[WORLD_MAX];
  oxcclStream_t stream[WORLD_MAX];
  if (w->locals > 1) return; /* the first destruction would wait for the second */
  OK(oxcclStreamCreate(&stream[0]));
  data[0] = 2;
  OK(ncclAllReduce(&data[0], &data[0], 1, ncclInt32, ncclSum, w->comm[0], stream[0]));
  OK(oxcclStreamDestroy(stream[0]));
  CHECK(data[0] == 2 * w->n);
}

/* A thread that has used the library makes its last call while it ends, when what it kept for itself may be gone. */
typedef struct {
  ncclComm_t comm;
  oxcclStream_t stream;
  int32_t data[2];
  ncclResult_t result;
} last_call_t;

static void call(last_call_t* c) {
  c->result = ncclAllReduce(&c->data[0], &c->data[1], 1, ncclInt32, ncclSum, c->comm, c->stream);
  if (c->result == ncclSuccess) c->result = oxcclStreamSynchronize(c->stream);
}

static void call_at_end(void* last) { call((last_call_t*)last); }

static pthread_key_t at_end;

static void* calling_thread(void* last) {
  call((last_call_t*)last);
  CHECK(((last_call_t*)last)->result == ncclSuccess);
  ((last_call_t*)last)->result = ncclInternalError;
  CHECK(pthread_setspecific(at_end, last) == 0);
  return NULL;
}

static void ending_threads(void) {
  int device = 0;
  last_call_t last = {NULL, NULL, {0, 0}, ncclSuccess};
  OK(ncclCommInitAll(&last.comm, 1, &device));
  CHECK(pthread_key_create(&at_end, call_at_end) == 0);
  for (int own = 0; own < 2; own++) {
    pthread_t thread;
    if (own) OK(oxcclStreamCreate(&last.stream));
    last.data[0] = 7 + own;
    CHECK(pthread_create(&thread, NULL, calling_thread, &last) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(last.result == ncclSuccess && last.data[1] == 7 + own);
  }
  CHECK(pthread_key_delete(at_end) == 0);
  OK(oxcclStreamDestroy(last.stream));
  OK(ncclCommDestroy(last.comm));
}

void chapter(world_t* w) {
  devices();
  if (w->mode != LAUNCH_THREADS) ending_threads();
  world_open(w);
  ordered(w);
  chained(w);
  null_stream(w);
  destroyed_busy(w);
  world_close(w);
}
