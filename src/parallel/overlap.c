// The order of a program in which moves between nodes have something to hide behind. A result that comes from afar is made as late as its first
// reader allows, a sum that nobody reads before the update one layer later; products for weights wait until there is a message to hide.
// Values don't change: only what stands between a move's operand and its readers does.
#include "parallel/place.h"
#include "base/memory.h"
#include "graph/local.h"
#include "graph/op.h"
#include "graph/parts.h"
#include "graph/rewrite.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_READERS = 16 }; // of a gather, that run on its parts

// Nodes that touch a piece of memory which a later one overwrites.
typedef struct touch {
    int node;
    int next; // index of another one, -1
} touch;

typedef struct {
    const ct_graph *g;
    int in_parts;            // readers that may work on what has come stand behind their gather
    unsigned char *is_far;   // by node: a move between nodes
    unsigned char *emitted;
    int *run;                // by node: the number of its layer's run
    unsigned char *run_waits; // by run: it has far moves of values that were computed in it
    int *root;               // by value: the value whose memory it is
    int *touches;            // by root: head of a chain into `touched`
    touch *touched;
    int touched_count, touched_capacity;
    int **before;            // by node that overwrites memory: nodes that must have run, ended by -1
    int *order, count;
    int *deferred, deferred_count; // products for weights, in order
    int *pending, pending_count;   // far moves, in order
} ordering;

// ---- what must stand before what ----
static int root_of(const ordering *o, int value) {
    while (o->root[value] != value) value = o->root[value];
    return value;
}

static void add_touch(ordering *o, int root, int node) {
    CT_GROW(o->touched, o->touched_count, o->touched_capacity);
    o->touched[o->touched_count] = (touch){node, o->touches[root]};
    o->touches[root] = o->touched_count++;
}

static int *touching(const ordering *o, int root) {
    int count = 0;
    for (int t = o->touches[root]; t >= 0; t = o->touched[t].next) count++;
    int *list = ct_malloc(sizeof *list * (size_t)(count + 1));
    count = 0;
    for (int t = o->touches[root]; t >= 0; t = o->touched[t].next) list[count++] = o->touched[t].node;
    list[count] = -1;
    return list;
}

static int overwrites(const ct_node *node) {
    return !(node->op->flags & CT_OP_VIEW) && node->op->must_alias[0] > 0; // by ops of one output, as all such are
}

static void find_touches(ordering *o) {
    const ct_graph *g = o->g;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        if (overwrites(node)) { // what was before the last one that did has it between
            int root = root_of(o, node->inputs[node->op->must_alias[0] - 1]);
            o->before[n] = touching(o, root);
            o->touches[root] = -1;
        }
        for (int i = 0; i < node->inputs_count; i++) add_touch(o, root_of(o, node->inputs[i]), n);
        for (int k = 0; k < node->outputs_count; k++)
            if (node->op->must_alias[k]) o->root[node->outputs[k]] = root_of(o, node->inputs[node->op->must_alias[k] - 1]);
    }
}

// ---- runs of layers ----
static int is_move(const ct_node *node) { return (node->op->flags & CT_OP_MOVE) != 0; }

// Does a move bring what this program computed? (Weights are there before it starts.)
static int is_of_computed(const ct_graph *g, const ct_node *move) { return g->values[move->inputs[ct_moved_operand(move)]].node >= 0; }

static void find_runs(ordering *o) {
    const ct_graph *g = o->g;
    int run = -1, layer = -2;
    for (int n = 0; n < g->nodes_count; n++) {
        if (!is_move(&g->nodes[n]) && g->nodes[n].from.layer != layer) {
            layer = g->nodes[n].from.layer;
            run++;
        }
        o->run[n] = run < 0 ? 0 : run;
        if (o->is_far[n] && is_of_computed(g, &g->nodes[n]) && g->nodes[n].from.phase != CT_WEIGHT_GRAD) o->run_waits[o->run[n]] = 1;
    }
}

// ---- emission ----
static void emit(ordering *o, int n);

static void emit_deferred(ordering *o) {
    int count = o->deferred_count;
    o->deferred_count = 0;
    for (int i = 0; i < count; i++) emit(o, o->deferred[i]);
}

// Is all that a node reads there, or a weight that only has to be fetched? (Of operands but `value`.)
static int is_ready(const ordering *o, const ct_node *node, int value) {
    for (int i = 0; i < node->inputs_count; i++) {
        int by = o->g->values[node->inputs[i]].node;
        if (node->inputs[i] == value || by < 0 || o->emitted[by]) continue;
        if (!is_move(&o->g->nodes[by]) || is_of_computed(o->g, &o->g->nodes[by])) return 0;
    }
    return 1;
}

static int reads(const ct_node *node, int value) {
    for (int i = 0; i < node->inputs_count; i++)
        if (node->inputs[i] == value) return i;
    return -1;
}

// The gather behind all that its readers need besides, then those that may be run on parts of it.
static void emit_with_readers(ordering *o, int n) {
    const ct_graph *g = o->g;
    int dim = ct_move_dim(g, &g->nodes[n]), value = g->nodes[n].outputs[0], count = 0;
    int readers[MOST_READERS];
    for (int m = n + 1; m < g->nodes_count && o->run[m] == o->run[n] && count < MOST_READERS; m++) {
        ct_parts parts;
        int operand = reads(&g->nodes[m], value);
        if (operand >= 0 && is_ready(o, &g->nodes[m], value) && ct_parts_find(g, &g->nodes[m], 0, operand, dim, &parts)) readers[count++] = m;
    }
    for (int k = 0; k < count; k++)
        for (int i = 0; i < g->nodes[readers[k]].inputs_count; i++)
            if (g->nodes[readers[k]].inputs[i] != value && g->values[g->nodes[readers[k]].inputs[i]].node >= 0)
                emit(o, g->values[g->nodes[readers[k]].inputs[i]].node);
    emit(o, n);
    for (int k = 0; k < count; k++) emit(o, readers[k]);
}

static void emit_before(ordering *o, int n) {
    const ct_graph *g = o->g;
    if (o->emitted[n]) return;
    int waits = o->is_far[n] && is_of_computed(g, &g->nodes[n]);
    if (waits) emit_deferred(o); // they hide it
    if (waits && o->in_parts && !strcmp(g->nodes[n].op->name, "all_gather") && ct_move_dim(g, &g->nodes[n]) >= 0) emit_with_readers(o, n);
    else emit(o, n);
}

// Everything that a node needs, then the node.
static void emit(ordering *o, int n) {
    if (o->emitted[n]) return;
    const ct_graph *g = o->g;
    const ct_node *node = &g->nodes[n];
    for (int i = 0; i < node->inputs_count; i++)
        if (g->values[node->inputs[i]].node >= 0) emit_before(o, g->values[node->inputs[i]].node);
    for (int i = 0; o->before[n] && o->before[n][i] >= 0; i++) emit_before(o, o->before[n][i]);
    if (o->emitted[n]) return; // by those
    o->emitted[n] = 1;
    o->order[o->count++] = n;
}

static void emit_pending(ordering *o, int before_run) {
    int kept = 0;
    for (int i = 0; i < o->pending_count; i++) {
        if (o->run[o->pending[i]] < before_run) emit(o, o->pending[i]);
        else if (!o->emitted[o->pending[i]]) o->pending[kept++] = o->pending[i];
    }
    o->pending_count = kept;
}

static void order_nodes(ordering *o) {
    const ct_graph *g = o->g;
    for (int n = 0, run = 0; n < g->nodes_count; n++) {
        if (o->run[n] != run) {
            run = o->run[n];
            emit_deferred(o);
            emit_pending(o, run - 1);
        }
        if (o->is_far[n]) o->pending[o->pending_count++] = n;
        else if (g->nodes[n].from.phase == CT_WEIGHT_GRAD && o->run_waits[run] && !(g->nodes[n].op->flags & CT_OP_VIEW))
            o->deferred[o->deferred_count++] = n;
        else emit(o, n);
    }
    emit_deferred(o);
    emit_pending(o, g->nodes_count + 1);
}

// ---- the pass ----
static int find_far(const ct_graph *g, ct_near near, unsigned char *is_far) {
    signed char known[1 << CT_MAX_AXES] = {0}; // by axes: 0 not yet, 1 far, -1 near
    int any = 0;
    for (int n = 0; n < g->nodes_count; n++) {
        if (!is_move(&g->nodes[n])) continue;
        unsigned axes = ct_move_axes(g, &g->nodes[n]);
        if (!known[axes]) known[axes] = ct_axes_are_far(&g->mesh, axes, near) ? 1 : -1;
        any |= is_far[n] = known[axes] > 0;
    }
    return any;
}

ct_status ct_place_overlap(const ct_graph *from, ct_near near, int in_parts, ct_graph *to) {
    ct_rewrite r;
    ct_rewrite_begin(&r, from, to, 1);
    int nodes = from->nodes_count;
    ordering o = {.g = from,
                  .in_parts = in_parts,
                  .is_far = CT_ARENA_ARRAY(&to->arena, unsigned char, nodes + 1),
                  .emitted = CT_ARENA_ARRAY(&to->arena, unsigned char, nodes + 1),
                  .run = CT_ARENA_ARRAY(&to->arena, int, nodes + 1),
                  .run_waits = CT_ARENA_ARRAY(&to->arena, unsigned char, nodes + 1),
                  .root = CT_ARENA_ARRAY(&to->arena, int, from->values_count + 1),
                  .touches = CT_ARENA_ARRAY(&to->arena, int, from->values_count + 1),
                  .before = CT_ARENA_ARRAY(&to->arena, int *, nodes + 1),
                  .order = CT_ARENA_ARRAY(&to->arena, int, nodes + 1),
                  .deferred = CT_ARENA_ARRAY(&to->arena, int, nodes + 1),
                  .pending = CT_ARENA_ARRAY(&to->arena, int, nodes + 1)};
    for (int v = 0; v < from->values_count; v++) o.root[v] = v, o.touches[v] = -1;
    if (find_far(from, near, o.is_far)) {
        find_touches(&o);
        find_runs(&o);
        order_nodes(&o);
        CT_ASSERT(o.count == nodes, "%d of %d nodes have an order", o.count, nodes);
    }
    for (int i = 0; i < nodes; i++) ct_rewrite_node(&r, o.count ? o.order[i] : i);
    for (int n = 0; n < nodes; n++) free(o.before[n]);
    free(o.touched);
    return ct_rewrite_end(&r);
}
