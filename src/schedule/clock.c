// The time that an order takes: each action as soon as its rank is free and what it needs is there.
#include "search.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t cell(const ct_schedule_problem *of, int stage, int micro) { return (size_t)stage * (size_t)of->micros + (size_t)micro; }

search_clock search_clock_make(const search_problem *p) {
    size_t cells = (size_t)p->of->stages * (size_t)p->of->micros, ranks = (size_t)p->of->ranks;
    return (search_clock){ct_malloc(sizeof(double) * cells), ct_malloc(sizeof(double) * cells), ct_malloc(sizeof(double) * (size_t)p->actions),
                          ct_malloc(sizeof(double) * ranks), ct_malloc(sizeof(int) * ranks), ct_malloc(sizeof(int) * ranks), ct_malloc(ranks)};
}

void search_clock_free(search_clock *c) {
    free(c->f_end);
    free(c->i_end);
    free(c->end);
    free(c->free_s);
    free(c->at);
    free(c->todo);
    free(c->queued);
}

double search_ready(const ct_schedule_problem *of, const search_clock *c, ct_action a) {
    if (a.act == CT_ACT_W) return c->i_end[cell(of, a.stage, a.micro)];
    int from = a.act == CT_ACT_F ? a.stage - 1 : a.stage + 1;
    if (a.act == CT_ACT_I && c->f_end[cell(of, a.stage, a.micro)] < 0) return -1;
    if (from < 0 || from == of->stages) return 0;
    double end = (a.act == CT_ACT_F ? c->f_end : c->i_end)[cell(of, from, a.micro)];
    return end < 0 ? -1 : end + (of->rank_of[from] == of->rank_of[a.stage] ? 0 : of->transfer_s);
}

static void advance(const search_problem *p, const search_order *o, search_clock *c, int rank, int *waiting) {
    const ct_schedule_problem *of = p->of;
    int last = search_begin(p, rank + 1);
    for (; c->at[rank] < last; c->at[rank]++) {
        ct_action a = o->list[c->at[rank]];
        const ct_stage_cost *cost = &of->costs[a.stage];
        double there = search_ready(of, c, a);
        if (there < 0) return;
        double end = fmax(there, c->free_s[rank]) + (a.act == CT_ACT_F ? cost->forward_s : a.act == CT_ACT_I ? cost->input_grad_s : cost->weight_grad_s);
        c->free_s[rank] = c->end[c->at[rank]] = end;
        if (a.act == CT_ACT_W) continue;
        (a.act == CT_ACT_F ? c->f_end : c->i_end)[cell(of, a.stage, a.micro)] = end;
        int next = a.act == CT_ACT_F ? a.stage + 1 : a.stage - 1, other = next >= 0 && next < of->stages ? of->rank_of[next] : rank;
        if (other != rank && !c->queued[other]) c->queued[other] = 1, c->todo[(*waiting)++] = other;
    }
}

double search_time(const search_problem *p, const search_order *o, search_clock *c) {
    size_t cells = (size_t)p->of->stages * (size_t)p->of->micros;
    int waiting = 0;
    double step_s = 0;
    for (size_t i = 0; i < cells; i++) c->f_end[i] = c->i_end[i] = -1;
    for (int r = p->of->ranks - 1; r >= 0; r--) c->free_s[r] = 0, c->at[r] = search_begin(p, r), c->queued[r] = 1, c->todo[waiting++] = r;
    while (waiting) {
        int rank = c->todo[--waiting];
        c->queued[rank] = 0;
        advance(p, o, c, rank, &waiting);
    }
    for (int r = 0; r < p->of->ranks; r++) {
        if (c->at[r] < search_begin(p, r + 1)) return DBL_MAX;
        step_s = fmax(step_s, c->free_s[r]);
    }
    return step_s;
}
