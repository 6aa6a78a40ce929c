// Products of f32, and of bf16 widened exactly to f32 while it is packed, with AVX-512 fused multiply-adds. Denormals
// are IEEE's.
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

CT_INLINE __m512i load_f32(const void *source, int64_t elems) {
    if (elems == LANES) return _mm512_loadu_si512(source);
    return _mm512_maskz_loadu_epi32(lanes((int)elems), source);
}
CT_INLINE __m512i load_bf16(const void *source, int64_t elems) {
    __m256i x = elems == LANES ? _mm256_loadu_si256(source) : _mm256_maskz_loadu_epi16(lanes((int)elems), source);
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

static void pack_along_f32(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_along_with(load_f32, 1, sizeof(float), p, LANES);
    else
        pack_along_with(load_f32, 1, sizeof(float), p, 2 * LANES);
}
static void pack_along_bf16(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_along_with(load_bf16, 1, sizeof(uint16_t), p, LANES);
    else
        pack_along_with(load_bf16, 1, sizeof(uint16_t), p, 2 * LANES);
}

// A few depths of all panels at a time: each line is read once, and lines of one set of the cache do not push each
// other out.
CT_INLINE void pack_across_with(unit_loader *load, const int elem_bytes, const ct_matmul_packing *p,
                                const int width) {
    const int64_t step_bytes = p->step * elem_bytes, ahead = fetch_ahead(p, elem_bytes);
    for (int64_t k = 0; k < p->depth; k += ACROSS_DEPTH) {
        uint32_t *panel = p->panels + k * width;
        int64_t depth = p->depth - k < ACROSS_DEPTH ? p->depth - k : ACROSS_DEPTH;
        const char *source = (const char *)p->source + k * step_bytes;
        if (!p->fetched && width == LANES) fetch_depths(source, step_bytes, ahead, p->rows * elem_bytes);
        for (int64_t row = 0; row < p->rows;
             row += p->height, panel += p->panel_step, source += p->height * elem_bytes) {
            int64_t rows = p->rows - row < p->height ? p->rows - row : p->height;
            if (!p->fetched && width > LANES) fetch_depths(source, step_bytes, ahead, rows * elem_bytes);
            for (int lane = 0; lane < rows; lane += LANES) {
                int64_t here = rows - lane < LANES ? rows - lane : LANES;
                for (int64_t d = 0; d < depth; d++)
                    _mm512_store_si512(panel + d * width + lane,
                                       load(source + lane * elem_bytes + d * step_bytes, here));
            }
        }
    }
}
static void pack_across_f32(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_across_with(load_f32, sizeof(float), p, LANES);
    else
        pack_across_with(load_f32, sizeof(float), p, 2 * LANES);
}
static void pack_across_bf16(const ct_matmul_packing *p) {
    if (p->width == LANES)
        pack_across_with(load_bf16, sizeof(uint16_t), p, LANES);
    else
        pack_across_with(load_bf16, sizeof(uint16_t), p, 2 * LANES);
}

const ct_matmul_isa ct_matmul_avx512[2] = {
    {ROWS, COLS, A_WIDTH, 1, pack_along_f32, pack_across_f32, tile},
    {ROWS, COLS, A_WIDTH, 1, pack_along_bf16, pack_across_bf16, tile},
};
