// Which index each axis cuts at a node, axis by axis: what a weight or a state says binds; else an operand that is cut already decides, by the
// roles first and the price second; a partial sum is passed on by additions only, and reduced elsewhere.
//
// Nothing here looks ahead: inside the roles, with the hint on the residual stream, the nearest choice is the right one.
#include "placer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LETTERS = 32, NONE = -1, KEEP_SUM = -2 };

typedef struct {
    char name[8];
    int fixed, in_inputs, in_outputs;
    ct_role role;
    int chosen_count;
    uint8_t chosen[CT_MAX_AXES]; // axes that cut it
} letter;

typedef struct {
    placer *p;
    const ct_node *node;
    const int *inputs;
    ct_rule rule;
    letter letters[MOST_LETTERS];
    int count;
    int axis_letter[CT_MAX_AXES]; // index, NONE or KEEP_SUM
} choice;

static const ct_type *type_at(const choice *c, int i) { return &c->p->r.to->values[c->inputs[i]].type; }
static const ct_layout *lies(const choice *c, int i) { return layout_at(c->p, c->inputs[i]); }

static int letter_of(choice *c, const ct_rule_operand *operand, int dim) {
    char name[8];
    int star = operand->count == 1 && operand->index[0].letter[0] == '*', fixed = operand->index[star ? 0 : dim].fixed;
    if (star) snprintf(name, sizeof name, "*%d", dim % 10);
    else memcpy(name, operand->index[dim].letter, sizeof name);
    int i = 0;
    while (i < c->count && strcmp(c->letters[i].name, name)) i++;
    CT_ASSERT(i < MOST_LETTERS, "too many letters");
    if (i == c->count) {
        c->letters[c->count++] = (letter){0};
        memcpy(c->letters[i].name, name, sizeof name);
    }
    c->letters[i].fixed |= fixed;
    return i;
}

static void list_letters(choice *c) {
    const ct_graph *from = c->p->r.from;
    for (int i = 0; i < c->node->inputs_count; i++)
        for (int d = 0; d < type_at(c, i)->dims_count; d++) {
            letter *l = &c->letters[letter_of(c, &c->rule.in[i], d)];
            if (!l->in_inputs) l->role = ct_graph_role_of(from, type_at(c, i)->dims[d].name);
            l->in_inputs = 1;
        }
    for (int o = 0; o < c->node->outputs_count; o++) {
        const ct_type *type = &from->values[c->node->outputs[o]].type;
        for (int d = 0; d < type->dims_count; d++) {
            letter *l = &c->letters[letter_of(c, &c->rule.out[o], d)];
            if (!l->in_inputs && !l->in_outputs) l->role = ct_graph_role_of(from, type->dims[d].name);
            l->in_outputs = 1;
        }
    }
}

// The output that is computed in operand i's memory, -1: none.
static int output_in_place(const choice *c, int i) {
    for (int o = 0; o < c->node->outputs_count; o++)
        if (c->node->op->must_alias[o] == 1 + i) return o;
    return -1;
}

static int is_state_change(const choice *c) {
    for (int i = 0; i < c->node->inputs_count; i++) {
        const ct_input *in = input_of(c->p, c->inputs[i]);
        if (in && output_in_place(c, i) >= 0 && (in->kind == CT_PARAMETER || in->kind == CT_MOMENT || in->kind == CT_GRADIENT)) return 1;
    }
    return 0;
}

static int is_weight(const choice *c, int i) {
    const ct_input *in = input_of(c->p, c->inputs[i]);
    return in && (in->kind == CT_PARAMETER || in->kind == CT_WEIGHT_LOWP);
}

// How far `axis` may cut this letter here.
static ct_may may_cut(const choice *c, int axis, int letter_index, int weight, int unbound) {
    const letter *l = &c->letters[letter_index];
    if (l->fixed) return CT_MAY_NOT;
    return unbound ? CT_MAY : ct_axis_may_cut(c->p->p, axis, l->role, weight);
}

// The letter that operand i is cut along by `axis`; -1: none.
static int cut_letter(choice *c, int i, int axis) {
    const ct_cut *cut = ct_layout_find(lies(c, i), axis);
    return cut && cut->kind == CT_CUT_SHARD ? letter_of(c, &c->rule.in[i], cut->dim) : -1;
}

static int is_partial(const choice *c, int i, int axis) {
    const ct_cut *cut = ct_layout_find(lies(c, i), axis);
    return cut && cut->kind != CT_CUT_SHARD;
}

static int has_letter(choice *c, const ct_rule_operand *operand, int dims, int letter_index) {
    for (int d = 0; d < dims; d++)
        if (letter_of(c, operand, d) == letter_index) return 1;
    return 0;
}

// Bytes that a rank moves for it: operands that lie otherwise, and outputs that become partial and must be reduced.
static double price(choice *c, int axis, int letter_index) {
    double n = c->p->p->mesh.axes[axis].size, total = 0;
    for (int i = 0; i < c->node->inputs_count; i++) {
        double bytes = (double)ct_type_bytes(type_at(c, i));
        int cut = is_unplaced(c->p, c->inputs[i]) ? -1 : cut_letter(c, i, axis);
        int wants = has_letter(c, &c->rule.in[i], type_at(c, i)->dims_count, letter_index);
        if (cut >= 0 && cut != letter_index) total += wants ? bytes * (n - 1) / n / n : bytes * (n - 1) / n;
        if (is_partial(c, i, axis)) total += wants ? bytes * (n - 1) / n : 2 * bytes * (n - 1) / n;
    }
    for (int o = 0; o < c->node->outputs_count; o++) {
        const ct_type *type = &c->p->r.from->values[c->node->outputs[o]].type;
        if (letter_index >= 0 && !has_letter(c, &c->rule.out[o], type->dims_count, letter_index)) total += (double)ct_type_bytes(type) * (n - 1) / n;
    }
    return total;
}

// A state that is changed in place, and placed: its cut is the node's. 1 where it decides.
static int bound_by_state(choice *c, int axis, int *out_letter) {
    for (int i = 0; i < c->node->inputs_count; i++) {
        if (output_in_place(c, i) < 0 || !input_of(c->p, c->inputs[i]) || is_unplaced(c->p, c->inputs[i])) continue;
        if (c->node->op->flags & CT_OP_ADDITIVE && is_partial(c, i, axis)) { // what is summed decides, or is a sum itself
            int others = 0;
            for (int j = 0; j < c->node->inputs_count; j++) others |= j != i && is_partial(c, j, axis);
            if (!others) continue;
            *out_letter = KEEP_SUM;
            return 1;
        }
        *out_letter = cut_letter(c, i, axis);
        return 1;
    }
    return 0;
}

static int bound_by_weight(choice *c, int axis, int *out_letter) {
    for (int i = 0; i < c->node->inputs_count; i++) {
        int l = cut_letter(c, i, axis);
        if (l < 0 || !is_weight(c, i) || may_cut(c, axis, l, 1, 0) != CT_MAY) continue;
        *out_letter = l;
        return 1;
    }
    for (int l = 0; l < c->count; l++) // an index that the node brings in lies as a source would
        if (!c->letters[l].in_inputs && may_cut(c, axis, l, 1, 0) == CT_MAY) {
            *out_letter = l;
            return 1;
        }
    return 0;
}

static int by_operands(choice *c, int axis, int unbound) {
    int best = NONE;
    ct_may best_may = CT_MAY_NOT;
    double best_price = 0;
    for (int i = 0; i < c->node->inputs_count; i++) {
        int l = is_unplaced(c->p, c->inputs[i]) ? -1 : cut_letter(c, i, axis);
        ct_may may = l < 0 ? CT_MAY_NOT : may_cut(c, axis, l, 0, unbound);
        if (may == CT_MAY_NOT || may < best_may) continue;
        double cost = price(c, axis, l);
        if (best != NONE && may == best_may && cost >= best_price) continue;
        best = l, best_may = may, best_price = cost;
    }
    return best;
}

static int by_sums(choice *c, int axis) {
    int sums = 0, first = -1;
    for (int i = c->node->inputs_count - 1; i >= 0; i--)
        if (is_partial(c, i, axis)) sums++, first = i;
    if (!sums) return NONE;
    if ((c->node->op->flags & CT_OP_ADDITIVE) && sums == c->node->inputs_count) return KEEP_SUM;
    for (int d = 0; d < type_at(c, first)->dims_count; d++) {
        int l = letter_of(c, &c->rule.in[first], d);
        if (may_cut(c, axis, l, 0, 0) == CT_MAY) return l;
    }
    return NONE;
}

static int choose_letter(choice *c, int axis, const char **out_why) {
    int l;
    *out_why = "the state";
    if (bound_by_state(c, axis, &l)) return l;
    *out_why = "the weight";
    if (c->p->binding == CT_PLACE_BOUND && bound_by_weight(c, axis, &l)) return l;
    *out_why = "an operand";
    l = by_operands(c, axis, c->p->binding == CT_PLACE_STATES || is_state_change(c));
    if (l != NONE) return l;
    l = by_sums(c, axis);
    *out_why = l != NONE ? "a sum" : "nothing cut";
    return l;
}

// ---- telling ----

// The cheapest index that the axis might have cut instead; -1: none.
static int next_best(choice *c, int axis, int chosen, double *out_bytes) {
    int best = -1, unbound = c->p->binding == CT_PLACE_STATES || is_state_change(c);
    for (int l = 0; l < c->count; l++) {
        if (l == chosen || !c->letters[l].in_inputs || may_cut(c, axis, l, 0, unbound) == CT_MAY_NOT) continue;
        double bytes = price(c, axis, l);
        if (best >= 0 && bytes >= *out_bytes) continue;
        best = l;
        *out_bytes = bytes;
    }
    return best;
}

// An index by its letter, or where "*" stands for any by the name of the dim.
static void name_letter(const choice *c, int l, char out[8]) {
    const char *name = c->letters[l].name;
    int dim = name[0] == '*' ? name[1] - '0' : CT_MAX_DIMS;
    for (int i = 0; i < c->node->inputs_count; i++)
        if (type_at(c, i)->dims_count > dim) name = type_at(c, i)->dims[dim].name;
    snprintf(out, 8, "%s", name);
}

static void tell(choice *c, int axis, int chosen, const char *why) {
    ct_choices *all = c->p->p->choices;
    ct_choice told = {.phase = c->node->from.phase, .axis = axis, .why = why, .cut = "", .other = "-"};
    if (!all || c->p->p->mesh.axes[axis].size == 1) return;
    told.bytes = chosen == KEEP_SUM ? 0 : price(c, axis, chosen); // NONE: no operand wants it, and all that are cut are gathered
    int other = next_best(c, axis, chosen, &told.other_bytes);
    if (told.bytes == 0 && (chosen < 0 || other < 0)) return; // nothing moves, nothing else was possible
    if (chosen >= 0) name_letter(c, chosen, told.cut);
    else if (chosen == KEEP_SUM) memcpy(told.cut, "sum", 4);
    if (other >= 0) name_letter(c, other, told.other);
    told.program = ct_arena_strdup(&all->arena, c->p->r.from->name);
    told.module = ct_arena_strdup(&all->arena, c->node->from.module);
    told.op = ct_arena_strdup(&all->arena, c->node->op->name);
    CT_GROW(all->list, all->count, all->capacity);
    all->list[all->count++] = told;
}

void ct_choices_deinit(ct_choices *choices) {
    free(choices->list);
    ct_arena_deinit(&choices->arena);
    *choices = (ct_choices){0};
}

// The axes that cut a letter, in the order in which an operand has them already, else in the mesh's.
static void order_axes(choice *c, int letter_index) {
    letter *l = &c->letters[letter_index];
    for (int i = 0; i < c->node->inputs_count; i++) {
        uint8_t order[CT_MAX_AXES];
        int n = 0;
        for (int k = 0; k < lies(c, i)->count; k++) {
            const ct_cut *cut = &lies(c, i)->cuts[k];
            if (cut->kind == CT_CUT_SHARD && c->axis_letter[cut->axis] == letter_index && cut_letter(c, i, cut->axis) == letter_index)
                order[n++] = cut->axis;
        }
        if (n != l->chosen_count) continue;
        memcpy(l->chosen, order, (size_t)n);
        return;
    }
}

static ct_layout wanted_of(choice *c, int i) {
    ct_layout layout = {.partial = lies(c, i)->partial};
    for (int d = 0; d < type_at(c, i)->dims_count; d++) {
        const letter *l = &c->letters[letter_of(c, &c->rule.in[i], d)];
        for (int k = 0; k < l->chosen_count; k++) ct_layout_add(&layout, l->chosen[k], CT_CUT_SHARD, d);
    }
    int o = output_in_place(c, i), addend = o >= 0 && (c->node->op->flags & CT_OP_ADDITIVE);
    for (int a = 0; a < c->p->p->mesh.axes_count; a++) {
        int l = c->axis_letter[a];
        if (l == KEEP_SUM && is_partial(c, i, a)) ct_layout_add(&layout, a, CT_CUT_SUM, 0);
        else if (addend && l >= 0 && !has_letter(c, &c->rule.out[o], type_at(c, i)->dims_count, l)) ct_layout_add(&layout, a, CT_CUT_SUM, 0);
    }
    if (addend) layout.partial = (uint8_t)type_at(c, i)->dtype;
    return layout;
}

static ct_layout new_cuts_of(choice *c, int o) {
    ct_layout layout = {0};
    const ct_type *type = &c->p->r.from->values[c->node->outputs[o]].type;
    for (int d = 0; d < type->dims_count; d++) {
        const letter *l = &c->letters[letter_of(c, &c->rule.out[o], d)];
        for (int k = 0; k < l->chosen_count && !l->in_inputs; k++) ct_layout_add(&layout, l->chosen[k], CT_CUT_SHARD, d);
    }
    return layout;
}

ct_status placer_choose(placer *p, const ct_node *node, const int *inputs, ct_layout *out_wanted, ct_layout out_new[CT_MAX_OUTPUTS]) {
    choice c = {.p = p, .node = node, .inputs = inputs};
    CT_TRY(ct_rule_parse(node->op->rule, &c.rule));
    if (node->op->inputs < 0) // a list of operands, all alike
        for (int i = c.rule.inputs; i < node->inputs_count && i < CT_MAX_INPUTS; i++) c.rule.in[i] = c.rule.in[0];
    list_letters(&c);
    for (int a = 0; a < p->p->mesh.axes_count; a++) {
        const char *why;
        c.axis_letter[a] = choose_letter(&c, a, &why);
        tell(&c, a, c.axis_letter[a], why);
        if (c.axis_letter[a] < 0) continue;
        letter *l = &c.letters[c.axis_letter[a]];
        l->chosen[l->chosen_count++] = (uint8_t)a;
    }
    for (int l = 0; l < c.count; l++) order_axes(&c, l);
    for (int i = 0; i < node->inputs_count; i++) out_wanted[i] = wanted_of(&c, i);
    for (int o = 0; o < node->outputs_count; o++) out_new[o] = new_cuts_of(&c, o);
    return CT_OK;
}
