// Products in plain C for any machine: f32 multiply, round, add, round. bf16 is widened exactly while it is packed.
#include "matmul_plain.h"

enum { ROWS = 4, COLS = 16 };

static void tile(const ct_matmul_tile *t) {
    float sums[ROWS][COLS] = {{0}};
    if (t->from) memcpy(sums, t->from, sizeof sums[0] * (size_t)t->rows);
    const float *a = t->a, *b = t->b;
    for (int64_t u = 0; u < t->units; u++, a += ROWS, b += COLS)
        for (int i = 0; i < t->rows; i++)
            for (int j = 0; j < COLS; j++) sums[i][j] += a[i] * b[j];
    if (t->to)
        memcpy(t->to, sums, sizeof sums[0] * (size_t)t->rows);
    else
        finish_plain(t, sums[0], COLS);
}

const ct_matmul_isa ct_matmul_generic[2] = {
    {ROWS, COLS, ROWS, 1, pack_along_f32, pack_across_f32, tile},
    {ROWS, COLS, ROWS, 1, pack_along_bf16, pack_across_bf16, tile},
};
