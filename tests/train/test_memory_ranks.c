// Memory a rank, measured: after a step of a run that touches nothing beforehand, the pages of a rank's own space and of its part of the node's
// shared one (so that a shared page counts once, for whose it is) are the planned ones and no others. Parameters, gradients and optimizer state
// lie on 1/n of the pages under FSDP, and what the forward keeps for the backward on 1/tp under tensor and sequence parallelism.
#include "matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { PAGE = 4096, MOST_RANKS = 4 };

// What a page is planned for.
enum { STATE = 1, ACTIVATIONS = 2, OTHER = 4 };

typedef struct {
    size_t planned, resident, strangers, missing, states, activations; // pages
    size_t planned_states, planned_activations;                        // bytes
} pages;

typedef struct {
    const ct_config *config;
    pages of[MOST_RANKS];
} job;

static void mark(unsigned char *map, const ct_buffer *b, int shared, int what) {
    size_t bytes = b->bytes * (size_t)(b->slots > 1 ? b->slots : 1);
    if (!b->shared != !shared || !bytes) return;
    for (size_t p = b->offset / PAGE; p <= (b->offset + bytes - 1) / PAGE; p++) map[p] |= (unsigned char)what;
}

static int is_state(const ct_buffer *b) {
    return b->kept && (b->kind == CT_BYTES_PARAMETERS || b->kind == CT_BYTES_OPTIMIZER || b->kind == CT_BYTES_GRADIENTS);
}

// Does the forward leave it to the backward? It is written before the first node of the backward, and read behind it.
static int is_saved(const ct_plan_program *program, const ct_buffer *b) {
    int backward = 0;
    while (backward < program->graph->nodes_count && program->graph->nodes[backward].from.phase == CT_FORWARD) backward++;
    return b->kind == CT_BYTES_ACTIVATIONS && b->first < backward && b->last > backward;
}

static void count_space(const ct_plan *plan, unsigned char *space, size_t bytes, int shared, pages *out) {
    size_t count = (bytes + PAGE - 1) / PAGE;
    unsigned char *map = calloc(count + 1, 1), *seen = calloc(count + 1, 1);
    for (int i = 0; i < plan->kept_count; i++) {
        mark(map, &plan->kept[i], shared, is_state(&plan->kept[i]) ? STATE : plan->kept[i].name[0] == '%' ? ACTIVATIONS : OTHER); // %: a stage's saved values
        if (is_state(&plan->kept[i]) && !plan->kept[i].shared == !shared) out->planned_states += plan->kept[i].bytes;
    }
    for (int w = 0; w < CT_PROGRAMS; w++)
        for (int i = 0; i < plan->programs[w].buffers_count; i++) {
            const ct_buffer *b = &plan->programs[w].buffers[i];
            int saved = w == CT_PROGRAM_MICRO && is_saved(&plan->programs[w], b);
            mark(map, b, shared, saved ? ACTIVATIONS : OTHER);
            if (saved && !b->shared == !shared) out->planned_activations += b->bytes;
        }
    if (count && mincore(space, count * PAGE, seen)) fail_msg("mincore");
    for (size_t p = 0; p < count; p++) {
        int here = seen[p] & 1;
        out->planned += map[p] != 0;
        out->resident += (size_t)here;
        out->strangers += here && !map[p];
        out->missing += !here && map[p];
        out->states += here && map[p] & STATE;
        out->activations += here && map[p] & ACTIVATIONS;
    }
    free(map);
    free(seen);
}

static ct_status run_rank(void *context, ct_comm *comm) {
    job *j = context;
    ct_trainer *trainer;
    CT_TRY(ct_trainer_create(j->config, comm, &trainer));
    ct_step_report report;
    ct_status status = ct_trainer_step(trainer, &report);
    if (!status) status = ct_comm_barrier(comm, "the end of the step"); // peers read this rank's pages no more
    size_t bytes, shared_bytes;
    unsigned char *space = ct_exec_space(ct_trainer_exec(trainer), &bytes), *shared = ct_exec_shared_space(ct_trainer_exec(trainer), &shared_bytes);
    pages *out = &j->of[ct_comm_rank(comm)];
    count_space(ct_trainer_plan(trainer), space, bytes, 0, out);
    if (shared) count_space(ct_trainer_plan(trainer), shared, shared_bytes, 1, out);
    if (!status) status = ct_comm_barrier(comm, "the end of counting");
    ct_trainer_destroy(trainer);
    return status;
}

// Sizes that all meshes divide; weights and activations of some MB.
static const char *const sizes[] = {"--debug.poison", "--model.args.dim", "128", "--model.args.n_heads", "8", "--model.args.hidden_dim", "384",
                                    "--model.args.vocab_size", "512", "--training.seq_len", "128", "--training.local_batch_size", "6", NULL};

static pages measure(mesh_cell cell, const char *what) {
    job j = {0};
    cell.more = sizes;
    ct_status status = mesh_on_ranks(&cell, 1, run_rank, &j, &j.config);
    if (status) fail_msg("%s: %s", what, ct_error_text(status));
    for (int r = 0; r < mesh_ranks(&cell); r++) {
        const pages *p = &j.of[r];
        if (p->strangers || p->missing) fail_msg("%s: rank %d touched %zu pages that are not planned, and not %zu that are", what, r, p->strangers, p->missing);
        if (p->states != j.of[0].states || p->activations != j.of[0].activations) fail_msg("%s: rank %d has other pages than rank 0", what, r);
    }
    const pages *p = &j.of[0];
    printf("%-10s each rank: %5zu pages, the planned ones; states %5zu (%8zu bytes planned), saved activations %5zu (%8zu bytes planned)\n", what, p->resident,
           p->states, p->planned_states, p->activations, p->planned_activations);
    return *p;
}

static void fsdp_lays_states_on_1_nth_of_the_pages(void **state) {
    (void)state;
    pages alone = measure((mesh_cell){MESH(1, 1, 1, 1)}, "1 rank");
    for (int n = 2; n <= MOST_RANKS; n *= 2) {
        char what[32];
        snprintf(what, sizeof what, "fsdp %d", n);
        pages p = measure((mesh_cell){MESH(1, n, 1, 1)}, what);
        double part = (double)p.states * n / (double)alone.states;
        if (!(part >= 0.99 && part <= 1.02)) fail_msg("%s: %.3f of 1/n", what, part);
    }
}

// Of 2 layers on 6 × 128 tokens of 128 numbers in f32, 8 heads of 16. A rank has 1/tp of what one rank keeps, but for what it has whole: dh of the loss,
// a partial sum, and the angles; and, where nothing is recomputed, beside that each layer's two gathered inputs of products: the gradients of the
// weights read them, and one rank's norms make them again.
static void check_activations(const char *recompute, int gathered) {
    char what[32];
    double stream_pages = 6.0 * 128 * 128 * 4 / PAGE, angle_pages = 6.0 * 128 * 16 * 4 / PAGE;
    snprintf(what, sizeof what, "tp 1 %s", recompute);
    pages alone = measure((mesh_cell){MESH(1, 1, 1, 1), .recompute = recompute}, what);
    for (int n = 2; n <= MOST_RANKS; n *= 2) {
        snprintf(what, sizeof what, "tp %d %s", n, recompute);
        pages p = measure((mesh_cell){MESH(1, 1, 1, n), .recompute = recompute}, what);
        double wanted = (double)alone.activations / n + (stream_pages + angle_pages) * (n - 1) / n + gathered * stream_pages;
        if (!(fabs((double)p.activations - wanted) <= 0.01 * wanted + 4)) // buffers need not begin and end where pages do
            fail_msg("%s: %zu pages of activations, %.0f by 1/tp", what, p.activations, wanted);
    }
}

static void tensor_and_sequence_parallelism_lay_activations_on_1_tpth(void **state) {
    (void)state;
    check_activations("full", 0);
    check_activations("none", 2 * 2);
}

// ---- pipelines ----
static job measure_pipeline(const char *schedule, int micros) {
    char batch[32];
    snprintf(batch, sizeof batch, "%d", micros);
    const char *more[] = {"--debug.poison", "--model.args.n_layers", "6", "--training.global_batch_size", "48", NULL};
    mesh_cell cell = {MESH(1, 1, 1, 1), .pp = MOST_RANKS, .schedule = schedule, .local_batch = micros, .more = more};
    job j = {0};
    ct_status status = mesh_on_ranks(&cell, 1, run_rank, &j, &j.config);
    if (status) fail_msg("%s of %d: %s", schedule, micros, ct_error_text(status));
    printf("%-22s %2d micro-batches, pages of saved activations of each rank:", schedule, micros);
    for (int r = 0; r < MOST_RANKS; r++) {
        const pages *p = &j.of[r];
        printf(" %zu", p->activations);
        if (p->strangers || p->missing) fail_msg("%s: rank %d touched %zu pages that are not planned, and not %zu that are", schedule, r, p->strangers, p->missing);
    }
    printf("\n");
    return j;
}

// The slots of every stage, all touched, and no more of them for 48 micro-batches than for 16, but where all forwards come first.
static void what_stages_save_is_what_is_planned_and_does_not_grow(void **state) {
    (void)state;
    static const char *const schedules[] = {"GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        job few = measure_pipeline(schedules[i], 16), many = measure_pipeline(schedules[i], 48);
        int grows = !strcmp(schedules[i], "GPipe") || !strcmp(schedules[i], "LoopedBFS");
        for (int r = 0; r < MOST_RANKS && !grows; r++) assert_int_equal(few.of[r].activations, many.of[r].activations);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fsdp_lays_states_on_1_nth_of_the_pages),
                                       cmocka_unit_test(tensor_and_sequence_parallelism_lay_activations_on_1_tpth),
                                       cmocka_unit_test(what_stages_save_is_what_is_planned_and_does_not_grow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
