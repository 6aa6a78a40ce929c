#include "graph/parts.h"
#include "graph/op.h"

#include <stdio.h>
#include <string.h>

// The letter of an operand's dim, a star standing for one letter a dim.
static void letter_at(const ct_rule_operand *operand, int dim, char out[8], int *out_fixed) {
    int star = operand->count == 1 && operand->index[0].letter[0] == '*';
    *out_fixed = operand->index[star ? 0 : dim].fixed;
    if (star) snprintf(out, 8, "*%d", dim % 10);
    else memcpy(out, operand->index[dim].letter, 8);
}

typedef struct {
    char letter[8];                 // of the dim that is cut
    char leading[CT_MAX_DIMS][8];   // of those before it
    int leading_count;
} sought;

// The dim of an operand that has the letter, with the same dims before it; -1: it has none of these letters; -2: something else.
static int find_dim(const ct_graph *g, const ct_rule_operand *operand, int value, const sought *s) {
    int at = -1, leading = 0;
    for (int d = 0; d < g->values[value].type.dims_count; d++) {
        char letter[8];
        int fixed;
        letter_at(operand, d, letter, &fixed);
        if (!strcmp(letter, s->letter)) at = fixed ? -2 : d;
        for (int k = 0; k < s->leading_count; k++) {
            if (strcmp(letter, s->leading[k])) continue;
            if (k != d || fixed) return -2;
            leading++;
        }
    }
    if (at == -1) return leading ? -2 : -1;
    return at == s->leading_count && leading == s->leading_count ? at : -2;
}

static int has_kernel_of_its_own(const ct_op *op) { return !(op->flags & (CT_OP_VIEW | CT_OP_MOVE | CT_OP_MACRO | CT_OP_BLOCKS)); }

int ct_parts_find(const ct_graph *g, const ct_node *node, int output, int operand, int dim, ct_parts *out) {
    ct_rule rule;
    sought s = {.leading_count = dim};
    if (!has_kernel_of_its_own(node->op) || node->op->inputs < 0 || !node->op->rule[0]) return 0;
    ct_status status = ct_rule_parse(node->op->rule, &rule);
    CT_ASSERT(!status, "the rule of %s", node->op->name);
    for (int d = 0; d <= dim; d++) {
        int fixed;
        letter_at(output ? &rule.out[operand] : &rule.in[operand], d, d < dim ? s.leading[d] : s.letter, &fixed);
        if (fixed) return 0;
    }
    out->leading = dim;
    for (int i = 0; i < node->inputs_count; i++)
        if ((out->in_dim[i] = find_dim(g, &rule.in[i], node->inputs[i], &s)) == -2) return 0;
    for (int o = 0; o < node->outputs_count; o++) {
        if (node->op->must_alias[o] || node->op->may_alias[o]) return 0;
        if ((out->out_dim[o] = find_dim(g, &rule.out[o], node->outputs[o], &s)) < 0) return 0;
    }
    return 1;
}

int ct_move_dim(const ct_graph *g, const ct_node *move) {
    int gathers = !strcmp(move->op->name, "all_gather"), spreads = !strcmp(move->op->name, "reduce_scatter"), dim = -1;
    if (!gathers && !spreads) return -1;
    const ct_layout *layout = &g->values[gathers ? move->inputs[0] : move->outputs[0]].layout;
    unsigned axes = ct_move_axes(g, move);
    for (int i = 0; i < layout->count; i++) {
        const ct_cut *cut = &layout->cuts[i];
        int moves = axes >> cut->axis & 1;
        if (dim >= 0 && (moves ? cut->dim != dim : cut->kind == CT_CUT_SHARD && cut->dim == dim)) return -1; // a cut inside it leaves gaps
        if (moves && cut->kind != CT_CUT_SHARD) return -1;
        if (moves) dim = cut->dim;
    }
    return dim;
}
