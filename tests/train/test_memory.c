// The plan's memory is the run's: a run without pre-faulting touches exactly the planned pages; the extent is within 2 % of the largest
// sum of live bytes; the resident set grows by the plan and no more; a step allocates nothing.
#include "case.h"
#include "base/file.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- malloc counted (glibc lets a program define its own) ----
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
static _Thread_local long own_calls;
static atomic_long all_calls;
void *malloc(size_t n) { return own_calls++, atomic_fetch_add(&all_calls, 1), __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return own_calls++, atomic_fetch_add(&all_calls, 1), __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return own_calls++, atomic_fetch_add(&all_calls, 1), __libc_realloc(p, n); }

// The loader reads ahead on its own thread; here it has filled its ring and allocates no more.
static void wait_for_loader(void) {
    for (long last = -1; last != atomic_load(&all_calls); usleep(50000)) last = atomic_load(&all_calls);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    titan_case c;
    const char *o[] = {"--training.mixed_precision_param", "bfloat16", NULL};
    case_open(&c, "accumulate", o, NULL);
    ct_step_report r;
    assert_ok(ct_trainer_step(c.trainer, &r));
    free(malloc(1)); // the counter counts
    assert_true(own_calls > 0);
    wait_for_loader();
    long before_all = atomic_load(&all_calls);
    ct_exec_run(ct_trainer_exec(c.trainer), CT_PROGRAM_PROLOGUE);
    ct_exec_run(ct_trainer_exec(c.trainer), CT_PROGRAM_MICRO);
    ct_exec_run(ct_trainer_exec(c.trainer), CT_PROGRAM_UPDATE);
    long programs = atomic_load(&all_calls) - before_all, before = own_calls;
    for (int i = 0; i < 3; i++) assert_ok(ct_trainer_step(c.trainer, &r));
    printf("allocations of the programs on all threads: %ld; of whole steps on the trainer's thread: %ld\n", programs, own_calls - before);
    assert_int_equal(own_calls - before, 0);
    assert_int_equal(programs, 0);
    case_close(&c, 0);
}

// ---- pages ----
typedef struct {
    unsigned char *planned; // by 4 KiB page of the space
    size_t pages;
} page_map;

static void mark(page_map *m, size_t offset, size_t bytes) {
    for (size_t p = offset / 4096; bytes && p <= (offset + bytes - 1) / 4096; p++) m->planned[p] = 1;
}

static page_map planned_pages(const ct_plan *plan) {
    page_map m = {.pages = (plan->peak_bytes + 4095) / 4096};
    m.planned = calloc(m.pages, 1);
    for (int i = 0; i < plan->kept_count; i++) mark(&m, plan->kept[i].offset, plan->kept[i].bytes);
    for (int w = 0; w < CT_PROGRAMS; w++)
        for (int i = 0; i < plan->programs[w].buffers_count; i++)
            mark(&m, plan->programs[w].buffers[i].offset, plan->programs[w].buffers[i].bytes);
    return m;
}

static void compare_pages(ct_trainer *trainer, const char *what) {
    const ct_plan *plan = ct_trainer_plan(trainer);
    page_map m = planned_pages(plan);
    size_t bytes, planned = 0, resident = 0, strangers = 0, missing = 0;
    unsigned char *space = ct_exec_space(ct_trainer_exec(trainer), &bytes), *seen = calloc(m.pages, 1);
    assert_int_equal(mincore(space, m.pages * 4096, seen), 0);
    for (size_t p = 0; p < m.pages; p++) {
        planned += m.planned[p];
        resident += seen[p] & 1;
        strangers += (seen[p] & 1) && !m.planned[p];
        missing += !(seen[p] & 1) && m.planned[p];
    }
    printf("%s: %zu pages planned, %zu resident, %zu not planned, %zu not touched; extent %zu, live %zu (× %.4f)\n", what, planned, resident,
           strangers, missing, plan->peak_bytes, ct_plan_live_bytes(plan), (double)plan->peak_bytes / (double)ct_plan_live_bytes(plan));
    assert_int_equal(strangers, 0);
    assert_int_equal(missing, 0);
    if (ct_plan_live_bytes(plan) >= 16u << 20) assert_true((double)plan->peak_bytes <= 1.02 * (double)ct_plan_live_bytes(plan));
    free(m.planned);
    free(seen);
}

static void check_pages(const char *name, const char *const *overrides) {
    titan_case c;
    case_open(&c, name, overrides, NULL); // debug.poison: no page is touched beforehand
    ct_step_report r;
    double loss;
    int64_t tokens;
    assert_ok(ct_trainer_step(c.trainer, &r));
    if (c.config->validation.enable) assert_ok(ct_trainer_validate(c.trainer, &loss, &tokens));
    compare_pages(c.trainer, name);
    case_close(&c, 0);
}

static void the_pages_touched_are_the_planned_ones(void **state) {
    (void)state;
    static const char *const cases[] = {"base",   "gqa",      "accumulate",      "sqrt",           "cosine", "clip",
                                        "defaults", "validate", "rope", "long", "recompute_layer", "recompute_full"};
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 2; d++) {
            const char *o[] = {"--debug.poison", "--training.mixed_precision_param", dtypes[d], NULL};
            check_pages(cases[i], o);
        }
}

// ---- resident set ----
static size_t rss(void) {
    long long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(f, "%lld %lld", &total, &resident), 2);
    fclose(f);
    return (size_t)resident * 4096;
}

static void the_resident_set_grows_by_the_plan(void **state) {
    (void)state;
    static const char *const sizes[][2] = {{"4", "256"}, {"8", "512"}};
    for (int i = 0; i < 2; i++) {
        ct_arena arena = {0};
        ct_config *config;
        char *argv[] = {"--training.local_batch_size", (char *)sizes[i][0], "--training.seq_len", (char *)sizes[i][1]};
        assert_ok(ct_config_load(&arena, "tests/train/fixtures/titan/base/config.toml", 4, argv, &config));
        ct_model model;
        ct_step_options options;
        ct_step step;
        assert_ok(ct_setup_model(&arena, config, &model));
        assert_ok(ct_setup_step_options(&arena, config, &model, NULL, 0, &options));
        assert_ok(ct_step_make(&model, &options, &step));
        ct_team *team;
        ct_exec *exec;
        assert_ok(ct_team_create((ct_team_options){.threads = options.plan.threads, .first_core = -1}, &team));
        size_t before = rss();
        assert_ok(ct_exec_create(&step.plan, team, (ct_exec_options){0}, &exec));
        for (int k = 0; k < 2; k++) ct_exec_run(exec, CT_PROGRAM_MICRO), ct_exec_run(exec, CT_PROGRAM_UPDATE);
        size_t grown = rss() - before;
        printf("plan %.2f MB, resident set grew by %.2f MB\n", (double)step.plan.peak_bytes / 1e6, (double)grown / 1e6);
        double difference = (double)grown - (double)step.plan.peak_bytes;
        assert_true(difference <= 6e6 && difference >= -6e6); // 4 MB and one 2 MiB page of the space
        ct_exec_destroy(exec);
        ct_team_destroy(team);
        ct_step_deinit(&step);
        ct_arena_deinit(&arena);
    }
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(the_pages_touched_are_the_planned_ones),
        cmocka_unit_test(the_resident_set_grows_by_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
