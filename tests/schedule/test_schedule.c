// Schedules against the papers: bubbles in closed form, how many micro-batches a stage saves, small ones written down by hand from their definitions;
// whatever is taken out, put in twice or moved in one is found; files with faults are refused where the fault is.
#include "schedule/schedule.h"
#include "base/file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const names[] = {"GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"};
enum { NAMES = sizeof names / sizeof *names };

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

static ct_schedule make(const char *name, int ranks, int local, int micros) {
    ct_schedule s;
    assert_ok(ct_schedule_make(name, ranks, local, micros, &s));
    return s;
}

static ct_schedule_times times_of(const ct_schedule *s, double f, double i, double w) {
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)s->stages);
    for (int k = 0; k < s->stages; k++) costs[k] = (ct_stage_cost){f, i, w, 1};
    ct_schedule_times t;
    ct_schedule_simulate(s, costs, 0, &t);
    free(costs);
    return t;
}

// ---- every size ----
static int is_legal(const char *name, int ranks, int local, int micros) {
    ct_schedule s;
    ct_status status = ct_schedule_make(name, ranks, local, micros, &s);
    if (!status) ct_schedule_deinit(&s);
    return !status;
}

static void check_order(const ct_schedule *s) {
    int *last = ct_malloc(sizeof(int) * (size_t)s->stages);
    for (int k = 0; k < s->stages; k++) last[k] = -1;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->of[r].count; i++) {
            ct_action a = s->of[r].list[i];
            if (a.act != CT_ACT_W && a.act != CT_ACT_B) continue;
            if (a.micro != last[a.stage] + 1) fail_msg("%s: weight gradients of stage %d: %d after %d", s->name, a.stage, a.micro, last[a.stage]);
            last[a.stage] = a.micro;
        }
    free(last);
}

// A stage's weights are gathered once, before all its forwards, and its gradients added up once, behind all its weight gradients.
static void check_once(const ct_schedule *lowered) {
    for (int k = 0; k < lowered->stages; k++) {
        const ct_actions *list = &lowered->of[lowered->rank_of[k]];
        int gathered = 0, reduced = 0, ended = 0;
        for (int i = 0; i < list->count; i++) {
            ct_action a = list->list[i];
            if (a.stage != k) continue;
            gathered += a.act == CT_ACT_UNSHARD;
            ended += a.act == CT_ACT_W || a.act == CT_ACT_B;
            if (a.act == CT_ACT_F) assert_int_equal(gathered, 1);
            if (a.act == CT_ACT_REDUCE) assert_int_equal(ended, lowered->micros), reduced++;
        }
        assert_int_equal(gathered, 1);
        assert_int_equal(reduced, 1);
    }
}

// No two micro-batches have a slot at once.
static void check_slots(const ct_schedule *s) {
    int *counts = ct_malloc(sizeof(int) * (size_t)s->stages * CT_POOLS), *slots = ct_malloc(sizeof(int) * (size_t)s->stages * (size_t)s->micros * CT_POOLS);
    ct_schedule_slots(s, counts, slots);
    for (int k = 0; k < s->stages; k++) {
        int holder[CT_POOLS][512];
        memset(holder, 0xff, sizeof holder);
        const ct_actions *list = &s->of[s->rank_of[k]];
        for (int i = 0; i < list->count; i++) {
            ct_action a = list->list[i];
            if (a.stage != k) continue;
            const int *mine = slots + (k * s->micros + a.micro) * CT_POOLS;
            if (a.act == CT_ACT_F)
                for (int pool = 0; pool < 2; pool++) {
                    assert_true(mine[pool] >= 0 && mine[pool] < counts[k * CT_POOLS + pool]);
                    assert_int_equal(holder[pool][mine[pool]], -1);
                    holder[pool][mine[pool]] = a.micro;
                }
            if (a.act == CT_ACT_I || a.act == CT_ACT_B) {
                assert_int_equal(holder[0][mine[0]], a.micro);
                holder[0][mine[0]] = -1;
            }
            if (a.act == CT_ACT_W || a.act == CT_ACT_B) {
                assert_int_equal(holder[1][mine[1]], a.micro);
                holder[1][mine[1]] = -1;
            }
        }
    }
    free(counts);
    free(slots);
}

static void schedules_of_all_sizes_end(void **state) {
    (void)state;
    int checked = 0;
    for (int n = 0; n < NAMES; n++)
        for (int p = 1; p <= 8; p++)
            for (int v = 1; v <= 4; v++)
                for (int m = 1; m <= 33; m += m < 9 ? 1 : 4) {
                    if (!is_legal(names[n], p, v, m)) continue;
                    ct_schedule s = make(names[n], p, v, m), lowered;
                    assert_ok(ct_schedule_verify(&s));
                    assert_ok(ct_schedule_lower(&s, &lowered));
                    assert_ok(ct_schedule_verify(&lowered));
                    check_order(&s);
                    check_once(&lowered);
                    check_slots(&lowered);
                    ct_schedule_deinit(&s);
                    ct_schedule_deinit(&lowered);
                    checked++;
                }
    printf("%d schedules\n", checked);
    assert_true(checked > 1000);
}

// ---- bubbles ----
static void near(const char *what, int p, int m, double got, double want) {
    if (!(fabs(got - want) < 1e-12)) fail_msg("%s, %d ranks, %d micro-batches: bubble %.15g, by the formula %.15g", what, p, m, got, want);
}

static void bubbles_have_their_closed_forms(void **state) {
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 6 * p; m += p) {
            // (p − 1) / (m + p − 1) whatever a backward costs
            ct_schedule s = make("1F1B", p, 1, m), g = make("GPipe", p, 1, m);
            ct_schedule_times t = times_of(&s, 1, 1, 1), u = times_of(&g, 1, 1, 1), x = times_of(&s, 1, 1.5, 0.7);
            near("1F1B", p, m, ct_schedule_bubble(&t), (p - 1.0) / (m + p - 1));
            near("1F1B, uneven costs", p, m, ct_schedule_bubble(&x), (p - 1.0) / (m + p - 1));
            near("GPipe", p, m, ct_schedule_bubble(&u), (p - 1.0) / (m + p - 1));
            // 1F1B costs m (F + I + W) + (p − 1)(F + I + W)
            assert_true(fabs(t.step_s - 3.0 * (m + p - 1)) < 1e-9);
            ct_schedule_times_deinit(&t), ct_schedule_times_deinit(&u), ct_schedule_times_deinit(&x);
            ct_schedule_deinit(&s), ct_schedule_deinit(&g);
            for (int v = 2; v <= 4; v++) { // interleaved: (p − 1) / (v m + p − 1); zero bubble: (p − 1)(F + I − W) of idle time
                ct_schedule i = make("Interleaved1F1B", p, v, m), z = make("InterleavedZeroBubble", p, 1, m);
                ct_schedule_times a = times_of(&i, 1, 1, 1), b = times_of(&z, 1, 1, 1);
                near("Interleaved1F1B", p, m, ct_schedule_bubble(&a), (p - 1.0) / (v * m + p - 1));
                near("ZB-H1", p, m, ct_schedule_bubble(&b), (p - 1.0) * (1 + 1 - 1) / (3 * m + (p - 1)));
                ct_schedule_times_deinit(&a), ct_schedule_times_deinit(&b);
                ct_schedule_deinit(&i), ct_schedule_deinit(&z);
            }
        }
}

// ZB-V with F = I = W: from its first action to its last a rank never waits.
static void zero_bubble_v_has_none(void **state) {
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 2 * p; m <= 6 * p; m += p) {
            ct_schedule s = make("ZBVZeroBubble", p, 2, m);
            ct_schedule_times t = times_of(&s, 1, 1, 1);
            for (int r = 0; r < p; r++) {
                double span = t.of[r][s.of[r].count - 1].end_s - t.of[r][0].begin_s;
                if (fabs(span - t.busy_s[r]) > 1e-9) fail_msg("ZBV, %d ranks, %d micro-batches: rank %d waits %g", p, m, r, span - t.busy_s[r]);
            }
            ct_schedule_times_deinit(&t);
            ct_schedule_deinit(&s);
        }
}

// ---- memory ----
static void stages_save_no_more_than_their_bounds(void **state) {
    (void)state;
    for (int n = 0; n < NAMES; n++)
        for (int p = 2; p <= 8; p++)
            for (int m = 4 * p; m <= 8 * p; m += 2 * p) {
                int local = n < 2 ? 1 : 2;
                ct_schedule s = make(names[n], p, local, m), lowered;
                assert_ok(ct_schedule_lower(&s, &lowered));
                int counts[64 * CT_POOLS], *slots = ct_malloc(sizeof(int) * (size_t)s.stages * (size_t)m * CT_POOLS);
                ct_schedule_slots(&lowered, counts, slots);
                for (int k = 0; k < s.stages; k++) {
                    int saved = counts[k * CT_POOLS + CT_POOL_TO_WEIGHT_GRAD], bound = m;
                    if (n == 1) bound = p - k;                 // 1F1B: min(m, p − s)
                    if (n == 3) bound = (2 * (p - k % p - 1) + p) / 1 + 1; // of a rank's two stages together; each has fewer
                    if (n >= 4) bound = 2 * p;                 // no more than ZB-2p
                    if (saved > bound) fail_msg("%s on %d ranks: stage %d saves %d micro-batches, at most %d", names[n], p, k, saved, bound);
                    if (n == 0) assert_int_equal(saved, m);
                    if (n == 1) assert_int_equal(saved, p - k);
                }
                free(slots);
                ct_schedule_deinit(&s), ct_schedule_deinit(&lowered);
            }
}

// ---- by hand ----
static void check_rank(const ct_schedule *s, int rank, const char *want) {
    ct_string got = {0};
    for (int i = 0; i < s->of[rank].count; i++) {
        char text[48];
        ct_action_print(s->of[rank].list[i], text, sizeof text);
        ct_string_add(&got, "%s%s", i ? " " : "", text);
    }
    assert_string_equal(got.text, want);
    ct_string_deinit(&got);
}

static void small_ones_are_as_defined(void **state) {
    (void)state;
    ct_schedule s = make("1F1B", 2, 1, 4), lowered;
    check_rank(&s, 0, "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3");
    check_rank(&s, 1, "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
    assert_ok(ct_schedule_lower(&s, &lowered));
    check_rank(&lowered, 1, "1RECV_F0 1UNSHARD 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 1RECV_F3 1F3 1B3 1SEND_B3 "
                            "1REDUCE_GRAD");
    ct_schedule_deinit(&s), ct_schedule_deinit(&lowered);
    s = make("InterleavedZeroBubble", 2, 1, 3);
    check_rank(&s, 0, "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
    check_rank(&s, 1, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2");
    ct_schedule_deinit(&s);
    s = make("ZBVZeroBubble", 2, 2, 4); // warm-up 2(p − r) − 1 F0, r × (F1 F0), (p − r) × (F1 I1 W1), then F0 I0 W0 F1 I1 W1
    check_rank(&s, 0, "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3");
    check_rank(&s, 1, "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3");
    ct_schedule_deinit(&s);
}

// ---- faults ----
static void remove_at(ct_actions *a, int i) {
    memmove(a->list + i, a->list + i + 1, sizeof *a->list * (size_t)(--a->count - i));
}

static void missing_and_double_actions_are_found(void **state) {
    (void)state;
    int found = 0;
    for (int n = 0; n < NAMES; n++)
        for (int r = 0; r < 3; r++)
            for (int i = 0;; i++) {
                ct_schedule s = make(names[n], 3, n < 2 ? 1 : 2, 6);
                ct_actions *a = &s.of[r];
                if (i >= a->count) {
                    ct_schedule_deinit(&s);
                    break;
                }
                ct_action taken = a->list[i];
                remove_at(a, i);
                assert_non_null(ct_schedule_verify(&s));
                CT_GROW(a->list, a->count, a->capacity);
                a->list[a->count++] = taken; // late: it may still be legal, but for what waits for it
                (void)ct_schedule_verify(&s);
                CT_GROW(a->list, a->count, a->capacity);
                a->list[a->count++] = taken;
                assert_non_null(ct_schedule_verify(&s)); // twice
                a->list[a->count - 1] = (ct_action){CT_ACT_F, (taken.stage + 1) % s.stages, 0};
                assert_non_null(ct_schedule_verify(&s)); // another rank's, or twice
                ct_schedule_deinit(&s);
                found++;
            }
    printf("%d actions taken out, put in twice and given to the wrong stage\n", found);
}

static void refuses(const char *csv, int ranks, int micros, const char *where) {
    char path[] = "/tmp/ct_schedule_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, csv, strlen(csv)) == (ssize_t)strlen(csv));
    close(fd);
    ct_schedule s;
    ct_status status = ct_schedule_read_csv(path, ranks, micros, &s);
    if (!status) {
        status = ct_schedule_verify(&s);
        ct_schedule_deinit(&s);
    }
    unlink(path);
    if (!where) {
        assert_ok(status);
        return;
    }
    assert_non_null(status);
    if (!strstr(ct_error_text(status), where)) fail_msg("\"%s\" does not say \"%s\"", ct_error_text(status), where);
}

static void files_are_read_or_refused_where_they_are_wrong(void **state) {
    (void)state;
    refuses("0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n", 2, 2, NULL);
    refuses("0F0,0F1,0I0,0W0,0I1,0W1\r\n 1F0 , 1I0,1F1,1I1,1W0,1W1", 2, 2, NULL);
    refuses("0F0,0B0\n1F0,1X0\n", 2, 1, ":2, field 2: \"1X0\" is no action");
    refuses("0F0,0B0\n1F0,\n", 2, 1, "1B0 (or 1I0) is missing");
    refuses("0F0,0B0\n", 2, 1, "1 lines for 2 ranks");
    refuses("0F0,0B0\n1F0,1B0\n2F0\n", 2, 1, ":3: a line too many");
    refuses("0F0,0B0\n1F0,1B0,0F0\n", 2, 1, ":2, field 3: stage 0 is rank 0's already");
    refuses("0F0,0B0,0F1\n1F0,1B0\n", 2, 1, ":1, field 3: micro-batch 1: there are 1");
    refuses("0F0,0B0\n2F0,2B0\n", 2, 1, "no rank has stage 1");
    refuses("0F0,0B0,0F0\n1F0,1B0\n", 2, 1, "rank 0, action 2, 0F0: it was done before");
    refuses("0B0,0F0\n1F0,1B0\n", 2, 1, "rank 0, action 0, 0B0: waits for ever for 0F0 of rank 0");
    refuses("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n", 2, 2, "waits for ever");
    refuses("0F0,0W0,0I0\n1F0,1B0\n", 2, 1, "rank 0, action 1, 0W0: waits for ever for 0I0");
    refuses("", 2, 1, "0 lines for 2 ranks");
}

static void numbers_that_do_not_fit_are_refused_with_those_that_do(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int ranks, local, micros;
        const char *text;
    } cases[] = {{"2F2B", 2, 1, 4, "DualPipeV, Auto"},     {"1F1B", 2, 2, 4, "1F1B has 1 stage a rank, not 2"},
                 {"ZBVZeroBubble", 2, 3, 4, "2 stages a rank, not 3"},      {"DualPipeV", 4, 2, 7, "at least 8 micro-batches, not 7"},
                 {"Interleaved1F1B", 4, 2, 9, "8 or 10 would"},             {"GPipe", 2, 1, 0, "at least 1 of each"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_schedule s;
        ct_status status = ct_schedule_make(cases[i].name, cases[i].ranks, cases[i].local, cases[i].micros, &s);
        assert_non_null(status);
        if (!strstr(ct_error_text(status), cases[i].text)) fail_msg("\"%s\" does not say \"%s\"", ct_error_text(status), cases[i].text);
    }
}

static void traces_are_json_with_every_action(void **state) {
    (void)state;
    ct_schedule s = make("DualPipeV", 3, 2, 7);
    ct_schedule_times t = times_of(&s, 1e-3, 2e-3, 1e-3);
    ct_string text = {0}, svg = {0};
    ct_schedule_draw_trace(&s, &t, &t, &text);
    cJSON *json = cJSON_Parse(text.text);
    assert_non_null(json);
    int events = 0, actions = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) events += !strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(event, "ph")), "X");
    for (int r = 0; r < s.ranks; r++) actions += s.of[r].count;
    assert_int_equal(events, 2 * actions);
    ct_schedule_draw_svg(&s, &t, NULL, &svg);
    int boxes = 0;
    for (const char *at = svg.text; (at = strstr(at, "<title>")); at++) boxes++;
    assert_int_equal(boxes, actions);
    cJSON_Delete(json);
    ct_string_deinit(&text), ct_string_deinit(&svg);
    ct_schedule_times_deinit(&t);
    ct_schedule_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_of_all_sizes_end),
                                       cmocka_unit_test(bubbles_have_their_closed_forms),
                                       cmocka_unit_test(zero_bubble_v_has_none),
                                       cmocka_unit_test(stages_save_no_more_than_their_bounds),
                                       cmocka_unit_test(small_ones_are_as_defined),
                                       cmocka_unit_test(missing_and_double_actions_are_found),
                                       cmocka_unit_test(files_are_read_or_refused_where_they_are_wrong),
                                       cmocka_unit_test(numbers_that_do_not_fit_are_refused_with_those_that_do),
                                       cmocka_unit_test(traces_are_json_with_every_action)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
