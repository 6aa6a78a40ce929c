// Ring attention (Liu et al. 2023, arXiv 2310.01889): where keys and values were gathered over an axis, they go round instead. Each rank keeps
// its queries and sees one block of keys after the other; parts are merged by their log-sum-exp, in f32. Backward goes round once more, the
// gradients of a block travelling with it. Memory holds two blocks whatever the number of ranks.
//
// It rewrites what placement made: the gatherings that nobody reads any more are pruned later.
#include "graph/local.h"
#include "graph/op.h"
#include "graph/rewrite.h"
#include "ops/ops.h"
#include "parallel/place.h"

#include <string.h>

enum { TRAVELLERS = 4 }; // keys, values, positions, documents

typedef struct {
    ct_rewrite r;
    int axis, size;
} ring;

// The value that `value` was gathered from over the ring's axis alone, -1.
static int before_gather(const ring *c, int value) {
    const ct_graph *g = c->r.from;
    int n = g->values[value].node;
    if (n < 0 || strcmp(g->nodes[n].op->name, "all_gather") || ct_move_axes(g, &g->nodes[n]) != 1u << c->axis) return -1;
    return g->nodes[n].inputs[0];
}

// The blocks that go round in a node: its operands' values before they were gathered. 0 where one was not.
static int find_travellers(const ring *c, const ct_node *node, const int *operands, ct_value *out) {
    for (int i = 0; i < TRAVELLERS; i++) {
        int value = before_gather(c, node->inputs[operands[i]]);
        if (value < 0) return 0;
        out[i] = ct_rewrite_value(&c->r, value);
    }
    return 1;
}

static void pass_on(ring *c, ct_value *travellers) {
    for (int i = 0; i < TRAVELLERS; i++) travellers[i] = ct_rotate(c->r.to, travellers[i], c->axis, 1);
}

static ct_value like(ct_graph *g, ct_value x, const ct_type *type) { return x.id < 0 || type->dtype == CT_F32 ? x : ct_cast(g, x, type->dtype); }

static int go_round(ring *c, int n) {
    const ct_node *node = &c->r.from->nodes[n];
    ct_graph *g = c->r.to;
    ct_value t[TRAVELLERS], o = CT_NO_VALUE, lse = CT_NO_VALUE;
    if (!find_travellers(c, node, (int[]){1, 2, 4, 6}, t)) return 0;
    ct_value q = ct_rewrite_value(&c->r, node->inputs[0]);
    ct_attention_mask mask = {.q_pos_BT = ct_rewrite_value(&c->r, node->inputs[3]), .q_doc_BT = ct_rewrite_value(&c->r, node->inputs[5])};
    for (int i = 0; i < c->size; i++) {
        if (i) pass_on(c, t);
        mask.k_pos_BS = t[2], mask.k_doc_BS = t[3];
        ct_value part_lse, part = ct_attention_block(g, q, t[0], t[1], mask, node->attrs[0], &part_lse);
        if (i) o = ct_attention_merge(g, o, lse, part, part_lse, &lse);
        else o = part, lse = part_lse;
    }
    c->r.map[node->outputs[0]] = like(g, o, &c->r.from->values[node->outputs[0]].type).id;
    c->r.map[node->outputs[1]] = lse.id;
    return 1;
}

static int go_round_back(ring *c, int n) {
    const ct_node *node = &c->r.from->nodes[n];
    ct_graph *g = c->r.to;
    ct_value t[TRAVELLERS], in[10], dq = CT_NO_VALUE, dk = CT_NO_VALUE, dv = CT_NO_VALUE;
    if (!find_travellers(c, node, (int[]){2, 3, 7, 9}, t)) return 0;
    for (int i = 0; i < 10; i++) in[i] = ct_rewrite_value(&c->r, node->inputs[i]);
    ct_attention_mask mask = {.q_pos_BT = in[6], .q_doc_BT = in[8]};
    for (int i = 0; i < c->size; i++) {
        if (i) pass_on(c, t);
        mask.k_pos_BS = t[2], mask.k_doc_BS = t[3];
        ct_value part_q, part_k, part_v;
        ct_attention_block_grad(g, in[0], in[1], t[0], t[1], in[4], in[5], mask, node->attrs[0], &part_q, &part_k, &part_v);
        dq = i ? ct_add(g, dq, part_q) : part_q; // what comes by is added to what is there: blocks in the order of the ring
        dk = i ? ct_add(g, ct_rotate(g, dk, c->axis, 1), part_k) : part_k;
        dv = i ? ct_add(g, ct_rotate(g, dv, c->axis, 1), part_v) : part_v;
    }
    dk = ct_rotate(g, dk, c->axis, 1); // home
    dv = ct_rotate(g, dv, c->axis, 1);
    const ct_value results[] = {dq, dk, dv};
    for (int o = 0; o < 3; o++) c->r.map[node->outputs[o]] = like(g, results[o], &c->r.from->values[node->outputs[o]].type).id;
    return 1;
}

// A move to where its operand lies by now is none.
static int is_done(const ring *c, const ct_node *node) {
    if (!(node->op->flags & CT_OP_MOVE) || node->inputs_count > 1 || node->op->flags & CT_OP_ROTATE) return 0;
    const ct_value_info *v = &c->r.to->values[c->r.map[node->inputs[0]]];
    return ct_layout_equal(&v->layout, &c->r.from->values[node->outputs[0]].layout);
}

static void copy(ring *c, int n) {
    const ct_node *node = &c->r.from->nodes[n];
    if (is_done(c, node)) {
        c->r.map[node->outputs[0]] = c->r.map[node->inputs[0]];
        return;
    }
    int index = ct_rewrite_node(&c->r, n);
    ct_layout layouts[CT_MAX_OUTPUTS];
    if (index < 0 || node->op->flags & CT_OP_MOVE || ct_op_infer_layouts(c->r.to, &c->r.to->nodes[index], layouts)) return;
    for (int o = 0; o < node->outputs_count; o++) c->r.to->values[c->r.to->nodes[index].outputs[o]].layout = layouts[o];
}

ct_status ct_place_ring(const ct_graph *from, const char *axis, ct_graph *to) {
    ring c = {.axis = ct_mesh_find(&from->mesh, axis)};
    if (c.axis >= 0) c.size = from->mesh.axes[c.axis].size;
    ct_rewrite_begin(&c.r, from, to, 1);
    for (int n = 0; n < from->nodes_count; n++) {
        const ct_node *node = &from->nodes[n];
        int before = to->values_count;
        ct_rewrite_at(&c.r, node->from);
        int is_ring = c.axis >= 0 && (!strcmp(node->op->name, "attention") ? go_round(&c, n)
                                      : !strcmp(node->op->name, "attention_grad") ? go_round_back(&c, n) : 0);
        for (int v = before; is_ring && v < to->values_count; v++) to->values[v].placed = 1;
        if (!is_ring) copy(&c, n);
    }
    return ct_rewrite_end(&c.r);
}
