// A pipeline's profile: when each action of every rank ran, beside when the schedule would have had it run at the stages' own speed; as a picture, a
// trace and a table of costs in the trace folder.
#include "trainer_parts.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median of the times that `pick` finds in a stage's actions; 0 where it finds none.
static double median_of(const ct_schedule *s, int stage, const ct_pipeline_moment *const *of, double (*pick)(ct_act act, ct_pipeline_moment at)) {
    const ct_actions *list = &s->of[s->rank_of[stage]];
    double *times = ct_malloc(sizeof(double) * (size_t)(list->count + 1)), median;
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        double time = list->list[i].stage == stage ? pick(list->list[i].act, of[s->rank_of[stage]][i]) : -1;
        if (time >= 0) times[count++] = time;
    }
    qsort(times, (size_t)count, sizeof *times, ascending);
    median = count ? times[count / 2] : 0;
    free(times);
    return median;
}

static double forward_time(ct_act act, ct_pipeline_moment at) { return act == CT_ACT_F ? at.end_s - at.begin_s : -1; }
static double input_grad_time(ct_act act, ct_pipeline_moment at) {
    if (act == CT_ACT_I) return at.end_s - at.begin_s;
    return act == CT_ACT_B ? (at.middle_s > 0 ? at.middle_s : at.end_s) - at.begin_s : -1;
}
static double weight_grad_time(ct_act act, ct_pipeline_moment at) {
    if (act == CT_ACT_W) return at.end_s - at.begin_s;
    return act == CT_ACT_B ? (at.middle_s > 0 ? at.end_s - at.middle_s : 0) : -1;
}

static ct_stage_cost *costs_of(const ct_schedule *s, const ct_pipeline_moment *const *of) {
    ct_stage_cost *costs = ct_calloc((size_t)s->stages, sizeof *costs);
    for (int k = 0; k < s->stages; k++)
        costs[k] = (ct_stage_cost){median_of(s, k, of, forward_time), median_of(s, k, of, input_grad_time), median_of(s, k, of, weight_grad_time), 1};
    return costs;
}

// Borrows nothing of `of`. Caller deinits.
static ct_schedule_times measured_times(const ct_schedule *s, const ct_pipeline_moment *const *of) {
    ct_schedule_times t = {s->ranks, ct_calloc((size_t)s->ranks + 1, sizeof *t.of), 0, ct_calloc((size_t)s->ranks + 1, sizeof(double)),
                           ct_calloc((size_t)s->ranks + 1, sizeof(double))};
    for (int r = 0; r < s->ranks; r++) {
        t.of[r] = ct_calloc((size_t)s->of[r].count + 1, sizeof *t.of[r]);
        for (int i = 0; i < s->of[r].count; i++) {
            t.of[r][i] = (ct_action_time){of[r][i].begin_s, of[r][i].end_s};
            t.busy_s[r] += of[r][i].end_s - of[r][i].begin_s;
            if (of[r][i].end_s > t.step_s) t.step_s = of[r][i].end_s;
        }
    }
    return t;
}

static ct_status write_file(const char *folder, const char *name, const ct_string *text) {
    char *path = ct_format("%s/%s", folder, name);
    ct_status status = ct_file_write_atomic(path, text->text, text->length);
    free(path);
    return status;
}

static ct_status write_all(const ct_schedule *s, const ct_stage_cost *costs, const ct_schedule_times *replayed, const ct_schedule_times *measured,
                           const char *folder) {
    ct_string svg = {0}, trace = {0}, csv = {0};
    ct_schedule_draw_svg(s, replayed, measured, &svg);
    ct_schedule_draw_trace(s, replayed, measured, &trace);
    ct_string_add(&csv, "stage,forward_s,input_grad_s,weight_grad_s\n");
    for (int k = 0; k < s->stages; k++) ct_string_add(&csv, "%d,%.9g,%.9g,%.9g\n", k, costs[k].forward_s, costs[k].input_grad_s, costs[k].weight_grad_s);
    ct_status status = write_file(folder, "pipeline.svg", &svg);
    if (!status) status = write_file(folder, "pipeline_trace.json", &trace);
    if (!status) status = write_file(folder, "pipeline_costs.csv", &csv);
    ct_string_deinit(&svg);
    ct_string_deinit(&trace);
    ct_string_deinit(&csv);
    return status;
}

static ct_status write_times(const ct_schedule *s, const ct_pipeline_moment *const *of, const char *folder) {
    ct_stage_cost *costs = costs_of(s, of);
    ct_schedule_times replayed, measured = measured_times(s, of);
    ct_schedule_simulate(s, costs, 0, &replayed);
    ct_status status = write_all(s, costs, &replayed, &measured, folder);
    if (!status)
        printf("pipeline: %s took %.4g ms, bubble %.1f %%; replayed with the median times of its own stages and without transfers %.4g ms, %.1f %% (%s/pipeline.svg)\n",
               s->name, 1e3 * measured.step_s, 100 * ct_schedule_bubble(&measured), 1e3 * replayed.step_s, 100 * ct_schedule_bubble(&replayed), folder);
    ct_schedule_times_deinit(&replayed);
    ct_schedule_times_deinit(&measured);
    free(costs);
    return status;
}

ct_status ct_pipeline_times_write(ct_trainer *t, const char *folder) {
    const ct_schedule *s = &t->schedule;
    int pp = ct_mesh_find(&t->options.parallel.mesh, "pp"), stride = ct_comm_size(t->comm) / s->ranks; // pp is the outermost axis
    const ct_actions *mine = &s->of[ct_mesh_coord(&t->options.parallel.mesh, t->rank, pp)];
    void **all = NULL;
    size_t *bytes = NULL;
    CT_TRY(ct_comm_gather(t->comm, 0, t->moments, sizeof *t->moments * (size_t)mine->count, &all, &bytes));
    if (t->rank) return CT_OK;
    const ct_pipeline_moment **of = ct_malloc(sizeof *of * (size_t)s->ranks);
    for (int r = 0; r < s->ranks; r++) of[r] = all[r * stride]; // the first rank's own pipeline
    ct_status status = write_times(s, of, folder);
    for (int r = 0; r < ct_comm_size(t->comm); r++) free(all[r]);
    free(all);
    free(bytes);
    free(of);
    return status;
}
