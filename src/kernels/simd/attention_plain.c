// Attention a row at a time, in plain loops: right for every shape and mask, and the yardstick for the tiled kernels.
// softmax over s of scale·q·k where k_pos[s] ≤ q_pos[t] and q_doc[t] == k_doc[s]. Keys are visited in ascending order
// and masked ones change nothing, so a row's bits depend on its allowed keys' values and places only. Left out:
// tiles, so speed.
#include "isa.h"
#include "vec.h"

#include <math.h>

typedef struct {
    int64_t B, T, G, Q, S, d, e;
    const int32_t *q_pos, *k_pos, *q_doc, *k_doc;
    float scale;
} shape;

// first_mask is the input where q_pos stands; q, k and v start at input `first`.
static shape shape_of(const ct_call *call, int first, int first_mask) {
    const int64_t *q = call->in[first].dims, *v = call->in[first + 2].dims;
    return (shape){.B = q[0],
                   .T = q[1],
                   .G = q[2],
                   .Q = q[3],
                   .S = v[1],
                   .d = q[4],
                   .e = v[3],
                   .q_pos = call->in[first_mask].data,
                   .k_pos = call->in[first_mask + 1].data,
                   .q_doc = call->in[first_mask + 2].data,
                   .k_doc = call->in[first_mask + 3].data,
                   .scale = (float)call->attrs[0]};
}

static int allowed(const shape *c, int64_t b, int64_t t, int64_t s) {
    int64_t q = b * c->T + t, k = b * c->S + s;
    return c->k_pos[k] <= c->q_pos[q] && c->q_doc[q] == c->k_doc[k];
}

CT_INLINE float dot(const void *x, int64_t x_at, const void *y, int64_t y_at, int64_t n, ct_dtype dtype) {
    v16f sum = v_zero();
    for (int64_t i = 0; i < n; i += LANES) {
        int part = n - i < LANES ? (int)(n - i) : LANES;
        sum = v_fma(v_load(x, x_at + i, part, dtype), v_load(y, y_at + i, part, dtype), sum);
    }
    return v_sum(sum);
}
// sum += a·x
CT_INLINE void add_scaled(float *sum, float a, const void *x, int64_t x_at, int64_t n, ct_dtype dtype) {
    for (int64_t i = 0; i < n; i += LANES) {
        int part = n - i < LANES ? (int)(n - i) : LANES;
        v_store(sum, i, part, CT_F32,
                v_fma(v_set(a), v_load(x, x_at + i, part, dtype), v_load(sum, i, part, CT_F32)));
    }
}
CT_INLINE void store_scaled(void *y, int64_t y_at, const float *x, float a, int64_t n, ct_dtype dtype) {
    for (int64_t i = 0; i < n; i += LANES) {
        int part = n - i < LANES ? (int)(n - i) : LANES;
        v_store(y, y_at + i, part, dtype, v_load(x, i, part, CT_F32) * v_set(a));
    }
}
static float exp_one(float x) { return v_exp(v_set(x))[0]; }

static size_t room(int64_t floats) { return (4 * (size_t)floats + 63) / 64 * 64; }

// ---- forward ------------------------------------------------------------------------------------------------

CT_INLINE void forward_row(const ct_call *call, const shape *c, int64_t row, float *sum, ct_dtype dtype) {
    const void *q = call->in[0].data, *k = call->in[1].data, *v = call->in[2].data;
    int64_t g = row / c->Q % c->G, t = row / (c->Q * c->G) % c->T, b = row / (c->Q * c->G * c->T);
    float max = -INFINITY, total = 0, *score = sum + room(c->e) / 4;
    for (int64_t s = 0; s < c->S; s++) {
        if (!allowed(c, b, t, s)) continue;
        score[s] = c->scale * dot(q, row * c->d, k, ((b * c->S + s) * c->G + g) * c->d, c->d, dtype);
        if (!(score[s] <= max)) max = score[s]; // NaN stays
    }
    memset(sum, 0, 4 * (size_t)c->e);
    for (int64_t s = 0; s < c->S; s++) {
        if (!allowed(c, b, t, s)) continue;
        float p = exp_one(score[s] - max);
        total += p;
        add_scaled(sum, p, v, ((b * c->S + s) * c->G + g) * c->e, c->e, dtype);
    }
    int none = total == 0;
    store_scaled(call->out[0].data, row * c->e, sum, none ? 0 : 1 / total, c->e, call->out[0].dtype);
    ((float *)call->out[1].data)[row] = none ? -INFINITY : (float)((double)max + log((double)total));
}

CT_INLINE void forward_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    shape c = shape_of(call, 0, 3);
    float *own = (float *)call->scratch + (size_t)thread * (room(c.e) + room(c.S)) / 4;
    for (int64_t row = thread; row < c.B * c.T * c.G * c.Q; row += threads) forward_row(call, &c, row, own, dtype);
}
static void forward_f32_task(void *call, int thread, int threads) { forward_share(call, thread, threads, CT_F32); }
static void forward_bf16_task(void *call, int thread, int threads) { forward_share(call, thread, threads, CT_BF16); }
static void forward_f32(const ct_call *call, ct_team *team) { ct_team_run(team, forward_f32_task, (void *)call); }
static void forward_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, forward_bf16_task, (void *)call); }
static size_t forward_scratch(const ct_call *call, int threads) {
    return (size_t)threads * (room(call->in[2].dims[3]) + room(call->in[2].dims[1]));
}

// ---- gradient -----------------------------------------------------------------------------------------------

// For a pair (query row, key): p and ds = p·(do·v - delta).
typedef struct {
    float p, ds;
} weight;
CT_INLINE weight weight_of(const ct_call *call, const shape *c, int64_t row, int64_t key, float delta,
                           ct_dtype dtype) {
    float lse = ((const float *)call->in[5].data)[row];
    float score = c->scale * dot(call->in[1].data, row * c->d, call->in[2].data, key * c->d, c->d, dtype);
    float p = exp_one(score - lse);
    return (weight){p, p * (dot(call->in[0].data, row * c->e, call->in[3].data, key * c->e, c->e, dtype) - delta)};
}

CT_INLINE void dq_row(const ct_call *call, const shape *c, int64_t row, float *delta, float *dq, ct_dtype dtype) {
    int64_t g = row / c->Q % c->G, t = row / (c->Q * c->G) % c->T, b = row / (c->Q * c->G * c->T);
    delta[row] = dot(call->in[0].data, row * c->e, call->in[4].data, row * c->e, c->e, dtype);
    memset(dq, 0, 4 * (size_t)c->d);
    for (int64_t s = 0; s < c->S; s++) {
        if (!allowed(c, b, t, s)) continue;
        int64_t key = (b * c->S + s) * c->G + g;
        add_scaled(dq, weight_of(call, c, row, key, delta[row], dtype).ds, call->in[2].data, key * c->d, c->d, dtype);
    }
    store_scaled(call->out[0].data, row * c->d, dq, c->scale, c->d, call->out[0].dtype);
}

CT_INLINE void dkv_row(const ct_call *call, const shape *c, int64_t key, const float *delta, float *dk,
                       ct_dtype dtype) {
    int64_t g = key % c->G, s = key / c->G % c->S, b = key / (c->G * c->S);
    float *dv = dk + room(c->d) / 4;
    memset(dk, 0, room(c->d) + 4 * (size_t)c->e);
    for (int64_t t = 0; t < c->T; t++) {
        if (!allowed(c, b, t, s)) continue;
        for (int64_t h = 0; h < c->Q; h++) {
            int64_t row = ((b * c->T + t) * c->G + g) * c->Q + h;
            weight w = weight_of(call, c, row, key, delta[row], dtype);
            add_scaled(dk, w.ds, call->in[1].data, row * c->d, c->d, dtype);
            add_scaled(dv, w.p, call->in[0].data, row * c->e, c->e, dtype);
        }
    }
    store_scaled(call->out[1].data, key * c->d, dk, c->scale, c->d, call->out[1].dtype);
    store_scaled(call->out[2].data, key * c->e, dv, 1, c->e, call->out[2].dtype);
}

typedef struct {
    const ct_call *call;
    ct_team *team;
} gradient;
CT_INLINE void gradient_share(const gradient *x, int thread, int threads, ct_dtype dtype) {
    shape c = shape_of(x->call, 1, 6);
    int64_t rows = c.B * c.T * c.G * c.Q, keys = c.B * c.S * c.G;
    float *delta = x->call->scratch, *own = delta + (room(rows) + (size_t)thread * (room(c.d) + room(c.e))) / 4;
    for (int64_t row = thread; row < rows; row += threads) dq_row(x->call, &c, row, delta, own, dtype);
    ct_team_barrier(x->team);
    for (int64_t key = thread; key < keys; key += threads) dkv_row(x->call, &c, key, delta, own, dtype);
}
static void gradient_f32_task(void *x, int thread, int threads) { gradient_share(x, thread, threads, CT_F32); }
static void gradient_bf16_task(void *x, int thread, int threads) { gradient_share(x, thread, threads, CT_BF16); }
static void gradient_f32(const ct_call *call, ct_team *team) {
    ct_team_run(team, gradient_f32_task, &(gradient){call, team});
}
static void gradient_bf16(const ct_call *call, ct_team *team) {
    ct_team_run(team, gradient_bf16_task, &(gradient){call, team});
}
static size_t gradient_scratch(const ct_call *call, int threads) {
    const int64_t *q = call->in[1].dims;
    return room(q[0] * q[1] * q[2] * q[3]) + (size_t)threads * (room(q[4]) + room(call->in[3].dims[3]));
}

extern const ct_kernel CT_TABLE(attention_plain)[];
const ct_kernel CT_TABLE(attention_plain)[] = {
    {"attention", "fffiiii>ff", ISA, forward_f32, forward_scratch, "f32, a row at a time; keys ascending"},
    {"attention", "bbbiiii>.f", ISA, forward_bf16, forward_scratch, "f32 inside, o rounded once; a row at a time"},
    {"attention_grad", "ffffffiiii>fff", ISA, gradient_f32, gradient_scratch,
     "f32; sums over keys, and over t then Q, ascending"},
    {"attention_grad", "bbbbbfiiii>...", ISA, gradient_bf16, gradient_scratch,
     "f32 inside, rounded once; sums over keys, and over t then Q, ascending"},
    {0},
};
