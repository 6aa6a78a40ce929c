// Runs a graph by the ops' reference loops: one array of doubles a value, no memory shared, no order but the nodes'.
#include "ops/interpret.h"

#include <stdlib.h>
#include <string.h>

void ct_reference_init(ct_reference_values *values, const ct_graph *graph) {
    values->count = graph->values_count;
    values->values = ct_calloc((size_t)graph->values_count + 1, sizeof *values->values);
    for (int i = 0; i < graph->values_count; i++)
        values->values[i] = ct_calloc((size_t)ct_type_elems(&graph->values[i].type) + 1, sizeof(double));
}

void ct_reference_deinit(ct_reference_values *values) {
    for (int i = 0; i < values->count; i++) free(values->values[i]);
    free(values->values);
    *values = (ct_reference_values){0};
}

double ct_reference_round(double x, ct_dtype dtype) {
    if (dtype == CT_F32) return (double)(float)x;
    if (dtype != CT_BF16 || x != x) return x;
    // To bf16 in one rounding: through f32 by truncation toward odd, so that the second rounding sees what the first dropped.
    float near = (float)x;
    uint32_t bits;
    memcpy(&bits, &near, 4);
    if ((double)near != x) {
        if ((near > 0) == ((double)near > x) && near != 0) bits--; // toward zero
        bits |= 1;
    }
    memcpy(&near, &bits, 4);
    return (double)ct_f32_from_bf16(ct_bf16_from_f32(near));
}

// Copies `extent` slices along `dim` of one array into another, from slice `from` to slice `to` on; the types differ in that dim's extent only.
static void copy_slices(const double *x, const ct_type *x_type, int64_t from, double *y, const ct_type *y_type, int64_t to, int dim, int64_t extent) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < dim; i++) outer *= x_type->dims[i].extent;
    for (int i = dim + 1; i < x_type->dims_count; i++) inner *= x_type->dims[i].extent;
    int64_t x_step = x_type->dims[dim].extent * inner, y_step = y_type->dims[dim].extent * inner;
    for (int64_t o = 0; o < outer; o++)
        memcpy(y + o * y_step + to * inner, x + o * x_step + from * inner, (size_t)(extent * inner) * sizeof *y);
}

// A view as a copy. Of a whole program's views that dims before a part's dim are more than 1 is no matter: memory is not shared here.
static void run_view(const ct_graph *graph, const ct_node *node, ct_reference_values *values) {
    double *out = values->values[node->outputs[0]];
    const ct_type *type = &graph->values[node->outputs[0]].type;
    int dim = (int)node->attrs[0], is_slice = !strcmp(node->op->name, "slice");
    if (!is_slice && strcmp(node->op->name, "concat")) { // split, merge: the elements lie in the same order
        memcpy(out, values->values[node->inputs[0]], (size_t)ct_type_elems(type) * sizeof *out);
        return;
    }
    int64_t at = 0;
    for (int i = 0; i < node->inputs_count; i++) {
        const ct_type *x = &graph->values[node->inputs[i]].type;
        int64_t extent = is_slice ? type->dims[dim].extent : x->dims[dim].extent;
        copy_slices(values->values[node->inputs[i]], x, is_slice ? (int64_t)node->attrs[1] : 0, out, type, at, dim, extent);
        at += extent;
    }
}

void ct_reference_node(const ct_graph *graph, int n, ct_reference_values *values, int rounded) {
    const ct_node *node = &graph->nodes[n];
    if (!node->op->reference) {
        CT_ASSERT(node->op->flags & CT_OP_VIEW, "%s has no reference", node->op->name);
        run_view(graph, node, values);
        return;
    }
    ct_reference call = {.inputs = node->inputs_count, .outputs = node->outputs_count, .attrs = node->attrs};
    for (int i = 0; i < node->inputs_count; i++) {
        call.in_types[i] = &graph->values[node->inputs[i]].type;
        call.in_origin[i] = graph->values[node->inputs[i]].origin;
        call.in[i] = values->values[node->inputs[i]];
    }
    for (int i = 0; i < node->outputs_count; i++) {
        call.out_types[i] = &graph->values[node->outputs[i]].type;
        call.out_origin[i] = graph->values[node->outputs[i]].origin;
        call.out[i] = values->values[node->outputs[i]];
    }
    node->op->reference(&call);
    for (int i = 0; rounded && i < node->outputs_count; i++)
        for (int64_t j = 0; j < ct_type_elems(call.out_types[i]); j++)
            call.out[i][j] = ct_reference_round(call.out[i][j], call.out_types[i]->dtype);
}

void ct_reference_run(const ct_graph *graph, ct_reference_values *values, int rounded) {
    for (int n = 0; n < graph->nodes_count; n++) ct_reference_node(graph, n, values, rounded);
}
