// The update: the exact gradient norm, the clip factor, and AdamW (Loshchilov and Hutter 2019) in one pass over
// memory, in f32 with the roundings of PyTorch's single-tensor form.
#include "isa.h"
#include "vec.h"

#include "base/wide.h"
#include <math.h>
#include <string.h>

enum { GRAIN = 4096 };

// ---- norm --------------------------------------------------------------------------------------------------

static void wide_sum_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    long long begin, end;
    ct_share(ct_tensor_elems(&call->in[0]), GRAIN, thread, threads, &begin, &end);
    int64_t *digits = (int64_t *)call->scratch + (size_t)thread * 32; // whole cache lines
    ct_wide_clear(digits);
    ct_wide_add_f32_array(digits, (const float *)call->in[0].data + begin, (size_t)(end - begin),
                          call->attrs[0] != 0);
}
static void wide_sum(const ct_call *call, ct_team *team) {
    ct_team_run(team, wide_sum_task, (void *)call);
    int64_t *sum = call->out[0].data;
    if (*(const int32_t *)call->in[2].data) ct_wide_clear(sum);
    for (int t = 0; t < ct_team_size(team); t++) ct_wide_merge(sum, (const int64_t *)call->scratch + (size_t)t * 32);
    ct_wide_normalise(sum);
}
static size_t wide_sum_scratch(const ct_call *call, int threads) {
    (void)call;
    return sizeof(int64_t) * 32 * (size_t)threads;
}

static void wide_of(const ct_call *call, ct_team *team) {
    ct_team_run(team, wide_sum_task, (void *)call);
    int64_t *sum = call->out[0].data;
    ct_wide_clear(sum);
    for (int t = 0; t < ct_team_size(team); t++) ct_wide_merge(sum, (const int64_t *)call->scratch + (size_t)t * 32);
    ct_wide_normalise(sum);
}

static void wide_total(const ct_call *call, ct_team *team) {
    (void)team;
    int64_t *sum = call->out[0].data, numbers = call->in[0].dims[0] / CT_WIDE_DIGITS;
    ct_wide_clear(sum);
    for (int64_t i = 0; i < numbers; i++) {
        int64_t digits[CT_WIDE_DIGITS];
        memcpy(digits, (const int64_t *)call->in[0].data + i * CT_WIDE_DIGITS, sizeof digits);
        ct_wide_normalise(digits); // it may be a sum of ranks' digits
        ct_wide_merge(sum, digits);
    }
    ct_wide_normalise(sum);
}

static void wide_norm(const ct_call *call, ct_team *team) {
    (void)team;
    *(float *)call->out[0].data = (float)sqrt(ct_wide_to_double(call->in[0].data));
}

static void clip_factor(const ct_call *call, ct_team *team) {
    (void)team;
    float norm = *(const float *)call->in[0].data, factor = (float)call->attrs[0] / (norm + 1e-6f);
    *(float *)call->out[0].data = !isfinite(norm) ? NAN : factor < 1 ? factor : 1;
}

// ---- AdamW -------------------------------------------------------------------------------------------------

typedef struct {
    const float *p, *m, *v, *g;
    float *p_out, *m_out, *v_out; // the same memory
    int64_t elems;
    float *average; // NULL: there is none to move
    float share, rest; // of the new weight in it, and 1 - share
    float clip, decay, l2, one_minus_beta1, beta1, beta2, one_minus_beta2, root_correction2, eps, minus_step;
} update;

CT_INLINE void update_16(const update *u, int64_t i, int n) {
    v16f p = v_load(u->p, i, n, CT_F32), m = v_load(u->m, i, n, CT_F32), v = v_load(u->v, i, n, CT_F32);
    v16f g = v_load(u->g, i, n, CT_F32) * v_set(u->clip);
    if (u->l2 != 0) g += v_set(u->l2) * p;
    p *= v_set(u->decay);
    // lerp as PyTorch has it: from whichever end is nearer.
    m = u->one_minus_beta1 < 0.5f ? m + v_set(u->one_minus_beta1) * (g - m) : g - (g - m) * v_set(u->beta1);
    v = v * v_set(u->beta2) + v_set(u->one_minus_beta2) * g * g;
    v16f denominator = v_sqrt(v) / v_set(u->root_correction2) + v_set(u->eps);
    p = p + v_set(u->minus_step) * m / denominator;
    v_store(u->p_out, i, n, CT_F32, p);
    v_store(u->m_out, i, n, CT_F32, m);
    v_store(u->v_out, i, n, CT_F32, v);
    if (!u->average) return;
    v16f e = v_load(u->average, i, n, CT_F32);
    v_store(u->average, i, n, CT_F32, u->share < 0.5f ? e + v_set(u->share) * (p - e) : p - (p - e) * v_set(u->rest));
}
static void update_task(void *context, int thread, int threads) {
    const update u = *(const update *)context;
    long long i, end;
    ct_share(u.elems, GRAIN, thread, threads, &i, &end);
    for (; i + LANES <= end; i += LANES) update_16(&u, i, LANES);
    if (i < end) update_16(&u, i, (int)(end - i));
}

// inputs p, m, v, g, clip, scalars {lr, step}; with a seventh, the average, scalars {lr, step, share}; attrs lr_scale, beta1, beta2, eps, weight_decay, l2.
static void adamw(const ct_call *call, ct_team *team) {
    const double *scalars = call->in[5].data, *attrs = call->attrs;
    double lr = scalars[0] * attrs[0], step = scalars[1], beta1 = attrs[1], beta2 = attrs[2];
    float clip = *(const float *)call->in[4].data;
    if (!isfinite(clip)) return;
    update u = {
        .p = call->in[0].data,
        .m = call->in[1].data,
        .v = call->in[2].data,
        .g = call->in[3].data,
        .p_out = call->out[0].data,
        .m_out = call->out[1].data,
        .v_out = call->out[2].data,
        .elems = ct_tensor_elems(&call->in[0]),
        .clip = clip,
        .decay = attrs[5] != 0 ? 1 : (float)(1 - lr * attrs[4]),
        .l2 = attrs[5] != 0 ? (float)attrs[4] : 0,
        .one_minus_beta1 = (float)(1 - beta1),
        .beta1 = 1 - (float)(1 - beta1),
        .beta2 = (float)beta2,
        .one_minus_beta2 = (float)(1 - beta2),
        .root_correction2 = (float)sqrt(1 - pow(beta2, step)),
        .eps = (float)attrs[3],
        .minus_step = (float)-(lr / (1 - pow(beta1, step))),
    };
    if (call->inputs == 7 && scalars[2] != 0)
        u.average = call->out[3].data, u.share = (float)scalars[2], u.rest = (float)(1 - scalars[2]);
    ct_team_run(team, update_task, &u);
}

extern const ct_kernel CT_TABLE(optimizer)[];
const ct_kernel CT_TABLE(optimizer)[] = {
    {"wide_sum", "fli>l", ISA, wide_sum, wide_sum_scratch, "exact, order-free"},
    {"wide_of", "f>l", ISA, wide_of, wide_sum_scratch, "exact, order-free"},
    {"wide_total", "l>l", ISA, wide_total, NULL, "exact"},
    {"wide_norm", "l>f", ISA, wide_norm, NULL, "root of the rounded exact sum, 1 ulp"},
    {"clip_factor", "f>f", ISA, clip_factor, NULL, "f32"},
    {"adamw", "fffffd>fff", ISA, adamw, NULL,
     "f32 in PyTorch's order of roundings; in place; nothing where clip is not finite"},
    {"adamw_ema", "fffffdf>ffff", ISA, adamw, NULL,
     "as adamw; the average in the same pass, f32, from whichever end is nearer"},
    {0},
};
