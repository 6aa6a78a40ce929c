// Whole training steps (forward, backward, clipping, AdamW, loss) of the benchmark shapes against this machine's peak, measured in this same run.
// Rounds of all cases are interleaved, so that a slow phase of a shared machine meets them all; the floor is the formula's FLOPs at the peak.
// bench_train [ROUNDS [THREADS [TEXT]]]: TEXT picks cases by what their line holds ("110 M 4 × 512 bf16"). With $BENCH_PROFILE set a case's best
// step is also printed op by op.
#include "base/wide.h"
#include "exec/exec.h"
#include "kernels/peak.h"
#include "trace/trace.h"
#include "train/setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const char *shape;
    double dim, layers, heads, kv_heads, hidden;
    int64_t batch, seq_len;
    ct_dtype compute;
} bench_case;

static const bench_case cases[] = {
    {"25 M", 256, 10, 8, 4, 768, 4, 512, CT_F32},    {"25 M", 256, 10, 8, 4, 768, 4, 512, CT_BF16},
    {"110 M", 768, 10, 12, 4, 2048, 4, 512, CT_F32}, {"110 M", 768, 10, 12, 4, 2048, 4, 512, CT_BF16},
    {"110 M", 768, 10, 12, 4, 2048, 1, 2048, CT_F32}, {"110 M", 768, 10, 12, 4, 2048, 1, 2048, CT_BF16},
};
enum { CASES = sizeof cases / sizeof *cases, MAX_ROUNDS = 64, VOCABULARY = 32000, SPANS = 8192 };

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_exec *exec;
    double seconds[MAX_ROUNDS];
    int64_t steps;
    ct_recording now, best; // spans of the last step, and of the fastest
} running;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *data(running *r, const char *name) {
    void *p = ct_exec_data(r->exec, name);
    CT_ASSERT(p, "no %s", name);
    return p;
}

static ct_status start(const bench_case *c, ct_team *team, running *r) {
    const ct_model_override sizes[] = {{"dim", c->dim, NULL},           {"n_layers", c->layers, NULL},
                                       {"n_heads", c->heads, NULL},     {"n_kv_heads", c->kv_heads, NULL},
                                       {"hidden_dim", c->hidden, NULL}, {"vocab_size", VOCABULARY, NULL}};
    CT_TRY(ct_model_open(&r->arena, "llama3", "debugmodel", sizes, sizeof sizes / sizeof *sizes, &r->model));
    ct_step_options options = {.batch = c->batch, .seq_len = c->seq_len, .compute = c->compute, .max_norm = 1,
                               .plan = {.threads = ct_team_size(team)}};
    CT_TRY(ct_step_make(&r->model, &options, &r->step));
    CT_TRY(ct_exec_create(&r->step.plan, team, (ct_exec_options){0}, &r->exec));
    for (int i = 0; i < r->model.parameters_count; i++)
        ct_init_parameter(&r->model.parameters[i], i, 0, NULL, team, data(r, r->model.parameters[i].name));
    int32_t *tokens = data(r, "micro:tokens"), *labels = data(r, "micro:labels"), *positions = data(r, "micro:positions");
    for (int64_t i = 0; i < c->batch * c->seq_len; i++) {
        tokens[i] = (int32_t)((i * 7919 + 13) % VOCABULARY);
        labels[i] = (int32_t)((i * 104729 + 7) % VOCABULARY);
        positions[i] = (int32_t)(i % c->seq_len);
    }
    *(int32_t *)data(r, "micro:first") = 1;
    *(float *)data(r, "micro:inv_count") = 1.0f / (float)(c->batch * c->seq_len);
    return CT_OK;
}

static ct_status one_step(running *r, double *out_seconds) {
    double *scalars = data(r, "update:scalars"), begin = now_s();
    scalars[0] = 1e-4, scalars[1] = (double)++r->steps;
    r->now.count = 0;
    CT_TRY(ct_exec_run(r->exec, CT_PROGRAM_PROLOGUE));
    CT_TRY(ct_exec_run(r->exec, CT_PROGRAM_MICRO));
    CT_TRY(ct_exec_run(r->exec, CT_PROGRAM_UPDATE));
    *out_seconds = now_s() - begin;
    return CT_OK;
}

static void case_name(const bench_case *c, char *text, size_t size) {
    snprintf(text, size, "%s %lld × %lld %s", c->shape, (long long)c->batch, (long long)c->seq_len, c->compute == CT_BF16 ? "bf16" : "fp32");
}

static void record(running *r) {
    r->now = (ct_recording){malloc(SPANS * sizeof(ct_span)), 0, SPANS};
    r->best = (ct_recording){malloc(SPANS * sizeof(ct_span)), 0, SPANS};
    CT_ASSERT(r->now.spans && r->best.spans, "no memory for spans");
    ct_exec_record(r->exec, &r->now);
}

// One round of a case; its spans are kept where it is the fastest so far.
static ct_status one_round(running *r, int round) {
    CT_TRY(one_step(r, &r->seconds[round]));
    for (int i = 0; i < round; i++)
        if (r->seconds[i] <= r->seconds[round]) return CT_OK;
    ct_recording fastest = r->now;
    r->now = r->best, r->best = fastest;
    return CT_OK;
}

static void print_profile(const running *r, double peak) {
    ct_string text = {0};
    ct_trace_summary(&r->step.plan, &r->best, peak, &text);
    printf("%s\n", text.text);
    ct_string_deinit(&text);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const bench_case *c, running *r, int rounds, double peak) {
    qsort(r->seconds, (size_t)rounds, sizeof(double), ascending);
    double median = r->seconds[rounds / 2], best = r->seconds[0], worst = r->seconds[rounds - 1];
    double tokens = (double)(c->batch * c->seq_len), flops = ct_model_step_flops(&r->model, tokens, (double)c->seq_len);
    printf("%-6s %lld × %-5lld %-5s  %7.0f  %8.1f  %5.1f %%  %5.1f %%   %6.3f  %6.3f  %6.3f  %6.3f   %5.2f\n", c->shape, (long long)c->batch,
           (long long)c->seq_len, c->compute == CT_BF16 ? "bf16" : "fp32", tokens / median, flops / median / 1e9, 100 * flops / median / peak,
           100 * flops / best / peak, flops / peak, best, median, worst, (double)r->step.plan.peak_bytes / 1e9);
    fflush(stdout);
}

static ct_status bench(int rounds, ct_team *team, const char *only) {
    static running all[CASES];
    double peak[CT_DTYPES] = {0}, warm_up;
    int chosen[CASES], count = 0, profile = getenv("BENCH_PROFILE") != NULL;
    for (int i = 0; i < CASES; i++) {
        char name[64];
        case_name(&cases[i], name, sizeof name);
        if (strstr(name, only)) chosen[count++] = i;
    }
    for (int i = 0; i < count; i++) {
        running *r = &all[chosen[i]];
        CT_TRY(start(&cases[chosen[i]], team, r));
        if (profile) record(r);
        CT_TRY(one_step(r, &warm_up));
    }
    for (int round = 0; round < rounds; round++) {
        for (int d = 0; d < 2; d++) {
            double flops = ct_peak_measure(d ? CT_BF16 : CT_F32, team, 0.1);
            if (flops > peak[d ? CT_BF16 : CT_F32]) peak[d ? CT_BF16 : CT_F32] = flops;
        }
        for (int i = 0; i < count; i++) CT_TRY(one_round(&all[chosen[i]], round));
        fprintf(stderr, "\rround %d of %d", round + 1, rounds);
    }
    fprintf(stderr, "\r                    \r");
    printf("%d threads, %s; peak measured in this run: fp32 %.0f, bf16 %.0f GFLOP/s; %d interleaved rounds of one step; vocabulary %d\n\n",
           ct_team_size(team), ct_isa_best(NULL), peak[CT_F32] / 1e9, peak[CT_BF16] / 1e9, rounds, VOCABULARY);
    if (profile)
        for (int i = 0; i < count; i++) print_profile(&all[chosen[i]], peak[cases[chosen[i]].compute]);
    printf("model  batch     type   tokens/s   GFLOP/s  of peak  at best    floor    best  median   worst   GB planned\n");
    for (int i = 0; i < count; i++) report(&cases[chosen[i]], &all[chosen[i]], rounds, peak[cases[chosen[i]].compute]);
    printf("\ntokens/s, GFLOP/s and \"of peak\" are of the median; floor, best, median, worst are seconds a step\n");
    for (int i = 0; i < count; i++) {
        running *r = &all[chosen[i]];
        ct_exec_destroy(r->exec);
        ct_step_deinit(&r->step);
        ct_arena_deinit(&r->arena);
        free(r->now.spans), free(r->best.spans);
    }
    return CT_OK;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9, threads = argc > 2 ? atoi(argv[2]) : ct_cores();
    if (argc > 4 || rounds < 1 || rounds > MAX_ROUNDS || threads < 1)
        return fprintf(stderr, "usage: bench_train [ROUNDS 1-%d] [THREADS] [TEXT of the cases' names]\n", MAX_ROUNDS), 2;
    ct_team *team;
    ct_status status = ct_team_create((ct_team_options){.threads = threads, .never_spin = threads > ct_cores()}, &team);
    if (!status) {
        status = bench(rounds, team, argc > 3 ? argv[3] : "");
        ct_team_destroy(team);
    }
    if (status) fprintf(stderr, "bench_train: %s\n", ct_error_text(status));
    return status ? 1 : 0;
}
