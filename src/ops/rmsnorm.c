// Root-mean-square norm (Zhang & Sennrich 2019, arXiv 1910.07467): y = x·rstd·w, rstd = 1/sqrt(mean(x²) + eps).
#include "part.h"

#include <math.h>
#include <string.h>

static void forward_reference(const ct_reference *call) {
    int64_t D = in_extent(call, 0, 2), rows = ct_type_elems(call->out_types[1]);
    const double *w = call->in[1];
    for (int64_t r = 0; r < rows; r++) {
        const double *x = call->in[0] + r * D;
        double sum = 0;
        for (int64_t d = 0; d < D; d++) sum += x[d] * x[d];
        double rstd = 1 / sqrt(sum / (double)D + call->attrs[0]);
        for (int64_t d = 0; d < D; d++) call->out[0][r * D + d] = x[d] * rstd * w[d];
        call->out[1][r] = rstd;
    }
}

static void forward_grad(ct_grad *grad) {
    if (!only_first_differentiated(grad, "rmsnorm", "rstd")) return;
    grad->graph->at.phase = CT_INPUT_GRAD; // dw comes with dx
    ct_rmsnorm_grad(grad->graph, grad->outputs[0], operand(grad, 0), operand(grad, 1), result(grad, 1),
                    &grad->inputs[0], &grad->inputs[1]);
}

const ct_op ct_op_rmsnorm = {
    .name = "rmsnorm",
    .formula = "y = x·rstd·w, rstd = 1/sqrt(mean(x²) + eps)",
    .rule = "B T D!, D! -> B T D!, B T",
    .dtypes = "cf>cf",
    .inputs = 2, .outputs = 2,
    .attrs = {"eps"},
    .flags = CT_OP_LOWP0,
    .grad = forward_grad, .reference = forward_reference,
};

ct_value ct_rmsnorm(ct_graph *g, ct_value x_BTD, ct_value w_D, double eps) {
    return build(g, &ct_op_rmsnorm, 2, (ct_value[]){x_BTD, w_D}, (double[]){eps});
}

// dx = rstd·(dy·w - x·rstd²·mean(dy·w·x)), dw = Σ dy·x·rstd over rows, ascending.
static void grad_reference(const ct_reference *call) {
    int64_t D = in_extent(call, 0, 2), rows = ct_type_elems(call->in_types[3]);
    const double *w = call->in[2];
    memset(call->out[1], 0, (size_t)D * sizeof(double));
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = call->in[0] + r * D, *x = call->in[1] + r * D;
        double rstd = call->in[3][r], dot = 0;
        for (int64_t d = 0; d < D; d++) dot += dy[d] * w[d] * x[d];
        for (int64_t d = 0; d < D; d++) {
            call->out[0][r * D + d] = rstd * (dy[d] * w[d] - x[d] * rstd * rstd * dot / (double)D);
            call->out[1][d] += dy[d] * x[d] * rstd;
        }
    }
}

const ct_op ct_op_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .formula = "dx = rstd·(dy·w - x·rstd²·mean(dy·w·x)), dw = Σ dy·x·rstd over rows",
    .rule = "B T D!, B T D!, D!, B T -> B T D!, D!",
    .dtypes = "ccff>cf",
    .inputs = 4, .outputs = 2,
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .forward = "rmsnorm", .again = "rmsnorm_grad_y",
    .reference = grad_reference,
};

static void grad_y_reference(const ct_reference *call) {
    int64_t D = in_extent(call, 0, 2), elems = ct_type_elems(call->out_types[0]);
    grad_reference(call);
    for (int64_t i = 0; i < elems; i++) call->out[2][i] = call->in[1][i] * call->in[3][i / D] * call->in[2][i % D];
}

// The gradients, and y once more for whoever reads it then.
const ct_op ct_op_rmsnorm_grad_y = {
    .name = "rmsnorm_grad_y",
    .formula = "dx = rstd·(dy·w - x·rstd²·mean(dy·w·x)), dw = Σ dy·x·rstd over rows, y = x·rstd·w",
    .rule = "B T D!, B T D!, D!, B T -> B T D!, D!, B T D!",
    .dtypes = "ccff>cfc",
    .inputs = 4, .outputs = 3,
    .flags = CT_OP_SUM | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .reference = grad_y_reference,
};

void ct_rmsnorm_grad(ct_graph *g, ct_value dy, ct_value x, ct_value w, ct_value rstd, ct_value *out_dx,
                     ct_value *out_dw) {
    int node = ct_build_node(g, &ct_op_rmsnorm_grad, 4, (ct_value[]){dy, x, w, rstd}, NULL, NULL);
    *out_dx = ct_node_output(g, node, 0);
    *out_dw = ct_node_output(g, node, 1);
}
