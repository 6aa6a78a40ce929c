#include "overlap.h"
#include "base/memory.h"
#include "graph/op.h"

#include <stdlib.h>

// The first node at which all of a value's memory is written: views write nothing.
static int written_by(const ct_graph *g, int value) {
    int node = g->values[value].node, last = 0;
    if (node < 0) return 0;
    if (!(g->nodes[node].op->flags & CT_OP_VIEW)) return node + 1;
    for (int i = 0; i < g->nodes[node].inputs_count; i++) {
        int w = written_by(g, g->nodes[node].inputs[i]);
        if (w > last) last = w;
    }
    return last;
}

// Runs of nodes of one layer; moves belong to the run that they stand in. Writes the first node of the run before each node's own.
static void find_runs(const ct_graph *g, int *out_earliest) {
    int before = 0, own = 0, layer = -2;
    for (int n = 0; n < g->nodes_count; n++) {
        if (!(g->nodes[n].op->flags & CT_OP_MOVE) && g->nodes[n].from.layer != layer) {
            layer = g->nodes[n].from.layer;
            before = own;
            own = n;
        }
        out_earliest[n] = before;
    }
}

// A weight that is wanted just before the run of its layer begins belongs to what comes.
static int earliest_for(const ct_graph *g, const int *earliest, int n) {
    int reader = n;
    while (reader < g->nodes_count && (g->nodes[reader].op->flags & CT_OP_MOVE)) reader++;
    return reader < g->nodes_count ? earliest[reader] : earliest[n];
}

void ct_find_begins(const ct_graph *g, ct_near near, int *out) {
    int *earliest = ct_malloc(sizeof(int) * (size_t)(g->nodes_count + 1));
    signed char known[1 << CT_MAX_AXES] = {0}; // by axes: 0 not yet, 1 far, -1 near
    find_runs(g, earliest);
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        out[n] = -1;
        if (!(node->op->flags & CT_OP_MOVE)) continue;
        unsigned axes = ct_move_axes(g, node);
        if (!known[axes]) known[axes] = ct_axes_are_far(&g->mesh, axes, near) ? 1 : -1;
        if (known[axes] < 0) continue;
        int begin = written_by(g, node->inputs[ct_moved_operand(node)]), bound = earliest_for(g, earliest, n);
        out[n] = begin > bound ? begin : bound;
        if (out[n] > n) out[n] = n;
    }
    free(earliest);
}
