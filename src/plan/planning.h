// What the files that make a plan share.
#pragma once
#include "alias.h"
#include "graph/local.h"

// When a program's moves between nodes begin, and which nodes run part by part.
typedef struct {
    int *begins;       // by node: the one before which its messages begin; -1: it is no move between nodes
    int *last_reader;  // by node: of a gather whose readers, right behind it, run on what has come; else -1
    int *sum;          // by node: the move that sends the parts of its output as they are made; else -1
    int *first, *last; // by node: from where to where its instructions run
} planned_overlap;

enum { MOST_MESSAGES = 64, MOST_COMMON = 16 };

typedef struct {
    ct_plan *plan;
    ct_plan_options options;
    ct_aliases aliases[CT_PROGRAMS];
    planned_overlap overlap[CT_PROGRAMS];
    int kept_capacity;
    struct name_slot {
        const char *name;
        int index;
    } *names; // open addressing over kept names
    int slots;
    int messages_count;
    struct known_message {
        const ct_op *op;
        double attrs[CT_MAX_ATTRS];
        ct_type type;
        ct_layout from, to;
        size_t bytes;
    } messages[MOST_MESSAGES];
} planning;

static inline size_t planning_round(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

// Finds what overlaps in a program whose memory's aliases are known, and lets memory live as long as that needs. (overlap.c)
void planning_overlap(planning *p, int which);

// Makes a program's instructions: kernels chosen, scratch asked for, offsets relative to their operands. (instructions.c)
ct_status planning_instructions(planning *p, int which);
