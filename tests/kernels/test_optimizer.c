// The update equals PyTorch's AdamW, the gradient norm is exact under every cut, and what is not finite changes
// nothing.
#include "harness.h"
#include "base/memory.h"
#include "base/wide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MAX = 64 };

static void read_numbers(FILE *file, float *x, int n) {
    char word[64];
    for (int i = 0; i < n; i++) {
        assert_int_equal(fscanf(file, "%63s", word), 1);
        x[i] = strtof(word, NULL);
    }
}
static ct_tensor vector(float *x, int64_t n) { return (ct_tensor){.data = x, .dtype = CT_F32, .dims_count = 1, .dims = {n}}; }

static void step(float *p, float *m, float *v, float *g, int64_t n, float clip, double *scalars, const double *attrs,
                 const char *isa, int threads) {
    ct_call call = {.inputs = 6,
                    .outputs = 3,
                    .in = {vector(p, n),
                           vector(m, n),
                           vector(v, n),
                           vector(g, n),
                           {.data = &clip, .dtype = CT_F32},
                           {.data = scalars, .dtype = CT_F64, .dims_count = 1, .dims = {2}}},
                    .out = {vector(p, n), vector(m, n), vector(v, n)}};
    memcpy(call.attrs, attrs, 5 * sizeof *attrs);
    run_call("adamw", &call, isa, threads);
}

// Errors are in ulps of the number, or of its size where that is larger: the largest term it came from.
static void assert_ulps(const float *got, const float *want, const float *size, int n, double ulps,
                        const char *what) {
    for (int i = 0; i < n; i++) {
        double unit = ldexp(fmax(fabs((double)want[i]), (double)size[i]), -24);
        if (!(fabs((double)got[i] - (double)want[i]) <= ulps * unit + ldexp(1, -149)))
            fail_msg("%s[%d] is %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
    }
}

static void adamw_equals_pytorchs_for_several_steps(void **state) {
    (void)state;
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        FILE *file = fopen(CT_SOURCE_DIR "/tests/kernels/fixtures/adamw.txt", "r");
        assert_non_null(file);
        double lr, b1, b2, eps, wd;
        int n, steps, cases = 0;
        char clip[64];
        while (fscanf(file, " case %lf %lf %lf %lf %lf %63s %d %d", &lr, &b1, &b2, &eps, &wd, clip, &n, &steps) ==
               8) {
            float p[MAX], m[MAX] = {0}, v[MAX] = {0}, g[MAX], want[MAX], p_size[MAX], g_size[MAX] = {0};
            read_numbers(file, p, n);
            cases++;
            for (int s = 1; s <= steps; s++) {
                read_numbers(file, g, n);
                for (int i = 0; i < n; i++)
                    p_size[i] = fmaxf((float)lr, fabsf(p[i])), g_size[i] = fmaxf(g_size[i], fabsf(g[i]));
                double scalars[2] = {2 * lr, s}, attrs[5] = {0.5, b1, b2, eps, wd};
                step(p, m, v, g, n, strtof(clip, NULL), scalars, attrs, *isa, 2);
                read_numbers(file, want, n);
                assert_ulps(p, want, p_size, n, 4 * s, "p");
                read_numbers(file, want, n);
                assert_ulps(m, want, g_size, n, 2 * s, "m");
                read_numbers(file, want, n);
                assert_ulps(v, want, v, n, 4 * s, "v");
            }
        }
        fclose(file);
        assert_int_equal(cases, 3);
    }
}

static void an_update_with_a_factor_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int k = 0; k < 2; k++) {
            float p[3] = {1, 2, 3}, m[3] = {4, 5, 6}, v[3] = {7, 8, 9}, g[3] = {1, 1, 1}, want[3] = {1, 2, 3};
            step(p, m, v, g, 3, bad[k], (double[]){1, 1}, (double[]){1, 0.9, 0.95, 1e-8, 0.1}, *isa, 1);
            assert_memory_equal(p, want, sizeof p);
        }
}

static void an_update_has_the_same_bits_under_every_cut(void **state) {
    (void)state;
    op_case c = {.op = "adamw",
                 .in = "FFGFfd",
                 .out = "FFG",
                 .inplace = 1,
                 .attrs = {1, 0.9, 0.95, 1e-8, 0.1},
                 .scalars = {1e-3, 7}};
    assert_contract(&c, 17, 1003);
}

static float norm_of(const float *x, int64_t n, int parts, int threads, const char *isa) {
    int64_t acc[CT_WIDE_DIGITS];
    memset(acc, 0x5a, sizeof acc);
    float norm;
    for (int part = 0; part < parts; part++) {
        int64_t begin = n * part / parts, end = n * (part + 1) / parts;
        int32_t first = part == 0;
        ct_call call = {.inputs = 3,
                        .outputs = 1,
                        .attrs = {1},
                        .in = {vector((float *)x + begin, end - begin),
                               {.data = acc, .dtype = CT_I64, .dims_count = 1, .dims = {CT_WIDE_DIGITS}},
                               {.data = &first, .dtype = CT_I32}},
                        .out[0] = {.data = acc, .dtype = CT_I64, .dims_count = 1, .dims = {CT_WIDE_DIGITS}}};
        run_call("wide_sum", &call, isa, threads);
    }
    ct_call call = {
        .inputs = 1, .outputs = 1, .in[0] = {.data = acc, .dtype = CT_I64, .dims_count = 1, .dims = {CT_WIDE_DIGITS}}, .out[0] = {.data = &norm, .dtype = CT_F32}};
    run_call("wide_norm", &call, isa, 1);
    return norm;
}

static void the_norm_is_exact_for_any_parts_and_threads(void **state) {
    (void)state;
    enum { N = 30011 };
    float *x = ct_malloc(N * sizeof *x);
    long double exact = 0; // 64 bits: right to 2^-45 or so here, far below a f32's half ulp
    for (int i = 0; i < N; i++) {
        x[i] = (float)(endless(1, i, 0) * pow(10, 4 * endless(2, i, 0)));
        exact += (long double)x[i] * (long double)x[i];
    }
    float want = (float)sqrtl(exact);
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int parts = 1; parts < 9; parts += 3)
            for (int threads = 1; threads <= 4; threads++) assert_true(norm_of(x, N, parts, threads, *isa) == want);
    x[777] = INFINITY;
    assert_true(!isfinite(norm_of(x, N, 3, 2, NULL)));
    x[777] = NAN;
    assert_true(!isfinite(norm_of(x, N, 3, 2, NULL)));
    free(x);
}

// ---- what ranks have of a gradient, added up as integers -------------------------------------------------------

static ct_tensor digits_of(int64_t *digits, int64_t numbers) {
    return (ct_tensor){.data = digits, .dtype = CT_I64, .dims_count = 1, .dims = {numbers * CT_WIDE_DIGITS}};
}

// The digits of a gradient's squares, its parts on several ranks (some of which may have nothing), each counted `copies` times; not normalised.
static void sum_over_ranks(const float *x, int64_t n, const int64_t *bounds, int ranks, int64_t copies, const char *isa, int64_t *sum) {
    ct_wide_clear(sum);
    for (int r = 0; r < ranks; r++) {
        int64_t begin = n * bounds[r] / 100, end = n * bounds[r + 1] / 100, digits[CT_WIDE_DIGITS];
        memset(digits, 0x5a, sizeof digits);
        ct_call call = {.inputs = 1, .outputs = 1, .attrs = {1}, .in[0] = vector((float *)x + begin, end - begin), .out[0] = digits_of(digits, 1)};
        run_call("wide_of", &call, isa, 1 + r % 3);
        for (int i = 0; i < CT_WIDE_DIGITS; i++) sum[i] += copies * digits[i];
    }
}

// The norm of two numbers together.
static float norm_of_both(int64_t *both, const char *isa) {
    int64_t total[CT_WIDE_DIGITS];
    float norm;
    ct_call add = {.inputs = 1, .outputs = 1, .in[0] = digits_of(both, 2), .out[0] = digits_of(total, 1)};
    run_call("wide_total", &add, isa, 2);
    ct_call root = {.inputs = 1, .outputs = 1, .in[0] = digits_of(total, 1), .out[0] = {.data = &norm, .dtype = CT_F32}};
    run_call("wide_norm", &root, isa, 1);
    for (int i = 0; i < CT_WIDE_DIGITS - 2; i++) assert_true(total[i] >= 0 && total[i] <= UINT32_MAX); // normalised
    return norm;
}

static void the_norm_of_any_cuts_over_ranks_has_the_bits_of_one_ranks(void **state) {
    (void)state;
    enum { N = 30011, FIRST = 20000 };
    static const int64_t cuts[][5] = {{0, 100}, {0, 50, 100}, {0, 0, 100, 100}, {0, 34, 68, 100, 100}, {0, 25, 50, 75, 100}};
    static const int ranks[] = {1, 2, 3, 4, 4};
    float *x = ct_malloc(N * sizeof *x);
    for (int i = 0; i < N; i++) x[i] = (float)(endless(1, i, 0) * pow(10, 15 * endless(2, i, 0)));
    float want = norm_of(x, N, 1, 1, NULL);
    for (int bad = 0; bad < 2; bad++) {
        for (const char *const *isa = machine_isas(); *isa; isa++)
            for (int c = 0; c < 5; c++)
                for (int64_t copies = 1; copies <= 1 << 20; copies <<= 20) {
                    int64_t both[2 * CT_WIDE_DIGITS];
                    sum_over_ranks(x, FIRST, cuts[c], ranks[c], copies, *isa, both);
                    sum_over_ranks(x + FIRST, N - FIRST, cuts[4 - c], ranks[4 - c], copies, *isa, both + CT_WIDE_DIGITS);
                    float norm = norm_of_both(both, *isa);
                    assert_true(bad ? !isfinite(norm) : norm == want * (copies == 1 ? 1 : 1024)); // the root of 2^20 is exact
                }
        x[777] = INFINITY;
    }
    free(x);
}

static float factor_of(float norm, double max_norm) {
    float factor;
    ct_call call = {.inputs = 1,
                    .outputs = 1,
                    .attrs = {max_norm},
                    .in[0] = {.data = &norm, .dtype = CT_F32},
                    .out[0] = {.data = &factor, .dtype = CT_F32}};
    run_call("clip_factor", &call, NULL, 1);
    return factor;
}
static void the_clip_factor_is_at_most_one(void **state) {
    (void)state;
    assert_true(factor_of(0.5f, 1) == 1);
    assert_true(factor_of(0, 1) == 1);
    assert_true(factor_of(4, 1) == 1.0f / (4 + 1e-6f));
    assert_true(factor_of(1, 1) == 1.0f / (1 + 1e-6f));
    assert_true(isnan(factor_of(INFINITY, 1)));
    assert_true(isnan(factor_of(NAN, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_equals_pytorchs_for_several_steps),
        cmocka_unit_test(an_update_with_a_factor_that_is_not_finite_changes_nothing),
        cmocka_unit_test(an_update_has_the_same_bits_under_every_cut),
        cmocka_unit_test(the_norm_is_exact_for_any_parts_and_threads),
        cmocka_unit_test(the_norm_of_any_cuts_over_ranks_has_the_bits_of_one_ranks),
        cmocka_unit_test(the_clip_factor_is_at_most_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
