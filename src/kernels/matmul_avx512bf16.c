// Products of bf16 with VDPBF16PS: a lane holds the pair of depths 2u and 2u+1, both are multiplied and added to an f32 sum in one
// step, in the fixed order of the instruction. Pairs are cut by depth alone, an odd depth ends in a zero, so bits are stable.
// The instruction treats denormals as zero, and so does the conversion of the result.
#include <immintrin.h>

static inline __attribute__((always_inline)) __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
static inline __attribute__((always_inline)) __m256i to_bf16(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }

#include "matmul_avx512.h"

CT_INLINE __m512i load_pairs(const void *source, int64_t at, int64_t elems) {
    const uint16_t *s = (const uint16_t *)source + at;
    if (elems == 2 * LANES) return _mm512_loadu_si512(s);
    return _mm512_maskz_loadu_epi16((1u << elems) - 1, s);
}

static void pack_along(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    if (width == LANES) pack_along_with(load_pairs, 2, panel, LANES, source, step, rows, depth);
    else pack_along_with(load_pairs, 2, panel, 2 * LANES, source, step, rows, depth);
}

// Interleaves two depths of 16 rows into pairs.
CT_INLINE __m512i interleave(__m256i even, __m256i odd) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

static void pack_across(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    const uint16_t *s = source;
    for (int64_t k = 0; k < depth; k += 2, s += 2 * step)
        for (int lane = 0; lane < width; lane += LANES, panel += LANES) {
            __mmask16 mask = lanes(rows - lane), odd_mask = k + 1 < depth ? mask : 0;
            __m256i even = _mm256_maskz_loadu_epi16(mask, s + lane);
            __m256i odd = _mm256_maskz_loadu_epi16(odd_mask, s + step + lane);
            _mm512_store_si512(panel, interleave(even, odd));
        }
}

const ct_matmul_isa ct_matmul_avx512bf16[2] = {
    [1] = {ROWS, COLS, A_WIDTH, 2, pack_along, pack_across, tile},
};
