// A C++ program on every function that the headers declare: each name links with its twin, and both have one type.
#include "abi_test.h"

#define BOTH(name) static_assert(sizeof(&name) == sizeof(&p##name), ""); names[count++] = {#name, (void*)&name, (void*)&p##name}
#define SAME(name) do { decltype(&name) twin = &p##name; CHECK(twin != nullptr); BOTH(name); } while (0)

struct Name { const char* name; void* function; void* twin; };

int main() {
  Name names[64];
  int count = 0;
  SAME(ncclMemAlloc); SAME(ncclMemFree); SAME(ncclGetVersion); SAME(ncclGetUniqueId); SAME(ncclCommInitRankConfig);
  SAME(ncclCommInitRank); SAME(ncclCommInitAll); SAME(ncclCommFinalize); SAME(ncclCommDestroy); SAME(ncclCommAbort);
  SAME(ncclCommRevoke); SAME(ncclCommSplit); SAME(ncclCommShrink); SAME(ncclCommGetUniqueId); SAME(ncclCommGrow);
  SAME(ncclCommInitRankScalable); SAME(ncclGetErrorString); SAME(ncclGetLastError); SAME(ncclCommGetAsyncError);
  SAME(ncclCommCount); SAME(ncclCommCuDevice); SAME(ncclCommUserRank); SAME(ncclCommRegister);
  SAME(ncclCommDeregister); SAME(ncclCommSuspend); SAME(ncclCommResume); SAME(ncclCommMemStats);
  SAME(ncclCommWindowRegister); SAME(ncclCommWindowDeregister); SAME(ncclWinGetUserPtr);
  SAME(ncclRedOpCreatePreMulSum); SAME(ncclRedOpDestroy); SAME(ncclReduce); SAME(ncclBcast); SAME(ncclBroadcast);
  SAME(ncclAllReduce); SAME(ncclReduceScatter); SAME(ncclAllGather); SAME(ncclAlltoAll); SAME(ncclGather);
  SAME(ncclScatter); SAME(ncclSend); SAME(ncclRecv); SAME(ncclPutSignal); SAME(ncclSignal); SAME(ncclWaitSignal);
  SAME(ncclGroupStart); SAME(ncclGroupEnd); SAME(ncclGroupSimulateEnd);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  SAME(ncclResetDebugInit);
#pragma GCC diagnostic pop
#ifdef ABI_RCCL
  SAME(ncclAllReduceWithBias); SAME(ncclAlltoAllv); SAME(ncclAllToAll); SAME(ncclAllToAllv); SAME(mscclLoadAlgo);
  SAME(mscclRunAlgo); SAME(mscclUnloadAlgo);
#endif
  for (int i = 0; i < count; i++) CHECK(names[i].function != nullptr && names[i].twin != nullptr);
  int version = 0, twin_version = 0;
  OK(ncclGetVersion(&version));
  OK(pncclGetVersion(&twin_version));
  CHECK(version == NCCL_VERSION_CODE && twin_version == version);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(config.size == 88 && config.magic == 0xcafebeef && config.version == 22907 && config.numRmaCtx == INT_MIN);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CHECK(info.size == 24 && info.magic == 0x74685283 && info.estimatedTime == -1.0f);
  return 0;
}
