/* Prints where the fields of the structs lie and what the enumerators are: oxccl's header has to agree with NVIDIA's. */
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define AT(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))

int main(void) {
  SIZE(struct cudaDeviceProp);
  AT(struct cudaDeviceProp, uuid);
  AT(struct cudaDeviceProp, totalGlobalMem);
  AT(struct cudaDeviceProp, multiProcessorCount);
  AT(struct cudaDeviceProp, pciBusID);
  AT(struct cudaDeviceProp, concurrentManagedAccess);
  AT(struct cudaDeviceProp, ipcEventSupported);
  SIZE(struct cudaPointerAttributes);
  SIZE(cudaIpcMemHandle_t);
  SIZE(cudaIpcEventHandle_t);
  SIZE(struct cudaMemcpy3DParms);
  AT(struct cudaMemcpy3DParms, dstPtr);
  AT(struct cudaMemcpy3DParms, extent);
  SIZE(struct cudaMemcpy3DPeerParms);
  AT(struct cudaMemcpy3DPeerParms, dstDevice);
  SIZE(struct cudaMemcpy3DBatchOp);
  AT(struct cudaMemcpy3DBatchOp, dst);
  SIZE(struct cudaMemcpyAttributes);
  SIZE(struct cudaMemPoolProps);
  AT(struct cudaMemPoolProps, maxSize);
  SIZE(struct cudaMemAccessDesc);
  SIZE(struct cudaMemsetParams);
  AT(struct cudaMemsetParams, elementSize);
  SIZE(struct cudaHostNodeParams);
  SIZE(struct cudaMemAllocNodeParams);
  AT(struct cudaMemAllocNodeParams, dptr);
  SIZE(struct cudaKernelNodeParams);
  SIZE(struct cudaGraphNodeParams);
  AT(struct cudaGraphNodeParams, memcpy);
  AT(struct cudaGraphNodeParams, host);
  SIZE(cudaGraphEdgeData);
  SIZE(cudaGraphInstantiateParams);
  AT(cudaGraphInstantiateParams, result_out);
  SIZE(cudaGraphExecUpdateResultInfo);
  SIZE(struct cudaFuncAttributes);
  AT(struct cudaFuncAttributes, maxDynamicSharedSizeBytes);
  SIZE(cudaLaunchAttributeValue);
  NUMBER(cudaErrorStreamCaptureImplicit);
  NUMBER(cudaErrorCapturedEvent);
  NUMBER(cudaErrorUnsupportedLimit);
  NUMBER(cudaErrorPeerAccessAlreadyEnabled);
  NUMBER(cudaErrorGraphExecUpdateFailure);
  NUMBER(cudaDevAttrIpcEventSupport);
  NUMBER(cudaDevAttrMemoryPoolsSupported);
  NUMBER(cudaMemPoolAttrUsedMemHigh);
  NUMBER(cudaMemRangeAttributeLastPrefetchLocationId);
  NUMBER(cudaGraphNodeTypeMemFree);
  NUMBER(cudaGraphMemAttrReservedMemHigh);
  NUMBER(cudaGraphUserObjectMove);
  NUMBER(cudaStreamSetCaptureDependencies);
  NUMBER(cudaLaunchAttributePriority);
  NUMBER(cudaLaunchAttributeSynchronizationPolicy);
  NUMBER(cudaFuncAttributePreferredSharedMemoryCarveout);
  NUMBER(cudaDevP2PAttrCudaArrayAccessSupported);
  NUMBER(cudaGraphInstantiateFlagUseNodePriority);
  NUMBER(cudaEventInterprocess);
  NUMBER(cudaEventRecordExternal);
  return 0;
}
