/* PreMulSum with scalars of the host and of the device, a scalar of its own on every rank. */
#include "abi_test.h"

#define RANKS 3
#define COUNT 1000

static ncclComm_t comms[RANKS];
static oxcclStream_t streams[RANKS];
static float *in[RANKS], *out[RANKS], *scalars[RANKS];

static void run(ncclScalarResidence_t residence) {
  ncclRedOp_t ops[RANKS];
  float want = 0;
  for (int r = 0; r < RANKS; r++) {
    float scalar = (float)(r + 2);
    *scalars[r] = scalar;
    want += scalar * (float)(r + 1);
    for (int i = 0; i < COUNT; i++) in[r][i] = (float)(r + 1);
    if (residence == ncclScalarHostImmediate) {
      OK(ncclRedOpCreatePreMulSum(&ops[r], &scalar, ncclFloat, residence, comms[r]));
      scalar = -1; /* it was read already */
    } else {
      OK(ncclRedOpCreatePreMulSum(&ops[r], scalars[r], ncclFloat, residence, comms[r]));
    }
    CHECK((int)ops[r] >= (int)ncclNumOps);
  }
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclAllReduce(in[r], out[r], COUNT, ncclFloat, ops[r], comms[r], streams[r]));
  OK(ncclGroupEnd());
  for (int r = 0; r < RANKS; r++) {
    OK(oxcclStreamSynchronize(streams[r]));
    for (int i = 0; i < COUNT; i++) CHECK(out[r][i] == want);
  }
  /* An operator is for one type and one communicator, until it is destroyed. */
  CHECK(ncclAllReduce(in[0], out[0], COUNT, ncclInt32, ops[0], comms[0], streams[0]) == ncclInvalidArgument);
  for (int r = 0; r < RANKS; r++) OK(ncclRedOpDestroy(ops[r], comms[r]));
  CHECK(ncclAllReduce(in[0], out[0], COUNT, ncclFloat, ops[0], comms[0], streams[0]) == ncclInvalidArgument);
  CHECK(ncclRedOpDestroy(ops[0], comms[0]) == ncclInvalidArgument);
}

int main(void) {
  bound_time();
  OK(ncclCommInitAll(comms, RANKS, NULL));
  for (int r = 0; r < RANKS; r++) {
    OK(oxcclSetDevice(r));
    OK(oxcclStreamCreate(&streams[r]));
    in[r] = (float*)allocate(COUNT * 4);
    out[r] = (float*)allocate(COUNT * 4);
    scalars[r] = (float*)allocate(4);
  }
  run(ncclScalarHostImmediate);
  run(ncclScalarDevice);
  for (int r = 0; r < RANKS; r++) {
    OK(ncclMemFree(in[r]));
    OK(ncclMemFree(out[r]));
    OK(ncclMemFree(scalars[r]));
    OK(oxcclStreamDestroy(streams[r]));
  }
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  OK(ncclGroupEnd());
  return 0;
}
