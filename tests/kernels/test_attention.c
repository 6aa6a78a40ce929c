// Attention and its gradient on every instruction set: close to plain loops in double for every mask and head size,
// and the same bits for any threads, alignment, rows alone or together, and keys that are masked anyway (whatever
// they hold).
#include "harness.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef enum { CAUSAL, DOCUMENTS, SOME_NOTHING, SHUFFLED, OPEN, MASKS } mask_kind;
static const char *const mask_names[MASKS] = {"causal", "documents", "some rows with nothing", "shuffled", "open"};

typedef struct {
    ct_dtype dtype;
    int64_t B, T, G, Q, S, d, e;
    mask_kind mask;
    double spread; // of q and k
} problem;

// What is run: queries [t, t + T) of the problem's, `extra` further keys that are masked, `threads`, `skew` elements.
typedef struct {
    const char *isa;
    int threads, skew;
    int64_t t, T, extra;
} part;

enum { Q_IN, K_IN, V_IN, DO_IN, O_IN, TENSORS };

static int32_t k_pos(const problem *p, int64_t s) {
    if (p->mask == DOCUMENTS) return (int32_t)(s % 29);
    if (p->mask == SHUFFLED) return (int32_t)((s * 37) % 101);
    return (int32_t)s;
}
static int32_t k_doc(const problem *p, int64_t b, int64_t s) {
    return p->mask == DOCUMENTS ? (int32_t)(s / 29 + 100 * b) : 0;
}
static int32_t q_pos(const problem *p, int64_t t) {
    if (p->mask == OPEN) return 1 << 20;
    return k_pos(p, t + p->S - p->T);
}
static int32_t q_doc(const problem *p, int64_t b, int64_t t) {
    if (p->mask == SOME_NOTHING && t % 5 == 2) return 77;
    return k_doc(p, b, t + p->S - p->T);
}
static int allowed(const problem *p, int64_t b, int64_t t, int64_t s) {
    return k_pos(p, s) <= q_pos(p, t) && q_doc(p, b, t) == k_doc(p, b, s);
}

static double rounded(ct_dtype dtype, double x) {
    return dtype == CT_BF16 ? (double)ct_f32_from_bf16(ct_bf16_from_f32((float)x)) : (double)(float)x;
}
static double input(const problem *p, int tensor, int64_t row, int64_t i) {
    double spread = tensor == Q_IN || tensor == K_IN ? p->spread : 1;
    return rounded(p->dtype, spread * endless(tensor, row, i));
}

// ---- in double ---------------------------------------------------------------------------------------------

typedef struct {
    double *o, *lse, *dq, *dk, *dv;                          // [row][…] as the tensors
    double *o_size, *lse_size, *dq_size, *dk_size, *dv_size; // what errors are measured by
    double *in[O_IN];
    double scale;
} exact;

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void exact_row(const problem *p, exact *x, int64_t row, double *w) {
    int64_t g = row / p->Q % p->G, t = row / (p->Q * p->G) % p->T, b = row / (p->Q * p->G * p->T), d = p->d, e = p->e;
    const double *q = x->in[Q_IN] + row * d, *grad = x->in[DO_IN] + row * e;
    double max = -INFINITY, total = 0, delta = 0;
    for (int64_t s = 0; s < p->S; s++) {
        w[s] = allowed(p, b, t, s) ? x->scale * dot(q, x->in[K_IN] + ((b * p->S + s) * p->G + g) * d, d) : -INFINITY;
        max = w[s] > max ? w[s] : max;
    }
    for (int64_t s = 0; s < p->S; s++) total += w[s] = max > -INFINITY ? exp(w[s] - max) : 0;
    x->lse[row] = total > 0 ? max + log(total) : -INFINITY;
    x->lse_size[row] = total > 0 ? fabs(x->lse[row]) + 1 : 0;
    for (int64_t s = 0; s < p->S; s++) {
        const double *v = x->in[V_IN] + ((b * p->S + s) * p->G + g) * e;
        w[s] = total > 0 ? w[s] / total : 0;
        for (int64_t j = 0; j < e && w[s] > 0; j++) {
            x->o[row * e + j] += w[s] * v[j];
            x->o_size[row * e + j] += w[s] * fabs(v[j]);
        }
    }
    for (int64_t j = 0; j < e; j++) delta += grad[j] * rounded(p->dtype, x->o[row * e + j]);
    for (int64_t s = 0; s < p->S; s++) {
        if (w[s] == 0) continue;
        int64_t key = (b * p->S + s) * p->G + g;
        const double *k = x->in[K_IN] + key * d;
        double dp = dot(grad, x->in[V_IN] + key * e, e), ds = w[s] * (dp - delta) * x->scale;
        double size = w[s] * (fabs(dp) + fabs(delta) + 1) * x->scale;
        for (int64_t i = 0; i < d; i++) {
            x->dq[row * d + i] += ds * k[i], x->dq_size[row * d + i] += size * fabs(k[i]);
            x->dk[key * d + i] += ds * q[i], x->dk_size[key * d + i] += size * fabs(q[i]);
        }
        for (int64_t j = 0; j < e; j++)
            x->dv[key * e + j] += w[s] * grad[j], x->dv_size[key * e + j] += fabs(w[s] * grad[j]);
    }
}

static int64_t rows_of(const problem *p) { return p->B * p->T * p->G * p->Q; }
static int64_t keys_of(const problem *p) { return p->B * p->S * p->G; }

static exact exact_make(const problem *p) {
    size_t rows = (size_t)rows_of(p), keys = (size_t)keys_of(p), d = (size_t)p->d, e = (size_t)p->e,
           one = sizeof(double);
    exact x = {.scale = (double)(float)(1 / sqrt((double)p->d))};
    x.o = ct_calloc(rows * e, one), x.o_size = ct_calloc(rows * e, one);
    x.lse = ct_calloc(rows, one), x.lse_size = ct_calloc(rows, one);
    x.dq = ct_calloc(rows * d, one), x.dq_size = ct_calloc(rows * d, one);
    x.dk = ct_calloc(keys * d, one), x.dk_size = ct_calloc(keys * d, one);
    x.dv = ct_calloc(keys * e, one), x.dv_size = ct_calloc(keys * e, one);
    for (int tensor = 0; tensor < O_IN; tensor++) {
        size_t count = tensor == K_IN || tensor == V_IN ? keys : rows,
               width = tensor == Q_IN || tensor == K_IN ? d : e;
        x.in[tensor] = ct_calloc(count * width, one);
        for (size_t i = 0; i < count * width; i++)
            x.in[tensor][i] = input(p, tensor, (int64_t)(i / width), (int64_t)(i % width));
    }
    double *w = ct_calloc((size_t)p->S, one);
    for (size_t row = 0; row < rows; row++) exact_row(p, &x, (int64_t)row, w);
    free(w);
    return x;
}
static void exact_free(exact *x) {
    for (int tensor = 0; tensor < O_IN; tensor++) free(x->in[tensor]);
    free(x->o), free(x->lse), free(x->dq), free(x->dk), free(x->dv);
    free(x->o_size), free(x->lse_size), free(x->dq_size), free(x->dk_size), free(x->dv_size);
}

// ---- the kernel --------------------------------------------------------------------------------------------

typedef struct {
    ct_tensor o, lse, dq, dk, dv;
    void *blocks[24];
    int blocks_count;
} outcome;

static ct_tensor make(outcome *r, ct_dtype dtype, int skew, int dims_count, int64_t a, int64_t b, int64_t c,
                      int64_t d, int64_t e) {
    ct_tensor t = {.dtype = dtype, .dims_count = dims_count, .dims = {a, b, c, d, e}};
    size_t bytes = (size_t)ct_tensor_elems(&t) * ct_dtype_bytes(dtype) + 256;
    assert_int_equal(posix_memalign(&r->blocks[r->blocks_count], 64, bytes), 0);
    memset(r->blocks[r->blocks_count], 0xff, bytes);
    t.data = (char *)r->blocks[r->blocks_count++] + (size_t)skew * ct_dtype_bytes(dtype);
    return t;
}
static void put(ct_tensor *t, int64_t i, double x) {
    if (t->dtype == CT_BF16)
        ((uint16_t *)t->data)[i] = ct_bf16_from_f32((float)x);
    else if (t->dtype == CT_F32)
        ((float *)t->data)[i] = (float)x;
    else
        ((int32_t *)t->data)[i] = (int32_t)x;
}
static double get(const ct_tensor *t, int64_t i) {
    return t->dtype == CT_BF16 ? (double)ct_f32_from_bf16(((uint16_t *)t->data)[i]) : (double)((float *)t->data)[i];
}

// A tensor of queries: rows of the part; values by the whole problem's row numbers, or from `given`.
static ct_tensor queries(outcome *r, const problem *p, part run, int tensor, int64_t n, const double *given) {
    ct_tensor t = make(r, p->dtype, run.skew, 5, p->B, run.T, p->G, p->Q, n);
    for (int64_t row = 0; row < p->B * run.T * p->G * p->Q; row++) {
        int64_t heads = p->G * p->Q, b = row / (run.T * heads),
                whole = (b * p->T + run.t) * heads + row % (run.T * heads);
        for (int64_t i = 0; i < n && tensor < TENSORS; i++)
            put(&t, row * n + i, given ? given[whole * n + i] : input(p, tensor, whole, i));
    }
    return t;
}
static ct_tensor keys(outcome *r, const problem *p, part run, int tensor, int64_t n) {
    int64_t S = p->S + run.extra;
    ct_tensor t = make(r, p->dtype, run.skew, 4, p->B, S, p->G, n, 0);
    for (int64_t row = 0; row < p->B * S * p->G && tensor < TENSORS; row++) {
        int64_t b = row / (S * p->G), s = row / p->G % S, whole = (b * p->S + s) * p->G + row % p->G;
        for (int64_t i = 0; i < n; i++) put(&t, row * n + i, s >= p->S ? NAN : input(p, tensor, whole, i));
    }
    return t;
}
static void masks(outcome *r, const problem *p, part run, ct_tensor *out_four) {
    int64_t S = p->S + run.extra;
    for (int i = 0; i < 4; i++) out_four[i] = make(r, CT_I32, run.skew, 2, p->B, i % 2 ? S : run.T, 0, 0, 0);
    for (int64_t b = 0; b < p->B; b++) {
        for (int64_t t = 0; t < run.T; t++) {
            put(&out_four[0], b * run.T + t, q_pos(p, run.t + t));
            put(&out_four[2], b * run.T + t, q_doc(p, b, run.t + t));
        }
        for (int64_t s = 0; s < S; s++) {
            put(&out_four[1], b * S + s, s >= p->S ? 0x7fffffff : k_pos(p, s));
            put(&out_four[3], b * S + s, s >= p->S ? 0 : k_doc(p, b, s));
        }
    }
}

static outcome forward(const problem *p, part run, double scale) {
    outcome r = {0};
    ct_call call = {.inputs = 7, .outputs = 2, .attrs = {scale}};
    call.in[0] = queries(&r, p, run, Q_IN, p->d, NULL);
    call.in[1] = keys(&r, p, run, K_IN, p->d);
    call.in[2] = keys(&r, p, run, V_IN, p->e);
    masks(&r, p, run, call.in + 3);
    r.o = call.out[0] = queries(&r, p, run, TENSORS, p->e, NULL);
    r.lse = call.out[1] = make(&r, CT_F32, run.skew, 4, p->B, run.T, p->G, p->Q, 0);
    run_call("attention", &call, run.isa, run.threads);
    return r;
}

static outcome gradient(const problem *p, part run, const exact *x) {
    outcome r = {0};
    ct_call call = {.inputs = 10, .outputs = 3, .attrs = {x->scale}};
    call.in[0] = queries(&r, p, run, DO_IN, p->e, NULL);
    call.in[1] = queries(&r, p, run, Q_IN, p->d, NULL);
    call.in[2] = keys(&r, p, run, K_IN, p->d);
    call.in[3] = keys(&r, p, run, V_IN, p->e);
    call.in[4] = queries(&r, p, run, O_IN, p->e, x->o);
    call.in[5] = make(&r, CT_F32, run.skew, 4, p->B, run.T, p->G, p->Q, 0);
    int64_t heads = p->G * p->Q;
    for (int64_t row = 0; row < p->B * run.T * heads; row++)
        put(&call.in[5], row, x->lse[(row / (run.T * heads) * p->T + run.t) * heads + row % (run.T * heads)]);
    masks(&r, p, run, call.in + 6);
    r.dq = call.out[0] = queries(&r, p, run, TENSORS, p->d, NULL);
    r.dk = call.out[1] = keys(&r, p, run, TENSORS, p->d);
    r.dv = call.out[2] = keys(&r, p, run, TENSORS, p->e);
    run_call("attention_grad", &call, run.isa, run.threads);
    return r;
}
static void outcome_free(outcome *r) {
    for (int i = 0; i < r->blocks_count; i++) free(r->blocks[i]);
}

// ---- closeness ---------------------------------------------------------------------------------------------

static void assert_near(const problem *p, const char *isa, const char *what, const ct_tensor *got, const double *want,
                        const double *size, double relative) {
    for (int64_t i = 0; i < ct_tensor_elems(got); i++) {
        double g = get(got, i), allowed_error = relative * size[i] + 1e-37;
        if (got->dtype == CT_BF16) allowed_error += ldexp(fabs(want[i]) + allowed_error, -8);
        if (g != want[i] && !(fabs(g - want[i]) <= allowed_error))
            fail_msg(
                "%s on %s, %s, T %lld S %lld G %lld Q %lld d %lld e %lld %s: [%lld] is %.9g, not %.9g (allowed %.3g)",
                what, isa, mask_names[p->mask], (long long)p->T, (long long)p->S, (long long)p->G, (long long)p->Q,
                (long long)p->d, (long long)p->e, ct_dtype_name(p->dtype), (long long)i, g, want[i], allowed_error);
    }
}

static void assert_right(const problem *p) {
    exact x = exact_make(p);
    double scores = p->spread * p->spread * sqrt((double)p->d); // an error of a score moves p by as much
    double relative = p->dtype == CT_BF16 ? ldexp(1, -7) : ldexp(40 + 4 * scores, -24);
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        part run = {*isa, 2, 0, 0, p->T, 0};
        outcome f = forward(p, run, x.scale), g = gradient(p, run, &x);
        assert_near(p, *isa, "o", &f.o, x.o, x.o_size, relative);
        assert_near(p, *isa, "lse", &f.lse, x.lse, x.lse_size, ldexp(40, -24));
        assert_near(p, *isa, "dq", &g.dq, x.dq, x.dq_size, relative);
        assert_near(p, *isa, "dk", &g.dk, x.dk, x.dk_size, relative);
        assert_near(p, *isa, "dv", &g.dv, x.dv, x.dv_size, relative);
        outcome_free(&f);
        outcome_free(&g);
    }
    exact_free(&x);
}

static const ct_dtype dtypes[] = {CT_F32, CT_BF16};

static void every_mask_is_right_with_grouped_queries(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int mask = 0; mask < MASKS; mask++) {
            assert_right(&(problem){dtypes[d], 2, 133, 2, 3, 133, 64, 64, (mask_kind)mask, 2});
            if (mask != DOCUMENTS) assert_right(&(problem){dtypes[d], 1, 21, 1, 1, 200, 48, 48, (mask_kind)mask, 1});
        }
}
static void every_head_size_is_right(void **state) {
    (void)state;
    static const int64_t sizes[] = {2, 8, 16, 48, 64, 80, 96, 128, 192};
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_right(&(problem){dtypes[d], 1, 71, 1, 2, 71, sizes[i], sizes[i], CAUSAL, 1});
            assert_right(&(problem){dtypes[d], 1, 19, 1, 1, 19, sizes[i], sizes[sizeof sizes / sizeof *sizes - 1 - i],
                                    CAUSAL, 1});
        }
}
static void one_query_and_one_key_are_right(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        assert_right(&(problem){dtypes[d], 1, 1, 1, 1, 1, 64, 64, CAUSAL, 1});
        assert_right(&(problem){dtypes[d], 3, 1, 2, 4, 150, 64, 64, CAUSAL, 1}); // as in generation
    }
}
static void scores_of_hundreds_neither_overflow_nor_lose_the_largest(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) assert_right(&(problem){dtypes[d], 1, 70, 1, 1, 70, 64, 64, CAUSAL, 25});
}
static void tiny_scores_give_plain_means(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) assert_right(&(problem){dtypes[d], 1, 70, 1, 1, 70, 64, 64, CAUSAL, 1e-22});
}

// ---- bits --------------------------------------------------------------------------------------------------

static void assert_equal(const problem *p, part run, const char *what, const ct_tensor *whole, const ct_tensor *some,
                         int64_t begin) {
    size_t row = ct_dtype_bytes(whole->dtype);
    for (int i = 2; i < whole->dims_count; i++) row *= (size_t)whole->dims[i];
    int64_t shared = some->dims[1] < whole->dims[1] - begin ? some->dims[1] : whole->dims[1] - begin;
    for (int64_t b = 0; b < p->B; b++)
        if (memcmp((char *)whole->data + row * (size_t)(b * whole->dims[1] + begin),
                   (char *)some->data + row * (size_t)(b * some->dims[1]), row * (size_t)shared))
            fail_msg("%s on %s (%s, %s): other bits with %d threads, skew %d, queries %lld to %lld, %lld more keys",
                     what, run.isa, mask_names[p->mask], ct_dtype_name(p->dtype), run.threads, run.skew,
                     (long long)run.t, (long long)(run.t + run.T), (long long)run.extra);
}

static void assert_bits(const problem *p, const exact *x, const outcome *f, const outcome *g, part run) {
    outcome a = forward(p, run, x->scale), b = gradient(p, run, x);
    assert_equal(p, run, "o", &f->o, &a.o, run.t);
    assert_equal(p, run, "lse", &f->lse, &a.lse, run.t);
    assert_equal(p, run, "dq", &g->dq, &b.dq, run.t);
    if (run.T == p->T) {
        assert_equal(p, run, "dk", &g->dk, &b.dk, 0);
        assert_equal(p, run, "dv", &g->dv, &b.dv, 0);
    }
    outcome_free(&a);
    outcome_free(&b);
}

static void bits_do_not_depend_on_threads_rows_alignment_or_masked_keys(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int mask = 0; mask < MASKS; mask++)
            for (const char *const *isa = machine_isas(); *isa; isa++) {
                problem p = {dtypes[d], 2, 203, 2, 3, 203, 48, 80, (mask_kind)mask, 1};
                exact x = exact_make(&p);
                part whole = {*isa, 1, 0, 0, p.T, 0};
                outcome f = forward(&p, whole, x.scale), g = gradient(&p, whole, &x);
                for (int threads = 1; threads <= 4; threads++)
                    assert_bits(&p, &x, &f, &g, (part){*isa, threads, threads % 3, 0, p.T, threads == 3 ? 77 : 0});
                assert_bits(&p, &x, &f, &g, (part){*isa, 2, 1, 0, p.T, 1});
                for (int64_t t = 0; t < p.T; t += 41)
                    assert_bits(&p, &x, &f, &g, (part){*isa, 2, 1, t, 1 + t % 7, 0});
                assert_bits(&p, &x, &f, &g, (part){*isa, 4, 0, 17, 100, 0});
                outcome_free(&f);
                outcome_free(&g);
                exact_free(&x);
            }
}

// dk and dv are flat sums over queries: those that see nothing, before and between the others, change no bit.
static void a_query_with_nothing_allowed_gives_zero_and_minus_infinity(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (const char *const *isa = machine_isas(); *isa; isa++) {
            problem p = {dtypes[d], 1, 40, 1, 2, 40, 16, 16, SOME_NOTHING, 1};
            outcome f = forward(&p, (part){*isa, 2, 0, 0, p.T, 0}, 0.25);
            for (int64_t row = 0; row < rows_of(&p); row++) {
                if (row / 2 % 5 != 2) continue;
                assert_true(get(&f.lse, row) == -INFINITY);
                for (int64_t j = 0; j < p.e; j++) assert_true(get(&f.o, row * p.e + j) == 0);
            }
            outcome_free(&f);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mask_is_right_with_grouped_queries),
        cmocka_unit_test(every_head_size_is_right),
        cmocka_unit_test(one_query_and_one_key_are_right),
        cmocka_unit_test(scores_of_hundreds_neither_overflow_nor_lose_the_largest),
        cmocka_unit_test(tiny_scores_give_plain_means),
        cmocka_unit_test(bits_do_not_depend_on_threads_rows_alignment_or_masked_keys),
        cmocka_unit_test(a_query_with_nothing_allowed_gives_zero_and_minus_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
