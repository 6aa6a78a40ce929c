// Building: nodes are appended in execution order, types are inferred at once, the first error sticks and the rest does nothing.
#include "graph/graph.h"
#include "graph/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t ct_type_elems(const ct_type *type) {
    int64_t n = 1;
    for (int i = 0; i < type->dims_count; i++) n *= type->dims[i].extent;
    return n;
}

size_t ct_type_bytes(const ct_type *type) { return (size_t)ct_type_elems(type) * ct_dtype_bytes(type->dtype); }

int ct_type_equal(const ct_type *a, const ct_type *b) {
    if (a->dtype != b->dtype || a->dims_count != b->dims_count) return 0;
    for (int i = 0; i < a->dims_count; i++)
        if (a->dims[i].extent != b->dims[i].extent || strcmp(a->dims[i].name, b->dims[i].name)) return 0;
    return 1;
}

ct_type ct_type_make(ct_dtype dtype, int dims_count, const ct_dim *dims) {
    ct_type type = {.dtype = dtype, .dims_count = dims_count};
    for (int i = 0; i < dims_count; i++) type.dims[i] = dims[i];
    return type;
}

void ct_graph_init(ct_graph *graph, const char *name) {
    *graph = (ct_graph){.at = {.module = "", .layer = -1}, .rank = -1};
    graph->name = ct_arena_strdup(&graph->arena, name);
}

void ct_graph_deinit(ct_graph *graph) {
    free(graph->values);
    free(graph->nodes);
    free(graph->inputs);
    free(graph->outputs);
    ct_arena_deinit(&graph->arena);
    *graph = (ct_graph){0};
}

void ct_graph_fail(ct_graph *graph, ct_status status) {
    if (graph->error_text[0]) return;
    snprintf(graph->error_text, sizeof graph->error_text, "%s", ct_error_text(status));
}

ct_status ct_graph_status(const ct_graph *graph) {
    CT_CHECK(!graph->error_text[0], CT_INVALID, "program %s: %s", graph->name, graph->error_text);
    return CT_OK;
}

void ct_graph_role(ct_graph *graph, const char *dim, ct_role role) {
    for (int i = 0; i < graph->roles_count; i++)
        if (!strcmp(graph->roles[i].name, dim)) {
            CT_ASSERT(graph->roles[i].role == role, "dim %s declared twice, differently", dim);
            return;
        }
    CT_ASSERT(graph->roles_count < 32, "too many dim names");
    ct_dim_role *r = &graph->roles[graph->roles_count++];
    snprintf(r->name, sizeof r->name, "%s", dim);
    r->role = role;
}

ct_role ct_graph_role_of(const ct_graph *graph, const char *dim) {
    for (int i = 0; i < graph->roles_count; i++)
        if (!strcmp(graph->roles[i].name, dim)) return graph->roles[i].role;
    return CT_ROLE_NONE;
}

void ct_graph_at(ct_graph *graph, ct_phase phase, int layer, const char *module_format, ...) {
    char text[256];
    va_list args;
    va_start(args, module_format);
    vsnprintf(text, sizeof text, module_format, args);
    va_end(args);
    graph->at.phase = phase;
    graph->at.layer = layer;
    if (strcmp(graph->at.module, text)) graph->at.module = ct_arena_strdup(&graph->arena, text);
}

static int add_value(ct_graph *graph, ct_type type, int node, int output) {
    CT_GROW(graph->values, graph->values_count, graph->values_capacity);
    graph->values[graph->values_count] = (ct_value_info){.type = type, .node = node, .output = output};
    return graph->values_count++;
}

ct_value ct_build_input(ct_graph *graph, ct_input_kind kind, const char *name, ct_type type) {
    CT_GROW(graph->inputs, graph->inputs_count, graph->inputs_capacity);
    int value = add_value(graph, type, -1, graph->inputs_count);
    graph->inputs[graph->inputs_count++] =
        (ct_input){ct_arena_strdup(&graph->arena, name), kind, value, -1};
    return (ct_value){value};
}

void ct_build_update(ct_graph *graph, ct_value input, ct_value update) {
    if (input.id < 0 || update.id < 0) return;
    ct_value_info *info = &graph->values[input.id];
    CT_ASSERT(info->node < 0, "only a program input can be updated");
    graph->inputs[info->output].update = update.id;
}

void ct_build_output(ct_graph *graph, const char *name, ct_value value) {
    if (value.id < 0) return;
    CT_GROW(graph->outputs, graph->outputs_count, graph->outputs_capacity);
    graph->outputs[graph->outputs_count++] = (ct_output){ct_arena_strdup(&graph->arena, name), value.id};
}

int ct_build_node(ct_graph *graph, const ct_op *op, int inputs_count, const ct_value *inputs, const double *attrs,
                  const ct_type *declared) {
    if (graph->error_text[0]) return -1;
    ct_node node = {.op = op, .inputs_count = inputs_count, .outputs_count = op->outputs, .from = graph->at};
    node.inputs = CT_ARENA_ARRAY(&graph->arena, int, inputs_count);
    for (int i = 0; i < inputs_count; i++) {
        CT_ASSERT(inputs[i].id >= 0 && inputs[i].id < graph->values_count, "%s: operand %d is no value (in %s)",
                  op->name, i, graph->at.module);
        node.inputs[i] = inputs[i].id;
    }
    for (int i = 0; attrs && i < CT_MAX_ATTRS && op->attrs[i]; i++) node.attrs[i] = attrs[i];
    ct_type types[CT_MAX_OUTPUTS] = {0};
    ct_status status = ct_op_infer(graph, &node, declared, types);
    if (status) {
        ct_graph_fail(graph, ct_error_note(status, "%s in %s", op->name, graph->at.module));
        return -1;
    }
    int index = graph->nodes_count;
    for (int i = 0; i < op->outputs; i++) node.outputs[i] = add_value(graph, types[i], index, i);
    if (graph->mesh.axes_count && !(op->flags & CT_OP_MOVE)) {
        ct_layout layouts[CT_MAX_OUTPUTS]; // where they are not legal yet, placement will see to it
        if (!ct_op_infer_layouts(graph, &node, layouts))
            for (int i = 0; i < op->outputs; i++) graph->values[node.outputs[i]].layout = layouts[i];
    }
    CT_GROW(graph->nodes, graph->nodes_count, graph->nodes_capacity);
    graph->nodes[graph->nodes_count++] = node;
    return index;
}

int ct_graph_find_input(const ct_graph *graph, const char *name) {
    for (int i = 0; i < graph->inputs_count; i++)
        if (!strcmp(graph->inputs[i].name, name)) return i;
    return -1;
}

int ct_graph_find_output(const ct_graph *graph, const char *name) {
    for (int i = 0; i < graph->outputs_count; i++)
        if (!strcmp(graph->outputs[i].name, name)) return i;
    return -1;
}

ct_status ct_graph_reinfer(ct_graph *graph) {
    for (int n = 0; n < graph->nodes_count; n++) {
        ct_node *node = &graph->nodes[n];
        ct_type types[CT_MAX_OUTPUTS] = {0}, declared[CT_MAX_OUTPUTS];
        for (int i = 0; i < node->outputs_count; i++) {
            declared[i] = graph->values[node->outputs[i]].type;
            if (node->op->flags & CT_OP_VIEW) declared[i].dtype = graph->values[node->inputs[0]].type.dtype;
        }
        CT_TRY_AS(ct_op_infer(graph, node, declared, types), "node %d, %s in %s", n, node->op->name, node->from.module);
        for (int i = 0; i < node->outputs_count; i++) graph->values[node->outputs[i]].type = types[i];
    }
    return CT_OK;
}
