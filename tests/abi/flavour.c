/* Where the two libraries differ, as their originals do; what they print is checked by whoever runs this. */
#include "abi_test.h"

#ifdef ABI_RCCL
#define IS_RCCL 1
#else
#define IS_RCCL 0
#endif

static ncclResult_t init(ncclComm_t* comm, ncclConfig_t* config) {
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  return ncclCommInitRankConfig(comm, 1, id, 0, config);
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm;
  bound_time();
  /* The greatest number of channels. */
  config.nChannelsPerNetPeer = 256;
  CHECK(init(&comm, &config) == (IS_RCCL ? ncclSuccess : ncclInvalidArgument));
  if (IS_RCCL) OK(ncclCommDestroy(comm));
  CHECK((comm == NULL) == !IS_RCCL);
  config.nChannelsPerNetPeer = 257;
  CHECK(init(&comm, &config) == ncclInvalidArgument);
  CHECK(strstr(ncclGetLastError(NULL), "nChannelsPerNetPeer") != NULL);
  config.nChannelsPerNetPeer = 64;
  OK(init(&comm, &config));
  /* A revoked communicator cannot be finalized. */
  OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  CHECK(ncclCommFinalize(comm) == (IS_RCCL ? ncclInvalidUsage : ncclInvalidArgument));
  OK(ncclCommDestroy(comm));
  /* A failure of the device has a level of its own in RCCL. */
  CHECK(ncclMemAlloc(NULL, 8) == ncclUnhandledCudaError);
  return 0;
}
