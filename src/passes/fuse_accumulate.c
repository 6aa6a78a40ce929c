// accumulate(acc, dW, first) where nothing else reads dW becomes dW's kernel with the addition in its epilogue. The kernels' contract
// makes it the same bits: accumulating is g + (complete product). Where dW is the sum of ranks' parts, its reduction goes on in the
// accumulator: one flat sum, the same for ranks as for micro-batches.
#include "passes/passes.h"
#include "graph/op.h"
#include "graph/rewrite.h"
#include "ops/ops.h"

#include <string.h>

static const struct {
    const char *plain, *fused;
} pairs[] = {{"matmul_dw", "matmul_dw_acc"}, {"embed_dw", "embed_dw_acc"}, {"reduce_scatter", "reduce_accumulate"}};

static const ct_op *fused_op(const ct_op *op) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(op->name, pairs[i].plain)) return ct_op_find(pairs[i].fused);
    return NULL;
}

typedef struct {
    ct_rewrite r;
    int *readers; // by value
} fusion;

// The node that made the part, if it can be fused into this accumulate; -1 if not.
static int fusable_producer(const fusion *f, const ct_node *node) {
    if (strcmp(node->op->name, "accumulate")) return -1;
    int producer = f->r.from->values[node->inputs[1]].node;
    if (producer < 0 || f->readers[node->inputs[1]] != 1) return -1;
    return fused_op(f->r.from->nodes[producer].op) ? producer : -1;
}

static void emit_fused(fusion *f, const ct_node *accumulate, const ct_node *product) {
    ct_value inputs[CT_MAX_INPUTS] = {ct_rewrite_value(&f->r, accumulate->inputs[0])};
    int count = 1;
    for (int i = 0; i < product->inputs_count; i++) inputs[count++] = ct_rewrite_value(&f->r, product->inputs[i]);
    inputs[count++] = ct_rewrite_value(&f->r, accumulate->inputs[2]);
    ct_graph *to = f->r.to;
    ct_rewrite_at(&f->r, product->from);
    to->at.phase = accumulate->from.phase;
    ct_value sum = ct_node_output(to, ct_build_node(to, fused_op(product->op), count, inputs, NULL, NULL), 0);
    f->r.map[accumulate->outputs[0]] = sum.id;
    if (sum.id >= 0) to->values[sum.id].layout = f->r.from->values[accumulate->outputs[0]].layout;
}

ct_status ct_pass_fuse_accumulate(const ct_graph *from, ct_graph *to) {
    fusion f;
    ct_rewrite_begin(&f.r, from, to, 1);
    f.readers = CT_ARENA_ARRAY(&to->arena, int, from->values_count + 1);
    unsigned char *absorbed = CT_ARENA_ARRAY(&to->arena, unsigned char, from->nodes_count + 1);
    for (int n = 0; n < from->nodes_count; n++)
        for (int i = 0; i < from->nodes[n].inputs_count; i++) f.readers[from->nodes[n].inputs[i]]++;
    for (int i = 0; i < from->outputs_count; i++) f.readers[from->outputs[i].value]++;
    for (int n = 0; n < from->nodes_count; n++) {
        int producer = fusable_producer(&f, &from->nodes[n]);
        if (producer >= 0) absorbed[producer] = 1;
    }
    for (int n = 0; n < from->nodes_count; n++) {
        if (absorbed[n]) continue;
        int producer = fusable_producer(&f, &from->nodes[n]);
        if (producer >= 0) emit_fused(&f, &from->nodes[n], &from->nodes[producer]);
        else ct_rewrite_node(&f.r, n);
    }
    return ct_rewrite_end(&f.r);
}
