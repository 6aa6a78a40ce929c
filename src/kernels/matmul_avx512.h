// The AVX-512 tile and transposition that matmul_avx512.c (one f32 a lane) and matmul_avx512bf16.c (a pair of bf16 a
// lane) share. The including file defines, before it includes this, the one step in which they differ:
//   static inline __m512 multiply_add(__m512 sum, __m512i a, __m512i b);
#pragma once
#include "matmul.h"

#include <immintrin.h>

enum { ROWS = 14, COLS = 32, LANES = 16, A_WIDTH = 16, ACROSS_DEPTH = 8, FETCH_UNITS = 4 };

#define CT_INLINE static inline __attribute__((always_inline))

CT_INLINE __mmask16 lanes(int count) {
    return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

// Two vectors of a row of C. `whole`: the row is COLS wide; masked stores cost more.
CT_INLINE void row_finish(const ct_matmul_tile *t, int row, __m512 left, __m512 right, ct_matmul_finish finish, int whole) {
    int64_t at = row * t->c_step;
    __mmask16 left_mask = whole ? 0xffff : lanes(t->cols), right_mask = whole ? 0xffff : lanes(t->cols - LANES);
    if (finish == CT_FINISH_BF16) {
        uint16_t *c = (uint16_t *)t->c + at;
        if (whole) {
            _mm256_storeu_si256((__m256i *)c, to_bf16(left));
            _mm256_storeu_si256((__m256i *)(c + LANES), to_bf16(right));
            return;
        }
        _mm256_mask_storeu_epi16(c, left_mask, to_bf16(left));
        if (right_mask) _mm256_mask_storeu_epi16(c + LANES, right_mask, to_bf16(right));
        return;
    }
    float *c = (float *)t->c + at;
    if (finish == CT_FINISH_ADD_F32) {
        left = _mm512_add_ps(_mm512_maskz_loadu_ps(left_mask, c), left);
        right = _mm512_add_ps(_mm512_maskz_loadu_ps(right_mask, c + LANES), right);
    }
    if (whole) {
        _mm512_storeu_ps(c, left);
        _mm512_storeu_ps(c + LANES, right);
        return;
    }
    _mm512_mask_storeu_ps(c, left_mask, left);
    _mm512_mask_storeu_ps(c + LANES, right_mask, right);
}

// Fetches the next line of what will be packed into the second-level cache.
CT_INLINE void fetch_line(ct_matmul_fetch *f) {
    if (f->left <= 0) return;
    __builtin_prefetch((const void *)f->at, 0, 2);
    f->left--;
    f->at += 64;
    if (++f->index < f->run) return;
    f->index = 0;
    f->at += (uintptr_t)f->jump;
}

// The same for a line of C: `jump` bytes lie between a row's end and the next row.
CT_INLINE void fetch_c(ct_matmul_lines *l, int c_lines, int64_t jump, const int near) {
    if (l->left <= 0) return;
    if (near)
        __builtin_prefetch((const void *)l->at, 0, 3);
    else
        __builtin_prefetch((const void *)l->at, 0, 2);
    l->left--;
    l->at += 64 + (uintptr_t)(l->left & (c_lines - 1) ? 0 : jump);
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
    ct_matmul_fetch *which = t->fetch[0].left > 0 ? &t->fetch[0] : &t->fetch[1], fetch = *which;
    ct_matmul_lines far_c = t->far_c, near_c = t->near_c, near_sums = t->near_sums;
    const int64_t late = t->late, jump = t->c_step * (t->finish == CT_FINISH_BF16 ? 2 : 4) - 64 * t->c_lines;
    for (int64_t left = t->units; left > 0; left -= FETCH_UNITS) {
        fetch_line(&fetch);
        if (left > late)
            fetch_c(&far_c, t->c_lines, jump, 0);
        else if (near_c.left > 0)
            fetch_c(&near_c, t->c_lines, jump, 1);
        else
            fetch_c(&near_sums, 1, 0, 1);
        for (int64_t u = left < FETCH_UNITS ? left : FETCH_UNITS; u > 0; u--, a += A_WIDTH, b += COLS) {
            __m512i b_left = _mm512_load_si512(b), b_right = _mm512_load_si512(b + LANES);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                __m512i both = _mm512_set1_epi32(a[i]);
                sum[i][0] = multiply_add(sum[i][0], both, b_left);
                sum[i][1] = multiply_add(sum[i][1], both, b_right);
            }
        }
    }
    *which = fetch;
    if (to) {
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            _mm512_store_ps(to + i * COLS, sum[i][0]);
            _mm512_store_ps(to + i * COLS + LANES, sum[i][1]);
        }
        return;
    }
#define CT_FINISH_ROWS(finish, whole)                                                                                  \
    do {                                                                                                               \
        _Pragma("GCC unroll 14") for (int i = 0; i < rows; i++)                                                        \
            row_finish(t, i, sum[i][0], sum[i][1], finish, whole);                                                     \
    } while (0)
    if (t->cols < COLS)
        CT_FINISH_ROWS(t->finish, 0);
    else if (t->finish == CT_FINISH_BF16)
        CT_FINISH_ROWS(CT_FINISH_BF16, 1);
    else if (t->finish == CT_FINISH_F32)
        CT_FINISH_ROWS(CT_FINISH_F32, 1);
    else
        CT_FINISH_ROWS(CT_FINISH_ADD_F32, 1);
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
    case 6:
        tile_rows(t, 6);
        break;
    case 7:
        tile_rows(t, 7);
        break;
    case 8:
        tile_rows(t, 8);
        break;
    case 9:
        tile_rows(t, 9);
        break;
    case 10:
        tile_rows(t, 10);
        break;
    case 11:
        tile_rows(t, 11);
        break;
    case 12:
        tile_rows(t, 12);
        break;
    case 13:
        tile_rows(t, 13);
        break;
    default:
        tile_rows(t, 14);
        break;
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

// Loads the units of `elems` elements at `source`, the rest zero.
typedef __m512i unit_loader(const void *source, int64_t elems);

// Packs up to 16 rows of one panel where depth is contiguous, 16 units at a time through a transposition. Rows that
// are not there repeat the last one. Lines are fetched AHEAD_BYTES before they are used, at the end those of the rows
// that come next.
CT_INLINE void pack_rows(unit_loader *load, const int unit, const int elem_bytes, uint32_t *to, const int width,
                         const char *source, int64_t step_bytes, int rows, int64_t depth, int64_t next_bytes) {
    enum { AHEAD_BYTES = 256 };
    const char *row[LANES];
    for (int i = 0; i < LANES; i++) row[i] = source + step_bytes * (i < rows ? i : rows - 1);
    const int64_t whole = LANES * unit, depth_bytes = depth * elem_bytes;
    int64_t at = 0;
    __m512i v[LANES];
    for (; at + whole * elem_bytes <= depth_bytes; at += whole * elem_bytes, to += LANES * width) {
        int64_t ahead = at + AHEAD_BYTES;
        if (ahead >= depth_bytes) ahead += next_bytes - depth_bytes;
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            v[i] = load(row[i] + at, whole);
            __builtin_prefetch((const void *)((uintptr_t)row[i] + (uintptr_t)ahead));
        }
        transpose(v);
#pragma GCC unroll 16
        for (int u = 0; u < LANES; u++) _mm512_store_si512(to + u * width, v[u]);
    }
    int64_t elems = (depth_bytes - at) / elem_bytes;
    if (!elems) return;
    for (int i = 0; i < LANES; i++) v[i] = load(row[i] + at, elems);
    transpose(v);
    for (int u = 0; u * unit < elems; u++) _mm512_store_si512(to + u * width, v[u]);
}

CT_INLINE void pack_along_with(unit_loader *load, const int unit, const int elem_bytes, const ct_matmul_packing *p,
                               const int width) {
    uint32_t *panel = p->panels;
    int64_t step_bytes = p->step * elem_bytes;
    for (int64_t row = 0; row < p->rows; row += p->height, panel += p->panel_step) {
        int rows = (int)(p->rows - row < p->height ? p->rows - row : p->height);
        for (int lane = 0; lane < rows; lane += LANES) {
            int here = rows - lane < LANES ? rows - lane : LANES;
            pack_rows(load, unit, elem_bytes, panel + lane, width,
                      (const char *)p->source + (row + lane) * step_bytes, step_bytes, here, p->depth,
                      here * step_bytes);
        }
    }
}

// Fetches the lines of `bytes` of the ACROSS_DEPTH depths that lie `ahead` bytes behind those at `source` into the
// second-level cache.
CT_INLINE void fetch_depths(const char *source, int64_t step_bytes, int64_t ahead, int64_t bytes) {
    for (int d = 0; d < ACROSS_DEPTH; d++) {
        uintptr_t at = (uintptr_t)source + (uintptr_t)(d * step_bytes + ahead), end = at + (uintptr_t)bytes;
        for (at &= ~(uintptr_t)63; at < end; at += 64) __builtin_prefetch((const void *)at, 0, 2);
    }
}

// How many bytes ahead to fetch: depths that hold about FAR_BYTES of the block.
CT_INLINE int64_t fetch_ahead(const ct_matmul_packing *p, int elem_bytes) {
    enum { FAR_BYTES = 8192 };
    int64_t depths = FAR_BYTES / (p->rows * elem_bytes) / ACROSS_DEPTH * ACROSS_DEPTH;
    return p->step * elem_bytes * (depths < ACROSS_DEPTH ? ACROSS_DEPTH : depths);
}
