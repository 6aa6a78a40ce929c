// Numbers that are not finite stop a run with the step and the module, weights as before the step; what is left out when loading starts anew;
// Adam against its formula; steps whose every label is ignored.
#include "case.h"
#include "base/wide.h"
#include "models/model.h"

#include <math.h>

// The bytes of every parameter and moment.
static char *snapshot(titan_case *c, size_t *out_size) {
    ct_string all = {0};
    const ct_model *model = ct_trainer_model(c->trainer);
    for (int i = 0; i < model->parameters_count; i++) {
        const ct_parameter *p = &model->parameters[i];
        const char *names[] = {p->name, ct_moment_name(&c->arena, p->name, 0), ct_moment_name(&c->arena, p->name, 1)};
        for (int k = 0; k < 3; k++)
            ct_string_add_bytes(&all, ct_exec_data(ct_trainer_exec(c->trainer), names[k]), (size_t)ct_type_elems(&p->type) * sizeof(float));
    }
    *out_size = all.length;
    return all.text;
}

static float *weight(titan_case *c, const char *name) {
    float *w = ct_exec_data(ct_trainer_exec(c->trainer), name);
    assert_non_null(w);
    return w;
}

static void assert_nonfinite(titan_case *c, const char *step, const char *module) {
    ct_step_report report;
    size_t before_size, after_size;
    char *before = snapshot(c, &before_size);
    int64_t position = ct_trainer_position(c->trainer);
    ct_status status = ct_trainer_step(c->trainer, &report);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_NONFINITE);
    const char *text = ct_error_text(status);
    if (!strstr(text, step) || !strstr(text, module)) fail_msg("wanted %s, %s: %s", step, module, text);
    char *after = snapshot(c, &after_size);
    assert_int_equal(before_size, after_size);
    assert_memory_equal(before, after, before_size);
    assert_int_equal(ct_trainer_position(c->trainer), position);
    free(before), free(after);
}

static void a_weight_that_is_not_finite_names_its_module(void **state) {
    (void)state;
    static const struct {
        const char *parameter, *module;
        float value;
    } bad[] = {{"layers.0.attention.wq.weight", "layers.0.attention.wq", NAN},  {"layers.1.feed_forward.w2.weight", "layers.1.feed_forward.w2", INFINITY},
               {"layers.1.attention_norm.weight", "layers.1.attention_norm", -INFINITY}, {"norm.weight", "norm", NAN},
               {"output.weight", "output", INFINITY}};
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            titan_case c;
            case_open(&c, "base", (const char *const[]){"--training.mixed_precision_param", dtypes[d], NULL}, NULL);
            ct_step_report report;
            assert_ok(ct_trainer_step(c.trainer, &report));
            float *w = weight(&c, bad[i].parameter), kept = w[7];
            w[7] = bad[i].value;
            assert_nonfinite(&c, "step 2: ", bad[i].module);
            w[7] = kept;
            case_close(&c, 0);
        }
}

// Weights so large that a product overflows, though each is finite.
static void a_rate_without_measure_ends_in_one_message(void **state) {
    (void)state;
    titan_case c;
    case_open(&c, "base", (const char *const[]){"--optimizer.lr", "1e30", NULL}, NULL);
    ct_step_report report;
    ct_status status = CT_OK;
    int64_t steps = 0;
    while (!status && steps < 20) status = ct_trainer_step(c.trainer, &report), steps++;
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_NONFINITE);
    char *step = ct_format("step %lld: ", (long long)steps);
    assert_non_null(strstr(ct_error_text(status), step));
    assert_non_null(strstr(ct_error_text(status), "the first to produce a value that is not finite is "));
    printf("%s\n", ct_error_text(status));
    free(step);
    case_close(&c, 0);
}

// Adam (Kingma & Ba 2015) adds the decay to the gradient; both, from the formulas, for the first step, where m = (1-b1) g and v = (1-b2) g²
// make the step lr · g / (|g| + eps) whatever the betas. The gradient is the one that AdamW without decay shows: (p0 - p1) has its sign.
static void adam_adds_the_decay_to_the_gradient(void **state) {
    (void)state;
    static const char *const names[] = {"AdamW", "Adam"};
    enum { N = 512 * 48 };
    static float start[N], m[2][N], end[2][N];
    for (int i = 0; i < 2; i++) {
        titan_case c;
        case_open(&c, "base", (const char *const[]){"--optimizer.name", names[i], "--optimizer.weight_decay", "0.5", "--training.max_norm", "inf", NULL}, NULL);
        memcpy(start, weight(&c, "output.weight"), sizeof start);
        ct_step_report report;
        assert_ok(ct_trainer_step(c.trainer, &report));
        memcpy(m[i], weight(&c, "optimizer.output.weight.exp_avg"), sizeof m[i]);
        memcpy(end[i], weight(&c, "output.weight"), sizeof end[i]);
        double worst = 0, b1 = 0.9, lr = report.lr, wd = 0.5, eps = 1e-8;
        for (int k = 0; k < N; k++) {
            double g = m[0][k] / (1 - b1) + (i ? wd * start[k] : 0); // the gradient, from AdamW's run
            double p = i ? start[k] - lr * g / (fabs(g) + eps) : start[k] * (1 - lr * wd) - lr * g / (fabs(g) + eps);
            worst = fmax(worst, fabs(m[i][k] - (1 - b1) * g));
            if (fabs(g) > 1e-6) worst = fmax(worst, fabs(end[i][k] - p));
        }
        printf("%s: within %.1e of the formula\n", names[i], worst);
        assert_true(worst < 2e-6);
        case_close(&c, 0);
    }
    assert_memory_not_equal(end[0], end[1], sizeof end[0]);
}

// A micro-batch whose every label is ignored: no loss, no gradient, and an update that leaves all finite.
static void labels_that_are_all_ignored_are_harmless(void **state) {
    (void)state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int d = 0; d < 2; d++) {
        titan_case c;
        case_open(&c, "base", (const char *const[]){"--training.mixed_precision_param", dtypes[d], "--debug.poison", NULL}, NULL);
        ct_step_report report;
        assert_ok(ct_trainer_step(c.trainer, &report));
        ct_exec *exec = ct_trainer_exec(c.trainer);
        int32_t *labels = ct_exec_data(exec, "micro:labels");
        for (int64_t i = 0; i < c.batch * c.seq_len; i++) labels[i] = -100;
        *(float *)ct_exec_data(exec, "micro:inv_count") = 0;
        *(int32_t *)ct_exec_data(exec, "micro:first") = 1;
        ct_exec_run(exec, CT_PROGRAM_MICRO);
        assert_true(ct_wide_to_double(ct_exec_data(exec, "loss_sum")) == 0);
        ct_exec_run(exec, CT_PROGRAM_UPDATE);
        assert_true(*(const float *)ct_exec_data(exec, "update:grad_norm") == 0);
        size_t size;
        char *all = snapshot(&c, &size);
        for (size_t i = 0; i < size / sizeof(float); i++) assert_true(isfinite(((const float *)(const void *)all)[i]));
        free(all);
        assert_ok(ct_trainer_step(c.trainer, &report));
        assert_true(isfinite(report.loss));
        case_close(&c, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_that_is_not_finite_names_its_module),
        cmocka_unit_test(a_rate_without_measure_ends_in_one_message),
        cmocka_unit_test(adam_adds_the_decay_to_the_gradient),
        cmocka_unit_test(labels_that_are_all_ignored_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
