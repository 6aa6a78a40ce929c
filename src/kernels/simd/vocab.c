// The loss over a vocabulary, in parts that can be cut: max, sum of exponentials, the label's logit, and the gradient
// of the logits. Threads get whole rows. A row's sum goes to 64 running lanes and through one tree. A shard may have no logits: -inf, 0, 0.
#include "isa.h"
#include "vec.h"

#include <math.h>

enum { IGNORED = -100 };

CT_INLINE void rows_of(const ct_call *call, int thread, int threads, long long *out_begin, long long *out_end) {
    ct_share(call->in[0].dims[0] * call->in[0].dims[1], 1, thread, threads, out_begin, out_end);
}
CT_INLINE int64_t vocabulary(const ct_call *call) { return call->in[0].dims[call->in[0].dims_count - 1]; }

// ---- max ---------------------------------------------------------------------------------------------------

static float row_max(const float *x, int64_t V) {
    v16f m[4];
    for (int k = 0; k < 4; k++) m[k] = v_set(-INFINITY);
    int64_t j = 0;
    for (; j + 4 * LANES <= V; j += 4 * LANES)
        for (int k = 0; k < 4; k++) m[k] = v_max(v_load(x, j + k * LANES, LANES, CT_F32), m[k]);
    for (; j < V; j += LANES) {
        int n = V - j < LANES ? (int)(V - j) : LANES;
        m[0] = v_max(v_select(v_below(n), v_load(x, j, n, CT_F32), v_set(-INFINITY)), m[0]);
    }
    return v_max_lane(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
}
static void vocab_max_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    int64_t V = vocabulary(call);
    long long r, end;
    rows_of(call, thread, threads, &r, &end);
    for (; r < end; r++) ((float *)call->out[0].data)[r] = row_max((const float *)call->in[0].data + r * V, V);
}
static void vocab_max(const ct_call *call, ct_team *team) { ct_team_run(team, vocab_max_task, (void *)call); }

// ---- sum of exponentials -----------------------------------------------------------------------------------

static float row_sumexp(const float *x, int64_t V, float max) {
    v16f s[4] = {v_zero(), v_zero(), v_zero(), v_zero()}, m = v_set(max);
    int64_t j = 0;
    for (; j + 4 * LANES <= V; j += 4 * LANES)
        for (int k = 0; k < 4; k++) s[k] += v_exp(v_load(x, j + k * LANES, LANES, CT_F32) - m);
    for (; j < V; j += LANES) {
        int n = V - j < LANES ? (int)(V - j) : LANES;
        s[0] += v_select(v_below(n), v_exp(v_load(x, j, n, CT_F32) - m), v_zero());
    }
    return v_sum((s[0] + s[1]) + (s[2] + s[3]));
}
static void vocab_sumexp_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    const float *max = call->in[1].data;
    int64_t V = vocabulary(call);
    long long r, end;
    rows_of(call, thread, threads, &r, &end);
    for (; r < end; r++)
        ((float *)call->out[0].data)[r] = row_sumexp((const float *)call->in[0].data + r * V, V, max[r]);
}
static void vocab_sumexp(const ct_call *call, ct_team *team) { ct_team_run(team, vocab_sumexp_task, (void *)call); }

// ---- the label's logit, the loss ---------------------------------------------------------------------------

// Labels are global: 1 where this one is in the shard of the vocabulary at hand, as *out_at.
CT_INLINE int in_shard(const ct_call *call, int32_t label, int64_t V, int64_t *out_at) {
    *out_at = (int64_t)label - call->in[0].origin[2];
    return label != IGNORED && *out_at >= 0 && *out_at < V;
}

static void vocab_pick(const ct_call *call, ct_team *team) {
    (void)team;
    const float *logits = call->in[0].data;
    const int32_t *labels = call->in[1].data;
    float *picked = call->out[0].data;
    int64_t V = vocabulary(call), rows = ct_tensor_elems(&call->in[1]);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at;
        picked[r] = in_shard(call, labels[r], V, &at) ? logits[r * V + at] : 0;
    }
}

static void token_loss(const ct_call *call, ct_team *team) {
    (void)team;
    const float *m = call->in[0].data, *s = call->in[1].data, *p = call->in[2].data;
    const int32_t *labels = call->in[3].data;
    float *loss = call->out[0].data;
    int64_t rows = ct_tensor_elems(&call->in[3]);
    for (int64_t r = 0; r < rows; r++)
        loss[r] = labels[r] == IGNORED ? 0 : (float)(log((double)s[r]) + ((double)m[r] - (double)p[r]));
}

// ---- gradient ----------------------------------------------------------------------------------------------

typedef struct {
    v16f max, sum, inv_count;
} row_scale;

CT_INLINE void grad_16(const float *x, void *dx, int64_t base, int64_t j, int n, row_scale c, ct_dtype dtype) {
    v16f share = v_exp(v_load(x, base + j, n, CT_F32) - c.max) / c.sum;
    v_store(dx, base + j, n, dtype, share * c.inv_count);
}

CT_INLINE void row_grad(const ct_call *call, int64_t r, int64_t V, ct_dtype dtype) {
    const float *x = call->in[0].data;
    int32_t label = ((const int32_t *)call->in[3].data)[r];
    void *dx = call->out[0].data;
    if (label == IGNORED) {
        size_t bytes = ct_dtype_bytes(dtype);
        memset((char *)dx + (size_t)(r * V) * bytes, 0, (size_t)V * bytes);
        return;
    }
    float max = ((const float *)call->in[1].data)[r], sum = ((const float *)call->in[2].data)[r];
    float inv_count = *(const float *)call->in[4].data;
    row_scale c = {v_set(max), v_set(sum), v_set(inv_count)};
    int64_t at;
    int here = in_shard(call, label, V, &at);
    float logit = here ? x[r * V + at] : 0; // before dx, which may be x's memory, is written
    int64_t j = 0;
    for (; j + LANES <= V; j += LANES) grad_16(x, dx, r * V, j, LANES, c, dtype);
    if (j < V) grad_16(x, dx, r * V, j, (int)(V - j), c, dtype);
    if (!here) return;
    v16f share = v_exp(v_set(logit - max)) / c.sum;
    v_store(dx, r * V + at, 1, dtype, (share - v_set(1.0f)) * c.inv_count);
}
CT_INLINE void vocab_grad_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    int64_t V = vocabulary(call);
    long long r, end;
    rows_of(call, thread, threads, &r, &end);
    for (; r < end; r++) row_grad(call, r, V, dtype);
}
static void vocab_grad_f32_task(void *call, int thread, int threads) {
    vocab_grad_share(call, thread, threads, CT_F32);
}
static void vocab_grad_bf16_task(void *call, int thread, int threads) {
    vocab_grad_share(call, thread, threads, CT_BF16);
}
static void vocab_grad_f32(const ct_call *call, ct_team *team) {
    ct_team_run(team, vocab_grad_f32_task, (void *)call);
}
static void vocab_grad_bf16(const ct_call *call, ct_team *team) {
    ct_team_run(team, vocab_grad_bf16_task, (void *)call);
}

extern const ct_kernel CT_TABLE(vocab)[];
const ct_kernel CT_TABLE(vocab)[] = {
    {"vocab_max", "f>f", ISA, vocab_max, NULL, "exact; NaN is passed over (the sum shows it)"},
    {"vocab_sumexp", "ff>f", ISA, vocab_sumexp, NULL, "exp 2 ulp, summed in 64 f32 lanes"},
    {"vocab_pick", "fi>f", ISA, vocab_pick, NULL, "exact"},
    {"token_loss", "fffi>f", ISA, token_loss, NULL, "in double, rounded once"},
    {"vocab_grad", "fffif>f", ISA, vocab_grad_f32, NULL, "4 ulp of the larger of share and 1; may be logits' memory"},
    {"vocab_grad", "fffif>b", ISA, vocab_grad_bf16, NULL, "f32 inside, rounded once to bf16"},
    {0},
};
