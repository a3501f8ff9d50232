/* Devices: what is asked, set and refused; attributes of kernels; what the driver would be asked. C and C++. */
#include <cuda_runtime_api.h>
#include "check.h"

static void settings(void) {
  size_t value;
  unsigned int flags;
  int devices[2] = {0, 1}, n, i, least, greatest;
  struct cudaDeviceProp p;
  char bus[16];
  CUDA(cudaGetDeviceCount(&n));
  CUDA(cudaSetValidDevices(devices, 2));
  devices[1] = n;
  CHECK(cudaSetValidDevices(devices, 2) == cudaErrorInvalidDevice);
  CUDA(cudaInitDevice(1, 0, 0));
  CHECK(cudaInitDevice(n, 0, 0) == cudaErrorInvalidDevice);
  CUDA(cudaSetDevice(1));
  CUDA(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  CUDA(cudaGetDeviceFlags(&flags));
  CHECK((flags & 7) == cudaDeviceScheduleBlockingSync);
  CHECK(cudaSetDeviceFlags(3) == cudaErrorInvalidValue);
  CUDA(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 12345));
  CUDA(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value == 12345);
  CHECK(cudaDeviceGetLimit(&value, (enum cudaLimit)99) == cudaErrorUnsupportedLimit);
  CUDA(cudaDeviceEnablePeerAccess(0, 0));
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
  CUDA(cudaDeviceDisablePeerAccess(0));
  CHECK(cudaDeviceDisablePeerAccess(0) == cudaErrorPeerAccessNotEnabled);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorInvalidDevice);
  CUDA(cudaDeviceReset());
  CUDA(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value != 12345);
  CUDA(cudaDeviceGetP2PAttribute(&i, cudaDevP2PAttrAccessSupported, 0, 1));
  CHECK(i == 1);
  CHECK(cudaDeviceGetP2PAttribute(&i, cudaDevP2PAttrAccessSupported, 1, 1) == cudaErrorInvalidDevice);
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && greatest < least);
  memset(&p, 0, sizeof p);
  CUDA(cudaChooseDevice(&i, &p));
  CHECK(i >= 0 && i < n);
  CHECK(cudaDeviceGetPCIBusId(bus, 4, 0) == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetByPCIBusId(&i, "nonsense") == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetByPCIBusId(&i, "0000:ff:00.0") == cudaErrorInvalidDevice);
  CUDA(cudaGetDeviceProperties(&p, 0));
  CHECK(p.ipcEventSupported == 1);
  for (i = 0; i < 3; i++) {
    CUDA(cudaDeviceGetAttribute(&n, (enum cudaDeviceAttr)(cudaDevAttrMaxBlockDimX + i), 0));
    CHECK(n == p.maxThreadsDim[i]);
    CUDA(cudaDeviceGetAttribute(&n, (enum cudaDeviceAttr)(cudaDevAttrMaxGridDimX + i), 0));
    CHECK(n == p.maxGridSize[i]);
  }
  CUDA(cudaDeviceGetAttribute(&i, cudaDevAttrIpcEventSupport, 0));
  CHECK(i == 1);
  for (i = 1; i < 130; i++) {
    int found = -7;
    CUDA(cudaDeviceGetAttribute(&found, (enum cudaDeviceAttr)i, 0));
    CHECK(found >= 0);
  }
  CHECK(cudaDeviceGetAttribute(&i, (enum cudaDeviceAttr)-1, 0) == cudaErrorInvalidValue);
}

static void streams(void) {
  cudaStream_t s, t;
  cudaLaunchAttributeValue v;
  unsigned long long one = 0, two = 0;
  int device = -1;
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -2));
  CUDA(cudaStreamCreate(&t));
  CUDA(cudaStreamGetAttribute(s, cudaLaunchAttributePriority, &v));
  CHECK(v.priority == -2);
  CUDA(cudaStreamSetAttribute(s, cudaLaunchAttributeSynchronizationPolicy, &v));
  CHECK(cudaStreamSetAttribute(s, cudaLaunchAttributeCooperative, &v) == cudaErrorInvalidValue);
  CUDA(cudaStreamCopyAttributes(t, s));
  CUDA(cudaStreamGetId(s, &one));
  CUDA(cudaStreamGetId(t, &two));
  CHECK(one != two);
#if CUDART_VERSION >= 12080
  CUDA(cudaStreamGetDevice(s, &device));
  CHECK(device == 1);
#endif
  (void)device;
  CUDA(cudaStreamDestroy(s));
  CHECK(cudaStreamGetId(s, &one) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamCopyAttributes(t, s) == cudaErrorInvalidResourceHandle);
  CUDA(cudaStreamDestroy(t));
}

static void memory(void) {
  int* m;
  void *h, *d;
  int value = 0;
  unsigned int flags = 0;
  struct cudaPointerAttributes a;
  CUDA(cudaMallocManaged((void**)&m, 4096, cudaMemAttachGlobal));
  CUDA(cudaPointerGetAttributes(&a, m));
  CHECK(a.type == cudaMemoryTypeManaged);
  CUDA(cudaMemRangeGetAttribute(&value, sizeof value, cudaMemRangeAttributePreferredLocation, m, 4096));
  CHECK(value == -2);
  CUDA(cudaStreamAttachMemAsync(0, m, 0, cudaMemAttachSingle));
  CUDA(cudaFree(m));
  CUDA(cudaHostAlloc(&h, 4096, cudaHostAllocPortable));
  CUDA(cudaHostGetFlags(&flags, h));
  CHECK(flags == (cudaHostAllocPortable | cudaHostAllocMapped));
  CUDA(cudaHostGetDevicePointer(&d, h, 0));
  CHECK(d == h);
  CUDA(cudaFreeHost(h));
  CHECK(cudaHostGetFlags(&flags, &value) == cudaErrorInvalidValue);
}

static void kernels(void) {
  struct cudaFuncAttributes a;
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
  void* function = &a;
  int blocks = 0;
  CUDA(cudaFuncGetAttributes(&a, (const void*)kernels));
  CHECK(a.maxThreadsPerBlock == 1024 && a.numRegs > 0 && a.maxDynamicSharedSizeBytes > 0);
  CUDA(cudaFuncSetAttribute((const void*)kernels, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
  CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void*)kernels, 256, 0));
  CHECK(blocks == 8);
#if CUDART_VERSION < 13000
  CUDA(cudaGetDriverEntryPoint("cuMemAlloc", &function, 0, &found));
#else
  CUDA(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 13000, 0, &found));
#endif
  CHECK(function == NULL && found == cudaDriverEntryPointSymbolNotFound);
}

/* What nvcc emits around a kernel: the program starts and runs up to its launch. */
#ifdef __cplusplus
extern "C" {
#endif
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
#ifdef __cplusplus
}
#endif

static void embedded(void) {
  const char* name = NULL;
  static long image[3];
  void** binary = __cudaRegisterFatBinary(image);
  char device_name[] = "_Z6kernelv";
  CHECK(binary != NULL);
  __cudaRegisterFunction(binary, (const char*)(const void*)embedded, device_name, device_name, -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFatBinaryEnd(binary);
  CUDA(cudaFuncGetName(&name, (const void*)embedded));
  CHECK(!strcmp(name, "_Z6kernelv"));
  CHECK(cudaFuncGetName(&name, (const void*)kernels) == cudaErrorInvalidDeviceFunction);
  __cudaUnregisterFatBinary(binary);
}

int main(void) {
  settings();
  streams();
  memory();
  kernels();
  embedded();
  puts("all fine");
  return 0;
}
