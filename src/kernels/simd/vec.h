// Sixteen f32 lanes, in one source for every instruction set: the compiler's vector types, with intrinsics where the
// plain form is slow. What is not here on purpose: memory that must be aligned, and any operation that mixes lanes
// except the fixed-order sums. A partial load puts 0 in the lanes beyond its count, so a row's order of summation
// depends on its length only.
#pragma once
#include "base/dtype.h"

#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { LANES = 16 };
typedef float v16f __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
typedef uint16_t v16h __attribute__((vector_size(32)));
typedef float v16f_any __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t v16h_any __attribute__((vector_size(32), aligned(2), may_alias));

#define CT_INLINE static inline __attribute__((always_inline, unused))

CT_INLINE v16f v_set(float x) { return (v16f){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
CT_INLINE v16f v_zero(void) { return (v16f){0}; }

// mask's lanes are all ones or 0: a where ones, b elsewhere.
CT_INLINE v16f v_select(v16i mask, v16f a, v16f b) { return (v16f)(((v16i)a & mask) | ((v16i)b & ~mask)); }

CT_INLINE v16f v_abs(v16f x) { return (v16f)((v16u)x & 0x7fffffffu); }

// a·b + c, fused where the machine fuses.
CT_INLINE v16f v_fma(v16f a, v16f b, v16f c) {
#ifdef __AVX512F__
    return (v16f)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined __FMA__
    union {
        v16f all;
        __m256 half[2];
    } x = {a}, y = {b}, z = {c};
    z.half[0] = _mm256_fmadd_ps(x.half[0], y.half[0], z.half[0]);
    z.half[1] = _mm256_fmadd_ps(x.half[1], y.half[1], z.half[1]);
    return z.all;
#else
    return a * b + c;
#endif
}

// The larger; b where either is NaN.
CT_INLINE v16f v_max(v16f a, v16f b) {
#ifdef __AVX512F__
    return (v16f)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return v_select(a > b, a, b);
#endif
}
// The smaller; b where either is NaN.
CT_INLINE v16f v_min(v16f a, v16f b) {
#ifdef __AVX512F__
    return (v16f)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return v_select(a < b, a, b);
#endif
}

CT_INLINE v16f v_sqrt(v16f x) {
#ifdef __AVX512F__
    return (v16f)_mm512_sqrt_ps((__m512)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

// The sum of the lanes by one fixed tree: lane i and i + 8, then i + 4, i + 2, i + 1.
CT_INLINE float v_sum(v16f x) {
#ifdef __AVX512F__
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
#else
    float a[LANES];
    memcpy(a, &x, sizeof a);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) a[i] += a[i + half];
    return a[0];
#endif
}
CT_INLINE float v_max_lane(v16f x) {
    float a[LANES], m;
    memcpy(a, &x, sizeof a);
    m = a[0];
    for (int i = 1; i < LANES; i++) m = a[i] > m ? a[i] : m;
    return m;
}

// bf16 ↔ f32: exact, and round to nearest even with NaN kept, as ct_bf16_from_f32 (VCVTNEPS2BF16 would flush
// denormals).
CT_INLINE v16f v_from_bf16(v16h x) {
#ifdef __AVX512F__
    return (v16f)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16);
#else
    return (v16f)(__builtin_convertvector(x, v16u) << 16);
#endif
}
CT_INLINE v16h v_to_bf16(v16f x) {
#ifdef __AVX512F__
    __m512i u = (__m512i)x, high = _mm512_srli_epi32(u, 16);
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    __m512i odd = _mm512_and_epi32(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    return (v16h)_mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
#else
    v16u u = (v16u)x, rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    v16i nan = x != x;
    rounded = (rounded & ~(v16u)nan) | (((u >> 16) | 0x40) & (v16u)nan);
    return __builtin_convertvector(rounded, v16h);
#endif
}

// Loads and stores of n ≤ 16 elements at element i of x, an array of f32 or bf16.
CT_INLINE v16f v_load(const void *x, int64_t i, int n, ct_dtype dtype) {
    if (dtype == CT_BF16) {
        const uint16_t *p = (const uint16_t *)x + i;
        if (n >= LANES) return v_from_bf16(*(const v16h_any *)p);
#ifdef __AVX512BW__
        return v_from_bf16((v16h)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
#else
        v16h h = {0};
        memcpy(&h, p, 2 * (size_t)n);
        return v_from_bf16(h);
#endif
    }
    const float *p = (const float *)x + i;
    if (n >= LANES) return *(const v16f_any *)p;
#ifdef __AVX512F__
    return (v16f)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    v16f f = {0};
    memcpy(&f, p, 4 * (size_t)n);
    return f;
#endif
}
CT_INLINE void v_store(void *x, int64_t i, int n, ct_dtype dtype, v16f value) {
    if (dtype == CT_BF16) {
        uint16_t *p = (uint16_t *)x + i;
        v16h h = v_to_bf16(value);
        if (n >= LANES)
            *(v16h_any *)p = h;
        else
#ifdef __AVX512BW__
            _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)h);
#else
            memcpy(p, &h, 2 * (size_t)n);
#endif
        return;
    }
    float *p = (float *)x + i;
    if (n >= LANES)
        *(v16f_any *)p = value;
    else
#ifdef __AVX512F__
        _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)value);
#else
        memcpy(p, &value, 4 * (size_t)n);
#endif
}

// All ones in lanes below n.
CT_INLINE v16i v_below(int n) {
    const v16i lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return lane < (v16i){n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n};
}

// e^x within 1.1 ulp (1.6 without FMA) of a normal result; results below 2^-126 are rounded once more; NaN gives NaN,
// and x > 88.723 inf. x = n ln 2 + r with |r| ≤ ln 2 / 2; e^r by its Taylor series to r^7 (remainder 2^-28 relative
// at the ends).
CT_INLINE v16f v_exp(v16f x) {
    const v16f bias = v_set(12582912.0f); // 1.5 · 2^23: adding it rounds to an integer
    v16f clamped = v_max(v_set(-150.0f), v_min(v_set(90.0f), x));
    v16f n = (v_fma(clamped, v_set(1.44269504f), bias)) - bias;
    v16f r = v_fma(n, v_set(-0.693359375f), clamped);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    v16f p = v_set(1.98412698e-4f);
    p = v_fma(p, r, v_set(1.38888889e-3f));
    p = v_fma(p, r, v_set(8.33333333e-3f));
    p = v_fma(p, r, v_set(4.16666667e-2f));
    p = v_fma(p, r, v_set(1.66666667e-1f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p * r, r, r) + v_set(1.0f);
#ifdef __AVX512F__
    return (v16f)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    v16i k = __builtin_convertvector(n, v16i), half = k >> 1; // NaN's n is masked below
    v16f scaled = p * (v16f)((half + 127) << 23) * (v16f)((k - half + 127) << 23);
    return v_select(x != x, x, scaled);
#endif
}
