// Rotary positions (Su et al. 2021) with Llama 3.1's stretching of long waves: angles once for a batch, then one
// rotation of the interleaved pairs (x[2i], x[2i+1]) a head. The angle is rounded to f32 before cos and sin, as the
// reference does.
#include "isa.h"
#include "vec.h"

#include <math.h>

// ---- angles ----------------------------------------------------------------------------------------------

// attrs: dim, theta, factor, low, high, original. f32 throughout, in the order of the reference's formula.
static float frequency(const double *attrs, int pair) {
    float exponent = (float)(2 * pair) / (float)attrs[0];
    float f = 1.0f / (float)pow((double)(float)attrs[1], (double)exponent);
    double factor = attrs[2], low = attrs[3], high = attrs[4], original = attrs[5];
    if (factor <= 0 || factor == 1) return f;
    float wave = (float)(2 * M_PI) / f;
    if (wave < (float)(original / high)) return f;
    if (wave > (float)(original / low)) return f / (float)factor;
    float smooth = ((float)original / wave - (float)low) / (float)(high - low);
    return (1.0f - smooth) * f / (float)factor + smooth * f;
}

static void angles_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    const int32_t *positions = call->in[0].data;
    float *angles = call->out[0].data;
    int pairs = (int)call->attrs[0] / 2;
    long long t, end;
    ct_share(ct_tensor_elems(&call->in[0]), 1, thread, threads, &t, &end);
    for (int i = 0; i < pairs && t < end; i++) {
        float f = frequency(call->attrs, i);
        for (long long row = t; row < end; row++) {
            double sine, cosine, angle = (double)((float)positions[row] * f);
            sincos(angle, &sine, &cosine);
            angles[2 * (row * pairs + i)] = (float)cosine;
            angles[2 * (row * pairs + i) + 1] = (float)sine;
        }
    }
}
static void rope_angles(const ct_call *call, ct_team *team) { ct_team_run(team, angles_task, (void *)call); }

// ---- rotation --------------------------------------------------------------------------------------------

CT_INLINE v16f v_swap_pairs(v16f x) {
#ifdef __AVX512F__
    return (v16f)_mm512_permute_ps((__m512)x, 0xb1);
#else
    return (v16f){x[1], x[0], x[3],  x[2],  x[5],  x[4],  x[7],  x[6],
                  x[9], x[8], x[11], x[10], x[13], x[12], x[15], x[14]};
#endif
}
CT_INLINE v16f v_even(v16f x) {
#ifdef __AVX512F__
    return (v16f)_mm512_moveldup_ps((__m512)x);
#else
    return (v16f){x[0], x[0], x[2],  x[2],  x[4],  x[4],  x[6],  x[6],
                  x[8], x[8], x[10], x[10], x[12], x[12], x[14], x[14]};
#endif
}
CT_INLINE v16f v_odd(v16f x) {
#ifdef __AVX512F__
    return (v16f)_mm512_movehdup_ps((__m512)x);
#else
    return (v16f){x[1], x[1], x[3],  x[3],  x[5],  x[5],  x[7],  x[7],
                  x[9], x[9], x[11], x[11], x[13], x[13], x[15], x[15]};
#endif
}

// (a, b) → (a·cos - b·sin, b·cos + a·sin); sign flips sin's sign where the rotation is the inverse, and in the even
// lanes.
CT_INLINE void rotate_16(const ct_call *call, int64_t at, int64_t angle_at, int n, v16u sign, ct_dtype dtype) {
    v16f x = v_load(call->in[0].data, at, n, dtype), angle = v_load(call->in[1].data, angle_at, n, CT_F32);
    v16f sine = (v16f)((v16u)v_odd(angle) ^ sign);
    v_store(call->out[0].data, at, n, dtype, v_fma(x, v_even(angle), v_swap_pairs(x) * sine));
}

CT_INLINE void rope_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    int64_t d = call->in[1].dims[call->in[1].dims_count - 1], tokens = ct_tensor_elems(&call->in[1]) / d;
    int64_t heads = tokens ? ct_tensor_elems(&call->in[0]) / (tokens * d) : 0;
    v16u minus = (v16u)(v16i){-1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0} & 0x80000000u;
    v16u sign = call->attrs[0] != 0 ? minus ^ 0x80000000u : minus;
    long long t, end;
    ct_share(tokens, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (t * heads + h) * d, i = 0;
            for (; i + LANES <= d; i += LANES) rotate_16(call, at + i, t * d + i, LANES, sign, dtype);
            if (i < d) rotate_16(call, at + i, t * d + i, (int)(d - i), sign, dtype);
        }
}
static void rope_f32_task(void *call, int thread, int threads) { rope_share(call, thread, threads, CT_F32); }
static void rope_bf16_task(void *call, int thread, int threads) { rope_share(call, thread, threads, CT_BF16); }
static void rope_f32(const ct_call *call, ct_team *team) { ct_team_run(team, rope_f32_task, (void *)call); }
static void rope_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, rope_bf16_task, (void *)call); }

extern const ct_kernel CT_TABLE(rope)[];
const ct_kernel CT_TABLE(rope)[] = {
    {"rope_angles", "i>f", ISA, rope_angles, NULL, "f32 angles; cos and sin in double, rounded once"},
    {"rope", "ff>f", ISA, rope_f32, NULL, "1 ulp of the pair's length; y may be x's memory"},
    {"rope", "bf>b", ISA, rope_bf16, NULL, "f32 inside, rounded once; y may be x's memory"},
    {0},
};
