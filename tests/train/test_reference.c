// The executed plan against its own graphs run by the ops' reference loops in double: after each program, every state and every output. The
// loops start from what the plan's memory holds, so that a program's errors are its own. A program with bf16 values may be three times as
// far from the loops in double as loops are that round each value once.
#include "base/wide.h"
#include "exec/exec.h"
#include "ops/interpret.h"
#include "train/setup.h"

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

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_team *team;
    ct_exec *exec;
    double worst[2]; // f32 programs: of a tensor's largest value; bf16 programs: root mean square, as a multiple of once rounded loops'
} machine;

static void open_machine(machine *m, int tied, ct_step_options options) {
    *m = (machine){0};
    const ct_model_override sizes[] = {{"dim", 24, NULL},        {"n_layers", 3, NULL},      {"n_heads", 6, NULL},   {"n_kv_heads", 2, NULL},
                                       {"hidden_dim", 40, NULL}, {"vocab_size", 53, NULL}, {"rope_theta", 50, NULL}, {"tied", (double)tied, NULL}};
    assert_ok(ct_model_open(&m->arena, "llama3", "debugmodel", sizes, 8, &m->model));
    assert_ok(ct_step_make(&m->model, &options, &m->step));
    assert_ok(ct_team_create((ct_team_options){.threads = options.plan.threads, .first_core = -1}, &m->team));
    assert_ok(ct_exec_create(&m->step.plan, m->team, (ct_exec_options){.poison = 1}, &m->exec));
    for (int i = 0; i < m->model.parameters_count; i++) {
        ct_parameter p = m->model.parameters[i];
        if (p.init.kind == CT_INIT_TRUNCATED_NORMAL) p.init.std = 0.2, p.init.low = -0.6, p.init.high = 0.6; // so that all terms count
        ct_init_parameter(&p, i, 5, NULL, m->team, ct_exec_data(m->exec, p.name));
    }
}

static void close_machine(machine *m) {
    ct_exec_destroy(m->exec);
    ct_team_destroy(m->team);
    ct_step_deinit(&m->step);
    ct_arena_deinit(&m->arena);
}

static void *data_of(machine *m, const char *program, const char *name) {
    char *full = ct_format("%s:%s", program, name);
    void *data = ct_exec_data(m->exec, full);
    free(full);
    return data;
}

// Rows of two documents each but the first, one label in seven ignored. The i-th micro-batch of a step has other tokens.
static void feed(machine *m, const char *program, int64_t batch, int64_t seq_len, int i) {
    int32_t *tokens = data_of(m, program, "tokens"), *labels = data_of(m, program, "labels");
    int32_t *positions = data_of(m, program, "positions"), *documents = data_of(m, program, "documents");
    for (int64_t k = 0; k < batch * seq_len; k++) {
        int64_t row = k / seq_len, t = k % seq_len, begin = row ? seq_len / 2 : 0;
        tokens[k] = (int32_t)((k * k + 7 * k + 11 * i) % 53);
        labels[k] = k % 7 == 3 ? -100 : (int32_t)((3 * k + i) % 53);
        documents[k] = t >= begin;
        positions[k] = (int32_t)(t >= begin ? t - begin : t);
    }
    *(int32_t *)data_of(m, program, "first") = i == 0;
    float *inv_count = data_of(m, program, "inv_count"); // for gradients only
    int32_t *never = data_of(m, program, "false");
    if (inv_count) *inv_count = 1.0f / 64;
    if (never) *never = 0;
}

// ---- comparing ----
static double element(const void *data, ct_dtype dtype, int64_t i) {
    switch (dtype) {
    case CT_F32: return ((const float *)data)[i];
    case CT_BF16: return ct_f32_from_bf16(((const uint16_t *)data)[i]);
    case CT_F64: return ((const double *)data)[i];
    case CT_I32: return ((const int32_t *)data)[i];
    default: return (double)((const int64_t *)data)[i];
    }
}

static void *input_data(machine *m, const ct_graph *g, const ct_input *in) {
    return in->kind == CT_FEED ? data_of(m, g->name, in->name) : ct_exec_data(m->exec, in->name);
}

// Wide sums are compared as the numbers they are.
static double wide(const double *digits) {
    int64_t whole[CT_WIDE_DIGITS];
    for (int i = 0; i < CT_WIDE_DIGITS; i++) whole[i] = (int64_t)digits[i];
    return ct_wide_to_double(whole);
}

// f32: within 2e-5 of the largest value (or of 0.01: what is zero in theory, as with one key the gradient of its query, is small in floats).
static void compare(machine *m, const ct_graph *g, const char *name, const ct_type *type, const void *got, const double *wanted) {
    int64_t n = ct_type_elems(type);
    double largest = 0.01, worst = 0;
    if (type->dtype == CT_I64) {
        worst = fabs(ct_wide_to_double(got) - wide(wanted)), largest = fmax(largest, fabs(wide(wanted)));
    } else {
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(wanted[i]));
        for (int64_t i = 0; i < n; i++) {
            double difference = fabs(element(got, type->dtype, i) - wanted[i]);
            if (!(difference <= worst)) worst = difference; // NaN too
        }
    }
    if (!(worst <= 2e-5 * largest)) fail_msg("%s of %s is off by %.2e of its largest value", name, g->name, worst / largest);
    m->worst[0] = fmax(m->worst[0], worst / largest);
}

// bf16: the distance from the exact values is at most three times that of the loops and of one rounding of all values: kernels round a few more (attention its weights).
static void compare_rounded(machine *m, const ct_graph *g, const char *name, const ct_type *type, const void *got, const double *rounded,
                            const double *exact) {
    if (type->dtype == CT_I64) {
        double loss = wide(exact);
        assert_true(fabs(ct_wide_to_double(got) - loss) <= 3 * fabs(wide(rounded) - loss) + 2e-3 * loss);
        return;
    }
    double ours = 0, loops = 0, size = 0;
    for (int64_t i = 0; i < ct_type_elems(type); i++) {
        double a = element(got, type->dtype, i) - exact[i], b = rounded[i] - exact[i];
        ours += a * a, loops += b * b, size += exact[i] * exact[i];
    }
    double limit = sqrt(loops) + 0x1p-9 * (sqrt(size) + 0.01);
    if (!(sqrt(ours) <= 3 * limit)) fail_msg("%s of %s is off by %.2e, rounding loops by %.2e", name, g->name, sqrt(ours), sqrt(loops));
    m->worst[1] = fmax(m->worst[1], sqrt(ours) / limit);
}

static int has_bf16(const ct_graph *g) {
    for (int v = 0; v < g->values_count; v++)
        if (g->values[v].type.dtype == CT_BF16) return 1;
    return 0;
}

static void run_loops(machine *m, const ct_graph *g, ct_reference_values *values, int rounded) {
    ct_reference_init(values, g);
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_type *type = &g->values[g->inputs[i].value].type;
        const void *data = input_data(m, g, &g->inputs[i]);
        for (int64_t k = 0; k < ct_type_elems(type); k++) values->values[g->inputs[i].value][k] = element(data, type->dtype, k);
    }
    ct_reference_run(g, values, rounded);
}

static void run_both(machine *m, ct_program which) {
    const ct_graph *g = m->step.plan.programs[which].graph;
    int bf16 = has_bf16(g);
    ct_reference_values exact, rounded = {0};
    run_loops(m, g, &exact, 0);
    if (bf16) run_loops(m, g, &rounded, 1);
    ct_exec_run(m->exec, which);
    for (int i = 0; i < g->inputs_count + g->outputs_count; i++) {
        const ct_input *in = i < g->inputs_count ? &g->inputs[i] : NULL;
        const ct_output *out = in ? NULL : &g->outputs[i - g->inputs_count];
        int value = out ? out->value : in->update >= 0 ? in->update : in->value;
        const char *name = in ? in->name : out->name;
        const void *got = in ? input_data(m, g, in) : data_of(m, g->name, name);
        if (bf16) compare_rounded(m, g, name, &g->values[value].type, got, rounded.values[value], exact.values[value]);
        else compare(m, g, name, &g->values[value].type, got, exact.values[value]);
    }
    ct_reference_deinit(&exact);
    if (bf16) ct_reference_deinit(&rounded);
}

// Two steps of two micro-batches, then validation.
static void check_step(int tied, ct_step_options o) {
    machine m;
    open_machine(&m, tied, o);
    for (int step = 1; step <= 2; step++) {
        double *scalars = data_of(&m, "update", "scalars");
        run_both(&m, CT_PROGRAM_PROLOGUE);
        for (int i = 0; i < 2; i++) {
            feed(&m, "micro", o.batch, o.seq_len, i);
            run_both(&m, CT_PROGRAM_MICRO);
        }
        if (data_of(&m, "update", "false")) *(int32_t *)data_of(&m, "update", "false") = 0;
        scalars[0] = 1e-2, scalars[1] = step;
        run_both(&m, CT_PROGRAM_UPDATE);
    }
    if (o.eval_batch) {
        feed(&m, "eval", o.eval_batch, o.eval_seq_len, 0);
        run_both(&m, CT_PROGRAM_PROLOGUE);
        run_both(&m, CT_PROGRAM_EVAL);
    }
    printf("%s, %s, batch %lld × %lld, recomputation %d, loss chunks of %lld, %d threads: f32 within %.1e, bf16 %.2f of the loops\n", ct_dtype_name(o.compute),
           tied ? "tied" : "untied", (long long)o.batch, (long long)o.seq_len, (int)o.recompute.mode, (long long)o.loss_chunk_tokens,
           o.plan.threads, m.worst[0], m.worst[1]);
    close_machine(&m);
}

static void check_all(ct_dtype compute) {
    static const ct_recompute_options modes[] = {{.mode = CT_RECOMPUTE_NONE, .every = 1}, {.mode = CT_RECOMPUTE_FULL, .every = 1}, {.mode = CT_RECOMPUTE_EVERY, .every = 2}, {.mode = CT_RECOMPUTE_OP, .every = 1}};
    static const int64_t shapes[][2] = {{1, 1}, {2, 16}, {3, 33}}, chunks[] = {0, 5, 40};
    for (int i = 0; i < 12; i++) { // every mode with every shape; chunks, heads and teams go round beside them
        ct_step_options o = {.batch = shapes[i % 3][0], .seq_len = shapes[i % 3][1], .eval_batch = i % 2 ? 2 : 0, .eval_seq_len = 9,
                             .compute = compute, .recompute = modes[i % 4], .loss_chunk_tokens = chunks[(i + i / 3) % 3],
                             .max_norm = i % 5 ? 0.5 : 0, .plan = {.threads = 1 + i % 3}};
        check_step(i / 3 % 2, o);
    }
}

static void fp32_programs_do_what_their_graphs_say(void **state) {
    (void)state;
    check_all(CT_F32);
}

static void bf16_programs_do_what_their_graphs_say(void **state) {
    (void)state;
    check_all(CT_BF16);
}

static void generation_does_what_its_graph_says(void **state) {
    (void)state;
    for (int compute = 0; compute < 2; compute++) {
        machine m;
        enum { CACHE = 7 };
        open_machine(&m, compute, (ct_step_options){.cache_len = CACHE, .compute = compute ? CT_BF16 : CT_F32, .plan = {.threads = 2}});
        int32_t *positions = data_of(&m, "generate", "key_positions"), *documents = data_of(&m, "generate", "key_documents");
        for (int i = 0; i < CACHE; i++) positions[i] = i, documents[i] = 0;
        run_both(&m, CT_PROGRAM_PROLOGUE);
        for (int i = 0; i < CACHE; i++) {
            *(int32_t *)data_of(&m, "generate", "tokens") = 17 * i % 53;
            *(int32_t *)data_of(&m, "generate", "positions") = i;
            *(int32_t *)data_of(&m, "generate", "slots") = i;
            *(int32_t *)data_of(&m, "generate", "documents") = 0;
            run_both(&m, CT_PROGRAM_GENERATE);
        }
        printf("generation: f32 within %.1e, bf16 %.2f of the loops\n", m.worst[0], m.worst[1]);
        close_machine(&m);
    }
}

// ---- the update by its formulas ----
static double *input_of(const ct_graph *g, const ct_reference_values *values, const char *name, int updated) {
    int i = ct_graph_find_input(g, name);
    if (i < 0) return NULL;
    return values->values[updated ? g->inputs[i].update : g->inputs[i].value];
}

static void draw_inputs(const ct_graph *g, ct_reference_values *values) {
    uint64_t h = 12345;
    for (int i = 0; i < g->inputs_count; i++) {
        if (g->inputs[i].kind == CT_FEED || g->inputs[i].kind == CT_STATE) continue;
        double *x = values->values[g->inputs[i].value];
        for (int64_t k = 0; k < ct_type_elems(&g->values[g->inputs[i].value].type); k++) {
            h = h * 6364136223846793005ull + 1442695040888963407ull;
            x[k] = ((double)(h >> 11) * 0x1p-52 - 1) * 0.5;
            if (strstr(g->inputs[i].name, "exp_avg_sq")) x[k] *= x[k];
        }
    }
}

// AdamW (arXiv 1711.05101, algorithm 2, with the rate on the decay as PyTorch has it) on the clipped sum of a parameter's accumulators.
static void check_parameter(const ct_graph *g, const ct_reference_values *v, const ct_parameter *p, double clip, double lr, int step) {
    ct_arena arena = {0};
    const char *second = ct_format("%s.grad.1", p->name), *first = ct_format("%s.grad", p->name);
    const char *m_name = ct_moment_name(&arena, p->name, 0), *v_name = ct_moment_name(&arena, p->name, 1);
    const double *use[2] = {input_of(g, v, first, 0), input_of(g, v, second, 0)};
    for (int64_t i = 0; i < ct_type_elems(&p->type); i++) {
        double gradient = clip * (use[0][i] + (use[1] ? use[1][i] : 0));
        double m = 0.9 * input_of(g, v, m_name, 0)[i] + 0.1 * gradient, s = 0.95 * input_of(g, v, v_name, 0)[i] + 0.05 * gradient * gradient;
        double x = input_of(g, v, p->name, 0)[i] * (1 - lr * 0.1);
        x -= lr * (m / (1 - pow(0.9, step))) / (sqrt(s / (1 - pow(0.95, step))) + 1e-8);
        assert_float_equal(input_of(g, v, m_name, 1)[i], m, 1e-12);
        assert_float_equal(input_of(g, v, v_name, 1)[i], s, 1e-12);
        assert_float_equal(input_of(g, v, p->name, 1)[i], x, 1e-9);
    }
    free((char *)first), free((char *)second);
    ct_arena_deinit(&arena);
}

static void the_update_adds_uses_clips_once_and_steps_by_the_formula(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        machine m;
        ct_reference_values v;
        open_machine(&m, tied, (ct_step_options){.batch = 1, .seq_len = 4, .compute = CT_F32, .max_norm = 0.5, .plan = {.threads = 1}});
        const ct_graph *g = &m.step.programs[CT_PROGRAM_UPDATE];
        ct_reference_init(&v, g);
        draw_inputs(g, &v);
        double *scalars = input_of(g, &v, "scalars", 0), squares = 0;
        scalars[0] = 0.02, scalars[1] = 3;
        for (int i = 0; i < m.model.parameters_count; i++) {
            const ct_parameter *p = &m.model.parameters[i];
            char *first = ct_format("%s.grad", p->name), *second = ct_format("%s.grad.1", p->name);
            const double *a = input_of(g, &v, first, 0), *b = input_of(g, &v, second, 0);
            assert_int_equal(b != NULL, tied && i == 0);
            for (int64_t k = 0; k < ct_type_elems(&p->type); k++) squares += (a[k] + (b ? b[k] : 0)) * (a[k] + (b ? b[k] : 0));
            free(first), free(second);
        }
        ct_reference_run(g, &v, 0);
        double norm = v.values[g->outputs[ct_graph_find_output(g, "grad_norm")].value][0];
        assert_float_equal(norm, sqrt(squares), 1e-9 * norm);
        for (int i = 0; i < m.model.parameters_count; i++)
            check_parameter(g, &v, &m.model.parameters[i], 0.5 / (sqrt(squares) + 1e-6), 0.02, 3);
        ct_reference_deinit(&v);
        close_machine(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_programs_do_what_their_graphs_say),
        cmocka_unit_test(bf16_programs_do_what_their_graphs_say),
        cmocka_unit_test(the_update_adds_uses_clips_once_and_steps_by_the_formula),
        cmocka_unit_test(generation_does_what_its_graph_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
