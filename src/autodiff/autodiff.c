// Reverse mode over the node list: the last node first. A value's contributions are added as they come (two readers, one add);
// a parameter's are not added but accumulated a use apart, so that a tied weight has the same bits on every pipeline cut.
#include "autodiff/autodiff.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int parameter, accumulator; // indices into the graph's inputs
    int64_t place;              // of the use: node, then operand
} parameter_use;

typedef struct {
    ct_graph *graph;
    int *gradient;       // by value id of the forward part: its gradient's value id so far, -1: none
    parameter_use *uses; // that have a gradient, as backward comes by
    int uses_count, uses_capacity;
    ct_value first;      // the feed "first"
} walk;

const char *ct_gradient_name(ct_arena *arena, const char *parameter, int use) {
    return use ? ct_arena_format(arena, "%s.grad.%d", parameter, use) : ct_arena_format(arena, "%s.grad", parameter);
}

static void accumulate_parameter(walk *w, int input, int64_t place, ct_value part) {
    ct_graph *g = w->graph;
    ct_type type = g->values[g->inputs[input].value].type;
    type.dtype = CT_F32;
    ct_value acc = ct_build_input(g, CT_GRADIENT, "", type);
    CT_GROW(w->uses, w->uses_count, w->uses_capacity);
    w->uses[w->uses_count++] = (parameter_use){input, g->values[acc.id].output, place};
    g->at.phase = CT_WEIGHT_GRAD;
    ct_build_update(g, acc, ct_accumulate(g, acc, part, w->first));
}

// Accumulators are named in order of use, which backward comes by the other way round.
static void name_accumulators(const walk *w) {
    ct_graph *g = w->graph;
    for (int i = 0; i < w->uses_count; i++) {
        int before = 0;
        for (int j = 0; j < w->uses_count; j++)
            before += w->uses[j].parameter == w->uses[i].parameter && w->uses[j].place < w->uses[i].place;
        g->inputs[w->uses[i].accumulator].name = ct_gradient_name(&g->arena, g->inputs[w->uses[i].parameter].name, before);
    }
}

static void add_contribution(walk *w, int value, ct_value part) {
    int *sum = &w->gradient[value];
    if (*sum < 0) {
        *sum = part.id;
        return;
    }
    w->graph->at.phase = CT_INPUT_GRAD;
    *sum = ct_add(w->graph, (ct_value){*sum}, part).id;
}

static int has_gradient(const walk *w, const ct_node *node) {
    for (int i = 0; i < node->outputs_count; i++)
        if (w->gradient[node->outputs[i]] >= 0) return 1;
    return 0;
}

static void differentiate(walk *w, int n) {
    ct_graph *g = w->graph;
    const ct_op *op = g->nodes[n].op;
    if (!op->grad || !has_gradient(w, &g->nodes[n])) return;
    ct_grad grad = {.graph = g, .node = n};
    for (int i = 0; i < CT_MAX_OUTPUTS; i++) grad.outputs[i] = CT_NO_VALUE;
    for (int i = 0; i < CT_MAX_INPUTS; i++) grad.inputs[i] = CT_NO_VALUE;
    for (int i = 0; i < g->nodes[n].outputs_count; i++) {
        grad.outputs[i].id = w->gradient[g->nodes[n].outputs[i]];
        if (grad.outputs[i].id != g->nodes[n].outputs[i]) // a gradient, whole by now, lies as its value does
            ct_graph_hint(g, grad.outputs[i], g->values[g->nodes[n].outputs[i]].hint);
    }
    ct_provenance from = g->nodes[n].from;
    g->at = from;
    g->at.phase = CT_INPUT_GRAD;
    op->grad(&grad);
    g->at = from;
    for (int i = 0; i < g->nodes[n].inputs_count; i++) {
        if (grad.inputs[i].id < 0) continue;
        int value = g->nodes[n].inputs[i];
        const ct_value_info *v = &g->values[value];
        if (v->node >= 0) add_contribution(w, value, grad.inputs[i]);
        else if (g->inputs[v->output].kind == CT_PARAMETER)
            accumulate_parameter(w, v->output, ((int64_t)n << 32) + i, grad.inputs[i]);
    }
}

ct_status ct_autodiff_apply(ct_graph *graph, const char *output) {
    CT_TRY(ct_graph_status(graph));
    int out = ct_graph_find_output(graph, output), nodes = graph->nodes_count;
    CT_CHECK(out >= 0, CT_INVALID, "program %s has no output \"%s\" to differentiate", graph->name, output);
    walk w = {.graph = graph};
    w.gradient = ct_malloc(sizeof(int) * ((size_t)graph->values_count + 1));
    for (int i = 0; i < graph->values_count; i++) w.gradient[i] = -1;
    w.first = ct_build_input(graph, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    w.gradient[graph->outputs[out].value] = graph->outputs[out].value; // a mark: the op ignores the seed
    for (int n = nodes - 1; n >= 0 && !graph->error_text[0]; n--) differentiate(&w, n);
    name_accumulators(&w);
    free(w.gradient);
    free(w.uses);
    return ct_graph_status(graph);
}
