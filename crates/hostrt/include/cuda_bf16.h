/*
 * cuda_bf16.h - the storage type of bfloat16 numbers, as oxccl's host runtime offers it: no arithmetic, only conversions
 * from and to float for C++.
 */
#ifndef __CUDA_BF16_H__
#define __CUDA_BF16_H__

typedef struct { unsigned short x; } __nv_bfloat16_raw;

#ifdef __cplusplus
#include <string.h>

struct __nv_bfloat16 {
  unsigned short __x;
  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  explicit __nv_bfloat16(float f) : __x(from_float(f)) {}
  operator float() const { return to_float(__x); }
  operator __nv_bfloat16_raw() const { __nv_bfloat16_raw r; r.x = __x; return r; }

  /* Rounds to the nearest, ties to even. */
  static unsigned short from_float(float f) {
    unsigned int u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (unsigned short)0x7fffu;
    return (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }

  static float to_float(unsigned short b) {
    unsigned int u = (unsigned int)b << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
  }
};

static inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
static inline float __bfloat162float(__nv_bfloat16 b) { return (float)b; }
#else
typedef struct { unsigned short __x; } __nv_bfloat16;
#endif

typedef __nv_bfloat16 nv_bfloat16;

#endif /* __CUDA_BF16_H__ */
