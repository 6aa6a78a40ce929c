// fp32 forward, loss and every gradient of a 2-layer Llama against PyTorch's float64 (rounded once): 1e-5 of a tensor's largest value, with a
// causal mask and with documents kept apart. One step through graph, autodiff, passes, plan and executor.
#include "case.h"
#include "base/wide.h"

#include <math.h>
#include <unistd.h>

static const char folder[] = "tests/train/fixtures/llama2layer";

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_team *team;
    ct_exec *exec;
} small_llama;

static void load(const char *file, const char *name, ct_dtype dtype, void *data, int64_t elems) {
    char *path = ct_format("%s/%s.safetensors", folder, file);
    load_array(path, name, dtype, data, elems);
    free(path);
}

static void open_small(small_llama *s, ct_step_options options) {
    *s = (small_llama){0};
    const ct_model_override sizes[] = {
        {"dim", 32, NULL},        {"n_layers", 2, NULL},   {"n_heads", 4, NULL},           {"n_kv_heads", 2, NULL},
        {"hidden_dim", 88, NULL}, {"vocab_size", 96, NULL}, {"norm_eps", 1e-3, NULL},      {"rope_theta", 1000, NULL},
        {"rope_scaling_factor", 4, NULL}, {"rope_low_freq_factor", 1, NULL}, {"rope_high_freq_factor", 4, NULL},
        {"rope_original_max_seq_len", 64, NULL}};
    assert_ok(ct_model_open(&s->arena, "llama3", "debugmodel", sizes, sizeof sizes / sizeof *sizes, &s->model));
    assert_ok(ct_step_make(&s->model, &options, &s->step));
    assert_ok(ct_team_create((ct_team_options){.threads = options.plan.threads, .first_core = -1}, &s->team));
    assert_ok(ct_exec_create(&s->step.plan, s->team, (ct_exec_options){.poison = 1}, &s->exec));
    for (int i = 0; i < s->model.parameters_count; i++) {
        const ct_parameter *p = &s->model.parameters[i];
        load("weights", p->name, CT_F32, ct_exec_data(s->exec, p->name), ct_type_elems(&p->type));
    }
}

static void close_small(small_llama *s) {
    ct_exec_destroy(s->exec);
    ct_team_destroy(s->team);
    ct_step_deinit(&s->step);
    ct_arena_deinit(&s->arena);
}

// Difference over the largest expected value.
static double distance(const float *got, const float *wanted, int64_t n) {
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(got[i])) return INFINITY;
        worst = fmax(worst, fabs((double)got[i] - wanted[i]));
        largest = fmax(largest, fabs(wanted[i]));
    }
    return largest > 0 ? worst / largest : worst;
}

static void feed(small_llama *s, int block_causal) {
    int32_t *positions = ct_exec_data(s->exec, "micro:positions"), *documents = ct_exec_data(s->exec, "micro:documents");
    load("inputs", "tokens", CT_I32, ct_exec_data(s->exec, "micro:tokens"), 48);
    load("inputs", "labels", CT_I32, ct_exec_data(s->exec, "micro:labels"), 48);
    for (int i = 0; i < 48; i++) positions[i] = i % 24, documents[i] = 0;
    if (block_causal) {
        load("inputs", "positions", CT_I32, positions, 48);
        load("inputs", "documents", CT_I32, documents, 48);
    }
    *(int32_t *)ct_exec_data(s->exec, "micro:first") = 1;
    int32_t *never = ct_exec_data(s->exec, "micro:false"); // only where the loss has more chunks than one
    if (never) *never = 0;
    *(float *)ct_exec_data(s->exec, "micro:inv_count") = 1.0f / 45; // three of the 48 labels are -100
}

static double expected_loss(int block_causal) {
    char *path = ct_format("%s/expected.json", folder), *text = NULL;
    FILE *f = fopen(path, "r");
    text = ct_calloc(1, 4096);
    assert_true(f && fread(text, 1, 4095, f) > 0);
    fclose(f);
    const char *at = strstr(text, "\"loss\"");
    at = strstr(at, block_causal ? "\"block_causal\": " : "\"causal\": ");
    double loss = strtod(strchr(at, ':') + 1, NULL);
    free(text);
    free(path);
    return loss;
}

static void check_gradients(int block_causal, ct_step_options options) {
    small_llama s;
    open_small(&s, options);
    feed(&s, block_causal);
    ct_exec_run(s.exec, CT_PROGRAM_PROLOGUE);
    ct_exec_run(s.exec, CT_PROGRAM_MICRO);
    double loss = ct_wide_to_double(ct_exec_data(s.exec, "loss_sum")) / 45, wanted = expected_loss(block_causal), worst = 0;
    assert_true(fabs(loss - wanted) <= 1e-5 * wanted);
    for (int i = 0; i < s.model.parameters_count; i++) {
        const ct_parameter *p = &s.model.parameters[i];
        int64_t n = ct_type_elems(&p->type);
        float *expected = ct_malloc(sizeof(float) * (size_t)n);
        char *name = ct_format("grad.%s", p->name);
        load(block_causal ? "block_causal" : "causal", name, CT_F32, expected, n);
        char *state = ct_format("%s.grad", p->name);
        double d = distance(ct_exec_data(s.exec, state), expected, n);
        free(state);
        if (!(d <= 1e-5)) fail_msg("gradient of %s is off by %.2e of its largest value", p->name, d);
        worst = fmax(worst, d);
        free(name);
        free(expected);
    }
    printf("loss %.8f (PyTorch %.8f), worst gradient %.1e\n", loss, wanted, worst);
    close_small(&s);
}

static ct_step_options plain(void) {
    return (ct_step_options){.batch = 2, .seq_len = 24, .compute = CT_F32, .max_norm = 1, .plan = {.threads = 2}};
}

static void every_gradient_is_pytorchs(void **state) {
    (void)state;
    check_gradients(0, plain());
}

static void every_gradient_is_pytorchs_with_documents_apart(void **state) {
    (void)state;
    check_gradients(1, plain());
}

static void every_gradient_is_pytorchs_with_small_loss_chunks_and_recomputation(void **state) {
    (void)state;
    ct_step_options o = plain();
    o.loss_chunk_tokens = 7;
    o.recompute.mode = CT_RECOMPUTE_FULL;
    check_gradients(1, o);
}

static void every_gradient_is_pytorchs_on_every_instruction_set(void **state) {
    (void)state;
    static const char *const isas[] = {"generic", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        ct_step_options o = plain();
        o.plan.isa_limit = isas[i];
        check_gradients(0, o);
    }
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_is_pytorchs),
        cmocka_unit_test(every_gradient_is_pytorchs_with_documents_apart),
        cmocka_unit_test(every_gradient_is_pytorchs_with_small_loss_chunks_and_recomputation),
        cmocka_unit_test(every_gradient_is_pytorchs_on_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
