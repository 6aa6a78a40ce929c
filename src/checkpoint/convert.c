// Conversions go through double or float and round once, to nearest even. Left out: float8 and smaller, and integers of other widths.
#include "convert.h"

float ct_f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
    if (exponent == 31) bits = sign | 0x7f800000u | mantissa << 13;
    else if (exponent) bits = sign | (exponent + 112) << 23 | mantissa << 13;
    else { // zero or subnormal: mantissa · 2^-24 is exact
        float x = (float)mantissa * 0x1p-24f;
        return sign ? -x : x;
    }
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

uint16_t ct_f16_from_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return sign | 0x7e00;
    if (bits >= 0x477ff000u) return sign | 0x7c00; // 65520 and above round to infinity
    if (bits < 0x38800000u) {                      // below 2^-14: the sum with 0.5 rounds to a multiple of 2^-24
        float magnitude, half = 0.5f;
        memcpy(&magnitude, &bits, 4);
        magnitude += half;
        memcpy(&bits, &magnitude, 4);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    bits += 0xfffu + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

static int is_float(ct_stored_type type) {
    return type == CT_ST_F64 || type == CT_ST_F32 || type == CT_ST_F16 || type == CT_ST_BF16;
}

int ct_convert_is_possible(ct_stored_type from, ct_dtype to) {
    if (to == CT_F32 || to == CT_BF16 || to == CT_F64) return is_float(from);
    return from == ct_stored_type_of(to);
}

static double load(ct_stored_type from, const void *in, int64_t i) {
    if (from == CT_ST_F64) return ((const double *)in)[i];
    if (from == CT_ST_F32) return ((const float *)in)[i];
    uint16_t half = ((const uint16_t *)in)[i];
    return from == CT_ST_F16 ? ct_f32_from_f16(half) : ct_f32_from_bf16(half);
}

// A double to bf16 in one rounding: where float rounding was inexact, its last bit is made odd so that the second decides rightly.
static uint16_t bf16_from_f64(double x) {
    float y = (float)x;
    if ((double)y != x && x == x && y - y == 0) {
        uint32_t bits;
        memcpy(&bits, &y, 4);
        if (__builtin_fabs((double)y) > __builtin_fabs(x)) bits--;
        bits |= 1;
        memcpy(&y, &bits, 4);
    }
    return ct_bf16_from_f32(y);
}

static void convert_any(ct_dtype to, void *out, ct_stored_type from, const void *in, int64_t elems) {
    for (int64_t i = 0; i < elems; i++) {
        double x = load(from, in, i);
        if (to == CT_F64) ((double *)out)[i] = x;
        else if (to == CT_F32) ((float *)out)[i] = (float)x;
        else ((uint16_t *)out)[i] = bf16_from_f64(x);
    }
}

void ct_convert_in(ct_dtype to, void *out, ct_stored_type from, const void *in, int64_t elems) {
    if (from == ct_stored_type_of(to)) {
        memcpy(out, in, (size_t)elems * ct_dtype_bytes(to));
    } else if (to == CT_F32 && from == CT_ST_BF16) {
        for (int64_t i = 0; i < elems; i++) ((float *)out)[i] = ct_f32_from_bf16(((const uint16_t *)in)[i]);
    } else if (to == CT_BF16 && from == CT_ST_F32) {
        for (int64_t i = 0; i < elems; i++) ((uint16_t *)out)[i] = ct_bf16_from_f32(((const float *)in)[i]);
    } else {
        convert_any(to, out, from, in, elems);
    }
}
