// Layout inference: which index of the op's rule each axis cuts, and what that makes of the outputs. Views have no rule: their cuts follow
// a map of dims.
#include "graph/op.h"

#include <stdio.h>
#include <string.h>

// The axes that cut one dim, outermost first.
typedef struct {
    int count;
    uint8_t axes[CT_MAX_AXES];
} cut_list;

typedef struct {
    char letter[8];
    int fixed;
    cut_list cuts;
    int seen; // in an input
} rule_letter;

typedef struct {
    const ct_graph *graph;
    const ct_node *node;
    ct_rule rule;
    rule_letter letters[32];
    int count;
    int letter_of_axis[CT_MAX_AXES]; // -1: none
} inference;

static const ct_layout *layout_of(const inference *in, int i) { return &in->graph->values[in->node->inputs[i]].layout; }
static const char *axis_name(const inference *in, int axis) { return in->graph->mesh.axes[axis].name; }

static cut_list cuts_of(const ct_layout *layout, int dim) {
    cut_list list = {0};
    for (int i = 0; i < layout->count; i++)
        if (layout->cuts[i].kind == CT_CUT_SHARD && layout->cuts[i].dim == dim) list.axes[list.count++] = layout->cuts[i].axis;
    return list;
}

static int lists_equal(const cut_list *a, const cut_list *b) {
    return a->count == b->count && !memcmp(a->axes, b->axes, (size_t)a->count);
}

// The letter of an operand's dim; "*" gives "*0", "*1", …
static int find_letter(inference *in, const ct_rule_operand *operand, int dim) {
    char name[8];
    int star = operand->count == 1 && operand->index[0].letter[0] == '*', fixed = operand->index[star ? 0 : dim].fixed;
    if (star) snprintf(name, sizeof name, "*%d", dim % 10);
    else memcpy(name, operand->index[dim].letter, sizeof name);
    for (int i = 0; i < in->count; i++)
        if (!strcmp(in->letters[i].letter, name)) {
            in->letters[i].fixed |= fixed;
            return i;
        }
    CT_ASSERT(in->count < 32, "too many letters");
    rule_letter *l = &in->letters[in->count];
    *l = (rule_letter){.fixed = fixed};
    memcpy(l->letter, name, sizeof name);
    return in->count++;
}

static int dims_of(const ct_graph *g, int value) { return g->values[value].type.dims_count; }

static ct_status read_input(inference *in, int i) {
    const ct_layout *layout = layout_of(in, i);
    for (int d = 0; d < dims_of(in->graph, in->node->inputs[i]); d++) {
        rule_letter *l = &in->letters[find_letter(in, &in->rule.in[i], d)];
        cut_list cuts = cuts_of(layout, d);
        CT_CHECK(!l->seen || lists_equal(&l->cuts, &cuts), CT_INVALID, "operand %d is not cut along %s as the others are", i, l->letter);
        l->cuts = cuts;
        l->seen = 1;
    }
    return CT_OK;
}

// An index that only outputs have is cut as the output says: nothing else can.
static void read_output(inference *in, int o) {
    const ct_layout *layout = &in->graph->values[in->node->outputs[o]].layout;
    for (int d = 0; d < dims_of(in->graph, in->node->outputs[o]); d++) {
        rule_letter *l = &in->letters[find_letter(in, &in->rule.out[o], d)];
        if (!l->seen) l->cuts = cuts_of(layout, d);
    }
}

static ct_status assign_axes(inference *in) {
    for (int a = 0; a < CT_MAX_AXES; a++) in->letter_of_axis[a] = -1;
    for (int i = 0; i < in->count; i++) {
        const rule_letter *l = &in->letters[i];
        CT_CHECK(!l->cuts.count || !l->fixed || in->node->op->flags & CT_OP_BLOCKS, CT_INVALID, "%s may not be cut, axis %s does", l->letter, axis_name(in, l->cuts.axes[0]));
        for (int k = 0; k < l->cuts.count; k++) {
            int axis = l->cuts.axes[k], *of = &in->letter_of_axis[axis];
            CT_CHECK(*of < 0, CT_INVALID, "axis %s cuts both %s and %s", axis_name(in, axis), in->letters[*of].letter, l->letter);
            *of = i;
        }
    }
    return CT_OK;
}

static int has_letter(inference *in, const ct_rule_operand *operand, int dims, int letter) {
    for (int d = 0; d < dims; d++)
        if (find_letter(in, operand, d) == letter) return 1;
    return 0;
}

// The operand that output o is computed in, of an op that adds to it; -1: none.
static int addend_in_place(const ct_op *op, int output) {
    return (op->flags & CT_OP_ADDITIVE) && op->must_alias[output] ? op->must_alias[output] - 1 : -1;
}

static ct_status output_cuts(inference *in, int o, ct_layout *out) {
    const ct_op *op = in->node->op;
    int dims = dims_of(in->graph, in->node->outputs[o]);
    for (int d = 0; d < dims; d++) {
        const cut_list *cuts = &in->letters[find_letter(in, &in->rule.out[o], d)].cuts;
        for (int k = 0; k < cuts->count; k++) ct_layout_add(out, cuts->axes[k], CT_CUT_SHARD, d);
    }
    for (int a = 0; a < in->graph->mesh.axes_count; a++) {
        int letter = in->letter_of_axis[a];
        if (letter < 0 || has_letter(in, &in->rule.out[o], dims, letter) || (op->flags & CT_OP_WHOLE0 << o)) continue;
        CT_CHECK(op->flags & (CT_OP_SUM | CT_OP_MAX), CT_INVALID, "axis %s cuts %s, which output %d lacks, and %s is no sum over it",
                 axis_name(in, a), in->letters[letter].letter, o, op->name);
        ct_layout_add(out, a, op->flags & CT_OP_MAX ? CT_CUT_MAX : CT_CUT_SUM, 0);
    }
    return CT_OK;
}

// What input i's partial sum on `axis` makes of the op: nothing is left to say where it is the operand in place.
static ct_status pass_partial(inference *in, int i, int axis, ct_layout *out_layouts) {
    const ct_op *op = in->node->op;
    for (int o = 0; o < op->outputs; o++)
        if (addend_in_place(op, o) == i) return CT_OK; // compared with the output below
    int in_place = addend_in_place(op, 0), additive = (op->flags & CT_OP_ADDITIVE) && in_place < 0;
    int linear = i < CT_LINEAR_INPUTS && op->flags & CT_OP_LINEAR0 << i;
    CT_CHECK(additive || linear, CT_INVALID, "operand %d is a partial sum over %s, and %s is not linear in it", i,
             axis_name(in, axis), op->name);
    CT_CHECK(in->letter_of_axis[axis] < 0, CT_INVALID, "operand %d is a partial sum over %s, which cuts %s of another", i,
             axis_name(in, axis), in->letters[in->letter_of_axis[axis]].letter);
    for (int j = 0; j < in->node->inputs_count; j++) {
        int partial = (ct_layout_axes(layout_of(in, j), CT_CUT_SUM) >> axis & 1) != 0;
        CT_CHECK(j == i || j == in_place || partial == additive, CT_INVALID, "operand %d is a partial sum over %s, operand %d is %s", i, axis_name(in, axis), j,
                 partial ? "one too" : "not");
    }
    for (int o = 0; o < op->outputs; o++)
        if (!ct_layout_find(&out_layouts[o], axis)) ct_layout_add(&out_layouts[o], axis, CT_CUT_SUM, 0);
    return CT_OK;
}

static ct_dtype partial_dtype(const ct_graph *g, int value) {
    ct_dtype dtype = g->values[value].type.dtype;
    return dtype == CT_BF16 ? CT_F32 : dtype;
}

// An operand in place lies as the output does.
static ct_status check_in_place(const inference *in, const ct_layout *out_layouts) {
    for (int o = 0; o < in->node->op->outputs; o++) {
        int i = in->node->op->must_alias[o] - 1;
        CT_CHECK(i < 0 || ct_layout_equal(layout_of(in, i), &out_layouts[o]), CT_INVALID, "operand %d is changed in place, and output %d lies otherwise",
                 i, o);
    }
    return CT_OK;
}

static ct_status infer_rule(inference *in, ct_layout *out) {
    const ct_node *node = in->node;
    CT_TRY(ct_rule_parse(node->op->rule, &in->rule));
    for (int i = 0; i < node->inputs_count; i++) CT_TRY(read_input(in, i));
    for (int o = 0; o < node->op->outputs; o++) read_output(in, o);
    CT_TRY(assign_axes(in));
    for (int o = 0; o < node->op->outputs; o++) CT_TRY(output_cuts(in, o, &out[o]));
    for (int i = 0; i < node->inputs_count; i++) {
        const ct_layout *layout = layout_of(in, i);
        CT_CHECK(!ct_layout_axes(layout, CT_CUT_MAX), CT_INVALID, "operand %d is a partial maximum", i);
        for (int k = 0; k < layout->count; k++)
            if (layout->cuts[k].kind == CT_CUT_SUM) CT_TRY(pass_partial(in, i, layout->cuts[k].axis, out));
    }
    for (int o = 0; o < node->op->outputs; o++) out[o].partial = (uint8_t)partial_dtype(in->graph, node->outputs[o]);
    return check_in_place(in, out);
}

// ---- views ----
static ct_status map_cut(const inference *in, const ct_cut *cut, ct_layout *out) {
    const ct_graph *g = in->graph;
    const ct_node *node = in->node;
    int to = 0;
    const ct_type *from = &g->values[node->inputs[0]].type, *type = &g->values[node->outputs[0]].type;
    CT_CHECK(node->op->map_dim && node->op->map_dim(g, node, cut->dim, &to), CT_INVALID, "a cut of %s by axis %s can't pass",
             from->dims[cut->dim].name, axis_name(in, cut->axis));
    int64_t parts = 1, before = from->dims[cut->dim].extent, after = type->dims[to].extent;
    for (int i = 0; i < layout_of(in, 0)->count; i++)
        if (layout_of(in, 0)->cuts[i].kind == CT_CUT_SHARD && layout_of(in, 0)->cuts[i].dim == cut->dim)
            parts *= g->mesh.axes[layout_of(in, 0)->cuts[i].axis].size;
    CT_CHECK(before == after || (before % parts == 0 && after % parts == 0), CT_INVALID,
             "%s=%lld and %s=%lld can't both be cut in %lld by axis %s", from->dims[cut->dim].name, (long long)before, type->dims[to].name,
             (long long)after, (long long)parts, axis_name(in, cut->axis));
    ct_layout_add(out, cut->axis, CT_CUT_SHARD, to);
    return CT_OK;
}

static ct_status infer_view(inference *in, ct_layout *out) {
    const ct_node *node = in->node;
    const ct_layout *first = layout_of(in, 0);
    for (int i = 1; i < node->inputs_count; i++)
        CT_CHECK(ct_layout_equal(first, layout_of(in, i)), CT_INVALID, "operands 0 and %d are not cut alike", i);
    for (int i = 0; i < first->count; i++) {
        const ct_cut *cut = &first->cuts[i];
        if (cut->kind == CT_CUT_SHARD) CT_TRY(map_cut(in, cut, out));
        else ct_layout_add(out, cut->axis, (ct_cut_kind)cut->kind, 0);
    }
    out->partial = first->partial;
    return CT_OK;
}

ct_status ct_op_infer_layouts(const ct_graph *graph, const ct_node *node, ct_layout *out_layouts) {
    inference in = {.graph = graph, .node = node};
    memset(out_layouts, 0, sizeof *out_layouts * (size_t)node->op->outputs);
    return node->op->flags & CT_OP_VIEW ? infer_view(&in, out_layouts) : infer_rule(&in, out_layouts);
}
