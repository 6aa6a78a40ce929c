// Cutting a placed joint graph into pipeline stages, and each stage's part of it into three programs: forward, gradient of the stage's input,
// gradients of its weights. A value that another program reads is saved: an output of the one and an input (CT_SAVED) of the other, of the same
// name. What only depends on feeds is computed again wherever it is read; what a stage reads of one further away is passed along the chain.
#pragma once
#include "graph/graph.h"

enum { CT_PART_FORWARD, CT_PART_INPUT_GRAD, CT_PART_WEIGHT_GRAD, CT_PARTS };

// Which modules a stage has: names as in provenance ("tok_embeddings", "layers.3"), each with all below it. Every module of the model stands once.
typedef struct {
    int stages;
    const char *const *const *modules; // by stage, ended by NULL
} ct_stage_map;

// How a graph falls apart. Caller deinits.
typedef struct {
    const ct_graph *graph; // borrowed
    int stages;
    int *stage, *part;     // by node; -1: computed where it is read
    unsigned char *saved;  // by value and stage: not 0 where it is an input or an output of one of the stage's programs
} ct_stages;

// joint: weight gradients are made where input gradients are, in the graph's order, and nothing is kept from the one for the other.
// CT_INVALID: a module that the map has nowhere or twice, or one that has nothing. CT_UNSUPPORTED: values that would have to go where no message goes.
ct_status ct_stages_find(const ct_graph *graph, const ct_stage_map *map, int joint, ct_stages *out_stages);
void ct_stages_deinit(ct_stages *stages);

// The program of a part of a stage, with its own arena; no nodes where there is nothing to do. It is named "forward", "input-grad" or "weight-grad",
// or, where it is all there is to a stage (the graph has no backward), as the graph.
ct_status ct_stage_program(const ct_stages *stages, int stage, int part, ct_graph *out_program);

// Does any node belong to it?
int ct_stage_has(const ct_stages *stages, int stage, int part);

// Values that go from a stage to the next one with a forward (backward: from the next one to it, with an input gradient), ascending. Returns their
// number; out_values has room for all values of the graph, or is NULL.
int ct_stage_messages(const ct_stages *stages, int stage, int backward, int *out_values);

// How long a saved value lives in a stage.
ct_saved_life ct_stage_life(const ct_stages *stages, int stage, int value);

// The name under which a stage saves a value; in the arena.
const char *ct_stage_saved_name(ct_arena *arena, const ct_stages *stages, int stage, int value);
