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

// 1 where only output 0 has a gradient; else the graph fails.
static inline int only_first_differentiated(ct_grad *grad, const char *op, const char *others) {
    int others_have = 0;
    for (int i = 1; i < CT_MAX_OUTPUTS; i++) others_have |= grad->outputs[i].id >= 0;
    if (others_have)
        ct_graph_fail(grad->graph, ct_error_make(CT_UNSUPPORTED, __FILE__, __LINE__, "%s is not differentiated through %s (node %d)",
                                                 op, others, grad->node));
    return !others_have && grad->outputs[0].id >= 0;
}

static inline int64_t extent(const ct_graph *graph, const ct_node *node, int input, int dim) {
    return graph->values[node->inputs[input]].type.dims[dim].extent;
}

// Extents of a reference call's operands.
static inline int64_t in_extent(const ct_reference *call, int input, int dim) {
    return call->in_types[input]->dims[dim].extent;
}
