// What the op files share: adding a node, and reading operands of the node that is being differentiated or costed.
#pragma once
#include "ops/ops.h"

static inline ct_value build(ct_graph *graph, const ct_op *op, int inputs, const ct_value *in, const double *attrs) {
    return ct_node_output(graph, ct_build_node(graph, op, inputs, in, attrs, NULL), 0);
}

// Operand i, and output i, of the forward node whose gradient is being built.
static inline ct_value operand(const ct_grad *grad, int i) {
    return (ct_value){grad->graph->nodes[grad->node].inputs[i]};
}
static inline ct_value result(const ct_grad *grad, int i) {
    return (ct_value){grad->graph->nodes[grad->node].outputs[i]};
}

static inline int64_t extent(const ct_graph *graph, const ct_node *node, int input, int dim) {
    return graph->values[node->inputs[input]].type.dims[dim].extent;
}

// Extents of a reference call's operands.
static inline int64_t in_extent(const ct_reference *call, int input, int dim) {
    return call->in_types[input]->dims[dim].extent;
}
