// A placed program as it is trained: planned for every rank, and run by rank threads with the real kernels and moves.
#pragma once
#include "ranks.h"

typedef struct {
    int per_node;   // ranks that share memory; the others get messages. 0: all
    int in_parts;   // readers of gathered activations, and makers of sums, run on one rank's part at a time
    int threads;    // of a rank
} execution;

// How a rank on such nodes sees them, for who orders a program's moves.
ct_near execution_near(const execution *how, int ranks, int rank);

// Takes the inputs from the ranks' values and leaves outputs and new states there. Memory is NaN where nothing lives.
ct_status ranks_execute(all_ranks *ranks, execution how);
