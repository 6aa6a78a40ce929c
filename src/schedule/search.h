// Inside the schedule search: the problem with what follows from it, and orders of actions, one a rank.
#pragma once
#include "schedule/schedule.h"

typedef struct {
    const ct_schedule_problem *of;
    int *first, *local; // by rank: where its stages stand in `local`, ascending; first[ranks] is the end
    int actions;        // of all ranks
    double bound_s;     // no schedule is faster
} search_problem;

// Orders of all ranks in one list. Rank r's stand from 3 · micros · first[r] on.
typedef struct {
    ct_action *list;
    double step_s;
} search_order;

static inline int search_begin(const search_problem *p, int rank) { return 3 * p->of->micros * p->first[rank]; }

// How an order comes about: what a rank prefers where it could do more than one thing.
typedef enum { SEARCH_BACKWARD_FIRST, SEARCH_FORWARD_FIRST, SEARCH_ALTERNATE, SEARCH_KINDS } search_kind;
typedef enum { SEARCH_DEEP, SEARCH_SHALLOW, SEARCH_ROUNDS } search_stage; // the last stage, the first one, as many micro-batches as ranks of each in turn
enum { SEARCH_LAG_OF_RANK = -1 };
typedef struct {
    search_kind kind;
    search_stage forward, backward; // which of its stages
    int lag;                        // weight gradients that are put off at most while forwards are left; of rank: as many as its number, to the end
    double overrun;                 // the part of a weight gradient's time for which it may keep what is coming waiting
} search_taste;

// Each rank in turn does what it likes best of what it can, in the order of time. (greedy.c)
void search_greedy(const search_problem *p, search_taste taste, search_order *out);

// What it takes to time an order, and when each of its actions ends.
typedef struct {
    double *f_end, *i_end; // by stage and micro-batch
    double *end;           // by place in the order
    double *free_s;        // by rank
    int *at, *todo;
    unsigned char *queued;
} search_clock;
search_clock search_clock_make(const search_problem *p);
void search_clock_free(search_clock *clock);

// Seconds of an order's step; DBL_MAX: it never ends. (clock.c)
double search_time(const search_problem *p, const search_order *order, search_clock *clock);

// When an action has what it needs of others; < 0: nobody knows yet.
double search_ready(const ct_schedule_problem *of, const search_clock *clock, ct_action action);

// Moves actions on the critical path to make the step shorter, never longer; `effort` counts actions timed. (improve.c)
void search_improve(const search_problem *p, int64_t effort, search_order *order);
