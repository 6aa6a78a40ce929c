// Two parts of an attention as one: what softmax over all keys gives, whichever way they were cut, with log-sum-exps of any size; and what
// is known by hand.
#include "harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 37, E_MAX = 80 };

typedef struct {
    float o[ROWS * E_MAX], lse[ROWS];
} part;

static ct_tensor o_of(part *p, int64_t e) {
    return (ct_tensor){.data = p->o, .dtype = CT_F32, .dims_count = 5, .dims = {1, ROWS, 1, 1, e}};
}
static ct_tensor lse_of(part *p) {
    return (ct_tensor){.data = p->lse, .dtype = CT_F32, .dims_count = 4, .dims = {1, ROWS, 1, 1}};
}

// to may be a.
static void merge(part *a, part *b, part *to, int64_t e, const char *isa, int threads) {
    ct_call call = {.inputs = 4, .outputs = 2, .in = {o_of(a, e), lse_of(a), o_of(b, e), lse_of(b)}, .out = {o_of(to, e), lse_of(to)}};
    run_call("attention_merge", &call, isa, threads);
}

// Attention of row r over keys [begin, end), in double, rounded once.
static void attend(part *p, int64_t e, int begin, int end, double spread) {
    for (int r = 0; r < ROWS; r++) {
        double max = -INFINITY, sum = 0, o[E_MAX] = {0};
        for (int k = begin; k < end; k++) max = fmax(max, spread * endless(1, r, k));
        for (int k = begin; k < end; k++) {
            double w = exp(spread * endless(1, r, k) - max);
            sum += w;
            for (int64_t i = 0; i < e; i++) o[i] += w * endless(2, k, i);
        }
        p->lse[r] = begin == end ? -INFINITY : (float)(max + log(sum));
        for (int64_t i = 0; i < e; i++) p->o[r * e + i] = begin == end ? 0 : (float)(o[i] / sum);
    }
}

static void assert_near(const part *got, const part *want, int64_t e, double limit) {
    for (int r = 0; r < ROWS; r++) {
        double error = fabs((double)got->lse[r] - (double)want->lse[r]);
        if (!(got->lse[r] == want->lse[r] || error <= limit * (1 + fabs((double)want->lse[r]))))
            fail_msg("lse of row %d is %.9g, not %.9g", r, (double)got->lse[r], (double)want->lse[r]);
        for (int64_t i = 0; i < e; i++)
            if (!(fabs((double)got->o[r * e + i] - (double)want->o[r * e + i]) <= limit))
                fail_msg("o[%lld] of row %d is %.9g, not %.9g", (long long)i, r, (double)got->o[r * e + i], (double)want->o[r * e + i]);
    }
}

static void parts_of_any_size_merge_to_attention_over_all_keys(void **state) {
    (void)state;
    enum { KEYS = 50 };
    static const int64_t widths[] = {1, 7, 16, 33, 64, E_MAX};
    static const double spreads[] = {0, 1, 10, 300};
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int w = 0; w < 6; w++)
            for (int s = 0; s < 4; s++) {
                part whole, parts[3], merged, other;
                double limit = ldexp(8 + 2 * spreads[s], -24); // log-sum-exps as large as scores lose as many bits
                attend(&whole, widths[w], 0, KEYS, spreads[s]);
                for (int cut = 0; cut <= KEYS; cut += 5) {
                    attend(&parts[0], widths[w], 0, cut, spreads[s]);
                    attend(&parts[1], widths[w], cut, (cut + KEYS) / 2, spreads[s]);
                    attend(&parts[2], widths[w], (cut + KEYS) / 2, KEYS, spreads[s]);
                    merge(&parts[0], &parts[1], &merged, widths[w], *isa, 2);
                    merge(&merged, &parts[2], &merged, widths[w], *isa, 3);
                    assert_near(&merged, &whole, widths[w], limit);
                    merge(&parts[2], &parts[1], &other, widths[w], *isa, 1);
                    merge(&other, &parts[0], &other, widths[w], *isa, 1);
                    assert_near(&other, &whole, widths[w], limit);
                }
            }
}

// One row of one element on each instruction set.
static void assert_row(float o_a, float a, float o_b, float b, float o, float lse) {
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        float got_o = 99, got_lse = 99;
        ct_tensor one = {.dtype = CT_F32, .dims_count = 5, .dims = {1, 1, 1, 1, 1}};
        ct_call call = {.inputs = 4, .outputs = 2, .in = {one, one, one, one}, .out = {one, one}};
        call.in[0].data = &o_a, call.in[1].data = &a, call.in[2].data = &o_b, call.in[3].data = &b;
        call.out[0].data = &got_o, call.out[1].data = &got_lse;
        run_call("attention_merge", &call, *isa, 1);
        int same = (isnan(o) ? isnan(got_o) : fabsf(got_o - o) <= ldexpf(fabsf(o), -23)) &&
                   (isnan(lse) ? isnan(got_lse) : got_lse == lse || fabsf(got_lse - lse) <= ldexpf(fabsf(lse), -23));
        if (!same)
            fail_msg("%s: (%g, %g) and (%g, %g) give (%.9g, %.9g), not (%.9g, %.9g)", *isa, (double)o_a, (double)a, (double)o_b, (double)b,
                     (double)got_o, (double)got_lse, (double)o, (double)lse);
    }
}

static void what_is_known_by_hand(void **state) {
    (void)state;
    const float none = -INFINITY, ln2 = 0.69314718f, ln3 = 1.0986123f;
    assert_row(0, none, 0, none, 0, none);
    assert_row(3, 5, 0, none, 3, 5); // the other part's, to the bit
    assert_row(0, none, -7, 1e-3f, -7, 1e-3f);
    assert_row(2, 1, 4, 1, 3, 1 + ln2);
    assert_row(8, ln3, 4, 0, 7, 2 * ln2); // 3/4 and 1/4
    assert_row(1, 3e38f, 2, 3e38f, 1.5f, 3e38f);
    assert_row(1, 3e38f, 2, -3e38f, 1, 3e38f);
    assert_row(1, -3e38f, 2, -3e38f, 1.5f, -3e38f);
    assert_row(1, 200, 2, -200, 1, 200);
    assert_row(1, NAN, 2, 1, NAN, NAN);
    assert_row(1, 1, 2, NAN, NAN, NAN);
    assert_row(0, none, 2, NAN, NAN, NAN);
    assert_row(NAN, 1, 2, 1, NAN, 1 + ln2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_any_size_merge_to_attention_over_all_keys),
        cmocka_unit_test(what_is_known_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
