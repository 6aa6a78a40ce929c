// Where values lie within memory that they share: views in what they look at, operands of a concatenation one behind another. As shards may be
// uneven, this is another place on every rank, while the memory itself begins at the same one.
#include "graph/local.h"
#include "graph/op.h"

#include <stdlib.h>
#include <string.h>

static int is_concat(const ct_node *node) { return !strcmp(node->op->name, "concat"); }

void ct_inner_find(const ct_graph *placed, ct_inner *out) {
    size_t values = (size_t)placed->values_count + 1;
    *out = (ct_inner){placed, ct_malloc(sizeof(int) * values), ct_calloc(values, sizeof(int)), ct_calloc(values, sizeof(int))};
    for (int v = 0; v < placed->values_count; v++) out->parent[v] = -1;
    for (int n = 0; n < placed->nodes_count; n++) {
        const ct_node *node = &placed->nodes[n];
        for (int o = 0; o < node->outputs_count && !is_concat(node); o++)
            if (node->op->must_alias[o]) out->parent[node->outputs[o]] = node->inputs[node->op->must_alias[o] - 1], out->node[node->outputs[o]] = n;
        for (int i = 0; i < node->inputs_count && is_concat(node); i++) {
            int root = node->inputs[i];
            while (out->parent[root] >= 0) root = out->parent[root];
            if (root != node->outputs[0]) out->parent[root] = node->outputs[0], out->node[root] = n, out->operand[root] = i;
        }
    }
}

void ct_inner_deinit(ct_inner *inner) {
    free(inner->parent);
    free(inner->node);
    free(inner->operand);
}

// Bytes of one element of dim `dim` of what a rank holds (-1: of all of it), and how many of them there are.
static size_t bytes_of(const ct_graph *g, int value, int rank, int dim, int64_t *out_extent) {
    const ct_value_info *v = &g->values[value];
    int64_t extents[CT_MAX_DIMS];
    for (int d = 0; d < v->type.dims_count; d++) extents[d] = v->type.dims[d].extent;
    ct_region box = ct_layout_box(&g->mesh, &v->layout, v->type.dims_count, extents, rank);
    size_t bytes = ct_dtype_bytes(ct_layout_axes(&v->layout, CT_CUT_SUM) ? (ct_dtype)v->layout.partial : v->type.dtype);
    for (int d = dim + 1; d < v->type.dims_count; d++) bytes *= (size_t)box.extent[d];
    if (dim >= 0) *out_extent = box.extent[dim];
    return bytes;
}

// From the beginning of the parent to operand `operand` of a concatenation, or to a view.
static size_t step(const ct_graph *g, const ct_node *node, int operand, int rank) {
    size_t bytes = 0;
    for (int i = 0; i < operand; i++) bytes += bytes_of(g, node->inputs[i], rank, -1, NULL);
    if (strcmp(node->op->name, "slice")) return bytes;
    int dim = (int)node->attrs[0];
    int64_t whole = g->values[node->inputs[0]].type.dims[dim].extent, part;
    bytes = bytes_of(g, node->inputs[0], rank, dim, &part); // of a dim that is cut, a rank's part begins as far in as the whole's does
    return whole ? bytes * (size_t)((int64_t)node->attrs[1] * part / whole) : 0;
}

size_t ct_inner_bytes(const ct_inner *inner, int value, int rank) {
    size_t bytes = 0;
    for (; inner->parent[value] >= 0; value = inner->parent[value])
        bytes += step(inner->placed, &inner->placed->nodes[inner->node[value]], inner->operand[value], rank);
    return bytes;
}
