// Two parts of an attention as one, row by row: a pass over memory, with two exponentials and a logarithm a row. The
// larger log-sum-exp is taken off before anything is raised, so nothing overflows.
#include "isa.h"
#include "vec.h"

#include <math.h>

// How much of each part, and the log-sum-exp of both; nothing of either where both saw no key. NaN and inf show in
// all three.
typedef struct {
    float of_a, of_b, lse;
} mixture;
CT_INLINE mixture mixture_of(float a, float b) {
    float m = a > b ? a : b;
    if (a == -INFINITY && b == -INFINITY) return (mixture){0, 0, m};
    v16f x = v_zero();
    x[0] = a - m, x[1] = b - m;
    x = v_exp(x);
    float sum = x[0] + x[1];
    return (mixture){x[0] / sum, x[1] / sum, (float)((double)m + log((double)sum))};
}

static void merge_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    int64_t e = call->in[0].dims[4];
    const float *o_a = call->in[0].data, *a = call->in[1].data, *o_b = call->in[2].data, *b = call->in[3].data;
    float *o = call->out[0].data, *lse = call->out[1].data;
    long long r, end;
    ct_share(ct_tensor_elems(&call->in[1]), LANES, thread, threads, &r, &end);
    for (; r < end; r++) {
        mixture by = mixture_of(a[r], b[r]);
        int64_t i = r * e, row_end = i + e;
        for (; i + LANES <= row_end; i += LANES)
            v_store(o, i, LANES, CT_F32,
                    v_load(o_a, i, LANES, CT_F32) * v_set(by.of_a) + v_load(o_b, i, LANES, CT_F32) * v_set(by.of_b));
        for (; i < row_end; i++) o[i] = o_a[i] * by.of_a + o_b[i] * by.of_b;
        lse[r] = by.lse;
    }
}
static void attention_merge(const ct_call *call, ct_team *team) { ct_team_run(team, merge_task, (void *)call); }

extern const ct_kernel CT_TABLE(attention_merge)[];
const ct_kernel CT_TABLE(attention_merge)[] = {
    {"attention_merge", "ffff>ff", ISA, attention_merge, NULL,
     "o 4 ulp of the larger part, lse 1 ulp of the terms; outputs may be the first part's memory"},
    {0},
};
