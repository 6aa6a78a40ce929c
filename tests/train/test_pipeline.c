// A pipeline changes no bit: every schedule, cut, mesh and recomputation gives the losses and gradient norms of the same mesh without one, at equal
// micro-batches, in f32 and in bf16, in memory that holds NaN until something is written to it.
#include "matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <unistd.h>
#include <cmocka.h>

enum { STEPS = 4 };

static const char *const deep[] = {"--model.args.n_layers", "6", "--debug.poison", NULL};
static const char *const schedules[] = {"GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "Auto"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static mesh_result run(mesh_cell cell) {
    mesh_result r;
    ct_status status = mesh_run(&cell, STEPS, &r);
    char name[200];
    mesh_print(&cell, name, sizeof name);
    if (status) fail_msg("%s: %s", name, ct_error_text(status));
    return r;
}

static void check(mesh_cell cell, const mesh_result *without) {
    mesh_result r = run(cell);
    char name[200];
    mesh_print(&cell, name, sizeof name);
    int same;
    double error = mesh_compare(without, &r, &same);
    printf("%-80s %s\n", name, same ? "same bits" : "");
    if (!same) fail_msg("%s: losses or norms have other bits; losses differ by %.2e", name, error);
    mesh_result_free(&r);
}

static void refuses(mesh_cell cell, const char *text) {
    mesh_result r;
    ct_status status = mesh_run(&cell, 1, &r);
    assert_non_null(status);
    if (!strstr(ct_error_text(status), text)) fail_msg("\"%s\" does not say \"%s\"", ct_error_text(status), text);
    mesh_result_free(&r);
}

static void every_schedule_gives_the_bits_of_no_pipeline(void **state) {
    (void)state;
    mesh_result without = run((mesh_cell){MESH(1, 1, 1, 1), .more = deep});
    for (int i = 0; i < SCHEDULES; i++)
        for (int pp = 2; pp <= 4; pp++) check((mesh_cell){MESH(1, 1, 1, 1), .pp = pp, .schedule = schedules[i], .local_batch = pp == 3 ? 6 : 8, .more = deep}, &without);
    mesh_result_free(&without);
}

static void every_mesh_gives_its_bits_with_a_pipeline(void **state) {
    (void)state;
    const mesh_cell meshes[] = {{MESH(1, 2, 1, 1)}, {MESH(2, 2, 1, 1), .recompute = "full"}, {MESH(1, 1, 1, 2)},
                                {MESH(1, 1, 2, 1), .rotate = "alltoall"}, {MESH(1, 1, 2, 2), .recompute = "selective"},
                                {MESH(1, 2, 1, 2), .dtype = "bfloat16"}, {MESH(1, 1, 1, 3), .no_sp = 1, .no_loss_parallel = 1}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        mesh_cell c = meshes[i];
        c.more = deep;
        mesh_result without = run(c);
        c.pp = 2, c.local_batch = 6;
        int split = i % 2 ? 4 : 5; // zero-bubble schedules take the backward apart
        c.schedule = "1F1B";
        check(c, &without);
        c.schedule = schedules[split];
        check(c, &without);
        c.per_node = 1, c.async_tp = c.tp > 1; // everything is a message
        check(c, &without);
        mesh_result_free(&without);
    }
}

// Stages by name, by layers per stage, and uneven ones; more runs of the schedule than one in a step.
static void every_cut_gives_the_bits_of_no_pipeline(void **state) {
    (void)state;
    static const char *const named[] = {"--model.args.n_layers", "3", "--parallelism.module_fqns_per_model_part",
                                        "[[\"tok_embeddings\", \"layers.0\", \"layers.1\"], [\"layers.2\"], [\"norm\"], [\"output\"]]", NULL};
    static const char *const three[] = {"--model.args.n_layers", "3", NULL};
    static const char *const per_stage[] = {"--model.args.n_layers", "3", "--parallelism.pipeline_parallel_layers_per_stage", "1",
                                            "--parallelism.pipeline_parallel_first_stage_less_layers", "0",
                                            "--parallelism.pipeline_parallel_last_stage_less_layers", "0", NULL};
    mesh_result without = run((mesh_cell){MESH(1, 1, 1, 1), .more = three});
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 4, .schedule = "1F1B", .local_batch = 4, .more = named}, &without);
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "ZBVZeroBubble", .local_batch = 4, .more = named}, &without);
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 3, .schedule = "GPipe", .local_batch = 3, .more = per_stage}, &without);
    mesh_result_free(&without);
}

// By FLOPs, which ranks with uneven shards (an odd ffn on three) have different ones of, and by a file's costs: all ranks find one schedule.
static void a_searched_schedule_gives_the_bits_of_no_pipeline(void **state) {
    (void)state;
    char path[] = "/tmp/ctitan_costs_XXXXXX";
    static const char text[] = "stage,forward_s,input_grad_s,weight_grad_s\n0,0.1,0,0.05\n1,0.3,0.3,0.3\n2,0.2,0.25,0.2\n3,0.4,0.5,0.1\n";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1 && !close(file));
    const char *const by_file[] = {"--model.args.n_layers", "6", "--parallelism.pipeline_parallel_costs_csv", path, "--parallelism.pipeline_parallel_slots",
                                   "3", "--debug.poison", NULL};
    mesh_result without = run((mesh_cell){MESH(1, 1, 1, 1), .more = deep});
    mesh_result cut = run((mesh_cell){MESH(1, 1, 1, 3), .recompute = "selective", .more = deep});
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "Auto", .local_batch = 8, .more = by_file}, &without);
    check((mesh_cell){MESH(1, 1, 1, 3), .pp = 2, .schedule = "Auto", .local_batch = 6, .recompute = "selective", .more = deep}, &cut);
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 3, .schedule = "Auto", .local_batch = 6, .more = by_file}, "costs of 4 stages, 6 are wanted");
    unlink(path);
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "Auto", .local_batch = 8, .more = by_file}, path);
    mesh_result_free(&without);
    mesh_result_free(&cut);
}

// A tied weight lies on the first stage and on the last one, apart or on one rank; its two gradients meet once a step.
static void a_weight_of_two_stages_gives_the_bits_of_no_pipeline(void **state) {
    (void)state;
    static const char *const tied[] = {"--model.args.n_layers", "6", "--model.args.enable_weight_tying", "--debug.poison", NULL};
    static const char *const late[] = {"--model.args.n_layers", "6", "--model.args.enable_weight_tying", "--parallelism.gradient_reduction", "step", NULL};
    mesh_result without = run((mesh_cell){MESH(1, 1, 1, 1), .more = tied}), sharded = run((mesh_cell){MESH(1, 2, 1, 1), .more = late});
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 3, .schedule = "1F1B", .local_batch = 6, .more = tied}, &without);
    check((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "DualPipeV", .local_batch = 8, .more = tied}, &without);
    check((mesh_cell){MESH(1, 2, 1, 1), .pp = 2, .schedule = "InterleavedZeroBubble", .local_batch = 6, .per_node = 1, .more = tied}, &without);
    check((mesh_cell){MESH(1, 2, 1, 1), .pp = 2, .schedule = "1F1B", .local_batch = 6, .more = late}, &sharded);
    mesh_result_free(&without);
    mesh_result_free(&sharded);
}

// ---- memory ----
enum { RANKS = 4 };

typedef struct {
    const ct_config *config;
    size_t peak[RANKS], saved[RANKS]; // bytes: all, and what stages save of micro-batches
    int slots[RANKS];                 // the most of any saved value
    int logits;                       // saved values that have the vocabulary's dim
} memory_job;

static void look_at(const ct_graph *g, memory_job *job) {
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_type *type = &g->values[g->inputs[i].value].type;
        for (int d = 0; g->inputs[i].kind == CT_SAVED && d < type->dims_count; d++) job->logits += type->dims[d].name[0] == 'V';
    }
}

static ct_status measure_memory(void *context, ct_comm *comm) {
    memory_job *job = context;
    ct_trainer *trainer;
    CT_TRY(ct_trainer_create(job->config, comm, &trainer));
    const ct_step *step = ct_trainer_step_made(trainer);
    int r = ct_comm_rank(comm);
    job->peak[r] = step->plan.peak_bytes;
    for (int k = 0; k < step->plan.kept_count; k++) {
        const ct_buffer *b = &step->plan.kept[k];
        if (b->name[0] != '%') continue;
        job->saved[r] += b->bytes * (size_t)(b->slots ? b->slots : 1);
        if (b->slots > job->slots[r]) job->slots[r] = b->slots;
    }
    for (int w = CT_PROGRAM_STAGES; w < CT_PROGRAMS && r == RANKS - 1; w++)
        if (step->has[w]) look_at(&step->programs[w], job);
    ct_trainer_destroy(trainer);
    return CT_OK;
}

static memory_job memory_of(const char *schedule, int micros) {
    char batch[32];
    snprintf(batch, sizeof batch, "%d", micros);
    const char *more[] = {"--model.args.n_layers", "6", "--training.global_batch_size", "48", NULL};
    mesh_cell cell = {MESH(1, 1, 1, 1), .pp = RANKS, .schedule = schedule, .local_batch = micros, .more = more};
    memory_job job = {0};
    ct_status status = mesh_on_ranks(&cell, 1, measure_memory, &job, &job.config);
    if (status) fail_msg("%s of %d: %s", schedule, micros, ct_error_text(status));
    return job;
}

// What 16 and 48 micro-batches take is the same on every rank, but where all forwards come first. In 1F1B stage s saves min(m, p - s)
// (Narayanan et al. 2021, arXiv 2104.04473, section 2.2); no stage of any schedule saves logits.
static void memory_does_not_grow_with_micro_batches(void **state) {
    (void)state;
    for (int i = 0; i < SCHEDULES; i++) {
        memory_job few = memory_of(schedules[i], 16), many = memory_of(schedules[i], 48);
        int grows = !strcmp(schedules[i], "GPipe") || !strcmp(schedules[i], "LoopedBFS");
        printf("%-22s saved by the ranks, of 16 micro-batches and of 48:", schedules[i]);
        for (int r = 0; r < RANKS; r++) printf(" %zu %zu", few.saved[r], many.saved[r]);
        printf("\n");
        for (int r = 0; r < RANKS; r++) {
            if (!strcmp(schedules[i], "Auto")) assert_true(few.slots[r] <= 2 * RANKS && many.slots[r] <= 2 * RANKS);
            else if (!grows) assert_true(many.saved[r] == few.saved[r] && many.peak[r] == few.peak[r]);
            if (!strcmp(schedules[i], "1F1B")) assert_int_equal(many.slots[r], RANKS - r);
            if (!strcmp(schedules[i], "GPipe")) assert_int_equal(many.slots[r], 48);
        }
        assert_int_equal(few.logits, 0);
    }
}

// ---- schedules from a file, and validation ----
static void write_csv(const char *path, int descending) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int rank = 0; rank < 2; rank++) {
        for (int m = 0; m < 6; m++) fprintf(f, "%dF%d,", rank, m);
        for (int m = 0; m < 6; m++) fprintf(f, "%s%dB%d", m ? "," : "", rank, descending ? 5 - m : m);
        fprintf(f, "\n");
    }
    fclose(f);
}

// In ascending order it is GPipe; in another order gradients are summed otherwise.
static void a_file_gives_its_own_order_of_sums(void **state) {
    (void)state;
    char path[] = "/tmp/ct_schedule_XXXXXX.csv";
    int made = mkstemps(path, 4);
    assert_true(made >= 0);
    close(made);
    const char *csv[] = {"--model.args.n_layers", "6", "--parallelism.pipeline_parallel_schedule_csv", path, NULL};
    mesh_result without = run((mesh_cell){MESH(1, 1, 1, 1), .more = deep});
    mesh_cell cell = {MESH(1, 1, 1, 1), .pp = 2, .schedule = "PipelineScheduleMulti", .local_batch = 6, .more = csv};
    write_csv(path, 0);
    check(cell, &without);
    write_csv(path, 1);
    mesh_result other = run(cell);
    int same;
    double error = mesh_compare(&without, &other, &same);
    printf("descending: losses differ by %.1e\n", error);
    if (!(error <= 5e-6) || same) fail_msg("descending: losses differ by %.2e, %s bits", error, same ? "the same" : "other");
    mesh_result_free(&other);
    mesh_result_free(&without);
    unlink(path);
}

enum { MOST_RANKS = 4 };
typedef struct {
    const ct_config *config;
    double loss[MOST_RANKS], validation[MOST_RANKS];
} validation_job;

static ct_status step_and_validate(void *context, ct_comm *comm) {
    validation_job *job = context;
    ct_trainer *trainer;
    ct_step_report report = {0};
    int64_t tokens;
    int r = ct_comm_rank(comm);
    CT_TRY(ct_trainer_create(job->config, comm, &trainer));
    ct_status status = ct_trainer_step(trainer, &report);
    if (!status) status = ct_trainer_validate(trainer, &job->validation[r], &tokens);
    if (!status) status = ct_trainer_step(trainer, &report); // what validation used disturbs no step
    job->loss[r] = report.loss;
    ct_trainer_destroy(trainer);
    return status;
}

static void every_rank_knows_the_losses_of_no_pipeline(void **state) {
    (void)state;
    static const char *const more[] = {"--model.args.n_layers", "6", "--debug.poison", "--validation.enable", "--validation.steps", "3", "--validation.local_batch_size", "4",
                                       "--validation.seq_len", "64", "--validation.dataset", "jsonl", "--validation.dataset_path",
                                       "tests/train/fixtures/titan/text/data.json", NULL};
    mesh_cell cells[] = {{MESH(1, 1, 1, 1)}, {MESH(1, 1, 1, 1), .pp = 4, .schedule = "1F1B", .local_batch = 8},
                         {MESH(1, 1, 1, 1), .pp = 3, .schedule = "DualPipeV", .local_batch = 6}};
    validation_job jobs[3] = {0};
    for (int i = 0; i < 3; i++) {
        cells[i].more = more;
        ct_status status = mesh_on_ranks(&cells[i], 2, step_and_validate, &jobs[i], &jobs[i].config);
        if (status) fail_msg("%s", ct_error_text(status));
        for (int r = 0; r < mesh_ranks(&cells[i]); r++)
            assert_true(jobs[i].loss[r] == jobs[0].loss[0] && jobs[i].validation[r] == jobs[0].validation[0] && jobs[i].validation[r] > 0);
    }
}

// ---- numbers that are not finite ----
typedef struct {
    const ct_config *config;
    const char *parameter;
} broken_job;

static ct_status break_weight(void *context, ct_comm *comm) {
    broken_job *job = context;
    ct_trainer *trainer;
    ct_step_report report;
    CT_TRY(ct_trainer_create(job->config, comm, &trainer));
    ct_status status = ct_trainer_step(trainer, &report);
    float *weight = ct_exec_data(ct_trainer_exec(trainer), job->parameter);
    if (weight) weight[7] = NAN;
    if (!status) status = ct_trainer_step(trainer, &report);
    ct_trainer_destroy(trainer);
    return status;
}

static void a_number_that_is_not_finite_names_its_module(void **state) {
    (void)state;
    static const char *const bad[] = {"layers.0.attention.wq", "layers.3.feed_forward.w2", "layers.5.attention_norm", "output"};
    static const char *const ways[] = {"1F1B", "ZBVZeroBubble"};
    for (int w = 0; w < 2; w++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s.weight", bad[i]);
            broken_job job = {.parameter = name};
            mesh_cell cell = {MESH(1, 1, 1, 1), .pp = 3, .schedule = ways[w], .local_batch = 6, .more = deep};
            ct_status status = mesh_on_ranks(&cell, 2, break_weight, &job, &job.config);
            assert_non_null(status);
            if (!strstr(ct_error_text(status), "step 2: ") || !strstr(ct_error_text(status), bad[i])) fail_msg("wanted %s: %s", bad[i], ct_error_text(status));
        }
}

static void what_cannot_be_cut_is_an_error_that_says_what_can(void **state) {
    (void)state;
    static const char *const twice[] = {"--parallelism.module_fqns_per_model_part",
                                        "[[\"tok_embeddings\", \"layers.0\"], [\"layers.0\", \"layers.1\", \"norm\", \"output\"]]", NULL};
    static const char *const missing[] = {"--parallelism.module_fqns_per_model_part", "[[\"tok_embeddings\", \"layers.0\"], [\"norm\", \"output\"]]", NULL};
    static const char *const strange[] = {"--parallelism.module_fqns_per_model_part",
                                          "[[\"tok_embeddings\", \"layers.0\", \"layer.1\"], [\"layers.1\", \"norm\", \"output\"]]", NULL};
    static const char *const odd[] = {"--parallelism.pipeline_parallel_microbatch_size", "5", NULL};
    static const char *const narrow[] = {"--model.args.n_layers", "6", "--parallelism.pipeline_parallel_slots", "1", NULL};
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "Auto", .local_batch = 4, .more = narrow}, "pipeline_parallel_slots = 1");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "Interleaved1F1B", .local_batch = 12, .more = odd}, "is not a multiple of pipeline_parallel_microbatch_size = 5");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 4, .schedule = "Interleaved1F1B", .local_batch = 6}, "stages");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 4, .schedule = "InterleavedZeroBubble", .local_batch = 12, .more = (const char *const[]){"--model.args.n_layers", "6", "--training.global_batch_size", "9", NULL}}, "global_batch_size");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .schedule = "DualPipeV", .local_batch = 3, .more = deep}, "at least 4 micro-batches, not 3");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .local_batch = 4, .more = twice}, "module layers.0 is in pipeline stages 0 and 1");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .local_batch = 4, .more = missing}, "no pipeline stage has the module of layers.1.");
    refuses((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .local_batch = 4, .more = strange}, "the model has no module layer.1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_schedule_gives_the_bits_of_no_pipeline), cmocka_unit_test(every_mesh_gives_its_bits_with_a_pipeline),
                                       cmocka_unit_test(every_cut_gives_the_bits_of_no_pipeline),
                                       cmocka_unit_test(a_searched_schedule_gives_the_bits_of_no_pipeline),
                                       cmocka_unit_test(a_weight_of_two_stages_gives_the_bits_of_no_pipeline),
                                       cmocka_unit_test(memory_does_not_grow_with_micro_batches),
                                       cmocka_unit_test(a_number_that_is_not_finite_names_its_module),
                                       cmocka_unit_test(a_file_gives_its_own_order_of_sums),
                                       cmocka_unit_test(every_rank_knows_the_losses_of_no_pipeline),
                                       cmocka_unit_test(what_cannot_be_cut_is_an_error_that_says_what_can)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
