// Row look-up in a table, and its gradient: rows of dy added up by token. Every token is a row of the whole table (0 ≤ token < V; who feeds
// tokens sees to that); a shard of it gives zeros for the rows it lacks.
#include "part.h"

#include <string.h>

// The row of the table at hand, which begins at `origin`, that token t reads; -1: another shard's.
static int64_t row_of(double token, const int64_t *origin, int64_t rows) {
    int64_t row = (int64_t)token - (origin ? origin[0] : 0);
    return row >= 0 && row < rows ? row : -1;
}

static void forward_reference(const ct_reference *call) {
    int64_t V = in_extent(call, 0, 0), D = in_extent(call, 0, 1), tokens = ct_type_elems(call->in_types[1]);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = row_of(call->in[1][t], call->in_origin[0], V);
        for (int64_t d = 0; d < D; d++) call->out[0][t * D + d] = row < 0 ? 0 : call->in[0][row * D + d];
    }
}

static void forward_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    g->at.phase = CT_WEIGHT_GRAD;
    grad->inputs[0] =
        ct_embed_dw(g, grad->outputs[0], operand(grad, 1), ct_value_type(g, operand(grad, 0))->dims[0].extent);
}

const ct_op ct_op_embed = {
    .name = "embed",
    .formula = "y[b t] = table[tokens[b t]]; 0 where a shard of the table lacks the row",
    .rule = "V D, B T -> B T D",
    .dtypes = "ci>c",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LOWP0,
    .grad = forward_grad, .reference = forward_reference,
};

ct_value ct_embed(ct_graph *g, ct_value table_VD, ct_value tokens_BT) {
    return build(g, &ct_op_embed, 2, (ct_value[]){table_VD, tokens_BT}, NULL);
}

static int bind_rows(const ct_graph *graph, const ct_node *node, const char *letter, ct_dim *out_dim) {
    (void)graph;
    if (strcmp(letter, "V") || !(node->attrs[0] >= 1 && node->attrs[0] <= 1e12)) return 0;
    *out_dim = ct_dim_make("V", (int64_t)node->attrs[0]);
    return 1;
}

static void add_rows(const ct_reference *call, int dy_input) {
    const double *dy = call->in[dy_input], *tokens = call->in[dy_input + 1];
    int64_t D = in_extent(call, dy_input, 2), count = ct_type_elems(call->in_types[dy_input + 1]);
    for (int64_t t = 0; t < count; t++) {
        int64_t row = row_of(tokens[t], call->out_origin[0], call->out_types[0]->dims[0].extent);
        for (int64_t d = 0; d < D && row >= 0; d++) call->out[0][row * D + d] += dy[t * D + d];
    }
}

static void dw_reference(const ct_reference *call) {
    memset(call->out[0], 0, (size_t)ct_type_elems(call->out_types[0]) * sizeof(double));
    add_rows(call, 0);
}

const ct_op ct_op_embed_dw = {
    .name = "embed_dw",
    .formula = "dw[v] = Σ dy[b t] over tokens[b t] = v, ascending",
    .rule = "B T D, B T -> V D",
    .dtypes = "ci>f",
    .inputs = 2, .outputs = 1,
    .attrs = {"rows"},
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LOWP0,
    .bind = bind_rows, .reference = dw_reference,
};

ct_value ct_embed_dw(ct_graph *g, ct_value dy_BTD, ct_value tokens_BT, int64_t rows) {
    return build(g, &ct_op_embed_dw, 2, (ct_value[]){dy_BTD, tokens_BT}, (double[]){(double)rows});
}

static void dw_acc_reference(const ct_reference *call) {
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++)
        call->out[0][i] = call->in[3][0] != 0 ? 0 : call->in[0][i];
    add_rows(call, 1);
}

const ct_op ct_op_embed_dw_acc = {
    .name = "embed_dw_acc",
    .formula = "acc' = (first ? 0 : acc) + embed_dw(dy, tokens), a row's sum completed before it is added",
    .rule = "V D, B T D, B T,  -> V D",
    .dtypes = "fcii>f",
    .inputs = 4, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_ADDITIVE | CT_OP_LOWP0 << 1,
    .must_alias = {1},
    .reference = dw_acc_reference,
};

ct_value ct_embed_dw_acc(ct_graph *g, ct_value acc_VD, ct_value dy_BTD, ct_value tokens_BT, ct_value first) {
    return build(g, &ct_op_embed_dw_acc, 4, (ct_value[]){acc_VD, dy_BTD, tokens_BT, first}, NULL);
}
