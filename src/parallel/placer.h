// What the files of the placement pass share.
#pragma once
#include "graph/op.h"
#include "graph/rewrite.h"
#include "parallel/place.h"

// A value moved to another layout, so that a second reader need not move it again.
typedef struct {
    int value, moved, next; // next: index of the value's next entry, -1
} moved_value;

typedef struct {
    ct_rewrite r;
    const ct_parallel *p;
    int binding;
    const ct_graph *states;
    unsigned char *unplaced; // by input of `to`: its layout is not known yet
    int *moves;              // by value of `to`: index of its first entry in `moved`, -1: none
    int moves_capacity;
    moved_value *moved;
    int moved_count, moved_capacity;
} placer;

// The value as `target` wants it, moved (at the present provenance) where it lies otherwise. (moves.c)
int placer_move(placer *p, int value, const ct_layout *target);

// The value as a part of a sum over the axis pp; itself where there is none. (moves.c)
int placer_sum_stages(placer *p, int value);

// Layouts that the node's operands should have, by axis and index, and of its outputs the cuts of indices that no operand has; decides
// nothing about views. (choose.c)
ct_status placer_choose(placer *p, const ct_node *node, const int *inputs, ct_layout *out_wanted, ct_layout out_new[CT_MAX_OUTPUTS]);

static inline ct_layout *layout_at(placer *p, int value) { return &p->r.to->values[value].layout; }
// The program input that a value of `to` is, or NULL.
static inline const ct_input *input_of(const placer *p, int value) {
    const ct_value_info *v = &p->r.to->values[value];
    return v->node == -1 ? &p->r.to->inputs[v->output] : NULL;
}
static inline int is_unplaced(const placer *p, int value) {
    const ct_value_info *v = &p->r.to->values[value];
    return v->node == -1 && p->unplaced[v->output];
}
