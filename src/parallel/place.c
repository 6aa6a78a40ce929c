// The pass: every node of a program in turn, its operands moved to where the choice wants them.
#include "placer.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- inputs ----
static void place_input(placer *p, int index) {
    const ct_graph *from = p->r.from;
    ct_graph *to = p->r.to;
    const ct_input *in = &from->inputs[index];
    int value = ct_rewrite_input(&p->r, index).id, known = p->states ? ct_graph_find_input(p->states, in->name) : -1;
    const ct_type *type = &to->values[value].type;
    ct_layout *layout = layout_at(p, value);
    if (from->mesh.axes_count) *layout = from->values[in->value].layout;
    else if (in->kind == CT_WEIGHT_LOWP && known >= 0) *layout = p->states->values[p->states->inputs[known].value].layout;
    else if (in->kind == CT_FEED) *layout = ct_layout_of_feed(from, p->p, type);
    else if (in->kind == CT_PARAMETER || in->kind == CT_WEIGHT_LOWP) *layout = ct_layout_of_weight(from, p->p, type);
    else if (known >= 0) *layout = p->states->values[p->states->inputs[known].value].layout;
    else p->unplaced[index] = 1;
    // Gradients that micro only piled up are added up before anything else is done with them.
    if (in->kind == CT_GRADIENT && p->binding == CT_PLACE_STATES && ct_layout_axes(layout, CT_CUT_SUM)) {
        ct_layout spread = ct_layout_of_accumulator(p->p, layout);
        ct_graph_at(to, CT_OPTIMIZER, -1, "%s", in->name);
        p->r.map[in->value] = placer_move(p, value, &spread);
    }
}

// An accumulator that nobody has placed yet lies so that its part's sums are spread.
static void place_accumulators(placer *p, const ct_node *node, const int *inputs) {
    for (int i = 0; i < node->inputs_count; i++) {
        const ct_input *in = input_of(p, inputs[i]);
        if (!in || in->kind != CT_GRADIENT || !is_unplaced(p, inputs[i])) continue;
        const ct_layout none = {.partial = CT_F32}, *part = &none;
        for (int j = 0; j < node->inputs_count; j++)
            if (j != i && ct_type_elems(&p->r.to->values[inputs[j]].type) == ct_type_elems(&p->r.to->values[inputs[i]].type))
                part = layout_at(p, inputs[j]);
        *layout_at(p, inputs[i]) = p->p->reduce_once ? *part : ct_layout_of_accumulator(p->p, part);
        p->unplaced[p->r.to->values[inputs[i]].output] = 0;
    }
}

// ---- nodes ----
static ct_status cannot_cut(placer *p, const ct_node *node, ct_status why) {
    int64_t common = 0;
    for (int v = 0; v < p->r.from->values_count; v++) {
        const ct_type *type = &p->r.from->values[v].type;
        for (int d = 0; d < type->dims_count; d++) {
            if (ct_graph_role_of(p->r.from, type->dims[d].name) != CT_ROLE_HEADS) continue;
            int64_t a = common, b = type->dims[d].extent;
            while (b) {
                int64_t rest = a % b;
                a = b, b = rest;
            }
            common = a;
        }
    }
    char legal[128] = "";
    for (int64_t k = 1; k <= common; k++)
        if (common % k == 0 && strlen(legal) < 100) snprintf(legal + strlen(legal), sizeof legal - strlen(legal), "%s%lld", k > 1 ? ", " : "", (long long)k);
    return ct_error_note(why, "%s: heads can be cut in %s", node->from.module, legal);
}

// What the node would make of these operands. Its outputs' types are looked at, so they stand behind the values for a moment.
static ct_status probe(placer *p, const ct_node *node, int *inputs, ct_layout *out) {
    ct_graph *to = p->r.to;
    ct_node tried = *node;
    tried.inputs = inputs;
    for (int o = 0; o < node->outputs_count; o++) {
        CT_GROW(to->values, to->values_count + o, to->values_capacity);
        const ct_value_info *out_value = &p->r.from->values[node->outputs[o]];
        to->values[to->values_count + o] = (ct_value_info){.type = out_value->type, .layout = out_value->layout};
        tried.outputs[o] = to->values_count + o;
    }
    return ct_op_infer_layouts(to, &tried, out);
}

static ct_status place_view(placer *p, int n, int *inputs) {
    const ct_node *node = &p->r.from->nodes[n];
    ct_layout target = *layout_at(p, inputs[0]), out[CT_MAX_OUTPUTS];
    for (int i = 1; i < node->inputs_count; i++) // a sum is kept where all are one
        for (int a = 0; a < p->p->mesh.axes_count; a++) {
            const ct_cut *cut = ct_layout_find(&target, a), *other = ct_layout_find(layout_at(p, inputs[i]), a);
            if (cut && cut->kind != CT_CUT_SHARD && (!other || other->kind != cut->kind)) ct_layout_remove(&target, a);
        }
    for (int i = 0; i < node->inputs_count; i++) inputs[i] = placer_move(p, inputs[i], &target);
    ct_status status = probe(p, node, inputs, out);
    return status ? cannot_cut(p, node, status) : CT_OK;
}

// A node that was placed before, with the operands that it had then, stays as it is.
static int is_legal(placer *p, const ct_node *node, int *inputs) {
    if (node->outputs_count && !p->r.from->values[node->outputs[0]].placed) return 0;
    for (int i = 0; i < node->inputs_count; i++)
        if (is_unplaced(p, inputs[i])) return 0;
    ct_layout out[CT_MAX_OUTPUTS];
    return !probe(p, node, inputs, out);
}

// Moves the node's operands to where it wants them; *out_new: cuts of its outputs that come from no operand.
static ct_status place_operands(placer *p, int n, int *inputs, ct_layout out_new[CT_MAX_OUTPUTS]) {
    const ct_node *node = &p->r.from->nodes[n];
    place_accumulators(p, node, inputs);
    if (is_legal(p, node, inputs)) {
        for (int o = 0; o < node->outputs_count; o++) out_new[o] = p->r.from->values[node->outputs[o]].layout;
        return CT_OK;
    }
    if (node->op->flags & CT_OP_VIEW) return place_view(p, n, inputs);
    CT_CHECK(node->inputs_count <= CT_MAX_INPUTS || node->op->inputs < 0, CT_INVALID, "%d operands", node->inputs_count);
    ct_layout few[CT_MAX_INPUTS], *wanted = few;
    if (node->inputs_count > CT_MAX_INPUTS) wanted = CT_ARENA_ARRAY(&p->r.to->arena, ct_layout, node->inputs_count);
    CT_TRY(placer_choose(p, node, inputs, wanted, out_new));
    for (int i = 0; i < node->inputs_count; i++) {
        if (!is_unplaced(p, inputs[i])) {
            inputs[i] = placer_move(p, inputs[i], &wanted[i]);
            continue;
        }
        *layout_at(p, inputs[i]) = wanted[i];
        p->unplaced[p->r.to->values[inputs[i]].output] = 0;
    }
    return CT_OK;
}

static void follow_hints(placer *p, const ct_node *old) {
    const ct_graph *from = p->r.from;
    for (int o = 0; o < old->outputs_count; o++) {
        ct_hint hint = from->values[old->outputs[o]].hint;
        int value = p->r.map[old->outputs[o]];
        p->r.to->values[value].hint = hint;
        if (hint == CT_HINT_STAGES) p->r.map[old->outputs[o]] = placer_sum_stages(p, value);
        if (hint != CT_HINT_RESIDUAL || p->r.from->mesh.axes_count) continue;
        ct_layout target = ct_layout_of_residual(from, p->p, &p->r.to->values[value].type);
        p->r.map[old->outputs[o]] = placer_move(p, value, &target);
    }
}

static ct_status place_node(placer *p, int n) {
    const ct_node *old = &p->r.from->nodes[n];
    ct_graph *to = p->r.to;
    int few[CT_MAX_INPUTS], *inputs = old->inputs_count > CT_MAX_INPUTS ? CT_ARENA_ARRAY(&to->arena, int, old->inputs_count) : few;
    for (int i = 0; i < old->inputs_count; i++) inputs[i] = ct_rewrite_value(&p->r, old->inputs[i]).id;
    ct_rewrite_at(&p->r, old->from);
    ct_layout new_cuts[CT_MAX_OUTPUTS] = {0};
    if (!(old->op->flags & CT_OP_MOVE)) CT_TRY_AS(place_operands(p, n, inputs, new_cuts), "placing %s in %s", old->op->name, old->from.module);
    ct_type declared[CT_MAX_OUTPUTS];
    for (int o = 0; o < old->outputs_count; o++) declared[o] = p->r.from->values[old->outputs[o]].type;
    ct_value few_values[CT_MAX_INPUTS], *operands = inputs == few ? few_values : CT_ARENA_ARRAY(&to->arena, ct_value, old->inputs_count);
    for (int i = 0; i < old->inputs_count; i++) operands[i] = (ct_value){inputs[i]};
    int node = ct_build_node(to, old->op, old->inputs_count, operands, old->attrs, declared);
    if (node < 0) return ct_graph_status(to);
    ct_layout layouts[CT_MAX_OUTPUTS];
    for (int o = 0; o < old->outputs_count; o++) to->values[to->nodes[node].outputs[o]].layout = new_cuts[o];
    if (old->op->flags & CT_OP_MOVE)
        for (int o = 0; o < old->outputs_count; o++) layouts[o] = p->r.from->values[old->outputs[o]].layout;
    else CT_TRY_AS(ct_op_infer_layouts(to, &to->nodes[node], layouts), "placing %s in %s", old->op->name, old->from.module);
    for (int o = 0; o < old->outputs_count; o++) {
        p->r.map[old->outputs[o]] = to->nodes[node].outputs[o];
        to->values[to->nodes[node].outputs[o]].layout = layouts[o];
        to->values[to->nodes[node].outputs[o]].placed = 1;
    }
    follow_hints(p, old);
    return CT_OK;
}

// What leaves the program is no partial sum.
static void place_outputs(placer *p) {
    const ct_graph *from = p->r.from;
    for (int i = 0; i < from->outputs_count; i++) {
        int value = p->r.map[from->outputs[i].value];
        ct_layout whole = *layout_at(p, value);
        for (int a = 0; a < p->p->mesh.axes_count; a++) {
            const ct_cut *cut = ct_layout_find(&whole, a);
            if (cut && cut->kind != CT_CUT_SHARD) ct_layout_remove(&whole, a);
        }
        p->r.map[from->outputs[i].value] = placer_move(p, value, &whole);
    }
}

// A state's new value lies as the state does.
static void place_updates(placer *p) {
    const ct_graph *from = p->r.from;
    for (int i = 0; i < from->inputs_count; i++) {
        const ct_input *in = &from->inputs[i];
        if (in->update < 0 || p->r.to->values[p->r.map[in->value]].node != -1) continue;
        if (is_unplaced(p, p->r.map[in->value])) { // it lies as what it gets
            *layout_at(p, p->r.map[in->value]) = *layout_at(p, p->r.map[in->update]);
            p->unplaced[p->r.to->values[p->r.map[in->value]].output] = 0;
        }
        ct_layout target = *layout_at(p, p->r.map[in->value]);
        const ct_value_info *made = &from->values[in->update];
        if (made->node >= 0) ct_rewrite_at(&p->r, from->nodes[made->node].from);
        else ct_graph_at(p->r.to, CT_FORWARD, -1, "%s", from->inputs[made->output].name);
        if (in->kind == CT_WEIGHT_LOWP) p->r.map[in->update] = placer_move(p, p->r.map[in->update], &target);
    }
}

static ct_status place_all(placer *p) {
    for (int i = 0; i < p->r.from->inputs_count; i++) place_input(p, i);
    for (int n = 0; n < p->r.from->nodes_count; n++) CT_TRY(place_node(p, n));
    place_updates(p);
    place_outputs(p);
    return CT_OK;
}

ct_status ct_place(const ct_graph *from, const ct_parallel *parallel, int binding, const ct_graph *states, ct_graph *to) {
    placer p = {.p = parallel, .binding = binding, .states = states};
    ct_rewrite_begin(&p.r, from, to, 0);
    to->mesh = parallel->mesh;
    p.unplaced = CT_ARENA_ARRAY(&to->arena, unsigned char, from->inputs_count + 1);
    ct_status status = place_all(&p);
    if (status) ct_rewrite_abandon(&p.r);
    else status = ct_rewrite_end(&p.r);
    free(p.moves);
    free(p.moved);
    return status;
}
