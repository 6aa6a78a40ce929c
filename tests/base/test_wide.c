// wide: sums are exact, rounded once, and the same digits for any order, any split and any merge.
#include "base/wide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
    int64_t d[CT_WIDE_DIGITS];
} wide;
static wide none(void) {
    wide w;
    ct_wide_clear(w.d);
    return w;
}
static wide sum_of(const float *x, size_t n, int square) {
    wide w = none();
    ct_wide_add_f32_array(w.d, x, n, square);
    ct_wide_normalise(w.d);
    return w;
}
static wide one_by_one(const float *x, size_t n, int square) {
    wide w = none();
    for (size_t i = 0; i < n; i++) ct_wide_add(w.d, square ? (double)x[i] * (double)x[i] : (double)x[i]);
    ct_wide_normalise(w.d);
    return w;
}
static void assert_same(const wide *a, const wide *b) {
    assert_memory_equal(a->d, b->d, sizeof a->d);
    double x = ct_wide_to_double(a->d), y = ct_wide_to_double(b->d);
    assert_memory_equal(&x, &y, sizeof x);
}

static uint64_t state_of_random = 88172645463325252u;
static uint64_t draw(void) {
    state_of_random ^= state_of_random << 13, state_of_random ^= state_of_random >> 7,
        state_of_random ^= state_of_random << 17;
    return state_of_random;
}
// kind 0: like gradients; 1: any finite bits; 2: denormals; 3: zeros of both signs among few others; 4: one exponent
static float number(int kind) {
    uint32_t bits = (uint32_t)draw();
    float x;
    if (kind == 0) return (float)((double)(int64_t)draw() * 0x1p-63 * (double)(int64_t)draw() * 0x1p-70);
    if (kind == 1 && (bits & 0x7f800000) == 0x7f800000) bits ^= 0x40000000;
    if (kind == 2) bits &= 0x807fffff;
    if (kind == 3) bits = draw() % 50 ? bits & 0x80000000 : (bits & 0x80ffffff) | 0x30000000;
    if (kind == 4) bits = (bits & 0x807fffff) | 0x3f800000;
    memcpy(&x, &bits, 4);
    return x;
}
enum { N = 20011, KINDS = 5 };
static float *numbers(int kind) {
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < N; i++) x[i] = number(kind);
    return x;
}

static void sums_equal_exact_fractions_rounded_once(void **state) {
    (void)state;
    FILE *file = fopen(CT_SOURCE_DIR "/tests/base/fixtures/wide_sums.txt", "r");
    assert_non_null(file);
    static char line[4096];
    int lines = 0;
    for (; fgets(line, sizeof line, file); lines++) {
        char *at = line;
        int square = (int)strtol(at, &at, 10);
        double want = strtod(at, &at);
        float x[32];
        size_t n = 0;
        for (char *end; n < 32; n++, at = end) {
            x[n] = strtof(at, &end);
            if (end == at) break;
        }
        wide a = sum_of(x, n, square), b = one_by_one(x, n, square);
        double got = ct_wide_to_double(a.d);
        if (got != want) fail_msg("line %d: %a, not %a", lines + 1, got, want);
        assert_same(&a, &b);
    }
    fclose(file);
    assert_true(lines > 60);
}

static void an_array_is_the_sum_of_its_elements(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int square = 0; square < 2; square++) {
            float *x = numbers(kind);
            for (size_t n = 0; n < N; n = n < 70 ? n + 1 : n * 2 + 1) {
                wide a = sum_of(x + 3, n < N - 3 ? n : N - 3, square),
                     b = one_by_one(x + 3, n < N - 3 ? n : N - 3, square);
                assert_same(&a, &b);
            }
            free(x);
        }
}

static void neither_order_nor_split_nor_merge_matters(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int square = 0; square < 2; square++) {
            float *x = numbers(kind);
            wide whole = sum_of(x, N, square);
            for (int round = 0; round < 5; round++) {
                for (size_t i = N - 1; i > 0; i--) {
                    size_t j = draw() % (i + 1);
                    float t = x[i];
                    x[i] = x[j], x[j] = t;
                }
                wide parts[4], left = none(), right = none();
                size_t cut[5] = {0, draw() % 100, 5000 + draw() % 1000, 15000 + draw() % 5000, N};
                for (int p = 0; p < 4; p++) {
                    parts[p] = none();
                    ct_wide_add_f32_array(parts[p].d, x + cut[p], cut[p + 1] - cut[p], square);
                    if (p % 2) ct_wide_normalise(parts[p].d);
                }
                for (int p = 0; p < 4; p++) ct_wide_merge(left.d, parts[p].d);
                for (int p = 3; p >= 0; p--) ct_wide_merge(right.d, parts[p].d);
                ct_wide_normalise(left.d);
                ct_wide_normalise(right.d);
                assert_same(&left, &whole);
                assert_same(&right, &whole);
            }
            free(x);
        }
}

static void a_sum_and_its_opposite_are_zero(void **state) {
    (void)state;
    float *x = numbers(1);
    wide w = none(), zero = none();
    ct_wide_add_f32_array(w.d, x, N, 0);
    for (size_t i = 0; i < N; i++) x[i] = -x[i];
    ct_wide_add_f32_array(w.d, x, N, 0);
    ct_wide_normalise(w.d);
    assert_same(&w, &zero);
    free(x);
}

__extension__ typedef __int128 int128;

static void rounding_is_to_nearest_even_as_128_bit_integers_have_it(void **state) {
    (void)state;
    for (int i = 0; i < 200000; i++) {
        int128 exact = 0;
        wide w = none();
        for (int k = 0; k < 4; k++) {
            double x = (double)(int64_t)(draw() >> (draw() % 64)) * (draw() % 2 ? 1 : -1);
            if (draw() % 2) x = ldexp(x, 30);
            exact += (int128)x;
            ct_wide_add(w.d, x);
        }
        assert_true(ct_wide_to_double(w.d) == (double)exact);
    }
}

static void many_of_the_largest_squares_neither_overflow_nor_lose_the_smallest(void **state) {
    (void)state;
    float big[64], small;
    for (int i = 0; i < 64; i++) big[i] = 3.4028235e38f;
    uint32_t one = 1;
    memcpy(&small, &one, 4);
    wide w = sum_of(big, 64, 1);
    for (int i = 0; i < 54; i++) { // 2^60 squares, by doubling
        wide twice = w;
        ct_wide_merge(w.d, twice.d);
        ct_wide_normalise(w.d);
    }
    double want = ldexp((double)3.4028235e38f * (double)3.4028235e38f, 60);
    assert_true(ct_wide_to_double(w.d) == want);
    wide before = w;
    ct_wide_add_f32_array(w.d, &small, 1, 1);
    assert_memory_not_equal(w.d, before.d, sizeof w.d);
    for (int i = 0; i < CT_WIDE_DIGITS; i++) w.d[i] -= before.d[i];
    assert_true(ct_wide_to_double(w.d) == ldexp(1, -298));
}

static void what_is_not_finite_shows_and_stays(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++)
        for (size_t at = 0; at < 9000; at += 1777) {
            float *x = numbers(0);
            x[at] = bad[k];
            wide w = sum_of(x, 9000, 1), other = sum_of(x, at, 1), again = none();
            assert_true(isnan(ct_wide_to_double(w.d)));
            ct_wide_merge(again.d, w.d);
            ct_wide_merge(again.d, w.d);
            ct_wide_merge(again.d, other.d);
            ct_wide_normalise(again.d);
            assert_same(&again, &w);
            free(x);
        }
    wide w = none();
    ct_wide_add(w.d, 1e300);
    assert_true(isnan(ct_wide_to_double(w.d)));
}

static void a_million_adds_of_one_sign_carry(void **state) {
    (void)state;
    wide w = none();
    for (int i = 0; i < 1000000; i++) ct_wide_add(w.d, 4294967295.0);
    assert_true(ct_wide_to_double(w.d) == 4294967295.0 * 1e6);
    for (int i = 0; i < CT_WIDE_VALUE_DIGITS - 1; i++) w.d[i] = (int64_t)1 << 60; // far from normal
    double before = ct_wide_to_double(w.d);
    ct_wide_normalise(w.d);
    assert_true(ct_wide_to_double(w.d) == before);
    for (int i = 0; i < CT_WIDE_VALUE_DIGITS - 1; i++) assert_true(w.d[i] >= 0 && w.d[i] < (int64_t)1 << 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_equal_exact_fractions_rounded_once),
        cmocka_unit_test(an_array_is_the_sum_of_its_elements),
        cmocka_unit_test(neither_order_nor_split_nor_merge_matters),
        cmocka_unit_test(a_sum_and_its_opposite_are_zero),
        cmocka_unit_test(rounding_is_to_nearest_even_as_128_bit_integers_have_it),
        cmocka_unit_test(many_of_the_largest_squares_neither_overflow_nor_lose_the_smallest),
        cmocka_unit_test(what_is_not_finite_shows_and_stays),
        cmocka_unit_test(a_million_adds_of_one_sign_carry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
