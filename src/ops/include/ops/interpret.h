// Runs a whole graph by the ops' reference loops, in double: what a program means, slowly. For tests of ops, passes and models.
#pragma once
#include "ops/ops.h"

// One array of doubles a value id, ct_type_elems long; integers stand as doubles. Zero-initialise through ct_reference_init.
typedef struct {
    double **values; // by value id
    int count;
} ct_reference_values;

// Room for every value of the graph, zeroed. Caller deinits.
void ct_reference_init(ct_reference_values *values, const ct_graph *graph);
void ct_reference_deinit(ct_reference_values *values);

// Runs every node in order: the inputs' arrays are read, all others written; nothing is changed in place, an update is an array of its
// own. rounded = 1: every output is rounded to its dtype once (f32 and bf16 programs as kernels would at best do), 0: all in double.
void ct_reference_run(const ct_graph *graph, ct_reference_values *values, int rounded);

// Runs one node's reference loop (or its view).
void ct_reference_node(const ct_graph *graph, int node, ct_reference_values *values, int rounded);

// x rounded to the nearest value of a dtype; integers are taken as they are.
double ct_reference_round(double x, ct_dtype dtype);
