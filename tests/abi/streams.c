/* oxccl's own streams, events, copies and host functions, around a collective of one rank. */
#include "abi_test.h"

static int order[4], calls;
static void note(void* which) { order[calls++] = (int)(intptr_t)which; }

int main(void) {
  int count = 0, device = -1;
  oxcclStream_t first, second;
  oxcclEvent_t begin, end;
  ncclUniqueId id;
  ncclComm_t comm;
  float ms = -1;
  bound_time();
  OK(oxcclGetDeviceCount(&count));
  CHECK(count >= 2);
  OK(oxcclSetDevice(1));
  OK(oxcclGetDevice(&device));
  CHECK(device == 1);
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(oxcclStreamCreate(&first));
  OK(oxcclStreamCreate(&second));
  OK(oxcclEventCreate(&begin));
  OK(oxcclEventCreate(&end));
  int* in = (int*)allocate(4000);
  int* middle = (int*)allocate(4000);
  int* out = (int*)allocate(4000);
  for (int i = 0; i < 1000; i++) in[i] = i;

  OK(oxcclEventRecord(begin, first));
  OK(oxcclLaunchHostFunc(first, note, (void*)(intptr_t)1));
  OK(ncclAllReduce(in, middle, 1000, ncclInt32, ncclSum, comm, first));
  OK(oxcclEventRecord(end, first));
  OK(oxcclStreamWaitEvent(second, end));
  OK(oxcclMemcpyAsync(out, middle, 4000, second));
  OK(oxcclLaunchHostFunc(second, note, (void*)(intptr_t)2));
  OK(oxcclStreamSynchronize(second));
  for (int i = 0; i < 1000; i++) CHECK(out[i] == i);
  CHECK(calls == 2 && order[0] == 1 && order[1] == 2);
  OK(oxcclEventSynchronize(end));
  OK(oxcclEventQuery(end));
  OK(oxcclEventElapsedTime(&ms, begin, end));
  CHECK(ms >= 0 && ms < 60000);
  OK(oxcclStreamSynchronize(first));
  OK(oxcclStreamQuery(first));
  OK(oxcclMemcpyAsync(NULL, NULL, 0, first));

  OK(oxcclEventDestroy(begin));
  OK(oxcclEventDestroy(end));
  OK(oxcclStreamDestroy(first));
  OK(oxcclStreamDestroy(second));
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(in));
  OK(ncclMemFree(middle));
  OK(ncclMemFree(out));
  return 0;
}
