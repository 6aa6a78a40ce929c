// The searched schedule: as fast as every named one on the same stages in the same memory, within 1 %, whatever stages cost; no bubble where the paper has
// none; never more memory than allowed; always the same one.
#include "schedule/schedule.h"
#include "base/file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

static void assert_says(ct_status status, const char *text) {
    assert_non_null(status);
    if (!strstr(ct_error_text(status), text)) fail_msg("\"%s\" does not say \"%s\"", ct_error_text(status), text);
}

// It runs, each action once; forwards, input gradients and weight gradients of a stage ascend; nobody saves more than allowed. Returns its step.
static double check(const ct_schedule_problem *of, const ct_schedule *s) {
    assert_ok(ct_schedule_verify(s));
    int *next = ct_calloc((size_t)s->stages * CT_ACT_KINDS, sizeof *next);
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->of[r].count; i++) {
            ct_action a = s->of[r].list[i];
            assert_true(a.act == CT_ACT_F || a.act == CT_ACT_I || a.act == CT_ACT_W);
            assert_int_equal(a.micro, next[a.stage * CT_ACT_KINDS + (int)a.act]++);
        }
    free(next);
    ct_schedule_times t;
    ct_schedule_simulate(s, of->costs, of->transfer_s, &t);
    for (int r = 0; r < s->ranks; r++)
        if (t.peak_bytes[r] > of->limit_bytes[r] * (1 + 1e-9)) fail_msg("rank %d saves %g, allowed are %g", r, t.peak_bytes[r], of->limit_bytes[r]);
    double step_s = t.step_s;
    ct_schedule_times_deinit(&t);
    return step_s;
}

// ---- against the named ones ----
enum { EVEN, LATE_HEAD, RAGGED, CASES };

// F = I = W; 2 : 2 : 1 with a last stage half as dear again; a light embedding and layers that differ. Returns what a message takes.
static double set_costs(int which, int stages, ct_stage_cost *costs) {
    for (int k = 0; k < stages; k++) {
        if (which == EVEN) costs[k] = (ct_stage_cost){1, 1, 1, 1};
        if (which == LATE_HEAD) costs[k] = k == stages - 1 ? (ct_stage_cost){3, 3, 2, 1} : (ct_stage_cost){2, 2, 1, 1};
        if (which == RAGGED) costs[k] = (ct_stage_cost){1, 1.1 + 0.1 * (k % 3), k ? 0.9 : 0.5, 1};
    }
    return which == EVEN ? 0 : which == LATE_HEAD ? 0.1 : 0.05;
}

static void check_against(const char *name, int ranks, int local, int micros, int which) {
    ct_schedule named, found;
    if (ct_schedule_make(name, ranks, local, micros, &named)) return; // not of this size
    ct_stage_cost costs[64];
    double transfer_s = set_costs(which, named.stages, costs);
    ct_schedule_times t;
    ct_schedule_simulate(&named, costs, transfer_s, &t);
    ct_schedule_problem problem = {ranks, named.stages, micros, named.rank_of, costs, transfer_s, t.peak_bytes};
    assert_ok(ct_schedule_search(&problem, &found));
    double step_s = check(&problem, &found);
    if (step_s > 1.01 * t.step_s)
        fail_msg("%s, %d ranks of %d stages, %d micro-batches, costs %d: %g s, found are %g s", name, ranks, local, micros, which, t.step_s, step_s);
    ct_schedule_times_deinit(&t);
    ct_schedule_deinit(&named), ct_schedule_deinit(&found);
}

static void it_is_as_fast_as_every_named_one_in_its_memory(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int local;
    } named[] = {{"GPipe", 1}, {"1F1B", 1}, {"LoopedBFS", 2}, {"Interleaved1F1B", 2}, {"Interleaved1F1B", 3}, {"InterleavedZeroBubble", 1},
                 {"InterleavedZeroBubble", 2}, {"ZBVZeroBubble", 2}, {"DualPipeV", 2}};
    static const int sizes[][2] = {{2, 4}, {3, 6}, {4, 8}, {4, 16}, {8, 16}, {16, 32}};
    for (size_t n = 0; n < sizeof named / sizeof *named; n++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int which = 0; which < CASES; which++) check_against(named[n].name, sizes[i][0], named[n].local, sizes[i][1], which);
}

// ---- by the paper ----

// With 2p − 1 saved micro-batches and F = I = W the bubble is (p − 1)(F + I − 2W) = 0 (ZB-H2, Qi et al. 2023, table 2): the last rank waits for its first
// forward and then never. With p it is at most (p − 1)(F + I − W) (ZB-H1).
static void bubbles_are_those_of_the_paper(void **state) {
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 2 * p; m <= 6 * p; m += 2 * p) {
            ct_stage_cost costs[8];
            set_costs(EVEN, p, costs);
            int slots[] = {2 * p - 1, p};
            for (int i = 0; i < 2; i++) {
                ct_schedule s;
                ct_schedule_times t;
                assert_ok(ct_schedule_auto(p, 1, m, costs, 0, slots[i], &s));
                ct_schedule_simulate(&s, costs, 0, &t);
                double want = i ? 3.0 * m + (p - 1) * (1 + 1 - 1) : 3.0 * m + (p - 1);
                if (t.step_s > want + 1e-9) fail_msg("%d ranks, %d micro-batches, %d slots: %g s, by the paper %g", p, m, slots[i], t.step_s, want);
                for (int r = 0; r < p; r++) assert_true(t.peak_bytes[r] <= slots[i]);
                ct_schedule_times_deinit(&t);
                ct_schedule_deinit(&s);
            }
        }
}

// ---- memory ----
static void memory_stays_within_every_limit(void **state) {
    (void)state;
    enum { RANKS = 3, STAGES = 9, MICROS = 7 };
    static const int loop[] = {0, 1, 2, 0, 1, 2, 0, 1, 2}, vee[] = {0, 1, 2, 2, 1, 0, 0, 1, 2}, odd[] = {2, 2, 0, 1, 0, 1, 1, 0, 2};
    static const int *const places[] = {loop, vee, odd};
    for (int place = 0; place < 3; place++)
        for (int more = 0; more <= 12; more++) {
            ct_stage_cost costs[STAGES];
            double limits[RANKS] = {0}, before = INFINITY;
            for (int k = 0; k < STAGES; k++) {
                costs[k] = (ct_stage_cost){1 + k % 2, 1.5, 0.25 * (k % 4), 100 + 37 * (k * k % 5)};
                limits[places[place][k]] += costs[k].saved_bytes;
            }
            for (int r = 0; r < RANKS; r++) limits[r] += 90 * more; // the least that runs, and more
            ct_schedule_problem problem = {RANKS, STAGES, MICROS, places[place], costs, 0.2, limits};
            ct_schedule a, b;
            assert_ok(ct_schedule_search(&problem, &a));
            assert_ok(ct_schedule_search(&problem, &b));
            double step_s = check(&problem, &a);
            assert_true(step_s <= 1.05 * before); // more memory doesn't hurt, but for what a search misses
            before = step_s < before ? step_s : before;
            for (int r = 0; r < RANKS; r++) {
                assert_int_equal(a.of[r].count, b.of[r].count);
                for (int i = 0; i < a.of[r].count; i++) assert_memory_equal(&a.of[r].list[i], &b.of[r].list[i], sizeof(ct_action));
            }
            ct_schedule_deinit(&a), ct_schedule_deinit(&b);
        }
}

static void too_little_memory_is_an_error(void **state) {
    (void)state;
    ct_stage_cost costs[4] = {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}};
    ct_schedule s;
    assert_says(ct_schedule_auto(2, 2, 4, costs, 0, 1, &s), "rank 0 may save 1 at once, but one micro-batch of its stages takes 2");
    assert_ok(ct_schedule_auto(2, 2, 4, costs, 0, 2, &s));
    ct_schedule_deinit(&s);
    const int rank_of[] = {0, 1};
    ct_stage_cost sized[] = {{1, 1, 1, 100}, {1, 1, 1, 300}};
    const double limits[] = {100, 299};
    ct_schedule_problem problem = {2, 2, 4, rank_of, sized, 0, limits};
    assert_says(ct_schedule_search(&problem, &s), "rank 1 may save 299 at once, but one micro-batch of its stages takes 300");
    assert_says(ct_schedule_auto(2, 2, 0, costs, 0, 0, &s), "at least 1 of each");
}

// ---- costs from a file ----
static ct_status read_text(const char *text, int stages, ct_stage_cost *out) {
    char path[] = "/tmp/ctitan_costs_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(ct_file_write_atomic(path, text, strlen(text)));
    ct_status status = ct_schedule_read_costs(path, stages, out);
    unlink(path);
    return status;
}

static void costs_are_read_or_refused_where_they_are_wrong(void **state) {
    (void)state;
    ct_stage_cost c[2];
    assert_ok(read_text("stage,forward_s,input_grad_s,weight_grad_s\n0,0.5,0,0.25\n1,1e-3,2,3\r\n", 2, c));
    assert_true(c[0].forward_s == 0.5 && c[0].input_grad_s == 0 && c[0].weight_grad_s == 0.25 && c[0].saved_bytes == 1);
    assert_true(c[1].forward_s == 1e-3 && c[1].input_grad_s == 2 && c[1].weight_grad_s == 3);
    assert_ok(read_text("0,1,1,1\n1,1,1,1", 2, c));
    assert_says(read_text("0,1,1,1\n", 2, c), "costs of 1 stages, 2 are wanted");
    assert_says(read_text("0,1,1,1\n1,1,1,1\n2,1,1,1\n", 2, c), ":3: a line too many: there are 2 stages");
    assert_says(read_text("0,1,1,1\n0,1,1,1\n", 2, c), ":2: stage 0 where stage 1 is wanted");
    assert_says(read_text("0,1,1\n1,1,1,1\n", 2, c), ":1: \"0,1,1\": stage, and seconds");
    assert_says(read_text("0,1,-1,1\n1,1,1,1\n", 2, c), ":1: \"0,1,-1,1\"");
    assert_says(read_text("0,1,nan,1\n1,1,1,1\n", 2, c), ":1: \"0,1,nan,1\"");
    assert_says(read_text("0,1,1,1,1\n1,1,1,1\n", 2, c), ":1: \"0,1,1,1,1\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_as_fast_as_every_named_one_in_its_memory), cmocka_unit_test(bubbles_are_those_of_the_paper),
                                       cmocka_unit_test(memory_stays_within_every_limit), cmocka_unit_test(too_little_memory_is_an_error),
                                       cmocka_unit_test(costs_are_read_or_refused_where_they_are_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
