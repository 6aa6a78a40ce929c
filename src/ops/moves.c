// Moves: data goes from rank to rank, by the layouts of input and output (declared, not inferred). Globally each is the identity; the names say
// what a move is to people, and one routine runs them all (graph/reshard.h gives the pieces).
//
// A sum is taken part by part, ascending in the rank, in the partial sum's dtype, and rounded once.
#include "part.h"

#define MOVE(id, text, what)                                                                                           \
    const ct_op ct_op_##id = {.name = text,                                                                            \
                              .formula = what,                                                                         \
                              .rule = "* -> *",                                                                        \
                              .dtypes = "?>?",                                                                         \
                              .inputs = 1,                                                                             \
                              .outputs = 1,                                                                            \
                              .flags = CT_OP_MOVE}

MOVE(all_gather, "all_gather", "y = x, cut before and whole on the axes after");
MOVE(reduce_scatter, "reduce_scatter", "y = Σ of the ranks' x, each rank its part");
MOVE(all_reduce, "all_reduce", "y = Σ (or the maximum) of the ranks' x");
MOVE(all_to_all, "all_to_all", "y = x, cut along another dim");
MOVE(local_slice, "local_slice", "y = this rank's part of x, which all have");
MOVE(reshard, "reshard", "y = x, several of these at once");

// Nothing moves: what ranks of different pipeline stages have becomes parts of one sum over the stages.
const ct_op ct_op_stage_part = {
    .name = "stage_part",
    .formula = "y = x, as this stage's part of a sum over pp",
    .rule = "* -> *",
    .dtypes = "?>?",
    .inputs = 1, .outputs = 1,
    .flags = CT_OP_MOVE | CT_OP_PARTS,
};

// acc' = (first ? 0 : acc) + p₀ + p₁ + …: one flat sum, so that cutting a batch over ranks gives the bits of accumulating it on one.
const ct_op ct_op_reduce_accumulate = {
    .name = "reduce_accumulate",
    .formula = "acc' = (first ? 0 : acc) + x of rank 0 + x of rank 1 + …, each rank its part of acc",
    .rule = "*, *,  -> *",
    .dtypes = "ffi>f",
    .inputs = 3, .outputs = 1,
    .flags = CT_OP_MOVE,
    .must_alias = {1},
};

const ct_op ct_op_rotate = {
    .name = "rotate",
    .formula = "y = the x of the rank `by` places before on mesh axis number `axis`, the last's going to the first",
    .rule = "* -> *",
    .dtypes = "?>?",
    .inputs = 1, .outputs = 1,
    .attrs = {"axis", "by"},
    .flags = CT_OP_MOVE | CT_OP_ROTATE,
};

ct_value ct_rotate(ct_graph *g, ct_value x, int axis, int by) {
    int node = ct_build_node(g, &ct_op_rotate, 1, &x, (double[]){axis, by}, NULL);
    ct_value y = ct_node_output(g, node, 0);
    if (y.id >= 0) g->values[y.id].layout = g->values[x.id].layout;
    return y;
}
