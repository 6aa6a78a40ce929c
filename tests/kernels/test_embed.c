// Rows by number: look-up, scatter and cache, against plain loops in f32 that have the very same order of sums.
#include "harness.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { T = 333, V = 57 };

static float f32_of(const void *data, ct_dtype dtype, int64_t i) {
    return dtype == CT_BF16 ? ct_f32_from_bf16(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}
static void *some(ct_dtype dtype, int64_t n, int tensor) {
    void *data = ct_malloc((size_t)n * ct_dtype_bytes(dtype) + 16);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)endless(tensor, i, 0);
        if (dtype == CT_BF16)
            ((uint16_t *)data)[i] = ct_bf16_from_f32(x);
        else
            ((float *)data)[i] = x;
    }
    return data;
}
// Some tokens often, some never.
static int32_t token(int64_t t) { return t % 3 == 0 ? 5 : (int32_t)((t * t * 7) % (V - 3)); }

static void a_look_up_copies_rows(void **state) {
    (void)state;
    static int32_t tokens[T];
    for (int t = 0; t < T; t++) tokens[t] = token(t);
    for (int dtype = CT_F32; dtype <= CT_BF16; dtype++)
        for (int64_t D = 1; D < 100; D += 33) {
            size_t row = (size_t)D * ct_dtype_bytes((ct_dtype)dtype);
            char *table = some((ct_dtype)dtype, V * D, 1), *y = some((ct_dtype)dtype, T * D, 2);
            ct_call call = {.inputs = 2,
                            .outputs = 1,
                            .in = {{.data = table, .dtype = (ct_dtype)dtype, .dims_count = 2, .dims = {V, D}}, {.data = tokens, .dtype = CT_I32, .dims_count = 2, .dims = {1, T}}},
                            .out[0] = {.data = y, .dtype = (ct_dtype)dtype, .dims_count = 3, .dims = {1, T, D}}};
            run_call("embed", &call, NULL, 3);
            for (int t = 0; t < T; t++)
                assert_memory_equal(y + (size_t)t * row, table + (size_t)tokens[t] * row, row);
            free(table);
            free(y);
        }
}

// The definition: each row's contributions summed in f32, tokens ascending, then stored or added once.
static void scatter_plainly(float *dw, const void *dy, ct_dtype dtype, const int32_t *tokens, int64_t D, int add) {
    for (int64_t v = 0; v < V; v++)
        for (int64_t j = 0; j < D; j++) {
            float sum = 0;
            for (int64_t t = 0; t < T; t++)
                if (tokens[t] == v) sum += f32_of(dy, dtype, t * D + j);
            dw[v * D + j] = add ? dw[v * D + j] + sum : sum;
        }
}
static void a_scatter_sums_each_row_in_order_and_adds_it_once(void **state) {
    (void)state;
    static int32_t tokens[T];
    for (int t = 0; t < T; t++) tokens[t] = token(t);
    for (const char *const *isa = machine_isas(); *isa; isa++)
        for (int dtype = CT_F32; dtype <= CT_BF16; dtype++)
            for (int64_t D = 1; D < 200; D += 43)
                for (int threads = 1; threads <= 4; threads++)
                    for (int mode = 0; mode < 3; mode++) { // embed_dw, embed_dw_acc, the same with first
                        void *dy = some((ct_dtype)dtype, T * D + 3, 3),
                             *skewed = (char *)dy + ct_dtype_bytes((ct_dtype)dtype) * (size_t)(threads % 3);
                        float *got = some(CT_F32, V * D, 4), *want = some(CT_F32, V * D, 4);
                        int32_t first = mode == 2;
                        ct_tensor dy_tensor = {.data = skewed, .dtype = (ct_dtype)dtype, .dims_count = 3, .dims = {1, T, D}},
                                  tokens_tensor = {.data = tokens, .dtype = CT_I32, .dims_count = 2, .dims = {1, T}};
                        ct_call call = {
                            .inputs = mode ? 4 : 2, .outputs = 1, .attrs = {V}, .out[0] = {.data = got, .dtype = CT_F32, .dims_count = 2, .dims = {V, D}}};
                        call.in[0] = mode ? call.out[0] : dy_tensor, call.in[1] = mode ? dy_tensor : tokens_tensor;
                        call.in[2] = tokens_tensor, call.in[3] = (ct_tensor){.data = &first, .dtype = CT_I32};
                        run_call(mode ? "embed_dw_acc" : "embed_dw", &call, *isa, threads);
                        scatter_plainly(want, skewed, (ct_dtype)dtype, tokens, D, mode == 1);
                        assert_memory_equal(got, want, sizeof(float) * (size_t)(V * D));
                        free(dy), free(got), free(want);
                    }
}

static void a_cache_takes_rows_at_their_slots_and_keeps_the_others(void **state) {
    (void)state;
    enum { B = 3, NEW = 2, S = 7, G = 2, D = 5, ROW = G * D };
    static const int32_t slots[B * NEW] = {0, 1, 6, 2, 3, 4};
    for (int threads = 1; threads <= 4; threads++) {
        float *cache = some(CT_F32, B * S * ROW, 1), *before = some(CT_F32, B * S * ROW, 1),
              *x = some(CT_F32, B * NEW * ROW, 2);
        ct_call call = {.inputs = 3,
                        .outputs = 1,
                        .in = {{.data = cache, .dtype = CT_F32, .dims_count = 4, .dims = {B, S, G, D}},
                               {.data = x, .dtype = CT_F32, .dims_count = 4, .dims = {B, NEW, G, D}},
                               {.data = (void *)slots, .dtype = CT_I32, .dims_count = 2, .dims = {B, NEW}}},
                        .out[0] = {.data = cache, .dtype = CT_F32, .dims_count = 4, .dims = {B, S, G, D}}};
        run_call("cache_write", &call, NULL, threads);
        for (int i = 0; i < B * NEW; i++)
            memcpy(before + (i / NEW * S + slots[i]) * ROW, x + i * ROW, sizeof(float) * ROW);
        assert_memory_equal(cache, before, sizeof(float) * B * S * ROW);
        free(cache), free(before), free(x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_up_copies_rows),
        cmocka_unit_test(a_scatter_sums_each_row_in_order_and_adds_it_once),
        cmocka_unit_test(a_cache_takes_rows_at_their_slots_and_keeps_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
