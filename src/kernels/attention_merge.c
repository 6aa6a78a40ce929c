// Two parts of an attention as one, row by row: a pass over memory with two exponentials a row.
#include "kernels/kernel.h"

#include <math.h>

static void merge_rows(void *context, int thread, int threads) {
    const ct_call *call = context;
    int64_t e = call->in[0].dims[4];
    const float *o_a = call->in[0].data, *a = call->in[1].data, *o_b = call->in[2].data, *b = call->in[3].data;
    float *o = call->out[0].data, *lse = call->out[1].data;
    long long r, end;
    ct_share(ct_tensor_elems(&call->in[1]), 16, thread, threads, &r, &end);
    for (; r < end; r++) {
        float m = fmaxf(a[r], b[r]);
        int none = m == -INFINITY;
        float wa = none ? 0 : expf(a[r] - m), wb = none ? 0 : expf(b[r] - m), sum = none ? 1 : wa + wb;
        wa /= sum, wb /= sum;
        for (int64_t i = 0; i < e; i++) o[r * e + i] = o_a[r * e + i] * wa + o_b[r * e + i] * wb;
        lse[r] = none ? m : m + logf(sum);
    }
}

static void attention_merge(const ct_call *call, ct_team *team) { ct_team_run(team, merge_rows, (void *)call); }

extern const ct_kernel ct_kernels_attention_merge[];
const ct_kernel ct_kernels_attention_merge[] = {
    {"attention_merge", "ffff>ff", "generic", attention_merge, NULL, "f32, a few ulp of the larger part; in place"},
    {0},
};
