/* Small numbers in every data type of the interface, written and read without the library: an independent count. */
#ifndef ABI_VALUES_H_
#define ABI_VALUES_H_
#include "abi_test.h"

enum { TYPES = ncclNumTypes };

static inline size_t type_size(ncclDataType_t type) {
  static const unsigned char size[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return size[type];
}

static inline int type_is_float(ncclDataType_t type) { return type >= ncclFloat16; }
static inline int type_is_signed(ncclDataType_t type) {
  return type != ncclUint8 && type != ncclUint32 && type != ncclUint64;
}

/* Bits of the exponent and of the fraction of the small floating types. */
static inline void small_float(ncclDataType_t type, int* exponent, int* fraction) {
  *exponent = type == ncclFloat16 || type == ncclFloat8e5m2 ? 5 : type == ncclBfloat16 ? 8 : 4;
  *fraction = type == ncclFloat16 ? 10 : type == ncclBfloat16 ? 7 : type == ncclFloat8e4m3 ? 3 : 2;
}

/* The bits of a value that the type has exactly, as a normal number or zero. */
static inline uint32_t small_float_of(ncclDataType_t type, double value) {
  int exponent_bits, fraction_bits, exponent;
  uint32_t sign = value < 0;
  double size = sign ? -value : value;
  small_float(type, &exponent_bits, &fraction_bits);
  if (size == 0) return 0;
  exponent = (1 << (exponent_bits - 1)) - 1;
  while (size >= 2) size /= 2, exponent++;
  while (size < 1) size *= 2, exponent--;
  uint32_t fraction = (uint32_t)((size - 1) * (1 << fraction_bits));
  return sign << (exponent_bits + fraction_bits) | (uint32_t)exponent << fraction_bits | fraction;
}

static inline double small_float_value(ncclDataType_t type, uint32_t bits) {
  int exponent_bits, fraction_bits;
  small_float(type, &exponent_bits, &fraction_bits);
  uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  double value = (double)fraction / (1 << fraction_bits) + (exponent != 0);
  int power = (exponent ? exponent : 1) - ((1 << (exponent_bits - 1)) - 1);
  for (; power > 0; power--) value *= 2;
  for (; power < 0; power++) value /= 2;
  return bits >> (exponent_bits + fraction_bits) & 1 ? -value : value;
}

/* Writes element `index` of an array. */
static inline void put(ncclDataType_t type, void* array, size_t index, double value) {
  char* at = (char*)array + index * type_size(type);
  int64_t whole = (int64_t)value;
  float single = (float)value;
  uint32_t bits;
  switch ((int)type) {
    case ncclFloat32: memcpy(at, &single, 4); break;
    case ncclFloat64: memcpy(at, &value, 8); break;
    case ncclFloat16: case ncclBfloat16: case ncclFloat8e4m3: case ncclFloat8e5m2:
      bits = small_float_of(type, value);
      memcpy(at, &bits, type_size(type)); /* little endian */
      break;
    default: memcpy(at, &whole, type_size(type));
  }
}

/* Reads element `index` of an array. */
static inline double get(ncclDataType_t type, const void* array, size_t index) {
  const char* at = (const char*)array + index * type_size(type);
  uint64_t whole = 0;
  uint32_t bits = 0;
  float single;
  double wide;
  switch ((int)type) {
    case ncclFloat32: memcpy(&single, at, 4); return (double)single;
    case ncclFloat64: memcpy(&wide, at, 8); return wide;
    case ncclFloat16: case ncclBfloat16: case ncclFloat8e4m3: case ncclFloat8e5m2:
      memcpy(&bits, at, type_size(type));
      return small_float_value(type, bits);
    default: memcpy(&whole, at, type_size(type));
  }
  if (type == ncclInt8) return (double)(int8_t)whole;
  if (type == ncclInt32) return (double)(int32_t)whole;
  return type == ncclInt64 ? (double)(int64_t)whole : (double)whole;
}

#endif
