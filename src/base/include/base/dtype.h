// Element types, and the conversions that every layer shares.
#pragma once
#include <stdint.h>
#include <stddef.h>
#include <string.h>

typedef enum { CT_F32 = 0, CT_BF16, CT_F64, CT_I32, CT_I64, CT_DTYPES } ct_dtype;

// Limits of a tensor and of an op, shared by graph and kernels.
enum { CT_MAX_DIMS = 6, CT_MAX_INPUTS = 12, CT_MAX_OUTPUTS = 4, CT_MAX_ATTRS = 8 };

// Size of one element in bytes.
static inline size_t ct_dtype_bytes(ct_dtype dtype) {
    return dtype == CT_BF16 ? 2 : dtype == CT_F64 || dtype == CT_I64 ? 8 : 4;
}
const char *ct_dtype_name(ct_dtype dtype);                  // "f32", "bf16", …
int ct_dtype_parse(const char *name, ct_dtype *out_dtype);  // 1 where the name is known

// Round to nearest even; NaN stays NaN (quiet).
static inline uint16_t ct_bf16_from_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
static inline float ct_f32_from_bf16(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}
