// The same bits: for 1, 2 and 3 threads; for every recomputation policy; for stopping and resuming anywhere; for poisoned memory. Losses, gradient
// norms and every weight and moment are compared, in fp32 and in bf16 compute.
#include "case.h"
#include "base/file.h"

typedef struct {
    int64_t steps;
    double loss[24], grad_norm[24];
    int tensors;
    uint64_t sums[512]; // of each parameter and moment
} trace;

static uint64_t sum_of(const unsigned char *p, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static void record_state(titan_case *c, trace *t) {
    const ct_model *model = ct_trainer_model(c->trainer);
    t->tensors = 0;
    for (int i = 0; i < model->parameters_count; i++) {
        const ct_parameter *p = &model->parameters[i];
        const char *names[] = {p->name, ct_moment_name(&c->arena, p->name, 0), ct_moment_name(&c->arena, p->name, 1)};
        for (int k = 0; k < 3; k++)
            t->sums[t->tensors++] = sum_of(ct_exec_data(ct_trainer_exec(c->trainer), names[k]), ct_type_bytes(&p->type));
    }
}

static void run_steps(titan_case *c, int64_t until, trace *t) {
    while (ct_trainer_position(c->trainer) < until) {
        ct_step_report r;
        assert_ok(ct_trainer_step(c->trainer, &r));
        t->loss[r.step - 1] = r.loss;
        t->grad_norm[r.step - 1] = r.grad_norm;
    }
    t->steps = until;
}

static trace trace_of(const char *name, int64_t steps, const char *const *overrides) {
    titan_case c;
    trace t = {0};
    case_open(&c, name, overrides, NULL);
    run_steps(&c, steps, &t);
    record_state(&c, &t);
    case_close(&c, 0);
    return t;
}

static void assert_same(const trace *a, const trace *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->grad_norm, b->grad_norm, sizeof a->grad_norm);
    assert_int_equal(a->tensors, b->tensors);
    assert_memory_equal(a->sums, b->sums, sizeof a->sums);
}

static const char *const dtypes[] = {"float32", "bfloat16"};

static void threads_change_no_bit(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        trace one = {0};
        for (int threads = 1; threads <= 3; threads++) {
            const char count[] = {(char)('0' + threads), 0};
            const char *o[] = {"--training.threads", count, "--training.mixed_precision_param", dtypes[d], NULL};
            trace t = trace_of("gqa", 5, o);
            if (threads == 1) one = t;
            else assert_same(&one, &t);
        }
    }
}

static void recomputation_changes_no_bit(void **state) {
    (void)state;
    static const char *const policies[][2] = {{"none", "op"}, {"full", "op"}, {"selective", "op"}, {"selective", "1"}, {"selective", "2"}};
    for (int d = 0; d < 2; d++) {
        trace none = {0};
        for (int i = 0; i < 5; i++) {
            const char *o[] = {"--activation_checkpoint.mode", policies[i][0], "--activation_checkpoint.selective_ac_option",
                               policies[i][1], "--training.mixed_precision_param", dtypes[d], NULL};
            trace t = trace_of("gqa", 5, o);
            if (i == 0) none = t;
            else assert_same(&none, &t);
        }
    }
}

static void poisoned_memory_changes_no_bit(void **state) {
    (void)state;
    const char *poison[] = {"--debug.poison", NULL};
    trace plain = trace_of("accumulate", 4, NULL), poisoned = trace_of("accumulate", 4, poison);
    assert_same(&plain, &poisoned);
}

// Stops behind every step in turn, saves, and goes on in a new trainer.
static void resume_case(const char *name, int64_t steps, const char *async_mode) {
    const char *o[] = {"--checkpoint.async_mode", async_mode, NULL};
    trace whole = trace_of(name, steps, o);
    for (int64_t stop = 1; stop < steps; stop++) {
        titan_case c;
        trace t = {0};
        case_open(&c, name, o, NULL);
        run_steps(&c, stop, &t);
        assert_ok(ct_trainer_save(c.trainer, 0));
        char *dump = ct_strdup(c.dump);
        case_close(&c, 1);
        case_open(&c, name, o, dump);
        assert_int_equal(ct_trainer_position(c.trainer), stop);
        run_steps(&c, steps, &t);
        record_state(&c, &t);
        assert_same(&whole, &t);
        case_close(&c, 0);
        free(dump);
    }
}

static void resuming_changes_no_bit(void **state) {
    (void)state;
    resume_case("base", 6, "disabled");
    resume_case("accumulate", 9, "disabled"); // past the end of its text: a new pass
}

static void resuming_from_a_save_in_the_background_changes_no_bit(void **state) {
    (void)state;
    resume_case("gqa", 4, "async");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(poisoned_memory_changes_no_bit),
        cmocka_unit_test(resuming_changes_no_bit),
        cmocka_unit_test(resuming_from_a_save_in_the_background_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
