// When moves between nodes begin, and what runs in parts beside them.
#include "planning.h"
#include "graph/op.h"
#include "graph/parts.h"

#include <stdlib.h>
#include <string.h>

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

// A move begins when its operand stands, but no earlier than where the layer before its own begins: what it fetches needs room from then on.
static void find_begins(const ct_graph *g, ct_near near, int *out) {
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

// Is a move's result made at its end from parts that lie elsewhere? (Pieces of what is not summed may be received right where they belong.)
static int adds_parts(const ct_graph *g, const ct_node *move) {
    const ct_layout *from = &g->values[move->inputs[ct_moved_operand(move)]].layout;
    return ((ct_layout_axes(from, CT_CUT_SUM) | ct_layout_axes(from, CT_CUT_MAX)) & ct_move_axes(g, move)) != 0;
}

static int leading_room(const ct_graph *g, int value, int leading) {
    int64_t product = 1;
    for (int d = 0; d < leading; d++) product *= g->values[value].room[d]; // of the largest shard: all ranks agree
    return product > CT_MOST_PIECES ? CT_MOST_PIECES + 1 : (int)product;
}

static int group_size(const ct_graph *g, const ct_node *move) { return ct_mesh_group(&g->mesh, g->rank, ct_move_axes(g, move), NULL); }

static int is_output(const ct_graph *g, int value) {
    for (int i = 0; i < g->outputs_count; i++)
        if (g->outputs[i].value == value) return 1;
    return 0;
}

static int operand_at(const ct_node *node, int value) {
    for (int i = 0; i < node->inputs_count; i++)
        if (node->inputs[i] == value) return i;
    return -1;
}

// The last of the nodes right behind a gather of what was computed that may run on its pieces; -1: none.
static int find_readers(planning *p, int which, int n) {
    const ct_graph *g = p->aliases[which].graph;
    const ct_node *move = &g->nodes[n];
    int value = move->outputs[0], dim = strcmp(move->op->name, "all_gather") ? -1 : ct_move_dim(g, move), last = -1;
    if (dim < 0 || g->values[move->inputs[0]].node < 0 || p->aliases[which].kept[ct_alias_root(&p->aliases[which], value, NULL)]) return -1;
    if (leading_room(g, value, dim) * group_size(g, move) > CT_MOST_PIECES) return -1;
    for (int m = n + 1; m < g->nodes_count; m++) {
        ct_parts parts;
        int operand = operand_at(&g->nodes[m], value);
        if (operand < 0 || !ct_parts_find(g, &g->nodes[m], 0, operand, dim, &parts)) break;
        last = m;
    }
    return last;
}

// The node that makes the operand of a move which spreads sums, if it may do so part by part; -1.
static int find_maker(planning *p, int which, int n, const int *uses) {
    const ct_graph *g = p->aliases[which].graph;
    const ct_node *move = &g->nodes[n];
    int value = move->inputs[0], maker = g->values[value].node, dim = strcmp(move->op->name, "reduce_scatter") ? -1 : ct_move_dim(g, move);
    ct_parts parts;
    if (dim < 0 || maker < 0 || uses[value] != 1 || is_output(g, value)) return -1;
    if (!ct_parts_find(g, &g->nodes[maker], 1, g->values[value].output, dim, &parts)) return -1;
    return leading_room(g, value, dim) * group_size(g, move) <= CT_MOST_PIECES ? maker : -1;
}

static int *count_uses(const ct_graph *g) {
    int *uses = ct_calloc((size_t)g->values_count + 1, sizeof *uses);
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++) uses[g->nodes[n].inputs[i]]++;
    return uses;
}

static void find_parts(planning *p, int which) {
    planned_overlap *o = &p->overlap[which];
    const ct_graph *g = p->aliases[which].graph;
    int *uses = count_uses(g);
    for (int n = 0; n < g->nodes_count; n++)
        if (o->begins[n] >= 0) o->last_reader[n] = find_readers(p, which, n);
    for (int n = 0, end = -1; n < g->nodes_count; n++) {
        if (o->last_reader[n] >= 0) end = o->last_reader[n];
        if (n <= end) o->sum[n] = -2; // in such a group already
    }
    for (int n = 0; n < g->nodes_count; n++) {
        int maker = o->begins[n] >= 0 ? find_maker(p, which, n, uses) : -1;
        if (maker >= 0 && o->sum[maker] == -1) o->sum[maker] = n, o->begins[n] = maker;
    }
    for (int n = 0; n < g->nodes_count; n++)
        if (o->sum[n] == -2) o->sum[n] = -1;
    free(uses);
}

// All that a gather's readers touch is there while any of them runs.
static void join_lives(planning *p, int which, int n) {
    planned_overlap *o = &p->overlap[which];
    ct_aliases *a = &p->aliases[which];
    int end = o->last_reader[n];
    for (int m = n; m <= end; m++) {
        const ct_node *node = &a->graph->nodes[m];
        o->first[m] = o->first[m] < n ? o->first[m] : n;
        o->last[m] = end;
        for (int i = 0; i < node->inputs_count; i++) {
            int root = ct_alias_root(a, node->inputs[i], NULL);
            if (a->last[root] < end) a->last[root] = end;
        }
        for (int k = 0; k < node->outputs_count; k++) {
            int root = ct_alias_root(a, node->outputs[k], NULL);
            if (a->first[root] > n) a->first[root] = n;
            if (a->last[root] < end) a->last[root] = end;
        }
    }
    for (int m = 0; m < a->graph->nodes_count; m++) // what would begin among them does so behind them
        if (o->begins[m] > n && o->begins[m] <= end && m > end) o->begins[m] = end + 1;
}

void planning_overlap(planning *p, int which) {
    ct_aliases *a = &p->aliases[which];
    const ct_graph *g = a->graph;
    planned_overlap *o = &p->overlap[which];
    int count = g->nodes_count;
    *o = (planned_overlap){CT_ARENA_ARRAY(&p->plan->arena, int, count + 1), CT_ARENA_ARRAY(&p->plan->arena, int, count + 1),
                           CT_ARENA_ARRAY(&p->plan->arena, int, count + 1), CT_ARENA_ARRAY(&p->plan->arena, int, count + 1),
                           CT_ARENA_ARRAY(&p->plan->arena, int, count + 1)};
    find_begins(g, p->options.near, o->begins);
    for (int n = 0; n < count; n++) {
        o->last_reader[n] = o->sum[n] = -1;
        int root = o->begins[n] < 0 ? -1 : ct_alias_root(a, g->nodes[n].outputs[0], NULL);
        // What is received into a state's memory waits until the state has been read.
        if (o->begins[n] >= 0 && (p->options.no_overlap || (a->kept[root] && !adds_parts(g, &g->nodes[n])))) o->begins[n] = n;
    }
    if (p->options.in_parts && !p->options.no_overlap) find_parts(p, which);
    for (int n = 0; n < count; n++) o->first[n] = o->begins[n] < 0 ? n : o->begins[n], o->last[n] = n;
    for (int n = 0; n < count; n++)
        if (o->last_reader[n] >= 0) join_lives(p, which, n);
    for (int n = 0; n < count; n++) { // room for what messages bring is taken from where they begin
        if (o->begins[n] < 0) continue;
        int root = ct_alias_root(a, g->nodes[n].outputs[0], NULL);
        o->first[n] = o->begins[n] < o->first[n] ? o->begins[n] : o->first[n];
        if (o->begins[n] < a->first[root]) a->first[root] = o->begins[n];
    }
}
