// Two sweeps: the first decides for each node how its operands lie and what follows for its outputs, the second writes the program with the moves
// that this takes. States lie as the node has them that changes them in place, which may stand behind a reader: hence two.
#include "lay.h"
#include "draw.h"
#include "graph/local.h"
#include "graph/rewrite.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const lay_axes[LAY_AXES] = {"dp_replicate", "dp_shard", "cp", "tp"};

// ---- the indices of a node that may be cut ----
typedef struct {
    const char *letter;
    int star; // the dim, where the letter is "*" or the op a view; else -1
} index_of;

static int is_star(const ct_rule_operand *operand) { return operand->count == 1 && operand->index[0].letter[0] == '*'; }

static void add_index(index_of *list, int *count, const char *letter, int star) {
    for (int i = 0; i < *count; i++)
        if (!strcmp(list[i].letter, letter) && list[i].star == star) return;
    if (*count < LAY_LETTERS) list[(*count)++] = (index_of){letter, star};
}

// Is the letter fixed anywhere in the rule?
static int is_fixed(const ct_rule *rule, const char *letter) {
    for (int i = 0; i < rule->inputs + rule->outputs; i++) {
        const ct_rule_operand *operand = i < rule->inputs ? &rule->in[i] : &rule->out[i - rule->inputs];
        for (int d = 0; d < operand->count; d++)
            if (!strcmp(operand->index[d].letter, letter) && operand->index[d].fixed) return 1;
    }
    return 0;
}

// Of a view: a cut of the dim that is sliced or joined would mean each rank's own part, which only the passes that make such views mean.
static int view_indices(const ct_op *op, const double *attrs, int dims, index_of *out) {
    int count = 0, dim = (int)attrs[0], merges = !strcmp(op->name, "merge"), splits = !strcmp(op->name, "split");
    for (int d = 0; d < dims; d++) {
        if (merges && d > dim && d < dim + (int)attrs[1]) continue;
        if (d != dim) add_index(out, &count, "other", d);
        else if (merges || splits) add_index(out, &count, "outer", d);
    }
    return count;
}

static int rule_indices(const ct_rule *rule, int star_dims, index_of *out) {
    int count = 0;
    for (int i = 0; i < rule->inputs + rule->outputs; i++) {
        const ct_rule_operand *operand = i < rule->inputs ? &rule->in[i] : &rule->out[i - rule->inputs];
        for (int d = 0; is_star(operand) && d < star_dims; d++) add_index(out, &count, "*", d);
        for (int d = 0; !is_star(operand) && d < operand->count; d++)
            if (!is_fixed(rule, operand->index[d].letter)) add_index(out, &count, operand->index[d].letter, -1);
    }
    return count;
}

// Where the index stands in an operand of `dims` dims, -1: nowhere.
static int dim_of(const ct_rule_operand *operand, const index_of *index, int dims) {
    if (is_star(operand)) return index->star >= 0 && index->star < dims ? index->star : -1;
    for (int d = 0; d < operand->count; d++)
        if (index->star < 0 && !strcmp(operand->index[d].letter, index->letter)) return d;
    return -1;
}

// ---- the first sweep ----
typedef struct {
    const ct_graph *g;
    ct_mesh mesh;
    ct_layout *at;       // by value, where it is made
    unsigned char *known; // by value: not 0 where it is
    ct_layout **in;      // by node and operand
    unsigned char *into; // by node: an accumulation that takes the parts of other ranks as well
} laying;

// The node alone, its operands all distinct.
typedef struct {
    ct_graph graph;
    int node;
    ct_rule rule;
    index_of indices[LAY_LETTERS];
    int count;
} alone;

static int dims_of(const ct_graph *g, int value) { return g->values[value].type.dims_count; }

static ct_status set_apart(const laying *l, int n, alone *out) {
    const ct_graph *g = l->g;
    const ct_node *node = &g->nodes[n];
    ct_graph_init(&out->graph, "alone");
    out->graph.mesh = l->mesh;
    for (int i = 0; i < g->roles_count; i++) ct_graph_role(&out->graph, g->roles[i].name, g->roles[i].role);
    ct_value *inputs = CT_ARENA_ARRAY(&out->graph.arena, ct_value, node->inputs_count + 1);
    for (int i = 0; i < node->inputs_count; i++)
        inputs[i] = ct_build_input(&out->graph, CT_FEED, ct_arena_format(&out->graph.arena, "i%d", i), g->values[node->inputs[i]].type);
    ct_type declared[CT_MAX_OUTPUTS];
    for (int o = 0; o < node->outputs_count; o++) declared[o] = g->values[node->outputs[o]].type;
    out->node = ct_build_node(&out->graph, node->op, node->inputs_count, inputs, node->attrs, declared);
    CT_TRY(ct_graph_status(&out->graph));
    int star_dims = 0;
    for (int i = 0; i < node->inputs_count; i++)
        if (dims_of(g, node->inputs[i]) > star_dims) star_dims = dims_of(g, node->inputs[i]);
    if (node->op->flags & CT_OP_VIEW) {
        out->count = view_indices(node->op, node->attrs, star_dims, out->indices);
        return CT_OK;
    }
    CT_TRY(ct_rule_parse(node->op->rule, &out->rule));
    out->count = rule_indices(&out->rule, star_dims, out->indices);
    return CT_OK;
}

static ct_layout *layout_at(const alone *a, int i) { return &a->graph.values[a->graph.nodes[a->node].inputs[i]].layout; }

static uint8_t partial_of(const ct_type *type) { return (uint8_t)(type->dtype == CT_BF16 ? CT_F32 : type->dtype); }

// How operand i of node n lies now, as far as it is known; a state's layout is not.
static const ct_cut *cut_now(const laying *l, int n, int i, int axis) {
    int value = l->g->nodes[n].inputs[i];
    return l->known[value] ? ct_layout_find(&l->at[value], axis) : NULL;
}

static int keep_partial(const laying *l, int n, const alone *a, int axis) {
    int any = 0;
    for (int i = 0; i < l->g->nodes[n].inputs_count; i++) {
        const ct_cut *cut = cut_now(l, n, i, axis);
        if (!cut || cut->kind == CT_CUT_SHARD) continue;
        ct_layout_add(layout_at(a, i), axis, (ct_cut_kind)cut->kind, 0);
        any = 1;
    }
    return any;
}

static void cut_index(const laying *l, int n, const alone *a, int axis, const index_of *index) {
    const ct_node *node = &l->g->nodes[n], *copy = &a->graph.nodes[a->node];
    int view = node->op->flags & CT_OP_VIEW;
    for (int i = 0; i < node->inputs_count; i++) {
        int d = view ? index->star : dim_of(&a->rule.in[i], index, dims_of(l->g, node->inputs[i]));
        if (d >= 0) ct_layout_add(layout_at(a, i), axis, CT_CUT_SHARD, d);
    }
    for (int o = 0; !view && o < node->outputs_count; o++) { // one that only outputs have is cut there
        int d = dim_of(&a->rule.out[o], index, dims_of(l->g, node->outputs[o]));
        if (d >= 0) ct_layout_add(&a->graph.values[copy->outputs[o]].layout, axis, CT_CUT_SHARD, d);
    }
}

static void draw_operands(const laying *l, int n, const alone *a) {
    const ct_node *node = &l->g->nodes[n], *copy = &a->graph.nodes[a->node];
    for (int i = 0; i < node->inputs_count; i++) *layout_at(a, i) = (ct_layout){.partial = partial_of(&l->g->values[node->inputs[i]].type)};
    for (int o = 0; o < node->outputs_count; o++) a->graph.values[copy->outputs[o]].layout = (ct_layout){0};
    int first = draw_below(2); // axes in either order: cuts of one dim nest
    for (int k = 0; k < l->mesh.axes_count; k++) {
        int axis = first ? l->mesh.axes_count - 1 - k : k;
        if (draw_below(2) && keep_partial(l, n, a, axis)) continue;
        if (a->count && draw_below(8)) cut_index(l, n, a, axis, &a->indices[draw_below(a->count)]);
    }
}

static int is_state(const ct_graph *g, int value) { return g->values[value].node < 0; }

// May the operand be moved to lie so? A move makes no sums.
static int can_come_to(const laying *l, int n, int i, const ct_layout *target) {
    for (int k = 0; k < target->count; k++) {
        const ct_cut *cut = &target->cuts[k], *now = cut_now(l, n, i, cut->axis);
        if (cut->kind != CT_CUT_SHARD && (!now || now->kind != cut->kind)) return 0;
    }
    return 1;
}

static int changes(const ct_node *node, int i) {
    for (int o = 0; o < node->outputs_count; o++)
        if (node->op->must_alias[o] == i + 1 && !(node->op->flags & CT_OP_VIEW)) return 1;
    return 0;
}

// Operands in place lie as their outputs do, which is found by asking twice. Returns 1 where all that was drawn is legal.
static int is_legal(const laying *l, int n, const alone *a, ct_layout *out) {
    const ct_node *node = &l->g->nodes[n], *copy = &a->graph.nodes[a->node];
    int in_place = 0;
    for (int i = 0; i < node->inputs_count; i++) in_place |= changes(node, i);
    ct_status status = ct_op_infer_layouts(&a->graph, copy, out);
    for (int o = 0; in_place && o < node->outputs_count; o++) {
        if (!node->op->must_alias[o]) continue;
        out[o].partial = partial_of(&l->g->values[node->outputs[o]].type);
        *layout_at(a, node->op->must_alias[o] - 1) = out[o];
    }
    if (in_place) status = ct_op_infer_layouts(&a->graph, copy, out);
    if (status) return 0;
    for (int i = 0; i < node->inputs_count; i++) {
        int fits = !is_state(l->g, node->inputs[i]) ? can_come_to(l, n, i, layout_at(a, i))
                                                    : changes(node, i) || !ct_layout_axes(layout_at(a, i), CT_CUT_SUM);
        if (!fits) return 0;
    }
    return 1;
}

// acc + part, where the part is a sum over ranks: at times the accumulator takes it from them, each rank its piece.
static int draw_accumulation(laying *l, int n, ct_layout *out) {
    const ct_node *node = &l->g->nodes[n];
    if (strcmp(node->op->name, "accumulate") || !is_state(l->g, node->inputs[0]) || !l->known[node->inputs[1]] || draw_below(2)) return 0;
    const ct_layout *part = &l->at[node->inputs[1]];
    unsigned sums = ct_layout_axes(part, CT_CUT_SUM);
    if (!sums) return 0;
    *out = *part;
    for (int a = 0; a < l->mesh.axes_count; a++) {
        if (!(sums >> a & 1)) continue;
        ct_layout_remove(out, a);
        if (draw_below(4)) ct_layout_add(out, a, CT_CUT_SHARD, draw_below(dims_of(l->g, node->outputs[0])));
    }
    l->in[n][0] = *out;
    l->in[n][1] = *part;
    l->into[n] = 1;
    return 1;
}

static ct_status decide(laying *l, int n) {
    const ct_node *node = &l->g->nodes[n];
    ct_layout out[CT_MAX_OUTPUTS];
    if (!draw_accumulation(l, n, out)) {
        alone a;
        ct_status status = set_apart(l, n, &a);
        int tries = 0;
        for (; !status && tries < 40; tries++) {
            draw_operands(l, n, &a);
            if (is_legal(l, n, &a, out)) break;
        }
        for (int i = 0; !status && i < node->inputs_count; i++) l->in[n][i] = tries < 40 ? *layout_at(&a, i) : (ct_layout){0};
        ct_graph_deinit(&a.graph);
        if (status) return status;
        if (tries == 40) memset(out, 0, sizeof out); // all whole
    }
    for (int o = 0; o < node->outputs_count; o++) {
        l->at[node->outputs[o]] = out[o];
        l->known[node->outputs[o]] = 1;
        int in_place = node->op->flags & CT_OP_VIEW ? 0 : node->op->must_alias[o];
        if (!in_place || !is_state(l->g, node->inputs[in_place - 1])) continue;
        l->at[node->inputs[in_place - 1]] = out[o];
    }
    return CT_OK;
}

static void lay_inputs(laying *l) {
    for (int i = 0; i < l->g->inputs_count; i++) {
        const ct_input *in = &l->g->inputs[i];
        if (in->update >= 0) continue; // decided
        ct_layout layout = {.partial = partial_of(&l->g->values[in->value].type)};
        int dims = dims_of(l->g, in->value);
        for (int a = 0; a < l->mesh.axes_count; a++)
            if (dims && draw_below(3)) ct_layout_add(&layout, a, CT_CUT_SHARD, draw_below(dims));
        l->at[in->value] = layout;
    }
}

// ---- the second sweep ----
static const char *name_of(const ct_layout *from, const ct_layout *to, unsigned axes) {
    int a = 0;
    while (!(axes >> a & 1)) a++;
    const ct_cut *x = ct_layout_find(from, a), *y = ct_layout_find(to, a);
    if (axes & (axes - 1) || (x && y && x->kind == y->kind && x->dim == y->dim)) return "reshard";
    if (!x) return "local_slice";
    if (x->kind != CT_CUT_SHARD) return y ? "reduce_scatter" : "all_reduce";
    return y ? "all_to_all" : "all_gather";
}

static ct_value move_once(ct_graph *to, ct_value x, const ct_layout *layout, unsigned axes) {
    const char *name = name_of(&to->values[x.id].layout, layout, axes);
    ct_value y = ct_node_output(to, ct_build_node(to, ct_op_find(name), 1, &x, NULL, NULL), 0);
    if (y.id >= 0) to->values[y.id].layout = *layout;
    return y;
}

// `from` with these axes as `to` has them, in its order.
static ct_layout with_axes(const ct_layout *from, const ct_layout *to, unsigned axes) {
    ct_layout layout = *from;
    for (int a = 0; a < CT_MAX_AXES; a++)
        if (axes >> a & 1) ct_layout_remove(&layout, a);
    for (int i = 0; i < to->count; i++)
        if (axes >> to->cuts[i].axis & 1) ct_layout_add(&layout, to->cuts[i].axis, (ct_cut_kind)to->cuts[i].kind, to->cuts[i].dim);
    return layout;
}

static int differs(const ct_layout *from, const ct_layout *to, int axis) {
    const ct_cut *x = ct_layout_find(from, axis), *y = ct_layout_find(to, axis);
    return !x != !y || (x && (x->kind != y->kind || x->dim != y->dim));
}

// Sums and maxima first, each kind by itself; then cuts, axis by axis or all at once.
static ct_value move_to(ct_graph *to, ct_value x, const ct_layout *target) {
    for (int kind = CT_CUT_SUM; kind <= CT_CUT_MAX && x.id >= 0; kind++) {
        unsigned axes = ct_layout_axes(&to->values[x.id].layout, (ct_cut_kind)kind) & ~ct_layout_axes(target, (ct_cut_kind)kind);
        for (int a = 0; a < to->mesh.axes_count && axes && x.id >= 0; a++) {
            unsigned now = draw_below(2) ? axes & 1u << a : axes;
            if (!now) continue;
            ct_layout next = with_axes(&to->values[x.id].layout, target, now);
            x = move_once(to, x, &next, now);
            axes &= ~now;
        }
        if (axes && x.id >= 0) {
            ct_layout next = with_axes(&to->values[x.id].layout, target, axes);
            x = move_once(to, x, &next, axes);
        }
    }
    int one_by_one = draw_below(2), first = draw_below(2);
    for (int k = 0; one_by_one && k < to->mesh.axes_count && x.id >= 0; k++) {
        int a = first ? to->mesh.axes_count - 1 - k : k;
        if (!differs(&to->values[x.id].layout, target, a)) continue;
        ct_layout next = with_axes(&to->values[x.id].layout, target, 1u << a);
        x = move_once(to, x, &next, 1u << a);
    }
    if (x.id < 0 || ct_layout_equal(&to->values[x.id].layout, target)) return x;
    unsigned axes = 0;
    for (int a = 0; a < to->mesh.axes_count; a++)
        if (differs(&to->values[x.id].layout, target, a)) axes |= 1u << a;
    return move_once(to, x, target, axes ? axes : 3); // none: cuts of one dim nest otherwise
}

static void write_node(const laying *l, ct_rewrite *r, int n) {
    const ct_node *node = &l->g->nodes[n];
    ct_graph *to = r->to;
    ct_rewrite_at(r, node->from);
    ct_value *inputs = CT_ARENA_ARRAY(&to->arena, ct_value, node->inputs_count + 1);
    for (int i = 0; i < node->inputs_count; i++) {
        ct_value x = ct_rewrite_value(r, node->inputs[i]);
        inputs[i] = ct_layout_equal(&to->values[x.id].layout, &l->in[n][i]) ? x : move_to(to, x, &l->in[n][i]);
        if (inputs[i].id < 0) return;
    }
    ct_type declared[CT_MAX_OUTPUTS];
    for (int o = 0; o < node->outputs_count; o++) declared[o] = l->g->values[node->outputs[o]].type;
    const ct_op *op = l->into[n] ? ct_op_find("reduce_accumulate") : node->op;
    int index = ct_build_node(to, op, node->inputs_count, inputs, node->attrs, declared);
    for (int o = 0; index >= 0 && o < node->outputs_count; o++) {
        int value = to->nodes[index].outputs[o];
        to->values[value].layout = l->at[node->outputs[o]];
        r->map[node->outputs[o]] = value;
    }
}

ct_status lay_out(const ct_graph *g, const ct_mesh *mesh, ct_graph *out) {
    laying l = {.g = g, .mesh = *mesh};
    ct_arena arena = {0};
    l.at = CT_ARENA_ARRAY(&arena, ct_layout, g->values_count + 1);
    l.known = CT_ARENA_ARRAY(&arena, unsigned char, g->values_count + 1);
    l.in = CT_ARENA_ARRAY(&arena, ct_layout *, g->nodes_count + 1);
    l.into = CT_ARENA_ARRAY(&arena, unsigned char, g->nodes_count + 1);
    ct_status status = CT_OK;
    for (int n = 0; n < g->nodes_count && !status; n++) {
        l.in[n] = CT_ARENA_ARRAY(&arena, ct_layout, g->nodes[n].inputs_count + 1);
        status = decide(&l, n);
    }
    lay_inputs(&l);
    ct_rewrite r;
    ct_rewrite_begin(&r, g, out, 0);
    out->mesh = *mesh;
    for (int i = 0; i < g->inputs_count; i++) {
        ct_value copy = ct_rewrite_input(&r, i);
        if (copy.id >= 0) out->values[copy.id].layout = l.at[g->inputs[i].value];
    }
    for (int n = 0; n < g->nodes_count && !status && !ct_graph_status(out); n++) write_node(&l, &r, n);
    if (status || ct_graph_status(out)) ct_rewrite_abandon(&r);
    else status = ct_rewrite_end(&r);
    if (!status) status = ct_graph_status(out);
    ct_arena_deinit(&arena);
    return status;
}

// ---- what was hit ----
static int axis_number(const ct_mesh *mesh, int axis) {
    for (int k = 0; k < LAY_AXES; k++)
        if (!strcmp(mesh->axes[axis].name, lay_axes[k])) return k;
    return 0;
}

static int letter_number(lay_seen *seen, int op, const char *letter) {
    for (int i = 0; i < seen->of[op].letters; i++)
        if (!strcmp(seen->of[op].letter[i], letter)) return i;
    snprintf(seen->of[op].letter[seen->of[op].letters], sizeof seen->of[op].letter[0], "%s", letter);
    return seen->of[op].letters++;
}

static const char *letter_at(const ct_node *node, const ct_rule *rule, int i, int d) {
    if (node->op->flags & CT_OP_VIEW) return d == (int)node->attrs[0] ? "outer" : "other";
    const ct_rule_operand *operand = i < node->inputs_count ? &rule->in[i] : &rule->out[i - node->inputs_count];
    return is_star(operand) ? "*" : operand->index[d].letter;
}

static void note_node(const ct_graph *g, const ct_node *node, int op, lay_seen *seen) {
    ct_rule rule;
    if (!(node->op->flags & CT_OP_VIEW) && ct_rule_parse(node->op->rule, &rule)) return;
    int hit[LAY_LETTERS][LAY_AXES] = {{0}};
    unsigned sums = 0;
    for (int i = 0; i < node->inputs_count + (node->op->flags & CT_OP_VIEW ? 0 : node->outputs_count); i++) {
        const ct_layout *layout = &g->values[i < node->inputs_count ? node->inputs[i] : node->outputs[i - node->inputs_count]].layout;
        if (i < node->inputs_count) sums |= ct_layout_axes(layout, CT_CUT_SUM);
        for (int k = 0; k < layout->count; k++)
            if (layout->cuts[k].kind == CT_CUT_SHARD)
                hit[letter_number(seen, op, letter_at(node, &rule, i, layout->cuts[k].dim))][axis_number(&g->mesh, layout->cuts[k].axis)] = 1;
    }
    for (int i = 0; i < LAY_LETTERS; i++)
        for (int a = 0; a < LAY_AXES; a++) seen->of[op].cut[i][a] += hit[i][a];
    for (int a = 0; a < g->mesh.axes_count; a++) seen->of[op].partial[axis_number(&g->mesh, a)] += (int)(sums >> a & 1);
    seen->of[op].nodes++;
}

static lay_kind kind_of(const ct_cut *cut, const ct_cut *before) {
    if (!cut) return LAY_WHOLE;
    if (cut->kind != CT_CUT_SHARD) return cut->kind == CT_CUT_SUM ? LAY_SUM : LAY_MAX;
    return before && before->kind == CT_CUT_SHARD && before->dim != cut->dim ? LAY_OTHER_DIM : LAY_SAME_DIM;
}

static void note_move(const ct_graph *g, const ct_node *node, lay_seen *seen) {
    const ct_layout *from = &g->values[node->inputs[ct_moved_operand(node)]].layout, *to = &g->values[node->outputs[0]].layout;
    unsigned axes = ct_move_axes(g, node);
    for (int a = 0; a < g->mesh.axes_count; a++) {
        const ct_cut *x = ct_layout_find(from, a), *y = ct_layout_find(to, a);
        if (axes >> a & 1 || (!x && y)) seen->moves[kind_of(x, NULL)][kind_of(y, x)][axis_number(&g->mesh, a)]++;
    }
    seen->accumulating += ct_moved_operand(node);
}

static int op_number(const ct_op *op) {
    int k = 0;
    while (ct_ops[k] != op) k++;
    return k;
}

void lay_note(const ct_graph *g, lay_seen *seen) {
    for (int n = 0; n < g->nodes_count; n++) {
        if (g->nodes[n].op->flags & CT_OP_MOVE) note_move(g, &g->nodes[n], seen);
        else note_node(g, &g->nodes[n], op_number(g->nodes[n].op), seen);
    }
}

// ---- the report ----
// The legal indices, by the table alone.
static int legal_indices(const ct_op *op, ct_rule *rule, index_of *out) {
    if (!(op->flags & CT_OP_VIEW)) return ct_rule_parse(op->rule, rule) ? 0 : rule_indices(rule, 1, out);
    int count = 0;
    if (!strcmp(op->name, "split") || !strcmp(op->name, "merge")) add_index(out, &count, "outer", -1);
    add_index(out, &count, "other", -1);
    return count;
}

static int report_index(const lay_seen *seen, int op, const char *letter) {
    static const int none[LAY_AXES];
    const int *cut = none;
    int missing = 0;
    for (int i = 0; i < seen->of[op].letters; i++)
        if (!strcmp(seen->of[op].letter[i], letter)) cut = seen->of[op].cut[i];
    printf("  %s", letter);
    for (int a = 0; a < LAY_AXES; a++) printf(" %d", cut[a]);
    for (int a = 0; a < LAY_AXES; a++)
        if (!cut[a]) missing++, printf(" [never by %s]", lay_axes[a]);
    return missing;
}

static int report_ops(const lay_seen *seen) {
    int missing = 0;
    printf("nodes of an op, and how many of them had an index cut by %s, %s, %s, %s (P: an operand partial)\n", lay_axes[0], lay_axes[1], lay_axes[2], lay_axes[3]);
    for (int k = 0; ct_ops[k]; k++) {
        const ct_op *op = ct_ops[k];
        if (op->flags & (CT_OP_MOVE | CT_OP_MACRO)) continue;
        ct_rule rule;
        index_of indices[LAY_LETTERS];
        int count = legal_indices(op, &rule, indices);
        printf("%-20s %5d", op->name, seen->of[k].nodes);
        for (int i = 0; i < count; i++) missing += report_index(seen, k, indices[i].letter);
        if (!seen->of[k].nodes) missing++, printf(" [never]");
        int partial = 0;
        for (int a = 0; a < LAY_AXES; a++) partial += seen->of[k].partial[a];
        if (partial) printf("  P %d", partial);
        printf("\n");
    }
    return missing;
}

static int report_moves(const lay_seen *seen) {
    static const char *const from[] = {"whole", "S(i)", NULL, "P", "Pmax"}, *const to[] = {"whole", "S(i)", "S(j)", "P", "Pmax"};
    int missing = 0;
    for (int x = 0; x < LAY_KINDS; x++)
        for (int y = 0; from[x] && y < LAY_KINDS; y++) {
            int legal = (x != LAY_WHOLE || y != LAY_WHOLE) && y != LAY_SUM && y != LAY_MAX && (x == LAY_SAME_DIM || y != LAY_OTHER_DIM), sum = 0;
            for (int a = 0; a < LAY_AXES; a++) sum += seen->moves[x][y][a];
            if (!legal && !sum) continue;
            printf("%-5s -> %-5s", from[x], to[y]);
            for (int a = 0; a < LAY_AXES; a++) {
                printf(" %6d", seen->moves[x][y][a]);
                if (legal && !seen->moves[x][y][a]) missing++, printf(" [never by %s]", lay_axes[a]);
            }
            printf("%s%s\n", x == LAY_SAME_DIM && y == LAY_SAME_DIM ? "   nested otherwise" : "", legal ? "" : "   [illegal]");
            missing += !legal;
        }
    printf("%d sums of these into an accumulator\n", seen->accumulating);
    return missing + !seen->accumulating;
}

int lay_report(const lay_seen *seen) { return report_ops(seen) + report_moves(seen); }
