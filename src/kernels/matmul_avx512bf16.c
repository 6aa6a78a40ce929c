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

// Interleaves two depths of 16 rows into pairs.
CT_INLINE __m512i interleave(__m256i even, __m256i odd) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

// One panel's lanes of `depth` depths.
CT_INLINE void pack_depths(uint32_t *to, const uint16_t *s, int64_t step, int rows, const int width, int64_t depth) {
    for (int lane = 0; lane < width; lane += LANES) {
        __mmask16 mask = lanes(rows - lane);
        const uint16_t *even = s + lane, *odd = even + step;
        uint32_t *at = to + lane;
        int64_t k = 0;
        for (; k + 2 <= depth; k += 2, even += 2 * step, odd += 2 * step, at += width)
            _mm512_store_si512(at,
                               interleave(_mm256_maskz_loadu_epi16(mask, even), _mm256_maskz_loadu_epi16(mask, odd)));
        if (k < depth) _mm512_store_si512(at, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even)));
    }
}

// A few depths of all panels at a time: each line is read once, and lines of one set of the cache do not push each
// other out.
CT_INLINE void pack_across_width(const ct_matmul_packing *p, const int width) {
    const int64_t ahead = fetch_ahead(p, 2);
    for (int64_t k = 0; k < p->depth; k += ACROSS_DEPTH) {
        uint32_t *panel = p->panels + k / 2 * width;
        const uint16_t *source = (const uint16_t *)p->source + k * p->step;
        int64_t depth = p->depth - k < ACROSS_DEPTH ? p->depth - k : ACROSS_DEPTH;
        if (width == LANES) fetch_depths((const char *)source, p->step * 2, ahead, p->rows * 2);
        for (int64_t row = 0; row < p->rows; row += p->height, panel += p->panel_step) {
            int rows = (int)(p->rows - row < p->height ? p->rows - row : p->height);
            pack_depths(panel, source + row, p->step, rows, width, depth);
            if (width > LANES) fetch_depths((const char *)(source + row), p->step * 2, ahead, rows * 2);
        }
    }
}
static void pack_across(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_across_width(p, LANES);
    else
        pack_across_width(p, 2 * LANES);
}

const ct_matmul_isa ct_matmul_avx512bf16[2] = {
    [1] = {ROWS, COLS, A_WIDTH, 2, pack_along, pack_across, tile},
};
