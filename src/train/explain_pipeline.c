// A pipeline, explained: its stages, and how its schedule runs were every rank as fast as this one.
#include "explain_parts.h"

#include <stdlib.h>

ct_stage_cost *ct_explain_stage_costs(const ct_step *step, double flops_per_s) {
    ct_stage_cost *costs = ct_calloc((size_t)step->stages + 1, sizeof *costs);
    for (int s = 0; s < step->stages; s++) {
        const ct_stage_figures *f = &step->figures[s];
        costs[s] = (ct_stage_cost){f->flops[0] / flops_per_s, f->flops[1] / flops_per_s, f->flops[2] / flops_per_s,
                                   (double)f->saved_bytes[CT_LIFE_TO_INPUT_GRAD] + (double)f->saved_bytes[CT_LIFE_TO_WEIGHT_GRAD]};
    }
    return costs;
}

double ct_pipeline_flops(const ct_step *step) {
    double flops = 0;
    for (int s = 0; s < step->stages; s++)
        for (int part = 0; part < CT_PARTS; part++) flops += step->figures[s].flops[part];
    return flops;
}

static void print_stage(const ct_step *step, const ct_schedule *schedule, const int *counts, int s, ct_string *out) {
    const ct_stage_figures *f = &step->figures[s];
    char saved[CT_LIVES][32], sent[32], back[32];
    for (int k = 0; k < CT_LIVES; k++) ct_bytes_text((double)f->saved_bytes[k], saved[k], sizeof saved[k]);
    ct_bytes_text(f->sent_bytes[0], sent, sizeof sent);
    ct_bytes_text(f->sent_bytes[1], back, sizeof back);
    ct_string_add(out, "  %5d %5d %7d %9.3g %10.3g %11.3g %11s × %-3d %11s × %-3d %11s × %-3d %11s %11s\n", s, schedule->rank_of[s], f->layers, f->flops[0], f->flops[1],
                  f->flops[2], saved[0], counts[s * CT_POOLS], saved[1], counts[s * CT_POOLS + 1], saved[2], counts[s * CT_POOLS + 2], sent, back);
}

static void print_shared(const ct_step *step, ct_string *out) {
    for (int i = 0; i < step->shared_count; i++) {
        const ct_shared_gradient *g = &step->shared[i];
        int kept = ct_plan_find_kept(&step->plan, g->name);
        char bytes[32] = "";
        if (kept >= 0) ct_bytes_text((double)step->plan.kept[kept].bytes, bytes, sizeof bytes);
        ct_string_add(out, "  %s of stage %d, %s, passes once a step to the ranks of the other stages that use this weight:", g->name, g->stage, bytes);
        for (int k = 0; k < g->users_count; k++)
            if (g->users[k] != g->stage) ct_string_add(out, " %d", g->users[k]);
        ct_string_add(out, "\n");
    }
}

void ct_pipeline_print(const ct_step *step, const ct_schedule *schedule, double flops_per_s, ct_string *out) {
    size_t stages = (size_t)schedule->stages * CT_POOLS;
    int *counts = ct_malloc(sizeof(int) * stages), *slots = ct_malloc(sizeof(int) * stages * (size_t)schedule->micros);
    ct_stage_cost *costs = ct_explain_stage_costs(step, flops_per_s > 0 ? flops_per_s : 1e12);
    ct_schedule_times times;
    ct_schedule_slots(schedule, counts, slots);
    ct_schedule_simulate(schedule, costs, 0, &times);
    ct_string_add(out, "\npipeline: %s, %d stages, %d micro-batches a run; bubble %.1f %% of the ranks' time, by FLOPs and without transfers\n", schedule->name,
                  schedule->stages, schedule->micros, 100 * ct_schedule_bubble(&times));
    ct_string_add(out, "  stage on pp  layers   forward input-grad weight-grad      F to I × slots      F to W × slots      I to W × slots to the next    and back\n");
    for (int s = 0; s < schedule->stages; s++) print_stage(step, schedule, counts, s, out);
    print_shared(step, out);
    ct_schedule_print(schedule, &times, 100, 0, out);
    ct_schedule_times_deinit(&times);
    free(costs);
    free(counts);
    free(slots);
}

void ct_pipeline_json(const ct_step *step, const ct_schedule *schedule, ct_string *out) {
    ct_stage_cost *costs = ct_explain_stage_costs(step, 1e12);
    ct_schedule_times times;
    ct_schedule_simulate(schedule, costs, 0, &times);
    ct_string_add(out, "{\"schedule\": \"%s\", \"stages\": %d, \"micro_batches\": %d, \"bubble\": %.6g}", schedule->name, schedule->stages, schedule->micros,
                  ct_schedule_bubble(&times));
    ct_schedule_times_deinit(&times);
    free(costs);
}

void ct_stages_json(const ct_step *step, ct_string *out) {
    for (int s = 0; s < step->stages; s++) {
        const ct_stage_figures *f = &step->figures[s];
        ct_string_add(out, "%s{\"stage\": %d, \"layers\": %d, \"forward_flops\": %.17g, \"input_grad_flops\": %.17g, \"weight_grad_flops\": %.17g, \"saved_bytes\": %zu, "
                           "\"saved_to_input_grad_bytes\": %zu, \"saved_to_weight_grad_bytes\": %zu, \"saved_backward_bytes\": %zu, \"received_bytes\": %zu, "
                           "\"sent_forward_bytes\": %.17g, \"sent_backward_bytes\": %.17g}",
                      s ? ", " : "", s, f->layers, f->flops[0], f->flops[1], f->flops[2], f->saved_bytes[0] + f->saved_bytes[1],
                      f->saved_bytes[0], f->saved_bytes[1], f->saved_bytes[2], f->saved_bytes[3], f->sent_bytes[0], f->sent_bytes[1]);
    }
}
