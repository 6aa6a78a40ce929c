// Pipeline schedules as data: which rank does what for which micro-batch, in which order. They know no graph and no memory; whoever runs them does
// what an action says when what it needs has come.
//
// A model is cut into `stages` consecutive stages, several of which may live on one rank. F: forward; I: gradient of a stage's input; W:
// gradients of its weights; B: both. The text of an action is torch's: "{stage}{kind}{micro}", "2F3", "1I0", "0SEND_F2".
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

// The schedule of this name (torch's: "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"; case
// doesn't matter) on `ranks` ranks of `local` stages each, compute actions only. Weight gradients of a stage come in ascending order of
// micro-batches. CT_INVALID: no such name (the message lists them), or numbers that it can't do (the message says which it can).
ct_status ct_schedule_make(const char *name, int ranks, int local, int micros, ct_schedule *out_schedule);
void ct_schedule_deinit(ct_schedule *schedule);

// Adds sends and receives: each send right behind what makes it, each receive before the action ahead of its reader, so that it is open while
// that runs. Between two stages of one rank nothing is sent.
ct_status ct_schedule_lower(const ct_schedule *compute, ct_schedule *out_lowered);

// Can it be run? Every stage on one rank, every action of every micro-batch once and after what it needs, every send with its receive, no rank
// waiting for ever. CT_INVALID says which action of which rank, and why.
ct_status ct_schedule_verify(const ct_schedule *schedule);

// Room for what lives from a forward (or its receive) to its weight gradients: for each stage how many slots it needs, and each micro-batch's own
// among them, [stage · micros + micro]. As many as are under way at once, and more only where a slot whose messages are not yet received would
// stop the schedule. The schedule is lowered and verified.
void ct_schedule_slots(const ct_schedule *schedule, int *out_counts, int *out_slot_of);

void ct_action_print(ct_action action, char *out, size_t size);
