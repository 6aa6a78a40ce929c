// A schedule made for given costs and memory, as ZB-2P's automatic one is (Qi et al. 2023, arXiv 2401.10241, section 3) but by other means: orders by list
// scheduling under many tastes, the best of them improved along the critical path. Work is counted, not timed: all ranks find the same.
#include "search.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 4 }; // orders that are improved
// Actions placed under each assumption, and timed while orders are improved.
static const int64_t greedy_effort = 2000000, improve_effort = 12000000;

// ---- the problem ----
static ct_status check(const ct_schedule_problem *of) {
    CT_CHECK(of->ranks >= 1 && of->stages >= of->ranks && of->micros >= 1, CT_INVALID,
             "Auto of %d stages on %d ranks and %d micro-batches: at least 1 of each is wanted, and a stage on every rank", of->stages, of->ranks, of->micros);
    for (int r = 0; r < of->ranks; r++) {
        double least = 0;
        for (int k = 0; k < of->stages; k++) least += of->rank_of[k] == r ? of->costs[k].saved_bytes : 0;
        CT_CHECK(least <= of->limit_bytes[r], CT_INVALID, "Auto: rank %d may save %g at once, but one micro-batch of its stages takes %g", r,
                 of->limit_bytes[r], least);
    }
    return CT_OK;
}

// A rank begins when the first micro-batch can have come to it, and works without a pause.
static double bound_of(const ct_schedule_problem *of, int rank) {
    double way = 0, begin = DBL_MAX, work = 0;
    for (int k = 0; k < of->stages; k++) {
        const ct_stage_cost *c = &of->costs[k];
        if (k && of->rank_of[k] != of->rank_of[k - 1]) way += of->transfer_s;
        if (of->rank_of[k] == rank) work += of->micros * (c->forward_s + c->input_grad_s + c->weight_grad_s), begin = begin < way ? begin : way;
        way += c->forward_s;
    }
    return begin + work;
}

static void set_up(const ct_schedule_problem *of, search_problem *out) {
    *out = (search_problem){of, ct_calloc((size_t)of->ranks + 1, sizeof(int)), ct_malloc(sizeof(int) * (size_t)of->stages), 3 * of->micros * of->stages, 0};
    for (int r = 0, count = 0; r < of->ranks; r++) {
        for (int k = 0; k < of->stages; k++)
            if (of->rank_of[k] == r) out->local[count++] = k;
        out->first[r + 1] = count;
        double bound = bound_of(of, r);
        if (bound > out->bound_s) out->bound_s = bound;
    }
}

// ---- tastes ----
enum { LAGS = 4, TASTES = 2 * LAGS * SEARCH_KINDS * 2 * 2 };

static search_taste taste_of(const ct_schedule_problem *of, int number) {
    const int lags[LAGS] = {INT_MAX, 0, of->ranks, SEARCH_LAG_OF_RANK};
    search_taste t = {.overrun = number % 2};
    number /= 2;
    t.lag = lags[number % LAGS];
    number /= LAGS;
    t.kind = (search_kind)(number % SEARCH_KINDS);
    number /= SEARCH_KINDS;
    t.forward = number % 2 ? SEARCH_ROUNDS : SEARCH_DEEP;
    t.backward = number / 2 ? SEARCH_SHALLOW : SEARCH_DEEP;
    return t;
}

// What else than the true costs ranks decide by: even costs often give the better orders, for uneven ones break up patterns that pay in the long run.
typedef enum { TRUE_COSTS, ALL_EQUAL, EQUAL_STAGES, ASSUMPTIONS } assumption;

static void assume(const ct_schedule_problem *of, assumption which, ct_stage_cost *costs) {
    double f = 0, i = 0, w = 0;
    for (int k = 0; k < of->stages; k++) f += of->costs[k].forward_s, i += of->costs[k].input_grad_s, w += of->costs[k].weight_grad_s;
    if (which == ALL_EQUAL) f = i = w = (f + i + w) / 3;
    for (int k = 0; k < of->stages; k++) {
        double bytes = of->costs[k].saved_bytes;
        costs[k] = which == TRUE_COSTS ? of->costs[k] : (ct_stage_cost){f / of->stages, i / of->stages, w / of->stages, bytes};
    }
}

// ---- the best ones ----
static search_order make_order(const search_problem *p) { return (search_order){ct_malloc(sizeof(ct_action) * (size_t)p->actions), DBL_MAX}; }

static int is_best(const search_problem *p, const search_order *o) { return o->step_s <= p->bound_s * (1 + 1e-9); }

// Puts an order among the best ones, shortest first and each of another length; what falls out is the next one's memory.
static void keep(search_order *best, search_order *made) {
    for (int i = 0; i < KEPT; i++) {
        if (made->step_s == best[i].step_s) return;
        if (made->step_s > best[i].step_s) continue;
        search_order other = best[i];
        best[i] = *made;
        *made = other;
    }
}

static void try_tastes(const search_problem *p, const search_problem *assumed, search_clock *clock, search_order *best, search_order *made) {
    int64_t left = greedy_effort;
    for (int number = 0; number < TASTES && left > 0 && !is_best(p, &best[0]); number++) {
        search_taste taste = taste_of(p->of, number);
        if (p->of->stages == p->of->ranks && (taste.forward || taste.backward)) return; // a rank has but one stage
        search_greedy(assumed, taste, made);
        made->step_s = search_time(p, made, clock);
        keep(best, made);
        left -= p->actions;
    }
}

static void search(const search_problem *p, search_order *best) {
    search_order made = make_order(p);
    search_clock clock = search_clock_make(p);
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)p->of->stages);
    ct_schedule_problem otherwise = *p->of;
    search_problem assumed = *p;
    otherwise.costs = costs;
    assumed.of = &otherwise;
    for (int which = 0; which < ASSUMPTIONS; which++) {
        assume(p->of, (assumption)which, costs);
        otherwise.transfer_s = which == TRUE_COSTS ? p->of->transfer_s : 0;
        try_tastes(p, &assumed, &clock, best, &made);
    }
    for (int i = 0; i < KEPT; i++)
        if (best[i].step_s < DBL_MAX && !is_best(p, &best[0])) search_improve(p, improve_effort / KEPT, &best[i]);
    for (int i = 1; i < KEPT; i++)
        if (best[i].step_s < best[0].step_s) {
            search_order other = best[0];
            best[0] = best[i];
            best[i] = other;
        }
    free(made.list);
    free(costs);
    search_clock_free(&clock);
}

// ---- the whole ----
static void write_down(const search_problem *p, const search_order *order, ct_schedule *out) {
    const ct_schedule_problem *of = p->of;
    *out = (ct_schedule){.name = "Auto", .ranks = of->ranks, .stages = of->stages, .micros = of->micros};
    out->rank_of = ct_malloc(sizeof(int) * (size_t)of->stages);
    memcpy(out->rank_of, of->rank_of, sizeof(int) * (size_t)of->stages);
    out->of = ct_calloc((size_t)of->ranks, sizeof *out->of);
    for (int r = 0; r < of->ranks; r++) {
        int count = 3 * of->micros * (p->first[r + 1] - p->first[r]);
        out->of[r] = (ct_actions){ct_malloc(sizeof(ct_action) * (size_t)(count + 1)), count, count + 1};
        memcpy(out->of[r].list, order->list + search_begin(p, r), sizeof(ct_action) * (size_t)count);
    }
}

ct_status ct_schedule_search(const ct_schedule_problem *of, ct_schedule *out) {
    CT_TRY(check(of));
    search_problem p;
    search_order best[KEPT];
    set_up(of, &p);
    for (int i = 0; i < KEPT; i++) best[i] = make_order(&p);
    search(&p, best);
    write_down(&p, &best[0], out);
    for (int i = 0; i < KEPT; i++) free(best[i].list);
    free(p.first);
    free(p.local);
    return CT_OK;
}

ct_status ct_schedule_auto(int ranks, int local, int micros, const ct_stage_cost *costs, double transfer_s, int slots, ct_schedule *out) {
    CT_CHECK(ranks >= 1 && local >= 1 && micros >= 1, CT_INVALID,
             "Auto of %d ranks with %d stages each and %d micro-batches: at least 1 of each is wanted", ranks, local, micros);
    int stages = ranks * local, *rank_of = ct_malloc(sizeof(int) * (size_t)stages);
    ct_stage_cost *equal = ct_malloc(sizeof *equal * (size_t)stages);
    double *limits = ct_malloc(sizeof(double) * (size_t)ranks);
    for (int k = 0; k < stages; k++) {
        rank_of[k] = k / ranks % 2 ? ranks - 1 - k % ranks : k % ranks;
        equal[k] = costs[k];
        equal[k].saved_bytes = 1;
    }
    for (int r = 0; r < ranks; r++) limits[r] = slots ? slots : ranks * (local > 2 ? local : 2);
    ct_status status = ct_schedule_search(&(ct_schedule_problem){ranks, stages, micros, rank_of, equal, transfer_s, limits}, out);
    free(rank_of);
    free(equal);
    free(limits);
    return status;
}
