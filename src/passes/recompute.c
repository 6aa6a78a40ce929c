// Activation checkpointing (Chen et al. 2016, arXiv 1604.06174): in a recomputed layer, backward reads copies of the forward nodes, made
// next to their first reader. A layer's inputs come from other layers and stay. Cloned nodes run the same kernels: the same bits. A weight
// that was gathered for the forward is a case of its own: by option it is let go of, and gathered again, whatever the layers do.
#include "passes/passes.h"
#include "graph/op.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct {
    ct_rewrite r;
    ct_recompute_options options;
    int *clone;            // by value id of `from`: its recomputed copy in `to`, -1: none yet
    unsigned char *kept;   // by node: CT_RECOMPUTE_OP keeps its outputs
} recompute;

static int layer_recomputed(const recompute *c, int layer) {
    if (layer < 0 || c->options.mode == CT_RECOMPUTE_NONE) return 0;
    return c->options.mode != CT_RECOMPUTE_EVERY || layer % c->options.every == 0;
}

// The op policy: attention and every other matmul of a layer are kept, counted from the first.
static void mark_kept(recompute *c) {
    const ct_graph *g = c->r.from;
    if (c->options.mode != CT_RECOMPUTE_OP) return;
    int layer = -1, matmuls = 0;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        if (node->from.phase != CT_FORWARD || node->from.layer < 0) continue;
        if (node->from.layer != layer) layer = node->from.layer, matmuls = 0;
        if (!strncmp(node->op->name, "attention", 9)) c->kept[n] = 1; // its blocks and their merging as well
        if (!strcmp(node->op->name, "matmul")) c->kept[n] = matmuls++ % 2 == 0;
    }
}

// Is the node a gathering of a weight that ranks hold in shards?
static int gathers_weight(const ct_graph *g, const ct_node *node) {
    if (!(node->op->flags & CT_OP_MOVE) || node->from.phase != CT_FORWARD || g->values[node->inputs[0]].node >= 0) return 0;
    ct_input_kind kind = g->inputs[g->values[node->inputs[0]].output].kind;
    return kind == CT_PARAMETER || kind == CT_WEIGHT_LOWP;
}

static int is_cloned(const recompute *c, int value, int layer) {
    int n = c->r.from->values[value].node;
    if (n < 0 || c->kept[n]) return 0;
    const ct_node *node = &c->r.from->nodes[n];
    if (gathers_weight(c->r.from, node)) return c->options.regather;
    return layer_recomputed(c, layer) && node->from.phase == CT_FORWARD && node->from.layer == layer;
}

// The value that backward code of `layer` reads for `value`: a clone, made now if it is the first reader.
static int read_for_backward(recompute *c, int value, int layer) {
    if (!is_cloned(c, value, layer)) return c->r.map[value];
    if (c->clone[value] >= 0) return c->clone[value];
    const ct_graph *g = c->r.from;
    const ct_node *node = &g->nodes[g->values[value].node];
    ct_value inputs[CT_MAX_INPUTS];
    CT_ASSERT(node->inputs_count <= CT_MAX_INPUTS, "a list op in a layer");
    for (int i = 0; i < node->inputs_count; i++) inputs[i].id = read_for_backward(c, node->inputs[i], layer);
    ct_type declared[CT_MAX_OUTPUTS];
    for (int i = 0; i < node->outputs_count; i++) declared[i] = g->values[node->outputs[i]].type;
    ct_rewrite_at(&c->r, node->from);
    c->r.to->at.phase = CT_RECOMPUTE;
    int copy = ct_build_node(c->r.to, node->op, node->inputs_count, inputs, node->attrs, declared);
    for (int i = 0; copy >= 0 && i < node->outputs_count; i++) {
        int cloned = c->clone[node->outputs[i]] = c->r.to->nodes[copy].outputs[i];
        c->r.to->values[cloned].layout = g->values[node->outputs[i]].layout;
    }
    return c->clone[value];
}

static void emit(recompute *c, int n) {
    const ct_node *node = &c->r.from->nodes[n];
    int backward = node->from.phase == CT_INPUT_GRAD || node->from.phase == CT_WEIGHT_GRAD;
    if (!backward || (!layer_recomputed(c, node->from.layer) && !c->options.regather) || node->inputs_count > CT_MAX_INPUTS) {
        ct_rewrite_node(&c->r, n);
        return;
    }
    int saved[CT_MAX_INPUTS];
    for (int i = 0; i < node->inputs_count; i++) {
        int value = node->inputs[i], replacement = read_for_backward(c, value, node->from.layer);
        saved[i] = c->r.map[value];
        c->r.map[value] = replacement;
    }
    ct_rewrite_node(&c->r, n);
    for (int i = node->inputs_count - 1; i >= 0; i--) c->r.map[node->inputs[i]] = saved[i];
}

ct_status ct_pass_recompute(const ct_graph *from, ct_recompute_options options, ct_graph *to) {
    CT_CHECK(options.mode != CT_RECOMPUTE_EVERY || options.every >= 1, CT_INVALID,
             "recomputing every %d-th layer: a number ≥ 1 is wanted", options.every);
    recompute c = {.options = options};
    ct_rewrite_begin(&c.r, from, to, 1);
    c.clone = CT_ARENA_ARRAY(&to->arena, int, from->values_count + 1);
    c.kept = CT_ARENA_ARRAY(&to->arena, unsigned char, from->nodes_count + 1);
    for (int i = 0; i < from->values_count; i++) c.clone[i] = -1;
    mark_kept(&c);
    for (int n = 0; n < from->nodes_count; n++) emit(&c, n);
    return ct_rewrite_end(&c.r);
}
