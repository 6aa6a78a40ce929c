// One order of actions by list scheduling: ranks decide in the order of time, each by the same taste. Forwards, input gradients and weight gradients of a
// stage each run in ascending order of micro-batches, so a state is three counts a stage.
#include "search.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const search_problem *p;
    search_taste taste;
    int *done[3];             // F, I, W, by stage
    double *f_end, *i_end;    // by stage and micro-batch
    double *free_s, *decides; // by rank: free from; the earliest time at which it can begin something
    ct_act *last;             // by rank: its last F or I
    ct_action *list;
    int *count;               // by rank
} state;

static double seconds_of(const state *x, ct_act act, int stage) {
    const ct_stage_cost *c = &x->p->of->costs[stage];
    return act == CT_ACT_F ? c->forward_s : act == CT_ACT_I ? c->input_grad_s : c->weight_grad_s;
}

static size_t cell(const state *x, int stage, int micro) { return (size_t)stage * (size_t)x->p->of->micros + (size_t)micro; }

static double travel(const state *x, int from, int to) {
    return x->p->of->rank_of[from] == x->p->of->rank_of[to] ? 0 : x->p->of->transfer_s;
}

// When a stage's next action of a kind has what it needs; INFINITY: nobody knows yet.
static double arrival(const state *x, ct_act act, int stage) {
    const ct_schedule_problem *of = x->p->of;
    int m = x->done[act][stage];
    if (m >= of->micros) return INFINITY;
    if (act == CT_ACT_W) return m < x->done[CT_ACT_I][stage] ? x->i_end[cell(x, stage, m)] : INFINITY;
    if (act == CT_ACT_F) {
        if (!stage) return 0;
        return x->done[CT_ACT_F][stage - 1] > m ? x->f_end[cell(x, stage - 1, m)] + travel(x, stage - 1, stage) : INFINITY;
    }
    if (x->done[CT_ACT_F][stage] <= m) return INFINITY;
    double here = x->f_end[cell(x, stage, m)];
    if (stage == of->stages - 1) return here;
    return x->done[CT_ACT_I][stage + 1] > m ? fmax(here, x->i_end[cell(x, stage + 1, m)] + travel(x, stage + 1, stage)) : INFINITY;
}

// May a rank save one more of a stage? Then too every micro-batch under way must be able to go on once those before it have gone: for the first one
// that a stage of this rank has not seen, there is room beside all that came later.
static int has_room(const state *x, int rank, int stage) {
    const search_problem *p = x->p;
    x->done[CT_ACT_F][stage]++;
    int fits = 1;
    for (int a = p->first[rank]; a < p->first[rank + 1] && fits; a++) {
        int micro = x->done[CT_ACT_F][p->local[a]];
        double bytes = 0;
        for (int b = p->first[rank]; b < p->first[rank + 1]; b++) {
            int k = p->local[b], f = x->done[CT_ACT_F][k], w = x->done[CT_ACT_W][k];
            bytes += p->of->costs[k].saved_bytes * (f <= micro ? 1 : f - (w > micro ? w : micro));
        }
        if (micro < p->of->micros) fits = bytes <= p->of->limit_bytes[rank];
    }
    double held = 0;
    for (int b = p->first[rank]; b < p->first[rank + 1]; b++)
        held += p->of->costs[p->local[b]].saved_bytes * (x->done[CT_ACT_F][p->local[b]] - x->done[CT_ACT_W][p->local[b]]);
    x->done[CT_ACT_F][stage]--;
    return fits && held <= p->of->limit_bytes[rank];
}

static void look(state *x, int rank) {
    double soonest = INFINITY;
    for (int a = x->p->first[rank]; a < x->p->first[rank + 1]; a++)
        for (int act = CT_ACT_F; act <= CT_ACT_W; act++) {
            double at = arrival(x, (ct_act)act, x->p->local[a]);
            if (at < soonest && (act != CT_ACT_F || has_room(x, rank, x->p->local[a]))) soonest = at;
        }
    x->decides[rank] = fmax(soonest, x->free_s[rank]);
}

static double place_in_line(const state *x, search_stage order, ct_act act, int stage) {
    int round = x->done[act][stage] / x->p->of->ranks;
    if (order == SEARCH_ROUNDS) return stage + (double)round * x->p->of->stages;
    return order == SEARCH_DEEP ? -stage : stage;
}

// Less is preferred.
static double dislike(const state *x, int rank, ct_act act, int stage) {
    const search_taste *t = &x->taste;
    ct_act liked = t->kind == SEARCH_BACKWARD_FIRST ? CT_ACT_I : t->kind == SEARCH_FORWARD_FIRST || x->last[rank] == CT_ACT_I ? CT_ACT_F : CT_ACT_I;
    return (act == liked ? 0 : 1e12) + place_in_line(x, act == CT_ACT_F ? t->forward : t->backward, act, stage);
}

typedef struct {
    ct_action ready, weight; // the forward or input gradient that is liked best, the oldest weight gradient; micro < 0: none
    double coming_s;         // when the next forward or input gradient can begin
    int put_off, left;       // weight gradients that could be made; forwards to come
} choice;

static choice find(const state *x, int rank) {
    choice c = {{CT_ACT_F, 0, -1}, {CT_ACT_W, 0, -1}, INFINITY, 0, 0};
    double least = INFINITY, oldest = INFINITY, now = x->decides[rank];
    for (int a = x->p->first[rank]; a < x->p->first[rank + 1]; a++) {
        int k = x->p->local[a];
        for (int act = CT_ACT_F; act <= CT_ACT_I; act++) {
            double at = arrival(x, (ct_act)act, k), d;
            if (at == INFINITY || (act == CT_ACT_F && !has_room(x, rank, k))) continue;
            if (at > now) c.coming_s = fmin(c.coming_s, at);
            else if ((d = dislike(x, rank, (ct_act)act, k)) < least) least = d, c.ready = (ct_action){(ct_act)act, k, x->done[act][k]};
        }
        double at = arrival(x, CT_ACT_W, k);
        if (at < oldest) oldest = at, c.weight = (ct_action){CT_ACT_W, k, x->done[CT_ACT_W][k]};
        c.put_off += x->done[CT_ACT_I][k] - x->done[CT_ACT_W][k];
        c.left += x->p->of->micros - x->done[CT_ACT_F][k];
    }
    return c;
}

static void begin(state *x, int rank, ct_action a) {
    double end = x->decides[rank] + seconds_of(x, a.act, a.stage);
    x->list[search_begin(x->p, rank) + x->count[rank]++] = a;
    x->done[a.act][a.stage]++;
    x->free_s[rank] = end;
    if (a.act == CT_ACT_W) return;
    (a.act == CT_ACT_F ? x->f_end : x->i_end)[cell(x, a.stage, a.micro)] = end;
    x->last[rank] = a.act;
    int next = a.act == CT_ACT_F ? a.stage + 1 : a.stage - 1;
    if (next >= 0 && next < x->p->of->stages) look(x, x->p->of->rank_of[next]);
}

static int most_put_off(const state *x, int rank, int forwards_left) {
    if (x->taste.lag == SEARCH_LAG_OF_RANK) return rank;
    return forwards_left ? x->taste.lag : INT_MAX;
}

static void decide(state *x, int rank) {
    choice c = find(x, rank);
    int has_weight = c.weight.micro >= 0;
    double late = has_weight ? x->decides[rank] + (1 - x->taste.overrun) * seconds_of(x, CT_ACT_W, c.weight.stage) : 0;
    if (has_weight && (c.put_off > most_put_off(x, rank, c.left) || (c.ready.micro < 0 && late <= c.coming_s))) begin(x, rank, c.weight);
    else if (c.ready.micro >= 0) begin(x, rank, c.ready);
    else x->free_s[rank] = c.coming_s;
    look(x, rank);
}

static void run(state *x) {
    const search_problem *p = x->p;
    for (int r = 0; r < p->of->ranks; r++) look(x, r);
    for (;;) {
        int next = 0;
        for (int r = 1; r < p->of->ranks; r++)
            if (x->decides[r] < x->decides[next]) next = r;
        if (x->decides[next] == INFINITY) return;
        decide(x, next);
    }
}

void search_greedy(const search_problem *p, search_taste taste, search_order *out) {
    size_t stages = (size_t)p->of->stages, cells = stages * (size_t)p->of->micros, ranks = (size_t)p->of->ranks;
    int *done = ct_calloc(3 * stages, sizeof *done), *count = ct_calloc(ranks, sizeof *count);
    double *times = ct_calloc(2 * cells + 2 * ranks, sizeof *times);
    ct_act *last = ct_calloc(ranks, sizeof *last);
    state x = {p, taste, {done, done + stages, done + 2 * stages}, times, times + cells, times + 2 * cells, times + 2 * cells + ranks, last, out->list, count};
    run(&x);
    out->step_s = 0;
    for (int r = 0; r < p->of->ranks; r++) out->step_s = fmax(out->step_s, x.free_s[r]);
    for (int r = 0; r < p->of->ranks; r++)
        CT_ASSERT(count[r] == 3 * p->of->micros * (p->first[r + 1] - p->first[r]), "the search stopped at action %d of rank %d", count[r], r);
    free(done);
    free(count);
    free(times);
    free(last);
}
