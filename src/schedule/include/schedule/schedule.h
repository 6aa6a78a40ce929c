// Pipeline schedules as data: which rank does what for which micro-batch, in which order. They know no graph and no memory; whoever runs them does
// what an action says when what it needs has come.
//
// A model is cut into `stages` consecutive stages, several of which may live on one rank. F: forward; I: gradient of a stage's input; W:
// gradients of its weights; B: both. The text of an action is torch's: "{stage}{kind}{micro}", "2F3", "1I0", "0SEND_F2", "0UNSHARD".
#pragma once
#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

typedef enum {
    CT_ACT_F,
    CT_ACT_I,
    CT_ACT_W,
    CT_ACT_B, // I and W
    CT_ACT_SEND_F, // what the next stage reads of a forward
    CT_ACT_RECV_F,
    CT_ACT_SEND_B, // what the stage before reads of an input gradient
    CT_ACT_RECV_B,
    CT_ACT_UNSHARD, // gathers the stage's weights, once a step; the micro-batch is 0
    CT_ACT_REDUCE,  // adds up its gradients over the ranks, once a step
    CT_ACT_KINDS
} ct_act;

typedef struct {
    ct_act act;
    int stage, micro;
} ct_action;

typedef struct {
    ct_action *list;
    int count, capacity;
} ct_actions;

typedef struct {
    char name[32];
    int ranks, stages, micros;
    int *rank_of;       // by stage
    ct_actions *of;     // by rank, in order
} ct_schedule;

// The schedule of this name (torch's: "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"; and ours,
// "Auto", here for equal costs and its usual memory; case doesn't matter) on `ranks` ranks of `local` stages each, compute actions only. Weight gradients of a stage come in ascending order of
// micro-batches. CT_INVALID: no such name (the message lists them), or numbers that it can't do (the message says which it can).
ct_status ct_schedule_make(const char *name, int ranks, int local, int micros, ct_schedule *out_schedule);
void ct_schedule_deinit(ct_schedule *schedule);

// Adds sends and receives: each send right behind what makes it, each receive before the action ahead of its reader, so that it is open while
// that runs. Between two stages of one rank nothing is sent. A stage's weights are gathered right before its first forward, and its gradients are added
// up right behind its last weight gradients.
ct_status ct_schedule_lower(const ct_schedule *compute, ct_schedule *out_lowered);

// Can it be run? Every stage on one rank, every action of every micro-batch once and after what it needs, every send with its receive, no rank
// waiting for ever. CT_INVALID says which action of which rank, and why.
ct_status ct_schedule_verify(const ct_schedule *schedule);

// Room for what is saved of micro-batches, in pools of slots: from a forward (or its receive) to the input gradient; from there to the weight
// gradients; from the input gradient to the weight gradients; and what comes back from the next stage, from its receive to the weight gradients.
// counts[stage · CT_POOLS + pool] says how many slots a pool has, slot_of[(stage · micros + micro) · CT_POOLS + pool] which one is a micro-batch's. As many as are in use at once, and more only where a slot whose
// message is not yet received would stop the schedule. The schedule is lowered and verified.
enum { CT_POOL_TO_INPUT_GRAD, CT_POOL_TO_WEIGHT_GRAD, CT_POOL_BACKWARD, CT_POOL_FROM_NEXT, CT_POOLS };
void ct_schedule_slots(const ct_schedule *schedule, int *out_counts, int *out_slot_of);

void ct_action_print(ct_action action, char *out, size_t size);

// ---- from a file ----

// torch's CSV: one line a rank, one action a field, "2F3"; empty fields are skipped. `stages` of the schedule's file name go to whom they say;
// there are as many micro-batches as it names. CT_INVALID says file, line, field and why. Verify what was read.
ct_status ct_schedule_read_csv(const char *path, int ranks, int micros, ct_schedule *out_schedule);

// ---- how long it takes ----

// Of a stage: seconds of a micro-batch's forward, input gradient and weight gradients, and bytes that live from the forward to the last of them.
typedef struct {
    double forward_s, input_grad_s, weight_grad_s, saved_bytes;
} ct_stage_cost;

typedef struct {
    double begin_s, end_s;
} ct_action_time;

// Forward, input-grad and weight-grad seconds of `stages` stages from a CSV file as a profile writes it, pipeline_costs.csv: a line
// "stage,forward_s,input_grad_s,weight_grad_s" (may be missing), then one a stage in their order. saved_bytes is 1. CT_INVALID says file, line and why.
ct_status ct_schedule_read_costs(const char *path, int stages, ct_stage_cost *out_costs);

// Each action as soon as its rank is free and what it needs is there, a message taking transfer_s. Caller deinits.
typedef struct {
    int ranks;
    ct_action_time **of;        // by rank and action; sends and receives take no time
    double step_s, *busy_s;     // busy by rank
    double *peak_bytes;         // saved, by rank
} ct_schedule_times;
void ct_schedule_simulate(const ct_schedule *schedule, const ct_stage_cost *costs, double transfer_s, ct_schedule_times *out_times);
void ct_schedule_times_deinit(ct_schedule_times *times);

// The part of all ranks' time in which they wait: 1 − Σ busy / (ranks × step).
double ct_schedule_bubble(const ct_schedule_times *times);

// ---- made for given costs ----

// What is to be scheduled.
typedef struct {
    int ranks, stages, micros;
    const int *rank_of;         // by stage
    const ct_stage_cost *costs; // by stage
    double transfer_s;          // of a message between ranks
    const double *limit_bytes;  // by rank: what it may save at once, in the measure of costs[].saved_bytes (1 each: the limit counts micro-batches)
} ct_schedule_problem;

// "Auto": a short schedule of these stages within this memory (ct_schedule_simulate's peak_bytes), compute actions only, backwards taken apart: list
// scheduling by many tastes, the best ones improved along their critical paths. No named schedule is among its candidates; forwards, input gradients and
// weight gradients of a stage come in ascending order of micro-batches. The same problem gives the same schedule on every rank and machine.
// CT_INVALID: a rank's limit holds less than one micro-batch of all its stages. 16 ranks × 2 stages × 64 micro-batches take less than a second.
ct_status ct_schedule_search(const ct_schedule_problem *problem, ct_schedule *out_schedule);

// The same of `local` stages a rank, which go to the ranks and back and so on, each rank saving at most `slots` micro-batches of its stages together;
// 0: as many as 1F1B does in all, and at least two a rank as in ZB-2P: ranks × max(local, 2). Costs by stage.
ct_status ct_schedule_auto(int ranks, int local, int micros, const ct_stage_cost *costs, double transfer_s, int slots, ct_schedule *out_schedule);

// ---- to look at ----

// A line a rank, `columns` characters for the step: the micro-batch's last digit, and its kind by case and colour (F, B and I, W) where `color`.
void ct_schedule_print(const ct_schedule *schedule, const ct_schedule_times *times, int columns, int color, ct_string *out);
typedef void ct_schedule_draw(const ct_schedule *schedule, const ct_schedule_times *times, const ct_schedule_times *measured, ct_string *out);
// Ranks below one another, actions as boxes by stage and kind, what is saved below them; where `measured` is not NULL its own rows below.
ct_schedule_draw ct_schedule_draw_svg;
// For Perfetto and chrome://tracing: a thread a rank; measured ones in a process of their own.
ct_schedule_draw ct_schedule_draw_trace;
// Either into a file, which is whole or absent; a NULL path: nothing.
ct_status ct_schedule_draw_file(const char *path, ct_schedule_draw *draw, const ct_schedule *schedule, const ct_schedule_times *times,
                                const ct_schedule_times *measured);
