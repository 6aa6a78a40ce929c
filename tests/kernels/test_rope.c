// Rotary angles equal torchtitan's, rotations are right, undo each other, and have the same bits under every cut.
#include "harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void angles_equal_torchtitans_with_and_without_scaling(void **state) {
    (void)state;
    FILE *file = fopen(CT_SOURCE_DIR "/tests/kernels/fixtures/rope_angles.txt", "r");
    assert_non_null(file);
    double attrs[6];
    int count, cases = 0;
    char cosine[64], sine[64];
    while (fscanf(file, " case %lf %lf %lf %lf %lf %lf %d", &attrs[0], &attrs[1], &attrs[2], &attrs[3], &attrs[4],
                  &attrs[5], &count) == 7) {
        cases++;
        for (int i = 0; i < count; i++) {
            int position, pair;
            assert_int_equal(fscanf(file, "%d %d %63s %63s", &position, &pair, cosine, sine), 4);
            static float angles[4096];
            int32_t p = position;
            ct_call call = {.inputs = 1,
                            .outputs = 1,
                            .in[0] = {.data = &p, .dtype = CT_I32, .dims_count = 2, .dims = {1, 1}},
                            .out[0] = {.data = angles, .dtype = CT_F32, .dims_count = 3, .dims = {1, 1, (int64_t)attrs[0]}}};
            memcpy(call.attrs, attrs, sizeof attrs);
            run_call("rope_angles", &call, NULL, 1);
            // Its powers and sines are within 1 ulp: an ulp of the frequency is position·frequency·2^-23 of the
            // angle.
            double frequency = pow(attrs[1], -2.0 * pair / attrs[0]), allowed = ldexp(1 + position * frequency, -23);
            assert_true(fabs(angles[2 * pair] - strtod(cosine, NULL)) <= allowed);
            assert_true(fabs(angles[2 * pair + 1] - strtod(sine, NULL)) <= allowed);
        }
    }
    fclose(file);
    assert_int_equal(cases, 5);
}

static void angles_do_not_depend_on_threads_or_neighbours(void **state) {
    (void)state;
    enum { T = 37, D = 48 };
    static int32_t positions[T];
    static float whole[T * D], part[T * D];
    for (int t = 0; t < T; t++) positions[t] = t * 977 % 5000;
    for (int threads = 1; threads <= 4; threads++)
        for (int from = 0; from < T; from += 9) {
            ct_call call = {.inputs = 1,
                            .outputs = 1,
                            .in[0] = {.data = positions + from, .dtype = CT_I32, .dims_count = 2, .dims = {1, T - from}},
                            .out[0] = {.data = from || threads > 1 ? part : whole, .dtype = CT_F32, .dims_count = 3, .dims = {1, T - from, D}},
                            .attrs = {D, 10000, 8, 1, 4, 8192}};
            run_call("rope_angles", &call, NULL, threads);
            if (from || threads > 1)
                assert_memory_equal(part, whole + from * D, sizeof(float) * (size_t)(T - from) * D);
        }
}

// One head a row: x and angles of the same shape.
static void rope_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    for (int64_t i = 0; i < R * C; i += 2) {
        double a = in[0][i], b = in[0][i + 1], cosine = in[1][i],
               sine = c->attrs[0] != 0 ? -in[1][i + 1] : in[1][i + 1];
        out[0][i] = a * cosine - b * sine;
        out[0][i + 1] = b * cosine + a * sine;
        size[0][i] = fabs(a * cosine) + fabs(b * sine);
        size[0][i + 1] = fabs(b * cosine) + fabs(a * sine);
    }
}
static void rotations_are_right_both_ways_and_in_place(void **state) {
    (void)state;
    static const int64_t sizes[] = {2, 8, 16, 48, 64, 80, 128};
    for (int dtype = CT_F32; dtype <= CT_BF16; dtype++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int inverse = 0; inverse < 2; inverse++)
                for (int kind = 0; kind < KINDS; kind++) {
                    op_case c = {.op = "rope",
                                 .in = "XF",
                                 .out = "X",
                                 .dtype = (ct_dtype)dtype,
                                 .kind = (value_kind)kind,
                                 .attrs = {inverse},
                                 .inplace = kind & 1};
                    assert_close_to(&c, rope_reference, 9, sizes[s], 4);
                    if (kind == NORMAL) assert_contract(&c, 9, sizes[s]);
                }
}

static void heads_of_a_token_share_its_angle_and_the_inverse_undoes_it(void **state) {
    (void)state;
    enum { T = 5, H = 3, D = 48 };
    static float x[T * H * D], y[T * H * D], back[T * H * D], one[D], angles[T * D];
    int32_t positions[T] = {3, 1, 4, 1, 59};
    ct_call make = {.inputs = 1,
                    .outputs = 1,
                    .in[0] = {.data = positions, .dtype = CT_I32, .dims_count = 2, .dims = {1, T}},
                    .out[0] = {.data = angles, .dtype = CT_F32, .dims_count = 3, .dims = {1, T, D}},
                    .attrs = {D, 10000, 0, 0, 0, 0}};
    run_call("rope_angles", &make, NULL, 1);
    for (int i = 0; i < T * H * D; i++) x[i] = (float)endless(1, i, 0);
    ct_call call = {.inputs = 2,
                    .outputs = 1,
                    .in = {{.data = x, .dtype = CT_F32, .dims_count = 4, .dims = {1, T, H, D}}, make.out[0]},
                    .out[0] = {.data = y, .dtype = CT_F32, .dims_count = 4, .dims = {1, T, H, D}}};
    run_call("rope", &call, NULL, 2);
    for (int row = 0; row < T * H; row++) {
        ct_call alone = {.inputs = 2,
                         .outputs = 1,
                         .in = {{.data = x + row * D, .dtype = CT_F32, .dims_count = 4, .dims = {1, 1, 1, D}}, {.data = angles + row / H * D, .dtype = CT_F32, .dims_count = 3, .dims = {1, 1, D}}},
                         .out[0] = {.data = one, .dtype = CT_F32, .dims_count = 4, .dims = {1, 1, 1, D}}};
        run_call("rope", &alone, NULL, 1);
        assert_memory_equal(one, y + row * D, sizeof one);
    }
    ct_call undo = {.inputs = 2,
                    .outputs = 1,
                    .in = {call.out[0], make.out[0]},
                    .out[0] = {.data = back, .dtype = CT_F32, .dims_count = 4, .dims = {1, T, H, D}},
                    .attrs = {1}};
    run_call("rope", &undo, NULL, 3);
    for (int i = 0; i < T * H * D; i++) assert_true(fabsf(back[i] - x[i]) < 1e-6f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(angles_equal_torchtitans_with_and_without_scaling),
        cmocka_unit_test(angles_do_not_depend_on_threads_or_neighbours),
        cmocka_unit_test(rotations_are_right_both_ways_and_in_place),
        cmocka_unit_test(heads_of_a_token_share_its_angle_and_the_inverse_undoes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
