// Autodiff: a walk over each op's gradient entry, from the loss back, giving the joint graph of forward, input-grad, weight-grad.
#pragma once
#include "graph/graph.h"

// Appends to `graph` the gradients of `output` (named in the graph's outputs; its ops decide what the seed means: the loss visit
// yields gradients of inv_count · Σ loss itself) with respect to every parameter input, and accumulates them:
// for each use of parameter P that has a gradient, in order of use, a state "P.grad", "P.grad.1", … f32 of P's dims with
// acc' = first ? part : acc + part, where `first` is the feed "first" i32 (added). A parameter used twice has an accumulator a use.
ct_status ct_autodiff_apply(ct_graph *graph, const char *output);

// The name of the accumulator of a parameter's use: "P.grad" for use 0, "P.grad.<use>" after. In the arena.
const char *ct_gradient_name(ct_arena *arena, const char *parameter, int use);
