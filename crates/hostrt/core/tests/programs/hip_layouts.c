/* The layouts of HIP 6 and 7 on x86-64 and AArch64, from AMD's public headers, asserted of oxccl's; and what the
 * library writes lies where they say. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime.h>
#include <stddef.h>
#include "check.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #field)

SIZE(hipDeviceProp_t, 1472);
AT(hipDeviceProp_t, uuid, 256);
AT(hipDeviceProp_t, totalGlobalMem, 288);
AT(hipDeviceProp_t, multiProcessorCount, 388);
AT(hipDeviceProp_t, pciBusID, 584);
AT(hipDeviceProp_t, pciDomainID, 592);
AT(hipDeviceProp_t, ipcEventSupported, 768);
AT(hipDeviceProp_t, gcnArchName, 1160);
AT(hipDeviceProp_t, maxSharedMemoryPerMultiProcessor, 1416);
AT(hipDeviceProp_t, hdpMemFlushCntl, 1432);
AT(hipDeviceProp_t, isLargeBar, 1464);
SIZE(hipDeviceArch_t, 4);
SIZE(hipPointerAttribute_t, 32);
AT(hipPointerAttribute_t, devicePointer, 8);
AT(hipPointerAttribute_t, isManaged, 24);
AT(hipPointerAttribute_t, allocationFlags, 28);
SIZE(hipIpcMemHandle_t, 64);
SIZE(hipIpcEventHandle_t, 64);
SIZE(hipMemPoolProps, 88);
SIZE(hipMemcpy3DParms, 160);
SIZE(hipMemsetParams, 48);
AT(hipMemsetParams, height, 16);
AT(hipMemsetParams, width, 40);
SIZE(hipFuncAttributes, 56);
AT(hipFuncAttributes, sharedSizeBytes, 48);
SIZE(hipKernelNodeParams, 64);
SIZE(hipGraphInstantiateParams, 32);
AT(hipGraphInstantiateParams, errNode_out, 0);
AT(hipGraphInstantiateParams, flags, 8);
AT(hipGraphInstantiateParams, result_out, 16);
AT(hipGraphInstantiateParams, uploadStream, 24);
_Static_assert(hipDevP2PAttrPerformanceRank == 0 && hipDevP2PAttrHipArrayAccessSupported == 3, "peers");
_Static_assert(hipDeviceAttributePciBusId == 67 && hipDeviceAttributeMemoryPoolsSupported == 88, "attributes");
_Static_assert(hipErrorLaunchTimeOut == 702 && hipErrorInvalidTexture == 912, "errors");

/* The result lies where HIP has it, and nothing else is written. */
static void instantiation(void) {
  struct { void* error_node; unsigned long long flags; int result, padding; void* upload; } mine;
  hipGraphInstantiateParams params;
  hipGraph_t graph;
  hipGraphExec_t exec;
  memset(&mine, 0x55, sizeof mine);
  mine.flags = 0;
  CHECK(sizeof mine == sizeof params);
  memcpy(&params, &mine, sizeof params);
  HIP(hipGraphCreate(&graph, 0));
  HIP(hipGraphInstantiateWithParams(&exec, graph, &params));
  CHECK(params.result_out == hipGraphInstantiateSuccess);
  memcpy(&mine, &params, sizeof mine);
  CHECK(mine.result == 0 && mine.flags == 0 && mine.upload == (void*)0x5555555555555555);
  HIP(hipGraphExecDestroy(exec));
  HIP(hipGraphDestroy(graph));
}

/* What attributes and properties say of the same. */
static void attributes(const hipDeviceProp_t* p) {
  struct { hipDeviceAttribute_t which; int value; } all[] = {
    {hipDeviceAttributeManagedMemory, p->managedMemory},
    {hipDeviceAttributeHostRegisterSupported, p->hostRegisterSupported},
    {hipDeviceAttributeMaxBlockDimX, p->maxThreadsDim[0]}, {hipDeviceAttributeMaxBlockDimY, p->maxThreadsDim[1]},
    {hipDeviceAttributeMaxBlockDimZ, p->maxThreadsDim[2]}, {hipDeviceAttributeMaxGridDimX, p->maxGridSize[0]},
    {hipDeviceAttributeMaxGridDimY, p->maxGridSize[1]}, {hipDeviceAttributeMaxGridDimZ, p->maxGridSize[2]},
    {hipDeviceAttributeMaxThreadsPerBlock, p->maxThreadsPerBlock}, {hipDeviceAttributeWarpSize, p->warpSize},
    {hipDeviceAttributeMultiprocessorCount, p->multiProcessorCount},
    {hipDeviceAttributeMemoryPoolsSupported, p->memoryPoolsSupported}};
  size_t i;
  int value;
  for (i = 0; i < sizeof all / sizeof *all; i++) {
    HIP(hipDeviceGetAttribute(&value, all[i].which, 2));
    if (value != all[i].value) fprintf(stderr, "attribute %d: %d, not %d\n", (int)all[i].which, value, all[i].value);
    CHECK(value == all[i].value && value > 0);
  }
}

/* A direction that CUDA does not have. */
static void copies_without_compute_units(void) {
  char *a, *b;
  hipStream_t s;
  HIP(hipStreamCreate(&s));
  HIP(hipMalloc((void**)&a, 8));
  HIP(hipMalloc((void**)&b, 8));
  HIP(hipMemset(a, 3, 8));
  HIP(hipMemcpy(b, a, 4, hipMemcpyDeviceToDeviceNoCU));
  HIP(hipMemcpyAsync(b + 4, a + 4, 4, hipMemcpyDeviceToDeviceNoCU, s));
  HIP(hipStreamSynchronize(s));
  CHECK(b[0] == 3 && b[7] == 3);
  CHECK(hipMemcpy(b, a, 4, (hipMemcpyKind)1025) == hipErrorInvalidMemcpyDirection);
  HIP(hipFree(a));
  HIP(hipFree(b));
  HIP(hipStreamDestroy(s));
}

int main(void) {
  hipDeviceProp_t p;
  int value = -1;
  const char* text = NULL;
  memset(&p, 0x55, sizeof p);
  HIP(hipGetDeviceProperties(&p, 2));
  CHECK(!strcmp(p.gcnArchName, "oxccl-host") && p.pciBusID == 3 && p.pciDomainID == 0 && p.ipcEventSupported == 1);
  CHECK(p.isLargeBar == 0 && p.asicRevision == 0 && p.arch.hasDoubles == 0 && p.totalGlobalMem > (64u << 20));
  instantiation();
  attributes(&p);
  copies_without_compute_units();
  HIP(hipDeviceGetP2PAttribute(&value, hipDevP2PAttrAccessSupported, 0, 1));
  CHECK(value == 1);
  CHECK(hipDeviceGetP2PAttribute(&value, (hipDeviceP2PAttr)4, 0, 1) == hipErrorInvalidValue);
  HIP(hipDrvGetErrorName(hipErrorLaunchTimeOut, &text));
  CHECK(!strcmp(text, "hipErrorLaunchTimeOut") && !strcmp(hipGetErrorName(hipErrorInvalidTexture), "hipErrorInvalidTexture"));
  HIP(hipDeviceGet(&value, 1));
  CHECK(value == 1);
  puts("all fine");
  return 0;
}
