#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const ct_schedule *s;
    const ct_stage_cost *costs;
    double transfer_s;
    double *forward_done, *backward_done; // by stage and micro-batch; < 0: not yet
    int *at;                              // by rank
    double *free_s;
} simulation;

static double *cell(const simulation *x, double *table, int stage, int micro) { return &table[(size_t)stage * (size_t)x->s->micros + (size_t)micro]; }

static double seconds_of(const ct_stage_cost *c, ct_act act) {
    switch (act) {
    case CT_ACT_F: return c->forward_s;
    case CT_ACT_I: return c->input_grad_s;
    case CT_ACT_W: return c->weight_grad_s;
    case CT_ACT_B: return c->input_grad_s + c->weight_grad_s;
    default: return 0;
    }
}

// When what an action reads of another stage is there; < 0: nobody knows yet.
static double ready(const simulation *x, ct_action a) {
    const ct_schedule *s = x->s;
    int from = a.act == CT_ACT_F ? a.stage - 1 : a.act == CT_ACT_I || a.act == CT_ACT_B ? a.stage + 1 : -1;
    if (from < 0 || from >= s->stages) return 0;
    double done = *cell(x, a.act == CT_ACT_F ? x->forward_done : x->backward_done, from, a.micro);
    return done < 0 ? done : done + (s->rank_of[from] == s->rank_of[a.stage] ? 0 : x->transfer_s);
}

static int advance(simulation *x, int rank, ct_schedule_times *out) {
    const ct_actions *list = &x->s->of[rank];
    int any = 0;
    for (; x->at[rank] < list->count; x->at[rank]++, any = 1) {
        ct_action a = list->list[x->at[rank]];
        double there = ready(x, a), seconds = seconds_of(&x->costs[a.stage], a.act);
        if (there < 0) break;
        double begin = there > x->free_s[rank] ? there : x->free_s[rank];
        if (seconds == 0) begin = x->free_s[rank];
        out->of[rank][x->at[rank]] = (ct_action_time){begin, begin + seconds};
        x->free_s[rank] = begin + seconds;
        out->busy_s[rank] += seconds;
        if (a.act == CT_ACT_F) *cell(x, x->forward_done, a.stage, a.micro) = begin + seconds;
        if (a.act == CT_ACT_I || a.act == CT_ACT_B) *cell(x, x->backward_done, a.stage, a.micro) = begin + seconds;
    }
    return any;
}

static double peak_of(const ct_actions *list, const ct_stage_cost *costs) {
    double bytes = 0, most = 0;
    for (int i = 0; i < list->count; i++) {
        ct_action a = list->list[i];
        if (a.act == CT_ACT_F) bytes += costs[a.stage].saved_bytes;
        if (bytes > most) most = bytes;
        if (a.act == CT_ACT_W || a.act == CT_ACT_B) bytes -= costs[a.stage].saved_bytes;
    }
    return most;
}

void ct_schedule_simulate(const ct_schedule *s, const ct_stage_cost *costs, double transfer_s, ct_schedule_times *out) {
    size_t cells = (size_t)s->stages * (size_t)s->micros + 1, ranks = (size_t)s->ranks + 1;
    simulation x = {s, costs, transfer_s, ct_malloc(sizeof(double) * cells), ct_malloc(sizeof(double) * cells), ct_calloc(ranks, sizeof(int)),
                    ct_calloc(ranks, sizeof(double))};
    for (size_t i = 0; i < cells; i++) x.forward_done[i] = x.backward_done[i] = -1;
    *out = (ct_schedule_times){s->ranks, ct_calloc(ranks, sizeof *out->of), 0, ct_calloc(ranks, sizeof(double)), ct_calloc(ranks, sizeof(double))};
    for (int r = 0; r < s->ranks; r++) out->of[r] = ct_calloc((size_t)s->of[r].count + 1, sizeof *out->of[r]);
    for (int any = 1; any;) {
        any = 0;
        for (int r = 0; r < s->ranks; r++) any |= advance(&x, r, out);
    }
    for (int r = 0; r < s->ranks; r++) {
        if (x.free_s[r] > out->step_s) out->step_s = x.free_s[r];
        out->peak_bytes[r] = peak_of(&s->of[r], costs);
    }
    free(x.forward_done);
    free(x.backward_done);
    free(x.at);
    free(x.free_s);
}

void ct_schedule_times_deinit(ct_schedule_times *t) {
    for (int r = 0; t->of && r < t->ranks; r++) free(t->of[r]);
    free(t->of);
    free(t->busy_s);
    free(t->peak_bytes);
    *t = (ct_schedule_times){0};
}

double ct_schedule_bubble(const ct_schedule_times *t) {
    double busy = 0;
    for (int r = 0; r < t->ranks; r++) busy += t->busy_s[r];
    return t->step_s > 0 ? 1 - busy / (t->ranks * t->step_s) : 0;
}
