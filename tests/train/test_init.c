// Initial weights: each element is a function of seed, parameter and index alone, namely the normal quantile (by libm's erfc, and by published
// tables in the mass) of its Philox number; spreads and cuts are torchtitan's.
#include "base/philox.h"
#include "train/setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void assert_ok(ct_status status) {
    if (status) fail_msg("%s", ct_error_text(status));
}

static const ct_init standard = {CT_INIT_NORMAL, 1, 0, 0};

static float *filled(ct_init init, int64_t count, int number, uint64_t seed, int threads) {
    ct_dim D = ct_dim_make("D", count);
    ct_parameter p = {"p", ct_type_make(CT_F32, 1, &D), init};
    ct_team *team;
    float *data = ct_malloc(sizeof(float) * (size_t)(count + 1));
    data[count] = 12345;
    assert_ok(ct_team_create((ct_team_options){.threads = threads, .first_core = -1}, &team));
    ct_init_parameter(&p, number, seed, NULL, team, data);
    ct_team_destroy(team);
    assert_true(data[count] == 12345);
    return data;
}

// The probability that element i stands for: word i % 4 of counter i / 4, the middle of its interval.
static double probability(int64_t i, uint32_t number, uint64_t seed) {
    uint32_t counter[4] = {(uint32_t)(i / 4), 0, number, 1}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    ct_philox(counter, key, out);
    return ((double)out[i % 4] + 0.5) * 0x1p-32;
}

static double below(double x) { return 0.5 * erfc(-x / sqrt(2)); } // the normal distribution function

// |Δx| = |Δp| / density: what erfc says of x differs from p by less than x's few parts in 10⁷ explain.
static void assert_quantile(double x, double p, int64_t i) {
    double density = exp(-x * x / 2) / sqrt(2 * M_PI), error = fabs(x < 0 ? below(x) - p : below(-x) - (1 - p)) / density;
    if (!(error <= 1e-6 * fmax(fabs(x), 1))) fail_msg("element %lld is %.9g, its probability %.12g: off by %.2e", (long long)i, x, p, error);
}

static void every_element_is_the_quantile_of_its_random_number(void **state) {
    (void)state;
    enum { N = 300000 };
    float *x = filled(standard, N, 7, 0x123456789abcdefull, 1);
    for (int64_t i = 0; i < N; i++) assert_quantile(x[i], probability(i, 7, 0x123456789abcdefull), i);
    free(x);
    double cut = 1.5, low = below(-cut), high = below(cut);
    x = filled((ct_init){CT_INIT_TRUNCATED_NORMAL, 1, -cut, cut}, N, 3, 42, 1);
    for (int64_t i = 0; i < N; i++) assert_quantile(x[i], low + (high - low) * probability(i, 3, 42), i);
    free(x);
}

// Shares of a million elements below published quantiles (Abramowitz and Stegun, table 26.5) lie within four standard deviations.
static void shares_below_published_quantiles_are_their_probabilities(void **state) {
    (void)state;
    static const double table[][2] = {{-3.0902323, 0.001}, {-2.3263479, 0.01}, {-1.6448536, 0.05}, {-1.2815516, 0.1}, {-0.6744898, 0.25},
                                      {0, 0.5},            {0.8416212, 0.8},   {1.9599640, 0.975}, {2.5758293, 0.995}, {3.2905267, 0.9995}};
    enum { N = 1000000 };
    float *x = filled(standard, N, 0, 1, 2);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < N; i++) count += x[i] < table[k][0];
        double p = table[k][1], share = (double)count / N;
        if (!(fabs(share - p) <= 4 * sqrt(p * (1 - p) / N))) fail_msg("%.6f are below %g, wanted %g", share, table[k][0], p);
    }
    free(x);
}

// std 0.8796256610342398: the deviation of a standard normal cut at ±2, as JAX's and Keras's initialisers have it; 0.98658: at ±3.
static void spreads_and_cuts_are_the_distributions(void **state) {
    (void)state;
    enum { N = 1000000 };
    static const struct {
        ct_init init;
        double std;
    } cases[] = {{{CT_INIT_NORMAL, 1, 0, 0}, 1},
                 {{CT_INIT_TRUNCATED_NORMAL, 0.02, -2, 2}, 0.02},
                 {{CT_INIT_TRUNCATED_NORMAL, 0.5, -1, 1}, 0.5 * 0.8796256610342398},
                 {{CT_INIT_TRUNCATED_NORMAL, 0.0625, -0.1875, 0.1875}, 0.0625 * 0.98658}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ct_init init = cases[k].init;
        float *x = filled(init, N, (int)k, 9, 2);
        double sum = 0, squares = 0, lowest = 0, highest = 0;
        for (int64_t i = 0; i < N; i++) {
            sum += x[i], squares += (double)x[i] * x[i];
            lowest = fmin(lowest, x[i]), highest = fmax(highest, x[i]);
        }
        double std = sqrt(squares / N);
        assert_true(fabs(sum / N) <= 4 * cases[k].std / sqrt(N));
        assert_true(fabs(std / cases[k].std - 1) <= 4 / sqrt(2.0 * N));
        if (init.kind == CT_INIT_TRUNCATED_NORMAL) assert_true(lowest >= init.low && highest <= init.high);
        if (k >= 2) assert_true(lowest < 0.99 * init.low && highest > 0.99 * init.high); // the cut is where the mass ends, not before
        free(x);
    }
    float *ones = filled((ct_init){.kind = CT_INIT_ONES}, 1001, 0, 9, 3);
    for (int i = 0; i < 1001; i++) assert_true(ones[i] == 1);
    free(ones);
}

static void neither_threads_nor_size_change_an_element(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 3, 4, 63, 64, 65, 4095, 4096, 4097, 30011};
    float *all = filled(standard, 40000, 5, 77, 1);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int threads = 1; threads <= 3; threads++) {
            float *x = filled(standard, counts[k], 5, 77, threads);
            assert_memory_equal(x, all, sizeof(float) * (size_t)counts[k]);
            free(x);
        }
    free(all);
}

static int64_t equal_elements(const float *a, const float *b, int64_t n) {
    int64_t equal = 0;
    for (int64_t i = 0; i < n; i++) equal += a[i] == b[i];
    return equal;
}

static void seed_and_parameter_make_other_numbers(void **state) {
    (void)state;
    enum { N = 10000 };
    float *a = filled(standard, N, 5, 77, 1), *number = filled(standard, N, 6, 77, 1), *seed = filled(standard, N, 5, 78, 1);
    float *high = filled(standard, N, 5, 77 + (1ull << 32), 1);
    assert_true(equal_elements(a, number, N) < 10 && equal_elements(a, seed, N) < 10 && equal_elements(a, high, N) < 10);
    assert_true(equal_elements(a, number + 1, N - 1) < 10 && equal_elements(a + 1, seed, N - 1) < 10); // nor shifted by one
    free(a), free(number), free(seed), free(high);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_the_quantile_of_its_random_number),
        cmocka_unit_test(shares_below_published_quantiles_are_their_probabilities),
        cmocka_unit_test(spreads_and_cuts_are_the_distributions),
        cmocka_unit_test(neither_threads_nor_size_change_an_element),
        cmocka_unit_test(seed_and_parameter_make_other_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
