// Products of f32, and of bf16 widened exactly to f32 while it is packed, with AVX-512 fused multiply-adds. Denormals are IEEE's.
#include <immintrin.h>

static inline __attribute__((always_inline)) __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
}
// Round to nearest even; a NaN stays one, quiet.
static inline __attribute__((always_inline)) __m256i to_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i bias = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet));
}

#include "matmul_avx512.h"

CT_INLINE __m512i load_f32(const void *source, int64_t at, int64_t elems) {
    return _mm512_maskz_loadu_epi32(lanes((int)elems), (const float *)source + at);
}
CT_INLINE __m512i load_bf16(const void *source, int64_t at, int64_t elems) {
    return _mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes((int)elems), (const uint16_t *)source + at)), 16);
}

static void pack_along_f32(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    if (width == LANES) pack_along_with(load_f32, 1, panel, LANES, source, step, rows, depth);
    else pack_along_with(load_f32, 1, panel, 2 * LANES, source, step, rows, depth);
}
static void pack_along_bf16(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    if (width == LANES) pack_along_with(load_bf16, 1, panel, LANES, source, step, rows, depth);
    else pack_along_with(load_bf16, 1, panel, 2 * LANES, source, step, rows, depth);
}

CT_INLINE void pack_across_with(unit_loader *load, uint32_t *panel, int width, const void *source, int64_t step, int rows,
                                int64_t depth) {
    for (int64_t k = 0; k < depth; k++)
        for (int lane = 0; lane < width; lane += LANES, panel += LANES)
            _mm512_store_si512(panel, load(source, k * step + lane, rows - lane));
}
static void pack_across_f32(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_across_with(load_f32, panel, width, source, step, rows, depth);
}
static void pack_across_bf16(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_across_with(load_bf16, panel, width, source, step, rows, depth);
}

const ct_matmul_isa ct_matmul_avx512[2] = {
    {ROWS, COLS, A_WIDTH, 1, pack_along_f32, pack_across_f32, tile},
    {ROWS, COLS, A_WIDTH, 1, pack_along_bf16, pack_across_bf16, tile},
};
