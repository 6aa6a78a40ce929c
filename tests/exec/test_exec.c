// The executor: what it refuses, what poisoned runs bring to light, who made the first number that is not finite, recording. Faults are planted
// in plans, whose structures are public.
#include "exec/exec.h"
#include "train/setup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

typedef struct {
    ct_graph graph;
    ct_plan plan;
    ct_team *team;
    ct_exec *exec;
} running;

static void plan_text(running *r, const char *text, int threads) {
    *r = (running){0};
    assert_ok(ct_graph_parse(&r->graph, text, "test", ct_op_find));
    assert_ok(ct_graph_verify(&r->graph));
    const ct_graph *programs[CT_PROGRAMS] = {[CT_PROGRAM_MICRO] = &r->graph};
    assert_ok(ct_plan_make(programs, (ct_plan_options){.threads = threads}, &r->plan));
}

static void start(running *r, int threads, ct_exec_options options) {
    assert_ok(ct_team_create((ct_team_options){.threads = threads, .first_core = -1}, &r->team));
    assert_ok(ct_exec_create(&r->plan, r->team, options, &r->exec));
}

static void stop(running *r) {
    ct_exec_destroy(r->exec);
    ct_team_destroy(r->team);
    ct_plan_deinit(&r->plan);
    ct_graph_deinit(&r->graph);
}

#define DIMS "program micro {\n dim B batch dim T sequence dim S sequence dim D model dim G heads dim Q none dim d none\n"

// ---- what it refuses ----

static void too_little_memory_is_one_message(void **state) {
    (void)state;
    running r;
    plan_text(&r, DIMS " %0 = feed x : f32[T=1048576, D=1048576]\n %1 = add(%0, %0) : f32[T=1048576, D=1048576] @ forward a\n output y = %1\n}", 1);
    assert_ok(ct_team_create((ct_team_options){.threads = 1, .first_core = -1}, &r.team));
    ct_status status = ct_exec_create(&r.plan, r.team, (ct_exec_options){0}, &r.exec);
    assert_non_null(status);
    assert_null(r.exec);
    assert_int_equal(ct_error_code(status), CT_NO_MEMORY);
    const char *begin = "the plan needs 8796.09 GB of memory for this rank, "; // 2 × 2^42 bytes
    if (strncmp(ct_error_text(status), begin, strlen(begin))) fail_msg("%s", ct_error_text(status));
    assert_non_null(strstr(ct_error_text(status) + strlen(begin), " GB"));
    stop(&r);
}

static void memory_beside_the_plan_counts(void **state) {
    (void)state;
    running r;
    plan_text(&r, DIMS " %0 = feed x : f32[D=4]\n %1 = add(%0, %0) : f32[D=4] @ forward a\n output y = %1\n}", 1);
    assert_ok(ct_exec_check_memory(&r.plan, 0));
    assert_int_equal(ct_error_code(ct_exec_check_memory(&r.plan, (size_t)1 << 50)), CT_NO_MEMORY);
    assert_int_equal(ct_error_code(ct_exec_check_memory(&r.plan, SIZE_MAX)), CT_NO_MEMORY); // the sum would overflow
    stop(&r);
}

static void a_team_larger_than_the_plans_is_refused(void **state) {
    (void)state;
    running r;
    plan_text(&r, DIMS " %0 = feed x : f32[D=4]\n %1 = add(%0, %0) : f32[D=4] @ forward a\n output y = %1\n}", 2);
    assert_ok(ct_team_create((ct_team_options){.threads = 3, .first_core = -1}, &r.team));
    ct_status status = ct_exec_create(&r.plan, r.team, (ct_exec_options){0}, &r.exec);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "a team of 3 threads for a plan of 2");
    stop(&r);
}

// ---- poison ----
// y = (x + x) + ((x + x) + x): 5 x, and the first sum lives until the last.
static const char sums[] = DIMS " %0 = feed x : f32[D=40]\n %1 = add(%0, %0) : f32[D=40] @ forward a\n"
                                " %2 = add(%1, %0) : f32[D=40] @ forward b\n %3 = add(%1, %2) : f32[D=40] @ forward c\n output y = %3\n}";

static float run_sums(running *r, ct_exec_options options) {
    start(r, 1, options);
    float *x = ct_exec_data(r->exec, "micro:x"), *y = ct_exec_data(r->exec, "micro:y");
    for (int i = 0; i < 40; i++) x[i] = 1;
    ct_exec_run(r->exec, CT_PROGRAM_MICRO);
    float worst = 5;
    for (int i = 0; i < 40; i++)
        if (y[i] != 5) worst = y[i];
    stop(r);
    return worst;
}

static void a_poisoned_run_of_a_right_plan_is_like_any_other(void **state) {
    (void)state;
    running r;
    plan_text(&r, sums, 1);
    assert_true(run_sums(&r, (ct_exec_options){0}) == 5);
    plan_text(&r, sums, 1);
    assert_true(run_sums(&r, (ct_exec_options){.poison = 1}) == 5);
    plan_text(&r, sums, 1);
    assert_true(run_sums(&r, (ct_exec_options){.poison = 1, .lazy = 1}) == 5);
}

static void a_read_of_dead_memory_is_nan_in_a_poisoned_run(void **state) {
    (void)state;
    for (int poison = 0; poison < 2; poison++) {
        running r;
        plan_text(&r, sums, 1);
        ct_plan_program *p = &r.plan.programs[CT_PROGRAM_MICRO];
        ct_buffer *first_sum = &p->buffers[p->value_buffer[1]];
        assert_int_equal(first_sum->last, 2);
        first_sum->last = 1; // the planted fault: it is said to die too early
        float y = run_sums(&r, (ct_exec_options){.poison = poison});
        assert_true(poison ? isnan(y) : y == 5);
    }
}

static void writes_half(const ct_call *call, ct_team *team) {
    (void)team;
    memcpy(call->out[0].data, call->in[0].data, (size_t)ct_tensor_elems(&call->out[0]) / 2 * sizeof(float));
}

static void an_output_left_unwritten_is_nan_in_a_poisoned_run(void **state) {
    (void)state;
    static const ct_kernel half = {.op = "add", .dtypes = "ff>f", .isa = "generic", .run = writes_half};
    running r;
    plan_text(&r, sums, 1);
    r.plan.programs[CT_PROGRAM_MICRO].instructions[0].kernel = &half;
    assert_true(isnan(run_sums(&r, (ct_exec_options){.poison = 1})));
}

#if defined(__SANITIZE_ADDRESS__)
static void writes_beyond(const ct_call *call, ct_team *team) {
    (void)team;
    float *y = call->out[0].data;
    for (int64_t i = 0; i <= ct_tensor_elems(&call->out[0]); i++) y[i] = 1;
}
static void reads_beyond(const ct_call *call, ct_team *team) {
    (void)team;
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < ct_tensor_elems(&call->out[0]); i++) y[i] = x[i + 8];
}

// The child's report goes nowhere; that it ended the process is what counts.
static int survives(const ct_kernel *kernel, int poison) {
    pid_t child = fork();
    if (child == 0) {
        running r;
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        plan_text(&r, sums, 1);
        if (kernel) r.plan.programs[CT_PROGRAM_MICRO].instructions[1].kernel = kernel;
        run_sums(&r, (ct_exec_options){.poison = poison});
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void a_kernel_that_leaves_its_operands_ends_a_poisoned_run(void **state) {
    (void)state;
    static const ct_kernel writer = {.op = "add", .dtypes = "ff>f", .isa = "generic", .run = writes_beyond};
    static const ct_kernel reader = {.op = "add", .dtypes = "ff>f", .isa = "generic", .run = reads_beyond};
    assert_true(survives(NULL, 1));
    assert_true(survives(&writer, 0) && survives(&reader, 0)); // inside the space: nobody sees it
    assert_false(survives(&writer, 1));
    assert_false(survives(&reader, 1));
}
#endif

// ---- numbers that are not finite ----
typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_team *team;
    ct_exec *exec;
} small_llama;

static void open_llama(small_llama *s, ct_dtype compute) {
    *s = (small_llama){0};
    const ct_model_override sizes[] = {{"dim", 16, NULL},        {"n_layers", 2, NULL},   {"n_heads", 2, NULL}, {"n_kv_heads", 1, NULL},
                                       {"hidden_dim", 24, NULL}, {"vocab_size", 32, NULL}};
    assert_ok(ct_model_open(&s->arena, "llama3", "debugmodel", sizes, 6, &s->model));
    ct_step_options o = {.batch = 2, .seq_len = 8, .compute = compute, .recompute = {.mode = CT_RECOMPUTE_FULL, .every = 1}, .max_norm = 1, .plan = {.threads = 1}};
    assert_ok(ct_step_make(&s->model, &o, &s->step));
    assert_ok(ct_team_create((ct_team_options){.threads = 1, .first_core = -1}, &s->team));
    assert_ok(ct_exec_create(&s->step.plan, s->team, (ct_exec_options){0}, &s->exec));
    for (int i = 0; i < s->model.parameters_count; i++)
        ct_init_parameter(&s->model.parameters[i], i, 1, NULL, s->team, ct_exec_data(s->exec, s->model.parameters[i].name));
    int32_t *tokens = ct_exec_data(s->exec, "micro:tokens"), *labels = ct_exec_data(s->exec, "micro:labels");
    int32_t *positions = ct_exec_data(s->exec, "micro:positions"), *documents = ct_exec_data(s->exec, "micro:documents");
    for (int i = 0; i < 16; i++) tokens[i] = i, labels[i] = i + 1, positions[i] = i % 8, documents[i] = 0;
    *(int32_t *)ct_exec_data(s->exec, "micro:first") = 1;
    *(float *)ct_exec_data(s->exec, "micro:inv_count") = 1.0f / 16;
}

static void close_llama(small_llama *s) {
    ct_exec_destroy(s->exec);
    ct_team_destroy(s->team);
    ct_step_deinit(&s->step);
    ct_arena_deinit(&s->arena);
}

// Plants a value in one element (the row of token 3, where it is an embedding) and takes it away again.
static void assert_first(small_llama *s, const char *parameter, float value, ct_program program, const char *wanted) {
    char text[128];
    float *data = ct_exec_data(s->exec, parameter), *element = data + (strstr(parameter, "embedding") ? 3 * 16 : 5), saved = *element;
    *element = value;
    if (program != CT_PROGRAM_PROLOGUE) ct_exec_run(s->exec, CT_PROGRAM_PROLOGUE);
    ct_exec_find_nonfinite(s->exec, program, NULL, text, sizeof text);
    if (strcmp(text, wanted)) fail_msg("%s = %g: found '%s', wanted '%s'", parameter, (double)value, text, wanted);
    *element = saved;
}

static void the_first_module_with_a_number_that_is_not_finite_is_named(void **state) {
    (void)state;
    small_llama s;
    open_llama(&s, CT_F32);
    assert_first(&s, "norm.weight", 1, CT_PROGRAM_MICRO, "");
    assert_first(&s, "tok_embeddings.weight", NAN, CT_PROGRAM_MICRO, "tok_embeddings (embed, forward)");
    assert_first(&s, "tok_embeddings.weight", 1e30f, CT_PROGRAM_MICRO, ""); // its norm divides by it
    assert_first(&s, "layers.0.attention_norm.weight", INFINITY, CT_PROGRAM_MICRO, "layers.0.attention_norm (rmsnorm, forward)");
    assert_first(&s, "layers.0.attention.wq.weight", NAN, CT_PROGRAM_MICRO, "layers.0.attention.wq (matmul, forward)");
    assert_first(&s, "layers.1.attention.wv.weight", -INFINITY, CT_PROGRAM_MICRO, "layers.1.attention.wv (matmul, forward)");
    assert_first(&s, "layers.1.feed_forward.w3.weight", NAN, CT_PROGRAM_MICRO, "layers.1.feed_forward.w3 (matmul, forward)");
    assert_first(&s, "norm.weight", NAN, CT_PROGRAM_MICRO, "norm (rmsnorm, forward)");
    assert_first(&s, "output.weight", INFINITY, CT_PROGRAM_MICRO, "output (matmul, forward)");
    *(float *)ct_exec_data(s.exec, "micro:inv_count") = INFINITY; // backward begins with it
    assert_first(&s, "norm.weight", 1, CT_PROGRAM_MICRO, "output (vocab_grad, forward)");
    close_llama(&s);
    open_llama(&s, CT_BF16);
    assert_first(&s, "norm.weight", 1, CT_PROGRAM_MICRO, "");
    assert_first(&s, "layers.1.feed_forward.w1.weight", NAN, CT_PROGRAM_MICRO, "layers.1.feed_forward.w1 (matmul, forward)");
    assert_first(&s, "layers.1.feed_forward.w1.weight", 3.4e38f, CT_PROGRAM_PROLOGUE, "layers.1.feed_forward.w1.weight (cast, forward)");
    close_llama(&s);
}

static void a_text_too_long_for_its_room_is_cut(void **state) {
    (void)state;
    small_llama s;
    char text[] = "012345678901234567890123456789";
    open_llama(&s, CT_F32);
    *(float *)ct_exec_data(s.exec, "norm.weight") = NAN;
    ct_exec_find_nonfinite(s.exec, CT_PROGRAM_MICRO, NULL, text, 8);
    assert_string_equal(text, "norm (r");
    assert_int_equal(text[8], '8');
    close_llama(&s);
}

static void a_query_that_sees_nothing_is_finite_enough(void **state) {
    (void)state;
    running r;
    char text[64];
    plan_text(&r, DIMS " %0 = feed q : f32[B=1, T=1, G=1, Q=1, d=4]\n %1 = feed k : f32[B=1, S=1, G=1, d=4]\n"
                       " %2 = feed qp : i32[B=1, T=1]\n %3 = feed kp : i32[B=1, S=1]\n"
                       " %4, %5 = attention(%0, %1, %1, %2, %3, %2, %2) {scale=0.5} : f32[B=1, T=1, G=1, Q=1, d=4], "
                       "f32[B=1, T=1, G=1, Q=1] @ forward a\n output o = %4\n output lse = %5\n}", 1);
    start(&r, 1, (ct_exec_options){0});
    *(int32_t *)ct_exec_data(r.exec, "micro:kp") = 1; // a key in the future
    ct_exec_find_nonfinite(r.exec, CT_PROGRAM_MICRO, NULL, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(*(float *)ct_exec_data(r.exec, "micro:lse") == -INFINITY);
    assert_true(*(float *)ct_exec_data(r.exec, "micro:o") == 0);
    stop(&r);
}

// ---- names, recording ----
static void kept_memory_is_found_by_its_name(void **state) {
    (void)state;
    running r;
    plan_text(&r, sums, 1);
    start(&r, 1, (ct_exec_options){0});
    size_t bytes;
    char *space = ct_exec_space(r.exec, &bytes), *x = ct_exec_data(r.exec, "micro:x"), *y = ct_exec_data(r.exec, "micro:y");
    assert_int_equal(bytes, r.plan.peak_bytes);
    assert_true(x >= space && x + 160 <= space + bytes && y >= space && y + 160 <= space + bytes && x != y);
    assert_true((uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0);
    assert_null(ct_exec_data(r.exec, "x"));
    assert_null(ct_exec_data(r.exec, "eval:x"));
    stop(&r);
}

static void a_recording_has_every_instruction_until_it_is_full(void **state) {
    (void)state;
    running r;
    ct_span spans[8];
    ct_recording recording = {spans, 0, 8};
    plan_text(&r, sums, 1);
    start(&r, 1, (ct_exec_options){0});
    ct_exec_record(r.exec, &recording);
    for (int i = 0; i < 3; i++) ct_exec_run(r.exec, CT_PROGRAM_MICRO);
    assert_int_equal(recording.count, 8); // of nine
    for (int i = 0; i < 8; i++) {
        assert_int_equal(spans[i].instruction, i % 3);
        assert_int_equal(spans[i].program, CT_PROGRAM_MICRO);
        assert_true(spans[i].begin_ns <= spans[i].end_ns && (i == 0 || spans[i - 1].end_ns <= spans[i].begin_ns));
    }
    recording.count = 0;
    ct_exec_record(r.exec, NULL);
    ct_exec_run(r.exec, CT_PROGRAM_MICRO);
    assert_int_equal(recording.count, 0);
    stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_memory_is_one_message),
        cmocka_unit_test(memory_beside_the_plan_counts),
        cmocka_unit_test(a_team_larger_than_the_plans_is_refused),
        cmocka_unit_test(a_poisoned_run_of_a_right_plan_is_like_any_other),
        cmocka_unit_test(a_read_of_dead_memory_is_nan_in_a_poisoned_run),
        cmocka_unit_test(an_output_left_unwritten_is_nan_in_a_poisoned_run),
#if defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(a_kernel_that_leaves_its_operands_ends_a_poisoned_run),
#endif
        cmocka_unit_test(the_first_module_with_a_number_that_is_not_finite_is_named),
        cmocka_unit_test(a_text_too_long_for_its_room_is_cut),
        cmocka_unit_test(a_query_that_sees_nothing_is_finite_enough),
        cmocka_unit_test(kept_memory_is_found_by_its_name),
        cmocka_unit_test(a_recording_has_every_instruction_until_it_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
