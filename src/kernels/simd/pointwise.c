// Element by element, in one pass over memory: sums, casts and the gated unit. Threads get runs of elements; an
// element's bits depend on its operands only, so any cut and any tail is right.
#include "isa.h"
#include "vec.h"

enum { GRAIN = 1024 }; // elements: whole cache lines for every dtype

// ---- add, accumulate, cast -----------------------------------------------------------------------------

CT_INLINE void add_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    int64_t begin, end;
    ct_share(ct_tensor_elems(&call->out[0]), GRAIN, thread, threads, (long long *)&begin, (long long *)&end);
    const void *a = call->in[0].data, *b = call->in[1].data;
    void *y = call->out[0].data;
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        v_store(y, i, LANES, dtype, v_load(a, i, LANES, dtype) + v_load(b, i, LANES, dtype));
    if (i < end)
        v_store(y, i, (int)(end - i), dtype,
                v_load(a, i, (int)(end - i), dtype) + v_load(b, i, (int)(end - i), dtype));
}
static void add_f32_task(void *call, int thread, int threads) { add_share(call, thread, threads, CT_F32); }
static void add_bf16_task(void *call, int thread, int threads) { add_share(call, thread, threads, CT_BF16); }
static void add_f32(const ct_call *call, ct_team *team) { ct_team_run(team, add_f32_task, (void *)call); }
static void add_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, add_bf16_task, (void *)call); }

CT_INLINE void cast_share(const ct_call *call, int thread, int threads, ct_dtype from, ct_dtype to) {
    int64_t begin, end;
    ct_share(ct_tensor_elems(&call->out[0]), GRAIN, thread, threads, (long long *)&begin, (long long *)&end);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) v_store(y, i, LANES, to, v_load(x, i, LANES, from));
    if (i < end) v_store(y, i, (int)(end - i), to, v_load(x, i, (int)(end - i), from));
}
static void cast_down_task(void *call, int thread, int threads) {
    cast_share(call, thread, threads, CT_F32, CT_BF16);
}
static void cast_up_task(void *call, int thread, int threads) { cast_share(call, thread, threads, CT_BF16, CT_F32); }
static void cast_down(const ct_call *call, ct_team *team) { ct_team_run(team, cast_down_task, (void *)call); }
static void cast_up(const ct_call *call, ct_team *team) { ct_team_run(team, cast_up_task, (void *)call); }

static void copy_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    long long begin, end;
    ct_share(ct_tensor_elems(&call->out[0]), GRAIN, thread, threads, &begin, &end);
    memmove((float *)call->out[0].data + begin, (const float *)call->in[1].data + begin, 4 * (size_t)(end - begin));
}
static void accumulate(const ct_call *call, ct_team *team) {
    int32_t first = *(const int32_t *)call->in[2].data;
    ct_team_run(team, first ? copy_task : add_f32_task, (void *)call);
}

// ---- the gated unit: y = a·sigmoid(a)·b ----------------------------------------------------------------

typedef struct {
    v16f on, off; // sigmoid(a), and 1 - sigmoid(a) without cancellation
} gate;

CT_INLINE gate gate_of(v16f a) {
    v16f e = v_exp((v16f)((v16u)a | 0x80000000u)); // e^-|a|
    v16f large = v_set(1.0f) / (e + v_set(1.0f)), small = e * large;
    v16i positive = a > v_zero();
    return (gate){v_select(positive, large, small), v_select(positive, small, large)};
}

CT_INLINE void silu_mul_16(const ct_call *call, int64_t i, int n, ct_dtype dtype) {
    v16f a = v_load(call->in[0].data, i, n, dtype), b = v_load(call->in[1].data, i, n, dtype);
    v_store(call->out[0].data, i, n, dtype, a * gate_of(a).on * b);
}
CT_INLINE void silu_mul_share(const ct_call *call, int thread, int threads, ct_dtype dtype) {
    long long i, end;
    ct_share(ct_tensor_elems(&call->out[0]), GRAIN, thread, threads, &i, &end);
    for (; i + LANES <= end; i += LANES) silu_mul_16(call, i, LANES, dtype);
    if (i < end) silu_mul_16(call, i, (int)(end - i), dtype);
}
static void silu_mul_f32_task(void *call, int thread, int threads) { silu_mul_share(call, thread, threads, CT_F32); }
static void silu_mul_bf16_task(void *call, int thread, int threads) {
    silu_mul_share(call, thread, threads, CT_BF16);
}
static void silu_mul_f32(const ct_call *call, ct_team *team) { ct_team_run(team, silu_mul_f32_task, (void *)call); }
static void silu_mul_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, silu_mul_bf16_task, (void *)call); }

// da = dy·b·s·(1 + a·(1 - s)), db = dy·a·s with s = sigmoid(a), and, where it is asked for, y = a·s·b.
CT_INLINE void silu_grad_16(const ct_call *call, int64_t i, int n, ct_dtype dtype, const int with_y) {
    v16f dy = v_load(call->in[0].data, i, n, dtype);
    v16f a = v_load(call->in[1].data, i, n, dtype), b = v_load(call->in[2].data, i, n, dtype);
    gate s = gate_of(a);
    v_store(call->out[0].data, i, n, dtype, s.on * v_fma(a, s.off, v_set(1.0f)) * b * dy);
    v_store(call->out[1].data, i, n, dtype, a * s.on * dy);
    if (with_y) v_store(call->out[2].data, i, n, dtype, a * s.on * b);
}
CT_INLINE void silu_grad_share(const ct_call *call, int thread, int threads, ct_dtype dtype, const int with_y) {
    long long i, end;
    ct_share(ct_tensor_elems(&call->out[0]), GRAIN, thread, threads, &i, &end);
    for (; i + LANES <= end; i += LANES) silu_grad_16(call, i, LANES, dtype, with_y);
    if (i < end) silu_grad_16(call, i, (int)(end - i), dtype, with_y);
}
static void silu_grad_f32_task(void *call, int thread, int threads) {
    silu_grad_share(call, thread, threads, CT_F32, 0);
}
static void silu_grad_bf16_task(void *call, int thread, int threads) {
    silu_grad_share(call, thread, threads, CT_BF16, 0);
}
static void silu_grad_y_f32_task(void *call, int thread, int threads) { silu_grad_share(call, thread, threads, CT_F32, 1); }
static void silu_grad_y_bf16_task(void *call, int thread, int threads) { silu_grad_share(call, thread, threads, CT_BF16, 1); }
static void silu_grad_f32(const ct_call *call, ct_team *team) { ct_team_run(team, silu_grad_f32_task, (void *)call); }
static void silu_grad_bf16(const ct_call *call, ct_team *team) {
    ct_team_run(team, silu_grad_bf16_task, (void *)call);
}
static void silu_grad_y_f32(const ct_call *call, ct_team *team) { ct_team_run(team, silu_grad_y_f32_task, (void *)call); }
static void silu_grad_y_bf16(const ct_call *call, ct_team *team) { ct_team_run(team, silu_grad_y_bf16_task, (void *)call); }

extern const ct_kernel CT_TABLE(pointwise)[];
const ct_kernel CT_TABLE(pointwise)[] = {
    {"add", "ff>f", ISA, add_f32, NULL, "rounded once; y may be a's or b's memory"},
    {"add", "bb>b", ISA, add_bf16, NULL, "summed in f32, rounded once to bf16; y may be a's or b's memory"},
    {"accumulate", "ffi>f", ISA, accumulate, NULL, "rounded once; in place"},
    {"cast", "f>b", ISA, cast_down, NULL, "to nearest even, denormals kept"},
    {"cast", "b>f", ISA, cast_up, NULL, "exact"},
    {"silu_mul", "ff>f", ISA, silu_mul_f32, NULL, "5 ulp; y may be a's or b's memory"},
    {"silu_mul", "bb>b", ISA, silu_mul_bf16, NULL, "f32 inside, rounded once to bf16; y may be a's or b's memory"},
    {"silu_mul_grad", "fff>ff", ISA, silu_grad_f32, NULL,
     "8 ulp where 1 + a(1 - s) does not cancel, else of the terms; outputs may be the inputs' memory"},
    {"silu_mul_grad", "bbb>bb", ISA, silu_grad_bf16, NULL,
     "f32 inside, rounded once; outputs may be the inputs' memory"},
    {"silu_mul_grad_y", "fff>fff", ISA, silu_grad_y_f32, NULL, "as silu_mul_grad and silu_mul"},
    {"silu_mul_grad_y", "bbb>bbb", ISA, silu_grad_y_bf16, NULL, "as silu_mul_grad and silu_mul"},
    {0},
};
