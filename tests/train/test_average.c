// The exponential moving average of the weights is what the formula says of the weights that each step left, on every mesh, and lives through
// stops. Expected averages are added up here in double.
#include "case.h"
#include "matrix.h"
#include "trainer_parts.h"
#include "base/file.h"

#include <math.h>
#include <unistd.h>

enum { STEPS = 7, MOST = 1 << 20 };

typedef struct {
    double decay;
    int warmup;
    int64_t start, interval;
} formula;

// The share of the weights of `step`, from 1; *count is the number of changes before.
static double share_of(const formula *f, int64_t step, int64_t *count) {
    if (step <= f->start) return 1;
    if ((step - f->start) % f->interval) return 0;
    double t = (double)(*count)++, warm = (1 + t) / (10 + t);
    return 1 - (f->warmup && warm < f->decay ? warm : f->decay);
}

static const formula formulas[] = {{0.9, 0, 0, 1}, {0.99, 1, 0, 1}, {0.7, 0, 3, 1}, {0.5, 1, 1, 2}, {0.3, 0, 0, 3}};
#define FORMULAS (sizeof formulas / sizeof *formulas)

// ---- one rank ----
typedef struct {
    char decay[16], start[16], interval[16];
    const char *overrides[24];
} given;

static void give(const formula *f, given *g, const char *const *more) {
    snprintf(g->decay, sizeof g->decay, "%g", f->decay);
    snprintf(g->start, sizeof g->start, "%lld", (long long)f->start);
    snprintf(g->interval, sizeof g->interval, "%lld", (long long)f->interval);
    const char *own[] = {"--optimizer.ema_decay", g->decay, "--optimizer.ema_start_step", g->start, "--optimizer.ema_interval", g->interval};
    int n = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) g->overrides[n++] = own[i];
    if (f->warmup) g->overrides[n++] = "--optimizer.ema_warmup";
    for (int i = 0; more && more[i]; i++) g->overrides[n++] = more[i];
    g->overrides[n] = NULL;
}

// What this rank holds of the averages, or else of the weights, one after the other. Returns their number.
static int64_t copy_state(const ct_trainer *t, int averages, float *out) {
    ct_arena arena = {0};
    int count;
    int64_t elems = 0;
    ct_named_tensor *list = ct_state_tensors(&arena, ct_trainer_view(t), averages ? CT_WITH_AVERAGE : 0, 0, &count);
    for (int i = 0; i < count; i++) {
        if (averages != !strncmp(list[i].name, "ema.", 4)) continue;
        int64_t n = 1;
        for (int d = 0; d < list[i].dims; d++) n *= list[i].box.extent[d];
        CT_ASSERT(elems + n <= MOST, "more than %d elements", MOST);
        memcpy(out + elems, list[i].data, sizeof(float) * (size_t)n);
        elems += n;
    }
    ct_arena_deinit(&arena);
    return elems;
}

// Trains, and compares the average with the formula after every step; the largest difference over the weights' own size.
static ct_status follow(ct_trainer *t, const formula *f, double *out_error) {
    float *weights = ct_calloc(MOST, sizeof *weights), *averages = ct_calloc(MOST, sizeof *averages);
    double *want = ct_calloc(MOST, sizeof *want);
    int64_t n = copy_state(t, 0, weights), count = 0;
    ct_status status = CT_OK;
    *out_error = copy_state(t, 1, averages) == n ? 0 : NAN;
    for (int64_t i = 0; i < n; i++) want[i] = weights[i];
    for (int64_t step = 1; step <= STEPS && !status; step++) {
        ct_step_report report;
        if ((status = ct_trainer_step(t, &report))) break;
        copy_state(t, 0, weights);
        copy_state(t, 1, averages);
        double share = share_of(f, step, &count);
        for (int64_t i = 0; i < n; i++) {
            want[i] += share * (weights[i] - want[i]);
            double error = fabs(averages[i] - want[i]) / (fabs(want[i]) + 1e-3);
            if (!(error <= *out_error)) *out_error = error;
        }
    }
    free(weights), free(averages), free(want);
    return status;
}

static void the_average_is_the_formulas(void **state) {
    (void)state;
    for (size_t k = 0; k < FORMULAS; k++) {
        given g;
        titan_case c;
        double error;
        give(&formulas[k], &g, NULL);
        case_open(&c, "base", g.overrides, NULL);
        assert_ok(follow(c.trainer, &formulas[k], &error));
        printf("decay %g: %.1e\n", formulas[k].decay, error);
        assert_true(error < 1e-6);
        case_close(&c, 0);
    }
}

// ---- meshes ----
typedef struct {
    const ct_config *config;
    const formula *formula;
    float *averages; // whole, by parameter: every rank writes what it speaks for
    double errors[16];
} mesh_job;

static int64_t place_of(const ct_trainer *t, const char *name) {
    int64_t at = 0;
    for (int i = 0; i < t->model.parameters_count; i++) {
        if (!strcmp(t->model.parameters[i].name, name)) return at;
        at += ct_type_elems(&t->model.parameters[i].type);
    }
    return -1;
}

static void put_whole(const ct_trainer *t, float *out) {
    ct_arena arena = {0};
    int count;
    ct_named_tensor *list = ct_state_tensors(&arena, ct_trainer_view(t), CT_WITH_AVERAGE, 1, &count);
    for (int i = 0; i < count; i++) {
        const ct_named_tensor *x = &list[i];
        if (strncmp(x->name, "ema.", 4)) continue;
        int64_t rows = x->box.extent[0], columns = x->dims > 1 ? x->box.extent[1] : 1, width = x->dims > 1 ? x->shape[1] : 1;
        float *to = out + place_of(t, x->name + 4);
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + (x->box.offset[0] + r) * width + (x->dims > 1 ? x->box.offset[1] : 0), (const float *)x->data + r * columns,
                   sizeof(float) * (size_t)columns);
    }
    ct_arena_deinit(&arena);
}

static ct_status follow_rank(void *context, ct_comm *comm) {
    mesh_job *j = context;
    ct_trainer *t;
    CT_TRY(ct_trainer_create(j->config, comm, &t));
    ct_status status = follow(t, j->formula, &j->errors[ct_comm_rank(comm)]);
    if (!status) put_whole(t, j->averages);
    ct_trainer_destroy(t);
    return status;
}

static float *on_mesh(mesh_cell cell, const formula *f, const char *const *more) {
    given g;
    give(f, &g, more);
    cell.more = g.overrides;
    mesh_job j = {.formula = f, .averages = ct_calloc(MOST, sizeof(float))};
    assert_ok(mesh_on_ranks(&cell, STEPS, follow_rank, &j, &j.config));
    char name[160];
    mesh_print(&cell, name, sizeof name);
    for (int r = 0; r < mesh_ranks(&cell); r++)
        if (!(j.errors[r] < 1e-6)) fail_msg("%s: rank %d is off by %.1e", name, r, j.errors[r]);
    return j.averages;
}

static double difference(const float *a, const float *b) {
    double worst = 0;
    for (int64_t i = 0; i < MOST; i++) {
        double error = fabs((double)a[i] - b[i]);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static void every_mesh_has_the_formulas_average(void **state) {
    (void)state;
    static const char *const tied[] = {"--model.args.enable_weight_tying", NULL};
    const formula *f = &formulas[1];
    float *alone = on_mesh((mesh_cell){MESH(1, 1, 1, 1)}, f, NULL);
    const mesh_cell same[] = {{MESH(2, 1, 1, 1)}, {MESH(1, 3, 1, 1)}, {MESH(2, 2, 1, 1)}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        float *r = on_mesh(same[i], f, NULL);
        assert_memory_equal(r, alone, sizeof(float) * MOST);
        free(r);
    }
    const mesh_cell near[] = {{MESH(1, 1, 2, 1)}, {MESH(1, 1, 1, 3)}, {MESH(1, 2, 1, 2)},
                              {MESH(1, 2, 1, 1), .pp = 2, .local_batch = 4}};
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        float *r = on_mesh(near[i], f, NULL);
        printf("mesh %zu: %.1e\n", i, difference(r, alone));
        assert_true(difference(r, alone) < 1e-4);
        free(r);
    }
    free(alone);
    alone = on_mesh((mesh_cell){MESH(1, 1, 1, 1)}, f, tied);
    float *piped = on_mesh((mesh_cell){MESH(1, 1, 1, 1), .pp = 2, .local_batch = 4}, f, tied); // both stages hold the tied weight
    assert_memory_equal(piped, alone, sizeof(float) * MOST);
    free(alone), free(piped);
}

// ---- validation ----
// A rank's averages where its weights are, and back.
static ct_status validate_rank(void *context, ct_comm *comm) {
    mesh_job *j = context;
    ct_trainer *t;
    CT_TRY(ct_trainer_create(j->config, comm, &t));
    float *before = ct_calloc(MOST, sizeof *before), *after = ct_calloc(MOST, sizeof *after);
    double plain, average, put, again;
    int64_t tokens;
    ct_step_report report;
    ct_status status = ct_trainer_step(t, &report);
    if (!status) status = ct_trainer_step(t, &report);
    int64_t n = copy_state(t, 0, before);
    if (!status) status = ct_trainer_validate(t, &plain, &tokens);
    if (!status) status = ct_trainer_validate_average(t, &average, &tokens);
    copy_state(t, 0, after);
    int is_same = !memcmp(before, after, sizeof(float) * (size_t)n);
    if (!status) status = ct_trainer_validate(t, &again, &tokens);
    for (int i = 0; i < t->model.parameters_count && !status; i++) { // by hand
        ct_arena arena = {0};
        const char *name = t->model.parameters[i].name, *of = ct_average_name(&arena, name);
        int owner;
        if (ct_state_is_here(&t->step, of)) {
            ct_region region = ct_region_of_state(&t->step, t->rank, of, &owner);
            size_t bytes = sizeof(float);
            for (int d = 0; d < t->model.parameters[i].type.dims_count; d++) bytes *= (size_t)region.extent[d];
            memcpy(ct_exec_data(t->exec, name), ct_exec_data(t->exec, of), bytes);
        }
        ct_arena_deinit(&arena);
    }
    if (!status) status = ct_trainer_validate(t, &put, &tokens);
    if (!status && !(is_same && plain == again && average == put && average != plain))
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "same %d, weights %.9g then %.9g, average %.9g, by hand %.9g", is_same, plain, again, average, put);
    if (!status && !ct_comm_rank(comm)) j->errors[0] = average;
    ct_trainer_destroy(t);
    free(before), free(after);
    return status;
}

static void validation_takes_the_average_and_gives_the_weights_back(void **state) {
    (void)state;
    static const char *const more[] = {"--validation.enable", "--validation.seq_len", "96", "--validation.local_batch_size", "1",
                                       "--validation.steps", "6", "--validation.dataset", "c4_test", "--validation.dataset_path",
                                       "tests/train/fixtures/titan/text", NULL};
    const mesh_cell cells[] = {{MESH(1, 1, 1, 1)}, {MESH(1, 1, 1, 1), .dtype = "bfloat16"}, {MESH(2, 2, 1, 1)}, {MESH(1, 2, 1, 2), .dtype = "bfloat16"},
                               {MESH(1, 1, 2, 1)}, {MESH(1, 2, 1, 1), .pp = 2, .local_batch = 4}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        given g;
        give(&formulas[0], &g, more);
        mesh_cell cell = cells[i];
        cell.more = g.overrides;
        mesh_job j = {0};
        assert_ok(mesh_on_ranks(&cell, STEPS, validate_rank, &j, &j.config));
        printf("validation of the average: %.7g\n", j.errors[0]);
    }
}

// ---- stops ----
static void run_to(titan_case *c, int64_t until) {
    while (ct_trainer_position(c->trainer) < until) {
        ct_step_report r;
        assert_ok(ct_trainer_step(c->trainer, &r));
    }
}

// Trains `first` steps, saves, and opens the folder again with other keys.
static void reopen(titan_case *c, const char *const *before, int64_t first, const char *const *after) {
    case_open(c, "base", before, NULL);
    run_to(c, first);
    assert_ok(ct_trainer_save(c->trainer, 0));
    char *dump = ct_strdup(c->dump);
    case_close(c, 1);
    case_open(c, "base", after, dump);
    assert_int_equal(ct_trainer_position(c->trainer), first);
    free(dump);
}

static void a_stop_changes_no_bit_of_the_average(void **state) {
    (void)state;
    float *whole = ct_calloc(MOST, sizeof *whole), *parts = ct_calloc(MOST, sizeof *parts);
    for (size_t k = 0; k < FORMULAS; k++) {
        given g;
        titan_case c;
        give(&formulas[k], &g, NULL);
        case_open(&c, "base", g.overrides, NULL);
        run_to(&c, STEPS);
        copy_state(c.trainer, 1, whole);
        case_close(&c, 0);
        reopen(&c, g.overrides, 4, g.overrides);
        run_to(&c, STEPS);
        copy_state(c.trainer, 1, parts);
        assert_memory_equal(whole, parts, sizeof(float) * MOST);
        case_close(&c, 0);
    }
    free(whole), free(parts);
}

static void an_average_begins_with_the_weights_of_a_checkpoint_without_one(void **state) {
    (void)state;
    float *weights = ct_calloc(MOST, sizeof *weights), *averages = ct_calloc(MOST, sizeof *averages);
    given g;
    titan_case c;
    give(&formulas[1], &g, NULL);
    reopen(&c, NULL, 3, g.overrides);
    assert_true(copy_state(c.trainer, 0, weights) > 0 && copy_state(c.trainer, 1, averages) > 0);
    assert_memory_equal(weights, averages, sizeof(float) * MOST);
    assert_int_equal(c.trainer->averaged, 0);
    case_close(&c, 0);
    memset(averages, 0, sizeof(float) * MOST);
    reopen(&c, g.overrides, 3, NULL); // and one that nobody wants is dropped
    assert_int_equal(copy_state(c.trainer, 1, averages), 0);
    run_to(&c, 4);
    case_close(&c, 0);
    free(weights), free(averages);
}

// Another mesh goes on from a checkpoint: the averages that it loads are the ones saved.
static ct_status load_rank(void *context, ct_comm *comm) {
    mesh_job *j = context;
    ct_trainer *t;
    CT_TRY(ct_trainer_create(j->config, comm, &t));
    put_whole(t, j->averages);
    ct_step_report report;
    ct_status status = ct_trainer_step(t, &report);
    ct_trainer_destroy(t);
    return status;
}

static ct_status save_rank(void *context, ct_comm *comm) {
    mesh_job *j = context;
    ct_trainer *t;
    CT_TRY(ct_trainer_create(j->config, comm, &t));
    ct_step_report report;
    ct_status status = ct_trainer_step(t, &report);
    if (!status) status = ct_trainer_step(t, &report);
    if (!status) put_whole(t, j->averages);
    if (!status) status = ct_trainer_save(t, 0);
    ct_trainer_destroy(t);
    return status;
}

static void another_mesh_loads_the_average(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_average_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char beside[64]; // the dump folder, which is another one each time
    snprintf(beside, sizeof beside, "../%s", strrchr(folder, '/') + 1);
    const char *to[] = {"--checkpoint.enable", "--checkpoint.folder", beside, NULL};
    given g;
    give(&formulas[0], &g, to);
    mesh_job saved = {.averages = ct_calloc(MOST, sizeof(float))};
    mesh_cell from = {MESH(1, 3, 1, 1), .more = g.overrides};
    assert_ok(mesh_on_ranks(&from, STEPS, save_rank, &saved, &saved.config));
    const mesh_cell others[] = {{MESH(1, 1, 1, 1)}, {MESH(1, 2, 1, 2)}, {MESH(1, 1, 1, 1), .pp = 2, .local_batch = 4}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        mesh_job loaded = {.averages = ct_calloc(MOST, sizeof(float))};
        mesh_cell cell = others[i];
        cell.more = g.overrides;
        assert_ok(mesh_on_ranks(&cell, STEPS, load_rank, &loaded, &loaded.config));
        assert_memory_equal(loaded.averages, saved.averages, sizeof(float) * MOST);
        free(loaded.averages);
    }
    free(saved.averages);
    assert_ok(ct_folder_remove(folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_average_is_the_formulas),
        cmocka_unit_test(every_mesh_has_the_formulas_average),
        cmocka_unit_test(validation_takes_the_average_and_gives_the_weights_back),
        cmocka_unit_test(a_stop_changes_no_bit_of_the_average),
        cmocka_unit_test(an_average_begins_with_the_weights_of_a_checkpoint_without_one),
        cmocka_unit_test(another_mesh_loads_the_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
