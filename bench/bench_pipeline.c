// Does a pipeline run as its schedule says? One trains on threads, a rank a core; each round times a step's actions as they run, then the same programs
// alone, on all ranks at once but outside the schedule, and replays the schedule with those times. What is left between the two is waiting that no
// schedule asks for.
//   bench_pipeline FILE.toml [ROUNDS] [--section.key value …]      (one step of the file's is one run of the schedule)
#include "base/clock.h"
#include "train/pipeline.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

enum { REPEATS = 9, MOST_ROUNDS = 99 };

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }
static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

typedef struct {
    const ct_config *config;
    int rounds;
} job;

// What a rank tells the first one of a round.
typedef struct {
    double busy_s, end_s;                           // of the run
    double alone_s[CT_MOST_STAGES][CT_PARTS];       // by local stage
} figures;

static ct_status time_alone(ct_trainer *t, ct_comm *comm, figures *out) {
    static const int slots[CT_POOLS];
    const ct_step *step = ct_trainer_step_made(t);
    for (int k = 0; k < CT_MOST_STAGES; k++)
        for (int part = 0; part < CT_PARTS; part++) {
            ct_program w = ct_stage_program_of(k, part);
            double times[REPEATS];
            CT_TRY(ct_comm_agree(comm, CT_OK)); // all ranks are at work while one is timed
            for (int i = 0; i < REPEATS && step->has[w]; i++) {
                double begin = ct_now_s();
                CT_TRY(ct_exec_run_slots(ct_trainer_exec(t), w, slots));
                times[i] = ct_now_s() - begin;
            }
            out->alone_s[k][part] = step->has[w] ? median(times, REPEATS) : 0;
        }
    return CT_OK;
}

static void look_at_run(const ct_actions *list, const ct_pipeline_moment *moments, figures *out) {
    for (int i = 0; i < list->count; i++) {
        out->busy_s += moments[i].end_s - moments[i].begin_s;
        if (moments[i].end_s > out->end_s) out->end_s = moments[i].end_s;
    }
}

// The schedule with what the ranks' programs take alone.
static void replay(const ct_schedule *s, figures *const *of, ct_schedule_times *out) {
    ct_stage_cost *costs = ct_calloc((size_t)s->stages, sizeof *costs);
    for (int k = 0; k < s->stages; k++) {
        int before = 0;
        for (int other = 0; other < k; other++) before += s->rank_of[other] == s->rank_of[k];
        const double *alone = of[s->rank_of[k]]->alone_s[before];
        costs[k] = (ct_stage_cost){alone[CT_PART_FORWARD], alone[CT_PART_INPUT_GRAD], alone[CT_PART_WEIGHT_GRAD], 1};
    }
    ct_schedule_simulate(s, costs, 0, out);
    free(costs);
}

static void say_round(const ct_schedule *s, figures *const *of, double *ratio, double *seconds) {
    ct_schedule_times replayed;
    double longest = 0;
    replay(s, of, &replayed);
    for (int r = 0; r < s->ranks; r++)
        if (of[r]->end_s > longest) longest = of[r]->end_s;
    *ratio = longest / replayed.step_s, *seconds = longest;
    printf("  %8.1f ms, replayed %8.1f ms: x %.3f; busy", 1e3 * longest, 1e3 * replayed.step_s, *ratio);
    for (int r = 0; r < s->ranks; r++) printf(" %.1f (%.1f)", 1e3 * of[r]->busy_s, 1e3 * replayed.busy_s[r]);
    printf("\n");
    fflush(stdout);
    ct_schedule_times_deinit(&replayed);
}

static ct_status rounds_of(const job *j, ct_comm *comm, ct_trainer *t) {
    const ct_schedule *s = ct_trainer_schedule(t);
    CT_CHECK(s->ranks > 1 && s->ranks == ct_comm_size(comm), CT_INVALID, "ranks of a pipeline and of nothing else are wanted");
    const ct_actions *mine = &s->of[ct_comm_rank(comm)];
    ct_pipeline_moment *moments = ct_calloc((size_t)mine->count + 1, sizeof *moments);
    double ratios[MOST_ROUNDS], seconds[MOST_ROUNDS];
    ct_step_report report;
    ct_status status = ct_trainer_step(t, &report);
    if (!ct_comm_rank(comm)) printf("%s, %d stages on %d ranks, %d micro-batches; in brackets what a rank's programs take alone\n", s->name, s->stages, s->ranks, s->micros);
    for (int i = 0; i < j->rounds && !status; i++) {
        figures own = {0};
        void **all;
        size_t *bytes;
        ct_pipeline_record(ct_trainer_pipeline(t), moments);
        status = ct_trainer_step(t, &report);
        ct_pipeline_record(ct_trainer_pipeline(t), NULL);
        look_at_run(mine, moments, &own);
        if (!status) status = time_alone(t, comm, &own);
        if (!status) status = ct_comm_gather(comm, 0, &own, sizeof own, &all, &bytes);
        if (status || ct_comm_rank(comm)) continue;
        say_round(s, (figures *const *)all, &ratios[i], &seconds[i]);
        for (int r = 0; r < s->ranks; r++) free(all[r]);
        free(all), free(bytes);
    }
    if (!status && !ct_comm_rank(comm)) {
        double middle = median(ratios, j->rounds), time = median(seconds, j->rounds);
        printf("%s: %.1f ms, x %.3f of the replay (medians of %d; %.3f to %.3f)\n", s->name, 1e3 * time, middle, j->rounds, ratios[0], ratios[j->rounds - 1]);
    }
    free(moments);
    return status;
}

static ct_status run_rank(void *context, ct_comm *comm) {
    job *j = context;
    ct_trainer *t;
    CT_TRY(ct_trainer_create(j->config, comm, &t));
    ct_status status = rounds_of(j, comm, t);
    ct_trainer_destroy(t);
    return status;
}

int main(int argc, char **argv) {
    int own = ct_config_args_split(argc, argv);
    job j = {.rounds = own > 2 ? atoi(argv[2]) : 5};
    if (own < 2 || j.rounds < 1 || j.rounds > MOST_ROUNDS) return fprintf(stderr, "usage: bench_pipeline FILE.toml [ROUNDS] [--section.key value …]\n"), 2;
    ct_arena arena = {0};
    ct_config *config;
    ct_status status = ct_config_load(&arena, argv[1], argc - own, argv + own, &config);
    j.config = config;
    if (!status) status = ct_comm_run_threads((int)config->parallelism.pipeline_parallel_degree, &(ct_comm_options){0}, run_rank, &j);
    if (status) fprintf(stderr, "bench_pipeline: %s\n", ct_error_text(status));
    ct_arena_deinit(&arena);
    return status ? 1 : 0;
}
