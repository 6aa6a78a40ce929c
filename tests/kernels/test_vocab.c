// The parts of the loss over a vocabulary: close to plain loops in double, ignored labels give zeros, the same bits
// under every cut.
#include "harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void max_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    (void)size;
    for (int64_t r = 0; r < R; r++) {
        out[0][r] = in[0][r * C];
        for (int64_t j = 1; j < C; j++) out[0][r] = in[0][r * C + j] > out[0][r] ? in[0][r * C + j] : out[0][r];
    }
}
static void sumexp_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    for (int64_t r = 0; r < R; r++)
        for (int64_t j = 0; j < C; j++) { // an error of x - m, an f32 difference, is a relative one of exp
            double x = in[0][r * C + j] - in[1][r], term = exp(x);
            out[0][r] += term;
            size[0][r] += term * (1 + fabs(x) / 4);
        }
}
static void pick_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    (void)size;
    for (int64_t r = 0; r < R; r++) out[0][r] = in[1][r] == -100 ? 0 : in[0][r * C + (int64_t)in[1][r]];
}
static void loss_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    (void)C;
    for (int64_t r = 0; r < R; r++) {
        out[0][r] = in[3][r] == -100 ? 0 : log(in[1][r]) + in[0][r] - in[2][r];
        size[0][r] = fabs(out[0][r]);
    }
}
static void grad_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    for (int64_t i = 0; i < R * C; i++) {
        int64_t r = i / C, label = (int64_t)in[3][r];
        if (label == -100) continue;
        double x = in[0][i] - in[1][r], share = exp(x) / in[2][r];
        out[0][i] = (share - (i % C == label)) * in[4][0];
        size[0][i] = (share * (1 + fabs(x) / 4) + (i % C == label)) * in[4][0] + ldexp(1, -126);
    }
}

static const int64_t widths[] = {1, 7, 16, 63, 64, 65, 200, 1000, 4099};

static void every_part_of_the_loss_is_right_for_any_vocabulary(void **state) {
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int kind = 0; kind < KINDS; kind++) {
            op_case max = {.op = "vocab_max", .in = "F", .out = "S", .kind = (value_kind)kind};
            op_case pick = {.op = "vocab_pick", .in = "FL", .out = "S", .kind = (value_kind)kind};
            op_case loss = {.op = "token_loss", .in = "SPSL", .out = "S"};
            assert_close_to(&max, max_reference, 11, widths[w], 0);
            assert_close_to(&pick, pick_reference, 11, widths[w], 0);
            assert_close_to(&loss, loss_reference, 50, widths[w], 1);
            if (kind == WIDE) continue; // exp of 2^40
            op_case sum = {
                .op = "vocab_sumexp", .in = "FS", .out = "S", .kind = kind == LARGE ? NORMAL : (value_kind)kind};
            assert_close_to(&sum, sumexp_reference, 11, widths[w], 8 + 0.1 * sqrt((double)widths[w]));
            for (int out = CT_F32; out <= CT_BF16; out++)
                for (int inplace = 0; inplace < 2 - (out == CT_BF16); inplace++) {
                    op_case grad = {.op = "vocab_grad",
                                    .in = "FSPLf",
                                    .out = "Y",
                                    .out_dtype = (ct_dtype)out,
                                    .inplace = inplace,
                                    .kind = kind == LARGE ? NORMAL : (value_kind)kind};
                    assert_close_to(&grad, grad_reference, 11, widths[w], 8);
                }
        }
}

static void the_parts_have_the_same_bits_under_every_cut(void **state) {
    (void)state;
    static const char *const ops[][3] = {{"vocab_max", "F", "S"},
                                         {"vocab_sumexp", "FS", "S"},
                                         {"vocab_pick", "FL", "S"},
                                         {"token_loss", "SPSL", "S"},
                                         {"vocab_grad", "FSPLf", "Y"}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int out = CT_F32; out <= CT_BF16; out++) {
                op_case c = {.op = ops[i][0], .in = ops[i][1], .out = ops[i][2], .out_dtype = (ct_dtype)out};
                assert_contract(&c, 13, widths[w] < 1000 ? widths[w] : 333);
            }
}

// All logits equal to the maximum but some far below; m is the true maximum.
static float sumexp_of(float *logits, int64_t n, float m, const char *isa) {
    float s;
    ct_call call = {.inputs = 2,
                    .outputs = 1,
                    .in = {{.data = logits, .dtype = CT_F32, .dims_count = 3, .dims = {1, 1, n}}, {.data = &m, .dtype = CT_F32, .dims_count = 2, .dims = {1, 1}}},
                    .out[0] = {.data = &s, .dtype = CT_F32, .dims_count = 2, .dims = {1, 1}}};
    run_call("vocab_sumexp", &call, isa, 1);
    return s;
}
static void exponentials_are_right_over_their_whole_range(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    double worst = 0;
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        for (int i = 0; i < N; i++) {
            float x = -87.0f * (float)i / N, got = sumexp_of(&x, 1, 0, *isa);
            double want = exp((double)x), error = fabs((double)got - want) / ldexp(1, ilogb(want) - 23);
            worst = error > worst ? error : worst;
        }
        float x[] = {-87.5f, -95, -103, -103.9f, -110, -1e30f, -INFINITY, 0, 88.7f};
        for (int i = 0; i < 9; i++) {
            double got = sumexp_of(&x[i], 1, 0, *isa), want = exp((double)x[i]);
            assert_true(fabs(got - want) <= ldexp(1, -149) + ldexp(want, -22));
        }
        float over = 89, nan = NAN;
        assert_true(isinf(sumexp_of(&over, 1, 0, *isa)));
        assert_true(isnan(sumexp_of(&nan, 1, 0, *isa)));
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.7);
}

static void a_logit_that_is_not_finite_shows_in_the_sum(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int k = 0; k < 2; k++)
            for (int at = 0; at < 100; at += 9) {
                float x[100], m;
                for (int i = 0; i < 100; i++) x[i] = (float)i;
                x[at] = bad[k];
                ct_call call = {.inputs = 1,
                                .outputs = 1,
                                .in[0] = {.data = x, .dtype = CT_F32, .dims_count = 3, .dims = {1, 1, 100}},
                                .out[0] = {.data = &m, .dtype = CT_F32, .dims_count = 2, .dims = {1, 1}}};
                run_call("vocab_max", &call, *isa, 1);
                assert_true(isnan(sumexp_of(x, 100, m, *isa)));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_of_the_loss_is_right_for_any_vocabulary),
        cmocka_unit_test(the_parts_have_the_same_bits_under_every_cut),
        cmocka_unit_test(exponentials_are_right_over_their_whole_range),
        cmocka_unit_test(a_logit_that_is_not_finite_shows_in_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
