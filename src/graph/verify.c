// Is this graph a program? Each use after its definition, types as the ops infer them, names unique, and memory: what an op writes in
// place (a state's update) must be the last anyone sees of what was there before.
//
// Left out: where a slice ends. Writing through any view of a buffer counts as writing all of it.
#include "graph/op.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODE_FORMAT "node %d, %s in '%s'"
#define NODE_ARGS(graph, n) (n), (graph)->nodes[n].op->name, (graph)->nodes[n].from.module

// ---- structure: indices in range, producers right, uses after definitions ----

static ct_status check_value(const ct_graph *graph, int id, int node, int output) {
    CT_CHECK(id >= 0 && id < graph->values_count, CT_INVALID, "%%%d is no value", id);
    const ct_value_info *info = &graph->values[id];
    CT_CHECK(info->node == node && info->output == output, CT_INVALID, "%%%d is defined twice, or its record is wrong", id);
    const ct_type *type = &info->type;
    CT_CHECK(type->dims_count >= 0 && type->dims_count <= CT_MAX_DIMS && type->dtype < CT_DTYPES, CT_INVALID,
             "%%%d has a bad type", id);
    int64_t elems = 1;
    for (int i = 0; i < type->dims_count; i++) {
        int64_t extent = type->dims[i].extent;
        CT_CHECK(extent >= 0 && extent <= ((int64_t)1 << 58) / elems, CT_INVALID, "%%%d: %s=%lld is too large", id,
                 type->dims[i].name, (long long)extent);
        elems *= extent ? extent : 1;
        int declared = 0;
        for (int r = 0; r < graph->roles_count; r++) declared |= !strcmp(graph->roles[r].name, type->dims[i].name);
        CT_CHECK(declared, CT_INVALID, "%%%d: dim '%s' has no declared role", id, type->dims[i].name);
    }
    return CT_OK;
}

static ct_status check_use(const ct_graph *graph, int id, int before_node) {
    CT_CHECK(id >= 0 && id < graph->values_count && graph->values[id].node >= -1, CT_INVALID, "%%%d is not defined", id);
    const ct_value_info *info = &graph->values[id];
    CT_CHECK(info->node < before_node, CT_INVALID, "%%%d is used before its definition, node %d", id, info->node);
    if (info->node < 0)
        CT_CHECK(info->output >= 0 && info->output < graph->inputs_count && graph->inputs[info->output].value == id,
                 CT_INVALID, "%%%d is defined by no input and no node", id);
    else
        CT_CHECK(info->output >= 0 && info->output < graph->nodes[info->node].outputs_count &&
                     graph->nodes[info->node].outputs[info->output] == id,
                 CT_INVALID, "%%%d is not what node %d defines", id, info->node);
    return CT_OK;
}

static ct_status check_node(const ct_graph *graph, int n) {
    const ct_node *node = &graph->nodes[n];
    CT_CHECK(node->outputs_count == node->op->outputs, CT_INVALID, "%d outputs, wanted %d", node->outputs_count,
             node->op->outputs);
    CT_CHECK(node->from.module && node->from.phase < CT_PHASES && node->from.layer >= -1 && node->from.stage >= 0,
             CT_INVALID, "bad provenance");
    for (int i = 0; i < node->inputs_count; i++) CT_TRY_AS(check_use(graph, node->inputs[i], n), "operand %d", i);
    for (int i = 0; i < CT_MAX_ATTRS && node->op->attrs[i]; i++)
        CT_CHECK(isfinite(node->attrs[i]), CT_INVALID, "%s = %g", node->op->attrs[i], node->attrs[i]);
    ct_type declared[CT_MAX_OUTPUTS], inferred[CT_MAX_OUTPUTS] = {0};
    for (int i = 0; i < node->outputs_count; i++) {
        CT_TRY(check_value(graph, node->outputs[i], n, i));
        declared[i] = graph->values[node->outputs[i]].type;
    }
    CT_TRY(ct_op_infer(graph, node, declared, inferred));
    for (int i = 0; i < node->outputs_count; i++) {
        if (ct_type_equal(&declared[i], &inferred[i])) continue;
        ct_string have = {0}, want = {0};
        ct_type_print(&declared[i], &have);
        ct_type_print(&inferred[i], &want);
        ct_status status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%%%d is %s, but the op gives %s",
                                         node->outputs[i], have.text, want.text);
        ct_string_deinit(&have);
        ct_string_deinit(&want);
        return status;
    }
    return CT_OK;
}

// ---- layouts ----

static ct_status layout_differs(const ct_graph *graph, int value, const ct_layout *wanted) {
    const ct_value_info *v = &graph->values[value];
    ct_string have = {0}, want = {0};
    ct_layout_print(&graph->mesh, &v->layout, &v->type, &have);
    ct_layout_print(&graph->mesh, wanted, &v->type, &want);
    ct_status status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%%%d lies%s, but%s is what follows", value,
                                     have.text && have.text[0] ? have.text : " {}", want.text && want.text[0] ? want.text : " {}");
    ct_string_deinit(&have);
    ct_string_deinit(&want);
    return status;
}

// A move makes no new sums, and takes a sum's maximum for nothing else.
static ct_status check_move(const ct_graph *graph, const ct_node *node) {
    const ct_layout *from = &graph->values[node->inputs[node->inputs_count > 1]].layout, *to = &graph->values[node->outputs[0]].layout;
    for (int i = 0; i < to->count; i++) {
        const ct_cut *cut = &to->cuts[i], *before = ct_layout_find(from, cut->axis);
        CT_CHECK(cut->kind == CT_CUT_SHARD || (before && before->kind == cut->kind) || (node->op->flags & CT_OP_PARTS), CT_INVALID, "a move to a partial value on axis %s",
                 graph->mesh.axes[cut->axis].name);
    }
    CT_CHECK(!ct_layout_axes(from, CT_CUT_SUM) || !ct_layout_axes(from, CT_CUT_MAX), CT_INVALID, "a sum and a maximum at once");
    if (node->op->must_alias[0] && !ct_layout_equal(to, &graph->values[node->inputs[node->op->must_alias[0] - 1]].layout))
        return layout_differs(graph, node->outputs[0], &graph->values[node->inputs[node->op->must_alias[0] - 1]].layout);
    return CT_OK;
}

static ct_status check_layouts(const ct_graph *graph, int n) {
    const ct_node *node = &graph->nodes[n];
    if (!graph->mesh.axes_count) return CT_OK;
    if (node->op->flags & CT_OP_MOVE) return check_move(graph, node);
    ct_layout inferred[CT_MAX_OUTPUTS];
    CT_TRY(ct_op_infer_layouts(graph, node, inferred));
    for (int o = 0; o < node->outputs_count; o++)
        if (!ct_layout_equal(&graph->values[node->outputs[o]].layout, &inferred[o]))
            return layout_differs(graph, node->outputs[o], &inferred[o]);
    return CT_OK;
}

// ---- names ----

static int compare_names(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static ct_status check_unique(const char **names, int count, const char *what) {
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 1; i < count; i++)
        CT_CHECK(strcmp(names[i - 1], names[i]), CT_INVALID, "two %s are named '%s'", what, names[i]);
    return CT_OK;
}

static ct_status check_names(const ct_graph *graph) {
    int most = graph->inputs_count > graph->outputs_count ? graph->inputs_count : graph->outputs_count;
    const char **names = ct_calloc((size_t)most + 1, sizeof *names);
    for (int i = 0; i < graph->inputs_count; i++) names[i] = graph->inputs[i].name;
    ct_status status = check_unique(names, graph->inputs_count, "inputs");
    for (int i = 0; i < graph->outputs_count; i++) names[i] = graph->outputs[i].name;
    if (!status) status = check_unique(names, graph->outputs_count, "outputs");
    free(names);
    return status;
}

// ---- memory ----
// Values that share memory (views, writes in place) have one root; a write in place makes a new version of the root, and a value may be
// read only while its version is the newest.

typedef struct {
    const ct_graph *graph;
    int *parent;  // union-find, by value
    int *version; // by value: of its root when it was defined
    int *newest;  // by root
    int *writer;  // by root: node that wrote it last
    int *owner;   // by root: 1 + the input whose update stands in it, 0
} memory;

static int root_of(memory *m, int v) {
    while (m->parent[v] != v) v = m->parent[v] = m->parent[m->parent[v]];
    return v;
}

static void join_memory(memory *m) {
    for (int n = 0; n < m->graph->nodes_count; n++) {
        const ct_node *node = &m->graph->nodes[n];
        const ct_op *op = node->op;
        for (int i = 0; i < node->outputs_count; i++)
            if (op->must_alias[i]) m->parent[root_of(m, node->outputs[i])] = root_of(m, node->inputs[op->must_alias[i] - 1]);
        if ((op->flags & CT_OP_VIEW) && !op->must_alias[0]) // concat: its operands lie in it
            for (int i = 0; i < node->inputs_count; i++) m->parent[root_of(m, node->inputs[i])] = root_of(m, node->outputs[0]);
    }
}

static ct_status check_current(memory *m, int value) {
    int root = root_of(m, value);
    if (m->version[value] == m->newest[root]) return CT_OK;
    CT_FAIL(CT_INVALID, "%%%d is read after its memory was overwritten by " NODE_FORMAT, value,
            NODE_ARGS(m->graph, m->writer[root]));
}

// The roots that a node writes in place must not be read through another operand of the same node.
static ct_status check_write(memory *m, const ct_node *node, int output) {
    int target = node->op->must_alias[output] - 1, root = root_of(m, node->inputs[target]);
    for (int i = 0; i < node->inputs_count; i++)
        CT_CHECK(i == target || root_of(m, node->inputs[i]) != root, CT_INVALID,
                 "operand %d, %%%d, shares memory with operand %d, which is overwritten", i, node->inputs[i], target);
    return CT_OK;
}

static ct_status visit_node(memory *m, int n) {
    const ct_node *node = &m->graph->nodes[n];
    int writes = !(node->op->flags & CT_OP_VIEW);
    for (int i = 0; i < node->inputs_count; i++) CT_TRY(check_current(m, node->inputs[i]));
    for (int i = 0; i < node->outputs_count; i++) {
        int root = root_of(m, node->outputs[i]);
        if (writes && node->op->must_alias[i]) {
            CT_TRY(check_write(m, node, i));
            m->newest[root]++;
            m->writer[root] = n;
        }
        m->version[node->outputs[i]] = m->newest[root];
    }
    return CT_OK;
}

// An update in memory of its own is computed straight into the input's memory, which nobody may read from that node on.
static ct_status check_replaced(memory *m, const ct_input *input, int from_node) {
    int root = root_of(m, input->value);
    for (int i = 0; i < m->graph->outputs_count; i++)
        CT_CHECK(root_of(m, m->graph->outputs[i].value) != root, CT_INVALID,
                 "output '%s', %%%d, is what its update %%%d replaces", m->graph->outputs[i].name, m->graph->outputs[i].value,
                 input->update);
    for (int n = from_node; n < m->graph->nodes_count; n++)
        for (int i = 0; i < m->graph->nodes[n].inputs_count; i++)
            CT_CHECK(root_of(m, m->graph->nodes[n].inputs[i]) != root, CT_INVALID,
                     "%%%d is read by " NODE_FORMAT " although its update %%%d is made in its memory before", m->graph->nodes[n].inputs[i],
                     NODE_ARGS(m->graph, n), input->update);
    return CT_OK;
}

// The update is the input's own memory, reached through writes in place, and the newest of it; or a value that replaces it.
static ct_status check_update(memory *m, const ct_input *input) {
    const ct_graph *graph = m->graph;
    int v = input->update;
    CT_TRY(check_use(graph, v, INT_MAX));
    CT_CHECK(ct_type_equal(&graph->values[v].type, &graph->values[input->value].type), CT_INVALID,
             "its update %%%d has another type", v);
    if (!ct_layout_equal(&graph->values[v].layout, &graph->values[input->value].layout))
        return layout_differs(graph, v, &graph->values[input->value].layout);
    CT_TRY_AS(check_current(m, v), "its update");
    int *owner = &m->owner[root_of(m, v)], self = 1 + (int)(input - graph->inputs);
    CT_CHECK(!*owner, CT_INVALID, "its update %%%d shares memory with the update of input '%s'", v, graph->inputs[*owner - 1].name);
    *owner = self;
    while (v != input->value) {
        int n = graph->values[v].node;
        int alias = n < 0 ? 0 : graph->nodes[n].op->must_alias[graph->values[v].output];
        CT_CHECK(n >= 0, CT_INVALID, "its update %%%d is another input", input->update);
        if (!alias) return check_replaced(m, input, n);
        v = graph->nodes[n].inputs[alias - 1];
    }
    return CT_OK;
}

static ct_status check_inputs(memory *m) {
    for (int i = 0; i < m->graph->inputs_count; i++) {
        const ct_input *input = &m->graph->inputs[i];
        int root = root_of(m, input->value);
        CT_CHECK(input->update >= 0 || !m->newest[root], CT_INVALID,
                 "input '%s', %%%d, is overwritten by " NODE_FORMAT " and has no update", input->name, input->value,
                 NODE_ARGS(m->graph, m->writer[root]));
        if (input->update >= 0) CT_TRY_AS(check_update(m, input), "input '%s', %%%d", input->name, input->value);
    }
    return CT_OK;
}

static ct_status run_memory(memory *m) {
    for (int v = 0; v < m->graph->values_count; v++) m->parent[v] = v;
    for (int v = 0; v < m->graph->values_count; v++) m->version[v] = m->newest[v] = 0;
    join_memory(m);
    for (int n = 0; n < m->graph->nodes_count; n++)
        CT_TRY_AS(visit_node(m, n), NODE_FORMAT, NODE_ARGS(m->graph, n));
    CT_TRY(check_inputs(m));
    for (int i = 0; i < m->graph->outputs_count; i++)
        CT_TRY_AS(check_current(m, m->graph->outputs[i].value), "output '%s'", m->graph->outputs[i].name);
    return CT_OK;
}

static ct_status check_memory(const ct_graph *graph) {
    size_t n = (size_t)graph->values_count;
    int *space = ct_calloc(5 * n + 1, sizeof *space);
    memory m = {graph, space, space + n, space + 2 * n, space + 3 * n, space + 4 * n};
    ct_status status = run_memory(&m);
    free(space);
    return status;
}

static ct_status verify(const ct_graph *graph) {
    CT_TRY(ct_graph_status(graph));
    CT_TRY(check_names(graph));
    for (int i = 0; i < graph->inputs_count; i++) {
        CT_CHECK(graph->inputs[i].kind < CT_INPUT_KINDS, CT_INVALID, "input '%s' is of no kind", graph->inputs[i].name);
        CT_TRY_AS(check_value(graph, graph->inputs[i].value, -1, i), "input '%s'", graph->inputs[i].name);
    }
    for (int n = 0; n < graph->nodes_count; n++) {
        CT_CHECK(graph->nodes[n].op, CT_INVALID, "node %d has no op", n);
        CT_TRY_AS(check_node(graph, n), NODE_FORMAT, NODE_ARGS(graph, n));
        CT_TRY_AS(check_layouts(graph, n), NODE_FORMAT, NODE_ARGS(graph, n));
    }
    for (int i = 0; i < graph->outputs_count; i++)
        CT_TRY_AS(check_use(graph, graph->outputs[i].value, INT_MAX), "output '%s'", graph->outputs[i].name);
    return check_memory(graph);
}

ct_status ct_graph_verify(const ct_graph *graph) {
    CT_TRY_AS(verify(graph), "program %s", graph->name);
    return CT_OK;
}
