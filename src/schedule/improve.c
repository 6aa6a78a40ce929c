// Makes an order's step shorter: actions on the critical path are moved ahead, and those before them back; a move stays where the step is no longer than
// it was some moves ago (late acceptance, Burke and Bykov 2017). The pseudo-random numbers that choose are the same in each run.
#include "search.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { LATE = 40, FARTHEST = 12 }; // moves ago; places that an action is moved

typedef struct {
    const search_problem *p;
    search_order *o;
    search_clock clock;
    int *critical, critical_count; // places on the critical path whose actions waited for the one ahead on their rank
    uint64_t random;
} improver;

static int choose(improver *x, int count) { // xorshift64
    x->random ^= x->random << 13, x->random ^= x->random >> 7, x->random ^= x->random << 17;
    return (int)(x->random % (uint64_t)count);
}

static int rank_of(const improver *x, int place) { return x->p->of->rank_of[x->o->list[place].stage]; }

// The place of an action; there is one.
static int place_of(const improver *x, ct_act act, int stage, int micro) {
    int place = search_begin(x->p, x->p->of->rank_of[stage]);
    while (x->o->list[place].act != act || x->o->list[place].stage != stage || x->o->list[place].micro != micro) place++;
    return place;
}

// From the last action back to what each one waited for.
static void find_critical(improver *x) {
    const ct_schedule_problem *of = x->p->of;
    int place = -1;
    for (int r = 0; r < of->ranks; r++)
        if (place < 0 || x->clock.end[search_begin(x->p, r + 1) - 1] > x->clock.end[place]) place = search_begin(x->p, r + 1) - 1;
    for (x->critical_count = 0; place >= 0;) {
        ct_action a = x->o->list[place];
        int first = search_begin(x->p, rank_of(x, place)), from = a.act == CT_ACT_F ? a.stage - 1 : a.stage + 1;
        double there = search_ready(x->p->of, &x->clock, a);
        if (place > first && x->clock.end[place - 1] >= there) x->critical[x->critical_count++] = place--;
        else if (a.act == CT_ACT_I && from == of->stages) place = place_of(x, CT_ACT_F, a.stage, a.micro);
        else place = a.act == CT_ACT_W || from < 0 ? -1 : place_of(x, a.act, from, a.micro);
    }
}

// May an action stand on either side of another of its rank? (What other ranks do in between, the clock finds out.)
static int may_swap(ct_action a, ct_action b) { return a.stage != b.stage || (a.act != b.act && a.micro != b.micro); }

static void move(ct_action *list, int from, int to) {
    ct_action a = list[from];
    if (from < to) memmove(list + from, list + from + 1, sizeof a * (size_t)(to - from));
    else memmove(list + to + 1, list + to, sizeof a * (size_t)(from - to));
    list[to] = a;
}

static int fits(const improver *x, int rank) {
    double held = 0;
    for (int i = search_begin(x->p, rank); i < search_begin(x->p, rank + 1); i++) {
        ct_action a = x->o->list[i];
        if (a.act == CT_ACT_F) held += x->p->of->costs[a.stage].saved_bytes;
        if (held > x->p->of->limit_bytes[rank] * (1 + 1e-12)) return 0;
        if (a.act == CT_ACT_W) held -= x->p->of->costs[a.stage].saved_bytes;
    }
    return 1;
}

// Where a critical action could go: the action ahead of it behind it, or itself some places ahead. from == to: nowhere.
static void suggest(improver *x, int *from, int *to) {
    int place = x->critical[choose(x, x->critical_count)], rank = rank_of(x, place), far = 1 + choose(x, FARTHEST), step = choose(x, 2) ? 1 : -1;
    const ct_action *list = x->o->list;
    *from = *to = step > 0 ? place - 1 : place;
    int first = search_begin(x->p, rank), end = search_begin(x->p, rank + 1);
    for (; far-- && *to + step >= first && *to + step < end && may_swap(list[*from], list[*to + step]);) *to += step;
}

// Shorter steps, and among equal ones those in which ranks end earlier.
static double cost_of(const improver *x, double step_s) {
    double sum = 0;
    for (int r = 0; r < x->p->of->ranks; r++) sum += x->clock.free_s[r];
    return step_s == DBL_MAX ? DBL_MAX : step_s + 0.02 * sum / x->p->of->ranks;
}

static void climb(improver *x, int64_t moves, ct_action *shortest) {
    size_t bytes = sizeof(ct_action) * (size_t)x->p->actions;
    double late[LATE], now = cost_of(x, search_time(x->p, x->o, &x->clock));
    for (int i = 0; i < LATE; i++) late[i] = now;
    memcpy(shortest, x->o->list, bytes);
    find_critical(x);
    for (int64_t n = 0; n < moves && x->critical_count && x->o->step_s > x->p->bound_s * (1 + 1e-9); n++) {
        int from, to;
        suggest(x, &from, &to);
        if (from == to) continue;
        move(x->o->list, from, to);
        double step_s = fits(x, rank_of(x, to)) ? search_time(x->p, x->o, &x->clock) : DBL_MAX, cost = cost_of(x, step_s);
        if (cost <= late[n % LATE] || cost <= now) {
            now = cost;
            find_critical(x);
            if (step_s < x->o->step_s) x->o->step_s = step_s, memcpy(shortest, x->o->list, bytes);
        } else move(x->o->list, to, from);
        late[n % LATE] = now;
    }
    memcpy(x->o->list, shortest, bytes);
}

void search_improve(const search_problem *p, int64_t effort, search_order *order) {
    ct_action *shortest = ct_malloc(sizeof *shortest * (size_t)p->actions);
    improver x = {p, order, search_clock_make(p), ct_malloc(sizeof(int) * (size_t)p->actions), 0, 0x9e3779b97f4a7c15u};
    climb(&x, effort / p->actions, shortest);
    search_clock_free(&x.clock);
    free(x.critical);
    free(shortest);
}
