// Products of f32, and of bf16 widened exactly to f32 while it is packed, with AVX2 fused multiply-adds: the same
// sums, bit for bit, as the AVX-512 path's. Packing is plain C: machines without AVX-512 are the exception here.
#include "matmul_plain.h"

#include <immintrin.h>

enum { ROWS = 6, COLS = 16, LANES = 8 };

#define CT_INLINE static inline __attribute__((always_inline))

CT_INLINE void tile_rows(const ct_matmul_tile *t, const int rows) {
    __m256 sum[ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < 2; h++)
            sum[i][h] = t->from ? _mm256_load_ps(t->from + i * COLS + h * LANES) : _mm256_setzero_ps();
    const float *a = t->a, *b = t->b;
    for (int64_t u = t->units; u > 0; u--, a += LANES, b += COLS) {
        __m256 left = _mm256_load_ps(b), right = _mm256_load_ps(b + LANES);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 both = _mm256_broadcast_ss(a + i);
            sum[i][0] = _mm256_fmadd_ps(both, left, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(both, right, sum[i][1]);
        }
    }
    _Alignas(32) float sums[ROWS][COLS];
    float *to = t->to ? t->to : sums[0];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        _mm256_store_ps(to + i * COLS, sum[i][0]);
        _mm256_store_ps(to + i * COLS + LANES, sum[i][1]);
    }
    if (!t->to) finish_plain(t, sums[0], COLS);
}

static void tile(const ct_matmul_tile *t) {
    switch (t->rows) {
    case 1:
        tile_rows(t, 1);
        break;
    case 2:
        tile_rows(t, 2);
        break;
    case 3:
        tile_rows(t, 3);
        break;
    case 4:
        tile_rows(t, 4);
        break;
    case 5:
        tile_rows(t, 5);
        break;
    default:
        tile_rows(t, 6);
        break;
    }
}

const ct_matmul_isa ct_matmul_avx2[2] = {
    {ROWS, COLS, LANES, 1, pack_along_f32, pack_across_f32, tile},
    {ROWS, COLS, LANES, 1, pack_along_bf16, pack_across_bf16, tile},
};
