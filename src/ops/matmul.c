// Products with a weight, and their two gradients. A product is written once whole; adding to an accumulator is an op of its own,
// acc + (complete product), so that its bits do not depend on how the product was tiled.
#include "part.h"

// 2 × the rows of `input`, B T, × the elements of a weight-shaped N K.
static double product_flops(const ct_graph *graph, const ct_node *node, int input, int64_t weight_elems) {
    return 2 * (double)extent(graph, node, input, 0) * (double)extent(graph, node, input, 1) * (double)weight_elems;
}

static double forward_flops(const ct_graph *graph, const ct_node *node) {
    return product_flops(graph, node, 0, ct_type_elems(&graph->values[node->inputs[1]].type));
}

static double dw_flops(const ct_graph *graph, const ct_node *node) {
    int dy_input = node->inputs_count == 4; // after acc
    return product_flops(graph, node, dy_input, ct_type_elems(&graph->values[node->outputs[0]].type));
}

// ---- y = x wᵀ ----

static void matmul_reference(const ct_reference *call) {
    int64_t rows = in_extent(call, 0, 0) * in_extent(call, 0, 1), K = in_extent(call, 0, 2), N = in_extent(call, 1, 0);
    const double *x = call->in[0], *w = call->in[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) sum += x[r * K + k] * w[n * K + k];
            call->out[0][r * N + n] = sum;
        }
}

// dx = dy w, dw = dyᵀ x.
static void matmul_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    ct_value x = operand(grad, 0), w = operand(grad, 1), dy = grad->outputs[0];
    g->at.phase = CT_INPUT_GRAD;
    if (dy.id >= 0 && ct_value_type(g, dy)->dtype != ct_value_type(g, x)->dtype)
        dy = ct_cast(g, dy, ct_value_type(g, x)->dtype);
    grad->inputs[0] = ct_matmul_dx(g, dy, w);
    g->at.phase = CT_WEIGHT_GRAD;
    grad->inputs[1] = ct_matmul_dw(g, dy, x);
}

const ct_op ct_op_matmul = {
    .name = "matmul",
    .formula = "y = x wᵀ, accumulated in f32, rounded once",
    .rule = "B T K, N K -> B T N",
    .dtypes = "cc>o",
    .inputs = 2, .outputs = 1,
    .attrs = {"out_f32"},
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LINEAR0 << 1 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .grad = matmul_grad, .flops = forward_flops, .reference = matmul_reference,
};

ct_value ct_matmul(ct_graph *g, ct_value x_BTK, ct_value w_NK, int out_f32) {
    return build(g, &ct_op_matmul, 2, (ct_value[]){x_BTK, w_NK}, (double[]){out_f32});
}

// ---- dx = dy w ----

static void dx_reference(const ct_reference *call) {
    int64_t rows = in_extent(call, 0, 0) * in_extent(call, 0, 1), N = in_extent(call, 0, 2), K = in_extent(call, 1, 1);
    const double *dy = call->in[0], *w = call->in[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t n = 0; n < N; n++) sum += dy[r * N + n] * w[n * K + k];
            call->out[0][r * K + k] = sum;
        }
}

const ct_op ct_op_matmul_dx = {
    .name = "matmul_dx",
    .formula = "dx = dy w",
    .rule = "B T N, N K -> B T K",
    .dtypes = "cc>c",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LINEAR0 << 1 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .flops = forward_flops, .reference = dx_reference,
};

ct_value ct_matmul_dx(ct_graph *g, ct_value dy_BTN, ct_value w_NK) {
    return build(g, &ct_op_matmul_dx, 2, (ct_value[]){dy_BTN, w_NK}, NULL);
}

// ---- dw = dyᵀ x ----

static void add_dw(const ct_reference *call, int dy_input, int x_input) {
    int64_t rows = in_extent(call, dy_input, 0) * in_extent(call, dy_input, 1);
    int64_t N = in_extent(call, dy_input, 2), K = in_extent(call, x_input, 2);
    const double *dy = call->in[dy_input], *x = call->in[x_input];
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++) sum += dy[r * N + n] * x[r * K + k];
            call->out[0][n * K + k] += sum;
        }
}

static void dw_reference(const ct_reference *call) {
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++) call->out[0][i] = 0;
    add_dw(call, 0, 1);
}

const ct_op ct_op_matmul_dw = {
    .name = "matmul_dw",
    .formula = "dw = dyᵀ x, summed over B and T ascending",
    .rule = "B T N, B T K -> N K",
    .dtypes = "cc>f",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LINEAR0 << 1 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .flops = dw_flops, .reference = dw_reference,
};

ct_value ct_matmul_dw(ct_graph *g, ct_value dy_BTN, ct_value x_BTK) {
    return build(g, &ct_op_matmul_dw, 2, (ct_value[]){dy_BTN, x_BTK}, NULL);
}

static void dw_acc_reference(const ct_reference *call) {
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++)
        call->out[0][i] = call->in[3][0] != 0 ? 0 : call->in[0][i];
    add_dw(call, 1, 2);
}

const ct_op ct_op_matmul_dw_acc = {
    .name = "matmul_dw_acc",
    .formula = "acc' = (first ? 0 : acc) + dyᵀ x, the product completed before it is added",
    .rule = "N K, B T N, B T K,  -> N K",
    .dtypes = "fcci>f",
    .inputs = 4, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_ADDITIVE | CT_OP_LOWP0 << 1 | CT_OP_LOWP0 << 2,
    .must_alias = {1},
    .flops = dw_flops, .reference = dw_acc_reference,
};

ct_value ct_matmul_dw_acc(ct_graph *g, ct_value acc_NK, ct_value dy_BTN, ct_value x_BTK, ct_value first) {
    return build(g, &ct_op_matmul_dw_acc, 4, (ct_value[]){acc_NK, dy_BTN, x_BTK, first}, NULL);
}
