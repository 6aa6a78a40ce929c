// Ops that treat each element alone: add, cast, accumulate. Their outputs may take an operand's memory.
#include "part.h"

static int64_t elems(const ct_reference *call) { return ct_type_elems(call->out_types[0]); }

// ---- y = a + b ----

static void add_reference(const ct_reference *call) {
    for (int64_t i = 0; i < elems(call); i++) call->out[0][i] = call->in[0][i] + call->in[1][i];
}

static void add_grad(ct_grad *grad) { grad->inputs[0] = grad->inputs[1] = grad->outputs[0]; }

const ct_op ct_op_add = {
    .name = "add",
    .formula = "y = a + b",
    .rule = "*, * -> *",
    .dtypes = "cc>c",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_ADDITIVE | CT_OP_LOWP0 | CT_OP_LOWP0 << 1,
    .may_alias = {3},
    .grad = add_grad, .reference = add_reference,
};

ct_value ct_add(ct_graph *g, ct_value a, ct_value b) { return build(g, &ct_op_add, 2, (ct_value[]){a, b}, NULL); }

// ---- y = x in another dtype ----

static void cast_reference(const ct_reference *call) {
    for (int64_t i = 0; i < elems(call); i++) call->out[0][i] = call->in[0][i];
}

// The gradient of a weight's cast comes in f32 already (products sum in f32): it passes as it is.
static void cast_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    ct_value dy = grad->outputs[0];
    ct_dtype dtype = ct_value_type(g, operand(grad, 0))->dtype;
    g->at.phase = CT_INPUT_GRAD;
    grad->inputs[0] = dy.id < 0 || ct_value_type(g, dy)->dtype == dtype ? dy : ct_cast(g, dy, dtype);
}

const ct_op ct_op_cast = {
    .name = "cast",
    .formula = "y = x rounded to nearest even, f32 to bf16 or back",
    .rule = "* -> *",
    .dtypes = "?>a",
    .inputs = 1, .outputs = 1,
    .attrs = {"to"},
    .grad = cast_grad, .reference = cast_reference,
};

ct_value ct_cast(ct_graph *g, ct_value x, ct_dtype to) {
    return build(g, &ct_op_cast, 1, &x, (double[]){(double)to});
}

// ---- acc' = acc + part ----

static void accumulate_reference(const ct_reference *call) {
    for (int64_t i = 0; i < elems(call); i++)
        call->out[0][i] = (call->in[2][0] != 0 ? 0 : call->in[0][i]) + call->in[1][i];
}

const ct_op ct_op_accumulate = {
    .name = "accumulate",
    .formula = "acc' = first ? part : acc + part",
    .rule = "*, *,  -> *",
    .dtypes = "ffi>f",
    .inputs = 3, .outputs = 1,
    .flags = CT_OP_ADDITIVE | CT_OP_LINEAR0 << 1,
    .must_alias = {1},
    .reference = accumulate_reference,
};

ct_value ct_accumulate(ct_graph *g, ct_value acc, ct_value part, ct_value first) {
    return build(g, &ct_op_accumulate, 3, (ct_value[]){acc, part, first}, NULL);
}
