// Rewriting: a pass reads one graph and writes another, node by node, so that no pass edits a graph under its own feet.
#pragma once
#include "graph/graph.h"

typedef struct {
    const ct_graph *from;
    ct_graph *to;
    int *map; // value id in `from` → value id in `to`, -1: not there (yet)
} ct_rewrite;

// Starts a rewrite of `from` into the fresh graph `to`: same name, same dim roles. Copies all inputs if `copy_inputs`.
void ct_rewrite_begin(ct_rewrite *rewrite, const ct_graph *from, ct_graph *to, int copy_inputs);

// The new value for an old one; asserts that it is there.
ct_value ct_rewrite_value(const ct_rewrite *rewrite, int old_value);

// Copies one input with kind and name (its update is paired by `end`).
ct_value ct_rewrite_input(ct_rewrite *rewrite, int input);

// Copies a node with its provenance, mapping its outputs. Returns the new node's index.
int ct_rewrite_node(ct_rewrite *rewrite, int node);

// Sets the provenance of nodes built next, with a copy of its module's name (a graph must not point into another's arena).
void ct_rewrite_at(ct_rewrite *rewrite, ct_provenance from);

// Pairs state updates, copies the named outputs, frees the map, and returns the new graph's build status.
ct_status ct_rewrite_end(ct_rewrite *rewrite);

// Ends a rewrite that failed: the new graph is the caller's to deinit.
void ct_rewrite_abandon(ct_rewrite *rewrite);
