// Aliasing by union-find with offsets. First what must share (views, updates, concatenations), then, in execution order, outputs that may
// take the memory of an input which nobody reads later.
#include "alias.h"
#include "graph/local.h"
#include "graph/op.h"
#include "ops/ops.h"

#include <string.h>

int ct_alias_root(const ct_aliases *a, int value, size_t *out_offset) {
    size_t offset = 0;
    while (a->of[value].parent != value) {
        offset += a->of[value].offset;
        value = a->of[value].parent;
    }
    if (out_offset) *out_offset = offset;
    return value;
}

// Makes root `child` part of root `parent` from byte `offset` on; the lives join.
static void join(ct_aliases *a, int child, int parent, size_t offset) {
    a->of[child] = (ct_alias){parent, offset};
    if (a->first[child] < a->first[parent]) a->first[parent] = a->first[child];
    if (a->last[child] > a->last[parent]) a->last[parent] = a->last[child];
    a->kept[parent] |= a->kept[child];
    a->shared[parent] |= a->shared[child];
}

static size_t slice_offset(const ct_graph *g, const ct_node *node) {
    if (strcmp(node->op->name, "slice")) return 0;
    const ct_type *type = &g->values[node->inputs[0]].type;
    size_t stride = ct_dtype_bytes(type->dtype);
    for (int d = (int)node->attrs[0] + 1; d < type->dims_count; d++) stride *= (size_t)type->dims[d].extent;
    return stride * (size_t)node->attrs[1];
}

static ct_status place_parts(ct_aliases *a, const ct_node *node) {
    int whole = ct_alias_root(a, node->outputs[0], NULL);
    size_t offset = 0;
    for (int i = 0; i < node->inputs_count; i++) {
        size_t inner, bytes = ct_type_bytes(&a->graph->values[node->inputs[i]].type);
        int root = ct_alias_root(a, node->inputs[i], &inner);
        CT_CHECK(root != whole && inner == 0 && a->bytes[root] == ct_value_room_bytes(a->graph, node->inputs[i]) && !a->kept[root], CT_INVALID,
                 "concat in %s: operand %d is not a value of its own, so it can't be computed in place", node->from.module, i);
        join(a, root, whole, offset);
        offset += bytes;
    }
    return CT_OK;
}

static ct_status share_what_must(ct_aliases *a) {
    const ct_graph *g = a->graph;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        CT_TRY(ct_view_check_memory(g, node));
        if (!strcmp(node->op->name, "concat")) {
            CT_TRY(place_parts(a, node));
            continue;
        }
        for (int o = 0; o < node->outputs_count; o++) {
            if (!node->op->must_alias[o]) continue;
            size_t inner;
            int root = ct_alias_root(a, node->inputs[node->op->must_alias[o] - 1], &inner);
            join(a, node->outputs[o], root, inner + slice_offset(g, node));
        }
    }
    return CT_OK;
}

// An update that is not computed in place by its op is written straight into the state's memory.
static ct_status share_updates(ct_aliases *a) {
    const ct_graph *g = a->graph;
    for (int i = 0; i < g->inputs_count; i++) {
        if (g->inputs[i].update < 0) continue;
        int state = ct_alias_root(a, g->inputs[i].value, NULL);
        size_t inner;
        int root = ct_alias_root(a, g->inputs[i].update, &inner);
        if (root == state) continue;
        CT_CHECK(inner == 0 && !a->kept[root] && a->bytes[root] == a->bytes[state], CT_INVALID,
                 "state \"%s\": its update has memory of its own", g->inputs[i].name);
        CT_CHECK(a->last[state] <= a->first[root], CT_INVALID, "state \"%s\" is read after its update was made",
                 g->inputs[i].name);
        join(a, root, state, 0);
    }
    return CT_OK;
}

static int may_take(const ct_aliases *a, int n, const ct_node *node, int input, int output) {
    size_t in_offset, out_offset;
    int in = ct_alias_root(a, node->inputs[input], &in_offset), out = ct_alias_root(a, node->outputs[output], &out_offset);
    for (int o = 0; o < node->outputs_count; o++)
        if (o != output && ct_alias_root(a, node->outputs[o], NULL) == in) return 0;
    return in != out && !a->kept[in] && !a->kept[out] && in_offset == 0 && out_offset == 0 && a->last[in] == n &&
           a->first[out] == n && a->bytes[in] == a->bytes[out] &&
           a->bytes[in] == ct_value_room_bytes(a->graph, node->inputs[input]) && !a->shared[in];
}

static void share_what_may(ct_aliases *a) {
    const ct_graph *g = a->graph;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        for (int o = 0; o < node->outputs_count; o++)
            for (int i = 0; i < node->inputs_count && i < 32; i++)
                if ((node->op->may_alias[o] >> i & 1) && may_take(a, n, node, i, o)) {
                    join(a, ct_alias_root(a, node->outputs[o], NULL), ct_alias_root(a, node->inputs[i], NULL), 0);
                    break;
                }
    }
}

// What a move reads, peers read: it stays as it is until this rank has passed a later meeting with all of them, or the program ends.
static int last_reading(const ct_graph *g, int n, unsigned axes) {
    for (int m = n + 1; m < g->nodes_count; m++)
        if ((g->nodes[m].op->flags & CT_OP_MOVE) && (ct_move_axes(g, &g->nodes[m]) & axes) == axes) return m;
    return g->nodes_count;
}

// The first node that changes, in place, memory that peers read at move n, before this rank has met them again at `last`; -1: none does.
static int changed_before(const ct_aliases *a, int n, int root, int last) {
    const ct_graph *g = a->graph;
    for (int m = n + 1; m < last && m < g->nodes_count; m++)
        for (int o = 0; o < g->nodes[m].outputs_count && !(g->nodes[m].op->flags & CT_OP_VIEW); o++)
            if (g->nodes[m].op->must_alias[o] && ct_alias_root(a, g->nodes[m].outputs[o], NULL) == root) return m;
    return -1;
}

static ct_status share_with_peers(ct_aliases *a) {
    const ct_graph *g = a->graph;
    for (int n = 0; n < g->nodes_count; n++) {
        if (!(g->nodes[n].op->flags & CT_OP_MOVE)) continue;
        unsigned axes = ct_move_axes(g, &g->nodes[n]);
        if (!axes) continue;
        int root = ct_alias_root(a, g->nodes[n].inputs[ct_moved_operand(&g->nodes[n])], NULL), last = last_reading(g, n, axes);
        int changes = changed_before(a, n, root, last);
        CT_CHECK(changes < 0, CT_UNSUPPORTED, "%s in %s changes what other ranks may still be reading for %s in %s", g->nodes[changes].op->name,
                 g->nodes[changes].from.module, g->nodes[n].op->name, g->nodes[n].from.module);
        a->shared[root] = 1;
        if (last > a->last[root]) a->last[root] = last;
    }
    return CT_OK;
}

static void find_lives(ct_aliases *a) {
    const ct_graph *g = a->graph;
    for (int v = 0; v < g->values_count; v++) {
        a->of[v] = (ct_alias){v, 0};
        a->bytes[v] = ct_value_room_bytes(g, v);
        a->first[v] = a->last[v] = g->values[v].node;
        a->kept[v] = g->values[v].node < 0;
    }
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++) a->last[g->nodes[n].inputs[i]] = n;
    for (int i = 0; i < g->outputs_count; i++) a->last[g->outputs[i].value] = g->nodes_count;
}

ct_status ct_aliases_find(ct_arena *arena, const ct_graph *graph, ct_aliases *out) {
    int n = graph->values_count + 1;
    *out = (ct_aliases){graph,
                        CT_ARENA_ARRAY(arena, ct_alias, n),
                        CT_ARENA_ARRAY(arena, size_t, n),
                        CT_ARENA_ARRAY(arena, int, n),
                        CT_ARENA_ARRAY(arena, int, n),
                        CT_ARENA_ARRAY(arena, unsigned char, n),
                        CT_ARENA_ARRAY(arena, unsigned char, n)};
    find_lives(out);
    CT_TRY(share_what_must(out));
    CT_TRY(share_updates(out));
    CT_TRY(share_with_peers(out));
    for (int i = 0; i < graph->outputs_count; i++) out->kept[ct_alias_root(out, graph->outputs[i].value, NULL)] = 1;
    share_what_may(out);
    return CT_OK;
}
