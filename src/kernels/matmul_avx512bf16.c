// Products of bf16 with VDPBF16PS: a lane holds the pair of depths 2u and 2u+1, both are multiplied and added to an
// f32 sum in one step, in the fixed order of the instruction. Pairs are cut by depth alone, an odd depth ends in a
// zero, so bits are stable. The instruction treats denormals as zero, and so does the conversion of the result.
#include <immintrin.h>

static inline __attribute__((always_inline)) __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
static inline __attribute__((always_inline)) __m256i to_bf16(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }

#include "matmul_avx512.h"

CT_INLINE __m512i load_pairs(const void *source, int64_t elems) {
    if (elems == 2 * LANES) return _mm512_loadu_si512(source);
    return _mm512_maskz_loadu_epi16((1u << elems) - 1, source);
}

static void pack_along(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_along_with(load_pairs, 2, sizeof(uint16_t), p, LANES);
    else
        pack_along_with(load_pairs, 2, sizeof(uint16_t), p, 2 * LANES);
}

// Even and odd depths of 16 rows become pairs.
CT_INLINE __m512i pairs_of_16(__m256i even, __m256i odd) {
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(_mm512_castsi256_si512(even), order, _mm512_castsi256_si512(odd));
}

// A panel of 16 lanes: units of two depths, the last one perhaps of one.
CT_INLINE void pack_16(uint32_t *to, const uint16_t *s, int64_t step, int rows, int64_t depth) {
    const __mmask16 mask = lanes(rows);
    int64_t k = 0;
    for (; k + 2 <= depth; k += 2, s += 2 * step, to += LANES)
        _mm512_store_si512(to, pairs_of_16(_mm256_maskz_loadu_epi16(mask, s), _mm256_maskz_loadu_epi16(mask, s + step)));
    if (k < depth) _mm512_store_si512(to, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, s)));
}

// The same for a panel of 32 lanes. Lines are fetched AHEAD depths before they are used: where many depths lie in few sets of a cache, what was
// fetched long ago is gone.
CT_INLINE void pack_32(uint32_t *to, const uint16_t *s, int64_t step, int rows, int64_t depth) {
    enum { AHEAD = 24 };
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
    const __mmask32 mask = rows < 2 * LANES ? (1u << rows) - 1 : ~0u;
    int64_t k = 0;
    for (; k < depth; k += 2, s += 2 * step, to += 2 * LANES) {
        __builtin_prefetch((const void *)((uintptr_t)s + (uintptr_t)(2 * AHEAD * step)));
        __builtin_prefetch((const void *)((uintptr_t)s + (uintptr_t)(2 * (AHEAD + 1) * step)));
        __m512i even = _mm512_maskz_loadu_epi16(mask, s);
        __m512i odd = k + 1 < depth ? _mm512_maskz_loadu_epi16(mask, s + step) : _mm512_setzero_si512();
        _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(to + LANES, _mm512_permutex2var_epi16(even, high, odd));
    }
}

// Panels of 16: a few depths of all at a time, so that each line is read once, and lines of one set of the cache do not push each other out.
// Panels of 32 are a line wide: one after another.
static void pack_across(const ct_matmul_packing *p) {
    const int64_t ahead = fetch_ahead(p, 2), depth_step = p->width == LANES ? ACROSS_DEPTH : p->depth;
    for (int64_t k = 0; k < p->depth; k += depth_step) {
        uint32_t *panel = p->panels + k / 2 * p->width;
        const uint16_t *source = (const uint16_t *)p->source + k * p->step;
        int64_t depth = p->depth - k < depth_step ? p->depth - k : depth_step;
        if (!p->fetched && p->width == LANES) fetch_depths((const char *)source, p->step * 2, ahead, p->rows * 2);
        for (int64_t row = 0; row < p->rows; row += p->height, panel += p->panel_step) {
            int rows = (int)(p->rows - row < p->height ? p->rows - row : p->height);
            if (p->width == LANES)
                pack_16(panel, source + row, p->step, rows, depth);
            else
                pack_32(panel, source + row, p->step, rows, depth);
        }
    }
}

const ct_matmul_isa ct_matmul_avx512bf16[2] = {
    [1] = {ROWS, COLS, A_WIDTH, 2, pack_along, pack_across, tile},
};
