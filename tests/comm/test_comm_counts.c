// Planned collectives and bytes are those that an observer counts who never saw the plan: without shared memory everything goes through MPI,
// where a preloaded library stands (pmpi_count.c). Two runs of different length are subtracted, so what happens once drops out. Where there is
// no MPI, it says so.
#include "../cli/command.h"

#include <cjson/cJSON.h>

#define SIZES " --training.global_batch_size 8 --training.local_batch_size 2 --checkpoint.no_enable --comm.no_shared_memory "

enum { MOST_TAGS = 64 }; // a tag is a set of mesh axes

typedef struct {
    double calls, bytes;
} amount;

static int has_observer(void) {
#ifdef PMPI_COUNT
    if (!system("command -v mpirun > /dev/null 2>&1")) return 1;
#endif
    printf("SKIPPED: there is no MPI\n");
    return 0;
}

static double number_of(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

// The bit of an axis, in the order of the plan's mesh, and its degree.
static unsigned bit_of(const cJSON *mesh, const char *axis, int *degree) {
    unsigned bit = 1;
    for (const cJSON *a = mesh->child; a; a = a->next, bit <<= 1)
        if (!strcmp(a->string, axis)) {
            *degree *= (int)a->valuedouble;
            return bit;
        }
    fail_msg("the mesh has no axis %s", axis);
    return 0;
}

// A step's messages to a rank, by tag: a collective gets one of each other member, where none goes round in a ring.
static void planned(scene *s, int ranks, const char *words, amount out[MOST_TAGS]) {
    memset(out, 0, sizeof(amount) * MOST_TAGS);
    if (run(s, "plan tests/train/fixtures/titan/base/config.toml --ranks %d --json" SIZES "%s", ranks, words)) fail_msg("%s", s->err);
    cJSON *plan = cJSON_Parse(s->out);
    assert_non_null(plan);
    const cJSON *mesh = cJSON_GetObjectItemCaseSensitive(plan, "mesh"), *c, *axis;
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(plan, "collectives")) {
        const char *program = cJSON_GetObjectItemCaseSensitive(c, "program")->valuestring;
        if (!strcmp(program, "eval") || !strcmp(program, "generate")) continue;
        unsigned tag = 0;
        int members = 1;
        cJSON_ArrayForEach(axis, cJSON_GetObjectItemCaseSensitive(c, "axis")) tag |= bit_of(mesh, axis->valuestring, &members);
        assert_true(tag < MOST_TAGS);
        out[tag].calls += number_of(c, "count") * (members - 1);
        out[tag].bytes += number_of(c, "count") * number_of(c, "moved_bytes");
    }
    cJSON_Delete(plan);
}

static void add_seen(scene *s, const char *run_name, int rank, const char *way, double factor, amount out[MOST_TAGS]) {
    char *name = ct_format("%s.%d", run_name, rank), *text = read_scene_file(s, name);
    cJSON *seen = cJSON_Parse(text), *m;
    assert_non_null(seen);
    assert_true(number_of(seen, "rank") == rank);
    cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(seen, way)) {
        int tag = (int)number_of(m, "tag");
        if (tag >= MOST_TAGS) continue; // between steps
        out[tag].calls += factor * number_of(m, "calls");
        out[tag].bytes += factor * number_of(m, "bytes");
    }
    cJSON_Delete(seen);
    free(text), free(name);
}

static void train(scene *s, int ranks, const char *words, const char *name, int steps) {
#ifdef PMPI_COUNT
    char *launcher = ct_format("mpirun --allow-run-as-root --oversubscribe -x LD_PRELOAD=%s -x CT_PMPI_COUNT=%s/%s -n %d", PMPI_COUNT, s->folder, name, ranks);
    s->launcher = launcher;
    if (run(s, BASE "%s-out --training.steps %d" SIZES "%s", name, steps, words)) fail_msg("%d ranks, %s: %s", ranks, words, s->err);
    s->launcher = NULL;
    free(launcher);
#else
    (void)s, (void)ranks, (void)words, (void)name, (void)steps;
#endif
}

typedef struct {
    int ranks, ring; // ring: fewer messages than members, some of them empty
    const char *words;
} mesh_case;

static void compare(scene *s, const mesh_case *m) {
    amount plan[MOST_TAGS], most[MOST_TAGS] = {{0}}, sent[MOST_TAGS] = {{0}}, received[MOST_TAGS] = {{0}};
    planned(s, m->ranks, m->words, plan);
    train(s, m->ranks, m->words, "two", 2);
    train(s, m->ranks, m->words, "four", 4);
    for (int r = 0; r < m->ranks; r++) {
        amount mine[MOST_TAGS] = {{0}};
        add_seen(s, "two", r, "receives", -0.5, mine), add_seen(s, "four", r, "receives", 0.5, mine);
        add_seen(s, "two", r, "receives", -0.5, received), add_seen(s, "four", r, "receives", 0.5, received);
        add_seen(s, "two", r, "sends", -0.5, sent), add_seen(s, "four", r, "sends", 0.5, sent);
        for (int t = 0; t < MOST_TAGS; t++)
            if (mine[t].bytes > most[t].bytes) most[t] = mine[t];
    }
    double total = 0;
    for (int t = 0; t < MOST_TAGS; t++) {
        total += most[t].bytes;
        if (sent[t].calls != received[t].calls || sent[t].bytes != received[t].bytes)
            fail_msg("%s: axes %d: %.0f bytes sent, %.0f received", m->words, t, sent[t].bytes, received[t].bytes);
        if (most[t].bytes != plan[t].bytes) fail_msg("%s: axes %d: %.0f bytes planned, %.0f seen", m->words, t, plan[t].bytes, most[t].bytes);
        if (!m->ring && most[t].calls != plan[t].calls)
            fail_msg("%s: axes %d: %.0f messages planned, %.0f seen", m->words, t, plan[t].calls, most[t].calls);
    }
    assert_true(total > 100000);
    printf("%d ranks %s: %.0f bytes a step and rank, as planned\n", m->ranks, m->words, total);
}

static void what_is_planned_is_what_an_observer_counts(void **state) {
    if (!has_observer()) skip();
    static const mesh_case cases[] = {
        {2, 0, ""},
        {4, 0, "--parallelism.tensor_parallel_degree 2"},
        {4, 0, "--parallelism.data_parallel_replicate_degree 2"},
        {4, 0, "--parallelism.context_parallel_degree 2 --training.mixed_precision_param bfloat16"},
        {3, 0, "--parallelism.tensor_parallel_degree 3"}, // uneven: the largest rank's bytes are planned
        {4, 1, "--parallelism.context_parallel_degree 4 --parallelism.context_parallel_rotate_method alltoall"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compare(*state, &cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_planned_is_what_an_observer_counts, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
