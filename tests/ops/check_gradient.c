// An op's gradient graph, run by the references in double, against central finite differences of its own reference (five points: the
// error is of order h^4), for every float input and every output that the op can be differentiated through. And: the op is
// linear where it says so.
#include "example.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SEEDS = 6 };

// L = Σ dy·y of one output.
static double loss(example *e, int output, const double *dy) {
    example_run(e);
    double sum = 0;
    for (int64_t i = 0; i < ct_type_elems(&e->out[output]); i++) sum += dy[i] * e->result[output][i];
    return sum;
}

static double difference(example *e, int input, int64_t at, int output, const double *dy) {
    const double h = 1e-3;
    double *x = &e->data[input][at], was = *x, at_steps[4];
    static const double steps[] = {-2, -1, 1, 2};
    for (int i = 0; i < 4; i++) {
        *x = was + steps[i] * h;
        at_steps[i] = loss(e, output, dy);
    }
    *x = was;
    return (at_steps[0] - 8 * at_steps[1] + 8 * at_steps[2] - at_steps[3]) / (12 * h);
}

// The gradient's graph for a seed on one output; 0 where the op says it can't.
static int build_gradient(const example *e, int output, ct_graph *graph, ct_grad *grad) {
    int node = example_build(e, graph);
    *grad = (ct_grad){.graph = graph, .node = node};
    for (int i = 0; i < CT_MAX_INPUTS; i++) grad->inputs[i] = CT_NO_VALUE;
    for (int i = 0; i < CT_MAX_OUTPUTS; i++) grad->outputs[i] = CT_NO_VALUE;
    ct_type type = graph->values[graph->nodes[node].outputs[output]].type;
    if (type.dtype != CT_F32 && type.dtype != CT_BF16) return 0;
    type.dtype = CT_F32;
    grad->outputs[output] = ct_build_input(graph, CT_FEED, "seed", type);
    graph->at.phase = CT_INPUT_GRAD;
    e->op->grad(grad);
    return ct_graph_status(graph) == CT_OK;
}

static double *make_seed(example *e, int64_t n) {
    const example_hook *hook = example_hook_of(e->op->name);
    double *dy = ct_calloc((size_t)n + 1, sizeof *dy);
    for (int64_t i = 0; i < n; i++) dy[i] = hook && hook->seed_gradient != 0 ? hook->seed_gradient : example_uniform(e);
    return dy;
}

static double compare(example *e, int input, int output, const double *dy, const double *got) {
    double worst = 0, largest = 1e-3;
    int64_t n = ct_type_elems(&e->in[input]);
    double *want = ct_malloc((size_t)(n + 1) * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        want[i] = difference(e, input, i, output, dy);
        largest = fmax(largest, fabs(want[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(got[i] - want[i]) / largest;
        worst = error <= worst ? worst : error; // NaN is the worst
        if (!(error <= 1e-7))
            fail_msg("%s: gradient of input %d by output %d, element %lld: %.12g, differences give %.12g", e->op->name, input,
                     output, (long long)i, got[i], want[i]);
    }
    free(want);
    return worst;
}

static unsigned check_output(example *e, int output, finding *found) {
    ct_graph graph;
    ct_grad grad;
    unsigned have = 0;
    if (build_gradient(e, output, &graph, &grad)) {
        ct_reference_values values;
        ct_reference_init(&values, &graph);
        for (int i = 0; i < e->inputs; i++)
            memcpy(values.values[graph.inputs[i].value], e->data[i], (size_t)ct_type_elems(&e->in[i]) * sizeof(double));
        int seed = grad.outputs[output].id;
        int64_t n = ct_type_elems(&graph.values[seed].type);
        double *dy = make_seed(e, n);
        memcpy(values.values[seed], dy, (size_t)n * sizeof *dy);
        ct_reference_run(&graph, &values, 0);
        for (int i = 0; i < e->inputs; i++) {
            if (grad.inputs[i].id < 0) continue;
            ct_type gradient = graph.values[grad.inputs[i].id].type;
            gradient.dtype = e->in[i].dtype;
            if (!ct_type_equal(&gradient, &e->in[i])) fail_msg("%s: gradient of input %d has another type", e->op->name, i);
            have |= 1u << i;
            double error = compare(e, i, output, dy, values.values[grad.inputs[i].id]);
            if (error > found->gradient_error) found->gradient_error = error;
        }
        free(dy);
        ct_reference_deinit(&values);
    }
    ct_graph_deinit(&graph);
    return have;
}

void check_gradient(const ct_op *op, finding *found) {
    if (!op->grad) return;
    unsigned inputs = 0, outputs = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++)
        for (int output = 0; output < op->outputs; output++) {
            example e;
            example_init(&e, op, CT_F32, TINY, seed);
            unsigned have = check_output(&e, output, found);
            inputs |= have;
            if (have) outputs |= 1u << output;
            example_deinit(&e);
        }
    if (!inputs) fail_msg("%s has a gradient function that gives nothing", op->name);
    size_t at = 0;
    for (int i = 0; i < CT_MAX_INPUTS; i++)
        if (inputs >> i & 1) at += (size_t)snprintf(found->gradient + at, sizeof found->gradient - at, "%d ", i);
    snprintf(found->gradient + at, sizeof found->gradient - at, "by output");
    for (int i = 0; i < CT_MAX_OUTPUTS; i++)
        if (outputs >> i & 1) snprintf(found->gradient + strlen(found->gradient), 8, " %d", i);
}

// ---- f(2x - 3z) = 2 f(x) - 3 f(z) in a flagged input ----

static double linear_error(example *e, int input) {
    int64_t n = ct_type_elems(&e->in[input]);
    double *x = ct_malloc((size_t)(n + 1) * sizeof *x), *sum[CT_MAX_OUTPUTS], worst = 0;
    for (int o = 0; o < e->outputs; o++) sum[o] = NULL;
    static const double factors[] = {2, -3, 1};
    memcpy(x, e->data[input], (size_t)n * sizeof *x);
    for (int pass = 0; pass < 3; pass++) { // x, z, and last the two of them
        for (int64_t i = 0; i < n && pass < 2; i++) {
            if (pass) e->data[input][i] = cos((double)i);
            x[i] = pass ? 2 * x[i] - 3 * e->data[input][i] : x[i];
        }
        if (pass == 2) memcpy(e->data[input], x, (size_t)n * sizeof *x);
        example_run(e);
        for (int o = 0; o < e->outputs; o++) {
            int64_t count = ct_type_elems(&e->out[o]);
            if (!sum[o]) sum[o] = ct_calloc((size_t)count + 1, sizeof *sum[o]);
            for (int64_t i = 0; i < count; i++)
                if (pass < 2) sum[o][i] += factors[pass] * e->result[o][i];
                else worst = fmax(worst, fabs(sum[o][i] - e->result[o][i]));
        }
    }
    for (int o = 0; o < e->outputs; o++) free(sum[o]);
    free(x);
    return worst;
}

void check_linear(const ct_op *op, finding *found) {
    for (int i = 0; i < (op->inputs < 0 ? 1 : op->inputs) && i < 8; i++) {
        if (!(op->flags & CT_OP_LINEAR0 << i)) continue;
        for (unsigned seed = 0; seed < SEEDS; seed++) {
            example e;
            example_init(&e, op, CT_F32, TINY, seed);
            int addend = op->flags & CT_OP_ADDITIVE && op->must_alias[0] ? op->must_alias[0] - 1 : -1; // what is added to is nothing
            if (addend >= 0) memset(e.data[addend], 0, sizeof(double) * (size_t)ct_type_elems(&e.in[addend]));
            double error = linear_error(&e, i);
            if (!(error < 1e-10)) fail_msg("%s is not linear in input %d: off by %g", op->name, i, error);
            if (error > found->linear_error) found->linear_error = error;
            example_deinit(&e);
        }
        snprintf(found->linear + strlen(found->linear), sizeof found->linear - strlen(found->linear), "%d ", i);
    }
}
