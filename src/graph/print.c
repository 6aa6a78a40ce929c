// The graph as text, one line a thing: what the parser reads back, tests compare and people read. Value ids are the graph's own.
//
//     program micro {
//       axis tp 2
//       dim B batch
//       %0 = feed "tokens" : i32[B=2, T=64]
//       %1 = parameter "w" : f32[V=512, D=48] {tp: S(V)}
//       %3, %4 = rmsnorm(%2, %1) {eps=1e-05} : f32[B=2, T=64, D=48], f32[B=2, T=64] @ forward layers.0.ffn_norm layer 0
//       update "norm" = %9
//       output "loss" = %12
//     }
#include "graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_bare(const char *text) {
    for (const char *p = text; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/", *p)) return 0;
    return *text != 0;
}

// A word: bare where it is one, else quoted.
static void add_word(ct_string *out, const char *text) {
    if (is_bare(text)) ct_string_add(out, "%s", text);
    else ct_string_add_json(out, text);
}

// The shortest decimal that reads back as the same double.
static void add_number(ct_string *out, double x) {
    char text[40];
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    ct_string_add(out, "%s", x != x ? "nan" : text);
}

void ct_type_print(const ct_type *type, ct_string *out) {
    ct_string_add(out, "%s[", ct_dtype_name(type->dtype));
    for (int i = 0; i < type->dims_count; i++) {
        if (i) ct_string_add(out, ", ");
        add_word(out, type->dims[i].name);
        ct_string_add(out, "=%" PRId64, type->dims[i].extent);
    }
    ct_string_add(out, "]");
}

void ct_layout_print(const ct_mesh *mesh, const ct_layout *layout, const ct_type *type, ct_string *out) {
    for (int i = 0; i < layout->count; i++) {
        const ct_cut *cut = &layout->cuts[i];
        ct_string_add(out, "%s%s: ", i ? ", " : " {", mesh->axes[cut->axis].name);
        if (cut->kind == CT_CUT_MAX) ct_string_add(out, "Pmax");
        else if (cut->kind == CT_CUT_SUM) ct_string_add(out, "P(%s)", ct_dtype_name((ct_dtype)layout->partial));
        else {
            ct_string_add(out, "S(");
            add_word(out, type->dims[cut->dim].name);
            ct_string_add(out, ")");
        }
    }
    if (layout->count) ct_string_add(out, "}");
}

// Type and layout of a value.
static void add_value(ct_string *out, const ct_graph *graph, int value) {
    const ct_value_info *v = &graph->values[value];
    ct_type_print(&v->type, out);
    ct_layout_print(&graph->mesh, &v->layout, &v->type, out);
}

static void add_attrs(ct_string *out, const ct_node *node) {
    for (int i = 0; i < CT_MAX_ATTRS && node->op->attrs[i]; i++) {
        ct_string_add(out, "%s%s=", i ? ", " : " {", node->op->attrs[i]);
        add_number(out, node->attrs[i]);
    }
    if (node->op->attrs[0]) ct_string_add(out, "}");
}

static void add_provenance(ct_string *out, const ct_provenance *from) {
    ct_string_add(out, " @ %s ", ct_phase_name(from->phase));
    add_word(out, from->module);
    if (from->layer != -1) ct_string_add(out, " layer %d", from->layer);
    if (from->stage) ct_string_add(out, " stage %d", from->stage);
}

static void add_node(ct_string *out, const ct_graph *graph, const ct_node *node) {
    ct_string_add(out, "  ");
    for (int i = 0; i < node->outputs_count; i++) ct_string_add(out, "%s%%%d", i ? ", " : "", node->outputs[i]);
    ct_string_add(out, " = %s(", node->op->name);
    for (int i = 0; i < node->inputs_count; i++) ct_string_add(out, "%s%%%d", i ? ", " : "", node->inputs[i]);
    ct_string_add(out, ")");
    add_attrs(out, node);
    ct_string_add(out, " : ");
    for (int i = 0; i < node->outputs_count; i++) {
        if (i) ct_string_add(out, ", ");
        add_value(out, graph, node->outputs[i]);
    }
    add_provenance(out, &node->from);
    ct_string_add(out, "\n");
}

static void add_named(ct_string *out, const char *what, const char *name, int value) {
    ct_string_add(out, "  %s ", what);
    ct_string_add_json(out, name);
    ct_string_add(out, " = %%%d\n", value);
}

void ct_graph_print(const ct_graph *graph, ct_string *out) {
    ct_string_add(out, "program ");
    add_word(out, graph->name);
    ct_string_add(out, " {\n");
    for (int i = 0; i < graph->mesh.axes_count; i++)
        ct_string_add(out, "  axis %s %d\n", graph->mesh.axes[i].name, graph->mesh.axes[i].size);
    for (int i = 0; i < graph->roles_count; i++) {
        ct_string_add(out, "  dim ");
        add_word(out, graph->roles[i].name);
        ct_string_add(out, " %s\n", ct_role_name(graph->roles[i].role));
    }
    for (int i = 0; i < graph->inputs_count; i++) {
        const ct_input *input = &graph->inputs[i];
        ct_string_add(out, "  %%%d = %s ", input->value, ct_input_kind_name(input->kind));
        ct_string_add_json(out, input->name);
        ct_string_add(out, " : ");
        add_value(out, graph, input->value);
        ct_string_add(out, "\n");
    }
    for (int i = 0; i < graph->nodes_count; i++) add_node(out, graph, &graph->nodes[i]);
    for (int i = 0; i < graph->inputs_count; i++)
        if (graph->inputs[i].update >= 0) add_named(out, "update", graph->inputs[i].name, graph->inputs[i].update);
    for (int i = 0; i < graph->outputs_count; i++)
        add_named(out, "output", graph->outputs[i].name, graph->outputs[i].value);
    ct_string_add(out, "}\n");
}

// ---- an op, as `ctitan graph --ops` shows the table ----

static void add_flag_list(ct_string *out, const ct_op *op, unsigned first, int operands, const char *what) {
    int any = 0;
    for (int i = 0; i < operands; i++)
        if (op->flags & first << i) ct_string_add(out, any++ ? " %d" : what, i);
}

static void add_aliases(ct_string *out, const ct_op *op) {
    for (int i = 0; i < op->outputs; i++) {
        if (op->must_alias[i]) ct_string_add(out, "; output %d is input %d's memory", i, op->must_alias[i] - 1);
        for (int j = 0; j < CT_MAX_INPUTS; j++)
            if (op->may_alias[i] >> j & 1) ct_string_add(out, "; output %d may be input %d's memory", i, j);
    }
}

void ct_op_print(const ct_op *op, ct_string *out) {
    ct_string_add(out, "%s", op->name);
    for (int i = 0; i < CT_MAX_ATTRS && op->attrs[i]; i++)
        ct_string_add(out, "%s%s%s", i ? ", " : " {", op->attrs[i], i + 1 < CT_MAX_ATTRS && op->attrs[i + 1] ? "" : "}");
    ct_string_add(out, "\n  %s\n  rule: %s\n  dtypes: %s", op->formula, op->check ? "a view, by its attributes" : op->rule,
                  op->dtypes);
    if (op->flags & CT_OP_SUM) ct_string_add(out, "; a sum over what its outputs lack");
    if (op->flags & CT_OP_MAX) ct_string_add(out, "; a maximum over what its output lacks");
    if (op->flags & CT_OP_MACRO) ct_string_add(out, "; expanded by a pass");
    add_flag_list(out, op, CT_OP_LINEAR0, 8, "; linear in operand %d");
    add_flag_list(out, op, CT_OP_LOWP0, CT_MAX_INPUTS, "; low precision in operand %d");
    add_aliases(out, op);
    ct_string_add(out, "%s\n", op->grad ? "; differentiable" : "");
}
