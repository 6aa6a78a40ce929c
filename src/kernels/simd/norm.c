// RMSNorm (Zhang and Sennrich 2019): y = x·rstd·w with rstd = 1/sqrt(mean(x²) + eps), a row at a time, everything in
// f32. A row's sums go to 64 running lanes and through one tree. dw is one flat sum over rows, ascending, for each
// column: blocks of rows that fit the cache are first cut by rows (for dx), then by columns (for dw), so x and dy
// come from memory once.
#include "isa.h"
#include "vec.h"

#include <math.h>

enum { BLOCK_BYTES = 512 * 1024, COLUMNS = 8 * LANES };

typedef struct {
    v16f lane[4];
} sums;
CT_INLINE float sums_total(sums s) { return v_sum((s.lane[0] + s.lane[1]) + (s.lane[2] + s.lane[3])); }

// ---- forward --------------------------------------------------------------------------------------------

CT_INLINE float row_squares(const void *x, int64_t base, int64_t D, ct_dtype dtype) {
    sums s = {{v_zero(), v_zero(), v_zero(), v_zero()}};
    int64_t j = 0;
    for (; j + 4 * LANES <= D; j += 4 * LANES)
        for (int k = 0; k < 4; k++) {
            v16f a = v_load(x, base + j + k * LANES, LANES, dtype);
            s.lane[k] = v_fma(a, a, s.lane[k]);
        }
    for (int k = 0; j < D; j += LANES, k++) {
        v16f a = v_load(x, base + j, D - j < LANES ? (int)(D - j) : LANES, dtype);
        s.lane[k] = v_fma(a, a, s.lane[k]);
    }
    return sums_total(s);
}

CT_INLINE void rmsnorm_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    const void *x = call->in[0].data;
    const float *w = call->in[1].data;
    void *y = call->out[0].data;
    float *rstd = call->out[1].data;
    int64_t D = call->in[1].dims[0];
    long long r, end;
    ct_share(ct_tensor_elems(&call->out[1]), 1, thread, threads, &r, &end);
    for (; r < end; r++) {
        float scale = (float)(1.0 / sqrt((double)row_squares(x, r * D, D, dtype) / (double)D + call->attrs[0]));
        rstd[r] = scale;
        for (int64_t j = 0; j < D; j += LANES) {
            int n = D - j < LANES ? (int)(D - j) : LANES;
            v_store(y, r * D + j, n, dtype, v_load(x, r * D + j, n, dtype) * v_set(scale) * v_load(w, j, n, CT_F32));
        }
    }
}
static void rmsnorm_f32_task(void *call, int thread, int threads) { rmsnorm_share(call, thread, threads, CT_F32); }
static void rmsnorm_bf16_task(void *call, int thread, int threads) { rmsnorm_share(call, thread, threads, CT_BF16); }
static void rmsnorm_f32(const ct_call *call, ct_team *team) { ct_team_run(team, rmsnorm_f32_task, (void *)call); }
static void rmsnorm_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, rmsnorm_bf16_task, (void *)call); }

// ---- gradient -------------------------------------------------------------------------------------------

// dx = rstd·(w·dy - x·rstd²·mean(w·dy·x)), and, where it is asked for, y = x·rstd·w.
CT_INLINE void row_dx(const ct_call *call, int64_t r, int64_t D, ct_dtype dtype, const int with_y) {
    const void *dy = call->in[0].data, *x = call->in[1].data;
    const float *w = call->in[2].data;
    float rstd = ((const float *)call->in[3].data)[r];
    int64_t base = r * D, j = 0;
    sums s = {{v_zero(), v_zero(), v_zero(), v_zero()}};
    for (int k = 0; j < D; j += LANES, k = (k + 1) & 3) {
        int n = D - j < LANES ? (int)(D - j) : LANES;
        v16f g = v_load(dy, base + j, n, dtype) * v_load(w, j, n, CT_F32);
        s.lane[k] = v_fma(g, v_load(x, base + j, n, dtype), s.lane[k]);
    }
    float mean = (float)((double)sums_total(s) / (double)D);
    v16f a = v_set(rstd), b = v_set(-(rstd * rstd * rstd * mean));
    for (j = 0; j < D; j += LANES) {
        int n = D - j < LANES ? (int)(D - j) : LANES;
        v16f g = v_load(dy, base + j, n, dtype) * v_load(w, j, n, CT_F32);
        v16f here = v_load(x, base + j, n, dtype);
        v_store(call->out[0].data, base + j, n, dtype, v_fma(b, here, a * g));
        if (with_y) v_store(call->out[2].data, base + j, n, dtype, here * a * v_load(w, j, n, CT_F32));
    }
}

// dw of columns [j, j + n), n ≤ COLUMNS, += rows [r, end) of dy·(x·rstd), ascending. Eight vectors hide a sum's
// latency.
CT_INLINE void columns_dw(const ct_call *call, int64_t r, int64_t end, int64_t j, int n, ct_dtype dtype) {
    const void *dy = call->in[0].data, *x = call->in[1].data;
    const float *rstd = call->in[3].data;
    float *dw = call->out[1].data;
    int64_t D = call->in[2].dims[0];
    v16f sum[COLUMNS / LANES];
    int part[COLUMNS / LANES];
    for (int k = 0; k < COLUMNS / LANES; k++) {
        part[k] = n - k * LANES < 0 ? 0 : n - k * LANES < LANES ? n - k * LANES : LANES;
        sum[k] = r && part[k] ? v_load(dw, j + k * LANES, part[k], CT_F32) : v_zero();
    }
    for (; r < end; r++) {
        v16f scale = v_set(rstd[r]);
        for (int k = 0; k < COLUMNS / LANES && part[k]; k++) {
            int64_t at = r * D + j + k * LANES;
            sum[k] = v_fma(v_load(dy, at, part[k], dtype), v_load(x, at, part[k], dtype) * scale, sum[k]);
        }
    }
    for (int k = 0; k < COLUMNS / LANES && part[k]; k++) v_store(dw, j + k * LANES, part[k], CT_F32, sum[k]);
}

CT_INLINE void grad_share(const ct_call *call, int thread, int threads, ct_dtype dtype, const int with_y) {
    int64_t D = call->in[2].dims[0], rows = ct_tensor_elems(&call->in[3]);
    int64_t block = BLOCK_BYTES * (int64_t)threads / (2 * D * (int64_t)ct_dtype_bytes(dtype));
    block = block < threads ? threads : block;
    long long first_column, end_column, first, last;
    ct_share(D, 2 * LANES, thread, threads, &first_column, &end_column);
    if (!rows) memset((float *)call->out[1].data + first_column, 0, 4 * (size_t)(end_column - first_column));
    for (int64_t r = 0; r < rows; r += block) {
        int64_t end = r + block < rows ? r + block : rows;
        ct_share(end - r, 1, thread, threads, &first, &last);
        for (int64_t i = r + first; i < r + last; i++) row_dx(call, i, D, dtype, with_y);
        int64_t j = first_column;
        for (; j + COLUMNS <= end_column; j += COLUMNS) columns_dw(call, r, end, j, COLUMNS, dtype);
        if (j < end_column) columns_dw(call, r, end, j, (int)(end_column - j), dtype);
    }
}
static void grad_f32_task(void *call, int thread, int threads) { grad_share(call, thread, threads, CT_F32, 0); }
static void grad_bf16_task(void *call, int thread, int threads) { grad_share(call, thread, threads, CT_BF16, 0); }
static void grad_y_f32_task(void *call, int thread, int threads) { grad_share(call, thread, threads, CT_F32, 1); }
static void grad_y_bf16_task(void *call, int thread, int threads) { grad_share(call, thread, threads, CT_BF16, 1); }
static void grad_f32(const ct_call *call, ct_team *team) { ct_team_run(team, grad_f32_task, (void *)call); }
static void grad_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, grad_bf16_task, (void *)call); }
static void grad_y_f32(const ct_call *call, ct_team *team) { ct_team_run(team, grad_y_f32_task, (void *)call); }
static void grad_y_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, grad_y_bf16_task, (void *)call); }

extern const ct_kernel CT_TABLE(norm)[];
const ct_kernel CT_TABLE(norm)[] = {
    {"rmsnorm", "ff>ff", ISA, rmsnorm_f32, NULL, "sum of squares in 64 f32 lanes; y 3 ulp"},
    {"rmsnorm", "bf>bf", ISA, rmsnorm_bf16, NULL, "f32 inside, y rounded once to bf16"},
    {"rmsnorm_grad", "ffff>ff", ISA, grad_f32, NULL, "f32; dw one flat sum over rows, ascending"},
    {"rmsnorm_grad", "bbff>bf", ISA, grad_bf16, NULL,
     "f32 inside, dx rounded once; dw one flat f32 sum over rows, ascending"},
    {"rmsnorm_grad_y", "ffff>fff", ISA, grad_y_f32, NULL, "as rmsnorm_grad and rmsnorm"},
    {"rmsnorm_grad_y", "bbff>bfb", ISA, grad_y_bf16, NULL, "as rmsnorm_grad and rmsnorm"},
    {0},
};
