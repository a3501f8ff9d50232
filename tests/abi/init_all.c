/* One process, one thread, four ranks: every data type and operator in groups, counts ALLREDUCES calls in all. */
#include "abi_test.h"

#define RANKS 4
#define COUNT 257

/* 1, 2, 3, 4, 10 (their sum), 24 (their product) in each data type; little endian. */
static const struct {
  ncclDataType_t type;
  size_t size;
  uint64_t value[6];
} types[] = {
  {ncclInt8, 1, {1, 2, 3, 4, 10, 24}},
  {ncclUint8, 1, {1, 2, 3, 4, 10, 24}},
  {ncclInt32, 4, {1, 2, 3, 4, 10, 24}},
  {ncclUint32, 4, {1, 2, 3, 4, 10, 24}},
  {ncclInt64, 8, {1, 2, 3, 4, 10, 24}},
  {ncclUint64, 8, {1, 2, 3, 4, 10, 24}},
  {ncclFloat16, 2, {0x3c00, 0x4000, 0x4200, 0x4400, 0x4900, 0x4e00}},
  {ncclFloat32, 4, {0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x41200000, 0x41c00000}},
  {ncclFloat64, 8,
   {0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000, 0x4010000000000000, 0x4024000000000000,
    0x4038000000000000}},
  {ncclBfloat16, 2, {0x3f80, 0x4000, 0x4040, 0x4080, 0x4120, 0x41c0}},
  {ncclFloat8e4m3, 1, {0x38, 0x40, 0x44, 0x48, 0x52, 0x5c}},
  {ncclFloat8e5m2, 1, {0x3c, 0x40, 0x42, 0x44, 0x49, 0x4e}},
};

/* Which value each operator gives from 1, 2, 3, 4. */
static const struct {
  ncclRedOp_t op;
  int index;
} ops[] = {{ncclSum, 4}, {ncclProd, 5}, {ncclMax, 3}, {ncclMin, 0}};

int main(void) {
  ncclComm_t comms[RANKS];
  oxcclStream_t streams[RANKS];
  char *in[RANKS], *out[RANKS];
  int devices[RANKS] = {3, 1, 0, 2}, version = 0;
  bound_time();
  OK(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE);
  OK(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; r++) {
    int rank = -1, count = -1, device = -1;
    OK(ncclCommUserRank(comms[r], &rank));
    OK(ncclCommCount(comms[r], &count));
    OK(ncclCommCuDevice(comms[r], &device));
    CHECK(rank == r && count == RANKS && device == devices[r]);
    OK(oxcclSetDevice(devices[r]));
    OK(oxcclStreamCreate(&streams[r]));
    in[r] = (char*)allocate(COUNT * 8);
    out[r] = (char*)allocate(COUNT * 8);
  }
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
      size_t size = types[t].size;
      OK(ncclGroupStart());
      for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < COUNT; i++) memcpy(in[r] + i * size, &types[t].value[r], size);
        OK(ncclAllReduce(in[r], out[r], COUNT, types[t].type, ops[o].op, comms[r], streams[r]));
      }
      OK(ncclGroupEnd());
      for (int r = 0; r < RANKS; r++) {
        OK(oxcclStreamSynchronize(streams[r]));
        for (size_t i = 0; i < COUNT; i++) {
          if (memcmp(out[r] + i * size, &types[t].value[ops[o].index], size) != 0) {
            fprintf(stderr, "type %d, op %d, rank %d, element %zu is wrong\n", (int)types[t].type,
                    (int)ops[o].op, r, i);
            return 1;
          }
        }
      }
    }
  }
  for (int r = 0; r < RANKS; r++) {
    OK(ncclMemFree(in[r]));
    OK(ncclMemFree(out[r]));
    OK(oxcclStreamDestroy(streams[r]));
  }
  OK(ncclGroupStart());
  for (int r = 0; r < RANKS; r++) OK(ncclCommDestroy(comms[r]));
  OK(ncclGroupEnd());
  printf("allreduces %zu\n", RANKS * (sizeof types / sizeof *types) * (sizeof ops / sizeof *ops));
  return 0;
}
