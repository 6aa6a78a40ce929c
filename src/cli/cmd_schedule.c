// `ctitan schedule`: a pipeline schedule by itself, without a model.
#include "commands.h"
#include "base/file.h"
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan schedule NAME --ranks P --micros M [--stages-per-rank V] [--costs F,I,W] [--transfer T] [--actions] [--svg FILE] [--trace FILE]\n"
    "       ctitan schedule FILE.csv --ranks P --micros M [the same]\n\n"
    "Makes a pipeline schedule by name (GPipe, 1F1B, LoopedBFS, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV) or from a\n"
    "CSV file of actions, checks that it ends, and shows when which rank does what for which micro-batch, the bubble, and how many slots each\n"
    "stage saves micro-batches in. --costs: seconds of a micro-batch's forward, input gradient and weight gradients in a stage (1,1,1), and\n"
    "--transfer of a message (0). --actions: each rank's actions, sends and receives too. --svg, --trace: a picture, and a trace for Perfetto.\n";

typedef struct {
    int ranks, micros, local;
    double costs[3], transfer;
    const char *svg, *trace;
    int actions;
} wanted;

// 0, or 2 after saying what is wrong.
static int take_arguments(wanted *w, int *argc, char **argv) {
    w->ranks = ct_take_count(argc, argv, "--ranks");
    w->micros = ct_take_count(argc, argv, "--micros");
    w->local = ct_take_count(argc, argv, "--stages-per-rank");
    w->svg = ct_take_value(argc, argv, "--svg");
    w->trace = ct_take_value(argc, argv, "--trace");
    w->actions = ct_take_flag(argc, argv, "--actions");
    const char *costs = ct_take_value(argc, argv, "--costs"), *transfer = ct_take_value(argc, argv, "--transfer");
    char rest;
    if (costs && (sscanf(costs, "%lf,%lf,%lf%c", &w->costs[0], &w->costs[1], &w->costs[2], &rest) != 3 || !(w->costs[0] > 0) || !(w->costs[1] > 0) || !(w->costs[2] >= 0)))
        return ct_misuse("schedule", "--costs %s: three numbers above 0 are wanted, as 1,1,1", costs);
    if (transfer && (sscanf(transfer, "%lf%c", &w->transfer, &rest) != 1 || !(w->transfer >= 0)))
        return ct_misuse("schedule", "--transfer %s: a number of at least 0 is wanted", transfer);
    if (w->ranks < 1 || w->ranks > 4096 || w->micros < 1 || w->micros > 65536 || w->local < 0 || w->local > 64)
        return ct_misuse("schedule", "--ranks (1 to 4096), --micros (1 to 65536) and --stages-per-rank (1 to 64) are wanted");
    return 0;
}

static int is_file(const char *name) {
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".csv");
}

static int usual_stages(const char *name) { return !strcasecmp(name, "GPipe") || !strcasecmp(name, "1F1B") ? 1 : 2; }

static ct_status make(const wanted *w, const char *name, ct_schedule *out) {
    ct_schedule compute;
    if (is_file(name)) CT_TRY(ct_schedule_read_csv(name, w->ranks, w->micros, &compute));
    else CT_TRY(ct_schedule_make(name, w->ranks, w->local ? w->local : usual_stages(name), w->micros, &compute));
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

static ct_status show(const wanted *w, const ct_schedule *s) {
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)s->stages);
    for (int k = 0; k < s->stages; k++) costs[k] = (ct_stage_cost){w->costs[0], w->costs[1], w->costs[2], 1};
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
    free(costs);
    return status;
}

int ct_cmd_schedule(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (argc < 2) return fputs(help, stderr), 2;
    wanted w = {.costs = {1, 1, 1}};
    if (take_arguments(&w, &argc, argv)) return 2;
    if (argc != 2 || argv[1][0] == '-') return fputs(help, stderr), 2;
    ct_schedule schedule = {0};
    ct_status status = make(&w, argv[1], &schedule);
    if (!status) status = show(&w, &schedule);
    ct_schedule_deinit(&schedule);
    if (status) return fprintf(stderr, "ctitan schedule: %s\n", ct_error_text(status)), 1;
    return ct_finish_output("schedule");
}
