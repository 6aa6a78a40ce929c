// The AVX-512 tile and transposition that matmul_avx512.c (one f32 a lane) and matmul_avx512bf16.c (a pair of bf16 a lane) share.
// The including file defines, before it includes this, the one step in which they differ:
//   static inline __m512 multiply_add(__m512 sum, __m512i a, __m512i b);
#pragma once
#include "matmul.h"

#include <immintrin.h>

enum { ROWS = 14, COLS = 32, LANES = 16, A_WIDTH = 16 };

#define CT_INLINE static inline __attribute__((always_inline))

CT_INLINE __mmask16 lanes(int count) { return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1); }

CT_INLINE void tile_finish(const ct_matmul_tile *t, int row, __m512 left, __m512 right) {
    int64_t at = row * t->c_step;
    __mmask16 left_mask = lanes(t->cols), right_mask = lanes(t->cols - LANES);
    if (t->finish == CT_FINISH_BF16) {
        uint16_t *c = (uint16_t *)t->c + at;
        _mm256_mask_storeu_epi16(c, left_mask, to_bf16(left));
        if (right_mask) _mm256_mask_storeu_epi16(c + LANES, right_mask, to_bf16(right));
        return;
    }
    float *c = (float *)t->c + at;
    if (t->finish == CT_FINISH_ADD_F32) {
        left = _mm512_add_ps(_mm512_maskz_loadu_ps(left_mask, c), left);
        right = _mm512_add_ps(_mm512_maskz_loadu_ps(right_mask, c + LANES), right);
    }
    _mm512_mask_storeu_ps(c, left_mask, left);
    _mm512_mask_storeu_ps(c + LANES, right_mask, right);
}

// The tile for a constant number of rows: `rows` × 2 sums stay in registers.
CT_INLINE void tile_rows(const ct_matmul_tile *t, const int rows) {
    __m512 sum[ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = t->from ? _mm512_load_ps(t->from + i * COLS) : _mm512_setzero_ps();
        sum[i][1] = t->from ? _mm512_load_ps(t->from + i * COLS + LANES) : _mm512_setzero_ps();
    }
    const int32_t *a = t->a, *b = t->b;
    float *to = t->to;
    for (int64_t u = t->units; u > 0; u--, a += A_WIDTH, b += COLS) {
        __m512i left = _mm512_load_si512(b), right = _mm512_load_si512(b + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512i both = _mm512_set1_epi32(a[i]);
            sum[i][0] = multiply_add(sum[i][0], both, left);
            sum[i][1] = multiply_add(sum[i][1], both, right);
        }
    }
    if (to) {
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            _mm512_store_ps(to + i * COLS, sum[i][0]);
            _mm512_store_ps(to + i * COLS + LANES, sum[i][1]);
        }
        return;
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) tile_finish(t, i, sum[i][0], sum[i][1]);
}

static void tile(const ct_matmul_tile *t) {
    switch (t->rows) {
    case 1: tile_rows(t, 1); break;
    case 2: tile_rows(t, 2); break;
    case 3: tile_rows(t, 3); break;
    case 4: tile_rows(t, 4); break;
    case 5: tile_rows(t, 5); break;
    case 6: tile_rows(t, 6); break;
    case 7: tile_rows(t, 7); break;
    case 8: tile_rows(t, 8); break;
    case 9: tile_rows(t, 9); break;
    case 10: tile_rows(t, 10); break;
    case 11: tile_rows(t, 11); break;
    case 12: tile_rows(t, 12); break;
    case 13: tile_rows(t, 13); break;
    default: tile_rows(t, 14); break;
    }
}

// Transposes 16 × 16 32-bit lanes in place: afterwards v[u] holds lane u of all rows.
CT_INLINE void transpose(__m512i v[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

// Loads the units of `elems` elements at `row`, the rest zero.
typedef __m512i unit_loader(const void *source, int64_t at, int64_t elems);

// Packs where depth is contiguous: 16 rows × 16 units at a time through a transposition.
CT_INLINE void pack_along_with(unit_loader *load, int unit, uint32_t *panel, int width, const void *source, int64_t step, int rows,
                               int64_t depth) {
    for (int64_t k = 0; k < depth; k += LANES * unit) {
        int64_t elems = depth - k < LANES * unit ? depth - k : LANES * unit, units = (elems + unit - 1) / unit;
        for (int lane = 0; lane < width; lane += LANES) {
            __m512i v[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                v[i] = lane + i < rows ? load(source, (lane + i) * step + k, elems) : _mm512_setzero_si512();
            transpose(v);
            uint32_t *to = panel + k / unit * width + lane;
            if (units == LANES) {
#pragma GCC unroll 16
                for (int u = 0; u < 16; u++) _mm512_store_si512(to + u * width, v[u]);
            } else {
                for (int u = 0; u < units; u++) _mm512_store_si512(to + u * width, v[u]);
            }
        }
    }
}
