// Packing and finishing a tile in plain C, for the paths whose lane is one f32 and which no machine of today depends
// on for speed.
#pragma once
#include "matmul.h"

// Writes a tile of finished sums, `step` apart, into C.
static inline void finish_plain(const ct_matmul_tile *t, const float *sums, int step) {
    for (int i = 0; i < t->rows; i++) {
        int64_t at = i * t->c_step;
        for (int j = 0; j < t->cols; j++) {
            float *c = (float *)t->c + at + j, sum = sums[i * step + j];
            if (t->finish == CT_FINISH_BF16)
                ((uint16_t *)t->c)[at + j] = ct_bf16_from_f32(sum);
            else
                *c = t->finish == CT_FINISH_ADD_F32 ? *c + sum : sum;
        }
    }
}

static inline int min_rows(int64_t rows, int height) { return rows < height ? (int)rows : height; }

// Lane r of unit k of the panel at `row` is element (row + r)·row_step + k·depth_step.
static inline void pack_f32(const ct_matmul_packing *p, int64_t row_step, int64_t depth_step) {
    float *panel = (float *)p->panels;
    for (int64_t row = 0; row < p->rows; row += p->height, panel += p->panel_step) {
        const float *source = (const float *)p->source + row * row_step;
        int rows = min_rows(p->rows - row, p->height);
        for (int64_t k = 0; k < p->depth; k++)
            for (int r = 0; r < p->width; r++)
                panel[k * p->width + r] = r < rows ? source[r * row_step + k * depth_step] : 0;
    }
}
static inline void pack_bf16(const ct_matmul_packing *p, int64_t row_step, int64_t depth_step) {
    float *panel = (float *)p->panels;
    for (int64_t row = 0; row < p->rows; row += p->height, panel += p->panel_step) {
        const uint16_t *source = (const uint16_t *)p->source + row * row_step;
        int rows = min_rows(p->rows - row, p->height);
        for (int64_t k = 0; k < p->depth; k++)
            for (int r = 0; r < p->width; r++)
                panel[k * p->width + r] = r < rows ? ct_f32_from_bf16(source[r * row_step + k * depth_step]) : 0;
    }
}

static inline void pack_along_f32(const ct_matmul_packing *p) { pack_f32(p, p->step, 1); }
static inline void pack_along_bf16(const ct_matmul_packing *p) { pack_bf16(p, p->step, 1); }
static inline void pack_across_f32(const ct_matmul_packing *p) { pack_f32(p, 1, p->step); }
static inline void pack_across_bf16(const ct_matmul_packing *p) { pack_bf16(p, 1, p->step); }
