// Reads what print.c writes. The parser sees to syntax, names and that every value is defined once; whether the program makes sense
// (order, types, memory) is the verifier's question.
#include "graph/op.h"
#include "scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    ct_graph *graph;
    ct_scan *s;
    ct_op_lookup *lookup;
    int max_id;       // ids are at most this: as many values as bytes, so that a short text can't ask for much memory
    int *first_use;   // by id: 1 + offset of the first use, 0: none
    int first_use_capacity;
    int update_hint;  // index of the input after the last updated one: updates stand in the inputs' order
} parser;

static const char *role_name(int i) { return ct_role_name((ct_role)i); }
static const char *phase_name(int i) { return ct_phase_name((ct_phase)i); }
static const char *kind_name(int i) { return ct_input_kind_name((ct_input_kind)i); }

// ---- values ----

enum { UNDEFINED = -2 }; // producer of an id that nothing defines

static ct_status read_id(parser *p, int *out_id) {
    CT_TRY(ct_scan_expect(p->s, "%"));
    int64_t id;
    CT_TRY(ct_scan_integer(p->s, 0, p->max_id, "a value's number, less than the bytes of the text", &id));
    ct_graph *g = p->graph;
    while (g->values_count <= id) {
        CT_GROW(g->values, g->values_count, g->values_capacity);
        g->values[g->values_count++] = (ct_value_info){.node = UNDEFINED, .output = -1};
    }
    while (p->first_use_capacity < g->values_capacity) {
        p->first_use = ct_realloc(p->first_use, sizeof(int) * (size_t)g->values_capacity);
        memset(p->first_use + p->first_use_capacity, 0,
               sizeof(int) * (size_t)(g->values_capacity - p->first_use_capacity));
        p->first_use_capacity = g->values_capacity;
    }
    *out_id = (int)id;
    return CT_OK;
}

static ct_status read_use(parser *p, int *out_id) {
    const char *start = ct_scan_skip(p->s);
    CT_TRY(read_id(p, out_id));
    if (!p->first_use[*out_id]) p->first_use[*out_id] = 1 + (int)(start - p->s->text);
    return CT_OK;
}

static ct_status read_definition(parser *p, int *out_id) {
    const char *start = ct_scan_skip(p->s);
    CT_TRY(read_id(p, out_id));
    if (p->graph->values[*out_id].node != UNDEFINED)
        return ct_scan_fail(p->s, start, "a value that is not defined yet");
    p->graph->values[*out_id].node = -1;
    return CT_OK;
}

static ct_status read_dim(parser *p, ct_type *type) {
    const char *start = ct_scan_skip(p->s);
    if (type->dims_count == CT_MAX_DIMS) return ct_scan_fail(p->s, start, "no more dims");
    CT_TRY(ct_scan_word(p->s, "a dim's name"));
    if (p->s->word.length >= sizeof type->dims[0].name)
        return ct_scan_fail(p->s, start, "a dim's name of at most 7 bytes");
    ct_dim *dim = &type->dims[type->dims_count++];
    *dim = ct_dim_make(p->s->word.text, 0);
    CT_TRY(ct_scan_expect(p->s, "="));
    int64_t elems = 1;
    for (int i = 0; i + 1 < type->dims_count; i++) elems *= type->dims[i].extent ? type->dims[i].extent : 1;
    return ct_scan_integer(p->s, 0, ((int64_t)1 << 58) / elems, "an extent (at most 2^58 elements)", &dim->extent);
}

static ct_status read_type(parser *p, ct_type *out) {
    const char *start = ct_scan_skip(p->s);
    ct_type type = {0};
    CT_TRY(ct_scan_word(p->s, "a type"));
    if (!ct_dtype_parse(p->s->word.text, &type.dtype))
        return ct_scan_fail(p->s, start, "a dtype: f32, bf16, f64, i32 or i64");
    CT_TRY(ct_scan_expect(p->s, "["));
    while (!ct_scan_accept(p->s, "]")) {
        if (type.dims_count) CT_TRY(ct_scan_expect(p->s, ","));
        CT_TRY(read_dim(p, &type));
    }
    *out = type;
    return CT_OK;
}

// "{axis: S(dim), axis: P(f32), axis: Pmax}" after a type; nothing where the next byte is another.
static ct_status read_cut(parser *p, const ct_type *type, ct_layout *layout) {
    const char *start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "an axis"));
    int axis = ct_mesh_find(&p->graph->mesh, p->s->word.text), dim = 0;
    if (axis < 0 || ct_layout_find(layout, axis)) return ct_scan_fail(p->s, start, "an axis that is declared, once");
    CT_TRY(ct_scan_expect(p->s, ":"));
    start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "S(dim), P(dtype) or Pmax"));
    if (!strcmp(p->s->word.text, "Pmax")) {
        ct_layout_add(layout, axis, CT_CUT_MAX, 0);
        return CT_OK;
    }
    int shard = !strcmp(p->s->word.text, "S");
    if (!shard && strcmp(p->s->word.text, "P")) return ct_scan_fail(p->s, start, "S(dim), P(dtype) or Pmax");
    CT_TRY(ct_scan_expect(p->s, "("));
    start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, shard ? "a dim's name" : "a dtype"));
    ct_dtype partial = CT_F32;
    while (shard && dim < type->dims_count && strcmp(type->dims[dim].name, p->s->word.text)) dim++;
    if (shard && dim == type->dims_count) return ct_scan_fail(p->s, start, "a dim of the type");
    if (!shard && !ct_dtype_parse(p->s->word.text, &partial)) return ct_scan_fail(p->s, start, "a dtype");
    ct_layout_add(layout, axis, shard ? CT_CUT_SHARD : CT_CUT_SUM, dim);
    if (!shard) layout->partial = (uint8_t)partial;
    return ct_scan_expect(p->s, ")");
}

static ct_status read_layout(parser *p, const ct_type *type, ct_layout *out) {
    *out = (ct_layout){0};
    if (!ct_scan_accept(p->s, "{")) return CT_OK;
    do CT_TRY(read_cut(p, type, out));
    while (ct_scan_accept(p->s, ","));
    return ct_scan_expect(p->s, "}");
}

// ---- lines ----

static ct_status read_axis(parser *p) {
    ct_mesh *mesh = &p->graph->mesh;
    const char *start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "an axis"));
    if (mesh->axes_count == CT_MAX_AXES || p->s->word.length >= sizeof mesh->axes[0].name || ct_mesh_find(mesh, p->s->word.text) >= 0)
        return ct_scan_fail(p->s, start, "a new axis of at most 15 bytes, 8 at the most");
    ct_axis *axis = &mesh->axes[mesh->axes_count];
    memcpy(axis->name, p->s->word.text, p->s->word.length + 1);
    int64_t size;
    CT_TRY(ct_scan_integer(p->s, 2, 1 << 20, "the axis' size, at least 2", &size));
    axis->size = (int)size;
    mesh->axes_count++;
    return CT_OK;
}

static ct_status read_role(parser *p) {
    const char *start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "a dim's name"));
    ct_graph *g = p->graph;
    if (p->s->word.length >= sizeof g->roles[0].name)
        return ct_scan_fail(p->s, start, "a dim's name of at most 7 bytes");
    if (g->roles_count == sizeof g->roles / sizeof *g->roles)
        return ct_scan_fail(p->s, start, "no more dims");
    ct_dim_role *role = &g->roles[g->roles_count];
    memcpy(role->name, p->s->word.text, p->s->word.length + 1);
    for (int i = 0; i < g->roles_count; i++)
        if (!strcmp(g->roles[i].name, role->name)) return ct_scan_fail(p->s, start, "a dim that is not declared yet");
    int which = 0;
    CT_TRY(ct_scan_name(p->s, CT_ROLES, role_name,
                        "a role: none, batch, sequence, heads, hidden, vocabulary, expert or model", &which));
    role->role = (ct_role)which;
    g->roles_count++;
    return CT_OK;
}

static ct_status read_provenance(parser *p, ct_node *node) {
    int64_t layer = -1, stage = 0;
    int phase = 0;
    CT_TRY(ct_scan_expect(p->s, "@"));
    CT_TRY(ct_scan_name(p->s, CT_PHASES, phase_name,
                        "a phase: forward, recompute, input-grad, weight-grad or optimizer", &phase));
    CT_TRY(ct_scan_word(p->s, "a module's path"));
    const ct_graph *g = p->graph;
    const char *last = g->nodes_count ? g->nodes[g->nodes_count - 1].from.module : NULL;
    const char *word = p->s->word.text;
    const char *module = last && !strcmp(last, word) ? last : ct_arena_strdup(&p->graph->arena, word);
    if (ct_scan_accept_word(p->s, "layer")) CT_TRY(ct_scan_integer(p->s, -1, INT32_MAX, "a layer's number", &layer));
    if (ct_scan_accept_word(p->s, "stage")) CT_TRY(ct_scan_integer(p->s, 0, INT32_MAX, "a stage's number", &stage));
    node->from = (ct_provenance){module, (ct_phase)phase, (int)layer, (int)stage};
    return CT_OK;
}

static ct_status read_attrs(parser *p, ct_node *node) {
    unsigned seen = 0;
    if (!ct_scan_accept(p->s, "{")) return CT_OK;
    do {
        const char *start = ct_scan_skip(p->s);
        CT_TRY(ct_scan_word(p->s, "an attribute's name"));
        int i = 0;
        while (i < CT_MAX_ATTRS && node->op->attrs[i] && strcmp(node->op->attrs[i], p->s->word.text)) i++;
        if (i == CT_MAX_ATTRS || !node->op->attrs[i] || seen >> i & 1)
            return ct_scan_fail(p->s, start, "an attribute that the op has, once");
        seen |= 1u << i;
        CT_TRY(ct_scan_expect(p->s, "="));
        CT_TRY(ct_scan_number(p->s, &node->attrs[i]));
    } while (ct_scan_accept(p->s, ","));
    return ct_scan_expect(p->s, "}");
}

static ct_status read_operands(parser *p, ct_node *node) {
    int *ids = NULL, count = 0, capacity = 0;
    ct_status status = ct_scan_expect(p->s, "(");
    while (!status && !ct_scan_accept(p->s, ")")) {
        CT_GROW(ids, count, capacity);
        if (count) status = ct_scan_expect(p->s, ",");
        ids[count] = -1;
        if (!status) status = read_use(p, &ids[count++]);
    }
    node->inputs = CT_ARENA_ARRAY(&p->graph->arena, int, count);
    if (count) memcpy(node->inputs, ids, sizeof(int) * (size_t)count);
    node->inputs_count = count;
    free(ids);
    return status;
}

// "%1, %2 = op(%0) {…} : types @ …", from the op's name on.
static ct_status read_node(parser *p, const char *start, ct_node *node) {
    ct_graph *g = p->graph;
    if (!node->op) return ct_scan_fail(p->s, start, "an op, or an input's kind");
    if (node->outputs_count != node->op->outputs) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "an op of %d outputs", node->outputs_count);
        return ct_scan_fail(p->s, start, wanted);
    }
    CT_TRY(read_operands(p, node));
    CT_TRY(read_attrs(p, node));
    CT_TRY(ct_scan_expect(p->s, ":"));
    for (int i = 0; i < node->outputs_count; i++) {
        if (i) CT_TRY(ct_scan_expect(p->s, ","));
        ct_type type;
        ct_layout layout;
        CT_TRY(read_type(p, &type));
        CT_TRY(read_layout(p, &type, &layout));
        g->values[node->outputs[i]] = (ct_value_info){.type = type, .node = g->nodes_count, .output = i, .layout = layout};
    }
    CT_TRY(read_provenance(p, node));
    CT_GROW(g->nodes, g->nodes_count, g->nodes_capacity);
    g->nodes[g->nodes_count++] = *node;
    return CT_OK;
}

static int find_kind(const char *word) {
    int kind = 0;
    while (kind < CT_INPUT_KINDS && strcmp(kind_name(kind), word)) kind++;
    return kind;
}

static ct_status read_input(parser *p, ct_input_kind kind, int id) {
    ct_graph *g = p->graph;
    CT_TRY(ct_scan_word(p->s, "the input's name"));
    const char *name = ct_arena_strdup(&g->arena, p->s->word.text);
    CT_TRY(ct_scan_expect(p->s, ":"));
    ct_type type;
    ct_layout layout;
    CT_TRY(read_type(p, &type));
    CT_TRY(read_layout(p, &type, &layout));
    g->values[id] = (ct_value_info){.type = type, .node = -1, .output = g->inputs_count, .layout = layout};
    CT_GROW(g->inputs, g->inputs_count, g->inputs_capacity);
    g->inputs[g->inputs_count++] = (ct_input){name, kind, id, -1};
    return CT_OK;
}

static ct_status read_values(parser *p) {
    ct_node node = {0};
    do {
        if (node.outputs_count == CT_MAX_OUTPUTS) return ct_scan_fail(p->s, p->s->at, "'='");
        CT_TRY(read_definition(p, &node.outputs[node.outputs_count++]));
    } while (ct_scan_accept(p->s, ","));
    CT_TRY(ct_scan_expect(p->s, "="));
    const char *start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "an op, or an input's kind"));
    int kind = find_kind(p->s->word.text);
    if (kind < CT_INPUT_KINDS && node.outputs_count == 1) return read_input(p, (ct_input_kind)kind, node.outputs[0]);
    node.op = p->lookup(p->s->word.text);
    return read_node(p, start, &node);
}

static ct_status read_update(parser *p) {
    ct_graph *g = p->graph;
    const char *start = ct_scan_skip(p->s);
    CT_TRY(ct_scan_word(p->s, "an input's name"));
    int i = 0;
    while (i < g->inputs_count && strcmp(g->inputs[(p->update_hint + i) % g->inputs_count].name, p->s->word.text))
        i++;
    if (i == g->inputs_count) return ct_scan_fail(p->s, start, "the name of an input");
    int input = (p->update_hint + i) % g->inputs_count;
    p->update_hint = input + 1;
    if (g->inputs[input].update >= 0) return ct_scan_fail(p->s, start, "an input that has no update yet");
    CT_TRY(ct_scan_expect(p->s, "="));
    return read_use(p, &g->inputs[input].update);
}

static ct_status read_output(parser *p) {
    ct_graph *g = p->graph;
    CT_TRY(ct_scan_word(p->s, "an output's name"));
    const char *name = ct_arena_strdup(&g->arena, p->s->word.text);
    CT_TRY(ct_scan_expect(p->s, "="));
    int id;
    CT_TRY(read_use(p, &id));
    CT_GROW(g->outputs, g->outputs_count, g->outputs_capacity);
    g->outputs[g->outputs_count++] = (ct_output){name, id};
    return CT_OK;
}

static ct_status read_line(parser *p) {
    ct_scan_skip(p->s);
    if (*p->s->at == '%') return read_values(p);
    const char *start = p->s->at;
    static const char wanted[] = "'%', axis, dim, update, output or '}'";
    CT_TRY(ct_scan_word(p->s, wanted));
    if (!strcmp(p->s->word.text, "axis")) return read_axis(p);
    if (!strcmp(p->s->word.text, "dim")) return read_role(p);
    if (!strcmp(p->s->word.text, "update")) return read_update(p);
    if (!strcmp(p->s->word.text, "output")) return read_output(p);
    return ct_scan_fail(p->s, start, wanted);
}

static ct_status read_program(parser *p) {
    if (!ct_scan_accept_word(p->s, "program")) return ct_scan_fail(p->s, p->s->at, "'program'");
    CT_TRY(ct_scan_word(p->s, "the program's name"));
    p->graph->name = ct_arena_strdup(&p->graph->arena, p->s->word.text);
    CT_TRY(ct_scan_expect(p->s, "{"));
    while (!ct_scan_accept(p->s, "}")) CT_TRY(read_line(p));
    ct_scan_skip(p->s);
    if (*p->s->at) return ct_scan_fail(p->s, p->s->at, "the end");
    for (int i = 0; i < p->graph->values_count; i++)
        if (p->graph->values[i].node == UNDEFINED && p->first_use[i])
            return ct_scan_fail(p->s, p->s->text + p->first_use[i] - 1, "a value that is defined somewhere");
    return CT_OK;
}

ct_status ct_graph_parse(ct_graph *graph, const char *text, const char *file, ct_op_lookup *lookup) {
    size_t length = strlen(text);
    CT_CHECK(length < INT32_MAX / 2, CT_UNSUPPORTED, "%s: a graph of %zu bytes, wanted less than 1 GiB", file, length);
    ct_graph_init(graph, "");
    ct_scan scan = {.file = file, .text = text, .at = text};
    parser p = {.graph = graph, .s = &scan, .lookup = lookup, .max_id = (int)length};
    ct_status status = read_program(&p);
    free(p.first_use);
    ct_string_deinit(&scan.word);
    if (status) ct_graph_deinit(graph);
    return status;
}
