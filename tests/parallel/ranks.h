// All ranks of a mesh at once, in double: each op by its reference on every rank's part, each move by its pieces.
#pragma once
#include "graph/local.h"
#include "ops/interpret.h"
#include "ops/ops.h"

typedef struct {
    const ct_graph *placed;
    int ranks;
    ct_graph *local;              // by rank
    ct_reference_values *values;  // by rank
} all_ranks;

void ranks_open(all_ranks *r, const ct_graph *placed);
void ranks_close(all_ranks *r);

// Gives every rank its part of a value, `whole` being the global tensor. Sums are split in random parts that add up to it, but for the last
// bits; maxima are what a rank would have found.
void ranks_scatter(all_ranks *r, int value, const double *whole, uint64_t *random);

// Runs node n on all ranks.
void ranks_run_node(all_ranks *r, int n);

// Puts a value together: parts beside one another, sums added, maxima taken. Fails the test where ranks that should hold the same do not.
void ranks_gather(const all_ranks *r, int value, double *whole);
