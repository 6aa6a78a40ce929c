// Placement: a global program becomes one in which every value has a layout over a mesh, and every move of data is a node.
//
// Nobody writes layouts down. Sources (feeds, weights) are cut along the dims whose role an axis may cut; ops pass cuts on by their rules;
// where a value does not lie as its reader needs it, one move is inserted. The roles are constraints: see roles.c.
#pragma once
#include "graph/graph.h"
#include "graph/local.h"

// What one axis cuts at one node, why, and what that moves: an index of its rule ("N"), a "sum" that is kept, or nothing ("").
typedef struct {
    const char *program, *module, *op; // in the arena of the choices
    ct_phase phase;
    int axis;
    const char *why;  // "the state", "the weight", "an operand", "a sum", "nothing cut"
    char cut[8], other[8]; // other: the cheapest index that the roles allow besides; "-": there is none
    double bytes, other_bytes; // that a rank gets from others for it, were the axis alone
} ct_choice;

typedef struct {
    ct_arena arena;
    ct_choice *list;
    int count, capacity;
} ct_choices;
void ct_choices_deinit(ct_choices *choices);

typedef struct {
    ct_mesh mesh;          // axes named dp_replicate, dp_shard, cp, tp, in this order; of size 1: left out
    int sequence_parallel; // between its products, tp cuts the sequence
    int loss_parallel;     // the loss is computed from a cut vocabulary
    int reduce_once;       // weight gradients are added up by update, once a step, not after each micro-batch
    ct_choices *choices;   // not NULL: placement adds what it chose where anything has to move or could have been cut otherwise
    int ring;              // keys and values go round over cp instead of being gathered
} ct_parallel;

enum {
    CT_PLACE_BOUND,  // micro, eval: roles bind
    CT_PLACE_STATES, // prologue, update: whatever is cut may be read cut
};

// Places `from` into the fresh graph `to`. States that `states` (a placed program, or NULL) has by name lie as they do there. A program that is
// placed already is placed again: nodes that are legal stay as they are, new ones get what they need.
// CT_INVALID: a dim can't be cut in so many parts (the message says in which it could).
ct_status ct_place(const ct_graph *from, const ct_parallel *parallel, int binding, const ct_graph *states, ct_graph *to);

// Turns attention over keys that were gathered over `axis` into a ring over it, in a placed program. Without that axis: a copy.
ct_status ct_place_ring(const ct_graph *from, const char *axis, ct_graph *to);

// Makes every gather of a weight in a placed program a state, of kind weight-lowp and named as the weight with this behind it, which the prologue is to
// fill: it is gathered once a step, and kept.
#define CT_WHOLE_SUFFIX ".whole"
ct_status ct_place_hoist(const ct_graph *from, ct_graph *to);

// Orders a placed program so that moves between nodes have work to hide behind: plan/plan.h says when they begin. in_parts: readers of gathered
// activations stand right behind the gather where they may run on its parts (graph/parts.h). A copy where all are near.
ct_status ct_place_overlap(const ct_graph *from, ct_near near, int in_parts, ct_graph *to);

// ---- meshes ----
typedef struct {
    int64_t pp, dp_replicate, dp_shard, cp, tp; // dp_shard -1: what is left
} ct_degrees;

// The mesh of `ranks` ranks. CT_INVALID: the degrees don't multiply to them; the message says what they come to.
ct_status ct_mesh_make(ct_degrees degrees, int ranks, ct_mesh *out_mesh);

// Product of the sizes of the axes that cut the batch, and this rank's number among them (replicas outermost).
int ct_mesh_data_ranks(const ct_mesh *mesh);
int ct_mesh_data_rank(const ct_mesh *mesh, int rank);

// ---- roles.c ----
typedef enum { CT_MAY_NOT, CT_MAY_BETWEEN, CT_MAY } ct_may; // BETWEEN: an activation, where nothing else is cut by the axis
ct_may ct_axis_may_cut(const ct_parallel *parallel, int axis, ct_role role, int weight);

// How a source lies: feeds and weights by their dims' roles, weights in addition along dim 0 by dp_shard and cp.
ct_layout ct_layout_of_feed(const ct_graph *graph, const ct_parallel *parallel, const ct_type *type);
ct_layout ct_layout_of_weight(const ct_graph *graph, const ct_parallel *parallel, const ct_type *type);
// The hinted stream: every axis that may cut one of its dims does.
ct_layout ct_layout_of_residual(const ct_graph *graph, const ct_parallel *parallel, const ct_type *type);
// The accumulator of a weight gradient that lies like `part`: what is partial is cut along dim 0.
ct_layout ct_layout_of_accumulator(const ct_parallel *parallel, const ct_layout *part);
