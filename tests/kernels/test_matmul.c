// The matrix products on every set of instructions that this machine has: close to sums in double, and the same bits
// however rows, columns, pointers and threads are cut.
#include "base/memory.h"
#include "kernels/kernel.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MATMUL, DX, DW, DW_ACC, OPS };
static const char *const op_names[OPS] = {"matmul", "matmul_dx", "matmul_dw", "matmul_dw_acc"};
static const char *const isas[] = {"generic", "avx2", "avx512", "avx512bf16"};

// One product: x[m, k], w[n, k], dy[m, n] of `type`, acc[n, k] f32, `out` the result's type. Pointers are `skew`
// elements off 64 bytes.
typedef struct {
    int op, first, skew;
    ct_dtype type, out;
    int64_t m, n, k;
    const char *isa;
} problem;

// Numbers that are the same for the same (tensor, row, column), so that a part of a tensor can be made alone.
static double value(int tensor, int64_t row, int64_t col) {
    uint64_t h = (uint64_t)tensor * 0x9e3779b97f4a7c15u + (uint64_t)row * 0xbf58476d1ce4e5b9u +
                 (uint64_t)col * 0x94d049bb133111ebu;
    h ^= h >> 31, h *= 0xd6e8feb86659fd93u, h ^= h >> 29, h *= 0xd6e8feb86659fd93u, h ^= h >> 32;
    return (double)(int64_t)h / 9.3e18;
}

static void *block_of(size_t bytes) {
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 64, bytes + 64), 0);
    return block;
}

// A tensor [rows, cols] whose corner is (row, col) of the endless tensor of that number.
static void *make(int tensor, ct_dtype type, int64_t row, int64_t rows, int64_t col, int64_t cols, int skew,
                  void **out_block) {
    size_t size = ct_dtype_bytes(type);
    *out_block = block_of((size_t)(rows * cols + skew) * size);
    char *data = (char *)*out_block + (size_t)skew * size;
    for (int64_t i = 0; i < rows * cols; i++) {
        float x = (float)value(tensor, row + i / cols, col + i % cols);
        uint16_t b = ct_bf16_from_f32(x);
        memcpy(data + (size_t)i * size, type == CT_BF16 ? (void *)&b : (void *)&x, size);
    }
    return data;
}

static ct_tensor tensor(void *data, ct_dtype dtype, int64_t rows, int64_t cols) {
    ct_tensor t = {.data = data, .dtype = dtype, .dims_count = 2, .dims = {rows, cols}};
    return t;
}

static int64_t out_rows(const problem *p) { return p->op >= DW ? p->n : p->m; }
static int64_t out_cols(const problem *p) { return p->op == MATMUL ? p->n : p->k; }

typedef struct {
    int64_t m, n, k;
} corner;

// Runs the part of the product that begins at `at`; the caller frees the result. The scratch has exactly the size
// asked for.
static void *run_part(const problem *p, corner at, int threads) {
    void *blocks[4] = {0};
    void *x = make(1, p->type, at.m, p->m, at.k, p->k, p->skew, &blocks[0]);
    void *w = make(2, p->type, at.n, p->n, at.k, p->k, p->skew, &blocks[1]);
    void *dy = make(3, p->type, at.m, p->m, at.n, p->n, p->skew, &blocks[2]);
    ct_tensor xt = tensor(x, p->type, p->m, p->k), wt = tensor(w, p->type, p->n, p->k),
              dyt = tensor(dy, p->type, p->m, p->n);
    int32_t first = p->first;
    void *out_block;
    void *out = make(4, p->out, p->op >= DW ? at.n : at.m, out_rows(p), p->op == MATMUL ? at.n : at.k, out_cols(p),
                     p->skew, &out_block);
    ct_call call = {.inputs = 2, .outputs = 1, .out[0] = tensor(out, p->out, out_rows(p), out_cols(p))};
    if (p->op == MATMUL) call.in[0] = xt, call.in[1] = wt;
    if (p->op == DX) call.in[0] = dyt, call.in[1] = wt;
    if (p->op == DW) call.in[0] = dyt, call.in[1] = xt;
    if (p->op == DW_ACC) {
        call.inputs = 4;
        call.in[0] = call.out[0], call.in[1] = dyt, call.in[2] = xt;
        call.in[3] = (ct_tensor){.data = &first, .dtype = CT_I32};
    }
    const ct_kernel *kernel = ct_kernel_find(op_names[p->op], &call, p->isa);
    assert_non_null(kernel);
    ct_call planned = call;
    for (int i = 0; i < call.inputs; i++) planned.in[i].data = NULL;
    for (int i = 0; i < call.outputs; i++) planned.out[i].data = NULL;
    size_t scratch_bytes = kernel->scratch(&planned, threads);
    blocks[3] = block_of(scratch_bytes);
    memset(blocks[3], 0xff, scratch_bytes + 64);
    call.scratch = blocks[3];
    ct_team *team;
    assert_null(ct_team_create((ct_team_options){.threads = threads, .first_core = -1, .never_spin = 1}, &team));
    kernel->run(&call, team);
    ct_team_destroy(team);
    for (size_t i = 0; i < 64; i++) assert_int_equal(((unsigned char *)blocks[3])[scratch_bytes + i], 0xff);
    size_t bytes = (size_t)(out_rows(p) * out_cols(p)) * ct_dtype_bytes(p->out);
    void *result = block_of(bytes);
    memcpy(result, out, bytes);
    for (int i = 0; i < 4; i++) free(blocks[i]);
    free(out_block);
    return result;
}
static void *run_whole(const problem *p, int threads) { return run_part(p, (corner){0}, threads); }

static double number(const void *data, ct_dtype type, int64_t i) {
    return type == CT_BF16 ? (double)ct_f32_from_bf16(((const uint16_t *)data)[i]) : (double)((const float *)data)[i];
}
static double rounded(int which, ct_dtype type, int64_t row, int64_t col) {
    float x = (float)value(which, row, col);
    return type == CT_BF16 ? (double)ct_f32_from_bf16(ct_bf16_from_f32(x)) : (double)x;
}

// The element (i, j) of a product in double, and the sum of its terms' sizes.
static double exact(const problem *p, int64_t i, int64_t j, double *out_size) {
    int64_t depth = p->op == MATMUL ? p->k : p->op == DX ? p->n : p->m;
    double sum = 0;
    *out_size = 0;
    for (int64_t d = 0; d < depth; d++) {
        double a = p->op == MATMUL ? rounded(1, p->type, i, d)
                   : p->op == DX   ? rounded(3, p->type, i, d)
                                   : rounded(3, p->type, d, i);
        double b = p->op == MATMUL ? rounded(2, p->type, j, d)
                   : p->op == DX   ? rounded(2, p->type, d, j)
                                   : rounded(1, p->type, d, j);
        sum += a * b;
        *out_size += fabs(a * b);
    }
    if (p->op == DW_ACC && !p->first) {
        sum += rounded(4, CT_F32, i, j);
        *out_size += fabs(rounded(4, CT_F32, i, j));
    }
    return sum;
}

// |found - exact| ≤ (depth + 2) · 2^-24 · 2 · Σ|a||b|, and half a bf16 step more where the result is bf16.
static void check_close(const problem *p) {
    void *found = run_whole(p, 2);
    int64_t depth = p->op == MATMUL ? p->k : p->op == DX ? p->n : p->m;
    for (int64_t i = 0; i < out_rows(p); i++)
        for (int64_t j = 0; j < out_cols(p); j++) {
            double size, want = exact(p, i, j, &size), got = number(found, p->out, i * out_cols(p) + j);
            double bound = (double)(depth + 2) * FLT_EPSILON * size + (p->out == CT_BF16 ? fabs(want) / 256 : 0);
            if (!(fabs(got - want) <= bound))
                fail_msg("%s %s m=%ld n=%ld k=%ld (%ld,%ld): %.9g, not %.9g", op_names[p->op], p->isa, (long)p->m,
                         (long)p->n, (long)p->k, (long)i, (long)j, got, want);
        }
    free(found);
}

// Every op, set of instructions and choice of types.
static int next_variant(int *index, problem *p) {
    int i = (*index)++, of_isa = 3 * OPS;
    if (i >= of_isa * 4) return 0;
    p->isa = isas[i / of_isa];
    p->op = i % OPS;
    int types = i / OPS % 3; // f32; bf16; bf16 with an f32 result
    p->type = types ? CT_BF16 : CT_F32;
    p->out = types == 1 && p->op < DW ? CT_BF16 : CT_F32;
    p->first = types == 2;
    int runs_here = !strcmp(ct_isa_best(p->isa), p->isa);
    return runs_here && !(types == 2 && p->op == DW) ? 1 : next_variant(index, p);
}

static void products_are_close_to_sums_in_double(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 13},   {17, 31, 33},  {63, 65, 127},
                                       {14, 32, 16}, {15, 33, 17}, {1, 100, 64},  {28, 64, 97},
                                       {5, 129, 1},  {7, 3, 1100}, {1040, 5, 18}, {9, 2100, 6}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        problem p = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
        for (int i = 0; next_variant(&i, &p);) check_close(&p);
    }
}

static void assert_same(const problem *p, const void *got, const void *want, size_t bytes, const char *what) {
    if (memcmp(got, want, bytes))
        fail_msg("%s %s of m=%ld n=%ld k=%ld: other bits %s", p->isa, op_names[p->op], (long)p->m, (long)p->n,
                 (long)p->k, what);
}

static const problem shapes[] = {
    {.m = 65, .n = 97, .k = 130},   {.m = 270, .n = 67, .k = 33},   {.m = 31, .n = 40, .k = 2101},
    {.m = 2061, .n = 35, .k = 21},  {.m = 19, .n = 2069, .k = 34},  {.m = 131, .n = 1059, .k = 18},
    {.m = 18, .n = 131, .k = 1059}, {.m = 1030, .n = 9, .k = 1034},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        problem p = shapes[s];
        for (int i = 0; next_variant(&i, &p);) {
            void *one = run_whole(&p, 1);
            for (int threads = 2; threads <= 6; threads++) {
                void *many = run_whole(&p, threads);
                assert_same(&p, many, one, (size_t)(out_rows(&p) * out_cols(&p)) * ct_dtype_bytes(p.out),
                            "with more threads");
                free(many);
            }
            free(one);
        }
    }
}

static void bits_do_not_depend_on_alignment(void **state) {
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        problem p = shapes[s];
        for (int i = 0; next_variant(&i, &p);) {
            p.skew = 0;
            void *aligned = run_whole(&p, 1);
            for (int skew = 1; skew < 8; skew += 2) {
                p.skew = skew;
                void *skewed = run_whole(&p, 1);
                assert_same(&p, skewed, aligned, (size_t)(out_rows(&p) * out_cols(&p)) * ct_dtype_bytes(p.out),
                            "unaligned");
                free(skewed);
            }
            free(aligned);
        }
    }
}

// Computes result rows [row, row + rows) × columns [col, col + cols) alone and compares them with those of the whole.
static void check_part(const problem *whole, const char *all, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    problem p = *whole;
    corner at = {0};
    if (p.op >= DW)
        p.n = rows, at.n = row;
    else
        p.m = rows, at.m = row;
    if (p.op == MATMUL)
        p.n = cols, at.n = col;
    else
        p.k = cols, at.k = col;
    char *part = run_part(&p, at, 1);
    size_t size = ct_dtype_bytes(p.out);
    for (int64_t i = 0; i < rows; i++)
        assert_same(whole, part + (size_t)(i * cols) * size, all + (size_t)((row + i) * out_cols(whole) + col) * size,
                    (size_t)cols * size, "in a part computed alone");
    free(part);
}

static void bits_do_not_depend_on_the_cut(void **state) {
    (void)state;
    srand(5);
    for (int s = 0; s < SHAPES; s++) {
        problem p = shapes[s];
        for (int i = 0; next_variant(&i, &p);) {
            char *all = run_whole(&p, 1);
            int64_t rows = out_rows(&p), cols = out_cols(&p), step = rows > 70 ? rows / 5 : 1,
                    cuts = p.m * p.n * p.k > 4000000 ? 3 : 12;
            for (int64_t row = 0; row < rows; row += step) check_part(&p, all, row, 1, 0, cols);
            for (int cut = 0; cut < cuts; cut++) {
                int64_t row = rand() % rows, col = rand() % cols;
                check_part(&p, all, row, 1 + rand() % (rows - row), col, 1 + rand() % (cols - col));
            }
            free(all);
        }
    }
}

static void an_accumulator_gets_the_complete_product_once(void **state) {
    (void)state;
    for (int s = 0; s < SHAPES; s++) {
        problem p = shapes[s];
        for (int i = 0; next_variant(&i, &p);) {
            if (p.op != DW_ACC) continue;
            problem plain = p, first = p, later = p;
            plain.op = DW, first.first = 1, later.first = 0;
            float *product = run_whole(&plain, 2), *fresh = run_whole(&first, 2), *added = run_whole(&later, 2);
            assert_same(&p, fresh, product, (size_t)(p.n * p.k) * sizeof(float), "in the first part");
            for (int64_t j = 0; j < p.n * p.k; j++)
                assert_true(added[j] == (float)value(4, j / p.k, j % p.k) + product[j]);
            free(product), free(fresh), free(added);
        }
    }
}

static void empty_products_are_zero_or_nothing(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{0, 5, 7}, {5, 0, 7}, {5, 7, 0}};
    for (int s = 0; s < 3; s++) {
        problem p = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
        for (int i = 0; next_variant(&i, &p);) check_close(&p);
    }
}

// Runs y = x wᵀ in f32 on given numbers.
static void run_f32(const char *isa, const float *x, const float *w, float *y, int64_t m, int64_t n, int64_t k) {
    ct_call call = {
        .inputs = 2, .outputs = 1, .in = {tensor((void *)x, CT_F32, m, k), tensor((void *)w, CT_F32, n, k)}};
    call.out[0] = tensor(y, CT_F32, m, n);
    const ct_kernel *kernel = ct_kernel_find("matmul", &call, isa);
    call.scratch = block_of(kernel->scratch(&call, 1));
    ct_team *team;
    assert_null(ct_team_create((ct_team_options){.threads = 1, .first_core = -1}, &team));
    kernel->run(&call, team);
    ct_team_destroy(team);
    free(call.scratch);
}

static void f32_keeps_denormals(void **state) {
    (void)state;
    float x[4] = {0x1p-130f, 0x1p-140f, 0, 0x1p-149f}, w[4] = {1, 1, 5, 1}, y;
    for (int i = 0; i < 4; i++) {
        run_f32(isas[i], x, w, &y, 1, 1, 4);
        assert_true(y == 0x1p-130f + 0x1p-140f + 0x1p-149f);
    }
}

static void a_row_of_nan_or_infinity_stays_in_its_row(void **state) {
    (void)state;
    enum { M = 16, N = 5, K = 3 };
    float x[M * K], w[N * K], y[M * N];
    for (int i = 0; i < M * K; i++) x[i] = i / K == 4 ? NAN : i / K == 9 ? INFINITY : i / K == 11 ? 0 : 1;
    for (int i = 0; i < N * K; i++) w[i] = 2;
    for (int i = 0; i < 4; i++) {
        run_f32(isas[i], x, w, y, M, N, K);
        for (int j = 0; j < M * N; j++) {
            int row = j / N;
            if (row == 4)
                assert_true(isnan(y[j]));
            else
                assert_true(y[j] == (row == 9 ? INFINITY : row == 11 ? 0 : 2 * K));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_close_to_sums_in_double),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(bits_do_not_depend_on_alignment),
        cmocka_unit_test(bits_do_not_depend_on_the_cut),
        cmocka_unit_test(an_accumulator_gets_the_complete_product_once),
        cmocka_unit_test(empty_products_are_zero_or_nothing),
        cmocka_unit_test(f32_keeps_denormals),
        cmocka_unit_test(a_row_of_nan_or_infinity_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
