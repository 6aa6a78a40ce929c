// The gate of SwiGLU (Shazeer 2020, arXiv 2002.05202): y = a·sigmoid(a)·b.
#include "part.h"

#include <math.h>

static double sigmoid(double a) { return 1 / (1 + exp(-a)); }

static void forward_reference(const ct_reference *call) {
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++) {
        double a = call->in[0][i];
        call->out[0][i] = a * sigmoid(a) * call->in[1][i];
    }
}

static void forward_grad(ct_grad *grad) {
    grad->graph->at.phase = CT_INPUT_GRAD;
    ct_silu_mul_grad(grad->graph, grad->outputs[0], operand(grad, 0), operand(grad, 1), &grad->inputs[0],
                     &grad->inputs[1]);
}

const ct_op ct_op_silu_mul = {
    .name = "silu_mul",
    .formula = "y = a·sigmoid(a)·b",
    .rule = "*, * -> *",
    .dtypes = "cc>c",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_LINEAR0 << 1 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .may_alias = {3},
    .grad = forward_grad, .reference = forward_reference,
};

ct_value ct_silu_mul(ct_graph *g, ct_value a, ct_value b) {
    return build(g, &ct_op_silu_mul, 2, (ct_value[]){a, b}, NULL);
}

// da = dy·b·σ(1 + a(1 - σ)), db = dy·a·σ with σ = sigmoid(a).
static void grad_reference(const ct_reference *call) {
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++) {
        double dy = call->in[0][i], a = call->in[1][i], b = call->in[2][i], s = sigmoid(a);
        call->out[0][i] = dy * b * s * (1 + a * (1 - s));
        call->out[1][i] = dy * a * s;
    }
}

const ct_op ct_op_silu_mul_grad = {
    .name = "silu_mul_grad",
    .formula = "da = dy·b·σ(1 + a(1 - σ)), db = dy·a·σ, σ = sigmoid(a)",
    .rule = "*, *, * -> *, *",
    .dtypes = "ccc>cc",
    .inputs = 3, .outputs = 2,
    .flags = CT_OP_LINEAR0 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1 | CT_OP_LOWP0 << 2,
    .may_alias = {7, 7},
    .forward = "silu_mul", .again = "silu_mul_grad_y",
    .reference = grad_reference,
};

static void grad_y_reference(const ct_reference *call) {
    grad_reference(call);
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++) call->out[2][i] = call->in[1][i] * sigmoid(call->in[1][i]) * call->in[2][i];
}

// The gradients, and y once more for whoever reads it then.
const ct_op ct_op_silu_mul_grad_y = {
    .name = "silu_mul_grad_y",
    .formula = "da = dy·b·σ(1 + a(1 - σ)), db = dy·a·σ, y = a·σ·b, σ = sigmoid(a)",
    .rule = "*, *, * -> *, *, *",
    .dtypes = "ccc>ccc",
    .inputs = 3, .outputs = 3,
    .flags = CT_OP_LOWP0 | CT_OP_LOWP0 << 1 | CT_OP_LOWP0 << 2,
    .may_alias = {7, 7, 7},
    .reference = grad_y_reference,
};

void ct_silu_mul_grad(ct_graph *g, ct_value dy, ct_value a, ct_value b, ct_value *out_da, ct_value *out_db) {
    int node = ct_build_node(g, &ct_op_silu_mul_grad, 3, (ct_value[]){dy, a, b}, NULL, NULL);
    *out_da = ct_node_output(g, node, 0);
    *out_db = ct_node_output(g, node, 1);
}
