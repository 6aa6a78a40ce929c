// Mixed precision: parameters stay f32 (masters); ops that declare so read a bf16 cast, and dtypes follow by inference.
// Sums that need it (statistics, logits, weight gradients) stay f32 because their ops' dtype rules say so.
#include "passes/passes.h"
#include "graph/op.h"
#include "graph/rewrite.h"
#include "ops/ops.h"

#include <string.h>

static const char suffix[] = ".bf16", whole_suffix[] = ".whole"; // of a weight as gathered: it is the same weight

typedef struct {
    ct_rewrite r;
    int *lowp; // by input index of `from`: the new graph's weight-lowp value, -1: none yet
} precision;

static int reads_low(const ct_graph *g, const ct_node *node, int operand) {
    const ct_value_info *v = &g->values[node->inputs[operand]];
    return operand < CT_MAX_INPUTS && (node->op->flags & ((unsigned)CT_OP_LOWP0 << operand)) && v->node < 0 &&
           g->inputs[v->output].kind == CT_PARAMETER;
}

static void add_lowp_inputs(precision *p) {
    const ct_graph *g = p->r.from;
    for (int i = 0; i < g->inputs_count; i++) p->lowp[i] = -1;
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++) {
            if (!reads_low(g, &g->nodes[n], i)) continue;
            const ct_input *in = &g->inputs[g->values[g->nodes[n].inputs[i]].output];
            int index = g->values[in->value].output;
            if (p->lowp[index] >= 0) continue;
            ct_type type = g->values[in->value].type;
            type.dtype = CT_BF16;
            const char *name = ct_arena_format(&p->r.to->arena, "%s%s", in->name, suffix);
            p->lowp[index] = ct_build_input(p->r.to, CT_WEIGHT_LOWP, name, type).id;
        }
}

// State that ops keep in the compute dtype (a cache of keys and values is written in place from activations) has it from the start.
static void lower_states(precision *p) {
    const ct_graph *g = p->r.from;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        if (node->op->must_alias[0] != 1 || node->op->dtypes[0] != 'c') continue;
        const ct_value_info *v = &g->values[node->inputs[0]];
        if (v->node < 0 && g->inputs[v->output].kind == CT_STATE) p->r.to->values[p->r.map[node->inputs[0]]].type.dtype = CT_BF16;
    }
}

ct_status ct_pass_precision(const ct_graph *from, ct_dtype compute, ct_graph *to) {
    precision p;
    ct_rewrite_begin(&p.r, from, to, 1);
    p.lowp = CT_ARENA_ARRAY(&to->arena, int, from->inputs_count + 1);
    if (compute == CT_BF16) add_lowp_inputs(&p), lower_states(&p);
    for (int n = 0; n < from->nodes_count; n++) {
        const ct_node *node = &from->nodes[n];
        int saved[CT_MAX_INPUTS], input_of[CT_MAX_INPUTS], swapped = 0;
        for (int i = 0; compute == CT_BF16 && i < node->inputs_count && i < CT_MAX_INPUTS; i++) {
            if (!reads_low(from, node, i)) continue;
            input_of[swapped] = node->inputs[i];
            saved[swapped++] = p.r.map[node->inputs[i]];
            p.r.map[node->inputs[i]] = p.lowp[from->values[node->inputs[i]].output];
        }
        ct_rewrite_node(&p.r, n);
        while (swapped > 0) swapped--, p.r.map[input_of[swapped]] = saved[swapped];
    }
    return ct_rewrite_end(&p.r);
}

static int take_suffix(char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    if (n <= k || strcmp(name + n - k, end)) return 0;
    name[n - k] = 0;
    return 1;
}

// "w.bf16", "w.bf16.whole" or "w.whole", from w.
static void add_cast(const ct_graph *reader, const ct_input *in, ct_graph *to) {
    if (in->kind != CT_WEIGHT_LOWP || ct_graph_find_input(to, in->name) >= 0) return;
    char *name = ct_arena_strdup(&to->arena, in->name);
    take_suffix(name, whole_suffix);
    int low = take_suffix(name, suffix);
    ct_type type = reader->values[in->value].type;
    type.dtype = CT_F32;
    ct_graph_at(to, CT_FORWARD, -1, "%s", name);
    int known = ct_graph_find_input(to, name);
    ct_value master = known >= 0 ? (ct_value){to->inputs[known].value} : ct_build_input(to, CT_PARAMETER, name, type);
    ct_value state = ct_build_input(to, CT_WEIGHT_LOWP, in->name, reader->values[in->value].type);
    ct_build_update(to, state, low ? ct_cast(to, master, CT_BF16) : master);
}

ct_status ct_pass_prologue(const ct_graph *const *readers, int count, ct_graph *to) {
    ct_graph_init(to, "prologue");
    for (int i = 0; i < readers[0]->roles_count; i++) ct_graph_role(to, readers[0]->roles[i].name, readers[0]->roles[i].role);
    for (int r = 0; r < count; r++)
        for (int i = 0; i < readers[r]->inputs_count; i++) add_cast(readers[r], &readers[r]->inputs[i], to);
    return ct_graph_status(to);
}

// ---- gradients that are added up once a step ----
static void add_sum(const ct_graph *writer, const ct_input *in, ct_graph *to) {
    if (in->kind != CT_GRADIENT || in->update < 0 || ct_graph_find_input(to, in->name) >= 0) return;
    const ct_value_info *v = &writer->values[in->value];
    ct_value gradient = ct_build_input(to, CT_GRADIENT, in->name, v->type);
    if (!ct_layout_axes(&v->layout, CT_CUT_SUM)) return;
    ct_build_update(to, ct_build_input(to, CT_GRADIENT, ct_arena_format(&to->arena, "%s%s", in->name, CT_SUM_SUFFIX), v->type), gradient);
}

ct_status ct_pass_reduce(const ct_graph *const *writers, int count, ct_graph *to) {
    ct_graph_init(to, "reduce");
    for (int i = 0; i < writers[0]->roles_count; i++) ct_graph_role(to, writers[0]->roles[i].name, writers[0]->roles[i].role);
    for (int w = 0; w < count; w++)
        for (int i = 0; i < writers[w]->inputs_count; i++) add_sum(writers[w], &writers[w]->inputs[i], to);
    return ct_graph_status(to);
}
