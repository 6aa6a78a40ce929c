// Planned collectives and bytes are those that are read: in shared memory the copies and sums of a step count, by address, what they read of memory
// that is not their rank's, and that is, collective by collective and rank by rank, what `ctitan plan --json` says. Without shared memory
// tests/comm/test_comm_counts.c has an observer in MPI's place.
#include "../cli/command.h"
#include "graph/op.h"
#include "train/setup.h"
#include "train/trainer.h"

#include <cjson/cJSON.h>
#include <unistd.h>

#define CONFIG "tests/train/fixtures/titan/base/config.toml"
#define SIZES "--training.global_batch_size 16 --training.local_batch_size 2 --training.threads 2 --checkpoint.no_enable --job.dump_folder "

enum { MOST_RANKS = 8, MOST_LINES = 2048, MOST_SPANS = 1 << 15 };

// Bytes of a step to one rank, by "program module phase axes", in the order in which these were first seen.
typedef struct {
    char *key[MOST_LINES];
    double bytes[MOST_LINES];
    int count;
} account;

static void put(account *a, char *key, double bytes) {
    int i = 0;
    while (i < a->count && strcmp(a->key[i], key)) i++;
    if (i < a->count) free(key);
    else {
        assert_true(i < MOST_LINES);
        a->key[a->count++] = key;
    }
    a->bytes[i] += bytes;
}

static double of(const account *a, const char *key) {
    for (int i = 0; i < a->count; i++)
        if (!strcmp(a->key[i], key)) return a->bytes[i];
    return 0;
}

static void close_account(account *a) {
    for (int i = 0; i < a->count; i++) free(a->key[i]);
    *a = (account){0};
}

// ---- planned ----
typedef struct {
    int ranks, per_node; // per_node 0: all on one node
    const char *words;
} mesh_case;

static const char *text_of(const cJSON *object, const char *name) { return cJSON_GetObjectItemCaseSensitive(object, name)->valuestring; }

// Of moves between ranks that share memory (`near`), or of the others.
static void planned(scene *s, const mesh_case *m, int rank, int near, account *out) {
    char *nodes = m->per_node ? ct_format("--ranks-per-node %d", m->per_node) : ct_strdup("");
    if (run(s, "plan " CONFIG " --ranks %d --rank %d %s --json " SIZES "%s %s", m->ranks, rank, nodes, s->folder, m->words)) fail_msg("%s", s->err);
    cJSON *plan = cJSON_Parse(s->out);
    const cJSON *c, *axis;
    assert_non_null(plan);
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(plan, "collectives")) {
        if (strcmp(text_of(c, "lowering"), "mpi") == 0 ? near : !near) continue;
        ct_string key = {0};
        ct_string_add(&key, "%s %s %s", text_of(c, "program"), text_of(c, "module"), text_of(c, "phase"));
        cJSON_ArrayForEach(axis, cJSON_GetObjectItemCaseSensitive(c, "axis")) ct_string_add(&key, " %s", axis->valuestring);
        put(out, key.text, cJSON_GetObjectItemCaseSensitive(c, "count")->valuedouble * cJSON_GetObjectItemCaseSensitive(c, "moved_bytes")->valuedouble);
    }
    cJSON_Delete(plan);
    free(nodes);
}

// ---- read ----
typedef struct {
    const ct_config *config;
    account read[MOST_RANKS];
} job;

static void add_span(const ct_plan *plan, const ct_span *span, account *out) {
    const ct_plan_program *program = &plan->programs[span->program];
    const ct_node *node = &program->graph->nodes[program->instructions[span->instruction].node];
    if (!span->peer_bytes) return;
    ct_string key = {0};
    unsigned axes = node->op->flags & CT_OP_MOVE ? ct_move_axes(program->graph, node) : 0;
    ct_string_add(&key, "%s %s %s", ct_program_name((ct_program)span->program), node->from.module, ct_phase_name(node->from.phase));
    for (int a = 0; a < program->graph->mesh.axes_count; a++)
        if (axes >> a & 1) ct_string_add(&key, " %s", program->graph->mesh.axes[a].name);
    put(out, key.text, (double)span->peer_bytes);
}

static ct_status run_rank(void *context, ct_comm *comm) {
    job *j = context;
    ct_trainer *trainer;
    CT_TRY(ct_trainer_create(j->config, comm, &trainer));
    ct_recording recording = {.spans = ct_malloc(sizeof(ct_span) * MOST_SPANS), .capacity = MOST_SPANS};
    ct_exec_record(ct_trainer_exec(trainer), &recording);
    ct_step_report report;
    ct_status status = ct_trainer_step(trainer, &report);
    if (!status) status = ct_comm_barrier(comm, "the end of the step");
    CT_ASSERT(recording.count < recording.capacity, "more than %d instructions in a step", MOST_SPANS);
    for (int i = 0; i < recording.count; i++) add_span(ct_trainer_plan(trainer), &recording.spans[i], &j->read[ct_comm_rank(comm)]);
    free(recording.spans);
    ct_trainer_destroy(trainer);
    return status;
}

static void train(scene *s, const mesh_case *m, job *out) {
    ct_arena arena = {0};
    ct_config *config;
    char *words = ct_arena_format(&arena, SIZES "%s %s", s->folder, m->words), *argv[64];
    int argc = 0;
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    ct_status status = ct_config_load(&arena, CONFIG, argc, argv, &config);
    *out = (job){.config = config};
    if (!status) status = ct_comm_run_threads(m->ranks, &(ct_comm_options){.ranks_per_node = m->per_node}, run_rank, out);
    if (status) fail_msg("%d ranks, %s: %s", m->ranks, m->words, ct_error_text(status));
    ct_arena_deinit(&arena);
}

static double compare(scene *s, const mesh_case *m, int rank, const account *read) {
    account plan = {0}, far = {0};
    double total = 0;
    planned(s, m, rank, 1, &plan);
    planned(s, m, rank, 0, &far);
    for (int i = 0; i < plan.count; i++) {
        if (of(read, plan.key[i]) != plan.bytes[i] && !of(&far, plan.key[i]))
            fail_msg("%d ranks, %s, rank %d, %s: %.0f bytes planned, %.0f read", m->ranks, m->words, rank, plan.key[i], plan.bytes[i], of(read, plan.key[i]));
        total += plan.bytes[i];
    }
    for (int i = 0; i < read->count; i++) // what goes between nodes may in part be read
        if (!of(&plan, read->key[i]) && !(read->bytes[i] < of(&far, read->key[i])))
            fail_msg("%d ranks, %s, rank %d, %s: %.0f bytes read, none planned", m->ranks, m->words, rank, read->key[i], read->bytes[i]);
    close_account(&plan);
    close_account(&far);
    return total;
}

static void what_is_planned_is_what_is_read(void **state) {
    static const mesh_case cases[] = {
        {2, 0, ""},
        {4, 0, "--parallelism.tensor_parallel_degree 2 --activation_checkpoint.mode full"},
        {4, 0, "--parallelism.data_parallel_replicate_degree 2 --training.mixed_precision_param bfloat16"},
        {4, 0, "--parallelism.context_parallel_degree 2 --training.mixed_precision_param bfloat16"},
        {3, 0, "--parallelism.tensor_parallel_degree 3"}, // uneven
        {4, 0, "--parallelism.context_parallel_degree 4 --parallelism.context_parallel_rotate_method alltoall"},
        {4, 2, "--parallelism.tensor_parallel_degree 2"},
        {2, 1, ""}}; // no memory is shared: nothing is read
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static job j;
        double total = 0;
        int collectives = 0;
        train(*state, &cases[i], &j);
        for (int r = 0; r < cases[i].ranks; r++) {
            total += compare(*state, &cases[i], r, &j.read[r]);
            collectives += j.read[r].count;
            close_account(&j.read[r]);
        }
        printf("%d ranks, nodes of %d, %s: %.0f bytes read in a step by %d collectives of all ranks, as planned\n", cases[i].ranks, cases[i].per_node, cases[i].words,
               total, collectives);
        assert_true(cases[i].per_node == 1 ? total == 0 && !collectives : total > 100000);
    }
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(what_is_planned_is_what_is_read, scene_open, scene_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
