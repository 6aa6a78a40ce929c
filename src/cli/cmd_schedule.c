// `ctitan schedule`: a pipeline schedule by itself, without a model.
#include "commands.h"
#include "base/file.h"
#include "schedule/schedule.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan schedule NAME --ranks P --micros M [--stages-per-rank V] [--costs F,I,W] [--transfer T]\n"
    "                             [--slots N] [--actions] [--svg FILE] [--trace FILE]\n"
    "       ctitan schedule FILE.csv --ranks P --micros M [the same]\n\n"
    "Makes a pipeline schedule by name (GPipe, 1F1B, LoopedBFS, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV, or Auto, which\n"
    "is searched for these costs) or from a CSV file of actions, checks that it ends, and shows when which rank does what for which micro-batch,\n"
    "the bubble, and how many slots each stage saves micro-batches in. --costs: seconds of a micro-batch's forward, input gradient and weight\n"
    "gradients in a stage (1,1,1); each may be a list by stage (1:1:1:1.5,1,1), and all may come from a file (pipeline_costs.csv of a profile).\n"
    "--transfer: of a message (0). --slots: Auto's memory, the micro-batches that the stages of a rank save together (P × V, at least 2 P).\n"
    "--actions: each rank's actions, sends and receives too. --svg, --trace: a picture, and a trace for Perfetto.\n";

typedef struct {
    int ranks, micros, local, slots;
    double transfer;
    const char *costs, *svg, *trace; // NULL: none
    int actions;
} wanted;

// 0, or 2 after saying what is wrong.
static int take_arguments(wanted *w, int *argc, char **argv) {
    w->ranks = ct_take_count(argc, argv, "--ranks");
    w->micros = ct_take_count(argc, argv, "--micros");
    w->local = ct_take_count(argc, argv, "--stages-per-rank");
    w->slots = ct_take_count(argc, argv, "--slots");
    w->svg = ct_take_value(argc, argv, "--svg");
    w->trace = ct_take_value(argc, argv, "--trace");
    w->actions = ct_take_flag(argc, argv, "--actions");
    w->costs = ct_take_value(argc, argv, "--costs");
    const char *transfer = ct_take_value(argc, argv, "--transfer");
    char rest;
    if (transfer && (sscanf(transfer, "%lf%c", &w->transfer, &rest) != 1 || !(w->transfer >= 0)))
        return ct_misuse("schedule", "--transfer %s: a number of at least 0 is wanted", transfer);
    if (w->ranks < 1 || w->ranks > 4096 || w->micros < 1 || w->micros > 65536 || w->local < 0 || w->local > 64)
        return ct_misuse("schedule", "--ranks (1 to 4096), --micros (1 to 65536) and --stages-per-rank (1 to 64) are wanted");
    if (w->slots < 0) return ct_misuse("schedule", "--slots: a number from 1 to 1000000 is wanted");
    return 0;
}

static int is_file(const char *name) {
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".csv");
}

// ---- costs ----

// Numbers with `:` between them, up to a comma or the end, into a field of each stage: one for all stages, or one each.
static ct_status take_numbers(const wanted *w, const char **at, int stages, ct_stage_cost *costs, size_t field) {
    for (int k = 0;; k++) {
        char *end;
        double x = strtod(*at, &end);
        int possible = x > 0 || (x == 0 && field == offsetof(ct_stage_cost, weight_grad_s));
        CT_CHECK(end != *at && possible && x < 1e30 && (!*end || strchr(",:", *end)) && k < stages, CT_INVALID,
                 "--costs %s: F,I,W are wanted, each a number above 0 (W: or 0) for all stages, or one for each of the %d stages, as 1:1:1:1.5", w->costs,
                 stages);
        *at = end;
        for (int s = k; s < (k ? k + 1 : stages); s++) *(double *)((char *)&costs[s] + field) = x;
        if (**at != ':') {
            CT_CHECK(k == 0 || k == stages - 1, CT_INVALID, "--costs %s: %d numbers for %d stages", w->costs, k + 1, stages);
            return CT_OK;
        }
        ++*at;
    }
}

static ct_status take_costs(const wanted *w, int stages, ct_stage_cost *out) {
    static const size_t fields[] = {offsetof(ct_stage_cost, forward_s), offsetof(ct_stage_cost, input_grad_s), offsetof(ct_stage_cost, weight_grad_s)};
    const char *at = w->costs;
    for (int k = 0; k < stages; k++) out[k] = (ct_stage_cost){1, 1, 1, 1};
    if (!at) return CT_OK;
    if (is_file(at)) return ct_schedule_read_costs(at, stages, out);
    for (int i = 0; i < 3; i++) {
        CT_TRY(take_numbers(w, &at, stages, out, fields[i]));
        CT_CHECK(*at == (i < 2 ? ',' : 0), CT_INVALID, "--costs %s: three numbers, or lists, are wanted, as 1,1,1", w->costs);
        at++;
    }
    return CT_OK;
}

static int usual_stages(const char *name) { return !strcasecmp(name, "GPipe") || !strcasecmp(name, "1F1B") ? 1 : 2; }

static ct_status make_auto(const wanted *w, int local, ct_schedule *out) {
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)w->ranks * (size_t)local);
    ct_status status = take_costs(w, w->ranks * local, costs);
    if (!status) status = ct_schedule_auto(w->ranks, local, w->micros, costs, w->transfer, w->slots, out);
    free(costs);
    return status;
}

static ct_status make(const wanted *w, const char *name, ct_schedule *out) {
    ct_schedule compute;
    int local = w->local ? w->local : usual_stages(name);
    CT_CHECK(!w->slots || !strcasecmp(name, "Auto"), CT_INVALID, "--slots %d: only Auto can be told how much to save, not %s", w->slots, name);
    if (!strcasecmp(name, "Auto")) CT_TRY(make_auto(w, local, &compute));
    else if (is_file(name)) CT_TRY(ct_schedule_read_csv(name, w->ranks, w->micros, &compute));
    else CT_TRY(ct_schedule_make(name, w->ranks, local, w->micros, &compute));
    ct_status status = ct_schedule_verify(&compute);
    if (status) status = ct_error_note(status, "%s", name);
    if (!status) status = ct_schedule_lower(&compute, out);
    ct_schedule_deinit(&compute);
    return status;
}

static void print_slots(const ct_schedule *s, ct_string *out) {
    int *counts = ct_malloc(sizeof(int) * (size_t)s->stages * CT_POOLS), *slots = ct_malloc(sizeof(int) * (size_t)s->stages * (size_t)s->micros * CT_POOLS);
    ct_schedule_slots(s, counts, slots);
    ct_string_add(out, "  micro-batches saved at once, by stage: from forward to input gradient");
    for (int k = 0; k < s->stages; k++) ct_string_add(out, " %d", counts[k * CT_POOLS + CT_POOL_TO_INPUT_GRAD]);
    ct_string_add(out, "; to weight gradients");
    for (int k = 0; k < s->stages; k++) ct_string_add(out, " %d", counts[k * CT_POOLS + CT_POOL_TO_WEIGHT_GRAD]);
    ct_string_add(out, "\n");
    free(counts);
    free(slots);
}

static void print_actions(const ct_schedule *s, ct_string *out) {
    for (int r = 0; r < s->ranks; r++) {
        ct_string_add(out, "  rank %d:", r);
        for (int i = 0; i < s->of[r].count; i++) {
            char text[48];
            ct_action_print(s->of[r].list[i], text, sizeof text);
            ct_string_add(out, " %s", text);
        }
        ct_string_add(out, "\n");
    }
}

static ct_status show_times(const wanted *w, const ct_schedule *s, const ct_stage_cost *costs) {
    ct_schedule_times times;
    ct_schedule_simulate(s, costs, w->transfer, &times);
    ct_string out = {0};
    ct_string_add(&out, "%s: %d stages on %d ranks, %d micro-batches: %.6g s, bubble %.2f %%\n", s->name, s->stages, s->ranks, s->micros, times.step_s,
                  100 * ct_schedule_bubble(&times));
    ct_schedule_print(s, &times, 100, isatty(STDOUT_FILENO), &out);
    print_slots(s, &out);
    if (w->actions) print_actions(s, &out);
    fputs(out.text, stdout);
    ct_status status = ct_schedule_draw_file(w->svg, ct_schedule_draw_svg, s, &times, NULL);
    if (!status) status = ct_schedule_draw_file(w->trace, ct_schedule_draw_trace, s, &times, NULL);
    ct_string_deinit(&out);
    ct_schedule_times_deinit(&times);
    return status;
}

static ct_status show(const wanted *w, const ct_schedule *s) {
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)s->stages);
    ct_status status = take_costs(w, s->stages, costs);
    if (!status) status = show_times(w, s, costs);
    free(costs);
    return status;
}

int ct_cmd_schedule(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (argc < 2) return fputs(help, stderr), 2;
    wanted w = {0};
    if (take_arguments(&w, &argc, argv)) return 2;
    if (argc != 2 || argv[1][0] == '-') return fputs(help, stderr), 2;
    ct_schedule schedule = {0};
    ct_status status = make(&w, argv[1], &schedule);
    if (!status) status = show(&w, &schedule);
    ct_schedule_deinit(&schedule);
    if (status) return fprintf(stderr, "ctitan schedule: %s\n", ct_error_text(status)), 1;
    return ct_finish_output("schedule");
}
