// Running a node on a part of a dim at a time, so that what has come can be worked on while the rest is on its way. A kernel's bits don't depend on
// the number of rows, so the parts together are the whole.
#pragma once
#include "graph/graph.h"
#include "graph/local.h"

// Where the dim lies in a node's operands; -1: an operand is read whole every time. What has it has the same `leading` dims before it.
typedef struct {
    int in_dim[CT_MAX_INPUTS], out_dim[CT_MAX_OUTPUTS];
    int leading;
} ct_parts;

enum { CT_MOST_PIECES = 64 }; // of one dim, leading dims counted: more would be too small

// May the node be run on parts of dim `dim` of its operand (output 0: input `operand`, else output `operand`)? Only where every output has the
// dim, no index is summed or bound along it, and nothing is computed in place.
int ct_parts_find(const ct_graph *graph, const ct_node *node, int output, int operand, int dim, ct_parts *out_parts);

// The dim along which a move gathers what is cut in equal order over all its axes, or spreads sums: an all_gather's or a reduce_scatter's, its
// pieces being whole in all other dims. -1: other moves.
int ct_move_dim(const ct_graph *graph, const ct_node *move);
