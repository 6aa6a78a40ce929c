// See harness.h.
#include "harness.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

const char *const *machine_isas(void) {
    static const char *const all[] = {"generic", "avx2", "avx512", "avx512bf16", NULL};
    static const char *known[5];
    int count = 0;
    for (int i = 0; all[i]; i++)
        if (!strcmp(ct_isa_best(all[i]), all[i])) known[count++] = all[i];
    known[count] = NULL;
    return known;
}

static uint64_t mix(int tensor, int64_t row, int64_t col) {
    uint64_t h = (uint64_t)tensor * 0x9e3779b97f4a7c15u + (uint64_t)row * 0xbf58476d1ce4e5b9u +
                 (uint64_t)col * 0x94d049bb133111ebu;
    h ^= h >> 31, h *= 0xd6e8feb86659fd93u, h ^= h >> 29, h *= 0xd6e8feb86659fd93u, h ^= h >> 32;
    return h;
}
double endless(int tensor, int64_t row, int64_t col) { return (double)(int64_t)mix(tensor, row, col) / 9.3e18; }

static double drawn(value_kind kind, int tensor, int64_t row, int64_t col) {
    double x = endless(tensor, row, col);
    uint64_t h = mix(tensor + 1000, row, col);
    if (kind == WIDE) return h % 17 == 0 ? 0 : ldexp(x, (int)(h >> 8) % 41);
    if (kind == DENORMAL) return h % 3 == 0 ? ldexp(x, -130) : h % 3 == 1 ? 0 : ldexp(x, -20);
    if (kind == LARGE) return h % 2 ? 200 * x : x;
    return 2 * x;
}

static void *block_of(size_t bytes, size_t skew_bytes, void **out_block) {
    assert_int_equal(posix_memalign(out_block, 64, bytes + skew_bytes + 64), 0);
    memset(*out_block, 0xff, bytes + skew_bytes + 64);
    return (char *)*out_block + skew_bytes;
}

void run_call(const char *op, ct_call *call, const char *isa, int threads) {
    const ct_kernel *kernel = ct_kernel_find(op, call, isa);
    if (!kernel) fail_msg("no kernel for %s on %s", op, isa);
    ct_call planned = *call;
    for (int i = 0; i < call->inputs; i++) planned.in[i].data = NULL;
    for (int i = 0; i < call->outputs; i++) planned.out[i].data = NULL;
    size_t bytes = kernel->scratch ? kernel->scratch(&planned, threads) : 0;
    void *block;
    call->scratch = block_of(bytes, 0, &block);
    ct_team *team;
    assert_null(ct_team_create((ct_team_options){.threads = threads, .first_core = -1, .never_spin = 1}, &team));
    kernel->run(call, team);
    ct_team_destroy(team);
    for (size_t i = 0; i < 64; i++) assert_int_equal(((unsigned char *)block)[bytes + i], 0xff);
    free(block);
}

// ---- operands ------------------------------------------------------------------------------------------

static ct_dtype letter_dtype(char letter, const op_case *c) {
    return letter == 'X'          ? c->dtype
           : letter == 'Y'        ? c->out_dtype
           : strchr("Lo", letter) ? CT_I32
           : letter == 'd'        ? CT_F64
                                  : CT_F32;
}

static ct_tensor letter_tensor(char letter, const op_case *c, op_run run) {
    ct_tensor t = {.dtype = letter_dtype(letter, c)};
    if (strchr("XYFG", letter))
        t.dims_count = 3, t.dims[0] = 1, t.dims[1] = run.rows, t.dims[2] = run.cols;
    else if (strchr("SPL", letter))
        t.dims_count = 2, t.dims[0] = 1, t.dims[1] = run.rows;
    else if (strchr("Wd", letter))
        t.dims_count = 1, t.dims[0] = letter == 'd' ? 2 : run.cols;
    return t;
}

static int64_t letter_row_elems(char letter, op_run run) {
    return strchr("XYFG", letter) ? run.cols : strchr("SPL", letter) ? 1 : 0;
}

static double element(char letter, int operand, const op_case *c, op_run run, int64_t i) {
    int64_t width = strchr("XYFG", letter) ? run.cols : 1, row = run.row + i / width, col = i % width;
    if (letter == 'o') return c->first;
    if (letter == 'd') return c->scalars[i];
    if (letter == 'f') return 0.5 + 0.4 * endless(operand, 0, 0);
    if (letter == 'W') return 1 + endless(operand, 0, i);
    if (letter == 'L')
        return mix(operand, row, 0) % 7 == 3 ? -100 : (double)(mix(operand, row, 1) % (uint64_t)run.cols);
    if (letter == 'S') return 2 * endless(operand, row, 0);
    if (letter == 'P') return 1.5 + endless(operand, row, 0);
    if (letter == 'G') return fabs(drawn(c->kind, operand, row, col));
    return drawn(c->kind, operand, row, col);
}

static void put(void *data, ct_dtype dtype, int64_t i, double x) {
    if (dtype == CT_F32) ((float *)data)[i] = (float)x;
    if (dtype == CT_BF16) ((uint16_t *)data)[i] = ct_bf16_from_f32((float)x);
    if (dtype == CT_I32) ((int32_t *)data)[i] = (int32_t)x;
    if (dtype == CT_F64) ((double *)data)[i] = x;
}
static double get(const void *data, ct_dtype dtype, int64_t i) {
    if (dtype == CT_F32) return ((const float *)data)[i];
    if (dtype == CT_BF16) return ct_f32_from_bf16(((const uint16_t *)data)[i]);
    return dtype == CT_I32 ? ((const int32_t *)data)[i] : ((const double *)data)[i];
}

op_result op_case_run(const op_case *c, op_run run) {
    ct_call call = {.inputs = (int)strlen(c->in), .outputs = (int)strlen(c->out)};
    op_result result = {0};
    void *blocks[CASE_OPERANDS] = {0};
    memcpy(call.attrs, c->attrs, sizeof call.attrs);
    for (int k = 0; k < call.inputs + call.outputs; k++) {
        int output = k - call.inputs;
        char letter = output < 0 ? c->in[k] : c->out[output];
        ct_tensor t = letter_tensor(letter, c, run);
        int64_t n = ct_tensor_elems(&t);
        size_t size = ct_dtype_bytes(t.dtype);
        t.data = block_of((size_t)n * size, (size_t)run.skew * size, &blocks[k]);
        result.elems[k] = n;
        result.values[k] = ct_calloc((size_t)n + 1, sizeof(double));
        for (int64_t i = 0; i < n && output < 0; i++) {
            put(t.data, t.dtype, i, element(letter, k, c, run, i));
            result.values[k][i] = get(t.data, t.dtype, i);
        }
        if (output < 0) {
            call.in[k] = t;
            continue;
        }
        for (int i = 0; c->inplace && i < call.inputs; i++) {
            int taken = 0;
            for (int o = 0; o < output; o++) taken |= call.out[o].data == call.in[i].data;
            if (taken || (letter_dtype(c->in[i], c) != t.dtype ||
                          letter_row_elems(c->in[i], run) != letter_row_elems(letter, run)))
                continue;
            t.data = call.in[i].data;
            break;
        }
        call.out[output] = t;
    }
    run_call(c->op, &call, run.isa, run.threads);
    for (int o = 0; o < call.outputs; o++) {
        int64_t n = ct_tensor_elems(&call.out[o]);
        size_t size = ct_dtype_bytes(call.out[o].dtype);
        result.sizes[o] = (size_t)n * size;
        result.row_bytes[o] = (size_t)letter_row_elems(c->out[o], run) * size;
        result.bytes[o] = ct_malloc(result.sizes[o] + 1);
        memcpy(result.bytes[o], call.out[o].data, result.sizes[o]);
        for (int64_t i = 0; i < n; i++)
            result.values[call.inputs + o][i] = get(call.out[o].data, call.out[o].dtype, i);
    }
    for (int k = 0; k < CASE_OPERANDS; k++) free(blocks[k]);
    return result;
}

void op_result_free(op_result *result) {
    for (int k = 0; k < CASE_OPERANDS; k++) free(result->values[k]);
    for (int o = 0; o < CT_MAX_OUTPUTS; o++) free(result->bytes[o]);
}

// ---- what is asserted ----------------------------------------------------------------------------------

// Where `whole` has all rows and `run` some of them; outputs without rows are compared where all rows run.
static void assert_same(const op_case *c, const op_result *whole, op_run run, int all_rows) {
    op_result part = op_case_run(c, run);
    for (int o = 0; c->out[o]; o++)
        if ((all_rows || whole->row_bytes[o]) &&
            memcmp((char *)whole->bytes[o] + whole->row_bytes[o] * (size_t)run.row, part.bytes[o], part.sizes[o]))
            fail_msg("%s on %s: output %d has other bits with %d threads, skew %d, rows %lld to %lld", c->op, run.isa,
                     o, run.threads, run.skew, (long long)run.row, (long long)(run.row + run.rows));
    op_result_free(&part);
}

void assert_contract(const op_case *c, int64_t rows, int64_t cols) {
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        op_result whole = op_case_run(c, (op_run){*isa, 1, 0, 0, rows, cols});
        for (int threads = 1; threads <= 4; threads++)
            for (int skew = 0; skew < 3; skew++)
                assert_same(c, &whole, (op_run){*isa, threads, skew, 0, rows, cols}, 1);
        for (int64_t row = 0; row < rows; row += 1 + rows / 5)
            for (int64_t n = 1; row + n < rows; n += 1 + rows / 4)
                assert_same(c, &whole, (op_run){*isa, 2, 1, row, n, cols}, 0);
        op_result_free(&whole);
    }
}

static void assert_output(const op_case *c, const char *isa, int o, int64_t n, const double *got, const double *want,
                          const double *size, double ulps) {
    int bf16 = letter_dtype(c->out[o], c) == CT_BF16;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (got[i] == want[i] || (float)want[i] == (float)got[i]) continue;
        double allowed = ulps * (ldexp(size[i], -24) + ldexp(1, -149)) + ldexp(1, -149);
        if (bf16) allowed += ldexp(fabs(want[i]) + allowed, -8) + ldexp(1, -134);
        if (!(fabs(got[i] - want[i]) <= allowed))
            fail_msg("%s on %s (kind %d): output %d[%lld] is %.9g, not %.9g (off by %.3g, allowed %.3g)", c->op, isa,
                     c->kind, o, (long long)i, got[i], want[i], fabs(got[i] - want[i]), allowed);
    }
}

void assert_close_to(const op_case *c, op_reference *reference, int64_t rows, int64_t cols, double ulps) {
    for (const char *const *isa = machine_isas(); *isa; isa++) {
        op_result r = op_case_run(c, (op_run){*isa, 2, 0, 0, rows, cols});
        int inputs = (int)strlen(c->in);
        double *want[CT_MAX_OUTPUTS], *size[CT_MAX_OUTPUTS];
        for (int o = 0; c->out[o]; o++) {
            want[o] = ct_calloc((size_t)r.elems[inputs + o] + 1, sizeof(double));
            size[o] = ct_calloc((size_t)r.elems[inputs + o] + 1, sizeof(double));
        }
        reference(c, rows, cols, r.values, want, size);
        for (int o = 0; c->out[o]; o++) {
            assert_output(c, *isa, o, r.elems[inputs + o], r.values[inputs + o], want[o], size[o], ulps);
            free(want[o]);
            free(size[o]);
        }
        op_result_free(&r);
    }
}
