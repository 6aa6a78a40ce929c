// The register tile of attention's products, and the packing that feeds it.
//
// Everything is in 32-bit words. With f32 arithmetic a word is one number; with bf16 arithmetic (BF16_DOT) it is two
// neighbours along the depth of the product, and a step is VDPBF16PS. C[i][j] (+)= sum over k of A[i][k]·B[k][j]: six
// rows by up to four vectors, A a broadcast word with any strides, B rows of vectors. Each element of C is one chain
// over k, ascending: no tile changes its bits. Left out: rows that are no multiple of six (operands are padded),
// prefetching, blocking for the outer caches.
#pragma once
#include "../simd/vec.h"

#if CT_BF16_DOT
enum { BF16_DOT = 1 };
#else
enum { BF16_DOT = 0 };
#endif
enum { TILE = 6, KEYS = 64, KEY_VECTORS = KEYS / LANES, KEY_WORDS = BF16_DOT ? KEYS / 2 : KEYS, KEY_ROWS = 66 };

// How a tile of C begins: at 0, at what C holds, or at C[i][j]·scale[i].
typedef enum { FRESH, ADDED, SCALED } beginning;

typedef struct {
    const uint32_t *words;
    int64_t row, step; // words from row to row, and from step to step of the depth
} a_operand;

CT_INLINE __m512 multiply_add(__m512 sum, uint32_t a, __m512i b) {
#if CT_BF16_DOT
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
#else
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32((int)a)), _mm512_castsi512_ps(b), sum);
#endif
}

CT_INLINE void tile(const int vectors, beginning how, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step,
                    float *c, int64_t c_row, const float *scale) {
    __m512 sum[TILE][4];
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = how == FRESH ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * c_row + j * LANES);
            if (how == SCALED) sum[i][j] = _mm512_mul_ps(sum[i][j], _mm512_set1_ps(scale[i]));
        }
    const uint32_t *a0 = a.words, *a3 = a.words + 3 * a.row;
    for (int64_t k = 0; k < steps; k++, a0 += a.step, a3 += a.step, b += b_step) {
        __m512i bk[4];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) bk[j] = _mm512_loadu_si512(b + j * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < TILE; i++) {
            uint32_t ak = (i < 3 ? a0 : a3)[i % 3 * a.row];
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] = multiply_add(sum[i][j], ak, bk[j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) _mm512_storeu_ps(c + i * c_row + j * LANES, sum[i][j]);
}

CT_INLINE void tile_of(int vectors, beginning how, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step,
                       float *c, int64_t c_row, const float *scale) {
    if (vectors == 4)
        tile(4, how, steps, a, b, b_step, c, c_row, scale);
    else if (vectors == 3)
        tile(3, how, steps, a, b, b_step, c, c_row, scale);
    else if (vectors == 2)
        tile(2, how, steps, a, b, b_step, c, c_row, scale);
    else
        tile(1, how, steps, a, b, b_step, c, c_row, scale);
}

// Six rows of C with any number of vectors, cut into even panels of at most four.
CT_INLINE void panels(beginning how, int vectors, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step,
                      float *c, int64_t c_row, const float *scale) {
    int count = (vectors + 3) / 4;
    for (int panel = 0; panel < count; panel++) {
        int first = vectors * panel / count, end = vectors * (panel + 1) / count;
        tile_of(end - first, how, steps, a, b + first * LANES, b_step, c + first * LANES, c_row, scale);
    }
}

// Not inlined: each is four large loops, which the calls share.
#define CT_APART __attribute__((noinline, unused)) static void
CT_APART rows_fresh(int vectors, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step, float *c,
                    int64_t c_row) {
    panels(FRESH, vectors, steps, a, b, b_step, c, c_row, NULL);
}
CT_APART rows_added(int vectors, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step, float *c,
                    int64_t c_row) {
    panels(ADDED, vectors, steps, a, b, b_step, c, c_row, NULL);
}
CT_APART rows_scaled(int vectors, int64_t steps, a_operand a, const uint32_t *b, int64_t b_step, float *c,
                     int64_t c_row, const float *scale) {
    panels(SCALED, vectors, steps, a, b, b_step, c, c_row, scale);
}

// ---- packing -----------------------------------------------------------------------------------------------

CT_INLINE int64_t rounded_up(int64_t n, int64_t grain) { return (n + grain - 1) / grain * grain; }
// Words that n numbers of a row take along the depth, in whole vectors.
CT_INLINE int64_t depth_words(int64_t n) { return rounded_up(BF16_DOT ? (n + 1) / 2 : n, LANES); }

// A row of n numbers as words along the depth, zeros after them up to `words`, a multiple of LANES.
CT_INLINE void pack_row(uint32_t *row, int64_t words, const void *x, int64_t at, int64_t n, ct_dtype dtype) {
    enum { PER_VECTOR = BF16_DOT ? 2 * LANES : LANES };
    int64_t i = 0, left = n;
    for (; left >= PER_VECTOR; i += LANES, at += PER_VECTOR, left -= PER_VECTOR)
        if (BF16_DOT)
            _mm512_storeu_si512(row + i, _mm512_loadu_si512((const uint16_t *)x + at));
        else
            v_store(row, i, LANES, CT_F32, v_load(x, at, LANES, dtype));
    if (left > 0) {
        if (BF16_DOT)
            _mm512_storeu_si512(row + i, _mm512_maskz_loadu_epi16((1u << left) - 1, (const uint16_t *)x + at));
        else
            v_store(row, i, LANES, CT_F32, v_load(x, at, (int)left, dtype));
        i += LANES;
    }
    for (; i < words; i += LANES) _mm512_storeu_si512(row + i, _mm512_setzero_si512());
}

// A row that will be packed AHEAD rows from now; past a tensor's end it is only an address.
enum { AHEAD = 24 };
CT_INLINE void fetch_row(const void *x, int64_t row, int64_t n, ct_dtype dtype) {
    int64_t bytes = n * (int64_t)ct_dtype_bytes(dtype);
    uintptr_t at = (uintptr_t)x + (uintptr_t)(row * bytes);
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(at + (uintptr_t)i), _MM_HINT_T0);
}

// 16×16 words: to[j][i] = from[i][j].
CT_INLINE void transpose_16(uint32_t *to, int64_t to_row, const uint32_t *from, int64_t from_row) {
    __m512i x[LANES], y[LANES];
    for (int i = 0; i < LANES; i++) x[i] = _mm512_loadu_si512(from + i * from_row);
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + i * to_row, _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
        _mm512_storeu_si512(to + (i + 8) * to_row, _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd));
        _mm512_storeu_si512(to + (i + 4) * to_row, _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88));
        _mm512_storeu_si512(to + (i + 12) * to_row, _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd));
    }
}

// KEYS packed rows of `words` words → [words][KEYS].
CT_INLINE void pack_across(uint32_t *across, const uint32_t *rows, int64_t words) {
    for (int64_t k = 0; k < words; k += LANES)
        for (int s = 0; s < KEYS; s += LANES) transpose_16(across + k * KEYS + s, KEYS, rows + s * words + k, words);
}

// Packed rows as the B operand of a product whose depth is the rows: with f32 they are it already; with bf16 two rows
// make one row of words [rows/2][padded n].
CT_INLINE void pack_pairs(uint32_t *pairs, int64_t n, const uint32_t *rows, int64_t words, int64_t count) {
    int64_t width = rounded_up(n, LANES);
    for (int64_t r = 0; r < count; r += 2)
        for (int64_t i = 0; i < width; i += LANES) {
            const uint16_t *even = (const uint16_t *)(rows + r * words) + i,
                           *odd = (const uint16_t *)(rows + (r + 1) * words) + i;
            __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)even));
            __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)odd));
            _mm512_storeu_si512(pairs + r / 2 * width + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
}

// ---- numbers -----------------------------------------------------------------------------------------------

// 2^x, 0 in the lanes that are not seen: 2^(x - floor x) by a minimax polynomial (relative error 2e-9 with f32
// arithmetic, so about 1 ulp in all; 8e-8 with bf16, whose results are rounded to 8 bits anyway), scaled by 2^floor
// x. Results below 2^-126 are rounded once more; -inf gives 0, inf inf, NaN NaN.
CT_INLINE __m512 power_of_two(__mmask16 seen, __m512 x) {
    __m512 r = _mm512_reduce_ps(x, 1), p; // x - floor x; 0 where x is infinite
    if (BF16_DOT) {
        p = _mm512_fmadd_ps(_mm512_set1_ps(0.00186713f), r, _mm512_set1_ps(0.0090170307f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.055799913f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24016444f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931513f));
    } else {
        p = _mm512_fmadd_ps(_mm512_set1_ps(0.00021612915f), r, _mm512_set1_ps(0.0012467848f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.009675452f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.055485282f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24022931f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69314706f));
    }
    return _mm512_maskz_scalef_ps(seen, _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f)), x);
}

// Natural logarithm of normal numbers above 0 (2 ulp of it, or 2^-24 near 1): x = 2^e (1 + f) with f in [-1/4, 1/2),
// and a minimax polynomial of relative error 5e-9 for log(1 + f); inf gives inf or NaN, NaN NaN.
CT_INLINE __m512 logarithm(__m512 x) {
    static const float c[] = {-0.04490956f, 0.10448327f,  -0.13162231f, 0.14482062f, -0.16647767f,
                              0.19990607f,  -0.25000054f, 0.33333454f,  -0.5f};
    __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src), e = _mm512_getexp_ps(x);
    __mmask16 large = _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.5f), _CMP_GE_OQ);
    m = _mm512_mask_mul_ps(m, large, m, _mm512_set1_ps(0.5f));
    e = _mm512_mask_add_ps(e, large, e, _mm512_set1_ps(1));
    __m512 f = _mm512_sub_ps(m, _mm512_set1_ps(1)), p = _mm512_set1_ps(c[0]);
    for (int i = 1; i < 9; i++) p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c[i]));
    return _mm512_fmadd_ps(e, _mm512_set1_ps(0.6931472f), _mm512_fmadd_ps(_mm512_mul_ps(f, f), p, f));
}
