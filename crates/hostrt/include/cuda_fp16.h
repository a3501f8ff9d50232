/*
 * cuda_fp16.h - the storage type of half-precision numbers, as oxccl's host runtime offers it: no arithmetic, only
 * conversions from and to float for C++.
 */
#ifndef __CUDA_FP16_H__
#define __CUDA_FP16_H__

typedef struct { unsigned short x; } __half_raw;

#ifdef __cplusplus
#include <string.h>

struct __half {
  unsigned short __x;
  __half() = default;
  __half(const __half_raw& raw) : __x(raw.x) {}
  explicit __half(float f) : __x(from_float(f)) {}
  operator float() const { return to_float(__x); }
  operator __half_raw() const { __half_raw r; r.x = __x; return r; }

  /* Rounds to the nearest, ties to even. */
  static unsigned short from_float(float f) {
    unsigned int u;
    memcpy(&u, &f, sizeof u);
    unsigned int sign = (u >> 16) & 0x8000u;
    unsigned int a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (unsigned short)0x7fffu;
    if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (a < 0x33000001u) return (unsigned short)sign;
    int e = (int)(a >> 23) - 127;
    unsigned int m = (a & 0x7fffffu) | 0x800000u;
    unsigned int shift = e < -14 ? (unsigned int)(-e - 1) : 13u;
    unsigned int h = m >> shift;
    unsigned int rest = m & ((1u << shift) - 1u);
    unsigned int half = 1u << (shift - 1u);
    if (rest > half || (rest == half && (h & 1u))) ++h;
    if (e >= -14) h += (unsigned int)(e + 14) << 10;
    return (unsigned short)(sign | h);
  }

  static float to_float(unsigned short h) {
    unsigned int sign = (unsigned int)(h & 0x8000u) << 16;
    unsigned int e = (h >> 10) & 31u, m = h & 0x3ffu, u;
    if (e == 31u) {
      u = sign | 0x7f800000u | (m << 13);
    } else if (e != 0u) {
      u = sign | ((e + 112u) << 23) | (m << 13);
    } else {
      float f = (float)m * (1.0f / 16777216.0f);
      return sign ? -f : f;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
  }
};

static inline __half __float2half(float f) { return __half(f); }
static inline float __half2float(__half h) { return (float)h; }
#else
typedef struct { unsigned short __x; } __half;
#endif

typedef __half half;

#endif /* __CUDA_FP16_H__ */
