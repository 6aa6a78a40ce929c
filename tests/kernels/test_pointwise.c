// Element-wise ops, norms and rotations on every instruction set: close to plain loops in double, and the same bits
// for any number of threads, rows and alignment.
#include "harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const ct_dtype dtypes[] = {CT_F32, CT_BF16};

// ---- references in double ----------------------------------------------------------------------------------

static void add_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    for (int64_t i = 0; i < R * C; i++) {
        out[0][i] = c->first && c->in[2] ? in[1][i] : in[0][i] + in[1][i];
        size[0][i] = fabs(out[0][i]);
    }
}
static void cast_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    (void)size;
    for (int64_t i = 0; i < R * C; i++)
        out[0][i] = c->out_dtype == CT_BF16 ? (double)ct_f32_from_bf16(ct_bf16_from_f32((float)in[0][i])) : in[0][i];
}
static double sigmoid(double a) { return 1 / (1 + exp(-a)); }
static void silu_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    for (int64_t i = 0; i < R * C; i++) {
        out[0][i] = in[0][i] * sigmoid(in[0][i]) * in[1][i];
        size[0][i] = fabs(out[0][i]) + ldexp(fabs(in[0][i] * in[1][i]), -120); // where e^a or a product is denormal
    }
}
static void silu_grad_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    for (int64_t i = 0; i < R * C; i++) {
        double dy = in[0][i], a = in[1][i], b = in[2][i], s = sigmoid(a), off = sigmoid(-a);
        out[0][i] = dy * b * s * (1 + a * off);
        out[1][i] = dy * a * s;
        size[0][i] = fabs(dy * b) * (s * (1 + fabs(a) * off) + ldexp(1 + fabs(a), -120)) + ldexp(fabs(dy), -125);
        size[1][i] = fabs(out[1][i]) + ldexp(fabs(dy * a) + fabs(dy), -120);
    }
}
static void rmsnorm_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    for (int64_t r = 0; r < R; r++) {
        double squares = 0, *x = in[0] + r * C;
        for (int64_t j = 0; j < C; j++) squares += x[j] * x[j];
        double rstd = out[1][r] = size[1][r] = 1 / sqrt(squares / (double)C + c->attrs[0]);
        for (int64_t j = 0; j < C; j++) {
            out[0][r * C + j] = x[j] * rstd * in[1][j];
            size[0][r * C + j] = fabs(out[0][r * C + j]);
        }
    }
}
static void rmsnorm_grad_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size) {
    (void)c;
    double *w = in[2], *rstd = in[3];
    for (int64_t r = 0; r < R; r++) {
        double *dy = in[0] + r * C, *x = in[1] + r * C, mean = 0, mean_size = 0;
        for (int64_t j = 0; j < C; j++) {
            mean += dy[j] * w[j] * x[j] / (double)C;
            mean_size += fabs(dy[j] * w[j] * x[j]) / (double)C;
        }
        for (int64_t j = 0; j < C; j++) {
            double cube = rstd[r] * rstd[r] * rstd[r];
            out[0][r * C + j] = rstd[r] * w[j] * dy[j] - x[j] * cube * mean;
            size[0][r * C + j] = fabs(rstd[r] * w[j] * dy[j]) + fabs(x[j] * cube) * mean_size;
            out[1][j] += dy[j] * x[j] * rstd[r];
            size[1][j] += fabs(dy[j] * x[j] * rstd[r]);
        }
    }
}

// ---- tests -----------------------------------------------------------------------------------------------

static void sums_and_casts_are_right_for_every_kind_of_number(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int d = 0; d < 2; d++)
            for (int inplace = 0; inplace < 2; inplace++) {
                op_case c = {.op = "add",
                             .in = "XX",
                             .out = "X",
                             .dtype = dtypes[d],
                             .kind = (value_kind)kind,
                             .inplace = inplace};
                assert_close_to(&c, add_reference, 3, 1111, 1);
                assert_contract(&c, 7, 1111);
            }
        op_case down = {.op = "cast", .in = "F", .out = "Y", .out_dtype = CT_BF16, .kind = (value_kind)kind};
        op_case up = {.op = "cast", .in = "X", .out = "F", .dtype = CT_BF16, .kind = (value_kind)kind};
        assert_close_to(&down, cast_reference, 3, 1111, 0);
        assert_close_to(&up, cast_reference, 3, 1111, 0);
        assert_contract(&down, 7, 1111);
    }
}

static void a_cast_agrees_with_the_scalar_on_every_bit_pattern(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    static float x[N];
    static uint16_t y[N];
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int part = 0; part < 64; part++) {
            for (uint32_t i = 0; i < N; i++) {
                uint32_t u = i << 16 | (uint32_t[]){0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4000, 0xc000}[part % 8];
                memcpy(&x[i], &u, 4);
            }
            ct_call call = {.inputs = 1, .outputs = 1, .in[0] = {.data = x, .dtype = CT_F32, .dims_count = 1, .dims = {N}}, .out[0] = {.data = y, .dtype = CT_BF16, .dims_count = 1, .dims = {N}}};
            run_call("cast", &call, *isa, 1);
            for (int i = 0; i < N; i++) assert_int_equal(y[i], ct_bf16_from_f32(x[i]));
            if (part == 7) break;
        }
}

static void accumulating_adds_or_begins_anew(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        op_case c = {.op = "accumulate", .in = "FFo", .out = "F", .first = first, .inplace = 1, .kind = WIDE};
        assert_close_to(&c, add_reference, 3, 777, 1);
        assert_contract(&c, 5, 777);
    }
}

static void the_gated_unit_and_its_gradient_are_right_for_every_kind_of_number(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int inplace = 0; inplace < 2; inplace++) {
                op_case y = {.op = "silu_mul",
                             .in = "XX",
                             .out = "X",
                             .dtype = dtypes[d],
                             .kind = (value_kind)kind,
                             .inplace = inplace};
                op_case g = y;
                g.op = "silu_mul_grad", g.in = "XXX", g.out = "XX";
                assert_close_to(&y, silu_reference, 3, 1003, 8);
                assert_close_to(&g, silu_grad_reference, 3, 1003, 10);
                assert_contract(&y, 7, 1003);
                assert_contract(&g, 7, 1003);
            }
}

static void norms_are_right_for_rows_of_any_length(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 15, 16, 48, 63, 64, 80, 257, 768, 4096};
    for (int d = 0; d < 2; d++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int kind = NORMAL; kind <= LARGE; kind++) {
                op_case y = {.op = "rmsnorm",
                             .in = "XW",
                             .out = "XS",
                             .dtype = dtypes[d],
                             .kind = (value_kind)kind,
                             .attrs = {1e-5}};
                op_case g = {
                    .op = "rmsnorm_grad", .in = "XXWP", .out = "XW", .dtype = dtypes[d], .kind = (value_kind)kind};
                assert_close_to(&y, rmsnorm_reference, 5, widths[w], 8);
                assert_close_to(&g, rmsnorm_grad_reference, 33, widths[w], 40);
                if (kind == NORMAL && widths[w] < 1000) {
                    assert_contract(&y, 9, widths[w]);
                    assert_contract(&g, 33, widths[w]);
                }
            }
}

static void a_norms_weight_gradient_is_one_flat_sum_over_many_rows(void **state) {
    (void)state;
    enum { R = 3000, C = 80 };
    op_case c = {.op = "rmsnorm_grad", .in = "XXWP", .out = "XW", .dtype = CT_F32};
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        op_result r = op_case_run(&c, (op_run){*isa, 3, 0, 0, R, C});
        for (int64_t j = 0; j < C; j++) {
            float fused = 0, plain = 0;
            for (int64_t i = 0; i < R; i++) {
                float dy = (float)r.values[0][i * C + j], t = (float)r.values[1][i * C + j] * (float)r.values[3][i];
                fused = fmaf(dy, t, fused);
                plain = plain + dy * t;
            }
            assert_true(r.values[5][j] == fused || (r.values[5][j] == plain && !strcmp(*isa, "generic")));
        }
        op_result_free(&r);
    }
}

// ---- made again by a gradient ----
enum { ROWS = 5, COLS = 203 };
static char memory[8][ROWS * COLS * 4];

static ct_tensor tensor(int slot, ct_dtype dtype, int64_t rows, int64_t cols) {
    ct_tensor t = {.data = memory[slot], .dtype = dtype, .dims_count = rows && cols ? 3 : 1, .dims = {1, rows, cols}};
    if (!cols) t.dims_count = 2;
    if (!rows) t.dims[0] = cols;
    return t;
}
static void fill(int slot, ct_dtype dtype, int64_t elems) {
    for (int64_t i = 0; i < elems; i++) {
        float x = (float)(8 * endless(slot, i / COLS, i % COLS));
        if (dtype == CT_F32) ((float *)memory[slot])[i] = x;
        else ((uint16_t *)memory[slot])[i] = ct_bf16_from_f32(x);
    }
}

static void what_a_gradient_makes_again_has_its_ops_bits(void **state) {
    (void)state;
    enum { Y, AGAIN, DY, A, B, W, RSTD, REST };
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int d = 0; d < 2; d++) {
            ct_dtype dtype = dtypes[d];
            ct_tensor y = tensor(Y, dtype, ROWS, COLS), again = tensor(AGAIN, dtype, ROWS, COLS), dy = tensor(DY, dtype, ROWS, COLS), a = tensor(A, dtype, ROWS, COLS),
                      b = tensor(B, dtype, ROWS, COLS), rest = tensor(REST, dtype, ROWS, COLS), w = tensor(W, CT_F32, 0, COLS), rstd = tensor(RSTD, CT_F32, ROWS, 0),
                      dw = tensor(B, CT_F32, 0, COLS);
            for (int slot = DY; slot <= B; slot++) fill(slot, dtype, ROWS * COLS);
            fill(W, CT_F32, COLS);
            ct_call gate = {.inputs = 2, .outputs = 1, .in = {a, b}, .out = {y}};
            run_call("silu_mul", &gate, *isa, 1);
            ct_call gate_grad = {.inputs = 3, .outputs = 3, .in = {dy, a, b}, .out = {rest, dy, again}};
            run_call("silu_mul_grad_y", &gate_grad, *isa, 1);
            assert_memory_equal(memory[Y], memory[AGAIN], ROWS * COLS * ct_dtype_bytes(dtype));
            ct_call norm = {.inputs = 2, .outputs = 2, .in = {a, w}, .out = {y, rstd}, .attrs = {1e-5}};
            run_call("rmsnorm", &norm, *isa, 1);
            ct_call norm_grad = {.inputs = 4, .outputs = 3, .in = {dy, a, w, rstd}, .out = {rest, dw, again}};
            run_call("rmsnorm_grad_y", &norm_grad, *isa, 1);
            assert_memory_equal(memory[Y], memory[AGAIN], ROWS * COLS * ct_dtype_bytes(dtype));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_casts_are_right_for_every_kind_of_number),
        cmocka_unit_test(a_cast_agrees_with_the_scalar_on_every_bit_pattern),
        cmocka_unit_test(accumulating_adds_or_begins_anew),
        cmocka_unit_test(the_gated_unit_and_its_gradient_are_right_for_every_kind_of_number),
        cmocka_unit_test(norms_are_right_for_rows_of_any_length),
        cmocka_unit_test(a_norms_weight_gradient_is_one_flat_sum_over_many_rows),
        cmocka_unit_test(what_a_gradient_makes_again_has_its_ops_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
