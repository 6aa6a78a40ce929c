// Packing and finishing a tile in plain C, for the paths whose lane is one f32 and which no machine of today depends on for speed.
#pragma once
#include "matmul.h"

// Writes a tile of finished sums, `step` apart, into C.
static inline void finish_plain(const ct_matmul_tile *t, const float *sums, int step) {
    for (int i = 0; i < t->rows; i++) {
        int64_t at = i * t->c_step;
        for (int j = 0; j < t->cols; j++) {
            float *c = (float *)t->c + at + j, sum = sums[i * step + j];
            if (t->finish == CT_FINISH_BF16) ((uint16_t *)t->c)[at + j] = ct_bf16_from_f32(sum);
            else *c = t->finish == CT_FINISH_ADD_F32 ? *c + sum : sum;
        }
    }
}

// Lane r of unit k is element r·row_step + k·depth_step.
static inline void pack_f32(float *panel, int width, const float *source, int64_t row_step, int64_t depth_step, int rows,
                            int64_t depth) {
    for (int64_t k = 0; k < depth; k++)
        for (int r = 0; r < width; r++) panel[k * width + r] = r < rows ? source[r * row_step + k * depth_step] : 0;
}
static inline void pack_bf16(float *panel, int width, const uint16_t *source, int64_t row_step, int64_t depth_step, int rows,
                             int64_t depth) {
    for (int64_t k = 0; k < depth; k++)
        for (int r = 0; r < width; r++)
            panel[k * width + r] = r < rows ? ct_f32_from_bf16(source[r * row_step + k * depth_step]) : 0;
}

static inline void pack_along_f32(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_f32((float *)panel, width, source, step, 1, rows, depth);
}
static inline void pack_along_bf16(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_bf16((float *)panel, width, source, step, 1, rows, depth);
}
static inline void pack_across_f32(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_f32((float *)panel, width, source, 1, step, rows, depth);
}
static inline void pack_across_bf16(uint32_t *panel, int width, const void *source, int64_t step, int rows, int64_t depth) {
    pack_bf16((float *)panel, width, source, 1, step, rows, depth);
}
