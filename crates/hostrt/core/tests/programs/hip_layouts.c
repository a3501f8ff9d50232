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
_Static_assert(hipDevP2PAttrPerformanceRank == 0 && hipDevP2PAttrHipArrayAccessSupported == 3, "peers");
_Static_assert(hipDeviceAttributePciBusId == 67 && hipDeviceAttributeMemoryPoolsSupported == 88, "attributes");
_Static_assert(hipErrorLaunchTimeOut == 702 && hipErrorInvalidTexture == 912, "errors");

int main(void) {
  hipDeviceProp_t p;
  int value = -1;
  const char* text = NULL;
  memset(&p, 0x55, sizeof p);
  HIP(hipGetDeviceProperties(&p, 2));
  CHECK(!strcmp(p.gcnArchName, "oxccl-host") && p.pciBusID == 3 && p.pciDomainID == 0 && p.ipcEventSupported == 1);
  CHECK(p.isLargeBar == 0 && p.asicRevision == 0 && p.arch.hasDoubles == 0 && p.totalGlobalMem > (64u << 20));
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
