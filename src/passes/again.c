// What a cheap op made is kept for its reader's weight gradient, though the op's own gradient has its operands at hand later on: the gradient makes it
// once more, and those weight gradients follow it. Bits are the same; what is kept from forward to backward is less.
#include "passes/passes.h"
#include "graph/op.h"
#include "graph/rewrite.h"
#include "ops/ops.h"

#include <string.h>

enum { NONE = -1 };

typedef struct {
    ct_rewrite r;
    int *maker;             // by value: the gradient that will make it again, NONE
    int *value;             // by node: the value that it makes again, NONE
    unsigned char *delayed; // by node: waits for a gradient
    int *waiting, waiting_count;
} again;

// The forward value that a gradient could make again; NONE.
static int value_of(const ct_graph *g, int n) {
    const ct_node *node = &g->nodes[n];
    const ct_op *forward = node->op->forward ? ct_op_find(node->op->forward) : NULL;
    if (!forward || ct_layout_axes(&g->values[node->inputs[0]].layout, CT_CUT_SUM)) return NONE;
    for (int f = 0; f < n; f++) {
        const ct_node *other = &g->nodes[f];
        if (other->op == forward && !memcmp(other->inputs, node->inputs + 1, sizeof(int) * (size_t)forward->inputs)) return other->outputs[0];
    }
    return NONE;
}

// Is it read behind the forward, and then only by weight gradients?
static int is_kept_for_weights(const ct_graph *g, int value) {
    int readers = 0;
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++) {
            if (g->nodes[n].inputs[i] != value || g->nodes[n].from.phase == CT_FORWARD) continue;
            if (g->nodes[n].from.phase != CT_WEIGHT_GRAD) return 0;
            readers++;
        }
    return readers > 0;
}

static int has_to_wait(const again *a, const ct_node *node) {
    for (int i = 0; i < node->inputs_count; i++) {
        int value = node->inputs[i], by = a->r.from->values[value].node;
        if (a->r.map[value] < 0 && by >= 0 && a->delayed[by]) return 1;
        if (node->from.phase == CT_WEIGHT_GRAD && a->maker[value] != NONE) return 1;
    }
    return 0;
}

static void release(again *a) {
    int left = 0;
    for (int i = 0; i < a->waiting_count; i++) {
        int n = a->waiting[i];
        if (has_to_wait(a, &a->r.from->nodes[n])) a->waiting[left++] = n;
        else ct_rewrite_node(&a->r, n);
    }
    a->waiting_count = left;
}

static ct_status make_again(again *a, int n) {
    const ct_graph *from = a->r.from;
    const ct_node *node = &from->nodes[n];
    ct_graph *to = a->r.to;
    ct_value inputs[CT_MAX_INPUTS];
    for (int i = 0; i < node->inputs_count; i++) inputs[i] = ct_rewrite_value(&a->r, node->inputs[i]);
    ct_rewrite_at(&a->r, node->from);
    int made = ct_build_node(to, ct_op_find(node->op->again), node->inputs_count, inputs, node->attrs, NULL), value = a->value[n];
    if (made < 0) return ct_graph_status(to);
    for (int o = 0; o <= node->outputs_count; o++) {
        int old = o < node->outputs_count ? node->outputs[o] : value, fresh = to->nodes[made].outputs[o];
        a->r.map[old] = fresh;
        to->values[fresh].layout = from->values[old].layout;
        to->values[fresh].hint = from->values[old].hint;
        to->values[fresh].placed = from->values[old].placed;
    }
    a->maker[value] = NONE;
    release(a);
    return CT_OK;
}

ct_status ct_pass_again(const ct_graph *from, ct_graph *to) {
    again a = {0};
    ct_status status = CT_OK;
    ct_rewrite_begin(&a.r, from, to, 1);
    a.maker = CT_ARENA_ARRAY(&to->arena, int, from->values_count + 1);
    a.value = CT_ARENA_ARRAY(&to->arena, int, from->nodes_count + 1);
    a.waiting = CT_ARENA_ARRAY(&to->arena, int, from->nodes_count + 1);
    a.delayed = CT_ARENA_ARRAY(&to->arena, unsigned char, from->nodes_count + 1);
    for (int v = 0; v < from->values_count; v++) a.maker[v] = NONE;
    for (int n = 0; n < from->nodes_count; n++) {
        a.value[n] = value_of(from, n);
        if (a.value[n] != NONE && !is_kept_for_weights(from, a.value[n])) a.value[n] = NONE;
        if (a.value[n] != NONE) a.maker[a.value[n]] = n;
    }
    for (int n = 0; n < from->nodes_count && !status; n++) {
        if (a.value[n] != NONE) status = make_again(&a, n);
        else if (has_to_wait(&a, &from->nodes[n])) a.delayed[n] = 1, a.waiting[a.waiting_count++] = n;
        else ct_rewrite_node(&a.r, n);
    }
    if (status) ct_rewrite_abandon(&a.r);
    else status = ct_rewrite_end(&a.r);
    return status;
}
