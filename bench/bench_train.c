// Whole training steps (forward, backward, clipping, AdamW, loss) of the benchmark shapes against this machine's peak, measured in this same run.
// Rounds of all cases are interleaved, so that a slow phase of a shared machine meets them all; the floor is the formula's FLOPs at the peak.
#include "base/wide.h"
#include "exec/exec.h"
#include "kernels/peak.h"
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
enum { CASES = sizeof cases / sizeof *cases, MAX_ROUNDS = 64, VOCABULARY = 32000 };

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_exec *exec;
    double seconds[MAX_ROUNDS];
    int64_t steps;
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
    *(int32_t *)data(r, "update:true") = 1;
    return CT_OK;
}

static double one_step(running *r) {
    double *scalars = data(r, "update:scalars"), begin = now_s();
    scalars[0] = 1e-4, scalars[1] = (double)++r->steps;
    ct_exec_run(r->exec, CT_PROGRAM_PROLOGUE);
    ct_exec_run(r->exec, CT_PROGRAM_MICRO);
    ct_exec_run(r->exec, CT_PROGRAM_UPDATE);
    return now_s() - begin;
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

static ct_status bench(int rounds, ct_team *team) {
    static running all[CASES];
    double peak[CT_DTYPES] = {0};
    for (int i = 0; i < CASES; i++) CT_TRY(start(&cases[i], team, &all[i]));
    for (int i = 0; i < CASES; i++) one_step(&all[i]);
    for (int round = 0; round < rounds; round++) {
        for (int d = 0; d < 2; d++) {
            double flops = ct_peak_measure(d ? CT_BF16 : CT_F32, team, 0.1);
            if (flops > peak[d ? CT_BF16 : CT_F32]) peak[d ? CT_BF16 : CT_F32] = flops;
        }
        for (int i = 0; i < CASES; i++) all[i].seconds[round] = one_step(&all[i]);
        fprintf(stderr, "\rround %d of %d", round + 1, rounds);
    }
    fprintf(stderr, "\r                    \r");
    printf("%d threads, %s; peak measured in this run: fp32 %.0f, bf16 %.0f GFLOP/s; %d interleaved rounds of one step; vocabulary %d\n\n",
           ct_team_size(team), ct_isa_best(NULL), peak[CT_F32] / 1e9, peak[CT_BF16] / 1e9, rounds, VOCABULARY);
    printf("model  batch     type   tokens/s   GFLOP/s  of peak  at best    floor    best  median   worst   GB planned\n");
    for (int i = 0; i < CASES; i++) report(&cases[i], &all[i], rounds, peak[cases[i].compute]);
    printf("\ntokens/s, GFLOP/s and \"of peak\" are of the median; floor, best, median, worst are seconds a step\n");
    for (int i = 0; i < CASES; i++) {
        ct_exec_destroy(all[i].exec);
        ct_step_deinit(&all[i].step);
        ct_arena_deinit(&all[i].arena);
    }
    return CT_OK;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9, threads = argc > 2 ? atoi(argv[2]) : ct_cores();
    if (argc > 3 || rounds < 1 || rounds > MAX_ROUNDS || threads < 1)
        return fprintf(stderr, "usage: bench_train [ROUNDS 1-%d] [THREADS]\n", MAX_ROUNDS), 2;
    ct_team *team;
    ct_status status = ct_team_create((ct_team_options){.threads = threads, .never_spin = threads > ct_cores()}, &team);
    if (!status) {
        status = bench(rounds, team);
        ct_team_destroy(team);
    }
    if (status) fprintf(stderr, "bench_train: %s\n", ct_error_text(status));
    return status ? 1 : 0;
}
