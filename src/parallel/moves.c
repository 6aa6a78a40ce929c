// Moves between two layouts: one node a kind, cheapest first (what is dropped before it is sent costs nothing), so that each collective is of
// one kind over one set of axes.
#include "placer.h"
#include "ops/ops.h"

#include <string.h>

typedef enum { SLICE, SCATTER_SUM, REDUCE, EXCHANGE, GATHER, MOVES } move_kind;
static const char *const names[MOVES] = {"local_slice", "reduce_scatter", "all_reduce", "all_to_all", "all_gather"};

// What `axis` has to go through; -1: nothing.
static int kind_of(const ct_layout *from, const ct_layout *to, int axis) {
    const ct_cut *a = ct_layout_find(from, axis), *b = ct_layout_find(to, axis);
    if (!a && !b) return -1;
    if (!a) return SLICE;
    if (a->kind != CT_CUT_SHARD) return !b ? REDUCE : b->kind == CT_CUT_SHARD ? SCATTER_SUM : -1;
    if (!b) return GATHER;
    return a->dim == b->dim ? -1 : EXCHANGE;
}

// `from` with these axes as `to` has them; cuts that come in do so in the order of `to`.
static ct_layout with_axes(const ct_layout *from, const ct_layout *to, unsigned axes) {
    ct_layout layout = *from;
    for (int a = 0; a < CT_MAX_AXES; a++)
        if (axes >> a & 1) ct_layout_remove(&layout, a);
    for (int i = 0; i < to->count; i++)
        if (axes >> to->cuts[i].axis & 1) ct_layout_add(&layout, to->cuts[i].axis, (ct_cut_kind)to->cuts[i].kind, to->cuts[i].dim);
    return layout;
}

static int move_node(placer *p, int value, const char *op, const ct_layout *layout) {
    ct_graph *g = p->r.to;
    int node = ct_build_node(g, ct_op_find(op), 1, &(ct_value){value}, NULL, NULL);
    if (node < 0) return value;
    int moved = g->nodes[node].outputs[0];
    g->values[moved].layout = *layout;
    return moved;
}

static void remember(placer *p, int value, int moved) {
    if (value >= p->moves_capacity) {
        int capacity = 2 * value + 64;
        int *grown = ct_realloc(p->moves, sizeof(int) * (size_t)capacity);
        for (int i = p->moves_capacity; i < capacity; i++) grown[i] = -1;
        p->moves = grown;
        p->moves_capacity = capacity;
    }
    CT_GROW(p->moved, p->moved_count, p->moved_capacity);
    p->moved[p->moved_count] = (moved_value){value, moved, p->moves[value]};
    p->moves[value] = p->moved_count++;
}

int placer_move(placer *p, int value, const ct_layout *target) {
    if (ct_layout_equal(layout_at(p, value), target)) return value;
    for (int i = value < p->moves_capacity ? p->moves[value] : -1; i >= 0; i = p->moved[i].next)
        if (ct_layout_equal(layout_at(p, p->moved[i].moved), target)) return p->moved[i].moved;
    int at = value;
    for (int kind = 0; kind < MOVES; kind++) {
        unsigned axes = 0;
        for (int a = 0; a < p->p->mesh.axes_count; a++)
            if (kind_of(layout_at(p, at), target, a) == kind) axes |= 1u << a;
        if (!axes) continue;
        ct_layout next = with_axes(layout_at(p, at), target, axes);
        next.partial = target->partial;
        at = move_node(p, at, names[kind], &next);
    }
    if (!ct_layout_equal(layout_at(p, at), target)) at = move_node(p, at, "reshard", target); // cuts of one dim nest otherwise
    p->r.to->values[at].hint = p->r.to->values[value].hint;
    remember(p, value, at);
    return at;
}

int placer_sum_stages(placer *p, int value) {
    int pp = ct_mesh_find(&p->p->mesh, "pp");
    if (pp < 0 || ct_layout_find(layout_at(p, value), pp)) return value;
    ct_layout layout = *layout_at(p, value);
    ct_layout_add(&layout, pp, CT_CUT_SUM, 0);
    layout.partial = (uint8_t)p->r.to->values[value].type.dtype;
    return move_node(p, value, "stage_part", &layout);
}
