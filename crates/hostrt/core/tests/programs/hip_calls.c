/* The host calls of the HIP runtime with RCCL's interface, in one process with four devices. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime.h>
#include <rccl/rccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); exit(1); } } while (0)
#define HIP(call) CHECK((call) == hipSuccess)
#define NCCL(call) CHECK((call) == ncclSuccess)

enum { DEVICES = 4, COUNT = 1000 };

int main(void) {
  ncclComm_t comms[DEVICES];
  hipStream_t s[DEVICES];
  hipDeviceProp_t p;
  hipPointerAttribute_t a;
  float *d[DEVICES], *h;
  int i, j, count;
  HIP(hipGetDeviceCount(&count));
  CHECK(count == DEVICES);
  HIP(hipGetDeviceProperties(&p, 1));
  CHECK(strstr(p.name, "oxccl") && !strcmp(p.gcnArchName, "oxccl-host") && p.pciBusID == 2);
  HIP(hipDeviceGetAttribute(&i, hipDeviceAttributePciBusId, 1));
  CHECK(i == 2);
  HIP(hipHostMalloc((void**)&h, COUNT * sizeof(float), hipHostMallocDefault));
  NCCL(ncclCommInitAll(comms, DEVICES, NULL));
  for (i = 0; i < DEVICES; i++) {
    HIP(hipSetDevice(i));
    HIP(hipStreamCreateWithFlags(&s[i], hipStreamNonBlocking));
    HIP(hipMalloc((void**)&d[i], COUNT * sizeof(float)));
    for (j = 0; j < COUNT; j++) h[j] = (float)(i * j);
    HIP(hipMemcpy(d[i], h, COUNT * sizeof(float), hipMemcpyHostToDevice));
  }
  HIP(hipPointerGetAttributes(&a, d[3]));
  CHECK(a.type == hipMemoryTypeDevice && a.device == 3);
  CHECK(hipPointerGetAttributes(&a, comms) == hipErrorInvalidValue && hipGetLastError() == hipErrorInvalidValue);
  NCCL(ncclGroupStart());
  for (i = 0; i < DEVICES; i++) NCCL(ncclAllReduce(d[i], d[i], COUNT, ncclFloat, ncclSum, comms[i], s[i]));
  NCCL(ncclGroupEnd());
  for (i = 0; i < DEVICES; i++) {
    HIP(hipMemcpyAsync(h, d[i], COUNT * sizeof(float), hipMemcpyDeviceToHost, s[i]));
    HIP(hipStreamSynchronize(s[i]));
    for (j = 0; j < COUNT; j++) CHECK(h[j] == (float)(6 * j));
    NCCL(ncclCommDestroy(comms[i]));
    HIP(hipFree(d[i]));
    HIP(hipStreamDestroy(s[i]));
  }
  HIP(hipHostFree(h));
  CHECK(!strcmp(hipGetErrorName(hipErrorOutOfMemory), "hipErrorOutOfMemory"));
  puts("all fine");
  return 0;
}
