// Whole models: gradients of small Llamas, interpreted in double, against finite differences of their loss, element by element; passes change
// no gradient.
#include "autodiff/autodiff.h"
#include "models/model.h"
#include "ops/interpret.h"
#include "passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

enum { B = 3, T = 5, V = 7, ROWS = B * T };

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_graph forward, joint;
} small;

static void open_small(small *s, int tied) {
    *s = (small){0};
    const ct_model_override sizes[] = {{"dim", 8, NULL},        {"n_layers", 2, NULL},   {"n_heads", 4, NULL}, {"n_kv_heads", 2, NULL},
                                       {"hidden_dim", 6, NULL}, {"vocab_size", V, NULL}, {"norm_eps", 1e-2, NULL},
                                       {"rope_theta", 10, NULL}, {"tied", (double)tied, NULL}};
    ct_build_options o = {.batch = B, .seq_len = T, .kind = CT_BUILD_LOSS};
    assert_ok(ct_model_open(&s->arena, "llama3", "debugmodel", sizes, sizeof sizes / sizeof *sizes, &s->model));
    ct_graph_init(&s->forward, "eval");
    ct_graph_init(&s->joint, "micro");
    assert_ok(ct_model_build(&s->model, &s->forward, o));
    assert_ok(ct_model_build(&s->model, &s->joint, o));
    assert_ok(ct_autodiff_apply(&s->joint, "token_loss"));
    assert_ok(ct_graph_verify(&s->joint));
}

static void close_small(small *s) {
    ct_graph_deinit(&s->forward);
    ct_graph_deinit(&s->joint);
    ct_arena_deinit(&s->arena);
}

// A number in [-1, 1) for a name and an index.
static double noise(const char *name, int64_t i) {
    uint64_t h = 1469598103934665603ull + (uint64_t)i * 0x9E3779B97F4A7C15ull;
    for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211ull;
    h ^= h >> 31, h *= 0xBF58476D1CE4E5B9ull, h ^= h >> 29;
    return (double)(h >> 11) * 0x1p-52 - 1;
}

static double *array(const ct_graph *g, ct_reference_values *values, const char *name) {
    int input = ct_graph_find_input(g, name);
    return input < 0 ? NULL : values->values[g->inputs[input].value];
}

// Two documents in the second row, two labels ignored, weights of order 1 so that every term counts.
static void fill(const ct_graph *g, ct_reference_values *values) {
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_input *in = &g->inputs[i];
        int64_t n = ct_type_elems(&g->values[in->value].type);
        for (int64_t k = 0; in->kind == CT_PARAMETER && k < n; k++) values->values[in->value][k] = 0.8 * noise(in->name, k) + 0.1;
    }
    for (int r = 0; r < ROWS; r++) {
        array(g, values, "tokens")[r] = (r * 5 + 3) % V;
        array(g, values, "labels")[r] = r % 6 == 4 ? -100 : (r * 3 + 1) % V;
        array(g, values, "documents")[r] = r == 7 || r == 8 || r == 9;
        array(g, values, "positions")[r] = r == 7 || r == 8 || r == 9 ? r - 7 : r % T;
    }
    array(g, values, "inv_count")[0] = 1.0 / 8;
    double *first = array(g, values, "first");
    if (first) first[0] = 1;
}

static double loss_of(const ct_graph *g, ct_reference_values *values) {
    ct_reference_run(g, values, 0);
    double sum = 0;
    const double *loss = values->values[g->outputs[ct_graph_find_output(g, "token_loss")].value];
    for (int r = 0; r < ROWS; r++) sum += loss[r];
    return sum / 8;
}

// All accumulators of a parameter, added.
static void gradient_of(const ct_graph *g, const ct_reference_values *values, const char *parameter, int64_t n, double *out, int *out_uses) {
    ct_arena arena = {0};
    memset(out, 0, sizeof(double) * (size_t)n);
    for (*out_uses = 0;; ++*out_uses) {
        int input = ct_graph_find_input(g, ct_gradient_name(&arena, parameter, *out_uses));
        if (input < 0) break;
        for (int64_t i = 0; i < n; i++) out[i] += values->values[g->inputs[input].update][i];
    }
    ct_arena_deinit(&arena);
}

// Fourth-order central differences of every element.
static void check_differences(int tied) {
    small s;
    ct_reference_values f, j;
    open_small(&s, tied);
    ct_reference_init(&f, &s.forward);
    ct_reference_init(&j, &s.joint);
    fill(&s.forward, &f);
    fill(&s.joint, &j);
    assert_true(loss_of(&s.forward, &f) == loss_of(&s.joint, &j));
    double worst = 0, h = 1e-3;
    for (int p = 0; p < s.model.parameters_count; p++) {
        const ct_parameter *parameter = &s.model.parameters[p];
        int64_t n = ct_type_elems(&parameter->type);
        double *x = array(&s.forward, &f, parameter->name), *gradient = ct_malloc(sizeof(double) * (size_t)n), largest = 0;
        int uses;
        gradient_of(&s.joint, &j, parameter->name, n, gradient, &uses);
        assert_int_equal(uses, tied && p == 0 ? 2 : 1);
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
        assert_true(largest > 1e-4); // of weights of order 1: it depends on it
        for (int64_t i = 0; i < n; i++) {
            static const double at[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
            double slope = 0, saved = x[i];
            for (int k = 0; k < 4; k++) x[i] = saved + at[k] * h, slope += factor[k] * loss_of(&s.forward, &f) / (12 * h);
            x[i] = saved;
            double error = fabs(slope - gradient[i]) / largest;
            if (!(error <= 1e-6)) fail_msg("%s[%lld]: gradient %g, differences %g", parameter->name, (long long)i, gradient[i], slope);
            worst = fmax(worst, error);
        }
        free(gradient);
    }
    printf("%s: %lld elements, worst error %.1e of a tensor's largest\n", tied ? "tied" : "untied",
           (long long)ct_model_parameters(&s.model), worst);
    ct_reference_deinit(&f);
    ct_reference_deinit(&j);
    close_small(&s);
}

static void every_gradient_of_a_llama_is_its_losss_slope(void **state) {
    (void)state;
    check_differences(0);
}

static void every_gradient_of_a_tied_llama_is_its_losss_slope(void **state) {
    (void)state;
    check_differences(1);
}

// ---- passes ----
static void passed(const ct_graph *from, ct_recompute_options recompute, int64_t chunk, ct_graph *to) {
    ct_graph a, b;
    assert_ok(ct_pass_expand_loss(from, chunk, &a));
    assert_ok(ct_pass_recompute(&a, recompute, &b));
    ct_graph_deinit(&a);
    assert_ok(ct_pass_fuse_accumulate(&b, &a));
    ct_graph_deinit(&b);
    assert_ok(ct_pass_prune(&a, to));
    ct_graph_deinit(&a);
    assert_ok(ct_graph_verify(to));
}

// Sums in another order may differ by roundings of double.
static void compare_gradients(const small *s, const ct_reference_values *j, const ct_graph *g, const ct_reference_values *values) {
    for (int p = 0; p < s->model.parameters_count; p++) {
        int64_t n = ct_type_elems(&s->model.parameters[p].type);
        double *a = ct_malloc(sizeof(double) * (size_t)n), *b = ct_malloc(sizeof(double) * (size_t)n), largest = 0;
        int uses, same;
        gradient_of(&s->joint, j, s->model.parameters[p].name, n, a, &uses);
        gradient_of(g, values, s->model.parameters[p].name, n, b, &same);
        assert_int_equal(uses, same);
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(a[i]));
        for (int64_t i = 0; i < n; i++)
            if (!(fabs(a[i] - b[i]) <= 1e-12 * largest)) fail_msg("%s[%lld]: %g, before the passes %g", s->model.parameters[p].name, (long long)i, b[i], a[i]);
        free(a), free(b);
    }
}

static void no_pass_changes_a_gradient(void **state) {
    (void)state;
    static const ct_recompute_options modes[] = {{.mode = CT_RECOMPUTE_NONE, .every = 1}, {.mode = CT_RECOMPUTE_FULL, .every = 1}, {.mode = CT_RECOMPUTE_EVERY, .every = 2}, {.mode = CT_RECOMPUTE_OP, .every = 1}};
    static const int64_t chunks[] = {1, 3, 5, 10, 1000}; // parts of a row, one row, two rows and one, all
    for (int tied = 0; tied < 2; tied++) {
        small s;
        ct_reference_values j;
        open_small(&s, tied);
        ct_reference_init(&j, &s.joint);
        fill(&s.joint, &j);
        ct_reference_run(&s.joint, &j, 0);
        for (int m = 0; m < 4; m++)
            for (int c = 0; c < 5; c++) {
                ct_graph g;
                ct_reference_values values;
                passed(&s.joint, modes[m], chunks[c], &g);
                ct_reference_init(&values, &g);
                fill(&g, &values);
                ct_reference_run(&g, &values, 0);
                compare_gradients(&s, &j, &g, &values);
                ct_reference_deinit(&values);
                ct_graph_deinit(&g);
            }
        ct_reference_deinit(&j);
        close_small(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_of_a_llama_is_its_losss_slope),
        cmocka_unit_test(every_gradient_of_a_tied_llama_is_its_losss_slope),
        cmocka_unit_test(no_pass_changes_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
