// The language-model head with its cross-entropy, as one macro op. As the count of valid tokens is known before the step, the visit
// that makes the loss also makes the gradients of inv_count · Σ loss; a pass expands it into chunks that never hold all logits.
#include "part.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IGNORED = -100 };

// Softmax of one row's logits into p; returns log Σ exp.
static double softmax(const double *h, const double *w, int64_t V, int64_t D, double *p) {
    double top = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++) {
        p[v] = 0;
        for (int64_t d = 0; d < D; d++) p[v] += h[d] * w[v * D + d];
        top = fmax(top, p[v]);
    }
    for (int64_t v = 0; v < V; v++) sum += exp(p[v] - top);
    for (int64_t v = 0; v < V; v++) p[v] = exp(p[v] - top) / sum;
    return top + log(sum);
}

static void reference(const ct_reference *call) {
    const double *w = call->in[1];
    int64_t rows = in_extent(call, 0, 0) * in_extent(call, 0, 1), D = in_extent(call, 0, 2), V = in_extent(call, 1, 0);
    double *loss = call->out[0], *dh = call->out[1], *dw = call->out[2], inv_count = call->in[3][0];
    double *p = ct_malloc((size_t)V * sizeof(double));
    memset(dw, 0, (size_t)(V * D) * sizeof(double));
    for (int64_t r = 0; r < rows; r++) {
        const double *h = call->in[0] + r * D;
        int64_t label = (int64_t)call->in[2][r];
        loss[r] = 0;
        memset(dh + r * D, 0, (size_t)D * sizeof(double));
        if (label == IGNORED) continue;
        double lse = softmax(h, w, V, D, p);
        for (int64_t d = 0; d < D; d++) loss[r] -= h[d] * w[label * D + d];
        loss[r] += lse;
        for (int64_t v = 0; v < V; v++)
            for (int64_t d = 0; d < D; d++) {
                double dlogit = (p[v] - (v == label)) * inv_count;
                dh[r * D + d] += dlogit * w[v * D + d];
                dw[v * D + d] += dlogit * h[d];
            }
    }
    free(p);
}

// The gradients are there already, times inv_count: the seed is not looked at.
static void grad(ct_grad *grad) {
    if (!only_first_differentiated(grad, "lm_loss", "dh or dw")) return;
    grad->inputs[0] = result(grad, 1);
    grad->inputs[1] = result(grad, 2);
}

// Logits, dh and dw: three products.
static double flops(const ct_graph *graph, const ct_node *node) {
    return 6 * (double)ct_type_elems(&graph->values[node->inputs[0]].type) * (double)extent(graph, node, 1, 0);
}

const ct_op ct_op_lm_loss = {
    .name = "lm_loss",
    .formula = "logits = h wᵀ, loss = log Σ exp(logits) - logits[label] (0 where the label is -100); dh, dw: gradients of inv_count·Σ loss",
    .rule = "B T D!, V D!, B T,  -> B T, B T D!, V D!",
    .dtypes = "ccif>fcf",
    .inputs = 4, .outputs = 3,
    .flags = CT_OP_MACRO | CT_OP_SUM | CT_OP_WHOLE0 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .grad = grad, .flops = flops, .reference = reference,
};

ct_value ct_lm_loss(ct_graph *g, ct_value h_BTD, ct_value w_VD, ct_value labels_BT, ct_value inv_count,
                    ct_value *out_dh, ct_value *out_dw) {
    int node = ct_build_node(g, &ct_op_lm_loss, 4, (ct_value[]){h_BTD, w_VD, labels_BT, inv_count}, NULL, NULL);
    if (out_dh) *out_dh = ct_node_output(g, node, 1);
    if (out_dw) *out_dw = ct_node_output(g, node, 2);
    return ct_node_output(g, node, 0);
}
